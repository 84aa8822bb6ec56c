/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "raw.h"
#include "wire/message.h"

static void
die(const char *what, const struct kvf_err *err)
{
	fprintf(stderr, "raw client: %s: %s\n", what, err->text);
	exit(2);
}

struct kvf_pool *
raw_pool(const struct raw_shape *shape)
{
	struct kvf_pool_config pc = {.length = (uint64_t)shape->num_pages * 16,
		.page_size = 4096,
		.numa_node = -1,
		.name = "raw"};
	struct kvf_pool *pool;
	struct kvf_err err = {0};

	if (kvf_pool_create(&pc, &pool, &err) != 0)
		die("pool", &err);
	return pool;
}

int
raw_register_packet(const struct raw_shape *shape, struct kvf_pool *pool, void *buf)
{
	struct kvf_entry entry = {.page_stride = 16,
		.row_stride = 16,
		.row_bytes = 16,
		.kind = KVF_KIND_LATENT,
		.dtype = 1,
		.head_count = 1,
		.head_total = 1};
	struct kvf_component comp = {.cls = KVF_TOKENS,
		.page_tokens = 1,
		.num_pages = shape->num_pages,
		.num_entries = 1,
		.sharding = {.size = 1, .interleave = 1},
		.entries = &entry};
	struct kvf_geometry geo = {.num_components = 1, .components = &comp};
	struct kvf_endpoint_config cfg = {.role = shape->role,
		.group = shape->group,
		.group_size = 1,
		.pool = pool,
		.geometry = &geo,
		.sq_entries = shape->sq_entries,
		.cq_entries = shape->cq_entries,
		.arena_bytes = shape->arena_bytes};
	struct kvf_err err = {0};
	int len = kvf_msg_pack_register(&cfg, kvf_pool_length(pool), buf, &err);

	if (len < 0)
		die("register", &err);
	return len;
}

void
raw_open(struct raw *r, const char *path, const struct raw_shape *shape)
{
	uint8_t *buf = malloc(KVF_MSG_MAX);
	struct kvf_err err = {0};
	struct kvf_msg_welcome w;
	int fds[3], len, tries, fd;
	uint32_t num;

	/* The place may still belong to the one before, which is being taken down. */
	for (tries = 0;; tries++) {
		memset(r, 0, sizeof(*r));
		r->pool = raw_pool(shape);
		fd = kvf_pool_fd(r->pool);
		num = 3;
		len = raw_register_packet(shape, r->pool, buf);
		r->sock = kvf_sock_connect(path, 10000, &err);
		if (r->sock < 0)
			die("connect", &err);
		if (kvf_sock_send(r->sock, buf, (size_t)len, &fd, 1, 10000, &err) != 0)
			die("send", &err);
		len = kvf_sock_recv(r->sock, buf, KVF_MSG_MAX, fds, &num, 20000, &err);
		if (len == sizeof(w) && num == 3)
			break;
		if (tries == 2000)
			die("no welcome", &err);
		close(r->sock);
		kvf_pool_destroy(r->pool);
		usleep(1000);
	}
	memcpy(&w, buf, sizeof(w));
	free(buf);
	r->completion_fd = fds[1];
	r->doorbell_fd = fds[2];
	r->bytes = w.ring_bytes;
	r->mem = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	close(fds[0]);
	if (r->mem == MAP_FAILED || kvf_ring_attach(r->mem, r->bytes, &r->ring, &err) != 0)
		die("ring", &err);
}

void
raw_close(struct raw *r)
{
	close(r->sock);
	close(r->completion_fd);
	close(r->doorbell_fd);
	munmap(r->mem, r->bytes);
	kvf_pool_destroy(r->pool);
}

void
raw_ring(struct raw *r)
{
	const uint64_t one = 1;

	kvf_ring_fence();
	if (write(r->doorbell_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		abort();
}

void
raw_put(struct raw *r, const struct kvf_sqe *sqe)
{
	memcpy(&r->ring.sq[r->tail++ & (r->ring.sq_entries - 1)], sqe, sizeof(*sqe));
	atomic_store_explicit(&r->ring.hdr->sq_tail, r->tail, memory_order_release);
	raw_ring(r);
}

bool
raw_dropped(int sock, int ms, struct kvf_err *err)
{
	static _Alignas(16) uint8_t buf[KVF_MSG_MAX];
	int len;

	memset(err, 0, sizeof(*err));
	while ((len = kvf_sock_recv(sock, buf, sizeof(buf), NULL, NULL, ms, NULL)) > 0) {
		struct kvf_msg_refused m;

		if (kvf_msg_check_hdr(buf, (size_t)len, NULL) != KVF_MSG_REFUSED ||
			len != sizeof(m))
			continue;
		memcpy(&m, buf, sizeof(m));
		err->code = m.code;
		memcpy(err->text, m.text, sizeof(err->text));
	}
	return len == 0 || len == KVF_E_SYS;
}
