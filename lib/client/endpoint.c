/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "client/endpoint.h"
#include "client/talk.h"
#include "wire/deadline.h"
#include "wire/defaults.h"

#define CLOSE_SLICE_MS 10

static void
destroy(struct kvf_endpoint *ep)
{
	if (ep->sock >= 0)
		close(ep->sock);
	if (ep->completion_fd >= 0)
		close(ep->completion_fd);
	if (ep->doorbell_fd >= 0)
		close(ep->doorbell_fd);
	if (ep->ring_mem != NULL)
		munmap(ep->ring_mem, ep->ring_bytes);
	kvf_rooms_fini(&ep->rooms);
	free(ep->sqe_arena_end);
	free(ep);
}

static struct kvf_endpoint *
create(const struct kvf_endpoint_config *cfg, struct kvf_err *err)
{
	struct kvf_endpoint *ep;
	size_t len = strlen(cfg->socket);

	if (len == 0 || len >= sizeof(ep->path)) {
		kvf_fail(err, KVF_E_INVAL, "socket path of length=%zu, limit=1..%zu", len,
			sizeof(ep->path) - 1);
		return NULL;
	}
	ep = calloc(1, sizeof(*ep));
	if (ep == NULL) {
		kvf_fail(err, KVF_E_NOMEM, "no memory for an endpoint");
		return NULL;
	}
	ep->sock = -1;
	ep->completion_fd = -1;
	ep->doorbell_fd = -1;
	ep->role = cfg->role;
	ep->bootstrap_timeout_ms = cfg->bootstrap_timeout_ms;
	ep->waiting_timeout_ms = cfg->waiting_timeout_ms;
	ep->open_timeout_ms = cfg->open_timeout_ms;
	memcpy(ep->path, cfg->socket, len);
	ep->sqe_arena_end = calloc(cfg->sq_entries, sizeof(*ep->sqe_arena_end));
	if (ep->sqe_arena_end == NULL)
		kvf_fail(err, KVF_E_NOMEM, "no memory for sq_entries=%u", cfg->sq_entries);
	if (ep->sqe_arena_end == NULL || kvf_rooms_init(&ep->rooms, cfg->max_rooms, err) != 0) {
		destroy(ep);
		return NULL;
	}
	return ep;
}

/* WELCOME: the ring must be exactly what was asked for, and memory that cannot shrink under us. */
static int
take_ring(struct kvf_endpoint *ep, const struct kvf_endpoint_config *cfg,
	const struct kvf_msg_welcome *w, int ring_fd, struct kvf_err *err)
{
	uint64_t need = kvf_ring_bytes(cfg->sq_entries, cfg->cq_entries, cfg->arena_bytes);
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
	rc = kvf_ring_attach(mem, need, &ep->ring, err);
	if (rc != 0)
		return rc;
	if (ep->ring.sq_entries != cfg->sq_entries || ep->ring.cq_entries != cfg->cq_entries ||
		ep->ring.arena_bytes != cfg->arena_bytes)
		return kvf_fail(err, KVF_E_PROTO,
			"kvferryd made a ring of sq_entries=%u cq_entries=%u arena_bytes=%" PRIu64
			", asked for %u, %u and %" PRIu64,
			ep->ring.sq_entries, ep->ring.cq_entries, ep->ring.arena_bytes,
			cfg->sq_entries, cfg->cq_entries, cfg->arena_bytes);
	if (ep->ring.hdr->endpoint_generation != w->endpoint_generation)
		return kvf_fail(err, KVF_E_PROTO,
			"the ring is of endpoint_generation=%" PRIu64 ", WELCOME of %" PRIu64,
			ep->ring.hdr->endpoint_generation, w->endpoint_generation);
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

/* `buf` holds the REGISTER packet of `len` bytes and then the answer. */
static int
handshake(struct kvf_endpoint *ep, const struct kvf_endpoint_config *cfg, uint8_t *buf, size_t len,
	struct kvf_err *err)
{
	int fds[KVF_MSG_MAX_FDS];
	struct kvf_msg_welcome w;
	struct kvf_talk talk;
	int rc;

	rc = kvf_talk_open(&talk, ep->path, cfg->open_timeout_ms, err);
	if (rc != 0)
		return rc;
	ep->sock = talk.sock;
	rc = kvf_talk_ask(&talk, buf, len, kvf_pool_fd(cfg->pool), KVF_MSG_WELCOME, buf, fds,
		KVF_MSG_MAX_FDS, err);
	if (rc < 0)
		return rc;
	ep->completion_fd = fds[1];
	ep->doorbell_fd = fds[2];
	if (rc == sizeof(w)) {
		memcpy(&w, buf, sizeof(w));
		rc = take_ring(ep, cfg, &w, fds[0], err);
	} else {
		rc = kvf_fail(
			err, KVF_E_PROTO, "WELCOME of length=%d, expected=%zu", rc, sizeof(w));
	}
	close(fds[0]);
	if (rc == 0)
		rc = set_nonblock(ep->completion_fd, err);
	if (rc == 0)
		rc = set_nonblock(ep->doorbell_fd, err);
	return rc;
}

int
kvf_endpoint_open(
	const struct kvf_endpoint_config *config, struct kvf_endpoint **out, struct kvf_err *err)
{
	struct kvf_endpoint_config cfg;
	struct kvf_endpoint *ep;
	struct kvf_err why = {0};
	uint64_t pool_length;
	uint8_t *buf;
	int len, rc;

	if (out != NULL)
		*out = NULL;
	if (out == NULL || config == NULL)
		return kvf_fail(err, KVF_E_INVAL, "kvf_endpoint_open: cfg or ep is NULL");
	cfg = *config;
	kvf_endpoint_config_fill(&cfg);
	if (cfg.pool == NULL)
		return kvf_fail(err, KVF_E_INVAL, "pool=NULL");
	pool_length = kvf_pool_length(cfg.pool);
	buf = malloc(KVF_MSG_MAX);
	if (buf == NULL)
		return kvf_fail(
			err, KVF_E_NOMEM, "no memory for a message of bytes=%u", KVF_MSG_MAX);
	len = kvf_msg_pack_register(&cfg, pool_length, buf, err);
	rc = len < 0 ? len : kvf_geometry_check(cfg.geometry, pool_length, err);
	if (rc == 0) {
		ep = create(&cfg, &why);
		rc = ep == NULL ? why.code : handshake(ep, &cfg, buf, (size_t)len, &why);
		if (rc == 0)
			*out = ep;
		else if (ep != NULL)
			destroy(ep);
		if (rc != 0 && err != NULL)
			*err = why;
	}
	free(buf);
	return rc;
}

/* Waits for BYE_DONE. Keeps the completion ring moving, or the engine could not finish. */
static int
say_bye(struct kvf_endpoint *ep)
{
	uint64_t deadline = kvf_deadline(ep->open_timeout_ms);
	struct pollfd pfd = {.fd = ep->sock, .events = POLLIN};
	const struct kvf_msg_hdr bye = kvf_plain_msg(KVF_MSG_BYE);
	uint8_t buf[sizeof(struct kvf_msg_refused)];

	if (ep->closed)
		return KVF_E_ENGINE_GONE;
	/* Fails when the engine's end is closed, which the receive below then tells. */
	(void)kvf_sock_send(
		ep->sock, &bye, sizeof(bye), NULL, 0, kvf_deadline_left(deadline), NULL);
	for (;;) {
		int left = kvf_deadline_left(deadline);
		int rc;

		rc = kvf_sock_recv(ep->sock, buf, sizeof(buf), NULL, NULL, 0, NULL);
		if (rc == 0)
			return KVF_E_ENGINE_GONE;
		if (rc > 0 && kvf_msg_check_hdr(buf, (size_t)rc, NULL) == KVF_MSG_BYE_DONE)
			return 0;
		if (rc == KVF_E_SYS)
			return KVF_E_ENGINE_GONE;
		if (left == 0)
			return KVF_E_TIMEOUT;
		kvf_ep_reap(ep);
		if (rc == KVF_E_AGAIN)
			(void)poll(&pfd, 1, left < CLOSE_SLICE_MS ? left : CLOSE_SLICE_MS);
	}
}

int
kvf_endpoint_close(struct kvf_endpoint *ep)
{
	int rc;

	if (ep == NULL)
		return 0;
	rc = say_bye(ep);
	destroy(ep);
	return rc;
}
