/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvferry-perf/report.h"

void
perf_report_real(json_t *report, const char *key, double value)
{
	/* Six digits: more is noise. */
	char text[32];

	snprintf(text, sizeof(text), "%.6g", value);
	json_object_set_new(
		report, key, isfinite(value) ? json_real(strtod(text, NULL)) : json_null());
}

void
perf_report_count(json_t *report, const char *key, uint64_t value)
{
	json_object_set_new(report, key, json_integer((json_int_t)value));
}

void
perf_report_text(json_t *report, const char *key, const char *value)
{
	json_object_set_new(report, key, value != NULL ? json_string(value) : json_null());
}

void
perf_report_stat(json_t *report, const char *key, const struct perf_stat *stat, double scale)
{
	json_t *v = json_object();

	perf_report_real(v, "median", stat->median * scale);
	perf_report_real(v, "min", stat->min * scale);
	perf_report_real(v, "max", stat->max * scale);
	json_object_set_new(report, key, v);
}

void
perf_report_percentiles(json_t *report, double *us, size_t n)
{
	perf_stat(us, n);
	perf_report_real(report, "p50_us", perf_percentile(us, n, 0.5));
	perf_report_real(report, "p99_us", perf_percentile(us, n, 0.99));
	perf_report_real(report, "p999_us", perf_percentile(us, n, 0.999));
}

static json_t *
options_json(const struct perf_options *o)
{
	json_t *v = json_object();

	perf_report_text(v, "model", o->model);
	perf_report_count(v, "layers", o->layers);
	perf_report_count(v, "tokens", o->tokens);
	perf_report_count(v, "src_page_size", o->src_page_size);
	perf_report_count(v, "dst_page_size", o->dst_page_size);
	perf_report_count(v, "prefill_tp", o->prefill_tp);
	perf_report_count(v, "prefill_dcp", o->prefill_dcp);
	perf_report_count(v, "decode_tp", o->decode_tp);
	perf_report_count(v, "decode_dcp", o->decode_dcp);
	perf_report_count(v, "interleave", o->interleave);
	perf_report_count(v, "ranks", o->ranks);
	perf_report_text(v, "pages", o->contiguous ? "contiguous" : "random");
	perf_report_count(v, "rooms", o->rooms);
	perf_report_count(v, "window", o->window);
	perf_report_count(v, "endpoints", o->endpoints);
	perf_report_count(v, "step", o->step);
	perf_report_text(v, "driver", o->driver);
	perf_report_count(v, "lcores", o->lcores);
	perf_report_count(v, "num_iter", o->num_iter);
	perf_report_count(v, "warmup_iter", o->warmup_iter);
	json_object_set_new(v, "check", json_boolean(o->check));
	json_object_set_new(v, "busy", json_boolean(o->busy));
	perf_report_text(v, "wait", o->poll ? "poll" : "sleep");
	perf_report_count(v, "seed", o->seed);
	return v;
}

json_t *
perf_report(const struct perf_options *o, const struct perf_session *s, const struct perf_field *f)
{
	static const char *const unknown[] = {"layers", "bytes", "runs", "copies",
		"footprint_bytes", "seconds", "gbps", "limit_gbps", "limit_bytes", "ratio", "split",
		"p50_us", "p99_us", "p999_us", "cycles_per_byte", "engine_overhead", "mismatches",
		"baselines"};
	json_t *v = json_object();
	size_t i;

	perf_report_text(v, "case", perf_case_name(o->cas));
	json_object_set_new(v, "options", options_json(o));
	perf_report_text(v, "cpu", perf_cpu_model());
	perf_report_count(v, "cpus", perf_cpus(NULL));
	json_object_set_new(v, "memory_page",
		f != NULL && f->page_size != 0 ? json_integer((json_int_t)f->page_size)
					       : json_null());
	perf_report_text(v, "driver", s != NULL ? s->driver : NULL);
	perf_report_text(v, "kernel", s != NULL ? s->kernel : NULL);
	json_object_set_new(
		v, "lcores", s != NULL ? json_integer((json_int_t)s->lcores) : json_null());
	perf_report_text(v, "lcore_cpus", s != NULL && s->pinned ? s->cpu_list : NULL);
	for (i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
		json_object_set_new(v, unknown[i], json_null());
	if (f != NULL)
		perf_report_count(v, "layers", f->model.kept_layers);
	return v;
}

static void
print_value(const char *name, const json_t *value)
{
	char text[64];

	switch (json_typeof(value)) {
	case JSON_STRING:
		snprintf(text, sizeof(text), "%s", json_string_value(value));
		break;
	case JSON_INTEGER:
		snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
		break;
	case JSON_REAL:
		snprintf(text, sizeof(text), "%.6g", json_real_value(value));
		break;
	default:
		/* What is not known, and curves. */
		return;
	}
	printf("  %-32s %s\n", name, text);
}

static void
print_object(const char *prefix, json_t *object)
{
	const char *key;
	json_t *value;
	char path[128];

	json_object_foreach(object, key, value)
	{
		snprintf(path, sizeof(path), "%s%s%s", prefix, *prefix == '\0' ? "" : ".", key);
		if (strcmp(key, "options") == 0 || strcmp(key, "case") == 0)
			continue;
		if (json_is_object(value))
			print_object(path, value);
		else
			print_value(path, value);
	}
}

static double
number(json_t *report, const char *key)
{
	return json_number_value(json_object_get(report, key));
}

/* One line for each piece size; the first one brings the heading. */
static void
print_piece(json_t *report)
{
	static bool begun;

	if (!begun)
		printf("kvferry-perf copy: driver %s (%s), lcores %.0f, through %s\n"
		       "%12s %12s %12s %10s %10s %8s %10s\n",
			json_string_value(json_object_get(report, "driver")),
			json_string_value(json_object_get(report, "kernel")),
			number(report, "lcores"),
			json_string_value(json_object_get(report, "through")), "piece", "bytes",
			"copies", "GB/s", "limit", "ratio", "mismatches");
	begun = true;
	printf("%12.0f %12.0f %12.0f %10.2f %10.2f %8.3f ", number(report, "piece"),
		number(report, "bytes"), number(report, "copies"), number(report, "gbps"),
		number(report, "limit_gbps"), number(report, "ratio"));
	if (json_is_null(json_object_get(report, "mismatches")))
		printf("%10s\n", "-");
	else
		printf("%10.0f\n", number(report, "mismatches"));
}

static void
print_table(const struct perf_options *o, json_t *report)
{
	if (o->cas == PERF_COPY) {
		print_piece(report);
		return;
	}
	printf("kvferry-perf %s\n", perf_case_name(o->cas));
	print_object("", report);
}

void
perf_report_out(const struct perf_options *o, json_t *report)
{
	char *text;

	if (o->json) {
		text = json_dumps(report, JSON_COMPACT | JSON_REAL_PRECISION(6));
		if (text != NULL)
			puts(text);
		free(text);
	} else {
		print_table(o, report);
	}
	fflush(stdout);
	json_decref(report);
}
