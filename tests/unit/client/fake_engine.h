/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stand-in for kvferryd: accepts one connection, answers as told, and lets the test play the
 * engine's side of the rings step by step, or from a thread of its own.
 */
#ifndef KVF_TESTS_FAKE_ENGINE_H
#define KVF_TESTS_FAKE_ENGINE_H

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvferry/client.h>

#include "wire/message.h"
#include "wire/ring.h"

enum fake_mode {
	FAKE_WELCOME,
	FAKE_REFUSE,       /* KVF_E_EXIST "rank=1 is taken" */
	FAKE_REFUSE_EARLY, /* the same, without reading the question */
	FAKE_REFUSE_OK,    /* REFUSED with code 0 */
	FAKE_REFUSE_SHORT,
	FAKE_SILENT,
	FAKE_HANG_UP,
	FAKE_GARBAGE,
	FAKE_OLD_VERSION,
	FAKE_OTHER_TYPE,
	FAKE_TWO_FDS,
	FAKE_SHORT_WELCOME,
	FAKE_OTHER_BYTES, /* another ring_bytes than the sizes make */
	FAKE_OTHER_SIZES, /* same bytes, other sizes inside */
	FAKE_SMALL_MEMORY,
	FAKE_BAD_MAGIC,
	FAKE_OTHER_GENERATION,
	FAKE_STATUS,
	FAKE_STATUS_LARGE,
	FAKE_STATUS_EMPTY,
};

enum fake_bye {
	FAKE_BYE_DONE,
	FAKE_BYE_NOISY, /* other packets, one with a descriptor, then BYE_DONE */
	FAKE_BYE_SILENT,
	FAKE_BYE_HANG_UP,
};

struct fake {
	char dir[32];
	char path[64];
	enum fake_mode mode;
	enum fake_bye bye;
	pthread_t thread;
	/* Before it serves one as `mode` says, this many connections are refused with this code (0:
	 * KVF_E_EXIST). */
	uint32_t refuse_first;
	int refuse_code;
	int listener;
	int stop_fd;
	int conn;
	int completion_fd;
	int doorbell_fd;
	int pool_fd; /* as received */
	struct kvf_registration *reg;
	void *mem;
	uint64_t bytes;
	struct kvf_ring_view ring;
	uint32_t sq_head;
	uint32_t cq_tail;
};

/* Listens at f->path and serves one connection. */
void fake_start(struct fake *f, enum fake_mode mode);
/* Ends the thread, closes everything; what a killed engine looks like. */
void fake_kill(struct fake *f);
/* After fake_kill(): the next engine at the same path. */
void fake_again(struct fake *f, enum fake_mode mode);
/* After fake_kill(): the same, but first it refuses some. */
void fake_again_refusing(struct fake *f, enum fake_mode mode, uint32_t refusals, int code);
/* Closes the connection only, from any thread. */
void fake_hang_up(struct fake *f);
/* Confirms a BYE by hand. */
void fake_bye_done(struct fake *f);
/* fake_kill() if need be, and removes the socket. */
void fake_end(struct fake *f);

/* A pool, a geometry that fits it, and a config for f. */
void fake_config(const struct fake *f, enum kvf_role role, struct kvf_endpoint_config *cfg);
struct kvf_endpoint *fake_open(struct fake *f, enum kvf_role role);
/* Both sides at once: starts f, opens with the sizes given. */
struct kvf_endpoint *fake_pair(struct fake *f, enum kvf_role role, uint32_t sq, uint32_t cq,
	uint64_t arena, uint32_t rooms);
/* Closes the endpoint, checks that it ends with `want`, ends f. */
void fake_finish(struct fake *f, struct kvf_endpoint *ep, int want);

uint32_t fake_waiting(const struct fake *f); /* submissions not taken */
/* Copies the k-th waiting submission; fails the test if there is none. */
void fake_peek(const struct fake *f, uint32_t k, struct kvf_sqe *sqe);
/* The ids of one list; valid until fake_take(). */
const uint32_t *fake_ids(const struct fake *f, const struct kvf_sqe *sqe, uint32_t i);
void fake_take(struct fake *f, uint32_t n);
/* Peek at the first and take it. */
void fake_next(struct fake *f, struct kvf_sqe *sqe);

/* Publishes a completion, rings if the client sleeps. text NULL: none is written. */
void fake_push(struct fake *f, const struct kvf_cqe *cqe, const char *text);
void fake_say(struct fake *f, uint64_t room, uint64_t seq, enum kvf_status status, uint8_t flags);
void fake_fail(
	struct fake *f, uint64_t room, uint64_t seq, int code, const char *text, uint8_t flags);

/* Number of rings since the last call. */
uint64_t fake_rings(struct fake *f);

int open_fds(void);
int open_maps(void); /* mappings of files, rings among them */

#endif
