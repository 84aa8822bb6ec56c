/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registering at the engine: once when the endpoint is opened, and again and again when the engine
 * was lost, step by step and without ever waiting, from whatever the caller calls.
 *
 *	UP --(engine's end closed)--> DOWN --(REGISTER sent)--> ASKED --(WELCOME)--> UP
 *	  \                          ^   ^                        |
 *	   `--(stop, REFUSED)--> LOST    `---(refused, no answer)-'
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "client/endpoint.h"
#include "client/talk.h"
#include "wire/deadline.h"

#define RETRY_MS     50u   /* between attempts while nobody is there */
#define RETRY_MAX_MS 1000u /* and while somebody is there and refuses */

static void
close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void
kvf_ep_disconnect(struct kvf_endpoint *ep)
{
	close_fd(&ep->sock);
	close_fd(&ep->completion_fd);
	close_fd(&ep->doorbell_fd);
	if (ep->ring_mem != NULL)
		munmap(ep->ring_mem, ep->ring_bytes);
	ep->ring_mem = NULL;
	/* The sizes stay: they are what will be asked for again. */
	ep->ring.hdr = NULL;
	ep->ring.sq = NULL;
	ep->ring.cq = NULL;
	ep->ring.text = NULL;
	ep->ring.arena = NULL;
}

/* WELCOME: the ring must be exactly what was asked for, and memory that cannot shrink under us. */
static int
take_ring(
	struct kvf_endpoint *ep, const struct kvf_msg_welcome *w, int ring_fd, struct kvf_err *err)
{
	const struct kvf_msg_register *asked = ep->packet;
	uint64_t need = kvf_ring_bytes(asked->sq_entries, asked->cq_entries, asked->arena_bytes);
	struct kvf_ring_view view;
	struct stat st;
	void *mem;
	int rc;

	if (w->ring_bytes != need)
		return kvf_fail(err, KVF_E_PROTO,
			"kvferryd made a ring of bytes=%" PRIu64 ", expected=%" PRIu64,
			w->ring_bytes, need);
	if (fstat(ring_fd, &st) != 0)
		return kvf_fail_errno(err, "fstat of the ring's memory");
	if (st.st_size < 0 || (uint64_t)st.st_size < need)
		return kvf_fail(err, KVF_E_PROTO,
			"the ring's memory has bytes=%lld, expected=%" PRIu64,
			(long long)st.st_size, need);
	mem = mmap(NULL, need, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_fd, 0);
	if (mem == MAP_FAILED)
		return kvf_fail_errno(err, "mmap of a ring of bytes=%" PRIu64, need);
	ep->ring_mem = mem;
	ep->ring_bytes = need;
	rc = kvf_ring_attach(mem, need, &view, err);
	if (rc != 0)
		return rc;
	if (view.sq_entries != asked->sq_entries || view.cq_entries != asked->cq_entries ||
		view.arena_bytes != asked->arena_bytes)
		return kvf_fail(err, KVF_E_PROTO,
			"kvferryd made a ring of sq_entries=%u cq_entries=%u arena_bytes=%" PRIu64
			", asked for %u, %u and %" PRIu64,
			view.sq_entries, view.cq_entries, view.arena_bytes, asked->sq_entries,
			asked->cq_entries, asked->arena_bytes);
	if (view.hdr->endpoint_generation != w->endpoint_generation)
		return kvf_fail(err, KVF_E_PROTO,
			"the ring is of endpoint_generation=%" PRIu64 ", WELCOME of %" PRIu64,
			view.hdr->endpoint_generation, w->endpoint_generation);
	ep->ring = view;
	return 0;
}

/* Nothing here may ever block on an eventfd, whatever the engine created it with. */
static int
set_nonblock(int fd, struct kvf_err *err)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
		return kvf_fail_errno(err, "O_NONBLOCK on an eventfd of kvferryd");
	return 0;
}

/* Connects and registers, within timeout_ms; 0: without waiting. */
static int
ask(struct kvf_endpoint *ep, struct kvf_talk *t, uint32_t timeout_ms, struct kvf_err *err)
{
	int rc = kvf_talk_open(t, ep->path, timeout_ms, err);

	if (rc != 0)
		return rc;
	ep->sock = t->sock;
	rc = kvf_talk_say(t, ep->packet, ep->packet_len, kvf_pool_fd(ep->pool), err);
	return rc == KVF_E_TIMEOUT ? rc : 0; /* any other is for answer() to explain */
}

/* Takes the answer; the endpoint is up when this returns 0. */
static int
answer(struct kvf_endpoint *ep, const struct kvf_talk *t, struct kvf_err *err)
{
	uint8_t buf[sizeof(struct kvf_msg_refused)];
	int fds[KVF_MSG_MAX_FDS];
	struct kvf_msg_welcome w;
	int rc;

	rc = kvf_talk_hear(t, KVF_MSG_WELCOME, buf, sizeof(buf), fds, KVF_MSG_MAX_FDS, err);
	if (rc < 0)
		return rc;
	ep->completion_fd = fds[1];
	ep->doorbell_fd = fds[2];
	if (rc == sizeof(w)) {
		memcpy(&w, buf, sizeof(w));
		rc = take_ring(ep, &w, fds[0], err);
	} else {
		rc = kvf_fail(
			err, KVF_E_PROTO, "WELCOME of length=%d, expected=%zu", rc, sizeof(w));
	}
	close(fds[0]);
	if (rc == 0)
		rc = set_nonblock(ep->completion_fd, err);
	if (rc == 0)
		rc = set_nonblock(ep->doorbell_fd, err);
	if (rc != 0)
		return rc;
	ep->sq_tail = ep->sq_done = 0;
	ep->arena_head = ep->arena_tail = 0;
	ep->cq_head = 0;
	ep->corrupt = false;
	ep->engine_said = (struct kvf_err){0};
	ep->attempts = 0;
	ep->pause_ms = RETRY_MS;
	ep->state = KVF_EP_UP;
	return 0;
}

/* Refusals that the same question may not meet a moment later. */
static bool
heals(int code)
{
	switch (code) {
	case KVF_E_SYS:         /* nobody listens yet */
	case KVF_E_TIMEOUT:     /* it is slow or stopped */
	case KVF_E_ENGINE_GONE: /* it ended, or is about to */
	case KVF_E_EXIST:       /* the rank's last holder is not buried yet */
	case KVF_E_QUOTA:
	case KVF_E_NOMEM:
		return true;
	default:
		return false;
	}
}

int
kvf_ep_connect(struct kvf_endpoint *ep, bool wait, struct kvf_err *err)
{
	uint64_t deadline = kvf_deadline(ep->open_timeout_ms);

	for (;;) {
		int left = kvf_deadline_left(deadline);
		struct kvf_talk talk;
		struct timespec pause;
		int rc;

		rc = ask(ep, &talk, (uint32_t)left, err);
		if (rc == 0)
			rc = answer(ep, &talk, err);
		if (rc == 0)
			return 0;
		kvf_ep_disconnect(ep);
		left = kvf_deadline_left(deadline);
		if (!wait || !heals(rc) || left == 0)
			return rc;
		if (left > (int)RETRY_MS)
			left = RETRY_MS;
		pause = (struct timespec){.tv_nsec = left * 1000000L};
		nanosleep(&pause, NULL);
	}
}

void
kvf_ep_down(struct kvf_endpoint *ep)
{
	kvf_ep_disconnect(ep);
	ep->state = KVF_EP_DOWN;
	ep->poll_gone = ep->wait_gone = true;
	ep->seq_base = ep->last_seq;
	ep->attempts = 0;
	ep->pause_ms = RETRY_MS;
	ep->retry_ms = 0;
	ep->refusal = (struct kvf_err){0};
}

static void
give_up(struct kvf_endpoint *ep, uint64_t now, const struct kvf_err *why)
{
	kvf_ep_disconnect(ep);
	ep->state = KVF_EP_DOWN;
	ep->attempts++;
	ep->refusal = *why;
	/* Who is not there costs next to nothing to ask; who refuses has work with it. */
	if (why->code == KVF_E_SYS || why->code == KVF_E_ENGINE_GONE)
		ep->pause_ms = RETRY_MS;
	else if (!heals(why->code) || 2 * ep->pause_ms > RETRY_MAX_MS)
		ep->pause_ms = RETRY_MAX_MS;
	else
		ep->pause_ms *= 2;
	ep->retry_ms = now + ep->pause_ms;
}

void
kvf_ep_reconnect(struct kvf_endpoint *ep, bool now)
{
	uint64_t ms = kvf_clock_ms(CLOCK_MONOTONIC_COARSE);
	struct kvf_talk talk = {.path = ep->path, .timeout_ms = ep->open_timeout_ms};
	struct kvf_err why;
	int rc;

	if (ep->state == KVF_EP_DOWN) {
		if (ms < ep->retry_ms)
			return;
		if (ask(ep, &talk, 0, &why) != 0) {
			give_up(ep, ms, &why);
			return;
		}
		ep->state = KVF_EP_ASKED;
		ep->answer_ms = ms + ep->open_timeout_ms;
		if (talk.sent == 0)
			return;
	} else if (!now && ms == ep->checked_ms) {
		return; /* a caller that spins does not ask the kernel each time */
	}
	ep->checked_ms = ms;
	talk.sock = ep->sock;
	talk.deadline = 0;
	rc = answer(ep, &talk, &why);
	if (rc == 0 || (rc == KVF_E_TIMEOUT && ms < ep->answer_ms))
		return;
	give_up(ep, ms, &why);
}

int
kvf_ep_reconnect_sleep(struct kvf_endpoint *ep, int left_ms)
{
	struct pollfd pfd = {.fd = ep->sock, .events = POLLIN};
	uint64_t ms = kvf_clock_ms(CLOCK_MONOTONIC_COARSE);
	uint64_t next = ep->state == KVF_EP_ASKED ? ep->answer_ms : ep->retry_ms;
	/* A coarse clock stands still for up to 10 ms: one more, or this would spin. */
	uint64_t nap = next > ms ? next - ms + 1 : 1;
	int n;

	if (nap < (uint64_t)left_ms)
		left_ms = (int)nap;
	n = poll(&pfd, ep->state == KVF_EP_ASKED, left_ms);
	if (n < 0 && errno != EINTR)
		return KVF_E_SYS;
	kvf_ep_reconnect(ep, n > 0);
	return 0;
}

int
kvf_ep_gone(const struct kvf_endpoint *ep, struct kvf_err *err)
{
	if (ep->state == KVF_EP_LOST)
		return kvf_fail(err, KVF_E_ENGINE_GONE, "%s", ep->lost_why.text);
	return kvf_fail(err, KVF_E_ENGINE_GONE, "%.130s; reconnecting, attempts=%u%s%s",
		ep->lost_why.text, ep->attempts, ep->refusal.code != 0 ? ", last: " : "",
		ep->refusal.text);
}

int
kvf_endpoint_state(struct kvf_endpoint *ep, struct kvf_err *err)
{
	if (ep == NULL)
		return kvf_fail(err, KVF_E_INVAL, "kvf_endpoint_state: ep is NULL");
	kvf_ep_check(ep, false);
	if (ep->state == KVF_EP_UP) {
		if (err != NULL)
			memset(err, 0, sizeof(*err));
		return 1;
	}
	kvf_ep_gone(ep, err);
	if (ep->state == KVF_EP_LOST || ep->refusal.code == 0 || heals(ep->refusal.code))
		return 0;
	if (err != NULL)
		err->code = ep->refusal.code;
	return ep->refusal.code;
}
