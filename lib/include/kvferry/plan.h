/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Row plans: which local source rows go to which local destination rows.
 *
 * A row is named in pool coordinates: `page_id * page_tokens + slot`. A plan is a
 * short list of **runs**; a run is a regular pattern of row blocks, so contiguous pages
 * need one run whatever the number of tokens, and the cost of planning grows with the
 * number of runs.
 *
 * Everything here is pure: no I/O, no global state, any thread.
 */
#ifndef KVFERRY_PLAN_H
#define KVFERRY_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include <kvferry/error.h>
#include <kvferry/geometry.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * For b in [0, blocks), i in [0, block_rows): source row `src_row + b * src_step + i`
 * goes to destination row `dst_row + b * dst_step + i`. Steps are in rows and equal
 * `block_rows` when blocks is 1.
 */
struct kvf_run {
	uint64_t src_row;
	uint64_t dst_row;
	uint64_t blocks;
	uint64_t block_rows;
	uint64_t src_step;
	uint64_t dst_step;
};

#define KVF_PLAN_SPLIT_SRC 1u /**< no run crosses a source page boundary */
#define KVF_PLAN_SPLIT_DST 2u /**< no run crosses a destination page boundary */

/**
 * One chunk from one source rank to one destination rank. The chunk covers the token
 * positions `[start, start + tokens)`; what lies before `prefix` is trimmed.
 *
 * `src_pages` starts with the page of the source rank's first row at or after `start`;
 * `dst_pages` starts with the page of the destination rank's first row at or after
 * `prefix`. Both stay the caller's and must not change while a plan is built or iterated.
 */
struct kvf_plan_spec {
	struct kvf_sharding src;
	struct kvf_sharding dst;
	uint32_t src_page_tokens;
	uint32_t dst_page_tokens;
	const uint32_t *src_pages;
	const uint32_t *dst_pages;
	uint64_t num_src_pages;
	uint64_t num_dst_pages;
	uint64_t prefix; /**< tokens that the destination already holds */
	uint64_t start;  /**< absolute position of the chunk's first token */
	uint64_t tokens; /**< positions that the chunk covers, on whichever rank they lie */
	uint64_t total;  /**< length of the prompt; only looked at where a side is a band */
	uint32_t flags;  /**< KVF_PLAN_* */
	uint32_t reserved;
};

/**
 * The positions [*from, *to) among which `sh` deals when the prompt has `total` tokens: everything
 * for a cyclic sharding, the rank's band for a band (possibly empty).
 */
void kvf_shard_span(const struct kvf_sharding *sh, uint64_t total, uint64_t *from, uint64_t *to);

/** Rows of a cyclic `sh` at positions below `pos`: also the local row of its first position >= pos.
 */
uint64_t kvf_shard_rows(const struct kvf_sharding *sh, uint64_t pos);

/** 0, or KVF_E_SHARDING naming the value and its limit. `side` ("src", "dst") goes into the
 * sentence. */
int kvf_sharding_check(const struct kvf_sharding *sh, const char *side, struct kvf_err *err);

/** Positions from `start` on that `num_pages` source pages of a cyclic sharding can cover (the
 * capacity of the first refusal). */
int kvf_plan_capacity(const struct kvf_sharding *src, uint32_t src_page_tokens,
	uint64_t num_src_pages, uint64_t start, uint64_t *tokens, struct kvf_err *err);

/**
 * Do `num_pages` source pages hold the rows that this rank has of [start, start + tokens) of a
 * prompt of `total` tokens (looked at for bands only)?
 * @return 0, KVF_E_CAPACITY, or what kvf_plan_capacity() refuses.
 */
int kvf_source_check(const struct kvf_sharding *src, uint32_t page_tokens, uint64_t num_pages,
	uint64_t start, uint64_t tokens, uint64_t total, struct kvf_err *err);

/**
 * Do `num_pages` destination pages hold the rows that this rank gets of [prefix, total)?
 * @return 0, KVF_E_PREFIX, KVF_E_DST_PAGES, KVF_E_SHARDING or KVF_E_INVAL.
 */
int kvf_grant_check(const struct kvf_sharding *dst, uint32_t page_tokens, uint64_t num_pages,
	uint64_t prefix, uint64_t total, struct kvf_err *err);

/**
 * Every refusal that does not need the page ids themselves; constant time.
 * @return 0 or KVF_E_INVAL, _SHARDING, _OVERFLOW, _PREFIX, _CAPACITY, _DST_PAGES.
 */
int kvf_plan_check(const struct kvf_plan_spec *spec, struct kvf_err *err);

/** Checks that each id is below `limit` (KVF_E_PAGE) and, if `unique`, stands there once
 * (KVF_E_DUP_PAGE). */
int kvf_pages_check(const uint32_t *pages, uint64_t n, uint32_t limit, int unique, const char *side,
	struct kvf_err *err);

/** A plan being produced piece by piece. Opaque: plain memory of the caller's, no clean-up. */
struct kvf_plan_iter {
	uint64_t opaque[64];
};

/** Runs kvf_plan_check(), then sets `it` before the first run. Keeps a copy of *spec, not of the
 * lists. */
int kvf_plan_begin(struct kvf_plan_iter *it, const struct kvf_plan_spec *spec, struct kvf_err *err);

/**
 * Writes up to `max` (>= 1) further runs; bounded work per run. Merged runs never cross a call's
 * end: a plan taken in small pieces may have a few more runs, with the same rows.
 * @return number of runs written; 0 at the end.
 */
size_t kvf_plan_next(struct kvf_plan_iter *it, struct kvf_run *runs, size_t max);

/** A finished plan: one allocation. */
struct kvf_plan {
	size_t num_runs;
	uint64_t rows; /**< rows in all runs */
	const struct kvf_run *runs;
};

/**
 * Checks spec and page ids (destination pages unique; ids below the limits, 0: KVF_MAX_PAGE_ID) and
 * builds the whole plan. Free it with kvf_plan_free().
 * @return 0, a refusal of kvf_plan_check(), KVF_E_PAGE, KVF_E_DUP_PAGE or KVF_E_NOMEM; *plan is
 * NULL then.
 */
int kvf_plan_create(const struct kvf_plan_spec *spec, uint32_t src_num_pages,
	uint32_t dst_num_pages, struct kvf_plan **plan, struct kvf_err *err);
void kvf_plan_free(struct kvf_plan *plan);

/** A contiguous group: src_start + i goes with dst_start + i for i in [0, count). */
struct kvf_group {
	int64_t src_start;
	int64_t dst_start;
	uint64_t count;
};

/**
 * Groups two equally long index arrays into maximal stretches that are contiguous on both
 * sides. `groups` has room for `max`; min(num_src, num_dst) always suffices. If one array
 * is empty there is nothing to group. Negative indices are refused.
 * @return 0 with *num_groups set; KVF_E_LENGTH, KVF_E_PAGE, or KVF_E_QUOTA if `max` is too small.
 */
int kvf_group_contiguous(const int64_t *src, uint64_t num_src, const int64_t *dst, uint64_t num_dst,
	struct kvf_group *groups, uint64_t max, uint64_t *num_groups, struct kvf_err *err);

#ifdef __cplusplus
}
#endif
#endif
