# shellcheck shell=bash disable=SC2034,SC2086
# Sourced by test_*.sh (bash): a folder and a software GPU of the test's own, and how to look at what Belfry does.
# Sets work, belfry, failed. Commands that could hang go through `timeout`.
: "${BELFRY:?}" "${BELFRY_BUILD_DIR:?}"
belfry=$BELFRY
failed=0
work=$(mktemp -d /tmp/belfry-e2e.XXXXXX) # not in TMPDIR: the path of a socket has little room
export BELFRY_RUNTIME_DIR="$work/run" BELFRY_GPU=soft BELFRY_LINGER=1
unset BELFRY_SOFT_DIR BELFRY_SOCKET

# Only what this test started, by number: a private belfryd with vGPUs would not end by itself.
clean_up() {
	local pids
	pids="$(jobs -p) $(router_pid)"
	[ -z "${pids// /}" ] || kill $pids 2>/dev/null
	for _ in $(seq 100); do
		all_gone $pids && break
		sleep 0.1
	done
	all_gone $pids || kill -9 $pids 2>/dev/null
	wait 2>/dev/null
	timeout 20 "$belfry" soft stop 2>/dev/null
	rm -rf "$work"
}
trap clean_up EXIT

fail() {
	echo "FAILED: $*"
	failed=1
}

# status WANTED COMMAND...: run it to its end; what it said is in $work/out and $work/err.
status() {
	local wanted=$1 got
	shift
	timeout 100 "$@" >"$work/out" 2>"$work/err"
	got=$?
	[ "$got" = "$wanted" ] || fail "$* : status $got, not $wanted: $(cat "$work/err")"
}

# says TEXT WHAT: the last command said so on stderr.
says() { grep -qF -- "$1" "$work/err" || fail "$2: $(cat "$work/err")"; }

# user_name UID: as people are told; the number if it has no name.
user_name() { id -un "$1" 2>/dev/null || echo "$1"; }

# until_so COMMAND...: wait for something that happens soon, or fail.
until_so() {
	local end=$((SECONDS + 60))
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || { fail "$* : did not come to be"; return 1; }
		sleep 0.02
	done
}

is_there() { timeout 20 "$belfry" ls 2>/dev/null | grep -q "^$1 "; }
is_not_there() { ! is_there "$1"; }
has_line() { grep -q -- "$1" "$2" 2>/dev/null; }
# Gone, or a zombie that waits for its parent alone.
is_gone() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }
all_gone() {
	local pid
	for pid; do
		is_gone "$pid" || return 1
	done
}
child_of() { cat "/proc/$1/task/$1/children" 2>/dev/null; }

# The process of belfryd, the first in the answer; that of a vGPU's GPU server; those of all GPU servers.
router_pid() { timeout 20 "$belfry" ls --json 2>/dev/null | awk '$1 == "\"pid\":" { print $2 + 0; exit }'; }
server_pid() { timeout 20 "$belfry" stats "$1" 2>/dev/null | awk '$1 == "pid" { print $2; exit }'; }
server_pids() {
	timeout 20 "$belfry" ls --json 2>/dev/null | awk '$1 == "\"server_pid\":" && $2 + 0 { print $2 + 0 }'
}

# figure NAME PATH: a value of `belfry stats --json NAME`, such as time.gpu_ns; `figure "" gpus.0.mem.used` of all.
figure() {
	timeout 20 "$belfry" stats --json ${1:+"$1"} 2>/dev/null | python3 -c '
import json, sys
at = json.load(sys.stdin)
path = sys.argv[2].split(".")
for key in (["vgpus", "0"] if sys.argv[1] else []) + path:
    at = at[int(key)] if isinstance(at, list) else at[key]
print(at)' "$1" "$2" 2>/dev/null
}
is_figure() { [ "$(figure "$1" "$2")" = "$3" ]; }

# soft_figure NAME: of `belfry soft status`.
soft_figure() {
	timeout 20 "$belfry" soft status --json 2>/dev/null | awk -F'[:,]' -v name="\"$1\"" '
		index($1, name) { gsub(/[^0-9]/, "", $2); print $2; exit }'
}
soft_is() { [ "$(soft_figure "$1")" = "$2" ]; }
