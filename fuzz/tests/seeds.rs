//! The first seeds of the campaign, and what it has found before.

use std::path::Path;

use kernel_codegen::place_watched;
use kernel_core::ir::{GpuOp, Op};
use tilewright_fuzz::case::Case;
use tilewright_fuzz::generate::features::{Feature, Features};
use tilewright_fuzz::generate::generate;
use tilewright_fuzz::oracle::{Ways, check};

/// Few, as this runs in debug builds; each 25th goes through LLVM.
const SEEDS: u64 = 150;
const EMULATED: u64 = 25;

#[test]
fn the_first_seeds_agree_in_every_way() {
    for seed in 0..SEEDS {
        let (case, _) = generate(seed);
        let ways = Ways { emulate: seed % EMULATED == 0, roughly: false };
        let outcome = check(&case, ways);
        assert!(outcome.is_ok(), "seed {seed}: {outcome:?}\n{}", case.text());
    }
}

#[test]
fn findings_that_are_mended_stay_mended() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("findings");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the folder of findings").flatten() {
        let text = std::fs::read_to_string(entry.path()).expect("a finding");
        let case = Case::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", entry.path().display()));
        let outcome = check(&case, Ways { emulate: true, roughly: false });
        assert!(outcome.is_ok(), "{}: {outcome:?}", entry.path().display());
        count += 1;
    }
    assert!(count > 0, "there are no findings");
}

/// Here too where there is a GPU: the driver is told to show none.
#[test]
fn a_campaign_without_a_gpu_is_refused_at_once() {
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_tilewright-fuzz"));
    let program = program.args(["--gpu", "--seeds", "0..3"]).env("CUDA_VISIBLE_DEVICES", "");
    let output = program.output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{output:?}");
    assert!(told.contains("CUDA") && !told.contains("seed"), "{told}");
}

#[test]
fn a_case_reads_back_from_its_file() {
    for seed in 0..60 {
        let text = generate(seed).0.text();
        let read = Case::parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
        assert_eq!(read.text(), text, "seed {seed}");
    }
}

#[test]
fn kernels_have_every_feature_and_a_third_have_products() {
    let mut counts = vec![0u64; Feature::ALL.len()];
    let seeds = 1500;
    for seed in 0..seeds {
        let features: Features = generate(seed).1;
        for (count, (feature, _)) in counts.iter_mut().zip(Feature::ALL) {
            *count += u64::from(features.contains(*feature));
        }
    }
    for ((_, name), &count) in Feature::ALL.iter().zip(&counts) {
        assert!(count >= seeds / 100, "{name}: {count} of {seeds}");
    }
    assert!(counts[Feature::Product as usize] * 3 >= seeds, "products: {}", counts[Feature::Product as usize]);
}

/// What only some products become is reached: divided kernels, products in flight over the end of a trip, pipelines of
/// asynchronous and of tensor copies.
#[test]
fn kernels_of_products_reach_the_passes_for_them() {
    let mut counts = [0; 4];
    for seed in 0..5000 {
        let (case, features) = generate(seed);
        if !features.contains(Feature::Wgmma) {
            continue;
        }
        let Ok((placed, _)) = place_watched(&case.kernel, &case.target, &case.options, &mut |_, _, _| {}) else {
            continue;
        };
        let any = |is: &dyn Fn(&GpuOp) -> bool| {
            placed.func().ops.iter().any(|operation| matches!(&operation.op, Op::Gpu(op) if is(op)))
        };
        counts[0] += u32::from(any(&|op| matches!(op, GpuOp::WarpGroups { .. })));
        counts[1] += u32::from(any(&|op| matches!(op, GpuOp::WgmmaWait { pending } if *pending > 0)));
        counts[2] += u32::from(any(&|op| matches!(op, GpuOp::AsyncWait { .. })));
        counts[3] += u32::from(any(&|op| matches!(op, GpuOp::TmaLoad)));
    }
    assert!(counts.iter().all(|&count| count >= 3), "divided, in flight, copied, copied by hardware: {counts:?}");
}
