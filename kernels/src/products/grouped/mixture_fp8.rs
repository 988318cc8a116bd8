//! A mixture with weights of 8-bit floats.

use super::groups::ListsMut;
use super::mixture::{Mixture, Plan};
use super::products::{self, Rest, ScaledWeights, To};
use super::rows::{combined, gated, gathered};
use super::{Activation, Routing};
use crate::products::fp8::{self, BLOCK};
use crate::workspace::{Memory, both, contiguous, product, room};
use crate::{Context, Tensor, TensorView, TensorViewMut};
use tilewright::prelude::*;
use tilewright::{Result, ViewMut};

/// Weights of experts as 8-bit floats, with a scale for each 128 by 128 of them.
#[derive(Debug, Clone, Copy)]
pub struct Scaled<'a> {
    /// `[experts, k, n]`; the fastest if `k` is the contiguous dimension.
    pub weights: TensorView<'a, F8E4M3, 3>,
    /// `[experts, ceil(k / 128), ceil(n / 128)]`.
    pub scales: TensorView<'a, f32, 3>,
}

/// [`moe`](super::moe) with weights of 8-bit floats; rows and activations are made 8-bit floats with a scale for each 128 neighbours
/// ([`fp8::quantise_blocks`]). What it allocates beside the result, [`moe_fp8_workspace`] says.
///
/// # Errors
///
/// As [`moe`](super::moe).
pub fn moe_fp8<'a, F: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, F, 2>>,
    routing: &Routing,
    gate_up: Scaled<'_>,
    down: Scaled<'_>,
    activation: Activation,
) -> Result<Tensor<F, 2>> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), x.shape())?;
    moe_fp8_into(cx, x, routing, gate_up, down, activation, &mut out)?;
    Ok(out)
}

/// [`moe_fp8`], into a tensor of the result's shape, without gaps. What lies between is allocated as there.
///
/// # Errors
///
/// As [`moe_fp8`], and [`Error::InvalidTensor`] if `out` has another shape or gaps.
pub fn moe_fp8_into<'a, 'b, F: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, F, 2>>,
    routing: &Routing,
    gate_up: Scaled<'_>,
    down: Scaled<'_>,
    activation: Activation,
    out: impl Into<TensorViewMut<'b, F, 2>>,
) -> Result<()> {
    run(cx, Mixture { x: x.into(), routing, activation, out: out.into() }, gate_up, down, None)
}

/// [`moe_fp8_into`], with a workspace of the size that [`moe_fp8_workspace`] says, or larger. Nothing is allocated. Parts best begin
/// at multiples of 16 bytes, so that blocks are copied by the hardware.
///
/// # Errors
///
/// As [`moe_fp8_into`], and [`Error::InvalidTensor`] if a part of the workspace has gaps or is too small.
#[allow(clippy::too_many_arguments)]
pub fn moe_fp8_into_with<'a, 'b, F: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, F, 2>>,
    routing: &Routing,
    gate_up: Scaled<'_>,
    down: Scaled<'_>,
    activation: Activation,
    out: impl Into<TensorViewMut<'b, F, 2>>,
    workspace: MoeFp8Workspace<'_, F>,
) -> Result<()> {
    run(cx, Mixture { x: x.into(), routing, activation, out: out.into() }, gate_up, down, Some(workspace))
}

/// Memory in which [`moe_fp8_into_with`] works; what it holds does not matter.
#[derive(Debug)]
pub struct MoeFp8Workspace<'a, F: DType> {
    /// Room for rows and activations as 8-bit floats: as much as [`MoeFp8Room`] says, or more, without gaps.
    pub bytes: TensorViewMut<'a, F8E4M3, 1>,
    /// Room for their scales, likewise.
    pub scales: TensorViewMut<'a, f32, 1>,
    /// Room for results of both products and for activations, likewise.
    pub rows: TensorViewMut<'a, F, 1>,
    /// Room for the lists of what is whose, likewise.
    pub places: TensorViewMut<'a, i32, 1>,
}

/// How many elements a [`MoeFp8Workspace`] has at least.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MoeFp8Room {
    /// Of `bytes`, f8e4m3.
    pub bytes: usize,
    /// Of `scales`, f32.
    pub scales: usize,
    /// Of `rows`, in the dtype of `x`.
    pub rows: usize,
    /// Of `places`, i32.
    pub places: usize,
}

/// What [`moe_fp8_into_with`] needs as its workspace, with the same context, `x` and weights `gate_up` of these shapes, and so many
/// experts for each token.
///
/// # Errors
///
/// As [`moe_workspace`](super::moe_workspace).
pub fn moe_fp8_workspace(cx: &Context, x: [usize; 2], chosen: usize, gate_up: [usize; 3]) -> Result<MoeFp8Room> {
    Ok(Parts::of(&Plan::of(cx, x, chosen, gate_up)?).room())
}

/// How many elements each part of each memory has.
struct Parts {
    /// 8-bit floats: those of tokens, and those of pairs, rows before activations.
    bytes: [usize; 2],
    /// Their scales.
    scales: [usize; 2],
    /// Results of the first product and then of the second one, and activations.
    rows: [usize; 2],
    places: usize,
}

impl Parts {
    fn of(plan: &Plan) -> Parts {
        let Plan { sizes, hidden, inner } = *plan;
        let scales = |columns: usize| columns.div_ceil(BLOCK);
        Parts {
            bytes: [product(&[sizes.tokens, hidden]), plan.each(hidden.max(inner))],
            scales: [product(&[sizes.tokens, scales(hidden)]), plan.each(scales(hidden.max(inner)))],
            rows: [plan.each(product(&[2, inner]).max(hidden)), plan.each(inner)],
            places: sizes.room(),
        }
    }

    fn room(&self) -> MoeFp8Room {
        let [bytes, scales, rows] = [self.bytes, self.scales, self.rows].map(|parts| room(&parts));
        MoeFp8Room { bytes, scales, rows, places: self.places }
    }
}

/// The memory that [`Parts`] ask for.
struct Memories<'a, F: DType> {
    bytes: Memory<'a, F8E4M3>,
    scales: Memory<'a, f32>,
    rows: Memory<'a, F>,
    places: Memory<'a, i32>,
}

impl<'a, F: DType> Memories<'a, F> {
    fn of(cx: &Context, workspace: Option<MoeFp8Workspace<'a, F>>, room: MoeFp8Room) -> Result<Self> {
        let (mut bytes, mut scales, mut rows, mut places) = (None, None, None, None);
        if let Some(workspace) = workspace {
            bytes = Some(contiguous("workspace.bytes", workspace.bytes)?);
            scales = Some(contiguous("workspace.scales", workspace.scales)?);
            rows = Some(contiguous("workspace.rows", workspace.rows)?);
            places = Some(contiguous("workspace.places", workspace.places)?);
        }
        Ok(Memories {
            bytes: Memory::of(cx, "workspace.bytes", bytes, room.bytes)?,
            scales: Memory::of(cx, "workspace.scales", scales, room.scales)?,
            rows: Memory::of(cx, "workspace.rows", rows, room.rows)?,
            places: Memory::of(cx, "workspace.places", places, room.places)?,
        })
    }
}

fn run<F: Float>(
    cx: &Context,
    mixture: Mixture<'_, F>,
    gate_up: Scaled<'_>,
    down: Scaled<'_>,
    workspace: Option<MoeFp8Workspace<'_, F>>,
) -> Result<()> {
    let plan = mixture.plan(cx, gate_up.weights.shape(), down.weights.shape())?;
    let (gate_up, down) = (ScaledWeights::new("gate_up", gate_up)?, ScaledWeights::new("down", down)?);
    let (Mixture { x, routing, activation, out }, parts) = (mixture, Parts::of(&plan));
    let (Plan { sizes, hidden, inner }, height) = (plan, plan.sizes.height());
    let mut memory = Memories::of(cx, workspace, parts.room())?;
    let mut lists = ListsMut::of(memory.places.view_mut(), sizes)?;
    lists.sort(cx, routing.experts.buffer().as_view())?;
    let groups = &lists.lists();
    let [mut tokens, mut pairs] = both(memory.bytes.view_mut(), parts.bytes)?;
    let [mut scales_of_tokens, mut scales_of_pairs] = both(memory.scales.view_mut(), parts.scales)?;
    let [mut results, mut activations] = both(memory.rows.view_mut(), parts.rows)?;

    let mut from = rows(&mut tokens, [sizes.tokens, hidden])?;
    let mut from_scales = rows(&mut scales_of_tokens, [sizes.tokens, hidden.div_ceil(BLOCK)])?;
    fp8::quantise_blocks_into(cx, x, from.reborrow(), from_scales.reborrow())?;
    let mut to = rows(&mut pairs, [height, hidden])?;
    let mut to_scales = rows(&mut scales_of_pairs, [height, hidden.div_ceil(BLOCK)])?;
    gathered(cx, from.as_view(), groups, to.reborrow())?;
    gathered(cx, from_scales.as_view(), groups, to_scales.reborrow())?;

    let mut halves = rows(&mut results, [height, 2 * inner])?;
    let into = To { out: halves.reborrow(), rest: Rest::Unread };
    products::scaled(cx, (to.as_view(), to_scales.as_view()), &gate_up, groups, into)?;
    let mut activated = rows(&mut activations, [height, inner])?;
    gated(cx, halves.as_view(), groups, activation, activated.reborrow())?;

    // Behind the blocks that are used, too, where nobody reads the numbers.
    let mut to = rows(&mut pairs, [height, inner])?;
    let mut to_scales = rows(&mut scales_of_pairs, [height, inner.div_ceil(BLOCK)])?;
    fp8::quantise_blocks_into(cx, activated.as_view(), to.reborrow(), to_scales.reborrow())?;
    let mut outer = rows(&mut results, [height, hidden])?;
    let into = To { out: outer.reborrow(), rest: Rest::Unread };
    products::scaled(cx, (to.as_view(), to_scales.as_view()), &down, groups, into)?;
    combined(cx, outer.as_view(), routing.weights.view(), groups, out)
}

/// The first elements of a part, as rows.
fn rows<'a, T: DType>(
    part: &'a mut ViewMut<'_, T>,
    shape @ [height, columns]: [usize; 2],
) -> Result<TensorViewMut<'a, T, 2>> {
    TensorViewMut::new(part.reborrow().slice_mut(..height * columns)?, shape)
}
