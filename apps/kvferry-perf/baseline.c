/* SPDX-License-Identifier: BSD-3-Clause */
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "kvferry-perf/baseline.h"
#include "kvferry-perf/machine.h"

#define CMA_PIECES 512u /* of one call; IOV_MAX is 1024 */

struct job {
	const struct perf_crew *crew;
	pthread_barrier_t start;
	bool (*work)(struct job *job, uint32_t index);
	uint8_t *dst;
	const uint8_t *src;
	uint64_t bytes;
	const struct perf_pieces *pieces;
	const pid_t *pids;
	uint64_t began[64], ended[64];
	bool ok[64];
};

struct worker {
	struct job *job;
	uint32_t index;
	pthread_t thread;
};

static void *
run(void *arg)
{
	struct worker *w = arg;
	struct job *job = w->job;

	if (job->crew->cpus != NULL)
		perf_pin(&job->crew->cpus[w->index], 1);
	pthread_barrier_wait(&job->start);
	job->began[w->index] = app_now_ns();
	job->ok[w->index] = job->work(job, w->index);
	job->ended[w->index] = app_now_ns();
	return NULL;
}

static double
run_job(struct job *job)
{
	struct worker w[64];
	uint32_t n = job->crew->n, i;
	uint64_t first = UINT64_MAX, last = 0;
	bool ok = true;

	pthread_barrier_init(&job->start, NULL, n);
	for (i = 0; i < n; i++) {
		w[i] = (struct worker){.job = job, .index = i};
		/* The barrier waits for all: a thread short is the end. */
		if (pthread_create(&w[i].thread, NULL, run, &w[i]) != 0)
			abort();
	}
	for (i = 0; i < n; i++) {
		pthread_join(w[i].thread, NULL);
		ok = ok && job->ok[i];
		if (job->began[i] < first)
			first = job->began[i];
		if (job->ended[i] > last)
			last = job->ended[i];
	}
	pthread_barrier_destroy(&job->start);
	return ok ? (double)(last - first) / 1e9 : -1;
}

static bool
work_memcpy(struct job *job, uint32_t index)
{
	uint64_t part = job->bytes / job->crew->n / 64 * 64, at = part * index;

	memcpy(job->dst + at, job->src + at, index + 1 == job->crew->n ? job->bytes - at : part);
	return true;
}

double
perf_memcpy(const struct perf_crew *crew, uint8_t *dst, const uint8_t *src, uint64_t bytes)
{
	struct job job = {
		.crew = crew, .work = work_memcpy, .dst = dst, .src = src, .bytes = bytes};

	return run_job(&job);
}

static void
my_part(const struct job *job, uint32_t index, uint64_t *from, uint64_t *to)
{
	uint64_t n = job->pieces->num;

	*from = n * index / job->crew->n;
	*to = n * (index + 1) / job->crew->n;
}

static bool
work_rows(struct job *job, uint32_t index)
{
	uint64_t i, to;

	my_part(job, index, &i, &to);
	for (; i < to; i++)
		memcpy(job->pieces->piece[i].dst, job->pieces->piece[i].src,
			job->pieces->piece[i].bytes);
	return true;
}

double
perf_rows(const struct perf_crew *crew, const struct perf_pieces *pieces)
{
	struct job job = {.crew = crew, .work = work_rows, .pieces = pieces};

	return run_job(&job);
}

static bool
work_cma(struct job *job, uint32_t index)
{
	struct iovec from[CMA_PIECES], to[CMA_PIECES];
	const struct perf_piece *p = job->pieces->piece;
	uint64_t i, end, n, bytes;

	my_part(job, index, &i, &end);
	while (i < end) {
		uint32_t rank = p[i].dst_rank;

		for (n = bytes = 0; n < CMA_PIECES && i + n < end && p[i + n].dst_rank == rank;
			n++) {
			from[n] = (struct iovec){(void *)(uintptr_t)p[i + n].src, p[i + n].bytes};
			/* Forked after the pools were mapped: same address there. */
			to[n] = (struct iovec){p[i + n].dst, p[i + n].bytes};
			bytes += p[i + n].bytes;
		}
		if (process_vm_writev(job->pids[rank], from, n, to, n, 0) != (ssize_t)bytes)
			return false;
		i += n;
	}
	return true;
}

double
perf_cma(const struct perf_crew *crew, const struct perf_pieces *pieces, const pid_t *pids)
{
	struct job job = {.crew = crew, .work = work_cma, .pieces = pieces, .pids = pids};

	return run_job(&job);
}
