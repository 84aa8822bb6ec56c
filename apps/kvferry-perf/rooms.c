/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many small rooms a second: pairs of endpoints, each with a window of rooms in flight.
 * Room n of a pair uses slot n % window on both sides, so neither side tells the other anything.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/fail.h"
#include "kvferry-perf/cases.h"
#include "kvferry-perf/report.h"
#include "kvferry-perf/team.h"

#define EVENTS     64
#define SAMPLES    (1u << 18)
#define LOOK_EVERY 4096u

struct flow {
	struct kvf_endpoint *ep;
	const struct perf_field *field;
	enum kvf_role role;
	uint32_t pair;
	uint64_t room0; /* id of room 0 */
	uint64_t next;  /* rooms posted */
	uint64_t done;  /* rooms released */
	uint8_t *open;  /* by slot: 0 free, 1 posted, 2 seen to be Success */
};

/* Written by the workers, read by the parent. */
struct shared {
	uint64_t mismatches;
	uint32_t num_samples;
	double us[SAMPLES];
	_Atomic uint64_t sent_at[]; /* [pair][slot] */
};

struct rooms {
	const struct perf_options *o;
	struct perf_session session;
	struct perf_field *fields; /* one for each pair */
	struct perf_team *team;
	struct shared *sh;
	size_t shared_bytes;
	bool two;
	uint64_t per_pair;  /* rooms of one iteration */
	struct flow *flows; /* a worker's own */
	uint32_t num_flows;
	uint64_t skip; /* one sample for each so many rooms */
	double *seconds, *rate;
	uint64_t mismatches;
};

static _Atomic uint64_t *
sent_at(struct rooms *g, const struct flow *f, uint64_t n)
{
	return &g->sh->sent_at[(uint64_t)f->pair * g->o->window + n % g->o->window];
}

static void
take_sample(struct rooms *g, const struct flow *f, uint64_t n)
{
	uint64_t sent;

	if (g->sh->num_samples == SAMPLES || n % g->skip != 0)
		return;
	sent = atomic_load_explicit(sent_at(g, f, n), memory_order_relaxed);
	g->sh->us[g->sh->num_samples++] = (double)(perf_clock() - sent) * 1e6 / perf_clock_hz();
}

static int
release(struct rooms *g, struct flow *f, uint64_t room, struct kvf_err *err)
{
	uint64_t limit = 0, now;
	uint32_t rounds = 0;
	int rc;

	while ((rc = kvf_room_release(f->ep, room, err)) == KVF_E_AGAIN) {
		if (++rounds % LOOK_EVERY != 0)
			continue;
		now = app_now_ns();
		if (limit == 0)
			limit = now + g->o->timeout_s * 1000000000ull;
		if (now >= limit)
			break;
	}
	return rc;
}

static int
take_event(struct rooms *g, struct flow *f, const struct kvf_event *ev, struct perf_member *me,
	struct kvf_err *err)
{
	uint64_t n = ev->room - f->room0;
	uint32_t slot = (uint32_t)(n % g->o->window);
	int rc;

	if (ev->status == KVF_FAILED)
		return perf_room_failed(f->ep, ev->room, err);
	if (n >= f->next || f->open[slot] == 0)
		return app_fail(err, KVF_E_PROTO, "an event of room=%" PRIu64 ", which is not open",
			ev->room);
	if (ev->status != KVF_SUCCESS)
		return 0;
	if (f->open[slot] == 1 && f->role == KVF_DECODE) {
		take_sample(g, f, n);
		if (g->o->check) {
			g->sh->mismatches += perf_field_verify(f->field, 0, slot);
			perf_field_spoil(f->field, 0, slot);
		}
	}
	f->open[slot] = 2;
	if (!ev->drained)
		return 0;
	rc = release(g, f, ev->room, err);
	f->open[slot] = 0;
	f->done++;
	if (f->role == KVF_DECODE)
		me->last_success = app_now_ns();
	return rc;
}

static int
step(struct rooms *g, struct flow *f, uint64_t target, struct perf_member *me, bool *worked,
	struct kvf_err *err)
{
	struct kvf_event ev[EVENTS];
	int n, i, rc = 0;

	while (f->next < target && f->open[f->next % g->o->window] == 0) {
		uint32_t slot = (uint32_t)(f->next % g->o->window);

		if (f->role == KVF_DECODE) {
			rc = perf_grant(f->ep, f->field, 0, f->room0 + f->next, slot, err);
		} else {
			if (me->first_post == 0)
				me->first_post = app_now_ns();
			atomic_store_explicit(
				sent_at(g, f, f->next), perf_clock(), memory_order_relaxed);
			rc = perf_send(f->ep, f->field, 0, f->room0 + f->next, slot, err);
		}
		if (rc == KVF_E_AGAIN)
			break;
		if (rc != 0)
			return rc;
		f->open[slot] = 1;
		f->next++;
		*worked = true;
	}
	n = kvf_poll(f->ep, ev, EVENTS);
	if (n < 0)
		return app_fail(err, n, "the engine is gone");
	*worked = *worked || n > 0;
	for (i = 0, rc = 0; i < n && rc == 0; i++)
		rc = take_event(g, f, &ev[i], me, err);
	return rc;
}

static int
run_batch(struct rooms *g, uint64_t target, struct perf_member *me, struct kvf_err *err)
{
	uint64_t limit = app_now_ns() + g->o->timeout_s * 1000000000ull;
	uint32_t i, left, rounds = 0;
	bool worked;
	int rc = 0;

	me->first_post = me->last_success = 0;
	do {
		worked = false;
		for (i = left = 0; i < g->num_flows && rc == 0; i++) {
			struct flow *f = &g->flows[i];

			if (f->done == target)
				continue;
			rc = step(g, f, target, me, &worked, err);
			left += f->done < target;
		}
		if (!worked) {
			perf_pause();
			if (++rounds % LOOK_EVERY == 0 && app_now_ns() >= limit)
				rc = app_fail(err, KVF_E_TIMEOUT,
					"rooms open at endpoints=%u after timeout=%u s", left,
					g->o->timeout_s);
		}
	} while (left > 0 && rc == 0);
	return rc;
}

static int
open_flows(struct rooms *g, bool prefill, bool decode, struct kvf_err *err)
{
	uint32_t pairs = g->o->endpoints, i, side;
	int rc = 0;

	g->flows = calloc(2 * (size_t)pairs, sizeof(*g->flows));
	if (g->flows == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for endpoints=%u", pairs);
	for (i = 0; i < pairs; i++) {
		/* Decode first: in one process, grants should be there when the send comes. */
		for (side = 0; side < 2 && rc == 0; side++) {
			struct flow *f = &g->flows[g->num_flows];

			if (!(side == 0 ? decode : prefill))
				continue;
			f->field = &g->fields[i];
			f->role = side == 0 ? KVF_DECODE : KVF_PREFILL;
			f->pair = i;
			f->room0 = (g->session.tag << 36) + ((uint64_t)i << 36);
			f->open = calloc(g->o->window, 1);
			if (f->open == NULL)
				return app_fail(
					err, KVF_E_NOMEM, "no memory for window=%u", g->o->window);
			rc = perf_endpoint(
				&g->session, f->field, f->role, 0, i, g->o->window, &f->ep, err);
			g->num_flows++;
		}
	}
	return rc;
}

static int
member_main(struct perf_team *team, uint32_t index, void *arg, struct kvf_err *err)
{
	struct perf_member *me = &team->member[index];
	struct rooms *g = arg;
	uint32_t i;
	int rc;

	if (g->two && g->session.num_worker_cpus >= 2)
		perf_pin(&g->session.worker_cpus[index], 1);
	rc = open_flows(g, !g->two || index == 0, !g->two || index == 1, err);
	if (rc == 0)
		perf_member_done(team);
	while (rc == 0 && perf_member_wait(team, index)) {
		rc = run_batch(g, team->room, me, err);
		if (rc == 0)
			perf_member_done(team);
	}
	for (i = 0; i < g->num_flows; i++)
		(void)kvf_endpoint_close(g->flows[i].ep);
	return rc;
}

static int
run_batches(struct rooms *g, uint32_t n, struct kvf_err *err)
{
	struct perf_team *t = g->team;
	uint32_t i, k;
	int rc = 0;

	for (i = 0; i < n && rc == 0; i++) {
		uint64_t first = UINT64_MAX, last = 0;

		t->room += g->per_pair;
		for (k = 0; k < t->n; k++)
			perf_team_go(t, k);
		rc = perf_team_wait(t, t->n, g->o->timeout_s + 5, err);
		for (k = 0; k < t->n; k++) {
			if (t->member[k].first_post != 0 && t->member[k].first_post < first)
				first = t->member[k].first_post;
			if (t->member[k].last_success > last)
				last = t->member[k].last_success;
		}
		g->seconds[i] = (double)(last - first) / 1e9;
	}
	return rc;
}

static void
report_rooms(struct rooms *g, const struct perf_counters *before, const struct perf_counters *after)
{
	const struct perf_options *o = g->o;
	json_t *report = perf_report(o, &g->session, &g->fields[0]);
	uint64_t rooms = g->per_pair * o->endpoints, all = rooms * o->num_iter;
	struct perf_stat sec, rate;
	double busy = after->busy_s - before->busy_s;
	uint32_t i;

	for (i = 0; i < o->num_iter; i++)
		g->rate[i] = (double)rooms / g->seconds[i];
	sec = perf_stat(g->seconds, o->num_iter);
	rate = perf_stat(g->rate, o->num_iter);
	perf_report_text(report, "through", "kvferryd");
	perf_report_count(report, "processes", g->team->n);
	perf_report_count(report, "rooms", rooms);
	perf_report_count(report, "bytes", rooms * g->fields[0].slot_bytes);
	perf_report_count(report, "runs", (after->runs - before->runs) / o->num_iter);
	perf_report_count(report, "copies", (after->copies - before->copies) / o->num_iter);
	perf_report_count(report, "footprint_bytes", g->fields[0].touched * (uint64_t)o->endpoints);
	perf_report_stat(report, "seconds", &sec, 1);
	perf_report_stat(report, "rooms_per_s", &rate, 1);
	perf_report_real(report, "gbps", rate.median * (double)g->fields[0].slot_bytes / 1e9);
	perf_report_real(report, "engine_us_per_room", busy * 1e6 / (double)all);
	if (busy > 0)
		perf_report_real(
			report, "engine_overhead", 1 - (after->copy_s - before->copy_s) / busy);
	perf_report_percentiles(report, g->sh->us, g->sh->num_samples);
	perf_report_count(report, "samples", g->sh->num_samples);
	if (o->check)
		perf_report_count(report, "mismatches", g->mismatches);
	perf_report_out(o, report);
}

static int
measure(struct rooms *g, struct kvf_err *err)
{
	struct perf_counters before, after;
	uint32_t i;
	int rc;

	rc = perf_team_wait(g->team, g->team->n, g->o->timeout_s, err);
	if (rc == 0)
		rc = run_batches(g, g->o->warmup_iter, err);
	g->sh->num_samples = 0;
	if (rc == 0)
		rc = perf_session_counters(&g->session, &before, err);
	if (rc == 0)
		rc = run_batches(g, g->o->num_iter, err);
	if (rc == 0)
		rc = perf_session_counters(&g->session, &after, err);
	if (rc != 0)
		return rc;
	g->mismatches = g->sh->mismatches;
	for (i = 0; g->o->check && i < g->o->endpoints; i++)
		g->mismatches += perf_field_sweep(&g->fields[i]);
	report_rooms(g, &before, &after);
	return 0;
}

static int
allocate(struct rooms *g, struct kvf_err *err)
{
	const struct perf_options *o = g->o;
	uint32_t n = o->num_iter > o->warmup_iter ? o->num_iter : o->warmup_iter;

	g->per_pair = (o->rooms + o->endpoints - 1) / o->endpoints;
	g->skip = g->per_pair * o->endpoints * o->num_iter / SAMPLES + 1;
	g->seconds = calloc(2 * (size_t)n, sizeof(double));
	g->fields = calloc(o->endpoints, sizeof(*g->fields));
	g->shared_bytes =
		sizeof(*g->sh) + (size_t)o->endpoints * o->window * sizeof(g->sh->sent_at[0]);
	g->sh = mmap(
		NULL, g->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (g->seconds == NULL || g->fields == NULL || g->sh == MAP_FAILED)
		return app_fail(err, KVF_E_NOMEM, "no memory for num-iter=%u", n);
	g->rate = g->seconds + n;
	return 0;
}

/* Each pair's pools are made before the next pair's are sized: it gets what is left. */
static int
make_fields(struct rooms *g, uint64_t *pages, struct kvf_err *err)
{
	const struct perf_options *o = g->o;
	uint64_t one = 0;
	uint32_t i;
	int rc = 0;

	*pages = 0;
	for (i = 0; i < o->endpoints && rc == 0; i++) {
		struct perf_field *f = &g->fields[i];

		rc = perf_field_plan(o, o->window, f, &one, err);
		if (rc == 0)
			rc = perf_one_rank(o, f, err);
		*pages += one;
		if (rc == 0 && !o->need_hugepages)
			rc = perf_field_make(f, err);
	}
	return rc;
}

static int
with_fields(struct rooms *g, struct kvf_err *err)
{
	int rc;

	rc = perf_session_start(&g->session, g->fields[0].page_size == 4096, err);
	if (rc != 0)
		return rc;
	g->two = g->o->processes == 2 || (g->o->processes == 0 && g->session.num_worker_cpus >= 2);
	rc = perf_team_start(&g->team, g->two ? 2 : 1, member_main, g, err);
	if (rc == 0)
		rc = measure(g, err);
	perf_team_end(g->team);
	return rc;
}

int
perf_rooms(const struct perf_options *o, uint64_t *mismatches, struct kvf_err *err)
{
	struct rooms g = {.o = o};
	uint64_t pages = 0;
	uint32_t i;
	int rc;

	perf_clock_init();
	rc = perf_session_cpus(&g.session, o, err);
	if (rc == 0)
		rc = allocate(&g, err);
	if (rc == 0)
		rc = make_fields(&g, &pages, err);
	if (rc == 0 && o->need_hugepages)
		printf("%" PRIu64 "\n", pages);
	else if (rc == 0)
		rc = with_fields(&g, err);
	rc = perf_session_end(&g.session, rc, err);
	for (i = 0; g.fields != NULL && i < o->endpoints; i++)
		perf_field_free(&g.fields[i]);
	free(g.fields);
	free(g.seconds);
	if (g.sh != NULL && g.sh != MAP_FAILED)
		munmap(g.sh, g.shared_bytes);
	*mismatches += g.mismatches;
	return rc;
}
