/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control messages over the UNIX SOCK_SEQPACKET socket: one packet, one message.
 *
 *   client                          engine
 *   REGISTER + pool fd        ->
 *                             <-    WELCOME + ring fd, completion fd, doorbell eventfd | REFUSED
 *   BYE                       ->
 *                             <-    BYE_DONE (no byte of the pool is touched or mapped any more)
 *   STATUS                    ->
 *                             <-    STATUS_TEXT (JSON)
 *
 * The completion fd becomes readable when the ring has something for a client that said it sleeps;
 * it is to be read empty. The doorbell is written for an engine that said it sleeps.
 *
 * A connection carries one endpoint or status questions. Closing it is the same as dying.
 */
#ifndef KVF_WIRE_MESSAGE_H
#define KVF_WIRE_MESSAGE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/client.h>
#include <kvferry/geometry.h>

#define KVF_MSG_MAGIC   0x6b766679u /* "kvfy" */
#define KVF_MSG_VERSION 1u
#define KVF_MSG_MAX     (192u * 1024u) /* bytes of one packet */
#define KVF_MSG_MAX_FDS 3u
#define KVF_MAX_ROOMS   (1u << 20) /* largest max_rooms of an endpoint */

enum kvf_msg_type {
	KVF_MSG_REGISTER = 1,
	KVF_MSG_WELCOME = 2,
	KVF_MSG_REFUSED = 3,
	KVF_MSG_BYE = 4,
	KVF_MSG_BYE_DONE = 5,
	KVF_MSG_STATUS = 6,
	KVF_MSG_STATUS_TEXT = 7,
};

struct kvf_msg_hdr {
	uint32_t magic;
	uint16_t version;
	uint16_t type;
	uint32_t length; /* of the whole packet, this header included */
	uint32_t reserved;
};

/* Followed by num_components kvf_wire_component, then all their entries (struct kvf_entry) in
 * order. */
struct kvf_msg_register {
	struct kvf_msg_hdr hdr;
	uint32_t role;
	uint32_t group_size;
	uint32_t rank;
	uint32_t num_components;
	char group[KVF_GROUP_NAME_MAX];
	uint64_t pool_length;
	uint64_t arena_bytes;
	uint32_t sq_entries;
	uint32_t cq_entries;
	uint32_t max_rooms;
	uint32_t bootstrap_timeout_ms;
	uint32_t waiting_timeout_ms;
	uint32_t num_entries;
	uint8_t reserved[32];
};

struct kvf_wire_component {
	uint32_t cls;
	uint32_t tag;
	uint32_t list;
	uint32_t page_tokens;
	uint32_t num_pages;
	uint32_t num_entries;
	uint32_t rule;
	uint32_t reserved;
	struct kvf_sharding sharding;
};

struct kvf_msg_welcome {
	struct kvf_msg_hdr hdr;
	uint64_t ring_bytes;
	uint64_t engine_generation;
	uint64_t endpoint_generation;
	uint32_t endpoint_id;
	uint32_t reserved;
};

struct kvf_msg_refused {
	struct kvf_msg_hdr hdr;
	int32_t code;
	char text[252];
};

static_assert(sizeof(struct kvf_msg_hdr) == 16, "wire format");
static_assert(sizeof(struct kvf_msg_register) == 136, "wire format");
static_assert(sizeof(struct kvf_wire_component) == 48, "wire format");
static_assert(sizeof(struct kvf_entry) == 56, "wire format");
static_assert(sizeof(struct kvf_msg_welcome) == 48, "wire format");
static_assert(sizeof(struct kvf_msg_refused) == 272, "wire format");

/* Packs a REGISTER message; zeros in *cfg become the documented defaults. `buf` of KVF_MSG_MAX
 * bytes. Returns its length or a refusal. */
int kvf_msg_pack_register(const struct kvf_endpoint_config *cfg, uint64_t pool_length, void *buf,
	struct kvf_err *err);

/* A declaration in private memory, from an untrusted packet. Free with free(). */
struct kvf_registration {
	struct kvf_msg_register msg; /* strings terminated */
	struct kvf_geometry geometry;
	struct kvf_component components[KVF_MAX_COMPONENTS];
	struct kvf_entry entries[];
};

/* Checks header, lengths, counts, role, rank, names (not the geometry itself). */
int kvf_msg_parse_register(
	const void *packet, size_t len, struct kvf_registration **reg, struct kvf_err *err);

/* Checks magic, version, type range and that length equals len; returns the type or a refusal. */
int kvf_msg_check_hdr(const void *packet, size_t len, struct kvf_err *err);

/*
 * One packet with up to KVF_MSG_MAX_FDS descriptors. Waits up to timeout_ms (0: not at all,
 * KVF_E_AGAIN). recv: returns the packet's length, 0 at end of stream; a truncated packet or
 * control data is KVF_E_PROTO; fds beyond the *num_fds that were asked for are closed and refused.
 * On any failure no fd stays open.
 */
int kvf_sock_send(int sock, const void *packet, size_t len, const int *fds, uint32_t num_fds,
	int timeout_ms, struct kvf_err *err);
int kvf_sock_recv(int sock, void *buf, size_t cap, int *fds, uint32_t *num_fds, int timeout_ms,
	struct kvf_err *err);

/* AF_UNIX SOCK_SEQPACKET connect with a limit; the path must fit sun_path. Returns the fd. */
int kvf_sock_connect(const char *path, int timeout_ms, struct kvf_err *err);

#endif
