/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clients that write anything anywhere into the memory that they share with the engine. After and
 * during all of it a well-behaved pair moves verified rooms, and the engine is left as it was:
 * descriptors, mappings, memory.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hostile.h"

static const struct raw_shape decoder = {.role = KVF_DECODE,
	.group = "hd",
	.sq_entries = 64,
	.cq_entries = 64,
	.arena_bytes = 4096,
	.num_pages = 1024};
static const struct raw_shape prefiller = {.role = KVF_PREFILL,
	.group = "hp",
	.sq_entries = 64,
	.cq_entries = 64,
	.arena_bytes = 4096,
	.num_pages = 1024};

static void
fill_random(void *mem, size_t bytes)
{
	uint8_t *p = mem;
	size_t i;

	for (i = 0; i < bytes; i++)
		p[i] = (uint8_t)(suite_rand(&rnd) >> 32);
}

/* An entry that gets past the first checks: what it says of lists and tokens is random. */
static void
plausible_entry(struct raw *r, struct kvf_sqe *sqe, bool decode)
{
	uint64_t what = suite_range(&rnd, 0, 99);
	uint32_t i;

	memset(sqe, 0, sizeof(*sqe));
	sqe->op = decode ? KVF_OP_RECV : KVF_OP_SEND;
	if (what < 20)
		sqe->op = KVF_OP_ABORT;
	else if (what < 22)
		sqe->op = KVF_OP_RELEASE;
	sqe->seq = sqe->op < KVF_OP_ABORT ? ++r->seq : suite_range(&rnd, 0, r->seq);
	sqe->room = sqe->seq; /* the same at both ends, so that they meet */
	sqe->num_lists = suite_range(&rnd, 0, 3) != 0 ? 1 : (uint8_t)suite_range(&rnd, 0, 3);
	sqe->total = suite_range(&rnd, 0, 20);
	sqe->start = suite_range(&rnd, 0, 9) == 0 ? suite_rand(&rnd) : 0;
	sqe->tokens = suite_range(&rnd, 0, 4) == 0 ? suite_range(&rnd, 0, 20) : sqe->total;
	for (i = 0; i < 3; i++) {
		sqe->lists[i].list = i == 0 ? 0 : (uint32_t)suite_range(&rnd, 0, 9);
		sqe->lists[i].count = i == 0 ? 20 : (uint32_t)suite_range(&rnd, 0, 1);
		sqe->lists[i].arena_off = suite_range(&rnd, 0, 1003) * 4;
		if (suite_range(&rnd, 0, 20) == 0)
			fill_random(&sqe->lists[i], sizeof(sqe->lists[i]));
	}
	if (suite_range(&rnd, 0, 30) == 0)
		fill_random(sqe->group, sizeof(sqe->group));
}

static void
test_random_entries(void)
{
	struct kvf_engine_config cfg = {.lcores = 2};
	uint32_t round, i, dropped[2] = {0};
	struct raw d, p;
	struct kvf_err err;

	hostile_setup(&cfg);
	for (round = 0; round < 60; round++) {
		struct kvf_sqe sqe;

		raw_open(&d, rig_socket(calm.rig), &decoder);
		raw_open(&p, rig_socket(calm.rig), &prefiller);
		for (i = 0; i < 60; i++) {
			struct raw *r = i % 2 == 0 ? &d : &p;
			uint32_t *ids = (uint32_t *)(void *)r->ring.arena, k;

			if (i % 8 < 2)
				for (k = 0; k < 1024; k++)
					ids[k] = suite_range(&rnd, 0, 2000) == 0
							 ? (uint32_t)suite_rand(&rnd)
							 : (k * 7 + i) % 1024;
			if (round % 3 == 0 || (round % 3 == 1 && i == 50))
				fill_random(&sqe, sizeof(sqe));
			else
				plausible_entry(r, &sqe, r == &d);
			raw_put(r, &sqe);
		}
		calm_moves();
		if (round % 3 == 0)
			CHECK(raw_dropped(d.sock, CLUSTER_WAIT_MS, &err));
		dropped[round % 3 != 0] += raw_dropped(d.sock, 0, &err);
		dropped[round % 3 != 0] += raw_dropped(p.sock, 0, &err);
		raw_close(&d);
		raw_close(&p);
	}
	printf("        dropped: %u of 40 that wrote noise, %u of 80 others; rooms that passed: "
	       "%" PRId64 "\n",
		dropped[0], dropped[1], cluster_stat(&calm, "rooms.success"));
	hostile_teardown();
}

/* Every impossible posting drops its endpoint, with a sentence. */
static void
test_impossible(void)
{
	static const struct {
		const char *text;
		struct kvf_sqe sqe[3];
		uint32_t n;
	} bad[] = {
		{"posted op=2 num_lists=0, which is not possible", {{.op = KVF_OP_SEND}}, 1},
		{"posted op=0", {{.op = 0}}, 1},
		{"posted op=200", {{.op = 200}}, 1},
		{"num_lists=9", {{.op = KVF_OP_RECV, .num_lists = 9}}, 1},
		{"posted room=7 seq=0 after seq=0", {{.op = KVF_OP_RECV, .room = 7}}, 1},
		{"seq=3 after seq=5",
			{{.op = KVF_OP_RECV, .room = 7, .seq = 5},
				{.op = KVF_OP_RECV, .room = 8, .seq = 3}},
			2},
		{"posted room=7 seq=2 before it released the last use",
			{{.op = KVF_OP_RECV, .room = 7, .seq = 1},
				{.op = KVF_OP_RECV, .room = 7, .seq = 2}},
			2},
		{"released room=7 seq=1, which is not held",
			{{.op = KVF_OP_RELEASE, .room = 7, .seq = 1}}, 1},
		{"released room=7 seq=1, which is not drained",
			{{.op = KVF_OP_RECV, .room = 7, .seq = 1},
				{.op = KVF_OP_RELEASE, .room = 7, .seq = 1}},
			2},
	};
	struct kvf_err err;
	struct raw r;
	uint32_t i, k;

	hostile_setup(NULL);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		raw_open(&r, rig_socket(calm.rig), &decoder);
		for (k = 0; k < bad[i].n; k++)
			raw_put(&r, &bad[i].sqe[k]);
		CHECK(raw_dropped(r.sock, CLUSTER_WAIT_MS, &err));
		CHECK_EQ(err.code, KVF_E_PROTO);
		CHECK_STR_HAS(err.text, bad[i].text);
		CHECK_STR_HAS(err.text, "decode hd[0]");
		calm_moves();
		raw_close(&r);
	}
	/* An abort of a room that is not held is what a late one looks like: nothing happens. */
	raw_open(&r, rig_socket(calm.rig), &decoder);
	raw_put(&r, &(struct kvf_sqe){.op = KVF_OP_ABORT, .room = 7, .seq = 9});
	calm_moves();
	CHECK(!raw_dropped(r.sock, 0, &err));
	raw_close(&r);
	hostile_teardown();
}

static void
test_wild_indices(void)
{
	struct kvf_err err;
	struct raw r;
	uint32_t i;

	hostile_setup(NULL);
	for (i = 0; i < 40; i++) {
		uint32_t wild = i < 4 ? (const uint32_t[]){65, 1, 1u << 31, 4096}[i]
				      : (uint32_t)(suite_rand(&rnd) >> 1 & INT32_MAX) | 128;

		raw_open(&r, rig_socket(calm.rig), &decoder);
		if (i % 2 == 0) {
			atomic_store(&r.ring.hdr->sq_tail, wild);
			raw_ring(&r);
		} else {
			/* Looked at when there is something to say: a room. */
			atomic_store(&r.ring.hdr->cq_head, wild);
			raw_put(&r, &(struct kvf_sqe){.op = KVF_OP_RECV, .room = 1, .seq = 1});
		}
		CHECK(raw_dropped(r.sock, CLUSTER_WAIT_MS, &err));
		CHECK_EQ(err.code, KVF_E_PROTO);
		CHECK_STR_HAS(err.text, i % 2 == 0 ? "moved sq_tail to" : "moved cq_head to");
		if (i % 8 == 0)
			calm_moves();
		raw_close(&r);
	}
	/* Everything that the engine wrote, scribbled over: it keeps its own copies. */
	raw_open(&r, rig_socket(calm.rig), &decoder);
	memset(r.mem, 0xff, 128);
	atomic_store(&r.ring.hdr->sq_head, 77);
	atomic_store(&r.ring.hdr->cq_tail, 99);
	raw_put(&r, &(struct kvf_sqe){.op = KVF_OP_RECV, .room = 1, .seq = 1});
	calm_moves();
	CHECK(!raw_dropped(r.sock, 0, &err));
	raw_close(&r);
	hostile_teardown();
}

struct flipper {
	struct raw *r;
	_Atomic bool stop;
	uint64_t rand;
};

/* Changes counts, offsets and ids all the time, while the engine reads them. */
static void *
flip(void *arg)
{
	struct flipper *f = arg;
	volatile struct kvf_sqe *sq = f->r->ring.sq;
	volatile uint32_t *ids = (volatile uint32_t *)(void *)f->r->ring.arena;
	uint32_t words = (uint32_t)(f->r->ring.arena_bytes / 4), i;

	while (!atomic_load(&f->stop)) {
		for (i = 0; i < 64; i++) {
			uint32_t at = (uint32_t)suite_range(&f->rand, 0, words - 1);
			uint32_t good = ids[at];

			ids[at] = (uint32_t)suite_rand(&f->rand);
			sq[i % 4].lists[0].count = (uint32_t)suite_rand(&f->rand);
			sq[i % 4].lists[0].arena_off = suite_rand(&f->rand);
			sq[i % 4].num_lists = (uint8_t)suite_rand(&f->rand);
			sq[i % 4].lists[0].count = 100000;
			sq[i % 4].lists[0].arena_off = 0;
			sq[i % 4].num_lists = 1;
			if (suite_range(&f->rand, 0, 4000) != 0)
				ids[at] = good;
		}
		sched_yield();
	}
	return NULL;
}

/* A sender whose ids change while they are read can only harm the pages that were granted to it. */
static void
test_changing_under_the_reader(void)
{
	struct raw_shape shape = {.role = KVF_PREFILL,
		.group = "hp",
		.sq_entries = 4,
		.cq_entries = 64,
		.arena_bytes = 1 << 19,
		.num_pages = 120000};
	struct peer_shape ds = {
		.layers = 1, .row_bytes = 16, .page_tokens = 1, .num_pages = 120000};
	struct kvf_endpoint_config limits = {.arena_bytes = 1 << 19};
	uint32_t n = 100000, i, *grants = malloc(n * 4), sent = 0;
	struct kvf_pages list = {PEER_TOKENS, n, grants};
	struct kvf_recv_args a = {
		.total_tokens = n, .lists = &list, .num_lists = 1, .prefill_group = "hp"};
	struct kvf_err err = {0};
	struct flipper f;
	pthread_t thread;
	struct peer d;
	struct raw r;

	hostile_setup(NULL);
	peer_mla(&d, &ds);
	CHECK_EQ(peer_open(&d, rig_socket(calm.rig), KVF_DECODE, "victim", 1, 0, &limits, &err), 0);
	for (i = 0; i < n; i++)
		grants[i] = i + i / 10; /* leaves out every eleventh */
	for (i = 0; i < 25; i++) {
		struct kvf_sqe sqe = {.op = KVF_OP_SEND,
			.num_lists = 1,
			.room = 1000 + i,
			.seq = 1,
			.tokens = n,
			.total = n};
		uint32_t k, *ids;

		raw_open(&r, rig_socket(calm.rig), &shape);
		ids = (uint32_t *)(void *)r.ring.arena;
		for (k = 0; k < n; k++)
			ids[k] = k;
		sqe.lists[0].count = n;
		f = (struct flipper){.r = &r, .rand = suite_rand(&rnd) | 1};
		a.room = 1000 + i;
		CHECK_EQ(kvf_recv(d.ep, &a, &err), 0);
		if (pthread_create(&thread, NULL, flip, &f) != 0)
			abort();
		raw_put(&r, &sqe);
		calm_moves();
		if (i % 2 == 0)
			cluster_sleep_ms(10);
		atomic_store(&f.stop, true);
		pthread_join(thread, NULL);
		raw_close(&r);
		/* If the sender left before its posting was read, nobody ever joined the room. */
		k = (uint32_t)peer_wait(&d, a.room, 500);
		if (kvf_room_status(d.ep, a.room) == KVF_BOOTSTRAPPING)
			CHECK_EQ(kvf_abort(d.ep, a.room, "nobody came", &err), 0);
		if (k != KVF_FAILED && k != KVF_SUCCESS)
			k = (uint32_t)peer_wait(&d, a.room, CLUSTER_WAIT_MS);
		CHECK(k == KVF_FAILED || k == KVF_SUCCESS);
		sent += k == KVF_SUCCESS;
		peer_forgive(&d, 0, n, &list, 1);
		CHECK_EQ(peer_check(&d), 0);
		CHECK_EQ(kvf_room_release(d.ep, a.room, &err), 0);
	}
	printf("        went through: %u of 25\n", sent);
	free(grants);
	peer_close(&d);
	hostile_teardown();
}

/* Completions that nobody takes wait, bounded, and harm nobody; taken at last, none is missing. */
static void
test_completions_not_taken(void)
{
	struct raw_shape shape = decoder;
	uint8_t seen[400] = {0};
	uint32_t i, head = 0, got = 0;
	struct raw r;

	hostile_setup(NULL);
	shape.cq_entries = 4;
	raw_open(&r, rig_socket(calm.rig), &shape);
	for (i = 0; i < 400; i++) {
		/* Each fails at once: no page for its tokens. */
		raw_put(&r,
			&(struct kvf_sqe){.op = KVF_OP_RECV, .room = i, .seq = i + 1, .total = 5});
		while (r.tail - atomic_load(&r.ring.hdr->sq_head) == r.ring.sq_entries)
			cluster_sleep_ms(1);
		if (i % 100 == 0)
			calm_moves();
	}
	calm_moves();
	for (i = 0; i < 20000 && got < 400; i++) {
		uint32_t tail = atomic_load_explicit(&r.ring.hdr->cq_tail, memory_order_acquire);

		CHECK(tail - head <= 4);
		for (; head != tail; head++) {
			const struct kvf_cqe *cqe = &r.ring.cq[head & 3];

			if (cqe->room < 400 && cqe->status == KVF_FAILED &&
				(cqe->flags & KVF_CQE_DRAINED) != 0 && !seen[cqe->room]) {
				seen[cqe->room] = 1;
				got++;
				CHECK_EQ(cqe->error, KVF_E_DST_PAGES);
				CHECK_STR_HAS(r.ring.text[head & 3].text, "required=5, provided=0");
			}
		}
		atomic_store_explicit(&r.ring.hdr->cq_head, head, memory_order_release);
		raw_ring(&r);
		if (got < 400)
			usleep(100);
	}
	CHECK_EQ(got, 400);
	raw_close(&r);
	hostile_teardown();
}

/* One that cannot be woken, or that swallows wake-ups, makes nobody else wait. */
static void *
swallow(void *arg)
{
	struct flipper *f = arg;
	uint64_t n;

	while (!atomic_load(&f->stop)) {
		if (read(f->r->doorbell_fd, &n, sizeof(n)) < 0)
			break;
		usleep(10);
	}
	return NULL;
}

static void
test_blocking_descriptors(void)
{
	struct flipper f = {0};
	pthread_t thread;
	struct kvf_err err;
	struct raw r;
	uint64_t most = UINT64_MAX - 1;
	uint32_t i;
	char junk[256] = {0};

	hostile_setup(NULL);
	raw_open(&r, rig_socket(calm.rig), &decoder);
	/* Full to the brim, whatever kind of file it is, and then blocking. */
	fcntl(r.completion_fd, F_SETFL, O_NONBLOCK);
	if (write(r.completion_fd, &most, sizeof(most)) < 0)
		while (write(r.completion_fd, junk, sizeof(junk)) > 0)
			;
	fcntl(r.completion_fd, F_SETFL, 0);
	atomic_store(&r.ring.hdr->client_sleeping, 1);
	for (i = 0; i < 30; i++)
		raw_put(&r,
			&(struct kvf_sqe){.op = KVF_OP_RECV, .room = i, .seq = i + 1, .total = 5});
	for (i = 0; i < 10; i++)
		calm_moves();
	CHECK(!raw_dropped(r.sock, 0, &err));

	fcntl(r.doorbell_fd, F_SETFL, 0);
	f.r = &r;
	if (pthread_create(&thread, NULL, swallow, &f) != 0)
		abort();
	for (i = 0; i < 20; i++) {
		cluster_sleep_ms(3); /* long enough for the engine to go to sleep */
		calm_moves();
	}
	atomic_store(&f.stop, true);
	raw_ring(&r);
	pthread_join(thread, NULL);
	raw_close(&r);
	hostile_teardown();
}

static const struct suite_case cases[] = {
	{"entries of random bytes", test_random_entries},
	{"impossible postings", test_impossible},
	{"wild indices", test_wild_indices},
	{"lists that change while they are read", test_changing_under_the_reader},
	{"completions that nobody takes", test_completions_not_taken},
	{"descriptors made to block", test_blocking_descriptors},
};

SUITE_MAIN("hostile", cases)
