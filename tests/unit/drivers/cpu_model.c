/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/suite.h"
#include "cpu_model.h"

uint8_t *src_mem, *dst_mem;
static uint8_t *want_mem;
static uint8_t salt;

void
arena_setup(void)
{
	uint64_t state = 0x9e3779b97f4a7c15ull;
	size_t i;

	if (src_mem != NULL)
		return;
	src_mem = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	dst_mem = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	want_mem = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (src_mem == MAP_FAILED || dst_mem == MAP_FAILED || want_mem == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	for (i = 0; i < ARENA; i += 8) {
		uint64_t v = suite_rand(&state);

		memcpy(src_mem + i, &v, 8);
	}
	if (mprotect(src_mem, ARENA, PROT_READ) != 0) {
		perror("mprotect");
		exit(2);
	}
}

bool
fixture_open(struct fixture *f, const struct kvf_cpu_kernel *kernel)
{
	static char why[160];
	struct kvf_err err;
	int rc;

	arena_setup();
	f->kernel = kernel;
	if (!kernel->available()) {
		snprintf(why, sizeof(why), "this CPU has no %s: kernel %s NOT TESTED",
			kernel->needs, kernel->name);
		suite_skip(why);
		return false;
	}
	rc = kvf_copy_cpu.open(kernel->name, &f->drv, &f->caps, &err);
	if (!CHECK_EQ(rc, KVF_OK))
		return false;
	rc = kvf_copy_cpu.channel_open(f->drv, &f->ch, &err);
	if (!CHECK_EQ(rc, KVF_OK)) {
		kvf_copy_cpu.close(f->drv);
		return false;
	}
	return true;
}

void
fixture_close(struct fixture *f)
{
	kvf_copy_cpu.channel_close(f->ch);
	kvf_copy_cpu.close(f->drv);
}

/* Fills the destination around the copies with a fresh byte, in memory and in the model. */
void
window_begin(const struct kvf_copy *c, uint32_t n, size_t *lo, size_t *hi)
{
	size_t a, b;
	uint32_t i;

	*lo = ARENA;
	*hi = 0;
	for (i = 0; i < n; i++) {
		a = (size_t)(c[i].dst - dst_mem);
		b = a + (c[i].rows - 1) * c[i].dst_stride + c[i].row_bytes;
		if (a < *lo)
			*lo = a;
		if (b > *hi)
			*hi = b;
	}
	*lo -= 128;
	*hi += 128;
	salt += 37;
	memset(dst_mem + *lo, salt, *hi - *lo);
	memset(want_mem + *lo, salt, *hi - *lo);
}

bool
window_same(const struct kvf_copy *c, uint32_t n, size_t lo, size_t hi, const char *what)
{
	char msg[256];
	size_t at;
	uint32_t i;
	uint64_t r;

	for (i = 0; i < n; i++)
		for (r = 0; r < c[i].rows; r++)
			memcpy(want_mem + (c[i].dst - dst_mem) + r * c[i].dst_stride,
				c[i].src + r * c[i].src_stride, c[i].row_bytes);
	if (memcmp(dst_mem + lo, want_mem + lo, hi - lo) == 0)
		return CHECK(true);
	for (at = lo; dst_mem[at] == want_mem[at]; at++)
		;
	snprintf(msg, sizeof(msg),
		"%s: byte at=%zu is %02x, not %02x (guard %02x; n=%u, first copy: dst=%zu "
		"rows=%" PRIu64 " row_bytes=%" PRIu64 " src%%64=%u)",
		what, at, dst_mem[at], want_mem[at], salt, n, (size_t)(c[0].dst - dst_mem),
		c[0].rows, c[0].row_bytes, (unsigned int)((uintptr_t)c[0].src % 64));
	return suite_check(0, msg, __FILE__, __LINE__);
}

bool
copies_right(struct fixture *f, const struct kvf_copy *c, uint32_t n, uint32_t flags)
{
	static uint64_t tag = 1000;
	struct kvf_copy_done done[2];
	size_t lo, hi;
	int rc;

	window_begin(c, n, &lo, &hi);
	rc = kvf_copy_cpu.submit(f->ch, c, n, flags, ++tag);
	if (!CHECK_EQ(rc, KVF_OK))
		return false;
	if (!CHECK_EQ(kvf_copy_cpu.poll(f->ch, done, 2), 1) || !CHECK_EQ(done[0].tag, tag) ||
		!CHECK_EQ(done[0].error, 0))
		return false;
	return window_same(c, n, lo, hi, flags & KVF_COPY_STREAM ? "stream" : "plain");
}

bool
both_ways(struct fixture *f, const struct kvf_copy *c, uint32_t n)
{
	return copies_right(f, c, n, KVF_COPY_STREAM) && copies_right(f, c, n, 0);
}
