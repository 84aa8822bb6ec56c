/* SPDX-License-Identifier: BSD-3-Clause */
/* Hands out page ids in a shuffled order that follows from the seed. Id 0 is never handed out. */
#ifndef PD_DEMO_PAGES_H
#define PD_DEMO_PAGES_H

#include <stdint.h>

#include <kvferry/error.h>

struct demo_pages {
	uint32_t *free; /* a stack */
	uint32_t num_free;
	uint32_t capacity;
	uint8_t *taken; /* one per id */
};

int demo_pages_init(
	struct demo_pages *pages, uint32_t num_pages, uint64_t seed, struct kvf_err *err);
void demo_pages_fini(struct demo_pages *pages);

/* All n or none: KVF_E_QUOTA. */
int demo_pages_take(struct demo_pages *pages, uint32_t *ids, uint32_t n, struct kvf_err *err);

/* KVF_E_PAGE for an id that was not handed out; earlier ones of the list are then given back. */
int demo_pages_give(struct demo_pages *pages, const uint32_t *ids, uint32_t n, struct kvf_err *err);

#endif
