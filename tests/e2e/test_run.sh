#!/bin/bash
# belfry run from end to end on the software GPU: the chain belfry, belfryd, program; exit statuses, signals, what
# is left behind when any of them dies, and the other commands on a running vGPU.
# Scripts for the program are quoted on purpose, and functions are called by name:
# shellcheck disable=SC2015,SC2016,SC2317
set -u
: "${BELFRY:?}"
work=$(mktemp -d)
trap 'kill -9 $(jobs -p) 2>/dev/null; "$belfry" soft stop 2>/dev/null; rm -rf "$work"' EXIT
export BELFRY_RUNTIME_DIR="$work/run" BELFRY_GPU=soft
export BELFRY_SOFT="gpus=2,mem=256M,linger=0,name=run$$"
unset BELFRY_SOFT_DIR
belfry=$BELFRY
failed=0

fail() {
	echo "FAILED: $*"
	failed=1
}

# status WANTED COMMAND...: run it to its end.
status() {
	local wanted=$1 got
	shift
	timeout 20 "$@" >"$work/out" 2>"$work/err"
	got=$?
	[ "$got" = "$wanted" ] || fail "$* : status $got, not $wanted: $(cat "$work/err")"
}

# until COMMAND...: wait for something that happens soon, or fail.
until_so() {
	for _ in $(seq 500); do
		"$@" && return 0
		sleep 0.02
	done
	fail "$* : did not come to be"
	return 1
}

is_there() { [ -S "$work/run/$1.sock" ]; }
# Gone, or a zombie that waits for us alone.
is_gone() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }
has_line() { grep -q "$1" "$2" 2>/dev/null; }

# Who is below a process: belfryd, then the program.
child_of() { cat "/proc/$1/task/$1/children" 2>/dev/null; }

# The program's own status, output, input and environment.
status 0 "$belfry" run -- true
status 7 "$belfry" run -- sh -c 'exit 7'
status 137 "$belfry" run -- sh -c 'kill -9 $$'
status 143 "$belfry" run -- sh -c 'kill -15 $$'
status 127 "$belfry" run -- /nonexistent/program
status 126 "$belfry" run -- /etc/passwd
status 0 "$belfry" run --gpu soft -- true
status 0 "$belfry" run --gpu soft:1 -- true
status 1 "$belfry" run --gpu soft:3 -- true
grep -q 'the software GPU has fewer' "$work/err" || fail "a GPU that is not there: $(cat "$work/err")"
status 1 "$belfry" run --mem 1T -- true
grep -q 'larger than the card' "$work/err" || fail "a limit larger than the card: $(cat "$work/err")"
[ "$(echo hello | "$belfry" run -- cat)" = hello ] || fail "input does not reach the program"
[ "$(A=b "$belfry" run -- sh -c 'echo $A')" = b ] || fail "the environment does not reach the program"
status 1 "$belfry" run -- "$belfry" run -- true
grep -q 'supervised already' "$work/err" || fail "a second supervisor: $(cat "$work/err")"
status 0 "$belfry" run -- sh -c 'trap "" PIPE; exit 0'
# What was ignored before stays ignored, and nothing else is.
ignored=$(grep SigIgn /proc/self/status)
[ "$("$belfry" run -- grep SigIgn /proc/self/status)" = "$ignored" ] || fail "ignored signals changed"
blocked=$(grep SigBlk /proc/self/status)
[ "$("$belfry" run -- grep SigBlk /proc/self/status)" = "$blocked" ] || fail "blocked signals changed"

# A signal to belfry is the program's.
"$belfry" run --name sig -- bash -c 'trap "echo got; exit 3" TERM; echo ready; while :; do sleep 0.05; done' \
	>"$work/sig" 2>&1 &
runner=$!
until_so has_line ready "$work/sig"
kill -TERM $runner
wait $runner
[ $? = 3 ] && has_line got "$work/sig" || fail "SIGTERM did not reach the program"

# The other commands on a running vGPU.
"$belfry" run --name one --mem 64M -- sleep 60 &
runner=$!
until_so is_there one
status 0 "$belfry" ls
grep -q '^one ' "$work/out" || fail "ls does not list it"
status 0 "$belfry" ls --json
python3 -c 'import json,sys; v=json.load(open(sys.argv[1]))["vgpus"][0]; assert v["name"]=="one" and v["mem"]["limit"]==64<<20 and v["gate"]=="open"' \
	"$work/out" || fail "ls --json is not as it should be: $(cat "$work/out")"
for order in hold open stop resume; do
	status 0 "$belfry" $order one
done
status 0 "$belfry" hold one --for 10ms
status 0 "$belfry" set one --mem 32M --timeslice 1ms --interleave low
status 1 "$belfry" set one --mem 1T
status 1 "$belfry" run --name one -- true
grep -q 'is running' "$work/err" || fail "two of one name: $(cat "$work/err")"
status 1 "$belfry" hold nobody
kill -TERM $runner
wait $runner
[ $? = 143 ] || fail "the program did not end by the signal"
until_so test ! -e "$work/run/one.sock"

# Whichever dies, nothing is left: not the others, not what the program has started, not the socket.
for victim in belfry belfryd program; do
	for round in 1 2 3; do
		rm -f "$work/pids" "$work/pids.program"
		"$belfry" run --name v -- bash -c '
			sleep 300 & echo $! >>"$1"
			setsid sleep 300 & echo $! >>"$1"
			(sleep 300 & echo $! >>"$1"; wait) & echo $! >>"$1"
			while [ "$(wc -l <"$1")" -lt 4 ]; do sleep 0.01; done
			echo $$ >"$1.program"; wait' bash "$work/pids" 2>/dev/null &
		runner=$!
		until_so test -s "$work/pids.program"
		daemon=$(child_of $runner)
		program=$(cat "$work/pids.program")
		case $victim in
		belfry) kill -9 $runner ;;
		belfryd) kill -9 "$daemon" ;;
		program) kill -9 "$program" ;;
		esac
		until_so is_gone $runner || kill -9 $runner
		wait $runner 2>/dev/null
		got=$?
		case $victim-$got in
		belfry-137 | belfryd-1 | program-137) ;;
		*) fail "$victim killed in round $round: belfry's status is $got" ;;
		esac
		for pid in $daemon $program $(cat "$work/pids"); do
			until_so is_gone "$pid" || fail "$victim killed: $pid is left"
		done
	done
done
status 0 "$belfry" ls # removes the socket of a belfryd that was killed
[ "$(ls "$work/run")" = "soft-run$$" ] || fail "left in the folder: $(ls "$work/run")"
# With linger=0 the software GPU goes with the last of its programs.
until_so test ! -e "$work/run/soft-run$$/socket"
# A program that ends takes along what it has left running.
"$belfry" run -- sh -c "sleep 300 & echo \$! >$work/left"
until_so is_gone "$(cat "$work/left")"
exit $failed
