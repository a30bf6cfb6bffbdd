#!/bin/sh
# moved.sh PROBE_OVERHEAD: bench/probe_overhead in a folder such as tools/portable.sh makes uses the files of that folder, and
# not those of the tree that it was built in.
set -eu
: "${BELFRY_BUILD_DIR:?}" "${BELFRY_SOURCE_DIR:?}"
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d /tmp/belfry-moved.XXXXXX)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/bench" "$folder/bin/probes" "$folder/tests/data/ptx"
cp "$1" "$folder/bench/probe_overhead"
cp "$BELFRY_BUILD_DIR"/bench/probe_*.bpf.o "$folder/bench/"
cp "$BELFRY_BUILD_DIR"/probes/*.bpf.o "$folder/bin/probes/"
for name in vector matrix block; do
	cp "$BELFRY_SOURCE_DIR/tests/data/ptx/$name.ptx" "$folder/tests/data/ptx/"
done
run() { "$here/run.sh" "$folder/bench/probe_overhead" small >"$folder/out" 2>&1; }

run || { cat "$folder/out"; exit 1; }
# Each kind of file: if the one in the folder is damaged, the program fails. That of the tree is not damaged.
for file in bench/probe_count.bpf.o bin/probes/blocktime.bpf.o tests/data/ptx/vector.ptx; do
	mv "$folder/$file" "$folder/kept"
	echo damaged >"$folder/$file"
	if run; then
		echo "$file of the folder is not used:"
		cat "$folder/out"
		exit 1
	fi
	mv "$folder/kept" "$folder/$file"
done
