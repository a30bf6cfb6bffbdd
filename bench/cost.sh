#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# What one vGPU costs its program, native against under Belfry in turn, and what belfryd costs when nothing happens:
# cost.sh [PAIRS [PYTORCH-PAIRS [VGPUS]]] (default 5, 3 and 1000). CPU time over 10 s with no vGPU, with an idle program,
# and with idle vGPUs. Goal: programs within 1 % (a launch that is waited for, of one empty kernel or of a graph of 32 tiny
# ones, has microseconds instead: 1.5 more), and 1 % of one core.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
help_if_asked "$@"
need_gpu
find_programs
make_work
pairs=${1:-5}
torch_pairs=${2:-3}
vgpus=${3:-1000}
status=0

run_native() {
	native 120 "$@" 2>>"$WORK/err" | sed -n 's/^{/native {/p'
}

run_belfry() {
	timeout -k 5 120 "$BELFRY" run b-cost -- "$@" 2>>"$WORK/err" | sed -n 's/^{/belfry {/p'
}

# pair NUMBER LOG program…: one native run, one on the vGPU, who is first changes: the second finds the GPU warmer. Only
# whole lines of JSON are kept.
pair() {
	local number=$1 log=$2 order=(run_native run_belfry) one
	shift 2
	[ $((number % 2)) = 1 ] || order=(run_belfry run_native)
	for one in "${order[@]}"; do
		"$one" "$@" >>"$log"
	done
}

# idle_cpu WHAT: a line "WHAT PROCESSES PERCENT" to $WORK/cpu.
idle_cpu() {
	local pids
	sleep 2
	pids=$(daemon_family)
	printf '%s\t%d\t%s\n' "$1" "$(echo "$pids" | wc -w)" "$(cpu_percent 10 $pids)" >>"$WORK/cpu"
}

start_daemon
idle_cpu "no vGPU"
create b-cost 50:100
timeout -k 5 60 "$BELFRY" run b-cost -- "$BENCH_BIN/wake" --idle 20 >"$WORK/idle" 2>&1 &
idle=$!
wait_until 30 grep -q '^idle' "$WORK/idle" || { echo "FAILED: the idle program did not get that far"; cat "$WORK/idle"; exit 1; }
idle_cpu "an idle program"
wait "$idle" || status=1
for i in $(seq "$vgpus"); do
	bf create "b-$i" --time 0:100 || { echo "FAILED: b-$i could not be made"; status=1; break; }
done
idle_cpu "$vgpus idle vGPUs"
for i in $(seq "$vgpus"); do
	bf rm "b-$i" >/dev/null || break
done

for i in $(seq "$pairs"); do
	pair "$i" "$WORK/api" "$BENCH_BIN/overhead" --repeats "$(is_soft && echo 1 || echo 7)"
done
if has_torch; then
	for i in $(seq "$torch_pairs"); do
		pair "$i" "$WORK/torch" python3 "$HERE/overhead_torch.py"
	done
else
	echo "no PyTorch: its part is left out"
fi
remove_all

for log in "$WORK/api" "$WORK/torch"; do
	[ -e "$log" ] || continue
	[ "$(grep -c ^native "$log")" -gt 0 ] && [ "$(grep -c ^native "$log")" = "$(grep -c ^belfry "$log")" ] ||
		{ echo "FAILED: a run gave no figures"; tail -5 "$WORK/err"; status=1; }
	awk -f "$HERE/compare.awk" "$log" >"$WORK/table"
	cat "$WORK/table"
	cat "$WORK/table" >>"$WORK/tables"
done
awk -F'\t' '
BEGIN { printf "%-24s %10s %12s\n", "belfryd when idle", "processes", "% of a core" }
{ printf "%-24s %10d %12.2f\n", $1, $2, $3; if ($3 > 1) over = 1; n++ }
END { exit n < 3 || over }' "$WORK/cpu" || { echo "FAILED: more than 1 % of a core"; status=1; }
# of times less is better, of TFLOP/s more; the fourth column is the difference, the fifth the ratio
slow=$(awk '
	$1 == "launch_sync_us" || $1 == "graph_step_us" { if ($4 > 1.5) print $1; next }
	$1 ~ /_us$|_ms$/ && $5 > 1.01 { print $1 }
	$1 ~ /tflops$/ && $5 < 0.99 { print $1 }' "$WORK/tables" | xargs)
if is_soft; then
	echo "the software GPU is as fast as this machine: its speed is not judged"
elif [ -n "$slow" ]; then
	echo "FAILED: costs too much: $slow"
	status=1
fi
[ "$status" = 0 ] && echo ok
exit "$status"
