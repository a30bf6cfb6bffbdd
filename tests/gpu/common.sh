# shellcheck shell=bash disable=SC2013,SC2034,SC2046,SC2086
# SPDX-License-Identifier: MIT
# Sourced by run.sh and bench/*.sh (bash): where the programs are, and how to run one on a virtual GPU.
# Needs HERE (the sourcing script's folder) set. Sets GPU (the tests' folder), BIN, BENCH_BIN, BELFRY, WORK.
# Everything that touches the GPU goes through `timeout`: a hung GPU must not hang the machine's user.

GPU=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$GPU/../.." && pwd)
BUILD=${BELFRY_BUILD_DIR:-$ROOT/build}

# The first of its arguments that is a file one can run.
first_program() {
	local path
	for path; do
		[ -f "$path" ] && [ -x "$path" ] && echo "$path" && return
	done
	return 1
}

find_programs() {
	local probe
	# beside this script in the portable folder, in the build tree otherwise
	probe=$(first_program "${GPU_BIN:-/nonexistent}/gpu_saxpy" "$GPU/gpu_saxpy" "$BUILD/tests/gpu/gpu_saxpy") ||
		{ echo "no test programs: run make, or $GPU/build.sh" >&2; exit 2; }
	BIN=$(dirname "$probe")
	probe=$(first_program "${GPU_BIN:-/nonexistent}/overhead" "$ROOT/bench/overhead" "$BUILD/bench/overhead" \
		"$BIN/overhead") || probe=$BIN/overhead
	BENCH_BIN=$(dirname "$probe")
	BELFRY=$(first_program "${BELFRY:-/nonexistent}" "$ROOT/bin/belfry" "$BUILD/belfry" \
		"$(command -v belfry || echo /nonexistent)") ||
		{ echo "no belfry: set BELFRY" >&2; exit 2; }
	export BELFRY
}

# With BELFRY_GPU=soft everything runs on the software GPU: one of this script's own, and large enough.
is_soft() {
	[ "${BELFRY_GPU:-}" = soft ]
}

need_gpu() {
	if is_soft; then
		export BELFRY_SOFT=${BELFRY_SOFT:-name=gpu-tests-$$,mem=16G,linger=1}
		return
	fi
	[ -e /dev/nvidiactl ] && return
	echo "skipped: no NVIDIA device (/dev/nvidiactl)"
	exit 77
}

# For behaviours that need what only a real GPU has.
need_real_gpu() {
	is_soft || return 0
	echo "not on the software GPU: $*"
	return 77
}

make_work() {
	WORK=$(mktemp -d /tmp/belfry-gpu.XXXXXX) # not in TMPDIR: the path of a socket has little room
	trap 'clean_up_jobs; rm -rf "$WORK"' EXIT
}

# Only what this shell started, by number.
clean_up_jobs() {
	local pids
	pids=$(jobs -p)
	[ -z "$pids" ] || kill $pids 2>/dev/null
	wait 2>/dev/null
}

# on SECONDS MEM NAME program…: run a program on a virtual GPU of that size and name.
on() {
	local secs=$1 mem=$2 name=$3
	shift 3
	BELFRY_VGPU=$name timeout -k 5 "$secs" "$BELFRY" run --name "$name" --mem "$mem" -- "$@"
}

native() {
	local secs=$1
	shift
	if is_soft; then
		set -- "$BELFRY" soft run -- "$@"
	fi
	timeout -k 5 "$secs" "$@"
}

# The same in the background; STARTED is the process of `timeout`, which passes a signal on to the program. (A
# function behind & would be a shell of its own, and killing that shell would leave the program running.)
start_on() {
	local secs=$1 mem=$2 name=$3
	shift 3
	BELFRY_VGPU=$name timeout -k 5 "$secs" "$BELFRY" run --name "$name" --mem "$mem" -- "$@" &
	STARTED=$!
}

start_native() {
	local secs=$1
	shift
	if is_soft; then
		set -- "$BELFRY" soft run -- "$@"
	fi
	timeout -k 5 "$secs" "$@" &
	STARTED=$!
}

# What the driver says, seen from outside any virtual GPU.
gpu_processes() {
	if is_soft; then
		soft_status clients
		return
	fi
	timeout 20 nvidia-smi --query-compute-apps=pid --format=csv,noheader 2>/dev/null | grep -c '[0-9]'
}

# soft_status NAME: a figure of `belfry soft status`; 0 if it does not run, since then nothing is left on it.
soft_status() {
	timeout 20 "$BELFRY" soft status --json 2>/dev/null | awk -F'[:,]' -v name="\"$1\"" '
		index($1, name) { value = $2; exit } END { printf "%.0f\n", value }'
}

gpu_used_mib() {
	if is_soft; then
		echo $(($(soft_status used) >> 20))
		return
	fi
	timeout 20 nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null | head -1 | tr -dc 0-9
}

# wait_until SECONDS command…: until it succeeds; fails when it never does.
wait_until() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.1
	done
}

# family PID: the numbers of this process and all its descendants.
family() {
	local pid=$1 child
	echo "$pid"
	for child in $(cat "/proc/$pid/task"/*/children 2>/dev/null); do
		family "$child"
	done
}

# is_wanted NAME PATTERN: NAME contains PATTERN, an extended regular expression. !PATTERN: NAME does not contain it. =NAME:
# exactly this name. An empty PATTERN selects every name.
is_wanted() {
	case ${2:-} in
	=*) [ "$1" = "${2#=}" ] ;;
	!*) [[ ! $1 =~ ${2#!} ]] ;;
	*) [[ $1 =~ ${2:-} ]] ;;
	esac
}

# seconds_since NS: the time since `date +%s%N` printed NS, in seconds with two decimals.
seconds_since() {
	local hundredths=$((($(date +%s%N) - $1) / 10000000))
	printf '%d.%02d' $((hundredths / 100)) $((hundredths % 100))
}

# cpu_ns PROCESS…: CPU time of their threads so far, in ns.
cpu_ns() {
	local pid
	for pid; do
		cat "/proc/$pid/task"/*/schedstat 2>/dev/null
	done | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}

# cpu_percent SECONDS PROCESS…: what they use of one processor in the next seconds.
cpu_percent() {
	local secs=$1 first last
	shift
	first=$(cpu_ns "$@")
	sleep "$secs"
	last=$(cpu_ns "$@")
	awk -v ns=$((last - first)) -v secs="$secs" 'BEGIN { printf "%.3f\n", ns / secs / 1e7 }'
}
