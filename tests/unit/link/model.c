/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/suite.h"
#include "model.h"

#define SPARE_PAGES 8

void
group_init(struct group *g, uint32_t positions, uint32_t items)
{
	memset(g, 0, sizeof(*g));
	g->positions = positions;
	g->items = items;
	g->rand = 0x9e3779b97f4a7c15ull;
}

void
group_free(struct group *g)
{
	uint32_t i, list;

	for (i = 0; i < g->num_prefill + g->num_decode; i++) {
		struct ep *ep = i < g->num_prefill ? g->prefill[i] : g->decode[i - g->num_prefill];

		for (list = 0; list < KVF_MAX_LISTS; list++)
			free(ep->pages[list]);
		free(ep);
	}
	g->num_prefill = g->num_decode = 0;
}

struct ep *
group_add(struct group *g, int decode)
{
	struct ep *ep = calloc(1, sizeof(*ep));

	if (ep == NULL || g->num_prefill == GROUP_MAX || g->num_decode == GROUP_MAX)
		abort();
	ep->geo.components = ep->comps;
	if (decode)
		g->decode[g->num_decode++] = ep;
	else
		g->prefill[g->num_prefill++] = ep;
	return ep;
}

static int
owns(const struct kvf_sharding *sh, uint64_t position)
{
	return position / sh->interleave % sh->size == sh->rank;
}

static uint32_t
rows_of(const struct group *g, uint32_t cls)
{
	return cls == KVF_TOKENS ? g->positions : cls == KVF_STATE ? g->items : 1;
}

uint32_t
ep_component(struct group *g, struct ep *ep, uint32_t cls, uint32_t tag, uint32_t list,
	uint32_t page_tokens, uint32_t size, uint32_t rank, uint32_t interleave)
{
	struct kvf_component *comp = &ep->comps[ep->geo.num_components];
	uint32_t p, rows = 0, limit, i;

	if (ep->geo.num_components == EP_COMPONENTS)
		abort();
	comp->cls = cls;
	comp->tag = tag;
	comp->list = list;
	comp->page_tokens = page_tokens;
	comp->sharding.size = size;
	comp->sharding.rank = rank;
	comp->sharding.interleave = interleave;
	comp->entries = ep->entries[ep->geo.num_components];
	for (p = 0; p < rows_of(g, cls); p++)
		rows += owns(&comp->sharding, p);
	comp->num_pages = (rows + page_tokens - 1) / page_tokens + SPARE_PAGES;
	ep->geo.num_components++;

	/* A random order of those pages that every component of the list has. */
	limit = comp->num_pages;
	for (i = 0; i < ep->geo.num_components; i++) {
		if (ep->comps[i].list == list && ep->comps[i].num_pages < limit)
			limit = ep->comps[i].num_pages;
	}
	for (i = 0; i < ep->geo.num_components; i++) {
		if (ep->comps[i].list == list && ep->comps[i].num_pages > limit + SPARE_PAGES)
			abort(); /* the list would be too short for it */
	}
	free(ep->pages[list]);
	ep->pages[list] = malloc(limit * sizeof(uint32_t));
	if (ep->pages[list] == NULL)
		abort();
	for (i = 0; i < limit; i++) {
		uint32_t j = (uint32_t)suite_range(&g->rand, 0, i);

		ep->pages[list][i] = ep->pages[list][j];
		ep->pages[list][j] = i;
	}
	return ep->geo.num_components - 1;
}

void
ep_add(struct ep *ep, uint32_t component, enum layout layout, const struct spec *specs, uint32_t n)
{
	struct kvf_component *comp = &ep->comps[component];

	if (comp->num_entries + n > EP_ENTRIES)
		abort();
	layout_place(layout, specs, n, comp->page_tokens, comp->num_pages, &ep->pool_bytes,
		&ep->entries[component][comp->num_entries]);
	comp->num_entries += n;
}

struct spec
latent(uint32_t layer)
{
	struct spec s = {layer, KVF_KIND_LATENT, 1, 0, 1, 1, 9};

	return s;
}

struct spec
heads(uint32_t layer, uint16_t kind, uint32_t first, uint32_t count, uint32_t total)
{
	struct spec s = {layer, kind, 1, (uint16_t)first, (uint16_t)count, (uint16_t)total,
		kind == KVF_KIND_V ? 3 : 2};

	return s;
}

struct ep *
add_plain(struct group *g, int decode, uint32_t page_tokens)
{
	struct ep *ep = group_add(g, decode);

	ep_component(g, ep, KVF_TOKENS, 0, 0, page_tokens, 1, 0, 1);
	return ep;
}

struct ep *
add_sharded(struct group *g, int decode, uint32_t page_tokens, uint32_t size, uint32_t rank,
	uint32_t interleave)
{
	struct ep *ep = group_add(g, decode);

	ep_component(g, ep, KVF_TOKENS, 0, 0, page_tokens, size, rank, interleave);
	return ep;
}

void
add_latents(struct ep *ep, uint32_t from, uint32_t to)
{
	struct spec s;

	for (; from < to; from++) {
		s = latent(from);
		ep_add(ep, 0, LAY_NHD, &s, 1);
	}
}

void
add_kv(struct ep *ep, enum layout layout, uint32_t layer, uint32_t first, uint32_t count,
	uint32_t total)
{
	struct spec s[2] = {heads(layer, KVF_KIND_K, first, count, total),
		heads(layer, KVF_KIND_V, first, count, total)};

	ep_add(ep, 0, layout, s, 2);
}

static uint32_t
occurrence(const struct ep *ep, uint32_t component, uint32_t entry)
{
	const struct kvf_entry *e = &ep->entries[component][entry];
	uint32_t c, i, n = 0;

	for (c = 0; c <= component; c++) {
		for (i = 0; i < (c == component ? entry : ep->comps[c].num_entries); i++) {
			n += ep->comps[c].cls == ep->comps[component].cls &&
			     ep->comps[c].tag == ep->comps[component].tag &&
			     ep->entries[c][i].layer == e->layer &&
			     ep->entries[c][i].kind == e->kind;
		}
	}
	return n;
}

static uint64_t
mix(uint64_t x, uint64_t y)
{
	x = (x ^ y) * 0xff51afd7ed558ccdull;
	x ^= x >> 32;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 29;
}

/* What each byte of the pool means once it holds the request; 0: nothing. */
static uint64_t *
meanings(const struct group *g, const struct ep *ep)
{
	uint64_t *mean = calloc(ep->pool_bytes + 1, sizeof(*mean));
	uint32_t c, i, p, h, x;

	if (mean == NULL)
		abort();
	for (c = 0; c < ep->geo.num_components; c++) {
		const struct kvf_component *comp = &ep->comps[c];

		for (i = 0; i < comp->num_entries; i++) {
			const struct kvf_entry *e = &comp->entries[i];
			uint64_t head_bytes = e->row_bytes / e->head_count, row = 0;
			uint64_t step = e->head_stride != 0 ? e->head_stride : head_bytes;
			uint64_t id = mix(mix(comp->cls, comp->tag), mix(e->layer, e->kind));

			id = mix(id, occurrence(ep, c, i));
			for (p = 0; p < rows_of(g, comp->cls); p++) {
				uint64_t page, at;

				if (!owns(&comp->sharding, p))
					continue;
				page = ep->pages[comp->list][row / comp->page_tokens];
				at = e->offset + page * e->page_stride +
				     row % comp->page_tokens * e->row_stride;
				row++;
				for (h = 0; h < e->head_count; h++) {
					for (x = 0; x < head_bytes; x++)
						mean[at + h * step + x] =
							mix(mix(id, p), mix(e->head_first + h, x)) |
							1;
				}
			}
		}
	}
	return mean;
}

static int
holds(const struct ep *ep, const struct kvf_component *comp, const struct kvf_entry *e,
	uint32_t occ, uint32_t head, uint32_t position)
{
	uint32_t c, i;

	for (c = 0; c < ep->geo.num_components; c++) {
		const struct kvf_component *o = &ep->comps[c];

		if (o->cls != comp->cls || o->tag != comp->tag || !owns(&o->sharding, position))
			continue;
		for (i = 0; i < o->num_entries; i++) {
			const struct kvf_entry *f = &o->entries[i];

			if (f->layer == e->layer && f->kind == e->kind && head >= f->head_first &&
				head < (uint32_t)f->head_first + f->head_count &&
				occurrence(ep, c, i) == occ)
				return 1;
		}
	}
	return 0;
}

int
group_covered(const struct group *g)
{
	uint32_t d, c, i, h, p, s;

	for (d = 0; d < g->num_decode; d++) {
		const struct ep *ep = g->decode[d];

		for (c = 0; c < ep->geo.num_components; c++) {
			const struct kvf_component *comp = &ep->comps[c];

			for (i = 0; i < comp->num_entries; i++) {
				const struct kvf_entry *e = &comp->entries[i];
				uint32_t occ = occurrence(ep, c, i);

				for (h = e->head_first; h < (uint32_t)e->head_first + e->head_count;
					h++) {
					for (p = 0; p < rows_of(g, comp->cls); p++) {
						if (!owns(&comp->sharding, p))
							continue;
						for (s = 0; s < g->num_prefill; s++) {
							if (holds(g->prefill[s], comp, e, occ, h,
								    p))
								break;
						}
						if (s == g->num_prefill)
							return 0;
					}
				}
			}
		}
	}
	return 1;
}

int
group_link(const struct group *g, struct kvf_link **link, struct kvf_err *err)
{
	const struct kvf_geometry *prefill[GROUP_MAX], *decode[GROUP_MAX];
	uint32_t i;
	int rc;

	*link = NULL;
	for (i = 0; i < g->num_prefill; i++) {
		prefill[i] = &g->prefill[i]->geo;
		rc = kvf_geometry_check(prefill[i], g->prefill[i]->pool_bytes, err);
		if (rc != 0)
			return rc;
	}
	for (i = 0; i < g->num_decode; i++) {
		decode[i] = &g->decode[i]->geo;
		rc = kvf_geometry_check(decode[i], g->decode[i]->pool_bytes, err);
		if (rc != 0)
			return rc;
	}
	return kvf_link_build(prefill, g->num_prefill, decode, g->num_decode, link, err);
}

static int
same_sharding(const struct kvf_sharding *a, const struct kvf_sharding *b)
{
	return a->size == b->size && a->rank == b->rank && a->interleave == b->interleave;
}

/* The map's summary fields against its components and lanes. */
/* Does the lane say of itself what stands at this address? */
static int
names_itself(const struct kvf_component *c, const struct kvf_lane *lane, uint64_t off)
{
	uint32_t i, j, before;

	for (i = 0; i < c->num_entries; i++) {
		const struct kvf_entry *e = &c->entries[i];
		uint64_t cell = e->row_bytes / e->head_count;
		uint64_t step = e->head_stride != 0 ? e->head_stride : cell;

		if (e->layer != lane->layer || e->kind != lane->kind ||
			lane->head_first < e->head_first ||
			lane->head_first + lane->head_count > e->head_first + e->head_count ||
			off != e->offset + (lane->head_first - e->head_first) * step)
			continue;
		for (j = before = 0; j < i; j++)
			before += c->entries[j].layer == e->layer && c->entries[j].kind == e->kind;
		/* Other components may have had some too. */
		return lane->row_bytes == cell * lane->head_count && lane->occurrence >= before;
	}
	return 0;
}

static void
check_map(const struct kvf_map *map, const struct ep *src, const struct ep *dst)
{
	const struct kvf_component *s = &src->comps[map->src_component];
	const struct kvf_component *d = &dst->comps[map->dst_component];
	uint32_t i, split = 0, dense = 1;
	uint64_t row_bytes = 0;

	CHECK(map->num_lanes > 0);
	CHECK_EQ(map->cls, s->cls);
	CHECK_EQ(map->cls, d->cls);
	CHECK_EQ(map->tag, s->tag);
	CHECK_EQ(map->tag, d->tag);
	CHECK_EQ(map->src_list, s->list);
	CHECK_EQ(map->dst_list, d->list);
	CHECK_EQ(map->src_page_tokens, s->page_tokens);
	CHECK_EQ(map->dst_page_tokens, d->page_tokens);
	CHECK(same_sharding(&map->src, &s->sharding));
	CHECK(same_sharding(&map->dst, &d->sharding));
	CHECK(kvf_sharding_intersects(&map->src, &map->dst));
	for (i = 0; i < map->num_lanes; i++) {
		const struct kvf_lane *lane = &map->lanes[i];

		CHECK(names_itself(s, lane, lane->src_off));
		CHECK(names_itself(d, lane, lane->dst_off));
		row_bytes += lane->row_bytes;
		if (lane->src_page_stride != lane->src_row_stride * s->page_tokens)
			split |= KVF_PLAN_SPLIT_SRC;
		if (lane->dst_page_stride != lane->dst_row_stride * d->page_tokens)
			split |= KVF_PLAN_SPLIT_DST;
		if (lane->src_row_stride != lane->row_bytes ||
			lane->dst_row_stride != lane->row_bytes)
			dense = 0;
	}
	CHECK_EQ(map->row_bytes, row_bytes);
	CHECK_EQ(map->split, split);
	CHECK_EQ(map->dense, dense);
}

static void
copy_map(const struct group *g, const struct kvf_map *map, const struct ep *src,
	const struct ep *dst, const uint64_t *from, uint64_t *to, uint8_t *writes)
{
	uint64_t src_row = 0, dst_row = 0;
	uint32_t p, i, x;

	for (p = 0; p < rows_of(g, map->cls); p++) {
		int s = owns(&map->src, p), d = owns(&map->dst, p);

		for (i = 0; s && d && i < map->num_lanes; i++) {
			const struct kvf_lane *lane = &map->lanes[i];
			uint64_t sp = src->pages[map->src_list][src_row / map->src_page_tokens];
			uint64_t dp = dst->pages[map->dst_list][dst_row / map->dst_page_tokens];
			uint64_t sa = lane->src_off + sp * lane->src_page_stride +
				      src_row % map->src_page_tokens * lane->src_row_stride;
			uint64_t da = lane->dst_off + dp * lane->dst_page_stride +
				      dst_row % map->dst_page_tokens * lane->dst_row_stride;

			if (!CHECK(sa + lane->row_bytes <= src->pool_bytes) ||
				!CHECK(da + lane->row_bytes <= dst->pool_bytes))
				return;
			for (x = 0; x < lane->row_bytes; x++) {
				to[da + x] = from[sa + x];
				writes[da + x] += writes[da + x] < 255;
			}
		}
		src_row += s;
		dst_row += d;
	}
}

static void
check_decode(const struct group *g, const struct kvf_link *link, uint32_t rank, uint64_t **from)
{
	const struct ep *dst = g->decode[rank];
	uint64_t *want = meanings(g, dst), *got = calloc(dst->pool_bytes + 1, sizeof(*got));
	uint8_t *writes = calloc(dst->pool_bytes + 1, 1);
	uint64_t wrong = 0, missing = 0, twice = 0, stray = 0, i;
	uint32_t s, m;

	if (got == NULL || writes == NULL)
		abort();
	for (s = 0; s < g->num_prefill; s++) {
		const struct kvf_pair *pair = kvf_link_pair(link, s, rank);

		for (m = 0; m < pair->num_maps; m++) {
			if (m > 0)
				CHECK(pair->maps[m - 1].cls <= pair->maps[m].cls);
			check_map(&pair->maps[m], g->prefill[s], dst);
			copy_map(g, &pair->maps[m], g->prefill[s], dst, from[s], got, writes);
		}
	}
	for (i = 0; i < dst->pool_bytes; i++) {
		missing += want[i] != 0 && writes[i] == 0;
		stray += want[i] == 0 && writes[i] != 0;
		twice += writes[i] > 1;
		wrong += writes[i] != 0 && want[i] != got[i];
	}
	CHECK_EQ(missing, 0);
	CHECK_EQ(stray, 0);
	CHECK_EQ(twice, 0);
	CHECK_EQ(wrong, 0);
	free(want);
	free(got);
	free(writes);
}

int
group_verify(struct group *g)
{
	uint64_t *from[GROUP_MAX];
	struct kvf_err err = {0};
	struct kvf_link *link;
	uint32_t i;
	int rc;

	rc = group_link(g, &link, &err);
	if (rc != 0) {
		printf("    refused: %s: %s\n", kvf_error_name(rc), err.text);
		return rc;
	}
	CHECK_EQ(link->num_prefill, g->num_prefill);
	CHECK_EQ(link->num_decode, g->num_decode);
	for (i = 0; i < g->num_prefill; i++)
		from[i] = meanings(g, g->prefill[i]);
	for (i = 0; i < g->num_decode; i++)
		check_decode(g, link, i, from);
	for (i = 0; i < g->num_prefill; i++)
		free(from[i]);
	kvf_link_free(link);
	return 0;
}

uint32_t
link_lanes(const struct kvf_link *link, uint32_t prefill, uint32_t decode, uint32_t cls)
{
	uint32_t p, d, m, n = 0;

	for (p = 0; p < link->num_prefill; p++) {
		for (d = 0; d < link->num_decode; d++) {
			const struct kvf_pair *pair = kvf_link_pair(link, p, d);

			if ((prefill != UINT32_MAX && p != prefill) ||
				(decode != UINT32_MAX && d != decode))
				continue;
			for (m = 0; m < pair->num_maps; m++)
				n += cls == 0 || pair->maps[m].cls == cls ? pair->maps[m].num_lanes
									  : 0;
		}
	}
	return n;
}
