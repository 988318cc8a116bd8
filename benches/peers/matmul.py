"""Triton's matrix products: `c = a @ b`, in the forms that its users write.

`a` is row-major `[m, k]`. `b` is row-major `[k, n]`, or with `B_K_MAJOR` its transpose is, so that both operands are
contiguous along `k`. With `BATCHED`, axis 1 of the grid counts matrices that follow one another in memory.
"""

import triton
import triton.language as tl


@triton.jit
def place(tile, m, n, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """The tile's row and column: down GROUP rows of tiles, then to the next column, so that the L2 cache serves more."""
    rows = tl.cdiv(m, BM)
    columns = tl.cdiv(n, BN)
    group = tile // (GROUP * columns)
    first = group * GROUP
    height = min(rows - first, GROUP)
    return first + (tile % (GROUP * columns)) % height, (tile % (GROUP * columns)) // height


@triton.jit
def pointer(
    a, b, c, m, n, k, stride_a, stride_b, stride_c,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    B_K_MAJOR: tl.constexpr, BATCHED: tl.constexpr,
):
    """Tiles of pointers that advance along k; out of range rows and columns wrap around, as in tutorial 03."""
    row, column = place(tl.program_id(0), m, n, BM, BN, GROUP)
    if BATCHED:
        matrix = tl.program_id(1).to(tl.int64)
        a += matrix * m * stride_a
        b += matrix * (n if B_K_MAJOR else k) * stride_b
        c += matrix * m * stride_c
    i = (row * BM + tl.arange(0, BM)) % m
    j = (column * BN + tl.arange(0, BN)) % n
    along = tl.arange(0, BK)
    pa = a + (i[:, None] * stride_a + along[None, :])
    pb = b + (along[:, None] + j[None, :] * stride_b if B_K_MAJOR else along[:, None] * stride_b + j[None, :])
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, BK)):
        x = tl.load(pa, mask=along[None, :] < k - step * BK, other=0.0)
        y = tl.load(pb, mask=along[:, None] < k - step * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        pa += BK
        pb += BK if B_K_MAJOR else BK * stride_b
    i = row * BM + tl.arange(0, BM)
    j = column * BN + tl.arange(0, BN)
    inside = (i[:, None] < m) & (j[None, :] < n)
    tl.store(c + stride_c * i[:, None] + j[None, :], acc.to(c.dtype.element_ty), mask=inside)


@triton.jit
def descriptor(
    a, b, c, m, n, k,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    B_K_MAJOR: tl.constexpr, BATCHED: tl.constexpr,
):
    """Tensor descriptors made on the host, one tile per program."""
    row, column = place(tl.program_id(0), m, n, BM, BN, GROUP)
    i = row * BM
    j = column * BN
    a_first = i
    b_first = 0
    if BATCHED:
        a_first += tl.program_id(1) * m
        b_first = tl.program_id(1) * (n if B_K_MAJOR else k)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, BK)):
        x = a.load([a_first, step * BK])
        if B_K_MAJOR:
            y = b.load([b_first + j, step * BK]).T
        else:
            y = b.load([b_first + step * BK, j])
        acc = tl.dot(x, y, acc)
    c.store([a_first, j], acc.to(c.dtype))


@triton.jit
def persistent(
    a, b, c, m, n, k,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    B_K_MAJOR: tl.constexpr, HALVES: tl.constexpr, FLATTEN: tl.constexpr,
):
    """One program per multiprocessor, each with a stride of tiles. HALVES stores the tile in two pieces, which frees
    shared memory."""
    tiles = tl.cdiv(m, BM) * tl.cdiv(n, BN)
    steps = tl.cdiv(k, BK)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        row, column = place(tile, m, n, BM, BN, GROUP)
        i = row * BM
        j = column * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(steps):
            x = a.load([i, step * BK])
            if B_K_MAJOR:
                y = b.load([j, step * BK]).T
            else:
                y = b.load([step * BK, j])
            acc = tl.dot(x, y, acc)
        if HALVES:
            left, right = acc.reshape((BM, 2, BN // 2)).permute(0, 2, 1).split()
            c.store([i, j], left.to(c.dtype))
            c.store([i, j + BN // 2], right.to(c.dtype))
        else:
            c.store([i, j], acc.to(c.dtype))


@triton.jit
def specialized(
    a, b, c, m, n, k, stride_a, stride_b, stride_c,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    B_K_MAJOR: tl.constexpr, HALVES: tl.constexpr,
):
    """As `persistent`, with descriptors made on the device and producer and consumer warps, which Triton 3.6 has for
    these only."""
    da = tl.make_tensor_descriptor(a, [m, k], [stride_a, 1], [BM, BK])
    if B_K_MAJOR:
        db = tl.make_tensor_descriptor(b, [n, k], [stride_b, 1], [BN, BK])
    else:
        db = tl.make_tensor_descriptor(b, [k, n], [stride_b, 1], [BK, BN])
    dc = tl.make_tensor_descriptor(c, [m, n], [stride_c, 1], [BM, BN // 2 if HALVES else BN])
    tiles = tl.cdiv(m, BM) * tl.cdiv(n, BN)
    steps = tl.cdiv(k, BK)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=False, warp_specialize=True):
        row, column = place(tile, m, n, BM, BN, GROUP)
        i = row * BM
        j = column * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(steps):
            x = da.load([i, step * BK])
            if B_K_MAJOR:
                y = db.load([j, step * BK]).T
            else:
                y = db.load([step * BK, j])
            acc = tl.dot(x, y, acc)
        if HALVES:
            left, right = acc.reshape((BM, 2, BN // 2)).permute(0, 2, 1).split()
            dc.store([i, j], left.to(dc.dtype))
            dc.store([i, j + BN // 2], right.to(dc.dtype))
        else:
            dc.store([i, j], acc.to(dc.dtype))
