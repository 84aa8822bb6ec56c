/* SPDX-License-Identifier: BSD-3-Clause */
/* kvferryd as a child of a program that needs one. */
#ifndef KVFERRY_APPS_ENGINE_H
#define KVFERRY_APPS_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <kvferry/error.h>

struct app_engine_config {
	const char *who;    /* the program's name, for messages */
	const char *path;   /* of kvferryd */
	const char *socket; /* that it shall listen at */
	const char *driver; /* NAME[:ARGS] */
	uint32_t lcores;
	const char *cpus; /* NULL: not pinned */
	const char *args; /* further words; those before a "--" are kvferryd's own, the others (all
			     without one) EAL's. NULL: none */
	bool no_huge;
	bool busy;
	bool quiet; /* it says only what goes wrong */
};

struct app_engine {
	pid_t pid; /* 0: not ours, or ended */
};

/* Starts it and waits until it answers. */
int app_engine_start(
	struct app_engine *e, const struct app_engine_config *cfg, struct kvf_err *err);

/* Waits up to limit_ms until an engine answers; notices the death of one that is ours. */
int app_engine_wait(
	struct app_engine *e, const char *socket, uint64_t limit_ms, struct kvf_err *err);

/* SIGTERM, then SIGKILL. KVF_E_ENGINE_GONE with how it ended when that was not in good order. */
int app_engine_stop(struct app_engine *e, struct kvf_err *err);

#endif
