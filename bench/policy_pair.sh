#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# What a loaded policy costs: policy_pair.sh [SECONDS [ROUNDS [POLICY]]] (default 5, 2, fair). The pair of pair.sh (a decode
# step with 2 ms after it, beside GEMMs of 8192^3), with the built-in policy and with the same one as eBPF, in turn, under
# the same processes. Goal: p50, p99 and TFLOP/s within 1 %. Skipped without an NVIDIA GPU or PyTorch.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
. "$HERE/segments.sh"
begin_with_torch "$@"
secs=${1:-5}
rounds=${2:-2}
policy=${3:-fair}
status=0

start_daemon
create infer 30:100 --class latency
create train 60:100
common=(--secs "$secs" --segments $((rounds * 4)))
start_program infer serve "${common[@]}" --gap-ms 2 --high 4 --low 4 --tokens 4000 --seed 1
start_program train train "${common[@]}"
run_rounds "$rounds" built-in "$policy"
finish_loads || status=1
remove_all

awk -v other="$policy" '
function field(name) {
	return match($0, "\"" name "\":[^,}]*") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0 : 0
}
/"serve"/ { n[$1]++; p50[$1] += field("p50_ms"); p99[$1] += field("p99_ms"); steps[$1] += field("steps") }
/"train"/ { tflops[$1] += field("tflops") }
function row(name) {
	printf "%-12s %9.4f %9.4f %9d %9.1f\n", name, p50[name] / n[name], p99[name] / n[name], steps[name], tflops[name] / n[name]
}
END {
	printf "%-12s %9s %9s %9s %9s\n", "policy", "p50 ms", "p99 ms", "steps", "TFLOP/s"
	row("built-in")
	row(other)
	a = p50[other] / p50["built-in"]; b = p99[other] / p99["built-in"]; c = tflops[other] / tflops["built-in"]
	printf "%-12s %9.4f %9.4f %9s %9.4f\n", "ratio", a, b, "", c
	exit !(a <= 1.01 && b <= 1.01 && c >= 0.99)
}' "$WORK/results" || { echo "FAILED: more than 1 %"; status=1; }
cat "$WORK/policies.1"
[ "$status" = 0 ] && echo ok
exit "$status"
