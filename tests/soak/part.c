/* SPDX-License-Identifier: BSD-3-Clause */
/* A part's life: pages, postings, what may go wrong with it, what its end must look like. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/suite.h"
#include "soak/worker.h"

#define MS            SOAK_NS_MS
#define GRACE_NS      (1000 * MS)  /* for members that may come yet */
#define TOLD_NS       (30000 * MS) /* a failure is known to all by then */
#define AGAIN_NS      (10 * MS)    /* a full ring is looked at again */
#define LINGER_NS     (2500 * MS)  /* as long as the engine keeps a room for the late, and more */
#define WATCH_NS      (100 * MS)
#define STARVE_NS     (3000 * MS)
#define LATE_BOOT_MS  700u
#define NO_PAGE       UINT32_MAX
#define MAX_CHUNK_GAP 40

void
worker_blame(struct endpoint *ep, uint32_t place, enum soak_counter what, const char *fmt, ...)
{
	struct soak_table *t = ep->w->t;
	struct soak_room *r = room_of(ep, place);
	char text[600];
	va_list ap;
	int n;

	soak_count(t, what, 1);
	if (atomic_load(&t->counters[what]) > 20)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	n = dprintf(2,
		"        SOAK: room=%" PRIu64 " kind=%u use=%u prefix=%u total=%u endpoint=%s[%u] "
		"pid=%d causes=%#" PRIx64 " KVF_TEST_SEED=%" PRIu64 ": %s\n",
		r->id, r->kind, ep->parts[place].use, r->prefix, r->total, ep->peer.group,
		ep->peer.rank, (int)getpid(), (uint64_t)atomic_load(&r->causes), t->seed, text);
	(void)n;
}

static void
say(struct endpoint *ep, uint32_t place, enum soak_member_state state)
{
	atomic_store(&room_of(ep, place)->member[ep->member],
		ep->parts[place].use << 3 | (uint32_t)state);
}

static void
cause(struct soak_room *r, uint64_t bits)
{
	atomic_fetch_or(&r->causes, bits);
}

static void
set_due(struct endpoint *ep, uint32_t place)
{
	struct part *p = &ep->parts[place];

	ep->due[place] = p->chunk_due < p->abort_due ? p->chunk_due : p->abort_due;
}

static bool
actor(const struct endpoint *ep, const struct soak_room *r)
{
	return r->actor == ep->member;
}

static void
give_back(struct endpoint *ep, struct part *p)
{
	/* Last in, first out: the next room gets these very pages. */
	while (p->num_pages > 0)
		ep->free_pages[ep->num_free_pages++] = p->pages[--p->num_pages];
	free(p->pages);
	p->pages = NULL;
	if (p->slot != NO_PAGE)
		ep->free_slots[ep->num_free_slots++] = p->slot;
	p->slot = NO_PAGE;
}

static void
done(struct endpoint *ep, uint32_t place, enum soak_member_state state)
{
	struct part *p = &ep->parts[place];

	give_back(ep, p);
	p->state = state == SOAK_DONE ? PART_SETTLE : PART_NONE;
	p->mark = ep->posted;
	ep->due[place] = NEVER;
	say(ep, place, state);
}

void
part_begin(struct endpoint *ep, uint32_t place, uint32_t use, uint64_t now)
{
	struct part *p = &ep->parts[place];
	struct soak_room *r = room_of(ep, place);
	uint64_t pace = ep->w->t->pace_ms;

	*p = (struct part){.use = use, .state = PART_WAIT, .slot = NO_PAGE, .bad = NO_PAGE};
	if ((r->prefill_only && !is_prefill(ep)) || (r->decode_only && is_prefill(ep))) {
		done(ep, place, SOAK_SKIPPED);
		return;
	}
	p->chunk_due = now + suite_range(&ep->w->rand, 0, 20) * MS;
	if (is_prefill(ep))
		p->chunk_due = now + suite_range(&ep->w->rand, 0, pace * 1000) * 1000;
	p->abort_due = NEVER;
	set_due(ep, place);
}

/* Some of the time other pages than those given back last. */
static bool
take(struct endpoint *ep, struct part *p, uint32_t n)
{
	bool shuffle = suite_range(&ep->w->rand, 0, 3) == 0;

	if (n > ep->num_free_pages || ep->num_free_slots == 0)
		return false;
	p->pages = malloc((n + 1) * sizeof(uint32_t));
	if (p->pages == NULL)
		abort();
	while (p->num_pages < n) {
		uint32_t *last = &ep->free_pages[--ep->num_free_pages];

		if (shuffle) {
			uint32_t k = (uint32_t)suite_range(&ep->w->rand, 0, ep->num_free_pages);
			uint32_t id = ep->free_pages[k];

			ep->free_pages[k] = *last;
			*last = id;
		}
		p->pages[p->num_pages++] = *last;
	}
	p->slot = ep->free_slots[--ep->num_free_slots];
	return true;
}

static struct soak_span
span(const struct endpoint *ep, const struct part *p, uint32_t place, uint64_t from, uint64_t to)
{
	return (struct soak_span){
		room_of(ep, place)->nonce, p->base, from, to, p->pages, p->num_pages};
}

/* Pages and what stands in them. false: not now. */
static bool
prepare(struct endpoint *ep, uint32_t place, uint64_t now)
{
	struct part *p = &ep->parts[place];
	struct soak_room *r = room_of(ep, place);
	uint64_t bad;
	uint32_t n;

	p->total = r->total + (r->kind == SOAK_TOTAL && actor(ep, r) ? 1 : 0);
	p->base = r->prefix;
	if (is_prefill(ep) && suite_range(&ep->w->rand, 0, 2) == 0)
		p->base = suite_range(&ep->w->rand, 0, r->prefix);
	p->next = p->read = p->base;
	n = peer_list_pages(&ep->peer, PEER_TOKENS, p->base, p->total, p->total);
	if (!take(ep, p, n)) {
		if (now - p->asked < STARVE_NS) {
			p->chunk_due = now + 20 * MS;
			return false;
		}
		soak_count(ep->w->t, SOAK_STARVED_N, 1);
		cause(r, SOAK_MISSING);
		done(ep, place, SOAK_SKIPPED);
		return false;
	}
	bad = soak_untouched(&ep->peer, p->pages, n, p->slot);
	if (bad != 0)
		worker_blame(ep, place, SOAK_MISMATCHES_N,
			"%" PRIu64 " bytes of pages that nobody held were written to", bad);
	if (is_prefill(ep)) {
		struct soak_span s = span(ep, p, place, p->base, p->total);

		soak_fill(&ep->peer, &s);
		soak_fill_slot(&ep->peer, r->nonce, p->slot);
	}
	return true;
}

static uint32_t
slot_lists(const struct endpoint *ep, const struct part *p, struct kvf_pages *lists)
{
	const struct soak_family *f = &soak_families[ep->family];
	uint32_t n = 0;

	if (f->state != 0)
		lists[n++] = (struct kvf_pages){PEER_STATE, 1, &p->slot};
	if (f->aux != 0)
		lists[n++] = (struct kvf_pages){PEER_AUX, 1, &p->slot};
	return n;
}

static int
post_recv(struct endpoint *ep, uint32_t place, uint32_t boot_ms, struct kvf_err *err)
{
	struct part *p = &ep->parts[place];
	struct soak_room *r = room_of(ep, place);
	struct kvf_pages lists[3] = {{PEER_TOKENS, p->num_pages, p->pages}};
	struct kvf_recv_args a = {.room = r->id,
		.key = r->key,
		.prefix_tokens = r->prefix,
		.total_tokens = p->total,
		.lists = lists,
		.num_lists = 1,
		.bootstrap_timeout_ms = boot_ms,
		.waiting_timeout_ms = boot_ms,
		.flags = r->verify ? KVF_ROOM_VERIFY : 0};
	char group[3] = {'p', (char)('0' + ep->family), '\0'};
	uint32_t kept = 0;
	int rc;

	a.num_lists += slot_lists(ep, p, lists + 1);
	a.prefill_group = r->named ? group : NULL;
	if (r->kind == SOAK_KEY && actor(ep, r))
		a.key ^= 1;
	if (p->num_pages > 0 && actor(ep, r) &&
		(r->kind == SOAK_PAGE || (r->kind == SOAK_DUP && p->num_pages > 1))) {
		p->bad = p->num_pages - 1;
		kept = p->pages[p->bad];
		p->pages[p->bad] = r->kind == SOAK_PAGE ? ep->peer.comps[0].num_pages : p->pages[0];
		cause(r, SOAK_CAUSE(KVF_E_PAGE) | SOAK_CAUSE(KVF_E_DUP_PAGE));
	}
	rc = kvf_recv(ep->peer.ep, &a, err);
	if (p->bad != NO_PAGE)
		p->pages[p->bad] = kept;
	return rc;
}

static uint64_t
chunk_end(struct endpoint *ep, const struct part *p)
{
	const struct kvf_component *c = &ep->peer.comps[0];
	uint64_t unit = (uint64_t)c->page_tokens * c->sharding.size, end;

	switch (suite_range(&ep->w->rand, 0, 5)) {
	case 0: /* nothing: joins early, or waits at the end */
		return p->next;
	case 1:
		return suite_range(&ep->w->rand, p->next, p->total);
	case 2:
	case 3:
		end = suite_range(&ep->w->rand, p->next, p->total) / unit * unit;
		return end > p->next ? end : p->total;
	default:
		return p->total;
	}
}

static int
post_send(struct endpoint *ep, uint32_t place, uint32_t boot_ms, struct kvf_err *err)
{
	struct part *p = &ep->parts[place];
	struct soak_room *r = room_of(ep, place);
	const struct kvf_component *c = &ep->peer.comps[0];
	struct kvf_pages lists[3] = {{PEER_TOKENS, 0, p->pages}};
	uint64_t end = chunk_end(ep, p), base_page, page;
	struct kvf_send_args a = {.room = r->id,
		.key = r->key,
		.start_token = p->next,
		.num_tokens = end - p->next,
		.total_tokens = p->total,
		.lists = lists,
		.num_lists = 1,
		.bootstrap_timeout_ms = boot_ms,
		.waiting_timeout_ms = boot_ms,
		.flags = r->verify ? KVF_ROOM_VERIFY : 0};
	uint32_t kept = 0;
	bool spoil;
	int rc;

	peer_span(&c->sharding, c->page_tokens, p->base, p->base, p->total, &base_page);
	lists[0].count = peer_span(&c->sharding, c->page_tokens, p->next, end, p->total, &page);
	if (lists[0].count != 0)
		lists[0].ids = p->pages + (page - base_page);
	if (end == p->total)
		a.num_lists += slot_lists(ep, p, lists + 1);
	if (r->kind == SOAK_KEY && actor(ep, r))
		a.key ^= 1;
	spoil = r->kind == SOAK_PAGE && actor(ep, r) && lists[0].count > 0 && p->bad == NO_PAGE;
	if (spoil) {
		p->bad = (uint32_t)(lists[0].ids - p->pages);
		kept = p->pages[p->bad];
		p->pages[p->bad] = c->num_pages + 3;
		cause(r, SOAK_CAUSE(KVF_E_PAGE));
	}
	rc = kvf_send(ep->peer.ep, &a, err);
	if (spoil)
		p->pages[p->bad] = kept;
	if (spoil && rc == KVF_E_AGAIN)
		p->bad = NO_PAGE;
	if (rc != 0)
		return rc;
	p->next = end;
	p->chunk_due = NEVER;
	if (end < p->total)
		p->chunk_due = soak_now() + suite_range(&ep->w->rand, 0, MAX_CHUNK_GAP) * MS;
	return 0;
}

/* Is it this endpoint that ends the room, other than by playing its part? */
static void
plan_abort(struct endpoint *ep, uint32_t place)
{
	struct part *p = &ep->parts[place];
	struct soak_room *r = room_of(ep, place);
	uint64_t pace = ep->w->t->pace_ms;

	if (r->kind != SOAK_ABORT && !(r->kind == SOAK_ALONE && r->timeout_ms == 0))
		return;
	if (!actor(ep, r) && r->second != ep->member)
		return;
	if (suite_range(&ep->w->rand, 0, 3) == 0)
		p->abort_due = p->posted; /* at once */
	else if (r->swift && r->kind == SOAK_ABORT)
		p->abort_due = p->posted + 2 * pace * MS; /* unless data flows before */
	else
		p->abort_due = p->posted + suite_range(&ep->w->rand, 0, pace * 1000) * 1000;
}

static bool
somebody_done(const struct soak_room *r, uint32_t use)
{
	uint32_t m;

	for (m = 0; m < SOAK_MEMBERS; m++) {
		uint32_t state = atomic_load(&r->member[m]);

		if (state >> 3 == use && (state & 7) != SOAK_POSTED)
			return true;
	}
	return false;
}

static void
post(struct endpoint *ep, uint32_t place, uint64_t now)
{
	struct part *p = &ep->parts[place];
	struct soak_room *r = room_of(ep, place);
	uint64_t causes = atomic_load(&r->causes);
	uint32_t boot_ms = r->timeout_ms;
	bool first = p->posted == 0, late;
	struct kvf_err err = {0};
	int rc;

	if (p->asked == 0)
		p->asked = now;
	late = first && (causes & (SOAK_SPOILED | SOAK_MISSING)) != 0;
	if (late || boot_ms != 0 || (first && somebody_done(r, p->use)))
		cause(r, SOAK_UNEVEN);
	if (late && p->pages == NULL && suite_range(&ep->w->rand, 0, 1) != 0) {
		done(ep, place, SOAK_SKIPPED);
		return;
	}
	if (p->pages == NULL && !prepare(ep, place, now))
		return;
	if (late && boot_ms == 0)
		boot_ms = LATE_BOOT_MS;
	if (boot_ms != 0)
		cause(r, SOAK_CAUSE(KVF_E_TIMEOUT));
	if (r->kind == SOAK_TOTAL && actor(ep, r))
		cause(r, SOAK_CAUSE(KVF_E_TOTAL));
	rc = is_prefill(ep) ? post_send(ep, place, boot_ms, &err)
			    : post_recv(ep, place, boot_ms, &err);
	if (rc == KVF_E_AGAIN) {
		soak_count(ep->w->t, SOAK_AGAIN_N, 1);
		if (!is_prefill(ep))
			p->bad = NO_PAGE;
		p->chunk_due = now + AGAIN_NS;
		return;
	}
	if (rc == KVF_E_EXIST && !first) {
		p->chunk_due = NEVER; /* it failed meanwhile */
		return;
	}
	if (rc != 0) {
		worker_blame(ep, place, SOAK_WRONG_N, "posting refused with %s: %s",
			kvf_error_name(rc), err.text);
		p->chunk_due = NEVER;
		if (first)
			done(ep, place, SOAK_SKIPPED);
		return;
	}
	soak_count(ep->w->t, SOAK_POSTS_N, 1);
	soak_count(ep->w->t, SOAK_LATE_N, late);
	if (!is_prefill(ep))
		p->chunk_due = NEVER;
	if (first) {
		p->state = PART_OPEN;
		p->serial = ++ep->posted;
		p->posted = soak_now();
		say(ep, place, SOAK_POSTED);
		plan_abort(ep, place);
	}
}

/* Returns false when the ring is full. */
static bool
abort_it(struct endpoint *ep, uint32_t place)
{
	struct part *p = &ep->parts[place];
	struct soak_room *r = room_of(ep, place);
	uint64_t none = 0, start;
	int rc;

	cause(r, SOAK_CAUSE(KVF_E_ABORTED));
	start = soak_now();
	rc = kvf_abort(ep->peer.ep, r->id, "soak", NULL);
	if (rc == KVF_E_AGAIN) {
		p->abort_due = start + AGAIN_NS;
		return false;
	}
	p->abort_due = p->chunk_due = NEVER;
	if (rc != 0) {
		worker_blame(ep, place, SOAK_WRONG_N, "abort refused with %s", kvf_error_name(rc));
		return true;
	}
	p->aborted = true;
	p->abort_ns = start;
	atomic_compare_exchange_strong(&r->abort_ns, &none, start);
	soak_count(ep->w->t, p->orphan ? SOAK_ORPHANS_N : SOAK_ABORTS_N, 1);
	p->watched = suite_range(&ep->w->rand, 0, 3) == 0;
	return true;
}

/* Nothing but polling until the room is drained. */
static void
watch(struct endpoint *ep, uint32_t place)
{
	struct part *p = &ep->parts[place];
	uint64_t end = soak_now() + WATCH_NS;
	uint32_t use = p->use;

	while (p->use == use && p->state == PART_OPEN && soak_now() < end)
		part_events(ep);
}

void
part_due(struct endpoint *ep, uint32_t place, uint64_t now)
{
	struct part *p = &ep->parts[place];
	struct soak_table *t = ep->w->t;
	uint32_t use = p->use;

	if (p->state == PART_RELEASE) {
		if (kvf_room_release(ep->peer.ep, room_of(ep, place)->id, NULL) == 0)
			done(ep, place, SOAK_DONE);
		else
			ep->due[place] = now + AGAIN_NS;
		return;
	}
	if (is_prefill(ep) && !atomic_load(&t->ramped)) {
		/* Nothing flows before every place is taken; and then not all at once. */
		ep->due[place] = now + 10 * MS;
		p->chunk_due =
			ep->due[place] + suite_range(&ep->w->rand, 0, t->pace_ms * 1000ull) * 1000;
		return;
	}
	if (p->state == PART_OPEN && p->abort_due <= now) {
		if (abort_it(ep, place) && p->watched) {
			set_due(ep, place);
			watch(ep, place);
		}
	} else if (p->chunk_due <= now) {
		post(ep, place, now);
	}
	if (p->use == use && (p->state == PART_WAIT || p->state == PART_OPEN))
		set_due(ep, place);
}

static void
scribble(struct endpoint *ep, uint32_t place, uint64_t to)
{
	struct part *p = &ep->parts[place];
	struct soak_span s = span(ep, p, place, p->read, to);

	if (to <= p->read)
		return;
	s.nonce = ~s.nonce;
	soak_fill(&ep->peer, &s);
	p->read = to;
}

static void
failed(struct endpoint *ep, uint32_t place, int code, uint64_t now)
{
	struct part *p = &ep->parts[place];
	struct soak_room *r = room_of(ep, place);
	struct soak_table *t = ep->w->t;
	uint64_t none = 0, causes, at;
	struct kvf_err err = {0};
	const char *pid;
	uint32_t i;

	p->failed = true;
	p->chunk_due = NEVER;
	/* Before its causes: who goes away stops saying so only after it has named them. */
	i = atomic_load(&t->families[ep->family].closing);
	causes = atomic_load(&r->causes);
	if (kvf_room_error(ep->peer.ep, r->id, &err) != code)
		worker_blame(ep, place, SOAK_WRONG_N, "the event says %s, the room %s",
			kvf_error_name(code), kvf_error_name(err.code));
	if ((causes & SOAK_CAUSE(code)) == 0 && !(code == KVF_E_PEER_DIED && i > 0))
		worker_blame(ep, place, SOAK_WRONG_N, "failed with %s for no reason: %s",
			kvf_error_name(code), err.text);
	soak_count(t,
		code == KVF_E_ABORTED     ? SOAK_F_ABORTED_N
		: code == KVF_E_PEER_DIED ? SOAK_F_PEER_DIED_N
		: code == KVF_E_TIMEOUT   ? SOAK_F_TIMEOUT_N
					  : SOAK_F_OTHER_N,
		1);
	at = atomic_load(&r->abort_ns);
	if (code == KVF_E_ABORTED && !p->aborted && p->posted < at && at < now)
		soak_time(t, SOAK_TOLD, now - at);
	pid = strstr(err.text, "pid=");
	for (i = 0; i < SOAK_PROCS && code == KVF_E_PEER_DIED && pid != NULL; i++) {
		at = atomic_load(&t->procs[i].kill_ns);
		if (atomic_load(&t->procs[i].kill_pid) == atoi(pid + 4) && p->posted < at &&
			at < now)
			soak_time(t, SOAK_DEATH, now - at);
	}
	atomic_compare_exchange_strong(&r->spoiled_ns, &none, now);
	cause(r, SOAK_SPOILED);
}

/* What must be in the pages of a part that ended so. */
static enum soak_want
wanted(const struct endpoint *ep, const struct soak_room *r, const struct part *p, bool success)
{
	if (success)
		return SOAK_WANT_ALL;
	if (r->kind == SOAK_ALONE)
		return SOAK_WANT_NONE;
	if (actor(ep, r) && (r->kind == SOAK_TOTAL || r->kind == SOAK_KEY ||
				    (p->bad != NO_PAGE && !is_prefill(ep))))
		return SOAK_WANT_NONE;
	return SOAK_WANT_ANY;
}

static void
check_pages(struct endpoint *ep, uint32_t place, bool success)
{
	struct part *p = &ep->parts[place];
	struct soak_room *r = room_of(ep, place);
	struct soak_table *t = ep->w->t;
	enum soak_want want = wanted(ep, r, p, success);
	struct soak_span s = span(ep, p, place, p->base, p->total);
	uint64_t bad;

	if (success && (r->kind == SOAK_ALONE || want == SOAK_WANT_NONE ||
			       (actor(ep, r) && (r->kind == SOAK_TOTAL || r->kind == SOAK_KEY ||
							p->bad != NO_PAGE))))
		worker_blame(ep, place, SOAK_WRONG_N, "succeeded");
	if (is_prefill(ep)) {
		bad = soak_untouched(&ep->peer, p->pages, p->num_pages, p->slot);
		/* Read no more: whoever reads now reads something else. */
		scribble(ep, place, p->total);
		soak_fill_slot(&ep->peer, ~r->nonce, p->slot);
		soak_count(t, success ? SOAK_SENT_N : SOAK_SEND_FAILED_N, 1);
	} else if (want == SOAK_WANT_NONE) {
		bad = soak_untouched(&ep->peer, p->pages, p->num_pages, p->slot);
		soak_count(t, SOAK_UNTOUCHED_N, 1);
	} else {
		bad = soak_check(&ep->peer, &s, p->slot, want);
		soak_count(t, success ? SOAK_DELIVERED_N : SOAK_PARTIAL_N, 1);
		if (success)
			soak_count(t, SOAK_BYTES_N,
				(p->total - p->base) * ep->peer.comps[0].num_entries *
					ep->peer.comps[0].entries[0].row_bytes /
					ep->peer.comps[0].sharding.size);
	}
	if (bad != 0)
		worker_blame(ep, place, SOAK_MISMATCHES_N,
			"%" PRIu64 " bytes are wrong after %s (want=%d aborted=%d pages=%u)", bad,
			success ? "Success" : "Failed", want, p->aborted, p->num_pages);
}

static void
event(struct endpoint *ep, const struct kvf_event *ev, uint64_t now)
{
	uint32_t place = (uint32_t)(ev->room & 0xffff);
	struct part *p;

	if (place >= ep->w->places || room_of(ep, place)->id != ev->room ||
		ep->parts[place].state != PART_OPEN) {
		worker_blame(ep, place < ep->w->places ? place : 0, SOAK_WRONG_N,
			"an event of room=%" PRIu64 " status=%u, which is not open here", ev->room,
			ev->status);
		return;
	}
	p = &ep->parts[place];
	if (p->seen == 0)
		p->seen = now;
	/* Entries of a ring are taken in order. */
	if (p->serial > ep->seen)
		ep->seen = p->serial;
	if (ev->status == KVF_FAILED && !p->failed)
		failed(ep, place, ev->error, now);
	if (ev->status != KVF_FAILED && p->failed)
		worker_blame(ep, place, SOAK_WRONG_N, "status=%u after Failed", ev->status);
	if (ev->drained) {
		bool success = ev->status == KVF_SUCCESS;

		if (ev->status != KVF_FAILED && !success)
			worker_blame(ep, place, SOAK_WRONG_N, "drained with status=%u", ev->status);
		if (p->abort_ns != 0 && !success)
			soak_time(ep->w->t,
				p->watched       ? SOAK_DRAIN_WATCHED
				: is_prefill(ep) ? SOAK_DRAIN_SEND
						 : SOAK_DRAIN_RECV,
				now - p->abort_ns);
		check_pages(ep, place, success);
		give_back(ep, p);
		p->state = PART_RELEASE;
		ep->due[place] = now;
		part_due(ep, place, now);
		return;
	}
	if (is_prefill(ep) && ev->tokens > p->read && ev->status != KVF_FAILED) {
		if (ev->tokens > p->next)
			worker_blame(ep, place, SOAK_WRONG_N, "tokens=%" PRIu64 " read of %" PRIu64,
				ev->tokens, p->next);
		soak_count(ep->w->t, SOAK_SCRIBBLES_N, 1);
		scribble(ep, place, ev->tokens < p->total ? ev->tokens : p->total);
	}
	if (ev->status == KVF_TRANSFERRING && room_of(ep, place)->swift && p->abort_due != NEVER &&
		!p->aborted) {
		p->abort_due = now;
		set_due(ep, place);
	}
}

bool
part_events(struct endpoint *ep)
{
	struct kvf_event ev[64];
	int n = kvf_poll(ep->peer.ep, ev, 64), i;
	uint64_t now;

	if (n < 0) {
		worker_blame(ep, 0, SOAK_WRONG_N, "kvf_poll: %s", kvf_error_name(n));
		_exit(3);
	}
	now = soak_now();
	for (i = 0; i < n; i++)
		event(ep, &ev[i], now);
	return n > 0;
}

/* A prefill endpoint that has nothing to give (a replica) and comes when everybody else is done. */
static bool
left_behind(const struct endpoint *ep, const struct soak_room *r, const struct part *p)
{
	uint32_t m;

	for (m = 0; m < SOAK_MEMBERS; m++) {
		uint32_t state = atomic_load(&r->member[m]);

		if (!soak_is_prefill(ep->family, m) &&
			(state >> 3 != p->use || (state & 7) == SOAK_POSTED))
			return false;
	}
	return is_prefill(ep);
}

void
part_patrol(struct endpoint *ep, uint64_t now)
{
	struct soak_table *t = ep->w->t;
	uint64_t patience = t->patience_ms * MS, ramped = atomic_load(&t->ramped_ns);
	uint32_t i;

	if (ramped == 0)
		return;
	for (i = 0; i < ep->w->places; i++) {
		struct part *p = &ep->parts[i];
		struct soak_room *r = room_of(ep, i);
		uint64_t causes, spoiled, since;

		if (p->state == PART_SETTLE && ep->seen > p->mark) {
			/* Then it may linger, for members that are late. */
			if (p->settle_due == 0) {
				p->settle_due = now + LINGER_NS;
			} else if (now >= p->settle_due && !p->lingered) {
				p->lingered = true;
				p->mark = ep->posted;
			} else if (p->lingered) {
				p->state = PART_NONE;
				say(ep, i, SOAK_SETTLED);
			}
		}
		if (p->state != PART_OPEN)
			continue;
		since = p->posted > ramped ? p->posted : ramped;
		causes = atomic_load(&r->causes);
		spoiled = atomic_load(&r->spoiled_ns);
		if (now > since + patience && !p->noted) {
			p->noted = true;
			worker_blame(ep, i, SOAK_STUCK_N,
				"status=%d drained=%d after %" PRIu64
				" ms, aborted=%d next=%" PRIu64,
				kvf_room_status(ep->peer.ep, r->id),
				kvf_room_drained(ep->peer.ep, r->id), (now - since) / MS,
				p->aborted, p->next);
		}
		if (p->aborted || p->failed || now < since + GRACE_NS)
			continue;
		if (spoiled != 0 && r->kind != SOAK_KEY && p->seen != 0 &&
			p->seen + GRACE_NS < spoiled) {
			/* It was there when the room failed. */
			if (now > spoiled + TOLD_NS && !p->noted) {
				p->noted = true;
				worker_blame(ep, i, SOAK_WRONG_N,
					"nobody told that the room failed %" PRIu64 " ms ago",
					(now - spoiled) / MS);
			}
			continue;
		}
		if ((spoiled != 0 && now > spoiled + GRACE_NS) || (causes & SOAK_MISSING) != 0 ||
			left_behind(ep, r, p)) {
			p->orphan = true;
			cause(r, SOAK_UNEVEN);
			p->abort_due = now;
			set_due(ep, i);
		}
	}
}

void
part_closed(struct endpoint *ep)
{
	uint32_t i;

	for (i = 0; i < ep->w->places; i++) {
		struct part *p = &ep->parts[i];

		if (p->state == PART_OPEN) {
			check_pages(ep, i, false);
			done(ep, i, SOAK_DONE);
		} else if (p->state == PART_RELEASE) {
			done(ep, i, SOAK_DONE);
		}
	}
}
