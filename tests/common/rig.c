/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/rig.h"

struct rig {
	char socket[64];
	struct kvf_engine *engine;
	pthread_t thread;
	int rc;
	struct kvf_err err;
};

static void *
run(void *arg)
{
	struct rig *rig = arg;

	rig->rc = kvf_engine_run(rig->engine, &rig->err);
	return NULL;
}

static void
eal_once(void)
{
	static char *vdevs[] = {"--vdev=dma_skeleton0", "--vdev=dma_skeleton1"};
	struct kvf_eal_config eal = {
		.lcores = RIG_LCORES, .no_huge = true, .num_args = 2, .args = vdevs};
	static int started;
	struct kvf_err err;

	if (started)
		return;
	started = 1;
	if (kvf_eal_start(&eal, &err) != 0) {
		fprintf(stderr, "EAL: %s\n", err.text);
		exit(2);
	}
}

struct rig *
rig_try_start(const struct kvf_engine_config *cfg, struct kvf_err *err)
{
	struct kvf_engine_config c = {0};
	struct rig *rig = calloc(1, sizeof(*rig));
	static int n;

	eal_once();
	if (rig == NULL)
		abort();
	if (cfg != NULL)
		c = *cfg;
	snprintf(rig->socket, sizeof(rig->socket), "/tmp/kvf-rig-%d-%d.sock", (int)getpid(), n++);
	c.socket = rig->socket;
	c.quiet = true;
	if (kvf_engine_start(&c, &rig->engine, err) != 0) {
		free(rig);
		return NULL;
	}
	if (pthread_create(&rig->thread, NULL, run, rig) != 0)
		abort();
	return rig;
}

struct rig *
rig_start(const struct kvf_engine_config *cfg)
{
	struct kvf_err err;
	struct rig *rig = rig_try_start(cfg, &err);

	if (rig == NULL) {
		fprintf(stderr, "engine: %s: %s\n", kvf_error_name(err.code), err.text);
		exit(2);
	}
	return rig;
}

const char *
rig_socket(const struct rig *rig)
{
	return rig->socket;
}

int
rig_stop(struct rig *rig)
{
	int rc;

	kvf_engine_request_stop(rig->engine);
	pthread_join(rig->thread, NULL);
	rc = rig->rc;
	if (rc == 0)
		kvf_engine_free(rig->engine);
	else
		fprintf(stderr, "engine: %s\n", rig->err.text);
	free(rig);
	return rc;
}
