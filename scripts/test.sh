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
usage: $me [--cc gcc|clang] [--sanitize none|address|thread|valgrind] [--suite NAME] [--build-dir DIR]
               [--style] [--all]

  --cc CC          build with CC (default gcc); may be repeated or a comma list
  --sanitize KIND  none (default), address (with undefined), thread, or valgrind (the build of none,
                   each program and its children under memcheck: memory, and descriptors left open;
                   slow, on 4 KiB pages, without the suites that its slowness breaks); may be
                   repeated or a comma list; each CC is built with each KIND
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

# --- under valgrind ---

# Suites that valgrind cannot run, and why.
valgrind_unfit() { # NAME SUITES
	case $1 in
	fuzz_*) echo "replays corpora by the thousand; scripts/fuzz.sh has the address sanitizer" ;;
	many) echo "thousands of rooms, and limits of time" ;;
	matrix | reports) echo "thousands of transfers: hours" ;;
	soak | death) echo "hundreds of processes, and limits of time" ;;
	perf) echo "measures time" ;;
	example) echo "the README's programs end with what they hold when something fails, as short examples do" ;;
	model) echo "is spin's, nothing of it is ours" ;;
	install) echo "runs compilers" ;;
	# The unit tests have the same name.
	demo) [[ $2 != *,e2e,* ]] || echo "pd-demo starts its ranks from /proc/self/exe, which is valgrind itself there" ;;
	esac
}

# Suites that catch a copy while it lasts, or wait for a second only: valgrind slows down all but the
# clock. They run, but only valgrind's findings count; cases that failed are added to the skipped ones.
valgrind_clock() { # NAME
	[[ " abort dropped faults late life reconnect " = *" $1 "* ]]
}

valgrind_command() { # NAME LOGS
	# %n: 1 for a program, more for what it forked; also, one that has changed its user since the fork
	# could not open the same file again.
	echo "valgrind -q --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,indirect" \
		"--errors-for-leak-kinds=definite,indirect --track-fds=yes --num-callers=30 --vgdb=no" \
		"--suppressions=$(printf %q "$root/tests/common/valgrind.supp")" \
		"--trace-children=yes '--trace-children-skip=*/sh,*/bash,*/dash,*/python3*'" \
		"--fair-sched=yes" "--log-file=$(printf %q "$2")/%p.%n"
	# Pools lose memory there: after SIGBUS the copy goes on with registers as they were at that moment.
	[[ " faults life parts pool " != *" $1 "* ]] || echo "--vex-iropt-register-updates=allregs-at-mem-access"
}

# All that valgrind has to say against these processes; silent if nothing. With -q a log holds errors
# and, at the end, the descriptors still open. Of those do not count:
#  - what was inherited (0 to 2 are never listed);
#  - what EAL opened: rte_eal_cleanup() leaves its pipes and timers open;
#  - all that a fork without exec has open: it ends by _exit() and holds what its parent held.
valgrind_findings() { # LOGS
	local f
	for f in "$1"/*; do
		[ -s "$f" ] || continue
		awk -v forked="$([[ $f = *.1 ]] || echo 1)" -v file="${f##*/}" '
			function flush_block() {
				if (block != "" && !forked && frames !~ /inherited from parent/ &&
					second !~ /librte_eal\.so/)
					out = out block "\n"
				block = frames = second = ""
			}
			{ line = $0; sub(/^==[0-9]+== ?/, "", line) }
			line ~ /^FILE DESCRIPTORS: / { next }
			line ~ /^Open .*( [0-9]+|[0-9]+:.*)$/ { flush_block(); block = line "\n"; n = 0; next }
			block != "" && line ~ /^ / {
				block = block line "\n"
				frames = frames line
				if (++n == 2) second = line
				next
			}
			{ flush_block() }
			line != "" { out = out line "\n" }
			END { flush_block(); if (out != "") printf "process %s:\n%s", file, out }' "$f"
	done
}

# own: those that take hugepages by themselves; lent: the others; nohuge: end to end, without.
in_mode() { # MODE SUITES
	case $1 in
	own) [[ $2 = *,own-hugepages,* ]] ;;
	lent) [[ $2 != *,own-hugepages,* ]] ;;
	nohuge) [[ $2 = *,e2e,* ]] ;;
	valgrind) ;;
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

	local vglogs= findings processes unfit
	if [ "$sanitize" = valgrind ]; then
		program_timeout=1500
		# Open to all: some programs change their user.
		vglogs=$(mktemp -d "${TMPDIR:-/tmp}/kvf-valgrind-XXXXXX")
		chmod 1777 "$vglogs"
	fi

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
		if [ -n "$vglogs" ]; then
			unfit=$(valgrind_unfit "$name" "$suites")
			if [ -n "$unfit" ]; then
				printf '  %-28s skipped under valgrind: %s\n' "$name" "$unfit"
				echo "0 0 1" >>"$results"
				continue
			fi
			rm -rf "${vglogs:?}"/*
			mapfile -t wrap < <(valgrind_command "$name" "$vglogs")
			# Its last case makes SIGBUS on the main stack, which valgrind cannot grow there.
			[ "$name" != parts ] || cmd="$cmd ': '"
		fi
		t0=$(date +%s%N)
		rc=0
		run_one "$workdir" "${wrap[*]} $cmd" "$log" || rc=$?
		dt=$((($(date +%s%N) - t0) / 10000000))
		read -r n p f s < <(sum_log "$log")
		verdict=ok
		if [ -n "$vglogs" ]; then
			findings=$(valgrind_findings "$vglogs")
			processes=$(find "$vglogs" -type f | wc -l)
			[ "$processes" -gt 0 ] || findings="valgrind wrote no log"
			if valgrind_clock "$name" && [ "$n" != 0 ] && [ "$f" -gt 0 ]; then
				echo "    $name: $f cases missed their moment, which does not count under valgrind"
				s=$((s + f)) f=0
				[ "$rc" != 1 ] || rc=0
			fi
		fi
		if [ -n "$vglogs" ] && [ -n "$findings" ]; then
			printf 'valgrind:\n%s\n' "$findings" >>"$log"
			verdict="FAILED: valgrind, see below"
			f=$((f + 1))
		elif [ "$f" -gt 0 ]; then
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
			$((dt / 100)) $((dt % 100)) "$verdict${vglogs:+ ($processes processes)}"
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
	[ -z "$vglogs" ] || rm -rf "$vglogs"
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
	--sanitize) add_words sanitizers "none address thread valgrind" "$2" && shift ;;
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
	clang:none | clang:valgrind) groups+=(clang) ;;
	clang:*) groups+=(clang clang-sanitizers) ;;
	esac
done
[[ " ${configs[*]} " != *:valgrind\ * ]] || groups+=(valgrind)
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
	none | valgrind) opts+=(-Db_sanitize=none) ;;
	address) opts+=('-Db_sanitize=address,undefined') ;;
	thread) opts+=(-Db_sanitize=thread) ;;
	esac
	# clang puts the sanitizer's symbols into programs only, so a library cannot resolve them.
	[[ $1 = gcc || $2 = none || $2 = valgrind ]] || opts+=(-Db_lundef=false)
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
	if [ "$sanitize" = valgrind ]; then
		# EAL finds no room for its hugepage tables among valgrind's own.
		phase "$title" "$build" valgrind env KVFERRY_NO_HUGEPAGES=1 KVFERRY_HUGEPAGES=0
	else
		phase "$title: programs that take their own hugepages" "$build" own env
		phase "$title" "$build" lent "$here/hugepages.sh" with "$(hugepages_to_lend)" --
		# The same programs must do without hugepages; no page is lent to them.
		phase "$title: end to end without hugepages" "$build" nohuge \
			env KVFERRY_NO_HUGEPAGES=1 KVFERRY_HUGEPAGES=0
	fi
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
