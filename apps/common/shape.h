/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a model preset and the topology of one side to what each of its ranks declares: the one
 * place where parallelism becomes buffers. pd-demo, the command line, kvferry-perf and tests use
 * it.
 *
 * Ranks are numbered
 *
 *     rank = ((stage * cp + band) * tp + tp_rank) * dcp + dcp_rank
 *
 * and a side has pp * cp * tp * dcp of them. `tp` counts slices of heads, `dcp` the ranks among
 * which the positions of one slice are dealt. An engine that counts the two together (SGLang: TP
 * size 16 with DCP 8; vLLM alike) has tp = 2 and dcp = 8 here: its tp_rank is the rank within stage
 * and band, and tp_rank % dcp is the DCP rank.
 *
 * Who holds what:
 *  - stage `s` holds a contiguous range of layers; draft layers sit on the last stage.
 *  - A group of H heads (un-sharded) is cut into tp equal slices; where tp > H each head is held by
 *    tp / H neighbours: rank r holds head r / (tp / H). MLA (H = 1) is thereby held by all.
 *  - Positions: cyclic over dcp with `interleave`, or bands of pages over cp. Not both at once.
 *  - Draft: every position on every DCP rank (page g means rows [g * P * dcp, (g + 1) * P * dcp)),
 *    banded over cp like the rest.
 *  - State: heads as above, the same on every DCP rank and band; aux: the same on every rank.
 */
#ifndef KVFERRY_APPS_SHAPE_H
#define KVFERRY_APPS_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/geometry.h>

#include "common/models.h"

#define SHAPE_MAX_STAGES     64u
#define SHAPE_MAX_RANKS      256u /* of one side: KVF_MAX_GROUP_SIZE */
#define SHAPE_MAX_COMPONENTS (3u + MODEL_STATE_TYPES)
#define SHAPE_MAX_SIZE       65536u /* page tokens, interleave, padding */

/* Page lists. State of type t (enum model_state, also its tag) has list SHAPE_LIST_STATE + t - 1.
 */
#define SHAPE_LIST_TOKENS 0u
#define SHAPE_LIST_AUX    1u
#define SHAPE_LIST_STATE  2u

#define SHAPE_GAP 256u /* bytes before, between and after buffers that are nobody's */

/* How the rows of a page lie. */
enum shape_layout {
	SHAPE_NHD = 0,       /* token-major: [page, slot, head] */
	SHAPE_HND = 1,       /* head-major: [page, head, slot] */
	SHAPE_KV_BLOCKS = 2, /* K and V of a layer in one buffer: [2, page, slot, head] (vLLM) */
	SHAPE_BLOCKS_KV = 3, /* [page, 2, slot, head] */
};

/* One side. Start from shape_default(). */
struct shape {
	uint32_t tp;
	uint32_t dcp;
	uint32_t interleave; /* adjacent positions on one DCP rank */
	uint32_t cp;
	uint32_t pp;
	uint32_t stage_layers[SHAPE_MAX_STAGES]; /* layers of each stage; all 0: even, the first
						    ones longer */
	uint32_t page_tokens;
	uint32_t layout;    /* enum shape_layout */
	uint32_t row_pad;   /* bytes between the rows of a page */
	uint32_t ring_rows; /* size of rings; 0: the model's */
	uint32_t aux_bytes; /* 0: no aux */
	uint32_t num_pages; /* of list SHAPE_LIST_TOKENS */
	uint32_t aux_slots;
	uint32_t state_pages[MODEL_STATE_TYPES + 1]; /* of the pool of each type of state */
};

/* The declaration of one rank, and where it stands. */
struct shape_rank {
	uint32_t rank;
	uint32_t stage;
	uint32_t band;
	uint32_t tp_rank;
	uint32_t dcp_rank;
	uint32_t first_layer; /* of its stage: ids [first_layer, end_layer) */
	uint32_t end_layer;
	struct kvf_geometry geo;
	struct kvf_component comp[SHAPE_MAX_COMPONENTS]; /* target, draft, states, aux: those that
							    there are */
	struct kvf_entry *entries;
	uint8_t *occurrence; /* of each entry of the whole model, in the order of entries */
	uint32_t num_entries;
	uint64_t pool_bytes;
};

/* One rank, NHD, pages of 64, 256 B of aux; few pages. */
void shape_default(struct shape *s);

/* KVF_E_INVAL naming the value and its limit: sizes, heads, stages, what the layout needs. `side`
 * goes in front of the names ("prefill-", "" ...). */
int shape_check(
	const struct shape *s, const struct model *m, const char *side, struct kvf_err *err);

static inline uint32_t
shape_ranks(const struct shape *s)
{
	return s->pp * s->cp * s->tp * s->dcp;
}

/*
 * The declaration of `rank`, for a shape that passed shape_check(). Free it with shape_rank_free().
 * KVF_E_INVAL, KVF_E_OVERFLOW, KVF_E_NOMEM.
 */
int shape_rank_build(const struct shape *s, const struct model *m, uint32_t rank,
	struct shape_rank *out, struct kvf_err *err);
void shape_rank_free(struct shape_rank *r);

/* All ranks of a side, and pointers as kvf_link_build() takes them. */
struct shape_group {
	uint32_t num;
	struct shape_rank *ranks;
	const struct kvf_geometry **geos;
};

int shape_group_build(
	const struct shape *s, const struct model *m, struct shape_group *g, struct kvf_err *err);
void shape_group_free(struct shape_group *g);

/*
 * Every chunk but the last, and every prefix, that is a multiple of this begins with slot 0 of a
 * page in all token components of this side: page tokens times DCP, and whole interleave blocks.
 */
uint64_t shape_unit(const struct shape *s);

/*
 * "key=value,...": model (required), tp, dcp, interleave, cp, pp (a number, or layers "7+8"), page,
 * layout (nhd, hnd, kv-blocks, blocks-kv), pad, ring, draft (0, 1), state (0, 1), layers, aux,
 * pages, slots. tp and dcp default to 1. Loads the preset from models_path() and checks the shape.
 */
int shape_parse(
	const char *text, const char *side, struct shape *s, struct model *m, struct kvf_err *err);

/* "7+8" or "2" into pp and stage_layers. */
int shape_parse_stages(const char *name, const char *text, struct shape *s, struct kvf_err *err);
/* A name into layout. */
int shape_parse_layout(const char *name, const char *text, struct shape *s, struct kvf_err *err);
const char *shape_layout_name(uint32_t layout);

#endif
