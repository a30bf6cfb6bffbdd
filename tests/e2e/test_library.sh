#!/bin/bash
# libbelfry against a belfryd of the software GPU: everything that belfry.h offers, with programs on a vGPU, for another
# owner, and while belfryd stops, ends and starts again.
# Functions are called by name:
# shellcheck disable=SC1091,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="mem=512M,linger=1,name=library$$"
use_daemon
client="$BELFRY_BUILD_DIR/tests/e2e/library_client"

has_run() { [ -n "$(figure "$1" runs.0)" ]; }

# try COMMAND...: the client says nothing but what is wrong.
try() {
	status 0 "$client" "$@"
	[ ! -s "$work/out" ] || fail "the client: $(cat "$work/out")"
}

start_daemon
try all "$BELFRY_SOCKET"
# Found as belfry finds it.
try all

# A vGPU with a program is busy, and goes with --force alone.
status 0 "$belfry" create busy
timeout 100 "$belfry" run busy -- sleep 90 2>"$work/told" &
runner=$!
until_so has_run busy
try busy busy
until_so is_gone $runner
grep -q 'the vGPU was removed' "$work/told" || fail "the run was not told why it ended: $(cat "$work/told")"

# For another owner, which root may do.
if [ "$(id -u)" = 0 ]; then
	try owner 65534
	is_figure theirs owner 65534 || fail "the owner is $(figure theirs owner)"
	status 0 "$belfry" rm theirs
fi

# A belfryd that is stopped delays a client for no longer than the time limit; afterwards it serves the same handle.
kill -STOP "$daemon"
try blocked "$daemon"
try all
# A GPU server that is stopped is missing in the report, and that is an error.
try partial "$(server_pids)"
# The next belfryd serves the same handle.
timeout 100 "$client" restarted "$daemon" "$work/again" >"$work/restarted" 2>&1 &
waiting=$!
until_so is_gone "$daemon"
wait "$daemon" 2>/dev/null
start_daemon
: >"$work/again"
wait $waiting || fail "a handle that outlives belfryd: $(cat "$work/restarted")"

[ "$failed" -eq 0 ] && echo 'all is made, changed, reported and removed'
exit "$failed"
