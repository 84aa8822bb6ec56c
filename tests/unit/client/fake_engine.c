/* SPDX-License-Identifier: BSD-3-Clause */
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/endpoint.h"
#include "common/suite.h"
#include "unit/client/fake_engine.h"

#define POOL_BYTES (1u << 20)

static struct kvf_pool *pool;
static struct kvf_entry entries[2];
static struct kvf_component component;
static struct kvf_geometry geometry;

int
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

int
open_maps(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512];
	int n = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(file);
	while (fgets(line, sizeof(line), file) != NULL)
		n += strstr(line, "/memfd:") != NULL;
	fclose(file);
	return n;
}

static void
must(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	abort();
}

#define MUST(cond) must(cond, #cond)

static void
answer(struct fake *f, uint16_t type, void *packet, size_t len, const int *fds, uint32_t num_fds)
{
	struct kvf_msg_hdr *hdr = packet;

	hdr->magic = KVF_MSG_MAGIC;
	hdr->version = f->mode == FAKE_OLD_VERSION ? KVF_MSG_VERSION + 1 : KVF_MSG_VERSION;
	hdr->type = type;
	hdr->length = (uint32_t)len;
	MUST(kvf_sock_send(f->conn, packet, len, fds, num_fds, 5000, NULL) == 0);
}

static void
refuse(struct fake *f)
{
	struct kvf_msg_refused m = {.code = f->refuse_code != 0 ? f->refuse_code : KVF_E_EXIST};

	/* Filled to the last byte, so that nothing but the reader ends it. */
	memset(m.text, '.', sizeof(m.text));
	memcpy(m.text, "rank=1 is taken", 15);
	if (f->mode == FAKE_REFUSE_OK)
		m.code = 0;
	answer(f, KVF_MSG_REFUSED, &m, f->mode == FAKE_REFUSE_SHORT ? sizeof(m) - 4 : sizeof(m),
		NULL, 0);
}

static void
welcome(struct fake *f)
{
	struct kvf_msg_welcome w = {0};
	uint32_t cq = f->reg->msg.cq_entries;
	uint32_t sq = f->reg->msg.sq_entries;
	uint64_t arena = f->reg->msg.arena_bytes;
	int fds[3];

	f->bytes = kvf_ring_bytes(sq, cq, arena);
	fds[0] = memfd_create("ring", MFD_CLOEXEC);
	MUST(fds[0] >= 0);
	MUST(ftruncate(fds[0], (off_t)f->bytes) == 0);
	f->mem = mmap(NULL, f->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	MUST(f->mem != MAP_FAILED);
	/* 64 submissions less are 16384 bytes of arena more: the same size in all. */
	if (f->mode == FAKE_OTHER_SIZES)
		kvf_ring_format(f->mem, sq / 2, cq, arena * 2, &f->ring);
	else
		kvf_ring_format(f->mem, sq, cq, arena, &f->ring);
	f->ring.hdr->engine_generation = 7;
	f->ring.hdr->endpoint_generation = 8;
	f->ring.hdr->endpoint_id = 9;
	if (f->mode == FAKE_BAD_MAGIC)
		f->ring.hdr->magic ^= 1;
	if (f->mode == FAKE_SMALL_MEMORY)
		MUST(ftruncate(fds[0], (off_t)f->bytes - 4096) == 0);
	f->completion_fd = eventfd(0, EFD_CLOEXEC);
	f->doorbell_fd = eventfd(0, EFD_CLOEXEC);
	MUST(f->completion_fd >= 0 && f->doorbell_fd >= 0);
	fds[1] = f->completion_fd;
	fds[2] = f->doorbell_fd;
	w.ring_bytes = f->mode == FAKE_OTHER_BYTES ? f->bytes + 4096 : f->bytes;
	w.engine_generation = 7;
	w.endpoint_generation = f->mode == FAKE_OTHER_GENERATION ? 5 : 8;
	w.endpoint_id = 9;
	answer(f, f->mode == FAKE_OTHER_TYPE ? KVF_MSG_BYE_DONE : KVF_MSG_WELCOME, &w,
		f->mode == FAKE_SHORT_WELCOME ? sizeof(w) - 8 : sizeof(w), fds,
		f->mode == FAKE_TWO_FDS ? 2 : 3);
	close(fds[0]);
}

static void
status(struct fake *f)
{
	size_t hdr = sizeof(struct kvf_msg_hdr);
	size_t len = f->mode == FAKE_STATUS_LARGE ? KVF_MSG_MAX : hdr + 11;
	char *packet = calloc(1, len);

	MUST(packet != NULL);
	if (f->mode == FAKE_STATUS_LARGE)
		memset(packet + hdr, 'j', len - hdr);
	else
		memcpy(packet + hdr, "{\"rooms\":3}", 11);
	if (f->mode == FAKE_STATUS_EMPTY)
		len = hdr;
	answer(f, KVF_MSG_STATUS_TEXT, packet, len, NULL, 0);
	free(packet);
}

/* true: something to read; false: told to stop. */
static bool
wait_input(const struct fake *f, int fd)
{
	struct pollfd pfd[2] = {
		{.fd = fd, .events = POLLIN},
		{.fd = f->stop_fd, .events = POLLIN},
	};

	MUST(poll(pfd, 2, 30000) > 0);
	return pfd[1].revents == 0;
}

void
fake_bye_done(struct fake *f)
{
	struct kvf_msg_hdr done = {0};

	answer(f, KVF_MSG_BYE_DONE, &done, sizeof(done), NULL, 0);
}

static void
bye(struct fake *f)
{
	struct kvf_msg_hdr done = {0};
	struct kvf_msg_refused other = {0};

	switch (f->bye) {
	case FAKE_BYE_SILENT:
		return;
	case FAKE_BYE_HANG_UP:
		fake_hang_up(f);
		return;
	case FAKE_BYE_NOISY:
		answer(f, KVF_MSG_REFUSED, &other, sizeof(other), NULL, 0);
		answer(f, KVF_MSG_BYE_DONE, &done, sizeof(done), &f->doorbell_fd, 1);
		MUST(send(f->conn, "noise", 5, MSG_NOSIGNAL) == 5);
		break;
	case FAKE_BYE_DONE:
		break;
	}
	fake_bye_done(f);
}

static void
first_answer(struct fake *f, const uint8_t *packet, size_t len)
{
	struct kvf_err err;

	switch (f->mode) {
	case FAKE_SILENT:
		return;
	case FAKE_HANG_UP:
		fake_hang_up(f);
		return;
	case FAKE_GARBAGE:
		MUST(send(f->conn, "0123456789abcdef0123", 20, MSG_NOSIGNAL) == 20);
		return;
	case FAKE_REFUSE:
	case FAKE_REFUSE_OK:
	case FAKE_REFUSE_SHORT:
		refuse(f);
		return;
	case FAKE_STATUS:
	case FAKE_STATUS_LARGE:
	case FAKE_STATUS_EMPTY:
		MUST(kvf_msg_check_hdr(packet, len, NULL) == KVF_MSG_STATUS);
		status(f);
		return;
	default:
		break;
	}
	if (kvf_msg_parse_register(packet, len, &f->reg, &err) != 0) {
		fprintf(stderr, "register: %s\n", err.text);
		abort();
	}
	welcome(f);
}

static void
close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* One connection that is turned away when it has registered; false: told to stop. */
static bool
refuse_one(struct fake *f, uint8_t *packet)
{
	uint32_t num = 1;
	int fd = -1;

	f->conn = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
	MUST(f->conn >= 0);
	if (!wait_input(f, f->conn))
		return false;
	MUST(kvf_sock_recv(f->conn, packet, KVF_MSG_MAX, &fd, &num, 5000, NULL) >= 0);
	close_fd(&fd);
	refuse(f);
	close_fd(&f->conn);
	return true;
}

static void *
serve(void *arg)
{
	struct fake *f = arg;
	uint8_t *packet = malloc(KVF_MSG_MAX);
	bool first = true;

	MUST(packet != NULL);
	for (; f->refuse_first > 0; f->refuse_first--)
		if (!wait_input(f, f->listener) || !refuse_one(f, packet))
			goto out;
	if (!wait_input(f, f->listener))
		goto out;
	f->conn = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
	MUST(f->conn >= 0);
	if (f->mode == FAKE_REFUSE_EARLY) {
		refuse(f);
		fake_hang_up(f);
		goto out;
	}
	while (wait_input(f, f->conn)) {
		uint32_t num = 1;
		int fd = -1;
		int n = kvf_sock_recv(f->conn, packet, KVF_MSG_MAX, &fd, &num, 5000, NULL);

		if (n == 0) {
			/* The client's end: a real engine drains, then closes. */
			fake_hang_up(f);
			break;
		}
		MUST(n > 0);
		if (first) {
			if (num > 0)
				f->pool_fd = fd;
			first_answer(f, packet, (size_t)n);
			first = false;
		} else {
			MUST(kvf_msg_check_hdr(packet, (size_t)n, NULL) == KVF_MSG_BYE);
			bye(f);
		}
	}
out:
	free(packet);
	return NULL;
}

static void
listen_at_path(struct fake *f)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	f->conn = f->completion_fd = f->doorbell_fd = f->pool_fd = -1;
	memcpy(addr.sun_path, f->path, sizeof(f->path));
	f->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	MUST(f->listener >= 0);
	MUST(bind(f->listener, (struct sockaddr *)&addr, sizeof(addr)) == 0);
	MUST(listen(f->listener, 4) == 0);
	f->stop_fd = eventfd(0, EFD_CLOEXEC);
	MUST(f->stop_fd >= 0);
	MUST(pthread_create(&f->thread, NULL, serve, f) == 0);
}

void
fake_start(struct fake *f, enum fake_mode mode)
{
	memset(f, 0, sizeof(*f));
	f->mode = mode;
	strcpy(f->dir, "/tmp/kvf-fake-XXXXXX");
	MUST(mkdtemp(f->dir) != NULL);
	snprintf(f->path, sizeof(f->path), "%s/socket", f->dir);
	listen_at_path(f);
}

static void
forget(struct fake *f)
{
	if (f->mem != NULL)
		munmap(f->mem, f->bytes);
	free(f->reg);
	unlink(f->path);
}

void
fake_again_refusing(struct fake *f, enum fake_mode mode, uint32_t refusals, int code)
{
	struct fake old = *f;

	forget(f);
	memset(f, 0, sizeof(*f));
	memcpy(f->dir, old.dir, sizeof(f->dir));
	memcpy(f->path, old.path, sizeof(f->path));
	f->mode = mode;
	f->refuse_first = refusals;
	f->refuse_code = code;
	listen_at_path(f);
}

void
fake_again(struct fake *f, enum fake_mode mode)
{
	fake_again_refusing(f, mode, 0, 0);
}

void
fake_hang_up(struct fake *f)
{
	shutdown(f->conn, SHUT_RDWR);
}

void
fake_kill(struct fake *f)
{
	const uint64_t one = 1;

	if (f->stop_fd < 0)
		return;
	MUST(write(f->stop_fd, &one, sizeof(one)) == sizeof(one));
	pthread_join(f->thread, NULL);
	close_fd(&f->stop_fd);
	close_fd(&f->listener);
	close_fd(&f->conn);
	close_fd(&f->completion_fd);
	close_fd(&f->doorbell_fd);
	close_fd(&f->pool_fd);
}

void
fake_end(struct fake *f)
{
	fake_kill(f);
	forget(f);
	rmdir(f->dir);
	kvf_pool_destroy(pool);
	pool = NULL;
}

void
fake_config(const struct fake *f, enum kvf_role role, struct kvf_endpoint_config *cfg)
{
	const struct kvf_pool_config pc = {
		.length = POOL_BYTES, .page_size = 4096, .name = "fake", .numa_node = -1};
	struct kvf_err err;
	uint32_t i;

	for (i = 0; i < 2; i++)
		entries[i] = (struct kvf_entry){
			.offset = i * 65536u,
			.page_stride = 1024,
			.row_stride = 64,
			.row_bytes = 64,
			.layer = i,
			.kind = KVF_KIND_LATENT,
			.dtype = 1,
			.head_count = 1,
			.head_total = 1,
		};
	component = (struct kvf_component){
		.cls = KVF_TOKENS,
		.page_tokens = 16,
		.num_pages = 64,
		.num_entries = 2,
		.sharding = {1, 0, 1, 0},
		.entries = entries,
	};
	geometry = (struct kvf_geometry){.num_components = 1, .components = &component};
	if (pool == NULL && kvf_pool_create(&pc, &pool, &err) != 0) {
		fprintf(stderr, "pool: %s\n", err.text);
		abort();
	}
	*cfg = (struct kvf_endpoint_config){
		.socket = f->path,
		.role = role,
		.group = "group-a",
		.group_size = 2,
		.rank = 1,
		.pool = pool,
		.geometry = &geometry,
		.open_timeout_ms = 5000,
	};
}

struct kvf_endpoint *
fake_pair(struct fake *f, enum kvf_role role, uint32_t sq, uint32_t cq, uint64_t arena,
	uint32_t rooms)
{
	struct kvf_endpoint_config cfg;
	struct kvf_endpoint *ep;
	struct kvf_err err;

	fake_start(f, FAKE_WELCOME);
	fake_config(f, role, &cfg);
	cfg.sq_entries = sq;
	cfg.cq_entries = cq;
	cfg.arena_bytes = arena;
	cfg.max_rooms = rooms;
	if (kvf_endpoint_open(&cfg, &ep, &err) != 0) {
		fprintf(stderr, "open: %s\n", err.text);
		abort();
	}
	return ep;
}

struct kvf_endpoint *
fake_open(struct fake *f, enum kvf_role role)
{
	return fake_pair(f, role, 8, 16, 4096, 32);
}

void
fake_finish(struct fake *f, struct kvf_endpoint *ep, int want)
{
	CHECK_EQ(kvf_endpoint_close(ep), want);
	fake_end(f);
}

uint32_t
fake_waiting(const struct fake *f)
{
	return atomic_load_explicit(&f->ring.hdr->sq_tail, memory_order_acquire) - f->sq_head;
}

void
fake_peek(const struct fake *f, uint32_t k, struct kvf_sqe *sqe)
{
	CU_ASSERT_FATAL(fake_waiting(f) > k);
	memcpy(sqe, &f->ring.sq[(f->sq_head + k) & (f->ring.sq_entries - 1)], sizeof(*sqe));
}

const uint32_t *
fake_ids(const struct fake *f, const struct kvf_sqe *sqe, uint32_t i)
{
	const struct kvf_sq_list *l = &sqe->lists[i];

	if (l->count <= KVF_SQ_IDS)
		return l->ids;
	CHECK_EQ(l->arena_off % 4, 0);
	CU_ASSERT_FATAL(l->arena_off <= f->ring.arena_bytes &&
			(uint64_t)l->count * 4 <= f->ring.arena_bytes - l->arena_off);
	return (const uint32_t *)(const void *)(f->ring.arena + l->arena_off);
}

void
fake_take(struct fake *f, uint32_t n)
{
	CU_ASSERT_FATAL(fake_waiting(f) >= n);
	f->sq_head += n;
	atomic_store_explicit(&f->ring.hdr->sq_head, f->sq_head, memory_order_release);
}

void
fake_next(struct fake *f, struct kvf_sqe *sqe)
{
	fake_peek(f, 0, sqe);
	fake_take(f, 1);
}

void
fake_push(struct fake *f, const struct kvf_cqe *cqe, const char *text)
{
	uint32_t slot = f->cq_tail & (f->ring.cq_entries - 1);
	const uint64_t one = 1;

	/* A real engine waits for space: the test must have read enough. */
	while (f->cq_tail - atomic_load_explicit(&f->ring.hdr->cq_head, memory_order_acquire) >=
		f->ring.cq_entries)
		usleep(100);
	memcpy(&f->ring.cq[slot], cqe, sizeof(*cqe));
	if (text != NULL)
		memcpy(f->ring.text[slot].text, text,
			strnlen(text, sizeof(f->ring.text[slot].text) - 1) + 1);
	f->cq_tail++;
	atomic_store_explicit(&f->ring.hdr->cq_tail, f->cq_tail, memory_order_release);
	kvf_ring_fence();
	if (atomic_load_explicit(&f->ring.hdr->client_sleeping, memory_order_relaxed) != 0)
		MUST(write(f->completion_fd, &one, sizeof(one)) == sizeof(one));
}

void
fake_say(struct fake *f, uint64_t room, uint64_t seq, enum kvf_status st, uint8_t flags)
{
	const struct kvf_cqe cqe = {
		.room = room, .seq = seq, .status = (uint8_t)st, .flags = flags};

	fake_push(f, &cqe, NULL);
}

void
fake_fail(struct fake *f, uint64_t room, uint64_t seq, int code, const char *text, uint8_t flags)
{
	const struct kvf_cqe cqe = {
		.room = room, .seq = seq, .error = code, .status = KVF_FAILED, .flags = flags};

	fake_push(f, &cqe, text);
}

uint64_t
fake_rings(struct fake *f)
{
	struct pollfd pfd = {.fd = f->doorbell_fd, .events = POLLIN};
	uint64_t n;

	if (poll(&pfd, 1, 0) <= 0)
		return 0;
	MUST(read(f->doorbell_fd, &n, sizeof(n)) == sizeof(n));
	return n;
}
