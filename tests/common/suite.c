/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <CUnit/CUnit.h>
#include <CUnit/TestRun.h>

#include "common/suite.h"

static unsigned int skipped;
static const char *skip_reason;
static uint64_t seed;

void
suite_skip(const char *why)
{
	skip_reason = why;
}

uint64_t
suite_seed(void)
{
	const char *env;

	if (seed != 0)
		return seed;
	env = getenv("KVF_TEST_SEED");
	if (env != NULL)
		seed = strtoull(env, NULL, 0);
	if (seed == 0)
		seed = ((uint64_t)time(NULL) << 20) ^ (uint64_t)getpid();
	printf("seed: KVF_TEST_SEED=%" PRIu64 "\n", seed);
	return seed;
}

uint64_t
suite_rand(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * 0x2545f4914f6cdd1dull;
}

uint64_t
suite_range(uint64_t *state, uint64_t lo, uint64_t hi)
{
	return lo + suite_rand(state) % (hi - lo + 1);
}

int
suite_check(int ok, const char *what, const char *file, int line)
{
	CU_assertImplementation(ok, (unsigned int)line, what, file, "", CU_FALSE);
	return ok;
}

int
suite_check_eq(int64_t a, int64_t b, const char *what, const char *file, int line)
{
	char msg[400];

	snprintf(msg, sizeof(msg), "%s: %" PRId64 " != %" PRId64, what, a, b);
	return suite_check(a == b, msg, file, line);
}

int
suite_check_has(const char *text, const char *part, const char *file, int line)
{
	char msg[800];

	snprintf(msg, sizeof(msg), "\"%s\" should contain \"%s\"", text, part);
	return suite_check(strstr(text, part) != NULL, msg, file, line);
}

static void
on_complete(const CU_pTest test, const CU_pSuite suite, const CU_pFailureRecord failure)
{
	CU_pFailureRecord f;
	int shown = 0;

	(void)suite;
	if (skip_reason != NULL && failure == NULL) {
		printf("  skip  %s: %s\n", test->pName, skip_reason);
		skipped++;
	} else {
		printf("  %s  %s\n", failure == NULL ? "ok   " : "FAIL ", test->pName);
	}
	for (f = failure; f != NULL && shown < 10; f = f->pNext, shown++)
		printf("        %s:%u: %s\n", f->strFileName, f->uiLineNumber, f->strCondition);
	skip_reason = NULL;
	fflush(stdout);
}

int
suite_run(const char *name, const struct suite_case *cases, size_t n, int argc, char **argv)
{
	unsigned int failed, ran;
	CU_pSuite suite;
	size_t i;

	if (CU_initialize_registry() != CUE_SUCCESS)
		return 2;
	suite = CU_add_suite(name, NULL, NULL);
	if (suite == NULL)
		return 2;
	for (i = 0; i < n; i++) {
		if (argc > 1 && strstr(cases[i].name, argv[1]) == NULL)
			continue;
		if (CU_add_test(suite, cases[i].name, cases[i].fn) == NULL)
			return 2;
	}
	CU_set_test_complete_handler(on_complete);
	CU_run_all_tests();
	failed = CU_get_number_of_tests_failed();
	ran = CU_get_number_of_tests_run();
	CU_cleanup_registry();
	printf("suite %s: %u passed, %u failed, %u skipped\n", name, ran - failed - skipped, failed,
		skipped);
	return failed != 0 || ran == 0;
}
