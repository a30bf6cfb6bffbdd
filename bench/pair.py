# SPDX-License-Identifier: MIT
"""What PyTorch does in pair.sh, space.sh, beside.sh, shares.sh and limit.sh, one role a process; prints one line of JSON.

  decode  a step of 32 layers of 4096x4096 as a CUDA graph, with 2 ms of sleep between: how long steps take, and how
          many there are a second
  gemm    8192^3 in bf16, again and again: TFLOP/s
  sizes   bf16 GEMMs of 512 to 8192 at random, so that each size takes as much of the time: work in ms of the
          GPU's time when alone, as bench/load tells it
"""
import argparse
import collections
import json
import os
import random
import sys
import time

try:
    import torch
except ImportError:
    print("skipped: no PyTorch")
    sys.exit(77)

SIZES = (512, 1024, 2048, 4096, 8192)
ROWS = 8
GEMM = 8192
BATCH_MS = 0.5  # about as much is waited for at once
IN_FLIGHT_MS = 20


def matrix(rows, columns, zeros=False):
    make = torch.zeros if zeros else torch.randn
    return make(rows, columns, device="cuda", dtype=torch.bfloat16)


def same_bits(one, other):
    """Also where the values are not numbers."""
    return torch.equal(one.view(torch.int16), other.view(torch.int16))


def barrier(options):
    """Both measure at the same time: say that we could start, then wait for the word."""
    torch.cuda.synchronize()
    if options.ready:
        with open(options.ready, "w", encoding="ascii"):
            pass
    limit = time.monotonic() + 300
    while options.start and not os.path.exists(options.start):
        if time.monotonic() > limit:
            sys.exit(f"pair.py: {options.start}: not there after 300 s")
        time.sleep(0.001)


def decode_graph(layers=32, width=4096):
    weights = [matrix(width, width) for _ in range(layers)]
    x = matrix(ROWS, width)

    def step():
        y = x
        for w in weights:
            y = torch.nn.functional.silu(y @ w) * 0.02
        return y

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        result = step()
    return graph, result, [x, *weights]  # the graph reads them where they are


def decode(options):
    """A step, then 2 ms of sleep, and so on."""
    graph, result, operands = decode_graph(options.layers, options.width)
    for _ in range(50):
        graph.replay()
    torch.cuda.synchronize()
    expected = result.clone()
    barrier(options)
    took_ms = []
    chance = random.Random(options.seed)
    first = begin = time.perf_counter()
    while begin - first < options.secs:
        graph.replay()
        torch.cuda.synchronize()
        took_ms.append((time.perf_counter() - begin) * 1e3)
        if options.slow_ms and took_ms[-1] > options.slow_ms:
            print(f"slow {begin:.6f} {took_ms[-1]:.3f}", file=sys.stderr)
        if options.every_ms:
            time.sleep((chance.expovariate(1 / options.every_ms) if options.at_random else options.every_ms) / 1e3)
        begin = time.perf_counter()
    secs = begin - first
    wrong = 0 if same_bits(result, expected) else 1
    del operands
    took_ms.sort()

    def percentile(part):
        return round(took_ms[min(len(took_ms) - 1, int(len(took_ms) * part))], 4)

    return {"role": "decode", "steps": len(took_ms), "steps_s": round(len(took_ms) / secs, 1), "p50_ms": percentile(0.5), "p99_ms": percentile(0.99),
            "p999_ms": percentile(0.999), "max_ms": round(took_ms[-1], 4), "wrong": wrong}


def gemm(options):
    a, b = matrix(GEMM, GEMM), matrix(GEMM, GEMM)
    c = torch.empty_like(a)
    for _ in range(300):  # the clocks settle under load
        torch.mm(a, b, out=c)
    torch.cuda.synchronize()
    expected = c.clone()
    barrier(options)
    begin = time.perf_counter()
    done = 0
    events = collections.deque()
    while time.perf_counter() - begin < options.secs:
        torch.mm(a, b, out=c)
        event = torch.cuda.Event()
        event.record()
        events.append(event)
        if len(events) >= 8:
            events.popleft().synchronize()
            done += 1
    secs = time.perf_counter() - begin
    torch.cuda.synchronize()
    return {"role": "gemm", "tflops": round(done * 2 * GEMM**3 / secs / 1e12, 2), "secs": round(secs, 3),
            "wrong": 0 if same_bits(c, expected) else 1}


class Sizes:
    """GEMMs of every size, and how long they take alone."""

    def __init__(self, zeros):
        self.operands = {}
        for n in SIZES:
            a, b = matrix(n, n, zeros), matrix(n, n, zeros)
            self.operands[n] = (a, b, torch.empty_like(a))

    def launch(self, n):
        a, b, c = self.operands[n]
        torch.mm(a, b, out=c)

    def time_ms(self, n):
        """The median of five, back to back for some 50 ms."""
        took = []
        count = max(20, min(2000, int(50 * (8192 / n) ** 3 / 2)))
        for _ in range(5):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(count):
                self.launch(n)
            torch.cuda.synchronize()
            took.append((time.perf_counter() - begin) * 1e3 / count)
        return sorted(took)[2]


def calibrate(options):
    sizes = Sizes(options.zeros)
    for _ in range(300):
        sizes.launch(GEMM)
    alone = {n: sizes.time_ms(n) for n in SIZES}
    with open(options.calibrate, "w", encoding="ascii") as file:
        json.dump(alone, file)
    return {"role": "calibrate", "ms": alone}


class Buckets:
    """Work that was done in each 100 ms of the clock; as bench/load has it."""

    def __init__(self, width_ms):
        self.width = width_ms
        self.first = (int(time.time() * 1e3) // width_ms + 1) * width_ms
        self.work = []

    def add(self, ms):
        at = (int(time.time() * 1e3) - self.first) // self.width
        if at < 0:
            return
        self.work.extend([0.0] * (at + 1 - len(self.work)))
        self.work[at] += ms

    def whole(self):
        """Those that have ended."""
        ended = max(0, (int(time.time() * 1e3) - self.first) // self.width)
        return (self.work + [0.0] * ended)[:ended]


def sizes_role(options):
    with open(options.calibration, encoding="ascii") as file:
        alone = {int(n): ms for n, ms in json.load(file).items()}
    sizes = Sizes(options.zeros)
    chance = random.Random(options.seed)
    weights = [1 / alone[n] for n in SIZES]
    for n in SIZES:
        for _ in range(3):
            sizes.launch(n)
    torch.cuda.synchronize()
    expected = {n: sizes.operands[n][2].clone() for n in SIZES}
    barrier(options)
    buckets = Buckets(options.bucket_ms)
    begin = time.perf_counter()
    flying, flying_ms, filling_ms, done_ms, launches = collections.deque(), 0.0, 0.0, 0.0, 0

    def land():
        nonlocal flying_ms, done_ms
        event, ms = flying.popleft()
        event.synchronize()
        flying_ms -= ms
        done_ms += ms
        buckets.add(ms)

    while time.perf_counter() - begin < options.secs:
        for n in chance.choices(SIZES, weights, k=64):
            sizes.launch(n)
            launches += 1
            filling_ms += alone[n]
            if filling_ms < BATCH_MS:
                continue
            event = torch.cuda.Event()
            event.record()
            flying.append((event, filling_ms))
            flying_ms += filling_ms
            filling_ms = 0.0
            while flying_ms > IN_FLIGHT_MS and len(flying) > 1:
                land()
    secs = time.perf_counter() - begin
    work = buckets.whole()
    torch.cuda.synchronize()
    wrong = sum(not same_bits(sizes.operands[n][2], expected[n]) for n in SIZES)
    return {"role": "sizes", "work_ms": round(done_ms, 3), "launches": launches, "secs": round(secs, 3),
            "ms_a_second": round(done_ms / secs, 3), "wrong": wrong, "bucket_ms": buckets.width,
            "first_ms": buckets.first, "buckets": [round(ms, 3) for ms in work]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=("decode", "gemm", "sizes"))
    parser.add_argument("--secs", type=float, default=8)
    parser.add_argument("--layers", type=int, default=32, help="decode: layers of a step")
    parser.add_argument("--width", type=int, default=4096, help="decode: their width")
    parser.add_argument("--every-ms", type=float, default=2, help="decode: how long it sleeps after a step; 0: not at all")
    parser.add_argument("--at-random", action="store_true",
                        help="decode: sleeps of random length, exponentially distributed, --every-ms on average")
    parser.add_argument("--slow-ms", type=float, default=0,
                        help="decode: write when each step that takes longer began (CLOCK_MONOTONIC, s), to stderr")
    parser.add_argument("--ready", help="a file to make once it could start")
    parser.add_argument("--start", help="start when this file exists")
    parser.add_argument("--calibrate", help="sizes: find out how long each takes alone, and write it there")
    parser.add_argument("--calibration", help="sizes: what was written")
    parser.add_argument("--seed", type=int, default=1, help="sizes: which come when; decode: which sleeps with --at-random")
    parser.add_argument("--zeros", action="store_true", help="sizes: matrices of zeros, which take less power")
    parser.add_argument("--bucket-ms", type=int, default=100, help="sizes: work is told for each of these")
    parser.add_argument("--json", action="store_true", help="as bench/load; it is JSON in any case")
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.role == "sizes" and not options.calibrate and not options.calibration:
        parser.error("sizes needs --calibrate or --calibration")
    if options.role == "sizes" and options.calibrate:
        said = calibrate(options)
    else:
        said = {"decode": decode, "gemm": gemm, "sizes": sizes_role}[options.role](options)
    print(json.dumps(said, separators=(",", ":")), flush=True)
    return 1 if said.get("wrong") else 0


if __name__ == "__main__":
    sys.exit(main())
