#!/bin/bash
# SPDX-License-Identifier: MIT
# soft_speed.sh [seconds]: millions of thread-instructions a second of the software GPU, by kind of kernel, as fast as
# it can (pace=off), with one core and with two.
# shellcheck disable=SC1091
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
find_programs
make_work
seconds=${1:-1}
for cores in 1 2; do
	timeout 300 "$BELFRY" soft run --soft "name=speed-$cores-$$,pace=off,cores=$cores,linger=0" -- \
		"$BENCH_BIN/soft_speed" "$seconds" >"$WORK/$cores" || exit 1
done
echo '| kernel                   | one core | two      | scale |'
echo '| ------------------------ | -------: | -------: | ----: |'
paste "$WORK/1" "$WORK/2" | awk -F'\t' '{ printf "| %-24s | %8d | %8d | %5.2f |\n", $1, $2, $4, $4 / $2 }'
