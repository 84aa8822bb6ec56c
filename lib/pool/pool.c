/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/magic.h>
#include <linux/memfd.h>
#include <numa.h>
#include <numaif.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <kvferry/pool.h>

#include "base/err.h"
#include "pool/populate.h"
#include "pool/supply.h"

#define PAGE_4K 4096ull
#define PAGE_2M (2ull << 20)
#define PAGE_1G (1ull << 30)

#define DEFAULT_NAME "kvferry"
#define MAX_NAME     249 /* memfd_create(2) */
#define MAX_NODE     4095
#define MAX_SHOWN    "40" /* of a name or path in a sentence, which is short */
#define KNOWN_FLAGS  KVF_POOL_ALLOW_4K

struct kvf_pool {
	void *base; /* NULL: not mapped */
	uint64_t length;
	uint64_t mapped_length;
	uint64_t page_size;
	int fd;
	char *path; /* absolute; NULL: nothing to unlink */
};

static const char *
pool_name(const struct kvf_pool_config *cfg)
{
	return cfg->name != NULL ? cfg->name : DEFAULT_NAME;
}

static const char *
page_word(uint64_t page_size)
{
	return page_size == PAGE_1G ? "1 GiB" : page_size == PAGE_2M ? "2 MiB" : "4 KiB";
}

static int
check_node(const struct kvf_pool_config *cfg, struct kvf_err *err)
{
	if (cfg->numa_node == -1)
		return 0;
	if (cfg->numa_node < -1)
		return kvf_fail(err, KVF_E_INVAL, "numa_node=%d: give a node, or -1 for any",
			cfg->numa_node);
	if (numa_available() < 0)
		return kvf_fail(err, KVF_E_INVAL,
			"node=%d was asked for, but this kernel has no NUMA support: use -1",
			cfg->numa_node);
	if (cfg->numa_node > numa_max_node())
		return kvf_fail(err, KVF_E_INVAL, "node=%d does not exist: highest node=%d",
			cfg->numa_node, numa_max_node());
	if (!numa_bitmask_isbitset(numa_all_nodes_ptr, (unsigned int)cfg->numa_node))
		return kvf_fail(err, KVF_E_INVAL,
			"node=%d has no memory that this process may use: highest node=%d",
			cfg->numa_node, numa_max_node());
	return 0;
}

static int
check_config(const struct kvf_pool_config *cfg, uint64_t *page_size, struct kvf_err *err)
{
	*page_size = cfg->page_size == 0 ? PAGE_2M : cfg->page_size;
	if (*page_size != PAGE_4K && *page_size != PAGE_2M && *page_size != PAGE_1G)
		return kvf_fail(err, KVF_E_INVAL,
			"page_size=%" PRIu64
			": allowed are 4096, 2097152 (also for 0) and 1073741824",
			cfg->page_size);
	if (cfg->length == 0)
		return kvf_fail(err, KVF_E_INVAL, "length=0: a pool holds at least one byte");
	if (cfg->flags & ~KNOWN_FLAGS)
		return kvf_fail(
			err, KVF_E_INVAL, "flags=0x%x: known are 0x%x", cfg->flags, KNOWN_FLAGS);
	if (strlen(pool_name(cfg)) > MAX_NAME)
		return kvf_fail(err, KVF_E_INVAL, "name has length=%zu: limit=%d",
			strlen(pool_name(cfg)), MAX_NAME);
	if (cfg->path != NULL && *page_size == PAGE_4K)
		return kvf_fail(err, KVF_E_INVAL,
			"page_size=4096 with path=%." MAX_SHOWN
			"s: a hugetlbfs mount has no 4 KiB pages; give no path",
			cfg->path);
	return check_node(cfg, err);
}

static int
round_up(uint64_t length, uint64_t page_size, uint64_t *rounded, struct kvf_err *err)
{
	if (kvf_add_overflows(length, page_size - 1, rounded) ||
		(*rounded &= ~(page_size - 1)) > INT64_MAX)
		return kvf_fail(err, KVF_E_OVERFLOW,
			"length=%" PRIu64 " rounded up to page_size=%" PRIu64
			" is past the limit=%" PRId64 " of a file",
			length, page_size, INT64_MAX);
	return 0;
}

/* Pages lack: the numbers, and the line to type. */
static int
fail_nohuge(const struct kvf_pool_config *cfg, uint64_t page_size, uint64_t needed,
	const struct kvf_huge_supply *s, struct kvf_err *err)
{
	uint64_t missing = needed > s->free ? needed - s->free : 0;
	char where[24] = "", as_on_node[40] = "";

	if (cfg->numa_node >= 0)
		snprintf(where, sizeof(where), " on node=%d", cfg->numa_node);
	/* hugeadm spreads new pages over all nodes that its own policy allows. */
	if (cfg->numa_node >= 0 && numa_max_node() > 0)
		snprintf(as_on_node, sizeof(as_on_node), "numactl -m %d hugeadm --obey-mempolicy",
			cfg->numa_node);
	else
		strcpy(as_on_node, "hugeadm");
	return kvf_fail(err, KVF_E_NOHUGE,
		"not enough free %s hugepages%s: needed=%" PRIu64 ", free=%" PRIu64
		", missing=%" PRIu64 "%s; get them with: %s --pool-pages-min %s:%" PRIu64,
		page_word(page_size), where, needed, s->free, missing,
		s->supported ? "" : " (this kernel offers none of this size)", as_on_node,
		page_size == PAGE_1G ? "1GB" : "2MB", s->total + missing);
}

/* The kernel refused although the count says there is enough: some other limit holds. */
static int
fail_hidden_limit(const struct kvf_pool_config *cfg, uint64_t page_size, uint64_t needed, int error,
	struct kvf_err *err)
{
	struct kvf_huge_supply s;

	kvf_huge_supply("", page_size, cfg->numa_node, &s);
	if (needed > s.free)
		return fail_nohuge(cfg, page_size, needed, &s, err);
	return kvf_fail(err, KVF_E_NOMEM,
		"no %s hugepages although needed=%" PRIu64 ", free=%" PRIu64
		": look at size= of the mount, the hugetlb cgroup and RLIMIT_AS: %s",
		page_word(page_size), needed, s.free, strerror(error));
}

static int
check_hugepages(
	const struct kvf_pool_config *cfg, uint64_t page_size, uint64_t needed, struct kvf_err *err)
{
	struct kvf_huge_supply s;

	kvf_huge_supply("", page_size, cfg->numa_node, &s);
	if (needed > s.free && needed - s.free > s.overcommit)
		return fail_nohuge(cfg, page_size, needed, &s, err);
	return 0;
}

static int
check_memory(const struct kvf_pool_config *cfg, uint64_t remaining, struct kvf_err *err)
{
	struct kvf_memory_supply s;

	kvf_memory_supply("", cfg->numa_node, &s);
	if (remaining > s.bytes)
		return kvf_fail(err, KVF_E_NOMEM,
			"length=%" PRIu64 " in 4 KiB pages: remaining=%" PRIu64
			" bytes exceed %s=%" PRIu64,
			cfg->length, remaining, s.limit, s.bytes);
	return 0;
}

static int
open_memfd(const struct kvf_pool_config *cfg, struct kvf_pool *pool, struct kvf_err *err)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;

	if (pool->page_size == PAGE_2M)
		flags |= MFD_HUGETLB | MFD_HUGE_2MB;
	else if (pool->page_size == PAGE_1G)
		flags |= MFD_HUGETLB | MFD_HUGE_1GB;
	pool->fd = memfd_create(pool_name(cfg), flags);
	if (pool->fd < 0)
		return kvf_fail_errno(err, "memfd_create with page_size=%" PRIu64, pool->page_size);
	if (ftruncate(pool->fd, (off_t)pool->mapped_length) != 0)
		return kvf_fail_errno(err, "setting the size to %" PRIu64, pool->mapped_length);
	if (fcntl(pool->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
		return kvf_fail_errno(err, "sealing the pool's memfd");
	return 0;
}

static int
check_mount(const struct statfs *fs, const char *path, uint64_t page_size, struct kvf_err *err)
{
	if (fs->f_type != HUGETLBFS_MAGIC)
		return kvf_fail(err, KVF_E_INVAL,
			"path=%." MAX_SHOWN
			"s is not on a hugetlbfs mount: found f_type=0x%lx, needed=0x%lx",
			path, (unsigned long)fs->f_type, (unsigned long)HUGETLBFS_MAGIC);
	if ((uint64_t)fs->f_bsize != page_size)
		return kvf_fail(err, KVF_E_INVAL,
			"path=%." MAX_SHOWN
			"s: the mount has page_size=%lu, asked is page_size=%" PRIu64,
			path, (unsigned long)fs->f_bsize, page_size);
	return 0;
}

/* The name that destroy unlinks, whatever the current directory is by then. */
static char *
absolute_path(const char *path)
{
	char *for_dir, *for_base, *real = NULL, *abs = NULL;

	for_dir = strdup(path);
	for_base = strdup(path);
	if (for_dir != NULL && for_base != NULL)
		real = realpath(dirname(for_dir), NULL);
	if (real != NULL && asprintf(&abs, "%s/%s", real, basename(for_base)) < 0)
		abs = NULL;
	free(real);
	free(for_base);
	free(for_dir);
	return abs;
}

/* Before anything is created or counted: a wrong path is the caller's mistake, not a shortage. */
static int
check_path(const struct kvf_pool_config *cfg, uint64_t page_size, struct kvf_err *err)
{
	struct statfs fs;
	char *copy;
	int rc;

	copy = strdup(cfg->path);
	if (copy == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "no memory for the pool's path");
	if (statfs(dirname(copy), &fs) != 0)
		rc = kvf_fail_errno(
			err, "path=%." MAX_SHOWN "s: looking at its directory", cfg->path);
	else
		rc = check_mount(&fs, cfg->path, page_size, err);
	free(copy);
	return rc;
}

static int
open_file(const struct kvf_pool_config *cfg, struct kvf_pool *pool, struct kvf_err *err)
{
	struct statfs fs;
	char *abs;
	int rc;

	abs = absolute_path(cfg->path);
	if (abs == NULL)
		return kvf_fail_errno(
			err, "path=%." MAX_SHOWN "s: finding its directory", cfg->path);
	pool->fd = open(abs, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (pool->fd < 0 && errno == EEXIST)
		rc = kvf_fail(err, KVF_E_EXIST,
			"path=%." MAX_SHOWN
			"s exists already: a pool is never put into somebody's file",
			cfg->path);
	else if (pool->fd < 0)
		rc = kvf_fail_errno(err, "creating path=%." MAX_SHOWN "s", cfg->path);
	else
		rc = 0;
	if (rc != 0) {
		free(abs);
		return rc;
	}
	pool->path = abs;
	if (fstatfs(pool->fd, &fs) != 0)
		return kvf_fail_errno(err, "fstatfs of path=%." MAX_SHOWN "s", cfg->path);
	rc = check_mount(&fs, cfg->path, pool->page_size, err);
	if (rc != 0)
		return rc;
	if (ftruncate(pool->fd, (off_t)pool->mapped_length) != 0)
		return kvf_fail_errno(err, "setting the size to %" PRIu64, pool->mapped_length);
	return 0;
}

static int
bind_to_node(const struct kvf_pool *pool, int node, struct kvf_err *err)
{
	struct bitmask *mask;
	long rc;

	if (node < 0)
		return 0;
	mask = numa_allocate_nodemask();
	numa_bitmask_setbit(mask, (unsigned int)node);
	rc = mbind(pool->base, pool->mapped_length, MPOL_BIND, mask->maskp, mask->size + 1,
		MPOL_MF_STRICT);
	numa_bitmask_free(mask);
	if (rc != 0)
		return kvf_fail_errno(err, "binding the pool to node=%d", node);
	return 0;
}

/* *error gets the kernel's errno where pages could not be had; 0 where err says it all. */
static int
map_and_populate(
	const struct kvf_pool_config *cfg, struct kvf_pool *pool, int *error, struct kvf_err *err)
{
	uint64_t step, done, len;
	int rc;

	*error = 0;
	pool->base =
		mmap(NULL, pool->mapped_length, PROT_READ | PROT_WRITE, MAP_SHARED, pool->fd, 0);
	if (pool->base == MAP_FAILED) {
		pool->base = NULL;
		if (errno == ENOMEM)
			*error = errno;
		return kvf_fail_errno(err, "mapping length=%" PRIu64, pool->mapped_length);
	}
	rc = bind_to_node(pool, cfg->numa_node, err);
	step = pool->page_size > KVF_POPULATE_STEP ? pool->page_size : KVF_POPULATE_STEP;
	for (done = 0; rc == 0 && done < pool->mapped_length; done += len) {
		len = pool->mapped_length - done < step ? pool->mapped_length - done : step;
		/* Others take memory too while this one grows. */
		if (pool->page_size == PAGE_4K)
			rc = check_memory(cfg, pool->mapped_length - done, err);
		if (rc != 0)
			break;
		*error = kvf_populate(
			pool->fd, pool->base, done, len, cfg->numa_node, KVF_POPULATE_BEST);
		if (*error != 0) {
			errno = *error;
			rc = kvf_fail_errno(err, "populating at byte=%" PRIu64 " of %" PRIu64, done,
				pool->mapped_length);
		}
	}
	return rc;
}

void
kvf_pool_destroy(struct kvf_pool *pool)
{
	struct stat ours, named;

	if (pool == NULL)
		return;
	if (pool->base != NULL)
		munmap(pool->base, pool->mapped_length);
	/* The name may belong to somebody else's file by now. */
	if (pool->path != NULL && fstat(pool->fd, &ours) == 0 && lstat(pool->path, &named) == 0 &&
		ours.st_dev == named.st_dev && ours.st_ino == named.st_ino)
		unlink(pool->path);
	if (pool->fd >= 0)
		close(pool->fd);
	free(pool->path);
	free(pool);
}

static int
create_with(const struct kvf_pool_config *cfg, uint64_t page_size, struct kvf_pool **out,
	struct kvf_err *err)
{
	struct kvf_pool *pool;
	uint64_t mapped;
	int rc, error;

	rc = round_up(cfg->length, page_size, &mapped, err);
	if (rc == 0 && cfg->path != NULL)
		rc = check_path(cfg, page_size, err);
	if (rc == 0 && page_size != PAGE_4K)
		rc = check_hugepages(cfg, page_size, mapped / page_size, err);
	else if (rc == 0)
		rc = check_memory(cfg, mapped, err);
	if (rc != 0)
		return rc;

	pool = calloc(1, sizeof(*pool));
	if (pool == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "no memory for the pool's description");
	pool->fd = -1;
	pool->length = cfg->length;
	pool->mapped_length = mapped;
	pool->page_size = page_size;
	rc = cfg->path != NULL ? open_file(cfg, pool, err) : open_memfd(cfg, pool, err);
	error = 0;
	if (rc == 0)
		rc = map_and_populate(cfg, pool, &error, err);
	if (rc != 0) {
		/* First give back what it got, then count: its own part is no shortage. */
		kvf_pool_destroy(pool);
		if (error != 0 && page_size != PAGE_4K)
			rc = fail_hidden_limit(cfg, page_size, mapped / page_size, error, err);
		return rc;
	}
	*out = pool;
	return 0;
}

static int
create_or_fall_back(const struct kvf_pool_config *cfg, struct kvf_pool **pool, struct kvf_err *err)
{
	struct kvf_pool_config small = *cfg;
	struct kvf_err why;
	uint64_t page_size;
	int rc;

	rc = check_config(cfg, &page_size, err);
	if (rc != 0)
		return rc;
	rc = create_with(cfg, page_size, pool, err);
	if (rc != KVF_E_NOHUGE || !(cfg->flags & KVF_POOL_ALLOW_4K))
		return rc;
	why = *err;
	small.path = NULL;
	rc = create_with(&small, PAGE_4K, pool, err);
	if (rc != 0) {
		struct kvf_err also = *err;

		return kvf_fail(err, rc, "no hugepages, and %s", also.text);
	}
	fprintf(stderr,
		"kvferry: WARNING: pool \"%s\": %s\n"
		"kvferry: WARNING: pool \"%s\" now lies in 4 KiB pages%s: length=%" PRIu64
		"; every copy from or to it will be slower\n",
		pool_name(cfg), why.text, pool_name(cfg),
		cfg->path != NULL ? ", in a memfd and not in the file asked for" : "", cfg->length);
	return 0;
}

int
kvf_pool_create(const struct kvf_pool_config *cfg, struct kvf_pool **pool, struct kvf_err *err)
{
	struct kvf_err own, sentence;
	int rc;

	if (cfg == NULL || pool == NULL)
		return kvf_fail(err, KVF_E_INVAL, "%s is NULL", cfg == NULL ? "cfg" : "pool");
	*pool = NULL;
	rc = create_or_fall_back(cfg, pool, &own);
	if (rc == 0)
		return 0;
	/* Which of several pools it was. */
	sentence = own;
	return kvf_fail(err, rc, "pool \"%.20s\": %s", pool_name(cfg), sentence.text);
}

void *
kvf_pool_addr(const struct kvf_pool *pool)
{
	return pool->base;
}

uint64_t
kvf_pool_length(const struct kvf_pool *pool)
{
	return pool->length;
}

uint64_t
kvf_pool_mapped_length(const struct kvf_pool *pool)
{
	return pool->mapped_length;
}

uint64_t
kvf_pool_page_size(const struct kvf_pool *pool)
{
	return pool->page_size;
}

int
kvf_pool_fd(const struct kvf_pool *pool)
{
	return pool->fd;
}
