#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Lends hugepages to a command. See usage below; called through hugepages.sh."""

import fcntl
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

USAGE = """\
usage: hugepages.sh with N [--size 2M|1G] -- COMMAND [ARG...]
       hugepages.sh status

with: raises the host's hugepages by N, runs COMMAND with KVFERRY_HUGEPAGES=N in its environment and
gives N back when COMMAND has ended, also after a signal (even SIGKILL to this script). Where they
cannot be had (not root, no memory), COMMAND runs all the same, with KVFERRY_HUGEPAGES=0. The exit
status is COMMAND's (128 + n after signal n).
status: what the host has.
"""

SIZES = {"2M": 2048, "1G": 1048576}  # kB
LOCK_WAIT = 60  # seconds
ECHO = 2  # seconds


def say(text):
    print(f"hugepages.sh: {text}", file=sys.stderr, flush=True)


def die(text):
    say(text)
    sys.exit(2)


class Pages:
    """The host's pages of one size."""

    def __init__(self, size):
        self.size = size
        self.kb = SIZES[size]
        self.dir = f"/sys/kernel/mm/hugepages/hugepages-{self.kb}kB"
        self.sudo = []

    def exists(self):
        return os.path.isdir(self.dir)

    def count(self, name):
        try:
            with open(f"{self.dir}/{name}", encoding="ascii") as f:
                return int(f.read())
        except (OSError, ValueError):
            return 0

    def free(self):
        return max(0, self.count("free_hugepages") - self.count("resv_hugepages"))

    def __str__(self):
        return f"{self.size} hugepages: total={self.count('nr_hugepages')}, free={self.free()}"

    def may_change(self):
        if os.geteuid() == 0:
            return True
        if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"],
                stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0:
            self.sudo = ["sudo", "-n"]
            return True
        return False

    def fits(self, n):
        """A kernel that is asked for too much squeezes all other processes first, and then fails."""
        with open("/proc/meminfo", encoding="ascii") as f:
            available = re.search(r"^MemAvailable: *(\d+) kB", f.read(), re.M)
        return available is not None and n * self.kb * 4 <= int(available.group(1)) * 3

    def add(self, delta, wait):
        """By how much the total changed. Everybody adds and subtracts under this lock, and nobody
        restores an old total, so users may overlap."""
        path = f"{self.dir}/nr_hugepages"
        with open(path, encoding="ascii") as lock:
            until = time.monotonic() + wait
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        return 0
                    time.sleep(0.02)
            before = self.count("nr_hugepages")
            subprocess.run(self.sudo + ["tee", path], input=b"%d" % max(0, before + delta),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            return self.count("nr_hugepages") - before


class Guardian:
    """A child that takes pages, says how many, and gives them back when the other end of its socket
    is closed, that is when we are gone. It does the taking itself, so there is no moment at which
    pages are taken and nobody knows; it is a session of its own, so what hits our process group
    does not hit it."""

    def __init__(self, pages, n):
        self.ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.guard(pages, n, theirs)
            finally:
                os._exit(0)
        theirs.close()

    def guard(self, pages, n, theirs):
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
            signal.signal(sig, signal.SIG_IGN)
        os.setsid()
        self.ours.close()
        # Whoever reads our output must not wait for this process.
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        got = pages.add(n, LOCK_WAIT)
        try:
            theirs.sendall(b"%d\n" % got)
            theirs.recv(1)
        except OSError:
            pass
        if got > 0:
            pages.add(-got, 1e9)

    def got(self):
        text = self.ours.makefile("rb").readline()
        return max(0, int(text)) if text else 0

    def give_back(self):
        self.ours.close()
        os.waitpid(self.pid, 0)


def take(pages, n):
    """The guardian, and how many pages the command can count on: n or 0."""
    guardian, got = None, 0
    if not pages.exists():
        say(f"WARNING: this kernel has no {pages.size} pages; running WITHOUT hugepages.")
        return None, 0
    if not pages.fits(n):
        say(f"{n} pages of {pages.size} are more than 3/4 of the memory available: not tried")
    elif pages.may_change():
        guardian = Guardian(pages, n)
        got = guardian.got()
    if got >= n:
        return guardian, n
    if pages.free() >= n:
        say(f"cannot raise the number, but enough are free: {pages}")
        return guardian, n
    if guardian:
        guardian.give_back()
    user = pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() == 0 else f"uid {os.geteuid()}"
    say(f"WARNING: no {n} hugepages of {pages.size} to be had ({user}; {pages}); "
        "running WITHOUT hugepages.")
    say("to get them, as root: hugeadm --pool-pages-min "
        f"{pages.size}B:{pages.count('nr_hugepages') + n - pages.free()}")
    return None, 0


def run(command, env):
    """The command's exit status. Signals go on to it and do not end the waiting."""
    child = None
    early = []

    def on_signal(sig, _frame):
        if child is None:
            early.append(sig)
            return
        if sig in (signal.SIGINT, signal.SIGQUIT):
            # From the keyboard these reach the command directly too; a second one at once would
            # cut its clean-up short.
            end = time.monotonic() + ECHO
            while time.monotonic() < end:
                # Not poll(): it gives up while the wait() that we interrupt holds its lock.
                if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    return
                time.sleep(0.02)
        child.send_signal(sig)

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {s: signal.getsignal(s) for s in signals}
    for s in signals:
        if before[s] != signal.SIG_IGN:
            signal.signal(s, on_signal)

    def restore():
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        for s in signals:
            signal.signal(s, signal.SIG_IGN if before[s] == signal.SIG_IGN else signal.SIG_DFL)

    try:
        child = subprocess.Popen(command, env=env, preexec_fn=restore)
    except OSError as e:
        say(f"{command[0]}: {e.strerror}")
        return 127 if isinstance(e, FileNotFoundError) else 126
    for s in early:
        child.send_signal(s)
    status = child.wait()
    return status if status >= 0 else 128 - status


def parse(argv):
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE, end="", file=sys.stdout if argv else sys.stderr)
        sys.exit(0 if argv else 2)
    if argv == ["status"]:
        for size in SIZES:
            if Pages(size).exists():
                print(Pages(size))
        sys.exit(0)
    if argv[0] != "with":
        die(f"unknown: {argv[0]} (--help shows what there is)")
    if "--" not in argv or argv[-1] == "--" and argv.index("--") == len(argv) - 1:
        die("no command: hugepages.sh with N -- COMMAND")
    options, command = argv[1:argv.index("--")], argv[argv.index("--") + 1:]
    if not options or not re.fullmatch(r"[0-9]{1,9}", options[0]):
        die(f"not a number of pages: {options[0] if options else 'none'}")
    size = "2M"
    if len(options) == 3 and options[1] == "--size" and options[2] in SIZES:
        size = options[2]
    elif len(options) > 1:
        die(f"unknown option: {' '.join(options[1:])} (known: --size 2M, --size 1G)")
    return int(options[0]), Pages(size), command


def main():
    n, pages, command = parse(sys.argv[1:])
    guardian, got = take(pages, n) if n > 0 else (None, 0)
    try:
        return run(command, dict(os.environ, KVFERRY_HUGEPAGES=str(got)))
    finally:
        if guardian:
            guardian.give_back()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
