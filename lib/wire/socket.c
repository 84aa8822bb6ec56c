/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "wire/deadline.h"
#include "wire/message.h"

/* A full backlog cannot be waited for with poll(): look again this often. */
#define CONNECT_RETRY_NS 2000000L

union control {
	struct cmsghdr align;
	char buf[CMSG_SPACE(KVF_MSG_MAX_FDS * sizeof(int))];
};

/* 0 when `sock` may be ready, else the error for a wait that ended. */
static int
wait_ready(int sock, short events, uint64_t deadline, int timeout_ms, const char *what,
	struct kvf_err *err)
{
	struct pollfd pfd = {.fd = sock, .events = events};
	int left = kvf_deadline_left(deadline);
	int n;

	if (timeout_ms == 0)
		return kvf_fail(err, KVF_E_AGAIN, "%s would have to wait, timeout_ms=0", what);
	if (left == 0)
		return kvf_fail(
			err, KVF_E_TIMEOUT, "%s took longer than timeout_ms=%d", what, timeout_ms);
	n = poll(&pfd, 1, left);
	if (n < 0 && errno != EINTR)
		return kvf_fail_errno(err, "poll for %s", what);
	return 0;
}

static int
check_args(const char *what, size_t num_fds, int timeout_ms, struct kvf_err *err)
{
	if (num_fds > KVF_MSG_MAX_FDS)
		return kvf_fail(err, KVF_E_INVAL, "%s with fds=%zu, limit=%u", what, num_fds,
			KVF_MSG_MAX_FDS);
	if (timeout_ms < 0)
		return kvf_fail(
			err, KVF_E_INVAL, "%s without a limit: timeout_ms=%d", what, timeout_ms);
	return 0;
}

int
kvf_sock_send(int sock, const void *packet, size_t len, const int *fds, uint32_t num_fds,
	int timeout_ms, struct kvf_err *err)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)packet, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	uint64_t deadline;
	union control ctl;
	bool enlarged = false;
	int rc;

	rc = check_args("send", num_fds, timeout_ms, err);
	if (rc != 0)
		return rc;
	if (len == 0 || len > KVF_MSG_MAX)
		return kvf_fail(
			err, KVF_E_INVAL, "send of length=%zu, limit=1..%u", len, KVF_MSG_MAX);
	if (num_fds > 0) {
		memset(&ctl, 0, sizeof(ctl));
		msg.msg_control = ctl.buf;
		msg.msg_controllen = CMSG_SPACE(num_fds * sizeof(int));
		ctl.align.cmsg_level = SOL_SOCKET;
		ctl.align.cmsg_type = SCM_RIGHTS;
		ctl.align.cmsg_len = CMSG_LEN(num_fds * sizeof(int));
		memcpy(CMSG_DATA(&ctl.align), fds, num_fds * sizeof(int));
	}
	deadline = kvf_deadline((uint64_t)timeout_ms);
	for (;;) {
		ssize_t n = sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n >= 0)
			return 0;
		if (errno == EINTR)
			continue;
		if (errno == EMSGSIZE && !enlarged) {
			int size = 2 * (int)KVF_MSG_MAX;

			/* Accepted sockets start with the host's default buffer. */
			enlarged = true;
			if (setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0)
				continue;
		}
		if (errno != EAGAIN && errno != EWOULDBLOCK)
			return kvf_fail_errno(err, "send of length=%zu", len);
		rc = wait_ready(sock, POLLOUT, deadline, timeout_ms, "send", err);
		if (rc != 0)
			return rc;
	}
}

static void
close_fds(const int *fds, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		close(fds[i]);
}

/* Moves every descriptor out of the control data: what is left there would leak. */
static size_t
take_fds(struct msghdr *msg, int *got, size_t cap)
{
	struct cmsghdr *c;
	size_t n = 0;

	for (c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
		size_t i, count;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (n < cap)
				got[n++] = fd;
			else
				close(fd);
		}
	}
	return n;
}

static int
fail_table_full(size_t got, struct kvf_err *err)
{
	struct rlimit max = {0};

	getrlimit(RLIMIT_NOFILE, &max);
	return kvf_fail(err, KVF_E_QUOTA,
		"out of descriptors: got fds=%zu of a message that has more, open files limit=%llu "
		"(ulimit -n)",
		got, (unsigned long long)max.rlim_cur);
}

int
kvf_sock_recv(int sock, void *buf, size_t cap, int *fds, uint32_t *num_fds, int timeout_ms,
	struct kvf_err *err)
{
	int got[sizeof(union control) / sizeof(int)];
	struct iovec iov = {.iov_base = buf, .iov_len = cap};
	uint32_t want = num_fds != NULL ? *num_fds : 0;
	struct msghdr msg;
	uint64_t deadline;
	union control ctl;
	bool reset = false;
	size_t num;
	ssize_t n;
	int rc;

	if (num_fds != NULL)
		*num_fds = 0;
	rc = check_args("receive", want, timeout_ms, err);
	if (rc != 0)
		return rc;
	deadline = kvf_deadline((uint64_t)timeout_ms);
	for (;;) {
		msg = (struct msghdr){
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = ctl.buf,
			.msg_controllen = sizeof(ctl.buf),
		};
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		if (n >= 0)
			break;
		if (errno == EINTR)
			continue;
		/* The peer closed with data of ours unread: an end of stream like any other. This
		 * is told once, ahead of what the peer said before it closed, which may be why. */
		if (errno == ECONNRESET && !reset) {
			reset = true;
			continue;
		}
		if (errno == ECONNRESET)
			return 0;
		if (errno != EAGAIN && errno != EWOULDBLOCK)
			return kvf_fail_errno(err, "receive");
		rc = wait_ready(sock, POLLIN, deadline, timeout_ms, "receive", err);
		if (rc != 0)
			return rc;
	}
	num = take_fds(&msg, got, sizeof(got) / sizeof(got[0]));
	if (n > 0 && num <= want && (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0) {
		if (num > 0)
			memcpy(fds, got, num * sizeof(int));
		if (num_fds != NULL)
			*num_fds = (uint32_t)num;
		return (int)n;
	}
	close_fds(got, num);
	if (n == 0)
		return 0;
	if ((msg.msg_flags & MSG_TRUNC) != 0)
		return kvf_fail(err, KVF_E_PROTO, "message is longer than limit=%zu", cap);
	/* The kernel says the same when the message has more than we look at, and when this process
	 * may not open what it has. The latter passes. */
	if ((msg.msg_flags & MSG_CTRUNC) != 0 && msg.msg_controllen < sizeof(ctl.buf))
		return fail_table_full(num, err);
	if ((msg.msg_flags & MSG_CTRUNC) != 0)
		return kvf_fail(err, KVF_E_PROTO, "message carries more descriptors than limit=%u",
			KVF_MSG_MAX_FDS);
	return kvf_fail(
		err, KVF_E_PROTO, "message carries fds=%zu, expected at most %u", num, want);
}

static int
try_connect(int fd, const struct sockaddr_un *addr, int timeout_ms, struct kvf_err *err)
{
	const struct timespec pause = {.tv_nsec = CONNECT_RETRY_NS};
	uint64_t deadline = kvf_deadline((uint64_t)timeout_ms);

	for (;;) {
		if (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0)
			return 0;
		switch (errno) {
		case EINTR:
			break;
		case EAGAIN: /* the backlog is full */
			if (kvf_deadline_left(deadline) == 0)
				return kvf_fail(err, KVF_E_TIMEOUT,
					"kvferryd at path=%s did not accept within timeout_ms=%d",
					addr->sun_path, timeout_ms);
			nanosleep(&pause, NULL);
			break;
		case ENOENT:
		case ECONNREFUSED:
			return kvf_fail_errno(
				err, "no kvferryd listens at path=%s", addr->sun_path);
		case EACCES:
		case EPERM:
			return kvf_fail(err, KVF_E_PERM,
				"no permission to connect to kvferryd at path=%s", addr->sun_path);
		default:
			return kvf_fail_errno(err, "connect to path=%s", addr->sun_path);
		}
	}
}

int
kvf_sock_connect(const char *path, int timeout_ms, struct kvf_err *err)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int size = 2 * (int)KVF_MSG_MAX;
	size_t len;
	int fd, rc;

	rc = check_args("connect", 0, timeout_ms, err);
	if (rc != 0)
		return rc;
	len = path != NULL ? strlen(path) : 0;
	if (len == 0 || len >= sizeof(addr.sun_path))
		return kvf_fail(err, KVF_E_INVAL, "socket path of length=%zu, limit=1..%zu", len,
			sizeof(addr.sun_path) - 1);
	memcpy(addr.sun_path, path, len);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return kvf_fail_errno(err, "socket for path=%s", path);
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) != 0) {
		rc = kvf_fail_errno(err, "SO_SNDBUF=%d", size);
		close(fd);
		return rc;
	}
	rc = try_connect(fd, &addr, timeout_ms, err);
	if (rc != 0) {
		close(fd);
		return rc;
	}
	return fd;
}
