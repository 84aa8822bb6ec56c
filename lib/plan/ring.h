/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ring state: page i of the source list and page i of the destination list are rings, position p in
 * row p % size. The newest positions that both can hold are copied. Pure; the iterator is plain
 * memory.
 */
#ifndef KVF_PLAN_RING_H
#define KVF_PLAN_RING_H

#include <stddef.h>
#include <stdint.h>

#include <kvferry/plan.h>

struct kvf_ring_iter {
	const uint32_t *src, *dst;
	uint32_t src_rows, dst_rows; /* ring sizes */
	uint32_t n, ring;            /* rings, the current one */
	uint64_t total, pos;         /* positions of the prompt; next one of the current ring */
};

/* Lists of n rings each (they stay the caller's), for a prompt of `total` tokens. */
void kvf_ring_begin(struct kvf_ring_iter *it, const uint32_t *src, uint32_t src_rows,
	const uint32_t *dst, uint32_t dst_rows, uint32_t n, uint64_t total);

/* As kvf_plan_next(); runs never cross a page. */
size_t kvf_ring_next(struct kvf_ring_iter *it, struct kvf_run *runs, size_t max);

#endif
