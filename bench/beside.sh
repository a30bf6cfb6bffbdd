#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# Saturated inference beside training: beside.sh [SECONDS] (default 6). A decode step of 32 layers as a CUDA graph, back to
# back, beside GEMMs of 8192^3: each alone; as the driver shares the GPU; under MPS; under MPS with 40 % of the SMs for the
# decoding and 60 % for the GEMMs; under Belfry by turns, with shares of the time that give the same decode rates as the
# partitions below; and in a shared domain with 40 and 50 % of the SMs for the decoding. What counts is the GEMM throughput at
# the same decode rate. Skipped without an NVIDIA GPU or PyTorch.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
begin_with_torch "$@"
secs=${1:-6}
limit=$((secs + 150))
status=0

# start_role ROLE [COMMAND…]: that role of pair.py, started through the command.
start_role() {
	local role=$1 options=()
	shift
	[ "$role" = gemm ] || options=(--every-ms 0)
	start_plain "$limit" "$role" "$@" python3 "$HERE/pair.py" "$role" "${options[@]}" --secs "$secs"
}

# The rate of decoding by this way, as a percentage of alone.
rate_of() {
	awk -v way="$1" '
	/"decode"/ && match($0, /"steps_s":[0-9.]*/) { rate[$1] = substr($0, RSTART + 10, RLENGTH - 10) }
	END { printf "%d\n", rate["alone"] ? 100 * rate[way] / rate["alone"] + 0.5 : 0 }' "$WORK/results"
}

# space WAY PERCENT: that part of the SMs for the decoding, the rest for the training.
space() {
	create decode 0:100 --domain pool --sm "$2:$2"
	create gemm 0:100 --domain pool --sm "$((100 - $2)):$((100 - $2))"
	start_role decode "$BELFRY" run decode --
	start_role gemm "$BELFRY" run gemm --
	together "$1" || status=1
	remove_all
}

# turns WAY PERCENT: that part of the time for the decoding.
turns() {
	create decode "$2:$2"
	create gemm "$((100 - $2)):$((100 - $2))"
	start_role decode "$BELFRY" run decode --
	start_role gemm "$BELFRY" run gemm --
	together "$1" || status=1
	remove_all
}

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
	start_role decode "${MPS_CLIENT[@]}" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40
	start_role gemm "${MPS_CLIENT[@]}" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60
	together mps-40 || status=1
	end_mps # before belfryd is there: what runs under Belfry must not find it
fi
start_daemon
for part in 40 50; do
	space "space-$part" "$part"
	turns "turns-$part" "$(rate_of "space-$part")"
done

awk '
function field(name) {
	return match($0, "\"" name "\":[^,}]*") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0 : 0
}
!($1 in seen) { seen[$1] = 1; order[++ways] = $1 }
/"decode"/ { rate[$1] = field("steps_s"); p99[$1] = field("p99_ms") }
/"gemm"/ { tflops[$1] = field("tflops") }
END {
	printf "%-9s %9s %9s %9s %12s %10s\n", "", "steps/s", "p99 ms", "TFLOP/s", "decode rate", "GEMM rate"
	for (k = 1; k <= ways; k++) {
		way = order[k]
		printf "%-9s %9.1f %9.3f %9.1f %12.3f %10.3f\n", way, rate[way], p99[way], tflops[way],
			rate["alone"] ? rate[way] / rate["alone"] : 0, tflops["alone"] ? tflops[way] / tflops["alone"] : 0
	}
	for (part = 40; part <= 50; part += 10)
		if (tflops["turns-" part])
			printf "GEMM throughput at the decode rate of %d %% of the SMs: %.2f times that by turns\n", part,
				tflops["space-" part] / tflops["turns-" part]
	exit !(tflops["space-40"] && tflops["turns-40"])
}' "$WORK/results" || status=1
[ "$status" = 0 ] && echo ok || echo "FAILED: a run gave no figures, or wrong results"
exit "$status"
