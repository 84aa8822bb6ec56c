/* SPDX-License-Identifier: BSD-3-Clause */
/* Starting DPDK's environment with options that fit: small, quiet, as any user, next to other
 * engines. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>

#include "base/err.h"
#include "engine/engine.h"

#define EAL_MEMORY_MB 32
#define MAX_ARGS      128

/* "0@(0,1),1@(0,1),..." or with one CPU each. Lcore 0 is control, the others poll. */
static int
lcore_map(const struct kvf_eal_config *cfg, char *out, size_t cap, struct kvf_err *err)
{
	uint32_t lcores = cfg->lcores == 0 ? 1 : cfg->lcores, i;
	char all[4 * CPU_SETSIZE] = "";
	cpu_set_t set;
	size_t n = 0;
	int cpu;

	if (lcores > KVF_ENGINE_MAX_LCORES)
		return kvf_fail(
			err, KVF_E_INVAL, "lcores=%u limit=%u", lcores, KVF_ENGINE_MAX_LCORES);
	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return kvf_fail_errno(err, "cannot read the CPU affinity");
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set))
			n += (size_t)snprintf(
				all + n, sizeof(all) - n, "%s%d", n > 0 ? "," : "", cpu);
	n = (size_t)snprintf(out, cap, "0@(%s)", all);
	if (cfg->cpus == NULL) {
		for (i = 1; i <= lcores && n < cap; i++)
			n += (size_t)snprintf(out + n, cap - n, ",%u@(%s)", i, all);
	} else {
		const char *at = cfg->cpus;

		for (i = 1; i <= lcores && n < cap; i++) {
			char *end;
			long c = strtol(at, &end, 10);

			if (end == at || c < 0 || c >= CPU_SETSIZE || !CPU_ISSET(c, &set))
				return kvf_fail(err, KVF_E_INVAL,
					"cpus=%s must name one usable CPU (of %s) for each of "
					"lcores=%u",
					cfg->cpus, all, lcores);
			n += (size_t)snprintf(out + n, cap - n, ",%u@%ld", i, c);
			at = *end == ',' ? end + 1 : end;
		}
		if (*at != '\0')
			return kvf_fail(err, KVF_E_INVAL, "cpus=%s names more CPUs than lcores=%u",
				cfg->cpus, lcores);
	}
	if (n >= cap)
		return kvf_fail(err, KVF_E_INVAL, "too many CPUs to name for lcores=%u", lcores);
	return 0;
}

static bool
given(const struct kvf_eal_config *cfg, const char *option)
{
	size_t len = strlen(option);
	int i;

	for (i = 0; i < cfg->num_args; i++)
		if (strncmp(cfg->args[i], option, len) == 0 &&
			(cfg->args[i][len] == '\0' || cfg->args[i][len] == '='))
			return true;
	return false;
}

/* Huge pages that nobody uses or has reserved. */
static long
free_huge_2m(void)
{
	static const char *const files[2] = {
		"/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
		"/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages"};
	long v[2] = {0, 0};
	int i;

	for (i = 0; i < 2; i++) {
		FILE *f = fopen(files[i], "r");

		if (f == NULL)
			return 0;
		if (fscanf(f, "%ld", &v[i]) != 1)
			v[i] = 0;
		fclose(f);
	}
	return v[0] - v[1];
}

int
kvf_eal_start(const struct kvf_eal_config *cfg, struct kvf_err *err)
{
	static char lcores[16384], prefix[64], memory[16], level[] = "--log-level=warning";
	static char *argv[MAX_ARGS];
	bool no_huge = cfg->no_huge || given(cfg, "--no-huge");
	int argc = 0, i, rc;

	rc = lcore_map(cfg, lcores, sizeof(lcores), err);
	if (rc != 0)
		return rc;
	if (cfg->num_args > MAX_ARGS - 20)
		return kvf_fail(err, KVF_E_INVAL, "EAL arguments=%d limit=%d", cfg->num_args,
			MAX_ARGS - 20);
	if (!no_huge && free_huge_2m() < EAL_MEMORY_MB / 2) {
		fprintf(stderr,
			"kvferryd: WARNING: free 2 MiB hugepages=%ld, the engine wants %d: its own "
			"memory goes on "
			"4 KiB pages (as with --no-huge). `hugeadm --pool-pages-min 2MB:+%d` gives "
			"them.\n",
			free_huge_2m(), EAL_MEMORY_MB / 2, EAL_MEMORY_MB / 2);
		no_huge = true;
	}
	snprintf(prefix, sizeof(prefix), "--file-prefix=kvferry-%d", (int)getpid());
	snprintf(memory, sizeof(memory), "%d", EAL_MEMORY_MB);
	argv[argc++] = "kvferryd";
	argv[argc++] = level;
	argv[argc++] = prefix;
	argv[argc++] = "--no-telemetry";
	if (!given(cfg, "--lcores") && !given(cfg, "-l")) {
		argv[argc++] = "--lcores";
		argv[argc++] = lcores;
	}
	if (!given(cfg, "--iova-mode"))
		argv[argc++] = "--iova-mode=va";
	if (!cfg->pci && !given(cfg, "-a") && !given(cfg, "--allow"))
		argv[argc++] = "--no-pci";
	if (!given(cfg, "-m") && !given(cfg, "--socket-mem")) {
		argv[argc++] = "-m";
		argv[argc++] = memory;
	}
	if (no_huge) {
		if (!given(cfg, "--no-huge"))
			argv[argc++] = "--no-huge";
		argv[argc++] = "--no-shconf";
	} else if (!given(cfg, "--in-memory")) {
		argv[argc++] = "--in-memory";
	}
	for (i = 0; i < cfg->num_args; i++)
		argv[argc++] = cfg->args[i];
	argv[argc] = NULL;
	if (rte_eal_init(argc, argv) < 0)
		return kvf_fail(err, KVF_E_SYS,
			"DPDK's EAL did not start: %s (its own lines above say more)",
			rte_strerror(rte_errno));
	return 0;
}

void
kvf_eal_stop(void)
{
	rte_eal_cleanup();
}
