/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "engine/slab.h"

#define SMALL_CHUNK (1u << 20)

/* Free memory stays ours, so the address sanitizer has to be told that nobody may touch it. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(mem, n)   ASAN_POISON_MEMORY_REGION(mem, n)
#define UNPOISON(mem, n) ASAN_UNPOISON_MEMORY_REGION(mem, n)
#else
#define POISON(mem, n)   ((void)(mem), (void)(n))
#define UNPOISON(mem, n) ((void)(mem), (void)(n))
#endif

struct kvf_slab_chunk {
	struct kvf_slab_chunk *next;
	void *mem;
	size_t bytes;
};

void
kvf_slab_init(struct kvf_slab *slab)
{
	memset(slab, 0, sizeof(*slab));
}

void
kvf_slab_fini(struct kvf_slab *slab)
{
	struct kvf_slab_chunk *c, *next;

	for (c = slab->chunks; c != NULL; c = next) {
		next = c->next;
		UNPOISON(c->mem, c->bytes);
		free(c->mem);
		free(c);
	}
	kvf_slab_init(slab);
}

static unsigned int
class_of(uint64_t size)
{
	if (size <= 1u << KVF_SLAB_MIN_SHIFT)
		return KVF_SLAB_MIN_SHIFT;
	return 64 - (unsigned int)__builtin_clzll(size - 1);
}

static void *
grow(struct kvf_slab *slab, size_t bytes)
{
	struct kvf_slab_chunk *c = malloc(sizeof(*c));

	if (c == NULL)
		return NULL;
	c->mem = aligned_alloc(64, bytes);
	if (c->mem == NULL) {
		free(c);
		return NULL;
	}
	c->bytes = bytes;
	POISON(c->mem, bytes);
	c->next = slab->chunks;
	slab->chunks = c;
	slab->bytes_held += bytes;
	return c->mem;
}

void *
kvf_slab_alloc(struct kvf_slab *slab, uint64_t size)
{
	unsigned int shift = class_of(size);
	size_t bytes;
	void *mem;

	if (shift > KVF_SLAB_MAX_SHIFT)
		return NULL;
	bytes = (size_t)1 << shift;
	mem = slab->free[shift];
	if (mem != NULL) {
		UNPOISON(mem, sizeof(void *));
		memcpy(&slab->free[shift], mem, sizeof(void *));
	} else if (bytes >= SMALL_CHUNK / 4) {
		mem = grow(slab, bytes);
	} else {
		if (slab->bump_left < bytes) {
			/* What is left of the old chunk is smaller than this class and stays
			 * unused. */
			slab->bump = grow(slab, SMALL_CHUNK);
			slab->bump_left = slab->bump != NULL ? SMALL_CHUNK : 0;
		}
		mem = slab->bump;
		if (mem != NULL) {
			slab->bump += bytes;
			slab->bump_left -= bytes;
		}
	}
	if (mem != NULL) {
		slab->bytes_used += bytes;
		UNPOISON(mem, size != 0 ? size : bytes);
	}
	return mem;
}

void
kvf_slab_free(struct kvf_slab *slab, void *mem, uint64_t size)
{
	unsigned int shift = class_of(size);

	if (mem == NULL)
		return;
	UNPOISON(mem, sizeof(void *)); /* it may have been smaller */
	memcpy(mem, &slab->free[shift], sizeof(void *));
	slab->free[shift] = mem;
	slab->bytes_used -= (uint64_t)1 << shift;
	POISON(mem, (size_t)1 << shift);
}
