/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What an endpoint's pool holds and where each byte of it lies.
 *
 * An endpoint declares **components**. A component is a set of **entries** (one
 * buffer of one layer each) that share a page size, a number of pages, a
 * position sharding and a page list. A **row** is what one token (or one state
 * item, or one request's aux) has in one entry. With `H = head_count` heads held
 * here, head `h` (0-based among those held) of the row in `slot` of `page` lies at
 *
 *     offset + page * page_stride + slot * row_stride + h * head_stride
 *
 * and is `row_bytes / H` bytes long. Token-major (NHD), head-major (HND), planar
 * and padded pages, and interleaved K/V blocks differ in their strides only.
 *
 * All offsets and strides are bytes from the start of the pool. Nothing here
 * points into the pool, so declarations are compared between processes as they are.
 */
#ifndef KVFERRY_GEOMETRY_H
#define KVFERRY_GEOMETRY_H

#include <stdint.h>

#include <kvferry/error.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVF_MAX_COMPONENTS 32u   /**< components of one endpoint */
#define KVF_MAX_ENTRIES    1024u /**< entries of one endpoint, all components together */
#define KVF_MAX_LISTS      8u    /**< page lists of one request: ids 0..7 */
#define KVF_MAX_SHARDS     1024u /**< largest `kvf_sharding.size` */
#define KVF_MAX_PAGE_ID    (UINT32_MAX >> 1) /**< page ids are below this; -1 cast never is */

/** How positions are dealt to ranks. */
enum kvf_shard_mode {
	/** Position `p` belongs to rank `(p / interleave) % size`, at local row
	 * `(p / (interleave * size)) * interleave + p % interleave` (DCP, vLLM's context parallel).
	 */
	KVF_SHARD_CYCLIC = 0,
	/** Each rank holds one contiguous band of the prompt's pages, `interleave` tokens each
	 * (prefill context parallelism): of `n` pages rank `r` holds `n / size` (one more where `r
	 * < n % size`), from page `r * (n / size) + min(r, n % size)` on; local row 0 is the band's
	 * first token. `interleave` is a multiple of the component's page_tokens. */
	KVF_SHARD_BAND = 1,
};

/**
 * Which token positions a rank holds. `{1, 0, 1, 0}` holds everything. Requires
 * `1 <= size <= KVF_MAX_SHARDS`, `rank < size`, `1 <= interleave <= 2^31`.
 */
struct kvf_sharding {
	uint32_t size;
	uint32_t rank;
	uint32_t interleave;
	uint32_t mode; /**< enum kvf_shard_mode */
};

/** What a component's rows are, and when they are copied. */
enum kvf_class {
	KVF_TOKENS = 1, /**< one row per token position; copied chunk by chunk */
	KVF_STATE = 2,  /**< list item i to list item i, once, after all tokens */
	KVF_AUX = 3,    /**< one row per request, once, after everything else */
};

/** How the two index lists of a KVF_STATE component go together. Both sides declare the same rule.
 */
enum kvf_state_rule {
	KVF_STATE_EXACT = 0, /**< rows in list order; both lists must name equally many rows */
	KVF_STATE_ONE = 1,   /**< the same, and exactly one page each (Mamba) */
	KVF_STATE_CLIP =
		2, /**< rows in list order; the longer list is clipped, with a warning (SWA, DSA) */
	/** Each page is a ring of page_tokens rows, position `p` in row `p % page_tokens`. The
	 * newest positions that both rings hold are copied; the rings may differ in size, the lists
	 * must be equally long. */
	KVF_STATE_RING = 3,
};

/** Values of `kvf_entry.kind`; others may be used freely, equal pairs with equal. */
enum kvf_kind {
	KVF_KIND_LATENT = 1, /**< MLA latent */
	KVF_KIND_K = 2,
	KVF_KIND_V = 3,
	KVF_KIND_INDEX_K = 4,     /**< DSA index keys */
	KVF_KIND_INDEX_SCALE = 5, /**< DSA index key scales */
	KVF_KIND_SCALE = 6,       /**< quantisation scales in a plane of their own */
	KVF_KIND_CONV = 7,        /**< Mamba convolution state */
	KVF_KIND_SSM = 8,         /**< Mamba SSM state */
	KVF_KIND_AUX = 9,
};

/**
 * One buffer of one layer. Entries of a prefill and a decode endpoint are paired
 * by (class, tag, kind, layer, occurrence): the k-th entry with that key on one side goes
 * with the k-th on the other, whatever component it stands in and wherever in the list.
 * Occurrences are counted on each endpoint by itself, in the order of declaration, so layer ids
 * must be unique in the whole model: give draft layers ids of their own.
 *
 * Any offset will do. Fastest are layers whose offsets agree in the low 15 bits, as in multiples of
 * 32 KiB: several layers are read side by side, and the memory's banks serve them better then
 * (measured: 6 to 15 %).
 */
struct kvf_entry {
	uint64_t offset;      /**< of page 0, slot 0, first held head */
	uint64_t page_stride; /**< bytes from page to page */
	uint64_t row_stride;  /**< bytes from slot to slot */
	uint64_t head_stride; /**< bytes from head to head; 0: dense, row_bytes / head_count */
	uint32_t row_bytes;   /**< bytes of a row held here: all `head_count` heads */
	uint32_t layer;       /**< the model's layer id, not the index in this list */
	uint16_t kind;        /**< enum kvf_kind */
	uint16_t dtype;       /**< any tag; must be equal on both sides */
	uint16_t head_first;  /**< global index of the first head held */
	uint16_t head_count;  /**< heads held, at least 1 */
	uint16_t head_total;  /**< heads of the un-sharded model; MLA: 1 */
	uint16_t reserved[3]; /**< 0 */
};

/** Entries that share pages, sharding and page list. */
struct kvf_component {
	uint32_t cls;  /**< enum kvf_class */
	uint32_t tag;  /**< tells state kinds (mamba, swa, ...) apart; 0 for tokens and aux */
	uint32_t list; /**< which page list of a request addresses it, < KVF_MAX_LISTS */
	uint32_t page_tokens; /**< rows in a page; 1 for aux and one-row state */
	uint32_t num_pages;   /**< pages in the pool; ids are 0..num_pages-1 */
	uint32_t num_entries;
	uint32_t rule;     /**< enum kvf_state_rule of a KVF_STATE component, otherwise 0 */
	uint32_t reserved; /**< 0 */
	struct kvf_sharding sharding; /**< {1, 0, 1, 0} unless cls is KVF_TOKENS */
	const struct kvf_entry *entries;
};

/** A whole declaration. The arrays stay the caller's. */
struct kvf_geometry {
	uint32_t num_components;
	uint32_t reserved; /**< 0 */
	const struct kvf_component *components;
};

/**
 * Checks a declaration by itself and against a pool of `pool_bytes` bytes: every
 * byte of every row of every page must lie inside; strides must not make rows of one
 * entry overlap; sharding, heads and counts must be in range; all arithmetic is 64-bit
 * and checked. Entries of one endpoint may not overlap each other.
 *
 * Pure; any thread.
 * @return 0, or KVF_E_GEOMETRY, KVF_E_SHARDING, KVF_E_OVERFLOW, KVF_E_INVAL, KVF_E_NOMEM, with the
 * value and its limit.
 */
int kvf_geometry_check(const struct kvf_geometry *geo, uint64_t pool_bytes, struct kvf_err *err);

#ifdef __cplusplus
}
#endif
#endif
