/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "common/suite.h"
#include "wire/ring.h"

#define SQ    8u
#define CQ    16u
#define ARENA 4096ull

static void *
ring_mem(uint64_t *bytes)
{
	void *mem;

	*bytes = kvf_ring_bytes(SQ, CQ, ARENA);
	mem = aligned_alloc(4096, *bytes);
	CU_ASSERT_PTR_NOT_NULL_FATAL(mem);
	memset(mem, 0, *bytes);
	return mem;
}

static void
test_bytes(void)
{
	uint64_t min = sizeof(struct kvf_ring) + SQ * sizeof(struct kvf_sqe) +
		       CQ * (sizeof(struct kvf_cqe) + sizeof(struct kvf_cq_text)) + ARENA;

	CHECK(kvf_ring_bytes(SQ, CQ, ARENA) >= min);
	CHECK(kvf_ring_bytes(SQ, CQ, ARENA) < min + 4096);
	CHECK_EQ(kvf_ring_bytes(SQ, CQ, ARENA) % 4096, 0);
	CHECK(kvf_ring_bytes(1, 1, 64) != 0);
	CHECK(kvf_ring_bytes(KVF_RING_MAX_ENTRIES, KVF_RING_MAX_ENTRIES, KVF_ARENA_MAX_BYTES) >
		KVF_ARENA_MAX_BYTES);
}

static void
test_bytes_refused(void)
{
	static const uint32_t bad[] = {
		0, 3, 12, 65535, 2 * KVF_RING_MAX_ENTRIES, 1u << 31, UINT32_MAX};
	static const uint64_t bad_arena[] = {0, 1, 32, 65, 4095, 4096 * 3, 2 * KVF_ARENA_MAX_BYTES,
		1ull << 63, UINT64_MAX, (1ull << 32) + 4096};
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK_EQ(kvf_ring_bytes(bad[i], CQ, ARENA), 0);
		CHECK_EQ(kvf_ring_bytes(SQ, bad[i], ARENA), 0);
	}
	for (i = 0; i < sizeof(bad_arena) / sizeof(bad_arena[0]); i++)
		CHECK_EQ(kvf_ring_bytes(SQ, CQ, bad_arena[i]), 0);
}

/* Every part must be writable to its last byte without touching another. */
static void
test_parts_apart(void)
{
	struct kvf_ring_view v, a;
	uint64_t bytes, i;
	uint8_t *mem = ring_mem(&bytes);
	const uint8_t *parts[5];
	uint64_t sizes[5];

	kvf_ring_format(mem, SQ, CQ, ARENA, &v);
	CHECK_EQ(v.total_bytes, bytes);
	CHECK_EQ(kvf_ring_attach(mem, bytes, &a, NULL), 0);
	CHECK(memcmp(&a, &v, sizeof(v)) == 0);
	parts[0] = (const uint8_t *)v.hdr;
	sizes[0] = sizeof(*v.hdr);
	parts[1] = (const uint8_t *)v.sq;
	sizes[1] = SQ * sizeof(*v.sq);
	parts[2] = (const uint8_t *)v.cq;
	sizes[2] = CQ * sizeof(*v.cq);
	parts[3] = (const uint8_t *)v.text;
	sizes[3] = CQ * sizeof(*v.text);
	parts[4] = v.arena;
	sizes[4] = ARENA;
	for (i = 0; i < 5; i++) {
		CHECK_EQ((uintptr_t)parts[i] % KVF_CACHE_LINE, 0);
		CHECK(parts[i] >= mem && parts[i] + sizes[i] <= mem + bytes);
		if (i > 0)
			CHECK(parts[i] >= parts[i - 1] + sizes[i - 1]);
	}
	free(mem);
}

static void
test_format_bad_sizes(void)
{
	struct kvf_ring_view v;
	uint64_t bytes, i;
	uint8_t *mem = ring_mem(&bytes);

	memset(&v, 0xaa, sizeof(v));
	kvf_ring_format(mem, 3, CQ, ARENA, &v);
	CHECK(v.hdr == NULL && v.total_bytes == 0);
	for (i = 0; i < bytes && mem[i] == 0; i++)
		;
	CHECK_EQ(i, bytes);
	free(mem);
}

static void
test_attach_memory(void)
{
	struct kvf_ring_view v;
	struct kvf_err err;
	uint64_t bytes;
	uint8_t *mem = ring_mem(&bytes);

	kvf_ring_format(mem, SQ, CQ, ARENA, &v);
	CHECK_EQ(kvf_ring_attach(NULL, bytes, &v, &err), KVF_E_INVAL);
	CHECK_EQ(kvf_ring_attach(mem + 8, bytes - 8, &v, &err), KVF_E_INVAL);
	CHECK_STR_HAS(err.text, "align=64");
	CHECK_EQ(kvf_ring_attach(mem, 0, &v, &err), KVF_E_PROTO);
	CHECK_EQ(kvf_ring_attach(mem, sizeof(struct kvf_ring) - 1, &v, &err), KVF_E_PROTO);
	CHECK_STR_HAS(err.text, "bytes=447");
	CHECK_EQ(kvf_ring_attach(mem, bytes - 1, &v, &err), KVF_E_PROTO);
	CHECK(v.hdr == NULL);
	CHECK_EQ(kvf_ring_attach(mem, bytes + 4096, &v, &err), 0);
	free(mem);
}

static void
test_attach_corrupt(void)
{
	static const uint64_t values[] = {
		1, 64, 448, 4096, 1ull << 32, 1ull << 63, UINT64_MAX - 63, UINT64_MAX};
	static const struct {
		const char *name;
		size_t off;
		size_t size;
		int code;
	} fields[] = {
		{"magic", offsetof(struct kvf_ring, magic), 8, KVF_E_PROTO},
		{"version", offsetof(struct kvf_ring, version), 4, KVF_E_VERSION},
		{"sq_entries", offsetof(struct kvf_ring, sq_entries), 4, KVF_E_PROTO},
		{"cq_entries", offsetof(struct kvf_ring, cq_entries), 4, KVF_E_PROTO},
		{"sq_off", offsetof(struct kvf_ring, sq_off), 8, KVF_E_PROTO},
		{"cq_off", offsetof(struct kvf_ring, cq_off), 8, KVF_E_PROTO},
		{"text_off", offsetof(struct kvf_ring, text_off), 8, KVF_E_PROTO},
		{"arena_off", offsetof(struct kvf_ring, arena_off), 8, KVF_E_PROTO},
		{"arena_bytes", offsetof(struct kvf_ring, arena_bytes), 8, KVF_E_PROTO},
		{"total_bytes", offsetof(struct kvf_ring, total_bytes), 8, KVF_E_PROTO},
	};
	struct kvf_ring_view v;
	struct kvf_err err;
	uint64_t bytes;
	uint8_t *mem = ring_mem(&bytes);
	size_t f, i;

	for (f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
		for (i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
			uint64_t old = 0, diff = values[i];

			kvf_ring_format(mem, SQ, CQ, ARENA, &v);
			memcpy(&old, mem + fields[f].off, fields[f].size);
			diff ^= old;
			if (fields[f].size == 4)
				diff &= UINT32_MAX;
			if (diff == 0 || (fields[f].size == 4 && values[i] > UINT32_MAX))
				continue;
			diff ^= old;
			memcpy(mem + fields[f].off, &diff, fields[f].size);
			CHECK_EQ(kvf_ring_attach(mem, bytes, &v, &err), fields[f].code);
			CHECK(v.hdr == NULL);
			CHECK_STR_HAS(err.text,
				fields[f].size == 8 && f > 3 && f < 8 ? fields[f].name : "ring");
		}
	}
	free(mem);
}

/* Random damage: whatever is accepted describes memory that is really there. */
static void
test_attach_random(void)
{
	uint64_t state = suite_seed();
	struct kvf_ring_view v;
	uint64_t bytes;
	uint8_t *mem = ring_mem(&bytes);
	int i, accepted = 0;

	for (i = 0; i < 20000; i++) {
		int n = (int)suite_range(&state, 1, 4);

		kvf_ring_format(mem, SQ, CQ, ARENA, &v);
		while (n-- > 0)
			mem[suite_range(&state, 0, sizeof(struct kvf_ring) - 1)] =
				(uint8_t)suite_rand(&state);
		if (kvf_ring_attach(mem, bytes, &v, NULL) != 0)
			continue;
		accepted++;
		CHECK_EQ(v.sq_entries, SQ);
		CHECK_EQ(v.cq_entries, CQ);
		/* A smaller arena that ends in the same page is the endpoint's business. */
		CHECK(v.arena_bytes <= ARENA);
		CHECK_EQ(kvf_ring_bytes(v.sq_entries, v.cq_entries, v.arena_bytes), bytes);
		CHECK(v.arena + v.arena_bytes <= mem + bytes);
		CHECK_EQ((uint8_t *)v.sq - mem, sizeof(struct kvf_ring));
	}
	/* Damage behind the constant part is legal: those are indices. */
	CHECK(accepted > 0 && accepted < 20000);
	free(mem);
}

static const struct suite_case cases[] = {
	{"bytes of a ring", test_bytes},
	{"bad sizes give 0 bytes", test_bytes_refused},
	{"parts lie apart and inside", test_parts_apart},
	{"format leaves memory alone when sizes are bad", test_format_bad_sizes},
	{"attach: memory too small or not aligned", test_attach_memory},
	{"attach: each header field damaged", test_attach_corrupt},
	{"attach: random damage", test_attach_random},
};

SUITE_MAIN("wire_ring", cases)
