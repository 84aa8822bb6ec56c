/* SPDX-License-Identifier: BSD-3-Clause */
/* Rooms that ask for their bytes to be compared, over drivers that lie. */
#include <stdio.h>
#include <string.h>

#include "cluster.h"

/* One room of 64 tokens in one chunk; who asks for the comparison. Returns decode's status. */
static int
run(const char *driver, uint64_t room, uint32_t recv_flags, uint32_t send_flags, int *code)
{
	struct kvf_engine_config cfg = {.driver = driver};
	struct cluster_shape s = cluster_small(1, 1, 2);
	struct cluster_lists rl, sl;
	struct kvf_err err = {0};
	struct cluster c;
	int status;

	cluster_open(&c, &cfg, &s);
	cluster_lists(&c, true, 0, 0, 64, 1, &rl);
	cluster_lists(&c, false, 0, 0, 64, 1, &sl);
	struct kvf_recv_args r = {.room = room,
		.total_tokens = 64,
		.lists = rl.lists,
		.num_lists = rl.num,
		.flags = recv_flags};
	struct kvf_send_args w = {.room = room,
		.num_tokens = 64,
		.total_tokens = 64,
		.lists = sl.lists,
		.num_lists = sl.num,
		.flags = send_flags};

	peer_put(&c.p[0], room, 0, 64, sl.lists, sl.num);
	CHECK_EQ(kvf_recv(c.d[0].ep, &r, &err), 0);
	CHECK_EQ(kvf_send(c.p[0].ep, &w, &err), 0);
	status = peer_wait(&c.d[0], room, 10000);
	CHECK_EQ(peer_wait(&c.p[0], room, 10000), status);
	*code = kvf_room_error(c.d[0].ep, room, &err);
	if (*code != 0)
		CHECK_STR_HAS(err.text, "room=");
	peer_forgive(&c.d[0], 0, 64, rl.lists, rl.num);
	cluster_lists_free(&rl);
	cluster_lists_free(&sl);
	cluster_close(&c);
	return status;
}

static void
test_honest_driver(void)
{
	int code;

	CHECK_EQ(run("cpu", 1, KVF_ROOM_VERIFY, 0, &code), KVF_SUCCESS);
	CHECK_EQ(run("dmadev", 2, KVF_ROOM_VERIFY, KVF_ROOM_VERIFY, &code), KVF_SUCCESS);
}

static void
test_lying_driver(void)
{
	int code;

	/* Nobody asks: nobody knows. That is what the option is for. */
	CHECK_EQ(run("fault:cpu,corrupt=1", 3, 0, 0, &code), KVF_SUCCESS);
	CHECK_EQ(run("fault:cpu,corrupt=1", 4, KVF_ROOM_VERIFY, 0, &code), KVF_FAILED);
	CHECK_EQ(code, KVF_E_VERIFY);
	CHECK_EQ(run("fault:cpu,drop=1", 5, 0, KVF_ROOM_VERIFY, &code), KVF_FAILED);
	CHECK_EQ(code, KVF_E_VERIFY);
	CHECK_EQ(run("fault:dmadev,drop=2", 6, KVF_ROOM_VERIFY, 0, &code), KVF_FAILED);
	CHECK_EQ(code, KVF_E_VERIFY);
}

static void
test_unknown_flags(void)
{
	struct cluster_shape s = cluster_small(1, 1, 1);
	struct kvf_recv_args r = {.room = 1, .flags = 2};
	struct kvf_send_args w = {.room = 1, .flags = 4};
	struct kvf_err err;
	struct cluster c;

	cluster_open(&c, NULL, &s);
	CHECK_EQ(kvf_recv(c.d[0].ep, &r, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "flags=0x2");
	CHECK_EQ(kvf_send(c.p[0].ep, &w, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "flags=0x4");
	cluster_close(&c);
}

static const struct suite_case cases[] = {
	{"an honest driver passes", test_honest_driver},
	{"a driver that corrupts or drops is caught", test_lying_driver},
	{"unknown flags are refused", test_unknown_flags},
};

SUITE_MAIN("verify", cases)
