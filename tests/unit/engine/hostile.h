/* SPDX-License-Identifier: BSD-3-Clause */
/* What the suites of hostile clients share: a calm pair of workers, and what the engine holds. */
#ifndef KVF_TESTS_HOSTILE_H
#define KVF_TESTS_HOSTILE_H

#include "cluster.h"
#include "raw.h"

extern struct cluster calm;
extern uint64_t rnd;

/* One verified room of the calm pair. */
void calm_moves(void);
void hostile_setup(const struct kvf_engine_config *cfg);
/* Also checks that descriptors, mappings and slab memory are as they were after the setup. */
void hostile_teardown(void);

#endif
