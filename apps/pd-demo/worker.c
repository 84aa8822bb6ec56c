/* SPDX-License-Identifier: BSD-3-Clause */
/* One prefill or decode rank: a process with a pool and an endpoint of its own. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <kvferry/kvferry.h>

#include "common/fail.h"
#include "pd-demo/layout.h"
#include "pd-demo/proto.h"
#include "pd-demo/store.h"
#include "pd-demo/transfer.h"

/* The parent waits for others too before it says go; it is the one to give up first. */
#define GO_SLACK_MS 30000

struct work {
	struct demo_worker *w;
	uint64_t done;
	uint64_t all;
};

static void
on_bytes(void *arg, uint64_t bytes)
{
	struct work *work = arg;

	work->done += bytes;
	demo_tell_progress(work->w, work->done, work->all);
}

static void
begin_work(struct demo_worker *w, struct work *work, uint64_t all)
{
	*work = (struct work){w, 0, all};
	w->store.progress = on_bytes;
	w->store.progress_arg = work;
}

static uint64_t
all_room_bytes(const struct demo_worker *w)
{
	uint64_t sum = 0;
	uint32_t r;

	for (r = 0; r < w->plan->num; r++)
		sum += demo_room_bytes(w->layout, &w->plan->rooms[r]);
	return sum;
}

static int
wait_go(struct demo_worker *w, struct kvf_err *err)
{
	uint64_t limit_ms = (uint64_t)w->o->timeout_s * 1000 + GO_SLACK_MS;
	uint64_t deadline = app_now_ns() + limit_ms * 1000000, now;
	struct pollfd pfd = {.fd = w->fd, .events = POLLIN};
	struct demo_msg msg;
	ssize_t n;

	while ((now = app_now_ns()) < deadline) {
		if (poll(&pfd, 1, (int)((deadline - now) / 1000000) + 1) < 0 && errno != EINTR)
			return app_fail(err, KVF_E_SYS, "poll failed: %s", strerror(errno));
		if (pfd.revents == 0)
			continue;
		n = recv(w->fd, &msg, sizeof(msg), MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n != (ssize_t)sizeof(msg))
			return app_fail(err, KVF_E_SYS, "the parent is gone");
		if (msg.type == DEMO_GO)
			return 0;
		if (msg.type == DEMO_ABORT)
			demo_abort_room(w, msg.room);
	}
	return app_fail(err, KVF_E_TIMEOUT, "no word from the parent for %" PRIu64 " ms", limit_ms);
}

static void
milestone(struct demo_worker *w, enum demo_msg_type type, uint64_t a, uint64_t b)
{
	struct demo_msg msg = {.type = type, .room = DEMO_NO_ROOM, .v = {a, b}};

	demo_tell(w, &msg);
}

static int
make_pool(const struct demo_worker *w, struct kvf_pool **pool, struct kvf_err *err)
{
	char name[32];
	struct kvf_pool_config cfg = {
		.length = w->layout->decl.pool_bytes,
		.page_size = w->o->memory == DEMO_MEMORY_SMALL ? 4096 : 0,
		.name = name,
		.numa_node = -1,
		.flags = w->o->memory == DEMO_MEMORY_HUGE ? 0 : KVF_POOL_ALLOW_4K,
	};

	snprintf(name, sizeof(name), "%s-%u", demo_role_name(w->layout->role), w->layout->rank);
	return kvf_pool_create(&cfg, pool, err);
}

static int
open_endpoint(struct demo_worker *w, struct kvf_pool *pool, struct kvf_err *err)
{
	char group[KVF_GROUP_NAME_MAX];
	uint64_t limit_ms = (uint64_t)w->o->timeout_s * 1000;
	struct kvf_endpoint_config cfg = {
		.socket = w->o->socket,
		.role = w->layout->role,
		.group = group,
		.group_size = demo_ranks(w->o, w->layout->role),
		.rank = w->layout->rank,
		.pool = pool,
		.geometry = &w->layout->decl.geo,
		.open_timeout_ms = limit_ms < 10000 ? (uint32_t)limit_ms : 10000,
		.bootstrap_timeout_ms = (uint32_t)limit_ms,
		.waiting_timeout_ms = (uint32_t)limit_ms,
	};

	demo_group_name(w->o, w->layout->role, group);
	return kvf_endpoint_open(&cfg, &w->ep, err);
}

static void
prepare(struct demo_worker *w)
{
	bool fill = w->layout->role == KVF_PREFILL;
	struct work work;
	uint32_t r;

	begin_work(w, &work, w->layout->decl.pool_bytes + (fill ? all_room_bytes(w) : 0));
	demo_store_guard(&w->store);
	for (r = 0; fill && r < w->plan->num; r++)
		demo_store_fill(&w->store, r);
}

/* Between the pool's length and the end of its last page nobody has any business. */
static void
check_tail(const struct kvf_pool *pool, struct demo_check *check)
{
	const uint8_t *base = kvf_pool_addr(pool);
	uint64_t i;

	for (i = kvf_pool_length(pool); i < kvf_pool_mapped_length(pool); i++) {
		if (base[i] == 0)
			continue;
		if (check->mismatches++ == 0)
			snprintf(check->text, sizeof(check->text),
				"pool offset=%" PRIu64 " is past length=%" PRIu64
				", but was written: got=0x%02x",
				i, kvf_pool_length(pool), base[i]);
	}
}

static void
verify(struct demo_worker *w, const struct kvf_pool *pool)
{
	struct demo_msg msg = {.type = DEMO_VERIFIED, .room = DEMO_NO_ROOM};
	struct demo_check check = {0};
	struct work work;
	uint32_t r;

	begin_work(w, &work, w->layout->decl.pool_bytes + all_room_bytes(w));
	for (r = 0; r < w->plan->num; r++) {
		/* What a failed room left at decode is not defined; prefill's own rows never
		 * change. */
		if (w->layout->role == KVF_DECODE && w->rooms[r].status != KVF_SUCCESS)
			demo_store_forget(&w->store, r);
		else
			demo_store_check(&w->store, r, &check);
	}
	demo_store_sweep(&w->store, &check);
	check_tail(pool, &check);
	msg.v[0] = check.bytes;
	msg.v[1] = check.mismatches;
	snprintf(msg.text, sizeof(msg.text), "%s", check.text);
	demo_tell(w, &msg);
}

/* Pool and endpoint exist: the phases, in step with the parent. */
static int
run_phases(struct demo_worker *w, const struct kvf_pool *pool, struct kvf_err *err)
{
	int rc;

	milestone(w, DEMO_READY, kvf_pool_mapped_length(pool), kvf_pool_page_size(pool));
	rc = wait_go(w, err);
	if (rc != 0)
		return rc;
	if (w->layout->role == KVF_DECODE) {
		rc = demo_grant_rooms(w, err);
		if (rc != 0)
			return rc;
		milestone(w, DEMO_POSTED, 0, 0);
	}
	rc = demo_run_rooms(w, err);
	if (rc != 0)
		return rc;
	milestone(w, DEMO_DONE, w->first_post, w->last_success);
	rc = wait_go(w, err);
	if (rc != 0)
		return rc;
	verify(w, pool);
	return demo_release_rooms(w, err);
}

static int
with_store(struct demo_worker *w, struct kvf_err *err)
{

	struct kvf_pool *pool;
	int rc, closed;

	rc = make_pool(w, &pool, err);
	if (rc != 0)
		return rc;
	rc = demo_store_init(&w->store, w->layout, w->plan, kvf_pool_addr(pool), w->o->seed, err);
	if (rc != 0) {
		kvf_pool_destroy(pool);
		return rc;
	}
	prepare(w);
	rc = open_endpoint(w, pool, err);
	if (rc == 0) {
		rc = run_phases(w, pool, err);
		closed = kvf_endpoint_close(w->ep);
		if (rc == 0 && closed != 0)
			rc = app_fail(
				err, closed, "closing the endpoint: %s", kvf_error_name(closed));
	}
	demo_store_fini(&w->store);
	kvf_pool_destroy(pool);
	return rc;
}

int
demo_worker_main(const struct demo_options *o, const struct model *m)
{
	struct demo_worker w = {.o = o, .fd = o->worker_fd};
	struct demo_layout layout;
	struct demo_plan plan;
	struct kvf_err err;
	char name[32];
	uint32_t r;
	int rc;

	/* What top and ps show; the kernel keeps 15 bytes. */
	snprintf(name, sizeof(name), "pd-%s-%u", demo_role_name(o->worker_role), o->worker_rank);
	prctl(PR_SET_NAME, name);
	rc = demo_plan_build(o, &plan, &err);
	if (rc != 0)
		goto out;
	rc = demo_layout_build(o, m, &plan, o->worker_role, o->worker_rank, &layout, &err);
	if (rc != 0)
		goto out_plan;
	w.plan = &plan;
	w.layout = &layout;
	w.rooms = calloc(plan.num, sizeof(*w.rooms));
	if (w.rooms == NULL) {
		rc = app_fail(&err, KVF_E_NOMEM, "no memory for rooms=%u", plan.num);
		goto out_layout;
	}
	for (r = 0; r < plan.num; r++) {
		w.rooms[r].status = KVF_BOOTSTRAPPING;
		w.rooms[r].next = plan.rooms[r].start;
	}
	rc = with_store(&w, &err);
	free(w.rooms);
out_layout:
	demo_layout_free(&layout);
out_plan:
	demo_plan_free(&plan);
out:
	if (rc != 0)
		demo_tell_fail(&w, DEMO_NO_ROOM, rc, err.text);
	else
		milestone(&w, DEMO_CLOSED, 0, 0);
	return rc != 0;
}
