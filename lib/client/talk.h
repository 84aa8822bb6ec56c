/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's half of the conversation over the socket. */
#ifndef KVF_CLIENT_TALK_H
#define KVF_CLIENT_TALK_H

#include <stddef.h>
#include <stdint.h>

#include <kvferry/error.h>

#include "wire/message.h"

/* One question to kvferryd with one limit for connecting, asking and the answer. */
struct kvf_talk {
	const char *path;
	uint32_t timeout_ms;
	uint64_t deadline;
	int sock; /* -1: not connected; the caller closes it */
};

int kvf_talk_open(struct kvf_talk *t, const char *path, uint32_t timeout_ms, struct kvf_err *err);

/*
 * Sends a packet (with the descriptor `fd` unless it is -1) and waits for an answer of type `want`
 * with exactly `num_fds` descriptors. `buf` holds KVF_MSG_MAX bytes and may be the packet itself.
 * Returns the answer's length. REFUSED becomes its error. On failure no descriptor stays open.
 */
int kvf_talk_ask(const struct kvf_talk *t, const void *packet, size_t len, int fd, uint16_t want,
	void *buf, int *fds, uint32_t num_fds, struct kvf_err *err);

/* A message that is its header only: STATUS, BYE. */
struct kvf_msg_hdr kvf_plain_msg(uint16_t type);

#endif
