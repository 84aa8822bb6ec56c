/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Worker processes, forked, and what they share with the parent. A worker waits for "go", works,
 * says "done"; an error or a death ends the run. Nobody outlives the parent.
 */
#ifndef KVFERRY_PERF_TEAM_H
#define KVFERRY_PERF_TEAM_H

#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <kvferry/kvferry.h>

#include "kvferry-perf/field.h"
#include "kvferry-perf/session.h"

struct perf_member {
	sem_t go;
	pid_t pid;
	int rc;
	struct kvf_err err;
	uint64_t first_post; /* ns */
	uint64_t last_success;
	uint64_t post_ns; /* spent in kvf_send() */
	uint64_t mismatches;
};

struct perf_team {
	sem_t done;
	uint32_t n;
	_Atomic uint32_t quit;
	/* The parent's orders. */
	uint64_t room; /* id of the first room */
	uint32_t slot; /* that it uses */
	uint32_t rooms;
	struct perf_member member[];
};

typedef int (*perf_member_fn)(struct perf_team *t, uint32_t index, void *arg, struct kvf_err *err);

/* Forks n workers, each runs fn. */
int perf_team_start(
	struct perf_team **t, uint32_t n, perf_member_fn fn, void *arg, struct kvf_err *err);
void perf_team_go(struct perf_team *t, uint32_t index);
/* Until `count` workers more said done. KVF_E_TIMEOUT, the error of a worker, or KVF_E_SYS when one
 * died. */
int perf_team_wait(struct perf_team *t, uint32_t count, uint32_t timeout_s, struct kvf_err *err);
/* 0 while none has failed or died. */
int perf_team_look(struct perf_team *t, struct kvf_err *err);
/* Lets them leave; kills those that do not. */
void perf_team_end(struct perf_team *t);

/* In a worker. False: leave. */
bool perf_member_wait(struct perf_team *t, uint32_t index);
void perf_member_done(struct perf_team *t);

/* Opens the endpoint of a rank of the field; `pair` tells several fields apart. `in_flight`: rooms
 * at a time. */
int perf_endpoint(const struct perf_session *s, const struct perf_field *f, enum kvf_role role,
	uint32_t rank, uint32_t pair, uint32_t in_flight, struct kvf_endpoint **ep,
	struct kvf_err *err);

/* Posts one room of the field. */
int perf_grant(struct kvf_endpoint *ep, const struct perf_field *f, uint32_t rank, uint64_t room,
	uint32_t slot, struct kvf_err *err);
int perf_send(struct kvf_endpoint *ep, const struct perf_field *f, uint32_t rank, uint64_t room,
	uint32_t slot, struct kvf_err *err);

/* What a Failed room, or a lost engine, is to a benchmark. */
int perf_room_failed(struct kvf_endpoint *ep, uint64_t room, struct kvf_err *err);

#endif
