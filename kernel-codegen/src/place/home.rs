//! Forwards: where each value is computed.

use kernel_core::ir::{
    BinaryOp, ControlOp, DType, DescOp, DotOp, Elements, ElementwiseOp, LayoutId, MemoryOp, Op, OpId, ParamKind,
    RegionId, ShapeOp, UnaryOp, ValueId,
};
use kernel_core::layout::{WARP_SIZE, reduction};

use super::{Home, Placement, coalesce, product, tile, transfer};
use crate::error::CodegenError;

type Result<T> = std::result::Result<T, CodegenError>;

/// Tiles of at most this many elements per thread are small: an access in any layout costs little.
const SMALL_PER_THREAD: u32 = 4;

/// Visits the operations of a region.
pub(super) fn region(p: &mut Placement<'_>, region: RegionId) -> Result<()> {
    let func = p.func;
    for &op in &func.region(region).ops {
        operation(p, op)?;
    }
    Ok(())
}

fn operation(p: &mut Placement<'_>, id: OpId) -> Result<()> {
    let func = p.func;
    let operation = func.op(id);
    if let [result] = operation.results[..]
        && let Some(&layout) = p.unpacked.get(&result)
    {
        p.homes[result.index()] = Home::At(layout);
        return Ok(());
    }
    let home = match &operation.op {
        Op::Create(_) => Home::Rematerialise,
        Op::Elementwise(op) => {
            let cheap = is_cheap(op, func.ty(operation.operands[0]).dtype());
            inherited(p, &operation.operands, cheap)
        }
        Op::Shape(op) => return shape(p, id, op),
        Op::Tile(op) => return tile::home(p, id, op),
        Op::Memory(op) => return memory(p, id, op),
        Op::Control(op) => return control(p, id, op),
        Op::Dot(DotOp::Dot { .. }) => return product::home(p, id),
        Op::Dot(DotOp::DotScaled { .. }) => {
            let what = "a product of scaled factors has not been written in terms of others";
            return Err(CodegenError::internal(func, operation.span, "place", what));
        }
        Op::Desc(op) => return descriptor(p, id, op),
        Op::Gpu(_) => return Ok(()),
    };
    for &result in &operation.results {
        p.homes[result.index()] = home;
    }
    Ok(())
}

/// Where a value computed from these operands is at home.
fn inherited(p: &Placement<'_>, operands: &[ValueId], cheap: bool) -> Home {
    let tiles = || operands.iter().filter(|&&v| p.is_tile(v)).map(|&v| p.home(v));
    if let Some(fixed) = tiles().find(|home| matches!(home, Home::At(_))) {
        return fixed;
    }
    if cheap && tiles().all(|home| home == Home::Rematerialise) { Home::Rematerialise } else { Home::AnyOne }
}

/// Whether computing this again costs less than moving its result.
fn is_cheap(op: &ElementwiseOp, dtype: Option<DType>) -> bool {
    let float = dtype.is_some_and(DType::is_float);
    match op {
        ElementwiseOp::Unary { op } => match op {
            UnaryOp::Neg
            | UnaryOp::Abs
            | UnaryOp::Not
            | UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::Trunc
            | UnaryOp::Round
            | UnaryOp::RoundTiesEven
            | UnaryOp::CountOnes
            | UnaryOp::LeadingZeros
            | UnaryOp::TrailingZeros
            | UnaryOp::ReverseBits => true,
            UnaryOp::SqrtRn | UnaryOp::Math(_) => false,
        },
        ElementwiseOp::Binary { op } => match op {
            BinaryOp::Div | BinaryOp::Rem => !float,
            BinaryOp::DivRn | BinaryOp::Math(_) => false,
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::MinNan
            | BinaryOp::MaxNan
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::Shl
            | BinaryOp::Shr
            | BinaryOp::Umulhi
            | BinaryOp::Mulhi
            | BinaryOp::RotateLeft
            | BinaryOp::RotateRight
            | BinaryOp::SaturatingAdd
            | BinaryOp::SaturatingSub
            | BinaryOp::SaturatingMul
            | BinaryOp::CopySign
            | BinaryOp::NextAfter => true,
        },
        ElementwiseOp::FloatInt { .. } => false,
        ElementwiseOp::Compare { .. }
        | ElementwiseOp::Select
        | ElementwiseOp::Fma
        | ElementwiseOp::Cast { .. }
        | ElementwiseOp::Bitcast { .. } => true,
    }
}

fn shape(p: &mut Placement<'_>, id: OpId, op: &ShapeOp) -> Result<()> {
    let operation = p.func.op(id);
    let result = operation.results[0];
    let Some(source) = operation.moved_operand() else { return joined(p, id) };
    let home = match (p.home(source), op) {
        (_, ShapeOp::Broadcast { .. }) => Home::Rematerialise,
        (Home::At(layout), _) if p.is_tile(source) && p.is_tile(result) => {
            let layout = transfer::result_layout(p.func, id, p.table.get(layout));
            match p.layout(id, layout)? {
                Some(layout) => Home::At(p.table.intern(&layout)),
                None => Home::Rematerialise,
            }
        }
        (other, _) if p.is_tile(source) => other,
        _ => Home::Rematerialise,
    };
    p.homes[result.index()] = home;
    if p.is_tile(source) && !p.is_tile(result) {
        p.chosen[id.index()] = Some(settled(p, id, source)?);
    }
    Ok(())
}

/// What has elements of several tiles is made where the first is that has a home, and the others go there.
fn joined(p: &mut Placement<'_>, id: OpId) -> Result<()> {
    let operation = p.func.op(id);
    let is_fixed = |value: &ValueId| matches!(p.home(*value), Home::At(_));
    let source = operation.operands.iter().copied().find(is_fixed).unwrap_or(operation.operands[0]);
    let source = settled(p, id, source)?;
    let layout = transfer::result_layout(p.func, id, p.table.get(source));
    let home = match p.layout(id, layout)? {
        Some(layout) => Home::At(p.table.intern(&layout)),
        None => Home::Rematerialise,
    };
    p.homes[operation.results[0].index()] = home;
    Ok(())
}

/// The layout in which a value is computed, or that of its shape.
pub(super) fn settled(p: &mut Placement<'_>, id: OpId, value: ValueId) -> Result<LayoutId> {
    match p.home(value) {
        Home::At(layout) => Ok(layout),
        Home::Rematerialise | Home::AnyOne => coalesce::default_layout(p, id, value),
    }
}

fn memory(p: &mut Placement<'_>, id: OpId, op: &MemoryOp) -> Result<()> {
    let operation = p.func.op(id);
    let access = p.access[id.index()];
    match op {
        // Pointers are 64 bits wide: where they have to be in another layout, their offsets go there instead.
        // Where a check sits is unobservable, and its result must be where the access is.
        MemoryOp::AddPtr | MemoryOp::CheckBounds { .. } => {
            p.homes[operation.results[0].index()] = Home::Rematerialise;
        }
        MemoryOp::Load { .. } => {
            let pointer = operation.operands[0];
            let home = match access {
                Some(_) if is_small(p, pointer) && is_constant_memory(p, pointer) && !is_packed(p, id) => Home::AnyOne,
                Some(layout) => Home::At(layout),
                None => Home::Rematerialise,
            };
            p.chosen[id.index()] = access;
            p.homes[operation.results[0].index()] = home;
        }
        MemoryOp::Store { .. } => {
            let value = operation.operands[1];
            p.chosen[id.index()] = match p.home(value) {
                Home::At(layout) if is_small(p, value) && coalesce::suits(p, id, layout) => Some(layout),
                Home::At(_) | Home::AnyOne | Home::Rematerialise => access,
            };
        }
        MemoryOp::AtomicRmw { .. } | MemoryOp::AtomicCas { .. } => {
            p.chosen[id.index()] = access;
            if let Some(layout) = access {
                p.homes[operation.results[0].index()] = Home::At(layout);
            }
        }
    }
    Ok(())
}

/// Blocks that tensor copies move: they are read from shared memory, and written to it, in any layout.
fn descriptor(p: &mut Placement<'_>, id: OpId, op: &DescOp) -> Result<()> {
    let operation = p.func.op(id);
    match op {
        DescOp::DescLoad => p.homes[operation.results[0].index()] = Home::AnyOne,
        DescOp::DescStore | DescOp::DescReduce { .. } => {
            p.chosen[id.index()] = Some(settled(p, id, operation.operands[1])?);
        }
        // Rows by number are accessed by pointers, and binding makes parameters of descriptors.
        DescOp::DescGather | DescOp::DescScatter | DescOp::MakeDesc { .. } => {
            let what = format!("`{}` by tensor copies", operation.op.mnemonic());
            return Err(CodegenError::refuse(p.func, operation.span, what));
        }
    }
    Ok(())
}

fn is_small(p: &Placement<'_>, value: ValueId) -> bool {
    let numel: u32 = p.shape(value).iter().product();
    numel <= p.num_warps * WARP_SIZE * SMALL_PER_THREAD
}

/// Whether factors of a product are computed from a load, of whose tile each thread has a vector of 16 bytes: however
/// small, it is fetched ahead as it lies in memory, and unpacked from there.
fn is_packed(p: &Placement<'_>, id: OpId) -> bool {
    let result = p.func.op(id).results[0];
    let bytes = p.func.ty(result).dtype().map_or(0, DType::bytes);
    let shape = p.shape(result);
    let (numel, wide) = (shape.iter().product::<u32>(), shape.iter().filter(|&&size| size > 1).count());
    wide > 1
        && p.factors.all.contains(&id)
        && numel * bytes >= p.num_warps * WARP_SIZE * coalesce::MAX_ACCESS_BYTES as u32
}

fn is_constant_memory(p: &Placement<'_>, pointer: ValueId) -> bool {
    let param = p.func.ty(pointer).pointee();
    param.is_some_and(|param| matches!(p.func.param(param).kind, ParamKind::Ptr { mutable: false, .. }))
}

fn control(p: &mut Placement<'_>, id: OpId, op: &ControlOp) -> Result<()> {
    let func = p.func;
    let operation = func.op(id);
    match op {
        ControlOp::For { .. } => {
            let body = operation.regions[0];
            carried(p, id, &operation.operands[3..], &func.region(body).args[1..], body, &[body])
        }
        ControlOp::While => {
            let (condition, body) = (operation.regions[0], operation.regions[1]);
            let args = &func.region(body).args;
            carried(p, id, &operation.operands, args, body, &[condition, body])
        }
        ControlOp::If => {
            for &inner in &operation.regions {
                region(p, inner)?;
            }
            for (i, result) in p.tiles(&operation.results) {
                let sources = operation.regions.iter().filter_map(|&r| func.yielded(r).get(i).copied());
                let sources: Vec<ValueId> = sources.collect();
                // What comes from the iteration before may have no layout yet: what is computed with it decides.
                p.homes[result.index()] = match fixed(p, &sources) {
                    None if p.first_visit => Home::AnyOne,
                    _ => Home::At(home(p, id, &sources, result)?),
                };
            }
            Ok(())
        }
        ControlOp::Reduce { axis } => {
            let layout = reduced(p, id, *axis)?;
            p.chosen[id.index()] = Some(layout);
            let plan = p.layout(id, reduction(p.table.get(layout), *axis))?;
            for (_, result) in p.tiles(&operation.results) {
                let result_layout = p.table.intern(&plan.result);
                p.homes[result.index()] = Home::At(result_layout);
            }
            Ok(())
        }
        ControlOp::Scan { axis, .. } => {
            let layout = reduced(p, id, *axis)?;
            p.chosen[id.index()] = Some(layout);
            for &result in &operation.results {
                p.homes[result.index()] = Home::At(layout);
            }
            Ok(())
        }
        // As other operations on elements, but in one place alone: a region is a lot to do again.
        ControlOp::Map { .. } => {
            let Some(&result) = operation.results.first().filter(|&&result| p.is_tile(result)) else { return Ok(()) };
            let home = match inherited(p, &operation.operands, false) {
                Home::At(layout) => layout,
                Home::Rematerialise | Home::AnyOne => home(p, id, &[], result)?,
            };
            p.chosen[id.index()] = Some(home);
            for &result in &operation.results {
                p.homes[result.index()] = Home::At(home);
            }
            Ok(())
        }
        ControlOp::Assert { .. } | ControlOp::Print { .. } => {
            if let Some(&first) = operation.operands.first().filter(|&&first| p.is_tile(first)) {
                p.chosen[id.index()] = Some(settled(p, id, first)?);
            }
            Ok(())
        }
        ControlOp::Yield | ControlOp::Return | ControlOp::StaticAssert { .. } => Ok(()),
    }
}

/// The layout in which tiles are combined along an axis: where the first of them is at home, if the axis is one
/// of the layout's own directions.
fn reduced(p: &mut Placement<'_>, id: OpId, axis: u8) -> Result<LayoutId> {
    let operands = &p.func.op(id).operands;
    let mut fixed = operands.iter().filter_map(|&v| match p.home(v) {
        Home::At(layout) => Some(layout),
        Home::Rematerialise | Home::AnyOne => None,
    });
    match fixed.find(|&layout| reduction(p.table.get(layout), axis).is_ok()) {
        Some(layout) => Ok(layout),
        None => coalesce::default_layout(p, id, operands[0]),
    }
}

/// Gives the carried values of a loop their layouts: that in which the next iteration's value is computed, else that
/// of the initial value, else that in which they are first used.
fn carried(
    p: &mut Placement<'_>,
    id: OpId,
    inits: &[ValueId],
    args: &[ValueId],
    next: RegionId,
    regions: &[RegionId],
) -> Result<()> {
    let func = p.func;
    let set = |p: &mut Placement<'_>, index: usize, home: Home| {
        for &inner in regions {
            let own = &func.region(inner).args;
            p.homes[own[own.len() - args.len() + index].index()] = home;
        }
    };
    for (i, init) in p.tiles(inits) {
        let home = match p.home(init) {
            Home::At(layout) => Home::At(layout),
            Home::Rematerialise | Home::AnyOne => Home::AnyOne,
        };
        set(p, i, home);
    }
    let outer = std::mem::replace(&mut p.first_visit, true);
    for &inner in regions {
        region(p, inner)?;
    }
    p.first_visit = outer;
    for (i, init) in p.tiles(inits) {
        let sources: Vec<ValueId> = func.yielded(next).get(i).copied().into_iter().chain([init]).collect();
        let layout = home(p, id, &sources, args[i])?;
        set(p, i, Home::At(layout));
        p.homes[func.op(id).results[i].index()] = Home::At(layout);
    }
    for &inner in regions {
        region(p, inner)?;
    }
    Ok(())
}

/// The layout of a value with several sources: that of the first that has one, else that of the first access that
/// `value` reaches, else that of its shape.
fn home(p: &mut Placement<'_>, id: OpId, sources: &[ValueId], value: ValueId) -> Result<LayoutId> {
    match fixed(p, sources).or_else(|| first_access(p, value)) {
        Some(layout) => Ok(layout),
        None => coalesce::default_layout(p, id, value),
    }
}

/// The layout of the first of these values that has one.
fn fixed(p: &Placement<'_>, values: &[ValueId]) -> Option<LayoutId> {
    values.iter().find_map(|&value| match p.home(value) {
        Home::At(layout) => Some(layout),
        Home::Rematerialise | Home::AnyOne => None,
    })
}

/// The layout of the first access that a value reaches through elementwise and pointer arithmetic.
fn first_access(p: &Placement<'_>, value: ValueId) -> Option<LayoutId> {
    let func = p.func;
    let shape = p.shape(value);
    let mut reached = vec![value];
    // Operations are in program order within each region, and in the arena in order of creation.
    for (index, operation) in func.ops.iter().enumerate() {
        if !operation.operands.iter().any(|v| reached.contains(v)) {
            continue;
        }
        if let Some(layout) = p.access[index]
            && p.table.get(layout).tile_shape() == shape
        {
            return Some(layout);
        }
        if operation.op.elements() == Elements::Each && !operation.op.touches_memory() {
            reached.extend(operation.results.iter().copied());
        }
    }
    None
}
