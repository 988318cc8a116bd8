//! Why loads in loops are not fetched ahead, and why products are waited for: what the pass found, by source line.
//!
//! Loads and products are noted before the pass rewrites anything. What it decides is then noted of loops and
//! operations; what it never looked at follows from where that stands.

use std::collections::HashMap;

use kernel_core::edit::{Structure, Uses};
use kernel_core::ir::{ControlOp, Func, GpuOp, Op, OpId, Operation, ParamId, Span};

use super::find::{self, Found};
use super::flight::Flown;
use super::{collect, is_loop};
use crate::report::{StayReport, WaitReport};

/// What a load or a product is in.
#[derive(Clone, Copy)]
struct Home {
    /// The innermost loop; a condition around it, but inside the loop, counts.
    of: Option<OpId>,
    /// What is said if the pass decides nothing.
    otherwise: &'static str,
}

/// The loads and products of a kernel, with what is decided about them.
pub(super) struct Reasons {
    loads: Vec<(OpId, Span, ParamId, Home)>,
    products: Vec<(Span, Home)>,
    of_loops: HashMap<OpId, &'static str>,
    /// Of loads; nothing is said of those that are fetched ahead.
    of_loads: HashMap<OpId, Option<&'static str>>,
    flights: HashMap<OpId, Flown>,
}

impl Reasons {
    pub(super) fn new(func: &Func) -> Reasons {
        let structure = Structure::new(func);
        let (mut loads, mut products) = (Vec::new(), Vec::new());
        let mut pipelined = Vec::new();
        collect(func, func.body, &mut Vec::new(), &mut pipelined);
        let uses = Uses::new(func);
        // What the next iteration needs is fetched ahead of it.
        let hands_on = |user: &OpId| {
            let around = structure.around(*user).next();
            func.op(*user).op == Op::Control(ControlOp::Yield)
                && around.is_some_and(|around| is_loop(&func.op(around).op))
        };
        let is_carried = |operation: &Operation| {
            let users: Vec<OpId> = operation.results.iter().flat_map(|&result| uses.of(result)).copied().collect();
            !users.is_empty() && users.iter().all(hands_on)
        };
        let is_innermost = |id: OpId| pipelined.iter().any(|place| place.id == id);
        kernel_core::edit::walk(func, &mut |id| {
            let operation = func.op(id);
            let around = structure.around(id).find(|&around| is_loop(&func.op(around).op));
            let home = Home { of: around, otherwise: otherwise(func, &structure, id, around, &is_innermost) };
            if find::is_load(func, id) && !is_carried(operation) {
                let ty = operation.operands.first().map(|&first| func.ty(first));
                let param = ty.and_then(|ty| ty.pointee().or_else(|| ty.descriptor()));
                loads.extend(param.map(|param| (id, operation.span, param, home)));
            } else if matches!(operation.op, Op::Gpu(GpuOp::Wgmma { .. })) {
                products.push((operation.span, home));
            }
        });
        Reasons { loads, products, of_loops: HashMap::new(), of_loads: HashMap::new(), flights: HashMap::new() }
    }

    /// Why nothing in a loop is fetched ahead.
    pub(super) fn of_loop(&mut self, id: OpId, why: &'static str) {
        self.of_loops.insert(id, why);
    }

    /// What was found in a loop, and whether there is room for it.
    pub(super) fn of_loads(&mut self, id: OpId, found: &Found, fits: bool) {
        self.of_loop(
            id,
            "no product takes it in every iteration; `#[stages(..)]` on the loop fetches all that it loads",
        );
        for candidate in &found.candidates {
            let why = (!fits).then_some("shared memory has no room for a second tile of it");
            self.of_loads.insert(candidate.op, why);
        }
        self.of_loads.extend(found.refused.iter().map(|refused| (refused.op, Some(refused.why))));
    }

    /// Loads that an iteration makes for the next one.
    pub(super) fn of_carried(&mut self, loads: impl IntoIterator<Item = OpId>) {
        self.of_loads.extend(loads.into_iter().map(|load| (load, None)));
    }

    /// What became of a pipelined loop's products.
    pub(super) fn of_products(&mut self, id: OpId, flown: Flown) {
        self.flights.insert(id, flown);
    }

    /// Everything that there is to say, each line once.
    pub(super) fn told(self) -> (Vec<StayReport>, Vec<WaitReport>) {
        let (mut stays, mut waits) = (Vec::new(), Vec::new());
        for (id, span, param, home) in &self.loads {
            let Some(around) = home.of else { continue };
            let of_loop = || Some(if home.otherwise.is_empty() { self.of_loops.get(&around)? } else { home.otherwise });
            let why = self.of_loads.get(id).copied().unwrap_or_else(of_loop);
            let stay = why.map(|why| StayReport { span: *span, param: *param, why });
            stays.extend(stay.filter(|stay| !stays.contains(stay)));
        }
        for (span, home) in &self.products {
            let why = match home.of.and_then(|around| self.flights.get(&around)) {
                Some(Flown::InFlight) => continue,
                Some(Flown::Waits(why)) => why,
                None if home.of.is_some() => "the loop around it is not pipelined",
                None => "there is no loop around it, in which something else could be done meanwhile",
            };
            let wait = WaitReport { span: *span, why };
            if !waits.contains(&wait) {
                waits.push(wait);
            }
        }
        (stays, waits)
    }
}

/// What is said of a load in a loop that the pass does not look at, or not in that place; nothing if it does.
fn otherwise(
    func: &Func,
    structure: &Structure,
    id: OpId,
    around: Option<OpId>,
    is_innermost: &dyn Fn(OpId) -> bool,
) -> &'static str {
    let Some(around) = around else { return "" };
    match &func.op(around).op {
        Op::Control(ControlOp::While) => "a `while` loop is not pipelined",
        Op::Control(ControlOp::For { reverse: true, .. }) => "its loop runs backwards",
        _ if !is_innermost(around) => "there is another loop in its loop",
        _ if structure.around(id).next() != Some(around) => "it stands under a condition",
        _ => "",
    }
}
