#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2086,SC2317
# How long programs take to start, natively and on a vGPU in turn: start.sh [PAIRS [MANY [ROUNDS]]] (default 5, 48 and 3). A context
# with one kernel, a PyTorch program, and MANY contexts at once, each on a vGPU of its own or all on one. Goals: PyTorch at
# most 5 % longer, MANY at once at most 10 %.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
help_if_asked "$@"
need_gpu
find_programs
make_work
pairs=${1:-5}
many=${2:-48}
rounds=${3:-3}
status=0

on_vgpu() { timeout -k 5 120 "$BELFRY" run b-start -- "$@"; }
each() { timeout -k 5 120 "$BELFRY" run --mem 1G -- "$@"; }
natively() { native 120 "$@"; }

torch() {
	"$1" python3 -c 'import torch; x = torch.ones(64, device="cuda"); assert x.sum().item() == 64'
}
context() { "$1" "$BIN/gpu_saxpy" --times 1; }
at_once() {
	local i pids=()
	for i in $(seq "$many"); do
		"$1" "$BIN/gpu_saxpy" --times 1 &
		pids+=($!)
	done
	for i in "${pids[@]}"; do
		wait "$i" || return 1
	done
}

# measure WHAT HOW: "WHAT HOW SECONDS" to $WORK/times.
measure() {
	local start=$EPOCHREALTIME
	"$1" "$2" >>"$WORK/out" 2>&1 || { echo "FAILED: $1 $2"; tail -n 3 "$WORK/out"; status=1; return; }
	awk -v a="$start" -v b="$EPOCHREALTIME" -v what="$1" -v how="$2" 'BEGIN { print what, how, b - a }' >>"$WORK/times"
}

start_daemon
create b-start 0:100
what=(context)
if ! is_soft && command -v python3 >/dev/null; then
	what+=(torch)
fi
for w in "${what[@]}"; do # once for the caches
	measure "$w" natively
done
: >"$WORK/times"
for i in $(seq "$pairs"); do
	for w in "${what[@]}"; do
		order=(natively on_vgpu)
		[ $((i % 2)) = 1 ] || order=(on_vgpu natively)
		for how in "${order[@]}"; do
			measure "$w" "$how"
		done
	done
done
for _ in $(seq "$rounds"); do
	measure at_once natively
	measure at_once each
	measure at_once on_vgpu
done
echo "what, seconds (medians)         native  on a vGPU   longer"
# row LABEL WHAT HOW
row() {
	awk -v w="$2" -v how="$3" -v label="$1" '
		function median(list, count,    i, j, t) {
			for (i = 2; i <= count; i++)
				for (j = i; j > 1 && list[j] < list[j - 1]; j--) {
					t = list[j]; list[j] = list[j - 1]; list[j - 1] = t
				}
			return list[int((count + 1) / 2)]
		}
		$1 == w && $2 == "natively" { a[++n] = $3 }
		$1 == w && $2 == how { b[++m] = $3 }
		END { if (n && m) { x = median(a, n); y = median(b, m); printf "%-28s %9.3f %10.3f %8.1f %%\n", label, x, y, (y / x - 1) * 100 } }
	' "$WORK/times"
}
for w in "${what[@]}"; do
	row "$w" "$w" on_vgpu
done
row "$many at once, a vGPU each" at_once each
row "$many at once, one vGPU" at_once on_vgpu
exit $status
