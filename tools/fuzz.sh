#!/bin/sh
# fuzz.sh BUILD-DIR SECONDS: every fuzzer for SECONDS, starting from tests/fuzz/corpus/NAME where there is one.
# What it finds is kept beside the fuzzer, BUILD-DIR/tests/fuzz/NAME.found, as is a crash.
set -eu
build=$1
seconds=$2

CC=${CLANG:-clang} tools/configure.sh "$build" -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false
ninja -C "$build" --quiet

count=0
for source in tests/fuzz/*.c; do
	[ -f "$source" ] || continue
	name=$(basename "$source" .c)
	found="$build/tests/fuzz/$name.found"
	mkdir -p "$found"
	set -- "$found"
	if [ -d "tests/fuzz/corpus/$name" ]; then
		set -- "$@" "tests/fuzz/corpus/$name"
	fi
	echo "== $name, $seconds s"
	if ! "$build/tests/fuzz/$name" "-max_total_time=$seconds" -timeout=10 -rss_limit_mb=2048 \
		-verbosity=0 -print_final_stats=1 "-artifact_prefix=$build/tests/fuzz/$name." "$@" \
		>"$found.log" 2>&1; then
		tail -n 60 "$found.log"
		echo "belfry: fuzzer $name failed: see above; the input is kept as $build/tests/fuzz/$name.*" >&2
		exit 1
	fi
	grep number_of_executed_units "$found.log" || true
	count=$((count + 1))
done
echo "$count fuzzers ran and found nothing"
