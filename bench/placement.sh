#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# Placement by what a probe has measured: placement.sh [SECONDS [ROUNDS]] (default 10, 2). Four vGPUs of one domain, two with a
# kernel that is bound by memory and two with one that is bound by the SMs, beside a fifth vGPU of its own: the policy is asked
# when the GPU changes hands. The policy placement decides in all runs, and the
# probe roofline is in all kernels, so it costs the same. In every second run the policy does not look at roofline's numbers.
# The table has the launches of each kind, and how many picks of the policy had a partner. On the software GPU the memory bus
# costs no time: there only the picks mean something. Skipped without a GPU (BELFRY_GPU=soft: the software GPU), and where eBPF
# cannot be loaded.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
help_if_asked "$@"
need_gpu
find_programs
make_work
secs=${1:-10}
rounds=${2:-2}
status=0
never=18446744073709551615

start_daemon
if ! bf policy load placement >"$WORK/policy" 2>&1; then
	echo "skipped: $(cat "$WORK/policy")"
	exit 77
fi
names=(memory1 compute1 memory2 compute2)
for name in "${names[@]}"; do
	create "$name" 0:100 --domain pairs
	bf probe attach roofline --vgpu "$name" >/dev/null || exit 1
done

create other 20:100

# run_all HOW LOOK_NS: all four programs at once.
run_all() {
	local how=$1 jobs=() name
	bf policy load placement --set look_ns="$2" >/dev/null || status=1
	for name in "${names[@]}"; do
		timeout -k 5 $((secs + 120)) "$BELFRY" run --probes "$name" -- "$BENCH_BIN/bound" "${name%?}" "$secs" \
			>"$WORK/$name.json" 2>"$WORK/$name.err" &
		jobs+=($!)
	done
	timeout -k 5 $((secs + 120)) "$BELFRY" run other -- "$BENCH_BIN/bound" compute "$secs" >"$WORK/other.json" \
		2>"$WORK/other.err" &
	jobs+=($!)
	for name in "${jobs[@]}"; do
		wait "$name" || { echo "FAILED: $(tail -1 "$WORK"/*.err)"; status=1; }
	done
	for name in "${names[@]}"; do
		sed -n "s/^{/$how {/p" "$WORK/$name.json" >>"$WORK/results"
	done
	bf policy dump | sed "s/^/$how /" >>"$WORK/picks"
}
for _ in $(seq "$rounds"); do
	run_all without "$never"
	run_all with 1000000000
done
remove_all

awk '
FILENAME ~ /picks$/ { gsub(",", ""); picks[$1] += $3; pairs[$1] += $7; next }
match($0, /"launches_s":[0-9.]*/) { rate = substr($0, RSTART + 13, RLENGTH - 13); kind = /"memory"/ ? "memory" : "compute"; sum[$1, kind] += rate }
function row(how) {
	printf "%-22s %12.1f %12.1f %8d %14d\n", "roofline " how, sum[how, "memory"] / n, sum[how, "compute"] / n, picks[how], pairs[how]
}
END {
	n = '"$rounds"'
	printf "%-22s %12s %12s %8s %14s\n", "placement", "memory, 1/s", "compute, 1/s", "picks", "with a partner"
	row("without"); row("with")
	if (sum["without", "memory"] && sum["without", "compute"])
		printf "%-22s %12.3f %12.3f\n", "ratio", sum["with", "memory"] / sum["without", "memory"], sum["with", "compute"] / sum["without", "compute"]
	exit !(sum["with", "memory"] && sum["with", "compute"] && picks["with"] && pairs["with"])
}' "$WORK/picks" "$WORK/results" || { echo "FAILED: a program did nothing, or the policy placed none"; status=1; }
exit "$status"
