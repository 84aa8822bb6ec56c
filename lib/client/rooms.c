/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "client/rooms.h"

const char *
kvf_status_name(uint8_t status)
{
	static const char *const names[] = {
		"Failed", "Bootstrapping", "WaitingForInput", "Transferring", "Success"};

	return status < sizeof(names) / sizeof(names[0]) ? names[status] : "?";
}

int
kvf_rooms_init(struct kvf_rooms *rs, uint32_t max, struct kvf_err *err)
{
	uint64_t slots = 1, bytes;
	uint8_t *p;

	/* At most half full: probes stay short. `max` is bounded by KVF_MAX_ROOMS. */
	while (slots < 2 * (uint64_t)max)
		slots *= 2;
	bytes = max * (uint64_t)(sizeof(struct kvf_room) + sizeof(*rs->text)) +
		slots * sizeof(uint32_t);
	memset(rs, 0, sizeof(*rs));
	rs->mem = calloc(1, bytes);
	if (rs->mem == NULL)
		return kvf_fail(err, KVF_E_NOMEM,
			"no memory for max_rooms=%u: needed bytes=%" PRIu64, max, bytes);
	p = rs->mem;
	rs->room = (struct kvf_room *)(void *)p;
	p += max * sizeof(struct kvf_room);
	rs->slot = (uint32_t *)(void *)p;
	p += slots * sizeof(uint32_t);
	rs->text = (void *)p;
	rs->mask = (uint32_t)(slots - 1);
	rs->max = max;
	rs->free_first = KVF_ROOM_NONE;
	rs->dirty_first = KVF_ROOM_NONE;
	rs->dirty_last = KVF_ROOM_NONE;
	return 0;
}

void
kvf_rooms_fini(struct kvf_rooms *rs)
{
	free(rs->mem);
	rs->mem = NULL;
}

/* Room ids are often consecutive or multiples of something: every bit must count. */
static uint32_t
home(const struct kvf_rooms *rs, uint64_t id)
{
	id ^= id >> 30;
	id *= 0xbf58476d1ce4e5b9ull;
	id ^= id >> 27;
	id *= 0x94d049bb133111ebull;
	id ^= id >> 31;
	return (uint32_t)id & rs->mask;
}

/* The slot that holds `id`, or the empty one where it would go. */
static uint32_t
probe(const struct kvf_rooms *rs, uint64_t id)
{
	uint32_t s = home(rs, id);

	while (rs->slot[s] != 0 && rs->room[rs->slot[s] - 1].id != id)
		s = (s + 1) & rs->mask;
	return s;
}

struct kvf_room *
kvf_rooms_find(struct kvf_rooms *rs, uint64_t id)
{
	uint32_t s = probe(rs, id);

	return rs->slot[s] != 0 ? &rs->room[rs->slot[s] - 1] : NULL;
}

struct kvf_room *
kvf_rooms_add(struct kvf_rooms *rs, uint64_t id, uint64_t seq)
{
	struct kvf_room *r;
	uint32_t i;

	if (rs->free_first != KVF_ROOM_NONE) {
		i = rs->free_first;
		rs->free_first = rs->room[i].dirty_next;
	} else if (rs->fresh < rs->max) {
		i = rs->fresh++;
	} else {
		return NULL;
	}
	r = &rs->room[i];
	memset(r, 0, sizeof(*r));
	r->id = id;
	r->seq = seq;
	r->status = KVF_BOOTSTRAPPING;
	r->used = true;
	rs->slot[probe(rs, id)] = i + 1;
	rs->count++;
	return r;
}

/* Deletes without tombstones: later rooms of the same cluster move back over the hole. */
static void
unhash(struct kvf_rooms *rs, uint64_t id)
{
	uint32_t hole = probe(rs, id);
	uint32_t s = hole;

	for (;;) {
		uint32_t h;

		s = (s + 1) & rs->mask;
		if (rs->slot[s] == 0)
			break;
		h = home(rs, rs->room[rs->slot[s] - 1].id);
		/* It may move if its home does not lie in (hole, s]. */
		if (((s - h) & rs->mask) < ((s - hole) & rs->mask))
			continue;
		rs->slot[hole] = rs->slot[s];
		hole = s;
	}
	rs->slot[hole] = 0;
}

static void
unqueue(struct kvf_rooms *rs, struct kvf_room *r)
{
	if (r->dirty_prev != KVF_ROOM_NONE)
		rs->room[r->dirty_prev].dirty_next = r->dirty_next;
	else
		rs->dirty_first = r->dirty_next;
	if (r->dirty_next != KVF_ROOM_NONE)
		rs->room[r->dirty_next].dirty_prev = r->dirty_prev;
	else
		rs->dirty_last = r->dirty_prev;
	r->dirty = false;
}

void
kvf_rooms_remove(struct kvf_rooms *rs, struct kvf_room *r)
{
	unhash(rs, r->id);
	if (r->dirty)
		unqueue(rs, r);
	r->used = false;
	r->dirty_next = rs->free_first;
	rs->free_first = (uint32_t)(r - rs->room);
	rs->count--;
}

static void
mark(struct kvf_rooms *rs, struct kvf_room *r)
{
	uint32_t i = (uint32_t)(r - rs->room);

	if (r->dirty)
		return;
	r->dirty = true;
	r->dirty_prev = rs->dirty_last;
	r->dirty_next = KVF_ROOM_NONE;
	if (rs->dirty_last != KVF_ROOM_NONE)
		rs->room[rs->dirty_last].dirty_next = i;
	else
		rs->dirty_first = i;
	rs->dirty_last = i;
}

struct kvf_room *
kvf_rooms_pop(struct kvf_rooms *rs)
{
	struct kvf_room *r;

	if (rs->dirty_first == KVF_ROOM_NONE)
		return NULL;
	r = &rs->room[rs->dirty_first];
	unqueue(rs, r);
	return r;
}

const char *
kvf_rooms_text(const struct kvf_rooms *rs, const struct kvf_room *r)
{
	return rs->text[r - rs->room];
}

void
kvf_rooms_fail(struct kvf_rooms *rs, struct kvf_room *r, int code, const char *text)
{
	/* Success may have been acted upon already, and the first cause is the one that matters. */
	if (kvf_room_finished(r))
		return;
	r->status = KVF_FAILED;
	r->error = code;
	snprintf(rs->text[r - rs->room], sizeof(*rs->text), "%s", text);
	mark(rs, r);
}

void
kvf_rooms_update(struct kvf_rooms *rs, struct kvf_room *r, uint8_t status, uint64_t tokens)
{
	if (!kvf_room_finished(r) && status > r->status) {
		r->status = status;
		mark(rs, r);
	}
	if (tokens > r->tokens) {
		r->tokens = tokens;
		mark(rs, r);
	}
}

void
kvf_rooms_drain(struct kvf_rooms *rs, struct kvf_room *r)
{
	if (r->drained)
		return;
	r->drained = true;
	mark(rs, r);
}
