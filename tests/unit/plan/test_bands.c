/* SPDX-License-Identifier: BSD-3-Clause */
/* Bands of pages (prefill context parallelism) on either side, against the oracle that deals pages
 * out one by one. */
#include <stdlib.h>
#include <string.h>

#include "common/suite.h"
#include "unit/plan/plan_tests.h"

#define MAX_TOTAL 240u
#define MAX_PAGES (2 * MAX_TOTAL + 8)

static uint32_t src_ids[MAX_PAGES], dst_ids[MAX_PAGES];

static uint32_t
any_page(uint64_t *rng)
{
	static const uint32_t page[] = {1, 2, 3, 4, 8, 16, 32, 64};

	return page[suite_range(rng, 0, 7)];
}

/* A band more often than not; more ranks than pages now and then. */
static struct kvf_sharding
any_sharding(uint64_t *rng, uint32_t page)
{
	struct kvf_sharding sh = {.size = (uint32_t)suite_range(rng, 1, 9), .interleave = 1};

	if (suite_range(rng, 0, 2) > 0) {
		sh.mode = KVF_SHARD_BAND;
		sh.interleave = page * (uint32_t)suite_range(rng, 1, suite_range(rng, 1, 4));
		if (suite_range(rng, 0, 9) == 0)
			sh.size = (uint32_t)suite_range(rng, 100, 1024);
	} else if (suite_range(rng, 0, 1) == 0) {
		sh.interleave = (uint32_t)suite_range(rng, 1, 20);
	}
	sh.rank = (uint32_t)suite_range(rng, 0, sh.size - 1);
	return sh;
}

static uint64_t
prefix_unit(const struct kvf_sharding *sh, uint32_t page)
{
	return (uint64_t)page * (sh->mode == KVF_SHARD_BAND ? 1 : sh->size);
}

static struct kvf_plan_spec
any_spec(uint64_t *rng)
{
	struct kvf_plan_spec spec = {
		.src_page_tokens = any_page(rng), .dst_page_tokens = any_page(rng)};
	uint64_t unit;

	do {
		spec.src = any_sharding(rng, spec.src_page_tokens);
		spec.dst = any_sharding(rng, spec.dst_page_tokens);
	} while (spec.src.mode != KVF_SHARD_BAND && spec.dst.mode != KVF_SHARD_BAND);
	spec.total = suite_range(rng, 0, suite_range(rng, 1, MAX_TOTAL));
	unit = prefix_unit(&spec.dst, spec.dst_page_tokens);
	if (suite_range(rng, 0, 1) == 0)
		spec.prefix = unit * suite_range(rng, 0, spec.total / unit);
	spec.start = suite_range(rng, 0, 2) == 0 ? 0 : suite_range(rng, 0, spec.total);
	spec.tokens = suite_range(rng, 0, spec.total - spec.start);
	if (suite_range(rng, 0, 1) == 0)
		spec.tokens = spec.total - spec.start;
	spec.flags = suite_range(rng, 0, 2) == 0 ? (uint32_t)suite_range(rng, 0, 3) : 0;
	return spec;
}

/* Exactly the pages that must be there, or a few more. */
static void
fill_lists(uint64_t *rng, struct kvf_plan_spec *spec)
{
	uint64_t ns = oracle_src_pages(spec) + suite_range(rng, 0, 1);
	uint64_t nd = oracle_dst_pages(spec) + suite_range(rng, 0, 1);

	if (ns > MAX_PAGES || nd > MAX_PAGES)
		abort();
	fill_pages(rng, src_ids, ns, (uint32_t)(4 * ns + 10), (int)suite_range(rng, 0, 2));
	fill_pages(rng, dst_ids, nd, (uint32_t)(4 * nd + 10), (int)suite_range(rng, 0, 2));
	spec->src_pages = src_ids;
	spec->dst_pages = dst_ids;
	spec->num_src_pages = ns;
	spec->num_dst_pages = nd;
}

void
test_bands_worked(void)
{
	static const uint32_t src[] = {5, 6, 9}, dst[] = {1, 2, 3, 4, 5, 6, 7, 8};
	static const uint64_t from[] = {0, 12, 24}, to[] = {12, 24, 30};
	struct kvf_plan_spec spec = SPEC(4, src, dst, .tokens = 30, .total = 30);
	uint64_t a, b, want;
	uint32_t r;

	/* 30 tokens are 8 pages of 4: 3, 3 and 2 of them. */
	for (r = 0; r < 3; r++) {
		spec.src = (struct kvf_sharding){3, r, 4, KVF_SHARD_BAND};
		kvf_shard_span(&spec.src, 30, &a, &b);
		CHECK_EQ(a, from[r]);
		CHECK_EQ(b, to[r]);
		CHECK_PLAN(&spec, 8);
	}
	/* Fewer pages than ranks: the last ones have nothing, and need nothing. */
	spec.tokens = spec.total = 7;
	for (r = 0; r < 5; r++) {
		spec.src = (struct kvf_sharding){5, r, 4, KVF_SHARD_BAND};
		spec.num_src_pages = r < 2;
		kvf_shard_span(&spec.src, 7, &a, &b);
		want = r == 0 ? 4 : r == 1 ? 3 : 0;
		CHECK_EQ(b - a, want);
		CHECK_PLAN(&spec, 8);
	}
	/* The last page of all is far from the end of 64 bits. */
	spec.src = (struct kvf_sharding){2, 1, 4, KVF_SHARD_BAND};
	kvf_shard_span(&spec.src, UINT64_MAX - 2, &a, &b);
	CHECK(a == 1ull << 63);
	CHECK(b == UINT64_MAX - 2);
}

void
test_bands_random(void)
{
	static const size_t piece[] = {1, 2, 3, 16, 1000};
	uint64_t rng = suite_seed() | 1, c;

	for (c = 0; c < 3000; c++) {
		struct kvf_plan_spec spec = any_spec(&rng);

		fill_lists(&rng, &spec);
		CHECK_PLAN(&spec, piece[suite_range(&rng, 0, 4)]);
	}
}

/* Cut in any way, with a list of its own for each chunk, the bytes are those of the whole. */
void
test_bands_chunks(void)
{
	uint64_t rng = suite_seed() | 1, c;

	for (c = 0; c < 500; c++) {
		struct kvf_plan_spec spec = any_spec(&rng), part;
		uint64_t first, skip, end;
		struct oracle_row *want;
		size_t n, at = 0, i;
		int ok = 1;

		spec.flags = 0;
		fill_lists(&rng, &spec);
		want = calloc(spec.tokens + 1, sizeof(*want));
		n = oracle_plan(&spec, want);
		end = spec.start + spec.tokens;
		first = oracle_rows_of(&spec.src, spec.total, spec.start) / spec.src_page_tokens;
		for (part = spec; ok && part.start < end; part.start += part.tokens) {
			size_t num_runs, num_rows;
			struct kvf_run *runs;
			struct oracle_row *rows;

			part.tokens = suite_range(&rng, 1, end - part.start);
			skip = oracle_rows_of(&spec.src, spec.total, part.start) /
				       spec.src_page_tokens -
			       first;
			skip = skip > spec.num_src_pages ? spec.num_src_pages : skip;
			part.src_pages = spec.src_pages + skip;
			part.num_src_pages = oracle_src_pages(&part);
			runs = plan_runs(&part, 16, &num_runs);
			rows = runs_rows(runs, num_runs, &num_rows);
			for (i = 0; ok && i < num_rows; i++, at++)
				ok = at < n && rows[i].src_row == want[at].src_row &&
				     rows[i].dst_row == want[at].dst_row;
			free(rows);
			free(runs);
		}
		CHECK(ok && at == n);
		free(want);
	}
}

/* Over all source ranks, a destination rank gets each of its positions exactly once. */
void
test_bands_union(void)
{
	uint64_t rng = suite_seed() | 1, c, p, row, base;
	uint8_t seen[2 * MAX_TOTAL + 64];
	uint32_t s;

	for (p = 0; p < MAX_PAGES; p++)
		src_ids[p] = dst_ids[p] = (uint32_t)p;
	for (c = 0; c < 300; c++) {
		struct kvf_plan_spec spec = any_spec(&rng);
		uint64_t lo = spec.start > spec.prefix ? spec.start : spec.prefix;
		int ok = 1;

		spec.src_pages = src_ids;
		spec.dst_pages = dst_ids;
		spec.num_src_pages = spec.num_dst_pages = MAX_PAGES;
		memset(seen, 0, sizeof(seen));
		base = oracle_rows_of(&spec.dst, spec.total, spec.prefix);
		base -= base % spec.dst_page_tokens;
		for (s = 0; s < spec.src.size; s++) {
			size_t num_runs, num_rows, i;
			struct kvf_run *runs;
			struct oracle_row *rows;

			spec.src.rank = s;
			runs = plan_runs(&spec, 64, &num_runs);
			rows = runs_rows(runs, num_runs, &num_rows);
			for (i = 0; i < num_rows && ok; i++) {
				ok = base + rows[i].dst_row < sizeof(seen);
				if (ok)
					seen[base + rows[i].dst_row]++;
			}
			free(rows);
			free(runs);
		}
		for (p = 0, row = 0; p < spec.total && ok; p++) {
			if (!oracle_owns_of(&spec.dst, spec.total, p))
				continue;
			ok = seen[row++] == (p >= lo && p < spec.start + spec.tokens);
		}
		for (; row < sizeof(seen) && ok; row++)
			ok = seen[row] == 0;
		CHECK(ok);
	}
}

/* Does the rank hold any row of [from, end)? */
static int
has_rows(const struct kvf_sharding *sh, uint64_t total, uint64_t from, uint64_t end)
{
	return oracle_rows_of(sh, total, from) != oracle_rows_of(sh, total, end);
}

/* As many pages as the rows need are enough, one fewer is refused: at the source, for a grant. */
void
test_bands_pages(void)
{
	uint64_t rng = suite_seed() | 1, c, need;
	struct kvf_err err;

	for (c = 0; c < 2000; c++) {
		struct kvf_plan_spec spec = any_spec(&rng);

		need = oracle_src_pages(&spec);
		if (spec.src.mode == KVF_SHARD_BAND) {
			CHECK_EQ(kvf_source_check(&spec.src, spec.src_page_tokens, need, spec.start,
					 spec.tokens, spec.total, &err),
				0);
			if (has_rows(&spec.src, spec.total, spec.start, spec.start + spec.tokens))
				CHECK_EQ(kvf_source_check(&spec.src, spec.src_page_tokens, need - 1,
						 spec.start, spec.tokens, spec.total, &err),
					KVF_E_CAPACITY);
		}
		spec.start = spec.prefix;
		spec.tokens = spec.total - spec.prefix;
		need = oracle_dst_pages(&spec);
		CHECK_EQ(kvf_grant_check(&spec.dst, spec.dst_page_tokens, need, spec.prefix,
				 spec.total, &err),
			0);
		if (!has_rows(&spec.dst, spec.total, spec.prefix, spec.total))
			continue;
		CHECK_EQ(kvf_grant_check(&spec.dst, spec.dst_page_tokens, need - 1, spec.prefix,
				 spec.total, &err),
			KVF_E_DST_PAGES);
	}
}

void
test_bands_refuse(void)
{
	static const uint32_t src[] = {5, 6, 9}, dst[] = {1, 2};
	struct kvf_plan_spec spec = SPEC(4, src, dst, .tokens = 30, .total = 30);
	struct kvf_plan_iter it;
	struct kvf_err err;

	spec.src = (struct kvf_sharding){3, 1, 4, KVF_SHARD_BAND};
	CHECK_EQ(kvf_plan_begin(&it, &spec, &err), KVF_E_DST_PAGES);
	CHECK_STR_HAS(err.text, "required=6, provided=2");
	/* Where this source sends nothing, no page is missing. */
	spec.src.rank = 0;
	spec.tokens = 8;
	CHECK_EQ(kvf_plan_begin(&it, &spec, &err), 0);
	spec.src.rank = 2;
	spec.start = 8;
	spec.tokens = 4;
	CHECK_EQ(kvf_plan_begin(&it, &spec, &err), 0);
	/* A chunk past the prompt: then where would the band be? */
	spec.tokens = 23;
	CHECK_EQ(kvf_plan_begin(&it, &spec, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "total=30");
	spec.tokens = 22;
	spec.src.interleave = 6;
	CHECK_EQ(kvf_plan_begin(&it, &spec, &err), KVF_E_SHARDING);
	CHECK_STR_HAS(err.text, "interleave=6");
	CHECK_STR_HAS(err.text, "page_tokens=4");
	spec.src.interleave = 4;
	spec.src.mode = 2;
	CHECK_EQ(kvf_plan_begin(&it, &spec, &err), KVF_E_SHARDING);
	CHECK_STR_HAS(err.text, "mode=2");
	/* A destination band begins with pages of its own, so its prefix is on a page, no more. */
	spec.src = (struct kvf_sharding){1, 0, 1, KVF_SHARD_CYCLIC};
	spec.dst = (struct kvf_sharding){2, 0, 4, KVF_SHARD_BAND};
	spec.start = 0;
	spec.tokens = 8;
	spec.prefix = 4;
	CHECK_EQ(kvf_plan_begin(&it, &spec, &err), 0);
	spec.prefix = 6;
	CHECK_EQ(kvf_plan_begin(&it, &spec, &err), KVF_E_PREFIX);
	CHECK_STR_HAS(err.text, "(4), got 6");
}
