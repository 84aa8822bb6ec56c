/* SPDX-License-Identifier: BSD-3-Clause */
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_pause.h>

#include "engine/copier.h"

#define SPIN_US  100
#define SLEEP_MS 100
#define POLL_MAX 16

static void
count(_Atomic uint64_t *counter, uint64_t n)
{
	/* One writer: a plain add that readers may see late, never torn. */
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
		memory_order_relaxed);
}

/* A slot that is filled anew is behind the others, whatever it was before. */
static void
line_up(struct kvf_copy_shared *sh, uint32_t index, uint64_t used)
{
	const struct kvf_leg *leg = sh->slots[index].subs[0].leg;
	uint64_t bit = UINT64_C(1) << index, after = 0;

	sh->owner[index] = leg;
	for (used &= ~bit; used != 0; used &= used - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(used);
		uint64_t theirs = atomic_load_explicit(&sh->after[i], memory_order_relaxed);

		if ((theirs & bit) != 0)
			atomic_store_explicit(&sh->after[i], theirs & ~bit, memory_order_relaxed);
		if (sh->owner[i] == leg)
			after |= UINT64_C(1) << i;
	}
	atomic_store_explicit(&sh->after[index], after, memory_order_relaxed);
}

/* What most requests are that matter for their latency: no division. */
static void
one_slice(struct kvf_slot *slot)
{
	slot->lane_group = slot->num_lanes;
	slot->lane_slices = 1;
	slot->unit_group = slot->num_units;
	slot->columns = 1;
	slot->total = 1;
}

static void
cut_slices(struct kvf_slot *slot)
{
	uint64_t lane_bytes, window, units;

	slot->lane_group = slot->num_lanes < KVF_LANE_GROUP ? slot->num_lanes : KVF_LANE_GROUP;
	if (slot->lane_group > KVF_COPY_BATCH_MAX / slot->num_subs)
		slot->lane_group = KVF_COPY_BATCH_MAX / slot->num_subs;
	/* One window of one lane for all receivers; fewer lanes where that is much. */
	window = slot->bytes / slot->num_units / slot->num_lanes * slot->num_subs + 1;
	while (slot->lane_group > 1 && slot->lane_group * window > 2 * KVF_SLICE_BYTES)
		slot->lane_group--;
	slot->lane_slices = (slot->num_lanes + slot->lane_group - 1) / slot->lane_group;
	/* All units of a segment together, spread evenly: what one slice of one unit weighs. */
	lane_bytes = slot->bytes / slot->num_units / slot->lane_slices + 1;
	units = KVF_SLICE_BYTES / lane_bytes;
	if (units > KVF_COPY_BATCH_MAX / slot->lane_group)
		units = KVF_COPY_BATCH_MAX / slot->lane_group;
	/* Whole windows: every receiver's unit of one in the same slice. */
	units -= units % slot->num_subs;
	slot->unit_group = units == 0 ? slot->num_subs : (uint32_t)units;
	/* Of rows that long there is one in a unit. */
	slot->columns = (slot->widest - 1) / KVF_SLICE_BYTES + 1;
	slot->total = (slot->num_units + slot->unit_group - 1) / slot->unit_group *
		      slot->lane_slices * slot->columns;
}

void
kvf_slot_publish(struct kvf_copy_shared *sh, uint32_t index, uint64_t used)
{
	struct kvf_slot *slot = &sh->slots[index];
	uint64_t sleeping;

	if (slot->num_units * slot->num_lanes <= KVF_LANE_GROUP && slot->bytes <= KVF_SLICE_BYTES)
		one_slice(slot);
	else
		cut_slices(slot);
	line_up(sh, index, used);
	atomic_store_explicit(&slot->error, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->remaining, slot->total, memory_order_relaxed);
	atomic_store_explicit(&slot->cursor, slot->total, memory_order_release);
	/* seq_cst, as is the load of `sleeping`: partner of the two in kvf_copier_loop(). */
	atomic_fetch_or(&sh->active, UINT64_C(1) << index);
	sleeping = atomic_load(&sh->sleeping);
	while (sleeping != 0) {
		uint64_t one = 1;
		uint32_t i = (uint32_t)__builtin_ctzll(sleeping);

		sleeping &= sleeping - 1;
		/* A full eventfd counter wakes just as well. */
		if (write(sh->copiers[i].wake_fd, &one, sizeof(one)) < 0)
			continue;
	}
}

static void
slices_done(struct kvf_copy_shared *sh, uint32_t index, int64_t n, int error)
{
	struct kvf_slot *slot = &sh->slots[index];

	if (error != 0) {
		int32_t none = 0;

		atomic_compare_exchange_strong_explicit(
			&slot->error, &none, error, memory_order_relaxed, memory_order_relaxed);
	}
	if (atomic_fetch_sub_explicit(&slot->remaining, n, memory_order_acq_rel) == n)
		atomic_fetch_or_explicit(&sh->finished, UINT64_C(1) << index, memory_order_release);
}

void
kvf_slot_cancel(struct kvf_copy_shared *sh, uint32_t index)
{
	int64_t left = atomic_exchange_explicit(&sh->slots[index].cursor, 0, memory_order_acq_rel);

	atomic_fetch_and_explicit(&sh->active, ~(UINT64_C(1) << index), memory_order_relaxed);
	if (left > 0)
		slices_done(sh, index, left, 0);
}

static uint64_t
row_offset(uint64_t row, uint64_t page_tokens, int split, uint64_t page_stride, uint64_t row_stride)
{
	if (!split)
		return row * row_stride;
	return row / page_tokens * page_stride + row % page_tokens * row_stride;
}

/* The batch of slice `index` of a slot. Every (unit, lane) is one 2-D copy: kvf_segment_fill() cut
 * the units so. */
static uint32_t
expand(const struct kvf_slot *slot, uint32_t index, struct kvf_copy *out)
{
	uint64_t column = (uint64_t)(index % slot->columns) * KVF_SLICE_BYTES;
	uint32_t part = index / slot->columns;
	uint32_t u = part / slot->lane_slices * slot->unit_group;
	uint32_t lane0 = part % slot->lane_slices * slot->lane_group;
	uint32_t u_end = u + slot->unit_group, lane_end = lane0 + slot->lane_group;
	uint32_t n = 0, l;

	if (u_end > slot->num_units)
		u_end = slot->num_units;
	if (lane_end > slot->num_lanes)
		lane_end = slot->num_lanes;
	for (; u < u_end; u++) {
		const struct kvf_slot_sub *sub = &slot->subs[slot->unit_sub[u]];
		const struct kvf_map *map = sub->map;
		const struct kvf_run *r = &slot->units[u];

		for (l = lane0; l < lane_end; l++) {
			const struct kvf_lane *lane = &map->lanes[l];
			struct kvf_copy *c = &out[n];

			if (slot->columns > 1 && column >= lane->row_bytes)
				continue;
			n++;
			c->src = slot->src_base + lane->src_off +
				 row_offset(r->src_row, map->src_page_tokens,
					 map->split & KVF_PLAN_SPLIT_SRC, lane->src_page_stride,
					 lane->src_row_stride);
			c->dst = sub->dst_base + lane->dst_off +
				 row_offset(r->dst_row, map->dst_page_tokens,
					 map->split & KVF_PLAN_SPLIT_DST, lane->dst_page_stride,
					 lane->dst_row_stride);
			if (r->block_rows == 1) {
				c->rows = r->blocks;
				c->row_bytes = lane->row_bytes;
				c->src_stride = r->src_step * lane->src_row_stride;
				c->dst_stride = r->dst_step * lane->dst_row_stride;
			} else if (map->dense) {
				c->rows = r->blocks;
				c->row_bytes = r->block_rows * lane->row_bytes;
				c->src_stride = r->src_step * lane->src_row_stride;
				c->dst_stride = r->dst_step * lane->dst_row_stride;
			} else {
				c->rows = r->block_rows;
				c->row_bytes = lane->row_bytes;
				c->src_stride = lane->src_row_stride;
				c->dst_stride = lane->dst_row_stride;
			}
			if (slot->columns > 1) {
				c->src += column;
				c->dst += column;
				c->row_bytes -= column;
				if (c->row_bytes > KVF_SLICE_BYTES)
					c->row_bytes = KVF_SLICE_BYTES;
			}
		}
	}
	return n;
}

/* Do the destinations of a finished slice hold what its sources hold? */
static bool
same_bytes(const struct kvf_slot *slot, uint32_t slice)
{
	struct kvf_copy copies[KVF_COPY_BATCH_MAX];
	uint32_t n = expand(slot, slice, copies), i;
	uint64_t r;

	for (i = 0; i < n; i++)
		for (r = 0; r < copies[i].rows; r++)
			if (memcmp(copies[i].src + r * copies[i].src_stride,
				    copies[i].dst + r * copies[i].dst_stride,
				    copies[i].row_bytes) != 0)
				return false;
	return true;
}

/* A batch's tag says which slice of which slot it is. */
static uint64_t
tag_of(uint32_t index, uint32_t slice)
{
	return (uint64_t)slice << 32 | index;
}

static void
batch_done(struct kvf_copier *c, const struct kvf_copy_done *done)
{
	uint32_t index = (uint32_t)done->tag;
	const struct kvf_slot *slot = &c->shared->slots[index];
	int error = done->error;

	if (error == 0 && slot->verify && !same_bytes(slot, (uint32_t)(done->tag >> 32)))
		error = KVF_E_VERIFY;
	if (error != 0)
		count(&c->counters.errors, 1);
	slices_done(c->shared, index, 1, error);
}

/* Claims a slice of the next active slot after the last one served. */
static bool
claim(struct kvf_copier *c, uint32_t *index, uint32_t *slice)
{
	struct kvf_copy_shared *sh = c->shared;
	uint64_t active = atomic_load_explicit(&sh->active, memory_order_relaxed);
	const uint64_t all = active;

	while (active != 0) {
		uint64_t after = active & ~((UINT64_C(1) << c->next_slot) - 1);
		uint32_t i = (uint32_t)__builtin_ctzll(after != 0 ? after : active);
		struct kvf_slot *slot = &sh->slots[i];
		int64_t left;

		c->next_slot = (i + 1) % KVF_SLOTS;
		active &= ~(UINT64_C(1) << i);
		if (atomic_load_explicit(&slot->cursor, memory_order_relaxed) <= 0 ||
			(atomic_load_explicit(&sh->after[i], memory_order_relaxed) & all) != 0)
			continue;
		left = atomic_fetch_sub_explicit(&slot->cursor, 1, memory_order_acquire);
		if (left <= 0)
			continue;
		/* The bit goes before this slice can finish, hence before the slot can be filled
		 * again. */
		if (left == 1)
			atomic_fetch_and_explicit(
				&sh->active, ~(UINT64_C(1) << i), memory_order_relaxed);
		*index = i;
		*slice = slot->total - (uint32_t)left;
		return true;
	}
	return false;
}

bool
kvf_copier_step(struct kvf_copier *c, uint32_t max)
{
	struct kvf_copy_shared *sh = c->shared;
	struct kvf_copy copies[KVF_COPY_BATCH_MAX];
	struct kvf_copy_done done[POLL_MAX];
	bool worked = c->in_flight > 0;
	uint64_t start = worked ? rte_rdtsc() : 0, cycles = 0, now;
	uint32_t i, n, index, slice, ch;
	int rc;

	while (max > 0) {
		/* A channel with room, before a slice is claimed for it. */
		for (i = 0, ch = c->next_channel; i < c->num_channels; i++, ch++) {
			ch %= c->num_channels;
			if (c->depth[ch] < sh->channel_depth)
				break;
		}
		if (i == c->num_channels || !claim(c, &index, &slice))
			break;
		c->next_channel = (ch + 1) % c->num_channels;
		n = expand(&sh->slots[index], slice, copies);
		if (!worked)
			start = rte_rdtsc();
		if (n == 0) {
			/* Past the end of all these lanes' rows. */
			worked = true;
			max--;
			slices_done(sh, index, 1, 0);
			continue;
		}
		rc = sh->ops->submit(
			c->channels[ch], copies, n, sh->slots[index].flags, tag_of(index, slice));
		worked = true;
		max--;
		if (rc != 0) {
			/* A driver that takes nothing although it has room is broken; the room
			 * hears of it. */
			count(&c->counters.errors, 1);
			slices_done(sh, index, 1, rc == KVF_E_AGAIN ? KVF_E_DEVICE : rc);
			continue;
		}
		c->depth[ch]++;
		c->in_flight++;
	}
	for (ch = 0; ch < c->num_channels && c->in_flight > 0; ch++) {
		if (c->depth[ch] == 0)
			continue;
		n = sh->ops->poll(c->channels[ch], done, POLL_MAX);
		now = rte_rdtsc();
		cycles += now - start;
		c->depth[ch] -= n;
		c->in_flight -= n;
		if (n > 0)
			count(&c->counters.slices, n);
		for (i = 0; i < n; i++)
			batch_done(c, &done[i]);
		start = c->num_channels > 1 ? rte_rdtsc() : now;
	}
	if (cycles > 0)
		count(&c->counters.copy_cycles, cycles);
	return worked;
}

void
kvf_copier_loop(struct kvf_copier *c)
{
	struct kvf_copy_shared *sh = c->shared;
	uint64_t spin = rte_get_tsc_hz() / 1000000 * SPIN_US;
	uint64_t idle_since = rte_rdtsc(), last = idle_since;

	while (!atomic_load_explicit(&sh->stop, memory_order_relaxed) || c->in_flight > 0) {
		struct pollfd pfd = {.fd = c->wake_fd, .events = POLLIN};
		uint64_t drop, began = last;
		bool worked = kvf_copier_step(c, 1);

		last = rte_rdtsc();
		if (worked) {
			count(&c->counters.busy_cycles, last - began);
			idle_since = last;
			continue;
		}
		if (sh->busy || last - idle_since < spin) {
			rte_pause();
			continue;
		}
		/* seq_cst pair: partner of the two in kvf_slot_publish(). */
		atomic_fetch_or(&sh->sleeping, UINT64_C(1) << c->index);
		if (atomic_load(&sh->active) == 0 && !atomic_load(&sh->stop)) {
			count(&c->counters.sleeps, 1);
			if (poll(&pfd, 1, SLEEP_MS) > 0 &&
				read(c->wake_fd, &drop, sizeof(drop)) < 0)
				idle_since = rte_rdtsc();
		}
		atomic_fetch_and(&sh->sleeping, ~(UINT64_C(1) << c->index));
		idle_since = last = rte_rdtsc();
	}
}
