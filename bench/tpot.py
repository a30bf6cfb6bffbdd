# SPDX-License-Identifier: MIT
"""What PyTorch does in tpot.sh, one role a process; a line of JSON for each segment.

  serve   a decode server: requests arrive as a schedule says, each wants some tokens; a step (the decode graph of pair.py)
          makes one token for each request that is there, then the host has something to do for --gap-ms. A token is late
          if its step took longer than the objective. The schedule does not depend on how fast it is served.
  train   GEMMs of 8192^3: TFLOP/s

A segment begins when the file --start with its number (.0, .1 ...) is there: what changes between two is outside.
"""
import argparse
import csv
import datetime
import json
import os
import random
import sys
import time

from pair import GEMM, ROWS, decode_graph, matrix, same_bits, torch


def schedule(options):
    """(when, tokens), in order: of the trace, squeezed into the segment, or Poisson arrivals at a rate that goes up and
    down, with lengths like a conversation's."""
    chance = random.Random(options.seed)
    if options.trace:
        with open(options.trace, encoding="ascii", newline="") as file:
            rows = list(csv.DictReader(file))
        wanted = max(1, int(options.secs * (options.low + options.high) / 2))
        first = chance.randrange(max(1, len(rows) - wanted))
        rows = rows[first:first + wanted]
        times = [datetime.datetime.fromisoformat(r["TIMESTAMP"][:26]).timestamp() for r in rows]
        span = max(1e-9, times[-1] - times[0])
        return [((t - times[0]) / span * options.secs, max(1, int(r["GeneratedTokens"])))
                for t, r in zip(times, rows)]
    requests, now = [], 0.0
    while True:
        phase = (now / options.period + options.shift) % 1
        now += chance.expovariate(options.high if phase < 0.5 else options.low)
        if now >= options.secs:
            return requests
        requests.append((now, 1 + int(chance.expovariate(1 / options.tokens))))


def wait_for(path):
    limit = time.monotonic() + 300
    while not os.path.exists(path):
        if time.monotonic() > limit:
            sys.exit(f"tpot.py: {path}: not there after 300 s")
        time.sleep(0.001)


def percentile(values, part):
    values = sorted(values)
    return round(values[min(len(values) - 1, int(len(values) * part))], 4) if values else 0


def serve_segment(options, graph, requests):
    took, left, at, late_tokens, tokens = [], [], 0, 0, 0
    chance = random.Random(options.seed)
    begin = time.perf_counter()
    while at < len(requests) or left:
        now = time.perf_counter() - begin
        while at < len(requests) and requests[at][0] <= now and len(left) < ROWS:
            left.append(requests[at][1])
            at += 1
        if not left:
            time.sleep(max(0.0, min(0.001, requests[at][0] - now)))
            continue
        if now > options.secs:  # the training has ended, too
            break
        before = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        ms = (time.perf_counter() - before) * 1e3
        took.append(ms)
        tokens += len(left)
        late_tokens += len(left) if ms > options.objective_ms else 0
        left = [n - 1 for n in left if n > 1]
        time.sleep(chance.uniform(0.25, 1.75) * options.gap_ms / 1e3)  # or two servers fall into step
    return {"role": "serve", "name": options.name, "requests": len(requests), "unserved": len(requests) - at + len(left),
            "tokens": tokens, "late_tokens": late_tokens, "steps": len(took),
            "late_steps": sum(ms > options.objective_ms for ms in took), "p50_ms": percentile(took, 0.5),
            "p99_ms": percentile(took, 0.99), "max_ms": percentile(took, 1)}


def serve(options):
    graph, result, operands = decode_graph()
    for _ in range(50):
        graph.replay()
    torch.cuda.synchronize()
    expected = result.clone()
    requests = schedule(options)

    def segment():
        said = serve_segment(options, graph, requests)
        said["wrong"] = 0 if same_bits(result, expected) else 1
        return said

    segment.operands = operands
    return segment


def train(options):
    a, b = matrix(GEMM, GEMM), matrix(GEMM, GEMM)
    c = torch.empty_like(a)
    for _ in range(200):
        torch.mm(a, b, out=c)
    torch.cuda.synchronize()
    expected = c.clone()

    def segment():
        events, done, begin = [], 0, time.perf_counter()
        while time.perf_counter() - begin < options.secs:
            torch.mm(a, b, out=c)
            event = torch.cuda.Event()
            event.record()
            events.append(event)
            if len(events) >= 8:
                events.pop(0).synchronize()
                done += 1
        secs = time.perf_counter() - begin
        torch.cuda.synchronize()
        return {"role": "train", "name": options.name, "tflops": round(done * 2 * GEMM**3 / secs / 1e12, 2),
                "wrong": 0 if same_bits(c, expected) else 1}

    return segment


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=("serve", "train"))
    parser.add_argument("--name", default="")
    parser.add_argument("--secs", type=float, default=8, help="of a segment")
    parser.add_argument("--segments", type=int, default=1)
    parser.add_argument("--objective-ms", type=float, default=2)
    parser.add_argument("--gap-ms", type=float, default=1, help="serve: after each step, on average")
    parser.add_argument("--high", type=float, default=20, help="serve: requests a second in the first half of a period")
    parser.add_argument("--low", type=float, default=3, help="serve: in the second half")
    parser.add_argument("--period", type=float, default=4, help="serve: seconds")
    parser.add_argument("--shift", type=float, default=0, help="serve: where in the period it begins, 0 to 1")
    parser.add_argument("--tokens", type=float, default=60, help="serve: that a request wants on average")
    parser.add_argument("--trace", help="serve: arrivals and lengths of this file (Azure's LLM inference traces)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ready", required=True, help="a file to make once it could start")
    parser.add_argument("--start", required=True, help="begin segment N when this file with .N exists")
    options = parser.parse_args()
    torch.manual_seed(0)
    segment = {"serve": serve, "train": train}[options.role](options)
    wrong = 0
    with open(options.ready, "w", encoding="ascii"):
        pass
    for number in range(options.segments):
        wait_for(f"{options.start}.{number}")
        said = {"segment": number, **segment()}
        wrong |= said["wrong"]
        print(json.dumps(said, separators=(",", ":")), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
