/* SPDX-License-Identifier: BSD-3-Clause */
/* What a room does when everybody behaves. */
#include <stdio.h>
#include <string.h>

#include "cluster.h"

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
	/* Mixed lengths: partial pages, fewer tokens than ranks, a prefix, a full prefix hit, nothing at all. */
	cluster_room(&c, 1, 0, 333, 64, 0);
	cluster_room(&c, 2, 0, 5, 64, 1);
	cluster_room(&c, 3, 128, 300, 32, 2);
	cluster_room(&c, 4, 256, 256, 64, 3);
	cluster_room(&c, 5, 0, 0, 64, 4);
	for (room = 1; room <= 5; room++)
		cluster_finish(&c, room, KVF_SUCCESS);
	cluster_close(&c);
}

static const struct suite_case cases[] = {
	{"one room, one to one", test_one_room},
	{"two replicas to DCP 8, mixed lengths", test_replicas_to_dcp8},
};

SUITE_MAIN("rooms", cases)
