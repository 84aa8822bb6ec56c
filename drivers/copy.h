/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one interface to anything that can copy memory. A driver sees addresses,
 * never rooms, rings or plans.
 *
 * Life: probe -> open -> map regions, open channels -> submit/poll -> close channels, unmap ->
 * close. open/map/unmap/close run on the control thread, one at a time. A channel belongs to one
 * thread from channel_open to channel_close; channels are independent of each other. A region must
 * not be unmapped while a copy that touches it is in flight.
 */
#ifndef KVF_DRIVERS_COPY_H
#define KVF_DRIVERS_COPY_H

#include <stddef.h>
#include <stdint.h>

#include <kvferry/error.h>

/* 2-D copy: row i goes from src + i * src_stride to dst + i * dst_stride, row_bytes long.
 * rows, row_bytes >= 1; strides >= row_bytes or rows == 1; src and dst do not overlap. */
struct kvf_copy {
	const uint8_t *src;
	uint8_t *dst;
	uint64_t rows;
	uint64_t row_bytes;
	uint64_t src_stride;
	uint64_t dst_stride;
};

#define KVF_COPY_BATCH_MAX 128u /* copies in one submit */
#define KVF_COPY_STREAM    1u   /* bulk: will not be read soon, the cache need not keep it */

struct kvf_copy_caps {
	uint32_t max_channels;  /* that can be open at once */
	uint32_t channel_depth; /* batches in flight per channel */
	uint32_t per_lcore;     /* channels worth driving from one lcore; 0: all there are */
	char detail[128];       /* which kernel or devices, for people */
};

struct kvf_copy_done {
	uint64_t tag;
	int32_t error; /* 0 or enum kvf_error */
	uint32_t reserved;
};

struct kvf_copy_drv;     /* one opened driver */
struct kvf_copy_channel; /* one thread's path into it */

struct kvf_copy_ops {
	const char *name; /* "cpu", "dmadev", ... */

	/* `args` is what follows ':' in --driver NAME:ARGS, or NULL. Fails with KVF_E_DRIVER when
	 * what the name stands for is not there. */
	int (*open)(const char *args, struct kvf_copy_drv **drv, struct kvf_copy_caps *caps,
		struct kvf_err *err);
	void (*close)(struct kvf_copy_drv *drv);

	/* Make [base, base + length) usable; page-aligned. *handle goes to unmap. */
	int (*map)(struct kvf_copy_drv *drv, void *base, uint64_t length, uint64_t page_size,
		void **handle, struct kvf_err *err);
	int (*unmap)(struct kvf_copy_drv *drv, void *handle, struct kvf_err *err);

	int (*channel_open)(
		struct kvf_copy_drv *drv, struct kvf_copy_channel **ch, struct kvf_err *err);
	void (*channel_close)(struct kvf_copy_channel *ch); /* nothing may be in flight */

	/* Takes all n (1..KVF_COPY_BATCH_MAX) copies, or none: 0 or KVF_E_AGAIN when channel_depth
	 * batches are in flight. `copies` may be reused on return. No malloc, no lock, no system
	 * call. */
	int (*submit)(struct kvf_copy_channel *ch, const struct kvf_copy *copies, uint32_t n,
		uint32_t flags, uint64_t tag);

	/* Drives the channel and returns up to max finished batches, in any order. A finished batch
	 * has stopped touching memory, and its bytes are visible to any thread that acquires after
	 * this returns. */
	uint32_t (*poll)(struct kvf_copy_channel *ch, struct kvf_copy_done *done, uint32_t max);

	/* Bytes and copies moved so far, readable from any thread (relaxed). */
	void (*counters)(const struct kvf_copy_channel *ch, uint64_t *bytes, uint64_t *copies);
};

extern const struct kvf_copy_ops kvf_copy_cpu;
extern const struct kvf_copy_ops kvf_copy_dmadev; /* needs EAL */
extern const struct kvf_copy_ops kvf_copy_mixed;  /* small pieces to one, large ones to the other */
extern const struct kvf_copy_ops kvf_copy_fault;  /* wraps another; for tests */

#endif
