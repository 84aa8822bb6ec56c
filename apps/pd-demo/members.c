/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/fail.h"
#include "pd-demo/run.h"

#define TICK_MS   100
#define GRACE_NS  3000000000ull /* after a death */
#define SLACK_NS  5000000000ull /* workers reach their own limit first, and name the rooms */
#define REAP_NS   5000000000ull
#define NAP_NS    10000000
#define SECOND_NS 1000000000ull

static void __attribute__((noreturn))
exec_worker(struct demo_worker_args *args, int fd, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(3);
	dup2(STDERR_FILENO, STDOUT_FILENO);
	fcntl(fd, F_SETFD, 0);
	execv("/proc/self/exe", args->argv);
	fprintf(stderr, "pd-demo: cannot run itself: %s\n", strerror(errno));
	_exit(3);
}

static int
spawn(struct demo_run *run, struct demo_member *m, struct demo_worker_args *args,
	struct kvf_err *err)
{
	pid_t parent = getpid();
	int pair[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return app_fail(err, KVF_E_SYS, "socketpair failed: %s", strerror(errno));
	rc = demo_options_worker(run->o, m->role, m->rank, pair[1], args, err);
	if (rc != 0) {
		close(pair[0]);
		close(pair[1]);
		return rc;
	}
	m->pid = fork();
	if (m->pid == 0)
		exec_worker(args, pair[1], parent);
	close(pair[1]);
	if (m->pid < 0) {
		close(pair[0]);
		m->pid = 0;
		return app_fail(err, KVF_E_SYS, "fork failed: %s", strerror(errno));
	}
	m->fd = pair[0];
	return 0;
}

int
demo_members_spawn(struct demo_run *run, struct kvf_err *err)
{
	uint32_t prefill = demo_ranks(run->o, KVF_PREFILL), i;
	struct demo_worker_args *args;
	int rc = 0;

	args = malloc(sizeof(*args));
	run->members = calloc(prefill + demo_ranks(run->o, KVF_DECODE), sizeof(*run->members));
	if (args == NULL || run->members == NULL) {
		free(args);
		return app_fail(err, KVF_E_NOMEM, "no memory for the list of workers");
	}
	run->num_members = prefill + demo_ranks(run->o, KVF_DECODE);
	for (i = 0; i < run->num_members; i++)
		run->members[i].fd = -1;
	for (i = 0; i < run->num_members && rc == 0; i++) {
		run->members[i].role = i < prefill ? KVF_PREFILL : KVF_DECODE;
		run->members[i].rank = i < prefill ? i : i - prefill;
		rc = spawn(run, &run->members[i], args, err);
	}
	free(args);
	return rc;
}

static void
clear_line(struct demo_run *run)
{
	if (run->line)
		fputs("\r\033[K", stderr);
	run->line = false;
}

static void
draw_line(struct demo_run *run)
{
	uint64_t now = app_now_ns();
	double done = 0, all = 0;
	uint32_t i;

	if (now < run->next_line || !isatty(STDERR_FILENO))
		return;
	run->next_line = now + SECOND_NS / 10;
	for (i = 0; i < run->num_members; i++) {
		done += (double)run->members[i].done;
		all += (double)run->members[i].all;
	}
	fprintf(stderr, "\r\033[K%s: %3.0f%%", run->phase, all > 0 ? 100 * done / all : 0.0);
	run->line = true;
}

static void
send_msg(struct demo_member *m, uint32_t type, uint32_t room)
{
	struct demo_msg msg = {.type = type, .room = room};

	/* A worker that cannot be told is found dead, or runs into its limit. */
	if (m->fd >= 0)
		(void)send(m->fd, &msg, sizeof(msg), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void
demo_members_go(struct demo_run *run, uint32_t roles)
{
	uint32_t i;

	for (i = 0; i < run->num_members; i++) {
		if (roles & 1u << run->members[i].role)
			send_msg(&run->members[i], DEMO_GO, DEMO_NO_ROOM);
	}
}

void
demo_fail(struct demo_run *run, const struct demo_member *m, uint32_t room, int code,
	const char *text)
{
	struct demo_failure f = {.code = code};
	uint32_t i;

	if (m != NULL)
		snprintf(f.rank, sizeof(f.rank), "%s/%u", demo_role_name(m->role), m->rank);
	else
		snprintf(f.rank, sizeof(f.rank), "parent");
	snprintf(f.text, sizeof(f.text), "%s", text);
	clear_line(run);
	if (room < run->plan.num) {
		f.room = run->plan.rooms[room].id;
		fprintf(stderr, "pd-demo: FAILED room=%" PRIu64 " (%s) rank=%s error=%s: %s\n",
			f.room, run->plan.rooms[room].what, f.rank, kvf_error_name(code), text);
	} else {
		fprintf(stderr, "pd-demo: FAILED rank=%s error=%s: %s\n", f.rank,
			kvf_error_name(code), text);
	}
	if (run->num_failures < DEMO_MAX_FAILURES)
		run->failures[run->num_failures] = f;
	run->num_failures++;
	if (room >= run->plan.num || run->room_failed[room])
		return;
	run->room_failed[room] = true;
	for (i = 0; i < run->num_members; i++)
		send_msg(&run->members[i], DEMO_ABORT, room);
}

static void
on_message(struct demo_run *run, struct demo_member *m, struct demo_msg *msg)
{
	msg->text[sizeof(msg->text) - 1] = '\0';
	switch (msg->type) {
	case DEMO_PROGRESS:
		m->done = msg->v[0];
		m->all = msg->v[1];
		return;
	case DEMO_FAIL:
		if (msg->room == DEMO_NO_ROOM)
			m->told = true;
		demo_fail(run, m, msg->room, msg->code, msg->text);
		return;
	case DEMO_READY:
		m->pool_bytes = msg->v[0];
		m->page_size = msg->v[1];
		break;
	case DEMO_DONE:
		m->first_post = msg->v[0];
		m->last_success = msg->v[1];
		break;
	case DEMO_VERIFIED:
		m->bytes = msg->v[0];
		m->mismatches = msg->v[1];
		if (m->mismatches != 0) {
			clear_line(run);
			fprintf(stderr,
				"pd-demo: MISMATCH rank=%s/%u bytes=%" PRIu64 ", the first: %s\n",
				demo_role_name(m->role), m->rank, m->mismatches, msg->text);
		}
		break;
	case DEMO_POSTED:
	case DEMO_CLOSED:
		break;
	default:
		demo_fail(run, m, DEMO_NO_ROOM, KVF_E_PROTO, "an unknown message");
		return;
	}
	m->milestone = msg->type;
}

/* Reaps a worker; waits for it at most until `deadline`, then kills it. Returns its wait status.
 * One that even that does not end, because the kernel holds it, is left behind. */
static int
reap(struct demo_member *m, uint64_t deadline)
{
	const struct timespec nap = {0, NAP_NS};
	bool killed = false;
	int status = 0;
	pid_t got;

	while (m->pid > 0) {
		got = waitpid(m->pid, &status, WNOHANG);
		if (got == m->pid || (got < 0 && errno != EINTR)) {
			m->pid = 0;
		} else if (app_now_ns() < deadline) {
			nanosleep(&nap, NULL);
		} else if (!killed) {
			kill(m->pid, SIGKILL);
			killed = true;
			deadline = app_now_ns() + APP_KILL_MS * 1000000ull;
		} else {
			status = SIGKILL;
			m->pid = 0;
		}
	}
	return status;
}

static void
on_end(struct demo_run *run, struct demo_member *m)
{
	pid_t pid = m->pid;
	char text[160];
	int status;

	close(m->fd);
	m->fd = -1;
	status = reap(m, app_now_ns() + REAP_NS);
	if (m->milestone == DEMO_CLOSED && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	m->dead = true;
	if (!run->broken)
		run->grace_until = app_now_ns() + GRACE_NS;
	run->broken = true;
	if (m->told)
		return;
	if (WIFSIGNALED(status))
		snprintf(text, sizeof(text), "pid=%d ended by signal=%d (%s)", (int)pid,
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(text, sizeof(text), "pid=%d ended with status=%d", (int)pid,
			WEXITSTATUS(status));
	demo_fail(run, m, DEMO_NO_ROOM, KVF_E_PEER_DIED, text);
}

static void
take_messages(struct demo_run *run, struct demo_member *m)
{
	struct demo_msg msg;
	ssize_t n;

	while (m->fd >= 0) {
		n = recv(m->fd, &msg, sizeof(msg), MSG_DONTWAIT);
		if (n == (ssize_t)sizeof(msg))
			on_message(run, m, &msg);
		else if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		else
			on_end(run, m);
	}
}

static void
pump(struct demo_run *run)
{
	struct pollfd pfd[2 * DEMO_MAX_RANKS];
	uint32_t i;

	for (i = 0; i < run->num_members; i++)
		pfd[i] = (struct pollfd){.fd = run->members[i].fd, .events = POLLIN};
	if (poll(pfd, run->num_members, TICK_MS) <= 0)
		return;
	for (i = 0; i < run->num_members; i++) {
		if (pfd[i].fd >= 0 && pfd[i].revents != 0)
			take_messages(run, &run->members[i]);
	}
}

static bool
all_passed(const struct demo_run *run, uint32_t roles, enum demo_msg_type milestone)
{
	uint32_t i;

	for (i = 0; i < run->num_members; i++) {
		const struct demo_member *m = &run->members[i];

		if (!(roles & 1u << m->role) || m->dead)
			continue;
		/* A closed worker has to be gone too: its exit status counts. */
		if (m->milestone < milestone || (milestone == DEMO_CLOSED && m->fd >= 0))
			return false;
	}
	return true;
}

static void
name_the_late(struct demo_run *run, const char *phase, uint32_t roles, enum demo_msg_type milestone,
	double seconds)
{
	char text[160];
	uint32_t i;

	for (i = 0; i < run->num_members; i++) {
		struct demo_member *m = &run->members[i];

		if (!(roles & 1u << m->role) || m->dead || m->milestone >= milestone)
			continue;
		snprintf(text, sizeof(text), "phase=%s not finished after %.0f s", phase, seconds);
		demo_fail(run, m, DEMO_NO_ROOM, KVF_E_TIMEOUT, text);
	}
}

bool
demo_members_wait(
	struct demo_run *run, const char *phase, uint32_t roles, enum demo_msg_type milestone)
{
	uint64_t start = app_now_ns(), now;
	uint64_t limit = run->o->timeout_s * SECOND_NS + SLACK_NS;
	uint32_t i;

	run->phase = phase;
	for (i = 0; i < run->num_members; i++) {
		run->members[i].done = 0;
		run->members[i].all = 0;
	}
	while (!all_passed(run, roles, milestone)) {
		pump(run);
		draw_line(run);
		now = app_now_ns();
		/* Only while rooms are open have the others anything to tell about a death. */
		if (run->broken && (milestone != DEMO_DONE || now >= run->grace_until))
			break;
		if (now - start >= limit) {
			name_the_late(run, phase, roles, milestone, (double)(now - start) / 1e9);
			run->broken = true;
			break;
		}
	}
	clear_line(run);
	return !run->broken;
}

void
demo_members_end(struct demo_run *run)
{
	uint32_t i;

	for (i = 0; i < run->num_members; i++) {
		struct demo_member *m = &run->members[i];

		if (m->pid > 0)
			kill(m->pid, SIGKILL);
	}
	for (i = 0; i < run->num_members; i++) {
		struct demo_member *m = &run->members[i];

		reap(m, app_now_ns() + REAP_NS);
		if (m->fd >= 0)
			close(m->fd);
		m->fd = -1;
	}
}
