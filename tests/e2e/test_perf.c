/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kvferry-perf does the work that it times: every case on every driver, tiny, with every byte
 * compared. No time is judged here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/suite.h"
#include "e2e/harness.h"

#define RUN_MS   120000
#define MAX_ARGS 48

#define SKELETON "--driver", "dmadev", "--engine-args", "--no-pci --vdev=dma_skeleton0"
#define SMALL    "--check", "--json", "--num-iter", "2", "--warmup-iter", "1"

/* Keys that every object has, whatever their values. */
static const char *const keys[] = {"case", "options", "cpu", "cpus", "memory_page", "driver",
	"kernel", "lcores", "layers", "bytes", "runs", "copies", "footprint_bytes", "seconds",
	"gbps", "limit_gbps", "limit_bytes", "ratio", "split", "p50_us", "p99_us", "p999_us",
	"cycles_per_byte", "engine_overhead", "mismatches", "baselines"};

static void
perf(struct e2e_result *r, const char *const *args)
{
	const char *argv[MAX_ARGS + 1] = {E2E_PERF};
	int n = 1;

	while (*args != NULL && n < MAX_ARGS)
		argv[n++] = *args++;
	CHECK(*args == NULL);
	argv[n] = NULL;
	e2e_run(r, RUN_MS, argv);
}

static json_t *
positive(json_t *report, const char *key)
{
	json_t *v = json_object_get(report, key);

	if (!CHECK(json_is_number(v) && json_number_value(v) > 0))
		printf("        %s is not a positive number\n", key);
	return v;
}

static void
check_common(json_t *report, const char *cas)
{
	size_t i;

	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (!CHECK(json_object_get(report, keys[i]) != NULL))
			printf("        no %s\n", keys[i]);
	CHECK_STR_HAS(json_string_value(json_object_get(report, "case")), cas);
	CHECK(json_is_integer(json_object_get(report, "mismatches")));
	CHECK_EQ(json_integer_value(json_object_get(report, "mismatches")), 0);
	positive(report, "p50_us");
	positive(report, "p99_us");
	positive(report, "p999_us");
	positive(json_object_get(report, "seconds"), "median");
	positive(json_object_get(report, "seconds"), "min");
	positive(json_object_get(report, "seconds"), "max");
}

/* Runs it, expects `lines` results of the case; hands out the first, or NULL. */
static json_t *
reports(const char *cas, int lines, const char *const *args)
{
	struct e2e_result r;
	char *line, *save = NULL;
	json_t *first = NULL;
	json_error_t where;
	int n = 0;

	perf(&r, args);
	if (!CHECK_EQ(r.status, 0))
		printf("        %s", r.err);
	for (line = strtok_r(r.out, "\n", &save); line != NULL;
		line = strtok_r(NULL, "\n", &save), n++) {
		json_t *report = json_loads(line, JSON_REJECT_DUPLICATES, &where);

		if (!CHECK(json_is_object(report))) {
			printf("        not JSON: %s\n        %s\n", where.text, line);
			continue;
		}
		if (strcmp(cas, "idle") != 0)
			check_common(report, cas);
		if (first == NULL)
			first = json_incref(report);
		json_decref(report);
	}
	CHECK_EQ(n, lines);
	e2e_result_free(&r);
	return first;
}

static json_int_t
integer(json_t *report, const char *key)
{
	return json_integer_value(json_object_get(report, key));
}

static void
bulk(const char *driver, const char *const *args, json_int_t bytes)
{
	json_t *r = reports("bulk", 1, args), *base;

	if (r == NULL)
		return;
	CHECK_STR_HAS(json_string_value(json_object_get(r, "driver")), driver);
	CHECK_EQ(integer(r, "bytes"), bytes);
	positive(r, "gbps");
	positive(r, "limit_gbps");
	positive(r, "limit_bytes");
	positive(r, "ratio");
	positive(r, "runs");
	positive(r, "copies");
	positive(r, "pieces");
	CHECK(json_is_number(json_object_get(r, "engine_overhead")));
	CHECK(json_number_value(json_object_get(r, "engine_overhead")) < 1);
	positive(json_object_get(r, "split"), "plan_us");
	positive(json_object_get(r, "split"), "post_us");
	positive(json_object_get(r, "split"), "copy_us");
	base = json_object_get(r, "baselines");
	positive(json_object_get(base, "memcpy"), "gbps");
	positive(json_object_get(base, "rows"), "gbps");
	/* A kernel may forbid it; then it is null, and said. */
	CHECK(json_object_get(base, "cma") != NULL);
	json_decref(r);
}

/* 100 tokens x 4 layers x 1152 B, one rank of 8: positions 0, 8, .. 96. */
static void
test_bulk_cpu(void)
{
	bulk("cpu",
		E2E_ARGS("bulk", "--model", "deepseek-r1", "--layers", "4", "--tokens", "100",
			"--page-size", "16", "--decode-dcp", "8", "--ranks", "1", "--footprint",
			"4M", "--baseline", "memcpy,rows,cma", SMALL),
		13 * 4 * 1152);
	bulk("cpu",
		E2E_ARGS("bulk", "--model", "deepseek-r1", "--layers", "3", "--tokens", "100",
			"--src-page-size", "16", "--dst-page-size", "64", "--prefill-dcp", "4",
			"--decode-dcp", "2", "--interleave", "2", "--footprint", "4M", "--rooms",
			"3", "--lcores", "2", "--wait", "poll", "--cpus", "none", "--baseline",
			"memcpy,rows,cma", SMALL),
		3 * 100 * 3 * 1152);
}

/* Head slices: TP 4 -> 2, every rank of decode gets half of the heads. */
static void
test_bulk_heads(void)
{
	bulk("cpu",
		E2E_ARGS("bulk", "--model", "llama-3-70b", "--layers", "2", "--tokens", "70",
			"--page-size", "16", "--prefill-tp", "4", "--decode-tp", "2", "--footprint",
			"4M", "--pages", "contiguous", "--driver", "cpu:portable", "--baseline",
			"memcpy,rows,cma", SMALL),
		70 * 2 * 4096);
}

/* The draft layer is on every decode rank. */
static void
test_bulk_draft(void)
{
	bulk("cpu",
		E2E_ARGS("bulk", "--model", "deepseek-r1-mtp", "--layers", "2", "--tokens", "70",
			"--page-size", "16", "--decode-dcp", "2", "--footprint", "4M", "--baseline",
			"memcpy,rows,cma", SMALL),
		70 * 2 * 1152 + 2 * 70 * 1152);
}

static void
test_bulk_dmadev(void)
{
	bulk("dmadev",
		E2E_ARGS("bulk", "--model", "row:576", "--layers", "9", "--tokens", "40",
			"--page-size", "8", "--decode-dcp", "2", "--footprint", "1M", "--baseline",
			"memcpy,rows,cma", SKELETON, SMALL),
		40 * 9 * 576);
}

static void
latency(const char *driver, const char *const *args, json_int_t bytes, int processes)
{
	json_t *r = reports("latency", 1, args);

	if (r == NULL)
		return;
	CHECK_STR_HAS(json_string_value(json_object_get(r, "driver")), driver);
	CHECK_EQ(integer(r, "bytes"), bytes);
	CHECK_EQ(integer(r, "processes"), processes);
	CHECK(json_array_size(json_object_get(r, "distribution")) > 10);
	positive(json_object_get(r, "split"), "post_us");
	json_decref(r);
}

static void
test_latency(void)
{
	latency("cpu", E2E_ARGS("latency", "--processes", "1", "--baseline", "memcpy", SMALL), 1152,
		1);
	latency("cpu",
		E2E_ARGS("latency", "--processes", "2", "--tokens", "64", "--page-size", "64",
			SMALL),
		73728, 2);
	latency("dmadev", E2E_ARGS("latency", "--processes", "1", SKELETON, SMALL), 1152, 1);
}

static void
rooms(const char *driver, const char *const *args, json_int_t count, int processes)
{
	json_t *r = reports("rooms", 1, args);

	if (r == NULL)
		return;
	CHECK_STR_HAS(json_string_value(json_object_get(r, "driver")), driver);
	CHECK_EQ(integer(r, "rooms"), count);
	CHECK_EQ(integer(r, "bytes"), count * 1152);
	CHECK_EQ(integer(r, "processes"), processes);
	positive(json_object_get(r, "rooms_per_s"), "median");
	positive(r, "engine_us_per_room");
	json_decref(r);
}

static void
test_rooms(void)
{
	rooms("cpu",
		E2E_ARGS("rooms", "--rooms", "500", "--window", "7", "--endpoints", "3",
			"--processes", "1", SMALL),
		501, 1);
	rooms("cpu", E2E_ARGS("rooms", "--rooms", "300", "--processes", "2", SMALL), 300, 2);
	rooms("dmadev",
		E2E_ARGS("rooms", "--rooms", "100", "--window", "16", "--processes", "1", SKELETON,
			SMALL),
		100, 1);
}

static void
plan(const char *const *args, json_int_t rows)
{
	json_t *r = reports("plan", 1, args);

	if (r == NULL)
		return;
	CHECK_EQ(integer(r, "rows"), rows);
	positive(r, "runs");
	positive(r, "plan_us");
	positive(r, "ns_per_token");
	json_decref(r);
}

static void
test_plan(void)
{
	plan(E2E_ARGS("plan", "--tokens", "1000", "--decode-dcp", "8", SMALL), 125);
	plan(E2E_ARGS("plan", "--tokens", "1000", "--decode-dcp", "8", "--page-size", "1", SMALL),
		125);
	plan(E2E_ARGS("plan", "--tokens", "999", "--pages", "contiguous", SMALL), 999);
	plan(E2E_ARGS("plan", "--tokens", "960", "--prefill-dcp", "4", "--decode-dcp", "6",
		     "--interleave", "2", "--src-page-size", "16", SMALL),
		80 * 1);
}

static void
test_copy(void)
{
	json_t *r;

	r = reports("copy", 3,
		E2E_ARGS("copy", "--pieces", "1,1152,65536", "--footprint", "1M", "--lcores", "2",
			"--cpus", "none", SMALL));
	if (r != NULL) {
		CHECK_EQ(integer(r, "piece"), 1);
		CHECK_STR_HAS(json_string_value(json_object_get(r, "through")), "driver");
		positive(r, "limit_gbps");
		json_decref(r);
	}
	r = reports("copy", 2,
		E2E_ARGS("copy", "--pieces", "1152,4K", "--step", "8", "--footprint", "1M", SMALL));
	json_decref(r);
	r = reports("copy", 2,
		E2E_ARGS("copy", "--pieces", "1152,16K", "--footprint", "1M", SKELETON, SMALL));
	if (r != NULL) {
		CHECK_EQ(integer(r, "piece"), 1152);
		CHECK_STR_HAS(json_string_value(json_object_get(r, "driver")), "dmadev");
		CHECK_STR_HAS(json_string_value(json_object_get(r, "through")), "kvferryd");
		json_decref(r);
	}
}

static void
test_idle(void)
{
	json_t *r = reports("idle", 1, E2E_ARGS("idle", SMALL));

	if (r != NULL) {
		CHECK(json_is_number(json_object_get(r, "cpu_share")));
		positive(r, "p50_us");
		positive(r, "max_us");
		CHECK_EQ(integer(r, "mismatches"), 0);
		json_decref(r);
	}
	json_decref(reports("idle", 1, E2E_ARGS("idle", SKELETON, SMALL)));
	/* A busy engine takes a core, whatever else this machine does: some of it at least. */
	r = reports("idle", 1, E2E_ARGS("idle", "--busy", SMALL));
	if (r != NULL) {
		CHECK(json_number_value(json_object_get(r, "cpu_share")) > 0.02);
		json_decref(r);
	}
}

/* Aborts from both sides while rooms are copied; --check looks for bytes written after the proof.
 */
static void
test_abort(void)
{
	json_t *r = reports("abort", 1,
		E2E_ARGS("abort", SMALL, "--layers", "16", "--tokens", "1024", "--num-iter", "30"));

	if (r != NULL) {
		CHECK_EQ(integer(r, "aborts"), 30);
		positive(json_object_get(r, "peer"), "p99_us");
		json_decref(r);
	}
	r = reports("abort", 1,
		E2E_ARGS("abort", SKELETON, SMALL, "--layers", "8", "--tokens", "1024",
			"--num-iter", "10"));
	if (r != NULL) {
		CHECK_STR_HAS(json_string_value(json_object_get(r, "driver")), "dmadev");
		CHECK_EQ(integer(r, "aborts"), 10);
		json_decref(r);
	}
}

/* A wrong byte is found, in each case that copies; a lost engine is an error. */
static void
spoilt(const char *const *args, int status, const char *says)
{
	struct e2e_result r;

	perf(&r, args);
	CHECK_EQ(r.status, status);
	CHECK_STR_HAS(r.err, says);
	e2e_result_free(&r);
}

#define CORRUPT "--driver", "fault:cpu,corrupt=2,every=3"

static void
test_check_sees(void)
{
	spoilt(E2E_ARGS("bulk", "--layers", "4", "--tokens", "100", "--page-size", "16",
		       "--footprint", "1M", CORRUPT, SMALL),
		2, "FAILED mismatches=");
	spoilt(E2E_ARGS("latency", "--processes", "1", CORRUPT, SMALL), 2, "FAILED mismatches=");
	spoilt(E2E_ARGS("latency", "--processes", "2", CORRUPT, SMALL), 2, "FAILED mismatches=");
	spoilt(E2E_ARGS("rooms", "--rooms", "100", CORRUPT, SMALL), 2, "FAILED mismatches=");
	spoilt(E2E_ARGS("copy", "--pieces", "1152", "--footprint", "1M", CORRUPT, SMALL), 2,
		"FAILED mismatches=");
	spoilt(E2E_ARGS("bulk", "--layers", "4", "--tokens", "100", "--page-size", "16",
		       "--footprint", "1M", "--driver", "fault:cpu,fail=1", SMALL),
		1, "DEVICE");
}

static void
test_refusals(void)
{
	spoilt(E2E_ARGS("bulks"), 1, "case=bulks: known are bulk, latency");
	spoilt(E2E_ARGS("bulk", "--tokens", "0"), 1, "tokens=0 must be a number from 1 to");
	spoilt(E2E_ARGS("bulk", "--tokens"), 1, "--tokens needs a value");
	spoilt(E2E_ARGS("bulk", "--footprint", "3X"), 1, "footprint=3X must be a number");
	spoilt(E2E_ARGS("bulk", "--frobnicate", "3"), 1, "unknown option --frobnicate");
	spoilt(E2E_ARGS("bulk", "--baseline", "ucx"), 1, "baseline=ucx: known are");
	spoilt(E2E_ARGS("bulk", "--ranks", "9", "--decode-dcp", "8"), 1,
		"ranks=9 exceeds decode ranks=8");
	spoilt(E2E_ARGS("bulk", "--tokens", "3", "--decode-dcp", "1", "--prefill-tp", "3",
		       "--model", "llama-3-70b"),
		1, "prefill-tp=3");
	spoilt(E2E_ARGS("latency", "--decode-dcp", "2"), 1, "one rank a side");
	spoilt(E2E_ARGS("latency", "--engine", "/nonexistent/kvferryd"), 1, "cannot be run");
}

static const struct suite_case cases[] = {
	{"bulk_cpu", test_bulk_cpu},
	{"bulk_heads", test_bulk_heads},
	{"bulk_draft", test_bulk_draft},
	{"bulk_dmadev", test_bulk_dmadev},
	{"latency", test_latency},
	{"rooms", test_rooms},
	{"plan", test_plan},
	{"copy", test_copy},
	{"idle", test_idle},
	{"abort", test_abort},
	{"check_sees", test_check_sees},
	{"refusals", test_refusals},
};

SUITE_MAIN("perf", cases)
