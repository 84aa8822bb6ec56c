/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model of two groups that knows nothing of lib/plan/link.c: each pool is an array of
 * meanings, one 64-bit word per byte, "byte x of head h of position p of that layer and kind". A
 * link is right when copying by it gives every byte of every decode pool the meaning that it should
 * have, exactly once.
 */
#ifndef KVF_TESTS_LINK_MODEL_H
#define KVF_TESTS_LINK_MODEL_H

#include <stdint.h>

#include <kvferry/geometry.h>
#include <kvferry/link.h>

#include "common/layout.h"

#define LEN(a) ((uint32_t)(sizeof(a) / sizeof((a)[0])))

#define EP_COMPONENTS 8
#define EP_ENTRIES    192
#define GROUP_MAX     96

struct ep {
	struct kvf_geometry geo;
	struct kvf_component comps[EP_COMPONENTS];
	struct kvf_entry entries[EP_COMPONENTS][EP_ENTRIES];
	uint64_t pool_bytes;
	uint32_t *pages[KVF_MAX_LISTS]; /* the page lists of the one request that is copied */
};

struct group {
	struct ep *prefill[GROUP_MAX];
	struct ep *decode[GROUP_MAX];
	uint32_t num_prefill;
	uint32_t num_decode;
	uint32_t positions; /* of the request */
	uint32_t items;     /* rows of each state list */
	uint64_t rand;
};

void group_init(struct group *g, uint32_t positions, uint32_t items);
void group_free(struct group *g);
struct ep *group_add(struct group *g, int decode);

/* Adds a component with as many pages as the group's request needs, and a few more; returns its
 * index. */
uint32_t ep_component(struct group *g, struct ep *ep, uint32_t cls, uint32_t tag, uint32_t list,
	uint32_t page_tokens, uint32_t size, uint32_t rank, uint32_t interleave);
void ep_add(struct ep *ep, uint32_t component, enum layout layout, const struct spec *specs,
	uint32_t n);

/* Ready-made buffers: an MLA latent; K or V of heads [first, first + count) of `total`. */
struct spec latent(uint32_t layer);
struct spec heads(uint32_t layer, uint16_t kind, uint32_t first, uint32_t count, uint32_t total);

/* An endpoint with one component of tokens in list 0, unsharded or not; and entries for it. */
struct ep *add_plain(struct group *g, int decode, uint32_t page_tokens);
struct ep *add_sharded(struct group *g, int decode, uint32_t page_tokens, uint32_t size,
	uint32_t rank, uint32_t interleave);
void add_latents(struct ep *ep, uint32_t from, uint32_t to);
void add_kv(struct ep *ep, enum layout layout, uint32_t layer, uint32_t first, uint32_t count,
	uint32_t total);

/* Does the prefill group hold all that the decode group should get? By looking at every head and
 * position. */
int group_covered(const struct group *g);

/* kvf_geometry_check() of all, then kvf_link_build(). */
int group_link(const struct group *g, struct kvf_link **link, struct kvf_err *err);

/* Links, copies and checks every byte; reports failures through CHECK. Returns the link's code. */
int group_verify(struct group *g);

/* Lanes of all maps of class `cls` (0: all) from `prefill` to `decode`; UINT32_MAX: any. */
uint32_t link_lanes(const struct kvf_link *link, uint32_t prefill, uint32_t decode, uint32_t cls);

#endif
