/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the bytes lie: splits, page sizes, shardings, drafts, state, heads. Every byte is checked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"

/* Any page-aligned split gives the bytes of the one-shot plan. */
static void
test_any_split(void)
{
	struct cluster_shape s = cluster_small(2, 3, 3);
	struct kvf_err err = {0};
	struct cluster c;
	uint64_t room, total, at;
	uint32_t i, k;

	cluster_open(&c, NULL, &s);
	for (room = 1; room <= 25; room++) {
		total = suite_range(&c.rand, 1, 500);
		cluster_recv_all(&c, room, 0, total, (uint32_t)room % 16);
		for (i = 0; i < 2; i++) /* each sender splits as it likes */
			for (at = 0;;) {
				uint64_t n = 16 * suite_range(&c.rand, 0, 12);

				if (at + n > total || suite_range(&c.rand, 0, 5) == 0)
					n = total - at;
				CHECK_EQ(cluster_send(&c, i, room, at, n, total, 0, &err), 0);
				at += n;
				if (at == total)
					break;
				for (k = 0; k < 3; k++)
					cluster_poll(&c);
			}
		cluster_finish(&c, room, KVF_SUCCESS);
	}
	cluster_close(&c);
}

static void
some_rooms(const struct cluster_shape *s, uint64_t virtual_page, uint32_t rooms)
{
	struct cluster c;
	uint64_t room, total, prefix;

	cluster_open(&c, NULL, s);
	for (room = 1; room <= rooms; room++) {
		total = suite_range(&c.rand, 0, 400);
		prefix = suite_range(&c.rand, 0, total / virtual_page) * virtual_page;
		if (suite_range(&c.rand, 0, 2) == 0)
			prefix = 0;
		cluster_recv_all(&c, room, prefix, total, (uint32_t)room % 16);
		cluster_send_all(&c, room, suite_range(&c.rand, 0, 1) * prefix, total,
			suite_range(&c.rand, 1, 4) * 96, (uint32_t)(room + 5) % 16);
		cluster_finish(&c, room, KVF_SUCCESS);
	}
	cluster_close(&c);
}

static void
test_draft(void)
{
	struct cluster_shape s = cluster_small(2, 4, 3);

	s.prefill.draft_layers = s.decode.draft_layers = 2;
	some_rooms(&s, 16 * 4, 12);
}

static void
test_state_then_aux(void)
{
	struct cluster_shape s = cluster_small(2, 3, 2);

	s.prefill.state_bytes = s.decode.state_bytes = 70000; /* more than one unit */
	some_rooms(&s, 16 * 3, 8);
	s.prefill.aux_bytes = s.decode.aux_bytes = 0;
	some_rooms(&s, 16 * 3, 4);
	s.prefill.state_bytes = s.decode.state_bytes = 0;
	some_rooms(&s, 16 * 3, 4);
}

static void
test_page_sizes(void)
{
	struct cluster_shape s = cluster_small(1, 2, 3);

	s.decode.page_tokens = 48;
	some_rooms(&s, 48 * 2, 10);
	s.decode.page_tokens = 16;
	s.prefill.page_tokens = 48;
	some_rooms(&s, 16 * 2, 10);
	s.prefill.page_tokens = 1;
	s.prefill.num_pages = 800;
	s.decode.page_tokens = 64;
	some_rooms(&s, 64 * 2, 6);
}

static void
test_interleave(void)
{
	struct cluster_shape s = cluster_small(1, 4, 3);

	s.interleave = 16;
	some_rooms(&s, 16 * 4, 8);
	s.interleave = 5; /* blocks that straddle pages */
	some_rooms(&s, 16 * 4, 8);
}

static void
test_dcp_to_dcp(void)
{
	struct cluster_shape s = cluster_small(2, 4, 3);

	s.prefill_dcp = 2;
	some_rooms(&s, 16 * 4, 10);
	s.prefill_interleave = 16;
	some_rooms(&s, 16 * 4, 8);
	s.np = 6; /* every DCP rank three times */
	s.prefill_dcp = 3;
	s.prefill_interleave = 4;
	s.interleave = 16;
	some_rooms(&s, 16 * 4, 8);
	s.np = 4;
	s.prefill_dcp = 4;
	s.nd = 1;
	some_rooms(&s, 16, 8);
}

/*
 * Random declarations: any mix of tensor, context and pipeline parallelism on both sides, and pages
 * in any order of tokens, heads and padding.
 */
struct model {
	uint32_t layers, heads, kb, vb; /* bytes of a K and a V head */
	uint32_t twice;                 /* this layer stands there twice (a draft) */
};

struct ranks {
	uint32_t tp, dcp, pp, interleave, page;
};

static void
lay_out_entry(struct cluster *c, struct kvf_entry *e, const struct model *m, uint32_t layer,
	uint32_t kind, uint32_t first, uint32_t count, uint32_t page, uint32_t pages, uint64_t *at)
{
	uint32_t hb = kind == KVF_KIND_K ? m->kb : m->vb;
	uint32_t style = (uint32_t)suite_range(&c->rand, 0, 3);

	*e = (struct kvf_entry){.offset = *at,
		.row_bytes = hb * count,
		.layer = layer,
		.kind = (uint16_t)kind,
		.dtype = 3,
		.head_first = (uint16_t)first,
		.head_count = (uint16_t)count,
		.head_total = (uint16_t)m->heads};
	e->row_stride = e->row_bytes;
	e->page_stride = e->row_stride * page;
	if (style == 1) { /* head-major pages */
		e->row_stride = hb;
		e->head_stride = (uint64_t)hb * page;
		e->page_stride = e->head_stride * count;
	} else if (style == 2) { /* padded rows */
		e->row_stride += 32;
		e->page_stride = e->row_stride * page;
	} else if (style == 3) { /* padded pages */
		e->page_stride += 48;
	}
	*at += e->page_stride * pages + 64;
}

static void
declare(struct cluster *c, struct peer *p, const struct model *m, const struct ranks *r,
	uint32_t rank, uint32_t pages)
{
	uint32_t tp = rank % r->tp, dcp = rank / r->tp % r->dcp, pp = rank / (r->tp * r->dcp);
	uint32_t count = m->heads > r->tp ? m->heads / r->tp : 1;
	uint32_t first = m->heads > r->tp ? tp * count : tp * m->heads / r->tp;
	struct kvf_entry e[64];
	struct kvf_component comps[2] = {{0}};
	struct kvf_geometry geo = {.num_components = 2, .components = comps};
	uint32_t i, n = 0;
	uint64_t at = 64;

	/* V first or K first, layers up or down: pairs are found by layer and kind. */
	for (i = 0; i < 2 * (m->layers + 1); i++) {
		uint32_t k = suite_range(&c->rand, 0, 1) == 0 && n == 0 ? 1 : 0, layer = i / 2;

		layer = layer == m->layers ? m->twice : layer;
		if (layer % r->pp != pp)
			continue;
		lay_out_entry(c, &e[n++], m, layer, (i + k) % 2 == 0 ? KVF_KIND_K : KVF_KIND_V,
			first, count, r->page, pages, &at);
		if (k == 1) { /* both of the first layer, in the other order */
			lay_out_entry(c, &e[n++], m, layer, i % 2 == 0 ? KVF_KIND_K : KVF_KIND_V,
				first, count, r->page, pages, &at);
			i++;
		}
	}
	comps[0].cls = KVF_TOKENS;
	comps[0].list = PEER_TOKENS;
	comps[0].page_tokens = r->page;
	comps[0].num_pages = pages;
	comps[0].num_entries = n;
	comps[0].entries = e;
	comps[0].sharding.size = r->dcp;
	comps[0].sharding.rank = dcp;
	comps[0].sharding.interleave = r->interleave;
	comps[1].cls = KVF_AUX;
	comps[1].list = PEER_AUX;
	comps[1].page_tokens = 1;
	comps[1].num_pages = 16;
	comps[1].num_entries = 1;
	comps[1].sharding.size = comps[1].sharding.interleave = 1;
	e[n] = (struct kvf_entry){.offset = at,
		.page_stride = 100,
		.row_stride = 100,
		.row_bytes = 100,
		.kind = KVF_KIND_AUX,
		.head_count = 1,
		.head_total = 1};
	comps[1].entries = &e[n];
	peer_declare(p, &geo, at + 16 * 100);
}

static uint32_t
pick(struct cluster *c, const uint32_t *from, uint32_t n)
{
	return from[suite_range(&c->rand, 0, n - 1)];
}

static void
random_ranks(struct cluster *c, struct ranks *r, uint32_t max)
{
	static const uint32_t sizes[] = {1, 2, 4}, pages[] = {1, 4, 16, 24}, inter[] = {1, 1, 3, 8};

	do {
		r->tp = pick(c, sizes, 3);
		r->dcp = pick(c, sizes, 3);
		r->pp = pick(c, sizes, 2);
	} while (r->tp * r->dcp * r->pp > max);
	r->page = pick(c, pages, 4);
	r->interleave = pick(c, inter, 4);
}

static void
test_random_declarations(void)
{
	static const uint32_t heads[] = {1, 2, 4, 8};
	uint64_t rand = suite_seed() | 1, room;
	struct kvf_engine_config cfg = {.lcores = 2};
	struct rig *rig = rig_start(&cfg);
	uint32_t round, i;

	for (round = 0; round < 24; round++) {
		struct cluster_shape s = {.rig = rig};
		struct ranks p, d;
		struct cluster c;
		struct model m;

		memset(&c, 0, sizeof(c));
		c.rand = suite_rand(&rand) | 1;
		m = (struct model){.layers = (uint32_t)suite_range(&c.rand, 2, 5),
			.heads = pick(&c, heads, 4),
			.kb = 8 * (uint32_t)suite_range(&c.rand, 1, 16),
			.vb = 4 * (uint32_t)suite_range(&c.rand, 1, 16)};
		m.twice = (uint32_t)suite_range(&c.rand, 0, m.layers - 1);
		random_ranks(&c, &p, 8);
		random_ranks(&c, &d, 8);
		s.np = p.tp * p.dcp * p.pp;
		s.nd = d.tp * d.dcp * d.pp;
		for (i = 0; i < s.np; i++)
			declare(&c, &c.p[i], &m, &p, i, 900 / p.page + 60);
		for (i = 0; i < s.nd; i++)
			declare(&c, &c.d[i], &m, &d, i, 900 / d.page + 60);
		cluster_open_declared(&c, NULL, &s);
		for (room = 1; room <= 3; room++) {
			uint64_t total = suite_range(&c.rand, 0, 250),
				 virt = (uint64_t)d.page * d.dcp;
			uint64_t prefix = suite_range(&c.rand, 0, total / virt) * virt;

			cluster_recv_all(&c, room, prefix, total, (uint32_t)room);
			cluster_send_all(&c, room, 0, total,
				(uint64_t)p.page * p.dcp * p.interleave *
					suite_range(&c.rand, 1, 8),
				(uint32_t)room + 3);
			cluster_finish(&c, room, KVF_SUCCESS);
		}
		if (CU_get_number_of_failures() != 0) {
			printf("        round=%u prefill tp=%u dcp=%u pp=%u page=%u interleave=%u, "
			       "decode "
			       "%u %u %u %u %u, heads=%u layers=%u\n",
				round, p.tp, p.dcp, p.pp, p.page, p.interleave, d.tp, d.dcp, d.pp,
				d.page, d.interleave, m.heads, m.layers);
			round = 1000;
		}
		cluster_close(&c);
	}
	CHECK_EQ(rig_stop(rig), 0);
}

static const struct suite_case cases[] = {
	{"any split into chunks", test_any_split},
	{"a draft in pages of P * N tokens", test_draft},
	{"state, then aux", test_state_then_aux},
	{"page sizes that differ", test_page_sizes},
	{"interleave of a page, and of none", test_interleave},
	{"DCP on both sides", test_dcp_to_dcp},
	{"random declarations", test_random_declarations},
};

SUITE_MAIN("layouts", cases)
