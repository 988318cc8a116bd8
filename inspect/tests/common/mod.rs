//! An archive that was just built, and NVIDIA's programs where they are.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kernel_archive::Entry;
use tilewright::archive::{ArchiveBuilder, Ptxas};
use tilewright::launch::{AssumedScalar, Nvdisasm};
use tilewright::prelude::*;
use tilewright_inspect::machine::Tools;

/// x * x, of which it takes a function to show what was inlined.
#[device]
fn squared<const N: usize>(x: Tile<f32, { [N] }>) -> Tile<f32, { [N] }> {
    let product = x * x;
    product
}

/// out[i] = x[i] + y[i]
#[kernel]
fn add<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    let sum = load(x + offsets, mask = mask) + load(y + offsets, mask = mask);
    store(out + offsets, sum, mask = mask);
}

/// The norm of each row, by which it is divided.
#[kernel]
fn normalise<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, columns: i32) {
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let row = load(x + program_id(0) * columns + column, mask = mask, other = 0.0);
    let norm = sqrt(sum(squared(row), axis = 0));
    store(out + program_id(0) * columns + column, row / norm, mask = mask);
}

/// `a @ b` of whole tiles.
#[kernel]
fn matmul<const BM: usize, const BN: usize, const BK: usize>(
    a: TensorDesc<f16, { [BM, BK] }>,
    b: TensorDesc<f16, { [BK, BN] }>,
    c: TensorDescMut<f16, { [BM, BN] }>,
    k: i32,
) {
    let (i, j) = (program_id(0) * BM, program_id(1) * BN);
    let mut acc = zeros::<f32>([BM, BN]);
    for t in (0..k).step_by(BK) {
        acc = dot(a.load([i, t]), b.load([t, j]), acc = acc);
    }
    c.store([i, j], acc as f16);
}

/// The variants of an archive: two of `add` that launches meet the conditions of, two that check everything, and others.
pub fn entries() -> Vec<Entry> {
    static ENTRIES: OnceLock<Vec<Entry>> = OnceLock::new();
    let read = || {
        let path = std::env::temp_dir().join(format!("tilewright-inspect-{}.twa", std::process::id()));
        build().write(&path).expect("written");
        let entries = tilewright_inspect::read(&path).expect("an archive");
        let _ = std::fs::remove_file(&path);
        entries
    };
    ENTRIES.get_or_init(read).clone()
}

/// Variants of one kernel that were compiled with line information, with machine code.
#[allow(dead_code)] // Each program of tests has its own copy of this module.
pub fn with_lines(ptxas: Ptxas) -> Vec<Entry> {
    let mut archive = ArchiveBuilder::new();
    let request = NormaliseConsts { BLOCK: 1024 }.request().line_info(true);
    archive.machine_code(ptxas).add(request, &[Target::sm_90a()]).expect("compiled");
    kernel_archive::read(&archive.to_bytes()).expect("an archive")
}

fn build() -> ArchiveBuilder {
    let mut archive = ArchiveBuilder::new();
    let unknown = AddAssumed { n: AssumedScalar::Unknown, ..Default::default() };
    let target = [Target::sm_90a()];
    archive.add(AddConsts { BLOCK: 1024 }.request::<f32>(), &target).expect("compiled");
    archive.add(AddConsts { BLOCK: 1024 }.request::<f32>().assume(unknown), &target).expect("compiled");
    archive.add(NormaliseConsts { BLOCK: 4096 }.request(), &target).expect("compiled");
    archive.add(MatmulConsts { BM: 128, BN: 64, BK: 64 }.request(), &target).expect("compiled");
    archive
}

/// NVIDIA's programs: those in the folder of the repository's tests, or else where they are found.
pub fn tools() -> Tools {
    let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ptxas/site/nvidia");
    let installed: Vec<PathBuf> =
        std::fs::read_dir(site).into_iter().flatten().flatten().map(|folder| folder.path().join("bin")).collect();
    let found = Tools::find();
    let here = |name: &str| installed.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    let ptxas = here("ptxas").and_then(|path| tilewright::archive::Ptxas::at(path).ok());
    let nvdisasm = here("nvdisasm").and_then(|path| Nvdisasm::at(path).ok());
    Tools { ptxas: ptxas.map_or(found.ptxas, Ok), nvdisasm: nvdisasm.map_or(found.nvdisasm, Ok) }
}
