#!/bin/sh
# run.sh PROGRAM [ARGUMENT]...: run a test on a software GPU of its own, in a runtime folder of its own. SOFT_OPTIONS
# adds to its configuration.
set -eu
folder=$(mktemp -d /tmp/belfry-cuda.XXXXXX)
here=$(cd "$(dirname "$0")" && pwd)
trap '"$here/../remove.sh" "$folder"' EXIT
name=$(basename "$1" | tr _ - | cut -c1-24)
BELFRY_RUNTIME_DIR=$folder
BELFRY_SOFT="name=$name,gpus=2,sms=4,mem=1G,pace=off,linger=0${SOFT_OPTIONS:+,$SOFT_OPTIONS}"
export BELFRY_RUNTIME_DIR BELFRY_SOFT
unset BELFRY_SOFT_DIR CUDA_VISIBLE_DEVICES
status=0
"$@" || status=$?
if [ "$status" -ne 0 ] && [ "$status" -ne 77 ]; then
	cat "$folder"/*/log "$folder"/*/*/log 2>/dev/null >&2 || true
fi
exit "$status"
