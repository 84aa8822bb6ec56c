/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that die, stop and come back, in the middle of transfers. */
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/suite.h"
#include "e2e/member.h"

#define TOKENS 500u
/* How long a copy takes, so that there is a "mid transfer" to hit; and what the others may need to
 * hear of a death: far less than the time-outs of their rooms, which are five minutes. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SLOW "fault:cpu,delay_us=4000000"
#define SOON 20000
#else
#define SLOW "fault:cpu,delay_us=1000000"
#define SOON 8000
#endif
#define ENOUGH 40000

enum who {
	P0,
	P1,
	Q,
	D0,
	D1,
	E,
	ALL,
};

/* Two pairs of groups: p (2 replicas) sends to d (DCP 2), q to e. */
struct troupe {
	struct e2e_engine engine;
	int idle_fds, idle_maps; /* of kvferryd without endpoints */
	struct member_spec spec[ALL];
	struct e2e_worker w[ALL];
};

static int
count_fds(pid_t pid)
{
	char path[64];
	struct dirent *ent;
	int n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	if (!CHECK(dir != NULL))
		return -1;
	while ((ent = readdir(dir)) != NULL)
		n += ent->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* Mappings of pools and rings; the heap has a life of its own. */
static int
count_maps(pid_t pid)
{
	char path[64], *text, *at;
	int n = 0;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	text = e2e_read(path);
	CHECK(strstr(text, "kvferryd") != NULL);
	for (at = strstr(text, "/memfd:"); at != NULL; at = strstr(at + 1, "/memfd:"))
		n++;
	free(text);
	return n;
}

static bool
troupe_start(struct troupe *t, const char *const *args)
{
	static const struct {
		const char *group;
		uint32_t size, rank;
	} parts[ALL] = {
		{"p", 2, 0}, {"p", 2, 1}, {"q", 1, 0}, {"d", 2, 0}, {"d", 2, 1}, {"e", 1, 0}};
	uint64_t rand = suite_seed() | 1;
	bool ok;
	int i;

	memset(t, 0, sizeof(*t));
	for (i = 0; i < ALL; i++)
		t->w[i].fd = -1;
	if (!e2e_engine_start(&t->engine, args))
		return false;
	t->idle_fds = count_fds(t->engine.process.pid);
	t->idle_maps = count_maps(t->engine.process.pid);
	for (i = 0, ok = true; i < ALL && ok; i++) {
		struct member_spec *s = &t->spec[i];

		s->socket = t->engine.socket;
		s->role = i < D0 ? KVF_PREFILL : KVF_DECODE;
		s->group = parts[i].group;
		s->group_size = parts[i].size;
		s->rank = parts[i].rank;
		s->seed = suite_rand(&rand);
		s->shape = (struct peer_shape){.layers = 3,
			.row_bytes = 576,
			.page_tokens = 16,
			.num_pages = 128,
			.aux_bytes = 64};
		if (i >= D0)
			s->shape.sharding =
				(struct kvf_sharding){parts[i].size, parts[i].rank, 1, 0};
		ok = member_start(&t->w[i], s);
	}
	return ok;
}

/* Everybody who is still there leaves in good order, with a pool that is as it should be. */
static void
troupe_end(struct troupe *t)
{
	struct e2e_msg ans;
	int i;

	for (i = 0; i < ALL; i++) {
		if (t->w[i].pid == 0)
			continue;
		CHECK_EQ(MEMBER_DO(&t->w[i], &ans, MEMBER_CHECK, 0), 0);
		if (!CHECK_EQ(ans.value[0], 0))
			printf("        that is %s[%u]\n", t->spec[i].group, t->spec[i].rank);
		MEMBER_DO(&t->w[i], NULL, MEMBER_LEAVE, 0);
		CHECK_EQ(e2e_worker_join(&t->w[i], ENOUGH), 0);
	}
}

static void
grant(struct troupe *t, int who, uint64_t room, uint32_t slot)
{
	struct e2e_msg ans;

	if (!CHECK_EQ(MEMBER_DO(&t->w[who], &ans, MEMBER_RECV, room, 0, TOKENS, slot), 0))
		printf("        room %" PRIu64 ": %s\n", room, ans.text);
}

static void
send_it(struct troupe *t, int who, uint64_t room, uint32_t slot)
{
	struct e2e_msg ans;

	if (!CHECK_EQ(MEMBER_DO(&t->w[who], &ans, MEMBER_SEND, room, 0, TOKENS, TOKENS, slot), 0))
		printf("        room %" PRIu64 ": %s\n", room, ans.text);
}

static void
room_p_to_d(struct troupe *t, uint64_t room, uint32_t slot)
{
	grant(t, D0, room, slot);
	grant(t, D1, room, slot);
	send_it(t, P0, room, slot);
	send_it(t, P1, room, slot);
}

static void
room_q_to_e(struct troupe *t, uint64_t room, uint32_t slot)
{
	grant(t, E, room, slot);
	send_it(t, Q, room, slot);
}

/* The room ended so at this member, within ms, and is drained; then it is released. text: what the
 * reason says, if it failed. */
static void
ended(struct troupe *t, int who, uint64_t room, int status, int code, const char *text, int ms)
{
	struct e2e_msg ans;

	if (!CHECK_EQ(MEMBER_DO(&t->w[who], &ans, MEMBER_FINISH, room, (uint64_t)ms), status))
		printf("        %s[%u] room %" PRIu64 ": %s\n", t->spec[who].group,
			t->spec[who].rank, room, ans.text);
	if (status == KVF_FAILED) {
		CHECK_EQ((int64_t)ans.value[1], code);
		CHECK_STR_HAS(ans.text, text);
		MEMBER_DO(&t->w[who], NULL, MEMBER_FORGIVE, room);
	}
	CHECK_EQ(MEMBER_DO(&t->w[who], &ans, MEMBER_RELEASE, room), 0);
}

static void
succeeded(struct troupe *t, int who, uint64_t room)
{
	ended(t, who, room, KVF_SUCCESS, 0, "", ENOUGH);
}

static void
both_work(struct troupe *t, uint64_t room, uint32_t slot)
{
	room_p_to_d(t, room, slot);
	room_q_to_e(t, room + 1, slot);
	succeeded(t, P0, room);
	succeeded(t, P1, room);
	succeeded(t, D0, room);
	succeeded(t, D1, room);
	succeeded(t, Q, room + 1);
	succeeded(t, E, room + 1);
}

static void
transferring(struct troupe *t, int who, uint64_t room)
{
	CHECK_EQ(MEMBER_DO(&t->w[who], NULL, MEMBER_REACH, room, KVF_TRANSFERRING, ENOUGH),
		KVF_TRANSFERRING);
}

static void
dies(int victim, const char *name)
{
	static const int all[] = {P0, P1, D0, D1};
	struct troupe t;
	size_t i;

	if (!troupe_start(&t, E2E_ARGS("--driver", SLOW, "--lcores", "2")))
		goto out;
	/* One that waits for p[1], and has not begun. */
	grant(&t, D0, 3, 1);
	grant(&t, D1, 3, 1);
	send_it(&t, P0, 3, 1);
	room_p_to_d(&t, 1, 0);
	room_q_to_e(&t, 2, 0);
	transferring(&t, P0, 1);
	transferring(&t, E, 2);
	e2e_worker_kill(&t.w[victim]);
	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (all[i] == victim)
			continue;
		ended(&t, all[i], 1, KVF_FAILED, KVF_E_PEER_DIED, name, SOON);
		if (all[i] != P1)
			ended(&t, all[i], 3, KVF_FAILED, KVF_E_PEER_DIED, name, SOON);
	}
	succeeded(&t, Q, 2);
	succeeded(&t, E, 2);
	/* Back under the same name, with the same room ids. */
	if (CHECK(member_start(&t.w[victim], &t.spec[victim])))
		both_work(&t, 1, 2);
out:
	troupe_end(&t);
	CHECK_EQ(e2e_engine_stop(&t.engine), 0);
}

static void
test_decode_dies(void)
{
	dies(D1, "decode d[1]");
}

static void
test_prefill_dies(void)
{
	dies(P1, "prefill p[1]");
}

static void
test_engine_dies(void)
{
	struct e2e_msg ans;
	struct troupe t;
	struct stat st;
	int i;

	if (!troupe_start(&t, E2E_ARGS("--driver", SLOW, "--lcores", "2")))
		goto out;
	grant(&t, E, 3, 1);
	room_p_to_d(&t, 1, 0);
	room_q_to_e(&t, 2, 0);
	transferring(&t, D1, 1);
	transferring(&t, Q, 2);
	/* Half of them are asleep when it happens, the others come to know it later. */
	for (i = 0; i < ALL; i += 2)
		MEMBER_ASK(&t.w[i], MEMBER_LOSE, SOON, 0);
	e2e_engine_kill(&t.engine);
	for (i = 0; i < ALL; i += 2)
		CHECK_EQ(member_answer(&t.w[i], &ans), KVF_E_ENGINE_GONE);
	for (i = 1; i < ALL; i += 2)
		CHECK_EQ(MEMBER_DO(&t.w[i], &ans, MEMBER_LOSE, SOON, 0), KVF_E_ENGINE_GONE);
	for (i = 0; i < ALL; i++) {
		uint64_t room = i == Q || i == E ? 2 : 1;

		ended(&t, i, room, KVF_FAILED, KVF_E_ENGINE_GONE, t.engine.socket, SOON);
	}
	ended(&t, E, 3, KVF_FAILED, KVF_E_ENGINE_GONE, t.engine.socket, SOON);
	for (i = 0; i < ALL; i++) {
		CHECK_EQ(MEMBER_DO(&t.w[i], &ans, MEMBER_CHECK, 0), 0);
		CHECK_EQ(ans.value[0], 0);
	}
	CHECK_EQ(stat(t.engine.socket, &st), 0);
	if (!e2e_engine_start(&t.engine, E2E_ARGS("--driver", "cpu")))
		goto out;
	/* Half of them open a new endpoint, the others find their way back by themselves. */
	for (i = 0; i < ALL; i++)
		if (!CHECK_EQ(i % 2 == 0 ? MEMBER_DO(&t.w[i], &ans, MEMBER_RECONNECT, 0)
					 : MEMBER_DO(&t.w[i], &ans, MEMBER_RETURN, SOON),
			    0))
			printf("        %s\n", ans.text);
	both_work(&t, 1, 2);
	both_work(&t, 77, 3);
out:
	troupe_end(&t);
	CHECK_EQ(e2e_engine_stop(&t.engine), 0);
}

static void
test_drain(void)
{
	struct troupe t;
	struct stat st;
	int i;

	if (!troupe_start(&t, E2E_ARGS("--driver", SLOW, "--drain-ms", "60000")))
		goto out;
	grant(&t, E, 3, 1); /* nobody sends it */
	room_p_to_d(&t, 1, 0);
	transferring(&t, P0, 1);
	transferring(&t, P1, 1);
	kill(t.engine.process.pid, SIGTERM);
	ended(&t, E, 3, KVF_FAILED, KVF_E_ENGINE_GONE, "stopping", SOON);
	for (i = 0; i < E; i++)
		if (i != Q)
			succeeded(&t, i, 1);
	CHECK(e2e_wait(&t.engine.process, ENOUGH));
	CHECK_EQ(t.engine.process.status, 0);
	CHECK(stat(t.engine.socket, &st) != 0);
	for (i = 0; i < ALL; i++)
		CHECK_EQ(MEMBER_DO(&t.w[i], NULL, MEMBER_LOSE, SOON, 1), KVF_E_ENGINE_GONE);
out:
	troupe_end(&t);
	CHECK_EQ(e2e_engine_stop(&t.engine), 0);
}

/* What does not finish in time fails, and only when the last copy has ended. */
static void
test_drain_limit(void)
{
	struct troupe t;
	int i;

	if (!troupe_start(&t, E2E_ARGS("--driver", SLOW, "--drain-ms", "100")))
		goto out;
	room_p_to_d(&t, 1, 0);
	transferring(&t, P0, 1);
	kill(t.engine.process.pid, SIGTERM);
	for (i = 0; i < E; i++)
		if (i != Q)
			ended(&t, i, 1, KVF_FAILED, KVF_E_ENGINE_GONE, "stopping", ENOUGH);
	CHECK(e2e_wait(&t.engine.process, ENOUGH));
	CHECK_EQ(t.engine.process.status, 0);
out:
	troupe_end(&t);
	CHECK_EQ(e2e_engine_stop(&t.engine), 0);
}

static void
test_second_engine(void)
{
	struct e2e_result r;
	struct troupe t;

	if (!troupe_start(&t, E2E_ARGS("--driver", "cpu")))
		goto out;
	e2e_run(&r, ENOUGH, E2E_ARGS(E2E_KVFERRYD, "--no-huge", "--socket", t.engine.socket));
	CHECK_EQ(r.status, 1);
	CHECK_STR_HAS(r.err, "EXIST: another kvferryd serves path=");
	CHECK_STR_HAS(r.err, t.engine.socket);
	e2e_result_free(&r);
	both_work(&t, 1, 0);
	/* New ones still find the first. */
	e2e_worker_kill(&t.w[E]);
	if (CHECK(member_start(&t.w[E], &t.spec[E])))
		both_work(&t, 5, 1);
out:
	troupe_end(&t);
	CHECK_EQ(e2e_engine_stop(&t.engine), 0);
}

/* Soon enough it has no more than so many. */
static bool
settles(pid_t pid, int fds, int maps)
{
	uint64_t since = 0;

	do {
		if (count_fds(pid) <= fds && count_maps(pid) <= maps)
			return true;
	} while (e2e_again(&since, SOON));
	printf("        fds=%d, expected=%d; mappings=%d, expected=%d\n", count_fds(pid), fds,
		count_maps(pid), maps);
	return CHECK(false);
}

static void
test_nothing_leaks(void)
{
	int fds = 0, maps = 0, i, turn;
	struct troupe t;
	pid_t pid;

	if (!troupe_start(&t, E2E_ARGS("--driver", SLOW)))
		goto out;
	pid = t.engine.process.pid;
	for (turn = 0; turn < 3; turn++) {
		room_p_to_d(&t, 1, 0);
		room_q_to_e(&t, 2, 0);
		transferring(&t, P0, 1);
		if (turn == 0) {
			fds = count_fds(pid);
			maps = count_maps(pid);
			/* At least a connection and a pool each; pool and rings. */
			CHECK(fds >= t.idle_fds + 2 * ALL);
			CHECK(maps >= t.idle_maps + 2 * ALL);
		}
		for (i = 0; i < ALL; i++)
			e2e_worker_kill(&t.w[i]);
		if (!settles(pid, t.idle_fds, t.idle_maps))
			goto out;
		for (i = 0; i < ALL; i++)
			if (!CHECK(member_start(&t.w[i], &t.spec[i])))
				goto out;
		if (!settles(pid, fds, maps))
			goto out;
	}
	both_work(&t, 1, 1);
out:
	troupe_end(&t);
	CHECK_EQ(e2e_engine_stop(&t.engine), 0);
}

static const struct suite_case cases[] = {
	{"a decode worker is killed mid transfer and comes back", test_decode_dies},
	{"a prefill worker is killed mid transfer and comes back", test_prefill_dies},
	{"kvferryd is killed mid transfer and comes back", test_engine_dies},
	{"SIGTERM lets a transfer finish", test_drain},
	{"SIGTERM gives up what takes too long", test_drain_limit},
	{"a second kvferryd at the same socket", test_second_engine},
	{"descriptors and mappings of the dead are given back", test_nothing_leaks},
};

SUITE_MAIN("life", cases)
