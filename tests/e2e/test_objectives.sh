#!/bin/bash
# a_programs_percentiles_are_the_servers: what the server goes by when it judges an objective is what the program sees, alone
# and beside a neighbour, and every request is one sample.
#
# The bound at p50 is 15 % for the median of three rounds. On a machine with two processors and other load, 56 rows of one
# round each differed by 0 to 16 %, 32 of them with real-time priority, and the median of any three rounds of a row by
# 11 % at most. The server's figure was the lower one in 48 rows: it does not include the time until the program gets a
# processor (bench/objectives.sh). In two rows beside a neighbour it was 11 and 15 % higher; the cause was not examined.
# p99 has no bound here: it differed by up to 78 %, and the server's was lower in 53 rows.
# shellcheck disable=SC1091,SC2154
set -u
. "$(dirname "$0")/common.sh"
! is_sanitized || skip 'with a sanitizer the software GPU is too slow for percentiles to mean anything'
export BELFRY_SOFT="mem=512M,linger=1,name=objectives$$"
BELFRY=$belfry OBJECTIVES_REQUESTS=300 OBJECTIVES_ROUNDS=3 OBJECTIVES_WITHIN=15 \
	"$BELFRY_SOURCE_DIR/bench/objectives.sh" steps back-to-back >"$work/out" 2>&1 ||
	fail "the server's percentiles are not the program's: $(cat "$work/out")"
exit "$failed"
