/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <unistd.h>

#include "common/fail.h"
#include "pd-demo/run.h"

/* An engine that somebody else started may still be starting. */
#define ENGINE_WAIT_MS 10000u

static int
start_engine(struct demo_run *run, struct kvf_err *err)
{
	const struct demo_options *o = run->o;
	struct app_engine_config cfg;
	uint64_t limit_ms;

	if (o->engine == NULL) {
		limit_ms = o->timeout_s * 1000ull;
		if (limit_ms > ENGINE_WAIT_MS)
			limit_ms = ENGINE_WAIT_MS;
		return app_engine_wait(&run->engine, o->socket, limit_ms, err);
	}
	fprintf(run->info, "engine: %s --socket %s --driver %s --lcores %u\n", o->engine, o->socket,
		o->driver, o->lcores);
	fflush(run->info);
	cfg = (struct app_engine_config){
		.who = "pd-demo",
		.path = o->engine,
		.socket = o->socket,
		.driver = o->driver,
		.lcores = o->lcores,
		.args = o->engine_args,
		.no_huge = run->sizing.memory == DEMO_MEMORY_SMALL,
	};
	return app_engine_start(&run->engine, &cfg, err);
}

static void
run_phases(struct demo_run *run)
{
	uint64_t start = app_now_ns();

	if (!demo_members_wait(run, "filling the pools", DEMO_ALL_BITS, DEMO_READY))
		return;
	run->fill_s = (double)(app_now_ns() - start) / 1e9;
	demo_members_go(run, DEMO_DECODE_BIT);
	if (!demo_members_wait(run, "granting pages", DEMO_DECODE_BIT, DEMO_POSTED))
		return;
	demo_members_go(run, DEMO_PREFILL_BIT);
	if (!demo_members_wait(run, "transferring", DEMO_ALL_BITS, DEMO_DONE))
		return;
	start = app_now_ns();
	demo_members_go(run, DEMO_ALL_BITS);
	if (!demo_members_wait(run, "verifying", DEMO_ALL_BITS, DEMO_VERIFIED))
		return;
	run->verify_s = (double)(app_now_ns() - start) / 1e9;
	demo_members_wait(run, "closing", DEMO_ALL_BITS, DEMO_CLOSED);
}

static void
run_all(struct demo_run *run)
{
	struct kvf_err err;
	int rc;

	rc = start_engine(run, &err);
	if (rc == 0)
		rc = demo_members_spawn(run, &err);
	if (rc != 0) {
		demo_fail(run, NULL, DEMO_NO_ROOM, rc, err.text);
		run->broken = true;
		return;
	}
	run_phases(run);
}

int
demo_parent_main(struct demo_options *o, const struct model *m)
{
	struct demo_run run = {.o = o, .model = m, .info = o->json ? stderr : stdout};
	struct demo_options chosen = *o;
	struct demo_machine machine;
	char socket[64];
	struct kvf_err err;
	int rc;

	snprintf(chosen.tag, sizeof(chosen.tag), "%d", (int)getpid());
	if (chosen.socket == NULL && chosen.engine != NULL) {
		snprintf(socket, sizeof(socket), "/tmp/kvferry-demo-%d.sock", (int)getpid());
		chosen.socket = socket;
	} else if (chosen.socket == NULL) {
		chosen.socket = KVF_DEFAULT_SOCKET;
	}
	if (chosen.driver == NULL && chosen.engine != NULL)
		chosen.driver = "cpu";
	demo_machine_read(&machine);
	rc = demo_size(&chosen, m, &machine, &run.sizing, &err);
	if (rc == 0) {
		chosen.tokens = run.sizing.tokens;
		run.o = &chosen;
		rc = demo_plan_build(&chosen, &run.plan, &err);
	}
	if (rc == 0) {
		run.room_failed = calloc(run.plan.num, sizeof(*run.room_failed));
		if (run.room_failed == NULL)
			rc = app_fail(&err, KVF_E_NOMEM, "no memory for rooms=%u", run.plan.num);
	}
	if (rc != 0) {
		fprintf(stderr, "pd-demo: %s: %s\n", kvf_error_name(rc), err.text);
		demo_plan_free(&run.plan);
		return 1;
	}
	demo_report_plan(&run);
	/* Decided here once, so that ten workers need not find out each for themselves. */
	if (run.sizing.memory == DEMO_MEMORY_SMALL)
		chosen.memory = DEMO_MEMORY_SMALL;
	run_all(&run);
	demo_members_end(&run);
	rc = app_engine_stop(&run.engine, &err);
	if (rc != 0)
		demo_fail(&run, NULL, DEMO_NO_ROOM, rc, err.text);
	/* A killed engine leaves its socket behind; this one was made up for this run. */
	if (chosen.socket == socket)
		unlink(socket);
	rc = demo_report_end(&run);
	free(run.members);
	demo_plan_free(&run.plan);
	free(run.room_failed);
	return rc;
}
