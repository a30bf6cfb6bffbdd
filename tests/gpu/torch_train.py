# SPDX-License-Identifier: MIT
"""pytorch_trains: a small network learns a function of its input; the loss must fall. Sixty optimiser steps with
autocast, plus an allocation that must be refused when a limit is given (argument: bytes)."""
import sys

try:
    import torch
except ImportError:
    print("skipped: no PyTorch")
    sys.exit(77)
if not torch.cuda.is_available():
    print("skipped: PyTorch sees no GPU")
    sys.exit(77)

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).cuda()
optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3)
x = torch.randn(4096, 256, device="cuda")
target = torch.roll(x, 1, dims=1) * 0.5
losses = []
for _ in range(60):
    optimiser.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.mse_loss(net(x).float(), target)
    loss.backward()
    optimiser.step()
    losses.append(loss.item())

refused = "not asked"
if len(sys.argv) > 1:
    limit = int(sys.argv[1])
    assert torch.cuda.mem_get_info()[1] == limit, torch.cuda.mem_get_info()
    try:
        torch.empty(limit, dtype=torch.uint8, device="cuda")
        refused = "GIVEN"
    except torch.cuda.OutOfMemoryError:
        refused = "refused"
    torch.ones(1000, device="cuda").sum().item()
ok = losses[-1] < losses[0] * 0.7 and refused != "GIVEN"
print(f"{'ok' if ok else 'FAILED'}: loss {losses[0]:.4f} to {losses[-1]:.4f}, an allocation over the limit: {refused}")
sys.exit(not ok)
