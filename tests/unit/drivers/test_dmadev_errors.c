/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The dmadev driver on a device made for the test: it stands in for dma_skeleton0 behind DPDK's
 * fast-path table, executes only what it is told to, and fails, refuses or halts on demand.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <rte_dmadev.h>

#include "unit/drivers/dmadev_errors.h"
#include "unit/drivers/eal.h"

#define RING       64u /* a power of two */
#define NO_FAILURE UINT64_MAX
#define NEVER      UINT32_MAX

struct fake_desc {
	uint8_t *src;
	uint8_t *dst;
	uint32_t len;
	bool failed;
};

/* Free-running: returned <= executed <= told <= enqueued. */
static struct fake {
	uint64_t enqueued;
	uint64_t told; /* by the doorbell */
	uint64_t executed;
	uint64_t returned;
	uint32_t capacity;
	uint32_t burst;  /* as many between two doorbells */
	uint32_t hidden; /* slots that it says it has and does not */
	uint32_t doorbells;
	uint32_t doorbells_refused; /* how many still to refuse */
	uint64_t fail_at;           /* which descriptor fails, from 0 */
	uint64_t fail_every;        /* and each so many after it; 0: none */
	uint64_t refuse_at;         /* which one is not taken at all */
	uint32_t max_len;
	bool wrong_run; /* the driver used DPDK's functions in a way it may not */
	bool halted;
	uint64_t halt_at; /* executing this one halts; it and the later ones do not run */
	bool recovers;    /* reading the failed one's status ends the halt */
	struct fake_desc ring[RING];
} fake;

static const struct kvf_copy_ops *const ops = &kvf_copy_dmadev;
static struct rte_dma_fp_object saved;
static int16_t fake_id = -1;

int __real_rte_dma_vchan_status(int16_t id, uint16_t vchan, enum rte_dma_vchan_status *status);
int __wrap_rte_dma_vchan_status(int16_t id, uint16_t vchan, enum rte_dma_vchan_status *status);

int
__wrap_rte_dma_vchan_status(int16_t id, uint16_t vchan, enum rte_dma_vchan_status *status)
{
	if (id != fake_id)
		return __real_rte_dma_vchan_status(id, vchan, status);
	*status = fake.halted ? RTE_DMA_VCHAN_HALTED_ERROR : RTE_DMA_VCHAN_ACTIVE;
	return 0;
}

static int
fake_copy(void *priv, uint16_t vchan, rte_iova_t src, rte_iova_t dst, uint32_t len, uint64_t flags)
{
	struct fake *f = priv;
	struct fake_desc *d = &f->ring[f->enqueued % RING];

	if (f->enqueued == f->refuse_at) {
		f->refuse_at = NO_FAILURE;
		return -EINVAL;
	}
	if (vchan != 0 || (flags & RTE_DMA_OP_FLAG_SUBMIT))
		f->wrong_run = true;
	if (f->enqueued - f->returned == f->capacity - f->hidden)
		return -ENOSPC;
	if (f->enqueued - f->told == f->burst)
		f->wrong_run = true;
	*d = (struct fake_desc){(uint8_t *)(uintptr_t)src, (uint8_t *)(uintptr_t)dst, len, false};
	d->failed = f->enqueued == f->fail_at ||
		    (f->fail_every != 0 && f->enqueued >= f->fail_at &&
			    (f->enqueued - f->fail_at) % f->fail_every == 0);
	if (len > f->max_len)
		f->max_len = len;
	return (int)(uint16_t)f->enqueued++;
}

static int
fake_submit(void *priv, uint16_t vchan)
{
	struct fake *f = priv;

	(void)vchan;
	f->doorbells++;
	if (f->doorbells_refused > 0) {
		f->doorbells_refused -= f->doorbells_refused != NEVER;
		return -EIO;
	}
	f->told = f->enqueued;
	return 0;
}

static uint16_t
fake_completed(void *priv, uint16_t vchan, const uint16_t nb, uint16_t *last, bool *has_error)
{
	struct fake *f = priv;
	uint16_t n = 0;

	(void)vchan;
	if (nb == 0 || nb > f->enqueued - f->returned)
		f->wrong_run = true;
	while (n < nb && f->returned < f->executed) {
		if (f->ring[f->returned % RING].failed) {
			*has_error = true;
			break;
		}
		f->returned++;
		n++;
	}
	*last = (uint16_t)(f->returned - 1);
	return n;
}

static uint16_t
fake_completed_status(void *priv, uint16_t vchan, const uint16_t nb, uint16_t *last,
	enum rte_dma_status_code *status)
{
	struct fake *f = priv;
	uint16_t n = 0;

	(void)vchan;
	if (nb == 0 || nb > f->enqueued - f->returned)
		f->wrong_run = true;
	while (n < nb && f->returned < f->executed) {
		bool failed = f->ring[f->returned++ % RING].failed;

		status[n++] = failed ? RTE_DMA_STATUS_BUS_ERROR : RTE_DMA_STATUS_SUCCESSFUL;
		if (failed && f->recovers)
			f->halted = false;
	}
	*last = (uint16_t)(f->returned - 1);
	return n;
}

static uint16_t
fake_capacity(const void *priv, uint16_t vchan)
{
	const struct fake *f = priv;

	(void)vchan;
	return (uint16_t)RTE_MIN(
		f->capacity - (f->enqueued - f->returned), f->burst - (f->enqueued - f->told));
}

/* Executes up to n descriptors that the doorbell told of; returns how many. */
static uint32_t
fake_run(uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && fake.executed < fake.told && !fake.halted; i++) {
		struct fake_desc *d = &fake.ring[fake.executed % RING];

		if (fake.executed == fake.halt_at) {
			fake.halted = true;
			if (!fake.recovers)
				break;
			d->failed = true;
		}
		if (!d->failed)
			memcpy(d->dst, d->src, d->len);
		fake.executed++;
	}
	return i;
}

struct rig {
	struct kvf_copy_drv *drv;
	struct kvf_copy_channel *ch;
	uint8_t *src;
	uint8_t *dst;
};

#define BUF_BYTES (8u << 20)

static int
rig_up(struct rig *r)
{
	struct rte_dma_fp_object *fp;
	struct kvf_copy_caps caps;
	struct kvf_err err = {0};
	uint32_t i;

	if (!CHECK_EQ(ops->open("dma_skeleton0", &r->drv, &caps, &err), 0) ||
		!CHECK_EQ(ops->channel_open(r->drv, &r->ch, &err), 0))
		return -1;
	r->src = malloc(BUF_BYTES);
	r->dst = calloc(1, BUF_BYTES);
	if (r->src == NULL || r->dst == NULL)
		abort();
	for (i = 0; i < BUF_BYTES; i++)
		r->src[i] = (uint8_t)(i % 251 + 1);
	memset(&fake, 0, sizeof(fake));
	fake.capacity = fake.burst = RING;
	fake.fail_at = fake.refuse_at = fake.halt_at = NO_FAILURE;
	fake_id = (int16_t)rte_dma_get_dev_id_by_name("dma_skeleton0");
	fp = &rte_dma_fp_objs[fake_id];
	saved = *fp;
	fp->dev_private = &fake;
	fp->copy = fake_copy;
	fp->submit = fake_submit;
	fp->completed = fake_completed;
	fp->completed_status = fake_completed_status;
	fp->burst_capacity = fake_capacity;
	return 0;
}

static void
rig_down(struct rig *r)
{
	CHECK(!fake.wrong_run);
	rte_dma_fp_objs[fake_id] = saved;
	fake_id = -1;
	ops->channel_close(r->ch);
	ops->close(r->drv);
	free(r->src);
	free(r->dst);
}

/* `rows` rows of 8 bytes, 16 apart, at row `first` of both buffers. */
static struct kvf_copy
rows_at(const struct rig *r, uint64_t first, uint64_t rows)
{
	return (struct kvf_copy){r->src + first * 16, r->dst + first * 16, rows, 8, 16, 16};
}

static void
post(struct rig *r, uint64_t first, uint64_t rows, uint64_t tag)
{
	struct kvf_copy c = rows_at(r, first, rows);

	CHECK_EQ(ops->submit(r->ch, &c, 1, 0, tag), 0);
}

static uint64_t
rows_written(const struct rig *r, uint64_t first, uint64_t rows)
{
	uint64_t i, n = 0;

	for (i = first; i < first + rows; i++)
		n += memcmp(r->dst + i * 16, r->src + i * 16, 8) == 0 && r->dst[i * 16 + 8] == 0;
	return n;
}

/* One poll must report exactly this. */
static void
expect(struct rig *r, uint64_t tag, int error)
{
	struct kvf_copy_done done = {0};

	if (!CHECK_EQ(ops->poll(r->ch, &done, 1), 1))
		return;
	CHECK_EQ(done.tag, tag);
	CHECK_EQ(done.error, error);
}

static void
expect_nothing(struct rig *r)
{
	struct kvf_copy_done done;

	CHECK_EQ(ops->poll(r->ch, &done, 1), 0);
}

/* The ring is filled and no fuller, with one doorbell for each call that added something. */
void
test_doorbell_and_ring(void)
{
	struct rig r;

	if (rig_up(&r) != 0)
		return;
	post(&r, 0, 10, 1);
	CHECK_EQ(fake.enqueued, 10);
	CHECK_EQ(fake.doorbells, 1);
	post(&r, 10, 100, 2);
	CHECK_EQ(fake.enqueued, RING);
	CHECK_EQ(fake.doorbells, 2);
	post(&r, 110, 5, 3); /* kept back: the ring is full */
	CHECK_EQ(fake.enqueued, RING);
	CHECK_EQ(fake.doorbells, 2);
	expect_nothing(&r);
	CHECK_EQ(fake.doorbells, 2);
	CHECK_EQ(fake_run(10), 10);
	expect(&r, 1, 0);
	CHECK_EQ(fake.enqueued, RING + 10);
	CHECK_EQ(fake.doorbells, 3);
	CHECK_EQ(fake_run(RING), RING);
	expect_nothing(&r); /* 2 has 36 descriptors to go, and they are with the device now */
	CHECK_EQ(fake.enqueued, 115);
	CHECK_EQ(fake.doorbells, 4);
	CHECK_EQ(rows_written(&r, 0, 74), 74);
	CHECK_EQ(rows_written(&r, 74, 41), 0);
	fake_run(RING);
	expect(&r, 2, 0);
	expect(&r, 3, 0);
	CHECK_EQ(rows_written(&r, 0, 115), 115);
	rig_down(&r);
}

/* A device takes fewer between two doorbells than its ring holds, or fewer than it said. */
void
test_burst(void)
{
	struct rig r;

	if (rig_up(&r) != 0)
		return;
	fake.burst = 20;
	post(&r, 0, 50, 1);
	CHECK_EQ(fake.enqueued, 20);
	expect_nothing(&r);
	expect_nothing(&r);
	CHECK_EQ(fake.enqueued, 50);
	CHECK_EQ(fake.doorbells, 3);
	fake_run(50);
	expect(&r, 1, 0);

	fake.burst = RING;
	fake.hidden = 4;
	post(&r, 100, 80, 2);
	CHECK_EQ(fake.enqueued, 50 + RING - 4);
	fake_run(50);
	expect_nothing(&r);
	fake_run(50);
	expect(&r, 2, 0);
	CHECK_EQ(rows_written(&r, 100, 80), 80);
	rig_down(&r);
}

void
test_long_rows_split(void)
{
	struct rig r;
	struct kvf_copy c;

	if (rig_up(&r) != 0)
		return;
	/* 1024 rows without gaps are one long row, cut at 1 MiB */
	c = (struct kvf_copy){r.src, r.dst, 1024, 4096, 4096, 4096};
	CHECK_EQ(ops->submit(r.ch, &c, 1, 0, 1), 0);
	CHECK_EQ(fake.enqueued, 4);
	CHECK_EQ(fake.max_len, 1u << 20);
	fake_run(4);
	expect(&r, 1, 0);
	CHECK(memcmp(r.dst, r.src, 4u << 20) == 0);
	CHECK_EQ(r.dst[4u << 20], 0);
	/* two rows of 1 MiB + 1 with a gap: two descriptors each */
	memset(r.dst, 0, BUF_BYTES);
	c = (struct kvf_copy){r.src, r.dst, 2, (1u << 20) + 1, 3u << 20, 2u << 20};
	CHECK_EQ(ops->submit(r.ch, &c, 1, 0, 2), 0);
	CHECK_EQ(fake.enqueued, 8);
	fake_run(4);
	expect(&r, 2, 0);
	CHECK(memcmp(r.dst, r.src, (1u << 20) + 1) == 0);
	CHECK_EQ(r.dst[(1u << 20) + 1], 0);
	CHECK(memcmp(r.dst + (2u << 20), r.src + (3u << 20), (1u << 20) + 1) == 0);
	CHECK_EQ(r.dst[(3u << 20) + 1], 0);
	rig_down(&r);
}

/* Past 65,536 descriptors, with batches that end on both sides of the wrap. */
void
test_index_wrap(void)
{
	struct kvf_copy_done done;
	uint64_t tag = 0, seen = 0, rows;
	struct rig r;

	if (rig_up(&r) != 0)
		return;
	while (fake.returned < 140000) {
		rows = 1 + tag * 7 % 90;
		post(&r, 0, rows, tag);
		while (seen == tag) {
			fake_run(5 + (uint32_t)tag % 60);
			if (ops->poll(r.ch, &done, 1) == 1) {
				if (done.tag != tag || done.error != 0 ||
					fake.returned != fake.enqueued)
					break;
				seen++;
			}
		}
		if (!CHECK_EQ(seen, ++tag))
			break;
	}
	rig_down(&r);
}

void
test_failed_descriptor(void)
{
	uint64_t bytes, copies;
	struct rig r;

	if (rig_up(&r) != 0)
		return;
	fake.fail_at = 14;
	post(&r, 0, 10, 1);
	post(&r, 10, 10, 2);
	post(&r, 20, 10, 3);
	fake_run(15); /* up to and with the one that fails */
	expect(&r, 1, 0);
	expect_nothing(&r); /* 2 has failed, but its other descriptors can still write */
	fake_run(4);
	expect_nothing(&r);
	fake_run(1);
	expect(&r, 2, KVF_E_DEVICE);
	expect_nothing(&r);
	fake_run(10);
	expect(&r, 3, 0);
	CHECK_EQ(rows_written(&r, 0, 30), 29);
	ops->counters(r.ch, &bytes, &copies);
	CHECK_EQ(bytes, 160);
	CHECK_EQ(copies, 2);
	rig_down(&r);
}

/* A batch longer than the ring fails early: the rest of it never reaches the device. */
void
test_failed_batch_stops(void)
{
	struct rig r;

	if (rig_up(&r) != 0)
		return;
	fake.fail_at = 3;
	post(&r, 0, 1000, 1);
	post(&r, 1000, 20, 2);
	CHECK_EQ(fake.enqueued, RING);
	fake_run(10);
	expect_nothing(&r);
	CHECK_EQ(fake.enqueued, RING + 10); /* freed room went to 2, not to the rest of 1 */
	fake_run(RING - 10);
	expect(&r, 1, KVF_E_DEVICE);
	CHECK_EQ(rows_written(&r, 0, 1000), RING - 1);
	CHECK_EQ(fake.enqueued, RING + 20);
	fake_run(RING);
	expect(&r, 2, 0);
	CHECK_EQ(rows_written(&r, 1000, 20), 20);
	rig_down(&r);
}

void
test_every_descriptor_fails(void)
{
	struct kvf_copy_done done[16];
	uint32_t i, n;
	struct rig r;

	if (rig_up(&r) != 0)
		return;
	fake.fail_at = 0;
	fake.fail_every = 1;
	for (i = 0; i < 16; i++)
		post(&r, i * 50, 50, i);
	for (i = n = 0; i < 100 && n < 16; i++) {
		fake_run(RING);
		n += ops->poll(r.ch, done + n, 16 - n);
	}
	CHECK_EQ(n, 16);
	for (i = 0; i < n; i++) {
		CHECK_EQ(done[i].tag, i);
		CHECK_EQ(done[i].error, KVF_E_DEVICE);
	}
	CHECK_EQ(rows_written(&r, 0, 800), 0);
	fake.fail_at = NO_FAILURE;
	fake.fail_every = 0;
	post(&r, 0, 50, 99);
	fake_run(RING);
	expect(&r, 99, 0);
	rig_down(&r);
}

/* The device does not take a descriptor at all. */
void
test_refused_descriptor(void)
{
	struct rig r;

	if (rig_up(&r) != 0)
		return;
	fake.refuse_at = 5;
	post(&r, 0, 10, 1);
	CHECK_EQ(fake.enqueued, 5);
	CHECK_EQ(fake.doorbells, 1);
	post(&r, 10, 10, 2);
	fake_run(4);
	expect_nothing(&r);
	fake_run(1);
	expect(&r, 1, KVF_E_DEVICE);
	fake_run(10);
	expect(&r, 2, 0);
	CHECK_EQ(rows_written(&r, 0, 20), 15);
	rig_down(&r);
}

void
test_doorbell_retried(void)
{
	struct rig r;

	if (rig_up(&r) != 0)
		return;
	fake.doorbells_refused = 2;
	post(&r, 0, 10, 1);
	CHECK_EQ(fake_run(10), 0);
	expect_nothing(&r);
	CHECK_EQ(fake_run(10), 0);
	expect_nothing(&r);
	CHECK_EQ(fake_run(10), 10);
	expect(&r, 1, 0);
	CHECK_EQ(fake.doorbells, 3);
	rig_down(&r);
}

/* Polls that say nothing, until the driver has noticed. */
static uint32_t
poll_some(struct rig *r, struct kvf_copy_done *done, uint32_t max)
{
	uint32_t i, n = 0;

	for (i = 0; i < 2000 && n < max; i++)
		n += ops->poll(r->ch, done + n, max - n);
	return n;
}

void
test_halted(void)
{
	struct kvf_copy_channel *other;
	struct kvf_copy_done done[8];
	struct kvf_err err;
	uint64_t enqueued;
	struct rig r;
	uint32_t i;

	if (rig_up(&r) != 0)
		return;
	fake.halt_at = 15;
	post(&r, 0, 10, 1);
	post(&r, 10, 10, 2);
	post(&r, 20, 100, 3);
	post(&r, 120, 1, 4);
	fake_run(RING);
	CHECK(fake.halted);
	CHECK_EQ(poll_some(&r, done, 5), 4);
	for (i = 0; i < 4; i++) {
		CHECK_EQ(done[i].tag, i + 1);
		CHECK_EQ(done[i].error, i == 0 ? 0 : KVF_E_DEVICE);
	}
	enqueued = fake.enqueued;
	/* sticky: what comes later is failed without touching the device */
	post(&r, 0, 1, 5);
	post(&r, 0, 1, 6);
	expect(&r, 5, KVF_E_DEVICE);
	expect(&r, 6, KVF_E_DEVICE);
	expect_nothing(&r);
	for (i = 0; i < 40; i++) {
		post(&r, 0, 1, 7 + i);
		expect(&r, 7 + i, KVF_E_DEVICE);
	}
	CHECK_EQ(fake.enqueued, enqueued);
	CHECK_EQ(rows_written(&r, 0, 121), 15);
	/* and nobody else gets the dead device */
	ops->channel_close(r.ch);
	CHECK_EQ(ops->channel_open(r.drv, &other, &err), KVF_E_QUOTA);
	r.ch = NULL;
	rig_down(&r);
	/* until it is opened anew */
	if (rig_up(&r) != 0)
		return;
	post(&r, 0, 1, 1);
	fake_run(1);
	expect(&r, 1, 0);
	rig_down(&r);
}

/* A device that halts at a failure and goes on once its status was read. */
void
test_halted_and_recovered(void)
{
	struct rig r;

	if (rig_up(&r) != 0)
		return;
	fake.halt_at = 15;
	fake.recovers = true;
	post(&r, 0, 10, 1);
	post(&r, 10, 10, 2);
	post(&r, 20, 10, 3);
	fake_run(RING);
	CHECK(fake.halted);
	expect(&r, 1, 0);
	CHECK(!fake.halted);
	fake_run(RING);
	expect(&r, 2, KVF_E_DEVICE);
	expect(&r, 3, 0);
	CHECK_EQ(rows_written(&r, 0, 30), 29);
	rig_down(&r);
}
