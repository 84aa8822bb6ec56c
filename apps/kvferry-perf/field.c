/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fail.h"
#include "common/pattern.h"
#include "kvferry-perf/field.h"
#include "kvferry-perf/machine.h"

/* Of free memory, what pools may take at most. */
#define MEMORY_PERCENT 70u
#define HUGE_BYTES     (UINT64_C(2) << 20)
/* Left for the engine's own memory. */
#define ENGINE_PAGES 32u
#define SPOILT       0xa5

static int
row_model(const char *text, uint32_t layers, struct model *m, struct kvf_err *err)
{
	unsigned long bytes;
	char *end;
	uint32_t i;

	bytes = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end != '\0' || bytes < 1 || bytes > 16u << 20)
		return app_fail(err, KVF_E_INVAL, "model=row:%.40s must be row:1 to row:%u", text,
			16u << 20);
	if (layers == 0)
		layers = 8;
	if (layers > MODEL_MAX_LAYERS)
		return app_fail(err, KVF_E_INVAL, "layers=%u exceeds %u", layers, MODEL_MAX_LAYERS);
	memset(m, 0, sizeof(*m));
	snprintf(m->name, sizeof(m->name), "row:%lu", bytes);
	m->layers = m->kept_layers = layers;
	m->bytes_per_token = (uint64_t)bytes * layers;
	m->tokens.num = 1;
	m->tokens.group[0] = (struct model_group){
		.heads = 1,
		.num_planes = 1,
		.planes = {{.kind = KVF_KIND_LATENT, .dtype = 1, .head_bytes = (uint32_t)bytes}},
		.num_layers = layers,
	};
	for (i = 0; i < layers; i++)
		m->tokens.group[0].layers[i] = (uint16_t)i;
	return 0;
}

int
perf_model(const struct perf_options *o, struct model *m, struct kvf_err *err)
{
	int rc;

	if (strncmp(o->model, "row:", 4) == 0)
		return row_model(o->model + 4, o->layers, m, err);
	rc = model_load(models_path(), o->model, m, err);
	m->state.num = 0;
	if (rc == 0 && o->layers != 0 && o->layers < m->layers)
		rc = model_cut_layers(m, o->layers, err);
	return rc;
}

/* Rows of this rank below a position. */
static uint64_t
rows_below(const struct kvf_component *c, uint64_t pos)
{
	return kvf_shard_rows(&c->sharding, pos);
}

static uint32_t
pages_needed(const struct kvf_geometry *geo, uint64_t tokens)
{
	uint64_t most = 0, n;
	uint32_t i;

	for (i = 0; i < geo->num_components; i++) {
		const struct kvf_component *c = &geo->components[i];

		n = (rows_below(c, tokens) + c->page_tokens - 1) / c->page_tokens;
		if (n > most)
			most = n;
	}
	return (uint32_t)most;
}

static uint64_t
slot_bytes(const struct kvf_geometry *geo, uint64_t tokens)
{
	uint64_t sum = 0;
	uint32_t i, e;

	for (i = 0; i < geo->num_components; i++)
		for (e = 0; e < geo->components[i].num_entries; e++)
			sum += rows_below(&geo->components[i], tokens) *
			       geo->components[i].entries[e].row_bytes;
	return sum;
}

/* Token components come first in a declaration; the others are not measured. */
static int
declare(const struct perf_field *f, struct perf_rank *r, uint32_t rank, uint32_t slots,
	struct kvf_err *err)
{
	struct shape s = r->role == KVF_PREFILL ? f->src : f->dst;
	uint64_t pages;
	uint32_t i;
	int rc;

	/* The number of pages does not change which pages a room needs. */
	rc = shape_rank_build(&s, &f->model, rank, &r->decl, err);
	if (rc != 0)
		return rc;
	for (i = 0; i < r->decl.geo.num_components; i++)
		if (r->decl.comp[i].cls != KVF_TOKENS)
			break;
	r->geo = (struct kvf_geometry){.num_components = i, .components = r->decl.comp};
	r->pages_per_slot = pages_needed(&r->geo, f->tokens);
	pages = (uint64_t)slots * r->pages_per_slot + 1;
	if (pages > KVF_MAX_PAGE_ID)
		return app_fail(err, KVF_E_OVERFLOW, "pages=%" PRIu64 " of a pool exceed %u", pages,
			KVF_MAX_PAGE_ID);
	shape_rank_free(&r->decl);
	s.num_pages = (uint32_t)pages;
	rc = shape_rank_build(&s, &f->model, rank, &r->decl, err);
	r->geo.components = r->decl.comp;
	return rc;
}

static struct perf_rank *
rank_at(const struct perf_field *f, uint32_t i)
{
	return i < f->np ? &f->p[i] : &f->d[i - f->np];
}

static int
declare_all(
	struct perf_field *f, uint32_t slots, uint64_t page, uint64_t *bytes, struct kvf_err *err)
{
	uint32_t i;
	int rc = 0;

	*bytes = 0;
	f->touched = f->slot_bytes = 0;
	for (i = 0; i < f->np + f->nd && rc == 0; i++) {
		struct perf_rank *r = rank_at(f, i);
		uint64_t one;

		shape_rank_free(&r->decl);
		rc = declare(f, r, i < f->np ? i : i - f->np, slots, err);
		if (rc != 0)
			break;
		one = slot_bytes(&r->geo, f->tokens);
		if (i >= f->np) {
			f->slot_bytes += one;
			f->touched += 2 * one * slots;
		}
		*bytes += (r->decl.pool_bytes + page - 1) / page * page;
	}
	f->slots = slots;
	return rc;
}

/* The smallest pool between which the limit is measured. */
static uint64_t
smallest_pool(const struct perf_field *f)
{
	uint64_t least = UINT64_MAX;
	uint32_t i;

	for (i = 0; i < f->np + f->nd; i++)
		if (rank_at(f, i)->decl.pool_bytes < least)
			least = rank_at(f, i)->decl.pool_bytes;
	return least;
}

static void
fill_shape(struct shape *s, uint32_t tp, uint32_t dcp, uint32_t interleave, uint32_t page)
{
	shape_default(s);
	s->tp = tp;
	s->dcp = dcp;
	s->interleave = dcp > 1 ? interleave : 1;
	s->page_tokens = page;
	s->aux_bytes = 0;
	s->num_pages = 1;
}

/* How many slots the footprint asks for, and a limit block of 256 MiB. */
static uint32_t
slots_wanted(const struct perf_field *f, uint32_t slots)
{
	uint64_t least = smallest_pool(f), n = slots, more;

	if (f->o->footprint == 0)
		return slots;
	more = (f->o->footprint + f->touched - 1) / f->touched * slots;
	n = more > n ? more : n;
	more = f->o->footprint < PERF_LIMIT_BYTES ? f->o->footprint : PERF_LIMIT_BYTES;
	more = (more + least - 1) / least * slots;
	n = more > n ? more : n;
	return n > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)n;
}

/* As many slots as fit into `budget` bytes; 0: not even the least. */
static int
fit(struct perf_field *f, uint32_t least, uint32_t wanted, uint64_t page, uint64_t budget,
	uint32_t *slots, struct kvf_err *err)
{
	uint32_t n = wanted;
	uint64_t bytes;
	int rc;

	*slots = 0;
	for (;;) {
		rc = declare_all(f, n, page, &bytes, err);
		if (rc != 0)
			return rc;
		if (bytes <= budget) {
			*slots = n;
			f->pool_bytes = bytes;
			return 0;
		}
		if (n <= least)
			return 0;
		n = (uint32_t)((double)n * (double)budget / (double)bytes);
		n = n / least * least;
		if (n < least)
			n = least;
	}
}

static int
choose_slots(struct perf_field *f, uint32_t least, uint32_t wanted, struct kvf_err *err)
{
	uint64_t huge = perf_free_hugepages(), memory = perf_free_memory(), bytes;
	enum perf_memory kind = f->o->memory;
	uint32_t slots = 0;
	int rc;

	huge = huge > ENGINE_PAGES ? (huge - ENGINE_PAGES) * HUGE_BYTES : 0;
	f->page_size = HUGE_BYTES;
	if (kind != PERF_MEMORY_SMALL) {
		rc = fit(f, least, wanted, HUGE_BYTES, huge, &slots, err);
		if (rc != 0 || slots != 0)
			return rc;
		rc = declare_all(f, least, HUGE_BYTES, &bytes, err);
		if (rc != 0)
			return rc;
		if (kind == PERF_MEMORY_HUGE)
			return app_fail(err, KVF_E_NOHUGE,
				"needed=%" PRIu64 " 2 MiB pages, free=%" PRIu64
				" (--need-hugepages tells what a run wants)",
				bytes / HUGE_BYTES + ENGINE_PAGES, perf_free_hugepages());
		fprintf(stderr,
			"kvferry-perf: WARNING: needed=%" PRIu64 " 2 MiB pages, free=%" PRIu64
			": the pools are on 4 KiB pages, which is slower\n",
			bytes / HUGE_BYTES + ENGINE_PAGES, perf_free_hugepages());
	}
	f->page_size = 4096;
	rc = fit(f, least, wanted, 4096, memory / 100 * MEMORY_PERCENT, &slots, err);
	if (rc == 0 && slots == 0) {
		rc = declare_all(f, least, 4096, &bytes, err);
		if (rc == 0)
			rc = app_fail(err, KVF_E_NOMEM,
				"needed=%" PRIu64 " bytes of pools, available=%" PRIu64
				": fewer tokens, layers or ranks help",
				bytes, memory / 100 * MEMORY_PERCENT);
	}
	return rc;
}

int
perf_field_plan(const struct perf_options *o, uint32_t slots, struct perf_field *f, uint64_t *pages,
	struct kvf_err *err)
{
	uint32_t all, wanted, i;
	uint64_t bytes;
	int rc;

	memset(f, 0, sizeof(*f));
	f->o = o;
	f->tokens = o->tokens;
	rc = perf_model(o, &f->model, err);
	if (rc != 0)
		return rc;
	fill_shape(&f->src, o->prefill_tp, o->prefill_dcp, o->interleave, o->src_page_size);
	fill_shape(&f->dst, o->decode_tp, o->decode_dcp, o->interleave, o->dst_page_size);
	rc = shape_check(&f->src, &f->model, "prefill-", err);
	if (rc == 0)
		rc = shape_check(&f->dst, &f->model, "decode-", err);
	if (rc != 0)
		return rc;
	f->np = shape_ranks(&f->src);
	all = shape_ranks(&f->dst);
	if (o->ranks > all)
		return app_fail(
			err, KVF_E_INVAL, "ranks=%u exceeds decode ranks=%u", o->ranks, all);
	f->nd = o->ranks != 0 ? o->ranks : all;
	f->p = calloc(f->np, sizeof(*f->p));
	f->d = calloc(f->nd, sizeof(*f->d));
	if (f->p == NULL || f->d == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for ranks=%u", f->np + f->nd);
	for (i = 0; i < f->np + f->nd; i++)
		rank_at(f, i)->role = i < f->np ? KVF_PREFILL : KVF_DECODE;
	rc = declare_all(f, slots, HUGE_BYTES, &bytes, err);
	if (rc != 0)
		return rc;
	if (f->slot_bytes == 0)
		return app_fail(err, KVF_E_INVAL,
			"tokens=%" PRIu64 ": none of them is of decode ranks=%u", f->tokens, f->nd);
	wanted = slots_wanted(f, slots);
	rc = declare_all(f, wanted, HUGE_BYTES, &bytes, err);
	if (rc != 0)
		return rc;
	*pages = bytes / HUGE_BYTES + ENGINE_PAGES;
	return o->need_hugepages ? 0 : choose_slots(f, slots, wanted, err);
}

int
perf_one_rank(const struct perf_options *o, const struct perf_field *f, struct kvf_err *err)
{
	if (f->np == 1 && f->nd == 1)
		return 0;
	return app_fail(err, KVF_E_INVAL,
		"%s takes one rank a side, these are prefill=%u decode=%u (--ranks 1?)",
		perf_case_name(o->cas), f->np, f->nd);
}

static int
deal_pages(const struct perf_field *f, struct perf_rank *r, uint32_t rank, struct kvf_err *err)
{
	uint64_t n = (uint64_t)f->slots * r->pages_per_slot, i, k;
	uint64_t seed = pattern_mix(f->o->seed ^ (uint64_t)r->role << 32 ^ rank);
	uint32_t t;

	r->pages = malloc((n + 1) * sizeof(*r->pages));
	if (r->pages == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for pages=%" PRIu64, n);
	/* Page 0 is left out, as allocators do that keep it for padding. */
	for (i = 0; i < n; i++)
		r->pages[i] = (uint32_t)i + 1;
	for (i = n; i > 1 && !f->o->contiguous; i--) {
		seed = pattern_mix(seed + 0x9e3779b97f4a7c15ull);
		k = seed % i;
		t = r->pages[i - 1];
		r->pages[i - 1] = r->pages[k];
		r->pages[k] = t;
	}
	return 0;
}

/* Calls fn for each head (or whole row, where heads lie together) of each row of a slot. */
typedef uint64_t (*piece_fn)(uint8_t *at, uint64_t key, uint64_t first, uint64_t n);

static uint64_t
each_row(const struct perf_field *f, const struct perf_rank *r, uint32_t slot, piece_fn fn)
{
	const uint32_t *pages = perf_pages(r, slot);
	uint64_t sum = 0, row, rows, n, key;
	uint32_t c, e, h, i = 0, pieces;

	for (c = 0; c < r->geo.num_components; c++) {
		const struct kvf_component *comp = &r->geo.components[c];
		const struct kvf_sharding *sh = &comp->sharding;

		rows = rows_below(comp, f->tokens);
		for (e = 0; e < comp->num_entries; e++, i++) {
			const struct kvf_entry *en = &comp->entries[e];
			uint64_t head = en->row_bytes / en->head_count;

			pieces = en->head_stride == 0 || en->head_stride == head ? 1
										 : en->head_count;
			n = pieces == 1 ? en->row_bytes : head;
			for (row = 0; row < rows; row++) {
				uint64_t pos = (row / sh->interleave * sh->size + sh->rank) *
						       sh->interleave +
					       row % sh->interleave;
				uint8_t *at = r->base + en->offset +
					      pages[row / comp->page_tokens] * en->page_stride +
					      row % comp->page_tokens * en->row_stride;
				struct pattern_row id = {
					.room_key = f->o->seed + slot,
					.position = pos,
					.layer = en->layer,
					.kind = en->kind,
					.cls = KVF_TOKENS,
					.occurrence = r->decl.occurrence[i],
				};

				key = pattern_key(&id);
				for (h = 0; h < pieces; h++)
					sum += fn(at + h * en->head_stride, key,
						(en->head_first + h) * head, n);
			}
		}
	}
	return sum;
}

static uint64_t
fill_piece(uint8_t *at, uint64_t key, uint64_t first, uint64_t n)
{
	pattern_fill(at, key, first, n);
	return 0;
}

static uint64_t
spoil_piece(uint8_t *at, uint64_t key, uint64_t first, uint64_t n)
{
	(void)key;
	(void)first;
	memset(at, SPOILT, n);
	return 0;
}

static uint64_t
verify_piece(uint8_t *at, uint64_t key, uint64_t first, uint64_t n)
{
	uint64_t bad;

	return pattern_compare(at, key, first, n, &bad);
}

void
perf_field_spoil(const struct perf_field *f, uint32_t rank, uint32_t slot)
{
	each_row(f, &f->d[rank], slot, spoil_piece);
}

static uint64_t
count_unspoilt(uint8_t *at, uint64_t key, uint64_t first, uint64_t n)
{
	uint64_t bad = 0, i;

	(void)key;
	(void)first;
	for (i = 0; i < n; i++)
		bad += at[i] != SPOILT;
	return bad;
}

uint64_t
perf_field_unspoilt(const struct perf_field *f, uint32_t rank, uint32_t slot)
{
	return each_row(f, &f->d[rank], slot, count_unspoilt);
}

uint64_t
perf_field_verify(const struct perf_field *f, uint32_t rank, uint32_t slot)
{
	return each_row(f, &f->d[rank], slot, verify_piece);
}

void
perf_field_spoil_all(const struct perf_field *f)
{
	uint32_t i;

	for (i = 0; i < f->nd; i++)
		memset(f->d[i].base, SPOILT, f->d[i].decl.pool_bytes);
}

uint64_t
perf_field_sweep(const struct perf_field *f)
{
	uint64_t bad = 0, k, n;
	uint32_t i;

	for (i = 0; i < f->nd; i++) {
		const uint8_t *base = f->d[i].base;

		n = f->d[i].decl.pool_bytes;
		/* The first byte, and each like the one before it. */
		if (base[0] == SPOILT && memcmp(base, base + 1, n - 1) == 0)
			continue;
		for (k = 0; k < n; k++)
			bad += base[k] != SPOILT;
	}
	return bad;
}

int
perf_field_make(struct perf_field *f, struct kvf_err *err)
{
	uint32_t i, slot;
	int rc;

	f->pool_bytes = 0;
	for (i = 0; i < f->np + f->nd; i++) {
		struct perf_rank *r = rank_at(f, i);
		char name[32];
		struct kvf_pool_config cfg = {
			.length = r->decl.pool_bytes,
			.page_size = f->page_size == 4096 ? 4096 : 0,
			.name = name,
			.numa_node = -1,
		};

		snprintf(name, sizeof(name), "perf-%s-%u",
			r->role == KVF_PREFILL ? "prefill" : "decode", i < f->np ? i : i - f->np);
		rc = deal_pages(f, r, i, err);
		if (rc == 0)
			rc = kvf_pool_create(&cfg, &r->pool, err);
		if (rc != 0)
			return rc;
		r->base = kvf_pool_addr(r->pool);
		f->page_size = kvf_pool_page_size(r->pool);
		f->pool_bytes += kvf_pool_mapped_length(r->pool);
	}
	if (!f->o->check)
		return 0;
	for (i = 0; i < f->np; i++)
		for (slot = 0; slot < f->slots; slot++)
			each_row(f, &f->p[i], slot, fill_piece);
	perf_field_spoil_all(f);
	return 0;
}

void
perf_field_free(struct perf_field *f)
{
	uint32_t i;

	for (i = 0; f->p != NULL && f->d != NULL && i < f->np + f->nd; i++) {
		struct perf_rank *r = rank_at(f, i);

		kvf_pool_destroy(r->pool);
		shape_rank_free(&r->decl);
		free(r->pages);
	}
	free(f->p);
	free(f->d);
	f->p = f->d = NULL;
}
