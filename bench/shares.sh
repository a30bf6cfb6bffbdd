#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# Who asked for how much of the GPU's time, and who got it: shares.sh [SECONDS [SET…]] (default 10, and 10:90 25:75
# 5:15:30:50 5:5:10:10:15:15:20:20). Each vGPU of a set has a busy program: kernels from 10 us to 100 ms mixed, then
# a length of its own for each, then PyTorch's GEMMs of 512 to 8192 where there is PyTorch. Measured after 2 s.
# Goal: every share of the work done within 1 point of what was asked.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
help_if_asked "$@"
need_gpu
find_programs
make_work
load=("$BENCH_BIN/load" --calibration "$WORK/calibration")
secs=${1:-10}
shift $(($# ? 1 : 0))
sets=${*:-10:90 25:75 5:15:30:50 5:5:10:10:15:15:20:20}
# below 1 ms the software GPU is as slow as the machine it runs on
is_soft && lengths=(1000 3000 10000 30000 100000) || lengths=(10 100 1000 10000 100000)

# program WAY NUMBER: sets PROGRAM to what the vGPU of that number runs.
program() {
	local all
	all=$(IFS=, && echo "${lengths[*]}")
	case $1 in
	mixed) PROGRAM=("${load[@]}" --mix time --seed "$2" --kernel-us "$all") ;;
	each) PROGRAM=("${load[@]}" --kernel-us "${lengths[$2 % ${#lengths[@]}]}") ;;
	gemm) PROGRAM=(python3 "$HERE/pair.py" sizes --calibration "$WORK/sizes" --seed "$2") ;;
	esac
}

# measure SET WAY: lines "SET WAY vGPU asked work belfry", the last two as rates, to $WORK/results.
measure() {
	local set=$1 way=$2 asked i=0 from to
	for asked in ${set//:/ }; do
		create "b-$i" "$asked:100"
		program "$way" "$i"
		start_load $((secs + 200)) "b-$i" "${PROGRAM[@]}" --secs $((secs + 3))
		i=$((i + 1))
	done
	begin
	sleep 2
	gpu_times >"$WORK/before"
	from=$(now_ms)
	sleep "$secs"
	to=$(now_ms)
	gpu_times >"$WORK/after"
	finish_loads || status=1
	i=0
	for asked in ${set//:/ }; do
		echo "$set $way b-$i $asked $(work_between "$from" "$to" "b-$i") $(awk -v name="b-$i" '
			$1 == name { ns = $2 - ns } END { printf "%.0f", ns }' "$WORK/before" "$WORK/after")"
		i=$((i + 1))
	done >>"$WORK/results"
	remove_all
}

status=0
start_daemon
calibrate
ways="mixed each"
if has_torch; then
	calibrate_torch
	ways="$ways gemm"
else
	echo "no PyTorch: its part is left out"
fi
for set in $sets; do
	for way in $ways; do
		measure "$set" "$way"
	done
done

awk '
{
	key = $1 " " $2
	if (!(key in work))
		order[++keys] = key
	line[key, ++count[key]] = $0
	work[key] += $5
	belfry[key] += $6
}
END {
	printf "%-24s %-6s %-5s %7s %10s %12s %8s %8s\n", "set", "load", "vGPU", "asked %", "by work %", "by Belfry %",
		"points", "points"
	for (k = 1; k <= keys; k++) {
		key = order[k]
		for (i = 1; i <= count[key]; i++) {
			split(line[key, i], f, " ")
			got = work[key] ? f[5] * 100 / work[key] : 0
			told = belfry[key] ? f[6] * 100 / belfry[key] : 0
			e = got - f[4]
			b = told - f[4]
			if (e < 0 ? -e > worst : e > worst)
				worst = e < 0 ? -e : e
			if (b < 0 ? -b > most : b > most)
				most = b < 0 ? -b : b
			printf "%-24s %-6s %-5s %7.1f %10.2f %12.2f %+8.2f %+8.2f\n", f[1], f[2], f[3], f[4], got, told, e, b
		}
		# more than 100 % is possible: the clocks are not those of the calibration
		printf "%-24s %-6s %-5s %7s %10.2f of what the GPU does for one program\n", f[1], f[2], "all", "", work[key] / 10
	}
	printf "%s: the largest error is %.2f points by work, %.2f by Belfry'"'"'s count; goal: 1\n",
		keys && worst <= 1 ? "ok" : "FAILED", worst, most
	exit !(keys && worst <= 1)
}' "$WORK/results" || status=1
exit "$status"
