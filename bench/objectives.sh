#!/bin/bash
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2317 # functions are called by name
# The server's percentiles beside the program's own: is an objective judged by what the program sees?
# objectives.sh [--json] [KIND...]: every kind of program, alone and beside a busy neighbour on another vGPU.
#
#   steps        a kernel of 1 ms, launched and waited for, every 10 ms
#   back-to-back the same without a pause
#   bursts       8 kernels of 0.25 ms, then a wait, every 10 ms
#   long         a kernel of 10 ms, every 30 ms
#   graphs       a CUDA graph of 8 kernels of 0.25 ms, every 10 ms
#   streams      a kernel of 1 ms on each of 4 streams, then a wait for all, every 10 ms
#
# A row: p50 and p99 in ms as the program has measured them (bench/requests), as the server has (belfry stats), and the
# difference in percent, of the last 512 requests. With several rounds each figure is the median of the rounds. It fails
# where the server has counted another number of submissions than the program has made requests, by more than 2 %.
#
# The program has real-time priority where it may. From the end on the GPU until the program gets a processor is time that
# the program sees and no GPU server can; on a busy host that is most of the difference. OBJECTIVES_REALTIME=0: without.
#
# OBJECTIVES_ROUNDS: how often (1). OBJECTIVES_REQUESTS: requests a row (600). OBJECTIVES_ALONE=1: without the neighbour.
# OBJECTIVES_WITHIN, OBJECTIVES_WITHIN_P99: percent; a larger difference at p50, at p99, fails (default: only shown).
# --json: an object for each row and round.
set -u
: "${BELFRY_BUILD_DIR:=$(cd "$(dirname "$0")/.." && pwd)/build}"
belfry="${BELFRY:-$BELFRY_BUILD_DIR/belfry}"
programs="$BELFRY_BUILD_DIR/bench"
requests="${OBJECTIVES_REQUESTS:-600}"
rounds="${OBJECTIVES_ROUNDS:-1}"
limit=300 # seconds, for what could hang
neighbour=""
failed=0
# Iterations a microsecond of the neighbour's kernels. On the software GPU the measurement of them takes long.
rate=()
[ -e /dev/nvidiactl ] || rate=(--per-us 1)
is_json=""
if [ "${1:-}" = --help ]; then
	sed -n '/^# The server/,/^[^#]/s/^# \{0,1\}//p' "$0"
	exit 0
fi
if [ "${1:-}" = --json ]; then
	is_json=yes
	shift
fi
kinds=${*:-steps back-to-back bursts long graphs streams}
work=$(mktemp -d /tmp/belfry-objectives.XXXXXX)
clean_up() {
	timeout 20 "$belfry" rm --force objective-rider objective-other 2>/dev/null
	rm -rf "$work"
}
trap clean_up EXIT

# What a kind's program does, as options of bench/requests.
options_of() {
	case $1 in
	steps) echo --kernel-us 1000 ;;
	back-to-back) echo --kernel-us 1000 --period-us 0 ;;
	bursts) echo --kernels 8 --kernel-us 250 ;;
	long) echo --kernel-us 10000 --period-us 30000 ;;
	graphs) echo --graph 1 --kernels 8 --kernel-us 250 ;;
	streams) echo --streams 4 --kernels 4 --kernel-us 1000 ;;
	*)
		echo "objectives.sh: $1: no such kind of program; --help lists them" >&2
		exit 2
		;;
	esac
}

# Without the samples of the program before.
new_rider() {
	timeout 20 "$belfry" rm --force objective-rider 2>/dev/null
	timeout 20 "$belfry" create objective-rider --time 40:100 --class latency --objective p99=2ms || exit 1
}

start_neighbour() {
	rm -f "$work/ready" "$work/stop"
	timeout "$limit" "$belfry" run objective-other -- "$programs/load" "${rate[@]}" --kernel-us 2000 --secs "$limit" \
		--ready "$work/ready" --until "$work/stop" >"$work/load" 2>&1 &
	neighbour=$!
	while [ ! -e "$work/ready" ]; do
		kill -0 "$neighbour" 2>/dev/null || { cat "$work/load"; exit 1; }
		sleep 0.1
	done
}

end_neighbour() {
	touch "$work/stop"
	wait "$neighbour" || { cat "$work/load"; failed=1; }
}

# row KIND BESIDE ROUND: one run of a program on a vGPU of its own, a line of JSON.
row() {
	local kind=$1 beside=$2 round=$3
	new_rider
	# shellcheck disable=SC2046 # a list of options
	timeout "$limit" "$belfry" run objective-rider -- "$programs/requests" --per-ms "$per_ms" --requests "$requests" \
		--realtime "${OBJECTIVES_REALTIME:-1}" $(options_of "$kind") >"$work/own" 2>&1 || { cat "$work/own" >&2; failed=1; return; }
	timeout 20 "$belfry" stats --json objective-rider >"$work/server" || { failed=1; return; }
	python3 - "$kind" "$beside" "$round" "$work/own" "$work/server" >>"$work/rows" <<'END'
import json
import sys

kind, beside, number, own, server = sys.argv[1:]
with open(own, encoding="utf-8") as file:
    own = json.load(file)
with open(server, encoding="utf-8") as file:
    server = json.load(file)["vgpus"][0]["latency"]
row = {"kind": kind, "beside": beside, "round": int(number), "realtime": own["realtime"],
       "requests": own["requests"], "samples": server["samples"]}
for which in ("p50", "p99"):
    mine, told = own[which + "_us"] / 1e3, server[which + "_us"] / 1e3
    row |= {which + "_program_ms": mine, which + "_server_ms": told, which + "_percent": 100 * (told / mine - 1)}
print(json.dumps(row))
END
	[ -z "$is_json" ] || tail -n 1 "$work/rows"
}

# The medians of the rounds, as a table; fails where a difference is larger than it may be.
table() {
	python3 - "$work/rows" "${OBJECTIVES_WITHIN:-inf}" "${OBJECTIVES_WITHIN_P99:-inf}" "$is_json" <<'END'
import json
import statistics
import sys

rows, within_p50, within_p99, is_json = sys.argv[1:]
within = {"p50": float(within_p50), "p99": float(within_p99)}
figures = {}
with open(rows, encoding="utf-8") as file:
    for line in file:
        row = json.loads(line)
        figures.setdefault((row["kind"], row["beside"]), []).append(row)
out = sys.stderr if is_json else sys.stdout
print(f"{'':14}{'':10}{'p50, ms':>18}{'':10}{'p99, ms':>18}", file=out)
head = f"{'program':>9}{'server':>9}{'%':>8}  "
print(f"{'program':14}{'beside':10}{head}{head}{'requests':>9}{'samples':>9}", file=out)
too_far = False
for (kind, beside), of in figures.items():
    def median(name):
        return statistics.median(row[name] for row in of)
    text = f"{kind:14}{beside:10}"
    for which in ("p50", "p99"):
        text += f"{median(which + '_program_ms'):9.3f}{median(which + '_server_ms'):9.3f}{median(which + '_percent'):+8.1f}  "
        too_far |= abs(median(which + "_percent")) > within[which]
    too_far |= abs(median("samples") - median("requests")) > 3 + median("requests") / 50
    print(f"{text}{median('requests'):9.0f}{median('samples'):9.0f}", file=out)
sys.exit(too_far)
END
}

for kind in $kinds; do
	options_of "$kind" >/dev/null || exit 2
done
timeout 20 "$belfry" create objective-other --time 30:80 || exit 1
new_rider
per_ms=$(timeout 60 "$belfry" run objective-rider -- "$programs/requests" --calibrate 1) || exit 1
for round in $(seq "$rounds"); do
	for kind in $kinds; do
		row "$kind" nobody "$round"
	done
	[ -z "${OBJECTIVES_ALONE:-}" ] || continue
	start_neighbour
	for kind in $kinds; do
		row "$kind" neighbour "$round"
	done
	end_neighbour
done
table || failed=1
exit "$failed"
