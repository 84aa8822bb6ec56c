/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "wire/defaults.h"
#include "wire/message.h"
#include "wire/ring.h"

static_assert(sizeof(struct kvf_msg_register) +
			      KVF_MAX_COMPONENTS * sizeof(struct kvf_wire_component) +
			      KVF_MAX_ENTRIES * sizeof(struct kvf_entry) <=
		      KVF_MSG_MAX,
	"the largest declaration fits one packet");

static bool
power_of_two_up_to(uint64_t v, uint64_t max)
{
	return v != 0 && (v & (v - 1)) == 0 && v <= max;
}

static int
check_group(const char *group, struct kvf_err *err)
{
	size_t len = strnlen(group, KVF_GROUP_NAME_MAX);
	size_t i;

	if (len == KVF_GROUP_NAME_MAX)
		return kvf_fail(err, KVF_E_PROTO, "group name has no NUL within bytes=%u",
			KVF_GROUP_NAME_MAX);
	if (len == 0)
		return kvf_fail(err, KVF_E_INVAL, "group name is empty: length=0, limit=%u",
			KVF_GROUP_NAME_MAX - 1);
	/* It goes into log lines and JSON: nothing that needs escaping or is no valid UTF-8. */
	for (i = 0; i < len; i++)
		if (group[i] < 0x20 || group[i] > 0x7e)
			return kvf_fail(err, KVF_E_INVAL,
				"group name is not printable ASCII: byte=0x%02x, position=%zu",
				(unsigned char)group[i], i);
	return 0;
}

/* What both the sender and the receiver of a REGISTER message insist on. */
static int
check_register(const struct kvf_msg_register *m, struct kvf_err *err)
{
	static const uint8_t zero[sizeof(m->reserved)];
	int rc;

	if (m->role != KVF_PREFILL && m->role != KVF_DECODE)
		return kvf_fail(err, KVF_E_INVAL, "role=%u, expected=%d (prefill) or %d (decode)",
			m->role, KVF_PREFILL, KVF_DECODE);
	rc = check_group(m->group, err);
	if (rc != 0)
		return rc;
	if (m->group_size == 0 || m->group_size > KVF_MAX_GROUP_SIZE)
		return kvf_fail(err, KVF_E_INVAL, "group_size=%u, limit=1..%u", m->group_size,
			KVF_MAX_GROUP_SIZE);
	if (m->rank >= m->group_size)
		return kvf_fail(err, KVF_E_INVAL, "rank=%u must be below group_size=%u", m->rank,
			m->group_size);
	if (m->num_components == 0 || m->num_components > KVF_MAX_COMPONENTS)
		return kvf_fail(err, KVF_E_GEOMETRY, "components=%u, limit=1..%u",
			m->num_components, KVF_MAX_COMPONENTS);
	if (m->num_entries == 0 || m->num_entries > KVF_MAX_ENTRIES)
		return kvf_fail(err, KVF_E_GEOMETRY, "entries=%u, limit=1..%u", m->num_entries,
			KVF_MAX_ENTRIES);
	if (m->pool_length == 0)
		return kvf_fail(err, KVF_E_INVAL, "pool_length=0");
	if (!power_of_two_up_to(m->sq_entries, KVF_RING_MAX_ENTRIES))
		return kvf_fail(err, KVF_E_INVAL, "sq_entries=%u is not a power of two, limit=%u",
			m->sq_entries, KVF_RING_MAX_ENTRIES);
	if (!power_of_two_up_to(m->cq_entries, KVF_RING_MAX_ENTRIES))
		return kvf_fail(err, KVF_E_INVAL, "cq_entries=%u is not a power of two, limit=%u",
			m->cq_entries, KVF_RING_MAX_ENTRIES);
	if (!power_of_two_up_to(m->arena_bytes, KVF_ARENA_MAX_BYTES) ||
		m->arena_bytes < KVF_CACHE_LINE)
		return kvf_fail(err, KVF_E_INVAL,
			"arena_bytes=%" PRIu64 " is not a power of two, limit=%d..%llu",
			m->arena_bytes, KVF_CACHE_LINE, KVF_ARENA_MAX_BYTES);
	if (m->max_rooms == 0 || m->max_rooms > KVF_MAX_ROOMS)
		return kvf_fail(
			err, KVF_E_INVAL, "max_rooms=%u, limit=1..%u", m->max_rooms, KVF_MAX_ROOMS);
	if (m->bootstrap_timeout_ms == 0 || m->waiting_timeout_ms == 0)
		return kvf_fail(err, KVF_E_INVAL,
			"a wait without limit: bootstrap_timeout_ms=%u, waiting_timeout_ms=%u",
			m->bootstrap_timeout_ms, m->waiting_timeout_ms);
	if (memcmp(m->reserved, zero, sizeof(zero)) != 0)
		return kvf_fail(err, KVF_E_PROTO, "reserved bytes of REGISTER are not 0");
	return 0;
}

static uint64_t
register_bytes(uint64_t num_components, uint64_t num_entries)
{
	return sizeof(struct kvf_msg_register) +
	       num_components * sizeof(struct kvf_wire_component) +
	       num_entries * sizeof(struct kvf_entry);
}

/* Components and entries of a declaration whose pointers are good. */
static int
count_geometry(const struct kvf_geometry *geo, struct kvf_msg_register *m, struct kvf_err *err)
{
	uint64_t entries = 0;
	uint32_t i;

	if (geo == NULL)
		return kvf_fail(err, KVF_E_INVAL, "geometry=NULL");
	if (geo->num_components > KVF_MAX_COMPONENTS)
		return kvf_fail(err, KVF_E_GEOMETRY, "components=%u, limit=1..%u",
			geo->num_components, KVF_MAX_COMPONENTS);
	if (geo->num_components != 0 && geo->components == NULL)
		return kvf_fail(
			err, KVF_E_INVAL, "components=%u without an array", geo->num_components);
	for (i = 0; i < geo->num_components; i++) {
		if (geo->components[i].num_entries != 0 && geo->components[i].entries == NULL)
			return kvf_fail(err, KVF_E_INVAL,
				"component=%u: entries=%u without an array", i,
				geo->components[i].num_entries);
		entries += geo->components[i].num_entries;
	}
	if (entries > KVF_MAX_ENTRIES)
		return kvf_fail(err, KVF_E_GEOMETRY,
			"entries=%" PRIu64 ", limit=%u: the declaration would not fit one message",
			entries, KVF_MAX_ENTRIES);
	m->num_components = geo->num_components;
	m->num_entries = (uint32_t)entries;
	return 0;
}

int
kvf_msg_pack_register(const struct kvf_endpoint_config *config, uint64_t pool_length, void *buf,
	struct kvf_err *err)
{
	struct kvf_endpoint_config cfg = *config;
	struct kvf_msg_register m = {0};
	uint8_t *p = buf;
	size_t len;
	uint32_t i;
	int rc;

	kvf_endpoint_config_fill(&cfg);
	if (cfg.group == NULL)
		return kvf_fail(err, KVF_E_INVAL, "group=NULL");
	len = strlen(cfg.group);
	if (len >= KVF_GROUP_NAME_MAX)
		return kvf_fail(err, KVF_E_INVAL, "group name length=%zu, limit=%u", len,
			KVF_GROUP_NAME_MAX - 1);
	memcpy(m.group, cfg.group, len);
	rc = count_geometry(cfg.geometry, &m, err);
	if (rc != 0)
		return rc;
	m.role = cfg.role;
	m.group_size = cfg.group_size;
	m.rank = cfg.rank;
	m.pool_length = pool_length;
	m.arena_bytes = cfg.arena_bytes;
	m.sq_entries = cfg.sq_entries;
	m.cq_entries = cfg.cq_entries;
	m.max_rooms = cfg.max_rooms;
	m.bootstrap_timeout_ms = cfg.bootstrap_timeout_ms;
	m.waiting_timeout_ms = cfg.waiting_timeout_ms;
	rc = check_register(&m, err);
	if (rc != 0)
		return rc;
	m.hdr.magic = KVF_MSG_MAGIC;
	m.hdr.version = KVF_MSG_VERSION;
	m.hdr.type = KVF_MSG_REGISTER;
	m.hdr.length = (uint32_t)register_bytes(m.num_components, m.num_entries);
	memcpy(p, &m, sizeof(m));
	p += sizeof(m);
	for (i = 0; i < m.num_components; i++) {
		const struct kvf_component *c = &cfg.geometry->components[i];
		struct kvf_wire_component w = {
			.cls = c->cls,
			.tag = c->tag,
			.list = c->list,
			.page_tokens = c->page_tokens,
			.num_pages = c->num_pages,
			.num_entries = c->num_entries,
			.rule = c->rule,
			.reserved = c->reserved,
			.sharding = c->sharding,
		};

		memcpy(p, &w, sizeof(w));
		p += sizeof(w);
	}
	for (i = 0; i < m.num_components; i++) {
		const struct kvf_component *c = &cfg.geometry->components[i];

		if (c->num_entries == 0)
			continue;
		memcpy(p, c->entries, c->num_entries * sizeof(struct kvf_entry));
		p += c->num_entries * sizeof(struct kvf_entry);
	}
	return (int)m.hdr.length;
}

int
kvf_msg_check_hdr(const void *packet, size_t len, struct kvf_err *err)
{
	struct kvf_msg_hdr hdr;

	if (len < sizeof(hdr) || len > KVF_MSG_MAX)
		return kvf_fail(err, KVF_E_PROTO, "message of length=%zu, limit=%zu..%u", len,
			sizeof(hdr), KVF_MSG_MAX);
	memcpy(&hdr, packet, sizeof(hdr));
	if (hdr.magic != KVF_MSG_MAGIC)
		return kvf_fail(err, KVF_E_PROTO, "message magic=0x%08x, expected=0x%08x",
			hdr.magic, KVF_MSG_MAGIC);
	if (hdr.version != KVF_MSG_VERSION)
		return kvf_fail(err, KVF_E_VERSION,
			"the peer speaks message version=%u, this side version=%u", hdr.version,
			KVF_MSG_VERSION);
	if (hdr.type < KVF_MSG_REGISTER || hdr.type > KVF_MSG_STATUS_TEXT)
		return kvf_fail(err, KVF_E_PROTO, "message type=%u, limit=%d..%d", hdr.type,
			KVF_MSG_REGISTER, KVF_MSG_STATUS_TEXT);
	if (hdr.length != len)
		return kvf_fail(err, KVF_E_PROTO, "message says length=%u, got length=%zu",
			hdr.length, len);
	if (hdr.reserved != 0)
		return kvf_fail(err, KVF_E_PROTO, "message header has reserved=%u, expected=0",
			hdr.reserved);
	return hdr.type;
}

/* Components of a packet whose length is known to be right; entries are in place already. */
static int
parse_components(const uint8_t *p, struct kvf_registration *r, struct kvf_err *err)
{
	uint64_t used = 0;
	uint32_t i;

	for (i = 0; i < r->msg.num_components; i++) {
		struct kvf_wire_component w;

		memcpy(&w, p + i * sizeof(w), sizeof(w));
		if (w.num_entries > r->msg.num_entries - used)
			return kvf_fail(err, KVF_E_PROTO,
				"component=%u claims entries=%u, the message has left=%" PRIu64, i,
				w.num_entries, r->msg.num_entries - used);
		r->components[i].cls = w.cls;
		r->components[i].tag = w.tag;
		r->components[i].list = w.list;
		r->components[i].page_tokens = w.page_tokens;
		r->components[i].num_pages = w.num_pages;
		r->components[i].num_entries = w.num_entries;
		r->components[i].rule = w.rule;
		r->components[i].reserved = w.reserved;
		r->components[i].sharding = w.sharding;
		r->components[i].entries = &r->entries[used];
		used += w.num_entries;
	}
	if (used != r->msg.num_entries)
		return kvf_fail(err, KVF_E_PROTO,
			"components claim entries=%" PRIu64 ", the message has entries=%u", used,
			r->msg.num_entries);
	return 0;
}

int
kvf_msg_parse_register(
	const void *packet, size_t len, struct kvf_registration **reg, struct kvf_err *err)
{
	const uint8_t *p = packet;
	struct kvf_registration *r;
	struct kvf_msg_register m;
	size_t comp_bytes;
	int rc;

	*reg = NULL;
	rc = kvf_msg_check_hdr(packet, len, err);
	if (rc < 0)
		return rc;
	if (rc != KVF_MSG_REGISTER)
		return kvf_fail(err, KVF_E_PROTO, "message type=%d, expected=%d (REGISTER)", rc,
			KVF_MSG_REGISTER);
	if (len < sizeof(m))
		return kvf_fail(
			err, KVF_E_PROTO, "REGISTER of length=%zu, needed=%zu", len, sizeof(m));
	memcpy(&m, p, sizeof(m));
	/* Counts are bounded here, before any of them sizes anything. */
	rc = check_register(&m, err);
	if (rc != 0)
		return rc;
	if (register_bytes(m.num_components, m.num_entries) != len)
		return kvf_fail(err, KVF_E_PROTO,
			"REGISTER with components=%u and entries=%u needs length=%" PRIu64
			", got length=%zu",
			m.num_components, m.num_entries,
			register_bytes(m.num_components, m.num_entries), len);
	r = calloc(1, sizeof(*r) + m.num_entries * sizeof(struct kvf_entry));
	if (r == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "no memory for a declaration of entries=%u",
			m.num_entries);
	r->msg = m;
	comp_bytes = m.num_components * sizeof(struct kvf_wire_component);
	memcpy(r->entries, p + sizeof(m) + comp_bytes, m.num_entries * sizeof(struct kvf_entry));
	rc = parse_components(p + sizeof(m), r, err);
	if (rc != 0) {
		free(r);
		return rc;
	}
	r->geometry.num_components = m.num_components;
	r->geometry.components = r->components;
	*reg = r;
	return 0;
}
