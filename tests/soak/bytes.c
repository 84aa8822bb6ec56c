/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes follow from (room, class, layer, position). Which row a position has is counted, apart from
 * the planner. The shadow holds what each byte of the pool should be; while a page is granted, what
 * it was before.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soak/soak.h"

#define ROW_MAX 256u

static bool
owned(const struct kvf_sharding *sh, uint64_t pos)
{
	return pos / sh->interleave % sh->size == sh->rank;
}

static void
row_bytes(uint8_t *row, const struct kvf_entry *e, uint32_t cls, uint64_t nonce, uint64_t pos)
{
	uint64_t x =
		soak_mix(nonce ^ soak_mix((uint64_t)cls << 56 | (uint64_t)e->layer << 40 | pos));
	uint32_t i;

	for (i = 0; i < e->row_bytes; i += 8) {
		uint64_t word = (x + i) * 0x9e3779b97f4a7c15ull;

		word ^= word >> 29;
		memcpy(row + i, &word, 8);
	}
}

static uint64_t
place(const struct peer *p, const struct kvf_entry *e, uint32_t page, uint64_t slot)
{
	uint64_t at = e->offset + page * e->page_stride + slot * e->row_stride;

	if (e->row_bytes > ROW_MAX || e->row_bytes % 8 != 0 || at + e->row_bytes > p->pool_bytes) {
		fprintf(stderr, "soak: page %u slot %lu is no place for a row\n", page, slot);
		abort();
	}
	return at;
}

static void
write_row(struct peer *p, const struct kvf_entry *e, uint32_t cls, uint64_t nonce, uint64_t pos,
	uint64_t at)
{
	row_bytes(p->shadow + at, e, cls, nonce, pos);
	memcpy(p->base + at, p->shadow + at, e->row_bytes);
}

/* Bytes that are neither what was there nor what should come. */
static uint64_t
check_row(struct peer *p, const struct kvf_entry *e, uint32_t cls, uint64_t nonce, uint64_t pos,
	uint64_t at, enum soak_want want)
{
	uint8_t row[ROW_MAX], *is = p->base + at, *was = p->shadow + at;
	uint64_t bad = 0;
	uint32_t i;

	row_bytes(row, e, cls, nonce, pos);
	if (memcmp(is, row, e->row_bytes) != 0 || want == SOAK_WANT_NONE)
		for (i = 0; i < e->row_bytes; i++)
			bad += !((is[i] == row[i] && want != SOAK_WANT_NONE) ||
				 (is[i] == was[i] && want != SOAK_WANT_ALL));
	memcpy(was, is, e->row_bytes);
	return bad;
}

void
soak_fill(struct peer *p, const struct soak_span *s)
{
	uint32_t c, k;

	for (c = 0; c < p->geo.num_components; c++) {
		const struct kvf_component *comp = &p->comps[c];
		uint64_t pos, row = 0, first = 0;

		if (comp->cls != KVF_TOKENS)
			continue;
		for (pos = 0; pos < s->to; pos++) {
			if (pos == s->base)
				first = row / comp->page_tokens;
			if (!owned(&comp->sharding, pos))
				continue;
			for (k = 0; k < comp->num_entries && pos >= s->from; k++) {
				const struct kvf_entry *e = &comp->entries[k];

				write_row(p, e, comp->cls, s->nonce, pos,
					place(p, e, s->pages[row / comp->page_tokens - first],
						row % comp->page_tokens));
			}
			row++;
		}
	}
}

void
soak_fill_slot(struct peer *p, uint64_t nonce, uint32_t slot)
{
	uint32_t c;

	for (c = 0; c < p->geo.num_components; c++) {
		const struct kvf_component *comp = &p->comps[c];

		if (comp->cls != KVF_TOKENS)
			write_row(p, comp->entries, comp->cls, nonce, 0,
				place(p, comp->entries, slot, 0));
	}
}

uint64_t
soak_untouched(struct peer *p, const uint32_t *pages, uint32_t n, uint32_t slot)
{
	uint64_t bad = 0, b;
	uint32_t c, k, i;

	for (c = 0; c < p->geo.num_components; c++) {
		const struct kvf_component *comp = &p->comps[c];

		for (k = 0; k < comp->num_entries; k++) {
			const struct kvf_entry *e = &comp->entries[k];
			bool tokens = comp->cls == KVF_TOKENS;

			for (i = 0; i < (tokens ? n : 1); i++) {
				uint64_t at =
					e->offset + (tokens ? pages[i] : slot) * e->page_stride;

				if (memcmp(p->base + at, p->shadow + at, e->page_stride) == 0)
					continue;
				for (b = 0; b < e->page_stride; b++)
					bad += p->base[at + b] != p->shadow[at + b];
				memcpy(p->shadow + at, p->base + at, e->page_stride);
			}
		}
	}
	return bad;
}

uint64_t
soak_check(struct peer *p, const struct soak_span *s, uint32_t slot, enum soak_want want)
{
	uint64_t bad = 0;
	uint32_t c, k;

	for (c = 0; c < p->geo.num_components; c++) {
		const struct kvf_component *comp = &p->comps[c];
		uint64_t pos, row = 0, first = 0;

		if (comp->cls != KVF_TOKENS) {
			bad += check_row(p, comp->entries, comp->cls, s->nonce, 0,
				place(p, comp->entries, slot, 0), want);
			continue;
		}
		for (pos = 0; pos < s->to; pos++) {
			if (pos == s->base)
				first = row / comp->page_tokens;
			if (!owned(&comp->sharding, pos))
				continue;
			for (k = 0; k < comp->num_entries && pos >= s->from; k++) {
				const struct kvf_entry *e = &comp->entries[k];

				bad += check_row(p, e, comp->cls, s->nonce, pos,
					place(p, e, s->pages[row / comp->page_tokens - first],
						row % comp->page_tokens),
					want);
			}
			row++;
		}
	}
	/* Rows of these pages that are not the room's. */
	return bad + soak_untouched(p, s->pages, s->num_pages, slot);
}
