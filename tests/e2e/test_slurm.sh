#!/bin/bash
# Jobs of Slurm on vGPUs, with munge, slurmctld and slurmd on this machine. They have their own configuration, key, ports and
# folders. The node has one GPU of 16 shards. Jobs are those of an ordinary user.
# Scripts for the jobs are quoted on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2016,SC2034,SC2154,SC2317
set -u
here=$(dirname "$(realpath "$0")")
. "$here/common.sh"
export BELFRY_SOFT="mem=512M,linger=1,name=slurm$$"
hog="$BELFRY_BUILD_DIR/tests/e2e/hog"
plugin="$BELFRY_BUILD_DIR/src/slurm/belfry_spank.so"
as_user=(env -u BELFRY_RUNTIME_DIR -u BELFRY_GPU -u BELFRY_SOFT setpriv --reuid=65534 --regid=65534 --clear-groups)

knows_others || skip "slurmd needs root, and jobs need another user"
[ -e "$plugin" ] || skip "the plugin is not built: slurm/spank.h was not found"
for program in munged slurmctld slurmd srun sbatch scontrol; do
	command -v $program >/dev/null || skip "$program is not installed"
done

free_ports() {
	python3 -c '
import socket
all = [socket.socket() for _ in range(2)]
for one in all: one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in all))'
}

configure_slurm() {
	local host ports
	host=$(hostname -s)
	read -r -a ports <<<"$(free_ports)"
	export SLURM_CONF="$work/s/slurm.conf"
	mkdir -m 755 "$work"/{s,s/munge,s/state,s/spool}
	mkdir -m 1777 "$work/jobs"
	head -c 1024 /dev/urandom >"$work/s/munge/key"
	chmod 400 "$work/s/munge/key"
	cat >"$SLURM_CONF" <<-END
		ClusterName=belfry
		SlurmctldHost=$host(127.0.0.1)
		SlurmUser=root
		SlurmctldPort=${ports[0]}
		SlurmdPort=${ports[1]}
		AuthInfo=socket=$work/s/munge/socket,cred_expire=5
		StateSaveLocation=$work/s/state
		SlurmdSpoolDir=$work/s/spool
		SlurmctldPidFile=$work/s/slurmctld.pid
		SlurmdPidFile=$work/s/slurmd.pid
		SlurmctldLogFile=$work/s/slurmctld.log
		SlurmdLogFile=$work/s/slurmd.log
		PlugStackConfig=$work/s/plugstack.conf
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		MpiDefault=none
		SelectType=select/cons_tres
		SelectTypeParameters=CR_Core
		SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
		ReturnToService=2
		MessageTimeout=100
		BatchStartTimeout=300
		SlurmdParameters=config_overrides
		GresTypes=gpu,shard
		NodeName=node NodeHostname=$host NodeAddr=127.0.0.1 CPUs=32 CoresPerSocket=32 Gres=gpu:1,shard:16
		PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE
	END
	printf 'Name=gpu File=/dev/zero\nName=shard Count=16\n' >"$work/s/gres.conf"
	printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' >"$work/s/cgroup.conf"
	echo "required $plugin socket=$BELFRY_SOCKET library=$BELFRY_BUILD_DIR/src/soft/cuda" >"$work/s/plugstack.conf"
}

start_slurm() {
	local at="$work/s/munge"
	munged --foreground --force --socket="$at/socket" --key-file="$at/key" --pid-file="$at/pid" --log-file="$at/log" \
		--seed-file="$at/seed" >/dev/null 2>&1 &
	until_so test -S "$at/socket"
	slurmctld -D >/dev/null 2>&1 &
	slurmd -D -N node >/dev/null 2>&1 &
	until_so is_node idle || { tail -n 30 "$work"/s/*.log; exit 1; }
}
is_node() { [ "$(timeout 20 sinfo -h -o %T 2>/dev/null)" = "$1" ]; }

# Jobs would outlive slurmd.
end_slurm() {
	timeout 20 scancel --user=nobody --quiet 2>/dev/null
	timeout 20 scancel --user=root --quiet 2>/dev/null
	until_so no_jobs
}
no_jobs() { [ -z "$(timeout 20 squeue -h 2>/dev/null)" ]; }
trap 'end_slurm; clean_up' EXIT

# run WANTED OPTION... COMMAND...: srun as the user, to its end.
run() {
	local wanted=$1
	shift
	status "$wanted" "${as_user[@]}" srun --quiet "$@" </dev/null
}
# submit NAME OPTION... <SCRIPT: sbatch as the user. The number of the job is $job, its output $work/jobs/NAME.
submit() {
	local name=$1
	shift
	job=$("${as_user[@]}" timeout 100 sbatch --parsable --job-name="$name" --output="$work/jobs/$name" "$@") ||
		fail "sbatch $name"
}
nothing_is_left() { ! timeout 20 "$belfry" ls 2>/dev/null | grep -q '^slurm-'; }
is_ended() { [ -z "$(timeout 20 squeue -h -j "$1" 2>/dev/null)" ]; }
is_state() { [ "$(timeout 20 squeue -h -o %T -j "$1" 2>/dev/null)" = "$2" ]; }
said() { has_line "$1" "$work/jobs/$2"; }

a_job_has_a_vgpu_by_its_shards() {
	# The job with this number gets a vGPU of its own, not one that is left over from other times.
	status 0 "$belfry" create slurm-1 --mem 8M
	run 0 --gres=shard:4 sh -c 'echo job $SLURM_JOB_ID; "$0"' "$hog"
	grep -q 'total 128 .*got 12[0-8] ' "$work/out" || fail "memory by shards: $(cat "$work/out" "$work/err")"
	local job
	job=$(awk '/^job/ { print $2 }' "$work/out")
	timeout 20 scontrol show job "$job" >"$work/out"
	grep -q 'AdminComment=belfry node: GPU [0-9.]* s, memory at most 12[0-9] MiB' "$work/out" ||
		fail "the use is not in the comment: $(cat "$work/out")"
	run 0 --gres=shard:4 --vgpu-mem=32M --vgpu-time=10:50 "$hog"
	grep -q 'total 32 .*got 3[0-2] ' "$work/out" || fail "--vgpu-mem: $(cat "$work/out" "$work/err")"
	run 0 --gres=gpu:1 --vgpu-mem=256M "$hog"
	grep -q 'total 256 ' "$work/out" || fail "a whole GPU: $(cat "$work/out" "$work/err")"
	until_so nothing_is_left
}

without_a_vgpu_there_is_no_gpu() {
	run 1 env LD_LIBRARY_PATH="$BELFRY_BUILD_DIR/src/soft/cuda" BELFRY_SOFT_DIR="$soft/guest" "$hog" 1
	run 1 env SLURM_SHARDS_ON_NODE=16 LD_LIBRARY_PATH="$BELFRY_BUILD_DIR/src/soft/cuda" BELFRY_SOFT_DIR="$soft/guest" "$hog" 1
	SLURM_SHARDS_ON_NODE=16 run 0 true
}

too_much_is_refused_with_the_arithmetic() {
	run 1 --gres=shard:2 --vgpu-mem=65M true
	says 'belfry: --vgpu-mem: 65 MiB do not fit: the job has 2 shards here, with 32 MiB each: 2 * 32 MiB = 64 MiB' "memory"
	run 1 --gres=shard:2 --vgpu-time=13 true
	says '--vgpu-time: 13 % do not fit: the job has 2 of the 16 shards of a GPU: 2 / 16 = 12.5 %' "time"
	run 1 --vgpu-mem=1M true
	says 'the job has no shards on this node' "no shards"
	run 255 --gres=shard:2 --vgpu-mem=3Q true
	says "size '3Q': unknown unit" "a size that is none"
	run 255 --gres=shard:2 --vgpu-time=80:70 true
	run 1 --vgpu=nothing true
	says 'nothing: no vGPU of this name' "an unknown vGPU"
	status 0 "$belfry" create roots --mem 500M
	run 1 --gres=shard:4 true
	says '500 MiB are reserved for other vGPUs' "a GPU that is full"
	run 1 --vgpu=roots true
	says 'roots: belongs to user' "the vGPU of another user"
	status 0 "$belfry" rm roots
	submit refused --gres=shard:2 --vgpu-mem=1G <<<$'#!/bin/sh\necho started'
	until_so said '2 \* 32 MiB = 64 MiB' refused
	! said started refused || fail "a job that is refused was started"
	is_node idle || until_so is_node idle # not drained
}

# The ranks of a step, and the batch script, are on one vGPU.
steps_and_ranks_share_it() {
	submit steps --ntasks=3 --gres=shard:4 --vgpu-mem=64M <<-END
		#!/bin/sh
		srun --ntasks=1 $hog 10
		srun $hog 10 $work/jobs/go
		srun --ntasks=1 --vgpu-mem=32M true
		echo end
	END
	local name=slurm-$job
	until_so has_ids "$name" "$job.1.0" "$job.1.1" "$job.1.2" "$job.batch.0"
	is_figure "$name" owner 65534 && is_figure "$name" mem.limit $((64 << 20)) && is_figure "$name" runs.0.kind job ||
		fail "the vGPU of the job: $("$belfry" stats "$name")"
	# The owner neither changes the limits nor takes such a name, and a program of the job changes nothing.
	printf '[server]\non_daemon_death = carry\naccess = everyone\n' >"$work/conf"
	status 0 "$belfry" reload
	status 1 "${as_user[@]}" "$belfry" set "$name" --mem 128M
	says 'only root may create, change or remove' "set by the owner"
	status 1 "${as_user[@]}" "$belfry" create slurm-999999
	says 'only root may create, change or remove' "the name of a job"
	status 0 "$belfry" create mine --mem 8M --owner 65534
	run 1 --gres=shard:1 "$belfry" set mine --mem 16M
	says 'cannot be told from one' "set in a job"
	status 0 "${as_user[@]}" "$belfry" rm mine
	configure
	status 0 "$belfry" reload
	until_so ranks_have "$name" $((30 << 20))
	: >"$work/jobs/go"
	until_so said end steps
	[ "$(grep -c 'total 64 .*got 10 ' "$work/jobs/steps")" = 4 ] || fail "steps: $(cat "$work/jobs/steps")"
	said "a step cannot have 32 MiB: the job's vGPU $name has 64 MiB" steps || fail "a step with other limits: $(cat "$work/jobs/steps")"
	rm "$work/jobs/go"
	until_so nothing_is_left
}
has_ids() {
	timeout 20 "$belfry" stats --json "$1" 2>/dev/null | python3 -c '
import json, sys
ids = {run.get("id") for run in json.load(sys.stdin)["vgpus"][0]["runs"]}
sys.exit(ids != set(sys.argv[1:]))' "${@:2}" 2>/dev/null
}
ranks_have() { [ "$(figure "$1" mem.used)" -ge "$2" ] 2>/dev/null; }

array_tasks_have_a_vgpu_each() {
	submit array --wait --array=1-3 --gres=shard:1 --open-mode=append <<<$'#!/bin/sh\n'"$hog"
	[ "$(grep -c 'total 32 .*got 3[0-2] ' "$work/jobs/array")" = 3 ] || fail "the array: $(cat "$work/jobs/array")"
	until_so nothing_is_left
}

setuid_programs_work() {
	install -m 4755 "$(command -v id)" "$work/id"
	[ "$("${as_user[@]}" "$work/id" -u)" = 0 ] || { echo "no setuid programs in $work: not tested"; return; }
	run 0 --gres=shard:1 "$work/id" -u
	has_line '^0$' "$work/out" || fail "a setuid program in a job: user $(cat "$work/out")"
}

an_existing_vgpu_is_used() {
	status 0 "$belfry" create theirs --mem 16M --owner 65534
	run 0 --vgpu=theirs "$hog"
	grep -q 'total 16 ' "$work/out" || fail "--vgpu: $(cat "$work/out" "$work/err")"
	run 1 --vgpu=theirs --vgpu-mem=8M true
	says 'leave out --vgpu-mem' "--vgpu with --vgpu-mem"
	status 0 "$belfry" rm theirs
	status 0 "$belfry" create all --mem 16M --public
	run 0 --vgpu=all true
	status 0 "$belfry" rm all
}

uses_memory() { [ "$(figure "$1" mem.used)" -gt 0 ] 2>/dev/null; }

scancel_ends_everything() {
	start_job cancelled
	status 0 "${as_user[@]}" scancel "$job"
	until_so is_ended "$job"
	until_so nothing_is_left
	until_so is_gone "$pid"
	# slurmctld takes no comment of a job that was cancelled. belfryd has the figures.
	until_so has_line "\"name\":\"$vgpu\".*\"memory_high_water_bytes\":[1-9]" "$work/account"
}
# start_job NAME: a job that keeps 8 MiB. Sets job, pid and vgpu.
start_job() {
	submit "$1" --requeue --gres=shard:2 --open-mode=truncate <<-END
		#!/bin/sh
		$hog 8 $work/jobs/never &
		echo pid \$!
		wait
	END
	vgpu=slurm-$job
	until_so uses_memory "$vgpu"
	pid=$(awk '/^pid/ { print $2 }' "$work/jobs/$1")
}

a_requeued_job_starts_again() {
	start_job again
	local first=$pid
	status 0 scontrol requeue "$job"
	until_so is_gone "$first"
	until_so is_state "$job" RUNNING
	until_so uses_memory "$vgpu"
	status 0 scancel "$job"
	until_so is_ended "$job"
	until_so nothing_is_left
}

# The epilog of the first start does not reach belfryd. The next start does not get what the first one had.
a_requeued_job_inherits_nothing() {
	start_job afresh
	kill -9 "$daemon"
	ended "$daemon"
	status 0 scontrol requeuehold "$job"
	until_so is_gone "$pid"
	until_so is_node idle
	start_daemon
	is_there "$vgpu" || fail "the vGPU was removed without belfryd"
	status 0 "$belfry" set "$vgpu" --mem 8M --time 1:2
	status 0 scontrol release "$job"
	until_so uses_memory "$vgpu"
	is_figure "$vgpu" mem.limit $((64 << 20)) && is_figure "$vgpu" time.request 0.125 ||
		fail "a requeued job has inherited limits: $("$belfry" ls)"
	status 0 scancel "$job"
	until_so is_ended "$job"
	until_so nothing_is_left
}

# A task with no_new_privs looks like a program that is left over from a run, which may start a run. The kernel permits no
# second listener, so it cannot.
a_task_with_no_new_privs_gets_no_second_vgpu() {
	printf '[server]\non_daemon_death = carry\naccess = everyone\n' >"$work/conf"
	status 0 "$belfry" reload
	run 1 --gres=shard:1 setpriv --no-new-privs "$belfry" run --name second --mem 8M -- true
	is_not_there second || fail "a task has a second vGPU"
	run 1 --gres=shard:1 setpriv --no-new-privs "$belfry" create second --mem 8M
	says 'cannot be told from one' "create in a task with no_new_privs"
	run 1 --gres=shard:1 "$belfry" run --name second --mem 8M -- true
	says 'cannot be told from one' "run in a task"
	configure
	status 0 "$belfry" reload
}

belfryd_is_restarted() {
	start_job stays
	kill -9 "$daemon"
	ended "$daemon"
	start_daemon
	uses_memory "$vgpu" || fail "the job's vGPU has ended with belfryd"
	# Another job starts while belfryd does not run, and waits for it.
	kill -9 "$daemon"
	ended "$daemon"
	"${as_user[@]}" srun --quiet --gres=shard:1 "$hog" >"$work/late" 2>&1 </dev/null &
	local late=$!
	start_daemon
	ended "$late"
	has_line 'total 32 ' "$work/late" || fail "a job that began without belfryd: $(cat "$work/late")"
	# The job ends while belfryd does not run. The next job removes its vGPU.
	kill -9 "$daemon"
	ended "$daemon"
	status 0 scancel "$job"
	until_so is_ended "$job"
	until_so is_node idle
	start_daemon
	is_there "$vgpu" || fail "the vGPU was removed without belfryd"
	run 0 --gres=shard:1 true
	until_so nothing_is_left
}

nothing_is_made_without_a_step() {
	status 0 "${as_user[@]}" salloc --quiet --gres=shard:2 true
	submit killed --gres=shard:2 --begin=now+1hour <<<$'#!/bin/sh\ntrue'
	status 0 "${as_user[@]}" scancel "$job"
	until_so no_jobs
	nothing_is_left || fail "a job without a step has a vGPU"
}

# 12 and 4 of 16 shards: 75 % and 25 % of the time that the two have.
shares_are_kept() {
	! is_sanitized || { echo "with a sanitizer the software GPU is too slow for shares to mean anything: not tested"; return; }
	local name shards
	status 0 "$belfry" soft run -- "$load" --calibrate "$work/calibration"
	chmod 644 "$work/calibration"
	for name in big:12 little:4; do
		shards=${name#*:} name=${name%:*}
		submit "$name" --gres=shard:"$shards" <<-END
			#!/bin/sh
			exec $load --calibration $work/calibration --kernel-us 3000 --secs 1200 --json --ready $work/jobs/$name.ready \
				--until $work/jobs/$name.stop
		END
		eval "$name=slurm-$job"
	done
	until_so test -e "$work/jobs/big.ready" -a -e "$work/jobs/little.ready"
	is_figure "$big" time.request 0.75 && is_figure "$little" time.request 0.25 || fail "the shares that are requested"
	timeout 280 "$here/shares.py" "$belfry" "$big=75" "$little=25" || fail "75 % and 25 % of the time are not kept"
	: >"$work/jobs/big.stop"
	: >"$work/jobs/little.stop"
	until_so nothing_is_left
	said '"wrong":0,' big && said '"wrong":0,' little || fail "a load: $(cat "$work"/jobs/{big,little})"
}
configure() { printf '[server]\non_daemon_death = carry\naccounting = %s\n' "$work/account" >"$work/conf"; }

use_daemon
configure
start_daemon
soft=$("$belfry" ls --json | awk -F'"' '$2 == "folder" { print $4; exit }')
cd "$work" || exit 1
configure_slurm
start_slurm
for step in a_job_has_a_vgpu_by_its_shards without_a_vgpu_there_is_no_gpu too_much_is_refused_with_the_arithmetic \
	steps_and_ranks_share_it array_tasks_have_a_vgpu_each setuid_programs_work an_existing_vgpu_is_used \
	scancel_ends_everything a_requeued_job_starts_again a_requeued_job_inherits_nothing \
	a_task_with_no_new_privs_gets_no_second_vgpu belfryd_is_restarted nothing_is_made_without_a_step shares_are_kept; do
	$step
	[ -z "${BELFRY_TEST_TIMES:-}" ] || echo "$step: $SECONDS s"
done
# Nothing is left behind.
until_so no_jobs
until_so is_node idle
until_so is_figure '' gpus.0.mem.used 0
end_daemon
exit "$failed"
