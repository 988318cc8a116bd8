"""PyTorch's attention on the shapes of `attention.rs`, by cuDNN, measured as it measures: medians with the L2 cache
flushed.

    python3 benches/peers/attention_peers.py benches/results/attention_peers.csv   # right before or after the bench

Writes the same columns as the bench. `cudnn` is the backend of that name, `flash` the FlashAttention 2 of PyTorch.
"""

import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch_peers import machine

ROUNDS = 21
FLUSH = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
SHAPES = [(128, 4096), (32, 16384)]
ROWS = []


def measure(work, shape, dtype, contender, flops, function, prepare):
    times = []
    for round in range(ROUNDS + 2):
        state = prepare()
        FLUSH.zero_()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        function(state)
        end.record()
        end.synchronize()
        if round >= 2:
            times.append(start.elapsed_time(end))
    ms = statistics.median(times)
    ROWS.append(f"{work},{shape},{dtype},{contender},pytorch {torch.__version__},{ms:.5f},{flops / ms / 1e9:.1f},")
    print(ROWS[-1], flush=True)


def one(heads, length, d, dtype, causal, name, backend):
    def tensor():
        return torch.randn(heads // 16, 16, length, d, device="cuda").to(DTYPES[dtype]).requires_grad_()

    q, k, v = tensor(), tensor(), tensor()
    dout = torch.randn_like(q)
    flops = 4 * heads * length * length * d // (2 if causal else 1)
    work, shape = ("attention_causal" if causal else "attention"), f"{heads}x{length}x{d}"

    def forward():
        with sdpa_kernel([backend]):
            return scaled_dot_product_attention(q, k, v, is_causal=causal)

    def without_gradients(_):
        with torch.no_grad():
            forward()

    def back(out):
        torch.autograd.grad(out, (q, k, v), dout)

    measure(work, shape, dtype, name, flops, without_gradients, lambda: None)
    measure(work.replace("attention", "attention_backward"), shape, dtype, name, 5 * flops // 2, back, forward)


def main(path):
    before = machine()
    for heads, length in SHAPES:
        for d in (64, 128):
            for dtype in DTYPES:
                for causal in (False, True):
                    for name, backend in BACKENDS.items():
                        try:
                            one(heads, length, d, dtype, causal, name, backend)
                        except RuntimeError as error:
                            print(f"{name} {heads}x{length}x{d} {dtype}: {error}")
    note = f"# before: {before}; after: {machine()}; PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"
    header = "work,shape,dtype,contender,config,ms,TFLOP/s,rate relative to the row's first"
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([note, header, *ROWS]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "attention_peers.csv")
