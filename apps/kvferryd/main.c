/* SPDX-License-Identifier: BSD-3-Clause */
/* kvferryd: the engine as a program. */
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvferry/client.h>

#include "engine/engine.h"

const char *argp_program_version = "kvferryd " KVF_VERSION;

static struct kvf_engine *engine;

struct options {
	struct kvf_engine_config engine;
	struct kvf_eal_config eal;
};

enum {
	OPT_CPUS = 256,
	OPT_MODE,
	OPT_OWNER,
	OPT_UID,
	OPT_GID,
	OPT_NO_HUGE,
	OPT_BUSY,
	OPT_MAX_ENDPOINTS,
	OPT_MAX_POOL,
	OPT_DRAIN,
};

static const struct argp_option options[] = {
	{"socket", 's', "PATH", 0, "UNIX socket to listen at (default " KVF_DEFAULT_SOCKET ")", 0},
	{"socket-mode", OPT_MODE, "OCTAL", 0, "permissions of the socket (default 600)", 0},
	{"socket-owner", OPT_OWNER, "UID[:GID]", 0, "give the socket to this user (numbers)", 0},
	{"allow-uid", OPT_UID, "UID", 0,
		"another user that may connect, beside this one and root; may be repeated", 0},
	{"allow-gid", OPT_GID, "GID", 0, "a group whose members may connect; may be repeated", 0},
	{"driver", 'd', "NAME[:ARGS]", 0,
		"what copies: cpu[:avx512|avx2|portable], dmadev[:DEVICE,...], "
		"mixed[:from=BYTES][,DEVICE...]: cpu, but "
		"dmadev for large pieces (default cpu)",
		0},
	{"lcores", 'n', "N", 0, "threads that copy; the first one also dispatches (default 1)", 0},
	{"cpus", OPT_CPUS, "LIST", 0,
		"pin the lcores to these CPUs, one each (default: not pinned)", 0},
	{"no-huge", OPT_NO_HUGE, NULL, 0, "the engine's own memory on 4 KiB pages", 0},
	{"busy", OPT_BUSY, NULL, 0, "spin when idle instead of sleeping", 0},
	{"max-endpoints", OPT_MAX_ENDPOINTS, "N", 0, "endpoints at a time (default 256)", 0},
	{"max-pool-bytes", OPT_MAX_POOL, "N", 0, "largest pool accepted (default: no limit)", 0},
	{"drain-ms", OPT_DRAIN, "MS", 0, "how long a stop lets transfers finish (default 2000)", 0},
	{"quiet", 'q', NULL, 0, "print only what goes wrong", 0},
	{0},
};

static uint64_t
number(const struct argp_state *state, const char *what, const char *arg, int base, uint64_t min,
	uint64_t max)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(arg, &end, base);
	if (errno != 0 || end == arg || *end != '\0' || arg[0] == '-' || v < min || v > max)
		argp_error(state,
			base == 8 ? "--%s=%s must be an octal number from %llo to %llo"
				  : "--%s=%s must be a number from %llu to %llu",
			what, arg, (unsigned long long)min, (unsigned long long)max);
	return v;
}

static void
owner(const struct argp_state *state, struct options *o, char *arg)
{
	char *colon = strchr(arg, ':');

	o->engine.set_owner = true;
	o->engine.socket_gid = -1;
	if (colon != NULL) {
		*colon = '\0';
		o->engine.socket_gid =
			(int64_t)number(state, "socket-owner", colon + 1, 10, 0, UINT32_MAX - 1);
	}
	o->engine.socket_uid = (int64_t)number(state, "socket-owner", arg, 10, 0, UINT32_MAX - 1);
}

static void
peer(const struct argp_state *state, const char *what, const char *arg, uint32_t *ids, uint32_t *n)
{
	if (*n == KVF_ENGINE_MAX_PEERS)
		argp_error(
			state, "--%s given more often than limit=%u", what, KVF_ENGINE_MAX_PEERS);
	ids[(*n)++] = (uint32_t)number(state, what, arg, 10, 0, UINT32_MAX - 1);
}

static error_t
parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 's':
		o->engine.socket = arg;
		break;
	case 'd':
		o->engine.driver = arg;
		break;
	case 'n':
		o->engine.lcores = o->eal.lcores =
			(uint32_t)number(state, "lcores", arg, 10, 1, KVF_ENGINE_MAX_LCORES);
		break;
	case 'q':
		o->engine.quiet = true;
		break;
	case OPT_MODE:
		o->engine.socket_mode = (uint32_t)number(state, "socket-mode", arg, 8, 1, 0777);
		break;
	case OPT_OWNER:
		owner(state, o, arg);
		break;
	case OPT_UID:
		peer(state, "allow-uid", arg, o->engine.uids, &o->engine.num_uids);
		break;
	case OPT_GID:
		peer(state, "allow-gid", arg, o->engine.gids, &o->engine.num_gids);
		break;
	case OPT_CPUS:
		o->eal.cpus = arg;
		break;
	case OPT_NO_HUGE:
		o->eal.no_huge = true;
		break;
	case OPT_BUSY:
		o->engine.busy = true;
		break;
	case OPT_MAX_ENDPOINTS:
		o->engine.max_endpoints =
			(uint32_t)number(state, "max-endpoints", arg, 10, 1, 4096);
		break;
	case OPT_MAX_POOL:
		o->engine.max_pool_bytes = number(state, "max-pool-bytes", arg, 10, 1, INT64_MAX);
		break;
	case OPT_DRAIN:
		o->engine.drain_ms = (uint32_t)number(state, "drain-ms", arg, 10, 1, 3600000);
		break;
	case ARGP_KEY_ARGS:
		/* Only what stands after `--` gets here uneaten; options before it are ours. */
		if (state->quoted == 0)
			argp_error(state, "unexpected argument \"%s\" (EAL arguments go after --)",
				state->argv[state->next]);
		o->eal.args = state->argv + state->next;
		o->eal.num_args = state->argc - state->next;
		state->next = state->argc;
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* DMA devices are PCI ones, unless the arguments name virtual ones: a scan would touch every device
 * that is not bound to a kernel driver, for nothing. */
static bool
wants_pci(const struct options *o)
{
	int i;

	for (i = 0; i < o->eal.num_args; i++)
		if (strncmp(o->eal.args[i], "--vdev", 6) == 0)
			return false;
	return o->engine.driver != NULL && (strstr(o->engine.driver, "dmadev") != NULL ||
						   strstr(o->engine.driver, "mixed") != NULL);
}

static void
on_signal(int sig)
{
	(void)sig;
	kvf_engine_request_stop(engine);
}

int
main(int argc, char **argv)
{
	static const struct argp argp = {options, parse, "[-- EAL ARGUMENTS...]",
		"Moves KV cache between the prefill and decode processes that connect to it.", NULL,
		NULL, NULL};
	struct options o = {0};
	struct sigaction sa = {0};
	struct kvf_err err;
	sigset_t set;
	int rc;

	argp_err_exit_status = 1; /* like every other refusal */
	argp_parse(&argp, argc, argv, 0, NULL, &o);
	o.eal.pci = wants_pci(&o);
	/* Until there is something to stop cleanly, signals wait. */
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	rc = kvf_eal_start(&o.eal, &err);
	if (rc == 0)
		rc = kvf_engine_start(&o.engine, &engine, &err);
	if (rc == 0) {
		sa.sa_handler = on_signal;
		sigaction(SIGINT, &sa, NULL);
		sigaction(SIGTERM, &sa, NULL);
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		rc = kvf_engine_run(engine, &err);
		sigprocmask(SIG_BLOCK, &set, NULL);
		if (rc == 0)
			kvf_engine_free(engine);
		/* else lcores may hang: nothing is waited for, the exit takes everything down */
	}
	if (rc != 0) {
		fprintf(stderr, "kvferryd: %s: %s\n", kvf_error_name(rc), err.text);
		return 1;
	}
	kvf_eal_stop();
	if (!o.engine.quiet)
		fprintf(stderr, "kvferryd: stopped\n");
	return 0;
}
