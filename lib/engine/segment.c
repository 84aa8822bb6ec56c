/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Segments: what of a leg's work goes into a slot next.
 *
 * Where several receivers take rows of the same source pages (DCP), their legs are in step as long
 * as they have come equally far in the same chunk; one segment then carries units of all of them,
 * window of source rows by window. A slice holds one window for every receiver: its rows are read
 * while they are next to each other, once.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/internal.h"

#define SEGMENT_BYTES  (8u << 20)
#define PLANS_PER_TURN 64u /* most chunks have rows for everybody, but not all need to */
#define FAN_ROWS       64u /* source rows of one window */

static const struct kvf_component *
component(const struct kvf_part *part, uint32_t index)
{
	return &part->ep->reg->geometry.components[index];
}

static const char *
state_type(const struct kvf_map *map)
{
	static const char *const names[] = {
		"state", "one-slot state", "clipped state", "ring state"};

	return map->cls == KVF_AUX ? "aux" : names[map->rule];
}

/* Equally many pages may hold unequally many rows: says so where it matters. */
static const char *
page_sizes(const struct kvf_map *map, char text[64])
{
	text[0] = '\0';
	if (map->src_page_tokens != map->dst_page_tokens && map->rule != KVF_STATE_RING)
		snprintf(text, 64, " (pages of %u and %u rows)", map->src_page_tokens,
			map->dst_page_tokens);
	return text;
}

/* Both ends and the log hear that not everything went over. */
static void
clipped(struct kvf_dispatcher *d, struct kvf_leg *leg, const struct kvf_map *map, uint32_t ns,
	uint32_t nd)
{
	struct kvf_note note = {.type = NOTE_WARN};
	char sizes[64];

	leg->src->clipped = leg->dst->clipped = true;
	kvf_count(&d->totals.clipped, 1);
	kvf_fail(&note.err, KVF_E_STATE_LIST,
		"room=%" PRIu64
		" %s to %s: index lists of type=%s tag=%u are clipped to the shorter one, "
		"prefill=%u decode=%u%s",
		leg->src->room->id, leg->src->ep->name, leg->dst->ep->name, state_type(map),
		map->tag, ns, nd, page_sizes(map, sizes));
	kvf_note_try(d->engine->to_control, d->engine->control_fd, &note);
}

/* State and aux: rows in list order, or rings. */
static int
begin_state(struct kvf_dispatcher *d, struct kvf_leg *leg, const struct kvf_map *map,
	struct kvf_err *err)
{
	const struct kvf_lists *src = &leg->final->lists, *dst = &leg->dst->lists;
	uint32_t ns = src->count[map->src_list], nd = dst->count[map->dst_list];
	uint64_t src_rows = (uint64_t)ns * map->src_page_tokens;
	uint64_t dst_rows = (uint64_t)nd * map->dst_page_tokens;
	struct kvf_plan_spec spec = {
		.src = {1, 0, 1, KVF_SHARD_CYCLIC},
		.dst = {1, 0, 1, KVF_SHARD_CYCLIC},
		.src_page_tokens = map->src_page_tokens,
		.dst_page_tokens = map->dst_page_tokens,
		.src_pages = src->ids[map->src_list],
		.dst_pages = dst->ids[map->dst_list],
		.num_src_pages = ns,
		.num_dst_pages = nd,
		.tokens = src_rows < dst_rows ? src_rows : dst_rows,
		.flags = map->split,
	};
	char sizes[64];

	if (map->rule == KVF_STATE_RING ? ns != nd
					: src_rows != dst_rows && map->rule != KVF_STATE_CLIP)
		return kvf_fail(err, KVF_E_STATE_LIST,
			"index lists of type=%s tag=%u differ, prefill=%u decode=%u%s",
			state_type(map), map->tag, ns, nd, page_sizes(map, sizes));
	if (map->rule == KVF_STATE_ONE && (ns != 1 || nd != 1))
		return kvf_fail(err, KVF_E_STATE_LIST,
			"index lists of type=%s tag=%u must name exactly one slot, prefill=%u "
			"decode=%u",
			state_type(map), map->tag, ns, nd);
	if (map->rule == KVF_STATE_RING) {
		kvf_ring_begin(&leg->it.ring, spec.src_pages, map->src_page_tokens, spec.dst_pages,
			map->dst_page_tokens, ns, leg->src->total);
		return 0;
	}
	if (src_rows != dst_rows)
		clipped(d, leg, map, ns, nd);
	return kvf_plan_begin(&leg->it.plan, &spec, err);
}

static int
begin_tokens(struct kvf_leg *leg, const struct kvf_map *map, struct kvf_err *err)
{
	const struct kvf_chunk *chunk = leg->chunk;
	struct kvf_plan_spec spec = {
		.src = map->src,
		.dst = map->dst,
		.src_page_tokens = map->src_page_tokens,
		.dst_page_tokens = map->dst_page_tokens,
		.src_pages = chunk->lists.ids[map->src_list],
		.dst_pages = leg->dst->lists.ids[map->dst_list],
		.num_src_pages = chunk->lists.count[map->src_list],
		.num_dst_pages = leg->dst->lists.count[map->dst_list],
		.prefix = leg->dst->prefix,
		.start = chunk->start,
		.tokens = chunk->tokens,
		.total = leg->src->total,
		.flags = map->split,
	};

	return kvf_plan_begin(&leg->it.plan, &spec, err);
}

/* Starts the row plan of the current map; false when the room failed over it. */
static bool
begin_map(struct kvf_dispatcher *d, struct kvf_leg *leg, const struct kvf_map *map)
{
	struct kvf_err err;
	uint32_t l;
	int rc;

	leg->widest = 0;
	for (l = 0; l < map->num_lanes; l++)
		if (map->lanes[l].row_bytes > leg->widest)
			leg->widest = map->lanes[l].row_bytes;
	leg->iterating = true;
	leg->run_pos = leg->num_runs = 0;
	leg->outer.blocks = leg->inner.blocks = 0;
	leg->units_cut = 0;
	rc = leg->phase == KVF_PHASE_TOKENS ? begin_tokens(leg, map, &err)
					    : begin_state(d, leg, map, &err);
	if (rc != 0)
		kvf_room_fail(d, leg->src->room, leg->src->ep, rc, "%s", err.text);
	return rc == 0;
}

/* Takes up to `cap` items off the front of a run of `n`, in pieces of about equal size. */
static uint64_t
portion(uint64_t n, uint64_t cap)
{
	uint64_t parts;

	if (n <= cap)
		return n;
	parts = (n + cap - 1) / cap;
	return (n + parts - 1) / parts;
}

/* Cuts one unit off the leg's current run: such that (unit, lane) is one 2-D copy of bounded size.
 */
static void
cut_unit(struct kvf_leg *leg, const struct kvf_map *map, uint64_t cap, bool fan,
	struct kvf_run *unit)
{
	struct kvf_run *r = &leg->inner;
	uint64_t n;

	if (r->blocks == 0) {
		struct kvf_run *o = &leg->outer;

		if (o->block_rows == 1 || (map->dense && o->blocks > 1 && o->block_rows <= cap)) {
			n = portion(o->blocks, cap / o->block_rows);
			if (fan && n * o->src_step > FAN_ROWS)
				n = o->src_step < FAN_ROWS ? FAN_ROWS / o->src_step : 1;
			*unit = *o;
			unit->blocks = n;
			o->blocks -= n;
			o->src_row += n * o->src_step;
			o->dst_row += n * o->dst_step;
			return;
		}
		*r = *o;
		r->blocks = 1;
		o->blocks--;
		o->src_row += o->src_step;
		o->dst_row += o->dst_step;
	}
	n = portion(r->block_rows, cap);
	*unit = *r;
	unit->block_rows = unit->src_step = unit->dst_step = n;
	r->block_rows -= n;
	r->src_row += n;
	r->dst_row += n;
	if (r->block_rows == 0)
		r->blocks = 0;
}

static bool
run_in_pool(
	const struct kvf_run *r, const struct kvf_component *src, const struct kvf_component *dst)
{
	uint64_t src_last = r->src_row + (r->blocks - 1) * r->src_step + r->block_rows;
	uint64_t dst_last = r->dst_row + (r->blocks - 1) * r->dst_step + r->block_rows;

	return src_last <= (uint64_t)src->num_pages * src->page_tokens &&
	       dst_last <= (uint64_t)dst->num_pages * dst->page_tokens;
}

/* The leg has a run (rest) to cut units from: loads the next one if not. False at the plan's end,
 * or when the room failed. */
static bool
load_run(struct kvf_dispatcher *d, struct kvf_leg *leg, const struct kvf_map *map)
{
	if (leg->inner.blocks != 0 || leg->outer.blocks != 0)
		return true;
	if (leg->run_pos == leg->num_runs) {
		leg->run_pos = 0;
		leg->num_runs =
			(uint32_t)(map->rule == KVF_STATE_RING
					   ? kvf_ring_next(&leg->it.ring, leg->runs, KVF_LEG_RUNS)
					   : kvf_plan_next(&leg->it.plan, leg->runs, KVF_LEG_RUNS));
		kvf_count(&d->totals.runs, leg->num_runs);
		if (leg->num_runs == 0)
			return false;
	}
	leg->outer = leg->runs[leg->run_pos++];
	/* Ids were checked when they came in; this makes a mistake here harmless too. */
	if (!run_in_pool(&leg->outer, component(leg->src, map->src_component),
		    component(leg->dst, map->dst_component))) {
		kvf_room_fail(d, leg->src->room, NULL, KVF_E_PAGE,
			"planned src_row=%" PRIu64 " dst_row=%" PRIu64 " outside the pools",
			leg->outer.src_row, leg->outer.dst_row);
		return false;
	}
	return true;
}

/* Goes on to the leg's next map with something to copy; NULL: none for now (see leg->planned), none
 * found in the first few plans, or the room failed. */
static const struct kvf_map *
find_work(struct kvf_dispatcher *d, struct kvf_leg *leg)
{
	uint32_t plans = 0;

	for (;;) {
		struct kvf_chunk *chunk = leg->chunk;

		for (; leg->map < leg->pair->num_maps; leg->map++, leg->iterating = false) {
			const struct kvf_map *map = &leg->pair->maps[leg->map];

			if (map->cls != kvf_phase_class(leg->phase))
				continue;
			if (!leg->iterating &&
				(plans++ == PLANS_PER_TURN || !begin_map(d, leg, map)))
				return NULL;
			if (load_run(d, leg, map))
				return map;
			if (leg->stopped)
				return NULL;
		}
		leg->map = 0;
		leg->iterating = false;
		if (leg->phase != KVF_PHASE_TOKENS) {
			leg->planned = true;
			return NULL;
		}
		chunk->passed++;
		leg->chunk = chunk->next;
		if (chunk->final) {
			leg->final = chunk;
			leg->planned = true;
			return NULL;
		}
		kvf_chunks_retire(d, leg->src);
		if (leg->chunk == NULL)
			return NULL;
	}
}

/* Can `other` go with `leg`: the same rows of the same chunk through lanes of the same number? */
static bool
in_step(const struct kvf_leg *leg, const struct kvf_leg *other, const struct kvf_map *map)
{
	const struct kvf_map *m;

	if (other->stopped || !other->queued || other->phase != KVF_PHASE_TOKENS ||
		other->chunk != leg->chunk || other->map >= other->pair->num_maps)
		return false;
	m = &other->pair->maps[other->map];
	if (m->cls != KVF_TOKENS || m->src_component != map->src_component ||
		m->num_lanes != map->num_lanes || m->row_bytes != map->row_bytes)
		return false;
	return other->iterating ? leg->iterating && other->units_cut == leg->units_cut
				: leg->units_cut == 0;
}

/* By rank, whatever order they were granted in: rows that follow each other in the source then do
 * so in the batch as well, and the driver reads a window from its front to its end. */
static void
add_leg(struct kvf_slot *slot, struct kvf_leg *leg, const struct kvf_map *map)
{
	uint32_t k = slot->num_subs++;

	for (; k > 0 && slot->subs[k - 1].map->dst.rank > map->dst.rank; k--)
		slot->subs[k] = slot->subs[k - 1];
	slot->subs[k] =
		(struct kvf_slot_sub){.map = map, .dst_base = leg->dst->ep->pool.base, .leg = leg};
	slot->verify |= leg->src->verify || leg->dst->verify;
	if (leg->widest > slot->widest)
		slot->widest = leg->widest;
}

/* Brings in the receivers that are in step. False when the room failed over one of them. */
static bool
gather(struct kvf_dispatcher *d, struct kvf_leg *leg, const struct kvf_map *map,
	struct kvf_slot *slot)
{
	struct kvf_leg *other;

	if (leg->phase != KVF_PHASE_TOKENS || map->dst.size == 1)
		return true;
	for (other = leg->src->legs; other != NULL && slot->num_subs < KVF_SLOT_SUBS;
		other = other->src_next) {
		const struct kvf_map *m;

		if (other == leg || !in_step(leg, other, map))
			continue;
		m = find_work(d, other);
		if (leg->stopped)
			return false;
		/* Its plan may have led elsewhere: this chunk holds nothing for it. */
		if (m != NULL && other->chunk == leg->chunk &&
			m->src_component == map->src_component && m->num_lanes == map->num_lanes &&
			m->row_bytes == map->row_bytes)
			add_leg(slot, other, m);
	}
	return true;
}

bool
kvf_segment_fill(struct kvf_dispatcher *d, struct kvf_leg *leg, struct kvf_slot *slot)
{
	const struct kvf_map *map = find_work(d, leg);
	uint64_t cap;
	uint32_t k, cut;

	if (map == NULL)
		return false;
	slot->num_subs = slot->num_units = 0;
	slot->bytes = 0;
	slot->widest = 0;
	slot->verify = false;
	add_leg(slot, leg, map);
	if (!gather(d, leg, map, slot))
		return false;
	cap = slot->widest < KVF_UNIT_BYTES ? KVF_UNIT_BYTES / slot->widest : 1;
	do {
		cut = 0;
		for (k = 0; k < slot->num_subs; k++) {
			struct kvf_slot_sub *sub = &slot->subs[k];
			struct kvf_run *u = &slot->units[slot->num_units];
			uint64_t bytes;

			/* The first round has a run for everybody. */
			if (slot->num_units >= slot->num_subs && !load_run(d, sub->leg, sub->map)) {
				if (leg->stopped)
					return false;
				continue;
			}
			cut_unit(sub->leg, sub->map, cap, slot->num_subs > 1, u);
			sub->leg->units_cut++;
			bytes = u->blocks * u->block_rows * sub->map->row_bytes;
			sub->bytes += bytes;
			slot->bytes += bytes;
			slot->unit_sub[slot->num_units++] = (uint8_t)k;
			cut++;
		}
	} while (cut != 0 && slot->num_units + slot->num_subs <= KVF_SLOT_UNITS &&
		 slot->bytes < SEGMENT_BYTES);
	slot->num_lanes = map->num_lanes;
	slot->src_base = leg->src->ep->pool.base;
	slot->flags = slot->bytes >= KVF_STREAM_BYTES ? KVF_COPY_STREAM : 0;
	slot->chunk = leg->phase == KVF_PHASE_TOKENS ? leg->chunk : leg->final;
	return true;
}
