#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# 100 holds of 20 ms and 3 of 300 ms beside a busy neighbour. Goal: nothing submitted after a hold runs during it.
# gate.sh [HOLDS] [native|belfry|none] [HOLD_MS]: `gate.sh 100 native 300` takes 35 s.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
need_gpu
find_programs
native 90 "$BIN/gpu_gate" --holds "${1:-100}" --hold-ms "${3:-20}" --long 3 --long-ms 300 \
	--busy "${2:-native}"
