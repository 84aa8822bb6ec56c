/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bytes of one rank's pool: filling them in, and checking each one of them.
 *
 * Everything that no room owns holds a guard pattern. Checking a room compares each of its rows and
 * then puts the guard back, so that one sweep over the whole pool afterwards finds every byte that
 * was written where nothing should have been - also one that arrived after its room was reported
 * finished.
 */
#ifndef PD_DEMO_STORE_H
#define PD_DEMO_STORE_H

#include <stdint.h>

#include "pd-demo/layout.h"
#include "pd-demo/pages.h"
#include "pd-demo/rooms.h"

/* What one room was given here. */
struct demo_grant {
	uint32_t *pages;
	uint32_t num_pages;
	uint32_t aux;
	uint32_t *state[MODEL_STATE_TYPES + 1]; /* by type; NULL: not here */
	uint32_t num_state[MODEL_STATE_TYPES + 1];
};

struct demo_store {
	const struct demo_layout *layout;
	const struct demo_plan *plan;
	uint8_t *base;
	uint64_t guard_key;
	struct demo_grant *grants; /* one per room */
	/* Called now and then with bytes done since the last call; may be NULL. */
	void (*progress)(void *arg, uint64_t bytes);
	void *progress_arg;
};

struct demo_check {
	uint64_t bytes;      /* looked at and owned by a room */
	uint64_t mismatches; /* bytes that differ */
	char text[252];      /* the first one: where, what, wanted; "" while there is none */
};

/* Gives every room its pages and slots. The pool itself is the caller's. */
int demo_store_init(struct demo_store *s, const struct demo_layout *layout,
	const struct demo_plan *plan, uint8_t *base, uint64_t seed, struct kvf_err *err);
void demo_store_fini(struct demo_store *s);

/* Writes the guard over the whole pool. */
void demo_store_guard(struct demo_store *s);

/* Writes the rows of one room. */
void demo_store_fill(struct demo_store *s, uint32_t room);

/* Compares the rows of one room and puts the guard back. */
void demo_store_check(struct demo_store *s, uint32_t room, struct demo_check *check);

/* Puts the guard back without comparing: the room failed, its rows may hold anything. */
void demo_store_forget(struct demo_store *s, uint32_t room);

/* Compares the whole pool with the guard. */
void demo_store_sweep(struct demo_store *s, struct demo_check *check);

#endif
