/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "hugetake.h"

#define DIR_2M "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define MOUNTS 4

struct request {
	int64_t delta;
	char command[200]; /* instead of delta, if not empty */
};

struct reply {
	int64_t changed;
	int status;
};

static int guardian_fd = -1;
static pid_t guardian;
static pid_t owner;

static uint64_t
read_count(const char *name)
{
	char path[128];
	uint64_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), DIR_2M "%s", name);
	f = fopen(path, "re");
	if (f == NULL)
		return 0;
	if (fscanf(f, "%" SCNu64, &n) != 1)
		n = 0;
	fclose(f);
	return n;
}

uint64_t
huge_total(void)
{
	return read_count("nr_hugepages");
}

uint64_t
huge_free(void)
{
	uint64_t free_pages = read_count("free_hugepages"), resv = read_count("resv_hugepages");

	return free_pages > resv ? free_pages - resv : 0;
}

/* Whoever changes nr_hugepages by a difference holds this lock meanwhile (so does
 * scripts/hugepages.sh). */
int
huge_lock(void)
{
	int fd = open(DIR_2M "nr_hugepages", O_RDONLY | O_CLOEXEC);

	if (fd >= 0)
		(void)flock(fd, LOCK_EX);
	return fd;
}

/* By how much it really changed; the kernel may give fewer pages than asked. */
static int64_t
change_count(int64_t delta)
{
	int64_t before, want;
	FILE *f;

	before = (int64_t)huge_total();
	want = before + delta < 0 ? 0 : before + delta;
	f = fopen(DIR_2M "nr_hugepages", "we");
	if (f != NULL) {
		fprintf(f, "%" PRId64, want);
		fclose(f);
	}
	return (int64_t)huge_total() - before;
}

static void
guard(int fd)
{
	struct request req;
	struct reply reply;
	int64_t taken = 0;
	int lock;

	while (recv(fd, &req, sizeof(req), 0) == (ssize_t)sizeof(req)) {
		memset(&reply, 0, sizeof(reply));
		lock = req.command[0] == '\0' ? huge_lock() : -1;
		if (req.command[0] != '\0') {
			int64_t before = (int64_t)huge_total();

			reply.status = system(req.command);
			reply.changed = (int64_t)huge_total() - before;
		} else {
			/* Pages that were free anyway were not taken, and do not go back. */
			if (req.delta < -taken)
				req.delta = -taken;
			reply.changed = change_count(req.delta);
			/* The kernel takes back later what is in use now. */
			if (req.delta < 0)
				reply.changed = req.delta;
		}
		taken += reply.changed;
		if (lock >= 0)
			close(lock);
		(void)send(fd, &reply, sizeof(reply), MSG_NOSIGNAL);
	}
	lock = huge_lock();
	if (taken > 0)
		change_count(-taken);
	close(lock);
}

static void
end_guardian(void)
{
	if (getpid() != owner)
		return;
	close(guardian_fd);
	while (waitpid(guardian, NULL, 0) < 0 && errno == EINTR)
		;
}

static bool
start_guardian(void)
{
	int sv[2];

	if (guardian_fd >= 0)
		return true;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) != 0)
		return false;
	fflush(NULL);
	guardian = fork();
	if (guardian < 0) {
		close(sv[0]);
		close(sv[1]);
		return false;
	}
	if (guardian == 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		/* A signal to our process group, or a reader of our output, must not notice it. */
		setsid();
		signal(SIGTERM, SIG_IGN);
		signal(SIGINT, SIG_IGN);
		signal(SIGHUP, SIG_IGN);
		close(sv[0]);
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
		guard(sv[1]);
		_exit(0);
	}
	close(sv[1]);
	guardian_fd = sv[0];
	owner = getpid();
	atexit(end_guardian);
	return true;
}

static bool
ask(const struct request *req, struct reply *reply)
{
	return start_guardian() &&
	       send(guardian_fd, req, sizeof(*req), MSG_NOSIGNAL) == (ssize_t)sizeof(*req) &&
	       recv(guardian_fd, reply, sizeof(*reply), 0) == (ssize_t)sizeof(*reply);
}

bool
huge_take(uint64_t pages, const char **why)
{
	struct request req = {.delta = (int64_t)pages};
	struct reply reply = {0};

	if (geteuid() == 0 && ask(&req, &reply) && reply.changed >= (int64_t)pages)
		return true;
	if (reply.changed > 0)
		huge_give_back((uint64_t)reply.changed);
	if (huge_free() >= pages)
		return true;
	*why = geteuid() == 0 ? "the kernel cannot make enough 2 MiB pages now"
			      : "not root, and too few free 2 MiB pages";
	return false;
}

void
huge_give_back(uint64_t pages)
{
	struct request req = {.delta = -(int64_t)pages};
	struct reply reply;

	if (geteuid() == 0)
		(void)ask(&req, &reply);
}

int
huge_run(const char *command)
{
	struct request req = {0};
	struct reply reply;

	snprintf(req.command, sizeof(req.command), "%s", command);
	return ask(&req, &reply) ? reply.status : -1;
}

static char mounted[MOUNTS][64];
static int num_mounts;

static void
unmount_all(void)
{
	if (getpid() != owner)
		return;
	while (num_mounts > 0) {
		num_mounts--;
		umount2(mounted[num_mounts], MNT_DETACH);
		rmdir(mounted[num_mounts]);
	}
}

const char *
huge_mount(const char *opts, const char **why)
{
	char all[128], *dir = mounted[num_mounts];

	if (geteuid() != 0 || num_mounts == MOUNTS || !start_guardian()) {
		*why = "not root: cannot mount a hugetlbfs";
		return NULL;
	}
	if (num_mounts == 0) {
		if (unshare(CLONE_NEWNS) != 0 ||
			mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0) {
			*why = "no mount namespace of our own to be had";
			return NULL;
		}
		atexit(unmount_all);
	}
	snprintf(dir, sizeof(mounted[0]), "/tmp/kvf-huge-XXXXXX");
	if (mkdtemp(dir) == NULL) {
		*why = "no directory to mount on";
		return NULL;
	}
	snprintf(all, sizeof(all), "pagesize=2M%s%s", opts[0] != '\0' ? "," : "", opts);
	if (mount("none", dir, "hugetlbfs", 0, all) != 0) {
		rmdir(dir);
		*why = "mounting a hugetlbfs failed";
		return NULL;
	}
	num_mounts++;
	return dir;
}
