/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups that do not fit, endpoints that are not admitted, and those who wait in vain. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"

static void
expect_failed(struct cluster *c, struct peer *p, uint64_t room, int code, const char *text)
{
	struct kvf_err err = {0};

	if (!CHECK_EQ(cluster_wait(c, p, room, CLUSTER_WAIT_MS), KVF_FAILED))
		return;
	CHECK_EQ(kvf_room_error(p->ep, room, &err), code);
	CHECK_STR_HAS(err.text, text);
}

/* Nothing arrived: what the shadow hoped for is taken back by the copy made before. */
static uint8_t *
remember(const struct peer *p)
{
	uint8_t *copy = malloc(p->pool_bytes);

	if (copy == NULL)
		abort();
	memcpy(copy, p->shadow, p->pool_bytes);
	return copy;
}

static void
take_back(struct peer *p, uint8_t *copy)
{
	memcpy(p->shadow, copy, p->pool_bytes);
	free(copy);
}

/* Opens two by two endpoints whose decode rank 1 was changed by `spoil`, checks that room after
 * room is refused at everybody, replaces that rank by a good one and sees rooms pass. */
static void
misfit(void (*spoil)(struct peer *), int code, const char *text)
{
	struct cluster_shape s = cluster_small(2, 2, 3);
	struct kvf_err err = {0};
	struct cluster c;
	uint8_t *copy[2];
	uint64_t room;
	uint32_t i;

	memset(&c, 0, sizeof(c));
	for (i = 0; i < 2; i++) {
		struct peer_shape d = s.decode;

		d.sharding = (struct kvf_sharding){2, i, 1, 0};
		peer_mla(&c.p[i], &s.prefill);
		peer_mla(&c.d[i], &d);
	}
	spoil(&c.d[1]);
	cluster_open_declared(&c, NULL, &s);
	for (room = 1; room <= 3; room++) {
		for (i = 0; i < 2; i++)
			copy[i] = remember(&c.d[i]);
		cluster_room(&c, room, 0, 64, 32, 0);
		for (i = 0; i < 2; i++) {
			expect_failed(&c, &c.p[i], room, code, text);
			expect_failed(&c, &c.d[i], room, code, text);
			take_back(&c.d[i], copy[i]);
		}
		for (i = 0; i < 2; i++) {
			CHECK_EQ(cluster_release(&c, &c.p[i], room), 0);
			CHECK_EQ(cluster_release(&c, &c.d[i], room), 0);
		}
	}
	CHECK_EQ(peer_check(&c.d[1]), 0);
	peer_close(&c.d[1]);
	{
		struct peer_shape d = s.decode;

		d.sharding = (struct kvf_sharding){2, 1, 1, 0};
		peer_mla(&c.d[1], &d);
		CHECK_EQ(peer_open(&c.d[1], rig_socket(c.rig), KVF_DECODE, "d", 2, 1, NULL, &err),
			0);
	}
	cluster_room(&c, room, 0, 64, 32, 0);
	cluster_finish(&c, room, KVF_SUCCESS);
	cluster_close(&c);
}

static void
other_row_bytes(struct peer *p)
{
	p->entries[1].row_bytes = 1088; /* stays within its rows */
}

static void
other_dtype(struct peer *p)
{
	p->entries[2].dtype = 7;
}

static void
other_layer(struct peer *p)
{
	p->entries[0].layer = 61;
}

static void
test_misfits(void)
{
	misfit(other_row_bytes, KVF_E_MISMATCH, "layer=1 kind=1: src=1152 dst=1088");
	misfit(other_dtype, KVF_E_MISMATCH, "layer=2 kind=1: prefill=1 decode=7");
	misfit(other_layer, KVF_E_COVERAGE, "no prefill rank holds layer=61 kind=1");
}

static int
try_open(struct rig *rig, enum kvf_role role, const char *group, uint32_t size, uint32_t rank,
	struct peer *p, struct kvf_err *err)
{
	struct peer_shape s = {.layers = 1, .row_bytes = 64, .page_tokens = 1, .num_pages = 64};
	int rc;

	peer_mla(p, &s);
	rc = peer_open(p, rig_socket(rig), role, group, size, rank, NULL, err);
	if (rc != 0)
		peer_close(p);
	return rc;
}

static void
test_not_admitted(void)
{
	struct kvf_engine_config cfg = {.max_endpoints = 3, .max_pool_bytes = 8192};
	struct rig *rig = rig_start(&cfg);
	struct kvf_err err = {0};
	struct peer a, b, d, x;
	struct peer_shape big = {.layers = 1, .row_bytes = 64, .page_tokens = 1, .num_pages = 200};

	CHECK_EQ(try_open(rig, KVF_PREFILL, "g", 2, 0, &a, &err), 0);
	CHECK_EQ(try_open(rig, KVF_PREFILL, "g", 2, 0, &x, &err), KVF_E_EXIST);
	CHECK_STR_HAS(err.text, "prefill g[0] is held by pid=");
	CHECK_EQ(try_open(rig, KVF_PREFILL, "g", 3, 1, &x, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "group=g has group_size=2, got group_size=3");
	/* Names are per role. */
	CHECK_EQ(try_open(rig, KVF_DECODE, "g", 1, 0, &d, &err), 0);
	CHECK_EQ(try_open(rig, KVF_PREFILL, "g", 2, 1, &b, &err), 0);
	CHECK_EQ(try_open(rig, KVF_PREFILL, "h", 1, 0, &x, &err), KVF_E_QUOTA);
	CHECK_STR_HAS(err.text, "endpoints=3 limit=3");
	peer_close(&d);
	peer_mla(&x, &big);
	CHECK_EQ(peer_open(&x, rig_socket(rig), KVF_PREFILL, "h", 1, 0, NULL, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "limit=8192");
	peer_close(&x);
	/* Each place that was left can be taken, the group with another size once it is empty. */
	peer_close(&a);
	CHECK_EQ(try_open(rig, KVF_PREFILL, "g", 2, 0, &a, &err), 0);
	peer_close(&a);
	peer_close(&b);
	CHECK_EQ(try_open(rig, KVF_PREFILL, "g", 1, 0, &a, &err), 0);
	CHECK_EQ(try_open(rig, KVF_DECODE, "g", 1, 0, &d, &err), 0);
	{
		struct kvf_send_args send = {.room = 1};
		struct kvf_recv_args recv = {.room = 1};

		CHECK_EQ(kvf_send(a.ep, &send, &err), 0);
		CHECK_EQ(kvf_recv(d.ep, &recv, &err), 0);
		CHECK_EQ(peer_wait(&a, 1, CLUSTER_WAIT_MS), KVF_SUCCESS);
		CHECK_EQ(peer_wait(&d, 1, CLUSTER_WAIT_MS), KVF_SUCCESS);
	}
	peer_close(&a);
	peer_close(&d);
	CHECK_EQ(rig_stop(rig), 0);
}

static void
test_engine_does_not_start(void)
{
	struct kvf_engine_config cfg = {.driver = "warp"};
	struct kvf_err err = {0};

	CHECK(rig_try_start(&cfg, &err) == NULL);
	CHECK_EQ(err.code, KVF_E_DRIVER);
	CHECK_STR_HAS(err.text, "driver=warp is unknown");
	cfg.driver = "dmadev:nobody";
	CHECK(rig_try_start(&cfg, &err) == NULL);
	CHECK_EQ(err.code, KVF_E_DRIVER);
	cfg.driver = "fault:cpu,fail=0";
	CHECK(rig_try_start(&cfg, &err) == NULL);
	CHECK_EQ(err.code, KVF_E_DRIVER);
	cfg.driver = NULL;
	cfg.lcores = RIG_LCORES + 1;
	CHECK(rig_try_start(&cfg, &err) == NULL);
	CHECK_EQ(err.code, KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "worker lcores=3, needed=4");
}

static void
check_timeout(struct cluster *c, struct peer *p, uint64_t room, const char *state)
{
	char text[64];

	snprintf(text, sizeof(text), "room=%" PRIu64, room);
	expect_failed(c, p, room, KVF_E_TIMEOUT, text);
	snprintf(text, sizeof(text), "timed out in state=%s after seconds=", state);
	expect_failed(c, p, room, KVF_E_TIMEOUT, text);
	CHECK_EQ(cluster_release(c, p, room), 0);
}

static void
test_timeouts(void)
{
	struct kvf_endpoint_config limits = {
		.bootstrap_timeout_ms = 500, .waiting_timeout_ms = 500};
	struct cluster_shape s = cluster_small(1, 2, 2);
	struct kvf_recv_args a = {.room = 5, .total_tokens = 0, .bootstrap_timeout_ms = 60000};
	struct kvf_err err = {0};
	uint32_t aux = 0;
	struct kvf_pages list = {PEER_AUX, 1, &aux};
	struct cluster c;
	uint8_t *copy[2];
	uint32_t i;

	s.limits = &limits;
	cluster_open(&c, NULL, &s);
	for (i = 0; i < 2; i++)
		copy[i] = remember(&c.d[i]);
	/* Nobody sends. A room with a limit of its own outlives the others. */
	a.lists = &list;
	a.num_lists = 1;
	CHECK_EQ(kvf_recv(c.d[0].ep, &a, &err), 0);
	CHECK_EQ(cluster_recv(&c, 0, 1, 0, 64, 1, &err), 0);
	check_timeout(&c, &c.d[0], 1, "Bootstrapping");
	CHECK_EQ(kvf_room_status(c.d[0].ep, 5), KVF_BOOTSTRAPPING);
	/* Nobody receives. */
	CHECK_EQ(cluster_send(&c, 0, 2, 0, 64, 64, 2, &err), 0);
	check_timeout(&c, &c.p[0], 2, "Bootstrapping");
	/* One receiver of two: for those that are there the waiting limit counts. */
	CHECK_EQ(cluster_send(&c, 0, 3, 0, 0, 64, 2, &err), 0);
	CHECK_EQ(cluster_recv(&c, 0, 3, 0, 64, 1, &err), 0);
	CHECK_EQ(cluster_until(&c, &c.d[0], 3, KVF_WAITING_FOR_INPUT, CLUSTER_WAIT_MS),
		KVF_WAITING_FOR_INPUT);
	cluster_wait(&c, &c.d[0], 3, CLUSTER_WAIT_MS);
	check_timeout(&c, &c.p[0], 3, "WaitingForInput");
	check_timeout(&c, &c.d[0], 3, "WaitingForInput");
	for (i = 0; i < 2; i++)
		take_back(&c.d[i], copy[i]);
	/* No second chunk. */
	{
		struct cluster_lists l[2];
		struct kvf_recv_args r = {.room = 4, .total_tokens = 64};

		for (i = 0; i < 2; i++) {
			cluster_lists(&c, true, i, 0, 64, 3, &l[i]);
			r.lists = l[i].lists;
			r.num_lists = l[i].num;
			CHECK_EQ(kvf_recv(c.d[i].ep, &r, &err), 0);
		}
		CHECK_EQ(cluster_send(&c, 0, 4, 0, 32, 64, 2, &err), 0);
		for (i = 0; i < 2; i++) {
			CHECK_EQ(cluster_wait(&c, &c.d[i], 4, CLUSTER_WAIT_MS), KVF_FAILED);
			peer_forgive(&c.d[i], 0, 64, l[i].lists, l[i].num);
			cluster_lists_free(&l[i]);
		}
		for (i = 0; i < 2; i++)
			check_timeout(&c, &c.d[i], 4, "Transferring");
		check_timeout(&c, &c.p[0], 4, "Transferring");
	}
	/* The one with the long limit is still there, and the others' ids work again. */
	CHECK_EQ(cluster_recv(&c, 1, 5, 0, 0, 0, &err), 0);
	peer_expect(&c.d[0], 5, 0, 0, &list, 1);
	cluster_send_all(&c, 5, 0, 0, 16, 0);
	cluster_finish(&c, 5, KVF_SUCCESS);
	cluster_room(&c, 1, 0, 200, 64, 2);
	cluster_finish(&c, 1, KVF_SUCCESS);
	cluster_close(&c);
}

/* Chunks and copies are progress: a room may take longer than the limit as long as it moves. */
static void
test_progress_is_no_timeout(void)
{
	struct kvf_endpoint_config limits = {.waiting_timeout_ms = 1000};
	struct cluster_shape s = cluster_small(1, 1, 2);
	struct kvf_err err = {0};
	struct cluster c;
	uint64_t at;

	s.limits = &limits;
	cluster_open(&c, NULL, &s);
	cluster_recv_all(&c, 1, 0, 64, 0);
	for (at = 0; at < 64; at += 16) {
		CHECK_EQ(cluster_send(&c, 0, 1, at, 16, 64, 0, &err), 0);
		cluster_sleep_ms(at < 48 ? 400 : 0);
	}
	cluster_finish(&c, 1, KVF_SUCCESS);
	cluster_close(&c);
}

/* A member of a group that already linked comes back as another process: rooms go on with the new
 * one. */
static void
test_member_replaced(void)
{
	struct cluster_shape s = cluster_small(2, 2, 4);
	struct kvf_err err = {0};
	struct cluster c;
	uint64_t room;
	uint32_t i;

	cluster_open(&c, NULL, &s);
	for (room = 1; room <= 6; room++) {
		struct peer *gone = room % 2 == 0 ? &c.p[room / 2 % 2] : &c.d[room / 2 % 2];
		uint8_t *copy[2];

		cluster_room(&c, room, 0, 100, 48, 0);
		cluster_finish(&c, room, KVF_SUCCESS);
		/* One leaves while a room waits for it: the others hear of it. */
		for (i = 0; i < 2; i++)
			copy[i] = remember(&c.d[i]);
		CHECK_EQ(cluster_send(&c, 0, 100 + room, 0, 0, 100, 0, &err), 0);
		CHECK_EQ(cluster_recv(&c, 0, 100 + room, 0, 100, 0, &err), 0);
		CHECK_EQ(cluster_until(
				 &c, &c.d[0], 100 + room, KVF_WAITING_FOR_INPUT, CLUSTER_WAIT_MS),
			KVF_WAITING_FOR_INPUT);
		CHECK_EQ(cluster_leave(&c, gone), 0);
		if (gone != &c.p[0]) {
			expect_failed(&c, &c.p[0], 100 + room, KVF_E_PEER_DIED,
				gone->role == KVF_PREFILL ? "prefill p[1]" : "decode d[");
			CHECK_EQ(cluster_release(&c, &c.p[0], 100 + room), 0);
		}
		if (gone != &c.d[0]) {
			expect_failed(&c, &c.d[0], 100 + room, KVF_E_PEER_DIED,
				gone->role == KVF_PREFILL ? "prefill p[" : "decode d[1]");
			CHECK_EQ(cluster_release(&c, &c.d[0], 100 + room), 0);
		}
		for (i = 0; i < 2; i++)
			take_back(&c.d[i], copy[i]);
		CHECK_EQ(peer_connect(gone, rig_socket(c.rig), NULL, &err), 0);
	}
	cluster_close(&c);
}

static const struct suite_case cases[] = {
	{"groups that do not fit", test_misfits},
	{"endpoints that are not admitted", test_not_admitted},
	{"engines that do not start", test_engine_does_not_start},
	{"timeouts name room, state and seconds", test_timeouts},
	{"progress is no timeout", test_progress_is_no_timeout},
	{"a member is replaced", test_member_replaced},
};

SUITE_MAIN("meeting", cases)
