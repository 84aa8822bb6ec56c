/* SPDX-License-Identifier: BSD-3-Clause */
/* The requests of a run, the same in every process: they follow from the options alone. */
#ifndef PD_DEMO_ROOMS_H
#define PD_DEMO_ROOMS_H

#include <stdint.h>

#include "pd-demo/options.h"

struct demo_room {
	uint64_t id;     /* what kvferry calls it */
	uint64_t key;    /* what its bytes derive from */
	uint64_t prefix; /* tokens that decode holds already */
	uint64_t total;  /* length of the prompt */
	uint64_t start;  /* first token that prefill sends: a chunk boundary at or before prefix */
	const char *what;
};

struct demo_plan {
	uint32_t num;
	uint32_t chunk;
	uint64_t chunk_unit; /* chunks end on multiples of it: whole pages on every prefill rank */
	struct demo_room *rooms;
};

int demo_plan_build(const struct demo_options *o, struct demo_plan *plan, struct kvf_err *err);
void demo_plan_free(struct demo_plan *plan);

/*
 * End of the chunk that begins at `start`: chunks are cut at multiples of plan->chunk, but only the
 * last one may end inside a page.
 */
uint64_t demo_chunk_end(const struct demo_plan *plan, uint64_t start, uint64_t total);

/* The first position whose row this side holds. */
static inline uint64_t
demo_room_first(const struct demo_room *room, enum kvf_role role)
{
	return role == KVF_PREFILL ? room->start : room->prefix;
}

#endif
