/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside the dmadev driver. One channel is one dmadev, virtual channel 0: DPDK forbids calls from
 * two threads into one dmadev even on different virtual channels (rte_dmadev.h), and every hardware
 * queue (a DSA work queue, an IOAT channel) is a dmadev of its own anyway.
 */
#ifndef KVF_DRIVERS_DMADEV_H
#define KVF_DRIVERS_DMADEV_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <rte_dev.h>

#include "drivers/copy.h"

#define DMADEV_VCHAN 0u
#define DMADEV_DEPTH 16u   /* batches in flight per channel, a power of two */
#define DMADEV_DESC  4096u /* descriptors wished for per channel */
/* Longest descriptor. The dmadev API does not tell a device's limit; IOAT ends at 1 MiB and a
 * DSA queue set up by the kernel at 2 MiB unless told otherwise. */
#define DMADEV_DESC_BYTES (1u << 20)

struct dmadev_device {
	struct rte_device *rte; /* NULL: on a bus that cannot be listed, and needs no mapping */
	int16_t id;
	int16_t numa_node;
	bool sva; /* works on this process's addresses without a mapping */
	bool pci;
	bool started;
	atomic_bool taken; /* by a channel; channels open on any thread */
	char name[RTE_DEV_NAME_MAX_LEN];
};

struct dmadev_region {
	TAILQ_ENTRY(dmadev_region) next;
	void *base;
	uint64_t length;
	uint32_t num_mapped;
	uint32_t mapped[]; /* devices whose bus took the region, in that order */
};

struct kvf_copy_drv {
	TAILQ_HEAD(dmadev_regions, dmadev_region) regions;
	uint32_t num_regions;
	uint32_t num_devices;
	struct dmadev_device devices[];
};

struct dmadev_batch {
	uint64_t tag;
	uint64_t bytes;
	uint64_t op_flags; /* RTE_DMA_OP_FLAG_* of every descriptor */
	uint32_t n;
	int32_t error;        /* first failure; nothing more of the batch is enqueued then */
	uint32_t outstanding; /* descriptors that the device has not given back */
	/* Next descriptor: copy, its row, bytes of that row already enqueued. copy == n: none left.
	 */
	uint32_t copy;
	uint64_t row;
	uint64_t offset;
	struct kvf_copy copies[KVF_COPY_BATCH_MAX];
};

/*
 * Batches are a fifo with free-running positions head <= reap <= push <= tail: before head
 * reported, at reap the oldest with descriptors outstanding, at push the one being enqueued.
 */
struct kvf_copy_channel {
	struct dmadev_device *dev;
	uint32_t head;
	uint32_t reap;
	uint32_t push;
	uint32_t tail;
	uint32_t inflight;   /* descriptors enqueued and not given back */
	uint32_t idle_polls; /* polls in a row without progress */
	bool doorbell;       /* enqueued descriptors that the device was not told of */
	bool halted;         /* the device gave up: everything fails from here on */
	alignas(64) _Atomic uint64_t bytes;
	_Atomic uint64_t copies;
	alignas(64) struct dmadev_batch batches[DMADEV_DEPTH];
};

/* map.c */
int dmadev_map(struct kvf_copy_drv *drv, void *base, uint64_t length, uint64_t page_size,
	void **handle, struct kvf_err *err);
int dmadev_unmap(struct kvf_copy_drv *drv, void *handle, struct kvf_err *err);
/* The struct rte_device behind a dmadev's name, or NULL; *pci tells its bus. */
struct rte_device *dmadev_find_rte_device(const char *dma_name, bool *pci);

/* channel.c */
int dmadev_channel_open(
	struct kvf_copy_drv *drv, struct kvf_copy_channel **ch, struct kvf_err *err);
void dmadev_channel_close(struct kvf_copy_channel *ch);
int dmadev_submit(struct kvf_copy_channel *ch, const struct kvf_copy *copies, uint32_t n,
	uint32_t flags, uint64_t tag);
uint32_t dmadev_poll(struct kvf_copy_channel *ch, struct kvf_copy_done *done, uint32_t max);
void dmadev_counters(const struct kvf_copy_channel *ch, uint64_t *bytes, uint64_t *copies);

#endif
