#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# A latency program beside a program that rings 60 doorbells without pause: flood.sh [SECONDS [ROUNDS]] (default 3 and 7).
# A round measures launch and wait in four cases: alone; beside a program that stores to memory of its own without pause,
# which has the CPU time of a flood and no ring; beside a flood of rings for its own channel, which has nothing new; beside a
# flood of rings with a token that no channel has. The table has medians over the rounds: p50 and p99, the ratio of p99 to
# the same round alone and beside the stores, and the CPU time of the poller. Goal: p99 beside a flood within 10 % of p99
# beside the stores; with more than 4 processors, also within 10 % of p99 alone. With fewer, the program, the attacker, the
# poller and the software GPU compete for processors, and the comparison with the stores says what part is the poller's.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
help_if_asked "$@"
need_gpu
find_programs
make_work
secs=${1:-3}
rounds=${2:-7}
status=0

# The poller's CPU time in ms, whichever vGPU it worked for.
gate_ms() {
	bf stats --json | awk -F'[:,]' '/"gate_cpu_ns":/ { gsub(/ /, "", $2); printf "%.0f\n", $2 / 1e6; exit }'
}

# round CASE [OPTION…]: measure; beside `flood OPTION…` if there are any. A line "CASE P50 P99 CPU%" to $WORK/results.
round() {
	local case=$1 first last start
	shift
	start_load $((secs + 60)) latency "$BENCH_BIN/flood" --measure --secs "$secs"
	[ $# = 0 ] || start_load $((secs + 60)) flood "$BENCH_BIN/flood" "$@" --secs "$((secs + 1))"
	first=$(gate_ms)
	begin
	start=$(now_ms)
	finish_loads || status=1
	last=$(gate_ms)
	awk -v case="$case" -v cpu="$(((last - first) * 100 / ($(now_ms) - start)))" '
	function field(name) { return match($0, "\"" name "\":[0-9.]*") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) : "" }
	/p99_us/ { print case, field("p50_us"), field("p99_us"), cpu }' "$WORK/latency.json" >>"$WORK/results"
}

start_daemon
create latency 20:100 --class latency
create flood 0:100
for _ in $(seq "$rounds"); do
	round alone
	round stores --ring 0
	round flood --ring 60
	round strange --ring 60 --strange
done
remove_all

awk -v cpus="$(nproc)" '
function median(list, n, v, i, j, t) {
	n = split(list, v, " ")
	for (i = 2; i <= n; i++)
		for (j = i; j > 1 && v[j] + 0 < v[j - 1] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
	return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}
$1 == "alone" { alone = $3 }
$1 == "stores" { stores = $3 }
{
	p50[$1] = p50[$1] " " $2
	p99[$1] = p99[$1] " " $3
	cpu[$1] = cpu[$1] " " $4
	if (alone) to_alone[$1] = to_alone[$1] " " $3 / alone
	if (stores) to_stores[$1] = to_stores[$1] " " $3 / stores
}
END {
	split("alone stores flood strange", cases, " ")
	printf "%-10s %10s %10s %10s %10s %13s\n", "beside", "p50 us", "p99 us", "to alone", "to stores", "poller CPU %"
	for (i = 1; i <= 4; i++) {
		c = cases[i]
		if (!p99[c]) exit 1
		printf "%-10s %10.1f %10.1f %10.2f %10s %13.0f\n", c, median(p50[c]), median(p99[c]), median(to_alone[c]),
			(i == 1 ? "-" : sprintf("%.2f", median(to_stores[c]))), median(cpu[c])
		if (i > 2 && median(cpus > 4 ? to_alone[c] : to_stores[c]) > 1.1) over = 1
	}
	exit over
}' "$WORK/results" || { echo "FAILED: a flood of rings costs its neighbour more than 10 %"; status=1; }
[ "$status" = 0 ] && echo ok
exit "$status"
