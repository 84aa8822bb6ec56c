/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Real processes for tests: programs of the build, kvferryd among them, and forked workers.
 *
 * Each wait has a limit. Whatever is started here ends with this process: children ask the kernel
 * for SIGKILL when their parent dies, and those that are left at exit are killed by their own ids.
 * Programs get a process group of their own, so that their children end with them.
 */
#ifndef KVF_TESTS_E2E_HARNESS_H
#define KVF_TESTS_E2E_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <kvferry/error.h>

#define E2E_START_MS 30000
#define E2E_STOP_MS  30000
#define E2E_PATH     200

#define E2E_STILL_RUNNING 1000 /* not an exit status */

/* A folder of this program's own, gone when it exits. */
const char *e2e_dir(void);
/* "<dir>/<name>", in a buffer that a later call overwrites. */
const char *e2e_path(const char *name);

/* Page size for pools: 2 MiB, or 4096 when KVFERRY_NO_HUGEPAGES is set or none can be had (said
 * loudly, once). The first call takes the hugepages; they are given back at exit. */
uint64_t e2e_page_size(void);

/* What a file holds, "" if there is none; the caller frees it. */
char *e2e_read(const char *path);

/* Sleeps for a moment between two looks at something. false: `ms` after *since have passed (*since
 * 0: begins now). */
bool e2e_again(uint64_t *since, int ms);

struct e2e_process {
	pid_t pid; /* 0: not running */
	char out[E2E_PATH];
	char err[E2E_PATH];
	int status; /* exit status, -signal, or E2E_STILL_RUNNING */
};

/* Starts argv[0] with stdout and stderr in files. uid > 0: as that user, without groups. */
bool e2e_spawn(struct e2e_process *p, const char *const *argv, uid_t uid);
/* true: it has ended, see p->status. */
bool e2e_wait(struct e2e_process *p, int ms);
/* Ends it and its children at once. */
void e2e_kill(struct e2e_process *p);

struct e2e_result {
	int status;
	char *out;
	char *err;
};

/* Runs a program to its end, or kills it after `ms`. */
void e2e_run(struct e2e_result *r, int ms, const char *const *argv);
void e2e_run_as(struct e2e_result *r, int ms, const char *const *argv, uid_t uid);
void e2e_result_free(struct e2e_result *r);

#define E2E_ARGS(...)                                                                              \
	(const char *const[])                                                                      \
	{                                                                                          \
		__VA_ARGS__, NULL                                                                  \
	}

struct e2e_engine {
	struct e2e_process process;
	char socket[108];
	uid_t uid;             /* runs as this user; 0: as ours */
	unsigned int failures; /* of the suite when it was started */
};

/* kvferryd at e->socket (empty: a path is chosen) with these further arguments, serving when this
 * returns true. What it takes from the environment is the kind of memory. */
bool e2e_engine_start(struct e2e_engine *e, const char *const *args);
/* SIGTERM; the exit status, or E2E_STILL_RUNNING (then it was killed). Shows its log if a check
 * failed since it was started. */
int e2e_engine_stop(struct e2e_engine *e);
/* SIGKILL: the socket file stays. */
void e2e_engine_kill(struct e2e_engine *e);

#define E2E_TEXT 252

/* What a worker and the test say to each other, one packet each. */
struct e2e_msg {
	int32_t type;
	int32_t code;
	uint64_t value[6];
	char text[E2E_TEXT];
};

struct e2e_worker {
	pid_t pid; /* 0: none */
	int fd;
};

/* Forks; the child runs fn(fd, arg) and ends. Its pool's memory and its endpoint end with it. */
bool e2e_fork(struct e2e_worker *w, void (*fn)(int fd, void *arg), void *arg);
bool e2e_say(int fd, const struct e2e_msg *msg);
/* 0; KVF_E_TIMEOUT; KVF_E_PEER_DIED: the other end is closed. */
int e2e_hear(int fd, struct e2e_msg *msg, int ms);
/* SIGKILL, now. */
void e2e_worker_kill(struct e2e_worker *w);
/* Waits for its end: exit status or -signal, or E2E_STILL_RUNNING (then it was killed). */
int e2e_worker_join(struct e2e_worker *w, int ms);

#endif
