/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>

#include <jansson.h>

#include "pd-demo/run.h"

struct totals {
	uint64_t pool_bytes;
	uint64_t small_pools; /* pools that got 4 KiB pages */
	uint64_t bytes;
	uint64_t mismatches;
	uint64_t rooms;
	double seconds;
	double gb_per_s;
	bool ok;
};

static double
gib(uint64_t bytes)
{
	return (double)bytes / (1ull << 30);
}

void
demo_report_plan(const struct demo_run *run)
{
	const struct demo_options *o = run->o;
	uint64_t tokens = 0, kept = 0, least = UINT64_MAX, most = 0;
	uint32_t i, hits = 0, cached = 0;

	for (i = 0; i < run->plan.num; i++) {
		const struct demo_room *room = &run->plan.rooms[i];

		tokens += room->total;
		kept += room->prefix;
		least = room->total < least ? room->total : least;
		most = room->total > most ? room->total : most;
		hits += room->prefix == room->total;
		cached += room->prefix > 0 && room->prefix < room->total;
	}
	fprintf(run->info, "model %s: %s; %" PRIu64 " B a token\n", run->model->name,
		run->model->title, run->model->bytes_per_token);
	fprintf(run->info,
		"ranks: prefill TP %u -> decode TP %u x DCP %u (interleave %u), page %u tokens, "
		"chunk %u tokens%s%s\n",
		o->prefill_tp, o->decode_tp, o->decode_dcp, o->interleave, o->page_size, o->chunk,
		run->model->draft.num > 0 ? ", replicated draft layer" : "",
		run->model->state.num > 0 ? ", state" : "");
	fprintf(run->info,
		"rooms: %u prompts of %" PRIu64 " to %" PRIu64 " tokens, %" PRIu64
		" altogether, %" PRIu64 " of them cached (%u rooms in part, %u wholly)\n",
		run->plan.num, least, most, tokens, kept, cached, hits);
	if (run->sizing.reason[0] != '\0')
		fprintf(run->info, "NOTE: prompts are shorter than asked for: %s\n",
			run->sizing.reason);
	if (run->sizing.memory == DEMO_MEMORY_SMALL)
		fprintf(stderr,
			"pd-demo: WARNING: the pools are on 4 KiB pages%s: slower, and not what a "
			"serving host should run\n",
			o->memory == DEMO_MEMORY_SMALL ? "" : " because hugepages lack");
	fprintf(run->info, "memory: %.2f GiB of %.2f GiB that may be used, on %s pages\n",
		gib(run->sizing.bytes), gib(run->sizing.budget),
		run->sizing.memory == DEMO_MEMORY_SMALL ? "4 KiB" : "2 MiB");
	fflush(run->info);
}

static void
add_up(const struct demo_run *run, struct totals *t)
{
	uint64_t first = UINT64_MAX, last = 0;
	bool all_verified = run->num_members > 0;
	uint32_t i;

	*t = (struct totals){0};
	for (i = 0; i < run->num_members; i++) {
		const struct demo_member *m = &run->members[i];

		t->pool_bytes += m->pool_bytes;
		t->small_pools += m->page_size == 4096;
		t->mismatches += m->mismatches;
		if (m->milestone < DEMO_VERIFIED)
			all_verified = false;
		if (m->role == KVF_PREFILL && m->first_post != 0 && m->first_post < first)
			first = m->first_post;
		if (m->role == KVF_DECODE)
			t->bytes += m->bytes;
		if (m->role == KVF_DECODE && m->last_success > last)
			last = m->last_success;
	}
	for (i = 0; all_verified && i < run->plan.num; i++)
		t->rooms += !run->room_failed[i];
	if (last > first) {
		t->seconds = (double)(last - first) / 1e9;
		t->gb_per_s = (double)t->bytes / 1e9 / t->seconds;
	}
	t->ok = !run->broken && all_verified && run->num_failures == 0 && t->mismatches == 0;
}

static json_t *
json_failures(const struct demo_run *run)
{
	json_t *list = json_array();
	uint32_t i;

	for (i = 0; i < run->num_failures && i < DEMO_MAX_FAILURES; i++) {
		const struct demo_failure *f = &run->failures[i];
		char room[24];

		/* A string: room ids use all 64 bits, JSON numbers do not. */
		snprintf(room, sizeof(room), "%" PRIu64, f->room);
		json_array_append_new(
			list, json_pack("{s:s, s:o, s:s, s:s}", "rank", f->rank, "room",
				      f->room != 0 ? json_string(room) : json_null(), "error",
				      kvf_error_name(f->code), "text", f->text));
	}
	return list;
}

static void
print_json(const struct demo_run *run, const struct totals *t)
{
	const struct demo_options *o = run->o;
	json_t *obj;

	obj = json_pack("{s:s, s:I, s:s?, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:I}",
		"model", run->model->name, "bytes_per_token",
		(json_int_t)run->model->bytes_per_token, "driver", o->driver, "prefill_tp",
		(int)o->prefill_tp, "decode_tp", (int)o->decode_tp, "decode_dcp",
		(int)o->decode_dcp, "interleave", (int)o->interleave, "page_size",
		(int)o->page_size, "chunk", (int)o->chunk, "tokens", (int)o->tokens, "rooms",
		(int)o->rooms, "shrunk", run->sizing.reason[0] != '\0', "seed",
		(json_int_t)o->seed);
	if (obj != NULL) {
		json_object_update_new(obj,
			json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:i, s:b, s:o}",
				"pool_bytes", (json_int_t)t->pool_bytes, "pool_page_size",
				(json_int_t)(t->small_pools > 0 ? 4096 : DEMO_HUGE_BYTES),
				"rooms_verified", (json_int_t)t->rooms, "bytes",
				(json_int_t)t->bytes, "mismatches", (json_int_t)t->mismatches,
				"seconds", t->seconds, "gb_per_s", t->gb_per_s, "fill_seconds",
				run->fill_s, "verify_seconds", run->verify_s, "failures_total",
				(int)run->num_failures, "ok", t->ok, "failures",
				json_failures(run)));
		json_dumpf(obj, stdout, JSON_REAL_PRECISION(6));
		fputc('\n', stdout);
	}
	json_decref(obj);
}

int
demo_report_end(const struct demo_run *run)
{
	struct totals t;

	add_up(run, &t);
	if (t.small_pools > 0 && run->sizing.memory != DEMO_MEMORY_SMALL)
		fprintf(stderr,
			"pd-demo: WARNING: %" PRIu64
			" of %u pools got 4 KiB pages: somebody else took the hugepages\n",
			t.small_pools, run->num_members);
	if (run->o->json) {
		print_json(run, &t);
	} else if (t.bytes > 0) {
		fprintf(run->info, "filled in %.2f s, verified in %.2f s\n", run->fill_s,
			run->verify_s);
		fprintf(run->info,
			"throughput %.2f GB/s: %" PRIu64
			" bytes from the first send to the last Success in %.3f s%s%s\n",
			t.gb_per_s, t.bytes, t.seconds, run->o->driver != NULL ? ", driver " : "",
			run->o->driver != NULL ? run->o->driver : "");
	}
	printf("verified rooms=%" PRIu64 " bytes=%" PRIu64 " mismatches=%" PRIu64 "\n", t.rooms,
		t.bytes, t.mismatches);
	fflush(stdout);
	return t.ok ? 0 : 1;
}
