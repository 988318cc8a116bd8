//! Regions for single elements: loops and conditions that go another way for each, and PTX.

use kernel_core::ir::{BinaryOp, CmpOp, ControlOp, DType, InlinePtx, Ty, UnaryOp, Unroll, ValueId};

use super::features::Feature;
use super::writer::Writer;
use crate::facts::Fact;

/// A random region for each element of one or two tiles.
pub fn step(w: &mut Writer) -> Option<()> {
    if w.random.chance(30) { complement(w) } else { ways(w) }
}

/// A region whose arguments are elements of tiles.
fn map(
    w: &mut Writer,
    tiles: &[ValueId],
    ptx: Option<InlinePtx>,
    build: impl FnOnce(&mut Writer, &[ValueId]) -> Option<Vec<ValueId>>,
) -> Option<()> {
    w.has(Feature::Map);
    let tys: Vec<Ty> = tiles.iter().map(|&tile| w.func.ty(tile).with_shape(Vec::new())).collect();
    let region = w.func.new_region(tys);
    let args = w.func.region(region).args.clone();
    for (&arg, &tile) in args.iter().zip(tiles) {
        let fact = w.fact(tile);
        w.know(arg, fact);
    }
    let yields = w.inside(region, |w| {
        let yields = build(w, &args)?;
        w.yields(&yields);
        Some(yields)
    })?;
    let results = w.raw(ControlOp::Map { ptx }, tiles, &[region])?;
    for (&result, &given) in results.iter().zip(&yields) {
        let fact = w.fact(given);
        w.know(result, fact);
        w.keep(result);
    }
    Some(())
}

/// The complement of integers, by PTX that takes several of them.
fn complement(w: &mut Writer) -> Option<()> {
    let tile = w.some_tile();
    let from = w.dtype(tile);
    let tile = if from.is_int() { tile } else { w.cast(tile, DType::I32) };
    let dtype = w.dtype(tile);
    let mut ptx = InlinePtx { text: String::new(), pack: w.random.pick(&[1, 2, 4, 8]), pure: w.random.chance(70) };
    let registers = ptx.registers(dtype)?;
    let bits = match registers.register.letter() {
        'h' => 16,
        'r' => 32,
        _ => 64,
    };
    let count = registers.count;
    ptx.text = (0..count).map(|i| format!("not.b{bits} ${i}, ${};", count + i)).collect();
    map(w, &[tile], Some(ptx), |w, args| Some(vec![w.unary(UnaryOp::Not, args[0])?]))
}

/// A loop as long as an element says, and one of two values, as what it has computed says.
fn ways(w: &mut Writer) -> Option<()> {
    let tile = w.some_tile();
    let (dtype, shape) = (w.dtype(tile), w.shape(tile));
    let numbers = w.like(DType::I32, &shape);
    let (program, other) = (w.program(), w.constant(1.0, dtype));
    let (reverse, odd) = (w.random.chance(30), w.random.chance(50));
    let unroll = w.random.pick(&[Unroll::Auto, Unroll::Never, Unroll::By(2)]);
    map(w, &[tile, numbers], None, |w, args| {
        let (zero, one, seven) = (w.int(0), w.int(1), w.int(7));
        let trips = w.binary(BinaryOp::And, args[1], seven)?;
        let ty = w.func.ty(one).clone();
        let body = w.func.new_region([ty.clone(), ty]);
        let inner = w.func.region(body).args.clone();
        inner.iter().for_each(|&arg| w.know(arg, Fact::any(DType::I32)));
        w.inside(body, |w| {
            let product = w.binary(BinaryOp::Mul, inner[1], seven)?;
            let sum = w.binary(BinaryOp::Add, product, inner[0])?;
            let next = w.binary(BinaryOp::Xor, sum, program)?;
            w.yields(&[next]);
            Some(())
        })?;
        let attributes = ControlOp::For {
            reverse,
            unroll,
            counter: None,
            stages: 0,
            warp_specialize: false,
            runs: false,
            no_wrap: false,
            unroll_by: None,
            stages_by: None,
        };
        let hash = w.raw(attributes, &[zero, trips, one, args[1]], &[body])?[0];
        w.know(hash, Fact::any(DType::I32));
        let low = w.binary(BinaryOp::And, hash, one)?;
        let condition = w.compare(if odd { CmpOp::Ne } else { CmpOp::Eq }, low, zero)?;
        let branches = [w.func.new_region([]), w.func.new_region([])];
        for (branch, value) in branches.into_iter().zip([args[0], other]) {
            w.inside(branch, |w| w.yields(&[value]));
        }
        let chosen = w.raw(ControlOp::If, &[condition], &branches)?[0];
        let fact = w.fact(args[0]).hull(w.fact(other));
        w.know(chosen, fact);
        Some(vec![chosen, hash])
    })
}
