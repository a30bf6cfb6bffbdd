#!/bin/bash
# SPDX-License-Identifier: MIT
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2034,SC2317
# run.sh [--list] [--container] [PATTERN]: the attacks, or those that PATTERN selects (is_wanted in ../gpu/common.sh). With
# --container each attack runs in a container on its vGPU (../gpu/container.sh).
# Prints one line for each. Each attack runs on a vGPU with a small limit. It fails if the attack succeeds, and if any of
# these is seen from outside: more memory than the limit, a ledger that differs from the driver's count, a neighbour or a
# request that waits, anything left after the end. With BELFRY_GPU=soft it uses the software GPU.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../gpu/common.sh"
. "$HERE/../../bench/vgpus.sh"
. "$HERE/../gpu/container.sh"

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
# How long belfry ls may take beside an attack. An attack that holds up the server delays most requests, so the median is
# limited; it is below 50 ms on an idle machine. A single request also waits for a processor on a busy machine.
LS_MEDIAN_MS=500
LS_WORST_MS=10000

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

# limit_s ATTACK: the most seconds that it may take. A busy machine takes several times as long.
limit_s() {
	case $1 in
	exhaust_descriptors) echo 300 ;;
	*) echo 100 ;;
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

# server_targets: the open files of the GPU server, one a line, without the numbers of sockets and pipes.
server_targets() {
	find "/proc/$SERVER/fd" -mindepth 1 -printf '%l\n' 2>/dev/null | sed 's/^\(socket\|pipe\):\[[0-9]*\]$/\1/' | sort
}

# What there is of the attack, seen from outside: nothing, once it has ended.
traces() {
	echo "descriptors=$(server_files)"
	if is_soft; then
		for figure in used clients channels; do
			echo "$figure=$(soft_status $figure)"
		done
	fi
}
# no_more NOW BEFORE: no figure is larger than before. Fewer is no leak: the GPU server may have closed a connection of an
# earlier `belfry ls`, or the file that reports faults, which it closes when the driver refuses to read it.
no_more() {
	local line
	while read -r line; do
		[ "${line#*=}" -le "$(sed -n "s/^${line%%=*}=//p" <<<"$2")" ] || return 1
	done <<<"$1"
}
no_traces() { no_more "$(traces)" "$TRACES"; }
# What the GPU server has when nothing runs: figures that have stayed the same for half a second.
settled_traces() {
	local last='' now same=0
	for _ in $(seq 100); do
		now=$(traces)
		[ "$now" = "$last" ] && same=$((same + 1)) || same=0
		[ "$same" -lt 5 ] || break
		last=$now
		sleep 0.1
	done
	echo "$now"
}
# The files that it has opened or closed since then, for people.
changed_targets() { diff <(echo "$TARGETS") <(server_targets) | sed -n -e 's/^>/opened:/p' -e 's/^</closed:/p'; }

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

# Appends the duration of one belfry ls to LS_MS.
timed_ls() {
	local began
	began=$(date +%s%N)
	timeout 20 "$BELFRY" ls --json >/dev/null || { echo "belfry ls fails"; return 1; }
	LS_MS+=($((($(date +%s%N) - began) / 1000000)))
}

# Orders of an attack (dev_ask).
order_look() { within_limit; wait_until 3 counts_agree || { echo "seen from outside: $COUNTS"; return 1; }; }
order_stop() { timeout 20 "$BELFRY" stop "$NAME"; }
order_resume() { timeout 20 "$BELFRY" resume "$NAME"; }
order_hold() { timeout 20 "$BELFRY" hold "$NAME"; }
order_open() { timeout 20 "$BELFRY" open "$NAME"; }

order_neighbour() {
	local status sorted median worst
	LS_MS=()
	start_on 40 16M a-neighbour "$BIN/neighbour" 4 >"$WORK/neighbour" 2>&1
	while kill -0 "$STARTED" 2>/dev/null; do
		timed_ls || break
		sleep 0.02
	done
	wait "$STARTED"
	status=$?
	cat "$WORK/neighbour"
	mapfile -t sorted < <(printf '%s\n' "${LS_MS[@]}" | sort -n)
	median=${sorted[${#sorted[@]} / 2]} worst=${sorted[-1]}
	echo "belfry ls, ${#sorted[@]} times: median $median ms, at most $worst ms"
	[ "$status" = 0 ] && [ "$median" -le "$LS_MEDIAN_MS" ] && [ "$worst" -le "$LS_WORST_MS" ]
}

order_victim() {
	rm -f "$SHARED/victim"
	start_on 40 16M a-victim "$BIN/neighbour" 3 "$SHARED/victim" >"$WORK/neighbour" 2>&1
	VICTIM=$STARTED
	wait_until 20 test -s "$SHARED/victim"
}
order_victim-goes-on() { wait "$VICTIM"; }

order_receiver() {
	rm -f "$SHARED/socket"
	if is_soft; then
		env "$("$BELFRY" soft env --soft "$BELFRY_SOFT" | grep ^BELFRY_SOFT_DIR=)" "$BIN/receiver" "$SHARED/socket" &
	else
		"$BIN/receiver" "$SHARED/socket" &
	fi
	wait_until 10 test -S "$SHARED/socket"
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

# launch_run ATTACK OPTION..., launch_container ATTACK OPTION...: run it on a vGPU with these options, which is removed then.
launch_run() {
	local attack=$1
	shift
	ATTACK_LIMIT=$LIMIT ATTACK_SOCKET=$SHARED/socket ATTACK_VICTIM=$SHARED/victim exec timeout -k 5 "$(limit_s "$attack")" \
		"$BELFRY" run --name "$NAME" "$@" -- "$BIN/$attack"
}
launch_container() {
	local attack=$1 status
	shift
	EXTRA_ENV=("ATTACK_LIMIT=$LIMIT" "ATTACK_SOCKET=$SHARED/socket" "ATTACK_VICTIM=$SHARED/victim")
	[ "$attack" != stall_the_supervisor ] || EXTRA_CAPS=(CAP_SYS_PTRACE) # for userfaultfd
	bf create "$NAME" "$@" </dev/null && write_marks </dev/null || return
	in_container "$(limit_s "$attack")" "$NAME" "$NAME" "$BIN/$attack"
	status=$?
	bf rm --force "$NAME" </dev/null || return
	return "$status"
}

attack() {
	local attack=$1 mem status
	mem=$(mem_of "$attack")
	NAME=a-${attack//_/-} LIMIT=$((mem * MIB)) FAULTS=0
	rm -f "$WORK/to" "$WORK/from"
	mkfifo "$WORK/to" "$WORK/from"
	# shellcheck disable=SC2046 # options
	"$LAUNCH" "$attack" --mem "${mem}M" $(options_of "$attack") <"$WORK/to" >"$WORK/from" 2>&1 &
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
	changed_targets
	! is_there "$NAME" || { echo "the vGPU is left"; status=1; }
	return "$status"
}

run_one() {
	local name=$1 start status took
	start=$(date +%s%N)
	(trap clean_up_jobs EXIT; attack "$name") >"$WORK/out" 2>&1
	status=$?
	took=$(seconds_since "$start")
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

if [ "${1:-}" = --list ]; then
	# shellcheck disable=SC2086 # a list
	printf '%s\n' $ATTACKS
	exit 0
fi
LAUNCH=launch_run
if [ "${1:-}" = --container ]; then
	shift
	LAUNCH=launch_container
	own_namespace bash "$0" --container "$@"
fi
need_gpu
probe=$(first_program "$HERE/neighbour" "$BUILD/tests/attacks/neighbour") || { echo "no attacks: run make" >&2; exit 2; }
BIN=$(dirname "$probe")
BELFRY=$(first_program "${BELFRY:-/nonexistent}" "$ROOT/bin/belfry" "$BUILD/belfry") || { echo "no belfry: set BELFRY" >&2; exit 2; }
make_work
SHARED=$WORK/shared
mkdir "$SHARED"
if is_soft; then # a belfryd and a GPU of its own
	export BELFRY_RUNTIME_DIR=$WORK/run BELFRY_SOFT="name=attacks-$$,mem=1G,linger=1"
	unset BELFRY_SOFT_DIR BELFRY_SOCKET
fi
export BELFRY_LINGER=${BELFRY_LINGER:-1}
[ "$LAUNCH" = launch_run ] || start_containers
trap 'timeout 20 "$BELFRY" rm attacks-stay 2>/dev/null; [ -z "${DAEMON_JOB:-}" ] || end_daemon; clean_up_jobs; rm -rf "$WORK"' EXIT
# A vGPU that stays, so that the GPU server does: what it has when nothing runs is what it must have after each attack.
"$BELFRY" create attacks-stay --mem 16M || exit 1
on 30 16M attacks-first "$BIN/neighbour" 1 >"$WORK/out" 2>&1 || { cat "$WORK/out"; echo "nothing runs on a vGPU"; exit 1; }
wait_until 10 eval '! is_there attacks-first'
SERVER=$(server_pid)
no_more $'descriptors=26\nused=0' $'descriptors=27\nused=0' && ! no_more $'descriptors=28\nused=0' $'descriptors=27\nused=0' &&
	! no_more $'descriptors=27\nused=1' $'descriptors=27\nused=0' || { echo "the comparison of what is left is wrong"; exit 2; }
TRACES=$(settled_traces)
TARGETS=$(server_targets)
passed=0 failed=0 skipped=0
printf '%-32s %-9s %7s\n' attack result seconds
for attack in $ATTACKS; do
	is_wanted "$attack" "${1:-}" && run_one "$attack"
done
echo "$passed held, $failed failed, $skipped skipped"
[ "$((passed + failed))" != 0 ] || exit 77
[ "$failed" = 0 ]
