/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The worker side: open an endpoint at kvferryd, grant pages (decode) or send them (prefill),
 * learn when they arrived.
 *
 * Threading: one endpoint is used by one thread at a time; different endpoints are
 * independent. The library starts no threads and installs no signal handlers. Nothing
 * here waits except kvf_endpoint_open(), kvf_endpoint_close() and kvf_wait(), each with a limit.
 *
 * Life of a room: post (kvf_recv() or kvf_send()) -> states rise -> Success or Failed ->
 * drained -> kvf_room_release(). Pages belong to the engine from the post until the room is
 * drained on this endpoint; only then may they be reused.
 *
 * Life of an endpoint: when kvferryd dies, stops or drops the endpoint, all open rooms become
 * Failed with the reason, then drained, and kvf_poll() says KVF_E_ENGINE_GONE, once.
 * From then on each call of kvf_poll(), kvf_wait(), kvf_recv(), kvf_send() or kvf_endpoint_state()
 * takes, when it is time for one, a step towards a new connection; only kvf_wait() sleeps. There
 * the endpoint registers with the same pool, declaration, group and rank, and goes on. Rooms of the
 * engine before can still be looked at and released; they mean nothing to the new one.
 */
#ifndef KVFERRY_CLIENT_H
#define KVFERRY_CLIENT_H

#include <stdint.h>

#include <kvferry/error.h>
#include <kvferry/geometry.h>
#include <kvferry/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVF_DEFAULT_SOCKET "/tmp/kvferry.sock"
#define KVF_GROUP_NAME_MAX 32u  /**< bytes of a group name with its NUL */
#define KVF_MAX_GROUP_SIZE 256u /**< endpoints in a group */

enum kvf_role {
	KVF_PREFILL = 1,
	KVF_DECODE = 2,
};

/** States of a room at one endpoint; never go back, Failed is sticky. */
enum kvf_status {
	KVF_FAILED = 0,
	KVF_BOOTSTRAPPING = 1,     /**< posted; the other side is not known yet */
	KVF_WAITING_FOR_INPUT = 2, /**< both sides are there; no data yet */
	KVF_TRANSFERRING = 3,
	KVF_SUCCESS = 4,
};

/** Bits of `flags` of an endpoint. */
#define KVF_ENDPOINT_WAIT_ENGINE                                                                   \
	1u /**< keep trying within open_timeout_ms while no kvferryd is there yet, or the rank is  \
	      still held by a process that just died */

struct kvf_endpoint_config {
	const char *socket; /**< kvferryd's socket; NULL: KVF_DEFAULT_SOCKET */
	enum kvf_role role;
	const char *group;   /**< group of this endpoint, 1..31 bytes of printable ASCII; names are
				per role */
	uint32_t group_size; /**< endpoints in the group; all members say the same */
	uint32_t rank;       /**< this endpoint's place in it, < group_size */
	struct kvf_pool *pool;
	const struct kvf_geometry *geometry;
	uint32_t sq_entries;  /**< submissions that can wait, power of two; 0: 1024 */
	uint32_t cq_entries;  /**< completions that can wait, power of two; 0: 4096 */
	uint64_t arena_bytes; /**< index arrays that can wait, power of two; 0: 8 MiB. One request's
				 lists must fit */
	uint32_t max_rooms;   /**< rooms held at a time; 0: 16384 */
	uint32_t open_timeout_ms;      /**< 0: 10000 */
	uint32_t bootstrap_timeout_ms; /**< posted to "both sides there"; 0: 300000 */
	uint32_t waiting_timeout_ms; /**< both there to finished, from the last progress; 0: 300000
				      */
	uint32_t flags;              /**< KVF_ENDPOINT_* */
};

struct kvf_endpoint;

/**
 * Connects, hands over the pool's fd and the declaration, gets the rings. The pool must outlive
 * the endpoint; the geometry is copied. Without KVF_ENDPOINT_WAIT_ENGINE there is one attempt.
 * @return 0; KVF_E_TIMEOUT, KVF_E_VERSION, KVF_E_GEOMETRY, KVF_E_EXIST (rank taken), KVF_E_PERM,
 *         KVF_E_QUOTA, KVF_E_SYS (no engine at the socket), ...
 */
int kvf_endpoint_open(
	const struct kvf_endpoint_config *cfg, struct kvf_endpoint **ep, struct kvf_err *err);

/**
 * Is the endpoint at its engine? Looks at most every 10 ms.
 * @return 1: yes. 0: no, and it is reconnecting by itself; a while of this is what a restart of
 *         kvferryd looks like. Negative: the same, but the engine that is there refused for a
 * reason that waiting will not change (KVF_E_VERSION, KVF_E_PERM, KVF_E_GEOMETRY, ...). It is asked
 *         again every second all the same, since somebody may start another one. Unless 1, *err
 *         says why the engine was lost, how often it was tried and the last refusal.
 */
int kvf_endpoint_state(struct kvf_endpoint *ep, struct kvf_err *err);

/**
 * Fails what is still open, waits (up to open_timeout_ms) until the engine has stopped touching the
 * pool and unmapped it, frees the endpoint in every case. NULL is allowed.
 * @return 0, or KVF_E_TIMEOUT / KVF_E_ENGINE_GONE when the engine did not confirm.
 */
int kvf_endpoint_close(struct kvf_endpoint *ep);

/** Bits of `flags` of a request. */
#define KVF_ROOM_VERIFY                                                                            \
	1u /**< compare what was written with what was read; a difference fails the room */

/** Page ids for one list of a request. `ids` is copied before the call returns. */
struct kvf_pages {
	uint32_t list; /**< `kvf_component.list` that they address */
	uint32_t count;
	const uint32_t *ids;
};

/** Decode: grant pages for positions [prefix_tokens, total_tokens). */
struct kvf_recv_args {
	uint64_t room;
	uint64_t key;              /**< 0, or what the senders must show too */
	const char *prefill_group; /**< NULL: any */
	uint64_t prefix_tokens;    /**< already held; a multiple of the virtual page */
	uint64_t total_tokens;     /**< length of the prompt; both sides state it */
	const struct kvf_pages *lists;
	uint32_t num_lists;
	uint32_t bootstrap_timeout_ms; /**< 0: the endpoint's */
	uint32_t waiting_timeout_ms;   /**< 0: the endpoint's */
	uint32_t flags; /**< KVF_ROOM_*; either side's counts for what it takes part in */
	uint32_t reserved;
};

/**
 * Prefill: send one chunk, positions [start_token, start_token + num_tokens). The first chunk may
 * start anywhere at or before the receivers' prefix, each later one starts where the one before
 * ended; the chunk that ends at total_tokens is the final one. Token lists name this chunk's pages;
 * state and aux lists go with the final chunk only. A chunk of 0 tokens is allowed (it joins the
 * room early, or finishes a full prefix hit).
 */
struct kvf_send_args {
	uint64_t room;
	uint64_t key;
	uint64_t start_token;
	uint64_t num_tokens;
	uint64_t total_tokens;
	const struct kvf_pages *lists;
	uint32_t num_lists;
	uint32_t bootstrap_timeout_ms;
	uint32_t waiting_timeout_ms;
	uint32_t flags; /**< KVF_ROOM_*; either side's counts for what it takes part in */
	uint32_t reserved;
};

/**
 * Post a grant or a chunk. Return at once.
 * @return 0; KVF_E_AGAIN when the submission ring or arena is full (nothing was posted: poll, try
 * again); KVF_E_EXIST (decode: room posted before and not released; prefill: room already failed,
 * finished or aborted here), KVF_E_QUOTA (more lists, rooms or arena than this endpoint has),
 * KVF_E_INVAL, KVF_E_ORDER, KVF_E_ENGINE_GONE (nothing was posted; it is reconnecting). What only
 * the engine can judge arrives as Failed.
 */
int kvf_recv(struct kvf_endpoint *ep, const struct kvf_recv_args *args, struct kvf_err *err);
int kvf_send(struct kvf_endpoint *ep, const struct kvf_send_args *args, struct kvf_err *err);

/** Something about a room changed. Several changes since the last poll come as one event. */
struct kvf_event {
	uint64_t room;
	uint64_t tokens; /**< prefill: positions below this are read and their pages free; decode:
			    arrived */
	int error;       /**< enum kvf_error when status is KVF_FAILED */
	uint8_t status;  /**< enum kvf_status */
	uint8_t drained; /**< 1: the engine will not touch this room's pages here any more */
	uint8_t clipped; /**< 1: a state list was longer than the other side's and was clipped */
	uint8_t reserved;
};

/**
 * Takes up to `max` events. Never blocks, no system call on the common path.
 * @return number of events, or KVF_E_ENGINE_GONE, once for each loss of the engine, when every
 * event was taken (all rooms of that engine are then ended and drained). It reconnects by itself.
 */
int kvf_poll(struct kvf_endpoint *ep, struct kvf_event *events, int max);

/**
 * Sleeps until kvf_poll() has something to say or `timeout_ms` (>= 0) passed, or,
 * if the engine was lost before the call, until the endpoint is connected again.
 * @return 1 there is something; 0 timeout, or connected again; KVF_E_ENGINE_GONE, once for each
 * loss that kvf_poll() has not said yet and will say; KVF_E_INVAL for a negative limit.
 */
int kvf_wait(struct kvf_endpoint *ep, int timeout_ms);

/** Status as last seen, after looking at the rings: enum kvf_status, or KVF_E_NOENT. */
int kvf_room_status(struct kvf_endpoint *ep, uint64_t room);

/** The first root cause: fills *err and returns its code; 0 if the room did not fail; KVF_E_NOENT.
 */
int kvf_room_error(struct kvf_endpoint *ep, uint64_t room, struct kvf_err *err);

/** 1 when the engine will not touch this room's pages of this endpoint any more, else 0;
 * KVF_E_NOENT. */
int kvf_room_drained(struct kvf_endpoint *ep, uint64_t room);

/**
 * Fails the room at every party. Returns at once; pages are safe to reuse when the room is drained.
 * Harmless on a room that is already finished; the status changes when the engine has answered.
 * @return 0, KVF_E_NOENT, KVF_E_AGAIN, KVF_E_ENGINE_GONE.
 */
int kvf_abort(struct kvf_endpoint *ep, uint64_t room, const char *reason, struct kvf_err *err);

/**
 * Forgets a finished room, so that its id can be used again here.
 * @return 0, KVF_E_NOENT, KVF_E_BUSY (not finished, or not drained yet), KVF_E_AGAIN.
 */
int kvf_room_release(struct kvf_endpoint *ep, uint64_t room, struct kvf_err *err);

/** The engine's status as JSON text, for people and scripts. timeout_ms 0: 10000. Free with free().
 */
int kvf_engine_status(const char *socket, uint32_t timeout_ms, char **json, struct kvf_err *err);

#ifdef __cplusplus
}
#endif
#endif
