/* SPDX-License-Identifier: BSD-3-Clause */
/* Pools in a file on a hugetlbfs mount. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#include "common/suite.h"
#include "hugetake.h"
#include "pooltest.h"

static int
entries_in(const char *dir)
{
	DIR *d = opendir(dir);
	int n = 0;

	while (d != NULL && readdir(d) != NULL)
		n++;
	if (d != NULL)
		closedir(d);
	return n - 2;
}

void
test_path_refused(void)
{
	struct kvf_pool_config cfg = huge_config(1);
	char dir[] = "/tmp/kvf-pool-XXXXXX", path[64];

	if (!CHECK(mkdtemp(dir) != NULL))
		return;
	snprintf(path, sizeof(path), "%s/pooltest", dir);
	cfg.path = path;
	cfg.flags = KVF_POOL_ALLOW_4K;
	create_refused(&cfg, KVF_E_INVAL, "is not on a hugetlbfs mount", "needed=0x958458f6");
	CHECK_EQ(entries_in(dir), 0);
	cfg.page_size = 4096;
	create_refused(&cfg, KVF_E_INVAL, "page_size=4096", "no 4 KiB pages");
	cfg.page_size = 0;
	cfg.path = "/nonexistent/kvferry/pooltest";
	create_refused(&cfg, KVF_E_SYS, "path=/nonexistent", "No such file");
	CHECK_EQ(rmdir(dir), 0);
}

void
test_path(void)
{
	struct kvf_pool_config cfg = huge_config(HUGE_2M + 5);
	struct kvf_pool *pool, *second;
	const char *dir, *why;
	char path[80], moved[80], cwd[1024];
	struct kvf_err err;
	struct stat st;
	int fds, fd;

	if (!huge_take(4, &why) || (dir = huge_mount("", &why)) == NULL) {
		suite_skip(why);
		return;
	}
	fds = count_fds();
	snprintf(path, sizeof(path), "%s/pooltest", dir);
	snprintf(moved, sizeof(moved), "%s/moved", dir);
	cfg.path = path;
	if (!CHECK_EQ(kvf_pool_create(&cfg, &pool, &err), 0))
		return;
	CHECK_EQ(stat(path, &st), 0);
	CHECK_EQ(st.st_mode & 07777, 0600);
	CHECK_EQ(st.st_size, 2 * HUGE_2M);
	CHECK_EQ((uint64_t)st.st_blocks * 512, 2 * HUGE_2M);
	CHECK_EQ(kvf_pool_mapped_length(pool), 2 * HUGE_2M);
	memset(kvf_pool_addr(pool), 7, 2 * HUGE_2M);

	/* Taken: the first one and its bytes stay as they are. */
	cfg.flags = KVF_POOL_ALLOW_4K;
	CHECK_EQ(kvf_pool_create(&cfg, &second, &err), KVF_E_EXIST);
	CHECK_STR_HAS(err.text, "exists already");
	CHECK_EQ(stat(path, &st), 0);
	CHECK_EQ(((uint8_t *)kvf_pool_addr(pool))[HUGE_2M], 7);
	kvf_pool_destroy(pool);
	CHECK_EQ(entries_in(dir), 0);
	CHECK_EQ(count_fds(), fds);

	/* The mount's page size is not the one asked for, fallback or not. */
	cfg.page_size = (1ull << 30);
	create_refused(&cfg, KVF_E_INVAL, "page_size=2097152", "asked is page_size=1073741824");
	cfg.page_size = 0;
	cfg.flags = 0;

	/* A relative path is still the same file after chdir(). */
	if (CHECK(getcwd(cwd, sizeof(cwd)) != NULL) && CHECK_EQ(chdir(dir), 0)) {
		cfg.path = "pooltest";
		CHECK_EQ(kvf_pool_create(&cfg, &pool, &err), 0);
		CHECK_EQ(chdir(cwd), 0);
		CHECK_EQ(entries_in(dir), 1);
		kvf_pool_destroy(pool);
		CHECK_EQ(entries_in(dir), 0);
	}

	/* Somebody else's file under the old name is not ours to unlink. */
	cfg.path = path;
	if (CHECK_EQ(kvf_pool_create(&cfg, &pool, &err), 0)) {
		CHECK_EQ(rename(path, moved), 0);
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		CHECK(fd >= 0);
		close(fd);
		kvf_pool_destroy(pool);
		CHECK_EQ(entries_in(dir), 2);
		CHECK_EQ(unlink(path), 0);
		CHECK_EQ(unlink(moved), 0);
	}
	CHECK_EQ(count_fds(), fds);
	huge_give_back(4);
}

/* Enough pages on the host, but the mount may have 2 only. */
void
test_path_limit(void)
{
	struct kvf_pool_config cfg = huge_config(3 * HUGE_2M);
	const char *dir, *why;
	char path[80];

	if (!huge_take(4, &why) || (dir = huge_mount("size=4M", &why)) == NULL) {
		suite_skip(why);
		return;
	}
	snprintf(path, sizeof(path), "%s/pooltest", dir);
	cfg.path = path;
	create_refused(&cfg, KVF_E_NOMEM, "needed=3", "size= of the mount");
	CHECK_EQ(entries_in(dir), 0);
	huge_give_back(4);
}
