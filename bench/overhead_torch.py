# SPDX-License-Identifier: MIT
"""PyTorch's side of the overhead: a bf16 GEMM, a training step of a small transformer, a decode step as a CUDA graph.
Prints one line of JSON; overhead.sh runs it natively and under Belfry in turn."""
import json
import sys
import time

try:
    import torch
except ImportError:
    print("skipped: no PyTorch")
    sys.exit(77)

from pair import decode_graph

torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = True


def median_ms(work, repeats, inner):
    """Median of `repeats` timings of `inner` calls queued together, in ms a call."""
    took = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(inner):
            work()
        torch.cuda.synchronize()
        took.append((time.perf_counter() - start) * 1e3 / inner)
    return sorted(took)[len(took) // 2]


def gemm_tflops():
    n = 8192
    a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    c = torch.empty_like(a)
    # long enough for the clocks to settle under load: they, not the launches, are most of the noise
    median_ms(lambda: torch.mm(a, b, out=c), 1, 300)
    return 2 * n**3 / median_ms(lambda: torch.mm(a, b, out=c), 9, 40) / 1e9


def train_step_ms():
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True)
    net = torch.nn.TransformerEncoder(layer, 8, enable_nested_tensor=False).cuda()
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    x = torch.randn(32, 512, 1024, device="cuda")

    def step():
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = net(x).float().square().mean()
        loss.backward()
        optimiser.step()

    median_ms(step, 1, 20)
    return median_ms(step, 40, 1)


def decode_step_ms():
    graph, _, operands = decode_graph()
    median_ms(graph.replay, 1, 50)
    took = median_ms(graph.replay, 200, 1)
    del operands  # the graph has read them until here
    return took


print(json.dumps({"gemm_tflops": round(gemm_tflops(), 2), "train_step_ms": round(train_step_ms(), 4),
                  "decode_step_ms": round(decode_step_ms(), 4)}))
