/* SPDX-License-Identifier: BSD-3-Clause */
/* Members that post when the room is over and everybody else has released it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"

/* Without telling the shadow: nothing may arrive. */
static void
recv_in_vain(struct cluster *c, uint32_t rank, uint64_t room)
{
	struct kvf_recv_args a = {.room = room, .total_tokens = 100};
	struct cluster_lists l;
	struct kvf_err err = {0};

	cluster_lists(c, true, rank, 0, 100, 0, &l);
	a.lists = l.lists;
	a.num_lists = l.num;
	if (!CHECK_EQ(kvf_recv(c->d[rank].ep, &a, &err), 0))
		printf("        %s\n", err.text);
	cluster_lists_free(&l);
}

static void
ends_and_is_released(struct peer *p, uint64_t room, int status, int code, const char *text)
{
	struct kvf_err err = {0};

	CHECK_EQ(peer_wait(p, room, 1000), status);
	if (status == KVF_FAILED) {
		CHECK_EQ(kvf_room_error(p->ep, room, &err), code);
		CHECK_STR_HAS(err.text, text);
	}
	CHECK_EQ(kvf_room_release(p->ep, room, &err), 0);
}

static void
wait_all_free(struct cluster *c)
{
	char *json;

	/* The releases are on their way still; a status is answered by another thread. */
	for (int i = 0; i < 200; i++) {
		CHECK_EQ(kvf_engine_status(rig_socket(c->rig), 0, &json, NULL), 0);
		if (strstr(json, "\"open\":0") != NULL) {
			free(json);
			return;
		}
		free(json);
		cluster_sleep_ms(5);
	}
	CHECK(!"all rooms are released");
}

static void
test_late_receiver(void)
{
	struct cluster_shape s = cluster_small(1, 2, 2);
	struct kvf_err err = {0};
	struct cluster c;
	uint64_t room;

	cluster_open(&c, NULL, &s);
	for (room = 7; room < 9; room++) {
		CHECK_EQ(cluster_send(&c, 0, room, 0, 0, 100, 0, &err), 0);
		recv_in_vain(&c, 0, room);
		CHECK_EQ(kvf_abort(c.d[0].ep, room, "no space", &err), 0);
		ends_and_is_released(&c.p[0], room, KVF_FAILED, KVF_E_ABORTED, "no space");
		ends_and_is_released(&c.d[0], room, KVF_FAILED, KVF_E_ABORTED, "no space");
		wait_all_free(&c);
		recv_in_vain(&c, 1, room);
		ends_and_is_released(&c.d[1], room, KVF_FAILED, KVF_E_ABORTED, "no space");
	}
	/* Now that all took part, the id is free. */
	cluster_recv_all(&c, 7, 0, 100, 0);
	cluster_send_all(&c, 7, 0, 100, 100, 0);
	cluster_finish(&c, 7, KVF_SUCCESS);
	/* The pages that were granted in vain are, too. */
	cluster_recv_all(&c, 9, 0, 900, 1);
	cluster_send_all(&c, 9, 0, 900, 900, 1);
	cluster_finish(&c, 9, KVF_SUCCESS);
	cluster_close(&c);
}

static void
test_sender_gave_up(void)
{
	struct cluster_shape s = cluster_small(1, 2, 2);
	struct kvf_err err = {0};
	struct cluster c;
	uint32_t i;

	cluster_open(&c, NULL, &s);
	CHECK_EQ(cluster_send(&c, 0, 7, 0, 0, 100, 0, &err), 0);
	CHECK_EQ(kvf_abort(c.p[0].ep, 7, "input too long", &err), 0);
	ends_and_is_released(&c.p[0], 7, KVF_FAILED, KVF_E_ABORTED, "input too long");
	wait_all_free(&c);
	for (i = 0; i < 2; i++) {
		recv_in_vain(&c, i, 7);
		ends_and_is_released(&c.d[i], 7, KVF_FAILED, KVF_E_ABORTED, "input too long");
	}
	wait_all_free(&c);
	cluster_recv_all(&c, 7, 0, 100, 0);
	cluster_send_all(&c, 7, 0, 100, 100, 0);
	cluster_finish(&c, 7, KVF_SUCCESS);
	cluster_close(&c);
}

/* One layer, two replicas: one of them has nothing to give. */
static void
test_late_without_bytes(void)
{
	struct cluster_shape s = cluster_small(2, 1, 1);
	struct kvf_err err = {0};
	struct cluster c;

	s.prefill.aux_bytes = s.decode.aux_bytes = 0;
	cluster_open(&c, NULL, &s);
	CHECK_EQ(cluster_recv(&c, 0, 7, 0, 100, 0, &err), 0);
	CHECK_EQ(cluster_send(&c, 0, 7, 0, 100, 100, 0, &err), 0);
	ends_and_is_released(&c.d[0], 7, KVF_SUCCESS, 0, "");
	ends_and_is_released(&c.p[0], 7, KVF_SUCCESS, 0, "");
	wait_all_free(&c);
	CHECK_EQ(cluster_send(&c, 1, 7, 0, 64, 100, 0, &err), 0);
	CHECK_EQ(cluster_send(&c, 1, 7, 64, 36, 100, 0, &err), 0);
	ends_and_is_released(&c.p[1], 7, KVF_SUCCESS, 0, "");
	cluster_close(&c);
}

/* A room is kept for late members only so long, and not past the members themselves. */
static void
test_not_for_ever(void)
{
	struct kvf_endpoint_config limits = {.bootstrap_timeout_ms = 300};
	struct cluster_shape s = cluster_small(1, 2, 1);
	struct kvf_err err = {0};
	struct cluster c;
	uint64_t room;

	s.limits = &limits;
	cluster_open(&c, NULL, &s);
	for (room = 100; room < 1400; room++) {
		recv_in_vain(&c, 0, room);
		CHECK_EQ(kvf_abort(c.d[0].ep, room, "", &err), 0);
		ends_and_is_released(&c.d[0], room, KVF_FAILED, KVF_E_ABORTED, "");
	}
	/* More than are kept, the first ones are forgotten: a room of its own, without others. */
	recv_in_vain(&c, 1, 100);
	ends_and_is_released(&c.d[1], 100, KVF_FAILED, KVF_E_TIMEOUT, "Bootstrapping");
	recv_in_vain(&c, 1, 1399);
	ends_and_is_released(&c.d[1], 1399, KVF_FAILED, KVF_E_ABORTED, "");
	cluster_sleep_ms(2200);
	recv_in_vain(&c, 1, 1398);
	ends_and_is_released(&c.d[1], 1398, KVF_FAILED, KVF_E_TIMEOUT, "Bootstrapping");
	cluster_close(&c);
}

/* A group that never became complete, and is wanted by a room, gives its name back when it is left.
 */
static void
test_never_complete(void)
{
	struct cluster_shape s = cluster_small(1, 2, 1), again = cluster_small(1, 1, 1);
	struct kvf_err err = {0};
	struct cluster c, d;

	s.rig = rig_start(NULL);
	again.rig = s.rig;
	cluster_open(&c, NULL, &s);
	kvf_endpoint_close(c.d[1].ep);
	c.d[1].ep = NULL;
	CHECK_EQ(cluster_send(&c, 0, 7, 0, 0, 100, 0, &err), 0);
	recv_in_vain(&c, 0, 7);
	cluster_sleep_ms(50);
	CHECK_EQ(kvf_room_status(c.p[0].ep, 7), KVF_BOOTSTRAPPING);
	cluster_close(&c);
	cluster_open(&d, NULL, &again);
	cluster_recv_all(&d, 7, 0, 100, 0);
	cluster_send_all(&d, 7, 0, 100, 100, 0);
	cluster_finish(&d, 7, KVF_SUCCESS);
	cluster_close(&d);
	CHECK_EQ(rig_stop(s.rig), 0);
}

static const struct suite_case cases[] = {
	{"a receiver is late", test_late_receiver},
	{"all receivers are late", test_sender_gave_up},
	{"a sender without bytes is late", test_late_without_bytes},
	{"late members are not awaited for ever", test_not_for_ever},
	{"a group that was never complete", test_never_complete},
};

SUITE_MAIN("late", cases)
