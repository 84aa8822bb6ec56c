/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "client/endpoint.h"

/* Sums of two positions, and positions as signed numbers, stay far from the edge. */
#define MAX_TOKENS (1ull << 62)
#define REASON_MAX 200u

/* Believes the engine's progress: entries and arena bytes before it are free again. */
static int
reclaim(struct kvf_endpoint *ep)
{
	uint32_t head = atomic_load_explicit(&ep->ring.hdr->sq_head, memory_order_acquire);
	uint32_t done = head - ep->sq_done;
	uint64_t end;

	if (ep->corrupt)
		return KVF_E_ENGINE_GONE;
	if (done == 0)
		return 0;
	if (done > ep->sq_tail - ep->sq_done) {
		kvf_ep_corrupt(ep, "submissions taken", done, ep->sq_tail - ep->sq_done);
		return KVF_E_ENGINE_GONE;
	}
	ep->sq_done = head;
	end = ep->sqe_arena_end[(head - 1) & (ep->ring.sq_entries - 1)];
	/* An entry without lists may have been placed before the empty arena was rewound. */
	if (end > ep->arena_tail)
		ep->arena_tail = end;
	return 0;
}

/* Room for one more entry? */
static int
sq_room(struct kvf_endpoint *ep, struct kvf_err *err)
{
	kvf_ep_check(ep, false);
	if (ep->state != KVF_EP_UP || reclaim(ep) != 0)
		return kvf_ep_gone(ep, err);
	if (ep->sq_tail - ep->sq_done >= ep->ring.sq_entries)
		return kvf_fail(err, KVF_E_AGAIN,
			"submission ring is full: waiting=%u, sq_entries=%u",
			ep->sq_tail - ep->sq_done, ep->ring.sq_entries);
	return 0;
}

/* Finds `bytes` contiguous bytes at or after position *pos; moves *pos past them. */
static uint64_t
place(const struct kvf_endpoint *ep, uint64_t *pos, uint64_t bytes)
{
	uint64_t mask = ep->ring.arena_bytes - 1;
	uint64_t off = *pos & mask;

	if (off + bytes > ep->ring.arena_bytes) {
		*pos += ep->ring.arena_bytes - off;
		off = 0;
	}
	*pos += bytes;
	return off;
}

/* An empty arena starts over at offset 0, so that anything that fits its size fits at once. */
static void
rewind_if_empty(struct kvf_endpoint *ep)
{
	uint64_t mask = ep->ring.arena_bytes - 1;

	if (ep->arena_tail != ep->arena_head)
		return;
	ep->arena_head = (ep->arena_head + mask) & ~mask;
	ep->arena_tail = ep->arena_head;
}

/* Few ids go into the entry itself. */
static uint64_t
in_arena(const struct kvf_pages *list)
{
	return list->count > KVF_SQ_IDS ? (uint64_t)list->count * sizeof(uint32_t) : 0;
}

static int
check_lists(const struct kvf_endpoint *ep, const struct kvf_pages *lists, uint32_t num,
	struct kvf_err *err)
{
	uint64_t needed = 0;
	uint32_t seen = 0;
	uint32_t i;

	if (num > KVF_MAX_LISTS)
		return kvf_fail(err, KVF_E_QUOTA, "num_lists=%u, limit=%u", num, KVF_MAX_LISTS);
	if (num > 0 && lists == NULL)
		return kvf_fail(err, KVF_E_INVAL, "num_lists=%u without an array", num);
	for (i = 0; i < num; i++) {
		if (lists[i].list >= KVF_MAX_LISTS)
			return kvf_fail(err, KVF_E_INVAL, "list=%u must be below limit=%u",
				lists[i].list, KVF_MAX_LISTS);
		if ((seen & (1u << lists[i].list)) != 0)
			return kvf_fail(err, KVF_E_INVAL, "list=%u is given twice", lists[i].list);
		seen |= 1u << lists[i].list;
		if (lists[i].count > 0 && lists[i].ids == NULL)
			return kvf_fail(err, KVF_E_INVAL, "list=%u: count=%u without ids",
				lists[i].list, lists[i].count);
		needed += in_arena(&lists[i]);
	}
	if (needed > ep->ring.arena_bytes)
		return kvf_fail(err, KVF_E_QUOTA,
			"the page lists can never fit: needed=%" PRIu64 ", arena=%" PRIu64, needed,
			ep->ring.arena_bytes);
	return 0;
}

/* Copies the lists into the arena; all of them or none. The ring has room already. */
static int
put_lists(struct kvf_endpoint *ep, struct kvf_sqe *sqe, const struct kvf_pages *lists, uint32_t num,
	struct kvf_err *err)
{
	uint64_t pos;
	uint32_t i;

	rewind_if_empty(ep);
	pos = ep->arena_head;
	for (i = 0; i < num; i++) {
		uint64_t bytes = in_arena(&lists[i]);

		sqe->lists[i].list = lists[i].list;
		sqe->lists[i].count = lists[i].count;
		if (bytes > 0)
			sqe->lists[i].arena_off = place(ep, &pos, bytes);
	}
	if (pos - ep->arena_tail > ep->ring.arena_bytes)
		return kvf_fail(err, KVF_E_AGAIN,
			"arena is full: needed=%" PRIu64 ", waiting=%" PRIu64 ", arena=%" PRIu64,
			pos - ep->arena_head, ep->arena_head - ep->arena_tail,
			ep->ring.arena_bytes);
	for (i = 0; i < num; i++)
		if (lists[i].count > 0)
			memcpy(in_arena(&lists[i]) > 0
					? (void *)(ep->ring.arena + sqe->lists[i].arena_off)
					: sqe->lists[i].ids,
				lists[i].ids, (size_t)lists[i].count * sizeof(uint32_t));
	sqe->num_lists = (uint8_t)num;
	ep->arena_head = pos;
	return 0;
}

void
kvf_ep_ring(struct kvf_endpoint *ep)
{
	const uint64_t one = 1;
	ssize_t n;

	if (atomic_load_explicit(&ep->ring.hdr->engine_sleeping, memory_order_relaxed) == 0)
		return;
	/* A full counter (EAGAIN) wakes just as well; an engine that died is noticed on the
	 * socket. */
	do
		n = write(ep->doorbell_fd, &one, sizeof(one));
	while (n < 0 && errno == EINTR);
}

static void
publish(struct kvf_endpoint *ep, const struct kvf_sqe *sqe)
{
	struct kvf_ring *hdr = ep->ring.hdr;
	const uint8_t *next;
	uint32_t slot = ep->sq_tail & (ep->ring.sq_entries - 1);

	memcpy(&ep->ring.sq[slot], sqe,
		offsetof(struct kvf_sqe, lists) + sqe->num_lists * sizeof(sqe->lists[0]));
	ep->sqe_arena_end[slot] = ep->arena_head;
	ep->sq_tail++;
	atomic_store_explicit(&hdr->sq_tail, ep->sq_tail, memory_order_release);
	/* What the next posting writes first; the engine read these lines a round of the ring ago.
	 */
	next = (const uint8_t *)&ep->ring.sq[ep->sq_tail & (ep->ring.sq_entries - 1)];
	kvf_prefetch_write(next);
	kvf_prefetch_write(next + KVF_CACHE_LINE);
	kvf_ring_fence();
	kvf_ep_ring(ep);
}

static int
check_tokens(const char *name, uint64_t value, struct kvf_err *err)
{
	if (value > MAX_TOKENS)
		return kvf_fail(
			err, KVF_E_OVERFLOW, "%s=%" PRIu64 ", limit=%llu", name, value, MAX_TOKENS);
	return 0;
}

static int
check_flags(uint32_t flags, uint32_t reserved, struct kvf_err *err)
{
	if ((flags & ~KVF_ROOM_VERIFY) != 0 || reserved != 0)
		return kvf_fail(err, KVF_E_INVAL,
			"flags=%#x, known flags=%#x; reserved=%u must be 0", flags, KVF_ROOM_VERIFY,
			reserved);
	return 0;
}

static int
table_full(const struct kvf_endpoint *ep, struct kvf_err *err)
{
	return kvf_fail(err, KVF_E_QUOTA, "rooms=%u are held, max_rooms=%u: release some first",
		ep->rooms.count, ep->rooms.max);
}

static int
check_recv(const struct kvf_endpoint *ep, const struct kvf_recv_args *args, struct kvf_err *err)
{
	int rc;

	if (ep == NULL || args == NULL)
		return kvf_fail(err, KVF_E_INVAL, "kvf_recv: ep or args is NULL");
	if (ep->role != KVF_DECODE)
		return kvf_fail(err, KVF_E_INVAL, "kvf_recv on a prefill endpoint, room=%" PRIu64,
			args->room);
	rc = check_flags(args->flags, args->reserved, err);
	if (rc == 0)
		rc = check_tokens("prefix_tokens", args->prefix_tokens, err);
	if (rc == 0)
		rc = check_tokens("total_tokens", args->total_tokens, err);
	if (rc != 0)
		return rc;
	if (args->prefix_tokens > args->total_tokens)
		return kvf_fail(err, KVF_E_INVAL,
			"room=%" PRIu64 ": prefix_tokens=%" PRIu64 " is past total_tokens=%" PRIu64,
			args->room, args->prefix_tokens, args->total_tokens);
	if (args->prefill_group != NULL && strlen(args->prefill_group) >= KVF_GROUP_NAME_MAX)
		return kvf_fail(err, KVF_E_INVAL, "prefill_group name length=%zu, limit=%u",
			strlen(args->prefill_group), KVF_GROUP_NAME_MAX - 1);
	return check_lists(ep, args->lists, args->num_lists, err);
}

int
kvf_recv(struct kvf_endpoint *ep, const struct kvf_recv_args *args, struct kvf_err *err)
{
	struct kvf_sqe sqe = {.op = KVF_OP_RECV};
	struct kvf_room *r;
	int rc;

	rc = check_recv(ep, args, err);
	if (rc == 0)
		rc = sq_room(ep, err);
	if (rc != 0)
		return rc;
	r = kvf_rooms_find(&ep->rooms, args->room);
	if (r != NULL)
		return kvf_fail(err, KVF_E_EXIST,
			"room=%" PRIu64 " was posted before and not released, state=%s", r->id,
			kvf_status_name(r->status));
	if (ep->rooms.count == ep->rooms.max)
		return table_full(ep, err);
	sqe.room = args->room;
	sqe.seq = ep->last_seq + 1;
	sqe.key = args->key;
	sqe.flags = (uint16_t)args->flags;
	sqe.start = args->prefix_tokens;
	sqe.total = args->total_tokens;
	sqe.bootstrap_timeout_ms = args->bootstrap_timeout_ms != 0 ? args->bootstrap_timeout_ms
								   : ep->bootstrap_timeout_ms;
	sqe.waiting_timeout_ms =
		args->waiting_timeout_ms != 0 ? args->waiting_timeout_ms : ep->waiting_timeout_ms;
	if (args->prefill_group != NULL)
		memcpy(sqe.group, args->prefill_group, strlen(args->prefill_group));
	rc = put_lists(ep, &sqe, args->lists, args->num_lists, err);
	if (rc != 0)
		return rc;
	ep->last_seq = sqe.seq;
	r = kvf_rooms_add(&ep->rooms, args->room, sqe.seq);
	r->key = args->key;
	r->total = args->total_tokens;
	publish(ep, &sqe);
	return 0;
}

static int
check_send(const struct kvf_endpoint *ep, const struct kvf_send_args *args, struct kvf_err *err)
{
	int rc;

	if (ep == NULL || args == NULL)
		return kvf_fail(err, KVF_E_INVAL, "kvf_send: ep or args is NULL");
	if (ep->role != KVF_PREFILL)
		return kvf_fail(err, KVF_E_INVAL, "kvf_send on a decode endpoint, room=%" PRIu64,
			args->room);
	rc = check_flags(args->flags, args->reserved, err);
	if (rc == 0)
		rc = check_tokens("start_token", args->start_token, err);
	if (rc == 0)
		rc = check_tokens("num_tokens", args->num_tokens, err);
	if (rc == 0)
		rc = check_tokens("total_tokens", args->total_tokens, err);
	if (rc != 0)
		return rc;
	if (args->start_token + args->num_tokens > args->total_tokens)
		return kvf_fail(err, KVF_E_INVAL,
			"room=%" PRIu64 ": start_token=%" PRIu64 " + num_tokens=%" PRIu64
			" is past total_tokens=%" PRIu64,
			args->room, args->start_token, args->num_tokens, args->total_tokens);
	return check_lists(ep, args->lists, args->num_lists, err);
}

/* May this chunk follow what was posted for its room? */
static int
check_order(const struct kvf_endpoint *ep, const struct kvf_room *r,
	const struct kvf_send_args *args, struct kvf_err *err)
{
	if (r->status == KVF_FAILED)
		return kvf_fail(err, KVF_E_EXIST, "room=%" PRIu64 " already failed (%s): %s", r->id,
			kvf_error_name(r->error), kvf_rooms_text(&ep->rooms, r));
	if (r->status == KVF_SUCCESS)
		return kvf_fail(err, KVF_E_EXIST,
			"room=%" PRIu64 " already finished, state=Success, total_tokens=%" PRIu64,
			r->id, r->total);
	if (r->aborted)
		return kvf_fail(err, KVF_E_EXIST, "room=%" PRIu64 " was aborted here, state=%s",
			r->id, kvf_status_name(r->status));
	if (r->total != args->total_tokens)
		return kvf_fail(err, KVF_E_ORDER,
			"room=%" PRIu64 ": total_tokens of a later chunk, expected=%" PRIu64
			", got=%" PRIu64,
			r->id, r->total, args->total_tokens);
	if (r->key != args->key)
		return kvf_fail(err, KVF_E_ORDER,
			"room=%" PRIu64 ": key of a later chunk, expected=0x%" PRIx64
			", got=0x%" PRIx64,
			r->id, r->key, args->key);
	if (r->final)
		return kvf_fail(err, KVF_E_ORDER,
			"room=%" PRIu64 ": the final chunk was posted, expected=none after "
			"total_tokens=%" PRIu64 ", got=%" PRIu64,
			r->id, r->total, args->start_token);
	if (r->next != args->start_token)
		return kvf_fail(err, KVF_E_ORDER,
			"room=%" PRIu64 ": start_token of the next chunk, expected=%" PRIu64
			", got=%" PRIu64,
			r->id, r->next, args->start_token);
	return 0;
}

int
kvf_send(struct kvf_endpoint *ep, const struct kvf_send_args *args, struct kvf_err *err)
{
	struct kvf_sqe sqe = {.op = KVF_OP_SEND};
	struct kvf_room *r;
	int rc;

	rc = check_send(ep, args, err);
	if (rc == 0)
		rc = sq_room(ep, err);
	if (rc != 0)
		return rc;
	r = kvf_rooms_find(&ep->rooms, args->room);
	if (r != NULL)
		rc = check_order(ep, r, args, err);
	else if (ep->rooms.count == ep->rooms.max)
		rc = table_full(ep, err);
	if (rc != 0)
		return rc;
	sqe.room = args->room;
	sqe.seq = r != NULL ? r->seq : ep->last_seq + 1;
	sqe.key = args->key;
	sqe.flags = (uint16_t)args->flags;
	sqe.start = args->start_token;
	sqe.tokens = args->num_tokens;
	sqe.total = args->total_tokens;
	sqe.bootstrap_timeout_ms = args->bootstrap_timeout_ms != 0 ? args->bootstrap_timeout_ms
								   : ep->bootstrap_timeout_ms;
	sqe.waiting_timeout_ms =
		args->waiting_timeout_ms != 0 ? args->waiting_timeout_ms : ep->waiting_timeout_ms;
	rc = put_lists(ep, &sqe, args->lists, args->num_lists, err);
	if (rc != 0)
		return rc;
	if (r == NULL) {
		ep->last_seq = sqe.seq;
		r = kvf_rooms_add(&ep->rooms, args->room, sqe.seq);
		r->key = args->key;
		r->total = args->total_tokens;
	}
	r->next = args->start_token + args->num_tokens;
	r->final = r->next == r->total;
	publish(ep, &sqe);
	return 0;
}

/* An abort matters more than its reason: a full arena drops the reason, not the abort. */
static void
put_reason(struct kvf_endpoint *ep, struct kvf_sqe *sqe, const char *reason)
{
	uint64_t len = reason != NULL ? strnlen(reason, REASON_MAX) : 0;
	uint64_t bytes = (len + 3) & ~3ull;
	uint64_t pos, off;

	if (len == 0)
		return;
	rewind_if_empty(ep);
	pos = ep->arena_head;
	if (bytes > ep->ring.arena_bytes)
		return;
	off = place(ep, &pos, bytes);
	if (pos - ep->arena_tail > ep->ring.arena_bytes)
		return;
	memcpy(ep->ring.arena + off, reason, len);
	sqe->num_lists = 1;
	sqe->lists[0].count = (uint32_t)len;
	sqe->lists[0].arena_off = off;
	ep->arena_head = pos;
}

static int
no_room(uint64_t room, struct kvf_err *err)
{
	return kvf_fail(err, KVF_E_NOENT, "room=%" PRIu64 " is not held here", room);
}

int
kvf_abort(struct kvf_endpoint *ep, uint64_t room, const char *reason, struct kvf_err *err)
{
	struct kvf_sqe sqe = {.op = KVF_OP_ABORT, .code = KVF_E_ABORTED, .room = room};
	struct kvf_room *r;
	int rc;

	if (ep == NULL)
		return kvf_fail(err, KVF_E_INVAL, "kvf_abort: ep is NULL");
	kvf_ep_reap(ep);
	r = kvf_rooms_find(&ep->rooms, room);
	if (r == NULL)
		return no_room(room, err);
	if (kvf_room_finished(r) || r->aborted)
		return 0;
	rc = sq_room(ep, err);
	if (rc != 0)
		return rc;
	sqe.seq = r->seq;
	put_reason(ep, &sqe, reason);
	r->aborted = true;
	publish(ep, &sqe);
	return 0;
}

int
kvf_room_release(struct kvf_endpoint *ep, uint64_t room, struct kvf_err *err)
{
	struct kvf_sqe sqe = {.op = KVF_OP_RELEASE, .room = room};
	struct kvf_room *r;

	if (ep == NULL)
		return kvf_fail(err, KVF_E_INVAL, "kvf_room_release: ep is NULL");
	kvf_ep_reap(ep);
	kvf_ep_check(ep, false);
	r = kvf_rooms_find(&ep->rooms, room);
	if (r == NULL)
		return no_room(room, err);
	if (!kvf_room_finished(r) || !r->drained)
		return kvf_fail(err, KVF_E_BUSY,
			"room=%" PRIu64 " cannot be released yet: state=%s, drained=%d", room,
			kvf_status_name(r->status), r->drained);
	/* Nobody is left to tell once the engine is lost; another one never heard of the room. */
	if (ep->state == KVF_EP_UP && r->seq > ep->seq_base) {
		int rc = sq_room(ep, err);

		if (rc != 0 && rc != KVF_E_ENGINE_GONE)
			return rc;
		if (rc == 0) {
			sqe.seq = r->seq;
			publish(ep, &sqe);
		}
	}
	kvf_rooms_remove(&ep->rooms, r);
	return 0;
}
