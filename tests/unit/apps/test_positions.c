/* SPDX-License-Identifier: BSD-3-Clause */
/* The share of positions against counting them. */
#include <math.h>
#include <stdio.h>

#include "common/positions.h"
#include "common/suite.h"
#include "unit/apps/apps.h"

static int
owns(const struct kvf_sharding *sh, uint64_t p)
{
	return p / sh->interleave % sh->size == sh->rank;
}

static void
expect(struct kvf_sharding a, struct kvf_sharding b, uint64_t shared, uint64_t of)
{
	uint64_t s, o;
	double share = positions_shared(&a, &b, &s, &o);

	CHECK_EQ(s, shared);
	CHECK_EQ(o, of);
	CHECK(share == (double)shared / (double)of);
}

void
positions_worked(void)
{
	uint64_t s, o;
	struct kvf_sharding big[] = {{1000, 5, (1u << 31) - 1, 0}, {1000, 7, (1u << 31) - 2, 0}};

	expect((struct kvf_sharding){1, 0, 1, 0}, (struct kvf_sharding){1, 0, 1, 0}, 1, 1);
	expect((struct kvf_sharding){8, 5, 1, 0}, (struct kvf_sharding){4, 1, 1, 0}, 1, 8);
	expect((struct kvf_sharding){8, 5, 1, 0}, (struct kvf_sharding){4, 2, 1, 0}, 0, 1);
	expect((struct kvf_sharding){3, 1, 1, 0}, (struct kvf_sharding){4, 2, 1, 0}, 1, 12);
	expect((struct kvf_sharding){2, 1, 64, 0}, (struct kvf_sharding){2, 0, 16, 0}, 1, 4);
	/* Bands: thirds and halves of a long prompt. */
	expect((struct kvf_sharding){3, 1, 64, 1}, (struct kvf_sharding){2, 0, 16, 1}, 1, 6);
	expect((struct kvf_sharding){3, 2, 64, 1}, (struct kvf_sharding){2, 0, 16, 1}, 0, 1);
	expect((struct kvf_sharding){3, 0, 64, 1}, (struct kvf_sharding){2, 0, 16, 1}, 1, 3);
	expect((struct kvf_sharding){3, 0, 64, 1}, (struct kvf_sharding){8, 3, 16, 0}, 1, 24);
	expect((struct kvf_sharding){1023, 5, 1u << 31, 0},
		(struct kvf_sharding){1024, 7, (1u << 31) - 1, 0}, 1, 1023 * 1024);
	/* A period past 64 bits: the share alone. */
	CHECK(fabs(positions_shared(&big[0], &big[1], &s, &o) * 1000 * 1000 - 1) < 1e-3);
	CHECK_EQ(o, 0);
}

void
positions_random(void)
{
	uint64_t rng = suite_seed() | 1, c, p, period, n, s, o;

	for (c = 0; c < 3000; c++) {
		struct kvf_sharding a = {.size = (uint32_t)suite_range(&rng, 1, 8),
			.interleave = (uint32_t)suite_range(&rng, 1, 12)};
		struct kvf_sharding b = {.size = (uint32_t)suite_range(&rng, 1, 8),
			.interleave = (uint32_t)suite_range(&rng, 1, 12)};

		a.rank = (uint32_t)suite_range(&rng, 0, a.size - 1);
		b.rank = (uint32_t)suite_range(&rng, 0, b.size - 1);
		period = (uint64_t)a.size * a.interleave * b.size * b.interleave;
		for (p = n = 0; p < period; p++)
			n += (uint64_t)(owns(&a, p) && owns(&b, p));
		positions_shared(&a, &b, &s, &o);
		if (!CHECK(o > 0 && s * period == n * o))
			printf("{%u,%u,%u} {%u,%u,%u}\n", a.size, a.rank, a.interleave, b.size,
				b.rank, b.interleave);
	}
}
