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

#include "common/shape.h"
#include "pd-demo/options.h"
#include "pd-demo/rooms.h"

#define DEMO_AUX_BYTES 256u

struct demo_layout {
	enum kvf_role role;
	uint32_t rank;
	struct shape shape; /* of this side, with the numbers of pages that the rooms need */
	struct shape peer;  /* of the other side */
	const struct model *model;
	struct shape_rank decl;
};

int demo_layout_build(const struct demo_options *o, const struct model *m,
	const struct demo_plan *plan, enum kvf_role role, uint32_t rank, struct demo_layout *l,
	struct kvf_err *err);
void demo_layout_free(struct demo_layout *l);

/* Rows at positions below pos that the sharding's rank has of a prompt of `total` tokens. */
uint64_t demo_rows_below(const struct kvf_sharding *sh, uint64_t total, uint64_t pos);

/* Position of a local row of a prompt of `total` tokens. */
uint64_t demo_row_position(const struct kvf_sharding *sh, uint64_t total, uint64_t row);

/* Pages of list SHAPE_LIST_TOKENS that positions [first, end) of a prompt of `total` tokens need:
 * the component that needs most decides. `first` is where a page begins. */
uint64_t demo_pages_needed(
	const struct demo_layout *l, uint64_t first, uint64_t end, uint64_t total);

/* How many pages of a room's list come before the one with the first row at or after `pos`. */
uint64_t demo_pages_before(const struct demo_layout *l, const struct demo_room *room, uint64_t pos);

/* Pages (slots) of a room in the list of a state component. */
uint32_t demo_state_pages(
	const struct demo_layout *l, const struct kvf_component *c, uint64_t total);

/* The rows of a state component that a room fills here: of indices [*lo, *hi) each one lies in row
 * demo_state_row() of the list. Decode: those that arrive. */
void demo_state_span(const struct demo_layout *l, const struct kvf_component *c, uint64_t total,
	uint64_t *lo, uint64_t *hi);

static inline uint64_t
demo_state_row(const struct kvf_component *c, uint64_t index)
{
	return c->rule == KVF_STATE_RING ? index % c->page_tokens : index;
}

/* Bytes of one row (all entries) of a component. */
uint64_t demo_row_bytes(const struct kvf_component *c);

/* Bytes that a room brings to (or takes from) this rank: tokens, state, aux. */
uint64_t demo_room_bytes(const struct demo_layout *l, const struct demo_room *room);

#endif
