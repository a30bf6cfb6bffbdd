#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# An inference and a training on one GPU: pair.sh [SECONDS] (default 8). A decode step of 32 layers as a CUDA graph with
# 2 ms of sleep after each, beside GEMMs of 8192^3: each alone, both as the driver shares the GPU, under MPS, under MPS
# with 70 % of the SMs for the GEMMs, and under Belfry. In one run, since ratios to alone are what can be compared.
# The last column is the part of its speed that the training keeps over how many times longer a p99 step takes: 1 would
# be both as if alone. Skipped without an NVIDIA GPU or PyTorch.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
begin_with_torch "$@"
secs=${1:-8}
limit=$((secs + 150))

# start_role ROLE [COMMAND…]: that role of pair.py, started through the command.
start_role() {
	local role=$1
	shift
	start_plain "$limit" "$role" "$@" python3 "$HERE/pair.py" "$role" --secs "$secs"
}

status=0
start_role decode
together alone || status=1
start_role gemm
together alone || status=1
start_role decode
start_role gemm
together driver || status=1
if start_mps; then
	trap 'end_mps; clean_up_jobs; rm -rf "$WORK"' EXIT
	start_role decode "${MPS_CLIENT[@]}"
	start_role gemm "${MPS_CLIENT[@]}"
	together mps || status=1
	start_role decode "${MPS_CLIENT[@]}"
	start_role gemm "${MPS_CLIENT[@]}" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=70
	together mps-70 || status=1
	end_mps # before belfryd is there: what runs under Belfry must not find it
fi
start_daemon
create infer 30:100 --class latency
create train 60:100
start_role decode "$BELFRY" run infer --
start_role gemm "$BELFRY" run train --
together belfry || status=1
bf explain infer >"$WORK/explained" 2>&1
remove_all

awk '
function field(name) {
	return match($0, "\"" name "\":[^,}]*") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0 : 0
}
!($1 in seen) { seen[$1] = 1; order[++ways] = $1 }
/"decode"/ { p50[$1] = field("p50_ms"); p99[$1] = field("p99_ms"); most[$1] = field("max_ms") }
/"gemm"/ { tflops[$1] = field("tflops") }
END {
	printf "%-8s %9s %9s %9s %9s %10s %10s %10s\n", "", "p50 ms", "p99 ms", "max ms", "TFLOP/s", "p99 ratio",
		"GEMM ratio", "GEMM/p99"
	for (k = 1; k <= ways; k++) {
		way = order[k]
		longer = p99["alone"] ? p99[way] / p99["alone"] : 0
		kept = tflops["alone"] ? tflops[way] / tflops["alone"] : 0
		printf "%-8s %9.3f %9.3f %9.3f %9.1f %10.2f %10.3f %10.3f\n", way, p50[way], p99[way], most[way], tflops[way],
			longer, kept, longer ? kept / longer : 0
	}
	exit !(tflops["belfry"] && p99["belfry"])
}' "$WORK/results" || status=1
[ "$status" = 0 ] && echo ok || echo "FAILED: a run gave no figures, or wrong results"
exit "$status"
