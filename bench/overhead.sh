#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# Native against under Belfry, in turn in one run: overhead.sh [PAIRS [PYTORCH-PAIRS]] (default 5 and 3).
# Goal: launch and wait at most +1.5 µs, all else within 1 %.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
need_gpu
find_programs
make_work
pairs=${1:-5}
torch_pairs=${2:-3}

# pair LOG program…: one native run, one under Belfry; only whole lines of JSON are kept.
pair() {
	local log=$1 i=$2
	shift 2
	native 60 "$@" 2>"$WORK/err" | sed -n 's/^{/native {/p' >>"$log"
	on 60 40G "b-overhead-$i" "$@" 2>>"$WORK/err" | sed -n 's/^{/belfry {/p' >>"$log"
}

for i in $(seq "$pairs"); do
	pair "$WORK/api" "$i" "$BENCH_BIN/overhead"
done
if command -v python3 >/dev/null && python3 -c 'import torch' 2>/dev/null; then
	for i in $(seq "$torch_pairs"); do
		pair "$WORK/torch" "t$i" python3 "$HERE/overhead_torch.py"
	done
else
	echo "no PyTorch: its part is left out"
fi
status=0
for log in "$WORK/api" "$WORK/torch"; do
	[ -e "$log" ] || continue
	[ "$(grep -c ^native "$log")" -gt 0 ] && [ "$(grep -c ^native "$log")" = "$(grep -c ^belfry "$log")" ] || status=1
	awk -f "$HERE/compare.awk" "$log"
done
[ "$status" = 0 ] || { echo "FAILED: a run gave no figures"; tail -5 "$WORK/err"; }
exit "$status"
