/* SPDX-License-Identifier: BSD-3-Clause */
/* What is asked of lists of ids: contiguous groups, range, uniqueness. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <kvferry/plan.h>

#include "base/err.h"

#define FEW         16u   /* ids that are compared one with another */
#define STACK_BYTES 4096u /* bitmap that needs no allocation: 32768 ids */
#define RADIX_BITS  11u   /* three passes sort ids of 31 bits */
#define RADIX       (1u << RADIX_BITS)

static int
fail_dup(struct kvf_err *err, const char *side, uint32_t page, uint64_t first, uint64_t second)
{
	return kvf_fail(err, KVF_E_DUP_PAGE,
		"%s page=%u stands in the list twice: first=%" PRIu64 ", second=%" PRIu64, side,
		page, first, second);
}

static int
unique_few(const uint32_t *pages, uint64_t n, const char *side, struct kvf_err *err)
{
	uint64_t i, j;

	for (j = 1; j < n; j++) {
		for (i = 0; i < j; i++) {
			if (pages[i] == pages[j])
				return fail_dup(err, side, pages[j], i, j);
		}
	}
	return 0;
}

static int
unique_bitmap(
	const uint32_t *pages, uint64_t n, uint64_t *bits, const char *side, struct kvf_err *err)
{
	uint64_t i, j;

	for (j = 0; j < n; j++) {
		uint64_t mask = 1ull << (pages[j] % 64);

		if ((bits[pages[j] / 64] & mask) != 0) {
			for (i = 0; pages[i] != pages[j]; i++)
				;
			return fail_dup(err, side, pages[j], i, j);
		}
		bits[pages[j] / 64] |= mask;
	}
	return 0;
}

/*
 * For ids that are few but far apart. A radix sort, since its cost does not depend on the ids,
 * which come from elsewhere. It is stable: equal ids stay in order of index.
 */
static int
unique_sort(const uint32_t *pages, uint64_t n, uint64_t *mem, const char *side, struct kvf_err *err)
{
	uint64_t *from = mem, *to = mem + n, best = UINT64_MAX, i;
	uint32_t shift;

	for (i = 0; i < n; i++)
		from[i] = (uint64_t)pages[i] << 32 | i;
	for (shift = 32; shift < 64; shift += RADIX_BITS) {
		uint64_t count[RADIX] = {0}, sum = 0, *swap;

		for (i = 0; i < n; i++)
			count[from[i] >> shift & (RADIX - 1)]++;
		for (i = 0; i < RADIX; i++) {
			uint64_t c = count[i];

			count[i] = sum;
			sum += c;
		}
		for (i = 0; i < n; i++)
			to[count[from[i] >> shift & (RADIX - 1)]++] = from[i];
		swap = from;
		from = to;
		to = swap;
	}
	/* Report the pair that a reader of the list meets first. */
	for (i = 1; i < n; i++) {
		if (from[i] >> 32 == from[i - 1] >> 32 &&
			(best == UINT64_MAX || (uint32_t)from[i] < (uint32_t)from[best]))
			best = i;
	}
	if (best == UINT64_MAX)
		return 0;
	return fail_dup(err, side, (uint32_t)(from[best] >> 32), (uint32_t)from[best - 1],
		(uint32_t)from[best]);
}

int
kvf_pages_check(const uint32_t *pages, uint64_t n, uint32_t limit, int unique, const char *side,
	struct kvf_err *err)
{
	uint64_t stack[STACK_BYTES / 8], bytes, i;
	bool sort;
	uint32_t top = 0;
	void *mem;
	int rc;

	if (n != 0 && pages == NULL)
		return kvf_fail(err, KVF_E_INVAL, "%s pages=NULL with n=%" PRIu64, side, n);
	if (limit > KVF_MAX_PAGE_ID)
		limit = KVF_MAX_PAGE_ID;
	for (i = 0; i < n; i++)
		top = pages[i] > top ? pages[i] : top;
	if (n != 0 && top >= limit) {
		for (i = 0; pages[i] < limit; i++)
			;
		return kvf_fail(err, KVF_E_PAGE,
			"%s page=%u at index=%" PRIu64 " must be below limit=%u", side, pages[i], i,
			limit);
	}
	if (!unique)
		return 0;
	if (n <= FEW)
		return unique_few(pages, n, side, err);
	/* One more than there are ids must hold a pair: longer lists need no look further on. */
	if (n > (uint64_t)top + 2)
		n = (uint64_t)top + 2;
	bytes = ((uint64_t)top / 64 + 1) * 8;
	if (bytes <= sizeof(stack)) {
		memset(stack, 0, bytes);
		return unique_bitmap(pages, n, stack, side, err);
	}
	sort = bytes / 64 > n;
	mem = sort ? malloc(n * 16) : calloc(1, bytes);
	if (mem == NULL)
		return kvf_fail(err, KVF_E_NOMEM,
			"no memory to check %s pages: n=%" PRIu64 ", needed=%" PRIu64, side, n,
			sort ? n * 16 : bytes);
	rc = sort ? unique_sort(pages, n, mem, side, err) : unique_bitmap(pages, n, mem, side, err);
	free(mem);
	return rc;
}

int
kvf_group_contiguous(const int64_t *src, uint64_t num_src, const int64_t *dst, uint64_t num_dst,
	struct kvf_group *groups, uint64_t max, uint64_t *num_groups, struct kvf_err *err)
{
	uint64_t i, n = 0;

	*num_groups = 0;
	if (num_src == 0 || num_dst == 0)
		return 0;
	if (num_src != num_dst)
		return kvf_fail(err, KVF_E_LENGTH,
			"group_concurrent_contiguous requires equal-length src/dst index arrays, "
			"got "
			"%" PRIu64 " and %" PRIu64,
			num_src, num_dst);
	for (i = 0; i < num_src; i++) {
		if (src[i] < 0 || dst[i] < 0)
			return kvf_fail(err, KVF_E_PAGE,
				"%s index=%" PRId64 " at position=%" PRIu64 " is negative, limit=0",
				src[i] < 0 ? "src" : "dst", src[i] < 0 ? src[i] : dst[i], i);
		/* Neither is negative, so the differences do not wrap. */
		if (i > 0 && src[i] - src[i - 1] == 1 && dst[i] - dst[i - 1] == 1) {
			groups[n - 1].count++;
			continue;
		}
		if (n == max)
			return kvf_fail(err, KVF_E_QUOTA,
				"more groups than there is room for, limit=%" PRIu64, max);
		groups[n].src_start = src[i];
		groups[n].dst_start = dst[i];
		groups[n].count = 1;
		n++;
	}
	*num_groups = n;
	return 0;
}
