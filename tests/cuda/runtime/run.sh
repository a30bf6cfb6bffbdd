#!/bin/sh
# run.sh: programs of the CUDA runtime, compiled by nvcc, on the software GPU: with libcudart inside and beside.
# Needs nvcc and the runtime library; says so and exits 77 without. One argument picks a program by name. NAME.expected
# is what it must write; NAME.more is a second part of it, compiled separately and linked (-rdc=true).
set -eu
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
if [ ! -x "$nvcc" ]; then
	echo "skipped: nvcc is not here; CUDA runtime programs are not tested"
	exit 77
fi
here=$(cd "$(dirname "$0")" && pwd)
only=${1:-}
folder=$(mktemp -d /tmp/belfry-runtime.XXXXXX)
trap 'rm -rf "$folder"' EXIT
top=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
LD_LIBRARY_PATH="$BELFRY_BUILD_DIR/src/soft/cuda:$top/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_LIBRARY_PATH

# one PROGRAM LINKING [NVCC-OPTION]...
one() {
	source=$1
	linking=$2
	shift 2
	program="$folder/$(basename "$source" .cu)"
	echo "- $(basename "$source" .cu), libcudart $linking $*"
	more="${source%.cu}.more"
	if [ -f "$more" ]; then
		set -- "$@" -rdc=true -x cu "$more"
	fi
	"$nvcc" -std=c++17 -cudart "$linking" -gencode arch=compute_90,code=compute_90 -o "$program" "$source" "$@"
	"$here/../run.sh" "$program" >"$folder/output"
	expected="${source%.cu}.expected"
	if [ -f "$expected" ]; then
		diff -u "$expected" "$folder/output"
	fi
}

for source in "$here"/*.cu; do
	if [ -n "$only" ] && [ "$(basename "$source" .cu)" != "$only" ]; then
		continue
	fi
	one "$source" static
	one "$source" shared
	case $source in
	*/threads.cu) one "$source" static --default-stream per-thread ;;
	esac
done
