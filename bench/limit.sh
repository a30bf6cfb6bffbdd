#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# A vGPU with a limit, alone on the GPU: limit.sh [SECONDS [LIMIT…]] (default 10, and 20 50 80). Work a second against
# the same vGPU without a limit: single launches, CUDA graphs, and PyTorch's GEMMs where there is PyTorch.
# Goal: within 1 point of the limit.
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
limits=${*:-20 50 80}
is_soft && lengths=1000,10000 short=1000 || lengths=10,100,1000,10000 short=10

# program WAY: sets PROGRAM.
program() {
	case $1 in
	launches) PROGRAM=("${load[@]}" --mix time --kernel-us "$lengths") ;;
	graphs) PROGRAM=("${load[@]}" --kernel-us "$short" --graph 32) ;;
	# of zeros: a GPU at its power limit would be faster for who has less of its time
	gemms) PROGRAM=(python3 "$HERE/pair.py" sizes --calibration "$WORK/sizes" --zeros) ;;
	esac
}

# measure WAY LIMIT: a line "WAY LIMIT work belfry" to $WORK/results.
measure() {
	local way=$1 limit=$2 from to
	bf set b-limit --time "0:$limit" || exit 1
	program "$way"
	start_load $((secs + 120)) b-limit "${PROGRAM[@]}" --secs $((secs + 3))
	begin
	sleep 2
	gpu_times >"$WORK/before"
	from=$(now_ms)
	sleep "$secs"
	to=$(now_ms)
	gpu_times >"$WORK/after"
	finish_loads || status=1
	awk -v ms=$((to - from)) -v way="$way" -v limit="$limit" -v work="$(work_between "$from" "$to" b-limit)" '
		$1 == "b-limit" { ns = $2 - ns } END { print way, limit, work, ns / 1e4 / ms }' "$WORK/before" "$WORK/after" \
		>>"$WORK/results"
}

status=0
start_daemon
calibrate
ways="launches graphs"
if has_torch; then
	calibrate_torch
	ways="$ways gemms"
else
	echo "no PyTorch: its part is left out"
fi
create b-limit 0:100
for way in $ways; do
	for limit in 100 $limits; do
		measure "$way" "$limit"
	done
done
remove_all

awk '
BEGIN { printf "%-10s %8s %14s %12s %12s %8s\n", "load", "limit %", "work ms/s", "by work %", "by Belfry %", "points" }
$2 == 100 {
	whole[$1] = $3
	printf "%-10s %8s %14.2f %12s %12.2f\n", $1, "none", $3, "", $4
	next
}
{
	got = whole[$1] ? $3 * 100 / whole[$1] : 0
	error = got - $2
	if ((error < 0 ? -error : error) > worst)
		worst = error < 0 ? -error : error
	count++
	printf "%-10s %8s %14.2f %12.2f %12.2f %+8.2f\n", $1, $2, $3, got, $4, error
}
END {
	printf "%s: the largest error is %.2f points; goal: 1\n", count && worst <= 1 ? "ok" : "FAILED", worst
	exit !(count && worst <= 1)
}' "$WORK/results" || status=1
exit "$status"
