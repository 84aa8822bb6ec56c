/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fail.h"
#include "common/shape.h"

/*
 * Buffers begin on this boundary; large ones, where it costs little, on a wider one. Allocators of
 * frameworks do the same, and it is faster: several layers are read side by side, and where their
 * addresses agree in the low 15 bits the memory's banks serve them better (measured: 6 to 15 %).
 */
#define ALIGN       256u
#define LARGE       (512u * 1024u)
#define LARGE_ALIGN (32u * 1024u)

static const char *const layout_names[] = {
	[SHAPE_NHD] = "nhd",
	[SHAPE_HND] = "hnd",
	[SHAPE_KV_BLOCKS] = "kv-blocks",
	[SHAPE_BLOCKS_KV] = "blocks-kv",
};
#define NUM_LAYOUTS (sizeof(layout_names) / sizeof(layout_names[0]))

void
shape_default(struct shape *s)
{
	uint32_t i;

	*s = (struct shape){
		.tp = 1,
		.dcp = 1,
		.interleave = 1,
		.cp = 1,
		.pp = 1,
		.page_tokens = 64,
		.aux_bytes = 256,
		.num_pages = 16,
		.aux_slots = 16,
	};
	for (i = 1; i <= MODEL_STATE_TYPES; i++)
		s->state_pages[i] = 16;
}

const char *
shape_layout_name(uint32_t layout)
{
	return layout < NUM_LAYOUTS ? layout_names[layout] : "?";
}

int
shape_parse_layout(const char *name, const char *text, struct shape *s, struct kvf_err *err)
{
	uint32_t i;

	for (i = 0; i < NUM_LAYOUTS; i++) {
		if (strcmp(text, layout_names[i]) == 0) {
			s->layout = i;
			return 0;
		}
	}
	return app_fail(err, KVF_E_INVAL, "%s=%.60s must be one of nhd, hnd, kv-blocks, blocks-kv",
		name, text);
}

uint64_t
shape_unit(const struct shape *s)
{
	uint64_t a = s->page_tokens, b = s->interleave, t;

	if (s->dcp == 1)
		return s->page_tokens;
	while (b != 0) {
		t = a % b;
		a = b;
		b = t;
	}
	return s->page_tokens / a * s->interleave * s->dcp;
}

/* ---- checks ---- */

/* Heads are cut evenly, or each is held by the same number of ranks. */
static int
check_heads(const struct model_groups *groups, const char *what, uint32_t tp, const char *side,
	struct kvf_err *err)
{
	uint32_t i;

	for (i = 0; i < groups->num; i++) {
		uint32_t heads = groups->group[i].heads;

		if (heads % tp != 0 && tp % heads != 0)
			return app_fail(err, KVF_E_INVAL,
				"%stp=%u must divide heads=%u of the %s or be a multiple of it",
				side, tp, heads, what);
	}
	return 0;
}

static bool
same_layers(const struct model_group *a, const struct model_group *b)
{
	return a->num_layers == b->num_layers &&
	       memcmp(a->layers, b->layers, a->num_layers * sizeof(a->layers[0])) == 0;
}

/* K and V of one layer in one buffer: group g is the K of group g + 1. */
static bool
is_kv_pair(const struct model_groups *groups, uint32_t g)
{
	const struct model_group *k = &groups->group[g], *v = k + 1;

	return g + 1 < groups->num && k->planes[0].kind == KVF_KIND_K &&
	       v->planes[0].kind == KVF_KIND_V && k->heads == v->heads && k->type == v->type &&
	       same_layers(k, v);
}

static bool
is_paged(const struct model_group *g)
{
	return g->type == 0 || g->type == MODEL_SWA || g->type == MODEL_DSA;
}

static bool
joins_kv(const struct shape *s, const struct model_group *g)
{
	return (s->layout == SHAPE_KV_BLOCKS || s->layout == SHAPE_BLOCKS_KV) && is_paged(g);
}

static int
check_layout(const struct shape *s, const struct model_groups *groups, const struct model *m,
	const char *side, struct kvf_err *err)
{
	uint32_t g;

	for (g = 0; g < groups->num; g++) {
		if (!joins_kv(s, &groups->group[g]))
			continue;
		if (!is_kv_pair(groups, g))
			return app_fail(err, KVF_E_INVAL,
				"%slayout=%s needs K and V of the same layers and heads, model=%s "
				"has kind=%u heads=%u by itself",
				side, shape_layout_name(s->layout), m->name,
				groups->group[g].planes[0].kind, groups->group[g].heads);
		g++;
	}
	return 0;
}

static int
check_range(const char *side, const char *name, uint64_t value, uint64_t lo, uint64_t hi,
	struct kvf_err *err)
{
	if (value >= lo && value <= hi)
		return 0;
	return app_fail(err, KVF_E_INVAL, "%s%s=%" PRIu64 " must be in [%" PRIu64 ", %" PRIu64 "]",
		side, name, value, lo, hi);
}

static int
check_stages(const struct shape *s, const struct model *m, const char *side, struct kvf_err *err)
{
	uint64_t sum = 0;
	uint32_t i;

	if (s->stage_layers[0] == 0) {
		if (s->pp > m->kept_layers)
			return app_fail(err, KVF_E_INVAL, "%spp=%u stages exceed layers=%u", side,
				s->pp, m->kept_layers);
		return 0;
	}
	for (i = 0; i < s->pp; i++) {
		if (s->stage_layers[i] == 0)
			return app_fail(err, KVF_E_INVAL, "%spp: stage=%u has layers=0", side, i);
		sum += s->stage_layers[i];
	}
	if (sum != m->kept_layers)
		return app_fail(err, KVF_E_INVAL,
			"%spp: the stages have layers=%" PRIu64 ", model=%s has layers=%u", side,
			sum, m->name, m->kept_layers);
	return 0;
}

int
shape_check(const struct shape *s, const struct model *m, const char *side, struct kvf_err *err)
{
	const struct {
		const char *name;
		uint64_t value, lo, hi;
	} ranges[] = {
		{"tp", s->tp, 1, SHAPE_MAX_RANKS},
		{"dcp", s->dcp, 1, SHAPE_MAX_RANKS},
		{"cp", s->cp, 1, SHAPE_MAX_RANKS},
		{"pp", s->pp, 1, SHAPE_MAX_STAGES},
		{"interleave", s->interleave, 1, SHAPE_MAX_SIZE},
		{"page", s->page_tokens, 1, SHAPE_MAX_SIZE},
		{"pad", s->row_pad, 0, SHAPE_MAX_SIZE},
		{"ring", s->ring_rows, 0, 1u << 20},
		{"aux", s->aux_bytes, 0, 1u << 24},
		{"pages", s->num_pages, 1, KVF_MAX_PAGE_ID},
		{"slots", s->aux_slots, 1, KVF_MAX_PAGE_ID},
		{"layout", s->layout, 0, NUM_LAYOUTS - 1},
	};
	uint64_t ranks = (uint64_t)s->tp * s->dcp;
	size_t i;
	int rc;

	for (i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		rc = check_range(
			side, ranges[i].name, ranges[i].value, ranges[i].lo, ranges[i].hi, err);
		if (rc != 0)
			return rc;
	}
	for (i = 1; i <= MODEL_STATE_TYPES; i++) {
		rc = check_range(side, "state-pages", s->state_pages[i], 1, KVF_MAX_PAGE_ID, err);
		if (rc != 0)
			return rc;
	}
	ranks *= (uint64_t)s->cp * s->pp;
	if (ranks > SHAPE_MAX_RANKS)
		return app_fail(err, KVF_E_INVAL,
			"%spp=%u times cp=%u times tp=%u times dcp=%u is more than %u ranks", side,
			s->pp, s->cp, s->tp, s->dcp, SHAPE_MAX_RANKS);
	if (s->cp > 1 && s->dcp > 1)
		return app_fail(err, KVF_E_INVAL,
			"%scp=%u and %sdcp=%u both deal the positions: one of them must be 1", side,
			s->cp, side, s->dcp);
	rc = check_stages(s, m, side, err);
	if (rc == 0)
		rc = check_heads(&m->tokens, "KV cache", s->tp, side, err);
	if (rc == 0)
		rc = check_heads(&m->draft, "draft", s->tp, side, err);
	if (rc == 0)
		rc = check_heads(&m->state, "state", s->tp, side, err);
	if (rc == 0)
		rc = check_layout(s, &m->tokens, m, side, err);
	if (rc == 0)
		rc = check_layout(s, &m->draft, m, side, err);
	if (rc == 0)
		rc = check_layout(s, &m->state, m, side, err);
	return rc;
}

/* ---- one rank ---- */

struct builder {
	const struct shape *s;
	struct shape_rank *r;
	uint64_t end; /* of the last buffer */
	bool overflow;
};

static uint64_t
take(struct builder *b, uint64_t bytes)
{
	uint64_t align = bytes < LARGE ? ALIGN : LARGE_ALIGN;
	uint64_t at = (b->end + SHAPE_GAP + align - 1) / align * align;

	if (__builtin_add_overflow(at, bytes, &b->end) || b->end > INT64_MAX) {
		b->overflow = true;
		b->end = 0;
	}
	return at;
}

static void
place_rank(const struct shape *s, const struct model *m, struct shape_rank *r)
{
	uint32_t rest = r->rank, i, each, more;

	r->dcp_rank = rest % s->dcp;
	rest /= s->dcp;
	r->tp_rank = rest % s->tp;
	rest /= s->tp;
	r->band = rest % s->cp;
	r->stage = rest / s->cp;
	each = m->kept_layers / s->pp;
	more = m->kept_layers % s->pp;
	for (i = 0; i <= r->stage; i++) {
		r->first_layer = r->end_layer;
		r->end_layer += s->stage_layers[0] != 0 ? s->stage_layers[i] : each + (i < more);
	}
}

static bool
has_layer(const struct model_group *g, uint32_t layer)
{
	uint32_t i;

	for (i = 0; i < g->num_layers; i++) {
		if (g->layers[i] == layer)
			return true;
	}
	return false;
}

/* How many planes of the same type, kind and layer stand before plane p of group g. */
static uint8_t
occurrence_of(const struct model_groups *groups, uint32_t g, uint32_t p, uint32_t layer)
{
	uint16_t kind = groups->group[g].planes[p].kind;
	uint8_t n = 0;
	uint32_t i, k;

	for (i = 0; i <= g; i++) {
		const struct model_group *other = &groups->group[i];

		if (i != g && (other->type != groups->group[g].type || !has_layer(other, layer)))
			continue;
		for (k = 0; k < other->num_planes && (i != g || k < p); k++)
			n += other->planes[k].kind == kind;
	}
	return n;
}

static struct kvf_component *
begin_component(
	struct builder *b, uint32_t cls, uint32_t list, uint32_t page_tokens, uint32_t num_pages)
{
	struct kvf_component *c = &b->r->comp[b->r->geo.num_components];

	*c = (struct kvf_component){
		.cls = cls,
		.list = list,
		.page_tokens = page_tokens,
		.num_pages = num_pages,
		.sharding = {1, 0, 1, KVF_SHARD_CYCLIC},
		.entries = &b->r->entries[b->r->num_entries],
	};
	return c;
}

/* A component without entries is none: a stage may have no such layer. */
static void
end_component(struct builder *b, const struct kvf_component *c)
{
	if (c->num_entries > 0)
		b->r->geo.num_components++;
}

/* What a page of one group looks like on this rank. */
struct page {
	uint32_t first; /* head */
	uint32_t heads;
	uint64_t bytes;
	uint64_t plane[MODEL_MAX_PLANES]; /* offsets */
	uint64_t row_stride[MODEL_MAX_PLANES];
	uint64_t head_stride[MODEL_MAX_PLANES]; /* 0: dense */
};

static void
lay_page(const struct builder *b, const struct kvf_component *c, const struct model_group *g,
	struct page *page)
{
	uint32_t tp = b->s->tp, p, pad = is_paged(g) ? b->s->row_pad : 0;
	bool hnd = b->s->layout == SHAPE_HND && is_paged(g);

	*page = (struct page){0};
	if (tp <= g->heads) {
		page->heads = g->heads / tp;
		page->first = b->r->tp_rank * page->heads;
	} else {
		page->heads = 1;
		page->first = b->r->tp_rank / (tp / g->heads);
	}
	/* Heads, bytes and page sizes have limits that keep these products within 64 bits. */
	for (p = 0; p < g->num_planes; p++) {
		uint64_t head = g->planes[p].head_bytes;

		page->plane[p] = page->bytes;
		if (hnd) {
			page->row_stride[p] = head + pad;
			page->head_stride[p] = page->row_stride[p] * c->page_tokens;
			page->bytes += page->head_stride[p] * page->heads;
		} else {
			page->row_stride[p] = head * page->heads + pad;
			page->bytes += page->row_stride[p] * c->page_tokens;
		}
	}
	if (g->page_multiple > 0)
		page->bytes =
			(page->bytes + g->page_multiple - 1) / g->page_multiple * g->page_multiple;
}

static void
add_entries(struct builder *b, struct kvf_component *c, const struct model_groups *groups,
	uint32_t g, uint32_t layer, const struct page *page, uint64_t at, uint64_t page_stride)
{
	const struct model_group *group = &groups->group[g];
	uint32_t p, i;

	for (p = 0; p < group->num_planes; p++) {
		uint64_t row_bytes = (uint64_t)page->heads * group->planes[p].head_bytes;

		if (row_bytes > UINT32_MAX)
			b->overflow = true;
		i = b->r->num_entries++;
		b->r->entries[i] = (struct kvf_entry){
			.offset = at + page->plane[p],
			.page_stride = page_stride,
			.row_stride = page->row_stride[p],
			.head_stride = page->head_stride[p],
			.row_bytes = (uint32_t)row_bytes,
			.layer = layer,
			.kind = group->planes[p].kind,
			.dtype = group->planes[p].dtype,
			.head_first = (uint16_t)page->first,
			.head_count = (uint16_t)page->heads,
			.head_total = (uint16_t)group->heads,
		};
		b->r->occurrence[i] = occurrence_of(groups, g, p, layer);
		c->num_entries++;
	}
}

static uint64_t
times(struct builder *b, uint64_t pages, uint64_t bytes)
{
	uint64_t all;

	if (__builtin_mul_overflow(pages, bytes, &all)) {
		b->overflow = true;
		return 0;
	}
	return all;
}

static void
add_buffer(struct builder *b, struct kvf_component *c, const struct model_groups *groups,
	uint32_t g, uint32_t layer)
{
	struct page k, v;
	uint64_t at, all;

	lay_page(b, c, &groups->group[g], &k);
	if (!joins_kv(b->s, &groups->group[g])) {
		at = take(b, times(b, c->num_pages, k.bytes));
		add_entries(b, c, groups, g, layer, &k, at, k.bytes);
		return;
	}
	lay_page(b, c, &groups->group[g + 1], &v);
	all = times(b, c->num_pages, k.bytes + v.bytes);
	at = take(b, all);
	if (b->s->layout == SHAPE_KV_BLOCKS) {
		add_entries(b, c, groups, g, layer, &k, at, k.bytes);
		add_entries(b, c, groups, g + 1, layer, &v, at + c->num_pages * k.bytes, v.bytes);
	} else {
		add_entries(b, c, groups, g, layer, &k, at, k.bytes + v.bytes);
		add_entries(b, c, groups, g + 1, layer, &v, at + k.bytes, k.bytes + v.bytes);
	}
}

/* The groups of one type, as far as their layers are in [first, end). */
static void
add_groups(struct builder *b, struct kvf_component *c, const struct model_groups *groups,
	uint32_t type, uint32_t first, uint32_t end)
{
	uint32_t g, k;

	for (g = 0; g < groups->num; g++) {
		const struct model_group *group = &groups->group[g];

		if (group->type != type)
			continue;
		for (k = 0; k < group->num_layers; k++) {
			if (group->layers[k] >= first && group->layers[k] < end)
				add_buffer(b, c, groups, g, group->layers[k]);
		}
		g += joins_kv(b->s, group);
	}
}

static void
add_tokens(struct builder *b, const struct model *m)
{
	const struct shape *s = b->s;
	struct kvf_component *c;

	c = begin_component(b, KVF_TOKENS, SHAPE_LIST_TOKENS, s->page_tokens, s->num_pages);
	if (s->cp > 1)
		c->sharding =
			(struct kvf_sharding){s->cp, b->r->band, s->page_tokens, KVF_SHARD_BAND};
	else if (s->dcp > 1)
		c->sharding = (struct kvf_sharding){
			s->dcp, b->r->dcp_rank, s->interleave, KVF_SHARD_CYCLIC};
	add_groups(b, c, &m->tokens, 0, b->r->first_layer, b->r->end_layer);
	end_component(b, c);

	if (m->draft.num == 0 || b->r->stage + 1 != s->pp)
		return;
	c = begin_component(
		b, KVF_TOKENS, SHAPE_LIST_TOKENS, s->page_tokens * s->dcp, s->num_pages);
	if (s->cp > 1)
		c->sharding =
			(struct kvf_sharding){s->cp, b->r->band, s->page_tokens, KVF_SHARD_BAND};
	add_groups(b, c, &m->draft, 0, 0, UINT32_MAX);
	end_component(b, c);
}

static uint32_t
rows_of_type(const struct model_groups *groups, uint32_t type)
{
	uint32_t g;

	for (g = 0; g < groups->num; g++) {
		if (groups->group[g].type == type)
			return groups->group[g].rows;
	}
	return 0;
}

static void
add_states(struct builder *b, const struct model *m)
{
	static const uint32_t rules[] = {
		[MODEL_MAMBA] = KVF_STATE_ONE,
		[MODEL_SWA] = KVF_STATE_CLIP,
		[MODEL_DSA] = KVF_STATE_CLIP,
		[MODEL_RING] = KVF_STATE_RING,
		[MODEL_ROWS] = KVF_STATE_EXACT,
	};
	struct kvf_component *c;
	uint32_t type, page;

	for (type = 1; type <= MODEL_STATE_TYPES; type++) {
		page = 1;
		if (type == MODEL_SWA || type == MODEL_DSA)
			page = b->s->page_tokens;
		else if (type == MODEL_RING)
			page = b->s->ring_rows != 0 ? b->s->ring_rows
						    : rows_of_type(&m->state, type);
		c = begin_component(
			b, KVF_STATE, SHAPE_LIST_STATE + type - 1, page, b->s->state_pages[type]);
		c->tag = type;
		c->rule = rules[type];
		add_groups(b, c, &m->state, type, b->r->first_layer, b->r->end_layer);
		end_component(b, c);
	}
}

static void
add_aux(struct builder *b)
{
	uint32_t bytes = b->s->aux_bytes;
	struct kvf_component *c;

	if (bytes == 0)
		return;
	c = begin_component(b, KVF_AUX, SHAPE_LIST_AUX, 1, b->s->aux_slots);
	b->r->entries[b->r->num_entries++] = (struct kvf_entry){
		.offset = take(b, times(b, c->num_pages, bytes)),
		.page_stride = bytes,
		.row_stride = bytes,
		.row_bytes = bytes,
		.kind = KVF_KIND_AUX,
		.head_count = 1,
		.head_total = 1,
	};
	c->num_entries = 1;
	end_component(b, c);
}

static uint64_t
count_entries(const struct model_groups *groups)
{
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < groups->num; i++)
		n += (uint64_t)groups->group[i].num_layers * groups->group[i].num_planes;
	return n;
}

int
shape_rank_build(const struct shape *s, const struct model *m, uint32_t rank,
	struct shape_rank *out, struct kvf_err *err)
{
	uint64_t n =
		1 + count_entries(&m->tokens) + count_entries(&m->draft) + count_entries(&m->state);
	struct builder b = {.s = s, .r = out};

	memset(out, 0, sizeof(*out));
	out->rank = rank;
	out->geo.components = out->comp;
	if (rank >= shape_ranks(s))
		return app_fail(
			err, KVF_E_INVAL, "rank=%u must be below ranks=%u", rank, shape_ranks(s));
	out->entries = calloc(n, sizeof(*out->entries));
	out->occurrence = calloc(n, sizeof(*out->occurrence));
	if (out->entries == NULL || out->occurrence == NULL) {
		shape_rank_free(out);
		return app_fail(err, KVF_E_NOMEM, "no memory for entries=%" PRIu64, n);
	}
	place_rank(s, m, out);
	add_tokens(&b, m);
	add_states(&b, m);
	add_aux(&b);
	out->pool_bytes = take(&b, 0);
	if (b.overflow) {
		shape_rank_free(out);
		return app_fail(err, KVF_E_OVERFLOW,
			"a row of rank=%u of model=%s exceeds 2^32 bytes or its pool 2^63", rank,
			m->name);
	}
	if (out->num_entries == 0 || out->num_entries > KVF_MAX_ENTRIES) {
		n = out->num_entries;
		shape_rank_free(out);
		return app_fail(err, KVF_E_INVAL,
			"rank=%u of model=%s has entries=%" PRIu64 ", which must be in [1, %u]",
			rank, m->name, n, KVF_MAX_ENTRIES);
	}
	return 0;
}

void
shape_rank_free(struct shape_rank *r)
{
	free(r->entries);
	free(r->occurrence);
	r->entries = NULL;
	r->occurrence = NULL;
}

int
shape_group_build(
	const struct shape *s, const struct model *m, struct shape_group *g, struct kvf_err *err)
{
	uint32_t n = shape_ranks(s);
	int rc;

	g->num = 0;
	g->ranks = calloc(n, sizeof(*g->ranks));
	g->geos = calloc(n, sizeof(*g->geos));
	if (g->ranks == NULL || g->geos == NULL) {
		shape_group_free(g);
		return app_fail(err, KVF_E_NOMEM, "no memory for ranks=%u", n);
	}
	for (; g->num < n; g->num++) {
		rc = shape_rank_build(s, m, g->num, &g->ranks[g->num], err);
		if (rc != 0) {
			shape_group_free(g);
			return rc;
		}
		g->geos[g->num] = &g->ranks[g->num].geo;
	}
	return 0;
}

void
shape_group_free(struct shape_group *g)
{
	uint32_t i;

	for (i = 0; i < g->num; i++)
		shape_rank_free(&g->ranks[i]);
	free(g->ranks);
	free(g->geos);
	g->ranks = NULL;
	g->geos = NULL;
	g->num = 0;
}
