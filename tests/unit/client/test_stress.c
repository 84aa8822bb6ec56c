/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Client and engine as two threads on the same mapping, so that a race detector sees both sides of
 * each line of the rings. A lost wake-up shows as a wait that reaches its limit.
 */
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/endpoint.h"
#include "common/suite.h"
#include "unit/client/fake_engine.h"

#define LIMIT_MS 20000

static _Atomic uint32_t slept_through;

/* In front of the C library's: every sleep of both sides passes here. kvf_wait() finds the news of
 * a lost wake-up when its limit is over, so its result alone would not show the loss. */
int
poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	long rc = syscall(SYS_poll, fds, n, timeout_ms);

	if (rc == 0 && timeout_ms > 0)
		atomic_fetch_add(&slept_through, 1);
	return (int)rc;
}

struct engine {
	struct fake *f;
	uint64_t rounds;
	uint64_t state;
	uint64_t bad_ids;
	uint64_t sleeps;
	uint32_t spin; /* looks at the ring before it sleeps */
	bool timed_out;
};

/* The engine's own sleep: flag, fence, look again, then the doorbell. */
static bool
engine_wait(struct engine *e)
{
	struct fake *f = e->f;
	struct pollfd pfd = {.fd = f->doorbell_fd, .events = POLLIN};
	uint32_t i;
	int n = 1;

	for (i = 0; i < e->spin && fake_waiting(f) == 0; i++)
		;
	while (fake_waiting(f) == 0) {
		atomic_store_explicit(&f->ring.hdr->engine_sleeping, 1, memory_order_relaxed);
		kvf_ring_fence();
		if (fake_waiting(f) == 0) {
			e->sleeps++;
			n = poll(&pfd, 1, LIMIT_MS);
		}
		atomic_store_explicit(&f->ring.hdr->engine_sleeping, 0, memory_order_relaxed);
		fake_rings(f);
		if (n <= 0)
			return false;
	}
	return true;
}

/* Answers each submission with one completion that counts it. */
static void *
echo(void *arg)
{
	struct engine *e = arg;
	uint64_t i;

	for (i = 0; i < e->rounds; i++) {
		struct kvf_cqe cqe = {.status = KVF_TRANSFERRING};
		const uint32_t *ids;
		struct kvf_sqe sqe;
		uint32_t k;

		if (!engine_wait(e)) {
			e->timed_out = true;
			return NULL;
		}
		fake_peek(e->f, 0, &sqe);
		ids = fake_ids(e->f, &sqe, 0);
		for (k = 0; k < sqe.lists[0].count; k++)
			e->bad_ids += ids[k] != (uint32_t)sqe.start + k;
		e->bad_ids += sqe.start != i;
		fake_take(e->f, 1);
		cqe.room = sqe.room;
		cqe.seq = sqe.seq;
		cqe.tokens = i + 1;
		if (i + 1 == e->rounds) {
			cqe.status = KVF_SUCCESS;
			cqe.flags = KVF_CQE_DRAINED;
		}
		/* Answers at any moment of the client's falling asleep. */
		for (k = (uint32_t)suite_range(&e->state, 0, 300); k > 0; k--)
			(void)suite_rand(&e->state);
		fake_push(e->f, &cqe, NULL);
	}
	return NULL;
}

/* Up to `ahead` chunks in flight: 1 makes both sides sleep in every round. */
static void
run(uint64_t rounds, uint64_t ahead, uint32_t spin)
{
	static uint32_t ids[64];
	uint64_t state = suite_seed();
	struct engine e = {.rounds = rounds, .state = suite_seed() ^ 77, .spin = spin};
	struct kvf_pages list = {.ids = ids};
	struct kvf_send_args a = {
		.room = 3, .num_tokens = 1, .total_tokens = rounds, .lists = &list, .num_lists = 1};
	uint64_t sent = 0, seen = 0, drained = 0;
	struct kvf_endpoint *ep;
	struct kvf_event ev;
	pthread_t th;
	struct fake f;
	int rc = 1;

	atomic_store(&slept_through, 0);
	ep = fake_pair(&f, KVF_PREFILL, 8, 8, 1024, 4);
	f.ring = ep->ring;
	e.f = &f;
	CU_ASSERT_EQUAL_FATAL(pthread_create(&th, NULL, echo, &e), 0);
	while (seen < rounds) {
		while (sent < rounds && sent - seen < ahead) {
			uint32_t k;

			list.count = (uint32_t)suite_range(&state, 0, 64);
			for (k = 0; k < list.count; k++)
				ids[k] = (uint32_t)sent + k;
			a.start_token = sent;
			rc = kvf_send(ep, &a, NULL);
			if (rc != 0)
				break;
			sent++;
		}
		if (rc != 0 && rc != KVF_E_AGAIN)
			break;
		rc = kvf_wait(ep, LIMIT_MS);
		if (rc != 1 || atomic_load(&slept_through) != 0) {
			rc = KVF_E_TIMEOUT;
			break;
		}
		rc = kvf_poll(ep, &ev, 1);
		if (rc != 1 || ev.room != 3 || ev.tokens <= seen)
			break;
		seen = ev.tokens;
		drained = ev.drained;
		rc = 0;
	}
	CHECK_EQ(rc, 0);
	CHECK_EQ(seen, rounds);
	CHECK_EQ(drained, 1);
	if (seen < rounds)
		fake_hang_up(&f);
	pthread_join(th, NULL);
	CHECK(!e.timed_out);
	CHECK_EQ(atomic_load(&slept_through), 0);
	CHECK_EQ(e.bad_ids, 0);
	CHECK_EQ(kvf_room_status(ep, 3), KVF_SUCCESS);
	CHECK(ahead > 1 || spin > 0 || e.sleeps > 0);
	fake_finish(&f, ep, 0);
}

static void
test_ping_pong(void)
{
	run(6000, 1, 0);
}

/* An awake engine answers while the client is just about to sleep. */
static void
test_falling_asleep(void)
{
	run(50000, 1, 20000);
}

static void
test_pipeline(void)
{
	run(30000, 16, 0);
}

static void *
vanish(void *arg)
{
	struct engine *e = arg;
	uint64_t n = suite_range(&e->state, 1, 60);

	while (n-- > 0) {
		struct kvf_sqe sqe;

		if (!engine_wait(e))
			return NULL;
		fake_next(e->f, &sqe);
		fake_say(e->f, sqe.room, sqe.seq, KVF_SUCCESS, 0);
	}
	fake_hang_up(e->f);
	return NULL;
}

/* The engine goes at any moment: every room ends, drained, with one reason or success. */
static void
test_vanish(void)
{
	uint64_t state = suite_seed() ^ 5;
	int round;

	for (round = 0; round < 60; round++) {
		struct engine e = {.state = suite_rand(&state) | 1};
		uint64_t room = 0, ended = 0;
		struct kvf_endpoint *ep;
		struct kvf_event ev[8];
		pthread_t th;
		struct fake f;
		int n = 0, i, bad = 0;

		ep = fake_pair(&f, KVF_DECODE, 8, 8, 1024, 256);
		f.ring = ep->ring;
		e.f = &f;
		CU_ASSERT_EQUAL_FATAL(pthread_create(&th, NULL, vanish, &e), 0);
		for (;;) {
			const struct kvf_recv_args a = {.room = room, .total_tokens = 1};

			if (room < 256 && kvf_recv(ep, &a, NULL) == 0)
				room++;
			if (room == 256 || suite_range(&state, 0, 3) == 0)
				(void)kvf_wait(ep, 5);
			n = kvf_poll(ep, ev, 8);
			if (n < 0)
				break;
			for (i = 0; i < n; i++) {
				bad += ev[i].status != KVF_SUCCESS && ev[i].status != KVF_FAILED;
				bad += ev[i].status == KVF_FAILED &&
				       (!ev[i].drained || ev[i].error != KVF_E_ENGINE_GONE);
				ended += ev[i].drained;
			}
		}
		pthread_join(th, NULL);
		CHECK_EQ(n, KVF_E_ENGINE_GONE);
		CHECK_EQ(bad, 0);
		CHECK_EQ(ended, room);
		fake_finish(&f, ep, KVF_E_ENGINE_GONE);
	}
}

static const struct suite_case cases[] = {
	{"ping-pong: both sides sleep and wake", test_ping_pong},
	{"an answer while falling asleep", test_falling_asleep},
	{"pipeline: rings and arena wrap", test_pipeline},
	{"the engine vanishes at any moment", test_vanish},
};

SUITE_MAIN("client_stress", cases)
