/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rooms that are over, kept for those who are late.
 *
 * Members of a group do not post at the same time, and a room may be over, and released by all who
 * took part, before the last one posts. Where that one cannot mean anything else it is told how the
 * room ended, instead of waiting alone in a new room: where the two groups do not fit, which is so
 * for every room of theirs; and where the room succeeded, because the late sender has no bytes for
 * it. Anything else may be the id's next use, which a room of the past must not touch.
 */
#include "engine/internal.h"

#define LINGER_MS    2000
#define LINGER_ROOMS 1024u /* at most: the oldest goes first */

void
kvf_linger_end(struct kvf_dispatcher *d, struct kvf_room *room)
{
	if (room->linger_prev != NULL)
		room->linger_prev->linger_next = room->linger_next;
	else
		d->linger_head = room->linger_next;
	if (room->linger_next != NULL)
		room->linger_next->linger_prev = room->linger_prev;
	else
		d->linger_tail = room->linger_prev;
	room->linger_next = room->linger_prev = NULL;
	room->lingering = false;
	d->num_lingering--;
	kvf_count_room(d, 1);
}

static bool
side_awaited(const struct kvf_ep_group *g, struct kvf_part *const *parts)
{
	uint32_t i;

	for (i = 0; i < g->size; i++)
		if (parts[i] == NULL && g->live[i] != NULL)
			return true;
	return false;
}

/* Does what ended the room hold for whoever of its groups comes now? */
static bool
still_true(const struct kvf_dispatcher *d, const struct kvf_room *room)
{
	if (room->prefill == NULL || room->decode == NULL)
		return false;
	if (room->err.code != 0)
		return kvf_link_refused(d, room->prefill, room->decode);
	return room->link != NULL && room->link->link != NULL && !room->link->stale;
}

bool
kvf_linger_joinable(const struct kvf_dispatcher *d, const struct kvf_room *room, uint64_t total)
{
	return still_true(d, room) && (room->err.code != 0 || room->total == total);
}

void
kvf_room_over(struct kvf_dispatcher *d, struct kvf_room *room)
{
	struct kvf_room *r, *next;
	uint32_t i;

	if (!still_true(d, room) || (!side_awaited(room->prefill, room->send_parts) &&
					    !side_awaited(room->decode, room->recv_parts))) {
		kvf_room_free(d, room);
		return;
	}
	/* One of an id is enough, or its chain would grow. */
	for (r = *kvf_room_bucket(d, room->id); r != NULL; r = next) {
		next = r->hash_next;
		if (r->lingering && r->id == room->id)
			kvf_room_free(d, r);
	}
	if (d->num_lingering == LINGER_ROOMS)
		kvf_room_free(d, d->linger_head);
	for (i = 0; room->send_parts != NULL && i < room->prefill->size; i++)
		if (room->send_parts[i] != NULL)
			kvf_legs_free(d, room->send_parts[i]);
	for (i = 0; room->recv_parts != NULL && i < room->decode->size; i++)
		if (room->recv_parts[i] != NULL)
			room->recv_parts[i]->legs = NULL;
	room->lingering = true;
	room->linger_until = d->now + d->hz / 1000 * LINGER_MS;
	room->linger_prev = d->linger_tail;
	if (d->linger_tail != NULL)
		d->linger_tail->linger_next = room;
	else
		d->linger_head = room;
	d->linger_tail = room;
	d->num_lingering++;
	kvf_count_room(d, -1);
}

void
kvf_rooms_expire(struct kvf_dispatcher *d)
{
	while (d->linger_head != NULL && d->now >= d->linger_head->linger_until)
		kvf_room_free(d, d->linger_head);
}

void
kvf_linger_end_all(struct kvf_dispatcher *d, const struct kvf_ep_group *group)
{
	struct kvf_room *r, *next;
	uint32_t i;

	for (i = 0; i < group->size; i++)
		if (group->live[i] != NULL)
			return;
	for (r = d->linger_head; r != NULL; r = next) {
		next = r->linger_next;
		if (r->prefill == group || r->decode == group)
			kvf_room_free(d, r);
	}
}
