/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory that one endpoint and the engine share: submission queue, completion queue,
 * index arena. The engine creates it; the client may write anything anywhere in it at any time, so
 * the engine reads each client-writable value once, into private memory, and keeps its own copies
 * of the indices it owns.
 *
 * One writer per cache line. Indices are free-running; entry i lies at i & (entries - 1).
 *
 * Ordering. sq_tail: client stores with release after entry and arena; engine loads with acquire.
 * sq_head: engine stores with release after it has copied entry and arena; client loads with
 * acquire before it overwrites them. cq_tail / cq_head: the same with the roles exchanged.
 * Sleeping: whoever wants to sleep stores its
 * *_sleeping flag, then a seq_cst fence, then looks at the other side's tail again; whoever
 * publishes a tail then does a seq_cst fence and looks at the flag. The two fences are partners:
 * one of the two sides always sees the other. An engine that has completions left over sleeps in
 * the same way until the client moves the cq_head of a full ring.
 */
#ifndef KVF_WIRE_RING_H
#define KVF_WIRE_RING_H

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/client.h>

#define KVF_RING_MAGIC   0x676e6972666b7600ull
#define KVF_RING_VERSION 2u
#define KVF_CACHE_LINE   64

#define KVF_RING_MAX_ENTRIES 65536u
#define KVF_ARENA_MAX_BYTES  (1ull << 30)

enum kvf_sq_op {
	KVF_OP_RECV = 1,
	KVF_OP_SEND = 2,
	KVF_OP_ABORT = 3,
	KVF_OP_RELEASE = 4,
};

/* A list of page ids (uint32_t each). Few of them stand right here: small requests are those that
 * wait for every line that comes from the other core. */
#define KVF_SQ_IDS 2u

struct kvf_sq_list {
	uint32_t list;
	uint32_t count;
	union {
		uint32_t ids[KVF_SQ_IDS]; /* count <= KVF_SQ_IDS */
		uint64_t arena_off;       /* more; a multiple of 4 */
	};
};

struct kvf_sqe {
	uint8_t op; /* enum kvf_sq_op */
	uint8_t num_lists;
	uint16_t flags; /* KVF_ROOM_* */
	int32_t code;   /* ABORT: enum kvf_error of the caller's, 0 otherwise */
	uint64_t room;
	uint64_t seq; /* which use of this room id by this endpoint: counts up from 1, never reused
		       */
	uint64_t key;
	uint64_t start;  /* RECV: prefix_tokens; SEND: start_token */
	uint64_t tokens; /* SEND: num_tokens */
	uint64_t total;  /* total_tokens */
	uint32_t bootstrap_timeout_ms;
	uint32_t waiting_timeout_ms;
	char group[KVF_GROUP_NAME_MAX]; /* RECV: prefill group, "" any. */
	struct kvf_sq_list
		lists[KVF_MAX_LISTS]; /* ABORT: the reason, a string of `count` bytes at lists[0] */
	uint8_t reserved1[32];
};

static_assert(sizeof(struct kvf_sq_list) == 16, "wire format");
static_assert(offsetof(struct kvf_sqe, lists) == 96, "wire format");
static_assert(sizeof(struct kvf_sqe) == 256, "wire format");

#define KVF_CQE_DRAINED 1u /* the engine will not touch this room's pages here any more */
#define KVF_CQE_CLIPPED 4u /* a state list was longer than the other side's */
#define KVF_CQE_ENDPOINT                                                                           \
	2u /* about the endpoint, not a room: `error` and text say what (link refused) */

struct kvf_cqe {
	uint64_t room;
	uint64_t seq; /* of the posting that this is about; another seq than the room's current one
			 is stale */
	uint64_t tokens;
	int32_t error;
	uint8_t status; /* enum kvf_status */
	uint8_t flags;  /* KVF_CQE_* */
	uint8_t reserved0[2];
	uint8_t reserved1[32];
};

static_assert(sizeof(struct kvf_cqe) == 64, "wire format");

/* The sentence of completion i, valid when its error is not 0. */
struct kvf_cq_text {
	char text[256];
};

struct kvf_ring {
	/* Written once by the engine before the client sees it. */
	uint64_t magic;
	uint32_t version;
	uint32_t endpoint_id;
	uint64_t engine_generation;   /* differs for every start of kvferryd */
	uint64_t endpoint_generation; /* differs for every registration */
	uint32_t sq_entries;
	uint32_t cq_entries;
	uint64_t sq_off; /* from the start of this struct, as are the next three */
	uint64_t cq_off;
	uint64_t text_off;
	uint64_t arena_off;
	uint64_t arena_bytes;
	uint64_t total_bytes;
	uint8_t pad0[40];

	/* client writes */
	alignas(KVF_CACHE_LINE) _Atomic uint32_t sq_tail;
	uint8_t pad1[60];
	alignas(KVF_CACHE_LINE) _Atomic uint32_t cq_head;
	_Atomic uint32_t client_sleeping;
	uint8_t pad2[56];
	/* engine writes */
	alignas(KVF_CACHE_LINE) _Atomic uint32_t sq_head;
	uint8_t pad3[60];
	alignas(KVF_CACHE_LINE) _Atomic uint32_t cq_tail;
	uint8_t pad4[60];
	alignas(KVF_CACHE_LINE) _Atomic uint32_t engine_sleeping;
	_Atomic uint32_t engine_stopped; /* set on orderly shutdown */
	uint8_t pad5[56];
};

static_assert(offsetof(struct kvf_ring, sq_tail) == 128, "wire format");
static_assert(offsetof(struct kvf_ring, engine_sleeping) == 128 + 4 * 64, "wire format");
static_assert(sizeof(struct kvf_ring) == 128 + 5 * 64, "wire format");

/* Private to either side: where things are, with sizes that side trusts. */
struct kvf_ring_view {
	struct kvf_ring *hdr;
	struct kvf_sqe *sq;
	struct kvf_cqe *cq;
	struct kvf_cq_text *text;
	uint8_t *arena;
	uint32_t sq_entries;
	uint32_t cq_entries;
	uint64_t arena_bytes;
	uint64_t total_bytes;
};

/* The fence of those who sleep and those who wake: each is the other's partner. */
static inline void
kvf_ring_fence(void)
{
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan" /* no plain data is published by this fence */
#endif
	atomic_thread_fence(memory_order_seq_cst);
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}

/* Fetches a line that will be written, so that the write does not wait for the other side's core to
 * give it up. Nothing but a hint. */
static inline void
kvf_prefetch_write(const void *p)
{
#if defined(__x86_64__)
	/* Without -mprfchw the builtin would fetch for reading. */
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
	__builtin_prefetch(p, 1);
#endif
}

/* Bytes that a ring with these sizes takes (multiple of 4096), or 0 if a size is not a power of two
 * or past its limit. */
uint64_t kvf_ring_bytes(uint32_t sq_entries, uint32_t cq_entries, uint64_t arena_bytes);

/* Engine: lays out zeroed memory of kvf_ring_bytes(). */
void kvf_ring_format(void *mem, uint32_t sq_entries, uint32_t cq_entries, uint64_t arena_bytes,
	struct kvf_ring_view *view);

/* Client: checks magic, version and that every offset lies inside `bytes`. */
int kvf_ring_attach(void *mem, uint64_t bytes, struct kvf_ring_view *view, struct kvf_err *err);

#endif
