/* SPDX-License-Identifier: BSD-3-Clause */
/* Named cases: what went wrong for others. */
#include <stdlib.h>
#include <string.h>

#include "common/suite.h"
#include "cases.h"
#include "model.h"

#define ANY UINT32_MAX

/* sglang 27740, 33497: stages of 7 and 8 layers and an appended draft layer; decode lists K first,
 * then V. */
static void
test_pipeline_stages(void)
{
	struct kvf_link *link;
	struct kvf_err err;
	struct group g;
	struct ep *ep;
	struct spec s;
	uint32_t l;

	group_init(&g, 23, 0);
	ep = add_plain(&g, 0, 4);
	for (l = 0; l < 7; l++)
		add_kv(ep, LAY_NHD, l, 0, 2, 2);
	ep = add_plain(&g, 0, 4);
	for (l = 7; l < 14; l++)
		add_kv(ep, LAY_NHD, l, 0, 2, 2);
	add_kv(ep, LAY_NHD, 14, 0, 2, 2);
	ep = add_plain(&g, 1, 8);
	for (l = 0; l < 30; l++) {
		s = heads(l % 15, l < 15 ? KVF_KIND_K : KVF_KIND_V, 0, 2, 2);
		ep_add(ep, 0, LAY_HND, &s, 1);
	}
	CHECK_EQ(group_verify(&g), 0);
	CHECK_EQ(group_link(&g, &link, &err), 0);
	/* NHD to HND: a lane for each of the two heads of the 30 buffers */
	CHECK_EQ(link_lanes(link, 0, 0, 0), 2 * 14);
	CHECK_EQ(link_lanes(link, 1, 0, 0), 2 * 16);
	kvf_link_free(link);
	group_free(&g);
}

/* DCP 1 -> 4: the draft layer stands in the target's component here and in one of its own, with
 * pages of P*N tokens, there. */
static void
test_draft(void)
{
	const struct spec draft = latent(61);
	struct group g;
	struct ep *ep;
	uint32_t r, c;

	group_init(&g, 57, 0);
	ep = add_plain(&g, 0, 4);
	add_latents(ep, 0, 3);
	ep_add(ep, 0, LAY_NHD, &draft, 1);
	for (r = 0; r < 4; r++) {
		ep = add_sharded(&g, 1, 4, 4, r, 1);
		add_latents(ep, 0, 3);
		c = ep_component(&g, ep, KVF_TOKENS, 0, 0, 16, 1, 0, 1);
		ep_add(ep, c, LAY_NHD, &draft, 1);
	}
	CHECK_EQ(group_verify(&g), 0);
	group_free(&g);
}

/*
 * Prefill rank r has one of `total` heads, r * total / tp, and the one decode rank has all. Returns
 * the lanes that do not end in that head; bytes_of[r] is what rank r gives, per token.
 */
static uint32_t
tp_to_one(uint32_t tp, uint32_t total, uint32_t layers, uint64_t *bytes_of)
{
	uint32_t r, l, wrong = 0;
	struct kvf_link *link;
	struct kvf_err err;
	struct group g;
	struct ep *ep;

	group_init(&g, 11, 0);
	for (r = 0; r < tp; r++) {
		ep = add_plain(&g, 0, 4);
		for (l = 0; l < layers; l++)
			add_kv(ep, LAY_NHD, l, r * total / tp, 1, total);
	}
	ep = add_plain(&g, 1, 4);
	for (l = 0; l < layers; l++)
		add_kv(ep, LAY_NHD, l, 0, total, total);
	CHECK_EQ(group_verify(&g), 0);
	CHECK_EQ(group_link(&g, &link, &err), 0);
	for (r = 0; r < tp; r++) {
		const struct kvf_pair *pair = kvf_link_pair(link, r, 0);
		uint32_t i;

		CHECK_EQ(pair->num_maps, 1);
		bytes_of[r] = pair->num_maps == 1 ? pair->maps->row_bytes : 0;
		for (i = 0; pair->num_maps == 1 && i < pair->maps->num_lanes; i++) {
			const struct kvf_lane *lane = &pair->maps->lanes[i];
			const struct kvf_entry *e = ep->comps[0].entries, *f = NULL;
			uint32_t k;

			for (k = 0; k < ep->comps[0].num_entries; k++) {
				if (lane->dst_off >= e[k].offset)
					f = &e[k];
			}
			wrong +=
				f == NULL || (lane->dst_off - f->offset) / (f->row_bytes / total) !=
						     r * total / tp;
		}
	}
	kvf_link_free(link);
	group_free(&g);
	return wrong;
}

/* sglang 19086, 23746, 31295: replicated GQA heads. Each replica of a head does half of the work.
 */
static void
test_replicated_heads(void)
{
	uint64_t bytes[8];
	uint32_t r;

	/* Heads 0, 0, 1, 1; K is 2 bytes wide and V 3, so that five layers of a head are 12 + 13.
	 */
	CHECK_EQ(tp_to_one(4, 2, 5, bytes), 0);
	for (r = 0; r < 4; r++)
		CHECK(bytes[r] >= 11 && bytes[r] <= 14);
	/* heads 0, 0, 1, 1, 2, 2, 3, 3 */
	CHECK_EQ(tp_to_one(8, 4, 4, bytes), 0);
	for (r = 0; r < 8; r++)
		CHECK(bytes[r] >= 9 && bytes[r] <= 11);
}

static void
test_one_to_replicated_heads(void)
{
	struct group g;
	struct ep *ep;
	uint32_t r, l;

	group_init(&g, 11, 0);
	ep = add_plain(&g, 0, 4);
	for (l = 0; l < 3; l++)
		add_kv(ep, LAY_NHD, l, 0, 2, 2);
	for (r = 0; r < 4; r++) {
		ep = add_plain(&g, 1, 2);
		for (l = 0; l < 3; l++)
			add_kv(ep, LAY_NHD, l, r / 2, 1, 2);
	}
	CHECK_EQ(group_verify(&g), 0);
	group_free(&g);
}

/* Kimi-Linear: 7 of 27 layers have KV, and the two sides count them differently. */
static void
test_hybrid_layers(void)
{
	static const uint32_t with_kv[] = {3, 7, 11, 15, 19, 23, 26};
	struct kvf_link *link;
	struct kvf_err err;
	struct group g;
	struct spec s;
	struct ep *ep;
	uint32_t i;

	group_init(&g, 19, 0);
	ep = add_plain(&g, 0, 4);
	add_latents(ep, 0, 27); /* a prefill side that keeps a buffer for every layer */
	ep = add_plain(&g, 1, 4);
	for (i = LEN(with_kv); i-- > 0;) {
		s = latent(with_kv[i]);
		ep_add(ep, 0, LAY_NHD_PADDED, &s, 1);
	}
	CHECK_EQ(group_verify(&g), 0);
	CHECK_EQ(group_link(&g, &link, &err), 0);
	CHECK_EQ(link_lanes(link, 0, 0, 0), 7);
	for (i = 0; i < 7; i++)
		CHECK_EQ(kvf_link_pair(link, 0, 0)->maps->lanes[i].layer, with_kv[i]);
	kvf_link_free(link);
	group_free(&g);
}

/* Ranks s and d exchange iff s = d modulo the greatest common divisor. */
static void
test_sharding_pairs(void)
{
	static const struct {
		uint32_t n, m, gcd;
	} cases[] = {{8, 1, 1}, {1, 8, 1}, {2, 4, 2}, {4, 6, 2}, {6, 4, 2}, {4, 4, 4}, {3, 8, 1}};
	struct kvf_link *link;
	struct kvf_err err;
	struct group g;
	uint32_t i, s, d;

	for (i = 0; i < LEN(cases); i++) {
		group_init(&g, 53, 0);
		for (s = 0; s < cases[i].n; s++)
			add_latents(add_sharded(&g, 0, 4, cases[i].n, s, 1), 0, 2);
		for (d = 0; d < cases[i].m; d++)
			add_latents(add_sharded(&g, 1, 2, cases[i].m, d, 1), 0, 2);
		CHECK_EQ(group_verify(&g), 0);
		CHECK_EQ(group_link(&g, &link, &err), 0);
		for (s = 0; s < cases[i].n; s++) {
			for (d = 0; d < cases[i].m; d++)
				CHECK_EQ(kvf_link_pair(link, s, d)->num_maps,
					s % cases[i].gcd == d % cases[i].gcd);
		}
		kvf_link_free(link);
		group_free(&g);
	}
}

/* Two replicas of 61 MLA layers share the work, and all decode ranks read a layer from the same
 * one. */
static void
test_replicas_alternate(void)
{
	uint32_t owner[61], r, d, m, i;
	struct kvf_link *link;
	struct kvf_err err;
	struct group g;

	group_init(&g, 33, 0);
	for (r = 0; r < 2; r++)
		add_latents(add_plain(&g, 0, 4), 0, 61);
	for (d = 0; d < 4; d++)
		add_latents(add_sharded(&g, 1, 4, 4, d, 1), 0, 61);
	CHECK_EQ(group_verify(&g), 0);
	CHECK_EQ(group_link(&g, &link, &err), 0);
	memset(owner, 0xff, sizeof(owner));
	for (d = 0; d < 4; d++) {
		CHECK_EQ(link_lanes(link, 0, d, 0), 31);
		CHECK_EQ(link_lanes(link, 1, d, 0), 30);
		for (r = 0; r < 2; r++) {
			const struct kvf_pair *pair = kvf_link_pair(link, r, d);

			for (m = 0; m < pair->num_maps; m++) {
				for (i = 0; i < pair->maps[m].num_lanes; i++) {
					uint32_t l = pair->maps[m].lanes[i].layer;

					CHECK(owner[l] == UINT32_MAX || owner[l] == r);
					owner[l] = r;
				}
			}
		}
	}
	kvf_link_free(link);
	group_free(&g);
}

/* A layer that no decode rank wants is nobody's work. */
static void
test_balance_counts_wanted(void)
{
	struct kvf_link *link;
	struct kvf_err err;
	struct group g;
	struct spec s;
	struct ep *ep;
	uint32_t r, l;

	group_init(&g, 9, 0);
	for (r = 0; r < 2; r++)
		add_latents(add_plain(&g, 0, 4), 0, 9);
	add_latents(add_plain(&g, 1, 4), 5, 9);
	CHECK_EQ(group_verify(&g), 0);
	CHECK_EQ(group_link(&g, &link, &err), 0);
	CHECK_EQ(link_lanes(link, 0, 0, 0), 2);
	CHECK_EQ(link_lanes(link, 1, 0, 0), 2);
	kvf_link_free(link);
	group_free(&g);

	/* neither are the seven heads that no decode rank wants */
	group_init(&g, 9, 0);
	for (r = 0; r < 2; r++) {
		ep = add_plain(&g, 0, 4);
		for (l = 0; l < 4; l++) {
			s = heads(l, KVF_KIND_K, 0, 8, 8);
			ep_add(ep, 0, LAY_NHD, &s, 1);
		}
	}
	ep = add_plain(&g, 1, 4);
	for (l = 0; l < 4; l++) {
		s = heads(l, KVF_KIND_K, 0, 1, 8);
		ep_add(ep, 0, LAY_NHD, &s, 1);
	}
	CHECK_EQ(group_link(&g, &link, &err), 0);
	CHECK_EQ(link_lanes(link, 0, 0, 0), 2);
	CHECK_EQ(link_lanes(link, 1, 0, 0), 2);
	kvf_link_free(link);
	group_free(&g);
}

/* Shard 0 of 2 stands on rank 0, shard 1 on ranks 1 and 2; a layer is half of a draft layer to
 * each. */
static void
test_balance_counts_shares(void)
{
	struct kvf_link *link;
	struct kvf_err err;
	struct group g;
	struct spec s;
	struct ep *ep;
	uint32_t r, l, c;

	group_init(&g, 9, 0);
	for (r = 0; r < 3; r++) {
		ep = add_sharded(&g, 0, 4, 2, r > 0, 1);
		add_latents(ep, 0, 4);
		c = ep_component(&g, ep, KVF_TOKENS, 0, 0, 8, 1, 0, 1);
		for (l = 100; l < 103; l++) {
			s = latent(l);
			ep_add(ep, c, LAY_NHD, &s, 1);
		}
	}
	ep = add_plain(&g, 1, 4);
	add_latents(ep, 0, 4);
	add_latents(ep, 100, 103);
	CHECK_EQ(group_verify(&g), 0);
	CHECK_EQ(group_link(&g, &link, &err), 0);
	/* after the target: 4 halves, 2 halves, 2 halves; so each rank has one of the draft layers
	 * to give */
	CHECK_EQ(link_lanes(link, 0, 0, 0), 4 + 1);
	CHECK_EQ(link_lanes(link, 1, 0, 0), 2 + 1);
	CHECK_EQ(link_lanes(link, 2, 0, 0), 2 + 1);
	kvf_link_free(link);
	group_free(&g);
}

/* One decode component meets sources of several shardings: each layer is settled by its own. */
static void
test_stages_shard_differently(void)
{
	static const struct {
		uint32_t size, interleave;
	} stages[] = {{4, 1}, {4, 2}, {2, 2}, {1, 1}, {4, 1}};
	struct group g;
	uint32_t i, r, d;

	group_init(&g, 50, 0);
	for (i = 0; i < LEN(stages); i++) {
		for (r = 0; r < stages[i].size; r++)
			add_latents(add_sharded(&g, 0, 4, stages[i].size, r, stages[i].interleave),
				i, i + 1);
	}
	for (d = 0; d < 4; d++)
		add_latents(add_sharded(&g, 1, 4, 4, d, 1), 0, LEN(stages));
	CHECK_EQ(group_verify(&g), 0);
	group_free(&g);
}

/* Aux comes whole from one rank: the lowest of the stage that has it; state is shared out. */
static void
test_aux_and_state(void)
{
	const struct spec aux[3] = {
		{0, KVF_KIND_AUX, 0, 0, 1, 1, 4},
		{0, KVF_KIND_AUX, 0, 0, 1, 1, 16},
		{0, KVF_KIND_AUX, 0, 0, 1, 1, 8},
	};
	const struct spec ssm[2] = {
		{0, KVF_KIND_SSM, 2, 0, 1, 1, 50},
		{1, KVF_KIND_SSM, 2, 0, 1, 1, 50},
	};
	struct kvf_link *link;
	struct kvf_err err;
	struct group g;
	struct ep *ep;
	uint32_t r, d, c;

	group_init(&g, 21, 3);
	for (r = 0; r < 4; r++) {
		ep = add_plain(&g, 0, 4);
		add_latents(ep, r / 2, r / 2 + 1);
		c = ep_component(&g, ep, KVF_STATE, 1, 2, 1, 1, 0, 1);
		ep_add(ep, c, LAY_NHD_PADDED, ssm, 2);
		if (r / 2 == 1) {
			c = ep_component(&g, ep, KVF_AUX, 0, 1, 1, 1, 0, 1);
			ep_add(ep, c, LAY_NHD, aux, 3);
		}
	}
	for (d = 0; d < 3; d++) {
		ep = group_add(&g, 1);
		c = ep_component(&g, ep, KVF_AUX, 0, 7, 1, 1, 0, 1);
		ep_add(ep, c, LAY_ROWS, aux, 3);
		c = ep_component(&g, ep, KVF_STATE, 1, 3, 1, 1, 0, 1);
		ep_add(ep, c, LAY_NHD, ssm, 2);
		c = ep_component(&g, ep, KVF_TOKENS, 0, 0, 4, 3, d, 1);
		ep_add(ep, c, LAY_NHD, (struct spec[]){latent(0), latent(1)}, 2);
	}
	CHECK_EQ(group_verify(&g), 0);
	CHECK_EQ(group_link(&g, &link, &err), 0);
	for (d = 0; d < 3; d++) {
		for (r = 0; r < 4; r++)
			CHECK_EQ(link_lanes(link, r, d, KVF_AUX), r == 2 ? 3 : 0);
		CHECK_EQ(link_lanes(link, 0, d, KVF_STATE), 1);
		CHECK_EQ(link_lanes(link, 1, d, KVF_STATE), 1);
		CHECK_EQ(link_lanes(link, 2, d, KVF_STATE), 0);
	}
	kvf_link_free(link);
	group_free(&g);
}

/* The k-th entry of a key goes with the k-th, wherever they stand: here two windows of heads of a
 * layer. */
static void
test_occurrences(void)
{
	const struct spec low = {0, KVF_KIND_K, 1, 0, 2, 8, 3},
			  high = {0, KVF_KIND_K, 1, 5, 3, 8, 3};
	const struct spec other = {1, KVF_KIND_K, 1, 0, 8, 8, 3};
	struct group g;
	struct ep *ep;
	uint32_t c;

	group_init(&g, 13, 0);
	ep = add_plain(&g, 0, 4);
	ep_add(ep, 0, LAY_NHD, &low, 1);
	ep_add(ep, 0, LAY_NHD, &other, 1);
	ep_add(ep, 0, LAY_HND, &high, 1);
	ep = add_plain(&g, 1, 4);
	ep_add(ep, 0, LAY_HND, &low, 1);
	c = ep_component(&g, ep, KVF_TOKENS, 0, 1, 2, 1, 0, 1);
	ep_add(ep, c, LAY_NHD, &high, 1);
	ep_add(ep, c, LAY_NHD, &other, 1);
	CHECK_EQ(group_verify(&g), 0);
	group_free(&g);
}

/* One lane for adjacent heads where both sides have them side by side; one per head otherwise. */
static void
test_lanes(void)
{
	static const struct {
		enum layout src, dst;
		uint32_t lanes, dense, split;
	} cases[] = {
		{LAY_NHD, LAY_NHD, 1, 1, 0},
		{LAY_NHD, LAY_NHD_PADDED, 1, 0, KVF_PLAN_SPLIT_DST},
		{LAY_NHD, LAY_HND, 4, 0, KVF_PLAN_SPLIT_DST},
		{LAY_HND, LAY_NHD, 4, 0, KVF_PLAN_SPLIT_SRC},
		{LAY_HND, LAY_HND, 4, 1, KVF_PLAN_SPLIT_SRC | KVF_PLAN_SPLIT_DST},
		{LAY_BLOCKS, LAY_BLOCKS, 4, 1, 0},
	};
	const struct kvf_map *map;
	struct kvf_link *link;
	struct kvf_err err;
	struct group g;
	struct spec s;
	uint32_t i;

	for (i = 0; i < LEN(cases); i++) {
		group_init(&g, 13, 0);
		s = heads(0, KVF_KIND_K, 0, 4, 4);
		ep_add(add_plain(&g, 0, 4), 0, cases[i].src, &s, 1);
		ep_add(add_plain(&g, 1, 8), 0, cases[i].dst, &s, 1);
		CHECK_EQ(group_verify(&g), 0);
		CHECK_EQ(group_link(&g, &link, &err), 0);
		map = kvf_link_pair(link, 0, 0)->maps;
		CHECK_EQ(map->num_lanes, cases[i].lanes);
		CHECK_EQ(map->dense, cases[i].dense);
		CHECK_EQ(map->split, cases[i].split);
		CHECK_EQ(map->row_bytes, 8);
		CHECK_EQ(map->lanes->row_bytes, 8 / cases[i].lanes);
		kvf_link_free(link);
		group_free(&g);
	}
}

/* Another decode rank cuts the heads where this one and its source have no boundary: still one
 * lane. */
static void
test_lanes_merge(void)
{
	const struct kvf_map *map;
	struct kvf_link *link;
	struct kvf_err err;
	struct group g;
	struct spec s;

	group_init(&g, 13, 0);
	s = heads(0, KVF_KIND_K, 0, 4, 4);
	ep_add(add_plain(&g, 0, 4), 0, LAY_NHD, &s, 1);
	ep_add(add_plain(&g, 1, 4), 0, LAY_NHD, &s, 1);
	s = heads(0, KVF_KIND_K, 1, 2, 4);
	ep_add(add_plain(&g, 1, 4), 0, LAY_NHD, &s, 1);
	CHECK_EQ(group_verify(&g), 0);
	CHECK_EQ(group_link(&g, &link, &err), 0);
	map = kvf_link_pair(link, 0, 0)->maps;
	CHECK_EQ(map->num_lanes, 1);
	CHECK_EQ(map->lanes->row_bytes, 8);
	map = kvf_link_pair(link, 0, 1)->maps;
	CHECK_EQ(map->num_lanes, 1);
	CHECK_EQ(map->lanes->row_bytes, 4);
	kvf_link_free(link);
	group_free(&g);
}

/* Pages of one row: the declared row stride means nothing, and runs go on from page to page. */
static void
test_one_row_pages(void)
{
	const struct spec s = latent(0);
	const struct kvf_map *map;
	struct kvf_link *link;
	struct kvf_err err;
	struct group g;
	struct ep *ep;

	group_init(&g, 9, 0);
	ep = add_plain(&g, 0, 1);
	ep_add(ep, 0, LAY_NHD, &s, 1);
	ep->entries[0][0].row_stride = 0;
	ep = add_plain(&g, 1, 1);
	ep_add(ep, 0, LAY_NHD_PADDED, &s, 1);
	ep->entries[0][0].row_stride = UINT64_MAX;
	CHECK_EQ(group_verify(&g), 0);
	CHECK_EQ(group_link(&g, &link, &err), 0);
	map = kvf_link_pair(link, 0, 0)->maps;
	CHECK_EQ(map->split, 0);
	CHECK_EQ(map->lanes->src_row_stride, 9);
	CHECK_EQ(map->lanes->dst_row_stride, 9 + 3 + 5);
	kvf_link_free(link);
	group_free(&g);
}

/* 256 and 255 shards have no common divisor: every rank exchanges with every other. */
static void
test_coprime_shardings(void)
{
	static struct kvf_component comps[2][256];
	static struct kvf_geometry geos[2][256];
	const struct kvf_geometry *list[2][256];
	struct kvf_entry entries[4];
	struct kvf_link *link;
	struct kvf_err err;
	uint32_t i, side;

	for (i = 0; i < LEN(entries); i++) {
		entries[i] = (struct kvf_entry){.offset = i * 80,
			.page_stride = 8,
			.row_bytes = 8,
			.layer = i,
			.kind = KVF_KIND_LATENT,
			.head_count = 1,
			.head_total = 1};
	}
	for (side = 0; side < 2; side++) {
		for (i = 0; i < 256; i++) {
			/* the last decode rank is a replica of the first */
			comps[side][i] = (struct kvf_component){.cls = KVF_TOKENS,
				.page_tokens = 1,
				.num_pages = 10,
				.num_entries = LEN(entries),
				.sharding = {256 - side, i % (256 - side), 1, 0},
				.entries = entries};
			geos[side][i].num_components = 1;
			geos[side][i].components = &comps[side][i];
			list[side][i] = &geos[side][i];
		}
	}
	CHECK_EQ(kvf_link_build(list[0], 256, list[1], 256, &link, &err), 0);
	CHECK_EQ(link_lanes(link, ANY, ANY, 0), 256 * 256 * 4);
	CHECK_EQ(link_lanes(link, 255, 255, 0), 4);
	kvf_link_free(link);
}

/* 64 endpoints with 1024 entries each on either side. */
static void
test_large_group(void)
{
	struct kvf_entry *entries = calloc(2 * 64 * KVF_MAX_ENTRIES, sizeof(*entries));
	static struct kvf_component comps[2][64];
	static struct kvf_geometry geos[2][64];
	const struct kvf_geometry *list[2][64];
	struct kvf_link *link = NULL;
	struct kvf_err err = {0};
	uint32_t side, r, i;

	if (entries == NULL)
		abort();
	for (side = 0; side < 2; side++) {
		for (r = 0; r < 64; r++) {
			struct kvf_entry *e = entries + (side * 64 + r) * KVF_MAX_ENTRIES;

			comps[side][r] = (struct kvf_component){.cls = KVF_TOKENS,
				.page_tokens = 4,
				.num_pages = 10,
				.num_entries = KVF_MAX_ENTRIES,
				.sharding = {1, 0, 1, 0},
				.entries = e};
			geos[side][r].num_components = 1;
			geos[side][r].components = &comps[side][r];
			list[side][r] = &geos[side][r];
			for (i = 0; i < KVF_MAX_ENTRIES; i++) {
				/* prefill TP 64 over 64 heads, decode 16 heads on every 4th rank's
				 * set */
				uint16_t count = side == 0 ? 1 : 16;

				e[i] = (struct kvf_entry){.offset = (uint64_t)i * 40 * 16 * count,
					.page_stride = 4 * 16 * count,
					.row_stride = 16 * count,
					.row_bytes = 16 * count,
					.layer = side == 0 ? i / 2 : (KVF_MAX_ENTRIES - 1 - i) / 2,
					.kind = i % 2 != side ? KVF_KIND_K : KVF_KIND_V,
					.head_first = (uint16_t)(side == 0 ? r : r % 4 * 16),
					.head_count = count,
					.head_total = 64};
			}
			CHECK_EQ(kvf_geometry_check(list[side][r], 1024 * 40 * 16 * 16, &err), 0);
		}
	}
	CHECK_EQ(kvf_link_build(list[0], 64, list[1], 64, &link, &err), 0);
	if (link != NULL) {
		CHECK_EQ(link_lanes(link, ANY, ANY, 0), 64 * 16 * 1024);
		CHECK_EQ(link_lanes(link, 17, 5, 0), 1024);
		CHECK_EQ(link_lanes(link, 17, 6, 0), 0);
		CHECK_EQ(kvf_link_pair(link, 17, 6)->num_maps, 0);
	}
	kvf_link_free(link);
	free(entries);
}

static const struct suite_case cases[] = {
	{"pipeline stages of 7 and 8 layers", test_pipeline_stages},
	{"draft layer in pages of P*N tokens", test_draft},
	{"GQA heads on more ranks than heads, to one", test_replicated_heads},
	{"GQA heads, one to more ranks than heads", test_one_to_replicated_heads},
	{"hybrid: 7 of 27 layers", test_hybrid_layers},
	{"sharding pairs", test_sharding_pairs},
	{"two MLA replicas share 61 layers", test_replicas_alternate},
	{"balance counts what is wanted", test_balance_counts_wanted},
	{"balance counts shares of positions", test_balance_counts_shares},
	{"stages that shard differently", test_stages_shard_differently},
	{"aux from one rank, state shared out", test_aux_and_state},
	{"occurrences", test_occurrences},
	{"missing occurrences are refused", test_missing_occurrence},
	{"lanes of dense and strided heads", test_lanes},
	{"lanes of one owner merge", test_lanes_merge},
	{"pages of one row", test_one_row_pages},
	{"mismatches are refused", test_mismatches},
	{"missing coverage is refused", test_coverage},
	{"source shardings that differ are refused", test_source_shardings_differ},
	{"bad groups are refused", test_bad_groups},
	{"256 to 255 shards", test_coprime_shardings},
	{"too many lanes", test_too_many_lanes},
	{"64 endpoints of 1024 entries", test_large_group},
	{"sharding intersection against brute force", test_random_intersections},
	{"random groups byte by byte", test_random_groups},
	{"random groups with holes", test_random_holes},
};

SUITE_MAIN("link", cases)
