//! Whether a configuration multiplies right: its outputs are poisoned, then compared with references on the host, and
//! everywhere with those of the first configuration that passed.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use tilewright::Event;
use tilewright::prelude::*;

use super::data::{Data, Kind, Line, Reference};
use super::{Factor, Launch, Operands, Product};
use crate::data::differences;
use crate::element::Element;
use crate::{Failure, How};

/// A kernel that takes longer waits for something that never happens.
const PATIENCE: Duration = Duration::from_secs(10);

/// A contest while it is held.
pub(super) struct Contest<'c, T: Factor> {
    pub(super) product: Product,
    pub(super) data: &'c Data<T>,
    /// Of the integers and of the normal numbers.
    pub(super) references: [Reference; 2],
    pub(super) out: RefCell<Buffer<T::Result>>,
    /// What the first configuration wrote that passed.
    pub(super) first: [Option<Buffer<T::Result>>; 2],
}

/// Waits for an event. A kernel that never ends takes the device with it, so that nothing can be done but to say which
/// one it is and to leave; the results of the rows before are written.
pub(super) fn wait(event: &Event, what: &str) -> Result<(), Failure> {
    let start = Instant::now();
    while !event.is_complete()? {
        if start.elapsed() > PATIENCE {
            println!("HUNG {what}: not done after {PATIENCE:?}; leave it out with --skip");
            // Not `exit`: what libraries do at the end of a process may wait for the device.
            std::process::abort();
        }
        std::hint::spin_loop();
    }
    Ok(())
}

impl<T: Factor> Contest<'_, T> {
    /// Runs a configuration on both kinds of operands and compares. Returns the largest error relative to the bound.
    pub(super) fn check(
        &mut self,
        device: &Device,
        launch: &mut Launch<'_, T>,
        exact: bool,
        what: &str,
    ) -> Result<f64, Failure> {
        let mut worst = 0.0;
        for (which, kind) in Kind::ALL.into_iter().enumerate() {
            let [a, b] = self.data.pair(kind).views(&self.product)?;
            let mut out = self.out.borrow_mut();
            out.fill(T::Result::from_f32(f32::NAN))?;
            launch(&How::Launch(device), &mut Operands { a, b, c: out.as_view_mut() })?;
            wait(&device.default_stream().record()?, what)?;
            let reference = &self.references[which];
            let error = verify::<T>(&out, kind, &self.product, reference, self.first[which].as_ref());
            worst = match error {
                Err(why) if kind == Kind::Integers && !exact => {
                    println!("  not exact: {why}");
                    continue;
                }
                error => error.map_err(|why| format!("{kind:?}: {why}"))?,
            };
            if self.first[which].is_none() {
                self.first[which] = Some(out.copy()?);
            }
        }
        Ok(worst)
    }
}

/// Compares a result with what it must be.
fn verify<T: Factor>(
    out: &Buffer<T::Result>,
    kind: Kind,
    product: &Product,
    reference: &Reference,
    first: Option<&Buffer<T::Result>>,
) -> Result<f64, Failure> {
    // Integers are exact, and then rounded once, to the nearest.
    let growth = if kind == Kind::Integers { 0.0 } else { T::growth(product.k) };
    let mut worst = 0.0f64;
    for line in &reference.rows {
        let got = out.slice(line.start..line.start + line.values.len())?.to_vec()?;
        worst = worst.max(compare(line, got.into_iter(), kind, growth)?);
    }
    let rounding = if kind == Kind::Integers { 0.0 } else { T::Result::HALF_ULP };
    // Every element is a number, and near the first configuration's: both may be off, in opposite directions.
    let other = first.unwrap_or(out);
    let found = differences(out.as_view(), other.as_view(), 2.1 * rounding, 2.1 * growth * reference.largest)?;
    if let Some(found) = found {
        return Err(format!("{found} from the first configuration's").into());
    }
    if first.is_none() {
        let all = out.to_vec()?;
        for line in &reference.columns {
            let got = all.iter().skip(line.start).step_by(line.stride).copied();
            worst = worst.max(compare(line, got, kind, growth)?);
        }
    }
    Ok(worst)
}

/// The largest error of a line relative to its bound.
fn compare<R: Element>(line: &Line, got: impl Iterator<Item = R>, kind: Kind, growth: f64) -> Result<f64, Failure> {
    let mut worst = 0.0f64;
    for (at, (got, (want, magnitude))) in got.zip(line.values.iter().zip(&line.magnitudes)).enumerate() {
        let (got, element) = (got.to_f64(), line.start + at * line.stride);
        if kind == Kind::Integers {
            let exact = R::from_f32(*want as f32).to_f64();
            // A poisoned element is NaN, which equals nothing.
            if got != exact {
                return Err(format!("element {element} is {got}, and exactly {exact} is expected").into());
            }
            continue;
        }
        let error = growth * magnitude;
        let bound = error + R::HALF_ULP * (want.abs() + error);
        let off = (got - want).abs() / bound;
        if off.is_nan() || off > 1.0 {
            return Err(format!("element {element} is {got}, expected {want} within {bound:.3e}").into());
        }
        worst = worst.max(off);
    }
    Ok(worst)
}
