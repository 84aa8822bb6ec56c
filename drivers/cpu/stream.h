/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The streaming loop, written once for all vector widths. Include it after defining, for 64-byte
 * lines:
 *	line_t				one cache line in registers
 *	line_load(src)			from any address
 *	line_stream(dst, line)		non-temporal, dst 64-byte aligned
 *	part_copy(dst, src, n)		n < 64 bytes with ordinary stores, touching nothing else
 * Everything here is static: the file is compiled once per instruction set.
 */
#ifndef KVF_DRIVERS_CPU_STREAM_H
#define KVF_DRIVERS_CPU_STREAM_H

#include "kernel.h"

#define LINE 64u

#define INLINE static inline __attribute__((always_inline))

/*
 * Into the second-level cache: its miss queue is several times deeper than the first level's, whose
 * few fill buffers the streamed stores occupy as well. (Fetching into the first level gains little,
 * and with the NTA hint everything is slower than with no fetching at all.)
 */
INLINE void
fetch(const uint8_t *p)
{
	__builtin_prefetch(p, 0, 1);
}

/* All loads before the stores: reads and writes then come to the memory in bursts. */
INLINE void
stripe2(uint8_t *dst, const uint8_t *src, const uint8_t *ahead)
{
	fetch(ahead);
	fetch(ahead + LINE);
	line_t a = line_load(src);
	line_t b = line_load(src + LINE);
	line_stream(dst, a);
	line_stream(dst + LINE, b);
}

INLINE void
stripe6(uint8_t *dst, const uint8_t *src, const uint8_t *ahead)
{
	fetch(ahead);
	fetch(ahead + LINE);
	fetch(ahead + 2 * LINE);
	fetch(ahead + 3 * LINE);
	fetch(ahead + 4 * LINE);
	fetch(ahead + 5 * LINE);
	line_t a = line_load(src);
	line_t b = line_load(src + LINE);
	line_t c = line_load(src + 2 * LINE);
	line_t d = line_load(src + 3 * LINE);
	line_t e = line_load(src + 4 * LINE);
	line_t f = line_load(src + 5 * LINE);
	line_stream(dst, a);
	line_stream(dst + LINE, b);
	line_stream(dst + 2 * LINE, c);
	line_stream(dst + 3 * LINE, d);
	line_stream(dst + 4 * LINE, e);
	line_stream(dst + 5 * LINE, f);
}

/* The first `mid` bytes (a multiple of stripe) of every lane's `bytes`, in turn. */
INLINE void
turns(const struct kvf_cpu_lane *lanes, uint32_t g, uint64_t mid, uint64_t bytes,
	const uint64_t stripe)
{
	const uint64_t ahead = stripe == 2 * LINE ? KVF_CPU_AHEAD : KVF_CPU_AHEAD_LONG;
	const uint64_t far = ahead / g & ~(uint64_t)(LINE - 1);
	const uint64_t step = bytes < far ? bytes : far;
	uint64_t o = 0;
	uint32_t i;

	for (; o < mid && o + step + stripe <= bytes; o += stripe) {
		for (i = 0; i < g; i++) {
			const uint8_t *s = lanes[i].src + o;

			if (stripe == 2 * LINE)
				stripe2(lanes[i].dst + o, s, s + step);
			else
				stripe6(lanes[i].dst + o, s, s + step);
		}
	}
	for (; o < mid; o += stripe) {
		/* Past this row's end: the row to come. A stripe across the end starts it early. */
		uint64_t next = o + step < bytes ? 0 : o + step - bytes;

		for (i = 0; i < g; i++) {
			const uint8_t *s = lanes[i].src + o;

			if (stripe == 2 * LINE)
				stripe2(lanes[i].dst + o, s, lanes[i].ahead + next);
			else
				stripe6(lanes[i].dst + o, s, lanes[i].ahead + next);
		}
	}
}

/* What turns() left over: whole lines, then the rest of the row. */
INLINE void
finish(uint8_t *dst, const uint8_t *src, const uint8_t *ahead, uint64_t n)
{
	while (n >= LINE) {
		fetch(ahead);
		line_stream(dst, line_load(src));
		dst += LINE;
		src += LINE;
		ahead += LINE;
		n -= LINE;
	}
	if (n != 0)
		part_copy(dst, src, n);
}

static void
stream_lanes(const struct kvf_cpu_lane *lanes, uint32_t g, uint64_t bytes)
{
	struct kvf_cpu_lane moved[KVF_CPU_LANES];
	uint64_t head[KVF_CPU_LANES];
	uint64_t most = 0, body, mid;
	uint32_t i;

	for (i = 0; i < g; i++) {
		head[i] = -(uintptr_t)lanes[i].dst % LINE;
		if (head[i] > bytes)
			head[i] = bytes;
		if (head[i] > most)
			most = head[i];
	}
	if (most != 0) {
		for (i = 0; i < g; i++) {
			if (head[i] != 0)
				part_copy(lanes[i].dst, lanes[i].src, head[i]);
			moved[i].src = lanes[i].src + head[i];
			moved[i].dst = lanes[i].dst + head[i];
			moved[i].ahead = lanes[i].ahead;
		}
		lanes = moved;
	}

	body = bytes - most;
	if (bytes >= KVF_CPU_LONG_ROW) {
		mid = body - body % (6 * LINE);
		turns(lanes, g, mid, body, 6 * LINE);
	} else {
		mid = body - body % (2 * LINE);
		turns(lanes, g, mid, body, 2 * LINE);
	}
	if (mid == bytes)
		return;
	for (i = 0; i < g; i++)
		finish(lanes[i].dst + mid, lanes[i].src + mid, lanes[i].ahead + mid,
			bytes - head[i] - mid);
}

#endif
