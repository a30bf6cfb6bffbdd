#!/bin/bash
# hold, open, stop and resume in every state of a vGPU: the table in docs/sharing.md, line by line, with a program that
# submits all the time. And what --for does beside a stop.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2034,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="mem=256M,linger=1,name=orders$$"

# to STATE: from any state, by commands whose effect does not depend on it.
to() {
	status 0 "$belfry" open busy
	case $1 in
	open) ;;
	held) status 0 "$belfry" hold busy ;;
	stopped) status 0 "$belfry" stop busy ;;
	both) status 0 "$belfry" hold busy && status 0 "$belfry" stop busy ;;
	esac
	is_in "$1" || fail "it is not $1 to begin with: $(state)"
}
# told NAME KEY...: values of `belfry stats --json NAME`. It is called often, and figure() is slower.
told() {
	timeout 20 "$belfry" stats --json "$1" | tr -d '",' |
		awk -v keys="${*:2}" '{ value[$1] = $2 } END { for (n = split(keys, key, " "); i++ < n;) print value[key[i] ":"] }' | paste -sd' '
}
state() { told "${1:-busy}" gate held; }
is_in() {
	case $1 in
	open) [ "$(state)" = 'open false' ] ;;
	held) [ "$(state)" = 'held true' ] ;;
	stopped) [ "$(state)" = 'stopped false' ] ;;
	both) [ "$(state)" = 'stopped true' ] ;;
	esac
}
submitted() { told busy forwards; }
has_submitted() { [ "$(submitted)" -gt "$1" ]; }

# does STATE: whether submissions reach the GPU, as they should in that state.
does() {
	local before
	is_in "$1" || fail "$2: it is '$(state)', not $1"
	before=$(submitted)
	if [ "$1" = open ]; then
		until_so has_submitted "$before"
	else
		sleep 0.05 # in which a program that gets through submits often
		[ "$(submitted)" = "$before" ] || fail "$2: submissions reach the GPU"
	fi
}

every_command_in_every_state() {
	local from hold open stop resume command
	while read -r from hold open stop resume; do
		for command in hold open stop resume; do
			to "$from"
			status 0 "$belfry" "$command" busy
			does "${!command}" "$command when $from"
			# Once more changes nothing.
			status 0 "$belfry" "$command" busy
			does "${!command}" "$command twice when $from"
		done
	done <<'END'
open    held open stopped open
held    held open both    held
stopped both open stopped open
both    both open both    held
END
}

the_time_of_a_hold_does_not_end_a_stop() {
	to stopped
	status 0 "$belfry" hold busy --for 50ms
	until_so is_in stopped
	does stopped "a hold that is over, of a stopped vGPU"
	status 0 "$belfry" resume busy
	does open "resume after a hold that is over"
	# A stop does not end the time of a hold.
	to open
	status 0 "$belfry" hold busy --for 300ms
	status 0 "$belfry" stop busy
	until_so is_in stopped
	to open
	status 0 "$belfry" hold busy --for 50ms
	until_so is_in open
	does open "a hold that is over"
}

a_hold_replaces_the_time_of_the_last() {
	to open
	status 0 "$belfry" hold busy --for 100ms
	status 0 "$belfry" hold busy
	sleep 0.3
	does held "a hold without a time after one with"
	to open
}

an_order_to_a_vgpu_without_programs_is_kept() {
	status 0 "$belfry" create later
	status 0 "$belfry" hold later
	status 0 "$belfry" stop later
	status 0 "$belfry" resume later
	[ "$(state later)" = 'held true' ] || fail "hold, stop and resume without programs: $(state later)"
	status 0 "$belfry" open later
	status 0 "$belfry" run later -- "$BELFRY_BUILD_DIR/bench/load" --per-us 1 --kernel-us 100 --secs 30 --launches 5 --sync
	status 0 "$belfry" rm later
}

status 0 "$belfry" create busy
timeout 300 "$belfry" run busy -- "$BELFRY_BUILD_DIR/bench/load" --per-us 1 --kernel-us 200 --secs 280 --sync >"$work/load" 2>&1 &
until_so has_submitted 0
every_command_in_every_state
the_time_of_a_hold_does_not_end_a_stop
a_hold_replaces_the_time_of_the_last
an_order_to_a_vgpu_without_programs_is_kept
status 0 "$belfry" rm --force busy
wait
exit "$failed"
