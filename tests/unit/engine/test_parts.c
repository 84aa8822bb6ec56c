/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of the engine alone: its memory, its copiers over a driver made for the test, its SIGBUS
 * guard. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/suite.h"
#include "engine/copier.h"
#include "engine/guard.h"
#include "engine/slab.h"

static void
test_slab_classes(void)
{
	struct kvf_slab slab;
	uint64_t size;
	void *a, *b;

	kvf_slab_init(&slab);
	/* What was given back comes again for any size of its class, and for no other. */
	for (size = 0; size <= 5000; size += 1 + size / 3) {
		uint64_t class = 64;

		while (class < size)
			class *= 2;
		a = kvf_slab_alloc(&slab, size);
		CHECK_EQ((uintptr_t)a % 64, 0);
		memset(a, 0xff, size);
		CHECK_EQ(slab.bytes_used, class);
		kvf_slab_free(&slab, a, size);
		CHECK_EQ(slab.bytes_used, 0);
		b = kvf_slab_alloc(&slab, class);
		CHECK(a == b);
		a = kvf_slab_alloc(&slab, class * 2);
		CHECK(a != b);
		kvf_slab_free(&slab, a, class * 2);
		a = kvf_slab_alloc(&slab, class / 2 + 1);
		CHECK(a != b);
		kvf_slab_free(&slab, a, class / 2 + 1);
		kvf_slab_free(&slab, b, class);
	}
	CHECK(kvf_slab_alloc(&slab, (1ull << 30) + 1) == NULL);
	CHECK(kvf_slab_alloc(&slab, UINT64_MAX) == NULL);
	kvf_slab_free(&slab, NULL, 77);
	CHECK_EQ(slab.bytes_used, 0);
	kvf_slab_fini(&slab);
	CHECK_EQ(slab.bytes_held, 0);
}

/* Pieces never overlap, keep their bytes, and a second round needs no new memory. */
static void
test_slab_random(void)
{
	struct piece {
		uint8_t *mem;
		uint64_t size;
		uint8_t fill;
	} *p = calloc(400, sizeof(*p));
	uint64_t rand = suite_seed() | 1, held = 0, i;
	struct kvf_slab slab;
	int round, k, bad = 0;

	kvf_slab_init(&slab);
	for (round = 0; round < 3; round++) {
		uint64_t replay = 99;

		for (k = 0; k < 6000; k++) {
			struct piece *x = &p[suite_rand(&replay) % 400];

			if (x->mem != NULL) {
				for (i = 0; i < x->size; i += 1 + x->size / 50)
					bad += x->mem[i] != x->fill;
				kvf_slab_free(&slab, x->mem, x->size);
				x->mem = NULL;
				continue;
			}
			x->size = 1ull << (suite_rand(&replay) % 20);
			x->size += suite_rand(&replay) % x->size;
			x->mem = kvf_slab_alloc(&slab, x->size);
			x->fill = (uint8_t)suite_rand(&rand);
			memset(x->mem, x->fill, x->size);
		}
		for (k = 0; k < 400; k++) {
			kvf_slab_free(&slab, p[k].mem, p[k].size);
			p[k].mem = NULL;
		}
		CHECK_EQ(bad, 0);
		CHECK_EQ(slab.bytes_used, 0);
		if (round > 0)
			CHECK_EQ(slab.bytes_held, held);
		held = slab.bytes_held;
	}
	kvf_slab_fini(&slab);
	free(p);
}

/*
 * A driver that moves nothing and notes what it was asked for. Where a copy comes from says which
 * (unit, lane) of which slot it is.
 */
#define LANES_MAX   40u
#define LANE_SPAN   (1ull << 36)
#define UNIT_ROWS   (1ull << 20)
#define SLOT_SPAN   (1ull << 44)
#define DEPTH       4u
#define NUM_COPIERS 3u

struct kvf_copy_channel {
	struct kvf_copy_done waiting[DEPTH];
	uint32_t num;
	uint64_t rand;
};

static _Atomic uint32_t counts[KVF_SLOTS][KVF_SLOT_UNITS][LANES_MAX];
static _Atomic uint32_t max_batch, submits, too_deep;
static _Atomic uint32_t error_every, refuse_every; /* batches; 0 never */
static _Atomic uint32_t failed[KVF_SLOTS];

static int
fake_submit(struct kvf_copy_channel *ch, const struct kvf_copy *copies, uint32_t n, uint32_t flags,
	uint64_t tag)
{
	uint32_t batch = atomic_fetch_add(&submits, 1) + 1, i, every;
	uint32_t slot = (uint32_t)tag; /* its slice stands above */
	int error = 0;

	(void)flags;
	if (ch->num == DEPTH) {
		atomic_fetch_add(&too_deep, 1);
		return KVF_E_AGAIN;
	}
	every = atomic_load(&refuse_every);
	if (every != 0 && batch % every == 0) {
		atomic_fetch_add(&failed[slot], 1);
		return KVF_E_DRIVER;
	}
	if (n > atomic_load(&max_batch))
		atomic_store(&max_batch, n);
	for (i = 0; i < n; i++) {
		uint64_t off = (uint64_t)(uintptr_t)copies[i].src, in_lane;

		if (off / SLOT_SPAN != slot + 1u)
			abort();
		in_lane = off % SLOT_SPAN % LANE_SPAN / 64;
		atomic_fetch_add(
			&counts[slot][in_lane / UNIT_ROWS][off % SLOT_SPAN / LANE_SPAN], 1);
	}
	every = atomic_load(&error_every);
	if (every != 0 && batch % every == 0) {
		atomic_fetch_add(&failed[slot], 1);
		error = KVF_E_DEVICE;
	}
	ch->waiting[ch->num++] = (struct kvf_copy_done){.tag = tag, .error = error};
	return 0;
}

/* In any order, some of them, sometimes none. */
static uint32_t
fake_poll(struct kvf_copy_channel *ch, struct kvf_copy_done *done, uint32_t max)
{
	uint32_t n = 0;

	while (n < max && ch->num > 0 && suite_range(&ch->rand, 0, 2) != 0) {
		uint32_t i = (uint32_t)suite_range(&ch->rand, 0, ch->num - 1);

		done[n++] = ch->waiting[i];
		ch->waiting[i] = ch->waiting[--ch->num];
	}
	return n;
}

static const struct kvf_copy_ops fake_ops = {
	.name = "fake", .submit = fake_submit, .poll = fake_poll};

static void *
copier_thread(void *arg)
{
	kvf_copier_loop(arg);
	return NULL;
}

struct bench {
	struct kvf_copy_shared *sh;
	struct kvf_copier copiers[NUM_COPIERS];
	struct kvf_copy_channel channels[NUM_COPIERS][2];
	pthread_t threads[NUM_COPIERS];
	struct kvf_lane lanes[KVF_SLOTS][LANES_MAX];
	struct kvf_map maps[KVF_SLOTS];
	bool cancelled[KVF_SLOTS];
	uint64_t rand;
};

static struct bench *
bench_up(bool threads)
{
	struct bench *b = aligned_alloc(64, (sizeof(*b) + 63) / 64 * 64);
	uint32_t i, k;

	memset(b, 0, sizeof(*b));
	memset(counts, 0, sizeof(counts));
	atomic_store(&too_deep, 0);
	atomic_store(&error_every, 0);
	atomic_store(&refuse_every, 0);
	b->rand = suite_seed() | 1;
	b->sh = aligned_alloc(64, (sizeof(*b->sh) + 63) / 64 * 64);
	memset(b->sh, 0, sizeof(*b->sh));
	b->sh->ops = &fake_ops;
	b->sh->channel_depth = DEPTH;
	b->sh->copiers = b->copiers;
	for (i = 0; i < NUM_COPIERS; i++) {
		struct kvf_copier *c = &b->copiers[i];

		c->shared = b->sh;
		c->index = i;
		c->num_channels = 2;
		for (k = 0; k < 2; k++) {
			c->channels[k] = &b->channels[i][k];
			b->channels[i][k].rand = suite_rand(&b->rand) | 1;
		}
		c->wake_fd = eventfd(0, EFD_NONBLOCK);
		if (threads && pthread_create(&b->threads[i], NULL, copier_thread, c) != 0)
			abort();
	}
	return b;
}

static void
bench_down(struct bench *b, bool threads)
{
	uint64_t one = 1;
	uint32_t i;

	atomic_store(&b->sh->stop, true);
	for (i = 0; i < NUM_COPIERS; i++) {
		if (write(b->copiers[i].wake_fd, &one, sizeof(one)) < 0)
			abort();
		if (threads)
			pthread_join(b->threads[i], NULL);
		close(b->copiers[i].wake_fd);
	}
	CHECK_EQ(atomic_load(&too_deep), 0);
	free(b->sh);
	free(b);
}

/* `job` stands for the leg; nobody looks inside. */
static void
fill(struct bench *b, uint32_t index, uint32_t units, uint32_t lanes, uint64_t used, uintptr_t job)
{
	struct kvf_slot *slot = &b->sh->slots[index];
	struct kvf_map *map = &b->maps[index];
	uint32_t u, l;

	memset(counts[index], 0, sizeof(counts[index]));
	atomic_store(&failed[index], 0);
	*map = (struct kvf_map){.num_lanes = lanes,
		.lanes = b->lanes[index],
		.dense = 1,
		.src_page_tokens = 1,
		.dst_page_tokens = 1};
	for (l = 0; l < lanes; l++)
		b->lanes[index][l] = (struct kvf_lane){.src_off = l * LANE_SPAN,
			.dst_off = l * LANE_SPAN,
			.src_row_stride = 64,
			.dst_row_stride = 64,
			.row_bytes = 64};
	slot->num_units = units;
	slot->bytes = 0;
	for (u = 0; u < units; u++) {
		uint64_t rows = suite_range(&b->rand, 1, 700);

		slot->units[u] = (struct kvf_run){.src_row = u * UNIT_ROWS,
			.dst_row = u * UNIT_ROWS,
			.blocks = 1,
			.block_rows = rows,
			.src_step = rows,
			.dst_step = rows};
		slot->bytes += rows * 64 * lanes;
	}
	/* Units dealt to one to three receivers, which in this bench share their memory. */
	slot->num_subs = (uint32_t)suite_range(&b->rand, 1, units < 3 ? units : 3);
	slot->num_lanes = lanes;
	slot->widest = 64;
	slot->src_base = (const uint8_t *)(uintptr_t)((index + 1) * SLOT_SPAN);
	for (u = 0; u < slot->num_subs; u++)
		slot->subs[u] = (struct kvf_slot_sub){.map = map,
			.dst_base = (uint8_t *)(uintptr_t)((index + 1) * SLOT_SPAN),
			.leg = (struct kvf_leg *)job};
	for (u = 0; u < units; u++)
		slot->unit_sub[u] = (uint8_t)(u % slot->num_subs);
	b->cancelled[index] = false;
	kvf_slot_publish(b->sh, index, used);
}

/* A slot came back: every (unit, lane) once, or at most once if it was cancelled; an error exactly
 * if a batch had one. */
static void
verify(struct bench *b, uint32_t index)
{
	struct kvf_slot *slot = &b->sh->slots[index];
	uint32_t u, l, wrong = 0, copied = 0;

	for (u = 0; u < KVF_SLOT_UNITS; u++)
		for (l = 0; l < LANES_MAX; l++) {
			uint32_t n = atomic_load(&counts[index][u][l]);
			bool asked = u < slot->num_units && l < slot->num_lanes;

			copied += n;
			if (n > 1 || (n == 1 && !asked) ||
				(n == 0 && asked && !b->cancelled[index] &&
					atomic_load(&failed[index]) == 0))
				wrong++;
		}
	CHECK_EQ(wrong, 0);
	CHECK_EQ(atomic_load(&slot->error) != 0, atomic_load(&failed[index]) != 0);
	CHECK(atomic_load(&slot->remaining) == 0);
	CHECK(atomic_load(&slot->cursor) <= 0);
	/* The dispatcher's again: nobody copies any more. */
	for (u = 0; u < KVF_SLOT_UNITS; u++)
		for (l = 0; l < LANES_MAX; l++)
			copied -= atomic_load(&counts[index][u][l]);
	CHECK_EQ(copied, 0);
}

static void
run_slots(struct bench *b, uint32_t rounds, bool cancel)
{
	uint64_t busy = 0, done;
	uint32_t filled = 0, back = 0, i, idle = 0;

	while (back < rounds) {
		for (i = 0; i < 3 && filled < rounds && busy != KVF_SLOTS_ALL; i++) {
			uint32_t index = (uint32_t)__builtin_ctzll(~busy);

			fill(b, index, (uint32_t)suite_range(&b->rand, 1, KVF_SLOT_UNITS),
				(uint32_t)suite_range(&b->rand, 1, LANES_MAX), busy,
				(uintptr_t)suite_range(&b->rand, 1, 3) << 12);
			busy |= 1ull << index;
			filled++;
		}
		if (cancel && busy != 0 && suite_range(&b->rand, 0, 3) == 0) {
			uint32_t index = (uint32_t)__builtin_ctzll(busy);

			b->cancelled[index] = true;
			kvf_slot_cancel(b->sh, index);
			if (suite_range(&b->rand, 0, 1) == 0)
				kvf_slot_cancel(b->sh, index); /* twice is harmless */
		}
		done = kvf_copy_take_finished(b->sh);
		idle = done == 0 ? idle + 1 : 0;
		if (idle > 10)
			usleep(50);
		if (!CHECK(idle < 400000))
			return; /* something was lost */
		for (; done != 0; done &= done - 1) {
			i = (uint32_t)__builtin_ctzll(done);
			CHECK((busy & (1ull << i)) != 0);
			verify(b, i);
			busy &= ~(1ull << i);
			back++;
		}
	}
	CHECK_EQ(atomic_load(&b->sh->finished), 0);
	CHECK_EQ(atomic_load(&b->sh->active), 0);
}

static void
test_every_slice_once(void)
{
	struct bench *b = bench_up(true);

	run_slots(b, 2000, false);
	CHECK(atomic_load(&max_batch) <= KVF_COPY_BATCH_MAX);
	bench_down(b, true);
}

static void
test_cancel_while_claiming(void)
{
	struct bench *b = bench_up(true);

	run_slots(b, 4000, true);
	bench_down(b, true);
}

static void
test_copier_errors(void)
{
	struct bench *b = bench_up(true);

	atomic_store(&error_every, 17);
	run_slots(b, 800, true);
	atomic_store(&refuse_every, 23);
	run_slots(b, 800, true);
	bench_down(b, true);
}

/* All sizes of segments, one thread: what a slice may hold. */
static void
test_slices(void)
{
	struct bench *b = bench_up(false);
	uint32_t units, lanes, i;

	for (units = 1; units <= KVF_SLOT_UNITS; units += 1 + units / 4)
		for (lanes = 1; lanes <= LANES_MAX; lanes++) {
			uint64_t done = 0;

			atomic_store(&max_batch, 0);
			fill(b, 5, units, lanes, 0, 1 << 12);
			CHECK_EQ(b->sh->slots[5].total, (units + b->sh->slots[5].unit_group - 1) /
								b->sh->slots[5].unit_group *
								b->sh->slots[5].lane_slices);
			for (i = 0; i < 100000 && done == 0; i++) {
				kvf_copier_step(&b->copiers[0], 1 + i % 3);
				done = kvf_copy_take_finished(b->sh);
			}
			CHECK_EQ(done, 1u << 5);
			verify(b, 5);
			CHECK(atomic_load(&max_batch) <= KVF_COPY_BATCH_MAX);
		}
	bench_down(b, false);
}

/* A huge job delays a small one by a slice and not by itself. */
static void
test_jobs_take_turns(void)
{
	struct bench *b = bench_up(false);
	uint64_t done = 0;
	uint32_t i;

	fill(b, 0, KVF_SLOT_UNITS, LANES_MAX, 0, 1 << 12);
	for (i = 0; i < 5; i++)
		kvf_copier_step(&b->copiers[0], 1);
	fill(b, 1, 1, 1, 1, 2 << 12);
	CHECK_EQ(b->sh->slots[1].total, 1);
	for (i = 0; i < 60 && (done & 2) == 0; i++) {
		kvf_copier_step(&b->copiers[0], 1);
		done |= kvf_copy_take_finished(b->sh);
	}
	CHECK((done & 2) != 0);
	CHECK_EQ(done & 1, 0);
	for (i = 0; i < 100000 && (done & 1) == 0; i++) {
		kvf_copier_step(&b->copiers[0], 1);
		done |= kvf_copy_take_finished(b->sh);
	}
	CHECK((done & 1) != 0);
	bench_down(b, false);
}

/* Of one job, what was published first is copied first, also when an earlier slot is used again. */
static void
test_a_job_goes_in_order(void)
{
	static const uint32_t order[] = {3, 1, 2, 3, 0, 1};
	struct bench *b = bench_up(false);
	uint64_t used = 0, done;
	uint32_t next = 0, finished = 0, first = 0, i, k;

	for (i = 0; i < 100000 && finished < 6; i++) {
		while (next < 6 && (used & (UINT64_C(1) << order[next])) == 0) {
			fill(b, order[next], KVF_SLOT_UNITS, LANES_MAX, used, 1 << 12);
			used |= UINT64_C(1) << order[next++];
		}
		kvf_copier_step(&b->copiers[0], 1);
		/* `first`: the first of the order that has slices left; those behind it are whole.
		 */
		while (first < next && atomic_load(&b->sh->slots[order[first]].cursor) <= 0)
			first++;
		for (k = first + 1; k < next; k++)
			CHECK_EQ(atomic_load(&b->sh->slots[order[k]].cursor),
				b->sh->slots[order[k]].total);
		for (done = kvf_copy_take_finished(b->sh); done != 0; done &= done - 1) {
			used &= ~(done & -done);
			finished++;
		}
	}
	CHECK_EQ(finished, 6);
	bench_down(b, false);
}

static sigjmp_buf escape;
static volatile sig_atomic_t escaped;

static void
on_stray(int sig)
{
	(void)sig;
	escaped++;
	siglongjmp(escape, 1);
}

/* true: the write ended in the handler that was there before the guard. */
static bool
strays(uint8_t *at)
{
	const volatile int before = escaped;

	if (sigsetjmp(escape, 1) == 0)
		*(volatile uint8_t *)at = 1;
	return escaped == before + 1;
}

static void
test_guard(void)
{
	struct sigaction mine = {.sa_handler = on_stray}, old;
	struct kvf_guard_region *r[3], *many[1100];
	int empty = memfd_create("empty", 0), i, n = 0;
	struct kvf_err err = {0};
	uint8_t *mem[3], *stray;

	sigaction(SIGBUS, &mine, &old);
	CHECK_EQ(kvf_guard_start(&err), 0);
	for (i = 0; i < 3; i++) {
		mem[i] = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, empty, 0);
		r[i] = kvf_guard_add(mem[i], 8 * 4096, 4096);
		CHECK(r[i] != NULL);
	}
	/* Reads see zeros, writes go nowhere, and exactly that region is marked. */
	CHECK_EQ(((volatile uint8_t *)mem[1])[3 * 4096 + 17], 0);
	CHECK(kvf_guard_lost(r[1]));
	CHECK(!kvf_guard_lost(r[0]));
	CHECK(!kvf_guard_lost(r[2]));
	memset(mem[2], 0xab, 8 * 4096);
	CHECK(kvf_guard_lost(r[2]));
	CHECK_EQ(mem[2][5 * 4096], 0xab);
	CHECK(!kvf_guard_lost(NULL));
	/* Outside: as if the guard were not there. Also in what was guarded once. */
	stray = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, empty, 0);
	CHECK(strays(stray));
	kvf_guard_remove(r[0]);
	CHECK(strays(mem[0]));
	/* A place is used again, and starts unmarked; the table has an end. */
	kvf_guard_remove(r[1]);
	for (i = 0; i < 1100; i++) {
		many[i] = kvf_guard_add(mem[0] + 4096 * (i % 8), 4096, 4096);
		if (many[i] == NULL)
			break;
		CHECK(!kvf_guard_lost(many[i]));
		n++;
	}
	CHECK_EQ(n, 1023);
	for (i = 0; i < n; i++)
		kvf_guard_remove(many[i]);
	kvf_guard_remove(r[2]);
	kvf_guard_remove(NULL);
	kvf_guard_stop();
	CHECK(strays(mem[0]));
	sigaction(SIGBUS, &old, NULL);
	for (i = 0; i < 3; i++)
		munmap(mem[i], 8 * 4096);
	munmap(stray, 4096);
	close(empty);
}

static const struct suite_case cases[] = {
	{"slab: classes", test_slab_classes},
	{"slab: random sizes", test_slab_random},
	{"copiers: every slice once", test_every_slice_once},
	{"copiers: cancel while they claim", test_cancel_while_claiming},
	{"copiers: errors", test_copier_errors},
	{"copiers: slices of all sizes", test_slices},
	{"copiers: jobs take turns", test_jobs_take_turns},
	{"copiers: a job goes in order", test_a_job_goes_in_order},
	{"guard", test_guard},
};

SUITE_MAIN("parts", cases)
