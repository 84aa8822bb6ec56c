/* SPDX-License-Identifier: BSD-3-Clause */
/* Ring state: what a worker that writes position by position leaves in its ring. */
#include <string.h>

#include "common/suite.h"
#include "plan/ring.h"
#include "unit/plan/plan_tests.h"

#define MAX_RING  40u
#define MAX_RINGS 5u
#define MAX_PAGE  20u /* ids of fill_pages() may pass its limit by one for each gap */
#define NOTHING   UINT64_MAX

static uint64_t src_rows[MAX_PAGE * MAX_RING], dst_rows[MAX_PAGE * MAX_RING];

/* Copies as the runs say. 0: a run left its page, or wrote a row twice. */
static int
copy_runs(const struct kvf_run *runs, size_t n, uint32_t src_size, uint32_t dst_size)
{
	uint64_t i;
	size_t r;

	for (r = 0; r < n; r++) {
		const struct kvf_run *run = &runs[r];

		if (run->blocks != 1 || run->block_rows == 0 || run->src_step != run->block_rows ||
			run->dst_step != run->block_rows)
			return 0;
		if (run->src_row / src_size != (run->src_row + run->block_rows - 1) / src_size ||
			run->dst_row / dst_size != (run->dst_row + run->block_rows - 1) / dst_size)
			return 0;
		for (i = 0; i < run->block_rows; i++) {
			if (dst_rows[run->dst_row + i] != NOTHING)
				return 0;
			dst_rows[run->dst_row + i] = src_rows[run->src_row + i];
		}
	}
	return 1;
}

void
test_ring_worked(void)
{
	static const uint32_t src[] = {3}, dst[] = {1};
	struct kvf_ring_iter it;
	struct kvf_run runs[8];

	/* 10 positions in rings of 4 and 6: the newest four are 6 to 9. */
	kvf_ring_begin(&it, src, 4, dst, 6, 1, 10);
	if (!CHECK_EQ(kvf_ring_next(&it, runs, 8), 2))
		return;
	CHECK_EQ(runs[0].src_row, 12 + 2);
	CHECK_EQ(runs[0].dst_row, 6 + 0);
	CHECK_EQ(runs[0].block_rows, 2);
	CHECK_EQ(runs[1].src_row, 12 + 0);
	CHECK_EQ(runs[1].dst_row, 6 + 2);
	CHECK_EQ(runs[1].block_rows, 2);
	CHECK_EQ(kvf_ring_next(&it, runs, 8), 0);
	/* No position, no ring. */
	kvf_ring_begin(&it, src, 4, dst, 6, 1, 0);
	CHECK_EQ(kvf_ring_next(&it, runs, 8), 0);
	kvf_ring_begin(&it, src, 4, dst, 6, 0, 10);
	CHECK_EQ(kvf_ring_next(&it, runs, 8), 0);
	/* Far positions. */
	kvf_ring_begin(&it, src, 1u << 31, dst, 1u << 31, 1, UINT64_MAX);
	CHECK_EQ(kvf_ring_next(&it, runs, 8), 2);
	CHECK_EQ(runs[0].block_rows + runs[1].block_rows, 1u << 31);
}

void
test_ring_random(void)
{
	uint32_t src[MAX_RINGS], dst[MAX_RINGS], i, n, ss, ds;
	uint64_t rng = suite_seed() | 1, c, p, total, from, want;
	struct kvf_ring_iter it;
	struct kvf_run runs[64];
	size_t got, max;
	int ok;

	for (c = 0; c < 5000; c++) {
		n = (uint32_t)suite_range(&rng, 0, MAX_RINGS);
		ss = (uint32_t)suite_range(&rng, 1, MAX_RING);
		ds = suite_range(&rng, 0, 2) == 0 ? ss : (uint32_t)suite_range(&rng, 1, MAX_RING);
		total = suite_range(&rng, 0, suite_range(&rng, 1, 200));
		fill_pages(&rng, src, n, MAX_PAGE - MAX_RINGS, (int)suite_range(&rng, 0, 2));
		fill_pages(&rng, dst, n, MAX_PAGE - MAX_RINGS, (int)suite_range(&rng, 0, 2));
		memset(src_rows, 0xff, sizeof(src_rows));
		memset(dst_rows, 0xff, sizeof(dst_rows));
		for (i = 0; i < n; i++) {
			for (p = 0; p < total; p++)
				src_rows[src[i] * ss + p % ss] = p * MAX_RINGS + i;
		}
		max = suite_range(&rng, 1, 64);
		kvf_ring_begin(&it, src, ss, dst, ds, n, total);
		ok = 1;
		while (ok && (got = kvf_ring_next(&it, runs, max)) > 0)
			ok = got <= max && copy_runs(runs, got, ss, ds);
		/* Each row of a destination ring: the newest position that both can hold, or
		 * nothing. */
		for (i = 0; ok && i < n; i++) {
			from = total > (ss < ds ? ss : ds) ? total - (ss < ds ? ss : ds) : 0;
			for (p = 0; ok && p < ds; p++) {
				uint64_t q, row = dst_rows[dst[i] * ds + p];

				want = NOTHING;
				for (q = from; q < total; q++) {
					if (q % ds == p)
						want = q * MAX_RINGS + i;
				}
				ok = row == want;
			}
		}
		CHECK(ok);
	}
}
