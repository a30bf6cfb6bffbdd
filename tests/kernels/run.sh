#!/bin/sh
# run.sh PROGRAM: run a test on a virtual GPU, under a belfryd and on a software GPU of its own: those that others started
# may be of another build, or end in the middle.
set -eu
folder=$(mktemp -d /tmp/belfry-kernels.XXXXXX)
here=$(cd "$(dirname "$0")" && pwd)
trap '"$here/../remove.sh" "$folder"' EXIT
export BELFRY_RUNTIME_DIR="$folder" BELFRY_LINGER=0
unset BELFRY_SOCKET BELFRY_SOFT_DIR CUDA_VISIBLE_DEVICES
status=0
"$BELFRY" run --gpu soft --soft name=kernels,pace=off,linger=0 -- "$@" || status=$?
if [ "$status" -ne 0 ] && [ "$status" -ne 77 ]; then
	cat "$folder"/belfryd.log "$folder"/*/log 2>/dev/null >&2 || true
fi
exit "$status"
