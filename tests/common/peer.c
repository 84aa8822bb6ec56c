/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/peer.h"

#define GAP 192u /* guard bytes between buffers; keeps rows 64-byte aligned */

static uint64_t
mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x7fb5d329728ea185ull;
	x ^= x >> 27;
	x *= 0x81dadef4bc2dd44dull;
	x ^= x >> 33;
	return x;
}

static uint8_t
guard_byte(uint64_t offset)
{
	return (uint8_t)(mix((offset / 8) ^ 0x6775617264ull) >> (offset % 8 * 8));
}

void
peer_mla(struct peer *p, const struct peer_shape *shape)
{
	uint32_t slots = shape->slots != 0 ? shape->slots : 16, i, n = 0;
	struct kvf_sharding all = {1, 0, 1, 0};
	struct kvf_sharding sh = shape->sharding.size != 0 ? shape->sharding : all;
	struct kvf_component *c;
	struct kvf_entry *e;
	uint64_t at = GAP;

	memset(p, 0, sizeof(*p));
	p->entries = calloc(shape->layers + shape->draft_layers + 2, sizeof(*e));
	if (p->entries == NULL)
		abort();
	c = &p->comps[n++];
	*c = (struct kvf_component){.cls = KVF_TOKENS,
		.list = PEER_TOKENS,
		.page_tokens = shape->page_tokens,
		.num_pages = shape->num_pages,
		.num_entries = shape->layers,
		.sharding = sh,
		.entries = p->entries};
	e = p->entries;
	for (i = 0; i < shape->layers + shape->draft_layers; i++, e++) {
		uint32_t page = shape->page_tokens * (i < shape->layers ? 1 : sh.size);

		*e = (struct kvf_entry){.offset = at,
			.page_stride = (uint64_t)page * shape->row_bytes,
			.row_stride = shape->row_bytes,
			.row_bytes = shape->row_bytes,
			.layer = shape->first_layer + i,
			.kind = KVF_KIND_LATENT,
			.dtype = 1,
			.head_count = 1,
			.head_total = 1};
		at += e->page_stride * shape->num_pages + GAP;
	}
	if (shape->draft_layers != 0)
		p->comps[n++] = (struct kvf_component){.cls = KVF_TOKENS,
			.list = PEER_TOKENS,
			.page_tokens = shape->page_tokens * sh.size,
			.num_pages = shape->num_pages,
			.num_entries = shape->draft_layers,
			.sharding = all,
			.entries = p->entries + shape->layers};
	for (i = 0; i < 2; i++) {
		uint32_t bytes = i == 0 ? shape->state_bytes : shape->aux_bytes;

		if (bytes == 0)
			continue;
		*e = (struct kvf_entry){.offset = at,
			.page_stride = bytes,
			.row_stride = bytes,
			.row_bytes = bytes,
			.kind = i == 0 ? KVF_KIND_SSM : KVF_KIND_AUX,
			.dtype = 2,
			.head_count = 1,
			.head_total = 1};
		at += (uint64_t)bytes * slots + GAP;
		p->comps[n++] = (struct kvf_component){.cls = i == 0 ? KVF_STATE : KVF_AUX,
			.tag = i == 0 ? 1 : 0,
			.list = i == 0 ? PEER_STATE : PEER_AUX,
			.page_tokens = 1,
			.num_pages = slots,
			.num_entries = 1,
			.sharding = all,
			.entries = e++};
	}
	p->geo.num_components = n;
	p->geo.components = p->comps;
	p->pool_bytes = at;
}

void
peer_declare(struct peer *p, const struct kvf_geometry *geo, uint64_t pool_bytes)
{
	struct kvf_entry *e;
	uint32_t i, n = 0;

	memset(p, 0, sizeof(*p));
	for (i = 0; i < geo->num_components; i++)
		n += geo->components[i].num_entries;
	p->entries = calloc(n, sizeof(*e));
	if (p->entries == NULL)
		abort();
	e = p->entries;
	for (i = 0; i < geo->num_components; i++) {
		p->comps[i] = geo->components[i];
		p->comps[i].entries = e;
		memcpy(e, geo->components[i].entries, geo->components[i].num_entries * sizeof(*e));
		e += geo->components[i].num_entries;
	}
	p->geo.num_components = geo->num_components;
	p->geo.components = p->comps;
	p->pool_bytes = pool_bytes;
}

int
peer_pool(struct peer *p, struct kvf_err *err)
{
	struct kvf_pool_config pc = {
		.length = p->pool_bytes,
		.page_size = p->page_size != 0 ? p->page_size : 4096,
		.numa_node = -1,
		.name = "peer",
	};
	uint64_t i, word = 0;
	int rc;

	/* The struct may have been copied since it was declared. */
	p->geo.components = p->comps;
	rc = kvf_pool_create(&pc, &p->pool, err);
	if (rc != 0)
		return rc;
	p->base = kvf_pool_addr(p->pool);
	p->shadow = malloc(p->pool_bytes);
	if (p->shadow == NULL)
		abort();
	for (i = 0; i < p->pool_bytes; i++) {
		if (i % 8 == 0)
			word = mix((i / 8) ^ 0x6775617264ull);
		p->shadow[i] = (uint8_t)(word >> (i % 8 * 8));
	}
	memcpy(p->base, p->shadow, p->pool_bytes);
	return 0;
}

int
peer_connect(struct peer *p, const char *socket, const struct kvf_endpoint_config *cfg,
	struct kvf_err *err)
{
	struct kvf_endpoint_config ec = {0};

	if (cfg != NULL)
		ec = *cfg;
	ec.socket = socket;
	ec.role = p->role;
	ec.group = p->group;
	ec.group_size = p->group_size;
	ec.rank = p->rank;
	ec.pool = p->pool;
	ec.geometry = &p->geo;
	if (ec.arena_bytes == 0)
		ec.arena_bytes = 1 << 20;
	if (ec.sq_entries == 0)
		ec.sq_entries = 64;
	if (ec.cq_entries == 0)
		ec.cq_entries = 64;
	return kvf_endpoint_open(&ec, &p->ep, err);
}

int
peer_open(struct peer *p, const char *socket, enum kvf_role role, const char *group,
	uint32_t group_size, uint32_t rank, const struct kvf_endpoint_config *cfg,
	struct kvf_err *err)
{
	int rc = peer_pool(p, err);

	if (rc != 0)
		return rc;
	p->role = role;
	snprintf(p->group, sizeof(p->group), "%s", group);
	p->group_size = group_size;
	p->rank = rank;
	return peer_connect(p, socket, cfg, err);
}

void
peer_close(struct peer *p)
{
	kvf_endpoint_close(p->ep);
	kvf_pool_destroy(p->pool);
	free(p->shadow);
	free(p->entries);
	memset(p, 0, sizeof(*p));
}

/* Pages of a band are dealt out rank by rank, one more to the first ranks where they do not come
 * out even. */
static bool
in_band(const struct kvf_sharding *sh, uint64_t pos, uint64_t total)
{
	uint64_t pages = (total + sh->interleave - 1) / sh->interleave;
	uint64_t page = pos / sh->interleave, at = 0;
	uint32_t rank;

	for (rank = 0; rank < sh->size; rank++) {
		at += pages / sh->size + (rank < pages % sh->size ? 1 : 0);
		if (page < at)
			return rank == sh->rank;
	}
	return false;
}

static bool
owned(const struct kvf_sharding *sh, uint64_t pos, uint64_t total)
{
	if (sh->mode == KVF_SHARD_BAND)
		return in_band(sh, pos, total);
	return pos / sh->interleave % sh->size == sh->rank;
}

/* By counting, not by formula. */
static uint64_t
rows_below(const struct kvf_sharding *sh, uint64_t pos, uint64_t total)
{
	uint64_t i, n = 0;

	for (i = 0; i < pos; i++)
		n += owned(sh, i, total);
	return n;
}

uint32_t
peer_span(const struct kvf_sharding *sh, uint32_t page_tokens, uint64_t from, uint64_t to,
	uint64_t total, uint64_t *first_page)
{
	uint64_t first = rows_below(sh, from, total), end = first, pos;

	for (pos = from; pos < to; pos++)
		end += owned(sh, pos, total);
	if (first_page != NULL)
		*first_page = first / page_tokens;
	return first == end ? 0 : (uint32_t)((end - 1) / page_tokens - first / page_tokens + 1);
}

uint32_t
peer_list_pages(const struct peer *p, uint32_t list, uint64_t from, uint64_t to, uint64_t total)
{
	uint32_t i, n, most = 0;

	for (i = 0; i < p->geo.num_components; i++) {
		const struct kvf_component *c = &p->comps[i];

		if (c->cls != KVF_TOKENS || c->list != list)
			continue;
		n = peer_span(&c->sharding, c->page_tokens, from, to, total, NULL);
		most = n > most ? n : most;
	}
	return most;
}

uint32_t
peer_pages(const struct peer *p, uint64_t from, uint64_t to)
{
	return peer_list_pages(p, PEER_TOKENS, from, to, to);
}

static uint32_t
occurrence(const struct peer *p, uint32_t comp, uint32_t entry)
{
	const struct kvf_component *c = &p->comps[comp];
	uint32_t i, k, n = 0;

	for (i = 0; i <= comp; i++) {
		const struct kvf_component *o = &p->comps[i];

		if (o->cls != c->cls || o->tag != c->tag)
			continue;
		for (k = 0; k < o->num_entries && !(i == comp && k == entry); k++)
			n += o->entries[k].layer == c->entries[entry].layer &&
			     o->entries[k].kind == c->entries[entry].kind;
	}
	return n;
}

enum what {
	WHAT_VALUE,
	WHAT_TAKE, /* shadow := pool */
};

struct row_key {
	uint64_t room;
	uint32_t cls, tag, kind, layer, occurrence;
	uint64_t position;
};

static uint64_t
write_row(struct peer *p, const struct kvf_entry *e, uint64_t at, const struct row_key *k,
	bool pool, enum what what)
{
	uint64_t hb = e->row_bytes / e->head_count, hs = e->head_stride != 0 ? e->head_stride : hb;
	uint64_t h, b, base, word = 0;

	base = mix(k->room + 1);
	base = mix(base ^ ((uint64_t)k->cls << 48 | (uint64_t)k->tag << 32 | k->kind));
	base = mix(base ^ ((uint64_t)k->layer << 32 | k->occurrence));
	base = mix(base ^ k->position);
	for (h = 0; h < e->head_count; h++) {
		uint64_t head = mix(base ^ (e->head_first + h + 1)), off = at + h * hs;

		if (off + hb > p->pool_bytes) {
			fprintf(stderr, "peer: offset %" PRIu64 " outside its pool\n", off);
			abort();
		}
		if (what == WHAT_TAKE) {
			memcpy(p->shadow + off, p->base + off, hb);
			continue;
		}
		for (b = 0; b < hb; b++) {
			if (b % 8 == 0)
				word = mix(head + b / 8);
			p->shadow[off + b] = (uint8_t)(word >> (b % 8 * 8));
		}
		if (pool)
			memcpy(p->base + off, p->shadow + off, hb);
	}
	return e->row_bytes;
}

/* Rows in list order; of rings the newest positions that both sides can hold. */
static uint64_t
visit_rows(struct peer *p, const struct kvf_component *c, const struct kvf_entry *e,
	const struct kvf_pages *list, const struct peer_use *use, struct row_key *key, bool pool,
	enum what what)
{
	uint64_t rows = (uint64_t)list->count * c->page_tokens, row, bytes = 0, ring;
	const uint64_t *other = use->other_rows != NULL ? &use->other_rows[c->list] : NULL;

	if (c->cls == KVF_STATE && c->rule == KVF_STATE_RING) {
		rows = other != NULL && *other < c->page_tokens ? *other : c->page_tokens;
		for (ring = 0; ring < list->count; ring++) {
			for (row = rows < use->total ? use->total - rows : 0; row < use->total;
				row++) {
				key->position = ring << 40 | row;
				bytes += write_row(p, e,
					e->offset + list->ids[ring] * e->page_stride +
						row % c->page_tokens * e->row_stride,
					key, pool, what);
			}
		}
		return bytes;
	}
	if (c->cls == KVF_STATE && other != NULL && *other < rows)
		rows = *other;
	for (row = 0; row < rows; row++) {
		key->position = row;
		bytes += write_row(p, e,
			e->offset + list->ids[row / c->page_tokens] * e->page_stride +
				row % c->page_tokens * e->row_stride,
			key, pool, what);
	}
	return bytes;
}

/* The component's rows of positions [from, to): index in its list and slot, one after the other. */
static uint64_t
visit_tokens(struct peer *p, uint32_t comp, const struct kvf_pages *list,
	const struct peer_use *use, bool pool, enum what what)
{
	const struct kvf_component *c = &p->comps[comp];
	uint64_t row = rows_below(&c->sharding, use->from, use->total);
	uint64_t first = row / c->page_tokens, pos, index, bytes = 0;
	uint32_t occ[KVF_MAX_ENTRIES], k;

	for (k = 0; k < c->num_entries; k++)
		occ[k] = occurrence(p, comp, k);
	for (pos = use->from; pos < use->to; pos++) {
		if (!owned(&c->sharding, pos, use->total))
			continue;
		index = row / c->page_tokens - first;
		if (index >= list->count) {
			fprintf(stderr, "peer: list of %u pages is too short\n", list->count);
			abort();
		}
		for (k = 0; k < c->num_entries; k++) {
			const struct kvf_entry *e = &c->entries[k];
			struct row_key key = {
				use->room, c->cls, c->tag, e->kind, e->layer, occ[k], pos};

			bytes += write_row(p, e,
				e->offset + list->ids[index] * e->page_stride +
					row % c->page_tokens * e->row_stride,
				&key, pool, what);
		}
		row++;
	}
	return bytes;
}

static uint64_t
visit(struct peer *p, const struct peer_use *use, bool pool, enum what what)
{
	uint64_t bytes = 0;
	uint32_t i, k, l;

	for (i = 0; i < p->geo.num_components; i++) {
		const struct kvf_component *c = &p->comps[i];
		const struct kvf_pages *list = NULL;

		for (l = 0; l < use->num_lists; l++)
			if (use->lists[l].list == c->list)
				list = &use->lists[l];
		if (list == NULL)
			continue;
		if (c->cls == KVF_TOKENS) {
			bytes += visit_tokens(p, i, list, use, pool, what);
			continue;
		}
		for (k = 0; k < c->num_entries; k++) {
			const struct kvf_entry *e = &c->entries[k];
			struct row_key key = {use->room, c->cls, c->tag, e->kind, e->layer,
				occurrence(p, i, k), 0};

			bytes += visit_rows(p, c, e, list, use, &key, pool, what);
		}
	}
	return bytes;
}

void
peer_write(struct peer *p, const struct peer_use *use)
{
	visit(p, use, true, WHAT_VALUE);
}

uint64_t
peer_await(struct peer *p, const struct peer_use *use)
{
	return visit(p, use, false, WHAT_VALUE);
}

void
peer_put(struct peer *p, uint64_t room, uint64_t from, uint64_t to, const struct kvf_pages *lists,
	uint32_t num_lists)
{
	struct peer_use use = {room, from, to, to, lists, num_lists, NULL};

	peer_write(p, &use);
}

void
peer_expect(struct peer *p, uint64_t room, uint64_t from, uint64_t to,
	const struct kvf_pages *lists, uint32_t num_lists)
{
	struct peer_use use = {room, from, to, to, lists, num_lists, NULL};

	peer_await(p, &use);
}

void
peer_forgive(struct peer *p, uint64_t from, uint64_t to, const struct kvf_pages *lists,
	uint32_t num_lists)
{
	struct peer_use use = {0, from, to, to, lists, num_lists, NULL};

	visit(p, &use, false, WHAT_TAKE);
}

uint64_t
peer_check(const struct peer *p)
{
	uint64_t i, bad = 0;

	if (memcmp(p->base, p->shadow, p->pool_bytes) == 0)
		return 0;
	for (i = 0; i < p->pool_bytes; i++) {
		if (p->base[i] == p->shadow[i])
			continue;
		if (bad++ < 3)
			printf("        %s %s[%u]: byte at %" PRIu64 " is %02x, should be %02x%s\n",
				p->role == KVF_PREFILL ? "prefill" : "decode", p->group, p->rank, i,
				p->base[i], p->shadow[i],
				p->base[i] == guard_byte(i) ? " (never written)" : "");
	}
	return bad;
}

static void
take_events(struct peer *p)
{
	struct kvf_event ev[16];
	int n, i;

	while ((n = kvf_poll(p->ep, ev, 16)) > 0)
		for (i = 0; i < n; i++)
			p->clipped |= ev[i].clipped != 0;
}

int
peer_wait(struct peer *p, uint64_t room, int ms)
{
	struct timespec t0, t;

	clock_gettime(CLOCK_MONOTONIC, &t0);
	for (;;) {
		int st, left;

		take_events(p);
		st = kvf_room_status(p->ep, room);
		if (st < 0)
			return st;
		if ((st == KVF_FAILED || st == KVF_SUCCESS) && kvf_room_drained(p->ep, room) == 1) {
			take_events(p); /* what came in between */
			return st;
		}
		clock_gettime(CLOCK_MONOTONIC, &t);
		left = ms -
		       (int)((t.tv_sec - t0.tv_sec) * 1000 + (t.tv_nsec - t0.tv_nsec) / 1000000);
		if (left <= 0)
			return KVF_E_TIMEOUT;
		kvf_wait(p->ep, left < 100 ? left : 100);
	}
}
