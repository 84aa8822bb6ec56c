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

enum kvf_ep_state {
	KVF_EP_UP,
	KVF_EP_LOST,  /* all open rooms are Failed; the engine's end of the socket is still open, so
			 it may touch pages */
	KVF_EP_DOWN,  /* it is closed: all rooms are drained; nothing of the engine is mapped */
	KVF_EP_ASKED, /* the same, and REGISTER is sent */
};

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

	enum kvf_ep_state state;
	bool corrupt; /* the completion ring makes no sense any more */
	/* A loss of the engine that the caller was not told of, by kvf_poll() and by kvf_wait(). */
	bool poll_gone, wait_gone;
	struct kvf_err lost_why;
	struct kvf_err engine_said; /* last error about the endpoint as a whole */

	/* connection */
	uint64_t seq_base;      /* rooms up to here were posted to an earlier engine */
	uint32_t attempts;      /* refused since the engine was lost, the last one for: */
	struct kvf_err refusal; /* code 0: none yet */
	uint64_t retry_ms;      /* DOWN: time of the next attempt, coarse clock */
	uint64_t answer_ms;     /* ASKED: when the engine should have answered */
	uint32_t pause_ms;      /* to the attempt after a refusal */
	const struct kvf_pool *pool;
	void *packet; /* REGISTER */
	size_t packet_len;

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

/* Registers, once or (wait) until the engine is there, within open_timeout_ms. */
int kvf_ep_connect(struct kvf_endpoint *ep, bool wait, struct kvf_err *err);

/* Lets go of everything that came from the engine. */
void kvf_ep_disconnect(struct kvf_endpoint *ep);

/* UP or LOST to DOWN, with all rooms ended and drained. */
void kvf_ep_down(struct kvf_endpoint *ep);

/* In DOWN and ASKED: one step towards UP if it is time for one, or `now`. Never waits. */
void kvf_ep_reconnect(struct kvf_endpoint *ep, bool now);

/* In DOWN and ASKED: sleeps up to left_ms or until it is time for a step, and takes it. */
int kvf_ep_reconnect_sleep(struct kvf_endpoint *ep, int left_ms);

/* KVF_E_ENGINE_GONE with what is known about it. Not when UP. */
int kvf_ep_gone(const struct kvf_endpoint *ep, struct kvf_err *err);

static inline bool
kvf_ep_connected(const struct kvf_endpoint *ep)
{
	return ep->state == KVF_EP_UP || ep->state == KVF_EP_LOST;
}

/* Applies what the completion ring holds, a bounded number of entries. */
void kvf_ep_reap(struct kvf_endpoint *ep);

/* Is the engine still there, or there again? At most one system call every 10 ms unless `now`. */
void kvf_ep_check(struct kvf_endpoint *ep, bool now);

/* The shared memory holds what no engine writes: gives up on it, and asks the engine to drain. */
void kvf_ep_corrupt(struct kvf_endpoint *ep, const char *what, uint64_t value, uint64_t limit);

/* Wakes the engine if it said that it sleeps. After kvf_ring_fence(). */
void kvf_ep_ring(struct kvf_endpoint *ep);

#endif
