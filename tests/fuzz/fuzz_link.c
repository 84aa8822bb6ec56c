/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two groups of anything. Where they are accepted, copying by the link gives every byte that a
 * decode rank holds of a position exactly once, from the place where a prefill rank has just that
 * byte; and nothing else is written.
 */
#include <stdbool.h>

#include <kvferry/link.h>

#include "bytes.h"

#define MAX_RANKS   3
#define MAX_COMPS   3
#define MAX_ENTRIES 3
#define POSITIONS   12 /* of the prompt; state and aux lists name ITEMS pages */
#define ITEMS       2
#define POOL_MAX    8192

struct ep {
	struct kvf_geometry geo;
	struct kvf_component comps[MAX_COMPS];
	struct kvf_entry entries[MAX_COMPS][MAX_ENTRIES];
	uint64_t bytes;
	uint64_t meaning[POOL_MAX]; /* of each byte; 0: none */
	uint8_t written[POOL_MAX];
};

static struct ep prefill[MAX_RANKS], decode[MAX_RANKS];

static void
take_entry(struct bytes *b, struct ep *ep, const struct kvf_component *c, struct kvf_entry *e)
{
	uint32_t cell = 1 + take8(b) % 3, pad = take8(b) % 4 == 0 ? take8(b) % 3 : 0;

	e->layer = take8(b) % 3;
	e->kind = 1 + take8(b) % 2;
	e->dtype = take8(b) % 16 == 1;
	e->head_total = 1 + take8(b) % 4;
	e->head_first = (uint16_t)(take8(b) % e->head_total);
	e->head_count = (uint16_t)(1 + take8(b) % (e->head_total - e->head_first));
	e->row_bytes = cell * e->head_count;
	if (take8(b) % 4 == 0) {
		/* head-major */
		e->row_stride = cell + pad;
		e->head_stride = e->row_stride * c->page_tokens;
		e->page_stride = e->head_stride * e->head_count + pad;
	} else {
		e->row_stride = e->row_bytes + pad;
		e->head_stride = take8(b) % 4 == 0 ? cell : 0;
		e->page_stride = e->row_stride * c->page_tokens + (take8(b) % 4 == 0 ? pad : 0);
	}
	e->offset = ep->bytes + take8(b) % 2;
	ep->bytes = e->offset + e->page_stride * c->num_pages;
}

static void
take_ep(struct bytes *b, struct ep *ep)
{
	uint32_t c, i;

	memset(ep, 0, sizeof(*ep));
	ep->geo.components = ep->comps;
	ep->geo.num_components = take_range(b, 1, MAX_COMPS);
	for (c = 0; c < ep->geo.num_components; c++) {
		struct kvf_component *comp = &ep->comps[c];
		uint8_t what = take8(b);

		comp->cls = what % 8 == 1 ? KVF_STATE : what % 8 == 2 ? KVF_AUX : KVF_TOKENS;
		comp->tag = comp->cls == KVF_STATE ? what / 8 % 2 : 0;
		comp->rule = comp->cls == KVF_STATE ? what / 16 % 4 : 0;
		comp->list = c;
		comp->page_tokens = comp->cls == KVF_AUX ? 1 : take_range(b, 1, 3);
		comp->sharding = (struct kvf_sharding){1, 0, 1, 0};
		if (comp->cls == KVF_TOKENS) {
			comp->sharding.size = take_range(b, 1, MAX_RANKS);
			comp->sharding.rank = take8(b) % comp->sharding.size;
			comp->sharding.mode = take8(b) % 4 == 1;
			comp->sharding.interleave = take_range(b, 1, 3);
			if (comp->sharding.mode == KVF_SHARD_BAND)
				comp->sharding.interleave *= comp->page_tokens;
		}
		/* Enough for all positions on one rank, page i of a list is page i. */
		comp->num_pages = comp->cls == KVF_TOKENS
					  ? (POSITIONS + 9 + comp->page_tokens) / comp->page_tokens
					  : ITEMS;
		comp->num_entries = take_range(b, 1, MAX_ENTRIES);
		comp->entries = ep->entries[c];
		for (i = 0; i < comp->num_entries; i++)
			take_entry(b, ep, comp, &ep->entries[c][i]);
	}
}

/* Local row of a position, by counting. */
static bool
holds(const struct kvf_component *c, uint64_t p, uint64_t *row)
{
	const struct kvf_sharding *sh = &c->sharding;
	uint64_t pages = (POSITIONS + sh->interleave - 1) / sh->interleave, from, n;

	if (sh->mode == KVF_SHARD_CYCLIC) {
		*row = p / (sh->interleave * sh->size) * sh->interleave + p % sh->interleave;
		return p / sh->interleave % sh->size == sh->rank;
	}
	n = pages / sh->size + (sh->rank < pages % sh->size);
	from = pages / sh->size * sh->rank +
	       (sh->rank < pages % sh->size ? sh->rank : pages % sh->size);
	*row = p - from * sh->interleave;
	return p >= from * sh->interleave && p < (from + n) * sh->interleave;
}

static uint32_t
rows_of(const struct kvf_component *c)
{
	return c->cls == KVF_TOKENS ? POSITIONS : ITEMS * c->page_tokens;
}

static uint64_t
address(const struct kvf_component *c, const struct kvf_entry *e, uint64_t row, uint32_t head)
{
	uint64_t cell = e->row_bytes / e->head_count;

	return e->offset + row / c->page_tokens * e->page_stride +
	       row % c->page_tokens * e->row_stride +
	       head * (e->head_stride != 0 ? e->head_stride : cell);
}

/* The k-th entry of its class, tag, kind and layer: what is k? */
static uint32_t
occurrence(const struct ep *ep, uint32_t comp, uint32_t entry)
{
	const struct kvf_entry *e = &ep->entries[comp][entry];
	uint32_t n = 0, c, i;

	for (c = 0; c <= comp; c++)
		for (i = 0; (c < comp || i < entry) && i < ep->comps[c].num_entries; i++)
			n += ep->comps[c].cls == ep->comps[comp].cls &&
			     ep->comps[c].tag == ep->comps[comp].tag &&
			     ep->entries[c][i].kind == e->kind &&
			     ep->entries[c][i].layer == e->layer;
	return n;
}

/* Gives every byte that belongs to a position a number of its own, the same on all ranks. */
static void
give_meaning(struct ep *ep)
{
	uint32_t c, i, r, h, x;

	for (c = 0; c < ep->geo.num_components; c++)
		for (i = 0; i < ep->comps[c].num_entries; i++) {
			const struct kvf_component *comp = &ep->comps[c];
			const struct kvf_entry *e = &comp->entries[i];
			uint64_t key = occurrence(ep, c, i);

			key = key * 4 + comp->cls;
			key = key * 4 + comp->tag;
			key = key * 4 + e->kind;
			key = key * 4 + e->layer;
			for (r = 0; r < rows_of(comp); r++) {
				uint64_t row = r;

				if (comp->cls == KVF_TOKENS && !holds(comp, r, &row))
					continue;
				for (h = 0; h < e->head_count; h++)
					for (x = 0; x < e->row_bytes / e->head_count; x++)
						ep->meaning[address(comp, e, row, h) + x] =
							((key * 64 + r) * 16 + e->head_first + h) *
								8 +
							x + 1;
			}
		}
}

static uint64_t
lane_at(uint64_t off, uint64_t page_stride, uint64_t row_stride, uint64_t page_tokens, uint64_t row)
{
	return off + row / page_tokens * page_stride + row % page_tokens * row_stride;
}

static void
copy_row(struct ep *s, struct ep *d, const struct kvf_map *m, uint64_t from, uint64_t to)
{
	uint32_t l, x;

	for (l = 0; l < m->num_lanes; l++) {
		const struct kvf_lane *lane = &m->lanes[l];
		uint64_t a = lane_at(lane->src_off, lane->src_page_stride, lane->src_row_stride,
			m->src_page_tokens, from);
		uint64_t b = lane_at(lane->dst_off, lane->dst_page_stride, lane->dst_row_stride,
			m->dst_page_tokens, to);

		MUST(lane->row_bytes > 0);
		MUST(a + lane->row_bytes <= s->bytes && b + lane->row_bytes <= d->bytes);
		for (x = 0; x < lane->row_bytes; x++) {
			MUST(d->written[b + x] == 0);
			d->written[b + x] = 1;
			MUST(s->meaning[a + x] != 0 && s->meaning[a + x] == d->meaning[b + x]);
		}
	}
}

static void
copy_map(struct ep *s, struct ep *d, const struct kvf_map *m)
{
	const struct kvf_component *sc = &s->comps[m->src_component];
	const struct kvf_component *dc = &d->comps[m->dst_component];
	uint64_t r, from, to, rows;

	MUST(m->src_component < s->geo.num_components && m->dst_component < d->geo.num_components);
	MUST(m->cls == sc->cls && m->cls == dc->cls && m->rule == dc->rule);
	MUST(m->src_page_tokens == sc->page_tokens && m->dst_page_tokens == dc->page_tokens);
	rows = rows_of(sc) < rows_of(dc) ? rows_of(sc) : rows_of(dc);
	for (r = 0; r < rows; r++) {
		from = to = r;
		if (m->cls == KVF_TOKENS && (!holds(sc, r, &from) || !holds(dc, r, &to)))
			continue;
		copy_row(s, d, m, from, to);
	}
}

/* Rings and lists of other lengths go over in part; how, is the row plan's business. */
static void
check_written(const struct ep *d)
{
	uint32_t c, i, r, h, x;

	for (c = 0; c < d->geo.num_components; c++) {
		const struct kvf_component *comp = &d->comps[c];

		if (comp->cls != KVF_TOKENS)
			continue;
		for (i = 0; i < comp->num_entries; i++)
			for (r = 0; r < POSITIONS; r++) {
				const struct kvf_entry *e = &comp->entries[i];
				uint64_t row;

				if (!holds(comp, r, &row))
					continue;
				for (h = 0; h < e->head_count; h++)
					for (x = 0; x < e->row_bytes / e->head_count; x++)
						MUST(d->written[address(comp, e, row, h) + x] == 1);
			}
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct kvf_geometry *pg[MAX_RANKS], *dg[MAX_RANKS];
	struct bytes b = {data, size};
	uint32_t np = take_range(&b, 1, MAX_RANKS), nd = take_range(&b, 1, MAX_RANKS), i, k, m;
	uint8_t same = take8(&b);
	struct kvf_err err = {0};
	struct kvf_link *link;
	int rc;

	for (i = 0; i < np + nd; i++) {
		struct ep *ep = i < np ? &prefill[i] : &decode[i - np];
		struct bytes twin = {data, size}; /* ranks alike, or nothing would ever fit */

		take(&twin, 3);
		take_ep(same & 1u << i ? &twin : &b, ep);
		if (ep->bytes > POOL_MAX)
			return 0;
		/* Alike but for the rank. */
		for (k = 0; same & 64 && k < ep->geo.num_components; k++)
			if (ep->comps[k].cls == KVF_TOKENS)
				ep->comps[k].sharding.rank =
					(i < np ? i : i - np) % ep->comps[k].sharding.size;
		if (kvf_geometry_check(&ep->geo, ep->bytes, &err) != 0)
			return 0;
		give_meaning(ep);
		if (i < np)
			pg[i] = &ep->geo;
		else
			dg[i - np] = &ep->geo;
	}
	rc = kvf_link_build(pg, np, dg, nd, &link, &err);
	if (rc != 0) {
		MUST(err.code == rc && err.text[0] != '\0' && link == NULL);
		return 0;
	}
	MUST(link->num_prefill == np && link->num_decode == nd);
	for (i = 0; i < np; i++)
		for (k = 0; k < nd; k++) {
			const struct kvf_pair *pair = kvf_link_pair(link, i, k);

			for (m = 0; m < pair->num_maps; m++)
				copy_map(&prefill[i], &decode[k], &pair->maps[m]);
		}
	for (k = 0; k < nd; k++)
		check_written(&decode[k]);
	kvf_link_free(link);
	return 0;
}
