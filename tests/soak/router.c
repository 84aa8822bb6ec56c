/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws the rooms, kills the workers, and says in the end what was seen. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include <jansson.h>

#include "common/suite.h"
#include "e2e/harness.h"
#include "soak/soak.h"

#define MS          SOAK_NS_MS
#define START_MS    120000
#define RAMP_MS     120000
#define SETTLE_MS   20000
#define GRACE_MS    10000 /* for everybody to have settled, before another id is taken */
#define KILL_MIN    2500u
#define KILL_MAX    6000u
#define STOP_MIN    1000u
#define STOP_MAX    4000u
#define SAMPLE_MS   250
#define PATIENCE_MS 120000u

/* What kvferryd holds. */
struct footprint {
	int fds, maps;
	long huge_kb, rss_kb;
	int64_t slab_used, open, endpoints;
};

struct router {
	struct soak_table *t;
	struct e2e_engine engine;
	struct e2e_worker w[SOAK_PROCS];
	struct soak_life life[SOAK_PROCS];
	bool coming[SOAK_PROCS]; /* killed, its successor has not opened its endpoints yet */
	uint64_t *idle_since;
	uint64_t rand;
	uint64_t next_kill, next_stop, next_sample, wake;
	int stopped; /* process that is stopped; -1: none */
	bool broken;
	int64_t peak;
	double open_sum;
	uint32_t samples;
	struct footprint before;
};

static bool
in_proc(uint32_t family, uint32_t proc)
{
	uint32_t m;

	for (m = 0; m < SOAK_MEMBERS; m++)
		if (soak_proc_of(family, m) == proc)
			return true;
	return false;
}

static long
proc_kb(pid_t pid, const char *what)
{
	char path[64], *text, *at;
	long kb = -1;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	text = e2e_read(path);
	at = strstr(text, what);
	if (at != NULL)
		kb = strtol(at + strlen(what), NULL, 10);
	free(text);
	return kb;
}

static void
look(struct router *r, struct footprint *f)
{
	pid_t pid = r->engine.process.pid;
	char path[64], *text, *at;
	struct dirent *ent;
	json_t *root, *eps;
	DIR *dir;

	memset(f, 0, sizeof(*f));
	f->slab_used = f->open = f->endpoints = -1;
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	while (dir != NULL && (ent = readdir(dir)) != NULL)
		f->fds += ent->d_name[0] != '.';
	if (dir != NULL)
		closedir(dir);
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	text = e2e_read(path);
	for (at = strstr(text, "/memfd:"); at != NULL; at = strstr(at + 1, "/memfd:"))
		f->maps++;
	free(text);
	f->huge_kb = proc_kb(pid, "HugetlbPages:");
	f->rss_kb = proc_kb(pid, "VmRSS:");
	text = NULL;
	if (kvf_engine_status(r->t->socket, 10000, &text, NULL) != 0)
		return;
	root = json_loads(text, 0, NULL);
	free(text);
	f->slab_used = json_integer_value(
		json_object_get(json_object_get(root, "dispatcher"), "slab_used"));
	f->open = json_integer_value(json_object_get(json_object_get(root, "rooms"), "open"));
	eps = json_object_get(root, "endpoints");
	f->endpoints = (int64_t)json_array_size(eps) +
		       json_integer_value(json_object_get(root, "endpoints_left_out"));
	json_decref(root);
}

static void
draw_id(struct router *r, struct soak_room *room, uint32_t place)
{
	room->id = suite_rand(&r->rand) << 16 | place;
}

/* The next room of a place. */
static void
arm(struct router *r, uint32_t n, uint32_t use, bool same)
{
	static const enum soak_counter kinds[SOAK_KINDS] = {SOAK_NORMAL_N, SOAK_KIND_ABORT_N,
		SOAK_KIND_ALONE_N, SOAK_KIND_TOTAL_N, SOAK_KIND_KEY_N, SOAK_KIND_PAGE_N,
		SOAK_KIND_DUP_N};
	struct soak_room *room = &r->t->room[n];

	if (!same)
		draw_id(r, room, n / SOAK_FAMILIES);
	soak_draw(room, n % SOAK_FAMILIES, !atomic_load(&r->t->ramped), &r->rand);
	atomic_store(&room->causes, 0);
	atomic_store(&room->spoiled_ns, 0);
	atomic_store(&room->abort_ns, 0);
	r->idle_since[n] = 0;
	soak_count(r->t, SOAK_ROOMS_N, 1);
	soak_count(r->t, kinds[room->kind], 1);
	soak_count(r->t, SOAK_SAME_ID_N, same);
	atomic_store(&room->use, use + 1);
}

/* All members of the place's room are done. *clean: its id may be used again. */
static bool
finished(const struct soak_room *room, uint32_t use, bool *clean)
{
	bool uneven = (atomic_load(&room->causes) & SOAK_UNEVEN) != 0, settled = true;
	uint32_t m;

	for (m = 0; m < SOAK_MEMBERS; m++) {
		uint32_t state = atomic_load(&room->member[m]);

		if (state >> 3 != use || (state & 7) == SOAK_POSTED)
			return false;
		uneven |= (state & 7) == SOAK_SKIPPED || (state & 7) == SOAK_DEAD;
		settled &= (state & 7) == SOAK_SKIPPED || (state & 7) == SOAK_SETTLED;
	}
	*clean = !uneven || settled;
	return true;
}

/* Returns the number of places with a room in them. */
static uint32_t
deal(struct router *r, bool more)
{
	uint64_t now = soak_now();
	uint32_t n, busy = 0;

	for (n = 0; n < r->t->rooms; n++) {
		struct soak_room *room = &r->t->room[n];
		uint32_t use = atomic_load(&room->use);
		bool clean = false, same;

		if (use != 0 && !finished(room, use, &clean)) {
			busy++;
			continue;
		}
		if (!more)
			continue;
		if (r->idle_since[n] == 0)
			r->idle_since[n] = now;
		/* By its nonce: whether the id is used again must not change while it waits. */
		same = use != 0 && room->nonce % 5 < 3;
		/* Few wait for that: the place is empty meanwhile. */
		if (same && !clean && room->nonce % 64 == 0 &&
			now - r->idle_since[n] < GRACE_MS * MS)
			continue;
		arm(r, n, use, same && clean);
		busy++;
	}
	return busy;
}

static bool
begin_life(struct router *r, uint32_t p)
{
	r->life[p].table = r->t;
	r->life[p].proc = p;
	r->life[p].life++;
	return CHECK(e2e_fork(&r->w[p], soak_worker, &r->life[p]));
}

/* All rooms of the families that have endpoints in the process. dead: its members are. */
static void
mark(struct router *r, uint32_t p, uint64_t causes, bool dead)
{
	uint32_t n, m;

	for (n = 0; n < r->t->rooms; n++) {
		struct soak_room *room = &r->t->room[n];
		uint32_t use = atomic_load(&room->use), family = n % SOAK_FAMILIES;
		bool clean;

		if (!in_proc(family, p) || use == 0)
			continue;
		if (!finished(room, use, &clean))
			atomic_fetch_or(&room->causes, causes);
		for (m = 0; m < SOAK_MEMBERS && dead; m++) {
			uint32_t state = atomic_load(&room->member[m]);

			/* What it released may not have been seen either. */
			if (soak_proc_of(family, m) == p &&
				(state >> 3 != use || (state & 7) <= SOAK_DONE))
				atomic_store(&room->member[m], use << 3 | SOAK_DEAD);
		}
	}
}

static void
closing(struct router *r, uint32_t p, int n)
{
	uint32_t f;

	for (f = 0; f < SOAK_FAMILIES; f++)
		if (in_proc(f, p))
			atomic_fetch_add(&r->t->families[f].closing, (uint32_t)n);
}

static void
kill_one(struct router *r, uint32_t p)
{
	struct soak_proc_state *state = &r->t->procs[p];

	soak_count(r->t, SOAK_KILLS_N, 1);
	closing(r, p, 1);
	mark(r, p, SOAK_CAUSE(KVF_E_PEER_DIED) | SOAK_MISSING, false);
	atomic_store(&state->kill_pid, (int)r->w[p].pid);
	atomic_store(&state->kill_ns, soak_now());
	e2e_worker_kill(&r->w[p]);
	mark(r, p, SOAK_CAUSE(KVF_E_PEER_DIED) | SOAK_MISSING, true);
	r->coming[p] = begin_life(r, p);
	r->broken |= !r->coming[p];
}

static void
welcome(struct router *r)
{
	uint32_t p;

	for (p = 0; p < SOAK_PROCS; p++) {
		struct soak_proc_state *state = &r->t->procs[p];

		if (!r->coming[p] || atomic_load(&state->ready) != r->life[p].life)
			continue;
		/* Rooms that were to hear from the dead one may have failed as well. */
		mark(r, p, SOAK_CAUSE(KVF_E_PEER_DIED), false);
		closing(r, p, -1);
		r->coming[p] = false;
		atomic_store(&state->go, r->life[p].life);
	}
}

static void
harm(struct router *r)
{
	uint64_t now = soak_now();
	uint32_t p;

	if (r->stopped >= 0 && now >= r->wake) {
		kill(r->w[r->stopped].pid, SIGCONT);
		r->stopped = -1;
	}
	if (now >= r->next_stop && r->stopped < 0) {
		p = (uint32_t)suite_range(&r->rand, 0, SOAK_PROCS - 1);
		kill(r->w[p].pid, SIGSTOP);
		soak_count(r->t, SOAK_STOPS_N, 1);
		r->stopped = (int)p;
		r->wake = now + suite_range(&r->rand, 20, 200) * MS;
		r->next_stop = now + suite_range(&r->rand, STOP_MIN, STOP_MAX) * MS;
	}
	if (now >= r->next_kill) {
		p = (uint32_t)suite_range(&r->rand, 0, SOAK_PROCS - 1);
		if (!r->coming[p])
			kill_one(r, p);
		r->next_kill = now + suite_range(&r->rand, KILL_MIN, KILL_MAX) * MS;
	}
}

/* A worker that ended by itself took its findings with it. */
static void
roll_call(struct router *r)
{
	uint32_t p;

	for (p = 0; p < SOAK_PROCS; p++) {
		siginfo_t info = {0};

		if (waitid(P_PID, (id_t)r->w[p].pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
			info.si_pid == 0)
			continue;
		printf("        worker %u (pid %d) ended by itself\n", p, (int)r->w[p].pid);
		suite_check(0, "workers stay", __FILE__, __LINE__);
		r->broken = true;
	}
	if (e2e_wait(&r->engine.process, 0)) {
		CHECK_EQ(r->engine.process.status, E2E_STILL_RUNNING);
		r->broken = true;
	}
}

static void
sample(struct router *r)
{
	struct footprint f;

	if (soak_now() < r->next_sample)
		return;
	roll_call(r);
	if (r->broken)
		return;
	look(r, &f);
	r->next_sample = soak_now() + SAMPLE_MS * MS;
	r->peak = f.open > r->peak ? f.open : r->peak;
	if (atomic_load(&r->t->ramped)) {
		r->open_sum += (double)f.open;
		r->samples++;
	}
}

static bool
all_ready(struct router *r)
{
	uint32_t p, n = 0;

	for (p = 0; p < SOAK_PROCS; p++)
		n += atomic_load(&r->t->procs[p].ready) == r->life[p].life;
	return n == SOAK_PROCS;
}

static bool
start(struct router *r, const struct soak_run *run)
{
	uint64_t since = 0, bytes;
	uint32_t p;

	bytes = sizeof(*r->t) + (uint64_t)run->rooms * sizeof(r->t->room[0]);
	r->t = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	r->idle_since = calloc(run->rooms, sizeof(*r->idle_since));
	if (r->t == MAP_FAILED || r->idle_since == NULL)
		abort();
	r->stopped = -1;
	r->rand = soak_mix(suite_seed()) | 1;
	for (p = 0; p < SOAK_PROCS; p++)
		r->w[p].fd = -1;
	r->t->seed = suite_seed();
	r->t->rooms = run->rooms;
	r->t->pace_ms = run->pace_ms;
	r->t->patience_ms = PATIENCE_MS;
	r->t->huge_page = e2e_page_size();
	if (!e2e_engine_start(&r->engine, run->args))
		return false;
	snprintf(r->t->socket, sizeof(r->t->socket), "%s", r->engine.socket);
	look(r, &r->before);
	CHECK_EQ(r->before.endpoints, 0);
	for (p = 0; p < SOAK_PROCS; p++)
		if (!begin_life(r, p))
			return false;
	do {
		roll_call(r);
		if (r->broken)
			return false;
		if (all_ready(r)) {
			for (p = 0; p < SOAK_PROCS; p++)
				atomic_store(&r->t->procs[p].go, 1);
			return true;
		}
	} while (e2e_again(&since, START_MS));
	CHECK(all_ready(r));
	return false;
}

/* Every place is open at once before anything flows. */
static void
ramp(struct router *r)
{
	uint64_t since = 0;

	do {
		deal(r, true);
		sample(r);
	} while (!r->broken && r->peak < r->t->rooms && e2e_again(&since, RAMP_MS));
	CHECK_EQ(r->peak, r->t->rooms);
	atomic_store(&r->t->ramped_ns, soak_now());
	atomic_store(&r->t->ramped, true);
}

static void
show_stuck(struct router *r)
{
	uint32_t n, m, shown = 0;

	for (n = 0; n < r->t->rooms && shown < 20; n++) {
		const struct soak_room *room = &r->t->room[n];
		uint32_t use = atomic_load(&room->use);
		bool clean;

		if (use == 0 || finished(room, use, &clean))
			continue;
		shown++;
		printf("        room=%" PRIu64 " family=%u kind=%u use=%u causes=%#" PRIx64
		       " members:",
			room->id, n % SOAK_FAMILIES, room->kind, use,
			(uint64_t)atomic_load(&room->causes));
		for (m = 0; m < SOAK_MEMBERS; m++)
			printf(" %u", atomic_load(&room->member[m]) >> 3 == use
					      ? atomic_load(&room->member[m]) & 7
					      : 0);
		printf("\n");
	}
}

static void
finish(struct router *r)
{
	uint64_t since = 0;
	uint32_t busy, p;

	atomic_store(&r->t->stopping, true);
	if (r->stopped >= 0)
		kill(r->w[r->stopped].pid, SIGCONT);
	do {
		welcome(r);
		sample(r);
		busy = deal(r, false);
	} while (!r->broken && busy > 0 && e2e_again(&since, (int)(2 * PATIENCE_MS)));
	/* Rooms that never ended. */
	if (!CHECK_EQ(busy, 0))
		show_stuck(r);
	since = 0;
	for (busy = 0; !r->broken && e2e_again(&since, START_MS);) {
		welcome(r);
		for (busy = 0, p = 0; p < SOAK_PROCS; p++)
			busy += r->coming[p];
		if (busy == 0)
			break;
	}
	atomic_store(&r->t->quit, true);
	for (p = 0; p < SOAK_PROCS && !r->broken; p++)
		CHECK_EQ(e2e_worker_join(&r->w[p], START_MS), 0);
}

static bool
settled(struct router *r, struct footprint *f)
{
	look(r, f);
	return f->fds <= r->before.fds && f->maps == r->before.maps &&
	       f->huge_kb == r->before.huge_kb && f->slab_used == r->before.slab_used &&
	       f->open == 0 && f->endpoints == 0;
}

static void
leaks(struct router *r)
{
	struct footprint f;
	uint64_t since = 0;

	while (!settled(r, &f) && e2e_again(&since, SETTLE_MS))
		;
	/* Fewer is no leak: a connection of somebody who asked for the status was counted before.
	 */
	if (!CHECK(f.fds <= r->before.fds))
		printf("        fds=%u, before=%u\n", (unsigned int)f.fds,
			(unsigned int)r->before.fds);
	CHECK_EQ(f.maps, r->before.maps);
	CHECK_EQ(f.huge_kb, r->before.huge_kb);
	CHECK_EQ(f.slab_used, r->before.slab_used);
	CHECK_EQ(f.open, 0);
	CHECK_EQ(f.endpoints, 0);
	printf("    kvferryd before/after: fds=%d/%d maps=%d/%d hugetlb_kb=%ld/%ld "
	       "slab_used=%" PRId64 "/%" PRId64 " rss_kb=%ld/%ld\n",
		r->before.fds, f.fds, r->before.maps, f.maps, r->before.huge_kb, f.huge_kb,
		r->before.slab_used, f.slab_used, r->before.rss_kb, f.rss_kb);
}

static void
report(const struct router *r, const struct soak_run *run, double seconds)
{
	static const char *const names[SOAK_NUM_COUNTERS] = {
#define X(name, text) text,
		SOAK_COUNTERS(X)
#undef X
	};
	static const char *const times[SOAK_TIMES] = {
		"abort -> drained, prefill",
		"abort -> drained, decode",
		"abort -> drained, only polling",
		"abort -> others told",
		"kill -9 -> others told",
	};
	uint32_t i;

	printf("    %s: %.1f s, rooms in flight: peak=%" PRId64 " mean=%.0f, %.0f rooms/s\n",
		run->driver, seconds, r->peak, r->samples != 0 ? r->open_sum / r->samples : 0.0,
		(double)atomic_load(&r->t->counters[SOAK_ROOMS_N]) / seconds);
	for (i = 0; i < SOAK_NUM_COUNTERS; i++)
		printf("    %12" PRIu64 "  %s\n", (uint64_t)atomic_load(&r->t->counters[i]),
			names[i]);
	printf("    %-32s %9s %9s %9s %9s %9s  (us)\n", "latency", "n", "p50", "p90", "p99", "max");
	for (i = 0; i < SOAK_TIMES; i++) {
		const struct soak_hist *h = &r->t->times[i];

		if (atomic_load(&h->n) != 0)
			printf("    %-32s %9" PRIu64 " %9.0f %9.0f %9.0f %9.0f\n", times[i],
				(uint64_t)atomic_load(&h->n), (double)soak_percentile(h, 0.5) / 1e3,
				(double)soak_percentile(h, 0.9) / 1e3,
				(double)soak_percentile(h, 0.99) / 1e3,
				(double)atomic_load(&h->max) / 1e3);
	}
	fflush(stdout);
}

void
soak_run(const struct soak_run *run)
{
	struct router r = {0};
	uint64_t begin, end;
	uint32_t p;

	if (!start(&r, run)) {
		r.broken = true;
		goto out;
	}
	begin = soak_now();
	ramp(&r);
	end = soak_now() + run->seconds * 1000 * MS;
	r.next_kill = soak_now() + suite_range(&r.rand, 300, 900) * MS;
	r.next_stop = soak_now() + STOP_MIN * MS;
	while (!r.broken && soak_now() < end) {
		const struct timespec nap = {0, 2000000};

		deal(&r, true);
		welcome(&r);
		harm(&r);
		sample(&r);
		nanosleep(&nap, NULL);
	}
	finish(&r);
	report(&r, run, (double)(soak_now() - begin) / 1e9);
	if (!r.broken)
		leaks(&r);
	CHECK_EQ(r.t->counters[SOAK_MISMATCHES_N], 0);
	CHECK_EQ(r.t->counters[SOAK_WRONG_N], 0);
	CHECK_EQ(r.t->counters[SOAK_STUCK_N], 0);
	CHECK(r.t->counters[SOAK_DELIVERED_N] > 0);
	CHECK(r.t->counters[SOAK_KILLS_N] > 0);
	CHECK(r.t->counters[SOAK_F_ABORTED_N] > 0);
out:
	for (p = 0; p < SOAK_PROCS; p++)
		e2e_worker_kill(&r.w[p]);
	CHECK_EQ(e2e_engine_stop(&r.engine), 0);
	free(r.idle_since);
}
