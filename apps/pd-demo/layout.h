/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where one rank keeps what: the declaration that it gives to kvferry, and the arithmetic by
 * which it finds its own rows. The latter does not use the library's, so that a check by it is
 * independent.
 */
#ifndef PD_DEMO_LAYOUT_H
#define PD_DEMO_LAYOUT_H

#include <stdint.h>

#include <kvferry/geometry.h>

#include "pd-demo/options.h"
#include "pd-demo/rooms.h"

#define DEMO_MAX_COMPONENTS 4u
#define DEMO_LIST_TOKENS    0u
#define DEMO_LIST_AUX       1u
#define DEMO_LIST_STATE     2u
#define DEMO_STATE_TAG      1u
#define DEMO_AUX_BYTES      256u
#define DEMO_GAP            256u /* guard bytes between buffers */

struct demo_layout {
	enum kvf_role role;
	uint32_t rank;
	uint32_t tp_rank;
	uint32_t dcp_rank;
	struct kvf_geometry geo;
	struct kvf_component comp[DEMO_MAX_COMPONENTS];
	struct kvf_entry *entries;
	uint8_t *occurrence; /* of each entry, in the order of entries */
	uint32_t num_entries;
	uint32_t num_pages; /* of list DEMO_LIST_TOKENS */
	uint32_t aux_slots;
	uint32_t state_slots; /* 0: no state */
	uint64_t pool_bytes;
};

int demo_layout_build(const struct demo_options *o, const struct model *m,
	const struct demo_plan *plan, enum kvf_role role, uint32_t rank, struct demo_layout *l,
	struct kvf_err *err);
void demo_layout_free(struct demo_layout *l);

/* Rows of the component's rank at positions below pos. */
uint64_t demo_rows_below(const struct kvf_sharding *sh, uint64_t pos);

/* Position of a local row. */
static inline uint64_t
demo_row_position(const struct kvf_sharding *sh, uint64_t row)
{
	return (row / sh->interleave * sh->size + sh->rank) * sh->interleave + row % sh->interleave;
}

/* Pages of list DEMO_LIST_TOKENS that positions [first, total) need: the component that needs most
 * decides. */
uint64_t demo_pages_needed(const struct demo_layout *l, uint64_t first, uint64_t total);

/* Bytes of one row (all entries) of a component. */
uint64_t demo_row_bytes(const struct kvf_component *c);

/* Bytes that a room brings to (or takes from) this rank: tokens, state, aux. */
uint64_t demo_room_bytes(const struct demo_layout *l, const struct demo_room *room);

#endif
