/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A pool: the hugepage memory that one worker's KV cache lives in.
 *
 * The worker creates it, hands its fd to kvferryd when it opens an endpoint, and may
 * keep it across endpoints. Functions on one pool: one thread at a time.
 */
#ifndef KVFERRY_POOL_H
#define KVFERRY_POOL_H

#include <stdint.h>

#include <kvferry/error.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kvf_pool;

#define KVF_POOL_ALLOW_4K                                                                          \
	1u /**< take 4 KiB pages, with a warning on stderr, where hugepages lack */

struct kvf_pool_config {
	uint64_t length;    /**< bytes wanted; need not be a multiple of the page */
	uint64_t page_size; /**< 2 MiB (also for 0) or 1 GiB; 4096 asks for small pages outright */
	const char *
		path; /**< a file to create on a hugetlbfs mount; NULL: an anonymous sealed memfd */
	const char *name; /**< shown in messages and /proc; NULL: "kvferry" */
	int numa_node;    /**< node that the memory must come from; -1: any */
	uint32_t flags;   /**< KVF_POOL_* */
};

/**
 * Creates, seals, populates and maps a pool. All its pages exist when this returns.
 * @return 0; KVF_E_NOHUGE naming needed=, free=, missing= and the `hugeadm` line that helps;
 *         KVF_E_INVAL, KVF_E_OVERFLOW, KVF_E_SYS; KVF_E_EXIST: path is taken;
 *         KVF_E_NOMEM: not enough memory for 4 KiB pages, or some other limit (mount, cgroup)
 * holds.
 */
int kvf_pool_create(const struct kvf_pool_config *cfg, struct kvf_pool **pool, struct kvf_err *err);

/** Unmaps, closes, and unlinks a file given by path. Close the endpoint first. NULL is allowed. */
void kvf_pool_destroy(struct kvf_pool *pool);

void *kvf_pool_addr(const struct kvf_pool *pool);
uint64_t kvf_pool_length(const struct kvf_pool *pool);        /**< logical: as asked for */
uint64_t kvf_pool_mapped_length(const struct kvf_pool *pool); /**< rounded up to the page */
uint64_t kvf_pool_page_size(const struct kvf_pool *pool);     /**< what it really got, bytes */
int kvf_pool_fd(const struct kvf_pool *pool);                 /**< stays the pool's */

#ifdef __cplusplus
}
#endif
#endif
