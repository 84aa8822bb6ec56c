/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>
#include <immintrin.h>

#include "kernel.h"

typedef struct {
	__m256i lo, hi;
} line_t;

static inline line_t
line_load(const uint8_t *src)
{
	line_t line;

	line.lo = _mm256_loadu_si256((const __m256i *)src);
	line.hi = _mm256_loadu_si256((const __m256i *)(src + 32));
	return line;
}

/* Both halves back to back, so that they leave the write-combining buffer as one line. */
static inline void
line_stream(uint8_t *dst, line_t line)
{
	_mm256_stream_si256((__m256i *)dst, line.lo);
	_mm256_stream_si256((__m256i *)(dst + 32), line.hi);
}

/* The largest power of two twice, from both ends: the middle is written twice with the same bytes.
 */
static inline void
part_copy(uint8_t *dst, const uint8_t *src, uint64_t n)
{
	if (n >= 32) {
		__m256i a = _mm256_loadu_si256((const __m256i *)src);
		__m256i b = _mm256_loadu_si256((const __m256i *)(src + n - 32));

		_mm256_storeu_si256((__m256i *)dst, a);
		_mm256_storeu_si256((__m256i *)(dst + n - 32), b);
	} else if (n >= 16) {
		__m128i a = _mm_loadu_si128((const __m128i *)src);
		__m128i b = _mm_loadu_si128((const __m128i *)(src + n - 16));

		_mm_storeu_si128((__m128i *)dst, a);
		_mm_storeu_si128((__m128i *)(dst + n - 16), b);
	} else if (n >= 8) {
		uint64_t a, b;

		memcpy(&a, src, 8);
		memcpy(&b, src + n - 8, 8);
		memcpy(dst, &a, 8);
		memcpy(dst + n - 8, &b, 8);
	} else if (n >= 4) {
		uint32_t a, b;

		memcpy(&a, src, 4);
		memcpy(&b, src + n - 4, 4);
		memcpy(dst, &a, 4);
		memcpy(dst + n - 4, &b, 4);
	} else if (n != 0) {
		dst[0] = src[0];
		dst[n / 2] = src[n / 2];
		dst[n - 1] = src[n - 1];
	}
}

#include "stream.h"

static bool
available(void)
{
	return __builtin_cpu_supports("avx2");
}

static void
fence(void)
{
	_mm_sfence();
}

const struct kvf_cpu_kernel kvf_cpu_avx2 = {
	.name = "avx2",
	.detail = "avx2 non-temporal, 8 rows side by side: " KVF_CPU_TABLE,
	.needs = "avx2",
	.available = available,
	.stream = stream_lanes,
	.fence = fence,
};
