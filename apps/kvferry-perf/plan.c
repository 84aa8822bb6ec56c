/* SPDX-License-Identifier: BSD-3-Clause */
/* The planner alone: kvf_plan_begin() and kvf_plan_next() to the end, one pair of ranks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fail.h"
#include "common/pattern.h"
#include "kvferry-perf/cases.h"
#include "kvferry-perf/report.h"

#define RUNS 256u

/* The lists are different every time, so that no branch is learnt by heart. */
#define LISTS 16u

struct lists {
	uint32_t *src, *dst;
};

static int
shuffled(uint32_t **out, uint64_t n, bool contiguous, uint64_t seed, struct kvf_err *err)
{
	uint64_t i, k;
	uint32_t t, *ids = malloc((n + 1) * sizeof(*ids));

	if (ids == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for pages=%" PRIu64, n);
	for (i = 0; i < n; i++)
		ids[i] = (uint32_t)i + 1;
	for (i = n; i > 1 && !contiguous; i--) {
		seed = pattern_mix(seed + 0x9e3779b97f4a7c15ull);
		k = seed % i;
		t = ids[i - 1];
		ids[i - 1] = ids[k];
		ids[k] = t;
	}
	*out = ids;
	return 0;
}

static uint64_t
plan_all(
	const struct kvf_plan_spec *spec, struct kvf_run *runs, uint64_t *rows, struct kvf_err *err)
{
	struct kvf_plan_iter it;
	uint64_t num = 0;
	size_t n, i;

	*rows = 0;
	if (kvf_plan_begin(&it, spec, err) != 0)
		return 0;
	while ((n = kvf_plan_next(&it, runs, RUNS)) > 0) {
		num += n;
		for (i = 0; i < n; i++)
			*rows += runs[i].blocks * runs[i].block_rows;
	}
	return num;
}

/* Row by row against the textbook formula; counts the rows that are not as it says. */
static uint64_t
check_plan(const struct kvf_plan_spec *s, struct kvf_run *runs, struct kvf_err *err)
{
	struct kvf_plan_iter it;
	uint64_t pos = 0, bad = 0, b, i;
	size_t n, r;

	if (kvf_plan_begin(&it, s, err) != 0)
		return UINT64_MAX;
	while ((n = kvf_plan_next(&it, runs, RUNS)) > 0) {
		for (r = 0; r < n; r++)
			for (b = 0; b < runs[r].blocks; b++)
				for (i = 0; i < runs[r].block_rows; i++, pos++) {
					uint64_t src_l, dst_l, src, dst;

					/* The next position that both hold. */
					while (pos / s->src.interleave % s->src.size !=
							s->src.rank ||
						pos / s->dst.interleave % s->dst.size !=
							s->dst.rank)
						pos++;
					src_l = pos / (s->src.interleave * s->src.size) *
							s->src.interleave +
						pos % s->src.interleave;
					dst_l = pos / (s->dst.interleave * s->dst.size) *
							s->dst.interleave +
						pos % s->dst.interleave;
					src = (uint64_t)s->src_pages[src_l / s->src_page_tokens] *
						      s->src_page_tokens +
					      src_l % s->src_page_tokens;
					dst = (uint64_t)s->dst_pages[dst_l / s->dst_page_tokens] *
						      s->dst_page_tokens +
					      dst_l % s->dst_page_tokens;
					bad += runs[r].src_row + b * runs[r].src_step + i != src ||
					       runs[r].dst_row + b * runs[r].dst_step + i != dst;
				}
	}
	/* Positions that no run came to. */
	for (; pos < s->tokens; pos++)
		bad += pos / s->src.interleave % s->src.size == s->src.rank &&
		       pos / s->dst.interleave % s->dst.size == s->dst.rank;
	return bad;
}

static void
fill_spec(const struct perf_options *o, struct kvf_plan_spec *spec)
{
	uint32_t si = o->prefill_dcp > 1 ? o->interleave : 1;
	uint32_t di = o->decode_dcp > 1 ? o->interleave : 1;

	*spec = (struct kvf_plan_spec){
		.src = {o->prefill_dcp, 0, si, KVF_SHARD_CYCLIC},
		.dst = {o->decode_dcp, 0, di, KVF_SHARD_CYCLIC},
		.src_page_tokens = o->src_page_size,
		.dst_page_tokens = o->dst_page_size,
		.tokens = o->tokens,
		.total = o->tokens,
	};
	spec->num_src_pages =
		(kvf_shard_rows(&spec->src, o->tokens) + o->src_page_size - 1) / o->src_page_size;
	spec->num_dst_pages =
		(kvf_shard_rows(&spec->dst, o->tokens) + o->dst_page_size - 1) / o->dst_page_size;
}

static int
measure(const struct perf_options *o, struct kvf_plan_spec *spec, const struct lists *lists,
	double *us, uint64_t *mismatches, struct kvf_err *err)
{
	uint64_t n, all = (uint64_t)o->warmup_iter + o->num_iter, t0, t1, rows = 0, runs_num = 0;
	static struct kvf_run runs[RUNS];
	json_t *report, *split;
	struct perf_stat st;
	uint64_t bad = 0;
	int rc;

	spec->src_pages = lists[0].src;
	spec->dst_pages = lists[0].dst;
	rc = kvf_plan_check(spec, err);
	if (rc != 0)
		return rc;
	for (n = 0; n < all; n++) {
		spec->src_pages = lists[n % LISTS].src;
		spec->dst_pages = lists[n % LISTS].dst;
		t0 = perf_clock();
		runs_num = plan_all(spec, runs, &rows, err);
		t1 = perf_clock();
		if (n >= o->warmup_iter)
			us[n - o->warmup_iter] = (double)(t1 - t0) * 1e6 / perf_clock_hz();
	}
	for (n = 0; o->check && n < LISTS; n++) {
		spec->src_pages = lists[n].src;
		spec->dst_pages = lists[n].dst;
		bad += check_plan(spec, runs, err);
	}
	st = perf_stat(us, o->num_iter);
	report = perf_report(o, NULL, NULL);
	split = json_object();
	perf_report_real(split, "plan_us", st.median);
	json_object_set_new(report, "split", split);
	perf_report_count(report, "runs", runs_num);
	perf_report_count(report, "rows", rows);
	perf_report_stat(report, "seconds", &st, 1e-6);
	perf_report_real(report, "plan_us", st.median);
	perf_report_real(report, "ns_per_token", st.median * 1e3 / (double)o->tokens);
	perf_report_real(report, "ns_per_row", rows > 0 ? st.median * 1e3 / (double)rows : 0);
	perf_report_percentiles(report, us, o->num_iter);
	if (o->check)
		perf_report_count(report, "mismatches", bad);
	*mismatches += bad;
	perf_report_out(o, report);
	return 0;
}

int
perf_plan(const struct perf_options *o, uint64_t *mismatches, struct kvf_err *err)
{
	struct lists lists[LISTS] = {{0}};
	struct kvf_plan_spec spec;
	double *us = calloc(o->num_iter, sizeof(*us));
	uint32_t i;
	int rc = 0;

	if (o->need_hugepages) {
		printf("0\n");
		free(us);
		return 0;
	}
	perf_clock_init();
	fill_spec(o, &spec);
	if (us == NULL)
		rc = app_fail(err, KVF_E_NOMEM, "no memory for num-iter=%u", o->num_iter);
	for (i = 0; i < LISTS && rc == 0; i++) {
		rc = shuffled(&lists[i].src, spec.num_src_pages, o->contiguous, o->seed + i, err);
		if (rc == 0)
			rc = shuffled(&lists[i].dst, spec.num_dst_pages, o->contiguous,
				~o->seed - i, err);
	}
	if (rc == 0)
		rc = measure(o, &spec, lists, us, mismatches, err);
	for (i = 0; i < LISTS; i++) {
		free(lists[i].src);
		free(lists[i].dst);
	}
	free(us);
	return rc;
}
