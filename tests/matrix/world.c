/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

#define WAIT_MS 30000

void
decl_tokens(struct decl *d, uint32_t page_tokens, uint32_t num_pages, uint32_t size, uint32_t rank,
	uint32_t interleave)
{
	struct kvf_component *c = &d->comps[d->n];

	*c = (struct kvf_component){.cls = KVF_TOKENS,
		.page_tokens = page_tokens,
		.num_pages = num_pages,
		.sharding = {size, rank, interleave, KVF_SHARD_CYCLIC},
		.entries = d->entries[d->n]};
	d->n++;
}

void
decl_put(struct decl *d, enum layout layout, const struct spec *specs, uint32_t n)
{
	struct kvf_component *c = &d->comps[d->n - 1];

	if (c->num_entries + n > WORLD_ENTRIES)
		abort();
	layout_place(layout, specs, n, c->page_tokens, c->num_pages, &d->bytes,
		&d->entries[d->n - 1][c->num_entries]);
	c->num_entries += n;
}

struct spec
spec_latent(uint32_t layer, uint32_t bytes)
{
	return (struct spec){layer, KVF_KIND_LATENT, 1, 0, 1, 1, bytes};
}

struct spec
spec_heads(uint32_t layer, uint16_t kind, uint32_t first, uint32_t count, uint32_t total,
	uint32_t bytes)
{
	return (struct spec){
		layer, kind, 1, (uint16_t)first, (uint16_t)count, (uint16_t)total, bytes};
}

void
world_add(struct world *w, int decode, struct decl *d)
{
	struct kvf_geometry geo = {.num_components = d->n, .components = d->comps};

	if (w->n[decode] == WORLD_RANKS)
		abort();
	peer_declare(&w->peer[decode][w->n[decode]], &geo, d->bytes);
	w->peer[decode][w->n[decode]++].page_size = w->page_size;
}

void
world_open(struct world *w)
{
	struct kvf_endpoint_config cfg = {.max_rooms = 64};
	struct kvf_err err = {0};
	uint32_t side, i;

	w->rig = rig_start(NULL);
	for (side = 0; side < 2; side++)
		for (i = 0; i < w->n[side]; i++)
			if (!CHECK_EQ(peer_open(&w->peer[side][i], rig_socket(w->rig),
					      side == 0 ? KVF_PREFILL : KVF_DECODE, "g", w->n[side],
					      i, &cfg, &err),
				    0))
				printf("        %s\n", err.text);
}

void
world_close(struct world *w)
{
	uint32_t side, i;

	for (side = 0; side < 2; side++)
		for (i = 0; i < w->n[side]; i++) {
			CHECK_EQ(peer_check(&w->peer[side][i]), 0);
			peer_close(&w->peer[side][i]);
		}
	CHECK_EQ(rig_stop(w->rig), 0);
}

void
world_recv_pages(struct world *w, uint32_t rank, uint64_t room, uint64_t prefix, uint64_t total,
	const uint32_t *ids, uint32_t n)
{
	struct kvf_pages list = {0, n, ids};
	struct peer_use use = {room, prefix, total, total, &list, 1, NULL};
	struct kvf_recv_args args = {.room = room,
		.prefix_tokens = prefix,
		.total_tokens = total,
		.lists = &list,
		.num_lists = 1};
	struct kvf_err err = {0};

	peer_await(&w->peer[1][rank], &use);
	if (!CHECK_EQ(kvf_recv(w->peer[1][rank].ep, &args, &err), 0))
		printf("        %s\n", err.text);
}

void
world_send_pages(struct world *w, uint32_t rank, uint64_t room, uint64_t from, uint64_t to,
	uint64_t total, const uint32_t *ids, uint32_t n)
{
	struct kvf_pages list = {0, n, ids};
	struct peer_use use = {room, from, to, total, &list, 1, NULL};
	struct kvf_send_args args = {.room = room,
		.start_token = from,
		.num_tokens = to - from,
		.total_tokens = total,
		.lists = &list,
		.num_lists = 1};
	struct kvf_err err = {0};

	peer_write(&w->peer[0][rank], &use);
	if (!CHECK_EQ(kvf_send(w->peer[0][rank].ep, &args, &err), 0))
		printf("        %s\n", err.text);
}

static uint32_t *
take_pages(struct world *w, int decode, uint32_t rank, uint64_t from, uint64_t to, uint64_t total,
	uint32_t *n)
{
	struct peer *p = &w->peer[decode][rank];
	uint32_t *ids, i;

	*n = peer_list_pages(p, 0, from, to, total);
	ids = malloc((*n + 1) * sizeof(*ids));
	if (ids == NULL || w->next[decode][rank] + *n > p->comps[0].num_pages)
		abort();
	for (i = 0; i < *n; i++)
		ids[i] = p->comps[0].num_pages - 1 - w->next[decode][rank]++;
	return ids;
}

uint32_t
world_recv(struct world *w, uint32_t rank, uint64_t room, uint64_t prefix, uint64_t total)
{
	uint32_t n, *ids = take_pages(w, 1, rank, prefix, total, total, &n);

	world_recv_pages(w, rank, room, prefix, total, ids, n);
	free(ids);
	return n;
}

uint32_t
world_send(
	struct world *w, uint32_t rank, uint64_t room, uint64_t from, uint64_t to, uint64_t total)
{
	uint32_t n, *ids = take_pages(w, 0, rank, from, to, total, &n);

	world_send_pages(w, rank, room, from, to, total, ids, n);
	free(ids);
	return n;
}

void
world_room(struct world *w, uint64_t room, uint64_t prefix, uint64_t start, const uint64_t *ends,
	uint32_t n)
{
	uint64_t at;
	uint32_t i, k;

	for (i = 0; i < w->n[1]; i++)
		world_recv(w, i, room, prefix, ends[n - 1]);
	for (i = 0; i < w->n[0]; i++)
		for (at = start, k = 0; k < n; at = ends[k++])
			world_send(w, i, room, at, ends[k], ends[n - 1]);
	world_finish(w, room);
}

void
world_finish(struct world *w, uint64_t room)
{
	struct kvf_err err = {0};
	uint32_t side, i;

	for (side = 0; side < 2; side++)
		for (i = 0; i < w->n[side]; i++) {
			struct peer *p = &w->peer[side][i];

			if (!CHECK_EQ(peer_wait(p, room, WAIT_MS), KVF_SUCCESS)) {
				kvf_room_error(p->ep, room, &err);
				printf("        %s\n", err.text);
			}
			CHECK_EQ(kvf_room_release(p->ep, room, &err), 0);
		}
}
