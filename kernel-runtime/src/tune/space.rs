//! Which configurations there are to choose from.

use crate::error::{Error, Result};
use crate::launch::{Config, Constexprs, LaunchOptions};
use std::fmt;
use std::sync::Arc;

/// A condition that configurations must meet.
type Predicate<C> = Arc<dyn Fn(&Config<C>) -> bool + Send + Sync>;

/// The most configurations of a space, before conditions: more are a mistake, and nobody would wait for them to be listed.
const MOST: usize = 1 << 22;

/// Every combination of some values for each constexpr and option, as far as conditions hold.
///
/// `#[kernel]` makes a struct around it with a method for each constexpr, `MatmulConsts::space()`, so that what does not
/// exist, or has another type, does not compile:
///
/// ```text
/// let space = MatmulConsts::space().BM([64, 128]).BN([64, 128, 256]).num_warps([4, 8]).where_(|c| c.BM * c.BN <= 128 * 256);
/// ```
#[derive(Clone)]
pub struct Space<C> {
    constexprs: Vec<Option<Vec<i64>>>,
    options: [Option<Vec<u32>>; 3],
    predicates: Vec<Predicate<C>>,
    start: Option<Config<C>>,
}

/// The values of a constexpr or an option: whatever can be iterated over and gives `T`.
///
/// A bound by this trait is met by the same types as `IntoIterator<Item = T>`. What does not meet it is refused in one message
/// on the values, which says what they are.
#[diagnostic::on_unimplemented(
    message = "these are not values of the type `{T}`",
    label = "expected values of the type `{T}`, found `{Self}`",
    note = "give a list of them, such as `[a, b]`, a range, or any other iterator"
)]
pub trait Values<T>: IntoIterator<Item = T> {}

#[diagnostic::do_not_recommend]
impl<T, I: IntoIterator<Item = T>> Values<T> for I {}

/// One thing that configurations differ in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The constexpr or option.
    pub name: &'static str,
    /// Its values, ascending; `None` leaves an option open.
    pub values: Vec<Option<i64>>,
}

/// A configuration of a space, with the place of each value on its axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate<C> {
    /// The configuration.
    pub config: Config<C>,
    /// For each axis the number of its value.
    pub place: Vec<u16>,
}

impl<C> fmt::Debug for Space<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Space { constexprs, options, predicates, .. } = self;
        write!(f, "Space({constexprs:?}, {options:?}, {} conditions)", predicates.len())
    }
}

impl<C: Constexprs> Default for Space<C> {
    fn default() -> Self {
        Space::new()
    }
}

impl<C: Constexprs> Space<C> {
    /// A space without values.
    pub fn new() -> Self {
        Space {
            constexprs: vec![None; C::NAMES.len()],
            options: [None, None, None],
            predicates: Vec::new(),
            start: None,
        }
    }

    /// The values of the constexpr with this number.
    pub fn constexpr(mut self, index: usize, values: impl IntoIterator<Item = i64>) -> Self {
        if let Some(axis) = self.constexprs.get_mut(index) {
            *axis = Some(ascending(values));
        }
        self
    }

    fn option(mut self, index: usize, values: impl IntoIterator<Item = u32>) -> Self {
        self.options[index] = Some(ascending(values));
        self
    }

    /// The numbers of warps.
    pub fn num_warps(self, values: impl IntoIterator<Item = u32>) -> Self {
        self.option(0, values)
    }

    /// The depths of software pipelines.
    pub fn num_stages(self, values: impl IntoIterator<Item = u32>) -> Self {
        self.option(1, values)
    }

    /// The limits of registers.
    pub fn max_registers(self, values: impl IntoIterator<Item = u32>) -> Self {
        self.option(2, values)
    }

    /// Only configurations of which this holds.
    pub fn where_(mut self, holds: impl Fn(&Config<C>) -> bool + Send + Sync + 'static) -> Self {
        self.predicates.push(Arc::new(holds));
        self
    }

    /// A configuration to begin with, and to keep where none is better beyond noise. It also gives constexprs without values
    /// of their own their one value. It need not be in the space.
    pub fn starting_at(mut self, config: impl Into<Config<C>>) -> Self {
        self.start = Some(config.into());
        self
    }

    /// The configuration to begin with.
    pub fn start(&self) -> Option<&Config<C>> {
        self.start.as_ref()
    }

    /// Whether all conditions hold.
    pub(super) fn meets_conditions(&self, config: &Config<C>) -> bool {
        self.predicates.iter().all(|holds| holds(config))
    }

    /// What configurations differ in.
    ///
    /// # Errors
    ///
    /// [`Error::Tuning`] if a constexpr has no values, and if there are more configurations than anybody would list.
    pub fn axes(&self) -> Result<Vec<Axis>> {
        let start = self.start.map(|config| config.consts.values().as_ref().to_vec());
        let constexprs = C::NAMES.iter().zip(&self.constexprs).enumerate().map(|(index, (&name, values))| {
            let one = || start.as_ref().and_then(|values| values.get(index)).map(|&value| vec![value]);
            let values = values.clone().or_else(one).filter(|values| !values.is_empty());
            let values = values.ok_or_else(|| no_values(name))?;
            Ok(Axis { name, values: values.into_iter().map(Some).collect() })
        });
        let options = LaunchOptions::NAMES.into_iter().zip(&self.options).enumerate().map(|(index, (name, values))| {
            let one = self.start.and_then(|config| config.options.values()[index]);
            let values = match values {
                Some(values) if values.is_empty() => return Err(no_values(name)),
                Some(values) => values.iter().map(|&value| Some(value.into())).collect(),
                None => vec![one.map(i64::from)],
            };
            Ok(Axis { name, values })
        });
        let axes: Vec<Axis> = constexprs.chain(options).collect::<Result<_>>()?;
        let size = axes.iter().try_fold(1usize, |size, axis| size.checked_mul(axis.values.len()));
        match size {
            Some(size) if size <= MOST => Ok(axes),
            Some(_) | None => Err(Error::Tuning {
                what: format!("the space has more than {MOST} configurations").into(),
                reason: "give fewer values; conditions are tried on each".into(),
            }),
        }
    }

    /// The configurations that meet all conditions, the one to begin with first; and how many do not.
    ///
    /// # Errors
    ///
    /// As for [`Space::axes`]; [`Error::Tuning`] if a value does not fit its constexpr.
    pub fn candidates(&self) -> Result<(Vec<Candidate<C>>, usize)> {
        let axes = self.axes()?;
        let (mut found, mut refused) = (Vec::new(), 0);
        let mut place = vec![0u16; axes.len()];
        loop {
            let values: Vec<Option<i64>> =
                axes.iter().zip(&place).map(|(axis, &at)| axis.values[usize::from(at)]).collect();
            let config = Config::from_values(&values).ok_or_else(|| does_not_fit(&axes, &values))?;
            match self.meets_conditions(&config) {
                true => found.push(Candidate { config, place: place.clone() }),
                false => refused += 1,
            }
            if !advance(&mut place, &axes) {
                break;
            }
        }
        if let Some(start) = self.start {
            let at = found.iter().position(|candidate| candidate.config == start);
            let first =
                at.map_or_else(|| Candidate { config: start, place: nearest(&axes, &start) }, |at| found.remove(at));
            found.insert(0, first);
        }
        Ok((found, refused))
    }
}

/// The next combination, the last axis first; `false` after the last one.
fn advance(place: &mut [u16], axes: &[Axis]) -> bool {
    for (at, axis) in place.iter_mut().zip(axes).rev() {
        *at += 1;
        if usize::from(*at) < axis.values.len() {
            return true;
        }
        *at = 0;
    }
    false
}

/// Where a configuration that is not in the space would be.
pub(super) fn nearest<C: Constexprs>(axes: &[Axis], config: &Config<C>) -> Vec<u16> {
    let of = |(axis, value): (&Axis, Option<i64>)| {
        let far = |other: &Option<i64>| value.zip(*other).map_or(0, |(a, b)| a.abs_diff(b));
        (0..axis.values.len() as u16).min_by_key(|&at| far(&axis.values[usize::from(at)])).unwrap_or(0)
    };
    axes.iter().zip(config.values()).map(of).collect()
}

fn ascending<T: Ord>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort();
    values.dedup();
    values
}

fn no_values(name: &str) -> Error {
    Error::Tuning {
        what: format!("the space has no values for `{name}`").into(),
        reason: format!("give them with `.{name}([..])`, or one with `.starting_at(..)`").into(),
    }
}

fn does_not_fit(axes: &[Axis], values: &[Option<i64>]) -> Error {
    let shown: Vec<String> =
        axes.iter().zip(values).filter_map(|(axis, value)| Some(format!("{} = {}", axis.name, (*value)?))).collect();
    Error::Tuning {
        what: format!("a value does not fit its constexpr: {}", shown.join(", ")).into(),
        reason: "give values that the type can have".into(),
    }
}
