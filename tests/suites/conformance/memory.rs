//! Loads, stores, and the code that they become.

use half::{bf16, f16};
use tilewright::prelude::*;

use crate::elements::{Element, Random, equal};
use crate::for_numbers;
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![
        masked_loads(),
        scalar_masks(),
        masked_products(),
        constants_and_one_pointer(),
        strides_and_indices(),
        vectors(),
        hints(),
        modifiers(),
        assumptions(),
        strides_of_zero(),
    ]
}

/// Fails unless the text holds.
pub fn ensure(holds: bool, what: &str, text: &str) -> Outcome {
    if holds { Ok(()) } else { Err(Failure(format!("{what}:\n{text}"))) }
}

/// The mnemonics of the instructions that begin so, their guards left out.
pub fn instructions<'a>(ptx: &'a str, name: &str) -> Vec<&'a str> {
    let words = ptx.lines().filter_map(|line| line.split_whitespace().find(|word| !word.starts_with('@')));
    words.filter(|word| word.starts_with(name)).collect()
}

#[kernel]
fn masked<T: Num, const IN: usize, const OUT: usize, const OTHER: i32, const FORM: i32>(
    x: Ptr<T>,
    out: PtrMut<T>,
    n: i32,
) {
    let i = arange(0, OUT);
    if FORM == 0 {
        store(out + i, load(x + i));
    } else if FORM == 1 {
        store(out + i, load(x + i, mask = i < IN, other = OTHER as T));
    } else {
        store(out + i, load(x + i, mask = i < n, other = OTHER as T));
    }
}

#[kernel]
fn masked_bools<const OUT: usize, const OTHER: bool>(x: Ptr<bool>, out: PtrMut<bool>, n: i32) {
    let i = arange(0, OUT);
    store(out + i, load(x + i, mask = i < n, other = OTHER));
}

fn masked_loads() -> Row {
    fn case<T: Element>(device: &Device, len: usize, beyond: usize, other: i32, form: i32) -> Outcome {
        let mut x: Vec<T> = Random::new(40).small(len - beyond, 0, 126);
        let mut out = device.full(len, T::from_int(55))?;
        MaskedConsts { IN: x.len(), OUT: len, OTHER: other, FORM: form }
            .call(&device.upload(&x)?, &mut out, x.len() as i32)
            .grid(1)
            .launch(device)?;
        x.resize(len, T::from_int(i128::from(other)));
        equal(&out.to_vec()?, &x)
    }
    fn bools(device: &Device, len: usize, beyond: usize, other: bool) -> Outcome {
        let mut random = Random::new(41);
        let mut x: Vec<bool> = (0..len - beyond).map(|_| random.below(2) == 1).collect();
        let mut out = device.zeros::<bool>(len)?;
        let consts = MaskedBoolsConsts { OUT: len, OTHER: other };
        consts.call(&device.upload(&x)?, &mut out, x.len() as i32).grid(1).launch(device)?;
        x.resize(len, other);
        if out.to_vec()? == x { Ok(()) } else { Err("other values".into()) }
    }
    let mut row = Row::new("C40", "test_masked_load");
    let sizes = || [128, 512].into_iter().flat_map(|len| (0..5).map(move |beyond| (len, beyond)));
    macro_rules! each {
        ($t:ident) => {
            for (len, beyond) in sizes() {
                for other in [0, 1] {
                    for (form, limit) in [(1, "a constexpr"), (2, "an argument")] {
                        let form = if beyond == 0 && form == 1 { 0 } else { form };
                        let name = format!("{len} - {beyond} {}, else {other}, {limit}", $t::NAME);
                        row.case(name, move |device| case::<$t>(device, len, beyond, other, form));
                    }
                }
            }
        };
    }
    for_numbers!(each);
    for (len, beyond) in sizes() {
        for other in [false, true] {
            let name = format!("{len} - {beyond} bool, else {other}");
            row.case(name, move |device| bools(device, len, beyond, other));
        }
    }
    row
}

#[kernel]
fn all_or_none<const MASK: bool>(x: Ptr<f32>, out: PtrMut<f32>, other: f32) {
    let i = arange(0, 128);
    store(out + i, load(x + i, mask = MASK, other = other));
}

#[kernel]
fn one_if_inside(x: Ptr<f32>, index: Ptr<i32>, out: PtrMut<f32>, n: i32) {
    let i = load(index);
    store(out, load(x + i, mask = i < n, other = 0.0), mask = i < n);
}

fn scalar_masks() -> Row {
    let mut row = Row::new("C41", "test_masked_load_scalar, test_load_scalar_with_mask");
    for mask in [true, false] {
        for other in [0.0, 1.0] {
            row.case(format!("mask {mask}, other {other}"), move |device| {
                let x = device.full(128, 4.0f32)?;
                let mut out = device.zeros::<f32>(128)?;
                AllOrNoneConsts { MASK: mask }.call(&x, &mut out, other).grid(1).launch(device)?;
                equal(&out.to_vec()?, &[if mask { 4.0 } else { other }; 128])
            });
        }
    }
    for (index, want) in [(0, 3.5f32), (1, -1.0), (1 << 30, -1.0)] {
        row.case(format!("element {index} of 1"), move |device| {
            let mut out = device.full(1, -1.0f32)?;
            let (x, index) = (device.full(1, 3.5f32)?, device.full(1, index)?);
            one_if_inside(&x, &index, &mut out, 1).grid(1).launch(device)?;
            equal(&out.to_vec()?, &[want])
        });
    }
    row
}

#[kernel]
fn masked_product<T: Float>(a: Ptr<T>, b: Ptr<T>, out: PtrMut<f32>, inside_a: i32, inside_b: i32) {
    let (m, n, k) = (arange(0, 32), arange(0, 32), arange(0, 16));
    let (at_a, at_b) = (m[(.., None)] * 16 + k[(None, ..)], k[(.., None)] * 32 + n[(None, ..)]);
    let (x, y) = (load(a + at_a, mask = at_a < inside_a), load(b + at_b, mask = at_b < inside_b));
    let at = m[(.., None)] * 32 + n[(None, ..)];
    store(out + at, dot(x, y), mask = at < 32 * 32);
}

fn masked_products() -> Row {
    /// Multiples of 1/8 below 1, whose products and sums of 16 are exact in every factor's dtype.
    fn case<T: Element + Float>(device: &Device, inside: [usize; 2]) -> Outcome {
        let mut random = Random::new(42);
        let mut list = || -> Vec<T> { (0..512).map(|_| T::from_f64(random.below(8) as f64 / 8.0)).collect() };
        let (a, b) = (list(), list());
        let mut out = device.full(32 * 32, -1.0f32)?;
        let (xs, ys) = (device.upload(&a[..inside[0]])?, device.upload(&b[..inside[1]])?);
        masked_product(&xs, &ys, &mut out, inside[0] as i32, inside[1] as i32).grid(1).launch(device)?;
        let factor = |list: &[T], inside: usize, at: usize| if at < inside { list[at].to_f64() } else { 0.0 };
        let want = (0..32 * 32).map(|at| {
            let (m, n) = (at / 32, at % 32);
            let terms = (0..16).map(|k| factor(&a, inside[0], m * 16 + k) * factor(&b, inside[1], k * 32 + n));
            terms.sum::<f64>() as f32
        });
        equal(&out.to_vec()?, &want.collect::<Vec<f32>>())
    }
    let mut row =
        Row::new("C42", "test_masked_load_shared_memory").remarks("exact, with factors whose products are exact");
    macro_rules! each {
        ($($t:ident)*) => {$(
            for inside in [[512, 512], [512, 300], [257, 512], [33, 1]] {
                row.case(format!("{}, {inside:?} elements", $t::NAME), move |device| case::<$t>(device, inside));
            }
        )*};
    }
    each!(bf16 f16 f32);
    row
}

#[kernel]
fn constant<T: Num, const FORM: i32>(out: PtrMut<T>, n: i32) {
    let i = program_id(0) * 128 + arange(0, 128);
    if FORM == 0 {
        store(out + i, full([128], 1 as T), mask = i < n);
    } else if FORM == 1 {
        store(out + i, (i < n) as T, mask = false);
    } else {
        store(out + i, 1 as T, mask = i < n);
    }
}

#[kernel]
fn doubled_in_place(x: PtrMut<f32>) {
    let p = x + program_id(0);
    store(p, load(p) * 2.0);
}

fn constants_and_one_pointer() -> Row {
    fn case<T: Element>(device: &Device, form: i32) -> Outcome {
        let mut out = device.zeros::<T>(128)?;
        ConstantConsts { FORM: form }.call(&mut out, 128).grid(1).launch(device)?;
        equal(&out.to_vec()?, &[T::from_int(i128::from(form != 1)); 128])
    }
    let mut row = Row::new("C43", "test_store_constant, test_load_store_same_ptr");
    macro_rules! each {
        ($t:ident) => {
            for (form, name) in (0..).zip(["constant tile", "constant mask", "constant"]) {
                row.case(format!("{}, {name}", $t::NAME), move |device| case::<$t>(device, form));
            }
        };
    }
    for_numbers!(each);
    for warps in [1, 4, 16, 32] {
        row.case(format!("one pointer, {warps} warps"), move |device| {
            for _ in 0..3 {
                let mut x = device.full(4096, 1.0f32)?;
                doubled_in_place(&mut x).num_warps(warps).grid(4096).launch(device)?;
                equal(&x.to_vec()?, &[2.0; 4096])?;
            }
            Ok(())
        });
    }
    row
}

#[kernel]
fn moved<T: DType, const FORM: i32>(x: Ptr<T>, places: Ptr<i32>, out: PtrMut<T>) {
    let i = arange(0, 512);
    if FORM == 0 {
        store(out + i, load(x + i * 2));
    } else if FORM == 1 {
        store(out + i * 2, load(x + i));
    } else if FORM == 2 {
        store(out + i, load(x + load(places + i)));
    } else {
        store(out + load(places + i), load(x + i));
    }
}

fn strides_and_indices() -> Row {
    fn case<T: DType + PartialEq + std::fmt::Debug>(device: &Device, form: i32, x: &[T], zero: T) -> Outcome {
        let places: Vec<i32> = (0..512).rev().collect();
        let mut out = device.full(1024, zero)?;
        let consts = MovedConsts { FORM: form };
        consts.call(&device.upload(x)?, &device.upload(&places)?, &mut out).grid(1).launch(device)?;
        let mut want = vec![zero; 1024];
        (0..512).for_each(|i| match form {
            0 => want[i] = x[2 * i],
            1 => want[2 * i] = x[i],
            _ => want[i] = x[511 - i],
        });
        if out.to_vec()? == want { Ok(()) } else { Err("other elements".into()) }
    }
    let mut row = Row::new("C44", "test_strided_load, _store, test_indirect_load, _store");
    let names = ["strided load", "strided store", "indirect load", "indirect store"];
    macro_rules! each {
        ($t:ident) => {
            for (form, name) in (0..).zip(names) {
                row.case(format!("{name} of {}", $t::NAME), move |device| {
                    case::<$t>(device, form, &Random::new(44).elements(1024), $t::from_int(0))
                });
            }
        };
    }
    for_numbers!(each);
    for (form, name) in (0..).zip(names) {
        row.case(format!("{name} of bool"), move |device| {
            let mut random = Random::new(44);
            let x: Vec<bool> = (0..1024).map(|_| random.below(2) == 1).collect();
            case(device, form, &x, false)
        });
    }
    row
}

#[kernel]
fn copied<T: DType>(x: Ptr<T>, out: PtrMut<T>, n: i32) {
    let i = program_id(0) * 1024 + arange(0, 1024);
    store(out + i, load(x + i, mask = i < n), mask = i < n);
}

/// A load of four words at once, and one of one word, whichever way the loads go.
const FOUR_WORDS: &str = ".v4.b32";

fn vectors() -> Row {
    let mut row = Row::new("C45", "test_vectorization").remarks("`ld.global.nc`, and stores too");
    for n in [16, 10, 11, 1024] {
        row.case(format!("{n} of 1024 elements"), move |device| {
            let x: Vec<f32> = Random::new(45).elements(1024);
            let mut out = device.zeros::<f32>(1024)?;
            copied(&device.upload(&x)?, &mut out, n).grid(1).launch(device)?;
            let inside = |i: usize| if (i as i32) < n { x[i] } else { 0.0 };
            equal(&out.to_vec()?, &(0..1024).map(inside).collect::<Vec<f32>>())
        });
        row.host(format!("code for {n} of 1024 elements"), move || {
            let device = Device::cpu();
            let (x, mut out) = (device.zeros::<f32>(1024)?, device.zeros::<f32>(1024)?);
            let compiled = copied(&x, &mut out, n).grid(1).compile(Target::sm_90a())?;
            for access in ["ld.global", "st.global"] {
                let found = instructions(compiled.ptx(), access);
                let wide = |name: &&str| name.ends_with(FOUR_WORDS) == (n % 16 == 0);
                ensure(!found.is_empty() && found.iter().all(wide), access, compiled.ptx())?;
            }
            Ok(())
        });
    }
    row
}

#[kernel]
fn from_somewhere<const HINT: i32>(x: Ptr<f32>, out: PtrMut<f32>, start: Ptr<i32>, n: i32) {
    let i = program_id(0) * 1024 + arange(0, 1024) + load(start);
    if HINT == 0 {
        store(out + i, load(x + i, mask = i < n), mask = i < n);
    } else if HINT == 1 {
        let i = max_contiguous(i, 1024, multiple_of = 1024);
        store(out + i, load(x + i, mask = i < n), mask = i < n);
    } else {
        // SAFETY: the tests whose `start` is no multiple of 1024 take another variant.
        let i = unsafe { max_contiguous(i, 1024, multiple_of = 1024) };
        store(out + i, load(x + i, mask = i < n), mask = i < n);
    }
}

fn hints() -> Row {
    fn case(device: &Device, hint: i32, start: i32) -> Outcome {
        let x: Vec<f32> = Random::new(46).elements(1024);
        let mut out = device.zeros::<f32>(1024)?;
        let (xs, start) = (device.upload(&x)?, device.upload(&[start])?);
        FromSomewhereConsts { HINT: hint }.call(&xs, &mut out, &start, 1024).grid(1).launch(device)?;
        let start = start.to_vec()?[0];
        match out.to_vec() {
            Ok(got) if hint == 0 || start == 0 => {
                let inside = |i: i32| if i >= start { x[i as usize] } else { 0.0 };
                equal(&got, &(0..1024).map(inside).collect::<Vec<f32>>())
            }
            Err(Error::AssertFailed { message, .. }) if hint == 1 && start != 0 => {
                ensure(message.contains("max_contiguous(.., 1024, multiple_of = 1024)"), "another message", &message)
            }
            other => Err(format!("{other:?}").into()),
        }
    }
    let mut row =
        Row::new("C46", "test_vectorization_hints").remarks("a wrong hint is an error, unless it is `unsafe`");
    for (hint, name) in (0..).zip(["no hint", "a hint", "a hint that is believed"]) {
        row.case(name, move |device| case(device, hint, 0));
        if hint < 2 {
            row.case(format!("{name}, start 3"), move |device| case(device, hint, 3));
        }
        row.host(format!("code for {name}"), move || {
            let device = Device::cpu();
            let (x, mut out) = (device.zeros::<f32>(1024)?, device.zeros::<f32>(1024)?);
            let (start, consts) = (device.zeros::<i32>(1)?, FromSomewhereConsts { HINT: hint });
            let compiled = consts.call(&x, &mut out, &start, 1024).grid(1).compile(Target::sm_90a())?;
            let wide = instructions(compiled.ptx(), "ld.global").iter().any(|name| name.ends_with(FOUR_WORDS));
            ensure(wide == (hint != 0), "the width of loads", compiled.ptx())
        });
    }
    row
}

#[kernel]
fn with_modifiers<const LOAD: i32, const STORE: i32>(x: PtrMut<f32>, out: PtrMut<f32>) {
    let i = arange(0, 128);
    let v = if LOAD == 0 {
        load(x + i)
    } else if LOAD == 1 {
        load(x + i, cache = ca)
    } else if LOAD == 2 {
        load(x + i, cache = cg)
    } else if LOAD == 3 {
        load(x + i, cache = cs)
    } else if LOAD == 4 {
        load(x + i, cache = cv)
    } else if LOAD == 5 {
        load(x + i, eviction = evict_last)
    } else {
        load(x + i, eviction = evict_first)
    };
    if STORE == 0 {
        store(out + i, v);
    } else if STORE == 1 {
        store(out + i, v, cache = wb);
    } else if STORE == 2 {
        store(out + i, v, cache = cg);
    } else if STORE == 3 {
        store(out + i, v, cache = cs);
    } else if STORE == 4 {
        store(out + i, v, cache = wt);
    } else if STORE == 5 {
        store(out + i, v, eviction = evict_last);
    } else {
        store(out + i, v, eviction = evict_first);
    }
}

const LOADS: [&str; 7] = ["", "ca", "cg", "cs", "cv", "evict_last", "evict_first"];
const STORES: [&str; 7] = ["", "wb", "cg", "cs", "wt", "evict_last", "evict_first"];

/// Whether instructions carry the modifier of that name and none of the others.
fn carry(ptx: &str, access: &str, all: &[&str], wanted: usize) -> Outcome {
    let found = instructions(ptx, access);
    let parts = |name: &&str| -> Vec<String> { name.split('.').map(|part| part.replace("L1::", "")).collect() };
    let right = |name: &&str| (1..all.len()).all(|i| parts(name).iter().any(|part| part == all[i]) == (i == wanted));
    ensure(!found.is_empty() && found.iter().all(right), &format!("{access} with `{}`", all[wanted]), ptx)
}

fn modifiers() -> Row {
    let upstream = "test_load_cache_modifier, test_store_cache_modifier, _eviction_policy";
    let mut row = Row::new("C47", upstream);
    for (load, loaded) in LOADS.into_iter().enumerate() {
        for (store, stored) in STORES.into_iter().enumerate() {
            let consts = WithModifiersConsts { LOAD: load as i32, STORE: store as i32 };
            let name = format!("load `{loaded}`, store `{stored}`");
            row.case(name.clone(), move |device| {
                let x: Vec<f32> = Random::new(47).elements(128);
                let (mut from, mut out) = (device.upload(&x)?, device.zeros::<f32>(128)?);
                consts.call(&mut from, &mut out).grid(1).launch(device)?;
                equal(&out.to_vec()?, &x)
            });
            row.host(format!("code of {name}"), move || {
                let compiled = consts.compile(Target::sm_90a())?;
                carry(compiled.ptx(), "ld.global", &LOADS, load)?;
                carry(compiled.ptx(), "st.global", &STORES, store)
            });
        }
    }
    row
}

#[kernel]
fn assumed<const ASSUME: i32>(out: PtrMut<i32>, n: i32) {
    let rest = n - program_id(0) * 128;
    let value = |rest| if rest >= 128 { rest } else { rest + 101_024 };
    if ASSUME == 0 {
        store(out + program_id(0), value(rest));
    } else if ASSUME == 1 {
        assume(rest >= 128);
        store(out + program_id(0), value(rest));
    } else {
        // SAFETY: the tests launch as many programs as there are blocks of 128.
        unsafe { assume(rest >= 128) };
        store(out + program_id(0), value(rest));
    }
}

fn assumptions() -> Row {
    let mut row = Row::new("C48", "test_assume").remarks(
        "the code has no `llvm.assume`, as our own passes decide by it: asserted is that the other branch is gone",
    );
    for (assume, name) in (0..).zip(["nothing", "checked", "believed"]) {
        row.case(name, move |device| {
            let mut out = device.zeros::<i32>(8)?;
            AssumedConsts { ASSUME: assume }.call(&mut out, 1024).grid(8).launch(device)?;
            equal(&out.to_vec()?, &(1..=8).rev().map(|i| 128 * i).collect::<Vec<i32>>())
        });
    }
    for (assume, name) in [(0, "nothing"), (1, "checked")] {
        row.host(format!("code of {name}"), move || {
            let compiled = AssumedConsts { ASSUME: assume }.compile(Target::sm_90a())?;
            ensure(compiled.ptx().contains("101024") == (assume == 0), "the other branch", compiled.ptx())
        });
    }
    row.case("wrong", |device| {
        let mut out = device.zeros::<i32>(8)?;
        AssumedConsts { ASSUME: 1 }.call(&mut out, 1000).grid(8).launch(device)?;
        match out.to_vec() {
            Err(Error::AssertFailed { program_id: [7, 0, 0], .. }) => Ok(()),
            other => Err(format!("{other:?}").into()),
        }
    });
    row
}

#[kernel]
fn counted<T: Num>(x: PtrMut<T>, stride: i32, other_stride: i32) {
    atomic_add(x + program_id(0) * stride + program_id(1) * other_stride, 1 as T);
}

fn strides_of_zero() -> Row {
    let mut row = Row::new("C49", "test_zero_strided_tensors, test_aliasing")
        .elsewhere(1, "`tests/ui/launch_with_aliased_buffers.rs` (one buffer twice is refused)");
    for (strides, want) in [((2, 1), [3.0f32; 4]), ((1, 0), [6.0, 6.0, 0.0, 0.0]), ((0, 0), [12.0, 0.0, 0.0, 0.0])] {
        row.case(format!("strides {strides:?}"), move |device| {
            let mut x = device.zeros::<f32>(4)?;
            counted(&mut x, strides.0, strides.1).grid((2, 2, 3)).launch(device)?;
            equal(&x.to_vec()?, &want)
        });
    }
    row
}
