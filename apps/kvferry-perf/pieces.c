/* SPDX-License-Identifier: BSD-3-Clause */
/* The copy as a plain list of pieces: what anybody without kvferry's engine would have to move. */
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/fail.h"
#include "kvferry-perf/field.h"

#define RUNS 256u

static int
add(struct perf_pieces *out, uint64_t *room, const struct perf_piece *p, struct kvf_err *err)
{
	if (out->num == *room) {
		uint64_t more = *room == 0 ? 4096 : *room * 2;
		struct perf_piece *grown = realloc(out->piece, more * sizeof(*grown));

		if (grown == NULL)
			return app_fail(err, KVF_E_NOMEM, "no memory for pieces=%llu",
				(unsigned long long)more);
		out->piece = grown;
		*room = more;
	}
	out->piece[out->num++] = *p;
	out->bytes += p->bytes;
	return 0;
}

static uint64_t
row_offset(uint64_t row, uint32_t page_tokens, bool split, uint64_t page_stride, uint64_t stride)
{
	if (!split)
		return row * stride;
	return row / page_tokens * page_stride + row % page_tokens * stride;
}

/* One block of a run in one lane; its rows are one piece where they lie together. */
static int
add_block(const struct perf_field *f, uint32_t s, uint32_t d, const struct kvf_map *m,
	const struct kvf_lane *l, uint64_t src_row, uint64_t dst_row, uint64_t rows,
	struct perf_pieces *out, uint64_t *room, struct kvf_err *err)
{
	bool whole = m->dense != 0;
	uint64_t step = whole ? rows : 1, k;
	int rc = 0;

	for (k = 0; k < rows && rc == 0; k += step) {
		struct perf_piece p = {
			.src = f->p[s].base + l->src_off +
			       row_offset(src_row + k, m->src_page_tokens,
				       m->split & KVF_PLAN_SPLIT_SRC, l->src_page_stride,
				       l->src_row_stride),
			.dst = f->d[d].base + l->dst_off +
			       row_offset(dst_row + k, m->dst_page_tokens,
				       m->split & KVF_PLAN_SPLIT_DST, l->dst_page_stride,
				       l->dst_row_stride),
			.bytes = step * l->row_bytes,
			.dst_rank = d,
		};

		rc = add(out, room, &p, err);
	}
	return rc;
}

static int
plan_map(const struct perf_field *f, uint32_t slot, uint32_t s, uint32_t d, const struct kvf_map *m,
	struct kvf_run **runs, uint64_t *num, struct kvf_err *err)
{
	struct kvf_plan_spec spec = {
		.src = m->src,
		.dst = m->dst,
		.src_page_tokens = m->src_page_tokens,
		.dst_page_tokens = m->dst_page_tokens,
		.src_pages = perf_pages(&f->p[s], slot),
		.dst_pages = perf_pages(&f->d[d], slot),
		.num_src_pages = f->p[s].pages_per_slot,
		.num_dst_pages = f->d[d].pages_per_slot,
		.tokens = f->tokens,
		.total = f->tokens,
		.flags = m->split,
	};
	struct kvf_plan_iter it;
	uint64_t room = RUNS;
	size_t n;
	int rc;

	*num = 0;
	*runs = malloc(room * sizeof(**runs));
	if (*runs == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for runs");
	rc = kvf_plan_begin(&it, &spec, err);
	if (rc != 0)
		return rc;
	while ((n = kvf_plan_next(&it, *runs + *num, RUNS)) > 0) {
		struct kvf_run *grown;

		*num += n;
		if (room - *num >= RUNS)
			continue;
		room *= 2;
		grown = realloc(*runs, room * sizeof(**runs));
		if (grown == NULL)
			return app_fail(err, KVF_E_NOMEM, "no memory for runs=%llu",
				(unsigned long long)room);
		*runs = grown;
	}
	return 0;
}

static int
add_map(const struct perf_field *f, uint32_t slot, uint32_t s, uint32_t d, const struct kvf_map *m,
	struct perf_pieces *out, uint64_t *room, struct kvf_err *err)
{
	struct kvf_run *runs = NULL;
	uint64_t num = 0, i, b, start = app_now_ns();
	uint32_t l;
	int rc;

	rc = plan_map(f, slot, s, d, m, &runs, &num, err);
	out->plan_us += (double)(app_now_ns() - start) / 1e3;
	out->runs += num;
	for (l = 0; l < m->num_lanes; l++)
		for (i = 0; i < num && rc == 0; i++)
			for (b = 0; b < runs[i].blocks && rc == 0; b++)
				rc = add_block(f, s, d, m, &m->lanes[l],
					runs[i].src_row + b * runs[i].src_step,
					runs[i].dst_row + b * runs[i].dst_step, runs[i].block_rows,
					out, room, err);
	free(runs);
	return rc;
}

int
perf_pieces_make(
	const struct perf_field *f, uint32_t slot, struct perf_pieces *out, struct kvf_err *err)
{
	const struct kvf_geometry **geos = calloc(f->np + f->nd, sizeof(*geos));
	struct kvf_link *link = NULL;
	uint64_t room = 0;
	uint32_t s, d, i;
	int rc = 0;

	memset(out, 0, sizeof(*out));
	if (geos == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for ranks=%u", f->np + f->nd);
	for (i = 0; i < f->np + f->nd; i++)
		geos[i] = i < f->np ? &f->p[i].geo : &f->d[i - f->np].geo;
	rc = kvf_link_build(geos, f->np, geos + f->np, f->nd, &link, err);
	for (s = 0; s < f->np && rc == 0; s++) {
		for (d = 0; d < f->nd && rc == 0; d++) {
			const struct kvf_pair *pair = kvf_link_pair(link, s, d);

			for (i = 0; i < pair->num_maps && rc == 0; i++)
				rc = add_map(f, slot, s, d, &pair->maps[i], out, &room, err);
		}
	}
	kvf_link_free(link);
	free(geos);
	return rc;
}

void
perf_pieces_free(struct perf_pieces *p)
{
	free(p->piece);
	p->piece = NULL;
}
