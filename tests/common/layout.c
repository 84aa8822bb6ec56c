/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "common/layout.h"

#define PLANES_PAD 9 /* odd: nothing stays aligned by accident */

static void
from_spec(const struct spec *spec, struct kvf_entry *e)
{
	memset(e, 0, sizeof(*e));
	e->layer = spec->layer;
	e->kind = spec->kind;
	e->dtype = spec->dtype;
	e->head_first = spec->head_first;
	e->head_count = spec->head_count;
	e->head_total = spec->head_total;
	e->row_bytes = spec->head_bytes * spec->head_count;
}

void
layout_place(enum layout layout, const struct spec *specs, uint32_t n, uint32_t num_rows,
	uint32_t num_pages, uint64_t *pos, struct kvf_entry *entries)
{
	uint64_t rows = num_rows, pages = num_pages, all_rows = 0, all_heads = 0, at = 0;
	uint32_t i;

	for (i = 0; i < n; i++) {
		all_rows += (uint64_t)specs[i].head_bytes * specs[i].head_count;
		all_heads += specs[i].head_bytes;
	}
	for (i = 0; i < n; i++) {
		uint64_t head = specs[i].head_bytes, heads = specs[i].head_count;
		struct kvf_entry *e = &entries[i];

		from_spec(&specs[i], e);
		e->offset = *pos;
		switch (layout) {
		case LAY_NHD:
			e->row_stride = heads * head;
			e->page_stride = rows * e->row_stride;
			*pos += pages * e->page_stride;
			break;
		case LAY_NHD_PADDED:
			e->head_stride = head;
			e->row_stride = heads * head + 3;
			e->page_stride = rows * e->row_stride + 5;
			*pos += pages * e->page_stride;
			break;
		case LAY_HND:
			e->row_stride = head;
			e->head_stride = rows * head;
			e->page_stride = heads * e->head_stride;
			*pos += pages * e->page_stride;
			break;
		case LAY_HND_PADDED:
			e->row_stride = head + 1;
			e->head_stride = rows * e->row_stride + 2;
			e->page_stride = heads * e->head_stride + 7;
			*pos += pages * e->page_stride;
			break;
		case LAY_ROWS:
			e->offset += at;
			e->row_stride = all_rows;
			e->page_stride = rows * all_rows;
			at += heads * head;
			break;
		case LAY_PLANES:
			e->offset += at;
			e->row_stride = heads * head;
			e->page_stride = rows * all_rows + PLANES_PAD;
			at += rows * heads * head;
			break;
		case LAY_HEADS:
			e->offset += at;
			e->head_stride = all_heads;
			e->row_stride = heads * all_heads;
			e->page_stride = rows * e->row_stride;
			at += head;
			break;
		default:
			e->row_stride = head;
			e->page_stride = rows * head;
			e->head_stride = pages * e->page_stride;
			*pos += heads * e->head_stride;
			break;
		}
	}
	if (layout == LAY_ROWS || layout == LAY_PLANES || layout == LAY_HEADS)
		*pos += pages * (rows * all_rows + (layout == LAY_PLANES ? PLANES_PAD : 0));
}
