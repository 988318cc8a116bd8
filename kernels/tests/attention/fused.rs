//! Gradients by one kernel, which adds up those of queries in memory.

use super::backward::{Given, check, check_many_packed, check_packed};
use super::reference::{Case, PLAIN};
use crate::common::{Real, message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::attention::{self, Attention, BackwardConfig};
use tilewright_kernels::{Context, Table, Tensor};

pub(super) const BLOCKS: BackwardConfig = BackwardConfig {
    keys_block_q: 32,
    keys_block_k: 32,
    queries_block_q: 32,
    queries_block_k: 32,
    num_warps: 4,
    num_stages: 2,
    fused: 1,
};

/// A context whose table says this configuration for heads of `d` and so many queries and keys.
pub(super) fn saying<T: Real>(cx: &Context, d: usize, [queries, keys]: [usize; 2], config: BackwardConfig) -> Context {
    let mut table = Table::new();
    table.insert(cx.device().name(), T::ELEMENT, &[d, queries, keys], config);
    cx.clone().with_table(table)
}

fn check_fused<T: Real>(cx: &Context, case: Case, dlse: bool) -> Result<(), Error> {
    check::<T>(&saying::<T>(cx, case.d, [case.queries, case.keys], BLOCKS), case, dlse)
}

#[test]
fn fused_gradients_under_masks() {
    on_every_device(|cx| {
        let small = Case { batch: 1, ..PLAIN };
        for (queries, keys) in [(1, 1), (1, 70), (40, 3), (33, 64), (65, 40)] {
            check_fused::<f16>(cx, Case { queries, keys, causal: true, ..small }, false)?;
            check_fused::<bf16>(cx, Case { queries, keys, window: Some((5, 3)), ..small }, false)?;
        }
        check_fused::<f16>(cx, Case { window: Some((30, 40)), causal: true, keys: 90, ..small }, false)
    });
}

#[test]
fn fused_gradients_of_heads_of_any_size() {
    on_every_device(|cx| {
        let small = Case { batch: 1, queries: 20, keys: 33, ..PLAIN };
        check_fused::<f16>(cx, Case { d: 80, dv: 80, heads: 3, kv_heads: 1, ..small }, false)?;
        check_fused::<bf16>(cx, Case { d: 24, dv: 40, heads: 4, kv_heads: 2, batch: 2, ..small }, false)?;
        check_fused::<f16>(cx, Case { d: 1, dv: 3, ..small }, true)
    });
}

#[test]
fn fused_gradients_with_caps_and_biases() {
    on_every_device(|cx| {
        let small = Case { batch: 1, ..PLAIN };
        check_fused::<f16>(cx, Case { cap: Some(2.0), ..small }, false)?;
        check_fused::<f16>(cx, Case { bias: true, causal: true, ..small }, false)?;
        check_fused::<bf16>(cx, Case { bias: true, cap: Some(3.0), window: Some((20, 20)), ..small }, true)
    });
}

#[test]
fn fused_gradients_of_packed_sequences() {
    on_every_device(|cx| {
        let check = |first| check_packed::<f16>(&saying::<f16>(cx, PLAIN.d, [60 - first, 35], BLOCKS), first);
        [20, 21].into_iter().try_for_each(check)
    });
}

#[test]
fn fused_gradients_of_many_packed_sequences() {
    on_every_device(|cx| check_many_packed::<f16>(&cx.clone().with_config(BLOCKS), &Attention::default().causal()));
}

/// The blocks that a GPU takes of each size of heads.
#[test]
fn fused_gradients_in_blocks_of_other_sizes() {
    on_every_device(|cx| {
        for (d, keys_block_q, keys_block_k, num_warps) in
            [(64, 64, 128, 8), (32, 128, 64, 4), (128, 64, 128, 8), (256, 16, 64, 4)]
        {
            let config = BackwardConfig { keys_block_q, keys_block_k, num_warps, ..BLOCKS };
            let case = Case { batch: 1, heads: 1, kv_heads: 1, queries: 70, keys: 75, d, dv: d, causal: true, ..PLAIN };
            check::<f16>(&saying::<f16>(cx, d, [70, 75], config), case, false)?;
        }
        Ok(())
    });
}

/// Said to be deterministic, or in another dtype, or without room for sums, two kernels do it: two runs give the same bits.
#[test]
fn two_kernels_where_one_is_not_allowed() {
    on_every_device(|cx| {
        let case = Case { batch: 1, queries: 40, keys: 70, ..PLAIN };
        let fused = saying::<f16>(cx, case.d, [40, 70], BLOCKS);
        let given = Given::<f16>::new(&fused, &case, false)?;
        let (options, heads) = (case.options(), case.heads);
        let shape = |options| attention::backward_workspace(&fused, &given.saved(), options);
        assert_eq!(shape(&options)?, [2 + case.d.next_multiple_of(4), 1, heads, 40]);
        assert_eq!(shape(&options.deterministic())?, [2, 1, heads, 40]);
        let two = saying::<f16>(cx, case.d, [40, 70], BackwardConfig { fused: 0, ..BLOCKS });
        let want = attention::backward(&two, given.saved(), &options)?;
        let got = attention::backward(&fused, given.saved(), &options.deterministic())?;
        assert_eq!(got.dq.to_vec()?, want.dq.to_vec()?);
        assert_eq!(got.dk.to_vec()?, want.dk.to_vec()?);
        // A workspace of the smaller shape does too.
        let zeros = |x: &Tensor<f16, 4>| Tensor::<f16, 4>::zeros(cx.device(), x.shape());
        let [mut dq, mut dk, mut dv] = [zeros(&want.dq)?, zeros(&want.dk)?, zeros(&want.dv)?];
        let mut small = Tensor::zeros(cx.device(), [2, 1, heads, 40])?;
        attention::backward_into(&fused, given.saved(), &options, &mut small, &mut dq, &mut dk, &mut dv)?;
        assert_eq!(dq.to_vec()?, want.dq.to_vec()?);
        let mut odd = Tensor::zeros(cx.device(), [3, 1, heads, 40])?;
        let refused = attention::backward_into(&fused, given.saved(), &options, &mut odd, &mut dq, &mut dk, &mut dv);
        assert_eq!(
            message(refused),
            format!("`workspace` has the shape [3, 1, {heads}, 40]; the other arguments ask for [2, 1, {heads}, 40]")
        );
        check_fused::<f32>(cx, case, false)
    });
}

/// Without queries gradients of keys are 0, and without keys those of queries.
#[test]
fn fused_gradients_of_empty_problems() {
    on_every_device(|cx| {
        for (queries, keys) in [(0, 5), (5, 0)] {
            check_fused::<f16>(cx, Case { batch: 1, queries, keys, ..PLAIN }, false)?;
        }
        Ok(())
    });
}
