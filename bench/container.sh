#!/bin/bash
# SPDX-License-Identifier: MIT
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2016,SC2034,SC2317
# Containers on vGPUs, whose root file system is the host's: container.sh [PAIRS [PYTORCH-PAIRS [ATTACKS]]] (default 3, 3 and all; an
# attack that is named "none" selects none). Needs root and crun: in PATH, named by $CRUN, or packed by tools/pack-crun.sh into the
# folder "crun" beside or in the portable folder. Shows the memory limit, exec, and a container without a vGPU; then runs programs
# natively and in a container in turn, and the attacks of tests/attacks inside containers. Goal: programs within 1 % (a launch that
# is waited for has microseconds instead: 1.5 more), every attack held.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
. "$HERE/../tests/gpu/container.sh"
help_if_asked "$@"
need_gpu
own_namespace bash "$0" "$@"
find_programs
make_work
pairs=${1:-3}
torch_pairs=${2:-3}
attacks=${3:-}
status=0
EXTRA_ENV=()
GIB=$((1 << 30))

# row WHAT GOAL MEASURED [FAILED]: a line of the table at the end.
row() {
	printf '%-44s %-12s %s\n' "$1" "$2" "$3${4:+ ($4)}" >>"$WORK/rows"
	[ -z "${4:-}" ] || status=1
}
# shown WHAT COMMAND...: it succeeds, or its output is printed.
shown() {
	local what=$1 start
	shift
	start=$(date +%s%N)
	if "$@" >"$WORK/out" 2>&1; then
		row "$what" ok ok
		echo "$what: ok, $(seconds_since "$start") s"
	else
		row "$what" ok '' FAILED
		echo "$what: FAILED"
		tail -15 "$WORK/out" | sed 's/^/    /'
	fi
}

a_program_computes() { in_container 60 saxpy b-small "$BIN/gpu_saxpy"; }

# gpu_exact expects the error of an exhausted GPU, and checks what the program is told.
memory_is_limited() { in_container 60 exact b-small "$BIN/gpu_exact" --limit $((2 * GIB)); }

# The same program as above, which fails without a GPU. The environment of a container names no vGPU.
no_vgpu_is_no_gpu() {
	local EXTRA_ENV=()
	in_container 60 nothing '' "$BIN/gpu_saxpy" && { echo "a container without a vGPU has computed"; return 1; }
	EXTRA_ENV=(BELFRY_VGPU=b-small)
	in_container 60 nothing '' "$BIN/gpu_saxpy" && { echo "a variable has named a vGPU"; return 1; }
	in_container 60 nothing '' sh -c 'for file in /dev/nvidia* /run/belfry/*; do [ ! -e "$file" ] || { echo "$file"; exit 1; }; done'
}

runs_of() { bf stats --json "$1" | grep -c '"kind": *"container"'; }
has_runs() { [ "$(runs_of "$1")" = "$2" ]; }
# The variables of the edit, and of the host, which exec does not pass on.
exec_env() {
	EXEC_ENV=(--env "PATH=$PATH")
	if is_soft; then
		EXEC_ENV+=(--env LD_LIBRARY_PATH=/run/belfry/lib --env BELFRY_SOFT_DIR=/run/belfry/soft)
	elif [ -n "${LD_LIBRARY_PATH:-}" ]; then
		EXEC_ENV+=(--env "LD_LIBRARY_PATH=$LD_LIBRARY_PATH")
	fi
}
exec_is_on_the_vgpu() {
	local id=stays-$$ result=1 busy
	make_bundle stays b-small sleep 300
	timeout -k 5 30 "${OCI[@]}" create --bundle "$WORK/bundles/stays" "$id" </dev/null >"$WORK/stays" 2>&1 &&
		timeout -k 5 30 "${OCI[@]}" start "$id" && wait_until 10 has_runs b-small 1 || { cat "$WORK/stays"; return 1; }
	exec_env
	timeout -k 5 60 "${OCI[@]}" exec "${EXEC_ENV[@]}" "$id" "$BIN/gpu_exact" --limit $((2 * GIB)) && result=0
	timeout -k 5 60 "${OCI[@]}" exec "${EXEC_ENV[@]}" "$id" "$BIN/gpu_busy" --secs 3 >/dev/null &
	busy=$!
	wait_until 10 has_runs b-small 2 || { echo "exec is no run of the vGPU"; result=1; }
	wait "$busy" || result=1
	timeout -k 5 20 "${OCI[@]}" delete --force "$id"
	wait_until 10 has_runs b-small 0 || { echo "a run is left"; result=1; }
	return "$result"
}

run_native() { native 120 "$@" 2>>"$WORK/err" | sed -n 's/^{/native {/p'; }
run_container() { in_container 120 pair b-cost "$@" 2>>"$WORK/err" | sed -n 's/^{/belfry {/p'; }
# pair NUMBER LOG program…: the order changes, because the second run finds the GPU warmer.
pair() {
	local number=$1 log=$2 order=(run_native run_container) one
	shift 2
	[ $((number % 2)) = 1 ] || order=(run_container run_native)
	for one in "${order[@]}"; do
		"$one" "$@" >>"$log"
	done
}
# compare LOG: a row for each figure. Of times less is better, of TFLOP/s more. The speed of the software GPU is not judged.
compare() {
	local name more ratio low is_slow
	[ "$(grep -c ^native "$1")" -gt 0 ] && [ "$(grep -c ^native "$1")" = "$(grep -c ^belfry "$1")" ] ||
		{ row "$2" ok '' "FAILED: a run gave no figures"; tail -5 "$WORK/err"; return; }
	awk -v under=container -f "$HERE/compare.awk" "$1" >"$WORK/table"
	cat "$WORK/table"
	while read -r name _ _ more ratio low; do
		awk -v name="$name" -v more="$more" -v ratio="$ratio" 'BEGIN {
			if (name == "launch_sync_us" || name == "graph_step_us") exit more > 1.5
			exit name ~ /tflops$/ ? ratio < 0.99 : ratio > 1.01 }' && is_slow='' || is_slow='over the goal'
		case $name in
		launch_sync_us | graph_step_us) row "$name, more than native" '1.5 µs' "$more" "$(is_soft || echo "$is_slow")" ;;
		*) row "$name, inside/native" '1 %' "$ratio $low" "$(is_soft || echo "$is_slow")" ;;
		esac
	done < <(sed 1d "$WORK/table")
}

start_containers
echo "$("$CRUN" --version | head -1), cgroups: $(case ${OCI[*]} in *=disabled*) echo none ;; *) echo "of the runtime" ;; esac)"
create b-small 10:100 --mem 2G
create b-cost 50:100 --mem "$(is_soft && echo 4G || echo 40G)"
write_marks || exit 1
shown "a program computes" a_program_computes
shown "the memory limit is an out-of-memory error" memory_is_limited
shown "no GPU without a vGPU" no_vgpu_is_no_gpu
shown "exec is on the vGPU" exec_is_on_the_vgpu

for i in $(seq "$pairs"); do
	pair "$i" "$WORK/api" "$BENCH_BIN/overhead" --repeats "$(is_soft && echo 1 || echo 7)"
done
[ "$pairs" = 0 ] || compare "$WORK/api" "CUDA calls"
if has_torch; then
	for i in $(seq "$torch_pairs"); do
		pair "$i" "$WORK/torch" python3 "$HERE/overhead_torch.py"
	done
	[ "$torch_pairs" = 0 ] || compare "$WORK/torch" PyTorch
else
	echo "no PyTorch: its part is left out"
fi
end_daemon

if [ "$attacks" != none ]; then
	"$HERE/../tests/attacks/run.sh" --container "$attacks" 2>&1 | tee "$WORK/attacks"
	rc=${PIPESTATUS[0]}
	row "attacks inside containers" "all held" "$(tail -1 "$WORK/attacks")" "$([ "$rc" = 0 ] || echo FAILED)"
fi
echo
printf '%-44s %-12s %s\n' "containers on vGPUs" goal measured
cat "$WORK/rows"
! is_soft || echo "the software GPU is as fast as this machine: its speed is not judged"
exit "$status"
