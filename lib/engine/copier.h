/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handing copy work to lcores.
 *
 * The dispatcher fills a slot with a segment: up to KVF_SLOT_UNITS runs of one row plan, and the
 * lanes that they apply to. A segment is cut into slices (some units x some lanes, very long rows
 * into columns), each at most one driver batch. Copy lcores claim slices with one atomic
 * subtraction, going round the active slots, so every job gets a slice in turn and a huge one
 * delays a small one by no more than a slice per lcore.
 *
 * Ownership: a slot is the dispatcher's until kvf_slot_publish(), shared until its last slice
 * finished, then the dispatcher's again when kvf_copy_take_finished() names it.
 */
#ifndef KVF_ENGINE_COPIER_H
#define KVF_ENGINE_COPIER_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvferry/link.h>

#include "drivers/copy.h"

#define KVF_SLOTS        32u /* at most 64: they are bits of one word */
#define KVF_SLOTS_ALL    (UINT64_MAX >> (64 - KVF_SLOTS))
#define KVF_SLOT_UNITS   128u
#define KVF_SLOT_SUBS    16u            /* receivers in one segment */
#define KVF_LANE_GROUP   8u             /* lanes of one slice: what the CPU kernels interleave */
#define KVF_UNIT_BYTES   (80u * 1024u)  /* of one lane in one unit, about */
#define KVF_STREAM_BYTES (256u * 1024u) /* segments from here on are bulk: past the cache */
/* Small units are put together up to this. Each slice ends with a fence and begins with cold reads:
 * at half of it whole pages take 2 % longer. At 10 GB/s it is what a small job waits for at most.
 */
#define KVF_SLICE_BYTES (16u * 80u * 1024u)

struct kvf_leg;

/* One receiver's share of a segment. */
struct kvf_slot_sub {
	const struct kvf_map *map;
	uint8_t *dst_base;
	uint64_t bytes;
	struct kvf_leg *leg; /* the dispatcher's */
};

struct kvf_slot {
	/* Slices not claimed yet. Stored with release by the dispatcher after everything below; a
	 * claimer's acquire subtraction is the partner. <= 0: nothing to claim. */
	alignas(64) _Atomic int64_t cursor;
	/* Slices not finished yet. Each lcore subtracts with release after its copies are done; the
	 * dispatcher's acquire of `finished` is the partner. */
	alignas(64) _Atomic int64_t remaining;
	_Atomic int32_t error; /* the first one */

	alignas(64) uint32_t total; /* slices */
	uint32_t num_units;
	uint32_t unit_group;  /* units in a slice */
	uint32_t lane_group;  /* lanes in a slice */
	uint32_t lane_slices; /* ceil(num_lanes / lane_group) */
	uint32_t num_lanes;   /* of every sub's map */
	uint32_t num_subs;
	uint32_t widest;  /* bytes of a row in the widest lane */
	uint32_t columns; /* pieces of KVF_SLICE_BYTES that its rows are cut into */
	uint32_t flags;   /* KVF_COPY_* */
	bool verify;      /* compare after copying */
	const uint8_t *src_base;
	uint64_t bytes;
	void *chunk; /* the dispatcher's */
	struct kvf_slot_sub subs[KVF_SLOT_SUBS];
	uint8_t unit_sub[KVF_SLOT_UNITS]; /* whose unit it is */
	struct kvf_run units[KVF_SLOT_UNITS];
};

struct kvf_lcore_counters {
	_Atomic uint64_t slices;
	_Atomic uint64_t errors;
	_Atomic uint64_t sleeps;
	/* TSC: inside the driver (a queue that is being waited for included), and of all rounds
	 * that did something. What lies between the two is the engine's own cost. */
	_Atomic uint64_t copy_cycles;
	_Atomic uint64_t busy_cycles;
};

#define KVF_COPIER_CHANNELS 16u

struct kvf_copy_shared;

/* One copying lcore. */
struct kvf_copier {
	struct kvf_copy_shared *shared;
	uint32_t index;
	uint32_t num_channels;
	uint32_t next_slot;
	uint32_t next_channel;
	uint32_t in_flight; /* batches on all channels */
	int wake_fd;        /* eventfd */
	struct kvf_copy_channel *channels[KVF_COPIER_CHANNELS];
	uint32_t depth[KVF_COPIER_CHANNELS]; /* batches in flight on each */
	alignas(64) struct kvf_lcore_counters counters;
};

struct kvf_copy_shared {
	alignas(64) _Atomic uint64_t active;   /* slots with slices to claim */
	alignas(64) _Atomic uint64_t finished; /* slots whose last slice is done */
	alignas(64) _Atomic uint64_t sleeping; /* copiers that sleep on their wake_fd */
	/* By slot: those of the same leg that were published before and may have slices to claim.
	 * Theirs come first, so that a leg walks through memory in order. Written by the
	 * dispatcher; a stale bit costs a round. */
	alignas(64) _Atomic uint64_t after[KVF_SLOTS];
	alignas(64) const struct kvf_leg *owner[KVF_SLOTS]; /* the dispatcher's */
	alignas(64) _Atomic bool stop;
	const struct kvf_copy_ops *ops;
	uint32_t channel_depth;
	bool busy;
	struct kvf_copier *copiers; /* the dispatcher's own is [0] */
	alignas(64) struct kvf_slot slots[KVF_SLOTS];
};

/* Sets unit_group, lane_group, total and hands the slot out, behind those in `used` (published and
 * not taken back as finished) that are of the same leg. num_units >= 1, cursor is 0. */
void kvf_slot_publish(struct kvf_copy_shared *sh, uint32_t index, uint64_t used);

/* Takes back what nobody claimed; slices being copied go on. The slot still comes through
 * kvf_copy_take_finished(). */
void kvf_slot_cancel(struct kvf_copy_shared *sh, uint32_t index);

/* Bits of slots that finished since the last call. */
static inline uint64_t
kvf_copy_take_finished(struct kvf_copy_shared *sh)
{
	if (atomic_load_explicit(&sh->finished, memory_order_relaxed) == 0)
		return 0;
	return atomic_exchange_explicit(&sh->finished, 0, memory_order_acquire);
}

/* One round of a copier: finish what is finished, claim and submit at most `max` slices. True if
 * anything was done or is in flight. */
bool kvf_copier_step(struct kvf_copier *c, uint32_t max);

/* Loop of a copy lcore until sh->stop. */
void kvf_copier_loop(struct kvf_copier *c);

#endif
