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
		.cls = (uint8_t)(c->tag << 4 | c->cls),
		.occurrence = s->layout->decl.occurrence[entry - s->layout->decl.entries],
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

/* The rows of one entry: local rows for tokens, indices for state. */
static void
for_entry(struct demo_store *s, uint32_t r, const struct kvf_component *c, uint32_t e, row_fn fn,
	void *arg)
{
	const struct demo_room *room = &s->plan->rooms[r];
	const struct demo_grant *g = &s->grants[r];
	const uint32_t *pages = g->pages;
	uint64_t lo = 0, hi = 1, i, position = 0, row;

	if (c->cls == KVF_TOKENS) {
		lo = demo_rows_below(
			&c->sharding, room->total, demo_room_first(room, s->layout->role));
		hi = demo_rows_below(&c->sharding, room->total, room->total);
	} else if (c->cls == KVF_STATE) {
		pages = g->state[c->tag];
		demo_state_span(s->layout, c, room->total, &lo, &hi);
	} else {
		pages = &g->aux;
	}
	for (i = lo; i < hi; i++) {
		row = 0;
		if (c->cls == KVF_TOKENS) {
			position = demo_row_position(&c->sharding, room->total, i);
			row = i - lo;
		} else if (c->cls == KVF_STATE) {
			position = i;
			row = demo_state_row(c, i);
		}
		for_row(s, room, c, e, position, pages[row / c->page_tokens],
			(uint32_t)(row % c->page_tokens), fn, arg);
	}
	report(s, (hi - lo) * c->entries[e].row_bytes);
}

/* Calls fn for every row that the room owns here, entry by entry: that is the order in which they
 * lie. */
static void
for_rows(struct demo_store *s, uint32_t r, row_fn fn, void *arg)
{
	uint32_t i, e;

	for (i = 0; i < s->layout->decl.geo.num_components; i++) {
		const struct kvf_component *c = &s->layout->decl.comp[i];

		for (e = 0; e < c->num_entries; e++)
			for_entry(s, r, c, e, fn, arg);
	}
}

/* Adjacent bytes of a row: all of it, or one head where heads lie apart. */
struct piece {
	uint64_t offset; /* in the pool */
	uint64_t first;  /* of the un-sharded row */
	uint64_t bytes;  /* of the pattern */
	uint64_t tail;   /* bytes of the room's id that follow */
};

static uint32_t
num_pieces(const struct row *row)
{
	return row->entry->head_stride == 0 ? 1 : row->entry->head_count;
}

static struct piece
piece_of(const struct row *row, uint32_t k)
{
	const struct kvf_entry *e = row->entry;
	uint64_t bytes = e->row_bytes / num_pieces(row);
	struct piece piece = {
		.offset = row->offset + k * e->head_stride,
		.first = row->first + k * bytes,
		.bytes = bytes,
	};

	/* The aux row's last word is the room's id. */
	if (row->cls == KVF_AUX) {
		piece.tail = sizeof(row->room_id);
		piece.bytes -= piece.tail;
	}
	return piece;
}

static void
fill_row(struct demo_store *s, const struct row *row, void *arg)
{
	uint64_t id = htole64(row->room_id);
	uint32_t k;

	(void)arg;
	for (k = 0; k < num_pieces(row); k++) {
		struct piece piece = piece_of(row, k);

		pattern_fill(s->base + piece.offset, row->key, piece.first, piece.bytes);
		memcpy(s->base + piece.offset + piece.bytes, &id, piece.tail);
	}
}

static void
restore_row(struct demo_store *s, const struct row *row, void *arg)
{
	uint32_t k;

	(void)arg;
	for (k = 0; k < num_pieces(row); k++) {
		struct piece piece = piece_of(row, k);

		pattern_fill(s->base + piece.offset, s->guard_key, piece.offset,
			piece.bytes + piece.tail);
	}
}

static void
describe(struct demo_store *s, const struct row *row, const struct piece *piece, uint64_t bad,
	uint8_t want, struct demo_check *check)
{
	const uint8_t *at = s->base + piece->offset;
	uint64_t first;
	const char *how = "";

	if (pattern_compare(at, s->guard_key, piece->offset, piece->bytes + piece->tail, &first) ==
		0)
		how = ", the row was never written";
	snprintf(check->text, sizeof(check->text),
		"room=%" PRIu64 " kind=%u layer=%u position=%" PRIu64
		" page=%u slot=%u byte=%" PRIu64 " want=0x%02x got=0x%02x%s",
		row->room_id, row->entry->kind, row->entry->layer, row->position, row->page,
		row->slot, piece->first - row->first + bad, want, at[bad], how);
}

static void
check_piece(struct demo_store *s, const struct row *row, const struct piece *piece,
	struct demo_check *check)
{
	const uint8_t *at = s->base + piece->offset;
	uint64_t bad = 0, i, differ;
	uint64_t id = htole64(row->room_id);
	uint8_t want;

	differ = pattern_compare(at, row->key, piece->first, piece->bytes, &bad);
	want = pattern_byte(row->key, piece->first + bad);
	for (i = 0; i < piece->tail; i++) {
		uint8_t byte = ((const uint8_t *)&id)[i];

		if (at[piece->bytes + i] == byte)
			continue;
		if (differ++ == 0) {
			bad = piece->bytes + i;
			want = byte;
		}
	}
	if (differ != 0 && check->mismatches == 0)
		describe(s, row, piece, bad, want, check);
	check->mismatches += differ;
}

static void
check_row(struct demo_store *s, const struct row *row, void *arg)
{
	struct demo_check *check = arg;
	uint32_t k;

	for (k = 0; k < num_pieces(row); k++) {
		struct piece piece = piece_of(row, k);

		check_piece(s, row, &piece, check);
	}
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

	for (at = 0; at < s->layout->decl.pool_bytes; at += len) {
		len = s->layout->decl.pool_bytes - at;
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

	for (at = 0; at < s->layout->decl.pool_bytes; at += len) {
		len = s->layout->decl.pool_bytes - at;
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

/* What hands out the pages of each list. */
struct pools {
	struct demo_pages tokens;
	struct demo_pages aux;
	struct demo_pages state[MODEL_STATE_TYPES + 1];
};

static int
take_list(struct demo_pages *pages, uint64_t n, uint32_t **ids, struct kvf_err *err)
{
	/* Never NULL, also for a room without pages. */
	*ids = calloc(n + 1, sizeof(**ids));
	if (*ids == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for pages=%" PRIu64, n);
	return demo_pages_take(pages, *ids, (uint32_t)n, err);
}

static int
grant_room(struct demo_store *s, struct pools *pools, uint32_t r, struct kvf_err *err)
{
	const struct demo_room *room = &s->plan->rooms[r];
	const struct demo_layout *l = s->layout;
	struct demo_grant *g = &s->grants[r];
	uint32_t i, tag;
	int rc;

	g->num_pages = (uint32_t)demo_pages_needed(
		l, demo_room_first(room, l->role), room->total, room->total);
	rc = take_list(&pools->tokens, g->num_pages, &g->pages, err);
	if (rc == 0)
		rc = demo_pages_take(&pools->aux, &g->aux, 1, err);
	for (i = 0; rc == 0 && i < l->decl.geo.num_components; i++) {
		const struct kvf_component *c = &l->decl.comp[i];

		if (c->cls != KVF_STATE)
			continue;
		tag = c->tag;
		g->num_state[tag] = demo_state_pages(l, c, room->total);
		rc = take_list(&pools->state[tag], g->num_state[tag], &g->state[tag], err);
	}
	return rc;
}

int
demo_store_init(struct demo_store *s, const struct demo_layout *layout,
	const struct demo_plan *plan, uint8_t *base, uint64_t seed, struct kvf_err *err)
{
	uint64_t mine = pattern_mix(seed ^ (uint64_t)layout->role << 32 ^ layout->rank);
	struct pools pools = {0};
	uint32_t i;
	int rc;

	memset(s, 0, sizeof(*s));
	s->layout = layout;
	s->plan = plan;
	s->base = base;
	s->guard_key = pattern_mix(mine ^ 0x6775617264ull);
	s->grants = calloc(plan->num, sizeof(*s->grants));
	if (s->grants == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for rooms=%u", plan->num);
	rc = demo_pages_init(&pools.tokens, layout->shape.num_pages, mine, err);
	if (rc == 0)
		rc = demo_pages_init(&pools.aux, layout->shape.aux_slots, mine + 1, err);
	for (i = 1; rc == 0 && i <= MODEL_STATE_TYPES; i++)
		rc = demo_pages_init(
			&pools.state[i], layout->shape.state_pages[i], mine + 1 + i, err);
	for (i = 0; rc == 0 && i < plan->num; i++)
		rc = grant_room(s, &pools, i, err);
	demo_pages_fini(&pools.tokens);
	demo_pages_fini(&pools.aux);
	for (i = 1; i <= MODEL_STATE_TYPES; i++)
		demo_pages_fini(&pools.state[i]);
	if (rc != 0)
		demo_store_fini(s);
	return rc;
}

void
demo_store_fini(struct demo_store *s)
{
	uint32_t r, i;

	if (s->grants == NULL)
		return;
	for (r = 0; r < s->plan->num; r++) {
		free(s->grants[r].pages);
		for (i = 1; i <= MODEL_STATE_TYPES; i++)
			free(s->grants[r].state[i]);
	}
	free(s->grants);
	s->grants = NULL;
}
