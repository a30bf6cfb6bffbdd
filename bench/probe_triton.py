# SPDX-License-Identifier: MIT
"""What a probe costs in kernels of Triton: probe_triton.sh runs this.

probe_triton.py check           status 77 and a reason if PyTorch, Triton or a GPU is missing
probe_triton.py run [ROUNDS]    three kernels: time by events, hash of the output, threads. Prints one line of JSON
probe_triton.py report FOLDER   a table of what VARIANT.ROUND.json and VARIANT.ROUND.dump in the folder say
"""
import ctypes
import glob
import hashlib
import json
import os
import statistics
import struct
import sys

WARPS = 4
INNER = 10  # launches between two events

try:
    import torch
    import triton
    import triton.language as tl
    MISSING = ""
    jit = triton.jit
except ImportError as error:
    MISSING = str(error)

    class tl:  # pylint: disable=invalid-name
        constexpr = int

    def jit(function):
        return function


def need_all():
    if not MISSING and torch.cuda.is_available():
        return
    print("skipped: " + (MISSING or "PyTorch finds no GPU"))
    sys.exit(77)


@jit
def belfry_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@jit
def belfry_softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    values = tl.load(x + row * columns + at, mask=mask, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, values / tl.sum(values, axis=0), mask=mask)


@jit
def belfry_matmul(a, b, c, n, BLOCK: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    steps = tl.arange(0, STEP)
    left = a + rows[:, None] * n + steps[None, :]
    right = b + steps[:, None] * n + columns[None, :]
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, n, STEP):
        total += tl.dot(tl.load(left), tl.load(right))
        left += STEP
        right += STEP * n
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16))


def measure(launch, out, programs, rounds):
    launches = 0
    for _ in range(3):  # compiles, and warms up
        launch()
        launches += 1
    torch.cuda.synchronize()
    took = []
    for _ in range(rounds):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        for _ in range(INNER):
            launch()
        last.record()
        last.synchronize()
        launches += INNER
        took.append(first.elapsed_time(last) * 1e3 / INNER)
    host = out.cpu()
    digest = hashlib.sha256(ctypes.string_at(host.data_ptr(), host.numel() * host.element_size())).hexdigest()
    return {"us": statistics.median(took), "hash": digest[:16], "threads": launches * programs * WARPS * 32}


def run(rounds):
    need_all()
    torch.manual_seed(0)
    results = {}

    # Inputs are made by the CPU: no kernel of PyTorch runs.
    n = 1 << 26
    x, y = torch.rand(n).cuda(), torch.rand(n).cuda()
    out = torch.empty(n, device="cuda")
    blocks = n // 1024
    results["add"] = measure(
        lambda: belfry_add[(blocks,)](x, y, out, n, BLOCK=1024, num_warps=WARPS), out, blocks, rounds)

    rows, columns = 1 << 14, 4096
    results["softmax"] = measure(
        lambda: belfry_softmax[(rows,)](x, out, columns, BLOCK=4096, num_warps=WARPS), out, rows, rounds)

    n = 4096
    a, b = torch.rand(n, n).half().cuda(), torch.rand(n, n).half().cuda()
    c = torch.empty(n, n, device="cuda", dtype=torch.float16)
    side = n // 128
    results["matmul"] = measure(
        lambda: belfry_matmul[(side, side)](a, b, c, n, BLOCK=128, STEP=64, num_warps=WARPS, num_stages=3),
        c, side * side, rounds)
    torch.cuda.synchronize()
    print(json.dumps({"kernels": results, "torch": torch.__version__, "triton": triton.__version__,
                      "gpu": torch.cuda.get_device_name(0), "ptxas": os.environ.get("TRITON_PTXAS_PATH", "")}))


def counted(path):
    """The sum of the first words of the entries of all maps of all processes; None: there are no values."""
    with open(path, encoding="utf-8") as file:
        probes = json.load(file)["probes"]
    total = None
    for process in [process for probe in probes for process in probe["processes"]]:
        if not process.get("area"):
            print("FAILED: no values of process %s: %s" % (process.get("pid"), process.get("why")))
            continue
        values = [entry["value"] for one in process["area"]["maps"] for entry in one["entries"]]
        total = (total or 0) + sum(struct.unpack("<Q", bytes.fromhex(value)[:8])[0] for value in values)
    return total


def load_runs(folder):
    runs = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        variant = os.path.basename(path).split(".")[0]
        with open(path, encoding="utf-8") as file:
            lines = [line for line in file if line.startswith("{")]
        if not lines:
            continue
        one = json.loads(lines[-1])
        one["threads"] = sum(kernel["threads"] for kernel in one["kernels"].values())
        dump = path[:-len("json")] + "dump"
        one["counted"] = counted(dump) if os.path.exists(dump) and os.path.getsize(dump) else None
        runs.setdefault(variant, []).append(one)
    return runs


def report(folder):
    order = ["native", "none", "jit", "count", "time"]
    titles = {"native": "without Belfry", "none": "none", "jit": "none, JIT", "count": "count", "time": "time"}
    runs = load_runs(folder)
    if "none" not in runs:
        print("FAILED: there is no run without a probe")
        return 1
    first, status = runs["none"][0], 0
    print("%s, PyTorch %s, Triton %s" % (first["gpu"], first["torch"], first["triton"]))
    print("%-9s %-15s %5s %10s %10s %10s  %s" % ("kernel", "probe", "runs", "us/launch", "overhead%", "to JIT %", "bits"))
    for kernel in first["kernels"]:
        wanted = first["kernels"][kernel]["hash"]
        times = {name: statistics.median(one["kernels"][kernel]["us"] for one in list_) for name, list_ in runs.items()}
        for variant in [name for name in order if name in runs]:
            hashes = {one["kernels"][kernel]["hash"] for one in runs[variant]}
            is_same = hashes == {wanted}
            to_jit = "%10.1f" % (100 * (times[variant] / times["jit"] - 1)) if "jit" in times else "%10s" % "-"
            print("%-9s %-15s %5d %10.2f %10.1f %s  %s" % (
                kernel, titles[variant], len(runs[variant]), times[variant],
                100 * (times[variant] / times["none"] - 1), to_jit, "same" if is_same else "DIFFER"))
            status |= not is_same
    for variant in ["count", "time"]:
        if variant not in runs:
            print("FAILED: no run with probe %s" % variant)
            status = 1
        for one in runs.get(variant, []):
            is_exact = one["counted"] == one["threads"]
            print("probe %s counted %s of %d threads: %s" % (
                variant, one["counted"], one["threads"], "exact" if is_exact else "WRONG"))
            status |= not is_exact
    return int(status)


def main(words):
    if words[:1] == ["check"]:
        need_all()
        return 0
    if words[:1] == ["run"]:
        run(int(words[1]) if len(words) > 1 else 15)
        return 0
    if words[:1] == ["report"] and len(words) == 2:
        return report(words[1])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
