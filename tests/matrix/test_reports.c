/* SPDX-License-Identifier: BSD-3-Clause */
/* What went wrong for others where layouts meet, end to end, named after their reports. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

#define LEN(a) ((uint32_t)(sizeof(a) / sizeof((a)[0])))

/* One rank with `layers` latents of `bytes`. */
static void
add_latents(struct world *w, int decode, uint32_t layers, uint32_t bytes, uint32_t page,
	uint32_t pages, uint32_t size, uint32_t rank)
{
	struct decl *d = calloc(1, sizeof(*d));
	uint32_t i;

	if (d == NULL)
		abort();
	decl_tokens(d, page, pages, size, rank, 1);
	for (i = 0; i < layers; i++) {
		struct spec s = spec_latent(i, bytes);

		decl_put(d, LAY_NHD, &s, 1);
	}
	world_add(w, decode, d);
	free(d);
}

/* K and V of heads [first, first + count) of `total`, exactly to the end of the pool. */
static void
add_heads(struct world *w, int decode, enum layout layout, uint32_t first, uint32_t count,
	uint32_t total)
{
	struct decl *d = calloc(1, sizeof(*d));
	uint32_t i;

	if (d == NULL)
		abort();
	decl_tokens(d, 16, 8, 1, 0, 1);
	for (i = 0; i < 3; i++) {
		struct spec s[2] = {spec_heads(i, KVF_KIND_K, first, count, total, 24),
			spec_heads(i, KVF_KIND_V, first, count, total, 10)};

		decl_put(d, layout, s, 2);
	}
	world_add(w, decode, d);
	free(d);
}

static struct world *
world_new(void)
{
	struct world *w = calloc(1, sizeof(*w));

	if (w == NULL)
		abort();
	return w;
}

static void
world_end(struct world *w)
{
	world_close(w);
	free(w);
}

/* Page 16, 50 tokens computed 24 at a time: a chunk ends on a page boundary, only the last one not.
 */
static void
test_5588(void)
{
	static const uint64_t bound[] = {0, 16, 48, 50};
	static const uint32_t pages[] = {1, 2, 1};
	struct world *w = world_new();
	struct kvf_pages list = {0, 1, (const uint32_t[]){0}};
	struct kvf_send_args args = {
		.room = 2, .num_tokens = 24, .total_tokens = 50, .lists = &list, .num_lists = 1};
	struct kvf_err err = {0};
	uint32_t k;

	add_latents(w, 0, 3, 72, 16, 6, 1, 0);
	add_latents(w, 1, 3, 72, 16, 9, 1, 0);
	world_open(w);
	CHECK_EQ(world_recv(w, 0, 1, 0, 50), 4);
	for (k = 0; k < 3; k++)
		CHECK_EQ(world_send(w, 0, 1, bound[k], bound[k + 1], 50), pages[k]);
	world_finish(w, 1);
	/* 24 tokens do not fit a page, whatever the sender thinks it rounded. */
	CHECK_EQ(kvf_send(w->peer[0][0].ep, &args, &err), 0);
	CHECK_EQ(peer_wait(&w->peer[0][0], 2, 5000), KVF_FAILED);
	CHECK_EQ(kvf_room_error(w->peer[0][0].ep, 2, &err), KVF_E_CAPACITY);
	CHECK_STR_HAS(err.text, "got tokens=24, capacity=16");
	world_end(w);
}

/* The worked example: page id g means rows [g * P * N, (g + 1) * P * N) of a draft. */
static void
test_37709(void)
{
	static const uint32_t src[] = {5, 2, 11, 4}, dst[] = {7};
	static const uint32_t rows[] = {10, 11, 4, 5, 22, 23, 8, 9};
	struct world *w = world_new();
	struct spec target = spec_latent(0, 20), draft = spec_latent(61, 12);
	struct decl *d;
	uint32_t r, k;

	for (r = 0; r < 5; r++) {
		d = calloc(1, sizeof(*d));
		if (d == NULL)
			abort();
		decl_tokens(d, 2, 12, r == 0 ? 1 : 4, r == 0 ? 0 : r - 1, 1);
		decl_put(d, LAY_NHD, &target, 1);
		if (r > 0)
			decl_tokens(d, 8, 12, 1, 0, 1);
		decl_put(d, LAY_NHD, &draft, 1);
		world_add(w, r > 0, d);
		free(d);
	}
	world_open(w);
	for (r = 0; r < 4; r++)
		world_recv_pages(w, r, 1, 0, 8, dst, 1);
	world_send_pages(w, 0, 1, 0, 8, 8, src, 4);
	world_finish(w, 1);
	/* Besides the shadows, by the numbers of the report. */
	for (r = 0; r < 4; r++)
		for (k = 0; k < 8; k++)
			CHECK_EQ(memcmp(w->peer[1][r].base +
						 w->peer[1][r].comps[1].entries[0].offset +
						 (56 + k) * 12,
					 w->peer[0][0].base +
						 w->peer[0][0].comps[0].entries[1].offset +
						 rows[k] * 12,
					 12),
				0);
	world_end(w);
}

/* 525 source pages are 66 of each of 8 ranks: lists of unequal unit, equal tokens. */
static void
test_32997(void)
{
	struct world *w = world_new();
	uint32_t r;

	add_latents(w, 0, 2, 6, 16, 530, 1, 0);
	for (r = 0; r < 8; r++)
		add_latents(w, 1, 2, 6, 16, 70, 8, r);
	world_open(w);
	for (r = 0; r < 8; r++)
		CHECK_EQ(world_recv(w, r, 1, 0, 525 * 16), 66);
	CHECK_EQ(world_send(w, 0, 1, 0, 525 * 16, 525 * 16), 525);
	world_finish(w, 1);
	world_end(w);
}

/* A cached prefix of 164,000 tokens as one send, and in chunks: nothing on the way has to hold it.
 */
static void
test_40376(void)
{
	static const uint64_t once[] = {164000}, twice[] = {163840, 164000};
	uint64_t chunks[81];
	struct world *w = world_new();
	uint32_t r, k;

	for (k = 0; k < LEN(chunks); k++)
		chunks[k] = k + 1 < LEN(chunks) ? (k + 1) * 2048 : 164000;
	add_latents(w, 0, 1, 64, 64, 3 * 2563 + 100, 1, 0);
	for (r = 0; r < 4; r++)
		add_latents(w, 1, 1, 64, 64, 3 * 641 + 3, 4, r);
	world_open(w);
	world_room(w, 1, 0, 0, once, 1);
	world_room(w, 2, 0, 0, twice, 2);
	world_room(w, 3, 0, 0, chunks, LEN(chunks));
	world_end(w);
}

/* Stages of 7 and 8 layers, a draft appended to the second list; decode lists all K before all V.
 */
static void
test_27740(void)
{
	static const uint64_t ends[] = {32, 64, 77};
	struct world *w = world_new();
	struct decl *d;
	uint32_t stage, l;

	for (stage = 0; stage < 3; stage++) {
		d = calloc(1, sizeof(*d));
		if (d == NULL)
			abort();
		decl_tokens(d, 16, 24, 1, 0, 1);
		for (l = 0; l < 30; l++) {
			struct spec s = spec_heads(
				l % 15, l < 15 ? KVF_KIND_K : KVF_KIND_V, 0, 2, 2, l < 15 ? 8 : 6);

			if (stage == 2 || (stage == 0) == (l % 15 < 7))
				decl_put(d, LAY_NHD, &s, 1);
		}
		if (stage > 0) {
			struct spec s[2] = {spec_heads(15, KVF_KIND_K, 0, 2, 2, 8),
				spec_heads(15, KVF_KIND_V, 0, 2, 2, 6)};

			decl_put(d, LAY_NHD, s, 2);
		}
		world_add(w, stage == 2, d);
		free(d);
	}
	world_open(w);
	world_room(w, 1, 0, 0, ends, 3);
	world_room(w, 2, 32, 32, ends + 1, 2);
	world_end(w);
}

/* More ranks than heads: {heads, prefill TP, decode TP}. */
static void
test_19086(void)
{
	static const uint32_t cases[][3] = {{2, 4, 1}, {2, 1, 4}, {4, 8, 1}, {4, 1, 8}, {4, 8, 2},
		{2, 8, 8}, {1, 4, 2}, {4, 2, 8}};
	static const uint64_t ends[] = {16, 40};
	uint32_t i, side, t;

	for (i = 0; i < LEN(cases); i++) {
		uint32_t heads = cases[i][0];
		struct world *w = world_new();

		for (side = 0; side < 2; side++) {
			uint32_t tp = cases[i][1 + side];

			for (t = 0; t < tp; t++)
				add_heads(w, (int)side, (i + side) % 2 == 0 ? LAY_NHD : LAY_HND,
					t * heads / tp, tp > heads ? 1 : heads / tp, heads);
		}
		world_open(w);
		world_room(w, 1, 0, 0, ends, 2);
		/* Never past the region: what the page has behind the pool stays zero. */
		for (side = 0; side < 2; side++)
			for (t = 0; t < w->n[side]; t++) {
				const struct peer *p = &w->peer[side][t];
				uint64_t at;

				for (at = p->pool_bytes; at < kvf_pool_mapped_length(p->pool); at++)
					if (p->base[at] != 0)
						break;
				CHECK_EQ(at, kvf_pool_mapped_length(p->pool));
			}
		world_end(w);
	}
}

static void
test_14439(void)
{
	static const uint32_t pages[][2] = {{32, 64}, {64, 32}, {1, 64}, {48, 32}};
	static const uint64_t ends[] = {64, 192, 300};
	uint32_t i, t;

	for (i = 0; i < LEN(pages); i++) {
		struct world *w = world_new();

		for (t = 0; t < 2; t++) {
			add_latents(w, 0, 2, 40, pages[i][0], 700 / pages[i][0] + 6, 1, 0);
			add_latents(w, 1, 2, 40, pages[i][1], 700 / pages[i][1] + 6, 1, 0);
		}
		world_open(w);
		world_room(w, 1, 0, 0, ends, 3);
		world_room(w, 2, 192, 192, ends + 2, 1);
		world_end(w);
	}
}

/* A cached prefix, then the tail: the same bytes as in one go, for any page-aligned split. */
static void
test_33309(void)
{
	static const uint64_t splits[][4] = {
		{437}, {96, 437}, {16, 437}, {432, 437}, {96, 112, 437}, {96, 304, 432, 437}};
	struct world *w = world_new();
	uint32_t r, i, n;

	add_latents(w, 0, 2, 24, 16, 200, 1, 0);
	for (r = 0; r < 2; r++)
		add_latents(w, 1, 2, 24, 16, 100, 2, r);
	world_open(w);
	for (i = 0; i < LEN(splits); i++) {
		for (n = 0; n < 4 && splits[i][n] != 0; n++)
			;
		world_room(w, i + 1, 0, 0, splits[i], n);
	}
	world_end(w);
}

static uint64_t
meminfo(const char *name)
{
	FILE *f = fopen("/proc/meminfo", "r");
	unsigned long long v = 0;
	char line[128];

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, name, strlen(name)) == 0)
			(void)sscanf(line + strlen(name), " %llu", &v);
	if (f != NULL)
		fclose(f);
	return v;
}

/* Pools that end inside a page: the last row of the last page counts, the byte behind it is
 * refused. */
static void
odd_pool(uint64_t page_size)
{
	static const uint64_t ends[] = {1024, 1664};
	struct world *w = world_new();
	struct kvf_geometry over;
	struct kvf_component comp;
	struct kvf_entry entry;
	struct peer *d;
	struct peer thief;
	struct kvf_err err = {0};

	w->page_size = page_size;
	/* 26 pages of 128 rows of 1137 bytes are 3,783,936 bytes. */
	add_latents(w, 0, 1, 1137, 128, 26, 1, 0);
	add_latents(w, 1, 1, 1137, 128, 26, 1, 0);
	world_open(w);
	d = &w->peer[1][0];
	CHECK_EQ(kvf_pool_length(d->pool), 3783936);
	CHECK_EQ(
		kvf_pool_mapped_length(d->pool), (3783936 + page_size - 1) / page_size * page_size);
	world_room(w, 1, 0, 0, ends, 2);
	entry = d->comps[0].entries[0];
	entry.offset = 1;
	comp = d->comps[0];
	comp.entries = &entry;
	over = (struct kvf_geometry){.num_components = 1, .components = &comp};
	peer_declare(&thief, &over, 3783936);
	thief.page_size = page_size;
	CHECK_EQ(peer_open(&thief, rig_socket(w->rig), KVF_DECODE, "thief", 1, 0, NULL, &err),
		KVF_E_GEOMETRY);
	CHECK_STR_HAS(err.text, "needs=3783937 pool=3783936");
	peer_close(&thief);
	world_end(w);
}

static void
test_3845_small(void)
{
	odd_pool(4096);
}

static void
test_3845_huge(void)
{
	if (meminfo("HugePages_Free:") < 8) {
		suite_skip("8 free hugepages of 2 MiB are needed");
		return;
	}
	odd_pool(2u << 20);
}

#define FAR_STRIDE 0x8a3d70a4ull /* 2.16 GiB: page 1 crosses 2^31, page 2 lies past 2^32 */
#define FAR_ROW    576u
#define FAR_ROWS   16u

/* Pages 0..2 so far apart that 32 bits do not reach; as destination, then as source. */
static void
far_room(struct rig *rig, struct kvf_pool *far, struct kvf_pool *near, bool far_is_source)
{
	struct kvf_entry entry[2];
	struct kvf_component comp[2];
	struct kvf_geometry geo[2];
	struct kvf_endpoint *ep[2];
	static const uint32_t ids[] = {2, 0, 1};
	struct kvf_pages list = {0, 3, ids};
	struct kvf_recv_args recv = {.room = 1, .total_tokens = 48, .lists = &list, .num_lists = 1};
	struct kvf_send_args send = {
		.room = 1, .num_tokens = 48, .total_tokens = 48, .lists = &list, .num_lists = 1};
	uint8_t *at[2] = {kvf_pool_addr(far), kvf_pool_addr(near)};
	struct kvf_err err = {0};
	uint32_t i, page, b;

	for (i = 0; i < 2; i++) {
		struct kvf_endpoint_config cfg = {.socket = rig_socket(rig),
			.role = (i == 0) == far_is_source ? KVF_PREFILL : KVF_DECODE,
			.group = far_is_source ? "out" : "in",
			.group_size = 1,
			.pool = i == 0 ? far : near,
			.geometry = &geo[i],
			.open_timeout_ms = 60000};

		entry[i] = (struct kvf_entry){.offset = i == 0 ? 77 : 0,
			.page_stride = i == 0 ? FAR_STRIDE : FAR_ROW * FAR_ROWS,
			.row_stride = FAR_ROW,
			.row_bytes = FAR_ROW,
			.kind = KVF_KIND_LATENT,
			.head_count = 1,
			.head_total = 1};
		comp[i] = (struct kvf_component){.cls = KVF_TOKENS,
			.page_tokens = FAR_ROWS,
			.num_pages = 3,
			.num_entries = 1,
			.sharding = {1, 0, 1, 0},
			.entries = &entry[i]};
		geo[i] = (struct kvf_geometry){.num_components = 1, .components = &comp[i]};
		if (!CHECK_EQ(kvf_endpoint_open(&cfg, &ep[i], &err), 0)) {
			printf("        %s\n", err.text);
			return;
		}
		for (page = 0; page < 3; page++)
			for (b = 0; b < FAR_ROW * FAR_ROWS; b++)
				at[i][entry[i].offset + page * entry[i].page_stride + b] =
					(i == 0) == far_is_source
						? (uint8_t)(b * 7 + page * 31 + b / 256)
						: 0;
	}
	CHECK_EQ(kvf_recv(ep[far_is_source ? 1 : 0], &recv, &err), 0);
	CHECK_EQ(kvf_send(ep[far_is_source ? 0 : 1], &send, &err), 0);
	for (i = 0; i < 2; i++) {
		struct peer p = {.ep = ep[i]};

		CHECK_EQ(peer_wait(&p, 1, 20000), KVF_SUCCESS);
		CHECK_EQ(kvf_endpoint_close(ep[i]), 0);
	}
	for (page = 0; page < 3; page++)
		CHECK_EQ(memcmp(at[0] + 77 + page * FAR_STRIDE, at[1] + page * FAR_ROW * FAR_ROWS,
				 FAR_ROW * FAR_ROWS),
			0);
	/* Where page 2 would lie in 32 bits. */
	for (b = 0; b < FAR_ROW * FAR_ROWS; b++)
		if (at[0][(uint32_t)(77 + 2 * FAR_STRIDE) + b] != 0)
			break;
	CHECK_EQ(b, FAR_ROW * FAR_ROWS);
}

static void
test_2635(void)
{
	struct kvf_pool_config far = {.length = 2 * FAR_STRIDE + 77 + FAR_ROW * FAR_ROWS,
		.page_size = 4096,
		.numa_node = -1};
	struct kvf_pool_config near = {
		.length = 3 * FAR_ROW * FAR_ROWS, .page_size = 4096, .numa_node = -1};
	struct kvf_pool *pools[2];
	struct kvf_err err = {0};
	struct rig *rig;

	if (meminfo("MemAvailable:") < 10u << 20) {
		suite_skip("10 GiB of available memory are needed");
		return;
	}
	if (!CHECK_EQ(kvf_pool_create(&far, &pools[0], &err), 0)) {
		printf("        %s\n", err.text);
		return;
	}
	CHECK_EQ(kvf_pool_create(&near, &pools[1], &err), 0);
	rig = rig_start(NULL);
	far_room(rig, pools[0], pools[1], false);
	far_room(rig, pools[0], pools[1], true);
	CHECK_EQ(rig_stop(rig), 0);
	kvf_pool_destroy(pools[0]);
	kvf_pool_destroy(pools[1]);
}

static const struct suite_case cases[] = {
	{"sglang 5588, 5589: 50 tokens in chunks of 24, pages of 16", test_5588},
	{"sglang 37709: a draft in pages of P*N tokens", test_37709},
	{"sglang 32997: 525 source pages to 66 of each of 8 ranks", test_32997},
	{"sglang 40376: one send of 164000 tokens, and chunks", test_40376},
	{"sglang 27740, 33497: stages of 7 and 8 layers, a draft appended", test_27740},
	{"sglang 19086, 23746, 31295: more ranks than heads", test_19086},
	{"sglang 14439: page 32 on prefill, page 64 on decode", test_14439},
	{"sglang 33309: a cached prefix, then the tail", test_33309},
	{"mooncake 3845, sglang 32171: a pool that ends inside a 4 KiB page", test_3845_small},
	{"mooncake 3845, sglang 32171: a pool that ends inside a 2 MiB page", test_3845_huge},
	{"mooncake 2635: offsets past 4 GiB", test_2635},
};

SUITE_MAIN("reports", cases)
