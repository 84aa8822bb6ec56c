/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "client/talk.h"
#include "wire/defaults.h"

static int
ask(struct kvf_talk *t, uint8_t *buf, char **json, struct kvf_err *err)
{
	const struct kvf_msg_hdr question = kvf_plain_msg(KVF_MSG_STATUS);
	size_t text;
	int rc;

	kvf_talk_say(t, &question, sizeof(question), -1, err);
	rc = kvf_talk_hear(t, KVF_MSG_STATUS_TEXT, buf, KVF_MSG_MAX, NULL, 0, err);
	if (rc < 0)
		return rc;
	text = (size_t)rc - sizeof(struct kvf_msg_hdr);
	*json = malloc(text + 1);
	if (*json == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "no memory for a status of bytes=%zu", text);
	memcpy(*json, buf + sizeof(struct kvf_msg_hdr), text);
	(*json)[text] = '\0';
	return 0;
}

int
kvf_engine_status(const char *socket, uint32_t timeout_ms, char **json, struct kvf_err *err)
{
	struct kvf_talk talk;
	uint8_t *buf;
	int rc;

	if (json == NULL)
		return kvf_fail(err, KVF_E_INVAL, "kvf_engine_status: json is NULL");
	*json = NULL;
	rc = kvf_talk_open(&talk, socket != NULL ? socket : KVF_DEFAULT_SOCKET,
		timeout_ms != 0 ? timeout_ms : KVF_DEFAULT_STATUS_TIMEOUT_MS, err);
	if (rc != 0)
		return rc;
	buf = malloc(KVF_MSG_MAX);
	if (buf == NULL)
		rc = kvf_fail(err, KVF_E_NOMEM, "no memory for a message of bytes=%u", KVF_MSG_MAX);
	else
		rc = ask(&talk, buf, json, err);
	free(buf);
	close(talk.sock);
	return rc;
}
