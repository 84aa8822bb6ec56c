/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The matrix of deaths: who dies or misbehaves x how x when x driver. Each line of the table is one
 * case: what was done, and how the room ended for each party (S Success, F Failed for the reason
 * that belongs to the case, - had no room, x is gone), and after how many milliseconds the last of
 * those who waited was told of a failure.
 *
 * Room R goes from p[0] to d[0] and d[1]. Room N goes from q[0] to e[0]: neighbours, who must not
 * notice. After each case everybody is there again, works, and the engine holds what it held
 * before.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault/cast.h"

#define TOLD_MS 2000 /* only a wait that hangs gets there; 50 is the aim */
#define FROZEN  150000

enum how {
	KILL,
	TERM,
	CLOSE,
	ABORT,
	PUNCH,
	FREEZE,
	HOWS,
};

static const char *const how_names[HOWS] = {
	"kill -9", "SIGTERM", "close", "abort", "punch pool", "SIGSTOP"};

enum when {
	REGISTERED, /* the victim has not posted, the others have */
	POSTED,     /* it has, somebody else has not */
	TRANSFER,   /* all have, bytes are on their way */
	AFTER,      /* Success, not released */
	WHENS,
};

static const char *const when_names[WHENS] = {"registered", "posted", "transfer", "after success"};

/* How a room may end for a party. */
#define S  1u
#define F  2u
#define SF (S | F)

struct plan {
	const char *driver; /* as the table names it */
	bool held;          /* transfers take long enough to be interrupted */
	int who;
	enum how how;
	enum when when;
};

/* One run of a plan. */
struct trial {
	struct cast *c;
	const struct plan *plan;
	uint64_t room;
	bool posted[ALL];
	bool asked[ALL];
	bool early[ALL]; /* waited for it when it happened */
	char seen[ALL + 1];
	double worst_ms;
};

static bool
dies(enum how how)
{
	return how == KILL || how == TERM || how == CLOSE;
}

static uint64_t
room_of(const struct trial *t, int who)
{
	return who == Q || who == E ? t->room + 1 : t->room;
}

static void
post(struct trial *t, int who)
{
	if (who == P || who == Q)
		cast_send(t->c, who, room_of(t, who), 1);
	else
		cast_grant(t->c, who, room_of(t, who), 1);
	t->posted[who] = true;
}

static void
ask(struct trial *t, int who)
{
	MEMBER_ASK(&t->c->w[who], MEMBER_FINISH, room_of(t, who), LATE);
	t->asked[who] = true;
}

/* Who posts before it happens, as the plan has it. */
static void
set_up(struct trial *t)
{
	const struct plan *p = t->plan;
	int other = p->who == P || p->who == ENGINE ? D1 : P, i;

	for (i = D0; i < ALL; i++)
		if (i != p->who && !(p->when == POSTED && i == other))
			post(t, i);
	if (p->who != P && !(p->when == POSTED && other == P) &&
		!(p->who == ENGINE && p->when == REGISTERED))
		post(t, P);
	if (p->when != REGISTERED && p->who != ENGINE)
		post(t, p->who);
	if (p->when == TRANSFER && p->held)
		for (i = 0; i < ALL; i++)
			CHECK_EQ(MEMBER_DO(&t->c->w[i], NULL, MEMBER_REACH, room_of(t, i),
					 KVF_TRANSFERRING, LATE),
				KVF_TRANSFERRING);
	if (p->when == AFTER)
		for (i = 0; i < ALL; i++)
			CHECK_EQ(MEMBER_DO(&t->c->w[i], NULL, MEMBER_FINISH, room_of(t, i), LATE),
				KVF_SUCCESS);
}

/* Nobody knows yet that p[0] was meant: whoever granted goes on waiting, until it is back. */
static bool
waits_on(const struct trial *t, int who)
{
	const struct plan *p = t->plan;

	return p->who == P && p->when == REGISTERED && (who == D0 || who == D1);
}

static void
inject(struct trial *t)
{
	const struct plan *p = t->plan;
	struct e2e_worker *w = &t->c->w[p->who];
	struct e2e_msg ans = {0};

	switch (p->how) {
	case KILL:
		e2e_worker_kill(w);
		break;
	case TERM:
		kill(w->pid, SIGTERM);
		CHECK_EQ(e2e_worker_join(w, LATE), -SIGTERM);
		break;
	case CLOSE:
		CHECK_EQ(MEMBER_DO(w, &ans, MEMBER_LEAVE, 0), 0);
		CHECK_EQ(e2e_worker_join(w, LATE), 0);
		break;
	case ABORT:
		CHECK_EQ(MEMBER_DO(w, &ans, MEMBER_ABORT, t->room),
			p->when == REGISTERED ? KVF_E_NOENT : 0);
		break;
	case PUNCH:
		if (!CHECK_EQ(MEMBER_DO(w, &ans, MEMBER_PUNCH, 0), 0))
			printf("        %s\n", ans.text);
		break;
	default:
		kill(w->pid, SIGSTOP);
		usleep(FROZEN);
		kill(w->pid, SIGCONT);
		break;
	}
}

static void
inject_engine(struct trial *t)
{
	struct e2e_engine *e = &t->c->engine;

	switch (t->plan->how) {
	case KILL:
		e2e_engine_kill(e);
		break;
	case TERM:
		CHECK_EQ(e2e_engine_stop(e), 0);
		break;
	default:
		kill(e->process.pid, SIGSTOP);
		usleep(FROZEN);
		kill(e->process.pid, SIGCONT);
		break;
	}
}

/* What the rules say about this party. */
static unsigned int
expected(const struct trial *t, int who)
{
	const struct plan *p = t->plan;

	if (p->when == AFTER || p->how == FREEZE)
		return S;
	if (p->who == ENGINE) {
		if (p->when == TRANSFER)
			/* A stop waits for what moves; what was only posted may come too late. */
			return !p->held ? SF : p->how == TERM ? S : F;
		/* Nothing that misses somebody can end well; the neighbours have all they need. */
		if (who == Q || who == E)
			return SF;
		return p->when == POSTED && who == D0 ? SF : F;
	}
	if (who == Q || who == E)
		return S;
	/* The engine may find the memory gone, or zeros there. */
	if (p->how == PUNCH)
		return SF;
	if (p->when == REGISTERED)
		return p->how == ABORT || p->who == P ? S : who == D0 && !p->held ? SF : F;
	if (p->when == POSTED)
		return who == D0 && p->who == P ? SF : F;
	return p->held ? F : SF;
}

static bool
code_fits(const struct plan *p, int code)
{
	if (p->who == ENGINE)
		return code == KVF_E_ENGINE_GONE;
	if (p->how == PUNCH)
		return code == KVF_E_POOL_LOST || code == KVF_E_PEER_DIED;
	return code == (p->how == ABORT ? KVF_E_ABORTED : KVF_E_PEER_DIED);
}

static void
collect(struct trial *t, int who, uint64_t at)
{
	unsigned int want = expected(t, who);
	struct e2e_msg ans;
	int st = member_answer(&t->c->w[who], &ans);
	bool ok;

	t->seen[who] = st == KVF_SUCCESS ? 'S' : st == KVF_FAILED ? 'F' : '?';
	ok = (st == KVF_SUCCESS && (want & S) != 0) || (st == KVF_FAILED && (want & F) != 0);
	if (st == KVF_FAILED) {
		ok = ok && code_fits(t->plan, (int)(int64_t)ans.value[1]);
		if (t->early[who] && (double)(ans.value[2] - at) / 1000 > t->worst_ms)
			t->worst_ms = (double)(ans.value[2] - at) / 1000;
	}
	if (!CHECK(ok))
		printf("        %s saw status=%d, expected %s%s: %s\n", cast_names[who], st,
			(want & S) != 0 ? "S" : "", (want & F) != 0 ? "F" : "", ans.text);
	if (st == KVF_FAILED || t->plan->how == PUNCH)
		MEMBER_DO(&t->c->w[who], NULL, MEMBER_FORGIVE, room_of(t, who));
}

static void
run(struct cast *c, const struct plan *p, uint64_t room)
{
	struct trial t = {.c = c, .plan = p, .room = room, .seen = "-----"};
	unsigned int failures = CU_get_number_of_failures();
	uint64_t at;
	int i;

	set_up(&t);
	/* Asleep in a wait for it, as workers are. */
	for (i = 0; i < ALL; i++)
		if (t.posted[i] && i != p->who && !waits_on(&t, i))
			ask(&t, i);
	memcpy(t.early, t.asked, sizeof(t.early));
	at = cast_us();
	if (p->who == ENGINE)
		inject_engine(&t);
	else
		inject(&t);
	if (p->who != ENGINE && dies(p->how)) {
		t.posted[p->who] = false;
		t.seen[p->who] = 'x';
		if (!CHECK(member_start(&c->w[p->who], &c->spec[p->who])))
			return;
	}
	/* Who has not posted yet does, unless it is the one that took part and died. A room that
	 * needs the engine that is gone fails without them. */
	for (i = 0; i < ALL; i++)
		if (!t.posted[i] && (p->who != ENGINE || p->how == FREEZE) &&
			(i != p->who || p->when == REGISTERED))
			post(&t, i);
	for (i = 0; i < ALL; i++)
		if (t.posted[i] && !t.asked[i])
			ask(&t, i);
	for (i = 0; i < ALL; i++)
		if (t.asked[i])
			collect(&t, i, at);
	/* Only now: a late one joins the room only while somebody else still holds it. */
	for (i = 0; i < ALL; i++)
		if (t.asked[i])
			cast_release(c, i, room_of(&t, i));
	if (p->who == ENGINE && p->how != FREEZE && !cast_engine_start(c))
		return;
	printf("  %-7s %-8s %-10s %-13s  %c     %c     %c     %c     %c   %8.1f\n", p->driver,
		cast_names[p->who], how_names[p->how], when_names[p->when], t.seen[P], t.seen[D0],
		t.seen[D1], t.seen[Q], t.seen[E], t.worst_ms);
	fflush(stdout);
	CHECK(t.worst_ms < TOLD_MS || p->how == FREEZE || p->how == TERM);
	for (i = 0; i < ALL; i++)
		MEMBER_DO(&c->w[i], NULL, MEMBER_RECYCLE, 0);
	cast_up(c);
	/* What a punched pool holds is known again when it was written anew. */
	if (p->how == PUNCH) {
		e2e_worker_kill(&c->w[p->who]);
		if (!CHECK(member_start(&c->w[p->who], &c->spec[p->who])))
			return;
	}
	cast_works(c, room + 2);
	if (CU_get_number_of_failures() != failures)
		printf("        in that case\n");
}

/* Soon the engine holds so much, and no more. */
static void
holds_again(struct cast *c, const struct holds *before, bool memory)
{
	struct holds now;
	uint64_t since = 0;

	do {
		now = cast_engine_holds(c);
		if (now.fds == before->fds && now.maps == before->maps && now.rooms == 0 &&
			(!memory || now.slab <= before->slab))
			return;
	} while (e2e_again(&since, SOON));
	CHECK_EQ(now.fds, before->fds);
	CHECK_EQ(now.maps, before->maps);
	CHECK_EQ(now.rooms, 0);
	if (memory)
		CHECK_EQ(now.slab, before->slab);
}

static void
matrix(const char *name, const char *const *args, bool held)
{
	struct holds before, members[ALL];
	struct plan p = {.driver = name, .held = held};
	uint64_t room = 1000;
	struct cast c;
	int who, how, when, i;

	if (!cast_start(&c, args, false))
		goto out;
	cast_works(&c, 1);
	before = cast_engine_holds(&c);
	for (i = 0; i < ALL; i++)
		members[i] = cast_holds(c.w[i].pid);
	printf("  driver  who      how        when           p[0]  d[0]  d[1]  q[0]  e[0]  "
	       "told after ms\n");
	for (who = 0; who <= ENGINE; who++)
		for (how = 0; how < HOWS; how++)
			for (when = 0; when < WHENS; when++) {
				if (who == D0 || who == Q || who == E)
					continue; /* d[1] stands for them */
				if (who == ENGINE && how != KILL && how != TERM && how != FREEZE)
					continue;
				p.who = who;
				p.how = (enum how)how;
				p.when = (enum when)when;
				run(&c, &p, room);
				room += 10;
				for (i = 0; i < ALL; i++)
					if (!CHECK(c.w[i].pid != 0))
						goto out;
				if (!CHECK(c.engine.process.pid != 0))
					goto out;
				holds_again(&c, &before, false);
			}
	holds_again(&c, &before, true);
	for (i = 0; i < ALL; i++) {
		struct holds now = cast_holds(c.w[i].pid);

		/* Those that were started anew have more of their parent's. */
		if (i == P || i == D1)
			continue;

		CHECK_EQ(now.fds, members[i].fds);
		CHECK_EQ(now.maps, members[i].maps);
	}
out:
	cast_end(&c);
}

/* What the dead posted last was not read yet when it died: the others hear of it all the same. */
static void
test_unread(void)
{
	static const int victims[] = {P, D1};
	struct cast c;
	uint64_t room = 100;
	size_t v;
	int how;

	if (!cast_start(&c, E2E_ARGS("--driver", "cpu"), false))
		goto out;
	for (v = 0; v < 2; v++)
		for (how = KILL; how <= CLOSE; how++, room += 10) {
			int victim = victims[v], other = victim == P ? D1 : P, i;
			uint64_t at;

			cast_grant(&c, D0, room, 1);
			if (other == D1)
				cast_grant(&c, D1, room, 1);
			kill(c.engine.process.pid, SIGSTOP);
			if (victim == P)
				cast_send(&c, P, room, 1);
			else
				cast_grant(&c, D1, room, 1);
			MEMBER_ASK(&c.w[D0], MEMBER_FINISH, room, LATE);
			if (other == D1)
				MEMBER_ASK(&c.w[D1], MEMBER_FINISH, room, LATE);
			if (how == CLOSE)
				MEMBER_ASK(&c.w[victim], MEMBER_LEAVE, 0);
			else
				kill(c.w[victim].pid, how == KILL ? SIGKILL : SIGTERM);
			usleep(50000);
			at = cast_us();
			kill(c.engine.process.pid, SIGCONT);
			e2e_worker_join(&c.w[victim], LATE);
			for (i = D0; i <= D1; i++) {
				struct e2e_msg ans;
				int st;

				if (i == victim)
					continue;
				st = member_answer(&c.w[i], &ans);

				/* Read and copied before the death was noticed, or not. */
				if (CHECK(st == KVF_FAILED || st == KVF_SUCCESS) &&
					st == KVF_FAILED)
					CHECK_EQ((int64_t)ans.value[1], KVF_E_PEER_DIED);
				CHECK(ans.value[2] < at + TOLD_MS * 1000);
				MEMBER_DO(&c.w[i], NULL, MEMBER_FORGIVE, room);
				cast_release(&c, i, room);
			}
			for (i = 0; i < ALL; i++)
				if (i != victim)
					MEMBER_DO(&c.w[i], NULL, MEMBER_RECYCLE, 0);
			if (!CHECK(member_start(&c.w[victim], &c.spec[victim])))
				goto out;
			cast_works(&c, room + 2);
		}
out:
	cast_end(&c);
}

static void
test_cpu(void)
{
	matrix("cpu", E2E_ARGS("--driver", "cpu"), false);
}

static void
test_dmadev(void)
{
	matrix("dmadev", E2E_ARGS("--driver", "dmadev", "--", "--vdev=dma_skeleton0"), false);
}

static void
test_slow(void)
{
	matrix("slow", E2E_ARGS("--driver", "fault:cpu,delay_us=120000", "--drain-ms", "20000"),
		true);
}

static const struct suite_case cases[] = {
	{"posted, not read, dead", test_unread},
	{"cpu", test_cpu},
	{"dmadev, dma_skeleton", test_dmadev},
	{"slow copies, mid transfer for certain", test_slow},
};

SUITE_MAIN("death", cases)
