/* SPDX-License-Identifier: BSD-3-Clause */
/* Which way a batch goes, that both ways end in one channel, and what is measured. The two drivers
 * are made up; one copies after a while, in either order. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/suite.h"
#include "drivers/mixed/mixed.h"

#define DEPTH 4u
#define POOL  (1u << 20)

struct kvf_copy_drv {
	int way;
};

struct kvf_copy_channel {
	int way;
	uint32_t n;
	uint64_t tags[DEPTH];
	uint64_t bytes, copies;
};

static struct {
	uint64_t batches; /* taken */
	uint64_t cost_ns; /* of a batch */
	uint32_t hold;    /* polls that find nothing yet */
	uint32_t opened, closed, mapped, unmapped;
	int fail_open;
	char args[64];
} way[2];

static struct kvf_copy_drv drv[2] = {{0}, {1}};
static uint8_t src[POOL], dst[POOL];

static int
fake_open(int w, const char *args, struct kvf_copy_drv **d, struct kvf_copy_caps *caps,
	struct kvf_err *err)
{
	snprintf(way[w].args, sizeof(way[w].args), "%s", args != NULL ? args : "-");
	if (way[w].fail_open != 0) {
		snprintf(err->text, sizeof(err->text), "way=%d is not there", w);
		return err->code = way[w].fail_open;
	}
	memset(caps, 0, sizeof(*caps));
	caps->max_channels = w == 0 ? 64 : 2;
	caps->channel_depth = w == 0 ? DEPTH : DEPTH - 1;
	snprintf(caps->detail, sizeof(caps->detail), "way %d", w);
	way[w].opened++;
	*d = &drv[w];
	return 0;
}

static int
small_open(
	const char *args, struct kvf_copy_drv **d, struct kvf_copy_caps *caps, struct kvf_err *err)
{
	return fake_open(0, args, d, caps, err);
}

static int
large_open(
	const char *args, struct kvf_copy_drv **d, struct kvf_copy_caps *caps, struct kvf_err *err)
{
	return fake_open(1, args, d, caps, err);
}

static void
fake_close(struct kvf_copy_drv *d)
{
	way[d->way].closed++;
}

static int
fake_map(struct kvf_copy_drv *d, void *base, uint64_t length, uint64_t page_size, void **handle,
	struct kvf_err *err)
{
	(void)length;
	(void)page_size;
	(void)err;
	way[d->way].mapped++;
	*handle = base;
	return 0;
}

static int
fake_unmap(struct kvf_copy_drv *d, void *handle, struct kvf_err *err)
{
	(void)handle;
	(void)err;
	way[d->way].unmapped++;
	return 0;
}

static int
fake_channel_open(struct kvf_copy_drv *d, struct kvf_copy_channel **ch, struct kvf_err *err)
{
	static struct kvf_copy_channel channels[16];
	static uint32_t next;

	(void)err;
	*ch = &channels[next++ % 16];
	**ch = (struct kvf_copy_channel){.way = d->way};
	return 0;
}

static void
fake_channel_close(struct kvf_copy_channel *ch)
{
	CHECK_EQ(ch->n, 0);
}

static int
fake_submit(struct kvf_copy_channel *ch, const struct kvf_copy *copies, uint32_t n, uint32_t flags,
	uint64_t tag)
{
	struct timespec ts, end;
	uint64_t row;
	uint32_t i;

	(void)flags;
	if (ch->n == DEPTH)
		return KVF_E_AGAIN;
	for (i = 0; i < n; i++)
		for (row = 0; row < copies[i].rows; row++) {
			memcpy(copies[i].dst + row * copies[i].dst_stride,
				copies[i].src + row * copies[i].src_stride, copies[i].row_bytes);
			ch->bytes += copies[i].row_bytes;
		}
	ch->copies += n;
	ch->tags[ch->n++] = tag;
	way[ch->way].batches++;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	do
		clock_gettime(CLOCK_MONOTONIC, &end);
	while ((uint64_t)((end.tv_sec - ts.tv_sec) * 1000000000 + end.tv_nsec - ts.tv_nsec) <
		way[ch->way].cost_ns);
	return 0;
}

/* The latest first. */
static uint32_t
fake_poll(struct kvf_copy_channel *ch, struct kvf_copy_done *done, uint32_t max)
{
	uint32_t n;

	if (way[ch->way].hold > 0) {
		way[ch->way].hold--;
		return 0;
	}
	for (n = 0; n < max && ch->n > 0; n++)
		done[n] = (struct kvf_copy_done){.tag = ch->tags[--ch->n]};
	return n;
}

static void
fake_counters(const struct kvf_copy_channel *ch, uint64_t *bytes, uint64_t *copies)
{
	*bytes = ch->bytes;
	*copies = ch->copies;
}

#define OPS(text, opener)                                                                          \
	{                                                                                          \
		.name = text, .open = opener, .close = fake_close, .map = fake_map,                \
		.unmap = fake_unmap, .channel_open = fake_channel_open,                            \
		.channel_close = fake_channel_close, .submit = fake_submit, .poll = fake_poll,     \
		.counters = fake_counters,                                                         \
	}

static const struct kvf_copy_ops ops[2] = {OPS("core", small_open), OPS("device", large_open)};

static struct kvf_copy_drv *mixed;
static struct kvf_copy_caps caps;

static int
open_mixed(const char *args, struct kvf_err *err)
{
	kvf_copy_mixed_over(&ops[0], &ops[1]);
	return kvf_copy_mixed.open(args, &mixed, &caps, err);
}

static void
reset(void)
{
	memset(way, 0, sizeof(way));
}

static void
test_by_size(void)
{
	static const struct {
		uint64_t rows, row_bytes, stride;
		int way;
	} t[] = {
		{1, 4095, 0, 0},
		{1, 4096, 0, 1},
		{8, 1024, 1024, 1}, /* rows that follow each other are one piece */
		{8, 1024, 2048, 0},
		{2, 4096, 8192, 1},
		{1000, 1, 2, 0},
	};
	struct kvf_copy_channel *ch = NULL;
	struct kvf_copy_done done[8];
	uint64_t before[2], bytes, copies, all = 0;
	struct kvf_err err;
	size_t i, k;

	reset();
	CHECK_EQ(open_mixed("from=4096,dev1,dev2", &err), 0);
	CHECK_STR_HAS(way[0].args, "-");
	CHECK_STR_HAS(way[1].args, "dev1,dev2");
	CHECK_STR_HAS(caps.detail, "device for pieces from bytes=4096 (given)");
	CHECK_EQ(way[1].mapped, 0); /* nothing was measured */
	CHECK_EQ(caps.channel_depth, DEPTH - 1);
	CHECK_EQ(caps.max_channels, 2);
	CHECK_EQ(kvf_copy_mixed.channel_open(mixed, &ch, &err), 0);
	for (i = 0; i < POOL; i++)
		src[i] = (uint8_t)(i * 7 + i / 251);
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct kvf_copy c = {
			src, dst, t[i].rows, t[i].row_bytes, t[i].stride, t[i].row_bytes};

		before[0] = way[0].batches;
		before[1] = way[1].batches;
		memset(dst, 0, sizeof(dst));
		CHECK_EQ(kvf_copy_mixed.submit(ch, &c, 1, KVF_COPY_STREAM, 100 + i), 0);
		CHECK_EQ(way[t[i].way].batches, before[t[i].way] + 1);
		CHECK_EQ(way[1 - t[i].way].batches, before[1 - t[i].way]);
		CHECK_EQ(kvf_copy_mixed.poll(ch, done, 8), 1);
		CHECK_EQ(done[0].tag, 100 + i);
		for (k = 0; k < t[i].rows; k++)
			CHECK(memcmp(dst + k * t[i].row_bytes, src + k * t[i].stride,
				      t[i].row_bytes) == 0);
		all += t[i].rows * t[i].row_bytes;
	}
	kvf_copy_mixed.counters(ch, &bytes, &copies);
	CHECK_EQ(bytes, all);
	CHECK_EQ(copies, i);
	kvf_copy_mixed.channel_close(ch);
	kvf_copy_mixed.close(mixed);
	CHECK_EQ(way[0].closed, 1);
	CHECK_EQ(way[1].closed, 1);
}

/* Batches of both ways share the channel's depth; one that is done does not wait for the other. */
static void
test_one_channel(void)
{
	struct kvf_copy small = {src, dst, 1, 64, 64, 64}, big = {src, dst, 1, 8192, 8192, 8192};
	struct kvf_copy_channel *ch = NULL;
	struct kvf_copy_done done[8];
	struct kvf_err err;

	reset();
	CHECK_EQ(open_mixed("from=4096", &err), 0);
	CHECK_STR_HAS(way[1].args, "-");
	CHECK_EQ(kvf_copy_mixed.channel_open(mixed, &ch, &err), 0);
	CHECK_EQ(kvf_copy_mixed.submit(ch, &big, 1, 0, 1), 0);
	CHECK_EQ(kvf_copy_mixed.submit(ch, &small, 1, 0, 2), 0);
	CHECK_EQ(kvf_copy_mixed.submit(ch, &big, 1, 0, 3), 0);
	CHECK_EQ(kvf_copy_mixed.submit(ch, &small, 1, 0, 4), KVF_E_AGAIN);
	way[1].hold = 2;
	CHECK_EQ(kvf_copy_mixed.poll(ch, done, 8), 1);
	CHECK_EQ(done[0].tag, 2);
	CHECK_EQ(kvf_copy_mixed.submit(ch, &small, 1, 0, 4), 0);
	CHECK_EQ(kvf_copy_mixed.poll(ch, done, 1), 1);
	CHECK_EQ(done[0].tag, 4);
	CHECK_EQ(kvf_copy_mixed.poll(ch, done, 1), 1);
	CHECK_EQ(done[0].tag, 3);
	CHECK_EQ(kvf_copy_mixed.poll(ch, done, 8), 1);
	CHECK_EQ(done[0].tag, 1);
	CHECK_EQ(kvf_copy_mixed.poll(ch, done, 8), 0);
	kvf_copy_mixed.channel_close(ch);
	kvf_copy_mixed.close(mixed);
}

/* Both are timed; a device that is always slower gets nothing, one that is faster all. */
static void
test_measured(void)
{
	struct kvf_copy one = {src, dst, 1, 65536, 65536, 65536};
	struct kvf_copy_channel *ch = NULL;
	struct kvf_copy_done done[8];
	struct kvf_err err;
	int slow;

	for (slow = 0; slow < 2; slow++) {
		reset();
		way[slow].cost_ns = 20000000;
		CHECK_EQ(open_mixed(NULL, &err), 0);
		CHECK_STR_HAS(caps.detail,
			slow == 1 ? "core alone: device is slower up to bytes=65536 (measured)"
				  : "device for pieces from bytes=256 (measured)");
		CHECK(way[0].batches > 0 && way[1].batches > 0);
		CHECK_EQ(way[1].mapped, way[1].unmapped);
		way[slow].cost_ns = 0;
		way[0].batches = way[1].batches = 0;
		CHECK_EQ(kvf_copy_mixed.channel_open(mixed, &ch, &err), 0);
		CHECK_EQ(kvf_copy_mixed.submit(ch, &one, 1, 0, 1), 0);
		CHECK_EQ(way[1 - slow].batches, 1);
		CHECK_EQ(kvf_copy_mixed.poll(ch, done, 8), 1);
		kvf_copy_mixed.channel_close(ch);
		kvf_copy_mixed.close(mixed);
	}
}

static void
test_refusals(void)
{
	struct kvf_err err;

	reset();
	CHECK_EQ(open_mixed("from=", &err), KVF_E_DRIVER);
	CHECK_EQ(open_mixed("from=0", &err), KVF_E_DRIVER);
	CHECK_EQ(open_mixed("from=12x,dev", &err), KVF_E_DRIVER);
	CHECK_STR_HAS(err.text, "mixed: from=12x: a number of bytes");
	CHECK_EQ(open_mixed("from=99999999999999999999", &err), KVF_E_DRIVER);
	CHECK_EQ(way[0].opened + way[1].opened, 0);
	/* No device: said, and nothing is left open. */
	way[1].fail_open = KVF_E_DRIVER;
	CHECK_EQ(open_mixed(NULL, &err), KVF_E_DRIVER);
	CHECK_STR_HAS(err.text, "way=1 is not there");
	CHECK_EQ(way[0].opened, way[0].closed);
}

static const struct suite_case cases[] = {
	{"pieces go by size", test_by_size},
	{"one channel for both ways", test_one_channel},
	{"the crossover is measured", test_measured},
	{"refusals", test_refusals},
};

SUITE_MAIN("mixed", cases)
