//! What is refused, and what is reported.

use tilewright::prelude::*;

use crate::elements::{Element, equal};
use crate::flow::stored;
use crate::memory::ensure;
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![refused_programs(), shapes(), assertions(), lines(), remarks()]
}

/// A constant that a kernel mentions.
const GLOBAL: i32 = 42;

/// A module of constants.
mod limits {
    /// The largest of something.
    pub const LARGEST: f32 = 2.5;
}

#[kernel]
fn constants_of_modules(out: PtrMut<f32>) {
    store(out, GLOBAL as f32 + limits::LARGEST);
}

#[kernel]
fn asserted<const N: usize>(out: PtrMut<i32>) {
    static_assert!(N % 4 == 0 && N < 100, "N is a small multiple of 4");
    store(out, N as i32);
}

#[kernel]
fn of_small_floats<F: Float, const N: usize>(x: Ptr<F>, out: PtrMut<f32>) {
    let at = arange(0, N)[(.., None)] * N + arange(0, N)[(None, ..)];
    let t = load(x + at);
    store(out + at, dot(t, t));
}

#[kernel]
fn filled<F: DType>(x: Ptr<F>, out: PtrMut<F>) {
    let i = arange(0, 256);
    store(out + i, load(x + i));
}

/// Whether a kernel that does not bind says this.
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, what: &str) -> Outcome {
    match result {
        Err(Error::Compile(message)) => ensure(message.to_string().contains(what), what, &message.to_string()),
        other => Err(Failure(format!("{other:?}"))),
    }
}

fn refused_programs() -> Row {
    let mut row = Row::new("C86", "test_compile_errors")
        .remarks(
            "no two shapes for one result, also where a constexpr decides; `dot` has no smallest shape; \
             8-bit floats are on every target",
        )
        .elsewhere(10, "`kernel-macros/tests/messages` (names, statements, functions, shapes, dtypes)");
    row.case("constants of modules", |device| {
        let got = stored(device, 0.0f32, |out| constants_of_modules(out).grid(1).launch(device))?;
        equal(&[got], &[44.5])
    });
    for n in [4usize, 16, 96, 98, 100, 3] {
        let holds = n.is_multiple_of(4) && n < 100;
        row.case(format!("static_assert of {n}"), move |device| {
            let mut out = device.zeros::<i32>(1)?;
            let consts = AssertedConsts { N: n };
            match consts.call(&mut out).grid(1).launch(device) {
                Ok(()) if holds => equal(&out.to_vec()?, &[n as i32]),
                other if !holds => refused(other, "N is a small multiple of 4"),
                other => Err(Failure(format!("{other:?}"))),
            }
        });
        row.host(format!("code of static_assert of {n}"), move || {
            let consts = AssertedConsts { N: n };
            match consts.compile(Target::sm_90a()) {
                Ok(_) if holds => Ok(()),
                other => refused(other.map(|_| "compiled"), "N is a small multiple of 4"),
            }
        });
    }
    for target in Target::all() {
        row.host(format!("8-bit floats on {}", target.name()), move || {
            FilledConsts {}.compile::<F8E4M3>(target)?;
            FilledConsts {}.compile::<F8E5M2>(target)?;
            Ok(())
        });
        for n in [1usize, 2, 8, 16] {
            row.host(format!("products of {n} x {n} on {}", target.name()), move || {
                OfSmallFloatsConsts { N: n }.compile::<f16>(target)?;
                OfSmallFloatsConsts { N: n }.compile::<F8E5M2>(target)?;
                Ok(())
            });
        }
    }
    row
}

#[kernel]
fn shaped<const FORM: i32, const LO: usize, const HI: usize>(out: PtrMut<i32>) {
    if FORM == 0 {
        store(out, sum(arange(LO, HI)));
    } else if FORM == 1 {
        store(out, sum(full([HI], 1)));
    } else if FORM == 2 {
        store(out, sum(zeros::<i32>([2, HI]), axis = [0, 1]));
    } else {
        store(out, sum(broadcast_to(full([1], 1), [HI])));
    }
}

fn shapes() -> Row {
    let mut row = Row::new("C87", "test_power_of_two_shapes")
        .elsewhere(3, "`kernel-macros/tests/messages/shapes.txt` (sizes that are written out)");
    for (lo, hi) in (0..=33).map(|hi| (0, hi)).chain([(2, 7), (1, 9), (7, 23), (5, 5), (9, 4), (100, 612)]) {
        let names = ["arange", "full", "zeros", "broadcast_to"];
        for (form, name) in (0..).zip(names).take(if lo == 0 { 4 } else { 1 }) {
            row.case(format!("{name} {lo} to {hi}"), move |device| {
                let mut out = device.full(1, -1)?;
                let result = ShapedConsts { FORM: form, LO: lo, HI: hi }.call(&mut out).grid(1).launch(device);
                if hi > lo && (hi - lo).is_power_of_two() {
                    result?;
                    let want = [(lo..hi).sum(), hi, 0, hi][form as usize];
                    return equal(&out.to_vec()?, &[want as i32]);
                }
                refused(result, if hi > lo { "power of two" } else { "" })
            });
        }
    }
    row
}

#[kernel]
fn checked<const FORM: i32>(x: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    let i = arange(0, 128);
    let v = load(x + i);
    if FORM == 0 {
        assert!(load(x) != 0, "the first");
    } else if FORM == 1 {
        assert!(v != 0, "each");
    } else if FORM == 2 {
        assert!((v != 0) | (i >= n), "those below n");
    } else {
        for k in 0..n {
            assert!(load(x + k) != 0, "in a loop");
        }
    }
    store(out + i, v);
}

#[kernel]
fn checked_arithmetic<T: Int, const OP: i32, const CHECKED: bool>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>) {
    let (a, b) = (load(x), load(y));
    let (p, q) = (a as i64, b as i64);
    if OP == 0 {
        assert!(!CHECKED || p + q == (a + b) as i64, "the sum wraps");
        store(out, a + b);
    } else if OP == 1 {
        assert!(!CHECKED || p - q == (a - b) as i64, "the difference wraps");
        store(out, a - b);
    } else {
        assert!(!CHECKED || p * q == (a * b) as i64, "the product wraps");
        store(out, a * b);
    }
}

fn assertions() -> Row {
    fn case(device: &Device, form: i32, zero: Option<usize>, n: usize) -> Outcome {
        let mut x = vec![1; 128];
        zero.into_iter().for_each(|at| x[at] = 0);
        let mut out = device.zeros::<i32>(128)?;
        CheckedConsts { FORM: form }.call(&device.upload(&x)?, &mut out, n as i32).grid(1).launch(device)?;
        let fails = zero.is_some_and(|at| match form {
            0 => at == 0,
            1 => true,
            _ => at < n,
        });
        let said = ["the first", "each", "those below n", "in a loop"][form as usize];
        match out.to_vec() {
            Ok(got) if !fails => equal(&got, &x),
            Err(Error::AssertFailed { message, .. }) if fails => ensure(&*message == said, said, &message),
            other => Err(Failure(format!("{other:?}"))),
        }
    }
    fn arithmetic<T: Element + Int>(device: &Device, op: i32, a: i128, b: i128, checked: bool) -> Outcome {
        let (x, y) = (device.full(1, T::from_int(a))?, device.full(1, T::from_int(b))?);
        let mut out = device.zeros::<T>(1)?;
        CheckedArithmeticConsts { OP: op, CHECKED: checked }.call(&x, &y, &mut out).grid(1).launch(device)?;
        let exact = [a + b, a - b, a * b][op as usize];
        let wrapped = T::from_int(exact);
        let fails = checked && wrapped.to_int() != exact;
        match out.to_vec() {
            Ok(got) if !fails => equal(&got, &[wrapped]),
            Err(Error::AssertFailed { message, .. }) if fails => {
                ensure(message.contains("wraps"), "another message", &message)
            }
            other => Err(Failure(format!("{other:?}"))),
        }
    }
    let upstream = "test_device_assert, test_static_assert, test_sanitize_int_add, _sub, _mul_overflow";
    let mut row = Row::new("C88", upstream)
        .remarks("integers wrap, and there is no `sanitize_overflow`: an `assert!` in a wider dtype checks it");
    for form in 0..4 {
        for zero in [None, Some(0), Some(1), Some(63), Some(127)] {
            for n in [0, 64, 128] {
                row.case(format!("form {form}, zero at {zero:?}, n {n}"), move |device| case(device, form, zero, n));
            }
        }
    }
    macro_rules! each {
        ($($t:ident)*) => {$(
            let (least, most) = ($t::MIN.to_int(), $t::MAX.to_int());
            let pairs = [(least, -1), (least, 0), (least, 2), (most, 1), (most, 0), (most, 100), (-1, most), (0, least)];
            for (a, b) in pairs.into_iter().filter(|pair| $t::try_from(pair.0).is_ok() && $t::try_from(pair.1).is_ok()) {
                for (op, sign) in (0..).zip(["+", "-", "*"]) {
                    for checked in [true, false] {
                        let name = format!("{a} {sign} {b} of {}, checked {checked}", $t::NAME);
                        row.case(name, move |device| arithmetic::<$t>(device, op, a, b, checked));
                    }
                }
            }
        )*};
    }
    each!(i8 i16 i32 u8 u16 u32);
    row
}

#[device]
fn checked_elsewhere(n: i32) -> i32 {
    assert!(n > 100, "in a function");
    n
}

#[kernel]
fn fails<const WHAT: i32>(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    if WHAT == 0 {
        assert!(n > 100, "in the kernel");
    } else if WHAT == 1 {
        let far = x + 1000;
        store(out, load(far));
    } else if WHAT == 2 {
        let far = n + 1001;
        store(out + far, 1.0);
    } else if WHAT == 3 {
        store(out, checked_elsewhere(n) as f32);
    } else if WHAT == 4 {
        let product = load(x) * load(x + 1002) * 2.0;
        store(out, product);
    } else if WHAT == 5 {
        let check = |m: i32| m + n;
        for i in 0..4 {
            assert!(check(i) < n + 2, "in a loop");
        }
    } else {
        #[unroll]
        for i in 0..4 {
            atomic_add(out + i * 1003, 1.0);
        }
    }
}

/// The line of this file with that number.
fn line(number: u32) -> &'static str {
    include_str!("diagnostics.rs").lines().nth(number as usize - 1).unwrap_or_default()
}

/// The lines of this file that the code is from: `.file 1 "diagnostics.rs"` and `.loc 1 12 5`.
fn lines_of_code(ptx: &str) -> impl Iterator<Item = &'static str> {
    let words = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    let of = |kind: &'static str| ptx.lines().map(str::trim).filter(move |line| line.starts_with(kind)).map(words);
    let own = of(".file").find(|words| words.iter().any(|word| word.contains("diagnostics.rs")));
    let own = own.and_then(|words| words.get(1).cloned()).unwrap_or_default();
    let numbers: Vec<u32> =
        of(".loc").filter(|words| words.get(1) == Some(&own)).filter_map(|words| words.get(2)?.parse().ok()).collect();
    numbers.into_iter().map(line)
}

fn lines() -> Row {
    let mut row = Row::new("C90", "test_line_info")
        .remarks("errors and reports name lines always; PTX has `.loc` where `.line_info(true)` asks for it");
    let texts = ["in the kernel", "load(far)", "out + far", "in a function", "1002", "in a loop", "1003"];
    for (what, text) in (0..).zip(texts) {
        row.case(text, move |device| {
            let (x, mut out) = (device.zeros::<f32>(8)?, device.zeros::<f32>(8)?);
            FailsConsts { WHAT: what }.call(&x, &mut out, 1).grid(1).launch(device)?;
            let (file, at, column) = match out.to_vec() {
                Err(Error::AssertFailed { file, line, column, .. }) => (file, line, column),
                Err(Error::OutOfBounds { file, line, column, .. }) => (file, line, column),
                other => return Err(Failure(format!("{other:?}"))),
            };
            ensure(file.ends_with("diagnostics.rs"), "another file", &file)?;
            ensure(line(at).contains(text) && (column as usize) <= line(at).len(), text, line(at))
        });
    }
    for (what, text) in (0..).zip(texts) {
        row.host(format!("`.loc` of {text}"), move || {
            for target in [Target::sm_80(), Target::sm_90a()] {
                // Of assertions about arguments only the variant that checks all has code.
                let request = FailsConsts { WHAT: what }.request().line_info(true).checked();
                let compiled = request.compile(target)?;
                ensure(lines_of_code(compiled.ptx()).any(|line| line.contains(text)), text, compiled.ptx())?;
            }
            let compiled = FailsConsts { WHAT: what }.compile(Target::sm_90a())?;
            ensure(!compiled.ptx().contains(".loc"), "lines that nobody asks for", compiled.ptx())
        });
    }
    for (what, text) in [(1, "load(far)"), (2, "out + far"), (4, "1002")] {
        row.host(format!("report of {text}"), move || {
            let compiled = FailsConsts { WHAT: what }.compile(Target::sm_90a())?;
            let numbers = compiled.report().split("diagnostics.rs:").skip(1);
            let named = numbers.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
            ensure(named.map(line).any(|line| line.contains(text)), text, compiled.report())
        });
    }
    row
}

#[kernel]
fn spaced<const APART: i32>(x: Ptr<f32>, out: PtrMut<f32>) {
    let i = arange(0, 512);
    store(out + i, load(x + i * APART));
}

#[kernel]
fn multiplied<F: Float, const N: usize>(a: Ptr<F>, b: Ptr<F>, c: PtrMut<f32>, k: i32, stride: i32) {
    let i = arange(0, N);
    let mut sum = zeros([N, N]);
    for step in (0..k).step_by(N) {
        let x = load(a + i[(.., None)] * k + step + i[(None, ..)]);
        let y = load(b + (step + i[(.., None)]) * stride + i[(None, ..)]);
        sum = dot(x, y, acc = sum);
    }
    store(c + i[(.., None)] * N + i[(None, ..)], sum);
}

fn remarks() -> Row {
    let mut row = Row::new("C91", "test_mma_remark, test_remark_vectorization, test_remark_swp_op_before_operands")
        .remarks("`report()` says it, but which instruction multiplies only the code does");
    for apart in 1..=4 {
        row.host(format!("width of loads {apart} elements apart"), move || {
            let compiled = SpacedConsts { APART: apart }.compile(Target::sm_90a())?;
            let load = compiled.report().lines().find(|line| line.contains("load `x`")).unwrap_or_default();
            ensure(load.contains("1 x 16 bytes per thread (4 elements each)") == (apart == 1), "width", load)?;
            ensure(load.contains("4 x 4 bytes per thread,") == (apart != 1), "width", load)
        });
    }
    for (n, told) in [(64, "loop pipelined with 3 stages"), (8, "loop not pipelined; `a`: a thread copies less than")] {
        row.host(format!("pipelined loop over products of {n} x {n}"), move || {
            let compiled = MultipliedConsts { N: n }.compile::<f16>(Target::sm_90a())?;
            ensure(compiled.report().contains(told), told, compiled.report())
        });
    }
    for (n, target, instruction) in [
        (64, Target::sm_90a(), "wgmma.mma_async"),
        (64, Target::sm_80(), "mma.sync"),
        (16, Target::sm_90a(), "mma.sync"),
        (8, Target::sm_90a(), "fma.rn.f32"),
    ] {
        row.host(format!("{instruction} for {n} x {n} on {}", target.name()), move || {
            let compiled = MultipliedConsts { N: n }.compile::<f16>(target)?;
            ensure(compiled.ptx().contains(instruction), instruction, compiled.ptx())
        });
    }
    row
}
