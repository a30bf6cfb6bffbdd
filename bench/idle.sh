#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# What waiting costs: CPU time of Belfry's processes while a program holds a context and does nothing, and what the
# first launch after a pause takes, native against under Belfry.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
need_gpu
find_programs
make_work

# CPU time of processes in clock ticks; fields 14 and 15 of stat, counted after the name, which may hold spaces.
ticks() {
	local pid sum=0 fields
	for pid; do
		read -ra fields < <(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) || continue
		[ "${#fields[@]}" -lt 13 ] || sum=$((sum + fields[11] + fields[12]))
	done
	echo "$sum"
}

# Whatever Belfry runs for the program, under any name.
belfry_pids() {
	local pid
	for pid in $(family "$1"); do
		case $(cat "/proc/$pid/comm" 2>/dev/null) in timeout | wake | '') ;; *) echo "$pid" ;; esac
	done | sort -u
}

for i in 1 2; do
	native 30 "$BENCH_BIN/wake" | sed -n 's/^{/native {/p' >>"$WORK/wake"
	start_on 40 4G "b-idle-$i" "$BENCH_BIN/wake" --idle 5 >"$WORK/under"
	wait_until 30 grep -q '^idle' "$WORK/under" || { echo "FAILED: the program did not get that far"; exit 1; }
	sleep 1
	pids=$(belfry_pids "$STARTED")
	first=$(ticks $pids)
	sleep 3
	last=$(ticks $pids)
	cpu="$cpu $(awk -v t=$((last - first)) -v hz="$(getconf CLK_TCK)" 'BEGIN { printf "%.1f%%", t * 100 / hz / 3 }')"
	wait "$STARTED"
	sed -n 's/^{/belfry {/p' "$WORK/under" >>"$WORK/wake"
done
awk -f "$HERE/compare.awk" "$WORK/wake"
echo "CPU of $(echo "$pids" | wc -w) Belfry processes while the program is idle, of one core:$cpu"
