/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of ids: range, uniqueness, whole plans with their checks, contiguous groups. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/suite.h"
#include "unit/plan/plan_tests.h"

void
test_pages_check(void)
{
	const uint32_t few[] = {5, 2, 11, 4, 2};
	uint32_t *ids = calloc(100000, sizeof(*ids));
	struct kvf_err err;
	uint32_t i;

	CHECK_EQ(kvf_pages_check(few, 5, 12, 0, "src", &err), 0);
	CHECK_EQ(kvf_pages_check(few, 4, 12, 1, "src", &err), 0);
	CHECK_EQ(kvf_pages_check(NULL, 0, 0, 1, "src", &err), 0);
	CHECK_EQ(kvf_pages_check(NULL, 1, 9, 1, "src", &err), KVF_E_INVAL);
	CHECK_EQ(kvf_pages_check(few, 5, 11, 0, "src", &err), KVF_E_PAGE);
	CHECK_EQ(strcmp(err.text, "src page=11 at index=2 must be below limit=11"), 0);
	CHECK_EQ(kvf_pages_check(few, 1, 0, 0, "src", &err), KVF_E_PAGE);
	CHECK_EQ(kvf_pages_check(few, 5, 12, 1, "dst", &err), KVF_E_DUP_PAGE);
	CHECK_EQ(strcmp(err.text, "dst page=2 stands in the list twice: first=1, second=4"), 0);
	CHECK_EQ(kvf_pages_check(few, 5, 12, 1, "dst", NULL), KVF_E_DUP_PAGE);

	/* -1 cast to an id is never one. */
	ids[0] = UINT32_MAX;
	CHECK_EQ(kvf_pages_check(ids, 1, UINT32_MAX, 0, "src", &err), KVF_E_PAGE);
	CHECK_STR_HAS(err.text, "page=4294967295");
	CHECK_STR_HAS(err.text, "limit=2147483647");
	ids[0] = KVF_MAX_PAGE_ID;
	CHECK_EQ(kvf_pages_check(ids, 1, UINT32_MAX, 0, "src", &err), KVF_E_PAGE);

	/* Many, dense: one pair far apart. */
	for (i = 0; i < 100000; i++)
		ids[i] = 99999 - i;
	CHECK_EQ(kvf_pages_check(ids, 100000, 100000, 1, "dst", &err), 0);
	ids[77777] = ids[12345];
	CHECK_EQ(kvf_pages_check(ids, 100000, 100000, 1, "dst", &err), KVF_E_DUP_PAGE);
	CHECK_STR_HAS(err.text, "page=87654 stands in the list twice: first=12345, second=77777");
	/* More ids than there are values. */
	for (i = 0; i < 100000; i++)
		ids[i] = i % 33333;
	CHECK_EQ(kvf_pages_check(ids, 100000, 33333, 1, "dst", &err), KVF_E_DUP_PAGE);
	CHECK_STR_HAS(err.text, "page=0 stands in the list twice: first=0, second=33333");
	/* Few and far apart. */
	for (i = 0; i < 1000; i++)
		ids[i] = (i * 2147483u) ^ (i & 7);
	ids[1000] = KVF_MAX_PAGE_ID - 1;
	CHECK_EQ(kvf_pages_check(ids, 1001, KVF_MAX_PAGE_ID, 1, "dst", &err), 0);
	ids[1001] = KVF_MAX_PAGE_ID - 1;
	ids[1002] = ids[3];
	CHECK_EQ(kvf_pages_check(ids, 1003, KVF_MAX_PAGE_ID, 1, "dst", &err), KVF_E_DUP_PAGE);
	CHECK_STR_HAS(
		err.text, "page=2147483646 stands in the list twice: first=1000, second=1001");
	free(ids);
}

void
test_pages_random(void)
{
	uint64_t rng = suite_seed() | 1, c, i, j;
	uint32_t ids[300];
	struct kvf_err err;

	for (c = 0; c < 6000; c++) {
		uint64_t n = suite_range(&rng, 0, c % 3 == 0 ? 20 : 299);
		uint64_t top = 1ull << suite_range(&rng, 1, 31);
		int want = 0, got;
		char text[120] = "";

		for (i = 0; i < n; i++)
			ids[i] = (uint32_t)suite_range(&rng, 0, top - 2);
		for (j = 0; j < n && want == 0; j++) {
			for (i = 0; i < j && want == 0; i++) {
				if (ids[i] != ids[j])
					continue;
				want = KVF_E_DUP_PAGE;
				snprintf(text, sizeof(text),
					"page=%u stands in the list twice: first=%" PRIu64
					", second=%" PRIu64,
					ids[i], i, j);
			}
		}
		got = kvf_pages_check(ids, n, KVF_MAX_PAGE_ID, 1, "dst", &err);
		if (CHECK_EQ(got, want) && want != 0)
			CHECK_STR_HAS(err.text, text);
	}
}

void
test_create(void)
{
	static const uint32_t src[] = {5, 2, 11, 4}, dst[] = {7, 9}, twice[] = {7, 7};
	struct kvf_plan_spec spec = SPEC(4, src, dst, .tokens = 16);
	uint64_t rng = suite_seed() | 1;
	struct kvf_plan *plan;
	struct kvf_run *runs;
	struct kvf_err err;
	uint32_t *many;
	size_t n;

	spec.dst = (struct kvf_sharding){2, 1, 1, 0};
	CHECK_EQ(kvf_plan_create(&spec, 12, 10, &plan, &err), 0);
	CHECK_EQ(plan->rows, 8);
	CHECK_EQ(plan->num_runs, 4);
	CHECK_EQ(plan->runs[0].src_row, 21);
	CHECK_EQ(plan->runs[0].dst_row, 28);
	CHECK_EQ(plan->runs[0].blocks, 2);
	kvf_plan_free(plan);
	kvf_plan_free(NULL);
	CHECK_EQ(kvf_plan_create(&spec, 11, 10, &plan, &err), KVF_E_PAGE);
	CHECK(plan == NULL);
	CHECK_STR_HAS(err.text, "src page=11 at index=2 must be below limit=11");
	CHECK_EQ(kvf_plan_create(&spec, 12, 9, &plan, &err), KVF_E_PAGE);
	CHECK_STR_HAS(err.text, "dst page=9 at index=1 must be below limit=9");
	CHECK_EQ(kvf_plan_create(&spec, 0, 0, &plan, &err), 0);
	kvf_plan_free(plan);
	/* A source page may serve twice, a destination page may not. */
	spec.dst_pages = twice;
	CHECK_EQ(kvf_plan_create(&spec, 0, 0, &plan, &err), KVF_E_DUP_PAGE);
	CHECK_STR_HAS(err.text, "dst page=7");
	CHECK_STR_HAS(err.text, "first=0, second=1");
	spec = SPEC(8, twice, dst, .tokens = 16);
	CHECK_EQ(kvf_plan_create(&spec, 0, 0, &plan, &err), 0);
	CHECK_EQ(plan->rows, 16);
	kvf_plan_free(plan);

	/* Thousands of runs: the same as piece by piece. */
	many = calloc(2 * 5000, sizeof(*many));
	fill_pages(&rng, many, 5000, 20000, 1);
	fill_pages(&rng, many + 5000, 5000, 20000, 1);
	spec = SPEC(3, src, dst, .tokens = 14998);
	spec.src_pages = many;
	spec.dst_pages = many + 5000;
	spec.num_src_pages = spec.num_dst_pages = 5000;
	CHECK_EQ(kvf_plan_create(&spec, 20000, 20000, &plan, &err), 0);
	CHECK_EQ(plan->rows, 14998);
	runs = plan_runs(&spec, 7, &n);
	if (CHECK_EQ(plan->num_runs, n))
		CHECK_EQ(memcmp(plan->runs, runs, n * sizeof(*runs)), 0);
	free(runs);
	kvf_plan_free(plan);
	free(many);
}

static void
expect_groups(const int64_t *src, uint64_t num_src, const int64_t *dst, uint64_t num_dst,
	const struct kvf_group *want, uint64_t num_want)
{
	struct kvf_group got[16];
	struct kvf_err err;
	uint64_t n = 99, i;

	CHECK_EQ(kvf_group_contiguous(src, num_src, dst, num_dst, got, 16, &n, &err), 0);
	if (!CHECK_EQ(n, num_want))
		return;
	for (i = 0; i < n; i++) {
		CHECK_EQ(got[i].src_start, want[i].src_start);
		CHECK_EQ(got[i].dst_start, want[i].dst_start);
		CHECK_EQ(got[i].count, want[i].count);
	}
}

void
test_group(void)
{
	static const int64_t src[] = {1, 2, 3, 7, 8, 20, 19}, dst[] = {5, 6, 7, 8, 9, 10, 11};
	static const struct kvf_group want[] = {{1, 5, 3}, {7, 8, 2}, {20, 10, 1}, {19, 11, 1}};
	static const int64_t high[] = {INT64_MAX - 1, INT64_MAX, 0}, bad[] = {4, -1, 5};
	static const struct kvf_group want_high[] = {{INT64_MAX - 1, 1, 2}, {0, 3, 1}};
	struct kvf_group got[4];
	struct kvf_err err;
	uint64_t n = 5;

	expect_groups(src, 7, dst, 7, want, 4);
	expect_groups(dst, 7, dst, 7, &(struct kvf_group){5, 5, 7}, 1);
	expect_groups(high, 3, src, 3, want_high, 2);
	expect_groups(src + 5, 1, dst + 5, 1, want + 2, 1);
	/* Nothing on one side: nothing to group, whatever is on the other. */
	expect_groups(src, 0, dst, 7, NULL, 0);
	expect_groups(bad, 3, NULL, 0, NULL, 0);
	expect_groups(NULL, 0, NULL, 0, NULL, 0);

	CHECK_EQ(kvf_group_contiguous(src, 7, dst, 6, got, 4, &n, &err), KVF_E_LENGTH);
	CHECK_EQ(strcmp(err.text, "group_concurrent_contiguous requires equal-length src/dst index "
				  "arrays, got 7 and 6"),
		0);
	CHECK_EQ(n, 0);
	CHECK_EQ(kvf_group_contiguous(bad, 3, dst, 3, got, 4, &n, &err), KVF_E_PAGE);
	CHECK_STR_HAS(err.text, "src index=-1 at position=1");
	CHECK_EQ(kvf_group_contiguous(src, 3, bad, 3, got, 4, &n, &err), KVF_E_PAGE);
	CHECK_STR_HAS(err.text, "dst index=-1 at position=1");
	CHECK_EQ(kvf_group_contiguous(src, 7, dst, 7, got, 3, &n, &err), KVF_E_QUOTA);
	CHECK_STR_HAS(err.text, "limit=3");
	CHECK_EQ(n, 0);
	CHECK_EQ(kvf_group_contiguous(src, 7, dst, 7, got, 4, &n, NULL), 0);
	CHECK_EQ(n, 4);
}

void
test_group_random(void)
{
	uint64_t rng = suite_seed() | 1, c, i, k, n;
	struct kvf_group groups[200];
	int64_t src[200], dst[200];
	struct kvf_err err;

	for (c = 0; c < 2000; c++) {
		uint64_t len = suite_range(&rng, 1, 200), at = 0;
		int ok = 1;

		for (i = 0; i < len; i++) {
			src[i] = i > 0 && suite_range(&rng, 0, 3) != 0
					 ? src[i - 1] + 1
					 : (int64_t)suite_range(&rng, 0, 50);
			dst[i] = i > 0 && suite_range(&rng, 0, 3) != 0
					 ? dst[i - 1] + 1
					 : (int64_t)suite_range(&rng, 0, 50);
		}
		CHECK_EQ(kvf_group_contiguous(src, len, dst, len, groups, len, &n, &err), 0);
		/* They say the same as the arrays, in order, and no two of them could be one. */
		for (k = 0; k < n; k++) {
			for (i = 0; ok && i < groups[k].count; i++, at++)
				ok = at < len && src[at] == groups[k].src_start + (int64_t)i &&
				     dst[at] == groups[k].dst_start + (int64_t)i;
			if (ok && at < len)
				ok = src[at] != src[at - 1] + 1 || dst[at] != dst[at - 1] + 1;
		}
		CHECK(ok && at == len);
	}
}
