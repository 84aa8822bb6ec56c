/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What one endpoint knows about its rooms. Fixed capacity, one allocation, and no page of it is
 * touched before it is needed. Changed rooms form a queue, so that a poll gives one event per
 * changed room however many completions changed it.
 */
#ifndef KVF_CLIENT_ROOMS_H
#define KVF_CLIENT_ROOMS_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/client.h>

#define KVF_ROOM_NONE UINT32_MAX

struct kvf_room {
	uint64_t id;
	uint64_t seq; /* which use of the id; completions of another one are stale */
	uint64_t key;
	uint64_t total;
	uint64_t next; /* prefill: where the next chunk must start */
	uint64_t tokens;
	uint32_t dirty_prev;
	uint32_t dirty_next; /* also links free rooms */
	int error;
	uint8_t status; /* enum kvf_status */
	bool used;
	bool drained;
	bool clipped;
	bool dirty;
	bool final;   /* prefill: the chunk that ends at total was posted */
	bool aborted; /* kvf_abort() was posted */
};

struct kvf_rooms {
	void *mem;
	struct kvf_room *room;
	char (*text)[sizeof(((struct kvf_err *)0)->text)]; /* of failed rooms */
	uint32_t *slot; /* hash: index of the room + 1, 0 empty */
	uint32_t mask;
	uint32_t max;
	uint32_t count;
	uint32_t fresh; /* rooms from here on were never used */
	uint32_t free_first;
	uint32_t dirty_first;
	uint32_t dirty_last;
};

int kvf_rooms_init(struct kvf_rooms *rs, uint32_t max, struct kvf_err *err);
void kvf_rooms_fini(struct kvf_rooms *rs);

struct kvf_room *kvf_rooms_find(struct kvf_rooms *rs, uint64_t id);
/* The id must not be there. NULL when max rooms are held. */
struct kvf_room *kvf_rooms_add(struct kvf_rooms *rs, uint64_t id, uint64_t seq);
void kvf_rooms_remove(struct kvf_rooms *rs, struct kvf_room *r);

const char *kvf_rooms_text(const struct kvf_rooms *rs, const struct kvf_room *r);
static inline bool
kvf_room_finished(const struct kvf_room *r)
{
	return r->status == KVF_FAILED || r->status == KVF_SUCCESS;
}

/* Each marks the room dirty if it changed anything. */
void kvf_rooms_fail(struct kvf_rooms *rs, struct kvf_room *r, int code, const char *text);
void kvf_rooms_update(struct kvf_rooms *rs, struct kvf_room *r, uint8_t status, uint64_t tokens);
void kvf_rooms_drain(struct kvf_rooms *rs, struct kvf_room *r);

/* Takes the oldest changed room off the queue; NULL: none changed. */
struct kvf_room *kvf_rooms_pop(struct kvf_rooms *rs);

static inline bool
kvf_rooms_changed(const struct kvf_rooms *rs)
{
	return rs->dirty_first != KVF_ROOM_NONE;
}

const char *kvf_status_name(uint8_t status);

#endif
