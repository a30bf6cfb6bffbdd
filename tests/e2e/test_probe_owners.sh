#!/bin/bash
# Probes and belfryd: who may attach and read them, which objects the kernel's verifier sees, and what a restart of belfryd
# leaves.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="sms=8,mem=512M,linger=1,name=probeowners$$"
use_daemon
printf '[server]\non_daemon_death = carry\naccess = everyone\n' >"$work/conf"
start_daemon

told() { grep -qF -- "$1" "$work/out" || fail "$2: $(cat "$work/out")"; }
begin() {
	rm -f "$work/ready" "$work/end"
	timeout 900 "$belfry" run --probes a -- "$BELFRY_BUILD_DIR/tests/e2e/sums" "$work/ready" "$work/end" >"$work/sums" \
		2>"$work/sums.err" &
	program=$!
	until_so test -e "$work/ready"
}
finish() {
	: >"$work/end"
	wait "$program" && has_line 'wrong 0$' "$work/sums" || fail "the program: $(cat "$work/sums" "$work/sums.err")"
}
# The number of steps that the program says it has made is the number of calls that the probe has counted.
is_exact() {
	local steps
	steps=$(sed -n 's/^steps \([0-9]*\) .*/\1/p' "$work/sums")
	status 0 "$belfry" probe dump --vgpu a --json
	python3 -c '
import json, sys
table = json.load(open(sys.argv[1]))["probes"][0]["tables"][0]
print(table["rows"][0]["values"][table["columns"].index("calls")])' "$work/out" >"$work/calls" 2>&1
	[ "$(cat "$work/calls")" = "$steps" ] || fail "$(cat "$work/calls") calls, not $steps"
}

status 0 "$belfry" create a
status 0 "$belfry" probe attach kernelstat --vgpu a

echo '== a program cannot attach'
status 1 "$belfry" run a -- "$belfry" probe attach kernelstat --vgpu a
says 'refused inside a run' "attach from inside"
status 1 "$belfry" run a -- "$belfry" probe detach kernelstat --vgpu a
says 'refused inside a run' "detach from inside"

if knows_others; then
	echo '== another user'
	other() {
		local wanted=$1
		shift
		status "$wanted" env -i PATH="$PATH" HOME=/ BELFRY_SOCKET="$BELFRY_SOCKET" setpriv --reuid=65534 --regid=65534 \
			--clear-groups "$belfry" "$@"
	}
	for command in 'attach kernelstat' 'detach --all' 'dump' 'ls'; do
		# shellcheck disable=SC2086 # a command and its words
		other 1 probe $command --vgpu a
		says 'only that user and root may do that' "$command of another user's vGPU"
	done
	other 0 create theirs
	other 0 probe attach kernelstat --vgpu theirs
	told 'belfryd has the kernel verify objects of root only' "an object of another user"
	other 0 probe ls
	told 'theirs  probe' "a list of one's own"
	! grep -q '^a ' "$work/out" || fail "the list has another user's: $(cat "$work/out")"
	status 0 "$belfry" probe detach --all --vgpu theirs
else
	echo 'without another user: this is not root, or knows no other user'
fi

echo '== belfryd is killed, and starts again'
begin
kill -9 "$daemon"
ended "$daemon"
start_daemon
status 0 "$belfry" probe ls --vgpu a
told 'kernelstat' "a probe after a restart"
told 'in step' "its kernels after a restart"
finish
is_exact

echo '== the GPU server is killed'
server=$(server_pid a)
begin
kill -9 "$server"
wait "$program"
until_so is_there a
status 0 "$belfry" probe ls --vgpu a
told 'a has no probes' "a GPU server that is new"
status 0 "$belfry" probe attach kernelstat --vgpu a
begin
finish
is_exact
end_daemon
exit "$failed"
