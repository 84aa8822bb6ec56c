/* SPDX-License-Identifier: BSD-3-Clause */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvferry/client.h>

#include "common/fail.h"
#include "kvferry-perf/session.h"

#define ENGINE_WAIT_MS 10000u
#define STATUS_MS      10000u

static int
parse_cpus(struct perf_session *s, const char *list, struct kvf_err *err)
{
	const char *at = list;
	uint32_t n = 0;
	char *end;

	while (n < s->o->lcores) {
		unsigned long c = strtoul(at, &end, 10);

		if (end == at || c >= PERF_MAX_CPUS || (*end != '\0' && *end != ','))
			break;
		s->cpus[n++] = (uint32_t)c;
		at = *end == ',' ? end + 1 : end;
	}
	if (n != s->o->lcores || *at != '\0')
		return app_fail(err, KVF_E_INVAL,
			"cpus=%.100s must name one CPU for each of lcores=%u", list, s->o->lcores);
	snprintf(s->cpu_list, sizeof(s->cpu_list), "%s", list);
	s->pinned = true;
	return 0;
}

static void
last_cpus(struct perf_session *s, const uint32_t *all, uint32_t n)
{
	size_t at = 0;
	uint32_t i;

	for (i = 0; i < s->o->lcores; i++) {
		s->cpus[i] = all[n - s->o->lcores + i];
		at += (size_t)snprintf(s->cpu_list + at, sizeof(s->cpu_list) - at, "%s%u",
			i > 0 ? "," : "", s->cpus[i]);
	}
	s->pinned = true;
}

int
perf_session_cpus(struct perf_session *s, const struct perf_options *o, struct kvf_err *err)
{
	const uint32_t *all;
	uint32_t n = perf_cpus(&all), i, k;
	int rc;

	memset(s, 0, sizeof(*s));
	s->o = o;
	s->tag = (uint64_t)getpid() << 32 ^ (app_now_ns() & UINT32_MAX);
	s->lcores = o->lcores;
	if (o->cpus != NULL && strcmp(o->cpus, "none") != 0) {
		rc = parse_cpus(s, o->cpus, err);
		if (rc != 0)
			return rc;
	} else if (o->cpus == NULL && o->socket == NULL && n >= o->lcores) {
		last_cpus(s, all, n);
	}
	for (i = 0; s->pinned && i < n; i++) {
		for (k = 0; k < o->lcores && s->cpus[k] != all[i]; k++)
			;
		if (k == o->lcores)
			s->worker_cpus[s->num_worker_cpus++] = all[i];
	}
	s->crew = (struct perf_crew){o->lcores, s->pinned ? s->cpus : NULL};
	return 0;
}

/* kvferryd of the same build folder. */
static int
find_engine(struct perf_session *s, struct kvf_err *err)
{
	char self[PATH_MAX];
	ssize_t n;
	char *slash;

	if (s->o->engine != NULL) {
		snprintf(s->path, sizeof(s->path), "%s", s->o->engine);
		return 0;
	}
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n <= 0)
		return app_fail(err, KVF_E_SYS, "cannot read /proc/self/exe: use --engine");
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (slash != NULL)
		*slash = '\0';
	n = snprintf(s->path, sizeof(s->path), "%s/../kvferryd/kvferryd", self);
	if ((size_t)n < sizeof(s->path) && access(s->path, X_OK) == 0)
		return 0;
	n = snprintf(s->path, sizeof(s->path), "%s/../sbin/kvferryd", self);
	if ((size_t)n < sizeof(s->path) && access(s->path, X_OK) == 0)
		return 0;
	return app_fail(
		err, KVF_E_NOENT, "no kvferryd next to %.100s: use --engine or --socket", self);
}

static int
ask(const struct perf_session *s, json_t **root, struct kvf_err *err)
{
	char *text = NULL;
	int rc;

	rc = kvf_engine_status(s->socket, STATUS_MS, &text, err);
	if (rc != 0)
		return rc;
	*root = json_loads(text, 0, NULL);
	free(text);
	if (*root == NULL)
		return app_fail(err, KVF_E_PROTO, "the engine's status is not JSON");
	return 0;
}

int
perf_session_start(struct perf_session *s, bool small, struct kvf_err *err)
{
	const struct perf_options *o = s->o;
	json_t *root = NULL, *driver, *lcores;
	const char *name, *detail;
	int rc;

	/* It would inherit what an earlier engine of this process left us with. */
	if (s->pinned)
		perf_pin(NULL, 0);
	s->socket = o->socket;
	if (o->socket == NULL) {
		struct app_engine_config cfg = {
			.who = "kvferry-perf",
			.path = s->path,
			.socket = s->socket_buf,
			.driver = o->driver,
			.lcores = o->lcores,
			.cpus = s->pinned ? s->cpu_list : NULL,
			.args = o->engine_args,
			.no_huge = small,
			.busy = o->busy,
			.quiet = true,
		};

		snprintf(s->socket_buf, sizeof(s->socket_buf), "/tmp/kvferry-perf-%d.sock",
			(int)getpid());
		s->socket = s->socket_buf;
		rc = find_engine(s, err);
		if (rc == 0)
			rc = app_engine_start(&s->engine, &cfg, err);
	} else {
		rc = app_engine_wait(&s->engine, s->socket, ENGINE_WAIT_MS, err);
	}
	if (rc == 0)
		rc = ask(s, &root, err);
	if (rc != 0)
		return rc;
	driver = json_object_get(root, "driver");
	lcores = json_object_get(root, "lcores");
	name = json_string_value(json_object_get(driver, "name"));
	detail = json_string_value(json_object_get(driver, "detail"));
	snprintf(s->driver, sizeof(s->driver), "%s", name != NULL ? name : "?");
	snprintf(s->kernel, sizeof(s->kernel), "%s", detail != NULL ? detail : "?");
	s->pid = (pid_t)json_integer_value(json_object_get(root, "pid"));
	if (o->socket != NULL && json_array_size(lcores) > 0 && json_array_size(lcores) <= 64)
		s->lcores = s->crew.n = (uint32_t)json_array_size(lcores);
	json_decref(root);
	/* The engine is started: it should not inherit this. */
	if (s->num_worker_cpus > 0)
		perf_pin(s->worker_cpus, s->num_worker_cpus);
	return 0;
}

int
perf_session_end(struct perf_session *s, int rc, struct kvf_err *err)
{
	struct kvf_err end;
	int stopped = app_engine_stop(&s->engine, &end);

	if (s->socket == s->socket_buf)
		unlink(s->socket_buf);
	if (rc == 0 && stopped != 0) {
		rc = stopped;
		*err = end;
	}
	return rc;
}

int
perf_session_counters(const struct perf_session *s, struct perf_counters *c, struct kvf_err *err)
{
	json_t *root, *lcores, *lcore, *disp;
	double hz;
	size_t i;
	int rc;

	memset(c, 0, sizeof(*c));
	rc = ask(s, &root, err);
	if (rc != 0)
		return rc;
	lcores = json_object_get(root, "lcores");
	disp = json_object_get(root, "dispatcher");
	hz = json_number_value(json_object_get(root, "tsc_hz"));
	json_array_foreach(lcores, i, lcore)
	{
		c->copy_s += json_number_value(json_object_get(lcore, "copy_cycles"));
		c->busy_s += json_number_value(json_object_get(lcore, "busy_cycles"));
		c->bytes += (uint64_t)json_integer_value(json_object_get(lcore, "bytes"));
		c->copies += (uint64_t)json_integer_value(json_object_get(lcore, "copies"));
	}
	c->runs = (uint64_t)json_integer_value(json_object_get(disp, "runs"));
	c->segments = (uint64_t)json_integer_value(json_object_get(disp, "segments"));
	json_decref(root);
	if (hz <= 0)
		return app_fail(err, KVF_E_PROTO, "the engine's status has no tsc_hz");
	c->copy_s /= hz;
	c->busy_s /= hz;
	return 0;
}
