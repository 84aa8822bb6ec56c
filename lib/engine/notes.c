/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notes between control and dispatcher. Each way is a ring; what finds it full is kept by the
 * sender and goes out later, in order, so neither ever waits for the other. (The dispatcher
 * allocates for that, which it does nowhere else once warm: only when thousands of notes stand
 * already.)
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

static bool
flush(struct rte_ring *ring, int fd, struct kvf_outbox *box)
{
	struct kvf_note note;

	while (box->head != NULL) {
		if (!put(ring, fd, &box->head->note))
			return false;
		(void)kvf_outbox_take(box, &note);
	}
	return true;
}

static void
tell(struct rte_ring *ring, int fd, struct kvf_outbox *box, const struct kvf_note *note)
{
	struct kvf_unsent *u;

	while (!flush(ring, fd, box) || !put(ring, fd, note)) {
		u = malloc(sizeof(*u));
		if (u != NULL) {
			*u = (struct kvf_unsent){.note = *note};
			if (box->head == NULL)
				box->head = u;
			else
				box->tail->next = u;
			box->tail = u;
			return;
		}
		/* Without memory there is no other way than to wait. */
		rte_pause();
	}
}

void
kvf_tell_dispatcher(struct kvf_engine *e, const struct kvf_note *note)
{
	tell(e->to_dispatcher, e->notes_fd, &e->for_dispatcher, note);
}

bool
kvf_flush_dispatcher(struct kvf_engine *e)
{
	return flush(e->to_dispatcher, e->notes_fd, &e->for_dispatcher);
}

void
kvf_tell_control(struct kvf_engine *e, const struct kvf_note *note)
{
	tell(e->to_control, e->control_fd, &e->for_control, note);
}

bool
kvf_flush_control(struct kvf_engine *e)
{
	return flush(e->to_control, e->control_fd, &e->for_control);
}

bool
kvf_outbox_take(struct kvf_outbox *box, struct kvf_note *note)
{
	struct kvf_unsent *u = box->head;

	if (u == NULL)
		return false;
	*note = u->note;
	box->head = u->next;
	free(u);
	return true;
}
