//! The contests, by work.

mod frame;
mod general;
mod packed;
mod products;
mod prompts;
mod rows;
mod serving;
mod tuned;

use std::panic::{AssertUnwindSafe, catch_unwind};
use tilewright_bench::{Failure, Stage, report, supervise};

/// A benchmark: holds the contests of one work.
type Bench = fn(&mut Stage) -> Result<(), Failure>;

/// All works by the names that `--only` takes. What is compared with the rate of a copy comes behind it.
const ALL: [(&str, Bench); 49] = [
    ("copy", general::copy),
    ("matmul", products::matmul::matmul),
    ("gated_matmul", products::ends::gated),
    ("matmul_residual", products::ends::residual),
    ("paged_decode", serving::paged_decode),
    ("mla_decode", serving::mla_decode),
    ("attention_fp8", prompts::attention_fp8),
    ("attention_packed_backward", packed::backward),
    ("moe", products::moe::f16),
    ("moe_fp8", products::moe::fp8),
    ("fp8_blocks", products::fp8::blocks),
    ("fp8_blocks_pointers", products::fp8::pointers),
    ("read_int4", products::int4::reading),
    ("awq", products::int4::awq),
    ("gptq", products::int4::gptq),
    ("conv2d", general::conv::forward),
    ("conv2d_backward_input", general::conv::backward_input),
    ("conv2d_backward_weight", general::conv::backward_weight),
    ("sort", general::sort),
    ("topk", general::topk),
    ("sample", general::sample),
    ("bincount", general::bincount),
    ("histogram", general::histogram),
    ("argmax_rows", general::argmax_rows),
    ("argmax_columns", general::argmax_columns),
    ("softmax", rows::softmax::softmax),
    ("softmax_backward", rows::softmax::softmax_backward),
    ("log_softmax", rows::softmax::log_softmax),
    ("log_softmax_backward", rows::softmax::log_softmax_backward),
    ("layer_norm", rows::norm::layer_norm),
    ("layer_norm_backward", rows::norm_backward::layer_norm),
    ("rms_norm", rows::norm::rms_norm),
    ("rms_norm_backward", rows::norm_backward::rms_norm),
    ("add_rms_norm", rows::norm::add_rms_norm),
    ("group_norm", rows::group_norm::forward),
    ("group_norm_backward", rows::group_norm::backward),
    ("swiglu", rows::gated::swiglu),
    ("swiglu_backward", rows::gated::swiglu_backward),
    ("geglu", rows::gated::geglu),
    ("geglu_backward", rows::gated::geglu_backward),
    ("rotary", rows::rotary::rotary),
    ("dropout", rows::embedding::dropout),
    ("embedding", rows::embedding::embedding),
    ("embedding_backward", rows::embedding::embedding_backward),
    ("cross_entropy", rows::loss::cross_entropy),
    ("cross_entropy_gradient", rows::loss::cross_entropy_gradient),
    ("linear_cross_entropy", rows::loss::linear_cross_entropy),
    ("kl_divergence", rows::divergence::kl),
    ("jsd", rows::divergence::jsd),
];

/// The names of all works.
pub fn works() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(|(name, _)| name)
}

/// Holds all contests that the stage wants. What goes wrong in one work is noted and leaves the others be.
pub fn all(stage: &mut Stage) -> Result<(), Failure> {
    for (name, bench) in ALL {
        if !stage.wants(name) {
            continue;
        }
        if report::flag(supervise::CHILD) {
            println!("{}{name}", supervise::BEGIN);
        }
        match catch_unwind(AssertUnwindSafe(|| bench(stage))) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => stage.lost(name, &why.to_string())?,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                stage.lost(name, text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked"))?;
            }
        }
    }
    Ok(())
}
