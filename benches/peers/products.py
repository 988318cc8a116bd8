"""Triton's kernels for products of 8-bit floats with scales, of 4-bit weights and of mixtures of experts, written after the
algorithms that serving libraries use: pointers, tokens sorted by expert, sums scaled step by step."""

import triton
import triton.language as tl


@triton.jit
def corner(tile, m, n, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """The block of a program, which neighbours go down before the next column begins."""
    downs = tl.cdiv(m, BM)
    width = GROUP * tl.cdiv(n, BN)
    first = tile // width * GROUP
    height = min(downs - first, GROUP)
    return first + tile % width % height, tile % width // height


@triton.jit
def fp8_blocks(
    a, b, out, a_scales, b_scales, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):
    """`a` is [m, k], `b` is [n, k]; a scale for each row and 128 of `k`, and for each 128 by 128 of `b`."""
    row, column = corner(tl.program_id(0), m, n, BM, BN, GROUP)
    i = row * BM + tl.arange(0, BM)
    j = column * BN + tl.arange(0, BN)
    t = tl.arange(0, BK)
    steps = tl.cdiv(k, BK)
    left = a + (i % m)[:, None] * k + t[None, :]
    right = b + (j % n)[None, :] * k + t[:, None]
    a_scale = a_scales + (i % m) * steps
    b_scale = b_scales + (j % n) // 128 * steps
    acc = tl.zeros([BM, BN], tl.float32)
    for step in range(0, steps):
        x = tl.load(left, mask=t[None, :] < k - step * BK, other=0.0)
        y = tl.load(right, mask=t[:, None] < k - step * BK, other=0.0)
        acc += tl.dot(x, y) * tl.load(a_scale + step)[:, None] * tl.load(b_scale + step)[None, :]
        left += BK
        right += BK
    mask = (i < m)[:, None] & (j < n)[None, :]
    tl.store(out + i.to(tl.int64)[:, None] * n + j[None, :], acc.to(out.dtype.element_ty), mask=mask)


@triton.jit
def fp8_blocks_descriptor(
    a, b, out, a_scales, b_scales, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):
    """The same from descriptors; a tile lies in one block of scales of `b`."""
    row, column = corner(tl.program_id(0), m, n, BM, BN, GROUP)
    i = row * BM + tl.arange(0, BM)
    steps = tl.cdiv(k, BK)
    a_scale = a_scales + (i % m) * steps
    b_scale = b_scales + column * BN // 128 * steps
    acc = tl.zeros([BM, BN], tl.float32)
    for step in range(0, steps):
        x = a.load([row * BM, step * BK])
        y = b.load([column * BN, step * BK]).T
        acc += tl.dot(x, y) * (tl.load(a_scale + step) * tl.load(b_scale + step))[:, None]
    out.store([row * BM, column * BN], acc.to(out.dtype))


@triton.jit
def moe(
    a, b, out, weights, sorted_ids, owners, used, a_scales, b_scales, n, k, pairs, padded, CHOSEN: tl.constexpr,
    WEIGHTED: tl.constexpr, SCALED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    """The rows of `CHOSEN` experts for each token, gathered by sorted pairs: `a` is [pairs / CHOSEN, k], `b` is
    [experts, n, k], the result is [pairs, n]."""
    row, column = corner(tl.program_id(0), padded, n, BM, BN, GROUP)
    if row * BM >= tl.load(used):
        return
    pair = tl.load(sorted_ids + row * BM + tl.arange(0, BM)).to(tl.int64)
    inside = pair < pairs
    expert = tl.load(owners + row).to(tl.int64)
    j = (column * BN + tl.arange(0, BN)) % n
    t = tl.arange(0, BK)
    left = a + (pair // CHOSEN)[:, None] * k + t[None, :]
    right = b + expert * n * k + j[None, :] * k + t[:, None]
    steps = tl.cdiv(k, BK)
    acc = tl.zeros([BM, BN], tl.float32)
    if SCALED:
        a_scale = a_scales + pair // CHOSEN * steps
        b_scale = b_scales + (expert * tl.cdiv(n, 128) + j // 128) * steps
    for step in range(0, steps):
        x = tl.load(left, mask=inside[:, None] & (t[None, :] < k - step * BK), other=0.0)
        y = tl.load(right, mask=t[:, None] < k - step * BK, other=0.0)
        if SCALED:
            scale = tl.load(a_scale + step, mask=inside, other=0.0)
            acc += tl.dot(x, y) * scale[:, None] * tl.load(b_scale + step)[None, :]
        else:
            acc = tl.dot(x, y, acc)
        left += BK
        right += BK
    if WEIGHTED:
        acc *= tl.load(weights + pair, mask=inside, other=0.0)[:, None]
    column = column * BN + tl.arange(0, BN)
    mask = inside[:, None] & (column < n)[None, :]
    tl.store(out + pair[:, None] * n + column[None, :], acc.to(out.dtype.element_ty), mask=mask)


@triton.jit
def moe_silu(x, out, inner, BLOCK: tl.constexpr):
    """`silu` of the left half of a row times its right half."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < inner
    left = tl.load(x + row * 2 * inner + column, mask=mask).to(tl.float32)
    right = tl.load(x + row * 2 * inner + inner + column, mask=mask).to(tl.float32)
    tl.store(out + row * inner + column, (left * tl.sigmoid(left) * right).to(out.dtype.element_ty), mask=mask)


@triton.jit
def moe_sum(x, out, n, CHOSEN: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of the rows of a token's experts."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for choice in tl.static_range(CHOSEN):
        total += tl.load(x + (token * CHOSEN + choice) * n + column, mask=column < n, other=0.0).to(tl.float32)
    tl.store(out + token * n + column, total.to(out.dtype.element_ty), mask=column < n)


@triton.jit
def fp8_quantise(x, out, scales, groups, ROWS: tl.constexpr):
    """Groups of 128 as 8-bit floats, and what they were divided by."""
    group = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    offsets = group.to(tl.int64)[:, None] * 128 + tl.arange(0, 128)[None, :]
    mask = (group < groups)[:, None]
    values = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), axis=1), 1e-10) / 448.0
    result = tl.clamp(values / scale[:, None], -448.0, 448.0)
    tl.store(out + offsets, result.to(out.dtype.element_ty), mask=mask)
    tl.store(scales + group, scale, mask=group < groups)


@triton.jit
def awq(
    x, words, scales, zeros, out, m, n, k, group, splits, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    """`splits` programs share the sums of a tile, each leaves its own: [splits, m, n]. Words hold 8 columns of a row, those
    of even numbers first."""
    downs = tl.cdiv(n, BN)
    j = tl.program_id(0) % downs * BN + tl.arange(0, BN)
    i = tl.program_id(0) // downs * BM + tl.arange(0, BM)
    word = tl.program_id(0) % downs * (BN // 8) + tl.arange(0, BN // 8)
    t = tl.program_id(1) * BK + tl.arange(0, BK)
    order = (tl.arange(0, 2) * 4)[None, :] + tl.arange(0, 4)[:, None]
    shifts = tl.reshape(tl.broadcast_to((order * 4)[None, :, :], (BK * (BN // 8), 4, 2)), (BK, BN))
    left = x + i[:, None] * k + t[None, :]
    right = words + t[:, None] * (n // 8) + word[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    for step in range(0, tl.cdiv(k, BK * splits)):
        first = step * BK * splits + tl.program_id(1) * BK
        packed = tl.load(right)
        packed = tl.interleave(packed, packed)
        packed = tl.interleave(packed, packed)
        packed = tl.interleave(packed, packed)
        zero = tl.load(zeros + first // group * (n // 8) + word)
        zero = tl.interleave(zero, zero)
        zero = tl.interleave(zero, zero)
        zero = tl.broadcast_to(tl.interleave(zero, zero)[None, :], (BK, BN))
        number = ((packed >> shifts) & 15) - ((zero >> shifts) & 15)
        scale = tl.load(scales + first // group * n + j)
        weight = number.to(x.dtype.element_ty) * scale[None, :]
        acc = tl.dot(tl.load(left, mask=(i < m)[:, None], other=0.0), weight, acc)
        left += BK * splits
        right += BK * splits * (n // 8)
    part = tl.program_id(1) * m
    tl.store(out + (part + i)[:, None] * n + j[None, :], acc, mask=(i < m)[:, None] & (j < n)[None, :])


@triton.jit
def split_sum(parts, out, n, splits, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for part in range(splits):
        total += tl.load(parts + part * n + at, mask=at < n, other=0.0)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=at < n)
