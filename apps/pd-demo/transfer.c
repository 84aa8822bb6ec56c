/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/fail.h"
#include "pd-demo/transfer.h"

#define EVENTS       64
#define WAIT_MS      100           /* how soon an abort by the parent is seen */
#define LATER_NS     2000000000ull /* the engine's own timeout comes first: it knows the cause */
#define FULL_WAIT_MS 5             /* a full ring empties without an event of ours */

void
demo_tell(struct demo_worker *w, const struct demo_msg *msg)
{
	if (send(w->fd, msg, sizeof(*msg), MSG_NOSIGNAL) != (ssize_t)sizeof(*msg))
		_exit(3);
}

void
demo_tell_fail(struct demo_worker *w, uint32_t room, int code, const char *text)
{
	struct demo_msg msg = {.type = DEMO_FAIL, .room = room, .code = code};

	snprintf(msg.text, sizeof(msg.text), "%s", text);
	demo_tell(w, &msg);
}

void
demo_tell_progress(struct demo_worker *w, uint64_t done, uint64_t all)
{
	struct demo_msg msg = {.type = DEMO_PROGRESS, .room = DEMO_NO_ROOM, .v = {done, all}};
	uint64_t now = app_now_ns();

	if (now < w->next_progress)
		return;
	w->next_progress = now + 100000000u;
	demo_tell(w, &msg);
}

static void
room_over(struct demo_worker *w, uint32_t r)
{
	if (w->rooms[r].over)
		return;
	w->rooms[r].over = true;
	w->num_over++;
}

/* Counts the first cause only; later ones follow from it. */
static void
room_failed(struct demo_worker *w, uint32_t r, int code, const char *text)
{
	if (w->rooms[r].failed)
		return;
	w->rooms[r].failed = true;
	demo_tell_fail(w, r, code, text);
}

static uint32_t
find_room(const struct demo_worker *w, uint64_t id)
{
	uint32_t r;

	for (r = 0; r < w->plan->num; r++) {
		if (w->plan->rooms[r].id == id)
			return r;
	}
	return DEMO_NO_ROOM;
}

static void
on_event(struct demo_worker *w, const struct kvf_event *ev)
{
	uint32_t r = find_room(w, ev->room);
	struct demo_room_state *s;
	struct kvf_err err;
	char text[200];

	if (r == DEMO_NO_ROOM || !w->rooms[r].posted) {
		snprintf(text, sizeof(text), "an event for room=%" PRIu64 ", which was not posted",
			ev->room);
		demo_tell_fail(w, DEMO_NO_ROOM, KVF_E_PROTO, text);
		return;
	}
	s = &w->rooms[r];
	if (ev->status != s->status &&
		(s->status == KVF_FAILED || s->status == KVF_SUCCESS ||
			(ev->status < s->status && ev->status != KVF_FAILED))) {
		snprintf(
			text, sizeof(text), "the status went from %d to %d", s->status, ev->status);
		room_failed(w, r, KVF_E_PROTO, text);
	}
	if (ev->status == KVF_SUCCESS && s->status != KVF_SUCCESS)
		w->last_success = app_now_ns();
	s->status = ev->status;
	s->arrived = ev->tokens;
	if (ev->status == KVF_FAILED) {
		if (kvf_room_error(w->ep, ev->room, &err) < 0)
			room_failed(w, r, err.code, err.text);
		else
			room_failed(w, r, ev->error, "Failed without a sentence");
	}
	if (ev->drained)
		s->drained = true;
	if (s->drained && (s->status == KVF_SUCCESS || s->status == KVF_FAILED))
		room_over(w, r);
}

/* Takes what there is. Returns 0 or KVF_E_ENGINE_GONE. */
static int
take_events(struct demo_worker *w)
{
	struct kvf_event events[EVENTS];
	int n, i;

	do {
		n = kvf_poll(w->ep, events, EVENTS);
		for (i = 0; i < n; i++)
			on_event(w, &events[i]);
	} while (n == EVENTS);
	return n < 0 ? n : 0;
}

void
demo_abort_room(struct demo_worker *w, uint32_t room)
{
	struct kvf_err err;
	int rc;

	if (room >= w->plan->num || w->rooms[room].over)
		return;
	if (!w->rooms[room].posted) {
		w->rooms[room].failed = true;
		room_over(w, room);
		return;
	}
	rc = kvf_abort(w->ep, w->plan->rooms[room].id, "it failed at another rank", &err);
	/* An engine that is gone shows with the next poll. */
	if (rc != 0 && rc != KVF_E_NOENT && rc != KVF_E_ENGINE_GONE)
		room_failed(w, room, rc, err.text);
}

static int
take_orders(struct demo_worker *w, struct kvf_err *err)
{
	struct demo_msg msg;
	ssize_t n;

	for (;;) {
		n = recv(w->fd, &msg, sizeof(msg), MSG_DONTWAIT);
		if (n == 0)
			return app_fail(err, KVF_E_SYS, "the parent is gone");
		if (n != (ssize_t)sizeof(msg))
			return 0;
		if (msg.type != DEMO_ABORT)
			return app_fail(
				err, KVF_E_PROTO, "message type=%u while rooms are open", msg.type);
		demo_abort_room(w, msg.room);
	}
}

static void
progress(struct demo_worker *w)
{
	uint64_t done = 0, all = 0, first, n;
	uint32_t r;

	for (r = 0; r < w->plan->num; r++) {
		const struct demo_room *room = &w->plan->rooms[r];

		first = demo_room_first(room, w->layout->role);
		n = room->total - first + 1; /* + 1: a room without tokens is work too */
		all += n;
		if (w->rooms[r].over)
			done += n;
		else if (w->rooms[r].arrived > first)
			done += w->rooms[r].arrived < room->total ? w->rooms[r].arrived - first : n;
	}
	demo_tell_progress(w, done, all);
}

/* The lists of a request; state and aux only where they belong. */
static uint32_t
make_lists(const struct demo_worker *w, uint32_t r, uint64_t page, uint64_t num_pages, bool last,
	struct kvf_pages *lists)
{
	const struct demo_grant *g = &w->store.grants[r];
	const struct shape_rank *decl = &w->layout->decl;
	uint32_t n = 0, i, tag;

	/* Token components come first; a stage without any has no such list. */
	if (decl->comp[0].cls == KVF_TOKENS)
		lists[n++] =
			(struct kvf_pages){SHAPE_LIST_TOKENS, (uint32_t)num_pages, g->pages + page};
	for (i = 0; last && i < decl->geo.num_components; i++) {
		tag = decl->comp[i].tag;
		if (decl->comp[i].cls == KVF_AUX)
			lists[n++] = (struct kvf_pages){SHAPE_LIST_AUX, 1, &g->aux};
		else if (decl->comp[i].cls == KVF_STATE)
			lists[n++] = (struct kvf_pages){
				decl->comp[i].list, g->num_state[tag], g->state[tag]};
	}
	return n;
}

/* A call that found the ring full is repeated for as long as any wait may take. */
static bool
try_again(struct demo_worker *w, int rc, uint64_t deadline)
{
	if (rc != KVF_E_AGAIN || app_now_ns() >= deadline)
		return false;
	if (take_events(w) != 0)
		return false;
	return kvf_wait(w->ep, FULL_WAIT_MS) >= 0;
}

int
demo_grant_rooms(struct demo_worker *w, struct kvf_err *err)
{
	uint64_t deadline = app_now_ns() + w->o->timeout_s * 1000000000ull;
	char group[KVF_GROUP_NAME_MAX];
	struct kvf_pages lists[KVF_MAX_LISTS];
	uint32_t r;
	int rc;

	demo_group_name(w->o, KVF_PREFILL, group);
	for (r = 0; r < w->plan->num; r++) {
		const struct demo_room *room = &w->plan->rooms[r];
		struct kvf_recv_args args = {
			.room = room->id,
			.prefill_group = group,
			.prefix_tokens = room->prefix,
			.total_tokens = room->total,
			.lists = lists,
		};

		args.num_lists = make_lists(w, r, 0, w->store.grants[r].num_pages, true, lists);
		/* Before the call: an event may come with it. */
		w->rooms[r].posted = true;
		w->rooms[r].complete = true;
		do {
			rc = kvf_recv(w->ep, &args, err);
		} while (try_again(w, rc, deadline));
		if (rc == KVF_E_ENGINE_GONE)
			return rc;
		if (rc != 0) {
			w->rooms[r].posted = false;
			room_failed(w, r, rc, err->text);
			room_over(w, r);
		}
	}
	return 0;
}

/* One chunk. Returns 0, or KVF_E_AGAIN when it was not posted. */
static int
send_chunk(struct demo_worker *w, uint32_t r, struct kvf_err *err)
{
	const struct demo_room *room = &w->plan->rooms[r];
	struct demo_room_state *s = &w->rooms[r];
	uint64_t end = demo_chunk_end(w->plan, s->next, room->total);
	struct kvf_pages lists[KVF_MAX_LISTS];
	struct kvf_send_args args = {
		.room = room->id,
		.start_token = s->next,
		.num_tokens = end - s->next,
		.total_tokens = room->total,
		.lists = lists,
	};
	bool was_posted = s->posted;
	int rc;

	args.num_lists = make_lists(w, r, demo_pages_before(w->layout, room, s->next),
		demo_pages_needed(w->layout, s->next, end, room->total), end == room->total, lists);
	if (w->first_post == 0)
		w->first_post = app_now_ns();
	s->posted = true;
	rc = kvf_send(w->ep, &args, err);
	if (rc == 0) {
		s->next = end;
		s->complete = end == room->total;
		return 0;
	}
	s->posted = was_posted;
	if (rc == KVF_E_AGAIN || rc == KVF_E_ENGINE_GONE)
		return rc;
	/* A room that failed meanwhile has an event on its way, with the cause in it. */
	if (rc == KVF_E_EXIST && was_posted) {
		s->complete = true;
		return 0;
	}
	room_failed(w, r, rc, err->text);
	s->complete = true;
	if (!was_posted)
		room_over(w, r);
	else
		kvf_abort(w->ep, room->id, "a chunk was refused", NULL);
	return 0;
}

/* The next chunk of every room that has one. *left: whether any is still to be posted. */
static int
send_round(struct demo_worker *w, bool *left, bool *full, struct kvf_err *err)
{
	uint32_t r;
	int rc;

	*left = false;
	*full = false;
	for (r = 0; r < w->plan->num; r++) {
		if (w->rooms[r].over || w->rooms[r].complete || w->rooms[r].failed)
			continue;
		rc = send_chunk(w, r, err);
		if (rc == KVF_E_ENGINE_GONE)
			return rc;
		if (rc == KVF_E_AGAIN) {
			*left = true;
			*full = true;
			return 0;
		}
		*left = *left || !w->rooms[r].complete;
	}
	return 0;
}

static int
engine_gone(struct demo_worker *w, struct kvf_err *err)
{
	uint32_t r;

	for (r = 0; r < w->plan->num; r++) {
		if (w->rooms[r].over)
			continue;
		room_failed(w, r, KVF_E_ENGINE_GONE, "kvferryd closed the connection or died");
		room_over(w, r);
	}
	return app_fail(err, KVF_E_ENGINE_GONE, "kvferryd closed the connection or died");
}

static int
gave_up(struct demo_worker *w, struct kvf_err *err)
{
	uint32_t r, open = 0;
	char text[200];

	for (r = 0; r < w->plan->num; r++) {
		if (w->rooms[r].over)
			continue;
		open++;
		snprintf(text, sizeof(text), "room=%" PRIu64 " state=%d drained=%d after %u s",
			w->plan->rooms[r].id, w->rooms[r].status, w->rooms[r].drained,
			w->o->timeout_s);
		room_failed(w, r, KVF_E_TIMEOUT, text);
	}
	return app_fail(
		err, KVF_E_TIMEOUT, "rooms=%u still open after %u s", open, w->o->timeout_s);
}

int
demo_run_rooms(struct demo_worker *w, struct kvf_err *err)
{
	uint64_t deadline = app_now_ns() + w->o->timeout_s * 1000000000ull + LATER_NS;
	bool left = w->layout->role == KVF_PREFILL, full = false;
	int rc;

	while (w->num_over < w->plan->num) {
		if (left && send_round(w, &left, &full, err) != 0)
			return engine_gone(w, err);
		if (take_events(w) != 0)
			return engine_gone(w, err);
		rc = take_orders(w, err);
		if (rc != 0)
			return rc;
		progress(w);
		if (app_now_ns() >= deadline)
			return gave_up(w, err);
		if ((left && !full) || w->num_over == w->plan->num)
			continue;
		rc = kvf_wait(w->ep, full ? FULL_WAIT_MS : WAIT_MS);
		/* Events that came before the engine went are taken first, by kvf_poll(). */
		if (rc < 0 && rc != KVF_E_ENGINE_GONE)
			return app_fail(err, rc, "kvf_wait failed: %s", kvf_error_name(rc));
	}
	return 0;
}

int
demo_release_rooms(struct demo_worker *w, struct kvf_err *err)
{
	uint64_t deadline = app_now_ns() + w->o->timeout_s * 1000000000ull;
	uint32_t r;
	int rc;

	for (r = 0; r < w->plan->num; r++) {
		if (!w->rooms[r].posted)
			continue;
		do {
			rc = kvf_room_release(w->ep, w->plan->rooms[r].id, err);
		} while (try_again(w, rc, deadline));
		if (rc != 0)
			return rc;
	}
	return 0;
}
