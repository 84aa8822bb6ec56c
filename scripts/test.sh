#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs what is missing, builds, runs every suite and adds up. The last line is
# "<n> passed, <n> failed", perhaps with ", <n> skipped"; the exit status is 0 only without failures.
set -eu -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${here%/*}
me=${0##*/}

usage() {
	cat <<EOF
usage: $me [--cc gcc|clang] [--sanitize none|address|thread] [--suite NAME] [--build-dir DIR] [--style] [--all]

  --cc CC          build with CC (default gcc); may be repeated or a comma list
  --sanitize KIND  none (default), address (with undefined) or thread; may be repeated or a comma list;
                   each CC is built with each KIND
  --suite NAME     only test programs of this name or of this meson suite; may be repeated
  --build-dir DIR  build in DIR, DIR-clang, DIR-asan ... (default: build in the checkout)
  --style          clang-format and cppcheck as well
  --all            gcc, clang, gcc with address, gcc with thread sanitizer, style, the models (with
                   spin), and each fuzz target for 10 seconds

Environment:
  KVFERRY_TEST_HUGEPAGES  2 MiB pages to lend to the programs while they run (default 512, at most a
                          quarter of the memory available; 0: none)
  KVF_TEST_SEED           seed of the property tests
EOF
}

die() {
	echo "$me: $*" >&2
	exit 2
}

# --- running the programs of one build (called through scripts/hugepages.sh) ---

program_timeout=300 # seconds

# One line per program: name, suites, working directory, command line quoted for a shell.
list_programs() { # BUILD
	meson introspect --tests "$1" | python3 -c '
import json, shlex, sys
for t in json.load(sys.stdin):
	suites = ",".join(s.split(":", 1)[-1] for s in t["suite"])
	env = [k + "=" + v for k, v in t["env"].items()]
	cmd = " ".join(shlex.quote(w) for w in (["env"] + env if env else []) + t["cmd"])
	print("\t".join([t["name"].replace("\t", " "), "," + suites + ",", t["workdir"] or "-", cmd]))
'
}

wanted() { # NAME SUITES
	[ -n "${KVF_TEST_SUITES:-}" ] || return 0
	local s
	for s in $KVF_TEST_SUITES; do
		[[ $1 = "$s" || $2 = *",$s,"* ]] && return 0
	done
	return 1
}

# Adds up a program's own "suite X: a passed, b failed, c skipped" lines; 0 0 0 if it printed none.
sum_log() { # LOG
	awk '
		/^suite [^:]*: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ {
			n++; p += $(NF-5); f += $(NF-3); s += $(NF-1)
		}
		END { print n + 0, p + 0, f + 0, s + 0 }' "$1"
}

run_one() { # DIRECTORY COMMAND LOG
	(cd "$1" && eval "exec timeout -k 10 $program_timeout $2") </dev/null >"$3" 2>&1
}

# own: those that take hugepages by themselves; lent: the others; nohuge: end to end, without.
in_mode() { # MODE SUITES
	case $1 in
	own) [[ $2 = *,own-hugepages,* ]] ;;
	lent) [[ $2 != *,own-hugepages,* ]] ;;
	nohuge) [[ $2 = *,e2e,* ]] ;;
	esac
}

run_programs() { # BUILD MODE RESULTS
	local build=$1 mode=$2 results=$3 title=$4 logs sanitize name suites workdir cmd list
	logs=$build/test-logs/$mode
	rm -rf "$logs"
	mkdir -p "$logs"
	sanitize=$(cat "$build/kvferry-sanitize")

	local -a wrap=()
	if [ "$sanitize" = thread ]; then
		# Its shadow memory and the kernel's randomised addresses may collide.
		if setarch -R true 2>/dev/null; then
			wrap=(setarch -R)
		else
			echo "  note: setarch -R is not permitted here; thread sanitizer runs without it"
		fi
	fi
	local supp=$root/tests/common
	export ASAN_OPTIONS="detect_leaks=1:${ASAN_OPTIONS:-}"
	export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:${UBSAN_OPTIONS:-}"
	export TSAN_OPTIONS="second_deadlock_stack=1:${TSAN_OPTIONS:-}"
	[ ! -f "$supp/lsan.supp" ] || export LSAN_OPTIONS="suppressions=$supp/lsan.supp:${LSAN_OPTIONS:-}"
	[ ! -f "$supp/tsan.supp" ] || TSAN_OPTIONS="suppressions=$supp/tsan.supp:$TSAN_OPTIONS"

	local rc n p f s t0 dt verdict log any=0
	list=$(list_programs "$build") || {
		echo "FAILED: $build: meson cannot list the tests"
		echo "0 1 0" >>"$results"
		return 0
	}
	while IFS=$'\t' read -r name suites workdir cmd; do
		wanted "$name" "$suites" || continue
		in_mode "$mode" "$suites" || continue
		[ $any = 1 ] || echo "== $title"
		any=1
		log=$logs/${name//[^A-Za-z0-9_.-]/_}.log
		[ "$workdir" != - ] || workdir=$build
		t0=$(date +%s%N)
		rc=0
		run_one "$workdir" "${wrap[*]} $cmd" "$log" || rc=$?
		dt=$((($(date +%s%N) - t0) / 10000000))
		read -r n p f s < <(sum_log "$log")
		verdict=ok
		if [ "$f" -gt 0 ]; then
			verdict=FAILED
		elif [ "$rc" = 124 ] || [ "$rc" = 137 ]; then
			verdict="FAILED: still running after $program_timeout s"
			f=1
		elif [ "$n" = 0 ]; then
			verdict="FAILED: exit status $rc and no result line"
			f=1
		elif [ "$rc" != 0 ]; then
			verdict="FAILED: exit status $rc after its result line"
			f=1
		fi
		printf '  %-28s %4d passed, %d failed, %d skipped  %3d.%02d s  %s\n' "$name" "$p" "$f" "$s" \
			$((dt / 100)) $((dt % 100)) "$verdict"
		grep -a '^  skip ' "$log" | sed 's/^/    /' || true
		if [ "$verdict" != ok ]; then
			echo "  ---- $name: what failed, and the end of $log"
			{ grep -a -A10 '^  FAIL ' "$log" | head -60 || true; }
			echo "  ----"
			tail -n 60 "$log" | sed 's/^/  | /'
			echo "  ----"
		fi
		echo "$p $f $s" >>"$results"
	done <<<"$list"
	[ $any = 0 ] || touch "$results.ran"
}

if [ "${1:-}" = _run ]; then
	shift
	run_programs "$@"
	exit 0
fi

# --- options ---

declare -a ccs=() sanitizers=() configs=()
build_dir=
all=0 style=0
suites_wanted=

add_words() { # ARRAY ALLOWED WORDS
	local -n array=$1
	local w
	for w in ${3//,/ }; do
		[[ " $2 " = *" $w "* ]] || die "$w: known are $2"
		array+=("$w")
	done
}

while [ $# -gt 0 ]; do
	case $1 in
	--cc | --sanitize | --suite | --build-dir) [ $# -ge 2 ] || die "$1 needs a value" ;;
	esac
	case $1 in
	--cc) add_words ccs "gcc clang" "$2" && shift ;;
	--sanitize) add_words sanitizers "none address thread" "$2" && shift ;;
	--suite) suites_wanted="$suites_wanted $2" && shift ;;
	--build-dir) build_dir=$2 && shift ;;
	--style) style=1 ;;
	--all) all=1 style=1 ;;
	-h | --help)
		usage
		exit 0
		;;
	*) die "unknown option: $1 (--help shows what there is)" ;;
	esac
	shift
done
export KVF_TEST_SUITES=$suites_wanted

[ ${#ccs[@]} -gt 0 ] || ccs=(gcc)
[ ${#sanitizers[@]} -gt 0 ] || sanitizers=(none)
if [ $all = 1 ]; then
	configs=(gcc:none clang:none gcc:address gcc:thread)
else
	for c in "${ccs[@]}"; do
		for s in "${sanitizers[@]}"; do configs+=("$c:$s"); done
	done
fi

scratch=$(mktemp -d)
results=$scratch/results
: >"$results"
trap 'rm -rf "$scratch"' EXIT

failure() {
	echo "FAILED: $*"
	echo "0 1 0" >>"$results"
}

total() {
	local p f s
	read -r p f s < <(awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }' "$results")
	if [ "$s" -gt 0 ]; then
		echo "$p passed, $f failed, $s skipped"
	else
		echo "$p passed, $f failed"
	fi
	[ "$f" = 0 ] || exit 1
	exit 0
}

# --- where to build ---

if [ -z "$build_dir" ]; then
	if [ -w "$root" ]; then
		build_dir=$root/build
	else
		# Kept from run to run, so the name is fixed: it must be ours alone.
		own=${TMPDIR:-/tmp}/kvferry-$(id -u)
		mkdir -m 700 "$own" 2>/dev/null || true
		[[ -d $own && -O $own && ! -L $own ]] || die "$own belongs to somebody else; use --build-dir"
		build_dir=$own/build
	fi
fi
mkdir -p "$(dirname "$build_dir")"
build_dir=$(cd "$(dirname "$build_dir")" && pwd)/$(basename "$build_dir")

build_of() { # CC SANITIZE
	local d=$build_dir
	[ "$1" = gcc ] || d=$d-$1
	case $2 in
	address) d=$d-asan ;;
	thread) d=$d-tsan ;;
	esac
	echo "$d"
}

# --- what must be installed ---

groups=(build test)
for c in "${configs[@]}"; do
	case $c in
	clang:none) groups+=(clang) ;;
	clang:*) groups+=(clang clang-sanitizers) ;;
	esac
done
[ $style = 0 ] || groups+=(style)
if ! "$here/deps.sh" "${groups[@]}"; then
	failure "something that the build needs is not installed"
	total
fi
if [ $all = 1 ] && ! "$here/deps.sh" model; then
	echo "note: spin could not be installed; the models are skipped"
fi

# --- style ---

sources() {
	# The checkout may belong to another user than the one who tests.
	git -C "$root" -c safe.directory="$root" ls-files '*.c' '*.h' 2>/dev/null ||
		(cd "$root" && find . -name 'build*' -prune -o \( -name '*.c' -o -name '*.h' \) -print)
}

check_style() {
	local -a files
	mapfile -t files < <(sources)
	cd "$root"
	[ ${#files[@]} -gt 0 ] || {
		failure "style: found no sources"
		return
	}
	if clang-format --dry-run -Werror "${files[@]}"; then
		echo "  clang-format: ${#files[@]} files ok"
		echo "1 0 0" >>"$results"
	else
		failure "clang-format: run clang-format -i on the files above"
	fi
	if cppcheck --error-exitcode=1 --quiet --inline-suppr -j "$(nproc)" --std=c11 \
		--enable=warning,performance,portability --suppress=missingIncludeSystem \
		--suppress=unknownMacro -D_GNU_SOURCE -D__linux__ -D__x86_64__ \
		-I . -I lib -I lib/include -I tests "${files[@]}"; then
		echo "  cppcheck: ok"
		echo "1 0 0" >>"$results"
	else
		failure "cppcheck: see above"
	fi
}

if [ $style = 1 ]; then
	echo "== style"
	check_style
fi

# --- build and run ---

configure() { # CC SANITIZE BUILD
	local -a opts=(-Dbuildtype=debugoptimized -Dtests=true)
	case $2 in
	none) opts+=(-Db_sanitize=none) ;;
	address) opts+=('-Db_sanitize=address,undefined') ;;
	thread) opts+=(-Db_sanitize=thread) ;;
	esac
	# clang puts the sanitizer's symbols into programs only, so a library cannot resolve them.
	[ "$1:$2" = clang:none ] || [ "$1" = gcc ] || opts+=(-Db_lundef=false)
	if [ -f "$3/build.ninja" ]; then
		meson configure "$3" "${opts[@]}"
	else
		CC=$1 meson setup "$3" "$root" "${opts[@]}"
	fi
}

hugepages_to_lend() {
	local n=${KVFERRY_TEST_HUGEPAGES:-} quarter
	if [ -z "$n" ]; then
		n=512
		quarter=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 4 / 2048))
		[ "$n" -le "$quarter" ] || n=$quarter
	fi
	echo "$n"
}

phase() { # TITLE BUILD MODE COMMAND...
	local title=$1 build=$2 mode=$3
	shift 3
	"$@" "$BASH" "$here/$me" _run "$build" "$mode" "$results" "$title" ||
		failure "$title: the run itself broke off"
}

for c in "${configs[@]}"; do
	cc=${c%%:*} sanitize=${c##*:}
	build=$(build_of "$cc" "$sanitize")
	title="$cc, sanitize $sanitize"
	echo "== build: $title: $build"
	log=$scratch/build.log
	if ! configure "$cc" "$sanitize" "$build" >"$log" 2>&1 ||
		! meson compile -C "$build" -j "$(nproc)" >>"$log" 2>&1; then
		grep -a -E 'FAILED|error|ERROR' "$log" | head -40 || true
		tail -n 40 "$log"
		failure "$title does not build"
		continue
	fi
	echo "$sanitize" >"$build/kvferry-sanitize"

	rm -f "$results.ran"
	failed_before=$(awk '{ n += $2 } END { print n + 0 }' "$results")
	phase "$title: programs that take their own hugepages" "$build" own env
	phase "$title" "$build" lent "$here/hugepages.sh" with "$(hugepages_to_lend)" --
	# The same programs must do without hugepages; no page is lent to them.
	phase "$title: end to end without hugepages" "$build" nohuge \
		env KVFERRY_NO_HUGEPAGES=1 KVFERRY_HUGEPAGES=0
	if [ ! -f "$results.ran" ] &&
		[ "$failed_before" = "$(awk '{ n += $2 } END { print n + 0 }' "$results")" ]; then
		failure "$title: no test program ran${suites_wanted:+ (wanted:$suites_wanted)}"
	fi
done

check_fuzz() {
	local log=$build_dir-fuzz.log n p f s
	echo "== fuzz targets, 10 seconds each"
	"$here/fuzz.sh" --seconds 10 --build-dir "$build_dir-fuzz" >"$log" 2>&1 || true
	sed 's/^/  /' "$log"
	read -r n p f s < <(sum_log "$log")
	if [ "$n" = 0 ]; then
		failure "scripts/fuzz.sh printed no result line"
	else
		echo "$p $f $s" >>"$results"
	fi
}

if [ $all = 1 ] && wanted fuzz ,; then
	check_fuzz
fi

echo
total
