/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations and postings, each endpoint by itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/suite.h"
#include "combo.h"

#define SPARE_PAGES 2u
#define MAX_IDS     65536u

uint32_t
combo_layer(const struct combo *c, uint32_t index)
{
	return c->first_layer + index * c->layer_step;
}

bool
combo_has_kv(const struct combo *c, uint32_t index)
{
	switch (c->model->family) {
	case FAM_WINDOWS:
		return index % 2 == 0;
	case FAM_HYBRID:
	case FAM_HYBRID_HEADS:
		return index % 3 == 2 || index + 1 == c->layers;
	default:
		return true;
	}
}

void
combo_place(const struct combo *c, enum side side, uint32_t rank, uint32_t *stage, uint32_t *t,
	uint32_t *d)
{
	const struct side_draw *s = &c->side[side];
	uint32_t at = s->place[rank];

	*d = at % s->dcp;
	*t = at / s->dcp % s->tp;
	*stage = at / s->dcp / s->tp;
}

void
combo_heads(uint32_t heads, uint32_t tp, uint32_t t, uint16_t *first, uint16_t *count)
{
	*first = (uint16_t)(t * heads / tp);
	*count = tp >= heads ? 1 : (uint16_t)((t + 1) * heads / tp - *first);
}

/* Buffers of a layer: without place and heads. */
static uint32_t
buffers(const struct combo *c, struct spec *specs)
{
	static const uint16_t kinds[][3] = {
		[FAM_LATENT] = {KVF_KIND_LATENT},
		[FAM_PLANAR] = {KVF_KIND_LATENT, KVF_KIND_SCALE},
		[FAM_INDEX] = {KVF_KIND_LATENT, KVF_KIND_INDEX_K, KVF_KIND_INDEX_SCALE},
		[FAM_HEADS] = {KVF_KIND_K, KVF_KIND_V},
		[FAM_WINDOWS] = {KVF_KIND_K, KVF_KIND_V},
		[FAM_HYBRID] = {KVF_KIND_LATENT},
		[FAM_HYBRID_HEADS] = {KVF_KIND_K, KVF_KIND_V},
	};
	uint32_t n = 0;

	for (; n < 3 && kinds[c->model->family][n] != 0; n++)
		specs[n] = (struct spec){.kind = kinds[c->model->family][n],
			.dtype = (uint16_t)(3 + n),
			.head_count = 1,
			.head_total = (uint16_t)c->model->heads,
			.head_bytes = c->model->bytes[n]};
	return n;
}

uint32_t
combo_hurt_kind(const struct combo *c)
{
	struct spec specs[3];
	uint32_t n = buffers(c, specs);

	return specs[c->hurt_kind % n].kind;
}

uint32_t
combo_hurt_bytes(const struct combo *c)
{
	struct spec specs[3];
	uint32_t n = buffers(c, specs);

	return specs[c->hurt_kind % n].head_bytes;
}

/* Does harm take this buffer away from a prefill endpoint? */
static bool
taken_away(const struct combo *c, uint32_t layer, const struct spec *s, uint32_t d)
{
	uint16_t first, count;

	if (layer != combo_layer(c, c->hurt_layer) || s->kind != combo_hurt_kind(c))
		return false;
	switch (c->harm) {
	case HARM_LAYER:
		return true;
	case HARM_HEADS:
		combo_heads(c->model->heads, c->side[SRC].tp, c->hurt_place, &first, &count);
		return s->head_first == first;
	case HARM_POSITIONS:
		return d == c->hurt_place;
	default:
		return false;
	}
}

static void
spoil(const struct combo *c, uint32_t layer, struct spec *s)
{
	if (layer != combo_layer(c, c->hurt_layer) || s->kind != combo_hurt_kind(c))
		return;
	s->head_bytes += c->harm == HARM_BYTES;
	s->dtype = (uint16_t)(s->dtype + (c->harm == HARM_DTYPE ? 10 : 0));
	s->head_total = (uint16_t)(s->head_total + (c->harm == HARM_HEAD_TOTAL));
}

static uint32_t
component(struct maker *m, uint32_t cls, uint32_t tag, uint32_t rule, uint32_t list,
	uint32_t page_tokens, struct kvf_sharding sh)
{
	uint32_t i = m->geo.num_components++;

	if (i == MX_COMPS)
		abort();
	m->comps[i] = (struct kvf_component){.cls = cls,
		.tag = tag,
		.rule = rule,
		.list = list,
		.page_tokens = page_tokens,
		.sharding = sh,
		.entries = m->entries[i]};
	return i;
}

static void
put_group(struct maker *m, uint32_t comp, enum layout layout, const struct spec *specs, uint32_t n)
{
	if (n == 0)
		return;
	if (m->num_groups == MX_GROUPS || m->comps[comp].num_entries + n > MX_ENTRIES)
		abort();
	m->groups[m->num_groups].comp = comp;
	m->groups[m->num_groups].layout = layout;
	m->groups[m->num_groups].n = n;
	memcpy(m->groups[m->num_groups++].specs, specs, n * sizeof(*specs));
	m->comps[comp].num_entries += n;
}

/* A component that got no entries is not declared: it is always the latest. */
static void
drop_empty(struct maker *m)
{
	if (m->comps[m->geo.num_components - 1].num_entries == 0)
		m->geo.num_components--;
}

/* The buffers of one layer: what belongs together side by side, index planes by themselves. */
static void
put_layer(const struct combo *c, enum side side, struct maker *m, uint32_t comp, uint32_t layer,
	uint32_t t, uint32_t d)
{
	const struct side_draw *s = &c->side[side];
	struct spec all[3], kept[3], planes[3];
	uint32_t n = buffers(c, all), i, nk = 0, np = 0;

	for (i = 0; i < n; i++) {
		all[i].layer = layer;
		combo_heads(c->model->heads, s->tp, t, &all[i].head_first, &all[i].head_count);
		if (side == DST)
			spoil(c, layer, &all[i]);
		else if (taken_away(c, layer, &all[i], d))
			continue;
		if (all[i].kind == KVF_KIND_INDEX_K || all[i].kind == KVF_KIND_INDEX_SCALE)
			planes[np++] = all[i];
		else
			kept[nk++] = all[i];
	}
	put_group(m, comp, s->layout, kept, nk);
	put_group(m, comp, s->index_layout, planes, np);
}

static void
put_tokens(const struct combo *c, enum side side, struct maker *m, uint32_t stage, uint32_t t,
	uint32_t d)
{
	static const struct kvf_sharding all = {1, 0, 1, KVF_SHARD_CYCLIC};
	const struct side_draw *s = &c->side[side];
	struct kvf_sharding sh = {
		s->dcp, d, s->interleave, s->band ? KVF_SHARD_BAND : KVF_SHARD_CYCLIC};
	bool split = c->twice && s->split_twice;
	uint32_t first = s->cut[stage], n = s->cut[stage + 1] - first, i, k, comp, l;

	if (side == SRC && c->harm == HARM_SHARDS && t == 0 && d == 0)
		sh.interleave *= 2;
	for (k = 0; k < (split ? 2u : 1u); k++) {
		comp = component(
			m, KVF_TOKENS, 0, 0, s->list[k == 0 ? L_TOKENS : L_TWICE], s->page, sh);
		for (i = 0; i < n; i++) {
			l = first + (s->reverse ? n - 1 - i : i);
			if (!combo_has_kv(c, l))
				continue;
			put_layer(c, side, m, comp, combo_layer(c, l), t, d);
			if (c->twice && !split)
				put_layer(c, side, m, comp, combo_layer(c, l), t, d);
		}
		drop_empty(m);
	}
	if (c->draft_layers == 0 || stage + 1 != s->pp)
		return;
	/* Replicated over the places of a cyclic sharding, with pages of as many tokens as theirs
	 * together. */
	comp = component(m, KVF_TOKENS, 0, 0, s->list[s->own_draft_list ? L_DRAFT : L_TOKENS],
		s->band ? s->page : s->page * s->dcp, s->band ? sh : all);
	for (i = 0; i < c->draft_layers; i++)
		put_layer(c, side, m, comp, 5000 + i, t, d);
	drop_empty(m);
}

static void
put_state(const struct combo *c, enum side side, struct maker *m, uint32_t stage, uint32_t t,
	enum what_list what)
{
	static const struct kvf_sharding all = {1, 0, 1, KVF_SHARD_CYCLIC};
	static const struct {
		uint32_t tag, rule, heads;
		uint16_t kinds[2];
		uint32_t bytes[2];
	} kinds[] = {
		[L_ONE] = {TAG_ONE, KVF_STATE_ONE, 4, {KVF_KIND_CONV, KVF_KIND_SSM}, {12, 40}},
		[L_EXACT] = {TAG_EXACT, KVF_STATE_EXACT, 1, {100}, {28}},
		[L_CLIP] = {TAG_CLIP, KVF_STATE_CLIP, 2, {KVF_KIND_K, KVF_KIND_V}, {10, 6}},
		[L_RING] = {TAG_RING, KVF_STATE_RING, 1, {101, 102}, {7, 16}},
	};
	const struct side_draw *s = &c->side[side];
	uint32_t page = what == L_EXACT  ? s->exact_page
			: what == L_CLIP ? s->clip_page
			: what == L_RING ? s->ring_rows
					 : 1;
	uint32_t rule = kinds[what].rule, comp, l, k, n;

	if (c->harm == HARM_RULE && what == L_EXACT && side == DST)
		rule = KVF_STATE_CLIP;
	comp = component(m, KVF_STATE, kinds[what].tag, rule, s->list[what], page, all);
	for (l = s->cut[stage]; l < s->cut[stage + 1]; l++) {
		bool has = what == L_EXACT ? l % 2 == 0 : true;
		struct spec specs[2];

		if (what == L_ONE && c->model->family >= FAM_HYBRID)
			has = !combo_has_kv(c, l);
		if (what == L_CLIP)
			has = c->model->family == FAM_WINDOWS ? !combo_has_kv(c, l)
							      : l + 1 == c->layers;
		if (side == SRC && c->harm == HARM_STATE && what == L_EXACT && l == c->hurt_layer)
			has = false;
		for (n = 0, k = 0; has && k < 2 && kinds[what].kinds[k] != 0; k++) {
			struct spec *sp = &specs[n++];

			*sp = (struct spec){.layer = combo_layer(c, l),
				.kind = kinds[what].kinds[k],
				.dtype = 1,
				.head_total = (uint16_t)kinds[what].heads,
				.head_bytes = kinds[what].bytes[k]};
			combo_heads(kinds[what].heads, s->tp, t, &sp->head_first, &sp->head_count);
		}
		put_group(m, comp, s->state_layout, specs, n);
	}
	drop_empty(m);
}

static void
put_aux(const struct combo *c, enum side side, struct maker *m, uint32_t stage)
{
	static const struct kvf_sharding all = {1, 0, 1, KVF_SHARD_CYCLIC};
	const struct side_draw *s = &c->side[side];
	uint32_t comp, i;

	if ((c->parts & 1u << L_AUX) == 0 || (!s->aux_everywhere && stage + 1 != s->pp))
		return;
	comp = component(m, KVF_AUX, 0, 0, s->list[L_AUX], 1, all);
	for (i = c->harm == HARM_AUX && side == SRC; i < 3; i++) {
		struct spec sp = {i, KVF_KIND_AUX, 2, 0, 1, 1, 8u << i | 1u};

		put_group(m, comp, LAY_NHD, &sp, 1);
	}
}

static uint32_t *
take_ids(struct maker *m, uint32_t n)
{
	m->num_ids += n;
	if (m->num_ids > MAX_IDS)
		abort();
	return m->ids + m->num_ids - n;
}

static uint32_t
state_pages(const struct combo *c, enum side side, const struct kvf_component *comp)
{
	const struct side_draw *s = &c->side[side];

	switch (comp->cls == KVF_AUX ? 0 : comp->tag) {
	case TAG_EXACT:
		return s->exact_pages;
	case TAG_CLIP:
		return s->clip_pages;
	case TAG_RING:
		return s->rings;
	default:
		return 1;
	}
}

/* Adds the lists of one posting. Pages of a room's earlier chunks are in `pages` from `base` on:
 * ids as numbers in order of use, until it is known how many there are. */
static void
put_lists(const struct combo *c, enum side side, struct maker *m, struct posting *p, uint64_t total,
	bool last, const uint32_t *base, bool fresh)
{
	uint32_t list, i, k;

	for (list = 0; list < KVF_MAX_LISTS; list++) {
		struct kvf_pages *pages = &p->lists[p->num_lists];
		uint64_t first = UINT64_MAX;
		uint32_t n = 0, *ids;
		bool used = false;

		for (i = 0; i < m->geo.num_components; i++) {
			const struct kvf_component *comp = &m->comps[i];
			uint32_t need;
			uint64_t at = 0;

			if (comp->list != list)
				continue;
			used = true;
			if (comp->cls == KVF_TOKENS)
				need = peer_span(&comp->sharding, comp->page_tokens, p->from, p->to,
					total, &at);
			else
				need = last ? state_pages(c, side, comp) : 0;
			n = need > n ? need : n;
			first = at;
		}
		if (!used || (n == 0 && (p->from ^ list) % 2 == 0))
			continue; /* a list may be left out or be empty */
		ids = take_ids(m, n);
		for (k = 0; k < n; k++)
			ids[k] = fresh ? m->used[list] + k : base[list] + (uint32_t)first + k;
		if (n > 0 && ids[n - 1] >= m->used[list])
			m->used[list] = ids[n - 1] + 1;
		*pages = (struct kvf_pages){.list = list, .count = n, .ids = ids};
		p->num_lists++;
	}
}

/* May a chunk's pages be those that follow from where its rows lie, like in a paged allocator? Only
 * where each list has one component of tokens. */
static bool
can_reuse(const struct maker *m)
{
	uint32_t i, k;

	for (i = 0; i < m->geo.num_components; i++)
		for (k = 0; k < i; k++)
			if (m->comps[i].list == m->comps[k].list)
				return false;
	return true;
}

static void
put_postings(const struct combo *c, enum side side, uint32_t rank, struct maker *m)
{
	bool fresh = c->fresh_pages || side == DST || !can_reuse(m);
	uint32_t base[KVF_MAX_LISTS], r, k;

	for (r = 0; r < c->num_rooms; r++) {
		const struct room_draw *room = &c->room[r];
		uint32_t n = side == SRC ? room->chunks[rank] : 1;

		memcpy(base, m->used, sizeof(base));
		for (k = 0; k < n; k++) {
			struct posting *p = &m->postings[m->num_postings++];

			p->room = r;
			p->from = side == SRC ? room->bound[rank][k] : room->prefix[rank];
			p->to = side == SRC ? room->bound[rank][k + 1] : room->total;
			put_lists(c, side, m, p, room->total, k + 1 == n, base, fresh);
		}
	}
}

/* Numbers in order of use become page ids in random order. */
static void
scatter(struct combo *c, struct maker *m)
{
	uint32_t list, i, j, k, *map;

	for (list = 0; list < KVF_MAX_LISTS; list++) {
		uint32_t n = m->used[list] + (uint32_t)suite_range(&c->rand, 1, SPARE_PAGES);

		map = malloc(n * sizeof(*map));
		if (map == NULL)
			abort();
		for (i = 0; i < n; i++) {
			/* Half of them in place, so that pages are adjacent now and then. */
			j = (uint32_t)suite_range(&c->rand, 0, 1)
				    ? i
				    : (uint32_t)suite_range(&c->rand, 0, i);
			map[i] = map[j];
			map[j] = i;
		}
		for (i = 0; i < m->geo.num_components; i++)
			if (m->comps[i].list == list)
				m->comps[i].num_pages = n;
		for (i = 0; i < m->num_postings; i++) {
			struct posting *p = &m->postings[i];

			for (j = 0; j < p->num_lists; j++)
				for (k = 0; p->lists[j].list == list && k < p->lists[j].count;
					k++) {
					uint32_t *ids = (uint32_t *)(uintptr_t)p->lists[j].ids;

					ids[k] = map[ids[k]];
				}
		}
		free(map);
	}
}

void
combo_make(struct combo *c, enum side side, uint32_t rank, struct maker *m)
{
	const struct side_draw *s = &c->side[side];
	uint32_t stage, t, d, i, filled[MX_COMPS] = {0};
	enum what_list what;

	memset(m, 0, sizeof(*m));
	m->ids = malloc(MAX_IDS * sizeof(*m->ids));
	if (m->ids == NULL)
		abort();
	combo_place(c, side, rank, &stage, &t, &d);
	if (s->aux_first)
		put_aux(c, side, m, stage);
	put_tokens(c, side, m, stage, t, d);
	for (what = L_ONE; what <= L_RING; what++)
		if ((c->parts & 1u << what) != 0)
			put_state(c, side, m, stage, t, what);
	if (!s->aux_first)
		put_aux(c, side, m, stage);
	put_postings(c, side, rank, m);
	scatter(c, m);
	for (i = 0; i < m->num_groups; i++) {
		uint32_t comp = m->groups[i].comp;

		m->pool_bytes += suite_range(&c->rand, 0, 70);
		layout_place(m->groups[i].layout, m->groups[i].specs, m->groups[i].n,
			m->comps[comp].page_tokens, m->comps[comp].num_pages, &m->pool_bytes,
			&m->entries[comp][filled[comp]]);
		filled[comp] += m->groups[i].n;
	}
	m->pool_bytes += suite_range(&c->rand, 0, 70);
	m->geo.components = m->comps;
}

void
combo_unmake(struct maker *m)
{
	free(m->ids);
}
