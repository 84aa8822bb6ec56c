/* SPDX-License-Identifier: BSD-3-Clause */
/* The parent's side: worker processes, their milestones, what went wrong, the report. */
#ifndef PD_DEMO_RUN_H
#define PD_DEMO_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "common/engine.h"
#include "pd-demo/options.h"
#include "pd-demo/proto.h"
#include "pd-demo/rooms.h"
#include "pd-demo/size.h"

#define DEMO_MAX_FAILURES 32u /* kept for the report; all are counted and printed */

struct demo_member {
	enum kvf_role role;
	uint32_t rank;
	pid_t pid;          /* 0: reaped */
	int fd;             /* -1: closed */
	uint32_t milestone; /* the last one: enum demo_msg_type */
	bool dead;          /* ended before it was closed */
	bool told;          /* said itself why it gives up */
	uint64_t pool_bytes;
	uint64_t page_size;
	uint64_t first_post;
	uint64_t last_success;
	uint64_t bytes;
	uint64_t mismatches;
	uint64_t done; /* progress in this phase */
	uint64_t all;
};

struct demo_failure {
	char rank[24];
	uint64_t room; /* id; 0: not about a room */
	int code;
	char text[256];
};

struct demo_run {
	const struct demo_options *o;
	const struct model *model;
	struct demo_plan plan;
	struct demo_sizing sizing;
	struct app_engine engine;
	struct demo_member *members; /* prefill ranks, then decode ranks */
	uint32_t num_members;
	bool *room_failed;
	uint32_t num_failures;
	struct demo_failure failures[DEMO_MAX_FAILURES];
	bool broken;          /* a worker died or gave up: the run ends soon */
	uint64_t grace_until; /* until then the others may say what they saw */
	const char *phase;
	bool line; /* a progress line stands on the terminal */
	uint64_t next_line;
	FILE *info;
	double fill_s;
	double verify_s;
};

#define DEMO_PREFILL_BIT (1u << KVF_PREFILL)
#define DEMO_DECODE_BIT  (1u << KVF_DECODE)
#define DEMO_ALL_BITS    (DEMO_PREFILL_BIT | DEMO_DECODE_BIT)

/* members.c: processes and messages */
int demo_members_spawn(struct demo_run *run, struct kvf_err *err);
void demo_members_go(struct demo_run *run, uint32_t roles);
/* Until every living member of `roles` has passed it. False when the run is broken or out of time.
 */
bool demo_members_wait(
	struct demo_run *run, const char *phase, uint32_t roles, enum demo_msg_type milestone);
/* Kills those still running and reaps all; what they told stays. */
void demo_members_end(struct demo_run *run);
void demo_fail(struct demo_run *run, const struct demo_member *m, uint32_t room, int code,
	const char *text);

/* report.c */
void demo_report_plan(const struct demo_run *run);
/* The report and the last line. Returns the exit status. */
int demo_report_end(const struct demo_run *run);

/* run.c: everything */
int demo_parent_main(struct demo_options *o, const struct model *m);

#endif
