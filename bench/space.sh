#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# Eight small inference programs on one GPU: space.sh [WIDTH] [SECONDS] (default 1024, 6). Each runs steps of 12 layers of that
# width as a CUDA graph, batch 8, back to back. One alone, then eight: as the driver shares the GPU, under MPS, under MPS with
# 12 % of the SMs each, under Belfry by turns, in a shared domain of Belfry, and there with 12 % of the SMs each. In one run.
# Skipped without an NVIDIA GPU or PyTorch.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
begin_with_torch "$@"
width=${1:-1024}
secs=${2:-6}
limit=$((secs + 150))
programs=8
status=0

# start_program NAME [COMMAND…]: a program that is started through the command.
start_program() {
	local name=$1
	shift
	start_plain "$limit" "$name" "$@" python3 "$HERE/pair.py" decode --layers 12 --width "$width" --every-ms 0 --secs "$secs"
}

# eight WAY [COMMAND…]
eight() {
	local way=$1 i
	shift
	for ((i = 0; i < programs; i++)); do
		start_program "p$i" "$@"
	done
	together "$way" || status=1
}

# vgpus WAY TIME [OPTION…]: eight vGPUs with these options, and a program on each.
vgpus() {
	local way=$1 time=$2 i
	shift 2
	for ((i = 0; i < programs; i++)); do
		create "p$i" "$time" --mem 4G "$@"
	done
	for ((i = 0; i < programs; i++)); do
		start_program "p$i" "$BELFRY" run "p$i" --
	done
	together "$way" || status=1
	remove_all
}

start_program p0
together alone || status=1
eight driver
if start_mps; then
	trap 'end_mps; clean_up_jobs; rm -rf "$WORK"' EXIT
	eight mps "${MPS_CLIENT[@]}"
	eight mps-12 "${MPS_CLIENT[@]}" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=12
	end_mps # before belfryd is there: what runs under Belfry must not find it
fi
start_daemon
vgpus turns 12:100
vgpus space 0:100 --domain pool --sm 0:100
vgpus space-12 0:100 --domain pool --sm 12:12

awk '
function field(name) {
	return match($0, "\"" name "\":[^,}]*") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0 : 0
}
!($1 in count) { order[++ways] = $1 }
{ count[$1]++; sum[$1] += field("steps_s"); if (field("p99_ms") > worst[$1]) worst[$1] = field("p99_ms") }
END {
	printf "%-9s %9s %9s %13s %10s %10s\n", "", "programs", "steps/s", "worst p99 ms", "to turns", "p99 to MPS"
	for (k = 1; k <= ways; k++) {
		way = order[k]
		printf "%-9s %9d %9.0f %13.3f %10.2f %10.2f\n", way, count[way], sum[way], worst[way],
			sum["turns"] ? sum[way] / sum["turns"] : 0, worst["mps"] ? worst[way] / worst["mps"] : 0
	}
	exit !(sum["space"] && sum["space-12"])
}' "$WORK/results" || status=1
[ "$status" = 0 ] && echo ok || echo "FAILED: a run gave no figures, or wrong results"
exit "$status"
