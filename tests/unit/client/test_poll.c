/* SPDX-License-Identifier: BSD-3-Clause */
/* Learning what happened: events, states, and an engine that goes away. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client/endpoint.h"
#include "common/suite.h"
#include "unit/client/fake_engine.h"
#include "wire/deadline.h"

/* kvf_wait() looks at the clock between its looks at the ring: a hook there can publish at moments
 * that two threads would hit once in a million tries. */
static _Thread_local struct fake *hook_engine; /* of the client's thread only */
static _Thread_local uint32_t hook_at, clock_calls, slept_through;

int
clock_gettime(clockid_t id, struct timespec *ts)
{
	if (hook_engine != NULL && ++clock_calls == hook_at)
		fake_say(hook_engine, 1, 1, KVF_TRANSFERRING, 0);
	return (int)syscall(SYS_clock_gettime, id, ts);
}

int
poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	long rc = syscall(SYS_poll, fds, n, timeout_ms);

	if (rc == 0 && hook_engine != NULL)
		slept_through++;
	return (int)rc;
}

/* Opens a decode endpoint with rooms 1..n posted (and taken); room r has seq r. */
static struct kvf_endpoint *
with_rooms(struct fake *f, uint64_t n)
{
	struct kvf_endpoint *ep = fake_pair(f, KVF_DECODE, 64, 16, 4096, 64);
	uint64_t r;

	for (r = 1; r <= n; r++) {
		const struct kvf_recv_args a = {.room = r, .total_tokens = 64};

		CHECK_EQ(kvf_recv(ep, &a, NULL), 0);
		fake_take(f, 1);
	}
	return ep;
}

static void
say_tokens(struct fake *f, uint64_t room, enum kvf_status st, uint64_t tokens)
{
	const struct kvf_cqe cqe = {
		.room = room, .seq = room, .status = (uint8_t)st, .tokens = tokens};

	fake_push(f, &cqe, NULL);
}

/* Polls until the engine is reported gone; events are counted and dropped. */
static int
poll_to_end(struct kvf_endpoint *ep, int *events)
{
	uint64_t deadline = kvf_deadline(10000);
	struct kvf_event ev[4];
	int rc;

	*events = 0;
	do {
		rc = kvf_poll(ep, ev, 4);
		if (rc > 0)
			*events += rc;
	} while (rc >= 0 && kvf_deadline_left(deadline) > 0);
	return rc;
}

static void
test_events(void)
{
	struct kvf_endpoint *ep;
	struct kvf_event ev[8];
	struct fake f;

	ep = with_rooms(&f, 4);
	CHECK_EQ(kvf_poll(ep, ev, 8), 0); /* posting is no event */
	CHECK_EQ(kvf_poll(ep, ev, -1), KVF_E_INVAL);
	CHECK_EQ(kvf_poll(ep, NULL, 1), KVF_E_INVAL);
	CHECK_EQ(kvf_poll(NULL, ev, 8), KVF_E_INVAL);
	CHECK_EQ(kvf_poll(ep, NULL, 0), 0);
	/* Several changes of a room are one event, in the order of each room's first change. */
	fake_say(&f, 2, 2, KVF_WAITING_FOR_INPUT, 0);
	fake_say(&f, 1, 1, KVF_WAITING_FOR_INPUT, 0);
	say_tokens(&f, 2, KVF_TRANSFERRING, 16);
	say_tokens(&f, 2, KVF_TRANSFERRING, 48);
	fake_say(&f, 2, 2, KVF_SUCCESS, KVF_CQE_DRAINED);
	CHECK_EQ(kvf_poll(ep, ev, 8), 2);
	CHECK(ev[0].room == 2 && ev[0].status == KVF_SUCCESS && ev[0].drained == 1);
	CHECK_EQ(ev[0].tokens, 48);
	CHECK_EQ(ev[0].error, 0);
	CHECK(ev[1].room == 1 && ev[1].status == KVF_WAITING_FOR_INPUT && ev[1].drained == 0);
	CHECK_EQ(kvf_poll(ep, ev, 8), 0);
	/* Nothing new in it: no event. */
	fake_say(&f, 1, 1, KVF_WAITING_FOR_INPUT, 0);
	fake_say(&f, 1, 1, KVF_BOOTSTRAPPING, 0);
	CHECK_EQ(kvf_poll(ep, ev, 8), 0);
	/* More events than asked for stay for the next call. */
	fake_say(&f, 1, 1, KVF_TRANSFERRING, 0);
	fake_say(&f, 3, 3, KVF_TRANSFERRING, 0);
	fake_fail(&f, 4, 4, KVF_E_PAGE, "page=9 limit=8", KVF_CQE_DRAINED);
	CHECK_EQ(kvf_poll(ep, ev, 2), 2);
	CHECK(ev[0].room == 1 && ev[1].room == 3);
	CHECK_EQ(kvf_poll(ep, ev, 2), 1);
	CHECK(ev[0].room == 4 && ev[0].status == KVF_FAILED && ev[0].error == KVF_E_PAGE);
	CHECK_EQ(ev[0].drained, 1);
	fake_finish(&f, ep, 0);
}

static void
test_states(void)
{
	struct kvf_endpoint *ep;
	struct kvf_event ev[8];
	struct kvf_err err;
	struct fake f;

	ep = with_rooms(&f, 3);
	/* Rises only. */
	fake_say(&f, 1, 1, KVF_TRANSFERRING, 0);
	fake_say(&f, 1, 1, KVF_BOOTSTRAPPING, 0);
	CHECK_EQ(kvf_room_status(ep, 1), KVF_TRANSFERRING);
	CHECK_EQ(kvf_room_error(ep, 1, &err), 0);
	CHECK(err.code == 0 && err.text[0] == '\0');
	CHECK_EQ(kvf_room_error(ep, 1, NULL), 0);
	/* Failed is sticky, the first cause stays, draining comes later and stays. */
	fake_fail(&f, 1, 1, KVF_E_MISMATCH, "layer=3 src=64 dst=32", 0);
	CHECK_EQ(kvf_room_status(ep, 1), KVF_FAILED);
	CHECK_EQ(kvf_room_drained(ep, 1), 0);
	fake_fail(&f, 1, 1, KVF_E_TIMEOUT, "second", KVF_CQE_DRAINED);
	fake_say(&f, 1, 1, KVF_SUCCESS, 0);
	CHECK_EQ(kvf_room_status(ep, 1), KVF_FAILED);
	CHECK_EQ(kvf_room_drained(ep, 1), 1);
	CHECK_EQ(kvf_room_error(ep, 1, &err), KVF_E_MISMATCH);
	CHECK_EQ(err.code, KVF_E_MISMATCH);
	CHECK(strcmp(err.text, "layer=3 src=64 dst=32") == 0);
	CHECK_EQ(kvf_poll(ep, ev, 8), 1);
	CHECK(ev[0].error == KVF_E_MISMATCH && ev[0].drained == 1);
	/* Success is final too: somebody may read the pages already. */
	fake_say(&f, 2, 2, KVF_SUCCESS, 0);
	CHECK_EQ(kvf_room_status(ep, 2), KVF_SUCCESS);
	fake_fail(&f, 2, 2, KVF_E_TIMEOUT, "late", KVF_CQE_DRAINED);
	CHECK_EQ(kvf_room_status(ep, 2), KVF_SUCCESS);
	CHECK_EQ(kvf_room_error(ep, 2, &err), 0);
	CHECK_EQ(kvf_room_drained(ep, 2), 1);
	/* Tokens never go back. */
	say_tokens(&f, 3, KVF_TRANSFERRING, 20);
	say_tokens(&f, 3, KVF_TRANSFERRING, 10);
	CHECK_EQ(kvf_poll(ep, ev, 8), 2);
	CHECK(ev[1].room == 3 && ev[1].tokens == 20);
	/* Failed without a reason is a failure all the same. */
	fake_fail(&f, 3, 3, 0, NULL, 0);
	CHECK_EQ(kvf_room_error(ep, 3, &err), KVF_E_PROTO);
	CHECK_STR_HAS(err.text, "room=3");
	CHECK_EQ(kvf_room_status(ep, 99), KVF_E_NOENT);
	CHECK_EQ(kvf_room_drained(ep, 99), KVF_E_NOENT);
	CHECK_EQ(kvf_room_error(ep, 99, &err), KVF_E_NOENT);
	CHECK_STR_HAS(err.text, "room=99");
	CHECK_EQ(kvf_room_status(NULL, 1), KVF_E_NOENT);
	fake_finish(&f, ep, 0);
}

/* A message about an earlier use of a room id touches nothing. */
static void
test_stale(void)
{
	const struct kvf_recv_args a = {.room = 1, .total_tokens = 64};
	struct kvf_endpoint *ep;
	struct kvf_event ev[8];
	struct fake f;

	ep = with_rooms(&f, 1);
	fake_fail(&f, 1, 1, KVF_E_PEER_DIED, "gone", KVF_CQE_DRAINED);
	CHECK_EQ(kvf_room_drained(ep, 1), 1);
	CHECK_EQ(kvf_room_release(ep, 1, NULL), 0);
	fake_say(&f, 1, 1, KVF_TRANSFERRING, 0); /* released: of no room */
	CHECK_EQ(kvf_poll(ep, ev, 8), 0);
	CHECK_EQ(kvf_room_status(ep, 1), KVF_E_NOENT);
	CHECK_EQ(kvf_recv(ep, &a, NULL), 0);
	fake_fail(&f, 1, 1, KVF_E_PEER_DIED, "gone", KVF_CQE_DRAINED);
	fake_say(&f, 1, 1, KVF_SUCCESS, KVF_CQE_DRAINED);
	fake_say(&f, 1, 3, KVF_SUCCESS, KVF_CQE_DRAINED);
	fake_say(&f, 1, 0, KVF_SUCCESS, KVF_CQE_DRAINED);
	CHECK_EQ(kvf_poll(ep, ev, 8), 0);
	CHECK_EQ(kvf_room_status(ep, 1), KVF_BOOTSTRAPPING);
	CHECK_EQ(kvf_room_drained(ep, 1), 0);
	fake_say(&f, 1, 2, KVF_SUCCESS, 0);
	CHECK_EQ(kvf_poll(ep, ev, 8), 1);
	CHECK_EQ(ev[0].status, KVF_SUCCESS);
	fake_finish(&f, ep, 0);
}

/* Sentences come from shared memory: they end within their slot, whatever stands there. */
static void
test_text(void)
{
	struct kvf_endpoint *ep;
	struct kvf_err err;
	struct fake f;
	uint32_t i;

	ep = with_rooms(&f, 1);
	for (i = 0; i < f.ring.cq_entries; i++)
		memset(f.ring.text[i].text, 'A', sizeof(f.ring.text[i].text));
	fake_fail(&f, 1, 1, KVF_E_DEVICE, NULL, 0);
	CHECK_EQ(kvf_room_error(ep, 1, &err), KVF_E_DEVICE);
	CHECK_EQ(strlen(err.text), sizeof(err.text) - 1);
	fake_finish(&f, ep, 0);
}

/* One call does a bounded amount of work; the ring wraps many times. */
static void
test_bounded(void)
{
	struct kvf_endpoint *ep;
	struct kvf_event ev[2];
	struct kvf_recv_args a = {.room = 1, .total_tokens = 64};
	struct fake f;
	uint32_t i, head = 0, calls = 0;

	ep = fake_pair(&f, KVF_DECODE, 8, 1024, 4096, 8);
	CHECK_EQ(kvf_recv(ep, &a, NULL), 0);
	for (i = 0; i < 1024; i++)
		say_tokens(&f, 1, KVF_TRANSFERRING, i + 1);
	while (head < 1024 && calls < 2000) {
		uint32_t now;

		CHECK_EQ(kvf_poll(ep, ev, 2), 1);
		now = atomic_load(&f.ring.hdr->cq_head);
		CHECK(now - head > 0 && now - head <= 256);
		CHECK_EQ(ev[0].tokens, now);
		head = now;
		calls++;
	}
	CHECK(calls >= 4);
	for (i = 1024; i < 20000; i++) {
		say_tokens(&f, 1, KVF_TRANSFERRING, i + 1);
		if (i % 3 != 0)
			continue;
		CHECK_EQ(kvf_poll(ep, ev, 2), 1);
		CHECK_EQ(ev[0].tokens, i + 1);
	}
	fake_finish(&f, ep, 0);
}

static void
test_engine_dies(void)
{
	const struct kvf_recv_args again = {.room = 9, .total_tokens = 1};
	struct kvf_endpoint *ep;
	struct kvf_event ev[8];
	struct kvf_err err;
	struct fake f;
	int i, n;

	ep = with_rooms(&f, 5);
	fake_fail(&f, 3, 3, KVF_E_PAGE, "first cause", KVF_CQE_DRAINED);
	CHECK_EQ(kvf_poll(ep, ev, 8), 1);
	/* Published before it died: counts. */
	fake_say(&f, 1, 1, KVF_SUCCESS, 0);
	fake_say(&f, 2, 2, KVF_TRANSFERRING, 0);
	fake_kill(&f);
	usleep(15000);
	CHECK_EQ(kvf_recv(ep, &again, &err), KVF_E_ENGINE_GONE);
	CHECK_STR_HAS(err.text, "kvferryd at path=");
	CHECK_STR_HAS(err.text, "is gone");
	n = kvf_poll(ep, ev, 8);
	CHECK_EQ(n, 4);
	for (i = 0; i < n && i < 8; i++) {
		CHECK(ev[i].room != 3); /* was finished and drained: no news */
		CHECK_EQ(ev[i].drained, 1);
		CHECK_EQ(ev[i].status, ev[i].room == 1 ? KVF_SUCCESS : KVF_FAILED);
		CHECK_EQ(ev[i].error, ev[i].room == 1 ? 0 : KVF_E_ENGINE_GONE);
	}
	/* Said once; from then on it is a matter of waiting for the next engine. */
	CHECK_EQ(kvf_poll(ep, ev, 8), KVF_E_ENGINE_GONE);
	CHECK_EQ(kvf_poll(ep, ev, 8), 0);
	CHECK_EQ(kvf_wait(ep, 0), 0);
	CHECK_EQ(kvf_wait(ep, 30), 0);
	CHECK_EQ(kvf_poll(ep, ev, 8), 0);
	CHECK_EQ(kvf_room_error(ep, 2, &err), KVF_E_ENGINE_GONE);
	CHECK_STR_HAS(err.text, "room=2");
	CHECK_STR_HAS(err.text, f.path);
	CHECK_EQ(kvf_room_error(ep, 3, &err), KVF_E_PAGE);
	CHECK_EQ(kvf_room_status(ep, 1), KVF_SUCCESS);
	/* Rooms can be tidied up all the same. */
	CHECK_EQ(kvf_abort(ep, 2, NULL, &err), 0);
	CHECK_EQ(kvf_room_release(ep, 2, &err), 0);
	CHECK_EQ(kvf_room_status(ep, 2), KVF_E_NOENT);
	CHECK_EQ(kvf_abort(ep, 2, NULL, &err), KVF_E_NOENT);
	fake_finish(&f, ep, KVF_E_ENGINE_GONE);
}

/* While posting: the ring may even have room, nobody will ever look. */
static void
test_dies_while_posting(void)
{
	uint64_t deadline = kvf_deadline(10000), start = 0;
	struct kvf_send_args a = {.room = 1, .num_tokens = 1, .total_tokens = 1u << 30};
	struct kvf_endpoint *ep;
	struct kvf_err err;
	struct fake f;
	int rc, events;

	ep = fake_pair(&f, KVF_PREFILL, 64, 16, 4096, 8);
	do {
		a.start_token = start;
		rc = kvf_send(ep, &a, &err);
		if (rc == 0)
			start++;
		if (start == 20)
			fake_hang_up(&f);
	} while ((rc == 0 || rc == KVF_E_AGAIN) && kvf_deadline_left(deadline) > 0);
	CHECK_EQ(rc, KVF_E_ENGINE_GONE);
	CHECK_STR_HAS(err.text, "is gone");
	CHECK_EQ(poll_to_end(ep, &events), KVF_E_ENGINE_GONE);
	CHECK_EQ(events, 1);
	CHECK_EQ(kvf_room_drained(ep, 1), 1);
	fake_finish(&f, ep, KVF_E_ENGINE_GONE);
}

/* What the engine said about the endpoint before it hung up explains the end. */
static void
test_engine_said(void)
{
	const struct kvf_cqe cqe = {.error = KVF_E_POOL_LOST, .flags = KVF_CQE_ENDPOINT};
	struct kvf_endpoint *ep;
	struct kvf_event ev[4];
	struct kvf_err err;
	struct fake f;
	int events;

	ep = with_rooms(&f, 1);
	fake_push(&f, &cqe, "pool lost page at offset=4096");
	CHECK_EQ(kvf_poll(ep, ev, 4), 0); /* of no room */
	CHECK_EQ(kvf_room_status(ep, 1), KVF_BOOTSTRAPPING);
	fake_hang_up(&f);
	CHECK_EQ(poll_to_end(ep, &events), KVF_E_ENGINE_GONE);
	CHECK_EQ(events, 1);
	CHECK_EQ(kvf_room_error(ep, 1, &err), KVF_E_ENGINE_GONE);
	CHECK_STR_HAS(err.text, "it said: pool lost page at offset=4096");
	fake_finish(&f, ep, KVF_E_ENGINE_GONE);
}

/* An orderly stop fails the rooms at once; only the closed socket proves that they are drained. */
static void
test_orderly_stop(void)
{
	struct kvf_endpoint *ep;
	struct kvf_event ev[4];
	struct kvf_err err;
	struct kvf_recv_args a = {.room = 9, .total_tokens = 1};
	struct fake f;
	int n;

	ep = with_rooms(&f, 2);
	fake_say(&f, 1, 1, KVF_SUCCESS, KVF_CQE_DRAINED);
	atomic_store(&f.ring.hdr->engine_stopped, 1);
	usleep(15000);
	CHECK_EQ(kvf_room_status(ep, 1), KVF_SUCCESS);
	CHECK_EQ(kvf_recv(ep, &a, &err), KVF_E_ENGINE_GONE);
	CHECK_EQ(kvf_room_status(ep, 2), KVF_FAILED);
	CHECK_EQ(kvf_room_drained(ep, 2), 0);
	CHECK_EQ(kvf_room_release(ep, 2, &err), KVF_E_BUSY);
	CHECK_EQ(kvf_poll(ep, ev, 4), 2);
	CHECK_EQ(kvf_poll(ep, ev, 4), 0); /* lost, but not proven drained */
	CHECK_EQ(kvf_wait(ep, 20), 0);
	CHECK_EQ(kvf_room_release(ep, 1, &err), 0);
	fake_hang_up(&f);
	CHECK_EQ(kvf_wait(ep, 10000), 1);
	n = kvf_poll(ep, ev, 4);
	CHECK_EQ(n, 1);
	CHECK(ev[0].room == 2 && ev[0].drained == 1 && ev[0].error == KVF_E_ENGINE_GONE);
	CHECK_EQ(kvf_poll(ep, ev, 4), KVF_E_ENGINE_GONE);
	CHECK_EQ(kvf_room_release(ep, 2, &err), 0);
	fake_finish(&f, ep, KVF_E_ENGINE_GONE);
}

/* A completion ring that no engine can have written: fail, ask to drain, and say so. */
static void
corrupt(int how)
{
	struct kvf_endpoint *ep;
	struct kvf_event ev[4];
	struct kvf_err err;
	struct fake f;
	int events;

	ep = with_rooms(&f, 2);
	if (how == 0)
		fake_say(&f, 1, 1, (enum kvf_status)5, 0);
	else
		atomic_store(&f.ring.hdr->cq_tail, how == 1 ? 17 : UINT32_MAX);
	CHECK_EQ(kvf_room_status(ep, 1), KVF_FAILED);
	CHECK_EQ(kvf_room_error(ep, 2, &err), KVF_E_PROTO);
	CHECK_STR_HAS(err.text, "was overwritten");
	CHECK_STR_HAS(err.text, how == 0 ? "status=5, limit=4" : "limit=16");
	/* The engine sees the end of this endpoint, closes, and that is the proof. */
	CHECK(kvf_wait(ep, 10000) == 1);
	CHECK(kvf_poll(ep, ev, 1) == 1);
	CHECK_EQ(poll_to_end(ep, &events), KVF_E_ENGINE_GONE);
	CHECK_EQ(kvf_room_drained(ep, 1), 1);
	CHECK_EQ(kvf_room_drained(ep, 2), 1);
	CHECK_EQ(kvf_room_release(ep, 1, &err), 0);
	fake_finish(&f, ep, KVF_E_ENGINE_GONE);
}

static void
test_corrupt(void)
{
	corrupt(0);
	corrupt(1);
	corrupt(2);
}

static void
test_noise(void)
{
	struct kvf_endpoint *ep;
	struct kvf_event ev[4];
	struct fake f;
	int i;

	ep = with_rooms(&f, 1);
	for (i = 0; i < 5; i++)
		CHECK_EQ(send(f.conn, "noise", 5, MSG_NOSIGNAL), 5);
	CHECK_EQ(kvf_wait(ep, 30), 0);
	fake_say(&f, 1, 1, KVF_TRANSFERRING, 0);
	CHECK_EQ(kvf_wait(ep, 10000), 1);
	CHECK_EQ(kvf_poll(ep, ev, 4), 1);
	fake_finish(&f, ep, 0);
}

static void
test_wait(void)
{
	struct kvf_endpoint *ep;
	struct kvf_event ev[4];
	struct fake f;
	uint64_t t0;

	ep = with_rooms(&f, 2);
	CHECK_EQ(kvf_wait(ep, -1), KVF_E_INVAL);
	CHECK_EQ(kvf_wait(NULL, 0), KVF_E_INVAL);
	CHECK_EQ(kvf_wait(ep, 0), 0);
	t0 = kvf_clock_ms(CLOCK_MONOTONIC);
	CHECK_EQ(kvf_wait(ep, 40), 0);
	CHECK(kvf_clock_ms(CLOCK_MONOTONIC) - t0 >= 40);
	CHECK_EQ(atomic_load(&f.ring.hdr->client_sleeping), 0);
	/* There already: no sleep, and it stays until it is taken. */
	fake_say(&f, 1, 1, KVF_TRANSFERRING, 0);
	CHECK_EQ(kvf_wait(ep, 0), 1);
	CHECK_EQ(kvf_wait(ep, 10000), 1);
	CHECK_EQ(kvf_poll(ep, ev, 4), 1);
	CHECK_EQ(kvf_wait(ep, 0), 0);
	/* A stale completion is nothing to say: the sleep goes on to its limit. */
	fake_say(&f, 1, 77, KVF_SUCCESS, 0);
	CHECK_EQ(kvf_wait(ep, 30), 0);
	/* As is a ring of the bell without any. */
	CHECK_EQ(write(f.completion_fd, &(uint64_t){3}, 8), 8);
	CHECK_EQ(kvf_wait(ep, 30), 0);
	fake_finish(&f, ep, 0);
}

/* News at any step of falling asleep: never slept through. */
static void
falling_asleep(uint32_t steps, bool look)
{
	uint32_t at;

	for (at = 1; at <= steps; at++) {
		struct kvf_endpoint *ep;
		struct kvf_event ev[4];
		struct fake f;
		int rc;

		ep = with_rooms(&f, 1);
		slept_through = 0;
		clock_calls = 0;
		hook_at = at;
		/* Far from the last look at the socket, or just after it. */
		ep->checked_ms = look ? 0 : kvf_clock_ms(CLOCK_MONOTONIC_COARSE);
		hook_engine = &f;
		rc = kvf_wait(ep, 1500);
		hook_engine = NULL;
		CHECK_EQ(rc, 1);
		CHECK_EQ(slept_through, 0);
		CHECK_EQ(kvf_poll(ep, ev, 4), 1);
		CHECK(clock_calls >= at);
		fake_finish(&f, ep, 0);
	}
}

static void
test_falling_asleep(void)
{
	/* Deadline, liveness, limit, limit again for the sleep itself. */
	falling_asleep(4, false);
	/* With a look at the socket, which has a limit of its own. */
	falling_asleep(6, true);
}

struct late {
	struct fake *f;
	bool hang_up;
};

static void *
later(void *arg)
{
	const struct late *l = arg;

	usleep(40000);
	if (l->hang_up)
		fake_hang_up(l->f);
	else
		fake_say(l->f, 1, 1, KVF_SUCCESS, KVF_CQE_DRAINED);
	return NULL;
}

static void
test_woken(void)
{
	int hang_up;

	for (hang_up = 0; hang_up <= 1; hang_up++) {
		struct kvf_endpoint *ep;
		struct kvf_event ev[4];
		pthread_t th;
		struct fake f;
		struct late l = {.f = &f, .hang_up = hang_up};

		ep = with_rooms(&f, 1);
		CU_ASSERT_EQUAL_FATAL(pthread_create(&th, NULL, later, &l), 0);
		CHECK_EQ(kvf_wait(ep, 20000), 1);
		pthread_join(th, NULL);
		CHECK_EQ(kvf_poll(ep, ev, 4), 1);
		CHECK_EQ(ev[0].status, hang_up ? KVF_FAILED : KVF_SUCCESS);
		CHECK_EQ(ev[0].drained, 1);
		CHECK_EQ(kvf_wait(ep, 0), hang_up ? KVF_E_ENGINE_GONE : 0);
		fake_finish(&f, ep, hang_up ? KVF_E_ENGINE_GONE : 0);
	}
}

static const struct suite_case cases[] = {
	{"events are coalesced and in order", test_events},
	{"states rise, ends are final, the first cause stays", test_states},
	{"completions of an earlier use are ignored", test_stale},
	{"a sentence without an end", test_text},
	{"bounded work per call, many laps", test_bounded},
	{"the engine dies", test_engine_dies},
	{"the engine dies while one posts", test_dies_while_posting},
	{"the engine says why and hangs up", test_engine_said},
	{"an orderly stop", test_orderly_stop},
	{"a damaged completion ring", test_corrupt},
	{"packets that nobody asked for", test_noise},
	{"wait", test_wait},
	{"news at any step of falling asleep", test_falling_asleep},
	{"a wait is woken by news and by the end", test_woken},
};

SUITE_MAIN("client_poll", cases)
