/* SPDX-License-Identifier: BSD-3-Clause */
/* Writing to a ring what the client library would not. */
#ifndef KVF_TESTS_RAW_H
#define KVF_TESTS_RAW_H

#include <string.h>

#include "client/endpoint.h"

/* Posts an entry as it stands, through an endpoint that the library opened. */
static inline void
raw_post(struct kvf_endpoint *ep, const struct kvf_sqe *sqe)
{
	uint32_t slot = ep->sq_tail & (ep->ring.sq_entries - 1);

	memcpy(&ep->ring.sq[slot], sqe, sizeof(*sqe));
	ep->sqe_arena_end[slot] = ep->arena_head;
	ep->sq_tail++;
	atomic_store_explicit(&ep->ring.hdr->sq_tail, ep->sq_tail, memory_order_release);
	kvf_ring_fence();
	kvf_ep_ring(ep);
}

#endif
