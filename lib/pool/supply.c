/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/supply.h"

#define PATH_LEN 1024

/* The number that `path` starts with; "max" is UINT64_MAX. false: no such file or no number. */
static bool
read_u64(const char *path, uint64_t *value)
{
	char buf[64], *end;
	bool ok;
	FILE *f;

	f = fopen(path, "re");
	if (f == NULL)
		return false;
	ok = fgets(buf, sizeof(buf), f) != NULL;
	fclose(f);
	if (!ok)
		return false;
	if (strncmp(buf, "max", 3) == 0) {
		*value = UINT64_MAX;
		return true;
	}
	*value = strtoull(buf, &end, 10);
	return end != buf;
}

static uint64_t
read_u64_or_0(const char *dir, const char *name)
{
	char path[PATH_LEN + 64];
	uint64_t value;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return read_u64(path, &value) ? value : 0;
}

/* The number after `key` in a file of "key number" lines (/proc/meminfo, memory.stat). */
static bool
read_key(const char *path, const char *key, uint64_t *value)
{
	char line[256];
	bool found = false;
	FILE *f;

	f = fopen(path, "re");
	if (f == NULL)
		return false;
	while (!found && fgets(line, sizeof(line), f) != NULL) {
		const char *at = strstr(line, key);
		size_t len = strlen(key);

		/* A node's meminfo has "Node 0 " before the key, the others nothing. */
		if (at == NULL || (at != line && at[-1] != ' ') || strchr(" \t:", at[len]) == NULL)
			continue;
		found = sscanf(at + len, "%*[: \t]%" SCNu64, value) == 1;
	}
	fclose(f);
	return found;
}

void
kvf_huge_supply(const char *root, uint64_t page_size, int node, struct kvf_huge_supply *s)
{
	uint64_t kb = page_size / 1024, resv, over, surplus, node_free;
	char dir[PATH_LEN], probe[PATH_LEN + 32];

	memset(s, 0, sizeof(*s));
	snprintf(dir, sizeof(dir), "%s/sys/kernel/mm/hugepages/hugepages-%" PRIu64 "kB", root, kb);
	snprintf(probe, sizeof(probe), "%s/nr_hugepages", dir);
	s->supported = read_u64(probe, &s->total);
	if (!s->supported)
		return;
	s->free = read_u64_or_0(dir, "free_hugepages");
	resv = read_u64_or_0(dir, "resv_hugepages");
	s->free -= resv < s->free ? resv : s->free;
	over = read_u64_or_0(dir, "nr_overcommit_hugepages");
	surplus = read_u64_or_0(dir, "surplus_hugepages");
	s->overcommit = over > surplus ? over - surplus : 0;
	if (node < 0)
		return;
	/* Promises are counted for the whole host only, so neither number alone is enough. */
	snprintf(dir, sizeof(dir),
		"%s/sys/devices/system/node/node%d/hugepages/hugepages-%" PRIu64 "kB", root, node,
		kb);
	node_free = read_u64_or_0(dir, "free_hugepages");
	if (node_free < s->free)
		s->free = node_free;
}

static void
tighten(struct kvf_memory_supply *s, uint64_t bytes, const char *limit)
{
	if (bytes < s->bytes) {
		s->bytes = bytes;
		s->limit = limit;
	}
}

struct cgroup_files {
	const char *mount;
	const char *limit;
	const char *usage;
	const char *reclaimable; /* in memory.stat: charged, but given back under pressure */
};

static const struct cgroup_files cgroup_v2 = {
	"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};
static const struct cgroup_files cgroup_v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
	"memory.usage_in_bytes", "total_inactive_file"};

/* A limit of any ancestor binds too. Groups above a container's own root are not visible: skipped.
 */
static void
cgroup_supply(
	const char *root, const struct cgroup_files *c, char *group, struct kvf_memory_supply *s)
{
	char file[PATH_LEN * 2];
	uint64_t limit, used, reclaimable;
	char *slash;

	for (;;) {
		snprintf(file, sizeof(file), "%s%s%s/%s", root, c->mount, group, c->limit);
		if (read_u64(file, &limit) && limit < UINT64_MAX / 2) {
			snprintf(file, sizeof(file), "%s%s%s/%s", root, c->mount, group, c->usage);
			if (!read_u64(file, &used))
				used = 0;
			snprintf(file, sizeof(file), "%s%s%s/memory.stat", root, c->mount, group);
			if (!read_key(file, c->reclaimable, &reclaimable))
				reclaimable = 0;
			used -= reclaimable < used ? reclaimable : used;
			tighten(s, limit > used ? limit - used : 0, "cgroup");
		}
		slash = strrchr(group, '/');
		if (slash == NULL)
			return;
		*slash = '\0';
	}
}

/* Lines are "<id>:<controllers>:<path>"; v2 is the one with id 0 and no controller. */
static void
cgroups_supply(const char *root, struct kvf_memory_supply *s)
{
	char line[PATH_LEN], *controllers, *group;
	FILE *f;

	snprintf(line, sizeof(line), "%s/proc/self/cgroup", root);
	f = fopen(line, "re");
	if (f == NULL)
		return;
	while (fgets(line, sizeof(line), f) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		controllers = strchr(line, ':');
		if (controllers == NULL)
			continue;
		*controllers++ = '\0';
		group = strchr(controllers, ':');
		if (group == NULL)
			continue;
		*group++ = '\0';
		if (strcmp(line, "0") == 0 && controllers[0] == '\0')
			cgroup_supply(root, &cgroup_v2, group, s);
		else if (strcmp(controllers, "memory") == 0)
			cgroup_supply(root, &cgroup_v1, group, s);
	}
	fclose(f);
}

void
kvf_memory_supply(const char *root, int node, struct kvf_memory_supply *s)
{
	uint64_t kb, file_kb = 0;
	char path[PATH_LEN];

	s->bytes = UINT64_MAX;
	s->limit = "MemAvailable";
	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	if (read_key(path, "MemAvailable", &kb))
		tighten(s, kb * 1024, "MemAvailable");
	cgroups_supply(root, s);
	if (node < 0)
		return;
	/* A bound mapping on a full node is an OOM kill although other nodes have room. */
	snprintf(path, sizeof(path), "%s/sys/devices/system/node/node%d/meminfo", root, node);
	if (!read_key(path, "MemFree", &kb))
		return;
	if (read_key(path, "Inactive(file)", &file_kb))
		kb += file_kb;
	if (read_key(path, "Active(file)", &file_kb))
		kb += file_kb;
	tighten(s, kb * 1024, "node");
}
