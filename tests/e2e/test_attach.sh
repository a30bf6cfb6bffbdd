#!/bin/bash
# Attached runs: a program whose process belfry has not started, and whose filter's listener belfryd receives from another
# process, as from a container runtime. On the software GPU it uses the socket for containers.
# Scripts for the program are quoted on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2016,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="mem=512M,linger=1,name=attach$$"
attach="$BELFRY_BUILD_DIR/tests/e2e/attach_self"
hog="$BELFRY_BUILD_DIR/tests/e2e/hog"

use_daemon
start_daemon
# In a container these are the mounts and the environment that belfry oci edit adds.
eval "$("$belfry" soft env)"
folder=$BELFRY_SOFT_DIR
in_container=(env LD_LIBRARY_PATH="$LD_LIBRARY_PATH" BELFRY_SOFT_DIR="$folder/guest")
unset BELFRY_SOFT_DIR LD_LIBRARY_PATH

memory_is_limited() {
	status 0 "$belfry" create limited --mem 64M
	status 0 "$attach" limited "${in_container[@]}" "$hog"
	grep -q 'got 6[0-9] ' "$work/out" || fail "memory: $(cat "$work/out" "$work/err")"
	until_so is_figure limited mem.used 0
}

# Any user can connect to the socket for containers. One of them takes some descriptors of the software GPU, not all.
connections_of_a_user_are_limited() {
	knows_others || return 0
	chmod 711 "$work"
	status 0 "$belfry" create others --mem 64M
	python3 -c '
import os, resource, socket, sys, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
os.setgroups([])
os.setgid(65533)
os.setuid(65533)
socks = []
for i in range(min(most - 100, 5000)):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(sys.argv[1])
    socks.append(sock)
socks[-1].recv(1)  # it was closed
print("full", flush=True)
time.sleep(600)' "$folder/guest/socket" >"$work/full" &
	local flood=$!
	until_so has_line full "$work/full"
	status 0 "$attach" others "${in_container[@]}" "$hog" 1
	kill $flood
	wait $flood
	status 0 "$belfry" rm others
}

# The same program by the same path, and no vGPU.
without_a_vgpu_there_is_no_gpu() {
	status 1 "${in_container[@]}" "$hog" 1
}

the_run_is_listed_and_ends_with_its_last_process() {
	"$belfry" events --json >"$work/events" &
	local events=$!
	status 0 "$belfry" create listed
	status 0 "$attach" --leave --id 0123456789abcdef --name web listed sh -c \
		'sleep 600 & echo $! >"$1"; exec sleep 600' sh "$work/listed.pid"
	until_so is_figure listed runs.0.id 0123456789abcdef
	is_figure listed runs.0.kind container && is_figure listed runs.0.program web || fail "the identity is not listed"
	"$belfry" explain listed | grep -q 'container web is attached.*0123456789abcdef' || fail "explain: identity"
	status 1 "$belfry" rm listed
	says '1 program runs on it' "rm of a vGPU with an attached run"
	until_so test -s "$work/listed.pid"
	kill "$(figure listed runs.0.pid)"
	is_figure listed runs.0.program web || fail "the run has ended before its last process"
	kill "$(cat "$work/listed.pid")"
	until_so is_figure listed runs '[]'
	status 0 "$belfry" rm listed
	until_so has_line '"event":"run_ended".*"kind":"container","id":"0123456789abcdef"' "$work/events"
	kill $events
}

an_ephemeral_vgpu_ends_with_its_run() {
	status 0 "$attach" --leave --ephemeral short sleep 600
	until_so is_there short
	status 3 "$attach" --ephemeral short true
	says 'there already' "a second vGPU of that name"
	kill "$(figure short runs.0.pid)"
	until_so is_not_there short
	status 3 "$attach" --ephemeral --garbage short true
	says 'listener' "a pipe as the listener"
	until_so is_not_there short
}

# A removed vGPU takes the processes with it: the first one, and those that have made driver calls.
removal_kills() {
	status 0 "$belfry" create doomed
	status 0 "$attach" --leave doomed sh -c '"$@" & echo $! >"$0"; exec sleep 600' "$work/doomed.pid" \
		"${in_container[@]}" "$hog" 1 "$work/never"
	until_so test -s "$work/doomed.pid"
	until_so is_figure doomed processes.0.pid "$(cat "$work/doomed.pid")"
	local first
	first=$(figure doomed runs.0.pid)
	status 0 "$belfry" rm --force doomed
	until_so all_gone "$first" "$(cat "$work/doomed.pid")"
}

# A process without a filter is not the first process of a run, and is not killed.
other_processes_are_not_killed() {
	sleep 600 &
	local other=$!
	status 0 "$belfry" create careful
	status 0 "$attach" --leave --pid "$other" careful sleep 600
	is_figure careful runs.0.pid 0 || fail "a process without a filter was accepted"
	status 0 "$belfry" rm --force careful
	is_gone "$other" && fail "another process was killed"
	kill "$other"
}

# Neither is a process with another filter, such as a service, though root names it.
services_are_not_killed() {
	local service job
	confined "$(command -v sh)" -c 'echo $$ >"$0"; exec sleep 600' "$work/service.pid" &
	job=$!
	until_so test -s "$work/service.pid"
	service=$(cat "$work/service.pid")
	status 0 "$belfry" create careful
	status 0 "$attach" --leave --pid "$service" careful sleep 600
	is_figure careful runs.0.pid 0 || fail "a process outside the run was accepted: $(figure careful runs.0.pid)"
	status 0 "$belfry" rm --force careful
	is_gone "$service" && fail "a service was killed"
	kill "$service"
	ended "$job"
}

only_owner_and_root_attach() {
	knows_others || return 0
	local as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
	printf '[server]\naccess = everyone\n' >"$work/conf"
	status 0 "$belfry" reload
	status 0 "$belfry" create public --public
	status 3 "${as[@]}" "$attach" public true
	says 'may attach' "a public vGPU"
	status 0 "$belfry" rm public
	status 0 "${as[@]}" "$attach" --ephemeral his true
	status 0 "$belfry" create his --owner 65534
	status 0 "${as[@]}" "$attach" his true
	# Root attaches programs of users, as in a job: only to a vGPU that the user may use.
	status 0 "$attach" --owner 65534 his true
	status 3 "$attach" --owner 65533 his true
	says 'the program to user 65533' "a program of another user"
	status 0 "$belfry" set his --public
	status 0 "$attach" --owner 65533 his true
	status 0 "$belfry" rm his
	# The vGPU of a job is root's matter, although the user of the job owns it.
	status 0 "$belfry" create slurm-7 --owner 65534
	status 1 "${as[@]}" "$belfry" rm slurm-7
	says 'only root may create, change or remove' "rm by the owner of a job"
	status 1 "${as[@]}" "$belfry" rm --force slurm-7
	status 0 "$belfry" rm slurm-7
}

# The runs on vGPUs of one user, whoever attaches them, are limited. Those of root are not.
attached_runs_of_a_user_are_counted() {
	knows_others || return 0
	status 0 "$belfry" create counted --owner 65534
	status 0 "$attach" --leave --owner 65534 --times 1024 counted sleep 600
	status 3 "$attach" --owner 65534 counted true
	says 'user 65534 has 1024 attached runs, the most one user may have' "one run too many"
	status 0 "$belfry" create roots
	status 0 "$attach" roots true
	status 0 "$belfry" rm roots
	kill "$(figure counted runs.0.pid)"
	until_so is_figure counted runs '[]'
	status 0 "$attach" --owner 65534 counted true
	status 0 "$belfry" rm counted
}

# Inside: requests that change something are refused, with and without no_new_privs.
inside_nothing_is_changed() {
	status 0 "$belfry" create mine --mem 64M
	status 1 "$attach" mine "$belfry" set mine --mem 128M
	says 'cannot be told from one' "set inside an attached run"
	status 3 "$attach" mine "$attach" mine true
	is_figure mine mem.limit $((64 << 20)) || fail "a program has changed its limit"
	status 0 "$belfry" rm mine
}

belfryd_is_restarted_with_carry() {
	printf '[server]\non_daemon_death = carry\n' >"$work/conf"
	status 0 "$belfry" reload
	status 0 "$belfry" create stays
	status 0 "$attach" --leave stays sh -c 'while ! test -e "$0"; do sleep 0.05; done; "$@" >"$0.out"; exec sleep 600' \
		"$work/go" "${in_container[@]}" "$hog" 8
	local server pid
	server=$(server_pid stays)
	pid=$(figure stays runs.0.pid)
	kill -9 "$daemon"
	ended "$daemon"
	start_daemon
	[ "$(server_pid stays)" = "$server" ] || fail "the GPU server has ended"
	is_figure stays runs.0.pid "$pid" || fail "the run has ended"
	: >"$work/go"
	until_so has_line 'got 8 ' "$work/go.out"
	kill "$pid"
	until_so is_figure stays runs '[]'
	status 0 "$belfry" rm stays
}

# With on_daemon_death = end nothing of a run is left.
belfryd_dies() {
	printf '[server]\non_daemon_death = end\n' >"$work/conf"
	status 0 "$belfry" reload
	status 0 "$belfry" create dies
	status 0 "$attach" --leave dies sleep 600
	local pid server
	pid=$(figure dies runs.0.pid)
	server=$(server_pid dies)
	kill -9 "$daemon"
	ended "$daemon"
	until_so all_gone "$pid" "$server"
	start_daemon
}

memory_is_limited
connections_of_a_user_are_limited
without_a_vgpu_there_is_no_gpu
the_run_is_listed_and_ends_with_its_last_process
an_ephemeral_vgpu_ends_with_its_run
removal_kills
other_processes_are_not_killed
services_are_not_killed
only_owner_and_root_attach
attached_runs_of_a_user_are_counted
inside_nothing_is_changed
belfryd_is_restarted_with_carry
belfryd_dies
end_daemon
exit "$failed"
