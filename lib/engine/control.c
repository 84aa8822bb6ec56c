/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control thread: accepts connections, registers endpoints, notices death, answers status
 * questions. It may sleep, allocate and map; nothing on the data path waits for it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "engine/internal.h"

#define SPARE_CONNS   64u    /* connections beyond one per endpoint */
#define REGISTER_MS   10000u /* a connection says what it wants within this */
#define BACKLOG       128
#define EVENTS        32
#define ACCEPTS       16 /* in one round: less than EVENTS, so that none of them waits for others */
#define GRUMBLES      20 /* lines in a second that peers can cause at will */
#define STOP_LIMIT_MS 15000u

struct kvf_conn {
	struct kvf_conn *next;
	int fd;
	struct kvf_ep *ep; /* NULL: has not registered */
	pid_t pid;
	uid_t uid;
	gid_t gid;
	uint64_t opened_ms;
	bool closed; /* freed at the end of the round */
	bool left;   /* ended by either side; its endpoint still drains */
};

/* epoll tags that are not connections */
static int tag_listen, tag_notes;

static uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static int
watch(struct kvf_engine *e, int fd, void *tag, struct kvf_err *err)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = tag};

	if (epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0)
		return kvf_fail_errno(err, "cannot watch a descriptor");
	return 0;
}

/* What stands at the path where we want to listen, if nobody is behind it, goes away. Only a
 * refused connection proves that: one that is stopped, or busy with a full backlog, does not answer
 * either, and would be cut off from all who come later. */
static int
make_room(struct kvf_engine *e, const struct sockaddr_un *addr, struct kvf_err *err)
{
	struct stat st;
	int fd, error;

	if (lstat(e->socket_path, &st) != 0)
		return 0;
	if (!S_ISSOCK(st.st_mode))
		return kvf_fail(
			err, KVF_E_EXIST, "path=%s exists and is no socket", e->socket_path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return kvf_fail_errno(err, "cannot create a socket");
	error = connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0 ? 0 : errno;
	close(fd);
	if (error == 0 || error == EAGAIN)
		return kvf_fail(err, KVF_E_EXIST,
			"another kvferryd serves path=%s%s; choose another --socket",
			e->socket_path, error == 0 ? "" : " (and accepts nobody at the moment)");
	if (error == EPROTOTYPE)
		return kvf_fail(err, KVF_E_EXIST,
			"path=%s is the socket of another program; choose another --socket",
			e->socket_path);
	if (error != ECONNREFUSED && error != ENOENT) {
		errno = error;
		return kvf_fail_errno(
			err, "cannot tell whether anybody serves path=%s", e->socket_path);
	}
	/* Left behind by one that died. */
	if (unlink(e->socket_path) != 0 && errno != ENOENT)
		return kvf_fail_errno(
			err, "cannot remove the stale socket path=%s", e->socket_path);
	return 0;
}

/* The path may belong to somebody else by now. */
static void
unlisten(struct kvf_engine *e)
{
	struct stat st;

	if (e->listen_fd < 0)
		return;
	if (lstat(e->socket_path, &st) == 0 && st.st_dev == e->socket_dev &&
		st.st_ino == e->socket_ino)
		unlink(e->socket_path);
	close(e->listen_fd);
	e->listen_fd = -1;
}

static int
listen_at(struct kvf_engine *e, struct kvf_err *err)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct stat st;
	mode_t mask;
	int rc;

	if (strlen(e->socket_path) >= sizeof(addr.sun_path))
		return kvf_fail(err, KVF_E_INVAL, "socket path length=%zu limit=%zu",
			strlen(e->socket_path), sizeof(addr.sun_path) - 1);
	strcpy(addr.sun_path, e->socket_path);
	rc = make_room(e, &addr, err);
	if (rc != 0)
		return rc;
	e->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (e->listen_fd < 0)
		return kvf_fail_errno(err, "cannot create a socket");
	mask = umask(0777 & ~e->cfg.socket_mode);
	rc = bind(e->listen_fd, (struct sockaddr *)&addr, sizeof(addr));
	umask(mask);
	if (rc != 0) {
		close(e->listen_fd);
		e->listen_fd = -1;
		return kvf_fail_errno(err, "cannot bind the socket path=%s", e->socket_path);
	}
	if (lstat(e->socket_path, &st) == 0) {
		e->socket_dev = st.st_dev;
		e->socket_ino = st.st_ino;
	}
	/* Before anything else: until then it looks stale to another one that starts. */
	if (listen(e->listen_fd, BACKLOG) != 0)
		return kvf_fail_errno(err, "cannot listen at path=%s", e->socket_path);
	if (e->cfg.set_owner &&
		chown(e->socket_path, (uid_t)e->cfg.socket_uid, (gid_t)e->cfg.socket_gid) != 0)
		return kvf_fail_errno(err, "cannot give the socket path=%s to uid=%lld gid=%lld",
			e->socket_path, (long long)e->cfg.socket_uid, (long long)e->cfg.socket_gid);
	return watch(e, e->listen_fd, &tag_listen, err);
}

static int
spare_open(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int
kvf_control_init(struct kvf_engine *e, struct kvf_err *err)
{
	int rc;

	e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (e->epoll_fd < 0)
		return kvf_fail_errno(err, "cannot create an epoll instance");
	e->spare_fd = spare_open();
	rc = watch(e, e->control_fd, &tag_notes, err);
	return rc != 0 ? rc : listen_at(e, err);
}

/* A client takes the end of its connection for the proof that its pool is not touched any more: one
 * with an endpoint stays open, unwatched, until that is true. */
static void
conn_close(struct kvf_engine *e, struct kvf_conn *c)
{
	if (c->closed || c->left)
		return;
	if (c->ep != NULL) {
		c->left = true;
		epoll_ctl(e->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
		kvf_registry_dead(e, c->ep);
		return;
	}
	c->closed = true;
	close(c->fd); /* leaves the epoll set by itself */
	e->num_conns--;
}

/* May a line be written that a peer can cause as often as it likes? Whoever may reach the socket
 * could fill the disk otherwise. */
static bool
may_grumble(struct kvf_engine *e)
{
	return e->grumbles++ < GRUMBLES;
}

static void
sum_grumbles(struct kvf_engine *e)
{
	if (e->grumbles > GRUMBLES)
		kvf_log(e, true, "%u more lines about peers were left out, limit=%d a second",
			e->grumbles - GRUMBLES, GRUMBLES);
	e->grumbles = 0;
}

static void
count_grumbles(struct kvf_engine *e)
{
	uint64_t second = now_ms() / 1000;

	if (second == e->grumble_second)
		return;
	e->grumble_second = second;
	sum_grumbles(e);
}

static void
refuse(struct kvf_engine *e, struct kvf_conn *c, const struct kvf_err *why)
{
	struct kvf_msg_refused msg = {
		.hdr = {KVF_MSG_MAGIC, KVF_MSG_VERSION, KVF_MSG_REFUSED, sizeof(msg), 0},
		.code = why->code,
	};

	/* The sentence only: behind its end there may be whatever was on our stack. */
	snprintf(msg.text, sizeof(msg.text), "%s", why->text);
	if (c->ep != NULL || may_grumble(e))
		kvf_log(e, true, "refused pid=%d: %s: %s", (int)c->pid, kvf_error_name(why->code),
			why->text);
	/* A peer that does not read its refusal is not waited for. */
	kvf_sock_send(c->fd, &msg, sizeof(msg), NULL, 0, 0, NULL);
	conn_close(e, c);
}

/* No descriptor is left: what waits would keep the listening socket readable, and us spinning. */
static void
turn_away(struct kvf_engine *e)
{
	int fd;

	if (may_grumble(e))
		kvf_log(e, true, "out of descriptors: a connection is turned away");
	if (e->spare_fd >= 0)
		close(e->spare_fd);
	fd = accept4(e->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		close(fd);
	e->spare_fd = spare_open();
}

static bool
welcome(const struct kvf_engine *e, const struct kvf_conn *c)
{
	uint32_t i;

	if (c->uid == geteuid() || c->uid == 0)
		return true;
	for (i = 0; i < e->cfg.num_uids; i++)
		if (e->cfg.uids[i] == c->uid)
			return true;
	for (i = 0; i < e->cfg.num_gids; i++)
		if (e->cfg.gids[i] == c->gid)
			return true;
	return false;
}

static void
on_accept(struct kvf_engine *e)
{
	int n;

	/* Who connects again and again must not keep us from those who are there; the ends of
	 * connections are noticed between two rounds. */
	for (n = 0; n < ACCEPTS; n++) {
		struct kvf_err err = {0};
		struct kvf_conn *c;
		struct ucred cred = {0};
		socklen_t len = sizeof(cred);
		int fd = accept4(e->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE)
				turn_away(e);
			else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED &&
				 may_grumble(e))
				kvf_log(e, true, "accept: %s", strerror(errno));
			return;
		}
		c = calloc(1, sizeof(*c));
		if (c == NULL) {
			close(fd);
			return;
		}
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
		c->fd = fd;
		c->pid = cred.pid;
		c->uid = cred.uid;
		c->gid = cred.gid;
		c->opened_ms = now_ms();
		c->next = e->conns;
		e->conns = c;
		e->num_conns++;
		if (!welcome(e, c)) {
			kvf_fail(&err, KVF_E_PERM,
				"uid=%u gid=%u may not connect: allowed are uid=%u, root and what "
				"--allow-uid and "
				"--allow-gid name",
				(unsigned int)c->uid, (unsigned int)c->gid,
				(unsigned int)geteuid());
			refuse(e, c, &err);
		} else if (e->num_conns > e->cfg.max_endpoints + SPARE_CONNS) {
			kvf_fail(&err, KVF_E_QUOTA, "connections=%u limit=%u", e->num_conns,
				e->cfg.max_endpoints + SPARE_CONNS);
			refuse(e, c, &err);
		} else if (watch(e, fd, c, &err) != 0) {
			refuse(e, c, &err);
		}
	}
}

static void
on_register(struct kvf_engine *e, struct kvf_conn *c, const void *packet, size_t len, int *fds,
	uint32_t num_fds)
{
	struct kvf_registration *reg;
	struct kvf_msg_welcome msg;
	struct kvf_err err = {0};
	struct kvf_ep *ep;
	uint32_t i;
	int out[3];

	if (c->ep != NULL || num_fds != 1 || e->stop_requested) {
		for (i = 0; i < num_fds; i++)
			close(fds[i]);
		if (e->stop_requested)
			kvf_fail(&err, KVF_E_ENGINE_GONE, "kvferryd is stopping");
		else
			kvf_fail(&err, KVF_E_PROTO,
				"REGISTER wants one descriptor, once per connection, got fds=%u",
				num_fds);
		refuse(e, c, &err);
		return;
	}
	if (kvf_msg_parse_register(packet, len, &reg, &err) != 0) {
		close(fds[0]);
		refuse(e, c, &err);
		return;
	}
	if (kvf_registry_add(e, reg, fds[0], c->pid, c->uid, &ep, &err) != 0) {
		refuse(e, c, &err);
		return;
	}
	msg = (struct kvf_msg_welcome){
		.hdr = {KVF_MSG_MAGIC, KVF_MSG_VERSION, KVF_MSG_WELCOME, sizeof(msg), 0},
		.ring_bytes = ep->ring.total_bytes,
		.engine_generation = e->generation,
		.endpoint_generation = ep->generation,
		.endpoint_id = ep->id,
	};
	out[0] = ep->ring_fd;
	out[1] = ep->client_wake_fd;
	out[2] = ep->doorbell_fd;
	/* Nobody is waited for: a peer that filled its buffer with answers gets no more. */
	if (kvf_sock_send(c->fd, &msg, sizeof(msg), out, 3, 0, &err) != 0) {
		if (may_grumble(e))
			kvf_log(e, true, "welcoming %s: %s", ep->name, err.text);
		kvf_registry_discard(e, ep);
		conn_close(e, c);
		return;
	}
	kvf_registry_handed_over(ep);
	c->ep = ep;
	kvf_registry_admit(e, ep);
}

static void
on_status(struct kvf_engine *e, struct kvf_conn *c)
{
	char *json = kvf_status_json(e);
	struct kvf_msg_hdr *hdr;
	struct kvf_err err;
	int rc = KVF_E_NOMEM;
	size_t n;

	if (json == NULL) {
		conn_close(e, c);
		return;
	}
	n = strlen(json) + 1;
	hdr = malloc(sizeof(*hdr) + n);
	if (hdr != NULL) {
		*hdr = (struct kvf_msg_hdr){KVF_MSG_MAGIC, KVF_MSG_VERSION, KVF_MSG_STATUS_TEXT,
			(uint32_t)(sizeof(*hdr) + n), 0};
		memcpy(hdr + 1, json, n);
		rc = kvf_sock_send(c->fd, hdr, sizeof(*hdr) + n, NULL, 0, 0, &err);
		if (rc != 0 && may_grumble(e))
			kvf_log(e, true, "status for pid=%d: %s", (int)c->pid, err.text);
	}
	free(hdr);
	free(json);
	/* One that asks and does not read must not make the control thread wait. */
	if (rc != 0)
		conn_close(e, c);
}

static void
on_readable(struct kvf_engine *e, struct kvf_conn *c)
{
	static alignas(16) uint8_t packet[KVF_MSG_MAX];
	struct kvf_err err = {0};
	int fds[KVF_MSG_MAX_FDS];
	uint32_t num_fds = KVF_MSG_MAX_FDS, i;
	int len, type;

	len = kvf_sock_recv(c->fd, packet, sizeof(packet), fds, &num_fds, 0, &err);
	if (len == KVF_E_AGAIN)
		return;
	if (len == 0 || len == KVF_E_SYS) {
		conn_close(e, c);
		return;
	}
	if (len < 0) {
		refuse(e, c, &err);
		return;
	}
	type = kvf_msg_check_hdr(packet, (size_t)len, &err);
	if (type == KVF_MSG_REGISTER) {
		on_register(e, c, packet, (size_t)len, fds, num_fds);
		return;
	}
	for (i = 0; i < num_fds; i++)
		close(fds[i]);
	if (type == KVF_MSG_STATUS) {
		on_status(e, c);
	} else if (type == KVF_MSG_BYE && c->ep != NULL) {
		c->ep->bye = true;
		kvf_registry_dead(e, c->ep);
	} else {
		if (type >= 0)
			kvf_fail(&err, KVF_E_PROTO, "message type=%d is not expected here", type);
		refuse(e, c, &err);
	}
}

static struct kvf_conn *
conn_of(struct kvf_engine *e, const struct kvf_ep *ep)
{
	struct kvf_conn *c;

	for (c = e->conns; c != NULL; c = c->next)
		if (c->ep == ep && !c->closed)
			return c;
	return NULL;
}

static void
ep_gone(struct kvf_engine *e, struct kvf_ep *ep)
{
	struct kvf_conn *c = conn_of(e, ep);
	struct kvf_msg_hdr done = {
		KVF_MSG_MAGIC, KVF_MSG_VERSION, KVF_MSG_BYE_DONE, sizeof(done), 0};
	bool bye = ep->bye;

	kvf_registry_gone(e, ep);
	if (c == NULL)
		return;
	c->ep = NULL;
	c->left = false;
	if (bye) /* only now: nothing of the pool is mapped any more */
		kvf_sock_send(c->fd, &done, sizeof(done), NULL, 0, 0, NULL);
	conn_close(e, c);
}

static void
on_notes(struct kvf_engine *e)
{
	struct kvf_note note;
	struct kvf_conn *c;
	uint64_t drop;

	if (read(e->control_fd, &drop, sizeof(drop)) < 0 && errno != EAGAIN)
		kvf_log(e, true, "reading the notes' eventfd: %s", strerror(errno));
	while (kvf_note_take(e->to_control, &note)) {
		switch (note.type) {
		case NOTE_EP_GONE:
			ep_gone(e, note.ep);
			break;
		case NOTE_EP_FAULT:
			c = conn_of(e, note.ep);
			if (c != NULL)
				refuse(e, c, &note.ep->fault);
			break;
		case NOTE_LINK_WANT:
			kvf_registry_want(e, note.prefill, note.decode);
			break;
		case NOTE_LINK_FREE:
			kvf_link_free(note.link);
			break;
		case NOTE_WARN:
			kvf_log(e, true, "WARNING: %s", note.err.text);
			break;
		default:
			e->stopped = true;
			break;
		}
	}
}

static void
sweep_conns(struct kvf_engine *e)
{
	struct kvf_conn **at = &e->conns, *c;
	uint64_t now = now_ms();

	while ((c = *at) != NULL) {
		if (!c->closed && c->ep == NULL && now - c->opened_ms > REGISTER_MS)
			conn_close(e, c);
		if (!c->closed) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		free(c);
	}
}

int
kvf_control_run(struct kvf_engine *e, struct kvf_err *err)
{
	struct kvf_note stop = {.type = NOTE_STOP};
	struct epoll_event events[EVENTS];
	uint64_t stop_ms = 0;
	int n, i;

	while (!e->stopped) {
		if (atomic_load(&e->stop_requested) && stop_ms == 0) {
			stop_ms = now_ms();
			unlisten(e);
			kvf_tell_dispatcher(e, &stop);
		}
		if (stop_ms != 0 && now_ms() - stop_ms > STOP_LIMIT_MS + e->cfg.drain_ms)
			return kvf_fail(err, KVF_E_TIMEOUT,
				"the dispatcher did not come to rest within ms=%u",
				STOP_LIMIT_MS + e->cfg.drain_ms);
		count_grumbles(e);
		n = epoll_wait(e->epoll_fd, events, EVENTS, kvf_flush_dispatcher(e) ? 1000 : 1);
		if (n < 0 && errno != EINTR)
			return kvf_fail_errno(err, "epoll_wait");
		for (i = 0; i < n; i++) {
			void *tag = events[i].data.ptr;

			if (tag == &tag_listen) {
				if (e->listen_fd >= 0)
					on_accept(e);
			} else if (tag == &tag_notes) {
				on_notes(e);
			} else if (!((struct kvf_conn *)tag)->closed &&
				   !((struct kvf_conn *)tag)->left) {
				on_readable(e, tag);
			}
		}
		sweep_conns(e);
	}
	return 0;
}

void
kvf_control_fini(struct kvf_engine *e)
{
	struct kvf_conn *c;

	sum_grumbles(e);
	while ((c = e->conns) != NULL) {
		e->conns = c->next;
		if (!c->closed)
			close(c->fd);
		free(c);
	}
	unlisten(e);
	if (e->epoll_fd >= 0)
		close(e->epoll_fd);
	if (e->spare_fd >= 0)
		close(e->spare_fd);
}
