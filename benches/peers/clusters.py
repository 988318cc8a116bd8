"""What clusters of programs bring to matrix products: cuBLAS's best kernels, each with several cluster shapes, and Triton's
`num_ctas`.

    python3 benches/peers/clusters.py --out clusters.csv [--seconds 60]

For each size cuBLASLt's heuristics name their best algorithms. Each is timed with every cluster shape that cuBLASLt accepts for
it, everything else equal. Times are medians of interleaved rounds with a cold L2 cache, on random data, f16 with sums in f32.
"""

import argparse
import ctypes
import csv
import glob
import os
import statistics
import time

import torch
import triton
import triton.language as tl

WORKSPACE = 1
TILE, CLUSTER = 1, 8
R_32F, R_16F, COMPUTE_32F = 0, 2, 68
SHAPES = {2: "1x1", 3: "2x1", 5: "1x2", 6: "2x2", 4: "4x1", 8: "1x4"}
SIZES = [(4096, 4096, 4096), (8192, 8192, 8192), (8192, 8192, 1024), (2048, 14336, 4096), (16384, 4096, 4096)]


class Heuristic(ctypes.Structure):
    _fields_ = [
        ("algo", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


def library():
    places = [os.path.dirname(torch.__file__) + "/../nvidia/*/lib/libcublasLt.so.*", "/usr/local/cuda*/lib64/libcublasLt.so.*"]
    found = [path for place in places for path in sorted(glob.glob(place))]
    return ctypes.CDLL(found[0] if found else "libcublasLt.so")


def check(status, what):
    if status != 0:
        raise RuntimeError(f"{what}: status {status}")


class Product:
    """`c = a b` of row-major f16 matrices."""

    def __init__(self, lt, handle, m, n, k):
        self.lt, self.handle = lt, handle
        make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.float16)
        self.a, self.b, self.c = make(m, k), make(k, n), make(m, n)
        self.want = self.a @ self.b
        self.desc = ctypes.c_void_p()
        check(lt.cublasLtMatmulDescCreate(ctypes.byref(self.desc), COMPUTE_32F, R_32F), "desc")
        # Column by column, the transposed product.
        self.layouts = []
        for rows, columns in [(n, k), (k, m), (n, m)]:
            layout = ctypes.c_void_p()
            create = lt.cublasLtMatrixLayoutCreate
            create.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64]
            check(create(ctypes.byref(layout), R_16F, rows, columns, rows), "layout")
            self.layouts.append(layout)
        self.space = torch.empty(32 << 20, device="cuda", dtype=torch.uint8)

    def algorithms(self, count):
        lt, preference = self.lt, ctypes.c_void_p()
        check(lt.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)), "preference")
        size = ctypes.c_uint64(self.space.numel())
        check(lt.cublasLtMatmulPreferenceSetAttribute(preference, WORKSPACE, ctypes.byref(size), 8), "workspace")
        found, got = (Heuristic * count)(), ctypes.c_int()
        b, a, c = self.layouts
        status = lt.cublasLtMatmulAlgoGetHeuristic(
            self.handle, self.desc, b, a, c, c, preference, count, found, ctypes.byref(got)
        )
        check(status, "heuristic")
        return [found[i] for i in range(got.value) if found[i].state == 0]

    def with_cluster(self, algorithm, shape):
        """The algorithm with that shape of clusters; `None` where there is no such kernel."""
        algo = (ctypes.c_uint64 * 8)(*algorithm.algo)
        value, result = ctypes.c_uint16(shape), Heuristic()
        if self.lt.cublasLtMatmulAlgoConfigSetAttribute(algo, CLUSTER, ctypes.byref(value), 2) != 0:
            return None
        b, a, c = self.layouts
        status = self.lt.cublasLtMatmulAlgoCheck(self.handle, self.desc, b, a, c, c, algo, ctypes.byref(result))
        return algo if status == 0 and result.workspace <= self.space.numel() else None

    def attribute(self, algo, which, kind):
        value, written = kind(), ctypes.c_size_t()
        self.lt.cublasLtMatmulAlgoConfigGetAttribute(algo, which, ctypes.byref(value), ctypes.sizeof(value), ctypes.byref(written))
        return value.value

    def run(self, algo):
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        b, a, c = self.layouts
        pointer = lambda tensor: ctypes.c_void_p(tensor.data_ptr())
        status = self.lt.cublasLtMatmul(
            self.handle, self.desc, ctypes.byref(one), pointer(self.b), b, pointer(self.a), a, ctypes.byref(zero),
            pointer(self.c), c, pointer(self.c), c, algo, pointer(self.space), ctypes.c_size_t(self.space.numel()),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )
        check(status, "matmul")


def race(runs, seconds):
    """Medians in ms of interleaved rounds, the L2 cache flushed before each run."""
    flush = torch.empty(256 << 20, device="cuda", dtype=torch.uint8)
    times, end = {name: [] for name in runs}, time.time() + seconds
    while time.time() < end or len(next(iter(times.values()))) < 5:
        for name, run in runs.items():
            flush.zero_()
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            stop.record()
            stop.synchronize()
            times[name].append(start.elapsed_time(stop))
    return {name: statistics.median(all) for name, all in times.items()}


@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    x = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    y = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    z = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    i, j = tl.program_id(0) // tl.cdiv(N, BN), tl.program_id(0) % tl.cdiv(N, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for at in tl.range(0, K, BK):
        acc = tl.dot(x.load([i * BM, at]), y.load([at, j * BN]), acc)
    z.store([i * BM, j * BN], acc.to(tl.float16))


def triton_runs(m, n, k):
    """Triton's persistent product by descriptors, with one and with two programs to a cluster."""
    triton.set_allocator(lambda size, align, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    a, b = torch.randn(m, k, device="cuda", dtype=torch.float16), torch.randn(k, n, device="cuda", dtype=torch.float16)
    want, runs = a @ b, {}
    for ctas in [1, 2]:
        c = torch.empty(m, n, device="cuda", dtype=torch.float16)
        bm = 128 * ctas
        launch = lambda c=c, bm=bm, ctas=ctas: product[(triton.cdiv(m, bm) * triton.cdiv(n, 256),)](
            a, b, c, m, n, k, bm, 256, 64, num_warps=8, num_stages=3, num_ctas=ctas
        )
        try:
            launch()
            torch.cuda.synchronize()
            torch.testing.assert_close(c, want, atol=0.5, rtol=0.02)
            runs["triton", f"{ctas}x1"] = launch
        except Exception as error:
            print(f"triton num_ctas={ctas}: {type(error).__name__}: {str(error).splitlines()[0][:150]}")
    return runs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    lt, handle = library(), ctypes.c_void_p()
    check(lt.cublasLtCreate(ctypes.byref(handle)), "create")
    rows = []
    for m, n, k in SIZES:
        product, runs, info = Product(lt, handle, m, n, k), {}, {}
        for index, algorithm in enumerate(product.algorithms(6)):
            for shape, name in SHAPES.items():
                algo = product.with_cluster(algorithm, shape)
                if algo is None:
                    continue
                product.c.zero_()
                try:
                    product.run(algo)
                except RuntimeError:
                    continue
                torch.testing.assert_close(product.c, product.want, atol=0.5, rtol=0.02)
                tile = product.attribute(algo, TILE, ctypes.c_uint32)
                key = f"cublas {index}"
                runs[key, name] = lambda algo=algo, product=product: product.run(algo)
                info[key] = tile
        runs.update(triton_runs(m, n, k))
        times = race(runs, args.seconds / len(SIZES))
        for (who, shape), ms in times.items():
            rows.append([f"{m}x{n}x{k}", who, info.get(who, ""), shape, f"{ms:.5f}", f"{2e-9 * m * n * k / ms:.1f}"])
        best = {}
        for (_, shape), ms in [item for item in times.items() if item[0][0].startswith("cublas")]:
            best[shape] = min(ms, best.get(shape, ms))
        alone = best.get("1x1")
        gains = ", ".join(f"{shape} {alone / ms:.3f}" for shape, ms in best.items()) if alone else f"none without: {best}"
        print(f"{m}x{n}x{k}: the best of cuBLAS, against its best without clusters: {gains}", flush=True)
        for (who, shape), ms in times.items():
            if who.startswith("triton"):
                print(f"    {who}, clusters of {shape}: {2e-9 * m * n * k / ms:.1f} TFLOP/s")
    with open(args.out, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["size", "kernel", "tile", "cluster", "ms", "TFLOP/s"])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
