/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Any packet on the control socket, and any ring header at a client. A declaration that is accepted
 * stays inside its packet, says the same when it is packed again, and sizes a ring that is attached
 * within its bounds.
 */
#include "bytes.h"
#include "wire/message.h"
#include "wire/ring.h"

#define RING_MAX (1u << 20)

static uint8_t packet[KVF_MSG_MAX];

static void
again(const struct kvf_registration *r)
{
	static uint8_t copy[KVF_MSG_MAX];
	struct kvf_endpoint_config cfg = {
		.role = r->msg.role,
		.group = r->msg.group,
		.group_size = r->msg.group_size,
		.rank = r->msg.rank,
		.geometry = &r->geometry,
		.sq_entries = r->msg.sq_entries,
		.cq_entries = r->msg.cq_entries,
		.arena_bytes = r->msg.arena_bytes,
		.max_rooms = r->msg.max_rooms,
		.bootstrap_timeout_ms = r->msg.bootstrap_timeout_ms,
		.waiting_timeout_ms = r->msg.waiting_timeout_ms,
	};
	struct kvf_registration *twin;
	struct kvf_err err;
	uint32_t i;
	int len = kvf_msg_pack_register(&cfg, r->msg.pool_length, copy, &err);

	MUST(len > 0);
	MUST(kvf_msg_parse_register(copy, (size_t)len, &twin, &err) == 0);
	MUST(twin->msg.num_components == r->msg.num_components);
	MUST(twin->msg.num_entries == r->msg.num_entries);
	MUST(strcmp(twin->msg.group, r->msg.group) == 0);
	for (i = 0; i < r->msg.num_entries; i++)
		MUST(memcmp(&twin->entries[i], &r->entries[i], sizeof(r->entries[i])) == 0);
	free(twin);
}

static void
attach(const struct kvf_registration *r, struct bytes b)
{
	uint64_t bytes = kvf_ring_bytes(r->msg.sq_entries, r->msg.cq_entries, r->msg.arena_bytes);
	struct kvf_ring_view view;
	struct kvf_err err = {0};
	uint8_t *mem;
	size_t n;

	MUST(bytes != 0);
	if (bytes > RING_MAX)
		return;
	mem = aligned_alloc(4096, bytes);
	MUST(mem != NULL);
	memset(mem, 0, bytes);
	kvf_ring_format(mem, r->msg.sq_entries, r->msg.cq_entries, r->msg.arena_bytes, &view);
	MUST(kvf_ring_attach(mem, bytes, &view, &err) == 0);
	/* An engine gone mad: some words of the header are anything. */
	for (n = 0; n < 4 && b.left > 0; n++) {
		size_t at = take8(&b) % 24 * 4;
		uint32_t v = take8(&b) % 4 == 0 ? (uint32_t)take(&b, 4) : 1u << take8(&b) % 32;

		memcpy(mem + at, &v, sizeof(v));
	}
	if (kvf_ring_attach(mem, bytes, &view, &err) == 0) {
		MUST((uint8_t *)view.sq >= mem &&
			(uint8_t *)(view.sq + view.sq_entries) <= mem + bytes);
		MUST((uint8_t *)view.cq >= mem &&
			(uint8_t *)(view.cq + view.cq_entries) <= mem + bytes);
		MUST((uint8_t *)view.text >= mem &&
			(uint8_t *)(view.text + view.cq_entries) <= mem + bytes);
		MUST(view.arena >= mem && view.arena + view.arena_bytes <= mem + bytes);
		MUST((view.sq_entries & (view.sq_entries - 1)) == 0);
		MUST((view.cq_entries & (view.cq_entries - 1)) == 0);
	} else {
		MUST(err.code < 0 && err.text[0] != '\0');
	}
	free(mem);
}

/* Puts what most inputs would not get right by chance: else only the first checks were reached. */
static void
help(uint8_t how, size_t len)
{
	struct kvf_msg_register *m = (struct kvf_msg_register *)(void *)packet;
	uint64_t rest;

	if (len < sizeof(*m) || (how & 1) == 0)
		return;
	m->hdr = (struct kvf_msg_hdr){
		KVF_MSG_MAGIC, KVF_MSG_VERSION, KVF_MSG_REGISTER, (uint32_t)len, 0};
	if ((how & 2) == 0)
		return;
	memset(m->reserved, 0, sizeof(m->reserved));
	m->role = 1 + m->role % 2;
	m->group[31] = '\0';
	m->sq_entries = 1u << m->sq_entries % 8;
	m->cq_entries = 1u << m->cq_entries % 8;
	m->arena_bytes = 64u << m->arena_bytes % 8;
	m->group_size = 1 + m->group_size % 4;
	m->rank %= m->group_size;
	if ((how & 4) == 0)
		return;
	m->num_components = 1 + m->num_components % 3;
	rest = len - sizeof(*m);
	if (rest >= m->num_components * sizeof(struct kvf_wire_component))
		m->num_entries =
			(uint32_t)((rest - m->num_components * sizeof(struct kvf_wire_component)) /
				   sizeof(struct kvf_entry));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes b = {data, size};
	uint8_t how = take8(&b);
	struct kvf_registration *r;
	struct kvf_err err = {0};
	size_t len = b.left < sizeof(packet) ? b.left : sizeof(packet);
	uint8_t *exact;
	int rc;

	memcpy(packet, b.p, len);
	help(how, len);
	/* Exactly as long as the packet, so that one byte too many is noticed. */
	exact = malloc(len + 1);
	MUST(exact != NULL);
	memcpy(exact + 1, packet, len);
	rc = kvf_msg_check_hdr(exact + 1, len, &err);
	MUST(rc > 0 ? rc <= KVF_MSG_STATUS_TEXT : rc < 0 && err.text[0] != '\0');
	rc = kvf_msg_parse_register(exact + 1, len, &r, &err);
	free(exact);
	if (rc != 0) {
		MUST(rc < 0 && r == NULL && err.text[0] != '\0');
		return 0;
	}
	MUST(r->msg.rank < r->msg.group_size);
	MUST(memchr(r->msg.group, '\0', sizeof(r->msg.group)) != NULL);
	again(r);
	rc = kvf_geometry_check(&r->geometry, r->msg.pool_length, &err);
	MUST(rc == 0 || (rc < 0 && err.text[0] != '\0'));
	attach(r, b);
	free(r);
	return 0;
}
