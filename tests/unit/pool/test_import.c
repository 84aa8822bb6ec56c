/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's side, with everything that a hostile worker may pass. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/magic.h>
#include <linux/memfd.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "common/suite.h"
#include "hugetake.h"
#include "pool/import.h"
#include "pooltest.h"

#define NO_LIMIT UINT64_MAX

static int
memfd(unsigned int flags, uint64_t size, int seals)
{
	int fd = memfd_create("pooltest", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, (off_t)size), 0);
	if (seals != 0)
		CHECK_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* Importing must fail with this code and words, close the fd and map nothing. */
static void
refused(int fd, uint64_t length, uint64_t max_bytes, int code, const char *a, const char *b)
{
	struct kvf_pool_view view, zero;
	struct kvf_err err = {0};
	int maps = count_maps();

	memset(&zero, 0, sizeof(zero));
	memset(&view, 0x5a, sizeof(view));
	CHECK_EQ(kvf_pool_import(fd, length, max_bytes, &view, &err), code);
	CHECK_EQ(err.code, code);
	CHECK_STR_HAS(err.text, a);
	CHECK_STR_HAS(err.text, b);
	CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
	CHECK_EQ(memcmp(&view, &zero, sizeof(view)), 0);
	CHECK_EQ(count_maps(), maps);
}

static void
import_pool(const struct kvf_pool_config *cfg)
{
	int fds = count_fds(), maps = count_maps(), fd;
	struct kvf_pool_view view;
	struct kvf_pool *pool;
	struct kvf_err err;
	uint8_t *a, *b;

	if (!CHECK_EQ(kvf_pool_create(cfg, &pool, &err), 0))
		return;
	fd = dup(kvf_pool_fd(pool));
	if (CHECK_EQ(kvf_pool_import(fd, cfg->length, cfg->length, &view, &err), 0)) {
		CHECK_EQ(view.length, cfg->length);
		CHECK_EQ(view.mapped_length, kvf_pool_mapped_length(pool));
		CHECK_EQ(view.page_size, kvf_pool_page_size(pool));
		CHECK_EQ(view.fd, fd);
		CHECK(view.base != NULL && view.base != kvf_pool_addr(pool));
		CHECK(all_resident(view.base, view.mapped_length));
		CHECK_EQ(count_maps(), maps + 2);
		a = kvf_pool_addr(pool);
		b = view.base;
		a[0] = 11;
		b[view.mapped_length - 1] = 22;
		CHECK_EQ(*(volatile uint8_t *)b, 11);
		CHECK_EQ(((volatile uint8_t *)a)[view.mapped_length - 1], 22);
		kvf_pool_unimport(&view);
	}
	CHECK_EQ(count_maps(), maps + 1);
	kvf_pool_destroy(pool);
	CHECK_EQ(count_fds(), fds);
	CHECK_EQ(count_maps(), maps);
}

void
test_import_small(void)
{
	struct kvf_pool_config cfg = small_config(1);

	import_pool(&cfg);
	cfg = small_config(100001);
	import_pool(&cfg);
	cfg = small_config(150ull << 20);
	import_pool(&cfg);
}

void
test_import_huge(void)
{
	struct kvf_pool_config cfg = huge_config(2 * HUGE_2M + 1);
	const char *why;

	if (!huge_take(3, &why)) {
		suite_skip(why);
		return;
	}
	import_pool(&cfg);
	huge_give_back(3);
}

void
test_import_mount(void)
{
	struct kvf_pool_config cfg = huge_config(2 * HUGE_2M);
	const char *dir, *why;
	char path[80];
	int fd;

	if (!huge_take(4, &why) || (dir = huge_mount("", &why)) == NULL) {
		suite_skip(why);
		return;
	}
	snprintf(path, sizeof(path), "%s/pooltest", dir);
	cfg.path = path;
	import_pool(&cfg);
	/* Made by hand and left hollow. */
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, 2 * HUGE_2M), 0);
	CHECK_EQ(fallocate(fd, 0, 0, HUGE_2M), 0);
	refused(dup(fd), HUGE_2M + 1, NO_LIMIT, KVF_E_INVAL, "allocated=2097152", "needed=4194304");
	CHECK_EQ(allocated(fd), HUGE_2M);
	close(fd);
	CHECK_EQ(unlink(path), 0);
	huge_give_back(4);
}

/* A child gets nothing but the fd, as the engine does. */
void
test_import_two_processes(void)
{
	struct kvf_pool_config cfg = small_config(3 << 20);
	struct kvf_pool *pool;
	uint64_t *words, i, n;
	int status = -1, fd;
	pid_t pid;

	if (!CHECK_EQ(kvf_pool_create(&cfg, &pool, NULL), 0))
		return;
	words = kvf_pool_addr(pool);
	n = kvf_pool_length(pool) / sizeof(*words);
	for (i = 0; i < n; i++)
		words[i] = i * 0x9e3779b97f4a7c15ull;
	fd = dup(kvf_pool_fd(pool));
	pid = fork();
	if (pid == 0) {
		struct kvf_pool_view view;
		uint64_t *theirs;

		/* Its own mapping must do: the inherited one goes first. */
		munmap(words, kvf_pool_mapped_length(pool));
		if (kvf_pool_import(fd, cfg.length, NO_LIMIT, &view, NULL) != 0)
			_exit(1);
		theirs = view.base;
		for (i = 0; i < n; i++) {
			if (theirs[i] != i * 0x9e3779b97f4a7c15ull)
				_exit(2);
			theirs[i] = ~theirs[i];
		}
		kvf_pool_unimport(&view);
		_exit(0);
	}
	close(fd);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	for (i = 0; i < n; i++)
		if (words[i] != ~(i * 0x9e3779b97f4a7c15ull))
			break;
	CHECK_EQ(i, n);
	kvf_pool_destroy(pool);
}

void
test_import_kinds(void)
{
	int fds, p[2], fd;
	struct statfs fs;

	/* The first one makes libraries open what they keep open. */
	refused(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 1, NO_LIMIT, KVF_E_PERM,
		"found a directory", "needed a memfd");
	fds = count_fds();
	refused(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 1, NO_LIMIT, KVF_E_PERM,
		"found a directory", "needed a memfd");
	refused(open("/dev/zero", O_RDWR | O_CLOEXEC), 1, NO_LIMIT, KVF_E_PERM,
		"found a character device", "needed a memfd");
	refused(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), 1, NO_LIMIT, KVF_E_PERM,
		"found a socket", "needed a memfd");
	CHECK_EQ(pipe2(p, O_CLOEXEC), 0);
	refused(p[0], 1, NO_LIMIT, KVF_E_PERM, "found a pipe", "needed a memfd");
	refused(p[1], 1, NO_LIMIT, KVF_E_PERM, "found a pipe", "needed a memfd");
	refused(eventfd(0, EFD_CLOEXEC), 1, NO_LIMIT, KVF_E_PERM, "found no file at all",
		"needed a memfd");
	refused(epoll_create1(EPOLL_CLOEXEC), 1, NO_LIMIT, KVF_E_PERM, "found no file at all",
		"needed a memfd");
	refused(open("/proc/self/mem", O_RDWR | O_CLOEXEC), 1, NO_LIMIT, KVF_E_PERM,
		"other file system (f_type=0x9fa0)", "needed a memfd");
	refused(open("/etc/passwd", O_RDONLY | O_CLOEXEC), 1, NO_LIMIT, KVF_E_PERM,
		"found a file on a disk", "needed a memfd");
	/* Where there is a tmpfs: a file of its own there is no memfd. */
	if (statfs("/dev/shm", &fs) == 0 && fs.f_type == TMPFS_MAGIC) {
		fd = open("/dev/shm/kvf-pooltest", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		CHECK(fd >= 0);
		CHECK_EQ(ftruncate(fd, 4096), 0);
		CHECK_EQ(fallocate(fd, 0, 0, 4096), 0);
		refused(fd, 4096, NO_LIMIT, KVF_E_PERM, "tmpfs file without F_SEAL_SHRINK",
			"needed=0x2");
		CHECK_EQ(unlink("/dev/shm/kvf-pooltest"), 0);
	}
	CHECK_EQ(count_fds(), fds);
}

void
test_import_seals(void)
{
	int fd;

	fd = memfd(0, 8192, 0);
	CHECK_EQ(fallocate(fd, 0, 0, 8192), 0);
	refused(fd, 8192, NO_LIMIT, KVF_E_PERM, "without F_SEAL_SHRINK", "found seals=0x0");
	fd = memfd(0, 8192, F_SEAL_GROW | F_SEAL_SEAL);
	refused(fd, 8192, NO_LIMIT, KVF_E_PERM, "without F_SEAL_SHRINK", "found seals=0x5");
	/* On hugetlbfs like a file on a mount, but a memfd all the same. */
	fd = memfd(MFD_HUGETLB | MFD_HUGE_2MB, HUGE_2M, 0);
	refused(fd, HUGE_2M, NO_LIMIT, KVF_E_PERM, "a hugetlb memfd without F_SEAL_SHRINK",
		"needed=0x2");
	fd = memfd(0, 8192, 0);
	CHECK_EQ(fallocate(fd, 0, 0, 8192), 0);
	CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE), 0);
	refused(fd, 8192, NO_LIMIT, KVF_E_PERM, "sealed against writing", "seals=0xa");
	fd = memfd(0, 8192, 0);
	CHECK_EQ(fallocate(fd, 0, 0, 8192), 0);
	CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE), 0);
	refused(fd, 8192, NO_LIMIT, KVF_E_PERM, "sealed against writing", "seals=0x12");
}

void
test_import_access(void)
{
	int fd = memfd(0, 8192, F_SEAL_SHRINK), fds = count_fds();
	char proc[64];

	CHECK_EQ(fallocate(fd, 0, 0, 8192), 0);
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	refused(open(proc, O_RDONLY | O_CLOEXEC), 8192, NO_LIMIT, KVF_E_PERM, "opened read-only",
		"O_RDWR");
	refused(open(proc, O_WRONLY | O_CLOEXEC), 8192, NO_LIMIT, KVF_E_PERM, "opened write-only",
		"O_RDWR");
	refused(open(proc, O_PATH | O_CLOEXEC), 8192, NO_LIMIT, KVF_E_PERM, "opened with O_PATH",
		"O_RDWR");
	CHECK_EQ(count_fds(), fds);
	close(fd);
}

void
test_import_lengths(void)
{
	int fd = memfd(0, 5000, F_SEAL_SHRINK), fds = count_fds();
	struct kvf_pool_view view;

	CHECK_EQ(fallocate(fd, 0, 0, 5000), 0);
	refused(dup(fd), 0, NO_LIMIT, KVF_E_INVAL, "length=0", "pool");
	refused(dup(fd), 5001, NO_LIMIT, KVF_E_INVAL, "length=5001", "size=5000");
	refused(dup(fd), UINT64_MAX, NO_LIMIT, KVF_E_INVAL, "length=18446744073709551615",
		"size=5000");
	refused(dup(fd), 5000, 4999, KVF_E_INVAL, "length=5000", "limit=4999");
	refused(dup(fd), 1, 0, KVF_E_INVAL, "length=1", "limit=0");
	/* The limit is for the logical length; the page that it ends in comes along. */
	if (CHECK_EQ(kvf_pool_import(dup(fd), 5000, 5000, &view, NULL), 0)) {
		CHECK_EQ(view.mapped_length, 8192);
		kvf_pool_unimport(&view);
	}
	if (CHECK_EQ(kvf_pool_import(dup(fd), 1, 5000, &view, NULL), 0)) {
		CHECK_EQ(view.length, 1);
		CHECK_EQ(view.mapped_length, 4096);
		kvf_pool_unimport(&view);
	}
	CHECK_EQ(count_fds(), fds);
	close(fd);
	fd = memfd(0, 0, F_SEAL_SHRINK);
	refused(fd, 1, NO_LIMIT, KVF_E_INVAL, "length=1", "size=0");
}

/* A tebibyte of nothing must cost nothing. */
void
test_import_sparse(void)
{
	int fd = memfd(0, 1ull << 40, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);

	refused(dup(fd), 1ull << 40, NO_LIMIT, KVF_E_INVAL, "not populated by its owner",
		"allocated=0 bytes, needed=1099511627776");
	CHECK_EQ(allocated(fd), 0);
	CHECK_EQ(fallocate(fd, FALLOC_FL_KEEP_SIZE, 4096, 8192), 0);
	refused(dup(fd), 3 * 4096, NO_LIMIT, KVF_E_INVAL, "allocated=8192", "needed=12288");
	CHECK_EQ(allocated(fd), 8192);
	close(fd);
}

/* As many pages as needed, but behind the part that is to be mapped. */
void
test_import_sparse_front(void)
{
	const uint64_t length = 200ull << 20;
	int fd = memfd(0, 2 * length, F_SEAL_SHRINK);

	CHECK_EQ(fallocate(fd, 0, (off_t)length, (off_t)length), 0);
	refused(dup(fd), length, NO_LIMIT, KVF_E_INVAL, "not populated by its owner", "needed=");
	/* It was noticed after the first step. */
	CHECK(allocated(fd) <= length + (64ull << 20));
	close(fd);
}

void
test_import_sparse_huge(void)
{
	const char *why;
	int fd;

	if (!huge_take(3, &why)) {
		suite_skip(why);
		return;
	}
	fd = memfd(MFD_HUGETLB | MFD_HUGE_2MB, 3 * HUGE_2M, F_SEAL_SHRINK);
	refused(dup(fd), 3 * HUGE_2M, NO_LIMIT, KVF_E_INVAL, "not populated", "allocated=0");
	CHECK_EQ(allocated(fd), 0);
	/* The page behind the mapped part cannot stand in for the one that lacks. */
	CHECK_EQ(fallocate(fd, 0, HUGE_2M, HUGE_2M), 0);
	refused(dup(fd), HUGE_2M, NO_LIMIT, KVF_E_INVAL, "not populated", "needed=4194304");
	close(fd);
	huge_give_back(3);
}

void
test_import_bad_fd(void)
{
	struct kvf_pool_view view;
	struct kvf_err err;
	int fd = dup(STDOUT_FILENO);

	close(fd);
	refused(fd, 1, NO_LIMIT, KVF_E_INVAL, "pool fd=", "Bad file descriptor");
	CHECK_EQ(kvf_pool_import(-1, 1, NO_LIMIT, &view, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "fd=-1");
	CHECK(view.base == NULL);
	CHECK_EQ(kvf_pool_import(-1, 1, NO_LIMIT, &view, NULL), KVF_E_INVAL);
}

void
test_unimport(void)
{
	struct kvf_pool_view view = {0};
	int in, fds = count_fds(), maps = count_maps();

	/* fd 0 is somebody's, a zeroed view's it is not. */
	in = fcntl(STDIN_FILENO, F_GETFD);
	kvf_pool_unimport(&view);
	CHECK_EQ(fcntl(STDIN_FILENO, F_GETFD), in);
	if (CHECK_EQ(kvf_pool_import(memfd(0, 0, 0), 1, 1, &view, NULL), KVF_E_PERM))
		kvf_pool_unimport(&view);
	view.fd = memfd(0, 4096, F_SEAL_SHRINK);
	CHECK_EQ(fallocate(view.fd, 0, 0, 4096), 0);
	if (CHECK_EQ(kvf_pool_import(view.fd, 4096, 4096, &view, NULL), 0)) {
		kvf_pool_unimport(&view);
		CHECK(view.base == NULL && view.length == 0);
		kvf_pool_unimport(&view);
	}
	CHECK_EQ(count_fds(), fds);
	CHECK_EQ(count_maps(), maps);
}
