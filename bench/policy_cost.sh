#!/bin/bash
# SPDX-License-Identifier: MIT
# policy_cost.sh [calls]: what a call of a policy costs in us, by how many vGPUs it looks at. Needs no GPU, but the right to
# load eBPF.
# shellcheck disable=SC1091
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
find_programs
make_work
timeout 300 "$BENCH_BIN/policy_cost" "$BENCH_BIN/policy_cost.bpf.o" "${1:-20000}" >"$WORK/cost" || exit
echo '| a call of  | median, us | p99, us |'
echo '| ---------- | ---------: | ------: |'
awk -F'\t' '{ printf "| %-10s | %10s | %7s |\n", $1, $2, $3 }' "$WORK/cost"
