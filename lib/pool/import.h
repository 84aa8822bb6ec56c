/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's view of a pool that somebody else created: nothing about it is believed. */
#ifndef KVF_POOL_IMPORT_H
#define KVF_POOL_IMPORT_H

#include <stdint.h>

#include <kvferry/error.h>

struct kvf_pool_view {
	void *base;
	uint64_t length;        /* logical, enforced by every address computed from the geometry */
	uint64_t mapped_length; /* multiple of page_size */
	uint64_t page_size;     /* as the kernel says, not as the peer says */
	int fd;                 /* owned */
};

/*
 * Takes over `fd` (closes it on failure too) and maps it shared and populated. Accepts memfds with
 * F_SEAL_SHRINK (tmpfs or hugetlb) and files on a hugetlbfs mount, at least `length` bytes long and
 * not larger than `max_bytes`. Anything else: KVF_E_PERM or KVF_E_INVAL with what was found and
 * what is needed.
 */
int kvf_pool_import(int fd, uint64_t length, uint64_t max_bytes, struct kvf_pool_view *view,
	struct kvf_err *err);
void kvf_pool_unimport(struct kvf_pool_view *view);

#endif
