/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints, their groups, and links, on the control thread. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/internal.h"

#define MAX_GROUPS     1024u
#define MAX_ROOM_BYTES (UINT64_C(256) << 20) /* of one endpoint */

struct kvf_want {
	struct kvf_want *next;
	struct kvf_ep_group *prefill, *decode;
};

static bool
group_wanted(const struct kvf_engine *e, const struct kvf_ep_group *g)
{
	const struct kvf_want *w;

	for (w = e->wants; w != NULL; w = w->next)
		if (w->prefill == g || w->decode == g)
			return true;
	return false;
}

static bool
group_unused(const struct kvf_engine *e, struct kvf_ep_group *g)
{
	/* acquire: partner of the dispatcher's release when it drops the last room */
	return g->endpoints == 0 &&
	       atomic_load_explicit(&g->room_refs, memory_order_acquire) == 0 &&
	       !group_wanted(e, g);
}

static struct kvf_ep_group *
group_get(struct kvf_engine *e, const struct kvf_msg_register *msg, struct kvf_err *err)
{
	struct kvf_ep_group *g, *spare = NULL;
	uint32_t i;

	for (i = 0; i < e->num_groups; i++) {
		g = &e->groups[i];
		if (g->role == msg->role && strcmp(g->name, msg->group) == 0) {
			if (g->size == msg->group_size)
				return g;
			if (!group_unused(e, g)) {
				kvf_fail(err, KVF_E_INVAL,
					"group=%s has group_size=%u, got group_size=%u", g->name,
					g->size, msg->group_size);
				return NULL;
			}
			spare = g;
			break;
		}
		if (spare == NULL && group_unused(e, g))
			spare = g;
	}
	if (spare == NULL && e->num_groups < MAX_GROUPS)
		spare = &e->groups[e->num_groups++];
	if (spare == NULL) {
		kvf_fail(err, KVF_E_QUOTA, "groups=%u in use, limit=%u", e->num_groups, MAX_GROUPS);
		return NULL;
	}
	memset(spare, 0, sizeof(*spare));
	spare->id = (uint32_t)(spare - e->groups);
	spare->role = msg->role;
	spare->size = msg->group_size;
	memcpy(spare->name, msg->group, sizeof(spare->name));
	return spare;
}

static int
ring_create(struct kvf_ep *ep, const struct kvf_msg_register *msg, struct kvf_err *err)
{
	uint64_t bytes = kvf_ring_bytes(msg->sq_entries, msg->cq_entries, msg->arena_bytes);
	void *mem;

	if (bytes == 0)
		return kvf_fail(err, KVF_E_INVAL,
			"sq_entries=%u cq_entries=%u arena_bytes=%" PRIu64
			" must be powers of two within limit=%u entries and limit=%llu bytes",
			msg->sq_entries, msg->cq_entries, msg->arena_bytes, KVF_RING_MAX_ENTRIES,
			(unsigned long long)KVF_ARENA_MAX_BYTES);
	ep->ring_fd = memfd_create("kvferry-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (ep->ring_fd < 0 || ftruncate(ep->ring_fd, (off_t)bytes) != 0 ||
		fcntl(ep->ring_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
		return kvf_fail_errno(err, "cannot create ring memory of %" PRIu64 " bytes", bytes);
	mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ep->ring_fd, 0);
	if (mem == MAP_FAILED)
		return kvf_fail_errno(err, "cannot map ring memory of %" PRIu64 " bytes", bytes);
	kvf_ring_format(mem, msg->sq_entries, msg->cq_entries, msg->arena_bytes, &ep->ring);
	return 0;
}

/* How the two wake each other. */
static int
bells_create(struct kvf_engine *e, struct kvf_ep *ep, struct kvf_err *err)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0)
		return kvf_fail_errno(err, "cannot create a socket pair");
	ep->wake_fd = fds[0];
	ep->client_wake_fd = fds[1];
	ep->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ep->doorbell_fd < 0)
		return kvf_fail_errno(err, "cannot create an eventfd");
	if (epoll_ctl(e->bells_fd, EPOLL_CTL_ADD, ep->doorbell_fd, &ev) != 0)
		return kvf_fail_errno(err, "cannot watch a doorbell");
	return 0;
}

static void
close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void
kvf_registry_handed_over(struct kvf_ep *ep)
{
	close_fd(&ep->ring_fd); /* the client's copy and the mapping stay */
	close_fd(&ep->client_wake_fd);
}

static int
grants_create(struct kvf_ep *ep, struct kvf_err *err)
{
	uint32_t i, l;

	for (i = 0; i < ep->reg->geometry.num_components; i++) {
		const struct kvf_component *c = &ep->reg->geometry.components[i];

		if (ep->list_limit[c->list] == 0 || c->num_pages < ep->list_limit[c->list])
			ep->list_limit[c->list] = c->num_pages;
	}
	for (l = 0; ep->role == KVF_DECODE && l < KVF_MAX_LISTS; l++) {
		if (ep->list_limit[l] == 0)
			continue;
		ep->grants[l] = calloc(ep->list_limit[l], sizeof(uint32_t));
		if (ep->grants[l] == NULL)
			return kvf_fail(err, KVF_E_NOMEM, "no memory for grants of pages=%u",
				ep->list_limit[l]);
	}
	return 0;
}

static int
ep_setup(struct kvf_engine *e, struct kvf_ep *ep, int pool_fd, struct kvf_err *err)
{
	const struct kvf_msg_register *msg = &ep->reg->msg;
	uint64_t max = e->cfg.max_pool_bytes != 0 ? e->cfg.max_pool_bytes : INT64_MAX;
	int rc;

	rc = kvf_geometry_check(&ep->reg->geometry, msg->pool_length, err);
	if (rc != 0) {
		close(pool_fd);
		return rc;
	}
	rc = kvf_pool_import(pool_fd, msg->pool_length, max, &ep->pool, err);
	if (rc != 0)
		return rc;
	rc = grants_create(ep, err);
	if (rc != 0)
		return rc;
	rc = ring_create(ep, msg, err);
	if (rc == 0)
		rc = bells_create(e, ep, err);
	if (rc != 0)
		return rc;
	ep->ring.hdr->endpoint_id = ep->id;
	ep->ring.hdr->engine_generation = e->generation;
	ep->ring.hdr->endpoint_generation = ep->generation;
	ep->guard = kvf_guard_add(ep->pool.base, ep->pool.mapped_length, ep->pool.page_size);
	if (ep->guard == NULL)
		return kvf_fail(err, KVF_E_QUOTA, "too many pools are mapped");
	return e->ops->map(e->drv, ep->pool.base, ep->pool.mapped_length, ep->pool.page_size,
		&ep->map_handle, err);
}

/* Nobody of the group is left: what waits for it would keep its place in the table for ever. */
static void
drop_wants(struct kvf_engine *e, const struct kvf_ep_group *g)
{
	struct kvf_want **at = &e->wants, *w;

	while ((w = *at) != NULL) {
		struct kvf_note note = {
			.type = NOTE_LINK, .prefill = w->prefill, .decode = w->decode};

		if (w->prefill != g && w->decode != g) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		free(w);
		kvf_tell_dispatcher(e, &note);
	}
}

static void
ep_free(struct kvf_engine *e, struct kvf_ep *ep)
{
	struct kvf_err err;
	uint32_t i;

	if (ep->map_handle != NULL && e->ops->unmap(e->drv, ep->map_handle, &err) != 0)
		kvf_log(e, true, "unmapping the pool of %s: %s", ep->name, err.text);
	kvf_guard_remove(ep->guard);
	kvf_pool_unimport(&ep->pool);
	if (ep->ring.hdr != NULL)
		munmap(ep->ring.hdr, ep->ring.total_bytes);
	/* The client's copy would keep it watched. */
	if (ep->doorbell_fd >= 0)
		epoll_ctl(e->bells_fd, EPOLL_CTL_DEL, ep->doorbell_fd, NULL);
	close_fd(&ep->doorbell_fd);
	close_fd(&ep->wake_fd);
	kvf_registry_handed_over(ep);
	for (i = 0; i < KVF_MAX_LISTS; i++)
		free(ep->grants[i]);
	for (i = 0; i < e->num_eps; i++)
		if (e->eps[i] == ep)
			e->eps[i] = e->eps[--e->num_eps];
	if (--ep->group->endpoints == 0 && !e->stopped)
		drop_wants(e, ep->group);
	free(ep->reg);
	free(ep);
}

/* What the rooms of an endpoint take at the most, beside the index lists. */
static int
check_rooms(const struct kvf_msg_register *msg, struct kvf_err *err)
{
	uint64_t each = sizeof(struct kvf_room) + sizeof(struct kvf_part) +
			msg->group_size * sizeof(struct kvf_part *);

	if (msg->max_rooms > MAX_ROOM_BYTES / each)
		return kvf_fail(err, KVF_E_QUOTA,
			"max_rooms=%u with group_size=%u take %" PRIu64
			" bytes each, limit=%" PRIu64 " rooms (%" PRIu64 " bytes)",
			msg->max_rooms, msg->group_size, each, MAX_ROOM_BYTES / each,
			MAX_ROOM_BYTES);
	return 0;
}

int
kvf_registry_add(struct kvf_engine *e, struct kvf_registration *reg, int pool_fd, pid_t pid,
	uid_t uid, struct kvf_ep **out, struct kvf_err *err)
{
	const struct kvf_msg_register *msg = &reg->msg;
	struct kvf_ep_group *g;
	struct kvf_ep *ep;
	int rc;

	rc = check_rooms(msg, err);
	g = rc == 0 ? group_get(e, msg, err) : NULL;
	if (g == NULL)
		rc = err->code;
	else if (g->members[msg->rank] != NULL)
		rc = kvf_fail(err, KVF_E_EXIST, "%s is held by pid=%d", g->members[msg->rank]->name,
			(int)g->members[msg->rank]->pid);
	else if (e->num_eps >= e->cfg.max_endpoints)
		rc = kvf_fail(err, KVF_E_QUOTA, "endpoints=%u limit=%u", e->num_eps,
			e->cfg.max_endpoints);
	ep = rc == 0 ? aligned_alloc(64, (sizeof(*ep) + 63) / 64 * 64) : NULL;
	if (rc == 0 && ep == NULL)
		rc = kvf_fail(err, KVF_E_NOMEM, "no memory for an endpoint");
	if (rc != 0) {
		close(pool_fd);
		free(reg);
		return rc;
	}
	memset(ep, 0, sizeof(*ep));
	ep->id = e->next_ep_id++;
	ep->generation = ++e->next_generation;
	ep->role = msg->role;
	ep->rank = msg->rank;
	ep->max_rooms = msg->max_rooms;
	ep->group = g;
	ep->reg = reg;
	ep->pool.fd = ep->ring_fd = ep->wake_fd = ep->client_wake_fd = ep->doorbell_fd = -1;
	ep->pid = pid;
	ep->uid = uid;
	snprintf(ep->name, sizeof(ep->name), "%s %s[%u]",
		msg->role == KVF_PREFILL ? "prefill" : "decode", g->name, msg->rank);
	g->endpoints++;
	e->eps[e->num_eps++] = ep;
	rc = ep_setup(e, ep, pool_fd, err);
	if (rc != 0) {
		ep_free(e, ep);
		return rc;
	}
	*out = ep;
	return 0;
}

void
kvf_registry_discard(struct kvf_engine *e, struct kvf_ep *ep)
{
	ep_free(e, ep);
}

static void
build_link(struct kvf_engine *e, struct kvf_ep_group *p, struct kvf_ep_group *d)
{
	const struct kvf_geometry *pg[KVF_MAX_GROUP_SIZE], *dg[KVF_MAX_GROUP_SIZE];
	struct kvf_note note = {.type = NOTE_LINK, .prefill = p, .decode = d};
	uint32_t i;

	for (i = 0; i < p->size; i++)
		pg[i] = &p->members[i]->reg->geometry;
	for (i = 0; i < d->size; i++)
		dg[i] = &d->members[i]->reg->geometry;
	if (kvf_link_build(pg, p->size, dg, d->size, &note.link, &note.err) != 0) {
		note.link = NULL;
		kvf_log(e, true, "prefill group=%s and decode group=%s do not fit: %s: %s", p->name,
			d->name, kvf_error_name(note.err.code), note.err.text);
	} else {
		kvf_log(e, false, "linked prefill group=%s (%u) to decode group=%s (%u)", p->name,
			p->size, d->name, d->size);
	}
	kvf_tell_dispatcher(e, &note);
}

static void
serve_wants(struct kvf_engine *e)
{
	struct kvf_want **at = &e->wants, *w;

	while ((w = *at) != NULL) {
		if (w->prefill->joined != w->prefill->size ||
			w->decode->joined != w->decode->size) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		build_link(e, w->prefill, w->decode);
		free(w);
	}
}

void
kvf_registry_want(struct kvf_engine *e, struct kvf_ep_group *p, struct kvf_ep_group *d)
{
	struct kvf_want *w = malloc(sizeof(*w));

	if (w == NULL) {
		kvf_log(e, true, "no memory to remember a wanted link; its rooms will time out");
		return;
	}
	*w = (struct kvf_want){.next = e->wants, .prefill = p, .decode = d};
	e->wants = w;
	serve_wants(e);
}

void
kvf_registry_admit(struct kvf_engine *e, struct kvf_ep *ep)
{
	struct kvf_note note = {.type = NOTE_EP_ADD, .ep = ep};

	ep->group->members[ep->rank] = ep;
	ep->group->joined++;
	kvf_log(e, false,
		"%s joined: pid=%d pool=%" PRIu64 " bytes on %" PRIu64 " KiB pages (%u of %u)",
		ep->name, (int)ep->pid, ep->pool.length, ep->pool.page_size / 1024,
		ep->group->joined, ep->group->size);
	kvf_tell_dispatcher(e, &note);
	serve_wants(e);
}

void
kvf_registry_dead(struct kvf_engine *e, struct kvf_ep *ep)
{
	struct kvf_note note = {.type = NOTE_EP_DEAD, .ep = ep};

	if (ep->dead_sent)
		return;
	ep->dead_sent = true;
	ep->group->members[ep->rank] = NULL;
	ep->group->joined--;
	kvf_tell_dispatcher(e, &note);
}

void
kvf_registry_gone(struct kvf_engine *e, struct kvf_ep *ep)
{
	kvf_log(e, false, "%s left: pid=%d", ep->name, (int)ep->pid);
	ep_free(e, ep);
}

void
kvf_registry_fini(struct kvf_engine *e)
{
	struct kvf_want *w;

	while (e->num_eps > 0)
		ep_free(e, e->eps[0]);
	while ((w = e->wants) != NULL) {
		e->wants = w->next;
		free(w);
	}
}
