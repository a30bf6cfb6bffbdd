#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# What a loaded policy costs: policy_pair.sh [SECONDS [ROUNDS [POLICY]]] (default 4, 4, fair). The pair of pair.sh (a decode
# step with 2 ms after it, beside GEMMs of 8192^3), with the built-in policy and with the same one as eBPF, in turn, under
# the same processes. Goal: p50, p99 and TFLOP/s within 1 %. Skipped without an NVIDIA GPU or PyTorch.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
. "$HERE/segments.sh"
begin_with_torch "$@"
secs=${1:-4}
rounds=${2:-4}
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

# Of each policy's segments the median: the host's own pauses, which alone are some milliseconds, come in bursts.
python3 - "$policy" "$WORK/results" <<'END' || { echo "FAILED: more than 1 %"; status=1; }
import json
import statistics
import sys

other, path = sys.argv[1:]
of = {"built-in": {}, other: {}}
for line in open(path, encoding="utf-8"):
    policy, said = line.split(" ", 1)
    for key, value in json.loads(said).items():
        if key in ("p50_ms", "p99_ms", "steps", "tflops"):
            of[policy].setdefault(key, []).append(value)
print(f"{'policy':12} {'p50 ms':>9} {'p99 ms':>9} {'steps':>9} {'TFLOP/s':>9}   p99 of each segment")
for policy, all_of in of.items():
    p50, p99, tflops = (statistics.median(all_of[key]) for key in ("p50_ms", "p99_ms", "tflops"))
    each = " ".join(f"{ms:.3f}" for ms in all_of["p99_ms"])
    print(f"{policy:12} {p50:9.4f} {p99:9.4f} {sum(all_of['steps']):9} {tflops:9.1f}   {each}")
ratio = [statistics.median(of[other][key]) / statistics.median(of["built-in"][key]) for key in ("p50_ms", "p99_ms", "tflops")]
print(f"{'ratio':12} {ratio[0]:9.4f} {ratio[1]:9.4f} {'':9} {ratio[2]:9.4f}")
sys.exit(not (ratio[0] <= 1.01 and ratio[1] <= 1.01 and ratio[2] >= 0.99))
END
cat "$WORK/policies.1"
[ "$status" = 0 ] && echo ok
exit "$status"
