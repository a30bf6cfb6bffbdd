#!/bin/bash
# How vGPUs share the time of the software GPU: shares, limits, unused time, changes while programs run, latency beside
# throughput, which vGPU waits for which, and requests that are refused. Shares are measured in GPU time as the GPU server
# accounts it. A busy host leaves the GPU idle between launches, so only upper bounds are relative to wall-clock time.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2034,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
! is_sanitized || skip 'with a sanitizer the software GPU is too slow for shares to mean anything'
export BELFRY_SOFT="mem=1G,linger=1,name=sharing$$"
load_scale=(--calibration "$work/calibration")

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

report() { timeout 20 "$belfry" stats --json >"$1" || fail "no report"; }

# measure SECONDS: report before and after.
measure() {
	report "$work/before"
	sleep "$1"
	report "$work/after"
}

# had FIGURE OF NAME=LEAST:MOST...: what each vGPU has had of that figure (gpu_ns, waited_ns) between the reports, in percent
# of what all vGPUs have had of it (all) or of the wall-clock time (time).
had() {
	python3 - "$work/before" "$work/after" "$@" <<'END' || fail "shares are not as they should be: $*"
import json, sys
before, after = (json.load(open(path)) for path in sys.argv[1:3])
figure, of, wanted = sys.argv[3], sys.argv[4], dict(word.split("=") for word in sys.argv[5:])
ns = lambda report: {v["name"]: v["time"][figure] for v in report["vgpus"]}
got = {name: ns(after)[name] - ns(before)[name] for name in ns(after)}
whole = sum(got.values()) if of == "all" else after["gpus"][0]["now_ns"] - before["gpus"][0]["now_ns"]
parts = {name: 100 * ns / max(whole, 1) for name, ns in got.items()}
print(figure, "of", of, {name: round(part, 1) for name, part in parts.items()}, "wanted", wanted)
is_within = lambda part, least, most: float(least) <= part <= float(most)
sys.exit(not all(is_within(parts[name], *bounds.split(":")) for name, bounds in wanted.items()))
END
}

# shows NAME LEAST MOST: the share of the last window, in percent.
shows() { awk -v got="$(figure "$1" time.share)" -v least="$2" -v most="$3" 'BEGIN { exit !(got * 100 >= least && got * 100 <= most) }'; }

status 0 "$belfry" soft run -- "$load" --calibrate "$work/calibration"

# What cannot be promised is refused, with the arithmetic, and nothing is left of it.
vgpus a=60 b=30.5
status 1 "$belfry" create c --time 10
says 'a requested share of 10 % of the GPU'"'"'s time does not fit: other vGPUs have requested 90.5 %, 9.5 % are left' "too much time"
status 1 "$belfry" run --time 10 -- true
says 'does not fit: other vGPUs have requested' "too much time for a run"
status 1 "$belfry" set b --time 41
says 'other vGPUs have requested 60 %, 40 % are left' "too much time by set"
[ "$(figure b time.request)" = 0.305 ] || fail "a change that was refused is made"
status 1 "$belfry" create c --mem 2G
says 'larger than the GPU, which has 1 GiB' "more memory than the card has"
status 0 "$belfry" set a --mem 600M
status 1 "$belfry" create c --mem 500M
says '600 MiB are reserved for other vGPUs, 424 MiB are left' "more memory than is left"
status 1 "$belfry" run --mem 500M -- true
says '424 MiB are left' "more memory than is left for a run"
is_not_there c || fail "what was refused is there"
timeout 60 "$belfry" run a -- "$BELFRY_BUILD_DIR/tests/gpu/gpu_exact" --limit $((600 << 20)) >"$work/exact" 2>&1 ||
	fail "a limit set before the program: $(cat "$work/exact")"
remove a b

# Two and three busy programs get the shares that they were promised, within 3 points.
vgpus a=25 b=75
start_load a
start_load b
until_ready a b
until_so shows a 17 33
measure 4
had gpu_ns all a=22:28 b=72:78
# Meanwhile: which vGPU waits for which, as text and as JSON, and the trace.
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
# A vGPU is stopped after the other one got the token, so that the GPU is not idle in between.
spans = lambda what, name: [(e["ts"], e["ts"] + e["dur"]) for e in events
                            if e["ph"] == "X" and e["name"] == what and e["pid"] == tracks[name]]
stops = overlaps = 0
for name, other in ("a", "b"), ("b", "a"):
    tokens = spans("token", other)
    for at, _ in spans("stopped", name):
        stops += 1
        overlaps += any(start <= at <= end for start, end in tokens)
print("of", stops, "stops,", overlaps, "with the token handed over")
assert stops > 10 and overlaps > 0.8 * stops
END
# Memory below what is in use is refused; the program does not notice.
status 1 "$belfry" set a --mem 1M
says 'in use' "memory below what is in use"
# New shares while they run. A window of the share is one second of wall-clock time.
report "$work/before"
status 0 "$belfry" set b --time 30
status 0 "$belfry" set a --time 70
until_so shows a 65 75
report "$work/after"
python3 - "$work/before" "$work/after" <<'END' || fail "the new share took too long"
import json, sys
before, after = (sum(v["time"]["gpu_ns"] for v in json.load(open(path))["vgpus"]) for path in sys.argv[1:])
print(f"the new share was there after {(after - before) / 1e9:.1f} s of GPU time")
sys.exit(after - before > 4e9)
END
measure 3
had gpu_ns all a=67:73 b=27:33
# Unused time goes to the other vGPU: it never waits.
stop_loads a
until_so shows a 0 2
measure 2
had waited_ns time b=0:3
had gpu_ns time b=60:101
stop_loads b
remove a b

vgpus a=10 b=30 c=60
start_load a
start_load b --kernel-us 10000
start_load c
until_ready a b c
until_so shows a 4 16
measure 4
had gpu_ns all a=7:13 b=27:33 c=57:63
stop_loads a b c
remove a b c

# A limit holds also when no other vGPU has work.
vgpus half=10:50
start_load half
until_ready half
until_so shows half 40 60
measure 3
had gpu_ns time half=30:53
timeout 20 "$belfry" explain half >"$work/out"
has_line 'for its limit' "$work/out" || fail "explain does not tell of the limit: $(cat "$work/out")"
stop_loads half
remove half

# Latency beside throughput: the latency vGPU rides, so its submissions do not wait for the slice of the other.
status 0 "$belfry" create fast --time 20 --class latency --objective p99=50ms
vgpus slow=50
start_load slow --kernel-us 30000
until_ready slow
start_load fast --kernel-us 500 --sync --gap-us 20000
until_ready fast
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
stop_loads fast slow
remove fast slow

# The latency of a submission counts from the doorbell, so it includes the wait for the limit of its own vGPU.
status 0 "$belfry" create capped --time 5:10 --class latency
start_load capped --kernel-us 2000 --sync --gap-us 5000
until_ready capped
waits_count() { [ "$(figure capped latency.p99_us | cut -d. -f1)" -gt 20000 ] 2>/dev/null; }
until_so waits_count
stop_loads capped
remove capped
exit "$failed"
