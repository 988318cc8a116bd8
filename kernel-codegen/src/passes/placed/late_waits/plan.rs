//! Where the products of a loop's iteration are waited for.

use std::collections::{BTreeMap, BTreeSet};

use kernel_core::edit::walk_region;
use kernel_core::ir::known::{constant, splat_source};
use kernel_core::ir::{ControlOp, Def, Elem, Func, GpuOp, Literal, Op, OpId, RegionId, ValueId};

/// Something in flight that is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tile {
    /// What a product of this iteration makes.
    Of(OpId),
    /// What the iteration before has left in flight, by its position among the carried values.
    Carried(usize),
}

/// A wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Landing {
    /// The position of the operation before which it stands.
    pub(super) before: usize,
    /// What is there then and was not before, from the oldest.
    pub(super) tiles: Vec<Tile>,
    /// How many younger products stay in flight.
    pub(super) pending: u8,
}

/// The waits of an iteration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub(super) landings: Vec<Landing>,
    /// Products that stay in flight over the end of the iteration, and the positions at which the loop carries them.
    pub(crate) crossing: Vec<(OpId, usize)>,
}

/// What may be in flight. The more, the more registers it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Style {
    /// Products of an iteration beside what it computes; else each is waited for at once.
    pub(super) inside: bool,
    /// Those that nothing in the iteration looks at over its end.
    pub(super) across: bool,
}

impl Plan {
    /// Plans the waits of a loop each of whose products is waited for at once; `None` for other loops, and where
    /// nothing looks at a sum. Products of which `may_cross` says that the next iteration leaves their factors in shared
    /// memory alone until it has waited for them may stay in flight over the end of an iteration.
    pub(super) fn new(func: &Func, owner: OpId, style: Style, may_cross: &dyn Fn(OpId) -> bool) -> Option<Plan> {
        let Op::Control(ControlOp::For { .. }) = func.op(owner).op else { return None };
        let body = func.op(owner).regions[0];
        let mut walk = Walk::new(func, body)?;
        walk.deadlines(body);
        if walk.products.values().all(|product| product.deadline.is_none()) {
            return None;
        }
        let crossing = if style.across { walk.crossing(body, may_cross) } else { Vec::new() };
        if !style.inside {
            walk.at_once(&crossing);
        }
        let landings = walk.landings(body, &crossing)?;
        Some(Plan { landings, crossing })
    }
}

/// A product of the iteration.
#[derive(Clone, Debug)]
struct Product {
    /// The result of its wait.
    waited: ValueId,
    /// The position before which it has to be waited for.
    deadline: Option<usize>,
}

/// What is in flight, while an iteration is walked through.
struct Flying {
    tile: Tile,
    deadline: Option<usize>,
    /// Whether a further product goes on with it.
    goes_on: bool,
}

struct Walk<'f> {
    func: &'f Func,
    ops: &'f [OpId],
    products: BTreeMap<OpId, Product>,
    /// Per value, the positions of the operations of the body that use it, or in which it is used.
    users: BTreeMap<ValueId, Vec<usize>>,
}

impl<'f> Walk<'f> {
    /// `None` if products or waits are inside of conditions, or products are waited for later than at once.
    fn new(func: &'f Func, body: RegionId) -> Option<Walk<'f>> {
        let ops = func.region(body).ops.as_slice();
        let mut users: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
        let (mut asynchronous, mut waits) = (BTreeSet::new(), BTreeMap::new());
        for (position, &id) in ops.iter().enumerate() {
            let mut look = |inner: OpId| {
                let operation = func.op(inner);
                operation.operands.iter().for_each(|&value| users.entry(value).or_default().push(position));
                if let Op::Gpu(GpuOp::Wgmma { .. } | GpuOp::WgmmaWait { .. }) = operation.op {
                    asynchronous.insert(inner);
                }
                if let Op::Gpu(GpuOp::WgmmaWait { pending: 0 }) = operation.op {
                    waits.extend(operation.operands.iter().copied().zip(operation.results.iter().copied()));
                }
            };
            look(id);
            func.op(id).regions.iter().for_each(|&inner| walk_region(func, inner, &mut look));
        }
        if !asynchronous.iter().all(|id| ops.contains(id)) {
            return None;
        }
        let mut products = BTreeMap::new();
        for &id in &asynchronous {
            let Op::Gpu(GpuOp::Wgmma { .. }) = func.op(id).op else { continue };
            let raw = func.op(id).results[0];
            // The wait is its only user.
            let waited = *waits.get(&raw).filter(|_| users.get(&raw).is_some_and(|users| users.len() == 1))?;
            products.insert(id, Product { waited, deadline: None });
        }
        let is_wait = |id: &OpId| matches!(func.op(*id).op, Op::Gpu(GpuOp::WgmmaWait { .. }));
        let made = |value: &ValueId| func.defining_op(*value).is_some_and(|id| products.contains_key(&id));
        let own = asynchronous.iter().filter(|id| is_wait(id));
        own.flat_map(|&id| &func.op(id).operands).all(made).then_some(Walk { func, ops, products, users })
    }

    fn position(&self, id: OpId) -> Option<usize> {
        self.ops.iter().position(|&op| op == id)
    }

    /// Where a value is used by others than a product that goes on with it; the product, if one does and nobody uses the
    /// value behind it.
    fn looked_at(&self, value: ValueId) -> (Option<usize>, Option<OpId>) {
        let users = self.users.get(&value).map_or(&[][..], Vec::as_slice);
        let goes_on = |&&at: &&usize| {
            self.products.contains_key(&self.ops[at]) && self.func.op(self.ops[at]).operands[2] == value
        };
        let is_factor = |at: usize| self.func.op(self.ops[at]).operands[..2].contains(&value);
        match users.last().filter(goes_on) {
            // A product, and what stands before it.
            Some(&last) if users.iter().filter(|&&at| at == last).count() == 1 && !is_factor(last) => {
                (users.first().copied().filter(|&at| at != last), Some(self.ops[last]))
            }
            _ => (users.first().copied(), None),
        }
    }

    /// Finds out before what each product has to be waited for.
    fn deadlines(&mut self, body: RegionId) {
        let end = self.ops.len().saturating_sub(1);
        let ids: Vec<OpId> = self.products.keys().copied().collect();
        for &id in &ids {
            let waited = self.products[&id].waited;
            let (at, _) = self.looked_at(waited);
            let yields = self.func.yielded(body).iter().filter(|&&value| value == waited).count();
            // What is only carried on need not be there before.
            let deadline = at.filter(|&at| at != end || yields != 1);
            self.limit(id, deadline);
        }
        // What a product reads in registers is not to be computed while others are in flight, of which ptxas makes one
        // stage with it: it would run all of them one after the other (C7513).
        for &id in &ids {
            let (Some(at), Some(since)) = (self.position(id), self.settled(id)) else { continue };
            let older: Vec<OpId> =
                ids.iter().copied().filter(|&other| self.position(other).is_some_and(|other| other < since)).collect();
            for other in older.into_iter().filter(|&other| other != id) {
                self.limit(other, Some(at));
            }
        }
    }

    fn limit(&mut self, product: OpId, deadline: Option<usize>) {
        let Some(product) = self.products.get_mut(&product) else { return };
        product.deadline = match (product.deadline, deadline) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    /// The position behind which everything is known that a product reads in registers; `None` if it reads nothing that
    /// the iteration computes.
    fn settled(&self, product: OpId) -> Option<usize> {
        let &[a, _, acc, ..] = self.func.op(product).operands.as_slice() else { return None };
        let in_registers = !matches!(self.func.ty(a).elem, Elem::Shared(_));
        let is_sum = self.products.values().any(|product| product.waited == acc);
        let factor = if in_registers { self.computed(a) } else { None };
        let sum = if is_sum || is_zeros(self.func, acc) { None } else { self.computed(acc) };
        factor.max(sum)
    }

    /// Has all products waited for at once but these.
    fn at_once(&mut self, crossing: &[(OpId, usize)]) {
        let ids: Vec<OpId> = self.products.keys().copied().collect();
        for id in ids.into_iter().filter(|id| crossing.iter().all(|(product, _)| product != id)) {
            let behind = self.position(id).map(|at| at + 1);
            self.limit(id, behind);
        }
    }

    /// The position of the operation of the body that computes a value. What the iteration before has computed counts
    /// as computed at its beginning, but for sums, which lie in their registers.
    fn computed(&self, value: ValueId) -> Option<usize> {
        match self.func.value(value).def {
            Def::Result(op, _) => self.position(op),
            Def::Param(_) | Def::Arg(..) => None,
        }
    }

    /// The products that may stay in flight over the end of the iteration: the youngest ones.
    fn crossing(&self, body: RegionId, may_cross: &dyn Fn(OpId) -> bool) -> Vec<(OpId, usize)> {
        let yields = self.func.yielded(body);
        let mut crossing = Vec::new();
        for &id in self.ops.iter().rev() {
            let Some(product) = self.products.get(&id) else { continue };
            let a = self.func.op(id).operands[0];
            // The registers of what a loop carries are those of the next iteration's.
            let carried_factor =
                matches!(self.func.value(a).def, Def::Arg(..)) && !matches!(self.func.ty(a).elem, Elem::Shared(_));
            let (used, goes_on) = self.looked_at(product.waited);
            let only_carried = used == Some(self.ops.len() - 1) && goes_on.is_none() && product.deadline.is_none();
            let position = yields.iter().position(|&value| value == product.waited);
            match position {
                Some(position) if only_carried && !carried_factor && may_cross(id) => crossing.push((id, position)),
                // A younger one has gone on with its sum, or it is waited for before.
                _ if goes_on.is_some() || product.deadline.is_some() => {}
                _ => break,
            }
            if product.deadline.is_some() {
                break;
            }
        }
        crossing.reverse();
        crossing
    }

    /// Goes through the iteration; `None` if there are more products than can be counted.
    fn landings(&self, body: RegionId, crossing: &[(OpId, usize)]) -> Option<Vec<Landing>> {
        let args = &self.func.region(body).args;
        let mut queue: Vec<Flying> = Vec::new();
        for &(_, position) in crossing {
            let arg = args[1 + position];
            let (deadline, _) = self.looked_at(arg);
            queue.push(Flying { tile: Tile::Carried(position), deadline, goes_on: false });
        }
        let mut landings = Vec::new();
        for (at, &id) in self.ops.iter().enumerate() {
            let is_last = at + 1 == self.ops.len();
            let stays = |flying: &Flying| match flying.tile {
                Tile::Of(id) => flying.goes_on || crossing.iter().any(|(product, _)| *product == id),
                Tile::Carried(_) => false,
            };
            // What a product reads in registers is computed while that of the iteration before is in flight.
            let unsettled = self.products.contains_key(&id) && self.reads_computed(id);
            let is_due = |flying: &Flying| {
                flying.deadline.is_some_and(|deadline| deadline <= at)
                    || (is_last && !stays(flying))
                    || (unsettled && matches!(flying.tile, Tile::Carried(_)))
            };
            if let Some(last) = queue.iter().rposition(is_due) {
                let landed = queue.drain(..=last).filter(|flying| !flying.goes_on);
                let tiles: Vec<Tile> = landed.map(|flying| flying.tile).collect();
                let pending = u8::try_from(queue.len()).ok()?;
                landings.push(Landing { before: at, tiles, pending });
            }
            if let Some(product) = self.products.get(&id) {
                self.go_on(&mut queue, body, self.func.op(id).operands[2]);
                queue.push(Flying { tile: Tile::Of(id), deadline: product.deadline, goes_on: false });
            }
        }
        Some(landings)
    }

    /// Notes that a product goes on with a sum, if that is in flight.
    fn go_on(&self, queue: &mut [Flying], body: RegionId, acc: ValueId) {
        let args = &self.func.region(body).args;
        for flying in queue {
            flying.goes_on |= match flying.tile {
                Tile::Of(id) => self.products[&id].waited == acc,
                Tile::Carried(position) => args[1 + position] == acc,
            };
        }
    }

    /// Whether a product reads registers that this iteration, or the one before it, computes.
    fn reads_computed(&self, product: OpId) -> bool {
        let a = self.func.op(product).operands[0];
        let carried =
            matches!(self.func.value(a).def, Def::Arg(..)) && !matches!(self.func.ty(a).elem, Elem::Shared(_));
        carried || self.settled(product).is_some()
    }
}

/// Whether a tile is zeros.
fn is_zeros(func: &Func, tile: ValueId) -> bool {
    match splat_source(func, tile).and_then(|scalar| constant(func, scalar)) {
        Some(Literal::Float(bits)) => f64::from_bits(bits) == 0.0,
        Some(Literal::Int(number)) => number == 0,
        Some(Literal::Bool(_)) | None => false,
    }
}
