//! Buffers of a contest: inputs, and outputs that are poisoned before each check and compared after it.

use std::cell::{Ref, RefCell, RefMut};
use std::fmt;

use tilewright::prelude::*;
use tilewright::{View, ViewMut};

use crate::Failure;
use crate::cubin::Argument;
use crate::element::Element;

/// An input: a buffer whose data begin at an element that need not be the first.
pub struct Input<T: DType> {
    buffer: Buffer<T>,
    start: usize,
}

/// Numbers that are repeated to fill larger buffers, so that making data takes no time worth mentioning.
const DISTINCT: usize = 1 << 20;

impl<T: Element> Input<T> {
    /// Normally distributed numbers. They repeat after a million.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn normal(device: &Device, seed: u64, len: usize, start: usize) -> Result<Input<T>, Error> {
        Ok(Input { start, ..Input::scaled(device, seed, len + start, 1.0)? })
    }

    /// Normally distributed numbers of this size.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn scaled(device: &Device, seed: u64, len: usize, size: f32) -> Result<Input<T>, Error> {
        let host: Vec<T> = normal(seed, len.min(DISTINCT)).into_iter().map(|x| T::from_f32(x * size)).collect();
        Input::repeated(device, len, &host)
    }

    /// Some elements as f64, for a reference.
    ///
    /// # Errors
    /// If they are not inside, or cannot be read.
    pub fn read(&self, from: usize, len: usize) -> Result<Vec<f64>, Error> {
        Ok(self.view()?.slice(from..from + len)?.to_vec()?.into_iter().map(T::to_f64).collect())
    }
}

impl<T: DType> Input<T> {
    /// Given data again and again, up to `len` elements.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn repeated(device: &Device, len: usize, data: &[T]) -> Result<Input<T>, Error> {
        let mut buffer = device.zeros::<T>(len)?;
        let mut filled = data.len().min(len);
        buffer.slice_mut(..filled)?.copy_from_slice(&data[..filled])?;
        while filled < len && filled > 0 {
            let count = filled.min(len - filled);
            let (done, mut rest) = buffer.split_at_mut(filled)?;
            rest.reborrow().slice_mut(..count)?.copy_from(&done.as_view().slice(..count)?)?;
            filled += count;
        }
        Ok(Input { buffer, start: 0 })
    }

    /// Given data.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn of(device: &Device, data: &[T]) -> Result<Input<T>, Error> {
        Ok(Input { buffer: device.upload(data)?, start: 0 })
    }

    /// What a device has computed.
    pub fn from_buffer(buffer: Buffer<T>) -> Input<T> {
        Input { buffer, start: 0 }
    }

    /// The data.
    ///
    /// # Errors
    /// None in practice: the start is inside the buffer.
    pub fn view(&self) -> Result<View<'_, T>, Error> {
        self.buffer.slice(self.start..)
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of the data, for a peer.
    pub fn argument(&self) -> Argument {
        Argument::Address(self.buffer.raw().address.get() + (self.start * size_of::<T>()) as u64)
    }
}

/// How far a result may be from its reference: `absolute + relative * |reference|`.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Relative to the reference.
    pub relative: f64,
    /// In the unit of the result.
    pub absolute: f64,
}

impl Tolerance {
    /// The rounding of a result to `T` and `arithmetic`, the relative error of the f32 computation before it, of
    /// numbers whose size is about `scale`.
    pub fn of<T: Element>(arithmetic: f64, scale: f64) -> Tolerance {
        Tolerance { relative: T::HALF_ULP + arithmetic, absolute: arithmetic * scale }
    }

    pub(crate) fn admits(self, got: f64, want: f64) -> bool {
        // A poisoned element is NaN, which no comparison admits.
        (got - want).abs() <= self.absolute + self.relative * want.abs()
    }
}

/// Reference values of consecutive elements.
pub struct Segment {
    /// The first element's index.
    pub at: usize,
    /// What must be there.
    pub values: Vec<f64>,
}

/// The rows of a matrix that are compared with a reference: the first, the last and some between.
pub fn sampled(rows: usize) -> Vec<usize> {
    let mut all = vec![0, 1, rows / 3, rows / 2 + 1, rows.saturating_sub(2), rows - 1];
    all.retain(|&row| row < rows);
    all.sort_unstable();
    all.dedup();
    all
}

/// An output that contenders write in turn.
pub struct Output<T: Element> {
    buffer: RefCell<Buffer<T>>,
    start: usize,
    expected: Vec<Segment>,
    tolerance: Tolerance,
    /// How far configurations may be apart.
    agreement: Tolerance,
    /// What the first configuration wrote that passed: all others must agree everywhere.
    first: RefCell<Option<Buffer<T>>>,
    /// A result that a function has allocated itself.
    given: RefCell<Option<Buffer<T>>>,
}

/// The output while somebody writes it.
pub struct Locked<'a, T: DType> {
    buffer: RefMut<'a, Buffer<T>>,
    start: usize,
}

impl<T: DType> Locked<'_, T> {
    /// The data.
    ///
    /// # Errors
    /// None in practice: the start is inside the buffer.
    pub fn view(&mut self) -> Result<ViewMut<'_, T>, Error> {
        self.buffer.slice_mut(self.start..)
    }
}

/// An output of any dtype, for the harness.
pub trait Verify {
    /// Fills it with NaN.
    ///
    /// # Errors
    /// If the device fails.
    fn poison(&self) -> Result<(), Failure>;

    /// Compares it with the reference, and with what was written before.
    ///
    /// # Errors
    /// If something differs, or the launch that wrote it failed.
    fn verify(&self) -> Result<(), Failure>;
}

impl<T: Element> Output<T> {
    /// An output of `len` elements that must match `expected`.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new(
        device: &Device,
        len: usize,
        start: usize,
        tolerance: Tolerance,
        expected: Vec<Segment>,
    ) -> Result<Output<T>, Error> {
        let buffer = RefCell::new(device.zeros::<T>(len + start)?);
        // Both may be off by the tolerance, in opposite directions.
        let agreement = Tolerance { relative: 2.0 * tolerance.relative, absolute: 2.0 * tolerance.absolute };
        let (first, given) = (RefCell::new(None), RefCell::new(None));
        Ok(Output { buffer, start, expected, tolerance, agreement, first, given })
    }

    /// Configurations may be so far apart where nothing is expected: elsewhere than in what is, errors may be larger.
    pub fn agreeing(self, agreement: Tolerance) -> Output<T> {
        Output { agreement, ..self }
    }

    /// Takes it for a launch.
    pub fn lock(&self) -> Locked<'_, T> {
        Locked { buffer: self.buffer.borrow_mut(), start: self.start }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.written().len() - self.start
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Some elements as f64.
    ///
    /// # Errors
    /// If they are not inside, or cannot be read.
    pub fn read(&self, from: usize, len: usize) -> Result<Vec<f64>, Error> {
        let from = self.start + from;
        Ok(self.written().slice(from..from + len)?.to_vec()?.into_iter().map(T::to_f64).collect())
    }

    /// Takes a result that a function has allocated, in place of what is written to the output.
    pub fn give(&self, result: Buffer<T>) {
        *self.given.borrow_mut() = Some(result);
    }

    /// The address of the data, for a peer.
    pub fn argument(&self) -> Argument {
        Argument::Address(self.buffer.borrow().raw().address.get() + (self.start * size_of::<T>()) as u64)
    }

    /// What was written last.
    fn written(&self) -> Ref<'_, Buffer<T>> {
        match Ref::filter_map(self.given.borrow(), Option::as_ref) {
            Ok(given) => given,
            Err(_) => self.buffer.borrow(),
        }
    }

    fn compare_everywhere(&self, other: &Buffer<T>) -> Result<(), Failure> {
        let buffer = self.written();
        let Tolerance { relative, absolute } = self.agreement;
        match differences(buffer.slice(self.start..)?, other.slice(self.start..)?, relative, absolute)? {
            None => Ok(()),
            Some(found) => Err(format!("{found} from the first configuration's").into()),
        }
    }
}

/// Elements of two vectors that differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Differences {
    /// How many.
    pub total: i64,
    /// The first of them is this one or one of the few thousand after it.
    pub after: usize,
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements, the first of them after element {}, differ", self.total, self.after)
    }
}

/// The elements that are further apart than `absolute + relative * |y|` or not numbers, if there are any.
///
/// # Errors
/// If the device fails.
pub fn differences<T: Element>(
    x: View<'_, T>,
    y: View<'_, T>,
    relative: f64,
    absolute: f64,
) -> Result<Option<Differences>, Failure> {
    const BLOCK: usize = 4096;
    let (device, n) = (x.device(), x.len());
    let mut counts = device.zeros::<i32>(n.div_ceil(BLOCK))?;
    count_differences::<T, BLOCK>(x, y, &mut counts, n as i32, relative as f32, absolute as f32)
        .grid(n.div_ceil(BLOCK))
        .launch(device)?;
    let counts = counts.to_vec()?;
    let total = counts.iter().map(|&c| i64::from(c)).sum();
    Ok(counts.iter().position(|&c| c != 0).map(|at| Differences { total, after: at * BLOCK }))
}

impl<T: Element> Verify for Output<T> {
    fn poison(&self) -> Result<(), Failure> {
        self.given.replace(None);
        Ok(self.buffer.borrow_mut().fill(T::from_f32(f32::NAN))?)
    }

    fn verify(&self) -> Result<(), Failure> {
        for segment in &self.expected {
            let from = self.start + segment.at;
            let got = self.written().slice(from..from + segment.values.len())?.to_vec()?;
            for (i, (got, want)) in got.into_iter().map(T::to_f64).zip(&segment.values).enumerate() {
                if !self.tolerance.admits(got, *want) {
                    return Err(format!("element {} is {got}, expected {want}", segment.at + i).into());
                }
            }
        }
        let mut first = self.first.borrow_mut();
        if let Some(first) = &*first {
            return self.compare_everywhere(first);
        }
        let copy = self.written().copy()?;
        // Every element is a number: against itself, only a NaN differs.
        self.compare_everywhere(&copy)?;
        *first = Some(copy);
        Ok(())
    }
}

/// What says whether integers are right.
type Judge = dyn Fn(&[i32]) -> Result<(), String>;

/// Integers that functions of the library allocate.
pub struct Integers {
    given: RefCell<Option<Buffer<i32>>>,
    judge: Box<Judge>,
}

impl Integers {
    /// Integers that `judge` knows right from wrong.
    pub fn new(judge: impl Fn(&[i32]) -> Result<(), String> + 'static) -> Integers {
        Integers { given: RefCell::new(None), judge: Box::new(judge) }
    }

    /// Integers of which those from these elements on are known.
    pub fn known(expected: Vec<(usize, Vec<i32>)>) -> Integers {
        Integers::new(move |got| {
            for (at, expected) in &expected {
                let got = got.get(*at..*at + expected.len()).ok_or("there are too few integers")?;
                if let Some(i) = got.iter().zip(expected).position(|(got, want)| got != want) {
                    return Err(format!("integer {} is {}, expected {}", at + i, got[i], expected[i]));
                }
            }
            Ok(())
        })
    }

    /// Takes what a function has allocated.
    pub fn give(&self, result: Buffer<i32>) {
        *self.given.borrow_mut() = Some(result);
    }
}

impl Verify for Integers {
    fn poison(&self) -> Result<(), Failure> {
        self.given.replace(None);
        Ok(())
    }

    fn verify(&self) -> Result<(), Failure> {
        let given = self.given.borrow();
        let given = given.as_ref().ok_or("nothing was written")?;
        Ok((self.judge)(&given.to_vec()?)?)
    }
}

/// What is read and written: it begins as a copy of an input before each check.
pub struct Updated<T: Element> {
    /// What it is at first.
    pub from: Input<T>,
    /// What it becomes.
    pub out: Output<T>,
}

impl<T: Element> Verify for Updated<T> {
    fn poison(&self) -> Result<(), Failure> {
        self.out.lock().view()?.copy_from(&self.from.view()?)?;
        Ok(())
    }

    fn verify(&self) -> Result<(), Failure> {
        self.out.verify()
    }
}

/// Counts, per program, the elements that are further apart than the tolerance, or not numbers.
#[kernel]
fn count_differences<T: Float, const BLOCK: usize>(
    x: Ptr<T>,
    y: Ptr<T>,
    counts: PtrMut<i32>,
    n: i32,
    relative: f32,
    absolute: f32,
) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = i < n;
    let a = load(x + i, mask = mask) as f32;
    let b = load(y + i, mask = mask) as f32;
    let close = abs(a - b) <= absolute + relative * abs(b);
    store(counts + program_id(0), sum(select(close, 0, 1), axis = 0));
}

/// Normally distributed numbers, the same in every run for one seed.
pub fn normal(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut uniform = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u32 << 24) as f32
    };
    let mut out = Vec::with_capacity(len + 1);
    while out.len() < len {
        let (u, v) = (uniform().max(1e-7), uniform());
        let (radius, angle) = ((-2.0 * u.ln()).sqrt(), std::f32::consts::TAU * v);
        out.push(radius * angle.cos());
        out.push(radius * angle.sin());
    }
    out.truncate(len);
    out
}
