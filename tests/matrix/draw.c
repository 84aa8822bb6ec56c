/* SPDX-License-Identifier: BSD-3-Clause */
/* What differs between the two sides: drawn here, so that the seed and the index say everything. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/suite.h"
#include "combo.h"

#define LEN(a)      ((uint32_t)(sizeof(a) / sizeof((a)[0])))
#define POOL_BUDGET 400000u /* bytes that all pools of a combination should about hold */
#define LONGEST     3000u

/* The row widths of the presets divided by 8 or 16, odd ones besides. */
static const struct model models[] = {
	{"deepseek-r1", FAM_LATENT, 1, {144}, true},
	{"deepseek-r1-fp8", FAM_LATENT, 1, {82}, false},
	{"deepseek-v3.2", FAM_INDEX, 1, {41, 8, 1}, false},
	{"deepseek-v4", FAM_PLANAR, 1, {72, 1}, true},
	{"kimi-linear", FAM_HYBRID, 1, {72}, false},
	{"kimi-k3", FAM_LATENT, 1, {72}, true},
	{"llama-3-70b", FAM_HEADS, 8, {16, 16}, false},
	{"qwen3-32b", FAM_HEADS, 8, {16, 16}, true},
	{"qwen3-235b", FAM_HEADS, 4, {32, 32}, false},
	{"gpt-oss-120b", FAM_WINDOWS, 8, {8, 8}, false},
	{"unequal K and V", FAM_HEADS, 4, {20, 6}, false},
	{"two heads", FAM_HEADS, 2, {6, 20}, true},
	{"six heads", FAM_HEADS, 6, {3, 1}, false},
	{"hybrid with heads", FAM_HYBRID_HEADS, 2, {24, 16}, false},
	{"odd latent", FAM_LATENT, 1, {9}, true},
	{"odd planes", FAM_PLANAR, 1, {33, 3}, false},
	{"odd index", FAM_INDEX, 1, {20, 6, 4}, true},
};

static const uint8_t dcp_pairs[][2] = {{8, 1}, {2, 4}, {4, 6}, {8, 8}, {1, 8}, {1, 2}, {1, 4},
	{4, 1}, {16, 1}, {1, 16}, {3, 5}, {6, 4}, {4, 8}, {16, 12}, {5, 5}, {2, 3}};

static uint32_t
below(struct combo *c, uint32_t n)
{
	return (uint32_t)suite_range(&c->rand, 0, n - 1);
}

static bool
chance(struct combo *c, uint32_t percent)
{
	return below(c, 100) < percent;
}

#define PICK(c, array) ((array)[below((c), LEN(array))])

static void
draw_grid(struct combo *c)
{
	static const uint8_t tps[] = {1, 2, 2, 4, 4, 8, 3, 16, 6};
	bool heads = c->model->heads > 1;
	uint32_t focus = below(c, 10), i;

	for (i = 0; i < 2; i++) {
		struct side_draw *s = &c->side[i];

		s->dcp = s->tp = s->pp = 1;
		if (focus < (heads ? 3 : 6))
			s->dcp = 0; /* as a pair, below */
		else if (focus < 9)
			s->dcp = PICK(c, ((const uint8_t[]){1, 1, 2, 3}));
		if (focus >= 3)
			s->tp = heads ? PICK(c, tps) : PICK(c, ((const uint8_t[]){1, 1, 2, 3}));
		if (chance(c, 40))
			s->pp = 1 + below(c, 3);
	}
	if (c->side[0].dcp == 0) {
		uint32_t pair = below(c, LEN(dcp_pairs));

		for (i = 0; i < 2; i++)
			c->side[i].dcp =
				chance(c, 60) || i == 1 ? dcp_pairs[pair][i] : 1 + below(c, 16);
	}
	for (i = 0; i < 2; i++) {
		struct side_draw *s = &c->side[i];

		if (c->layers >= 7)
			s->pp = i == SRC ? 2 : 1 + below(c, 2);
		while (s->pp > 1 && s->pp * s->dcp > MX_RANKS)
			s->pp--;
		while (s->tp > 1 && s->pp * s->dcp * s->tp > MX_RANKS)
			s->tp = (s->tp + 1) / 2 < s->tp ? (s->tp + 1) / 2 : 1;
		if (s->pp > c->layers)
			s->pp = c->layers;
		s->n = s->dcp * s->tp * s->pp;
	}
}

static void
draw_side(struct combo *c, enum side i)
{
	static const uint8_t pages[] = {1, 16, 32, 64, 128, 48, 16, 5};
	struct side_draw *s = &c->side[i];
	uint32_t k, j;

	s->page = PICK(c, pages);
	if ((c->parts & 1u << L_DRAFT) != 0 && s->page * s->dcp > 600)
		s->page = 16;
	s->band = s->dcp > 1 && s->dcp < 9 && chance(c, i == SRC ? 25 : 3);
	if (s->band)
		s->interleave = s->page * (1 + below(c, 2));
	else
		s->interleave = PICK(c, ((const uint32_t[]){1, 1, 1, s->page, s->page, 3, 7,
						s->page + 1, 2 * s->page, 2}));
	for (k = 1; k < s->pp; k++)
		s->cut[k] = c->layers * k / s->pp;
	/* Uneven on purpose, each stage keeping at least one layer. */
	for (k = 1; k < s->pp; k++) {
		uint32_t lo = s->cut[k - 1] + 1, hi = c->layers - (s->pp - k);

		if (chance(c, 50))
			s->cut[k] = lo + below(c, hi - lo + 1);
		else if (s->cut[k] < lo)
			s->cut[k] = lo;
	}
	s->cut[s->pp] = c->layers;
	for (k = 0; k < s->n; k++) {
		j = chance(c, 50) ? k : below(c, k + 1);
		s->place[k] = s->place[j];
		s->place[j] = k;
	}
	s->layout = (enum layout)below(c, LAY_COUNT);
	s->index_layout = (enum layout)below(c, LAY_COUNT);
	s->state_layout = (enum layout)below(c, LAY_COUNT);
	if (c->model->family == FAM_PLANAR && chance(c, 70))
		s->layout = LAY_PLANES;
	if (chance(c, 60))
		s->index_layout = LAY_PLANES;
	s->own_draft_list = chance(c, 40);
	s->split_twice = chance(c, 50);
	s->reverse = chance(c, 25);
	s->aux_everywhere = i == DST || chance(c, 60) || c->harm != HARM_NONE;
	s->aux_first = chance(c, 20);
	for (k = 0; k < KVF_MAX_LISTS; k++) {
		j = chance(c, 50) ? k : below(c, k + 1);
		s->list[k] = s->list[j];
		s->list[j] = k;
	}
}

static void
draw_state(struct combo *c)
{
	static const uint8_t exact[] = {1, 2, 3, 4, 6};
	struct side_draw *s = &c->side[SRC], *d = &c->side[DST];
	uint32_t rows, k;

	s->exact_page = PICK(c, exact);
	d->exact_page = PICK(c, exact);
	rows = s->exact_page * d->exact_page * (1 + below(c, 3));
	s->exact_pages = rows / s->exact_page;
	d->exact_pages = rows / d->exact_page;
	if (c->harm == HARM_STATE_LIST)
		d->exact_pages++;
	s->rings = d->rings = 1 + below(c, 2);
	for (k = 0; k < 2; k++) {
		c->side[k].clip_page = PICK(c, ((const uint8_t[]){1, 4, 16, 3}));
		c->side[k].clip_pages = below(c, 5);
		c->side[k].ring_rows = PICK(c, ((const uint8_t[]){1, 5, 8, 16, 33}));
		if (chance(c, 60) && k == 1) {
			d->clip_page = s->clip_page;
			d->clip_pages = s->clip_pages;
		}
		if (c->harm != HARM_NONE)
			c->side[k].clip_pages = 1;
	}
}

/* Chunks of one prefill rank, from `start` on. */
static void
draw_split(struct combo *c, struct room_draw *r, uint32_t rank, uint64_t start)
{
	const struct side_draw *s = &c->side[SRC];
	uint64_t unit = (uint64_t)s->page * (s->band ? 1 : s->dcp), at = start;
	uint32_t n = 1 + below(c, MX_CHUNKS), k;
	bool aligned = chance(c, 60);

	r->bound[rank][0] = start;
	for (k = 1; k < n; k++) {
		uint64_t next =
			at + (at < r->total ? suite_range(&c->rand, 0, r->total - at) / 2 : 0);

		if (aligned)
			next = (next + unit - 1) / unit * unit;
		/* An empty chunk may come first, to join early; the one that ends the prompt is the
		 * last. */
		if ((next == at && k > 1) || next >= r->total)
			break;
		r->bound[rank][k] = at = next;
	}
	r->bound[rank][k] = r->total;
	r->chunks[rank] = k;
}

static void
draw_room(struct combo *c, struct room_draw *r, uint64_t longest)
{
	const struct side_draw *s = &c->side[SRC], *d = &c->side[DST];
	uint64_t virt = (uint64_t)d->page * (d->band ? 1 : d->dcp), start, most;
	bool ragged = chance(c, 20), mixed = chance(c, 10);
	uint32_t k;

	r->id = suite_rand(&c->rand);
	r->key = chance(c, 20) ? suite_rand(&c->rand) : 0;
	r->named = chance(c, 50);
	switch (below(c, 8)) {
	case 0:
		r->total =
			below(c, s->dcp + d->dcp + 2); /* fewer tokens than ranks, or none at all */
		break;
	case 1:
		r->total = virt * (1 + below(c, 3)); /* ends with a page */
		break;
	default:
		r->total = suite_range(&c->rand, longest / 4, longest);
		break;
	}
	if (r->total > longest)
		r->total = longest;
	if (c->harm != HARM_NONE && r->total == 0)
		r->total = 1;
	most = chance(c, 45) ? r->total / virt : 0;
	for (k = 0; k < d->n; k++) {
		r->prefix[k] =
			k == 0 || mixed ? suite_range(&c->rand, 0, most) * virt : r->prefix[0];
		if (k == 0 && most > 0 && chance(c, 30))
			r->prefix[k] = most * virt;
	}
	start = r->prefix[0];
	for (k = 1; k < d->n; k++)
		start = r->prefix[k] < start ? r->prefix[k] : start;
	if (chance(c, 40))
		start = suite_range(&c->rand, 0, start);
	for (k = 0; k < s->n; k++) {
		if (k == 0 || ragged) {
			draw_split(c, r, k, start);
		} else {
			r->chunks[k] = r->chunks[0];
			memcpy(r->bound[k], r->bound[0], sizeof(r->bound[k]));
		}
	}
}

/* How long may a prompt be? */
static uint64_t
longest_prompt(const struct combo *c)
{
	uint64_t held = 0, width = 0, n;
	uint32_t i;

	for (i = 0; i < 3; i++)
		width += (uint64_t)c->model->bytes[i];
	width *= c->model->heads * (c->twice ? 2 : 1);
	for (i = 0; i < 2; i++) {
		const struct side_draw *s = &c->side[i];
		uint64_t copies = c->model->heads >= s->tp ? 1 : s->tp / c->model->heads;

		held += width * copies * (c->layers + c->draft_layers * s->dcp);
	}
	n = POOL_BUDGET / held / c->num_rooms;
	return n < 24 ? 24 : n > LONGEST ? LONGEST : n;
}

static bool
harm_possible(const struct combo *c)
{
	const struct side_draw *s = &c->side[SRC];

	switch (c->harm) {
	case HARM_HEADS:
		return s->tp > 1 && c->model->heads > 1;
	case HARM_POSITIONS:
		return s->dcp > 1;
	case HARM_SHARDS:
		return s->dcp * s->tp > 1 && !s->band;
	default:
		return true;
	}
}

static void
draw_all(struct combo *c)
{
	const enum family f = PICK(c, models).family;
	uint32_t i;

	/* First the family: else the models with many presets would come most often. */
	do {
		c->model = &PICK(c, models);
	} while (c->model->family != f && chance(c, 80));
	c->layers = chance(c, 10) ? 7 + below(c, MX_LAYERS - 6) : 1 + below(c, 4);
	c->first_layer = chance(c, 50) ? 0 : below(c, 100);
	c->layer_step = 1 + below(c, 3);
	c->twice = chance(c, 10);
	c->fresh_pages = chance(c, 40);
	c->parts = 1u << L_TOKENS;
	for (i = L_EXACT; i <= L_RING; i++)
		c->parts |= (uint32_t)chance(c, 20) << i;
	c->parts |= (uint32_t)chance(c, 60) << L_AUX | (uint32_t)chance(c, 15) << L_ONE;
	if (c->model->family >= FAM_HYBRID)
		c->parts |= 1u << L_ONE;
	if (c->model->family == FAM_WINDOWS)
		c->parts |= 1u << L_CLIP;
	if (c->harm != HARM_NONE)
		c->parts |= 1u << L_AUX | 1u << L_CLIP | 1u << L_EXACT;
	c->draft_layers = 0;
	if (c->model->draft && chance(c, 60)) {
		c->parts |= 1u << L_DRAFT;
		c->draft_layers = 1 + below(c, 2);
	}
	if (c->twice)
		c->parts |= 1u << L_TWICE;
	draw_grid(c);
	draw_side(c, SRC);
	draw_side(c, DST);
	draw_state(c);
	c->hurt_layer = below(c, c->layers);
	if (c->harm == HARM_STATE || c->harm == HARM_STATE_LIST || c->harm == HARM_RULE)
		c->hurt_layer &= ~1u;
	else
		while (!combo_has_kv(c, c->hurt_layer))
			c->hurt_layer = (c->hurt_layer + 1) % c->layers;
	c->hurt_kind = below(c, 3);
	c->hurt_place = below(c, c->harm == HARM_HEADS ? c->side[SRC].tp : c->side[SRC].dcp);
	c->order = below(c, 3);
	c->leave_open = chance(c, 30);
	c->num_rooms = c->harm == HARM_NONE && chance(c, 15) ? 2 + below(c, 2) : 1;
	for (i = 0; i < c->num_rooms; i++)
		draw_room(c, &c->room[i], longest_prompt(c));
}

void
combo_draw(struct combo *c, uint64_t seed, uint32_t index, bool harmed)
{
	uint64_t rand = seed * 0x9e3779b97f4a7c15ull + (index + 1) * 0xd1b54a32d192ed03ull;
	enum harm harm = HARM_NONE;

	rand = (rand ^ rand >> 29) | 1;
	if (harmed)
		harm = (enum harm)(1 + index % (HARM_COUNT - 1));
	do {
		memset(c, 0, sizeof(*c));
		c->seed = seed;
		c->index = index;
		c->rand = rand;
		c->harm = harm;
		suite_rand(&c->rand);
		rand = suite_rand(&c->rand) | 1;
		draw_all(c);
	} while (!harm_possible(c));
}

static void
print_side(const struct combo *c, enum side i)
{
	static const char *const layouts[] = {
		"NHD", "NHD+pad", "HND", "HND+pad", "rows", "planes", "heads", "blocks"};
	const struct side_draw *s = &c->side[i];
	uint32_t k;

	printf(" %s{%s=%u tp=%u pp=%u cut=", i == SRC ? "prefill" : "decode",
		s->band ? "band" : "dcp", s->dcp, s->tp, s->pp);
	for (k = 1; k < s->pp; k++)
		printf("%u,", s->cut[k]);
	printf(" interleave=%u page=%u layout=%s/%s/%s%s%s%s%s%s exact=%ux%u clip=%ux%u "
	       "ring=%ux%u}",
		s->interleave, s->page, layouts[s->layout], layouts[s->index_layout],
		layouts[s->state_layout], s->own_draft_list ? " own-draft-list" : "",
		s->split_twice ? " split" : "", s->reverse ? " reversed" : "",
		s->aux_everywhere ? " aux" : " aux-at-last-stage", s->aux_first ? " aux-first" : "",
		s->exact_pages, s->exact_page, s->clip_pages, s->clip_page, s->rings, s->ring_rows);
}

void
combo_print(const struct combo *c)
{
	uint32_t i, k;

	printf("        KVF_TEST_SEED=%" PRIu64
	       " KVF_MATRIX_%s=%u: model=%s layers=%u from=%u step=%u "
	       "draft=%u%s%s parts=%#x order=%u harm=%u hurt=%u,%u,%u",
		c->seed, c->harm != HARM_NONE ? "REFUSAL" : "INDEX", c->index, c->model->name,
		c->layers, c->first_layer, c->layer_step, c->draft_layers, c->twice ? " twice" : "",
		c->fresh_pages ? " fresh-pages" : "", c->parts, c->order, c->harm, c->hurt_layer,
		c->hurt_kind, c->hurt_place);
	print_side(c, SRC);
	print_side(c, DST);
	for (i = 0; i < c->num_rooms; i++) {
		const struct room_draw *r = &c->room[i];

		printf(" room{total=%" PRIu64 " prefix=%" PRIu64 " chunks=", r->total,
			r->prefix[0]);
		for (k = 0; k <= r->chunks[0]; k++)
			printf("%" PRIu64 ",", r->bound[0][k]);
		printf("}");
	}
	printf("\n");
	fflush(stdout);
}
