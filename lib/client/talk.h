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
	uint64_t deadline; /* 0: nothing is waited for; what would have to be is KVF_E_TIMEOUT */
	int sock;          /* -1: not connected; the caller closes it */
	int sent;          /* what kvf_talk_say() returned */
};

int kvf_talk_open(struct kvf_talk *t, const char *path, uint32_t timeout_ms, struct kvf_err *err);

/*
 * Sends a packet, with the descriptor `fd` unless it is -1. Anything but 0 and KVF_E_TIMEOUT may
 * have its reason in an answer that is there already: then kvf_talk_hear() returns that, or the
 * same error.
 */
int kvf_talk_say(struct kvf_talk *t, const void *packet, size_t len, int fd, struct kvf_err *err);

/*
 * Waits for an answer of type `want` with exactly `num_fds` descriptors. Returns its length.
 * REFUSED becomes its error. On failure no descriptor stays open. The sentence of what
 * kvf_talk_say() said stays in *err.
 */
int kvf_talk_hear(const struct kvf_talk *t, uint16_t want, void *buf, size_t cap, int *fds,
	uint32_t num_fds, struct kvf_err *err);

/* The error that a REFUSED packet of `len` bytes carries; KVF_E_PROTO if it carries none. */
int kvf_talk_refused(const void *packet, size_t len, struct kvf_err *err);

/* A message that is its header only: STATUS, BYE. */
struct kvf_msg_hdr kvf_plain_msg(uint16_t type);

#endif
