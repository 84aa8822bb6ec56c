/* SPDX-License-Identifier: BSD-3-Clause */
/* What part of a prompt's positions two shardings share. */
#ifndef KVFERRY_APPS_POSITIONS_H
#define KVFERRY_APPS_POSITIONS_H

#include <kvferry/geometry.h>

/*
 * *shared of *of positions, in lowest terms; 0 of 1: none. Exact over a whole period where both are
 * cyclic; with bands it is what a long prompt tends to. *of is 0 where a number passes 64 bits; the
 * share itself is returned in every case.
 */
double positions_shared(
	const struct kvf_sharding *a, const struct kvf_sharding *b, uint64_t *shared, uint64_t *of);

#endif
