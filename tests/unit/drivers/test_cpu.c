/* SPDX-License-Identifier: BSD-3-Clause */
/* The cpu driver: every kernel byte by byte, and the driver around them. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/suite.h"
#include "cpu_model.h"

#define MARGIN 4096u
#define MAX_SZ ((size_t)4 << 20)

static uint64_t
rng_new(void)
{
	uint64_t s = suite_seed();

	return s != 0 ? s : 1;
}

/* Pair number i of 64: each alignment once on either side, and other pairs for another `turn`. */
static void
alignment(uint32_t i, uint64_t turn, size_t *src, size_t *dst)
{
	*src = i;
	*dst = (i * 27 + turn * 11) % 64; /* 27 is odd: a permutation */
}

static void
one_size(struct fixture *f, size_t size, uint64_t turn, uint32_t step, bool *ok)
{
	struct kvf_copy c;
	size_t a, b;
	uint32_t i;

	for (i = (uint32_t)turn % step; i < 64 && *ok; i += step) {
		alignment(i, turn, &a, &b);
		c = (struct kvf_copy){
			src_mem + MARGIN + a, dst_mem + MARGIN + b, 1, size, size, size};
		*ok = both_ways(f, &c, 1);
	}
}

static void
sizes(const struct kvf_cpu_kernel *kernel)
{
	uint64_t rng = rng_new();
	bool ok = true;
	struct fixture f;
	size_t size;
	int i;

	if (!fixture_open(&f, kernel))
		return;
	for (size = 1; size <= 300 && ok; size++)
		one_size(&f, size, size, 1, &ok);
	for (size = 512; size <= MAX_SZ && ok; size *= 2) {
		/* All alignments up to 64 KiB, then a few that differ from size to size. */
		const uint32_t step = size <= 65536 ? 1 : 11;

		one_size(&f, size - 1, size / 512, step, &ok);
		one_size(&f, size, size / 512 + 1, step, &ok);
		one_size(&f, size + 1, size / 512 + 2, step, &ok);
	}
	for (i = 0; i < 150 && ok; i++) {
		size = suite_range(&rng, 1, (size_t)1 << suite_range(&rng, 9, 20));
		one_size(&f, size, suite_rand(&rng), 32, &ok);
	}
	fixture_close(&f);
}

/* The kernel itself, below the size from which the driver streams: every head and tail there is. */
static void
lanes(const struct kvf_cpu_kernel *kernel)
{
	struct kvf_copy c[KVF_CPU_LANES];
	struct kvf_cpu_lane l[KVF_CPU_LANES];
	uint64_t rng = rng_new();
	struct fixture f;
	bool ok = true;
	uint32_t i, j, g;
	size_t size, lo, hi, a, b;

	if (!fixture_open(&f, kernel))
		return;
	if (kernel->stream == NULL) {
		CHECK(kernel->fence == NULL);
		fixture_close(&f);
		return;
	}
	for (size = 1; size <= 700 && ok; size++) {
		for (i = 0; i < 64 && ok; i++) {
			g = (uint32_t)suite_range(&rng, 1, KVF_CPU_LANES);
			for (j = 0; j < g; j++) {
				alignment((i + j * (uint32_t)(size % 5)) % 64, size, &a, &b);
				c[j] = (struct kvf_copy){src_mem + MARGIN + j * 2000 + a,
					dst_mem + MARGIN + j * 1024 + b, 1, size, size, size};
				l[j] = (struct kvf_cpu_lane){c[j].src, c[j].dst, c[j].src};
			}
			window_begin(c, g, &lo, &hi);
			kernel->stream(l, g, size);
			kernel->fence();
			ok = window_same(c, g, lo, hi, "lanes");
		}
	}
	fixture_close(&f);
}

/* A copy of random shape whose destination begins at *at or a little later; moves *at behind it. */
static struct kvf_copy
random_copy(uint64_t *rng, size_t *at, size_t max_bytes)
{
	static const size_t usual[] = {64, 128, 256, 576, 656, 1152, 2048, 4096, 9216};
	struct kvf_copy c;
	size_t extent;

	c.row_bytes = suite_range(rng, 1, 3);
	if (c.row_bytes == 1)
		c.row_bytes = usual[suite_range(rng, 0, sizeof(usual) / sizeof(usual[0]) - 1)];
	else
		c.row_bytes = suite_range(rng, 1, c.row_bytes == 2 ? 300 : 20000);
	c.rows = suite_range(
		rng, 1, max_bytes / c.row_bytes < 40 ? 1 + max_bytes / c.row_bytes : 40);
	c.src_stride = c.row_bytes + (suite_rand(rng) % 3 == 0 ? 0 : suite_range(rng, 0, 700));
	c.dst_stride = c.row_bytes + (suite_rand(rng) % 3 == 0 ? 0 : suite_range(rng, 0, 700));
	extent = c.rows * (c.src_stride > c.dst_stride ? c.src_stride : c.dst_stride);
	*at += suite_range(rng, 0, 130);
	if (suite_rand(rng) % 2 == 0)
		*at = (*at + 63) & ~(size_t)63;
	c.dst = dst_mem + *at;
	c.src = src_mem + MARGIN + suite_range(rng, 0, ARENA - 2 * MARGIN - extent);
	*at += extent;
	return c;
}

static void
two_d(const struct kvf_cpu_kernel *kernel)
{
	uint64_t rng = rng_new();
	struct kvf_copy c;
	struct fixture f;
	bool ok = true;
	size_t at;
	int i;

	if (!fixture_open(&f, kernel))
		return;
	for (i = 0; i < 1500 && ok; i++) {
		at = MARGIN;
		c = random_copy(&rng, &at, 200000);
		ok = both_ways(&f, &c, 1);
	}
	/* Long enough that one copy is cut into lanes, with every remainder of rows. */
	for (i = 1; i <= 70 && ok; i++) {
		c = (struct kvf_copy){src_mem + MARGIN + i, dst_mem + MARGIN + 64, (uint64_t)i,
			1152, 8 * 1152, 1152};
		ok = both_ways(&f, &c, 1);
		c.dst += i;
		c.row_bytes = 4096 + (uint64_t)i;
		c.dst_stride = 8192;
		ok = ok && both_ways(&f, &c, 1);
	}
	fixture_close(&f);
}

static void
mixed_batches(const struct kvf_cpu_kernel *kernel)
{
	struct kvf_copy c[KVF_COPY_BATCH_MAX], keep;
	uint64_t rng = rng_new();
	struct fixture f;
	bool ok = true;
	uint32_t n, j;
	size_t at;
	int i;

	if (!fixture_open(&f, kernel))
		return;
	for (i = 0; i < 250 && ok; i++) {
		n = (uint32_t)suite_range(&rng, 1, KVF_COPY_BATCH_MAX);
		at = MARGIN;
		for (j = 0; j < n; j++) {
			keep = random_copy(&rng, &at, 20000);
			c[j] = keep;
			/* Runs of equal shape between the others. */
			while (suite_rand(&rng) % 4 != 0 && j + 1 < n) {
				size_t extent = keep.rows * (keep.dst_stride > keep.src_stride
									    ? keep.dst_stride
									    : keep.src_stride);

				c[++j] = keep;
				c[j].dst = dst_mem + at;
				c[j].src = src_mem + MARGIN +
					   suite_range(&rng, 0, ARENA - 2 * MARGIN - extent);
				at += extent;
			}
		}
		if (at > ARENA - MARGIN)
			continue;
		ok = both_ways(&f, c, n);
	}
	fixture_close(&f);
}

static void
equal_batches(const struct kvf_cpu_kernel *kernel)
{
	static const struct {
		uint64_t rows, row_bytes, src_stride, dst_stride;
	} shapes[] = {
		{1, 73728, 73728, 73728},
		{64, 1152, 1152, 1152},
		{8, 1152, 9216, 1152},
		{8, 656, 5248, 656},
		{8, 576, 4608, 600},
		{16, 256, 1024, 256},
		{3, 5000, 6000, 5001},
		{5, 100, 200, 300},
		{7, 128, 300, 128},
	};
	struct kvf_copy c[KVF_COPY_BATCH_MAX];
	struct fixture f;
	uint32_t n, i, k;
	bool ok = true;

	if (!fixture_open(&f, kernel))
		return;
	for (k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
		for (n = 1; n <= KVF_COPY_BATCH_MAX && ok; n += n < 18 ? 1 : 23) {
			for (i = 0; i < n; i++) {
				/* The first half of the numbers with aligned destinations. */
				c[i] = (struct kvf_copy){
					src_mem + MARGIN + i * 80000 + (n % 3) * 32,
					dst_mem + MARGIN + i * 80000 + (n % 2) * i, shapes[k].rows,
					shapes[k].row_bytes, shapes[k].src_stride,
					shapes[k].dst_stride};
			}
			ok = both_ways(&f, c, n);
		}
	}
	fixture_close(&f);
}

/* Neighbours that differ in one number only must not be taken for equal. */
static void
nearly_equal(const struct kvf_cpu_kernel *kernel)
{
	struct kvf_copy c[16];
	uint32_t field, odd, i;
	struct fixture f;
	bool ok = true;

	if (!fixture_open(&f, kernel))
		return;
	for (field = 0; field < 4; field++) {
		for (odd = 0; odd < 16 && ok; odd++) {
			for (i = 0; i < 16; i++) {
				c[i] = (struct kvf_copy){src_mem + i * 40000,
					dst_mem + MARGIN + i * 40000, 8, 1152, 2048, 1280};
			}
			c[odd].rows += field == 0 ? (odd % 2 == 0 ? 1 : -1) : 0;
			c[odd].row_bytes += field == 1 ? (odd % 2 == 0 ? 1 : -1) : 0;
			c[odd].src_stride += field == 2 ? 64 : 0;
			c[odd].dst_stride += field == 3 ? 64 : 0;
			ok = both_ways(&f, c, 16);
		}
	}
	fixture_close(&f);
}

/* `many` ranks x `layers`: the rows of one side's page are dealt out to, or collected from, ranks.
 */
static uint32_t
deal(struct kvf_copy *c, uint32_t many, uint32_t layers, bool rank_major, bool gather,
	uint64_t rows, uint64_t len, size_t shift)
{
	const uint64_t page = rows * len * many + 128;
	uint32_t r, l, n = 0;

	for (n = 0; n < many * layers; n++) {
		r = rank_major ? n / layers : n % many;
		l = rank_major ? n % layers : n / many;
		const size_t whole = MARGIN + l * page + r * len;
		const size_t part = MARGIN + ((size_t)r * layers + l) * (rows * len + 192) + shift;

		c[n] = (struct kvf_copy){src_mem + (gather ? part : whole),
			dst_mem + (gather ? whole : part), rows, len, gather ? len : len * many,
			gather ? len * many : len};
	}
	return n;
}

static void
fan(const struct kvf_cpu_kernel *kernel)
{
	static const uint64_t lens[] = {1152, 576, 656, 200, 128, 4096};
	struct kvf_copy c[KVF_COPY_BATCH_MAX], spare;
	uint64_t rng = rng_new();
	uint32_t many, layers, n, x, y;
	struct fixture f;
	bool ok = true;
	int i;

	if (!fixture_open(&f, kernel))
		return;
	for (i = 0; i < 700 && ok; i++) {
		many = (uint32_t)suite_range(&rng, 2, 16);
		layers = (uint32_t)suite_range(&rng, 1, KVF_COPY_BATCH_MAX / many);
		n = deal(c, many, layers, i & 1, i & 2, suite_range(&rng, 1, 9),
			lens[suite_range(&rng, 0, 5)], i & 4 ? 0 : suite_range(&rng, 1, 63));
		if (i % 3 == 0) {
			/* A pattern with a flaw must not be taken for a whole one. */
			x = (uint32_t)suite_range(&rng, 0, n - 1);
			y = (uint32_t)suite_range(&rng, 0, n - 1);
			spare = c[x];
			c[x] = c[y];
			c[y] = spare;
			n = (uint32_t)suite_range(&rng, 1, n);
		}
		ok = both_ways(&f, c, n);
	}
	fixture_close(&f);
}

/* Memory that ends (and begins) right where the rows do. */
static void
page_edges(const struct kvf_cpu_kernel *kernel)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), body = 16 * page;
	struct kvf_cpu_lane lane;
	uint8_t *mem[2], *s, *d;
	struct kvf_copy_done done;
	struct fixture f;
	struct kvf_copy c;
	size_t size, i;
	bool ok = true;
	int end, m;

	if (!fixture_open(&f, kernel))
		return;
	for (m = 0; m < 2; m++) {
		mem[m] = mmap(NULL, body + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (!CHECK(mem[m] != MAP_FAILED) ||
			!CHECK_EQ(mprotect(mem[m] + page, body, PROT_READ | PROT_WRITE), 0))
			goto out;
		for (i = 0; i < body; i++)
			mem[m][page + i] = (uint8_t)(i * 7 + (i >> 8));
	}
	for (size = 1; size <= body && ok; size += size < 600 ? 1 : 1237) {
		for (end = 0; end < 4 && ok; end++) {
			s = mem[0] + page + (end & 1 ? body - size : 0);
			d = mem[1] + page + (end & 2 ? body - size : 0);
			memset(d, 0xee, size);
			c = (struct kvf_copy){s, d, 1, size, 0, 0};
			ok = CHECK_EQ(kvf_copy_cpu.submit(f.ch, &c, 1, KVF_COPY_STREAM, 1), 0) &&
			     CHECK_EQ(kvf_copy_cpu.poll(f.ch, &done, 1), 1) &&
			     CHECK(memcmp(s, d, size) == 0);
			if (!ok || kernel->stream == NULL)
				continue;
			memset(d, 0xee, size);
			lane = (struct kvf_cpu_lane){s, d, s};
			kernel->stream(&lane, 1, size);
			kernel->fence();
			ok = CHECK(memcmp(s, d, size) == 0);
		}
	}
out:
	for (m = 0; m < 2; m++)
		if (mem[m] != MAP_FAILED)
			munmap(mem[m], body + 2 * page);
	fixture_close(&f);
}

/* Rows more than 4 GiB apart, on both sides; only the pages with rows are ever touched. */
static void
far_strides(const struct kvf_cpu_kernel *kernel)
{
	const uint64_t stride = ((uint64_t)4 << 30) + 5 * 1152;
	const size_t span = 3 * stride + ((size_t)1 << 20);
	struct kvf_copy_done done;
	struct kvf_copy c[8];
	uint32_t flags, i;
	struct fixture f;
	uint8_t *s, *d;
	uint64_t r, b, bad;
	size_t gap;

	if (!fixture_open(&f, kernel))
		return;
	s = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		-1, 0);
	d = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		-1, 0);
	if (s == MAP_FAILED || d == MAP_FAILED) {
		suite_skip("no 24 GiB of address space: copies past 4 GiB NOT TESTED");
		goto out;
	}
	for (flags = 0; flags <= KVF_COPY_STREAM; flags++) {
		for (r = 0; r < 3; r++)
			for (b = 0; b < 8 * 2048; b++)
				s[r * stride + b] = (uint8_t)(r * 91 + b * 3 + b / 256 + flags);
		/* Adjacent copies, and with holes between them: dealt with differently. */
		for (gap = 0; gap <= 512; gap += 512) {
			const size_t each = 1152 + gap;

			for (i = 0; i < 8; i++) {
				c[i] = (struct kvf_copy){s + i * each, d + 32 + i * each, 3, 1152,
					stride, stride + 64};
			}
			CHECK_EQ(kvf_copy_cpu.submit(f.ch, c, 8, flags, 5), 0);
			CHECK_EQ(kvf_copy_cpu.poll(f.ch, &done, 1), 1);
			for (r = 0, bad = 0; r < 3; r++)
				for (i = 0; i < 8; i++)
					bad += memcmp(s + r * stride + i * each,
						       d + 32 + r * (stride + 64) + i * each,
						       1152) != 0;
			CHECK_EQ(bad, 0);
		}
		/* One copy alone, so long that its rows become lanes. */
		c[0].row_bytes = 8 * 1152;
		c[0].src_stride = stride - 1;
		c[0].dst_stride = stride;
		CHECK_EQ(kvf_copy_cpu.submit(f.ch, c, 1, flags, 5), 0);
		CHECK_EQ(kvf_copy_cpu.poll(f.ch, &done, 1), 1);
		for (r = 0, bad = 0; r < 3; r++)
			bad += memcmp(s + r * (stride - 1), d + 32 + r * stride, 8 * 1152) != 0;
		CHECK_EQ(bad, 0);
	}
out:
	if (s != MAP_FAILED)
		munmap(s, span);
	if (d != MAP_FAILED)
		munmap(d, span);
	fixture_close(&f);
}

static void
open_best(void)
{
	static const char *const args[] = {NULL, ""};
	const struct kvf_cpu_kernel *best = NULL;
	struct kvf_copy_drv *drv;
	struct kvf_copy_caps caps;
	struct kvf_err err;
	void *handle;
	size_t i;

	for (i = 0; i < kvf_cpu_kernels_num && best == NULL; i++)
		if (kvf_cpu_kernels[i]->available())
			best = kvf_cpu_kernels[i];
	if (!CHECK(best != NULL))
		return;
	for (i = 0; i < 2; i++) {
		if (!CHECK_EQ(kvf_copy_cpu.open(args[i], &drv, &caps, &err), KVF_OK))
			return;
		CHECK_STR_HAS(caps.detail, best->name);
		CHECK(caps.channel_depth >= 1);
		CHECK(caps.max_channels >= 1);
		CHECK_EQ(kvf_copy_cpu.map(drv, dst_mem, ARENA, 4096, &handle, &err), KVF_OK);
		CHECK_EQ(kvf_copy_cpu.unmap(drv, handle, &err), KVF_OK);
		kvf_copy_cpu.close(drv);
	}
	printf("        best kernel here: %s\n", caps.detail);
}

static void
unknown_refused(void)
{
	static const char *const names[] = {"sse9", "AVX512", "avx", "portable ", "avx512,avx2"};
	struct kvf_copy_drv *drv;
	struct kvf_copy_caps caps;
	struct kvf_err err;
	char want[64];
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		drv = (void *)&caps;
		CHECK_EQ(kvf_copy_cpu.open(names[i], &drv, &caps, &err), KVF_E_DRIVER);
		CHECK(drv == NULL);
		CHECK_EQ(err.code, KVF_E_DRIVER);
		snprintf(want, sizeof(want), "kernel=%s;", names[i]);
		CHECK_STR_HAS(err.text, want);
		CHECK_STR_HAS(err.text, "available=");
		CHECK_STR_HAS(err.text, "portable");
		CHECK_EQ(kvf_copy_cpu.open(names[i], &drv, &caps, NULL), KVF_E_DRIVER);
	}
}

static bool
yes(void)
{
	return true;
}

static bool
no(void)
{
	return false;
}

static void
lacking_refused(void)
{
	static const struct kvf_cpu_kernel a = {
		.name = "wide", .needs = "future1", .available = no};
	static const struct kvf_cpu_kernel b = {.name = "mid", .needs = "old", .available = yes};
	static const struct kvf_cpu_kernel c = {
		.name = "thin", .needs = "nothing", .available = yes};
	const struct kvf_cpu_kernel *const all[] = {&a, &b, &c};
	struct kvf_err err;

	CHECK(kvf_cpu_pick(all, 3, NULL, &err) == &b);
	CHECK(kvf_cpu_pick(all, 3, "", &err) == &b);
	CHECK(kvf_cpu_pick(all, 3, "thin", &err) == &c);
	/* Asked for by name: never replaced by another in silence. */
	CHECK(kvf_cpu_pick(all, 3, "wide", &err) == NULL);
	CHECK_EQ(err.code, KVF_E_DRIVER);
	CHECK_STR_HAS(err.text, "kernel=wide");
	CHECK_STR_HAS(err.text, "needs=future1");
	CHECK_STR_HAS(err.text, "available=mid,thin");
	CHECK(kvf_cpu_pick(all, 1, NULL, &err) == NULL);
	CHECK_EQ(err.code, KVF_E_DRIVER);
	CHECK_STR_HAS(err.text, "available=none");
}

static void
again_at_depth(void)
{
	static uint8_t from[64][5000], to[65][5000];
	struct kvf_copy_done done[64];
	struct fixture f;
	struct kvf_copy c;
	uint32_t i, depth, got, round;
	uint64_t bytes, copies, next = 1, polled = 1;

	if (!fixture_open(&f, &kvf_cpu_portable))
		return;
	depth = f.caps.channel_depth;
	if (!CHECK(depth <= 64))
		goto out;
	for (round = 0; round < 5; round++) {
		for (i = 0; i < depth; i++) {
			memset(from[i], (int)(round * 64 + i + 1), sizeof(from[i]));
			c = (struct kvf_copy){from[i], to[i], 1, 5000, 5000, 5000};
			CHECK_EQ(kvf_copy_cpu.submit(f.ch, &c, 1, KVF_COPY_STREAM, next++), 0);
		}
		/* Refused whole: not a byte is written, no tag appears, nothing is counted. */
		memset(to[64], 0x55, sizeof(to[64]));
		c = (struct kvf_copy){from[0], to[64], 1, 5000, 5000, 5000};
		CHECK_EQ(kvf_copy_cpu.submit(f.ch, &c, 1, KVF_COPY_STREAM, 999), KVF_E_AGAIN);
		CHECK_EQ(to[64][0], 0x55);
		CHECK_EQ(to[64][4999], 0x55);
		kvf_copy_cpu.counters(f.ch, &bytes, &copies);
		CHECK_EQ(copies, (round + 1) * depth);
		CHECK_EQ(bytes, (round + 1) * depth * 5000);

		CHECK_EQ(kvf_copy_cpu.poll(f.ch, done, 0), 0);
		while ((got = kvf_copy_cpu.poll(f.ch, done, 3 + round)) != 0) {
			CHECK(got <= 3 + round);
			for (i = 0; i < got; i++) {
				CHECK_EQ(done[i].tag, polled++);
				CHECK_EQ(done[i].error, 0);
			}
		}
		CHECK_EQ(polled, next);
		for (i = 0; i < depth; i++)
			CHECK(memcmp(from[i], to[i], sizeof(from[i])) == 0);
	}
out:
	fixture_close(&f);
}

static void
counters_right(void)
{
	struct kvf_copy c[3];
	struct kvf_copy_channel *other;
	struct kvf_copy_done done;
	uint64_t bytes, copies;
	struct kvf_err err;
	struct fixture f;
	uint32_t i;

	if (!fixture_open(&f, &kvf_cpu_portable))
		return;
	c[0] = (struct kvf_copy){src_mem, dst_mem, 7, 100, 200, 300};
	c[1] = (struct kvf_copy){src_mem, dst_mem + 8192, 1, 12345, 0, 0};
	c[2] = (struct kvf_copy){src_mem, dst_mem + 65536, 64, 1152, 1152, 1152};
	if (!CHECK_EQ(kvf_copy_cpu.channel_open(f.drv, &other, &err), KVF_OK))
		goto out;
	kvf_copy_cpu.counters(f.ch, &bytes, &copies);
	CHECK_EQ(bytes, 0);
	CHECK_EQ(copies, 0);
	for (i = 1; i <= 40; i++) {
		CHECK_EQ(kvf_copy_cpu.submit(f.ch, c, 3, i % 2, i), 0);
		CHECK_EQ(kvf_copy_cpu.poll(f.ch, &done, 1), 1);
		kvf_copy_cpu.counters(f.ch, &bytes, &copies);
		CHECK_EQ(bytes, i * (700 + 12345 + 64 * 1152));
		CHECK_EQ(copies, i * 3);
	}
	/* Channels of one driver do not know of each other. */
	kvf_copy_cpu.counters(other, &bytes, &copies);
	CHECK_EQ(bytes, 0);
	CHECK_EQ(kvf_copy_cpu.poll(other, &done, 1), 0);
	kvf_copy_cpu.channel_close(other);
out:
	fixture_close(&f);
}

#define HANDED 60u

struct handover {
	struct kvf_copy_channel *ch;
	_Atomic uint32_t done; /* batches that were polled */
};

static void *
copier(void *arg)
{
	struct handover *h = arg;
	struct kvf_copy_done done;
	struct kvf_copy c[8];
	uint32_t i, j;

	for (i = 0; i < HANDED; i++) {
		for (j = 0; j < 8; j++)
			c[j] = (struct kvf_copy){src_mem + (i + j) * 64,
				dst_mem + ((size_t)i * 8 + j) * 32768, 8, 1152, 9216, 1152};
		while (kvf_copy_cpu.submit(h->ch, c, 8, KVF_COPY_STREAM, i) != KVF_OK)
			;
		while (kvf_copy_cpu.poll(h->ch, &done, 1) != 1)
			;
		atomic_store_explicit(&h->done, i + 1, memory_order_release);
	}
	return NULL;
}

/* What another thread sees once it acquired the news: all of it, and counters that only grow. */
static void
seen_by_others(void)
{
	struct handover h = {NULL, 0};
	uint64_t bytes, copies, last = 0;
	struct kvf_copy_drv *drv;
	struct kvf_copy_caps caps;
	uint32_t seen = 0, now, j, r;
	struct kvf_err err;
	pthread_t thread;
	bool ok = true;

	arena_setup();
	memset(dst_mem, 0, HANDED * 8 * 32768);
	if (!CHECK_EQ(kvf_copy_cpu.open(NULL, &drv, &caps, &err), KVF_OK))
		return;
	if (!CHECK_EQ(kvf_copy_cpu.channel_open(drv, &h.ch, &err), KVF_OK) ||
		!CHECK_EQ(pthread_create(&thread, NULL, copier, &h), 0))
		goto out;
	while (seen < HANDED) {
		now = atomic_load_explicit(&h.done, memory_order_acquire);
		for (; seen < now; seen++)
			for (j = 0; j < 8; j++)
				for (r = 0; r < 8; r++)
					ok &= memcmp(src_mem + (seen + j) * 64 + (size_t)r * 9216,
						      dst_mem + ((size_t)seen * 8 + j) * 32768 +
							      (size_t)r * 1152,
						      1152) == 0;
		kvf_copy_cpu.counters(h.ch, &bytes, &copies);
		ok &= bytes >= last && copies <= HANDED * 8;
		last = bytes;
	}
	CHECK(ok);
	pthread_join(thread, NULL);
	kvf_copy_cpu.counters(h.ch, &bytes, &copies);
	CHECK_EQ(copies, HANDED * 8);
	CHECK_EQ(bytes, (uint64_t)HANDED * 8 * 8 * 1152);
	kvf_copy_cpu.channel_close(h.ch);
out:
	kvf_copy_cpu.close(drv);
}

#define FOR_KERNEL(k)                                                                              \
	static void k##_lanes(void)                                                                \
	{                                                                                          \
		lanes(&kvf_cpu_##k);                                                               \
	}                                                                                          \
	static void k##_sizes(void)                                                                \
	{                                                                                          \
		sizes(&kvf_cpu_##k);                                                               \
	}                                                                                          \
	static void k##_two_d(void)                                                                \
	{                                                                                          \
		two_d(&kvf_cpu_##k);                                                               \
	}                                                                                          \
	static void k##_mixed(void)                                                                \
	{                                                                                          \
		mixed_batches(&kvf_cpu_##k);                                                       \
	}                                                                                          \
	static void k##_equal(void)                                                                \
	{                                                                                          \
		equal_batches(&kvf_cpu_##k);                                                       \
	}                                                                                          \
	static void k##_nearly(void)                                                               \
	{                                                                                          \
		nearly_equal(&kvf_cpu_##k);                                                        \
	}                                                                                          \
	static void k##_fan(void)                                                                  \
	{                                                                                          \
		fan(&kvf_cpu_##k);                                                                 \
	}                                                                                          \
	static void k##_edges(void)                                                                \
	{                                                                                          \
		page_edges(&kvf_cpu_##k);                                                          \
	}                                                                                          \
	static void k##_far(void)                                                                  \
	{                                                                                          \
		far_strides(&kvf_cpu_##k);                                                         \
	}

/* clang-format off */
#define CASES(k)                                                        \
	{#k ": lanes of every length and alignment", k##_lanes},        \
	{#k ": sizes and alignments", k##_sizes},                       \
	{#k ": rows with strides", k##_two_d},                          \
	{#k ": batches of mixed shapes", k##_mixed},                    \
	{#k ": batches of equal copies", k##_equal},                    \
	{#k ": batches of nearly equal copies", k##_nearly},            \
	{#k ": pages dealt out and collected", k##_fan},                \
	{#k ": nothing past the edge", k##_edges},                      \
	{#k ": strides past 4 GiB", k##_far}
/* clang-format on */

FOR_KERNEL(portable)
#if defined(__x86_64__)
FOR_KERNEL(avx2)
FOR_KERNEL(avx512)
#endif

static const struct suite_case cases[] = {
	{"best kernel by default", open_best},
	{"unknown kernel refused", unknown_refused},
	{"kernel the CPU lacks refused", lacking_refused},
	{"AGAIN at depth loses nothing", again_at_depth},
	{"counters", counters_right},
	CASES(portable),
#if defined(__x86_64__)
	CASES(avx2),
	CASES(avx512),
#endif
	{"bytes seen by another thread", seen_by_others},
};

SUITE_MAIN("cpu", cases)
