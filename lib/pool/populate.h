/* SPDX-License-Identifier: BSD-3-Clause */
/* Making all pages of a shared mapping exist, with an errno instead of SIGBUS when there are none.
 */
#ifndef KVF_POOL_POPULATE_H
#define KVF_POOL_POPULATE_H

#include <stdint.h>

/* Callers go in steps of about this size and look at the host's memory in between. */
#define KVF_POPULATE_STEP (256ull << 20)

enum kvf_populate_how {
	KVF_POPULATE_BEST,      /* MADV_POPULATE_WRITE, or the other where the kernel lacks it */
	KVF_POPULATE_FALLOCATE, /* what kernels before 5.14 get */
};

/*
 * Populates [off, off + len) of the shared read-write mapping of `fd` that starts at base; off and
 * len are multiples of the page. `node` is where new pages must come from (-1: any); a mapping's
 * own policy is set by the caller beforehand. Returns 0 or a positive errno.
 */
int kvf_populate(
	int fd, void *base, uint64_t off, uint64_t len, int node, enum kvf_populate_how how);

#endif
