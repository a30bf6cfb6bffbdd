#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# 100 hard stops in the middle of 1-second kernels. Goal: p99 within 1 ms, resumed, results unchanged.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
need_gpu
find_programs
native 90 "$BIN/gpu_stopper" --stops "${1:-100}" --ms 1000 --every-ms 190 --limit-us 1000
