/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long it takes from kvf_abort() until both sides know that no byte of the room's pages is
 * touched any more, while the engine copies without a pause: --window large rooms are always under
 * way, one of them is aborted at a random moment, from either side in turn.
 *
 * One process serves both endpoints, as in latency.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/fail.h"
#include "common/pattern.h"
#include "kvferry-perf/cases.h"
#include "kvferry-perf/report.h"
#include "kvferry-perf/team.h"

#define EVENTS     32
#define PAUSE_US   20000u /* between two aborts, at most */
#define LOOK_EVERY 4096u

enum slot_state {
	FREE,
	OPEN,
	COOLING, /* aborted and spoilt: nobody may write there; looked at before it is used again */
};

struct half {
	uint8_t status;
	bool drained;
};

struct slot {
	enum slot_state state;
	uint64_t room;
	struct half half[2]; /* prefill, decode */
};

struct aborts {
	const struct perf_options *o;
	struct perf_session session;
	struct perf_field field;
	struct kvf_endpoint *ep[2];
	struct slot *slots;
	uint64_t next_room;
	uint64_t rand;
	uint64_t finished; /* rooms that were left alone */
	uint64_t too_late; /* aborts that met a room which had just ended */
	double *us, *peer_us;
	uint64_t mismatches;
};

static uint64_t
draw(struct aborts *g, uint64_t below)
{
	g->rand = pattern_mix(g->rand + 0x9e3779b97f4a7c15ull);
	return g->rand % below;
}

static int
post(struct aborts *g, uint32_t i, struct kvf_err *err)
{
	struct slot *s = &g->slots[i];
	int rc;

	if (s->state == COOLING)
		g->mismatches += perf_field_unspoilt(&g->field, 0, i);
	*s = (struct slot){.state = OPEN, .room = g->next_room++};
	s->half[0].status = s->half[1].status = KVF_BOOTSTRAPPING;
	rc = perf_grant(g->ep[1], &g->field, 0, s->room, i, err);
	return rc != 0 ? rc : perf_send(g->ep[0], &g->field, 0, s->room, i, err);
}

static int
release(struct aborts *g, struct slot *s, struct kvf_err *err)
{
	int rc = kvf_room_release(g->ep[0], s->room, err);

	return rc != 0 ? rc : kvf_room_release(g->ep[1], s->room, err);
}

static int
take_events(struct aborts *g, uint32_t side, struct kvf_err *err)
{
	struct kvf_event ev[EVENTS];
	int n = kvf_poll(g->ep[side], ev, EVENTS), i;
	uint32_t k;

	if (n < 0)
		return app_fail(err, n, "the engine is gone");
	for (i = 0; i < n; i++)
		for (k = 0; k < g->o->window; k++) {
			struct half *h = &g->slots[k].half[side];

			if (g->slots[k].state != OPEN || g->slots[k].room != ev[i].room)
				continue;
			h->status = (uint8_t)ev[i].status;
			h->drained = h->drained || ev[i].drained;
		}
	return 0;
}

static bool
at_rest(const struct slot *s)
{
	return s->half[0].drained && s->half[1].drained;
}

/* Takes what happened, and keeps the engine busy. */
static int
turn(struct aborts *g, uint32_t aborted, struct kvf_err *err)
{
	uint32_t i;
	int rc = take_events(g, 0, err);

	if (rc == 0)
		rc = take_events(g, 1, err);
	for (i = 0; i < g->o->window && rc == 0; i++) {
		struct slot *s = &g->slots[i];

		if (i == aborted || s->state != OPEN || !at_rest(s))
			continue;
		if (s->half[0].status != KVF_SUCCESS || s->half[1].status != KVF_SUCCESS)
			return perf_room_failed(g->ep[1], s->room, err);
		g->finished++;
		if (g->o->check) {
			g->mismatches += perf_field_verify(&g->field, 0, i);
			perf_field_spoil(&g->field, 0, i);
		}
		rc = release(g, s, err);
		s->state = FREE;
		if (rc == 0)
			rc = post(g, i, err);
	}
	return rc;
}

static double
since(uint64_t t0)
{
	return (double)(perf_clock() - t0) * 1e6 / perf_clock_hz();
}

/* Aborts a room and waits until both sides are drained; *us < 0: it had ended by then. */
static int
abort_one(struct aborts *g, uint32_t i, uint32_t side, double *us, double *peer_us,
	struct kvf_err *err)
{
	uint64_t t0 = perf_clock(), limit = app_now_ns() + g->o->timeout_s * 1000000000ull;
	struct slot *s = &g->slots[i];
	uint32_t rounds = 0;
	int rc = kvf_abort(g->ep[side], s->room, "kvferry-perf", err);

	*us = *peer_us = -1;
	while (rc == 0 && (*us < 0 || *peer_us < 0)) {
		rc = turn(g, i, err);
		if (*us < 0 && s->half[side].drained)
			*us = since(t0);
		if (*peer_us < 0 && s->half[1 - side].drained)
			*peer_us = since(t0);
		if (++rounds % LOOK_EVERY == 0 && app_now_ns() > limit)
			return app_fail(err, KVF_E_TIMEOUT,
				"an aborted room was not drained within timeout=%u s",
				g->o->timeout_s);
	}
	if (rc != 0)
		return rc;
	/* Who was through with the room when the abort came keeps its Success; then it proves
	 * nothing. */
	if (s->half[0].status != KVF_FAILED || s->half[1].status != KVF_FAILED) {
		*us = -1;
		g->too_late++;
	}
	rc = release(g, s, err);
	if (g->o->check)
		perf_field_spoil(&g->field, 0, i);
	s->state = g->o->check ? COOLING : FREE;
	return rc;
}

static int
run(struct aborts *g, struct kvf_err *err)
{
	uint64_t all = (uint64_t)g->o->warmup_iter + g->o->num_iter, n = 0, until;
	uint64_t limit = app_now_ns() + g->o->timeout_s * 1000000000ull;
	uint32_t i, cooling = UINT32_MAX;
	double us, peer_us;
	int rc = 0;

	for (i = 0; i < g->o->window && rc == 0; i++)
		rc = post(g, i, err);
	while (n < all && rc == 0) {
		until = perf_clock() + draw(g, PAUSE_US) * (uint64_t)(perf_clock_hz() / 1e6);
		do {
			rc = turn(g, UINT32_MAX, err);
		} while (rc == 0 && perf_clock() < until);
		if (rc == 0 && cooling != UINT32_MAX)
			rc = post(g, cooling, err);
		cooling = (uint32_t)draw(g, g->o->window);
		if (rc != 0 || g->slots[cooling].state != OPEN)
			continue;
		rc = abort_one(g, cooling, (uint32_t)(n & 1), &us, &peer_us, err);
		if (rc == 0 && us < 0 && app_now_ns() > limit)
			return app_fail(err, KVF_E_TIMEOUT,
				"no room was met under way within timeout=%u s, %" PRIu64
				" had ended: more tokens or layers make them longer",
				g->o->timeout_s, g->too_late);
		if (rc != 0 || us < 0)
			continue;
		limit = app_now_ns() + g->o->timeout_s * 1000000000ull;
		if (n >= g->o->warmup_iter) {
			g->us[n - g->o->warmup_iter] = us;
			g->peer_us[n - g->o->warmup_iter] = peer_us;
		}
		n++;
	}
	return rc;
}

static void
report(struct aborts *g)
{
	const struct perf_options *o = g->o;
	json_t *r = perf_report(o, &g->session, &g->field), *peer = json_object();
	struct perf_stat us = perf_stat(g->us, o->num_iter);

	perf_report_text(r, "through", "kvferryd");
	perf_report_count(r, "processes", 1);
	perf_report_count(r, "bytes", g->field.slot_bytes);
	perf_report_count(r, "window", o->window);
	perf_report_count(r, "aborts", o->num_iter);
	perf_report_count(r, "aborts_too_late", g->too_late);
	perf_report_count(r, "rooms_finished", g->finished);
	perf_report_count(r, "footprint_bytes", g->field.touched);
	perf_report_stat(r, "seconds", &us, 1e-6);
	perf_report_percentiles(r, g->us, o->num_iter);
	perf_report_percentiles(peer, g->peer_us, o->num_iter);
	json_object_set_new(r, "peer", peer);
	if (o->check)
		perf_report_count(r, "mismatches", g->mismatches);
	perf_report_out(o, r);
}

static int
with_engine(struct aborts *g, struct kvf_err *err)
{
	int rc, k;

	for (k = 0, rc = 0; k < 2 && rc == 0; k++)
		rc = perf_endpoint(&g->session, &g->field, k == 0 ? KVF_PREFILL : KVF_DECODE, 0, 0,
			g->o->window + 1, &g->ep[k], err);
	if (rc == 0)
		rc = run(g, err);
	for (k = 0; k < 2; k++)
		if (g->ep[k] != NULL)
			(void)kvf_endpoint_close(g->ep[k]);
	if (rc == 0)
		report(g);
	return rc;
}

static int
with_field(struct aborts *g, struct kvf_err *err)
{
	uint64_t n = g->o->num_iter;
	int rc;

	g->us = calloc(2 * n, sizeof(double));
	g->slots = calloc(g->o->window, sizeof(*g->slots));
	if (g->us == NULL || g->slots == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for num-iter=%" PRIu64, n);
	g->peer_us = g->us + n;
	rc = perf_field_make(&g->field, err);
	if (rc == 0)
		rc = perf_session_start(&g->session, g->field.page_size == 4096, err);
	g->next_room = g->session.tag << 24;
	g->rand = g->o->seed;
	return rc != 0 ? rc : with_engine(g, err);
}

int
perf_abort(const struct perf_options *o, uint64_t *mismatches, struct kvf_err *err)
{
	struct aborts g = {.o = o};
	uint64_t pages;
	int rc;

	perf_clock_init();
	rc = perf_session_cpus(&g.session, o, err);
	if (rc == 0)
		rc = perf_field_plan(o, o->window, &g.field, &pages, err);
	if (rc == 0)
		rc = perf_one_rank(o, &g.field, err);
	if (rc == 0 && o->need_hugepages)
		printf("%" PRIu64 "\n", pages);
	else if (rc == 0)
		rc = with_field(&g, err);
	rc = perf_session_end(&g.session, rc, err);
	perf_field_free(&g.field);
	free(g.us);
	free(g.slots);
	*mismatches += g.mismatches;
	return rc;
}
