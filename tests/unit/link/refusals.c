/* SPDX-License-Identifier: BSD-3-Clause */
/* Each refusal, with its sentence. */
#include "common/suite.h"
#include "cases.h"
#include "model.h"

/* The code and sentence of a link that must be refused. */
static void
refused(const struct group *g, int code, const char *const *parts, uint32_t n)
{
	struct kvf_link *link = NULL;
	struct kvf_err err = {0};
	uint32_t i;

	CHECK_EQ(group_link(g, &link, &err), code);
	CHECK(link == NULL);
	CHECK_EQ(err.code, code);
	for (i = 0; i < n; i++)
		CHECK_STR_HAS(err.text, parts[i]);
	kvf_link_free(link);
	CHECK_EQ(group_link(g, &link, NULL), code);
}

#define REFUSED(g, code, ...)                                                                      \
	do {                                                                                       \
		static const char *const parts[] = {__VA_ARGS__};                                  \
		refused(g, code, parts, LEN(parts));                                               \
	} while (0)

/* One window of heads there, two here: the second has no source. */
void
test_missing_occurrence(void)
{
	const struct spec low = {0, KVF_KIND_K, 1, 0, 2, 8, 3},
			  high = {0, KVF_KIND_K, 1, 5, 3, 8, 3};
	struct group g;
	struct ep *ep;

	group_init(&g, 13, 0);
	ep = add_plain(&g, 0, 4);
	ep_add(ep, 0, LAY_NHD, &low, 1);
	ep = add_plain(&g, 1, 4);
	ep_add(ep, 0, LAY_NHD, &low, 1);
	ep_add(ep, 0, LAY_NHD, &high, 1);
	REFUSED(&g, KVF_E_COVERAGE, "layer=0", "kind=2", "occurrence=1", "heads=[5,8)");
	group_free(&g);
}

/* A prefill rank with K heads [0, 4) of 8 and a decode rank with [2, 6); then one number differs.
 */
static struct kvf_entry *
two_ranks(struct group *g, uint32_t cls, uint32_t decode_page)
{
	struct spec s = {5, KVF_KIND_K, 7, 0, 6, 8, 4};
	struct ep *ep;

	group_init(g, 13, 4);
	ep = group_add(g, 0);
	ep_component(g, ep, cls, 0, 0, 2, 1, 0, 1);
	ep_add(ep, 0, LAY_NHD, &s, 1);
	ep = group_add(g, 1);
	ep_component(g, ep, cls, 0, 0, decode_page, 1, 0, 1);
	s.head_first = 2;
	s.head_count = 4;
	ep_add(ep, 0, LAY_NHD, &s, 1);
	return &ep->entries[0][0];
}

void
test_mismatches(void)
{
	struct kvf_entry *e;
	struct group g;

	e = two_ranks(&g, KVF_TOKENS, 4);
	CHECK_EQ(group_verify(&g), 0);
	e->dtype = 9;
	REFUSED(&g, KVF_E_MISMATCH, "dtype", "layer=5", "kind=2", "prefill=7", "decode=9");
	e->dtype = 7;
	e->row_bytes = 12; /* 3 a head */
	REFUSED(&g, KVF_E_MISMATCH, "row bytes", "entry=0", "layer=5", "src=4", "dst=3");
	e->row_bytes = 16;
	e->head_total = 6;
	REFUSED(&g, KVF_E_MISMATCH, "head_total", "entry=0", "layer=5", "src=8", "dst=6");
	e->head_total = 8;
	CHECK_EQ(group_verify(&g), 0);
	group_free(&g);

	two_ranks(&g, KVF_STATE, 2);
	CHECK_EQ(group_verify(&g), 0);
	group_free(&g);
	two_ranks(&g, KVF_STATE, 4);
	CHECK_EQ(group_verify(&g), 0);
	g.decode[0]->comps[0].rule = KVF_STATE_RING;
	REFUSED(&g, KVF_E_MISMATCH, "rules of state", "entry=0", "layer=5", "prefill=0",
		"decode=3");
	group_free(&g);

	/* The odd one may also be the second of two prefill ranks. */
	group_init(&g, 13, 0);
	add_latents(add_plain(&g, 0, 4), 0, 2);
	add_latents(add_plain(&g, 0, 4), 0, 2);
	add_latents(add_plain(&g, 1, 4), 0, 2);
	g.prefill[1]->entries[0][1].dtype = 2;
	REFUSED(&g, KVF_E_MISMATCH, "prefill rank=1", "layer=1", "prefill=2", "decode=1");
	group_free(&g);
}

void
test_coverage(void)
{
	struct kvf_entry *e;
	struct group g;
	struct ep *ep;
	uint32_t r;

	/* heads */
	e = two_ranks(&g, KVF_TOKENS, 4);
	e->head_first = 4;
	REFUSED(&g, KVF_E_COVERAGE, "layer=5", "kind=2", "heads=[6,8)", "decode rank=0");
	group_free(&g);

	/* a layer */
	group_init(&g, 9, 0);
	add_latents(add_plain(&g, 0, 4), 0, 7);
	add_latents(add_plain(&g, 1, 4), 0, 8);
	REFUSED(&g, KVF_E_COVERAGE, "layer=7", "kind=1", "heads=[0,1)", "entry=7");
	group_free(&g);

	/* positions: rank 2 of 4 is not there; decode rank 0 of 2 needs it, rank 1 does not */
	for (r = 0; r < 2; r++) {
		group_init(&g, 21, 0);
		add_latents(add_sharded(&g, 0, 4, 4, 0, 1), 0, 1);
		add_latents(add_sharded(&g, 0, 4, 4, 1, 1), 0, 1);
		add_latents(add_sharded(&g, 0, 4, 4, 3, 1), 0, 1);
		add_latents(add_sharded(&g, 1, 4, 2, r, 1), 0, 1);
		if (r == 0)
			REFUSED(&g, KVF_E_COVERAGE, "layer=0", "kind=1", "positions",
				"rank 2 mod 4");
		else
			CHECK_EQ(group_verify(&g), 0);
		group_free(&g);
	}

	/* positions of some heads only */
	group_init(&g, 21, 0);
	add_kv(add_sharded(&g, 0, 4, 2, 0, 1), LAY_NHD, 3, 0, 2, 2);
	add_kv(add_sharded(&g, 0, 4, 2, 1, 1), LAY_NHD, 3, 0, 1, 2);
	add_kv(add_plain(&g, 1, 4), LAY_NHD, 3, 0, 2, 2);
	REFUSED(&g, KVF_E_COVERAGE, "layer=3", "heads=[1,2)", "rank 1 mod 2");
	group_free(&g);

	/* a state of another tag is another state */
	group_init(&g, 9, 3);
	for (r = 0; r < 2; r++) {
		ep = group_add(&g, r == 1);
		ep_component(&g, ep, KVF_STATE, 4 + r, 0, 1, 1, 0, 1);
		add_latents(ep, 0, 1);
	}
	REFUSED(&g, KVF_E_COVERAGE, "class=2", "tag=5", "layer=0");
	group_free(&g);
}

void
test_source_shardings_differ(void)
{
	struct group g;

	group_init(&g, 21, 0);
	add_latents(add_sharded(&g, 0, 4, 2, 0, 1), 0, 1);
	add_latents(add_sharded(&g, 0, 4, 4, 1, 1), 0, 1);
	add_latents(add_plain(&g, 1, 4), 0, 1);
	REFUSED(&g, KVF_E_SHARDING, "layer=0", "rank=0 has size=2 interleave=1",
		"rank=1 has size=4 interleave=1");
	group_free(&g);

	group_init(&g, 21, 0);
	add_latents(add_sharded(&g, 0, 4, 2, 0, 1), 0, 1);
	add_latents(add_sharded(&g, 0, 4, 2, 1, 4), 0, 1);
	add_latents(add_plain(&g, 1, 4), 0, 1);
	REFUSED(&g, KVF_E_SHARDING, "interleave=1", "interleave=4");
	group_free(&g);
}

void
test_bad_groups(void)
{
	const struct kvf_geometry *geos[1] = {NULL};
	struct kvf_link *link = NULL;
	struct kvf_err err;
	struct group g;

	group_init(&g, 9, 0);
	add_latents(add_plain(&g, 1, 4), 0, 1);
	REFUSED(&g, KVF_E_INVAL, "prefill", "ranks=0", "minimum=1");
	CHECK_EQ(kvf_link_build(geos, 1, geos, 1, &link, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "prefill rank=0 geometry=NULL");
	geos[0] = &g.decode[0]->geo;
	CHECK_EQ(kvf_link_build(geos, 1, geos, 1025, &link, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "ranks=1025");
	CHECK_STR_HAS(err.text, "limit=1024");
	CHECK(link == NULL);
	kvf_link_free(NULL);
	group_free(&g);
}

/* 65535 heads, token-major to head-major: 1024 entries are 67,107,840 lanes, a second rank is too
 * much. */
void
test_too_many_lanes(void)
{
	static struct kvf_entry entries[2][KVF_MAX_ENTRIES];
	struct kvf_component comps[2];
	struct kvf_geometry geos[2];
	const struct kvf_geometry *src = &geos[0], *dst[2] = {&geos[1], &geos[1]};
	struct kvf_link *link;
	struct kvf_err err;
	uint32_t i, side;

	for (side = 0; side < 2; side++) {
		for (i = 0; i < KVF_MAX_ENTRIES; i++) {
			entries[side][i] = (struct kvf_entry){.offset = i * 131070ull,
				.page_stride = 131070,
				.row_stride = side == 0 ? 65535 : 1,
				.head_stride = side == 0 ? 1 : 2,
				.row_bytes = 65535,
				.layer = i,
				.kind = KVF_KIND_K,
				.head_count = 65535,
				.head_total = 65535};
		}
		comps[side] = (struct kvf_component){.cls = KVF_TOKENS,
			.page_tokens = 2,
			.num_pages = 1,
			.num_entries = KVF_MAX_ENTRIES,
			.sharding = {1, 0, 1, 0},
			.entries = entries[side]};
		geos[side] = (struct kvf_geometry){1, 0, &comps[side]};
		CHECK_EQ(kvf_geometry_check(&geos[side], 1024 * 131070ull, &err), 0);
	}
	CHECK_EQ(kvf_link_build(&src, 1, dst, 2, &link, &err), KVF_E_QUOTA);
	CHECK_STR_HAS(err.text, "limit=67108864");
	CHECK(link == NULL);
}
