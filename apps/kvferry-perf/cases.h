/* SPDX-License-Identifier: BSD-3-Clause */
/* One function per case: measures and reports. *mismatches: bytes that --check found wrong. */
#ifndef KVFERRY_PERF_CASES_H
#define KVFERRY_PERF_CASES_H

#include <stdint.h>

#include "kvferry-perf/options.h"

typedef int (*perf_case_fn)(
	const struct perf_options *o, uint64_t *mismatches, struct kvf_err *err);

int perf_bulk(const struct perf_options *o, uint64_t *mismatches, struct kvf_err *err);
int perf_latency(const struct perf_options *o, uint64_t *mismatches, struct kvf_err *err);
int perf_rooms(const struct perf_options *o, uint64_t *mismatches, struct kvf_err *err);
int perf_plan(const struct perf_options *o, uint64_t *mismatches, struct kvf_err *err);
int perf_copy(const struct perf_options *o, uint64_t *mismatches, struct kvf_err *err);
int perf_idle(const struct perf_options *o, uint64_t *mismatches, struct kvf_err *err);
int perf_abort(const struct perf_options *o, uint64_t *mismatches, struct kvf_err *err);

/* bulk with a piece size to report, for copy through an engine; 0: none. */
int perf_bulk_pieces(
	const struct perf_options *o, uint64_t piece, uint64_t *mismatches, struct kvf_err *err);

#endif
