/* SPDX-License-Identifier: BSD-3-Clause */
/* Random geometry against the oracle. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/suite.h"
#include "unit/plan/plan_tests.h"

#define MAX_PAGES 40000u

static uint32_t src_ids[MAX_PAGES], dst_ids[MAX_PAGES];

static void
shuffle(uint64_t *rng, uint32_t *ids, uint64_t n)
{
	uint64_t i;

	for (i = n; i > 1; i--) {
		uint64_t j = suite_range(rng, 0, i - 1);
		uint32_t t = ids[j];

		ids[j] = ids[i - 1];
		ids[i - 1] = t;
	}
}

void
fill_pages(uint64_t *rng, uint32_t *ids, uint64_t n, uint32_t limit, int mode)
{
	uint64_t first, i, part;

	if (limit < 2 * n)
		limit = (uint32_t)(2 * n);
	first = suite_range(rng, 0, limit - n);
	for (i = 0; i < n; i++)
		ids[i] = (uint32_t)(first + i);
	if (mode == 1) {
		for (i = 0; i < n; i++)
			ids[i] = (uint32_t)(limit / n * i + suite_range(rng, 0, limit / n - 1));
		shuffle(rng, ids, n);
	} else if (mode == 2) {
		/* Cut the sequence in parts and lay gaps between them, or turn parts round. */
		for (i = 0; i < n; i += part) {
			uint64_t k;

			part = suite_range(rng, 1, 9);
			if (part > n - i)
				part = n - i;
			if (suite_range(rng, 0, 2) == 0)
				shuffle(rng, ids + i, part);
			if (suite_range(rng, 0, 2) == 0) {
				for (k = i; k < n; k++)
					ids[k]++;
			}
		}
	}
}

static uint32_t
any_page(uint64_t *rng)
{
	static const uint32_t page[] = {1, 2, 3, 16, 32, 48, 64, 128};

	return page[suite_range(rng, 0, 7)];
}

static struct kvf_sharding
any_sharding(uint64_t *rng, uint32_t page)
{
	static const uint32_t odd[] = {2, 3, 5, 7, 12, 24, 33, 63, 65, 100, 128, 256};
	struct kvf_sharding sh = {.size = (uint32_t)suite_range(rng, 1, 16), .interleave = 1};

	if (suite_range(rng, 0, 3) == 0)
		sh.size = 1;
	switch (suite_range(rng, 0, 3)) {
	case 0:
		sh.interleave = page;
		break;
	case 1:
		sh.interleave = odd[suite_range(rng, 0, 11)];
		break;
	case 2:
		sh.interleave = (uint32_t)suite_range(rng, 1, 40);
		break;
	default:
		break;
	}
	sh.rank = (uint32_t)suite_range(rng, 0, sh.size - 1);
	return sh;
}

/* Lists as long as they must be, or up to two pages longer. */
static void
fill_lists(uint64_t *rng, struct kvf_plan_spec *spec)
{
	uint64_t cap = 0, ns = oracle_src_pages(spec), nd = oracle_dst_pages(spec);

	while (spec->tokens > 0 && ns < MAX_PAGES - 2 && cap < spec->tokens) {
		kvf_plan_capacity(&spec->src, spec->src_page_tokens, ns, spec->start, &cap, NULL);
		ns += cap < spec->tokens;
	}
	ns += suite_range(rng, 0, 2);
	nd += suite_range(rng, 0, 2);
	if (ns > MAX_PAGES || nd > MAX_PAGES)
		abort();
	fill_pages(rng, src_ids, ns, (uint32_t)(4 * ns + 10), (int)suite_range(rng, 0, 2));
	fill_pages(rng, dst_ids, nd, (uint32_t)(4 * nd + 10), (int)suite_range(rng, 0, 2));
	spec->src_pages = src_ids;
	spec->dst_pages = dst_ids;
	spec->num_src_pages = ns;
	spec->num_dst_pages = nd;
}

static struct kvf_plan_spec
any_spec(uint64_t *rng, uint64_t max_tokens)
{
	struct kvf_plan_spec spec = {
		.src_page_tokens = any_page(rng), .dst_page_tokens = any_page(rng)};
	uint64_t virt;

	spec.src = any_sharding(rng, spec.src_page_tokens);
	spec.dst = any_sharding(rng, spec.dst_page_tokens);
	if (suite_range(rng, 0, 9) == 0)
		spec.dst = spec.src;
	virt = (uint64_t)spec.dst_page_tokens * spec.dst.size;
	if (suite_range(rng, 0, 1) == 0)
		spec.prefix = virt * suite_range(rng, 0, max_tokens / virt);
	switch (suite_range(rng, 0, 2)) {
	case 0:
		spec.start = spec.prefix;
		break;
	case 1:
		spec.start = suite_range(rng, 0, spec.prefix + max_tokens / 2);
		break;
	default:
		break;
	}
	spec.tokens = suite_range(rng, 0, max_tokens);
	if (suite_range(rng, 0, 3) == 0)
		spec.tokens = suite_range(rng, 0, 70);
	spec.flags = suite_range(rng, 0, 2) == 0 ? (uint32_t)suite_range(rng, 0, 3) : 0;
	return spec;
}

void
test_rows_below(void)
{
	uint64_t rng = suite_seed() | 1, c, pos;

	for (c = 0; c < 300; c++) {
		struct kvf_sharding sh = any_sharding(&rng, any_page(&rng));
		int ok = 1;
		uint64_t n = 0;

		for (pos = 0; pos < 3000; pos++) {
			ok = ok && kvf_shard_rows(&sh, pos) == n;
			n += (uint64_t)oracle_owns(&sh, pos);
		}
		CHECK(ok);
	}
	CHECK(kvf_shard_rows(&(struct kvf_sharding){1, 0, 64, 0}, UINT64_MAX) == UINT64_MAX);
	CHECK(kvf_shard_rows(&(struct kvf_sharding){2, 1, 1, 0}, UINT64_MAX) == UINT64_MAX / 2);
}

void
test_random_one_shot(void)
{
	static const size_t piece[] = {1, 2, 3, 16, 100000};
	uint64_t rng = suite_seed() | 1, c;

	for (c = 0; c < 6000; c++) {
		struct kvf_plan_spec spec = any_spec(&rng, c % 8 == 0 ? 12000 : 1500);

		fill_lists(&rng, &spec);
		CHECK_PLAN(&spec, piece[suite_range(&rng, 0, 4)]);
	}
}

/* Where the pattern's period is far larger than the chunk: every phase of it must come up. */
void
test_random_deep(void)
{
	uint64_t rng = suite_seed() | 1, c;

	for (c = 0; c < 1500; c++) {
		struct kvf_plan_spec spec = {
			.src_page_tokens = any_page(&rng), .dst_page_tokens = any_page(&rng)};

		spec.src.size = (uint32_t)suite_range(&rng, 2, 40);
		spec.dst.size = (uint32_t)suite_range(&rng, 2, 40);
		spec.src.interleave = (uint32_t)suite_range(&rng, 1, 90);
		spec.dst.interleave = (uint32_t)suite_range(&rng, 1, 90);
		spec.src.rank = (uint32_t)suite_range(&rng, 0, spec.src.size - 1);
		spec.dst.rank = (uint32_t)suite_range(&rng, 0, spec.dst.size - 1);
		spec.start = suite_range(&rng, 0, 30000);
		spec.tokens = suite_range(&rng, 0, 9000);
		fill_lists(&rng, &spec);
		CHECK_PLAN(&spec, 64);
	}
}

/* A request sent in any chunks, each with its own source list, is the request sent at once. */
void
test_random_chunks(void)
{
	uint64_t rng = suite_seed() | 1, c;

	for (c = 0; c < 1000; c++) {
		struct kvf_plan_spec spec = any_spec(&rng, 2500), part;
		struct oracle_row *want, *rows;
		size_t n, num_runs, num_rows, at = 0, i;
		uint64_t end, first, skip, cap;
		int ok = 1;

		spec.flags = 0;
		fill_lists(&rng, &spec);
		want = calloc(spec.tokens + 1, sizeof(*want));
		n = oracle_plan(&spec, want);
		end = spec.start + spec.tokens;
		first = oracle_rows_below(&spec.src, spec.start) / spec.src_page_tokens;
		for (part = spec; part.start < end; part.start += part.tokens) {
			struct kvf_run *runs;

			part.tokens = suite_range(&rng, 1, suite_range(&rng, 1, 800));
			if (part.tokens > end - part.start)
				part.tokens = end - part.start;
			skip = oracle_rows_below(&spec.src, part.start) / spec.src_page_tokens -
			       first;
			if (skip > spec.num_src_pages)
				skip = spec.num_src_pages;
			part.src_pages = spec.src_pages + skip;
			part.num_src_pages = spec.num_src_pages - skip;
			/* Only as many as this chunk needs, sometimes. */
			if (suite_range(&rng, 0, 1) == 0) {
				uint64_t need = oracle_src_pages(&part);

				kvf_plan_capacity(&part.src, part.src_page_tokens, need, part.start,
					&cap, NULL);
				if (cap >= part.tokens)
					part.num_src_pages = need;
			}
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

/* Over all pairs of ranks every position arrives exactly once, at the row that holds it. */
void
test_random_union(void)
{
	static uint8_t seen[16][6000];
	uint64_t rng = suite_seed() | 1, c, p;

	for (p = 0; p < MAX_PAGES; p++)
		src_ids[p] = dst_ids[p] = (uint32_t)p;
	for (c = 0; c < 60; c++) {
		struct kvf_plan_spec spec = any_spec(&rng, 2000);
		uint64_t end = spec.start + spec.tokens, base;
		uint64_t lo = spec.start > spec.prefix ? spec.start : spec.prefix;
		uint32_t s, d;
		int ok = 1;

		memset(seen, 0, sizeof(seen));
		spec.src_pages = src_ids;
		spec.dst_pages = dst_ids;
		spec.num_src_pages = spec.num_dst_pages = MAX_PAGES;
		for (d = 0; d < spec.dst.size; d++) {
			spec.dst.rank = d;
			base = oracle_rows_below(&spec.dst, spec.prefix);
			base -= base % spec.dst_page_tokens;
			for (s = 0; s < spec.src.size; s++) {
				size_t num_runs, num_rows, i;
				struct kvf_run *runs;
				struct oracle_row *rows;

				spec.src.rank = s;
				runs = plan_runs(&spec, 64, &num_runs);
				rows = runs_rows(runs, num_runs, &num_rows);
				for (i = 0; i < num_rows; i++)
					seen[d][base + rows[i].dst_row]++;
				free(rows);
				free(runs);
			}
		}
		for (p = 0; p < end; p++) {
			for (d = 0; d < spec.dst.size; d++) {
				spec.dst.rank = d;
				if (oracle_owns(&spec.dst, p) && p >= lo)
					ok = ok && seen[d][oracle_rows_below(&spec.dst, p)] == 1;
			}
		}
		/* ... and nothing else does. */
		for (d = 0; d < spec.dst.size; d++) {
			spec.dst.rank = d;
			for (p = 0; p < oracle_rows_below(&spec.dst, lo); p++)
				ok = ok && seen[d][p] == 0;
			for (p = oracle_rows_below(&spec.dst, end < lo ? lo : end); p < 6000; p++)
				ok = ok && seen[d][p] == 0;
		}
		CHECK(ok);
	}
}

/*
 * Any number of whole periods on (of the pattern and of both page sizes), the plan is the same.
 * Nothing that counts its way up to the start would come to an end here.
 */
void
test_random_shifted(void)
{
	uint64_t rng = suite_seed() | 1, c;

	for (c = 0; c < 1500; c++) {
		struct kvf_plan_spec spec = any_spec(&rng, 1500), far;
		uint64_t shift = (uint64_t)spec.src_page_tokens * spec.dst_page_tokens;
		size_t n, num_far;
		struct kvf_run *runs, *far_runs;

		fill_lists(&rng, &spec);
		shift *= (uint64_t)spec.src.size * spec.src.interleave;
		shift *= (uint64_t)spec.dst.size * spec.dst.interleave;
		shift *= suite_range(&rng, 1, (UINT64_MAX / 2) / shift);
		far = spec;
		far.start += shift;
		far.prefix += shift;
		runs = plan_runs(&spec, 64, &n);
		far_runs = plan_runs(&far, 64, &num_far);
		if (CHECK_EQ(n, num_far) && n > 0)
			CHECK_EQ(memcmp(runs, far_runs, n * sizeof(*runs)), 0);
		free(runs);
		free(far_runs);
	}
}
