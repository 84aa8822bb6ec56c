/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine that is measured, ours or somebody's, and the CPUs that it and the workers have. */
#ifndef KVFERRY_PERF_SESSION_H
#define KVFERRY_PERF_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "common/engine.h"
#include "kvferry-perf/baseline.h"
#include "kvferry-perf/machine.h"
#include "kvferry-perf/options.h"

struct perf_session {
	const struct perf_options *o;
	struct app_engine engine;
	char path[4096]; /* of kvferryd */
	char socket_buf[64];
	const char *socket;
	uint64_t tag; /* makes this run's group names its own */
	pid_t pid;    /* of the engine, ours or not */
	char driver[32];
	char kernel[128];
	uint32_t lcores;
	uint32_t cpus[64]; /* of the lcores */
	char cpu_list[512];
	bool pinned;
	uint32_t worker_cpus[PERF_MAX_CPUS];
	uint32_t num_worker_cpus; /* 0: any */
	struct perf_crew crew;
};

/* What an engine's lcores did so far. */
struct perf_counters {
	double copy_s, busy_s; /* of all lcores together */
	uint64_t bytes, copies, runs, segments;
};

/* Chooses CPUs (also without an engine: for crews) and pins the caller to those of the workers. */
int perf_session_cpus(struct perf_session *s, const struct perf_options *o, struct kvf_err *err);
/* Starts or finds the engine. `small`: its memory on 4 KiB pages. */
int perf_session_start(struct perf_session *s, bool small, struct kvf_err *err);
/* Ends it whatever happened before; rc and *err keep what went wrong first. */
int perf_session_end(struct perf_session *s, int rc, struct kvf_err *err);
int perf_session_counters(
	const struct perf_session *s, struct perf_counters *c, struct kvf_err *err);

#endif
