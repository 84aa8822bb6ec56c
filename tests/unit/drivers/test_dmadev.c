/* SPDX-License-Identifier: BSD-3-Clause */
/* The dmadev driver on DPDK's software devices: data, depth, threads, refusals, mappings. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_dmadev.h>
#include <rte_errno.h>
#include <rte_memory.h>

#include "unit/drivers/dmadev_errors.h"
#include "unit/drivers/eal.h"

#define GUARD   0x5a
#define DEPTH   16u
#define MAX_ROW (4u << 20)

static const struct kvf_copy_ops *const ops = &kvf_copy_dmadev;

/* What the linker puts in front of DPDK's functions (--wrap), to refuse on demand. */
static enum rte_iova_mode iova_mode = RTE_IOVA_VA;
static uint64_t capa_missing;
static int map_fails_at; /* the n-th call from now, 0: none */
static int map_errno;
static int map_calls;
static int unmap_calls;

int __real_rte_dma_info_get(int16_t id, struct rte_dma_info *info);
int __wrap_rte_dma_info_get(int16_t id, struct rte_dma_info *info);
enum rte_iova_mode __wrap_rte_eal_iova_mode(void);
int __real_rte_dev_dma_map(struct rte_device *dev, void *addr, uint64_t iova, size_t len);
int __wrap_rte_dev_dma_map(struct rte_device *dev, void *addr, uint64_t iova, size_t len);
int __real_rte_dev_dma_unmap(struct rte_device *dev, void *addr, uint64_t iova, size_t len);
int __wrap_rte_dev_dma_unmap(struct rte_device *dev, void *addr, uint64_t iova, size_t len);

int
__wrap_rte_dma_info_get(int16_t id, struct rte_dma_info *info)
{
	int ret = __real_rte_dma_info_get(id, info);

	info->dev_capa &= ~capa_missing;
	return ret;
}

enum rte_iova_mode
__wrap_rte_eal_iova_mode(void)
{
	return iova_mode;
}

int
__wrap_rte_dev_dma_map(struct rte_device *dev, void *addr, uint64_t iova, size_t len)
{
	if (++map_calls == map_fails_at) {
		rte_errno = map_errno;
		return -1;
	}
	return __real_rte_dev_dma_map(dev, addr, iova, len);
}

int
__wrap_rte_dev_dma_unmap(struct rte_device *dev, void *addr, uint64_t iova, size_t len)
{
	unmap_calls++;
	return __real_rte_dev_dma_unmap(dev, addr, iova, len);
}

struct opened {
	struct kvf_copy_drv *drv;
	struct kvf_copy_caps caps;
	struct kvf_copy_channel *ch[2];
	uint32_t num;
};

static int
open_channels(struct opened *o, const char *args)
{
	struct kvf_err err = {0};
	uint32_t i;

	memset(o, 0, sizeof(*o));
	if (!CHECK_EQ(ops->open(args, &o->drv, &o->caps, &err), 0)) {
		printf("        %s\n", err.text);
		return -1;
	}
	o->num = o->caps.max_channels;
	for (i = 0; i < o->num; i++) {
		if (!CHECK_EQ(ops->channel_open(o->drv, &o->ch[i], &err), 0))
			return -1;
	}
	return 0;
}

static void
close_channels(struct opened *o)
{
	uint32_t i;

	for (i = 0; i < o->num; i++)
		ops->channel_close(o->ch[i]);
	ops->close(o->drv);
}

static void
refused(const char *args, const char *part)
{
	struct kvf_err err = {0};
	struct kvf_copy_caps caps;
	struct kvf_copy_drv *drv;

	CHECK_EQ(ops->open(args, &drv, &caps, &err), KVF_E_DRIVER);
	CHECK_EQ(err.code, KVF_E_DRIVER);
	CHECK_STR_HAS(err.text, part);
}

static void
test_open_names(void)
{
	struct opened o, half;

	if (open_channels(&o, NULL) == 0) {
		CHECK_EQ(o.caps.max_channels, 2);
		CHECK_EQ(o.caps.channel_depth, DEPTH);
		CHECK_STR_HAS(o.caps.detail, "dma_skeleton0, dma_skeleton1");
		/* already started by this driver: not for a second one */
		refused("dma_skeleton0", "cannot configure DMA device name=dma_skeleton0");
		refused(NULL, "dma_skeleton0");
		close_channels(&o);
	}
	if (open_channels(&o, "dma_skeleton1") == 0) {
		CHECK_EQ(o.caps.max_channels, 1);
		CHECK(strcmp(o.caps.detail, "dma_skeleton1") == 0);
		/* an open that fails half way lets go of the devices it had started */
		refused(NULL, "cannot configure DMA device name=dma_skeleton1");
		if (open_channels(&half, "dma_skeleton0") == 0)
			close_channels(&half);
		close_channels(&o);
	}
	if (open_channels(&o, "dma_skeleton1,dma_skeleton0") == 0) {
		CHECK(strcmp(o.caps.detail, "dma_skeleton1, dma_skeleton0") == 0);
		close_channels(&o);
	}
}

static void
test_open_refused(void)
{
	char longest[300];

	refused("dma_skeleton7", "name=dma_skeleton7;");
	refused("dma_skeleton7", "present: dma_skeleton0, dma_skeleton1;");
	refused("dma_skeleton7", "--vdev=dma_skeleton0");
	refused("dma_skeleton0,nothing", "name=nothing;");
	refused("dma_skeleton0,", "name=;");
	refused("", "name=;");
	refused("dma_skeleton0,dma_skeleton0", "named twice");
	refused("dma_skeleton", "name=dma_skeleton;");
	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	refused(longest, "--vdev=dma_skeleton0");

	iova_mode = RTE_IOVA_PA;
	refused(NULL, "iova_mode=pa");
	refused(NULL, "--iova-mode=va");
	iova_mode = RTE_IOVA_VA;

	capa_missing = RTE_DMA_CAPA_OPS_COPY;
	refused("dma_skeleton0", "name=dma_skeleton0 cannot copy memory to memory");
	refused(NULL, "no DMA device copies memory to memory");
	capa_missing = RTE_DMA_CAPA_MEM_TO_MEM;
	refused("dma_skeleton1", "name=dma_skeleton1 cannot copy memory to memory");
	capa_missing = 0;
}

/* A 2-D copy in a destination filled with GUARD, checked byte for byte, gaps and surroundings too.
 */
struct field {
	struct kvf_copy copy;
	uint8_t *src;
	uint8_t *dst;
	uint64_t dst_bytes;
	uint64_t lead;
};

static void
field_make(struct field *f, uint64_t rows, uint64_t row_bytes, uint64_t src_stride,
	uint64_t dst_stride, uint64_t lead, uint64_t *rnd)
{
	uint64_t src_bytes = lead + (rows - 1) * src_stride + row_bytes, i;

	f->lead = lead;
	f->dst_bytes = 64 + lead + (rows - 1) * dst_stride + row_bytes + 64;
	f->src = malloc(src_bytes);
	f->dst = malloc(f->dst_bytes);
	if (f->src == NULL || f->dst == NULL)
		abort();
	for (i = 0; i < src_bytes; i++)
		f->src[i] = (uint8_t)(i % 8 == 0 ? suite_rand(rnd) : f->src[i & ~7ull] + i * 37);
	memset(f->dst, GUARD, f->dst_bytes);
	f->copy = (struct kvf_copy){.src = f->src + lead,
		.dst = f->dst + 64 + lead,
		.rows = rows,
		.row_bytes = row_bytes,
		.src_stride = src_stride,
		.dst_stride = dst_stride};
}

static int
all_guard(const uint8_t *p, uint64_t n)
{
	uint64_t i;

	for (i = 0; i < n; i++) {
		if (p[i] != GUARD)
			return 0;
	}
	return 1;
}

static int
field_right(const struct field *f)
{
	const struct kvf_copy *c = &f->copy;
	uint64_t r, gap = c->dst_stride - c->row_bytes;

	if (!all_guard(f->dst, 64 + f->lead))
		return 0;
	for (r = 0; r < c->rows; r++) {
		const uint8_t *d = c->dst + r * c->dst_stride;

		if (memcmp(d, c->src + r * c->src_stride, c->row_bytes) != 0)
			return 0;
		if (!all_guard(d + c->row_bytes, r + 1 < c->rows ? gap : 64))
			return 0;
	}
	return 1;
}

static void
field_free(struct field *f)
{
	free(f->src);
	free(f->dst);
}

/* Copies one field alone and checks it. */
static void
copy_field(struct kvf_copy_channel *ch, struct field *f, uint32_t flags)
{
	struct kvf_copy_done done = {0};

	CHECK_EQ(ops->submit(ch, &f->copy, 1, flags, 77), 0);
	if (CHECK_EQ(poll_until(ops, ch, &done, 1), 1)) {
		CHECK_EQ(done.tag, 77);
		CHECK_EQ(done.error, 0);
		CHECK(field_right(f));
	}
	CHECK_EQ(ops->poll(ch, &done, 1), 0);
}

static void
sizes_on(const char *args, uint64_t *rnd)
{
	static const uint64_t edges[] = {1, 2, 63, 64, 65, 4095, 4096, 1152, 73728, 1u << 20,
		(1u << 20) - 1, (1u << 20) + 1, MAX_ROW - 1, MAX_ROW};
	struct opened o;
	struct field f;
	uint32_t i;

	if (open_channels(&o, args) != 0)
		return;
	for (i = 0; i < 60; i++) {
		uint64_t bytes = i < sizeof(edges) / sizeof(edges[0])
					 ? edges[i]
					 : suite_range(rnd, 1, 1ull << suite_range(rnd, 0, 20));

		field_make(&f, 1, bytes, bytes, bytes, suite_range(rnd, 0, 63), rnd);
		copy_field(o.ch[i % o.num], &f, i % 2 ? KVF_COPY_STREAM : 0);
		field_free(&f);
	}
	close_channels(&o);
}

static void
test_sizes(void)
{
	uint64_t rnd = suite_seed();

	sizes_on("dma_skeleton0", &rnd);
	sizes_on("dma_skeleton0,dma_skeleton1", &rnd);
}

/* More rows than the ring has descriptors, and more descriptors than a 16-bit index counts. */
static void
test_more_rows_than_descriptors(void)
{
	static const struct {
		uint64_t rows, row_bytes, src_stride, dst_stride;
	} shapes[] = {
		{20000, 64, 64, 80}, {20000, 64, 128, 64}, {20000, 64, 512, 96},
		{20000, 64, 64, 64}, /* no gaps: one descriptor or two */
		{20000, 1, 3, 2},
		{3, 2500000, 2500100, 2500007}, /* rows longer than a descriptor */
	};
	uint64_t rnd = suite_seed(), bytes, copies, want = 0;
	struct opened o;
	struct field f;
	size_t i;

	if (open_channels(&o, "dma_skeleton0") != 0)
		return;
	for (i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		field_make(&f, shapes[i].rows, shapes[i].row_bytes, shapes[i].src_stride,
			shapes[i].dst_stride, 3, &rnd);
		copy_field(o.ch[0], &f, 0);
		field_free(&f);
		want += shapes[i].rows * shapes[i].row_bytes;
	}
	ops->counters(o.ch[0], &bytes, &copies);
	CHECK_EQ(bytes, want);
	CHECK_EQ(copies, sizeof(shapes) / sizeof(shapes[0]));
	close_channels(&o);
}

/* One batch of several random small fields. */
struct job {
	struct field fields[KVF_COPY_BATCH_MAX];
	uint32_t n;
	int ended;
};

static void
job_make(struct job *j, uint64_t *rnd)
{
	uint32_t i;

	j->n = (uint32_t)suite_range(rnd, 1, suite_range(rnd, 0, 7) == 0 ? KVF_COPY_BATCH_MAX : 8);
	j->ended = 0;
	for (i = 0; i < j->n; i++) {
		uint64_t bytes = suite_range(rnd, 1, 700);

		field_make(&j->fields[i], suite_range(rnd, 1, 60), bytes,
			bytes + suite_range(rnd, 0, 3) * 40, bytes + suite_range(rnd, 0, 2) * 8,
			suite_range(rnd, 0, 15), rnd);
	}
}

static int
job_submit(struct kvf_copy_channel *ch, const struct job *j, uint64_t tag)
{
	struct kvf_copy copies[KVF_COPY_BATCH_MAX];
	uint32_t i;
	int ret;

	for (i = 0; i < j->n; i++)
		copies[i] = j->fields[i].copy;
	ret = ops->submit(ch, copies, j->n, 0, tag);
	memset(copies, 0xff, sizeof(copies)); /* the driver must have its own by now */
	return ret;
}

/* Checks and frees; returns the bytes it moved. */
static uint64_t
job_end(struct job *j)
{
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < j->n; i++) {
		bytes += j->fields[i].copy.rows * j->fields[i].copy.row_bytes;
		CHECK(field_right(&j->fields[i]));
		field_free(&j->fields[i]);
	}
	return bytes;
}

#define JOBS 150u

struct runner {
	struct kvf_copy_channel *ch;
	struct job *jobs;
	uint64_t rnd;
	uint32_t posted;
	uint32_t ended;
	uint32_t again;
	uint32_t wrong;
};

/* Keeps a channel as full as it gets. */
static void
runner_step(struct runner *r)
{
	struct kvf_copy_done done[5];
	uint32_t i, n;

	while (r->posted < JOBS) {
		int ret = job_submit(r->ch, &r->jobs[r->posted], 1000 + r->posted);

		if (ret != 0) {
			r->again += ret == KVF_E_AGAIN;
			r->wrong += ret != KVF_E_AGAIN || r->posted - r->ended != DEPTH;
			break;
		}
		r->posted++;
	}
	n = ops->poll(r->ch, done, 5);
	for (i = 0; i < n; i++) {
		uint64_t at = done[i].tag - 1000;

		if (done[i].error != 0 || at >= r->posted || r->jobs[at].ended++ != 0)
			r->wrong++;
	}
	r->ended += n;
}

static void *
runner_thread(void *arg)
{
	uint64_t end = mono_us() + 20000000u;
	struct runner *r = arg;

	while (r->ended < JOBS && mono_us() < end)
		runner_step(r);
	return NULL;
}

static void
runners_make(struct runner *r, struct opened *o, uint64_t seed)
{
	uint32_t i, k;

	for (i = 0; i < 2; i++) {
		memset(&r[i], 0, sizeof(r[i]));
		r[i].ch = o->ch[i];
		r[i].rnd = seed + i;
		r[i].jobs = calloc(JOBS, sizeof(r[i].jobs[0]));
		if (r[i].jobs == NULL)
			abort();
		for (k = 0; k < JOBS; k++)
			job_make(&r[i].jobs[k], &r[i].rnd);
	}
}

static void
runners_check(struct runner *r)
{
	uint64_t bytes, copies, want_bytes, want_copies;
	uint32_t i, k;

	for (i = 0; i < 2; i++) {
		CHECK_EQ(r[i].ended, JOBS);
		CHECK_EQ(r[i].wrong, 0);
		CHECK(r[i].again > 0);
		want_bytes = want_copies = 0;
		for (k = 0; k < JOBS; k++) {
			want_copies += r[i].jobs[k].n;
			want_bytes += job_end(&r[i].jobs[k]);
		}
		ops->counters(r[i].ch, &bytes, &copies);
		CHECK_EQ(bytes, want_bytes);
		CHECK_EQ(copies, want_copies);
		free(r[i].jobs);
	}
}

static void
test_two_channels_one_thread(void)
{
	uint64_t end = mono_us() + 20000000u;
	struct runner r[2];
	struct opened o;

	if (open_channels(&o, NULL) != 0)
		return;
	runners_make(r, &o, suite_seed());
	while ((r[0].ended < JOBS || r[1].ended < JOBS) && mono_us() < end) {
		runner_step(&r[0]);
		runner_step(&r[1]);
	}
	runners_check(r);
	close_channels(&o);
}

static void
test_two_threads(void)
{
	struct runner r[2];
	pthread_t thread[2];
	struct opened o;
	int i;

	if (open_channels(&o, NULL) != 0)
		return;
	runners_make(r, &o, suite_seed() + 99);
	for (i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&thread[i], NULL, runner_thread, &r[i]), 0);
	for (i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	runners_check(r);
	close_channels(&o);
}

static void
test_depth(void)
{
	struct kvf_copy_done done[DEPTH];
	uint64_t rnd = suite_seed();
	struct job jobs[DEPTH + 1];
	struct opened o;
	uint32_t i, round;

	if (open_channels(&o, "dma_skeleton1") != 0)
		return;
	for (round = 0; round < 3; round++) {
		for (i = 0; i < DEPTH + 1; i++)
			job_make(&jobs[i], &rnd);
		for (i = 0; i < DEPTH; i++)
			CHECK_EQ(job_submit(o.ch[0], &jobs[i], i), 0);
		CHECK_EQ(job_submit(o.ch[0], &jobs[DEPTH], DEPTH), KVF_E_AGAIN);
		CHECK_EQ(poll_until(ops, o.ch[0], done, DEPTH), DEPTH);
		for (i = 0; i < DEPTH; i++) {
			CHECK_EQ(done[i].error, 0);
			if (CHECK(done[i].tag < DEPTH))
				jobs[done[i].tag].ended++;
		}
		for (i = 0; i < DEPTH; i++)
			CHECK_EQ(jobs[i].ended, 1);
		/* the refused one left no trace */
		for (i = 0; i < jobs[DEPTH].n; i++)
			CHECK(all_guard(
				jobs[DEPTH].fields[i].dst, jobs[DEPTH].fields[i].dst_bytes));
		CHECK_EQ(job_submit(o.ch[0], &jobs[DEPTH], 5), 0);
		CHECK_EQ(poll_until(ops, o.ch[0], done, 1), 1);
		for (i = 0; i < DEPTH + 1; i++)
			job_end(&jobs[i]);
	}
	close_channels(&o);
}

static void
test_bad_batches(void)
{
	uint8_t src[64] = {1}, dst[64] = {0};
	struct kvf_copy c = {src, dst, 1, 64, 64, 64}, bad[KVF_COPY_BATCH_MAX + 1];
	struct kvf_copy_done done;
	struct opened o;

	if (open_channels(&o, "dma_skeleton0") != 0)
		return;
	memset(bad, 0, sizeof(bad));
	bad[0] = c;
	CHECK_EQ(ops->submit(o.ch[0], bad, 2, 0, 1), KVF_E_INVAL); /* 0 rows */
	CHECK_EQ(ops->submit(o.ch[0], bad, 0, 0, 1), KVF_E_INVAL);
	CHECK_EQ(ops->submit(o.ch[0], bad, KVF_COPY_BATCH_MAX + 1, 0, 1), KVF_E_INVAL);
	bad[0].rows = 1ull << 40;
	bad[0].row_bytes = 1ull << 30;
	CHECK_EQ(ops->submit(o.ch[0], bad, 1, 0, 1), KVF_E_INVAL);
	CHECK_EQ(ops->poll(o.ch[0], &done, 1), 0);
	CHECK_EQ(dst[0], 0);
	CHECK_EQ(ops->submit(o.ch[0], &c, 1, 0, 9), 0);
	CHECK_EQ(poll_until(ops, o.ch[0], &done, 1), 1);
	CHECK_EQ(done.tag, 9);
	CHECK_EQ(dst[0], 1);
	close_channels(&o);
}

static void
test_channels_and_reopen(void)
{
	struct kvf_copy_channel *third;
	uint64_t rnd = suite_seed();
	struct kvf_err err = {0};
	struct opened o;
	struct field f;
	int round;

	for (round = 0; round < 4; round++) {
		if (open_channels(&o, round % 2 ? NULL : "dma_skeleton0,dma_skeleton1") != 0)
			return;
		CHECK_EQ(ops->channel_open(o.drv, &third, &err), KVF_E_QUOTA);
		CHECK_STR_HAS(err.text, "max_channels=2");
		ops->channel_close(o.ch[0]);
		if (!CHECK_EQ(ops->channel_open(o.drv, &o.ch[0], &err), 0))
			return;
		field_make(&f, 100, 64, 70, 90, 1, &rnd);
		copy_field(o.ch[0], &f, 0);
		field_free(&f);
		close_channels(&o);
	}
}

static void *
map_memfd(uint64_t bytes, int *fd)
{
	void *p;

	*fd = memfd_create("kvf-test", MFD_CLOEXEC);
	if (*fd < 0 || ftruncate(*fd, (off_t)bytes) != 0)
		abort();
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (p == MAP_FAILED)
		abort();
	return p;
}

static void
test_map(void)
{
	const uint64_t bytes = 1u << 20;
	uint8_t *a, *b;
	struct kvf_copy_done done;
	struct kvf_err err = {0};
	void *ha, *hb, *hc;
	struct kvf_copy c;
	struct opened o;
	int fa, fb, round;
	uint64_t i;

	if (open_channels(&o, NULL) != 0)
		return;
	a = map_memfd(bytes, &fa);
	b = map_memfd(bytes, &fb);
	for (round = 0; round < 3; round++) {
		map_calls = unmap_calls = 0;
		CHECK_EQ(ops->map(o.drv, a, bytes, 4096, &ha, &err), 0);
		CHECK_EQ(map_calls, 2);
		CHECK(rte_mem_virt2memseg_list(a) != NULL);
		CHECK_EQ(ops->map(o.drv, b, bytes, 4096, &hb, &err), 0);
		CHECK_EQ(ops->map(o.drv, a, bytes, 4096, &hc, &err), KVF_E_EXIST);
		CHECK_STR_HAS(err.text, "length=1048576");
		CHECK_EQ(ops->map(o.drv, a + 4096, 4096, 4096, &hc, &err), KVF_E_EXIST);
		for (i = 0; i < bytes; i++)
			a[i] = (uint8_t)(i * 7 + (uint64_t)round);
		c = (struct kvf_copy){a, b + 5, 1000, 1000, 1010, 1020};
		CHECK_EQ(ops->submit(o.ch[1], &c, 1, 0, 1), 0);
		CHECK_EQ(poll_until(ops, o.ch[1], &done, 1), 1);
		for (i = 0; i < 1000; i++)
			CHECK(memcmp(b + 5 + i * 1020, a + i * 1010, 1000) == 0);
		CHECK_EQ(ops->unmap(o.drv, ha, &err), 0);
		CHECK_EQ(unmap_calls, 2);
		CHECK(rte_mem_virt2memseg_list(a) == NULL);
		CHECK(rte_mem_virt2memseg_list(b) != NULL);
		/* freed in part by nobody else: the same place maps again at once */
		CHECK_EQ(ops->map(o.drv, a, bytes, 4096, &ha, &err), 0);
		CHECK_EQ(ops->unmap(o.drv, hb, &err), 0);
		CHECK_EQ(ops->unmap(o.drv, ha, &err), 0);
	}
	CHECK_EQ(ops->map(o.drv, a + 1, 4096, 4096, &ha, &err), KVF_E_INVAL);
	CHECK_EQ(ops->map(o.drv, a, 4097, 4096, &ha, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "length=4097 page_size=4096");
	CHECK_EQ(ops->map(o.drv, a, 0, 4096, &ha, &err), KVF_E_INVAL);
	CHECK_EQ(ops->map(o.drv, a, 4096, 3000, &ha, &err), KVF_E_INVAL);
	/* what is still mapped when the driver closes is unmapped then */
	CHECK_EQ(ops->map(o.drv, a, bytes, 4096, &ha, &err), 0);
	close_channels(&o);
	CHECK(rte_mem_virt2memseg_list(a) == NULL);
	munmap(a, bytes);
	munmap(b, bytes);
	close(fa);
	close(fb);
}

static void
test_map_undone(void)
{
	struct kvf_err err = {0};
	struct opened o;
	void *handle;
	uint8_t *a;
	int fd;

	if (open_channels(&o, NULL) != 0)
		return;
	a = map_memfd(8192, &fd);
	map_calls = unmap_calls = 0;
	map_fails_at = 2;
	map_errno = EIO;
	CHECK_EQ(ops->map(o.drv, a, 8192, 4096, &handle, &err), KVF_E_DEVICE);
	CHECK_STR_HAS(err.text, "name=dma_skeleton1");
	CHECK_STR_HAS(err.text, "Input/output error");
	CHECK_EQ(unmap_calls, 1);
	CHECK(rte_mem_virt2memseg_list(a) == NULL);

	/* A bus without mappings is fine for a device on this process's addresses, and nothing is
	 * undone there. */
	map_calls = unmap_calls = 0;
	map_errno = ENOTSUP;
	CHECK_EQ(ops->map(o.drv, a, 8192, 4096, &handle, &err), 0);
	CHECK_EQ(map_calls, 2);
	CHECK_EQ(ops->unmap(o.drv, handle, &err), 0);
	CHECK_EQ(unmap_calls, 1);
	map_fails_at = 0;
	close_channels(&o);

	capa_missing = RTE_DMA_CAPA_SVA;
	if (open_channels(&o, NULL) == 0) {
		map_calls = unmap_calls = 0;
		map_fails_at = 1;
		CHECK_EQ(ops->map(o.drv, a, 8192, 4096, &handle, &err), KVF_E_DEVICE);
		CHECK_EQ(unmap_calls, 0);
		map_fails_at = 0;
		CHECK_EQ(ops->map(o.drv, a, 8192, 4096, &handle, &err), 0);
		CHECK_EQ(ops->unmap(o.drv, handle, &err), 0);
		close_channels(&o);
	}
	capa_missing = 0;
	munmap(a, 8192);
	close(fd);
}

static void
test_map_limit(void)
{
	void *handles[256];
	struct kvf_err err = {0};
	struct opened o;
	int fd, round, ret;
	uint32_t n, first = 0;
	uint8_t *a;

	if (open_channels(&o, NULL) != 0)
		return;
	a = map_memfd(256 * 4096, &fd);
	for (round = 0; round < 2; round++) {
		ret = 0;
		for (n = 0; n < 256; n++) {
			ret = ops->map(o.drv, a + n * 4096, 4096, 4096, &handles[n], &err);
			if (ret != 0)
				break;
		}
		CHECK_EQ(ret, KVF_E_QUOTA);
		CHECK_STR_HAS(err.text, "RTE_MAX_MEMSEG_LISTS=128");
		CHECK(n > 64 && n < 128);
		/* all of them come back */
		CHECK(round == 0 || n == first);
		first = n;
		while (n > 0)
			CHECK_EQ(ops->unmap(o.drv, handles[--n], &err), 0);
	}
	close_channels(&o);
	munmap(a, 256 * 4096);
	close(fd);
}

static const struct suite_case cases[] = {
	{"open by name", test_open_names},
	{"open refused", test_open_refused},
	{"sizes", test_sizes},
	{"more rows than descriptors", test_more_rows_than_descriptors},
	{"two channels, one thread", test_two_channels_one_thread},
	{"two channels, two threads", test_two_threads},
	{"depth", test_depth},
	{"bad batches", test_bad_batches},
	{"channels and reopen", test_channels_and_reopen},
	{"map", test_map},
	{"map undone", test_map_undone},
	{"map limit", test_map_limit},
	{"doorbell and ring", test_doorbell_and_ring},
	{"burst", test_burst},
	{"long rows split", test_long_rows_split},
	{"index wrap", test_index_wrap},
	{"failed descriptor", test_failed_descriptor},
	{"failed batch stops", test_failed_batch_stops},
	{"every descriptor fails", test_every_descriptor_fails},
	{"refused descriptor", test_refused_descriptor},
	{"doorbell retried", test_doorbell_retried},
	{"halted", test_halted},
	{"halted and recovered", test_halted_and_recovered},
};

int
main(int argc, char **argv)
{
	return eal_suite_run("dmadev", cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}
