/* SPDX-License-Identifier: BSD-3-Clause */
/* What pd-demo knows without an engine: presets, rooms, layouts, patterns, pages, sizing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/suite.h"
#include "pd-demo/pages.h"
#include "common/pattern.h"
#include "pd-demo/size.h"
#include "unit/demo/demo.h"

int
scene_init(struct scene *s, const char *args)
{
	char *argv[48] = {(char[]){"pd-demo"}}, *save = NULL, *word;
	struct kvf_err err = {0};
	int argc = 1, rc;

	memset(s, 0, sizeof(*s));
	snprintf(s->text, sizeof(s->text), "%s", args);
	for (word = strtok_r(s->text, " ", &save); word != NULL && argc < 47;
		word = strtok_r(NULL, " ", &save))
		argv[argc++] = word;
	demo_options_default(&s->o);
	rc = demo_options_parse(&s->o, argc, argv, &err);
	if (rc == 0)
		rc = demo_options_model(&s->o, &s->m, &err);
	if (rc == 0)
		rc = demo_plan_build(&s->o, &s->plan, &err);
	if (rc != 0)
		printf("%s: %s\n", args, err.text);
	CHECK_EQ(rc, 0);
	return rc;
}

void
scene_fini(struct scene *s)
{
	demo_plan_free(&s->plan);
}

static void
chunks_end_on_pages(void)
{
	struct demo_plan plan = {.chunk_unit = 16, .chunk = 24};
	static const uint64_t ends[] = {16, 48, 50};
	uint64_t at = 0;
	uint32_t i;

	/* The public report: page 16, prompt 50, chunk 24 sends 16, 32 and 2 tokens. */
	for (i = 0; i < 3; i++) {
		at = demo_chunk_end(&plan, at, 50);
		CHECK_EQ(at, ends[i]);
	}
	/* Chunks smaller than a page, and a room without tokens. */
	plan.chunk = 5;
	CHECK_EQ(demo_chunk_end(&plan, 0, 50), 16);
	CHECK_EQ(demo_chunk_end(&plan, 16, 50), 32);
	CHECK_EQ(demo_chunk_end(&plan, 48, 50), 50);
	CHECK_EQ(demo_chunk_end(&plan, 512, 512), 512);
}

static void
rooms_are_mixed(void)
{
	uint32_t i, k, partial = 0, cached = 0, hits = 0, few = 0;
	struct scene s;
	uint64_t at, end;

	if (scene_init(&s, "") != 0)
		return;
	CHECK_EQ(s.plan.num, 8);
	CHECK_EQ(shape_unit(&s.o.decode), 512);
	for (i = 0; i < s.plan.num; i++) {
		const struct demo_room *room = &s.plan.rooms[i];

		CHECK(room->id != 0);
		CHECK(room->total > 0);
		CHECK(room->prefix <= room->total);
		CHECK_EQ(room->prefix % 512, 0);
		CHECK_EQ(room->start % 64, room->total == room->prefix ? room->total % 64 : 0);
		CHECK(room->start <= room->prefix);
		partial += room->total % 64 != 0;
		cached += room->prefix > 0 && room->prefix < room->total;
		hits += room->prefix == room->total;
		few += room->total < 8;
		for (k = 0; k < i; k++)
			CHECK(s.plan.rooms[k].id != room->id && s.plan.rooms[k].key != room->key);
		for (at = room->start; at < room->total; at = end) {
			end = demo_chunk_end(&s.plan, at, room->total);
			if (!CHECK(end > at && end <= room->total && end - at <= 2048 + 64))
				break;
			CHECK(end == room->total || end % 64 == 0);
		}
	}
	CHECK(partial >= 4);
	CHECK_EQ(cached, 1);
	CHECK_EQ(hits, 1);
	CHECK_EQ(few, 1);
	scene_fini(&s);
}

static void
layout_offsets(void)
{
	const struct kvf_component *t;
	struct demo_layout l;
	struct kvf_err err;
	struct scene s;

	/* Two layers of latents, two of planar index pages, aux. */
	if (scene_init(&s,
		    "--model deepseek-v3.2 --layers 2 --rooms 1 --tokens 256 --decode-dcp 2") != 0)
		return;
	if (!CHECK_EQ(demo_layout_build(&s.o, &s.m, &s.plan, KVF_DECODE, 1, &l, &err), 0))
		return;
	t = &l.decl.comp[0];
	CHECK_EQ(l.decl.geo.num_components, 2);
	/* 128 rows on this rank: 2 pages, page 0, and 2 that stay free. */
	CHECK_EQ(t->num_pages, 5);
	CHECK_EQ(t->page_tokens, 64);
	CHECK_EQ(t->sharding.size, 2);
	CHECK_EQ(t->sharding.rank, 1);
	CHECK_EQ(t->num_entries, 6);
	CHECK_EQ(t->entries[0].offset, 256);
	CHECK_EQ(t->entries[0].page_stride, 64 * 1152);
	CHECK_EQ(t->entries[0].row_stride, 1152);
	CHECK_EQ(t->entries[1].offset, (256 + 5 * 73728 + 256 + 255) / 256 * 256);
	CHECK_EQ(t->entries[2].page_stride, 8448);
	CHECK_EQ(t->entries[2].row_bytes, 128);
	CHECK_EQ(t->entries[3].page_stride, 8448);
	CHECK_EQ(t->entries[3].row_bytes, 4);
	CHECK_EQ(t->entries[3].offset - t->entries[2].offset, 8192);
	CHECK_EQ(t->entries[2].layer, 0);
	CHECK_EQ(t->entries[5].layer, 1);
	CHECK_EQ(l.decl.comp[1].cls, KVF_AUX);
	CHECK_EQ(l.decl.comp[1].list, SHAPE_LIST_AUX);
	CHECK_EQ(l.decl.comp[1].num_pages, 64);
	CHECK_EQ(l.decl.pool_bytes,
		(l.decl.comp[1].entries[0].offset + 64 * 256 + SHAPE_GAP + 255) / 256 * 256);
	demo_layout_free(&l);
	scene_fini(&s);
}

static void
layout_heads(void)
{
	/* {heads, tp, rank} -> {first, count}: sliced, and replicated where there are more ranks
	 * than heads. */
	static const struct {
		const char *args;
		uint32_t rank, first, count;
	} cases[] = {
		{"--model qwen3-235b --layers 1 --decode-dcp 1 --decode-tp 1", 0, 0, 4},
		{"--model qwen3-235b --layers 1 --decode-dcp 1 --decode-tp 2", 1, 2, 2},
		{"--model qwen3-235b --layers 1 --decode-dcp 1 --decode-tp 8", 0, 0, 1},
		{"--model qwen3-235b --layers 1 --decode-dcp 1 --decode-tp 8", 1, 0, 1},
		{"--model qwen3-235b --layers 1 --decode-dcp 1 --decode-tp 8", 7, 3, 1},
		/* DCP varies fastest: rank 3 of TP 2 x DCP 2 is TP rank 1. */
		{"--model qwen3-235b --layers 1 --decode-dcp 2 --decode-tp 2", 3, 2, 2},
		{"--model deepseek-r1 --layers 1 --decode-dcp 2 --decode-tp 2", 3, 0, 1},
	};
	struct demo_layout l;
	struct kvf_err err;
	struct scene s;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (scene_init(&s, cases[i].args) != 0)
			return;
		if (CHECK_EQ(demo_layout_build(
				     &s.o, &s.m, &s.plan, KVF_DECODE, cases[i].rank, &l, &err),
			    0)) {
			CHECK_EQ(l.decl.comp[0].entries[0].head_first, cases[i].first);
			CHECK_EQ(l.decl.comp[0].entries[0].head_count, cases[i].count);
			CHECK_EQ(l.decl.comp[0].sharding.rank, cases[i].rank % s.o.decode.dcp);
			demo_layout_free(&l);
		}
		scene_fini(&s);
	}
}

static void
layout_draft_and_state(void)
{
	struct demo_layout l;
	struct kvf_err err;
	struct scene s;

	if (scene_init(&s,
		    "--model kimi-linear --layers 4 --draft --decode-dcp 8 --page-size 16") != 0)
		return;
	if (CHECK_EQ(demo_layout_build(&s.o, &s.m, &s.plan, KVF_DECODE, 7, &l, &err), 0)) {
		CHECK_EQ(l.decl.geo.num_components, 4);
		/* The draft: every position on every rank, in pages of P * N. */
		CHECK_EQ(l.decl.comp[1].page_tokens, 128);
		CHECK_EQ(l.decl.comp[1].sharding.size, 1);
		CHECK_EQ(l.decl.comp[1].list, SHAPE_LIST_TOKENS);
		CHECK_EQ(l.decl.comp[1].num_pages, l.decl.comp[0].num_pages);
		CHECK_EQ(l.decl.comp[1].entries[0].layer, 27);
		/* So a rank that owns none of 5 tokens needs a page for them all the same. */
		CHECK_EQ(demo_rows_below(&l.decl.comp[0].sharding, 5, 5), 0);
		CHECK_EQ(demo_pages_needed(&l, 0, 5, 5), 1);
		CHECK_EQ(l.decl.comp[2].cls, KVF_STATE);
		CHECK_EQ(l.decl.comp[2].tag, MODEL_MAMBA);
		/* Three convolutions of one layer and kind: told apart by occurrence. */
		CHECK_EQ(l.decl.comp[2].entries[0].kind, KVF_KIND_CONV);
		CHECK_EQ(l.decl.comp[2].entries[2].kind, KVF_KIND_CONV);
		CHECK_EQ(l.decl.comp[2].entries[2].layer, l.decl.comp[2].entries[0].layer);
		CHECK_EQ(l.decl.occurrence[&l.decl.comp[2].entries[2] - l.decl.entries], 2);
		demo_layout_free(&l);
	}
	if (CHECK_EQ(demo_layout_build(&s.o, &s.m, &s.plan, KVF_PREFILL, 0, &l, &err), 0)) {
		CHECK_EQ(l.decl.comp[1].page_tokens, 16);
		CHECK_EQ(l.decl.comp[2].entries[0].head_count, 16);
		CHECK_EQ(l.decl.comp[2].entries[0].head_total, 32);
		demo_layout_free(&l);
	}
	scene_fini(&s);
}

/* What the demo declares, the library accepts: all presets, all ranks. */
static void
layouts_are_valid(void)
{
	static const char *const more[] = {"", " --draft --state --page-size 1",
		" --decode-dcp 4 --decode-tp 2 --interleave 3 --page-size 16",
		" --prefill-cp 3 --decode-pp 2 --prefill-layout hnd --decode-pad 8"};
	static const enum kvf_role roles[] = {KVF_PREFILL, KVF_DECODE};
	struct model_names names;
	struct demo_layout l;
	struct kvf_err err;
	char args[200];
	struct scene s;
	uint32_t i, k, v, rank;

	if (!CHECK_EQ(model_list(models_path(), &names, &err), 0))
		return;
	for (i = 0; i < names.num; i++) {
		for (v = 0; v < 4; v++) {
			snprintf(args, sizeof(args), "--model %s%s", names.name[i], more[v]);
			if (scene_init(&s, args) != 0)
				return;
			for (k = 0; k < 2; k++) {
				for (rank = 0; rank < demo_ranks(&s.o, roles[k]); rank += 3) {
					if (!CHECK_EQ(demo_layout_build(&s.o, &s.m, &s.plan,
							      roles[k], rank, &l, &err),
						    0))
						continue;
					if (!CHECK_EQ(kvf_geometry_check(
							      &l.decl.geo, l.decl.pool_bytes, &err),
						    0))
						printf("%s: %s\n", args, err.text);
					demo_layout_free(&l);
				}
			}
			scene_fini(&s);
		}
	}
}

static void
sharding_arithmetic(void)
{
	uint64_t seed = suite_seed(), pos, rows;
	uint32_t i;

	for (i = 0; i < 300; i++) {
		struct kvf_sharding sh = {.size = (uint32_t)suite_range(&seed, 1, 9),
			.interleave = (uint32_t)suite_range(&seed, 1, 9)};

		sh.rank = (uint32_t)suite_range(&seed, 0, sh.size - 1);
		/* Counting by the definition. */
		for (pos = 0, rows = 0; pos < 400; pos++) {
			if (!CHECK_EQ(demo_rows_below(&sh, 400, pos), rows))
				return;
			if (pos / sh.interleave % sh.size != sh.rank)
				continue;
			if (!CHECK_EQ(demo_row_position(&sh, 400, rows), pos))
				return;
			rows++;
		}
	}
}

/* Pages dealt one after the other, the first ranks one more: every position exactly once. */
static void
band_arithmetic(void)
{
	uint64_t seed = suite_seed(), total, pos, rows[9];
	uint32_t i, r, k;

	for (i = 0; i < 300; i++) {
		struct kvf_sharding sh = {.size = (uint32_t)suite_range(&seed, 1, 9),
			.interleave = (uint32_t)suite_range(&seed, 1, 9),
			.mode = KVF_SHARD_BAND};
		uint64_t pages, left;

		total = suite_range(&seed, 0, 120);
		pages = (total + sh.interleave - 1) / sh.interleave;
		memset(rows, 0, sizeof(rows));
		for (pos = 0, r = 0, left = 0; pos < total; pos++) {
			/* Whose turn is it? A rank takes its pages, then the next one. */
			if (pos % sh.interleave == 0) {
				while (left == 0) {
					left = pages / sh.size + (r < pages % sh.size);
					r++;
				}
				left--;
			}
			for (k = 0; k < sh.size; k++) {
				sh.rank = k;
				if (!CHECK_EQ(demo_rows_below(&sh, total, pos), rows[k]))
					return;
			}
			sh.rank = r - 1;
			if (!CHECK_EQ(demo_row_position(&sh, total, rows[r - 1]), pos))
				return;
			rows[r - 1]++;
		}
	}
}

static void
pattern_is_one_stream(void)
{
	uint64_t seed = suite_seed(), first, n, i, bad, at;
	uint8_t whole[600], part[600];
	uint32_t k;

	for (k = 0; k < 500; k++) {
		uint64_t key = suite_rand(&seed);

		pattern_fill(whole, key, 0, sizeof(whole));
		first = suite_range(&seed, 0, 300);
		n = suite_range(&seed, 0, 300);
		pattern_fill(part, key, first, n);
		CHECK_EQ(memcmp(part, whole + first, n), 0);
		for (i = 0; i < 20; i++)
			CHECK_EQ(whole[i], pattern_byte(key, i));
		CHECK_EQ(pattern_compare(part, key, first, n, &bad), 0);
		if (n == 0)
			continue;
		at = suite_range(&seed, 0, n - 1);
		part[at] ^= 0x40;
		CHECK_EQ(pattern_compare(part, key, first, n, &bad), 1);
		CHECK_EQ(bad, at);
	}
}

static void
pattern_compare_long(void)
{
	static uint8_t buf[3 * 4096 + 77];
	uint64_t n = sizeof(buf), bad = 0;

	pattern_fill(buf, 7, 5, n);
	CHECK_EQ(pattern_compare(buf, 7, 5, n, &bad), 0);
	buf[n - 1] ^= 1;
	buf[4096] ^= 1;
	buf[4095] ^= 1;
	CHECK_EQ(pattern_compare(buf, 7, 5, n, &bad), 3);
	CHECK_EQ(bad, 4095);
}

static void
pattern_keys_differ(void)
{
	struct pattern_row a = {
		.room_key = 1, .position = 2, .layer = 3, .kind = 4, .cls = 1, .occurrence = 0};
	struct pattern_row b[6];
	uint32_t i, k;

	for (i = 0; i < 6; i++)
		b[i] = a;
	b[0].room_key++;
	b[1].position++;
	b[2].layer++;
	b[3].kind++;
	b[4].cls++;
	b[5].occurrence++;
	for (i = 0; i < 6; i++) {
		CHECK(pattern_key(&a) != pattern_key(&b[i]));
		for (k = 0; k < i; k++)
			CHECK(pattern_key(&b[k]) != pattern_key(&b[i]));
	}
}

static void
pages_are_handed_out_once(void)
{
	uint32_t ids[99], i, in_order = 0;
	uint8_t seen[100] = {0};
	struct demo_pages pages;
	struct kvf_err err;

	if (!CHECK_EQ(demo_pages_init(&pages, 100, 42, &err), 0))
		return;
	CHECK_EQ(demo_pages_take(&pages, ids, 60, &err), 0);
	CHECK_EQ(demo_pages_take(&pages, ids + 60, 40, &err), KVF_E_QUOTA);
	CHECK_STR_HAS(err.text, "wanted=40");
	CHECK_STR_HAS(err.text, "free=39");
	CHECK_EQ(demo_pages_take(&pages, ids + 60, 39, &err), 0);
	for (i = 0; i < 99; i++) {
		CHECK(ids[i] > 0 && ids[i] < 100);
		CHECK_EQ(seen[ids[i] % 100]++, 0);
		in_order += i > 0 && ids[i] == ids[i - 1] + 1;
	}
	CHECK(in_order < 20);
	CHECK_EQ(demo_pages_give(&pages, ids + 10, 5, &err), 0);
	CHECK_EQ(demo_pages_give(&pages, ids + 10, 1, &err), KVF_E_PAGE);
	CHECK_EQ(demo_pages_take(&pages, ids + 10, 5, &err), 0);
	CHECK_EQ(demo_pages_take(&pages, ids, 1, &err), KVF_E_QUOTA);
	demo_pages_fini(&pages);
	CHECK_EQ(demo_pages_init(&pages, 0, 1, &err), KVF_E_INVAL);
}

static void
sizing(void)
{
	struct demo_machine machine = {.huge_free = 1u << 20, .mem_available = 1ull << 40};
	struct demo_options o;
	struct demo_sizing z;
	struct kvf_err err;
	struct scene s;
	uint64_t bytes, pages;

	if (scene_init(&s, "") != 0)
		return;
	CHECK_EQ(demo_size(&s.o, &s.m, &machine, &z, &err), 0);
	CHECK_EQ(z.tokens, 8192);
	CHECK_EQ(z.memory, DEMO_MEMORY_HUGE);
	CHECK(z.reason[0] == '\0');
	CHECK_EQ(demo_hugepages_wanted(&s.o, &s.m, &machine, &pages, &err), 0);
	CHECK(pages * DEMO_HUGE_BYTES > z.bytes && pages < 3072);

	/* Half the hugepages: shorter prompts, said so, and as long as they can be. */
	machine.huge_free = pages / 2;
	CHECK_EQ(demo_size(&s.o, &s.m, &machine, &z, &err), 0);
	CHECK_EQ(z.memory, DEMO_MEMORY_HUGE);
	CHECK(z.tokens < 8192 && z.tokens > 2048);
	CHECK(z.bytes <= z.budget);
	CHECK_STR_HAS(z.reason, "tokens=8192 need ");
	o = s.o;
	o.tokens = z.tokens + 64;
	CHECK_EQ(demo_pools_bytes(&o, &s.m, DEMO_HUGE_BYTES, &bytes, &err), 0);
	CHECK(bytes > z.budget);

	/* None: small pages, unless hugepages were demanded. */
	machine.huge_free = 0;
	CHECK_EQ(demo_size(&s.o, &s.m, &machine, &z, &err), 0);
	CHECK_EQ(z.memory, DEMO_MEMORY_SMALL);
	CHECK_EQ(z.tokens, 8192);
	o = s.o;
	o.memory = DEMO_MEMORY_HUGE;
	CHECK_EQ(demo_size(&o, &s.m, &machine, &z, &err), KVF_E_NOHUGE);
	CHECK_STR_HAS(err.text, "available=0");
	o.memory = DEMO_MEMORY_SMALL;
	machine.huge_free = 1u << 20;
	CHECK_EQ(demo_size(&o, &s.m, &machine, &z, &err), 0);
	CHECK_EQ(z.memory, DEMO_MEMORY_SMALL);

	/* A small machine, and one that is too small. */
	machine.huge_free = 0;
	machine.mem_available = 4ull << 30;
	CHECK_EQ(demo_size(&s.o, &s.m, &machine, &z, &err), 0);
	CHECK(z.tokens < 8192 && z.bytes <= (4ull << 30) * 40 / 100);
	CHECK_STR_HAS(z.reason, "available memory");
	machine.mem_available = 64u << 20;
	CHECK_EQ(demo_size(&s.o, &s.m, &machine, &z, &err), KVF_E_NOMEM);
	CHECK_STR_HAS(err.text, "available=");
	scene_fini(&s);
}

static const struct suite_case cases[] = {
	{"models_add_up", models_add_up},
	{"models_refuse_wrong_sums", models_refuse_wrong_sums},
	{"models_name_what_there_is", models_name_what_there_is},
	{"models_cut", models_cut},
	{"options_refuse", options_refuse},
	{"options_reach_workers", options_reach_workers},
	{"chunks_end_on_pages", chunks_end_on_pages},
	{"rooms_are_mixed", rooms_are_mixed},
	{"layout_offsets", layout_offsets},
	{"layout_heads", layout_heads},
	{"layout_draft_and_state", layout_draft_and_state},
	{"layouts_are_valid", layouts_are_valid},
	{"sharding_arithmetic", sharding_arithmetic},
	{"band_arithmetic", band_arithmetic},
	{"pattern_is_one_stream", pattern_is_one_stream},
	{"pattern_compare_long", pattern_compare_long},
	{"pattern_keys_differ", pattern_keys_differ},
	{"pages_are_handed_out_once", pages_are_handed_out_once},
	{"sizing", sizing},
	{"store_fills_and_checks", store_fills_and_checks},
	{"store_finds_one_byte", store_finds_one_byte},
	{"store_finds_missing_row", store_finds_missing_row},
	{"store_finds_stray_byte", store_finds_stray_byte},
	{"store_finds_wrong_aux", store_finds_wrong_aux},
	{"store_forgets", store_forgets},
	{"store_late_write", store_late_write},
	{"store_rows_of_other_places", store_rows_of_other_places},
	{"store_moves_between_layouts", store_moves_between_layouts},
};

SUITE_MAIN("demo", cases)
