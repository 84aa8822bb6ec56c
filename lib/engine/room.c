/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rooms and who takes part in them.
 *
 * A room is made by the first posting and lives until every endpoint that took part has released
 * it. A posting joins the oldest room of its id (and key, and groups) in which its endpoint has not
 * taken part yet, so an id can be used again by one side while the other still holds the last use.
 *
 * A part is an endpoint's use of a room. It ends as Success or Failed; when no copy touches its
 * pages any more and its grants are given back, it is drained. The first failure fails every part
 * that has not ended yet.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/internal.h"

#define SWEEP_PER_ROUND 16384
#define REAP_PER_ROUND  1024
#define MAX_CHUNKS      131072u /* of one endpoint */

static uint64_t
mix(uint64_t x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	x ^= x >> 32;
	return x;
}

struct kvf_room **
kvf_room_bucket(struct kvf_dispatcher *d, uint64_t id)
{
	return &d->buckets[mix(mix(id ^ d->hash_seed) + d->hash_seed) % KVF_ROOM_BUCKETS];
}

/* The endpoint's part in its use `seq` of the room; seq 0: in any use that it still holds. */
static struct kvf_part *
part_find(struct kvf_dispatcher *d, const struct kvf_ep *ep, uint64_t id, uint64_t seq)
{
	struct kvf_room *r;

	for (r = *kvf_room_bucket(d, id); r != NULL; r = r->hash_next) {
		struct kvf_part **parts = ep->role == KVF_PREFILL ? r->send_parts : r->recv_parts;
		const struct kvf_ep_group *g = ep->role == KVF_PREFILL ? r->prefill : r->decode;
		struct kvf_part *p;

		if (r->id != id || parts == NULL || g != ep->group)
			continue;
		p = parts[ep->rank];
		if (p != NULL && p->ep == ep && (seq == 0 || p->seq == seq) && !p->released)
			return p;
	}
	return NULL;
}

static bool
joinable(const struct kvf_dispatcher *d, const struct kvf_room *r, const struct kvf_ep *ep,
	const struct kvf_sqe *sqe)
{
	if (r->id != sqe->room || r->key != sqe->key)
		return false;
	if (r->lingering && !kvf_linger_joinable(d, r, sqe->total))
		return false;
	if (ep->role == KVF_PREFILL) {
		if (r->prefill != NULL)
			return r->prefill == ep->group && r->send_parts[ep->rank] == NULL;
		return r->prefill_name[0] == '\0' || strcmp(r->prefill_name, ep->group->name) == 0;
	}
	if (r->decode != NULL && (r->decode != ep->group || r->recv_parts[ep->rank] != NULL))
		return false;
	if (sqe->group[0] == '\0')
		return true;
	if (r->prefill != NULL)
		return strcmp(r->prefill->name, sqe->group) == 0;
	return r->prefill_name[0] == '\0' || strcmp(r->prefill_name, sqe->group) == 0;
}

static struct kvf_room *
room_get(struct kvf_dispatcher *d, const struct kvf_ep *ep, const struct kvf_sqe *sqe)
{
	struct kvf_room **at, *over = NULL;

	for (at = kvf_room_bucket(d, sqe->room); *at != NULL; at = &(*at)->hash_next) {
		if (!joinable(d, *at, ep, sqe))
			continue;
		if (!(*at)->lingering)
			return *at;
		over = *at;
	}
	/* Everybody else released the last use; whoever already waits in a new one is joined there.
	 */
	if (over != NULL)
		return over;
	*at = kvf_slab_alloc(&d->slab, sizeof(struct kvf_room));
	if (*at == NULL)
		return NULL;
	memset(*at, 0, sizeof(**at));
	(*at)->id = sqe->room;
	(*at)->key = sqe->key;
	(*at)->total = sqe->total;
	(*at)->last_progress = d->now;
	kvf_count_room(d, 1);
	return *at;
}

static bool
side_open(struct kvf_dispatcher *d, struct kvf_ep_group **group, struct kvf_part ***parts,
	struct kvf_ep_group *g)
{
	uint64_t bytes = (uint64_t)g->size * sizeof(struct kvf_part *);

	if (*parts != NULL)
		return true;
	*parts = kvf_slab_alloc(&d->slab, bytes);
	if (*parts == NULL)
		return false;
	memset(*parts, 0, bytes);
	*group = g;
	atomic_fetch_add_explicit(&g->room_refs, 1, memory_order_relaxed);
	return true;
}

static void
side_close(struct kvf_dispatcher *d, struct kvf_ep_group *g, struct kvf_part **parts)
{
	uint32_t i;

	if (parts == NULL)
		return;
	for (i = 0; i < g->size; i++) {
		struct kvf_part *p = parts[i];
		struct kvf_chunk *c, *next;

		if (p == NULL)
			continue;
		kvf_timer_drop(p);
		for (c = p->chunks; c != NULL; c = next) {
			next = c->next;
			kvf_chunk_free(d, p->ep, c);
		}
		kvf_lists_free(d, p->ep, &p->lists);
		if (p->ep != NULL) {
			struct kvf_ep *ep = p->ep;

			if (ep->timer == p)
				ep->timer = p->ep_next;
			if (p->ep_next != NULL)
				p->ep_next->ep_prev = p->ep_prev;
			if (p->ep_prev != NULL)
				p->ep_prev->ep_next = p->ep_next;
			else
				ep->parts = p->ep_next;
		}
		kvf_slab_free(&d->slab, p, sizeof(*p));
	}
	kvf_slab_free(&d->slab, parts, (uint64_t)g->size * sizeof(struct kvf_part *));
	/* release: control may recycle the group once it sees 0 */
	atomic_fetch_sub_explicit(&g->room_refs, 1, memory_order_release);
}

/* Every part is released and drained: nothing can refer to the room. */
void
kvf_room_free(struct kvf_dispatcher *d, struct kvf_room *room)
{
	struct kvf_room **at;
	uint32_t i;

	if (room->lingering)
		kvf_linger_end(d, room);
	for (at = kvf_room_bucket(d, room->id); *at != room;)
		at = &(*at)->hash_next;
	*at = room->hash_next;
	for (i = 0; room->send_parts != NULL && i < room->prefill->size; i++)
		if (room->send_parts[i] != NULL)
			kvf_legs_free(d, room->send_parts[i]);
	kvf_link_unbind(d, room);
	side_close(d, room->prefill, room->send_parts);
	side_close(d, room->decode, room->recv_parts);
	kvf_slab_free(&d->slab, room, sizeof(*room));
	kvf_count_room(d, -1);
}

static bool
ended(const struct kvf_part *p)
{
	return p->status == KVF_FAILED || p->status == KVF_SUCCESS;
}

void
kvf_part_status(struct kvf_dispatcher *d, struct kvf_part *p, uint8_t status)
{
	bool boot = p->status == KVF_BOOTSTRAPPING;

	if (ended(p) || (status != KVF_FAILED && status <= p->status))
		return;
	p->status = status;
	if (status == KVF_SUCCESS) {
		p->tokens_done = p->total;
		kvf_count(&p->ep->counters.rooms_success, 1);
		kvf_count(&d->totals.rooms_success, 1);
	} else if (status == KVF_FAILED) {
		kvf_count(&p->ep->counters.rooms_failed, 1);
		kvf_count(&d->totals.rooms_failed, 1);
	}
	if (ended(p)) {
		kvf_count(&p->ep->counters.rooms_open, -1);
		kvf_timer_drop(p);
		kvf_part_try_drain(d, p);
	} else if (boot) {
		kvf_timer_set(d, p);
	}
	kvf_part_touch(d, p);
}

/* Gives back up to *budget grants of a part; true when none is left. */
static bool
sweep_part(struct kvf_part *p, uint32_t *budget)
{
	uint32_t tag = kvf_grant_tag(p->seq);

	for (; p->sweep_list < KVF_MAX_LISTS; p->sweep_list++, p->sweep_pos = 0) {
		const uint32_t *ids = p->lists.ids[p->sweep_list];
		uint32_t *grants = p->ep->grants[p->sweep_list];
		uint32_t left = p->lists.count[p->sweep_list] - p->sweep_pos;
		uint32_t n = left < *budget ? left : *budget, i;

		for (i = p->sweep_pos; i < p->sweep_pos + n; i++)
			if (grants[ids[i]] == tag)
				grants[ids[i]] = 0;
		p->sweep_pos += n;
		*budget -= n;
		if (n < left)
			return false;
	}
	return true;
}

static void
drained(struct kvf_dispatcher *d, struct kvf_part *p)
{
	struct kvf_chunk *c, *next;

	kvf_lists_free(d, p->ep, &p->lists);
	for (c = p->chunks; c != NULL; c = next) {
		next = c->next;
		kvf_chunk_free(d, p->ep, c);
	}
	p->chunks = p->chunks_tail = NULL;
	p->drained = true;
	kvf_part_touch(d, p);
}

void
kvf_part_try_drain(struct kvf_dispatcher *d, struct kvf_part *p)
{
	uint32_t budget = SWEEP_PER_ROUND / 8;
	struct kvf_leg *leg;

	if (!ended(p) || p->drained || p->sweeping)
		return;
	for (leg = p->legs; leg != NULL;
		leg = p->role == KVF_PREFILL ? leg->src_next : leg->dst_next)
		if (leg->outstanding != 0)
			return;
	if (p->role == KVF_PREFILL || sweep_part(p, &budget)) {
		drained(d, p);
		return;
	}
	p->sweeping = true;
	p->sweep_next = NULL;
	if (d->sweep_tail != NULL)
		d->sweep_tail->sweep_next = p;
	else
		d->sweep_head = p;
	d->sweep_tail = p;
}

bool
kvf_sweep(struct kvf_dispatcher *d)
{
	uint32_t budget = SWEEP_PER_ROUND;
	struct kvf_part *p = d->sweep_head;

	if (p == NULL)
		return false;
	if (sweep_part(p, &budget)) {
		d->sweep_head = p->sweep_next;
		if (d->sweep_head == NULL)
			d->sweep_tail = NULL;
		p->sweeping = false;
		drained(d, p);
	}
	return true;
}

static void
fail_part(struct kvf_dispatcher *d, struct kvf_part *p)
{
	struct kvf_leg *leg;

	if (p == NULL || p->released || ended(p))
		return;
	for (leg = p->legs; leg != NULL;
		leg = p->role == KVF_PREFILL ? leg->src_next : leg->dst_next)
		kvf_leg_stop(d, leg);
	kvf_part_status(d, p, KVF_FAILED);
}

void
kvf_room_fail(struct kvf_dispatcher *d, struct kvf_room *room, const struct kvf_ep *who, int code,
	const char *fmt, ...)
{
	char text[sizeof(room->err.text)];
	va_list ap;
	uint32_t i;

	if (room->err.code != 0)
		return; /* the first root cause is kept */
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (who != NULL)
		kvf_fail(&room->err, code, "room=%" PRIu64 " %s: %s", room->id, who->name, text);
	else
		kvf_fail(&room->err, code, "room=%" PRIu64 ": %s", room->id, text);
	for (i = 0; room->send_parts != NULL && i < room->prefill->size; i++)
		fail_part(d, room->send_parts[i]);
	for (i = 0; room->recv_parts != NULL && i < room->decode->size; i++)
		fail_part(d, room->recv_parts[i]);
}

/* A grant must cover the rows of [prefix, total) that this rank holds, in every token component. */
static int
check_recv(const struct kvf_ep *ep, const struct kvf_sqe *sqe, const struct kvf_lists *lists,
	struct kvf_err *err)
{
	uint32_t i;

	for (i = 0; i < ep->reg->geometry.num_components; i++) {
		const struct kvf_component *c = &ep->reg->geometry.components[i];

		if (c->cls == KVF_TOKENS) {
			if (kvf_grant_check(&c->sharding, c->page_tokens, lists->count[c->list],
				    sqe->start, sqe->total, err) != 0)
				return err->code;
		} else if (c->cls == KVF_AUX && lists->count[c->list] != 1) {
			return kvf_fail(err, KVF_E_STATE_LIST,
				"type=aux list=%u wants exactly 1 slot, decode=%u", c->list,
				lists->count[c->list]);
		}
	}
	return 0;
}

static int
check_send(const struct kvf_ep *ep, const struct kvf_part *p, const struct kvf_chunk *chunk,
	const struct kvf_sqe *sqe, struct kvf_err *err)
{
	uint32_t i;

	if (p->final_posted || sqe->start != p->next_start)
		return kvf_fail(err, KVF_E_ORDER,
			"chunk start=%" PRIu64 " tokens=%" PRIu64
			" does not follow, expected=%" PRIu64 "%s",
			sqe->start, sqe->tokens, p->next_start,
			p->final_posted ? " (the final chunk was posted before)" : "");
	for (i = 0; i < ep->reg->geometry.num_components; i++) {
		const struct kvf_component *c = &ep->reg->geometry.components[i];
		uint32_t count = chunk->lists.count[c->list];

		if (c->cls == KVF_TOKENS) {
			if (kvf_source_check(&c->sharding, c->page_tokens, count, sqe->start,
				    sqe->tokens, sqe->total, err) != 0)
				return err->code;
		} else if (!chunk->final && count != 0) {
			return kvf_fail(err, KVF_E_STATE_LIST,
				"list=%u (state or aux) goes with the final chunk only, this one "
				"ends "
				"at=%" PRIu64 " of total=%" PRIu64,
				c->list, sqe->start + sqe->tokens, sqe->total);
		} else if (chunk->final && c->cls == KVF_AUX && count != 1) {
			return kvf_fail(err, KVF_E_STATE_LIST,
				"type=aux list=%u wants exactly 1 slot, prefill=%u", c->list,
				count);
		}
	}
	return 0;
}

static struct kvf_part *
join(struct kvf_dispatcher *d, struct kvf_ep *ep, const struct kvf_sqe *sqe, struct kvf_err *err)
{
	struct kvf_room *room = room_get(d, ep, sqe);
	bool send = ep->role == KVF_PREFILL;
	struct kvf_part *p;

	if (room == NULL) {
		kvf_fail(err, KVF_E_NOMEM, "no memory for room=%" PRIu64, sqe->room);
		return NULL;
	}
	p = kvf_slab_alloc(&d->slab, sizeof(*p));
	if (p == NULL || !side_open(d, send ? &room->prefill : &room->decode,
				 send ? &room->send_parts : &room->recv_parts, ep->group)) {
		kvf_slab_free(&d->slab, p, sizeof(*p));
		if (room->unreleased == 0 && room->num_send + room->num_recv == 0)
			kvf_room_free(d, room);
		kvf_fail(err, KVF_E_NOMEM, "no memory for room=%" PRIu64, sqe->room);
		return NULL;
	}
	if (room->lingering)
		kvf_linger_end(d, room);
	memset(p, 0, sizeof(*p));
	p->room = room;
	p->ep = ep;
	p->role = (uint8_t)ep->role;
	p->rank = ep->rank;
	p->seq = sqe->seq;
	p->total = sqe->total;
	p->status = KVF_BOOTSTRAPPING;
	p->verify = (sqe->flags & KVF_ROOM_VERIFY) != 0;
	p->posted = d->now;
	p->bootstrap_ms = sqe->bootstrap_timeout_ms != 0 ? sqe->bootstrap_timeout_ms
							 : ep->reg->msg.bootstrap_timeout_ms;
	p->waiting_ms = sqe->waiting_timeout_ms != 0 ? sqe->waiting_timeout_ms
						     : ep->reg->msg.waiting_timeout_ms;
	p->ep_next = ep->parts;
	if (ep->parts != NULL)
		ep->parts->ep_prev = p;
	ep->parts = p;
	ep->num_parts++;
	ep->last_seq = sqe->seq;
	room->unreleased++;
	if (send) {
		room->send_parts[ep->rank] = p;
		room->num_send++;
		p->first_start = p->next_start = sqe->start;
	} else {
		room->recv_parts[ep->rank] = p;
		room->num_recv++;
		p->prefix = sqe->start;
		if (sqe->group[0] != '\0')
			memcpy(room->prefill_name, sqe->group, sizeof(room->prefill_name));
	}
	kvf_timer_set(d, p);
	kvf_count(&ep->counters.rooms_open, 1);
	return p;
}

static void
post_recv(struct kvf_ep *ep, struct kvf_intake *in, struct kvf_part *p)
{
	p->lists = in->lists;
	memset(&in->lists, 0, sizeof(in->lists));
	if (in->err.code == 0)
		check_recv(ep, &in->sqe, &p->lists, &in->err);
}

static void
post_send(struct kvf_dispatcher *d, struct kvf_ep *ep, struct kvf_intake *in, struct kvf_part *p)
{
	const struct kvf_sqe *sqe = &in->sqe;
	struct kvf_chunk *c;
	struct kvf_leg *leg;

	if (in->err.code != 0 || ended(p))
		return;
	/* Chunks of no token cost nothing but this. */
	if (ep->num_chunks == MAX_CHUNKS) {
		kvf_fail(&in->err, KVF_E_QUOTA, "chunks=%u of %s wait to be sent, limit=%u",
			ep->num_chunks, ep->name, MAX_CHUNKS);
		return;
	}
	c = kvf_slab_alloc(&d->slab, sizeof(*c));
	if (c == NULL) {
		kvf_fail(&in->err, KVF_E_NOMEM, "no memory for a chunk");
		return;
	}
	memset(c, 0, sizeof(*c));
	ep->num_chunks++;
	c->start = sqe->start;
	c->tokens = sqe->tokens;
	c->final = sqe->start + sqe->tokens == sqe->total;
	c->lists = in->lists;
	memset(&in->lists, 0, sizeof(in->lists));
	if (sqe->total != p->total)
		kvf_fail(&in->err, KVF_E_TOTAL,
			"total_tokens of a later chunk is %" PRIu64 ", of the first one %" PRIu64,
			sqe->total, p->total);
	else
		check_send(ep, p, c, sqe, &in->err);
	if (in->err.code != 0) {
		kvf_chunk_free(d, ep, c);
		return;
	}
	p->next_start = sqe->start + sqe->tokens;
	p->final_posted = c->final;
	if (p->chunks_tail != NULL)
		p->chunks_tail->next = c;
	else
		p->chunks = c;
	p->chunks_tail = c;
	for (leg = p->legs; leg != NULL; leg = leg->src_next) {
		if (leg->chunk == NULL && leg->phase == KVF_PHASE_TOKENS && leg->final == NULL)
			leg->chunk = c;
		kvf_leg_wake(d, leg);
	}
}

void
kvf_room_post(struct kvf_dispatcher *d, struct kvf_ep *ep, struct kvf_intake *in)
{
	const struct kvf_sqe *sqe = &in->sqe;
	struct kvf_part *p;
	struct kvf_room *room;
	struct kvf_err why;
	bool fresh, held;

	/* At most one use of a room is held; a chunk of another one is not its. */
	p = part_find(d, ep, sqe->room, 0);
	held = p != NULL;
	if (held && (sqe->op != KVF_OP_SEND || p->seq != sqe->seq))
		p = NULL;
	fresh = p == NULL;
	if (fresh && (sqe->seq <= ep->last_seq || ep->num_parts >= ep->max_rooms)) {
		kvf_fail(&why, sqe->seq <= ep->last_seq ? KVF_E_PROTO : KVF_E_QUOTA,
			"%s posted room=%" PRIu64 " seq=%" PRIu64 " after seq=%" PRIu64
			" with rooms=%u limit=%u",
			ep->name, sqe->room, sqe->seq, ep->last_seq, ep->num_parts, ep->max_rooms);
	} else if (fresh && held) {
		/* Would also let one client make rooms of one id without end, in one bucket. */
		kvf_fail(&why, KVF_E_PROTO,
			"%s posted room=%" PRIu64 " seq=%" PRIu64
			" before it released the last use",
			ep->name, sqe->room, sqe->seq);
	} else if (fresh) {
		p = join(d, ep, sqe, &why);
	}
	if (p == NULL) {
		kvf_lists_free(d, ep, &in->lists);
		kvf_ep_fault(d, ep, &why);
		return;
	}
	room = p->room;
	/* A chunk of no token is no progress: it could be posted for ever. */
	if (fresh || sqe->tokens != 0)
		room->last_progress = d->now;
	if (sqe->op == KVF_OP_RECV)
		post_recv(ep, in, p);
	else
		post_send(d, ep, in, p);
	kvf_lists_free(d, ep, &in->lists);
	if (room->err.code == 0 && sqe->total != room->total)
		kvf_fail(&in->err, KVF_E_TOTAL,
			"total_tokens differ, %s=%" PRIu64 " others=%" PRIu64, ep->name, sqe->total,
			room->total);
	if (in->err.code == 0 && d->stopping)
		kvf_fail(&in->err, KVF_E_ENGINE_GONE, "kvferryd is stopping");
	if (in->err.code != 0)
		kvf_room_fail(d, room, ep, in->err.code, "%s", in->err.text);
	if (room->err.code != 0) {
		fail_part(d, p); /* came too late to be failed with the others */
		return;
	}
	if (!fresh) {
		kvf_chunks_retire(d, p);
		return;
	}
	kvf_part_touch(d, p);
	if (room->link == NULL)
		kvf_link_bind(d, room);
	else if (room->link->link != NULL)
		kvf_part_linked(d, p);
}

/* Both groups are complete and linked: what does this part wait for? */
void
kvf_part_linked(struct kvf_dispatcher *d, struct kvf_part *p)
{
	struct kvf_room *room = p->room;
	const struct kvf_link *link = room->link->link;
	bool send = p->role == KVF_PREFILL;
	uint32_t n = send ? room->decode->size : room->prefill->size, i;
	struct kvf_part **others = send ? room->recv_parts : room->send_parts;

	if (p->linked || ended(p))
		return;
	p->linked = true;
	for (i = 0; i < n; i++)
		if (kvf_link_pair(link, send ? p->rank : i, send ? i : p->rank)->num_maps != 0)
			p->legs_expected++;
	p->tokens_left = p->state_left = p->aux_left = p->legs_expected;
	kvf_part_status(d, p, KVF_WAITING_FOR_INPUT);
	for (i = 0; i < n; i++) {
		/* The other one must have its counts as well; whoever is linked last makes the leg.
		 */
		if (others[i] == NULL || !others[i]->linked)
			continue;
		kvf_leg_create(d, send ? p : others[i], send ? others[i] : p);
		if (room->err.code != 0)
			return;
	}
	if (send)
		kvf_chunks_retire(d, p);
	else if (p->legs_expected == 0)
		kvf_part_status(d, p, KVF_SUCCESS);
}

void
kvf_room_abort(
	struct kvf_dispatcher *d, struct kvf_ep *ep, struct kvf_intake *in, const char *reason)
{
	struct kvf_part *p = part_find(d, ep, in->sqe.room, in->sqe.seq);

	/* Of a room that ended and is gone, or failed by itself: nothing to do. */
	if (p != NULL && !ended(p))
		kvf_room_fail(d, p->room, ep, KVF_E_ABORTED, "aborted%s%s",
			reason[0] != '\0' ? ": " : "", reason);
}

static void
release(struct kvf_dispatcher *d, struct kvf_part *p)
{
	struct kvf_room *room = p->room;

	p->released = true;
	p->ep->num_parts--;
	if (--room->unreleased == 0)
		kvf_room_over(d, room);
}

void
kvf_room_release_posted(struct kvf_dispatcher *d, struct kvf_ep *ep, struct kvf_intake *in)
{
	struct kvf_part *p = part_find(d, ep, in->sqe.room, in->sqe.seq);
	struct kvf_err why;

	if (p != NULL && p->drained && !p->dirty) {
		release(d, p);
		return;
	}
	kvf_fail(&why, KVF_E_PROTO, "%s released room=%" PRIu64 " seq=%" PRIu64 ", which is %s",
		ep->name, in->sqe.room, in->sqe.seq, p == NULL ? "not held" : "not drained");
	kvf_ep_fault(d, ep, &why);
}

/* Rooms whose link counts on it but that have not heard from it yet; its own ones are reaped. */
void
kvf_room_ep_dead(struct kvf_dispatcher *d, struct kvf_ep *ep)
{
	struct kvf_link_slot *slot;
	struct kvf_room *room;

	ep->timer = ep->parts;
	for (slot = d->links; slot != NULL; slot = slot->next) {
		if (slot->link == NULL || (slot->prefill != ep->group && slot->decode != ep->group))
			continue;
		for (room = slot->rooms; room != NULL; room = room->link_next) {
			struct kvf_part **parts =
				ep->role == KVF_PREFILL ? room->send_parts : room->recv_parts;

			if (room->err.code == 0 && parts[ep->rank] == NULL)
				kvf_room_fail(d, room, ep, KVF_E_PEER_DIED,
					"the endpoint's process pid=%d died before it joined",
					(int)ep->pid);
		}
	}
}

bool
kvf_room_ep_reap(struct kvf_dispatcher *d, struct kvf_ep *ep)
{
	uint32_t n;

	for (n = 0; n < REAP_PER_ROUND && ep->timer != NULL; n++) {
		struct kvf_part *p = ep->timer;

		ep->timer = p->ep_next;
		if (!p->released && !ended(p))
			kvf_room_fail(d, p->room, ep, KVF_E_PEER_DIED,
				"the endpoint's process pid=%d closed its connection or died",
				(int)ep->pid);
	}
	if (n != 0 && ep->timer == NULL)
		d->unburied = true;
	return n != 0;
}

bool
kvf_room_ep_gone(struct kvf_dispatcher *d, struct kvf_ep *ep)
{
	struct kvf_part *p;
	uint32_t n;

	if (ep->timer != NULL)
		return false;
	for (n = 0; (p = ep->parts) != NULL; n++) {
		if (!p->released && !p->drained)
			return false;
		if (n == REAP_PER_ROUND) {
			d->unburied = true;
			return false;
		}
		ep->parts = p->ep_next;
		if (ep->parts != NULL)
			ep->parts->ep_prev = NULL;
		p->ep_next = p->ep_prev = NULL;
		if (p->released) {
			p->ep = NULL;
			continue;
		}
		p->released = true;
		p->ep = NULL;
		if (--p->room->unreleased == 0)
			kvf_room_over(d, p->room);
	}
	kvf_linger_end_all(d, ep->group);
	return true;
}
