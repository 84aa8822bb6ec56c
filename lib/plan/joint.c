/* SPDX-License-Identifier: BSD-3-Clause */
#include <kvferry/plan.h>

#include "plan/joint.h"

typedef unsigned __int128 u128;

#define NONE UINT64_MAX

/* Positions p with p mod period in [first, first + len). */
struct blocks {
	uint64_t period;
	uint64_t first;
	uint64_t len;
};

static uint64_t
min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t
gcd64(uint64_t a, uint64_t b)
{
	while (b != 0) {
		uint64_t t = a % b;

		a = b;
		b = t;
	}
	return a;
}

/*
 * Smallest k >= 0 with l <= a * k mod m <= r, for 0 <= l <= r < m <= 2^41; NONE if there is none.
 * Euclid's algorithm: either a multiple of a falls into [l, r] before the first wrap, or the number
 * of wraps solves the same problem modulo a.
 */
static uint64_t
first_multiple_in(uint64_t a, uint64_t m, uint64_t l, uint64_t r)
{
	uint64_t k, y;

	if (l == 0)
		return 0;
	a %= m;
	if (a == 0)
		return NONE;
	/* Counting downwards halves m at least every second level. */
	if (2 * a > m)
		return first_multiple_in(m - a, m, m - r, m - l);
	k = (l + a - 1) / a;
	if (k * a <= r)
		return k;
	y = first_multiple_in(m % a, a, (a - r % a) % a, (a - l % a) % a);
	if (y == NONE)
		return NONE;
	return (uint64_t)(((u128)m * y + l + a - 1) / a);
}

static struct blocks
blocks_of(const struct kvf_sharding *sh)
{
	struct blocks blk = {
		.period = (uint64_t)sh->size * sh->interleave,
		.first = (uint64_t)sh->rank * sh->interleave,
		.len = sh->interleave,
	};

	return blk;
}

/*
 * The first outer block that ends after `from` and meets an inner block: its index and x. `x` may
 * belong to a meeting that lies before `from` altogether. false: none below `limit`.
 */
static bool
find_block(const struct blocks *outer, const struct blocks *inner, uint64_t from, uint64_t limit,
	uint64_t *index, uint64_t *x)
{
	uint64_t meet = outer->len + inner->len - 1;
	uint64_t t = 0, b, k;
	u128 pos;

	if (from >= outer->first + outer->len)
		t = (from - outer->first - outer->len) / outer->period + 1;
	pos = (u128)t * outer->period + outer->first;
	if (pos >= limit)
		return false;
	b = (uint64_t)pos;
	*x = (b % inner->period + inner->period - inner->first + outer->len - 1) % inner->period;
	if (*x >= meet) {
		/* Modulo the inner period, x moves by the outer period. */
		uint64_t l = inner->period - *x;

		k = first_multiple_in(outer->period, inner->period, l, l + meet - 1);
		if (k == NONE)
			return false;
		pos = (u128)k * outer->period + b;
		if (pos >= limit)
			return false;
		t += k;
		*x = (uint64_t)(((u128)k * (outer->period % inner->period) + *x) % inner->period);
	}
	*index = t;
	return true;
}

static bool
contiguous(const struct kvf_sharding *a, const struct kvf_sharding *b)
{
	if (a->size == 1 && b->size == 1)
		return true;
	return a->size == b->size && a->rank == b->rank && a->interleave == b->interleave;
}

static void
set_move(struct kvf_joint_move *mv, const struct blocks *outer, const struct blocks *inner,
	uint64_t blocks, int64_t dx)
{
	u128 pos = (u128)blocks * outer->period;

	mv->dx = dx;
	if (pos > UINT64_MAX) {
		mv->pos = UINT64_MAX;
		return;
	}
	mv->pos = (uint64_t)pos;
	mv->outer = blocks * outer->len;
	/* Whole inner periods passed, then dx rows further into (or back in) the block. */
	mv->inner = (mv->pos - (uint64_t)dx) / inner->period * inner->len + (uint64_t)dx;
}

/*
 * Three-gap theorem: the return times of a rotation to an interval are q1 (the first one that moves
 * up by less than the interval), q2 (down), and q1 + q2 for the x where neither of the two stays
 * inside. The first two never apply to the same x, since otherwise their difference would be a
 * shorter way.
 */
static void
set_moves(struct kvf_joint *j, const struct blocks *outer, const struct blocks *inner)
{
	uint64_t m = inner->period, a = outer->period % m, q1, q2, d1, d2;

	if (outer->len == inner->len || j->meet == 1) {
		/* Equal interleaves meet whole or not at all. */
		set_move(&j->moves[2], outer, inner, m / gcd64(outer->period, m), 0);
		j->up_below = 0;
		j->down_from = UINT64_MAX;
		return;
	}
	q1 = first_multiple_in(a, m, 1, j->meet - 1);
	if (q1 == NONE) {
		set_move(&j->moves[2], outer, inner, m / gcd64(outer->period, m), 0);
		j->up_below = 0;
		j->down_from = UINT64_MAX;
		return;
	}
	q2 = first_multiple_in(a, m, m - j->meet + 1, m - 1);
	d1 = (uint64_t)((u128)q1 * a % m);
	d2 = m - (uint64_t)((u128)q2 * a % m);
	set_move(&j->moves[0], outer, inner, q1, (int64_t)d1);
	set_move(&j->moves[1], outer, inner, q2, -(int64_t)d2);
	set_move(&j->moves[2], outer, inner, q1 + q2, (int64_t)d1 - (int64_t)d2);
	j->up_below = j->meet - d1;
	j->down_from = d2;
}

static const struct kvf_joint_move *
move_from(const struct kvf_joint *j)
{
	if (j->x < j->up_below)
		return &j->moves[0];
	if (j->x >= j->down_from)
		return &j->moves[1];
	return &j->moves[2];
}

static void
step(struct kvf_joint *j)
{
	const struct kvf_joint_move *mv = move_from(j);

	if (mv->pos >= j->hi - j->b) {
		j->b = j->hi;
		return;
	}
	j->b += mv->pos;
	j->outer_row += mv->outer;
	j->inner_row += mv->inner;
	j->x += (uint64_t)mv->dx;
}

/* The shared rows of the block at b < hi, clipped to [lo, hi), as offsets from b. */
static void
block_range(const struct kvf_joint *j, uint64_t *begin, uint64_t *end)
{
	uint64_t last = j->outer_len - 1;

	*begin = j->x < last ? last - j->x : 0;
	*end = *begin + min64(min64(j->x + 1, j->outer_len), j->meet - j->x);
	if (j->lo > j->b && j->lo - j->b > *begin)
		*begin = j->lo - j->b;
	*end = min64(*end, j->hi - j->b);
}

/* How often `mv` leads from one whole block to another, starting at the whole block at b. */
static uint64_t
repeats(const struct kvf_joint *j, const struct kvf_joint_move *mv)
{
	uint64_t room = j->hi - j->b - j->outer_len, n = UINT64_MAX, span;
	/* x of whole blocks: [outer_len - 1, inner_len - 1] */
	uint64_t up = j->inner_len - 1 - j->x, down = j->x - (j->outer_len - 1);

	if (mv->pos > room)
		return 0;
	if (mv->dx > 0) {
		n = up < (uint64_t)mv->dx ? 0 : up / (uint64_t)mv->dx;
		/* moves[0] is right wherever it stays inside; moves[2] only below down_from. */
		if (n > 1 && mv == &j->moves[2])
			n = min64(n, (j->down_from - 1 - j->x) / (uint64_t)mv->dx + 1);
	} else if (mv->dx < 0) {
		n = down < (uint64_t)-mv->dx ? 0 : down / (uint64_t)-mv->dx;
		if (n > 1 && mv == &j->moves[2])
			n = min64(n, (j->x - j->up_below) / (uint64_t)-mv->dx + 1);
	}
	if (n == 0 || (!__builtin_mul_overflow(n, mv->pos, &span) && span <= room))
		return n;
	return room / mv->pos;
}

bool
kvf_joint_first(const struct kvf_sharding *src, const struct kvf_sharding *dst, uint64_t lo,
	uint64_t hi, uint64_t *pos)
{
	struct kvf_joint j;
	uint64_t begin, end;

	if (lo >= hi)
		return false;
	if (contiguous(src, dst)) {
		/* Local rows tell whether the one rank holds anything; its first row is at or after
		 * lo. */
		const struct kvf_sharding *sh = src->size == 1 ? dst : src;
		uint64_t period = (uint64_t)sh->size * sh->interleave;
		uint64_t first = (uint64_t)sh->rank * sh->interleave, off;

		if (kvf_shard_rows(sh, hi) == kvf_shard_rows(sh, lo))
			return false;
		off = lo % period;
		if (sh->size == 1 || (off >= first && off - first < sh->interleave))
			*pos = lo;
		else
			*pos = lo + (first + period - off) % period;
		return true;
	}
	kvf_joint_init(&j, src, dst, lo, hi);
	while (j.b < hi) {
		block_range(&j, &begin, &end);
		if (begin < end) {
			*pos = j.b + begin;
			return true;
		}
		step(&j);
	}
	return false;
}

bool
kvf_joint_last(const struct kvf_sharding *src, const struct kvf_sharding *dst, uint64_t lo,
	uint64_t hi, uint64_t *pos)
{
	uint64_t at;

	/* Whether something is left above a point only ever changes once: bisect. */
	if (!kvf_joint_first(src, dst, lo, hi, pos))
		return false;
	while (hi - *pos > 1) {
		uint64_t mid = *pos + (hi - *pos) / 2;

		if (kvf_joint_first(src, dst, mid, hi, &at))
			*pos = at;
		else
			hi = mid;
	}
	return true;
}

void
kvf_joint_init(struct kvf_joint *j, const struct kvf_sharding *src, const struct kvf_sharding *dst,
	uint64_t lo, uint64_t hi)
{
	const struct kvf_sharding *osh = dst, *ish = src;
	struct blocks outer, inner;
	uint64_t t;

	*j = (struct kvf_joint){
		.lo = lo,
		.hi = hi,
		.b = hi,
		.outer_is_dst = true,
		.inner_len = UINT64_MAX,
		.meet = UINT64_MAX,
		.down_from = UINT64_MAX,
		.moves[2] = {.pos = UINT64_MAX},
	};
	if (contiguous(src, dst)) {
		/* Both sides number the same rows alike: work in local rows, one block is all of
		 * it. */
		j->lo = kvf_shard_rows(src, lo);
		j->hi = kvf_shard_rows(src, hi);
		j->b = j->outer_row = j->inner_row = j->lo;
		j->outer_len = j->hi - j->lo;
		j->x = j->outer_len - 1;
		return;
	}
	if (dst->size == 1 || (src->size != 1 && src->interleave < dst->interleave)) {
		j->outer_is_dst = false;
		osh = src;
		ish = dst;
	}
	outer = blocks_of(osh);
	j->outer_len = outer.len;
	if (lo >= hi)
		return;
	if (ish->size == 1) {
		uint64_t end = outer.first + outer.len;

		t = lo < end ? 0 : (lo - end) / outer.period + 1;
		if ((u128)t * outer.period + outer.first >= hi)
			return;
		j->b = t * outer.period + outer.first;
		j->outer_row = t * outer.len;
		j->inner_row = j->b;
		j->x = outer.len - 1;
		j->moves[2].pos = outer.period;
		j->moves[2].outer = outer.len;
		j->moves[2].inner = outer.period;
		return;
	}
	inner = blocks_of(ish);
	j->inner_len = inner.len;
	j->meet = inner.len + outer.len - 1;
	if (!find_block(&outer, &inner, lo, hi, &t, &j->x))
		return;
	j->b = t * outer.period + outer.first;
	j->outer_row = t * outer.len;
	j->inner_row = kvf_shard_rows(ish, j->b);
	if (j->x < outer.len - 1)
		j->inner_row -= outer.len - 1 - j->x;
	set_moves(j, &outer, &inner);
}

bool
kvf_joint_next(struct kvf_joint *j, struct kvf_strip *strip)
{
	uint64_t begin, end, outer, inner, more = 0;
	const struct kvf_joint_move *mv;

	for (;;) {
		if (j->b >= j->hi)
			return false;
		block_range(j, &begin, &end);
		if (begin < end)
			break;
		step(j);
	}
	mv = move_from(j);
	outer = j->outer_row + begin;
	inner = j->inner_row + begin;
	if (begin == 0 && end == j->outer_len)
		more = repeats(j, mv);
	strip->rows = end - begin;
	strip->count = more + 1;
	strip->src = j->outer_is_dst ? inner : outer;
	strip->dst = j->outer_is_dst ? outer : inner;
	strip->src_step = j->outer_is_dst ? mv->inner : mv->outer;
	strip->dst_step = j->outer_is_dst ? mv->outer : mv->inner;
	if (more > 0) {
		j->b += more * mv->pos;
		j->outer_row += more * mv->outer;
		j->inner_row += more * mv->inner;
		j->x += more * (uint64_t)mv->dx;
	}
	step(j);
	return true;
}
