"""Compiles Triton's attention to cubins for sm_90, without a GPU.

    python3 -m pip install triton==3.6.0
    python3 benches/peers/compile_attention.py benches/peers/cubins/attention

Writes one cubin per configuration and `index.tsv`, with the columns of `compile_matmul.py`.
"""

import sys
from pathlib import Path

import attention
from cubin import cubin, write_all

DTYPES = {"f16": "fp16", "bf16": "bf16"}
# BM, BN, stages, warps.
FORWARD = [(128, 128, 2, 8), (128, 128, 3, 8), (128, 64, 3, 8), (128, 64, 4, 8), (128, 64, 3, 4), (64, 64, 3, 4),
           (128, 32, 4, 8), (64, 128, 3, 4)]
# BM1, BN1 (= BM2), BN2, stages, warps; the first is the tutorial's.
BACKWARD = [(32, 128, 32, 5, 4), (32, 128, 32, 3, 8), (64, 128, 64, 2, 8), (64, 128, 64, 3, 8), (32, 64, 32, 3, 4),
            (64, 64, 64, 3, 4)]


def configurations():
    """Kernel, name of the work, dtype, constexprs, stages, warps."""
    for dtype in DTYPES:
        for d in (64, 128):
            yield "prepare", "attention_prepare", dtype, {"BM": 64, "D": d}, 1, 4
            for causal in (False, True):
                for bm, bn, stages, warps in FORWARD:
                    for specialize in (False, True):
                        constants = {"BM": bm, "BN": bn, "D": d, "CAUSAL": causal, "SPECIALIZE": specialize}
                        yield "forward", "attention", dtype, constants, stages, warps
                for bm, bn, bn2, stages, warps in BACKWARD:
                    constants = {"BM1": bm, "BN1": bn, "BM2": bn, "BN2": bn2, "D": d, "CAUSAL": causal}
                    yield "backward", "attention_backward", dtype, constants, stages, warps


def signature(name, dtype, constants):
    element = DTYPES[dtype]
    kernel = getattr(attention, name)
    types = {name: f"*{element}" for name in kernel.arg_names}
    types.update({name: "*fp32" for name in ("lse", "logs", "deltas") if name in types})
    types.update({name: kind for name, kind in (("length", "i32"), ("scale", "fp32")) if name in types})
    if name == "forward":
        block = {"q": constants["BM"], "k": constants["BN"], "v": constants["BN"], "out": constants["BM"]}
        types.update({t: f"tensordesc<{element}[{rows}, {constants['D']}]>" for t, rows in block.items()})
    return types | {name: "constexpr" for name in constants}


def compile_one(job):
    """A line of the index, or why there is none."""
    folder, (name, work, dtype, constants, stages, warps) = job
    config = " ".join(f"{key}={int(value)}" for key, value in constants.items()) + f" stages={stages} warps={warps}"
    types = signature(name, dtype, constants)
    facts = {(i,): [["tt.divisibility", 16]] for i, t in enumerate(types.values()) if t == "i32" or t.startswith("*")}
    return cubin(folder, getattr(attention, name), (work, dtype, config), types, constants, facts, stages, warps)


def main(folder):
    write_all(folder, [(folder, c) for c in configurations()], compile_one)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benches/peers/cubins/attention"))
