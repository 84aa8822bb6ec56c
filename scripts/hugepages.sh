#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a command with more hugepages, and gives them back when it has ended, whatever ended it.
set -eu -o pipefail

me=${0##*/}

usage() {
	cat <<EOF
usage: $me with N [--size 2M|1G] -- COMMAND [ARG...]
       $me status

with: raises the host's hugepages by N, runs COMMAND with KVFERRY_HUGEPAGES=N in its environment and
gives N back afterwards, also after a signal (even SIGKILL to this script). Where they cannot be had (not root, no
memory), COMMAND runs all the same, with KVFERRY_HUGEPAGES=0. The exit status is COMMAND's.
status: what the host has.
EOF
}

die() {
	echo "$me: $*" >&2
	exit 2
}

set_size() {
	case $1 in
	2M) dir=/sys/kernel/mm/hugepages/hugepages-2048kB ;;
	1G) dir=/sys/kernel/mm/hugepages/hugepages-1048576kB ;;
	*) die "--size $1: known are 2M and 1G" ;;
	esac
	size=$1
}

declare -a root=()
find_root() {
	[ "$(id -u)" = 0 ] && return 0
	command -v sudo >/dev/null && sudo -n true 2>/dev/null && root=(sudo -n) && return 0
	return 1
}

count() {
	local n
	n=$(cat "$dir/$1" 2>/dev/null) || n=0
	echo "${n:-0}"
}

usable() {
	local n=$(($(count free_hugepages) - $(count resv_hugepages)))
	echo $((n > 0 ? n : 0))
}

# Everybody adds and subtracts under this lock, nobody restores an old total: so users may overlap.
locked() {
	local rc=0
	exec {lock_fd}<"$dir/nr_hugepages"
	flock -w 60 "$lock_fd" || die "somebody holds the lock of $dir/nr_hugepages for a minute now"
	"$@" || rc=$?
	exec {lock_fd}<&-
	return $rc
}

add() { # DELTA; says on stdout by how much the total changed
	local before want
	before=$(count nr_hugepages)
	want=$((before + $1))
	[ $want -ge 0 ] || want=0
	echo $want | "${root[@]}" tee "$dir/nr_hugepages" >/dev/null 2>&1 || true
	echo $(($(count nr_hugepages) - before))
}

# A kernel that is asked for too much squeezes every other process first, and then fails.
fits() { # PAGES
	local kb=${dir##*hugepages-} available
	available=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)
	[ $(($1 * ${kb%kB} * 4)) -le $((${available:-0} * 3)) ]
}

# Reads until its input ends, which is when the process that holds the other end has gone. It is a
# session of its own, so what hits that process's group does not hit it.
guardian() { # TAKEN
	trap '' INT TERM HUP QUIT PIPE
	cat >/dev/null
	locked add "-$1" >/dev/null
}

status_line() {
	echo "$size hugepages: total=$(count nr_hugepages), free=$(usable)"
}

with() {
	local n=$1 got=0 child rc
	shift
	if [ ! -d "$dir" ]; then
		echo "$me: WARNING: this kernel has no $size pages; running without" >&2
	elif ! fits "$n"; then
		echo "$me: $n pages of $size are more than 3/4 of the memory available: not tried" >&2
	elif find_root; then
		got=$(locked add "$n") || got=0
		[ "${got:-0}" -gt 0 ] || got=0
	fi

	local guard_fd='' guard_pid=''
	if [ "$got" -gt 0 ]; then
		exec {guard_fd}> >(exec setsid bash "$0" _guardian "$got" "$size" >/dev/null 2>&1)
		guard_pid=$!
	fi
	finish() {
		[ -n "$guard_fd" ] || return 0
		exec {guard_fd}>&-
		guard_fd=
		wait "$guard_pid" || true
	}
	trap finish EXIT

	if [ "$got" -lt "$n" ] && [ -d "$dir" ]; then
		if [ "$(usable)" -ge "$n" ]; then
			echo "$me: cannot raise the number, but enough are free: $(status_line)" >&2
			got=$n
		else
			finish
			got=0
			echo "$me: WARNING: no $n hugepages of $size to be had" \
				"($(id -un), $(status_line)); running WITHOUT hugepages." >&2
			echo "$me: to get them, as root: hugeadm --pool-pages-min ${size}B:$(($(count nr_hugepages) + n))" >&2
		fi
	fi

	# In the background, so that a signal is passed on at once and not after the command; with
	# the signals and the input that it would have in the foreground, and without our end of the pipe.
	(
		trap - INT QUIT
		[ -z "$guard_fd" ] || exec {guard_fd}>&-
		KVFERRY_HUGEPAGES=$got exec "$@"
	) <&0 &
	child=$!
	rc=0
	wait_for "$child" || rc=$?
	finish
	trap - EXIT
	return $rc
}

# From the keyboard a signal reaches the command directly too; a second one would cut its clean-up
# short, so it comes only to who is still there after 2 seconds.
pass_later() { # PID SIGNAL
	local i
	for ((i = 0; i < 20; i++)); do
		kill -0 "$1" 2>/dev/null || return 0
		sleep 0.1
	done
	kill "-$2" "$1" 2>/dev/null || true
}

# The status of a child; signals go on to it, and do not end the waiting.
wait_for() { # PID
	local rc interrupted sig
	for sig in TERM HUP; do
		# shellcheck disable=SC2064
		trap "interrupted=1; kill -$sig $1 2>/dev/null || true" "$sig"
	done
	for sig in INT QUIT; do
		# shellcheck disable=SC2064
		trap "interrupted=1; pass_later $1 $sig" "$sig"
	done
	while :; do
		interrupted=0
		rc=0
		wait "$1" || rc=$?
		[ $interrupted = 1 ] || break
	done
	trap - INT TERM HUP QUIT
	return $rc
}

case ${1:-} in
with)
	shift
	[ $# -gt 0 ] || die "with: how many?"
	pages=$1
	shift
	set_size 2M
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		case $1 in
		--size)
			[ $# -ge 2 ] || die "--size: 2M or 1G"
			set_size "$2"
			shift 2
			;;
		*) die "unknown option: $1" ;;
		esac
	done
	[[ $pages =~ ^[0-9]{1,9}$ ]] || die "not a number of pages: $pages"
	[[ ${1:-} = -- && $# -ge 2 ]] || die "no command: $me with $pages -- COMMAND"
	shift
	with "$((10#$pages))" "$@"
	;;
status)
	for s in 2M 1G; do
		set_size $s
		[ -d "$dir" ] && status_line
	done
	;;
_guardian)
	set_size "$3"
	find_root || true
	guardian "$2"
	;;
-h | --help) usage ;;
*)
	usage >&2
	exit 2
	;;
esac
