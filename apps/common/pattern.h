/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes that anybody can recompute from where they belong: word w of a row is a mix of the row's
 * key and w. One multiplication per 8 bytes, so that filling and checking run at memory speed.
 */
#ifndef KVFERRY_APPS_PATTERN_H
#define KVFERRY_APPS_PATTERN_H

#include <stdint.h>

/* Full-strength mix (finaliser of MurmurHash3): close inputs give unrelated outputs. */
static inline uint64_t
pattern_mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	x ^= x >> 33;
	return x;
}

static inline uint64_t
pattern_word(uint64_t key, uint64_t w)
{
	uint64_t x = key + w * 0x9e3779b97f4a7c15ull;

	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	x ^= x >> 32;
	return x;
}

/* Whose row it is. Two rows that differ in any field share no key. */
struct pattern_row {
	uint64_t room_key;
	uint64_t position; /* 0 for state and aux */
	uint32_t layer;
	uint16_t kind;
	uint8_t cls;        /* enum kvf_class */
	uint8_t occurrence; /* among entries of equal class, kind and layer */
};

uint64_t pattern_key(const struct pattern_row *row);

/* Bytes [first, first + n) of the endless row with that key. */
void pattern_fill(uint8_t *dst, uint64_t key, uint64_t first, uint64_t n);

/* Number of bytes that differ from it; *bad (if any) is the index in src of the first one. */
uint64_t pattern_compare(
	const uint8_t *src, uint64_t key, uint64_t first, uint64_t n, uint64_t *bad);

/* One byte of it. */
static inline uint8_t
pattern_byte(uint64_t key, uint64_t i)
{
	return (uint8_t)(pattern_word(key, i / 8) >> (8 * (i % 8)));
}

#endif
