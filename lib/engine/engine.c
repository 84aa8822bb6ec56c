/* SPDX-License-Identifier: BSD-3-Clause */
/* Putting an engine together and taking it apart. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_pause.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>

#include "drivers/fault/fault.h"
#include "engine/internal.h"

#define MAX_GROUPS 1024u

#define FDS_PER_ENDPOINT 4u /* connection, pool, completion, doorbell */

static const struct kvf_copy_ops *const drivers[] = {
	&kvf_copy_cpu, &kvf_copy_dmadev, &kvf_copy_mixed, &kvf_copy_fault};

void
kvf_log(struct kvf_engine *e, bool always, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	if (e->cfg.quiet && !always)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "kvferryd: %s\n", text);
}

static int
driver_open(struct kvf_engine *e, struct kvf_err *err)
{
	const char *colon = strchr(e->cfg.driver, ':');
	size_t len = colon != NULL ? (size_t)(colon - e->cfg.driver) : strlen(e->cfg.driver), i;

	kvf_copy_fault_register(&kvf_copy_cpu);
	kvf_copy_fault_register(&kvf_copy_dmadev);
	kvf_copy_fault_register(&kvf_copy_mixed);
	for (i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
		if (strlen(drivers[i]->name) == len &&
			strncmp(drivers[i]->name, e->cfg.driver, len) == 0)
			e->ops = drivers[i];
	if (e->ops == NULL)
		return kvf_fail(err, KVF_E_DRIVER,
			"driver=%.*s is unknown; there are cpu[:avx512|avx2|portable], mixed, "
			"dmadev[:DEVICE,...] "
			"and, for tests, fault:DRIVER[,...]",
			(int)len, e->cfg.driver);
	return e->ops->open(colon != NULL ? colon + 1 : NULL, &e->drv, &e->caps, err);
}

static int
copiers_create(struct kvf_engine *e, struct kvf_err *err)
{
	uint32_t per = e->caps.per_lcore, channels, i;
	struct kvf_copy_shared *sh;

	sh = aligned_alloc(64, (sizeof(*sh) + 63) / 64 * 64);
	if (sh == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "no memory for slots");
	memset(sh, 0, sizeof(*sh));
	e->copy = sh;
	sh->ops = e->ops;
	sh->channel_depth = e->caps.channel_depth;
	sh->busy = e->cfg.busy;
	sh->copiers = aligned_alloc(64, e->num_lcores * sizeof(struct kvf_copier));
	if (sh->copiers == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "no memory for copiers");
	memset(sh->copiers, 0, e->num_lcores * sizeof(struct kvf_copier));
	for (i = 0; i < e->num_lcores; i++) {
		sh->copiers[i].shared = sh;
		sh->copiers[i].index = i;
		sh->copiers[i].wake_fd = -1;
	}
	if (per == 0 || per > KVF_COPIER_CHANNELS)
		per = KVF_COPIER_CHANNELS;
	channels = per * e->num_lcores;
	if (channels > e->caps.max_channels)
		channels = e->caps.max_channels;
	for (i = 0; i < channels; i++) {
		struct kvf_copier *c = &sh->copiers[i % e->num_lcores];
		int rc = e->ops->channel_open(e->drv, &c->channels[c->num_channels], err);

		if (rc != 0)
			return rc;
		c->num_channels++;
	}
	for (i = 0; i < e->num_lcores; i++) {
		struct kvf_copier *c = &sh->copiers[i];

		c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (c->wake_fd < 0)
			return kvf_fail_errno(err, "cannot create an eventfd");
		if (c->num_channels == 0)
			kvf_log(e, true,
				"WARNING: copy lcore %u has nothing to do: driver=%s offers "
				"channels=%u "
				"for lcores=%u",
				i, e->ops->name, e->caps.max_channels, e->num_lcores);
	}
	return 0;
}

static int
copier_main(void *arg)
{
	kvf_copier_loop(arg);
	kvf_hand_over();
	return 0;
}

static int
dispatcher_main(void *arg)
{
	int rc = kvf_dispatcher_main(arg);

	kvf_hand_over();
	return rc;
}

static int
launch(struct kvf_engine *e, struct kvf_err *err)
{
	unsigned int id;
	uint32_t n = 0;

	RTE_LCORE_FOREACH_WORKER(id)
	{
		if (n < e->num_lcores)
			e->lcore_ids[n++] = id;
	}
	if (n < e->num_lcores)
		return kvf_fail(
			err, KVF_E_INVAL, "EAL has worker lcores=%u, needed=%u", n, e->num_lcores);
	for (n = e->num_lcores; n-- > 0;) {
		/* The dispatcher, [0], last: it may hand out work at once. */
		int rc = n == 0 ? rte_eal_remote_launch(dispatcher_main, e->disp, e->lcore_ids[0])
				: rte_eal_remote_launch(
					  copier_main, &e->copy->copiers[n], e->lcore_ids[n]);

		if (rc != 0)
			return kvf_fail(
				err, KVF_E_SYS, "cannot launch lcore %u: %d", e->lcore_ids[n], rc);
		e->launched++;
	}
	return 0;
}

static int
rings_create(struct kvf_engine *e, struct kvf_err *err)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
	char name[RTE_RING_NAMESIZE];

	snprintf(name, sizeof(name), "kvf_d_%" PRIx64, e->generation & 0xffffffff);
	e->to_dispatcher = rte_ring_create_elem(name, sizeof(struct kvf_note), KVF_NOTES,
		SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	snprintf(name, sizeof(name), "kvf_c_%" PRIx64, e->generation & 0xffffffff);
	e->to_control = rte_ring_create_elem(name, sizeof(struct kvf_note), KVF_NOTES,
		SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	if (e->to_dispatcher == NULL || e->to_control == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "no memory for the note rings");
	e->notes_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	e->control_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	e->bells_fd = epoll_create1(EPOLL_CLOEXEC);
	if (e->notes_fd < 0 || e->control_fd < 0 || e->bells_fd < 0 ||
		epoll_ctl(e->bells_fd, EPOLL_CTL_ADD, e->notes_fd, &ev) != 0)
		return kvf_fail_errno(err, "cannot create an eventfd");
	return 0;
}

/* The usual soft limit of 1024 descriptors is less than full tables of connections take. */
static void
raise_fd_limit(struct kvf_engine *e)
{
	rlim_t want = 256 + (rlim_t)FDS_PER_ENDPOINT * e->cfg.max_endpoints;
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) != 0 || lim.rlim_cur >= want)
		return;
	lim.rlim_cur = lim.rlim_max < want ? lim.rlim_max : want;
	if (setrlimit(RLIMIT_NOFILE, &lim) != 0 || lim.rlim_cur < want)
		kvf_log(e, true,
			"WARNING: RLIMIT_NOFILE=%llu, max_endpoints=%u would need %llu: some may "
			"be "
			"turned away",
			(unsigned long long)lim.rlim_cur, e->cfg.max_endpoints,
			(unsigned long long)want);
}

static int
start(struct kvf_engine *e, struct kvf_err *err)
{
	int rc;

	raise_fd_limit(e);

	if ((rc = kvf_guard_start(err)) != 0 || (rc = rings_create(e, err)) != 0 ||
		(rc = driver_open(e, err)) != 0 || (rc = copiers_create(e, err)) != 0)
		return rc;
	e->eps = calloc(e->cfg.max_endpoints, sizeof(struct kvf_ep *));
	e->groups = calloc(MAX_GROUPS, sizeof(struct kvf_ep_group));
	e->disp = aligned_alloc(64, (sizeof(*e->disp) + 63) / 64 * 64);
	if (e->eps == NULL || e->groups == NULL || e->disp == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "no memory for the engine");
	memset(e->disp, 0, sizeof(*e->disp));
	kvf_slab_init(&e->disp->slab);
	if (getrandom(&e->disp->hash_seed, sizeof(e->disp->hash_seed), 0) !=
		(ssize_t)sizeof(e->disp->hash_seed))
		return kvf_fail_errno(err, "no random numbers");
	e->disp->engine = e;
	e->disp->copier = &e->copy->copiers[0];
	e->disp->copy = e->copy;
	e->disp->free_slots = KVF_SLOTS_ALL;
	/* Dead endpoints that still drain stand next to those that took their place. */
	e->disp->eps = calloc(2u * e->cfg.max_endpoints, sizeof(struct kvf_ep *));
	if (e->disp->eps == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "no memory for the engine");
	if ((rc = kvf_control_init(e, err)) != 0)
		return rc;
	return launch(e, err);
}

int
kvf_engine_start(
	const struct kvf_engine_config *cfg, struct kvf_engine **engine, struct kvf_err *err)
{
	struct kvf_engine *e = calloc(1, sizeof(*e));
	struct timespec ts;
	int rc;

	*engine = NULL;
	if (e == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "no memory for the engine");
	e->cfg = *cfg;
	e->num_lcores = cfg->lcores == 0 ? 1 : cfg->lcores;
	if (e->cfg.driver == NULL)
		e->cfg.driver = "cpu";
	if (e->cfg.socket == NULL)
		e->cfg.socket = KVF_DEFAULT_SOCKET;
	if (e->cfg.socket_mode == 0)
		e->cfg.socket_mode = 0600;
	if (e->cfg.max_endpoints == 0)
		e->cfg.max_endpoints = 256;
	if (e->cfg.max_request_bytes == 0)
		e->cfg.max_request_bytes = 256u << 20;
	if (e->cfg.drain_ms == 0)
		e->cfg.drain_ms = 2000;
	e->notes_fd = e->bells_fd = e->control_fd = e->epoll_fd = e->listen_fd = -1;
	e->spare_fd = -1;
	clock_gettime(CLOCK_REALTIME, &ts);
	e->generation = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	e->started_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	/* The kernel would take an empty one for "any name", which nobody could find. */
	if (strlen(e->cfg.socket) == 0 || strlen(e->cfg.socket) >= sizeof(e->socket_path)) {
		rc = kvf_fail(err, KVF_E_INVAL, "socket path length=%zu limit=1..%zu",
			strlen(e->cfg.socket), sizeof(e->socket_path) - 1);
		free(e);
		return rc;
	}
	strcpy(e->socket_path, e->cfg.socket);
	rc = start(e, err);
	if (rc != 0) {
		kvf_engine_free(e);
		return rc;
	}
	kvf_log(e, false, "ready at socket=%s driver=%s (%s) lcores=%u", e->socket_path,
		e->ops->name, e->caps.detail, e->num_lcores);
	*engine = e;
	return 0;
}

int
kvf_engine_run(struct kvf_engine *e, struct kvf_err *err)
{
	return kvf_control_run(e, err);
}

void
kvf_engine_request_stop(struct kvf_engine *e)
{
	uint64_t one = 1;

	atomic_store(&e->stop_requested, true);
	while (write(e->control_fd, &one, sizeof(one)) < 0)
		break;
}

static void
join_lcores(struct kvf_engine *e)
{
	uint64_t one = 1;
	uint32_t i;

	if (e->launched == 0)
		return;
	if (!e->stopped && e->launched == e->num_lcores) {
		struct kvf_note stop = {.type = NOTE_STOP};

		kvf_tell_dispatcher(e, &stop);
		while (!kvf_flush_dispatcher(e))
			rte_pause(); /* it reads in every round */
		rte_eal_wait_lcore(e->lcore_ids[0]);
	}
	atomic_store(&e->copy->stop, true);
	for (i = 1; i < e->num_lcores; i++)
		while (write(e->copy->copiers[i].wake_fd, &one, sizeof(one)) < 0)
			break;
	for (i = 0; i < e->num_lcores; i++)
		rte_eal_wait_lcore(e->lcore_ids[i]);
	kvf_handed_over();
}

void
kvf_engine_free(struct kvf_engine *e)
{
	struct kvf_link_slot *l;
	struct kvf_note note;
	uint32_t i, k;

	if (e == NULL)
		return;
	join_lcores(e);
	while (e->to_control != NULL && kvf_note_take(e->to_control, &note))
		if (note.type == NOTE_LINK_FREE)
			kvf_link_free(note.link);
	while (e->to_dispatcher != NULL && kvf_note_take(e->to_dispatcher, &note))
		if (note.type == NOTE_LINK)
			kvf_link_free(note.link);
	while (kvf_outbox_take(&e->for_dispatcher, &note))
		if (note.type == NOTE_LINK)
			kvf_link_free(note.link);
	while (kvf_outbox_take(&e->for_control, &note))
		if (note.type == NOTE_LINK_FREE)
			kvf_link_free(note.link);
	if (e->disp != NULL) {
		for (l = e->disp->links; l != NULL; l = l->next)
			kvf_link_free(l->link);
		kvf_slab_fini(&e->disp->slab);
		free(e->disp->eps);
		free(e->disp);
	}
	kvf_registry_fini(e);
	kvf_control_fini(e);
	if (e->copy != NULL) {
		for (i = 0; e->copy->copiers != NULL && i < e->num_lcores; i++) {
			struct kvf_copier *c = &e->copy->copiers[i];

			for (k = 0; k < c->num_channels; k++)
				e->ops->channel_close(c->channels[k]);
			if (c->wake_fd >= 0)
				close(c->wake_fd);
		}
		free(e->copy->copiers);
		free(e->copy);
	}
	if (e->drv != NULL)
		e->ops->close(e->drv);
	rte_ring_free(e->to_dispatcher);
	rte_ring_free(e->to_control);
	if (e->notes_fd >= 0)
		close(e->notes_fd);
	if (e->bells_fd >= 0)
		close(e->bells_fd);
	if (e->control_fd >= 0)
		close(e->control_fd);
	kvf_guard_stop();
	free(e->groups);
	free(e->eps);
	free(e);
}
