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
 * F_SEAL_SHRINK (tmpfs or hugetlb) and files on a hugetlbfs mount, of at least `length` bytes,
 * whose pages exist already; `length` must be 1..max_bytes. Anything else: KVF_E_PERM (the wrong
 * kind of file) or KVF_E_INVAL (the wrong size, holes) with what was found and what is needed;
 * KVF_E_SYS where the kernel fails us.
 *
 * No seal keeps the owner from punching holes or, on a mount, from cutting the file later: whoever
 * touches base must be ready for SIGBUS.
 */
int kvf_pool_import(int fd, uint64_t length, uint64_t max_bytes, struct kvf_pool_view *view,
	struct kvf_err *err);
/* Unmaps, closes and zeroes; a zeroed view is left alone, so calling it twice is harmless. */
void kvf_pool_unimport(struct kvf_pool_view *view);

#endif
