#!/bin/bash
# Changes of the configuration that a GPU server refuses are reported, listed, and tried again. Also belfryd --check, and the
# command of systemctl reload.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2016,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="mem=512M,linger=1,name=pending$$"
use_daemon
hog="$BELFRY_BUILD_DIR/tests/e2e/hog"

# is_pending CHANGE NAME WHY: ls, explain and info report it, as text and as JSON.
is_pending() {
	local why=$3
	status 0 "$belfry" ls
	grep -q "^$2 .*, change pending\$" "$work/out" && grep -q "^pending  $1 $2: .*$why.*; belfryd tries again by itself\$" "$work/out" ||
		fail "ls does not tell what is pending: $(cat "$work/out")"
	status 0 "$belfry" explain "$2"
	grep -q "^A change of the configuration is pending, .*$why" "$work/out" || fail "explain: $(cat "$work/out")"
	status 0 "$belfry" info
	grep -q "^pending  $1 $2: .*$why" "$work/out" || fail "info: $(cat "$work/out")"
	for command in 'ls --json' 'info --json' "explain --json $2"; do
		# shellcheck disable=SC2086 # words
		status 0 "$belfry" $command
		python3 - "$1" "$2" "$why" "$work/out" <<'END' || fail "$command: $(cat "$work/out")"
import json, sys
change, name, why, path = sys.argv[1:]
pending = json.load(open(path))["pending"]
entries = pending if isinstance(pending, list) else [pending]
assert any(e["change"] == change and e["name"] == name and why in e["why"] for e in entries), pending
END
	done
}
nothing_is_pending() { timeout 20 "$belfry" ls >"$work/out" && ! grep -q pending "$work/out"; }

what_failed_is_reported_and_tried_again() {
	configure_vgpus c time=70 mem=50M b time=20 mem=300M
	start_daemon
	until_so is_there b
	timeout 100 "$belfry" run b -- "$hog" 200 "$work/end" >"$work/hog" 2>&1 &
	until_so test -s "$work/hog"
	configure_vgpus c time=70 mem=50M b time=20 mem=100M
	status 1 "$belfry" reload
	says "1 of the changes could not be made: vgpu 'b': memory limit 100 MiB: 2" "a limit below what is in use"
	says ' MiB are in use; end a program, or let it free memory; ' "a limit below what is in use"
	says 'belfryd tries again by itself' "a limit below what is in use"
	vgpu_is b 0.2 300
	is_pending set b 'memory limit'
	# What is changed by hand meanwhile stays; what is pending stays pending.
	status 0 "$belfry" set b --time 25
	vgpu_is b 0.25 300
	is_pending set b 'memory limit'
	# A bad file changes nothing about it.
	echo 'nonsense' >>"$work/conf"
	status 1 "$belfry" reload
	is_pending set b 'memory limit'
	logged=$(grep -c "vGPU 'b': memory limit" "$work/log")
	[ "$logged" = 1 ] || fail "the log has the refusal $logged times"
	touch "$work/end"
	wait %?run
	# It is made when it becomes possible, without a reload.
	until_so is_figure b mem.limit $((100 << 20))
	vgpu_is b 0.25 100
	until_so nothing_is_pending
	configure_vgpus c time=70 mem=50M b time=20 mem=100M
	status 0 "$belfry" set b --mem 120M
	status 0 "$belfry" reload # what was changed by hand stays
	vgpu_is b 0.25 120
	# A change by hand of what is pending takes its place.
	rm -f "$work/end" "$work/hog"
	timeout 100 "$belfry" run b -- "$hog" 90 "$work/end" >"$work/hog" 2>&1 &
	until_so test -s "$work/hog"
	configure_vgpus c time=70 mem=50M b time=25 mem=60M
	status 1 "$belfry" reload
	is_pending set b 'memory limit'
	status 0 "$belfry" set b --mem 110M
	until_so nothing_is_pending
	touch "$work/end"
	wait %?run
	status 0 "$belfry" reload
	vgpu_is b 0.25 110
}

# A vGPU on which a program runs is not removed, and one that has no room is not made; both come to be by themselves.
a_removal_and_a_creation_are_tried_again() {
	rm -f "$work/end" "$work/hog"
	configure_vgpus c time=70 mem=50M b time=20 mem=100M
	status 0 "$belfry" reload
	# A program without a limit has the memory that a new vGPU would need.
	status 0 "$belfry" create free
	timeout 100 "$belfry" run b -- "$hog" 10 "$work/end" >"$work/hog" 2>&1 &
	timeout 100 "$belfry" run free -- "$hog" 300 "$work/end" >"$work/hog2" 2>&1 &
	until_so test -s "$work/hog"
	until_so test -s "$work/hog2"
	configure_vgpus c time=70 mem=50M d mem=200M
	status 1 "$belfry" reload
	says '2 of the changes could not be made' "a removal and a creation"
	is_pending remove b '1 program runs on it; end it, or use belfry rm --force b'
	timeout 20 "$belfry" ls | grep -q '^pending  remove b: 1 program' || fail "the name is told twice: $(timeout 20 "$belfry" ls)"
	timeout 20 "$belfry" ls | grep -q '^pending  create d: ' || fail "a creation is not pending: $(timeout 20 "$belfry" ls)"
	touch "$work/end"
	wait %?"run b" %?"run free"
	until_so is_there d
	until_so is_not_there b
	until_so nothing_is_pending
	# What the configuration does not want any more is not tried any more.
	rm -f "$work/end" "$work/hog"
	timeout 100 "$belfry" run d -- "$hog" 10 "$work/end" >"$work/hog" 2>&1 &
	until_so test -s "$work/hog"
	configure_vgpus c time=70 mem=50M
	status 1 "$belfry" reload
	is_pending remove d 'program'
	configure_vgpus c time=70 mem=50M d mem=200M
	status 0 "$belfry" reload
	nothing_is_pending || fail "still pending: $(cat "$work/out")"
	touch "$work/end"
	wait %?"run d"
	is_there d || fail "a vGPU was removed that the configuration names again"
	status 0 "$belfry" rm free
	configure_vgpus c time=70 mem=50M b time=20 mem=120M
	status 0 "$belfry" reload
}

export -f confined

# What systemctl reload runs.
the_unit_reports_a_bad_file() {
	local unit=$BELFRY_BUILD_DIR/belfryd.service command
	command=$(sed -n 's/^ExecReload=//p' "$unit")
	[ "${command%% *}" != "$command" ] || fail "the unit has no ExecReload: $(cat "$unit")"
	# belfryd refuses a reload by a process as the unit confines it, so ExecReload must not be confined.
	status 1 bash -c 'confined "$@"' bash "$belfry" reload
	says 'has a seccomp filter' "a reload by a confined process"
	! grep -q '^NoNewPrivileges=yes' "$unit" || [ "${command#+}" != "$command" ] || fail "ExecReload is confined: $command"
	command=${command#+}
	case $command in /*) ;; *) fail "ExecReload has a prefix that changes what it means: $command" ;; esac
	mkdir -p "$work/root/$(dirname "${command%% *}")"
	ln -sf "$belfry" "$work/root/${command%% *}"
	cp "$work/conf" "$work/good"
	echo 'nonsense = 1' >>"$work/conf"
	# shellcheck disable=SC2086 # words, as systemd splits them
	status 1 $work/root$command
	says "belfry: $work/conf:" "ExecReload with a bad file"
	[ ! -s "$work/out" ] || fail "ExecReload says it on standard output"
	cp "$work/good" "$work/conf"
	# shellcheck disable=SC2086
	status 0 $work/root$command
}

# A belfryd that reports an NVIDIA GPU 0 with 8 GiB: it sends the reply of the test's belfryd, with another body.
pretend() {
	cat >"$work/pretend.py" <<'END'
import array, fcntl, json, os, socket, sys
ADD_SEALS = 1033
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.bind(sys.argv[1])
server.listen()
while True:
    client, _ = server.accept()
    real = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    real.connect(sys.argv[2])
    real.send(client.recv(1 << 16))
    reply, fds, _, _ = socket.recv_fds(real, 1 << 16, 1)
    assert fds, "the report of belfryd has no body"
    body = os.memfd_create("body", os.MFD_ALLOW_SEALING)
    os.write(body, json.dumps({"gpus": [{"gpu": "0", "kind": "nv", "index": 0, "mem_total": 8 << 30}]}).encode())
    fcntl.fcntl(body, ADD_SEALS, 15)
    client.sendmsg([reply], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [body]))])
    client.close()
    real.close()
END
	python3 "$work/pretend.py" "$work/d/pretend" "$BELFRY_SOCKET" &
	pretender=$!
	until_so test -S "$work/d/pretend"
}

check_adds_up_the_memory_of_nvidia_gpus() {
	printf '[server]\ngpus = 0\n[vgpu a]\nmem = 5G\n[vgpu b]\nmem = 4G\n' >"$work/nv"
	pretend
	status 1 env BELFRY_SOCKET="$work/d/pretend" "$BELFRYD" --check --config "$work/nv"
	says "$work/nv:5: vgpu 'b': no GPU has room for 4 GiB and 0 % of its time; GPU 0: 3 GiB of 8 GiB" "--check with a GPU of 8 GiB"
	sed -i 's/4G/3G\ngpu = 0/' "$work/nv"
	status 0 env BELFRY_SOCKET="$work/d/pretend" "$BELFRYD" --check --config "$work/nv"
	! grep -q memory "$work/err" || fail "--check of what fits: $(cat "$work/err")"
	kill "$pretender"
	wait "$pretender" 2>/dev/null
	[ ! -e /dev/nvidiactl ] || { echo 'there is an NVIDIA driver: --check without one was not tried'; return; }
	status 0 env BELFRY_SOCKET="$work/d/pretend" "$BELFRYD" --check --config "$work/nv"
	says 'belfryd: GPU 0: its memory is not known, so the sum of reserved memory was not checked: ' "--check without a driver"
	grep -qx ok "$work/out" || fail "--check without a driver: $(cat "$work/out")"
	# Where nothing is promised there is nothing to say about memory.
	printf '[server]\ngpus = 0\n[vgpu a]\ntime = 50\n' >"$work/nv"
	status 0 env BELFRY_SOCKET="$work/d/pretend" "$BELFRYD" --check --config "$work/nv"
	! grep -q memory "$work/err" || fail "--check without promises: $(cat "$work/err")"
}

for test in what_failed_is_reported_and_tried_again a_removal_and_a_creation_are_tried_again the_unit_reports_a_bad_file \
	check_adds_up_the_memory_of_nvidia_gpus; do
	$test
done
end_daemon
exit "$failed"
