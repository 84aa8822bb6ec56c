/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Any declaration. What kvf_geometry_check() accepts is worked out byte by byte: every byte of
 * every row lies in the pool, and none belongs to two rows.
 */
#include <kvferry/geometry.h>

#include "bytes.h"

#define MAX_COMPONENTS 4
#define MAX_ENTRIES    6
#define PAINT_MAX      (1u << 18)

static uint8_t paint[PAINT_MAX];

static void
take_entry(struct bytes *b, struct kvf_entry *e)
{
	e->head_count = (uint16_t)take_wild(b, 4);
	e->row_bytes = (uint32_t)take_wild(b, 32) * (take8(b) % 8 != 0 ? e->head_count : 1);
	e->head_stride = take_wild(b, 48);
	e->row_stride = take_wild(b, 96);
	e->page_stride = take_wild(b, 200);
	e->offset = take_wild(b, 200) * (1 + take8(b) % 4);
	e->head_first = (uint16_t)take_wild(b, 2);
	e->head_total = (uint16_t)(take8(b) % 8 != 0 ? e->head_first + e->head_count : take(b, 2));
	e->layer = take8(b) % 4;
	e->kind = take8(b) % 4;
	e->reserved[1] = take8(b) == 77;
}

static void
take_component(struct bytes *b, struct kvf_component *c, struct kvf_entry *entries)
{
	uint32_t i;

	c->cls = (uint32_t)take_wild(b, 3);
	c->tag = (uint32_t)take_wild(b, 0);
	c->list = (uint32_t)take_wild(b, 7);
	c->page_tokens = (uint32_t)take_wild(b, 4);
	c->num_pages = (uint32_t)take_wild(b, 8);
	c->rule = (uint32_t)take_wild(b, 0);
	c->sharding.size = 1 + (uint32_t)take_wild(b, 3);
	c->sharding.rank = (uint32_t)take_wild(b, 3);
	c->sharding.interleave = 1 + (uint32_t)take_wild(b, 3);
	c->sharding.mode = (uint32_t)take_wild(b, 1);
	if (c->cls != KVF_TOKENS && take8(b) % 8 != 0)
		c->sharding = (struct kvf_sharding){1, 0, 1, 0};
	c->num_entries = take_range(b, 0, MAX_ENTRIES);
	c->entries = entries;
	for (i = 0; i < c->num_entries; i++)
		take_entry(b, &entries[i]);
}

static uint64_t
address(const struct kvf_entry *e, uint64_t page, uint64_t slot, uint64_t head)
{
	uint64_t cell = e->row_bytes / e->head_count;

	return e->offset + page * e->page_stride + slot * e->row_stride +
	       head * (e->head_stride != 0 ? e->head_stride : cell);
}

/* Corners in 128 bits: nothing may have wrapped. */
static void
check_corners(const struct kvf_component *c, const struct kvf_entry *e, uint64_t pool)
{
	uint64_t cell = e->row_bytes / e->head_count;
	unsigned __int128 end = e->offset;

	if (c->num_pages > 1)
		end += (unsigned __int128)(c->num_pages - 1) * e->page_stride;
	if (c->page_tokens > 1)
		end += (unsigned __int128)(c->page_tokens - 1) * e->row_stride;
	if (e->head_count > 1)
		end += (unsigned __int128)(e->head_count - 1u) *
		       (e->head_stride != 0 ? e->head_stride : cell);
	MUST(end + cell <= pool);
}

static void
paint_entry(const struct kvf_component *c, const struct kvf_entry *e, uint64_t pool)
{
	uint64_t cell = e->row_bytes / e->head_count, page, slot, head, i;

	for (page = 0; page < c->num_pages; page++)
		for (slot = 0; slot < c->page_tokens; slot++)
			for (head = 0; head < e->head_count; head++) {
				uint64_t at = address(e, page, slot, head);

				MUST(at + cell <= pool);
				for (i = at; i < at + cell; i++) {
					MUST(paint[i] == 0);
					paint[i] = 1;
				}
			}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct kvf_entry entries[MAX_COMPONENTS][MAX_ENTRIES];
	static struct kvf_component components[MAX_COMPONENTS];
	struct bytes b = {data, size};
	struct kvf_geometry geo = {.components = components};
	uint64_t pool = take8(&b) % 8 != 0 ? take(&b, 2) * 4 : take(&b, 8);
	struct kvf_err err = {0};
	uint32_t c, i;

	memset(entries, 0, sizeof(entries));
	memset(components, 0, sizeof(components));
	geo.num_components = take_range(&b, 0, MAX_COMPONENTS);
	geo.reserved = take8(&b) == 77;
	for (c = 0; c < geo.num_components; c++)
		take_component(&b, &components[c], entries[c]);
	if (kvf_geometry_check(&geo, pool, &err) != 0) {
		MUST(err.code < 0 && err.text[0] != '\0');
		return 0;
	}
	for (c = 0; c < geo.num_components; c++)
		for (i = 0; i < components[c].num_entries; i++)
			check_corners(&components[c], &entries[c][i], pool);
	if (pool > PAINT_MAX)
		return 0;
	memset(paint, 0, pool);
	for (c = 0; c < geo.num_components; c++)
		for (i = 0; i < components[c].num_entries; i++)
			paint_entry(&components[c], &entries[c][i], pool);
	return 0;
}
