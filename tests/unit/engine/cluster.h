/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Some prefill and decode peers at one engine, driven from one thread. A room's pages are handed
 * out from each peer's shuffled ones, round and round; everything that arrives is checked against
 * the peers' shadows, and every event against the rule that a status never goes back.
 */
#ifndef KVF_TESTS_CLUSTER_H
#define KVF_TESTS_CLUSTER_H

#include "common/peer.h"
#include "common/rig.h"
#include "common/suite.h"

#define CLUSTER_MAX     16u
#define CLUSTER_WAIT_MS 60000 /* for what must happen; only a hang gets there */

/* What the events of one room at one peer said so far. */
struct seen {
	const struct peer *peer;
	uint64_t room;
	uint64_t tokens;
	int error;
	uint8_t status;
	uint8_t drained;
	uint8_t mask; /* 1 << status of every event */
	uint32_t events;
};

struct cluster {
	struct rig *rig;
	bool own_rig;
	uint32_t np, nd;
	struct peer p[CLUSTER_MAX];
	struct peer d[CLUSTER_MAX];
	uint32_t *order[2][CLUSTER_MAX]; /* shuffled page ids */
	uint32_t next[2][CLUSTER_MAX];   /* how many are handed out */
	uint64_t rand;
	uint64_t key;
	const char *prefill_group; /* that receivers name; NULL: any */
	struct seen *seen;
	uint32_t num_seen, cap_seen;
};

struct cluster_shape {
	uint32_t np, nd; /* prefill ranks, decode ranks (DCP nd) */
	struct peer_shape prefill;
	struct peer_shape decode; /* sharding is set per rank */
	uint32_t interleave;      /* of decode; 0: 1 */
	uint32_t prefill_dcp;     /* prefill rank r is DCP rank r % prefill_dcp; 0: replicas */
	uint32_t prefill_interleave;
	const char *prefill_name, *decode_name; /* groups; NULL: "p" and "d" */
	struct rig *rig;                        /* NULL: one of its own */
	const struct kvf_endpoint_config *limits;
};

/* Lists of one room at one peer, in memory of the caller's. */
struct cluster_lists {
	uint32_t aux, state;
	uint32_t *pages;
	struct kvf_pages lists[3];
	uint32_t num;
};

/* DeepSeek-like small shape: `layers` x 1152 B, page 16 on both sides, aux of 64 B. */
struct cluster_shape cluster_small(uint32_t np, uint32_t nd, uint32_t layers);

void cluster_open(
	struct cluster *c, const struct kvf_engine_config *cfg, const struct cluster_shape *shape);
/* The same for peers that were declared by the caller in c->p[], c->d[] (c zeroed otherwise). */
void cluster_open_declared(
	struct cluster *c, const struct kvf_engine_config *cfg, const struct cluster_shape *shape);
void cluster_close(struct cluster *c); /* checks every pool first */

/* Pages for [from, to) of a new room; slots from `slot`. */
void cluster_lists(struct cluster *c, bool decode, uint32_t rank, uint64_t from, uint64_t to,
	uint32_t slot, struct cluster_lists *l);
void cluster_lists_free(struct cluster_lists *l);

/* Decode rank grants; its shadow expects the bytes. Full rings are waited for. Returns kvf_recv()'s
 * code. */
int cluster_recv(struct cluster *c, uint32_t rank, uint64_t room, uint64_t prefix, uint64_t total,
	uint32_t slot, struct kvf_err *err);
/* Prefill rank writes and sends one chunk. */
int cluster_send(struct cluster *c, uint32_t rank, uint64_t room, uint64_t start, uint64_t n,
	uint64_t total, uint32_t slot, struct kvf_err *err);
/* With lists of the caller's. */
int cluster_recv_lists(
	struct cluster *c, uint32_t rank, const struct kvf_recv_args *args, struct kvf_err *err);
int cluster_send_lists(
	struct cluster *c, uint32_t rank, const struct kvf_send_args *args, struct kvf_err *err);

/* All ranks of both sides take part in one room, sent in chunks of `chunk` tokens. */
void cluster_room(struct cluster *c, uint64_t room, uint64_t prefix, uint64_t total, uint64_t chunk,
	uint32_t slot);
/* Only the receivers, or only the senders from `start` on. */
void cluster_recv_all(
	struct cluster *c, uint64_t room, uint64_t prefix, uint64_t total, uint32_t slot);
void cluster_send_all(struct cluster *c, uint64_t room, uint64_t start, uint64_t total,
	uint64_t chunk, uint32_t slot);

/* Polls every endpoint once; true if there was any event. */
bool cluster_poll(struct cluster *c);
/* NULL before its first event. */
const struct seen *cluster_seen(const struct cluster *c, const struct peer *p, uint64_t room);
/* Polls until the peer's room has (at least) this status or ended, or ms passed; the status. */
int cluster_until(struct cluster *c, struct peer *p, uint64_t room, int status, int ms);
/* Until it ended and is drained. */
int cluster_wait(struct cluster *c, struct peer *p, uint64_t room, int ms);
/* kvf_endpoint_close(), and what its events said is forgotten; peer_connect() brings it back. */
int cluster_leave(struct cluster *c, struct peer *p);
/* kvf_room_release(); full rings are waited for. */
int cluster_release(struct cluster *c, struct peer *p, uint64_t room);

/* Waits until the room ended at every peer; checks that it is `status`; releases it. */
void cluster_finish(struct cluster *c, uint64_t room, int status);

/* A number out of the engine's status, "dispatcher.slab_used" or the like. */
int64_t cluster_stat(struct cluster *c, const char *path);
/* Waits until no room is open at the engine; returns the slab memory that is still in use then (of
 * links). */
int64_t cluster_idle(struct cluster *c);

void cluster_sleep_ms(int ms);

#endif
