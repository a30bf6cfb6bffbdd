#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# How many: capacity.sh [VGPUS [PROCESSES]] (default 1000 and 200). vGPUs made, listed and removed one after the other;
# then processes on one vGPU that make a small launch all at the same time.
# Goal: nothing refused, every result right.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
. "$HERE/vgpus.sh"
help_if_asked "$@"
need_gpu
find_programs
make_work
vgpus=${1:-1000}
processes=${2:-200}
status=0

now_us() {
	echo "${EPOCHREALTIME//[.,]/}"
}

# timed WHAT command…: its ms are one more line of $WORK/WHAT.ms
timed() {
	local what=$1 start
	shift
	start=$(now_us)
	bf "$@" >"$WORK/said" 2>&1 || { refused=$((refused + 1)); [ "$refused" -gt 3 ] || sed 's/^/  /' "$WORK/said"; }
	awk -v us=$(($(now_us) - start)) 'BEGIN { print us / 1000 }' >>"$WORK/$what.ms"
}

# row TEXT WHAT: a line of the table
row() {
	sort -n "$WORK/$2.ms" | awk -v what="$1" '{ v[NR] = $1; sum += $1 } END {
		printf "%-28s %8d %10.2f %10.2f %10.2f %10.1f\n", what, NR, v[int((NR + 1) / 2)], v[int(NR * 0.99 + 0.999)],
			v[NR], sum / 1000
	}'
}

start_daemon
calibrate
refused=0
for i in $(seq "$vgpus"); do
	timed create create "b-$i" --time 0:100
done
for i in 1 2 3 4 5; do
	timed list ls --json
done
listed=$(bf ls --json | grep -c '"name": *"b-')
timed one stats b-1 --json
for i in $(seq "$vgpus"); do
	timed remove rm "b-$i"
done
left=$(bf ls --json | grep -c '"name": *"b-')

# one after the other they get ready, then all launch
create b-many 0:100
for i in $(seq "$processes"); do
	rm -f "$WORK/start"
	timeout -k 5 300 "$BELFRY" run b-many -- "$BENCH_BIN/load" --calibration "$WORK/calibration" --kernel-us 100 \
		--launches 2 --secs 120 --ready "$WORK/many-$i.ready" --start "$WORK/start" --json \
		>"$WORK/many-$i.json" 2>"$WORK/many-$i.err" &
	many+=($!)
done
count_ready() {
	[ "$(find "$WORK" -name 'many-*.ready' | wc -l)" -ge "$processes" ]
}
begun=$(now_us)
wait_until 200 count_ready || { echo "FAILED: $(find "$WORK" -name 'many-*.ready' | wc -l) of $processes got ready"; status=1; }
ready_ms=$((($(now_us) - begun) / 1000))
there=$(bf stats b-many --json | awk '/"processes":/ { here = 1 } /"runs":/ { here = 0 } here && /"pid":/ { n++ } END { print n + 0 }')
begun=$(now_us)
touch "$WORK/start"
right=0
for i in "${!many[@]}"; do
	wait "${many[i]}" && grep -q '"wrong":0,' "$WORK/many-$((i + 1)).json" && right=$((right + 1))
done
launch_ms=$((($(now_us) - begun) / 1000))
[ "$right" = "$processes" ] || cat "$WORK"/many-*.err | sort | uniq -c | sort -rn | sed 's/^/  /' | head -3
remove_all

printf '%-28s %8s %10s %10s %10s %10s\n' "" count "median ms" "p99 ms" "worst ms" "total s"
row "belfry create" create
row "belfry ls, with all of them" list
row "belfry stats of one" one
row "belfry rm" remove
printf '%-28s %8d %43.1f\n' "processes of one vGPU: ready" "$there" "$(awk -v ms="$ready_ms" 'BEGIN { print ms / 1000 }')"
printf '%-28s %8d %43.1f\n' "  launched, and right" "$right" "$(awk -v ms="$launch_ms" 'BEGIN { print ms / 1000 }')"
if [ "$status" = 0 ] && [ "$refused" = 0 ] && [ "$listed" = "$vgpus" ] && [ "$left" = 0 ] &&
	[ "$right" = "$processes" ] && [ "$there" -ge "$processes" ]; then
	echo ok
else
	echo "FAILED: $refused refused, $listed of $vgpus listed, $left left, $there of $processes processes there, $right right"
	exit 1
fi
