/* SPDX-License-Identifier: BSD-3-Clause */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/suite.h"
#include "unit/plan/cli.h"

#define MAX_ARGS 40

extern char **environ;

static void
drain(int fd, char *buf)
{
	size_t n = 0;
	ssize_t got;

	while ((got = read(fd, buf + n, CLI_OUT_MAX - 1 - n)) > 0)
		n += (size_t)got;
	buf[n] = '\0';
	close(fd);
}

void
cli_run(struct cli_result *res, const char *line)
{
	const char *bin = getenv("KVFERRY_BIN");
	posix_spawn_file_actions_t fa;
	char *argv[MAX_ARGS], *copy = strdup(line), *save = NULL, *word;
	int out[2], err[2], st, n = 0;
	pid_t pid;

	memset(res, 0, sizeof(*res));
	res->status = -1;
	if (!CHECK(bin != NULL && copy != NULL))
		goto done;
	argv[n++] = (char *)bin;
	for (word = strtok_r(copy, " ", &save); word != NULL && n < MAX_ARGS - 1;
		word = strtok_r(NULL, " ", &save))
		argv[n++] = strcmp(word, "''") == 0 ? word + 2 : word;
	argv[n] = NULL;
	if (pipe(out) != 0 || pipe(err) != 0)
		abort();
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, out[1], 1);
	posix_spawn_file_actions_adddup2(&fa, err[1], 2);
	posix_spawn_file_actions_addclose(&fa, out[0]);
	posix_spawn_file_actions_addclose(&fa, err[0]);
	if (!CHECK_EQ(posix_spawn(&pid, bin, &fa, NULL, argv, environ), 0))
		pid = -1;
	posix_spawn_file_actions_destroy(&fa);
	close(out[1]);
	close(err[1]);
	/* What goes to stderr fits a pipe, so reading one after the other cannot block. */
	drain(out[0], res->out);
	drain(err[0], res->err);
	if (pid > 0 && waitpid(pid, &st, 0) == pid && WIFEXITED(st))
		res->status = WEXITSTATUS(st);
done:
	free(copy);
}

void
cli_expect_refusal(const char *line, const char *text, const char *file, int lineno)
{
	struct cli_result *res = malloc(sizeof(*res));
	char want[600];

	cli_run(res, line);
	suite_check_eq(res->status, 1, line, file, lineno);
	suite_check(res->out[0] == '\0', res->out, file, lineno);
	/* One line: program, name, sentence. */
	snprintf(want, sizeof(want), "kvferry: %s", text);
	suite_check_has(res->err, want, file, lineno);
	suite_check(
		strchr(res->err, '\n') == res->err + strlen(res->err) - 1, res->err, file, lineno);
	free(res);
}

void
cli_expect_output(const char *line, const char *text, const char *file, int lineno)
{
	struct cli_result *res = malloc(sizeof(*res));

	cli_run(res, line);
	suite_check_eq(res->status, 0, line, file, lineno);
	suite_check(strcmp(res->out, text) == 0, res->out, file, lineno);
	suite_check(res->err[0] == '\0', res->err, file, lineno);
	free(res);
}
