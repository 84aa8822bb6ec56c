/* SPDX-License-Identifier: BSD-3-Clause */
/* Clients that do what the library would not. */
#ifndef KVF_TESTS_RAW_H
#define KVF_TESTS_RAW_H

#include <stdbool.h>
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

/* A client of its own: the socket, the descriptors of WELCOME and the mapped ring. */
struct raw {
	int sock;
	int completion_fd, doorbell_fd;
	void *mem;
	uint64_t bytes;
	struct kvf_ring_view ring;
	struct kvf_pool *pool;
	uint32_t tail;
	uint64_t seq;
};

struct raw_shape {
	enum kvf_role role;
	const char *group;
	uint32_t sq_entries, cq_entries;
	uint64_t arena_bytes;
	uint32_t num_pages; /* of one token and 16 bytes; list 0 */
};

/* Registers as the only member of its group. Aborts the program when that fails. */
void raw_open(struct raw *r, const char *path, const struct raw_shape *shape);
void raw_close(struct raw *r);

/* The packet of a registration; returns its length. */
int raw_register_packet(const struct raw_shape *shape, struct kvf_pool *pool, void *buf);
struct kvf_pool *raw_pool(const struct raw_shape *shape);

/* Puts an entry into the ring and moves the tail. */
void raw_put(struct raw *r, const struct kvf_sqe *sqe);
void raw_ring(struct raw *r);

/* Waits for the engine to end the connection: true. With a refusal: its code and sentence are in
 * *err, else code 0. */
bool raw_dropped(int sock, int ms, struct kvf_err *err);

#endif
