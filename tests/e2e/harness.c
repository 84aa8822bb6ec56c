/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ftw.h>

#include <kvferry/client.h>

#include "common/suite.h"
#include "e2e/harness.h"
#include "unit/pool/hugetake.h"

#define MAX_CHILDREN 64
#define MAX_ARGS     64
#define NAP_NS       3000000
#define HUGE_PAGES   128 /* for all pools of a program and its kvferryd */
#define LOG_TAIL     6000
#define EXEC_FAILED  127

static pid_t children[MAX_CHILDREN]; /* negative: a process group */
static pid_t owner;
static char dir[E2E_PATH];

static uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

bool
e2e_again(uint64_t *since, int ms)
{
	const struct timespec nap = {0, NAP_NS};

	if (*since == 0)
		*since = now_ms();
	if (now_ms() - *since >= (uint64_t)ms)
		return false;
	nanosleep(&nap, NULL);
	return true;
}

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void
clean_up(void)
{
	int i;

	if (getpid() != owner)
		return;
	for (i = 0; i < MAX_CHILDREN; i++)
		if (children[i] != 0)
			kill(children[i], SIGKILL);
	nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *
e2e_dir(void)
{
	const char *tmp = getenv("TMPDIR");

	if (owner != 0)
		return dir;
	/* The path of a socket must be short. */
	if (tmp == NULL || strlen(tmp) > 40)
		tmp = "/tmp";
	snprintf(dir, sizeof(dir), "%s/kvf-e2e-XXXXXX", tmp);
	if (mkdtemp(dir) == NULL) {
		perror("mkdtemp");
		exit(2);
	}
	/* Other users may pass to what is opened for them. */
	if (chmod(dir, 0711) != 0)
		perror(dir);
	owner = getpid();
	atexit(clean_up);
	signal(SIGPIPE, SIG_IGN);
	return dir;
}

const char *
e2e_path(const char *name)
{
	static char path[E2E_PATH];

	snprintf(path, sizeof(path), "%s/%.60s", e2e_dir(), name);
	return path;
}

static bool
hugepages(void)
{
	const char *lent = getenv("KVFERRY_HUGEPAGES"), *why = NULL;

	if (getenv("KVFERRY_NO_HUGEPAGES") != NULL)
		return false;
	/* scripts/test.sh takes them for all programs. */
	if (lent != NULL && atoi(lent) >= HUGE_PAGES && huge_free() >= HUGE_PAGES)
		return true;
	if (huge_take(HUGE_PAGES, &why))
		return true;
	fprintf(stderr,
		"WARNING: %d hugepages of 2 MiB are not to be had (%s): pools on 4 KiB pages\n",
		HUGE_PAGES, why);
	return false;
}

uint64_t
e2e_page_size(void)
{
	static uint64_t size;

	if (size == 0)
		size = hugepages() ? HUGE_2M : 4096;
	return size;
}

char *
e2e_read(const char *path)
{
	size_t n = 0, cap = 1 << 16;
	char *text = malloc(cap);
	FILE *f = fopen(path, "re");

	if (text == NULL)
		abort();
	while (f != NULL) {
		size_t got = fread(text + n, 1, cap - 1 - n, f);

		n += got;
		if (got == 0)
			break;
		if (n + 1 == cap) {
			cap *= 2;
			text = realloc(text, cap);
			if (text == NULL)
				abort();
		}
	}
	text[n] = '\0';
	if (f != NULL)
		fclose(f);
	return text;
}

static bool
remember(pid_t id)
{
	int i;

	for (i = 0; i < MAX_CHILDREN; i++) {
		if (children[i] == 0) {
			children[i] = id;
			return true;
		}
	}
	return false;
}

static void
forget(pid_t id)
{
	int i;

	for (i = 0; i < MAX_CHILDREN; i++)
		if (children[i] == id)
			children[i] = 0;
}

/* In the child, before anything else. Credentials first: changing them resets the death signal. */
static void
child_prepare(pid_t parent, uid_t uid)
{
	if (uid > 0 && (setgroups(0, NULL) != 0 || setgid((gid_t)uid) != 0 || setuid(uid) != 0))
		_exit(EXEC_FAILED);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXEC_FAILED);
}

static int
end_status(int st)
{
	return WIFEXITED(st) ? WEXITSTATUS(st) : -WTERMSIG(st);
}

/* The program is opened before privileges are dropped: another user may not reach its folder. */
static void __attribute__((noreturn))
run_program(const struct e2e_process *p, const char *const *argv, uid_t uid, pid_t parent)
{
	extern char **environ;
	int exe = open(argv[0], O_RDONLY | O_CLOEXEC), null = open("/dev/null", O_RDONLY);
	int out = open(p->out, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
	int err = open(p->err, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);

	setpgid(0, 0);
	child_prepare(parent, uid);
	if (out >= 0 && err >= 0 && null >= 0 && dup2(null, 0) == 0 && dup2(out, 1) == 1 &&
		dup2(err, 2) == 2) {
		close(null);
		close(out);
		close(err);
		if (uid > 0)
			fexecve(exe, (char *const *)(uintptr_t)argv, environ);
		else
			execvp(argv[0], (char *const *)(uintptr_t)argv);
	}
	fprintf(stderr, "cannot run %s: %s\n", argv[0], strerror(errno));
	_exit(EXEC_FAILED);
}

bool
e2e_spawn(struct e2e_process *p, const char *const *argv, uid_t uid)
{
	static unsigned int n;
	pid_t parent = getpid();

	memset(p, 0, sizeof(*p));
	snprintf(p->out, sizeof(p->out), "%s/%u.out", e2e_dir(), n);
	snprintf(p->err, sizeof(p->err), "%s/%u.err", e2e_dir(), n++);
	p->status = E2E_STILL_RUNNING;
	fflush(NULL);
	p->pid = fork();
	if (p->pid == 0)
		run_program(p, argv, uid, parent);
	if (p->pid < 0) {
		p->pid = 0;
		return false;
	}
	setpgid(p->pid, p->pid); /* whoever of us two is first */
	if (!remember(-p->pid)) {
		e2e_kill(p);
		return false;
	}
	return true;
}

/* A group is killed before its leader is reaped: until then the id can be nobody else's. */
static bool
reap(pid_t pid, bool group, int ms, int *status)
{
	uint64_t since = 0;
	int st;

	do {
		siginfo_t info = {0};

		if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
			if (errno != EINTR)
				return false;
			continue;
		}
		if (info.si_pid != pid)
			continue;
		if (group)
			kill(-pid, SIGKILL);
		if (waitpid(pid, &st, 0) != pid)
			return false;
		*status = end_status(st);
		return true;
	} while (e2e_again(&since, ms));
	return false;
}

bool
e2e_wait(struct e2e_process *p, int ms)
{
	if (p->pid == 0)
		return true;
	if (!reap(p->pid, true, ms, &p->status))
		return false;
	forget(-p->pid);
	p->pid = 0;
	return true;
}

void
e2e_kill(struct e2e_process *p)
{
	if (p->pid == 0)
		return;
	kill(-p->pid, SIGKILL);
	kill(p->pid, SIGKILL);
	e2e_wait(p, E2E_STOP_MS);
}

void
e2e_run_as(struct e2e_result *r, int ms, const char *const *argv, uid_t uid)
{
	struct e2e_process p;

	*r = (struct e2e_result){.status = E2E_STILL_RUNNING};
	if (!e2e_spawn(&p, argv, uid)) {
		r->out = strdup("");
		r->err = strdup("fork failed");
		return;
	}
	if (e2e_wait(&p, ms))
		r->status = p.status;
	else
		e2e_kill(&p);
	r->out = e2e_read(p.out);
	r->err = e2e_read(p.err);
}

void
e2e_run(struct e2e_result *r, int ms, const char *const *argv)
{
	e2e_run_as(r, ms, argv, 0);
}

void
e2e_result_free(struct e2e_result *r)
{
	free(r->out);
	free(r->err);
	*r = (struct e2e_result){0};
}

static void
show_log(const struct e2e_engine *e)
{
	char *text, *at;

	if (CU_get_number_of_failures() == e->failures)
		return;
	text = e2e_read(e->process.err);
	at = strlen(text) > LOG_TAIL ? text + strlen(text) - LOG_TAIL : text;
	printf("        ---- kvferryd's log:\n%s        ----\n", at);
	fflush(stdout);
	free(text);
}

bool
e2e_engine_start(struct e2e_engine *e, const char *const *args)
{
	const char *argv[MAX_ARGS] = {E2E_KVFERRYD, "--socket", e->socket};
	struct kvf_err err = {0};
	uint64_t since = 0;
	static int n;
	int argc = 3;

	if (e->socket[0] == '\0')
		snprintf(e->socket, sizeof(e->socket), "%.80s/s%d", e2e_dir(), n++);
	e->failures = CU_get_number_of_failures();
	if (e2e_page_size() == 4096)
		argv[argc++] = "--no-huge";
	while (*args != NULL && argc < MAX_ARGS - 1)
		argv[argc++] = *args++;
	argv[argc] = NULL;
	if (!CHECK(e2e_spawn(&e->process, argv, e->uid)))
		return false;
	do {
		char *json = NULL;

		/* Asked for its pid: nobody else may answer at this path. */
		if (kvf_engine_status(e->socket, 1000, &json, &err) == 0) {
			char want[40];
			bool mine;

			snprintf(want, sizeof(want), "\"pid\":%d,", (int)e->process.pid);
			mine = strstr(json, want) != NULL;
			free(json);
			if (mine)
				return true;
			snprintf(err.text, sizeof(err.text), "somebody else's status");
		}
		if (e2e_wait(&e->process, 0))
			break;
	} while (e2e_again(&since, E2E_START_MS));
	suite_check_eq(e->process.status, 0, "kvferryd serves", __FILE__, __LINE__);
	printf("        the last answer at its socket: %s\n", err.text);
	e2e_kill(&e->process);
	show_log(e);
	return false;
}

int
e2e_engine_stop(struct e2e_engine *e)
{
	int status = E2E_STILL_RUNNING;

	if (e->process.pid != 0)
		kill(e->process.pid, SIGTERM);
	if (e2e_wait(&e->process, E2E_STOP_MS))
		status = e->process.status;
	e2e_kill(&e->process);
	show_log(e);
	return status;
}

void
e2e_engine_kill(struct e2e_engine *e)
{
	e2e_kill(&e->process);
	show_log(e);
}

bool
e2e_fork(struct e2e_worker *w, void (*fn)(int fd, void *arg), void *arg)
{
	pid_t parent = getpid();
	int sv[2];

	e2e_dir();
	w->pid = 0;
	w->fd = -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) != 0)
		return false;
	fflush(NULL);
	w->pid = fork();
	if (w->pid == 0) {
		child_prepare(parent, 0);
		close(sv[0]);
		fn(sv[1], arg);
		fflush(NULL);
		_exit(0);
	}
	close(sv[1]);
	w->fd = sv[0];
	if (w->pid < 0) {
		w->pid = 0;
		close(sv[0]);
		return false;
	}
	if (!remember(w->pid)) {
		e2e_worker_kill(w);
		return false;
	}
	return true;
}

bool
e2e_say(int fd, const struct e2e_msg *msg)
{
	return send(fd, msg, sizeof(*msg), MSG_NOSIGNAL) == (ssize_t)sizeof(*msg);
}

int
e2e_hear(int fd, struct e2e_msg *msg, int ms)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	uint64_t end = now_ms() + (uint64_t)ms;
	ssize_t n;

	for (;;) {
		uint64_t now = now_ms();
		int rc = poll(&pfd, 1, now < end ? (int)(end - now) : 0);

		if (rc == 0)
			return KVF_E_TIMEOUT;
		if (rc > 0)
			break;
		if (errno != EINTR)
			return KVF_E_PEER_DIED;
	}
	n = recv(fd, msg, sizeof(*msg), 0);
	msg->text[E2E_TEXT - 1] = '\0';
	return n == (ssize_t)sizeof(*msg) ? 0 : KVF_E_PEER_DIED;
}

int
e2e_worker_join(struct e2e_worker *w, int ms)
{
	int status = E2E_STILL_RUNNING, killed;

	if (w->pid == 0)
		return 0;
	if (!reap(w->pid, false, ms, &status)) {
		kill(w->pid, SIGKILL);
		reap(w->pid, false, E2E_STOP_MS, &killed);
	}
	forget(w->pid);
	close(w->fd);
	w->pid = 0;
	w->fd = -1;
	return status;
}

void
e2e_worker_kill(struct e2e_worker *w)
{
	if (w->pid == 0)
		return;
	kill(w->pid, SIGKILL);
	e2e_worker_join(w, E2E_STOP_MS);
}
