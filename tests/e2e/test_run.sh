#!/bin/bash
# belfry run from end to end on the software GPU: the chain belfry, keeper, program beside a private belfryd; exit
# statuses, signals, what is left behind when any of them dies, and the other commands on a running vGPU.
# Scripts for the program are quoted on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2016,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="gpus=2,mem=256M,linger=0,name=run$$"

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
says 'the software GPU has fewer' "a GPU that is not there"
status 1 "$belfry" run --mem 1T -- true
says 'larger than the GPU' "a limit larger than the card"
[ "$(echo hello | "$belfry" run -- cat)" = hello ] || fail "input does not reach the program"
[ "$(A=b "$belfry" run -- sh -c 'echo $A')" = b ] || fail "the environment does not reach the program"
status 1 "$belfry" run -- "$belfry" run -- true
says 'supervised already' "a second supervisor"
status 0 "$belfry" run -- sh -c 'trap "" PIPE; exit 0'
# What was ignored before stays ignored, and nothing else is.
ignored=$(grep SigIgn /proc/self/status)
[ "$("$belfry" run -- grep SigIgn /proc/self/status)" = "$ignored" ] || fail "ignored signals changed"
blocked=$(grep SigBlk /proc/self/status)
[ "$("$belfry" run -- grep SigBlk /proc/self/status)" = "$blocked" ] || fail "blocked signals changed"

# Device files that were open before are closed by the time the program runs, wherever they stand; others are not.
inherit="$BELFRY_BUILD_DIR/tests/e2e/inherit"
folder=$("$belfry" soft env --soft "$BELFRY_SOFT" | sed -n 's/^BELFRY_SOFT_DIR=//p')
status 0 "$inherit" "$folder" sh -c 'for fd in 40 41 42 43 200; do test -e /proc/self/fd/$fd || exit 1; done'
status 0 "$inherit" "$folder" "$belfry" run -- sh -c '
	for fd in 40 41 200; do test ! -e /proc/self/fd/$fd || exit 1; done
	for fd in 42 43; do test -e /proc/self/fd/$fd || exit 1; done'

# Where the GPU server may not reach into the program (Yama), belfry does it for it: the program, its children too.
status 0 env BELFRY_STEWARD=1 "$belfry" run -- "$BELFRY_BUILD_DIR/tests/gpu/gpu_saxpy" --times 2
status 0 env BELFRY_STEWARD=1 "$belfry" run -- "$BELFRY_BUILD_DIR/tests/gpu/gpu_multi" --procs 3 --log2 16

# A program joins the shared domain of CUDA_MPS_PIPE_DIRECTORY if the folder has a `control`: without a vGPU always, on a
# vGPU only if the vGPU is in that domain.
mkdir "$work/mps"
mps=(env CUDA_MPS_PIPE_DIRECTORY="$work/mps")
status 0 "${mps[@]}" "$belfry" run -- "$BELFRY_BUILD_DIR/tests/gpu/gpu_saxpy" --times 2
touch "$work/mps/control"
status 0 "${mps[@]}" "$belfry" soft run -- "$BELFRY_BUILD_DIR/tests/gpu/gpu_saxpy" --times 2
status 1 "${mps[@]}" "$belfry" run -- "$BELFRY_BUILD_DIR/tests/gpu/gpu_saxpy" --times 2
says 805 "a shared domain of others"
grep -qF 'is not permitted to join the shared domain' "$BELFRY_RUNTIME_DIR/belfryd.log" ||
	fail "the log does not say that the domain was refused"

# What /proc says of other processes than the program's would be no supervision.
if [ "$(id -u)" = 0 ] && unshare -pf true 2>/dev/null; then
	status 1 unshare -pf env BELFRY_RUNTIME_DIR="$work/apart" "$belfry" run -- true
	says 'another PID namespace' "a /proc of another PID namespace"
	if unshare -pf --mount-proc true 2>/dev/null; then # not in a chroot
		status 1 unshare -pf --mount-proc env BELFRY_RUNTIME_DIR="$work/apart" "$belfry" run -- true
		says 'start it under an init' "the first process of a PID namespace"
	fi
else
	echo 'not root, or no PID namespaces: a /proc of another one was not tried'
fi

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
# A vGPU's name where a program is expected.
for words in 'one true' 'one --mem 1G -- true' '-- one'; do
	# shellcheck disable=SC2086 # words
	status 2 "$belfry" run $words
	says 'one is a vGPU and no program; write belfry run one -- PROGRAM' "run $words"
done
status 127 "$belfry" run nobody true
status 0 "$belfry" hold one --for 10ms
status 0 "$belfry" set one --mem 32M --timeslice 1ms --interleave low
status 1 "$belfry" set one --mem 1T
status 1 "$belfry" run --name one -- true
says 'is there already' "two of one name"
# A program more on the same vGPU, by its name.
status 5 "$belfry" run one -- sh -c 'exit 5'
is_there one || fail "a program more took the vGPU along"
status 2 "$belfry" run --mem 1G one -- true
status 1 "$belfry" run nobody -- true
says 'no vGPU of this name' "a vGPU that is not there"
status 1 "$belfry" hold nobody
status 1 "$belfry" rm one
says '--force' "a vGPU in use is removed"
kill -TERM $runner
wait $runner
[ $? = 143 ] || fail "the program did not end by the signal"
until_so is_not_there one

# One that was created stays when its programs have ended, and is used by its name.
status 0 "$belfry" create stays --mem 32M
status 0 "$belfry" run stays -- true
# Times are in seconds for people, and whole nanoseconds where the key says so.
status 0 "$belfry" stats stays
! grep -q '_ns' "$work/out" && grep -q '^  uptime  *[0-9]*\.[0-9]* s$' "$work/out" &&
	grep -q '^  time .* gpu [0-9]*\.[0-9]* s, held [0-9.]* s,' "$work/out" || fail "stats: $(cat "$work/out")"
[[ $(figure stays time.gpu_ns) =~ ^[0-9]+$ ]] || fail "stats --json: gpu_ns is $(figure stays time.gpu_ns)"
status 1 "$belfry" create stays
says 'is there already' "two of one name"
timeout 60 "$belfry" run stays -- sleep 60 2>"$work/told" &
runner=$!
until_so eval '"$belfry" stats stays | grep -q "runs .*sleep"'
status 0 "$belfry" rm --force stays
wait $runner
[ $? = 1 ] && has_line 'removed' "$work/told" || fail "a program whose vGPU was removed: $(cat "$work/told")"
until_so is_not_there stays

# When belfry, the keeper or belfryd dies, the program and its descendants end, and a survivor reports why.
for victim in belfry keeper program server router; do
	for round in 1 2 3; do
		rm -f "$work/pids" "$work/pids.program"
		"$belfry" run --name v -- bash -c '
			sleep 300 & echo $! >>"$1"
			setsid sleep 300 & echo $! >>"$1"
			(sleep 300 & echo $! >>"$1"; wait) & echo $! >>"$1"
			while [ "$(wc -l <"$1")" -lt 4 ]; do sleep 0.01; done
			echo $$ >"$1.program"; wait' bash "$work/pids" 2>"$work/told" &
		runner=$!
		until_so test -s "$work/pids.program"
		keeper=$(child_of $runner)
		program=$(cat "$work/pids.program")
		server=$(server_pid v)
		router=$(router_pid)
		case $victim in
		belfry) kill -9 $runner ;;
		keeper) kill -9 "$keeper" ;;
		program) kill -9 "$program" ;;
		server) kill -9 "$server" ;;
		router) kill -9 "$router" ;;
		esac
		until_so is_gone $runner || kill -9 $runner
		wait $runner 2>/dev/null
		got=$?
		case $victim-$got in
		belfry-137 | keeper-1 | program-137 | server-1 | router-1) ;;
		*) fail "$victim killed in round $round: belfry's status is $got" ;;
		esac
		case $victim in
		keeper) has_line 'keeper of the program died; what ran on the vGPU was ended' "$work/told" ;;
		server) has_line 'GPU server died; what ran on the vGPU was ended' "$work/told" ;;
		router) has_line 'belfry: belfryd has died' "$work/told" ;;
		*) [ ! -s "$work/told" ] ;;
		esac || fail "$victim killed: it said '$(cat "$work/told")'"
		for pid in $keeper $program $(cat "$work/pids"); do
			until_so is_gone "$pid" || fail "$victim killed: $pid is left"
		done
		[ $victim != router ] || until_so is_gone "$server" || fail "router killed: its GPU server is left"
		# The next run, at once, finds everything in order.
		status 0 "$belfry" run --name v -- true
	done
done

# The private belfryd ends by itself when there is nothing to do, and what is left is what the next one is to find.
for pid in $(router_pid) $(server_pids); do
	until_so is_gone "$pid" || fail "a private belfryd does not end by itself: $pid is left"
done
[ "$(echo "$work"/run/*)" = "$(echo "$work"/run/{belfryd.log,belfryd.sock.lock,belfryd.sock.start.lock,soft-run$$})" ] ||
	fail "left in the folder: $(ls "$work/run")"
# With linger=0 the software GPU goes with the last of its programs.
until_so test ! -e "$work/run/soft-run$$/socket"
# A program that ends takes along what it has left running.
"$belfry" run -- sh -c "sleep 300 & echo \$! >$work/left"
until_so is_gone "$(cat "$work/left")"
# Without a linger time, a run can meet a belfryd that is ending. The run must succeed.
export BELFRY_LINGER=0
for round in $(seq 40); do
	status 0 "$belfry" run -- true
done
exit "$failed"
