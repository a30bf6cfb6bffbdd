#!/bin/bash
# belfry-metrics that cannot listen is started a few times and then left alone for a while. A configuration that is
# corrected then is followed at once: what was started too often before was another configuration's.
# Functions are called by name:
# shellcheck disable=SC1091,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="mem=64M,linger=1,name=metrics$$"
use_daemon
starts=5     # ROUTER_STARTS: within a minute
at_once_s=20 # well within that minute

configure() { printf '[server]\nmetrics = %s\n' "$1" >"$work/conf"; }
free_port() {
	python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
answers() {
	python3 -c 'import sys, urllib.request
assert b"belfry_" in urllib.request.urlopen(sys.argv[1], timeout=10).read()' "http://127.0.0.1:$1/metrics" 2>/dev/null
}
ended() { [ "$(grep -c 'metrics: belfry-metrics ended' "$work/log")" -ge "$1" ]; }

# A port that another program listens at.
python3 -c '
import socket, sys, time
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen()
print(s.getsockname()[1], flush=True)
time.sleep(300)' >"$work/taken" &
until_so test -s "$work/taken"
configure "127.0.0.1:$(cat "$work/taken")"
"$BELFRYD" --socket "$BELFRY_SOCKET" --gpu soft --config "$work/conf" >"$work/log" 2>&1 &
daemon=$!
until_so ended $starts

# An address that others reach, without saying so: --check and reload refuse it, and nothing changes.
configure "0.0.0.0:$(free_port)"
status 1 "$BELFRYD" --check --gpu soft --config "$work/conf"
says "$work/conf:2:" "--check of an address for everybody"
status 1 "$belfry" reload
says "$work/conf:2:" "reload of an address for everybody"

port=$(free_port)
configure "127.0.0.1:$port"
status 0 "$belfry" reload
SECONDS=0
until answers "$port"; do
	[ "$SECONDS" -lt $at_once_s ] || { fail "metrics do not answer after the correction: $(cat "$work/log")"; break; }
	sleep 0.05
done
ended $((starts + 1)) && fail "belfry-metrics was started more than $starts times: $(cat "$work/log")"
kill "$daemon"
until_so is_gone "$daemon"
exit "$failed"
