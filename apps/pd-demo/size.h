/* SPDX-License-Identifier: BSD-3-Clause */
/* How much fits on this machine, and what the run shrinks to if the wish does not. */
#ifndef PD_DEMO_SIZE_H
#define PD_DEMO_SIZE_H

#include <stdint.h>

#include "pd-demo/options.h"

#define DEMO_HUGE_BYTES (UINT64_C(2) << 20)

struct demo_machine {
	uint64_t huge_free;     /* 2 MiB pages that a pool can have */
	uint64_t mem_available; /* bytes, the smaller of the host's and the cgroup's */
};

void demo_machine_read(struct demo_machine *machine);

struct demo_sizing {
	enum demo_memory memory; /* HUGE or SMALL */
	uint32_t tokens;
	uint64_t bytes;   /* of all pools, rounded up to their pages */
	uint64_t budget;  /* what they had to fit into */
	uint64_t wanted;  /* bytes that the wish would have taken */
	char reason[252]; /* why it is not the wish; "" if it is */
};

/* 2 MiB pages to set aside for a run of these options: all it wants, but within a sensible share of
 * the memory. */
int demo_hugepages_wanted(const struct demo_options *o, const struct model *m,
	const struct demo_machine *machine, uint64_t *pages, struct kvf_err *err);

/* Bytes of all pools for o->tokens, each rounded up to `page_bytes`. */
int demo_pools_bytes(const struct demo_options *o, const struct model *m, uint64_t page_bytes,
	uint64_t *bytes, struct kvf_err *err);

/* Chooses; KVF_E_NOHUGE or KVF_E_NOMEM naming needed= and available= when not even the shortest
 * prompt fits. */
int demo_size(const struct demo_options *o, const struct model *m,
	const struct demo_machine *machine, struct demo_sizing *s, struct kvf_err *err);

#endif
