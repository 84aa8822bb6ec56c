/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices that fail, workers that go, memory that goes away: who is harmed, and who is not. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/endpoint.h"
#include "cluster.h"

#define TOTAL 320u

/* A grant whose lists the caller keeps: what will be there is not known yet. */
static void
grant(struct cluster *c, uint32_t rank, uint64_t room, uint32_t slot, struct cluster_lists *l)
{
	struct kvf_recv_args a = {
		.room = room, .total_tokens = TOTAL, .prefill_group = c->prefill_group};
	struct kvf_err err = {0};

	cluster_lists(c, true, rank, 0, TOTAL, slot, l);
	a.lists = l->lists;
	a.num_lists = l->num;
	if (!CHECK_EQ(kvf_recv(c->d[rank].ep, &a, &err), 0))
		printf("        %s\n", err.text);
}

/* It ended: its shadow expects the bytes of a success, and whatever is there after a failure. */
static void
settle(struct cluster *c, uint32_t rank, uint64_t room, int status, struct cluster_lists *l)
{
	if (status == KVF_SUCCESS)
		peer_expect(&c->d[rank], room, 0, TOTAL, l->lists, l->num);
	else
		peer_forgive(&c->d[rank], 0, TOTAL, l->lists, l->num);
	cluster_lists_free(l);
}

static void
device_errors(const char *driver, uint32_t lcores)
{
	struct kvf_engine_config cfg = {.driver = driver, .lcores = lcores};
	struct cluster_shape s = cluster_small(1, 2, 4);
	uint32_t round, i, k, failures = 0, good = 0;
	struct kvf_err err = {0};
	struct cluster c;

	s.prefill.num_pages = s.decode.num_pages = 256;
	cluster_open(&c, &cfg, &s);
	for (round = 0; round < 4; round++) {
		struct cluster_lists l[8][2];

		for (i = 0; i < 8; i++) {
			for (k = 0; k < 2; k++)
				grant(&c, k, i + 1, i, &l[i][k]);
			CHECK_EQ(cluster_send(&c, 0, i + 1, 0, TOTAL, TOTAL, i, &err), 0);
		}
		for (i = 0; i < 8; i++) {
			int st = cluster_wait(&c, &c.p[0], i + 1, CLUSTER_WAIT_MS);

			/* Either it passed everywhere, or the sender failed; a receiver may have
			 * been done before. */
			if (st == KVF_FAILED) {
				failures++;
				CHECK_EQ(kvf_room_error(c.p[0].ep, i + 1, &err), KVF_E_DEVICE);
				CHECK_STR_HAS(err.text, "driver=fault failed a copy from prefill "
							"p[0] to decode d[");
			} else {
				good++;
				CHECK_EQ(st, KVF_SUCCESS);
			}
			for (k = 0; k < 2; k++) {
				int there = cluster_wait(&c, &c.d[k], i + 1, CLUSTER_WAIT_MS);

				if (st == KVF_SUCCESS)
					CHECK_EQ(there, KVF_SUCCESS);
				if (there == KVF_FAILED)
					CHECK_EQ(kvf_room_error(c.d[k].ep, i + 1, &err),
						KVF_E_DEVICE);
				settle(&c, k, i + 1, there, &l[i][k]);
			}
			CHECK_EQ(cluster_release(&c, &c.p[0], i + 1), 0);
			CHECK_EQ(cluster_release(&c, &c.d[0], i + 1), 0);
			CHECK_EQ(cluster_release(&c, &c.d[1], i + 1), 0);
		}
		for (k = 0; k < 2; k++)
			CHECK_EQ(peer_check(&c.d[k]), 0);
	}
	CHECK(failures > 0);
	CHECK(good > 0);
	cluster_close(&c);
}

static void
test_device_errors(void)
{
	device_errors("fault:cpu,fail=11,every=29", 1);
	device_errors("fault:cpu,fail=5,every=31", 3);
	device_errors("fault:dmadev,fail=7,every=41", 2);
}

/* One that errs once errs once: exactly one room. */
static void
test_single_error(void)
{
	struct kvf_engine_config cfg = {.driver = "fault:cpu,fail=3"};
	struct cluster_shape s = cluster_small(1, 1, 2);
	struct cluster_lists l;
	struct kvf_err err = {0};
	uint32_t failures = 0;
	struct cluster c;
	uint64_t room;

	cluster_open(&c, &cfg, &s);
	for (room = 1; room <= 8; room++) {
		int st;

		grant(&c, 0, room, 0, &l);
		CHECK_EQ(cluster_send(&c, 0, room, 0, TOTAL, TOTAL, 0, &err), 0);
		st = cluster_wait(&c, &c.d[0], room, CLUSTER_WAIT_MS);
		failures += st == KVF_FAILED;
		settle(&c, 0, room, st, &l);
		CHECK_EQ(cluster_wait(&c, &c.p[0], room, CLUSTER_WAIT_MS), st);
		CHECK_EQ(cluster_release(&c, &c.p[0], room), 0);
		CHECK_EQ(cluster_release(&c, &c.d[0], room), 0);
	}
	CHECK_EQ(failures, 1);
	cluster_close(&c);
}

/*
 * An endpoint goes while copies are under way, politely or not. Its pool stands still once the
 * engine confirmed, or once the others are drained; they hear of it, another pair on the same
 * engine does not.
 */
static void
test_gone_in_the_middle(void)
{
	struct kvf_engine_config cfg = {.driver = "fault:cpu,delay_us=10000", .lcores = 2};
	struct cluster_shape s = cluster_small(1, 2, 4), other = cluster_small(1, 1, 2);
	struct kvf_err err = {0};
	struct cluster c, calm;
	uint32_t round, i, k;
	int64_t used = -1;

	s.prefill.num_pages = s.decode.num_pages = 256;
	cluster_open(&c, &cfg, &s);
	other.rig = c.rig;
	other.prefill_name = "calm-p";
	other.decode_name = "calm-d";
	cluster_open(&calm, NULL, &other);
	calm.prefill_group = "calm-p";
	c.prefill_group = "p";
	for (round = 0; round < 12; round++) {
		struct peer *gone = round % 2 == 0 ? &c.d[round / 2 % 2] : &c.p[0];
		struct cluster_lists l[3][2];

		cluster_room(&calm, round + 1, 0, 100, 48, 0);
		for (i = 0; i < 3; i++) {
			for (k = 0; k < 2; k++)
				grant(&c, k, i + 1, i, &l[i][k]);
			CHECK_EQ(cluster_send(&c, 0, i + 1, 0, TOTAL, TOTAL, i, &err), 0);
		}
		CHECK(cluster_until(&c, &c.d[0], 1, KVF_TRANSFERRING, CLUSTER_WAIT_MS) >=
			KVF_TRANSFERRING);
		cluster_sleep_ms((int)suite_range(&c.rand, 0, 15));
		if (round / 4 % 2 == 0) {
			CHECK_EQ(cluster_leave(&c, gone), 0); /* the proof for its pool */
			for (i = 0; i < 3 && gone->role == KVF_DECODE; i++)
				peer_forgive(gone, 0, TOTAL, l[i][gone->rank].lists,
					l[i][gone->rank].num);
			if (gone->role == KVF_PREFILL)
				memset(gone->base, 0x77, gone->pool_bytes);
		} else {
			shutdown(gone->ep->sock, SHUT_RDWR); /* as if killed */
		}
		for (i = 0; i < 3; i++)
			for (k = 0; k < 3; k++) {
				struct peer *p = k < 2 ? &c.d[k] : &c.p[0];
				int st;

				if (p == gone)
					continue;
				st = cluster_wait(&c, p, i + 1, CLUSTER_WAIT_MS);
				if (st == KVF_FAILED) {
					CHECK_EQ(kvf_room_error(p->ep, i + 1, &err),
						KVF_E_PEER_DIED);
					CHECK_STR_HAS(err.text, gone->role == KVF_PREFILL
									? "prefill p[0]"
									: "decode d[");
				} else {
					CHECK_EQ(st, KVF_SUCCESS);
				}
				if (k < 2 && st == KVF_SUCCESS)
					peer_expect(p, i + 1, 0, TOTAL, l[i][k].lists, l[i][k].num);
				else if (k < 2)
					peer_forgive(p, 0, TOTAL, l[i][k].lists, l[i][k].num);
				CHECK_EQ(cluster_release(&c, p, i + 1), 0);
			}
		if (gone->ep != NULL)
			cluster_leave(&c, gone);
		/* Everything has come to rest now, so the pool of the one that went has as well. */
		memcpy(gone->shadow, gone->base, gone->pool_bytes);
		cluster_sleep_ms(30);
		for (k = 0; k < 2; k++)
			CHECK_EQ(peer_check(&c.d[k]), 0);
		CHECK_EQ(peer_connect(gone, rig_socket(c.rig), NULL, &err), 0);
		for (i = 0; i < 3; i++)
			for (k = 0; k < 2; k++)
				cluster_lists_free(&l[i][k]);
		cluster_room(&c, 50, 0, 200, 96, 5);
		cluster_finish(&c, 50, KVF_SUCCESS);
		cluster_finish(&calm, round + 1, KVF_SUCCESS);
		if (round % 6 == 0) {
			int64_t now = cluster_idle(&c);

			if (used >= 0)
				CHECK_EQ(now, used);
			used = now;
		}
	}
	cluster_close(&calm);
	cluster_close(&c);
}

/* Everybody aborts, posts, goes and comes back at random; a calm pair on the same engine sees none
 * of it. */
static void
test_mayhem(void)
{
	struct kvf_engine_config cfg = {.driver = "fault:cpu,delay_us=300", .lcores = 3};
	struct cluster_shape s = cluster_small(2, 2, 2), other = cluster_small(1, 2, 2);
	struct kvf_err err = {0};
	struct cluster c, calm;
	struct kvf_event ev[16];
	uint32_t step, i;

	s.prefill.num_pages = s.decode.num_pages = 512;
	s.prefill.state_bytes = s.decode.state_bytes = 3000;
	cluster_open(&c, &cfg, &s);
	other.rig = c.rig;
	other.prefill_name = "calm-p";
	other.decode_name = "calm-d";
	cluster_open(&calm, NULL, &other);
	calm.prefill_group = "calm-p";
	c.prefill_group = "p";
	for (step = 0; step < 3000; step++) {
		uint32_t rank = (uint32_t)suite_range(&c.rand, 0, 1);
		uint64_t room = suite_range(&c.rand, 1, 6);
		bool decode = suite_range(&c.rand, 0, 1) != 0;
		struct peer *p = decode ? &c.d[rank] : &c.p[rank];
		uint64_t what = suite_range(&c.rand, 0, 999);
		struct cluster_lists l;

		if (what < 400) {
			struct kvf_recv_args r = {.room = room,
				.total_tokens = 100,
				.prefill_group = "p",
				.num_lists = 0};
			struct kvf_send_args a = {
				.room = room, .num_tokens = 100, .total_tokens = 100};

			cluster_lists(&c, decode, rank, 0, 100, (uint32_t)room, &l);
			r.lists = a.lists = l.lists;
			r.num_lists = a.num_lists = l.num;
			if (decode)
				kvf_recv(p->ep, &r, &err);
			else
				kvf_send(p->ep, &a, &err);
			cluster_lists_free(&l);
		} else if (what < 470) {
			kvf_abort(p->ep, room, "mayhem", &err);
		} else if (what < 950) {
			kvf_poll(p->ep, ev, 16);
			kvf_room_release(p->ep, room, &err);
		} else if (what < 980) {
			if (what % 2 == 0)
				shutdown(p->ep->sock, SHUT_RDWR);
			cluster_leave(&c, p);
			/* The place is free once the engine is through with the one before. */
			for (i = 0; i < 2000 && peer_connect(p, rig_socket(c.rig), NULL, &err) != 0;
				i++) {
				CHECK_EQ(err.code, KVF_E_EXIST);
				cluster_sleep_ms(1);
			}
			if (!CHECK(p->ep != NULL))
				break;
		} else {
			cluster_sleep_ms(1);
		}
		if (step % 50 == 0) {
			if (step != 0)
				cluster_finish(&calm, step / 50, KVF_SUCCESS);
			cluster_room(&calm, step / 50 + 1, 0, 150, 64, 1);
		}
	}
	cluster_finish(&calm, (step - 1) / 50 + 1, KVF_SUCCESS);
	cluster_close(&calm);
	for (i = 0; i < 2; i++) {
		/* What fell out of it is anybody's guess, but only while it is open. */
		cluster_leave(&c, &c.d[i]);
		cluster_leave(&c, &c.p[i]);
	}
	for (i = 0; i < 2; i++) {
		memcpy(c.d[i].shadow, c.d[i].base, c.d[i].pool_bytes);
		memcpy(c.p[i].shadow, c.p[i].base, c.p[i].pool_bytes);
	}
	cluster_sleep_ms(20);
	CHECK_EQ(cluster_idle(&c), 0);
	cluster_close(&c);
}

/* Where the engine, in this very process, has mapped somebody's pool. */
static uint8_t *
engine_view(const struct peer *p)
{
	unsigned long from, to, off, ino;
	char line[512], perms[8];
	uint8_t *at = NULL;
	struct stat st;
	FILE *f;

	if (fstat(kvf_pool_fd(p->pool), &st) != 0 || (f = fopen("/proc/self/maps", "r")) == NULL)
		return NULL;
	while (fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "%lx-%lx %7s %lx %*s %lu", &from, &to, perms, &off, &ino) == 5 &&
			ino == st.st_ino && (uint8_t *)from != p->base && off == 0)
			at = (uint8_t *)from;
	fclose(f);
	return at;
}

/*
 * A pool of ordinary memory cannot be cut under the engine (a hole in it reads as zeros), one on a
 * hugetlbfs mount can. The effect is the same here: the page at which the engine looks belongs to a
 * file that ends before it.
 */
static void
lose_memory(const char *driver, uint32_t lcores, bool decode)
{
	struct kvf_engine_config cfg = {.driver = driver, .lcores = lcores};
	struct cluster_shape s = cluster_small(1, 1, 4), other = cluster_small(1, 1, 2);
	struct kvf_err err = {0};
	struct cluster c, calm;
	struct cluster_lists l;
	struct peer *loser, *mate;
	int empty = memfd_create("empty", 0);
	uint8_t *view;

	cluster_open(&c, &cfg, &s);
	other.rig = c.rig;
	other.prefill_name = "calm-p";
	other.decode_name = "calm-d";
	cluster_open(&calm, NULL, &other);
	calm.prefill_group = "calm-p";
	c.prefill_group = "p";
	loser = decode ? &c.d[0] : &c.p[0];
	mate = decode ? &c.p[0] : &c.d[0];
	cluster_room(&c, 1, 0, TOTAL, 96, 1);
	cluster_finish(&c, 1, KVF_SUCCESS);
	cluster_room(&calm, 1, 0, 300, 96, 1);
	view = engine_view(loser);
	if (!CHECK(view != NULL && empty >= 0))
		exit(2);
	/* By number: this is done behind the engine's back, which a sanitizer would report. */
	CHECK_EQ(syscall(SYS_mmap, view, loser->pool_bytes / 4096 * 4096, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, empty, 0),
		(long)(uintptr_t)view);
	grant(&c, 0, 2, 2, &l);
	CHECK_EQ(cluster_send(&c, 0, 2, 0, TOTAL, TOTAL, 2, &err), 0);
	CHECK_EQ(cluster_wait(&c, mate, 2, CLUSTER_WAIT_MS), KVF_FAILED);
	CHECK_EQ(kvf_room_error(mate->ep, 2, &err), KVF_E_POOL_LOST);
	CHECK_STR_HAS(err.text, decode ? "memory of the pool of decode d[0] was taken away"
				       : "memory of the pool of prefill p[0] was taken away");
	CHECK_EQ(cluster_wait(&c, loser, 2, CLUSTER_WAIT_MS), KVF_FAILED);
	settle(&c, 0, 2, KVF_FAILED, &l);
	CHECK_EQ(cluster_release(&c, mate, 2), 0);
	cluster_leave(&c, loser);
	/* It comes back with memory that stays, and nobody else noticed. */
	CHECK_EQ(peer_connect(loser, rig_socket(c.rig), NULL, &err), 0);
	cluster_room(&c, 3, 0, TOTAL, 96, 3);
	cluster_finish(&c, 3, KVF_SUCCESS);
	cluster_finish(&calm, 1, KVF_SUCCESS);
	cluster_room(&calm, 2, 0, 300, 96, 2);
	cluster_finish(&calm, 2, KVF_SUCCESS);
	cluster_close(&calm);
	cluster_close(&c);
	close(empty);
}

static void
test_memory_goes_away(void)
{
	lose_memory("cpu", 1, false);
	lose_memory("cpu", 1, true);
	lose_memory("cpu", 3, true);
	lose_memory("dmadev", 1, false);
}

/* The engine stops: what moves may finish, everything else fails, and pages are free after it. */
static void
test_engine_stops(void)
{
	struct kvf_engine_config cfg = {.driver = "fault:cpu,delay_us=10000", .drain_ms = 5000};
	struct cluster_shape s = cluster_small(1, 1, 4);
	struct kvf_err err = {0};
	struct cluster c;
	uint64_t room;

	cluster_open(&c, &cfg, &s);
	cluster_recv_all(&c, 1, 0, TOTAL, 1);
	cluster_send_all(&c, 1, 0, TOTAL, TOTAL, 1);
	CHECK_EQ(
		cluster_until(&c, &c.d[0], 1, KVF_TRANSFERRING, CLUSTER_WAIT_MS), KVF_TRANSFERRING);
	{
		uint32_t aux = 3;
		struct kvf_pages list = {PEER_AUX, 1, &aux};
		struct kvf_recv_args r = {.room = 2, .lists = &list, .num_lists = 1};

		CHECK_EQ(kvf_recv(c.d[0].ep, &r, &err), 0);
	}
	c.own_rig = false;
	CHECK_EQ(rig_stop(c.rig), 0);
	CHECK_EQ(cluster_wait(&c, &c.d[0], 1, CLUSTER_WAIT_MS), KVF_SUCCESS);
	CHECK_EQ(cluster_wait(&c, &c.p[0], 1, CLUSTER_WAIT_MS), KVF_SUCCESS);
	CHECK_EQ(cluster_wait(&c, &c.d[0], 2, CLUSTER_WAIT_MS), KVF_FAILED);
	CHECK_EQ(kvf_room_error(c.d[0].ep, 2, &err), KVF_E_ENGINE_GONE);
	for (room = 1; room <= 2; room++)
		CHECK_EQ(kvf_room_drained(c.d[0].ep, room), 1);
	CHECK_EQ(cluster_send(&c, 0, 3, 0, 0, 0, 0, &err), KVF_E_ENGINE_GONE);
	cluster_close(&c);

	/* With less patience than a copy takes: it still ends, and only with pages at rest. */
	cfg.driver = "fault:cpu,delay_us=300000";
	cfg.drain_ms = 1;
	cluster_open(&c, &cfg, &s);
	{
		struct cluster_lists l;

		grant(&c, 0, 1, 1, &l);
		cluster_send_all(&c, 1, 0, TOTAL, TOTAL, 1);
		CHECK_EQ(cluster_until(&c, &c.d[0], 1, KVF_TRANSFERRING, CLUSTER_WAIT_MS),
			KVF_TRANSFERRING);
		c.own_rig = false;
		CHECK_EQ(rig_stop(c.rig), 0);
		CHECK_EQ(cluster_wait(&c, &c.d[0], 1, CLUSTER_WAIT_MS), KVF_FAILED);
		CHECK_EQ(kvf_room_error(c.d[0].ep, 1, &err), KVF_E_ENGINE_GONE);
		settle(&c, 0, 1, KVF_FAILED, &l);
		cluster_sleep_ms(400);
		CHECK_EQ(peer_check(&c.d[0]), 0);
	}
	cluster_close(&c);
}

static const struct suite_case cases[] = {
	{"device errors reach their rooms only", test_device_errors},
	{"one error, one room", test_single_error},
	{"an endpoint goes in the middle", test_gone_in_the_middle},
	{"mayhem next to a calm pair", test_mayhem},
	{"memory of a pool goes away", test_memory_goes_away},
	{"the engine stops", test_engine_stops},
};

SUITE_MAIN("faults", cases)
