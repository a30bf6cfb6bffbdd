#!/bin/sh
# run.sh [NAME]: compile programs of the CUDA runtime with nvcc, and run them on the software GPU, with libcudart linked
# statically and dynamically. NAME selects one program. Without nvcc the exit status is 77. NAME.expected is the output that
# the program must have. NAME.more is a second part of the program, compiled separately (-rdc=true).
set -eu
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
if [ ! -x "$nvcc" ]; then
	echo "skipped: nvcc is not here; CUDA runtime programs are not tested"
	exit 77
fi
ccache=$(command -v ccache || true)
here=$(cd "$(dirname "$0")" && pwd)
only=${1:-}
folder=$(mktemp -d /tmp/belfry-runtime.XXXXXX)
trap 'rm -rf "$folder"' EXIT
top=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
LD_LIBRARY_PATH="$BELFRY_BUILD_DIR/src/soft/cuda:$top/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_LIBRARY_PATH

# compile SOURCE OBJECT [NVCC-OPTION]...
compile() {
	source=$1
	object=$2
	shift 2
	$ccache "$nvcc" -std=c++17 -gencode arch=compute_90,code=compute_90 -x cu -c "$source" -o "$object" "$@"
}

# one SOURCE [NVCC-OPTION]...: compile it once, and run it with libcudart linked statically and dynamically.
one() {
	source=$1
	shift
	program="$folder/$(basename "$source" .cu)"
	more="${source%.cu}.more"
	expected="${source%.cu}.expected"
	set -- "$source" "$program.o" "$@"
	if [ -f "$more" ]; then
		set -- "$@" -rdc=true
		compile "$more" "$program.more.o" -rdc=true
	fi
	compile "$@"
	set -- "$program.o"
	[ ! -f "$more" ] || set -- "$@" "$program.more.o"
	for linking in static shared; do
		echo "- $(basename "$source" .cu), libcudart $linking"
		"$nvcc" -cudart "$linking" -gencode arch=compute_90,code=compute_90 -o "$program" "$@"
		"$here/../run.sh" "$program" >"$folder/output"
		[ ! -f "$expected" ] || diff -u "$expected" "$folder/output"
	done
}

for source in "$here"/*.cu; do
	if [ -n "$only" ] && [ "$(basename "$source" .cu)" != "$only" ]; then
		continue
	fi
	one "$source"
	case $source in
	*/threads.cu) one "$source" --default-stream per-thread ;;
	esac
done
