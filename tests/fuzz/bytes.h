/* SPDX-License-Identifier: BSD-3-Clause */
/* A fuzzer's input as numbers: what lies behind the end reads as 0. */
#ifndef KVF_TESTS_FUZZ_BYTES_H
#define KVF_TESTS_FUZZ_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bytes {
	const uint8_t *p;
	size_t left;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static inline uint64_t
take(struct bytes *b, size_t n)
{
	uint64_t v = 0;
	size_t i;

	for (i = 0; i < n && b->left > 0; i++, b->p++, b->left--)
		v |= (uint64_t)*b->p << (8 * i);
	return v;
}

static inline uint8_t
take8(struct bytes *b)
{
	return (uint8_t)take(b, 1);
}

/* In [lo, hi], from one byte. */
static inline uint32_t
take_range(struct bytes *b, uint32_t lo, uint32_t hi)
{
	return lo + take8(b) % (hi - lo + 1);
}

/* Small as a rule; now and then anything. */
static inline uint64_t
take_wild(struct bytes *b, uint64_t small)
{
	uint8_t how = take8(b);

	if (how < 240)
		return how % (small + 1);
	return how < 248 ? take(b, 8) : UINT64_MAX - how % 4 - (how & 4 ? take(b, 1) : 0);
}

/* The property under test does not hold. Not assert(): it must be there in every build. */
#define MUST(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #cond);  \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#endif
