/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvferry/geometry.h>

#include "common/suite.h"

#define LEN(a) ((uint32_t)(sizeof(a) / sizeof((a)[0])))
#define MIB    (1024ull * 1024)

/* DeepSeek: pages of 64 rows of 1152 bytes. */
static const struct kvf_entry latent = {
	.page_stride = 64 * 1152,
	.row_stride = 1152,
	.row_bytes = 1152,
	.kind = KVF_KIND_LATENT,
	.head_count = 1,
	.head_total = 1,
};

/* One component of n entries, to be spoilt by a case. */
struct fixture {
	struct kvf_geometry geo;
	struct kvf_component comps[2];
	struct kvf_entry e[4];
	struct kvf_err err;
};

static void
setup(struct fixture *f, uint32_t n)
{
	uint32_t i;

	memset(f, 0, sizeof(*f));
	for (i = 0; i < n; i++) {
		f->e[i] = latent;
		f->e[i].layer = 40 + i;
		f->e[i].offset = i * 10 * latent.page_stride;
	}
	f->comps[0] = (struct kvf_component){.cls = KVF_TOKENS,
		.page_tokens = 64,
		.num_pages = 10,
		.num_entries = n,
		.sharding = {1, 0, 1, 0},
		.entries = f->e};
	f->comps[1] = f->comps[0];
	f->geo.num_components = 1;
	f->geo.components = f->comps;
}

static int
check(struct fixture *f, uint64_t pool)
{
	int rc = kvf_geometry_check(&f->geo, pool, &f->err);

	CHECK_EQ(kvf_geometry_check(&f->geo, pool, NULL), rc);
	if (rc != 0)
		CHECK_EQ(f->err.code, rc);
	return rc;
}

/* One number spoilt: the code, and what the sentence names. */
#define SPOILT(stmt, code, ...)                                                                    \
	do {                                                                                       \
		static const char *const parts[] = {__VA_ARGS__};                                  \
		struct fixture f;                                                                  \
		uint32_t part;                                                                     \
                                                                                                   \
		setup(&f, 3);                                                                      \
		CHECK_EQ(check(&f, 64 * MIB), 0);                                                  \
		stmt;                                                                              \
		CHECK_EQ(check(&f, 64 * MIB), code);                                               \
		for (part = 0; part < LEN(parts); part++)                                          \
			CHECK_STR_HAS(f.err.text, parts[part]);                                    \
	} while (0)

static void
test_counts(void)
{
	SPOILT(f.geo.num_components = 0, KVF_E_GEOMETRY, "num_components=0", "minimum=1");
	SPOILT(f.geo.num_components = 33, KVF_E_GEOMETRY, "num_components=33", "limit=32");
	SPOILT(f.geo.components = NULL, KVF_E_INVAL, "num_components=1", "components=NULL");
	SPOILT(f.geo.reserved = 7, KVF_E_GEOMETRY, "reserved=7");
	SPOILT(f.comps[0].num_entries = 0, KVF_E_GEOMETRY, "component=0", "num_entries=0",
		"minimum=1");
	SPOILT(f.comps[0].num_entries = 1025, KVF_E_GEOMETRY, "num_entries=1025", "limit=1024");
	SPOILT(f.comps[0].num_entries = UINT32_MAX, KVF_E_GEOMETRY, "num_entries=4294967295");
	SPOILT(f.comps[0].entries = NULL, KVF_E_INVAL, "component=0", "entries=NULL");
	SPOILT(f.comps[0].list = 8, KVF_E_GEOMETRY, "list=8", "limit=7");
	SPOILT(f.comps[0].page_tokens = 0, KVF_E_GEOMETRY, "page_tokens=0", "minimum=1");
	SPOILT(f.comps[0].num_pages = 0, KVF_E_GEOMETRY, "num_pages=0", "minimum=1");
	SPOILT(f.comps[0].num_pages = 1u << 31, KVF_E_GEOMETRY, "num_pages=2147483648",
		"limit=2147483647");
	SPOILT(f.comps[0].cls = 0, KVF_E_GEOMETRY, "cls=0");
	SPOILT(f.comps[0].cls = 4, KVF_E_GEOMETRY, "cls=4", "limit=3");
	SPOILT(f.comps[0].tag = 1, KVF_E_GEOMETRY, "tag=1");
	CHECK_EQ(kvf_geometry_check(NULL, MIB, NULL), KVF_E_INVAL);
}

static void
test_all_entries(void)
{
	static struct kvf_entry many[KVF_MAX_ENTRIES + 1];
	struct fixture f;
	uint32_t i;

	for (i = 0; i < LEN(many); i++) {
		many[i] = latent;
		many[i].offset = i * 10 * latent.page_stride;
	}
	setup(&f, 1);
	f.geo.num_components = 2;
	f.comps[0].entries = many;
	f.comps[0].num_entries = 1000;
	f.comps[1].entries = many + 1000;
	f.comps[1].num_entries = 24;
	CHECK_EQ(check(&f, 1024ull * 10 * 64 * 1152), 0);
	CHECK_EQ(check(&f, 1024ull * 10 * 64 * 1152 - 1), KVF_E_GEOMETRY);
	CHECK_STR_HAS(f.err.text, "component=1 entry=23");
	f.comps[1].num_entries = 25;
	CHECK_EQ(check(&f, 2048ull * 10 * 64 * 1152), KVF_E_GEOMETRY);
	CHECK_STR_HAS(f.err.text, "entries=1025");
	CHECK_STR_HAS(f.err.text, "limit=1024");
}

static void
test_sharding(void)
{
	struct fixture f;

	SPOILT(f.comps[0].sharding.size = 0, KVF_E_SHARDING, "component=0");
	SPOILT(f.comps[0].sharding.size = 1025, KVF_E_SHARDING, "1025", "1024");
	SPOILT(f.comps[0].sharding.rank = 1, KVF_E_SHARDING, "component=0");
	SPOILT(f.comps[0].sharding.interleave = 0, KVF_E_SHARDING, "component=0");
	SPOILT(f.comps[0].sharding.mode = 9, KVF_E_SHARDING, "mode=9");

	setup(&f, 1);
	f.comps[0].sharding = (struct kvf_sharding){8, 5, 64, 0};
	CHECK_EQ(check(&f, MIB), 0);
	f.comps[0].cls = KVF_STATE;
	f.comps[0].tag = 9;
	CHECK_EQ(check(&f, MIB), KVF_E_SHARDING);
	CHECK_STR_HAS(f.err.text, "component=0");
	CHECK_STR_HAS(f.err.text, "cls=2");
	CHECK_STR_HAS(f.err.text, "size=8 rank=5 interleave=64");
	f.comps[0].sharding = (struct kvf_sharding){1, 0, 1, 0};
	CHECK_EQ(check(&f, MIB), 0);
	f.comps[0].sharding.interleave = 2;
	CHECK_EQ(check(&f, MIB), KVF_E_SHARDING);
}

static void
test_rows(void)
{
	struct fixture f;

	SPOILT(f.e[1].row_bytes = 0, KVF_E_GEOMETRY, "component=0 entry=1", "row_bytes=0",
		"minimum=1");
	SPOILT(f.e[1].head_count = 0, KVF_E_GEOMETRY, "entry=1", "head_count=0", "minimum=1");
	SPOILT(f.e[1].head_first = 1, KVF_E_GEOMETRY, "entry=1", "head_first+head_count=2",
		"head_total=1");
	SPOILT((f.e[2].head_first = 65535, f.e[2].head_count = 65535, f.e[2].head_total = 65535),
		KVF_E_GEOMETRY, "entry=2", "head_first+head_count=131070", "head_total=65535");
	SPOILT(f.e[2].head_count = f.e[2].head_total = 5, KVF_E_GEOMETRY, "entry=2",
		"row_bytes=1152", "head_count=5", "remainder=2");
	SPOILT((f.e[2].head_count = f.e[2].head_total = 2, f.e[2].head_stride = 575),
		KVF_E_GEOMETRY, "head_stride=575", "minimum=576");
	SPOILT(f.e[0].reserved[2] = 1, KVF_E_GEOMETRY, "entry=0", "reserved=1");
	/* aux is one row */
	SPOILT(f.comps[0].cls = KVF_AUX, KVF_E_GEOMETRY, "page_tokens=64", "limit=1");

	/* what a dimension of one step strides by does not matter */
	setup(&f, 1);
	f.comps[0].cls = KVF_AUX;
	f.comps[0].page_tokens = 1;
	f.e[0].row_stride = 0;
	CHECK_EQ(check(&f, MIB), 0);
	f.e[0].row_stride = UINT64_MAX;
	f.e[0].head_stride = UINT64_MAX;
	CHECK_EQ(check(&f, MIB), 0);
	f.comps[0].num_pages = 1;
	f.e[0].page_stride = UINT64_MAX;
	CHECK_EQ(check(&f, 1152), 0);
	CHECK_EQ(check(&f, 1151), KVF_E_GEOMETRY);
}

/* mooncake 3845, sglang 32171: a pool that ends where it ends, not on a page of 2 MiB. */
static void
test_odd_pool(void)
{
	struct fixture f;
	uint64_t need;

	setup(&f, 1);
	f.comps[0].num_pages = 51263;
	f.e[0].offset = 3779571220ull - 51263ull * 64 * 1152;
	CHECK_EQ(check(&f, 3779571220ull), 0);
	CHECK_EQ(check(&f, 3779571219ull), KVF_E_GEOMETRY);
	CHECK_STR_HAS(f.err.text, "component=0 entry=0 layer=40 needs=3779571220 pool=3779571219");

	/* The last row of the last page need not be followed by its padding. */
	setup(&f, 1);
	f.e[0].row_stride = 1280;
	f.e[0].page_stride = 64 * 1280 + 4096;
	need = 9 * f.e[0].page_stride + 63 * 1280 + 1152;
	CHECK_EQ(check(&f, need), 0);
	CHECK_EQ(check(&f, need - 1), KVF_E_GEOMETRY);
	CHECK_EQ(check(&f, 0), KVF_E_GEOMETRY);
	CHECK_STR_HAS(f.err.text, "pool=0");
}

/* mooncake 2635: offsets past 4 GiB. */
static void
test_past_4_gib(void)
{
	const uint64_t tib = 1024 * 1024 * MIB;
	struct fixture f;

	setup(&f, 2);
	f.e[1].offset = 5ull << 30;
	CHECK_EQ(check(&f, (5ull << 30) + 10 * 64 * 1152), 0);
	CHECK_EQ(check(&f, (5ull << 30) + 10 * 64 * 1152 - 1), KVF_E_GEOMETRY);
	CHECK_STR_HAS(f.err.text, "entry=1");
	CHECK_STR_HAS(f.err.text, "needs=5369446400");

	/* 2^31 - 1 pages of 73,728 bytes: 158 TB, in which 32-bit products look small */
	setup(&f, 1);
	f.comps[0].num_pages = KVF_MAX_PAGE_ID;
	CHECK_EQ(check(&f, 64 * MIB), KVF_E_GEOMETRY);
	CHECK_STR_HAS(f.err.text, "needs=158329674326016");
	CHECK_EQ(check(&f, 150 * tib), 0);
	/* entry 1 would be clear of entry 0 if offsets were cut to 32 bits */
	setup(&f, 2);
	f.comps[0].num_pages = 1000000;
	f.e[1].offset = (16ull << 30) + 64 * 1152;
	CHECK_EQ(check(&f, tib), KVF_E_GEOMETRY);
	CHECK_STR_HAS(f.err.text, "entries overlap");
}

static void
test_overflow(void)
{
	struct fixture f;

	SPOILT(f.e[1].offset = UINT64_MAX, KVF_E_OVERFLOW, "component=0 entry=1",
		"offset=18446744073709551615");
	SPOILT(f.e[1].offset = UINT64_MAX - 10 * 64 * 1152 + 1, KVF_E_OVERFLOW, "offset=");
	SPOILT(f.e[1].offset = UINT64_MAX - 10 * 64 * 1152, KVF_E_GEOMETRY,
		"needs=18446744073709551615 pool=67108864");
	SPOILT(f.e[1].page_stride = UINT64_MAX, KVF_E_OVERFLOW, "entry=1",
		"page_stride=18446744073709551615", "count=10");
	SPOILT(f.e[1].page_stride = UINT64_MAX / 9 + 1, KVF_E_OVERFLOW, "page_stride=");
	SPOILT(f.e[1].row_stride = 1ull << 60, KVF_E_OVERFLOW, "row_stride=", "count=64");
	SPOILT((f.e[1].head_count = f.e[1].head_total = 9, f.e[1].head_stride = 1ull << 61),
		KVF_E_OVERFLOW, "head_stride=", "count=9");
	/* products that wrap to small numbers */
	SPOILT(f.e[1].row_stride = (1ull << 63) + 1152, KVF_E_OVERFLOW, "row_stride=");
	SPOILT((f.comps[0].num_pages = 1u << 30, f.e[0].page_stride = 1ull << 35), KVF_E_OVERFLOW,
		"page_stride=34359738368");

	/* no file has that many bytes */
	setup(&f, 1);
	f.e[0].offset = (uint64_t)INT64_MAX - 10 * 64 * 1152;
	CHECK_EQ(check(&f, UINT64_MAX), 0);
	f.e[0].offset++;
	CHECK_EQ(check(&f, UINT64_MAX), KVF_E_OVERFLOW);
	CHECK_STR_HAS(f.err.text, "needs=9223372036854775808 limit=9223372036854775807");
}

static void
test_row_overlap(void)
{
	struct fixture f;

	SPOILT(f.e[1].row_stride = 1151, KVF_E_GEOMETRY, "rows overlap", "entry=1",
		"row_stride=1151", "minimum=1152");
	SPOILT(f.e[1].page_stride = 64 * 1152 - 1, KVF_E_GEOMETRY, "rows overlap", "entry=1",
		"page_stride=73727", "minimum=73728");
	SPOILT(f.e[1].page_stride = 0, KVF_E_GEOMETRY, "rows overlap", "page_stride=0");
	SPOILT(f.e[1].row_stride = 0, KVF_E_GEOMETRY, "rows overlap", "row_stride=0");
	/* HND whose heads are one row too close */
	SPOILT((f.e[1].head_count = f.e[1].head_total = 2, f.e[1].row_stride = 576,
		       f.e[1].head_stride = 63 * 576),
		KVF_E_GEOMETRY, "rows overlap", "head_stride=36288", "minimum=36864");
	/* NHD rows that are shorter than their padded heads */
	SPOILT((f.e[1].head_count = f.e[1].head_total = 2, f.e[1].head_stride = 600),
		KVF_E_GEOMETRY, "rows overlap", "row_stride=1152", "minimum=1176");

	/* vLLM [2, blocks, ...] and heads outside of pages */
	setup(&f, 1);
	f.e[0].head_count = f.e[0].head_total = 2;
	f.e[0].row_stride = 576;
	f.e[0].page_stride = 64 * 576;
	f.e[0].head_stride = 10 * 64 * 576;
	CHECK_EQ(check(&f, 20 * 64 * 576), 0);
	f.e[0].head_stride--;
	CHECK_EQ(check(&f, 20 * 64 * 576), KVF_E_GEOMETRY);
	/* slots outside of pages */
	f.e[0].head_stride = 0;
	f.e[0].page_stride = 1152;
	f.e[0].row_stride = 10 * 1152;
	CHECK_EQ(check(&f, 10 * 64 * 1152), 0);
}

/* K and V in one page, in one row and in one head; planes; blocks of all layers. */
static void
test_interleaved_entries(void)
{
	static struct kvf_entry many[KVF_MAX_ENTRIES];
	struct fixture f;
	uint32_t i;

	/* [blocks, 2, 64, 1152] */
	setup(&f, 2);
	f.e[0].page_stride = f.e[1].page_stride = 2 * 64 * 1152;
	f.e[1].offset = 64 * 1152;
	CHECK_EQ(check(&f, 20 * 64 * 1152), 0);
	f.e[1].offset--;
	CHECK_EQ(check(&f, 20 * 64 * 1152), KVF_E_GEOMETRY);
	CHECK_STR_HAS(f.err.text, "entries overlap: component=0 entry=0 offset=0");
	CHECK_STR_HAS(f.err.text, "component=0 entry=1 offset=73727");

	/* [rows, 2, 1152]; and the page padded, so that two levels interleave */
	for (i = 0; i < 2; i++) {
		setup(&f, 2);
		f.e[0].row_stride = f.e[1].row_stride = 2 * 1152;
		f.e[0].page_stride = f.e[1].page_stride = 2 * 64 * 1152 + i * 512;
		f.e[1].offset = 1152;
		CHECK_EQ(check(&f, 20 * 64 * 1152 + i * 10 * 512), 0);
		f.e[1].offset = 1151;
		CHECK_EQ(check(&f, 20 * 64 * 1152 + i * 10 * 512), KVF_E_GEOMETRY);
		f.e[1].offset = 1153;
		CHECK_EQ(check(&f, 20 * 64 * 1152 + i * 10 * 512), KVF_E_GEOMETRY);
	}

	/* [rows, 4 heads, 2, 288] */
	setup(&f, 2);
	for (i = 0; i < 2; i++) {
		f.e[i].head_count = f.e[i].head_total = 4;
		f.e[i].head_stride = 576;
		f.e[i].row_stride = 4 * 576;
		f.e[i].page_stride = 64 * 4 * 576;
		f.e[i].offset = i * 288;
	}
	CHECK_EQ(check(&f, 10 * 64 * 4 * 576), 0);
	f.e[1].offset = 287;
	CHECK_EQ(check(&f, 10 * 64 * 4 * 576), KVF_E_GEOMETRY);

	/* planar index pages: 64 keys of 128 bytes, 64 scales of 4; the second entry in a component
	 * of its own */
	setup(&f, 2);
	f.e[0].page_stride = f.e[1].page_stride = 8448;
	f.e[0].row_bytes = f.e[0].row_stride = 128;
	f.e[1].row_bytes = f.e[1].row_stride = 4;
	f.e[1].offset = 64 * 128;
	f.geo.num_components = 2;
	f.comps[0].num_entries = 1;
	f.comps[1].num_entries = 1;
	f.comps[1].entries = &f.e[1];
	CHECK_EQ(check(&f, 84480), 0);
	f.e[1].offset -= 4;
	CHECK_EQ(check(&f, 84480), KVF_E_GEOMETRY);
	CHECK_STR_HAS(f.err.text, "component=0 entry=0 offset=0");
	CHECK_STR_HAS(f.err.text, "component=1 entry=0 offset=8188");
	/* taking the page for 64 equal rows would also reach into the next page's keys */
	f.e[1].offset = 64 * 128 + 132;
	CHECK_EQ(check(&f, 85000), KVF_E_GEOMETRY);

	/* pages of 64 rows and of 16 rows over one row-interleaved buffer */
	setup(&f, 2);
	f.e[0].row_stride = f.e[1].row_stride = 2304;
	f.e[0].page_stride = 64 * 2304;
	f.e[1].page_stride = 16 * 2304;
	f.e[1].offset = 1152;
	f.geo.num_components = 2;
	f.comps[0].num_entries = 1;
	f.comps[1].num_entries = 1;
	f.comps[1].entries = &f.e[1];
	f.comps[1].page_tokens = 16;
	f.comps[1].num_pages = 40;
	CHECK_EQ(check(&f, 640 * 2304), 0);

	/* [blocks, 1024 buffers, ...]: every entry lies between the pages of every other */
	setup(&f, 1);
	f.comps[0].entries = many;
	f.comps[0].num_entries = LEN(many);
	for (i = 0; i < LEN(many); i++) {
		many[i] = latent;
		many[i].page_stride = 1024 * 64 * 1152;
		many[i].offset = (uint64_t)(i * 37 % 1024) * 64 * 1152;
	}
	CHECK_EQ(check(&f, 10240ull * 64 * 1152), 0);
	many[800].offset += 1;
	CHECK_EQ(check(&f, 10240ull * 64 * 1152 + 1), KVF_E_GEOMETRY);
	CHECK_STR_HAS(f.err.text, "entry=800 ");
}

static void
test_entry_overlap(void)
{
	SPOILT(f.e[1].offset = f.e[0].offset, KVF_E_GEOMETRY, "entries overlap", "entry=0",
		"entry=1");
	SPOILT(f.e[1].offset -= 1, KVF_E_GEOMETRY, "entries overlap", "entry=0 offset=0 end=737280",
		"entry=1 offset=737279");
	SPOILT(f.e[0].offset = 25 * 64 * 1152, KVF_E_GEOMETRY, "entries overlap", "entry=0",
		"entry=2");
	/* the one that is met was passed by another in between */
	SPOILT(f.e[2].offset = 3 * 64 * 1152, KVF_E_GEOMETRY, "entries overlap", "entry=0",
		"entry=2");
	/* periods that have nothing to do with each other cannot be told apart page by page */
	SPOILT((f.e[0].page_stride = 3 * 64 * 1152, f.e[1].page_stride = 2 * 64 * 1152,
		       f.e[1].offset = 64 * 1152, f.e[2].offset = 40 * MIB),
		KVF_E_GEOMETRY, "strides", "entry=0", "entry=1");
}

#define POOL 4096

/* Counts for every byte of the pool the rows that hold it; 0 when one reaches past the end. */
static int
paint(const struct kvf_component *comp, const struct kvf_entry *e, uint8_t *bytes)
{
	uint64_t head = e->row_bytes / e->head_count;
	uint64_t step = e->head_stride != 0 ? e->head_stride : head, at, x;
	uint32_t p, s, h;

	for (p = 0; p < comp->num_pages; p++) {
		for (s = 0; s < comp->page_tokens; s++) {
			for (h = 0; h < e->head_count; h++) {
				at = e->offset + p * e->page_stride + s * e->row_stride + h * step;
				if (at + head > POOL)
					return 0;
				for (x = 0; x < head; x++)
					bytes[at + x] += bytes[at + x] < 200;
			}
		}
	}
	return 1;
}

static int
any_above_one(const uint8_t *bytes)
{
	uint32_t i;

	for (i = 0; i < POOL; i++) {
		if (bytes[i] > 1)
			return 1;
	}
	return 0;
}

/*
 * Small random declarations against painting every byte. What is accepted is right, always; what is
 * refused as "past its pool" or "overlap" is wrong, always; regular layouts are never refused for
 * their strides.
 */
static void
test_random(void)
{
	uint32_t i, k, accepted = 0, outside = 0, rows = 0, entries = 0, unproven = 0;
	uint64_t rand = suite_seed();
	static uint8_t all[POOL], one[POOL];

	for (i = 0; i < 60000; i++) {
		struct fixture f;
		int inside = 1, self = 0, both;

		setup(&f, 2);
		f.geo.num_components = 2;
		memset(all, 0, sizeof(all));
		for (k = 0; k < 2; k++) {
			struct kvf_component *comp = &f.comps[k];
			struct kvf_entry *e = &f.e[k];
			uint64_t head = suite_range(&rand, 1, 4), unit;

			comp->entries = e;
			comp->num_entries = 1;
			comp->page_tokens = (uint32_t)suite_range(&rand, 1, 4);
			comp->num_pages = (uint32_t)suite_range(&rand, 1, 4);
			e->head_count = e->head_total = (uint16_t)suite_range(&rand, 1, 3);
			e->row_bytes = (uint32_t)head * e->head_count;
			unit = i % 3 == 0 ? 1 : 4;
			e->head_stride = head + suite_range(&rand, 0, 3) * unit;
			e->row_stride = suite_range(&rand, 0, 12) * unit;
			e->page_stride = suite_range(&rand, 0, 40) * unit;
			e->offset = suite_range(&rand, 0, i % 20 == 0 ? POOL : 200);
			if (i % 2 == 0 && k == 1) {
				/* the same strides as the other, elsewhere */
				e->page_stride = f.e[0].page_stride;
				e->row_stride = f.e[0].row_stride;
				e->offset = f.e[0].offset + suite_range(&rand, 0, 60);
			}
			memset(one, 0, sizeof(one));
			inside &= paint(comp, e, one) && paint(comp, e, all);
			self |= any_above_one(one);
		}
		both = any_above_one(all);
		switch (check(&f, POOL)) {
		case 0:
			accepted++;
			CHECK(inside && !self && !both);
			break;
		case KVF_E_GEOMETRY:
			if (strstr(f.err.text, "past its pool") != NULL) {
				outside++;
				CHECK(!inside);
			} else if (strstr(f.err.text, "rows overlap") != NULL) {
				rows++;
			} else if (strstr(f.err.text, "entries overlap") != NULL) {
				entries++;
				if (!CHECK(both && !self))
					printf("    case %u of the seed: %s\n", i, f.err.text);
			} else {
				unproven++;
				CHECK_STR_HAS(f.err.text, "strides");
			}
			break;
		default:
			CHECK_STR_HAS(f.err.text, "GEOMETRY, or nothing");
		}
	}
	printf("    accepted %u, outside %u, rows %u, entries %u, unproven %u\n", accepted, outside,
		rows, entries, unproven);
	CHECK(accepted > 1000);
	CHECK(outside > 20);
	CHECK(rows > 1000);
	CHECK(entries > 1000);
}

/*
 * Two to four buffers that share pages, rows or heads, with padding: always accepted. Then one of
 * them moves, and only what is really apart may still be accepted.
 */
static void
test_random_regular(void)
{
	uint32_t i, k, n, moved_ok = 0, moved_bad = 0;
	uint64_t rand = suite_seed();
	static uint8_t all[POOL];

	for (i = 0; i < 20000; i++) {
		uint64_t head[4], at = 0, unit = 0, rows, heads;
		uint32_t level = (uint32_t)suite_range(&rand, 0, 2);
		int inside = 1, rc;
		struct fixture f;

		n = (uint32_t)suite_range(&rand, 2, 4);
		setup(&f, n);
		rows = suite_range(&rand, 1, 3);
		heads = suite_range(&rand, 1, 3);
		f.comps[0].page_tokens = (uint32_t)rows;
		f.comps[0].num_pages = (uint32_t)suite_range(&rand, 1, 3);
		for (k = 0; k < n; k++) {
			head[k] = suite_range(&rand, 1, 3);
			unit += head[k] * (level < 2 ? heads : 1) * (level < 1 ? rows : 1);
		}
		unit += suite_range(&rand, 0, 2);
		for (k = 0; k < n; k++) {
			struct kvf_entry *e = &f.e[k];

			e->head_count = e->head_total = (uint16_t)heads;
			e->row_bytes = (uint32_t)(head[k] * heads);
			e->head_stride = level < 2 ? head[k] : unit;
			e->row_stride =
				level < 1 ? head[k] * heads : unit * (level < 2 ? 1 : heads);
			e->page_stride = level < 1 ? unit : e->row_stride * rows + 5;
			e->offset = at;
			at += head[k] * (level < 2 ? heads : 1) * (level < 1 ? rows : 1);
		}
		if (!CHECK_EQ(check(&f, POOL), 0))
			printf("    case %u of the seed: %s\n", i, f.err.text);

		k = (uint32_t)suite_range(&rand, 0, n - 1);
		f.e[k].offset += suite_range(&rand, 1, 40);
		memset(all, 0, sizeof(all));
		for (k = 0; k < n; k++)
			inside &= paint(&f.comps[0], &f.e[k], all);
		CHECK(inside);
		rc = check(&f, POOL);
		if (any_above_one(all)) {
			moved_bad++;
			CHECK_EQ(rc, KVF_E_GEOMETRY);
		} else {
			moved_ok++;
			if (!CHECK_EQ(rc, 0))
				printf("    case %u of the seed: %s\n", i, f.err.text);
		}
	}
	CHECK(moved_ok > 500);
	CHECK(moved_bad > 500);
}

static const struct suite_case cases[] = {
	{"counts and lists", test_counts},
	{"entries of all components together", test_all_entries},
	{"sharding", test_sharding},
	{"rows and heads", test_rows},
	{"pool not a multiple of 2 MiB", test_odd_pool},
	{"offsets past 4 GiB", test_past_4_gib},
	{"overflow", test_overflow},
	{"rows of an entry overlap", test_row_overlap},
	{"entries that interleave", test_interleaved_entries},
	{"entries that overlap", test_entry_overlap},
	{"random declarations against painting", test_random},
	{"random regular layouts", test_random_regular},
};

SUITE_MAIN("geometry", cases)
