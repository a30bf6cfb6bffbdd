#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# 8 processes, 10,000 random allocations and frees over every API, then 8 killed in the middle of it.
# Goal: never over, never refused with room, ledger equal to the driver's figure, nothing left after kill -9.
# memory.sh [OPERATIONS] [SEED]
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
need_gpu
find_programs
make_work
limit=$((12 << 30))
before=$(gpu_used_mib)
on 150 12G b-memory "$BIN/gpu_memory" --procs 8 --ops "${1:-10000}" --limit "$limit" --seed "${2:-1}"
status=$?

nothing_left() {
	local used
	used=$(gpu_used_mib)
	[ "$(gpu_processes)" = 0 ] && [ "${used:-0}" -le "$((before + 4))" ]
}

start_on 60 12G b-killed "$BIN/gpu_memory" --procs 8 --ops 100000 --limit "$limit" --seed 2 >/dev/null 2>&1
sleep 5
# the children first, by number, then whatever is above them
for pid in $(family "$STARTED" | tac); do
	[ "$pid" = "$STARTED" ] || [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != gpu_memory ] || kill -9 "$pid" 2>/dev/null
done
wait "$STARTED" 2>/dev/null
if wait_until 10 nothing_left; then
	echo "after kill -9 of all: nothing left ($(gpu_used_mib) MiB used, $before before)"
else
	echo "after kill -9 of all: $(gpu_processes) processes and $(gpu_used_mib) MiB left, $before before"
	status=1
fi
exit "$status"
