/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/positions.h"

typedef __int128 wide;

static wide
gcd(wide a, wide b)
{
	while (b != 0) {
		wide t = a % b;

		a = b;
		b = t;
	}
	return a;
}

/* Sum of base + slope * d over the d in [lo, hi] that are c modulo g. */
static wide
sum_of(wide lo, wide hi, wide c, wide g, wide base, int slope)
{
	wide first = lo + ((c - lo) % g + g) % g, n, last;

	if (first > hi)
		return 0;
	n = (hi - first) / g + 1;
	last = first + (n - 1) * g;
	return n * base + slope * ((first + last) * n / 2);
}

/*
 * Blocks of a begin at oa + k * pa and are ia long, those of b alike. Over a common period each
 * distance d = (start of b) - (start of a) that is ob - oa modulo g = gcd(pa, pb) occurs once, and
 * two blocks at distance d share min(ia, d + ib) - max(0, d) positions: rising, level, falling.
 */
static void
cyclic(const struct kvf_sharding *a, const struct kvf_sharding *b, wide *shared, wide *of)
{
	wide ia = a->interleave, ib = b->interleave;
	wide pa = a->size * ia, pb = b->size * ib, g = gcd(pa, pb);
	wide c = b->rank * ib - a->rank * ia;
	wide up = ia < ib ? ia - ib : 0, down = ia < ib ? 0 : ia - ib;

	*shared = sum_of(1 - ib, up, c, g, ib, 1) +
		  sum_of(up + 1, down - 1, c, g, ia < ib ? ia : ib, 0) +
		  (down > up ? sum_of(down, ia - 1, c, g, ia, -1)
			     : sum_of(down + 1, ia - 1, c, g, ia, -1));
	*of = pa / g * pb;
}

static void
bands(const struct kvf_sharding *a, const struct kvf_sharding *b, wide *shared, wide *of)
{
	wide lo = (wide)a->rank * b->size, hi = lo + b->size;
	wide lo2 = (wide)b->rank * a->size, hi2 = lo2 + a->size;

	*of = (wide)a->size * b->size;
	if (a->mode != b->mode) {
		*shared = 1;
		return;
	}
	lo = lo > lo2 ? lo : lo2;
	hi = hi < hi2 ? hi : hi2;
	*shared = hi > lo ? hi - lo : 0;
}

double
positions_shared(
	const struct kvf_sharding *a, const struct kvf_sharding *b, uint64_t *shared, uint64_t *of)
{
	wide num, den, g;

	if (a->mode == KVF_SHARD_BAND || b->mode == KVF_SHARD_BAND)
		bands(a, b, &num, &den);
	else
		cyclic(a, b, &num, &den);
	g = gcd(den, num);
	num /= g;
	den /= g;
	*shared = (uint64_t)num;
	*of = den > (wide)UINT64_MAX ? 0 : (uint64_t)den;
	return (double)num / (double)den;
}
