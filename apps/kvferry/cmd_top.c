/* SPDX-License-Identifier: BSD-3-Clause */
/* Rates of a running kvferryd, again and again: what changed between two looks at its status. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include <kvferry/client.h>

#include "args.h"

#define STATUS_TIMEOUT_MS 5000u
#define MAX_SECONDS       3600u

static int
ask(const char *socket, json_t **root, struct kvf_err *err)
{
	json_error_t bad;
	char *text;
	int rc;

	*root = NULL;
	rc = kvf_engine_status(socket, STATUS_TIMEOUT_MS, &text, err);
	if (rc != 0)
		return 1;
	*root = json_loads(text, 0, &bad);
	free(text);
	if (*root == NULL)
		return cli_fail(err, KVF_E_PROTO, "kvferryd's status is no JSON: %s", bad.text);
	return 0;
}

static double
num(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

/* The endpoint of the same process and place in the earlier look; NULL: it was not there. */
static const json_t *
same_endpoint(const json_t *before, const json_t *ep)
{
	json_t *all = json_object_get(before, "endpoints"), *other;
	size_t i;

	json_array_foreach(all, i, other)
	{
		if (num(other, "pid") == num(ep, "pid") && num(other, "rank") == num(ep, "rank") &&
			json_equal(json_object_get(other, "role"), json_object_get(ep, "role")) &&
			json_equal(json_object_get(other, "group"), json_object_get(ep, "group")))
			return other;
	}
	return NULL;
}

static double
rate(const json_t *now, const json_t *before, const char *key, double seconds)
{
	double d = num(now, key) - (before != NULL ? num(before, key) : 0);

	/* A counter that went back belongs to another engine. */
	return d > 0 ? d / seconds : 0;
}

static void
show(const json_t *now, const json_t *before, double seconds)
{
	const json_t *d = json_object_get(now, "dispatcher"),
		     *db = json_object_get(before, "dispatcher");
	const json_t *r = json_object_get(now, "rooms"), *rb = json_object_get(before, "rooms");
	json_t *lcores = json_object_get(now, "lcores"), *was = json_object_get(before, "lcores");
	json_t *eps = json_object_get(now, "endpoints"), *item;
	double hz = num(now, "tsc_hz");
	size_t i;

	printf("kvferryd pid %.0f  up %.0f s  rooms open %.0f  success %.0f/s  failed %.0f/s  %.2f "
	       "GB/s\n",
		num(now, "pid"), num(now, "uptime_s"), num(r, "open"),
		rate(r, rb, "success", seconds), rate(r, rb, "failed", seconds),
		rate(d, db, "bytes", seconds) / 1e9);
	printf("%-8s %-14s %-8s %8s %10s %10s %7s\n", "lcore", "role", "driver", "GB/s", "slices/s",
		"errors/s", "busy");
	json_array_foreach(lcores, i, item)
	{
		const json_t *b = json_array_get(was, i);

		printf("%-8.0f %-14s %-8s %8.2f %10.0f %10.0f %6.1f%%\n", num(item, "lcore"),
			json_string_value(json_object_get(item, "role")),
			json_string_value(json_object_get(item, "driver")),
			rate(item, b, "bytes", seconds) / 1e9, rate(item, b, "slices", seconds),
			rate(item, b, "errors", seconds),
			hz > 0 ? 100 * rate(item, b, "busy_cycles", seconds) / hz : 0);
	}
	printf("%-8s %-20s %5s %8s %6s %10s %10s %9s %9s\n", "role", "group", "rank", "pid", "open",
		"success/s", "failed/s", "in GB/s", "out GB/s");
	json_array_foreach(eps, i, item)
	{
		const json_t *b = same_endpoint(before, item);

		printf("%-8s %-20s %5.0f %8.0f %6.0f %10.0f %10.0f %9.2f %9.2f\n",
			json_string_value(json_object_get(item, "role")),
			json_string_value(json_object_get(item, "group")), num(item, "rank"),
			num(item, "pid"), num(item, "rooms_open"),
			rate(item, b, "rooms_success", seconds),
			rate(item, b, "rooms_failed", seconds),
			rate(item, b, "bytes_in", seconds) / 1e9,
			rate(item, b, "bytes_out", seconds) / 1e9);
	}
}

int
cmd_top(int argc, char **argv, struct kvf_err *err)
{
	const char *socket = NULL, *interval = NULL, *count = NULL;
	const struct opt opts[] = {
		{"socket", "PATH", "kvferryd's socket (default " KVF_DEFAULT_SOCKET ")", &socket},
		{"interval", "S", "seconds between two looks (default 1)", &interval},
		{"count", "N", "looks to show (default: until interrupted)", &count},
	};
	uint64_t seconds = 1, looks = UINT64_MAX, n;
	json_t *before, *now;
	int rc;

	rc = opts_parse(argc, argv, "Shows what a running kvferryd moves, as rates.", opts,
		sizeof(opts) / sizeof(opts[0]), err);
	if (rc != 0)
		return rc < 0 ? 0 : rc;
	if (arg_u64("interval", interval, MAX_SECONDS, KVF_E_INVAL, &seconds, err) != 0 ||
		arg_u64("count", count, UINT64_MAX, KVF_E_INVAL, &looks, err) != 0)
		return 1;
	if (seconds == 0)
		return cli_fail(err, KVF_E_INVAL, "interval=0 must be at least limit=1");
	rc = ask(socket, &before, err);
	for (n = 0; rc == 0 && n < looks; n++) {
		struct timespec nap = {.tv_sec = (time_t)seconds};

		nanosleep(&nap, NULL);
		rc = ask(socket, &now, err);
		if (rc != 0)
			break;
		if (isatty(STDOUT_FILENO))
			printf("\033[H\033[2J"); /* home, clear */
		else if (n > 0)
			putchar('\n');
		show(now, before,
			num(now, "uptime_s") - num(before, "uptime_s") > 0
				? num(now, "uptime_s") - num(before, "uptime_s")
				: (double)seconds);
		fflush(stdout);
		json_decref(before);
		before = now;
	}
	json_decref(before);
	return rc;
}
