/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A worker for tests: an endpoint with its pool and a shadow of what every byte of that pool must
 * be.
 *
 * A byte's value follows from what it means: (room, class, tag, kind, layer, occurrence, head,
 * position, byte). Where it lies is worked out here by counting positions one by one, apart from
 * the planner. Bytes that mean nothing hold a guard pattern that depends on their offset.
 */
#ifndef KVF_TESTS_PEER_H
#define KVF_TESTS_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/kvferry.h>

#define PEER_TOKENS 0u /* lists of peer_mla() */
#define PEER_AUX    1u
#define PEER_STATE  2u

struct peer {
	struct kvf_geometry geo;
	struct kvf_component comps[KVF_MAX_COMPONENTS];
	struct kvf_entry *entries;
	uint64_t pool_bytes;
	uint64_t page_size; /* 4096 or 2 MiB; 0: 4096 */
	enum kvf_role role;
	char group[KVF_GROUP_NAME_MAX];
	uint32_t group_size;
	uint32_t rank;
	struct kvf_pool *pool;
	uint8_t *base;
	uint8_t *shadow;
	struct kvf_endpoint *ep;
	bool clipped; /* an event said so */
};

struct peer_shape {
	uint32_t layers;
	uint32_t first_layer;
	uint32_t row_bytes; /* of one token and layer */
	uint32_t page_tokens;
	uint32_t num_pages;
	struct kvf_sharding sharding; /* size 0: {1, 0, 1} */
	uint32_t aux_bytes;           /* 0: no aux component */
	uint32_t state_bytes;         /* 0: no state component */
	uint32_t
		draft_layers; /* in a component of their own, pages of page_tokens * size, list 0 */
	uint32_t slots;       /* of aux and state; 0: 16 */
};

/* Declares one latent buffer per layer, with gaps between buffers, and what else the shape asks
 * for. */
void peer_mla(struct peer *p, const struct peer_shape *shape);

/* For declarations built elsewhere: copies geo, entries and all. */
void peer_declare(struct peer *p, const struct kvf_geometry *geo, uint64_t pool_bytes);

/* Creates the pool full of guard bytes and opens the endpoint. cfg may be NULL, or hold limits and
 * time-outs; role, group, rank, pool and geometry are filled in here. */
int peer_open(struct peer *p, const char *socket, enum kvf_role role, const char *group,
	uint32_t group_size, uint32_t rank, const struct kvf_endpoint_config *cfg,
	struct kvf_err *err);
/* Only the pool; the endpoint is opened later with peer_connect(). */
int peer_pool(struct peer *p, struct kvf_err *err);
int peer_connect(struct peer *p, const char *socket, const struct kvf_endpoint_config *cfg,
	struct kvf_err *err);
void peer_close(struct peer *p);

/* Pages that rows of [from, to) need, from the page of the first row at or after `from` on; where
 * that page stands among the rank's pages of the prompt goes into *first_page, if asked for. */
uint32_t peer_span(const struct kvf_sharding *sh, uint32_t page_tokens, uint64_t from, uint64_t to,
	uint64_t total, uint64_t *first_page);
/* What the neediest token component of a list needs. */
uint32_t peer_list_pages(
	const struct peer *p, uint32_t list, uint64_t from, uint64_t to, uint64_t total);
/* The same in list PEER_TOKENS, without bands. */
uint32_t peer_pages(const struct peer *p, uint64_t from, uint64_t to);

/* One posting of a room, whatever the declaration. */
struct peer_use {
	uint64_t room;
	uint64_t from, to; /* positions */
	uint64_t total;    /* of the prompt: bands and rings depend on it */
	const struct kvf_pages *lists;
	uint32_t num_lists;
	/* By list, for state: rows that the other side names, of a ring its size. NULL: as many as
	 * here. */
	const uint64_t *other_rows;
};

/* Prefill: writes what the posting means into pool and shadow. */
void peer_write(struct peer *p, const struct peer_use *use);
/* Decode: from now on the pool should hold it. Returns the bytes of it. */
uint64_t peer_await(struct peer *p, const struct peer_use *use);

/* peer_write() without bands and rings: positions [from, to), whose lists are those of the chunk,
 * and all rows of the state and aux lists. */
void peer_put(struct peer *p, uint64_t room, uint64_t from, uint64_t to,
	const struct kvf_pages *lists, uint32_t num_lists);

/* peer_await() without bands and rings, state lists as long as on the other side. */
void peer_expect(struct peer *p, uint64_t room, uint64_t from, uint64_t to,
	const struct kvf_pages *lists, uint32_t num_lists);

/* The pages of these lists may hold anything from now on: an aborted room. Takes what is there. */
void peer_forgive(struct peer *p, uint64_t from, uint64_t to, const struct kvf_pages *lists,
	uint32_t num_lists);

/* Number of bytes of the pool that are not as they should be; prints the first few. */
uint64_t peer_check(const struct peer *p);

/* Polls (sleeping in between) until the room ended and is drained here, or ms passed. Returns its
 * status or KVF_E_TIMEOUT. */
int peer_wait(struct peer *p, uint64_t room, int ms);

#endif
