# shellcheck shell=bash disable=SC2034,SC2046,SC2086
# SPDX-License-Identifier: MIT
# Sourced by the measurements of belfryd (bash), after tests/gpu/common.sh: a belfryd of the script's own, vGPUs on it,
# and loads that start together. BELFRY_SOCKET or BELFRY_RUNTIME_DIR: another one's belfryd, or another folder.
# Everything that could hang goes through `timeout`.

MADE=()	   # vGPUs, by name
LOADS=()   # their loads' processes, and
LOADED=()  # the vGPUs these are on

# The comment at the top of the script is its help.
help_if_asked() {
	case " $* " in
	*' --help '* | *' -h '*) ;;
	*) return 0 ;;
	esac
	awk '/^#!|^# SPDX|^# Lists of|^# shellcheck/ { next } /^#/ { sub(/^# ?/, ""); print; next } { exit }' "$0"
	exit 0
}

has_torch() {
	is_soft && return 1
	command -v python3 >/dev/null && python3 -c 'import torch' 2>/dev/null
}

# begin_with_torch ARGUMENT...: how a measurement with PyTorch opens.
begin_with_torch() {
	help_if_asked "$@"
	need_gpu
	need_real_gpu "PyTorch's kernels are not PTX" || exit 77
	has_torch || { echo "skipped: no PyTorch"; exit 77; }
	find_programs
	make_work
}

bf() {
	timeout -k 5 30 "$BELFRY" "$@"
}

now_ms() {
	local us=${EPOCHREALTIME//[.,]/}
	echo $((us / 1000))
}

# belfryd, with the lines of SERVER_LINES in [server] of its configuration. Nothing of it outlives the script.
start_daemon() {
	[ -z "${BELFRY_SOCKET:-}" ] || { IS_OURS=; return 0; }
	IS_OURS=1
	export BELFRY_RUNTIME_DIR=${BELFRY_RUNTIME_DIR:-$WORK/run}
	(umask 077 && mkdir -p "$BELFRY_RUNTIME_DIR")
	export BELFRY_SOCKET=$BELFRY_RUNTIME_DIR/belfryd.sock
	printf '[server]\n%s\n' "${SERVER_LINES:-}" >"$WORK/belfryd.conf"
	trap 'end_daemon; clean_up_jobs; rm -rf "$WORK"' EXIT
	launch_daemon
}

launch_daemon() {
	local gpu=()
	! is_soft || gpu=(--gpu soft)
	timeout -k 10 7200 "$(dirname "$BELFRY")/belfryd" --socket "$BELFRY_SOCKET" --config "$WORK/belfryd.conf" \
		"${gpu[@]}" >>"$WORK/belfryd.log" 2>&1 &
	DAEMON_JOB=$!
	wait_until 30 bf_answers || { echo "FAILED: belfryd does not answer"; tail -5 "$WORK/belfryd.log"; exit 1; }
}

# At the end: whatever is left on it goes, too, and the software GPU, which is ours as well.
end_daemon() {
	remove_all >/dev/null 2>&1
	kill "$DAEMON_JOB" 2>/dev/null && wait "$DAEMON_JOB" 2>/dev/null
	! is_soft || bf soft stop >/dev/null 2>&1
}

bf_answers() {
	bf ls --json >"$WORK/answer" 2>&1 && grep -q '"daemon": *{' "$WORK/answer"
}

# Pretty-printed JSON has one value a line.
daemon_pid() {
	bf ls --json | awk '/"daemon":/ { here = 1 } here && /"pid":/ { gsub(/[^0-9]/, ""); print; exit }'
}

server_pids() {
	bf ls --json | awk '/"server_pid":/ { gsub(/[^0-9]/, ""); if ($0 + 0) print }' | sort -u
}

# belfryd, its GPU servers, and whatever else they have started; not the software GPU, which is no part of it.
daemon_family() {
	local pid
	for pid in $(daemon_pid) $(server_pids); do
		family "$pid"
	done | sort -un | while read -r pid; do
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" != belfry-soft ] && echo "$pid"
	done
}

# create NAME REQUEST[:LIMIT] [OPTION…]
create() {
	local name=$1 time=$2
	shift 2
	bf create "$name" --time "$time" "$@" || { echo "FAILED: $name could not be made"; exit 1; }
	MADE+=("$name")
}

remove_all() {
	local name
	for name in "${MADE[@]}"; do
		bf rm --force "$name" >/dev/null || echo "$name could not be removed"
	done
	MADE=()
}

# gpu_times: NAME and the ns of the GPU's time it had, of every vGPU, by Belfry's count.
gpu_times() {
	bf stats --json | awk -F'[:,]' '
		/"name":/ { gsub(/[" ]/, "", $2); name = $2 }
		/"gpu_ns":/ { gsub(/ /, "", $2); print name, $2 }'
}

# How fast the GPU is when nobody else is on it.
calibrate() {
	native 60 "$BENCH_BIN/load" --calibrate "$WORK/calibration" >"$WORK/calibrated" 2>&1 ||
		{ echo "FAILED: no calibration"; cat "$WORK/calibrated"; exit 1; }
}

calibrate_torch() {
	native 120 python3 "$HERE/pair.py" sizes --calibrate "$WORK/sizes" >"$WORK/calibrated" 2>&1 ||
		{ echo "FAILED: no calibration of PyTorch"; tail -3 "$WORK/calibrated"; exit 1; }
}

# An MPS server of the script's own, without Belfry. MPS_CLIENT: the command that makes a program its client.
mps_control() {
	CUDA_MPS_PIPE_DIRECTORY=$WORK/mps CUDA_MPS_LOG_DIRECTORY=$WORK/mps timeout -k 5 30 nvidia-cuda-mps-control "$@"
}

start_mps() {
	command -v nvidia-cuda-mps-control >/dev/null || { echo "no MPS: nvidia-cuda-mps-control is not there"; return 1; }
	mkdir -p "$WORK/mps"
	MPS_CLIENT=(env "CUDA_MPS_PIPE_DIRECTORY=$WORK/mps" "CUDA_MPS_LOG_DIRECTORY=$WORK/mps")
	mps_control -d >"$WORK/mps.log" 2>&1 && return 0
	echo "no MPS: $(tail -1 "$WORK/mps.log")"
	return 1
}

end_mps() {
	echo quit | mps_control >/dev/null 2>&1
}

# start_load SECONDS NAME program…: on that vGPU, once `begin` says so. What it tells is in $WORK/NAME.json.
start_load() {
	local secs=$1 name=$2
	shift 2
	rm -f "$WORK/start" "$WORK/$name.ready"
	timeout -k 5 "$secs" "$BELFRY" run "$name" -- "$@" --ready "$WORK/$name.ready" --start "$WORK/start" --json \
		>"$WORK/$name.json" 2>"$WORK/$name.err" &
	LOADS+=($!)
	LOADED+=("$name")
}

# start_plain SECONDS NAME COMMAND…: the command as it is, once `begin` says so. What it tells is in $WORK/NAME.json.
start_plain() {
	local secs=$1 name=$2
	shift 2
	rm -f "$WORK/start" "$WORK/$name.ready"
	timeout -k 5 "$secs" "$@" --ready "$WORK/$name.ready" --start "$WORK/start" >"$WORK/$name.json" 2>"$WORK/$name.err" &
	LOADS+=($!)
	LOADED+=("$name")
}

# together WAY: all loads that were started, at the same time; lines "WAY {…}" to $WORK/results.
together() {
	local names=("${LOADED[@]}") name
	begin
	finish_loads || return 1
	for name in "${names[@]}"; do
		sed -n "s/^{/$1 {/p" "$WORK/$name.json" >>"$WORK/results"
	done
}

are_ready() {
	local name
	for name in "${LOADED[@]}"; do
		[ -e "$WORK/$name.ready" ] || return 1
	done
}

begin() {
	wait_until 120 are_ready || { echo "FAILED: a load did not get that far"; show_errors; exit 1; }
	touch "$WORK/start"
}

show_errors() {
	local name
	for name in "${LOADED[@]}"; do
		sed "s/^/  $name: /" "$WORK/$name.err" | tail -3
	done
}

# All loads of before; fails if one failed or its results are wrong.
finish_loads() {
	local i failed=0
	for i in "${!LOADS[@]}"; do
		wait "${LOADS[i]}" && grep -q '"wrong":0[,}]' "$WORK/${LOADED[i]}.json" && continue
		failed=1
		echo "FAILED: the load on ${LOADED[i]}"
		sed 's/^/  /' "$WORK/${LOADED[i]}.err" | tail -3
	done
	LOADS=()
	LOADED=()
	return "$failed"
}

# work_between FROM-MS TO-MS NAME: the ms of work it did then, by whole buckets, a second.
work_between() {
	awk -v from="$1" -v to="$2" '
	function field(name) {
		return match($0, "\"" name "\": *[^,}]*") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) : 0
	}
	/"buckets"/ {
		at = field("first_ms") + 0
		width = field("bucket_ms") + 0
		sub(/.*"buckets": *\[/, "")
		sub(/\].*/, "")
		count = split($0, work, ",")
		for (i = 1; i <= count; i++) {
			if (at >= from && at + width <= to) {
				sum += work[i]
				ms += width
			}
			at += width
		}
	}
	END { printf "%.4f\n", ms ? sum * 1000 / ms : 0 }' "$WORK/$3.json"
}
