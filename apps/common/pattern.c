/* SPDX-License-Identifier: BSD-3-Clause */
#include <endian.h>
#include <string.h>

#include "common/pattern.h"

uint64_t
pattern_key(const struct pattern_row *row)
{
	uint64_t key;

	key = pattern_mix(row->room_key ^ 0x6b765f726f6f6d73ull);
	key = pattern_mix(key ^ ((uint64_t)row->cls << 56 | (uint64_t)row->occurrence << 48 |
					(uint64_t)row->kind << 32 | row->layer));
	return pattern_mix(key ^ row->position);
}

void
pattern_fill(uint8_t *dst, uint64_t key, uint64_t first, uint64_t n)
{
	uint64_t i = 0, w, word;

	for (; i < n && (first + i) % 8 != 0; i++)
		dst[i] = pattern_byte(key, first + i);
	for (w = (first + i) / 8; n - i >= 8; i += 8, w++) {
		word = htole64(pattern_word(key, w));
		memcpy(dst + i, &word, sizeof(word));
	}
	for (; i < n; i++)
		dst[i] = pattern_byte(key, first + i);
}

static uint64_t
compare_bytes(const uint8_t *src, uint64_t key, uint64_t first, uint64_t n, uint64_t *bad)
{
	uint64_t i, differ = 0;

	for (i = 0; i < n; i++) {
		if (src[i] == pattern_byte(key, first + i))
			continue;
		if (differ++ == 0)
			*bad = i;
	}
	return differ;
}

/* Words are compared in blocks, and only a block that differs is looked at byte by byte. */
#define BLOCK 4096u

static uint64_t
compare_block(const uint8_t *src, uint64_t key, uint64_t first, uint64_t n, uint64_t *bad)
{
	uint64_t i = 0, w, word, differ = 0;

	for (; i < n && (first + i) % 8 != 0; i++)
		differ |= src[i] ^ pattern_byte(key, first + i);
	for (w = (first + i) / 8; n - i >= 8; i += 8, w++) {
		memcpy(&word, src + i, sizeof(word));
		differ |= le64toh(word) ^ pattern_word(key, w);
	}
	for (; i < n; i++)
		differ |= src[i] ^ pattern_byte(key, first + i);
	return differ == 0 ? 0 : compare_bytes(src, key, first, n, bad);
}

uint64_t
pattern_compare(const uint8_t *src, uint64_t key, uint64_t first, uint64_t n, uint64_t *bad)
{
	uint64_t i, len, here, found = 0, differ = 0;

	for (i = 0; i < n; i += len) {
		len = n - i < BLOCK ? n - i : BLOCK;
		here = compare_block(src + i, key, first + i, len, &found);
		if (here != 0 && differ == 0)
			*bad = i + found;
		differ += here;
	}
	return differ;
}
