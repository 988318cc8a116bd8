"""PyTorch's attention as contenders of `attention.rs`, in a process beside it: `cudnn` is the backend of that name, `flash`
the FlashAttention 2 of PyTorch. Arguments are the names of those that take part, without any all.

    cargo bench -p tilewright-bench --bench attention -- --beside "python3 benches/peers/attention_peers.py cudnn"

Reads requests and answers them as `benches/src/companion.rs` says.
"""

import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

FLUSH = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


class Work:
    """One row: its data, and what runs it."""

    def __init__(self, work, shape, dtype):
        heads, length, d = map(int, shape.split("x"))
        self.causal, self.backward = work.endswith("_causal"), "_backward" in work
        shape = (heads // 16, 16, length, d)
        self.q, self.k, self.v = (
            torch.randn(shape, device="cuda").to(DTYPES[dtype]).requires_grad_() for _ in range(3)
        )
        self.dout = torch.randn_like(self.q)

    def forward(self, name):
        with sdpa_kernel([BACKENDS[name]]):
            return scaled_dot_product_attention(self.q, self.k, self.v, is_causal=self.causal)

    def run(self, name):
        """Milliseconds of one run, after a flush of the L2 cache."""
        out = self.forward(name) if self.backward else None
        FLUSH.zero_()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        if self.backward:
            torch.autograd.grad(out, (self.q, self.k, self.v), self.dout)
        else:
            with torch.no_grad():
                self.forward(name)
        end.record()
        end.synchronize()
        return start.elapsed_time(end)


def config(name):
    version = f" {torch.backends.cudnn.version()}" if name == "cudnn" else ""
    return f"pytorch {torch.__version__}{version}"


def prepare(work, shape, dtype):
    """The row, and those backends that can do it."""
    row, able = Work(work, shape, dtype), []
    for name in sys.argv[1:] or BACKENDS:
        try:
            for _ in range(2):
                row.run(name)
            able.append(name)
        except RuntimeError as error:
            print(f"{name} {work} {shape} {dtype}: {error}")
    return row, "\t".join(["ready", *(f"{name}={config(name)}" for name in able)])


def main():
    row = None
    for request in sys.stdin:
        try:
            match request.split():
                case ["prepare", work, shape, dtype]:
                    row = None
                    row, answer = prepare(work, shape, dtype)
                case ["run", name] if row:
                    answer = f"{row.run(name):.6f}"
                case _:
                    answer = f"failed to understand {request.strip()!r}"
        except (RuntimeError, KeyError, ValueError) as error:
            answer = f"failed {type(error).__name__}: {' '.join(str(error).split())}"
        print(f"> {answer}", flush=True)


if __name__ == "__main__":
    main()
