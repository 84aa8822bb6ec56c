/* SPDX-License-Identifier: BSD-3-Clause */
/* A result: one JSON object, or the same as a table for people. */
#ifndef KVFERRY_PERF_REPORT_H
#define KVFERRY_PERF_REPORT_H

#include <jansson.h>

#include "kvferry-perf/field.h"
#include "kvferry-perf/machine.h"
#include "kvferry-perf/session.h"

/*
 * An object with every key that results have; those that a case cannot know stay null. `f` and `s`
 * may be NULL.
 */
json_t *perf_report(
	const struct perf_options *o, const struct perf_session *s, const struct perf_field *f);
void perf_report_stat(json_t *report, const char *key, const struct perf_stat *stat, double scale);
void perf_report_percentiles(json_t *report, double *us, size_t n); /* sorts */
void perf_report_real(json_t *report, const char *key, double value);
void perf_report_count(json_t *report, const char *key, uint64_t value);
void perf_report_text(json_t *report, const char *key, const char *value);

/* Prints and frees. */
void perf_report_out(const struct perf_options *o, json_t *report);

#endif
