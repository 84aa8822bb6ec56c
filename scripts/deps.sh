#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs what kvferry needs and this host lacks, by apt-get. Silent, fast and without root when
# nothing lacks.
set -eu -o pipefail

usage() {
	cat <<EOF
usage: ${0##*/} [GROUP...]

Groups:
  build             compiler, meson, DPDK and the other libraries
  test              CUnit, hugeadm
  clang             the clang compiler
  style             clang-format, cppcheck
  clang-sanitizers  run-time libraries of clang's sanitizers
  valgrind          valgrind, and libc's symbols, which it needs
  model             spin, which checks the models in tests/model
  plot              gnuplot and python3, for bench.sh
  all               build, test, clang and style; the default
EOF
}

declare -a packages=()

add_group() {
	case $1 in
	build) packages+=(gcc libc6-dev meson ninja-build pkg-config libdpdk-dev dpdk-dev
		libjansson-dev libnuma-dev) ;;
	test) packages+=(libcunit1-dev libhugetlbfs-bin) ;;
	clang) packages+=(clang) ;;
	style) packages+=(clang-format cppcheck) ;;
	clang-sanitizers) packages+=(clang "libclang-rt-$(clang_major)-dev") ;;
	valgrind) packages+=(valgrind libc6-dbg) ;;
	model) packages+=(spin) ;;
	plot) packages+=(gnuplot-nox python3) ;;
	all)
		local g
		for g in build test clang style; do add_group "$g"; done
		;;
	-h | --help)
		usage
		exit 0
		;;
	*)
		echo "${0##*/}: unknown group: $1" >&2
		usage >&2
		exit 2
		;;
	esac
}

# The major version of clang here, or of the one that apt-get would install.
clang_major() {
	local v
	v=$(dpkg-query -W -f '${Version}' clang 2>/dev/null) || v=
	[ -n "$v" ] || v=$(apt-cache policy clang 2>/dev/null | sed -n 's/^ *Candidate: *//p')
	v=${v#*:}
	v=${v%%.*}
	echo "${v:-14}"
}

installed() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# No dpkg: nothing can be installed from here, but what is there by other means may do.
check_without_dpkg() {
	local what lacking=()
	for what in gcc meson ninja pkg-config; do
		command -v "$what" >/dev/null || lacking+=("$what")
	done
	for what in libdpdk jansson cunit; do
		pkg-config --exists "$what" 2>/dev/null || lacking+=("$what (pkg-config)")
	done
	[ ${#lacking[@]} -eq 0 ] && return 0
	echo "${0##*/}: not a Debian or Ubuntu host; please install: ${lacking[*]}" >&2
	return 1
}

[ $# -gt 0 ] || set -- all
for group; do add_group "$group"; done

if ! command -v dpkg-query >/dev/null; then
	check_without_dpkg
	exit
fi

declare -a missing=()
for p in "${packages[@]}"; do
	installed "$p" || missing+=("$p")
done
[ ${#missing[@]} -gt 0 ] || exit 0

declare -a root=()
if [ "$(id -u)" != 0 ]; then
	if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
		root=(sudo -n)
	else
		echo "${0##*/}: these packages are missing, and only root can install them. Please run:" >&2
		echo "  apt-get install -y --no-install-recommends ${missing[*]}" >&2
		exit 1
	fi
fi

apt() {
	"${root[@]}" env DEBIAN_FRONTEND=noninteractive timeout -k 10 1200 \
		apt-get -y -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 \
		-o Dpkg::Options::=--force-confold "$@" </dev/null
}

# Short when all goes well, everything when it does not.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
	"$@" >"$log" 2>&1 && return
	cat "$log" >&2
	return 1
}

echo "${0##*/}: installing ${missing[*]}"
# The lists may be absent (a bare image) or older than the mirror: then it is update, and again.
if ! apt install --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
	quietly apt update || echo "${0##*/}: apt-get update failed; trying with the lists there are" >&2
	quietly apt install --no-install-recommends "${missing[@]}" || {
		echo "${0##*/}: apt-get install ${missing[*]} failed" >&2
		exit 1
	}
fi
for p in "${missing[@]}"; do
	installed "$p" || {
		echo "${0##*/}: $p is still not installed" >&2
		exit 1
	}
done
