/* SPDX-License-Identifier: BSD-3-Clause */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hostile.h"

struct cluster calm;
uint64_t rnd;
static uint64_t calm_room;
static int64_t slab_before;
static unsigned int fds_before, maps_before;

static unsigned int
open_fds(void)
{
	unsigned int n = 0;
	DIR *dir = opendir("/proc/self/fd");

	while (dir != NULL && readdir(dir) != NULL)
		n++;
	closedir(dir);
	return n;
}

/* Mappings of shared memory: those of pools and rings. */
static unsigned int
shared_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned int n = 0;
	char line[512];

	if (f == NULL)
		abort();
	while (fgets(line, sizeof(line), f) != NULL)
		n += strstr(line, "memfd:") != NULL;
	fclose(f);
	return n;
}

void
calm_moves(void)
{
	calm_room++;
	cluster_room(&calm, calm_room, 0, 100 + calm_room % 50, 48, calm_room % 16);
	cluster_finish(&calm, calm_room, KVF_SUCCESS);
}

void
hostile_setup(const struct kvf_engine_config *cfg)
{
	struct cluster_shape s = cluster_small(1, 1, 2);

	rnd = suite_seed() | 1;
	s.decode_name = "calm-d";
	s.prefill_name = "calm-p";
	cluster_open(&calm, cfg, &s);
	calm.key = 0x5ec4e7;
	calm_moves();
	slab_before = cluster_idle(&calm);
	cluster_sleep_ms(20); /* the engine's end of that question closes */
	fds_before = open_fds();
	maps_before = shared_maps();
}

/* The engine lets go of what it had for the hostile ones. */
void
hostile_teardown(void)
{
	uint32_t i;

	calm_moves();
	for (i = 0; i < 5000 && (open_fds() != fds_before || shared_maps() != maps_before); i++)
		cluster_sleep_ms(2);
	CHECK_EQ(open_fds(), fds_before);
	CHECK_EQ(shared_maps(), maps_before);
	CHECK_EQ(cluster_idle(&calm), slab_before);
	cluster_close(&calm);
}
