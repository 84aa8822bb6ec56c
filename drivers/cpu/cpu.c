/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver that copies with the calling thread's own instructions. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "kernel.h"

#define DEPTH 16u

struct kvf_copy_drv {
	const struct kvf_cpu_kernel *kernel;
};

/* submit() copies before it returns; what it stores for poll() is only the news of it. */
struct kvf_copy_channel {
	const struct kvf_cpu_kernel *kernel;
	uint32_t head; /* next to poll; free-running, like tail */
	uint32_t tail;
	uint64_t tags[DEPTH];
	/* Stored by the channel's thread alone, hence never read-modify-write. */
	_Atomic uint64_t bytes;
	_Atomic uint64_t copies;
};

const struct kvf_cpu_kernel *const kvf_cpu_kernels[] = {
#if defined(__x86_64__)
	&kvf_cpu_avx512,
	&kvf_cpu_avx2,
#endif
	&kvf_cpu_portable,
};
const size_t kvf_cpu_kernels_num = sizeof(kvf_cpu_kernels) / sizeof(kvf_cpu_kernels[0]);

const struct kvf_cpu_kernel *
kvf_cpu_pick(const struct kvf_cpu_kernel *const *kernels, size_t n, const char *name,
	struct kvf_err *err)
{
	const struct kvf_cpu_kernel *found = NULL;
	char list[96] = "";
	size_t i, at = 0;

	if (name == NULL)
		name = "";
	for (i = 0; i < n; i++) {
		const bool usable = kernels[i]->available();

		if (usable && (name[0] == '\0' || strcmp(name, kernels[i]->name) == 0))
			return kernels[i];
		if (strcmp(name, kernels[i]->name) == 0)
			found = kernels[i];
		if (usable && at < sizeof(list))
			at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s",
				at == 0 ? "" : ",", kernels[i]->name);
	}
	if (at == 0)
		snprintf(list, sizeof(list), "none");
	if (found != NULL)
		kvf_fail(err, KVF_E_DRIVER,
			"cpu driver: this CPU cannot run kernel=%s, which needs=%s; available=%s",
			found->name, found->needs, list);
	else
		kvf_fail(err, KVF_E_DRIVER, "cpu driver: unknown kernel=%.64s; available=%s", name,
			list);
	return NULL;
}

static int
cpu_open(const char *args, struct kvf_copy_drv **drv, struct kvf_copy_caps *caps,
	struct kvf_err *err)
{
	const struct kvf_cpu_kernel *kernel;
	struct kvf_copy_drv *d;

	*drv = NULL;
	kernel = kvf_cpu_pick(kvf_cpu_kernels, kvf_cpu_kernels_num, args, err);
	if (kernel == NULL)
		return KVF_E_DRIVER;
	d = malloc(sizeof(*d));
	if (d == NULL)
		return kvf_fail(
			err, KVF_E_NOMEM, "cpu driver: out of memory, bytes=%zu", sizeof(*d));
	d->kernel = kernel;

	memset(caps, 0, sizeof(*caps));
	caps->max_channels = UINT32_MAX;
	caps->channel_depth = DEPTH;
	caps->per_lcore = 1; /* a second one would only wait for the first */
	snprintf(caps->detail, sizeof(caps->detail), "%s", kernel->detail);
	*drv = d;
	return KVF_OK;
}

static void
cpu_close(struct kvf_copy_drv *drv)
{
	free(drv);
}

/* A CPU copies whatever the process has mapped. */
static int
cpu_map(struct kvf_copy_drv *drv, void *base, uint64_t length, uint64_t page_size, void **handle,
	struct kvf_err *err)
{
	(void)drv;
	(void)length;
	(void)page_size;
	(void)err;
	*handle = base;
	return KVF_OK;
}

static int
cpu_unmap(struct kvf_copy_drv *drv, void *handle, struct kvf_err *err)
{
	(void)drv;
	(void)handle;
	(void)err;
	return KVF_OK;
}

static int
cpu_channel_open(struct kvf_copy_drv *drv, struct kvf_copy_channel **ch, struct kvf_err *err)
{
	struct kvf_copy_channel *c;

	/* Whole cache lines: two threads' channels must not share one. */
	c = aligned_alloc(64, (sizeof(*c) + 63) / 64 * 64);
	*ch = c;
	if (c == NULL)
		return kvf_fail(
			err, KVF_E_NOMEM, "cpu driver: out of memory, bytes=%zu", sizeof(*c));
	memset(c, 0, sizeof(*c));
	c->kernel = drv->kernel;
	return KVF_OK;
}

static void
cpu_channel_close(struct kvf_copy_channel *ch)
{
	free(ch);
}

static int
cpu_submit(struct kvf_copy_channel *ch, const struct kvf_copy *copies, uint32_t n, uint32_t flags,
	uint64_t tag)
{
	uint64_t bytes;

	if (ch->tail - ch->head == DEPTH)
		return KVF_E_AGAIN;
	bytes = kvf_cpu_run(ch->kernel, copies, n, (flags & KVF_COPY_STREAM) != 0);
	ch->tags[ch->tail++ % DEPTH] = tag;

	atomic_store_explicit(&ch->bytes,
		atomic_load_explicit(&ch->bytes, memory_order_relaxed) + bytes,
		memory_order_relaxed);
	atomic_store_explicit(&ch->copies,
		atomic_load_explicit(&ch->copies, memory_order_relaxed) + n, memory_order_relaxed);
	return KVF_OK;
}

static uint32_t
cpu_poll(struct kvf_copy_channel *ch, struct kvf_copy_done *done, uint32_t max)
{
	uint32_t n;

	for (n = 0; n < max && ch->head != ch->tail; n++)
		done[n] = (struct kvf_copy_done){.tag = ch->tags[ch->head++ % DEPTH]};
	return n;
}

static void
cpu_counters(const struct kvf_copy_channel *ch, uint64_t *bytes, uint64_t *copies)
{
	*bytes = atomic_load_explicit(&ch->bytes, memory_order_relaxed);
	*copies = atomic_load_explicit(&ch->copies, memory_order_relaxed);
}

const struct kvf_copy_ops kvf_copy_cpu = {
	.name = "cpu",
	.open = cpu_open,
	.close = cpu_close,
	.map = cpu_map,
	.unmap = cpu_unmap,
	.channel_open = cpu_channel_open,
	.channel_close = cpu_channel_close,
	.submit = cpu_submit,
	.poll = cpu_poll,
	.counters = cpu_counters,
};
