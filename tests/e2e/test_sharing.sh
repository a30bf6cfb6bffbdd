#!/bin/bash
# How vGPUs share the time of the software GPU, by its own count: shares, limits, what is left over, changes while
# programs run, latency beside throughput, who waits for whom; and what is refused.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="mem=1G,linger=1,name=sharing$$"
load="$BELFRY_BUILD_DIR/bench/load"
if grep -qE '__(asan|tsan)_init' "$belfry"; then
	echo 'skipped: with a sanitizer the software GPU is too slow for shares of it to mean anything'
	exit 77
fi
slack=${SLACK:-0} # points more, for a machine that is busy with other things

vgpus() {
	local one
	for one; do
		status 0 "$belfry" create "${one%%=*}" --time "${one#*=}"
	done
}
remove() {
	local name
	for name; do
		status 0 "$belfry" rm --force "$name"
	done
}

# start NAME [OPTION...]: a load on that vGPU until `stop NAME`.
declare -A loads
start() {
	local name=$1
	shift
	rm -f "$work/$name".{ready,stop}
	timeout 100 "$belfry" run "$name" -- "$load" --calibration "$work/calibration" --kernel-us 3000 "$@" --secs 90 \
		--ready "$work/$name.ready" --until "$work/$name.stop" --json >"$work/$name.json" 2>"$work/$name.err" &
	loads[$name]=$!
}
are_ready() {
	local name
	for name; do
		[ -e "$work/$name.ready" ] || return 1
	done
}
# stop NAME...: they end well, with the right result.
stop() {
	local name
	for name; do
		: >"$work/$name.stop"
	done
	for name; do
		wait "${loads[$name]}" && has_line '"wrong":0,' "$work/$name.json" ||
			fail "the load on $name: $(cat "$work/$name.err")"
	done
}

report() { timeout 20 "$belfry" stats --json >"$1" || fail "no report"; }

# measure SECONDS: what everybody had in that time.
measure() {
	report "$work/before"
	sleep "$1"
	report "$work/after"
}

# had OF WITHIN NAME=PERCENT...: of what all together had, or of the time that went by, in that time.
had() {
	python3 - "$work/before" "$work/after" "$1" "$slack" "${@:2}" <<'END' || fail "shares are not as they should be"
import json, sys
before, after = (json.load(open(path)) for path in sys.argv[1:3])
of, within, wanted = sys.argv[3], float(sys.argv[4]) + float(sys.argv[5]), dict(word.split("=") for word in sys.argv[6:])
ns = lambda report: {v["name"]: v["time"]["gpu_ns"] for v in report["vgpus"]}
got = {name: ns(after)[name] - ns(before)[name] for name in ns(after)}
whole = sum(got.values()) if of == "all" else after["gpus"][0]["now_ns"] - before["gpus"][0]["now_ns"]
parts = {name: 100 * ns / max(whole, 1) for name, ns in got.items()}
print("of the", of, {name: round(part, 1) for name, part in parts.items()}, "wanted", wanted)
sys.exit(not all(abs(parts[name] - float(part)) <= within for name, part in wanted.items()))
END
}

# shows NAME PERCENT WITHIN: the share of the last window.
shows() { awk -v got="$(figure "$1" time.share)" -v part="$2" -v within="$(($3 + slack))" 'BEGIN { exit !(got * 100 >= part - within && got * 100 <= part + within) }'; }

status 0 "$belfry" soft run -- "$load" --calibrate "$work/calibration"

# What cannot be promised is refused, with the arithmetic, and nothing is left of it.
vgpus a=60 b=30.5
status 1 "$belfry" create c --time 10
says '10 % of the GPU'"'"'s time cannot be promised: 90.5 % are promised to others, 9.5 % are left' "too much time"
status 1 "$belfry" run --time 10 -- true
says 'cannot be promised' "too much time for a run"
status 1 "$belfry" set b --time 41
says '60 % are promised to others, 40 % are left' "too much time by set"
[ "$(figure b time.request)" = 0.305 ] || fail "a change that was refused is made"
status 1 "$belfry" create c --mem 2G
says 'larger than the GPU, which has 1 GiB' "more memory than the card has"
status 0 "$belfry" set a --mem 600M
status 1 "$belfry" create c --mem 500M
says '600 MiB are set aside for others, 424 MiB are left' "more memory than is left"
status 1 "$belfry" run --mem 500M -- true
says '424 MiB are left' "more memory than is left for a run"
is_not_there c || fail "what was refused is there"
timeout 60 "$belfry" run a -- "$BELFRY_BUILD_DIR/tests/gpu/gpu_exact" --limit $((600 << 20)) >"$work/exact" 2>&1 ||
	fail "a limit set before the program: $(cat "$work/exact")"
remove a b

# Two and three busy programs have what they were promised, within 3 points.
vgpus a=25 b=75
start a
start b
until_so are_ready a b
until_so shows a 25 8
measure 6
had all 3 a=25 b=75
# Meanwhile: who waits for whom, in words and numbers, and what happened, as a trace.
until_so is_figure a state waiting
timeout 20 "$belfry" explain a >"$work/out"
has_line 'for b' "$work/out" || fail "explain does not say for whom: $(cat "$work/out")"
[ "$(figure a waits.0.for)" = b ] || fail "stats do not say for whom"
status 0 "$belfry" trace -o "$work/trace"
python3 - "$work/trace" <<'END' || fail "the trace is not as it should be"
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
# The latest of each name: there were others before.
tracks = {e["args"]["name"]: e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
for name in "a", "b":
    tokens = sorted((e["ts"], e["dur"]) for e in events
                    if e["ph"] == "X" and e["name"] == "token" and e["pid"] == tracks[name])
    assert len(tokens) > 10, (name, len(tokens))
    assert all(dur >= 0 for _, dur in tokens)
    for one, next in zip(tokens, tokens[1:]):
        assert one[0] + one[1] <= next[0] + 1, (name, one, next)
END
# Memory below what is in use is refused; the program does not notice.
status 1 "$belfry" set a --mem 1M
says 'in use' "memory below what is in use"
# New shares, while they run. They are told of the last second.
status 0 "$belfry" set b --time 30
status 0 "$belfry" set a --time 70
changed=$(date +%s%N)
until_so shows a 70 5
took=$((($(date +%s%N) - changed) / 1000000))
echo "the new share was there after $took ms"
[ "$took" -le $((2500 + 1000 * slack)) ] || fail "the new share took $took ms"
measure 3
had all 3 a=70 b=30
# Unused time goes to the other.
stop a
until_so shows a 0 2
measure 2
had time 6 b=100
stop b
remove a b

vgpus a=10 b=30 c=60
start a
start b --kernel-us 10000
start c
until_so are_ready a b c
until_so shows a 10 6
measure 6
had all 3 a=10 b=30 c=60
stop a b c
remove a b c

# A limit holds also when nobody else wants the GPU.
vgpus half=10:50
start half
until_so are_ready half
until_so shows half 50 10
measure 4
had time 3 half=50
timeout 20 "$belfry" explain half >"$work/out"
has_line 'for its limit' "$work/out" || fail "explain does not tell of the limit: $(cat "$work/out")"
stop half
remove half

# Latency beside throughput: it rides, and what it submits does not wait for the other's slice.
status 0 "$belfry" create fast --time 20 --class latency --objective p99=50ms
vgpus slow=50
start slow --kernel-us 30000
until_so are_ready slow
start fast --kernel-us 500 --sync --gap-us 20000
until_so are_ready fast
until_so is_figure fast rides True
measure 3
[ "$(figure fast rides)" = True ] || fail "a latency vGPU does not ride"
timeout 20 "$belfry" explain fast >"$work/out"
has_line 'it rides' "$work/out" || fail "explain does not say that it rides: $(cat "$work/out")"
python3 - "$work/before" "$work/after" <<'END' || fail "a latency vGPU waits"
import json, sys
one, other = (next(v for v in json.load(open(path))["vgpus"] if v["name"] == "fast") for path in sys.argv[1:])
waited, latency = other["time"]["waited_ns"] - one["time"]["waited_ns"], other["latency"]
print("latency: waited", waited / 1e6, "ms of 3 s,", latency)
# With tokens it would wait for most of the time.
sys.exit(not (waited < 0.3e9 and latency["samples"] > 20 and latency["p50_us"] < 20000))
END
stop fast slow
remove fast slow

# How long a submission took counts from the bell: what waits for its vGPU's own limit took longer than its kernel.
status 0 "$belfry" create capped --time 5:10 --class latency
start capped --kernel-us 2000 --sync --gap-us 5000
until_so are_ready capped
waits_count() { [ "$(figure capped latency.p99_us | cut -d. -f1)" -gt 20000 ] 2>/dev/null; }
until_so waits_count
stop capped
remove capped
exit "$failed"
