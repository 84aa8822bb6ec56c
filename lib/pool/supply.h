/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What memory the host can still give, read from /proc and /sys before anything is touched: a page
 * that is not there otherwise shows as SIGBUS or an OOM kill, never as an error code.
 *
 * `root` goes in front of every path: "" for the real host, a made-up tree in tests.
 */
#ifndef KVF_POOL_SUPPLY_H
#define KVF_POOL_SUPPLY_H

#include <stdbool.h>
#include <stdint.h>

struct kvf_huge_supply {
	bool supported;      /* the kernel offers this page size */
	uint64_t total;      /* pages of this size in the host's pool, in use or not */
	uint64_t free;       /* free and promised to nobody; on the asked node only, if one was */
	uint64_t overcommit; /* more that the kernel may make on demand (nr_overcommit_hugepages) */
};

/* node -1: any. Files that cannot be read count as 0 pages. */
void kvf_huge_supply(const char *root, uint64_t page_size, int node, struct kvf_huge_supply *s);

struct kvf_memory_supply {
	uint64_t
		bytes; /* that ordinary pages may still take; UINT64_MAX if nothing could be read */
	const char *limit; /* the tightest limit's name: "MemAvailable", "cgroup", "node" */
};

/* The smallest of MemAvailable, what the memory cgroups (v1 or v2) leave, and what the node has. */
void kvf_memory_supply(const char *root, int node, struct kvf_memory_supply *s);

#endif
