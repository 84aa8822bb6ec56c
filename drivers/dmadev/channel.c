/* SPDX-License-Identifier: BSD-3-Clause */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_dmadev.h>
#include <rte_lcore.h>

#include "base/err.h"
#include "drivers/dmadev/dmadev.h"

#define STATUS_BURST      64u
#define HALT_CHECK_PERIOD 256u /* asking a device for its state may read a slow register */

static_assert((DMADEV_DEPTH & (DMADEV_DEPTH - 1)) == 0, "positions wrap");

static struct dmadev_batch *
batch_at(struct kvf_copy_channel *ch, uint32_t pos)
{
	return &ch->batches[pos & (DMADEV_DEPTH - 1)];
}

static bool
take(struct dmadev_device *dev)
{
	bool free_now = false;

	return atomic_compare_exchange_strong_explicit(
		&dev->taken, &free_now, true, memory_order_acquire, memory_order_relaxed);
}

int
dmadev_channel_open(struct kvf_copy_drv *drv, struct kvf_copy_channel **out, struct kvf_err *err)
{
	int node = (int)rte_socket_id();
	struct dmadev_device *dev = NULL;
	struct kvf_copy_channel *ch;
	uint32_t i;

	ch = aligned_alloc(alignof(struct kvf_copy_channel), sizeof(*ch));
	if (ch == NULL)
		return kvf_fail(
			err, KVF_E_NOMEM, "no memory for a channel: bytes=%zu", sizeof(*ch));
	memset(ch, 0, sizeof(*ch));
	/* A device next to this thread first, else any. */
	for (i = 0; i < 2 * drv->num_devices && dev == NULL; i++) {
		struct dmadev_device *d = &drv->devices[i % drv->num_devices];

		if ((i >= drv->num_devices || d->numa_node == node) && take(d))
			dev = d;
	}
	if (dev == NULL) {
		free(ch);
		return kvf_fail(err, KVF_E_QUOTA,
			"every DMA device has its channel already: max_channels=%u",
			drv->num_devices);
	}
	ch->dev = dev;
	*out = ch;
	return 0;
}

void
dmadev_channel_close(struct kvf_copy_channel *ch)
{
	if (ch == NULL)
		return;
	/* Descriptors of this channel would be counted as the next one's: such a device, and
	 * one that halted, stays taken until the driver is opened anew. */
	if (ch->inflight == 0 && !ch->halted)
		atomic_store_explicit(&ch->dev->taken, false, memory_order_release);
	free(ch);
}

/* Enqueues the next descriptor of a batch: 0, -ENOSPC, or the device's refusal. */
static int
enqueue_one(struct kvf_copy_channel *ch, struct dmadev_batch *b)
{
	const struct kvf_copy *c = &b->copies[b->copy];
	uint64_t left = c->row_bytes - b->offset;
	uint32_t len = (uint32_t)RTE_MIN(left, (uint64_t)DMADEV_DESC_BYTES);
	uintptr_t src = (uintptr_t)c->src + b->row * c->src_stride + b->offset;
	uintptr_t dst = (uintptr_t)c->dst + b->row * c->dst_stride + b->offset;
	int ret;

	ret = rte_dma_copy(ch->dev->id, DMADEV_VCHAN, src, dst, len, b->op_flags);
	if (ret < 0)
		return ret;
	b->outstanding++;
	ch->inflight++;
	if (len < left) {
		b->offset += len;
		return 0;
	}
	b->offset = 0;
	if (++b->row == c->rows) {
		b->row = 0;
		b->copy++;
	}
	return 0;
}

static bool
enqueued_all(const struct dmadev_batch *b)
{
	return b->error != 0 || b->copy == b->n;
}

/* Enqueues as much as the ring takes, then rings the doorbell once. True when anything moved. */
static bool
push(struct kvf_copy_channel *ch)
{
	bool moved = false;
	uint16_t room = 0;
	int ret;

	if (ch->push != ch->tail)
		room = rte_dma_burst_capacity(ch->dev->id, DMADEV_VCHAN);
	while (ch->push != ch->tail) {
		struct dmadev_batch *b = batch_at(ch, ch->push);

		if (enqueued_all(b)) {
			ch->push++;
			moved = true;
			continue;
		}
		if (room == 0)
			break;
		ret = enqueue_one(ch, b);
		if (ret == -ENOSPC)
			break;
		if (ret < 0) {
			b->error = KVF_E_DEVICE;
			continue;
		}
		room--;
		ch->doorbell = true;
		moved = true;
	}
	/* A doorbell that fails is rung again by the next poll; check_halted() ends it if it never
	 * works.
	 */
	if (ch->doorbell && rte_dma_submit(ch->dev->id, DMADEV_VCHAN) == 0)
		ch->doorbell = false;
	return moved;
}

/* The device gave n descriptors back, in the order in which they were enqueued. */
static void
account(struct kvf_copy_channel *ch, uint32_t n, int error)
{
	ch->inflight -= n;
	while (n > 0) {
		struct dmadev_batch *b = batch_at(ch, ch->reap);
		uint32_t k = RTE_MIN(n, b->outstanding);

		if (k == 0) {
			ch->reap++;
			continue;
		}
		if (b->error == 0)
			b->error = error;
		b->outstanding -= k;
		n -= k;
	}
}

/* One burst of descriptors with a status each. */
static uint32_t
reap_status(struct kvf_copy_channel *ch)
{
	enum rte_dma_status_code status[STATUS_BURST];
	uint16_t want = (uint16_t)RTE_MIN(ch->inflight, STATUS_BURST);
	uint16_t n, i;

	n = rte_dma_completed_status(ch->dev->id, DMADEV_VCHAN, want, NULL, status);
	for (i = 0; i < n; i++)
		account(ch, 1, status[i] == RTE_DMA_STATUS_SUCCESSFUL ? 0 : KVF_E_DEVICE);
	return n;
}

static bool
reap(struct kvf_copy_channel *ch)
{
	bool moved = false;

	while (ch->inflight > 0) {
		uint16_t want = (uint16_t)RTE_MIN(ch->inflight, (uint32_t)UINT16_MAX), n;
		bool failed;

		n = rte_dma_completed(ch->dev->id, DMADEV_VCHAN, want, NULL, &failed);
		account(ch, n, 0);
		moved |= n > 0;
		if (failed && ch->inflight > 0) {
			/* completed() stops before a failed one until its status was read */
			if (reap_status(ch) == 0)
				break;
			moved = true;
		} else if (n < want) {
			break;
		}
	}
	return moved;
}

static bool
is_halted(const struct kvf_copy_channel *ch)
{
	enum rte_dma_vchan_status status;

	return rte_dma_vchan_status(ch->dev->id, DMADEV_VCHAN, &status) == 0 &&
	       status == RTE_DMA_VCHAN_HALTED_ERROR;
}

/* Nothing came back for a while. A halted device executes nothing any more: once it has no status
 * left to give, what is outstanding can be failed, because no byte of it will be touched. */
static void
check_halted(struct kvf_copy_channel *ch)
{
	uint32_t pos;

	if (!is_halted(ch))
		return;
	while (ch->inflight > 0 && reap_status(ch) > 0)
		;
	/* Some devices go on once the failed descriptor's status was read. */
	if (!is_halted(ch))
		return;
	ch->halted = true;
	for (pos = ch->head; pos != ch->tail; pos++) {
		struct dmadev_batch *b = batch_at(ch, pos);

		if ((b->outstanding > 0 || !enqueued_all(b)) && b->error == 0)
			b->error = KVF_E_DEVICE;
		b->outstanding = 0;
	}
	ch->inflight = 0; /* nothing is enqueued or reaped from here on */
}

int
dmadev_submit(struct kvf_copy_channel *ch, const struct kvf_copy *copies, uint32_t n,
	uint32_t flags, uint64_t tag)
{
	struct dmadev_batch *b = batch_at(ch, ch->tail);
	uint64_t bytes, total = 0;
	uint32_t i;

	if (ch->tail - ch->head == DMADEV_DEPTH)
		return KVF_E_AGAIN;
	if (n == 0 || n > KVF_COPY_BATCH_MAX)
		return KVF_E_INVAL;
	for (i = 0; i < n; i++) {
		struct kvf_copy *c = &b->copies[i];

		*c = copies[i];
		if (c->rows == 0 || c->row_bytes == 0 ||
			kvf_mul_overflows(c->rows, c->row_bytes, &bytes) ||
			kvf_add_overflows(total, bytes, &total))
			return KVF_E_INVAL;
		/* Without gaps it is one long row, however many were asked for. */
		if (c->src_stride == c->row_bytes && c->dst_stride == c->row_bytes) {
			c->row_bytes = bytes;
			c->rows = 1;
		}
	}
	b->tag = tag;
	b->bytes = total;
	/* The cache hint: what will be read soon may be written into the cache. */
	b->op_flags = (flags & KVF_COPY_STREAM) ? 0 : RTE_DMA_OP_FLAG_LLC;
	b->n = n;
	b->outstanding = 0;
	b->copy = 0;
	b->row = 0;
	b->offset = 0;
	b->error = ch->halted ? KVF_E_DEVICE : 0;
	ch->tail++;
	if (!ch->halted)
		push(ch);
	return 0;
}

/* One writer: a plain add between relaxed accesses loses nothing. */
static void
add_relaxed(_Atomic uint64_t *counter, uint64_t n)
{
	uint64_t v = atomic_load_explicit(counter, memory_order_relaxed);

	atomic_store_explicit(counter, v + n, memory_order_relaxed);
}

uint32_t
dmadev_poll(struct kvf_copy_channel *ch, struct kvf_copy_done *done, uint32_t max)
{
	uint32_t n = 0;

	if (!ch->halted && ch->head != ch->tail) {
		bool moved = reap(ch);

		moved |= push(ch);
		if (moved)
			ch->idle_polls = 0;
		else if (++ch->idle_polls % HALT_CHECK_PERIOD == 0)
			check_halted(ch);
	}
	while (n < max && ch->head != ch->tail) {
		struct dmadev_batch *b = batch_at(ch, ch->head);

		if (b->outstanding > 0 || !enqueued_all(b))
			break;
		if (b->error == 0) {
			add_relaxed(&ch->bytes, b->bytes);
			add_relaxed(&ch->copies, b->n);
		}
		done[n++] = (struct kvf_copy_done){.tag = b->tag, .error = b->error};
		ch->head++;
		/* reap and push may still stand on a batch that ended in this call */
		if ((int32_t)(ch->reap - ch->head) < 0)
			ch->reap = ch->head;
		if ((int32_t)(ch->push - ch->head) < 0)
			ch->push = ch->head;
	}
	return n;
}

void
dmadev_counters(const struct kvf_copy_channel *ch, uint64_t *bytes, uint64_t *copies)
{
	*bytes = atomic_load_explicit(&ch->bytes, memory_order_relaxed);
	*copies = atomic_load_explicit(&ch->copies, memory_order_relaxed);
}
