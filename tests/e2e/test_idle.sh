#!/bin/bash
# A vGPU without programs is reported to use nothing. An idle program wakes its GPU server by a breakpoint.
# Functions are called by name:
# shellcheck disable=SC1091,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="mem=512M,linger=1,name=idle$$"
load="$BELFRY_BUILD_DIR/bench/load"

uses_nothing() {
	[ "$(figure "$1" time.share)" = 0 ] || [ "$(figure "$1" time.share)" = 0.0 ]
}
is_nothing() { case "$(figure "$1" "$2")" in 0 | 0.0) ;; *) return 1 ;; esac }

a_share_falls_to_nothing_after_the_last_program() {
	status 0 "$belfry" create once --time 10:100
	status 0 "$belfry" run once -- "$load" --per-us 1 --kernel-us 3000 --secs 2 --json
	until_so uses_nothing once
	status 0 "$belfry" explain once
	grep -q 'it had 0.0 % of the GPU' "$work/out" || fail "explain: $(cat "$work/out")"
}

sms_are_not_busy_after_the_last_program() {
	until_so is_nothing '' gpus.0.busy.sm
	is_nothing once busy.sm || fail "busy: $(figure once busy.sm)"
}

breakpoints() { find "/proc/$1/fd" -lname '*perf_event*' 2>/dev/null | wc -l; }
has_breakpoints() { [ "$(breakpoints "$1")" -gt 0 ]; }
has_no_breakpoints() { [ "$(breakpoints "$1")" = 0 ]; }

an_idle_program_has_a_breakpoint_on_its_doorbell() {
	local server program
	"$BELFRY_BUILD_DIR/tests/unit/gate_traps" >/dev/null 2>&1
	if [ $? = 77 ]; then
		echo "no hardware breakpoints here: what depends on them is left out"
		return
	fi
	timeout --foreground 60 "$belfry" run once -- "$BELFRY_BUILD_DIR/bench/wake" --idle 30 >"$work/wake" 2>&1 &
	program=$!
	until_so has_line '^idle' "$work/wake"
	server=$(server_pid once)
	until_so has_breakpoints "$server"
	kill "$program"
	until_so has_no_breakpoints "$server"
}

a_share_falls_to_nothing_after_the_last_program
sms_are_not_busy_after_the_last_program
an_idle_program_has_a_breakpoint_on_its_doorbell
status 0 "$belfry" rm --force once
exit "$failed"
