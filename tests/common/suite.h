/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One CUnit program per suite. main() of a suite:
 *
 *	static const struct suite_case cases[] = {{"name", fn}, ...};
 *	SUITE_MAIN("plan", cases)
 *
 * Runs all cases (or those whose names contain argv[1]), prints each failure, ends with
 * "suite plan: 12 passed, 0 failed, 0 skipped" and exits 0 only without failures.
 */
#ifndef KVF_TESTS_SUITE_H
#define KVF_TESTS_SUITE_H

#include <stddef.h>
#include <stdint.h>

#include <CUnit/CUnit.h>

struct suite_case {
	const char *name;
	void (*fn)(void);
};

int suite_run(const char *name, const struct suite_case *cases, size_t n, int argc, char **argv);

/* Inside a case: it cannot run on this machine, for this reason. Counted apart, never as passed. */
void suite_skip(const char *why);

/* Property tests: the seed of this run, printed once; KVF_TEST_SEED overrides it. */
uint64_t suite_seed(void);

/* xorshift64*: *state must not be 0. */
uint64_t suite_rand(uint64_t *state);
/* Uniform in [lo, hi]. */
uint64_t suite_range(uint64_t *state, uint64_t lo, uint64_t hi);

/* Asserts with the values in the message, and goes on (CUnit's own macros print only the
 * expression). */
#define CHECK_EQ(a, b)            suite_check_eq((int64_t)(a), (int64_t)(b), #a " == " #b, __FILE__, __LINE__)
#define CHECK_STR_HAS(text, part) suite_check_has((text), (part), __FILE__, __LINE__)
#define CHECK(cond)               suite_check((cond) ? 1 : 0, #cond, __FILE__, __LINE__)

int suite_check_eq(int64_t a, int64_t b, const char *what, const char *file, int line);
int suite_check_has(const char *text, const char *part, const char *file, int line);
int suite_check(int ok, const char *what, const char *file, int line);

#define SUITE_MAIN(name, cases)                                                                    \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		return suite_run(name, cases, sizeof(cases) / sizeof((cases)[0]), argc, argv);     \
	}

#endif
