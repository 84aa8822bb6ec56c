/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "client/endpoint.h"
#include "client/talk.h"
#include "wire/deadline.h"

#define REAP_MAX   256u /* completions looked at in one call: bounds its time */
#define CHECK_EACH 10u  /* ms between looks at the socket */

#define PACKETS_MAX 8u /* taken off the socket in one look: bounds its time */

static void
lose(struct kvf_endpoint *ep)
{
	uint32_t i;

	ep->state = KVF_EP_LOST;
	for (i = 0; i < ep->rooms.fresh; i++) {
		struct kvf_room *r = &ep->rooms.room[i];
		struct kvf_err why;

		if (!r->used || kvf_room_finished(r))
			continue;
		kvf_fail(&why, ep->lost_why.code, "room=%" PRIu64 ": %s", r->id, ep->lost_why.text);
		kvf_rooms_fail(&ep->rooms, r, why.code, why.text);
	}
}

void
kvf_ep_corrupt(struct kvf_endpoint *ep, const char *what, uint64_t value, uint64_t limit)
{
	if (ep->corrupt)
		return;
	ep->corrupt = true;
	if (ep->state == KVF_EP_UP) {
		kvf_fail(&ep->lost_why, KVF_E_PROTO,
			"the ring shared with kvferryd at path=%s was overwritten: %s=%" PRIu64
			", limit=%" PRIu64,
			ep->path, what, value, limit);
		lose(ep);
	}
	/* The engine takes this for the end of the endpoint, drains and closes: that is the proof
	 * that the rooms' pages are free, which the ring can no longer give. */
	shutdown(ep->sock, SHUT_WR);
}

static void
apply(struct kvf_endpoint *ep, const struct kvf_cqe *cqe, const struct kvf_cq_text *shared)
{
	struct kvf_err said = {.code = cqe->error};
	struct kvf_room *r;

	if (cqe->error != 0)
		memcpy(said.text, shared->text, sizeof(said.text) - 1);
	if ((cqe->flags & KVF_CQE_ENDPOINT) != 0) {
		if (cqe->error != 0)
			ep->engine_said = said;
		return;
	}
	if (cqe->status > KVF_SUCCESS) {
		kvf_ep_corrupt(ep, "completion status", cqe->status, KVF_SUCCESS);
		return;
	}
	r = kvf_rooms_find(&ep->rooms, cqe->room);
	if (r == NULL || r->seq != cqe->seq || r->seq <= ep->seq_base)
		return; /* of an earlier use of this id, which is released here; or never of a room
			   that an engine before this one had */
	if (cqe->status == KVF_FAILED) {
		if (cqe->error == 0)
			kvf_fail(&said, KVF_E_PROTO,
				"room=%" PRIu64 " failed and kvferryd gave no reason", r->id);
		kvf_rooms_fail(&ep->rooms, r, said.code, said.text);
	}
	kvf_rooms_update(&ep->rooms, r, cqe->status, cqe->tokens);
	if ((cqe->flags & KVF_CQE_CLIPPED) != 0)
		r->clipped = true;
	if ((cqe->flags & KVF_CQE_DRAINED) != 0)
		kvf_rooms_drain(&ep->rooms, r);
}

void
kvf_ep_reap(struct kvf_endpoint *ep)
{
	const struct kvf_ring_view *v = &ep->ring;
	uint32_t tail, n, i;

	if (ep->corrupt || !kvf_ep_connected(ep))
		return;
	tail = atomic_load_explicit(&v->hdr->cq_tail, memory_order_acquire);
	n = tail - ep->cq_head;
	if (n == 0)
		return;
	if (n > v->cq_entries) {
		kvf_ep_corrupt(ep, "completions waiting", n, v->cq_entries);
		return;
	}
	if (n > REAP_MAX)
		n = REAP_MAX;
	for (i = 0; i < n && !ep->corrupt; i++) {
		uint32_t slot = (ep->cq_head + i) & (v->cq_entries - 1);
		struct kvf_cqe cqe;

		memcpy(&cqe, &v->cq[slot], sizeof(cqe));
		apply(ep, &cqe, &v->text[slot]);
	}
	atomic_store_explicit(&v->hdr->cq_head, ep->cq_head + n, memory_order_release);
	/* An engine that found the ring full may have gone to sleep over it. */
	kvf_ring_fence();
	tail = atomic_load_explicit(&v->hdr->cq_tail, memory_order_relaxed);
	if (tail - ep->cq_head >= v->cq_entries)
		kvf_ep_ring(ep);
	ep->cq_head += n;
}

/* true: the engine's end is closed. What it said before goes to *said, if it was a reason; whatever
 * else it sent is not for this moment and dropped. */
static bool
socket_closed(int sock, struct kvf_err *said)
{
	uint8_t buf[sizeof(struct kvf_msg_refused)];
	uint32_t i;

	for (i = 0; i < PACKETS_MAX; i++) {
		int n = kvf_sock_recv(sock, buf, sizeof(buf), NULL, NULL, 0, NULL);

		if (n == KVF_E_AGAIN)
			return false;
		if (n == 0 || n == KVF_E_SYS)
			return true;
		if (n == sizeof(buf) &&
			kvf_msg_check_hdr(buf, sizeof(buf), NULL) == KVF_MSG_REFUSED)
			kvf_talk_refused(buf, sizeof(buf), said);
	}
	return false;
}

void
kvf_ep_check(struct kvf_endpoint *ep, bool now)
{
	struct kvf_err dropped = {0};
	bool closed, stopped;
	uint32_t i;

	if (!kvf_ep_connected(ep)) {
		kvf_ep_reconnect(ep, now);
		return;
	}
	if (!now) {
		uint64_t ms = kvf_clock_ms(CLOCK_MONOTONIC_COARSE);

		if (ms - ep->checked_ms < CHECK_EACH)
			return;
		ep->checked_ms = ms;
	}
	stopped = atomic_load_explicit(&ep->ring.hdr->engine_stopped, memory_order_acquire) != 0;
	closed = socket_closed(ep->sock, &dropped);
	if (!closed && (ep->state == KVF_EP_LOST || (!stopped && dropped.code == 0)))
		return;
	/* What the engine published before it went still counts: a room may have succeeded. */
	for (i = 0; i < ep->ring.cq_entries; i += REAP_MAX)
		kvf_ep_reap(ep);
	if (ep->state == KVF_EP_UP) {
		if (dropped.code != 0)
			kvf_fail(&ep->lost_why, dropped.code,
				"kvferryd at path=%s dropped this endpoint: %s: %s", ep->path,
				kvf_error_name(dropped.code), dropped.text);
		else
			kvf_fail(&ep->lost_why, KVF_E_ENGINE_GONE,
				"kvferryd at path=%s is gone%s%s", ep->path,
				ep->engine_said.code != 0 ? ", it said: " : "",
				ep->engine_said.text);
		lose(ep);
	}
	if (!closed)
		return;
	for (i = 0; i < ep->rooms.fresh; i++)
		if (ep->rooms.room[i].used)
			kvf_rooms_drain(&ep->rooms, &ep->rooms.room[i]);
	kvf_ep_down(ep);
}

int
kvf_poll(struct kvf_endpoint *ep, struct kvf_event *events, int max)
{
	struct kvf_room *r;
	int n = 0;

	if (ep == NULL || max < 0 || (events == NULL && max > 0))
		return KVF_E_INVAL;
	kvf_ep_reap(ep);
	if (!kvf_rooms_changed(&ep->rooms)) {
		/* Only silence makes one ask whether the engine lives. */
		kvf_ep_check(ep, false);
		if (!kvf_rooms_changed(&ep->rooms) && ep->poll_gone) {
			ep->poll_gone = ep->wait_gone = false;
			return KVF_E_ENGINE_GONE;
		}
	}
	while (n < max && (r = kvf_rooms_pop(&ep->rooms)) != NULL) {
		events[n++] = (struct kvf_event){
			.room = r->id,
			.tokens = r->tokens,
			.error = r->status == KVF_FAILED ? r->error : 0,
			.status = r->status,
			.drained = r->drained,
			.clipped = r->clipped,
		};
	}
	return n;
}

/* Sleeps once; returns when there may be news or the deadline passed. */
static int
sleep_once(struct kvf_endpoint *ep, uint64_t deadline)
{
	struct pollfd pfd[2] = {
		{.fd = ep->completion_fd, .events = POLLIN},
		{.fd = ep->sock, .events = POLLIN},
	};
	struct kvf_ring *hdr = ep->ring.hdr;
	int n = 0;

	atomic_store_explicit(&hdr->client_sleeping, 1, memory_order_relaxed);
	kvf_ring_fence();
	if (ep->corrupt ||
		atomic_load_explicit(&hdr->cq_tail, memory_order_relaxed) == ep->cq_head) {
		n = poll(pfd, 2, kvf_deadline_left(deadline));
		if (n < 0 && errno != EINTR)
			n = KVF_E_SYS;
		else if (n < 0)
			n = 0;
	}
	atomic_store_explicit(&hdr->client_sleeping, 0, memory_order_relaxed);
	if (n > 0 && pfd[0].revents != 0) {
		uint64_t count;

		/* Non-blocking; what it counted does not matter. */
		if (read(ep->completion_fd, &count, sizeof(count)) < 0 && errno != EAGAIN &&
			errno != EINTR)
			return KVF_E_SYS;
	}
	if (n > 0 && pfd[1].revents != 0)
		kvf_ep_check(ep, true);
	return n < 0 ? n : 0;
}

int
kvf_wait(struct kvf_endpoint *ep, int timeout_ms)
{
	uint64_t deadline;
	bool down;

	if (ep == NULL || timeout_ms < 0)
		return KVF_E_INVAL; /* no wait without a limit */
	deadline = kvf_deadline((uint64_t)timeout_ms);
	down = !kvf_ep_connected(ep);
	for (;;) {
		int left, rc;

		kvf_ep_reap(ep);
		if (!kvf_rooms_changed(&ep->rooms))
			kvf_ep_check(ep, false);
		if (kvf_rooms_changed(&ep->rooms))
			return 1;
		if (ep->wait_gone) {
			/* Many do not look at what a wait returns, and poll: those hear it there.
			 */
			ep->wait_gone = false;
			return KVF_E_ENGINE_GONE;
		}
		left = kvf_deadline_left(deadline);
		if (left == 0 || (down && ep->state == KVF_EP_UP))
			return 0;
		rc = kvf_ep_connected(ep) ? sleep_once(ep, deadline)
					  : kvf_ep_reconnect_sleep(ep, left);
		if (rc < 0)
			return rc;
	}
}

static struct kvf_room *
look_up(struct kvf_endpoint *ep, uint64_t room)
{
	if (ep == NULL)
		return NULL;
	kvf_ep_reap(ep);
	kvf_ep_check(ep, false);
	return kvf_rooms_find(&ep->rooms, room);
}

int
kvf_room_status(struct kvf_endpoint *ep, uint64_t room)
{
	const struct kvf_room *r = look_up(ep, room);

	return r != NULL ? r->status : KVF_E_NOENT;
}

int
kvf_room_drained(struct kvf_endpoint *ep, uint64_t room)
{
	const struct kvf_room *r = look_up(ep, room);

	return r != NULL ? r->drained : KVF_E_NOENT;
}

int
kvf_room_error(struct kvf_endpoint *ep, uint64_t room, struct kvf_err *err)
{
	const struct kvf_room *r = look_up(ep, room);

	if (r == NULL)
		return kvf_fail(err, KVF_E_NOENT, "room=%" PRIu64 " is not held here", room);
	if (r->status != KVF_FAILED) {
		if (err != NULL)
			memset(err, 0, sizeof(*err));
		return 0;
	}
	return kvf_fail(err, r->error, "%s", kvf_rooms_text(&ep->rooms, r));
}
