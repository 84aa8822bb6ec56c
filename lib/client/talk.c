/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "client/talk.h"
#include "wire/deadline.h"

struct kvf_msg_hdr
kvf_plain_msg(uint16_t type)
{
	return (struct kvf_msg_hdr){
		.magic = KVF_MSG_MAGIC,
		.version = KVF_MSG_VERSION,
		.type = type,
		.length = sizeof(struct kvf_msg_hdr),
	};
}

int
kvf_talk_open(struct kvf_talk *t, const char *path, uint32_t timeout_ms, struct kvf_err *err)
{
	t->path = path;
	t->timeout_ms = timeout_ms;
	t->deadline = kvf_deadline(timeout_ms);
	t->sent = 0;
	t->sock = kvf_sock_connect(path, kvf_deadline_left(t->deadline), err);
	return t->sock < 0 ? t->sock : 0;
}

int
kvf_talk_refused(const void *packet, size_t len, struct kvf_err *err)
{
	struct kvf_msg_refused m;

	if (len != sizeof(m))
		return kvf_fail(
			err, KVF_E_PROTO, "REFUSED of length=%zu, expected=%zu", len, sizeof(m));
	memcpy(&m, packet, sizeof(m));
	m.text[sizeof(m.text) - 1] = '\0';
	/* Anything but a known error would read as success or as a length further up. */
	if (m.code == 0 || strcmp(kvf_error_name(m.code), "UNKNOWN") == 0)
		return kvf_fail(err, KVF_E_PROTO, "REFUSED with code=%d: %s", m.code, m.text);
	return kvf_fail(err, m.code, "%s", m.text);
}

/* The two outcomes that say nothing by themselves get a sentence that names the engine. */
static int
explain(const struct kvf_talk *t, int rc, struct kvf_err *err)
{
	if (rc == KVF_E_TIMEOUT || rc == KVF_E_AGAIN)
		return kvf_fail(err, KVF_E_TIMEOUT,
			"kvferryd at path=%s did not answer within timeout_ms=%u", t->path,
			t->timeout_ms);
	if (rc == 0)
		return kvf_fail(err, KVF_E_ENGINE_GONE,
			"kvferryd at path=%s closed the connection without an answer", t->path);
	return rc;
}

int
kvf_talk_say(struct kvf_talk *t, const void *packet, size_t len, int fd, struct kvf_err *err)
{
	t->sent = kvf_sock_send(
		t->sock, packet, len, &fd, fd >= 0, kvf_deadline_left(t->deadline), err);
	if (t->sent == KVF_E_AGAIN)
		t->sent = KVF_E_TIMEOUT;
	return t->sent == KVF_E_TIMEOUT ? explain(t, t->sent, err) : t->sent;
}

int
kvf_talk_hear(const struct kvf_talk *t, uint16_t want, void *buf, size_t cap, int *fds,
	uint32_t num_fds, struct kvf_err *err)
{
	uint32_t got_fds = num_fds;
	int rc, type;
	uint32_t i;

	if (t->sent == KVF_E_TIMEOUT)
		return t->sent;
	/* An engine that refuses at the door may close before it reads: sending fails then, but
	 * its reason is there to be read. */
	rc = kvf_sock_recv(t->sock, buf, cap, fds, &got_fds,
		t->sent == 0 ? kvf_deadline_left(t->deadline) : 0, t->sent == 0 ? err : NULL);
	if (t->sent != 0 && rc < 0)
		return t->sent;
	if (rc <= 0)
		return explain(t, rc, err);
	type = kvf_msg_check_hdr(buf, (size_t)rc, err);
	if (type == want && got_fds == num_fds)
		return rc;
	for (i = 0; i < got_fds; i++)
		close(fds[i]);
	if (type < 0)
		return type;
	if (type == KVF_MSG_REFUSED)
		return kvf_talk_refused(buf, (size_t)rc, err);
	return kvf_fail(err, KVF_E_PROTO,
		"kvferryd answered with type=%d and fds=%u, expected type=%u and fds=%u", type,
		got_fds, want, num_fds);
}
