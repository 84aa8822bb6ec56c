/* SPDX-License-Identifier: BSD-3-Clause */
/* Much at a time: rooms by the hundred over tiny rings, long lists, several lcores, DMA devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"

/* Posts all, in an order of its own on each side, and looks after the endpoints only when it must.
 */
static void
flood(struct cluster *c, uint32_t rooms, uint64_t first)
{
	uint32_t *order = malloc(rooms * sizeof(*order)), i, k, r;
	struct kvf_err err = {0};
	uint64_t room, total;

	for (i = 0; i < rooms; i++) {
		k = (uint32_t)suite_range(&c->rand, 0, i);
		order[i] = order[k];
		order[k] = i;
	}
	for (i = 0; i < rooms; i++)
		for (r = 0; r < c->np; r++) {
			room = first + i;
			total = room % 7 * 9; /* 0..54 tokens */
			if (!CHECK_EQ(cluster_send(c, r, room, 0, total / 2 / 16 * 16, total,
					      (uint32_t)i % 512, &err),
				    0))
				printf("        %s\n", err.text);
		}
	for (i = 0; i < rooms; i++) {
		room = first + order[i];
		total = room % 7 * 9;
		for (r = 0; r < c->nd; r++)
			CHECK_EQ(cluster_recv(c, r, room, 0, total, order[i] % 512, &err), 0);
		for (r = 0; r < c->np && total != 0; r++)
			CHECK_EQ(cluster_send(c, r, room, total / 2 / 16 * 16,
					 total - total / 2 / 16 * 16, total, order[i] % 512, &err),
				0);
	}
	for (i = 0; i < rooms; i++)
		cluster_finish(c, first + i, KVF_SUCCESS);
	free(order);
}

static struct cluster_shape
flood_shape(uint32_t np, uint32_t nd)
{
	struct cluster_shape s = cluster_small(np, nd, 2);

	s.prefill.row_bytes = s.decode.row_bytes = 64;
	s.prefill.num_pages = s.decode.num_pages = 2048; /* none is used twice */
	s.prefill.slots = s.decode.slots = 512;
	return s;
}

static void
test_hundreds_of_rooms(void)
{
	struct kvf_endpoint_config limits = {
		.cq_entries = 4, .sq_entries = 4, .arena_bytes = 256, .max_rooms = 450};
	struct cluster_shape s = flood_shape(2, 2);
	struct cluster c;

	s.limits = &limits;
	cluster_open(&c, NULL, &s);
	flood(&c, 400, 1);
	CHECK_EQ(cluster_stat(&c, "rooms.success"), 400 * 4);
	CHECK_EQ(cluster_stat(&c, "rooms.failed"), 0);
	cluster_close(&c);
}

/* Nothing is left over: the engine's memory is the same after each round. */
static void
test_no_leak(void)
{
	struct cluster_shape s = flood_shape(1, 3);
	int64_t used = -1, held = -1;
	struct kvf_err err = {0};
	struct cluster c;
	uint32_t round, i;

	cluster_open(&c, NULL, &s);
	for (round = 0; round < 4; round++) {
		flood(&c, 60, 1);
		/* and some that fail half way */
		for (i = 0; i < 20; i++) {
			CHECK_EQ(cluster_send(&c, 0, 1000 + i, 0, 16, 100, 0, &err), 0);
			if (i % 2 == 0)
				CHECK_EQ(kvf_recv(c.d[0].ep,
						 &(struct kvf_recv_args){
							 .room = 1000 + i, .total_tokens = 99},
						 &err),
					0);
			else
				CHECK_EQ(
					kvf_abort(c.p[0].ep, 1000 + i, "changed my mind", &err), 0);
			CHECK_EQ(cluster_wait(&c, &c.p[0], 1000 + i, CLUSTER_WAIT_MS), KVF_FAILED);
			CHECK_EQ(cluster_release(&c, &c.p[0], 1000 + i), 0);
			if (i % 2 == 0) {
				CHECK_EQ(cluster_wait(&c, &c.d[0], 1000 + i, CLUSTER_WAIT_MS),
					KVF_FAILED);
				CHECK_EQ(cluster_release(&c, &c.d[0], 1000 + i), 0);
			}
		}
		if (round > 0) {
			CHECK_EQ(cluster_idle(&c), used);
			CHECK_EQ(cluster_stat(&c, "dispatcher.slab_bytes"), held);
		} else {
			used = cluster_idle(&c);
			held = cluster_stat(&c, "dispatcher.slab_bytes");
		}
	}
	cluster_close(&c);
}

/* 300,000 ids in one list: read over many rounds, while a small room passes by. */
static void
test_long_lists(void)
{
	struct kvf_endpoint_config limits = {.arena_bytes = 2 << 20};
	struct cluster_shape s = cluster_small(1, 1, 1);
	uint32_t n = 300000, i, k, *ids[2];
	struct kvf_err err = {0};
	uint32_t aux = 1;
	struct cluster c;

	s.limits = &limits;
	s.prefill.page_tokens = s.decode.page_tokens = 1;
	s.prefill.num_pages = s.decode.num_pages = n + 64;
	s.prefill.row_bytes = s.decode.row_bytes = 16;
	cluster_open(&c, NULL, &s);
	for (k = 0; k < 2; k++) {
		/* backwards on the one side, in blocks of three on the other */
		ids[k] = malloc((n + 2) * sizeof(uint32_t));
		for (i = 0; i < n; i++)
			ids[k][i] = k == 0 ? n - 1 - i : i / 3 * 3 + (i + 1) % 3;
	}
	{
		struct kvf_pages d[2] = {{PEER_TOKENS, n, ids[0]}, {PEER_AUX, 1, &aux}};
		struct kvf_pages p[2] = {{PEER_TOKENS, n, ids[1]}, {PEER_AUX, 1, &aux}};
		struct kvf_recv_args ra = {
			.room = 1, .total_tokens = n, .lists = d, .num_lists = 2};
		struct kvf_send_args sa = {
			.room = 1, .num_tokens = n, .total_tokens = n, .lists = p, .num_lists = 2};
		uint32_t small_ids[16], other = 2;
		struct kvf_pages sl[2] = {{PEER_TOKENS, 16, small_ids}, {PEER_AUX, 1, &other}};

		for (i = 0; i < 16; i++)
			small_ids[i] = n + i;
		CHECK_EQ(cluster_recv_lists(&c, 0, &ra, &err), 0);
		CHECK_EQ(cluster_send_lists(&c, 0, &sa, &err), 0);
		ra = (struct kvf_recv_args){
			.room = 2, .total_tokens = 16, .lists = sl, .num_lists = 2};
		sa = (struct kvf_send_args){.room = 2,
			.num_tokens = 16,
			.total_tokens = 16,
			.lists = sl,
			.num_lists = 2};
		CHECK_EQ(cluster_recv_lists(&c, 0, &ra, &err), 0);
		CHECK_EQ(cluster_send_lists(&c, 0, &sa, &err), 0);
		cluster_finish(&c, 2, KVF_SUCCESS);
		cluster_finish(&c, 1, KVF_SUCCESS);

		/* The same grant again, at once: all of it was given back. */
		ra = (struct kvf_recv_args){
			.room = 3, .total_tokens = n, .lists = d, .num_lists = 2};
		sa = (struct kvf_send_args){
			.room = 3, .num_tokens = n, .total_tokens = n, .lists = p, .num_lists = 2};
		CHECK_EQ(cluster_recv_lists(&c, 0, &ra, &err), 0);
		CHECK_EQ(cluster_send_lists(&c, 0, &sa, &err), 0);
		cluster_finish(&c, 3, KVF_SUCCESS);

		/* More than the arena can ever hold. */
		d[0].count = (2 << 18) + 1;
		ra.room = 4;
		CHECK_EQ(kvf_recv(c.d[0].ep, &ra, &err), KVF_E_QUOTA);
		CHECK_STR_HAS(err.text, "arena=2097152");
	}
	free(ids[0]);
	free(ids[1]);
	cluster_close(&c);
}

static void
work_through(const struct kvf_engine_config *cfg)
{
	struct cluster_shape s = cluster_small(2, 4, 6);
	struct cluster c;
	uint64_t room;

	s.prefill.num_pages = s.decode.num_pages = 256;
	s.prefill.draft_layers = s.decode.draft_layers = 1;
	s.prefill.state_bytes = s.decode.state_bytes = 5000;
	cluster_open(&c, cfg, &s);
	for (room = 1; room <= 8; room++)
		cluster_room(&c, room, room % 3 == 0 ? 64 : 0, room * 25, 64, (uint32_t)room);
	for (room = 1; room <= 8; room++)
		cluster_finish(&c, room, KVF_SUCCESS);
	cluster_close(&c);
	if (cfg->busy)
		return; /* slow where threads outnumber CPUs */
	s = flood_shape(1, 2);
	cluster_open(&c, cfg, &s);
	flood(&c, 60, 1);
	cluster_close(&c);
}

static void
test_two_lcores(void)
{
	struct kvf_engine_config cfg = {.lcores = 2};

	work_through(&cfg);
	cfg.busy = true;
	work_through(&cfg);
}

static void
test_three_lcores(void)
{
	struct kvf_engine_config cfg = {.lcores = 3};

	work_through(&cfg);
}

static void
test_dmadev(void)
{
	struct kvf_engine_config cfg = {.driver = "dmadev"};

	work_through(&cfg);
	cfg.lcores = 2;
	work_through(&cfg);
	cfg.lcores = 3; /* one more than there are devices */
	work_through(&cfg);
}

/* Endpoints come and go for a long time: no table fills up, whatever they left behind. */
static void
test_come_and_go(void)
{
	struct kvf_endpoint_config limits = {.sq_entries = 4, .cq_entries = 4, .arena_bytes = 64};
	struct kvf_engine_config cfg = {.max_endpoints = 8};
	struct rig *rig = rig_start(&cfg);
	struct kvf_err err = {0};
	struct peer p, d;
	char name[32];
	uint32_t i;

	for (i = 0; i < 600; i++) {
		struct peer_shape s = {
			.layers = 1, .row_bytes = 16, .page_tokens = 1, .num_pages = 4};

		peer_mla(&p, &s);
		peer_mla(&d, &s);
		/* Of groups that never fill, with rooms that wait for them. */
		snprintf(name, sizeof(name), "g%u", i);
		if (!CHECK_EQ(peer_open(&p, rig_socket(rig), KVF_PREFILL, name, 2, i % 2, &limits,
				      &err),
			    0) ||
			!CHECK_EQ(peer_open(&d, rig_socket(rig), KVF_DECODE, name, 2, i % 2,
					  &limits, &err),
				0)) {
			printf("        after %u: %s\n", i, err.text);
			break;
		}
		CHECK_EQ(kvf_recv(d.ep, &(struct kvf_recv_args){.room = 1}, &err), 0);
		CHECK_EQ(kvf_send(p.ep, &(struct kvf_send_args){.room = 1}, &err), 0);
		if (i % 3 == 0)
			cluster_sleep_ms(1);
		peer_close(i % 2 == 0 ? &p : &d);
		peer_close(i % 2 == 0 ? &d : &p);
	}
	CHECK_EQ(rig_stop(rig), 0);
}

static const struct suite_case cases[] = {
	{"hundreds of rooms through rings of four", test_hundreds_of_rooms},
	{"nothing is left over", test_no_leak},
	{"lists of 300,000 ids", test_long_lists},
	{"two lcores", test_two_lcores},
	{"three lcores", test_three_lcores},
	{"DMA devices", test_dmadev},
	{"groups come and go", test_come_and_go},
};

SUITE_MAIN("many", cases)
