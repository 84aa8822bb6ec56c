/* SPDX-License-Identifier: BSD-3-Clause */
/* Counting what is there, from made-up hosts; and populating by both ways. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/memfd.h>
#include <numa.h>
#include <numaif.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/suite.h"
#include "hugetake.h"
#include "pool/populate.h"
#include "pool/supply.h"
#include "pooltest.h"

static char host[64];

static void
host_begin(void)
{
	strcpy(host, "/tmp/kvf-host-XXXXXX");
	CHECK(mkdtemp(host) != NULL);
}

static void
host_end(void)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf %s", host);
	CHECK_EQ(system(command), 0);
}

/* Writes a file of the made-up host, with the directories above it. */
static void
host_file(const char *path, const char *text)
{
	char full[512], *slash;
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", host, path);
	for (slash = full + strlen(host) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
		*slash = '\0';
		(void)mkdir(full, 0700);
		*slash = '/';
	}
	f = fopen(full, "we");
	if (!CHECK(f != NULL) || f == NULL)
		return;
	fputs(text, f);
	fclose(f);
}

#define SYS_2M  "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define NODE_2M "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/"

void
test_supply_huge(void)
{
	struct kvf_huge_supply s;

	host_begin();
	host_file(SYS_2M "nr_hugepages", "100\n");
	host_file(SYS_2M "free_hugepages", "40\n");
	host_file(SYS_2M "resv_hugepages", "15\n");
	host_file(SYS_2M "nr_overcommit_hugepages", "8\n");
	host_file(SYS_2M "surplus_hugepages", "3\n");
	kvf_huge_supply(host, HUGE_2M, -1, &s);
	CHECK(s.supported);
	CHECK_EQ(s.total, 100);
	CHECK_EQ(s.free, 25);
	CHECK_EQ(s.overcommit, 5);
	/* Read one after the other, the numbers need not fit together. */
	host_file(SYS_2M "resv_hugepages", "41\n");
	host_file(SYS_2M "surplus_hugepages", "9\n");
	kvf_huge_supply(host, HUGE_2M, -1, &s);
	CHECK_EQ(s.free, 0);
	CHECK_EQ(s.overcommit, 0);
	host_end();
}

void
test_supply_huge_node(void)
{
	struct kvf_huge_supply s;

	host_begin();
	host_file(SYS_2M "nr_hugepages", "100\n");
	host_file(SYS_2M "free_hugepages", "40\n");
	host_file(SYS_2M "resv_hugepages", "15\n");
	host_file(NODE_2M "free_hugepages", "12\n");
	kvf_huge_supply(host, HUGE_2M, 1, &s);
	CHECK_EQ(s.free, 12);
	/* All free pages of the node, but most are promised. */
	host_file(NODE_2M "free_hugepages", "40\n");
	kvf_huge_supply(host, HUGE_2M, 1, &s);
	CHECK_EQ(s.free, 25);
	kvf_huge_supply(host, HUGE_2M, 0, &s);
	CHECK_EQ(s.free, 0);
	host_end();
}

void
test_supply_huge_absent(void)
{
	struct kvf_huge_supply s;

	host_begin();
	host_file(SYS_2M "nr_hugepages", "100\n");
	kvf_huge_supply(host, 1ull << 30, -1, &s);
	CHECK(!s.supported);
	CHECK_EQ(s.total, 0);
	CHECK_EQ(s.free, 0);
	host_end();
}

void
test_supply_memory(void)
{
	struct kvf_memory_supply s;

	host_begin();
	kvf_memory_supply(host, -1, &s);
	CHECK(s.bytes == UINT64_MAX);
	host_file("/proc/meminfo", "MemTotal:       24000000 kB\nMemFree:           10 kB\n"
				   "MemAvailable:    1234567 kB\nBuffers: 5 kB\n");
	kvf_memory_supply(host, -1, &s);
	CHECK_EQ(s.bytes, 1234567ull * 1024);
	CHECK_STR_HAS(s.limit, "MemAvailable");
	host_end();
}

void
test_supply_cgroup_v2(void)
{
	struct kvf_memory_supply s;

	host_begin();
	host_file("/proc/meminfo", "MemAvailable: 1000 kB\n");
	host_file("/proc/self/cgroup", "0::/a/b\n");
	host_file("/sys/fs/cgroup/a/b/memory.max", "max\n");
	kvf_memory_supply(host, -1, &s);
	CHECK_EQ(s.bytes, 1000 * 1024);
	/* The parent's limit binds too; page cache that can go counts as room. */
	host_file("/sys/fs/cgroup/a/memory.max", "500000\n");
	host_file("/sys/fs/cgroup/a/memory.current", "300000\n");
	host_file("/sys/fs/cgroup/a/memory.stat", "anon 7\ninactive_file 50000\nactive_file 9\n");
	kvf_memory_supply(host, -1, &s);
	CHECK_EQ(s.bytes, 250000);
	CHECK_STR_HAS(s.limit, "cgroup");
	host_file("/sys/fs/cgroup/a/memory.current", "900000\n");
	kvf_memory_supply(host, -1, &s);
	CHECK_EQ(s.bytes, 0);
	/* In a container the group's files are at the root of the mount. */
	host_file("/proc/self/cgroup", "0::/\n");
	host_file("/sys/fs/cgroup/memory.max", "4096\n");
	kvf_memory_supply(host, -1, &s);
	CHECK_EQ(s.bytes, 4096);
	host_end();
}

void
test_supply_cgroup_v1(void)
{
	struct kvf_memory_supply s;

	host_begin();
	host_file("/proc/meminfo", "MemAvailable: 1000 kB\n");
	host_file("/proc/self/cgroup", "5:devices:/x\n4:memory:/x/y\n0::/\n");
	host_file("/sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "9223372036854771712\n");
	kvf_memory_supply(host, -1, &s);
	CHECK_EQ(s.bytes, 1000 * 1024);
	host_file("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "200000\n");
	host_file("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "150000\n");
	host_file("/sys/fs/cgroup/memory/x/memory.stat",
		"inactive_file 1\ntotal_inactive_file 10000\n");
	kvf_memory_supply(host, -1, &s);
	CHECK_EQ(s.bytes, 60000);
	CHECK_STR_HAS(s.limit, "cgroup");
	host_end();
}

void
test_supply_memory_node(void)
{
	struct kvf_memory_supply s;

	host_begin();
	host_file("/proc/meminfo", "MemAvailable: 1000 kB\n");
	host_file("/sys/devices/system/node/node1/meminfo",
		"Node 1 MemTotal:  900 kB\nNode 1 MemFree:   100 kB\nNode 1 MemUsed: 800 kB\n"
		"Node 1 Active(file):   20 kB\nNode 1 Inactive(file):   3 kB\n");
	kvf_memory_supply(host, -1, &s);
	CHECK_EQ(s.bytes, 1000 * 1024);
	kvf_memory_supply(host, 1, &s);
	CHECK_EQ(s.bytes, 123 * 1024);
	CHECK_STR_HAS(s.limit, "node");
	host_end();
}

/* Both ways, in two parts, with and without a node; every page must be there and mapped. */
static void
populate_both_ways(unsigned int memfd_flags, uint64_t page)
{
	static const enum kvf_populate_how how[] = {KVF_POPULATE_BEST, KVF_POPULATE_FALLOCATE};
	int i, node, fd, mode, numa = numa_available() >= 0;
	void *p;

	for (i = 0; i < 4; i++) {
		node = i < 2 || !numa ? -1 : 0;
		fd = memfd_create("pooltest", MFD_CLOEXEC | memfd_flags);
		CHECK_EQ(ftruncate(fd, (off_t)(3 * page)), 0);
		p = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (CHECK(p != MAP_FAILED)) {
			CHECK_EQ(kvf_populate(fd, p, page, 2 * page, node, how[i % 2]), 0);
			CHECK_EQ(allocated(fd), 2 * page);
			CHECK(all_resident((char *)p + page, 2 * page));
			((volatile char *)p)[2 * page] = 77;
			CHECK_EQ(kvf_populate(fd, p, 0, 3 * page, node, how[i % 2]), 0);
			CHECK_EQ(allocated(fd), 3 * page);
			CHECK_EQ(((volatile char *)p)[2 * page], 77);
			munmap(p, 3 * page);
		}
		close(fd);
		/* The thread's own policy is what it was. */
		if (numa && CHECK_EQ(get_mempolicy(&mode, NULL, 0, NULL, 0), 0))
			CHECK_EQ(mode, MPOL_DEFAULT);
	}
	CHECK_EQ(count_maps(), 0);
}

void
test_populate_small(void)
{
	populate_both_ways(0, 4096);
	populate_both_ways(0, 1 << 20);
}

void
test_populate_huge(void)
{
	const char *why;

	if (!huge_take(3, &why)) {
		suite_skip(why);
		return;
	}
	populate_both_ways(MFD_HUGETLB | MFD_HUGE_2MB, HUGE_2M);
	huge_give_back(3);
}

/* Touching such a page is SIGBUS; populating it must be an errno. */
void
test_populate_shortage(void)
{
	uint64_t length = (huge_free() + 2) * HUGE_2M;
	struct kvf_huge_supply s;
	int fd, rc;
	void *p;

	kvf_huge_supply("", HUGE_2M, -1, &s);
	if (!s.supported) {
		suite_skip("no /sys to count free hugepages in");
		return;
	}
	if (huge_free() > 64) {
		suite_skip("too many free hugepages to use them all up");
		return;
	}
	fd = memfd_create("pooltest", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB);
	CHECK_EQ(ftruncate(fd, (off_t)length), 0);
	p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (CHECK(p != MAP_FAILED)) {
		rc = kvf_populate(fd, p, 0, length, -1, KVF_POPULATE_BEST);
		CHECK(rc == EFAULT || rc == ENOMEM);
		rc = kvf_populate(fd, p, 0, length, -1, KVF_POPULATE_FALLOCATE);
		CHECK(rc == ENOSPC || rc == ENOMEM);
		munmap(p, length);
	}
	close(fd);
}
