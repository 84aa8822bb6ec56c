/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvferry/geometry.h>
#include <kvferry/plan.h>

#include "base/err.h"

struct dim {
	const char *name;
	uint64_t stride;
	uint64_t count;
};

/*
 * The bytes of one entry: a solid piece of ext[dims] bytes, repeated by nested dimensions,
 * outermost first; ext[k] is the distance from the first to past the last byte of dimensions k and
 * further in. Each stride is at least the extent inside it, which is what keeps rows apart.
 */
struct span {
	uint64_t off;
	uint64_t end;
	uint64_t ext[4];
	struct dim dim[3];
	uint32_t dims;
	uint32_t component;
	uint32_t entry;
};

static int
bad(struct kvf_err *err, uint32_t c, uint32_t e, const char *name, uint64_t value,
	const char *limit_name, uint64_t limit)
{
	return kvf_fail(err, KVF_E_GEOMETRY,
		"bad geometry: component=%u entry=%u %s=%" PRIu64 ", %s=%" PRIu64, c, e, name,
		value, limit_name, limit);
}

static int
bad_component(struct kvf_err *err, uint32_t c, const char *name, uint64_t value,
	const char *limit_name, uint64_t limit)
{
	return kvf_fail(err, KVF_E_GEOMETRY,
		"bad geometry: component=%u %s=%" PRIu64 ", %s=%" PRIu64, c, name, value,
		limit_name, limit);
}

static int
check_component(const struct kvf_component *comp, uint32_t c, struct kvf_err *err)
{
	const struct kvf_sharding *sh = &comp->sharding;
	char side[32];
	int rc;

	if (comp->cls < KVF_TOKENS || comp->cls > KVF_AUX)
		return bad_component(err, c, "cls", comp->cls, "limit", KVF_AUX);
	if (comp->cls != KVF_STATE && comp->tag != 0)
		return bad_component(err, c, "tag", comp->tag, "limit", 0);
	if (comp->list >= KVF_MAX_LISTS)
		return bad_component(err, c, "list", comp->list, "limit", KVF_MAX_LISTS - 1);
	if (comp->page_tokens == 0)
		return bad_component(err, c, "page_tokens", 0, "minimum", 1);
	if (comp->cls == KVF_AUX && comp->page_tokens != 1)
		return bad_component(err, c, "page_tokens", comp->page_tokens, "limit", 1);
	if (comp->num_pages == 0)
		return bad_component(err, c, "num_pages", 0, "minimum", 1);
	if (comp->num_pages > KVF_MAX_PAGE_ID)
		return bad_component(
			err, c, "num_pages", comp->num_pages, "limit", KVF_MAX_PAGE_ID);
	if (comp->num_entries == 0)
		return bad_component(err, c, "num_entries", 0, "minimum", 1);
	if (comp->num_entries > KVF_MAX_ENTRIES)
		return bad_component(
			err, c, "num_entries", comp->num_entries, "limit", KVF_MAX_ENTRIES);
	if (comp->entries == NULL)
		return kvf_fail(err, KVF_E_INVAL, "component=%u num_entries=%u entries=NULL", c,
			comp->num_entries);
	if (comp->reserved != 0)
		return bad_component(err, c, "reserved", comp->reserved, "limit", 0);
	if (comp->rule > (comp->cls == KVF_STATE ? KVF_STATE_RING : 0))
		return bad_component(err, c, "rule", comp->rule, "limit",
			comp->cls == KVF_STATE ? KVF_STATE_RING : 0);
	snprintf(side, sizeof(side), "component=%u", c);
	rc = kvf_sharding_check(sh, side, err);
	if (rc != 0)
		return rc;
	if (comp->cls != KVF_TOKENS && (sh->size != 1 || sh->rank != 0 || sh->interleave != 1 ||
					       sh->mode != KVF_SHARD_CYCLIC))
		return kvf_fail(err, KVF_E_SHARDING,
			"only tokens are sharded: component=%u cls=%u size=%u rank=%u "
			"interleave=%u mode=%u, limit {1, 0, 1, 0}",
			c, comp->cls, sh->size, sh->rank, sh->interleave, sh->mode);
	if (sh->mode == KVF_SHARD_BAND && sh->interleave % comp->page_tokens != 0)
		return kvf_fail(err, KVF_E_SHARDING,
			"component=%u has a band of pages of interleave=%u tokens, which is not a "
			"multiple of page_tokens=%u",
			c, sh->interleave, comp->page_tokens);
	return 0;
}

static int
check_entry(const struct kvf_entry *e, uint32_t c, uint32_t i, struct kvf_err *err)
{
	if (e->row_bytes == 0)
		return bad(err, c, i, "row_bytes", 0, "minimum", 1);
	if (e->head_count == 0)
		return bad(err, c, i, "head_count", 0, "minimum", 1);
	if ((uint32_t)e->head_first + e->head_count > e->head_total)
		return bad(err, c, i, "head_first+head_count",
			(uint32_t)e->head_first + e->head_count, "head_total", e->head_total);
	if (e->row_bytes % e->head_count != 0)
		return kvf_fail(err, KVF_E_GEOMETRY,
			"bad geometry: component=%u entry=%u row_bytes=%u is not a multiple of "
			"head_count=%u, remainder=%u",
			c, i, e->row_bytes, e->head_count, e->row_bytes % e->head_count);
	if (e->head_stride != 0 && e->head_stride < e->row_bytes / e->head_count)
		return bad(err, c, i, "head_stride", e->head_stride, "minimum",
			e->row_bytes / e->head_count);
	if (e->reserved[0] != 0 || e->reserved[1] != 0 || e->reserved[2] != 0)
		return bad(err, c, i, "reserved",
			(uint64_t)e->reserved[0] | e->reserved[1] | e->reserved[2], "limit", 0);
	return 0;
}

static int
too_large(struct kvf_err *err, uint32_t c, uint32_t i, const struct dim *d)
{
	return kvf_fail(err, KVF_E_OVERFLOW,
		"geometry overflows 64 bits: component=%u entry=%u %s=%" PRIu64 " count=%" PRIu64
		", limit=%" PRId64,
		c, i, d->name, d->stride, d->count, INT64_MAX);
}

/* Stays within the pool, and no row of the entry meets another: fills in *span. */
static int
check_extent(const struct kvf_component *comp, const struct kvf_entry *e, uint64_t pool_bytes,
	struct span *span, struct kvf_err *err)
{
	uint64_t cell = e->row_bytes / e->head_count;
	uint32_t c = span->component, i = span->entry;
	const struct dim all[3] = {
		{"page_stride", e->page_stride, comp->num_pages},
		{"row_stride", e->row_stride, comp->page_tokens},
		{"head_stride", e->head_stride != 0 ? e->head_stride : cell, e->head_count},
	};
	uint64_t reach, ext = cell, end;
	struct dim d[3] = {{NULL, 0, 0}};
	uint32_t n = 0, k, j;

	/* A dimension of one step never uses its stride. */
	for (k = 0; k < 3; k++) {
		if (all[k].count == 1)
			continue;
		for (j = n++; j > 0 && d[j - 1].stride > all[k].stride; j--)
			d[j] = d[j - 1];
		d[j] = all[k];
	}
	for (k = 0; k < n; k++) {
		if (kvf_mul_overflows(d[k].stride, d[k].count - 1, &reach) ||
			kvf_add_overflows(ext, reach, &ext))
			return too_large(err, c, i, &d[k]);
	}
	if (kvf_add_overflows(e->offset, ext, &end))
		return kvf_fail(err, KVF_E_OVERFLOW,
			"geometry overflows 64 bits: component=%u entry=%u offset=%" PRIu64
			" extent=%" PRIu64,
			c, i, e->offset, ext);
	if (end > pool_bytes)
		return kvf_fail(err, KVF_E_GEOMETRY,
			"entry ends past its pool: component=%u entry=%u layer=%u needs=%" PRIu64
			" pool=%" PRIu64,
			c, i, e->layer, end, pool_bytes);
	/* No file is longer than this, and half the range keeps the sums below from wrapping. */
	if (end > (uint64_t)INT64_MAX)
		return kvf_fail(err, KVF_E_OVERFLOW,
			"no pool is that large: component=%u entry=%u needs=%" PRIu64
			" limit=%" PRId64,
			c, i, end, INT64_MAX);

	/* From the inside out; what is adjacent becomes one dimension, or part of the solid piece.
	 */
	span->off = e->offset;
	span->end = end;
	span->dims = 0;
	ext = cell;
	for (k = 0; k < n; k++) {
		struct dim *prev = span->dims > 0 ? &span->dim[span->dims - 1] : NULL;

		if (d[k].stride < ext)
			return kvf_fail(err, KVF_E_GEOMETRY,
				"rows overlap: component=%u entry=%u layer=%u %s=%" PRIu64
				" minimum=%" PRIu64,
				c, i, e->layer, d[k].name, d[k].stride, ext);
		if (prev == NULL && d[k].stride == cell)
			cell *= d[k].count;
		else if (prev != NULL && d[k].stride % prev->stride == 0 &&
			 d[k].stride / prev->stride == prev->count)
			prev->count *= d[k].count;
		else
			span->dim[span->dims++] = d[k];
		ext += d[k].stride * (d[k].count - 1);
	}
	for (k = 0; k < span->dims / 2; k++) {
		struct dim t = span->dim[k];

		span->dim[k] = span->dim[span->dims - 1 - k];
		span->dim[span->dims - 1 - k] = t;
	}
	span->ext[span->dims] = cell;
	for (k = span->dims; k-- > 0;)
		span->ext[k] = span->dim[k].stride * (span->dim[k].count - 1) + span->ext[k + 1];
	return 0;
}

/* A part of a span: its dimensions from `level` on, with `count` steps in the outermost. */
struct part {
	const struct span *span;
	uint32_t level;
	uint64_t off;
	uint64_t count;
};

static struct part
part_at(const struct span *span, uint32_t level, uint64_t off)
{
	struct part p = {span, level, off, level < span->dims ? span->dim[level].count : 1};

	return p;
}

static uint64_t
part_extent(const struct part *p)
{
	if (p->level == p->span->dims)
		return p->span->ext[p->level];
	return p->span->dim[p->level].stride * (p->count - 1) + p->span->ext[p->level + 1];
}

enum relation {
	APART,
	MEET,
	UNPROVEN, /* strides that have nothing to do with each other */
};

/*
 * Entries that interleave do so with a common period (or one period divides the other): then only
 * the residues matter, one level further in. Each step uses up a dimension, so that
 * this is constant work whatever the number of pages.
 */
static enum relation
relate(struct part a, struct part b)
{
	uint64_t ea = part_extent(&a), eb = part_extent(&b);
	uint64_t stride, inner, first, last, step, rest;
	struct part part;
	enum relation r;

	if (a.off + ea <= b.off || b.off + eb <= a.off)
		return APART;
	/* Let a be the one with the larger outer stride. */
	if (a.level == a.span->dims ||
		(b.level < b.span->dims &&
			b.span->dim[b.level].stride > a.span->dim[a.level].stride)) {
		part = a;
		a = b;
		b = part;
		eb = ea;
	}
	if (a.level == a.span->dims)
		return MEET;

	/* Which repeats of a come near b at all? */
	stride = a.span->dim[a.level].stride;
	inner = a.span->ext[a.level + 1];
	first = b.off >= a.off + inner ? (b.off - a.off - inner) / stride + 1 : 0;
	last = (b.off + eb - 1 - a.off) / stride;
	if (last > a.count - 1)
		last = a.count - 1;
	if (first > last)
		return APART;
	if (first == last)
		return relate(part_at(a.span, a.level + 1, a.off + first * stride), b);
	if (b.level == b.span->dims)
		return MEET;

	step = b.span->dim[b.level].stride;
	if (stride % step != 0)
		return UNPROVEN;
	rest = b.off >= a.off ? (b.off - a.off) % stride
			      : (stride - (a.off - b.off) % stride) % stride;
	if (stride == step) {
		part = part_at(b.span, b.level + 1, rest);
	} else {
		part = part_at(b.span, b.level, rest);
		if (part.count > stride / step)
			part.count = stride / step;
	}
	r = relate(part_at(a.span, a.level + 1, 0), part);
	if (r != APART)
		return r;
	return relate(part_at(a.span, a.level + 1, stride), part);
}

static int
by_offset(const void *x, const void *y)
{
	const struct span *a = x, *b = y;

	if (a->off != b->off)
		return a->off < b->off ? -1 : 1;
	return a->end < b->end ? -1 : a->end > b->end;
}

static int
check_apart(struct span *spans, uint32_t n, uint32_t *open, struct kvf_err *err)
{
	uint32_t num_open = 0, i, j, kept;

	qsort(spans, n, sizeof(*spans), by_offset);
	for (i = 0; i < n; i++) {
		const struct span *b = &spans[i];

		for (j = kept = 0; j < num_open; j++) {
			const struct span *a = &spans[open[j]];
			enum relation r;

			if (a->end <= b->off)
				continue;
			open[kept++] = open[j];
			r = relate(part_at(a, 0, a->off), part_at(b, 0, b->off));
			if (r == APART)
				continue;
			return kvf_fail(err, KVF_E_GEOMETRY,
				"%s: component=%u entry=%u offset=%" PRIu64 " end=%" PRIu64
				" and component=%u entry=%u offset=%" PRIu64 " end=%" PRIu64,
				r == MEET ? "entries overlap"
					  : "entries interleave with unrelated strides",
				a->component, a->entry, a->off, a->end, b->component, b->entry,
				b->off, b->end);
		}
		open[kept++] = i;
		num_open = kept;
	}
	return 0;
}

int
kvf_geometry_check(const struct kvf_geometry *geo, uint64_t pool_bytes, struct kvf_err *err)
{
	uint32_t total = 0, c, i;
	struct span *spans;
	int rc = 0;

	if (geo == NULL)
		return kvf_fail(err, KVF_E_INVAL, "geometry=NULL");
	if (geo->reserved != 0)
		return kvf_fail(
			err, KVF_E_GEOMETRY, "bad geometry: reserved=%u, limit=0", geo->reserved);
	if (geo->num_components == 0 || geo->num_components > KVF_MAX_COMPONENTS)
		return kvf_fail(err, KVF_E_GEOMETRY,
			"bad geometry: num_components=%u, minimum=1 limit=%u", geo->num_components,
			KVF_MAX_COMPONENTS);
	if (geo->components == NULL)
		return kvf_fail(
			err, KVF_E_INVAL, "num_components=%u components=NULL", geo->num_components);
	for (c = 0; c < geo->num_components; c++) {
		rc = check_component(&geo->components[c], c, err);
		if (rc != 0)
			return rc;
		total += geo->components[c].num_entries; /* each at most KVF_MAX_ENTRIES */
	}
	if (total > KVF_MAX_ENTRIES)
		return kvf_fail(err, KVF_E_GEOMETRY,
			"bad geometry: entries=%u in all components, limit=%u", total,
			KVF_MAX_ENTRIES);

	spans = malloc(total * (sizeof(*spans) + sizeof(uint32_t)));
	if (spans == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "no memory to check entries=%u", total);
	total = 0;
	for (c = 0; c < geo->num_components && rc == 0; c++) {
		const struct kvf_component *comp = &geo->components[c];

		for (i = 0; i < comp->num_entries && rc == 0; i++) {
			struct span *span = &spans[total++];

			span->component = c;
			span->entry = i;
			rc = check_entry(&comp->entries[i], c, i, err);
			if (rc == 0)
				rc = check_extent(comp, &comp->entries[i], pool_bytes, span, err);
		}
	}
	if (rc == 0)
		rc = check_apart(spans, total, (uint32_t *)(spans + total), err);
	free(spans);
	return rc;
}
