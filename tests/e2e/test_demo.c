/* SPDX-License-Identifier: BSD-3-Clause */
/* pd-demo as a user runs it: its last line, its exit status, and that it fails when it should. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <kvferry/kvferry.h>

#include "common/suite.h"
#include "e2e/harness.h"

#define LIMIT_MS 90000
/* Far below the demo's own time-out of 120 s. */
#define QUICK_MS 30000
#define MAX_ARGS 40

struct verdict {
	uint64_t rooms;
	uint64_t bytes;
	uint64_t mismatches;
};

/* The last line, and nothing else on it. */
static bool
read_verdict(const char *out, struct verdict *v)
{
	size_t len = strlen(out);
	const char *at = out + len;
	int used = 0;

	memset(v, 0, sizeof(*v));
	if (len == 0 || out[len - 1] != '\n')
		return false;
	for (at--; at > out && at[-1] != '\n'; at--)
		;
	return sscanf(at, "verified rooms=%" SCNu64 " bytes=%" SCNu64 " mismatches=%" SCNu64 "%n",
		       &v->rooms, &v->bytes, &v->mismatches, &used) == 3 &&
	       at[used] == '\n';
}

static void
make_args(const char **argv, const char *const *args)
{
	int n = 0;

	e2e_page_size(); /* takes the hugepages that the demo may find */
	argv[n++] = E2E_PD_DEMO;
	argv[n++] = "--engine";
	argv[n++] = E2E_KVFERRYD;
	if (e2e_page_size() == 4096)
		argv[n++] = "--no-hugepages";
	while (*args != NULL && n < MAX_ARGS - 1)
		argv[n++] = *args++;
	argv[n] = NULL;
}

static void
verified(int line, uint64_t rooms, const char *const *args)
{
	const char *argv[MAX_ARGS];
	struct e2e_result r;
	struct verdict v;
	bool ok;

	make_args(argv, args);
	e2e_run(&r, LIMIT_MS, argv);
	ok = suite_check_eq(r.status, 0, "exit status == 0", __FILE__, line);
	ok &= suite_check(read_verdict(r.out, &v), "the last line is the verdict", __FILE__, line);
	ok &= suite_check_eq((int64_t)v.rooms, (int64_t)rooms, "rooms", __FILE__, line);
	ok &= suite_check_eq((int64_t)v.mismatches, 0, "mismatches", __FILE__, line);
	ok &= suite_check(v.bytes > 0, "bytes > 0", __FILE__, line);
	if (!ok)
		printf("        ---- it said:\n%s%s        ----\n", r.out, r.err);
	e2e_result_free(&r);
}
#define VERIFIED(rooms, ...) verified(__LINE__, (rooms), E2E_ARGS(__VA_ARGS__))

static void
test_default(void)
{
	VERIFIED(6, "--tokens", "500", "--rooms", "6", "--layers", "4");
}

static void
test_models(void)
{
	VERIFIED(4, "--model", "llama-3-70b", "--prefill-tp", "4", "--decode-tp", "2", "--tokens",
		"300", "--rooms", "4", "--layers", "3");
	VERIFIED(3, "--model", "llama-3-70b", "--prefill-tp", "2", "--decode-tp", "8", "--tokens",
		"200", "--rooms", "3", "--layers", "2", "--page-size", "16");
	VERIFIED(3, "--model", "deepseek-v3.2", "--decode-dcp", "2", "--tokens", "300", "--rooms",
		"3", "--layers", "2");
	VERIFIED(3, "--model", "kimi-linear", "--tokens", "200", "--rooms", "3", "--layers", "8",
		"--decode-dcp", "2");
}

static void
test_draft_and_state(void)
{
	VERIFIED(5, "--draft", "--state", "--tokens", "400", "--rooms", "5", "--layers", "3",
		"--decode-dcp", "4", "--interleave", "64");
}

static void
test_dmadev(void)
{
	VERIFIED(4, "--driver", "dmadev", "--engine-args",
		"--vdev=dma_skeleton0 --vdev=dma_skeleton1", "--tokens", "300", "--rooms", "4",
		"--layers", "2", "--decode-dcp", "4");
}

static void
test_no_hugepages(void)
{
	VERIFIED(4, "--no-hugepages", "--tokens", "300", "--rooms", "4", "--layers", "3",
		"--lcores", "1", "--chunk", "128", "--seed", "77");
}

/* A flipped byte is a mismatch, and a mismatch is a failure. */
static void
test_spoiled(void)
{
	const char *argv[MAX_ARGS];
	struct e2e_result r;
	struct verdict v;

	make_args(argv, E2E_ARGS("--driver", "fault:cpu,corrupt=3", "--tokens", "300", "--rooms",
				"3", "--layers", "2", "--decode-dcp", "2"));
	e2e_run(&r, LIMIT_MS, argv);
	CHECK_EQ(r.status, 1);
	CHECK(read_verdict(r.out, &v));
	CHECK(v.mismatches > 0);
	e2e_result_free(&r);
}

/* The pid of the process that the engine at this socket knows as decode rank 1 with a room
 * open, or of the engine itself. 0: not yet. */
static pid_t
find(const char *socket, bool engine)
{
	char *text = NULL;
	json_t *root, *ep;
	pid_t pid = 0;
	size_t i;

	if (kvf_engine_status(socket, 1000, &text, NULL) != 0)
		return 0;
	root = json_loads(text, 0, NULL);
	free(text);
	json_array_foreach(json_object_get(root, "endpoints"), i, ep)
	{
		const char *role = json_string_value(json_object_get(ep, "role"));

		if (role == NULL || strcmp(role, "decode") != 0 ||
			json_integer_value(json_object_get(ep, "rank")) != 1 ||
			json_integer_value(json_object_get(ep, "rooms_open")) == 0)
			continue;
		pid = (pid_t)json_integer_value(json_object_get(engine ? root : ep, "pid"));
	}
	json_decref(root);
	return pid;
}

/* Ours to end? Only what the demo that we started has started. */
static bool
child_of(pid_t pid, pid_t parent)
{
	char path[64], *text, *at;
	int ppid = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	text = e2e_read(path);
	at = strstr(text, "\nPPid:");
	if (at != NULL)
		ppid = atoi(at + 6);
	free(text);
	return ppid == parent;
}

static void
fails_when_killed(bool engine, const char *text)
{
	const char *argv[MAX_ARGS];
	struct e2e_process p;
	uint64_t since = 0;
	struct verdict v;
	char socket[100], *out, *err;
	pid_t victim;

	snprintf(socket, sizeof(socket), "%.80s/demo%d", e2e_dir(), engine);
	make_args(argv,
		E2E_ARGS("--socket", socket, "--driver", "fault:cpu,delay_us=3000000", "--tokens",
			"300", "--rooms", "3", "--layers", "2", "--decode-dcp", "2"));
	if (!CHECK(e2e_spawn(&p, argv, 0)))
		return;
	do
		victim = find(socket, engine);
	while (victim == 0 && !e2e_wait(&p, 0) && e2e_again(&since, LIMIT_MS));
	if (CHECK(victim != 0 && p.pid != 0) && CHECK(child_of(victim, p.pid)))
		kill(victim, SIGKILL);
	CHECK(e2e_wait(&p, QUICK_MS));
	e2e_kill(&p);
	CHECK_EQ(p.status, 1);
	out = e2e_read(p.out);
	err = e2e_read(p.err);
	CHECK(read_verdict(out, &v));
	CHECK_EQ(v.rooms, 0);
	if (!CHECK(strstr(out, text) != NULL || strstr(err, text) != NULL))
		printf("        no \"%s\" in:\n%s%s", text, out, err);
	free(out);
	free(err);
}

static void
test_worker_dies(void)
{
	fails_when_killed(false, "decode/1");
}

static void
test_engine_dies(void)
{
	fails_when_killed(true, "ENGINE_GONE");
}

static const struct suite_case cases[] = {
	{"default shape, small", test_default},
	{"models: head slices, planar pages, hybrid layers", test_models},
	{"draft and state, page-interleaved", test_draft_and_state},
	{"dmadev with two devices", test_dmadev},
	{"without hugepages", test_no_hugepages},
	{"a flipped byte makes it fail", test_spoiled},
	{"a worker that dies makes it fail", test_worker_dies},
	{"an engine that dies makes it fail", test_engine_dies},
};

SUITE_MAIN("demo", cases)
