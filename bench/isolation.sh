#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# A program alone, then beside 100 neighbours that fault, abort or are killed in mid-kernel, eight at a time.
# Goal: it loses no work and no result changes. isolation.sh [NEIGHBOURS]
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
need_gpu
find_programs
make_work
neighbours=${1:-100}
kinds=(illegal trap assert kill abort)

on 60 4G b-alone "$BIN/gpu_steady" --rounds 30 >"$WORK/alone" || { cat "$WORK/alone"; exit 1; }
hash=$(sed -n 's/^hash=\([0-9a-f]*\).*/\1/p' "$WORK/alone")
start_on 150 4G b-steady "$BIN/gpu_steady" --until "$WORK/enough" --secs 120 --expect "$hash" >"$WORK/beside" 2>&1
steady=$STARTED

# A neighbour that did not go wrong as it should proves nothing, so its status is kept.
fault() {
	local i=$1 kind=$2
	on 30 2G "b-fault-$i" "$BIN/gpu_fault" "$kind" >"$WORK/said-$i" 2>&1
	echo "$kind $?" >"$WORK/fault-$i"
}

for i in $(seq "$neighbours"); do
	fault "$i" "${kinds[i % 5]}" &
	faults+=($!)
	# all but the last eight are done before the next one starts
	[ "$i" -lt 8 ] || wait "${faults[i - 8]}"
done
wait "${faults[@]}"
touch "$WORK/enough"
wait "$steady"
status=$?
as_meant=0
printf '%-10s %8s %8s\n' neighbour ran "as meant"
for kind in "${kinds[@]}"; do
	case $kind in abort) right=134 ;; kill) right=137 ;; *) right=0 ;; esac
	hits=$(cat "$WORK"/fault-* | grep -c "^$kind $right\$")
	as_meant=$((as_meant + hits))
	# one that ended otherwise: how, and what it said (124: not within its 30 s)
	for file in $(grep -L "^$kind $right\$" "$WORK"/fault-* | xargs -r grep -l "^$kind "); do
		echo "  $(cat "$file"): $(tail -1 "$WORK/said-${file##*-}")"
	done
	printf '%-10s %8d %8d\n' "$kind" "$(cat "$WORK"/fault-* | grep -c "^$kind ")" "$hits"
done
echo "alone:  $(cat "$WORK/alone")"
echo "beside: $(tail -1 "$WORK/beside")"
if [ "$status" = 0 ] && [ "$as_meant" = "$neighbours" ] && grep -q "^hash=$hash .*wrong=0$" "$WORK/beside"; then
	echo "ok"
else
	echo "FAILED: status $status, $as_meant of $neighbours neighbours went wrong as meant"
	exit 1
fi
