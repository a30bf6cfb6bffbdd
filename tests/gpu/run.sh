#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2013,SC2015,SC2046,SC2086,SC2317
# run.sh [--list] [PATTERN]: the behaviours of Belfry on a real GPU, or those that PATTERN selects (is_wanted in common.sh).
# Prints one line for each. With BELFRY_GPU=soft it uses the software GPU. Runs from the source tree after `make`, and from
# the portable folder. The exit status is 77 without an NVIDIA device.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/common.sh"

GIB=$((1 << 30))

# Each behaviour is a function; what it prints is shown when it fails. Return 77 to skip, with a last line saying why.

a_program_computes() { on 60 4G t-saxpy "$BIN/gpu_saxpy" --times 3; }
cuda_graphs_run() { on 60 4G t-graph "$BIN/gpu_graph" --replays $(is_soft && echo 50 || echo 1000); }
a_program_of_8_processes_runs() { on 90 12G t-multi "$BIN/gpu_multi" --procs 8; }
an_opencl_program_runs() { need_real_gpu "it has no OpenCL" && on 60 4G t-opencl "$BIN/gpu_opencl" --limit $((4 * GIB)); }
nvidia_smi_runs() {
	need_real_gpu "nvidia-smi asks for much else" || return
	command -v nvidia-smi >/dev/null || { echo "no nvidia-smi"; return 77; }
	on 60 4G t-smi nvidia-smi && on 60 4G t-smi2 nvidia-smi -q -d MEMORY
}
pytorch_trains() { need_real_gpu "PyTorch brings machine code" && have_python && on 120 8G t-train python3 "$GPU/torch_train.py" $((8 * GIB)); }
pytorch_infers() { need_real_gpu "PyTorch brings machine code" && have_python && on 120 8G t-infer python3 "$GPU/torch_infer.py"; }

have_python() {
	command -v python3 >/dev/null || { echo "no python3"; return 77; }
}

a_statically_linked_runtime_runs() {
	local nvcc arch
	nvcc=$(command -v nvcc || first_program /usr/local/cuda/bin/nvcc) || { echo "no nvcc"; return 77; }
	if is_soft; then
		arch=compute_80
	else
		arch=$(timeout 20 nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d '. ')
		arch=sm_${arch:-90}
	fi
	timeout 120 "$nvcc" -arch="$arch" -cudart static "$GPU/gpu_static.cu" -o "$WORK/gpu_static" || return 1
	on 60 4G t-static "$WORK/gpu_static"
}

# The MPS server is a program of the vGPU's too: it holds its clients' contexts.
an_mps_client_runs() {
	need_real_gpu "MPS is NVIDIA's" || return
	command -v nvidia-cuda-mps-control >/dev/null || { echo "no nvidia-cuda-mps-control"; return 77; }
	export CUDA_MPS_PIPE_DIRECTORY=$WORK/mps CUDA_MPS_LOG_DIRECTORY=$WORK/mps-log
	mkdir -p "$WORK/mps" "$WORK/mps-log"
	# shellcheck disable=SC2016 # for the shell inside
	on 60 8G t-mps bash -c '
		timeout 20 nvidia-cuda-mps-control -d || { echo "the MPS control daemon does not start"; exit 77; }
		timeout 40 "$1"
		status=$?
		servers=$(echo get_server_list | timeout 20 nvidia-cuda-mps-control)
		echo quit | timeout 20 nvidia-cuda-mps-control
		[ -n "$servers" ] || { echo "no MPS server was started: it did not run as a client"; status=1; }
		exit $status' - "$BIN/gpu_saxpy" && return
	status=$?
	cat "$WORK/mps-log"/*.log | tail -n 5
	return "$status"
}
# Two vGPUs of a domain are clients of one MPS server, which Belfry starts.
programs_of_a_shared_domain_run() {
	local busy status
	is_soft || command -v nvidia-cuda-mps-control >/dev/null || { echo "no nvidia-cuda-mps-control"; return 77; }
	timeout -k 5 60 "$BELFRY" run --name t-shared1 --mem 4G --domain t-shared --sm 50 -- "$BIN/gpu_busy" --secs 30 \
		>/dev/null 2>"$WORK/shared" &
	busy=$!
	wait_until 30 vgpu_has_channels t-shared1 || { echo "the first program did not start"; cat "$WORK/shared"; return 1; }
	# shellcheck disable=SC2016 # for the shell inside
	timeout -k 5 60 "$BELFRY" run --name t-shared2 --mem 2G --domain t-shared --sm 25 -- bash -c '
		"$1" --times 3 || exit 1
		[ "$2" = soft ] || [ -n "$(echo get_server_list | timeout 20 nvidia-cuda-mps-control)" ] ||
			{ echo "no MPS server was started: it did not run as a client"; exit 1; }' \
		- "$BIN/gpu_saxpy" "${BELFRY_GPU:-}"
	status=$?
	kill -0 "$busy" 2>/dev/null || { echo "the first program has ended"; cat "$WORK/shared"; status=1; }
	kill "$busy"
	wait "$busy" 2>/dev/null
	return "$status"
}
the_drivers_checkpoint_works_or_is_refused() {
	need_real_gpu "it has no checkpoint" && on 90 4G t-checkpoint "$BIN/gpu_checkpoint"
}

the_limit_is_exact() { on 60 2G t-exact "$BIN/gpu_exact" --limit $((2 * GIB)); }
managed_memory_is_bounded() { need_real_gpu "managed memory is host memory there" && on 60 4G t-managed "$BIN/gpu_managed" --limit $((4 * GIB)); }
memory_stays_within_the_limit() {
	need_real_gpu "it has no arrays and no CUDA IPC" || return
	on 120 10G t-memory "$BIN/gpu_memory" --procs 8 --ops 2000 --limit $((10 * GIB))
}

programs_are_told_the_vgpu() {
	local busy status
	start_native 40 "$BIN/gpu_busy" --secs 30 >"$WORK/busy"
	busy=$STARTED
	wait_until 20 grep -q busy "$WORK/busy" || { echo "the neighbour did not start"; return 1; }
	on 60 3G t-told "$BIN/gpu_told" --limit $((3 * GIB))
	status=$?
	kill "$busy"
	wait "$busy" 2>/dev/null
	return "$status"
}

a_closed_gate_holds_what_came_after() {
	if is_soft; then # no neighbour: it would have its own turns on this machine's processors, too
		native 90 "$BIN/gpu_gate" --holds 20 --long 1 --busy none
	else
		native 90 "$BIN/gpu_gate" --holds 30 --long 1
	fi
}
a_stop_takes_effect_in_mid_kernel() {
	# The slowest are the busy host's: what runs is stopped when its thread has a processor again. Stops that wait for
	# the kernel take half its time.
	if is_soft; then
		timeout -k 5 90 "$BIN/gpu_stopper" --stops 10 --ms 500 --rounds 512 --limit-us 20000 --percentile 50 --clocks 0
	else
		native 90 "$BIN/gpu_stopper" --stops 15 --ms 500 --limit-us 3000
	fi
}

a_hold_ends_by_itself() {
	local gap
	start_on 30 4G t-hold "$BIN/gpu_gap" --secs 3 --top 1 >"$WORK/gap"
	wait_until 20 vgpu_has_channels t-hold || { echo "the program did not start"; return 1; }
	sleep 1
	timeout 10 "$BELFRY" hold t-hold --for 300ms || return 1
	wait "$STARTED" || { cat "$WORK/gap"; return 1; }
	cat "$WORK/gap"
	gap=$(awk '/^gap/ { print int($2); exit }' "$WORK/gap")
	[ "$gap" -ge 250 ] && [ "$gap" -le 900 ] || { echo "longest gap $gap ms for a hold of 300 ms"; return 1; }
}

a_timeslice_can_be_changed() {
	start_on 30 4G t-slice "$BIN/gpu_gap" --secs 2 --top 1 >"$WORK/slice"
	wait_until 20 vgpu_has_channels t-slice || { echo "the program did not start"; return 1; }
	timeout 10 "$BELFRY" set t-slice --timeslice 200us || return 1
	wait "$STARTED" || { cat "$WORK/slice"; return 1; }
	BELFRY_VGPU=t-slice2 timeout -k 5 60 "$BELFRY" run --name t-slice2 --mem 4G --timeslice 500us -- "$BIN/gpu_saxpy"
}

vgpu_has_channels() {
	timeout 10 "$BELFRY" stats "$1" 2>/dev/null | grep -q '^ *channels *[1-9]'
}

a_fault_is_the_programs_own() {
	local kind status
	for kind in illegal trap assert; do
		on 30 4G "t-$kind" "$BIN/gpu_fault" "$kind" || { echo "$kind: status $?"; return 1; }
	done
	on 30 4G t-abort "$BIN/gpu_fault" abort
	status=$?
	[ "$status" = 134 ] || { echo "abort: status $status instead of 134"; return 1; }
	on 30 4G t-kill "$BIN/gpu_fault" kill
	status=$?
	[ "$status" = 137 ] || { echo "kill: status $status instead of 137"; return 1; }
	on 30 4G t-after "$BIN/gpu_saxpy"
}

# fault_told NAME: its stats report one fault with Xid 31, an invalid address.
fault_told() {
	timeout 10 "$BELFRY" stats --json "$1" 2>/dev/null | tr -d ' \n' | grep -q '"faults":{"count":1,"xid":31,'
}

a_fault_is_told() {
	"$BELFRY" create t-told --mem 4G || return 1
	timeout -k 5 60 "$BELFRY" run t-told -- "$BIN/gpu_fault" illegal || return 1
	wait_until 5 fault_told t-told || { timeout 10 "$BELFRY" stats --json t-told; return 1; }
	timeout 10 "$BELFRY" explain t-told
	timeout -k 5 60 "$BELFRY" run t-told -- "$BIN/gpu_saxpy" || return 1
	timeout 10 "$BELFRY" rm t-told
}

# Counters are there from Hopper on, and where NVIDIA's management library is.
how_busy_it_is_is_told() {
	local busy
	start_on 30 4G t-counted "$BIN/gpu_busy" --secs 5 >/dev/null
	wait_until 20 is_counted t-counted && busy=$(timeout 10 "$BELFRY" stats --json t-counted | tr -d ' \n' | grep -o '"busy":{[^}]*}')
	wait "$STARTED" || return 1
	[ -n "${busy:-}" ] && echo "$busy" && return 0
	is_soft && return 1
	echo "the GPU does not tell"
	return 77
}

is_counted() {
	timeout 10 "$BELFRY" stats --json "$1" 2>/dev/null | tr -d ' \n' | grep -q '"busy":{"sm":\(0\.[0-9]*[1-9]\|1\)'
}

a_neighbours_fault_disturbs_nobody() {
	local steady status kind
	start_on 60 4G t-steady "$BIN/gpu_steady" --until "$WORK/enough" --secs 40 --launches $(is_soft && echo 20 || echo 1000) >"$WORK/steady" 2>&1
	steady=$STARTED
	for kind in illegal trap assert abort kill exit; do
		start_on 30 4G "t-bad-$kind" "$BIN/gpu_fault" "$kind" >/dev/null 2>&1
		sleep 0.2
	done
	for kind in illegal kill; do
		native 30 "$BIN/gpu_fault" "$kind" >/dev/null 2>&1
	done
	touch "$WORK/enough"
	wait "$steady"
	status=$?
	cat "$WORK/steady"
	wait
	return "$status"
}

# The first child of a run may be one that only looks whether a filter can be had: the keeper comes after it.
kill_next_children() {
	for _ in 1 2 3; do
		wait_until 2 all_gone "$1" && return
		# shellcheck disable=SC2046 # none, or one
		kill -9 $(cat "/proc/$1/task/$1/children" 2>/dev/null) 2>/dev/null
	done
}

# Kill a process of a run (program, belfry, keeper), the GPU server or belfryd at a random moment; nothing may be left
# on the GPU, nor any process of the run. No `timeout` here, so that the wrapper's number is known; gpu_busy ends by
# itself.
killed_at_random() {
	local which=$1 i runner victim before tree pid
	is_soft || command -v nvidia-smi >/dev/null || { echo "no nvidia-smi"; return 77; }
	before=$(gpu_used_mib)
	for i in 1 2 3; do
		"$BELFRY" run --name "t-kill9-$which-$i" --mem 4G -- "$BIN/gpu_busy" --secs 20 >/dev/null 2>&1 &
		runner=$!
		sleep "0.$((RANDOM % 9))$((RANDOM % 10))"
		tree=$(family "$runner")
		case $which in
		program) victim=$(pid_named gpu_busy $tree) ;;
		belfry) victim=$runner ;;
		keeper) victim=$(cat "/proc/$runner/task/$runner/children" 2>/dev/null) ;;
		server) victim=$(server_of "t-kill9-$which-$i") ;;
		belfryd) victim=$(daemon_pid) ;;
		esac
		# too early for it to be there: the run itself is the victim then
		victim=$(set -- $victim && echo "${1:-$runner}")
		[ "$which" != belfryd ] || tree="$tree $(server_of "t-kill9-$which-$i")"
		echo "kill -9 $victim ($which)"
		kill -9 "$victim" 2>/dev/null
		[ "$which" != keeper ] || kill_next_children "$runner"
		tree="$tree $(family "$runner")"
		if ! wait_until 10 all_gone $tree; then
			for pid in $tree; do
				[ -e "/proc/$pid" ] || continue
				echo "left: $pid $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
				kill -9 "$pid" 2>/dev/null
			done
			return 1
		fi
		wait "$runner" 2>/dev/null
		wait_until 10 nothing_on_gpu "$before" ||
			{ echo "left on the GPU: $(gpu_processes) processes, $(gpu_used_mib) MiB, $before before"; return 1; }
	done
	# and the next program finds everything in order
	on 60 4G "t-next-$which" "$BIN/gpu_saxpy"
}

# The process of belfryd, the first in the answer, and that of a vGPU's GPU server; nothing if it is not there yet.
daemon_pid() {
	timeout 10 "$BELFRY" ls --json 2>/dev/null | awk '$1 == "\"pid\":" { print $2 + 0; exit }'
}

server_of() {
	timeout 10 "$BELFRY" stats "$1" 2>/dev/null | awk '$1 == "pid" { print $2; exit }'
}

pid_named() {
	local name=$1 pid
	shift
	for pid; do
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$name" ] && echo "$pid" && return
	done
}

all_gone() {
	local pid
	for pid; do
		[ -e "/proc/$pid" ] || continue
		# a zombie child of this shell has ended
		grep -q '^State:[[:space:]]*Z' "/proc/$pid/status" 2>/dev/null || return 1
	done
}

nothing_on_gpu() {
	local used
	used=$(gpu_used_mib)
	[ "$(gpu_processes)" = 0 ] && [ "${used:-0}" -le "$(($1 + 4))" ]
}

kill_9_of_the_program_leaves_nothing() { killed_at_random program; }
kill_9_of_belfry_leaves_nothing() { killed_at_random belfry; }
kill_9_of_the_keeper_leaves_nothing() { killed_at_random keeper; }
kill_9_of_the_gpu_server_leaves_nothing() { killed_at_random server; }
kill_9_of_belfryd_leaves_nothing() { killed_at_random belfryd; }

framework() { need_real_gpu "frameworks bring machine code" && have_python && on 120 30G "t-$1" python3 "$GPU/frameworks.py" "$1"; }
jax_runs() { framework jax; }
cupy_runs() { framework cupy; }
torch_compile_runs() { framework compile; }
a_dataloader_with_workers_runs() { framework loader; }
cuda_ipc_between_processes_runs() { framework ipc; }
nccl_runs() { framework nccl; }
threads_that_ring_at_once_lose_nothing() { framework threads; }

a_memory_checker_runs() {
	need_real_gpu "compute-sanitizer looks into the real driver" || return
	command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer"; return 77; }
	on 60 8G t-checker compute-sanitizer --error-exitcode 9 "$BIN/gpu_saxpy"
}

# copy_soft FOLDER: the software GPU's parts, where belfry looks for them.
copy_soft() {
	local library
	library=$("$BELFRY" soft env | sed -n 's/^LD_LIBRARY_PATH=\([^:]*\).*/\1/p')
	mkdir "$1/soft" && cp "$library/libcuda.so.1" "$1/soft" && cp "$(dirname "$BELFRY")/belfry-soft" "$1"
}

# Only root may open the device files. A program of an ordinary user can use the GPU on a vGPU of root's belfryd.
device_files_can_be_kept_from_everybody_else() {
	local copy=$WORK/kept socket=$WORK/kept.sock daemon modes status=1
	need_real_gpu "its files are sockets of its user's" || return
	command -v setpriv >/dev/null && [ "$(id -u)" = 0 ] || { echo "not root, or no setpriv"; return 77; }
	mkdir "$copy" && cp "$BELFRY" "$(dirname "$BELFRY")/belfryd" "$BIN/gpu_exact" "$copy" && chmod -R go+rX "$WORK" "$copy"
	printf '[server]\naccess = everyone\n' >"$WORK/kept.conf"
	modes=$(stat -c '%a %n' /dev/nvidiactl /dev/nvidia[0-9]* /dev/nvidia-uvm)
	timeout 90 "$copy/belfryd" --config "$WORK/kept.conf" --socket "$socket" --gpu 0 >"$WORK/kept.log" 2>&1 &
	daemon=$!
	chmod 600 /dev/nvidiactl /dev/nvidia[0-9]* /dev/nvidia-uvm
	if wait_until 20 test -S "$socket"; then
		setpriv --reuid=65534 --regid=65534 --clear-groups timeout 20 "$copy/gpu_exact" --limit $((2 * GIB)) >"$WORK/kept.out" 2>&1 &&
			echo "it ran without Belfry" ||
			BELFRY_SOCKET=$socket HOME=/tmp timeout 60 setpriv --reuid=65534 --regid=65534 --clear-groups \
				"$copy/belfry" run --mem 2G -- "$copy/gpu_exact" --limit $((2 * GIB)) && status=0
	fi
	echo "$modes" | while read -r mode file; do chmod "$mode" "$file"; done
	kill "$daemon"
	wait "$daemon" 2>/dev/null
	[ "$status" = 0 ] || tail -n 3 "$WORK/kept.log"
	return "$status"
}

# The programs are copied to a folder that this user may read.
an_ordinary_user_needs_no_root() {
	local copy=$WORK/copy his=$WORK/his
	command -v setpriv >/dev/null && [ "$(id -u)" = 0 ] || { echo "not root, or no setpriv"; return 77; }
	mkdir "$copy" && cp "$BELFRY" "$(dirname "$BELFRY")/belfryd" "$BIN/gpu_exact" "$copy" && chmod 755 "$WORK" "$copy"
	if is_soft; then
		copy_soft "$copy" || return
	fi
	chmod -R go+rX "$copy" # whatever the umask
	mkdir "$his" && chown 65534:65534 "$his" || return
	timeout 60 setpriv --reuid=65534 --regid=65534 --clear-groups env -u XDG_RUNTIME_DIR BELFRY_RUNTIME_DIR="$his" \
		HOME=/tmp "$copy/belfry" run --mem 2G -- "$copy/gpu_exact" --limit $((2 * GIB))
}

a_stopped_program_can_be_killed() {
	local status
	start_on 30 4G t-stopped "$BIN/gpu_busy" --secs 20 >/dev/null 2>&1
	wait_until 20 vgpu_has_channels t-stopped || { echo "the program did not start"; return 1; }
	timeout 10 "$BELFRY" stop t-stopped || return 1
	kill -9 "$(pid_named gpu_busy $(family "$STARTED"))"
	wait "$STARTED"
	status=$?
	[ "$status" = 137 ] || { echo "status $status instead of 137"; return 1; }
	on 30 4G t-after-stop "$BIN/gpu_saxpy"
}

BEHAVIOURS="
a_program_computes
cuda_graphs_run
a_program_of_8_processes_runs
an_opencl_program_runs
nvidia_smi_runs
a_statically_linked_runtime_runs
an_mps_client_runs
programs_of_a_shared_domain_run
pytorch_trains
pytorch_infers
jax_runs
cupy_runs
torch_compile_runs
a_dataloader_with_workers_runs
cuda_ipc_between_processes_runs
nccl_runs
threads_that_ring_at_once_lose_nothing
a_memory_checker_runs
the_drivers_checkpoint_works_or_is_refused
programs_are_told_the_vgpu
the_limit_is_exact
managed_memory_is_bounded
memory_stays_within_the_limit
a_closed_gate_holds_what_came_after
a_hold_ends_by_itself
a_timeslice_can_be_changed
a_stop_takes_effect_in_mid_kernel
a_stopped_program_can_be_killed
an_ordinary_user_needs_no_root
device_files_can_be_kept_from_everybody_else
a_fault_is_the_programs_own
a_fault_is_told
how_busy_it_is_is_told
a_neighbours_fault_disturbs_nobody
kill_9_of_the_program_leaves_nothing
kill_9_of_belfry_leaves_nothing
kill_9_of_the_keeper_leaves_nothing
kill_9_of_the_gpu_server_leaves_nothing
kill_9_of_belfryd_leaves_nothing
"

# Each attack is a behaviour of its own: its wall holds. On the software GPU they are a test of their own.
ATTACK_RUNNER=$HERE/../attacks/run.sh
attack_holds() {
	local status
	"$ATTACK_RUNNER" "=$1" >"$WORK/attack"
	status=$?
	cat "$WORK/attack"
	[ "$status" != 77 ] || sed -n 's/.* skipped  *[0-9.]* *//p' "$WORK/attack" | head -1
	return "$status"
}
if ! is_soft; then
	for attack in $("$ATTACK_RUNNER" --list); do
		eval "attack_${attack}_fails() { attack_holds $attack; }"
		BEHAVIOURS="$BEHAVIOURS attack_${attack}_fails"
	done
fi

run_one() {
	local name=$1 start status took
	start=$(date +%s%N)
	( trap clean_up_jobs EXIT; "$name" ) >"$WORK/out" 2>&1
	status=$?
	took=$(seconds_since "$start")
	case $status in
	0) passed=$((passed + 1)); printf '%-40s %-8s %7s\n' "$name" ok "$took" ;;
	77)
		skipped=$((skipped + 1))
		printf '%-40s %-8s %7s  %s\n' "$name" skipped "$took" "$(tail -1 "$WORK/out")"
		;;
	*)
		failed=$((failed + 1))
		printf '%-40s %-8s %7s\n' "$name" FAILED "$took"
		tail -15 "$WORK/out" | sed 's/^/    /'
		;;
	esac
}

if [ "${1:-}" = --list ]; then
	printf '%s\n' $BEHAVIOURS
	exit 0
fi
need_gpu
find_programs
make_work
if is_soft; then # a belfryd of its own: one is killed, and others may have programs on the user's
	export BELFRY_RUNTIME_DIR=$WORK/run
	unset BELFRY_SOFT_DIR BELFRY_SOCKET
fi
export BELFRY_LINGER=${BELFRY_LINGER:-1}
passed=0 failed=0 skipped=0
printf '%-40s %-8s %7s\n' behaviour result seconds
for behaviour in $BEHAVIOURS; do
	is_wanted "$behaviour" "${1:-}" || continue
	run_one "$behaviour"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
