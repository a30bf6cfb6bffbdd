#!/bin/bash
# The server's percentiles beside the program's own: is an objective judged by what the program sees? Programs that answer
# requests, alone and beside a busy neighbour, with short and long kernels. A row each: p50 and p99 in ms as the program has
# measured them (belfry-demo latency), as the server has (belfry stats), and the ratio of the two.
# OBJECTIVES_SECS: seconds a row (8). OBJECTIVES_ALONE=1: without the neighbour. OBJECTIVES_WITHIN: percent; a larger difference at p50 fails (default: only shown).
# shellcheck disable=SC2317 # functions are called by name
set -u
: "${BELFRY_BUILD_DIR:=$(cd "$(dirname "$0")/.." && pwd)/build}"
belfry="${BELFRY:-$BELFRY_BUILD_DIR/belfry}"
demo="$BELFRY_BUILD_DIR/demo/belfry-demo"
kernels="$(cd "$(dirname "$0")/.." && pwd)/demo/kernels.ptx"
secs="${OBJECTIVES_SECS:-8}"
within="${OBJECTIVES_WITHIN:-}"
work=$(mktemp -d /tmp/belfry-objectives.XXXXXX)
failed=0
clean_up() {
	timeout 20 "$belfry" rm --force objective-rider objective-other 2>/dev/null
	rm -rf "$work"
}
trap clean_up EXIT

# server PATH: of the rider, in ms.
server() {
	timeout 20 "$belfry" stats --json objective-rider | python3 -c '
import json, sys
print("%.3f" % (json.load(sys.stdin)["vgpus"][0]["latency"][sys.argv[1]] / 1e3))' "$1"
}
own() { awk -v word="$1" '{ for (i = 1; i < NF; i++) if ($i == word) print $(i + 1) }' "$work/rider"; }

# row LABEL OPTION...: options of the program; with a neighbour if $other says so.
row() {
	local label=$1 neighbour="" p50 p99
	shift
	timeout 20 "$belfry" rm --force objective-rider 2>/dev/null
	timeout 20 "$belfry" create objective-rider --time 40:100 --class latency --objective p99=2ms || exit 1
	if [ -n "$other" ]; then
		timeout $((secs + 30)) "$belfry" run objective-other -- "$demo" train --secs $((secs + 3)) \
			--kernels "$kernels" >/dev/null 2>&1 &
		neighbour=$!
		sleep 1
	fi
	timeout $((secs + 30)) "$belfry" run objective-rider -- "$demo" latency --secs "$secs" --kernels "$kernels" "$@" \
		>"$work/rider" 2>&1 || { cat "$work/rider"; failed=1; }
	p50=$(server p50_us) p99=$(server p99_us)
	[ -z "$neighbour" ] || wait "$neighbour"
	awk -v label="$label" -v a="$(own p50_ms)" -v b="$p50" -v c="$(own p99_ms)" -v d="$p99" -v within="$within" 'BEGIN {
		printf "%-34s %8.2f %8.2f %6.2f   %8.2f %8.2f %6.2f\n", label, a, b, a ? b / a : 0, c, d, c ? d / c : 0
		exit within != "" && (b / a > 1 + within / 100 || b / a < 1 - within / 100)
	}' || failed=1
}

timeout 20 "$belfry" create objective-other --time 30:80 || exit 1
printf '%-34s %8s %8s %6s   %8s %8s %6s\n' 'p50 and p99 in ms' 'program' 'server' 'ratio' 'program' 'server' 'ratio'
other=""
row 'alone'
row 'alone, without pauses' --period-us 0
[ -z "${OBJECTIVES_ALONE:-}" ] || exit "$failed"
other=yes
row 'beside a busy neighbour'
row 'beside it, without pauses' --period-us 0
exit "$failed"
