"""Triton's kernels beside the library's functions of rows: written after the papers that the functions name."""

import triton
import triton.language as tl


@triton.jit
def swiglu_gradients(g, u, dy):
    s = tl.sigmoid(g)
    return dy * u * (s * (1.0 + g * (1.0 - s))), dy * (g * s)


@triton.jit
def geglu_gradients(g, u, dy):
    cubed = 0.044715 * g * g
    s = tl.sigmoid(1.595769121605731 * g * (1.0 + cubed))
    slope = s + g * s * (1.0 - s) * 1.595769121605731 * (1.0 + 3.0 * cubed)
    return dy * u * slope, dy * (g * s)


@triton.jit
def swiglu_backward(gate, up, dy, d_gate, d_up, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    u = tl.load(up + offsets, mask=mask).to(tl.float32)
    a, b = swiglu_gradients(g, u, tl.load(dy + offsets, mask=mask).to(tl.float32))
    tl.store(d_gate + offsets, a.to(d_gate.dtype.element_ty), mask=mask)
    tl.store(d_up + offsets, b.to(d_up.dtype.element_ty), mask=mask)


@triton.jit
def swiglu_backward_rows(gate, up, dy, d_gate, d_up, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    """A row a program, whose width is known when it is compiled."""
    column = tl.arange(0, BLOCK)
    offsets = tl.program_id(0) * COLUMNS + column
    mask = column < COLUMNS
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    u = tl.load(up + offsets, mask=mask).to(tl.float32)
    a, b = swiglu_gradients(g, u, tl.load(dy + offsets, mask=mask).to(tl.float32))
    tl.store(d_gate + offsets, a.to(d_gate.dtype.element_ty), mask=mask)
    tl.store(d_up + offsets, b.to(d_up.dtype.element_ty), mask=mask)


@triton.jit
def geglu_backward(gate, up, dy, d_gate, d_up, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    u = tl.load(up + offsets, mask=mask).to(tl.float32)
    a, b = geglu_gradients(g, u, tl.load(dy + offsets, mask=mask).to(tl.float32))
    tl.store(d_gate + offsets, a.to(d_gate.dtype.element_ty), mask=mask)
    tl.store(d_up + offsets, b.to(d_up.dtype.element_ty), mask=mask)


@triton.jit
def geglu_backward_rows(gate, up, dy, d_gate, d_up, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    offsets = tl.program_id(0) * COLUMNS + column
    mask = column < COLUMNS
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    u = tl.load(up + offsets, mask=mask).to(tl.float32)
    a, b = geglu_gradients(g, u, tl.load(dy + offsets, mask=mask).to(tl.float32))
    tl.store(d_gate + offsets, a.to(d_gate.dtype.element_ty), mask=mask)
    tl.store(d_up + offsets, b.to(d_up.dtype.element_ty), mask=mask)


@triton.jit
def rms_norm_backward(dy, x, weight, rstds, dx, partial_weights, rows, columns, BLOCK: tl.constexpr):
    """The reciprocal root of each row comes from the forward pass."""
    column = tl.arange(0, BLOCK)
    mask = column < columns
    scale = tl.load(weight + column, mask=mask).to(tl.float32)
    weights = tl.zeros([BLOCK], tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        offsets = row * columns + column
        values = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32)
        gradient = tl.load(dy + offsets, mask=mask, other=0.0).to(tl.float32)
        normed = values * tl.load(rstds + row)
        scaled = scale * gradient
        along = tl.sum(normed * scaled, axis=0) / columns
        tl.store(dx + offsets, ((scaled - normed * along) * tl.load(rstds + row)).to(dx.dtype.element_ty), mask=mask)
        weights += gradient * normed
    tl.store(partial_weights + tl.program_id(0) * columns + column, weights, mask=mask)


@triton.jit
def rms_norm_finish(partial_weights, weight_gradient, parts, columns, M: tl.constexpr, N: tl.constexpr):
    column = tl.program_id(0) * N + tl.arange(0, N)
    weights = tl.zeros([M, N], tl.float32)
    for first in range(0, parts, M):
        row = first + tl.arange(0, M)
        mask = (row < parts)[:, None] & (column < columns)[None, :]
        weights += tl.load(partial_weights + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
    result = tl.sum(weights, axis=0).to(weight_gradient.dtype.element_ty)
    tl.store(weight_gradient + column, result, mask=column < columns)


@triton.jit
def rotary(x, cosines, sines, out, length, heads, HEADS: tl.constexpr, HALF: tl.constexpr):
    """A token a program: all its heads."""
    token = tl.program_id(0)
    angle = tl.arange(0, HALF)
    place = (token % length) * HALF + angle
    cosine = tl.load(cosines + place)[None, :]
    sine = tl.load(sines + place)[None, :]
    head = tl.arange(0, HEADS)[:, None]
    offsets = (token * heads + head) * (2 * HALF) + angle[None, :]
    mask = head < heads
    a = tl.load(x + offsets, mask=mask).to(tl.float32)
    b = tl.load(x + offsets + HALF, mask=mask).to(tl.float32)
    tl.store(out + offsets, (a * cosine - b * sine).to(out.dtype.element_ty), mask=mask)
    tl.store(out + offsets + HALF, (b * cosine + a * sine).to(out.dtype.element_ty), mask=mask)


@triton.jit
def cross_entropy_gradient(x, labels, losses, out, columns, factor, BLOCK: tl.constexpr):
    """The loss of a row and its gradient, in pieces that are read twice."""
    row = tl.program_id(0).to(tl.int64)
    start = row * columns
    label = tl.load(labels + row)
    chosen = tl.load(x + start + label).to(tl.float32)
    peak = -float("inf")
    total = 0.0
    for first in range(0, columns, BLOCK):
        column = first + tl.arange(0, BLOCK)
        values = tl.load(x + start + column, mask=column < columns, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(peak, tl.max(values, axis=0))
        total = total * tl.exp(peak - higher) + tl.sum(tl.exp(values - higher), axis=0)
        peak = higher
    lse = peak + tl.log(total)
    for first in range(0, columns, BLOCK):
        column = first + tl.arange(0, BLOCK)
        mask = column < columns
        values = tl.load(x + start + column, mask=mask, other=-float("inf")).to(tl.float32)
        gradient = (tl.exp(values - lse) - tl.where(column == label, 1.0, 0.0)) * factor
        tl.store(out + start + column, gradient.to(out.dtype.element_ty), mask=mask)
    tl.store(losses + row, lse - chosen)
