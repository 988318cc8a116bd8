//! How a kernel runs, as one value: its constexprs with the options of its launches.

use super::call::{Call, NoGrid, UnsafeCall};
use super::kernel::Kernel;
use super::spec::Tuning;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

/// The constexprs of a kernel, which `#[kernel]` makes a struct of: `AddConsts`.
pub trait Constexprs: Copy + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// As many integers as there are constexprs.
    type Values: AsRef<[i64]> + Copy;

    /// Their names, in order.
    const NAMES: &'static [&'static str];

    /// Their values, in order; `false` is 0 and `true` is 1.
    fn values(self) -> Self::Values;

    /// Constexprs of these values; `None` if they are not as many, or do not fit the types.
    fn from_values(values: &[i64]) -> Option<Self>;

    /// The kernel; `None` of a struct that is no kernel's.
    fn of_kernel() -> Option<&'static Kernel> {
        None
    }
}

/// What a launch may choose besides constexprs. `None` leaves it to the kernel's attribute, then to a heuristic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct LaunchOptions {
    /// As [`Call::num_warps`].
    pub num_warps: Option<u32>,
    /// As [`Call::num_stages`].
    pub num_stages: Option<u32>,
    /// As [`Call::max_registers`].
    pub max_registers: Option<u32>,
}

impl LaunchOptions {
    /// The names of the options, in order.
    pub const NAMES: [&'static str; 3] = ["num_warps", "num_stages", "max_registers"];

    /// The options in the order of their names.
    pub fn values(self) -> [Option<u32>; 3] {
        [self.num_warps, self.num_stages, self.max_registers]
    }

    /// Options of these values.
    pub fn from_values([num_warps, num_stages, max_registers]: [Option<u32>; 3]) -> Self {
        LaunchOptions { num_warps, num_stages, max_registers }
    }

    /// What is chosen, and of the rest what the launch chose before.
    pub(super) fn over(self, tuning: Tuning) -> Tuning {
        Tuning {
            num_warps: self.num_warps.or(tuning.num_warps),
            num_stages: self.num_stages.or(tuning.num_stages),
            max_registers: self.max_registers.or(tuning.max_registers),
            ..tuning
        }
    }
}

/// Constexprs with options. Its constexprs are its fields: `config.BLOCK`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config<C> {
    /// The constexprs.
    pub consts: C,
    /// The options.
    pub options: LaunchOptions,
}

impl<C> Deref for Config<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.consts
    }
}

impl<C> From<C> for Config<C> {
    fn from(consts: C) -> Self {
        Config { consts, options: LaunchOptions::default() }
    }
}

impl<C: Constexprs> Config<C> {
    /// The names of everything that a configuration says. Where constexprs have the name of an option, it comes twice: what
    /// sees to launches by itself, as functions of several launches do, takes options among its own numbers.
    pub fn names() -> impl Iterator<Item = &'static str> {
        C::NAMES.iter().copied().chain(LaunchOptions::NAMES)
    }

    /// The names that say something each: those of constexprs, and of the options that no constexpr has the name of.
    pub fn own_names() -> impl Iterator<Item = &'static str> {
        C::NAMES.iter().copied().chain(LaunchOptions::NAMES.into_iter().filter(|name| !C::NAMES.contains(name)))
    }

    /// A configuration of these values by name; `None` if a constexpr has none, one does not fit, or a name is not the
    /// kernel's.
    pub fn from_named(named: &BTreeMap<String, i64>) -> Option<Self> {
        if named.keys().any(|name| Self::own_names().all(|own| own != name)) {
            return None;
        }
        let consts = C::NAMES.iter().map(|name| named.get(*name).copied());
        let options = LaunchOptions::NAMES.into_iter().map(|name| match C::NAMES.contains(&name) {
            true => None,
            false => named.get(name).copied(),
        });
        Self::from_values(&consts.chain(options).collect::<Vec<_>>())
    }

    /// The values in the order of the names; `None` for options that are left open.
    pub fn values(&self) -> impl Iterator<Item = Option<i64>> + use<C> {
        let consts: Vec<i64> = self.consts.values().as_ref().to_vec();
        let options = self.options.values().map(|value| value.map(i64::from));
        consts.into_iter().map(Some).chain(options)
    }

    /// A configuration of these values; `None` if they are not as many, or do not fit.
    pub fn from_values(values: &[Option<i64>]) -> Option<Self> {
        let (consts, options) = values.split_at_checked(C::NAMES.len())?;
        let consts: Option<Vec<i64>> = consts.iter().copied().collect();
        let options: &[Option<i64>; 3] = options.try_into().ok()?;
        let fits = |value: Option<i64>| value.map(|value| u32::try_from(value).ok());
        if options.iter().any(|&value| fits(value) == Some(None)) {
            return None;
        }
        let options = LaunchOptions::from_values(options.map(|value| fits(value).flatten()));
        Some(Config { consts: C::from_values(&consts?)?, options })
    }
}

/// `BM = 128, BN = 64, num_warps = 8`
impl<C: Constexprs> fmt::Display for Config<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = Self::names().zip(self.values()).filter_map(|(name, value)| Some((name, value?)));
        for (index, (name, value)) in said.enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{name} = {value}")?;
        }
        Ok(())
    }
}

macro_rules! configured {
    ($($call:ident)*) => {$(
        impl<C, G> $call<'_, C, G> {
            /// Several options at once; those that are `None` stay as they are.
            #[inline]
            pub fn options(mut self, options: LaunchOptions) -> Self {
                self.invocation.tuning = options.over(self.invocation.tuning);
                self
            }
        }

        impl<'a, C: Constexprs> $call<'a, C, NoGrid> {
            /// The configuration of a table for these sizes, or for near ones ([`Tuned::get`](crate::tune::Tuned::get)), if
            /// it has one; otherwise the call stays as it is. Before the grid, which may depend on it. Nothing is ever
            /// measured here: tables are filled by a [`Tuner`](crate::tune::Tuner), or by heuristics.
            #[inline]
            pub fn tuned(self, tuned: &crate::tune::Tuned<C>, sizes: &[usize]) -> Self {
                match tuned.get(sizes) {
                    Some(config) => self.configured(config),
                    None => self,
                }
            }

            /// This configuration instead of the call's own. Before the grid, which may depend on it.
            #[inline]
            pub fn configured(mut self, config: Config<C>) -> Self {
                self.invocation.replace_constants(config.consts.values().as_ref());
                self.set_consts(config.consts);
                self.options(config.options)
            }
        }
    )*};
}

configured!(Call UnsafeCall);
