/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Some prefill and decode peers at one engine, driven from one thread. A room's pages are handed out at random from
 * each peer's free ones; everything that arrives is checked against the peers' shadows.
 */
#ifndef KVF_TESTS_CLUSTER_H
#define KVF_TESTS_CLUSTER_H

#include "common/peer.h"
#include "common/rig.h"
#include "common/suite.h"

#define CLUSTER_MAX 16u

struct cluster {
	struct rig *rig;
	uint32_t np, nd;
	struct peer p[CLUSTER_MAX];
	struct peer d[CLUSTER_MAX];
	uint32_t *order[2][CLUSTER_MAX]; /* shuffled page ids */
	uint32_t next[2][CLUSTER_MAX];	 /* how many are handed out */
	uint64_t rand;
};

struct cluster_shape {
	uint32_t np, nd; /* prefill ranks (replicas), decode ranks (DCP nd) */
	struct peer_shape prefill;
	struct peer_shape decode; /* sharding is set per rank */
	uint32_t interleave;	  /* of decode; 0: 1 */
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

void cluster_open(struct cluster *c, const struct kvf_engine_config *cfg,
	const struct cluster_shape *shape);
void cluster_close(struct cluster *c); /* checks every pool first */

/* Pages for [from, to) of a new room; slots from `slot`. */
void cluster_lists(struct cluster *c, bool decode, uint32_t rank, uint64_t from, uint64_t to,
	uint32_t slot, struct cluster_lists *l);
void cluster_lists_free(struct cluster_lists *l);

/* Decode rank grants; its shadow expects the bytes. Returns kvf_recv()'s code. */
int cluster_recv(struct cluster *c, uint32_t rank, uint64_t room, uint64_t prefix, uint64_t total,
	uint32_t slot, struct kvf_err *err);
/* Prefill rank writes and sends one chunk. */
int cluster_send(struct cluster *c, uint32_t rank, uint64_t room, uint64_t start, uint64_t n,
	uint64_t total, uint32_t slot, struct kvf_err *err);

/* All ranks of both sides take part in one room, sent in chunks of `chunk` tokens. */
void cluster_room(struct cluster *c, uint64_t room, uint64_t prefix, uint64_t total, uint64_t chunk,
	uint32_t slot);

/* Waits until the room ended at every peer; checks that it is `status`; releases it. */
void cluster_finish(struct cluster *c, uint64_t room, int status);

#endif
