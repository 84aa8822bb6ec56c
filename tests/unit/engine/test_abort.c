/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Abort is a drain proof: with copies under way (each lingers for 20 ms before it really touches
 * memory), a room that says drained is never touched again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"

#define TOTAL 480u

static const struct kvf_engine_config slow = {.driver = "fault:cpu,delay_us=20000"};
static const struct kvf_engine_config slow2 = {.driver = "fault:cpu,delay_us=20000", .lcores = 2};

static struct cluster c;
static struct cluster_lists dl[CLUSTER_MAX];

static void
setup(const struct kvf_engine_config *cfg, uint32_t np, uint32_t nd)
{
	struct cluster_shape s = cluster_small(np, nd, 4);

	cluster_open(&c, cfg, &s);
}

/* Grants at all ranks with lists that the test keeps; what will be there is not known. */
static void
grant(uint64_t room, uint32_t slot)
{
	struct kvf_recv_args a = {.room = room, .total_tokens = TOTAL};
	struct kvf_err err = {0};
	uint32_t i;

	for (i = 0; i < c.nd; i++) {
		cluster_lists(&c, true, i, 0, TOTAL, slot, &dl[i]);
		a.lists = dl[i].lists;
		a.num_lists = dl[i].num;
		CHECK_EQ(kvf_recv(c.d[i].ep, &a, &err), 0);
	}
}

static void
forgive(void)
{
	uint32_t i;

	for (i = 0; i < c.nd; i++)
		peer_forgive(&c.d[i], 0, TOTAL, dl[i].lists, dl[i].num);
}

static void
drop_lists(void)
{
	uint32_t i;

	for (i = 0; i < c.nd; i++)
		cluster_lists_free(&dl[i]);
}

/*
 * Everybody sees the failure. From the moment that a receiver is drained its pool stands still;
 * from the moment that a sender is, its source pages may be filled with something else without any
 * of that arriving.
 */
static void
prove_drained(uint64_t room, int code, const char *text)
{
	struct kvf_err err = {0};
	uint32_t i;

	for (i = 0; i < c.np + c.nd; i++) {
		struct peer *p = i < c.np ? &c.p[i] : &c.d[i - c.np];

		if (!CHECK_EQ(cluster_wait(&c, p, room, CLUSTER_WAIT_MS), KVF_FAILED))
			continue;
		CHECK_EQ(kvf_room_error(p->ep, room, &err), code);
		CHECK_STR_HAS(err.text, text);
	}
	forgive(); /* takes what is there now */
	for (i = 0; i < c.np; i++)
		memset(c.p[i].base, 0xee, c.p[i].pool_bytes);
	cluster_sleep_ms(60);
	for (i = 0; i < c.nd; i++)
		CHECK_EQ(peer_check(&c.d[i]), 0);
	for (i = 0; i < c.np; i++)
		memcpy(c.p[i].shadow, c.p[i].base, c.p[i].pool_bytes);
}

/* The same pages at once for another room, which succeeds; the failed one is still held. */
static void
reuse_pages(uint64_t room)
{
	struct kvf_recv_args a = {.room = room, .total_tokens = TOTAL};
	struct kvf_err err = {0};
	uint32_t i;

	for (i = 0; i < c.nd; i++) {
		a.lists = dl[i].lists;
		a.num_lists = dl[i].num;
		CHECK_EQ(cluster_recv_lists(&c, i, &a, &err), 0);
	}
	cluster_send_all(&c, room, 0, TOTAL, 160, 9);
	cluster_finish(&c, room, KVF_SUCCESS);
	for (i = 0; i < c.nd; i++)
		CHECK_EQ(peer_check(&c.d[i]), 0);
}

static void
release_all(uint64_t room)
{
	uint32_t i;

	for (i = 0; i < c.np; i++)
		CHECK_EQ(cluster_release(&c, &c.p[i], room), 0);
	for (i = 0; i < c.nd; i++)
		CHECK_EQ(cluster_release(&c, &c.d[i], room), 0);
}

enum moment {
	BOOTSTRAPPING,
	WAITING,
	FIRST_COPY, /* just when the first copies are under way */
	IN_CHUNK_2,
	NUM_MOMENTS,
};

static void
reach(uint64_t room, enum moment when)
{
	struct kvf_err err = {0};
	uint32_t i;

	grant(room, 1);
	if (when == BOOTSTRAPPING) /* nothing of prefill rank 1 yet */
		CHECK_EQ(cluster_send(&c, 0, room, 0, TOTAL, TOTAL, 1, &err), 0);
	for (i = 0; i < c.np && when == WAITING; i++)
		CHECK_EQ(cluster_send(&c, i, room, 0, 0, TOTAL, 1, &err), 0);
	for (i = 0; i < c.np && when > WAITING; i++)
		CHECK_EQ(cluster_send(&c, i, room, 0, 160, TOTAL, 1, &err), 0);
	if (when == WAITING)
		CHECK_EQ(cluster_until(&c, &c.d[0], room, KVF_WAITING_FOR_INPUT, CLUSTER_WAIT_MS),
			KVF_WAITING_FOR_INPUT);
	if (when == IN_CHUNK_2) {
		for (i = 0; i < 3000 && (cluster_seen(&c, &c.p[0], room) == NULL ||
						cluster_seen(&c, &c.p[0], room)->tokens < 160);
			i++)
			if (!cluster_poll(&c))
				kvf_wait(c.p[0].ep, 5);
		for (i = 0; i < c.np; i++)
			CHECK_EQ(cluster_send(&c, i, room, 160, 320, TOTAL, 1, &err), 0);
	}
	if (when > WAITING)
		CHECK_EQ(cluster_until(&c, &c.d[0], room, KVF_TRANSFERRING, CLUSTER_WAIT_MS),
			KVF_TRANSFERRING);
}

static void
abort_everywhere(const struct kvf_engine_config *cfg, uint32_t np, uint32_t nd)
{
	static const char *const whos[] = {"prefill p[0]: aborted: too long",
		"decode d[0]: aborted: "
		"too long"};
	struct kvf_err err = {0};
	uint64_t room = 1;
	uint32_t side, i;
	int when;

	setup(cfg, np, nd);
	for (when = 0; when < NUM_MOMENTS; when++)
		for (side = 0; side < 2; side++, room += 2) {
			struct peer *who = side == 0 ? &c.p[0] : &c.d[0];

			reach(room, when);
			CHECK_EQ(kvf_abort(who->ep, room, "too long", &err), 0);
			if (when == BOOTSTRAPPING && np > 1) {
				/* Who comes late hears of it, too. */
				CHECK_EQ(cluster_wait(&c, who, room, CLUSTER_WAIT_MS), KVF_FAILED);
				for (i = 1; i < np; i++)
					CHECK_EQ(
						cluster_send(&c, i, room, 0, TOTAL, TOTAL, 1, &err),
						0);
			}
			/* Between the abort and its proof nobody may let go. */
			if (when >= FIRST_COPY && kvf_room_drained(who->ep, room) == 0)
				CHECK_EQ(kvf_room_release(who->ep, room, &err), KVF_E_BUSY);
			prove_drained(room, KVF_E_ABORTED, whos[side]);
			reuse_pages(room + 1);
			release_all(room);
			drop_lists();
		}
	cluster_close(&c);
}

static void
test_in_every_state(void)
{
	abort_everywhere(&slow, 1, 1);
}

static void
test_in_every_state_fan_out(void)
{
	abort_everywhere(&slow2, 2, 3);
}

/* Both abort at once: one cause, the same at everybody. */
static void
test_both_abort(void)
{
	struct kvf_err err = {0}, first = {0};
	uint64_t room;
	uint32_t i;

	setup(&slow, 1, 2);
	for (room = 1; room < 6; room++) {
		reach(room, FIRST_COPY);
		CHECK_EQ(kvf_abort(c.p[0].ep, room, "sender", &err), 0);
		CHECK_EQ(kvf_abort(c.d[1].ep, room, "receiver", &err), 0);
		CHECK_EQ(kvf_abort(c.d[1].ep, room, "again", &err), 0);
		prove_drained(room, KVF_E_ABORTED, "aborted: ");
		kvf_room_error(c.p[0].ep, room, &first);
		for (i = 0; i < 2; i++) {
			kvf_room_error(c.d[i].ep, room, &err);
			CHECK_STR_HAS(err.text, first.text);
		}
		release_all(room);
		drop_lists();
	}
	cluster_close(&c);
}

/* Without a reason, with a long one, with one that holds control characters. */
static void
test_reasons(void)
{
	char longer[300];
	struct kvf_err err = {0};

	setup(NULL, 1, 1);
	memset(longer, 'x', sizeof(longer));
	longer[299] = '\0';
	grant(1, 1);
	CHECK_EQ(kvf_abort(c.d[0].ep, 1, NULL, &err), 0);
	CHECK_EQ(cluster_wait(&c, &c.d[0], 1, CLUSTER_WAIT_MS), KVF_FAILED);
	kvf_room_error(c.d[0].ep, 1, &err);
	CHECK_EQ(strcmp(err.text, "room=1 decode d[0]: aborted"), 0);
	drop_lists();
	grant(2, 2);
	CHECK_EQ(kvf_abort(c.d[0].ep, 2, longer, &err), 0);
	CHECK_EQ(cluster_wait(&c, &c.d[0], 2, CLUSTER_WAIT_MS), KVF_FAILED);
	kvf_room_error(c.d[0].ep, 2, &err);
	CHECK_STR_HAS(err.text, "room=2 decode d[0]: aborted: xxxxxxxx");
	drop_lists();
	grant(3, 3);
	CHECK_EQ(kvf_abort(c.d[0].ep, 3, "a\x1b[31m\nb\x7f", &err), 0);
	CHECK_EQ(cluster_wait(&c, &c.d[0], 3, CLUSTER_WAIT_MS), KVF_FAILED);
	kvf_room_error(c.d[0].ep, 3, &err);
	CHECK_STR_HAS(err.text, "aborted: a?[31m?b?");
	drop_lists();
	cluster_close(&c);
}

/* After success an abort changes nothing, at either end, nor does one of an older use of the id. */
static void
test_after_success(void)
{
	struct kvf_err err = {0};

	setup(NULL, 1, 2);
	cluster_room(&c, 1, 0, TOTAL, 96, 0);
	CHECK_EQ(cluster_wait(&c, &c.p[0], 1, CLUSTER_WAIT_MS), KVF_SUCCESS);
	CHECK_EQ(kvf_abort(c.p[0].ep, 1, "late", &err), 0);
	CHECK_EQ(kvf_abort(c.d[0].ep, 1, "late", &err), 0);
	cluster_sleep_ms(10);
	cluster_finish(&c, 1, KVF_SUCCESS);
	CHECK_EQ(kvf_abort(c.d[0].ep, 1, "later", &err), KVF_E_NOENT);
	cluster_room(&c, 1, 0, TOTAL, 96, 1);
	cluster_finish(&c, 1, KVF_SUCCESS);
	cluster_close(&c);
}

/* Aborts that race the end: either everything or a failure, never a mixture, at many moments. */
static void
test_races_with_success(void)
{
	struct kvf_engine_config cfg = {.lcores = 2};
	uint32_t success = 0, failed = 0, i;
	struct kvf_err err = {0};
	uint64_t room;

	setup(&cfg, 1, 2);
	for (room = 1; room <= 100; room++) {
		struct peer *who = room % 2 == 0 ? &c.p[0] : &c.d[room / 2 % 2];
		uint32_t spins = (uint32_t)suite_range(&c.rand, 0, 200);
		int st[3];

		grant(room, (uint32_t)room % 16);
		CHECK_EQ(cluster_send(&c, 0, room, 0, TOTAL, TOTAL, 1, &err), 0);
		for (i = 0; i < spins; i++)
			kvf_room_status(c.p[0].ep, room);
		CHECK_EQ(kvf_abort(who->ep, room, "race", &err), 0);
		for (i = 0; i < 3; i++) {
			struct peer *p = i == 0 ? &c.p[0] : &c.d[i - 1];

			st[i] = cluster_wait(&c, p, room, CLUSTER_WAIT_MS);
			CHECK(st[i] == KVF_FAILED || st[i] == KVF_SUCCESS);
		}
		/* A sender is done with the last receiver: its success is everybody's. */
		if (st[0] == KVF_SUCCESS) {
			CHECK_EQ(st[1], KVF_SUCCESS);
			CHECK_EQ(st[2], KVF_SUCCESS);
		}
		for (i = 0; i < 2; i++) {
			if (st[i + 1] == KVF_SUCCESS)
				peer_expect(&c.d[i], room, 0, TOTAL, dl[i].lists, dl[i].num);
			else
				peer_forgive(&c.d[i], 0, TOTAL, dl[i].lists, dl[i].num);
			success += st[i + 1] == KVF_SUCCESS;
			failed += st[i + 1] == KVF_FAILED;
			CHECK_EQ(peer_check(&c.d[i]), 0);
		}
		release_all(room);
		drop_lists();
	}
	printf("        aborts: %u too late, %u in time\n", success, failed);
	cluster_close(&c);
}

static const struct suite_case cases[] = {
	{"from both sides in every state", test_in_every_state},
	{"the same with replicas and a fan-out", test_in_every_state_fan_out},
	{"from both sides at once", test_both_abort},
	{"reasons", test_reasons},
	{"after success", test_after_success},
	{"in a race with success", test_races_with_success},
};

SUITE_MAIN("abort", cases)
