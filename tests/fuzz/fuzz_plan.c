/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Any plan. What is accepted is worked out position by position from the formulas: the same rows,
 * each once, whatever the size of the pieces that it is taken in; no page that is not in the lists.
 */
#include <stdbool.h>

#include <kvferry/plan.h>

#include "bytes.h"

#define MAX_PAGES  24
#define MAX_ROWS   (64u * 32u) /* page ids are below 64, pages have up to 32 rows */
#define MAX_TOKENS 2048

static void
take_sharding(struct bytes *b, struct kvf_sharding *sh, uint32_t page)
{
	sh->size = 1 + (uint32_t)take_wild(b, 7);
	sh->rank = sh->size == 0 ? 0 : (uint32_t)take_wild(b, 7) % sh->size;
	sh->interleave = 1 + (uint32_t)take_wild(b, 8);
	sh->mode = take8(b) % 4 == 0;
	if (sh->mode == KVF_SHARD_BAND && take8(b) % 8 != 0)
		sh->interleave = page;
}

/* [from, to) that the band has of `total` positions. */
static void
band(const struct kvf_sharding *sh, uint64_t total, uint64_t *from, uint64_t *to)
{
	uint64_t pages = (total + sh->interleave - 1) / sh->interleave;
	uint64_t each = pages / sh->size, more = pages % sh->size;
	uint64_t first = sh->rank * each + (sh->rank < more ? sh->rank : more);

	*from = first * sh->interleave;
	*to = (first + each + (sh->rank < more)) * sh->interleave;
}

static bool
holds(const struct kvf_sharding *sh, uint64_t total, uint64_t p, uint64_t *row)
{
	uint64_t from, to;

	if (sh->mode == KVF_SHARD_BAND) {
		band(sh, total, &from, &to);
		*row = p - from;
		return p >= from && p < to;
	}
	*row = p / ((uint64_t)sh->interleave * sh->size) * sh->interleave + p % sh->interleave;
	return p / sh->interleave % sh->size == sh->rank;
}

/* Rows in front of position p. */
static uint64_t
rows_below(const struct kvf_sharding *sh, uint64_t total, uint64_t p)
{
	uint64_t n = 0, q, row;

	for (q = 0; q < p; q++)
		n += holds(sh, total, q, &row);
	return n;
}

/* want[d] is 1 + the source row that goes to row d. */
static uint64_t
work_out(const struct kvf_plan_spec *s, uint32_t *want)
{
	uint64_t src_base = rows_below(&s->src, s->total, s->start) / s->src_page_tokens;
	uint64_t dst_base = rows_below(&s->dst, s->total, s->prefix) / s->dst_page_tokens;
	uint64_t p = s->start > s->prefix ? s->start : s->prefix, n = 0;

	for (; p < s->start + s->tokens; p++) {
		uint64_t sr, dr, si, di;

		if (!holds(&s->src, s->total, p, &sr) || !holds(&s->dst, s->total, p, &dr))
			continue;
		si = sr / s->src_page_tokens - src_base;
		di = dr / s->dst_page_tokens - dst_base;
		MUST(si < s->num_src_pages);
		MUST(di < s->num_dst_pages);
		dr = (uint64_t)s->dst_pages[di] * s->dst_page_tokens + dr % s->dst_page_tokens;
		sr = (uint64_t)s->src_pages[si] * s->src_page_tokens + sr % s->src_page_tokens;
		MUST(dr < MAX_ROWS && want[dr] == 0);
		want[dr] = (uint32_t)sr + 1;
		n++;
	}
	return n;
}

/* Takes the rows of a run off want[]. */
static uint64_t
tick_off(const struct kvf_plan_spec *s, const struct kvf_run *r, uint32_t *want)
{
	uint64_t n = 0, b, i;

	MUST(r->blocks > 0 && r->block_rows > 0);
	MUST(r->blocks != 1 || (r->src_step == r->block_rows && r->dst_step == r->block_rows));
	for (b = 0; b < r->blocks; b++)
		for (i = 0; i < r->block_rows; i++, n++) {
			uint64_t d = r->dst_row + b * r->dst_step + i;
			uint64_t q = r->src_row + b * r->src_step + i;

			MUST(d < MAX_ROWS && want[d] == q + 1);
			want[d] = 0;
			MUST((s->flags & KVF_PLAN_SPLIT_SRC) == 0 ||
				q / s->src_page_tokens == r->src_row / s->src_page_tokens ||
				r->blocks > 1);
		}
	return n;
}

static void
check_whole(const struct kvf_plan_spec *s, const struct kvf_plan *plan, uint32_t *want)
{
	uint64_t rows = work_out(s, want), n = 0;
	size_t i;

	MUST(plan->rows == rows);
	for (i = 0; i < plan->num_runs; i++)
		n += tick_off(s, &plan->runs[i], want);
	MUST(n == rows);
}

static void
check_pieces(const struct kvf_plan_spec *s, size_t max, uint32_t *want)
{
	uint64_t rows = work_out(s, want), n = 0;
	struct kvf_plan_iter it;
	struct kvf_run runs[8];
	struct kvf_err err;
	size_t got, i;

	MUST(kvf_plan_begin(&it, s, &err) == 0);
	while ((got = kvf_plan_next(&it, runs, max)) != 0) {
		MUST(got <= max);
		for (i = 0; i < got; i++)
			n += tick_off(s, &runs[i], want);
	}
	MUST(n == rows);
}

static void
look_into(const struct kvf_plan_spec *s)
{
	struct kvf_plan_iter it;
	struct kvf_run runs[8];
	struct kvf_err err = {0};
	uint32_t n;

	if (kvf_plan_begin(&it, s, &err) != 0) {
		MUST(err.code < 0 && err.text[0] != '\0');
		return;
	}
	for (n = 0; n < 100; n++)
		if (kvf_plan_next(&it, runs, 8) == 0)
			return;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint32_t want[MAX_ROWS];
	uint32_t src[MAX_PAGES], dst[MAX_PAGES];
	struct bytes b = {data, size};
	struct kvf_plan_spec s = {.src_pages = src, .dst_pages = dst};
	struct kvf_err err = {0};
	struct kvf_plan *plan;
	uint64_t i;
	int rc;

	s.src_page_tokens = (uint32_t)take_wild(&b, 31) + 1;
	s.dst_page_tokens = (uint32_t)take_wild(&b, 31) + 1;
	take_sharding(&b, &s.src, s.src_page_tokens);
	take_sharding(&b, &s.dst, s.dst_page_tokens);
	s.num_src_pages = take_range(&b, 0, MAX_PAGES);
	s.num_dst_pages = take_range(&b, 0, MAX_PAGES);
	s.prefix = take_wild(&b, 200);
	if (take8(&b) % 8 != 0)
		s.prefix = s.prefix / 8 * s.dst_page_tokens * s.dst.size;
	s.start = take_wild(&b, 200);
	if (take8(&b) % 4 == 0)
		s.start += s.prefix;
	s.tokens = take_wild(&b, 239) * (1 + take8(&b) % 4);
	s.total = take8(&b) % 8 != 0 ? s.start + s.tokens + take8(&b) % 32 : take(&b, 8);
	s.flags = take8(&b) % 5;
	for (i = 0; i < s.num_src_pages; i++)
		src[i] = take8(&b) % 66;
	for (i = 0; i < s.num_dst_pages; i++)
		dst[i] = take8(&b) % 66;
	/* A whole plan may be longer than the memory: only looked into. */
	if (s.tokens > 1u << 20) {
		look_into(&s);
		return 0;
	}
	rc = kvf_plan_create(&s, 64, 64, &plan, &err);
	if (rc != 0) {
		MUST(err.code == rc && err.text[0] != '\0' && plan == NULL);
		return 0;
	}
	/* By brute force where that ends. */
	if (s.src_page_tokens <= 32 && s.dst_page_tokens <= 32 && s.tokens <= MAX_TOKENS &&
		s.start <= 1u << 14 && s.prefix <= 1u << 14 && s.total <= 1u << 20) {
		check_whole(&s, plan, want);
		check_pieces(&s, 1 + size % 8, want);
	}
	kvf_plan_free(plan);
	return 0;
}
