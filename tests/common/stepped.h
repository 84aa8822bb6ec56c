/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A dispatcher on one thread, without EAL, sockets or lcores: the harness steps it, plays the
 * control thread and the copy driver, and sees every completion.
 *
 * What must hold at any time is checked here: no copy reads or writes outside its pools, into a
 * page that is not granted or of a part that was reported drained; a status never goes back; when
 * all endpoints are gone nothing is left.
 */
#ifndef KVF_TESTS_STEPPED_H
#define KVF_TESTS_STEPPED_H

#include <kvferry/client.h>

#include "engine/internal.h"

#define STEPPED_GROUPS  4u
#define STEPPED_RANKS   2u
#define STEPPED_ENTRIES 8u
#define STEPPED_PAGES   8u
#define STEPPED_SEEN    128u

/* What such an endpoint declares: tokens in list 0, state in list 1, aux in list 2. */
struct stepped_shape {
	uint32_t page_tokens;
	uint32_t layers; /* 1..2 */
	uint32_t row_bytes;
	uint32_t row_bytes1; /* of layer 1; 0: the same */
	bool sharded;        /* over the group's ranks */
	bool band;
	bool state;
	uint32_t state_rule;
	uint32_t state_tokens;
	bool aux;
};

struct stepped_seen {
	uint64_t seq;
	uint8_t status;
	uint8_t flags;
};

struct stepped_ep {
	struct kvf_ep ep; /* first */
	uint32_t group;   /* index in eng->groups */
	bool dead_sent;
	void *pool;
	void *ring_mem;
	uint32_t seen_tail;
	struct stepped_seen seen[STEPPED_SEEN];
	uint32_t num_seen;
};

struct stepped {
	struct kvf_engine engine;
	struct kvf_dispatcher *disp;
	struct kvf_copy_shared *copy;
	struct kvf_ep_group groups[STEPPED_GROUPS];
	struct stepped_ep *eps[STEPPED_GROUPS][STEPPED_RANKS]; /* alive */
	struct kvf_ep_group *wants[64][2];
	uint32_t num_wants;
	uint32_t num_eps; /* not gone yet */
	uint64_t now;     /* 1 GHz */
	bool at_rest;
	bool hold;       /* the driver finishes nothing */
	uint32_t fail;   /* so many copies are going to fail, those of spared groups excepted */
	uint32_t spared; /* bits of groups */
	/* Of endpoints to come. */
	uint32_t max_rooms, sq_entries, cq_entries;
	uint64_t arena_bytes;
	uint64_t executed; /* rows copied */
	uint64_t longest;  /* most bytes in one submit */
};

void stepped_init(struct stepped *r);
/* Makes group `index` with `size` ranks; its endpoints come one by one. */
void stepped_group(
	struct stepped *r, uint32_t index, uint32_t role, uint32_t size, const char *name);
struct stepped_ep *stepped_add(
	struct stepped *r, uint32_t index, uint32_t rank, const struct stepped_shape *shape);
/* As when its connection is closed. */
void stepped_kill(struct stepped *r, struct stepped_ep *e);
/* A round of the dispatcher `ns` later, and the checks. */
void stepped_step(struct stepped *r, uint64_t ns);
/* What the control thread would do with the notes that it got. */
void stepped_control(struct stepped *r);
/* Everything must have come to rest; takes it all down. */
void stepped_fini(struct stepped *r);

#endif
