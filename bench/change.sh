#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# How soon a change of the shares is felt: change.sh [TIMES] (default 20). Two busy vGPUs of 50:50; belfry set makes it
# 20:80 and back, so often. From the return of the last belfry set to the end of the first 100 ms (a round) in which the
# shares of the work done are within 5 points of the new ones; and the same of 20 ms, which is shorter than a slice, for
# who has set a shorter round: how much of the time the shares stay there tells which of them means something.
# Goal: 50 ms and those 100 ms; no launch lost or done twice.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
help_if_asked "$@"
need_gpu
find_programs
make_work
times=${1:-20}

# change A B: lower one first, there is no more than all of the GPU to promise. A line "TIME A" to $WORK/changes.
change() {
	local names=("b-0 $1" "b-1 $2") pair
	[ "$1" -lt "$2" ] || names=("b-1 $2" "b-0 $1")
	for pair in "${names[@]}"; do
		bf set "${pair% *}" --time "${pair#* }:100" || { echo "FAILED: belfry set ${pair% *}"; status=1; }
	done
	echo "${EPOCHREALTIME//,/.} $1" >>"$WORK/changes"
	sleep 0.5
}

status=0
start_daemon
calibrate
for name in b-0 b-1; do
	create "$name" 50:100
	start_load $((times * 4 + 120)) "$name" "$BENCH_BIN/load" --calibration "$WORK/calibration" --kernel-us 1000 \
		--in-flight 16 --bucket-ms 5 --secs $((times * 4 + 60)) --until "$WORK/enough"
done
begin
sleep 2
for _ in $(seq "$times"); do
	change 20 80
	change 50 50
done
touch "$WORK/enough"
finish_loads || status=1
remove_all

sed -n 's/^{/b-0 {/p' "$WORK/b-0.json" >"$WORK/all"
sed -n 's/^{/b-1 {/p' "$WORK/b-1.json" >>"$WORK/all"
cat "$WORK/changes" >>"$WORK/all"
awk '
function field(name) {
	return match($0, "\"" name "\":[^,}]*") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0 : 0
}
function sort_up(v, n,    i, j, t) {
	for (i = 2; i <= n; i++)
		for (j = i; j > 1 && v[j - 1] > v[j]; j--) {
			t = v[j]; v[j] = v[j - 1]; v[j - 1] = t
		}
}
# whether b-0 has what was asked, in the buckets from `at` on
function is_near(at, buckets, asked,    i, a, b) {
	for (i = at; i < at + buckets; i++) {
		a += work["b-0", i]
		b += work["b-1", i]
	}
	return a + b > 0 && a * 100 / (a + b) - asked <= 5 && asked - a * 100 / (a + b) <= 5
}
# the row of windows of so many ms; 1 if it meets the goal
function row(window,    c, k, n, never, later, stayed, settled, took, goal) {
	goal = 50 + window
	for (c = 1; c <= changes; c++) {
		settled = -1
		for (k = int(at[c] / width) + 1; k * width + window <= at[c + 1]; k++)
			if (settled >= 0) {
				later++
				stayed += is_near(k, window / width, asked[c])
			} else if (is_near(k, window / width, asked[c]))
				settled = k * width + window - at[c]
		if (settled < 0)
			never++
		else
			took[++n] = settled
	}
	sort_up(took, n)
	printf "%4d ms %9d %9.1f ms %9.1f ms %7d %7d ms %19.1f %%\n", window, changes, n ? took[int((n + 1) / 2)] : 0,
		n ? took[n] : 0, never, goal, later ? stayed * 100 / later : 0
	return n && !never && took[n] <= goal
}
/"buckets"/ {
	width = field("bucket_ms")
	first = field("first_ms")
	if (!base)
		base = first
	who = $1
	sub(/.*"buckets":\[/, "")
	sub(/\].*/, "")
	count = split($0, list, ",")
	for (i = 1; i <= count; i++)
		work[who, (first - base) / width + i - 1] = list[i]
	next
}
{ at[++changes] = $1 * 1000 - base; asked[changes] = $2 }
END {
	at[changes + 1] = at[changes] + 500
	printf "%7s %9s %12s %12s %7s %10s %21s\n", "shares", "changes", "median", "worst", "never", "goal", "there from then on"
	row(20)
	is_right = row(100)
	exit !is_right
}' "$WORK/all" || status=1
[ "$status" = 0 ] && echo "ok" || echo "FAILED"
exit "$status"
