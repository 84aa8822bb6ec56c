/* SPDX-License-Identifier: BSD-3-Clause */
/* kvferry: the command line of kvferry. */
#include <stdio.h>
#include <string.h>

#include "args.h"

static const struct command commands[] = {
	{"plan", "print which rows of one side go to which rows of the other", cmd_plan},
	{"link", "print who would serve what between two groups, or why they do not fit", cmd_link},
	{"group", "print the contiguous groups of two index lists", cmd_group},
	{"status", "ask a running kvferryd how it is", cmd_status},
	{"top", "rates of a running kvferryd, again and again", cmd_top},
	{"doctor", "look at this host: hugepages, limits, CPU, engine", cmd_doctor},
};

#define NUM_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void
usage(FILE *to)
{
	size_t i;

	fprintf(to, "usage: kvferry COMMAND [options]\n       kvferry --version\n\n");
	for (i = 0; i < NUM_COMMANDS; i++)
		fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].help);
	fprintf(to, "\nkvferry COMMAND --help prints the options of a command.\n");
}

int
main(int argc, char **argv)
{
	struct kvf_err err = {0};
	size_t i;
	int rc;

	if (argc < 2) {
		usage(stderr);
		return 1;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		usage(stdout);
		return 0;
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("kvferry %s\n", KVF_VERSION);
		return 0;
	}
	for (i = 0; i < NUM_COMMANDS; i++) {
		if (strcmp(argv[1], commands[i].name) == 0)
			break;
	}
	if (i == NUM_COMMANDS) {
		fprintf(stderr, "kvferry: INVAL: unknown command \"%s\" (see kvferry --help)\n",
			argv[1]);
		return 1;
	}
	rc = commands[i].run(argc - 1, argv + 1, &err);
	/* A full disk or a closed pipe must not look like a short answer. */
	if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout)))
		rc = cli_fail(&err, KVF_E_SYS, "cannot write the answer to stdout");
	if (rc != 0)
		fprintf(stderr, "kvferry: %s: %s\n", kvf_error_name(err.code), err.text);
	return rc;
}
