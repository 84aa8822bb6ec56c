/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/suite.h"
#include "combo.h"

#define WAIT_MS 60000 /* a race detector is slow */

struct actor {
	struct maker make;
	struct peer peer;
	uint32_t posted;
	bool open;
};

struct play {
	struct combo *c;
	struct venue *v;
	struct actor *actors[2]; /* [rank] */
	uint64_t expected;       /* bytes */
	bool good;
};

#define COMPLAIN(p, ...)                                                                           \
	do {                                                                                       \
		printf("        index=%u: ", (p)->c->index);                                       \
		printf(__VA_ARGS__);                                                               \
		printf("\n");                                                                      \
		(p)->good = false;                                                                 \
	} while (0)

static uint64_t
engine_bytes(struct play *p)
{
	struct kvf_err err = {0};
	uint64_t bytes = 0;
	char *json, *at;

	if (kvf_engine_status(p->v->socket, 0, &json, &err) != 0) {
		COMPLAIN(p, "status: %s", err.text);
		return 0;
	}
	at = strstr(json, "\"dispatcher\":");
	at = at != NULL ? strstr(at, "\"bytes\":") : NULL;
	if (at == NULL)
		COMPLAIN(p, "no number of bytes in %s", json);
	else
		bytes = strtoull(at + strlen("\"bytes\":"), NULL, 10);
	free(json);
	return bytes;
}

static bool
open_all(struct play *p)
{
	struct kvf_endpoint_config cfg = {.max_rooms = 16, .arena_bytes = 1 << 18};
	struct kvf_err err = {0};
	uint32_t side, r;
	char group[KVF_GROUP_NAME_MAX];

	for (side = 0; side < 2; side++) {
		snprintf(group, sizeof(group), "%c%u", side == SRC ? 'p' : 'd', p->c->index % 5);
		for (r = 0; r < p->c->side[side].n; r++) {
			struct actor *a = &p->actors[side][r];

			combo_make(p->c, (enum side)side, r, &a->make);
			peer_declare(&a->peer, &a->make.geo, a->make.pool_bytes);
			a->open = true;
			if (peer_open(&a->peer, p->v->socket,
				    side == SRC ? KVF_PREFILL : KVF_DECODE, group,
				    p->c->side[side].n, r, &cfg, &err) != 0) {
				COMPLAIN(p, "%s rank=%u does not open: %s: %s", group, r,
					kvf_error_name(err.code), err.text);
				return false;
			}
		}
	}
	return true;
}

/* Rows that the prefill side names, by the decode side's lists. */
static void
source_rows(const struct combo *c, uint64_t *rows)
{
	const struct side_draw *s = &c->side[SRC];
	const uint32_t *list = c->side[DST].list;
	uint32_t i;

	for (i = 0; i < KVF_MAX_LISTS; i++)
		rows[i] = UINT64_MAX;
	rows[list[L_CLIP]] = (uint64_t)s->clip_pages * s->clip_page;
	rows[list[L_RING]] = s->ring_rows;
}

static void
post_recv(struct play *p, struct actor *a, const struct posting *post)
{
	const struct room_draw *room = &p->c->room[post->room];
	uint64_t rows[KVF_MAX_LISTS];
	struct peer_use use = {
		room->id, post->from, post->to, room->total, post->lists, post->num_lists, rows};
	char group[KVF_GROUP_NAME_MAX];
	struct kvf_recv_args args = {.room = room->id,
		.key = room->key,
		.prefill_group = room->named ? group : NULL,
		.prefix_tokens = post->from,
		.total_tokens = room->total,
		.lists = post->lists,
		.num_lists = post->num_lists};
	struct kvf_err err = {0};

	snprintf(group, sizeof(group), "p%u", p->c->index % 5);
	source_rows(p->c, rows);
	if (p->c->harm == HARM_NONE)
		p->expected += peer_await(&a->peer, &use);
	if (kvf_recv(a->peer.ep, &args, &err) != 0)
		COMPLAIN(p, "recv: %s: %s", kvf_error_name(err.code), err.text);
}

static void
post_send(struct play *p, struct actor *a, const struct posting *post)
{
	const struct room_draw *room = &p->c->room[post->room];
	struct peer_use use = {
		room->id, post->from, post->to, room->total, post->lists, post->num_lists, NULL};
	struct kvf_send_args args = {.room = room->id,
		.key = room->key,
		.start_token = post->from,
		.num_tokens = post->to - post->from,
		.total_tokens = room->total,
		.lists = post->lists,
		.num_lists = post->num_lists};
	struct kvf_err err = {0};
	int rc;

	peer_write(&a->peer, &use);
	rc = kvf_send(a->peer.ep, &args, &err);
	/* The refusal may have come between two chunks. */
	if (rc != 0 && (p->c->harm == HARM_NONE || rc != KVF_E_EXIST))
		COMPLAIN(p, "send: %s: %s", kvf_error_name(rc), err.text);
}

static bool
post_next(struct play *p, uint32_t side, uint32_t rank)
{
	struct actor *a = &p->actors[side][rank];

	if (a->posted == a->make.num_postings)
		return false;
	if (side == SRC)
		post_send(p, a, &a->make.postings[a->posted++]);
	else
		post_recv(p, a, &a->make.postings[a->posted++]);
	return true;
}

static void
post_all(struct play *p)
{
	struct combo *c = p->c;
	uint32_t first = c->order == 0 ? DST : SRC, k, r, both = c->side[0].n + c->side[1].n;
	bool more = true;

	if (c->order == 2) {
		/* Rounds over everybody, of whom each takes part or not. */
		while (more) {
			more = false;
			for (k = 0; k < both; k++) {
				uint32_t side = k < c->side[0].n ? SRC : DST;

				r = side == SRC ? k : k - c->side[0].n;
				if (suite_range(&c->rand, 0, 2) == 0)
					more |= p->actors[side][r].posted <
						p->actors[side][r].make.num_postings;
				else
					more |= post_next(p, side, r);
			}
		}
		return;
	}
	for (k = 0; k < 2; k++) {
		uint32_t side = k == 0 ? first : 1 - first;

		for (r = 0; r < c->side[side].n; r++)
			while (post_next(p, side, r))
				;
	}
}

static void
check_refusal(struct play *p, const struct peer *peer, uint64_t room)
{
	static const int codes[] = {
		[HARM_LAYER] = KVF_E_COVERAGE,
		[HARM_HEADS] = KVF_E_COVERAGE,
		[HARM_POSITIONS] = KVF_E_COVERAGE,
		[HARM_BYTES] = KVF_E_MISMATCH,
		[HARM_DTYPE] = KVF_E_MISMATCH,
		[HARM_HEAD_TOTAL] = KVF_E_MISMATCH,
		[HARM_SHARDS] = KVF_E_SHARDING,
		[HARM_STATE] = KVF_E_COVERAGE,
		[HARM_AUX] = KVF_E_COVERAGE,
		[HARM_RULE] = KVF_E_MISMATCH,
		[HARM_STATE_LIST] = KVF_E_STATE_LIST,
	};
	const struct combo *c = p->c;
	const struct side_draw *s = &c->side[SRC];
	uint32_t layer = combo_layer(c, c->hurt_layer), kind = combo_hurt_kind(c), lo, hi, bytes;
	const char *want[3] = {"", "", ""}, *at;
	char where[64], more[64] = "";
	struct kvf_err err = {0};
	uint16_t first, count;
	int rc, i;

	rc = kvf_room_error(peer->ep, room, &err);
	snprintf(where, sizeof(where), "layer=%u kind=%u", layer, kind);
	want[0] = where;
	switch (c->harm) {
	case HARM_POSITIONS:
		snprintf(more, sizeof(more), "positions of source rank %u mod %u", c->hurt_place,
			s->dcp);
		want[1] = more;
		break;
	case HARM_BYTES:
		bytes = combo_hurt_bytes(c);
		snprintf(more, sizeof(more), "src=%u dst=%u", bytes, bytes + 1);
		want[1] = "entry=";
		want[2] = more;
		break;
	case HARM_DTYPE:
		want[1] = "prefill=";
		want[2] = "decode=1";
		break;
	case HARM_HEAD_TOTAL:
		snprintf(more, sizeof(more), "src=%u dst=%u", c->model->heads, c->model->heads + 1);
		want[1] = more;
		break;
	case HARM_SHARDS:
		want[0] = "layer=";
		want[1] = "interleave=";
		break;
	case HARM_STATE:
		snprintf(where, sizeof(where), "layer=%u kind=100", layer);
		want[1] = "class=2";
		break;
	case HARM_AUX:
		want[0] = "layer=0 kind=9";
		want[1] = "class=3";
		break;
	case HARM_RULE:
		snprintf(where, sizeof(where), "kind=100");
		want[1] = "prefill=0 decode=2";
		break;
	case HARM_STATE_LIST:
		snprintf(where, sizeof(where), "prefill=%u decode=%u", s->exact_pages,
			c->side[DST].exact_pages);
		want[1] = "tag=2";
		snprintf(more, sizeof(more), " (pages of %u and %u rows)", s->exact_page,
			c->side[DST].exact_page);
		want[2] = s->exact_page != c->side[DST].exact_page ? more : "";
		break;
	default:
		break;
	}
	for (i = 0; i < 3; i++)
		if (strstr(err.text, want[i]) == NULL)
			break;
	if (rc != codes[c->harm] || i < 3)
		COMPLAIN(p, "refused as %s, wanted %s with \"%s\": %s", kvf_error_name(rc),
			kvf_error_name(codes[c->harm]), i < 3 ? want[i] : "", err.text);
	if (c->harm != HARM_HEADS)
		return;
	combo_heads(c->model->heads, s->tp, c->hurt_place, &first, &count);
	at = strstr(err.text, "heads=[");
	if (at == NULL || sscanf(at, "heads=[%u,%u)", &lo, &hi) != 2 || lo >= hi || lo < first ||
		hi > (uint32_t)first + count)
		COMPLAIN(p, "missing heads are [%u,%u): %s", first, (uint32_t)first + count,
			err.text);
}

static bool
has_component(const struct peer *peer, uint32_t cls, uint32_t tag)
{
	uint32_t i;

	for (i = 0; i < peer->geo.num_components; i++)
		if (peer->comps[i].cls == cls && peer->comps[i].tag == tag)
			return true;
	return false;
}

/* A refusal that only the last phase of a room meets: who has no part in that may be done by then.
 */
static bool
may_succeed(const struct combo *c, const struct peer *peer, uint32_t side)
{
	return c->harm == HARM_STATE_LIST &&
	       (side == SRC || !has_component(peer, KVF_STATE, TAG_EXACT));
}

static void
finish_room(struct play *p, struct actor *a, uint64_t room, uint32_t side, uint32_t rank)
{
	int want = p->c->harm == HARM_NONE ? KVF_SUCCESS : KVF_FAILED;
	int st = peer_wait(&a->peer, room, WAIT_MS);
	struct kvf_err err = {0};

	if (st != want && !(st == KVF_SUCCESS && may_succeed(p->c, &a->peer, side))) {
		if (st >= 0)
			kvf_room_error(a->peer.ep, room, &err);
		COMPLAIN(p, "room=%" PRIu64 " ended with %d at %s rank=%u, wanted %d: %s", room, st,
			side == SRC ? "prefill" : "decode", rank, want, err.text);
		return;
	}
	if (st == KVF_FAILED)
		check_refusal(p, &a->peer, room);
	if (!p->c->leave_open && kvf_room_release(a->peer.ep, room, &err) != 0)
		COMPLAIN(p, "release: %s", err.text);
}

/* Of a room that failed on the way, decode's pages may hold anything. */
static void
forgive(struct play *p)
{
	uint32_t r, i;

	for (r = 0; r < p->c->side[DST].n; r++) {
		struct actor *a = &p->actors[DST][r];

		for (i = 0; i < a->posted; i++) {
			const struct posting *post = &a->make.postings[i];

			peer_forgive(&a->peer, post->from, post->to, post->lists, post->num_lists);
		}
	}
}

static void
finish(struct play *p)
{
	struct combo *c = p->c;
	const struct side_draw *s = &c->side[SRC], *d = &c->side[DST];
	bool unequal = s->clip_pages * s->clip_page != d->clip_pages * d->clip_page, clips;
	uint32_t side, r, i;
	uint64_t bytes;

	for (i = 0; i < c->num_rooms; i++)
		for (side = 0; side < 2; side++)
			for (r = 0; r < c->side[side].n; r++)
				finish_room(p, &p->actors[side][r], c->room[i].id, side, r);
	if (c->harm == HARM_STATE_LIST)
		forgive(p);
	for (side = 0; side < 2; side++)
		for (r = 0; r < c->side[side].n; r++) {
			struct actor *a = &p->actors[side][r];

			if (peer_check(&a->peer) != 0)
				COMPLAIN(p, "wrong bytes");
			/* Of the prefill ranks only those hear of it whose rows were wanted. */
			clips = unequal && has_component(&a->peer, KVF_STATE, TAG_CLIP);
			if (c->harm == HARM_NONE && a->peer.clipped != clips &&
				(side == DST || !clips))
				COMPLAIN(p, "side=%u rank=%u clipped=%d", side, r, a->peer.clipped);
		}
	/* What arrived is right; that nothing arrived twice shows in the number of bytes. */
	bytes = engine_bytes(p);
	if (c->harm == HARM_NONE && bytes - p->v->bytes != p->expected)
		COMPLAIN(p, "copied bytes=%" PRIu64 ", should be %" PRIu64, bytes - p->v->bytes,
			p->expected);
	p->v->bytes = bytes;
}

bool
combo_play(struct combo *c, struct venue *v)
{
	struct play p = {.c = c, .v = v, .good = true};
	uint32_t side, r;

	for (side = 0; side < 2; side++) {
		p.actors[side] = calloc(c->side[side].n, sizeof(struct actor));
		if (p.actors[side] == NULL)
			abort();
	}
	if (open_all(&p)) {
		post_all(&p);
		finish(&p);
	}
	for (side = 0; side < 2; side++) {
		for (r = 0; r < c->side[side].n; r++) {
			struct actor *a = &p.actors[side][r];

			if (!a->open)
				continue;
			peer_close(&a->peer);
			combo_unmake(&a->make);
		}
		free(p.actors[side]);
	}
	if (!p.good)
		combo_print(c);
	return p.good;
}
