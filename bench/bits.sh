#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# Whether results stay the same to the bit when kernels move between SMs: bits.sh [LAUNCHES [SEED]] (default 1000000 and 1).
# PyTorch computes the pieces of bits.py twice alone, and once with the library of src/coro, which moves to other SMs at every
# launch. A piece that differs from itself when it runs alone says nothing. Goal: no piece that moving has changed.
# Skipped without an NVIDIA GPU or PyTorch.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
begin_with_torch "$@"
launches=${1:-1000000}
seed=${2:-1}
front=$(dirname "$(first_program "$ROOT/bin/coro/libcuda.so.1" "$BUILD/src/coro/libcuda.so.1")") ||
	{ echo "FAILED: no libcuda.so.1 of src/coro"; exit 1; }
export CUBLAS_WORKSPACE_CONFIG=:4096:8 # without it cuBLAS does not promise the same bits
BELFRY_LIBCUDA=${BELFRY_LIBCUDA:-$(ldconfig -p | awk '/libcuda\.so\.1 .*x86-64/ { print $NF; exit }')}
export BELFRY_LIBCUDA

run() { # NAME COMMAND...
	local name=$1 start=$EPOCHREALTIME
	shift
	timeout -k 5 600 "$@" python3 "$HERE/bits.py" --launches "$launches" >"$WORK/$name" 2>"$WORK/$name.err" ||
		{ echo "FAILED: $name"; tail -n 3 "$WORK/$name.err"; exit 1; }
	echo "$name: $(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }') s"
}

run alone env
run again env
run moved env "LD_LIBRARY_PATH=$front${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "BELFRY_CORO_SHUFFLE=$seed"
paste "$WORK/alone" "$WORK/again" "$WORK/moved" | awk '
	BEGIN { printf "%-10s %-18s %-18s %s\n", "piece", "alone", "moved", "verdict" }
	$2 != $4 { verdict = "differs from itself" }
	$2 == $4 { verdict = $2 == $6 ? "same" : "CHANGED"; compared++ }
	verdict == "CHANGED" { changed++ }
	{ printf "%-10s %-18s %-18s %s\n", $1, $2, $6, verdict }
	END { printf "%d pieces compared, %d changed\n", compared, changed; exit !compared || changed }' && echo ok && exit 0
echo "FAILED: results have changed"
exit 1
