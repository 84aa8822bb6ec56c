/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All entries of both groups are sorted by key, so that whatever may be copied to each other stands
 * next to each other. Each key is then settled by itself: its heads are cut at every boundary that
 * any member has, each piece (head interval, source shard rank) gets one owner, and each decode
 * entry takes from the owners what its heads and positions need. What comes out is a
 * list of takes, which is sorted by pair and component to become maps.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvferry/link.h>

#include "base/err.h"

#define MAX_RANKS KVF_MAX_SHARDS       /* endpoints of one group */
#define MAX_LANES (UINT64_C(64) << 20) /* 4 GiB of lanes: nobody means that */
#define NONE      UINT32_MAX

/* take.order: 10 + 10 bits of ranks, 2 of class, 5 + 5 of components */
#define ORDER_MAP_BITS 12
_Static_assert(KVF_MAX_COMPONENTS == 32 && MAX_RANKS == 1024, "take.order has 32 bits");

enum side {
	PREFILL,
	DECODE,
};

/* One entry of one endpoint, and the key that it is paired by. */
struct item {
	uint64_t group; /* class, tag */
	uint64_t key;   /* layer, kind, occurrence */
	uint32_t seq;   /* prefill first, then in the order of declaration */
	uint32_t side;
	uint32_t rank; /* of the endpoint in its group */
	uint32_t component;
	uint32_t index; /* in the component */
	uint32_t reach; /* decode: which struct reach */
	uint32_t chain; /* prefill: next source with the same shard rank */
	const struct kvf_component *comp;
	const struct kvf_entry *entry;
};

/* Which source shard ranks a decode component meets, for the source sharding it was last asked for.
 */
struct reach {
	uint32_t size;
	uint32_t interleave;
	uint32_t mode;
	uint64_t bits[KVF_MAX_SHARDS / 64];
};

/* Decode item `dst` takes heads [first, end) from prefill item `src`. */
struct take {
	uint32_t order;
	uint32_t src;
	uint32_t dst;
	uint16_t first;
	uint16_t end;
};

struct build {
	uint32_t num_prefill;
	uint32_t num_decode;
	struct item *items;
	uint32_t num_items;
	struct reach *reaches;
	uint64_t *loads; /* [prefill rank]: tokens, then the same for state */

	struct take *takes;
	struct take *sorted; /* of the same size, for the sort */
	size_t num_takes;
	size_t cap_takes;
	uint64_t num_lanes;

	/* one key at a time */
	uint32_t *bounds; /* head boundaries, ascending */
	uint32_t num_pieces;
	uint32_t slot_of[KVF_MAX_SHARDS]; /* source shard rank -> slot, or NONE */
	uint32_t slot_rank[KVF_MAX_SHARDS];
	uint32_t slot_head[KVF_MAX_SHARDS]; /* first source of the slot's chain */
	uint32_t slot_tail[KVF_MAX_SHARDS];
	uint32_t num_slots;
	uint32_t *owner; /* [slot * num_pieces + piece]: item, or NONE */
	uint8_t *wanted; /* the same: by some decode entry */
	size_t cap_cells;

	struct kvf_err *err;
};

static int
by_key(const void *x, const void *y)
{
	const struct item *a = x, *b = y;

	if (a->group != b->group)
		return a->group < b->group ? -1 : 1;
	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return a->seq < b->seq ? -1 : a->seq > b->seq;
}

static bool
same_key(const struct item *a, const struct item *b)
{
	return a->group == b->group && a->key == b->key;
}

static uint32_t
head_bytes(const struct kvf_entry *e)
{
	return e->row_bytes / e->head_count;
}

static uint32_t
head_end(const struct kvf_entry *e)
{
	return (uint32_t)e->head_first + e->head_count;
}

static bool
heads_dense(const struct kvf_entry *e)
{
	return e->head_stride == 0 || e->head_stride == head_bytes(e);
}

static uint64_t
head_stride(const struct kvf_entry *e)
{
	return e->head_stride != 0 ? e->head_stride : head_bytes(e);
}

static bool
bit(const uint64_t *bits, uint32_t i)
{
	return (bits[i / 64] >> (i % 64)) & 1;
}

static const struct reach *
reach_of(struct build *b, const struct item *dst, const struct kvf_sharding *src)
{
	struct reach *r = &b->reaches[dst->reach];
	struct kvf_sharding s = *src;

	if (r->size == s.size && r->interleave == s.interleave && r->mode == s.mode)
		return r;
	r->size = s.size;
	r->interleave = s.interleave;
	r->mode = s.mode;
	memset(r->bits, 0, sizeof(r->bits));
	for (s.rank = 0; s.rank < s.size; s.rank++) {
		if (kvf_sharding_intersects(&s, &dst->comp->sharding))
			r->bits[s.rank / 64] |= UINT64_C(1) << (s.rank % 64);
	}
	return r;
}

static void
put_items(struct build *b, enum side side, const struct kvf_geometry *const *geos, uint32_t n)
{
	uint32_t rank, c, i, reach = 0;

	for (rank = 0; rank < n; rank++) {
		for (c = 0; c < geos[rank]->num_components; c++, reach++) {
			const struct kvf_component *comp = &geos[rank]->components[c];

			for (i = 0; i < comp->num_entries; i++) {
				struct item *it = &b->items[b->num_items++];
				const struct kvf_entry *e = &comp->entries[i];

				it->group = (uint64_t)comp->cls << 32 | comp->tag;
				it->key = (uint64_t)e->layer << 32 | (uint32_t)e->kind << 16;
				it->seq = b->num_items - 1;
				it->side = side;
				it->rank = rank;
				it->component = c;
				it->index = i;
				it->reach = reach;
				it->chain = NONE;
				it->comp = comp;
				it->entry = e;
			}
		}
	}
}

/* Sorted by key and declaration order, an occurrence is how many of the same endpoint came before.
 */
static void
sort_items(struct build *b)
{
	uint32_t i, run = 0;
	bool any = false;

	qsort(b->items, b->num_items, sizeof(*b->items), by_key);
	for (i = 1; i < b->num_items; i++) {
		const struct item *prev = &b->items[i - 1];
		struct item *it = &b->items[i];

		/* prev's own occurrence is in its key by now */
		if (it->group == prev->group && it->key == (prev->key & ~UINT64_C(0xffff)) &&
			it->side == prev->side && it->rank == prev->rank) {
			it->key |= ++run;
			any = true;
		} else {
			run = 0;
		}
	}
	if (any)
		qsort(b->items, b->num_items, sizeof(*b->items), by_key);
}

static int
check_pair(struct build *b, const struct item *src, const struct item *dst)
{
	const struct kvf_entry *s = src->entry, *d = dst->entry;

#define WHERE                                                                                      \
	"entry=%u component=%u of decode rank=%u"                                                  \
	" and prefill rank=%u, layer=%u kind=%u"
#define WHERE_ARGS dst->index, dst->component, dst->rank, src->rank, d->layer, d->kind
	if (s->dtype != d->dtype)
		return kvf_fail(b->err, KVF_E_MISMATCH,
			"dtype differs: " WHERE ": prefill=%u decode=%u", WHERE_ARGS, s->dtype,
			d->dtype);
	if (s->head_total != d->head_total)
		return kvf_fail(b->err, KVF_E_MISMATCH,
			"head_total differs: " WHERE ": src=%u dst=%u", WHERE_ARGS, s->head_total,
			d->head_total);
	if (head_bytes(s) != head_bytes(d))
		return kvf_fail(b->err, KVF_E_MISMATCH,
			"row bytes per head differ: " WHERE ": src=%u dst=%u", WHERE_ARGS,
			head_bytes(s), head_bytes(d));
	if (src->comp->rule != dst->comp->rule)
		return kvf_fail(b->err, KVF_E_MISMATCH,
			"rules of state differ: " WHERE ": prefill=%u decode=%u", WHERE_ARGS,
			src->comp->rule, dst->comp->rule);
	return 0;
#undef WHERE_ARGS
#undef WHERE
}

static int
check_key(struct build *b, const struct item *src, uint32_t ns, const struct item *dst, uint32_t nd)
{
	const struct kvf_sharding *s0 = &src->comp->sharding;
	uint32_t i;
	int rc;

	for (i = 1; i < ns; i++) {
		const struct kvf_sharding *s = &src[i].comp->sharding;

		if (s->size != s0->size || s->interleave != s0->interleave || s->mode != s0->mode)
			return kvf_fail(b->err, KVF_E_SHARDING,
				"prefill ranks shard differently: layer=%u kind=%u: rank=%u has "
				"size=%u interleave=%u mode=%u, rank=%u has size=%u interleave=%u "
				"mode=%u",
				src->entry->layer, src->entry->kind, src->rank, s0->size,
				s0->interleave, s0->mode, src[i].rank, s->size, s->interleave,
				s->mode);
	}
	/* All of the one side against one of the other: then all agree with all. */
	for (i = 0; i < nd; i++) {
		rc = check_pair(b, src, &dst[i]);
		if (rc != 0)
			return rc;
	}
	for (i = 1; i < ns; i++) {
		rc = check_pair(b, &src[i], dst);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int
by_value(const void *x, const void *y)
{
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;

	return a < b ? -1 : a > b;
}

/* Cuts the heads at every boundary of any of the key's n items. */
static void
cut_heads(struct build *b, const struct item *items, uint32_t n)
{
	uint32_t count = 0, kept = 0, i;

	for (i = 0; i < n; i++) {
		const struct kvf_entry *e = items[i].entry;

		/* neighbours mostly hold the same heads */
		if (i > 0 && e->head_first == items[i - 1].entry->head_first &&
			e->head_count == items[i - 1].entry->head_count)
			continue;
		b->bounds[count++] = e->head_first;
		b->bounds[count++] = head_end(e);
	}
	qsort(b->bounds, count, sizeof(*b->bounds), by_value);
	for (i = 0; i < count; i++) {
		if (i == 0 || b->bounds[i] != b->bounds[i - 1])
			b->bounds[kept++] = b->bounds[i];
	}
	b->num_pieces = kept - 1;
}

static uint32_t
piece_at(const struct build *b, uint32_t head)
{
	uint32_t lo = 0, hi = b->num_pieces;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (b->bounds[mid] < head)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void
close_slots(struct build *b)
{
	uint32_t i;

	for (i = 0; i < b->num_slots; i++)
		b->slot_of[b->slot_rank[i]] = NONE;
	b->num_slots = 0;
}

/* Chains the key's sources by shard rank, lowest endpoint first; an empty table of owners. */
static int
open_slots(struct build *b, uint32_t first, uint32_t ns)
{
	uint32_t i, slot;
	size_t cells;

	for (i = first; i < first + ns; i++) {
		uint32_t shard = b->items[i].comp->sharding.rank;

		slot = b->slot_of[shard];
		if (slot == NONE) {
			slot = b->slot_of[shard] = b->num_slots++;
			b->slot_rank[slot] = shard;
			b->slot_head[slot] = i;
		} else {
			b->items[b->slot_tail[slot]].chain = i;
		}
		b->slot_tail[slot] = i;
	}
	cells = (size_t)b->num_slots * b->num_pieces;
	if (cells > b->cap_cells) {
		free(b->owner);
		free(b->wanted);
		b->owner = malloc(cells * sizeof(*b->owner));
		b->wanted = malloc(cells);
		b->cap_cells = cells;
		if (b->owner == NULL || b->wanted == NULL)
			return kvf_fail(b->err, KVF_E_NOMEM,
				"no memory to link heads=%u of shards=%u", b->num_pieces,
				b->num_slots);
	}
	memset(b->wanted, 0, cells);
	return 0;
}

static void
mark_wanted(struct build *b, const struct item *dst, uint32_t nd, const struct kvf_sharding *src)
{
	uint32_t i, slot, from, to;

	for (i = 0; i < nd; i++) {
		const struct reach *r = reach_of(b, &dst[i], src);

		from = piece_at(b, dst[i].entry->head_first);
		to = piece_at(b, head_end(dst[i].entry));
		for (slot = 0; slot < b->num_slots; slot++) {
			if (bit(r->bits, b->slot_rank[slot]))
				memset(&b->wanted[(size_t)slot * b->num_pieces + from], 1,
					to - from);
		}
	}
}

/*
 * The least loaded of those who hold a piece gives it to everybody. Aux is the exception: it is one
 * small record of one request and comes whole from the lowest rank that has it.
 */
static void
choose_owners(struct build *b, uint32_t cls)
{
	uint64_t *loads = cls == KVF_STATE ? b->loads + b->num_prefill : b->loads;
	uint32_t piece, slot, i;

	for (piece = 0; piece < b->num_pieces; piece++) {
		uint32_t first = b->bounds[piece], end = b->bounds[piece + 1];

		for (slot = 0; slot < b->num_slots; slot++) {
			size_t cell = (size_t)slot * b->num_pieces + piece;
			uint32_t best = NONE;
			const struct item *it;

			b->owner[cell] = NONE;
			if (!b->wanted[cell])
				continue;
			for (i = b->slot_head[slot]; i != NONE; i = b->items[i].chain) {
				it = &b->items[i];
				if (it->entry->head_first > first || head_end(it->entry) < end)
					continue;
				if (best == NONE || loads[it->rank] < loads[b->items[best].rank])
					best = i;
				if (cls == KVF_AUX)
					break;
			}
			b->owner[cell] = best;
			if (best == NONE || cls == KVF_AUX)
				continue;
			/* Bytes per token times 2^20, as a shard holds a fraction of the tokens. */
			it = &b->items[best];
			loads[it->rank] += ((uint64_t)(end - first) * head_bytes(it->entry) << 20) /
					   it->comp->sharding.size;
		}
	}
}

static int
no_source(struct build *b, const struct item *dst, uint32_t first, uint32_t end, uint32_t shard,
	uint32_t size)
{
	char positions[80] = "";

	if (size > 1)
		snprintf(positions, sizeof(positions), " at positions of source rank %u mod %u",
			shard, size);
	return kvf_fail(b->err, KVF_E_COVERAGE,
		"no prefill rank holds layer=%u kind=%u occurrence=%u heads=[%u,%u)%s (class=%u "
		"tag=%u), decode rank=%u component=%u entry=%u needs it",
		dst->entry->layer, dst->entry->kind, (unsigned int)(dst->key & 0xffff), first, end,
		positions, dst->comp->cls, dst->comp->tag, dst->rank, dst->component, dst->index);
}

static int
put_take(struct build *b, uint32_t src, uint32_t dst, uint32_t first, uint32_t end)
{
	const struct item *s = &b->items[src], *d = &b->items[dst];
	struct take *take;

	if (b->num_takes == b->cap_takes) {
		size_t cap = b->cap_takes != 0 ? b->cap_takes * 2 : 4096;

		take = realloc(b->takes, cap * sizeof(*take));
		if (take == NULL)
			return kvf_fail(b->err, KVF_E_NOMEM, "no memory for lanes=%zu", cap);
		b->takes = take;
		b->cap_takes = cap;
	}
	take = &b->takes[b->num_takes++];
	take->order = (s->rank * b->num_decode + d->rank) << ORDER_MAP_BITS |
		      (s->comp->cls & 3) << 10 | s->component << 5 | d->component;
	take->src = src;
	take->dst = dst;
	take->first = (uint16_t)first;
	take->end = (uint16_t)end;
	b->num_lanes += heads_dense(s->entry) && heads_dense(d->entry) ? 1 : end - first;
	if (b->num_lanes > MAX_LANES)
		return kvf_fail(b->err, KVF_E_QUOTA,
			"the two groups need more than lanes=%" PRIu64 ", limit=%" PRIu64,
			b->num_lanes - 1, MAX_LANES);
	return 0;
}

/* What one decode entry takes from the sources of one shard rank: stretches of one owner each. */
static int
take_slot(struct build *b, uint32_t dst, uint32_t slot, uint32_t size)
{
	const struct kvf_entry *e = b->items[dst].entry;
	const uint32_t *owner = &b->owner[(size_t)slot * b->num_pieces];
	uint32_t from = piece_at(b, e->head_first), to = piece_at(b, head_end(e)), next;
	int rc;

	for (; from < to; from = next) {
		for (next = from + 1; next < to && owner[next] == owner[from]; next++)
			;
		if (owner[from] == NONE)
			return no_source(b, &b->items[dst], b->bounds[from], b->bounds[next],
				b->slot_rank[slot], size);
		rc = put_take(b, owner[from], dst, b->bounds[from], b->bounds[next]);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* Items [first, first + ns) are the sources of one key, the next nd its destinations. */
static int
link_key(struct build *b, uint32_t first, uint32_t ns, uint32_t nd)
{
	const struct item *src = &b->items[first], *dst = src + ns;
	const struct kvf_sharding *sh = &src->comp->sharding;
	uint32_t i, slot, r;
	int rc;

	if (nd == 0)
		return 0; /* what nobody wants: other stages, other layers */
	if (ns == 0)
		return no_source(b, dst, dst->entry->head_first, head_end(dst->entry), 0, 1);
	rc = check_key(b, src, ns, dst, nd);
	if (rc != 0)
		return rc;
	cut_heads(b, src, ns + nd);
	rc = open_slots(b, first, ns);
	if (rc != 0)
		return rc;
	mark_wanted(b, dst, nd, sh);
	choose_owners(b, dst->comp->cls);
	for (i = 0; i < nd; i++) {
		const struct reach *reach = reach_of(b, &dst[i], sh);

		if (b->num_slots < sh->size) {
			for (r = 0; r < sh->size; r++) {
				if (bit(reach->bits, r) && b->slot_of[r] == NONE)
					return no_source(b, &dst[i], dst[i].entry->head_first,
						head_end(dst[i].entry), r, sh->size);
			}
		}
		for (slot = 0; slot < b->num_slots; slot++) {
			if (!bit(reach->bits, b->slot_rank[slot]))
				continue;
			rc = take_slot(b, first + ns + i, slot, sh->size);
			if (rc != 0)
				return rc;
		}
	}
	close_slots(b);
	return 0;
}

static int
link_keys(struct build *b)
{
	uint32_t i, mid, end;
	int rc;

	for (i = 0; i < b->num_items; i = end) {
		const struct item *it = &b->items[i];

		for (mid = i; mid < b->num_items && same_key(it, &b->items[mid]) &&
			      b->items[mid].side == PREFILL;
			mid++)
			;
		for (end = mid; end < b->num_items && same_key(it, &b->items[end]); end++)
			;
		rc = link_key(b, i, mid - i, end - mid);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* Stable radix sort: within a map, takes stay in key order. */
static int
sort_takes(struct build *b)
{
	uint32_t shift;
	size_t i;

	b->sorted = malloc((b->num_takes + 1) * sizeof(*b->sorted));
	if (b->sorted == NULL)
		return kvf_fail(b->err, KVF_E_NOMEM, "no memory for lanes=%zu", b->num_takes);
	for (shift = 0; shift < 32; shift += 11) {
		size_t at[2048] = {0}, sum = 0, n;
		struct take *t;

		for (i = 0; i < b->num_takes; i++)
			at[b->takes[i].order >> shift & 2047]++;
		for (i = 0; i < 2048; i++) {
			n = at[i];
			at[i] = sum;
			sum += n;
		}
		for (i = 0; i < b->num_takes; i++)
			b->sorted[at[b->takes[i].order >> shift & 2047]++] = b->takes[i];
		t = b->takes;
		b->takes = b->sorted;
		b->sorted = t;
	}
	return 0;
}

/* The row stride of pages of one row is never used; this one lets runs go on from page to page. */
static uint64_t
row_stride(const struct item *it)
{
	return it->comp->page_tokens == 1 ? it->entry->page_stride : it->entry->row_stride;
}

static bool
pages_split(const struct item *it, uint64_t rows)
{
	uint64_t page;

	return kvf_mul_overflows(it->comp->page_tokens, rows, &page) ||
	       page != it->entry->page_stride;
}

static uint32_t
fill_lanes(struct kvf_map *map, struct kvf_lane *lane, const struct item *s, const struct item *d,
	const struct take *take)
{
	uint32_t width = take->end - take->first, step, n = 0, h;
	const struct kvf_entry *se = s->entry, *de = d->entry;
	uint64_t src_rows = row_stride(s), dst_rows = row_stride(d);

	step = heads_dense(se) && heads_dense(de) ? width : 1;
	for (h = take->first; h < take->end; h += step, n++, lane++) {
		lane->src_off = se->offset + (h - se->head_first) * head_stride(se);
		lane->dst_off = de->offset + (h - de->head_first) * head_stride(de);
		lane->src_page_stride = se->page_stride;
		lane->dst_page_stride = de->page_stride;
		lane->src_row_stride = src_rows;
		lane->dst_row_stride = dst_rows;
		lane->row_bytes = step * head_bytes(se);
		lane->layer = de->layer;
		lane->kind = de->kind;
		lane->occurrence = (uint16_t)(d->key & 0xffff);
		lane->head_first = (uint16_t)h;
		lane->head_count = (uint16_t)step;
		if (src_rows != lane->row_bytes || dst_rows != lane->row_bytes)
			map->dense = 0;
	}
	if (pages_split(s, src_rows))
		map->split |= KVF_PLAN_SPLIT_SRC;
	if (pages_split(d, dst_rows))
		map->split |= KVF_PLAN_SPLIT_DST;
	map->row_bytes += (uint64_t)width * head_bytes(se);
	map->num_lanes += n;
	return n;
}

static void
open_map(struct kvf_map *map, struct kvf_lane *lanes, const struct item *s, const struct item *d)
{
	map->src_component = s->component;
	map->dst_component = d->component;
	map->cls = d->comp->cls;
	map->tag = d->comp->tag;
	map->src_list = s->comp->list;
	map->dst_list = d->comp->list;
	map->src_page_tokens = s->comp->page_tokens;
	map->dst_page_tokens = d->comp->page_tokens;
	map->src = s->comp->sharding;
	map->dst = d->comp->sharding;
	map->rule = s->comp->rule;
	map->dense = 1;
	map->lanes = lanes;
}

static int
finish(struct build *b, struct kvf_link **res)
{
	uint64_t num_pairs = (uint64_t)b->num_prefill * b->num_decode, num_maps = 0, size;
	struct kvf_link *link;
	struct kvf_pair *pairs;
	struct kvf_map *map;
	struct kvf_lane *lane;
	size_t i;

	for (i = 0; i < b->num_takes; i++)
		num_maps += i == 0 || b->takes[i].order != b->takes[i - 1].order;
	/* Bounded by MAX_RANKS and MAX_LANES: far from 64 bits. */
	size = sizeof(*link) + num_pairs * sizeof(*pairs) + num_maps * sizeof(*map) +
	       b->num_lanes * sizeof(*lane);
	link = size <= SIZE_MAX ? calloc(1, (size_t)size) : NULL;
	if (link == NULL)
		return kvf_fail(b->err, KVF_E_NOMEM,
			"no memory for a link of bytes=%" PRIu64 " lanes=%" PRIu64, size,
			b->num_lanes);
	pairs = (struct kvf_pair *)(link + 1);
	map = (struct kvf_map *)(pairs + num_pairs);
	lane = (struct kvf_lane *)(map + num_maps);
	link->num_prefill = b->num_prefill;
	link->num_decode = b->num_decode;
	link->pairs = pairs;
	map--;
	for (i = 0; i < b->num_takes; i++) {
		const struct take *take = &b->takes[i];
		const struct item *s = &b->items[take->src], *d = &b->items[take->dst];

		if (i == 0 || take->order != take[-1].order) {
			struct kvf_pair *pair = &pairs[take->order >> ORDER_MAP_BITS];

			open_map(++map, lane, s, d);
			if (pair->num_maps++ == 0)
				pair->maps = map;
		}
		lane += fill_lanes(map, lane, s, d, take);
	}
	*res = link;
	return 0;
}

static int
check_group(const struct kvf_geometry *const *geos, uint32_t n, const char *side, uint64_t *items,
	uint64_t *components, struct kvf_err *err)
{
	uint32_t i, c;

	if (n == 0 || n > MAX_RANKS)
		return kvf_fail(
			err, KVF_E_INVAL, "%s ranks=%u, minimum=1 limit=%u", side, n, MAX_RANKS);
	for (i = 0; i < n; i++) {
		if (geos == NULL || geos[i] == NULL)
			return kvf_fail(err, KVF_E_INVAL, "%s rank=%u geometry=NULL", side, i);
		*components += geos[i]->num_components;
		for (c = 0; c < geos[i]->num_components; c++)
			*items += geos[i]->components[c].num_entries;
	}
	return 0;
}

int
kvf_link_build(const struct kvf_geometry *const *prefill, uint32_t num_prefill,
	const struct kvf_geometry *const *decode, uint32_t num_decode, struct kvf_link **link,
	struct kvf_err *err)
{
	uint64_t src_items = 0, dst_items = 0, src_components = 0, components = 0;
	struct build *b;
	int rc;

	*link = NULL;
	rc = check_group(prefill, num_prefill, "prefill", &src_items, &src_components, err);
	if (rc == 0)
		rc = check_group(decode, num_decode, "decode", &dst_items, &components, err);
	if (rc != 0)
		return rc;
	b = calloc(1, sizeof(*b));
	if (b == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "no memory to link two groups");
	b->err = err;
	b->num_prefill = num_prefill;
	b->num_decode = num_decode;
	memset(b->slot_of, 0xff, sizeof(b->slot_of));
	b->items = malloc((src_items + dst_items + 1) * sizeof(*b->items));
	b->reaches = calloc(components + 1, sizeof(*b->reaches));
	b->loads = calloc(2 * (uint64_t)num_prefill, sizeof(*b->loads));
	/* An endpoint has one entry of a key: its occurrence tells it from its others. */
	b->bounds = malloc(2 * ((uint64_t)num_prefill + num_decode) * sizeof(*b->bounds));
	if (b->items == NULL || b->reaches == NULL || b->loads == NULL || b->bounds == NULL) {
		rc = kvf_fail(err, KVF_E_NOMEM, "no memory to link entries=%" PRIu64,
			src_items + dst_items);
	} else {
		put_items(b, PREFILL, prefill, num_prefill);
		put_items(b, DECODE, decode, num_decode);
		sort_items(b);
		rc = link_keys(b);
	}
	if (rc == 0)
		rc = sort_takes(b);
	if (rc == 0)
		rc = finish(b, link);
	free(b->items);
	free(b->reaches);
	free(b->loads);
	free(b->bounds);
	free(b->owner);
	free(b->wanted);
	free(b->takes);
	free(b->sorted);
	free(b);
	return rc;
}

void
kvf_link_free(struct kvf_link *link)
{
	free(link);
}
