/* SPDX-License-Identifier: BSD-3-Clause */
/* Posting: what stands in the submission ring and arena, and what is refused before it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/endpoint.h"
#include "common/suite.h"
#include "unit/client/fake_engine.h"

static const uint32_t ids_a[] = {5, 2, 11, 4};
static const uint32_t ids_b[] = {7};

static int
send_chunk(struct kvf_endpoint *ep, uint64_t room, uint64_t start, uint64_t num, uint64_t total,
	struct kvf_err *err)
{
	const struct kvf_send_args a = {
		.room = room, .start_token = start, .num_tokens = num, .total_tokens = total};

	return kvf_send(ep, &a, err);
}

static int
recv_room(struct kvf_endpoint *ep, uint64_t room, struct kvf_err *err)
{
	const struct kvf_recv_args a = {.room = room, .total_tokens = 64};

	return kvf_recv(ep, &a, err);
}

static int
recv_ids(struct kvf_endpoint *ep, uint64_t room, const uint32_t *ids, uint32_t count,
	struct kvf_err *err)
{
	const struct kvf_pages l = {.count = count, .ids = ids};
	const struct kvf_recv_args a = {
		.room = room, .total_tokens = 64, .lists = &l, .num_lists = 1};

	return kvf_recv(ep, &a, err);
}

static void
test_recv(void)
{
	const struct kvf_pages lists[] = {
		{.list = 3, .count = 4, .ids = ids_a},
		{.list = 0, .count = 0, .ids = NULL},
		{.list = 7, .count = 1, .ids = ids_b},
	};
	struct kvf_recv_args a = {
		.room = 0xfedcba9876543210ull,
		.key = 99,
		.prefill_group = "prefill-group-name-of-31-bytes.",
		.prefix_tokens = 16,
		.total_tokens = 90,
		.lists = lists,
		.num_lists = 3,
		.bootstrap_timeout_ms = 11,
		.waiting_timeout_ms = 22,
	};
	static const uint8_t zero[32];
	struct kvf_endpoint *ep;
	struct kvf_sqe sqe;
	struct fake f;

	ep = fake_open(&f, KVF_DECODE);
	CHECK_EQ(kvf_room_status(ep, a.room), KVF_E_NOENT);
	CHECK_EQ(kvf_recv(ep, &a, NULL), 0);
	CHECK_EQ(kvf_room_status(ep, a.room), KVF_BOOTSTRAPPING);
	CHECK_EQ(kvf_room_drained(ep, a.room), 0);
	CHECK_EQ(fake_waiting(&f), 1);
	fake_peek(&f, 0, &sqe);
	CHECK_EQ(sqe.op, KVF_OP_RECV);
	CHECK_EQ(sqe.code, 0);
	CHECK_EQ(sqe.room, a.room);
	CHECK_EQ(sqe.seq, 1);
	CHECK_EQ(sqe.key, 99);
	CHECK_EQ(sqe.start, 16);
	CHECK_EQ(sqe.tokens, 0);
	CHECK_EQ(sqe.total, 90);
	CHECK_EQ(sqe.bootstrap_timeout_ms, 11);
	CHECK_EQ(sqe.waiting_timeout_ms, 22);
	CHECK(memcmp(sqe.group, "prefill-group-name-of-31-bytes.", 32) == 0);
	CHECK_EQ(sqe.num_lists, 3);
	CHECK(sqe.lists[0].list == 3 && sqe.lists[0].count == 4);
	CHECK(memcmp(fake_ids(&f, &sqe, 0), ids_a, sizeof(ids_a)) == 0);
	CHECK(sqe.lists[1].list == 0 && sqe.lists[1].count == 0);
	CHECK(sqe.lists[2].list == 7 && sqe.lists[2].count == 1);
	CHECK_EQ(fake_ids(&f, &sqe, 2)[0], 7);
	CHECK(memcmp(sqe.reserved1, zero, sizeof(zero)) == 0 && sqe.flags == 0);
	fake_take(&f, 1);
	/* Next room: next seq, the endpoint's limits, any group, no list. */
	CHECK_EQ(recv_room(ep, 2, NULL), 0);
	fake_next(&f, &sqe);
	CHECK_EQ(sqe.seq, 2);
	CHECK_EQ(sqe.bootstrap_timeout_ms, 300000);
	CHECK_EQ(sqe.waiting_timeout_ms, 300000);
	CHECK_EQ(sqe.group[0], 0);
	CHECK_EQ(sqe.num_lists, 0);
	fake_finish(&f, ep, 0);
}

static void
test_recv_exists(void)
{
	struct kvf_endpoint *ep;
	struct kvf_sqe sqe;
	struct kvf_err err;
	struct fake f;

	ep = fake_open(&f, KVF_DECODE);
	CHECK_EQ(recv_room(ep, 5, &err), 0);
	fake_next(&f, &sqe);
	CHECK_EQ(recv_room(ep, 5, &err), KVF_E_EXIST);
	CHECK_STR_HAS(err.text, "room=5");
	CHECK_STR_HAS(err.text, "state=Bootstrapping");
	fake_say(&f, 5, 1, KVF_SUCCESS, KVF_CQE_DRAINED);
	CHECK_EQ(kvf_room_status(ep, 5), KVF_SUCCESS);
	CHECK_EQ(recv_room(ep, 5, &err), KVF_E_EXIST);
	CHECK_STR_HAS(err.text, "state=Success");
	/* Released: the id is free again, at Bootstrapping, under a seq of its own. */
	CHECK_EQ(kvf_room_release(ep, 5, &err), 0);
	fake_next(&f, &sqe);
	CHECK_EQ(sqe.op, KVF_OP_RELEASE);
	CHECK_EQ(sqe.room, 5);
	CHECK_EQ(sqe.seq, 1);
	CHECK_EQ(recv_room(ep, 5, &err), 0);
	fake_next(&f, &sqe);
	CHECK_EQ(sqe.seq, 2);
	CHECK_EQ(kvf_room_status(ep, 5), KVF_BOOTSTRAPPING);
	CHECK_EQ(kvf_room_drained(ep, 5), 0);
	fake_finish(&f, ep, 0);
}

static void
test_send_chunks(void)
{
	const struct kvf_pages l = {.list = 1, .count = 4, .ids = ids_a};
	struct kvf_send_args a = {.room = 8,
		.key = 3,
		.start_token = 32,
		.num_tokens = 0,
		.total_tokens = 100,
		.lists = &l};
	struct kvf_endpoint *ep;
	struct kvf_sqe sqe;
	struct kvf_err err;
	struct fake f;

	ep = fake_open(&f, KVF_PREFILL);
	/* Joins early with nothing, then two chunks. */
	CHECK_EQ(kvf_send(ep, &a, &err), 0);
	a.num_tokens = 64;
	a.num_lists = 1;
	CHECK_EQ(kvf_send(ep, &a, &err), 0);
	CHECK_EQ(send_chunk(ep, 9, 0, 1, 1, &err), 0);
	a.start_token = 96;
	a.num_tokens = 4;
	CHECK_EQ(kvf_send(ep, &a, &err), 0);
	CHECK_EQ(fake_waiting(&f), 4);
	fake_next(&f, &sqe);
	CHECK(sqe.op == KVF_OP_SEND && sqe.room == 8 && sqe.seq == 1 && sqe.key == 3);
	CHECK(sqe.start == 32 && sqe.tokens == 0 && sqe.total == 100 && sqe.num_lists == 0);
	fake_peek(&f, 0, &sqe);
	CHECK(sqe.room == 8 && sqe.seq == 1 && sqe.start == 32 && sqe.tokens == 64);
	CHECK(memcmp(fake_ids(&f, &sqe, 0), ids_a, sizeof(ids_a)) == 0);
	fake_take(&f, 1);
	fake_next(&f, &sqe);
	CHECK(sqe.room == 9 && sqe.seq == 2);
	fake_next(&f, &sqe);
	CHECK(sqe.room == 8 && sqe.seq == 1 && sqe.start == 96 && sqe.tokens == 4);
	fake_finish(&f, ep, 0);
}

static void
test_send_order(void)
{
	struct kvf_send_args keyed = {
		.room = 1, .key = 5, .start_token = 16, .num_tokens = 1, .total_tokens = 100};
	struct kvf_endpoint *ep;
	struct kvf_err err;
	struct fake f;

	ep = fake_open(&f, KVF_PREFILL);
	CHECK_EQ(send_chunk(ep, 1, 0, 16, 100, &err), 0);
	CHECK_EQ(send_chunk(ep, 1, 32, 16, 100, &err), KVF_E_ORDER); /* gap */
	CHECK_STR_HAS(err.text, "room=1");
	CHECK_STR_HAS(err.text, "expected=16, got=32");
	CHECK_EQ(send_chunk(ep, 1, 15, 16, 100, &err), KVF_E_ORDER); /* overlap */
	CHECK_STR_HAS(err.text, "expected=16, got=15");
	CHECK_EQ(send_chunk(ep, 1, 16, 16, 101, &err), KVF_E_ORDER);
	CHECK_STR_HAS(err.text, "expected=100, got=101");
	CHECK_EQ(kvf_send(ep, &keyed, &err), KVF_E_ORDER);
	CHECK_STR_HAS(err.text, "expected=0x0, got=0x5");
	CHECK_EQ(fake_waiting(&f), 1); /* nothing of all that was posted */
	/* The room did not suffer. */
	CHECK_EQ(send_chunk(ep, 1, 16, 84, 100, &err), 0);
	CHECK_EQ(send_chunk(ep, 1, 100, 0, 100, &err), KVF_E_ORDER);
	CHECK_STR_HAS(err.text, "the final chunk was posted");
	/* A full prefix hit and an empty prompt: their only chunk is final. */
	CHECK_EQ(send_chunk(ep, 2, 64, 0, 64, &err), 0);
	CHECK_EQ(send_chunk(ep, 2, 64, 0, 64, &err), KVF_E_ORDER);
	CHECK_EQ(send_chunk(ep, 3, 0, 0, 0, &err), 0);
	CHECK_EQ(send_chunk(ep, 3, 0, 0, 0, &err), KVF_E_ORDER);
	CHECK_EQ(fake_waiting(&f), 4);
	fake_finish(&f, ep, 0);
}

static void
test_send_after_end(void)
{
	struct kvf_endpoint *ep;
	struct kvf_sqe sqe;
	struct kvf_err err;
	struct fake f;

	ep = fake_open(&f, KVF_PREFILL);
	CHECK_EQ(send_chunk(ep, 1, 0, 16, 100, &err), 0);
	CHECK_EQ(send_chunk(ep, 2, 0, 16, 16, &err), 0);
	CHECK_EQ(send_chunk(ep, 3, 0, 16, 100, &err), 0);
	fake_take(&f, 3);
	fake_fail(&f, 1, 1, KVF_E_MISMATCH, "row bytes src=64 dst=128", 0);
	fake_say(&f, 2, 2, KVF_SUCCESS, 0);
	CHECK_EQ(kvf_room_status(ep, 1), KVF_FAILED);
	CHECK_EQ(send_chunk(ep, 1, 16, 16, 100, &err), KVF_E_EXIST);
	CHECK_STR_HAS(err.text, "MISMATCH");
	CHECK_STR_HAS(err.text, "row bytes src=64 dst=128");
	CHECK_EQ(send_chunk(ep, 2, 16, 0, 16, &err), KVF_E_EXIST);
	CHECK_STR_HAS(err.text, "state=Success");
	CHECK_EQ(kvf_abort(ep, 3, "enough", &err), 0);
	fake_next(&f, &sqe);
	CHECK_EQ(send_chunk(ep, 3, 16, 16, 100, &err), KVF_E_EXIST);
	CHECK_STR_HAS(err.text, "room=3 was aborted here");
	CHECK_EQ(fake_waiting(&f), 0);
	fake_finish(&f, ep, 0);
}

static void
test_bad_args(void)
{
	const struct kvf_pages twice[] = {
		{.list = 2, .count = 1, .ids = ids_b}, {.list = 2, .count = 0, .ids = NULL}};
	const struct kvf_pages high = {.list = 8, .count = 1, .ids = ids_b};
	const struct kvf_pages null = {.list = 1, .count = 1, .ids = NULL};
	struct kvf_pages nine[9] = {{0}};
	struct kvf_recv_args r = {.room = 1, .total_tokens = 10};
	struct kvf_send_args s = {.room = 1, .total_tokens = 10};
	struct kvf_endpoint *dec, *pre;
	struct kvf_err err;
	struct fake fd, fp;
	uint32_t i;

	dec = fake_open(&fd, KVF_DECODE);
	pre = fake_open(&fp, KVF_PREFILL);
	CHECK_EQ(kvf_recv(NULL, &r, &err), KVF_E_INVAL);
	CHECK_EQ(kvf_recv(dec, NULL, &err), KVF_E_INVAL);
	CHECK_EQ(kvf_send(NULL, &s, &err), KVF_E_INVAL);
	CHECK_EQ(kvf_send(pre, NULL, &err), KVF_E_INVAL);
	CHECK_EQ(kvf_recv(pre, &r, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "prefill endpoint");
	CHECK_EQ(kvf_send(dec, &s, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "decode endpoint");
	r.prefix_tokens = 11;
	CHECK_EQ(kvf_recv(dec, &r, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "prefix_tokens=11 is past total_tokens=10");
	r.prefix_tokens = 0;
	r.total_tokens = (1ull << 62) + 1;
	CHECK_EQ(kvf_recv(dec, &r, &err), KVF_E_OVERFLOW);
	CHECK_STR_HAS(err.text, "total_tokens=4611686018427387905, limit=4611686018427387904");
	r.total_tokens = 10;
	r.prefill_group = "a-group-name-that-is-32-bytes-xx";
	CHECK_EQ(kvf_recv(dec, &r, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "length=32, limit=31");
	r.prefill_group = NULL;
	s.start_token = 8;
	s.num_tokens = 3;
	CHECK_EQ(kvf_send(pre, &s, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "start_token=8 + num_tokens=3 is past total_tokens=10");
	s.start_token = UINT64_MAX;
	CHECK_EQ(kvf_send(pre, &s, &err), KVF_E_OVERFLOW);
	CHECK_STR_HAS(err.text, "start_token=18446744073709551615");
	s.start_token = 0;
	s.num_tokens = UINT64_MAX;
	CHECK_EQ(kvf_send(pre, &s, &err), KVF_E_OVERFLOW);
	s.num_tokens = 10;
	for (i = 0; i < 9; i++)
		nine[i].list = i;
	r.lists = nine;
	r.num_lists = 9;
	CHECK_EQ(kvf_recv(dec, &r, &err), KVF_E_QUOTA);
	CHECK_STR_HAS(err.text, "num_lists=9, limit=8");
	r.lists = twice;
	r.num_lists = 2;
	CHECK_EQ(kvf_recv(dec, &r, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "list=2 is given twice");
	r.num_lists = 1;
	r.lists = &high;
	CHECK_EQ(kvf_recv(dec, &r, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "list=8 must be below limit=8");
	r.lists = &null;
	CHECK_EQ(kvf_recv(dec, &r, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "list=1: count=1 without ids");
	r.lists = NULL;
	CHECK_EQ(kvf_recv(dec, &r, &err), KVF_E_INVAL);
	s.num_lists = 1;
	CHECK_EQ(kvf_send(pre, &s, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "num_lists=1 without an array");
	CHECK_EQ(kvf_abort(NULL, 1, NULL, &err), KVF_E_INVAL);
	CHECK_EQ(kvf_room_release(NULL, 1, &err), KVF_E_INVAL);
	/* Nothing was posted and no room exists. */
	CHECK_EQ(fake_waiting(&fd) + fake_waiting(&fp), 0);
	CHECK_EQ(kvf_room_status(dec, 1), KVF_E_NOENT);
	CHECK_EQ(kvf_room_status(pre, 1), KVF_E_NOENT);
	/* Eight lists, and a total at the limit, are fine. */
	r.lists = nine;
	r.num_lists = 8;
	r.total_tokens = 1ull << 62;
	CHECK_EQ(kvf_recv(dec, &r, &err), 0);
	fake_finish(&fd, dec, 0);
	fake_finish(&fp, pre, 0);
}

static void
test_rooms_quota(void)
{
	struct kvf_endpoint *ep;
	struct kvf_err err;
	struct fake f;

	ep = fake_pair(&f, KVF_DECODE, 8, 16, 4096, 2);
	CHECK_EQ(recv_room(ep, 1, &err), 0);
	CHECK_EQ(recv_room(ep, 2, &err), 0);
	CHECK_EQ(recv_room(ep, 3, &err), KVF_E_QUOTA);
	CHECK_STR_HAS(err.text, "rooms=2 are held, max_rooms=2");
	CHECK_EQ(fake_waiting(&f), 2);
	fake_take(&f, 2);
	fake_say(&f, 1, 1, KVF_SUCCESS, KVF_CQE_DRAINED);
	CHECK_EQ(kvf_room_release(ep, 1, &err), 0);
	CHECK_EQ(recv_room(ep, 3, &err), 0);
	fake_finish(&f, ep, 0);
}

static void
test_ring_full(void)
{
	struct kvf_endpoint *ep;
	struct kvf_sqe sqe;
	struct kvf_err err;
	struct fake f;
	uint64_t i;

	ep = fake_pair(&f, KVF_PREFILL, 4, 16, 4096, 32);
	/* Room 1 ends early, so that there is one to release. */
	CHECK_EQ(send_chunk(ep, 1, 0, 1, 1, &err), 0);
	fake_take(&f, 1);
	fake_say(&f, 1, 1, KVF_SUCCESS, KVF_CQE_DRAINED);
	for (i = 0; i < 4; i++)
		CHECK_EQ(send_chunk(ep, 2, i, 1, 100, &err), 0);
	CHECK_EQ(send_chunk(ep, 2, 4, 1, 100, &err), KVF_E_AGAIN);
	CHECK_STR_HAS(err.text, "waiting=4, sq_entries=4");
	CHECK_EQ(send_chunk(ep, 3, 0, 1, 1, &err), KVF_E_AGAIN);
	CHECK_EQ(kvf_room_status(ep, 3), KVF_E_NOENT);
	CHECK_EQ(kvf_abort(ep, 2, "x", &err), KVF_E_AGAIN);
	CHECK_EQ(kvf_room_release(ep, 1, &err), KVF_E_AGAIN);
	CHECK_EQ(kvf_room_status(ep, 1), KVF_SUCCESS); /* still held */
	CHECK_EQ(fake_waiting(&f), 4);
	fake_take(&f, 1);
	/* The same chunk again: the order was not disturbed. */
	CHECK_EQ(send_chunk(ep, 2, 4, 1, 100, &err), 0);
	CHECK_EQ(kvf_abort(ep, 2, "x", &err), KVF_E_AGAIN);
	fake_take(&f, 4);
	CHECK_EQ(send_chunk(ep, 3, 0, 1, 1, &err), 0);
	fake_next(&f, &sqe);
	CHECK_EQ(sqe.seq, 3); /* the refused try used none up */
	CHECK_EQ(kvf_abort(ep, 2, "x", &err), 0);
	CHECK_EQ(kvf_room_release(ep, 1, &err), 0);
	fake_next(&f, &sqe);
	CHECK(sqe.op == KVF_OP_ABORT && sqe.room == 2 && sqe.seq == 2);
	fake_next(&f, &sqe);
	CHECK(sqe.op == KVF_OP_RELEASE && sqe.room == 1 && sqe.seq == 1);
	fake_finish(&f, ep, 0);
}

static void
test_arena_full(void)
{
	static uint32_t ids[1025];
	const struct kvf_pages two[] = {
		{.list = 0, .count = 600, .ids = ids}, {.list = 1, .count = 425, .ids = ids}};
	struct kvf_recv_args a = {.room = 1, .total_tokens = 64, .lists = two, .num_lists = 2};
	struct kvf_endpoint *ep;
	struct kvf_sqe sqe;
	struct kvf_err err;
	struct fake f;

	ep = fake_open(&f, KVF_DECODE); /* 4096 bytes: 1024 ids */
	CHECK_EQ(recv_ids(ep, 1, ids, 1025, &err), KVF_E_QUOTA);
	CHECK_STR_HAS(err.text, "needed=4100, arena=4096");
	CHECK_EQ(kvf_recv(ep, &a, &err), KVF_E_QUOTA); /* together they can never fit */
	CHECK_EQ(recv_ids(ep, 1, ids, 1024, &err), 0);
	CHECK_EQ(recv_ids(ep, 2, ids, 3, &err), KVF_E_AGAIN);
	CHECK_STR_HAS(err.text, "needed=12, waiting=4096, arena=4096");
	CHECK_EQ(kvf_room_status(ep, 2), KVF_E_NOENT);
	CHECK_EQ(recv_room(ep, 3, &err), 0);                  /* needs no arena */
	CHECK_EQ(recv_ids(ep, 10, ids, KVF_SQ_IDS, &err), 0); /* nor does this */
	CHECK_EQ(fake_waiting(&f), 3);
	fake_take(&f, 1);
	CHECK_EQ(recv_ids(ep, 2, ids, 3, &err), 0);
	fake_take(&f, 3);
	/* From an odd offset: the whole arena at once, because it is empty. */
	CHECK_EQ(recv_ids(ep, 4, ids, 1024, &err), 0);
	fake_take(&f, 1);
	CHECK_EQ(recv_ids(ep, 5, ids, 700, &err), 0);
	CHECK_EQ(recv_ids(ep, 6, ids, 200, &err), 0);
	fake_take(&f, 1);
	/* 300 do not fit behind 900; at the start there are 700 free: it wraps whole. */
	CHECK_EQ(recv_ids(ep, 7, ids, 300, &err), 0);
	fake_peek(&f, 1, &sqe);
	CHECK_EQ(sqe.lists[0].arena_off, 0);
	CHECK_EQ(recv_ids(ep, 8, ids, 401, &err), KVF_E_AGAIN);
	CHECK_EQ(recv_ids(ep, 8, ids, 400, &err), 0);
	CHECK_EQ(recv_ids(ep, 9, ids, 3, &err), KVF_E_AGAIN);
	fake_finish(&f, ep, 0);
}

/* An entry without lists, posted before the empty arena started over, gives no space back twice. */
static void
test_arena_rewound(void)
{
	static uint32_t ids[1024];
	struct kvf_endpoint *ep;
	struct kvf_err err;
	struct fake f;

	ep = fake_open(&f, KVF_DECODE);
	CHECK_EQ(recv_ids(ep, 1, ids, 100, &err), 0);
	fake_take(&f, 1);
	CHECK_EQ(kvf_abort(ep, 1, NULL, &err), 0);
	CHECK_EQ(recv_ids(ep, 2, ids, 600, &err), 0);
	fake_take(&f, 1); /* the abort */
	CHECK_EQ(recv_ids(ep, 3, ids, 424, &err), 0);
	CHECK_EQ(recv_ids(ep, 4, ids, 3, &err), KVF_E_AGAIN);
	fake_take(&f, 1);
	CHECK_EQ(recv_ids(ep, 4, ids, 600, &err), 0);
	CHECK_EQ(recv_ids(ep, 5, ids, 3, &err), KVF_E_AGAIN);
	fake_finish(&f, ep, 0);
}

struct posted {
	uint64_t room;
	uint32_t num_lists;
	uint32_t count[KVF_MAX_LISTS];
	uint32_t first[KVF_MAX_LISTS];
};

/* What the engine finds must be what was posted, however the arena wraps. */
static void
verify(const struct fake *f, const struct posted *p)
{
	struct kvf_sqe sqe;
	uint32_t i, k;

	fake_peek(f, 0, &sqe);
	CHECK_EQ(sqe.room, p->room);
	CHECK_EQ(sqe.num_lists, p->num_lists);
	for (i = 0; i < p->num_lists; i++) {
		const uint32_t *got;
		int bad = 0;

		CHECK_EQ(sqe.lists[i].list, i);
		CHECK_EQ(sqe.lists[i].count, p->count[i]);
		got = fake_ids(f, &sqe, i);
		for (k = 0; k < p->count[i]; k++)
			bad += got[k] != p->first[i] + k;
		CHECK_EQ(bad, 0);
	}
}

static void
test_arena_random(void)
{
	uint64_t state = suite_seed(), room = 0;
	uint32_t queue_len = 0, again = 0, posted = 0;
	static uint32_t ids[KVF_MAX_LISTS][2048];
	struct posted queue[8];
	struct kvf_endpoint *ep;
	struct kvf_err err;
	struct fake f;
	int step;

	ep = fake_pair(&f, KVF_DECODE, 8, 16, 8192, 4096);
	for (step = 0; step < 12000; step++) {
		struct kvf_pages lists[KVF_MAX_LISTS];
		struct posted p = {.room = room + 1};
		struct kvf_recv_args a = {.room = room + 1, .total_tokens = 1, .lists = lists};
		uint32_t i, k;
		int rc;

		if (suite_range(&state, 0, 99) < 45) {
			if (queue_len == 0)
				continue;
			verify(&f, &queue[0]);
			fake_take(&f, 1);
			memmove(queue, queue + 1, --queue_len * sizeof(queue[0]));
			continue;
		}
		p.num_lists = (uint32_t)suite_range(&state, 0, KVF_MAX_LISTS);
		for (i = 0; i < p.num_lists; i++) {
			p.count[i] = (uint32_t)suite_range(
				&state, 0, step % 7 == 0 ? 2048 / p.num_lists : 120);
			p.first[i] = (uint32_t)suite_rand(&state);
			for (k = 0; k < p.count[i]; k++)
				ids[i][k] = p.first[i] + k;
			lists[i] =
				(struct kvf_pages){.list = i, .count = p.count[i], .ids = ids[i]};
		}
		a.num_lists = p.num_lists;
		if (room == 4096)
			break;
		rc = kvf_recv(ep, &a, &err);
		CHECK(rc == 0 || rc == KVF_E_AGAIN);
		/* With nothing waiting, everything that can fit does fit. */
		CHECK(rc == 0 || queue_len > 0);
		if (rc != 0) {
			again++;
			CHECK_EQ(kvf_room_status(ep, room + 1), KVF_E_NOENT);
			continue;
		}
		queue[queue_len++] = p;
		room++;
		posted++;
	}
	CHECK(again > 50 && posted > 1000);
	fake_finish(&f, ep, 0);
}

static void
test_abort(void)
{
	static uint32_t ids[1024];
	char reason[300];
	struct kvf_endpoint *ep;
	struct kvf_sqe sqe;
	struct kvf_err err;
	struct fake f;

	ep = fake_open(&f, KVF_DECODE);
	CHECK_EQ(kvf_abort(ep, 1, "why", &err), KVF_E_NOENT);
	CHECK_STR_HAS(err.text, "room=1");
	CHECK_EQ(recv_room(ep, 1, &err), 0);
	fake_take(&f, 1);
	CHECK_EQ(kvf_abort(ep, 1, "input too long", &err), 0);
	fake_peek(&f, 0, &sqe);
	CHECK_EQ(sqe.op, KVF_OP_ABORT);
	CHECK_EQ(sqe.code, KVF_E_ABORTED);
	CHECK(sqe.room == 1 && sqe.seq == 1 && sqe.num_lists == 1);
	CHECK_EQ(sqe.lists[0].count, 14);
	CHECK(memcmp(f.ring.arena + sqe.lists[0].arena_off, "input too long", 14) == 0);
	fake_take(&f, 1);
	/* The engine decides how the room ended; until then nothing changes here. */
	CHECK_EQ(kvf_room_status(ep, 1), KVF_BOOTSTRAPPING);
	CHECK_EQ(kvf_abort(ep, 1, "again", &err), 0);
	CHECK_EQ(fake_waiting(&f), 0);
	fake_fail(&f, 1, 1, KVF_E_ABORTED, "room=1 aborted: input too long", KVF_CQE_DRAINED);
	CHECK_EQ(kvf_room_error(ep, 1, &err), KVF_E_ABORTED);
	CHECK_STR_HAS(err.text, "input too long");
	CHECK_EQ(kvf_abort(ep, 1, "again", &err), 0);
	CHECK_EQ(fake_waiting(&f), 0);
	/* Without a reason, with an empty one, with one that is cut. */
	CHECK_EQ(recv_room(ep, 2, &err), 0);
	CHECK_EQ(recv_room(ep, 3, &err), 0);
	CHECK_EQ(recv_room(ep, 4, &err), 0);
	CHECK_EQ(kvf_abort(ep, 2, NULL, &err), 0);
	CHECK_EQ(kvf_abort(ep, 3, "", &err), 0);
	memset(reason, 'r', sizeof(reason));
	reason[299] = '\0';
	CHECK_EQ(kvf_abort(ep, 4, reason, &err), 0);
	fake_take(&f, 3);
	fake_next(&f, &sqe);
	CHECK(sqe.num_lists == 0 && sqe.lists[0].count == 0);
	fake_next(&f, &sqe);
	CHECK(sqe.num_lists == 0 && sqe.lists[0].count == 0);
	fake_next(&f, &sqe);
	CHECK_EQ(sqe.lists[0].count, 200);
	/* A finished room: nothing to abort. */
	CHECK_EQ(recv_room(ep, 5, &err), 0);
	fake_take(&f, 1);
	fake_say(&f, 5, 5, KVF_SUCCESS, 0);
	CHECK_EQ(kvf_abort(ep, 5, "late", &err), 0);
	CHECK_EQ(fake_waiting(&f), 0);
	CHECK_EQ(kvf_room_status(ep, 5), KVF_SUCCESS);
	/* A full arena costs the reason, not the abort. */
	CHECK_EQ(recv_ids(ep, 6, ids, 1024, &err), 0);
	CHECK_EQ(kvf_abort(ep, 6, "no space", &err), 0);
	fake_take(&f, 1);
	fake_next(&f, &sqe);
	CHECK(sqe.op == KVF_OP_ABORT && sqe.room == 6 && sqe.num_lists == 0);
	fake_finish(&f, ep, 0);
	/* As does one that can never fit. */
	ep = fake_pair(&f, KVF_DECODE, 8, 16, 64, 4);
	CHECK_EQ(recv_room(ep, 1, &err), 0);
	CHECK_EQ(kvf_abort(ep, 1, reason, &err), 0);
	fake_take(&f, 1);
	fake_next(&f, &sqe);
	CHECK(sqe.op == KVF_OP_ABORT && sqe.num_lists == 0);
	fake_finish(&f, ep, 0);
}

static void
test_release(void)
{
	struct kvf_endpoint *ep;
	struct kvf_event ev[4];
	struct kvf_sqe sqe;
	struct kvf_err err;
	struct fake f;

	ep = fake_open(&f, KVF_DECODE);
	CHECK_EQ(kvf_room_release(ep, 1, &err), KVF_E_NOENT);
	CHECK_EQ(recv_room(ep, 1, &err), 0);
	fake_take(&f, 1);
	CHECK_EQ(kvf_room_release(ep, 1, &err), KVF_E_BUSY);
	CHECK_STR_HAS(err.text, "room=1");
	CHECK_STR_HAS(err.text, "state=Bootstrapping");
	fake_fail(&f, 1, 1, KVF_E_TIMEOUT, "too late", 0);
	CHECK_EQ(kvf_room_release(ep, 1, &err), KVF_E_BUSY); /* failed, not drained */
	CHECK_STR_HAS(err.text, "state=Failed, drained=0");
	CHECK_EQ(fake_waiting(&f), 0);
	fake_fail(&f, 1, 1, KVF_E_TIMEOUT, "too late", KVF_CQE_DRAINED);
	CHECK_EQ(kvf_room_drained(ep, 1), 1);
	CHECK_EQ(kvf_room_release(ep, 1, &err), 0);
	fake_next(&f, &sqe);
	CHECK(sqe.op == KVF_OP_RELEASE && sqe.room == 1 && sqe.seq == 1);
	/* Forgotten, together with the events that nobody took. */
	CHECK_EQ(kvf_room_status(ep, 1), KVF_E_NOENT);
	CHECK_EQ(kvf_room_drained(ep, 1), KVF_E_NOENT);
	CHECK_EQ(kvf_room_error(ep, 1, &err), KVF_E_NOENT);
	CHECK_EQ(kvf_poll(ep, ev, 4), 0);
	CHECK_EQ(kvf_room_release(ep, 1, &err), KVF_E_NOENT);
	fake_finish(&f, ep, 0);
}

static void
test_doorbell(void)
{
	struct kvf_endpoint *ep;
	struct kvf_err err;
	struct fake f;
	uint64_t i;

	ep = fake_open(&f, KVF_DECODE);
	for (i = 1; i <= 5; i++)
		CHECK_EQ(recv_room(ep, i, &err), 0);
	CHECK_EQ(fake_rings(&f), 0);
	fake_take(&f, 5);
	atomic_store(&f.ring.hdr->engine_sleeping, 1);
	CHECK_EQ(recv_room(ep, 6, &err), 0);
	CHECK_EQ(fake_rings(&f), 1);
	CHECK_EQ(recv_room(ep, 6, &err), KVF_E_EXIST); /* nothing posted, nothing rung */
	CHECK_EQ(fake_rings(&f), 0);
	CHECK_EQ(kvf_abort(ep, 6, NULL, &err), 0);
	CHECK_EQ(fake_rings(&f), 1);
	atomic_store(&f.ring.hdr->engine_sleeping, 0);
	CHECK_EQ(recv_room(ep, 7, &err), 0);
	CHECK_EQ(fake_rings(&f), 0);
	fake_finish(&f, ep, 0);
}

/* An engine that claims to have taken what was never posted is not believed. */
static void
test_wild_head(void)
{
	static const uint32_t wild[] = {2, 100, 1u << 31, UINT32_MAX};
	size_t i;

	for (i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
		struct kvf_endpoint *ep;
		struct kvf_event ev[4];
		struct kvf_err err;
		struct fake f;

		ep = fake_open(&f, KVF_DECODE);
		CHECK_EQ(recv_room(ep, 1, &err), 0);
		atomic_store(&f.ring.hdr->sq_head, wild[i]);
		CHECK_EQ(recv_room(ep, 2, &err), KVF_E_ENGINE_GONE);
		CHECK_STR_HAS(err.text, "submissions taken=");
		CHECK_EQ(kvf_poll(ep, ev, 4), 1);
		CHECK(ev[0].room == 1 && ev[0].status == KVF_FAILED);
		CHECK_EQ(ev[0].error, KVF_E_PROTO);
		CHECK_EQ(kvf_endpoint_close(ep), KVF_E_ENGINE_GONE);
		fake_end(&f);
	}
}

static const struct suite_case cases[] = {
	{"recv: entry and lists", test_recv},
	{"recv: a room posted before", test_recv_exists},
	{"send: chunks of one room", test_send_chunks},
	{"send: gap, overlap, total, key", test_send_order},
	{"send: the room has ended", test_send_after_end},
	{"bad arguments", test_bad_args},
	{"more rooms than the endpoint has", test_rooms_quota},
	{"ring full", test_ring_full},
	{"arena full, wrapped, too small", test_arena_full},
	{"arena: an empty one starts over", test_arena_rewound},
	{"arena: random lists", test_arena_random},
	{"abort and its reason", test_abort},
	{"release", test_release},
	{"the doorbell is rung only when asked for", test_doorbell},
	{"a wild submission head", test_wild_head},
};

SUITE_MAIN("client_post", cases)
