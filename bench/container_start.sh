#!/bin/bash
# SPDX-License-Identifier: MIT
# How long a container takes from its start to its end, without and with a vGPU, in turn: container_start.sh [PAIRS] (default 30).
# Three ways: crun alone; belfry-oci with a vGPU that exists; belfry-oci with parts of a GPU, for which it makes a vGPU. The
# program is true, on the software GPU. Goal: at most 100 ms more than crun alone.
# Functions are called by name:
# shellcheck disable=SC1091,SC2034,SC2154,SC2317
set -u
HERE=$(cd "$(dirname "$0")" && pwd)
build=${BELFRY_BUILD_DIR:-$HERE/../build}
build=$(cd "$build" && pwd) || exit 1
export BELFRY="$build/belfry" BELFRYD="$build/belfryd" BELFRY_SOFT_SERVER="$build/belfry-soft" BELFRY_BUILD_DIR="$build"
pairs=${1:-30}
[ "$(id -u)" = 0 ] || { echo "skipped: containers need root"; exit 77; }
command -v crun >/dev/null || { echo "skipped: crun is not installed"; exit 77; }
if [ -z "${BELFRY_TEST_IN_NAMESPACE:-}" ]; then
	exec env BELFRY_TEST_IN_NAMESPACE=1 unshare --mount --propagation private "$0" "$pairs"
fi
. "$HERE/../tests/e2e/common.sh"
. "$HERE/../tests/e2e/containers.sh"
export BELFRY_SOFT="mem=8G,linger=1,name=cs$$" BELFRY_OCI_MARKS="$work/marks"

use_daemon
printf '[server]\noci_socket = %s/d/oci.sock\n' "$work" >"$work/conf"
hide_unified
make_root
start_daemon
until_so test -S "$work/d/oci.sock"
"$belfry" create one --mem 64M && "$belfry" cdi -o "$work/cdi.json" --marks "$work/marks" || exit 1
: >"$work/marks/memory@soft:0@1"
: >"$work/marks/time@10:100"
ln -s "$belfry" "$work/belfry-oci"
bundle none '' true
bundle named one true
bundle_mounts="/run/belfry/memory $work/marks/memory@soft:0@1 /run/belfry/time $work/marks/time@10:100"
bundle parts '' true

none() { crun --root "$work/state" run --bundle "$work/none" "$1"; }
named() { "$work/belfry-oci" --belfry-runtime=crun --root "$work/state" run --bundle "$work/named" "$1"; }
parts() { "$work/belfry-oci" --belfry-runtime=crun --root "$work/state" run --bundle "$work/parts" "$1"; }
# measure HOW NUMBER: "HOW MILLISECONDS" to $work/times. The bundle is as a manager writes it: not edited.
measure() {
	local start end
	cp "$work/$1/config.json" "$work/config"
	start=${EPOCHREALTIME/./}
	"$1" "$1-$$-$2" >"$work/out" 2>&1 || { echo "FAILED: $1: $(cat "$work/out")"; exit 1; }
	end=${EPOCHREALTIME/./}
	cp "$work/config" "$work/$1/config.json"
	echo "$1 $((end - start))" >>"$work/times"
}
for how in none named parts; do # once for the caches
	measure "$how" 0
done
: >"$work/times"
for i in $(seq "$pairs"); do
	order=(none named parts)
	[ $((i % 2)) = 1 ] || order=(parts named none)
	for how in "${order[@]}"; do
		measure "$how" "$i"
	done
done
median() { awk -v how="$1" '$1 == how { print $2 }' "$work/times" | sort -n | awk '{ all[NR] = $1 } END { printf "%.1f", all[int((NR + 1) / 2)] / 1000 }'; }
base=$(median none)
echo "container start and end, median of $pairs, $(nproc) CPUs"
echo "crun alone: $base ms"
for how in named parts; do
	awk -v how="$how" -v ms="$(median "$how")" -v base="$base" 'BEGIN {
		printf("%s: %s ms, %.1f ms more%s\n", how == "named" ? "with a vGPU" : "with parts of a GPU", ms, ms - base,
			ms - base > 100 ? " (goal 100: missed)" : "") }'
done
end_daemon
