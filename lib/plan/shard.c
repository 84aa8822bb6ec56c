/* SPDX-License-Identifier: BSD-3-Clause */
/* Sharding arithmetic, and every refusal of a plan that needs no page id. */
#include <inttypes.h>
#include <stddef.h>

#include <kvferry/link.h>
#include <kvferry/plan.h>

#include "base/err.h"
#include "plan/joint.h"

#define MAX_INTERLEAVE (1u << 31)
#define KNOWN_FLAGS    (KVF_PLAN_SPLIT_SRC | KVF_PLAN_SPLIT_DST)

uint64_t
kvf_shard_rows(const struct kvf_sharding *sh, uint64_t pos)
{
	uint64_t period, first, off;

	if (sh->size == 1)
		return pos;
	period = (uint64_t)sh->size * sh->interleave;
	first = (uint64_t)sh->rank * sh->interleave;
	off = pos % period;
	off = off <= first ? 0 : off - first;
	if (off > sh->interleave)
		off = sh->interleave;
	return pos / period * sh->interleave + off;
}

static uint64_t
gcd(uint64_t a, uint64_t b)
{
	return b == 0 ? a : gcd(b, a % b);
}

/*
 * Blocks of a start at oa + k * pa, blocks of b at ob + l * pb. The distance from the one start to
 * the other takes every value that is ob - oa modulo g = gcd(pa, pb), and nothing else; two blocks
 * share a position when -ib < distance < ia.
 */
int
kvf_sharding_intersects(const struct kvf_sharding *a, const struct kvf_sharding *b)
{
	uint64_t ia = a->interleave, ib = b->interleave;
	uint64_t g = gcd(a->size * ia, b->size * ib);
	uint64_t oa = a->rank * ia % g, ob = b->rank * ib % g;
	uint64_t ahead = (ob + g - oa) % g;

	/* Where a band lies depends on the prompt; some prompt makes it meet anything. */
	if (a->mode == KVF_SHARD_BAND || b->mode == KVF_SHARD_BAND)
		return 1;
	return ahead < ia || (g - ahead) % g < ib;
}

int
kvf_sharding_check(const struct kvf_sharding *sh, const char *side, struct kvf_err *err)
{
	if (sh->size < 1 || sh->size > KVF_MAX_SHARDS)
		return kvf_fail(err, KVF_E_SHARDING,
			"%s sharding size=%u must be at least 1 and at most limit=%u", side,
			sh->size, KVF_MAX_SHARDS);
	if (sh->rank >= sh->size)
		return kvf_fail(err, KVF_E_SHARDING, "%s sharding rank=%u must be below size=%u",
			side, sh->rank, sh->size);
	if (sh->interleave < 1 || sh->interleave > MAX_INTERLEAVE)
		return kvf_fail(err, KVF_E_SHARDING,
			"%s sharding interleave=%u must be at least 1 and at most limit=%u", side,
			sh->interleave, MAX_INTERLEAVE);
	if (sh->mode > KVF_SHARD_BAND)
		return kvf_fail(err, KVF_E_SHARDING, "%s sharding mode=%u is past limit=%u", side,
			sh->mode, KVF_SHARD_BAND);
	return 0;
}

void
kvf_shard_span(const struct kvf_sharding *sh, uint64_t total, uint64_t *from, uint64_t *to)
{
	uint64_t pages, each, more, first;

	*from = 0;
	*to = UINT64_MAX;
	if (sh->mode != KVF_SHARD_BAND)
		return;
	pages = total / sh->interleave + (total % sh->interleave != 0);
	each = pages / sh->size;
	more = pages % sh->size;
	first = sh->rank * each + (sh->rank < more ? sh->rank : more);
	/* The last page of the longest prompts ends past 64 bits. */
	if (kvf_mul_overflows(first, sh->interleave, from) || *from > total)
		*from = total;
	if (kvf_mul_overflows(first + each + (sh->rank < more), sh->interleave, to) || *to > total)
		*to = total;
}

/* Within its span a band holds every position, from a page boundary on. */
static struct kvf_sharding
within_span(const struct kvf_sharding *sh)
{
	struct kvf_sharding all = {1, 0, 1, KVF_SHARD_CYCLIC};

	return sh->mode == KVF_SHARD_BAND ? all : *sh;
}

void
kvf_plan_resolve(const struct kvf_plan_spec *spec, struct kvf_resolved *r)
{
	uint64_t src_from, src_to, dst_from, dst_to;

	kvf_shard_span(&spec->src, spec->total, &src_from, &src_to);
	kvf_shard_span(&spec->dst, spec->total, &dst_from, &dst_to);
	r->src = within_span(&spec->src);
	r->dst = within_span(&spec->dst);
	r->src_base = spec->start > src_from ? spec->start : src_from;
	r->dst_base = spec->prefix > dst_from ? spec->prefix : dst_from;
	r->lo = r->src_base > r->dst_base ? r->src_base : r->dst_base;
	r->hi = spec->start + spec->tokens;
	if (r->hi > src_to)
		r->hi = src_to;
	if (r->hi > dst_to)
		r->hi = dst_to;
	if (r->hi < r->lo)
		r->hi = r->lo;
}

/* Local rows below the end of a list of `pages` pages that starts with the page of the first row >=
 * pos. */
static int
list_end(const struct kvf_sharding *sh, uint32_t page_tokens, uint64_t pages, uint64_t pos,
	const char *side, uint64_t *rows, struct kvf_err *err)
{
	uint64_t first = kvf_shard_rows(sh, pos) / page_tokens;

	if (kvf_add_overflows(first, pages, rows) || kvf_mul_overflows(*rows, page_tokens, rows))
		return kvf_fail(err, KVF_E_OVERFLOW,
			"%s pages=%" PRIu64 " of page_tokens=%u from page=%" PRIu64
			" on pass limit=%" PRIu64 " rows",
			side, pages, page_tokens, first, UINT64_MAX);
	return 0;
}

static int
check_page_tokens(uint32_t page_tokens, const char *side, struct kvf_err *err)
{
	if (page_tokens == 0)
		return kvf_fail(
			err, KVF_E_INVAL, "%s page_tokens=0 must be at least limit=1", side);
	return 0;
}

int
kvf_plan_capacity(const struct kvf_sharding *src, uint32_t src_page_tokens, uint64_t num_src_pages,
	uint64_t start, uint64_t *tokens, struct kvf_err *err)
{
	uint64_t end, pos, inter = src->interleave;
	int rc;

	rc = kvf_sharding_check(src, "src", err);
	if (rc == 0)
		rc = check_page_tokens(src_page_tokens, "src", err);
	if (rc == 0)
		rc = list_end(src, src_page_tokens, num_src_pages, start, "src", &end, err);
	if (rc != 0)
		return rc;
	/*
	 * Where the list ends with a whole interleave block, the answer is the same on every rank.
	 * Elsewhere it is up to the first position whose row is not in the list.
	 */
	if (src->size == 1 || end % inter == 0) {
		if (kvf_mul_overflows(end, src->size, &pos))
			goto overflow;
	} else {
		if (kvf_mul_overflows(end / inter, inter * src->size, &pos) ||
			kvf_add_overflows(pos, src->rank * inter + end % inter, &pos))
			goto overflow;
	}
	/* An empty list may begin before start. */
	*tokens = pos > start ? pos - start : 0;
	return 0;
overflow:
	return kvf_fail(err, KVF_E_OVERFLOW,
		"src rows=%" PRIu64 " of size=%u ranks pass limit=%" PRIu64 " positions", end,
		src->size, UINT64_MAX);
}

static int
check_dst(const struct kvf_plan_spec *spec, const struct kvf_resolved *r, struct kvf_err *err)
{
	uint64_t first, end, last, row, before, virt;
	int rc;

	if (r->lo >= r->hi)
		return 0;
	rc = list_end(
		&r->dst, spec->dst_page_tokens, spec->num_dst_pages, r->dst_base, "dst", &end, err);
	if (rc != 0)
		return rc;
	if (kvf_shard_rows(&r->dst, r->hi) <= end)
		return 0;
	/* This rank holds rows past its list; they matter only where this source sends them. */
	if (!kvf_joint_last(&r->src, &r->dst, r->lo, r->hi, &last))
		return 0;
	row = kvf_shard_rows(&r->dst, last);
	if (row < end)
		return 0;
	first = kvf_shard_rows(&r->dst, r->dst_base) / spec->dst_page_tokens;
	before = spec->start < spec->prefix ? spec->start : spec->prefix;
	virt = (uint64_t)spec->src_page_tokens * r->src.size;
	return kvf_fail(err, KVF_E_DST_PAGES,
		"destination pages must hold every row that this rank receives: required=%" PRIu64
		", provided=%" PRIu64 ", src_page_offset=%" PRIu64 ", dcp_rank=%u",
		row / spec->dst_page_tokens - first + 1, spec->num_dst_pages,
		(spec->start - before) / virt, spec->dst.rank);
}

static int
check_prefix(
	const struct kvf_sharding *dst, uint32_t page_tokens, uint64_t prefix, struct kvf_err *err)
{
	uint64_t virt = (uint64_t)page_tokens * within_span(dst).size;

	if (prefix % virt != 0)
		return kvf_fail(err, KVF_E_PREFIX,
			"PD DCP transfer requires decode_prefix_len to align to the virtual DCP "
			"page "
			"size (%" PRIu64 "), got %" PRIu64,
			virt, prefix);
	return 0;
}

static int
check_band(
	const struct kvf_sharding *sh, uint32_t page_tokens, const char *side, struct kvf_err *err)
{
	if (sh->mode == KVF_SHARD_BAND && sh->interleave % page_tokens != 0)
		return kvf_fail(err, KVF_E_SHARDING,
			"%s band of pages of interleave=%u tokens, which is not a multiple of "
			"page_tokens=%u",
			side, sh->interleave, page_tokens);
	return 0;
}

static int
check_side(
	const struct kvf_sharding *sh, uint32_t page_tokens, const char *side, struct kvf_err *err)
{
	int rc = kvf_sharding_check(sh, side, err);

	if (rc == 0)
		rc = check_page_tokens(page_tokens, side, err);
	return rc == 0 ? check_band(sh, page_tokens, side, err) : rc;
}

int
kvf_source_check(const struct kvf_sharding *src, uint32_t page_tokens, uint64_t num_pages,
	uint64_t start, uint64_t tokens, uint64_t total, struct kvf_err *err)
{
	struct kvf_sharding held = within_span(src);
	uint64_t capacity, end, from, to;
	int rc;

	if (tokens == 0)
		return 0;
	if (kvf_add_overflows(start, tokens, &end))
		return kvf_fail(err, KVF_E_OVERFLOW,
			"start=%" PRIu64 " + tokens=%" PRIu64 " pass limit=%" PRIu64, start, tokens,
			UINT64_MAX);
	rc = check_side(src, page_tokens, "src", err);
	if (rc != 0)
		return rc;
	kvf_shard_span(src, total, &from, &to);
	start = start > from ? start : from;
	end = end < to ? end : to;
	if (end <= start)
		return 0;
	rc = kvf_plan_capacity(&held, page_tokens, num_pages, start, &capacity, err);
	if (rc != 0)
		return rc;
	/* What counts is the rank's own rows: past the last one that it holds it needs no page. */
	if (end - start > capacity &&
		kvf_shard_rows(&held, end) > kvf_shard_rows(&held, start + capacity))
		return kvf_fail(err, KVF_E_CAPACITY,
			"num_kv_tokens must fit in the provided source pages, got tokens=%" PRIu64
			", capacity=%" PRIu64,
			end - start, capacity);
	return 0;
}

int
kvf_grant_check(const struct kvf_sharding *dst, uint32_t page_tokens, uint64_t num_pages,
	uint64_t prefix, uint64_t total, struct kvf_err *err)
{
	struct kvf_sharding held = within_span(dst);
	uint64_t begin, end, required, from, to;
	int rc;

	rc = check_side(dst, page_tokens, "dst", err);
	if (rc == 0)
		rc = check_prefix(dst, page_tokens, prefix, err);
	if (rc != 0)
		return rc;
	if (prefix > total)
		return kvf_fail(err, KVF_E_INVAL,
			"prefix=%" PRIu64 " must not exceed total=%" PRIu64, prefix, total);
	kvf_shard_span(dst, total, &from, &to);
	begin = kvf_shard_rows(&held, prefix > from ? prefix : from);
	end = kvf_shard_rows(&held, total < to ? total : to);
	required = begin >= end ? 0 : (end - 1) / page_tokens - begin / page_tokens + 1;
	if (num_pages < required)
		return kvf_fail(err, KVF_E_DST_PAGES,
			"destination pages must hold every row that this rank receives: "
			"required=%" PRIu64 ", provided=%" PRIu64
			", src_page_offset=0, dcp_rank=%u",
			required, num_pages, dst->rank);
	return 0;
}

int
kvf_plan_check(const struct kvf_plan_spec *spec, struct kvf_err *err)
{
	struct kvf_resolved r;
	uint64_t end;
	int rc;

	if (spec == NULL)
		return kvf_fail(err, KVF_E_INVAL, "plan spec=NULL");
	rc = check_side(&spec->src, spec->src_page_tokens, "src", err);
	if (rc == 0)
		rc = check_side(&spec->dst, spec->dst_page_tokens, "dst", err);
	if (rc != 0)
		return rc;
	if ((spec->flags & ~KNOWN_FLAGS) != 0)
		return kvf_fail(err, KVF_E_INVAL, "plan flags=%#x, known flags=%#x", spec->flags,
			KNOWN_FLAGS);
	if (spec->reserved != 0)
		return kvf_fail(err, KVF_E_INVAL, "plan reserved=%u must be 0", spec->reserved);
	if (spec->num_src_pages != 0 && spec->src_pages == NULL)
		return kvf_fail(err, KVF_E_INVAL, "src_pages=NULL with num_src_pages=%" PRIu64,
			spec->num_src_pages);
	if (spec->num_dst_pages != 0 && spec->dst_pages == NULL)
		return kvf_fail(err, KVF_E_INVAL, "dst_pages=NULL with num_dst_pages=%" PRIu64,
			spec->num_dst_pages);
	if (kvf_add_overflows(spec->start, spec->tokens, &end))
		return kvf_fail(err, KVF_E_OVERFLOW,
			"start=%" PRIu64 " + tokens=%" PRIu64 " pass limit=%" PRIu64, spec->start,
			spec->tokens, UINT64_MAX);
	if ((spec->src.mode == KVF_SHARD_BAND || spec->dst.mode == KVF_SHARD_BAND) &&
		end > spec->total)
		return kvf_fail(err, KVF_E_INVAL,
			"a band needs the prompt's length: start=%" PRIu64 " + tokens=%" PRIu64
			" are past total=%" PRIu64,
			spec->start, spec->tokens, spec->total);
	rc = check_prefix(&spec->dst, spec->dst_page_tokens, spec->prefix, err);
	if (rc == 0)
		rc = kvf_source_check(&spec->src, spec->src_page_tokens, spec->num_src_pages,
			spec->start, spec->tokens, spec->total, err);
	if (rc != 0 || spec->tokens == 0)
		return rc;
	kvf_plan_resolve(spec, &r);
	return check_dst(spec, &r, err);
}
