/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "common/fail.h"
#include "common/pattern.h"
#include "pd-demo/rooms.h"

static uint64_t
at_least_one(uint64_t n)
{
	return n > 0 ? n : 1;
}

/* Eight shapes, one for each way in which a request can be special; more rooms begin again. */
static void
shape(const struct demo_options *o, uint32_t i, struct demo_room *room)
{
	uint64_t t = o->tokens, p = o->decode.page_tokens, n = o->decode.dcp * o->decode.cp;
	/* Every prefix is a multiple of this: whole pages on every decode rank. */
	uint64_t unit = shape_unit(&o->decode);

	room->prefix = 0;
	switch (i % 8) {
	case 0:
		room->what = "whole";
		room->total = t;
		break;
	case 1:
		room->what = "partial last page";
		room->total = at_least_one(t * 5 / 8 + p / 3);
		break;
	case 2:
		room->what = "cached prefix";
		room->prefix = t / 4 > unit ? t / 4 / unit * unit : unit;
		room->total = room->prefix + at_least_one(t / 4) + 7;
		break;
	case 3:
		room->what = "full prefix hit";
		room->prefix = unit;
		room->total = unit;
		break;
	case 4:
		/* Fewer tokens than ranks, so some own nothing. */
		room->what = "short";
		room->total = n > 1 && n <= 5 ? n - 1 : 5;
		break;
	case 5:
		room->what = "one token short";
		room->total = at_least_one(t / 2 - (t / 2 > 0));
		break;
	case 6:
		room->what = "page less one";
		room->total = at_least_one(t / 4 / p * p + p - 1);
		break;
	default:
		room->what = "page and one";
		room->total = at_least_one(t / 5 / p * p + 1);
		break;
	}
}

int
demo_plan_build(const struct demo_options *o, struct demo_plan *plan, struct kvf_err *err)
{
	uint64_t id_seed = pattern_mix(o->seed);
	const char *c;
	uint32_t i;

	/* The tag keeps the ids of two demos at one engine apart; bytes depend on the seed only. */
	for (c = o->tag; *c != '\0'; c++)
		id_seed = pattern_mix(id_seed ^ (uint8_t)*c);
	plan->num = o->rooms;
	plan->chunk_unit = shape_unit(&o->prefill);
	plan->chunk = o->chunk;
	plan->rooms = calloc(o->rooms, sizeof(*plan->rooms));
	if (plan->rooms == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for rooms=%u", o->rooms);
	for (i = 0; i < o->rooms; i++) {
		struct demo_room *room = &plan->rooms[i];

		shape(o, i, room);
		room->key = pattern_mix(o->seed + 0x9e3779b97f4a7c15ull * (i + 1));
		/* A bijection of distinct values: distinct ids. 0 would read as "not written yet"
		 * in aux. */
		room->id = pattern_mix(id_seed + i);
		if (room->id == 0)
			room->id = pattern_mix(id_seed + o->rooms);
		if (room->prefix == room->total)
			room->start = room->total;
		else
			room->start = room->prefix / o->chunk * o->chunk / plan->chunk_unit *
				      plan->chunk_unit;
	}
	return 0;
}

void
demo_plan_free(struct demo_plan *plan)
{
	free(plan->rooms);
	plan->rooms = NULL;
}

uint64_t
demo_chunk_end(const struct demo_plan *plan, uint64_t start, uint64_t total)
{
	uint64_t k, end;

	for (k = start / plan->chunk + 1; k * plan->chunk < total; k++) {
		end = k * plan->chunk / plan->chunk_unit * plan->chunk_unit;
		if (end > start)
			return end;
	}
	return total;
}
