/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The dispatcher lcore: takes postings, plans, hands work to copy lcores (and copies itself),
 * publishes completions. No lock, and once warm no allocation and no system call unless somebody
 * sleeps.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <rte_cycles.h>
#include <rte_pause.h>
#include <rte_ring.h>

#include "engine/internal.h"

#define SPIN_US          50
#define SLEEP_OPEN_MS    5    /* with rooms open: deadlines must be noticed */
#define SLEEP_EMPTY_MS   1000 /* the doorbell wakes us for everything else */
#define TICK_US          1000
#define SLICES_PER_ROUND 1
#define STOP_FLUSH_MS    1000
#define PAUSE_EVERY      8 /* idle rounds */
#define PUBLISH_PER_TURN 1024
#define DYING_ROUNDS     64
#define STALL_MS         20  /* the engine did not run for longer than it meant to sleep */
#define STALL_GRACE_MS   100 /* then what waits in the rings is read before deadlines are judged */

void
kvf_part_touch(struct kvf_dispatcher *d, struct kvf_part *p)
{
	struct kvf_ep *ep = p->ep;

	(void)d;
	if (p->dirty || p->released || ep == NULL || ep->dead)
		return;
	p->dirty = true;
	p->dirty_next = NULL;
	if (ep->dirty_tail != NULL)
		ep->dirty_tail->dirty_next = p;
	else
		ep->dirty_head = p;
	ep->dirty_tail = p;
}

void
kvf_ep_fault(struct kvf_dispatcher *d, struct kvf_ep *ep, const struct kvf_err *why)
{
	struct kvf_note note = {.type = NOTE_EP_FAULT, .ep = ep};

	if (ep->faulted || ep->dead)
		return;
	ep->faulted = true;
	ep->fault = *why;
	/* Control closes the connection; the usual way of a dead endpoint follows. */
	kvf_tell_control(d->engine, &note);
}

static bool
cq_put(struct kvf_dispatcher *d, struct kvf_ep *ep, uint32_t head, const struct kvf_cqe *cqe,
	const char *text)
{
	uint32_t at = ep->cq_tail & (ep->ring.cq_entries - 1);

	(void)d;
	if (ep->cq_tail - head >= ep->ring.cq_entries)
		return false;
	if (cqe->error != 0) {
		strncpy(ep->ring.text[at].text, text, sizeof(ep->ring.text[at].text) - 1);
		ep->ring.text[at].text[sizeof(ep->ring.text[at].text) - 1] = '\0';
	}
	ep->ring.cq[at] = *cqe;
	ep->cq_tail++;
	return true;
}

/* What does not fit the ring stays marked and goes out in a later round: nothing is lost, and at
 * most one completion per room waits. */
static bool
publish(struct kvf_dispatcher *d, struct kvf_ep *ep)
{
	uint32_t before = ep->cq_tail, head;
	struct kvf_part *p;

	if (ep->dirty_head == NULL && ep->event.code == 0)
		return false;
	/* acquire: partner of the client's release after it took the entries */
	head = atomic_load_explicit(&ep->ring.hdr->cq_head, memory_order_acquire);
	if (ep->cq_tail - head > ep->ring.cq_entries) {
		struct kvf_err why;

		kvf_fail(&why, KVF_E_PROTO, "%s moved cq_head to %u, cq_tail=%u entries=%u",
			ep->name, head, ep->cq_tail, ep->ring.cq_entries);
		kvf_ep_fault(d, ep, &why);
		return false;
	}
	if (ep->event.code != 0) {
		struct kvf_cqe cqe = {.error = ep->event.code, .flags = KVF_CQE_ENDPOINT};

		if (cq_put(d, ep, head, &cqe, ep->event.text))
			ep->event.code = 0;
	}
	while ((p = ep->dirty_head) != NULL) {
		struct kvf_cqe cqe = {
			.room = p->room->id,
			.seq = p->seq,
			.tokens = p->tokens_done,
			.error = p->status == KVF_FAILED ? p->room->err.code : 0,
			.status = p->status,
			.flags = (uint8_t)((p->drained ? KVF_CQE_DRAINED : 0) |
					   (p->clipped ? KVF_CQE_CLIPPED : 0)),
		};

		if (ep->cq_tail - before == PUBLISH_PER_TURN ||
			!cq_put(d, ep, head, &cqe, p->room->err.text))
			break;
		ep->dirty_head = p->dirty_next;
		if (ep->dirty_head == NULL)
			ep->dirty_tail = NULL;
		p->dirty = false;
	}
	if (ep->cq_tail == before)
		return false;
	/* release: entries, texts and, before them, the copied bytes */
	atomic_store_explicit(&ep->ring.hdr->cq_tail, ep->cq_tail, memory_order_release);
	kvf_prefetch_write(&ep->ring.cq[ep->cq_tail & (ep->ring.cq_entries - 1)]);
	/* partner of the fence in kvf_wait(): the client sees the tail or we see that it sleeps */
	kvf_ring_fence();
	/* A full buffer wakes just as well; a client that closed its end is woken by that. */
	if (atomic_load_explicit(&ep->ring.hdr->client_sleeping, memory_order_relaxed) != 0)
		(void)send(ep->wake_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	return true;
}

static void
ep_add(struct kvf_dispatcher *d, struct kvf_ep *ep)
{
	d->eps[d->num_eps++] = ep;
	ep->group->live[ep->rank] = ep;
}

static void
ep_dead(struct kvf_dispatcher *d, struct kvf_ep *ep)
{
	ep->dead = true;
	ep->dirty_head = ep->dirty_tail = NULL;
	ep->group->live[ep->rank] = NULL;
	d->unburied = true; /* it may be a second to the next tick */
	kvf_intake_drop(d, ep);
	kvf_room_ep_dead(d, ep);
	kvf_link_invalidate(d, ep->group);
}

/*
 * What a client posted before it died counts: its rooms must fail with it, and those who share them
 * would wait for minutes if nobody ever read that it took part. The ring's memory may be in other
 * hands still, so the end is taken once.
 */
static void
ep_dying(struct kvf_dispatcher *d, struct kvf_ep *ep)
{
	/* acquire: partner of the client's release after entry and arena */
	ep->sq_end = atomic_load_explicit(&ep->ring.hdr->sq_tail, memory_order_acquire);
	ep->dying = true;
	if (ep->faulted || ep->sq_end - ep->sq_head > ep->ring.sq_entries)
		ep_dead(d, ep);
}

/* All that it posted is read, or what is left makes no sense. */
static bool
finish_dying(struct kvf_dispatcher *d)
{
	bool worked = false;
	uint32_t i;

	for (i = 0; i < d->num_eps; i++) {
		struct kvf_ep *ep = d->eps[i];

		if (!ep->dying || ep->dead ||
			(!ep->faulted && (ep->intake.active || ep->sq_head != ep->sq_end)))
			continue;
		ep_dead(d, ep);
		worked = true;
	}
	return worked;
}

/* Somebody came in the place of one that is still being read: no longer than a moment for that. */
static void
make_way(struct kvf_dispatcher *d, const struct kvf_ep *next)
{
	uint32_t i, n;

	for (i = 0; i < d->num_eps; i++) {
		struct kvf_ep *ep = d->eps[i];

		if (!ep->dying || ep->dead || ep->group != next->group || ep->rank != next->rank)
			continue;
		for (n = 0; n < DYING_ROUNDS && !ep->faulted &&
			    (ep->intake.active || ep->sq_head != ep->sq_end);
			n++)
			kvf_intake_poll(d, ep);
		ep_dead(d, ep);
	}
}

/* Hands dead endpoints back once nothing refers to them. */
static void
bury(struct kvf_dispatcher *d)
{
	uint32_t i = 0;

	d->unburied = false;
	while (i < d->num_eps) {
		struct kvf_note note = {.type = NOTE_EP_GONE, .ep = d->eps[i]};

		if (!d->eps[i]->dead || !kvf_room_ep_gone(d, d->eps[i])) {
			i++;
			continue;
		}
		d->eps[i] = d->eps[--d->num_eps];
		kvf_tell_control(d->engine, &note);
	}
}

static void
take_notes(struct kvf_dispatcher *d)
{
	struct kvf_note note;

	while (kvf_note_take(d->engine->to_dispatcher, &note)) {
		switch (note.type) {
		case NOTE_EP_ADD:
			make_way(d, note.ep);
			ep_add(d, note.ep);
			break;
		case NOTE_EP_DEAD:
			ep_dying(d, note.ep);
			break;
		case NOTE_LINK:
			kvf_link_note(d, &note);
			break;
		default:
			d->stopping = true;
			d->stop_deadline = d->now + d->hz / 1000 * d->engine->cfg.drain_ms;
			break;
		}
	}
}

static void
set_sleeping(struct kvf_dispatcher *d, uint32_t value)
{
	uint32_t i;

	for (i = 0; i < d->num_eps; i++)
		atomic_store_explicit(
			&d->eps[i]->ring.hdr->engine_sleeping, value, memory_order_relaxed);
}

static bool
anything_waits(struct kvf_dispatcher *d)
{
	uint32_t i;

	if (rte_ring_count(d->engine->to_dispatcher) != 0 || d->engine->for_control.head != NULL)
		return true;
	for (i = 0; i < d->num_eps; i++) {
		struct kvf_ep *ep = d->eps[i];

		if (!ep->faulted && !ep->dead &&
			atomic_load_explicit(&ep->ring.hdr->sq_tail, memory_order_relaxed) !=
				ep->sq_head)
			return true;
		/* what did not fit the completion ring: is there room by now? */
		if (!ep->faulted && !ep->dead && (ep->dirty_head != NULL || ep->event.code != 0) &&
			ep->cq_tail - atomic_load_explicit(
					      &ep->ring.hdr->cq_head, memory_order_relaxed) <
				ep->ring.cq_entries)
			return true;
	}
	return false;
}

/* Returns the time until when it might have slept. */
static uint64_t
sleep_for_work(struct kvf_dispatcher *d)
{
	int ms = d->num_rooms != 0 ? SLEEP_OPEN_MS : SLEEP_EMPTY_MS;
	uint64_t until = rte_rdtsc() + d->hz / 1000 * (uint64_t)ms;
	struct epoll_event events[8];

	set_sleeping(d, 1);
	/* partner of the clients' fence after sq_tail: they see the flag or we see their tail */
	kvf_ring_fence();
	if (!anything_waits(d)) {
		kvf_count(&d->totals.sleeps, 1);
		/* Edge-triggered: every ring counts, and nobody has to read it. */
		(void)epoll_wait(d->engine->bells_fd, events, 8, ms);
	}
	set_sleeping(d, 0);
	return until;
}

static void
show_memory(struct kvf_dispatcher *d)
{
	atomic_store_explicit(&d->totals.slab_bytes, d->slab.bytes_held, memory_order_relaxed);
	atomic_store_explicit(&d->totals.slab_used, d->slab.bytes_used, memory_order_relaxed);
}

static bool
all_slots_free(const struct kvf_dispatcher *d)
{
	return d->free_slots == KVF_SLOTS_ALL;
}

/* Bytes of a transfer that was posted to its end are still to be copied. One that waits for
 * somebody waits in vain: nothing is accepted any more. */
static bool
moving(const struct kvf_room *room)
{
	uint32_t i;

	for (i = 0; room->send_parts != NULL && i < room->prefill->size; i++) {
		const struct kvf_part *p = room->send_parts[i];
		const struct kvf_leg *leg;

		if (p == NULL || p->status == KVF_FAILED || p->status == KVF_SUCCESS ||
			!p->final_posted)
			continue;
		for (leg = p->legs; leg != NULL; leg = leg->src_next)
			if (leg->phase != KVF_PHASE_DONE && !leg->stopped)
				return true;
	}
	return false;
}

/* One step of an orderly stop; true when everything has come to rest. */
static bool
stop_step(struct kvf_dispatcher *d)
{
	bool late = d->now >= d->stop_deadline, busy = false;
	struct kvf_room *room;
	uint32_t i;

	for (i = 0; i < KVF_ROOM_BUCKETS; i++)
		for (room = d->buckets[i]; room != NULL; room = room->hash_next) {
			if (room->err.code != 0)
				continue;
			if (!late && moving(room))
				busy = true;
			else
				kvf_room_fail(
					d, room, NULL, KVF_E_ENGINE_GONE, "kvferryd is stopping");
		}
	if (busy || !all_slots_free(d) || d->sweep_head != NULL)
		return false;
	for (i = 0; i < d->num_eps; i++)
		if (d->eps[i]->dirty_head != NULL && !d->eps[i]->dead &&
			d->now < d->stop_deadline + d->hz / 1000 * STOP_FLUSH_MS)
			return false;
	return true;
}

bool
kvf_dispatcher_step(struct kvf_dispatcher *d, uint64_t now, bool *at_rest)
{
	bool tick = now >= d->next_tick, worked = false;
	uint32_t i;

	d->now = now;
	*at_rest = false;
	if (rte_ring_count(d->engine->to_dispatcher) != 0) {
		take_notes(d);
		worked = true;
	}
	(void)kvf_flush_control(d->engine);
	if (d->unburied) {
		bury(d);
		worked = true;
	}
	for (i = 0; i < d->num_eps; i++)
		if (!d->eps[i]->dead && !d->eps[i]->faulted)
			worked |= kvf_intake_poll(d, d->eps[i]);
	worked |= finish_dying(d);
	for (i = 0; i < d->num_eps; i++)
		if (d->eps[i]->dead)
			worked |= kvf_room_ep_reap(d, d->eps[i]);
	worked |= kvf_link_tell(d);
	worked |= kvf_transfer_plan(d);
	worked |= kvf_copier_step(d->copier, SLICES_PER_ROUND);
	/* Completions before deadlines: what is done is never judged late. */
	worked |= kvf_transfer_finish(d);
	worked |= kvf_sweep(d);
	if (tick) {
		d->next_tick = now + d->hz / 1000000 * TICK_US;
		show_memory(d);
		kvf_rooms_expire(d);
		kvf_timers_run(d);
		bury(d);
	}
	for (i = 0; i < d->num_eps; i++)
		if (!d->eps[i]->dead && !d->eps[i]->faulted)
			worked |= publish(d, d->eps[i]);
	if (tick && d->stopping)
		*at_rest = stop_step(d);
	return worked;
}

/*
 * Who was stopped, or kept from running, finds all deadlines passed and in the rings what came in
 * time. That is read first: deadlines wait for a moment, once, so that an engine that is late every
 * time still judges.
 */
static void
after_a_stall(struct kvf_dispatcher *d, uint64_t now, uint64_t expected, bool *held)
{
	if (now > expected + d->hz / 1000 * STALL_MS && !*held) {
		d->next_tick = now + d->hz / 1000 * STALL_GRACE_MS;
		*held = true;
	} else if (now >= d->next_tick) {
		*held = false;
	}
}

int
kvf_dispatcher_main(void *arg)
{
	struct kvf_dispatcher *d = arg;
	uint64_t spin, idle_since, expected;
	struct kvf_note note = {.type = NOTE_STOPPED};
	bool worked = false, at_rest = false, held = false;
	uint32_t idle = 0, i;

	d->hz = rte_get_tsc_hz();
	kvf_timers_init(d);
	spin = d->hz / 1000000 * SPIN_US;
	d->now = idle_since = expected = rte_rdtsc();
	while (!at_rest) {
		uint64_t now = rte_rdtsc();

		if (worked)
			kvf_count(&d->copier->counters.busy_cycles, (int64_t)(now - d->now));
		after_a_stall(d, now, expected, &held);
		expected = now;
		worked = kvf_dispatcher_step(d, now, &at_rest);
		if (worked || !all_slots_free(d)) {
			idle_since = d->now;
		} else if (d->engine->cfg.busy || d->stopping || d->now - idle_since < spin) {
			/* Each time would double the time until a posting is noticed. */
			if (++idle % PAUSE_EVERY == 0)
				rte_pause();
		} else {
			show_memory(d);
			expected = sleep_for_work(d);
			idle_since = rte_rdtsc();
		}
	}
	for (i = 0; i < d->num_eps; i++)
		atomic_store_explicit(
			&d->eps[i]->ring.hdr->engine_stopped, 1, memory_order_release);
	kvf_tell_control(d->engine, &note);
	/* If control does not read any more, nobody waits for this either. */
	expected = rte_rdtsc() + d->hz / 1000 * STOP_FLUSH_MS;
	while (!kvf_flush_control(d->engine) && rte_rdtsc() < expected)
		rte_pause();
	return 0;
}
