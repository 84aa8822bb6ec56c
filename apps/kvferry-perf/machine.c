/* SPDX-License-Identifier: BSD-3-Clause */
#include <dirent.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kvferry-perf/machine.h"

#define CALIBRATE_NS 20000000u

static bool
read_number(const char *path, const char *field, uint64_t *value)
{
	bool found = false;
	char line[256];
	FILE *f = fopen(path, "re");

	if (f == NULL)
		return false;
	while (!found && fgets(line, sizeof(line), f) != NULL) {
		size_t skip = field != NULL ? strlen(field) : 0;

		if (field == NULL || strncmp(line, field, skip) == 0)
			found = sscanf(line + skip, "%" SCNu64, value) == 1;
	}
	fclose(f);
	return found;
}

uint64_t
perf_free_hugepages(void)
{
	uint64_t free_pages = 0, reserved = 0, lent;
	const char *got = getenv("KVFERRY_HUGEPAGES");

	read_number("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", NULL, &free_pages);
	read_number("/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", NULL, &reserved);
	free_pages = free_pages > reserved ? free_pages - reserved : 0;
	/* What was set aside for this run; others may be using the rest. */
	if (got != NULL && sscanf(got, "%" SCNu64, &lent) == 1 && lent < free_pages)
		return lent;
	return free_pages;
}

uint64_t
perf_free_memory(void)
{
	uint64_t kib = 0, max, used, bytes;

	read_number("/proc/meminfo", "MemAvailable:", &kib);
	bytes = kib * 1024;
	if (read_number("/sys/fs/cgroup/memory.max", NULL, &max) &&
		read_number("/sys/fs/cgroup/memory.current", NULL, &used)) {
		max = max > used ? max - used : 0;
		if (max < bytes)
			bytes = max;
	}
	return bytes;
}

const char *
perf_cpu_model(void)
{
	static char model[128];
	char line[512], *at, *end;
	FILE *f;

	if (model[0] != '\0')
		return model;
	strcpy(model, "unknown");
	f = fopen("/proc/cpuinfo", "re");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		if (strncmp(line, "model name", 10) != 0 || (at = strchr(line, ':')) == NULL)
			continue;
		at += 1 + (at[1] == ' ');
		end = strchr(at, '\n');
		if (end != NULL)
			*end = '\0';
		snprintf(model, sizeof(model), "%.127s", at);
		break;
	}
	if (f != NULL)
		fclose(f);
	return model;
}

static uint32_t all_cpus[PERF_MAX_CPUS];
static uint32_t num_cpus;

uint32_t
perf_cpus(const uint32_t **cpus)
{
	cpu_set_t set;
	uint32_t i;

	if (num_cpus == 0 && sched_getaffinity(0, sizeof(set), &set) == 0)
		for (i = 0; i < CPU_SETSIZE && i < PERF_MAX_CPUS; i++)
			if (CPU_ISSET(i, &set))
				all_cpus[num_cpus++] = i;
	if (cpus != NULL)
		*cpus = all_cpus;
	return num_cpus;
}

void
perf_pin(const uint32_t *cpus, uint32_t n)
{
	cpu_set_t set;
	uint32_t i;

	if (n == 0)
		n = perf_cpus(&cpus);
	CPU_ZERO(&set);
	for (i = 0; i < n; i++)
		CPU_SET(cpus[i], &set);
	/* Without it the numbers are noisier, not wrong. */
	if (sched_setaffinity(0, sizeof(set), &set) != 0)
		perror("kvferry-perf: sched_setaffinity");
}

bool perf_clock_is_tsc;
static double clock_hz = 1e9;

double
perf_clock_hz(void)
{
	return clock_hz;
}

void
perf_clock_init(void)
{
#if defined(__x86_64__)
	uint64_t t0, t1, c0, c1;
	char line[4096];
	bool good = false;
	FILE *f = fopen("/proc/cpuinfo", "re");

	while (f != NULL && !good && fgets(line, sizeof(line), f) != NULL)
		good = strncmp(line, "flags", 5) == 0 && strstr(line, " constant_tsc") != NULL &&
		       strstr(line, " nonstop_tsc") != NULL && strstr(line, " rdtscp") != NULL;
	if (f != NULL)
		fclose(f);
	if (!good)
		return;
	perf_clock_is_tsc = true;
	t0 = app_now_ns();
	c0 = perf_clock();
	do {
		t1 = app_now_ns();
		c1 = perf_clock();
	} while (t1 - t0 < CALIBRATE_NS);
	clock_hz = (double)(c1 - c0) * 1e9 / (double)(t1 - t0);
#endif
}

/* Calls fn for each thread of a process. */
static void
each_thread(pid_t pid, void (*fn)(pid_t pid, pid_t tid, void *arg), void *arg)
{
	struct dirent *entry;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir != NULL && (entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.')
			fn(pid, (pid_t)atoi(entry->d_name), arg);
	if (dir != NULL)
		closedir(dir);
}

static void
add_schedstat(pid_t pid, pid_t tid, void *arg)
{
	uint64_t ns;
	char path[96];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", (int)pid, (int)tid);
	if (read_number(path, NULL, &ns))
		*(double *)arg += (double)ns / 1e9;
}

double
perf_cpu_seconds(pid_t pid)
{
	unsigned long user, sys;
	double exact = 0;
	char path[64], text[1024], *at;
	FILE *f;
	size_t n;

	/* In nanoseconds where the kernel keeps them, else in ticks. */
	each_thread(pid, add_schedstat, &exact);
	if (exact > 0)
		return exact;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (f == NULL)
		return -1;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	at = strrchr(text, ')');
	if (at == NULL || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
				  &user, &sys) != 2)
		return -1;
	return (double)(user + sys) / (double)sysconf(_SC_CLK_TCK);
}

static void
add_counter(pid_t pid, pid_t tid, void *arg)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_HW_CPU_CYCLES,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};
	struct perf_cycles *c = arg;
	int fd;

	(void)pid;
	if (c->n == sizeof(c->fd) / sizeof(c->fd[0]))
		return;
	fd = (int)syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd >= 0)
		c->fd[c->n++] = fd;
}

void
perf_cycles_open(struct perf_cycles *c, pid_t pid)
{
	c->n = 0;
	each_thread(pid, add_counter, c);
}

bool
perf_cycles_read(const struct perf_cycles *c, uint64_t *cycles)
{
	uint64_t one;
	uint32_t i;

	*cycles = 0;
	for (i = 0; i < c->n; i++) {
		if (read(c->fd[i], &one, sizeof(one)) != (ssize_t)sizeof(one))
			return false;
		*cycles += one;
	}
	return c->n > 0;
}

void
perf_cycles_close(struct perf_cycles *c)
{
	uint32_t i;

	for (i = 0; i < c->n; i++)
		close(c->fd[i]);
	c->n = 0;
}

static int
compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct perf_stat
perf_stat(double *v, size_t n)
{
	if (n == 0)
		return (struct perf_stat){0};
	qsort(v, n, sizeof(*v), compare);
	return (struct perf_stat){v[0], (v[(n - 1) / 2] + v[n / 2]) / 2, v[n - 1]};
}

double
perf_percentile(const double *sorted, size_t n, double p)
{
	size_t i = (size_t)((double)n * p);

	return n == 0 ? 0 : sorted[i >= n ? n - 1 : i];
}
