"""Compiles the peers of the library's families to cubins for sm_90, without a GPU.

    python3 -m pip install triton==3.6.0
    python3 benches/peers/compile_families.py benches/peers/cubins/families [WORK,WORK..]

Writes one cubin per configuration and `index.tsv`, with the columns of `compile_matmul.py`.
"""

import sys
from pathlib import Path

import kernels
import products
import rows
import serving
from cubin import cubin, write_all

B = "*bf16"
H = "*fp16"
F = "*fp32"
I = "*i32"
E = "*fp8e4nv"
# A size that is divisible by 16, and a number that need not be.
N = "i32"
ODD = "i32 odd"
X = "fp32"

ELEMENTWISE = [(512, 4), (1024, 4), (1024, 8), (2048, 8), (4096, 8)]
PIECES = [(4096, 8), (8192, 8), (8192, 16), (16384, 16), (32768, 32)]


def row_jobs():
    """Kernel, work, dtype, types of its parameters, constexprs, stages, warps."""

    def of(kernel, work, types, configurations, dtype="bf16", **constants):
        for block, warps in configurations:
            yield kernel, work, dtype, types, {**constants, "BLOCK": block}, 3, warps

    whole = {4096: [(4096, 4), (4096, 8), (4096, 16)], 8192: [(8192, 4), (8192, 8), (8192, 16)]}
    yield from of(kernels.softmax, "softmax", [B, B, N], whole[8192])
    for logarithm in (False, True):
        work = "log_softmax_backward" if logarithm else "softmax_backward"
        yield from of(rows.softmax_backward, work, [B, B, B, N], whole[8192], LOGARITHM=logarithm)
    yield from of(rows.log_softmax, "log_softmax", [B, B, N], whole[8192])
    yield from of(kernels.layer_norm, "layer_norm", [B, B, B, B, F, F, N, X], whole[4096])
    yield from of(kernels.layer_norm_backward, "layer_norm_backward", [B, B, B, F, F, B, F, F, N, N], whole[4096])
    finish = {"M": 32, "N": 32}
    yield kernels.layer_norm_finish, "layer_norm_finish", "bf16", [F, F, B, B, ODD, N], finish, 3, 4
    yield from of(kernels.rms_norm, "rms_norm", [B, B, B, N, X], whole[4096])
    yield from of(rows.add_rms_norm, "add_rms_norm", [B, B, B, B, N, X], whole[4096])
    yield from of(rows.rms_norm_backward, "rms_norm_backward", [B, B, B, F, B, F, N, N], whole[4096])
    yield rows.rms_norm_finish, "rms_norm_finish", "bf16", [F, B, ODD, N], finish, 3, 4
    yield from of(rows.group_norm, "group_norm", [B, B, B, B, N, N, N, X], [(512, 4), (1024, 4), (1024, 8), (2048, 8)])
    for gelu in (False, True):
        work = "geglu" if gelu else "swiglu"
        yield from of(rows.gated, work, [B, B, B, N], ELEMENTWISE, GELU=gelu)
        back = {"COLUMNS": 0, "GELU": gelu}
        yield from of(rows.gated_backward, work + "_backward", [B, B, B, B, B, N], ELEMENTWISE, **back)
        by_rows = [(16384, 8), (16384, 16), (16384, 32)]
        back = {"COLUMNS": 11008, "GELU": gelu}
        yield from of(rows.gated_backward, work + "_backward", [B, B, B, B, B, N], by_rows, **back)
    yield from of(kernels.dropout, "dropout", [B, B, N, ODD, X], ELEMENTWISE)
    for warps in (1, 2, 4, 8):
        constants = {"HEADS": 32, "HALF": 64}
        yield rows.rotary, "rotary", "bf16", [B, F, F, B, N, N], constants, 3, warps
    yield from of(kernels.cross_entropy_online, "cross_entropy", [B, I, F, N], PIECES)
    yield from of(rows.cross_entropy_gradient, "cross_entropy_gradient", [B, I, F, B, N, X], PIECES)
    yield from of(rows.kl_losses, "kl_divergence", [B, B, F, N], PIECES[:4] + [(2048, 4)])
    yield from of(rows.kl_backward, "kl_divergence_backward", [B, B, N, X], ELEMENTWISE)
    for gradient in (False, True):
        work = "jsd_backward" if gradient else "jsd"
        yield from of(rows.jsd, work, [B, B, F, B, N, X], PIECES[:4] + [(2048, 4)], GRADIENT=gradient)
    blocks = [(512, 4), (1024, 4), (2048, 4), (4096, 8)]
    yield from of(rows.embedding, "embedding", [B, I, B, N], blocks)
    yield from of(rows.embedding_backward, "embedding_backward", [B, I, F, N], blocks)


MOE = [(64, 64, 4, 4), (64, 128, 4, 4), (128, 64, 4, 4), (128, 128, 3, 8), (128, 128, 4, 8), (128, 256, 3, 8)]


def product_jobs():
    types = [E, E, B, F, F, N, N, N]
    for bm, bn, stages, warps in [(64, 128, 3, 4), (64, 128, 4, 4), (128, 128, 3, 8), (128, 128, 4, 8), (128, 64, 4, 4)]:
        constants = {"BM": bm, "BN": bn, "BK": 128, "GROUP": 8}
        yield products.fp8_blocks, "fp8_blocks", "f8e4m3", types, constants, stages, warps
        tiles = [f"tensordesc<fp8e4nv[{bm}, 128]>", f"tensordesc<fp8e4nv[{bn}, 128]>", f"tensordesc<bf16[{bm}, {bn}]>"]
        described_types = tiles + types[3:]
        yield products.fp8_blocks_descriptor, "fp8_blocks_descriptor", "f8e4m3", described_types, constants, stages, warps
    for chosen, weighted in ((8, False), (1, True)):
        work = "moe_down" if weighted else "moe_up"
        for bm, bn, stages, warps in MOE:
            for bk in (32, 64):
                constants = {"CHOSEN": chosen, "WEIGHTED": weighted, "SCALED": False}
                constants |= {"BM": bm, "BN": bn, "BK": bk, "GROUP": 8}
                types = [H, H, H, F, I, I, I, F, F, N, N, N, N]
                yield products.moe, work, "f16", types, constants, stages, warps
        for bm, bn, stages, warps in MOE[:5]:
            constants = {"CHOSEN": chosen, "WEIGHTED": weighted, "SCALED": True}
            constants |= {"BM": bm, "BN": bn, "BK": 128, "GROUP": 8}
            types = [E, E, H, F, I, I, I, F, F, N, N, N, N]
            yield products.moe, work, "f8e4m3", types, constants, stages, warps
    yield products.moe_silu, "moe_silu", "f16", [H, H, N], {"BLOCK": 1024}, 3, 4
    yield products.moe_sum, "moe_sum", "f16", [H, H, N], {"CHOSEN": 8, "BLOCK": 1024}, 3, 4
    yield products.fp8_quantise, "fp8_quantise", "f16", [H, E, F, N], {"ROWS": 8}, 3, 4
    for bn, bk, stages, warps in [(64, 64, 4, 4), (128, 64, 4, 4), (128, 64, 3, 8), (64, 128, 4, 4), (128, 128, 3, 4)]:
        types = [H, I, H, I, F, ODD, N, N, N, ODD]
        yield products.awq, "awq", "f16", types, {"BM": 16, "BN": bn, "BK": bk}, stages, warps
    yield products.split_sum, "split_sum", "f16", [F, H, N, ODD], {"BLOCK": 1024}, 3, 4


def serving_jobs():
    for cache, dtype in ((H, "f16"), (E, "f8e4m3")):
        for page in (16, 64):
            for bn, stages, warps in [(16, 3, 4), (32, 3, 4), (64, 2, 4), (64, 3, 4), (64, 3, 8), (128, 3, 4), (128, 2, 8)]:
                constants = {"GROUP": 8, "BM": 16, "BN": bn, "D": 128, "PAGE": page}
                types = [H, cache, cache, I, I, H, X, N, ODD]
                yield serving.paged_decode, "paged_decode", dtype, types, constants, stages, warps


def all_jobs():
    yield from row_jobs()
    yield from product_jobs()
    yield from serving_jobs()


def compile_one(job):
    """A line of the index, or why there is none."""
    folder, number = job
    kernel, work, dtype, types, constants, stages, warps = list(all_jobs())[number]
    config = " ".join(f"{key}={int(value)}" for key, value in constants.items()) + f" stages={stages} warps={warps}"
    names = [name for name in kernel.arg_names if name not in constants]
    assert len(names) == len(types), f"{work}: {names} are {types}"
    kinds = dict(zip(names, types)) | {name: "constexpr" for name in constants}
    kinds = {name: kinds[name] for name in kernel.arg_names}
    divisible = [i for i, kind in enumerate(kinds.values()) if kind == N or kind.startswith("*")]
    facts = {(i,): [["tt.divisibility", 16]] for i in divisible}
    signature = {name: kind.split(" odd")[0] for name, kind in kinds.items()}
    return cubin(folder, kernel, (work, dtype, config), signature, constants, facts, stages, warps)


def main(folder, only):
    jobs = [(folder, i) for i, job in enumerate(all_jobs()) if not only or job[1] in only]
    write_all(folder, jobs, compile_one, only)


if __name__ == "__main__":
    arguments = sys.argv[1:] + ["", ""]
    main(Path(arguments[0] or "benches/peers/cubins/families"), [w for w in arguments[1].split(",") if w])
