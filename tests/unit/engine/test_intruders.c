/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers that misbehave on the socket. A calm pair goes on, and nothing stays behind. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "hostile.h"
#include "wire/message.h"

static const struct raw_shape shape = {.role = KVF_DECODE,
	.group = "intruder",
	.sq_entries = 4,
	.cq_entries = 4,
	.arena_bytes = 64,
	.num_pages = 64};

static _Alignas(16) uint8_t packet[KVF_MSG_MAX];

static int
connect_raw(void)
{
	struct kvf_err err = {0};
	int sock = kvf_sock_connect(rig_socket(calm.rig), 10000, &err);

	if (sock < 0) {
		fprintf(stderr, "connect: %s\n", err.text);
		exit(2);
	}
	return sock;
}

/* Sends one packet on a new connection; the engine refuses and hangs up. */
static void
refused(const void *buf, size_t len, const int *fds, uint32_t num_fds, int code, const char *text)
{
	struct kvf_err err = {0};
	int sock = connect_raw();

	if (!CHECK_EQ(kvf_sock_send(sock, buf, len, fds, num_fds, 10000, &err), 0))
		printf("        %s\n", err.text);
	CHECK(raw_dropped(sock, CLUSTER_WAIT_MS, &err));
	CHECK_EQ(err.code, code);
	CHECK_STR_HAS(err.text, text);
	close(sock);
}

static void
test_packets(void)
{
	struct kvf_msg_hdr hdr = {KVF_MSG_MAGIC, KVF_MSG_VERSION, KVF_MSG_BYE, sizeof(hdr), 0};
	struct kvf_pool *pool;
	struct kvf_err err = {0};
	int fds[3], len, sock;
	uint32_t i;

	hostile_setup(NULL);
	pool = raw_pool(&shape);
	for (i = 0; i < 3; i++)
		fds[i] = kvf_pool_fd(pool);
	refused("x", 1, NULL, 0, KVF_E_PROTO, "message of length=1");
	memset(packet, 0xa5, sizeof(packet));
	refused(packet, sizeof(packet), NULL, 0, KVF_E_PROTO, "message magic=0xa5a5a5a5");
	refused(packet, 300, fds, 3, KVF_E_PROTO, "message magic=");
	refused(&hdr, sizeof(hdr), NULL, 0, KVF_E_PROTO, "message type=4 is not expected here");
	refused(&hdr, sizeof(hdr), fds, 2, KVF_E_PROTO, "message type=4 is not expected here");
	hdr.type = KVF_MSG_WELCOME;
	refused(&hdr, sizeof(hdr), NULL, 0, KVF_E_PROTO, "message type=2 is not expected here");
	hdr.type = 0;
	refused(&hdr, sizeof(hdr), NULL, 0, KVF_E_PROTO, "message type=0");
	hdr.type = KVF_MSG_STATUS;
	hdr.version = 9;
	refused(&hdr, sizeof(hdr), NULL, 0, KVF_E_VERSION, "message version=9");
	len = raw_register_packet(&shape, pool, packet);
	refused(packet, (size_t)len - 1, fds, 1, KVF_E_PROTO, "message says length=");
	refused(packet, (size_t)len, NULL, 0, KVF_E_PROTO, "got fds=0");
	refused(packet, (size_t)len, fds, 2, KVF_E_PROTO, "got fds=2");
	refused(packet, (size_t)len, fds, 3, KVF_E_PROTO, "got fds=3");
	/* A packet of nothing is the end of the stream. */
	sock = connect_raw();
	CHECK(send(sock, "", 0, 0) == 0);
	CHECK(raw_dropped(sock, CLUSTER_WAIT_MS, &err));
	close(sock);
	calm_moves();
	kvf_pool_destroy(pool);
	hostile_teardown();
}

/* Registrations with any byte changed: refused, or admitted and able to leave. */
static void
test_damaged_registrations(void)
{
	struct kvf_pool *pool;
	struct kvf_err err;
	uint32_t i, k, admitted = 0;
	int fd, len, sock;

	hostile_setup(NULL);
	pool = raw_pool(&shape);
	fd = kvf_pool_fd(pool);
	for (i = 0; i < 600; i++) {
		len = raw_register_packet(&shape, pool, packet);
		for (k = 0; k <= i % 3; k++)
			packet[suite_range(&rnd, 16, (uint64_t)len - 1)] =
				(uint8_t)suite_rand(&rnd);
		sock = connect_raw();
		CHECK_EQ(kvf_sock_send(sock, packet, (size_t)len, &fd, 1, 10000, NULL), 0);
		if (raw_dropped(sock, 2, &err))
			CHECK(err.code < 0);
		else
			admitted++;
		close(sock);
		if (i % 100 == 0)
			calm_moves();
	}
	printf("        admitted or slow: %u of 600\n", admitted);
	kvf_pool_destroy(pool);
	hostile_teardown();
}

static void
test_wrong_files(void)
{
	int fds[2], len, fd, len2;
	struct kvf_pool *pool;

	hostile_setup(NULL);
	pool = raw_pool(&shape);
	len = raw_register_packet(&shape, pool, packet);
	CHECK_EQ(pipe(fds), 0);
	refused(packet, (size_t)len, &fds[0], 1, KVF_E_PERM, "a pipe");
	close(fds[0]);
	close(fds[1]);
	fd = open("/dev/null", O_RDWR);
	refused(packet, (size_t)len, &fd, 1, KVF_E_PERM, "a character device");
	close(fd);
	fd = memfd_create("unsealed", MFD_ALLOW_SEALING);
	CHECK_EQ(ftruncate(fd, 4096), 0);
	refused(packet, (size_t)len, &fd, 1, KVF_E_PERM, "F_SEAL_SHRINK");
	/* Shorter than it says, and full of holes. */
	CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	refused(packet, (size_t)len, &fd, 1, KVF_E_INVAL, "not populated");
	close(fd);
	fd = memfd_create("short", MFD_ALLOW_SEALING);
	CHECK_EQ(ftruncate(fd, 16), 0);
	CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	refused(packet, (size_t)len, &fd, 1, KVF_E_INVAL, "more than its file has: size=16");
	close(fd);
	/* Its own socket, and the engine's own ring of another endpoint. */
	{
		struct raw r;
		char path[64];

		fd = connect_raw();
		refused(packet, (size_t)len, &fd, 1, KVF_E_PERM, "a socket");
		close(fd);
		raw_open(&r, rig_socket(calm.rig), &shape);
		len2 = raw_register_packet(
			&(struct raw_shape){KVF_PREFILL, "other", 4, 4, 64, 64}, pool, packet);
		refused(packet, (size_t)len2, &r.completion_fd, 1, KVF_E_PERM, "");
		refused(packet, (size_t)len2, &r.doorbell_fd, 1, KVF_E_PERM, "");
		snprintf(path, sizeof(path), "/proc/self/fd/%d", kvf_pool_fd(pool));
		fd = open(path, O_RDONLY);
		refused(packet, (size_t)len2, &fd, 1, KVF_E_PERM, "read-only");
		close(fd);
		raw_close(&r);
	}
	calm_moves();
	kvf_pool_destroy(pool);
	hostile_teardown();
}

/* A registered one that goes on talking. */
static void
test_after_registration(void)
{
	struct kvf_msg_hdr hdr = {KVF_MSG_MAGIC, KVF_MSG_VERSION, KVF_MSG_BYE, sizeof(hdr), 0};
	struct kvf_err err;
	struct raw r;
	uint32_t i;
	int len, fd;

	hostile_setup(NULL);
	for (i = 0; i < 5; i++) {
		raw_open(&r, rig_socket(calm.rig), &shape);
		fd = kvf_pool_fd(r.pool);
		switch (i) {
		case 0: /* REGISTER twice */
			len = raw_register_packet(&shape, r.pool, packet);
			kvf_sock_send(r.sock, packet, (size_t)len, &fd, 1, 10000, NULL);
			CHECK(raw_dropped(r.sock, CLUSTER_WAIT_MS, &err));
			CHECK_EQ(err.code, KVF_E_PROTO);
			CHECK_STR_HAS(err.text, "once per connection");
			break;
		case 1: /* garbage */
			kvf_sock_send(r.sock, "garbage", 7, NULL, 0, 10000, NULL);
			CHECK(raw_dropped(r.sock, CLUSTER_WAIT_MS, &err));
			CHECK_EQ(err.code, KVF_E_PROTO);
			break;
		case 2: /* BYE after BYE, with rooms open and postings behind it */
			raw_put(&r, &(struct kvf_sqe){.op = KVF_OP_RECV, .room = 1, .seq = 1});
			kvf_sock_send(r.sock, &hdr, sizeof(hdr), NULL, 0, 10000, NULL);
			kvf_sock_send(r.sock, &hdr, sizeof(hdr), NULL, 0, 10000, NULL);
			raw_put(&r, &(struct kvf_sqe){.op = KVF_OP_RECV, .room = 2, .seq = 2});
			CHECK(raw_dropped(r.sock, CLUSTER_WAIT_MS, &err));
			CHECK_EQ(err.code, 0);
			break;
		case 3: /* half a goodbye */
			shutdown(r.sock, SHUT_WR);
			CHECK(raw_dropped(r.sock, CLUSTER_WAIT_MS, &err));
			break;
		default: /* goes on writing into a ring that nobody reads any more */
			shutdown(r.sock, SHUT_RDWR);
			for (len = 0; len < 100; len++)
				raw_put(&r,
					&(struct kvf_sqe){.op = KVF_OP_RECV, .room = 1, .seq = 1});
			break;
		}
		calm_moves();
		raw_close(&r);
	}
	hostile_teardown();
}

static int
try_connect(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	strcpy(addr.sun_path, rig_socket(calm.rig));
	if (fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Connections that say nothing: bounded, and those past the bound are told so. */
static void
test_half_open(void)
{
	struct kvf_engine_config cfg = {.max_endpoints = 8};
	int socks[400];
	uint32_t i, refusals = 0, n = 0;
	struct kvf_err err;

	hostile_setup(&cfg);
	for (i = 0; i < 400; i++) {
		/* The backlog is full now and then. */
		socks[i] = try_connect();
		if (socks[i] < 0) {
			cluster_sleep_ms(1);
			socks[i] = try_connect();
		}
		n += socks[i] >= 0;
		if (i % 100 == 99)
			calm_moves();
	}
	CHECK(n > 100);
	for (i = 0; i < 400; i++) {
		if (socks[i] < 0)
			continue;
		if (raw_dropped(socks[i], 0, &err)) {
			refusals++;
			CHECK_EQ(err.code, KVF_E_QUOTA);
			CHECK_STR_HAS(err.text, "limit=72");
		}
	}
	CHECK(refusals >= n - 72);
	CHECK(refusals < n);
	for (i = 0; i < 400; i++)
		if (socks[i] >= 0)
			close(socks[i]);
	hostile_teardown();
}

/* Questions by the thousand, of one that reads no answer: it is dropped, and others come and go
 * meanwhile. */
static void
test_status_flood(void)
{
	struct kvf_msg_hdr hdr = {KVF_MSG_MAGIC, KVF_MSG_VERSION, KVF_MSG_STATUS, sizeof(hdr), 0};
	struct kvf_err err = {0};
	uint32_t i, sent = 0;
	struct raw r;
	int sock;

	hostile_setup(NULL);
	sock = connect_raw();
	for (i = 0; i < 20000; i++) {
		int rc = kvf_sock_send(sock, &hdr, sizeof(hdr), NULL, 0, 0, &err);

		if (rc == KVF_E_AGAIN) {
			cluster_sleep_ms(1);
			continue;
		}
		if (rc != 0)
			break; /* dropped */
		sent++;
		if (i % 1000 == 0) {
			raw_open(&r, rig_socket(calm.rig), &shape);
			calm_moves();
			raw_close(&r);
		}
	}
	printf("        dropped after %u questions\n", sent);
	CHECK(sent < 20000);
	close(sock);
	/* One that reads may ask all day long. */
	for (i = 0; i < 200; i++) {
		char *text = NULL;

		CHECK_EQ(kvf_engine_status(rig_socket(calm.rig), 0, &text, &err), 0);
		free(text);
	}
	hostile_teardown();
}

/* Registered and dropped again hundreds of times. */
static void
test_churn(void)
{
	struct raw r;
	uint32_t i;

	hostile_setup(NULL);
	for (i = 0; i < 300; i++) {
		raw_open(&r, rig_socket(calm.rig), &shape);
		if (i % 3 != 0)
			raw_put(&r, &(struct kvf_sqe){.op = KVF_OP_RECV, .room = i, .seq = 1});
		raw_close(&r);
		if (i % 50 == 0)
			calm_moves();
	}
	hostile_teardown();
}

static const struct suite_case cases[] = {
	{"packets that are not expected", test_packets},
	{"damaged registrations", test_damaged_registrations},
	{"files that are no pool", test_wrong_files},
	{"messages after the registration", test_after_registration},
	{"connections that say nothing", test_half_open},
	{"a flood of questions", test_status_flood},
	{"hundreds of registrations", test_churn},
};

SUITE_MAIN("intruders", cases)
