#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# Whatever dies, nobody else notices: faults.sh [TIMES [carry]] (default 1000). Two steady programs on vGPUs of their
# own, and so often a short run of which one part is killed with -9 at a random moment: the program, belfry, the
# keeper between them, or a client of belfryd in the middle of a request; several at a time. With `carry`, belfryd has
# on_daemon_death = carry, and every 50th time its router is killed, too, and started again. SEED sets the random numbers.
# Goal: the steady programs' results are right; no process, channel or client is left; belfryd has no more descriptors
# than before and at most 1 MiB or a tenth more memory; nothing hangs. (What grows by right: up to 272 KiB of names of
# vGPUs past, for traces, and some pages of stacks and heaps. So 1000 times show a leak of 1 KiB each.)
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
help_if_asked "$@"
need_gpu
find_programs
make_work
times=${1:-1000}
is_carry=${2:-}
seed=${SEED:-1}
# The moment is anywhere from the first instant to well after the first launch, which takes longer on a real GPU.
if is_soft; then
	workers=4 moment_ms=500 own_mem=64M
else
	workers=16 moment_ms=2500 own_mem=1G
fi
warm=$((workers * 4)) # until belfryd has what it needs once
hang_s=30
status=0
: >"$WORK/hits"

bad() {
	echo "FAILED: $*"
	status=1
}

is_gone() {
	[ ! -e "/proc/$1" ] || [ "$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null)" = Z ]
}

are_gone() {
	local pid
	for pid; do
		is_gone "$pid" || return 1
	done
}

# pick KIND PID: what of the run of that process to kill: belfry itself, its child, or the last of its line.
pick() {
	local line
	read -ra line <<<"$(family "$2" | xargs)"
	case $1 in
	belfry) echo "$2" ;;
	keeper) echo "${line[1]:-$2}" ;;
	program) echo "${line[2]:-$2}" ;;
	esac
}

# A random part of a run, or a request, cut off. A line "KIND ok|hung|left" to the hits.
# kill_a_run WORKER NUMBER
kill_a_run() {
	local kinds=(program belfry keeper) run=(run "b-victim-$1" --) said=ok kind pid those victim ms
	kind=${kinds[RANDOM % 3]}
	[ $((RANDOM % 2)) = 0 ] || run=(run --name "b-own-$2" --mem "$own_mem" --)
	BENCH_VICTIM=$WORK "$BELFRY" "${run[@]}" "$BENCH_BIN/load" --calibration "$WORK/calibration" --kernel-us 1000,5000 \
		--in-flight 8 --secs 20 >/dev/null 2>"$WORK/victim-$1.err" &
	pid=$!
	ms=$((RANDOM % moment_ms))
	sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
	those=$(family "$pid")
	victim=$(pick "$kind" "$pid")
	kill -9 "$victim" 2>/dev/null || kind=too-late
	wait_until "$hang_s" is_gone "$pid" || { said=hung; kill -9 "$pid"; }
	wait "$pid" 2>/dev/null
	wait_until "$hang_s" are_gone $those || said=left
	echo "$kind $said" >>"$WORK/hits"
}

kill_a_request() {
	local requests=("ls --json" "stats --json" "explain b-victim-$1" "set b-victim-$1 --time 0:$((RANDOM % 50 + 50))"
		"create b-request-$1" "rm b-request-$1" "trace -o $WORK/trace-$1.json") request pid said=ok
	request=${requests[RANDOM % ${#requests[@]}]}
	BENCH_VICTIM=$WORK "$BELFRY" $request >/dev/null 2>&1 &
	pid=$!
	sleep "0.$(printf %04d $((RANDOM % 80)))"
	kill -9 "$pid" 2>/dev/null
	wait_until "$hang_s" is_gone "$pid" || said=hung
	wait "$pid" 2>/dev/null
	echo "request $said" >>"$WORK/hits"
}

# work WORKER COUNT FIRST
work() {
	local i
	RANDOM=$((seed * 1000 + $1))
	for i in $(seq "$3" $(($3 + $2 - 1))); do
		if [ $((RANDOM % 4)) = 0 ]; then
			kill_a_request "$1"
		else
			kill_a_run "$1" "$1-$i"
		fi
	done 2>/dev/null # "Killed": what else
}

hits() {
	wc -l <"$WORK/hits"
}

kill_router() {
	local pid
	pid=$(daemon_pid)
	[ -n "$pid" ] && kill -9 "$pid" || { bad "belfryd is not there to be killed"; return 1; }
	wait_until "$hang_s" is_gone "$pid" || bad "the killed belfryd is still there"
	wait "$DAEMON_JOB" 2>/dev/null
	launch_daemon
	routers=$((routers + 1))
}

# faults COUNT: that many, by all workers; the router's in between.
faults() {
	local pids=() i each=$((($1 + workers - 1) / workers)) start next
	start=$(hits)
	next=$((start + 50))
	for i in $(seq "$workers"); do
		work "$i" "$each" "$start" &
		pids+=($!)
	done
	while ! are_gone "${pids[@]}"; do
		sleep 0.2
		if [ "$is_carry" = carry ] && [ "$(hits)" -ge "$next" ]; then
			next=$((next + 50))
			kill_router 2>/dev/null || break # "Killed": likewise
		fi
	done
	wait "${pids[@]}"
}

# state: what belfryd has, as lines "NAME VALUE".
state() {
	local pid fds=0 kib=0 name
	for pid in $(daemon_pid) $(server_pids); do
		fds=$((fds + $(find "/proc/$pid/fd" -mindepth 1 2>/dev/null | wc -l)))
		kib=$((kib + $(awk '/^VmRSS/ { print $2 }' "/proc/$pid/status" 2>/dev/null || echo 0)))
	done
	echo "descriptors $fds"
	echo "rss_kib $kib"
	bf ls --json | awk '
		/"name":/ { is_victim = /"b-(victim|own|request)-/; if (/"b-own-/) own++ }
		/"processes":/ { here = 1 }
		/"runs":/ { here = 0 }
		is_victim && here && /"pid":/ { processes++ }
		is_victim && /"channels":/ { gsub(/[^0-9]/, ""); channels += $0 }
		END { print "vgpus_left", own + 0; print "processes_left", processes + 0; print "channels_left", channels + 0 }'
	echo "programs_left $(grep -lsa "BENCH_VICTIM=$WORK" /proc/[0-9]*/environ | wc -l)"
	is_soft || return 0
	for name in files clients channels; do
		echo "soft_$name $(soft_status "$name")"
	done
}

# What is left of runs goes within moments, not at once: wait for it.
is_quiet() {
	state >"$WORK/now"
	awk '
		FNR == NR { before[$1] = $2; next }
		$1 ~ /_left$/ && $2 > 0 { more = 1 }
		$1 ~ /^soft_/ && $2 > before[$1] { more = 1 }
		$1 == "descriptors" && $2 > before[$1] { more = 1 }
		END { exit more }' "$WORK/before" "$WORK/now"
}

# shellcheck disable=SC2034 # read by start_daemon
[ "$is_carry" != carry ] || SERVER_LINES='on_daemon_death = carry'
routers=0
start_daemon
[ "$is_carry" != carry ] || [ -n "$IS_OURS" ] || { echo "carry: only with a belfryd of this script's own"; exit 2; }
calibrate
for i in 0 1; do
	create "b-steady-$i" 20:100
	# on the software GPU a gap leaves processors to the rest
	start_load 3600 "b-steady-$i" "$BENCH_BIN/load" --calibration "$WORK/calibration" --kernel-us 500,2000 --in-flight 4 \
		--gap-us "$(is_soft && echo 5000 || echo 100)" --secs 3500 --until "$WORK/enough"
done
for i in $(seq "$workers"); do
	create "b-victim-$i" 0:100
	MADE+=("b-request-$i")
done
begin
touch "$WORK/before"
# What a vGPU has from its first program on is there before anything is counted.
for i in $(seq "$workers"); do
	bf run "b-victim-$i" -- "$BENCH_BIN/load" --calibration "$WORK/calibration" --kernel-us 1000 --launches 1 >/dev/null
done
faults "$warm"
is_quiet
sleep 2
state >"$WORK/before"
: >"$WORK/hits"
routers=0
began=$SECONDS
faults "$times"
took=$((SECONDS - began))
wait_until 30 is_quiet
state >"$WORK/after"
for i in 0 1; do
	are_gone "${LOADS[i]}" && bad "steady program $i ended too soon"
done
touch "$WORK/enough"
finish_loads || status=1
for i in $(seq "$workers"); do
	bf create "b-request-$i" >/dev/null 2>&1 # so that there is something to remove
done
remove_all

printf '%-12s %8s %8s\n' killed times "as meant"
for kind in program belfry keeper request too-late; do
	printf '%-12s %8d %8d\n' "$kind" "$(grep -c "^$kind " "$WORK/hits")" "$(grep -c "^$kind ok" "$WORK/hits")"
done
[ "$is_carry" != carry ] || printf '%-12s %8d\n' router "$routers"
printf '%-16s %10s %10s\n' "" before after
awk 'FNR == NR { before[$1] = $2; next } { printf "%-16s %10d %10d\n", $1, before[$1], $2 }' "$WORK/before" "$WORK/after"
grep -q ' hung' "$WORK/hits" && bad "$(grep -c ' hung' "$WORK/hits") hung for $hang_s s"
grep -q ' left' "$WORK/hits" && bad "$(grep -c ' left' "$WORK/hits") left processes behind"
[ "$(hits)" -ge "$times" ] || bad "only $(hits) of $times happened"
awk '
	FNR == NR { before[$1] = $2; next }
	$1 ~ /_left$/ && $2 > 0 { bad = bad " " $1 }
	$1 ~ /^soft_/ && $2 > before[$1] { bad = bad " " $1 }
	$1 == "descriptors" && $2 > before[$1] { bad = bad " " $1 }
	$1 == "rss_kib" && $2 > before[$1] * 1.1 && $2 > before[$1] + 1024 { bad = bad " " $1 }
	END { if (bad) { print "FAILED: more than before:" bad; exit 1 } }' "$WORK/before" "$WORK/after" || status=1
[ "$status" = 0 ] && echo "ok: $(hits) in $took s" || { echo "FAILED, after $(hits) in $took s; SEED=$seed"; tail -3 "$WORK/belfryd.log"; }
exit "$status"
