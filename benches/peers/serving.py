"""Triton's attention of one query over keys in pages, after the way that serving libraries write it: a program takes the
heads that share keys, loads page numbers, and keeps the running maximum and sum of a softmax in registers."""

import triton
import triton.language as tl


@triton.jit
def paged_decode(
    q, k, v, table, lengths, out, scale, pages, heads, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    D: tl.constexpr, PAGE: tl.constexpr,
):
    """Caches are [pages, PAGE, heads, D], queries [sequences, heads * GROUP, D]; `pages` are those of a row of the table."""
    sequence = tl.program_id(1)
    head = tl.program_id(0)
    row = tl.arange(0, BM)
    column = tl.arange(0, D)
    at = (sequence * heads * GROUP + head * GROUP + row)[:, None] * D + column[None, :]
    query = tl.load(q + at, mask=(row < GROUP)[:, None], other=0.0)
    length = tl.load(lengths + sequence)
    peak = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    factor = scale * 1.4426950408889634
    for first in range(0, length, BN):
        key = first + tl.arange(0, BN)
        inside = key < length
        page = tl.load(table + sequence * pages + key // PAGE, mask=inside, other=0).to(tl.int64)
        start = (page * PAGE + key % PAGE) * heads * D + head * D
        keys = tl.load(k + start[None, :] + column[:, None], mask=inside[None, :], other=0.0).to(query.dtype)
        scores = tl.dot(query, keys) * factor
        scores = tl.where(inside[None, :], scores, -float("inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.math.exp2(scores - higher[:, None])
        old = tl.math.exp2(peak - higher)
        total = total * old + tl.sum(weights, 1)
        values = tl.load(v + start[:, None] + column[None, :], mask=inside[:, None], other=0.0).to(query.dtype)
        acc = tl.dot(weights.to(query.dtype), values, acc * old[:, None])
        peak = higher
    tl.store(out + at, (acc / total[:, None]).to(out.dtype.element_ty), mask=(row < GROUP)[:, None])
