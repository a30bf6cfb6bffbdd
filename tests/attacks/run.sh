#!/bin/bash
# SPDX-License-Identifier: MIT
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2317
# The attacks, one line each: run.sh [--list] [pattern]: those whose name has it in it; =name: that one alone.
# Each is started on a vGPU with a small limit. It fails if the attack succeeds, and if what is seen from outside is not
# as it should be: more memory than the limit, a ledger that differs from the driver's count, a neighbour or a request
# that waits, anything left when it has ended. With BELFRY_GPU=soft, on the software GPU.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../gpu/common.sh"

ATTACKS="
reuse_a_handle
reuse_a_dead_makers_handle
free_what_is_exported
free_what_is_duplicated
free_what_cuda_keeps
export_over_an_export
race_a_control
race_a_passed_call
race_a_managed_map
swap_the_file
hide_control_files
stall_the_supervisor
stall_by_descriptors
pass_files_outside
duplicate_a_neighbours_memory
use_belfrys_handles
call_by_other_numbers
map_what_is_not_prepared
write_into_the_pipe
free_the_subdevice
refused_classes
odd_threads
not_dumpable
bad_arguments
close_under_a_call
short_lived_clients
thousands_of_clients
exhaust_descriptors
send_messages
"

MIB=$((1 << 20))
LS_LIMIT_MS=500 # 50 on a machine that has nothing else to do

# mem_of ATTACK: its vGPU's limit in MiB.
mem_of() {
	case $1 in
	free_what_cuda_keeps) is_soft && echo 256 || echo 2048 ;;
	*) echo 64 ;;
	esac
}

options_of() {
	case $1 in
	race_a_control) echo --timeslice 2ms ;;
	esac
}

# mem_figure NAME FIGURE: of a vGPU, in bytes: limit, used, named, driver.
mem_figure() {
	timeout 20 "$BELFRY" ls --json 2>/dev/null | awk -v name="\"$1\"," -v figure="\"$2\":" '
		$1 == "\"name\":" { is_it = $2 == name }
		$1 == "\"mem\":" { is_mem = is_it }
		is_mem && $1 == figure { printf "%.0f\n", $2; exit }'
}

is_there() { timeout 20 "$BELFRY" ls 2>/dev/null | grep -q "^$1 "; }
server_pid() { timeout 20 "$BELFRY" ls --json 2>/dev/null | awk '$1 == "\"server_pid\":" { print $2 + 0; exit }'; }
server_files() { find "/proc/$SERVER/fd" -mindepth 1 2>/dev/null | wc -l; }

# What there is of the attack, seen from outside: nothing, once it has ended.
traces() {
	echo "descriptors=$(server_files)"
	if is_soft; then
		for figure in used clients channels; do
			echo "$figure=$(soft_status $figure)"
		done
	fi
}
no_traces() { [ "$(traces)" = "$TRACES" ]; }

within_limit() {
	local used
	used=$(mem_figure "$NAME" used)
	[ "${used:-0}" -le "$LIMIT" ] || { echo "seen from outside: $used bytes of $LIMIT are in use"; FAULTS=$((FAULTS + 1)); }
}

# The ledger's count of names, and the driver's: the same, once nothing is under way.
counts_agree() {
	local named driver
	named=$(mem_figure "$NAME" named)
	driver=$(mem_figure "$NAME" driver)
	COUNTS="named $named, by the driver $driver"
	[ -n "$named" ] && [ "$named" = "$driver" ]
}

# A call of belfry's, timed: WORST_MS is the longest.
timed_ls() {
	local began took
	began=$(date +%s%N)
	timeout 20 "$BELFRY" ls --json >/dev/null || { echo "belfry ls fails"; return 1; }
	took=$((($(date +%s%N) - began) / 1000000))
	[ "$took" -le "$WORST_MS" ] || WORST_MS=$took
}

# Orders of an attack (dev_ask).
order_look() { within_limit; wait_until 3 counts_agree || { echo "seen from outside: $COUNTS"; return 1; }; }
order_stop() { timeout 20 "$BELFRY" stop "$NAME"; }
order_resume() { timeout 20 "$BELFRY" resume "$NAME"; }
order_hold() { timeout 20 "$BELFRY" hold "$NAME"; }
order_open() { timeout 20 "$BELFRY" open "$NAME"; }

order_neighbour() {
	local status
	WORST_MS=0
	start_on 40 16M a-neighbour "$BIN/neighbour" 4 >"$WORK/neighbour" 2>&1
	while kill -0 "$STARTED" 2>/dev/null; do
		timed_ls || break
		sleep 0.02
	done
	wait "$STARTED"
	status=$?
	cat "$WORK/neighbour"
	echo "belfry ls: $WORST_MS ms at most"
	[ "$status" = 0 ] && [ "$WORST_MS" -le "$LS_LIMIT_MS" ]
}

order_victim() {
	rm -f "$WORK/victim"
	start_on 40 16M a-victim "$BIN/neighbour" 3 "$WORK/victim" >"$WORK/neighbour" 2>&1
	VICTIM=$STARTED
	wait_until 20 test -s "$WORK/victim"
}
order_victim-goes-on() { wait "$VICTIM"; }

order_receiver() {
	rm -f "$WORK/socket"
	if is_soft; then
		env "$("$BELFRY" soft env --soft "$BELFRY_SOFT" | grep ^BELFRY_SOFT_DIR=)" "$BIN/receiver" "$WORK/socket" &
	else
		"$BIN/receiver" "$WORK/socket" &
	fi
	wait_until 10 test -S "$WORK/socket"
}

# Read what the attack says, and do what it asks for, until it has ended.
serve() {
	local part line='' status
	while :; do
		IFS= read -r -t 0.3 -u "$FROM" part
		status=$?
		line=$line$part # the time may be over in the middle of a line
		if [ $status -gt 128 ]; then
			within_limit
			continue
		fi
		[ $status = 0 ] || break
		case $line in
		@*) "order_${line#@}" && echo ok >&"$TO" || echo no >&"$TO" ;;
		*) echo "$line" ;;
		esac
		line=''
	done
}

attack() {
	local attack=$1 mem status
	mem=$(mem_of "$attack")
	NAME=a-${attack//_/-} LIMIT=$((mem * MIB)) FAULTS=0
	rm -f "$WORK/to" "$WORK/from"
	mkfifo "$WORK/to" "$WORK/from"
	# shellcheck disable=SC2046 # options
	ATTACK_LIMIT=$LIMIT ATTACK_SOCKET=$WORK/socket ATTACK_VICTIM=$WORK/victim timeout -k 5 100 \
		"$BELFRY" run --name "$NAME" --mem "${mem}M" $(options_of "$attack") -- "$BIN/$attack" <"$WORK/to" >"$WORK/from" 2>&1 &
	STARTED_ATTACK=$!
	exec {TO}>"$WORK/to" {FROM}<"$WORK/from"
	serve
	exec {TO}>&- {FROM}<&-
	wait "$STARTED_ATTACK"
	status=$?
	[ "$status" != 0 ] || [ "$FAULTS" = 0 ] || status=1
	if [ "$(server_pid)" != "$SERVER" ]; then
		echo "the GPU server has died"
		return 1
	fi
	wait_until 10 no_traces || { echo "left: $(traces | tr '\n' ' '), before: $(echo "$TRACES" | tr '\n' ' ')"; status=1; }
	! is_there "$NAME" || { echo "the vGPU is left"; status=1; }
	return "$status"
}

run_one() {
	local name=$1 start status took
	start=$(date +%s%N)
	(trap clean_up_jobs EXIT; attack "$name") >"$WORK/out" 2>&1
	status=$?
	took=$((($(date +%s%N) - start) / 10000000))
	took=$((took / 100)).$(printf %02d $((took % 100)))
	case $status in
	0) passed=$((passed + 1)); printf '%-32s %-9s %7s  %s\n' "$name" held "$took" "$(grep '^held: ' "$WORK/out" | cut -c7-)" ;;
	77) skipped=$((skipped + 1)); printf '%-32s %-9s %7s  %s\n' "$name" skipped "$took" "$(grep '^skipped: ' "$WORK/out" | cut -c10-)" ;;
	*)
		failed=$((failed + 1))
		printf '%-32s %-9s %7s  status %s\n' "$name" FAILED "$took" "$status"
		tail -25 "$WORK/out" | sed 's/^/    /'
		;;
	esac
	[ -z "${ATTACKS_VERBOSE:-}" ] || sed 's/^/    /' "$WORK/out"
}

is_wanted() {
	case ${2:-} in
	=*) [ "$1" = "${2#=}" ] ;;
	*) [[ $1 == *"${2:-}"* ]] ;;
	esac
}

if [ "${1:-}" = --list ]; then
	# shellcheck disable=SC2086 # a list
	printf '%s\n' $ATTACKS
	exit 0
fi
need_gpu
probe=$(first_program "$HERE/neighbour" "$BUILD/tests/attacks/neighbour") || { echo "no attacks: run make" >&2; exit 2; }
BIN=$(dirname "$probe")
BELFRY=$(first_program "${BELFRY:-/nonexistent}" "$ROOT/bin/belfry" "$BUILD/belfry") || { echo "no belfry: set BELFRY" >&2; exit 2; }
make_work
if is_soft; then # a belfryd and a GPU of its own
	export BELFRY_RUNTIME_DIR=$WORK/run BELFRY_SOFT="name=attacks-$$,mem=1G,linger=1"
	unset BELFRY_SOFT_DIR BELFRY_SOCKET
fi
export BELFRY_LINGER=${BELFRY_LINGER:-1}
trap 'timeout 20 "$BELFRY" rm attacks-stay 2>/dev/null; clean_up_jobs; rm -rf "$WORK"' EXIT
# A vGPU that stays, so that the GPU server does: what it has when nothing runs is what it must have after each attack.
"$BELFRY" create attacks-stay --mem 16M || exit 1
on 30 16M attacks-first "$BIN/neighbour" 1 >"$WORK/out" 2>&1 || { cat "$WORK/out"; echo "nothing runs on a vGPU"; exit 1; }
wait_until 10 eval '! is_there attacks-first'
SERVER=$(server_pid)
sleep 0.5
TRACES=$(traces)
passed=0 failed=0 skipped=0
printf '%-32s %-9s %7s\n' attack result seconds
for attack in $ATTACKS; do
	is_wanted "$attack" "${1:-}" && run_one "$attack"
done
echo "$passed held, $failed failed, $skipped skipped"
[ "$((passed + failed))" != 0 ] || exit 77
[ "$failed" = 0 ]
