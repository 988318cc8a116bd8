//! Loads, stores, pointers and atomics, on every dtype.

use kernel_core::ir::{
    AtomicOp, BinaryOp, CacheModifier, CmpOp, CreateOp, DType, ElementwiseOp, EvictionPolicy, MemOrder, MemScope,
    MemoryOp, Op,
};
use tilewright_tests::author::{Author, load, store};
use tilewright_tests::data::{Data, from_f64, number};
use tilewright_tests::expect::{Answer, exactly};
use tilewright_tests::{reference, samples};

const LEN: i64 = 128;

fn cut(dtype: DType, seed: u64) -> Data {
    Data::new(dtype, samples::one(dtype, LEN as usize, seed).bits[..LEN as usize].to_vec())
}

/// Masked lanes of loads give `other`, or zero; those of stores keep what was there.
fn masks(dtype: DType) {
    let (input, before, other) = (cut(dtype, 20), cut(dtype, 21), cut(dtype, 22));
    let pattern = |i: usize| i % 3 != 1 && i < 100;
    let mask_data = Data::new(DType::Bool, (0..LEN as usize).map(|i| u64::from(pattern(i))));
    let mut author = Author::new(&format!("masks_{dtype}"));
    let offsets = author.offsets(&[LEN]);
    let mask = author.load_tile(&mask_data, &[LEN]);
    let base = author.input(&input);
    let from = author.address(base, offsets);
    let choose = |yes: &Data, no: &dyn Fn(usize) -> u64| -> Vec<Answer> {
        (0..LEN as usize).map(|i| Answer::Exactly(if pattern(i) { yes.bits[i] } else { no(i) })).collect()
    };
    let zero = author.one(load(), &[from, mask]);
    author.store_tile("masked load", zero, choose(&input, &|_| 0));
    let others = author.load_tile(&other, &[LEN]);
    let loaded = author.one(load(), &[from, mask, others]);
    author.store_tile("masked load with others", loaded, choose(&input, &|i| other.bits[i]));
    let all = author.one(load(), &[from]);
    author.store_tile("load", all, exactly(&input));
    let out = author.output("masked store", &before, choose(&input, &|i| before.bits[i]));
    let to = author.address(out, offsets);
    author.op(store(), &[to, all, mask]);

    // Scalars, loaded and stored, with masks that hold and do not.
    let seven = author.one(Op::i32(7), &[]);
    let place = author.address(base, seven);
    for (holds, label) in [(1, "scalar, mask true"), (0, "scalar, mask false")] {
        let mask = author.scalar(DType::Bool, holds);
        let filler = author.constant(dtype, number(dtype, 1));
        let value = author.one(load(), &[place, mask, filler]);
        let want = if holds == 1 { input.bits[7] } else { number(dtype, 1) };
        author.store_tile(label, value, vec![Answer::Exactly(want)]);
        let whole = author.one(load(), &[place]);
        let want: Vec<u64> =
            (0..16).map(|i| if holds == 1 && i == 7 { input.bits[7] } else { before.bits[i] }).collect();
        let out = author.output(
            &format!("store of a {label}"),
            &Data::new(dtype, before.bits[..16].to_vec()),
            exactly(&Data::new(dtype, want)),
        );
        let to = author.address(out, seven);
        author.op(store(), &[to, whole, mask]);
    }
    author.finish().check_on_every_device();
}

/// Reversed, strided and data-dependent addresses.
fn gather(dtype: DType) {
    let input = cut(dtype, 23);
    let mut author = Author::new(&format!("gather_{dtype}"));
    let lanes = author.arange(0, LEN);
    let base = author.input(&input);
    let last = author.one(Op::i32(LEN as i32 - 1), &[]);
    let last = author.splat(last, &[LEN]);
    let reversed = author.one(Op::binary(BinaryOp::Sub), &[last, lanes]);
    let address = author.address(base, reversed);
    let value = author.one(load(), &[address]);
    let mut backwards = input.bits.clone();
    backwards.reverse();
    author.store_tile("reversed", value, exactly(&Data::new(dtype, backwards)));

    let table: Vec<i64> = (0..LEN).map(|i| (i * 37 + i * i) % LEN).collect();
    let indices = author.load_tile(&Data::numbers(DType::I32, table.clone()), &[LEN]);
    let address = author.address(base, indices);
    let value = author.one(load(), &[address]);
    let gathered = Data::new(dtype, table.iter().map(|&i| input.bits[i as usize]));
    author.store_tile("gathered", value, exactly(&gathered));

    // A permutation, so that no two lanes store to one place.
    let scatter: Vec<i64> = (0..LEN).map(|i| (i * 45 + 7) % LEN).collect();
    let indices = author.load_tile(&Data::numbers(DType::I64, scatter.clone()), &[LEN]);
    let mut want = vec![0; LEN as usize];
    scatter.iter().zip(&input.bits).for_each(|(&to, &bits)| want[to as usize] = bits);
    let from = author.address(base, lanes);
    let value = author.one(load(), &[from]);
    let out = author.output("scattered", &Data::zeros(dtype, LEN as usize), exactly(&Data::new(dtype, want)));
    let to = author.address(out, indices);
    author.op(store(), &[to, value]);

    let two = author.one(Op::i32(2), &[]);
    let two = author.splat(two, &[LEN / 2]);
    let half = author.arange(0, LEN / 2);
    let even = author.one(Op::binary(BinaryOp::Mul), &[half, two]);
    let address = author.address(base, even);
    let value = author.one(load(), &[address]);
    let want = Data::new(dtype, input.bits.iter().copied().step_by(2));
    author.store_tile("every second", value, exactly(&want));
    author.finish().check_on_every_device();
}

/// Offsets of every integer dtype, negative ones too, from a pointer in the middle of a buffer.
#[test]
fn offsets_of_every_integer_dtype() {
    let input = cut(DType::I32, 24);
    let mut author = Author::new("offsets");
    let base = author.input(&input);
    let middle = author.one(Op::i32(64), &[]);
    let middle = author.address(base, middle);
    for dtype in DType::ALL.into_iter().filter(|d| d.is_int()) {
        let signed = dtype.is_signed_int();
        let table: Vec<i64> = (0..32).map(|i| if signed { i * 4 - 64 } else { i * 2 }).collect();
        let offsets = author.load_tile(&Data::numbers(dtype, table.clone()), &[32]);
        let address = author.address(middle, offsets);
        let value = author.one(load(), &[address]);
        let want = table.iter().map(|&i| Answer::Exactly(input.bits[(64 + i) as usize])).collect();
        author.store_tile(&format!("offsets of {dtype}"), value, want);
    }
    author.finish().check_on_every_device();
}

/// Pointers into one buffer compare by where they point.
#[test]
fn pointers_compare() {
    let input = cut(DType::U8, 25);
    let mut author = Author::new("pointers");
    let base = author.input(&input);
    let lanes = author.arange(0, LEN);
    let address = author.address(base, lanes);
    let forty = author.one(Op::i32(40), &[]);
    let fixed = author.address(base, forty);
    let fixed = author.splat(fixed, &[LEN]);
    for &op in CmpOp::ALL {
        let result = author.one(Op::compare(op), &[address, fixed]);
        let want = (0..LEN as u64).map(|i| Answer::Exactly(reference::compare(op, DType::U64, i, 40))).collect();
        author.store_tile(op.name(), result, want);
    }
    // A selection between pointers.
    let backwards = author.one(Op::i32(LEN as i32 - 1), &[]);
    let backwards = author.splat(backwards, &[LEN]);
    let backwards = author.one(Op::binary(BinaryOp::Sub), &[backwards, lanes]);
    let other = author.address(base, backwards);
    let below = author.one(Op::compare(CmpOp::Lt), &[address, fixed]);
    let chosen = author.one(ElementwiseOp::Select, &[below, address, other]);
    let value = author.one(load(), &[chosen]);
    let place = |i: usize| if i < 40 { i } else { 127 - i };
    author.store_tile("chosen", value, (0..128).map(|i| Answer::Exactly(input.bits[place(i)])).collect());
    author.finish().check_on_every_device();
}

/// Hints to the caches change nothing in the result.
#[test]
fn cache_hints() {
    let input = cut(DType::F32, 26);
    let mut author = Author::new("cache_hints");
    let lanes = author.arange(0, LEN);
    let base = author.input(&input);
    let from = author.address(base, lanes);
    for &eviction in EvictionPolicy::ALL {
        for cache in
            [CacheModifier::Default, CacheModifier::Ca, CacheModifier::Cg, CacheModifier::Cs, CacheModifier::Cv]
        {
            let value = author.one(MemoryOp::Load { cache, eviction }, &[from]);
            author.store_tile(&format!("load {} {}", cache.name(), eviction.name()), value, exactly(&input));
        }
        let value = author.one(load(), &[from]);
        for cache in
            [CacheModifier::Default, CacheModifier::Wb, CacheModifier::Cg, CacheModifier::Cs, CacheModifier::Wt]
        {
            let label = format!("store {} {}", cache.name(), eviction.name());
            let out = author.output(&label, &Data::zeros(DType::F32, LEN as usize), exactly(&input));
            let to = author.address(out, lanes);
            author.op(MemoryOp::Store { cache, eviction }, &[to, value]);
        }
    }
    author.finish().check_on_every_device();
}

/// Programs of four, each with 128 lanes on 8 counters.
fn atomics(dtype: DType) {
    let (programs, counters) = (4u64, 8u64);
    let start = Data::new(dtype, (0..counters).map(|i| number(dtype, i as i64)));
    let mut author = Author::new(&format!("atomics_{dtype}"));
    author.grid([programs as usize, 1, 1]);
    let lanes = author.arange(0, LEN);
    let seven = author.one(Op::i32(7), &[]);
    let seven = author.splat(seven, &[LEN]);
    let slots = author.one(Op::binary(BinaryOp::And), &[lanes, seven]);
    let value_data = Data::new(dtype, (0..LEN).map(|i| number(dtype, i / 8 % 3)));
    let values = author.load_tile(&value_data, &[LEN]);
    let sixty = author.one(Op::i32(60), &[]);
    let sixty = author.splat(sixty, &[LEN]);
    let mask = author.one(Op::compare(CmpOp::Lt), &[lanes, sixty]);
    for &op in AtomicOp::ALL {
        let Some(combination) = combination(op) else { continue };
        // On floats the hardware has sums only.
        if dtype.is_float() && op != AtomicOp::Add {
            continue;
        }
        let mut want = start.bits.clone();
        for _ in 0..programs {
            for i in 0..60 {
                let slot = &mut want[i % 8];
                *slot = match reference::binary(combination, dtype, *slot, value_data.bits[i]) {
                    Answer::Exactly(bits) | Answer::UnsignedZero(bits) => bits,
                    other => panic!("not exact: {other:?}"),
                };
            }
        }
        for (order, scope) in [(MemOrder::Relaxed, MemScope::Device), (MemOrder::AcqRel, MemScope::System)] {
            let label = format!("{} {} {}", op.name(), order.name(), scope.name());
            let out = author.output(&label, &start, exactly(&Data::new(dtype, want.clone())));
            let to = author.address(out, slots);
            author.op(MemoryOp::AtomicRmw { op, order, scope }, &[to, values, mask]);
        }
    }
    author.finish().check_on_every_device();
}

fn combination(op: AtomicOp) -> Option<BinaryOp> {
    Some(match op {
        AtomicOp::Add => BinaryOp::Add,
        AtomicOp::Min => BinaryOp::Min,
        AtomicOp::Max => BinaryOp::Max,
        AtomicOp::And => BinaryOp::And,
        AtomicOp::Or => BinaryOp::Or,
        AtomicOp::Xor => BinaryOp::Xor,
        AtomicOp::Exchange => return None,
    })
}

/// What an atomic gives back: every ticket once; exchange and compare-and-swap hand over what was there.
#[test]
fn atomics_give_back_what_was_there() {
    let mut author = Author::new("tickets");
    let lanes = author.arange(0, LEN);
    let zero = author.one(Op::i32(0), &[]);
    let zeros = author.splat(zero, &[LEN]);
    let one = author.one(Op::i32(1), &[]);
    let ones = author.splat(one, &[LEN]);
    let (order, scope) = (MemOrder::Relaxed, MemScope::Device);
    let counter = author.output("counter", &Data::zeros(DType::I32, 1), vec![Answer::Exactly(LEN as u64)]);
    let at = author.address(counter, zeros);
    let tickets = author.one(MemoryOp::AtomicRmw { op: AtomicOp::Add, order, scope }, &[at, ones]);
    // The tickets are a permutation of 0..LEN: stored by ticket, every place is reached.
    let out = author.output("reached", &Data::zeros(DType::I32, LEN as usize), vec![Answer::Exactly(1); LEN as usize]);
    let to = author.address(out, tickets);
    author.op(store(), &[to, ones]);

    let five = author.constant(DType::U64, 5);
    let before = Data::new(DType::U64, [9]);
    let cell = author.output("exchanged", &before, vec![Answer::Exactly(5)]);
    let old = author.one(MemoryOp::AtomicRmw { op: AtomicOp::Exchange, order, scope }, &[cell, five]);
    author.store_tile("what exchange gave", old, vec![Answer::Exactly(9)]);

    // Even cells hold what is expected.
    let before = Data::numbers(DType::I32, (0..LEN).map(|i| if i % 2 == 0 { i } else { -1 }));
    let after = Data::numbers(DType::I32, (0..LEN).map(|i| if i % 2 == 0 { 1 } else { -1 }));
    let cells = author.output("swapped", &before, exactly(&after));
    let at = author.address(cells, lanes);
    let old = author.one(MemoryOp::AtomicCas { order, scope }, &[at, lanes, ones]);
    author.store_tile("what compare-and-swap gave", old, exactly(&before));
    author.finish().check_on_every_device();
}

/// Two programs cannot tell which comes first, but within a program a load sees an earlier store.
#[test]
fn a_load_sees_an_earlier_store_of_other_lanes() {
    let mut author = Author::new("store_then_load");
    author.grid([3, 1, 1]);
    let program = author.one(CreateOp::ProgramId { axis: 0 }, &[]);
    let len = author.one(Op::i32(LEN as i32), &[]);
    let start = author.one(Op::binary(BinaryOp::Mul), &[program, len]);
    let start = author.splat(start, &[LEN]);
    let lanes = author.arange(0, LEN);
    let mine = author.one(Op::binary(BinaryOp::Add), &[start, lanes]);
    let last = author.one(Op::i32(LEN as i32 - 1), &[]);
    let last = author.splat(last, &[LEN]);
    let mirrored = author.one(Op::binary(BinaryOp::Sub), &[last, lanes]);
    let mirrored = author.one(Op::binary(BinaryOp::Add), &[start, mirrored]);
    let total = (3 * LEN) as usize;
    let counting = Data::numbers(DType::I32, 0..total as i64);
    let scratch = author.output("scratch", &Data::zeros(DType::I32, total), exactly(&counting));
    let here = author.address(scratch, mine);
    let there = author.address(scratch, mirrored);
    author.op(store(), &[here, mine]);
    let seen = author.one(load(), &[there]);
    let mirror = (0..total as i64).map(|i| i / LEN * LEN + LEN - 1 - i % LEN);
    let out = author.output("seen", &Data::zeros(DType::I32, total), exactly(&Data::numbers(DType::I32, mirror)));
    let to = author.address(out, mine);
    author.op(store(), &[to, seen]);
    author.finish().check_on_every_device();
}

/// The bits of NaNs and subnormals survive a copy.
#[test]
fn copies_keep_every_bit() {
    let mut author = Author::new("copy_bits");
    for dtype in DType::ALL.into_iter().filter(|d| d.is_float()) {
        let nan = from_f64(dtype, f64::NAN);
        let input = Data::new(dtype, (0..LEN as u64).map(|i| if i % 2 == 0 { nan | i } else { i }));
        let tile = author.load_tile(&input, &[LEN]);
        let wide = author.one(ElementwiseOp::Bitcast { to: integer_of(dtype).into() }, &[tile]);
        let want = Data::new(integer_of(dtype), input.bits.clone());
        author.store_tile(&format!("bits of {dtype}"), wide, exactly(&want));
    }
    author.finish().check_on_every_device();
}

fn integer_of(dtype: DType) -> DType {
    match dtype.bytes() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}

macro_rules! for_each_dtype {
    ($($test:ident: $($name:ident = $dtype:ident)*;)*) => {$(
        mod $test {
            use kernel_core::ir::DType;
            $(#[test] fn $name() { super::$test(DType::$dtype); })*
        }
    )*};
}

for_each_dtype! {
    masks: bool = Bool i8 = I8 i16 = I16 i32 = I32 i64 = I64 u8 = U8 u16 = U16 u32 = U32 u64 = U64
        f8e4m3 = F8E4M3 f8e5m2 = F8E5M2 f16 = F16 bf16 = BF16 f32 = F32 f64 = F64;
    gather: bool = Bool i8 = I8 i16 = I16 i32 = I32 i64 = I64 u8 = U8 u16 = U16 u32 = U32 u64 = U64
        f8e4m3 = F8E4M3 f8e5m2 = F8E5M2 f16 = F16 bf16 = BF16 f32 = F32 f64 = F64;
    atomics: i32 = I32 i64 = I64 u32 = U32 u64 = U64 f32 = F32 f64 = F64;
}
