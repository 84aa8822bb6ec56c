/* SPDX-License-Identifier: BSD-3-Clause */
/* EAL for suites that need DMA devices: no hugepages, no root, two software devices. */
#ifndef KVF_TESTS_EAL_H
#define KVF_TESTS_EAL_H

#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include <rte_eal.h>

#include "common/suite.h"
#include "drivers/copy.h"

/* Runs a suite with EAL up; EAL can be initialised once in a process. */
static inline int
eal_suite_run(const char *name, const struct suite_case *cases, size_t n, int argc, char **argv)
{
	char *args[] = {argv[0], "--no-huge", "--no-shconf", "--no-telemetry", "-m", "64",
		"--no-pci", "--iova-mode=va", "--lcores", "0@(0-1)", "--log-level=critical",
		"--vdev=dma_skeleton0", "--vdev=dma_skeleton1", NULL};
	int ret;

	if (rte_eal_init((int)(sizeof(args) / sizeof(args[0])) - 1, args) < 0) {
		fprintf(stderr, "EAL does not initialise\n");
		return 2;
	}
	ret = suite_run(name, cases, n, argc, argv);
	rte_eal_cleanup();
	return ret;
}

static inline uint64_t
mono_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

/* Polls until `want` batches ended or 20 s passed; returns how many did. */
static inline uint32_t
poll_until(const struct kvf_copy_ops *ops, struct kvf_copy_channel *ch, struct kvf_copy_done *done,
	uint32_t want)
{
	uint64_t end = mono_us() + 20000000u;
	uint32_t n = 0;

	while (n < want && mono_us() < end)
		n += ops->poll(ch, done + n, want - n);
	return n;
}

#endif
