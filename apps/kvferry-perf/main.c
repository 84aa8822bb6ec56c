/* SPDX-License-Identifier: BSD-3-Clause */
/* Exit status: 0, 1 after an error, 2 when --check found wrong bytes. */
#include <inttypes.h>
#include <stdio.h>

#include "kvferry-perf/cases.h"
#include "kvferry-perf/machine.h"

int
main(int argc, char **argv)
{
	static const perf_case_fn cases[PERF_CASES] = {
		perf_bulk, perf_latency, perf_rooms, perf_plan, perf_copy, perf_idle, perf_abort};
	struct perf_options o;
	struct kvf_err err = {0};
	uint64_t mismatches = 0;
	int rc;

	rc = perf_options_parse(&o, argc, argv, &err);
	if (rc == 0 && o.help) {
		fputs(perf_usage, stdout);
		return 0;
	}
	/* Remembered before anybody is pinned. */
	perf_cpus(NULL);
	if (rc == 0)
		rc = cases[o.cas](&o, &mismatches, &err);
	if (rc != 0) {
		fprintf(stderr, "kvferry-perf: %s: %s\n", kvf_error_name(rc), err.text);
		return 1;
	}
	if (mismatches != 0) {
		fprintf(stderr, "kvferry-perf: FAILED mismatches=%" PRIu64 "\n", mismatches);
		return 2;
	}
	return 0;
}
