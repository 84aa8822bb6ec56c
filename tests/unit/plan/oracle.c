/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit/plan/oracle.h"

int
oracle_owns(const struct kvf_sharding *sh, uint64_t p)
{
	return sh->size == 1 || (p / sh->interleave) % sh->size == sh->rank;
}

int
oracle_owns_of(const struct kvf_sharding *sh, uint64_t total, uint64_t p)
{
	uint64_t pages = 0, page, left, at;
	uint32_t r;

	if (sh->mode != KVF_SHARD_BAND)
		return oracle_owns(sh, p);
	for (at = 0; at < total; at += sh->interleave)
		pages++;
	/* Rank after rank takes its pages, the first ones one more, until it is the turn of p's. */
	for (r = 0, page = 0; r < sh->size; r++) {
		left = pages / sh->size + (r < pages % sh->size ? 1 : 0);
		for (; left > 0; left--, page++) {
			if (p / sh->interleave == page)
				return r == sh->rank && p < total;
		}
	}
	return 0;
}

uint64_t
oracle_rows_of(const struct kvf_sharding *sh, uint64_t total, uint64_t pos)
{
	uint64_t p, n = 0;

	for (p = 0; p < pos; p++)
		n += (uint64_t)oracle_owns_of(sh, total, p);
	return n;
}

uint64_t
oracle_rows_below(const struct kvf_sharding *sh, uint64_t pos)
{
	return oracle_rows_of(sh, 0, pos);
}

uint64_t
oracle_capacity(
	const struct kvf_sharding *sh, uint32_t page_tokens, uint64_t num_pages, uint64_t start)
{
	uint64_t end = (oracle_rows_below(sh, start) / page_tokens + num_pages) * page_tokens;
	struct kvf_sharding r = *sh;
	uint64_t best = UINT64_MAX;
	int even = sh->size == 1 || end % sh->interleave == 0;

	/* The position of row `end`: on this rank, or on whichever rank comes to its row `end`
	 * first. */
	for (r.rank = even ? 0 : sh->rank; r.rank < (even ? sh->size : sh->rank + 1); r.rank++) {
		uint64_t p, n = 0;

		for (p = 0; p < best; p++) {
			if (!oracle_owns(&r, p))
				continue;
			if (n == end)
				break;
			n++;
		}
		best = p;
	}
	return best > start ? best - start : 0;
}

static uint64_t
pages_for(const struct kvf_sharding *sh, uint64_t total, uint32_t page_tokens, uint64_t from,
	uint64_t end)
{
	uint64_t first = oracle_rows_of(sh, total, from) / page_tokens;
	uint64_t rows = oracle_rows_of(sh, total, end);

	return rows == 0 || (rows - 1) / page_tokens < first ? 0
							     : (rows - 1) / page_tokens - first + 1;
}

uint64_t
oracle_src_pages(const struct kvf_plan_spec *spec)
{
	return pages_for(&spec->src, spec->total, spec->src_page_tokens, spec->start,
		spec->start + spec->tokens);
}

uint64_t
oracle_dst_pages(const struct kvf_plan_spec *spec)
{
	uint64_t end = spec->start + spec->tokens;

	return pages_for(&spec->dst, spec->total, spec->dst_page_tokens, spec->prefix,
		end < spec->prefix ? spec->prefix : end);
}

size_t
oracle_plan(const struct kvf_plan_spec *spec, struct oracle_row *out)
{
	uint64_t src_first =
		oracle_rows_of(&spec->src, spec->total, spec->start) / spec->src_page_tokens;
	uint64_t dst_first =
		oracle_rows_of(&spec->dst, spec->total, spec->prefix) / spec->dst_page_tokens;
	uint64_t s = 0, d = 0, p;
	size_t n = 0;

	for (p = 0; p < spec->start + spec->tokens; p++) {
		int in_src = oracle_owns_of(&spec->src, spec->total, p);
		int in_dst = oracle_owns_of(&spec->dst, spec->total, p);

		if (in_src && in_dst && p >= spec->start && p >= spec->prefix) {
			uint64_t sp = s / spec->src_page_tokens - src_first;
			uint64_t dp = d / spec->dst_page_tokens - dst_first;

			out[n].pos = p;
			out[n].src_row = (uint64_t)spec->src_pages[sp] * spec->src_page_tokens +
					 s % spec->src_page_tokens;
			out[n].dst_row = (uint64_t)spec->dst_pages[dp] * spec->dst_page_tokens +
					 d % spec->dst_page_tokens;
			n++;
		}
		s += (uint64_t)in_src;
		d += (uint64_t)in_dst;
	}
	return n;
}

size_t
oracle_stretches(const struct oracle_row *rows, size_t n)
{
	size_t i, count = 0;

	for (i = 0; i < n; i++) {
		if (i == 0 || rows[i].pos != rows[i - 1].pos + 1 ||
			rows[i].src_row != rows[i - 1].src_row + 1 ||
			rows[i].dst_row != rows[i - 1].dst_row + 1)
			count++;
	}
	return count;
}
