/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cuts the strips that two shardings share at page boundaries and gives out runs.
 *
 * A local row lies at `page_list[l / P] * P + l % P`. Along a strip the pool rows advance evenly
 * for as long as `page_list[i] - i` is the same for every page touched, whatever lies between. Such
 * a stretch is called an extent; a run is what the current extents of the two sides have in common.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <kvferry/plan.h>

#include "base/err.h"
#include "plan/joint.h"

/* What never changes about one side of a plan. */
struct side {
	const uint32_t *ids;
	uint64_t first_row; /* local row of slot 0 of ids[0] */
	uint32_t page_tokens;
	bool split;
};

/* How blocks of a strip follow each other on one side. Divisions are done here, once per kind of
 * strip. */
struct stride {
	uint64_t step;  /* rows from block to block */
	uint64_t pages; /* step / page_tokens */
	uint32_t slots; /* step % page_tokens */
	uint32_t reserved;
	uint64_t magic; /* ceil(2^64 / step): exact for 32-bit numerators; 0: step is 1 or a page or
			   more */
};

/* Where one side stands. */
struct cursor {
	uint64_t row;    /* pool row of the current block */
	uint64_t extent; /* blocks from it on that advance evenly */
	uint64_t page;   /* the block after the extent: index in the list, and slot */
	uint32_t slot;
	uint32_t reserved;
};

struct __attribute__((may_alias)) state {
	struct kvf_joint joint;
	struct side side[2]; /* source, destination */
	struct stride stride[2];
	struct cursor cur[2];
	uint64_t left; /* blocks left in the strip */
	uint64_t rows; /* rows of a block */
	/* A block that a page boundary breaks is taken apart row by row (in extents, of course). */
	struct cursor part[2];
	uint64_t part_left; /* rows left of it */
};

static_assert(sizeof(struct state) <= sizeof(struct kvf_plan_iter), "state must fit");
static_assert(_Alignof(struct state) <= _Alignof(struct kvf_plan_iter), "state must fit");

static void
set_stride(struct stride *st, uint64_t step, uint32_t page_tokens)
{
	if (st->step == step)
		return;
	st->step = step;
	st->pages = step / page_tokens;
	st->slots = (uint32_t)(step % page_tokens);
	st->magic = step > 1 && step < page_tokens ? UINT64_MAX / step + 1 : 0;
}

/*
 * Finds the extent of the block at cursor (page, slot), at most `want` blocks, and moves the cursor
 * past it. An extent of 0: the first block itself is broken by a page boundary; the cursor stays on
 * it.
 */
static inline void
refill(struct cursor *cur, const struct side *side, const struct stride *st, uint64_t rows,
	uint64_t want)
{
	const uint32_t *ids = side->ids;
	const uint32_t page_tokens = side->page_tokens;
	uint64_t page = cur->page, n = 0, blocks, next, last, i;
	uint32_t slot = cur->slot;
	const uint64_t delta = ids[page] - page;

	cur->row = (uint64_t)ids[page] * page_tokens + slot;
	for (;;) {
		/* Blocks that begin in this page. */
		uint64_t behind = page_tokens - 1 - slot;

		if (st->step == 1)
			blocks = behind + 1;
		else if (st->magic != 0)
			blocks = (uint64_t)(((unsigned __int128)st->magic * behind) >> 64) + 1;
		else
			blocks = 1;
		if (blocks > want - n)
			blocks = want - n;
		last = slot + (blocks - 1) * st->step;
		/* Only the last of them can reach into further pages. */
		if (last + rows > page_tokens) {
			bool broken = side->split;

			next = page + (last + rows - 1) / page_tokens;
			for (i = page + 1; i <= next && !broken; i++)
				broken = ids[i] - i != delta;
			if (broken) {
				n += blocks - 1;
				cur->slot = (uint32_t)last;
				cur->page = page;
				cur->extent = n;
				return;
			}
		}
		n += blocks;
		last += st->slots;
		page += st->pages;
		if (last >= page_tokens) {
			last -= page_tokens;
			page++;
		}
		slot = (uint32_t)last;
		/* The page after the last block may lie past the list. */
		if (n == want || side->split || ids[page] - page != delta)
			break;
	}
	cur->page = page;
	cur->slot = slot;
	cur->extent = n;
}

static inline void
advance(struct cursor *cur, uint64_t blocks, uint64_t step)
{
	cur->row += blocks * step;
	cur->extent -= blocks;
}

static inline void
put_rows(struct kvf_run *run, const struct cursor *src, const struct cursor *dst, uint64_t rows)
{
	run->src_row = src->row;
	run->dst_row = dst->row;
	run->blocks = 1;
	run->block_rows = rows;
	run->src_step = rows;
	run->dst_step = rows;
}

static inline uint64_t
common(const struct cursor *a, const struct cursor *b)
{
	return a->extent < b->extent ? a->extent : b->extent;
}

/* Up to `max` runs of adjacent rows, out of *left rows at the cursors. */
static size_t
take_rows(const struct side side[2], struct cursor cur[2], uint64_t *left, struct kvf_run *runs,
	size_t max)
{
	struct cursor src = cur[0], dst = cur[1];
	const struct stride src_unit = {
		.step = 1,
		.pages = side[0].page_tokens == 1,
		.slots = side[0].page_tokens != 1,
	};
	const struct stride dst_unit = {
		.step = 1,
		.pages = side[1].page_tokens == 1,
		.slots = side[1].page_tokens != 1,
	};
	uint64_t rest = *left, k;
	size_t n = 0;

	for (; n < max && rest > 0; n++) {
		if (src.extent == 0)
			refill(&src, &side[0], &src_unit, 1, rest);
		if (dst.extent == 0)
			refill(&dst, &side[1], &dst_unit, 1, rest);
		k = common(&src, &dst);
		put_rows(&runs[n], &src, &dst, k);
		advance(&src, k, 1);
		advance(&dst, k, 1);
		rest -= k;
	}
	cur[0] = src;
	cur[1] = dst;
	*left = rest;
	return n;
}

/*
 * Up to `max` runs of whole blocks. Stops at a block that a boundary breaks on either side and sets
 * it up in part[] and part_left.
 */
static size_t
take_blocks(struct state *st, struct kvf_run *runs, size_t max)
{
	struct cursor src = st->cur[0], dst = st->cur[1];
	const uint64_t src_step = st->stride[0].step, dst_step = st->stride[1].step;
	const uint64_t rows = st->rows;
	uint64_t left = st->left, k, slot;
	size_t n = 0;
	int i;

	for (; n < max && left > 0; n++) {
		if (src.extent == 0)
			refill(&src, &st->side[0], &st->stride[0], rows, left);
		if (dst.extent == 0)
			refill(&dst, &st->side[1], &st->stride[1], rows, left);
		k = common(&src, &dst);
		if (k == 0)
			break;
		left -= k;
		if (k == 1) {
			put_rows(&runs[n], &src, &dst, rows);
		} else {
			runs[n].src_row = src.row;
			runs[n].dst_row = dst.row;
			runs[n].blocks = k;
			runs[n].block_rows = rows;
			runs[n].src_step = src_step;
			runs[n].dst_step = dst_step;
		}
		advance(&src, k, src_step);
		advance(&dst, k, dst_step);
	}
	st->cur[0] = src;
	st->cur[1] = dst;
	if (n < max && left > 0) {
		left--;
		st->part_left = rows;
		for (i = 0; i < 2; i++) {
			struct cursor *cur = &st->cur[i];

			st->part[i] = *cur;
			if (cur->extent > 0) {
				/* Whole on this side: all its rows advance evenly. */
				st->part[i].extent = rows;
				advance(cur, 1, st->stride[i].step);
				continue;
			}
			slot = (uint64_t)cur->slot + st->stride[i].slots;
			cur->page += st->stride[i].pages;
			if (slot >= st->side[i].page_tokens) {
				slot -= st->side[i].page_tokens;
				cur->page++;
			}
			cur->slot = (uint32_t)slot;
		}
	}
	st->left = left;
	return n;
}

static void
place(struct cursor *cur, const struct side *side, uint64_t local_row)
{
	uint64_t rel = local_row - side->first_row;

	cur->extent = 0;
	cur->page = rel / side->page_tokens;
	cur->slot = (uint32_t)(rel % side->page_tokens);
}

static bool
next_strip(struct state *st)
{
	struct kvf_strip strip;

	if (!kvf_joint_next(&st->joint, &strip))
		return false;
	place(&st->cur[0], &st->side[0], strip.src);
	place(&st->cur[1], &st->side[1], strip.dst);
	st->left = strip.count;
	st->rows = strip.rows;
	if (strip.count == 1 || (strip.src_step == strip.rows && strip.dst_step == strip.rows)) {
		/* One stretch of adjacent rows: take it as the parts of one block. */
		st->part_left = strip.rows * strip.count;
		st->part[0] = st->cur[0];
		st->part[1] = st->cur[1];
		st->left = 0;
		return true;
	}
	set_stride(&st->stride[0], strip.src_step, st->side[0].page_tokens);
	set_stride(&st->stride[1], strip.dst_step, st->side[1].page_tokens);
	return true;
}

int
kvf_plan_begin(struct kvf_plan_iter *it, const struct kvf_plan_spec *spec, struct kvf_err *err)
{
	struct state *st = (struct state *)it;
	struct kvf_resolved r;
	int rc;

	rc = kvf_plan_check(spec, err);
	if (rc != 0)
		return rc;
	*st = (struct state){
		.side[0] = {.ids = spec->src_pages,
			.page_tokens = spec->src_page_tokens,
			.split = (spec->flags & KVF_PLAN_SPLIT_SRC) != 0},
		.side[1] = {.ids = spec->dst_pages,
			.page_tokens = spec->dst_page_tokens,
			.split = (spec->flags & KVF_PLAN_SPLIT_DST) != 0},
	};
	kvf_plan_resolve(spec, &r);
	st->side[0].first_row = kvf_shard_rows(&r.src, r.src_base);
	st->side[0].first_row -= st->side[0].first_row % spec->src_page_tokens;
	st->side[1].first_row = kvf_shard_rows(&r.dst, r.dst_base);
	st->side[1].first_row -= st->side[1].first_row % spec->dst_page_tokens;
	kvf_joint_init(&st->joint, &r.src, &r.dst, r.lo, r.hi);
	return 0;
}

size_t
kvf_plan_next(struct kvf_plan_iter *it, struct kvf_run *runs, size_t max)
{
	struct state *st = (struct state *)it;
	size_t n = 0;

	while (n < max) {
		if (st->part_left > 0)
			n += take_rows(st->side, st->part, &st->part_left, runs + n, max - n);
		else if (st->left > 0)
			n += take_blocks(st, runs + n, max - n);
		else if (!next_strip(st))
			break;
	}
	return n;
}

int
kvf_plan_create(const struct kvf_plan_spec *spec, uint32_t src_num_pages, uint32_t dst_num_pages,
	struct kvf_plan **plan, struct kvf_err *err)
{
	struct kvf_plan *p = NULL, *grown;
	struct kvf_plan_iter it;
	size_t room = 0, n = 0, got, i;
	struct kvf_run *runs = NULL;
	uint64_t rows = 0;
	int rc;

	*plan = NULL;
	rc = kvf_plan_begin(&it, spec, err);
	if (rc == 0)
		rc = kvf_pages_check(spec->src_pages, spec->num_src_pages,
			src_num_pages == 0 ? KVF_MAX_PAGE_ID : src_num_pages, 0, "src", err);
	if (rc == 0)
		rc = kvf_pages_check(spec->dst_pages, spec->num_dst_pages,
			dst_num_pages == 0 ? KVF_MAX_PAGE_ID : dst_num_pages, 1, "dst", err);
	if (rc != 0)
		return rc;
	do {
		if (n == room) {
			room = room == 0 ? 64 : room * 2;
			grown = realloc(p, sizeof(*p) + room * sizeof(*runs));
			if (grown == NULL)
				goto nomem;
			p = grown;
			runs = (struct kvf_run *)(p + 1);
		}
		got = kvf_plan_next(&it, runs + n, room - n);
		for (i = n; i < n + got; i++)
			rows += runs[i].blocks * runs[i].block_rows;
		n += got;
	} while (got > 0);
	/* Giving back what is too much; where even that fails, the larger block serves as well. */
	grown = realloc(p, sizeof(*p) + n * sizeof(*runs));
	if (grown != NULL)
		p = grown;
	p->num_runs = n;
	p->rows = rows;
	p->runs = (const struct kvf_run *)(p + 1);
	*plan = p;
	return 0;
nomem:
	free(p);
	return kvf_fail(err, KVF_E_NOMEM, "no memory for a plan of more than runs=%zu", n);
}

void
kvf_plan_free(struct kvf_plan *plan)
{
	free(plan);
}
