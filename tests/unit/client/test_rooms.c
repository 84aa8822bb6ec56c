/* SPDX-License-Identifier: BSD-3-Clause */
/* The room table against a model that is too simple to be wrong. */
#include <stdio.h>
#include <string.h>

#include "client/rooms.h"
#include "common/suite.h"

#define IDS 64u

static void
test_full_and_reuse(void)
{
	struct kvf_rooms rs;
	uint64_t i;

	CHECK_EQ(kvf_rooms_init(&rs, 5, NULL), 0);
	for (i = 0; i < 5; i++)
		CHECK(kvf_rooms_add(&rs, i << 32, i + 1) != NULL);
	CHECK(kvf_rooms_add(&rs, 99, 6) == NULL);
	CHECK_EQ(rs.count, 5);
	kvf_rooms_remove(&rs, kvf_rooms_find(&rs, 3ull << 32));
	CHECK(kvf_rooms_find(&rs, 3ull << 32) == NULL);
	CHECK(kvf_rooms_add(&rs, 99, 6) != NULL);
	CHECK(kvf_rooms_add(&rs, 100, 7) == NULL);
	for (i = 0; i < 5; i++)
		CHECK_EQ(kvf_rooms_find(&rs, i << 32) != NULL, i != 3);
	kvf_rooms_fini(&rs);
}

/* A room that is used again starts from nothing. */
static void
test_reset(void)
{
	struct kvf_rooms rs;
	struct kvf_room *r;

	CHECK_EQ(kvf_rooms_init(&rs, 1, NULL), 0);
	r = kvf_rooms_add(&rs, 7, 1);
	kvf_rooms_update(&rs, r, KVF_TRANSFERRING, 100);
	kvf_rooms_fail(&rs, r, KVF_E_DEVICE, "broken");
	kvf_rooms_drain(&rs, r);
	kvf_rooms_remove(&rs, r);
	CHECK(!kvf_rooms_changed(&rs));
	CHECK(kvf_rooms_pop(&rs) == NULL);
	r = kvf_rooms_add(&rs, 7, 2);
	CHECK_EQ(r->status, KVF_BOOTSTRAPPING);
	CHECK_EQ(r->tokens, 0);
	CHECK_EQ(r->error, 0);
	CHECK_EQ(r->seq, 2);
	CHECK(!r->drained && !r->dirty && !r->final && !r->aborted);
	kvf_rooms_fini(&rs);
}

static void
test_rises(void)
{
	struct kvf_rooms rs;
	struct kvf_room *r;

	CHECK_EQ(kvf_rooms_init(&rs, 4, NULL), 0);
	r = kvf_rooms_add(&rs, 1, 1);
	CHECK(!kvf_rooms_changed(&rs));
	kvf_rooms_update(&rs, r, KVF_BOOTSTRAPPING, 0);
	CHECK(!kvf_rooms_changed(&rs));
	kvf_rooms_update(&rs, r, KVF_TRANSFERRING, 0);
	CHECK(kvf_rooms_pop(&rs) == r);
	kvf_rooms_update(&rs, r, KVF_WAITING_FOR_INPUT, 0);
	CHECK_EQ(r->status, KVF_TRANSFERRING);
	CHECK(kvf_rooms_pop(&rs) == NULL);
	kvf_rooms_update(&rs, r, KVF_TRANSFERRING, 5);
	kvf_rooms_update(&rs, r, KVF_TRANSFERRING, 4);
	CHECK_EQ(r->tokens, 5);
	CHECK(kvf_rooms_pop(&rs) == r);
	kvf_rooms_update(&rs, r, KVF_SUCCESS, 5);
	kvf_rooms_fail(&rs, r, KVF_E_TIMEOUT, "late");
	CHECK_EQ(r->status, KVF_SUCCESS);
	r = kvf_rooms_add(&rs, 2, 2);
	kvf_rooms_fail(&rs, r, KVF_E_PAGE, "first");
	kvf_rooms_fail(&rs, r, KVF_E_TIMEOUT, "second");
	kvf_rooms_update(&rs, r, KVF_SUCCESS, 9);
	CHECK_EQ(r->status, KVF_FAILED);
	CHECK_EQ(r->error, KVF_E_PAGE);
	CHECK(strcmp(kvf_rooms_text(&rs, r), "first") == 0);
	kvf_rooms_fini(&rs);
}

struct model {
	bool held;
	bool dirty;
	uint64_t seq;
};

static void
check_all(struct kvf_rooms *rs, const uint64_t *ids, const struct model *m)
{
	uint32_t i, held = 0;

	for (i = 0; i < IDS; i++) {
		const struct kvf_room *r = kvf_rooms_find(rs, ids[i]);

		CHECK_EQ(r != NULL, m[i].held);
		held += m[i].held;
		if (r == NULL || !m[i].held)
			continue;
		CHECK(r->id == ids[i] && r->seq == m[i].seq);
		CHECK_EQ(r->dirty, m[i].dirty);
	}
	CHECK_EQ(rs->count, held);
}

/* Random adds, changes, pops and removals; small tables make clusters that wrap around. */
static void
test_random(void)
{
	uint64_t state = suite_seed(), seq = 0;
	int round, step;

	for (round = 0; round < 60; round++) {
		uint32_t max = (uint32_t)suite_range(&state, 1, 40), held = 0, i;
		uint64_t ids[IDS], queue[IDS];
		struct model m[IDS] = {{0}};
		struct kvf_rooms rs;
		uint32_t queued = 0;

		for (i = 0; i < IDS; i++) /* neighbours, multiples, and anything */
			ids[i] = round % 3 == 0   ? i
				 : round % 3 == 1 ? (uint64_t)i << 40
						  : (suite_rand(&state) & ~63ull) | i;
		CHECK_EQ(kvf_rooms_init(&rs, max, NULL), 0);
		for (step = 0; step < 400; step++) {
			uint32_t k = (uint32_t)suite_range(&state, 0, IDS - 1), q, w;
			struct kvf_room *r = kvf_rooms_find(&rs, ids[k]);

			switch (suite_range(&state, 0, 4)) {
			case 0:
			case 1:
				if (m[k].held)
					break;
				r = kvf_rooms_add(&rs, ids[k], ++seq);
				CHECK_EQ(r != NULL, held < max);
				if (r == NULL)
					break;
				m[k] = (struct model){.held = true, .seq = seq};
				held++;
				break;
			case 2:
				if (!m[k].held)
					break;
				kvf_rooms_update(&rs, r, KVF_TRANSFERRING, r->tokens + 1);
				if (!m[k].dirty)
					queue[queued++] = ids[k];
				m[k].dirty = true;
				break;
			case 3:
				if (!m[k].held)
					break;
				kvf_rooms_remove(&rs, r);
				for (q = w = 0; q < queued; q++)
					if (queue[q] != ids[k])
						queue[w++] = queue[q];
				queued = w;
				m[k].held = m[k].dirty = false;
				held--;
				break;
			default:
				r = kvf_rooms_pop(&rs);
				CHECK_EQ(r != NULL, queued > 0);
				if (r == NULL || queued == 0)
					break;
				CHECK(r->id == queue[0]); /* oldest first */
				memmove(queue, queue + 1, --queued * sizeof(queue[0]));
				for (i = 0; i < IDS; i++)
					if (ids[i] == r->id)
						m[i].dirty = false;
				break;
			}
			if (step % 20 == 0)
				check_all(&rs, ids, m);
		}
		check_all(&rs, ids, m);
		kvf_rooms_fini(&rs);
	}
}

static const struct suite_case cases[] = {
	{"a full table, and space given back", test_full_and_reuse},
	{"a room used again starts from nothing", test_reset},
	{"states rise, ends are final", test_rises},
	{"random use agrees with a model", test_random},
};

SUITE_MAIN("client_rooms", cases)
