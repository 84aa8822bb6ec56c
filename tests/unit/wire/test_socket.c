/* SPDX-License-Identifier: BSD-3-Clause */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/suite.h"
#include "wire/deadline.h"
#include "wire/message.h"

static uint8_t big[KVF_MSG_MAX];
static uint8_t in[KVF_MSG_MAX];

static int
open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

static void
make_pair(int sv[2])
{
	CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
}

static void
close_pair(const int sv[2])
{
	close(sv[0]);
	close(sv[1]);
}

/* Any number of descriptors, which kvf_sock_send() would refuse. */
static void
raw_send(int sock, const void *data, size_t len, int num_fds)
{
	char ctl[CMSG_SPACE(64 * sizeof(int))] __attribute__((aligned(8)));
	struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	memset(ctl, 0, sizeof(ctl));
	if (num_fds > 0) {
		struct cmsghdr *c;
		int i;

		msg.msg_control = ctl;
		msg.msg_controllen = CMSG_SPACE((size_t)num_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)num_fds * sizeof(int));
		for (i = 0; i < num_fds; i++)
			memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &sock, sizeof(int));
	}
	CHECK_EQ(sendmsg(sock, &msg, MSG_NOSIGNAL), len);
}

static void
test_packets(void)
{
	int before = open_fds();
	int sv[2], fds[3], pipefd[2];
	struct kvf_err err;
	uint32_t n, i;
	char c = 0;

	make_pair(sv);
	CHECK_EQ(pipe2(pipefd, O_CLOEXEC), 0);
	memset(big, 0x5a, sizeof(big));
	/* The largest packet, alone in the socket. */
	CHECK_EQ(kvf_sock_send(sv[0], big, sizeof(big), NULL, 0, 1000, &err), 0);
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), NULL, NULL, 1000, &err), sizeof(big));
	CHECK(memcmp(big, in, sizeof(big)) == 0);
	/* Three descriptors: they work and are close-on-exec. */
	fds[0] = fds[1] = fds[2] = pipefd[1];
	CHECK_EQ(kvf_sock_send(sv[0], "hi", 2, fds, 3, 0, &err), 0);
	n = 3;
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), fds, &n, 1000, &err), 2);
	CHECK_EQ(n, 3);
	for (i = 0; i < n; i++) {
		CHECK((fcntl(fds[i], F_GETFD) & FD_CLOEXEC) != 0);
		CHECK_EQ(write(fds[i], "x", 1), 1);
		CHECK_EQ(read(pipefd[0], &c, 1), 1);
		close(fds[i]);
	}
	/* Fewer than asked for: the count says so. */
	fds[0] = pipefd[1];
	CHECK_EQ(kvf_sock_send(sv[0], "hi", 2, fds, 1, 0, &err), 0);
	n = 3;
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), fds, &n, 1000, &err), 2);
	CHECK_EQ(n, 1);
	close(fds[0]);
	CHECK_EQ(kvf_sock_send(sv[0], "hi", 2, NULL, 0, 0, &err), 0);
	n = 3;
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), fds, &n, 1000, &err), 2);
	CHECK_EQ(n, 0);
	close_pair(pipefd);
	close_pair(sv);
	CHECK_EQ(open_fds(), before);
}

static void
test_too_many_fds(void)
{
	int before = open_fds();
	int sv[2], fds[8] = {-1, -1, -1};
	uint32_t n, sent, asked;
	struct kvf_err err;

	make_pair(sv);
	for (sent = 1; sent <= 40; sent++) {
		for (asked = 0; asked <= 3 && asked < sent; asked++) {
			raw_send(sv[0], "hello", 5, (int)sent);
			n = asked;
			CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), fds, asked > 0 ? &n : NULL,
					 1000, &err),
				KVF_E_PROTO);
			if (asked > 0)
				CHECK_EQ(n, 0);
			CHECK_EQ(open_fds(), before + 2);
		}
	}
	raw_send(sv[0], "hello", 5, 2);
	n = 1;
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), fds, &n, 1000, &err), KVF_E_PROTO);
	CHECK_STR_HAS(err.text, "fds=2, expected at most 1");
	/* The connection is still in step. */
	raw_send(sv[0], "next", 4, 0);
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), NULL, NULL, 1000, &err), 4);
	/* Descriptors that come with nothing read as the end of the stream. */
	raw_send(sv[0], "", 0, 3);
	n = 3;
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), fds, &n, 1000, &err), 0);
	CHECK_EQ(n, 0);
	close_pair(sv);
	CHECK_EQ(open_fds(), before);
}

/* Not the peer's fault, and over when somebody closes something: no PROTO. */
static void
test_full_table(void)
{
	int before = open_fds();
	struct rlimit old, low;
	int sv[2], fds[3];
	struct kvf_err err;
	uint32_t n, left;

	make_pair(sv);
	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
	for (left = 0; left < 3; left++) {
		int lowest = dup(sv[0]);

		close(lowest);
		low = old;
		low.rlim_cur = (rlim_t)lowest + left;
		raw_send(sv[0], "hello", 5, 3);
		n = 3;
		CHECK_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
		CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), fds, &n, 1000, &err), KVF_E_QUOTA);
		CHECK_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
		CHECK_EQ(n, 0);
		CHECK_STR_HAS(err.text, "out of descriptors");
		CHECK_STR_HAS(err.text, "limit=");
		CHECK_EQ(open_fds(), before + 2);
	}
	close_pair(sv);
	CHECK_EQ(open_fds(), before);
}

static void
test_truncated(void)
{
	int before = open_fds();
	int sv[2], fds[3];
	struct kvf_err err;
	uint32_t n = 3;

	make_pair(sv);
	raw_send(sv[0], big, 101, 2);
	CHECK_EQ(kvf_sock_recv(sv[1], in, 100, fds, &n, 1000, &err), KVF_E_PROTO);
	CHECK_STR_HAS(err.text, "limit=100");
	CHECK_EQ(n, 0);
	CHECK_EQ(open_fds(), before + 2);
	raw_send(sv[0], big, 100, 0);
	CHECK_EQ(kvf_sock_recv(sv[1], in, 100, NULL, NULL, 1000, &err), 100);
	close_pair(sv);
	CHECK_EQ(open_fds(), before);
}

static void
test_end_of_stream(void)
{
	int sv[2];
	struct kvf_err err;

	make_pair(sv);
	raw_send(sv[0], "last", 4, 0);
	close(sv[0]);
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), NULL, NULL, 1000, &err), 4);
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), NULL, NULL, 1000, &err), 0);
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), NULL, NULL, 0, &err), 0);
	/* No SIGPIPE: this process would be dead. */
	CHECK_EQ(kvf_sock_send(sv[1], "x", 1, NULL, 0, 1000, &err), KVF_E_SYS);
	CHECK_STR_HAS(err.text, "Broken pipe");
	close(sv[1]);
	/* The peer closes with our packet unread: still an end of stream, not an error. */
	make_pair(sv);
	raw_send(sv[1], "unread", 6, 0);
	close(sv[0]);
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), NULL, NULL, 1000, &err), 0);
	close(sv[1]);
	/* And what it said before that is not lost: it may be why. */
	make_pair(sv);
	raw_send(sv[1], "unread", 6, 0);
	raw_send(sv[0], "why", 3, 0);
	close(sv[0]);
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), NULL, NULL, 1000, &err), 3);
	CHECK(memcmp(in, "why", 3) == 0);
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), NULL, NULL, 1000, &err), 0);
	close(sv[1]);
}

static void
test_limits_of_waits(void)
{
	int sv[2], fd = 0, four[4] = {0, 0, 0, 0};
	struct kvf_err err;
	uint32_t n = 4;
	uint64_t t0;
	int rc;

	make_pair(sv);
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), NULL, NULL, 0, &err), KVF_E_AGAIN);
	t0 = kvf_clock_ms(CLOCK_MONOTONIC);
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), NULL, NULL, 30, &err), KVF_E_TIMEOUT);
	CHECK_STR_HAS(err.text, "timeout_ms=30");
	CHECK(kvf_clock_ms(CLOCK_MONOTONIC) - t0 >= 30);
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), NULL, NULL, -1, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "timeout_ms=-1");
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), four, &n, 0, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "fds=4, limit=3");
	do
		rc = kvf_sock_send(sv[0], big, sizeof(big), NULL, 0, 0, &err);
	while (rc == 0);
	CHECK_EQ(rc, KVF_E_AGAIN);
	CHECK_EQ(kvf_sock_send(sv[0], big, sizeof(big), NULL, 0, 30, &err), KVF_E_TIMEOUT);
	CHECK_EQ(kvf_sock_send(sv[0], big, 1, NULL, 0, -5, &err), KVF_E_INVAL);
	CHECK_EQ(kvf_sock_send(sv[0], big, 1, four, 4, 0, &err), KVF_E_INVAL);
	CHECK_EQ(kvf_sock_send(sv[0], big, 0, NULL, 0, 0, &err), KVF_E_INVAL);
	CHECK_EQ(kvf_sock_send(sv[0], big, KVF_MSG_MAX + 1, NULL, 0, 0, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "length=196609, limit=1..196608");
	close_pair(sv);
	CHECK_EQ(kvf_sock_send(-1, big, 1, &fd, 1, 0, NULL), KVF_E_SYS);
	CHECK_EQ(kvf_sock_recv(-1, in, 1, NULL, NULL, 0, NULL), KVF_E_SYS);
}

/* A socket whose buffer is too small for the packet gets a larger one. */
static void
test_small_buffer(void)
{
	int sv[2], size = 4096;
	struct kvf_err err;

	make_pair(sv);
	CHECK_EQ(setsockopt(sv[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
	CHECK_EQ(kvf_sock_send(sv[0], big, sizeof(big), NULL, 0, 1000, &err), 0);
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), NULL, NULL, 1000, &err), sizeof(big));
	close_pair(sv);
}

static void
on_signal(int sig)
{
	(void)sig;
}

struct poker {
	pthread_t target;
	int sock;
};

static void *
poke(void *arg)
{
	const struct poker *p = arg;
	int i;

	for (i = 0; i < 20; i++) {
		pthread_kill(p->target, SIGUSR1);
		usleep(2000);
	}
	if (send(p->sock, "late", 4, MSG_NOSIGNAL) != 4)
		return (void *)(uintptr_t)1;
	return NULL;
}

static void
test_signals(void)
{
	struct sigaction sa = {.sa_handler = on_signal}; /* no SA_RESTART */
	struct poker p;
	struct kvf_err err;
	pthread_t th;
	void *bad;
	int sv[2];

	make_pair(sv);
	CHECK_EQ(sigaction(SIGUSR1, &sa, NULL), 0);
	p.target = pthread_self();
	p.sock = sv[0];
	CU_ASSERT_EQUAL_FATAL(pthread_create(&th, NULL, poke, &p), 0);
	CHECK_EQ(kvf_sock_recv(sv[1], in, sizeof(in), NULL, NULL, 10000, &err), 4);
	pthread_join(th, &bad);
	CHECK(bad == NULL);
	close_pair(sv);
}

static void
test_connect(void)
{
	char dir[] = "/tmp/kvf-test-XXXXXX";
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int before = open_fds();
	char path[64], longpath[200];
	struct kvf_err err;
	int lsock, fd[16], n, rc = 0;
	uint64_t t0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
	CHECK_EQ(kvf_sock_connect(path, 100, &err), KVF_E_SYS);
	CHECK_STR_HAS(err.text, "no kvferryd listens at path=/tmp/kvf-test-");
	memset(longpath, 'x', sizeof(longpath));
	longpath[108] = '\0';
	CHECK_EQ(kvf_sock_connect(longpath, 100, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "length=108, limit=1..107");
	CHECK_EQ(kvf_sock_connect("", 100, &err), KVF_E_INVAL);
	CHECK_EQ(kvf_sock_connect(NULL, 100, &err), KVF_E_INVAL);
	CHECK_EQ(kvf_sock_connect(path, -1, &err), KVF_E_INVAL);

	lsock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	memcpy(addr.sun_path, path, strlen(path));
	CHECK_EQ(bind(lsock, (struct sockaddr *)&addr, sizeof(addr)), 0);
	/* Bound, but nobody listens: the same sentence. */
	CHECK_EQ(kvf_sock_connect(path, 100, &err), KVF_E_SYS);
	CHECK_STR_HAS(err.text, "no kvferryd listens at path=");
	CHECK_EQ(listen(lsock, 1), 0);
	/* Nobody accepts: the backlog fills, then the wait is bounded. */
	t0 = kvf_clock_ms(CLOCK_MONOTONIC);
	for (n = 0; n < 16; n++) {
		rc = kvf_sock_connect(path, 50, &err);
		if (rc < 0)
			break;
		fd[n] = rc;
		CHECK((fcntl(rc, F_GETFD) & FD_CLOEXEC) != 0);
	}
	CHECK(n > 0 && n < 16);
	CHECK_EQ(rc, KVF_E_TIMEOUT);
	CHECK_STR_HAS(err.text, "timeout_ms=50");
	CHECK(kvf_clock_ms(CLOCK_MONOTONIC) - t0 >= 50);
	while (n-- > 0)
		close(fd[n]);
	close(lsock);
	/* The file is left behind, its engine is gone. */
	CHECK_EQ(kvf_sock_connect(path, 100, &err), KVF_E_SYS);
	CHECK_STR_HAS(err.text, "no kvferryd listens at path=");
	if (geteuid() != 0) {
		CHECK_EQ(chmod(dir, 0), 0);
		CHECK_EQ(kvf_sock_connect(path, 100, &err), KVF_E_PERM);
		CHECK_EQ(chmod(dir, 0700), 0);
	}
	unlink(path);
	/* Another kind of socket there. */
	lsock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK_EQ(bind(lsock, (struct sockaddr *)&addr, sizeof(addr)), 0);
	CHECK_EQ(listen(lsock, 1), 0);
	CHECK_EQ(kvf_sock_connect(path, 100, &err), KVF_E_SYS);
	CHECK_STR_HAS(err.text, "connect to path=");
	close(lsock);
	unlink(path);
	rmdir(dir);
	CHECK_EQ(open_fds(), before);
}

/* An engine that refuses at the door closes with the question unread: its reason counts. */
static void
test_reset(void)
{
	uint32_t num = 0;
	int sv[2];

	make_pair(sv);
	CHECK_EQ(kvf_sock_send(sv[0], "question", 8, NULL, 0, 1000, NULL), 0);
	CHECK_EQ(kvf_sock_send(sv[1], "why", 3, NULL, 0, 1000, NULL), 0);
	close(sv[1]);
	CHECK_EQ(kvf_sock_recv(sv[0], in, sizeof(in), NULL, &num, 1000, NULL), 3);
	CHECK(memcmp(in, "why", 3) == 0);
	CHECK_EQ(kvf_sock_recv(sv[0], in, sizeof(in), NULL, &num, 1000, NULL), 0);
	close(sv[0]);
}

static const struct suite_case cases[] = {
	{"packets and descriptors", test_packets},
	{"too many descriptors are closed and refused", test_too_many_fds},
	{"a full table of descriptors", test_full_table},
	{"a packet longer than the buffer", test_truncated},
	{"end of stream", test_end_of_stream},
	{"closed with something unread", test_reset},
	{"every wait has a limit", test_limits_of_waits},
	{"a small send buffer is enlarged", test_small_buffer},
	{"signals do not end a wait", test_signals},
	{"connect", test_connect},
};

SUITE_MAIN("wire_socket", cases)
