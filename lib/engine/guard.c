/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "engine/guard.h"

#define MAX_REGIONS 1024

struct kvf_guard_region {
	_Atomic uintptr_t base; /* 0: free. Stored last on add, first on remove. */
	_Atomic uint64_t length;
	_Atomic uint64_t page_size;
	_Atomic bool lost;
};

static struct kvf_guard_region regions[MAX_REGIONS];
static struct sigaction previous;

/* Is `addr` in this region? The others may be changing while we look. */
static bool
holds(struct kvf_guard_region *r, uintptr_t addr, uintptr_t *page, uint64_t *page_size)
{
	/* acquire: partner of the release in kvf_guard_add(), and keeps these in order */
	uintptr_t base = atomic_load_explicit(&r->base, memory_order_acquire);
	uint64_t length = atomic_load_explicit(&r->length, memory_order_acquire);

	*page_size = atomic_load_explicit(&r->page_size, memory_order_acquire);
	if (base == 0 || atomic_load_explicit(&r->base, memory_order_relaxed) != base)
		return false;
	if (addr < base || addr - base >= length)
		return false;
	*page = base + (addr - base) / *page_size * *page_size;
	return true;
}

static void
on_sigbus(int sig, siginfo_t *info, void *context)
{
	uintptr_t addr = (uintptr_t)info->si_addr, page;
	int saved = errno, i;
	uint64_t page_size;
	void *got;

	for (i = 0; i < MAX_REGIONS; i++) {
		if (!holds(&regions[i], addr, &page, &page_size))
			continue;
		atomic_store_explicit(&regions[i].lost, true, memory_order_relaxed);
		/* A system call, hence safe in a handler. Copies go on into memory that nobody
		 * sees. */
		got = mmap((void *)page, page_size, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
		if (got == MAP_FAILED)
			break;
		errno = saved;
		return;
	}
	/* Not ours: as if this handler had never been there. */
	if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != NULL) {
		previous.sa_sigaction(sig, info, context);
	} else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
		previous.sa_handler(sig);
	} else {
		signal(sig, SIG_DFL);
		raise(sig);
	}
	errno = saved;
}

int
kvf_guard_start(struct kvf_err *err)
{
	struct sigaction sa;

	memset(&sa, 0, sizeof(sa));
	sa.sa_sigaction = on_sigbus;
	sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
	sigemptyset(&sa.sa_mask);
	if (sigaction(SIGBUS, &sa, &previous) != 0)
		return kvf_fail_errno(err, "cannot install the SIGBUS handler");
	return 0;
}

void
kvf_guard_stop(void)
{
	sigaction(SIGBUS, &previous, NULL);
}

struct kvf_guard_region *
kvf_guard_add(void *base, uint64_t length, uint64_t page_size)
{
	int i;

	for (i = 0; i < MAX_REGIONS; i++) {
		struct kvf_guard_region *r = &regions[i];

		if (atomic_load_explicit(&r->base, memory_order_relaxed) != 0)
			continue;
		atomic_store_explicit(&r->length, length, memory_order_relaxed);
		atomic_store_explicit(&r->page_size, page_size, memory_order_relaxed);
		atomic_store_explicit(&r->lost, false, memory_order_relaxed);
		atomic_store_explicit(&r->base, (uintptr_t)base, memory_order_release);
		return r;
	}
	return NULL;
}

void
kvf_guard_remove(struct kvf_guard_region *region)
{
	if (region != NULL)
		atomic_store_explicit(&region->base, 0, memory_order_release);
}

bool
kvf_guard_lost(const struct kvf_guard_region *region)
{
	return region != NULL && atomic_load_explicit(&region->lost, memory_order_relaxed);
}
