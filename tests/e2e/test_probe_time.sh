#!/bin/bash
# The time of submission in kernels: exact for each launch, whatever stream, thread or graph it comes from.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="sms=8,mem=1G,linger=1,name=time$$"
here=$(dirname "$0")
. "$here/probing.sh"

status 0 "$belfry" create a
status 0 "$belfry" probe attach launchlag --vgpu a
begin a --probes
is_lag() { [ "$(counted launchlag launches "$1")" = "$2" ] && [ "$(counted launchlag unknown "$1")" = 0 ]; }
lags() {
	until_so is_lag "$1" "$2" ||
		fail "launchlag: $(counted launchlag launches "$1") launches of $1 with a time, not $2; without: $(counted launchlag unknown "$1")"
}
# lag_is KERNEL OPERATOR NS: the average.
lag_is() {
	local average
	average=$(counted launchlag average "$1")
	test "${average%.*}" "$2" "$3" || fail "the average lag of $1 is $average ns, not $2 $3"
}
lagged=0
for how in data library; do
	ordered a "$how"
	ordered a delayed 400
	ordered a delayed_graph 400
	lagged=$((lagged + 2))
	lags step "$lagged"
	lags none "$lagged"
done
lag_is step -ge 399000000
lag_is none -lt 300000000
ordered a threads 8 50
lags step $((lagged + 400))
ordered a capture
ordered a captured
lags step $((lagged + 401))
lag_is none -gt 0
ordered a context
ordered a data
ordered a launch step 3 64 2
lags step $((lagged + 403))
finish a
exit "$failed"
