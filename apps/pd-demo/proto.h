/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parent and worker: one SOCK_SEQPACKET pair each, one packet one message.
 *
 *   worker                                       parent
 *   READY (pool filled, endpoint open)      ->
 *                                           <-   GO to decode ranks
 *   POSTED (all rooms granted)              ->
 *                                           <-   GO to prefill ranks, when all decode ranks have
 * posted DONE (no room is open here any more)    ->
 *                                           <-   GO to all
 *   VERIFIED                                ->
 *   CLOSED (rooms released, endpoint shut)  ->   then end of stream
 *
 * At any time: PROGRESS and FAIL from workers, ABORT to them. The end of the stream before CLOSED
 * is a death.
 */
#ifndef PD_DEMO_PROTO_H
#define PD_DEMO_PROTO_H

#include <stdint.h>

#include "common/clock.h"

enum demo_msg_type {
	/* Milestones, in order. */
	DEMO_READY = 1,    /* v: mapped pool bytes, pool page size */
	DEMO_POSTED = 2,   /* decode only */
	DEMO_DONE = 3,     /* v: first post, last completion (ns, CLOCK_MONOTONIC; 0: none) */
	DEMO_VERIFIED = 4, /* v: bytes, mismatches; text: the first mismatch */
	DEMO_CLOSED = 5,
	DEMO_PROGRESS = 6, /* v: work done, work altogether, in this phase */
	DEMO_FAIL = 7,     /* room (index or DEMO_NO_ROOM), code, text */
	DEMO_GO = 8,
	DEMO_ABORT = 9, /* room: it failed elsewhere */
};

#define DEMO_NO_ROOM UINT32_MAX

struct demo_msg {
	uint32_t type;
	uint32_t room;
	int32_t code;
	uint32_t reserved;
	uint64_t v[2];
	char text[256];
};

/* Runs one worker to its end; the exit status. */
struct demo_options;
struct model;
int demo_worker_main(const struct demo_options *o, const struct model *m);

#endif
