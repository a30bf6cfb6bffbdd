#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# How well a play tells what another policy would have made of it: replay.sh [SECONDS [POLICY [OTHER]]] (default 8, fair and
# tpot_first). The programs of tpot.sh run under the one policy, which is recorded, then under the other, which is recorded
# too. Then the first record is played under both. Prints, for each vGPU and policy, what was recorded and what was played.
# No goal: it says how far to trust a play. Skipped without an NVIDIA GPU or PyTorch.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
. "$HERE/segments.sh"
begin_with_torch "$@"
secs=${1:-8}
one=${2:-fair}
other=${3:-tpot_first}
status=0

# recorded POLICY: a segment under it, to $WORK/POLICY.record.
recorded() {
	use_policy "$1"
	timeout -k 5 $((secs + 30)) "$BELFRY" policy record -o "$WORK/$1.record" --for "${secs}s" >"$WORK/record.log" 2>&1 &
	local recorder=$!
	segment "$1"
	wait "$recorder" || { echo "FAILED: no record under $1: $(cat "$WORK/record.log")"; exit 1; }
}

start_daemon
create tight 20:100 --class latency --objective p99=2ms
create loose 20:100 --class latency --objective p99=5ms
create train 20:100
common=(--secs "$secs" --segments 2)
start_program tight serve "${common[@]}" --objective-ms 2 --seed 1
start_program loose serve "${common[@]}" --objective-ms 5 --seed 2 --shift 0.25
start_program train train "${common[@]}"
wait_until 120 are_ready || { echo "FAILED: a program did not get that far"; show_errors; exit 1; }
recorded "$one"
recorded "$other"
finish_loads || status=1
remove_all

for name in "$one" "$other"; do
	bf policy replay "$WORK/$name.record" --with "$other" --against "$one" --json >"$WORK/$name.replay" ||
		{ echo "FAILED: the record under $name cannot be played"; exit 1; }
done
python3 - "$one" "$other" "$WORK/$one.replay" "$WORK/$other.replay" <<'END' || status=1
import json
import sys

one, other, first, second = sys.argv[1:]
first, second = (json.load(open(path, encoding="utf-8"))["play"] for path in (first, second))
was = {v["name"]: v["recorded"] for v in second["vgpus"]}


def row(name, policy, how, f):
    print(f"{name:8} {policy:12} {how:10} {f['share'] * 100:8.1f} {f['p50_ns'] / 1e6:9.3f} {f['tail_ns'] / 1e6:9.3f} {f['late']:7}")


print(f"{'':8} {'policy':12} {'':10} {'GPU %':>8} {'p50 ms':>9} {'tail ms':>9} {'late':>7}")
for v in first["vgpus"]:
    row(v["name"], one, "recorded", v["recorded"])
    row(v["name"], one, "played", v["baseline"])
    row(v["name"], other, "played", v["with"])
    row(v["name"], other, "recorded", was[v["name"]])
END
[ "$status" = 0 ] && echo ok
exit "$status"
