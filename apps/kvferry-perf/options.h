/* SPDX-License-Identifier: BSD-3-Clause */
/* What the user asked to be measured. */
#ifndef KVFERRY_PERF_OPTIONS_H
#define KVFERRY_PERF_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/error.h>

#define PERF_MAX_PIECES    32u
#define PERF_MAX_ENDPOINTS 64u
#define PERF_MAX_WINDOW    16384u

enum perf_case {
	PERF_BULK,
	PERF_LATENCY,
	PERF_ROOMS,
	PERF_PLAN,
	PERF_COPY,
	PERF_IDLE,
	PERF_ABORT,
	PERF_CASES,
};

#define PERF_BASE_MEMCPY 1u /* the contiguous copy that is the limit */
#define PERF_BASE_ROWS   2u
#define PERF_BASE_CMA    4u

enum perf_memory {
	PERF_MEMORY_AUTO = 0, /* hugepages, else 4 KiB, said loudly */
	PERF_MEMORY_HUGE,
	PERF_MEMORY_SMALL,
};

struct perf_options {
	enum perf_case cas;
	const char *model; /* a preset, or "row:BYTES" */
	uint32_t layers;   /* 0: all that the model has */
	uint64_t tokens;
	uint32_t src_page_size;
	uint32_t dst_page_size;
	uint32_t prefill_dcp, prefill_tp;
	uint32_t decode_dcp, decode_tp;
	uint32_t interleave;
	uint32_t ranks;     /* decode ranks that take part; 0: all */
	bool contiguous;    /* pages in order instead of shuffled */
	uint32_t rooms;     /* bulk: rooms of one iteration; rooms: rooms of one iteration */
	uint32_t window;    /* rooms in flight of one pair */
	uint32_t endpoints; /* pairs */
	uint64_t pieces[PERF_MAX_PIECES];
	uint32_t num_pieces;
	uint32_t step; /* copy: 0 scattered pieces, else rows with every step-th taken */
	const char *driver;
	const char *engine_args;
	uint32_t lcores;
	const char *cpus; /* of the engine; NULL: chosen, "": not pinned */
	uint32_t num_iter;
	uint32_t warmup_iter;
	bool check;
	uint32_t baselines;
	bool busy;
	bool poll;     /* workers spin where they would sleep */
	int processes; /* latency, rooms: 1 or 2; 0: what the CPUs allow */
	uint64_t footprint;
	enum perf_memory memory;
	const char *socket;
	const char *engine;
	uint32_t timeout_s;
	uint64_t seed;
	bool json;
	bool need_hugepages;
	bool help;
};

/* KVF_E_INVAL naming option, value and limit. Strings point into argv. */
int perf_options_parse(struct perf_options *o, int argc, char **argv, struct kvf_err *err);

const char *perf_case_name(enum perf_case cas);

extern const char perf_usage[];

#endif
