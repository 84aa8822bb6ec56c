/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A dispatcher on one thread, without EAL, sockets or lcores: the harness steps it, plays the
 * control thread and the copy driver, and sees every completion.
 *
 * What must hold at any time is checked here: no copy reads or writes outside its pools, into a
 * page that is not granted or of a part that was reported drained; a status never goes back; when
 * all endpoints are gone nothing is left.
 */
#ifndef KVF_TESTS_FUZZ_ENGINE_RIG_H
#define KVF_TESTS_FUZZ_ENGINE_RIG_H

#include <kvferry/client.h>

#include "engine/internal.h"

#define RIG_GROUPS  4u
#define RIG_RANKS   2u
#define RIG_ENTRIES 8u
#define RIG_SQ      8u
#define RIG_CQ      16u
#define RIG_ARENA   1024u
#define RIG_PAGES   8u
#define RIG_SEEN    128u

/* What an endpoint of the rig declares: tokens in list 0, state in list 1, aux in list 2. */
struct rig_shape {
	uint32_t page_tokens;
	uint32_t layers; /* 1..2 */
	uint32_t row_bytes;
	bool sharded; /* over the group's ranks */
	bool band;
	bool state;
	uint32_t state_rule;
	uint32_t state_tokens;
	bool aux;
};

struct rig_seen {
	uint64_t seq;
	uint8_t status;
	uint8_t flags;
};

struct rig_ep {
	struct kvf_ep ep; /* first */
	uint32_t group;   /* index in rig->groups */
	bool dead_sent;
	void *pool;
	void *ring_mem;
	uint32_t seen_tail;
	struct rig_seen seen[RIG_SEEN];
	uint32_t num_seen;
};

struct rig {
	struct kvf_engine engine;
	struct kvf_dispatcher *disp;
	struct kvf_copy_shared *copy;
	struct kvf_ep_group groups[RIG_GROUPS];
	struct rig_ep *eps[RIG_GROUPS][RIG_RANKS]; /* alive */
	struct kvf_ep_group *wants[64][2];
	uint32_t num_wants;
	uint32_t num_eps; /* not gone yet */
	uint64_t now;     /* 1 GHz */
	bool at_rest;
	bool hold;       /* the driver finishes nothing */
	uint32_t fail;   /* so many copies are going to fail, those of spared groups excepted */
	uint32_t spared; /* bits of groups */
	uint64_t executed;
};

void rig_init(struct rig *r);
/* Makes group `index` with `size` ranks; its endpoints come one by one. */
void rig_group(struct rig *r, uint32_t index, uint32_t role, uint32_t size, const char *name);
struct rig_ep *rig_add(struct rig *r, uint32_t index, uint32_t rank, const struct rig_shape *shape);
/* As when its connection is closed. */
void rig_kill(struct rig *r, struct rig_ep *e);
/* A round of the dispatcher `ns` later, and the checks. */
void rig_step(struct rig *r, uint64_t ns);
/* What the control thread would do with the notes that it got. */
void rig_control(struct rig *r);
/* Everything must have come to rest; takes it all down. */
void rig_fini(struct rig *r);

#endif
