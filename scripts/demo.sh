#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds kvferry and shows it at work: real prefill and decode processes, one engine, every byte verified.
set -eu -o pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=${KVFERRY_BUILD:-}
if [ -z "$build" ]; then
	build=$root/build
	if [ ! -w "$root" ] && [ ! -w "$build" ]; then
		# A checkout of somebody else's: a folder that is ours alone, the one that test.sh uses too.
		own=${TMPDIR:-/tmp}/kvferry-$(id -u)
		mkdir -m 700 "$own" 2>/dev/null || true
		[[ -d $own && -O $own && ! -L $own ]] || {
			echo "${0##*/}: $own belongs to somebody else; set KVFERRY_BUILD to a folder" >&2
			exit 1
		}
		build=$own/build
	fi
fi
demo=$build/apps/pd-demo/pd-demo
engine=$build/apps/kvferryd/kvferryd

usage() {
	cat <<EOF
usage: ${0##*/} [--driver NAME] [pd-demo options...]

Installs what is missing, builds into build/ (or \$KVFERRY_BUILD), takes hugepages (and gives them back), starts
kvferryd and the workers, verifies every byte. The last line is
  verified rooms=<n> bytes=<n> mismatches=<n>
and the exit status is 0 only with 0 mismatches. Whatever is not listed here goes on to pd-demo:

EOF
	[ ! -x "$demo" ] || "$demo" --help | sed 1,3d
}

say() {
	echo "${0##*/}: $*" >&2
}

# Shows its output only when it fails.
quietly() {
	local log rc=0
	log=$(mktemp)
	"$@" >"$log" 2>&1 || rc=$?
	[ $rc = 0 ] || cat "$log" >&2
	rm -f "$log"
	return $rc
}

# A DMA engine that DPDK could drive: a DSA work queue set up for it, or an IOAT or DSA function given to VFIO/UIO.
has_dma_device() {
	local dev id
	grep -qs '^dpdk_' /sys/bus/dsa/devices/wq*/name && return 0
	for dev in /sys/bus/pci/devices/*; do
		[ -r "$dev/device" ] || continue
		id=$(cat "$dev/vendor" "$dev/device" | tr '\n' ' ')
		case $id in
		"0x8086 0x0b25 " | "0x8086 0x11fb " | "0x8086 0x1212 " | "0x8086 0x0b00 " | "0x8086 0x2021 ") ;;
		*) continue ;;
		esac
		case $(readlink "$dev/driver" 2>/dev/null) in
		*/vfio-pci | */igb_uio | */uio_pci_generic) return 0 ;;
		esac
	done
	return 1
}

driver=
own_engine_args=0
prev=
for arg; do
	case $prev in
	--driver) driver=$arg ;;
	esac
	case $arg in
	-h | --help)
		usage
		exit 0
		;;
	--driver=*) driver=${arg#*=} ;;
	--engine-args | --engine-args=*) own_engine_args=1 ;;
	esac
	prev=$arg
done

# Also what the test suites need: they are in the same build folder, even if not built here.
"$root/scripts/deps.sh" build test >&2 || {
	say "some packages are missing, see above"
	exit 1
}
[ -f "$build/build.ninja" ] || quietly meson setup "$build" "$root" || {
	say "meson setup failed, see above"
	exit 1
}
say "building into $build"
quietly meson compile -C "$build" kvferryd pd-demo || {
	say "the build failed, see above"
	exit 1
}

declare -a args=(--engine "$engine")
case $driver in
dmadev | dmadev:* | mixed | mixed:*)
	if [ $own_engine_args = 1 ]; then
		say "--engine-args given: they have to name the DMA devices"
	elif has_dma_device; then
		say "using the DMA devices of this host"
	else
		say "NOTE: this host has no DSA or IOAT device that DPDK could drive: --driver $driver uses the" \
			"software stand-in dma_skeleton, which shows that the path is right and says nothing about its speed"
		args+=(--engine-args "--vdev=dma_skeleton0 --vdev=dma_skeleton1")
	fi
	;;
esac
args+=("$@")

pages=$("$demo" "${args[@]}" --need-hugepages)
if [ "$pages" -gt 0 ]; then
	exec "$root/scripts/hugepages.sh" with "$pages" -- "$demo" "${args[@]}"
fi
exec "$demo" "${args[@]}"
