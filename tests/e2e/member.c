/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/suite.h"
#include "e2e/member.h"

#define OPEN_MS 20000
#define POST_MS 20000

static int
open_endpoint(struct member *m, struct kvf_err *err)
{
	uint64_t since = 0;
	int rc;

	do
		rc = peer_connect(&m->peer, m->spec.socket, &m->spec.limits, err);
	while (rc == KVF_E_EXIST && e2e_again(&since, OPEN_MS));
	return rc;
}

int
member_open(struct member *m, const struct member_spec *spec, struct kvf_err *err)
{
	uint64_t rand = spec->seed | 1;
	uint32_t i, n = spec->shape.num_pages;
	int rc;

	memset(m, 0, sizeof(*m));
	m->spec = *spec;
	peer_mla(&m->peer, &spec->shape);
	m->peer.page_size = e2e_page_size();
	m->peer.role = spec->role;
	snprintf(m->peer.group, sizeof(m->peer.group), "%s", spec->group);
	m->peer.group_size = spec->group_size;
	m->peer.rank = spec->rank;
	m->order = calloc(n, sizeof(*m->order));
	if (m->order == NULL)
		abort();
	for (i = 0; i < n; i++) {
		uint32_t k = (uint32_t)suite_range(&rand, 0, i);

		m->order[i] = m->order[k];
		m->order[k] = i;
	}
	rc = peer_pool(&m->peer, err);
	return rc != 0 ? rc : open_endpoint(m, err);
}

void
member_close(struct member *m)
{
	member_recycle(m);
	peer_close(&m->peer);
	free(m->order);
}

void
member_recycle(struct member *m)
{
	while (m->num_posts > 0)
		free(m->posts[--m->num_posts].pages);
	m->next = 0;
}

/* Pages of list PEER_TOKENS: what the target layers need, or the draft's larger pages, which every
 * rank has in full. */
static uint32_t
pages_needed(const struct member *m, uint64_t from, uint64_t to)
{
	const struct peer *p = &m->peer;
	uint32_t n = peer_pages(p, from, to), draft;
	uint64_t page;

	if (m->spec.shape.draft_layers == 0 || from == to)
		return n;
	page = p->comps[1].page_tokens;
	draft = (uint32_t)((to - 1) / page - from / page + 1);
	return draft > n ? draft : n;
}

static struct member_post *
new_post(struct member *m, uint64_t room, uint64_t from, uint64_t to, uint32_t slot, bool last)
{
	uint32_t n = pages_needed(m, from, to), i;
	struct member_post *post;

	if (m->num_posts == MEMBER_POSTS || m->next + n > m->spec.shape.num_pages) {
		fprintf(stderr, "member: the test wants more pages or posts than there are\n");
		abort();
	}
	post = &m->posts[m->num_posts++];
	*post = (struct member_post){.room = room, .from = from, .to = to, .slot = slot};
	post->pages = calloc(n + 1, sizeof(uint32_t));
	if (post->pages == NULL)
		abort();
	for (i = 0; i < n; i++)
		post->pages[i] = m->order[m->next++];
	post->lists[post->num_lists++] = (struct kvf_pages){PEER_TOKENS, n, post->pages};
	if (last && m->spec.shape.state_bytes != 0)
		post->lists[post->num_lists++] = (struct kvf_pages){PEER_STATE, 1, &post->slot};
	if (last && m->spec.shape.aux_bytes != 0)
		post->lists[post->num_lists++] = (struct kvf_pages){PEER_AUX, 1, &post->slot};
	return post;
}

/* The rings are small: full ones are a matter of waiting. */
static bool
try_again(struct member *m, int rc, uint64_t *since)
{
	struct kvf_event ev[16];

	if (rc != KVF_E_AGAIN)
		return false;
	kvf_poll(m->peer.ep, ev, 16);
	return e2e_again(since, POST_MS);
}

int
member_recv(struct member *m, uint64_t room, uint64_t prefix, uint64_t total, uint32_t slot,
	struct kvf_err *err)
{
	struct member_post *post = new_post(m, room, prefix, total, slot, true);
	struct kvf_recv_args a = {.room = room,
		.prefix_tokens = prefix,
		.total_tokens = total,
		.lists = post->lists,
		.num_lists = post->num_lists};
	const struct peer_shape *s = &m->spec.shape;
	uint64_t since = 0, pos;
	int rc;

	do
		rc = kvf_recv(m->peer.ep, &a, err);
	while (try_again(m, rc, &since));
	if (rc != 0)
		return rc;
	peer_expect(&m->peer, room, prefix, total, post->lists, post->num_lists);
	for (pos = prefix; pos < total; pos++) {
		const struct kvf_sharding *sh = &m->peer.comps[0].sharding;

		if (pos / sh->interleave % sh->size == sh->rank)
			m->delivered += (uint64_t)s->layers * s->row_bytes;
		m->delivered += (uint64_t)s->draft_layers * s->row_bytes;
	}
	m->delivered += s->state_bytes + s->aux_bytes;
	return 0;
}

int
member_send(struct member *m, uint64_t room, uint64_t start, uint64_t tokens, uint64_t total,
	uint32_t slot, struct kvf_err *err)
{
	struct member_post *post =
		new_post(m, room, start, start + tokens, slot, start + tokens == total);
	struct kvf_send_args a = {.room = room,
		.start_token = start,
		.num_tokens = tokens,
		.total_tokens = total,
		.lists = post->lists,
		.num_lists = post->num_lists};
	uint64_t since = 0;
	int rc;

	peer_put(&m->peer, room, start, start + tokens, post->lists, post->num_lists);
	do
		rc = kvf_send(m->peer.ep, &a, err);
	while (try_again(m, rc, &since));
	return rc;
}

int
member_release(struct member *m, uint64_t room, struct kvf_err *err)
{
	uint64_t since = 0;
	int rc;

	do
		rc = kvf_room_release(m->peer.ep, room, err);
	while (try_again(m, rc, &since));
	return rc;
}

void
member_forgive(struct member *m, uint64_t room)
{
	uint32_t i;

	for (i = 0; i < m->num_posts; i++) {
		struct member_post *p = &m->posts[i];

		if (p->room == room)
			peer_forgive(&m->peer, p->from, p->to, p->lists, p->num_lists);
	}
}

static int
reach(struct member *m, uint64_t room, int status, int ms)
{
	struct kvf_event ev[16];
	uint64_t since = 0;
	int st;

	do {
		kvf_poll(m->peer.ep, ev, 16);
		st = kvf_room_status(m->peer.ep, room);
		if (st < 0 || st == KVF_FAILED || st >= status)
			return st;
	} while (e2e_again(&since, ms));
	return KVF_E_TIMEOUT;
}

/* Like a program that only ever waits: asleep in kvf_wait() when the engine goes. */
static int
lose(struct member *m, int ms, bool told)
{
	struct kvf_event ev[16];
	uint64_t since = 0;
	int rc;

	do {
		rc = kvf_wait(m->peer.ep, 200);
		if (rc == 1)
			rc = kvf_poll(m->peer.ep, ev, 16);
		if (rc == 0 && told && kvf_endpoint_state(m->peer.ep, NULL) != 1)
			rc = KVF_E_ENGINE_GONE;
		if (rc < 0)
			return rc;
	} while (e2e_again(&since, ms));
	return KVF_E_TIMEOUT;
}

static uint64_t
now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* Asleep whenever there is nothing to do, like a worker. */
static int
await_end(struct member *m, uint64_t room, int ms, uint64_t *ended, uint64_t *drained)
{
	uint64_t limit = now_us() + (uint64_t)ms * 1000;
	struct kvf_event ev[16];
	int st;

	for (;;) {
		kvf_poll(m->peer.ep, ev, 16);
		st = kvf_room_status(m->peer.ep, room);
		if (st < 0)
			return st;
		if (*ended == 0 && (st == KVF_FAILED || st == KVF_SUCCESS))
			*ended = now_us();
		if (*ended != 0 && kvf_room_drained(m->peer.ep, room) == 1) {
			*drained = now_us();
			return st;
		}
		if (now_us() >= limit)
			return KVF_E_TIMEOUT;
		kvf_wait(m->peer.ep, 50);
	}
}

static int
finish(struct member *m, uint64_t room, int ms, struct e2e_msg *ans, struct kvf_err *err)
{
	int st = await_end(m, room, ms, &ans->value[2], &ans->value[3]);

	if (st == KVF_FAILED)
		kvf_room_error(m->peer.ep, room, err);
	else if (st < 0)
		snprintf(err->text, sizeof(err->text), "room=%" PRIu64 " status=%d after ms=%d: %s",
			room, kvf_room_status(m->peer.ep, room), ms, kvf_error_name(st));
	return st;
}

static int
reconnect(struct member *m, struct kvf_err *err)
{
	kvf_endpoint_close(m->peer.ep);
	m->peer.ep = NULL;
	member_recycle(m);
	return open_endpoint(m, err);
}

static int
come_back(struct member *m, int ms, struct kvf_err *err)
{
	struct kvf_event ev[16];
	uint64_t since = 0;

	do {
		kvf_poll(m->peer.ep, ev, 16);
		if (kvf_endpoint_state(m->peer.ep, err) == 1) {
			member_recycle(m);
			return 0;
		}
	} while (e2e_again(&since, ms));
	return KVF_E_TIMEOUT;
}

static int
await_state(struct member *m, int want, int ms, struct kvf_err *err)
{
	struct kvf_event ev[16];
	uint64_t since = 0;
	int st;

	do {
		kvf_wait(m->peer.ep, 20);
		kvf_poll(m->peer.ep, ev, 16);
		st = kvf_endpoint_state(m->peer.ep, err);
	} while (st != want && e2e_again(&since, ms));
	return st;
}

static int
punch(struct member *m, struct kvf_err *err)
{
	if (fallocate(kvf_pool_fd(m->peer.pool), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		    (off_t)kvf_pool_mapped_length(m->peer.pool)) == 0)
		return 0;
	snprintf(err->text, sizeof(err->text), "fallocate: %s", strerror(errno));
	return KVF_E_SYS;
}

static bool
serve_one(struct member *m, const struct e2e_msg *cmd, struct e2e_msg *ans)
{
	const uint64_t *v = cmd->value;
	struct kvf_err err = {0};

	switch (cmd->type) {
	case MEMBER_RECV:
		ans->code = member_recv(m, v[0], v[1], v[2], (uint32_t)v[3], &err);
		break;
	case MEMBER_SEND:
		ans->code = member_send(m, v[0], v[1], v[2], v[3], (uint32_t)v[4], &err);
		break;
	case MEMBER_REACH:
		ans->code = reach(m, v[0], (int)v[1], (int)v[2]);
		break;
	case MEMBER_FINISH:
		ans->code = finish(m, v[0], (int)v[1], ans, &err);
		break;
	case MEMBER_FORGIVE:
		member_forgive(m, v[0]);
		break;
	case MEMBER_RELEASE:
		ans->code = member_release(m, v[0], &err);
		break;
	case MEMBER_CHECK:
		ans->value[0] = peer_check(&m->peer);
		break;
	case MEMBER_LOSE:
		ans->code = lose(m, (int)v[0], v[1] != 0);
		break;
	case MEMBER_RECONNECT:
		ans->code = reconnect(m, &err);
		break;
	case MEMBER_RETURN:
		ans->code = come_back(m, (int)v[0], &err);
		break;
	case MEMBER_ABORT:
		ans->code = kvf_abort(m->peer.ep, v[0], "as the test wants it", &err);
		break;
	case MEMBER_STATE:
		ans->code = await_state(m, (int)v[0], (int)v[1], &err);
		break;
	case MEMBER_PUNCH:
		ans->code = punch(m, &err);
		break;
	case MEMBER_RECYCLE:
		member_recycle(m);
		break;
	default:
		ans->code = kvf_endpoint_close(m->peer.ep);
		m->peer.ep = NULL;
		break;
	}
	ans->value[1] = (uint64_t)(int64_t)err.code;
	memcpy(ans->text, err.text, sizeof(err.text));
	return cmd->type != MEMBER_LEAVE;
}

void
member_serve(int fd, void *arg)
{
	struct member *m = calloc(1, sizeof(*m));
	struct e2e_msg cmd, ans = {0};
	struct kvf_err err = {0};
	bool more;

	if (m == NULL)
		abort();
	ans.code = member_open(m, arg, &err);
	memcpy(ans.text, err.text, sizeof(err.text));
	more = e2e_say(fd, &ans) && ans.code == 0;
	while (more && e2e_hear(fd, &cmd, 120000) == 0) {
		memset(&ans, 0, sizeof(ans));
		more = serve_one(m, &cmd, &ans);
		fflush(stdout);
		if (!e2e_say(fd, &ans))
			break;
	}
	member_close(m);
	free(m);
}

bool
member_start(struct e2e_worker *w, const struct member_spec *spec)
{
	struct e2e_msg ans = {0};
	int rc;

	e2e_page_size(); /* decided once, before the processes part */
	if (!CHECK(e2e_fork(w, member_serve, (void *)(uintptr_t)spec)))
		return false;
	rc = member_answer(w, &ans);
	if (rc != 0)
		printf("        %s[%u]: %s\n", spec->group, spec->rank, ans.text);
	return CHECK_EQ(rc, 0);
}

void
member_ask(struct e2e_worker *w, int op, const uint64_t *values, uint32_t n)
{
	struct e2e_msg cmd = {.type = op};

	memcpy(cmd.value, values, n * sizeof(values[0]));
	/* One that is dead shows in its answer. */
	if (w->fd >= 0)
		(void)e2e_say(w->fd, &cmd);
}

int
member_answer(struct e2e_worker *w, struct e2e_msg *answer)
{
	struct e2e_msg ans = {0};
	int rc = w->fd >= 0 ? e2e_hear(w->fd, &ans, MEMBER_ANSWER_MS) : KVF_E_PEER_DIED;

	if (answer != NULL)
		*answer = ans;
	return rc != 0 ? rc : ans.code;
}

int
member_do(struct e2e_worker *w, struct e2e_msg *answer, int op, const uint64_t *values, uint32_t n)
{
	member_ask(w, op, values, n);
	return member_answer(w, answer);
}
