/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's state as JSON. Runs on the control thread; the dispatcher's numbers are relaxed
 * counters. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include <rte_cycles.h>

#include "engine/internal.h"

#define MAX_TEXT (KVF_MSG_MAX - 4096u)

static json_int_t
get(const _Atomic uint64_t *counter)
{
	return (json_int_t)atomic_load_explicit(counter, memory_order_relaxed);
}

static json_t *
lcore_json(struct kvf_engine *e, uint32_t i)
{
	struct kvf_copier *c = &e->copy->copiers[i];
	uint64_t bytes = 0, copies = 0;
	uint32_t k;

	for (k = 0; k < c->num_channels; k++) {
		uint64_t b, n;

		e->ops->counters(c->channels[k], &b, &n);
		bytes += b;
		copies += n;
	}
	return json_pack("{s:i, s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "lcore",
		(int)e->lcore_ids[i], "role", i == 0 ? "dispatch+copy" : "copy", "driver",
		e->ops->name, "channels", (int)c->num_channels, "bytes", (json_int_t)bytes,
		"copies", (json_int_t)copies, "slices", get(&c->counters.slices), "errors",
		get(&c->counters.errors), "sleeps", get(&c->counters.sleeps), "copy_cycles",
		get(&c->counters.copy_cycles), "busy_cycles", get(&c->counters.busy_cycles));
}

static json_t *
endpoint_json(const struct kvf_ep *ep)
{
	return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I}",
		"role", ep->role == KVF_PREFILL ? "prefill" : "decode", "group", ep->group->name,
		"rank", (int)ep->rank, "group_size", (int)ep->group->size, "pid", (int)ep->pid,
		"uid", (int)ep->uid, "pool_bytes", (json_int_t)ep->pool.length, "page_size",
		(json_int_t)ep->pool.page_size, "leaving", ep->dead_sent, "rooms_open",
		get(&ep->counters.rooms_open), "rooms_success", get(&ep->counters.rooms_success),
		"rooms_failed", get(&ep->counters.rooms_failed), "bytes_in",
		get(&ep->counters.bytes_in), "bytes_out", get(&ep->counters.bytes_out));
}

static json_t *
dispatcher_json(const struct kvf_totals *t)
{
	const struct {
		const char *name;
		const _Atomic uint64_t *counter;
	} all[] = {
		{"postings", &t->postings},
		{"runs", &t->runs},
		{"segments", &t->segments},
		{"bytes", &t->bytes},
		{"clipped_state_lists", &t->clipped},
		{"sleeps", &t->sleeps},
		{"slab_bytes", &t->slab_bytes},
		{"slab_used", &t->slab_used},
	};
	json_t *o = json_object();
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		json_object_set_new(o, all[i].name, json_integer(get(all[i].counter)));
	return o;
}

char *
kvf_status_json(struct kvf_engine *e)
{
	const struct kvf_totals *t = &e->disp->totals;
	json_t *root, *lcores = json_array(), *eps = json_array();
	struct timespec ts;
	uint64_t ns;
	uint32_t i;
	char *text;

	for (i = 0; i < e->num_lcores; i++)
		json_array_append_new(lcores, lcore_json(e, i));
	for (i = 0; i < e->num_eps; i++)
		json_array_append_new(eps, endpoint_json(e->eps[i]));
	clock_gettime(CLOCK_MONOTONIC, &ts);
	ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec - e->started_ns;
	root = json_pack(
		"{s:i, s:I, s:f, s:s, s:{s:s, s:s}, s:o, s:{s:I, s:I, s:I}, s:o, s:I, s:o}", "pid",
		(int)getpid(), "generation", (json_int_t)e->generation, "uptime_s",
		(double)ns / 1e9, "socket", e->socket_path, "driver", "name", e->ops->name,
		"detail", e->caps.detail, "lcores", lcores, "rooms", "open", get(&t->rooms_open),
		"success", get(&t->rooms_success), "failed", get(&t->rooms_failed), "dispatcher",
		dispatcher_json(t), "tsc_hz", (json_int_t)rte_get_tsc_hz(), "endpoints", eps);
	if (root == NULL)
		return NULL;
	text = json_dumps(root, JSON_COMPACT);
	if (text != NULL && strlen(text) > MAX_TEXT) {
		/* Too many endpoints for one packet: say so instead of cutting the text. */
		free(text);
		json_object_set_new(root, "endpoints", json_array());
		json_object_set_new(root, "endpoints_left_out", json_integer(e->num_eps));
		text = json_dumps(root, JSON_COMPACT);
	}
	json_decref(root);
	return text;
}
