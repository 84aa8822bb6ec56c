/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases and helpers of the suite "plan", which is spread over several files. */
#ifndef KVF_TESTS_PLAN_TESTS_H
#define KVF_TESTS_PLAN_TESTS_H

#include <stddef.h>
#include <stdint.h>

#include <kvferry/plan.h>

#include "unit/plan/oracle.h"

/* A spec with whole-pool shardings, filled in from two lists. */
#define SPEC(page, src_list, dst_list, ...)                                                        \
	(struct kvf_plan_spec)                                                                     \
	{                                                                                          \
		.src = {1, 0, 1, 0}, .dst = {1, 0, 1, 0}, .src_page_tokens = (page),               \
		.dst_page_tokens = (page), .src_pages = (src_list), .dst_pages = (dst_list),       \
		.num_src_pages = sizeof(src_list) / sizeof((src_list)[0]),                         \
		.num_dst_pages = sizeof(dst_list) / sizeof((dst_list)[0]), __VA_ARGS__             \
	}

/* Runs of a plan that must succeed, taken `piece` at a time. Free with free(). */
struct kvf_run *plan_runs(const struct kvf_plan_spec *spec, size_t piece, size_t *num_runs);
/* Rows of runs, in the order in which the runs name them. Free with free(). */
struct oracle_row *runs_rows(const struct kvf_run *runs, size_t num_runs, size_t *num_rows);
/* Plans and compares with the oracle, in order of position, and checks the shape of the runs. */
void check_plan(const struct kvf_plan_spec *spec, size_t piece, const char *file, int line);
#define CHECK_PLAN(spec, piece) check_plan((spec), (piece), __FILE__, __LINE__)
/* Page lists: `n` different ids below `limit`. mode 0 contiguous, 1 scattered, 2 contiguous in
 * parts. */
void fill_pages(uint64_t *rng, uint32_t *ids, uint64_t n, uint32_t limit, int mode);

void test_worked_cases(void);
void test_worked_draft(void);
void test_empty(void);
void test_refuse_sharding(void);
void test_refuse_prefix(void);
void test_refuse_capacity(void);
void test_refuse_destination(void);
void test_refuse_overflow(void);
void test_refuse_arguments(void);
void test_order_of_refusals(void);
void test_capacity_counted(void);
void test_pages_check(void);
void test_pages_random(void);
void test_create(void);
void test_group(void);
void test_group_random(void);
void test_sglang_5588(void);
void test_sglang_32997(void);
void test_sglang_14439(void);
void test_sglang_33309(void);
void test_one_run(void);
void test_runs_do_not_grow(void);
void test_far_positions(void);
void test_random_one_shot(void);
void test_random_deep(void);
void test_random_chunks(void);
void test_random_union(void);
void test_random_shifted(void);
void test_rows_below(void);
void test_bands_worked(void);
void test_bands_random(void);
void test_bands_chunks(void);
void test_bands_union(void);
void test_bands_pages(void);
void test_bands_refuse(void);
void test_ring_worked(void);
void test_ring_random(void);

#endif
