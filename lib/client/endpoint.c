/* SPDX-License-Identifier: BSD-3-Clause */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "client/endpoint.h"
#include "client/talk.h"
#include "wire/deadline.h"
#include "wire/defaults.h"

#define CLOSE_SLICE_MS 10

static void
destroy(struct kvf_endpoint *ep)
{
	kvf_ep_disconnect(ep);
	kvf_rooms_fini(&ep->rooms);
	free(ep->sqe_arena_end);
	free(ep->packet);
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
	ep->state = KVF_EP_DOWN;
	ep->pool = cfg->pool;
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

int
kvf_endpoint_open(
	const struct kvf_endpoint_config *config, struct kvf_endpoint **out, struct kvf_err *err)
{
	struct kvf_endpoint_config cfg;
	struct kvf_endpoint *ep;
	struct kvf_err why = {0};
	uint64_t pool_length;
	void *buf;
	int len, rc;

	if (out != NULL)
		*out = NULL;
	if (out == NULL || config == NULL)
		return kvf_fail(err, KVF_E_INVAL, "kvf_endpoint_open: cfg or ep is NULL");
	cfg = *config;
	kvf_endpoint_config_fill(&cfg);
	if (cfg.pool == NULL)
		return kvf_fail(err, KVF_E_INVAL, "pool=NULL");
	if ((cfg.flags & ~KVF_ENDPOINT_WAIT_ENGINE) != 0)
		return kvf_fail(err, KVF_E_INVAL, "flags=%#x, known flags=%#x", cfg.flags,
			KVF_ENDPOINT_WAIT_ENGINE);
	pool_length = kvf_pool_length(cfg.pool);
	buf = malloc(KVF_MSG_MAX);
	if (buf == NULL)
		return kvf_fail(
			err, KVF_E_NOMEM, "no memory for a message of bytes=%u", KVF_MSG_MAX);
	len = kvf_msg_pack_register(&cfg, pool_length, buf, err);
	rc = len < 0 ? len : kvf_geometry_check(cfg.geometry, pool_length, err);
	if (rc != 0) {
		free(buf);
		return rc;
	}
	ep = create(&cfg, &why);
	if (ep == NULL) {
		free(buf);
	} else {
		/* Kept, to say the same to the next engine; most are far smaller than they may be.
		 */
		ep->packet = realloc(buf, (size_t)len);
		if (ep->packet == NULL)
			ep->packet = buf;
		ep->packet_len = (size_t)len;
		rc = kvf_ep_connect(ep, (cfg.flags & KVF_ENDPOINT_WAIT_ENGINE) != 0, &why);
		if (rc == 0) {
			*out = ep;
			return 0;
		}
		destroy(ep);
	}
	if (err != NULL)
		*err = why;
	return why.code;
}

/* Waits for BYE_DONE. Keeps the completion ring moving, or the engine could not finish. */
static int
say_bye(struct kvf_endpoint *ep)
{
	uint64_t deadline = kvf_deadline(ep->open_timeout_ms);
	struct pollfd pfd = {.fd = ep->sock, .events = POLLIN};
	const struct kvf_msg_hdr bye = kvf_plain_msg(KVF_MSG_BYE);
	uint8_t buf[sizeof(struct kvf_msg_refused)];

	if (!kvf_ep_connected(ep))
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
