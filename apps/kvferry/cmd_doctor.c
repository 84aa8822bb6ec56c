/* SPDX-License-Identifier: BSD-3-Clause */
/* Looks at what kvferry needs from this host, and says what would mend what is missing. */
#include <dirent.h>
#include <inttypes.h>
#include <mntent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <kvferry/client.h>

#include "args.h"

#define HUGEPAGES_DIR     "/sys/kernel/mm/hugepages"
#define DOCTOR_TIMEOUT_MS 1000u

static unsigned int warnings;

static void
ok(const char *what, const char *found)
{
	printf("ok    %-12s %s\n", what, found);
}

static void
warn(const char *what, const char *found, const char *remedy)
{
	warnings++;
	printf("warn  %-12s %s\n", what, found);
	if (remedy != NULL)
		printf("      %-12s try: %s\n", "", remedy);
}

static void
look_at_cpu(void)
{
#if defined(__x86_64__)
	bool avx2 = __builtin_cpu_supports("avx2"), avx512 = __builtin_cpu_supports("avx512f");
	char found[64];

	snprintf(found, sizeof(found), "avx2=%s avx512f=%s", avx2 ? "yes" : "no",
		avx512 ? "yes" : "no");
	if (avx2 || avx512)
		ok("cpu", found);
	else
		warn("cpu", found, "a machine type with AVX2: the portable copy loop is slower");
#else
	warn("cpu", "not x86-64: the portable copy loop is used", NULL);
#endif
}

static void
look_at_cores(void)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;
	int usable = -1;
	char found[96];

	/* EINVAL on hosts with more cores than a cpu_set_t has bits: then only the total is known.
	 */
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		usable = CPU_COUNT(&set);
	snprintf(found, sizeof(found), "online=%ld usable=%d", online, usable);
	if (usable == 1 || online == 1)
		warn("cores", found, "at least 2 cores: engine and workers poll");
	else
		ok("cores", found);
}

static bool
read_number(const char *path, uint64_t *value)
{
	FILE *f = fopen(path, "re");
	bool found;

	if (f == NULL)
		return false;
	found = fscanf(f, "%" SCNu64, value) == 1;
	fclose(f);
	return found;
}

static void
look_at_hugepages(void)
{
	DIR *dir = opendir(HUGEPAGES_DIR);
	const struct dirent *entry;
	bool any = false;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		char path[512], found[128], remedy[96];
		uint64_t kb, total, unused;

		if (sscanf(entry->d_name, "hugepages-%" SCNu64 "kB", &kb) != 1)
			continue;
		snprintf(path, sizeof(path), HUGEPAGES_DIR "/%s/nr_hugepages", entry->d_name);
		if (!read_number(path, &total))
			continue;
		snprintf(path, sizeof(path), HUGEPAGES_DIR "/%s/free_hugepages", entry->d_name);
		if (!read_number(path, &unused))
			continue;
		any = true;
		snprintf(found, sizeof(found), "size=%" PRIu64 "kB total=%" PRIu64 " free=%" PRIu64,
			kb, total, unused);
		snprintf(remedy, sizeof(remedy), "hugeadm --pool-pages-min %" PRIu64 "%s",
			kb >= 1048576 ? kb / 1048576 : kb / 1024,
			kb >= 1048576 ? "GB:4" : "MB:512");
		/* 2 MiB pages are what pools are made of unless asked otherwise. */
		if (unused > 0 || kb != 2048)
			ok("hugepages", found);
		else
			warn("hugepages", found, remedy);
	}
	if (dir != NULL)
		closedir(dir);
	if (!any)
		warn("hugepages", "this kernel has none (" HUGEPAGES_DIR ")",
			"a kernel with CONFIG_HUGETLBFS, or KVF_POOL_ALLOW_4K for tests");
}

static void
look_at_memlock(void)
{
	struct rlimit lim;
	char found[96];

	if (getrlimit(RLIMIT_MEMLOCK, &lim) != 0) {
		warn("memlock", "the limit cannot be read", NULL);
		return;
	}
	if (lim.rlim_cur == RLIM_INFINITY) {
		ok("memlock", "limit=unlimited");
		return;
	}
	snprintf(found, sizeof(found), "limit=%" PRIu64 "kB", (uint64_t)lim.rlim_cur / 1024);
	/* A DMA device pins whole pools; the CPU driver needs nothing of it. */
	warn("memlock", found, "ulimit -l unlimited (needed by DMA devices only)");
}

static void
look_at_mounts(void)
{
	FILE *f = setmntent("/proc/mounts", "re");
	char found[512], buf[4096];
	struct mntent ent;
	bool any = false;

	while (f != NULL && getmntent_r(f, &ent, buf, sizeof(buf)) != NULL) {
		if (strcmp(ent.mnt_type, "hugetlbfs") != 0)
			continue;
		any = true;
		snprintf(found, sizeof(found), "%s (%s)", ent.mnt_dir, ent.mnt_opts);
		ok("hugetlbfs", found);
	}
	if (f != NULL)
		endmntent(f);
	if (!any)
		warn("hugetlbfs", "not mounted (needed for pools that are files)",
			"mkdir -p /dev/hugepages && mount -t hugetlbfs none /dev/hugepages");
}

static void
look_at_engine(const char *socket)
{
	const char *path = socket == NULL ? KVF_DEFAULT_SOCKET : socket;
	struct kvf_err err = {0};
	char found[400], remedy[300];
	char *text = NULL;

	if (kvf_engine_status(path, DOCTOR_TIMEOUT_MS, &text, &err) == 0) {
		snprintf(found, sizeof(found), "kvferryd answers at %s", path);
		ok("engine", found);
		free(text);
		return;
	}
	snprintf(found, sizeof(found), "no answer: %s: %s", kvf_error_name(err.code), err.text);
	snprintf(remedy, sizeof(remedy), "kvferryd --socket %s", path);
	warn("engine", found, remedy);
}

int
cmd_doctor(int argc, char **argv, struct kvf_err *err)
{
	const char *socket = NULL;
	const struct opt opts[] = {
		{"socket", "PATH", "kvferryd's socket (" KVF_DEFAULT_SOCKET ")", &socket},
	};
	int rc;

	rc = opts_parse(argc, argv,
		"Looks at what kvferry needs from this host. Warnings come with what would help.",
		opts, sizeof(opts) / sizeof(opts[0]), err);
	if (rc != 0)
		return rc < 0 ? 0 : rc;
	look_at_cpu();
	look_at_cores();
	look_at_hugepages();
	look_at_memlock();
	look_at_mounts();
	look_at_engine(socket);
	printf("warnings=%u\n", warnings);
	return 0;
}
