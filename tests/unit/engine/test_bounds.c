/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What one endpoint can make the dispatcher do: bounded in each round and in memory, so that its
 * neighbours hardly notice. The dispatcher is stepped by hand; rounds are counted, not timed.
 */
#include <stdlib.h>

#include "common/stepped.h"
#include "common/suite.h"

enum {
	P, /* the hostile prefill */
	D,
	Q, /* its neighbours */
	E,
};

#define MS 1000000ull

static const struct stepped_shape plain = {.page_tokens = 1, .layers = 2, .row_bytes = 16};

static struct stepped eng;

/* One prefill and one decode endpoint; `shape` NULL: plain. */
static void
begin(const struct stepped_shape *shape)
{
	if (shape == NULL)
		shape = &plain;
	stepped_group(&eng, P, KVF_PREFILL, 1, "p");
	stepped_group(&eng, D, KVF_DECODE, 1, "d");
	stepped_add(&eng, P, 0, shape);
	stepped_add(&eng, D, 0, shape);
}

static void
init(void)
{
	stepped_init(&eng);
	eng.max_rooms = 8192;
	eng.sq_entries = 1024;
	eng.cq_entries = 8192;
	eng.engine.cfg.max_request_bytes = 4u << 20;
}

/* A posting with one list of pages first, first + 1, ...; count 0: no list. */
static struct kvf_sqe *
post_by(uint32_t g, uint32_t rank, uint8_t op, uint64_t room, uint64_t seq, uint64_t start,
	uint64_t tokens, uint64_t total, uint32_t first, uint32_t count)
{
	struct kvf_ep *ep = &eng.eps[g][rank]->ep;
	uint32_t tail = atomic_load(&ep->ring.hdr->sq_tail),
		 *arena = (uint32_t *)(void *)ep->ring.arena;
	struct kvf_sqe *s = &ep->ring.sq[tail % ep->ring.sq_entries];
	uint32_t i;

	*s = (struct kvf_sqe){.op = op,
		.room = room,
		.seq = seq,
		.start = start,
		.tokens = tokens,
		.total = total};
	s->bootstrap_timeout_ms = s->waiting_timeout_ms = 1000000;
	s->num_lists = count != 0;
	s->lists[0].count = count;
	if (count > 0 && count <= KVF_SQ_IDS)
		arena = s->lists[0].ids;
	for (i = 0; i < count; i++)
		arena[i] = first + i;
	atomic_store(&ep->ring.hdr->sq_tail, tail + 1);
	return s;
}

static void
post(uint32_t g, uint8_t op, uint64_t room, uint64_t seq, uint64_t start, uint64_t tokens,
	uint64_t total, uint32_t first, uint32_t count)
{
	post_by(g, 0, op, room, seq, start, tokens, total, first, count);
}

/* Until the ring is read; the completions are taken. */
static void
flush(uint32_t g)
{
	struct stepped_ep *e = eng.eps[g][0];
	uint32_t n;

	for (n = 0; n < 1000 && eng.eps[g][0] == e &&
		    e->ep.sq_head != atomic_load(&e->ep.ring.hdr->sq_tail);
		n++) {
		stepped_step(&eng, 1000);
		atomic_store(&e->ep.ring.hdr->cq_head, e->ep.cq_tail);
	}
	CHECK(n < 1000);
}

static void
run(uint32_t rounds)
{
	for (; rounds > 0; rounds--) {
		stepped_step(&eng, 1000);
		stepped_control(&eng);
	}
}

static void
end(void)
{
	uint32_t g, n;

	for (g = 0; g < STEPPED_GROUPS; g++)
		if (eng.eps[g][0] != NULL)
			stepped_kill(&eng, eng.eps[g][0]);
	for (n = 0; n < 5000 && eng.num_eps != 0; n++) {
		stepped_step(&eng, MS);
		stepped_control(&eng);
	}
	stepped_control(&eng);
	stepped_fini(&eng);
}

static uint64_t
load(_Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static const struct stepped_seen *
seen(uint32_t g, uint64_t seq)
{
	const struct stepped_ep *e = eng.eps[g][0];
	uint32_t i;

	for (i = 0; e != NULL && i < e->num_seen; i++)
		if (e->seen[i].seq == seq)
			return &e->seen[i];
	return NULL;
}

static void
test_chunks_of_nothing_are_bounded(void)
{
	struct kvf_ep *ep;
	uint64_t most = 0;
	uint32_t i;

	init();
	begin(NULL);
	run(2);
	ep = &eng.eps[P][0]->ep;
	for (i = 0; i < 200000; i++) {
		post(P, KVF_OP_SEND, 7, 1, 0, 0, 8, 0, 0);
		if (i % 512 != 0)
			continue;
		flush(P);
		if (eng.disp->slab.bytes_used > most)
			most = eng.disp->slab.bytes_used;
	}
	flush(P);
	CHECK(seen(P, 1) != NULL && seen(P, 1)->status == KVF_FAILED);
	CHECK(seen(P, 1) != NULL && (seen(P, 1)->flags & KVF_CQE_DRAINED) != 0);
	CHECK(most > 0 && most < 64u << 20);
	CHECK_EQ(ep->num_chunks, 0);
	CHECK_EQ(ep->request_bytes, 0);
	end();
}

static uint32_t
chunks_of(uint32_t g)
{
	const struct kvf_chunk *c;
	uint32_t n = 0;

	for (c = eng.eps[g][0]->ep.parts->chunks; c != NULL; c = c->next)
		n++;
	return n;
}

static void
test_chunks_of_nothing_hold_nobody_up(void)
{
	const uint32_t chunks = 4000;
	uint32_t i, before, after, most = 0;

	init();
	begin(NULL);
	run(2);
	for (i = 0; i < chunks; i++) {
		post(P, KVF_OP_SEND, 7, 1, 0, 0, 8, 0, 0);
		if (i % 512 == 511)
			flush(P);
	}
	post(P, KVF_OP_SEND, 7, 1, 0, 8, 8, 0, 8);
	flush(P);
	CHECK_EQ(chunks_of(P), chunks + 1);
	post(D, KVF_OP_RECV, 7, 1, 0, 0, 8, 0, 8);
	for (i = 0; i < 3000 && (seen(D, 1) == NULL || seen(D, 1)->status != KVF_SUCCESS); i++) {
		before = chunks_of(P);
		run(1);
		after = chunks_of(P);
		if (before - after > most)
			most = before - after;
	}
	CHECK(i < 3000);
	/* 64 in a turn, 8 turns in a round, and the final ones. */
	CHECK(most <= 64 * 8 + 8);
	CHECK(seen(P, 1) != NULL && seen(P, 1)->status == KVF_SUCCESS);
	end();
}

static void
test_chunks_of_nothing_are_no_progress(void)
{
	uint32_t i;

	init();
	begin(NULL);
	run(2);
	post(D, KVF_OP_RECV, 7, 1, 0, 0, 8, 0, 8);
	post(P, KVF_OP_SEND, 7, 1, 0, 1, 8, 0, 1);
	run(10);
	CHECK(seen(D, 1) != NULL && seen(D, 1)->status == KVF_TRANSFERRING);
	/* The receiver waits for 1000 s as posted; here come 1100 s of nothing. */
	for (i = 0; i < 1100; i++) {
		post(P, KVF_OP_SEND, 7, 1, 1, 0, 8, 0, 0);
		stepped_step(&eng, 1000 * MS);
	}
	run(2);
	CHECK(seen(D, 1) != NULL && seen(D, 1)->status == KVF_FAILED);
	CHECK_EQ(eng.eps[D][0]->ep.parts->room->err.code, KVF_E_TIMEOUT);
	end();
}

/* Neighbours with a request of their own. */
static void
neighbours(void)
{
	stepped_group(&eng, Q, KVF_PREFILL, 1, "q");
	stepped_group(&eng, E, KVF_DECODE, 1, "e");
	stepped_add(&eng, Q, 0, &plain);
	stepped_add(&eng, E, 0, &plain);
	run(2);
}

static void
test_death_with_many_rooms(void)
{
	const uint32_t rooms = 5000;
	uint64_t before, most = 0;
	uint32_t i, k;

	init();
	begin(NULL);
	neighbours();
	for (i = 0; i < rooms; i++) {
		post(D, KVF_OP_RECV, 100 + i, 1 + i, 8, 0, 8, 0, 0);
		if (i % 512 == 511)
			flush(D);
	}
	flush(D);
	CHECK_EQ(eng.disp->num_rooms, rooms);
	stepped_kill(&eng, eng.eps[D][0]);
	post(E, KVF_OP_RECV, 1, 1, 0, 0, 4, 0, 4);
	post(Q, KVF_OP_SEND, 1, 1, 0, 4, 4, 0, 4);
	for (i = 0; i < 1000 && eng.num_eps != 3; i++) {
		uint32_t held = eng.disp->num_rooms;

		before = load(&eng.disp->totals.rooms_failed);
		run(1);
		before = load(&eng.disp->totals.rooms_failed) - before;
		if (before > most)
			most = before;
		CHECK(held - eng.disp->num_rooms <= 1024 || held < eng.disp->num_rooms);
		/* The neighbours are done before the dead one is. */
		if (load(&eng.disp->totals.rooms_failed) == rooms)
			CHECK(load(&eng.disp->totals.rooms_success) == 2);
	}
	CHECK(i < 1000);
	CHECK(most <= 1024);
	CHECK_EQ(load(&eng.disp->totals.rooms_failed), rooms);
	CHECK_EQ(eng.disp->num_rooms, 1);
	for (k = 0; k < 2; k++)
		CHECK(seen(k == 0 ? Q : E, 1) != NULL &&
			seen(k == 0 ? Q : E, 1)->status == KVF_SUCCESS);
	end();
}

static void
test_link_with_many_waiting(void)
{
	const uint32_t rooms = 3000;
	uint64_t released = 0;
	uint32_t i, told, last = 0, most = 0;
	const struct kvf_part *p;

	init();
	begin(NULL);
	run(2);
	for (i = 0; i < rooms; i++) {
		post(D, KVF_OP_RECV, i, 1 + i, 8, 0, 8, 0, 0);
		post(P, KVF_OP_SEND, i, 1 + i, 8, 0, 8, 0, 0);
		if (i % 256 == 255) {
			flush(P);
			flush(D);
		}
	}
	flush(P);
	flush(D);
	/* Control has not answered yet. Some give up meanwhile, from the oldest on. */
	for (i = 0; i < 500; i++) {
		post(P, KVF_OP_ABORT, i * 2, 1 + i * 2, 0, 0, 0, 0, 0);
		flush(P);
		post(P, KVF_OP_RELEASE, i * 2, 1 + i * 2, 0, 0, 0, 0, 0);
		post(D, KVF_OP_RELEASE, i * 2, 1 + i * 2, 0, 0, 0, 0, 0);
		stepped_step(&eng, 1000);
		flush(P);
		flush(D);
		released++;
	}
	CHECK_EQ(eng.disp->num_rooms, rooms - released);
	stepped_control(&eng);
	for (i = 0; i < 100 && last < rooms - released; i++) {
		stepped_step(&eng, 1000);
		atomic_store(&eng.eps[D][0]->ep.ring.hdr->cq_head, eng.eps[D][0]->ep.cq_tail);
		for (p = eng.eps[D][0]->ep.parts, told = 0; p != NULL; p = p->ep_next)
			told += p->linked;
		if (told - last > most)
			most = told - last;
		last = told;
	}
	CHECK_EQ(last, rooms - released);
	CHECK(most <= 256);
	end();
}

/* One slice is what a neighbour may have to wait for. */
static void
test_long_rows_are_cut(void)
{
	const struct stepped_shape wide = {.page_tokens = 2,
		.layers = 2,
		.row_bytes = (3u << 20) + 5,
		.row_bytes1 = 10,
		.state = true,
		.state_tokens = 1};
	uint64_t rand = suite_seed(), i;
	struct stepped_ep *p, *d;
	uint8_t *from, *to;

	init();
	begin(&wide);
	run(2);
	p = eng.eps[P][0];
	d = eng.eps[D][0];
	from = p->pool;
	to = d->pool;
	for (i = 0; i < p->ep.pool.length; i += 1 + i % 3)
		from[i] = (uint8_t)suite_rand(&rand);
	post(D, KVF_OP_RECV, 7, 1, 0, 0, 3, 4, 2);
	post(P, KVF_OP_SEND, 7, 1, 0, 3, 3, 1, 2);
	for (i = 0; i < 3000 && (seen(D, 1) == NULL || seen(D, 1)->status != KVF_SUCCESS); i++)
		run(1);
	CHECK(i < 3000);
	CHECK(eng.longest <= 8 * KVF_SLICE_BYTES);
	for (i = 0; i < 2; i++) {
		const struct kvf_entry *e = &p->ep.reg->components[0].entries[i];
		uint64_t n = e->row_bytes;

		/* Pages 1, 2 go to pages 4, 5: three rows, and not a byte more. */
		CHECK(memcmp(from + e->offset + 2 * n, to + e->offset + 8 * n, 3 * n) == 0);
		CHECK_EQ(to[e->offset + 8 * n - 1], 17);
		CHECK_EQ(to[e->offset + 11 * n], 17);
	}
	end();
}

static void
with_aux(struct kvf_sqe *s, uint32_t slot)
{
	s->lists[s->num_lists++] = (struct kvf_sq_list){.list = 2, .count = 1, .ids = {slot}};
}

/*
 * Two replicas send to two ranks; one of the replicas has the aux to give. A leg that is through
 * with everything may still stand in the queue for tokens that it has no more of, as the last chunk
 * holds some for one rank only.
 */
static void
test_legs_end_in_the_queue(void)
{
	const struct stepped_shape replica = {
		.page_tokens = 1, .layers = 2, .row_bytes = 16, .aux = true};
	const struct stepped_shape rank = {
		.page_tokens = 1, .layers = 2, .row_bytes = 16, .aux = true, .sharded = true};
	uint64_t rand = suite_seed(), seq = 0;
	uint32_t trial, k, r, i, bad = 0;

	init();
	stepped_group(&eng, P, KVF_PREFILL, 2, "p");
	stepped_group(&eng, D, KVF_DECODE, 2, "d");
	for (k = 0; k < 2; k++) {
		stepped_add(&eng, P, k, &replica);
		stepped_add(&eng, D, k, &rank);
	}
	for (trial = 0; trial < 200; trial++) {
		/* Everything but the last token of each room is in slots when that is posted, and
		 * not all of the queue finds a slot at once. */
		eng.hold = true;
		eng.disp->free_slots = KVF_SLOTS_ALL >> (KVF_SLOTS - suite_range(&rand, 9, 12));
		for (r = 0; r < 4; r++) {
			for (k = 0; k < 2; k++) {
				with_aux(post_by(D, k, KVF_OP_RECV, seq + 1 + r, seq + 1 + r, 0, 0,
						 2, r, 1),
					r);
				post_by(P, k, KVF_OP_SEND, seq + 1 + r, seq + 1 + r, 0, 1, 2, 2 * r,
					1);
			}
		}
		run(20);
		for (r = 0; r < 4; r++, seq++)
			for (k = 0; k < 2; k++)
				with_aux(post_by(P, k, KVF_OP_SEND, seq + 1, seq + 1, 1, 1, 2,
						 2 * r + 1, 1),
					r);
		for (i = 0; i < 400; i++) {
			eng.hold = i < 8 && suite_range(&rand, 0, 1) != 0;
			run(1);
		}
		for (k = 0; k < 2; k++) {
			struct stepped_ep *p = eng.eps[P][k], *d = eng.eps[D][k];
			const struct kvf_component *aux = &d->ep.reg->components[1];

			bad += memcmp((uint8_t *)d->pool + aux->entries[0].offset,
				       (uint8_t *)eng.eps[P][0]->pool + aux->entries[0].offset,
				       (size_t)aux->entries[0].row_bytes) != 0;
			CHECK_EQ(p->num_seen, 4);
			CHECK_EQ(d->num_seen, 4);
			for (i = 0; i < 4; i++) {
				bad += p->seen[i].status != KVF_SUCCESS;
				bad += d->seen[i].status != KVF_SUCCESS;
			}
			memset((uint8_t *)d->pool + aux->entries[0].offset, 99, 8);
			p->num_seen = d->num_seen = 0;
		}
		for (r = 0; r < 4; r++)
			for (k = 0; k < 2; k++) {
				post_by(P, k, KVF_OP_RELEASE, seq - r, seq - r, 0, 0, 0, 0, 0);
				post_by(D, k, KVF_OP_RELEASE, seq - r, seq - r, 0, 0, 0, 0, 0);
			}
		run(20);
		for (k = 0; k < 2; k++) {
			struct kvf_ep *p = &eng.eps[P][k]->ep, *d = &eng.eps[D][k]->ep;

			atomic_store(&p->ring.hdr->cq_head, p->cq_tail);
			atomic_store(&d->ring.hdr->cq_head, d->cq_tail);
		}
	}
	CHECK_EQ(bad, 0);
	eng.disp->free_slots = KVF_SLOTS_ALL;
	for (k = 1; k < 2; k++) {
		stepped_kill(&eng, eng.eps[P][k]);
		stepped_kill(&eng, eng.eps[D][k]);
	}
	end();
}

/* More notes from control than the ring holds, and nobody reads: control goes on, and they come
 * later, in order. */
static void
test_notes_wait_their_turn(void)
{
	struct kvf_note note = {.type = NOTE_LINK}, stop = {.type = NOTE_STOP};
	uint32_t i;

	init();
	begin(NULL);
	note.prefill = &eng.groups[P];
	note.decode = &eng.groups[D];
	for (i = 0; i < 2 * KVF_NOTES; i++)
		kvf_tell_dispatcher(&eng.engine, &note); /* of a link that nobody wants */
	kvf_tell_dispatcher(&eng.engine, &stop);
	CHECK(!kvf_flush_dispatcher(&eng.engine));
	stepped_step(&eng, 1000);
	CHECK(!eng.disp->stopping);
	for (i = 0; i < 1000 && !kvf_flush_dispatcher(&eng.engine); i++)
		stepped_step(&eng, 1000);
	CHECK(i > 0 && i < 1000);
	stepped_step(&eng, 1000);
	CHECK(eng.disp->stopping);
	end();
}

/* The other way: the dispatcher does not wait for a control that is busy. */
static void
test_notes_to_a_busy_control(void)
{
	struct kvf_note note = {.type = NOTE_WARN};
	uint32_t i, next = 0;

	init();
	begin(NULL);
	for (i = 0; i < 2 * KVF_NOTES; i++) {
		note.reserved = i;
		kvf_tell_control(&eng.engine, &note);
	}
	for (i = 0; i < 1000 && next < 2 * KVF_NOTES; i++) {
		while (kvf_note_take(eng.engine.to_control, &note))
			CHECK_EQ(note.reserved, next++);
		stepped_step(&eng, 1000); /* sends what was kept */
	}
	CHECK_EQ(next, 2 * KVF_NOTES);
	CHECK(i > 1);
	CHECK(eng.engine.for_control.head == NULL);
	end();
}

static void
test_completions_in_turns(void)
{
	const uint32_t rooms = 5000;
	struct kvf_ep *ep;
	uint32_t i, before, most = 0;

	init();
	begin(NULL);
	run(2);
	ep = &eng.eps[D][0]->ep;
	for (i = 0; i < rooms; i++) {
		post(D, KVF_OP_RECV, i, 1 + i, 8, 0, 8, 0, 0);
		if (i % 512 == 511)
			flush(D);
	}
	flush(D);
	/* All of them end at once, by their limit. */
	eng.now += 1000000 * MS + MS;
	for (i = 0; i < 200 && load(&ep->counters.rooms_open) + (ep->dirty_head != NULL) != 0;
		i++) {
		before = ep->cq_tail;
		stepped_step(&eng, MS);
		if (ep->cq_tail - before > most)
			most = ep->cq_tail - before;
		atomic_store(&ep->ring.hdr->cq_head, ep->cq_tail);
	}
	CHECK(i < 200);
	CHECK(most > 0 && most <= 1024);
	end();
}

static uint8_t
status_of(uint32_t g, uint32_t rank)
{
	const struct stepped_ep *e = eng.eps[g][rank];

	return e->num_seen != 0 ? e->seen[e->num_seen - 1].status : KVF_BOOTSTRAPPING;
}

/*
 * The second sender's last chunk has nothing for the first receiver: the leg between the two comes
 * to its end while another leg is planned, and its last copy ends while it still waits in a queue
 * that is longer than one round. It must not go on to state and aux before the first sender is
 * through with its tokens, or be counted twice: the receiver would have "succeeded" without its
 * aux.
 */
static void
test_taken_along_in_a_long_queue(void)
{
	static const struct stepped_shape bands = {.page_tokens = 2,
		.layers = 1,
		.row_bytes = 16,
		.sharded = true,
		.band = true,
		.aux = true};
	static const struct stepped_shape dealt = {
		.page_tokens = 2, .layers = 1, .row_bytes = 16, .sharded = true, .aux = true};
	uint64_t room;
	uint32_t i;

	init();
	stepped_group(&eng, Q, KVF_PREFILL, 1, "q");
	stepped_group(&eng, E, KVF_DECODE, 1, "e");
	stepped_group(&eng, P, KVF_PREFILL, 2, "p");
	stepped_group(&eng, D, KVF_DECODE, 2, "d");
	stepped_add(&eng, Q, 0, &plain); /* first, so that its postings are read first */
	stepped_add(&eng, E, 0, &plain);
	for (i = 0; i < 2; i++) {
		stepped_add(&eng, P, i, &bands);
		stepped_add(&eng, D, i, &dealt);
	}
	/* 8 tokens: p[0] has 0 to 3, p[1] the others; d[0] gets the even ones. */
	with_aux(post_by(D, 0, KVF_OP_RECV, 1, 1, 0, 0, 8, 0, 2), 0);
	with_aux(post_by(D, 1, KVF_OP_RECV, 1, 1, 0, 0, 8, 0, 2), 0);
	post_by(P, 1, KVF_OP_SEND, 1, 1, 0, 7, 8, 0, 2);
	for (room = 2; room < 9; room++)
		post(E, KVF_OP_RECV, room, room, 0, 0, 1, (uint32_t)room - 2, 1);
	post(Q, KVF_OP_SEND, 2, 2, 0, 0, 1, 0, 0); /* the link of the two */
	eng.hold = true;
	run(10);
	post(Q, KVF_OP_SEND, 2, 2, 0, 1, 1, 0, 1);
	for (room = 3; room < 9; room++)
		post(Q, KVF_OP_SEND, room, room, 0, 1, 1, (uint32_t)room - 2, 1);
	with_aux(post_by(P, 1, KVF_OP_SEND, 1, 1, 7, 1, 8, 1, 1), 0);
	eng.hold = false;
	run(50);
	with_aux(post_by(P, 0, KVF_OP_SEND, 1, 1, 0, 8, 8, 0, 2), 0);
	run(50);
	for (i = 0; i < 2; i++) {
		CHECK_EQ(status_of(P, i), KVF_SUCCESS);
		CHECK_EQ(status_of(D, i), KVF_SUCCESS);
	}
	/* 8 tokens and 2 aux, and 7 tokens in 2 layers. */
	CHECK_EQ(eng.executed, 8 + 2 + 7 * 2);
	for (i = 0; i < 2; i++) {
		stepped_kill(&eng, eng.eps[P][i]);
		stepped_kill(&eng, eng.eps[D][i]);
	}
	end();
}

/* Deadlines near, far, and past the end of the wheel: never early, and at most two ticks late. */
static void
test_deadlines(void)
{
	static const uint32_t ms[] = {1, 40, 99, 1000, 66000, 70000, 200000, 3600000, UINT32_MAX};
	const uint64_t tick = 2 * 8 * MS; /* a tick is 4 ms at most, the look at it 1 ms */
	uint64_t due, start;
	uint32_t i, n = sizeof(ms) / sizeof(ms[0]);

	init();
	begin(NULL);
	run(2);
	start = eng.now;
	for (i = 0; i < n; i++)
		post_by(P, 0, KVF_OP_SEND, 10 + i, 1 + i, 0, 1, 1, 0, 1)->bootstrap_timeout_ms =
			ms[i];
	run(2);
	for (i = 0; i < n; i++) {
		due = start + ms[i] * MS;
		/* In jumps, as an engine that sleeps sees it. */
		while (eng.now + 500 * MS < due)
			stepped_step(&eng, (due - eng.now) / 2);
		if (eng.now < due - MS)
			stepped_step(&eng, due - MS - eng.now);
		CHECK(seen(P, 1 + i) == NULL || seen(P, 1 + i)->status == KVF_BOOTSTRAPPING);
		while (eng.now < due + tick)
			stepped_step(&eng, MS);
		CHECK(seen(P, 1 + i) != NULL && seen(P, 1 + i)->status == KVF_FAILED);
	}
	end();
}

static const struct suite_case cases[] = {
	{"chunks of no token: bounded memory", test_chunks_of_nothing_are_bounded},
	{"chunks of no token: bounded work", test_chunks_of_nothing_hold_nobody_up},
	{"chunks of no token: no progress", test_chunks_of_nothing_are_no_progress},
	{"a death with many rooms is taken in portions", test_death_with_many_rooms},
	{"many rooms wait for one link", test_link_with_many_waiting},
	{"very long rows are cut into columns", test_long_rows_are_cut},
	{"legs end while they stand in the queue", test_legs_end_in_the_queue},
	{"notes wait their turn", test_notes_wait_their_turn},
	{"notes to a busy control", test_notes_to_a_busy_control},
	{"completions go out in portions", test_completions_in_turns},
	{"taken along in a long queue", test_taken_along_in_a_long_queue},
	{"deadlines near and far", test_deadlines},
};

SUITE_MAIN("bounds", cases)
