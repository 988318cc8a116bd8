"""Each operator beside what PyTorch computes for it: shared by the tests on the CPU and the check on a GPU."""

import math

import torch
import torch.nn.functional as F

import tilewright_ops.torch as ops

raw = torch.ops.tilewright_ops


class Case:
    """An operator, its reference, and inputs of a size. `inputs(randn, size)` gives the tensors; those of floats have gradients."""

    def __init__(self, name, ours, reference, inputs, ulps=4, dtypes=None):
        self.name, self.ours, self.reference, self.inputs = name, ours, reference, inputs
        # Units in the last place of the largest element that both may differ by: the reference is computed in f64 and rounded.
        self.ulps = ulps
        self.dtypes = dtypes or (torch.float32, torch.float16, torch.bfloat16)


def rms_norm(x, weight=None, eps=1e-5):
    y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    return y if weight is None else y * weight


def rotary(x, cos, sin, interleaved=False):
    cos, sin = (table.to(x.dtype)[: x.shape[1], None, :] for table in (cos, sin))
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    a, b = a * cos - b * sin, b * cos + a * sin
    return torch.stack((a, b), -1).flatten(-2) if interleaved else torch.cat((a, b), -1)


def attention(q, k, v, causal=False, scale=None, window=None):
    """Of `[batch, tokens, heads, dim]`, with the queries aligned to the last keys."""
    group = q.shape[2] // max(k.shape[2], 1)
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    at = torch.arange(q.shape[2], device=q.device)[:, None] + k.shape[2] - q.shape[2]
    key = torch.arange(k.shape[2], device=q.device)
    hidden = torch.zeros(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    if causal:
        hidden |= key > at
    if window is not None:
        hidden |= (key - at).abs() > window
    scores = scores.masked_fill(hidden, -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2), scores.logsumexp(-1)


def cross_entropy(logits, targets, smoothing=0.0, z=0.0, reduction="mean"):
    loss = F.cross_entropy(logits, targets.long(), label_smoothing=smoothing, reduction="none")
    loss = loss + z * logits.logsumexp(-1) ** 2 * (targets != -100)
    return loss.sum() / (targets != -100).sum() if reduction == "mean" else loss


def in_place(logits, targets):
    """The losses and the gradient of the mean, as `cross_entropy_in_place` gives them."""
    given = logits.clone()
    losses = ops.cross_entropy_in_place(given, targets, ops.cross_entropy_scale(targets))
    return losses, given


def in_place_reference(logits, targets):
    given = logits.detach().requires_grad_()
    with torch.enable_grad():
        gradient, = torch.autograd.grad(cross_entropy(given, targets), given)
    return cross_entropy(logits, targets, reduction="none"), gradient


def linear_loss(x, weight, targets):
    x, weight = (tensor.detach().requires_grad_() for tensor in (x, weight))
    with torch.enable_grad():
        loss = cross_entropy(x @ weight.t(), targets)
        return loss.detach(), *torch.autograd.grad(loss, (x, weight))


def linear_swiglu(x, weight):
    gate, up = F.linear(x, weight).chunk(2, -1)
    return F.silu(gate) * up


def tables(randn, tokens, half):
    angles = torch.arange(tokens, dtype=torch.float64)[:, None] * 100.0 ** -(torch.arange(half) / max(half, 1))
    device = randn(1).device
    return angles.cos().float().to(device), angles.sin().float().to(device)


def targets(randn, rows, classes):
    made = torch.arange(rows, device=randn(1).device) * 7 % max(classes, 1)
    made[rows // 2 : rows // 2 + 1] = -100
    return made


def rotary_in_place(interleaved, backward):
    """Heads beside as many that stay as they are, and what is expected."""

    def ours(x, cos, sin):
        given = torch.cat((x, x), 2)
        ops.rotary_in_place(given[:, :, : x.shape[2]], cos, sin, None, interleaved, backward)
        return given.chunk(2, 2)

    return ours, lambda x, cos, sin: (rotary(x, cos, -sin if backward else sin, interleaved), x)


rows = lambda randn, size: (randn(*size),)
weighted = lambda randn, size: (randn(*size), randn(size[-1]))
with_bias = lambda randn, size: (randn(*size), randn(size[-1]), randn(size[-1]))
pairs = lambda randn, size: (randn(*size), randn(*size))
halves = lambda randn, size: randn(*size[:-1], 2 * size[-1]).chunk(2, -1)
flat = lambda size: (math.prod(size[:-1]), size[-1])
logits = lambda randn, size: (3 * randn(*flat(size)), targets(randn, *flat(size)))
# Logits of about 3, of classes that tensor copies take in whole units.
linear_losses = lambda randn, size: (
    randn(*flat(size)),
    3 * size[-1] ** -0.5 * randn(48, size[-1]),
    targets(randn, flat(size)[0], 48),
)


def heads(tokens_of_keys=0, group=1):
    def inputs(randn, size):
        *_, tokens, columns = (1, 1, *size)
        dim, kv_heads = min(max(columns // 16 * 8, 16), 128), 2
        q = randn(2, tokens, kv_heads * group, dim)
        # One product of keys and values: parts of it are not contiguous.
        kv = randn(2, tokens + tokens_of_keys, 2 * kv_heads, dim)
        return q, kv[:, :, :kv_heads], kv[:, :, kv_heads:]

    return inputs


def rotated(randn, size):
    *_, tokens, columns = (1, 1, *size)
    half = max(columns // 2, 1)
    return randn(2, tokens, 3, 2 * half), *tables(randn, tokens + 2, half)


def linear_inputs(outputs, bias):
    return lambda randn, size: (randn(*size), randn(outputs, size[-1]), *((randn(outputs),) if bias else ()))


CASES = [
    Case("softmax", ops.softmax, lambda x: x.softmax(-1), rows),
    Case("log_softmax", ops.log_softmax, lambda x: x.log_softmax(-1), rows),
    Case(
        "layer_norm",
        ops.layer_norm,
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
        with_bias,
        ulps=8,
    ),
    Case("layer_norm without weights", ops.layer_norm, lambda x: F.layer_norm(x, x.shape[-1:]), rows, ulps=8),
    Case("rms_norm", ops.rms_norm, rms_norm, weighted, ulps=8),
    Case("rms_norm of parts", lambda x, y: ops.rms_norm(y), lambda x, y: rms_norm(y), halves, ulps=8),
    Case(
        "add_rms_norm",
        ops.add_rms_norm,
        lambda x, r, w: (rms_norm((x + r), w), x + r),
        lambda randn, size: (*pairs(randn, size), randn(size[-1])),
        ulps=16,
    ),
    Case("rotary", ops.rotary, rotary, rotated),
    Case(
        "rotary of neighbours",
        lambda x, c, s: ops.rotary(x, c, s, interleaved=True),
        lambda x, c, s: rotary(x, c, s, True),
        rotated,
    ),
    Case("rotary_in_place", *rotary_in_place(False, False), rotated),
    Case("rotary_in_place of neighbours, backward", *rotary_in_place(True, True), rotated),
    Case("swiglu", ops.swiglu, lambda a, b: F.silu(a) * b, halves),
    Case(
        "swiglu_halves",
        ops.swiglu_halves,
        lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
        lambda randn, size: (randn(*size[:-1], 2 * size[-1]),),
    ),
    Case("geglu", ops.geglu, lambda a, b: F.gelu(a) * b, pairs),
    Case(
        "geglu by tanh",
        lambda a, b: ops.geglu(a, b, "tanh"),
        lambda a, b: F.gelu(a, approximate="tanh") * b,
        halves,
    ),
    Case("cross_entropy", ops.cross_entropy, cross_entropy, logits, ulps=16),
    Case(
        "cross_entropy, smoothed",
        lambda x, t: ops.cross_entropy(x, t, label_smoothing=0.1, z_loss=1e-3),
        lambda x, t: cross_entropy(x, t, 0.1, 1e-3),
        logits,
        ulps=16,
    ),
    Case(
        "cross_entropy_rows",
        ops.cross_entropy_rows,
        lambda x, t: cross_entropy(x, t, reduction="none"),
        logits,
        ulps=16,
    ),
    Case("cross_entropy_in_place", in_place, in_place_reference, logits, ulps=16),
    Case(
        "linear_cross_entropy_with_gradients",
        ops.linear_cross_entropy_with_gradients,
        linear_loss,
        linear_losses,
        # Products of f32 by three of tf32 are within 2^-20.
        ulps=32,
    ),
    Case("flash_attention", ops.flash_attention, attention, heads(), ulps=16),
    Case(
        "flash_attention, causal, grouped",
        lambda q, k, v: ops.flash_attention(q, k, v, causal=True, scale=0.2),
        lambda q, k, v: attention(q, k, v, True, 0.2),
        heads(5, group=2),
        ulps=16,
    ),
    Case(
        "flash_attention, window",
        lambda q, k, v: ops.flash_attention(q, k, v, window=3),
        lambda q, k, v: attention(q, k, v, window=3),
        heads(),
        ulps=16,
    ),
    Case("linear", ops.linear, F.linear, linear_inputs(24, True), ulps=16),
    Case(
        "linear_activation",
        lambda x, w: ops.linear_activation(x, w, activation="silu"),
        lambda x, w: F.silu(F.linear(x, w)),
        linear_inputs(40, False),
        ulps=16,
    ),
    Case("linear_swiglu", ops.linear_swiglu, linear_swiglu, linear_inputs(48, False), ulps=16),
    Case(
        "linear_swiglu_keeping",
        ops.linear_swiglu_keeping,
        lambda x, w: (linear_swiglu(x, w), F.linear(x, w)),
        linear_inputs(48, False),
        ulps=16,
    ),
    Case(
        "embedding",
        ops.embedding,
        lambda table, ids: F.embedding(ids.long(), table),
        lambda randn, size: (randn(37, size[-1]), torch.arange(math.prod(size[:-1]), device=randn(1).device) % 11),
        ulps=16,
    ),
    Case("add", ops.add, torch.add, pairs),
    Case("scaled_silu", lambda x: ops.scaled_silu(x, 1.5), lambda x: 1.5 * F.silu(x), rows),
    Case(
        "take",
        ops.take,
        lambda x, ids: x[ids],
        lambda randn, size: (randn(53), torch.arange(math.prod(size), device=randn(1).device).view(size) % 50),
    ),
]

# Operators that take strings, of which PyTorch's stable interface knows nothing before 2.10.
TAKE_STRINGS = {"geglu", "geglu by tanh", "linear_activation"}
HAS_STRINGS = hasattr(raw, "geglu")
if not HAS_STRINGS:
    CASES = [case for case in CASES if case.name not in TAKE_STRINGS]
NO_GRADIENT = {"take", "linear_activation", "linear_swiglu", "linear_swiglu_keeping", "cross_entropy_in_place", "linear_cross_entropy_with_gradients"} | {case.name for case in CASES if "rotary_in_place" in case.name}


def tuple_of(results):
    return results if isinstance(results, tuple) else (results,)


def wide(tensor):
    return tensor.double() if tensor.is_floating_point() else tensor


# Operators of which only the first input has a gradient.
OF_FIRST = {"rotary", "rotary of neighbours"}


def leaves(inputs, case=None):
    """Copies of the inputs that require gradients, in their strides, where they are of floats and the case has them."""
    made = []
    for at, tensor in enumerate(inputs):
        if tensor.is_floating_point() and tensor.numel():
            copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
            tensor = copy.copy_(tensor)
        has_gradient = at == 0 or case is None or case.name not in OF_FIRST
        made.append(tensor.detach().requires_grad_(tensor.is_floating_point() and has_gradient))
    return made


def error(found, expected, ulps):
    """Why a result is not within a few units in the last place of the largest element, or `None`."""
    if found.shape != expected.shape:
        return f"shape {tuple(found.shape)}, not {tuple(expected.shape)}"
    if found.numel() == 0:
        return None
    found, wanted = found.double(), expected.double()
    finite = wanted.isfinite()
    if not torch.equal(found[~finite].nan_to_num(), wanted[~finite].nan_to_num()):
        return "other infinities"
    if not finite.any():
        return None
    difference = (found - wanted)[finite].abs().max().item()
    return None if difference <= ulps else f"{difference:.3g} exceeds {ulps:.3g}"


def compare(case, inputs, dtype, with_gradients=True):
    """Runs a case; gives what is wrong, or `None`."""
    mine = leaves(inputs, case)
    theirs = [wide(tensor.detach()).requires_grad_(tensor.is_floating_point()) for tensor in inputs]
    with_gradients = with_gradients and case.name not in NO_GRADIENT
    with torch.set_grad_enabled(with_gradients):
        found, wanted = tuple_of(case.ours(*mine)), tuple_of(case.reference(*theirs))
    unit = torch.finfo(dtype).eps

    def limit(tensor, scale=1):
        finite = tensor[tensor.isfinite()] if tensor.numel() else tensor
        return scale * case.ulps * unit * max(finite.abs().max().item() if finite.numel() else 0, 1e-3)

    for at, (one, other) in enumerate(zip(found, wanted)):
        wrong = error(one, other, limit(other))
        if wrong:
            return f"result {at}: {wrong}"
    if not with_gradients or any(tensor.numel() == 0 for tensor in mine):
        return None
    at = [at for at, tensor in enumerate(mine) if tensor.requires_grad]
    incoming = [torch.linspace(-1, 1, one.numel(), device=one.device).view(one.shape).to(one.dtype) for one in found]
    kept = [index for index, one in enumerate(found) if one.requires_grad]
    ours = torch.autograd.grad([found[i] for i in kept], [mine[i] for i in at], [incoming[i] for i in kept], allow_unused=True)
    reference = torch.autograd.grad(
        [wanted[i] for i in kept], [theirs[i] for i in at], [wide(incoming[i]) for i in kept], allow_unused=True
    )
    for index, one, other in zip(at, ours, reference):
        if one is None and (other is None or not mine[index].numel()):
            continue
        # Gradients are made of results that were rounded once already, and of as many sums.
        wrong = error(one, other, limit(other, 4))
        if wrong:
            return f"gradient {index}: {wrong}"
    return None
