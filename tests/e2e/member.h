/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank in a worker process of its own: a peer, the pages it hands out, and the rooms it has
 * posted. Either the worker runs a scenario by itself, or member_serve() lets the test drive it,
 * one command at a time.
 */
#ifndef KVF_TESTS_E2E_MEMBER_H
#define KVF_TESTS_E2E_MEMBER_H

#include "common/peer.h"
#include "e2e/harness.h"

#define MEMBER_POSTS 128u

struct member_spec {
	const char *socket;
	enum kvf_role role;
	const char *group;
	uint32_t group_size;
	uint32_t rank;
	uint64_t seed; /* of the page ids */
	struct peer_shape shape;
	struct kvf_endpoint_config limits;
};

/* A grant or a chunk. */
struct member_post {
	uint64_t room;
	uint64_t from, to;
	uint32_t slot;
	uint32_t *pages;
	struct kvf_pages lists[3];
	uint32_t num_lists;
};

struct member {
	struct peer peer;
	struct member_spec spec;
	uint32_t *order; /* page ids, shuffled */
	uint32_t next;   /* of order */
	struct member_post posts[MEMBER_POSTS];
	uint32_t num_posts;
	uint64_t delivered; /* decode: bytes that the grants so far stand for */
};

/* A rank held by a predecessor that just died is waited for. */
int member_open(struct member *m, const struct member_spec *spec, struct kvf_err *err);
int member_recv(struct member *m, uint64_t room, uint64_t prefix, uint64_t total, uint32_t slot,
	struct kvf_err *err);
int member_send(struct member *m, uint64_t room, uint64_t start, uint64_t tokens, uint64_t total,
	uint32_t slot, struct kvf_err *err);
int member_release(struct member *m, uint64_t room, struct kvf_err *err);
/* The room's pages may hold anything now. */
void member_forgive(struct member *m, uint64_t room);
/* No room is open any more: all pages are free again. */
void member_recycle(struct member *m);
void member_close(struct member *m);

/* Commands of a driven member; the answer has the code, and a sentence if it is negative. */
enum member_op {
	MEMBER_RECV = 1, /* value: room, prefix, total, slot */
	MEMBER_SEND,     /* value: room, start, tokens, total, slot */
	MEMBER_REACH,    /* value: room, status, ms. Until that status, or an end. code: status */
	MEMBER_FINISH, /* value: room, ms. Until it ended and is drained. code: status; text: cause;
			  value[1], [2], [3] of the answer: error, and when (CLOCK_MONOTONIC, us) it
			  was seen to end and to be drained */
	MEMBER_FORGIVE,   /* value: room */
	MEMBER_RELEASE,   /* value: room */
	MEMBER_CHECK,     /* value[0] of the answer: bytes that are wrong */
	MEMBER_LOSE,      /* value: ms, told. Until the engine is gone: code KVF_E_ENGINE_GONE. The
			   * endpoint says so once; told 1: perhaps it has, to an earlier command */
	MEMBER_RECONNECT, /* close the endpoint, open another on the same pool */
	MEMBER_RETURN,    /* value: ms. Until the endpoint has found an engine again; code: 0 */
	MEMBER_ABORT,     /* value: room */
	MEMBER_STATE,     /* value: state, ms. Until kvf_endpoint_state() is that; code: it */
	MEMBER_PUNCH,     /* takes all memory out of its own pool */
	MEMBER_RECYCLE,   /* no room is open: all pages are free again */
	MEMBER_LEAVE,     /* code: kvf_endpoint_close()'s; then the worker ends */
};

/* Runs in a forked worker; arg: struct member_spec. */
void member_serve(int fd, void *arg);

/* --- the test's side --- */

bool member_start(struct e2e_worker *w, const struct member_spec *spec);
#define MEMBER_ANSWER_MS 60000
/* Sends a command / waits for its answer; between them others may be asked. The code is the
 * answer's, or KVF_E_TIMEOUT / KVF_E_PEER_DIED. */
void member_ask(struct e2e_worker *w, int op, const uint64_t *values, uint32_t n);
int member_answer(struct e2e_worker *w, struct e2e_msg *answer);
#define MEMBER_ASK(w, op, ...)                                                                     \
	member_ask((w), (op), (const uint64_t[]){__VA_ARGS__},                                     \
		sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))
int member_do(
	struct e2e_worker *w, struct e2e_msg *answer, int op, const uint64_t *values, uint32_t n);
#define MEMBER_DO(w, answer, op, ...)                                                              \
	member_do((w), (answer), (op), (const uint64_t[]){__VA_ARGS__},                            \
		sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

#endif
