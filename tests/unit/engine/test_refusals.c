/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every refusal of a posting: code and sentence at both ends, and the next room between the same
 * endpoints works.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"
#include "raw.h"

#define TOTAL 100u /* seven pages of 16 */

static struct cluster c;
static struct cluster_lists d, p; /* good lists for TOTAL tokens */
static uint64_t room = 1000;

static void
setup_with(const struct kvf_engine_config *cfg, const struct cluster_shape *s)
{
	cluster_open(&c, cfg, s);
	cluster_lists(&c, true, 0, 0, TOTAL, 1, &d);
	cluster_lists(&c, false, 0, 0, TOTAL, 2, &p);
	room++;
}

static void
setup(void)
{
	struct cluster_shape s = cluster_small(1, 1, 2);

	setup_with(NULL, &s);
}

/* Both ends failed over it; then a good room. */
static void
refused(int code, const char *text)
{
	struct kvf_err err = {0};
	char id[40];
	int i;

	snprintf(id, sizeof(id), "room=%" PRIu64, room);
	/* Both, before either releases: a room that nobody holds any more is forgotten. */
	if (!CHECK_EQ(cluster_wait(&c, &c.p[0], room, CLUSTER_WAIT_MS), KVF_FAILED) ||
		!CHECK_EQ(cluster_wait(&c, &c.d[0], room, CLUSTER_WAIT_MS), KVF_FAILED))
		return;
	for (i = 0; i < 2; i++) {
		struct peer *who = i == 0 ? &c.p[0] : &c.d[0];

		CHECK_EQ(kvf_room_error(who->ep, room, &err), code);
		CHECK_STR_HAS(err.text, text);
		CHECK_STR_HAS(err.text, id);
		CHECK_EQ(cluster_seen(&c, who, room)->error, code);
		CHECK_EQ(cluster_release(&c, who, room), 0);
	}
	room++;
	cluster_room(&c, room, 0, TOTAL, 48, 3);
	cluster_finish(&c, room, KVF_SUCCESS);
	room++;
}

/* Some of it was copied before the refusal. */
static void
refused_late(int code, const char *text)
{
	CHECK_EQ(cluster_wait(&c, &c.d[0], room, CLUSTER_WAIT_MS), KVF_FAILED);
	peer_forgive(&c.d[0], 0, TOTAL, d.lists, d.num);
	refused(code, text);
}

static void
teardown(void)
{
	cluster_lists_free(&d);
	cluster_lists_free(&p);
	cluster_close(&c);
}

static int
post_recv(uint64_t prefix, uint64_t total)
{
	struct kvf_recv_args a = {.room = room,
		.prefix_tokens = prefix,
		.total_tokens = total,
		.lists = d.lists,
		.num_lists = d.num};
	struct kvf_err err;

	return kvf_recv(c.d[0].ep, &a, &err);
}

static int
post_send(uint64_t start, uint64_t n, uint64_t total, uint32_t num_lists)
{
	struct kvf_send_args a = {.room = room,
		.start_token = start,
		.num_tokens = n,
		.total_tokens = total,
		.lists = p.lists,
		.num_lists = num_lists};
	struct kvf_err err;

	return kvf_send(c.p[0].ep, &a, &err);
}

static void
both(uint64_t prefix, uint64_t recv_total, uint64_t send_total)
{
	CHECK_EQ(post_recv(prefix, recv_total), 0);
	CHECK_EQ(post_send(0, send_total, send_total, p.num), 0);
}

static void
test_capacity(void)
{
	setup();
	p.lists[0].count = 6;
	both(0, TOTAL, TOTAL);
	refused(KVF_E_CAPACITY,
		"num_kv_tokens must fit in the provided source pages, got tokens=100, "
		"capacity=96");
	teardown();
}

static void
test_too_few_pages(void)
{
	setup();
	d.lists[0].count = 6;
	both(0, TOTAL, TOTAL);
	refused(KVF_E_DST_PAGES, "required=7, provided=6, src_page_offset=0, dcp_rank=0");
	d.lists[0].count = 5;
	both(16, TOTAL, TOTAL);
	refused(KVF_E_DST_PAGES, "required=6, provided=5");
	teardown();
}

static void
test_page_outside(void)
{
	uint32_t good;

	setup();
	good = d.pages[2];
	d.pages[2] = 64;
	both(0, TOTAL, TOTAL);
	refused(KVF_E_PAGE, "page=64 at index=2 of list=0 is outside the pool, limit=64");
	d.pages[2] = UINT32_MAX;
	both(0, TOTAL, TOTAL);
	refused(KVF_E_PAGE, "page=4294967295 at index=2");
	d.pages[2] = good;
	p.pages[6] = 1u << 31;
	both(0, TOTAL, TOTAL);
	refused(KVF_E_PAGE,
		"prefill p[0]: page=2147483648 at index=6 of list=0 is outside the pool, "
		"limit=64");
	p.pages[6] = 0;
	p.aux = 16;
	both(0, TOTAL, TOTAL);
	refused(KVF_E_PAGE, "page=16 at index=0 of list=1 is outside the pool, limit=16");
	p.aux = 0;
	d.aux = 16;
	both(0, TOTAL, TOTAL);
	refused(KVF_E_PAGE, "decode d[0]: page=16 at index=0 of list=1");
	teardown();
}

static void
test_page_twice(void)
{
	char text[80];

	setup();
	d.pages[5] = d.pages[1];
	both(0, TOTAL, TOTAL);
	snprintf(
		text, sizeof(text), "page=%u stands twice in list=0, again at index=5", d.pages[1]);
	refused(KVF_E_DUP_PAGE, text);
	teardown();
}

/* A page that a live room holds is refused to another; that room is not harmed, and once it drained
 * the page is free, though the room is not released yet. */
static void
test_page_of_another_room(void)
{
	struct kvf_pages lists[2];
	struct kvf_recv_args a = {.room = 500, .total_tokens = 16, .lists = lists, .num_lists = 2};
	struct kvf_err err = {0};
	uint32_t aux = 9;
	char text[80];

	setup();
	a.room = 1;
	lists[0] = (struct kvf_pages){PEER_TOKENS, 1, &d.pages[3]};
	lists[1] = (struct kvf_pages){PEER_AUX, 1, &aux};
	CHECK_EQ(cluster_recv_lists(&c, 0, &a, &err), 0);
	both(0, TOTAL, TOTAL);
	snprintf(text, sizeof(text), "page=%u of list=0 is still granted to room=1", d.pages[3]);
	refused(KVF_E_DUP_PAGE, text);
	CHECK_EQ(kvf_room_status(c.d[0].ep, 1), KVF_BOOTSTRAPPING);
	CHECK_EQ(cluster_send(&c, 0, 1, 0, 16, 16, 4, &err), 0);
	CHECK_EQ(cluster_wait(&c, &c.d[0], 1, CLUSTER_WAIT_MS), KVF_SUCCESS);
	CHECK_EQ(peer_check(&c.d[0]), 0);

	d.aux = 9; /* that one, too */
	peer_put(&c.p[0], room, 0, TOTAL, p.lists, p.num);
	peer_expect(&c.d[0], room, 0, TOTAL, d.lists, d.num);
	both(0, TOTAL, TOTAL);
	cluster_finish(&c, room, KVF_SUCCESS);
	cluster_finish(&c, 1, KVF_SUCCESS);
	teardown();
}

static void
test_prefix(void)
{
	struct cluster_shape s = cluster_small(1, 2, 2);
	struct kvf_err err = {0};

	setup();
	both(8, TOTAL, TOTAL);
	refused(KVF_E_PREFIX,
		"PD DCP transfer requires decode_prefix_len to align to the virtual DCP "
		"page size (16), got 8");
	teardown();

	setup_with(NULL, &s);
	both(16, TOTAL, TOTAL);
	/* The rank that is not here yet hears of it when it comes. */
	CHECK_EQ(cluster_wait(&c, &c.d[0], room, CLUSTER_WAIT_MS), KVF_FAILED);
	CHECK_EQ(cluster_recv(&c, 1, room, 32, TOTAL, 0, &err), 0);
	CHECK_EQ(cluster_wait(&c, &c.d[1], room, CLUSTER_WAIT_MS), KVF_FAILED);
	CHECK_EQ(kvf_room_error(c.d[1].ep, room, &err), KVF_E_PREFIX);
	CHECK_STR_HAS(err.text,
		"decode d[0]: PD DCP transfer requires decode_prefix_len to align to "
		"the virtual DCP page size (32), got 16");
	CHECK_EQ(cluster_release(&c, &c.d[1], room), 0);
	memcpy(c.d[1].shadow, c.d[1].base, c.d[1].pool_bytes);
	refused(KVF_E_PREFIX, "(32), got 16");
	teardown();
}

static void
test_order(void)
{
	struct kvf_sqe sqe = {.op = KVF_OP_SEND};
	struct kvf_err err = {0};

	setup();
	/* The library refuses by itself and the room goes on. */
	CHECK_EQ(post_recv(0, TOTAL), 0);
	CHECK_EQ(post_send(0, 32, TOTAL, 1), 0);
	CHECK_EQ(post_send(48, 16, TOTAL, 1), KVF_E_ORDER);
	CHECK_EQ(post_send(16, 16, TOTAL, 1), KVF_E_ORDER);
	CHECK_EQ(post_send(32, 16, TOTAL + 1, 1), KVF_E_ORDER);
	CHECK(kvf_room_status(c.p[0].ep, room) > KVF_FAILED);

	/* So does the engine, of a library that does not: a gap ... */
	sqe.room = room;
	sqe.seq = c.p[0].ep->last_seq;
	sqe.start = 48;
	sqe.tokens = 0;
	sqe.total = TOTAL;
	raw_post(c.p[0].ep, &sqe);
	refused_late(
		KVF_E_ORDER, "prefill p[0]: chunk start=48 tokens=0 does not follow, expected=32");

	/* ... an overlap ... */
	CHECK_EQ(post_recv(0, TOTAL), 0);
	CHECK_EQ(post_send(0, 32, TOTAL, 1), 0);
	sqe.room = room;
	sqe.seq = c.p[0].ep->last_seq;
	sqe.start = 31;
	raw_post(c.p[0].ep, &sqe);
	refused_late(KVF_E_ORDER, "chunk start=31 tokens=0 does not follow, expected=32");

	/* ... another total ... */
	CHECK_EQ(post_recv(0, TOTAL), 0);
	CHECK_EQ(post_send(0, 32, TOTAL, 1), 0);
	sqe.room = room;
	sqe.seq = c.p[0].ep->last_seq;
	sqe.start = 32;
	sqe.total = TOTAL + 5;
	raw_post(c.p[0].ep, &sqe);
	refused_late(KVF_E_TOTAL, "100");

	/* ... and a chunk after the final one. The receiver is not there yet, or it would be over.
	 */
	CHECK_EQ(post_send(0, TOTAL, TOTAL, p.num), 0);
	CHECK_EQ(post_send(TOTAL, 0, TOTAL, 1), KVF_E_ORDER);
	sqe.room = room;
	sqe.seq = c.p[0].ep->last_seq;
	sqe.start = TOTAL;
	sqe.total = TOTAL;
	raw_post(c.p[0].ep, &sqe);
	CHECK_EQ(cluster_wait(&c, &c.p[0], room, CLUSTER_WAIT_MS), KVF_FAILED);
	CHECK_EQ(post_recv(0, TOTAL), 0);
	refused(KVF_E_ORDER, "expected=100 (the final chunk was posted before)");

	/* A first chunk that starts behind the prefix. */
	CHECK_EQ(post_recv(32, TOTAL), 0);
	CHECK_EQ(post_send(48, TOTAL - 48, TOTAL, p.num), 0);
	refused(KVF_E_ORDER, "the first chunk starts at start=48 but decode holds only prefix=32");
	CHECK_EQ(kvf_room_status(c.p[0].ep, room), KVF_E_NOENT);
	CHECK_EQ(kvf_room_error(c.p[0].ep, room, &err), KVF_E_NOENT);
	teardown();
}

static void
test_totals(void)
{
	setup();
	both(0, TOTAL, TOTAL - 1);
	refused(KVF_E_TOTAL, "total_tokens differ, ");
	/* Whoever comes second is named. */
	CHECK_EQ(post_send(0, TOTAL, TOTAL, p.num), 0);
	CHECK_EQ(post_recv(0, TOTAL + 1), 0);
	refused(KVF_E_TOTAL, "decode d[0]: total_tokens differ, decode d[0]=101 others=100");
	teardown();
}

static void
test_aux(void)
{
	uint32_t two[2] = {3, 4};

	setup();
	CHECK_EQ(d.lists[1].list, PEER_AUX);
	d.num = 1;
	both(0, TOTAL, TOTAL);
	refused(KVF_E_STATE_LIST, "type=aux list=1 wants exactly 1 slot, decode=0");
	d.num = 2;
	p.num = 1;
	both(0, TOTAL, TOTAL);
	refused(KVF_E_STATE_LIST, "type=aux list=1 wants exactly 1 slot, prefill=0");
	p.num = 2;
	d.lists[1] = (struct kvf_pages){PEER_AUX, 2, two};
	both(0, TOTAL, TOTAL);
	refused(KVF_E_STATE_LIST, "wants exactly 1 slot, decode=2");
	d.lists[1].count = 1;
	p.lists[1] = (struct kvf_pages){PEER_AUX, 2, two};
	both(0, TOTAL, TOTAL);
	refused(KVF_E_STATE_LIST, "wants exactly 1 slot, prefill=2");
	p.lists[1].count = 1;
	/* Aux with a chunk that is not the final one. */
	CHECK_EQ(post_recv(0, TOTAL), 0);
	CHECK_EQ(post_send(0, 32, TOTAL, 2), 0);
	refused(KVF_E_STATE_LIST,
		"list=1 (state or aux) goes with the final chunk only, this one ends "
		"at=32 of total=100");
	teardown();
}

static void
test_state(void)
{
	struct cluster_shape s = cluster_small(1, 1, 2);
	uint32_t two[2] = {3, 4};
	uint32_t i;

	s.prefill.state_bytes = s.decode.state_bytes = 500;
	setup_with(NULL, &s);
	for (i = 0; i < d.num; i++)
		if (d.lists[i].list == PEER_STATE)
			d.lists[i] = (struct kvf_pages){PEER_STATE, 2, two};
	both(0, TOTAL, TOTAL);
	refused_late(
		KVF_E_STATE_LIST, "index lists of type=state tag=1 differ, prefill=1 decode=2");
	teardown();
}

static void
test_lists(void)
{
	struct kvf_sqe sqe = {.op = KVF_OP_RECV, .num_lists = 2};
	uint32_t one = 1;

	setup();
	d.lists[2] = (struct kvf_pages){5, 1, &one};
	d.num = 3;
	both(0, TOTAL, TOTAL);
	refused(KVF_E_INVAL, "list=5 has count=1 ids, but no component of decode d[0] uses it");
	p.lists[2] = (struct kvf_pages){7, 1, &one};
	p.num = 3;
	d.num = 2;
	both(0, TOTAL, TOTAL);
	refused(KVF_E_INVAL, "list=7 has count=1 ids, but no component of prefill p[0] uses it");
	/* An empty list of the same kind means nothing. */
	p.lists[2].count = 0;
	peer_put(&c.p[0], room, 0, TOTAL, p.lists, 2);
	peer_expect(&c.d[0], room, 0, TOTAL, d.lists, d.num);
	both(0, TOTAL, TOTAL);
	cluster_finish(&c, room++, KVF_SUCCESS);
	p.num = 2;

	/* What the library never writes: a list twice, one past the last, and one out of the arena.
	 */
	CHECK_EQ(post_recv(0, TOTAL), 0); /* so that the library knows the room */
	CHECK_EQ(cluster_wait(&c, &c.d[0], room, 0), KVF_E_TIMEOUT);
	CHECK_EQ(kvf_abort(c.d[0].ep, room, NULL, NULL), 0);
	CHECK_EQ(cluster_wait(&c, &c.d[0], room, CLUSTER_WAIT_MS), KVF_FAILED);
	CHECK_EQ(cluster_release(&c, &c.d[0], room), 0);
	for (int i = 0; i < 4; i++) {
		static const char *const texts[] = {"list=0 stands twice or is not below limit=8",
			"list=8 stands twice or is not below limit=8",
			"list=0 arena_off=1048572 count=3 is outside arena=1048576",
			"list=0 arena_off=2 count=3 is outside arena=1048576"};

		memset(sqe.lists, 0, sizeof(sqe.lists));
		sqe.lists[0].count = 3;
		sqe.lists[1].list = i == 0 ? 0 : i == 1 ? 8 : 1;
		sqe.lists[0].arena_off = i == 2 ? (1 << 20) - 4 : i == 3 ? 2 : 0;
		room++;
		sqe.room = room;
		sqe.seq = ++c.d[0].ep->last_seq;
		sqe.total = TOTAL;
		kvf_rooms_add(&c.d[0].ep->rooms, room, sqe.seq)->total = TOTAL;
		raw_post(c.d[0].ep, &sqe);
		CHECK_EQ(post_send(0, TOTAL, TOTAL, p.num), 0);
		refused(i < 2 ? KVF_E_INVAL : KVF_E_PROTO, texts[i]);
	}
	teardown();
}

/* Numbers that the library would not send. */
static void
test_numbers(void)
{
	static const struct {
		uint64_t start, total;
		int code;
		const char *text;
	} bad[] = {
		{0, (1ull << 62) + 1, KVF_E_OVERFLOW, "total=4611686018427387905"},
		{UINT64_MAX, TOTAL, KVF_E_OVERFLOW, "start=18446744073709551615"},
		{TOTAL + 1, TOTAL, KVF_E_INVAL,
			"prefix_tokens=101 must not exceed total_tokens=100"},
		{0, 1ull << 62, KVF_E_DST_PAGES, "required=288230376151711744, provided=0"},
	};
	struct kvf_sqe sqe = {.op = KVF_OP_RECV};
	struct kvf_err err = {0};
	uint32_t i;

	setup();
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		sqe.room = ++room;
		sqe.seq = ++c.d[0].ep->last_seq;
		sqe.start = bad[i].start;
		sqe.total = bad[i].total;
		kvf_rooms_add(&c.d[0].ep->rooms, room, sqe.seq)->total = bad[i].total;
		raw_post(c.d[0].ep, &sqe);
		CHECK_EQ(cluster_wait(&c, &c.d[0], room, CLUSTER_WAIT_MS), KVF_FAILED);
		CHECK_EQ(post_send(0, TOTAL, TOTAL, p.num), 0);
		refused(bad[i].code, bad[i].text);
	}
	sqe.op = KVF_OP_SEND;
	sqe.room = ++room;
	sqe.seq = ++c.p[0].ep->last_seq;
	sqe.start = 1ull << 61;
	sqe.tokens = 1ull << 62;
	sqe.total = TOTAL;
	kvf_rooms_add(&c.p[0].ep->rooms, room, sqe.seq)->total = TOTAL;
	raw_post(c.p[0].ep, &sqe);
	CHECK_EQ(cluster_wait(&c, &c.p[0], room, CLUSTER_WAIT_MS), KVF_FAILED);
	CHECK_EQ(kvf_room_error(c.p[0].ep, room, &err), KVF_E_INVAL);
	CHECK_EQ(post_recv(0, TOTAL), 0);
	refused(KVF_E_INVAL, "must not exceed total_tokens=100");
	teardown();
}

static void
test_quota(void)
{
	struct cluster_shape s = cluster_small(1, 1, 2);
	struct kvf_engine_config cfg = {.max_request_bytes = 4 * (7 + 1)};
	uint32_t ids[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
	struct kvf_err err = {0};

	setup_with(&cfg, &s);
	p.lists[0] = (struct kvf_pages){PEER_TOKENS, 9, ids};
	both(0, TOTAL, TOTAL);
	refused(KVF_E_QUOTA, "index lists of prefill p[0] need 36 bytes, in use=0 limit=32");
	/* Two requests that do not fit together: the first is not harmed, the second is refused and
	 * works later. */
	CHECK_EQ(cluster_recv(&c, 0, 1, 0, 16 * 4, 7, &err), 0);
	p.lists[0] = (struct kvf_pages){PEER_TOKENS, 7, p.pages};
	both(0, TOTAL, TOTAL);
	CHECK_EQ(cluster_wait(&c, &c.d[0], room, CLUSTER_WAIT_MS), KVF_FAILED);
	CHECK_EQ(cluster_send(&c, 0, 1, 0, 16 * 4, 16 * 4, 7, &err), 0);
	cluster_finish(&c, 1, KVF_SUCCESS);
	refused(KVF_E_QUOTA, "index lists of decode d[0] need 28 bytes, in use=20 limit=32");
	teardown();
}

/* Chunks of nothing cost memory as well. Those that a receiver takes come back. */
static void
test_chunk_quota(void)
{
	uint32_t i, n = 0;

	setup();
	p.lists[0].count = 0;
	for (i = 0; i < 1000000 && n < 200000; i++) {
		int rc = post_send(0, 0, TOTAL, 1);

		if (rc == KVF_E_AGAIN)
			kvf_wait(c.p[0].ep, 1);
		else if (rc != 0)
			break; /* failed already */
		n += rc == 0;
	}
	CHECK(n >= 131072);
	CHECK(n < 200000);
	CHECK_EQ(post_recv(0, TOTAL), 0);
	refused(KVF_E_QUOTA, "chunks=131072 of prefill p[0] wait to be sent, limit=131072");

	CHECK_EQ(post_recv(0, TOTAL), 0);
	for (i = 0; i < 3000;) {
		int rc = post_send(0, 0, TOTAL, 1);

		if (rc == KVF_E_AGAIN)
			kvf_wait(c.p[0].ep, 1);
		else if (!CHECK_EQ(rc, 0))
			break;
		i += rc == 0;
	}
	p.lists[0].count = 7;
	peer_put(&c.p[0], room, 0, TOTAL, p.lists, p.num);
	peer_expect(&c.d[0], room, 0, TOTAL, d.lists, d.num);
	while (post_send(0, TOTAL, TOTAL, p.num) == KVF_E_AGAIN)
		kvf_wait(c.p[0].ep, 1);
	cluster_finish(&c, room, KVF_SUCCESS);
	room++;
	teardown();
}

static const struct suite_case cases[] = {
	{"more tokens than source pages", test_capacity},
	{"fewer destination pages than needed", test_too_few_pages},
	{"a page outside the pool", test_page_outside},
	{"a destination page twice", test_page_twice},
	{"a page that another room holds", test_page_of_another_room},
	{"a prefix that is not aligned", test_prefix},
	{"chunks out of order", test_order},
	{"totals that differ", test_totals},
	{"aux lists", test_aux},
	{"state lists", test_state},
	{"lists", test_lists},
	{"numbers past every limit", test_numbers},
	{"index lists past their quota", test_quota},
	{"chunks past their quota", test_chunk_quota},
};

SUITE_MAIN("refusals", cases)
