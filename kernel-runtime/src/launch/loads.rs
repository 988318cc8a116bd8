//! Which parameters a kernel loads from: what it writes can depend on the contents of these only.

use super::args::Arg;
use crate::ledger::{Ledger, LogPosition, Use};
use kernel_core::ir::{Func, RegionId, Resource};

/// One bit for each parameter; those without one count as loaded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loads(u64);

impl Loads {
    /// Those of these bits.
    pub(super) fn from_bits(bits: u64) -> Loads {
        Loads(bits)
    }

    /// One bit for each parameter.
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    pub(super) fn of(func: &Func) -> Loads {
        let mut loads = Loads(0);
        loads.add_region(func, func.body);
        loads
    }

    fn add_region(&mut self, func: &Func, region: RegionId) {
        for (id, operation) in func.region_ops(region) {
            for effect in func.own_effects(id) {
                // Atomics count as writes, but give what was there before.
                if let Resource::Buffer(param) = effect.resource
                    && (!effect.writes || !operation.results.is_empty())
                {
                    // A tensor that the kernel makes lies in the buffer of another argument.
                    let param = func.param(param).recipe.as_ref().map_or(param, |recipe| recipe.base);
                    self.0 |= 1u64.checked_shl(param.index() as u32).unwrap_or(0);
                }
            }
            for &inner in &operation.regions {
                self.add_region(func, inner);
            }
        }
    }

    #[inline]
    fn has(self, arg: usize) -> bool {
        1u64.checked_shl(arg as u32).is_none_or(|bit| self.0 & bit != 0)
    }

    /// Whether the launch reads what depends on a launch that has failed, or may yet prove to have.
    #[inline]
    pub(super) fn reads_suspect(self, args: &[Arg<'_>], ledger: &Ledger) -> bool {
        args.iter().enumerate().any(|(index, arg)| arg.is_suspect(ledger) && self.has(index))
    }

    /// The uses of the launch's buffers, as the ledger takes them.
    #[inline]
    pub(super) fn uses(self, args: &[Arg<'_>]) -> impl ExactSizeIterator<Item = Option<Use>> {
        args.iter().enumerate().map(move |(index, arg)| arg.used(self.has(index)))
    }

    /// Whether the launch loads from the argument.
    pub(super) fn loads_from(self, arg: usize) -> bool {
        self.has(arg)
    }
}

/// Notes in the buffers that a launch writes where the ledger has it.
#[inline]
pub(super) fn set_suspect(args: &[Arg<'_>], place: LogPosition) {
    args.iter().for_each(|arg| arg.set_suspect(place));
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel_core::text;

    #[test]
    fn loads_are_found_in_regions_and_atomics() {
        let func = text::parse(
            r#"kernel k "k.rs" safe generic {
                param %x x: ptr f32
                param %only out: ptr_mut f32
                param %back back: ptr_mut f32
                param %count count: ptr_mut i32
                param %unused unused: ptr f32
                param %flag flag: bool
                %one: i32 = const 1
                %before: i32 = atomic_rmw %count, %one {op = add, order = relaxed, scope = device}
                if %flag {
                    %a: f32 = load %x
                    store %only, %a
                    %b: f32 = load %back
                    store %back, %b
                    yield
                } else {
                    yield
                }
                return
            }"#,
        );
        let func = func.unwrap_or_else(|error| panic!("{error}"));
        let loads = Loads::of(&func);
        let found: Vec<bool> = (0..6).map(|arg| loads.has(arg)).collect();
        assert_eq!(found, [true, false, true, true, false, false]);
        assert!(loads.has(64), "of parameters that have no bit nothing is known");
    }
}
