/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/err.h"
#include "drivers/mixed/mixed.h"

#define REGION_BYTES (UINT64_C(8) << 20) /* of each side, for timing */
#define BATCH        64u
#define ROUNDS       5u
#define LIMIT_NS     UINT64_C(1000000000) /* a batch that takes longer: the device is dead */
#define NEVER        UINT64_MAX

enum {
	SMALL,
	LARGE,
	WAYS
};

static const struct kvf_copy_ops *way_ops[WAYS] = {&kvf_copy_cpu, &kvf_copy_dmadev};

static const uint32_t sizes[] = {256, 1024, 4096, 16384, 65536};
#define NUM_SIZES (sizeof(sizes) / sizeof(sizes[0]))

struct kvf_copy_drv {
	const struct kvf_copy_ops *ops[WAYS];
	struct kvf_copy_drv *way[WAYS];
	uint32_t depth;
	uint64_t from; /* average bytes of a piece from which on a batch goes to the device */
};

struct kvf_copy_channel {
	struct kvf_copy_drv *drv;
	struct kvf_copy_channel *way[WAYS];
	uint32_t in_flight;
};

void
kvf_copy_mixed_over(const struct kvf_copy_ops *small, const struct kvf_copy_ops *large)
{
	way_ops[SMALL] = small;
	way_ops[LARGE] = large;
}

static uint64_t
now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int
time_batch(const struct kvf_copy_ops *ops, struct kvf_copy_channel *ch,
	const struct kvf_copy *copies, uint32_t n, uint64_t *ns, struct kvf_err *err)
{
	struct kvf_copy_done done;
	uint64_t start = now_ns();
	int rc = ops->submit(ch, copies, n, KVF_COPY_STREAM, 0);

	if (rc != 0)
		return kvf_fail(err, rc, "mixed: driver=%s does not take a batch: %s", ops->name,
			kvf_error_name(rc));
	while (ops->poll(ch, &done, 1) == 0)
		if (now_ns() - start > LIMIT_NS)
			return kvf_fail(err, KVF_E_DEVICE,
				"mixed: driver=%s did not finish a batch within ns=%" PRIu64,
				ops->name, LIMIT_NS);
	*ns = now_ns() - start;
	if (done.error != 0)
		return kvf_fail(err, done.error, "mixed: driver=%s failed a copy", ops->name);
	return 0;
}

/* The best of some rounds, with pieces that lie apart. */
static int
time_size(const struct kvf_copy_ops *ops, struct kvf_copy_channel *ch, uint8_t *region,
	uint32_t size, uint64_t *best, struct kvf_err *err)
{
	struct kvf_copy copies[BATCH];
	uint64_t places = REGION_BYTES / size, ns = 0;
	uint32_t n = places < BATCH ? (uint32_t)places : BATCH, i, k;
	int rc = 0;

	*best = UINT64_MAX;
	for (k = 0; k < ROUNDS && rc == 0; k++) {
		for (i = 0; i < n; i++) {
			uint64_t at = (i * 7u + k) % places * size;

			copies[i] = (struct kvf_copy){
				region + at, region + REGION_BYTES + at, 1, size, size, size};
		}
		rc = time_batch(ops, ch, copies, n, &ns, err);
		if (rc == 0 && ns < *best)
			*best = ns;
	}
	return rc;
}

/* The smallest size from which on the device is never slower. */
static int
find_crossover(struct kvf_copy_drv *d, uint8_t *region, struct kvf_err *err)
{
	struct kvf_copy_channel *ch[WAYS] = {NULL, NULL};
	uint64_t ns[WAYS];
	size_t i;
	int rc = 0, w;

	for (w = 0; w < WAYS && rc == 0; w++)
		rc = d->ops[w]->channel_open(d->way[w], &ch[w], err);
	d->from = NEVER;
	for (i = NUM_SIZES; i-- > 0 && rc == 0;) {
		for (w = 0; w < WAYS && rc == 0; w++)
			rc = time_size(d->ops[w], ch[w], region, sizes[i], &ns[w], err);
		if (rc != 0 || ns[LARGE] > ns[SMALL])
			break;
		d->from = sizes[i];
	}
	/* Of a device that hangs nothing can be given back. */
	for (w = 0; w < WAYS && rc != KVF_E_DEVICE; w++)
		if (ch[w] != NULL)
			d->ops[w]->channel_close(ch[w]);
	return rc;
}

static int
measure(struct kvf_copy_drv *d, struct kvf_err *err)
{
	void *handle[WAYS] = {NULL, NULL};
	struct kvf_err late;
	uint8_t *region;
	int rc = 0, w;

	region = mmap(NULL, 2 * REGION_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (region == MAP_FAILED)
		return kvf_fail(err, KVF_E_NOMEM,
			"mixed: no memory to measure with, bytes=%" PRIu64, 2 * REGION_BYTES);
	memset(region, 1, 2 * REGION_BYTES);
	for (w = 0; w < WAYS && rc == 0; w++)
		rc = d->ops[w]->map(d->way[w], region, 2 * REGION_BYTES, 4096, &handle[w], err);
	if (rc == 0)
		rc = find_crossover(d, region, err);
	if (rc == KVF_E_DEVICE)
		return rc; /* it may still write there: the memory stays */
	for (w = 0; w < WAYS; w++)
		if (handle[w] != NULL && d->ops[w]->unmap(d->way[w], handle[w], &late) != 0 &&
			rc == 0) {
			*err = late;
			rc = late.code;
		}
	munmap(region, 2 * REGION_BYTES);
	return rc;
}

/* *devices: what is left of the arguments for the device's driver; NULL: nothing. */
static int
parse(const char *args, struct kvf_copy_drv *d, const char **devices, struct kvf_err *err)
{
	const char *p;

	*devices = args != NULL && args[0] != '\0' ? args : NULL;
	if (*devices == NULL || strncmp(args, "from=", 5) != 0)
		return 0;
	for (p = args + 5; *p >= '0' && *p <= '9'; p++)
		if (kvf_mul_overflows(d->from, 10, &d->from) ||
			kvf_add_overflows(d->from, (uint64_t)(*p - '0'), &d->from))
			break;
	if (p == args + 5 || (*p != '\0' && *p != ',') || d->from == 0)
		return kvf_fail(err, KVF_E_DRIVER,
			"mixed: %.*s: a number of bytes from 1 to %" PRIu64 " is needed",
			(int)strcspn(args, ","), args, UINT64_MAX);
	*devices = *p == ',' && p[1] != '\0' ? p + 1 : NULL;
	return 0;
}

static void
describe(const struct kvf_copy_drv *d, bool measured, const struct kvf_copy_caps *large,
	struct kvf_copy_caps *caps)
{
	const char *how = measured ? "measured" : "given";

	if (measured && d->from == NEVER)
		snprintf(caps->detail, sizeof(caps->detail),
			"%s alone: %s is slower up to bytes=%u (measured); %.40s",
			d->ops[SMALL]->name, d->ops[LARGE]->name, sizes[NUM_SIZES - 1],
			large->detail);
	else
		snprintf(caps->detail, sizeof(caps->detail),
			"%s, %s for pieces from bytes=%" PRIu64 " (%s); %.40s", d->ops[SMALL]->name,
			d->ops[LARGE]->name, d->from, how, large->detail);
}

static void
mixed_close(struct kvf_copy_drv *d)
{
	int w;

	for (w = 0; w < WAYS; w++)
		if (d->way[w] != NULL)
			d->ops[w]->close(d->way[w]);
	free(d);
}

static int
mixed_open(const char *args, struct kvf_copy_drv **drv, struct kvf_copy_caps *caps,
	struct kvf_err *err)
{
	struct kvf_copy_drv *d = calloc(1, sizeof(*d));
	struct kvf_copy_caps of[WAYS];
	const char *devices;
	bool given;
	int rc, w;

	*drv = NULL;
	if (d == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "mixed: out of memory, bytes=%zu", sizeof(*d));
	rc = parse(args, d, &devices, err);
	for (w = 0; w < WAYS && rc == 0; w++) {
		d->ops[w] = way_ops[w];
		rc = d->ops[w]->open(w == LARGE ? devices : NULL, &d->way[w], &of[w], err);
	}
	given = d->from != 0;
	if (rc == 0 && !given)
		rc = measure(d, err);
	if (rc != 0) {
		if (rc != KVF_E_DEVICE)
			mixed_close(d);
		return rc;
	}
	*caps = of[LARGE];
	if (of[SMALL].channel_depth < caps->channel_depth)
		caps->channel_depth = of[SMALL].channel_depth;
	if (of[SMALL].max_channels < caps->max_channels)
		caps->max_channels = of[SMALL].max_channels;
	d->depth = caps->channel_depth;
	describe(d, !given, &of[LARGE], caps);
	*drv = d;
	return 0;
}

/* A core copies whatever is mapped; only the device is told. */
static int
mixed_map(struct kvf_copy_drv *d, void *base, uint64_t length, uint64_t page_size, void **handle,
	struct kvf_err *err)
{
	return d->ops[LARGE]->map(d->way[LARGE], base, length, page_size, handle, err);
}

static int
mixed_unmap(struct kvf_copy_drv *d, void *handle, struct kvf_err *err)
{
	return d->ops[LARGE]->unmap(d->way[LARGE], handle, err);
}

static int
mixed_channel_open(struct kvf_copy_drv *d, struct kvf_copy_channel **ch, struct kvf_err *err)
{
	struct kvf_copy_channel *c = calloc(1, sizeof(*c));
	int rc = 0, w;

	*ch = NULL;
	if (c == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "mixed: out of memory, bytes=%zu", sizeof(*c));
	c->drv = d;
	for (w = 0; w < WAYS && rc == 0; w++)
		rc = d->ops[w]->channel_open(d->way[w], &c->way[w], err);
	if (rc != 0) {
		if (c->way[SMALL] != NULL)
			d->ops[SMALL]->channel_close(c->way[SMALL]);
		free(c);
		return rc;
	}
	*ch = c;
	return 0;
}

static void
mixed_channel_close(struct kvf_copy_channel *c)
{
	int w;

	for (w = 0; w < WAYS; w++)
		c->drv->ops[w]->channel_close(c->way[w]);
	free(c);
}

/* Are the pieces large, on average? Rows that follow each other on both sides are one piece. */
static bool
large(const struct kvf_copy_drv *d, const struct kvf_copy *copies, uint32_t n)
{
	uint64_t bytes = 0, pieces = 0;
	uint32_t i;

	for (i = 0; i < n; i++) {
		const struct kvf_copy *c = &copies[i];

		bytes += c->rows * c->row_bytes;
		pieces += c->src_stride == c->row_bytes && c->dst_stride == c->row_bytes ? 1
											 : c->rows;
	}
	return bytes / d->from >= pieces;
}

static int
mixed_submit(struct kvf_copy_channel *c, const struct kvf_copy *copies, uint32_t n, uint32_t flags,
	uint64_t tag)
{
	int w, rc;

	if (c->in_flight == c->drv->depth)
		return KVF_E_AGAIN;
	w = large(c->drv, copies, n) ? LARGE : SMALL;
	rc = c->drv->ops[w]->submit(c->way[w], copies, n, flags, tag);
	if (rc == 0)
		c->in_flight++;
	return rc;
}

static uint32_t
mixed_poll(struct kvf_copy_channel *c, struct kvf_copy_done *done, uint32_t max)
{
	uint32_t n = 0;
	int w;

	for (w = WAYS; w-- > 0 && n < max;)
		n += c->drv->ops[w]->poll(c->way[w], done + n, max - n);
	c->in_flight -= n;
	return n;
}

static void
mixed_counters(const struct kvf_copy_channel *c, uint64_t *bytes, uint64_t *copies)
{
	uint64_t b, n;
	int w;

	*bytes = *copies = 0;
	for (w = 0; w < WAYS; w++) {
		c->drv->ops[w]->counters(c->way[w], &b, &n);
		*bytes += b;
		*copies += n;
	}
}

const struct kvf_copy_ops kvf_copy_mixed = {
	.name = "mixed",
	.open = mixed_open,
	.close = mixed_close,
	.map = mixed_map,
	.unmap = mixed_unmap,
	.channel_open = mixed_channel_open,
	.channel_close = mixed_channel_close,
	.submit = mixed_submit,
	.poll = mixed_poll,
	.counters = mixed_counters,
};
