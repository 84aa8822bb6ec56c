/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine goes, and another one comes. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client/endpoint.h"
#include "common/suite.h"
#include "unit/client/fake_engine.h"
#include "wire/deadline.h"

#define LONG_MS 20000

/* What the client's thread slept, as it asked for it. */
static _Thread_local bool watched;
static _Thread_local uint32_t sleeps;

int
poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	if (watched && timeout_ms != 0)
		sleeps++;
	return (int)syscall(SYS_poll, fds, n, timeout_ms);
}

int
nanosleep(const struct timespec *t, struct timespec *left)
{
	if (watched)
		sleeps++;
	return (int)syscall(SYS_nanosleep, t, left);
}

static int
grant(struct kvf_endpoint *ep, uint64_t room, struct kvf_err *err)
{
	const uint32_t ids[] = {1, 2};
	const struct kvf_pages list = {0, 2, ids};
	const struct kvf_recv_args a = {
		.room = room, .total_tokens = 32, .lists = &list, .num_lists = 1};

	return kvf_recv(ep, &a, err);
}

/* Polls until the endpoint's state is `want`; what events there are is counted. */
static bool
until_state(struct kvf_endpoint *ep, int want, int *events)
{
	uint64_t deadline = kvf_deadline(LONG_MS);
	struct kvf_err err;
	int st = 0;

	do {
		struct kvf_event ev[8];
		int n = kvf_poll(ep, ev, 8);

		if (n > 0 && events != NULL)
			*events += n;
		st = kvf_endpoint_state(ep, &err);
		if (st == want && (st == 1 || ep->attempts > 0))
			return true;
	} while (kvf_deadline_left(deadline) > 0);
	CHECK_EQ(st, want);
	printf("        %s\n", err.text);
	return false;
}

/* Polls until the loss is said. */
static bool
until_gone(struct kvf_endpoint *ep, int *events)
{
	uint64_t deadline = kvf_deadline(LONG_MS);
	struct kvf_event ev[8];
	int n;

	*events = 0;
	do {
		n = kvf_poll(ep, ev, 8);
		if (n > 0)
			*events += n;
	} while (n >= 0 && kvf_deadline_left(deadline) > 0);
	return CHECK_EQ(n, KVF_E_ENGINE_GONE);
}

static void
test_comes_back(void)
{
	struct stat ours, theirs;
	struct kvf_endpoint *ep;
	struct kvf_err err;
	struct kvf_sqe sqe;
	struct fake f;
	int events;

	ep = fake_open(&f, KVF_DECODE);
	CHECK_EQ(kvf_endpoint_state(ep, &err), 1);
	CHECK(err.code == 0 && err.text[0] == '\0');
	CHECK_EQ(kvf_endpoint_state(NULL, &err), KVF_E_INVAL);
	CHECK_EQ(grant(ep, 10, NULL), 0);
	CHECK_EQ(grant(ep, 11, NULL), 0);
	CHECK_EQ(grant(ep, 12, NULL), 0);
	fake_say(&f, 11, 2, KVF_SUCCESS, KVF_CQE_DRAINED);
	fake_kill(&f);
	until_gone(ep, &events);
	CHECK_EQ(events, 3);
	CHECK_EQ(kvf_endpoint_state(ep, &err), 0);
	CHECK_EQ(err.code, KVF_E_ENGINE_GONE);
	CHECK_STR_HAS(err.text, "is gone; reconnecting, attempts=");
	fake_again(&f, FAKE_WELCOME);
	if (!until_state(ep, 1, NULL))
		goto out;
	/* The same endpoint to the last byte. */
	CHECK_EQ(f.reg->msg.role, KVF_DECODE);
	CHECK(strcmp(f.reg->msg.group, "group-a") == 0);
	CHECK_EQ(f.reg->msg.rank, 1);
	CHECK_EQ(f.reg->msg.sq_entries, 8);
	CHECK_EQ(f.reg->geometry.components[0].num_entries, 2);
	CHECK_EQ(f.reg->geometry.components[0].entries[1].offset, 65536);
	CHECK_EQ(fstat(kvf_pool_fd(ep->pool), &ours), 0);
	CHECK_EQ(fstat(f.pool_fd, &theirs), 0);
	CHECK(ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev);
	/* Rooms of the old engine are there to be read and released; the new one hears nothing. */
	CHECK_EQ(kvf_room_status(ep, 11), KVF_SUCCESS);
	CHECK_EQ(kvf_room_error(ep, 10, &err), KVF_E_ENGINE_GONE);
	CHECK_EQ(kvf_room_drained(ep, 10), 1);
	CHECK_EQ(kvf_abort(ep, 10, "late", &err), 0);
	CHECK_EQ(grant(ep, 10, &err), KVF_E_EXIST);
	CHECK_EQ(kvf_room_release(ep, 10, &err), 0);
	CHECK_EQ(kvf_room_release(ep, 11, &err), 0);
	CHECK_EQ(fake_waiting(&f), 0);
	/* Not one completion about them is taken. */
	fake_fail(&f, 12, 3, KVF_E_PAGE, "of another life", 0);
	fake_say(&f, 10, 1, KVF_SUCCESS, KVF_CQE_DRAINED);
	CHECK_EQ(kvf_room_error(ep, 12, &err), KVF_E_ENGINE_GONE);
	/* And what is posted now is new. */
	CHECK_EQ(grant(ep, 10, &err), 0);
	fake_next(&f, &sqe);
	CHECK_EQ(sqe.op, KVF_OP_RECV);
	CHECK_EQ(sqe.room, 10);
	CHECK_EQ(sqe.seq, 4);
	CHECK_EQ(fake_ids(&f, &sqe, 0)[1], 2);
	CHECK_EQ(kvf_room_status(ep, 10), KVF_BOOTSTRAPPING);
	fake_say(&f, 10, 4, KVF_SUCCESS, KVF_CQE_DRAINED);
	CHECK_EQ(kvf_room_status(ep, 10), KVF_SUCCESS);
	CHECK_EQ(kvf_room_release(ep, 10, &err), 0);
	fake_next(&f, &sqe);
	CHECK_EQ(sqe.op, KVF_OP_RELEASE);
	CHECK_EQ(sqe.seq, 4);
out:
	fake_finish(&f, ep, 0);
}

/* Each way to lose an engine, and that a room posted to the next one ends well. */
static void
test_ways_to_lose(void)
{
	static const char *const what[] = {"killed", "stopped", "ring damaged", "bad status"};
	int way;

	for (way = 0; way < 4; way++) {
		struct kvf_endpoint *ep;
		struct kvf_err err;
		struct kvf_sqe sqe;
		struct fake f;
		int events;

		ep = fake_open(&f, KVF_DECODE);
		CHECK_EQ(grant(ep, 1, NULL), 0);
		if (way == 1)
			atomic_store(&f.ring.hdr->engine_stopped, 1);
		else if (way == 2)
			atomic_store(&f.ring.hdr->cq_tail, 99);
		else if (way == 3)
			fake_say(&f, 1, 1, (enum kvf_status)9, 0);
		if (way <= 1)
			fake_kill(&f);
		until_gone(ep, &events);
		CHECK(events >= 1);
		CHECK_EQ(kvf_room_error(ep, 1, &err), way <= 1 ? KVF_E_ENGINE_GONE : KVF_E_PROTO);
		fake_kill(&f);
		fake_again(&f, FAKE_WELCOME);
		if (until_state(ep, 1, NULL)) {
			CHECK_EQ(kvf_room_release(ep, 1, NULL), 0);
			CHECK_EQ(grant(ep, 1, NULL), 0);
			fake_next(&f, &sqe);
			fake_say(&f, 1, sqe.seq, KVF_SUCCESS, KVF_CQE_DRAINED);
			if (!CHECK_EQ(kvf_room_status(ep, 1), KVF_SUCCESS))
				printf("        %s\n", what[way]);
		}
		fake_finish(&f, ep, 0);
	}
}

static void
test_posting_while_down(void)
{
	const struct kvf_send_args s = {.room = 7, .num_tokens = 1, .total_tokens = 2};
	struct kvf_endpoint *ep;
	struct kvf_err err;
	int events, tries, rc;
	struct fake f;

	ep = fake_open(&f, KVF_PREFILL);
	CHECK_EQ(kvf_send(ep, &s, &err), 0);
	fake_kill(&f);
	until_gone(ep, &events);
	usleep(60000);
	watched = true;
	sleeps = 0;
	CHECK_EQ(kvf_send(ep, &(struct kvf_send_args){.room = 8, .total_tokens = 1}, &err),
		KVF_E_ENGINE_GONE);
	CHECK_EQ(err.code, KVF_E_ENGINE_GONE);
	CHECK_STR_HAS(err.text, "is gone; reconnecting, attempts=");
	CHECK_STR_HAS(err.text, "last: no kvferryd listens at path=");
	CHECK_EQ(kvf_room_status(ep, 8), KVF_E_NOENT);
	CHECK_EQ(sleeps, 0);
	watched = false;
	fake_again(&f, FAKE_WELCOME);
	if (CHECK_EQ(kvf_wait(ep, LONG_MS), 0) && CHECK_EQ(ep->state, KVF_EP_UP)) {
		CHECK_EQ(fake_waiting(&f), 0);
		/* The room that the old engine had is not gone on with. */
		CHECK_EQ(kvf_send(ep,
				 &(struct kvf_send_args){.room = 7,
					 .start_token = 1,
					 .num_tokens = 1,
					 .total_tokens = 2},
				 &err),
			KVF_E_EXIST);
		CHECK_STR_HAS(err.text, "ENGINE_GONE");
		CHECK_EQ(fake_waiting(&f), 0);
		fake_kill(&f);
		until_gone(ep, &events);
		fake_again(&f, FAKE_WELCOME);
		/* Nothing but posting. */
		for (tries = 0, rc = -1; tries < 5000 && rc != 0; tries++) {
			rc = kvf_send(
				ep, &(struct kvf_send_args){.room = 9, .total_tokens = 1}, &err);
			usleep(1000);
		}
		if (CHECK_EQ(rc, 0))
			CHECK_EQ(fake_waiting(&f), 1);
	}
	fake_finish(&f, ep, 0);
}

/* Nobody there: few attempts, none of them sleeps; kvf_wait() keeps its limit. */
static void
test_spinning(void)
{
	struct kvf_endpoint *ep;
	struct kvf_event ev[4];
	uint64_t end, t0;
	struct fake f;
	int events;

	ep = fake_open(&f, KVF_DECODE);
	fake_kill(&f);
	until_gone(ep, &events);
	CHECK_EQ(events, 0);
	watched = true;
	sleeps = 0;
	ep->attempts = 0;
	t0 = kvf_clock_ms(CLOCK_MONOTONIC);
	for (end = kvf_deadline(300); kvf_deadline_left(end) > 0;)
		CHECK_EQ(kvf_poll(ep, ev, 4), 0);
	CHECK_EQ(sleeps, 0);
	CHECK(ep->attempts >= 1);
	CHECK(ep->attempts <= (kvf_clock_ms(CLOCK_MONOTONIC) - t0) / 50 + 1);
	ep->attempts = 0;
	t0 = kvf_clock_ms(CLOCK_MONOTONIC);
	CHECK_EQ(kvf_wait(ep, 200), 0);
	CHECK(kvf_clock_ms(CLOCK_MONOTONIC) - t0 >= 200);
	CHECK(ep->attempts >= 1);
	/* Asleep between the attempts, not spinning. */
	CHECK(sleeps >= 1 && sleeps < 200);
	CHECK_EQ(kvf_wait(ep, 0), 0);
	watched = false;
	fake_finish(&f, ep, KVF_E_ENGINE_GONE);
}

/* It accepts and says nothing: asked for as long as an open would wait, then again. */
static void
test_silent(void)
{
	struct kvf_endpoint *ep;
	struct kvf_event ev[4];
	struct kvf_err err;
	uint64_t end;
	struct fake f;
	int events;

	ep = fake_open(&f, KVF_DECODE);
	fake_kill(&f);
	until_gone(ep, &events);
	ep->open_timeout_ms = 150;
	fake_again(&f, FAKE_SILENT);
	watched = true;
	sleeps = 0;
	for (end = kvf_deadline(LONG_MS);
		ep->refusal.code != KVF_E_TIMEOUT && kvf_deadline_left(end) > 0;) {
		CHECK_EQ(kvf_poll(ep, ev, 4), 0);
		CHECK_EQ(kvf_endpoint_state(ep, &err), 0);
	}
	CHECK_EQ(sleeps, 0);
	watched = false;
	CHECK_EQ(ep->refusal.code, KVF_E_TIMEOUT);
	CHECK_EQ(kvf_endpoint_state(ep, &err), 0);
	CHECK_STR_HAS(err.text, "did not answer within timeout_ms=150");
	fake_kill(&f);
	fake_again(&f, FAKE_WELCOME);
	ep->open_timeout_ms = 5000;
	until_state(ep, 1, NULL);
	fake_finish(&f, ep, 0);
}

static void
test_refused(void)
{
	static const struct {
		enum fake_mode mode;
		int state;
		const char *part;
	} t[] = {
		{FAKE_REFUSE, 0, "rank=1 is taken"},
		{FAKE_REFUSE_EARLY, 0, "rank=1 is taken"},
		{FAKE_HANG_UP, 0, "without an answer"},
		{FAKE_OLD_VERSION, KVF_E_VERSION, "version=2"},
		{FAKE_GARBAGE, KVF_E_PROTO, "magic="},
		{FAKE_TWO_FDS, KVF_E_PROTO, "fds=2"},
		{FAKE_SHORT_WELCOME, KVF_E_PROTO, "length=40"},
		{FAKE_OTHER_BYTES, KVF_E_PROTO, "expected="},
		{FAKE_SMALL_MEMORY, KVF_E_PROTO, "has bytes="},
		{FAKE_BAD_MAGIC, KVF_E_PROTO, "ring magic="},
		{FAKE_OTHER_GENERATION, KVF_E_PROTO, "endpoint_generation=8"},
	};
	int before = open_fds(), maps = open_maps();
	size_t i;

	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct kvf_endpoint *ep;
		struct kvf_err err;
		struct fake f;
		int events;

		ep = fake_open(&f, KVF_DECODE);
		fake_kill(&f);
		until_gone(ep, &events);
		fake_again(&f, t[i].mode);
		ep->attempts = 0;
		if (until_state(ep, t[i].state, NULL)) {
			CHECK_EQ(kvf_endpoint_state(ep, &err), t[i].state);
			CHECK_EQ(err.code, t[i].state != 0 ? t[i].state : KVF_E_ENGINE_GONE);
			CHECK_STR_HAS(err.text, t[i].part);
			CHECK_STR_HAS(err.text, "attempts=");
			CHECK_EQ(grant(ep, 1, &err), KVF_E_ENGINE_GONE);
			CHECK_STR_HAS(err.text, t[i].part);
			/* Who refuses for good is not asked every moment. */
			CHECK(ep->pause_ms <= 1000);
			if (t[i].state != 0)
				CHECK_EQ(ep->pause_ms, 1000);
		}
		fake_kill(&f);
		fake_again(&f, FAKE_WELCOME);
		ep->retry_ms = 0;
		until_state(ep, 1, NULL);
		fake_finish(&f, ep, 0);
		CHECK_EQ(open_fds(), before);
		CHECK_EQ(open_maps(), maps);
	}
}

/* Its last registration is held for a moment longer: asked again, ever more seldom. */
static void
test_back_off(void)
{
	struct kvf_endpoint *ep;
	uint64_t t0;
	struct fake f;
	int events;

	ep = fake_open(&f, KVF_DECODE);
	fake_kill(&f);
	until_gone(ep, &events);
	fake_again_refusing(&f, FAKE_WELCOME, 3, KVF_E_EXIST);
	ep->retry_ms = 0;
	t0 = kvf_clock_ms(CLOCK_MONOTONIC);
	if (until_state(ep, 1, NULL)) {
		/* 100 + 200 + 400, by a clock of up to 10 ms. */
		CHECK(kvf_clock_ms(CLOCK_MONOTONIC) - t0 >= 670);
		CHECK_EQ(f.refuse_first, 0);
	}
	fake_finish(&f, ep, 0);
}

/* What an engine does to a client that misbehaved: the reason, then, when it is drained, the end.
 */
static void
test_dropped(void)
{
	struct kvf_msg_refused m = {
		.hdr = {KVF_MSG_MAGIC, KVF_MSG_VERSION, KVF_MSG_REFUSED, sizeof(m), 0},
		.code = KVF_E_POOL_LOST,
		.text = "pool lost page at offset=4096"};
	struct kvf_endpoint *ep;
	struct kvf_event ev[4];
	struct kvf_err err;
	struct fake f;
	int events;

	ep = fake_open(&f, KVF_DECODE);
	CHECK_EQ(grant(ep, 1, NULL), 0);
	CHECK_EQ(kvf_sock_send(f.conn, &m, sizeof(m), NULL, 0, 1000, NULL), 0);
	CHECK_EQ(kvf_wait(ep, LONG_MS), 1);
	CHECK_EQ(kvf_poll(ep, ev, 4), 1);
	CHECK(ev[0].status == KVF_FAILED && ev[0].error == KVF_E_POOL_LOST && ev[0].drained == 0);
	CHECK_EQ(kvf_room_error(ep, 1, &err), KVF_E_POOL_LOST);
	CHECK_STR_HAS(err.text, "room=1: kvferryd at path=");
	CHECK_STR_HAS(err.text, "dropped this endpoint: POOL_LOST: pool lost page at offset=4096");
	CHECK_EQ(kvf_endpoint_state(ep, &err), 0);
	CHECK_STR_HAS(err.text, "dropped this endpoint");
	CHECK_EQ(grant(ep, 2, &err), KVF_E_ENGINE_GONE);
	CHECK_STR_HAS(err.text, "dropped this endpoint");
	/* It may still copy: no other connection before that has ended. */
	CHECK_EQ(kvf_wait(ep, 120), 0);
	CHECK_EQ(ep->state, KVF_EP_LOST);
	CHECK_EQ(kvf_room_release(ep, 1, &err), KVF_E_BUSY);
	fake_kill(&f);
	until_gone(ep, &events);
	CHECK_EQ(events, 1);
	CHECK_EQ(kvf_room_drained(ep, 1), 1);
	fake_again(&f, FAKE_WELCOME);
	CHECK_EQ(kvf_wait(ep, LONG_MS), 0);
	CHECK_EQ(kvf_endpoint_state(ep, &err), 1);
	CHECK_EQ(grant(ep, 2, &err), 0);
	fake_finish(&f, ep, 0);
}

/* Said once for each loss. */
static void
test_said_once(void)
{
	struct kvf_endpoint *ep;
	struct kvf_event ev[4];
	struct fake f;
	int turn;

	ep = fake_open(&f, KVF_DECODE);
	for (turn = 0; turn < 4; turn++) {
		CHECK_EQ(grant(ep, 1, NULL), 0);
		fake_kill(&f);
		CHECK_EQ(kvf_wait(ep, LONG_MS), 1);
		CHECK_EQ(kvf_poll(ep, ev, 4), 1);
		CHECK(ev[0].status == KVF_FAILED && ev[0].drained == 1);
		/* Who waits hears it, and who does not listen to that when he polls. */
		if (turn % 2 == 1) {
			CHECK_EQ(kvf_wait(ep, LONG_MS), KVF_E_ENGINE_GONE);
			CHECK_EQ(kvf_wait(ep, 0), 0);
		}
		CHECK_EQ(kvf_poll(ep, ev, 4), KVF_E_ENGINE_GONE);
		CHECK_EQ(kvf_poll(ep, ev, 4), 0);
		CHECK_EQ(kvf_wait(ep, 0), 0);
		CHECK_EQ(kvf_room_release(ep, 1, NULL), 0);
		fake_again(&f, FAKE_WELCOME);
		CHECK_EQ(kvf_wait(ep, LONG_MS), 0);
		CHECK_EQ(kvf_endpoint_state(ep, NULL), 1);
	}
	fake_finish(&f, ep, 0);
}

static void
test_many_times(void)
{
	struct kvf_endpoint *ep;
	int fds, maps, turn;
	struct kvf_sqe sqe;
	struct fake f;

	ep = fake_open(&f, KVF_DECODE);
	fds = maps = 0;
	for (turn = 1; turn <= 100; turn++) {
		int events;

		CHECK_EQ(grant(ep, 5, NULL), 0);
		CHECK_EQ(grant(ep, 6, NULL), 0);
		fake_kill(&f);
		if (!until_gone(ep, &events) || !CHECK_EQ(events, 2))
			break;
		/* While there is none: the engine in the same process opens and closes, too. */
		if (turn == 1) {
			fds = open_fds();
			maps = open_maps();
		}
		if (!CHECK_EQ(open_fds(), fds) || !CHECK_EQ(open_maps(), maps))
			break;
		fake_again(&f, FAKE_WELCOME);
		ep->retry_ms = 0;
		if (!CHECK_EQ(kvf_wait(ep, LONG_MS), 0) || !CHECK_EQ(ep->state, KVF_EP_UP))
			break;
		CHECK_EQ(kvf_room_release(ep, 5, NULL), 0);
		CHECK_EQ(kvf_room_release(ep, 6, NULL), 0);
		CHECK_EQ(grant(ep, 5, NULL), 0);
		fake_next(&f, &sqe);
		CHECK_EQ(sqe.seq, 3 * (uint64_t)turn);
		fake_say(&f, 5, sqe.seq, KVF_SUCCESS, KVF_CQE_DRAINED);
		CHECK_EQ(kvf_room_status(ep, 5), KVF_SUCCESS);
		CHECK_EQ(kvf_room_release(ep, 5, NULL), 0);
	}
	fake_finish(&f, ep, 0);
}

static void
test_close_anywhere(void)
{
	int before = open_fds(), maps = open_maps(), asked;

	for (asked = 0; asked <= 1; asked++) {
		struct kvf_endpoint *ep;
		struct fake f;
		int events;

		ep = fake_open(&f, KVF_DECODE);
		fake_kill(&f);
		until_gone(ep, &events);
		if (asked) {
			fake_again(&f, FAKE_SILENT);
			ep->retry_ms = 0;
			kvf_endpoint_state(ep, NULL);
			CHECK_EQ(ep->state, KVF_EP_ASKED);
		}
		fake_finish(&f, ep, KVF_E_ENGINE_GONE);
		CHECK_EQ(open_fds(), before);
		CHECK_EQ(open_maps(), maps);
	}
}

static void *
start_later(void *arg)
{
	usleep(150000);
	fake_again_refusing(arg, FAKE_WELCOME, 2, 0);
	return NULL;
}

static void
test_open_waits(void)
{
	struct kvf_endpoint_config cfg;
	struct kvf_endpoint *ep = NULL;
	struct kvf_err err = {0};
	char path[sizeof(((struct fake *)0)->path)];
	pthread_t th;
	struct fake f;
	uint64_t t0;

	/* Nobody comes. */
	fake_start(&f, FAKE_WELCOME);
	fake_config(&f, KVF_DECODE, &cfg);
	memcpy(path, f.path, sizeof(path)); /* the fake is written anew while we wait */
	cfg.socket = path;
	fake_kill(&f);
	cfg.flags = KVF_ENDPOINT_WAIT_ENGINE;
	cfg.open_timeout_ms = 180;
	t0 = kvf_clock_ms(CLOCK_MONOTONIC);
	CHECK_EQ(kvf_endpoint_open(&cfg, &ep, &err), KVF_E_SYS);
	CHECK(kvf_clock_ms(CLOCK_MONOTONIC) - t0 >= 180);
	CHECK_STR_HAS(err.text, "no kvferryd listens at path=");
	CHECK(ep == NULL);
	/* It comes late, and the rank is held at first. */
	cfg.open_timeout_ms = LONG_MS;
	CU_ASSERT_EQUAL_FATAL(pthread_create(&th, NULL, start_later, &f), 0);
	CHECK_EQ(kvf_endpoint_open(&cfg, &ep, &err), 0);
	pthread_join(th, NULL);
	CHECK_EQ(f.refuse_first, 0);
	if (CHECK(ep != NULL))
		CHECK_EQ(kvf_endpoint_close(ep), 0);
	/* What waiting cannot change is said at once. */
	fake_kill(&f);
	fake_again_refusing(&f, FAKE_WELCOME, 1, KVF_E_GEOMETRY);
	t0 = kvf_clock_ms(CLOCK_MONOTONIC);
	CHECK_EQ(kvf_endpoint_open(&cfg, &ep, &err), KVF_E_GEOMETRY);
	CHECK(kvf_clock_ms(CLOCK_MONOTONIC) - t0 < LONG_MS / 2);
	cfg.flags = 2;
	CHECK_EQ(kvf_endpoint_open(&cfg, &ep, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "flags=0x2, known flags=0x1");
	fake_end(&f);
}

static const struct suite_case cases[] = {
	{"another engine comes", test_comes_back},
	{"each way to lose an engine", test_ways_to_lose},
	{"posting while there is none", test_posting_while_down},
	{"nobody there: few attempts, none sleeps", test_spinning},
	{"an engine that does not answer", test_silent},
	{"refused or answered wrongly, then welcome", test_refused},
	{"the rank is still held: back-off", test_back_off},
	{"dropped with a reason", test_dropped},
	{"a loss is said once", test_said_once},
	{"a hundred engines", test_many_times},
	{"closed while there is none", test_close_anywhere},
	{"open waits for the engine", test_open_waits},
};

SUITE_MAIN("client_reconnect", cases)
