/* SPDX-License-Identifier: BSD-3-Clause */
/* The example of the README compiles, runs, and stands there as it is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/suite.h"
#include "e2e/harness.h"

#define LIMIT_MS 30000
#define README   E2E_SOURCE_ROOT "/README.md"

static void
run_example(const char *size)
{
	static const char *const ranks[] = {"0", "1", "2", "3"};
	struct e2e_process prefill, decode[4];
	struct e2e_engine e = {0};
	int i, n = atoi(size);

	if (!e2e_engine_start(&e, E2E_ARGS("--driver", "cpu")))
		return;
	CHECK(e2e_spawn(&prefill, E2E_ARGS(E2E_EXAMPLE_PREFILL, e.socket), 0));
	for (i = 0; i < n; i++)
		CHECK(e2e_spawn(&decode[i],
			n == 1 ? E2E_ARGS(E2E_EXAMPLE_DECODE, e.socket)
			       : E2E_ARGS(E2E_EXAMPLE_DECODE, e.socket, size, ranks[i]),
			0));
	for (i = -1; i < n; i++) {
		struct e2e_process *p = i < 0 ? &prefill : &decode[i];
		char *out, *err;

		CHECK(e2e_wait(p, LIMIT_MS));
		e2e_kill(p);
		out = e2e_read(p->out);
		err = e2e_read(p->err);
		if (!CHECK_EQ(p->status, 0))
			printf("        %s", err);
		CHECK_STR_HAS(out, i < 0 ? "prefill: 100 tokens sent\n" : "its");
		free(out);
		free(err);
	}
	CHECK_EQ(e2e_engine_stop(&e), 0);
}

static void
test_one(void)
{
	run_example("1");
}

static void
test_dcp(void)
{
	run_example("3");
}

static void
test_errors(void)
{
	struct e2e_result r;

	e2e_run(&r, LIMIT_MS, E2E_ARGS(E2E_EXAMPLE_PREFILL, e2e_path("nobody")));
	CHECK_EQ(r.status, 1);
	CHECK_STR_HAS(r.err, "prefill: open: SYS: ");
	CHECK_STR_HAS(r.err, e2e_path("nobody"));
	e2e_result_free(&r);
	e2e_run(&r, LIMIT_MS, E2E_ARGS(E2E_EXAMPLE_DECODE, e2e_path("nobody"), "2", "2"));
	CHECK_EQ(r.status, 1);
	CHECK_STR_HAS(r.err, "decode: arguments: SHARDING: ");
	e2e_result_free(&r);
}

static void
test_readme(void)
{
	static const char *const files[] = {E2E_SOURCE_ROOT "/tests/e2e/example_prefill.c",
		E2E_SOURCE_ROOT "/tests/e2e/example_decode.c"};
	char *readme, *text;
	size_t i;

	if (access(README, R_OK) != 0) {
		suite_skip("there is no README.md yet");
		return;
	}
	readme = e2e_read(README);
	for (i = 0; i < 2; i++) {
		text = e2e_read(files[i]);
		CHECK(text[0] != '\0');
		if (!CHECK(strstr(readme, text) != NULL))
			printf("        README.md does not show %s as it is\n", files[i]);
		free(text);
	}
	free(readme);
}

static const struct suite_case cases[] = {
	{"prefill to one decode rank", test_one},
	{"prefill to DCP 3", test_dcp},
	{"its errors", test_errors},
	{"the README shows it", test_readme},
};

SUITE_MAIN("example", cases)
