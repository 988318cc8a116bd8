//! Which variant of a kernel a launch runs, and why.

use super::definition::Definition;
use crate::dtype::ElementType;
use kernel_core::backend::LaunchValues;
use kernel_core::backend::conditions::{Condition, Failure, LaunchConditions};
use kernel_core::ir::{Func, ParamId};
use std::fmt;
use std::ops::RangeInclusive;

/// Which of its variants a launch of a kernel runs.
///
/// A safe kernel is compiled for launches whose host shows beforehand that no access leaves its buffer: that is the fast
/// variant. What it shows are *launch conditions*, over arguments, lengths and the grid. A launch that does not meet them
/// runs the variant that checks every access itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaunchVariant {
    /// The fast one: every launch condition holds, or there is none.
    Fast,
    /// The one that checks every access, because these conditions do not hold. There are none if it was asked for.
    Checked(Vec<FailedCondition>),
    /// The fast one if its launch conditions hold, which arguments and a grid would decide.
    Undecided,
}

impl fmt::Display for LaunchVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchVariant::Fast => write!(f, "the fast variant: every launch condition holds"),
            LaunchVariant::Checked(failed) => {
                write!(f, "the variant that checks every access")?;
                failed.iter().try_for_each(|failed| write!(f, "\n  {failed}"))
            }
            LaunchVariant::Undecided => {
                write!(f, "the fast variant if its launch conditions hold; a call with `.grid(..)` can say")
            }
        }
    }
}

/// A launch condition that a launch does not meet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedCondition {
    /// The source file of what asks for it.
    pub file: Box<str>,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// What is wrong.
    pub why: ConditionFailure,
}

impl fmt::Display for FailedCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.why)
    }
}

/// Why a launch condition does not hold.
///
/// Numbers are intervals over all programs, lanes and iterations; `None` where nothing bounds them, as where they may
/// have wrapped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConditionFailure {
    /// An access may leave its buffer.
    OutOfBounds {
        /// The parameter.
        buffer: Box<str>,
        /// The offsets, in elements.
        offsets: Option<RangeInclusive<i128>>,
        /// The elements of the buffer.
        len: u64,
    },
    /// What is divided, or divided by, may be negative.
    Negative {
        /// The numbers.
        values: Option<RangeInclusive<i128>>,
    },
    /// What is computed may not fit its dtype.
    Wraps {
        /// What would be computed without wrapping.
        values: Option<RangeInclusive<i128>>,
        /// The dtype.
        dtype: ElementType,
    },
    /// A number may be larger than another: an assertion does not hold, or a loop around a matrix product may not run.
    TooLarge {
        /// The number.
        values: Option<RangeInclusive<i128>>,
        /// What it must not exceed.
        limit: Option<i128>,
    },
    /// Numbers that an assertion says to differ may be equal.
    MayBeEqual,
    /// A number is not known to be a multiple of another.
    NotAMultiple {
        /// The number.
        values: Option<RangeInclusive<i128>>,
        /// What shall divide it.
        of: u64,
    },
}

/// `lie between 0 and 7`, or that nobody knows.
fn lie(values: Option<&RangeInclusive<i128>>) -> String {
    match values {
        Some(values) if values.start() == values.end() => format!("{}", values.start()),
        Some(values) => format!("between {} and {}", values.start(), values.end()),
        None => "not bounded, or may have wrapped".to_string(),
    }
}

impl fmt::Display for ConditionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConditionFailure::OutOfBounds { buffer, offsets, len } => {
                write!(f, "`{buffer}` has {len} elements, and offsets are {}", lie(offsets.as_ref()))
            }
            ConditionFailure::Negative { values } => {
                write!(f, "a number of a division may be negative: it is {}", lie(values.as_ref()))
            }
            ConditionFailure::Wraps { values, dtype } => {
                write!(f, "an offset may not fit {dtype}: it is {}", lie(values.as_ref()))
            }
            ConditionFailure::TooLarge { values, limit } => {
                write!(f, "a number is {}, and ", lie(values.as_ref()))?;
                match limit {
                    Some(limit) => write!(f, "must be at most {limit}"),
                    None => write!(f, "what it must not exceed is not bounded"),
                }
            }
            ConditionFailure::MayBeEqual => write!(f, "numbers that must differ may be equal"),
            ConditionFailure::NotAMultiple { values, of } => {
                write!(f, "a number is not known to be a multiple of {of}: it is {}", lie(values.as_ref()))
            }
        }
    }
}

/// The conditions that a launch does not meet, with places and names of the kernel `func`.
pub(super) fn failed(
    kernel: &Definition,
    func: &Func,
    conditions: &LaunchConditions,
    launch: &impl LaunchValues,
) -> Vec<FailedCondition> {
    let name = |param: ParamId| func.params.get(param.index()).map_or("", |param| param.name.as_str());
    let failed = |failure: &Failure| FailedCondition {
        file: match func.files.name(failure.span) {
            "" => kernel.source().file().into(),
            file => file.into(),
        },
        line: failure.span.line,
        column: failure.span.column,
        why: why(failure, name, launch),
    };
    conditions.failures(launch).iter().map(failed).collect()
}

fn why<'f>(failure: &Failure, name: impl Fn(ParamId) -> &'f str, launch: &impl LaunchValues) -> ConditionFailure {
    let values = failure.found.map(|[lo, hi]| lo..=hi);
    match failure.condition {
        Condition::Inside { buffer, .. } => {
            ConditionFailure::OutOfBounds { buffer: name(buffer).into(), offsets: values, len: launch.length(buffer) }
        }
        Condition::NotNegative(_) => ConditionFailure::Negative { values },
        Condition::Exact(_, dtype) => ConditionFailure::Wraps { values, dtype },
        Condition::AtMost(_, _, plus) => {
            let limit = failure.compared.map(|[lo, _]| lo.saturating_add(plus.into()));
            ConditionFailure::TooLarge { values, limit }
        }
        Condition::Apart(..) => ConditionFailure::MayBeEqual,
        Condition::Multiple(_, of) => ConditionFailure::NotAMultiple { values, of },
    }
}
