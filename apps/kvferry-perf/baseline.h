/* SPDX-License-Identifier: BSD-3-Clause */
/* The same bytes moved by ordinary means, from a process that maps both pools. */
#ifndef KVFERRY_PERF_BASELINE_H
#define KVFERRY_PERF_BASELINE_H

#include <stdint.h>
#include <sys/types.h>

#include "kvferry-perf/field.h"

/* Threads that stand in for copy lcores, on their CPUs. */
struct perf_crew {
	uint32_t n;
	const uint32_t *cpus; /* n of them, or NULL: not pinned */
};

/* glibc's memcpy of one contiguous block cut into a part for each thread. Seconds; < 0 on failure.
 */
double perf_memcpy(const struct perf_crew *crew, uint8_t *dst, const uint8_t *src, uint64_t bytes);

/* memcpy of each piece, dealt to the threads in blocks. */
double perf_rows(const struct perf_crew *crew, const struct perf_pieces *pieces);

/* process_vm_writev of the pieces into the decode processes, pids by decode rank. < 0: the kernel
 * does not allow it. */
double perf_cma(const struct perf_crew *crew, const struct perf_pieces *pieces, const pid_t *pids);

#endif
