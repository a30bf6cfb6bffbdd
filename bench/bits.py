# SPDX-License-Identifier: MIT
"""What bits.sh compares: deterministic work of PyTorch, a line "NAME HASH LAUNCHES" for each piece.

  gemm      products in fp32, tf32 and bf16 of several shapes
  reduce    sums, norms, softmax, sorting
  scan      cumulative sums, which PyTorch does not compute in a fixed order
  attention scaled dot-product attention, forward and backward
  train     steps of a small transformer with AdamW
  decode    a transformer that generates tokens, as a CUDA graph and without
  small     many small kernels, for the number of launches (--launches)
"""
import argparse
import hashlib
import sys

try:
    import torch
    from torch.nn import functional
except ImportError:
    print("skipped: no PyTorch")
    sys.exit(77)


class Hash:
    """Of the bytes of tensors, in order."""

    def __init__(self):
        self.hash = hashlib.sha256()

    def add(self, tensor):
        self.hash.update(tensor.detach().flatten().contiguous().view(torch.uint8).cpu().numpy().tobytes())

    def text(self):
        return self.hash.hexdigest()[:16]


def gemm(out, scale):
    for tf32, kind in ((False, torch.float32), (True, torch.float32), (False, torch.bfloat16)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        for m, n, k in ((128, 128, 128), (8, 4096, 4096), (1000, 777, 333), (2048, 2048, 2048), (64, 64, 16384)):
            a = torch.randn(m, k, device="cuda").to(kind)
            b = torch.randn(k, n, device="cuda").to(kind)
            for _ in range(scale):
                out.add(a @ b)


def reduce(out, scale):
    for size in (1000, 65536, 4000000):
        x = torch.randn(size, device="cuda")
        y = torch.randn(256, size // 250, device="cuda")
        for _ in range(scale):
            for value in (x.sum(), x.norm(), x.mean(), x.sort().values, y.softmax(1), y.logsumexp(0), y.std(1)):
                out.add(value)


def scan(out, scale):
    x = torch.randn(4000000, device="cuda")
    for _ in range(scale):
        out.add(x.cumsum(0))


def attention(out, scale):
    for _ in range(scale):
        q, k, v = (torch.randn(4, 8, 512, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out.add(y)


def model(width=512, layers=4):
    layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True, device="cuda")
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def train(out, scale):
    torch.use_deterministic_algorithms(True)
    net = model().bfloat16()
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x = torch.randn(8, 128, 512, device="cuda", dtype=torch.bfloat16)
    for _ in range(10 * scale):
        optimiser.zero_grad()
        loss = (net(x) - x).float().pow(2).mean()
        loss.backward()
        optimiser.step()
        out.add(loss)
    for parameter in net.parameters():
        out.add(parameter)
    torch.use_deterministic_algorithms(False)


def decode(out, scale):
    net = model().bfloat16().eval()
    x = torch.randn(8, 1, 512, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                net(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = net(x)
        for _ in range(200 * scale):
            graph.replay()
            out.add(y)
            x.copy_(y)
        for _ in range(20 * scale):
            x = net(x)
        out.add(x)


def small(out, launches):
    x = torch.randn(4096, device="cuda")
    weights = torch.randn(64, 64, device="cuda")
    done = 0
    while done < launches:
        for _ in range(1000):
            x = torch.sin(x) * 1.0009
        y = (x.view(64, 64) @ weights).tanh()
        x = y.flatten() + 0.1
        done += 2004
        if done % 20040 == 0:
            out.add(x)
    out.add(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=1, help="how often each piece runs (1)")
    parser.add_argument("--launches", type=int, default=20000, help="of `small` (20000)")
    parser.add_argument("--only", help="one piece")
    options = parser.parse_args()
    torch.backends.cudnn.deterministic = True
    for piece in (gemm, reduce, scan, attention, train, decode, small):
        if options.only and piece.__name__ != options.only:
            continue
        torch.manual_seed(1)
        out = Hash()
        piece(out, options.launches if piece is small else options.scale)
        torch.cuda.synchronize()
        print(piece.__name__, out.text(), flush=True)


main()
