/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/endpoint.h"
#include "common/suite.h"
#include "unit/client/fake_engine.h"
#include "wire/deadline.h"

static void
test_open(void)
{
	int before = open_fds();
	struct kvf_endpoint_config cfg;
	struct kvf_endpoint *ep;
	struct stat ours, theirs;
	struct kvf_err err;
	struct fake f;

	fake_start(&f, FAKE_WELCOME);
	fake_config(&f, KVF_DECODE, &cfg);
	CHECK_EQ(kvf_endpoint_open(&cfg, &ep, &err), 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(ep);
	CHECK_EQ(f.reg->msg.role, KVF_DECODE);
	CHECK_EQ(f.reg->msg.rank, 1);
	CHECK_EQ(f.reg->msg.group_size, 2);
	CHECK(strcmp(f.reg->msg.group, "group-a") == 0);
	CHECK_EQ(f.reg->msg.pool_length, kvf_pool_length(cfg.pool));
	CHECK_EQ(f.reg->geometry.components[0].num_entries, 2);
	CHECK_EQ(f.reg->geometry.components[0].entries[1].offset, 65536);
	/* The documented defaults, on both sides. */
	CHECK_EQ(f.reg->msg.sq_entries, 1024);
	CHECK_EQ(ep->ring.sq_entries, 1024);
	CHECK_EQ(ep->ring.cq_entries, 4096);
	CHECK_EQ(ep->ring.arena_bytes, 8 << 20);
	CHECK_EQ(ep->rooms.max, 16384);
	/* The pool's fd arrived, and nothing is inherited by a program that the worker starts. */
	CHECK_EQ(fstat(kvf_pool_fd(cfg.pool), &ours), 0);
	CHECK_EQ(fstat(f.pool_fd, &theirs), 0);
	CHECK(ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev);
	CHECK((fcntl(ep->sock, F_GETFD) & FD_CLOEXEC) != 0);
	CHECK((fcntl(ep->completion_fd, F_GETFD) & FD_CLOEXEC) != 0);
	CHECK((fcntl(ep->doorbell_fd, F_GETFD) & FD_CLOEXEC) != 0);
	fake_finish(&f, ep, 0);
	CHECK_EQ(open_fds(), before);
}

static void
test_refusals(void)
{
	static const struct {
		enum fake_mode mode;
		int code;
		const char *part;
	} t[] = {
		{FAKE_REFUSE, KVF_E_EXIST, "rank=1 is taken"},
		{FAKE_REFUSE_EARLY, KVF_E_EXIST, "rank=1 is taken"},
		{FAKE_REFUSE_OK, KVF_E_PROTO, "code=0"},
		{FAKE_REFUSE_SHORT, KVF_E_PROTO, "length=268, expected=272"},
		{FAKE_HANG_UP, KVF_E_ENGINE_GONE, "closed the connection without an answer"},
		{FAKE_GARBAGE, KVF_E_PROTO, "magic="},
		{FAKE_OLD_VERSION, KVF_E_VERSION, "version=2"},
		{FAKE_OTHER_TYPE, KVF_E_PROTO, "type=5"},
		{FAKE_TWO_FDS, KVF_E_PROTO, "fds=2"},
		{FAKE_SHORT_WELCOME, KVF_E_PROTO, "length=40, expected=48"},
		{FAKE_OTHER_BYTES, KVF_E_PROTO, "expected="},
		{FAKE_OTHER_SIZES, KVF_E_PROTO, "sq_entries=64"},
		{FAKE_SMALL_MEMORY, KVF_E_PROTO, "the ring's memory has bytes="},
		{FAKE_BAD_MAGIC, KVF_E_PROTO, "ring magic="},
		{FAKE_OTHER_GENERATION, KVF_E_PROTO, "endpoint_generation=8"},
	};
	int before = open_fds();
	size_t i;

	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct kvf_endpoint_config cfg;
		struct kvf_endpoint *ep = (void *)&cfg;
		struct kvf_err err = {0};
		struct fake f;

		fake_start(&f, t[i].mode);
		fake_config(&f, KVF_PREFILL, &cfg);
		cfg.sq_entries = 128;
		cfg.cq_entries = 16;
		cfg.arena_bytes = 16384;
		CHECK_EQ(kvf_endpoint_open(&cfg, &ep, &err), t[i].code);
		CHECK_EQ(err.code, t[i].code);
		CHECK_STR_HAS(err.text, t[i].part);
		CHECK(ep == NULL);
		fake_end(&f);
		CHECK_EQ(open_fds(), before);
	}
}

static void
test_silent_engine(void)
{
	struct kvf_endpoint_config cfg;
	struct kvf_endpoint *ep;
	struct kvf_err err;
	struct fake f;
	uint64_t t0;

	fake_start(&f, FAKE_SILENT);
	fake_config(&f, KVF_PREFILL, &cfg);
	cfg.open_timeout_ms = 60;
	t0 = kvf_clock_ms(CLOCK_MONOTONIC);
	CHECK_EQ(kvf_endpoint_open(&cfg, &ep, &err), KVF_E_TIMEOUT);
	CHECK(kvf_clock_ms(CLOCK_MONOTONIC) - t0 >= 60);
	CHECK_STR_HAS(err.text, "did not answer within timeout_ms=60");
	CHECK_STR_HAS(err.text, f.path);
	fake_end(&f);
}

static void
test_no_engine(void)
{
	struct kvf_endpoint_config cfg;
	struct kvf_endpoint *ep;
	struct kvf_err err;
	struct fake f;

	fake_start(&f, FAKE_WELCOME);
	fake_config(&f, KVF_PREFILL, &cfg);
	fake_kill(&f);
	CHECK_EQ(kvf_endpoint_open(&cfg, &ep, &err), KVF_E_SYS);
	CHECK_STR_HAS(err.text, "no kvferryd listens at path=");
	CHECK_STR_HAS(err.text, f.path);
	fake_end(&f);
}

/* Bad arguments are refused before anybody is asked: nobody listens here. */
#define BAD(set, want, part)                                                                       \
	do {                                                                                       \
		struct kvf_endpoint_config cfg;                                                    \
		struct kvf_endpoint *ep = NULL;                                                    \
		struct kvf_err err = {0};                                                          \
		fake_config(&f, KVF_PREFILL, &cfg);                                                \
		set;                                                                               \
		CHECK_EQ(kvf_endpoint_open(&cfg, &ep, &err), want);                                \
		CHECK_STR_HAS(err.text, part);                                                     \
		CHECK(ep == NULL);                                                                 \
	} while (0)

static void
test_bad_config(void)
{
	static struct kvf_component far;
	static struct kvf_geometry far_geo = {.num_components = 1, .components = &far};
	struct kvf_endpoint_config good;
	struct kvf_endpoint *out;
	struct kvf_err err;
	char longpath[200];
	struct fake f;

	memset(longpath, 'p', sizeof(longpath));
	longpath[150] = '\0';
	fake_start(&f, FAKE_WELCOME);
	fake_kill(&f);
	CHECK_EQ(kvf_endpoint_open(NULL, &out, &err), KVF_E_INVAL);
	CHECK(out == NULL);
	fake_config(&f, KVF_PREFILL, &good);
	CHECK_EQ(kvf_endpoint_open(&good, NULL, &err), KVF_E_INVAL);
	BAD(cfg.role = 9, KVF_E_INVAL, "role=9");
	BAD(cfg.group = NULL, KVF_E_INVAL, "group=NULL");
	BAD(cfg.group = "", KVF_E_INVAL, "length=0");
	BAD(cfg.group = "an-endless-name-of-a-group-of-workers", KVF_E_INVAL, "limit=31");
	BAD(cfg.group_size = 1, KVF_E_INVAL, "rank=1 must be below group_size=1");
	BAD(cfg.pool = NULL, KVF_E_INVAL, "pool=NULL");
	BAD(cfg.geometry = NULL, KVF_E_INVAL, "geometry=NULL");
	BAD(cfg.sq_entries = 100, KVF_E_INVAL, "sq_entries=100 is not a power of two");
	BAD(cfg.cq_entries = 1u << 20, KVF_E_INVAL, "cq_entries=1048576");
	BAD(cfg.arena_bytes = 5000, KVF_E_INVAL, "arena_bytes=5000");
	BAD(cfg.max_rooms = UINT32_MAX, KVF_E_INVAL, "max_rooms=4294967295, limit=1..1048576");
	BAD(cfg.socket = "", KVF_E_INVAL, "length=0");
	BAD(cfg.socket = longpath, KVF_E_INVAL, "length=150, limit=1..107");
	/* A page past the pool's end. */
	far = good.geometry->components[0];
	far.num_pages = 4096;
	BAD(cfg.geometry = &far_geo, KVF_E_GEOMETRY, "");
	fake_end(&f);
}

static void
test_close(void)
{
	static const struct {
		enum fake_bye bye;
		int want;
	} t[] = {
		{FAKE_BYE_DONE, 0},
		{FAKE_BYE_NOISY, 0},
		{FAKE_BYE_SILENT, KVF_E_TIMEOUT},
		{FAKE_BYE_HANG_UP, KVF_E_ENGINE_GONE},
	};
	int before = open_fds();
	size_t i;

	CHECK_EQ(kvf_endpoint_close(NULL), 0);
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct kvf_endpoint *ep;
		struct fake f;
		uint64_t t0;

		ep = fake_open(&f, KVF_PREFILL);
		f.bye = t[i].bye;
		ep->open_timeout_ms = t[i].bye == FAKE_BYE_SILENT ? 60 : 10000;
		t0 = kvf_clock_ms(CLOCK_MONOTONIC);
		CHECK_EQ(kvf_endpoint_close(ep), t[i].want);
		if (t[i].bye == FAKE_BYE_SILENT)
			CHECK(kvf_clock_ms(CLOCK_MONOTONIC) - t0 >= 60);
		fake_end(&f);
		CHECK_EQ(open_fds(), before);
	}
}

static void
test_close_after_death(void)
{
	int before = open_fds();
	struct kvf_endpoint *ep;
	struct fake f;

	ep = fake_open(&f, KVF_PREFILL);
	fake_kill(&f);
	fake_finish(&f, ep, KVF_E_ENGINE_GONE);
	CHECK_EQ(open_fds(), before);
}

static void *
flood(void *arg)
{
	struct fake *f = arg;
	int i;

	for (i = 0; i < 200; i++)
		fake_say(f, 1, 1, KVF_TRANSFERRING, 0);
	fake_bye_done(f);
	return NULL;
}

/* An engine that still has more to say than the ring holds can say it while the client closes. */
static void
test_close_keeps_reading(void)
{
	struct kvf_endpoint *ep;
	pthread_t th;
	struct fake f;

	ep = fake_open(&f, KVF_PREFILL); /* 16 completions fit */
	f.bye = FAKE_BYE_SILENT;
	ep->open_timeout_ms = 20000;
	CU_ASSERT_EQUAL_FATAL(pthread_create(&th, NULL, flood, &f), 0);
	CHECK_EQ(kvf_endpoint_close(ep), 0);
	pthread_join(th, NULL);
	CHECK_EQ(f.cq_tail, 200);
	CHECK(atomic_load(&f.ring.hdr->cq_head) >= 200 - 16);
	fake_end(&f);
}

/* Asks an engine of this kind, checks the text's length and beginning. */
static void
check_status(enum fake_mode mode, uint32_t timeout_ms, size_t len, const char *begin)
{
	struct kvf_err err;
	struct fake f;
	char *json;

	fake_start(&f, mode);
	CHECK_EQ(kvf_engine_status(f.path, timeout_ms, &json, &err), 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(json);
	CHECK_EQ(strlen(json), len);
	CHECK(strncmp(json, begin, strlen(begin)) == 0);
	free(json);
	fake_end(&f);
}

static void
test_status(void)
{
	check_status(FAKE_STATUS, 5000, 11, "{\"rooms\":3}");
	check_status(FAKE_STATUS_LARGE, 5000, KVF_MSG_MAX - sizeof(struct kvf_msg_hdr), "jjj");
	check_status(FAKE_STATUS_EMPTY, 0, 0, "");
}

static void
test_status_refused(void)
{
	static const struct {
		enum fake_mode mode;
		int code;
		const char *part;
	} t[] = {
		{FAKE_REFUSE, KVF_E_EXIST, "rank=1 is taken"},
		{FAKE_REFUSE_EARLY, KVF_E_EXIST, "rank=1 is taken"},
		{FAKE_SILENT, KVF_E_TIMEOUT, "timeout_ms=50"},
		{FAKE_HANG_UP, KVF_E_ENGINE_GONE, "closed the connection"},
		{FAKE_GARBAGE, KVF_E_PROTO, "magic="},
	};
	int before = open_fds();
	struct kvf_err err;
	struct fake f;
	char *json;
	size_t i;

	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		json = (void *)&f;
		fake_start(&f, t[i].mode);
		CHECK_EQ(kvf_engine_status(
				 f.path, t[i].mode == FAKE_SILENT ? 50 : 5000, &json, &err),
			t[i].code);
		CHECK_STR_HAS(err.text, t[i].part);
		CHECK(json == NULL);
		fake_end(&f);
		CHECK_EQ(open_fds(), before);
	}
	CHECK_EQ(kvf_engine_status(f.path, 100, &json, &err), KVF_E_SYS);
	CHECK_STR_HAS(err.text, "no kvferryd listens at path=");
	CHECK_EQ(kvf_engine_status(f.path, 100, NULL, &err), KVF_E_INVAL);
}

static const struct suite_case cases[] = {
	{"open: declaration, rings, descriptors", test_open},
	{"open: refused or answered wrongly", test_refusals},
	{"open: an engine that does not answer", test_silent_engine},
	{"open: no engine", test_no_engine},
	{"open: bad configs", test_bad_config},
	{"close: confirmed, noisy, silent, gone", test_close},
	{"close: the engine died before", test_close_after_death},
	{"close: completions keep moving", test_close_keeps_reading},
	{"status", test_status},
	{"status: refused or not answered", test_status_refused},
};

SUITE_MAIN("client_open", cases)
