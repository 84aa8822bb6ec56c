/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include <linux/magic.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/err.h"
#include "pool/import.h"
#include "pool/populate.h"

/* Between two looks at whether the peer's file grows under our hands. */
#define STEP (64ull << 20)

#define BLOCK 512ull /* unit of st_blocks */

static const char *
mode_word(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return "a directory";
	case S_IFCHR:
		return "a character device";
	case S_IFBLK:
		return "a block device";
	case S_IFIFO:
		return "a pipe";
	case S_IFSOCK:
		return "a socket";
	case S_IFLNK:
		return "a symbolic link";
	default:
		return "no file at all (an eventfd or the like)";
	}
}

/* Memfds of one page size live on one mount inside the kernel; a file on a mount that somebody made
 * lies on another device. An own memfd tells which device that is. */
static int
is_huge_memfd(const struct stat *st, uint64_t page_size, bool *yes, struct kvf_err *err)
{
	unsigned int log2 = (unsigned int)__builtin_ctzll(page_size);
	struct stat own;
	int fd, rc = 0;

	fd = memfd_create("kvferry-probe", MFD_CLOEXEC | MFD_HUGETLB | (log2 << MFD_HUGE_SHIFT));
	if (fd < 0)
		return kvf_fail_errno(err, "pool fd: memfd_create to compare with");
	if (fstat(fd, &own) != 0)
		rc = kvf_fail_errno(err, "pool fd: fstat of a memfd to compare with");
	else
		*yes = own.st_dev == st->st_dev;
	close(fd);
	return rc;
}

static int
check_seals(int fd, const struct stat *st, bool huge, uint64_t page_size, struct kvf_err *err)
{
	bool memfd = true;
	int seals, rc;

	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0)
		return kvf_fail(
			err, KVF_E_PERM, "pool fd: this file has no seals: %s", strerror(errno));
	if (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
		return kvf_fail(err, KVF_E_PERM,
			"pool fd: sealed against writing (seals=0x%x): the pool must be writable",
			(unsigned int)seals);
	if (seals & F_SEAL_SHRINK)
		return 0;
	if (huge) {
		rc = is_huge_memfd(st, page_size, &memfd, err);
		if (rc != 0)
			return rc;
	}
	if (memfd)
		return kvf_fail(err, KVF_E_PERM,
			"pool fd: %s without F_SEAL_SHRINK: found seals=0x%x, needed=0x%x; its "
			"owner "
			"could cut it",
			huge ? "a hugetlb memfd" : "a memfd or tmpfs file", (unsigned int)seals,
			(unsigned int)F_SEAL_SHRINK);
	return 0;
}

/* What kind of thing is it? */
static int
check_kind(int fd, struct stat *st, uint64_t *page_size, struct kvf_err *err)
{
	struct statfs fs;
	int flags;

	flags = fcntl(fd, F_GETFL);
	if (flags < 0)
		return kvf_fail(err, KVF_E_INVAL, "pool fd=%d: %s", fd, strerror(errno));
	if (fstat(fd, st) != 0 || fstatfs(fd, &fs) != 0)
		return kvf_fail_errno(err, "pool fd=%d", fd);
	if (!S_ISREG(st->st_mode))
		return kvf_fail(err, KVF_E_PERM,
			"pool fd: found %s, needed a memfd or a file on a hugetlbfs mount",
			mode_word(st->st_mode));
	if (fs.f_type != TMPFS_MAGIC && fs.f_type != HUGETLBFS_MAGIC)
		return kvf_fail(err, KVF_E_PERM,
			"pool fd: found a file on a disk or other file system (f_type=0x%lx), "
			"needed a "
			"memfd or a file on a hugetlbfs mount",
			(unsigned long)fs.f_type);
	if ((flags & O_PATH) || (flags & O_ACCMODE) != O_RDWR)
		return kvf_fail(err, KVF_E_PERM,
			"pool fd: opened %s: needed is read and write (O_RDWR)",
			flags & O_PATH                    ? "with O_PATH"
			: (flags & O_ACCMODE) == O_WRONLY ? "write-only"
							  : "read-only");
	/* fs.f_bsize is the hugepage, and on tmpfs the ordinary page: what the kernel really uses.
	 */
	*page_size = (uint64_t)fs.f_bsize;
	return check_seals(fd, st, fs.f_type == HUGETLBFS_MAGIC, *page_size, err);
}

static int
check_length(const struct stat *st, uint64_t length, uint64_t max_bytes, struct kvf_err *err)
{
	if (length == 0)
		return kvf_fail(err, KVF_E_INVAL, "pool length=0");
	if (length > max_bytes)
		return kvf_fail(err, KVF_E_INVAL,
			"pool length=%" PRIu64 " is past the limit=%" PRIu64, length, max_bytes);
	if (length > (uint64_t)st->st_size)
		return kvf_fail(err, KVF_E_INVAL,
			"pool length=%" PRIu64 " is more than its file has: size=%" PRIu64, length,
			(uint64_t)st->st_size);
	return 0;
}

static int
fail_hollow(uint64_t allocated, uint64_t needed, struct kvf_err *err)
{
	return kvf_fail(err, KVF_E_INVAL,
		"pool is not populated by its owner: allocated=%" PRIu64 " bytes, needed=%" PRIu64,
		allocated, needed);
}

/*
 * Puts the pages into our page table. They must exist already: if the file grows meanwhile, then we
 * are paying for somebody's holes, and stop at the first step.
 */
static int
populate(const struct kvf_pool_view *view, const struct stat *before, struct kvf_err *err)
{
	uint64_t step = view->page_size > STEP ? view->page_size : STEP;
	uint64_t done, len;
	struct stat now;
	int error;

	for (done = 0; done < view->mapped_length; done += len) {
		len = view->mapped_length - done < step ? view->mapped_length - done : step;
		error = kvf_populate(view->fd, view->base, done, len, -1, KVF_POPULATE_BEST);
		if (error != 0)
			return kvf_fail(err, KVF_E_INVAL,
				"pool cannot be populated at byte=%" PRIu64 " of %" PRIu64 ": %s",
				done, view->mapped_length, strerror(error));
		if (fstat(view->fd, &now) != 0)
			return kvf_fail_errno(err, "pool fd: fstat");
		if (now.st_blocks > before->st_blocks)
			return fail_hollow((uint64_t)before->st_blocks * BLOCK,
				(uint64_t)now.st_blocks * BLOCK, err);
	}
	return 0;
}

static int
import(uint64_t length, uint64_t max_bytes, struct kvf_pool_view *view, struct kvf_err *err)
{
	struct stat st;
	int rc;

	rc = check_kind(view->fd, &st, &view->page_size, err);
	if (rc == 0)
		rc = check_length(&st, length, max_bytes, err);
	if (rc != 0)
		return rc;
	/* length <= st_size, so rounding up cannot wrap. */
	view->length = length;
	view->mapped_length = (length + view->page_size - 1) & ~(view->page_size - 1);
	if ((uint64_t)st.st_blocks < view->mapped_length / BLOCK)
		return fail_hollow((uint64_t)st.st_blocks * BLOCK, view->mapped_length, err);
	/* No reservation: an import must never take hugepages that its owner did not. */
	view->base = mmap(NULL, view->mapped_length, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_NORESERVE, view->fd, 0);
	if (view->base == MAP_FAILED) {
		view->base = NULL;
		return kvf_fail_errno(
			err, "mapping a pool of length=%" PRIu64, view->mapped_length);
	}
	return populate(view, &st, err);
}

int
kvf_pool_import(int fd, uint64_t length, uint64_t max_bytes, struct kvf_pool_view *view,
	struct kvf_err *err)
{
	int rc;

	memset(view, 0, sizeof(*view));
	view->fd = fd;
	if (fd < 0) {
		memset(view, 0, sizeof(*view));
		return kvf_fail(err, KVF_E_INVAL, "pool fd=%d: none was passed", fd);
	}
	rc = import(length, max_bytes, view, err);
	if (rc != 0) {
		if (view->base != NULL)
			munmap(view->base, view->mapped_length);
		close(fd);
		memset(view, 0, sizeof(*view));
	}
	return rc;
}

void
kvf_pool_unimport(struct kvf_pool_view *view)
{
	/* A zeroed view has fd 0, which is nobody's pool: the mapping tells whether there is one.
	 */
	if (view->base == NULL)
		return;
	munmap(view->base, view->mapped_length);
	close(view->fd);
	memset(view, 0, sizeof(*view));
}
