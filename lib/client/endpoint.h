/* SPDX-License-Identifier: BSD-3-Clause */
/* The insides of an endpoint, shared by the files of this folder only. */
#ifndef KVF_CLIENT_ENDPOINT_H
#define KVF_CLIENT_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include <kvferry/client.h>

#include "client/rooms.h"
#include "wire/message.h"
#include "wire/ring.h"

struct kvf_endpoint {
	/* submission */
	struct kvf_ring_view ring;
	uint32_t sq_tail;
	uint32_t sq_done;    /* sq_head as last believed: everything before it is free again */
	uint64_t arena_head; /* free-running byte positions; byte p lies at p & (arena_bytes - 1) */
	uint64_t arena_tail;
	uint64_t *sqe_arena_end; /* [sq_entries]: arena_head after the entry was placed */
	uint64_t last_seq;

	/* completion */
	uint32_t cq_head;
	uint64_t checked_ms; /* when the socket was last looked at, coarse clock */
	struct kvf_rooms rooms;

	/* `lost`: nothing can be posted any more, all open rooms are Failed. `closed`: the engine's
	 * end of the socket is closed, which proves that it touches no page any more. */
	bool lost;
	bool closed;
	bool corrupt; /* the completion ring makes no sense any more */
	struct kvf_err lost_why;
	struct kvf_err engine_said; /* last error about the endpoint as a whole */

	enum kvf_role role;
	uint32_t bootstrap_timeout_ms;
	uint32_t waiting_timeout_ms;
	uint32_t open_timeout_ms;
	int sock;
	int completion_fd; /* the engine rings, this side sleeps on it */
	int doorbell_fd;   /* this side rings */
	void *ring_mem;
	uint64_t ring_bytes;
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

/* Applies what the completion ring holds, a bounded number of entries. */
void kvf_ep_reap(struct kvf_endpoint *ep);

/* Is the engine still there? At most one system call every 10 ms unless `now`. */
void kvf_ep_check(struct kvf_endpoint *ep, bool now);

/* The shared memory holds what no engine writes: gives up on it, and asks the engine to drain. */
void kvf_ep_corrupt(struct kvf_endpoint *ep, const char *what, uint64_t value, uint64_t limit);

/* Wakes the engine if it said that it sleeps. After kvf_ring_fence(). */
void kvf_ep_ring(struct kvf_endpoint *ep);

#endif
