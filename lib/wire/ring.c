/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "wire/ring.h"

#define RING_PAGE 4096u

/* Where the parts of a ring lie. Cannot overflow: every size is below its limit. */
struct layout {
	uint64_t sq_off;
	uint64_t cq_off;
	uint64_t text_off;
	uint64_t arena_off;
	uint64_t total;
};

static bool
power_of_two(uint64_t v)
{
	return v != 0 && (v & (v - 1)) == 0;
}

static bool
lay_out(uint32_t sq_entries, uint32_t cq_entries, uint64_t arena_bytes, struct layout *lay)
{
	if (!power_of_two(sq_entries) || sq_entries > KVF_RING_MAX_ENTRIES)
		return false;
	if (!power_of_two(cq_entries) || cq_entries > KVF_RING_MAX_ENTRIES)
		return false;
	/* A smaller arena would share its cache line with nothing useful and break alignment. */
	if (!power_of_two(arena_bytes) || arena_bytes < KVF_CACHE_LINE ||
		arena_bytes > KVF_ARENA_MAX_BYTES)
		return false;
	/* The header and every entry are multiples of a cache line, so all offsets are too. */
	lay->sq_off = sizeof(struct kvf_ring);
	lay->cq_off = lay->sq_off + (uint64_t)sq_entries * sizeof(struct kvf_sqe);
	lay->text_off = lay->cq_off + (uint64_t)cq_entries * sizeof(struct kvf_cqe);
	lay->arena_off = lay->text_off + (uint64_t)cq_entries * sizeof(struct kvf_cq_text);
	lay->total = lay->arena_off + arena_bytes;
	lay->total = (lay->total + RING_PAGE - 1) & ~(uint64_t)(RING_PAGE - 1);
	return true;
}

uint64_t
kvf_ring_bytes(uint32_t sq_entries, uint32_t cq_entries, uint64_t arena_bytes)
{
	struct layout lay;

	return lay_out(sq_entries, cq_entries, arena_bytes, &lay) ? lay.total : 0;
}

static void
set_view(struct kvf_ring_view *view, void *mem, const struct layout *lay, uint32_t sq_entries,
	uint32_t cq_entries, uint64_t arena_bytes)
{
	uint8_t *base = mem;

	view->hdr = mem;
	view->sq = (struct kvf_sqe *)(void *)(base + lay->sq_off);
	view->cq = (struct kvf_cqe *)(void *)(base + lay->cq_off);
	view->text = (struct kvf_cq_text *)(void *)(base + lay->text_off);
	view->arena = base + lay->arena_off;
	view->sq_entries = sq_entries;
	view->cq_entries = cq_entries;
	view->arena_bytes = arena_bytes;
	view->total_bytes = lay->total;
}

void
kvf_ring_format(void *mem, uint32_t sq_entries, uint32_t cq_entries, uint64_t arena_bytes,
	struct kvf_ring_view *view)
{
	struct kvf_ring *hdr = mem;
	struct layout lay;

	memset(view, 0, sizeof(*view));
	if (!lay_out(sq_entries, cq_entries, arena_bytes, &lay))
		return; /* kvf_ring_bytes() said 0: the caller has no memory of that size */
	hdr->magic = KVF_RING_MAGIC;
	hdr->version = KVF_RING_VERSION;
	hdr->sq_entries = sq_entries;
	hdr->cq_entries = cq_entries;
	hdr->sq_off = lay.sq_off;
	hdr->cq_off = lay.cq_off;
	hdr->text_off = lay.text_off;
	hdr->arena_off = lay.arena_off;
	hdr->arena_bytes = arena_bytes;
	hdr->total_bytes = lay.total;
	set_view(view, mem, &lay, sq_entries, cq_entries, arena_bytes);
}

static int
check_offset(const char *what, uint64_t got, uint64_t need, struct kvf_err *err)
{
	if (got == need)
		return 0;
	return kvf_fail(err, KVF_E_PROTO, "ring header: %s=%" PRIu64 ", expected=%" PRIu64, what,
		got, need);
}

int
kvf_ring_attach(void *mem, uint64_t bytes, struct kvf_ring_view *view, struct kvf_err *err)
{
	struct kvf_ring hdr;
	struct layout lay;

	memset(view, 0, sizeof(*view));
	if (mem == NULL || (uintptr_t)mem % KVF_CACHE_LINE != 0)
		return kvf_fail(
			err, KVF_E_INVAL, "ring memory is not aligned to align=%d", KVF_CACHE_LINE);
	if (bytes < sizeof(hdr))
		return kvf_fail(err, KVF_E_PROTO, "ring of bytes=%" PRIu64 " is below header=%zu",
			bytes, sizeof(hdr));
	/* One copy of the constant part: what is checked is what is used. */
	memcpy(&hdr, mem, offsetof(struct kvf_ring, sq_tail));
	if (hdr.magic != KVF_RING_MAGIC)
		return kvf_fail(err, KVF_E_PROTO, "ring magic=0x%" PRIx64 ", expected=0x%llx",
			hdr.magic, KVF_RING_MAGIC);
	if (hdr.version != KVF_RING_VERSION)
		return kvf_fail(err, KVF_E_VERSION, "ring version=%u, expected=%u", hdr.version,
			KVF_RING_VERSION);
	if (!lay_out(hdr.sq_entries, hdr.cq_entries, hdr.arena_bytes, &lay))
		return kvf_fail(err, KVF_E_PROTO,
			"ring sizes sq_entries=%u cq_entries=%u arena_bytes=%" PRIu64
			" are not powers of two up to %u, %u and %llu",
			hdr.sq_entries, hdr.cq_entries, hdr.arena_bytes, KVF_RING_MAX_ENTRIES,
			KVF_RING_MAX_ENTRIES, KVF_ARENA_MAX_BYTES);
	if (lay.total > bytes)
		return kvf_fail(err, KVF_E_PROTO,
			"ring header needs bytes=%" PRIu64 ", the memory has bytes=%" PRIu64,
			lay.total, bytes);
	/* One version has one layout: any other offset is damage, wherever it points. */
	if (check_offset("sq_off", hdr.sq_off, lay.sq_off, err) != 0 ||
		check_offset("cq_off", hdr.cq_off, lay.cq_off, err) != 0 ||
		check_offset("text_off", hdr.text_off, lay.text_off, err) != 0 ||
		check_offset("arena_off", hdr.arena_off, lay.arena_off, err) != 0 ||
		check_offset("total_bytes", hdr.total_bytes, lay.total, err) != 0)
		return KVF_E_PROTO;
	set_view(view, mem, &lay, hdr.sq_entries, hdr.cq_entries, hdr.arena_bytes);
	return 0;
}
