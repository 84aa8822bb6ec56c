/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copy kernels alone, by piece size: the cpu driver through drivers/copy.h, one channel a thread,
 * no engine. A driver that needs DPDK's environment is measured through kvferryd, with a room whose
 * rows are the pieces.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fail.h"
#include "common/pattern.h"
#include "drivers/copy.h"
#include "kvferry-perf/cases.h"
#include "kvferry-perf/report.h"

#define ITER_BYTES   (UINT64_C(64) << 20) /* copied in one iteration, all threads */
#define LEAST_BYTES  (UINT64_C(16) << 20) /* of a buffer */
#define ROW_GROUP    (40u * 1024u)        /* of one 2-D copy with --step */
#define LANES        8u
#define ENGINE_PAGES 32u
#define SPOILT       0xa5

/* Pieces of one iteration, all threads. Scattered: piece i goes from place (i * a) % n to place
 * (i * b) % n, a and b odd, n a power of two. Rows: LANES regions side by side. */
struct work {
	uint64_t piece;
	uint64_t step; /* 0: scattered */
	uint64_t places;
	uint64_t first; /* rotates over the buffers */
	uint64_t num;   /* pieces; rows: 2-D copies */
	uint64_t rows;
	uint8_t *src, *dst;
	uint64_t src_bytes, dst_bytes;
};

struct bench {
	const struct perf_options *o;
	struct perf_session session; /* CPUs only */
	struct kvf_pool *pool[2];
	struct kvf_copy_drv *drv;
	struct kvf_copy_caps caps;
	struct work w;
	pthread_barrier_t start;
	uint64_t began[64], ended[64];
	int error[64];
	double *seconds, *gbps, *ratio, *limit;
	uint64_t limit_bytes, limit_at;
	uint64_t mismatches;
};

static void
make_copy(const struct work *w, uint64_t i, struct kvf_copy *c)
{
	uint64_t k = w->first + i, lane, region, at;

	if (w->step == 0) {
		c->src = w->src + (k * 0x9e3779b1u & (w->places - 1)) * w->piece;
		c->dst = w->dst + (k * 0x85ebca6bu & (w->places - 1)) * w->piece;
		c->rows = 1;
	} else {
		/* `places` rows in each lane; a 2-D copy of `rows` of them in each lane in turn. */
		lane = k % LANES;
		region = w->places / w->rows;
		at = k / LANES % region * w->rows;
		c->src = w->src + (lane * w->places + at) * w->step * w->piece;
		c->dst = w->dst + (lane * w->places + at) * w->piece;
		c->rows = w->rows;
	}
	c->row_bytes = w->piece;
	c->src_stride = w->piece * (w->step == 0 ? 1 : w->step);
	c->dst_stride = w->piece;
}

static int
copy_part(struct bench *b, struct kvf_copy_channel *ch, uint64_t i, uint64_t end)
{
	uint32_t batch = b->w.step == 0 ? KVF_COPY_BATCH_MAX : LANES, n;
	struct kvf_copy copies[KVF_COPY_BATCH_MAX];
	struct kvf_copy_done done[1];
	int rc;

	while (i < end) {
		for (n = 0; n < batch && i < end; n++, i++)
			make_copy(&b->w, i, &copies[n]);
		rc = kvf_copy_cpu.submit(ch, copies, n, KVF_COPY_STREAM, i);
		if (rc != 0)
			return rc;
		while (kvf_copy_cpu.poll(ch, done, 1) > 0)
			if (done[0].error != 0)
				return done[0].error;
	}
	return 0;
}

struct thread {
	struct bench *b;
	uint32_t index;
	pthread_t id;
};

static void *
run_thread(void *arg)
{
	struct thread *t = arg;
	struct bench *b = t->b;
	uint32_t n = b->session.crew.n;
	struct kvf_copy_channel *ch = NULL;

	if (b->session.crew.cpus != NULL)
		perf_pin(&b->session.crew.cpus[t->index], 1);
	b->error[t->index] = kvf_copy_cpu.channel_open(b->drv, &ch, NULL);
	pthread_barrier_wait(&b->start);
	b->began[t->index] = app_now_ns();
	if (b->error[t->index] == 0)
		b->error[t->index] =
			copy_part(b, ch, b->w.num * t->index / n, b->w.num * (t->index + 1) / n);
	b->ended[t->index] = app_now_ns();
	if (ch != NULL)
		kvf_copy_cpu.channel_close(ch);
	return NULL;
}

static int
run_copy(struct bench *b, double *seconds, struct kvf_err *err)
{
	struct thread t[64];
	uint64_t first = UINT64_MAX, last = 0;
	uint32_t n = b->session.crew.n, i;

	pthread_barrier_init(&b->start, NULL, n);
	for (i = 0; i < n; i++) {
		t[i] = (struct thread){.b = b, .index = i};
		/* The barrier waits for all: a thread short is the end. */
		if (pthread_create(&t[i].id, NULL, run_thread, &t[i]) != 0)
			abort();
	}
	for (i = 0; i < n; i++) {
		pthread_join(t[i].id, NULL);
		if (b->began[i] < first)
			first = b->began[i];
		if (b->ended[i] > last)
			last = b->ended[i];
	}
	pthread_barrier_destroy(&b->start);
	for (i = 0; i < n; i++)
		if (b->error[i] != 0)
			return app_fail(err, b->error[i], "the driver failed: %s",
				kvf_error_name(b->error[i]));
	*seconds = (double)(last - first) / 1e9;
	return 0;
}

static uint64_t
check_copies(struct bench *b)
{
	uint64_t bad = 0, i, row, k;
	struct kvf_copy c;

	for (i = 0; i < b->w.num; i++) {
		make_copy(&b->w, i, &c);
		for (row = 0; row < c.rows; row++) {
			const uint8_t *src = c.src + row * c.src_stride;
			uint8_t *dst = c.dst + row * c.dst_stride;

			if (memcmp(src, dst, c.row_bytes) != 0)
				for (k = 0; k < c.row_bytes; k++)
					bad += src[k] != dst[k];
			memset(dst, SPOILT, c.row_bytes);
		}
	}
	/* Nothing else was written. */
	if (b->w.dst[0] != SPOILT || memcmp(b->w.dst, b->w.dst + 1, b->w.dst_bytes - 1) != 0)
		for (k = 0; k < b->w.dst_bytes; k++)
			bad += b->w.dst[k] != SPOILT;
	return bad;
}

static int
set_work(struct bench *b, uint64_t piece, struct kvf_err *err)
{
	struct work *w = &b->w;
	uint64_t most;

	*w = (struct work){.piece = piece, .step = b->o->step};
	w->src = kvf_pool_addr(b->pool[0]);
	w->dst = kvf_pool_addr(b->pool[1]);
	w->src_bytes = kvf_pool_length(b->pool[0]);
	w->dst_bytes = kvf_pool_length(b->pool[1]);
	if (w->step == 0) {
		w->rows = 1;
		for (w->places = 1; w->places * 2 * piece <= w->dst_bytes; w->places *= 2)
			;
		w->num = ITER_BYTES / piece;
	} else {
		w->rows = ROW_GROUP / piece == 0 ? 1 : ROW_GROUP / piece;
		w->places = w->src_bytes / LANES / (piece * w->step) / w->rows * w->rows;
		if (w->places == 0)
			return app_fail(err, KVF_E_INVAL,
				"pieces=%" PRIu64 " with step=%" PRIu64
				" need more than footprint=%" PRIu64,
				piece, w->step, b->o->footprint);
		w->num = ITER_BYTES / piece / w->rows / LANES * LANES;
	}
	/* No place twice in an iteration. */
	most = w->step == 0 ? w->places : w->places / w->rows * LANES;
	if (w->num > most / 2)
		w->num = most / 2;
	if (w->num == 0)
		w->num = 1;
	return 0;
}

static double
run_memcpy(struct bench *b)
{
	uint64_t at;

	if (b->limit_at + b->limit_bytes > b->w.dst_bytes)
		b->limit_at = 0;
	at = b->limit_at;
	b->limit_at += b->limit_bytes;
	return perf_memcpy(&b->session.crew, b->w.dst + at, b->w.src + at, b->limit_bytes);
}

static int
run_iterations(struct bench *b, uint32_t n, struct kvf_err *err)
{
	uint64_t bytes = b->w.num * b->w.rows * b->w.piece;
	uint32_t i;
	int rc = 0;

	for (i = 0; i < n && rc == 0; i++) {
		if ((b->o->baselines & PERF_BASE_MEMCPY) != 0)
			b->limit[i] = run_memcpy(b);
		if (b->o->check)
			memset(b->w.dst, SPOILT, b->w.dst_bytes);
		rc = run_copy(b, &b->seconds[i], err);
		if (rc != 0)
			break;
		b->gbps[i] = (double)bytes / b->seconds[i] / 1e9;
		if (b->limit[i] > 0)
			b->ratio[i] = b->gbps[i] / ((double)b->limit_bytes / b->limit[i] / 1e9);
		if (b->o->check)
			b->mismatches += check_copies(b);
		b->w.first += b->w.num;
	}
	return rc;
}

static void
report_copy(struct bench *b, uint64_t mismatches)
{
	const struct perf_options *o = b->o;
	json_t *report = perf_report(o, NULL, NULL), *base;
	struct perf_stat sec, gbps, ratio, limit;
	uint32_t i;

	sec = perf_stat(b->seconds, o->num_iter);
	gbps = perf_stat(b->gbps, o->num_iter);
	ratio = perf_stat(b->ratio, o->num_iter);
	perf_report_count(report, "memory_page", kvf_pool_page_size(b->pool[0]));
	perf_report_text(report, "driver", kvf_copy_cpu.name);
	perf_report_text(report, "kernel", b->caps.detail);
	perf_report_count(report, "lcores", b->session.crew.n);
	perf_report_count(report, "piece", b->w.piece);
	perf_report_text(report, "through", "driver");
	perf_report_text(report, "pattern", b->w.step == 0 ? "scattered" : "rows");
	perf_report_count(report, "bytes", b->w.num * b->w.rows * b->w.piece);
	perf_report_count(report, "copies", b->w.num);
	perf_report_count(report, "footprint_bytes", b->w.src_bytes + b->w.dst_bytes);
	perf_report_stat(report, "seconds", &sec, 1);
	perf_report_real(report, "gbps", gbps.median);
	if ((o->baselines & PERF_BASE_MEMCPY) != 0) {
		limit = perf_stat(b->limit, o->num_iter);
		base = json_object();
		perf_report_count(base, "bytes", b->limit_bytes);
		perf_report_stat(base, "seconds", &limit, 1);
		perf_report_real(base, "gbps", (double)b->limit_bytes / limit.median / 1e9);
		json_object_set(report, "limit_gbps", json_object_get(base, "gbps"));
		perf_report_count(report, "limit_bytes", b->limit_bytes);
		perf_report_real(report, "ratio", ratio.median);
		json_object_set_new(report, "baselines", json_pack("{s:o}", "memcpy", base));
	}
	for (i = 0; i < o->num_iter; i++)
		b->seconds[i] *= 1e6;
	perf_report_percentiles(report, b->seconds, o->num_iter);
	if (o->check)
		perf_report_count(report, "mismatches", mismatches);
	perf_report_out(o, report);
}

static int
measure_piece(struct bench *b, uint64_t piece, struct kvf_err *err)
{
	uint64_t before = b->mismatches;
	int rc;

	rc = set_work(b, piece, err);
	if (rc == 0)
		rc = run_iterations(b, b->o->warmup_iter, err);
	if (rc == 0)
		rc = run_iterations(b, b->o->num_iter, err);
	if (rc == 0)
		report_copy(b, b->mismatches - before);
	return rc;
}

static int
make_pools(struct bench *b, struct kvf_err *err)
{
	static const char *const names[2] = {"perf-src", "perf-dst"};
	uint64_t bytes = b->o->footprint / 2, huge = perf_free_hugepages() << 21, i;
	struct kvf_pool_config cfg = {.numa_node = -1};
	uint8_t *src;
	int rc;

	if (bytes < LEAST_BYTES)
		bytes = LEAST_BYTES;
	bytes = bytes / (2u << 20) * (2u << 20);
	if (b->o->memory == PERF_MEMORY_SMALL)
		cfg.page_size = 4096;
	else if (b->o->memory == PERF_MEMORY_AUTO && huge < 2 * bytes)
		cfg.page_size = huge >= 2 * LEAST_BYTES ? 0 : 4096;
	/* Rather a smaller footprint than small pages; it is reported. */
	if (cfg.page_size == 0 && b->o->memory == PERF_MEMORY_AUTO && huge < 2 * bytes)
		bytes = huge / 2 / (2u << 20) * (2u << 20);
	if (cfg.page_size == 4096 && b->o->memory == PERF_MEMORY_AUTO)
		fprintf(stderr,
			"kvferry-perf: WARNING: needed=%" PRIu64 " 2 MiB pages, free=%" PRIu64
			": the buffers are on 4 KiB pages, which is slower\n",
			2 * bytes >> 21, huge >> 21);
	cfg.length = bytes;
	for (i = 0; i < 2; i++) {
		cfg.name = names[i];
		rc = kvf_pool_create(&cfg, &b->pool[i], err);
		if (rc != 0)
			return rc;
	}
	src = kvf_pool_addr(b->pool[0]);
	if (b->o->check)
		pattern_fill(src, pattern_mix(b->o->seed), 0, bytes);
	b->limit_bytes = bytes < PERF_LIMIT_BYTES ? bytes : PERF_LIMIT_BYTES;
	return 0;
}

static int
copy_cpu(struct bench *b, struct kvf_err *err)
{
	const char *args = strchr(b->o->driver, ':');
	uint32_t n = b->o->num_iter > b->o->warmup_iter ? b->o->num_iter : b->o->warmup_iter, i;
	int rc;

	b->seconds = calloc(4 * (size_t)n, sizeof(double));
	if (b->seconds == NULL)
		return app_fail(err, KVF_E_NOMEM, "no memory for num-iter=%u", n);
	b->gbps = b->seconds + n;
	b->ratio = b->seconds + 2 * n;
	b->limit = b->seconds + 3 * n;
	rc = perf_session_cpus(&b->session, b->o, err);
	if (rc == 0)
		rc = kvf_copy_cpu.open(args != NULL ? args + 1 : NULL, &b->drv, &b->caps, err);
	if (rc != 0)
		return rc;
	rc = make_pools(b, err);
	for (i = 0; i < b->o->num_pieces && rc == 0; i++)
		rc = measure_piece(b, b->o->pieces[i], err);
	kvf_copy_cpu.close(b->drv);
	kvf_pool_destroy(b->pool[0]);
	kvf_pool_destroy(b->pool[1]);
	return rc;
}

static int
copy_engine(const struct perf_options *o, uint64_t *mismatches, struct kvf_err *err)
{
	struct perf_options one = *o;
	char model[32];
	uint32_t i;
	int rc = 0;

	for (i = 0; i < o->num_pieces && rc == 0; i++) {
		snprintf(model, sizeof(model), "row:%" PRIu64, o->pieces[i]);
		one.model = model;
		one.layers = LANES;
		one.src_page_size = one.dst_page_size = 1;
		one.tokens = ITER_BYTES / LANES / o->pieces[i];
		if (one.tokens > 65536)
			one.tokens = 65536;
		if (one.tokens == 0)
			one.tokens = 1;
		if (one.tokens * LANES * o->pieces[i] > o->footprint)
			one.tokens = o->footprint / LANES / o->pieces[i] + 1;
		rc = perf_bulk_pieces(&one, o->pieces[i], mismatches, err);
	}
	return rc;
}

int
perf_copy(const struct perf_options *o, uint64_t *mismatches, struct kvf_err *err)
{
	bool cpu =
		strncmp(o->driver, "cpu", 3) == 0 && (o->driver[3] == '\0' || o->driver[3] == ':');
	struct bench b = {.o = o};
	int rc;

	if (o->need_hugepages) {
		printf("%" PRIu64 "\n", o->footprint / (2u << 20) + ENGINE_PAGES);
		return 0;
	}
	if (!cpu || o->socket != NULL)
		return copy_engine(o, mismatches, err);
	rc = copy_cpu(&b, err);
	free(b.seconds);
	*mismatches += b.mismatches;
	return rc;
}
