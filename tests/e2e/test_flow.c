/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two prefill and four decode processes, each on its own, move many rooms at once through a
 * kvferryd; every byte of every pool is compared, those that nobody should touch included.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/suite.h"
#include "e2e/member.h"

#define NP        2u
#define ND        4u
#define LAYERS    3u
#define VIRTUAL   64u /* decode page times DCP */
#define ROUNDS    2u  /* the second one uses the room ids, slots and pages again */
#define ROOM_MS   40000
#define REPORT_MS 60000

struct room {
	uint64_t prefix;
	uint64_t total;
	uint64_t start; /* of the first chunk */
	uint64_t chunk;
};

static const struct room rooms[] = {
	{0, 333, 0, 64},                             /* the last page is partial */
	{0, 3, 0, 64},                               /* fewer tokens than ranks */
	{2 * VIRTUAL, 300, 2 * VIRTUAL, 32},         /* a prefix that decode has */
	{4 * VIRTUAL, 4 * VIRTUAL, 4 * VIRTUAL, 64}, /* all of it */
	{0, 0, 0, 64},                               /* nothing but state and aux */
	{VIRTUAL, 420, 0, 128},                      /* prefill sends the prefix too: trimmed */
	{0, VIRTUAL, 0, 16}, {0, 700, 0, 700},       /* one chunk */
	{3 * VIRTUAL, 3 * VIRTUAL + 1, 3 * VIRTUAL, 64},
	{0, 50, 0, 24}, /* chunks that end inside a page */
};
#define ROOMS (sizeof(rooms) / sizeof(rooms[0]))

struct scene {
	const char *socket;
	uint32_t prefill_page;
	uint32_t interleave;
	bool stages;  /* prefill ranks are pipeline stages, not replicas */
	bool spoiled; /* the driver flips bytes: the workers must see it */
};

struct cast {
	const struct scene *scene;
	struct member_spec spec;
};

static uint64_t
room_id(uint32_t i)
{
	return 0xfeed000000000000ull + i * 7u;
}

static void
shuffle(uint32_t *a, uint32_t n, uint64_t *rand)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		uint32_t k = (uint32_t)suite_range(rand, 0, i);

		a[i] = a[k];
		a[k] = i;
	}
}

static int
grant_all(struct member *m, uint64_t *rand, struct kvf_err *err)
{
	uint32_t order[ROOMS], i;
	int rc = 0;

	shuffle(order, ROOMS, rand);
	for (i = 0; i < ROOMS && rc == 0; i++) {
		const struct room *r = &rooms[order[i]];

		rc = member_recv(m, room_id(order[i]), r->prefix, r->total, order[i], err);
	}
	return rc;
}

/* The rooms' chunks in any order, but each room's own in its order. */
static int
send_all(struct member *m, uint64_t *rand, struct kvf_err *err)
{
	bool done[ROOMS] = {false};
	uint64_t at[ROOMS];
	uint32_t left = ROOMS, i;
	int rc = 0;

	for (i = 0; i < ROOMS; i++)
		at[i] = rooms[i].start;
	while (left > 0 && rc == 0) {
		const struct room *r;
		uint64_t n;

		i = (uint32_t)suite_range(rand, 0, ROOMS - 1);
		if (done[i])
			continue;
		r = &rooms[i];
		n = r->total - at[i] < r->chunk ? r->total - at[i] : r->chunk;
		rc = member_send(m, room_id(i), at[i], n, r->total, i, err);
		at[i] += n;
		if (at[i] == r->total) {
			done[i] = true;
			left--;
		}
	}
	return rc;
}

static int
finish_all(struct member *m, struct kvf_err *err)
{
	uint32_t i;
	int rc = 0;

	for (i = 0; i < ROOMS && rc == 0; i++) {
		int st = peer_wait(&m->peer, room_id(i), ROOM_MS);

		if (st == KVF_SUCCESS) {
			rc = member_release(m, room_id(i), err);
			continue;
		}
		if (st == KVF_FAILED)
			kvf_room_error(m->peer.ep, room_id(i), err);
		else
			snprintf(err->text, sizeof(err->text), "room %u: status=%d: %s", i,
				kvf_room_status(m->peer.ep, room_id(i)), kvf_error_name(st));
		rc = st == KVF_FAILED ? err->code : st;
	}
	return rc;
}

/* Pools are full of guard bytes and of the first round when the second one starts. */
static void
play(int fd, void *arg)
{
	struct cast *c = arg;
	struct member *m = calloc(1, sizeof(*m));
	uint64_t rand = c->spec.seed | 1;
	struct e2e_msg report = {0};
	struct kvf_err err = {0};
	uint32_t round;
	int rc;

	if (m == NULL)
		abort();
	rc = member_open(m, &c->spec, &err);
	for (round = 0; round < ROUNDS && rc == 0; round++) {
		rc = c->spec.role == KVF_DECODE ? grant_all(m, &rand, &err)
						: send_all(m, &rand, &err);
		if (rc == 0)
			rc = finish_all(m, &err);
		if (rc == 0)
			report.value[0] += peer_check(&m->peer);
		member_recycle(m);
	}
	report.code = rc;
	report.value[1] = m->delivered;
	memcpy(report.text, err.text, sizeof(err.text));
	fflush(stdout);
	e2e_say(fd, &report);
	member_close(m);
	free(m);
}

static void
make_cast(struct cast *cast, const struct scene *s)
{
	uint64_t rand = suite_seed() | 1;
	uint32_t i;

	for (i = 0; i < NP + ND; i++) {
		struct member_spec *spec = &cast[i].spec;
		bool prefill = i < NP;

		cast[i] = (struct cast){.scene = s};
		spec->socket = s->socket;
		spec->role = prefill ? KVF_PREFILL : KVF_DECODE;
		spec->group = prefill ? "p" : "d";
		spec->group_size = prefill ? NP : ND;
		spec->rank = prefill ? i : i - NP;
		spec->seed = suite_rand(&rand);
		spec->shape = (struct peer_shape){.layers = LAYERS,
			.row_bytes = 1152,
			.page_tokens = prefill ? s->prefill_page : 16,
			.num_pages = prefill ? 4096 / s->prefill_page : 64,
			.aux_bytes = 64,
			.state_bytes = 4096,
			.draft_layers = 1};
		if (prefill && s->stages) {
			spec->shape.layers = i == 0 ? 2 : 1;
			spec->shape.first_layer = i == 0 ? 0 : 2;
			spec->shape.draft_layers = i == 0 ? 0 : 1;
		}
		if (!prefill) {
			spec->shape.sharding = (struct kvf_sharding){ND, i - NP, s->interleave, 0};
			/* Small enough that posting has to wait now and then. */
			spec->limits.sq_entries = 4;
			spec->limits.cq_entries = 8;
		}
	}
}

/* Bytes that lcores of `driver` report, over `kvferry status --json`. */
static uint64_t
bytes_of_driver(const char *socket, const char *driver)
{
	struct e2e_result r;
	uint64_t sum = 0;
	json_t *root, *lcore;
	size_t i;

	e2e_run(&r, 20000, E2E_ARGS(E2E_KVFERRY, "status", "--json", "--socket", socket));
	CHECK_EQ(r.status, 0);
	root = json_loads(r.out, 0, NULL);
	CHECK(root != NULL);
	json_array_foreach(json_object_get(root, "lcores"), i, lcore)
	{
		const char *name = json_string_value(json_object_get(lcore, "driver"));

		if (name != NULL && strcmp(name, driver) == 0)
			sum += (uint64_t)json_integer_value(json_object_get(lcore, "bytes"));
	}
	json_decref(root);
	e2e_result_free(&r);
	return sum;
}

static void
run(struct scene s, const char *driver, const char *const *args)
{
	struct e2e_worker w[NP + ND];
	struct e2e_engine e = {0};
	struct cast cast[NP + ND] = {0};
	uint64_t delivered = 0, moved, wrong = 0;
	uint32_t i;

	e2e_page_size();
	if (!e2e_engine_start(&e, args))
		return;
	s.socket = e.socket;
	make_cast(cast, &s);
	for (i = 0; i < NP + ND; i++)
		CHECK(e2e_fork(&w[i], play, &cast[i]));
	for (i = 0; i < NP + ND; i++) {
		struct e2e_msg report = {0};

		if (!CHECK_EQ(e2e_hear(w[i].fd, &report, REPORT_MS), 0))
			continue;
		if (!CHECK_EQ(report.code, 0))
			printf("        %s[%u]: %s: %s\n", cast[i].spec.group, cast[i].spec.rank,
				kvf_error_name(report.code), report.text);
		wrong += report.value[0];
		delivered += report.value[1];
	}
	for (i = 0; i < NP + ND; i++)
		CHECK_EQ(e2e_worker_join(&w[i], 20000), 0);
	if (s.spoiled)
		CHECK(wrong > 0);
	else
		CHECK_EQ(wrong, 0);
	moved = bytes_of_driver(e.socket, driver);
	CHECK(delivered > 1000000);
	if (!CHECK(moved >= delivered))
		printf("        delivered %" PRIu64 ", driver %s moved %" PRIu64 "\n", delivered,
			driver, moved);
	CHECK_EQ(e2e_engine_stop(&e), 0);
}

static void
test_cpu_1(void)
{
	run((struct scene){.prefill_page = 16, .interleave = 1}, "cpu",
		E2E_ARGS("--driver", "cpu", "--lcores", "1"));
}

static void
test_cpu_2(void)
{
	run((struct scene){.prefill_page = 32, .interleave = 16, .stages = true}, "cpu",
		E2E_ARGS("--driver", "cpu", "--lcores", "2"));
}

static void
test_cpu_portable(void)
{
	run((struct scene){.prefill_page = 64, .interleave = 4}, "cpu",
		E2E_ARGS("--driver", "cpu:portable", "--lcores", "2", "--busy"));
}

static void
test_dmadev_1(void)
{
	run((struct scene){.prefill_page = 16, .interleave = 16, .stages = true}, "dmadev",
		E2E_ARGS("--driver", "dmadev", "--lcores", "1", "--", "--vdev=dma_skeleton0"));
}

static void
test_dmadev_2(void)
{
	run((struct scene){.prefill_page = 32, .interleave = 1}, "dmadev",
		E2E_ARGS("--driver", "dmadev", "--lcores", "2", "--", "--vdev=dma_skeleton0",
			"--vdev=dma_skeleton1"));
}

/* Single rows go to the core, what hangs together to the device. */
static void
test_mixed(void)
{
	run((struct scene){.prefill_page = 16, .interleave = 1}, "mixed",
		E2E_ARGS("--driver", "mixed:from=4096,dma_skeleton0", "--lcores", "1", "--",
			"--vdev=dma_skeleton0"));
}

static void
test_mixed_measured(void)
{
	run((struct scene){.prefill_page = 32, .interleave = 16}, "mixed",
		E2E_ARGS("--driver", "mixed", "--lcores", "2", "--", "--vdev=dma_skeleton0",
			"--vdev=dma_skeleton1"));
}

/* Would these tests notice? */
static void
test_spoiled(void)
{
	run((struct scene){.prefill_page = 16, .interleave = 1, .spoiled = true}, "fault",
		E2E_ARGS("--driver", "fault:cpu,corrupt=20"));
}

static const struct suite_case cases[] = {
	{"cpu, one lcore, replicas", test_cpu_1},
	{"cpu, two lcores, pipeline stages, pages 32 to 16, page-interleaved", test_cpu_2},
	{"cpu portable, two busy lcores, pages 64 to 16, interleave 4", test_cpu_portable},
	{"dmadev, one device, pipeline stages, page-interleaved", test_dmadev_1},
	{"dmadev, two devices, two lcores, pages 32 to 16", test_dmadev_2},
	{"mixed, from 4096 bytes on, one device", test_mixed},
	{"mixed, measured, two devices, two lcores", test_mixed_measured},
	{"one flipped byte is noticed", test_spoiled},
};

SUITE_MAIN("flow", cases)
