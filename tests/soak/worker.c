/* SPDX-License-Identifier: BSD-3-Clause */
/* A worker process: several endpoints of several families. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/suite.h"
#include "e2e/harness.h"
#include "soak/worker.h"

#define MS         SOAK_NS_MS
#define PICK_NS    (5 * MS)
#define PATROL_NS  (100 * MS)
#define OPEN_MS    30000
#define CLOSE_MIN  8000u /* ms between two endpoints that leave and come back */
#define CLOSE_MAX  25000u
#define NAP_MS     2
#define EXIT_WRONG 3

static void
fatal(const struct endpoint *ep, const char *what, const struct kvf_err *err)
{
	int n = dprintf(2, "        SOAK: endpoint=%s[%u] pid=%d: %s: %s: %s\n", ep->peer.group,
		ep->peer.rank, (int)getpid(), what, kvf_error_name(err->code), err->text);

	(void)n;
	_exit(EXIT_WRONG);
}

static void
open_it(struct endpoint *ep)
{
	struct kvf_endpoint_config cfg = {.sq_entries = 512, .cq_entries = 1024};
	struct soak_table *t = ep->w->t;
	struct kvf_err err = {0};
	uint64_t since = 0;
	int rc;

	for (;;) {
		rc = peer_connect(&ep->peer, t->socket, &cfg, &err);
		if (rc != KVF_E_EXIST)
			break;
		soak_count(t, SOAK_OPEN_WAITS_N, 1);
		if (!e2e_again(&since, OPEN_MS))
			break;
	}
	if (rc != 0)
		fatal(ep, "open", &err);
}

static void
set_up(struct worker *w, struct endpoint *ep, uint32_t family, uint32_t member)
{
	struct kvf_err err = {0};
	uint64_t since = 0;
	uint32_t i, n;
	int rc;

	ep->w = w;
	ep->family = family;
	ep->member = member;
	soak_declare(&ep->peer, family, member, w->places);
	/* One in eight on hugepages, if there are any. */
	if ((family + member) % SOAK_MEMBERS == 0)
		ep->peer.page_size = w->t->huge_page;
	for (;;) {
		rc = peer_pool(&ep->peer, &err);
		if (rc != KVF_E_NOHUGE)
			break;
		soak_count(w->t, SOAK_HUGE_WAITS_N, 1);
		if (!e2e_again(&since, OPEN_MS))
			break;
	}
	if (rc != 0)
		fatal(ep, "pool", &err);
	n = ep->peer.comps[0].num_pages;
	ep->parts = calloc(w->places, sizeof(*ep->parts));
	ep->due = calloc(w->places, sizeof(*ep->due));
	ep->free_pages = calloc(n, sizeof(*ep->free_pages));
	ep->free_slots = calloc(w->places + 16, sizeof(*ep->free_slots));
	if (ep->parts == NULL || ep->due == NULL || ep->free_pages == NULL ||
		ep->free_slots == NULL)
		abort();
	for (i = 0; i < n; i++)
		ep->free_pages[ep->num_free_pages++] = i;
	for (i = 0; i < w->places + 16; i++)
		ep->free_slots[ep->num_free_slots++] = i;
	for (i = 0; i < w->places; i++)
		ep->due[i] = NEVER;
	open_it(ep);
}

/* Rooms that this endpoint has not taken up yet. What a predecessor left is not its business. */
static void
pick(struct endpoint *ep, uint64_t now)
{
	uint32_t i;

	for (i = 0; i < ep->w->places; i++) {
		const struct soak_room *r = room_of(ep, i);
		uint32_t use = atomic_load(&r->use);

		if (use == ep->parts[i].use ||
			(ep->parts[i].state != PART_NONE && ep->parts[i].state != PART_SETTLE) ||
			atomic_load(&r->member[ep->member]) >> 3 == use)
			continue;
		part_begin(ep, i, use, now);
	}
}

static bool
run_due(struct endpoint *ep, uint64_t now)
{
	bool any = false;
	uint32_t i;

	for (i = 0; i < ep->w->places; i++) {
		if (ep->due[i] > now)
			continue;
		part_due(ep, i, now);
		any = true;
	}
	return any;
}

static void
check_pool(struct endpoint *ep, const char *when)
{
	uint64_t bad = peer_check(&ep->peer);

	soak_count(ep->w->t, SOAK_POOL_CHECKS_N, 1);
	if (bad != 0)
		worker_blame(ep, 0, SOAK_MISMATCHES_N, "%lu bytes of the pool are wrong %s",
			(unsigned long)bad, when);
}

/* Leaves in the middle of everything, and comes back with the same pool. */
static void
leave(struct endpoint *ep)
{
	struct soak_table *t = ep->w->t;
	struct soak_family_state *fam = &t->families[ep->family];
	uint32_t i;
	int rc;

	soak_count(t, SOAK_CLOSES_N, 1);
	atomic_fetch_add(&fam->closing, 1);
	for (i = 0; i < ep->w->places; i++)
		if (ep->parts[i].state == PART_OPEN)
			atomic_fetch_or(&room_of(ep, i)->causes,
				SOAK_CAUSE(KVF_E_PEER_DIED) | SOAK_MISSING);
	rc = kvf_endpoint_close(ep->peer.ep);
	ep->peer.ep = NULL;
	if (rc != 0)
		worker_blame(ep, 0, SOAK_WRONG_N, "close: %s", kvf_error_name(rc));
	part_closed(ep);
	check_pool(ep, "after its endpoint was closed");
	if (suite_range(&ep->w->rand, 0, 1) != 0) {
		usleep((useconds_t)suite_range(&ep->w->rand, 0, 20000));
		check_pool(ep, "some time after its endpoint was closed");
	}
	open_it(ep);
	/* Rooms that were to hear from it may have failed as well. */
	for (i = 0; i < ep->w->places; i++)
		atomic_fetch_or(&room_of(ep, i)->causes, SOAK_CAUSE(KVF_E_PEER_DIED));
	atomic_fetch_sub(&fam->closing, 1);
}

static void
tear_down(struct endpoint *ep)
{
	int rc;

	check_pool(ep, "at the end");
	rc = kvf_endpoint_close(ep->peer.ep);
	ep->peer.ep = NULL;
	if (rc != 0)
		worker_blame(ep, 0, SOAK_WRONG_N, "close: %s", kvf_error_name(rc));
	check_pool(ep, "after the end");
	peer_close(&ep->peer);
	free(ep->parts);
	free(ep->due);
	free(ep->free_pages);
	free(ep->free_slots);
}

static void
later(struct worker *w, uint64_t now)
{
	w->closed_next = now + suite_range(&w->rand, CLOSE_MIN, CLOSE_MAX) * MS;
}

static void
serve(struct worker *w)
{
	uint64_t next_pick = 0, next_patrol = 0, now;
	uint32_t i;
	bool any;

	later(w, soak_now() - CLOSE_MIN * MS);
	while (!atomic_load(&w->t->quit)) {
		now = soak_now();
		any = false;
		for (i = 0; i < w->num_eps; i++) {
			if (now >= next_pick)
				pick(&w->ep[i], now);
			any |= part_events(&w->ep[i]);
			any |= run_due(&w->ep[i], now);
			if (now >= next_patrol)
				part_patrol(&w->ep[i], now);
		}
		if (now >= next_pick)
			next_pick = now + PICK_NS;
		if (now >= next_patrol)
			next_patrol = now + PATROL_NS;
		if (now >= w->closed_next && atomic_load(&w->t->ramped) &&
			!atomic_load(&w->t->stopping)) {
			leave(&w->ep[suite_range(&w->rand, 0, w->num_eps - 1)]);
			later(w, soak_now());
		}
		if (any)
			continue;
		/* Half of the time by the doorbell of one of them. */
		if (w->cursor++ % 2 == 0)
			kvf_wait(w->ep[w->cursor / 2 % w->num_eps].peer.ep, NAP_MS);
		else
			usleep(NAP_MS * 1000);
	}
}

void
soak_worker(int fd, void *arg)
{
	const struct soak_life *life = arg;
	struct soak_table *t = life->table;
	struct worker *w = calloc(1, sizeof(*w));
	struct soak_proc_state *me = &t->procs[life->proc];
	uint64_t since = 0;
	uint32_t f, m, i;

	(void)fd;
	if (w == NULL)
		abort();
	/* kvferryd has cores of its own on a host that is meant to be fast. */
	if (nice(10) == -1)
		perror("nice");
	w->t = t;
	w->proc = life->proc;
	w->life = life->life;
	w->places = t->rooms / SOAK_FAMILIES;
	w->rand = soak_mix(t->seed ^ soak_mix((uint64_t)life->proc << 32 | life->life)) | 1;
	for (f = 0; f < SOAK_FAMILIES; f++)
		for (m = 0; m < SOAK_MEMBERS; m++)
			if (soak_proc_of(f, m) == life->proc)
				set_up(w, &w->ep[w->num_eps++], f, m);
	atomic_store(&me->ready, life->life);
	while (atomic_load(&me->go) != life->life)
		if (!e2e_again(&since, OPEN_MS * 2))
			_exit(EXIT_WRONG);
	serve(w);
	for (i = 0; i < w->num_eps; i++)
		tear_down(&w->ep[i]);
	free(w);
}
