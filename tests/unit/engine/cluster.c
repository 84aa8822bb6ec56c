/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

void
cluster_open(struct cluster *c, const struct kvf_engine_config *cfg,
	const struct cluster_shape *shape)
{
	struct kvf_err err = {0};
	uint32_t i;

	memset(c, 0, sizeof(*c));
	c->rand = suite_seed() | 1;
	c->rig = rig_start(cfg);
	c->np = shape->np;
	c->nd = shape->nd;
	for (i = 0; i < c->np; i++) {
		peer_mla(&c->p[i], &shape->prefill);
		if (!CHECK_EQ(peer_open(&c->p[i], rig_socket(c->rig), KVF_PREFILL, "p", c->np, i,
				      shape->limits, &err),
			    0))
			printf("        %s\n", err.text);
		shuffle(c, &c->order[0][i], shape->prefill.num_pages);
	}
	for (i = 0; i < c->nd; i++) {
		struct peer_shape s = shape->decode;

		s.sharding.size = c->nd;
		s.sharding.rank = i;
		s.sharding.interleave = shape->interleave != 0 ? shape->interleave : 1;
		peer_mla(&c->d[i], &s);
		if (!CHECK_EQ(peer_open(&c->d[i], rig_socket(c->rig), KVF_DECODE, "d", c->nd, i,
				      shape->limits, &err),
			    0))
			printf("        %s\n", err.text);
		shuffle(c, &c->order[1][i], shape->decode.num_pages);
	}
}

void
cluster_close(struct cluster *c)
{
	uint32_t i;

	for (i = 0; i < c->np; i++) {
		CHECK_EQ(peer_check(&c->p[i]), 0);
		peer_close(&c->p[i]);
		free(c->order[0][i]);
	}
	for (i = 0; i < c->nd; i++) {
		CHECK_EQ(peer_check(&c->d[i]), 0);
		peer_close(&c->d[i]);
		free(c->order[1][i]);
	}
	CHECK_EQ(rig_stop(c->rig), 0);
}

void
cluster_lists(struct cluster *c, bool decode, uint32_t rank, uint64_t from, uint64_t to,
	uint32_t slot, struct cluster_lists *l)
{
	struct peer *p = decode ? &c->d[rank] : &c->p[rank];
	uint32_t n = peer_pages(p, from, to), limit = p->comps[0].num_pages, i;
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

int
cluster_recv(struct cluster *c, uint32_t rank, uint64_t room, uint64_t prefix, uint64_t total,
	uint32_t slot, struct kvf_err *err)
{
	struct cluster_lists l;
	struct kvf_recv_args a = {.room = room, .prefix_tokens = prefix, .total_tokens = total};
	int rc;

	cluster_lists(c, true, rank, prefix, total, slot, &l);
	a.lists = l.lists;
	a.num_lists = l.num;
	rc = kvf_recv(c->d[rank].ep, &a, err);
	if (rc == 0)
		peer_expect(&c->d[rank], room, prefix, total, l.lists, l.num);
	cluster_lists_free(&l);
	return rc;
}

int
cluster_send(struct cluster *c, uint32_t rank, uint64_t room, uint64_t start, uint64_t n,
	uint64_t total, uint32_t slot, struct kvf_err *err)
{
	struct cluster_lists l;
	struct kvf_send_args a = {
		.room = room, .start_token = start, .num_tokens = n, .total_tokens = total};
	int rc;

	cluster_lists(c, false, rank, start, start + n, slot, &l);
	a.lists = l.lists;
	a.num_lists = start + n == total ? l.num : 1;
	peer_put(&c->p[rank], room, start, start + n, l.lists, a.num_lists);
	rc = kvf_send(c->p[rank].ep, &a, err);
	cluster_lists_free(&l);
	return rc;
}

void
cluster_room(struct cluster *c, uint64_t room, uint64_t prefix, uint64_t total, uint64_t chunk,
	uint32_t slot)
{
	struct kvf_err err = {0};
	uint64_t at;
	uint32_t i;

	for (i = 0; i < c->nd; i++)
		if (!CHECK_EQ(cluster_recv(c, i, room, prefix, total, slot, &err), 0))
			printf("        %s\n", err.text);
	for (at = prefix; at < total || at == prefix; at += chunk) {
		uint64_t n = total - at < chunk ? total - at : chunk;

		for (i = 0; i < c->np; i++)
			if (!CHECK_EQ(cluster_send(c, i, room, at, n, total, slot, &err), 0))
				printf("        %s\n", err.text);
		if (at + n == total)
			break;
	}
}

void
cluster_finish(struct cluster *c, uint64_t room, int status)
{
	struct kvf_err err = {0};
	uint32_t i;

	for (i = 0; i < c->np + c->nd; i++) {
		struct peer *p = i < c->np ? &c->p[i] : &c->d[i - c->np];
		int st = peer_wait(p, room, 20000);

		if (!CHECK_EQ(st, status)) {
			kvf_room_error(p->ep, room, &err);
			printf("        room=%" PRIu64 ": %s\n", room, err.text);
		}
		CHECK_EQ(kvf_room_release(p->ep, room, &err), 0);
	}
}
