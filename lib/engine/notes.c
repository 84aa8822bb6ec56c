/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notes between control and dispatcher. Each way is a ring; when it is full the dispatcher waits,
 * as control always goes on reading, and control keeps the note for later, as it may allocate. So
 * the two never wait for each other.
 */
#include <stdlib.h>
#include <unistd.h>

#include <rte_pause.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>

#include "engine/internal.h"

struct kvf_unsent {
	struct kvf_unsent *next;
	struct kvf_note note;
};

/*
 * What a note points to was written before it was sent. rte_ring orders that with barriers of its
 * own, and rte_eal_wait_lcore() likewise, which the C memory model, and with it a race detector,
 * knows nothing of: whatever passes through them is handed over through this counter as well.
 */
static _Atomic uint32_t handed_over;

void
kvf_hand_over(void)
{
	/* release: partner of the acquire in kvf_handed_over() */
	atomic_fetch_add_explicit(&handed_over, 1, memory_order_release);
}

void
kvf_handed_over(void)
{
	atomic_fetch_add_explicit(&handed_over, 1, memory_order_acquire);
}

static bool
put(struct rte_ring *ring, int fd, const struct kvf_note *note)
{
	uint64_t one = 1;

	kvf_hand_over();
	if (rte_ring_enqueue_elem(ring, (void *)(uintptr_t)note, sizeof(*note)) != 0)
		return false;
	while (write(fd, &one, sizeof(one)) < 0)
		break; /* a full counter wakes just as well */
	return true;
}

void
kvf_note_send(struct rte_ring *ring, int fd, const struct kvf_note *note)
{
	while (!put(ring, fd, note))
		rte_pause();
}

void
kvf_note_try(struct rte_ring *ring, int fd, const struct kvf_note *note)
{
	if (rte_ring_count(ring) <= KVF_NOTES / 2)
		(void)put(ring, fd, note);
}

bool
kvf_note_take(struct rte_ring *ring, struct kvf_note *note)
{
	if (rte_ring_dequeue_elem(ring, note, sizeof(*note)) != 0)
		return false;
	kvf_handed_over();
	return true;
}

void
kvf_tell_dispatcher(struct kvf_engine *e, const struct kvf_note *note)
{
	struct kvf_unsent *u;

	if (kvf_flush_notes(e) && put(e->to_dispatcher, e->notes_fd, note))
		return;
	u = malloc(sizeof(*u));
	if (u == NULL) {
		/* Without memory there is no other way: what stands before it goes first. */
		while (!kvf_flush_notes(e))
			rte_pause();
		kvf_note_send(e->to_dispatcher, e->notes_fd, note);
		return;
	}
	*u = (struct kvf_unsent){.note = *note};
	if (e->unsent_head == NULL)
		e->unsent_head = u;
	else
		e->unsent_tail->next = u;
	e->unsent_tail = u;
}

bool
kvf_flush_notes(struct kvf_engine *e)
{
	struct kvf_note note;

	while (e->unsent_head != NULL) {
		if (!put(e->to_dispatcher, e->notes_fd, &e->unsent_head->note))
			return false;
		(void)kvf_note_unsent(e, &note);
	}
	return true;
}

bool
kvf_note_unsent(struct kvf_engine *e, struct kvf_note *note)
{
	struct kvf_unsent *u = e->unsent_head;

	if (u == NULL)
		return false;
	*note = u->note;
	e->unsent_head = u->next;
	free(u);
	return true;
}
