/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside drivers/cpu: what one instruction set offers (a kernel), and how a batch is cut up for it.
 *
 * One core reaches the memory bus's limit only when it keeps several DRAM pages busy at once. So
 * the kernels do not copy one row after the other: they take up to KVF_CPU_LANES equally long rows
 * - the same page of several layers, say - and copy a few cache lines of each in turn.
 */
#ifndef KVF_DRIVERS_CPU_KERNEL_H
#define KVF_DRIVERS_CPU_KERNEL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "drivers/copy.h"

#define KVF_CPU_LANES 8u

/*
 * How many bytes, of all lanes together, are fetched ahead of the loads. Enough to cover the
 * latency of memory, and little enough to be still there when the loads come.
 */
#define KVF_CPU_AHEAD 4096u

/* Rows from here on take more lines in a turn and are fetched from further ahead: measured, both
 * hurt where rows are short. */
#define KVF_CPU_LONG_ROW   4096u
#define KVF_CPU_AHEAD_LONG 8192u

/* Non-temporal stores move whole lines; below this a row is mostly head and tail. */
#define KVF_CPU_STREAM_ROW 128u

/* The same for people; kvferryd prints it when it starts. */
#define KVF_CPU_TABLE "memcpy below 128 B, then 128 B a turn, from 4096 B on 384"
static_assert(KVF_CPU_STREAM_ROW == 128 && KVF_CPU_LONG_ROW == 4096, "KVF_CPU_TABLE says so");

/* A batch smaller than this is sooner done with ordinary stores, which need not reach memory before
 * it can be reported. */
#define KVF_CPU_STREAM_BATCH 4096u

/* One row to copy. */
struct kvf_cpu_lane {
	const uint8_t *src;
	uint8_t *dst;
	/* Same-sized source row that this lane copies later, to be fetched into the cache; never
	 * NULL, src itself when there is none. */
	const uint8_t *ahead;
};

struct kvf_cpu_kernel {
	const char *name;
	const char *detail; /* for kvf_copy_caps.detail */
	const char *needs;  /* CPU features, for the error when they are missing */
	bool (*available)(void);

	/* Copies `bytes` in each of the g (1..KVF_CPU_LANES) lanes, bypassing the cache with the
	 * stores. NULL: this kernel has no such stores. */
	void (*stream)(const struct kvf_cpu_lane *lanes, uint32_t g, uint64_t bytes);

	/* Orders the streamed stores before all later stores. NULL with stream. */
	void (*fence)(void);
};

extern const struct kvf_cpu_kernel kvf_cpu_portable;
#if defined(__x86_64__)
extern const struct kvf_cpu_kernel kvf_cpu_avx2;
extern const struct kvf_cpu_kernel kvf_cpu_avx512;
#endif

/* All kernels of this build, best first. */
extern const struct kvf_cpu_kernel *const kvf_cpu_kernels[];
extern const size_t kvf_cpu_kernels_num;

/* The one called `name`, or the first available one when name is NULL or "". NULL with *err
 * (KVF_E_DRIVER) when there is none such, or this CPU lacks what it needs. */
const struct kvf_cpu_kernel *kvf_cpu_pick(const struct kvf_cpu_kernel *const *kernels, size_t n,
	const char *name, struct kvf_err *err);

/* Copies the whole batch; returns the number of bytes when every one is written and fenced. */
uint64_t kvf_cpu_run(
	const struct kvf_cpu_kernel *k, const struct kvf_copy *copies, uint32_t n, bool stream);

#endif
