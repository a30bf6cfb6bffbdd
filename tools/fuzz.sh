#!/bin/sh
# fuzz.sh BUILD-DIR SECONDS [NAME]...: these fuzzers, or all, for SECONDS each, as many at a time as there are processors;
# starting from tests/fuzz/corpus/NAME where there is one. What one finds is kept beside it, BUILD-DIR/tests/fuzz/
# NAME.found, as is a crash.
set -eu
build=$1
seconds=$2
shift 2

# One of them, in a build that is there.
if [ "${1:-}" = --run ]; then
	name=$2
	found="$build/tests/fuzz/$name.found"
	mkdir -p "$found"
	set -- "$found"
	if [ -d "tests/fuzz/corpus/$name" ]; then
		set -- "$@" "tests/fuzz/corpus/$name"
	fi
	case $name in
	policy_*) set -- "$@" "$build/tests/policies" ;; # what clang has made there
	probe_*) # without objects that are large on purpose: one would take the whole time
		mkdir -p "$found.seeds"
		find "$build/tests/probes" -name '*.bpf.o' -size -64k -exec cp {} "$found.seeds/" \;
		set -- "$@" "$found.seeds"
		;;
	esac
	if ! "$build/tests/fuzz/$name" "-max_total_time=$seconds" -timeout=10 -rss_limit_mb=2048 \
		-verbosity=0 -print_final_stats=1 "-artifact_prefix=$build/tests/fuzz/$name." "$@" \
		>"$found.log" 2>&1; then
		tail -n 60 "$found.log"
		echo "belfry: fuzzer $name failed: see above; the input is kept as $build/tests/fuzz/$name.*" >&2
		exit 1
	fi
	echo "$name, $seconds s: $(grep number_of_executed_units "$found.log" || true)"
	exit 0
fi

if [ $# = 0 ]; then
	for source in tests/fuzz/*.c; do
		set -- "$@" "$(basename "$source" .c)"
	done
fi
CC=${CLANG:-clang} tools/configure.sh "$build" -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false \
	-Doptimization=1
printf 'tests/fuzz/%s\n' "$@" | xargs ninja -C "$build" --quiet
printf '%s\n' "$@" | xargs -n 1 -P "$(nproc)" tools/fuzz.sh "$build" "$seconds" --run
echo "$# fuzzers ran and found nothing"
