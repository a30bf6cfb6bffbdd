#!/bin/bash
# Many vGPUs, many processes and many kills on the software GPU: nothing is left of any of them, and the result of a
# neighbour stays right.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2016,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="mem=1G,linger=2,name=many$$"
saxpy="$BELFRY_BUILD_DIR/tests/gpu/gpu_saxpy"
many_vgpus="$BELFRY_BUILD_DIR/tests/e2e/many_vgpus"
idle=200 processes=50 kills=60
! is_sanitized || processes=10 kills=15
RANDOM=$$
files_most=$(ulimit -Hn)
if [ "$files_most" != unlimited ] && [ "$files_most" -lt 4096 ]; then
	skip "a process may open $files_most files here (ulimit -Hn), and the software GPU of many needs 4096"
fi

use_daemon
start_daemon
server=$(server_pids)

# The descriptors and threads of belfryd and its GPU server, and the clients, channels and memory of the software GPU.
files() { find "/proc/$1/fd" -mindepth 1 2>/dev/null | wc -l; }
threads() { find "/proc/$1/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l; }
counts() {
	echo "$(files "$daemon") $(files "$server") $(threads "$server") $(soft_figure clients) $(soft_figure channels) $(soft_figure used)"
}
# Killed processes are cleaned up after a while.
as_before() { now=$(counts) && [ "$now" = "$before" ]; }
check_counts() {
	until_so as_before || fail "$1: before and after: '$before', '$now' (descriptors, descriptors and threads of the GPU server, clients, channels, memory)"
}
vgpus() { timeout 20 "$belfry" ls | awk 'NR > 1' | wc -l; }
vgpus_are() { [ "$(vgpus)" = "$1" ]; }

# The first program creates what stays: objects of the software GPU and of the GPU server.
status 0 "$belfry" run -- "$saxpy"
until_so soft_is channels 0
until_so vgpus_are 0
# The thread and the descriptors of its vGPU are released a moment later.
settled() { before=$(counts) && sleep 0.3 && as_before; }
until_so settled

# Idle vGPUs.
status 0 "$many_vgpus" create idle- $idle mem 4M time 0.1
[ "$(vgpus)" = $idle ] || fail "$(vgpus) of $idle vGPUs are listed"
status 0 "$belfry" ls --json
python3 -c 'import json, sys; sys.exit(len(json.load(open(sys.argv[1]))["vgpus"]) != int(sys.argv[2]))' "$work/out" $idle ||
	fail "ls --json does not list them all"
[ "$(figure "" gpus.0.mem.reserved)" = $((idle << 22)) ] || fail "$(figure "" gpus.0.mem.reserved) bytes are set aside"
status 1 "$belfry" create more --time 80.1
status 0 "$belfry" run idle-$idle -- "$load" --per-us 1 --launches 5
status 0 "$many_vgpus" remove idle- $idle
[ "$(vgpus)" = 0 ] || fail "$(vgpus) vGPUs are left"
check_counts "$idle idle vGPUs"

# Many runs on one vGPU at the same time.
status 0 "$belfry" create crowd --mem 512M
pids=()
for number in $(seq $processes); do
	timeout 600 "$belfry" run crowd -- "$saxpy" >"$work/crowd.$number" 2>&1 &
	pids+=($!)
done
for number in "${!pids[@]}"; do
	wait "${pids[number]}" || fail "process $number of $processes: $(cat "$work/crowd.$((number + 1))")"
done
until_so is_figure crowd mem.used 0
status 0 "$belfry" rm crowd
check_counts "$processes processes on one vGPU"

# Processes are killed at random moments, beside a program whose result is checked.
timeout 1000 "$belfry" run --name steady --time 50 -- "$load" --per-us 1 --kernel-us 1000 --secs 900 --ready "$work/ready" \
	--until "$work/enough" --json >"$work/steady" 2>"$work/steady.err" &
steady=$!
until_so test -e "$work/ready"
family() {
	local pid
	echo "$1"
	for pid in $(child_of "$1"); do
		family "$pid"
	done
}
left=()
for number in $(seq $kills); do
	case $((number % 4)) in
	3) # a command that asks, instead of a run
		timeout 20 "$belfry" stats --json >/dev/null 2>&1 &
		runner=$!
		victim=$runner
		;;
	*)
		"$belfry" run --name "v$number" -- sh -c '"$1" --times 50; exit 0' sh "$saxpy" >/dev/null 2>&1 &
		runner=$!
		;;
	esac
	sleep "0.$((RANDOM % 3))$((RANDOM % 10))"
	mapfile -t tree < <(family $runner)
	case $((number % 4)) in
	0) victim=$runner ;;
	1) victim=$(child_of $runner) ;;
	2) victim=$(child_of "$(child_of $runner)") ;;
	esac
	# The process does not exist yet, or any more: belfry is killed instead.
	[[ $victim =~ ^[0-9]+ ]] || victim=$runner
	kill -9 "${BASH_REMATCH[0]:-$victim}" 2>/dev/null
	left+=("${tree[@]}")
done 2>/dev/null
until_so all_gone "${left[@]}" || fail "processes are left"
until_so vgpus_are 1
: >"$work/enough"
wait $steady && has_line '"wrong":0,' "$work/steady" || fail "the steady program: $(cat "$work/steady" "$work/steady.err")"
until_so vgpus_are 0
check_counts "$kills deaths"
status 0 "$belfry" run -- "$saxpy"
[ "$(router_pid) $(server_pids)" = "$daemon $server" ] || fail "belfryd or its GPU server is another one"
exit "$failed"
