/* SPDX-License-Identifier: BSD-3-Clause */
#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "drivers/fault/fault.h"

#define MAX_DEPTH    256u
#define MAX_DELAY_US 60000000u

enum fate {
	PASS,
	CORRUPT,
	DROP,
	FAIL,
};

struct kvf_copy_drv {
	const struct kvf_copy_ops *ops; /* the wrapped driver's */
	struct kvf_copy_drv *inner;
	uint32_t depth;
	/* Which batch each fault strikes first; 0: none. */
	uint64_t fail;
	uint64_t corrupt;
	uint64_t drop;
	uint64_t every; /* 0: strikes once */
	uint64_t delay_us;
	_Atomic uint64_t batches; /* accepted so far, on all channels */
};

struct slot {
	uint64_t tag;
	uint64_t due_us; /* not given to the wrapped driver before */
	enum fate fate;
	int32_t error;
	uint32_t n;
	uint32_t flags;
	struct kvf_copy copies[KVF_COPY_BATCH_MAX];
};

/* Slot numbers, first in first out; free-running positions. */
struct fifo {
	uint32_t head;
	uint32_t tail;
	uint16_t slot[MAX_DEPTH];
};

struct kvf_copy_channel {
	struct kvf_copy_drv *drv;
	struct kvf_copy_channel *inner;
	struct fifo unused;
	struct fifo waiting; /* for their time, or for room in the wrapped driver */
	struct fifo ready;   /* to be reported */
	struct slot slots[];
};

static const struct kvf_copy_ops *known[KVF_FAULT_MAX_INNER];
static uint32_t num_known;

void
kvf_copy_fault_register(const struct kvf_copy_ops *inner)
{
	uint32_t i;

	for (i = 0; i < num_known; i++) {
		if (strcmp(known[i]->name, inner->name) == 0)
			break;
	}
	assert(i < KVF_FAULT_MAX_INNER);
	known[i] = inner;
	if (i == num_known)
		num_known++;
}

static bool
fifo_empty(const struct fifo *f)
{
	return f->head == f->tail;
}

static void
fifo_put(struct fifo *f, uint16_t slot)
{
	f->slot[f->tail++ % MAX_DEPTH] = slot;
}

static uint16_t
fifo_first(const struct fifo *f)
{
	return f->slot[f->head % MAX_DEPTH];
}

static uint16_t
fifo_take(struct fifo *f)
{
	return f->slot[f->head++ % MAX_DEPTH];
}

static uint64_t
now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

/* "name=digits" of length len into the option of that name. */
static int
parse_option(struct kvf_copy_drv *drv, const char *text, int len, struct kvf_err *err)
{
	const struct {
		const char *name;
		uint64_t *value;
		uint64_t max;
	} options[] = {
		{"fail", &drv->fail, UINT64_MAX},
		{"corrupt", &drv->corrupt, UINT64_MAX},
		{"drop", &drv->drop, UINT64_MAX},
		{"every", &drv->every, UINT64_MAX},
		{"delay_us", &drv->delay_us, MAX_DELAY_US},
	};
	const char *digits = memchr(text, '=', (size_t)len);
	size_t i, name_len = digits != NULL ? (size_t)(digits - text) : (size_t)len;
	uint64_t value = 0;
	const char *p;

	for (i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		if (strlen(options[i].name) == name_len &&
			strncmp(options[i].name, text, name_len) == 0)
			break;
	}
	if (digits == NULL || i == sizeof(options) / sizeof(options[0]))
		return kvf_fail(err, KVF_E_DRIVER,
			"fault: unknown option=%.*s; options are fail=N corrupt=N drop=N every=K "
			"delay_us=N",
			len, text);
	if (*options[i].value != 0)
		return kvf_fail(err, KVF_E_DRIVER, "fault: option given twice: %.*s", len, text);
	for (p = digits + 1; p < text + len; p++) {
		if (*p < '0' || *p > '9' || kvf_mul_overflows(value, 10, &value) ||
			kvf_add_overflows(value, (uint64_t)(*p - '0'), &value))
			break;
	}
	if (p != text + len || value == 0 || value > options[i].max)
		return kvf_fail(err, KVF_E_DRIVER,
			"fault: bad value in %.*s: a number from 1 to %" PRIu64 " is needed", len,
			text, options[i].max);
	*options[i].value = value;
	return 0;
}

static int
find_inner(struct kvf_copy_drv *drv, const char *name, int len, struct kvf_err *err)
{
	char names[100] = "none";
	uint32_t i;
	int at = 0;

	for (i = 0; i < num_known; i++) {
		if (strlen(known[i]->name) == (size_t)len &&
			strncmp(known[i]->name, name, (size_t)len) == 0) {
			drv->ops = known[i];
			return 0;
		}
		if (at < (int)sizeof(names))
			at += snprintf(names + at, sizeof(names) - (size_t)at, "%s%s",
				i > 0 ? ", " : "", known[i]->name);
	}
	return kvf_fail(err, KVF_E_DRIVER, "fault: no driver to wrap, inner=%.*s; there are: %s",
		len, name, names);
}

static int
parse_args(struct kvf_copy_drv *drv, const char *args, struct kvf_err *err)
{
	const char *text = args != NULL ? args : "";
	int len = (int)strcspn(text, ",");
	int ret;

	ret = find_inner(drv, text, len, err);
	while (ret == 0 && text[len] != '\0') {
		text += len + 1;
		len = (int)strcspn(text, ",");
		ret = parse_option(drv, text, len, err);
	}
	if (ret == 0 && drv->every != 0 && drv->fail == 0 && drv->corrupt == 0 && drv->drop == 0)
		ret = kvf_fail(err, KVF_E_DRIVER,
			"fault: every=%" PRIu64 " needs fail=N, corrupt=N or drop=N beside it",
			drv->every);
	return ret;
}

static int
fault_open(const char *args, struct kvf_copy_drv **out, struct kvf_copy_caps *caps,
	struct kvf_err *err)
{
	struct kvf_copy_caps inner_caps;
	struct kvf_copy_drv *drv;
	int ret;

	drv = calloc(1, sizeof(*drv));
	if (drv == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "no memory for the fault driver");
	ret = parse_args(drv, args, err);
	if (ret == 0)
		ret = drv->ops->open(NULL, &drv->inner, &inner_caps, err);
	if (ret != 0) {
		free(drv);
		return ret;
	}
	drv->depth = inner_caps.channel_depth < MAX_DEPTH ? inner_caps.channel_depth : MAX_DEPTH;
	*caps = inner_caps;
	caps->channel_depth = drv->depth;
	snprintf(caps->detail, sizeof(caps->detail), "fault:%.60s over %.55s", args,
		inner_caps.detail);
	*out = drv;
	return 0;
}

static void
fault_close(struct kvf_copy_drv *drv)
{
	if (drv == NULL)
		return;
	drv->ops->close(drv->inner);
	free(drv);
}

static int
fault_map(struct kvf_copy_drv *drv, void *base, uint64_t length, uint64_t page_size, void **handle,
	struct kvf_err *err)
{
	return drv->ops->map(drv->inner, base, length, page_size, handle, err);
}

static int
fault_unmap(struct kvf_copy_drv *drv, void *handle, struct kvf_err *err)
{
	return drv->ops->unmap(drv->inner, handle, err);
}

static int
fault_channel_open(struct kvf_copy_drv *drv, struct kvf_copy_channel **out, struct kvf_err *err)
{
	struct kvf_copy_channel *ch;
	uint32_t i;
	int ret;

	ch = calloc(1, sizeof(*ch) + drv->depth * sizeof(ch->slots[0]));
	if (ch == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "no memory for a channel: depth=%u", drv->depth);
	ret = drv->ops->channel_open(drv->inner, &ch->inner, err);
	if (ret != 0) {
		free(ch);
		return ret;
	}
	ch->drv = drv;
	for (i = 0; i < drv->depth; i++)
		fifo_put(&ch->unused, (uint16_t)i);
	*out = ch;
	return 0;
}

static void
fault_channel_close(struct kvf_copy_channel *ch)
{
	if (ch == NULL)
		return;
	ch->drv->ops->channel_close(ch->inner);
	free(ch);
}

static bool
strikes(const struct kvf_copy_drv *drv, uint64_t first, uint64_t batch)
{
	if (first == 0 || batch < first)
		return false;
	return batch == first || (drv->every != 0 && (batch - first) % drv->every == 0);
}

static enum fate
choose_fate(const struct kvf_copy_drv *drv, uint64_t batch)
{
	if (strikes(drv, drv->fail, batch))
		return FAIL;
	if (strikes(drv, drv->drop, batch))
		return DROP;
	if (strikes(drv, drv->corrupt, batch))
		return CORRUPT;
	return PASS;
}

/* Passes on what is due, in order. */
static void
drive(struct kvf_copy_channel *ch)
{
	const struct kvf_copy_drv *drv = ch->drv;
	uint64_t now = 0;
	int ret;

	while (!fifo_empty(&ch->waiting)) {
		uint16_t i = fifo_first(&ch->waiting);
		struct slot *s = &ch->slots[i];

		if (drv->delay_us != 0) {
			if (now == 0)
				now = now_us();
			if (now < s->due_us)
				break;
		}
		s->error = s->fate == FAIL ? KVF_E_DEVICE : 0;
		if (s->fate == FAIL || s->fate == DROP) {
			fifo_put(&ch->ready, fifo_take(&ch->waiting));
			continue;
		}
		ret = drv->ops->submit(ch->inner, s->copies, s->n, s->flags, i);
		if (ret == KVF_E_AGAIN)
			break;
		fifo_take(&ch->waiting);
		if (ret != 0) {
			s->error = ret;
			fifo_put(&ch->ready, i);
		}
	}
}

static int
fault_submit(struct kvf_copy_channel *ch, const struct kvf_copy *copies, uint32_t n, uint32_t flags,
	uint64_t tag)
{
	struct kvf_copy_drv *drv = ch->drv;
	struct slot *s;
	uint64_t batch;
	uint16_t i;

	if (fifo_empty(&ch->unused))
		return KVF_E_AGAIN;
	if (n == 0 || n > KVF_COPY_BATCH_MAX)
		return KVF_E_INVAL;
	i = fifo_take(&ch->unused);
	s = &ch->slots[i];
	batch = atomic_fetch_add_explicit(&drv->batches, 1, memory_order_relaxed) + 1;
	s->fate = choose_fate(drv, batch);
	s->tag = tag;
	s->n = n;
	s->flags = flags;
	s->due_us = drv->delay_us != 0 ? now_us() + drv->delay_us : 0;
	memcpy(s->copies, copies, n * sizeof(copies[0]));
	fifo_put(&ch->waiting, i);
	drive(ch);
	return 0;
}

static void
reap(struct kvf_copy_channel *ch)
{
	struct kvf_copy_done done[16];
	uint32_t i, n;

	do {
		n = ch->drv->ops->poll(ch->inner, done, sizeof(done) / sizeof(done[0]));
		for (i = 0; i < n; i++) {
			struct slot *s = &ch->slots[done[i].tag];

			s->error = done[i].error;
			if (s->fate == CORRUPT && s->error == 0)
				s->copies[0].dst[s->copies[0].row_bytes / 2] ^= 0xff;
			fifo_put(&ch->ready, (uint16_t)done[i].tag);
		}
	} while (n == sizeof(done) / sizeof(done[0]));
}

static uint32_t
fault_poll(struct kvf_copy_channel *ch, struct kvf_copy_done *done, uint32_t max)
{
	uint32_t n = 0;

	reap(ch);
	drive(ch);
	while (n < max && !fifo_empty(&ch->ready)) {
		uint16_t i = fifo_take(&ch->ready);

		done[n++] = (struct kvf_copy_done){
			.tag = ch->slots[i].tag, .error = ch->slots[i].error};
		fifo_put(&ch->unused, i);
	}
	return n;
}

static void
fault_counters(const struct kvf_copy_channel *ch, uint64_t *bytes, uint64_t *copies)
{
	ch->drv->ops->counters(ch->inner, bytes, copies);
}

const struct kvf_copy_ops kvf_copy_fault = {
	.name = "fault",
	.open = fault_open,
	.close = fault_close,
	.map = fault_map,
	.unmap = fault_unmap,
	.channel_open = fault_channel_open,
	.channel_close = fault_channel_close,
	.submit = fault_submit,
	.poll = fault_poll,
	.counters = fault_counters,
};
