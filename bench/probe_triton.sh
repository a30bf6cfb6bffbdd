#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# What a probe costs in kernels of Triton: probe_triton.sh [ROUNDS] (default 3). A vector addition, a softmax and a matrix product
# run without Belfry, on a vGPU without a probe, with a probe that counts threads and with one that takes the times of warps. Each
# is a process of its own; the variants alternate. Printed are the median time of a launch by CUDA events, the overhead, whether
# the output has the same bits, and whether the count is the number of threads. A kernel with a probe is compiled by the driver and
# not by Triton's ptxas; in "none, JIT" the driver compiles it without a probe. Exit status 1: a wrong result. Skipped without a
# GPU, PyTorch or Triton.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
help_if_asked "$@"
need_gpu
find_programs
make_work
rounds=${1:-3}
limit=${BELFRY_TRITON_LIMIT_S:-240} # for one process; the first ones compile
status=0
unset TRITON_PTXAS_PATH CUDA_FORCE_PTX_JIT
export TRITON_CACHE_DIR=$WORK/cache # one for all variants: kernels with PTX must not be mixed up with those without

native 120 python3 "$HERE/probe_triton.py" check >"$WORK/check" 2>"$WORK/check.err"
case $? in
0) ;;
77) cat "$WORK/check" && exit 77 ;;
*) echo "FAILED: python3 $HERE/probe_triton.py check"; cat "$WORK/check"; tail -5 "$WORK/check.err"; exit 1 ;;
esac
start_daemon
create triton 0:100
mkdir "$WORK/runs"

# one VARIANT ROUND COMMAND…: a process; what it prints is kept only if it succeeds.
one() {
	local variant=$1 round=$2 rc
	shift 2
	timeout -k 5 "$limit" "$@" python3 "$HERE/probe_triton.py" run >"$WORK/out" 2>"$WORK/err"
	rc=$?
	[ "$rc" = 0 ] && mv "$WORK/out" "$WORK/runs/$variant.$round.json" && return
	[ "$variant" = jit ] && echo "not measured: none, JIT" || echo "FAILED: probe $variant"
	echo "  round $round, status $rc: $(tail -n 4 "$WORK/out" "$WORK/err" | tail -n 12)"
	return 1
}

# probed VARIANT ROUND OBJECT
probed() {
	local variant=$1 round=$2
	bf probe attach "$BENCH_BIN/$3.bpf.o" --vgpu triton --kernel 'belfry_*' >"$WORK/attached" 2>&1 ||
		{ echo "FAILED: probe attach $3: $(cat "$WORK/attached")"; return 1; }
	one "$variant" "$round" "$BELFRY" run --probes triton -- || status=1
	[ "$round" != 1 ] || bf probe ls --vgpu triton
	bf probe dump --vgpu triton --json >"$WORK/runs/$variant.$round.dump" 2>"$WORK/err" ||
		{ echo "FAILED: probe dump: $(cat "$WORK/err")"; status=1; }
	bf probe detach --all --vgpu triton >"$WORK/out" 2>&1 || { echo "FAILED: probe detach: $(cat "$WORK/out")"; status=1; }
}

for round in $(seq "$rounds"); do
	if is_soft; then
		one native "$round" "$BELFRY" soft run -- || status=1
	else
		one native "$round" || status=1
	fi
	one none "$round" "$BELFRY" run --probes triton -- || status=1
	# The driver takes PTX instead of machine code. Without it, only this column is missing.
	[ -n "${no_jit:-}" ] || one jit "$round" env CUDA_FORCE_PTX_JIT=1 "$BELFRY" run --probes triton -- || no_jit=1
	probed count "$round" probe_count || status=1
	probed time "$round" probe_time || status=1
done
remove_all
timeout 60 python3 "$HERE/probe_triton.py" report "$WORK/runs" || status=1
[ "$status" = 0 ] && echo ok || echo "FAILED: see above"
exit "$status"
