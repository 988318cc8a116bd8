"""Three kernels of Rust in PyTorch. The first is in src/elementwise.rs:

    #[kernel]
    pub fn add<T: Float, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i64) {
        let i = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
        let mask = i < n;
        store(out + i, load(x + i, mask = mask) + load(y + i, mask = mask), mask = mask);
    }

    #[op(out(z: like(x)), backward = add_backward, vmap = broadcast_all)]
    pub fn add(x: TensorRef<'_>, y: TensorRef<'_>, z: TensorMut<'_>) -> Result<()> {
        same_shape(&y, &x)?;
        let (n, device) = (x.len(), x.device());
        dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
            kernels::add::<T, BLOCK>(x.flat::<T>()?, y.flat::<T>()?, z.flat_mut::<T>()?, n as i64)
                .grid(n.div_ceil(BLOCK))
                .launch(device)?;
            Ok(())
        })
    }
"""

import torch
import torch.nn.functional as F

import tilewright_ops.torch as ops

device = "cuda" if torch.cuda.is_available() else "cpu"
x, y = torch.randn(2, 10_000, device=device, requires_grad=True).unbind()

# Two vectors, added by one kernel over a grid of blocks.
print("add:", "equal" if torch.equal(ops.add(x, y), x + y) else "different")

# Attention, from the library, with its gradient.
q, k, v = torch.randn(3, 2, 64, 4, 32, device=device, requires_grad=True).unbind()
ours, _ = ops.flash_attention(q, k, v, causal=True)
heads = [tensor.transpose(1, 2) for tensor in (q, k, v)]
theirs = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2)
same = torch.allclose(ours, theirs, atol=1e-5)
same &= torch.allclose(*(torch.autograd.grad(out.square().sum(), q, retain_graph=True)[0] for out in (ours, theirs)), atol=1e-4)
print("attention:", "equal" if same else "different")

# An expression in one kernel, inside a function that PyTorch compiles.
compiled = torch.compile(lambda x: ops.scaled_silu(x + 1, scale=2.0).sum(), fullgraph=True, backend="aot_eager")
print("expression:", "equal" if torch.allclose(compiled(x), (2 * F.silu(x + 1)).sum(), rtol=1e-4) else "different")
