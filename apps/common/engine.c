/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kvferry/client.h>

#include "common/clock.h"
#include "common/engine.h"
#include "common/fail.h"

#define MAX_ARGS    64u
#define START_MS    10000u
#define STOP_MS     10000u
#define ASK_MS      500u
#define NAP_NS      20000000
#define EXEC_FAILED 127

struct engine_args {
	char *argv[MAX_ARGS + 1];
	uint32_t n;
	char lcores[16];
	char *words; /* a copy of engine_args, cut up */
};

static void
put(struct engine_args *a, const char *word)
{
	if (a->n < MAX_ARGS)
		a->argv[a->n] = (char *)(uintptr_t)word;
	a->n++;
}

/* Words before a "--" are kvferryd's own, those after it EAL's; without one all are EAL's. */
static int
make_args(struct engine_args *a, const struct app_engine_config *cfg, struct kvf_err *err)
{
	char *word, *save = NULL;
	bool own = false;

	memset(a, 0, sizeof(*a));
	snprintf(a->lcores, sizeof(a->lcores), "%u", cfg->lcores);
	put(a, cfg->path);
	put(a, "--socket");
	put(a, cfg->socket);
	put(a, "--driver");
	put(a, cfg->driver);
	put(a, "--lcores");
	put(a, a->lcores);
	if (cfg->cpus != NULL) {
		put(a, "--cpus");
		put(a, cfg->cpus);
	}
	if (cfg->busy)
		put(a, "--busy");
	if (cfg->quiet)
		put(a, "--quiet");
	if (cfg->no_huge)
		put(a, "--no-huge");
	a->words = strdup(cfg->args != NULL ? cfg->args : "");
	if (a->words == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for engine-args");
	for (word = strstr(a->words, "--"); word != NULL; word = strstr(word + 2, "--"))
		own = own || ((word == a->words || word[-1] == ' ') &&
				     (word[2] == ' ' || word[2] == '\0'));
	word = strtok_r(a->words, " ", &save);
	if (word != NULL && !own)
		put(a, "--");
	for (; word != NULL; word = strtok_r(NULL, " ", &save))
		put(a, word);
	if (a->n > MAX_ARGS) {
		free(a->words);
		return app_fail(
			err, KVF_E_INVAL, "engine-args: arguments=%u exceed %u", a->n, MAX_ARGS);
	}
	a->argv[a->n] = NULL;
	return 0;
}

static void __attribute__((noreturn))
run_engine(const struct engine_args *a, const char *who, pid_t parent)
{
	int null;

	/* Its standard output is a log: ours ends with one line that scripts read. */
	dup2(STDERR_FILENO, STDOUT_FILENO);
	null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (null >= 0)
		dup2(null, STDIN_FILENO);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(EXEC_FAILED);
	execv(a->argv[0], a->argv);
	fprintf(stderr, "%s: cannot run %s: %s\n", who, a->argv[0], strerror(errno));
	_exit(EXEC_FAILED);
}

static void
describe_end(int status, char *buf, size_t len)
{
	if (WIFSIGNALED(status))
		snprintf(buf, len, "signal=%d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(buf, len, "exit status=%d", WEXITSTATUS(status));
}

int
app_engine_start(struct app_engine *e, const struct app_engine_config *cfg, struct kvf_err *err)
{
	struct engine_args args;
	pid_t parent = getpid();
	int rc;

	e->pid = 0;
	if (access(cfg->path, X_OK) != 0)
		return app_fail(err, KVF_E_NOENT, "engine=%.150s cannot be run: %s", cfg->path,
			strerror(errno));
	rc = make_args(&args, cfg, err);
	if (rc != 0)
		return rc;
	e->pid = fork();
	if (e->pid == 0)
		run_engine(&args, cfg->who, parent);
	free(args.words);
	if (e->pid < 0) {
		e->pid = 0;
		return app_fail(err, KVF_E_SYS, "fork failed: %s", strerror(errno));
	}
	rc = app_engine_wait(e, cfg->socket, START_MS, err);
	if (rc != 0)
		app_engine_stop(e, NULL);
	return rc;
}

int
app_engine_wait(struct app_engine *e, const char *socket, uint64_t limit_ms, struct kvf_err *err)
{
	const struct timespec nap = {0, NAP_NS};
	uint64_t deadline = app_now_ns() + limit_ms * 1000000;
	struct kvf_err inner = {0};
	char end[80], *json = NULL;
	int status;

	for (;;) {
		if (kvf_engine_status(socket, ASK_MS, &json, &inner) == 0) {
			free(json);
			return 0;
		}
		if (e->pid > 0 && waitpid(e->pid, &status, WNOHANG) == e->pid) {
			e->pid = 0;
			describe_end(status, end, sizeof(end));
			return app_fail(
				err, KVF_E_ENGINE_GONE, "kvferryd ended before it served: %s", end);
		}
		if (app_now_ns() >= deadline)
			return app_fail(err, KVF_E_TIMEOUT,
				"no engine answers at socket=%.100s after %u ms (%.100s)", socket,
				(unsigned int)limit_ms, inner.text);
		nanosleep(&nap, NULL);
	}
}

int
app_engine_stop(struct app_engine *e, struct kvf_err *err)
{
	uint64_t deadline = app_now_ns() + STOP_MS * 1000000ull;
	const struct timespec nap = {0, NAP_NS};
	bool killed = false;
	char end[80];
	int status = 0;
	pid_t got;

	if (e->pid <= 0)
		return 0;
	kill(e->pid, SIGTERM);
	for (;;) {
		got = waitpid(e->pid, &status, WNOHANG);
		if (got == e->pid || (got < 0 && errno != EINTR))
			break;
		if (app_now_ns() < deadline) {
			nanosleep(&nap, NULL);
		} else if (!killed) {
			kill(e->pid, SIGKILL);
			killed = true;
			deadline = app_now_ns() + APP_KILL_MS * 1000000ull;
		} else {
			break; /* the kernel holds it: left behind */
		}
	}
	e->pid = 0;
	if (killed)
		return app_fail(
			err, KVF_E_TIMEOUT, "kvferryd did not stop within %u ms: killed", STOP_MS);
	if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
		(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM))
		return 0;
	describe_end(status, end, sizeof(end));
	return app_fail(err, KVF_E_ENGINE_GONE, "kvferryd did not end in good order: %s", end);
}
