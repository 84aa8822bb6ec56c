/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "common/suite.h"
#include "common/pattern.h"
#include "unit/demo/demo.h"

#define SMALL                                                                                      \
	"--model deepseek-v3.2 --layers 2 --tokens 90 --page-size 4 --chunk 10 --decode-dcp 3 "

#define GQA "--model llama-3-70b --layers 2 --tokens 60 --page-size 16 "

int
rank_init(struct rank *r, const struct scene *s, enum kvf_role role, uint32_t rank)
{
	struct kvf_err err;

	memset(r, 0, sizeof(*r));
	if (!CHECK_EQ(demo_layout_build(&s->o, &s->m, &s->plan, role, rank, &r->layout, &err), 0))
		return -1;
	r->pool = malloc(r->layout.decl.pool_bytes);
	if (!CHECK(r->pool != NULL) || !CHECK_EQ(demo_store_init(&r->store, &r->layout, &s->plan,
							 r->pool, s->o.seed, &err),
					       0))
		return -1;
	demo_store_guard(&r->store);
	return 0;
}

void
rank_fini(struct rank *r)
{
	demo_store_fini(&r->store);
	demo_layout_free(&r->layout);
	free(r->pool);
}

static void
fill_all(struct rank *r)
{
	uint32_t i;

	for (i = 0; i < r->store.plan->num; i++)
		demo_store_fill(&r->store, i);
}

static struct demo_check
check_all(struct rank *r)
{
	struct demo_check check = {0};
	uint32_t i;

	for (i = 0; i < r->store.plan->num; i++)
		demo_store_check(&r->store, i, &check);
	demo_store_sweep(&r->store, &check);
	return check;
}

static uint64_t
owned_bytes(const struct rank *r)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < r->store.plan->num; i++)
		sum += demo_room_bytes(&r->layout, &r->store.plan->rooms[i]);
	return sum;
}

/* Where component c, entry e has the row in slot `slot` of the room's page number `page`. */
static uint8_t *
row_at(struct rank *r, uint32_t c, uint32_t e, uint32_t room, uint32_t page, uint32_t slot)
{
	const struct kvf_entry *entry = &r->layout.decl.comp[c].entries[e];
	uint64_t id = r->store.grants[room].pages[page];

	return r->pool + entry->offset + id * entry->page_stride + slot * entry->row_stride;
}

void
store_fills_and_checks(void)
{
	static const char *const scenes[] = {
		SMALL,
		SMALL "--draft --state --interleave 3",
		GQA "--prefill-tp 16 --decode-tp 2",
		"--model kimi-linear --layers 4 --tokens 40 --page-size 1 --rooms 3 --prefill-tp 4",
		GQA "--prefill-layout hnd --decode-layout blocks-kv --decode-pad 40 --prefill-pp 2",
		SMALL "--prefill-cp 3 --prefill-page-size 2",
		"--model deepseek-v4 --layers 2 --tokens 200 --page-size 16 --rooms 4 "
		"--decode-ring 48",
		"--model gpt-oss-120b-swa --layers 2 --tokens 200 --rooms 4 --prefill-page-size 16 "
		"--decode-page-size 24 --layout kv-blocks",
		"--model kimi-k3 --layers 4 --tokens 40 --page-size 2 --rooms 3 --prefill-dcp 2",
	};
	static const enum kvf_role roles[] = {KVF_PREFILL, KVF_DECODE};
	struct demo_check check;
	struct scene s;
	struct rank r;
	uint32_t i, k, rank;

	for (i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
		if (scene_init(&s, scenes[i]) != 0)
			return;
		for (k = 0; k < 2; k++) {
			for (rank = 0; rank < demo_ranks(&s.o, roles[k]); rank++) {
				if (rank_init(&r, &s, roles[k], rank) == 0) {
					fill_all(&r);
					check = check_all(&r);
					CHECK_EQ(check.mismatches, 0);
					CHECK_EQ(check.bytes, owned_bytes(&r));
					CHECK(check.text[0] == '\0');
					/* The check put the guard back: now every row is missing.
					 */
					check = check_all(&r);
					CHECK(check.mismatches > owned_bytes(&r) / 100 * 98);
				}
				rank_fini(&r);
			}
		}
		scene_fini(&s);
	}
}

void
store_finds_one_byte(void)
{
	uint64_t seed = suite_seed(), at;
	struct demo_check check;
	struct scene s;
	struct rank r;
	uint32_t i, bit, e;

	if (scene_init(&s, SMALL) != 0)
		return;
	if (rank_init(&r, &s, KVF_DECODE, 1) == 0) {
		for (i = 0; i < 200; i++) {
			fill_all(&r);
			/* Any byte of the pool, a room's or nobody's. */
			at = suite_range(&seed, 0, r.layout.decl.pool_bytes - 1);
			bit = (uint32_t)suite_range(&seed, 0, 7);
			r.pool[at] ^= (uint8_t)(1u << bit);
			check = check_all(&r);
			CHECK_EQ(check.mismatches, 1);
			CHECK(check.text[0] != '\0');
			/* The damage to nobody's byte stays, what belonged to a room was restored.
			 */
			demo_store_guard(&r.store);
		}
		/* First and last byte of a row of each entry. */
		for (e = 0; e < r.layout.decl.comp[0].num_entries; e++) {
			fill_all(&r);
			row_at(&r, 0, e, 0, 1, 2)[0] ^= 0x80;
			row_at(&r, 0, e, 0, 1, 2)[r.layout.decl.comp[0].entries[e].row_bytes - 1] ^=
				1;
			check = check_all(&r);
			CHECK_EQ(check.mismatches, 2);
			CHECK_STR_HAS(check.text, "slot=2");
			/* DCP 3, rank 1, interleave 1: local row 1 * 4 + 2 is position 6 * 3 + 1.
			 */
			CHECK_STR_HAS(check.text, "position=19 ");
		}
	}
	rank_fini(&r);
	scene_fini(&s);
}

void
store_finds_missing_row(void)
{
	struct demo_check check;
	const struct kvf_entry *e;
	struct scene s;
	struct rank r;
	uint8_t *row;

	if (scene_init(&s, SMALL) != 0)
		return;
	if (rank_init(&r, &s, KVF_DECODE, 2) == 0) {
		fill_all(&r);
		e = &r.layout.decl.comp[0].entries[0];
		row = row_at(&r, 0, 0, 1, 0, 3);
		pattern_fill(row, r.store.guard_key, (uint64_t)(row - r.pool), e->row_bytes);
		check = check_all(&r);
		/* One byte in 256 is right by chance. */
		CHECK(check.mismatches > e->row_bytes * 95 / 100);
		CHECK(check.mismatches <= e->row_bytes);
		CHECK_STR_HAS(check.text, "never written");
	}
	rank_fini(&r);
	scene_fini(&s);
}

void
store_finds_stray_byte(void)
{
	const struct kvf_entry *e;
	struct demo_check check;
	struct scene s;
	struct rank r;
	uint64_t last;

	if (scene_init(&s, SMALL) != 0)
		return;
	if (rank_init(&r, &s, KVF_DECODE, 0) == 0) {
		e = &r.layout.decl.comp[0].entries[0];
		/* Page 0, which nobody is given; the first gap; the last byte of the pool. */
		fill_all(&r);
		r.pool[e->offset + 5] ^= 1;
		r.pool[0] ^= 1;
		r.pool[r.layout.decl.pool_bytes - 1] ^= 1;
		check = check_all(&r);
		CHECK_EQ(check.mismatches, 3);
		CHECK_STR_HAS(check.text, "offset=0 ");
		demo_store_guard(&r.store);

		/* The stale rows behind the last token: room 1 ends inside a page. */
		fill_all(&r);
		last = demo_rows_below(&r.layout.decl.comp[0].sharding, s.plan.rooms[1].total,
			s.plan.rooms[1].total);
		if (CHECK(last % 4 != 0)) {
			memset(row_at(&r, 0, 0, 1, (uint32_t)(last / 4), (uint32_t)(last % 4)),
				0xee, e->row_bytes);
			check = check_all(&r);
			CHECK(check.mismatches > e->row_bytes * 95 / 100);
			CHECK_STR_HAS(check.text, "no room's");
		}
	}
	rank_fini(&r);
	scene_fini(&s);
}

void
store_finds_wrong_aux(void)
{
	struct demo_check check;
	uint64_t id = 0;
	struct scene s;
	struct rank r;
	uint8_t *row;

	if (scene_init(&s, SMALL) != 0)
		return;
	if (rank_init(&r, &s, KVF_DECODE, 0) == 0) {
		const struct kvf_component *c =
			&r.layout.decl.comp[r.layout.decl.geo.num_components - 1];

		CHECK_EQ(c->cls, KVF_AUX);
		fill_all(&r);
		row = r.pool + c->entries[0].offset + r.store.grants[3].aux * DEMO_AUX_BYTES;
		memcpy(&id, row + DEMO_AUX_BYTES - sizeof(id), sizeof(id));
		CHECK(id == s.plan.rooms[3].id);
		row[DEMO_AUX_BYTES - 1] ^= 0x10;
		check = check_all(&r);
		CHECK_EQ(check.mismatches, 1);
		CHECK_STR_HAS(check.text, "byte=255");
	}
	rank_fini(&r);
	scene_fini(&s);
}

void
store_forgets(void)
{
	struct demo_check check = {0};
	struct scene s;
	struct rank r;
	uint32_t i;

	if (scene_init(&s, SMALL) != 0)
		return;
	if (rank_init(&r, &s, KVF_DECODE, 0) == 0) {
		fill_all(&r);
		memset(row_at(&r, 0, 1, 0, 2, 0), 0, 16);
		demo_store_forget(&r.store, 0);
		for (i = 1; i < s.plan.num; i++)
			demo_store_check(&r.store, i, &check);
		demo_store_sweep(&r.store, &check);
		CHECK_EQ(check.mismatches, 0);
		CHECK_EQ(check.bytes,
			owned_bytes(&r) - demo_room_bytes(&r.layout, &s.plan.rooms[0]));
	}
	rank_fini(&r);
	scene_fini(&s);
}

/* Bytes that arrive in a room's rows after it was checked: the right ones, but too late. */
void
store_late_write(void)
{
	struct demo_check check = {0};
	struct scene s;
	struct rank r;

	if (scene_init(&s, SMALL "--rooms 1") != 0)
		return;
	if (rank_init(&r, &s, KVF_DECODE, 0) == 0) {
		fill_all(&r);
		demo_store_check(&r.store, 0, &check);
		CHECK_EQ(check.mismatches, 0);
		demo_store_fill(&r.store, 0);
		demo_store_sweep(&r.store, &check);
		CHECK(check.mismatches > owned_bytes(&r) / 100 * 98);
	}
	rank_fini(&r);
	scene_fini(&s);
}

/* Right bytes in the wrong place: rows, layers, rooms and planes exchanged. */
void
store_rows_of_other_places(void)
{
	struct demo_check check;
	uint8_t keep[2048];
	struct scene s;
	struct rank r;
	uint32_t i;

	if (scene_init(&s, SMALL) != 0)
		return;
	if (rank_init(&r, &s, KVF_DECODE, 0) == 0) {
		uint8_t *pairs[][2] = {
			{row_at(&r, 0, 0, 0, 0, 0), row_at(&r, 0, 0, 0, 0, 1)},
			{row_at(&r, 0, 0, 0, 0, 0), row_at(&r, 0, 0, 0, 1, 0)},
			{row_at(&r, 0, 0, 0, 0, 0), row_at(&r, 0, 1, 0, 0, 0)},
			{row_at(&r, 0, 0, 0, 0, 0), row_at(&r, 0, 0, 1, 0, 0)},
		};

		CHECK_EQ(r.layout.decl.comp[0].entries[0].row_bytes, 1152);
		CHECK_EQ(r.layout.decl.comp[0].entries[1].row_bytes, 1152);
		for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
			fill_all(&r);
			memcpy(keep, pairs[i][0], 1152);
			memcpy(pairs[i][0], pairs[i][1], 1152);
			memcpy(pairs[i][1], keep, 1152);
			check = check_all(&r);
			CHECK(check.mismatches > 2 * 1152 * 95 / 100);
		}
	}
	rank_fini(&r);
	scene_fini(&s);
}

/*
 * Byte by byte, the slow and obvious way: for every byte of the model's row of every position, look
 * where the decode rank keeps it and where the prefill rank does.
 */
static void
move_room(struct rank *d, struct rank *p, uint32_t r)
{
	const struct demo_room *room = &d->store.plan->rooms[r];
	uint32_t c, e, k, h, b;
	uint64_t pos;

	for (c = 0; c < d->layout.decl.geo.num_components; c++) {
		const struct kvf_component *dc = &d->layout.decl.comp[c],
					   *pc = &p->layout.decl.comp[c];

		for (e = 0; e < dc->num_entries; e++) {
			const struct kvf_entry *de = &dc->entries[e], *pe = &pc->entries[e];
			uint32_t hb = de->row_bytes / de->head_count;
			bool tokens = dc->cls == KVF_TOKENS;

			CHECK_EQ(de->kind, pe->kind);
			CHECK_EQ(de->layer, pe->layer);
			for (pos = tokens ? room->prefix : 0; pos < (tokens ? room->total : 1);
				pos++) {
				uint64_t drow = pos, prow = pos, dpage, ppage;

				if (tokens) {
					/* Counts instead of computing. */
					uint64_t q, own = 0;
					bool mine = false;

					for (q = room->prefix; q <= pos; q++) {
						mine = q / dc->sharding.interleave %
							       dc->sharding.size ==
						       dc->sharding.rank;
						own += mine;
					}
					if (!mine)
						continue;
					drow = own - 1;
					prow = pos - room->start;
					dpage = d->store.grants[r].pages[drow / dc->page_tokens];
					ppage = p->store.grants[r].pages[prow / pc->page_tokens];
				} else {
					const struct demo_grant *dg = &d->store.grants[r],
								*pg = &p->store.grants[r];

					dpage = dc->cls == KVF_AUX ? dg->aux
								   : dg->state[dc->tag][0];
					drow = prow = 0;
					ppage = pc->cls == KVF_AUX ? pg->aux
								   : pg->state[pc->tag][0];
				}
				for (h = 0; h < de->head_count; h++) {
					k = h + de->head_first;
					if (k < pe->head_first ||
						k >= (uint32_t)pe->head_first + pe->head_count)
						continue;
					for (b = 0; b < hb; b++)
						d->pool[de->offset + dpage * de->page_stride +
							drow % dc->page_tokens * de->row_stride +
							h * (de->head_stride != 0 ? de->head_stride
										  : hb) +
							b] =
							p->pool[pe->offset +
								ppage * pe->page_stride +
								prow % pc->page_tokens *
									pe->row_stride +
								(k - pe->head_first) *
									(pe->head_stride != 0
											? pe->head_stride
											: hb) +
								b];
				}
			}
		}
	}
}

void
store_moves_between_layouts(void)
{
	static const char *const scenes[] = {
		"--model deepseek-v3.2 --layers 1 --tokens 50 --page-size 4 --chunk 10 "
		"--decode-dcp 3 "
		"--interleave 2 --draft --prefill-tp 1 --rooms 7",
		"--model llama-3-70b --layers 1 --tokens 30 --page-size 2 --chunk 5 --prefill-tp 4 "
		"--decode-tp 16 --decode-dcp 1 --rooms 4",
		"--model gpt-oss-120b --layers 1 --tokens 40 --page-size 8 --prefill-tp 8 "
		"--decode-tp 2 "
		"--decode-dcp 2 --rooms 4 --state",
		"--model llama-3-70b --layers 1 --tokens 30 --prefill-page-size 2 --chunk 6 "
		"--decode-page-size 3 --prefill-layout hnd --decode-layout blocks-kv --decode-pad "
		"5 "
		"--prefill-tp 2 --decode-tp 4 --rooms 4",
		"--model llama-3-70b --layers 1 --tokens 30 --page-size 4 --prefill-layout "
		"kv-blocks "
		"--prefill-pad 7 --decode-layout hnd --prefill-tp 4 --decode-tp 2 --rooms 4",
	};
	struct demo_check check;
	struct scene s;
	struct rank p[8], d[16];
	uint32_t i, k, n, r;

	for (i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
		if (scene_init(&s, scenes[i]) != 0)
			return;
		for (n = 0; n < demo_ranks(&s.o, KVF_PREFILL); n++) {
			rank_init(&p[n], &s, KVF_PREFILL, n);
			fill_all(&p[n]);
		}
		for (k = 0; k < demo_ranks(&s.o, KVF_DECODE); k++) {
			rank_init(&d[k], &s, KVF_DECODE, k);
			for (n = 0; n < demo_ranks(&s.o, KVF_PREFILL); n++)
				for (r = 0; r < s.plan.num; r++)
					move_room(&d[k], &p[n], r);
			check = check_all(&d[k]);
			CHECK_EQ(check.mismatches, 0);
			CHECK_EQ(check.bytes, owned_bytes(&d[k]));
			rank_fini(&d[k]);
		}
		for (n = 0; n < demo_ranks(&s.o, KVF_PREFILL); n++) {
			check = check_all(&p[n]);
			CHECK_EQ(check.mismatches, 0);
			rank_fini(&p[n]);
		}
		scene_fini(&s);
	}
}
