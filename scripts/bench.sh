#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Measures the standard set with kvferry-perf: JSON lines, a Markdown table of measured against wanted, and plots.
set -eu -o pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
me=${0##*/}

usage() {
	cat <<EOF
usage: $me [--quick] [--out DIR] [--only PATTERN] [--no-plots] [--check]

Installs what is missing, builds into build/ (or \$KVFERRY_BUILD), takes hugepages for each run and gives them back.

  --quick         fewer iterations and points: a few minutes
  --out DIR       where results go (default: ./bench-results)
  --only PATTERN  only the runs whose label matches this shell pattern, as in 'bulk-*'
  --no-plots      no gnuplot
  --check         verify every byte (slower, and the caches see it)

DIR gets results.jsonl (one {"label", "result"} a line), table.md, *.dat and *.png, and machine.txt. The
exit status is that of the measuring, not of the figures.
EOF
}

say() { echo "$me: $*" >&2; }

quick=0
out=./bench-results
only='*'
plots=1
check=()
while [ $# -gt 0 ]; do
	case $1 in
	--quick) quick=1 ;;
	--out | --only)
		[ $# -ge 2 ] || {
			say "$1 needs a value"
			exit 2
		}
		[ "$1" = --out ] && out=$2 || only=$2
		shift
		;;
	--no-plots) plots=0 ;;
	--check) check=(--check) ;;
	-h | --help)
		usage
		exit 0
		;;
	*)
		say "unknown option: $1 (--help shows what there is)"
		exit 2
		;;
	esac
	shift
done

groups=(build test)
[ $plots = 0 ] || groups+=(plot)
"$root/scripts/deps.sh" "${groups[@]}" >&2

build=${KVFERRY_BUILD:-$root/build}
log=$(mktemp)
trap 'rm -f "$log" "$log.err"' EXIT
quietly() {
	"$@" >"$log" 2>&1 && return
	cat "$log" >&2
	say "failed: $*"
	return 1
}
[ -f "$build/build.ninja" ] || quietly meson setup "$build" "$root"
quietly meson compile -C "$build" kvferryd kvferry-perf
perf=$build/apps/kvferry-perf/kvferry-perf

mkdir -p "$out"
results=$out/results.jsonl
: >"$results"
{
	uname -a
	lscpu
	free -m
	"$root/scripts/hugepages.sh" status
} >"$out/machine.txt" 2>&1 || true

# What a run wants, but no more than six tenths of the memory: kvferry-perf then makes do with less, and says so.
pages_for() {
	local want most
	want=$("$perf" "$@" --need-hugepages)
	most=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) * 6 / 10 / 2048))
	[ "$want" -le "$most" ] || want=$most
	echo "$want"
}

failures=0
run() { # LABEL ARGS...
	local label=$1 pages rc=0 line t0
	shift
	# shellcheck disable=SC2053
	[[ $label = $only ]] || return 0
	pages=$(pages_for "$@") || pages=0
	local -a command=("$perf" "$@" "${check[@]}" --json)
	[ "$pages" = 0 ] || command=("$root/scripts/hugepages.sh" with "$pages" -- "${command[@]}")
	t0=$(date +%s%N)
	"${command[@]}" >"$log" 2>"$log.err" || rc=$?
	while IFS= read -r line; do
		[[ $line = \{* ]] && printf '{"label":"%s","result":%s}\n' "$label" "$line" >>"$results"
	done <"$log"
	printf '  %-30s %5d.%d s  %s\n' "$label" $((($(date +%s%N) - t0) / 1000000000)) \
		$((($(date +%s%N) - t0) / 100000000 % 10)) "$([ $rc = 0 ] && echo ok || echo "FAILED ($rc)")"
	grep -a -h 'WARNING' "$log.err" | sed 's/^/    /' || true
	if [ $rc != 0 ]; then
		sed 's/^/    /' "$log.err" | tail -5
		failures=$((failures + 1))
	fi
	rm -f "$log.err"
}

cpus=$(nproc)
if [ $quick = 1 ]; then
	bulk=(--num-iter 7 --warmup-iter 2 --footprint 512M)
	few=(--num-iter 5 --warmup-iter 1)
	pings=20000
	aborts=200
	token_points="1024 16384 131072 1048576"
	layer_points="1 8 32 128"
	endpoint_points="1 8 64"
	window_points="1 16 256 4096 10000"
	pieces=(--pieces "64,256,1152,4096,16384,65536,1048576" --num-iter 5)
	dma_pieces=(--pieces "1152,16384,65536" --num-iter 3)
else
	bulk=(--num-iter 31 --warmup-iter 3)
	few=(--num-iter 15 --warmup-iter 2)
	pings=200000
	aborts=2000
	token_points="1024 2048 4096 8192 16384 32768 65536 131072 262144 524288 1048576"
	layer_points="1 2 4 8 16 32 64 96 128"
	endpoint_points="1 2 4 8 16 32 64"
	window_points="1 2 4 8 16 32 64 128 256 512 1024 2048 4096 10000"
	pieces=(--num-iter 15)
	dma_pieces=(--pieces "256,1152,4096,16384,65536,262144,1048576" --num-iter 5)
fi
r1=(--model deepseek-r1 --tokens 8192 --page-size 64)
all=(--baseline "memcpy,rows,cma")

say "results go to $out"
# The issue's table.
run bulk-pages bulk "${r1[@]}" "${bulk[@]}" "${all[@]}"
run bulk-one-of-8 bulk "${r1[@]}" --decode-dcp 8 --ranks 1 "${bulk[@]}" "${all[@]}"
run bulk-all-8 bulk "${r1[@]}" --decode-dcp 8 "${bulk[@]}" "${all[@]}"
run bulk-heads-4-2 bulk --model llama-3-70b --tokens 2048 --page-size 64 --prefill-tp 4 --decode-tp 2 \
	"${bulk[@]}" "${all[@]}"
run bulk-dcp-8-4 bulk "${r1[@]}" --prefill-dcp 8 --decode-dcp 4 "${bulk[@]}" "${all[@]}"
for ((n = 1; n <= cpus && n <= 16; n = n < 4 ? n + 1 : n * 2)); do
	run "lcores-$n" bulk "${r1[@]}" --lcores "$n" "${bulk[@]}"
	[ $quick = 1 ] || run "lcores-one-of-8-$n" bulk "${r1[@]}" --decode-dcp 8 --ranks 1 --lcores "$n" "${bulk[@]}"
done
run latency-1152 latency --num-iter $pings --baseline memcpy
run latency-73728 latency --tokens 64 --page-size 64 --num-iter $pings --baseline memcpy
run plan-page-64 plan --tokens 131072 --page-size 64 --decode-dcp 8
run plan-page-1 plan --tokens 131072 --page-size 1 --decode-dcp 8 --num-iter 200
run rooms rooms "${few[@]}" --rooms 100000
run idle idle
run idle-busy idle --busy
run abort abort --num-iter $aborts

# Throughput by piece size and driver.
for kernel in avx512 avx2 portable; do
	run "copy-cpu:$kernel" copy --driver "cpu:$kernel" "${pieces[@]}"
	run "rows-cpu:$kernel" copy --driver "cpu:$kernel" --step 8 "${pieces[@]}"
done
run copy-dma_skeleton copy --driver dmadev --engine-args "--no-pci --vdev=dma_skeleton0" "${dma_pieces[@]}"

# Cost must stay linear.
for n in $token_points; do
	run "plan-tokens-$n" plan --tokens "$n" --page-size 64 --decode-dcp 8 --num-iter 100
	run "plan-1-tokens-$n" plan --tokens "$n" --page-size 1 --decode-dcp 8 --num-iter 20
	run "tokens-$n" bulk --model row:1152 --layers 1 --tokens "$n" --page-size 64 --decode-dcp 8 --ranks 1 \
		"${few[@]}" --footprint 256M
done
for n in $layer_points; do
	run "layers-$n" bulk --model row:1152 --layers "$n" --tokens 2048 --page-size 64 "${few[@]}" --footprint 512M
done
for n in $endpoint_points; do
	run "endpoints-$n" rooms --endpoints "$n" --window 16 "${few[@]}"
done
for n in $window_points; do
	run "window-$n" rooms --window "$n" --rooms $((n > 2000 ? n * 10 : 20000)) "${few[@]}"
done

report=("$root/scripts/bench-report.py" "$results" "$out")
[ $plots = 1 ] || report+=(--no-plots)
python3 "${report[@]}"
say "$failures runs failed"
[ $failures = 0 ]
