/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>

#include <numa.h>
#include <numaif.h>
#include <sys/mman.h>

#include "pool/populate.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; C library headers may be older */
#endif

#define RETRIES 100 /* EINTR and EAGAIN: the part that was done stays done */

static int
fallocate_all(int fd, uint64_t off, uint64_t len)
{
	int i;

	for (i = 0; i < RETRIES; i++) {
		if (fallocate(fd, 0, (off_t)off, (off_t)len) == 0)
			return 0;
		if (errno != EINTR)
			return errno;
	}
	return EINTR;
}

/* fallocate() makes the pages by the policy of the thread, not of the mapping. */
static int
fallocate_on_node(int fd, uint64_t off, uint64_t len, int node)
{
	struct bitmask *old, *wanted;
	int mode, rc;

	if (node < 0)
		return fallocate_all(fd, off, len);
	old = numa_allocate_nodemask();
	wanted = numa_allocate_nodemask();
	numa_bitmask_setbit(wanted, (unsigned int)node);
	if (get_mempolicy(&mode, old->maskp, old->size + 1, NULL, 0) != 0 ||
		set_mempolicy(MPOL_BIND, wanted->maskp, wanted->size + 1) != 0) {
		rc = errno;
	} else {
		rc = fallocate_all(fd, off, len);
		/* Cannot fail: it is the policy that was in force a moment ago. */
		(void)set_mempolicy(mode, old->maskp, old->size + 1);
	}
	numa_bitmask_free(old);
	numa_bitmask_free(wanted);
	return rc;
}

static int
populate_by_fallocate(int fd, char *addr, uint64_t off, uint64_t len, int node)
{
	int rc = fallocate_on_node(fd, off, len, node);

	if (rc != 0)
		return rc;
	/* The pages exist; mapping them again with MAP_POPULATE only fills the page table. Touching
	 * would do too, but raises SIGBUS if somebody takes the pages away meanwhile. */
	if (mmap(addr, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd,
		    (off_t)off) == MAP_FAILED)
		return errno;
	return 0;
}

int
kvf_populate(int fd, void *base, uint64_t off, uint64_t len, int node, enum kvf_populate_how how)
{
	char *addr = (char *)base + off;
	int i;

	if (how == KVF_POPULATE_FALLOCATE)
		return populate_by_fallocate(fd, addr, off, len, node);
	for (i = 0; i < RETRIES; i++) {
		if (madvise(addr, len, MADV_POPULATE_WRITE) == 0)
			return 0;
		if (errno == EINVAL)
			return populate_by_fallocate(fd, addr, off, len, node);
		if (errno != EINTR && errno != EAGAIN)
			return errno;
	}
	return errno;
}
