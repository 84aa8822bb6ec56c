/* SPDX-License-Identifier: BSD-3-Clause */
/* Options, strict numbers and errors of the command line. */
#ifndef KVFERRY_ARGS_H
#define KVFERRY_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/error.h>

/* One "--name VALUE" (or "--name=VALUE"), or "--name" alone where `arg` is NULL. */
struct opt {
	const char *name; /* without the dashes */
	const char *arg;  /* what the value is called in --help; NULL: takes none */
	const char *help;
	const char **value; /* set to the value (the last one given), or to "" */
};

/* A subcommand: one line in main.c, one file. */
struct command {
	const char *name;
	const char *help;
	int (*run)(int argc, char **argv, struct kvf_err *err); /* 0, 1 after a refusal in *err */
};

/* Fills in *err; returns 1, the exit status of bad input. */
int cli_fail(struct kvf_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Takes argv[1..] as options, nothing else. 0: go on; -1: --help was asked for and printed; 1:
 * refused. Names are taken whole, never abbreviated, so that a later option cannot change what a
 * script means.
 */
int opts_parse(int argc, char **argv, const char *about, const struct opt *opts, size_t n,
	struct kvf_err *err);

/*
 * Decimal digits, nothing else. NULL leaves *value as it is. Negative numbers are refused with
 * `negative` as the error's code, values past `limit` with KVF_E_OVERFLOW.
 */
int arg_u64(const char *name, const char *text, uint64_t limit, int negative, uint64_t *value,
	struct kvf_err *err);
int arg_u32(const char *name, const char *text, int negative, uint32_t *value, struct kvf_err *err);

/* "a,b,.."; "" is the empty list. Free *list with free(). */
int arg_list(const char *name, const char *text, uint64_t limit, uint64_t **list, uint64_t *n,
	struct kvf_err *err);

int cmd_plan(int argc, char **argv, struct kvf_err *err);
int cmd_link(int argc, char **argv, struct kvf_err *err);
int cmd_group(int argc, char **argv, struct kvf_err *err);
int cmd_status(int argc, char **argv, struct kvf_err *err);
int cmd_top(int argc, char **argv, struct kvf_err *err);
int cmd_doctor(int argc, char **argv, struct kvf_err *err);

#endif
