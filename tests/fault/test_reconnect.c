/* SPDX-License-Identifier: BSD-3-Clause */
/* kvferryd goes and comes back; the workers see to themselves. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fault/cast.h"

static const char *const fast[] = {"--driver", "cpu", NULL};
static const char *const slow[] = {
	"--driver", "fault:cpu,delay_us=200000", "--drain-ms", "20000", NULL};

/* Asks everybody who takes part in room and room + 1 how it ends. */
static void
ask_all(struct cast *c, uint64_t room)
{
	int i;

	for (i = 0; i < ALL; i++)
		MEMBER_ASK(&c->w[i], MEMBER_FINISH, i == Q || i == E ? room + 1 : room, LATE);
}

/* Ended so, each within SOON of `since` (us); then released. */
static void
all_ended(struct cast *c, uint64_t room, int status, uint64_t since)
{
	uint64_t worst = 0;
	int i;

	for (i = 0; i < ALL; i++) {
		uint64_t mine = i == Q || i == E ? room + 1 : room;
		struct e2e_msg ans;

		if (!CHECK_EQ(member_answer(&c->w[i], &ans), status))
			printf("        %s: %s\n", cast_names[i], ans.text);
		if (status == KVF_FAILED) {
			CHECK_EQ((int64_t)ans.value[1], KVF_E_ENGINE_GONE);
			CHECK_STR_HAS(ans.text, c->engine.socket);
			MEMBER_DO(&c->w[i], NULL, MEMBER_FORGIVE, mine);
		}
		if (ans.value[2] > since && ans.value[2] - since > worst)
			worst = ans.value[2] - since;
		cast_release(c, i, mine);
	}
	if (status != KVF_FAILED)
		return;
	printf("        told after at most %.1f ms\n", (double)worst / 1000);
	CHECK(worst < SOON * 1000ull);
}

static void
post_all(struct cast *c, uint64_t room, uint32_t slot)
{
	cast_grant(c, D0, room, slot);
	cast_grant(c, D1, room, slot);
	cast_send(c, P, room, slot);
	cast_grant(c, E, room + 1, slot);
	cast_send(c, Q, room + 1, slot);
}

static void
same_holds(struct cast *c, const struct holds *before)
{
	int i;

	for (i = 0; i < ALL; i++) {
		struct holds now = cast_holds(c->w[i].pid);

		CHECK_EQ(now.fds, before[i].fds);
		CHECK_EQ(now.maps, before[i].maps);
	}
}

static void
take_holds(struct cast *c, struct holds *h)
{
	int i;

	for (i = 0; i < ALL; i++)
		h[i] = cast_holds(c->w[i].pid);
}

static void
test_workers_first(void)
{
	struct cast c;

	if (cast_start(&c, fast, true))
		cast_works(&c, 1);
	cast_end(&c);
}

static void
test_idle(void)
{
	struct holds before[ALL];
	struct cast c;

	if (!cast_start(&c, fast, false))
		goto out;
	cast_works(&c, 1);
	take_holds(&c, before);
	e2e_engine_kill(&c.engine);
	if (!cast_engine_start(&c))
		goto out;
	/* Nobody looked in between: the first call finds it out. */
	cast_up(&c);
	cast_works(&c, 1);
	same_holds(&c, before);
	/* In good order, and somebody waits for the end of it. */
	CHECK_EQ(e2e_engine_stop(&c.engine), 0);
	if (!cast_engine_start(&c))
		goto out;
	cast_up(&c);
	cast_works(&c, 1);
	same_holds(&c, before);
out:
	cast_end(&c);
}

static void
test_in_transfer(void)
{
	struct cast c;
	uint64_t at;
	int i;

	if (!cast_start(&c, slow, false))
		goto out;
	post_all(&c, 10, 1);
	for (i = 0; i < ALL; i++)
		CHECK_EQ(MEMBER_DO(&c.w[i], NULL, MEMBER_REACH, i == Q || i == E ? 11 : 10,
				 KVF_TRANSFERRING, LATE),
			KVF_TRANSFERRING);
	ask_all(&c, 10);
	at = cast_us();
	e2e_engine_kill(&c.engine);
	all_ended(&c, 10, KVF_FAILED, at);
	for (i = 0; i < ALL; i++) {
		struct e2e_msg ans;

		/* Nothing is posted, and it says why. */
		if (i != P && i != Q)
			CHECK_EQ(MEMBER_DO(&c.w[i], &ans, MEMBER_RECV, 12, 0, 16, 2),
				KVF_E_ENGINE_GONE);
		else
			CHECK_EQ(MEMBER_DO(&c.w[i], &ans, MEMBER_SEND, 12, 0, 16, 16, 2),
				KVF_E_ENGINE_GONE);
		CHECK_STR_HAS(ans.text, "is gone; reconnecting, attempts=");
		CHECK_EQ(MEMBER_DO(&c.w[i], NULL, MEMBER_STATE, 0, SOON), 0);
		MEMBER_DO(&c.w[i], NULL, MEMBER_RECYCLE, 0);
	}
	if (!cast_engine_start(&c))
		goto out;
	cast_up(&c);
	/* The same ids: nothing of the old engine sticks to them. */
	cast_works(&c, 10);
	/* SIGTERM waits for what is under way. */
	post_all(&c, 20, 2);
	for (i = 0; i < ALL; i++)
		CHECK_EQ(MEMBER_DO(&c.w[i], NULL, MEMBER_REACH, i == Q || i == E ? 21 : 20,
				 KVF_TRANSFERRING, LATE),
			KVF_TRANSFERRING);
	ask_all(&c, 20);
	CHECK_EQ(e2e_engine_stop(&c.engine), 0);
	all_ended(&c, 20, KVF_SUCCESS, 0);
	if (!cast_engine_start(&c))
		goto out;
	cast_up(&c);
	cast_works(&c, 20);
out:
	cast_end(&c);
}

/* Stopped and continued: nobody is lost, nothing is taken for late. */
static void
test_frozen(void)
{
	struct cast c;

	if (!cast_start(&c, slow, false))
		goto out;
	post_all(&c, 10, 1);
	kill(c.engine.process.pid, SIGSTOP);
	post_all(&c, 20, 2);
	usleep(700000);
	kill(c.engine.process.pid, SIGCONT);
	ask_all(&c, 10);
	all_ended(&c, 10, KVF_SUCCESS, 0);
	ask_all(&c, 20);
	all_ended(&c, 20, KVF_SUCCESS, 0);
	cast_works(&c, 30);
out:
	cast_end(&c);
}

static void
test_twenty_times(void)
{
	uint64_t rand = suite_seed() | 1;
	struct holds before[ALL];
	struct cast c;
	int turn;

	if (!cast_start(&c, fast, false))
		goto out;
	cast_works(&c, 1);
	take_holds(&c, before);
	for (turn = 1; turn <= 20; turn++) {
		uint64_t room = 100 * (uint64_t)turn, at;
		int i;

		/* Granted and not sent, so that it is open whatever the moment. */
		cast_grant(&c, D0, room, 1);
		cast_grant(&c, D1, room, 1);
		cast_grant(&c, E, room + 1, 1);
		for (i = D0; i <= E; i++)
			if (i != Q)
				MEMBER_ASK(&c.w[i], MEMBER_FINISH, i == E ? room + 1 : room, LATE);
		usleep((useconds_t)suite_range(&rand, 0, 20000));
		at = cast_us();
		if (turn % 2 == 0)
			e2e_engine_kill(&c.engine);
		else
			CHECK_EQ(e2e_engine_stop(&c.engine), 0);
		for (i = D0; i <= E; i++) {
			struct e2e_msg ans;

			if (i == Q)
				continue;
			CHECK_EQ(member_answer(&c.w[i], &ans), KVF_FAILED);
			CHECK_EQ((int64_t)ans.value[1], KVF_E_ENGINE_GONE);
			CHECK(ans.value[2] - at < LATE * 1000ull);
			MEMBER_DO(&c.w[i], NULL, MEMBER_FORGIVE, i == E ? room + 1 : room);
			cast_release(&c, i, i == E ? room + 1 : room);
			MEMBER_DO(&c.w[i], NULL, MEMBER_RECYCLE, 0);
		}
		if (!cast_engine_start(&c))
			goto out;
		cast_up(&c);
		cast_works(&c, room);
		same_holds(&c, before);
	}
out:
	cast_end(&c);
}

static const struct suite_case cases[] = {
	{"workers come up before the engine", test_workers_first},
	{"restarted while idle", test_idle},
	{"killed and stopped in the middle of transfers", test_in_transfer},
	{"frozen for a while", test_frozen},
	{"twenty restarts in a row", test_twenty_times},
};

SUITE_MAIN("reconnect", cases)
