/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private memory of the dispatcher: power-of-two size classes with free lists. Memory comes
 * from malloc while the engine warms up and is kept for good, so that a warm engine never
 * allocates. One thread.
 */
#ifndef KVF_ENGINE_SLAB_H
#define KVF_ENGINE_SLAB_H

#include <stddef.h>
#include <stdint.h>

#define KVF_SLAB_MIN_SHIFT 6  /* 64 B */
#define KVF_SLAB_MAX_SHIFT 30 /* 1 GiB */

struct kvf_slab_chunk;

struct kvf_slab {
	void *free[KVF_SLAB_MAX_SHIFT + 1];
	struct kvf_slab_chunk *chunks;
	uint8_t *bump; /* rest of the newest small chunk */
	size_t bump_left;
	uint64_t bytes_held; /* from malloc */
	uint64_t bytes_used; /* handed out, rounded to the class */
};

void kvf_slab_init(struct kvf_slab *slab);
void kvf_slab_fini(struct kvf_slab *slab);

/* 64-byte aligned, not zeroed; NULL when memory is out or size is past 1 GiB. size 0 gives 64
 * bytes. */
void *kvf_slab_alloc(struct kvf_slab *slab, uint64_t size);
/* Same size as at alloc. NULL is allowed. */
void kvf_slab_free(struct kvf_slab *slab, void *mem, uint64_t size);

#endif
