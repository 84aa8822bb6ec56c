/* SPDX-License-Identifier: BSD-3-Clause */
/* How a batch is cut up into lanes. */
#include <string.h>

#include "kernel.h"

/* A copy is split into lanes of its own only if each gets at least this much. */
#define SPLIT_MIN 4096u

/*
 * Copies of one shape, to be done side by side. Lane l does row 0 of copy[0][l], row 0 of
 * copy[1][l], ... row 0 of copy[chain - 1][l], then row 1 of copy[0][l] and so on: a chain is what
 * makes the accesses of a lane adjacent. With chain 1 it is just one copy after the other's rows.
 */
struct span {
	uint32_t lanes;
	uint32_t chain;
	uint64_t rows;
	uint64_t row_bytes;
	uint64_t src_stride;
	uint64_t dst_stride;
	const uint8_t *src[KVF_COPY_BATCH_MAX]; /* [j * lanes + l] */
	uint8_t *dst[KVF_COPY_BATCH_MAX];
};

static struct kvf_copy
flattened(const struct kvf_copy *c)
{
	struct kvf_copy f = *c;

	if (f.rows > 1 && f.src_stride == f.row_bytes && f.dst_stride == f.row_bytes) {
		f.row_bytes *= f.rows;
		f.rows = 1;
	}
	if (f.rows == 1) {
		f.src_stride = 0;
		f.dst_stride = 0;
	}
	return f;
}

static bool
same_shape(const struct kvf_copy *a, const struct kvf_copy *b)
{
	return a->rows == b->rows && a->row_bytes == b->row_bytes &&
	       a->src_stride == b->src_stride && a->dst_stride == b->dst_stride;
}

/*
 * The rows of one source page often go to many destinations (each DCP rank takes every n-th), or
 * many sources to one page. One by one they touch memory in holes; together they are one contiguous
 * piece. Looks at the first copies of c[0..n), all of one shape, for copies `period` apart that
 * continue each other's rows on one side, and lays them out in *s. Returns how many copies that
 * takes, 0 when there is no such pattern.
 */
static uint32_t
chain_up(struct span *s, const struct kvf_copy *c, uint32_t n)
{
	const uint64_t len = c->row_bytes;
	const bool holes_src = c->src_stride / 2 >= len;
	const bool holes_dst = c->dst_stride / 2 >= len;
	uint32_t period, used, i, l, j;
	bool by_src = false;

	if (!holes_src && !holes_dst)
		return 0;
	for (period = 1; period < n; period++) {
		by_src = holes_src && c[period].src == c->src + len;
		if (by_src || (holes_dst && c[period].dst == c->dst + len))
			break;
	}
	if (period >= n)
		return 0;

	for (used = period; used < n; used++)
		if (by_src ? c[used].src != c[used - period].src + len
			   : c[used].dst != c[used - period].dst + len)
			break;
	s->chain = used / period;
	s->lanes = period;
	if (period > 1) {
		/* Chains lie across: copy j * period + l is link j of lane l. */
		used = s->chain * period;
		for (i = 0; i < used; i++) {
			s->src[i] = c[i].src;
			s->dst[i] = c[i].dst;
		}
		return s->chain > 1 ? used : 0;
	}

	/* Chains lie one after the other: take as many equally long ones as follow. */
	for (s->lanes = 1; (s->lanes + 1) * s->chain <= n; s->lanes++) {
		const struct kvf_copy *b = c + s->lanes * s->chain;

		for (j = 1; j < s->chain; j++)
			if (by_src ? b[j].src != b[j - 1].src + len
				   : b[j].dst != b[j - 1].dst + len)
				break;
		if (j != s->chain)
			break;
	}
	for (l = 0; l < s->lanes; l++) {
		for (j = 0; j < s->chain; j++) {
			s->src[j * s->lanes + l] = c[l * s->chain + j].src;
			s->dst[j * s->lanes + l] = c[l * s->chain + j].dst;
		}
	}
	return s->lanes * s->chain;
}

/* Walks a span: all rows of all links of the first g lanes, then those of the next lanes. */
struct cursor {
	uint64_t row;
	uint32_t link;
	uint32_t first; /* == lanes at the end */
	uint32_t g;
};

static void
cursor_lanes(struct cursor *c, const struct span *s, uint32_t first)
{
	const uint32_t left = s->lanes - first;
	const uint32_t groups = (left + KVF_CPU_LANES - 1) / KVF_CPU_LANES;

	c->row = 0;
	c->link = 0;
	c->first = first;
	c->g = groups == 0 ? 0 : (left + groups - 1) / groups;
}

static void
cursor_next(struct cursor *c, const struct span *s)
{
	if (++c->link < s->chain)
		return;
	c->link = 0;
	if (++c->row == s->rows)
		cursor_lanes(c, s, c->first + c->g);
}

/*
 * While this runs the store buffer is full of streamed stores that wait for memory. So the lanes
 * are filled in and read back word by word: a load that needs the bytes of two younger stores would
 * wait for all of those in front of them.
 */
static void
stream_lanes(const struct kvf_cpu_kernel *k, const struct span *s)
{
	struct kvf_cpu_lane lanes[KVF_CPU_LANES];
	struct cursor now, ahead;
	uint64_t todo;
	uint32_t i;

	cursor_lanes(&now, s, 0);
	ahead = now;
	todo = (s->row_bytes < KVF_CPU_LONG_ROW ? KVF_CPU_AHEAD : KVF_CPU_AHEAD_LONG) / now.g;
	for (; ahead.g != 0; todo -= s->row_bytes) {
		cursor_next(&ahead, s);
		if (todo <= s->row_bytes)
			break;
	}
	while (now.g != 0) {
		const uint8_t *const *src = s->src + now.link * s->lanes + now.first;
		uint8_t *const *dst = s->dst + now.link * s->lanes + now.first;

		for (i = 0; i < now.g; i++) {
			lanes[i].src = src[i] + now.row * s->src_stride;
			lanes[i].dst = dst[i] + now.row * s->dst_stride;
			lanes[i].ahead = lanes[i].src;
		}
		src = s->src + ahead.link * s->lanes + ahead.first;
		for (i = 0; i < now.g && i < ahead.g; i++)
			lanes[i].ahead = src[i] + ahead.row * s->src_stride;
		k->stream(lanes, now.g, s->row_bytes);
		cursor_next(&now, s);
		if (ahead.g != 0)
			cursor_next(&ahead, s);
	}
}

/* Too few copies to keep the memory busy: cut each into `parts` of `rows` rows, or of `bytes` bytes
 * of the only row, that become lanes themselves. */
static void
split(struct span *s, uint32_t parts, uint64_t src_step, uint64_t dst_step)
{
	const uint32_t old = s->lanes;
	uint32_t l, j, p;

	s->lanes = old * parts;
	/* From the end: what is still needed lies in front of what is written. */
	for (j = s->chain; j-- > 0;) {
		for (l = old; l-- > 0;) {
			const uint8_t *src = s->src[j * old + l];
			uint8_t *dst = s->dst[j * old + l];

			for (p = parts; p-- > 0;) {
				s->src[j * s->lanes + l * parts + p] = src + p * src_step;
				s->dst[j * s->lanes + l * parts + p] = dst + p * dst_step;
			}
		}
	}
}

static uint32_t
parts_for(const struct span *s)
{
	const uint64_t room = KVF_COPY_BATCH_MAX / ((uint64_t)s->lanes * s->chain);
	uint64_t parts = KVF_CPU_LANES / s->lanes;

	if (parts > room)
		parts = room;
	if (s->rows > 1) {
		const uint64_t rows_min = (SPLIT_MIN - 1) / s->row_bytes / s->chain + 1;

		if (parts > s->rows / rows_min)
			parts = s->rows / rows_min;
	} else if (s->chain > 1) {
		parts = 1;
	} else if (parts > s->row_bytes / SPLIT_MIN) {
		parts = s->row_bytes / SPLIT_MIN;
	}
	return parts > 1 ? (uint32_t)parts : 1;
}

static void
stream_span(const struct kvf_cpu_kernel *k, struct span *s)
{
	const uint32_t parts = parts_for(s);
	uint64_t rest, done;
	uint32_t i, n;

	if (parts > 1 && s->rows > 1) {
		n = s->lanes * s->chain;
		rest = s->rows % parts;
		done = s->rows - rest;
		if (rest != 0) {
			struct span tail = *s;

			tail.rows = rest;
			for (i = 0; i < n; i++) {
				tail.src[i] += done * s->src_stride;
				tail.dst[i] += done * s->dst_stride;
			}
			stream_lanes(k, &tail);
		}
		s->rows = done / parts;
		split(s, parts, s->rows * s->src_stride, s->rows * s->dst_stride);
	} else if (parts > 1) {
		const uint64_t part = s->row_bytes / parts & ~(uint64_t)63;

		rest = s->row_bytes - part * parts;
		if (rest != 0) {
			struct span tail = *s;

			tail.row_bytes = rest;
			for (i = 0; i < s->lanes; i++) {
				tail.src[i] += part * parts;
				tail.dst[i] += part * parts;
			}
			stream_lanes(k, &tail);
		}
		s->row_bytes = part;
		split(s, parts, part, part);
	}
	stream_lanes(k, s);
}

static void
plain(const struct kvf_copy *c)
{
	uint64_t row;

	for (row = 0; row < c->rows; row++)
		memcpy(c->dst + row * c->dst_stride, c->src + row * c->src_stride, c->row_bytes);
}

uint64_t
kvf_cpu_run(const struct kvf_cpu_kernel *k, const struct kvf_copy *copies, uint32_t n, bool stream)
{
	struct kvf_copy flat[KVF_COPY_BATCH_MAX];
	bool streamed = false;
	uint64_t bytes = 0;
	struct span s;
	uint32_t i, m, used;

	for (i = 0; i < n; i++) {
		flat[i] = flattened(&copies[i]);
		bytes += flat[i].rows * flat[i].row_bytes;
	}
	if (k->stream == NULL || bytes < KVF_CPU_STREAM_BATCH)
		stream = false;

	for (i = 0; i < n; i += used) {
		const struct kvf_copy *c = &flat[i];

		if (!stream || c->row_bytes < KVF_CPU_STREAM_ROW) {
			plain(c);
			used = 1;
			continue;
		}
		for (m = 1; i + m < n && same_shape(c, &c[m]); m++)
			;
		s.rows = c->rows;
		s.row_bytes = c->row_bytes;
		s.src_stride = c->src_stride;
		s.dst_stride = c->dst_stride;
		used = chain_up(&s, c, m);
		if (used == 0) {
			s.chain = 1;
			s.lanes = m;
			for (used = 0; used < m; used++) {
				s.src[used] = c[used].src;
				s.dst[used] = c[used].dst;
			}
		}
		stream_span(k, &s);
		streamed = true;
	}

	/* Streamed stores are weakly ordered. The fence puts them in front of whatever the caller
	 * stores to say that the batch is done; its partner is the acquire of the thread that reads
	 * that. */
	if (streamed)
		k->fence();
	return bytes;
}
