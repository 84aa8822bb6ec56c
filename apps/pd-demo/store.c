/* SPDX-License-Identifier: BSD-3-Clause */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fail.h"
#include "common/pattern.h"
#include "pd-demo/store.h"

#define SWEEP_BYTES (4u << 20)

/* One row of one entry, and which bytes belong there. */
struct row {
	const struct kvf_entry *entry;
	uint64_t room_id; /* aux rows end with it */
	uint64_t offset;  /* in the pool */
	uint64_t key;
	uint64_t first; /* of the un-sharded row: where the heads held here begin */
	uint64_t position;
	uint32_t cls;
	uint32_t page;
	uint32_t slot;
};

typedef void (*row_fn)(struct demo_store *s, const struct row *row, void *arg);

static void
report(struct demo_store *s, uint64_t bytes)
{
	if (s->progress != NULL)
		s->progress(s->progress_arg, bytes);
}

static void
for_row(struct demo_store *s, const struct demo_room *room, const struct kvf_component *c,
	uint32_t e, uint64_t position, uint32_t page, uint32_t slot, row_fn fn, void *arg)
{
	const struct kvf_entry *entry = &c->entries[e];
	struct pattern_row id = {
		.room_key = room->key,
		.position = position,
		.layer = entry->layer,
		.kind = entry->kind,
		.cls = (uint8_t)c->cls,
		.occurrence = s->layout->occurrence[entry - s->layout->entries],
	};
	struct row row = {
		.entry = entry,
		.room_id = room->id,
		.offset = entry->offset + page * entry->page_stride + slot * entry->row_stride,
		.key = pattern_key(&id),
		.first = (uint64_t)entry->head_first * (entry->row_bytes / entry->head_count),
		.position = position,
		.cls = c->cls,
		.page = page,
		.slot = slot,
	};

	fn(s, &row, arg);
}

/* Calls fn for every row that the room owns here, entry by entry: that is the order in which they
 * lie. */
static void
for_rows(struct demo_store *s, uint32_t r, row_fn fn, void *arg)
{
	const struct demo_room *room = &s->plan->rooms[r];
	const struct demo_grant *g = &s->grants[r];
	const struct kvf_component *c;
	uint64_t lo, hi, row;
	uint32_t i, e;

	for (i = 0; i < s->layout->geo.num_components; i++) {
		c = &s->layout->comp[i];
		for (e = 0; e < c->num_entries; e++) {
			if (c->cls != KVF_TOKENS) {
				for_row(s, room, c, e, 0, c->cls == KVF_AUX ? g->aux : g->state, 0,
					fn, arg);
				report(s, c->entries[e].row_bytes);
				continue;
			}
			lo = demo_rows_below(&c->sharding, demo_room_first(room, s->layout->role));
			hi = demo_rows_below(&c->sharding, room->total);
			for (row = lo; row < hi; row++)
				for_row(s, room, c, e, demo_row_position(&c->sharding, row),
					g->pages[(row - lo) / c->page_tokens],
					(uint32_t)((row - lo) % c->page_tokens), fn, arg);
			report(s, (hi - lo) * c->entries[e].row_bytes);
		}
	}
}

/* The aux row's last word is the room's id. */
static uint64_t
pattern_bytes(const struct row *row)
{
	return row->entry->row_bytes - (row->cls == KVF_AUX ? sizeof(row->room_id) : 0);
}

static void
fill_row(struct demo_store *s, const struct row *row, void *arg)
{
	uint8_t *at = s->base + row->offset;
	uint64_t id = htole64(row->room_id);

	(void)arg;
	pattern_fill(at, row->key, row->first, pattern_bytes(row));
	if (row->cls == KVF_AUX)
		memcpy(at + pattern_bytes(row), &id, sizeof(id));
}

static void
restore_row(struct demo_store *s, const struct row *row, void *arg)
{
	(void)arg;
	pattern_fill(s->base + row->offset, s->guard_key, row->offset, row->entry->row_bytes);
}

static void
describe(struct demo_store *s, const struct row *row, uint64_t bad, uint8_t want,
	struct demo_check *check)
{
	const uint8_t *at = s->base + row->offset;
	uint64_t n = row->entry->row_bytes, first;
	const char *how = "";

	if (pattern_compare(at, s->guard_key, row->offset, n, &first) == 0)
		how = ", the row was never written";
	snprintf(check->text, sizeof(check->text),
		"room=%" PRIu64 " kind=%u layer=%u position=%" PRIu64
		" page=%u slot=%u byte=%" PRIu64 " want=0x%02x got=0x%02x%s",
		row->room_id, row->entry->kind, row->entry->layer, row->position, row->page,
		row->slot, bad, want, at[bad], how);
}

static void
check_row(struct demo_store *s, const struct row *row, void *arg)
{
	struct demo_check *check = arg;
	const uint8_t *at = s->base + row->offset;
	uint64_t n = pattern_bytes(row), bad = 0, i, differ;
	uint64_t id = htole64(row->room_id);
	uint8_t want;

	differ = pattern_compare(at, row->key, row->first, n, &bad);
	want = pattern_byte(row->key, row->first + bad);
	for (i = n; i < row->entry->row_bytes; i++) {
		uint8_t byte = ((const uint8_t *)&id)[i - n];

		if (at[i] == byte)
			continue;
		if (differ++ == 0) {
			bad = i;
			want = byte;
		}
	}
	if (differ != 0 && check->mismatches == 0)
		describe(s, row, bad, want, check);
	check->mismatches += differ;
	check->bytes += row->entry->row_bytes;
	restore_row(s, row, NULL);
}

void
demo_store_fill(struct demo_store *s, uint32_t room)
{
	for_rows(s, room, fill_row, NULL);
}

void
demo_store_check(struct demo_store *s, uint32_t room, struct demo_check *check)
{
	for_rows(s, room, check_row, check);
}

void
demo_store_forget(struct demo_store *s, uint32_t room)
{
	for_rows(s, room, restore_row, NULL);
}

void
demo_store_guard(struct demo_store *s)
{
	uint64_t at, len;

	for (at = 0; at < s->layout->pool_bytes; at += len) {
		len = s->layout->pool_bytes - at;
		if (len > SWEEP_BYTES)
			len = SWEEP_BYTES;
		pattern_fill(s->base + at, s->guard_key, at, len);
		report(s, len);
	}
}

void
demo_store_sweep(struct demo_store *s, struct demo_check *check)
{
	uint64_t at, len, bad = 0, differ;

	for (at = 0; at < s->layout->pool_bytes; at += len) {
		len = s->layout->pool_bytes - at;
		if (len > SWEEP_BYTES)
			len = SWEEP_BYTES;
		differ = pattern_compare(s->base + at, s->guard_key, at, len, &bad);
		if (differ != 0 && check->mismatches == 0)
			snprintf(check->text, sizeof(check->text),
				"pool offset=%" PRIu64
				" is no room's, but was written: want=0x%02x got=0x%02x",
				at + bad, pattern_byte(s->guard_key, at + bad), s->base[at + bad]);
		check->mismatches += differ;
		report(s, len);
	}
}

static int
grant_all(struct demo_store *s, struct demo_pages *pages, struct demo_pages *aux,
	struct demo_pages *state, struct kvf_err *err)
{
	uint32_t r;
	int rc;

	for (r = 0; r < s->plan->num; r++) {
		const struct demo_room *room = &s->plan->rooms[r];
		struct demo_grant *g = &s->grants[r];

		g->num_pages = (uint32_t)demo_pages_needed(
			s->layout, demo_room_first(room, s->layout->role), room->total);
		/* Never NULL, also for a room without pages. */
		g->pages = calloc(g->num_pages + 1, sizeof(*g->pages));
		if (g->pages == NULL)
			return app_fail(err, KVF_E_NOMEM, "no memory for pages=%u", g->num_pages);
		rc = demo_pages_take(pages, g->pages, g->num_pages, err);
		if (rc == 0)
			rc = demo_pages_take(aux, &g->aux, 1, err);
		if (rc == 0 && s->layout->state_slots > 0)
			rc = demo_pages_take(state, &g->state, 1, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int
demo_store_init(struct demo_store *s, const struct demo_layout *layout,
	const struct demo_plan *plan, uint8_t *base, uint64_t seed, struct kvf_err *err)
{
	uint64_t mine = pattern_mix(seed ^ (uint64_t)layout->role << 32 ^ layout->rank);
	struct demo_pages pages = {0}, aux = {0}, state = {0};
	int rc;

	memset(s, 0, sizeof(*s));
	s->layout = layout;
	s->plan = plan;
	s->base = base;
	s->guard_key = pattern_mix(mine ^ 0x6775617264ull);
	s->grants = calloc(plan->num, sizeof(*s->grants));
	if (s->grants == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for rooms=%u", plan->num);
	rc = demo_pages_init(&pages, layout->num_pages, mine, err);
	if (rc == 0)
		rc = demo_pages_init(&aux, layout->aux_slots, mine + 1, err);
	if (rc == 0 && layout->state_slots > 0)
		rc = demo_pages_init(&state, layout->state_slots, mine + 2, err);
	if (rc == 0)
		rc = grant_all(s, &pages, &aux, &state, err);
	demo_pages_fini(&pages);
	demo_pages_fini(&aux);
	demo_pages_fini(&state);
	if (rc != 0)
		demo_store_fini(s);
	return rc;
}

void
demo_store_fini(struct demo_store *s)
{
	uint32_t r;

	if (s->grants == NULL)
		return;
	for (r = 0; r < s->plan->num; r++)
		free(s->grants[r].pages);
	free(s->grants);
	s->grants = NULL;
}
