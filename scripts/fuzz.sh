#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds the libFuzzer targets with clang and lets each run for a while, with address and
# undefined-behaviour sanitizers. The last line is "suite fuzz: <n> passed, <n> failed, 0 skipped".
set -eu -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${here%/*}
me=${0##*/}
all=(control geometry plan link cli engine)
seconds=60
build=
declare -a targets=()

usage() {
	cat <<EOF
usage: $me [--seconds N] [--build-dir DIR] [TARGET...]

  --seconds N      how long each target runs (default $seconds)
  --build-dir DIR  build there (default: build-fuzz in the checkout); what was found is kept in
                   DIR/findings, inputs that reach something new in DIR/corpus
  TARGET           ${all[*]} (default: all)
EOF
}

while [ $# -gt 0 ]; do
	case $1 in
	--seconds | --build-dir)
		[ $# -ge 2 ] || { usage >&2 && exit 2; }
		if [ "$1" = --seconds ]; then seconds=$2; else build=$2; fi
		shift
		;;
	-h | --help)
		usage
		exit 0
		;;
	-*)
		usage >&2
		exit 2
		;;
	*)
		[[ " ${all[*]} " = *" $1 "* ]] || { usage >&2 && exit 2; }
		targets+=("$1")
		;;
	esac
	shift
done
[[ $seconds =~ ^[1-9][0-9]{0,5}$ ]] || { usage >&2 && exit 2; }
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")
[ -n "$build" ] || build=$root/build-fuzz

"$here/deps.sh" build clang clang-sanitizers
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! {
	[ -f "$build/build.ninja" ] ||
		CC=clang meson setup "$build" "$root" -Dfuzz=true -Dtests=false -Db_lundef=false \
			-Db_sanitize=address,undefined -Dbuildtype=debugoptimized
	ninja -C "$build" -j "$(nproc)" "${targets[@]/#/tests/fuzz/fuzz_}"
} >"$log" 2>&1; then
	tail -n 40 "$log"
	echo "suite fuzz: 0 passed, ${#targets[@]} failed, 0 skipped"
	exit 1
fi
build=$(cd "$build" && pwd)

export ASAN_OPTIONS="detect_leaks=1:quarantine_size_mb=16:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:${UBSAN_OPTIONS:-}"
passed=0 failed=0
for t in "${targets[@]}"; do
	mkdir -p "$build/corpus/$t" "$build/findings/$t"
	rc=0
	timeout -k 10 $((seconds + 90)) "$build/tests/fuzz/fuzz_$t" -max_total_time="$seconds" -timeout=25 \
		-rss_limit_mb=2048 -max_len=2048 -print_final_stats=1 \
		-artifact_prefix="$build/findings/$t/" "$build/corpus/$t" "$root/tests/fuzz/corpus/$t" \
		>"$log" 2>&1 </dev/null || rc=$?
	inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
	cov=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
	if [ "$rc" = 0 ] && [ "${inputs:-0}" -gt 0 ]; then
		echo "  ok     $t: inputs=$inputs edges=$cov"
		passed=$((passed + 1))
	else
		echo "  FAIL   $t: exit status $rc, inputs=${inputs:-0}; see $build/findings/$t"
		tail -n 40 "$log" | sed 's/^/        /'
		failed=$((failed + 1))
	fi
done
echo "suite fuzz: $passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
