#!/usr/bin/env python3
"""shares.py BELFRY NAME=PERCENT...: whether these vGPUs, which all have work, share the GPU's time like this, within 2 points.

The figures are those of the GPU server. A busy host leaves a program without time to submit work, and the others then use
its share. So a window of a second counts if each vGPU had work in all of it: it held the GPU or waited for it. The shares are
compared after 5, 10 and 20 seconds of such GPU time, because a turn that crosses the end of a window counts less in a long
time. If 60 windows do not have 5 seconds, the shares of all windows are compared, within 10 points."""
import json
import subprocess
import sys
import time

LENGTHS_NS, WINDOWS, HAD_WORK = [5e9, 10e9, 20e9], 60, 0.95
belfry, wanted = sys.argv[1], {name: float(part) for name, part in (word.rsplit("=", 1) for word in sys.argv[2:])}


def read():
    report = json.loads(subprocess.run([belfry, "stats", "--json"], stdout=subprocess.PIPE, check=True, timeout=60).stdout)
    times = {vgpu["name"]: vgpu["time"] for vgpu in report["vgpus"]}
    return report["gpus"][0]["now_ns"], {name: times[name] for name in wanted}


def used(before, after, *figures):
    return {name: sum(after[name][figure] - before[name][figure] for figure in figures) for name in wanted}


def part(ns):
    return {name: 100 * ns[name] / max(sum(ns.values()), 1) for name in wanted}


def is_within(got, points):
    return all(abs(got[name] - wanted[name]) <= points for name in wanted)


def say(what, got, points):
    shares = ", ".join(f"{name} {got[name]:.1f} % (wanted {wanted[name]:g})" for name in wanted)
    print(f"{what}: {shares}; {points} points are allowed")


now_ns, now = read()
start, counted, lengths, is_kept = now, dict.fromkeys(wanted, 0), list(LENGTHS_NS), False
for _ in range(WINDOWS):
    time.sleep(1)  # the length of a window, not a wait for an event
    before_ns, before = now_ns, now
    now_ns, now = read()
    if min(used(before, now, "held_ns", "waited_ns").values()) < HAD_WORK * (now_ns - before_ns):
        continue
    gpu = used(before, now, "gpu_ns")
    counted = {name: counted[name] + gpu[name] for name in wanted}
    if sum(counted.values()) < lengths[0]:
        continue
    say(f"{sum(counted.values()) / 1e9:.1f} s", part(counted), 2)
    is_kept = is_within(part(counted), 2)
    del lengths[0]
    if is_kept or not lengths:
        break
if len(lengths) == len(LENGTHS_NS):
    got = part(used(start, now, "gpu_ns"))
    say("the host is too busy for 2 points", got, 10)
    is_kept = is_within(got, 10)
sys.exit(not is_kept)
