/* SPDX-License-Identifier: BSD-3-Clause */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "fault/cast.h"

const char *const cast_names[ALL + 1] = {"p[0]", "d[0]", "d[1]", "q[0]", "e[0]", "kvferryd"};

uint64_t
cast_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

bool
cast_engine_start(struct cast *c)
{
	return e2e_engine_start(&c->engine, c->args);
}

bool
cast_start(struct cast *c, const char *const *args, bool wait)
{
	static const struct {
		const char *group;
		uint32_t size, rank;
	} parts[ALL] = {{"p", 1, 0}, {"d", 2, 0}, {"d", 2, 1}, {"q", 1, 0}, {"e", 1, 0}};
	uint64_t rand = suite_seed() | 1;
	bool ok = true;
	int i;

	memset(c, 0, sizeof(*c));
	c->args = args;
	for (i = 0; i < ALL; i++)
		c->w[i].fd = -1;
	if (!wait && !cast_engine_start(c))
		return false;
	if (wait)
		snprintf(c->engine.socket, sizeof(c->engine.socket), "%.80s/early", e2e_dir());
	for (i = 0; i < ALL && ok; i++) {
		struct member_spec *s = &c->spec[i];

		s->socket = c->engine.socket;
		s->role = i == P || i == Q ? KVF_PREFILL : KVF_DECODE;
		s->group = parts[i].group;
		s->group_size = parts[i].size;
		s->rank = parts[i].rank;
		s->seed = suite_rand(&rand);
		s->shape = (struct peer_shape){.layers = 3,
			.row_bytes = 576,
			.page_tokens = 16,
			.num_pages = 160,
			.aux_bytes = 64};
		if (s->role == KVF_DECODE)
			s->shape.sharding =
				(struct kvf_sharding){parts[i].size, parts[i].rank, 1, 0};
		if (!wait) {
			ok = member_start(&c->w[i], s);
			continue;
		}
		s->limits.flags = KVF_ENDPOINT_WAIT_ENGINE;
		s->limits.open_timeout_ms = LATE;
		e2e_page_size();
		ok = CHECK(e2e_fork(&c->w[i], member_serve, s));
	}
	if (!ok || !wait)
		return ok;
	usleep(200000);
	if (!cast_engine_start(c))
		return false;
	for (i = 0; i < ALL; i++) {
		struct e2e_msg ans;

		if (!CHECK_EQ(member_answer(&c->w[i], &ans), 0)) {
			printf("        %s: %s\n", cast_names[i], ans.text);
			ok = false;
		}
	}
	return ok;
}

static void
check_pool(struct cast *c, int who)
{
	struct e2e_msg ans;

	CHECK_EQ(MEMBER_DO(&c->w[who], &ans, MEMBER_CHECK, 0), 0);
	if (!CHECK_EQ(ans.value[0], 0))
		printf("        that is %s\n", cast_names[who]);
}

void
cast_end(struct cast *c)
{
	int i;

	for (i = 0; i < ALL; i++) {
		if (c->w[i].pid == 0)
			continue;
		check_pool(c, i);
		MEMBER_DO(&c->w[i], NULL, MEMBER_LEAVE, 0);
		CHECK_EQ(e2e_worker_join(&c->w[i], LATE), 0);
	}
	if (c->engine.process.pid != 0)
		CHECK_EQ(e2e_engine_stop(&c->engine), 0);
}

int
cast_grant(struct cast *c, int who, uint64_t room, uint32_t slot)
{
	struct e2e_msg ans;
	int rc = MEMBER_DO(&c->w[who], &ans, MEMBER_RECV, room, 0, TOKENS, slot);

	if (!CHECK_EQ(rc, 0))
		printf("        %s room %" PRIu64 ": %s\n", cast_names[who], room, ans.text);
	return rc;
}

int
cast_send(struct cast *c, int who, uint64_t room, uint32_t slot)
{
	struct e2e_msg ans;
	int rc = MEMBER_DO(&c->w[who], &ans, MEMBER_SEND, room, 0, TOKENS, TOKENS, slot);

	if (!CHECK_EQ(rc, 0))
		printf("        %s room %" PRIu64 ": %s\n", cast_names[who], room, ans.text);
	return rc;
}

void
cast_release(struct cast *c, int who, uint64_t room)
{
	struct e2e_msg ans;

	if (!CHECK_EQ(MEMBER_DO(&c->w[who], &ans, MEMBER_RELEASE, room), 0))
		printf("        %s room %" PRIu64 ": %s\n", cast_names[who], room, ans.text);
}

void
cast_up(struct cast *c)
{
	struct e2e_msg ans;
	int i;

	for (i = 0; i < ALL; i++)
		MEMBER_ASK(&c->w[i], MEMBER_STATE, 1, LATE);
	for (i = 0; i < ALL; i++)
		if (!CHECK_EQ(member_answer(&c->w[i], &ans), 1))
			printf("        %s: %s\n", cast_names[i], ans.text);
}

void
cast_works(struct cast *c, uint64_t room)
{
	struct e2e_msg ans;
	int i;

	cast_grant(c, D0, room, 9);
	cast_grant(c, D1, room, 9);
	cast_send(c, P, room, 9);
	cast_grant(c, E, room + 1, 9);
	cast_send(c, Q, room + 1, 9);
	for (i = 0; i < ALL; i++) {
		uint64_t mine = i == Q || i == E ? room + 1 : room;

		if (!CHECK_EQ(MEMBER_DO(&c->w[i], &ans, MEMBER_FINISH, mine, LATE), KVF_SUCCESS))
			printf("        %s: %s\n", cast_names[i], ans.text);
		cast_release(c, i, mine);
	}
	for (i = 0; i < ALL; i++) {
		check_pool(c, i);
		MEMBER_DO(&c->w[i], NULL, MEMBER_RECYCLE, 0);
	}
}

struct holds
cast_holds(pid_t pid)
{
	struct holds h = {0};
	char path[64], *text, *at;
	struct dirent *ent;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	if (CHECK(dir != NULL)) {
		while ((ent = readdir(dir)) != NULL)
			h.fds += ent->d_name[0] != '.';
		closedir(dir);
	}
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	text = e2e_read(path);
	for (at = strstr(text, "/memfd:"); at != NULL; at = strstr(at + 1, "/memfd:"))
		h.maps++;
	free(text);
	return h;
}

struct holds
cast_engine_holds(struct cast *c)
{
	struct holds h = cast_holds(c->engine.process.pid);
	char *text = NULL;
	json_t *root;

	h.slab = h.rooms = -1;
	if (!CHECK_EQ(kvf_engine_status(c->engine.socket, SOON, &text, NULL), 0))
		return h;
	root = json_loads(text, 0, NULL);
	free(text);
	if (!CHECK(root != NULL))
		return h;
	h.slab = json_integer_value(
		json_object_get(json_object_get(root, "dispatcher"), "slab_used"));
	h.rooms = json_integer_value(json_object_get(json_object_get(root, "rooms"), "open"));
	json_decref(root);
	return h;
}
