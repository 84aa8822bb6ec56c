/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The dispatcher's side of links. A link is wanted when a room first brings a prefill and a
 * decode group together; control builds it as soon as both groups are complete; rooms wait
 * meanwhile. When a member leaves, the link is stale: its rooms keep it until they end, new rooms
 * want a new one.
 */
#include <string.h>

#include "engine/internal.h"

#define TELL_PER_ROUND 256

static void
free_slot(struct kvf_dispatcher *d, struct kvf_link_slot *slot)
{
	struct kvf_link_slot **at;

	for (at = &d->links; *at != slot;)
		at = &(*at)->next;
	*at = slot->next;
	if (slot->link != NULL) {
		struct kvf_note note = {.type = NOTE_LINK_FREE, .link = slot->link};

		kvf_tell_control(d->engine, &note);
	}
	kvf_slab_free(&d->slab, slot, sizeof(*slot));
}

static struct kvf_link_slot *
find(const struct kvf_dispatcher *d, const struct kvf_ep_group *p, const struct kvf_ep_group *q)
{
	struct kvf_link_slot *slot;

	for (slot = d->links; slot != NULL; slot = slot->next)
		if (!slot->stale && slot->prefill == p && slot->decode == q)
			return slot;
	return NULL;
}

bool
kvf_link_refused(
	const struct kvf_dispatcher *d, const struct kvf_ep_group *p, const struct kvf_ep_group *q)
{
	const struct kvf_link_slot *slot = find(d, p, q);

	return slot != NULL && slot->refusal.code != 0;
}

static void
linked(struct kvf_dispatcher *d, struct kvf_room *room)
{
	uint32_t i;

	/* The waiting limit starts here: what was waited so far was bootstrapping. */
	room->last_progress = d->now;
	for (i = 0; i < room->prefill->size; i++)
		if (room->send_parts[i] != NULL)
			kvf_part_linked(d, room->send_parts[i]);
	for (i = 0; i < room->decode->size; i++)
		if (room->recv_parts[i] != NULL)
			kvf_part_linked(d, room->recv_parts[i]);
}

static void
want(struct kvf_dispatcher *d, struct kvf_link_slot *slot)
{
	struct kvf_note note = {
		.type = NOTE_LINK_WANT, .prefill = slot->prefill, .decode = slot->decode};

	kvf_tell_control(d->engine, &note);
}

void
kvf_link_bind(struct kvf_dispatcher *d, struct kvf_room *room)
{
	struct kvf_link_slot *slot;

	if (room->link != NULL || room->err.code != 0 || room->num_send == 0 || room->num_recv == 0)
		return;
	slot = find(d, room->prefill, room->decode);
	if (slot == NULL) {
		slot = kvf_slab_alloc(&d->slab, sizeof(*slot));
		if (slot == NULL) {
			kvf_room_fail(d, room, NULL, KVF_E_NOMEM, "no memory for a link");
			return;
		}
		memset(slot, 0, sizeof(*slot));
		slot->prefill = room->prefill;
		slot->decode = room->decode;
		slot->next = d->links;
		d->links = slot;
		want(d, slot);
	}
	if (slot->refusal.code != 0) {
		kvf_room_fail(d, room, NULL, slot->refusal.code, "%s", slot->refusal.text);
		return;
	}
	room->link = slot;
	room->link_prev = NULL;
	room->link_next = slot->rooms;
	if (slot->rooms != NULL)
		slot->rooms->link_prev = room;
	slot->rooms = room;
	slot->refs++;
	if (slot->link != NULL)
		linked(d, room);
}

void
kvf_link_unbind(struct kvf_dispatcher *d, struct kvf_room *room)
{
	struct kvf_link_slot *slot = room->link;

	if (slot == NULL)
		return;
	if (slot->unlinked == room)
		slot->unlinked = room->link_next;
	if (room->link_next != NULL)
		room->link_next->link_prev = room->link_prev;
	if (room->link_prev != NULL)
		room->link_prev->link_next = room->link_next;
	else
		slot->rooms = room->link_next;
	room->link = NULL;
	slot->refs--;
	if (slot->refs == 0 && slot->stale)
		free_slot(d, slot);
}

/* Not for new rooms any more; freed with the last one that uses it. */
static void
retire(struct kvf_dispatcher *d, struct kvf_link_slot *slot)
{
	slot->stale = true;
	if (slot->refs == 0)
		free_slot(d, slot);
}

static void
tell_group(struct kvf_ep_group *group, const struct kvf_err *why)
{
	uint32_t i;

	for (i = 0; i < group->size; i++)
		if (group->live[i] != NULL)
			group->live[i]->event = *why;
}

/* Control gave up waiting for a group that everybody left. */
static void
given_up(struct kvf_dispatcher *d, struct kvf_link_slot *slot)
{
	struct kvf_room *room;

	for (room = slot->rooms; room != NULL; room = room->link_next)
		if (room->err.code == 0) {
			want(d, slot); /* somebody came back meanwhile */
			return;
		}
	retire(d, slot);
}

void
kvf_link_note(struct kvf_dispatcher *d, const struct kvf_note *note)
{
	struct kvf_link_slot *slot = find(d, note->prefill, note->decode);

	if (note->link == NULL && note->err.code == 0) {
		if (slot != NULL && slot->link == NULL && slot->refusal.code == 0)
			given_up(d, slot);
		return;
	}
	if (slot == NULL || slot->link != NULL) {
		/* Nobody waits for it any more. */
		struct kvf_note back = {.type = NOTE_LINK_FREE, .link = note->link};

		kvf_tell_control(d->engine, &back);
		return;
	}
	slot->link = note->link;
	if (note->link == NULL) {
		slot->refusal = note->err;
		tell_group(slot->prefill, &slot->refusal);
		tell_group(slot->decode, &slot->refusal);
	}
	/* There may be very many, and others have work to be done meanwhile. */
	slot->unlinked = slot->rooms;
	d->untold = true;
}

bool
kvf_link_tell(struct kvf_dispatcher *d)
{
	struct kvf_link_slot *slot;
	uint32_t n = 0;

	if (!d->untold)
		return false;
	for (slot = d->links; slot != NULL; slot = slot->next)
		for (; slot->unlinked != NULL && n < TELL_PER_ROUND; n++) {
			struct kvf_room *room = slot->unlinked;

			slot->unlinked = room->link_next;
			if (slot->refusal.code != 0)
				kvf_room_fail(d, room, NULL, slot->refusal.code, "%s",
					slot->refusal.text);
			else if (room->err.code == 0)
				linked(d, room);
		}
	d->untold = n == TELL_PER_ROUND;
	return n != 0;
}

void
kvf_link_invalidate(struct kvf_dispatcher *d, const struct kvf_ep_group *group)
{
	struct kvf_link_slot *slot, *next;

	for (slot = d->links; slot != NULL; slot = next) {
		next = slot->next;
		if (slot->stale || (slot->prefill != group && slot->decode != group))
			continue;
		if (slot->link == NULL && slot->refusal.code == 0) {
			/* Still waiting for control: it will build from the new membership. */
			continue;
		}
		retire(d, slot);
	}
}
