#!/bin/bash
# SPDX-License-Identifier: MIT
# policy_swap.sh [SWAPS]: policies are changed under load, 10,000 times or so often: half of them while two vGPUs share the
# GPU by tokens and keep it busy, half while a third, alone, waits for each of its launches. Told: how long the changes took,
# with the lock held, and the longest launch, with changes and without; whether anything was lost, or is left: work, tokens,
# descriptors, memory.
# On the software GPU, or on BELFRY_GPU. Exit status: 0, 1 if something was lost, left or held up, 77 no right to load eBPF.
# shellcheck disable=SC1091,SC2154,SC2317
set -u
BELFRY_BUILD_DIR=$(realpath "${BELFRY_BUILD_DIR:-build}")
here=$(realpath "$(dirname "$0")")
gpu=${BELFRY_GPU:-soft}
export BELFRY_BUILD_DIR BELFRY=${BELFRY:-$BELFRY_BUILD_DIR/belfry}
. "$here/../tests/e2e/common.sh"
export BELFRY_GPU=$gpu BELFRY_SOFT="mem=1G,linger=1,name=swap$$"
swaps=${1:-10000}
load="$BELFRY_BUILD_DIR/bench/load"
stall_ms=${STALL_MS:-5}

timeout 20 "$belfry" policy check fair >"$work/out" 2>&1
if ! grep -q 'the kernel takes it' "$work/out"; then
	tail -1 "$work/out"
	exit 77
fi

# start NAME OPTION...
declare -A loads
start() {
	local name=$1
	shift
	rm -f "$work/$name".{ready,stop}
	timeout 7200 "$belfry" run "$name" -- "$load" --per-us 1 "$@" --secs 7000 --bucket-ms 10000 \
		--ready "$work/$name.ready" --until "$work/$name.stop" --json >"$work/$name.json" 2>"$work/$name.err" &
	loads[$name]=$!
	until_so test -e "$work/$name.ready"
}
stop() {
	: >"$work/$1.stop"
	wait "${loads[$1]}" || fail "the load on $1: $(cat "$work/$1.err")"
	has_line '"wrong":0,' "$work/$1.json" || fail "the load on $1 has a wrong result"
}
longest() { python3 -c 'import json, sys; print(round(json.load(open(sys.argv[1]))["longest_us"] / 1000, 2))' "$work/waits.json"; }
# The processors' own noise is in it: so it is compared with what there is without changes.
wait_for_launches() {
	start waits --kernel-us 200 --sync --gap-us 1000
	"$@"
	stop waits
}

status 0 "$belfry" create a --time 25
status 0 "$belfry" create b --time 25
status 0 "$belfry" create waits --time 20 --class latency
server=$(server_pid a)
fds() { find "/proc/$server/fd" 2>/dev/null | wc -l; }
rss() { awk '$1 == "VmRSS:" { print $2 }' "/proc/$server/status"; }

change() {
	local policies=(latency_first fair edf)
	for ((i = 0; i < swaps / 2; i++)); do
		timeout 60 "$belfry" policy load "${policies[i % 3]}" --json >>"$work/swaps" || fail "change $i"
	done
}

wait_for_launches sleep 20
alone=$(longest)
: >"$work/swaps"
wait_for_launches change
echo "longest launch: $alone ms without changes, $(longest) ms with"
start a --kernel-us 1000
start b --kernel-us 1000
for ((i = 0; i < 20; i++)); do
	status 0 "$belfry" policy load fair
done
fds_before=$(fds)
rss_before=$(rss)
granted_before=$(figure a tokens.granted)
gpu_before=$(figure a time.gpu_ns)
start_s=$SECONDS
change
took_s=$((SECONDS - start_s))
until_so eval "[ \"\$(figure a time.gpu_ns)\" -gt $(figure a time.gpu_ns) ]"
status 0 "$belfry" policy load fair
python3 - "$work/swaps" "$stall_ms" "$took_s" <<'END' || fail "a change held the others up"
import re, sys
ms = sorted(int(ns) / 1e6 for ns in re.findall(r'"swap_ns": *(\d+)', open(sys.argv[1]).read()))
over = sum(m > float(sys.argv[2]) for m in ms)
print(f"{len(ms)} changes, the second half in {sys.argv[3]} s; the lock was held for {ms[len(ms) // 2]:.3f} ms (median), "
      f"{ms[len(ms) * 99 // 100]:.3f} ms (p99), {ms[-1]:.3f} ms at most; {over} over {sys.argv[2]} ms")
sys.exit(over > 0)
END
echo "descriptors: $fds_before before, $(fds) after; memory: $rss_before KiB before, $(rss) KiB after"
echo "tokens of a: $granted_before before, $(figure a tokens.granted) after; GPU time: $((($(figure a time.gpu_ns) - gpu_before) / 1000000)) ms in $took_s s"
[ "$(fds)" -le $((fds_before + 2)) ] || fail "descriptors are left"
[ "$(rss)" -le $((rss_before + 8192)) ] || fail "memory is left"
stop a
stop b
exit "$failed"
