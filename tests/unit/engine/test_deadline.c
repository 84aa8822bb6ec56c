/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What came in time is never judged late, however late the engine looks. The engine is held where
 * it copies, so that deadlines pass while completions and postings wait for it.
 */
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <sys/socket.h>

#include "client/endpoint.h"
#include "cluster.h"
#include "drivers/fault/fault.h"

#define LIMIT_MS 150
#define HELD_MS  400

static struct kvf_copy_ops gate;
static _Atomic bool armed;
static sem_t entered, opened;

static bool
wait_for(sem_t *sem)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 30;
	return sem_timedwait(sem, &until) == 0;
}

/* Runs on the one lcore, which dispatches, too. */
static int
gated_submit(struct kvf_copy_channel *ch, const struct kvf_copy *copies, uint32_t n, uint32_t flags,
	uint64_t tag)
{
	if (atomic_exchange(&armed, false)) {
		sem_post(&entered);
		wait_for(&opened);
	}
	return kvf_copy_cpu.submit(ch, copies, n, flags, tag);
}

static void
open_gated(struct cluster *c, uint32_t decode)
{
	const struct kvf_engine_config cfg = {.driver = "fault:gate"};
	struct kvf_endpoint_config limits = {
		.bootstrap_timeout_ms = LIMIT_MS, .waiting_timeout_ms = LIMIT_MS};
	struct cluster_shape s = cluster_small(1, decode, 2);

	gate = kvf_copy_cpu;
	gate.name = "gate";
	gate.submit = gated_submit;
	kvf_copy_fault_register(&gate);
	sem_init(&entered, 0, 0);
	sem_init(&opened, 0, 0);
	s.limits = &limits;
	s.prefill.slots = s.decode.slots = 64;
	s.prefill.num_pages = s.decode.num_pages = 128;
	cluster_open(c, &cfg, &s);
}

/* Room 1 is complete and being copied when this returns, and nothing else happens in the engine. */
static void
hold(struct cluster *c)
{
	struct kvf_err err = {0};

	cluster_recv_all(c, 1, 0, 64, 1);
	atomic_store(&armed, true);
	CHECK_EQ(cluster_send(c, 0, 1, 0, 64, 64, 1, &err), 0);
	CHECK(wait_for(&entered));
}

static void
test_completion(void)
{
	struct kvf_err err = {0};
	struct cluster_lists l;
	struct cluster c;

	open_gated(&c, 1);
	/* One that really is too late: its last chunk never comes. */
	cluster_lists(&c, true, 0, 0, 64, 3, &l);
	CHECK_EQ(kvf_recv(c.d[0].ep,
			 &(struct kvf_recv_args){.room = 2,
				 .total_tokens = 64,
				 .lists = l.lists,
				 .num_lists = l.num},
			 &err),
		0);
	CHECK_EQ(cluster_send(&c, 0, 2, 0, 32, 64, 3, &err), 0);
	CHECK_EQ(
		cluster_until(&c, &c.d[0], 2, KVF_TRANSFERRING, CLUSTER_WAIT_MS), KVF_TRANSFERRING);
	hold(&c);
	cluster_sleep_ms(HELD_MS);
	CHECK_EQ(kvf_room_status(c.p[0].ep, 1) == KVF_SUCCESS, 0);
	sem_post(&opened);
	CHECK_EQ(cluster_wait(&c, &c.d[0], 1, CLUSTER_WAIT_MS), KVF_SUCCESS);
	CHECK_EQ(cluster_wait(&c, &c.p[0], 1, CLUSTER_WAIT_MS), KVF_SUCCESS);
	CHECK_EQ(cluster_wait(&c, &c.d[0], 2, CLUSTER_WAIT_MS), KVF_FAILED);
	CHECK_EQ(kvf_room_error(c.d[0].ep, 2, &err), KVF_E_TIMEOUT);
	peer_forgive(&c.d[0], 0, 64, l.lists, l.num);
	cluster_lists_free(&l);
	cluster_close(&c);
}

/* Far more postings than one round reads. */
static void
test_postings(void)
{
	struct kvf_err err = {0};
	uint64_t room;
	struct cluster c;

	open_gated(&c, 1);
	hold(&c);
	for (room = 100; room < 150; room++)
		CHECK_EQ(cluster_recv(&c, 0, room, 0, 16, (uint32_t)room - 90, &err), 0);
	cluster_sleep_ms(HELD_MS / 2);
	for (room = 100; room < 150; room++)
		CHECK_EQ(cluster_send(&c, 0, room, 0, 16, 16, (uint32_t)room - 90, &err), 0);
	cluster_sleep_ms(HELD_MS / 2);
	sem_post(&opened);
	CHECK_EQ(cluster_wait(&c, &c.d[0], 1, CLUSTER_WAIT_MS), KVF_SUCCESS);
	for (room = 100; room < 150; room++) {
		CHECK_EQ(cluster_wait(&c, &c.d[0], room, CLUSTER_WAIT_MS), KVF_SUCCESS);
		CHECK_EQ(cluster_wait(&c, &c.p[0], room, CLUSTER_WAIT_MS), KVF_SUCCESS);
	}
	cluster_close(&c);
}

/* The other side of it: an engine that is held again and again still judges. */
static void
test_held_for_ever(void)
{
	uint64_t room = 1000, from;
	struct kvf_err err = {0};
	struct cluster c;
	int st = 0;

	open_gated(&c, 1);
	/* Nobody sends room 5. */
	CHECK_EQ(kvf_recv(c.d[0].ep,
			 &(struct kvf_recv_args){.room = 5,
				 .total_tokens = 0,
				 .lists = &(struct kvf_pages){PEER_AUX, 1, &(uint32_t){7}},
				 .num_lists = 1},
			 &err),
		0);
	for (from = room; room < from + 100; room++) {
		CHECK_EQ(cluster_recv(&c, 0, room, 0, 16, 2, &err), 0);
		atomic_store(&armed, true);
		CHECK_EQ(cluster_send(&c, 0, room, 0, 16, 16, 2, &err), 0);
		CHECK(wait_for(&entered));
		cluster_sleep_ms(30);
		sem_post(&opened);
		CHECK_EQ(cluster_wait(&c, &c.d[0], room, CLUSTER_WAIT_MS), KVF_SUCCESS);
		CHECK_EQ(cluster_wait(&c, &c.p[0], room, CLUSTER_WAIT_MS), KVF_SUCCESS);
		cluster_release(&c, &c.d[0], room);
		cluster_release(&c, &c.p[0], room);
		st = kvf_room_status(c.d[0].ep, 5);
		if (st == KVF_FAILED)
			break;
	}
	CHECK_EQ(st, KVF_FAILED);
	CHECK_EQ(kvf_room_error(c.d[0].ep, 5, &err), KVF_E_TIMEOUT);
	cluster_close(&c);
}

/* An endpoint posts and dies while nobody reads: its rooms are known all the same, and fail. */
static void
test_last_words(void)
{
	struct kvf_err err = {0};
	struct cluster_lists l[2];
	struct cluster c;
	uint32_t i;

	open_gated(&c, 2);
	for (i = 0; i < 2; i++)
		cluster_lists(&c, true, i, 0, 64, 5, &l[i]);
	for (i = 0; i < 2; i++) {
		const struct kvf_recv_args a = {.room = 7,
			.total_tokens = 64,
			.lists = l[i].lists,
			.num_lists = l[i].num,
			.bootstrap_timeout_ms = 60000};

		if (i == 1)
			hold(&c);
		CHECK_EQ(kvf_recv(c.d[i].ep, &a, &err), 0);
	}
	/* For the engine this is a death, and it says so before the posting is read. */
	shutdown(c.d[1].ep->sock, SHUT_RDWR);
	cluster_sleep_ms(200);
	sem_post(&opened);
	CHECK_EQ(cluster_wait(&c, &c.d[0], 7, 10000), KVF_FAILED);
	CHECK_EQ(kvf_room_error(c.d[0].ep, 7, &err), KVF_E_PEER_DIED);
	CHECK_STR_HAS(err.text, "decode d[1]");
	cluster_wait(&c, &c.d[0], 1, CLUSTER_WAIT_MS);
	for (i = 0; i < 2; i++) {
		struct cluster_lists *mine = &l[i];

		/* Room 1 lost a receiver, too. */
		peer_forgive(&c.d[i], 0, 64, mine->lists, mine->num);
		memcpy(c.d[i].shadow, c.d[i].base, c.d[i].pool_bytes);
		cluster_lists_free(mine);
	}
	cluster_close(&c);
}

static const struct suite_case cases[] = {
	{"a completion that waits at the deadline is Success", test_completion},
	{"postings that wait at the deadline count", test_postings},
	{"the last words of the dead", test_last_words},
	{"an engine that is always late still judges", test_held_for_ever},
};

SUITE_MAIN("deadline", cases)
