/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is copied: the pools of all ranks of both sides, the pages of each room in them, and their
 * contents. The parent makes all of it before it forks, so every process maps every pool at the
 * same address; kvferryd gets them as it would from anybody.
 *
 * Rooms take turns on `slots`, each with pages of its own.
 */
#ifndef KVFERRY_PERF_FIELD_H
#define KVFERRY_PERF_FIELD_H

#include <stdint.h>

#include <kvferry/kvferry.h>

#include "common/models.h"
#include "common/shape.h"
#include "kvferry-perf/options.h"

struct perf_rank {
	enum kvf_role role;
	struct shape_rank decl;
	struct kvf_geometry geo; /* token components only */
	struct kvf_pool *pool;
	uint8_t *base;
	uint32_t pages_per_slot;
	uint32_t *pages; /* [slot][pages_per_slot] */
};

struct perf_field {
	const struct perf_options *o;
	struct model model;
	struct shape src, dst;
	uint32_t np, nd; /* ranks; nd: those that take part */
	uint32_t slots;
	struct perf_rank *p, *d;
	uint64_t tokens;     /* of a room */
	uint64_t slot_bytes; /* that one room's decode ranks receive */
	uint64_t touched;    /* bytes read and written by one round over all slots */
	uint64_t pool_bytes; /* of all pools */
	uint64_t page_size;  /* of their memory */
};

/* One contiguous stretch of the copy that a room is, found by the library's planner. */
struct perf_piece {
	const uint8_t *src;
	uint8_t *dst;
	uint64_t bytes;
	uint32_t dst_rank;
	uint32_t reserved;
};

struct perf_pieces {
	struct perf_piece *piece;
	uint64_t num;
	uint64_t bytes;
	uint64_t runs;
	double plan_us; /* what the planner alone took, all pairs and maps */
};

/* Loads or makes up o->model, cut to o->layers, without state. */
int perf_model(const struct perf_options *o, struct model *m, struct kvf_err *err);

/*
 * Sizes everything for at least `slots` rooms, and for as many as o->footprint asks for and memory
 * allows; `endpoints` pairs of pools of their own. Makes no pool. *pages: 2 MiB pages wanted.
 */
int perf_field_plan(const struct perf_options *o, uint32_t slots, struct perf_field *f,
	uint64_t *pages, struct kvf_err *err);

/* Refuses what a case cannot do that has one endpoint a side. */
int perf_one_rank(const struct perf_options *o, const struct perf_field *f, struct kvf_err *err);

/* Creates the pools. With o->check also their contents. */
int perf_field_make(struct perf_field *f, struct kvf_err *err);
void perf_field_free(struct perf_field *f);

static inline const uint32_t *
perf_pages(const struct perf_rank *r, uint32_t slot)
{
	return r->pages + (uint64_t)slot * r->pages_per_slot;
}

/* Overwrites what a slot's decode rows hold with bytes that are nobody's. */
void perf_field_spoil(const struct perf_field *f, uint32_t rank, uint32_t slot);

/* Bytes of this decode rank's rows of the slot that somebody wrote since they were spoilt. */
uint64_t perf_field_unspoilt(const struct perf_field *f, uint32_t rank, uint32_t slot);

/* Bytes of this decode rank's rows of the slot that are not what prefill sent. */
uint64_t perf_field_verify(const struct perf_field *f, uint32_t rank, uint32_t slot);

/* Spoils whole decode pools; then, after rooms were verified and spoiled again, bytes anywhere that
 * something else wrote. */
void perf_field_spoil_all(const struct perf_field *f);
uint64_t perf_field_sweep(const struct perf_field *f);

int perf_pieces_make(
	const struct perf_field *f, uint32_t slot, struct perf_pieces *out, struct kvf_err *err);
void perf_pieces_free(struct perf_pieces *p);

#endif
