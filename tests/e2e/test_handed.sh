#!/bin/bash
# Descriptors whose close waits, sent to the sockets of belfryd and of a GPU server: neither waits with it.
# Functions are called by name:
# shellcheck disable=SC1091,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
here=$(dirname "$0")
export BELFRY_SOFT="mem=512M,linger=1,name=handed$$"
use_daemon
start_daemon
status 0 "$belfry" create mine --mem 64M
status 0 "$belfry" create other --mem 64M

# A descriptor lingers for ten minutes. An answer on a busy host takes less than five.
answers() { timeout 300 "$belfry" ls --json >/dev/null || fail "$1: belfry ls did not answer"; }
runs() { timeout 300 "$belfry" run other -- true || fail "$1: a program did not run"; }
said() { [ "$(wc -l <"$work/sent")" = "$1" ]; }

# send COUNT COMMAND...: linger.py, which prints COUNT lines and then stays.
send() {
	local count=$1
	shift
	: >"$work/sent"
	"$@" <"$work/hold" >"$work/sent" &
	exec {hold}>"$work/hold"
	until_so said "$count"
}
release() {
	exec {hold}>&-
	wait $! || fail "linger.py: $(cat "$work/sent")"
}
mkfifo "$work/hold"

probe_socket=$(echo "$work"/d/probe.*)
[ -S "$probe_socket" ] || fail "no socket for probes: $probe_socket"
sockets=("$BELFRY_SOCKET" "$BELFRY_SOCKET" "$probe_socket" "$probe_socket")

echo '== from outside'
send 4 python3 "$here/linger.py" "${sockets[@]}"
answers 'from outside'
runs 'from outside'
release

# A process that uses its vGPU may send descriptors to the socket for probes. python3 loads no library with a sanitizer.
if ! is_sanitized; then
	echo '== from a program on a vGPU'
	send 4 "$belfry" run mine -- python3 "$here/linger.py" --cuda "${sockets[@]}"
	has_line sent "$work/sent" || fail "no descriptor was sent: $(cat "$work/sent")"
	answers 'from a program'
	runs 'from a program'
	release
fi
answers 'afterwards'
end_daemon
exit "$failed"
