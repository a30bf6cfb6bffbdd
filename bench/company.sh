#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# Two trainings with no request on one GPU, beside a latency program that is there and does nothing: company.sh [SECONDS]
# (default 6). They take turns in hardware; a latency vGPU makes the turns of others short, and between the two of them short
# turns would be spent on changing contexts. Each alone for TFLOP/s, then both. Goal: 80 % of one alone, together. Skipped
# without an NVIDIA GPU or PyTorch.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
begin_with_torch "$@"
secs=${1:-6}
status=0

# trains NAME…: that many trainings at once; lines "COUNT {…}" to $WORK/results.
trains() {
	local name
	for name; do
		start_load $((secs + 100)) "$name" python3 "$HERE/pair.py" gemm --secs "$secs"
	done
	begin
	finish_loads || status=1
	for name; do
		sed -n "s/^{/$# {/p" "$WORK/$name.json" >>"$WORK/results"
	done
}

start_daemon
create idle 10:100 --class latency
create one 0:100
create other 0:100
cat >"$WORK/idle.py" <<'END'
import sys, time, torch
x = torch.ones(1, device="cuda")
torch.cuda.synchronize()
open(sys.argv[1], "w").close()
time.sleep(3600)
END
timeout -k 5 600 "$BELFRY" run idle -- python3 "$WORK/idle.py" "$WORK/idle.there" >"$WORK/idle.log" 2>&1 &
wait_until 60 test -e "$WORK/idle.there" || { echo "FAILED: the idle program did not start"; cat "$WORK/idle.log"; exit 1; }
trains one
trains one other
remove_all

awk '
match($0, /"tflops":[0-9.]*/) { said[$1] = said[$1] " " substr($0, RSTART + 9, RLENGTH - 9); sum[$1] += substr($0, RSTART + 9, RLENGTH - 9) }
END {
	printf "one alone, TFLOP/s  %s\nboth               %s  together %.3f of one alone\n", said[1], said[2], sum[1] ? sum[2] / sum[1] : 0
	exit !(sum[2] >= 0.8 * sum[1] && sum[1])
}' "$WORK/results" || { echo "FAILED: they lose too much to each other"; status=1; }
[ "$status" = 0 ] && echo ok
exit "$status"
