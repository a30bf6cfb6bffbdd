#!/bin/sh
# static-library.sh OUTPUT MAP ARCHIVE...: a static library of what the symbols of a linker version script need of the
# archives. It is one object whose other symbols are local, so that they collide with no symbol of a program.
set -eu
output=$1
map=$2
shift 2
object=${output%.a}.o

symbols=$(sed -n 's/^[[:space:]]*\(belfry_[a-z_]*\);$/\1/p' "$map")
wanted=
for symbol in $symbols; do
	wanted="$wanted -Wl,-u,$symbol"
done
# shellcheck disable=SC2086 # a compiler and its options; a list of options
${CC:-cc} -r -nostdlib -o "$object" $wanted -Wl,--start-group "$@" -Wl,--end-group
keep=
for symbol in $symbols; do
	keep="$keep --keep-global-symbol=$symbol"
done
# shellcheck disable=SC2086 # a list of options
objcopy $keep "$object"
rm -f "$output"
ar rcs "$output" "$object"
rm -f "$object"
