"""A call of each operator: arguments in the order of its parameters, small, as kernels run in an interpreter on the CPU."""

import torch

import cases
from cases import ops


def grouped_heads(randn):
    """Three tokens with two heads of queries, and four with one of keys and values, which are parts of one tensor."""
    return randn(1, 3, 2, 16), *randn(1, 4, 2, 16).chunk(2, 2)


def table(randn):
    """Functions that make arguments for each operator, with `randn` for the tensors of floats."""
    device = randn(1).device
    classes = lambda rows, columns: (randn(rows, columns), cases.targets(randn, rows, columns))
    losses = (-100, 0.1, 1e-3)
    x = lambda *shape: randn(*(shape or (4, 8)))
    ids = lambda *at: torch.tensor(at or (3, 0, 3, 1), device=device)
    one = lambda: torch.ones((), device=device)
    rotated = lambda: (x(2, 5, 2, 16), *cases.tables(randn, 7, 8))
    positions = lambda: torch.tensor([[1, 6, 0, 2, 2]] * 2, dtype=torch.int32, device=device)
    masks = (True, 0.3, 1, 2.0)
    heads = lambda: grouped_heads(randn)

    def attended(with_lse):
        q, k, v = heads()
        y, lse = ops.flash_attention(q, k, v, *masks)
        return torch.ones_like(y), q, k, v, y, lse, torch.ones_like(lse) if with_lse else None, *masks

    def rotated_attended():
        qkv = x(1, 5, 3, 2, 16)
        y, lse = ops.flash_attention(*qkv.unbind(2), *masks)
        return x(1, 5, 2, 16), qkv, y, lse, *cases.tables(randn, 5, 8), *masks

    return {
        "softmax": [lambda: (x(),)],
        "softmax_backward": [lambda: (x(), x().softmax(-1))],
        "log_softmax": [lambda: (x(),)],
        "log_softmax_backward": [lambda: (x(), x().log_softmax(-1))],
        "layer_norm": [lambda: (x(), x(8), x(8), 1e-3), lambda: (x(),)],
        "layer_norm_backward": [lambda: (x(), x(), x(8), x(8), 1e-3), lambda: (x(), x(), x(8), None, 1e-3)],
        "rms_norm": [lambda: (x(), x(8), 1e-3)],
        "rms_norm_backward": [lambda: (x(), x(), x(8), 1e-3), lambda: (x(), x(), None, 1e-3)],
        "add_rms_norm": [lambda: (x(), x(), x(8), 1e-3)],
        "add_rms_norm_backward": [lambda: (x(), x(), x(), x(8), 1e-3), lambda: (x(), None, x(), x(8), 1e-3)],
        "rotary": [lambda: (*rotated(), positions(), True), rotated],
        "rotary_backward": [lambda: (*rotated(), positions(), True)],
        "rotary_in_place": [lambda: (*rotated(), positions(), True, True)],
        "swiglu": [lambda: x(4, 16).chunk(2, -1)],
        "swiglu_backward": [lambda: (x(), x(), x())],
        "swiglu_halves": [lambda: (x(4, 16),)],
        "swiglu_halves_backward": [lambda: (x(), x(4, 16))],
        "geglu": [lambda: (x(), x(), "tanh")],
        "geglu_backward": [lambda: (x(), x(), x(), "tanh")],
        "cross_entropy": [lambda: (*classes(4, 8), *losses)],
        "cross_entropy_backward": [lambda: (one(), *classes(4, 8), *losses)],
        "cross_entropy_rows": [lambda: (*classes(4, 8), *losses)],
        "cross_entropy_rows_backward": [lambda: (x(4), *classes(4, 8), *losses)],
        "cross_entropy_scale": [lambda: (cases.targets(randn, 4, 8),)],
        "cross_entropy_in_place": [lambda: (*classes(4, 8), one() / 3, *losses), lambda: classes(4, 8)],
        "linear_cross_entropy_with_gradients": [lambda: (x(), x(12, 8), cases.targets(randn, 4, 12), *losses)],
        "flash_attention": [lambda: (*heads(), *masks), heads],
        "flash_attention_backward": [lambda: attended(True), lambda: attended(False)],
        "rotary_attention_backward": [rotated_attended],
        "linear": [lambda: (x(), x(12, 8), x(12)), lambda: (x(), x(12, 8))],
        "linear_backward": [lambda: (x(4, 12), x(), x(12, 8), x(12)), lambda: (x(4, 12), x(), x(12, 8))],
        "linear_activation": [lambda: (x(), x(12, 8), x(12), "silu")],
        "linear_swiglu": [lambda: (x(), x(16, 8))],
        "linear_swiglu_keeping": [lambda: (x(), x(16, 8))],
        "embedding": [lambda: (x(), ids())],
        "embedding_backward": [lambda: (x(), x(9, 8), ids())],
        "add": [lambda: (x(), x())],
        "add_backward": [lambda: (x(),)],
        "scaled_silu": [lambda: (x(), 1.5)],
        "scaled_silu_backward": [lambda: (x(), x(), 1.5)],
        "scale_in_place": [lambda: (x(), one() / 3)],
        "adamw_step": [lambda: (x(), x(), x(), x().square(), 2, 1e-2, 0.8, 0.95, 1e-6, 0.1)],
        "take": [lambda: (x(8), ids())],
        "put_in_place": [lambda: (x(8), ids(3, 0, 2, 1), x(4))],
        "nothing": [lambda: (x(),)],
    }


def differentiated(randn):
    """More arguments of operators with gradients, of which only those are checked."""
    causal, window, soft_cap = (True,), (False, None, 1), (False, None, None, 2.0)
    return {
        "layer_norm": [lambda: (randn(4, 8), randn(8))],
        "rms_norm": [lambda: (randn(4, 8),)],
        "add_rms_norm": [lambda: (randn(4, 8), randn(4, 8))],
        "geglu": [lambda: (randn(4, 8), randn(4, 8))],
        "cross_entropy": [lambda: (randn(4, 8), cases.targets(randn, 4, 8))],
        "cross_entropy_rows": [lambda: (randn(4, 8), cases.targets(randn, 4, 8))],
        "flash_attention": [lambda some=some: (*grouped_heads(randn), *some) for some in (causal, window, soft_cap)],
    }
