/* SPDX-License-Identifier: BSD-3-Clause */
/* kvferryd as a child of the demo. */
#ifndef PD_DEMO_ENGINE_H
#define PD_DEMO_ENGINE_H

#include <sys/types.h>

#include "pd-demo/options.h"

struct demo_engine {
	pid_t pid; /* 0: not ours, or ended */
};

/* Starts o->engine and waits until it answers at o->socket. */
int demo_engine_start(
	struct demo_engine *e, const struct demo_options *o, bool no_huge, struct kvf_err *err);

/* Waits up to limit_ms until an engine answers; notices the death of one that is ours. */
int demo_engine_wait(
	struct demo_engine *e, const char *socket, uint64_t limit_ms, struct kvf_err *err);

/* SIGTERM, then SIGKILL. KVF_E_ENGINE_GONE with how it ended when that was not in good order. */
int demo_engine_stop(struct demo_engine *e, struct kvf_err *err);

#endif
