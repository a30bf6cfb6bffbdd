#!/bin/sh
# third_party.sh FOLDER [SECONDS]: run the CUDA programs of a folder on the software GPU, and print a table: which ran and
# were right (exit status 0), which were wrong, which were refused and why, which took longer than SECONDS (60).
#
# A program is an executable file of FOLDER or of a folder in it, or else the .cu files there, if no Makefile says how they
# are built: those are compiled with nvcc, each file of FOLDER by itself, those of a folder in it together. FILE.args,
# beside the program FILE or FILE.cu, holds its arguments. Nothing is fetched and nothing in FOLDER is changed; programs
# run in their own folder. Exit status: 0, or 1 if a program was wrong or took too long.
set -eu
if [ $# -lt 1 ] || [ ! -d "$1" ]; then
	echo "usage: third_party.sh FOLDER [SECONDS]" >&2
	exit 2
fi
folder=$(cd "$1" && pwd)
seconds=${2:-60}
here=$(cd "$(dirname "$0")" && pwd)
build=${BELFRY_BUILD_DIR:-$here/../build}
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
if [ ! -e "$build/src/soft/cuda/libcuda.so.1" ] || [ ! -x "$build/belfry-soft" ]; then
	echo "third_party.sh: $build: the software GPU is not built; run make" >&2
	exit 2
fi
scratch=$(mktemp -d /tmp/belfry-third.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
LD_LIBRARY_PATH="$build/src/soft/cuda:$toolkit/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
BELFRY_RUNTIME_DIR=$scratch
BELFRY_SOFT="name=third,sms=8,mem=2G,pace=off,linger=0"
BELFRY_SOFT_SERVER="$build/belfry-soft"
export LD_LIBRARY_PATH BELFRY_RUNTIME_DIR BELFRY_SOFT BELFRY_SOFT_SERVER
unset BELFRY_SOFT_QUIET CUDA_VISIBLE_DEVICES
right=0 wrong=0 refused=0 late=0 unbuilt=0

# row NAME RESULT WHY: a bar or a newline in the reason would break the table.
row() {
	printf '| %s | %s | %s |\n' "$1" "$2" "$(printf '%s' "$3" | tr '\n|' ' /' | cut -c1-160)"
}

# run_one NAME PROGRAM FOLDER ARGS-FILE
run_one() {
	set -- "$1" "$2" "$3" "$4" 0
	(
		cd "$3"
		# the file's words are the arguments: splitting is what is wanted
		# shellcheck disable=SC2046
		exec timeout -k 5 "$seconds" "$2" $([ ! -f "$4" ] || cat "$4")
	) >"$scratch/out" 2>"$scratch/err" </dev/null || set -- "$1" "$2" "$3" "$4" $?
	why=$(sed -n 's/^belfry: [^:]*: the software GPU refused device code[^:]*: \(.*\); see docs.*/\1/p' "$scratch/err" |
		head -n 1)
	if [ "$5" -eq 0 ]; then
		right=$((right + 1))
		row "$1" right ""
	elif [ "$5" -eq 124 ] || [ "$5" -eq 137 ]; then
		late=$((late + 1))
		row "$1" "timed out" "$seconds s"
	elif [ -n "$why" ]; then
		refused=$((refused + 1))
		row "$1" refused "$why"
	else
		wrong=$((wrong + 1))
		row "$1" wrong "exit status $5: $(cat "$scratch/err" "$scratch/out" | tail -n 1)"
	fi
}

# compile_one NAME FOLDER ARGS-FILE SOURCE...
compile_one() {
	name=$1 at=$2 args=$3
	shift 3
	if [ ! -x "$nvcc" ]; then
		unbuilt=$((unbuilt + 1))
		row "$name" "not built" "nvcc is not here"
	elif ! "$nvcc" -std=c++17 -w -I"$at" -gencode arch=compute_90,code=compute_90 -o "$scratch/program" "$@" \
		>"$scratch/log" 2>&1; then
		unbuilt=$((unbuilt + 1))
		row "$name" "not built" "$(grep -m 1 -i error "$scratch/log" || tail -n 1 "$scratch/log")"
	else
		run_one "$name" "$scratch/program" "$at" "$args"
	fi
}

has_makefile() {
	[ -e "$1/Makefile" ] || [ -e "$1/makefile" ] || [ -e "$1/GNUmakefile" ]
}

# one_folder FOLDER NAME-PREFIX: its programs; without any, its sources.
one_folder() {
	found=no
	for file in "$1"/*; do
		if [ -f "$file" ] && [ -x "$file" ]; then
			found=yes
			run_one "$2$(basename "$file")" "$file" "$1" "$file.args"
		fi
	done
	if [ -n "$2" ] && [ "$found" = no ] && ! has_makefile "$1"; then
		set -- "$1" "$2" "$1"/*.cu
		[ -e "$3" ] || return 0
		where=$1 label=${2%/}
		shift 2
		compile_one "$label" "$where" "${1%.cu}.args" "$@"
	fi
}

echo '| program | result | why |'
echo '| --- | --- | --- |'
one_folder "$folder" ""
if ! has_makefile "$folder"; then
	for file in "$folder"/*.cu; do
		if [ -e "$file" ] && [ ! -x "${file%.cu}" ]; then
			compile_one "$(basename "$file" .cu)" "$folder" "${file%.cu}.args" "$file"
		fi
	done
fi
for sub in "$folder"/*/; do
	if [ -d "$sub" ]; then
		one_folder "${sub%/}" "$(basename "$sub")/"
	fi
done
echo
echo "$right right, $wrong wrong, $refused refused, $late timed out, $unbuilt not built"
[ "$wrong" -eq 0 ] && [ "$late" -eq 0 ]
