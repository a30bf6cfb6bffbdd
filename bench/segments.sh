# shellcheck shell=bash disable=SC1091,SC2034
# SPDX-License-Identifier: MIT
# Sourced by the measurements of policies (bash), after vgpus.sh: programs that are started once, and one segment of their
# work after the other, with another policy for each. What changes is the policy and nothing else: not even the processes.

SEGMENT=0
PROGRAMS=()

# start_program NAME ROLE [OPTION…]: that role of tpot.py on the vGPU of that name.
start_program() {
	local name=$1 role=$2
	shift 2
	timeout -k 5 900 "$BELFRY" run "$name" -- python3 "$HERE/tpot.py" "$role" --name "$name" --ready "$WORK/$name.ready" \
		--start "$WORK/segment" "$@" >"$WORK/$name.json" 2>"$WORK/$name.err" &
	LOADS+=($!)
	LOADED+=("$name")
	PROGRAMS+=("$name")
}

# Before other programs are started, when these have ended.
forget_programs() {
	rm -f "$WORK"/segment.* "$WORK"/*.ready
	PROGRAMS=()
	SEGMENT=0
}

has_ended() {
	local name
	for name in "${PROGRAMS[@]}"; do
		grep -q "^{\"segment\":$1," "$WORK/$name.json" || return 1
	done
}

# use_policy NAME[:K=V[,K=V…]]: a policy's with its tunables, or built-in
use_policy() {
	local name=${1%%:*} set=() one
	if [ "$name" = built-in ]; then
		bf policy unload >"$WORK/policy.log" 2>&1
		return 0
	fi
	if [ "$name" != "$1" ]; then
		for one in $(tr ',' ' ' <<<"${1#*:}"); do
			set+=(--set "$one")
		done
	fi
	bf policy load "$name" "${set[@]}" >"$WORK/policy.log" 2>&1 && return 0
	echo "FAILED: the policy $1 could not be loaded"
	sed 's/^/  /' "$WORK/policy.log"
	exit 1
}

# segment POLICY: one of all programs under it; lines "POLICY {…}" to $WORK/results. HOW: a suffix to the policy there.
segment() {
	local name
	use_policy "$1"
	sleep 0.5
	touch "$WORK/segment.$SEGMENT"
	wait_until 300 has_ended "$SEGMENT" || { echo "FAILED: segment $SEGMENT did not end"; show_errors; exit 1; }
	for name in "${PROGRAMS[@]}"; do
		sed -n "s/^{\"segment\":$SEGMENT,/$1${HOW:-} {/p" "$WORK/$name.json" >>"$WORK/results"
	done
	bf policy ls >"$WORK/policies.$SEGMENT" 2>&1
	SEGMENT=$((SEGMENT + 1))
	echo "segment $SEGMENT: $1" >&2
}

# run_rounds ROUNDS POLICY...: segments under each of them, there and back in a round, once all programs are ready.
run_rounds() {
	local rounds=$1 i
	shift
	wait_until 120 are_ready || { echo "FAILED: a program did not get that far"; show_errors; exit 1; }
	for _ in $(seq "$rounds"); do
		for ((i = 1; i <= $#; i++)); do
			segment "${!i}"
		done
		for ((i = $#; i >= 1; i--)); do
			segment "${!i}"
		done
	done
}
