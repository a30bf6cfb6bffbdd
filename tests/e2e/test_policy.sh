#!/bin/bash
# Policies on the software GPU: they are loaded and unloaded while programs run. Their decisions are reported, recorded and
# replayed. A vGPU can have its own policy.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/policy.sh"
record_secs=2
done_least=10
if is_sanitized; then
	record_secs=10
	done_least=0 # so little work says nothing
fi
start_two

# No policy is loaded: the built-in decides.
status 0 "$belfry" policy ls
has_line '^built-in on GPU soft:0' "$work/out" || fail "the built-in is not listed: $(cat "$work/out")"
status 1 "$belfry" policy unload
says 'no policy is loaded' "unload without a policy"
status 1 "$belfry" policy dump
says 'no policy is loaded' "dump without a policy"
[ "$(figure "" gpus.0.policy)" = built-in ] || fail "stats do not name the built-in"

# How busy a vGPU keeps the SMs and the memory bus is measured. The loads compute, and move no memory.
computes() {
	timeout 20 "$belfry" stats --json "$1" | python3 -c '
import json, sys
busy = json.load(sys.stdin)["vgpus"][0]["busy"]
sys.exit(not (busy and 0.05 < busy["sm"] <= 1 and busy["memory"] < 0.5))' 2>/dev/null
}
until_so computes a
until_so computes b

# A policy that is loaded while programs run makes all decisions from then on.
status 0 "$belfry" policy load fair
has_line 'fair decides on GPU soft:0 now, in place of built-in' "$work/out" || fail "load: $(cat "$work/out")"
has_line 'hooks: pick preempt' "$work/out" || fail "load does not tell the hooks: $(cat "$work/out")"
until_so is_so 'p[0]["policy"] == "fair" and h["pick"]["calls"] > 20'
is_so 'not p[0]["out"] and h["pick"]["errors"] == 0 and p[-1]["policy"] == "built-in"' ||
	fail "ls: $(timeout 20 "$belfry" policy ls --json)"
[ "$(figure "" gpus.0.policy)" = fair ] || fail "stats do not name the policy"
go_on a b

# Its decisions are reported by policy trace, explain and trace.
timeout 20 "$belfry" policy trace --for 1s >"$work/out" || fail "policy trace"
has_line ' pick  *fair  *[ab] [0-9.]* ms' "$work/out" || fail "policy trace tells no picks: $(head -5 "$work/out")"
timeout 20 "$belfry" policy trace --for 500ms --json --all >"$work/out" || fail "policy trace --json"
python3 - "$work/out" <<'END' || fail "policy trace --json is not as it should be"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert any(l["hook"] == "pick" and l["policy"] == "fair" and l["got"] in "ab" for l in lines), lines[:3]
assert any(l["policy"] == "built-in" for l in lines), "nothing of the built-in"
END
timeout 20 "$belfry" explain a >"$work/out"
has_line 'Policy fair last decided about it' "$work/out" || fail "explain does not name the policy: $(cat "$work/out")"
timeout 20 "$belfry" explain --json a | grep -q '"gpu": *"fair"' || fail "explain --json does not name the policy"
status 0 "$belfry" trace -o "$work/trace"
python3 - "$work/trace" <<'END' || fail "the trace tells no decisions"
import json, sys
events = [e for e in json.load(open(sys.argv[1]))["traceEvents"] if e["name"].startswith("fair pick ")]
assert len(events) > 10 and all(e["ph"] == "i" and e["args"]["got"] for e in events), len(events)
END

# A record, replayed with other policies.
status 0 "$belfry" policy record -o "$work/record" --for 1s
has_line '[1-9][0-9]* decisions' "$work/out" || fail "record: $(cat "$work/out")"
status 1 "$belfry" policy record -o "$work/record" --for 1s
says 'cannot be made' "a record over another"
status 0 "$belfry" policy replay "$work/record" --with built-in
status 0 "$belfry" policy replay "$work/record" --with latency_first --json --most 3
python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); assert r["asked"] > 0 and len(r["vgpus"]) == 2 and {v["name"] for v in r["vgpus"]} == {"a", "b"}, r' "$work/out" ||
	fail "replay: $(cat "$work/out")"

# The recorded work, played: two vGPUs that are always busy, and one that is not.
status 0 "$belfry" create now_and_then --class latency --objective p99=20ms --time 10
start_load now_and_then --kernel-us 1000 --sync --gap-us 5000
until_ready now_and_then
status 0 "$belfry" policy record -o "$work/work" --for "${record_secs}s"
stop_loads now_and_then
status 0 "$belfry" rm now_and_then
status 0 "$belfry" policy replay "$work/work" --with latency_first --against fair --json
python3 - "$work/out" "$done_least" <<'END' || fail "the work of a record is not played: $(cat "$work/out")"
import json, sys
play = json.load(open(sys.argv[1]))["play"]
vgpus = {v["name"]: v for v in play["vgpus"]}
assert set(vgpus) == {"a", "b", "now_and_then"}, vgpus.keys()
assert play["recorded_under"] == "fair" and play["agreement"]["same_policy"]
assert play["baseline"]["policy"] == "fair" and play["with"]["policy"] == "latency_first"
assert play["ns"] > 1.5e9 and not play["baseline"]["cut_off"] and play["with"]["why"] is None
least = int(sys.argv[2])
for name, v in vgpus.items() if least else ():
    for how in "recorded", "baseline", "with":
        assert v[how]["gpu_ns"] > 0 and 0 < v[how]["share"] <= 1.05, (name, how, v[how])
    assert v["with"]["longest_wait_ns"] > 0 and "longest_wait_ns" not in v["recorded"]
for how in ("recorded", "baseline", "with") if least else ():
    c = vgpus["now_and_then"][how]
    assert c["done"] >= least and 0 < c["p50_ns"] <= c["tail_ns"], (how, c)
    assert vgpus["a"][how]["slices"] + vgpus["b"][how]["slices"] > 2
# A busy machine is no GPU: what is recorded there is not as regular as what is played.
print("played and recorded differ by", play["agreement"])
assert play["agreement"]["share_points"] < 40 or not least
END
status 0 "$belfry" policy replay "$work/work" --with built-in
has_line '^now_and_then  *(recorded)' "$work/out" || fail "the play is not told: $(cat "$work/out")"
has_line 'They are not the same policy: --against fair' "$work/out" ||
	fail "nobody says what to compare with: $(cat "$work/out"; grep 'is out' "$work/log")"
status 1 "$belfry" policy replay "$work/work" --with built-in --against no_such_policy
head -c 3000 "$work/work" >"$work/cut_off"
status 0 "$belfry" policy replay "$work/cut_off" --with built-in
says 'the last entry is cut off: what comes before is used' "a record that is cut off"
{ printf 'BELFRYR1'; head -c 100 /dev/zero; } >"$work/older"
status 1 "$belfry" policy replay "$work/older" --with built-in
says 'the record is from another release' "an older record"

# In the foreground timeout passes the signal on alone. Otherwise it sends SIGCONT as well, which can undo the stop that a leak
# sanitizer waits for.
timeout --foreground 20 "$belfry" policy record -o "$work/interrupted" >"$work/out" 2>&1 &
recorder=$!
until_so test -s "$work/interrupted"
kill -INT "$recorder"
wait "$recorder" || fail "a record that was interrupted does not end well: $(cat "$work/out")"

# A policy replaces another. Tunables. A policy of one vGPU. Changes are reported.
status 0 "$belfry" policy load latency_first
has_line 'in place of fair' "$work/out" || fail "the next policy: $(cat "$work/out")"
status 0 "$belfry" policy load "$objects/least.bpf.o" --set slice_us=100
until_so is_so 'h["pick"]["clamped"] > 10'
timeout 20 "$belfry" policy trace --for 500ms >"$work/out"
has_line 'proposed: [ab] 0.1 ms; clamped: slice' "$work/out" || fail "what was clamped is not told: $(head -3 "$work/out")"
timeout 20 "$belfry" explain b >"$work/out"
has_line 'the slice was too short' "$work/out" || fail "explain does not tell what was clamped: $(cat "$work/out")"
status 0 "$belfry" policy load "$objects/leaves_open.bpf.o" --set units=3
told_units() { timeout 20 "$belfry" explain b >"$work/out" && has_line 'such units, or such a vGPU beside it' "$work/out"; }
if [ "$done_least" -gt 0 ]; then # where promises are not all there is to decide by
	until_so told_units
	has_line 'had proposed' "$work/out" && fail "explain tells of proposals that were not made: $(cat "$work/out")"
fi
status 0 "$belfry" policy load "$objects/least.bpf.o" --set slice_us=100
status 1 "$belfry" policy load "$objects/least.bpf.o" --set no_such=1
says 'no_such' "a tunable that is not there"
is_so 'p[0]["tunables"] == {"slice_us": 100, "offset": -3, "is_strict": 1, "large": 2**64 - 1, "mode": 1, "deep": -1}' ||
	fail "tunables as they were set: $(of_policy 'p[0].get("tunables")')"
status 0 "$belfry" policy load fair --vgpu a
has_line 'fair decides about a now, in place of least' "$work/out" || fail "who decided about a vGPU: $(cat "$work/out")"
[ "$(figure a policy)" = fair ] && [ "$(figure "" gpus.0.policy)" = least ] || fail "a vGPU's own policy"
until_so is_so 'any(q["vgpu"] == "a" and q["hooks"][0]["calls"] > 5 for q in p)'
is_so '[q["unasked"] for q in p[:2]] == [[], ["preempt"]]' ||
	fail "the hooks that are not asked: $(of_policy '[q.get("unasked") for q in p]')"
timeout 20 "$belfry" policy ls --vgpu a --json >"$work/out"
python3 - "$work/out" <<'END' || fail "ls --vgpu: $(cat "$work/out")"
import json, sys
top = json.load(open(sys.argv[1]))[0]
assert [p["policy"] for p in top["policies"]] == ["fair", "least", "built-in"] and top["decides"] == "fair", top
END
status 0 "$belfry" policy unload --vgpu a
has_line 'fair was unloaded; least decides now' "$work/out" || fail "who decides about a vGPU now: $(cat "$work/out")"
status 1 "$belfry" policy unload --vgpu a
says 'a: no policy is loaded for it alone; least decides' "a vGPU without a policy of its own"
status 1 "$belfry" policy dump --vgpu a
says 'a: no policy is loaded for it alone; least decides' "what a policy that is not there says of itself"
status 1 "$belfry" policy load "$objects/between.bpf.o" --vgpu a
says "it has no hook that a vGPU's own policy is asked at: init, exit, dump" "a policy that would never be asked"
# When the policy of a vGPU is disabled, the policy of the GPU decides, not the built-in.
status 0 "$belfry" policy load "$objects/errs_later.bpf.o" --vgpu a
own_is_out() { is_so 'any(q["vgpu"] == "a" and q["out"] for q in p)'; }
until_so own_is_out
until_so grep -q 'policy errs_later of a is out: .*; least decides' "$work/log"
is_figure a policy least || fail "who decides in place of one that is out: $(figure a policy)"
timeout 20 "$belfry" explain a >"$work/out"
has_line 'Policy errs_later, its own, is out, .*; least decides' "$work/out" || fail "explain of one that is out: $(cat "$work/out")"
status 0 "$belfry" policy unload --vgpu a
status 1 "$belfry" policy load fair --vgpu nobody
says 'no vGPU of this name' "a policy for nobody"
status 0 "$belfry" policy unload
has_line 'least was unloaded; the built-in decides' "$work/out" || fail "unload: $(cat "$work/out")"
# Decisions of unloaded policies are not reported any more.
timeout 20 "$belfry" explain a >"$work/out"
has_line 'Policy' "$work/out" && fail "explain speaks of policies that are gone: $(cat "$work/out")"
timeout 20 "$belfry" explain --json a >"$work/out"
python3 - "$work/out" <<'END' || fail "explain --json speaks of policies that are gone: $(cat "$work/out")"
import json, sys
def find(at):
    if isinstance(at, dict):
        return at["policy"] if "policy" in at and "last_clamped" in at["policy"] else next(filter(None, map(find, at.values())), None)
told = find(json.load(open(sys.argv[1])))
assert told["last"] is None and told["last_clamped"] is None and told["decisions"] == 0, told
END
# The largest numbers are reported exactly. Bytes that are no text are replaced.
status 0 "$belfry" policy load "$objects/extreme.bpf.o"
is_so 'p[0]["tunables"] == {"most": 2**64 - 1}' || fail "the largest tunable: $(of_policy 'p[0]["tunables"]')"
timeout 20 "$belfry" policy dump --json >"$work/out"
python3 -c 'import json, sys; t = json.loads(open(sys.argv[1], "rb").read().decode())["text"]; assert t == "a??\u00e4\n?", repr(t)' "$work/out" ||
	fail "a dump that is no text: $(cat "$work/out")"
told_most() { timeout 20 "$belfry" explain --json "$1" | grep -qE '"(got|proposed)": *18446744073709551615\b'; }
until_so is_so 'h["enqueue"]["calls"] > 0'
until_so told_most a
status 0 "$belfry" policy unload
go_on a b
stop_loads a b
end_daemon
exit "$failed"
