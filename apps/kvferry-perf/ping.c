/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One small room at a time: latency, and idle, where the engine may have fallen asleep before.
 *
 * Both sides spin. With three CPUs or more each has a process of its own; with fewer one process
 * serves both endpoints in turn, because three that spin on two CPUs would measure the scheduler.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/fail.h"
#include "kvferry-perf/cases.h"
#include "kvferry-perf/report.h"
#include "kvferry-perf/team.h"

#define EVENTS       8
#define MEMCPY_RUNS  1000
#define SETTLE_US    5 /* after a grant, so that the engine has taken it */
#define IDLE_MS      100
#define IDLE_SECONDS 1
#define LOOK_EVERY   65536u /* rounds of spinning between looks at the time */

struct side {
	struct kvf_endpoint *ep;
	const struct ping *ping;
	uint64_t room;
	int status;
	bool drained;
};

/* Between the two processes; each line is written by one. */
struct shared {
	_Alignas(64) _Atomic uint64_t granted; /* rooms that decode has granted */
	_Alignas(64) _Atomic uint64_t seen;    /* rooms whose Success it saw */
	uint64_t seen_at;
	_Alignas(64) _Atomic uint64_t finished; /* verified and released */
	uint64_t mismatches;
};

struct ping {
	const struct perf_options *o;
	struct perf_session session;
	struct perf_field field;
	struct perf_team *team;
	struct shared *sh;
	struct side p, d;
	struct perf_pieces pieces;
	uint64_t room0;
	bool two;
	double *us, *post_us;
	double memcpy_us;
	uint64_t mismatches;
};

static int
side_poll(struct side *s, struct kvf_err *err)
{
	struct kvf_event ev[EVENTS];
	int n, i;

	n = kvf_poll(s->ep, ev, EVENTS);
	if (n < 0)
		return app_fail(err, n, "the engine is gone");
	for (i = 0; i < n; i++) {
		if (ev[i].status == KVF_FAILED)
			return perf_room_failed(s->ep, ev[i].room, err);
		if (ev[i].room != s->room)
			continue;
		s->status = ev[i].status;
		s->drained = s->drained || ev[i].drained;
	}
	return 0;
}

struct patience {
	uint64_t limit;
	uint32_t rounds;
};

static int
out_of_time(struct patience *p, const struct ping *g, struct kvf_err *err)
{
	uint64_t now;

	if (++p->rounds % LOOK_EVERY != 0)
		return 0;
	now = app_now_ns();
	if (p->limit == 0)
		p->limit = now + g->o->timeout_s * 1000000000ull;
	if (now < p->limit)
		return 0;
	return app_fail(
		err, KVF_E_TIMEOUT, "a room took longer than timeout=%u s", g->o->timeout_s);
}

static int
until_success(struct side *s, struct kvf_err *err)
{
	struct patience patience = {0};
	int rc = 0;

	while (s->status != KVF_SUCCESS && rc == 0) {
		rc = side_poll(s, err);
		if (rc == 0)
			rc = out_of_time(&patience, s->ping, err);
	}
	return rc;
}

/* Success, drained, forgotten. */
static int
finish(struct side *s, struct kvf_err *err)
{
	struct patience patience = {0};
	int rc = until_success(s, err);

	while (!s->drained && rc == 0) {
		rc = side_poll(s, err);
		if (rc == 0)
			rc = out_of_time(&patience, s->ping, err);
	}
	return rc != 0 ? rc : kvf_room_release(s->ep, s->room, err);
}

static void
begin(struct side *s, uint64_t room)
{
	s->room = room;
	s->status = KVF_BOOTSTRAPPING;
	s->drained = false;
}

static void
settle(void)
{
	uint64_t end = perf_clock() + (uint64_t)(perf_clock_hz() / 1e6 * SETTLE_US);

	while (perf_clock() < end)
		perf_pause();
}

static void
check_room(struct ping *g, uint32_t slot)
{
	if (!g->o->check)
		return;
	g->mismatches += perf_field_verify(&g->field, 0, slot);
	perf_field_spoil(&g->field, 0, slot);
}

/* The same bytes by plain memcpy, warm. Not in between, where it would change whose cache they are
 * in. */
static double
memcpy_us(struct ping *g)
{
	static double us[MEMCPY_RUNS];
	uint64_t t0, i, k;

	for (k = 0; k < MEMCPY_RUNS; k++) {
		t0 = perf_clock();
		for (i = 0; i < g->pieces.num; i++)
			memcpy(g->pieces.piece[i].dst, g->pieces.piece[i].src,
				g->pieces.piece[i].bytes);
		us[k] = (double)(perf_clock() - t0) * 1e6 / perf_clock_hz();
	}
	return perf_stat(us, MEMCPY_RUNS).median;
}

/* `from_grant`: the clock starts before decode's post, which then is part of the request. */
static int
ping_one(struct ping *g, uint64_t n, bool from_grant, double *us, double *post_us,
	struct kvf_err *err)
{
	uint32_t slot = (uint32_t)(n % g->field.slots);
	uint64_t t0, t1, t2;
	int rc;

	begin(&g->p, g->room0 + n);
	begin(&g->d, g->room0 + n);
	t0 = perf_clock();
	rc = perf_grant(g->d.ep, &g->field, 0, g->d.room, slot, err);
	if (rc != 0)
		return rc;
	if (!from_grant) {
		settle();
		t0 = perf_clock();
	}
	rc = perf_send(g->p.ep, &g->field, 0, g->p.room, slot, err);
	t1 = perf_clock();
	if (rc == 0)
		rc = until_success(&g->d, err);
	t2 = perf_clock();
	if (rc != 0)
		return rc;
	*us = (double)(t2 - t0) * 1e6 / perf_clock_hz();
	*post_us = (double)(t1 - t0) * 1e6 / perf_clock_hz();
	rc = finish(&g->d, err);
	if (rc == 0)
		rc = finish(&g->p, err);
	if (rc == 0)
		check_room(g, slot);
	return rc;
}

/* ---- two processes ---- */

static void
pin_to(const struct perf_session *s, uint32_t index)
{
	if (s->num_worker_cpus > index)
		perf_pin(&s->worker_cpus[index], 1);
}

static int
decode_main(struct perf_team *team, uint32_t index, void *arg, struct kvf_err *err)
{
	struct ping *g = arg;
	struct shared *sh = g->sh;
	uint64_t n, all = (uint64_t)g->o->warmup_iter + g->o->num_iter;
	int rc;

	(void)index;
	pin_to(&g->session, 1);
	rc = perf_endpoint(&g->session, &g->field, KVF_DECODE, 0, 0, 2, &g->d.ep, err);
	if (rc != 0)
		return rc;
	perf_member_done(team);
	for (n = 0; n < all && rc == 0; n++) {
		uint32_t slot = (uint32_t)(n % g->field.slots);

		begin(&g->d, g->room0 + n);
		rc = perf_grant(g->d.ep, &g->field, 0, g->d.room, slot, err);
		atomic_store_explicit(&sh->granted, n + 1, memory_order_release);
		if (rc == 0)
			rc = until_success(&g->d, err);
		sh->seen_at = perf_clock();
		atomic_store_explicit(&sh->seen, n + 1, memory_order_release);
		if (rc == 0)
			rc = finish(&g->d, err);
		check_room(g, slot);
		atomic_store_explicit(&sh->finished, n + 1, memory_order_release);
		if (team->quit)
			break;
	}
	sh->mismatches = g->mismatches;
	(void)kvf_endpoint_close(g->d.ep);
	return rc;
}

static int
spin_for(struct ping *g, _Atomic uint64_t *at, uint64_t value, struct kvf_err *err)
{
	struct patience patience = {0};
	int rc = 0;

	while (atomic_load_explicit(at, memory_order_acquire) < value && rc == 0) {
		/* Prefill polls as it would: what it sees is not what is measured. */
		rc = side_poll(&g->p, err);
		if (rc == 0)
			rc = out_of_time(&patience, g, err);
		if (rc == 0 && patience.rounds % LOOK_EVERY == 0)
			rc = perf_team_look(g->team, err);
	}
	return rc;
}

static int
ping_two(struct ping *g, uint64_t n, double *us, double *post_us, struct kvf_err *err)
{
	uint32_t slot = (uint32_t)(n % g->field.slots);
	uint64_t t0, t1;
	int rc;

	begin(&g->p, g->room0 + n);
	rc = spin_for(g, &g->sh->granted, n + 1, err);
	if (rc != 0)
		return rc;
	settle();
	t0 = perf_clock();
	rc = perf_send(g->p.ep, &g->field, 0, g->p.room, slot, err);
	t1 = perf_clock();
	if (rc == 0)
		rc = spin_for(g, &g->sh->seen, n + 1, err);
	if (rc != 0)
		return rc;
	*us = (double)(g->sh->seen_at - t0) * 1e6 / perf_clock_hz();
	*post_us = (double)(t1 - t0) * 1e6 / perf_clock_hz();
	rc = finish(&g->p, err);
	return rc != 0 ? rc : spin_for(g, &g->sh->finished, n + 1, err);
}

/* ---- both ---- */

static int
run_latency(struct ping *g, struct kvf_err *err)
{
	const struct perf_options *o = g->o;
	uint64_t all = (uint64_t)o->warmup_iter + o->num_iter, n;
	double us, post_us;
	int rc = 0;

	for (n = 0; n < all && rc == 0; n++) {
		if (g->two)
			rc = ping_two(g, n, &us, &post_us, err);
		else
			rc = ping_one(g, n, false, &us, &post_us, err);
		if (rc != 0 || n < o->warmup_iter)
			continue;
		g->us[n - o->warmup_iter] = us;
		g->post_us[n - o->warmup_iter] = post_us;
	}
	return rc;
}

static void
report_common(struct ping *g, json_t *report)
{
	const struct perf_options *o = g->o;

	perf_report_text(report, "through", "kvferryd");
	perf_report_count(report, "processes", g->two ? 2 : 1);
	perf_report_text(report, "clock", perf_clock_is_tsc ? "tsc" : "monotonic");
	perf_report_text(report, "buffers", g->field.slots == 1 ? "warm" : "rotating");
	perf_report_count(report, "bytes", g->field.slot_bytes);
	perf_report_count(report, "runs", g->pieces.runs);
	perf_report_count(report, "copies", g->pieces.num);
	perf_report_count(report, "footprint_bytes", g->field.touched);
	perf_report_percentiles(report, g->us, o->num_iter);
	if (o->check)
		perf_report_count(report, "mismatches", g->mismatches);
}

static void
report_latency(struct ping *g)
{
	const struct perf_options *o = g->o;
	json_t *report = perf_report(o, &g->session, &g->field), *split = json_object(), *base;
	struct perf_stat us, post;

	us = perf_stat(g->us, o->num_iter);
	post = perf_stat(g->post_us, o->num_iter);
	report_common(g, report);
	perf_report_stat(report, "seconds", &us, 1e-6);
	perf_report_real(report, "gbps", (double)g->field.slot_bytes / us.median / 1e3);
	perf_report_real(report, "p90_us", perf_percentile(g->us, o->num_iter, 0.9));
	perf_report_real(split, "plan_us", g->pieces.plan_us);
	perf_report_real(split, "post_us", post.median);
	perf_report_real(split, "complete_us", us.median - post.median);
	json_object_set_new(report, "split", split);
	if ((o->baselines & PERF_BASE_MEMCPY) != 0) {
		base = json_object();
		perf_report_real(base, "p50_us", g->memcpy_us);
		json_object_set_new(report, "baselines", json_pack("{s:o}", "memcpy", base));
	}
	/* For the plot of the distribution. */
	{
		static const double at[] = {
			0, .01, .05, .1, .25, .5, .75, .9, .95, .99, .995, .999, .9995, .9999, 1};
		json_t *curve = json_array();
		size_t i;

		for (i = 0; i < sizeof(at) / sizeof(at[0]); i++)
			json_array_append_new(
				curve, json_pack("[f, f]", at[i],
					       perf_percentile(g->us, o->num_iter, at[i])));
		json_object_set_new(report, "distribution", curve);
	}
	perf_report_out(o, report);
}

static int
run_idle(struct ping *g, struct kvf_err *err)
{
	const struct perf_options *o = g->o;
	const struct timespec nap = {0, IDLE_MS * 1000000}, second = {IDLE_SECONDS, 0};
	uint64_t all = (uint64_t)o->warmup_iter + o->num_iter, n, t0, t1;
	double us, post_us, before, after;
	json_t *report;
	int rc = 0;

	/* Something has happened before, so that nothing is done for the first time. */
	for (n = 0; n < 100 && rc == 0; n++)
		rc = ping_one(g, n, true, &us, &post_us, err);
	if (rc != 0)
		return rc;
	nanosleep(&nap, NULL);
	before = perf_cpu_seconds(g->session.pid);
	t0 = app_now_ns();
	nanosleep(&second, NULL);
	after = perf_cpu_seconds(g->session.pid);
	t1 = app_now_ns();
	g->room0 += 100;
	for (n = 0; n < all && rc == 0; n++) {
		nanosleep(&nap, NULL);
		rc = ping_one(g, n, true, &us, &post_us, err);
		if (rc == 0 && n >= o->warmup_iter)
			g->us[n - o->warmup_iter] = us;
	}
	if (rc != 0)
		return rc;
	report = perf_report(o, &g->session, &g->field);
	report_common(g, report);
	if (before >= 0 && after >= 0)
		perf_report_real(report, "cpu_share", (after - before) / ((double)(t1 - t0) / 1e9));
	else
		perf_report_text(report, "cpu_share", NULL);
	perf_report_count(report, "idle_ms", IDLE_MS);
	perf_report_real(report, "max_us", g->us[o->num_iter - 1]);
	perf_report_out(o, report);
	return 0;
}

static int
open_sides(struct ping *g, struct kvf_err *err)
{
	int rc;

	g->p.ping = g->d.ping = g;
	if (g->two) {
		rc = perf_team_start(&g->team, 1, decode_main, g, err);
		if (rc == 0)
			rc = perf_team_wait(g->team, 1, g->o->timeout_s, err);
		pin_to(&g->session, 0);
	} else {
		rc = perf_endpoint(&g->session, &g->field, KVF_DECODE, 0, 0, 2, &g->d.ep, err);
	}
	if (rc == 0)
		rc = perf_endpoint(&g->session, &g->field, KVF_PREFILL, 0, 0, 2, &g->p.ep, err);
	return rc;
}

static int
with_engine(struct ping *g, struct kvf_err *err)
{
	int rc = open_sides(g, err);

	if (rc == 0)
		rc = g->o->cas == PERF_IDLE ? run_idle(g, err) : run_latency(g, err);
	if (g->team != NULL) {
		perf_team_end(g->team);
		g->team = NULL;
		g->mismatches += g->sh->mismatches;
	} else {
		(void)kvf_endpoint_close(g->d.ep);
	}
	(void)kvf_endpoint_close(g->p.ep);
	if (rc == 0 && g->o->check)
		g->mismatches += perf_field_sweep(&g->field);
	if (rc == 0 && (g->o->baselines & PERF_BASE_MEMCPY) != 0)
		g->memcpy_us = memcpy_us(g);
	if (rc == 0 && g->o->cas == PERF_LATENCY)
		report_latency(g);
	return rc;
}

static int
with_field(struct ping *g, struct kvf_err *err)
{
	uint64_t n = g->o->num_iter;
	int rc;

	g->us = calloc(2 * n, sizeof(double));
	g->sh = mmap(
		NULL, sizeof(*g->sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (g->us == NULL || g->sh == MAP_FAILED)
		return app_fail(err, KVF_E_NOMEM, "no memory for num-iter=%" PRIu64, n);
	g->post_us = g->us + n;
	rc = perf_field_make(&g->field, err);
	if (rc == 0)
		rc = perf_pieces_make(&g->field, 0, &g->pieces, err);
	if (rc == 0)
		rc = perf_session_start(&g->session, g->field.page_size == 4096, err);
	if (rc != 0)
		return rc;
	g->room0 = g->session.tag << 24;
	g->two =
		g->o->cas == PERF_LATENCY &&
		(g->o->processes == 2 || (g->o->processes == 0 && g->session.num_worker_cpus >= 2));
	return with_engine(g, err);
}

int
perf_latency(const struct perf_options *o, uint64_t *mismatches, struct kvf_err *err)
{
	struct ping g = {.o = o};
	uint64_t pages;
	int rc;

	perf_clock_init();
	rc = perf_session_cpus(&g.session, o, err);
	if (rc == 0)
		rc = perf_field_plan(o, 1, &g.field, &pages, err);
	if (rc == 0)
		rc = perf_one_rank(o, &g.field, err);
	if (rc == 0 && o->need_hugepages)
		printf("%" PRIu64 "\n", pages);
	else if (rc == 0)
		rc = with_field(&g, err);
	rc = perf_session_end(&g.session, rc, err);
	perf_pieces_free(&g.pieces);
	perf_field_free(&g.field);
	free(g.us);
	if (g.sh != NULL && g.sh != MAP_FAILED)
		munmap(g.sh, sizeof(*g.sh));
	*mismatches += g.mismatches;
	return rc;
}

int
perf_idle(const struct perf_options *o, uint64_t *mismatches, struct kvf_err *err)
{
	return perf_latency(o, mismatches, err);
}
