/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who takes part: group p (one prefill rank) sends to group d (DCP 2); next to them, q to e, whom
 * nothing of that may touch. And what a process has open.
 */
#ifndef KVF_TESTS_CAST_H
#define KVF_TESTS_CAST_H

#include "common/suite.h"
#include "e2e/member.h"

#define TOKENS 500u
#define SOON   8000 /* ms: for what takes milliseconds; the time-outs of the rooms are minutes */
#define LATE   40000

enum who {
	P,
	D0,
	D1,
	Q,
	E,
	ALL,
	ENGINE = ALL,
};

struct cast {
	struct e2e_engine engine;
	const char *const *args;
	struct member_spec spec[ALL];
	struct e2e_worker w[ALL];
};

extern const char *const cast_names[ALL + 1];

/* `wait`: the members come first and wait for the engine. */
bool cast_start(struct cast *c, const char *const *args, bool wait);
/* Everybody leaves in good order, with a pool that is as it should be. */
void cast_end(struct cast *c);
bool cast_engine_start(struct cast *c);

int cast_grant(struct cast *c, int who, uint64_t room, uint32_t slot);
int cast_send(struct cast *c, int who, uint64_t room, uint32_t slot);
void cast_release(struct cast *c, int who, uint64_t room);
/* Waits until all of `who` see the engine. */
void cast_up(struct cast *c);
/* A whole room p to d and another q to e, with pools that are right afterwards. */
void cast_works(struct cast *c, uint64_t room);

struct holds {
	int fds;
	int maps; /* of pools and rings */
	int64_t slab;
	int64_t rooms;
};

struct holds cast_holds(pid_t pid);
/* And what the engine says about itself. */
struct holds cast_engine_holds(struct cast *c);

uint64_t cast_us(void);

#endif
