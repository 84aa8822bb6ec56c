#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Checks every model in every interleaving with spin, then each variant that its header says must
# fail: a model that cannot fail proves nothing. Ends like the other suites.
set -eu -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
limit=200 # seconds for one search
passed=0 failed=0 skipped=0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Prints what the search found: "errors: N" of a complete one, or why there was none.
check() { # MODEL VARIANT
	local dir=$work/$1-$2
	mkdir -p "$dir"
	cp "$here/$1.pml" "$dir"
	cd "$dir"
	if ! spin -a "-D$2" "$1.pml" >log 2>&1 || ! cc -O1 -DSAFETY -o pan pan.c >log 2>&1; then
		echo "does not build: $(head -1 log)"
	elif ! timeout "$limit" ./pan -m1000000 -w22 >log 2>&1; then
		echo "the search broke off or took more than $limit s"
	elif grep -q 'max search depth too small' log; then
		echo "max search depth too small"
	else
		grep -o 'errors: [0-9]*' log
	fi
}

result() { # NAME WANTED GOT
	if [[ $3 = $2 ]]; then
		echo "  ok     $1"
		passed=$((passed + 1))
	else
		echo "  FAIL   $1"
		echo "        wanted $2, got $3"
		failed=$((failed + 1))
	fi
}

for model in ring slot abort; do
	variants=$(sed -n '/Must fail:/,/\*\//p' "$here/$model.pml" | grep -oE '\b[A-Z]+(_[A-Z]+)+\b' | sort -u)
	[ -n "$variants" ] || {
		echo "  FAIL   $model: names no variant that must fail"
		failed=$((failed + 1))
	}
	if ! command -v spin >/dev/null; then
		n=$(($(wc -w <<<"$variants") + 1))
		echo "  skip  $model: spin is not installed ($n checks)"
		skipped=$((skipped + n))
		continue
	fi
	result "$model" "errors: 0" "$(check "$model" MODEL)"
	for v in $variants; do
		result "$model must fail: $v" "errors: [1-9]*" "$(check "$model" "$v")"
	done
done
echo "suite model: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
