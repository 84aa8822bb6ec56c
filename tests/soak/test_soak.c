/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 10,000 rooms in flight among 64 endpoints, with aborts, deaths, refusals and pages used again at
 * once, for as long as asked:
 *
 *	test_soak [--seconds N] [--rooms N] [--pace-ms N] [CASE]
 *
 * KVF_SOAK_SECONDS does the same as --seconds. Three fifths of it go to the cpu driver. All random
 * choices follow from KVF_TEST_SEED; what the scheduler makes of them does not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/suite.h"
#include "e2e/harness.h"
#include "soak/soak.h"

#define SECONDS 15u
#define ROOMS   10000u
#define PACE_MS 4000u

static uint32_t seconds = SECONDS, rooms = ROOMS, pace = PACE_MS;

static void
run(const char *driver, uint32_t fifths, const char *const *args)
{
	struct soak_run s = {.driver = driver,
		.args = args,
		.rooms = rooms / SOAK_FAMILIES * SOAK_FAMILIES,
		.seconds = seconds * fifths / 5 + 1,
		.pace_ms = pace};

	soak_run(&s);
}

static void
test_cpu(void)
{
	run("cpu, 2 lcores", 3, E2E_ARGS("--quiet", "--driver", "cpu", "--lcores", "2"));
}

static void
test_dmadev(void)
{
	run("dmadev, 2 devices", 1,
		E2E_ARGS("--quiet", "--driver", "dmadev", "--lcores", "2", "--",
			"--vdev=dma_skeleton0", "--vdev=dma_skeleton1", "--log-level=error"));
}

/* Copies linger: most aborts and deaths meet some in flight. */
static void
test_delay(void)
{
	run("fault:cpu, each batch 1 ms late", 1,
		E2E_ARGS("--quiet", "--driver", "fault:cpu,delay_us=1000", "--lcores", "2"));
}

static const struct suite_case cases[] = {
	{"cpu", test_cpu},
	{"dmadev", test_dmadev},
	{"delayed copies", test_delay},
};

static uint32_t
number(const char *what, const char *text, uint32_t min, uint32_t max)
{
	char *end;
	unsigned long v = text != NULL ? strtoul(text, &end, 10) : 0;

	if (text == NULL || end == text || *end != '\0' || v < min || v > max) {
		fprintf(stderr, "test_soak: %s=%s must be a number from %u to %u\n", what,
			text != NULL ? text : "", min, max);
		exit(2);
	}
	return (uint32_t)v;
}

int
main(int argc, char **argv)
{
	char *rest[2] = {argv[0], NULL};
	int i, n = 1;

	if (getenv("KVF_SOAK_SECONDS") != NULL)
		seconds = number("KVF_SOAK_SECONDS", getenv("KVF_SOAK_SECONDS"), 1, 1000000);
	for (i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--seconds") == 0)
			seconds = number(argv[i], argv[i + 1], 1, 1000000), i++;
		else if (strcmp(argv[i], "--rooms") == 0)
			rooms = number(argv[i], argv[i + 1], SOAK_FAMILIES, 400000), i++;
		else if (strcmp(argv[i], "--pace-ms") == 0)
			pace = number(argv[i], argv[i + 1], 1, 60000), i++;
		else if (argv[i][0] != '-' && n == 1)
			rest[n++] = argv[i];
		else
			return fprintf(stderr, "test_soak: unexpected argument %s\n", argv[i]), 2;
	}
	return suite_run("soak", cases, sizeof(cases) / sizeof(cases[0]), n, rest);
}
