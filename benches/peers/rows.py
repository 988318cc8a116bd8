"""Triton's kernels beside the library's functions of rows: written after the papers that the functions name."""

import triton
import triton.language as tl


@triton.jit
def gate(a, GELU: tl.constexpr):
    """The gate and its slope."""
    if GELU:
        cubed = 0.044715 * a * a
        s = tl.sigmoid(1.595769121605731 * a * (1.0 + cubed))
        return a * s, s + a * s * (1.0 - s) * 1.595769121605731 * (1.0 + 3.0 * cubed)
    s = tl.sigmoid(a)
    return a * s, s * (1.0 + a * (1.0 - s))


@triton.jit
def gated(a, b, out, n, GELU: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value, _ = gate(tl.load(a + offsets, mask=mask).to(tl.float32), GELU)
    result = value * tl.load(b + offsets, mask=mask).to(tl.float32)
    tl.store(out + offsets, result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def gated_backward(a, b, dy, da, db, n, COLUMNS: tl.constexpr, GELU: tl.constexpr, BLOCK: tl.constexpr):
    """A piece of all elements a program, or, if `COLUMNS` is not 0, a row, whose width is known when it is compiled."""
    lane = tl.arange(0, BLOCK)
    if COLUMNS:
        offsets = tl.program_id(0) * COLUMNS + lane
        mask = lane < COLUMNS
    else:
        offsets = tl.program_id(0) * BLOCK + lane
        mask = offsets < n
    value, slope = gate(tl.load(a + offsets, mask=mask).to(tl.float32), GELU)
    up = tl.load(b + offsets, mask=mask).to(tl.float32)
    gradient = tl.load(dy + offsets, mask=mask).to(tl.float32)
    tl.store(da + offsets, (gradient * up * slope).to(da.dtype.element_ty), mask=mask)
    tl.store(db + offsets, (gradient * value).to(db.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward(y, dy, dx, columns, LOGARITHM: tl.constexpr, BLOCK: tl.constexpr):
    """The gradient of softmax, or of its logarithm."""
    offsets = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < columns
    result = tl.load(y + offsets, mask=mask, other=0.0).to(tl.float32)
    gradient = tl.load(dy + offsets, mask=mask, other=0.0).to(tl.float32)
    if LOGARITHM:
        change = gradient - tl.exp(result) * tl.sum(gradient, axis=0)
    else:
        change = result * (gradient - tl.sum(result * gradient, axis=0))
    tl.store(dx + offsets, change.to(dx.dtype.element_ty), mask=mask)


@triton.jit
def log_softmax(x, out, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < columns
    values = tl.load(x + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    values = values - tl.max(values, axis=0)
    result = values - tl.log(tl.sum(tl.exp(values), axis=0))
    tl.store(out + offsets, result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def add_rms_norm(x, residual, weight, out, columns, eps, BLOCK: tl.constexpr):
    """The residual becomes the sum, which is rounded before it is normalised."""
    column = tl.arange(0, BLOCK)
    offsets = tl.program_id(0) * columns + column
    mask = column < columns
    total = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32)
    total += tl.load(residual + offsets, mask=mask, other=0.0).to(tl.float32)
    rounded = total.to(residual.dtype.element_ty)
    tl.store(residual + offsets, rounded, mask=mask)
    values = rounded.to(tl.float32)
    rstd = tl.rsqrt(tl.sum(values * values, axis=0) / columns + eps)
    scale = tl.load(weight + column, mask=mask).to(tl.float32)
    tl.store(out + offsets, (values * rstd * scale).to(out.dtype.element_ty), mask=mask)


@triton.jit
def group_norm(x, weight, bias, out, channels, inner, groups, eps, BLOCK: tl.constexpr):
    """A group of a sample a program, in pieces that are read twice. `channels` are those of a group."""
    group = tl.program_id(0) % groups
    size = channels * inner
    start = tl.program_id(0).to(tl.int64) * size
    sums = tl.zeros([BLOCK], tl.float32)
    squares = tl.zeros([BLOCK], tl.float32)
    for first in range(0, size, BLOCK):
        at = first + tl.arange(0, BLOCK)
        values = tl.load(x + start + at, mask=at < size, other=0.0).to(tl.float32)
        sums += values
        squares += values * values
    mean = tl.sum(sums, axis=0) / size
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / size - mean * mean + eps)
    for channel in range(channels):
        scale = tl.load(weight + group * channels + channel).to(tl.float32) * rstd
        shift = tl.load(bias + group * channels + channel).to(tl.float32)
        for first in range(0, inner, BLOCK):
            at = first + tl.arange(0, BLOCK)
            offsets = start + channel * inner + at
            values = tl.load(x + offsets, mask=at < inner, other=0.0).to(tl.float32)
            tl.store(out + offsets, ((values - mean) * scale + shift).to(out.dtype.element_ty), mask=at < inner)


@triton.jit
def kl_losses(x, y, losses, columns, BLOCK: tl.constexpr):
    """`sum(p (log p - log q))` of a row, of logarithms."""
    start = tl.program_id(0).to(tl.int64) * columns
    sums = tl.zeros([BLOCK], tl.float32)
    for first in range(0, columns, BLOCK):
        column = first + tl.arange(0, BLOCK)
        mask = column < columns
        log_q = tl.load(x + start + column, mask=mask, other=-float("inf")).to(tl.float32)
        log_p = tl.load(y + start + column, mask=mask, other=-float("inf")).to(tl.float32)
        sums += tl.where(mask, tl.exp(log_p) * (log_p - log_q), 0.0)
    tl.store(losses + tl.program_id(0), tl.sum(sums, axis=0))


@triton.jit
def kl_backward(y, out, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    p = tl.exp(tl.load(y + offsets, mask=mask).to(tl.float32))
    tl.store(out + offsets, (-p * factor).to(out.dtype.element_ty), mask=mask)


@triton.jit
def jsd(x, y, losses, dx, columns, factor, GRADIENT: tl.constexpr, BLOCK: tl.constexpr):
    """The divergence of a row to the mixture in equal parts, or its gradient."""
    start = tl.program_id(0).to(tl.int64) * columns
    sums = tl.zeros([BLOCK], tl.float32)
    for first in range(0, columns, BLOCK):
        column = first + tl.arange(0, BLOCK)
        mask = column < columns
        log_q = tl.load(x + start + column, mask=mask, other=0.0).to(tl.float32)
        log_p = tl.load(y + start + column, mask=mask, other=0.0).to(tl.float32)
        q = tl.exp(log_q)
        p = tl.exp(log_p)
        log_m = tl.log(0.5 * (p + q))
        of_q = 0.5 * q * (log_q - log_m)
        if GRADIENT:
            tl.store(dx + start + column, (of_q * factor).to(dx.dtype.element_ty), mask=mask)
        else:
            sums += tl.where(mask, 0.5 * p * (log_p - log_m) + of_q, 0.0)
    if not GRADIENT:
        tl.store(losses + tl.program_id(0), tl.sum(sums, axis=0))


@triton.jit
def embedding(table, ids, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < columns
    id = tl.load(ids + row).to(tl.int64)
    tl.store(out + row.to(tl.int64) * columns + column, tl.load(table + id * columns + column, mask=mask), mask=mask)


@triton.jit
def embedding_backward(dy, ids, dtable, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < columns
    id = tl.load(ids + row).to(tl.int64)
    values = tl.load(dy + row.to(tl.int64) * columns + column, mask=mask).to(tl.float32)
    tl.atomic_add(dtable + id * columns + column, values, mask=mask, sem="relaxed")


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
