#!/bin/sh
# sanitize.sh SANITIZERS BUILD-DIR: run the tests in a build with these sanitizers, named as in meson's b_sanitize.
set -eu
sanitizers=$1
build=$2

tools/configure.sh "$build" "-Db_sanitize=$sanitizers" -Doptimization=1
ninja -C "$build" --quiet

export ASAN_OPTIONS="abort_on_error=0:detect_stack_use_after_return=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}"
export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}"

# The thread sanitizer needs fixed addresses for its shadow memory. A strongly randomised layout may use them.
fixed=
if [ "$sanitizers" = thread ] && setarch "$(uname -m)" -R true 2>/dev/null; then
	fixed="setarch $(uname -m) -R"
fi
# `make fuzz` runs the fuzzers with sanitizers. The thread sanitizer finds nothing in code without threads.
left_out='--no-suite fuzz'
[ "$sanitizers" != thread ] || left_out="$left_out --no-suite unthreaded"
# shellcheck disable=SC2086 # words
exec $fixed tools/test.sh "$build" --timeout-multiplier 4 $left_out
