"""Triton's flash attention, written after the algorithm of its tutorial 06: descriptors and two loops for the forward
pass, pointers and one kernel for both halves of the backward pass, blocks on the diagonal apart from those before it.

Tensors are [heads of all batches * length, D], without gaps.
"""

import triton
import triton.language as tl


@triton.jit
def absorb(acc, peak, total, x, k, v, at, first, row, factor, BN: tl.constexpr, MASK: tl.constexpr):
    """A block of keys."""
    scores = tl.dot(x, k.load([at, 0]).T)
    if MASK:
        seen = row[:, None] >= (first + tl.arange(0, BN))[None, :]
        scores = tl.where(seen, scores * factor, -1.0e6)
        higher = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.math.exp2(scores - higher[:, None])
    else:
        higher = tl.maximum(peak, tl.max(scores, 1) * factor)
        weights = tl.math.exp2(scores * factor - higher[:, None])
    old = tl.math.exp2(peak - higher)
    total = total * old + tl.sum(weights, 1)
    acc = tl.dot(weights.to(v.dtype), v.load([at, 0]), acc * old[:, None])
    return acc, higher, total


@triton.jit
def forward(
    q, k, v, out, lse, length, scale,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr, SPECIALIZE: tl.constexpr,
):
    """Programs of axis 0 take blocks of queries, those of axis 1 heads."""
    block = tl.program_id(0)
    base = tl.program_id(1) * length
    row = block * BM + tl.arange(0, BM)
    factor = scale * 1.4426950408889634
    peak = tl.full((BM,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    x = q.load([base + block * BM, 0])
    before = block * BM if CAUSAL else length
    for first in tl.range(0, before, BN, warp_specialize=SPECIALIZE):
        first = tl.multiple_of(first, BN)
        acc, peak, total = absorb(acc, peak, total, x, k, v, base + first, first, row, factor, BN, False)
    if CAUSAL:
        for first in tl.range(block * BM, (block + 1) * BM, BN, warp_specialize=SPECIALIZE):
            first = tl.multiple_of(first, BN)
            acc, peak, total = absorb(acc, peak, total, x, k, v, base + first, first, row, factor, BN, True)
    tl.store(lse + base + row, (peak + tl.math.log2(total)) * 0.6931471805599453)
    out.store([base + block * BM, 0], (acc / total[:, None]).to(out.dtype))


@triton.jit
def prepare(out, dout, lse, logs, deltas, length, BM: tl.constexpr, D: tl.constexpr):
    """The sums of out * dout, and logarithms to base 2."""
    row = tl.program_id(1) * length + tl.program_id(0) * BM + tl.arange(0, BM)
    at = row[:, None].to(tl.int64) * D + tl.arange(0, D)[None, :]
    products = tl.load(out + at).to(tl.float32) * tl.load(dout + at).to(tl.float32)
    tl.store(deltas + row, tl.sum(products, 1))
    tl.store(logs + row, tl.load(lse + row) * 1.4426950408889634)


@triton.jit
def keys_step(
    dk, dv, key, value, q, dout, logs, deltas, first, column, factor,
    BM: tl.constexpr, D: tl.constexpr, MASK: tl.constexpr,
):
    """A block of queries adds to the gradients of keys and values."""
    row = first + tl.arange(0, BM)
    at = row[:, None] * D + tl.arange(0, D)[None, :]
    turned = tl.load(q + row[None, :] * D + tl.arange(0, D)[:, None])
    weights = tl.math.exp2(tl.dot(key, turned) * factor - tl.load(logs + row)[None, :])
    if MASK:
        weights = tl.where(row[None, :] >= column[:, None], weights, 0.0)
    gradient = tl.load(dout + at)
    dv += tl.dot(weights.to(gradient.dtype), gradient)
    dweights = tl.dot(value, tl.trans(gradient)).to(tl.float32)
    dscores = weights * (dweights - tl.load(deltas + row)[None, :])
    dk += tl.dot(dscores.to(gradient.dtype), tl.trans(turned))
    return dk, dv


@triton.jit
def queries_step(
    dq, query, gradient, k, v, log, delta, first, row, factor,
    BN: tl.constexpr, D: tl.constexpr, MASK: tl.constexpr,
):
    """A block of keys adds to the gradients of queries."""
    column = first + tl.arange(0, BN)
    at = column[None, :] * D + tl.arange(0, D)[:, None]
    turned = tl.load(k + at)
    weights = tl.math.exp2(tl.dot(query, turned) * factor - log)
    if MASK:
        weights = tl.where(row[:, None] >= column[None, :], weights, 0.0)
    dweights = tl.dot(gradient, tl.load(v + at)).to(tl.float32)
    dscores = weights * (dweights - delta)
    dq += tl.dot(dscores.to(turned.dtype), tl.trans(turned))
    return dq


@triton.jit
def backward(
    q, k, v, dout, dq, dk, dv, logs, deltas, length, scale,
    BM1: tl.constexpr, BN1: tl.constexpr, BM2: tl.constexpr, BN2: tl.constexpr, D: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """A program computes the gradients of a block of keys and values, then those of the queries at the same place."""
    tl.static_assert(BN1 == BM2)
    rows = tl.program_id(1).to(tl.int64) * length
    base = rows * D
    q += base
    k += base
    v += base
    dout += base
    logs += rows
    deltas += rows
    factor = scale * 1.4426950408889634
    place = tl.program_id(0) * BN1
    own = place + tl.arange(0, BN1)
    at = own[:, None] * D + tl.arange(0, D)[None, :]

    key = tl.load(k + at)
    value = tl.load(v + at)
    dk_sum = tl.zeros((BN1, D), dtype=tl.float32)
    dv_sum = tl.zeros((BN1, D), dtype=tl.float32)
    begin = 0
    if CAUSAL:
        begin = place + BN1
        for first in range(place, place + BN1, BM1):
            dk_sum, dv_sum = keys_step(
                dk_sum, dv_sum, key, value, q, dout, logs, deltas, first, own, factor, BM1, D, True)
    for first in range(begin, length, BM1):
        dk_sum, dv_sum = keys_step(
            dk_sum, dv_sum, key, value, q, dout, logs, deltas, first, own, factor, BM1, D, False)
    tl.store(dv + base + at, dv_sum.to(value.dtype))
    tl.store(dk + base + at, (dk_sum * scale).to(value.dtype))

    query = tl.load(q + at)
    gradient = tl.load(dout + at)
    log = tl.load(logs + own)[:, None]
    delta = tl.load(deltas + own)[:, None]
    dq_sum = tl.zeros((BM2, D), dtype=tl.float32)
    end = length
    if CAUSAL:
        end = place
        for first in range(place, place + BM2, BN2):
            dq_sum = queries_step(dq_sum, query, gradient, k, v, log, delta, first, own, factor, BN2, D, True)
    for first in range(0, end, BN2):
        dq_sum = queries_step(dq_sum, query, gradient, k, v, log, delta, first, own, factor, BN2, D, False)
    tl.store(dq + base + at, (dq_sum * scale).to(query.dtype))
