"""Triton's kernels: each does the work of the Rust kernel of its name, by the same algorithm."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@triton.jit
def cos_sin(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask).to(tl.float32)
    tl.store(out + offsets, tl.sin(tl.cos(value)).to(out.dtype.element_ty), mask=mask)


@triton.jit
def gelu(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask).to(tl.float32)
    inner = 0.7978845608 * (value + 0.044715 * value * value * value)
    tl.store(out + offsets, (0.5 * value * (1.0 + libdevice.tanh(inner))).to(out.dtype.element_ty), mask=mask)


@triton.jit
def gelu_sigmoid(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask).to(tl.float32)
    inner = 0.7978845608 * (value + 0.044715 * value * value * value)
    tl.store(out + offsets, (value * tl.sigmoid(2.0 * inner)).to(out.dtype.element_ty), mask=mask)


@triton.jit
def swiglu(gate, up, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    u = tl.load(up + offsets, mask=mask).to(tl.float32)
    tl.store(out + offsets, (g * tl.sigmoid(g) * u).to(out.dtype.element_ty), mask=mask)


@triton.jit
def dropout(x, out, n, seed, p, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask).to(tl.float32)
    result = tl.where(tl.rand(seed, offsets) > p, value / (1.0 - p), 0.0)
    tl.store(out + offsets, result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    mask = column < columns
    offsets = tl.program_id(0) * columns + column
    row = tl.load(x + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(row - tl.max(row, axis=0))
    result = numerator / tl.sum(numerator, axis=0)
    tl.store(out + offsets, result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def softmax_online(x, out, columns, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    start = tl.program_id(0) * columns
    peaks = tl.full([BLOCK], -1e30, tl.float32)
    sums = tl.zeros([BLOCK], tl.float32)
    for first in range(0, columns, BLOCK):
        column = first + lane
        values = tl.load(x + start + column, mask=column < columns, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(peaks, values)
        sums = sums * tl.exp(peaks - higher) + tl.exp(values - higher)
        peaks = higher
    peak = tl.max(peaks, axis=0)
    total = tl.sum(sums * tl.exp(peaks - peak), axis=0)
    for first in range(0, columns, BLOCK):
        column = first + lane
        values = tl.load(x + start + column, mask=column < columns).to(tl.float32)
        tl.store(out + start + column, (tl.exp(values - peak) / total).to(out.dtype.element_ty), mask=column < columns)


@triton.jit
def layer_norm(x, weight, bias, out, means, rstds, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    offsets = row * columns + column
    values = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=0) / columns
    centred = tl.where(mask, values - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / columns
    rstd = tl.rsqrt(variance + eps)
    scale = tl.load(weight + column, mask=mask).to(tl.float32)
    shift = tl.load(bias + column, mask=mask).to(tl.float32)
    tl.store(out + offsets, (centred * rstd * scale + shift).to(out.dtype.element_ty), mask=mask)
    tl.store(means + row, mean)
    tl.store(rstds + row, rstd)


@triton.jit
def layer_norm_passes(x, weight, bias, out, means, rstds, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    start = row * columns
    sums = tl.zeros([BLOCK], tl.float32)
    for first in range(0, columns, BLOCK):
        column = first + lane
        sums += tl.load(x + start + column, mask=column < columns, other=0.0).to(tl.float32)
    mean = tl.sum(sums, axis=0) / columns
    squares = tl.zeros([BLOCK], tl.float32)
    for first in range(0, columns, BLOCK):
        column = first + lane
        values = tl.load(x + start + column, mask=column < columns, other=0.0).to(tl.float32)
        centred = tl.where(column < columns, values - mean, 0.0)
        squares += centred * centred
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / columns + eps)
    for first in range(0, columns, BLOCK):
        column = first + lane
        mask = column < columns
        values = tl.load(x + start + column, mask=mask, other=0.0).to(tl.float32)
        scale = tl.load(weight + column, mask=mask).to(tl.float32)
        shift = tl.load(bias + column, mask=mask).to(tl.float32)
        result = (values - mean) * rstd * scale + shift
        tl.store(out + start + column, result.to(out.dtype.element_ty), mask=mask)
    tl.store(means + row, mean)
    tl.store(rstds + row, rstd)


@triton.jit
def layer_norm_backward(
    dy, x, weight, means, rstds, dx, partial_weights, partial_biases, rows, columns, BLOCK: tl.constexpr
):
    column = tl.arange(0, BLOCK)
    mask = column < columns
    scale = tl.load(weight + column, mask=mask).to(tl.float32)
    weights = tl.zeros([BLOCK], tl.float32)
    biases = tl.zeros([BLOCK], tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        offsets = row * columns + column
        values = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32)
        gradient = tl.load(dy + offsets, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstds + row)
        normed = tl.where(mask, (values - tl.load(means + row)) * rstd, 0.0)
        scaled = scale * gradient
        along = tl.sum(normed * scaled, axis=0) / columns
        mean = tl.sum(scaled, axis=0) / columns
        tl.store(dx + offsets, ((scaled - (normed * along + mean)) * rstd).to(dx.dtype.element_ty), mask=mask)
        weights += gradient * normed
        biases += gradient
    offsets = tl.program_id(0) * columns + column
    tl.store(partial_weights + offsets, weights, mask=mask)
    tl.store(partial_biases + offsets, biases, mask=mask)


@triton.jit
def layer_norm_backward_locks(
    dx, partial_weights, partial_biases, dy, x, weight, means, rstds, locks, columns,
    GROUPS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The algorithm of Triton's tutorial 05: rows add into one of GROUPS rows of sums, each under a lock."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    offsets = row * columns + column
    group = row % GROUPS
    lock = locks + group
    count = locks + GROUPS + group
    values = tl.load(x + offsets, mask=mask, other=0).to(tl.float32)
    gradient = tl.load(dy + offsets, mask=mask, other=0).to(tl.float32)
    scale = tl.load(weight + column, mask=mask).to(tl.float32)
    rstd = tl.load(rstds + row)
    normed = tl.where(mask, (values - tl.load(means + row)) * rstd, 0.0)
    scaled = tl.where(mask, scale * gradient, 0.0)
    along = tl.sum(normed * scaled, axis=0) / columns
    mean = tl.sum(scaled, axis=0) / columns
    tl.store(dx + offsets, ((scaled - (normed * along + mean)) * rstd).to(dx.dtype.element_ty), mask=mask)
    weights = gradient * normed
    biases = gradient
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        weights += tl.load(partial_weights + group * columns + column, mask=mask)
        biases += tl.load(partial_biases + group * columns + column, mask=mask)
    tl.store(partial_weights + group * columns + column, weights, mask=mask)
    tl.store(partial_biases + group * columns + column, biases, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def layer_norm_finish(
    partial_weights, partial_biases, weight_gradient, bias_gradient, parts, columns, M: tl.constexpr, N: tl.constexpr
):
    column = tl.program_id(0) * N + tl.arange(0, N)
    inside = column < columns
    weights = tl.zeros([M, N], tl.float32)
    biases = tl.zeros([M, N], tl.float32)
    for first in range(0, parts, M):
        row = first + tl.arange(0, M)
        mask = (row < parts)[:, None] & inside[None, :]
        offsets = row[:, None] * columns + column[None, :]
        weights += tl.load(partial_weights + offsets, mask=mask, other=0.0)
        biases += tl.load(partial_biases + offsets, mask=mask, other=0.0)
    weights = tl.sum(weights, axis=0)
    biases = tl.sum(biases, axis=0)
    tl.store(weight_gradient + column, weights.to(weight_gradient.dtype.element_ty), mask=inside)
    tl.store(bias_gradient + column, biases.to(bias_gradient.dtype.element_ty), mask=inside)


@triton.jit
def rms_norm(x, weight, out, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    mask = column < columns
    offsets = tl.program_id(0) * columns + column
    values = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(values * values, axis=0) / columns + eps)
    scale = tl.load(weight + column, mask=mask).to(tl.float32)
    tl.store(out + offsets, (values * rstd * scale).to(out.dtype.element_ty), mask=mask)


@triton.jit
def rms_norm_passes(x, weight, out, columns, eps, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    start = tl.program_id(0) * columns
    squares = tl.zeros([BLOCK], tl.float32)
    for first in range(0, columns, BLOCK):
        column = first + lane
        values = tl.load(x + start + column, mask=column < columns, other=0.0).to(tl.float32)
        squares += values * values
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / columns + eps)
    for first in range(0, columns, BLOCK):
        column = first + lane
        mask = column < columns
        values = tl.load(x + start + column, mask=mask).to(tl.float32)
        scale = tl.load(weight + column, mask=mask).to(tl.float32)
        tl.store(out + start + column, (values * rstd * scale).to(out.dtype.element_ty), mask=mask)


@triton.jit
def cross_entropy(x, labels, losses, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    start = row * columns
    at_label = tl.load(x + start + tl.load(labels + row)).to(tl.float32)
    values = tl.load(x + start + column, mask=column < columns, other=-float("inf")).to(tl.float32)
    peak = tl.max(values, axis=0)
    tl.store(losses + row, tl.log(tl.sum(tl.exp(values - peak), axis=0)) + peak - at_label)


@triton.jit
def cross_entropy_online(x, labels, losses, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    start = row * columns
    at_label = tl.load(x + start + tl.load(labels + row)).to(tl.float32)
    peaks = tl.full([BLOCK], -1e30, tl.float32)
    sums = tl.zeros([BLOCK], tl.float32)
    for first in range(0, columns, BLOCK):
        column = first + lane
        values = tl.load(x + start + column, mask=column < columns, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(peaks, values)
        sums = sums * tl.exp(peaks - higher) + tl.exp(values - higher)
        peaks = higher
    peak = tl.max(peaks, axis=0)
    tl.store(losses + row, tl.log(tl.sum(sums * tl.exp(peaks - peak), axis=0)) + peak - at_label)


@triton.jit
def row_sum(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * columns + column, mask=column < columns, other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(0), tl.sum(values, axis=0))


@triton.jit
def row_sum_tiles(x, out, rows, columns, M: tl.constexpr, N: tl.constexpr):
    row = tl.program_id(0) * M + tl.arange(0, M)
    inside = row < rows
    sums = tl.zeros([M, N], tl.float32)
    for first in range(0, columns, N):
        column = first + tl.arange(0, N)
        mask = inside[:, None] & (column < columns)[None, :]
        sums += tl.load(x + row[:, None] * columns + column[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row, tl.sum(sums, axis=1), mask=inside)


@triton.jit
def column_sum(x, out, rows, columns, share, M: tl.constexpr, N: tl.constexpr):
    column = tl.program_id(0) * N + tl.arange(0, N)
    inside = column < columns
    start = tl.program_id(1) * share
    end = tl.minimum(start + share, rows)
    sums = tl.zeros([M, N], tl.float32)
    for first in range(start, end, M):
        row = first + tl.arange(0, M)
        mask = (row < end)[:, None] & inside[None, :]
        sums += tl.load(x + row[:, None] * columns + column[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(1) * columns + column, tl.sum(sums, axis=0), mask=inside)


@triton.jit
def transpose(x, out, rows, columns, M: tl.constexpr, N: tl.constexpr):
    row = tl.program_id(1) * M + tl.arange(0, M)
    column = tl.program_id(0) * N + tl.arange(0, N)
    inside_rows, inside_columns = row < rows, column < columns
    mask = inside_rows[:, None] & inside_columns[None, :]
    tile = tl.load(x + row[:, None] * columns + column[None, :], mask=mask)
    mask = inside_columns[:, None] & inside_rows[None, :]
    tl.store(out + column[:, None] * rows + row[None, :], tl.trans(tile), mask=mask)


@triton.jit
def gather(table, ids, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    id = tl.load(ids + row)
    tl.store(out + row * columns + column, tl.load(table + id * columns + column, mask=mask), mask=mask)


@triton.jit
def gather_tiles(table, ids, out, rows, columns, M: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.arange(0, BLOCK)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    id = tl.load(ids + row, mask=row < rows, other=0)
    values = tl.load(table + id[:, None] * columns + column[None, :], mask=mask)
    tl.store(out + row[:, None] * columns + column[None, :], values, mask=mask)


@triton.jit
def sort_rows(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@triton.jit
def topk_rows(x, out, BLOCK: tl.constexpr, K: tl.constexpr):
    row = tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.store(out + tl.program_id(0) * K + tl.arange(0, K), tl.topk(row, K))


@triton.jit
def cumsum_rows(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.cumsum(tl.load(x + at), axis=0))


@triton.jit
def gather_rows(x, ids, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(ids + at), axis=0))


@triton.jit
def histogram_parts(ids, out, share, BLOCK: tl.constexpr, BINS: tl.constexpr):
    start = tl.program_id(0) * share
    counts = tl.zeros([BINS], tl.int32)
    for first in range(0, share, BLOCK):
        at = first + tl.arange(0, BLOCK)
        inside = at < share
        counts += tl.histogram(tl.load(ids + start + at, mask=inside, other=0), BINS, mask=inside)
    tl.store(out + tl.program_id(0) * BINS + tl.arange(0, BINS), counts.to(tl.float32))


@triton.jit
def uniform(out, n, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.rand(seed, at), mask=at < n)


@triton.jit
def scaled_e4m3(a, a_scale, b, b_scale, out, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    acc = tl.zeros([M, N], tl.float32)
    for step in range(0, k // K):
        inner = step * K + tl.arange(0, K)
        blocks = step * (K // 32) + tl.arange(0, K // 32)
        x = tl.load(a + rows[:, None] * k + inner[None, :])
        s = tl.load(a_scale + rows[:, None] * (k // 32) + blocks[None, :])
        y = tl.load(b + columns[None, :] * k + inner[:, None])
        t = tl.load(b_scale + columns[:, None] * (k // 32) + blocks[None, :])
        acc = tl.dot_scaled(x, s, "e4m3", y, t, "e4m3", acc)
    tl.store(out + rows[:, None] * n + columns[None, :], acc)


@triton.jit
def scaled_e2m1(a, a_scale, b, b_scale, out, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    acc = tl.zeros([M, N], tl.float32)
    for step in range(0, k // K):
        pairs = step * (K // 2) + tl.arange(0, K // 2)
        blocks = step * (K // 32) + tl.arange(0, K // 32)
        x = tl.load(a + rows[:, None] * (k // 2) + pairs[None, :])
        s = tl.load(a_scale + rows[:, None] * (k // 32) + blocks[None, :])
        y = tl.load(b + columns[None, :] * (k // 2) + pairs[:, None])
        t = tl.load(b_scale + columns[:, None] * (k // 32) + blocks[None, :])
        acc = tl.dot_scaled(x, s, "e2m1", y, t, "e2m1", acc)
    tl.store(out + rows[:, None] * n + columns[None, :], acc)
