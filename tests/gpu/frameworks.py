# SPDX-License-Identifier: MIT
"""Programs people run, small: frameworks.py jax|cupy|compile|loader|ipc|nccl|threads. Exit 77 where a package is
missing."""
import sys


def jax():
    import jax as j
    import jax.numpy as np
    x = np.ones((2048, 2048))
    return float((x @ x).sum()) == 2048.0**3 and "cuda" in str(j.devices()[0]).lower()


def cupy():
    import cupy as c
    kernel = c.RawKernel('extern "C" __global__ void f(float *x) { x[threadIdx.x] += 1; }', "f")
    y = c.zeros(256, dtype="f")
    kernel((1,), (256,), (y,))
    return float(y.sum()) == 256.0 and int(c.arange(1000000).sum()) == 499999500000


def compile():
    import torch
    f = torch.compile(lambda x: torch.nn.functional.gelu(x * 2 + 1).sum())
    x = torch.ones(1 << 20, device="cuda")
    return abs(float(f(x)) / (1 << 20) - 2.9960) < 1e-3


def loader():
    import torch

    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 256

        def __getitem__(self, i):
            return torch.full((64,), float(i))

    batches = torch.utils.data.DataLoader(Numbers(), batch_size=16, num_workers=4, pin_memory=True)
    return sum(float(b.cuda(non_blocking=True).sum()) for b in batches) == 64 * 255 * 128


def add_one(tensor, queue):
    import torch
    tensor.add_(1)
    torch.cuda.synchronize()
    queue.put("done")


def ipc():
    import torch
    import torch.multiprocessing as mp
    mp.set_start_method("spawn")
    tensor, queue = torch.zeros(1000, device="cuda"), mp.Queue()
    other = mp.Process(target=add_one, args=(tensor, queue))
    other.start()
    queue.get(timeout=60)
    other.join()
    return float(tensor.sum()) == 1000.0


def nccl():
    import os
    import torch
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29512", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("nccl")
    x = torch.ones(10, device="cuda")
    dist.all_reduce(x)
    dist.destroy_process_group()
    return float(x.sum()) == 10.0


def threads():
    """Eight threads that ring at once, each on a stream of its own."""
    import threading
    import torch
    count, launches = 8, 5000
    tensors = [torch.zeros(1024, device="cuda") for _ in range(count)]
    streams = [torch.cuda.Stream() for _ in range(count)]
    torch.cuda.synchronize()

    def work(i):
        with torch.cuda.stream(streams[i]):
            for j in range(launches):
                tensors[i].add_(1.0)
                if j % 50 == 0:
                    streams[i].synchronize()
            streams[i].synchronize()

    workers = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    return all(bool((t == float(launches)).all()) for t in tensors)


if __name__ == "__main__":
    try:
        ok = globals()[sys.argv[1]]()
    except ImportError as missing:
        print("skipped:", missing)
        sys.exit(77)
    print("ok" if ok else "wrong")
    sys.exit(0 if ok else 1)
