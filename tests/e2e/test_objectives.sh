#!/bin/bash
# a_programs_percentiles_are_the_servers: what the server goes by when it judges an objective is what the program sees, alone
# and beside a neighbour, and every request is one sample. The bound of the percentiles is wide, since both are measured on a
# machine that has other things to do; bench/objectives.sh shows the differences.
# shellcheck disable=SC1091,SC2154
set -u
. "$(dirname "$0")/common.sh"
if grep -qE '__(asan|tsan)_init' "$belfry"; then
	echo 'skipped: with a sanitizer the software GPU is too slow for percentiles of it to mean anything'
	exit 77
fi
export BELFRY_SOFT="mem=512M,linger=1,name=objectives$$"
for _ in 1 2 3; do
	BELFRY=$belfry OBJECTIVES_REQUESTS=300 OBJECTIVES_WITHIN=30 \
		"$BELFRY_SOURCE_DIR/bench/objectives.sh" steps back-to-back >"$work/out" 2>&1 && exit 0
done
fail "the server's percentiles are not the program's: $(cat "$work/out")"
exit "$failed"
