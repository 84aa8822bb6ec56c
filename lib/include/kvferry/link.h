/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The link between a prefill group and a decode group: the intersection of their declarations. For
 * every byte that a decode endpoint's entries hold it names exactly one source endpoint; replicas
 * share the work, layer by layer, so that every decode rank reads one layer from the same replica
 * (it is then in cache for the next rank).
 *
 * The engine builds this when the groups meet. Here it can be built without an engine, to see who
 * would serve what, or why two groups do not go together.
 *
 * Entries pair by (class, tag, kind, layer, occurrence). An endpoint's occurrences of one class,
 * tag, kind and layer are counted in the order of declaration: components in their order, entries
 * in theirs. So a layer's id must mean the same on every rank of a group (a draft layer that reused
 * the id of a target layer would be occurrence 1 on ranks that hold both, and 0 where a PP stage
 * holds the draft only).
 *
 * A piece (key, heads, source shard) that several prefill ranks hold comes from the one with the
 * fewest bytes per token so far, the lowest on a tie, counting only what some decode rank wants;
 * state is balanced apart from tokens. Aux is one small record and always comes from the lowest
 * rank that holds it.
 *
 * Pure; one allocation owned by the result; immutable, so any thread may read it.
 */
#ifndef KVFERRY_LINK_H
#define KVFERRY_LINK_H

#include <stdint.h>

#include <kvferry/error.h>
#include <kvferry/geometry.h>
#include <kvferry/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * One buffer to one buffer, the byte columns that both hold. The row in `slot` of `page` is at
 * off + page * page_stride + slot * row_stride, row_bytes long, on each side. Where pages have one
 * row, row_stride is page_stride, so that runs may go on from page to page.
 */
struct kvf_lane {
	uint64_t src_off;
	uint64_t dst_off;
	uint64_t src_page_stride;
	uint64_t dst_page_stride;
	uint64_t src_row_stride;
	uint64_t dst_row_stride;
	uint32_t row_bytes;
	uint32_t layer;
	uint16_t kind;       /**< enum kvf_kind */
	uint16_t occurrence; /**< among entries of equal class, tag, kind and layer */
	uint16_t head_first; /**< global index of the first head */
	uint16_t head_count;
};

/** Lanes that share a row plan: same source component, same destination component. */
struct kvf_map {
	uint32_t src_component;
	uint32_t dst_component;
	uint32_t cls; /**< enum kvf_class */
	uint32_t tag;
	uint32_t src_list; /**< page lists that address the two components */
	uint32_t dst_list;
	uint32_t src_page_tokens;
	uint32_t dst_page_tokens;
	struct kvf_sharding src;
	struct kvf_sharding dst;
	uint32_t split; /**< KVF_PLAN_SPLIT_*: where page_stride != page_tokens * row_stride on some
			   lane */
	uint32_t dense; /**< 1: row_stride == row_bytes on both sides of every lane */
	uint64_t row_bytes; /**< of all lanes together */
	uint32_t num_lanes;
	uint32_t rule; /**< enum kvf_state_rule */
	const struct kvf_lane *lanes;
};

/** What one prefill rank gives one decode rank; num_maps 0: nothing. Maps are ordered tokens,
 * state, aux. */
struct kvf_pair {
	uint32_t num_maps;
	uint32_t reserved;
	const struct kvf_map *maps;
};

/** Both groups. */
struct kvf_link {
	uint32_t num_prefill;
	uint32_t num_decode;
	const struct kvf_pair *pairs; /**< [prefill_rank * num_decode + decode_rank] */
};

/** What `prefill_rank` gives `decode_rank`. */
static inline const struct kvf_pair *
kvf_link_pair(const struct kvf_link *link, uint32_t prefill_rank, uint32_t decode_rank)
{
	return &link->pairs[(uint64_t)prefill_rank * link->num_decode + decode_rank];
}

/**
 * Intersects. The geometries have passed kvf_geometry_check() and may go away afterwards. Free the
 * result with kvf_link_free().
 * @return 0; KVF_E_COVERAGE naming layer=, kind= and the heads or positions without source;
 * KVF_E_MISMATCH naming entry, layer, src=, dst= (bytes, head totals) or prefill=, decode= (dtype,
 * rule); KVF_E_SHARDING when source members of one key differ in size, interleave or mode;
 * KVF_E_INVAL for an empty group or one of more than 1024 ranks; KVF_E_QUOTA past 64 Mi lanes;
 * KVF_E_NOMEM. *link is NULL then.
 */
int kvf_link_build(const struct kvf_geometry *const *prefill, uint32_t num_prefill,
	const struct kvf_geometry *const *decode, uint32_t num_decode, struct kvf_link **link,
	struct kvf_err *err);
void kvf_link_free(struct kvf_link *link);

/** Can any position belong to both? (exact, any sizes and interleaves; a band may meet anything) */
int kvf_sharding_intersects(const struct kvf_sharding *a, const struct kvf_sharding *b);

#ifdef __cplusplus
}
#endif
#endif
