# SPDX-License-Identifier: MIT
"""pytorch_infers: a decode-like step of 32 layers as a CUDA graph, replayed; every replay must give the same bits,
and about what the plain step gave."""
import sys
import time

try:
    import torch
except ImportError:
    print("skipped: no PyTorch")
    sys.exit(77)
if not torch.cuda.is_available():
    print("skipped: PyTorch sees no GPU")
    sys.exit(77)

torch.manual_seed(0)
weights = [torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16) * 0.02 for _ in range(32)]
x = torch.randn(8, 2048, device="cuda", dtype=torch.bfloat16)


def step():
    y = x
    for w in weights:
        y = torch.nn.functional.silu(y @ w) + x
    return y


with torch.no_grad():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            right = step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = step()
    different, took, first = 0, [], None
    for _ in range(200):
        y.zero_()
        torch.cuda.synchronize()
        start = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        took.append((time.perf_counter() - start) * 1e3)
        first = y.clone() if first is None else first
        different += not torch.equal(y, first)
    different += not torch.allclose(first.float(), right.float(), rtol=0.05, atol=0.05)
took.sort()
print(f"{'FAILED' if different else 'ok'}: {len(took)} steps, median {took[len(took) // 2]:.3f} ms, {different} differ")
sys.exit(different != 0)
