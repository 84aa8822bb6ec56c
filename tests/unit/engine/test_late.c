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

/* A cluster whose groups do not fit. */
static void
open_misfits(struct cluster *c, const struct kvf_endpoint_config *limits)
{
	struct cluster_shape s = cluster_small(1, 2, 2);

	s.prefill.layers = 1;
	s.limits = limits;
	cluster_open(c, NULL, &s);
}

/* Everybody but the second decode rank learns of the refusal, and leaves the room. */
static void
refuse_others(struct cluster *c, uint64_t room)
{
	struct kvf_err err = {0};

	CHECK_EQ(cluster_send(c, 0, room, 0, 100, 100, 0, &err), 0);
	recv_in_vain(c, 0, room);
	ends_and_is_released(&c->p[0], room, KVF_FAILED, KVF_E_COVERAGE, "layer=1");
	ends_and_is_released(&c->d[0], room, KVF_FAILED, KVF_E_COVERAGE, "layer=1");
}

static void
test_late_to_refusal(void)
{
	struct cluster c;
	uint64_t room;

	open_misfits(&c, NULL);
	for (room = 7; room < 10; room++) {
		refuse_others(&c, room);
		wait_all_free(&c);
		recv_in_vain(&c, 1, room);
		ends_and_is_released(&c.d[1], room, KVF_FAILED, KVF_E_COVERAGE, "layer=1");
	}
	cluster_close(&c);
}

/* What was aborted, or left by its peer, is no reason to fail the id's next use, even for those who
 * had no part in it. */
static void
test_next_use(void)
{
	struct cluster_shape s = cluster_small(1, 2, 2);
	struct kvf_err err = {0};
	struct cluster c;
	uint32_t round;

	cluster_open(&c, NULL, &s);
	for (round = 0; round < 4; round++) {
		bool sent = round % 2 != 0, received = round < 3;

		if (sent)
			CHECK_EQ(cluster_send(&c, 0, 7, 0, 0, 100, 0, &err), 0);
		if (received)
			recv_in_vain(&c, 0, 7);
		CHECK_EQ(kvf_abort(received ? c.d[0].ep : c.p[0].ep, 7, "no", &err), 0);
		if (sent)
			ends_and_is_released(&c.p[0], 7, KVF_FAILED, KVF_E_ABORTED, "no");
		if (received)
			ends_and_is_released(&c.d[0], 7, KVF_FAILED, KVF_E_ABORTED, "no");
		wait_all_free(&c);
		cluster_recv_all(&c, 7, 0, 100, round);
		cluster_send_all(&c, 7, 0, 100, 100, round);
		cluster_finish(&c, 7, KVF_SUCCESS);
	}
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

/* A room is kept for late members only so long, so many of them, and not once its reason is gone.
 */
static void
test_not_for_ever(void)
{
	struct kvf_endpoint_config limits = {.bootstrap_timeout_ms = 300};
	struct kvf_err err = {0};
	struct cluster c;
	uint64_t room;

	open_misfits(&c, &limits);
	for (room = 100; room < 1200; room++)
		refuse_others(&c, room);
	recv_in_vain(&c, 1, 100);
	ends_and_is_released(&c.d[1], 100, KVF_FAILED, KVF_E_TIMEOUT, "Bootstrapping");
	refuse_others(&c, 1200);
	refuse_others(&c, 1201);
	refuse_others(&c, 1202);
	recv_in_vain(&c, 1, 1202);
	ends_and_is_released(&c.d[1], 1202, KVF_FAILED, KVF_E_COVERAGE, "layer=1");
	cluster_sleep_ms(4000);
	recv_in_vain(&c, 1, 1201);
	ends_and_is_released(&c.d[1], 1201, KVF_FAILED, KVF_E_TIMEOUT, "Bootstrapping");
	refuse_others(&c, 1203);
	/* Somebody else may fit. */
	kvf_endpoint_close(c.p[0].ep);
	CHECK_EQ(peer_connect(&c.p[0], rig_socket(c.rig), &limits, &err), 0);
	recv_in_vain(&c, 1, 1203);
	ends_and_is_released(&c.d[1], 1203, KVF_FAILED, KVF_E_TIMEOUT, "Bootstrapping");
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
	{"late to a refusal", test_late_to_refusal},
	{"the next use of an id", test_next_use},
	{"a sender without bytes is late", test_late_without_bytes},
	{"late members are not awaited for ever", test_not_for_ever},
	{"a group that was never complete", test_never_complete},
};

SUITE_MAIN("late", cases)
