/* SPDX-License-Identifier: BSD-3-Clause */
/* Ways in which the buffers of a layer lie in a pool, as strides. */
#ifndef KVF_TESTS_LAYOUT_H
#define KVF_TESTS_LAYOUT_H

#include <stdint.h>

#include <kvferry/geometry.h>

enum layout {
	LAY_NHD,        /* each buffer dense, token-major */
	LAY_NHD_PADDED, /* space after rows and pages */
	LAY_HND,        /* each buffer dense, head-major pages */
	LAY_HND_PADDED,
	LAY_ROWS,   /* the buffers of a call side by side in each row */
	LAY_PLANES, /* the buffers of a call one after the other in each page, then padding */
	LAY_HEADS,  /* the buffers of a call side by side in each head: equal head counts only */
	LAY_BLOCKS, /* heads outermost, then pages */
	LAY_COUNT,
};

/* One buffer, without its place. */
struct spec {
	uint32_t layer;
	uint16_t kind;
	uint16_t dtype;
	uint16_t head_first;
	uint16_t head_count;
	uint16_t head_total;
	uint32_t head_bytes;
};

/* Fills in n entries whose `pages` pages of `rows` rows lie from *at on; moves *at past them. */
void layout_place(enum layout layout, const struct spec *specs, uint32_t n, uint32_t rows,
	uint32_t pages, uint64_t *at, struct kvf_entry *entries);

#endif
