/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of a worker between filling and checking: post every room, follow it to its end. */
#ifndef PD_DEMO_TRANSFER_H
#define PD_DEMO_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/client.h>

#include "pd-demo/options.h"
#include "pd-demo/proto.h"
#include "pd-demo/store.h"

struct demo_room_state {
	uint64_t next;    /* prefill: first token that is not posted yet */
	uint64_t arrived; /* tokens, as the last event said */
	int status;       /* enum kvf_status */
	bool posted;      /* at least once: it has to be released */
	bool complete;    /* prefill: the final chunk is posted */
	bool drained;
	bool over; /* finished and drained, or never posted */
	bool failed;
};

struct demo_worker {
	const struct demo_options *o;
	const struct demo_layout *layout;
	const struct demo_plan *plan;
	struct demo_store store;
	struct kvf_endpoint *ep;
	struct demo_room_state *rooms;
	uint32_t num_over;
	int fd; /* to the parent */
	uint64_t first_post;
	uint64_t last_success;
	uint64_t next_progress;
};

/* Decode: grants every room. A room that is refused is reported and over. */
int demo_grant_rooms(struct demo_worker *w, struct kvf_err *err);

/*
 * Prefill: posts the chunks of all rooms in turn. Both: follows the rooms until none is open. Each
 * failure is reported to the parent. Returns 0 also when rooms failed; KVF_E_TIMEOUT or
 * KVF_E_ENGINE_GONE when it had to give up.
 */
int demo_run_rooms(struct demo_worker *w, struct kvf_err *err);

/* An abort that the parent asks for, because a room failed at another rank, before the engine could
 * know. */
void demo_abort_room(struct demo_worker *w, uint32_t room);

/* Forgets all rooms at the engine. */
int demo_release_rooms(struct demo_worker *w, struct kvf_err *err);

/* To the parent; a parent that is gone ends the process. */
void demo_tell(struct demo_worker *w, const struct demo_msg *msg);
void demo_tell_fail(struct demo_worker *w, uint32_t room, int code, const char *text);
/* At most ten times a second. */
void demo_tell_progress(struct demo_worker *w, uint64_t done, uint64_t all);

#endif
