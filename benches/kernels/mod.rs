//! The kernels, one file each: the kernel, its reference, its contest.

mod add;
mod chains;
mod copy;
mod cross_entropy;
mod dropout;
mod elementwise;
mod gather;
mod layer_norm;
mod layer_norm_backward;
mod rms_norm;
mod scaled;
mod softmax;
mod sums;
mod tiles;
mod transpose;

use tilewright_bench::{Failure, Stage};

/// A benchmark: holds the contests of one work.
type Bench = fn(&mut Stage) -> Result<(), Failure>;

/// All works by the names that `--only` takes.
const ALL: [(&str, Bench); 23] = [
    ("copy", copy::contests),
    ("add", add::contests),
    ("cos_sin", chains::cos_sin_contests),
    ("gelu", chains::gelu_contests),
    ("swiglu", chains::swiglu_contests),
    ("dropout", dropout::contests),
    ("softmax", softmax::contests),
    ("layer_norm", layer_norm::contests),
    ("layer_norm_backward", layer_norm_backward::contests),
    ("rms_norm", rms_norm::contests),
    ("cross_entropy", cross_entropy::contests),
    ("row_sum", sums::row_contests),
    ("column_sum", sums::column_contests),
    ("transpose", transpose::contests),
    ("gather", gather::contests),
    ("sort", tiles::sort_contests),
    ("topk", tiles::topk_contests),
    ("histogram", tiles::histogram_contests),
    ("cumsum", tiles::cumsum_contests),
    ("rand", tiles::rand_contests),
    ("gather_tile", tiles::gather_contests),
    ("scaled_e4m3", scaled::e4m3_contests),
    ("scaled_e2m1", scaled::e2m1_contests),
];

/// Holds all contests that the stage wants.
pub fn all(stage: &mut Stage) -> Result<(), Failure> {
    for (name, bench) in ALL {
        if stage.wants(name) {
            bench(stage)?;
        }
    }
    Ok(())
}
