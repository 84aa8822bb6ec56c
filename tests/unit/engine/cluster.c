/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include <kvferry/plan.h>

#include "cluster.h"

struct cluster_shape
cluster_small(uint32_t np, uint32_t nd, uint32_t layers)
{
	struct peer_shape s = {.layers = layers,
		.row_bytes = 1152,
		.page_tokens = 16,
		.num_pages = 64,
		.aux_bytes = 64};
	struct cluster_shape shape = {.np = np, .nd = nd, .prefill = s, .decode = s};

	return shape;
}

void
cluster_sleep_ms(int ms)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

	nanosleep(&ts, NULL);
}

static int64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void
shuffle(struct cluster *c, uint32_t **order, uint32_t n)
{
	uint32_t i;

	*order = malloc(n * sizeof(uint32_t));
	if (*order == NULL)
		abort();
	for (i = 0; i < n; i++) {
		uint32_t k = (uint32_t)suite_range(&c->rand, 0, i);

		(*order)[i] = (*order)[k];
		(*order)[k] = i;
	}
}

static void
open_peer(struct cluster *c, bool decode, uint32_t rank, const struct cluster_shape *shape)
{
	struct peer *p = decode ? &c->d[rank] : &c->p[rank];
	const char *name = decode ? shape->decode_name : shape->prefill_name;
	struct kvf_err err = {0};

	if (name == NULL)
		name = decode ? "d" : "p";
	if (!CHECK_EQ(peer_open(p, rig_socket(c->rig), decode ? KVF_DECODE : KVF_PREFILL, name,
			      decode ? c->nd : c->np, rank, shape->limits, &err),
		    0)) {
		/* Nothing that follows would make sense. */
		fprintf(stderr, "cannot open a peer: %s\n", err.text);
		exit(2);
	}
	shuffle(c, &c->order[decode][rank], p->comps[0].num_pages);
}

void
cluster_open_declared(
	struct cluster *c, const struct kvf_engine_config *cfg, const struct cluster_shape *shape)
{
	uint32_t i;

	c->rand = suite_seed() | 1;
	c->own_rig = shape->rig == NULL;
	c->rig = c->own_rig ? rig_start(cfg) : shape->rig;
	c->np = shape->np;
	c->nd = shape->nd;
	for (i = 0; i < c->np; i++)
		open_peer(c, false, i, shape);
	for (i = 0; i < c->nd; i++)
		open_peer(c, true, i, shape);
}

void
cluster_open(
	struct cluster *c, const struct kvf_engine_config *cfg, const struct cluster_shape *shape)
{
	uint32_t i;

	memset(c, 0, sizeof(*c));
	for (i = 0; i < shape->np; i++) {
		struct peer_shape s = shape->prefill;

		if (shape->prefill_dcp != 0) {
			s.sharding.size = shape->prefill_dcp;
			s.sharding.rank = i % shape->prefill_dcp;
			s.sharding.interleave =
				shape->prefill_interleave != 0 ? shape->prefill_interleave : 1;
		}
		peer_mla(&c->p[i], &s);
	}
	for (i = 0; i < shape->nd; i++) {
		struct peer_shape s = shape->decode;

		s.sharding.size = shape->nd;
		s.sharding.rank = i;
		s.sharding.interleave = shape->interleave != 0 ? shape->interleave : 1;
		peer_mla(&c->d[i], &s);
	}
	cluster_open_declared(c, cfg, shape);
}

void
cluster_close(struct cluster *c)
{
	uint32_t i;

	for (i = 0; i < c->np + c->nd; i++) {
		struct peer *p = i < c->np ? &c->p[i] : &c->d[i - c->np];

		if (p->pool == NULL)
			continue; /* closed by the test */
		CHECK_EQ(peer_check(p), 0);
		peer_close(p);
	}
	for (i = 0; i < CLUSTER_MAX; i++) {
		free(c->order[0][i]);
		free(c->order[1][i]);
	}
	if (c->own_rig)
		CHECK_EQ(rig_stop(c->rig), 0);
	free(c->seen);
}

/* A chunk's pages under context parallelism: all ranks list equally many, as many as the fullest
 * one needs. */
static uint32_t
virtual_pages(const struct peer *p, uint64_t from, uint64_t to)
{
	const struct kvf_sharding *sh = &p->comps[0].sharding;
	uint32_t page = p->comps[0].page_tokens;
	struct peer fullest = *p;

	if (sh->size == 1 || peer_pages(p, from, to) == 0)
		return peer_pages(p, from, to);
	fullest.comps[0].sharding.rank = 0;
	return (uint32_t)((kvf_shard_rows(&fullest.comps[0].sharding, to) + page - 1) / page -
			  kvf_shard_rows(sh, from) / page);
}

void
cluster_lists(struct cluster *c, bool decode, uint32_t rank, uint64_t from, uint64_t to,
	uint32_t slot, struct cluster_lists *l)
{
	struct peer *p = decode ? &c->d[rank] : &c->p[rank];
	uint32_t n = decode ? peer_pages(p, from, to) : virtual_pages(p, from, to);
	uint32_t limit = p->comps[0].num_pages, i;
	uint32_t *next = &c->next[decode][rank];

	memset(l, 0, sizeof(*l));
	l->pages = malloc((n + 1) * sizeof(uint32_t));
	if (l->pages == NULL)
		abort();
	for (i = 0; i < n; i++) {
		l->pages[i] = c->order[decode][rank][*next];
		*next = (*next + 1) % limit; /* round and round: the tests keep few rooms open */
	}
	l->aux = l->state = slot;
	l->lists[l->num++] = (struct kvf_pages){PEER_TOKENS, n, l->pages};
	for (i = 1; i < p->geo.num_components; i++) {
		if (p->comps[i].cls == KVF_AUX)
			l->lists[l->num++] = (struct kvf_pages){PEER_AUX, 1, &l->aux};
		if (p->comps[i].cls == KVF_STATE)
			l->lists[l->num++] = (struct kvf_pages){PEER_STATE, 1, &l->state};
	}
}

void
cluster_lists_free(struct cluster_lists *l)
{
	free(l->pages);
}

/* Something was full: let the engine take or give something. */
static void
make_room(struct cluster *c, struct peer *p)
{
	if (!cluster_poll(c))
		kvf_wait(p->ep, 1);
}

int
cluster_recv_lists(
	struct cluster *c, uint32_t rank, const struct kvf_recv_args *args, struct kvf_err *err)
{
	int64_t limit = now_ms() + CLUSTER_WAIT_MS;
	struct peer *p = &c->d[rank];
	int rc;

	while ((rc = kvf_recv(p->ep, args, err)) == KVF_E_AGAIN && now_ms() < limit)
		make_room(c, p);
	if (rc == 0)
		peer_expect(p, args->room, args->prefix_tokens, args->total_tokens, args->lists,
			args->num_lists);
	return rc;
}

int
cluster_send_lists(
	struct cluster *c, uint32_t rank, const struct kvf_send_args *args, struct kvf_err *err)
{
	int64_t limit = now_ms() + CLUSTER_WAIT_MS;
	struct peer *p = &c->p[rank];
	int rc;

	peer_put(p, args->room, args->start_token, args->start_token + args->num_tokens,
		args->lists, args->num_lists);
	while ((rc = kvf_send(p->ep, args, err)) == KVF_E_AGAIN && now_ms() < limit)
		make_room(c, p);
	return rc;
}

int
cluster_recv(struct cluster *c, uint32_t rank, uint64_t room, uint64_t prefix, uint64_t total,
	uint32_t slot, struct kvf_err *err)
{
	struct cluster_lists l;
	struct kvf_recv_args a = {.room = room,
		.prefix_tokens = prefix,
		.total_tokens = total,
		.key = c->key,
		.prefill_group = c->prefill_group};
	int rc;

	cluster_lists(c, true, rank, prefix, total, slot, &l);
	a.lists = l.lists;
	a.num_lists = l.num;
	rc = cluster_recv_lists(c, rank, &a, err);
	cluster_lists_free(&l);
	return rc;
}

int
cluster_send(struct cluster *c, uint32_t rank, uint64_t room, uint64_t start, uint64_t n,
	uint64_t total, uint32_t slot, struct kvf_err *err)
{
	struct cluster_lists l;
	struct kvf_send_args a = {.room = room,
		.start_token = start,
		.num_tokens = n,
		.total_tokens = total,
		.key = c->key};
	int rc;

	cluster_lists(c, false, rank, start, start + n, slot, &l);
	a.lists = l.lists;
	a.num_lists = start + n == total ? l.num : 1;
	rc = cluster_send_lists(c, rank, &a, err);
	cluster_lists_free(&l);
	return rc;
}

void
cluster_recv_all(struct cluster *c, uint64_t room, uint64_t prefix, uint64_t total, uint32_t slot)
{
	struct kvf_err err = {0};
	uint32_t i;

	for (i = 0; i < c->nd; i++)
		if (!CHECK_EQ(cluster_recv(c, i, room, prefix, total, slot, &err), 0))
			printf("        %s\n", err.text);
}

void
cluster_send_all(struct cluster *c, uint64_t room, uint64_t start, uint64_t total, uint64_t chunk,
	uint32_t slot)
{
	struct kvf_err err = {0};
	uint64_t at;
	uint32_t i;

	for (at = start; at < total || at == start; at += chunk) {
		uint64_t n = total - at < chunk ? total - at : chunk;

		for (i = 0; i < c->np; i++)
			if (!CHECK_EQ(cluster_send(c, i, room, at, n, total, slot, &err), 0))
				printf("        %s\n", err.text);
		if (at + n == total)
			break;
	}
}

void
cluster_room(struct cluster *c, uint64_t room, uint64_t prefix, uint64_t total, uint64_t chunk,
	uint32_t slot)
{
	cluster_recv_all(c, room, prefix, total, slot);
	cluster_send_all(c, room, prefix, total, chunk, slot);
}

static struct seen *
find(const struct cluster *c, const struct peer *p, uint64_t room)
{
	uint32_t i;

	for (i = 0; i < c->num_seen; i++)
		if (c->seen[i].room == room && c->seen[i].peer == p)
			return &c->seen[i];
	return NULL;
}

const struct seen *
cluster_seen(const struct cluster *c, const struct peer *p, uint64_t room)
{
	return find(c, p, room);
}

static void
forget(struct cluster *c, const struct peer *p, uint64_t room)
{
	struct seen *s = find(c, p, room);

	if (s != NULL)
		*s = c->seen[--c->num_seen];
}

static void
record(struct cluster *c, const struct peer *p, const struct kvf_event *ev)
{
	struct seen *s = find(c, p, ev->room);

	if (s == NULL) {
		if (c->num_seen == c->cap_seen) {
			c->cap_seen = c->cap_seen != 0 ? 2 * c->cap_seen : 64;
			c->seen = realloc(c->seen, c->cap_seen * sizeof(*c->seen));
			if (c->seen == NULL)
				abort();
		}
		s = &c->seen[c->num_seen++];
		*s = (struct seen){.peer = p, .room = ev->room, .status = KVF_BOOTSTRAPPING};
	}
	if (s->status == KVF_FAILED)
		CHECK_EQ(ev->status, KVF_FAILED);
	else if (ev->status == KVF_FAILED)
		CHECK(s->status != KVF_SUCCESS);
	else
		CHECK(ev->status >= s->status);
	CHECK(ev->tokens >= s->tokens);
	CHECK(ev->drained >= s->drained);
	CHECK((ev->status == KVF_FAILED) == (ev->error != 0));
	if (s->error != 0)
		CHECK_EQ(ev->error, s->error); /* the first cause is kept */
	s->status = ev->status;
	s->tokens = ev->tokens;
	s->drained = ev->drained;
	s->error = ev->error;
	s->mask |= (uint8_t)(1u << ev->status);
	s->events++;
}

bool
cluster_poll(struct cluster *c)
{
	struct kvf_event ev[32];
	bool any = false;
	uint32_t i;
	int n, k;

	for (i = 0; i < c->np + c->nd; i++) {
		struct peer *p = i < c->np ? &c->p[i] : &c->d[i - c->np];

		if (p->ep == NULL)
			continue;
		n = kvf_poll(p->ep, ev, 32);
		for (k = 0; k < n; k++)
			record(c, p, &ev[k]);
		any |= n > 0;
	}
	return any;
}

/* Every endpoint is looked after, so the sleep is short. */
static void
rest(struct cluster *c, struct peer *p)
{
	if (!cluster_poll(c))
		kvf_wait(p->ep, 2);
}

int
cluster_until(struct cluster *c, struct peer *p, uint64_t room, int status, int ms)
{
	int64_t limit = now_ms() + ms;

	for (;;) {
		int st = kvf_room_status(p->ep, room);

		cluster_poll(c);
		if (st <= KVF_FAILED || st == KVF_SUCCESS || st >= status)
			return st;
		if (now_ms() >= limit)
			return st;
		rest(c, p);
	}
}

int
cluster_wait(struct cluster *c, struct peer *p, uint64_t room, int ms)
{
	int64_t limit = now_ms() + ms;

	for (;;) {
		int st = kvf_room_status(p->ep, room);

		if (st < 0)
			return st;
		if ((st == KVF_FAILED || st == KVF_SUCCESS) && kvf_room_drained(p->ep, room) == 1) {
			cluster_poll(c);
			return st;
		}
		if (now_ms() >= limit)
			return KVF_E_TIMEOUT;
		rest(c, p);
	}
}

int
cluster_leave(struct cluster *c, struct peer *p)
{
	int rc = kvf_endpoint_close(p->ep);
	uint32_t i = 0;

	p->ep = NULL;
	while (i < c->num_seen)
		if (c->seen[i].peer == p)
			c->seen[i] = c->seen[--c->num_seen];
		else
			i++;
	return rc;
}

int
cluster_release(struct cluster *c, struct peer *p, uint64_t room)
{
	int64_t limit = now_ms() + CLUSTER_WAIT_MS;
	struct kvf_err err = {0};
	int rc;

	cluster_poll(c); /* events of this use, before the id stands for another */
	while ((rc = kvf_room_release(p->ep, room, &err)) == KVF_E_AGAIN && now_ms() < limit)
		make_room(c, p);
	if (rc == 0)
		forget(c, p, room);
	else
		printf("        release: %s\n", err.text);
	return rc;
}

void
cluster_finish(struct cluster *c, uint64_t room, int status)
{
	struct kvf_err err = {0};
	uint32_t i;

	for (i = 0; i < c->np + c->nd; i++) {
		struct peer *p = i < c->np ? &c->p[i] : &c->d[i - c->np];
		int st = cluster_wait(c, p, room, CLUSTER_WAIT_MS);

		if (!CHECK_EQ(st, status)) {
			kvf_room_error(p->ep, room, &err);
			printf("        room=%" PRIu64 ": %s\n", room, err.text);
		}
		CHECK_EQ(cluster_release(c, p, room), 0);
	}
}

int64_t
cluster_stat(struct cluster *c, const char *path)
{
	char *text = NULL, part[64];
	struct kvf_err err = {0};
	json_t *root, *at;
	int64_t v = -1;

	if (!CHECK_EQ(kvf_engine_status(rig_socket(c->rig), CLUSTER_WAIT_MS, &text, &err), 0)) {
		printf("        %s\n", err.text);
		return -1;
	}
	at = root = json_loads(text, 0, NULL);
	while (at != NULL && *path != '\0') {
		size_t n = strcspn(path, ".");

		snprintf(part, sizeof(part), "%.*s", (int)n, path);
		at = json_object_get(at, part);
		path += n + (path[n] == '.');
	}
	if (CHECK(json_is_integer(at)))
		v = json_integer_value(at);
	json_decref(root);
	free(text);
	return v;
}

int64_t
cluster_idle(struct cluster *c)
{
	int64_t limit = now_ms() + CLUSTER_WAIT_MS, used = -1, again;

	while (cluster_stat(c, "rooms.open") != 0 && now_ms() < limit)
		cluster_sleep_ms(2);
	CHECK_EQ(cluster_stat(c, "rooms.open"), 0);
	/* That number comes a little later than the other. */
	while ((again = cluster_stat(c, "dispatcher.slab_used")) != used && now_ms() < limit) {
		used = again;
		cluster_sleep_ms(20);
	}
	return used;
}
