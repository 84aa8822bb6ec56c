/* SPDX-License-Identifier: BSD-3-Clause */
/* The suite's list, its helpers, and plans with known answers. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/suite.h"
#include "unit/plan/plan_tests.h"

struct kvf_run *
plan_runs(const struct kvf_plan_spec *spec, size_t piece, size_t *num_runs)
{
	size_t n = 0, room = 0, got;
	struct kvf_run *runs = NULL;
	struct kvf_plan_iter it;
	struct kvf_err err = {0};

	*num_runs = 0;
	if (!CHECK_EQ(kvf_plan_begin(&it, spec, &err), 0)) {
		CHECK_STR_HAS(err.text, "a plan");
		return NULL;
	}
	do {
		if (n + piece > room) {
			room = 2 * (n + piece);
			runs = realloc(runs, room * sizeof(*runs));
			if (runs == NULL)
				abort();
		}
		got = kvf_plan_next(&it, runs + n, piece);
		CHECK(got <= piece);
		n += got;
	} while (got > 0);
	CHECK_EQ(kvf_plan_next(&it, runs, 1), 0);
	*num_runs = n;
	return runs;
}

struct oracle_row *
runs_rows(const struct kvf_run *runs, size_t num_runs, size_t *num_rows)
{
	struct oracle_row *rows;
	uint64_t b, i, total = 0;
	size_t r, n = 0;

	for (r = 0; r < num_runs; r++)
		total += runs[r].blocks * runs[r].block_rows;
	rows = calloc(total + 1, sizeof(*rows));
	if (rows == NULL)
		abort();
	for (r = 0; r < num_runs; r++) {
		for (b = 0; b < runs[r].blocks; b++) {
			for (i = 0; i < runs[r].block_rows; i++, n++) {
				rows[n].src_row = runs[r].src_row + b * runs[r].src_step + i;
				rows[n].dst_row = runs[r].dst_row + b * runs[r].dst_step + i;
			}
		}
	}
	*num_rows = n;
	return rows;
}

static int
run_is_well_formed(const struct kvf_run *run, const struct kvf_plan_spec *spec)
{
	uint64_t last = (run->blocks - 1) * run->src_step + run->block_rows - 1;

	if (run->blocks == 0 || run->block_rows == 0)
		return 0;
	if (run->blocks == 1 &&
		(run->src_step != run->block_rows || run->dst_step != run->block_rows))
		return 0;
	/* What is adjacent on both sides is one block. */
	if (run->blocks > 1 && run->src_step == run->block_rows && run->dst_step == run->block_rows)
		return 0;
	if (run->src_step < run->block_rows || run->dst_step < run->block_rows)
		return 0;
	if ((spec->flags & KVF_PLAN_SPLIT_SRC) != 0 &&
		run->src_row / spec->src_page_tokens !=
			(run->src_row + last) / spec->src_page_tokens)
		return 0;
	last = (run->blocks - 1) * run->dst_step + run->block_rows - 1;
	return (spec->flags & KVF_PLAN_SPLIT_DST) == 0 ||
	       run->dst_row / spec->dst_page_tokens ==
		       (run->dst_row + last) / spec->dst_page_tokens;
}

void
check_plan(const struct kvf_plan_spec *spec, size_t piece, const char *file, int line)
{
	size_t num_runs, num_rows, num_want, i;
	struct oracle_row *want, *rows;
	struct kvf_run *runs;
	char what[400];
	int ok = 1;

	want = calloc(spec->tokens + 1, sizeof(*want));
	if (want == NULL)
		abort();
	num_want = oracle_plan(spec, want);
	runs = plan_runs(spec, piece, &num_runs);
	rows = runs_rows(runs, num_runs, &num_rows);
	ok = num_rows == num_want;
	for (i = 0; ok && i < num_rows; i++)
		ok = rows[i].src_row == want[i].src_row && rows[i].dst_row == want[i].dst_row;
	for (i = 0; ok && i < num_runs; i++)
		ok = run_is_well_formed(&runs[i], spec);
	/* A merged plan never has more runs than there are stretches of adjacent rows. */
	if (spec->flags == 0)
		ok = ok && num_runs <= oracle_stretches(want, num_want);
	snprintf(what, sizeof(what),
		"src {%u,%u,%u,%u} P %u x %" PRIu64 ", dst {%u,%u,%u,%u} P %u x %" PRIu64
		", prefix %" PRIu64 " start %" PRIu64 " tokens %" PRIu64 " total %" PRIu64
		" flags %u piece %zu: %zu rows of %zu in %zu runs",
		spec->src.size, spec->src.rank, spec->src.interleave, spec->src.mode,
		spec->src_page_tokens, spec->num_src_pages, spec->dst.size, spec->dst.rank,
		spec->dst.interleave, spec->dst.mode, spec->dst_page_tokens, spec->num_dst_pages,
		spec->prefix, spec->start, spec->tokens, spec->total, spec->flags, piece, num_rows,
		num_want, num_runs);
	suite_check(ok, what, file, line);
	free(want);
	free(rows);
	free(runs);
}

/* `pairs`: source row, destination row, in order of position. */
static void
expect_rows(const struct kvf_plan_spec *spec, const uint64_t *pairs, size_t num_pairs)
{
	size_t num_runs, num_rows, i;
	struct kvf_run *runs = plan_runs(spec, 64, &num_runs);
	struct oracle_row *rows = runs_rows(runs, num_runs, &num_rows);

	if (CHECK_EQ(num_rows, num_pairs)) {
		for (i = 0; i < num_pairs; i++) {
			CHECK_EQ(rows[i].src_row, pairs[2 * i]);
			CHECK_EQ(rows[i].dst_row, pairs[2 * i + 1]);
		}
	}
	free(rows);
	free(runs);
	CHECK_PLAN(spec, 64);
}

#define EXPECT_ROWS(spec, ...)                                                                     \
	do {                                                                                       \
		const uint64_t pairs_[] = {__VA_ARGS__};                                           \
		expect_rows((spec), pairs_, sizeof(pairs_) / sizeof(pairs_[0]) / 2);               \
	} while (0)

void
test_worked_cases(void)
{
	static const uint32_t src1[] = {5, 2, 11, 4}, dst1[] = {7};
	static const uint32_t src2[] = {9, 3}, dst2[] = {4, 6};
	static const uint32_t src3[] = {3, 8, 6}, dst3[] = {2};
	static const uint64_t want3[] = {12, 13, 14, 15, 32, 33, 34, 35};
	struct kvf_plan_spec spec = SPEC(2, src1, dst1, .tokens = 8);
	uint32_t r;

	spec.dst.size = 4;
	EXPECT_ROWS(&spec, 10, 14, 22, 15);
	spec.dst.rank = 1;
	EXPECT_ROWS(&spec, 11, 14, 23, 15);
	spec.dst.rank = 2;
	EXPECT_ROWS(&spec, 4, 14, 8, 15);
	spec.dst.rank = 3;
	EXPECT_ROWS(&spec, 5, 14, 9, 15);

	spec = SPEC(2, src2, dst2, .prefix = 4, .start = 6, .tokens = 4);
	spec.dst.size = 2;
	EXPECT_ROWS(&spec, 18, 9, 6, 12);
	spec.dst.rank = 1;
	EXPECT_ROWS(&spec, 19, 9, 7, 12);

	spec = SPEC(4, src3, dst3, .tokens = 9);
	spec.dst.size = 8;
	EXPECT_ROWS(&spec, 12, 8, 24, 9);
	for (r = 1; r < 8; r++) {
		spec.dst.rank = r;
		EXPECT_ROWS(&spec, want3[r], 8);
	}
}

/* Draft entries: replicated on every rank, in pages of P * N tokens there. */
void
test_worked_draft(void)
{
	static const uint32_t src1[] = {5, 2, 11, 4}, dst1[] = {7};
	static const uint32_t src2[] = {9, 3}, dst2[] = {4, 6};
	struct kvf_plan_spec spec = SPEC(2, src1, dst1, .tokens = 8);

	spec.dst_page_tokens = 2 * 4;
	EXPECT_ROWS(&spec, 10, 56, 11, 57, 4, 58, 5, 59, 22, 60, 23, 61, 8, 62, 9, 63);
	spec = SPEC(2, src2, dst2, .prefix = 4, .start = 6, .tokens = 4);
	spec.dst_page_tokens = 2 * 2;
	EXPECT_ROWS(&spec, 18, 18, 19, 19, 6, 24, 7, 25);
}

void
test_empty(void)
{
	static const uint32_t src[] = {3, 8, 6}, dst[] = {2};
	struct kvf_plan_spec spec = SPEC(4, src, dst, .tokens = 0);
	struct kvf_plan *plan;
	size_t n;

	free(plan_runs(&spec, 4, &n));
	CHECK_EQ(n, 0);
	spec.src_pages = spec.dst_pages = NULL;
	spec.num_src_pages = spec.num_dst_pages = 0;
	spec.start = 1000003;
	free(plan_runs(&spec, 4, &n));
	CHECK_EQ(n, 0);
	CHECK_EQ(kvf_plan_create(&spec, 0, 0, &plan, NULL), 0);
	CHECK_EQ(plan->num_runs, 0);
	CHECK_EQ(plan->rows, 0);
	kvf_plan_free(plan);

	/* Wholly before the prefix: no destination page is needed. */
	spec = SPEC(4, src, dst, .prefix = 400, .tokens = 12);
	spec.num_dst_pages = 0;
	free(plan_runs(&spec, 4, &n));
	CHECK_EQ(n, 0);

	/* Ranks that own nothing of the chunk, without any page for it. */
	spec = SPEC(4, src, dst, .start = 64, .tokens = 3);
	spec.dst = (struct kvf_sharding){8, 5, 1, 0};
	spec.num_dst_pages = 0;
	free(plan_runs(&spec, 4, &n));
	CHECK_EQ(n, 0);
	spec.dst = (struct kvf_sharding){1, 0, 1, 0};
	spec.src = (struct kvf_sharding){8, 5, 1, 0};
	spec.num_src_pages = 0;
	free(plan_runs(&spec, 4, &n));
	CHECK_EQ(n, 0);
	/* Even and odd positions never meet. */
	spec = SPEC(4, src, dst, .tokens = 24);
	spec.src = (struct kvf_sharding){2, 0, 1, 0};
	spec.dst = (struct kvf_sharding){4, 3, 1, 0};
	spec.num_dst_pages = 0;
	free(plan_runs(&spec, 4, &n));
	CHECK_EQ(n, 0);
}

/* P 16, L 50, chunks of 24 computed tokens: sends of 16, 32 and 2, and no page twice. */
void
test_sglang_5588(void)
{
	static const uint32_t src[] = {40, 7, 19, 3}, dst[] = {1, 9, 4, 12};
	static const uint64_t start[] = {0, 16, 48, 50}, pages[] = {1, 2, 1};
	struct kvf_plan_spec spec;
	uint8_t seen[64 * 16] = {0};
	uint64_t total = 0;
	size_t c, i, r, n;

	for (c = 0; c < 3; c++) {
		struct kvf_run *runs;

		spec = SPEC(16, src, dst, .start = start[c]);
		spec.tokens = start[c + 1] - start[c];
		spec.src_pages = src + start[c] / 16;
		spec.num_src_pages = pages[c];
		CHECK_EQ(oracle_src_pages(&spec), pages[c]);
		CHECK_PLAN(&spec, 8);
		runs = plan_runs(&spec, 8, &n);
		CHECK_EQ(n, pages[c]);
		for (r = 0; r < n; r++) {
			CHECK_EQ(runs[r].blocks, 1);
			total += runs[r].block_rows;
			for (i = 0; i < runs[r].block_rows; i++)
				CHECK_EQ(seen[runs[r].src_row + i]++, 0);
		}
		free(runs);
	}
	CHECK_EQ(total, 50);
	/* The 14 stale rows behind the tail stay where they are. */
	CHECK_EQ(seen[3 * 16 + 2], 0);
}

void
test_sglang_32997(void)
{
	uint32_t src[525], dst[66];
	uint64_t rng = suite_seed() | 1, total = 0;
	struct kvf_plan_spec spec;
	struct kvf_err err;
	uint32_t r;

	fill_pages(&rng, src, 525, 4096, 1);
	fill_pages(&rng, dst, 66, 512, 1);
	spec = SPEC(64, src, dst, .tokens = 525 * 64);
	for (r = 0; r < 8; r++) {
		struct oracle_row *rows = calloc(spec.tokens, sizeof(*rows));

		spec.dst = (struct kvf_sharding){8, r, 1, 0};
		CHECK_EQ(oracle_dst_pages(&spec), 66);
		CHECK_PLAN(&spec, 1000);
		total += oracle_plan(&spec, rows);
		free(rows);
	}
	CHECK_EQ(total, 525 * 64);
	spec.num_dst_pages = 65;
	CHECK_EQ(kvf_plan_check(&spec, &err), KVF_E_DST_PAGES);
	CHECK_STR_HAS(err.text, "required=66, provided=65");
}

/* Pages of 32 on one side, 64 on the other, either way round. */
void
test_sglang_14439(void)
{
	static const uint32_t p32[] = {10, 11, 30, 31, 5, 4}, p64[] = {3, 8, 20};
	struct kvf_plan_spec spec = SPEC(32, p32, p64, .tokens = 180);
	struct kvf_plan_spec small = SPEC(1, p32, p64, .tokens = 3);
	size_t n;

	small.dst_page_tokens = 2;
	spec.dst_page_tokens = 64;
	EXPECT_ROWS(&small, 10, 6, 11, 7, 30, 16);
	CHECK_PLAN(&spec, 100);
	free(plan_runs(&spec, 100, &n));
	CHECK_EQ(n, 4); /* 10-11, 30-31, 5, 4 */
	spec = SPEC(64, p64, p32, .tokens = 180);
	spec.dst_page_tokens = 32;
	CHECK_PLAN(&spec, 100);
	free(plan_runs(&spec, 100, &n));
	CHECK_EQ(n, 4);
}

/* A cached prefix as chunk 1, the tail as chunk 2: every page-aligned split gives the rows of one
 * plan. */
void
test_sglang_33309(void)
{
	uint32_t src[40], dst[40];
	uint64_t rng = suite_seed() | 1, split;
	struct oracle_row *want = calloc(640, sizeof(*want));
	struct kvf_plan_spec spec;
	size_t n, a, b, i, runs_a, runs_b;
	uint32_t r;

	fill_pages(&rng, src, 40, 200, 1);
	fill_pages(&rng, dst, 40, 200, 1);
	for (r = 0; r < 4; r++) {
		spec = SPEC(16, src, dst, .tokens = 633);
		spec.dst = (struct kvf_sharding){4, r, 1, 0};
		n = oracle_plan(&spec, want);
		for (split = 0; split <= 633; split += 16) {
			struct kvf_plan_spec head = spec, tail = spec;
			struct kvf_run *ra, *rb;
			struct oracle_row *x, *y;
			int ok;

			head.tokens = split;
			head.num_src_pages = split / 16;
			tail.start = split;
			tail.tokens = 633 - split;
			tail.src_pages = src + split / 16;
			tail.num_src_pages = 40 - split / 16;
			ra = plan_runs(&head, 64, &runs_a);
			rb = plan_runs(&tail, 64, &runs_b);
			x = runs_rows(ra, runs_a, &a);
			y = runs_rows(rb, runs_b, &b);
			ok = a + b == n;
			for (i = 0; ok && i < n; i++) {
				const struct oracle_row *row = i < a ? &x[i] : &y[i - a];

				ok = row->src_row == want[i].src_row &&
				     row->dst_row == want[i].dst_row;
			}
			CHECK(ok);
			free(ra);
			free(rb);
			free(x);
			free(y);
		}
	}
	free(want);
}

static size_t
count_runs(const struct kvf_plan_spec *spec)
{
	size_t n;

	free(plan_runs(spec, 1024, &n));
	return n;
}

static void
sequence(uint32_t *ids, uint64_t n, uint32_t first)
{
	uint64_t i;

	for (i = 0; i < n; i++)
		ids[i] = first + (uint32_t)i;
}

void
test_one_run(void)
{
	static uint32_t src[131072], dst[131072];
	struct kvf_plan_spec spec;
	struct kvf_run *runs;
	size_t n;

	sequence(src, 131072, 100);
	sequence(dst, 131072, 7000);
	/* DCP 1 -> 8 */
	spec = SPEC(64, src, dst, .tokens = 131072);
	spec.num_src_pages = 2048;
	spec.num_dst_pages = 256;
	spec.dst = (struct kvf_sharding){8, 3, 1, 0};
	runs = plan_runs(&spec, 16, &n);
	CHECK_EQ(n, 1);
	CHECK_EQ(runs[0].src_row, 100 * 64 + 3);
	CHECK_EQ(runs[0].dst_row, 7000 * 64);
	CHECK_EQ(runs[0].blocks, 16384);
	CHECK_EQ(runs[0].block_rows, 1);
	CHECK_EQ(runs[0].src_step, 8);
	CHECK_EQ(runs[0].dst_step, 1);
	free(runs);
	/* Two blocks, the second of which ends with the chunk */
	spec.dst = (struct kvf_sharding){2, 1, 1, 0};
	spec.tokens = 4;
	CHECK_EQ(count_runs(&spec), 1);
	spec.dst = (struct kvf_sharding){8, 3, 1, 0};
	spec.tokens = 131072;
	/* The same with pages of one token */
	spec.src_page_tokens = spec.dst_page_tokens = 1;
	spec.num_src_pages = 131072;
	spec.num_dst_pages = 16384;
	CHECK_EQ(count_runs(&spec), 1);
	/* ... and with pages that no step divides */
	spec.src_page_tokens = 48;
	spec.dst_page_tokens = 50;
	CHECK_EQ(count_runs(&spec), 1);
	/* 8 -> 1, interleaved by page, from the middle of a block to the middle of another */
	spec = SPEC(64, src, dst, .tokens = 131072);
	spec.num_src_pages = 256;
	spec.num_dst_pages = 2048;
	spec.src = (struct kvf_sharding){8, 3, 64, 0};
	runs = plan_runs(&spec, 16, &n);
	CHECK_EQ(n, 1);
	CHECK_EQ(runs[0].blocks, 256);
	CHECK_EQ(runs[0].block_rows, 64);
	CHECK_EQ(runs[0].src_step, 64);
	CHECK_EQ(runs[0].dst_step, 512);
	free(runs);
	spec.num_src_pages = 2048;
	spec.start = 3 * 64 + 10;
	spec.tokens = 131072 - 512;
	CHECK_EQ(count_runs(&spec), 3);
	/* 1 -> 8 by page */
	spec = SPEC(64, src, dst, .tokens = 131072);
	spec.dst = (struct kvf_sharding){8, 7, 64, 0};
	CHECK_EQ(count_runs(&spec), 1);
	/* N -> N: plain contiguous rows, from anywhere to anywhere */
	spec.src = spec.dst = (struct kvf_sharding){8, 5, 64, 0};
	spec.start = 5 * 64 + 17;
	spec.tokens = 130000;
	runs = plan_runs(&spec, 16, &n);
	CHECK_EQ(n, 1);
	CHECK_EQ(runs[0].blocks, 1);
	CHECK_EQ(runs[0].block_rows, runs[0].src_step);
	CHECK_EQ(runs[0].block_rows, oracle_rows_below(&spec.src, spec.start + spec.tokens) -
					     oracle_rows_below(&spec.src, spec.start));
	free(runs);
	spec.src = spec.dst = (struct kvf_sharding){8, 5, 1, 0};
	CHECK_EQ(count_runs(&spec), 1);
	spec.src = spec.dst = (struct kvf_sharding){1, 0, 1, 0};
	CHECK_EQ(count_runs(&spec), 1);
	/* N -> M, both token by token: one residue class of lcm(6, 4) = 12 */
	spec.start = 0;
	spec.src = (struct kvf_sharding){6, 5, 1, 0};
	spec.dst = (struct kvf_sharding){4, 3, 1, 0};
	runs = plan_runs(&spec, 16, &n);
	CHECK_EQ(n, 1);
	CHECK_EQ(runs[0].src_step, 2);
	CHECK_EQ(runs[0].dst_step, 3);
	CHECK_EQ(runs[0].src_row, 100 * 64 + 1); /* position 11 */
	CHECK_EQ(runs[0].dst_row, 7000 * 64 + 2);
	free(runs);
	/* Token by token to page by page: one run for each destination page */
	spec.src = (struct kvf_sharding){8, 5, 1, 0};
	spec.dst = (struct kvf_sharding){8, 3, 64, 0};
	spec.tokens = 131072;
	CHECK_EQ(count_runs(&spec), 256);
}

/* Whatever the number of tokens, contiguous pages give the same number of runs. */
void
test_runs_do_not_grow(void)
{
	static uint32_t src[200000], dst[200000];
	uint64_t rng = suite_seed() | 1, c, t;

	sequence(src, 200000, 0);
	sequence(dst, 200000, 0);
	for (c = 0; c < 300; c++) {
		static const uint32_t page[] = {1, 2, 3, 16, 32, 48, 64, 128};
		struct kvf_plan_spec spec = SPEC(1, src, dst, .tokens = 0);
		uint32_t inter = (uint32_t)suite_range(&rng, 1, 130);
		size_t first = 0;

		spec.src_page_tokens = page[suite_range(&rng, 0, 7)];
		spec.dst_page_tokens = page[suite_range(&rng, 0, 7)];
		spec.src.interleave = spec.dst.interleave = inter;
		spec.src.size = (uint32_t)suite_range(&rng, 1, 16);
		spec.dst.size = (uint32_t)suite_range(&rng, 1, 16);
		spec.src.rank = (uint32_t)suite_range(&rng, 0, spec.src.size - 1);
		spec.dst.rank = (uint32_t)suite_range(&rng, 0, spec.dst.size - 1);
		/* Whole periods of the pattern: no block is clipped. */
		t = (uint64_t)spec.src.size * spec.dst.size * inter;
		for (spec.tokens = t; spec.tokens < 180000; spec.tokens *= 3) {
			size_t n = count_runs(&spec);

			if (spec.tokens == t)
				first = n;
			CHECK(n <= 1);
			CHECK_EQ(n, first);
		}
	}
}

/* Positions past 32 bits and up to the last one, where a sum of two would wrap. */
void
test_far_positions(void)
{
	static const uint32_t src[] = {5, 6, 9}, dst[] = {2, 8, 4};
	struct kvf_plan_spec spec = SPEC(16, src, dst, .prefix = 1ull << 40);
	struct kvf_plan_spec near = SPEC(16, src, dst, .prefix = 64, .start = 96, .tokens = 8);
	struct kvf_err err;
	uint64_t cap;
	size_t n;

	near.dst = spec.dst = (struct kvf_sharding){4, 1, 1, 0};
	spec.start = (1ull << 40) + 32;
	spec.tokens = 40;
	free(plan_runs(&spec, 8, &n));
	EXPECT_ROWS(&near, 81, 2 * 16 + 8, 85, 2 * 16 + 9);
	CHECK_EQ(n, 2); /* source pages 5-6 meet the first destination page, 9 the second */
	spec = SPEC(16, src, dst, .start = UINT64_MAX - 47 - 16, .tokens = 40);
	spec.prefix = spec.start;
	CHECK_EQ(kvf_plan_capacity(&spec.src, 16, 3, spec.start, &cap, &err), 0);
	CHECK_EQ(cap, 48);
	free(plan_runs(&spec, 8, &n));
	CHECK_EQ(n, 3);
	/* Interleaves and sizes at their limits. */
	spec.prefix = 0;
	spec.start = 0;
	spec.tokens = 48;
	spec.src = (struct kvf_sharding){1024, 0, 1u << 31, 0};
	spec.dst = (struct kvf_sharding){1023, 0, (1u << 31) - 1, 0};
	CHECK_PLAN(&spec, 8);
	spec.dst.rank = 1022;
	CHECK_PLAN(&spec, 8);
}

static const struct suite_case cases[] = {
	{"worked cases", test_worked_cases},
	{"worked draft rows", test_worked_draft},
	{"empty plans", test_empty},
	{"rows below a position", test_rows_below},
	{"sglang 5588: 16, 32, 2", test_sglang_5588},
	{"sglang 32997: 525 pages, 66 pages", test_sglang_32997},
	{"sglang 14439: pages of 32 and 64", test_sglang_14439},
	{"sglang 33309: prefix and tail", test_sglang_33309},
	{"one run, not thousands", test_one_run},
	{"runs do not grow with tokens", test_runs_do_not_grow},
	{"far positions", test_far_positions},
	{"refuses sharding", test_refuse_sharding},
	{"refuses prefix", test_refuse_prefix},
	{"refuses capacity", test_refuse_capacity},
	{"refuses destination pages", test_refuse_destination},
	{"refuses overflow", test_refuse_overflow},
	{"refuses arguments", test_refuse_arguments},
	{"order of refusals", test_order_of_refusals},
	{"capacity counted", test_capacity_counted},
	{"page ids", test_pages_check},
	{"page ids, random", test_pages_random},
	{"create", test_create},
	{"groups", test_group},
	{"groups, random", test_group_random},
	{"random, one shot", test_random_one_shot},
	{"random, deep in the pattern", test_random_deep},
	{"random, chunks", test_random_chunks},
	{"random, union over ranks", test_random_union},
	{"random, far along the pattern", test_random_shifted},
	{"bands, worked", test_bands_worked},
	{"bands, random", test_bands_random},
	{"bands, chunks", test_bands_chunks},
	{"bands, union over ranks", test_bands_union},
	{"bands, pages that a rank needs", test_bands_pages},
	{"bands, refusals", test_bands_refuse},
	{"rings, worked", test_ring_worked},
	{"rings, random", test_ring_random},
};

SUITE_MAIN("plan", cases)
