#!/bin/bash
# What is told of a vGPU on which nothing runs any more is that it uses nothing.
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

a_share_falls_to_nothing_after_the_last_program
sms_are_not_busy_after_the_last_program
status 0 "$belfry" rm once
exit "$failed"
