/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/ring.h"

static uint64_t
first_position(const struct kvf_ring_iter *it)
{
	uint64_t rows = it->src_rows < it->dst_rows ? it->src_rows : it->dst_rows;

	return it->total > rows ? it->total - rows : 0;
}

void
kvf_ring_begin(struct kvf_ring_iter *it, const uint32_t *src, uint32_t src_rows,
	const uint32_t *dst, uint32_t dst_rows, uint32_t n, uint64_t total)
{
	/* Of no position there is nothing in any ring, and rings may be very many. */
	if (total == 0)
		n = 0;
	*it = (struct kvf_ring_iter){src, dst, src_rows, dst_rows, n, 0, total, 0};
	it->pos = first_position(it);
}

size_t
kvf_ring_next(struct kvf_ring_iter *it, struct kvf_run *runs, size_t max)
{
	size_t n = 0;

	while (n < max && it->ring < it->n) {
		uint64_t s = it->pos % it->src_rows, d = it->pos % it->dst_rows;
		uint64_t rows = it->total - it->pos;

		if (rows == 0) {
			it->ring++;
			it->pos = first_position(it);
			continue;
		}
		/* Up to where either ring wraps. */
		if (rows > it->src_rows - s)
			rows = it->src_rows - s;
		if (rows > it->dst_rows - d)
			rows = it->dst_rows - d;
		runs[n++] = (struct kvf_run){
			.src_row = (uint64_t)it->src[it->ring] * it->src_rows + s,
			.dst_row = (uint64_t)it->dst[it->ring] * it->dst_rows + d,
			.blocks = 1,
			.block_rows = rows,
			.src_step = rows,
			.dst_step = rows,
		};
		it->pos += rows;
	}
	return n;
}
