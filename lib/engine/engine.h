/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine as its program and in-process tests see it.
 *
 * kvf_eal_start() once per process, then any number of engines one after the other:
 * kvf_engine_start() launches dispatcher and copy lcores, kvf_engine_run() serves the socket on the
 * calling thread until kvf_engine_request_stop() (async-signal-safe), kvf_engine_free() takes
 * everything down.
 */
#ifndef KVF_ENGINE_ENGINE_H
#define KVF_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/error.h>

#define KVF_ENGINE_MAX_LCORES 64u
#define KVF_ENGINE_MAX_PEERS  32u /* user and group ids that may connect */

struct kvf_engine_config {
	const char *
		socket; /* path to listen at; a stale socket file is replaced, a live one refused */
	uint32_t socket_mode; /* permission bits; 0: 0600 */
	int64_t socket_uid;   /* owner of the socket; with set_owner */
	int64_t socket_gid;   /* -1: as it is */
	bool set_owner;
	/* Who may connect beside this user and root. The kernel says who a peer is. */
	uint32_t num_uids, num_gids;
	uint32_t uids[KVF_ENGINE_MAX_PEERS], gids[KVF_ENGINE_MAX_PEERS];
	const char *driver;      /* NAME[:ARGS]; NULL: "cpu" */
	uint32_t lcores;         /* lcores that copy, the first one dispatches as well; 0: 1 */
	bool busy;               /* never sleep when idle */
	uint32_t max_endpoints;  /* 0: 256 */
	uint64_t max_pool_bytes; /* of one endpoint; 0: no limit */
	/* Index lists that one endpoint may have in flight; 0: 256 MiB */
	uint64_t max_request_bytes;
	uint32_t drain_ms; /* how long a stop lets transfers finish; 0: 2000 */
	bool quiet;        /* log only what went wrong */
};

struct kvf_eal_config {
	uint32_t lcores; /* as in kvf_engine_config */
	const char
		*cpus; /* comma list of CPU ids to pin the lcores to, in order; NULL: they float */
	bool no_huge;  /* the engine's own memory on 4 KiB pages */
	bool pci;      /* let EAL look for PCI devices */
	int num_args;  /* further EAL arguments */
	char **args;
};

struct kvf_engine;

int kvf_eal_start(const struct kvf_eal_config *cfg, struct kvf_err *err);
void kvf_eal_stop(void);

int kvf_engine_start(
	const struct kvf_engine_config *cfg, struct kvf_engine **engine, struct kvf_err *err);
int kvf_engine_run(struct kvf_engine *engine, struct kvf_err *err);
void kvf_engine_request_stop(struct kvf_engine *engine);
void kvf_engine_free(struct kvf_engine *engine);

#endif
