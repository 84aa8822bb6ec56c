/* SPDX-License-Identifier: BSD-3-Clause */
/* What a room does when everybody behaves: who comes when, states, events, names and keys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"

#define MASK(s) (1u << (s))

static void
test_one_room(void)
{
	struct cluster_shape s = cluster_small(1, 1, 3);
	struct cluster c;

	cluster_open(&c, NULL, &s);
	cluster_room(&c, 42, 0, 100, 100, 3);
	cluster_finish(&c, 42, KVF_SUCCESS);
	cluster_close(&c);
}

static void
test_replicas_to_dcp8(void)
{
	struct cluster_shape s = cluster_small(2, 8, 5);
	struct cluster c;
	uint64_t room;

	s.decode.num_pages = 32;
	cluster_open(&c, NULL, &s);
	/* Mixed lengths: partial pages, fewer tokens than ranks, a prefix, a full prefix hit,
	 * nothing at all. */
	cluster_room(&c, 1, 0, 333, 64, 0);
	cluster_room(&c, 2, 0, 5, 64, 1);
	cluster_room(&c, 3, 128, 300, 32, 2);
	cluster_room(&c, 4, 256, 256, 64, 3);
	cluster_room(&c, 5, 0, 0, 64, 4);
	for (room = 1; room <= 5; room++)
		cluster_finish(&c, room, KVF_SUCCESS);
	cluster_close(&c);
}

static void
test_send_first(void)
{
	struct cluster_shape s = cluster_small(1, 2, 3);
	struct cluster c;

	cluster_open(&c, NULL, &s);
	cluster_send_all(&c, 7, 0, 150, 32, 0);
	cluster_sleep_ms(20);
	CHECK_EQ(kvf_room_status(c.p[0].ep, 7), KVF_BOOTSTRAPPING);
	CHECK_EQ(kvf_room_drained(c.p[0].ep, 7), 0);
	cluster_recv_all(&c, 7, 0, 150, 1);
	cluster_finish(&c, 7, KVF_SUCCESS);

	/* And the other way round, with the receivers waiting. */
	cluster_recv_all(&c, 8, 0, 150, 2);
	cluster_sleep_ms(20);
	CHECK_EQ(kvf_room_status(c.d[0].ep, 8), KVF_BOOTSTRAPPING);
	cluster_send_all(&c, 8, 0, 150, 150, 3);
	cluster_finish(&c, 8, KVF_SUCCESS);
	cluster_close(&c);
}

/* Decode ranks come one by one; each finishes with what it has, the sender with the last. */
static void
test_late_receivers(void)
{
	struct cluster_shape s = cluster_small(2, 4, 3);
	struct kvf_err err = {0};
	struct cluster c;
	uint32_t i;

	cluster_open(&c, NULL, &s);
	cluster_send_all(&c, 9, 0, 400, 64, 0);
	for (i = 0; i < 4; i++) {
		CHECK_EQ(kvf_room_status(c.p[0].ep, 9) == KVF_SUCCESS, 0);
		CHECK_EQ(cluster_recv(&c, i, 9, 0, 400, 1, &err), 0);
		CHECK_EQ(cluster_wait(&c, &c.d[i], 9, CLUSTER_WAIT_MS), KVF_SUCCESS);
		CHECK_EQ(peer_check(&c.d[i]), 0);
	}
	cluster_finish(&c, 9, KVF_SUCCESS);

	/* Senders one by one as well: nobody is done before the last. */
	cluster_recv_all(&c, 10, 0, 200, 2);
	CHECK_EQ(cluster_send(&c, 1, 10, 0, 200, 200, 2, &err), 0);
	cluster_sleep_ms(30);
	for (i = 0; i < 4; i++)
		CHECK(kvf_room_status(c.d[i].ep, 10) < KVF_SUCCESS);
	CHECK_EQ(cluster_send(&c, 0, 10, 0, 200, 200, 2, &err), 0);
	cluster_finish(&c, 10, KVF_SUCCESS);
	cluster_close(&c);
}

/* A chunk comes after everything before it was copied: twice, the second one from one sender late.
 */
static void
test_late_chunk(void)
{
	struct cluster_shape s = cluster_small(2, 2, 4);
	struct kvf_err err = {0};
	struct cluster c;
	uint32_t i;

	cluster_open(&c, NULL, &s);
	cluster_recv_all(&c, 11, 0, 300, 0);
	for (i = 0; i < 2; i++)
		CHECK_EQ(cluster_send(&c, i, 11, 0, 96, 300, 0, &err), 0);
	for (i = 0; i < 2; i++) {
		while (cluster_seen(&c, &c.p[i], 11) == NULL ||
			cluster_seen(&c, &c.p[i], 11)->tokens < 96)
			if (!cluster_poll(&c))
				kvf_wait(c.p[i].ep, 10);
		CHECK_EQ(kvf_room_status(c.p[i].ep, 11), KVF_TRANSFERRING);
	}
	CHECK_EQ(cluster_send(&c, 0, 11, 96, 204, 300, 0, &err), 0);
	cluster_sleep_ms(30);
	CHECK_EQ(kvf_room_status(c.d[0].ep, 11), KVF_TRANSFERRING);
	CHECK_EQ(cluster_send(&c, 1, 11, 96, 48, 300, 0, &err), 0);
	cluster_sleep_ms(10);
	CHECK_EQ(cluster_send(&c, 1, 11, 144, 156, 300, 0, &err), 0);
	cluster_finish(&c, 11, KVF_SUCCESS);
	cluster_close(&c);
}

/* All five states in turn, each waited for. A chunk of nothing joins the room. */
static void
test_states_rise(void)
{
	struct cluster_shape s = cluster_small(1, 2, 3);
	struct kvf_err err = {0};
	const struct seen *e;
	struct cluster c;
	uint32_t i;

	cluster_open(&c, NULL, &s);
	CHECK_EQ(kvf_room_status(c.d[0].ep, 12), KVF_E_NOENT);
	cluster_recv_all(&c, 12, 32, 200, 0);
	CHECK_EQ(kvf_room_status(c.d[0].ep, 12), KVF_BOOTSTRAPPING);
	CHECK_EQ(cluster_send(&c, 0, 12, 0, 0, 200, 0, &err), 0);
	for (i = 0; i < 2; i++)
		CHECK_EQ(cluster_until(&c, &c.d[i], 12, KVF_WAITING_FOR_INPUT, CLUSTER_WAIT_MS),
			KVF_WAITING_FOR_INPUT);
	CHECK_EQ(cluster_until(&c, &c.p[0], 12, KVF_WAITING_FOR_INPUT, CLUSTER_WAIT_MS),
		KVF_WAITING_FOR_INPUT);
	/* Before the prefix: nothing moves, and the pages come back. */
	CHECK_EQ(cluster_send(&c, 0, 12, 0, 32, 200, 0, &err), 0);
	while (cluster_seen(&c, &c.p[0], 12)->tokens < 32)
		if (!cluster_poll(&c))
			kvf_wait(c.p[0].ep, 10);
	CHECK_EQ(kvf_room_status(c.p[0].ep, 12), KVF_WAITING_FOR_INPUT);
	CHECK_EQ(cluster_send(&c, 0, 12, 32, 64, 200, 0, &err), 0);
	for (i = 0; i < 2; i++)
		CHECK_EQ(cluster_until(&c, &c.d[i], 12, KVF_TRANSFERRING, CLUSTER_WAIT_MS),
			KVF_TRANSFERRING);
	CHECK_EQ(cluster_send(&c, 0, 12, 96, 104, 200, 0, &err), 0);
	CHECK_EQ(cluster_until(&c, &c.p[0], 12, KVF_SUCCESS, CLUSTER_WAIT_MS), KVF_SUCCESS);
	CHECK_EQ(cluster_wait(&c, &c.p[0], 12, CLUSTER_WAIT_MS), KVF_SUCCESS);
	for (i = 0; i < 2; i++)
		CHECK_EQ(cluster_wait(&c, &c.d[i], 12, CLUSTER_WAIT_MS), KVF_SUCCESS);
	for (i = 0; i < 3; i++) {
		e = cluster_seen(&c, i < 2 ? &c.d[i] : &c.p[0], 12);
		CHECK_EQ(e->mask,
			MASK(KVF_WAITING_FOR_INPUT) | MASK(KVF_TRANSFERRING) | MASK(KVF_SUCCESS));
		CHECK_EQ(e->tokens, 200);
		CHECK_EQ(e->drained, 1);
	}
	cluster_finish(&c, 12, KVF_SUCCESS);
	cluster_close(&c);
}

/* Prefill hears chunk by chunk which source pages are free, and may reuse them at once. */
static void
test_tokens_and_reuse(void)
{
	struct cluster_shape s = cluster_small(1, 3, 3);
	struct kvf_err err = {0};
	struct cluster c;
	uint64_t at;
	uint32_t i;

	s.prefill.num_pages = 4; /* one chunk's worth */
	cluster_open(&c, NULL, &s);
	cluster_recv_all(&c, 13, 0, 64 * 9 + 5, 0);
	for (at = 0; at < 64 * 9 + 5; at += 64) {
		uint64_t n = 64 * 9 + 5 - at < 64 ? 5 : 64;

		CHECK_EQ(cluster_send(&c, 0, 13, at, n, 64 * 9 + 5, 0, &err), 0);
		for (i = 0; i < 100000 && (cluster_seen(&c, &c.p[0], 13) == NULL ||
						  cluster_seen(&c, &c.p[0], 13)->tokens < at + n);
			i++)
			if (!cluster_poll(&c))
				kvf_wait(c.p[0].ep, 10);
		CHECK_EQ(cluster_seen(&c, &c.p[0], 13)->tokens, at + n);
	}
	cluster_finish(&c, 13, KVF_SUCCESS);
	cluster_close(&c);
}

/* One sender is through with its chunks, each rank having taken another one; the other sender is
 * late. */
static void
test_tokens_while_others_wait(void)
{
	struct kvf_engine_config cfg = {.driver = "fault:cpu,delay_us=20000"};
	struct cluster_shape s = cluster_small(2, 2, 4);
	struct kvf_err err = {0};
	struct cluster c;
	uint32_t i;

	s.interleave = 16; /* each rank is planned to the end while its only segment is under way */
	cluster_open(&c, &cfg, &s);
	cluster_recv_all(&c, 15, 0, 32, 0);
	CHECK_EQ(cluster_send(&c, 0, 15, 0, 16, 32, 0, &err), 0);
	CHECK_EQ(cluster_send(&c, 0, 15, 16, 16, 32, 0, &err), 0);
	for (i = 0; i < 200 && (cluster_seen(&c, &c.p[0], 15) == NULL ||
				       cluster_seen(&c, &c.p[0], 15)->tokens < 16);
		i++)
		if (!cluster_poll(&c))
			kvf_wait(c.p[0].ep, 10);
	CHECK_EQ(cluster_seen(&c, &c.p[0], 15)->tokens, 16);
	CHECK_EQ(kvf_room_status(c.p[0].ep, 15), KVF_TRANSFERRING);
	CHECK_EQ(cluster_send(&c, 1, 15, 0, 32, 32, 0, &err), 0);
	cluster_finish(&c, 15, KVF_SUCCESS);
	cluster_close(&c);
}

static void
test_prefix_trimming(void)
{
	static const uint64_t prefixes[] = {0, 32, 64, 96, 288, 320};
	static const uint64_t chunks[] = {16, 48, 112, 400};
	struct cluster_shape s = cluster_small(1, 2, 2);
	struct cluster c;
	uint64_t room = 100;
	uint32_t i, k;

	cluster_open(&c, NULL, &s);
	for (i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		for (k = 0; k < sizeof(chunks) / sizeof(chunks[0]); k++, room++) {
			cluster_recv_all(&c, room, prefixes[i], 323, 0);
			/* The sender knows nothing of the prefix. */
			cluster_send_all(&c, room, 0, 323, chunks[k], 1);
			cluster_finish(&c, room, KVF_SUCCESS);
		}
	cluster_close(&c);
}

/* An id is used again while the other side still holds the last use, in both orders, and at once on
 * both. */
static void
test_room_id_again(void)
{
	struct cluster_shape s = cluster_small(2, 2, 2);
	struct kvf_err err = {0};
	struct cluster c;
	uint32_t i, k;

	cluster_open(&c, NULL, &s);
	cluster_room(&c, 5, 0, 90, 32, 0);
	for (k = 0; k < 20; k++) {
		for (i = 0; i < 2; i++)
			CHECK_EQ(cluster_wait(&c, &c.p[i], 5, CLUSTER_WAIT_MS), KVF_SUCCESS);
		for (i = 0; i < 2; i++)
			CHECK_EQ(cluster_wait(&c, &c.d[i], 5, CLUSTER_WAIT_MS), KVF_SUCCESS);
		if (k % 2 == 0) {
			for (i = 0; i < 2; i++)
				CHECK_EQ(cluster_release(&c, &c.d[i], 5), 0);
			cluster_recv_all(&c, 5, 0, 90 + k, k % 16);
			CHECK_EQ(kvf_room_status(c.d[0].ep, 5), KVF_BOOTSTRAPPING);
			CHECK_EQ(kvf_send(c.p[0].ep,
					 &(struct kvf_send_args){
						 .room = 5, .start_token = 90, .total_tokens = 90},
					 &err),
				KVF_E_EXIST);
			for (i = 0; i < 2; i++)
				CHECK_EQ(cluster_release(&c, &c.p[i], 5), 0);
			cluster_send_all(&c, 5, 0, 90 + k, 48, k % 16);
		} else {
			for (i = 0; i < 2; i++)
				CHECK_EQ(cluster_release(&c, &c.p[i], 5), 0);
			cluster_send_all(&c, 5, 0, 90 + k, 48, k % 16);
			for (i = 0; i < 2; i++)
				CHECK_EQ(cluster_release(&c, &c.d[i], 5), 0);
			cluster_recv_all(&c, 5, 0, 90 + k, k % 16);
		}
	}
	cluster_finish(&c, 5, KVF_SUCCESS);
	cluster_close(&c);
}

/* Two pairs of groups at one engine use the same ids; the names keep them apart. */
static void
test_two_pairs(void)
{
	struct cluster_shape s = cluster_small(2, 2, 2);
	struct cluster a, b;
	uint64_t room;

	cluster_open(&a, NULL, &s);
	s.rig = a.rig;
	s.prefill_name = "p2";
	s.decode_name = "d2";
	s.prefill.row_bytes = s.decode.row_bytes = 576; /* would not even fit the others */
	cluster_open(&b, NULL, &s);
	a.prefill_group = "p";
	b.prefill_group = "p2";
	for (room = 1; room <= 12; room++) {
		if (room % 3 == 0) {
			cluster_send_all(&a, room, 0, 77, 32, 0);
			cluster_send_all(&b, room, 0, 78, 32, 0);
		}
		cluster_recv_all(&a, room, 0, 77, 0);
		cluster_recv_all(&b, room, 0, 78, 0);
		if (room % 3 == 1) {
			cluster_send_all(&a, room, 0, 77, 77, 0);
			cluster_send_all(&b, room, 0, 78, 78, 0);
		} else if (room % 3 == 2) {
			cluster_send_all(&b, room, 0, 78, 16, 0);
			cluster_send_all(&a, room, 0, 77, 16, 0);
		}
		cluster_finish(&b, room, KVF_SUCCESS);
		cluster_finish(&a, room, KVF_SUCCESS);
	}
	cluster_close(&b);
	cluster_close(&a);
}

/* Equal keys find each other; a third endpoint with another key gets nothing and harms nobody. */
static void
test_keys(void)
{
	struct cluster_shape s = cluster_small(1, 1, 2);
	struct cluster good, thief;
	struct kvf_err err = {0};
	uint8_t *before;

	cluster_open(&good, NULL, &s);
	s.rig = good.rig;
	s.prefill_name = "p3";
	s.decode_name = "d3";
	cluster_open(&thief, NULL, &s);
	good.key = 0x1234567890abcdefull;
	thief.key = 0x1234567890abcdeeull;
	before = malloc(thief.d[0].pool_bytes);
	memcpy(before, thief.d[0].shadow, thief.d[0].pool_bytes);
	CHECK_EQ(cluster_recv(&thief, 0, 77, 0, 100, 0, &err), 0);
	cluster_send_all(&good, 77, 0, 100, 100, 0);
	cluster_sleep_ms(20);
	CHECK_EQ(kvf_room_status(good.p[0].ep, 77), KVF_BOOTSTRAPPING);
	cluster_recv_all(&good, 77, 0, 100, 0);
	cluster_finish(&good, 77, KVF_SUCCESS);
	CHECK_EQ(kvf_room_status(thief.d[0].ep, 77), KVF_BOOTSTRAPPING);
	CHECK_EQ(kvf_abort(thief.d[0].ep, 77, "never mind", &err), 0);
	CHECK_EQ(cluster_wait(&thief, &thief.d[0], 77, CLUSTER_WAIT_MS), KVF_FAILED);
	CHECK_EQ(cluster_release(&thief, &thief.d[0], 77), 0);
	memcpy(thief.d[0].shadow, before,
		thief.d[0].pool_bytes); /* what it hoped for did not come */
	free(before);

	/* 0 is a key like any other. */
	good.key = 0;
	cluster_recv_all(&good, 78, 0, 40, 1);
	cluster_send_all(&good, 78, 0, 40, 40, 1);
	cluster_finish(&good, 78, KVF_SUCCESS);
	cluster_close(&thief);
	cluster_close(&good);
}

/* The waiting limit does not count what was waited for the last rank of a group to register. */
static void
test_late_member(void)
{
	struct kvf_endpoint_config limits = {.waiting_timeout_ms = 1500};
	struct cluster_shape s = cluster_small(1, 2, 2);
	struct kvf_err err = {0};
	struct cluster c;

	s.limits = &limits;
	cluster_open(&c, NULL, &s);
	CHECK_EQ(cluster_leave(&c, &c.d[1]), 0);
	CHECK_EQ(cluster_recv(&c, 0, 21, 0, 64, 0, &err), 0);
	CHECK_EQ(cluster_send(&c, 0, 21, 0, 0, 64, 0, &err), 0); /* nothing that could move yet */
	cluster_sleep_ms(1700);
	cluster_poll(&c);
	CHECK_EQ(kvf_room_status(c.p[0].ep, 21), KVF_BOOTSTRAPPING);
	CHECK_EQ(peer_connect(&c.d[1], rig_socket(c.rig), &limits, &err), 0);
	CHECK_EQ(cluster_until(&c, &c.p[0], 21, KVF_WAITING_FOR_INPUT, CLUSTER_WAIT_MS) >=
			 KVF_WAITING_FOR_INPUT,
		1);
	cluster_sleep_ms(100);
	CHECK_EQ(cluster_send(&c, 0, 21, 0, 64, 64, 0, &err), 0);
	CHECK_EQ(cluster_recv(&c, 1, 21, 0, 64, 0, &err), 0);
	cluster_finish(&c, 21, KVF_SUCCESS);
	cluster_close(&c);
}

/* Leaving is confirmed at once, not when the engine wakes by itself. */
static void
test_prompt_goodbye(void)
{
	struct kvf_endpoint_config limits = {.open_timeout_ms = 800};
	struct cluster_shape s = cluster_small(1, 1, 1);
	struct kvf_err err = {0};
	struct cluster c;
	uint32_t i;

	s.limits = &limits;
	cluster_open(&c, NULL, &s);
	for (i = 0; i < 12; i++) {
		CHECK_EQ(cluster_leave(&c, &c.d[0]), 0);
		CHECK_EQ(peer_connect(&c.d[0], rig_socket(c.rig), &limits, &err), 0);
	}
	cluster_close(&c);
}

static const struct suite_case cases[] = {
	{"one room, one to one", test_one_room},
	{"two replicas to DCP 8, mixed lengths", test_replicas_to_dcp8},
	{"send before receive and the other way round", test_send_first},
	{"ranks of either side come late", test_late_receivers},
	{"a chunk after the last one was copied", test_late_chunk},
	{"states rise one by one", test_states_rise},
	{"source pages come back chunk by chunk", test_tokens_and_reuse},
	{"chunks are reported while others are under way", test_tokens_while_others_wait},
	{"what lies before the prefix is trimmed", test_prefix_trimming},
	{"a room id again, released on one side", test_room_id_again},
	{"two pairs of groups with the same ids", test_two_pairs},
	{"keys", test_keys},
	{"the last rank registers late", test_late_member},
	{"an endpoint leaves promptly", test_prompt_goodbye},
};

SUITE_MAIN("rooms", cases)
