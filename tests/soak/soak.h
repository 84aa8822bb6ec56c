/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The soak: a real kvferryd, 64 endpoints in 8 worker processes, thousands of rooms in flight, and
 * what can go wrong on purpose.
 *
 * The test's own process is the router: it decides what each room is, writes that into a table that
 * all processes map, and decides who is killed. Each worker looks into the table for rooms that its
 * endpoints take part in, plays its part, checks every byte, and writes down that it is done. When
 * all eight endpoints of a room are done, its place in the table gets another room, often under the
 * same id.
 *
 * Endpoints come in families of eight: one prefill group and one decode group. A family's endpoints
 * live in two or three processes.
 */
#ifndef KVF_TESTS_SOAK_H
#define KVF_TESTS_SOAK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/peer.h"

#define SOAK_FAMILIES 8u
#define SOAK_MEMBERS  8u /* of a family */
#define SOAK_PROCS    8u
#define SOAK_NS_MS    UINT64_C(1000000)

enum soak_kind {
	SOAK_NORMAL,
	SOAK_ABORT, /* the actor aborts it at some time */
	SOAK_ALONE, /* one side only comes: ends by a time-out or by the actor's abort */
	SOAK_TOTAL, /* the actor states another total */
	SOAK_KEY,   /* ... another key */
	SOAK_PAGE,  /* ... a page outside the pool */
	SOAK_DUP,   /* ... a page twice (decode) */
	SOAK_KINDS,
};

/* Why a room may fail, or may never be complete. Bit -code says that this code may be seen. */
#define SOAK_CAUSE(code) (1ull << -(code))
#define SOAK_SPOILED     (1ull << 62) /* somebody saw it fail: others may not come any more */
#define SOAK_MISSING     (1ull << 61) /* somebody will not come */
/* Perhaps not all were in one and the same room. Then its id may not be used again before the
 * engine has surely seen everybody's release, or one of the next use could join what is left. */
#define SOAK_UNEVEN (1ull << 60)

enum soak_member_state {
	SOAK_POSTED = 1,
	SOAK_DONE,
	SOAK_SKIPPED, /* done without having posted */
	SOAK_DEAD,
	SOAK_SETTLED, /* done, and the engine has surely seen the release */
};

/* One place in the table. What a room is does not change while any of its members is not done. */
struct soak_room {
	uint64_t id;
	uint64_t key;
	uint64_t nonce; /* its bytes follow from this */
	uint32_t prefix;
	uint32_t total;
	uint32_t timeout_ms; /* of bootstrapping; 0: the default */
	uint8_t kind;
	uint8_t actor;
	uint8_t second; /* aborts as well, if not the actor */
	bool prefill_only;
	bool decode_only;
	bool named; /* receivers name the prefill group */
	bool verify;
	bool swift; /* aborted as soon as data flows */
	_Atomic uint64_t causes;
	_Atomic uint64_t spoiled_ns;
	_Atomic uint64_t abort_ns;
	_Atomic uint32_t use;                  /* 0: none yet */
	_Atomic uint32_t member[SOAK_MEMBERS]; /* use << 3 | enum soak_member_state */
};

#define SOAK_COUNTERS(X)                                                                           \
	X(ROOMS, "rooms")                                                                          \
	X(NORMAL, "rooms meant to succeed")                                                        \
	X(KIND_ABORT, "rooms to be aborted")                                                       \
	X(KIND_ALONE, "rooms without the other side")                                              \
	X(KIND_TOTAL, "rooms with a wrong total")                                                  \
	X(KIND_KEY, "rooms with a wrong key")                                                      \
	X(KIND_PAGE, "rooms with a page outside the pool")                                         \
	X(KIND_DUP, "rooms with a page granted twice")                                             \
	X(SAME_ID, "rooms under a recycled id")                                                    \
	X(KILLS, "worker processes killed")                                                        \
	X(STOPS, "worker processes stopped for a while")                                           \
	X(CLOSES, "endpoints closed and opened again")                                             \
	X(ABORTS, "aborts posted")                                                                 \
	X(ORPHANS, "aborts of rooms whose other members never came")                               \
	X(POSTS, "postings")                                                                       \
	X(AGAIN, "postings that met a full ring")                                                  \
	X(LATE, "postings to rooms that had failed already")                                       \
	X(STARVED, "rooms given up for lack of pages")                                             \
	X(OPEN_WAITS, "openings that waited for a dead predecessor")                               \
	X(HUGE_WAITS, "openings that waited for hugepages")                                        \
	X(DELIVERED, "deliveries verified")                                                        \
	X(BYTES, "bytes verified")                                                                 \
	X(PARTIAL, "failed deliveries checked byte by byte")                                       \
	X(UNTOUCHED, "grants proven untouched")                                                    \
	X(SENT, "sends finished")                                                                  \
	X(SEND_FAILED, "sends failed")                                                             \
	X(SCRIBBLES, "source chunks rewritten while their room went on")                           \
	X(POOL_CHECKS, "whole pools checked")                                                      \
	X(F_ABORTED, "failures seen: ABORTED")                                                     \
	X(F_PEER_DIED, "failures seen: PEER_DIED")                                                 \
	X(F_TIMEOUT, "failures seen: TIMEOUT")                                                     \
	X(F_OTHER, "failures seen: refused postings")                                              \
	X(MISMATCHES, "MISMATCHES")                                                                \
	X(WRONG, "WRONG OUTCOMES")                                                                 \
	X(STUCK, "STUCK")

enum soak_counter {
#define X(name, text) SOAK_##name##_N,
	SOAK_COUNTERS(X)
#undef X
	SOAK_NUM_COUNTERS,
};

/* Times in logarithmic steps of an eighth. */
struct soak_hist {
	_Atomic uint64_t n;
	_Atomic uint64_t max;
	_Atomic uint64_t bucket[64 * 8];
};

enum soak_time {
	SOAK_DRAIN_SEND, /* abort posted -> drained seen, by the same endpoint */
	SOAK_DRAIN_RECV,
	SOAK_DRAIN_WATCHED, /* the same, by one that does nothing but poll */
	SOAK_TOLD,          /* abort posted -> Failed seen by another endpoint */
	SOAK_DEATH,         /* kill -9 -> Failed seen by another endpoint */
	SOAK_TIMES,
};

struct soak_family_state {
	_Atomic uint32_t closing; /* members that go away or come back just now */
};

struct soak_proc_state {
	_Atomic uint32_t ready; /* life number that has opened its endpoints */
	_Atomic uint32_t go;    /* life number that may begin */
	_Atomic uint64_t kill_ns;
	_Atomic int kill_pid;
};

/* Mapped by all processes. */
struct soak_table {
	char socket[108];
	uint64_t seed;
	uint32_t rooms; /* a multiple of SOAK_FAMILIES */
	uint32_t pace_ms;
	uint32_t patience_ms; /* before a room counts as stuck */
	uint64_t huge_page;   /* size of pages for some pools */
	_Atomic bool ramped;  /* every place is open: senders may begin */
	_Atomic bool stopping;
	_Atomic bool quit;
	_Atomic uint64_t ramped_ns;
	struct soak_family_state families[SOAK_FAMILIES];
	struct soak_proc_state procs[SOAK_PROCS];
	_Atomic uint64_t counters[SOAK_NUM_COUNTERS];
	struct soak_hist times[SOAK_TIMES];
	struct soak_room room[];
};

struct soak_family {
	uint32_t prefill, decode; /* endpoints; together SOAK_MEMBERS */
	uint32_t prefill_shards;  /* others are replicas */
	uint32_t prefill_interleave, decode_interleave;
	uint32_t prefill_page, decode_page;
	uint32_t row_bytes, layers, draft;
	uint32_t aux, state;
};

extern const struct soak_family soak_families[SOAK_FAMILIES];

/* shape.c */
uint32_t soak_proc_of(uint32_t family, uint32_t member);
bool soak_is_prefill(uint32_t family, uint32_t member);
/* Declares the member; its page count is enough for `places` rooms of ordinary size. */
void soak_declare(struct peer *p, uint32_t family, uint32_t member, uint32_t places);
/* What a place's next room is, apart from its id. */
void soak_draw(struct soak_room *r, uint32_t family, bool plain, uint64_t *rand);

uint64_t soak_mix(uint64_t x);
uint64_t soak_now(void);
void soak_count(struct soak_table *t, enum soak_counter c, uint64_t n);
void soak_time(struct soak_table *t, enum soak_time h, uint64_t ns);
/* The time below which this share of the samples lies. */
uint64_t soak_percentile(const struct soak_hist *h, double share);

/* bytes.c: what a part's pages hold */
struct soak_span {
	uint64_t nonce;
	uint64_t base;     /* the list starts with the page of the first row at or after this */
	uint64_t from, to; /* positions */
	const uint32_t *pages;
	uint32_t num_pages;
};

enum soak_want {
	SOAK_WANT_ALL,  /* every byte has arrived */
	SOAK_WANT_ANY,  /* each byte is as it was or has arrived */
	SOAK_WANT_NONE, /* nothing has arrived */
};

/* Prefill: writes the span's rows into pool and shadow. */
void soak_fill(struct peer *p, const struct soak_span *s);
/* The state and aux row of a slot. */
void soak_fill_slot(struct peer *p, uint64_t nonce, uint32_t slot);
/* Bytes that are not as they should be; the shadow then holds what is there. */
uint64_t soak_check(struct peer *p, const struct soak_span *s, uint32_t slot, enum soak_want want);
/* The same for pages and slot that nobody may have written to. */
uint64_t soak_untouched(struct peer *p, const uint32_t *pages, uint32_t n, uint32_t slot);

/* worker.c: runs in a forked process. */
struct soak_life {
	struct soak_table *table;
	uint32_t proc;
	uint32_t life; /* from 1 */
};
void soak_worker(int fd, void *arg);

/* router.c */
struct soak_run {
	const char *driver;
	const char *const *args; /* further ones of kvferryd */
	uint32_t rooms;
	uint32_t seconds;
	uint32_t pace_ms;
};
void soak_run(const struct soak_run *run);

#endif
