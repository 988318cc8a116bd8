"""One kernel of Triton as a cubin for sm_90, and folders of them with `index.tsv`; no GPU is needed."""

import os
from multiprocessing import Pool

import triton
from compile_matmul import SHARED, described
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


def cubin(folder, kernel, named, signature, constants, facts, stages, warps):
    """A line of the index, or why there is none. `named` is the work, the dtype and the configuration."""
    work, dtype, config = named
    try:
        source = ASTSource(kernel, signature, constants, facts)
        options = {"num_warps": warps, "num_stages": stages}
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    except Exception as error:  # What Triton cannot compile does not compete.
        return f"{work} {dtype} {config}: {type(error).__name__} {str(error)[:300]}"
    meta = compiled.metadata
    if meta.shared > SHARED:
        return f"{work} {dtype} {config}: {meta.shared} bytes of shared memory"
    file = f"{work}_{dtype}_{config.replace(' ', '_').replace('=', '')}.cubin"
    (folder / file).write_bytes(compiled.asm["cubin"])
    descriptors = ";".join(described(d) for d in meta.tensordesc_meta or [])
    row = [work, dtype, "aligned", config, meta.num_warps * 32, meta.shared, meta.name, file, descriptors]
    return row + [meta.global_scratch_size]


def write_all(folder, jobs, compile_one, only=()):
    """Compiles all jobs, on all cores, and writes the index. With `only`, other works keep their lines."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    with Pool(int(os.environ.get("JOBS", os.cpu_count()))) as pool:
        for line in pool.imap(compile_one, jobs, chunksize=1):
            if isinstance(line, str):
                print(line, flush=True)
            else:
                lines.append([str(field) for field in line])
    count = len(lines)
    index = folder / "index.tsv"
    if only and index.exists():
        kept = [line.split("\t") for line in index.read_text().splitlines()]
        lines = [line for line in kept if line[0] not in only] + lines
    index.write_text("".join("\t".join(line) + "\n" for line in lines))
    wanted = {line[7] for line in lines}
    for stale in folder.glob("*.cubin"):
        if stale.name not in wanted:
            stale.unlink()
    print(f"{count} of {len(jobs)}")
