/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/suite.h"
#include "cases.h"
#include "model.h"

#define PICK(rand, a) ((a)[suite_range((rand), 0, sizeof(a) / sizeof((a)[0]) - 1)])

static uint64_t
lcm(uint64_t a, uint64_t b)
{
	uint64_t x = a;

	while (x % b != 0)
		x += a;
	return x;
}

static int
meet(const struct kvf_sharding *a, const struct kvf_sharding *b, uint64_t period)
{
	uint64_t p;

	for (p = 0; p < period; p++) {
		if (p / a->interleave % a->size == a->rank &&
			p / b->interleave % b->size == b->rank)
			return 1;
	}
	return 0;
}

void
test_random_intersections(void)
{
	struct kvf_sharding a = {.size = 1}, b = {.size = 1};
	uint64_t rand = suite_seed(), period;
	uint32_t yes = 0, no = 0, i, wrong = 0;

	for (i = 0; i < 4000; i++) {
		a.size = (uint32_t)suite_range(&rand, 1, 12);
		b.size = (uint32_t)suite_range(&rand, 1, 12);
		a.interleave = (uint32_t)suite_range(&rand, 1, 9);
		b.interleave = (uint32_t)suite_range(&rand, 1, 9);
		if (i % 2 == 0) {
			/* common factors: most pairs of ranks have nothing for each other */
			a.size = 4u << suite_range(&rand, 0, 2);
			b.size = a.size * (uint32_t)suite_range(&rand, 1, 3);
			b.interleave = a.interleave = 1u << suite_range(&rand, 0, 3);
		}
		a.rank = (uint32_t)suite_range(&rand, 0, a.size - 1);
		b.rank = (uint32_t)suite_range(&rand, 0, b.size - 1);
		period = lcm(a.size * a.interleave, b.size * b.interleave);
		if (meet(&a, &b, period)) {
			yes++;
			wrong += !kvf_sharding_intersects(&a, &b);
		} else {
			no++;
			wrong += !!kvf_sharding_intersects(&a, &b);
		}
	}
	CHECK_EQ(wrong, 0);
	CHECK(yes > 500);
	CHECK(no > 500);

	/* The limits: periods of 2^41 and nearly that. */
	a = (struct kvf_sharding){1024, 1023, 1u << 31, 0};
	b = (struct kvf_sharding){1024, 0, 1u << 31, 0};
	CHECK(!kvf_sharding_intersects(&a, &b));
	CHECK(kvf_sharding_intersects(&a, &a));
	b = (struct kvf_sharding){1024, 0, (1u << 31) - 1, 0};
	CHECK(kvf_sharding_intersects(&a, &b));
	b = (struct kvf_sharding){2, 0, 1u << 30, 0};
	CHECK(kvf_sharding_intersects(&a, &b));
	b = (struct kvf_sharding){512, 511, 1u << 31, 0};
	CHECK(kvf_sharding_intersects(&a, &b));
	b.rank = 510;
	CHECK(!kvf_sharding_intersects(&a, &b));
}

/* The model that both groups of a run serve. */
struct world {
	uint32_t layers;
	uint32_t kinds[8]; /* bit 0: K and V, 1: latent, 2: planar index keys, 3: SSM and conv state
			    */
	uint16_t heads;
	uint16_t bytes[10]; /* of a head, by kind */
	int draft;
	uint32_t aux;
};

/* How one group shards it. */
struct shape {
	uint32_t stages;
	uint32_t cuts[6]; /* heads: rank i holds [cuts[i], cuts[i + 1]) */
	uint32_t num_cuts;
	uint32_t overlap; /* each rank also holds that many heads of the next */
	uint32_t size;
	uint32_t interleave;
	uint32_t replicas;
	uint32_t page_tokens;
};

static struct spec
buffer(const struct world *w, uint32_t layer, uint16_t kind, uint32_t first, uint32_t end,
	uint32_t total)
{
	struct spec s = {layer, kind, (uint16_t)(10 + kind), (uint16_t)first,
		(uint16_t)(end - first), (uint16_t)total, w->bytes[kind]};

	return s;
}

static void
shuffle(uint64_t *rand, uint32_t *list, uint32_t n)
{
	uint32_t i, j, t;

	for (i = n; i > 1; i--) {
		j = (uint32_t)suite_range(rand, 0, i - 1);
		t = list[i - 1];
		list[i - 1] = list[j];
		list[j] = t;
	}
}

static void
add_tokens(struct group *g, struct ep *ep, const struct world *w, const struct shape *sh,
	uint32_t stage, uint32_t shard, uint32_t first, uint32_t end)
{
	enum layout layout = (enum layout)suite_range(&g->rand, 0, LAY_COUNT - 1);
	uint32_t order[8], i, l, c, c_index, n, list = (uint32_t)suite_range(&g->rand, 0, 2);
	int any = 0;
	struct spec s[2];

	for (i = 0; i < w->layers; i++)
		order[i] = i;
	shuffle(&g->rand, order, w->layers);
	for (i = 0; i < w->layers; i++)
		any |= order[i] % sh->stages == stage && (w->kinds[order[i]] & 3) != 0;
	c = c_index = UINT32_MAX;
	if (any)
		c = ep_component(g, ep, KVF_TOKENS, 0, list, sh->page_tokens, sh->size, shard,
			sh->interleave);
	for (i = 0; i < w->layers; i++) {
		l = order[i];
		if (l % sh->stages != stage)
			continue;
		n = 0;
		if (w->kinds[l] & 1) {
			s[n++] = buffer(w, l, KVF_KIND_K, first, end, w->heads);
			s[n++] = buffer(w, l, KVF_KIND_V, first, end, w->heads);
		} else if (w->kinds[l] & 2) {
			s[n++] = buffer(w, l, KVF_KIND_LATENT, 0, 1, 1);
		}
		if (n > 0)
			ep_add(ep, c, layout, s, n);
		if ((w->kinds[l] & 4) == 0)
			continue;
		if (c_index == UINT32_MAX)
			c_index = ep_component(g, ep, KVF_TOKENS, 0, list, sh->page_tokens,
				sh->size, shard, sh->interleave);
		s[0] = buffer(w, l, KVF_KIND_INDEX_K, 0, 1, 1);
		s[1] = buffer(w, l, KVF_KIND_INDEX_SCALE, 0, 1, 1);
		ep_add(ep, c_index, LAY_PLANES, s, 2);
	}
	if (w->draft && stage == sh->stages - 1) {
		s[0] = buffer(w, 100, KVF_KIND_K, first, end, w->heads);
		if (sh->size > 1 || c == UINT32_MAX || suite_range(&g->rand, 0, 1) == 0)
			c = ep_component(
				g, ep, KVF_TOKENS, 0, 3, sh->page_tokens * sh->size, 1, 0, 1);
		ep_add(ep, c, LAY_NHD, s, 1);
	}
}

static void
add_state(struct group *g, struct ep *ep, const struct world *w, const struct shape *sh,
	uint32_t stage, uint32_t first, uint32_t end)
{
	enum layout layout = (enum layout)suite_range(&g->rand, 0, LAY_BLOCKS);
	uint32_t c = UINT32_MAX, l, i;
	struct spec s[2];

	for (l = 0; l < w->layers; l++) {
		if (l % sh->stages != stage || (w->kinds[l] & 8) == 0)
			continue;
		if (c == UINT32_MAX)
			c = ep_component(g, ep, KVF_STATE, 5, 4, 2, 1, 0, 1);
		s[0] = buffer(w, l, KVF_KIND_SSM, first, end, w->heads);
		s[1] = buffer(w, l, KVF_KIND_CONV, first, end, w->heads);
		ep_add(ep, c, layout, s, 2);
	}
	if (w->aux == 0 || stage != sh->stages - 1)
		return;
	c = ep_component(g, ep, KVF_AUX, 0, 5, 1, 1, 0, 1);
	for (i = 0; i < w->aux; i++) {
		s[0] = (struct spec){0, KVF_KIND_AUX, 0, 0, 1, 1, 3 * i + 1};
		ep_add(ep, c, LAY_NHD, s, 1);
	}
}

static void
add_side(struct group *g, const struct world *w, const struct shape *sh, int decode)
{
	uint32_t ranks[GROUP_MAX], total = sh->stages * sh->num_cuts * sh->size * sh->replicas, i;

	for (i = 0; i < total; i++)
		ranks[i] = i;
	shuffle(&g->rand, ranks, total);
	for (i = 0; i < total; i++) {
		uint32_t r = ranks[i], stage, cut, shard, first, end;
		struct ep *ep = group_add(g, decode);

		stage = r % sh->stages;
		r /= sh->stages;
		cut = r % sh->num_cuts;
		r /= sh->num_cuts;
		shard = r % sh->size;
		first = sh->cuts[cut];
		end = sh->cuts[cut + 1] + sh->overlap;
		if (end > w->heads)
			end = w->heads;
		add_tokens(g, ep, w, sh, stage, shard, first, end);
		add_state(g, ep, w, sh, stage, first, end);
		if (ep->geo.num_components == 0) {
			/* a rank that holds nothing of use to anybody */
			struct spec s = buffer(w, 999, decode ? KVF_KIND_AUX : KVF_KIND_K, 0, 1, 1);

			if (decode) {
				free(ep);
				g->num_decode--;
				continue;
			}
			ep_component(g, ep, KVF_TOKENS, 0, 0, 1, 1, 0, 1);
			ep_add(ep, 0, LAY_NHD, &s, 1);
		}
	}
}

static struct shape
random_shape(uint64_t *rand, uint32_t heads)
{
	static const uint32_t sizes[] = {1, 1, 1, 2, 3, 4, 6}, leaves[] = {1, 1, 2, 4};
	static const uint32_t pages[] = {1, 2, 3, 4, 8};
	struct shape sh = {0};
	uint32_t at = 0;

	sh.stages = (uint32_t)suite_range(rand, 1, 3);
	sh.size = PICK(rand, sizes);
	sh.interleave = sh.size == 1 ? 1 : PICK(rand, leaves);
	sh.replicas = sh.size * sh.stages > 6 ? 1 : (uint32_t)suite_range(rand, 1, 2);
	sh.page_tokens = PICK(rand, pages);
	sh.overlap = suite_range(rand, 0, 3) == 0;
	while (at < heads && sh.num_cuts < 3) {
		sh.cuts[sh.num_cuts++] = at;
		at += (uint32_t)suite_range(rand, 1, heads - at);
	}
	sh.cuts[sh.num_cuts] = heads;
	return sh;
}

static void
random_group(struct group *g, uint64_t *rand)
{
	static const uint16_t heads[] = {1, 2, 3, 4, 6, 8};
	struct shape src, dst;
	struct world w = {0};
	uint32_t i;

	w.layers = (uint32_t)suite_range(rand, 1, 5);
	w.heads = PICK(rand, heads);
	for (i = 0; i < w.layers; i++)
		w.kinds[i] = (uint32_t)suite_range(rand, 0, 15);
	for (i = 0; i < sizeof(w.bytes) / sizeof(w.bytes[0]); i++)
		w.bytes[i] = (uint16_t)suite_range(rand, 1, 5);
	w.draft = (int)suite_range(rand, 0, 1);
	w.aux = (uint32_t)suite_range(rand, 0, 3);
	w.kinds[0] |= 1;
	src = random_shape(rand, w.heads);
	dst = random_shape(rand, w.heads);
	/* every pattern of owners occurs, and the end is ragged */
	group_init(g,
		(uint32_t)(lcm(src.size * src.interleave, dst.size * dst.interleave) +
			   suite_range(rand, 0, 9)),
		2 * (uint32_t)suite_range(rand, 1, 3));
	g->rand = suite_rand(rand);
	add_side(g, &w, &src, 0);
	add_side(g, &w, &dst, 1);
}

void
test_random_groups(void)
{
	uint64_t rand = suite_seed();
	struct group g;
	uint32_t i;

	for (i = 0; i < 800; i++) {
		random_group(&g, &rand);
		if (!CHECK_EQ(group_verify(&g), 0))
			printf("    group %u of the seed\n", i);
		group_free(&g);
	}
}

/* Takes a prefill rank away, or one entry, or the upper half of its heads. */
static void
make_hole(struct group *g, uint64_t *rand)
{
	uint32_t rank = (uint32_t)suite_range(rand, 0, g->num_prefill - 1), list;
	struct ep *ep = g->prefill[rank];
	struct kvf_component *comp = &ep->comps[suite_range(rand, 0, ep->geo.num_components - 1)];
	struct kvf_entry *e = ep->entries[comp - ep->comps];
	uint32_t i = (uint32_t)suite_range(rand, 0, comp->num_entries - 1);

	if (suite_range(rand, 0, 1) == 0 && g->num_prefill > 1) {
		for (list = 0; list < KVF_MAX_LISTS; list++)
			free(ep->pages[list]);
		free(ep);
		memmove(&g->prefill[rank], &g->prefill[rank + 1],
			(--g->num_prefill - rank) * sizeof(g->prefill[0]));
	} else if (comp->cls != KVF_AUX && e[i].head_count % 2 == 0) {
		e[i].row_bytes /= 2;
		e[i].head_count /= 2;
	} else {
		/* the last of its key: the others keep their occurrence */
		if (comp->cls == KVF_AUX)
			i = comp->num_entries - 1;
		if (comp->num_entries > 1)
			memmove(&e[i], &e[i + 1], (--comp->num_entries - i) * sizeof(*e));
	}
}

void
test_random_holes(void)
{
	uint32_t covered = 0, holes = 0, i, n;
	uint64_t rand = suite_seed();
	struct kvf_link *link;
	struct kvf_err err;
	struct group g;

	for (i = 0; i < 800; i++) {
		random_group(&g, &rand);
		for (n = (uint32_t)suite_range(&rand, 1, 4); n > 0; n--)
			make_hole(&g, &rand);
		if (group_covered(&g)) {
			covered++;
			CHECK_EQ(group_verify(&g), 0);
		} else {
			holes++;
			if (!CHECK_EQ(group_link(&g, &link, &err), KVF_E_COVERAGE))
				printf("    group %u of the seed\n", i);
			CHECK_STR_HAS(err.text, "layer=");
			CHECK_STR_HAS(err.text, "kind=");
			CHECK_STR_HAS(err.text, "heads=[");
			kvf_link_free(link);
		}
		group_free(&g);
	}
	CHECK(covered > 20);
	CHECK(holes > 20);
}
