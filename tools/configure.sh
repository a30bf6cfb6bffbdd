#!/bin/sh
# configure.sh DIR [MESON-OPTION]...: set the build folder up, or again when files or options have changed.
set -eu
build=$1
shift

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
{
	printf '%s\n' "${CC:-}" "$@"
	find src tests bench policies -name '*.[ch]' -o -path '*e2e/*' -name 'test_*' | LC_ALL=C sort
} >"$scratch/now"

if [ -f "$build/build.ninja" ]; then
	cmp -s "$scratch/now" "$build/configured-with" && exit 0
	set -- --reconfigure "$@"
fi
if ! meson setup "$build" "$@" >"$scratch/log" 2>&1; then
	cat "$scratch/log" >&2
	exit 1
fi
grep '^WARNING' "$scratch/log" || true
cp "$scratch/now" "$build/configured-with"
