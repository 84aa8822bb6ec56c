/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/fail.h"
#include "pd-demo/layout.h"

/* Buffers begin on this boundary; what lies between them is guard. */
#define ALIGN 256u

uint64_t
demo_rows_below(const struct kvf_sharding *sh, uint64_t pos)
{
	uint64_t round = (uint64_t)sh->size * sh->interleave;
	uint64_t before = (uint64_t)sh->rank * sh->interleave;
	uint64_t rest = pos % round;
	uint64_t part = rest > before ? rest - before : 0;

	if (part > sh->interleave)
		part = sh->interleave;
	return pos / round * sh->interleave + part;
}

static uint64_t
component_pages(const struct kvf_component *c, uint64_t first, uint64_t total)
{
	uint64_t lo = demo_rows_below(&c->sharding, first);
	uint64_t hi = demo_rows_below(&c->sharding, total);

	return (hi - lo + c->page_tokens - 1) / c->page_tokens;
}

uint64_t
demo_pages_needed(const struct demo_layout *l, uint64_t first, uint64_t total)
{
	uint64_t n, most = 0;
	uint32_t i;

	for (i = 0; i < l->geo.num_components; i++) {
		if (l->comp[i].cls != KVF_TOKENS)
			continue;
		n = component_pages(&l->comp[i], first, total);
		if (n > most)
			most = n;
	}
	return most;
}

uint64_t
demo_row_bytes(const struct kvf_component *c)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < c->num_entries; i++)
		sum += c->entries[i].row_bytes;
	return sum;
}

uint64_t
demo_room_bytes(const struct demo_layout *l, const struct demo_room *room)
{
	uint64_t first = demo_room_first(room, l->role), rows, sum = 0;
	uint32_t i;

	for (i = 0; i < l->geo.num_components; i++) {
		const struct kvf_component *c = &l->comp[i];

		rows = 1;
		if (c->cls == KVF_TOKENS)
			rows = demo_rows_below(&c->sharding, room->total) -
			       demo_rows_below(&c->sharding, first);
		sum += rows * demo_row_bytes(c);
	}
	return sum;
}

static void
head_range(uint32_t heads, uint32_t tp, uint32_t tp_rank, uint32_t *first, uint32_t *count)
{
	if (tp <= heads) {
		*count = heads / tp;
		*first = tp_rank * *count;
	} else {
		*count = 1;
		*first = tp_rank / (tp / heads);
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

/* How many planes of the same kind and layer stand before plane p of group g. */
static uint8_t
occurrence_of(const struct model_groups *groups, uint32_t g, uint32_t p, uint32_t layer)
{
	uint16_t kind = groups->group[g].planes[p].kind;
	uint8_t n = 0;
	uint32_t i, k;

	for (i = 0; i <= g; i++) {
		if (i != g && !has_layer(&groups->group[i], layer))
			continue;
		for (k = 0; k < groups->group[i].num_planes && (i != g || k < p); k++)
			n += groups->group[i].planes[k].kind == kind;
	}
	return n;
}

struct builder {
	struct demo_layout *l;
	uint32_t tp;
	uint64_t end; /* of the last buffer */
	bool overflow;
};

static uint64_t
take(struct builder *b, uint64_t bytes)
{
	uint64_t at = (b->end + DEMO_GAP + ALIGN - 1) / ALIGN * ALIGN;

	if (__builtin_add_overflow(at, bytes, &b->end) || b->end > INT64_MAX) {
		b->overflow = true;
		b->end = 0;
	}
	return at;
}

static struct kvf_component *
begin_component(
	struct builder *b, uint32_t cls, uint32_t list, uint32_t page_tokens, uint32_t num_pages)
{
	struct kvf_component *c = &b->l->comp[b->l->geo.num_components++];

	c->cls = cls;
	c->list = list;
	c->page_tokens = page_tokens;
	c->num_pages = num_pages;
	c->sharding = (struct kvf_sharding){1, 0, 1, 0};
	c->entries = &b->l->entries[b->l->num_entries];
	return c;
}

/* One buffer of one layer: the planes of a page one behind the other. */
static void
add_buffer(struct builder *b, struct kvf_component *c, const struct model_groups *groups,
	uint32_t g, uint32_t layer)
{
	const struct model_group *group = &groups->group[g];
	uint64_t page_bytes = 0, bytes, at, row_bytes;
	uint32_t first, count, p, i;

	head_range(group->heads, b->tp, b->l->tp_rank, &first, &count);
	for (p = 0; p < group->num_planes; p++)
		page_bytes += (uint64_t)c->page_tokens * count * group->planes[p].head_bytes;
	if (__builtin_mul_overflow(page_bytes, c->num_pages, &bytes))
		b->overflow = true;
	at = take(b, bytes);
	for (p = 0; p < group->num_planes; p++) {
		i = b->l->num_entries++;
		row_bytes = (uint64_t)count * group->planes[p].head_bytes;
		if (row_bytes > UINT32_MAX)
			b->overflow = true;
		b->l->entries[i] = (struct kvf_entry){
			.offset = at,
			.page_stride = page_bytes,
			.row_stride = row_bytes,
			.row_bytes = (uint32_t)row_bytes,
			.layer = layer,
			.kind = group->planes[p].kind,
			.dtype = group->planes[p].dtype,
			.head_first = (uint16_t)first,
			.head_count = (uint16_t)count,
			.head_total = (uint16_t)group->heads,
		};
		b->l->occurrence[i] = occurrence_of(groups, g, p, layer);
		at += c->page_tokens * row_bytes;
		c->num_entries++;
	}
}

static void
add_groups(struct builder *b, struct kvf_component *c, const struct model_groups *groups)
{
	uint32_t g, k;

	for (g = 0; g < groups->num; g++) {
		for (k = 0; k < groups->group[g].num_layers; k++)
			add_buffer(b, c, groups, g, groups->group[g].layers[k]);
	}
}

static void
add_aux(struct builder *b, struct kvf_component *c)
{
	b->l->entries[b->l->num_entries++] = (struct kvf_entry){
		.offset = take(b, (uint64_t)c->num_pages * DEMO_AUX_BYTES),
		.page_stride = DEMO_AUX_BYTES,
		.row_stride = DEMO_AUX_BYTES,
		.row_bytes = DEMO_AUX_BYTES,
		.kind = KVF_KIND_AUX,
		.head_count = 1,
		.head_total = 1,
	};
	c->num_entries = 1;
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

static int
allocate(struct demo_layout *l, const struct model *m, struct kvf_err *err)
{
	uint64_t n =
		1 + count_entries(&m->tokens) + count_entries(&m->draft) + count_entries(&m->state);

	if (n > KVF_MAX_ENTRIES)
		return app_fail(err, KVF_E_INVAL, "entries=%" PRIu64 " of model=%s exceed %u", n,
			m->name, KVF_MAX_ENTRIES);
	l->entries = calloc(n, sizeof(*l->entries));
	l->occurrence = calloc(n, sizeof(*l->occurrence));
	if (l->entries != NULL && l->occurrence != NULL)
		return 0;
	demo_layout_free(l);
	return app_fail(err, KVF_E_NOMEM, "no memory for entries=%" PRIu64, n);
}

/* Pages of all rooms, page 0 that allocators keep for padding, and some that stay free. */
static int
count_pages(struct demo_layout *l, const struct demo_plan *plan, struct kvf_err *err)
{
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < plan->num; i++)
		n += demo_pages_needed(
			l, demo_room_first(&plan->rooms[i], l->role), plan->rooms[i].total);
	n += 1 + 2 + n / 16;
	if (n > KVF_MAX_PAGE_ID)
		return app_fail(err, KVF_E_OVERFLOW, "pages=%" PRIu64 " of a rank exceed %u", n,
			KVF_MAX_PAGE_ID);
	l->num_pages = (uint32_t)n;
	return 0;
}

int
demo_layout_build(const struct demo_options *o, const struct model *m, const struct demo_plan *plan,
	enum kvf_role role, uint32_t rank, struct demo_layout *l, struct kvf_err *err)
{
	struct builder b = {.l = l};
	struct kvf_component *target, *draft = NULL, *c;
	int rc;

	memset(l, 0, sizeof(*l));
	l->role = role;
	l->rank = rank;
	b.tp = role == KVF_PREFILL ? o->prefill_tp : o->decode_tp;
	l->dcp_rank = role == KVF_PREFILL ? 0 : rank % o->decode_dcp;
	l->tp_rank = role == KVF_PREFILL ? rank : rank / o->decode_dcp;
	rc = allocate(l, m, err);
	if (rc != 0)
		return rc;

	/* The token components first: how many pages they need decides the size of each buffer. */
	target = begin_component(&b, KVF_TOKENS, DEMO_LIST_TOKENS, o->page_size, 0);
	if (role == KVF_DECODE)
		target->sharding =
			(struct kvf_sharding){o->decode_dcp, l->dcp_rank, o->interleave, 0};
	if (m->draft.num > 0)
		draft = begin_component(&b, KVF_TOKENS, DEMO_LIST_TOKENS,
			role == KVF_DECODE ? o->page_size * o->decode_dcp : o->page_size, 0);
	rc = count_pages(l, plan, err);
	if (rc != 0) {
		demo_layout_free(l);
		return rc;
	}
	target->num_pages = l->num_pages;
	add_groups(&b, target, &m->tokens);
	if (draft != NULL) {
		draft->num_pages = l->num_pages;
		draft->entries = &l->entries[l->num_entries];
		add_groups(&b, draft, &m->draft);
	}
	if (m->state.num > 0) {
		l->state_slots = plan->num + 2;
		c = begin_component(&b, KVF_STATE, DEMO_LIST_STATE, 1, l->state_slots);
		c->tag = DEMO_STATE_TAG;
		add_groups(&b, c, &m->state);
	}
	l->aux_slots = plan->num + 2 > 64 ? plan->num + 2 : 64;
	c = begin_component(&b, KVF_AUX, DEMO_LIST_AUX, 1, l->aux_slots);
	add_aux(&b, c);
	l->geo.components = l->comp;
	l->pool_bytes = take(&b, 0);
	if (b.overflow) {
		demo_layout_free(l);
		return app_fail(err, KVF_E_OVERFLOW,
			"a row of %s/%u exceeds 2^32 bytes or its pool 2^63", demo_role_name(role),
			rank);
	}
	return 0;
}

void
demo_layout_free(struct demo_layout *l)
{
	free(l->entries);
	free(l->occurrence);
	l->entries = NULL;
	l->occurrence = NULL;
}
