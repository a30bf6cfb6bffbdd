#!/bin/sh
# front.sh PROGRAM [ARGUMENT]...: run a test of tests/cuda with the library of src/coro in front of the software GPU's.
# BELFRY_FRONT is the folder of that library.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
LD_LIBRARY_PATH=$BELFRY_FRONT
export LD_LIBRARY_PATH
LD_TRACE_LOADED_OBJECTS=1 "$1" | grep -q "$BELFRY_FRONT/libcuda" || {
	echo "front.sh: $1 does not load the library of $BELFRY_FRONT" >&2
	exit 1
}
exec "$here/../cuda/run.sh" "$@"
