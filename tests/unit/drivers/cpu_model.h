/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies of a kernel against a byte-wise model. Source memory is read-only, and every byte around
 * and between the destination rows is compared too, so a stray write shows wherever it lands.
 */
#ifndef KVF_TESTS_CPU_MODEL_H
#define KVF_TESTS_CPU_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "drivers/copy.h"
#include "drivers/cpu/kernel.h"

#define ARENA ((size_t)24 << 20)

extern uint8_t *src_mem; /* ARENA random bytes */
extern uint8_t *dst_mem; /* ARENA bytes to copy to; keep 128 away from its ends */

/* The driver with one kernel. */
struct fixture {
	const struct kvf_cpu_kernel *kernel;
	struct kvf_copy_drv *drv;
	struct kvf_copy_caps caps;
	struct kvf_copy_channel *ch;
};

void arena_setup(void);

/* false: failed, or skipped because this CPU cannot run the kernel. */
bool fixture_open(struct fixture *f, const struct kvf_cpu_kernel *kernel);
void fixture_close(struct fixture *f);

/* Before and after the n copies are done by whatever is tested. */
void window_begin(const struct kvf_copy *c, uint32_t n, size_t *lo, size_t *hi);
bool window_same(const struct kvf_copy *c, uint32_t n, size_t lo, size_t hi, const char *what);

/* One batch through the driver; both_ways: streamed, then plain. */
bool copies_right(struct fixture *f, const struct kvf_copy *c, uint32_t n, uint32_t flags);
bool both_ways(struct fixture *f, const struct kvf_copy *c, uint32_t n);

#endif
