/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Throughput of whole prompts. Every rank is a process; the parent maps all pools too, and between
 * two iterations does the same by other means, so that all figures see the same machine.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/fail.h"
#include "kvferry-perf/cases.h"
#include "kvferry-perf/report.h"
#include "kvferry-perf/team.h"

#define WAIT_MS 100
#define EVENTS  16

enum base {
	BASE_MEMCPY,
	BASE_ROWS,
	BASE_CMA,
	BASES,
};

static const char *const base_names[BASES] = {"memcpy", "rows", "cma"};

struct bulk {
	const struct perf_options *o;
	struct perf_session session;
	struct perf_field field;
	struct perf_team *team;
	uint64_t piece;
	uint32_t groups; /* of o->rooms slots each */
	uint64_t limit_bytes;
	uint64_t limit_at;
	uint64_t mismatches;
	struct perf_pieces pieces; /* of slot 0 */
	/* By iteration. */
	double *seconds, *gbps, *ratio, *post;
	double *base[BASES]; /* seconds */
	bool base_failed[BASES];
};

/* ---- workers ---- */

struct member {
	struct bulk *b;
	struct perf_team *team;
	struct perf_member *me;
	struct kvf_endpoint *ep;
	uint8_t *seen; /* rooms whose Success was counted */
	uint32_t rank;
	enum kvf_role role;
};

/* Until all rooms are finished and drained. */
static int
follow(struct member *m, struct kvf_err *err)
{
	uint32_t good = 0, drained = 0, rooms = m->team->rooms;
	struct kvf_event ev[EVENTS];
	uint64_t r;
	int n, i;

	memset(m->seen, 0, rooms);
	while (good < rooms || drained < rooms) {
		n = kvf_poll(m->ep, ev, EVENTS);
		if (n < 0)
			return app_fail(err, n, "the engine is gone");
		for (i = 0; i < n; i++) {
			if (ev[i].status == KVF_FAILED)
				return perf_room_failed(m->ep, ev[i].room, err);
			r = ev[i].room - m->team->room;
			if (r >= rooms)
				return app_fail(err, KVF_E_PROTO,
					"an event of room=%" PRIu64 ", which is not open",
					ev[i].room);
			drained += ev[i].drained;
			if (ev[i].status != KVF_SUCCESS || m->seen[r])
				continue;
			m->seen[r] = 1;
			if (++good == rooms)
				m->me->last_success = app_now_ns();
		}
		if (n == 0 && m->b->o->poll) {
			perf_pause();
		} else if (n == 0) {
			n = kvf_wait(m->ep, WAIT_MS);
			if (n < 0)
				return app_fail(err, n, "the engine is gone");
		}
	}
	return 0;
}

static int
post(struct member *m, uint32_t r, struct kvf_err *err)
{
	const struct perf_field *f = &m->b->field;
	uint64_t room = m->team->room + r;
	uint32_t slot = m->team->slot + r;

	return m->role == KVF_DECODE ? perf_grant(m->ep, f, m->rank, room, slot, err)
				     : perf_send(m->ep, f, m->rank, room, slot, err);
}

static int
iteration(struct member *m, struct kvf_err *err)
{
	uint64_t start = app_now_ns();
	uint32_t r;
	int rc = 0;

	m->me->first_post = start;
	for (r = 0; r < m->team->rooms && rc == 0; r++)
		rc = post(m, r, err);
	if (rc != 0)
		return rc;
	m->me->post_ns = app_now_ns() - start;
	/* Prefill posts only when every decode rank has granted. */
	if (m->role == KVF_DECODE)
		perf_member_done(m->team);
	rc = follow(m, err);
	for (r = 0; r < m->team->rooms && rc == 0; r++)
		rc = kvf_room_release(m->ep, m->team->room + r, err);
	return rc;
}

static int
member_main(struct perf_team *team, uint32_t index, void *arg, struct kvf_err *err)
{
	struct bulk *b = arg;
	struct member m = {.b = b, .team = team, .me = &team->member[index]};
	int rc, closed;

	m.role = index < b->field.np ? KVF_PREFILL : KVF_DECODE;
	m.rank = index < b->field.np ? index : index - b->field.np;
	m.seen = malloc(b->o->rooms);
	if (m.seen == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for rooms=%u", b->o->rooms);
	rc = perf_endpoint(&b->session, &b->field, m.role, m.rank, 0, b->o->rooms, &m.ep, err);
	if (rc != 0) {
		free(m.seen);
		return rc;
	}
	perf_member_done(team);
	while (rc == 0 && perf_member_wait(team, index)) {
		rc = iteration(&m, err);
		if (rc == 0)
			perf_member_done(team);
	}
	free(m.seen);
	closed = kvf_endpoint_close(m.ep);
	if (rc == 0 && closed != 0)
		rc = app_fail(err, closed, "closing an endpoint: %s", kvf_error_name(closed));
	return rc;
}

/* ---- the parent ---- */

static int
run_engine(struct bulk *b, uint32_t i, uint32_t slot, struct kvf_err *err)
{
	uint64_t first = UINT64_MAX, last = 0, post_ns = 0;
	struct perf_team *t = b->team;
	uint32_t k;
	int rc;

	t->slot = slot;
	t->rooms = b->o->rooms;
	t->room += b->o->rooms;
	for (k = b->field.np; k < t->n; k++)
		perf_team_go(t, k);
	rc = perf_team_wait(t, b->field.nd, b->o->timeout_s, err);
	for (k = 0; k < b->field.np && rc == 0; k++)
		perf_team_go(t, k);
	if (rc == 0)
		rc = perf_team_wait(t, t->n, b->o->timeout_s, err);
	if (rc != 0)
		return rc;
	for (k = 0; k < t->n; k++) {
		if (k >= b->field.np && t->member[k].last_success > last)
			last = t->member[k].last_success;
		if (k < b->field.np && t->member[k].first_post < first)
			first = t->member[k].first_post;
		if (k < b->field.np && t->member[k].post_ns > post_ns)
			post_ns = t->member[k].post_ns;
	}
	b->seconds[i] = (double)(last - first) / 1e9;
	b->post[i] = (double)post_ns / 1e3;
	return 0;
}

/* The block moves on through both pools, so that it is cold too. */
static double
run_memcpy(struct bulk *b)
{
	const struct perf_rank *p = &b->field.p[0], *d = &b->field.d[0];
	uint64_t at, room = p->decl.pool_bytes < d->decl.pool_bytes ? p->decl.pool_bytes
								    : d->decl.pool_bytes;

	if (b->limit_at + b->limit_bytes > room)
		b->limit_at = 0;
	at = b->limit_at;
	b->limit_at += b->limit_bytes;
	return perf_memcpy(&b->session.crew, d->base + at, p->base + at, b->limit_bytes);
}

/* The pieces are the planner's: they must give what the engine's copy gives. */
static void
check_baseline(struct bulk *b, uint32_t slot)
{
	uint32_t k;

	for (k = 0; k < b->field.nd && b->o->check; k++) {
		b->mismatches += perf_field_verify(&b->field, k, slot);
		perf_field_spoil(&b->field, k, slot);
	}
}

static int
run_baselines(struct bulk *b, uint32_t i, uint32_t slot, struct kvf_err *err)
{
	struct perf_pieces pieces = {0};
	pid_t pids[SHAPE_MAX_RANKS];
	uint32_t k;
	int rc = 0;

	if ((b->o->baselines & PERF_BASE_MEMCPY) != 0)
		b->base[BASE_MEMCPY][i] = run_memcpy(b);
	if ((b->o->baselines & (PERF_BASE_ROWS | PERF_BASE_CMA)) == 0)
		return 0;
	rc = perf_pieces_make(&b->field, slot, &pieces, err);
	if (rc == 0 && (b->o->baselines & PERF_BASE_ROWS) != 0) {
		b->base[BASE_ROWS][i] = perf_rows(&b->session.crew, &pieces);
		check_baseline(b, slot);
	}
	for (k = 0; k < b->field.nd; k++)
		pids[k] = b->team->member[b->field.np + k].pid;
	if (rc == 0 && (b->o->baselines & PERF_BASE_CMA) != 0) {
		b->base[BASE_CMA][i] = perf_cma(&b->session.crew, &pieces, pids);
		b->base_failed[BASE_CMA] |= b->base[BASE_CMA][i] < 0;
		if (!b->base_failed[BASE_CMA])
			check_baseline(b, slot);
	}
	perf_pieces_free(&pieces);
	return rc;
}

static void
check_iteration(struct bulk *b, uint32_t slot)
{
	uint32_t k, r;

	for (k = 0; k < b->field.nd; k++) {
		for (r = 0; r < b->o->rooms; r++) {
			b->mismatches += perf_field_verify(&b->field, k, slot + r);
			perf_field_spoil(&b->field, k, slot + r);
		}
	}
	b->mismatches += perf_field_sweep(&b->field);
}

static int
run_iterations(struct bulk *b, uint32_t n, struct kvf_err *err)
{
	uint32_t i, slot, other;
	int rc = 0;

	for (i = 0; i < n && rc == 0; i++) {
		slot = i % b->groups * b->o->rooms;
		other = (i + b->groups / 2) % b->groups * b->o->rooms;
		rc = run_baselines(b, i, other, err);
		if (rc == 0 && b->o->check && b->o->baselines != 0)
			perf_field_spoil_all(&b->field);
		if (rc == 0)
			rc = run_engine(b, i, slot, err);
		if (rc == 0 && b->o->check)
			check_iteration(b, slot);
	}
	return rc;
}

static void
report_baselines(struct bulk *b, json_t *report)
{
	json_t *all = json_object();
	uint64_t bytes;
	uint32_t k;

	for (k = 0; k < BASES; k++) {
		struct perf_stat st;
		json_t *one;

		if ((b->o->baselines & 1u << k) == 0)
			continue;
		if (b->base_failed[k]) {
			json_object_set_new(all, base_names[k], json_null());
			fprintf(stderr, "kvferry-perf: the kernel does not allow %s here\n",
				base_names[k]);
			continue;
		}
		bytes = k == BASE_MEMCPY ? b->limit_bytes : b->field.slot_bytes;
		st = perf_stat(b->base[k], b->o->num_iter);
		one = json_object();
		perf_report_count(one, "bytes", bytes);
		perf_report_stat(one, "seconds", &st, 1);
		perf_report_real(one, "gbps", (double)bytes / st.median / 1e9);
		json_object_set_new(all, base_names[k], one);
	}
	json_object_set_new(report, "baselines", all);
}

static void
report_bulk(struct bulk *b, const struct perf_counters *before, const struct perf_counters *after,
	double cycles)
{
	const struct perf_options *o = b->o;
	json_t *report = perf_report(o, &b->session, &b->field), *split = json_object();
	uint64_t bytes = b->field.slot_bytes * o->rooms, all = bytes * o->num_iter;
	double copy_us = (after->copy_s - before->copy_s) / o->num_iter / b->session.lcores * 1e6;
	double busy = after->busy_s - before->busy_s, plan = b->pieces.plan_us * o->rooms;
	struct perf_stat sec, gbps, ratio, post;
	double rest_us = 0;
	uint32_t i;

	for (i = 0; i < o->num_iter; i++) {
		rest_us += (b->seconds[i] * 1e6 - b->post[i]) / o->num_iter;
		b->gbps[i] = (double)bytes / b->seconds[i] / 1e9;
		if ((o->baselines & PERF_BASE_MEMCPY) != 0)
			b->ratio[i] = b->gbps[i] /
				      ((double)b->limit_bytes / b->base[BASE_MEMCPY][i] / 1e9);
	}
	gbps = perf_stat(b->gbps, o->num_iter);
	ratio = perf_stat(b->ratio, o->num_iter);
	sec = perf_stat(b->seconds, o->num_iter);
	post = perf_stat(b->post, o->num_iter);
	if (b->piece != 0)
		perf_report_count(report, "piece", b->piece);
	perf_report_text(report, "through", "kvferryd");
	perf_report_count(report, "prefill_ranks", b->field.np);
	perf_report_count(report, "decode_ranks", b->field.nd);
	perf_report_count(report, "bytes", bytes);
	perf_report_count(report, "runs", (after->runs - before->runs) / o->num_iter);
	perf_report_count(report, "copies", (after->copies - before->copies) / o->num_iter);
	perf_report_count(report, "pieces", b->pieces.num * o->rooms);
	perf_report_count(report, "slots", b->field.slots);
	perf_report_count(report, "footprint_bytes", b->field.touched);
	perf_report_count(report, "pool_bytes", b->field.pool_bytes);
	perf_report_stat(report, "seconds", &sec, 1);
	perf_report_real(report, "gbps", gbps.median);
	if ((o->baselines & PERF_BASE_MEMCPY) != 0) {
		perf_report_count(report, "limit_bytes", b->limit_bytes);
		perf_report_real(report, "ratio", ratio.median);
	}
	perf_report_real(split, "plan_us", plan);
	perf_report_real(split, "post_us", post.median);
	perf_report_real(split, "copy_us", copy_us);
	/* Counters know means only. */
	perf_report_real(split, "complete_us", rest_us - copy_us);
	json_object_set_new(report, "split", split);
	if (busy > 0)
		perf_report_real(
			report, "engine_overhead", 1 - (after->copy_s - before->copy_s) / busy);
	perf_report_real(report, "tsc_copy_ns_per_kb",
		(after->copy_s - before->copy_s) * 1e9 / ((double)all / 1e3));
	if (cycles > 0)
		perf_report_real(report, "cycles_per_byte", cycles / (double)all);
	for (i = 0; i < o->num_iter; i++)
		b->seconds[i] *= 1e6;
	perf_report_percentiles(report, b->seconds, o->num_iter);
	if (o->check)
		perf_report_count(report, "mismatches", b->mismatches);
	report_baselines(b, report);
	if ((o->baselines & PERF_BASE_MEMCPY) != 0)
		json_object_set(report, "limit_gbps",
			json_object_get(
				json_object_get(json_object_get(report, "baselines"), "memcpy"),
				"gbps"));
	perf_report_out(o, report);
}

static int
measure(struct bulk *b, struct kvf_err *err)
{
	struct perf_counters before, after;
	struct perf_cycles hw;
	uint64_t c0 = 0, c1 = 0;
	bool counted;
	int rc;

	rc = perf_team_wait(b->team, b->team->n, b->o->timeout_s, err);
	if (rc == 0)
		rc = run_iterations(b, b->o->warmup_iter, err);
	if (rc == 0)
		rc = perf_session_counters(&b->session, &before, err);
	if (rc != 0)
		return rc;
	perf_cycles_open(&hw, b->session.pid);
	counted = perf_cycles_read(&hw, &c0);
	rc = run_iterations(b, b->o->num_iter, err);
	counted = counted && perf_cycles_read(&hw, &c1);
	perf_cycles_close(&hw);
	if (rc == 0)
		rc = perf_session_counters(&b->session, &after, err);
	if (rc == 0)
		report_bulk(b, &before, &after, counted ? (double)(c1 - c0) : 0);
	return rc;
}

static int
allocate(struct bulk *b, struct kvf_err *err)
{
	uint32_t n = b->o->num_iter > b->o->warmup_iter ? b->o->num_iter : b->o->warmup_iter, k;
	double *all = calloc(n, (4 + BASES) * sizeof(double));

	if (all == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for num-iter=%u", n);
	b->seconds = all;
	b->gbps = all + n;
	b->ratio = all + 2 * n;
	b->post = all + 3 * n;
	for (k = 0; k < BASES; k++)
		b->base[k] = all + (4 + k) * n;
	return 0;
}

static int
with_field(struct bulk *b, struct kvf_err *err)
{
	uint64_t least;
	int rc;

	rc = allocate(b, err);
	if (rc == 0)
		rc = perf_field_make(&b->field, err);
	if (rc == 0)
		rc = perf_pieces_make(&b->field, 0, &b->pieces, err);
	if (rc == 0)
		rc = perf_session_start(&b->session, b->field.page_size == 4096, err);
	if (rc != 0)
		return rc;
	b->groups = b->field.slots / b->o->rooms;
	least = b->field.p[0].decl.pool_bytes < b->field.d[0].decl.pool_bytes
			? b->field.p[0].decl.pool_bytes
			: b->field.d[0].decl.pool_bytes;
	b->limit_bytes = least < PERF_LIMIT_BYTES ? least : PERF_LIMIT_BYTES;
	rc = perf_team_start(&b->team, b->field.np + b->field.nd, member_main, b, err);
	if (rc == 0) {
		/* Other runs at the same engine count from elsewhere. */
		b->team->room = b->session.tag << 20;
		rc = measure(b, err);
	}
	perf_team_end(b->team);
	return rc;
}

int
perf_bulk_pieces(
	const struct perf_options *o, uint64_t piece, uint64_t *mismatches, struct kvf_err *err)
{
	struct bulk b = {.o = o, .piece = piece};
	uint64_t pages;
	int rc;

	rc = perf_session_cpus(&b.session, o, err);
	if (rc == 0)
		rc = perf_field_plan(o, o->rooms, &b.field, &pages, err);
	if (rc == 0 && o->need_hugepages)
		printf("%" PRIu64 "\n", pages);
	else if (rc == 0)
		rc = with_field(&b, err);
	rc = perf_session_end(&b.session, rc, err);
	perf_pieces_free(&b.pieces);
	perf_field_free(&b.field);
	free(b.seconds);
	*mismatches += b.mismatches;
	return rc;
}

int
perf_bulk(const struct perf_options *o, uint64_t *mismatches, struct kvf_err *err)
{
	return perf_bulk_pieces(o, 0, mismatches, err);
}
