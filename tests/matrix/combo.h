/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One combination of everything in which a prefill and a decode group can differ, drawn from a seed
 * and an index; and what each of its endpoints declares and posts.
 *
 * A group is a grid: pp stages, in each tp places that share out the heads, in each of those dcp
 * places that share out the positions; endpoint ranks stand in it in random order.
 */
#ifndef KVF_TESTS_COMBO_H
#define KVF_TESTS_COMBO_H

#include <stdbool.h>
#include <stdint.h>

#include "common/layout.h"
#include "common/peer.h"

#define MX_RANKS    16u
#define MX_STAGES   4u
#define MX_LAYERS   15u
#define MX_ROOMS    3u
#define MX_CHUNKS   5u
#define MX_POSTINGS (MX_ROOMS * (MX_CHUNKS + 1))
#define MX_COMPS    8u
#define MX_ENTRIES  96u
#define MX_GROUPS   160u

enum side {
	SRC, /* prefill */
	DST, /* decode */
};

/* Components, and the lists that address them before they are permuted. */
enum what_list {
	L_TOKENS,
	L_TWICE, /* second occurrences, where they have a component of their own */
	L_DRAFT,
	L_ONE,
	L_EXACT,
	L_CLIP,
	L_RING,
	L_AUX,
};

#define TAG_ONE   1u
#define TAG_EXACT 2u
#define TAG_CLIP  3u
#define TAG_RING  4u

/* What is wrong on purpose. */
enum harm {
	HARM_NONE,
	HARM_LAYER,     /* no prefill rank has one buffer of one layer */
	HARM_HEADS,     /* ... some of its heads */
	HARM_POSITIONS, /* ... some of its positions */
	HARM_BYTES,
	HARM_DTYPE,
	HARM_HEAD_TOTAL,
	HARM_SHARDS, /* prefill ranks shard differently */
	HARM_STATE,  /* as HARM_LAYER, of state */
	HARM_AUX,
	HARM_RULE,
	HARM_STATE_LIST,
	HARM_COUNT,
};

enum family {
	FAM_LATENT,
	FAM_PLANAR,  /* latent values and their scales in two planes of a page */
	FAM_INDEX,   /* latent, index keys and their scales */
	FAM_HEADS,   /* K and V */
	FAM_WINDOWS, /* K and V, every second layer in a window only */
	FAM_HYBRID,  /* every third layer has a latent, the others one-slot state */
	FAM_HYBRID_HEADS,
};

/* Scaled-down shapes of real models. */
struct model {
	const char *name;
	enum family family;
	uint32_t heads;
	uint32_t bytes[4]; /* of the buffers of a layer, per head */
	bool draft;
};

struct side_draw {
	uint32_t dcp, tp, pp;
	uint32_t n; /* dcp * tp * pp */
	bool band;
	uint32_t interleave;
	uint32_t page;
	uint32_t cut[MX_STAGES + 1]; /* stage s holds layers [cut[s], cut[s + 1]) */
	uint32_t place[MX_RANKS];    /* of each rank in the grid */
	enum layout layout, index_layout, state_layout;
	bool own_draft_list, split_twice, reverse, aux_everywhere, aux_first;
	uint32_t exact_page, clip_page, ring_rows;
	uint32_t exact_pages, clip_pages, rings;
	uint32_t list[KVF_MAX_LISTS]; /* ids of what_list */
};

struct room_draw {
	uint64_t id, key, total;
	bool named;
	uint64_t prefix[MX_RANKS];
	uint32_t chunks[MX_RANKS]; /* of each prefill rank */
	uint64_t bound[MX_RANKS][MX_CHUNKS + 1];
};

struct combo {
	uint64_t seed;
	uint32_t index;
	uint64_t rand;
	const struct model *model;
	uint32_t layers, first_layer, layer_step;
	uint32_t draft_layers;
	bool twice;       /* two entries per layer and kind */
	bool fresh_pages; /* source pages are never used by two chunks */
	uint32_t parts;   /* bits of what_list */
	uint32_t order;   /* of postings: grants first, sends first, mixed */
	bool leave_open;  /* endpoints leave without releasing their rooms */
	enum harm harm;
	uint32_t hurt_layer, hurt_kind, hurt_place; /* index of a layer; head place or shard */
	struct side_draw side[2];
	uint32_t num_rooms;
	struct room_draw room[MX_ROOMS];
};

/* What one endpoint posts for one room at a time. */
struct posting {
	uint32_t room;
	uint64_t from, to;
	uint32_t num_lists;
	struct kvf_pages lists[KVF_MAX_LISTS];
};

/* One endpoint: its declaration, and its postings in order. */
struct maker {
	struct kvf_geometry geo;
	struct kvf_component comps[MX_COMPS];
	struct kvf_entry entries[MX_COMPS][MX_ENTRIES];
	uint64_t pool_bytes;
	struct {
		uint32_t comp;
		enum layout layout;
		uint32_t n;
		struct spec specs[3];
	} groups[MX_GROUPS];
	uint32_t num_groups;
	uint32_t used[KVF_MAX_LISTS]; /* page ids handed out */
	uint32_t num_postings;
	struct posting postings[MX_POSTINGS];
	uint32_t *ids;
	uint32_t num_ids;
};

/* Draws combination `index` of `seed`. */
void combo_draw(struct combo *c, uint64_t seed, uint32_t index, bool harmed);
/* All of it on one line. */
void combo_print(const struct combo *c);

uint32_t combo_layer(const struct combo *c, uint32_t index);
bool combo_has_kv(const struct combo *c, uint32_t index);
/* The buffer of HARM_LAYER and the like. */
uint32_t combo_hurt_kind(const struct combo *c);
uint32_t combo_hurt_bytes(const struct combo *c);
/* Position of a rank: stage, place among the heads, place among the positions. */
void combo_place(const struct combo *c, enum side side, uint32_t rank, uint32_t *stage, uint32_t *t,
	uint32_t *d);
/* Heads [*first, *first + *count) of `heads` that place t of tp holds. */
void combo_heads(uint32_t heads, uint32_t tp, uint32_t t, uint16_t *first, uint16_t *count);

/* Declaration and postings of one endpoint. */
void combo_make(struct combo *c, enum side side, uint32_t rank, struct maker *m);
void combo_unmake(struct maker *m);

/* The engine that combinations are played at, one after the other. */
struct venue {
	const char *socket;
	uint64_t bytes; /* that it said to have copied so far */
};

/* Opens all endpoints, posts, waits, checks every byte of every pool and how many were copied; true
 * if all was as it should be. */
bool combo_play(struct combo *c, struct venue *v);

#endif
