/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a plan must say, worked out position by position. Shares no code with the planner.
 */
#ifndef KVF_TESTS_PLAN_ORACLE_H
#define KVF_TESTS_PLAN_ORACLE_H

#include <stddef.h>
#include <stdint.h>

#include <kvferry/plan.h>

struct oracle_row {
	uint64_t pos;
	uint64_t src_row;
	uint64_t dst_row;
};

/* Does the rank hold position p? */
int oracle_owns(const struct kvf_sharding *sh, uint64_t p);
/* The same in a prompt of `total` tokens, also for bands: pages are dealt out one by one. */
int oracle_owns_of(const struct kvf_sharding *sh, uint64_t total, uint64_t p);
/* Positions below `pos` that the rank holds, by counting. */
uint64_t oracle_rows_below(const struct kvf_sharding *sh, uint64_t pos);
uint64_t oracle_rows_of(const struct kvf_sharding *sh, uint64_t total, uint64_t pos);
/* Positions that `num_pages` pages cover from `start` on, by counting. */
uint64_t oracle_capacity(
	const struct kvf_sharding *sh, uint32_t page_tokens, uint64_t num_pages, uint64_t start);
/* Entries that each list needs at least: its last row in the chunk, counted. */
uint64_t oracle_src_pages(const struct kvf_plan_spec *spec);
uint64_t oracle_dst_pages(const struct kvf_plan_spec *spec);
/* All rows in order of position; `out` has room for spec->tokens. */
size_t oracle_plan(const struct kvf_plan_spec *spec, struct oracle_row *out);
/* Stretches in which position, source row and destination row all go up by one. */
size_t oracle_stretches(const struct oracle_row *rows, size_t n);

#endif
