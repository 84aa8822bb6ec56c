/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints that the engine drops, or that give up on their rings, while their pages are being
 * copied: nothing counts as drained before the copies have ended, the reason arrives, and the
 * endpoint comes back by itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"
#include "raw.h"

#define SLOW    "fault:cpu,delay_us=300000"
#define SLOW_MS 300

enum how {
	WILD_TAIL, /* the engine finds it out */
	BAD_OP,    /* the same, by what an entry says */
	LOST_CQ,   /* the client finds its completion ring damaged */
	HOW_MANY,
};

static void
misbehave(struct kvf_endpoint *ep, enum how how)
{
	const struct kvf_sqe sqe = {.op = 99, .room = 1, .seq = 1};

	switch (how) {
	case WILD_TAIL:
		atomic_store(&ep->ring.hdr->sq_tail, ep->sq_tail + 5 * ep->ring.sq_entries);
		kvf_ring_fence();
		kvf_ep_ring(ep);
		break;
	case BAD_OP:
		raw_post(ep, &sqe);
		break;
	default:
		atomic_store(&ep->ring.hdr->cq_tail, ep->cq_head + 5 * ep->ring.cq_entries);
		break;
	}
}

/* Both ends see each other again. */
static void
back(struct cluster *c)
{
	struct peer *both[] = {&c->p[0], &c->d[0]};
	int i, tries;

	for (i = 0; i < 2; i++) {
		struct kvf_err err = {0};
		int st = 0;

		for (tries = 0; tries < 400 && st != 1; tries++) {
			kvf_wait(both[i]->ep, 50);
			cluster_poll(c);
			st = kvf_endpoint_state(both[i]->ep, &err);
		}
		if (!CHECK_EQ(st, 1))
			printf("        %s\n", err.text);
	}
}

static void
dropped(bool decode, enum how how)
{
	const struct kvf_engine_config cfg = {.driver = SLOW};
	struct cluster_shape s = cluster_small(1, 1, 2);
	struct cluster_lists l;
	struct kvf_err err = {0};
	struct cluster c;
	struct peer *bad;
	uint8_t *then;
	int st, i;

	cluster_open(&c, &cfg, &s);
	bad = decode ? &c.d[0] : &c.p[0];
	cluster_lists(&c, true, 0, 0, 64, 1, &l);
	CHECK_EQ(kvf_recv(c.d[0].ep,
			 &(struct kvf_recv_args){.room = 1,
				 .total_tokens = 64,
				 .lists = l.lists,
				 .num_lists = l.num},
			 &err),
		0);
	CHECK_EQ(cluster_send(&c, 0, 1, 0, 64, 64, 1, &err), 0);
	CHECK_EQ(cluster_until(&c, bad, 1, KVF_TRANSFERRING, CLUSTER_WAIT_MS), KVF_TRANSFERRING);
	misbehave(bad->ep, how);
	/* The copy takes a third of a second: failed long before it is drained, on both sides. */
	for (i = 0; i < 2; i++) {
		struct peer *p = i == 0 ? bad : decode ? &c.p[0] : &c.d[0];

		st = cluster_until(&c, p, 1, KVF_SUCCESS, CLUSTER_WAIT_MS);
		CHECK_EQ(st, KVF_FAILED);
		CHECK_EQ(kvf_room_drained(p->ep, 1), 0);
		kvf_room_error(p->ep, 1, &err);
		CHECK_EQ(err.code, i == 0 ? KVF_E_PROTO : KVF_E_PEER_DIED);
		if (i == 0 && how != LOST_CQ)
			CHECK_STR_HAS(err.text, "dropped this endpoint: PROTO: ");
		if (i == 0)
			CHECK_STR_HAS(err.text, how == WILD_TAIL ? "moved sq_tail"
						: how == BAD_OP  ? "op=99"
								 : "was overwritten");
	}
	CHECK_EQ(cluster_wait(&c, &c.d[0], 1, CLUSTER_WAIT_MS), KVF_FAILED);
	/* Whoever was told that it is drained may count on it. */
	then = malloc(c.d[0].pool_bytes);
	if (then == NULL)
		abort();
	memcpy(then, c.d[0].base, c.d[0].pool_bytes);
	cluster_sleep_ms(SLOW_MS + 100);
	CHECK(memcmp(then, c.d[0].base, c.d[0].pool_bytes) == 0);
	free(then);
	CHECK_EQ(cluster_wait(&c, &c.p[0], 1, CLUSTER_WAIT_MS), KVF_FAILED);
	peer_forgive(&c.d[0], 0, 64, l.lists, l.num);
	cluster_lists_free(&l);
	CHECK_EQ(cluster_release(&c, &c.p[0], 1), 0);
	CHECK_EQ(cluster_release(&c, &c.d[0], 1), 0);
	back(&c);
	cluster_room(&c, 1, 0, 80, 32, 2);
	CHECK_EQ(cluster_wait(&c, &c.d[0], 1, CLUSTER_WAIT_MS), KVF_SUCCESS);
	CHECK_EQ(cluster_wait(&c, &c.p[0], 1, CLUSTER_WAIT_MS), KVF_SUCCESS);
	cluster_close(&c);
}

static void
test_decode(void)
{
	int how;

	for (how = 0; how < HOW_MANY; how++)
		dropped(true, (enum how)how);
}

static void
test_prefill(void)
{
	int how;

	for (how = 0; how < HOW_MANY; how++)
		dropped(false, (enum how)how);
}

static const struct suite_case cases[] = {
	{"a receiver, mid transfer", test_decode},
	{"a sender, mid transfer", test_prefill},
};

SUITE_MAIN("dropped", cases)
