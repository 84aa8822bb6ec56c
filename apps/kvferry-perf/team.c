/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/fail.h"
#include "kvferry-perf/team.h"

#define SLICE_NS  100000000
#define END_NS    10000000000ull
#define OPEN_MS   20000u
#define NAP_NS    2000000
#define GROUP_MAX KVF_GROUP_NAME_MAX

static void
deadline_in(struct timespec *ts, long ns)
{
	clock_gettime(CLOCK_MONOTONIC, ts);
	ts->tv_nsec += ns;
	ts->tv_sec += ts->tv_nsec / 1000000000;
	ts->tv_nsec %= 1000000000;
}

static void __attribute__((noreturn))
run_member(struct perf_team *t, uint32_t index, perf_member_fn fn, void *arg, pid_t parent)
{
	struct perf_member *m = &t->member[index];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	m->rc = fn(t, index, arg, &m->err);
	if (m->rc != 0)
		perf_member_done(t);
	/* Not exit(): the parent's buffers and handlers are not ours. */
	_exit(m->rc != 0);
}

int
perf_team_start(
	struct perf_team **out, uint32_t n, perf_member_fn fn, void *arg, struct kvf_err *err)
{
	size_t bytes = sizeof(struct perf_team) + n * sizeof(struct perf_member);
	pid_t parent = getpid(), pid;
	struct perf_team *t;
	uint32_t i;

	*out = NULL;
	t = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (t == MAP_FAILED)
		return app_fail(err, KVF_E_NOMEM, "no shared memory for workers=%u", n);
	sem_init(&t->done, 1, 0);
	for (i = 0; i < n; i++)
		sem_init(&t->member[i].go, 1, 0);
	fflush(NULL);
	*out = t;
	for (i = 0; i < n; i++) {
		pid = fork();
		if (pid == 0)
			run_member(t, i, fn, arg, parent);
		if (pid < 0)
			return app_fail(err, KVF_E_SYS, "fork failed: %s", strerror(errno));
		t->member[i].pid = pid;
		t->n++;
	}
	return 0;
}

void
perf_team_go(struct perf_team *t, uint32_t index)
{
	sem_post(&t->member[index].go);
}

int
perf_team_look(struct perf_team *t, struct kvf_err *err)
{
	uint32_t i;
	int status;

	for (i = 0; i < t->n; i++) {
		struct perf_member *m = &t->member[i];

		if (m->pid > 0 && waitpid(m->pid, &status, WNOHANG) == m->pid) {
			m->pid = 0;
			if (m->rc == 0)
				return app_fail(err, KVF_E_SYS,
					"worker=%u ended: status=0x%x before its time", i, status);
		}
		if (m->rc != 0) {
			*err = m->err;
			return m->rc;
		}
	}
	return 0;
}

int
perf_team_wait(struct perf_team *t, uint32_t count, uint32_t timeout_s, struct kvf_err *err)
{
	uint64_t limit = app_now_ns() + timeout_s * 1000000000ull;
	struct timespec ts;
	int rc;

	while (count > 0) {
		deadline_in(&ts, SLICE_NS);
		if (sem_clockwait(&t->done, CLOCK_MONOTONIC, &ts) == 0) {
			count--;
			if (count > 0)
				continue;
		}
		rc = perf_team_look(t, err);
		if (rc != 0)
			return rc;
		if (count > 0 && app_now_ns() >= limit)
			return app_fail(err, KVF_E_TIMEOUT, "workers=%u not done after %u s", count,
				timeout_s);
	}
	return 0;
}

void
perf_team_end(struct perf_team *t)
{
	uint64_t limit = app_now_ns() + END_NS;
	const struct timespec nap = {0, NAP_NS};
	uint32_t i;

	if (t == NULL)
		return;
	t->quit = 1;
	for (i = 0; i < t->n; i++)
		perf_team_go(t, i);
	for (i = 0; i < t->n; i++) {
		struct perf_member *m = &t->member[i];

		while (m->pid > 0 && waitpid(m->pid, NULL, WNOHANG) == 0) {
			if (app_now_ns() >= limit)
				kill(m->pid, SIGKILL);
			nanosleep(&nap, NULL);
		}
	}
	munmap(t, sizeof(*t) + t->n * sizeof(t->member[0]));
}

bool
perf_member_wait(struct perf_team *t, uint32_t index)
{
	while (sem_wait(&t->member[index].go) != 0)
		;
	return t->quit == 0;
}

void
perf_member_done(struct perf_team *t)
{
	sem_post(&t->done);
}

static uint32_t
power_of_two(uint32_t at_least, uint32_t n)
{
	uint32_t v = at_least;

	while (v < n)
		v *= 2;
	return v;
}

int
perf_endpoint(const struct perf_session *s, const struct perf_field *f, enum kvf_role role,
	uint32_t rank, uint32_t pair, uint32_t in_flight, struct kvf_endpoint **ep,
	struct kvf_err *err)
{
	const struct perf_rank *r = role == KVF_PREFILL ? &f->p[rank] : &f->d[rank];
	char group[GROUP_MAX];
	struct kvf_endpoint_config cfg = {
		.socket = s->socket,
		.role = role,
		.group = group,
		.group_size = role == KVF_PREFILL ? f->np : f->nd,
		.rank = rank,
		.pool = r->pool,
		.geometry = &r->geo,
		/* Each room is a posting and a release, and has several completions. */
		.sq_entries = power_of_two(1024, 2 * in_flight),
		.cq_entries = power_of_two(4096, 4 * in_flight),
		.max_rooms = power_of_two(1024, 2 * in_flight),
		.open_timeout_ms = OPEN_MS,
		.bootstrap_timeout_ms = f->o->timeout_s * 1000,
		.waiting_timeout_ms = f->o->timeout_s * 1000,
	};

	snprintf(group, sizeof(group), "perf-%llx-%u", (unsigned long long)s->tag, pair);
	return kvf_endpoint_open(&cfg, ep, err);
}

int
perf_grant(struct kvf_endpoint *ep, const struct perf_field *f, uint32_t rank, uint64_t room,
	uint32_t slot, struct kvf_err *err)
{
	const struct kvf_pages list = {
		SHAPE_LIST_TOKENS, f->d[rank].pages_per_slot, perf_pages(&f->d[rank], slot)};
	const struct kvf_recv_args args = {
		.room = room, .total_tokens = f->tokens, .lists = &list, .num_lists = 1};

	return kvf_recv(ep, &args, err);
}

int
perf_send(struct kvf_endpoint *ep, const struct perf_field *f, uint32_t rank, uint64_t room,
	uint32_t slot, struct kvf_err *err)
{
	const struct kvf_pages list = {
		SHAPE_LIST_TOKENS, f->p[rank].pages_per_slot, perf_pages(&f->p[rank], slot)};
	const struct kvf_send_args args = {.room = room,
		.num_tokens = f->tokens,
		.total_tokens = f->tokens,
		.lists = &list,
		.num_lists = 1};

	return kvf_send(ep, &args, err);
}

int
perf_room_failed(struct kvf_endpoint *ep, uint64_t room, struct kvf_err *err)
{
	int rc = kvf_room_error(ep, room, err);

	if (rc == 0)
		rc = app_fail(err, KVF_E_PROTO, "room=%llu ended without Success or a reason",
			(unsigned long long)room);
	return rc;
}
