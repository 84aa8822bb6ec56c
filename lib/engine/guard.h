/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Surviving pools whose memory goes away. A worker can punch a hole into its own memfd or hugetlbfs
 * file; a copy that touches it gets SIGBUS on whichever thread copies. The handler puts a private
 * page in its place, so that the copy goes on harmlessly, and marks the region as lost; the engine
 * then drops the pool's owner.
 */
#ifndef KVF_ENGINE_GUARD_H
#define KVF_ENGINE_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/error.h>

struct kvf_guard_region;

/* Installs / removes the SIGBUS handler; faults outside all regions go to the handler that was
 * there before. */
int kvf_guard_start(struct kvf_err *err);
void kvf_guard_stop(void);

/* Control thread. The region must be removed before it is unmapped. NULL when the table is full. */
struct kvf_guard_region *kvf_guard_add(void *base, uint64_t length, uint64_t page_size);
void kvf_guard_remove(struct kvf_guard_region *region);

/* Any thread: did a page of it go away? */
bool kvf_guard_lost(const struct kvf_guard_region *region);

#endif
