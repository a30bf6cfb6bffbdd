#!/bin/bash
# vGPUs without a limit cannot take memory that is promised to another vGPU. They are told a smaller total.
# Functions are called by name:
# shellcheck disable=SC1091,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="mem=512M,linger=1,name=promises$$"
hog="$BELFRY_BUILD_DIR/tests/e2e/hog"

# take NAME MOST: on that vGPU; what it says is in $work/NAME, and it stays until $work/NAME.end is there.
take() {
	rm -f "$work/$1" "$work/$1.end"
	timeout 100 "$belfry" run "$1" -- "$hog" "$2" "$work/$1.end" >"$work/$1" 2>"$work/$1.err" &
	eval "run_$1=$!"
	until_so test -s "$work/$1"
}
leave() {
	local name
	for name; do
		touch "$work/$name.end"
		eval "wait \$run_$name"
	done
}
# told NAME WORD: the figure after that word; 0 if it could not even make a context.
told() {
	awk -v word="$2" '{ for (i = 1; i < NF; i++) if ($i == word) n = $(i + 1) } END { print n + 0 }' "$work/$1"
}
is_at_most() { [ "$1" -le "$2" ] || fail "$3: $1 is more than $2"; }
is_at_least() { [ "$1" -ge "$2" ] || fail "$3: $1 is less than $2"; }

a_vgpu_without_a_limit_leaves_what_is_promised() {
	status 0 "$belfry" create free1
	status 0 "$belfry" create train --mem 128M
	take free1 0
	is_at_most "$(told free1 total)" 384 "the card that a vGPU without a limit is told of"
	is_at_most "$(told free1 free)" 384 "what a vGPU without a limit is told is free"
	is_at_most "$(told free1 got)" 384 "what a vGPU without a limit has got"
	is_at_least "$(told free1 got)" 360 "what a vGPU without a limit has got"
	is_at_most "$(told free1 left)" 2 "what it is told is free when it has all"
	take train 0
	is_at_least "$(told train got)" 110 "what was promised and is there"
	is_at_most "$(told train got)" 128 "what a vGPU with a limit has got"
	leave free1 train
	status 0 "$belfry" rm free1
	status 0 "$belfry" rm train
}

two_without_a_limit_share_what_is_not_promised() {
	status 0 "$belfry" create promised --mem 256M
	status 0 "$belfry" create one
	status 0 "$belfry" create two
	take one 100
	take two 0
	is_at_most $(($(told one got) + $(told two got))) 256 "two without a limit"
	is_at_most "$(told two free)" 156 "what the second is told is free"
	leave one two
	# Both at once: whatever they get, it is not more than there is.
	rm -f "$work"/[ot]*.end
	for name in one two; do
		timeout 100 "$belfry" run "$name" -- "$hog" 0 "$work/$name.end" >"$work/$name" 2>&1 &
		eval "run_$name=$!"
	done
	until_so test -s "$work/one"
	until_so test -s "$work/two"
	is_at_most $(($(told one got) + $(told two got))) 256 "two without a limit at once"
	take promised 0
	is_at_least "$(told promised got)" 240 "what was promised beside two without a limit"
	leave one two promised
	for name in one two promised; do status 0 "$belfry" rm "$name"; done
}

a_promise_of_memory_in_use_is_refused_with_the_arithmetic() {
	status 0 "$belfry" create free2
	take free2 300
	status 1 "$belfry" create late --mem 256M
	says 'memory 256 MiB cannot be reserved: of the GPU' "a promise of memory in use"
	says 'in use on vGPUs without a limit' "a promise of memory in use"
	status 0 "$belfry" create late --mem 128M
	status 1 "$belfry" set late --mem 256M
	says 'cannot be reserved' "a promise that grows over memory in use"
	status 1 "$belfry" set free2 --mem 200M
	says 'in use' "a limit below what is in use"
	status 0 "$belfry" set free2 --mem 350M
	status 1 "$belfry" create more --mem 64M
	leave free2
	until_so is_figure free2 mem.used 0 || fail "what a program had is not given back"
	status 0 "$belfry" set free2 --mem 64M
	status 0 "$belfry" create more --mem 256M
	for name in free2 late more; do status 0 "$belfry" rm "$name"; done
	status 0 "$belfry" create all --mem 512M
}

a_vgpu_without_a_limit_leaves_what_is_promised
two_without_a_limit_share_what_is_not_promised
a_promise_of_memory_in_use_is_refused_with_the_arithmetic
exit "$failed"
