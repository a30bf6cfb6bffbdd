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

# Whatever Belfry runs for the program, under any name.
belfry_pids() {
	local pid
	for pid in $(family "$1"); do
		case $(cat "/proc/$pid/comm" 2>/dev/null) in timeout | wake | '') ;; *) echo "$pid" ;; esac
	done | sort -u
}

for i in 1 2; do
	native 30 "$BENCH_BIN/wake" | sed -n 's/^{/native {/p' >>"$WORK/wake"
	start_on 60 4G "b-idle-$i" "$BENCH_BIN/wake" --idle 14 >"$WORK/under"
	wait_until 30 grep -q '^idle' "$WORK/under" || { echo "FAILED: the program did not get that far"; exit 1; }
	sleep 1
	pids=$(belfry_pids "$STARTED")
	cpu="$cpu $(cpu_percent 10 $pids) %"
	wait "$STARTED"
	sed -n 's/^{/belfry {/p' "$WORK/under" >>"$WORK/wake"
done
awk -f "$HERE/compare.awk" "$WORK/wake"
echo "CPU of $(echo "$pids" | wc -w) Belfry processes while the program is idle, of one core:$cpu"
