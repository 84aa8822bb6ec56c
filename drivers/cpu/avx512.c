/* SPDX-License-Identifier: BSD-3-Clause */
#include <immintrin.h>

#include "kernel.h"

typedef __m512i line_t;

static inline line_t
line_load(const uint8_t *src)
{
	return _mm512_loadu_si512(src);
}

static inline void
line_stream(uint8_t *dst, line_t line)
{
	_mm512_stream_si512((void *)dst, line);
}

/* A masked-off byte is neither read nor written, whatever page it lies in. */
static inline void
part_copy(uint8_t *dst, const uint8_t *src, uint64_t n)
{
	const __mmask64 mask = ((__mmask64)1 << n) - 1;

	_mm512_mask_storeu_epi8(dst, mask, _mm512_maskz_loadu_epi8(mask, src));
}

#include "stream.h"

static bool
available(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
}

static void
fence(void)
{
	_mm_sfence();
}

const struct kvf_cpu_kernel kvf_cpu_avx512 = {
	.name = "avx512",
	.detail = "avx512 non-temporal, 8 rows side by side: " KVF_CPU_TABLE,
	.needs = "avx512f,avx512bw",
	.available = available,
	.stream = stream_lanes,
	.fence = fence,
};
