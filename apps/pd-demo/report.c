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

/* The parallelism that there is, the page, and the layout if it is not the usual one. */
static void
side_text(const struct shape *s, const struct model *m, char *buf, size_t size)
{
	size_t n = 0;
	uint32_t i;

#define ADD(...) n += (size_t)snprintf(buf + n, n < size ? size - n : 0, __VA_ARGS__)
	ADD("TP %u", s->tp);
	if (s->dcp > 1)
		ADD(" x DCP %u", s->dcp);
	if (s->dcp > 1 && s->interleave > 1)
		ADD(" interleave %u", s->interleave);
	if (s->cp > 1)
		ADD(" x CP %u bands", s->cp);
	if (s->pp > 1)
		ADD(" x PP %u", s->pp);
	for (i = 0; s->pp > 1 && s->stage_layers[0] != 0 && i < s->pp && n < size / 2; i++)
		ADD("%s%u", i == 0 ? ": " : "+", s->stage_layers[i]);
	ADD(", page %u", s->page_tokens);
	if (s->layout != SHAPE_NHD)
		ADD(", %s", shape_layout_name(s->layout));
	if (s->row_pad > 0)
		ADD(", rows padded by %u B", s->row_pad);
	if (s->ring_rows > 0 && m->state.num > 0)
		ADD(", rings of %u", s->ring_rows);
#undef ADD
}

void
demo_report_plan(const struct demo_run *run)
{
	const struct demo_options *o = run->o;
	char sides[2][256];
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
	side_text(&o->prefill, run->model, sides[0], sizeof(sides[0]));
	side_text(&o->decode, run->model, sides[1], sizeof(sides[1]));
	fprintf(run->info, "ranks: prefill %u (%s) -> decode %u (%s), chunk %u tokens%s%s\n",
		shape_ranks(&o->prefill), sides[0], shape_ranks(&o->decode), sides[1], o->chunk,
		run->model->draft.num > 0 ? ", draft replicated over DCP" : "",
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

static json_t *
json_side(const struct shape *s)
{
	return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:i}", "ranks",
		(int)shape_ranks(s), "tp", (int)s->tp, "dcp", (int)s->dcp, "interleave",
		(int)s->interleave, "cp", (int)s->cp, "pp", (int)s->pp, "page_size",
		(int)s->page_tokens, "layout", shape_layout_name(s->layout), "pad",
		(int)s->row_pad);
}

static void
print_json(const struct demo_run *run, const struct totals *t)
{
	const struct demo_options *o = run->o;
	json_t *obj;

	obj = json_pack("{s:s, s:I, s:s?, s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:i, s:i, s:i, s:b, "
			"s:I}",
		"model", run->model->name, "bytes_per_token",
		(json_int_t)run->model->bytes_per_token, "driver", o->driver, "prefill_tp",
		(int)o->prefill.tp, "decode_tp", (int)o->decode.tp, "decode_dcp",
		(int)o->decode.dcp, "interleave", (int)o->decode.interleave, "page_size",
		(int)o->decode.page_tokens, "prefill", json_side(&o->prefill), "decode",
		json_side(&o->decode), "chunk", (int)o->chunk, "tokens", (int)o->tokens, "rooms",
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
