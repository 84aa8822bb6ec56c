/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading postings out of a client's ring. The client can change everything at any time, so an
 * entry is copied first and checked in the copy, and each page id is loaded exactly once. Lists are
 * long (a million ids), so reading stops after a bounded number and goes on in the next round.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "engine/internal.h"

#define POSTINGS_PER_ROUND 16
#define IDS_PER_ROUND      8192
#define GRANTING_SEARCH    1024

#define MAX_TOKENS (UINT64_C(1) << 62)
#define MAX_REASON 200

void
kvf_lists_free(struct kvf_dispatcher *d, struct kvf_ep *ep, struct kvf_lists *lists)
{
	uint32_t l;

	for (l = 0; l < KVF_MAX_LISTS; l++) {
		uint64_t bytes = (uint64_t)lists->capacity[l] * sizeof(uint32_t);

		if (lists->ids[l] == NULL)
			continue;
		kvf_slab_free(&d->slab, lists->ids[l], bytes);
		if (ep != NULL)
			ep->request_bytes -= bytes;
	}
	memset(lists, 0, sizeof(*lists));
}

static bool
arena_range_ok(const struct kvf_ep *ep, uint64_t off, uint64_t bytes)
{
	return off <= ep->ring.arena_bytes && bytes <= ep->ring.arena_bytes - off;
}

/* The checks that make a posting readable at all, then memory for its lists. */
static int
start_lists(struct kvf_dispatcher *d, struct kvf_ep *ep, struct kvf_intake *in)
{
	const struct kvf_sqe *sqe = &in->sqe;
	uint64_t limit = d->engine->cfg.max_request_bytes;
	uint32_t seen = 0, i;

	if (sqe->start > MAX_TOKENS || sqe->tokens > MAX_TOKENS || sqe->total > MAX_TOKENS)
		return kvf_fail(&in->err, KVF_E_OVERFLOW,
			"start=%" PRIu64 " tokens=%" PRIu64 " total=%" PRIu64 " limit=%" PRIu64,
			sqe->start, sqe->tokens, sqe->total, MAX_TOKENS);
	if (sqe->op == KVF_OP_RECV && sqe->start > sqe->total)
		return kvf_fail(&in->err, KVF_E_INVAL,
			"prefix_tokens=%" PRIu64 " must not exceed total_tokens=%" PRIu64,
			sqe->start, sqe->total);
	if (sqe->op == KVF_OP_SEND && sqe->start + sqe->tokens > sqe->total)
		return kvf_fail(&in->err, KVF_E_INVAL,
			"start_token=%" PRIu64 " + num_tokens=%" PRIu64
			" must not exceed total_tokens=%" PRIu64,
			sqe->start, sqe->tokens, sqe->total);
	for (i = 0; i < sqe->num_lists; i++) {
		const struct kvf_sq_list *l = &sqe->lists[i];
		uint64_t bytes = (uint64_t)l->count * sizeof(uint32_t);

		if (l->list >= KVF_MAX_LISTS || (seen & (1u << l->list)) != 0)
			return kvf_fail(&in->err, KVF_E_INVAL,
				"list=%u stands twice or is not below limit=%u", l->list,
				KVF_MAX_LISTS);
		seen |= 1u << l->list;
		if (l->count == 0)
			continue;
		if (ep->list_limit[l->list] == 0)
			return kvf_fail(&in->err, KVF_E_INVAL,
				"list=%u has count=%u ids, but no component of %s uses it", l->list,
				l->count, ep->name);
		if (l->count > KVF_SQ_IDS && (l->arena_off % sizeof(uint32_t) != 0 ||
						     !arena_range_ok(ep, l->arena_off, bytes)))
			return kvf_fail(&in->err, KVF_E_PROTO,
				"list=%u arena_off=%" PRIu64 " count=%u is outside arena=%" PRIu64,
				l->list, l->arena_off, l->count, ep->ring.arena_bytes);
		if (bytes > limit - ep->request_bytes)
			return kvf_fail(&in->err, KVF_E_QUOTA,
				"index lists of %s need %" PRIu64 " bytes, in use=%" PRIu64
				" limit=%" PRIu64,
				ep->name, bytes, ep->request_bytes, limit);
		in->lists.ids[l->list] = kvf_slab_alloc(&d->slab, bytes);
		if (in->lists.ids[l->list] == NULL)
			return kvf_fail(&in->err, KVF_E_NOMEM,
				"no memory for an index list of %" PRIu64 " bytes", bytes);
		in->lists.capacity[l->list] = l->count;
		ep->request_bytes += bytes;
	}
	return 0;
}

/* Only looked for among the latest rooms: a client may have very many, and ask for this each time.
 */
static void
refuse_granted(
	const struct kvf_ep *ep, struct kvf_err *err, uint32_t id, uint32_t list, uint32_t tag)
{
	const struct kvf_part *p;
	uint32_t n = 0;

	for (p = ep->parts; p != NULL && n < GRANTING_SEARCH; p = p->ep_next, n++)
		if (kvf_grant_tag(p->seq) == tag) {
			kvf_fail(err, KVF_E_DUP_PAGE,
				"page=%u of list=%u is still granted to room=%" PRIu64, id, list,
				p->room->id);
			return;
		}
	kvf_fail(err, KVF_E_DUP_PAGE, "page=%u of list=%u is still granted to an older room", id,
		list);
}

/* Copies and checks up to *budget ids. True when all lists are read or one was refused. */
static bool
read_ids(struct kvf_ep *ep, struct kvf_intake *in, uint32_t *budget)
{
	const struct kvf_sqe *sqe = &in->sqe;
	uint32_t tag = kvf_grant_tag(sqe->seq);

	while (in->err.code == 0 && in->list < sqe->num_lists) {
		const struct kvf_sq_list *l = &sqe->lists[in->list];
		const volatile uint32_t *from =
			l->count <= KVF_SQ_IDS
				? l->ids /* of our copy */
				: (const volatile uint32_t *)(ep->ring.arena + l->arena_off);
		uint32_t limit = ep->list_limit[l->list];
		uint32_t *to = in->lists.ids[l->list];
		uint32_t *grants = sqe->op == KVF_OP_RECV ? ep->grants[l->list] : NULL;
		uint32_t pos = in->lists.count[l->list];
		uint32_t end = l->count - pos < *budget ? l->count : pos + *budget;

		*budget -= end - pos;
		for (; pos < end; pos++) {
			uint32_t id = from[pos]; /* the one read of a client-writable value */

			if (id >= limit) {
				kvf_fail(&in->err, KVF_E_PAGE,
					"page=%u at index=%u of list=%u is outside the pool, "
					"limit=%u",
					id, pos, l->list, limit);
				break;
			}
			if (grants != NULL) {
				if (grants[id] == tag) {
					kvf_fail(&in->err, KVF_E_DUP_PAGE,
						"page=%u stands twice in list=%u, again at "
						"index=%u",
						id, l->list, pos);
					break;
				}
				if (grants[id] != 0) {
					refuse_granted(ep, &in->err, id, l->list, grants[id]);
					break;
				}
				grants[id] = tag;
			}
			to[pos] = id;
		}
		in->lists.count[l->list] = pos;
		if (in->err.code != 0)
			return true;
		if (pos < l->count)
			return false;
		in->list++;
	}
	return true;
}

static void
read_reason(const struct kvf_ep *ep, const struct kvf_sqe *sqe, char *reason, size_t cap)
{
	uint32_t n = sqe->lists[0].count, i;

	reason[0] = '\0';
	if (sqe->num_lists == 0 || n > MAX_REASON || n >= cap ||
		!arena_range_ok(ep, sqe->lists[0].arena_off, n))
		return;
	for (i = 0; i < n; i++) {
		uint8_t c =
			*(const volatile uint8_t *)(ep->ring.arena + sqe->lists[0].arena_off + i);

		/* It goes into logs and terminals. */
		reason[i] = c >= 0x20 && c != 0x7f ? (char)c : '?';
	}
	reason[n] = '\0';
}

static void
finish(struct kvf_dispatcher *d, struct kvf_ep *ep, struct kvf_intake *in)
{
	char reason[MAX_REASON + 1];

	switch (in->sqe.op) {
	case KVF_OP_RECV:
	case KVF_OP_SEND:
		kvf_room_post(d, ep, in);
		break;
	case KVF_OP_ABORT:
		read_reason(ep, &in->sqe, reason, sizeof(reason));
		kvf_room_abort(d, ep, in, reason);
		break;
	default:
		kvf_room_release_posted(d, ep, in);
		break;
	}
}

/* Copies the entry at sq_head; false when it was so wrong that the endpoint is dropped. */
static bool
take_entry(struct kvf_dispatcher *d, struct kvf_ep *ep, struct kvf_intake *in)
{
	const struct kvf_sqe *from = &ep->ring.sq[ep->sq_head & (ep->ring.sq_entries - 1)];
	struct kvf_err why;
	uint32_t op, want;

	in->list = 0;
	in->err.code = 0;
	memset(&in->lists, 0, sizeof(in->lists));
	/* What the entry says that it uses, as the copy says. */
	memcpy(&in->sqe, from, offsetof(struct kvf_sqe, lists));
	if (in->sqe.num_lists <= KVF_MAX_LISTS)
		memcpy(in->sqe.lists, from->lists, in->sqe.num_lists * sizeof(from->lists[0]));
	op = in->sqe.op;
	want = ep->role == KVF_DECODE ? KVF_OP_RECV : KVF_OP_SEND;
	if ((op != want && op != KVF_OP_ABORT && op != KVF_OP_RELEASE) ||
		in->sqe.num_lists > KVF_MAX_LISTS) {
		kvf_fail(&why, KVF_E_PROTO, "%s posted op=%u num_lists=%u, which is not possible",
			ep->name, op, in->sqe.num_lists);
		kvf_ep_fault(d, ep, &why);
		return false;
	}
	in->sqe.group[KVF_GROUP_NAME_MAX - 1] = '\0';
	in->active = true;
	kvf_count(&d->totals.postings, 1);
	if (op == want)
		start_lists(d, ep, in);
	return true;
}

bool
kvf_intake_poll(struct kvf_dispatcher *d, struct kvf_ep *ep)
{
	struct kvf_intake *in = &ep->intake;
	uint32_t budget = IDS_PER_ROUND, n, tail;
	bool worked = false;

	for (n = 0; n < POSTINGS_PER_ROUND && !ep->faulted; n++) {
		if (!in->active) {
			/* acquire: partner of the client's release after entry and arena */
			tail = ep->dying ? ep->sq_end
					 : atomic_load_explicit(
						   &ep->ring.hdr->sq_tail, memory_order_acquire);
			if (tail == ep->sq_head)
				break;
			if (tail - ep->sq_head > ep->ring.sq_entries) {
				struct kvf_err why;

				kvf_fail(&why, KVF_E_PROTO,
					"%s moved sq_tail to %u, sq_head=%u entries=%u", ep->name,
					tail, ep->sq_head, ep->ring.sq_entries);
				kvf_ep_fault(d, ep, &why);
				break;
			}
			if (!take_entry(d, ep, in))
				break;
		}
		worked = true;
		if ((in->sqe.op == KVF_OP_RECV || in->sqe.op == KVF_OP_SEND) && in->err.code == 0 &&
			!read_ids(ep, in, &budget))
			break;
		in->active = false;
		ep->sq_head++;
		finish(d, ep, in);
		/* release: entry and arena are copied, the client may write there again */
		atomic_store_explicit(&ep->ring.hdr->sq_head, ep->sq_head, memory_order_release);
	}
	return worked;
}

void
kvf_intake_drop(struct kvf_dispatcher *d, struct kvf_ep *ep)
{
	if (!ep->intake.active)
		return;
	kvf_lists_free(d, ep, &ep->intake.lists);
	ep->intake.active = false;
}
