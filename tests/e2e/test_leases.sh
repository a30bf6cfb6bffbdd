#!/bin/bash
# SM leases in a shared domain: which SMs programs run on while others come, go, change their shares, stop or are killed.
# Functions are called by name, and scripts for the program are quoted on purpose:
# shellcheck disable=SC1091,SC2015,SC2016,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
# 32 SMs are 4 units.
export BELFRY_SOFT="sms=32,mem=512M,linger=1,name=leases$$"
places="$BELFRY_BUILD_DIR/tests/gpu/gpu_places"
declare -A programs

# begin NAME [OPTION...] [-- ARG...]: gpu_places on that vGPU, with these options of belfry run. $work/NAME.at has its SMs.
begin() {
	local name=$1 options=()
	shift
	while [ $# != 0 ] && [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	[ $# = 0 ] || shift
	rm -f "$work/$name".{at,end}
	timeout 500 "$belfry" run "${options[@]}" "$name" -- "$places" "$work/$name.at" "$work/$name.end" "$@" \
		>"$work/$name.out" 2>"$work/$name.err" &
	programs[$name]=$!
	until_so test -e "$work/$name.at"
}
# finish NAME...: end them. Each must have computed the right result.
finish() {
	local name
	for name; do
		: >"$work/$name.end"
	done
	for name; do
		wait "${programs[$name]}" && has_line 'wrong 0$' "$work/$name.out" ||
			fail "the program on $name: $(cat "$work/$name.out" "$work/$name.err")"
	done
}
explains() {
	status 0 "$belfry" explain "$1"
	has_line "$2" "$work/out"
}
process_of() { figure "$1" runs.0.pid; }
sms_of() { python3 -c 'print(bin(int(open(__import__("sys").argv[1]).read(), 16)).count("1"))' "$work/$1.at" 2>/dev/null; }
runs_on() { [ "$(sms_of "$1")" = "$2" ]; }
has_units() { [ "$(figure "$1" sm.lease.units)" = "$2" ]; }
# are_apart NAME NAME: no SM has kernels of both.
are_apart() { [ $((0x$(cat "$work/$1.at") & 0x$(cat "$work/$2.at"))) = 0 ]; }
are_together() { [ "$(cat "$work/$1.at")" = "$(cat "$work/$2.at")" ]; }
# divided A NA B NB: both run on that many SMs, and apart.
divided() { runs_on "$1" "$2" && runs_on "$3" "$4" && are_apart "$1" "$3"; }
# Prints what a process that connects to the socket gets: "page", or "nothing".
connect_to='import socket, sys, array
sock = socket.socket(socket.AF_UNIX)
sock.settimeout(20)
sock.connect(sys.argv[1])
data, control, flags, _ = sock.recvmsg(1, socket.CMSG_SPACE(4))
print("page" if control else "nothing")'
socket_of() { echo "$BELFRY_RUNTIME_DIR"/mps.*/*/lease; }

echo '== one program has all SMs'
status 0 "$belfry" create a --domain pool --sm 25:100
status 0 "$belfry" create b --domain pool --sm 50:100
begin a
until_so runs_on a 32
until_so has_units a 4
is_figure a sm.lease.sms 32 || fail "its lease: $(figure a sm.lease)"

echo '== two have theirs, apart'
begin b
until_so divided a 8 b 24
until_so has_units a 1
until_so has_units b 3
[ "$(figure a sm.moves)" -ge 1 ] || fail "moves of a: $(figure a sm.moves)"
until_so explains a 'may use 1 of 4 units of SMs, which have 8 of 32 SMs'

echo '== a share that changes while they run'
status 0 "$belfry" set b --sm 25:25
until_so divided a 24 b 8
for _ in 1 2 3 4 5; do
	status 0 "$belfry" set b --sm 50:50
	until_so divided a 16 b 16
	status 0 "$belfry" set b --sm 25:25
	until_so divided a 24 b 8
done
status 0 "$belfry" set b --sm 50:100
until_so divided a 8 b 24

timeout 20 "$belfry" policy check fair >"$work/out" 2>&1
if has_line '^not verified' "$work/out"; then
	echo "without a policy: $(cat "$work/out")"
else
	echo '== units that a policy proposes'
	space="$BELFRY_BUILD_DIR/tests/policies/space.bpf.o"
	status 0 "$belfry" set a --class latency
	status 0 "$belfry" set b --sm 25:100
	until_so divided a 16 b 16
	status 0 "$belfry" policy load "$space" --set units=3
	until_so divided a 24 b 8
	status 0 "$belfry" set b --sm 50:100 # its request comes first
	until_so divided a 16 b 16
	status 0 "$belfry" policy load "$space" --set units=1
	until_so divided a 8 b 24
	status 0 "$belfry" set b --sm 25:100
	status 0 "$belfry" policy unload
	until_so divided a 16 b 16
	status 0 "$belfry" set a --class throughput
	status 0 "$belfry" set b --sm 50:100
	until_so divided a 8 b 24
fi

echo '== programs without a request run on the same SMs'
status 0 "$belfry" create free1 --domain pool --sm 0:100
status 0 "$belfry" create free2 --domain pool
finish b
begin free1
until_so divided a 8 free1 24
begin free2
until_so divided a 8 free2 24
until_so are_together free1 free2
finish free1 free2
status 0 "$belfry" rm free1 free2
until_so runs_on a 32
begin b
until_so divided a 8 b 24

echo '== one ends, and the other has all'
finish b
until_so runs_on a 32
begin b
until_so divided a 8 b 24
kill -9 "$(process_of b)"
wait "${programs[b]}"
until_so runs_on a 32
until_so is_figure b sm.lease None

echo '== an idle one keeps a unit'
begin b -- idle
until_so has_units b 1
until_so runs_on a 32
finish b

echo '== processes that get no page'
socket=$(socket_of)
[ -S "$socket" ] || fail "there is no socket: $socket"
[ "$(timeout 30 python3 -c "$connect_to" "$socket")" = nothing ] || fail "a process outside gets a page"
status 0 "$belfry" create other --domain else --sm 10
status 0 "$belfry" run other -- python3 -c "$connect_to" "$socket"
[ "$(cat "$work/out")" = nothing ] || fail "a process of another domain gets a page"
status 0 "$belfry" run b -- python3 -c "$connect_to" "$socket"
[ "$(cat "$work/out")" = nothing ] || fail "a process without a driver call gets a page"
status 0 "$belfry" run b -- sh -c 'echo "$LD_LIBRARY_PATH $BELFRY_LIBCUDA $BELFRY_LEASE"'
[ "$(cat "$work/out")" = "$BELFRY_BUILD_DIR/src/coro:${BELFRY_BUILD_DIR}/src/soft/cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} $BELFRY_BUILD_DIR/src/soft/cuda/libcuda.so.1 $socket" ] ||
	fail "its environment: $(cat "$work/out")"
begin b --no-lease
until_so runs_on b 32
is_figure b sm.lease None || fail "a lease without the library: $(figure b sm.lease)"
explains b '^1 of its processes has no lease, and uses all SMs' || fail "explain: $(cat "$work/out")"
runs_on a 32 || fail "a program without a lease takes units: $(sms_of a) SMs"
finish b

echo '== a program that is stopped and has units'
timeout 400 "$belfry" events --json >"$work/events" &
events=$!
begin b
until_so divided a 8 b 24
explains b 'no lease' && fail "a program with a lease: $(cat "$work/out")"
kill -STOP "$(process_of b)"
until_so is_figure b sm.lease.late True
until_so is_figure b gate held
until_so has_line 'has not given back SMs' "$work/events"
status 1 "$belfry" open b
says 'its gate is closed until its programs have given back SMs' "open of such a gate"
explains b 'Its gate is closed, since .*: process .* has not given back SMs' || fail "explain: $(cat "$work/out")"
until_so runs_on a 32
kill -CONT "$(process_of b)"
until_so is_figure b gate open
until_so divided a 8 b 24
finish b
until_so runs_on a 32

echo '== a process that has a page and does not follow'
not_following() {
	rm -f "$work/page".{ready,end}
	timeout 300 "$belfry" run --no-lease b -- "$BELFRY_BUILD_DIR/tests/e2e/ignore_lease" "$1" "$work/page.ready" \
		"$work/page.end" 2>"$work/b.err" &
	programs[b]=$!
	until_so test -e "$work/page.ready"
}
server=$(server_pids)
not_following silent
until_so is_figure b sm.lease.late True
until_so runs_on a 32
: >"$work/page.end"
wait "${programs[b]}" || fail "a process that does not answer: $(cat "$work/b.err")"
until_so is_figure b gate open
not_following busy
status 0 "$belfry" set b --sm 0:25 # it has more
for state in held open held open; do # closed, opened on trial, and closed again
	until_so is_figure b gate $state
done
: >"$work/page.end"
wait "${programs[b]}" || fail "a process that works and does not answer: $(cat "$work/b.err")"
until_so is_figure b gate open
status 0 "$belfry" set b --sm 50:100
not_following scribble
sleep 2 # whatever it writes meanwhile
: >"$work/page.end"
wait "${programs[b]}" || fail "a process that scribbles: $(cat "$work/b.err")"
until_so runs_on a 32
[ "$(server_pids)" = "$server" ] || fail "the GPU server was replaced"

echo '== a kernel that does not end'
finish a
begin b -- long
begin a
wait "${programs[b]}" && fail "a program whose kernel keeps its SMs goes on"
has_line 'kept SMs that another vGPU of its domain waits for' "$work/b.err" || fail "why it was ended: $(cat "$work/b.err")"
until_so has_line '"event": *"run_ended".*kept SMs\|kept SMs.*"event": *"run_ended"' "$work/events"
until_so runs_on a 32
kill "$events"
wait "$events" 2>/dev/null
finish a

echo '== sixteen that come and go'
names=$(seq -f 'c%g' 16)
for name in $names; do
	status 0 "$belfry" create "$name" --domain pool
done
begin a
for name in $names; do
	begin "$name"
	[ $((RANDOM % 3)) != 0 ] || finish "$name"
done
for name in $names; do
	[ -e "$work/$name.end" ] || finish "$name"
done
until_so runs_on a 32
finish a
[ "$failed" = 0 ] || timeout 20 "$belfry" stats --json
exit "$failed"
