//! Matrix products and blocks of tensors, and their asynchronous forms with adversarial timing.

#![cfg(feature = "interp")]

mod interp_support;

use half::{bf16, f16};
use interp_support::{bound, elements, fault, placed, run};
use kernel_core::interp::{Fault, FaultKind, HostBuffer, HostElement, HostTensor, run_placed_with_tensors};
use kernel_core::num::{F8E4M3, F8E5M2};

/// Numbers without a pattern.
fn noise(n: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Small integers, whose products and sums every dtype holds exactly.
fn integers(n: usize, seed: u64) -> Vec<f64> {
    noise(n, seed).into_iter().map(|x| (x * 3.0).round()).collect()
}

/// `batch` products in f64, onto `acc`.
fn reference(a: &[f64], b: &[f64], acc: &[f64], [batch, m, k, n]: [usize; 4]) -> Vec<f64> {
    let mut out = acc.to_vec();
    assert_eq!(out.len(), batch * m * n);
    for (i, sum) in out.iter_mut().enumerate() {
        let (matrix, row, column) = (i / (m * n), i / n % m, i % n);
        for j in 0..k {
            *sum += a[(matrix * m + row) * k + j] * b[(matrix * k + j) * n + column];
        }
    }
    out
}

/// A buffer of some dtype, and its elements as f64.
trait Element: HostElement {
    const NAME: &'static str;
    fn of(x: f64) -> Self;
    fn number(self) -> f64;
}

macro_rules! element {
    ($($ty:ty, $name:literal, |$x:ident| $of:expr, |$y:ident| $number:expr;)*) => {$(
        impl Element for $ty {
            const NAME: &'static str = $name;
            fn of($x: f64) -> $ty { $of }
            fn number(self) -> f64 { let $y = self; $number }
        }
    )*};
}
element! {
    i8, "i8", |x| x as i8, |y| f64::from(y);
    u8, "u8", |x| x.abs() as u8, |y| f64::from(y);
    i32, "i32", |x| x as i32, |y| f64::from(y);
    f16, "f16", |x| f16::from_f64(x), |y| y.to_f64();
    bf16, "bf16", |x| bf16::from_f64(x), |y| y.to_f64();
    f32, "f32", |x| x as f32, |y| f64::from(y);
    f64, "f64", |x| x, |y| y;
    F8E4M3, "f8e4m3", |x| F8E4M3::from_f64(x), |y| y.to_f64();
    F8E5M2, "f8e5m2", |x| F8E5M2::from_f64(x), |y| y.to_f64();
}

fn rounded<T: Element>(values: &[f64]) -> (HostBuffer, Vec<f64>) {
    let elements: Vec<T> = values.iter().map(|&x| T::of(x)).collect();
    let numbers = elements.iter().map(|&x| x.number()).collect();
    (HostBuffer::from(elements), numbers)
}

/// Loads a whole buffer of this shape as `%name`.
fn load(name: &str, dtype: &str, shape: &str, n: usize) -> String {
    format!(
        "%{name}n: i32[{n}] = arange {{lo = 0, hi = {n}}}
         %{name}i: i32{shape} = reshape %{name}n
         %{name}s: *{name}{shape} = splat %{name}
         %{name}p: *{name}{shape} = add_ptr %{name}s, %{name}i
         %{name}v: {dtype}{shape} = load %{name}p\n"
    )
}

/// Runs a product and returns what came of it, the exact result and the sums of absolute products.
fn product<A: Element, B: Element, C: Element>(
    dims: [usize; 4],
    precision: &str,
    values: fn(usize, u64) -> Vec<f64>,
) -> [Vec<f64>; 3] {
    let [batch, m, k, n] = dims;
    let (a, a_exact) = rounded::<A>(&values(batch * m * k, 3));
    let (b, b_exact) = rounded::<B>(&values(batch * k * n, 5));
    let (c, c_exact) = rounded::<C>(&values(batch * m * n, 7));
    let shape = |rows: usize, columns: usize| match batch {
        1 => format!("[{rows}, {columns}]"),
        _ => format!("[{batch}, {rows}, {columns}]"),
    };
    let (a_name, b_name, c_name) = (A::NAME, B::NAME, C::NAME);
    let mut body = load("a", a_name, &shape(m, k), batch * m * k);
    body += &load("b", b_name, &shape(k, n), batch * k * n);
    body += &load("c", c_name, &shape(m, n), batch * m * n);
    body += &format!("%r: {c_name}{} = dot %av, %bv, %cv {{precision = {precision}}}\nstore %cp, %r", shape(m, n));
    let params = format!("param %a a: ptr {a_name}\nparam %b b: ptr {b_name}\nparam %c c: ptr_mut {c_name}");
    let buffers = run(&bound(&params, &body), vec![a, b, c], &[], [1, 1, 1]);
    let found: Vec<f64> = elements::<C>(&buffers[2]).into_iter().map(C::number).collect();
    let magnitudes = |v: &[f64]| v.iter().map(|x| x.abs()).collect::<Vec<f64>>();
    let exact = reference(&a_exact, &b_exact, &c_exact, dims);
    let bound = reference(&magnitudes(&a_exact), &magnitudes(&b_exact), &magnitudes(&c_exact), dims);
    [found, exact, bound]
}

/// Shapes of all kinds: single rows and columns, batches, long sums.
const DIMS: &[[usize; 4]] =
    &[[1, 1, 1, 1], [1, 16, 64, 8], [1, 1, 128, 32], [1, 64, 2, 1], [4, 8, 16, 32], [2, 1, 4, 1]];

const PRECISIONS: [&str; 5] = ["tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"];

fn exact_on_integers<A: Element, B: Element, C: Element>() {
    for &dims in DIMS {
        for precision in PRECISIONS {
            let [found, exact, _] = product::<A, B, C>(dims, precision, integers);
            assert_eq!(found, exact, "{} * {} in {}, {dims:?}, {precision}", A::NAME, B::NAME, C::NAME);
        }
    }
}

#[test]
fn small_integers_multiply_exactly() {
    exact_on_integers::<f16, f16, f32>();
    exact_on_integers::<f16, f16, f16>();
    exact_on_integers::<bf16, bf16, f32>();
    exact_on_integers::<f32, f32, f32>();
    exact_on_integers::<f64, f64, f64>();
    exact_on_integers::<i8, i8, i32>();
    exact_on_integers::<u8, u8, i32>();
    exact_on_integers::<F8E4M3, F8E4M3, f32>();
    exact_on_integers::<F8E5M2, F8E5M2, f32>();
    exact_on_integers::<F8E4M3, F8E5M2, f32>();
    exact_on_integers::<F8E5M2, F8E4M3, f16>();
}

/// Every element within `relative` of the sum of absolute products, the rounding of the result included.
fn within<A: Element, B: Element, C: Element>(precision: &str, relative: f64) {
    for &dims in DIMS {
        let [found, exact, bound] = product::<A, B, C>(dims, precision, noise);
        for ((found, exact), bound) in found.into_iter().zip(exact).zip(bound) {
            let error = (found - exact).abs();
            assert!(error <= relative * bound, "{} {precision} {dims:?}: {found} is not {exact}", A::NAME);
        }
    }
}

#[test]
fn products_are_exact_and_sums_are_in_f32() {
    // 130 roundings of half a unit in the last place of f32.
    let sums = 130.0 * f64::powi(2.0, -24);
    within::<f16, f16, f32>("tf32", sums);
    within::<bf16, bf16, f32>("tf32", sums);
    within::<F8E4M3, F8E5M2, f32>("tf32", sums);
    within::<f32, f32, f32>("ieee", sums);
    // Each factor loses half a unit of its tenth bit.
    within::<f32, f32, f32>("tf32", sums + f64::powi(2.0, -10) * 1.01);
    within::<f32, f32, f32>("tf32x3", 4.0 * sums);
    // What the terms leave out; the sums of the small products are small themselves.
    within::<f32, f32, f32>("bf16x3", 1.1 * sums + 1.01 * f64::powi(2.0, -15));
    within::<f32, f32, f32>("bf16x6", 1.1 * sums + 1.01 * f64::powi(2.0, -24));
    within::<f64, f64, f64>("ieee", 130.0 * f64::EPSILON);
    within::<f16, f16, f16>("tf32", sums + f64::powi(2.0, -11));
}

#[test]
fn tf32_rounds_and_three_products_do_not() {
    let dims = [1, 16, 64, 8];
    let error = |precision: &str| {
        let [found, exact, _] = product::<f32, f32, f32>(dims, precision, noise);
        found.iter().zip(&exact).map(|(f, e)| (f - e).abs()).fold(0.0, f64::max)
    };
    let (one, three, ieee) = (error("tf32"), error("tf32x3"), error("ieee"));
    assert!(one > 1e-4, "{one}");
    assert!(three < 1e-5 && ieee < 1e-5, "{three} {ieee}");
}

#[test]
fn terms_of_bf16_lose_what_is_said() {
    // Single products, so that nothing is summed: three roundings of the sums of terms.
    let error = |precision: &str| {
        let [found, exact, bound] = product::<f32, f32, f32>([64, 4, 1, 8], precision, noise);
        let errors = found.iter().zip(&exact).zip(&bound).map(|((f, e), b)| (f - e).abs() / b);
        errors.fold(0.0, f64::max)
    };
    let (three, six) = (error("bf16x3"), error("bf16x6"));
    let bits = |bits: i32| f64::powi(2.0, -bits);
    assert!(three > bits(18) && three < 1.01 * bits(15) + 3.0 * bits(24), "{three}");
    assert!(six > 0.0 && six < 1.01 * bits(24) + 3.0 * bits(24), "{six}");
}

#[test]
fn infinities_and_nans_arrive() {
    for precision in PRECISIONS {
        let mut body = load("a", "f32", "[1, 2]", 2) + &load("b", "f32", "[2, 2]", 4);
        body += &load("c", "f32", "[1, 2]", 2);
        body += &format!("%r: f32[1, 2] = dot %av, %bv, %cv {{precision = {precision}}}\nstore %cp, %r");
        let params = "param %a a: ptr f32\nparam %b b: ptr f32\nparam %c c: ptr_mut f32";
        let a = vec![f32::INFINITY, 1.0];
        let b = vec![1.0f32, 0.0, 2.0, 3.0];
        let buffers = run(&bound(params, &body), vec![a.into(), b.into(), vec![0f32; 2].into()], &[], [1, 1, 1]);
        let found = elements::<f32>(&buffers[2]);
        assert!(found[0] == f32::INFINITY && found[1].is_nan(), "{precision}: {found:?}");
        // Infinity times infinity, of which the small parts are no numbers.
        let (a, b) = (vec![f32::INFINITY, 1.0], vec![f32::NEG_INFINITY, f32::INFINITY, 2.0, 3.0]);
        let buffers = run(&bound(params, &body), vec![a.into(), b.into(), vec![0f32; 2].into()], &[], [1, 1, 1]);
        assert_eq!(elements::<f32>(&buffers[2]), [f32::NEG_INFINITY, f32::INFINITY], "{precision}");
    }
}

#[test]
fn a_large_product_is_fast() {
    let start = std::time::Instant::now();
    let [found, exact, bound] = product::<f16, f16, f32>([1, 256, 256, 256], "tf32", noise);
    // The reference in this test is slower than the interpreter, so this leaves much room.
    assert!(start.elapsed().as_secs_f64() < 20.0);
    let sums = 260.0 * f64::powi(2.0, -24);
    assert!(found.iter().zip(&exact).zip(&bound).all(|((f, e), b)| (f - e).abs() <= sums * b));
}

// The placed level

const PARAMS: &str = "param %a a: desc f32[4, 4]\nparam %b b: desc f32[4, 4]\nparam %out out: desc_mut f32[4, 4]";

fn run_tensors(body: &str) -> (Vec<f32>, Result<(), Fault>) {
    let a: Vec<f32> = (0..16).map(|i| i as f32).collect();
    let b: Vec<f32> = (0..16).map(|i| if i % 5 == 0 { 2.0 } else { 0.0 }).collect();
    let mut buffers = [a.into(), b.into(), vec![-1f32; 16].into()];
    let tensors = vec![HostTensor::contiguous(&[4, 4]); 3];
    let body = format!("%zero: i32 = const 0\n%one: i32 = const 1\n%bytes: i32 = const 64\n{body}");
    let result = run_placed_with_tensors(&placed(PARAMS, &body), &mut buffers, &tensors, &[], [1, 1, 1]);
    (elements(&buffers[2]), result)
}

/// `a` twice, which is `a * b`.
fn doubled() -> Vec<f32> {
    (0..16).map(|i| 2.0 * i as f32).collect()
}

/// Blocks of `a` and `b` in the slots 0 and 1 of shared memory.
const LOADED: &str = "%s: shared f32[2, 4, 4] = shared_alloc
    %sa: shared f32[4, 4] = shared_index %s, %zero
    %sb: shared f32[4, 4] = shared_index %s, %one
    %x: f32[4, 4] = desc_load %a, %zero, %zero
    %y: f32[4, 4] = desc_load %b, %zero, %zero
    shared_store %sa, %x
    shared_store %sb, %y
    fence {kind = proxy_async}
    barrier
    %f: f32 = const 0.0
    %c: f32[4, 4] = splat %f\n";

#[test]
fn an_asynchronous_product_is_there_at_its_wait() {
    let (out, result) = run_tensors(&format!(
        "{LOADED}
         %d: f32[4, 4] = wgmma %sa, %sb, %c
         %w: f32[4, 4] = wgmma_wait %d {{pending = 0}}
         desc_store %out, %w, %zero, %zero"
    ));
    assert_eq!((out, result), (doubled(), Ok(())));
}

#[test]
fn an_asynchronous_product_is_poison_before_its_wait() {
    for wait in ["", "%w: f32[4, 4] = wgmma_wait %d {pending = 1}\n"] {
        let from = if wait.is_empty() { "%d" } else { "%w" };
        let (out, _) = run_tensors(&format!(
            "{LOADED}
             %d: f32[4, 4] = wgmma %sa, %sb, %c
             {wait}
             desc_store %out, {from}, %zero, %zero"
        ));
        assert!(out.iter().all(|x| x.is_nan()), "{out:?}");
    }
}

#[test]
fn an_asynchronous_product_reads_its_factors_late() {
    // The factor is overwritten before the wait.
    let (out, _) = run_tensors(&format!(
        "{LOADED}
         %d: f32[4, 4] = wgmma %sa, %sb, %c
         shared_store %sb, %c
         %w: f32[4, 4] = wgmma_wait %d {{pending = 0}}
         desc_store %out, %w, %zero, %zero"
    ));
    assert_ne!(out, doubled());
}

#[test]
fn products_chain_through_loops() {
    // Three products of which one stays in flight across each iteration.
    let (out, result) = run_tensors(&format!(
        "{LOADED}
         %three: i32 = const 3
         %l: f32[4, 4] = for %zero, %three, %one, %c (%i: i32, %acc: f32[4, 4]) {{
           %d: f32[4, 4] = wgmma %sa, %sb, %acc
           %w: f32[4, 4] = wgmma_wait %d {{pending = 1}}
           yield %w
         }}
         %r: f32[4, 4] = wgmma_wait %l {{pending = 0}}
         desc_store %out, %r, %zero, %zero"
    ));
    assert_eq!((out, result), (doubled().iter().map(|x| 3.0 * x).collect(), Ok(())));
}

#[test]
fn a_product_that_does_not_add_overwrites() {
    for (adds, times) in [("false", 1.0), ("true", 2.0)] {
        let (out, result) = run_tensors(&format!(
            "{LOADED}
             %adds: bool = const {adds}
             %d: f32[4, 4] = wgmma %sa, %sb, %c
             %e: f32[4, 4] = wgmma %sa, %sb, %d, %adds
             %w: f32[4, 4] = wgmma_wait %e {{pending = 0}}
             desc_store %out, %w, %zero, %zero"
        ));
        assert_eq!((out, result), (doubled().iter().map(|x| times * x).collect(), Ok(())), "{adds}");
    }
}

#[test]
fn slices_are_stored_as_parts_of_blocks() {
    let (out, result) = run_tensors(
        "%s: shared f32[2, 4] = shared_alloc
         %two: i32 = const 2
         %x: f32[4, 4] = desc_load %a, %zero, %zero
         %y: f32[2, 4] = slice %x {start = [1, 0]}
         shared_store %s, %y
         fence {kind = proxy_async}
         barrier
         tma_store %out, %s, %two, %zero
         tma_store_wait {pending = 0}",
    );
    let expected: Vec<f32> = (0..16).map(|i| if i < 8 { -1.0 } else { i as f32 - 4.0 }).collect();
    assert_eq!((out, result), (expected, Ok(())));
}

#[test]
fn views_are_permuted_without_moving() {
    // The transposed view of a times b, and a in registers.
    let (out, result) = run_tensors(&format!(
        "{LOADED}
         %t: shared f32[4, 4] = shared_permute %sa {{perm = [1, 0]}}
         %d: f32[4, 4] = wgmma %t, %sb, %c
         %w: f32[4, 4] = wgmma_wait %d {{pending = 0}}
         %e: f32[4, 4] = wgmma %x, %sb, %c
         %v: f32[4, 4] = wgmma_wait %e {{pending = 0}}
         %tr: f32[4, 4] = permute %w {{perm = [1, 0]}}
         %same: bool[4, 4] = cmp.eq %tr, %v
         %back: f32[4, 4] = shared_load %t
         %u: f32[4, 4] = permute %back {{perm = [1, 0]}}
         %r: f32[4, 4] = select %same, %u, %c
         desc_store %out, %r, %zero, %zero"
    ));
    assert_eq!((out, result), ((0..16).map(|i| i as f32).collect(), Ok(())));
}

/// A tensor copy of `a` into shared memory; `between` runs before the tile is read and stored.
fn tensor_copy(arrive: &str, wait: &str) -> (Vec<f32>, Result<(), Fault>) {
    run_tensors(&format!(
        "%s: shared f32[4, 4] = shared_alloc
         %bar: barrier[1] = mbarrier_alloc {{slots = 1, count = 1}}
         fence {{kind = barrier_init}}
         barrier
         {arrive}
         tma_load %a, %s, %bar, %zero, %zero, %zero
         {wait}
         %v: f32[4, 4] = shared_load %s
         desc_store %out, %v, %zero, %zero"
    ))
}

const ARRIVE: &str = "mbarrier_arrive %bar, %zero, %bytes";
const WAIT: &str = "mbarrier_wait %bar, %zero, %zero";

#[test]
fn a_tensor_copy_lands_at_its_barrier() {
    assert_eq!(tensor_copy(ARRIVE, WAIT), ((0..16).map(|i| i as f32).collect(), Ok(())));
}

#[test]
fn a_tensor_copy_that_is_not_waited_for_is_poison() {
    let (out, _) = tensor_copy(ARRIVE, "");
    assert!(out.iter().all(|x| x.is_nan()), "{out:?}");
    // What was there before is gone when the copy has been asked for.
    let old = "%old: f32[4, 4] = desc_load %b, %zero, %zero\nshared_store %s, %old\nbarrier\n";
    let (out, _) = tensor_copy(&format!("{old}{ARRIVE}"), "");
    assert!(out.iter().all(|x| x.is_nan()), "{out:?}");
    // The other parity is that of the phase before, which is over.
    let (out, _) = tensor_copy(ARRIVE, "mbarrier_wait %bar, %zero, %one");
    assert!(out.iter().all(|x| x.is_nan()), "{out:?}");
}

#[test]
fn a_barrier_that_expects_other_bytes_never_completes() {
    // Without bytes the phase is over at once, and the copy counts on the next.
    let (out, _) = tensor_copy("mbarrier_arrive %bar, %zero", WAIT);
    assert!(out.iter().all(|x| x.is_nan()), "{out:?}");
    for arrive in ["", "%half: i32 = const 32\nmbarrier_arrive %bar, %zero, %half"] {
        let (_, result) = tensor_copy(arrive, WAIT);
        assert_eq!(fault(result), FaultKind::Deadlock { slot: 0, phase: 0 }, "{arrive}");
    }
}

#[test]
fn a_tensor_store_reads_its_view_at_the_wait() {
    let store = |before: &str, after: &str| {
        run_tensors(&format!(
            "%s: shared f32[4, 4] = shared_alloc
             %x: f32[4, 4] = desc_load %a, %zero, %zero
             %y: f32[4, 4] = desc_load %b, %zero, %zero
             shared_store %s, %x
             fence {{kind = proxy_async}}
             barrier
             tma_store %out, %s, %zero, %zero
             {before}
             shared_store %s, %y
             {after}"
        ))
        .0
    };
    let expected: Vec<f32> = (0..16).map(|i| i as f32).collect();
    assert_eq!(store("tma_store_wait {pending = 0}", ""), expected);
    assert_ne!(store("tma_store_wait {pending = 1}", "tma_store_wait {pending = 0}"), expected);
    // Without a wait shared memory is gone before it is read.
    assert!(store("", "").iter().all(|x| x.is_nan()));
}

#[test]
fn tensor_stores_reduce() {
    let (out, result) = run_tensors(
        "%s: shared f32[4, 4] = shared_alloc
         %x: f32[4, 4] = desc_load %a, %zero, %zero
         shared_store %s, %x
         fence {kind = proxy_async}
         barrier
         tma_store %out, %s, %one, %zero {reduce = add}
         tma_store_wait {pending = 0}",
    );
    let expected: Vec<f32> = (0..16).map(|i| if i < 4 { -1.0 } else { i as f32 - 5.0 }).collect();
    assert_eq!((out, result), (expected, Ok(())));
}

#[test]
fn warp_groups_hand_blocks_over() {
    // A producer copies four blocks through two slots, a consumer adds them up.
    let (out, result) = run_tensors(
        "%s: shared f32[2, 4, 4] = shared_alloc
         %full: barrier[2] = mbarrier_alloc {slots = 2, count = 1}
         %empty: barrier[2] = mbarrier_alloc {slots = 2, count = 1}
         fence {kind = barrier_init}
         barrier
         %two: i32 = const 2
         %four: i32 = const 4
         warp_groups {warps = [4, 4], roles = [consumer, producer], registers = [40, 232]} {
           for %zero, %four, %one (%i: i32) {
             %slot: i32 = rem %i, %two
             %turn: i32 = div %i, %two
             %phase: i32 = rem %turn, %two
             %other: i32 = xor %phase, %one
             mbarrier_wait %empty, %slot, %other
             %v: shared f32[4, 4] = shared_index %s, %slot
             mbarrier_arrive %full, %slot, %bytes
             tma_load %a, %v, %full, %slot, %i, %zero
             yield
           }
           yield
         } with {
           %f: f32 = const 0.0
           %c: f32[4, 4] = splat %f
           %r: f32[4, 4] = for %zero, %four, %one, %c (%i2: i32, %acc: f32[4, 4]) {
             %slot2: i32 = rem %i2, %two
             %turn2: i32 = div %i2, %two
             %phase2: i32 = rem %turn2, %two
             mbarrier_wait %full, %slot2, %phase2
             %v2: shared f32[4, 4] = shared_index %s, %slot2
             %x2: f32[4, 4] = shared_load %v2
             mbarrier_arrive %empty, %slot2
             %n: f32[4, 4] = add %acc, %x2
             yield %n
           }
           desc_store %out, %r, %zero, %zero
           yield
         }",
    );
    let expected: Vec<f32> =
        (0..16).map(|at| (0..4).filter(|i| at / 4 + i < 4).map(|i| ((at / 4 + i) * 4 + at % 4) as f32).sum()).collect();
    assert_eq!((out, result), (expected, Ok(())));
}
