/* SPDX-License-Identifier: BSD-3-Clause */
/* What a worker's files share. */
#ifndef KVF_TESTS_SOAK_WORKER_H
#define KVF_TESTS_SOAK_WORKER_H

#include "soak/soak.h"

#define NEVER UINT64_MAX

enum part_state {
	PART_NONE, /* nothing to do in this place */
	PART_WAIT, /* will be posted when due */
	PART_OPEN,
	PART_RELEASE, /* ended, drained and checked */
	PART_SETTLE,  /* released */
};

/* This endpoint's part in the room of one place. */
struct part {
	uint32_t use;
	uint8_t state;
	bool failed;
	bool aborted; /* by us */
	bool watched;
	bool noted; /* as stuck or not told */
	bool orphan;
	bool lingered;
	uint64_t settle_due;
	uint64_t serial; /* among the postings of the endpoint */
	uint64_t mark;   /* the endpoint's postings when this was released */
	uint64_t asked;  /* when it was first due */
	uint64_t posted; /* when its first posting was over; 0: not posted */
	uint64_t seen;   /* when the engine first said something about it; 0: not yet */
	uint64_t chunk_due, abort_due;
	uint64_t abort_ns;
	uint64_t total; /* as stated here */
	uint32_t *pages;
	uint32_t num_pages;
	uint32_t bad; /* index of the page that is not ours; UINT32_MAX: none */
	uint32_t slot;
	uint64_t base; /* first position that the list is for */
	uint64_t next; /* prefill: of the next chunk */
	uint64_t read; /* ... below this everything was scribbled over */
};

struct endpoint {
	struct worker *w;
	struct peer peer;
	uint32_t family, member;
	struct part *parts;
	uint64_t *due; /* of each part: scanned often */
	uint32_t *free_pages, *free_slots;
	uint32_t num_free_pages, num_free_slots;
	uint64_t posted, seen; /* serial numbers: last one posted, last one the engine spoke of */
};

struct worker {
	struct soak_table *t;
	uint32_t proc, life;
	uint32_t places; /* of one family */
	uint64_t rand;
	uint32_t num_eps;
	uint32_t cursor; /* endpoint to sleep on */
	uint64_t closed_next;
	struct endpoint ep[SOAK_FAMILIES * SOAK_MEMBERS];
};

static inline struct soak_room *
room_of(const struct endpoint *ep, uint32_t place)
{
	return &ep->w->t->room[(uint64_t)place * SOAK_FAMILIES + ep->family];
}

static inline bool
is_prefill(const struct endpoint *ep)
{
	return ep->peer.role == KVF_PREFILL;
}

/* Says what is wrong, with the room, the endpoint and the seed. */
void worker_blame(struct endpoint *ep, uint32_t place, enum soak_counter what, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* part.c */
void part_begin(struct endpoint *ep, uint32_t place, uint32_t use, uint64_t now);
void part_due(struct endpoint *ep, uint32_t place, uint64_t now);
/* Takes what the endpoint's rings have; true if that was something. */
bool part_events(struct endpoint *ep);
/* Looks after rooms whose other members will not come, and those that hang. */
void part_patrol(struct endpoint *ep, uint64_t now);
/* The endpoint was closed: nobody touches the pages of its parts any more. */
void part_closed(struct endpoint *ep);

#endif
