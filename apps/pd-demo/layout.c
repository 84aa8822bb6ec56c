/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/fail.h"
#include "pd-demo/layout.h"

/* Of the prompt's pages each rank has an equal part, the first ones one more. */
static void
band(const struct kvf_sharding *sh, uint64_t total, uint64_t *from, uint64_t *to)
{
	uint64_t pages = (total + sh->interleave - 1) / sh->interleave, at = 0, mine, r;

	for (r = 0;; r++) {
		mine = pages / sh->size + (r < pages % sh->size);
		if (r == sh->rank)
			break;
		at += mine;
	}
	*from = at * sh->interleave < total ? at * sh->interleave : total;
	*to = (at + mine) * sh->interleave < total ? (at + mine) * sh->interleave : total;
}

uint64_t
demo_rows_below(const struct kvf_sharding *sh, uint64_t total, uint64_t pos)
{
	uint64_t round = (uint64_t)sh->size * sh->interleave;
	uint64_t before = (uint64_t)sh->rank * sh->interleave;
	uint64_t rest = pos % round, from, to;
	uint64_t part = rest > before ? rest - before : 0;

	if (sh->mode == KVF_SHARD_BAND) {
		band(sh, total, &from, &to);
		return pos <= from ? 0 : (pos < to ? pos : to) - from;
	}
	if (part > sh->interleave)
		part = sh->interleave;
	return pos / round * sh->interleave + part;
}

uint64_t
demo_row_position(const struct kvf_sharding *sh, uint64_t total, uint64_t row)
{
	uint64_t from, to;

	if (sh->mode == KVF_SHARD_BAND) {
		band(sh, total, &from, &to);
		return from + row;
	}
	return (row / sh->interleave * sh->size + sh->rank) * sh->interleave + row % sh->interleave;
}

uint64_t
demo_pages_needed(const struct demo_layout *l, uint64_t first, uint64_t end, uint64_t total)
{
	uint64_t rows, n, most = 0;
	uint32_t i;

	for (i = 0; i < l->decl.geo.num_components; i++) {
		const struct kvf_component *c = &l->decl.comp[i];

		if (c->cls != KVF_TOKENS)
			continue;
		rows = demo_rows_below(&c->sharding, total, end) -
		       demo_rows_below(&c->sharding, total, first);
		n = (rows + c->page_tokens - 1) / c->page_tokens;
		if (n > most)
			most = n;
	}
	return most;
}

uint64_t
demo_pages_before(const struct demo_layout *l, const struct demo_room *room, uint64_t pos)
{
	uint64_t first = demo_room_first(room, l->role);
	const struct kvf_component *c = l->decl.comp;

	/* Token components stand first and share their list; chunks begin with a page of each. */
	if (l->decl.geo.num_components == 0 || c->cls != KVF_TOKENS)
		return 0;
	return (demo_rows_below(&c->sharding, room->total, pos) -
		       demo_rows_below(&c->sharding, room->total, first)) /
	       c->page_tokens;
}

static uint64_t
rows_of_type(const struct model *m, uint32_t type)
{
	uint32_t i;

	for (i = 0; i < m->state.num; i++) {
		if (m->state.group[i].type == type)
			return m->state.group[i].rows;
	}
	return 0;
}

/* Pages of `page_tokens` rows that hold what a prompt leaves in state of this type. */
static uint64_t
state_pages(const struct model *m, uint32_t type, uint32_t page_tokens, uint64_t total)
{
	uint64_t rows = rows_of_type(m, type);

	switch (type) {
	case MODEL_SWA:
		rows = total < rows ? total : rows;
		break;
	case MODEL_DSA:
		rows = total;
		break;
	case MODEL_RING:
		return 1;
	default:
		break;
	}
	return (rows + page_tokens - 1) / page_tokens;
}

uint32_t
demo_state_pages(const struct demo_layout *l, const struct kvf_component *c, uint64_t total)
{
	return (uint32_t)state_pages(l->model, c->tag, c->page_tokens, total);
}

void
demo_state_span(const struct demo_layout *l, const struct kvf_component *c, uint64_t total,
	uint64_t *lo, uint64_t *hi)
{
	uint64_t own, other, page = c->page_tokens;

	if (c->rule == KVF_STATE_RING) {
		/* The newest positions that the ring (both rings, for what arrives) can hold. */
		own = page;
		other = l->peer.ring_rows != 0 ? l->peer.ring_rows : rows_of_type(l->model, c->tag);
		if (l->role == KVF_DECODE && other < own)
			own = other;
		*lo = total > own ? total - own : 0;
		*hi = total;
		return;
	}
	/* Whole pages in list order; the longer list is clipped. */
	own = state_pages(l->model, c->tag, c->page_tokens, total) * page;
	if (c->rule == KVF_STATE_CLIP) {
		page = l->peer.page_tokens;
		other = state_pages(l->model, c->tag, l->peer.page_tokens, total) * page;
		if (l->role == KVF_DECODE && other < own)
			own = other;
	}
	*lo = 0;
	*hi = own;
}

uint64_t
demo_row_bytes(const struct kvf_component *c)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < c->num_entries; i++)
		sum += c->entries[i].row_bytes;
	return sum;
}

uint64_t
demo_room_bytes(const struct demo_layout *l, const struct demo_room *room)
{
	uint64_t first = demo_room_first(room, l->role), lo, hi, sum = 0;
	uint32_t i;

	for (i = 0; i < l->decl.geo.num_components; i++) {
		const struct kvf_component *c = &l->decl.comp[i];

		lo = 0;
		hi = 1;
		if (c->cls == KVF_TOKENS) {
			lo = demo_rows_below(&c->sharding, room->total, first);
			hi = demo_rows_below(&c->sharding, room->total, room->total);
		} else if (c->cls == KVF_STATE) {
			demo_state_span(l, c, room->total, &lo, &hi);
		}
		sum += (hi - lo) * demo_row_bytes(c);
	}
	return sum;
}

/* Pages of all rooms, page 0 that allocators keep for padding, and some that stay free. */
static int
count_pages(struct demo_layout *l, const struct demo_plan *plan, struct kvf_err *err)
{
	uint64_t n = 0, states[MODEL_STATE_TYPES + 1] = {0};
	uint32_t i, c;

	for (i = 0; i < plan->num; i++) {
		const struct demo_room *room = &plan->rooms[i];

		n += demo_pages_needed(l, demo_room_first(room, l->role), room->total, room->total);
		for (c = 0; c < l->decl.geo.num_components; c++) {
			if (l->decl.comp[c].cls == KVF_STATE)
				states[l->decl.comp[c].tag] +=
					demo_state_pages(l, &l->decl.comp[c], room->total);
		}
	}
	n += 1 + 2 + n / 16;
	for (i = 1; i <= MODEL_STATE_TYPES; i++) {
		states[i] += 2;
		if (states[i] > KVF_MAX_PAGE_ID)
			n = states[i];
		l->shape.state_pages[i] = (uint32_t)states[i];
	}
	if (n > KVF_MAX_PAGE_ID)
		return app_fail(err, KVF_E_OVERFLOW, "pages=%" PRIu64 " of a rank exceed %u", n,
			KVF_MAX_PAGE_ID);
	l->shape.num_pages = (uint32_t)n;
	l->shape.aux_slots = plan->num + 2 > 64 ? plan->num + 2 : 64;
	return 0;
}

int
demo_layout_build(const struct demo_options *o, const struct model *m, const struct demo_plan *plan,
	enum kvf_role role, uint32_t rank, struct demo_layout *l, struct kvf_err *err)
{
	int rc;

	memset(l, 0, sizeof(*l));
	l->role = role;
	l->rank = rank;
	l->model = m;
	l->shape = *demo_side(o, role);
	l->peer = *demo_side(o, role == KVF_PREFILL ? KVF_DECODE : KVF_PREFILL);
	l->shape.aux_bytes = DEMO_AUX_BYTES;
	/* First to know who holds what; then how many pages that takes is known. */
	rc = shape_rank_build(&l->shape, m, rank, &l->decl, err);
	if (rc != 0)
		return rc;
	rc = count_pages(l, plan, err);
	shape_rank_free(&l->decl);
	if (rc != 0)
		return rc;
	return shape_rank_build(&l->shape, m, rank, &l->decl, err);
}

void
demo_layout_free(struct demo_layout *l)
{
	shape_rank_free(&l->decl);
}
