/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deadlines of parts, on a wheel: looking at every part again and again would take a whole core
 * when there are tens of thousands of them.
 *
 * Each part that has not ended stands in the slot of its deadline as it was when the part was put
 * there. Progress moves a deadline without moving the part: when its slot comes and it is not due,
 * it is put where it belongs by then. What lies beyond the wheel's end waits in the last slot.
 */
#include "engine/internal.h"

#define TICK_US 4000 /* about */
#define PER_RUN 4096 /* parts; the others a tick later */

void
kvf_timers_init(struct kvf_dispatcher *d)
{
	/* A power of two: a division would cost as much as all else here. */
	d->timer_shift = 63 - (uint32_t)__builtin_clzll(d->hz / 1000000 * TICK_US | 1);
}

static uint64_t
since(const struct kvf_part *p)
{
	return p->status == KVF_BOOTSTRAPPING ? p->posted : p->room->last_progress;
}

static uint32_t
limit_ms(const struct kvf_part *p)
{
	return p->status == KVF_BOOTSTRAPPING ? p->bootstrap_ms : p->waiting_ms;
}

void
kvf_timer_drop(struct kvf_part *p)
{
	if (p->timer_at == NULL)
		return;
	*p->timer_at = p->timer_next;
	if (p->timer_next != NULL)
		p->timer_next->timer_at = p->timer_at;
	p->timer_next = NULL;
	p->timer_at = NULL;
}

void
kvf_timer_set(struct kvf_dispatcher *d, struct kvf_part *p)
{
	/* 32 bits of milliseconds: nothing overflows. */
	uint64_t due = since(p) + (d->hz / 1000) * limit_ms(p);
	uint64_t tick = (due >> d->timer_shift) + 1, last = d->timer_tick + KVF_TIMER_SLOTS - 1;
	struct kvf_part **slot;

	kvf_timer_drop(p);
	if (tick <= d->timer_tick)
		tick = d->timer_tick + 1;
	if (tick > last)
		tick = last;
	slot = &d->timers[tick % KVF_TIMER_SLOTS];
	p->timer_next = *slot;
	if (*slot != NULL)
		(*slot)->timer_at = &p->timer_next;
	p->timer_at = slot;
	*slot = p;
}

static const char *const status_names[] = {
	"Failed", "Bootstrapping", "WaitingForInput", "Transferring", "Success"};

static void
look_at(struct kvf_dispatcher *d, struct kvf_part *p)
{
	uint64_t from = since(p);

	kvf_timer_drop(p);
	if (d->now > from && (d->now - from) / (d->hz / 1000) >= limit_ms(p))
		kvf_room_fail(d, p->room, p->ep, KVF_E_TIMEOUT,
			"timed out in state=%s after seconds=%.3f", status_names[p->status],
			(double)(d->now - from) / (double)d->hz);
	else
		kvf_timer_set(d, p);
}

void
kvf_timers_run(struct kvf_dispatcher *d)
{
	uint64_t now = d->now >> d->timer_shift;
	struct kvf_part *p;
	uint32_t n = 0;

	/* One turn shows every part, however long nobody looked. */
	if (now > d->timer_tick + KVF_TIMER_SLOTS)
		d->timer_tick = now - KVF_TIMER_SLOTS;
	for (; d->timer_tick <= now; d->timer_tick++) {
		while ((p = d->timers[d->timer_tick % KVF_TIMER_SLOTS]) != NULL) {
			if (n++ == PER_RUN)
				return;
			look_at(d, p);
		}
	}
}
