/* SPDX-License-Identifier: BSD-3-Clause */
/* What a 0 in struct kvf_endpoint_config stands for; documented in kvferry/client.h. */
#ifndef KVF_WIRE_DEFAULTS_H
#define KVF_WIRE_DEFAULTS_H

#include <kvferry/client.h>

#define KVF_DEFAULT_SQ_ENTRIES        1024u
#define KVF_DEFAULT_CQ_ENTRIES        4096u
#define KVF_DEFAULT_ARENA_BYTES       (8ull << 20)
#define KVF_DEFAULT_MAX_ROOMS         16384u
#define KVF_DEFAULT_OPEN_TIMEOUT_MS   10000u
#define KVF_DEFAULT_ROOM_TIMEOUT_MS   300000u
#define KVF_DEFAULT_STATUS_TIMEOUT_MS 10000u

static inline void
kvf_endpoint_config_fill(struct kvf_endpoint_config *cfg)
{
	if (cfg->socket == NULL)
		cfg->socket = KVF_DEFAULT_SOCKET;
	if (cfg->sq_entries == 0)
		cfg->sq_entries = KVF_DEFAULT_SQ_ENTRIES;
	if (cfg->cq_entries == 0)
		cfg->cq_entries = KVF_DEFAULT_CQ_ENTRIES;
	if (cfg->arena_bytes == 0)
		cfg->arena_bytes = KVF_DEFAULT_ARENA_BYTES;
	if (cfg->max_rooms == 0)
		cfg->max_rooms = KVF_DEFAULT_MAX_ROOMS;
	if (cfg->open_timeout_ms == 0)
		cfg->open_timeout_ms = KVF_DEFAULT_OPEN_TIMEOUT_MS;
	if (cfg->bootstrap_timeout_ms == 0)
		cfg->bootstrap_timeout_ms = KVF_DEFAULT_ROOM_TIMEOUT_MS;
	if (cfg->waiting_timeout_ms == 0)
		cfg->waiting_timeout_ms = KVF_DEFAULT_ROOM_TIMEOUT_MS;
}

#endif
