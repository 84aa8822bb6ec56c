/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Legs: moving what one send part owes one receive part.
 *
 * A leg goes through the sender's chunks in order, and for each through the maps of its pair: row
 * plan by row plan, segment by segment. Then, once every leg of the receiver has finished its
 * tokens, it copies state, and once all have finished state, aux. Legs with something to plan stand
 * in one queue and get a segment each in turn.
 */
#include <inttypes.h>
#include <string.h>

#include "engine/internal.h"

#define SEGMENT_BYTES      (4u << 20)
#define LEG_SEGMENTS       4u /* of one leg, in slots at a time */
#define SEGMENTS_PER_ROUND 8u
#define PLANS_PER_TURN     64u /* most chunks have rows for everybody, but not all need to */

static void
enqueue(struct kvf_dispatcher *d, struct kvf_leg *leg)
{
	leg->queued = true;
	leg->queue_next = NULL;
	leg->queue_prev = d->run_tail;
	if (d->run_tail != NULL)
		d->run_tail->queue_next = leg;
	else
		d->run_head = leg;
	d->run_tail = leg;
}

static void
remove_queued(struct kvf_dispatcher *d, struct kvf_leg *leg)
{
	if (leg->queue_prev != NULL)
		leg->queue_prev->queue_next = leg->queue_next;
	else
		d->run_head = leg->queue_next;
	if (leg->queue_next != NULL)
		leg->queue_next->queue_prev = leg->queue_prev;
	else
		d->run_tail = leg->queue_prev;
	leg->queued = false;
}

void
kvf_leg_wake(struct kvf_dispatcher *d, struct kvf_leg *leg)
{
	if (leg->queued || leg->stopped || leg->planned || leg->outstanding >= LEG_SEGMENTS)
		return;
	switch (leg->phase) {
	case KVF_PHASE_TOKENS:
		if (leg->chunk == NULL)
			return;
		break;
	case KVF_PHASE_STATE:
		if (leg->dst->tokens_left != 0)
			return;
		break;
	case KVF_PHASE_AUX:
		if (leg->dst->state_left != 0)
			return;
		break;
	default:
		return;
	}
	enqueue(d, leg);
}

void
kvf_leg_create(struct kvf_dispatcher *d, struct kvf_part *src, struct kvf_part *dst)
{
	const struct kvf_pair *pair = kvf_link_pair(src->room->link->link, src->rank, dst->rank);
	struct kvf_leg *leg;

	if (pair->num_maps == 0)
		return;
	if (src->first_start > dst->prefix) {
		kvf_room_fail(d, src->room, src->ep, KVF_E_ORDER,
			"the first chunk starts at start=%" PRIu64
			" but decode holds only prefix=%" PRIu64,
			src->first_start, dst->prefix);
		return;
	}
	leg = kvf_slab_alloc(&d->slab, sizeof(*leg));
	if (leg == NULL) {
		kvf_room_fail(d, src->room, src->ep, KVF_E_NOMEM, "no memory for a leg");
		return;
	}
	memset(leg, 0, sizeof(*leg));
	leg->src = src;
	leg->dst = dst;
	leg->pair = pair;
	leg->chunk = src->chunks;
	leg->src_next = src->legs;
	src->legs = leg;
	leg->dst_next = dst->legs;
	dst->legs = leg;
	kvf_leg_wake(d, leg);
}

void
kvf_leg_stop(struct kvf_dispatcher *d, struct kvf_leg *leg)
{
	uint32_t i;

	if (leg->stopped)
		return;
	leg->stopped = true;
	for (i = 0; i < KVF_SLOTS && leg->outstanding != 0; i++)
		if ((d->free_slots & (UINT64_C(1) << i)) == 0 && d->copy->slots[i].leg == leg)
			kvf_slot_cancel(d->copy, i);
}

void
kvf_legs_free(struct kvf_dispatcher *d, struct kvf_part *part)
{
	struct kvf_leg *leg, *next;

	for (leg = part->legs; leg != NULL; leg = next) {
		next = leg->src_next;
		if (leg->queued)
			remove_queued(d, leg);
		kvf_slab_free(&d->slab, leg, sizeof(*leg));
	}
	part->legs = NULL;
}

void
kvf_chunk_free(struct kvf_dispatcher *d, struct kvf_ep *ep, struct kvf_chunk *chunk)
{
	kvf_lists_free(d, ep, &chunk->lists);
	if (ep != NULL)
		ep->request_bytes -= sizeof(*chunk);
	kvf_slab_free(&d->slab, chunk, sizeof(*chunk));
}

void
kvf_chunks_retire(struct kvf_dispatcher *d, struct kvf_part *send)
{
	struct kvf_chunk *c;

	if (!send->linked || send->status == KVF_FAILED || send->status == KVF_SUCCESS)
		return;
	while ((c = send->chunks) != NULL && !c->final && c->passed == send->legs_expected &&
		c->outstanding == 0) {
		send->chunks = c->next;
		if (send->chunks == NULL)
			send->chunks_tail = NULL;
		send->tokens_done = c->start + c->tokens;
		kvf_chunk_free(d, send->ep, c);
		kvf_part_touch(d, send);
	}
	if (send->final_posted && send->legs_done == send->legs_expected)
		kvf_part_status(d, send, KVF_SUCCESS);
}

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

/* Both ends and the log hear that not everything went over. */
static void
clipped(struct kvf_dispatcher *d, struct kvf_leg *leg, const struct kvf_map *map, uint32_t ns,
	uint32_t nd)
{
	struct kvf_note note = {.type = NOTE_WARN};

	leg->src->clipped = leg->dst->clipped = true;
	kvf_count(&d->totals.clipped, 1);
	kvf_fail(&note.err, KVF_E_STATE_LIST,
		"room=%" PRIu64
		" %s to %s: index lists of type=%s tag=%u are clipped to the shorter one, "
		"prefill=%u decode=%u",
		leg->src->room->id, leg->src->ep->name, leg->dst->ep->name, state_type(map),
		map->tag, ns, nd);
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

	if (map->rule == KVF_STATE_RING ? ns != nd
					: src_rows != dst_rows && map->rule != KVF_STATE_CLIP)
		return kvf_fail(err, KVF_E_STATE_LIST,
			"index lists of type=%s tag=%u differ, prefill=%u decode=%u",
			state_type(map), map->tag, ns, nd);
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
cut_unit(struct kvf_leg *leg, const struct kvf_map *map, uint64_t cap, struct kvf_run *unit)
{
	struct kvf_run *r = &leg->inner;
	uint64_t n;

	if (r->blocks == 0) {
		struct kvf_run *o = &leg->outer;

		if (o->block_rows == 1 || (map->dense && o->blocks > 1 && o->block_rows <= cap)) {
			n = portion(o->blocks, cap / o->block_rows);
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

/* Next run of the current plan into leg->outer; false at its end. */
static bool
next_run(struct kvf_dispatcher *d, struct kvf_leg *leg, const struct kvf_map *map)
{
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
	return true;
}

/* Fills the slot from the current map's plan. False: the plan had nothing more, or the room failed.
 */
static bool
fill_slot(struct kvf_dispatcher *d, struct kvf_leg *leg, const struct kvf_map *map,
	struct kvf_slot *slot)
{
	const struct kvf_component *src = component(leg->src, map->src_component);
	const struct kvf_component *dst = component(leg->dst, map->dst_component);
	uint64_t cap = leg->widest < KVF_UNIT_BYTES ? KVF_UNIT_BYTES / leg->widest : 1;

	slot->num_units = 0;
	slot->bytes = 0;
	while (slot->num_units < KVF_SLOT_UNITS && slot->bytes < SEGMENT_BYTES) {
		struct kvf_run *u = &slot->units[slot->num_units];

		if (leg->inner.blocks == 0 && leg->outer.blocks == 0) {
			if (!next_run(d, leg, map))
				break;
			/* Ids were checked when they came in; this makes a mistake here harmless
			 * too. */
			if (!run_in_pool(&leg->outer, src, dst)) {
				kvf_room_fail(d, leg->src->room, NULL, KVF_E_PAGE,
					"planned src_row=%" PRIu64 " dst_row=%" PRIu64
					" outside the pools",
					leg->outer.src_row, leg->outer.dst_row);
				return false;
			}
		}
		cut_unit(leg, map, cap, u);
		slot->num_units++;
		slot->bytes += u->blocks * u->block_rows * map->row_bytes;
	}
	return slot->num_units != 0;
}

static uint32_t
class_of_phase(uint8_t phase)
{
	return phase == KVF_PHASE_TOKENS  ? KVF_TOKENS
	       : phase == KVF_PHASE_STATE ? KVF_STATE
					  : KVF_AUX;
}

/* Makes the leg's next segment in `slot`; false when there is none for now, or when nothing was
 * found in the first few plans. */
static bool
leg_fill(struct kvf_dispatcher *d, struct kvf_leg *leg, struct kvf_slot *slot)
{
	uint32_t plans = 0;

	for (;;) {
		struct kvf_chunk *chunk = leg->chunk;

		for (; leg->map < leg->pair->num_maps; leg->map++, leg->iterating = false) {
			const struct kvf_map *map = &leg->pair->maps[leg->map];

			if (map->cls != class_of_phase(leg->phase))
				continue;
			if (!leg->iterating &&
				(plans++ == PLANS_PER_TURN || !begin_map(d, leg, map)))
				return false;
			if (!fill_slot(d, leg, map, slot)) {
				if (leg->stopped)
					return false;
				continue;
			}
			slot->map = map;
			slot->widest = leg->widest;
			slot->src_base = leg->src->ep->pool.base;
			slot->dst_base = leg->dst->ep->pool.base;
			slot->flags = slot->bytes >= KVF_UNIT_BYTES ? KVF_COPY_STREAM : 0;
			slot->verify = leg->src->verify || leg->dst->verify;
			slot->leg = leg;
			slot->chunk = leg->phase == KVF_PHASE_TOKENS ? chunk : leg->final;
			return true;
		}
		leg->map = 0;
		leg->iterating = false;
		if (leg->phase != KVF_PHASE_TOKENS) {
			leg->planned = true;
			return false;
		}
		chunk->passed++;
		leg->chunk = chunk->next;
		if (chunk->final) {
			leg->final = chunk;
			leg->planned = true;
			return false;
		}
		kvf_chunks_retire(d, leg->src);
		if (leg->chunk == NULL)
			return false;
	}
}

static void
wake_all(struct kvf_dispatcher *d, struct kvf_part *dst)
{
	struct kvf_leg *leg;

	for (leg = dst->legs; leg != NULL; leg = leg->dst_next)
		kvf_leg_wake(d, leg);
}

/* Everything of the leg's phase is copied. */
static void
phase_done(struct kvf_dispatcher *d, struct kvf_leg *leg)
{
	struct kvf_part *src = leg->src, *dst = leg->dst;

	leg->planned = false;
	switch (leg->phase) {
	case KVF_PHASE_TOKENS:
		leg->phase = KVF_PHASE_STATE;
		if (--dst->tokens_left == 0)
			wake_all(d, dst);
		break;
	case KVF_PHASE_STATE:
		leg->phase = KVF_PHASE_AUX;
		if (--dst->state_left == 0)
			wake_all(d, dst);
		break;
	default:
		leg->phase = KVF_PHASE_DONE;
		src->legs_done++;
		if (--dst->aux_left == 0)
			kvf_part_status(d, dst, KVF_SUCCESS);
		kvf_chunks_retire(d, src);
		break;
	}
}

bool
kvf_transfer_plan(struct kvf_dispatcher *d)
{
	bool worked = false;
	uint32_t n;

	for (n = 0; n < SEGMENTS_PER_ROUND && d->run_head != NULL && d->free_slots != 0; n++) {
		uint32_t index = (uint32_t)__builtin_ctzll(d->free_slots);
		struct kvf_slot *slot = &d->copy->slots[index];
		struct kvf_leg *leg = d->run_head;

		remove_queued(d, leg);
		worked = true;
		if (leg->stopped)
			continue;
		if (leg_fill(d, leg, slot)) {
			d->free_slots &= ~(UINT64_C(1) << index);
			leg->outstanding++;
			((struct kvf_chunk *)slot->chunk)->outstanding++;
			kvf_count(&d->totals.segments, 1);
			kvf_part_status(d, leg->src, KVF_TRANSFERRING);
			kvf_part_status(d, leg->dst, KVF_TRANSFERRING);
			kvf_slot_publish(d->copy, index);
			kvf_leg_wake(d, leg);
		} else if (!leg->stopped && leg->planned && leg->outstanding == 0) {
			phase_done(d, leg);
		} else {
			kvf_leg_wake(d, leg);
		}
	}
	return worked;
}

static void
segment_done(struct kvf_dispatcher *d, struct kvf_slot *slot)
{
	struct kvf_leg *leg = slot->leg;
	struct kvf_part *src = leg->src, *dst = leg->dst;
	struct kvf_chunk *chunk = slot->chunk;
	int error = atomic_load_explicit(&slot->error, memory_order_relaxed);
	struct kvf_ep *lost[2] = {src->ep, dst->ep};
	struct kvf_err why;
	int i;

	leg->outstanding--;
	chunk->outstanding--;
	src->room->last_progress = d->now;
	for (i = 0; i < 2; i++) {
		if (!kvf_guard_lost(lost[i]->guard))
			continue;
		kvf_fail(&why, KVF_E_POOL_LOST,
			"memory of the pool of %s was taken away (hole punched or file truncated)",
			lost[i]->name);
		kvf_room_fail(d, src->room, NULL, why.code, "%s", why.text);
		kvf_ep_fault(d, lost[i], &why);
	}
	if (error != 0)
		kvf_room_fail(d, src->room, NULL, error, "driver=%s %s from %s to %s",
			d->engine->ops->name,
			error == KVF_E_VERIFY ? "left bytes that differ after a copy"
					      : "failed a copy",
			src->ep->name, dst->ep->name);
	if (leg->stopped) {
		if (leg->outstanding == 0) {
			kvf_part_try_drain(d, src);
			kvf_part_try_drain(d, dst);
		}
		return;
	}
	kvf_count(&d->totals.bytes, (int64_t)slot->bytes);
	kvf_count(&src->ep->counters.bytes_out, (int64_t)slot->bytes);
	kvf_count(&dst->ep->counters.bytes_in, (int64_t)slot->bytes);
	if (leg->planned && leg->outstanding == 0)
		phase_done(d, leg);
	else
		kvf_leg_wake(d, leg);
	kvf_chunks_retire(d, src);
}

bool
kvf_transfer_finish(struct kvf_dispatcher *d)
{
	uint64_t done = kvf_copy_take_finished(d->copy), bits;

	for (bits = done; bits != 0; bits &= bits - 1) {
		uint32_t index = (uint32_t)__builtin_ctzll(bits);

		d->free_slots |= UINT64_C(1) << index;
		segment_done(d, &d->copy->slots[index]);
	}
	return done != 0;
}
