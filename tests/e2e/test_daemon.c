/* SPDX-License-Identifier: BSD-3-Clause */
/* kvferryd as a program: what it accepts, what it refuses and in which words, as whom it runs. */
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <jansson.h>
#include <kvferry/kvferry.h>

#include "common/suite.h"
#include "e2e/member.h"
#include "wire/message.h"

#define LIMIT_MS   30000
#define STARTUP_MS 10000 /* loose: it takes a fraction of a second */

static uid_t
nobody(void)
{
	const struct passwd *pw = getpwnam("nobody");

	return pw != NULL ? pw->pw_uid : 65534;
}

/* Exit status 1, the sentence on stderr, nothing on stdout, no socket left behind. */
static void
refused_at(int line, const char *text, const char *const *args)
{
	const char *argv[16] = {E2E_KVFERRYD, "--no-huge", "--socket", e2e_path("refused")};
	struct e2e_result r;
	struct stat st;
	int i;

	for (i = 0; i < 11 && args[i] != NULL; i++)
		argv[4 + i] = args[i];
	e2e_run(&r, LIMIT_MS, argv);
	if (!suite_check_eq(r.status, 1, "exit status == 1", __FILE__, line) ||
		!suite_check_has(r.err, text, __FILE__, line))
		printf("        it said: %s\n", r.err);
	suite_check(strstr(r.err, "kvferryd: ") != NULL, "its name on stderr", __FILE__, line);
	suite_check(r.out[0] == '\0', "nothing on stdout", __FILE__, line);
	suite_check(stat(e2e_path("refused"), &st) != 0, "no socket", __FILE__, line);
	e2e_result_free(&r);
}
#define REFUSED(text, ...) refused_at(__LINE__, (text), E2E_ARGS(__VA_ARGS__))

static void
test_options(void)
{
	REFUSED("unrecognized option '--bogus'", "--bogus");
	REFUSED("option '--driver' requires an argument", "--driver");
	REFUSED("unexpected argument \"extra\" (EAL arguments go after --)", "extra");
	REFUSED("--lcores=0 must be a number from 1 to 64", "--lcores", "0");
	REFUSED("--lcores=65 must be a number from 1 to 64", "--lcores", "65");
	REFUSED("--lcores=-1 must be a number from 1 to 64", "--lcores=-1");
	REFUSED("--lcores=2x must be a number", "--lcores", "2x");
	REFUSED("--socket-mode=888 must be an octal number from 1 to 777", "--socket-mode", "888");
	REFUSED("--max-endpoints=0 must be a number from 1 to 4096", "--max-endpoints", "0");
	REFUSED("--drain-ms= must be a number from 1 to 3600000", "--drain-ms=");
	REFUSED("INVAL: cpus=x must name one usable CPU", "--cpus", "x");
	REFUSED("names more CPUs than lcores=1", "--cpus", "0,0");
}

static void
test_drivers(void)
{
	struct e2e_result r;

	REFUSED("DRIVER: driver=nonsense is unknown; there are cpu", "--driver", "nonsense");
	REFUSED("DRIVER: driver= is unknown", "--driver", "");
	REFUSED("DRIVER: cpu driver: unknown kernel=sse", "--driver", "cpu:sse");
	REFUSED("pass --vdev=dma_skeleton0 to EAL after --", "--driver", "dmadev");
	REFUSED("DRIVER: no DMA device name=dma_skeleton7; present: dma_skeleton0", "--driver",
		"dmadev:dma_skeleton7", "--", "--vdev=dma_skeleton0");
	REFUSED("DRIVER: fault: no driver to wrap, inner=nonsense", "--driver", "fault:nonsense");
	REFUSED("DRIVER: fault: unknown option=wink=1", "--driver", "fault:cpu,wink=1");
	/* EAL prints its own options on stdout. */
	e2e_run(&r, LIMIT_MS, E2E_ARGS(E2E_KVFERRYD, "--", "--no-such-eal-option"));
	CHECK_EQ(r.status, 1);
	CHECK_STR_HAS(r.err, "SYS: DPDK's EAL did not start");
	CHECK_STR_HAS(r.err, "--no-such-eal-option");
	e2e_result_free(&r);
}

static void
test_sockets(void)
{
	char path[300], plain[E2E_PATH];
	struct stat st;
	FILE *f;

	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	REFUSED("INVAL: socket path length=299 limit=1..107", "--socket", path);
	path[108] = '\0';
	REFUSED("INVAL: socket path length=108 limit=1..107", "--socket", path);
	REFUSED("INVAL: socket path length=0 limit=1..107", "--socket", "");
	snprintf(path, sizeof(path), "%s/no/folder", e2e_dir());
	REFUSED("SYS: cannot bind the socket path=", "--socket", path);
	REFUSED("No such file or directory", "--socket", path);
	/* What is no socket is nobody's stale one. */
	snprintf(plain, sizeof(plain), "%s", e2e_path("plain"));
	f = fopen(plain, "w");
	CHECK(f != NULL);
	if (f == NULL)
		return;
	fclose(f);
	REFUSED("exists and is no socket", "--socket", plain);
	CHECK_EQ(stat(plain, &st), 0);
	REFUSED("exists and is no socket", "--socket", e2e_dir());
}

static void
test_help(void)
{
	static const char *const options[] = {"--socket=PATH", "--socket-mode=OCTAL",
		"--driver=NAME", "--lcores=N", "--cpus=LIST", "--no-huge", "--busy",
		"--max-endpoints=N", "--max-pool-bytes=N", "--drain-ms=MS", "--quiet",
		"--allow-uid=UID", "--allow-gid=GID", "--socket-owner=UID[:GID]", "EAL ARGUMENTS",
		"/tmp/kvferry.sock"};
	struct e2e_result r;
	size_t i;

	e2e_run(&r, LIMIT_MS, E2E_ARGS(E2E_KVFERRYD, "--help"));
	CHECK_EQ(r.status, 0);
	CHECK(r.err[0] == '\0');
	for (i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (!CHECK(strstr(r.out, options[i]) != NULL))
			printf("        --help lacks %s\n", options[i]);
	e2e_result_free(&r);
	e2e_run(&r, LIMIT_MS, E2E_ARGS(E2E_KVFERRYD, "--version"));
	CHECK_EQ(r.status, 0);
	CHECK_STR_HAS(r.out, "kvferryd " E2E_VERSION "\n");
	CHECK(r.err[0] == '\0');
	e2e_result_free(&r);
}

/* A number out of /proc/PID/status. */
static long
status_of(pid_t pid, const char *key)
{
	char path[64], *text, *at;
	long value = -1;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	text = e2e_read(path);
	at = strstr(text, key);
	if (at != NULL)
		value = strtol(at + strlen(key), NULL, 10);
	free(text);
	return value;
}

static void
test_start_up(void)
{
	struct e2e_engine e = {0};
	uint64_t since = 0;
	struct stat st;

	e2e_page_size();
	e2e_again(&since, STARTUP_MS);
	if (!e2e_engine_start(&e, E2E_ARGS("--lcores", "2")))
		return;
	CHECK(e2e_again(&since, STARTUP_MS));
	CHECK_EQ(stat(e.socket, &st), 0);
	CHECK_EQ(st.st_mode & 07777, 0600);
	/* Its own memory is where it was told to be. */
	if (e2e_page_size() != 4096)
		CHECK(status_of(e.process.pid, "HugetlbPages:") > 0);
	else
		CHECK_EQ(status_of(e.process.pid, "HugetlbPages:"), 0);
	CHECK_EQ(e2e_engine_stop(&e), 0);
	CHECK(stat(e.socket, &st) != 0);
}

static void
test_no_huge(void)
{
	struct e2e_engine e = {0};
	struct stat st;
	char *text;

	if (!e2e_engine_start(
		    &e, E2E_ARGS("--no-huge", "--lcores", "64", "--quiet", "--socket-mode", "640")))
		return;
	CHECK_EQ(status_of(e.process.pid, "HugetlbPages:"), 0);
	CHECK(status_of(e.process.pid, "Threads:") >= 65);
	CHECK_EQ(stat(e.socket, &st), 0);
	CHECK_EQ(st.st_mode & 07777, 0640);
	CHECK_EQ(e2e_engine_stop(&e), 0);
	text = e2e_read(e.process.err);
	if (!CHECK(text[0] == '\0'))
		printf("        --quiet, and it said: %s\n", text);
	free(text);
}

static void
test_eal_arguments(void)
{
	struct e2e_engine e = {0};
	struct e2e_result r;

	if (!e2e_engine_start(
		    &e, E2E_ARGS("--driver", "dmadev:dma_skeleton1", "--", "--vdev=dma_skeleton0",
				"--vdev=dma_skeleton1", "--log-level=error")))
		return;
	e2e_run(&r, LIMIT_MS, E2E_ARGS(E2E_KVFERRY, "status", "--socket", e.socket));
	CHECK_EQ(r.status, 0);
	CHECK_STR_HAS(r.out, "dma_skeleton1");
	CHECK(strstr(r.out, "dma_skeleton0") == NULL);
	e2e_result_free(&r);
	kill(e.process.pid, SIGINT);
	CHECK(e2e_wait(&e.process, LIMIT_MS));
	CHECK_EQ(e.process.status, 0);
	CHECK_EQ(e2e_engine_stop(&e), 0);
	e2e_run(&r, LIMIT_MS, E2E_ARGS(E2E_KVFERRY, "status", "--socket", e.socket));
	CHECK_EQ(r.status, 1);
	CHECK_STR_HAS(r.err, e.socket);
	e2e_result_free(&r);
}

static void
one_room(const char *socket)
{
	struct member_spec spec[2] = {
		{.socket = socket,
			.role = KVF_PREFILL,
			.group = "p",
			.group_size = 1,
			.seed = 1,
			.shape =
				{.layers = 2, .row_bytes = 576, .page_tokens = 16, .num_pages = 8}},
	};
	struct e2e_worker w[2] = {{0, -1}, {0, -1}};
	struct e2e_msg ans;
	int i;

	spec[1] = spec[0];
	spec[1].role = KVF_DECODE;
	if (!member_start(&w[0], &spec[0]) || !member_start(&w[1], &spec[1]))
		return;
	CHECK_EQ(MEMBER_DO(&w[1], &ans, MEMBER_RECV, 9, 0, 100, 0), 0);
	CHECK_EQ(MEMBER_DO(&w[0], &ans, MEMBER_SEND, 9, 0, 100, 100, 0), 0);
	for (i = 0; i < 2; i++) {
		if (!CHECK_EQ(MEMBER_DO(&w[i], &ans, MEMBER_FINISH, 9, LIMIT_MS), KVF_SUCCESS))
			printf("        %s\n", ans.text);
		CHECK_EQ(MEMBER_DO(&w[i], &ans, MEMBER_CHECK, 0), 0);
		CHECK_EQ(ans.value[0], 0);
		CHECK_EQ(MEMBER_DO(&w[i], &ans, MEMBER_LEAVE, 0), 0);
		CHECK_EQ(e2e_worker_join(&w[i], LIMIT_MS), 0);
	}
}

static void
test_nobody(void)
{
	char folder[E2E_PATH];
	struct e2e_engine e = {.uid = nobody()};

	if (geteuid() != 0) {
		suite_skip("not root: all other cases ran as an ordinary user already");
		return;
	}
	snprintf(folder, sizeof(folder), "%s", e2e_path("open"));
	CHECK_EQ(mkdir(folder, 0777), 0);
	CHECK_EQ(chmod(folder, 0777), 0);
	snprintf(e.socket, sizeof(e.socket), "%.90s/s", folder);
	if (!e2e_engine_start(&e, E2E_ARGS("--driver", "cpu", "--socket-mode", "666")))
		return;
	CHECK_EQ(status_of(e.process.pid, "Uid:"), nobody());
	one_room(e.socket);
	CHECK_EQ(e2e_engine_stop(&e), 0);
}

static void
ask_as_nobody(int fd, void *arg)
{
	const struct e2e_engine *e = arg;
	struct e2e_msg msg = {0};
	struct kvf_err err = {0};
	char *json = NULL;

	if (setgid((gid_t)nobody()) != 0 || setuid(nobody()) != 0)
		_exit(3);
	msg.code = kvf_engine_status(e->socket, 5000, &json, &err);
	memcpy(msg.text, err.text, sizeof(err.text));
	free(json);
	e2e_say(fd, &msg);
}

static void
test_permissions(void)
{
	char uid[16], gid[16];
	const struct {
		const char *args[5];
		int code;
		const char *text;
	} tries[] = {
		{{"--driver", "cpu"}, KVF_E_PERM,
			"no permission to connect"},                       /* the file says it */
		{{"--socket-mode", "666"}, KVF_E_PERM, "may not connect"}, /* kvferryd does */
		{{"--socket-mode", "666", "--allow-uid", uid}, 0, ""},
		{{"--socket-mode", "666", "--allow-gid", gid}, 0, ""},
	};
	struct e2e_engine e = {0};
	struct e2e_worker w;
	struct e2e_msg msg;
	size_t i;

	if (geteuid() != 0) {
		suite_skip("not root: cannot become somebody else");
		return;
	}
	snprintf(uid, sizeof(uid), "%u", (unsigned int)nobody());
	snprintf(gid, sizeof(gid), "%u", (unsigned int)nobody());
	for (i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		e.socket[0] = '\0';
		if (!e2e_engine_start(&e, tries[i].args))
			return;
		CHECK(e2e_fork(&w, ask_as_nobody, &e));
		if (!CHECK_EQ(e2e_hear(w.fd, &msg, LIMIT_MS), 0))
			msg = (struct e2e_msg){0};
		CHECK_EQ(e2e_worker_join(&w, LIMIT_MS), 0);
		CHECK_EQ(msg.code, tries[i].code);
		CHECK_STR_HAS(msg.text, tries[i].text);
		CHECK_EQ(e2e_engine_stop(&e), 0);
	}
}

/* A socket of this process at a path; `type` as for socket(). */
static int
bound(const char *path, int type)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
	CHECK_EQ(listen(fd, 1), 0);
	return fd;
}

/* Does not wait; -1 when the backlog is full. */
static int
connected(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Who does not answer at once is not dead, and what stands at the path later may be another's. */
static void
test_taken(void)
{
	char path[E2E_PATH];
	struct e2e_engine e = {0};
	struct stat st;
	int fds[1024], n, fd;

	if (!e2e_engine_start(&e, E2E_ARGS("--quiet")))
		return;
	REFUSED("EXIST: another kvferryd serves path=", "--socket", e.socket);
	CHECK_EQ(kill(e.process.pid, SIGSTOP), 0);
	for (n = 0; n < 1024 && (fds[n] = connected(e.socket)) >= 0;)
		n++;
	CHECK(n < 1024);
	REFUSED("EXIST: another kvferryd serves path=", "--socket", e.socket);
	CHECK_EQ(kill(e.process.pid, SIGCONT), 0);
	while (n > 0)
		close(fds[--n]);
	CHECK_EQ(unlink(e.socket), 0);
	fd = bound(e.socket, SOCK_SEQPACKET);
	CHECK_EQ(e2e_engine_stop(&e), 0);
	CHECK_EQ(stat(e.socket, &st), 0);
	close(fd);

	snprintf(path, sizeof(path), "%s", e2e_path("other"));
	fd = bound(path, SOCK_STREAM);
	REFUSED("EXIST: path=", "--socket", path);
	CHECK_EQ(stat(path, &st), 0);
	close(fd);
}

static size_t
lines_with(const char *text, const char *what)
{
	size_t n = 0;

	for (; (text = strstr(text, what)) != NULL; text++)
		n++;
	return n;
}

/* Connections that are dead already are not counted against one that lives. */
static void
test_crowd(void)
{
	const struct kvf_msg_hdr ask = {
		KVF_MSG_MAGIC, KVF_MSG_VERSION, KVF_MSG_STATUS, sizeof(ask), 0};
	static uint8_t buf[KVF_MSG_MAX];
	struct kvf_msg_hdr got = {0};
	struct e2e_engine e = {0};
	uint64_t since = 0;
	ssize_t len = -1;
	int i, fd;

	/* 65 connections at a time */
	if (!e2e_engine_start(&e, E2E_ARGS("--max-endpoints", "1")))
		return;
	CHECK_EQ(kill(e.process.pid, SIGSTOP), 0);
	for (i = 0; i < 100; i++)
		close(connected(e.socket));
	fd = connected(e.socket);
	CHECK_EQ(send(fd, &ask, sizeof(ask), MSG_NOSIGNAL), (ssize_t)sizeof(ask));
	CHECK_EQ(kill(e.process.pid, SIGCONT), 0);
	while ((len = recv(fd, buf, sizeof(buf), 0)) < 0 && e2e_again(&since, LIMIT_MS))
		;
	CHECK(len >= (ssize_t)sizeof(got));
	memcpy(&got, buf, sizeof(got));
	CHECK_EQ(got.type, KVF_MSG_STATUS_TEXT);
	close(fd);
	CHECK_EQ(e2e_engine_stop(&e), 0);
}

/* Strangers cannot fill the disk with what is said about them. */
static void
test_log(void)
{
	struct e2e_engine e = {0};
	uint64_t since = 0;
	uint8_t byte = 0;
	char *log;
	int i, fd;

	if (!e2e_engine_start(&e, E2E_ARGS("--quiet")))
		return;
	for (i = 0; i < 3000; i++) {
		while ((fd = connected(e.socket)) < 0 && e2e_again(&since, LIMIT_MS))
			;
		CHECK_EQ(send(fd, &byte, 1, MSG_NOSIGNAL), 1);
		close(fd);
	}
	CHECK_EQ(e2e_engine_stop(&e), 0);
	log = e2e_read(e.process.err);
	CHECK(lines_with(log, "refused pid=") >= 20);
	CHECK(lines_with(log, "refused pid=") < 1500);
	CHECK(lines_with(log, "more lines about peers were left out") >= 1);
	free(log);
}

static const struct suite_case cases[] = {
	{"options that make no sense are refused", test_options},
	{"drivers that are not there are refused", test_drivers},
	{"paths that cannot be a socket are refused", test_sockets},
	{"--help and --version", test_help},
	{"start-up, socket and memory", test_start_up},
	{"no hugepages, 64 lcores, quiet, socket mode", test_no_huge},
	{"EAL arguments after --, SIGINT, status", test_eal_arguments},
	{"as nobody", test_nobody},
	{"who may connect", test_permissions},
	{"a path that another one serves", test_taken},
	{"a crowd of dead connections", test_crowd},
	{"lines that peers cause are limited", test_log},
};

SUITE_MAIN("daemon", cases)
