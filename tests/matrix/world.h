/* SPDX-License-Identifier: BSD-3-Clause */
/* A few hand-made endpoints at an engine, and rooms between all of them. */
#ifndef KVF_TESTS_WORLD_H
#define KVF_TESTS_WORLD_H

#include "common/layout.h"
#include "common/peer.h"
#include "common/rig.h"
#include "common/suite.h"

#define WORLD_RANKS   8u
#define WORLD_ENTRIES 64u

/* A declaration in the making. */
struct decl {
	struct kvf_component comps[4];
	struct kvf_entry entries[4][WORLD_ENTRIES];
	uint32_t n;
	uint64_t bytes;
};

struct world {
	struct rig *rig;
	struct peer peer[2][WORLD_RANKS]; /* prefill, decode */
	uint32_t n[2];
	uint32_t next[2][WORLD_RANKS]; /* pages of list 0 that were handed out */
	uint64_t page_size;            /* of the pools; 0: 4096 */
};

/* Adds a component of tokens in list 0; more buffers go into the latest one. */
void decl_tokens(struct decl *d, uint32_t page_tokens, uint32_t num_pages, uint32_t size,
	uint32_t rank, uint32_t interleave);
void decl_put(struct decl *d, enum layout layout, const struct spec *specs, uint32_t n);
struct spec spec_latent(uint32_t layer, uint32_t bytes);
struct spec spec_heads(uint32_t layer, uint16_t kind, uint32_t first, uint32_t count,
	uint32_t total, uint32_t bytes);

/* Declares the next rank of a side. */
void world_add(struct world *w, int decode, struct decl *d);
/* Starts an engine and opens everything. */
void world_open(struct world *w);
/* Checks every pool, closes everything. */
void world_close(struct world *w);

/* One posting with pages that were not used yet, from the highest id down. Returns their number. */
uint32_t world_recv(struct world *w, uint32_t rank, uint64_t room, uint64_t prefix, uint64_t total);
uint32_t world_send(
	struct world *w, uint32_t rank, uint64_t room, uint64_t from, uint64_t to, uint64_t total);
/* With these pages. */
void world_recv_pages(struct world *w, uint32_t rank, uint64_t room, uint64_t prefix,
	uint64_t total, const uint32_t *ids, uint32_t n);
void world_send_pages(struct world *w, uint32_t rank, uint64_t room, uint64_t from, uint64_t to,
	uint64_t total, const uint32_t *ids, uint32_t n);
/* Every rank grants [prefix, total), every other rank sends the chunks that end at ends[]. */
void world_room(struct world *w, uint64_t room, uint64_t prefix, uint64_t start,
	const uint64_t *ends, uint32_t n);
/* Waits until it succeeded everywhere. */
void world_finish(struct world *w, uint64_t room);

#endif
