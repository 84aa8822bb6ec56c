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
#include <stddef.h>
#include <string.h>

#include "engine/internal.h"

#define LEG_SEGMENTS       4u /* of one leg, in slots at a time */
#define SEGMENTS_PER_ROUND 8u

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

/* From anywhere: when many rooms fail at once, many legs leave a long queue. */
static void
unqueue(struct kvf_dispatcher *d, struct kvf_leg *leg)
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

/* Has the leg something to plan, as far as its phase goes? A phase begins when all legs of the
 * receiver are through with the one before. */
static bool
may_plan(const struct kvf_leg *leg)
{
	switch (leg->phase) {
	case KVF_PHASE_TOKENS:
		return leg->chunk != NULL;
	case KVF_PHASE_STATE:
		return leg->dst->tokens_left == 0;
	case KVF_PHASE_AUX:
		return leg->dst->state_left == 0;
	default:
		return false;
	}
}

void
kvf_leg_wake(struct kvf_dispatcher *d, struct kvf_leg *leg)
{
	if (!leg->queued && !leg->stopped && !leg->planned && leg->outstanding < LEG_SEGMENTS &&
		may_plan(leg))
		enqueue(d, leg);
}

void
kvf_leg_create(struct kvf_dispatcher *d, struct kvf_part *src, struct kvf_part *dst)
{
	const struct kvf_pair *pair = kvf_link_pair(src->room->link->link, src->rank, dst->rank);
	struct kvf_leg *leg;
	uint32_t m;

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
	memset(leg, 0, offsetof(struct kvf_leg, runs));
	leg->src = src;
	leg->dst = dst;
	leg->pair = pair;
	for (m = 0; m < pair->num_maps; m++)
		leg->classes |= (uint8_t)(1u << pair->maps[m].cls);
	leg->chunk = src->chunks;
	leg->src_next = src->legs;
	src->legs = leg;
	leg->dst_next = dst->legs;
	dst->legs = leg;
	kvf_leg_wake(d, leg);
}

static bool
carries(const struct kvf_slot *slot, const struct kvf_leg *leg)
{
	uint32_t k;

	for (k = 0; k < slot->num_subs; k++)
		if (slot->subs[k].leg == leg)
			return true;
	return false;
}

void
kvf_leg_stop(struct kvf_dispatcher *d, struct kvf_leg *leg)
{
	uint32_t i;

	if (leg->stopped)
		return;
	leg->stopped = true;
	for (i = 0; i < KVF_SLOTS && leg->outstanding != 0; i++)
		if ((d->free_slots & (UINT64_C(1) << i)) == 0 && carries(&d->copy->slots[i], leg))
			kvf_slot_cancel(d->copy, i); /* the other legs in it are of the same room */
}

void
kvf_legs_free(struct kvf_dispatcher *d, struct kvf_part *part)
{
	struct kvf_leg *leg, *next;

	for (leg = part->legs; leg != NULL; leg = next) {
		next = leg->src_next;
		if (leg->queued)
			unqueue(d, leg);
		kvf_slab_free(&d->slab, leg, sizeof(*leg));
	}
	part->legs = NULL;
}

void
kvf_chunk_free(struct kvf_dispatcher *d, struct kvf_ep *ep, struct kvf_chunk *chunk)
{
	kvf_lists_free(d, ep, &chunk->lists);
	if (ep != NULL)
		ep->num_chunks--;
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

static void phase_done(struct kvf_dispatcher *d, struct kvf_leg *leg);

/* All legs of the receiver have come to `phase`. Those without anything in it are through with it
 * at once; the last one of them takes all to the phase after it. */
static void
next_phase(struct kvf_dispatcher *d, struct kvf_part *dst, uint8_t phase)
{
	struct kvf_leg *leg;

	for (leg = dst->legs; leg != NULL; leg = leg->dst_next) {
		if (leg->phase != phase)
			continue;
		if ((leg->classes & 1u << kvf_phase_class(leg->phase)) != 0)
			kvf_leg_wake(d, leg);
		else if (!leg->stopped)
			phase_done(d, leg);
	}
}

/* Everything of the leg's phase is copied. */
static void
phase_done(struct kvf_dispatcher *d, struct kvf_leg *leg)
{
	struct kvf_part *src = leg->src, *dst = leg->dst;

	/* It may stand in the queue for what it just turned out to have no more of. */
	if (leg->queued)
		unqueue(d, leg);
	leg->planned = false;
	switch (leg->phase) {
	case KVF_PHASE_TOKENS:
		leg->phase = KVF_PHASE_STATE;
		if (--dst->tokens_left == 0)
			next_phase(d, dst, KVF_PHASE_STATE);
		break;
	case KVF_PHASE_STATE:
		leg->phase = KVF_PHASE_AUX;
		if (--dst->state_left == 0)
			next_phase(d, dst, KVF_PHASE_AUX);
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

static void
carried(struct kvf_dispatcher *d, struct kvf_slot *slot, struct kvf_leg *leg)
{
	leg->outstanding++;
	((struct kvf_chunk *)slot->chunk)->outstanding++;
	kvf_part_status(d, leg->src, KVF_TRANSFERRING);
	kvf_part_status(d, leg->dst, KVF_TRANSFERRING);
}

bool
kvf_transfer_plan(struct kvf_dispatcher *d)
{
	bool worked = false;
	uint32_t n, k;

	for (n = 0; n < SEGMENTS_PER_ROUND && d->run_head != NULL && d->free_slots != 0; n++) {
		uint32_t index = (uint32_t)__builtin_ctzll(d->free_slots);
		struct kvf_slot *slot = &d->copy->slots[index];
		struct kvf_leg *leg = d->run_head;

		unqueue(d, leg);
		worked = true;
		/* Since it was queued, a segment of another leg's may have taken it along. */
		if (leg->stopped || leg->outstanding >= LEG_SEGMENTS ||
			(!leg->planned && !may_plan(leg)))
			continue;
		if (!leg->planned && kvf_segment_fill(d, leg, slot)) {
			d->free_slots &= ~(UINT64_C(1) << index);
			kvf_count(&d->totals.segments, 1);
			for (k = 0; k < slot->num_subs; k++)
				carried(d, slot, slot->subs[k].leg);
			kvf_slot_publish(d->copy, index, KVF_SLOTS_ALL & ~d->free_slots);
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
check_lost(struct kvf_dispatcher *d, struct kvf_room *room, struct kvf_ep *ep)
{
	struct kvf_err why;

	if (!kvf_guard_lost(ep->guard))
		return;
	kvf_fail(&why, KVF_E_POOL_LOST,
		"memory of the pool of %s was taken away (hole punched or file truncated)",
		ep->name);
	kvf_room_fail(d, room, NULL, why.code, "%s", why.text);
	kvf_ep_fault(d, ep, &why);
}

/* One leg's share of a finished segment. */
static void
share_done(struct kvf_dispatcher *d, const struct kvf_slot_sub *sub)
{
	struct kvf_leg *leg = sub->leg;
	struct kvf_part *src = leg->src, *dst = leg->dst;

	if (leg->stopped) {
		if (leg->outstanding == 0) {
			kvf_part_try_drain(d, src);
			kvf_part_try_drain(d, dst);
		}
		return;
	}
	kvf_count(&src->ep->counters.bytes_out, (int64_t)sub->bytes);
	kvf_count(&dst->ep->counters.bytes_in, (int64_t)sub->bytes);
	if (leg->planned && leg->outstanding == 0)
		phase_done(d, leg);
	else
		kvf_leg_wake(d, leg);
}

static void
segment_done(struct kvf_dispatcher *d, struct kvf_slot *slot)
{
	int error = atomic_load_explicit(&slot->error, memory_order_relaxed);
	struct kvf_part *src = slot->subs[0].leg->src;
	struct kvf_chunk *chunk = slot->chunk;
	uint32_t k;

	src->room->last_progress = d->now;
	chunk->outstanding -= slot->num_subs;
	check_lost(d, src->room, src->ep);
	for (k = 0; k < slot->num_subs; k++) {
		slot->subs[k].leg->outstanding--;
		check_lost(d, src->room, slot->subs[k].leg->dst->ep);
	}
	if (error != 0)
		kvf_room_fail(d, src->room, NULL, error, "driver=%s %s from %s to %s",
			d->engine->ops->name,
			error == KVF_E_VERIFY ? "left bytes that differ after a copy"
					      : "failed a copy",
			src->ep->name, slot->subs[0].leg->dst->ep->name);
	else if (src->room->err.code == 0)
		kvf_count(&d->totals.bytes, (int64_t)slot->bytes);
	for (k = 0; k < slot->num_subs; k++)
		share_done(d, &slot->subs[k]);
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
