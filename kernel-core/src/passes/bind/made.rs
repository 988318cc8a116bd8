//! Descriptors that the kernel makes become parameters, or pointers.
//!
//! ```text
//! %d: desc x[64, 32] = make_desc %x, %m, %k, %k, %1 {name = "a"}
//! %a: f16[64, 32] = desc_load %d, %i, %j
//! ```
//! Where the tensor follows from arguments of the launch and constants alone, all programs see the same one. It
//! becomes a parameter, whose argument the host makes at each launch by the parameter's [recipe](crate::ir::Recipe):
//! ```text
//! param %d a: desc f16[64, 32] made 0 x offsets [] sizes [0, 1] strides [1, 2] steps [i32 arg m, i32 arg k, i64 const 1]
//! %a: f16[64, 32] = desc_load %d, %i, %j
//! ```
//! from there on, it is like any other descriptor. Otherwise [`blocks`](crate::passes::blocks) makes masked accesses
//! through pointers of what is done with it, and `by_pointers` says why.
//!
//! A buffer that the kernel writes becomes such a tensor only where nothing else in the kernel accesses it. So no pass
//! need know that two parameters may be one buffer.

use std::collections::BTreeMap;

use super::recipes::{Found, find};
use crate::edit::{Cursor, Result, replace_all_uses, walk};
use crate::ir::known::constant;
use crate::ir::{
    BinaryOp, ByPointers, DType, DescOp, Dim, Dt, Facts, Func, Literal, Op, OpId, ParamId, ParamKind, Recipe, RegionId,
    Resource, Span, ValueId,
};
use crate::passes::blocks::{Blocks, Tensor};

const PASS: &str = "made";

/// Addresses and strides that the hardware's tensor copies can use, in bytes.
const UNIT: u32 = 16;

/// The bit of [`Bindings::rough_tensors`](super::Bindings::rough_tensors) that stands for a tensor.
pub fn bit(slot: u16) -> u32 {
    1 << u32::from(slot).min(u32::BITS - 1)
}

/// A descriptor that the kernel makes and uses.
struct Made {
    id: OpId,
    value: ValueId,
    base: ParamId,
    block: Vec<i64>,
    pads_with_nan: bool,
    name: String,
    span: Span,
    found: std::result::Result<Found, String>,
}

/// Those with one recipe.
struct Group {
    recipe: Recipe,
    block: Vec<i64>,
    pads_with_nan: bool,
    members: Vec<usize>,
    writes: bool,
}

/// Replaces all that make descriptors. `rough` has a [bit](bit()) for each tensor of which nothing may be assumed.
///
/// # Errors
/// If the pass writes an operation that breaks a type rule, which is a mistake in it.
pub(super) fn run(func: &mut Func, rough: u32) -> Result<()> {
    let mut makers = Vec::new();
    walk(func, &mut |id| {
        if matches!(func.op(id).op, Op::Desc(DescOp::MakeDesc { .. })) {
            makers.push(id);
        }
    });
    if makers.is_empty() {
        return Ok(());
    }
    let accesses = Accesses::of(func);
    let made: Vec<Made> =
        makers.iter().filter_map(|&id| Made::of(func, id)).filter(|made| accesses.uses(made)).collect();
    let mut why: Vec<Option<String>> = made.iter().map(|made| made.found.as_ref().err().cloned()).collect();
    let mut groups = groups(&made, &accesses);
    for (slot, group) in groups.iter_mut().enumerate() {
        group.recipe.slot = slot as u16;
    }
    for group in &groups {
        if let Some(reason) = refusal(group, &made, &accesses, rough) {
            group.members.iter().for_each(|&member| why[member] = Some(reason.clone()));
        } else {
            add_param(func, group, &made, rough);
        }
    }
    let mut pointers = Pointers { func, made: BTreeMap::new(), tensors: BTreeMap::new(), out: Vec::new() };
    for (made, why) in made.into_iter().zip(why) {
        let Some(why) = why else { continue };
        let entry = ByPointers { name: made.name.clone(), why, span: made.span };
        if !pointers.func.by_pointers.contains(&entry) {
            pointers.func.by_pointers.push(entry);
        }
        pointers.made.insert(made.id, made);
    }
    pointers.region(pointers.func.body)
}

/// Who accesses buffers.
#[derive(Default)]
struct Accesses {
    /// By descriptor that is made: whether it writes.
    through: BTreeMap<ValueId, bool>,
    /// By buffer: whether something else accesses it, and whether anything writes it.
    direct: BTreeMap<ParamId, bool>,
    written: BTreeMap<ParamId, bool>,
}

impl Accesses {
    fn of(func: &Func) -> Accesses {
        let mut all = Accesses::default();
        walk(func, &mut |id| {
            let operation = func.op(id);
            for effect in func.own_effects(id) {
                let Resource::Buffer(param) = effect.resource else { continue };
                *all.written.entry(param).or_default() |= effect.writes;
                let first = operation.operands.first().copied();
                let made = first.filter(|&v| {
                    func.def_op(v).is_some_and(|maker| matches!(maker.op, Op::Desc(DescOp::MakeDesc { .. })))
                });
                match made {
                    Some(value) => *all.through.entry(value).or_default() |= effect.writes,
                    None => *all.direct.entry(param).or_default() = true,
                }
            }
        });
        all
    }

    fn uses(&self, made: &Made) -> bool {
        self.through.contains_key(&made.value)
    }
}

impl Made {
    fn of(func: &Func, id: OpId) -> Option<Made> {
        let operation = func.op(id);
        let Op::Desc(DescOp::MakeDesc { block, pads_with_nan, name }) = &operation.op else { return None };
        let block = block.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>()?;
        let value = *operation.results.first()?;
        let base = func.ty(value).descriptor()?;
        let found = find(func, &operation.operands, block.len());
        let (name, span) = (name.clone(), operation.span);
        Some(Made { id, value, base, block, pads_with_nan: *pads_with_nan, name, span, found })
    }
}

fn groups(made: &[Made], accesses: &Accesses) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, one) in made.iter().enumerate() {
        let Ok(Found { recipe, .. }) = &one.found else { continue };
        let writes = accesses.through.get(&one.value).copied().unwrap_or(false);
        let same = |group: &&mut Group| {
            group.recipe == *recipe && group.block == one.block && group.pads_with_nan == one.pads_with_nan
        };
        if let Some(group) = groups.iter_mut().find(same) {
            group.members.push(index);
            group.writes |= writes;
            continue;
        }
        let (block, pads_with_nan) = (one.block.clone(), one.pads_with_nan);
        groups.push(Group { recipe: recipe.clone(), block, pads_with_nan, members: vec![index], writes });
    }
    groups
}

/// Why a group is accessed through pointers, if it is.
fn refusal(group: &Group, made: &[Made], accesses: &Accesses, rough: u32) -> Option<String> {
    let base = group.recipe.base;
    let alone = !accesses.direct.contains_key(&base)
        && made.iter().enumerate().all(|(index, one)| one.base != base || group.members.contains(&index));
    if accesses.written.get(&base) == Some(&true) && !alone {
        return Some("the kernel writes its buffer, and accesses it in other ways too".to_string());
    }
    let first = &made[*group.members.first()?];
    let is_dense = matches!(&first.found, Ok(found) if found.is_dense);
    (!is_dense && rough & bit(group.recipe.slot) != 0)
        .then(|| "its innermost stride is not 1 in such a launch".to_string())
}

/// Adds the parameter of a group, and makes its members that.
fn add_param(func: &mut Func, group: &Group, made: &[Made], rough: u32) {
    let Some(first) = group.members.first().map(|&member| &made[member]) else { return };
    let Some(dt) = func.pointee_dt(group.recipe.base) else { return };
    let bytes = dt.known().map_or(1, DType::bytes);
    let block = group.block.iter().map(|&size| Dim::Const(size)).collect();
    let divisor = group
        .recipe
        .sizes
        .last()
        .map_or(1, |&step| group.recipe.divisor(step, &|param| func.param(param).facts.divisible_by));
    let id = func.add_param(&first.name, ParamKind::Desc { dt, block, mutable: group.writes }, first.span);
    let unit = (UNIT / bytes).max(1);
    let assumed = rough & bit(group.recipe.slot) == 0;
    let rows = if assumed && group.writes { unit } else { divisor.min(unit) };
    let param = &mut func.params[id.index()];
    param.facts = Facts {
        divisible_by: if assumed { UNIT } else { bytes },
        stride_divisible_by: if assumed { unit } else { 0 },
        len_divisible_by: if rows > 1 { rows } else { 0 },
        pads_with_nan: group.pads_with_nan && dt.known().is_some_and(DType::is_float),
        ..Facts::default()
    };
    param.recipe = Some(Box::new(group.recipe.clone()));
    let value = param.value;
    for &member in &group.members {
        replace_all_uses(func, made[member].value, value);
    }
}

/// Puts accesses through pointers in the place of those through descriptors that are no parameters, and drops all that
/// make one.
struct Pointers<'f> {
    func: &'f mut Func,
    made: BTreeMap<OpId, Made>,
    tensors: BTreeMap<ValueId, Tensor>,
    out: Vec<OpId>,
}

impl Pointers<'_> {
    fn region(&mut self, region: RegionId) -> Result<()> {
        let ops = std::mem::take(&mut self.func.regions[region.index()].ops);
        let outer = std::mem::take(&mut self.out);
        for id in ops {
            for inner in self.func.op(id).regions.clone() {
                self.region(inner)?;
            }
            self.operation(id)?;
        }
        self.func.regions[region.index()].ops = std::mem::replace(&mut self.out, outer);
        Ok(())
    }

    fn operation(&mut self, id: OpId) -> Result<()> {
        let operation = self.func.op(id);
        let Op::Desc(op) = operation.op.clone() else {
            self.out.push(id);
            return Ok(());
        };
        if let DescOp::MakeDesc { .. } = op {
            if let Some(made) = self.made.remove(&id) {
                let tensor = self.tensor(&made)?;
                self.tensors.extend(tensor.map(|tensor| (made.value, tensor)));
            }
            return Ok(());
        }
        match operation.operands.first().and_then(|first| self.tensors.get(first)).cloned() {
            Some(tensor) => Blocks::new(self.func, &mut self.out, PASS).expand(id, &op, &tensor),
            None => {
                self.out.push(id);
                Ok(())
            }
        }
    }

    /// Appends what each program must know of a tensor: sizes within i32, strides as i64.
    fn tensor(&mut self, made: &Made) -> Result<Option<Tensor>> {
        let rank = made.block.len();
        let operands = self.func.op(made.id).operands.clone();
        let Some(dtype) = self.func.pointee_dt(made.base).and_then(Dt::known) else { return Ok(None) };
        let (Some((&first, extents)), mut shape) = (operands.split_first(), Vec::new()) else { return Ok(None) };
        let (sizes, mut strides) = extents.split_at(rank.min(extents.len()));
        let mut cursor = Cursor::new(&mut *self.func, &mut self.out, PASS).at(made.span);
        for &size in sizes {
            if cursor.func.ty(size).dtype() == Some(DType::I32) {
                shape.push(size);
                continue;
            }
            let none = cursor.constant(Literal::Int(0), DType::I64)?;
            let most = cursor.constant(Literal::Int(i32::MAX.into()), DType::I64)?;
            let size = cursor.binary(BinaryOp::Max, size, none)?;
            shape.push(cursor.binary(BinaryOp::Min, size, most)?);
        }
        if let Some((&last, outer)) = strides.split_last()
            && constant(cursor.func, last) == Some(Literal::Int(1))
        {
            strides = outer;
        }
        let strides = strides.iter().map(|&stride| cursor.cast(stride, DType::I64)).collect::<Result<_>>()?;
        let pads_with_nan = made.pads_with_nan && dtype.is_float();
        Ok(Some(Tensor { first, dtype, block: made.block.clone(), pads_with_nan, shape, strides }))
    }
}
