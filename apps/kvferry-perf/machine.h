/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine: what it is, its memory, its clocks and counters; and plain statistics. */
#ifndef KVFERRY_PERF_MACHINE_H
#define KVFERRY_PERF_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "common/clock.h"

#define PERF_LIMIT_BYTES (UINT64_C(256) << 20) /* block of the contiguous copy */
#define PERF_MAX_CPUS    1024u

uint64_t perf_free_hugepages(void); /* 2 MiB ones that this run may take */
uint64_t perf_free_memory(void);    /* bytes */
const char *perf_cpu_model(void);

/* CPUs that this process may use, before perf_pin() changed that. */
uint32_t perf_cpus(const uint32_t **cpus);
/* The calling thread (and what it forks) runs on these only; n 0: on all. */
void perf_pin(const uint32_t *cpus, uint32_t n);

/*
 * A cheap clock that all processes of the host agree on: the TSC where it is constant, else
 * CLOCK_MONOTONIC.
 */
void perf_clock_init(void);
double perf_clock_hz(void);
extern bool perf_clock_is_tsc;

static inline uint64_t
perf_clock(void)
{
#if defined(__x86_64__)
	unsigned int aux;

	if (perf_clock_is_tsc)
		return __rdtscp(&aux);
#endif
	return app_now_ns();
}

static inline void
perf_pause(void)
{
#if defined(__x86_64__)
	_mm_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Seconds of CPU time that all threads of a process had, or -1. */
double perf_cpu_seconds(pid_t pid);

/* Core cycles of all threads of a process, where the machine lets us count them. */
struct perf_cycles {
	int fd[64];
	uint32_t n; /* 0: cannot be read */
};
void perf_cycles_open(struct perf_cycles *c, pid_t pid);
bool perf_cycles_read(const struct perf_cycles *c, uint64_t *cycles);
void perf_cycles_close(struct perf_cycles *c);

/* A sample of numbers; sorts them. */
struct perf_stat {
	double min, median, max;
};
struct perf_stat perf_stat(double *v, size_t n);
double perf_percentile(const double *sorted, size_t n, double p);

#endif
