/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Any layout to any layout, any parallelism to any parallelism, through a running engine.
 *
 *	KVF_MATRIX_COUNT=N	combinations (2000), and a tenth as many refusals
 *	KVF_TEST_SEED=S KVF_MATRIX_INDEX=I	plays combination I of seed S only
 *	KVF_TEST_SEED=S KVF_MATRIX_REFUSAL=I	the same for a refused one
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/rig.h"
#include "common/suite.h"
#include "combo.h"

#define DMA_EVERY 10u
#define MAX_BAD   5u /* then the rest would tell nothing new */

static uint32_t
number(const char *name, uint32_t otherwise)
{
	const char *env = getenv(name);

	return env != NULL ? (uint32_t)strtoul(env, NULL, 0) : otherwise;
}

static bool
wanted(uint32_t i, bool harmed)
{
	uint32_t good = number("KVF_MATRIX_INDEX", UINT32_MAX);
	uint32_t refusal = number("KVF_MATRIX_REFUSAL", UINT32_MAX);

	if (good == UINT32_MAX && refusal == UINT32_MAX)
		return true;
	return i == (harmed ? refusal : good);
}

/* Those of the first `count` combinations that are a multiple of DMA_EVERY, or that are not. */
static void
play(const char *driver, uint32_t count, bool dma, bool harmed)
{
	struct kvf_engine_config cfg = {.driver = driver, .lcores = 2};
	uint32_t i, played = 0, bad = 0, replay = 0;
	struct combo *c = malloc(sizeof(*c));
	struct venue v = {0};
	struct rig *rig;

	if (c == NULL)
		abort();
	replay = number(harmed ? "KVF_MATRIX_REFUSAL" : "KVF_MATRIX_INDEX", 0);
	if (replay >= count)
		count = replay + 1;
	rig = rig_start(&cfg);
	v.socket = rig_socket(rig);
	for (i = 0; i < count && bad < MAX_BAD; i++) {
		if ((!harmed && (i % DMA_EVERY == 0) != dma) || !wanted(i, harmed))
			continue;
		combo_draw(c, suite_seed(), i, harmed);
		if (getenv("KVF_MATRIX_PRINT") != NULL)
			combo_print(c);
		bad += !combo_play(c, &v);
		played++;
	}
	CHECK_EQ(bad, 0);
	CHECK_EQ(rig_stop(rig), 0);
	printf("        %s: %u %s\n", driver, played, harmed ? "refused" : "combinations");
	free(c);
}

static void
test_cpu(void)
{
	play("cpu", number("KVF_MATRIX_COUNT", 2000), false, false);
}

static void
test_dmadev(void)
{
	play("dmadev:dma_skeleton0", number("KVF_MATRIX_COUNT", 2000), true, false);
}

static void
test_refused(void)
{
	play("cpu", number("KVF_MATRIX_COUNT", 2000) / 10, false, true);
}

static const struct suite_case cases[] = {
	{"combinations, copied by CPUs", test_cpu},
	{"combinations, copied by a DMA device", test_dmadev},
	{"combinations that must be refused", test_refused},
};

SUITE_MAIN("matrix", cases)
