//! All of a mixture: tokens sorted by expert, both products, and the sum.

use super::groups::{ListsMut, Sizes};
use super::products::{self, Rest, To, Weights};
use super::rows::{combined, gathered};
use super::{Activation, Routing};
use crate::arguments::packed;
use crate::workspace::{Memory, both, contiguous, product, room};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

/// The output of a mixture of gated experts (Shazeer, "GLU variants improve transformer", 2020; Fedus, Zoph and Shazeer,
/// "Switch transformers", 2021):
/// `y[t] = sum over the experts e of token t of weight[t, e] * (activation(x[t] @ gate[e]) * (x[t] @ up[e])) @ down[e]`.
///
/// # Shapes
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[tokens, hidden]` |
/// | `gate_up` | `[experts, hidden, 2 * inner]`, the columns of `gate` first |
/// | `down` | `[experts, inner, hidden]` |
/// | result | `[tokens, hidden]` |
///
/// Of the weights' matrices either dimension may be the contiguous one: weights that are stored as `[experts, outputs, inputs]`
/// are given as `w.view().transpose(1, 2)?`.
///
/// # Numerics
///
/// Sums are in f32; activations are rounded to `F` between both products, and once for each expert before the weighted sum,
/// which is in f32, in the order of the router's choice.
///
/// # Memory
///
/// Beside the result, as [`moe_workspace`] says: rows of `x`, which those of results take the place of, and activations for each
/// chosen expert of each token, rounded up to whole blocks for each expert; lists of what is whose.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes do not fit, [`Error::OutOfMemory`], those of a launch.
pub fn moe<'a, 'b, 'c, F: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, F, 2>>,
    routing: &Routing,
    gate_up: impl Into<TensorView<'b, F, 3>>,
    down: impl Into<TensorView<'c, F, 3>>,
    activation: Activation,
) -> Result<Tensor<F, 2>> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), x.shape())?;
    moe_into(cx, x, routing, gate_up, down, activation, &mut out)?;
    Ok(out)
}

/// [`moe`], into a tensor of the result's shape, without gaps. What lies between is allocated as there.
///
/// # Errors
///
/// As [`moe`], and [`Error::InvalidTensor`] if `out` has another shape or gaps.
pub fn moe_into<'a, 'b, 'c, 'd, F: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, F, 2>>,
    routing: &Routing,
    gate_up: impl Into<TensorView<'b, F, 3>>,
    down: impl Into<TensorView<'c, F, 3>>,
    activation: Activation,
    out: impl Into<TensorViewMut<'d, F, 2>>,
) -> Result<()> {
    Mixture { x: x.into(), routing, activation, out: out.into() }.run(cx, gate_up.into(), down.into(), None)
}

/// [`moe_into`], with a workspace of the size that [`moe_workspace`] says, or larger. Nothing is allocated. Both parts best begin
/// at multiples of 16 bytes, so that blocks are copied by the hardware.
///
/// # Errors
///
/// As [`moe_into`], and [`Error::InvalidTensor`] if a part of the workspace has gaps or is too small.
#[allow(clippy::too_many_arguments)]
pub fn moe_into_with<'a, 'b, 'c, 'd, F: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, F, 2>>,
    routing: &Routing,
    gate_up: impl Into<TensorView<'b, F, 3>>,
    down: impl Into<TensorView<'c, F, 3>>,
    activation: Activation,
    out: impl Into<TensorViewMut<'d, F, 2>>,
    workspace: MoeWorkspace<'_, F>,
) -> Result<()> {
    let mixture = Mixture { x: x.into(), routing, activation, out: out.into() };
    mixture.run(cx, gate_up.into(), down.into(), Some(workspace))
}

/// Memory in which [`moe_into_with`] works; what it holds does not matter.
#[derive(Debug)]
pub struct MoeWorkspace<'a, F: DType> {
    /// Room for rows of `x`, activations and results: as much as [`MoeRoom`] says, or more, without gaps.
    pub rows: TensorViewMut<'a, F, 1>,
    /// Room for the lists of what is whose, likewise.
    pub places: TensorViewMut<'a, i32, 1>,
}

/// How many elements a [`MoeWorkspace`] has at least.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MoeRoom {
    /// Of `rows`, in the dtype of `x`.
    pub rows: usize,
    /// Of `places`, i32.
    pub places: usize,
}

/// What [`moe_into_with`] needs as its workspace, with the same context, `x` and `gate_up` of these shapes, and so many experts for
/// each token.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if there are no experts or more than 1024, or more rows than 2^31 - 65,536.
pub fn moe_workspace(cx: &Context, x: [usize; 2], chosen: usize, gate_up: [usize; 3]) -> Result<MoeRoom> {
    let plan = Plan::of(cx, x, chosen, gate_up)?;
    Ok(MoeRoom { rows: room(&plan.rows()), places: plan.sizes.room() })
}

/// The sizes of a mixture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) sizes: Sizes,
    pub(super) hidden: usize,
    pub(super) inner: usize,
}

impl Plan {
    pub(super) fn of(
        cx: &Context,
        [tokens, hidden]: [usize; 2],
        chosen: usize,
        [experts, _, both]: [usize; 3],
    ) -> Result<Plan> {
        check::size("x", hidden)?;
        check::size("gate_up", both)?;
        Ok(Plan { sizes: Sizes::of(cx, [tokens, chosen], experts)?, hidden, inner: both / 2 })
    }

    /// The elements of a tensor with a row for each pair, and of padding.
    pub(super) fn each(&self, columns: usize) -> usize {
        product(&[self.sizes.height(), columns])
    }

    /// Elements of rows of tokens, or of results, and of activations.
    fn rows(&self) -> [usize; 2] {
        [self.each(self.hidden), self.each(self.inner)]
    }
}

/// What a mixture reads beside its weights, and writes.
pub(super) struct Mixture<'a, F: DType> {
    pub(super) x: TensorView<'a, F, 2>,
    pub(super) routing: &'a Routing,
    pub(super) activation: Activation,
    pub(super) out: TensorViewMut<'a, F, 2>,
}

impl<F: Float> Mixture<'_, F> {
    /// Checks all shapes, given those of the weights.
    pub(super) fn plan(&self, cx: &Context, gate_up: [usize; 3], down: [usize; 3]) -> Result<Plan> {
        let ([tokens, hidden], [_, chosen]) = (self.x.shape(), self.routing.experts.shape());
        let [experts, _, both] = gate_up;
        check::shape("routing.experts", self.routing.experts.shape(), [tokens, chosen])?;
        check::shape("routing.weights", self.routing.weights.shape(), [tokens, chosen])?;
        check::shape("gate_up", gate_up, [experts, hidden, both / 2 * 2])?;
        check::shape("down", down, [experts, both / 2, hidden])?;
        self.x.rows("x")?;
        check::shape("out", self.out.shape(), [tokens, hidden])?;
        packed("out", self.out.is_contiguous())?;
        Plan::of(cx, [tokens, hidden], chosen, gate_up)
    }

    fn run(
        self,
        cx: &Context,
        gate_up: TensorView<'_, F, 3>,
        down: TensorView<'_, F, 3>,
        workspace: Option<MoeWorkspace<'_, F>>,
    ) -> Result<()> {
        let plan = self.plan(cx, gate_up.shape(), down.shape())?;
        let (gate_up, down) = (Weights::new("gate_up", gate_up)?, Weights::new("down", down)?);
        let Mixture { x, routing, activation, out } = self;
        let (lens, height) = (plan.rows(), plan.sizes.height());
        let (rows, places) = workspace.map(|MoeWorkspace { rows, places }| (rows, places)).unzip();
        let places = places.map(|places| contiguous("workspace.places", places)).transpose()?;
        let mut rows = Memory::of(cx, "workspace.rows", rows, room(&lens))?;
        let mut places = Memory::of(cx, "workspace.places", places, plan.sizes.room())?;
        let mut lists = ListsMut::of(places.view_mut(), plan.sizes)?;
        lists.sort(cx, routing.experts.buffer().as_view())?;
        let groups = &lists.lists();
        let [outer, inner] = both(rows.view_mut(), lens)?;
        let mut outer = TensorViewMut::new(outer, [height, plan.hidden])?;
        let mut inner = TensorViewMut::new(inner, [height, plan.inner])?;
        gathered(cx, x, groups, outer.reborrow())?;
        // Each product reads the blocks that are used, and the sum the rows of pairs.
        let to = To { out: inner.reborrow(), rest: Rest::Unread };
        products::gated(cx, outer.as_view(), &gate_up, groups, activation, to)?;
        let to = To { out: outer.reborrow(), rest: Rest::Unread };
        products::plain(cx, inner.as_view(), &down, groups, to)?;
        combined(cx, outer.as_view(), routing.weights.view(), groups, out)
    }
}
