/* SPDX-License-Identifier: BSD-3-Clause */
/* What the user asked for. Workers get the same options as arguments, so all processes derive the
 * same plan. */
#ifndef PD_DEMO_OPTIONS_H
#define PD_DEMO_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/client.h>

#include "common/models.h"
#include "common/shape.h"

#define DEMO_MAX_ROOMS    4096u
#define DEMO_MAX_RANKS    128u /* of one side */
#define DEMO_MAX_TOKENS   (1u << 24)
#define DEMO_TAG_MAX      16u
#define DEMO_WORKER_ARGS  64u
#define DEMO_WORKER_BYTES 4096u

#define DEMO_UNSET UINT32_MAX

enum demo_memory {
	DEMO_MEMORY_AUTO = 0,  /* hugepages when there are enough, else 4 KiB, said loudly */
	DEMO_MEMORY_HUGE = 1,  /* hugepages or nothing */
	DEMO_MEMORY_SMALL = 2, /* 4 KiB outright */
};

struct demo_options {
	const char *model;
	uint32_t tokens;
	bool tokens_given;
	uint32_t page_size;   /* of a side that has none of its own */
	uint32_t layout;      /* the same */
	struct shape prefill; /* 0 (layout: DEMO_UNSET) where nothing was said, until */
	struct shape decode;  /* demo_options_model() */
	uint32_t rooms;
	uint32_t chunk;
	uint32_t layers; /* 0: all */
	bool draft;
	bool state;
	enum demo_memory memory;
	uint64_t seed;
	const char *socket; /* NULL: KVF_DEFAULT_SOCKET, or one of its own with --engine */
	const char *engine;
	const char *engine_args;
	const char *driver;
	uint32_t lcores;
	uint32_t timeout_s;
	bool json;
	bool list_models;
	bool need_hugepages;
	bool help;

	/* --worker: set by the parent only. */
	enum kvf_role worker_role; /* 0: this is the parent */
	uint32_t worker_rank;
	int worker_fd;
	char tag[DEMO_TAG_MAX]; /* makes this run's group names its own */
};

void demo_options_default(struct demo_options *o);

/* KVF_E_INVAL naming option, value and limit. Strings point into argv. */
int demo_options_parse(struct demo_options *o, int argc, char **argv, struct kvf_err *err);

/* Loads the preset, applies --layers, --draft, --state, and fills in the preset's layout where none
 * was given. */
int demo_options_model(struct demo_options *o, struct model *m, struct kvf_err *err);

/* Arguments for a worker, NULL at the end; the text lies in buf. */
struct demo_worker_args {
	char *argv[DEMO_WORKER_ARGS];
	char text[DEMO_WORKER_BYTES];
};

int demo_options_worker(const struct demo_options *o, enum kvf_role role, uint32_t rank, int fd,
	struct demo_worker_args *args, struct kvf_err *err);

static inline const struct shape *
demo_side(const struct demo_options *o, enum kvf_role role)
{
	return role == KVF_PREFILL ? &o->prefill : &o->decode;
}

static inline uint32_t
demo_ranks(const struct demo_options *o, enum kvf_role role)
{
	return shape_ranks(demo_side(o, role));
}

static inline const char *
demo_role_name(enum kvf_role role)
{
	return role == KVF_PREFILL ? "prefill" : "decode";
}

/* Group names of this run, KVF_GROUP_NAME_MAX bytes. */
void demo_group_name(const struct demo_options *o, enum kvf_role role, char *buf);

extern const char demo_usage[];

#endif
