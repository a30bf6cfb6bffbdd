# shellcheck shell=bash disable=SC2015,SC2034,SC2086
# Sourced by test_*.sh (bash). Gives the test its own folder and its own software GPU, and functions that start belfryd and
# loads and read what Belfry reports. Sets work, belfry, load and failed. A command that could hang runs under `timeout`.
: "${BELFRY:?}" "${BELFRY_BUILD_DIR:?}"
belfry=$BELFRY
load="$BELFRY_BUILD_DIR/bench/load"
failed=0
work=$(mktemp -d /tmp/belfry-e2e.XXXXXX) # not in TMPDIR: the path of a socket is limited to 107 bytes
export BELFRY_RUNTIME_DIR="$work/run" BELFRY_GPU=soft BELFRY_LINGER=1
unset BELFRY_SOFT_DIR BELFRY_SOCKET

# Ends only processes that this test started. A private belfryd with vGPUs does not end by itself.
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

# skip WHY: end the test as skipped.
skip() {
	echo "skipped: $*"
	exit 77
}

# Whether Belfry was built with a sanitizer. Everything takes many times as long then.
is_sanitized() { grep -qE '__(asan|tsan)_init' "$belfry"; }

# Whether this is root, and may become another user. Root of a container may know no other user.
knows_others() { [ "$(id -u)" = 0 ] && setpriv --reuid=65534 --regid=65534 --clear-groups true 2>/dev/null; }

# need_policies: skip where the kernel or the user's rights do not allow eBPF programs.
need_policies() {
	timeout 20 "$belfry" policy check fair >"$work/out" 2>&1 || { cat "$work/out"; fail "fair is refused"; exit 1; }
	! grep -q '^not verified' "$work/out" || skip "$(grep '^not verified' "$work/out")"
}

# status WANTED COMMAND...: run it to its end. Its output is in $work/out and $work/err.
status() {
	local wanted=$1 got
	shift
	timeout 600 "$@" >"$work/out" 2>"$work/err"
	got=$?
	[ "$got" = "$wanted" ] || fail "$* : status $got, not $wanted: $(cat "$work/err")"
}

# says TEXT WHAT: the last command printed TEXT on stderr.
says() { grep -qF -- "$1" "$work/err" || fail "$2: $(cat "$work/err")"; }

# user_name UID: the user's name, or the number if it has no name.
user_name() { id -un "$1" 2>/dev/null || echo "$1"; }

# until_so COMMAND...: wait until it succeeds. Fails the test after five minutes: the host may be busy.
until_so() {
	local end=$((SECONDS + 300))
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || { fail "$* : did not come to be"; return 1; }
		sleep 0.05
	done
}

is_there() { timeout 20 "$belfry" ls 2>/dev/null | grep -q "^$1 "; }
is_not_there() { ! is_there "$1"; }
has_line() { grep -q -- "$1" "$2" 2>/dev/null; }
# The process does not exist any more, or is a zombie.
is_gone() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }
all_gone() {
	local pid
	for pid; do
		is_gone "$pid" || return 1
	done
}
child_of() { cat "/proc/$1/task/$1/children" 2>/dev/null; }

# The process of belfryd, which is the first in the answer; of the GPU server of a vGPU; of all GPU servers.
router_pid() { timeout 20 "$belfry" ls --json 2>/dev/null | awk '$1 == "\"pid\":" { print $2 + 0; exit }'; }
server_pid() { timeout 20 "$belfry" stats "$1" 2>/dev/null | awk '$1 == "pid" { print $2; exit }'; }
server_pids() {
	timeout 20 "$belfry" ls --json 2>/dev/null | awk '$1 == "\"server_pid\":" && $2 + 0 { print $2 + 0 }'
}

# figure NAME PATH: a value of `belfry stats --json NAME`, such as time.gpu_ns. With an empty NAME, a value of
# `belfry stats --json`, such as gpus.0.mem.used.
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

# soft_figure NAME: a value of `belfry soft status --json`.
soft_figure() {
	timeout 20 "$belfry" soft status --json 2>/dev/null | awk -F'[:,]' -v name="\"$1\"" '
		index($1, name) { gsub(/[^0-9]/, "", $2); print $2; exit }'
}
soft_is() { [ "$(soft_figure "$1")" = "$2" ]; }

# use_daemon: the test uses a belfryd of its own, which other users can reach, instead of a private one.
use_daemon() {
	: "${BELFRYD:?}"
	belfryd=$BELFRYD
	export BELFRY_SOCKET="$work/d/belfryd.sock"
	chmod 755 "$work"
	mkdir -m 755 "$work/d"
	printf '[server]\n' >"$work/conf"
}

# start_daemon [OPTION...]: start belfryd with the configuration $work/conf, on the software GPU if no option names a GPU.
# Its process is $daemon, its log $work/log.
start_daemon() {
	[ $# != 0 ] || set -- --gpu soft
	"$belfryd" --socket "$BELFRY_SOCKET" --config "$work/conf" "$@" >>"$work/log" 2>&1 &
	daemon=$!
	until_so daemon_answers || { cat "$work/log"; exit 1; }
}
daemon_answers() { [ "$(router_pid)" = "$daemon" ] && [ -n "$(server_pids)" ]; }

# confined COMMAND...: with a seccomp filter and no_new_privs, as a unit of systemd may have them.
confined() {
	python3 -c '
import ctypes, os, struct, sys
PR_SET_SECCOMP, MODE_FILTER, PR_SET_NO_NEW_PRIVS = 22, 2, 38
libc = ctypes.CDLL(None)
allow = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(allow)))
assert not libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
assert not libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(program), 0, 0)
os.execv(sys.argv[1], sys.argv[1:])' "$@"
}

# ended PID: wait until this child has ended; returns its status.
ended() {
	until_so is_gone "$1" || return
	wait "$1" 2>/dev/null
}
end_daemon() {
	kill -TERM "$daemon"
	ended "$daemon"
	! grep -i 'assert\|sanitizer' "$work/log" || fail "belfryd's log"
}

# configure_vgpus NAME KEY=VALUE... NAME...: a configuration with these sections of vGPUs.
configure_vgpus() {
	local word
	echo '[server]' >"$work/conf"
	for word; do
		case "$word" in
		*=*) echo "${word%%=*} = ${word#*=}" ;;
		*) echo "[vgpu $word]" ;;
		esac
	done >>"$work/conf"
}
# vgpu_is NAME REQUEST MIB: what the vGPU is promised of the time, and its memory limit.
vgpu_is() {
	[ "$(figure "$1" time.request)" = "$2" ] && [ "$(figure "$1" mem.limit)" = "$(($3 << 20))" ] ||
		fail "$1: request $(figure "$1" time.request), memory $(figure "$1" mem.limit), not $2 and $3 MiB"
}

# start_load NAME [OPTION...]: a load on that vGPU until `stop_loads NAME`. It prints its results to $work/NAME.json and
# creates $work/NAME.ready when it runs. load_scale says how much work a microsecond of a kernel is.
declare -A loads
load_scale=(--per-us 1)
start_load() {
	local name=$1
	shift
	rm -f "$work/$name".{ready,stop}
	timeout 1210 "$belfry" run "$name" -- "$load" "${load_scale[@]}" --kernel-us 3000 --secs 1200 "$@" \
		--ready "$work/$name.ready" --until "$work/$name.stop" --json >"$work/$name.json" 2>"$work/$name.err" &
	loads[$name]=$!
}
# until_ready NAME...: wait until these loads run.
until_ready() {
	local name
	for name; do
		until_so test -e "$work/$name.ready"
	done
}
# stop_loads NAME...: end them. Each must end well and have computed the right result.
stop_loads() {
	local name
	for name; do
		: >"$work/$name.stop"
	done
	for name; do
		wait "${loads[$name]}" && has_line '"wrong":0,' "$work/$name.json" ||
			fail "the load on $name: $(cat "$work/$name.err")"
	done
}
