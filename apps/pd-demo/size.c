/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fail.h"
#include "pd-demo/layout.h"
#include "pd-demo/rooms.h"
#include "pd-demo/size.h"

/* Of the memory that is available, a run takes this share at most: the machine has other users. */
#define MEMORY_PERCENT 40u
/* Hugepages are preferred as long as they allow this part of the wish. */
#define HUGE_WORTH 8u
/* Left for the engine's own memory. */
#define ENGINE_PAGES 64u

static uint64_t
read_number(const char *path, const char *field)
{
	uint64_t value = UINT64_MAX;
	char line[256], *at;
	FILE *f = fopen(path, "re");

	if (f == NULL)
		return UINT64_MAX;
	while (fgets(line, sizeof(line), f) != NULL) {
		at = line;
		if (field != NULL) {
			if (strncmp(line, field, strlen(field)) != 0)
				continue;
			at += strlen(field);
		}
		if (sscanf(at, "%" SCNu64, &value) != 1)
			value = UINT64_MAX;
		break;
	}
	fclose(f);
	return value;
}

void
demo_machine_read(struct demo_machine *machine)
{
	const char *dir = "/sys/kernel/mm/hugepages/hugepages-2048kB";
	const char *got = getenv("KVFERRY_HUGEPAGES");
	uint64_t free_pages, reserved, kib, max, used, limit;
	char path[128];

	snprintf(path, sizeof(path), "%s/free_hugepages", dir);
	free_pages = read_number(path, NULL);
	snprintf(path, sizeof(path), "%s/resv_hugepages", dir);
	reserved = read_number(path, NULL);
	machine->huge_free = 0;
	if (free_pages != UINT64_MAX && reserved != UINT64_MAX && free_pages > reserved)
		machine->huge_free = free_pages - reserved;
	/* What was set aside for this run; others may be using the rest. */
	if (got != NULL && sscanf(got, "%" SCNu64, &limit) == 1 && limit > 0 &&
		limit < machine->huge_free)
		machine->huge_free = limit;

	kib = read_number("/proc/meminfo", "MemAvailable:");
	machine->mem_available = kib == UINT64_MAX ? 0 : kib * 1024;
	max = read_number("/sys/fs/cgroup/memory.max", NULL);
	used = read_number("/sys/fs/cgroup/memory.current", NULL);
	if (max != UINT64_MAX && used != UINT64_MAX) {
		limit = max > used ? max - used : 0;
		if (limit < machine->mem_available)
			machine->mem_available = limit;
	}
}

int
demo_pools_bytes(const struct demo_options *o, const struct model *m, uint64_t page_bytes,
	uint64_t *bytes, struct kvf_err *err)
{
	static const enum kvf_role roles[] = {KVF_PREFILL, KVF_DECODE};
	struct demo_layout layout;
	struct demo_plan plan;
	uint64_t pool;
	uint32_t i, rank;
	int rc;

	*bytes = 0;
	rc = demo_plan_build(o, &plan, err);
	if (rc != 0)
		return rc;
	for (i = 0; i < 2 && rc == 0; i++) {
		for (rank = 0; rank < demo_ranks(o, roles[i]) && rc == 0; rank++) {
			rc = demo_layout_build(o, m, &plan, roles[i], rank, &layout, err);
			if (rc != 0)
				break;
			pool = (layout.decl.pool_bytes + page_bytes - 1) / page_bytes * page_bytes;
			if (__builtin_add_overflow(*bytes, pool, bytes))
				rc = app_fail(err, KVF_E_OVERFLOW,
					"the pools together exceed 2^64 bytes");
			demo_layout_free(&layout);
		}
	}
	demo_plan_free(&plan);
	return rc;
}

/* The longest prompt, at most o->tokens and in whole pages below it, whose pools fit. 0: none. */
static int
longest_that_fits(const struct demo_options *o, const struct model *m, uint64_t page_bytes,
	uint64_t budget, uint32_t *tokens, uint64_t *bytes, uint64_t *least, struct kvf_err *err)
{
	struct demo_options try = *o;
	uint32_t lo = 0, hi, mid, step = o->page_size;
	uint64_t need;
	int rc;

	rc = demo_pools_bytes(&try, m, page_bytes, &need, err);
	if (rc != 0)
		return rc;
	*tokens = o->tokens;
	*bytes = need;
	*least = need;
	if (need <= budget)
		return 0;
	*tokens = 0;
	/* In steps of a page: lo fits (0 stands for none), hi does not. */
	hi = (o->tokens + step - 1) / step;
	while (lo + 1 < hi) {
		mid = lo + (hi - lo) / 2;
		try.tokens = mid * step;
		rc = demo_pools_bytes(&try, m, page_bytes, &need, err);
		if (rc != 0)
			return rc;
		if (need < *least)
			*least = need;
		if (need <= budget) {
			lo = mid;
			*tokens = try.tokens;
			*bytes = need;
		} else {
			hi = mid;
		}
	}
	return 0;
}

int
demo_hugepages_wanted(const struct demo_options *o, const struct model *m,
	const struct demo_machine *machine, uint64_t *pages, struct kvf_err *err)
{
	uint64_t bytes, most = machine->mem_available / 100 * MEMORY_PERCENT / DEMO_HUGE_BYTES;
	int rc;

	*pages = 0;
	if (o->memory == DEMO_MEMORY_SMALL)
		return 0;
	rc = demo_pools_bytes(o, m, DEMO_HUGE_BYTES, &bytes, err);
	if (rc != 0)
		return rc;
	*pages = bytes / DEMO_HUGE_BYTES + ENGINE_PAGES;
	if (*pages > most)
		*pages = most;
	return 0;
}

static double
gib(uint64_t bytes)
{
	return (double)bytes / (1ull << 30);
}

int
demo_size(const struct demo_options *o, const struct model *m, const struct demo_machine *machine,
	struct demo_sizing *s, struct kvf_err *err)
{
	uint64_t huge = machine->huge_free > ENGINE_PAGES ? machine->huge_free - ENGINE_PAGES : 0;
	uint64_t least = 0;
	int rc;

	memset(s, 0, sizeof(*s));
	rc = demo_pools_bytes(o, m, DEMO_HUGE_BYTES, &s->wanted, err);
	if (rc != 0)
		return rc;
	if (o->memory != DEMO_MEMORY_SMALL) {
		s->memory = DEMO_MEMORY_HUGE;
		s->budget = huge * DEMO_HUGE_BYTES;
		rc = longest_that_fits(
			o, m, DEMO_HUGE_BYTES, s->budget, &s->tokens, &s->bytes, &least, err);
		if (rc != 0)
			return rc;
		if (o->memory == DEMO_MEMORY_HUGE && s->tokens == 0)
			return app_fail(err, KVF_E_NOHUGE,
				"hugepages needed=%" PRIu64
				" (2 MiB each, %u of them for the engine) "
				"available=%" PRIu64 "; raise them: hugeadm --pool-pages-min "
				"2MB:%" PRIu64,
				least / DEMO_HUGE_BYTES + ENGINE_PAGES, ENGINE_PAGES,
				machine->huge_free, least / DEMO_HUGE_BYTES + ENGINE_PAGES);
		if (s->tokens == o->tokens)
			return 0;
		if (s->tokens != 0 &&
			(o->memory == DEMO_MEMORY_HUGE || s->tokens >= o->tokens / HUGE_WORTH)) {
			snprintf(s->reason, sizeof(s->reason),
				"tokens=%u need %.2f GiB, free hugepages give %.2f GiB: tokens=%u",
				o->tokens, gib(s->wanted), gib(s->budget), s->tokens);
			return 0;
		}
	}
	s->memory = DEMO_MEMORY_SMALL;
	s->budget = machine->mem_available / 100 * MEMORY_PERCENT;
	rc = longest_that_fits(o, m, 4096, s->budget, &s->tokens, &s->bytes, &least, err);
	if (rc != 0)
		return rc;
	if (s->tokens == 0)
		return app_fail(err, KVF_E_NOMEM,
			"memory needed=%" PRIu64
			" bytes for the shortest prompt, available=%" PRIu64 " (%u%% of %" PRIu64
			"): fewer --rooms, --layers or ranks are needed",
			least, s->budget, MEMORY_PERCENT, machine->mem_available);
	if (s->tokens != o->tokens)
		snprintf(s->reason, sizeof(s->reason),
			"tokens=%u need %.2f GiB, %u%% of the available memory is %.2f GiB: "
			"tokens=%u",
			o->tokens, gib(s->wanted), MEMORY_PERCENT, gib(s->budget), s->tokens);
	return 0;
}
