//! Whether an operator computes the gradient of another one, checked when the crate compiles.

use crate::op::{AttributeType, Kind, Op, Param, Text};
use std::borrow::Cow;

/// Panics if `backward` is not the gradient of `forward`: called in a constant, it is a compile error.
///
/// What it takes is, by name: `d_` and an output, for the gradient that comes in; an input or output of `forward`; an attribute of
/// it, of the same type. What it gives is `d_` and an input, or several that share their gradient: `d_x_and_y`.
#[track_caller]
pub const fn check_backward(forward: &Op, backward: &Op) {
    let mut at = 0;
    let mut gradients = 0;
    while at < params(forward).len() {
        if matches!(params(forward)[at].kind, Kind::InPlace) {
            let name = text(&params(forward)[at].name);
            fail(&["`", name, "` of `", text(&forward.name), "` is written in place, which has no gradient"]);
        }
        at += 1;
    }
    at = 0;
    while at < params(backward).len() {
        let param = &params(backward)[at];
        if matches!(param.kind, Kind::Output(_)) {
            check_gradient(forward, backward, param);
            gradients += 1;
        } else {
            check_taken(forward, backward, param);
        }
        at += 1;
    }
    if gradients == 0 {
        fail(&[
            "`",
            text(&backward.name),
            "` gives no gradient; name its outputs `d_` and an input of `",
            text(&forward.name),
            "`",
        ]);
    }
}

/// Panics if the operator's gradient is not among those that are exported with it.
#[track_caller]
pub const fn check_exported(op: &Op, all: &[&Op]) {
    let Some(backward) = &op.backward else { return };
    let mut at = 0;
    while at < all.len() {
        if same(text(&all[at].name), text(backward)) {
            return;
        }
        at += 1;
    }
    fail(&["`", text(backward), "`, the gradient of `", text(&op.name), "`, is not exported; add it to the list"]);
}

#[track_caller]
const fn check_gradient(forward: &Op, backward: &Op, param: &Param) {
    let name = text(&param.name);
    let fits = match after_d(name) {
        Some(of) => is_input(forward, of) || share(forward, backward, of),
        None => false,
    };
    if !fits {
        fail(&[
            "the output `",
            name,
            "` of `",
            text(&backward.name),
            "` is neither `d_` and an input of `",
            text(&forward.name),
            "`, nor `d_` and inputs with `_and_` between them that are always given and have no other gradient",
        ]);
    }
}

const fn is_input(forward: &Op, name: &str) -> bool {
    matches!(find(forward, name), Some(Param { kind: Kind::Input { .. }, .. }))
}

/// Whether all names between [`AND`] are inputs that are always given, and get no other gradient.
const fn share(forward: &Op, backward: &Op, names: &str) -> bool {
    let (bytes, and) = (names.as_bytes(), AND.as_bytes());
    let mut at = 0;
    while at + and.len() <= bytes.len() {
        let mut matching = 0;
        while matching < and.len() && bytes[at + matching] == and[matching] {
            matching += 1;
        }
        if matching == and.len() {
            let (first, rest) = (names.split_at(at).0, names.split_at(at + and.len()).1);
            return shares(forward, backward, first) && share(forward, backward, rest);
        }
        at += 1;
    }
    shares(forward, backward, names)
}

const fn shares(forward: &Op, backward: &Op, name: &str) -> bool {
    let mut at = 0;
    while at < params(backward).len() {
        let param = &params(backward)[at];
        if let (Kind::Output(_), Some(of)) = (&param.kind, after_d(text(&param.name)))
            && same(of, name)
        {
            return false;
        }
        at += 1;
    }
    matches!(find(forward, name), Some(Param { kind: Kind::Input { optional: false }, .. }))
}

/// What stands between inputs that share a gradient.
pub(crate) const AND: &str = "_and_";

#[track_caller]
const fn check_taken(forward: &Op, backward: &Op, param: &Param) {
    let name = text(&param.name);
    let is_of_output = match after_d(name) {
        Some(of) => matches!(find(forward, of), Some(Param { kind: Kind::Output(_), .. })),
        None => false,
    };
    let fits = match (&param.kind, find(forward, name)) {
        (Kind::Input { optional }, None) => {
            let of = match after_d(name) {
                Some(of) if is_of_output => find(forward, of),
                _ => None,
            };
            if !*optional && may_be_missing(of) {
                must_be_optional(name, forward, backward);
            }
            is_of_output
        }
        (Kind::Input { optional: true }, Some(of)) => matches!(of.kind, Kind::Input { .. } | Kind::Output(_)),
        (Kind::Input { optional: false }, Some(of)) => {
            if may_be_missing(Some(of)) {
                must_be_optional(name, forward, backward);
            }
            matches!(of.kind, Kind::Input { .. } | Kind::Output(_))
        }
        (Kind::Attribute { of, .. }, Some(Param { kind: Kind::Attribute { of: other, .. }, .. }))
        | (Kind::OptionalAttribute { of }, Some(Param { kind: Kind::OptionalAttribute { of: other }, .. })) => {
            if !same_type(*of, *other) {
                fail(&[
                    "`",
                    name,
                    "` has another type in `",
                    text(&backward.name),
                    "` than in `",
                    text(&forward.name),
                    "`",
                ]);
            }
            true
        }
        _ => false,
    };
    if !fits {
        fail(&[
            "`",
            name,
            "` of `",
            text(&backward.name),
            "` is neither `d_` and an output of `",
            text(&forward.name),
            "`, nor an input, an output or an attribute of it",
        ]);
    }
}

/// Whether a tensor is not always there.
const fn may_be_missing(param: Option<&Param>) -> bool {
    match param {
        Some(Param { kind: Kind::Input { optional }, .. }) => *optional,
        Some(Param { kind: Kind::Output(output), .. }) => output.with.is_some(),
        _ => false,
    }
}

#[track_caller]
const fn must_be_optional(name: &str, forward: &Op, backward: &Op) -> ! {
    fail(&[
        "`",
        name,
        "` of `",
        text(&backward.name),
        "` must be an `Option`, as it is one of `",
        text(&forward.name),
        "`",
    ]);
}

const fn find<'a>(op: &'a Op, name: &str) -> Option<&'a Param> {
    let mut at = 0;
    while at < params(op).len() {
        if same(text(&params(op)[at].name), name) {
            return Some(&params(op)[at]);
        }
        at += 1;
    }
    None
}

pub(crate) const fn params(op: &Op) -> &[Param] {
    match &op.params {
        Cow::Borrowed(params) => params,
        Cow::Owned(_) => panic!("a constant owns nothing"),
    }
}

pub(crate) const fn text(text: &Text) -> &str {
    match text {
        Cow::Borrowed(text) => text,
        Cow::Owned(_) => panic!("a constant owns nothing"),
    }
}

pub(crate) const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

const fn same_type(a: AttributeType, b: AttributeType) -> bool {
    a as u8 == b as u8
}

/// What follows `d_`.
const fn after_d(name: &str) -> Option<&str> {
    match name.as_bytes() {
        [b'd', b'_', ..] => Some(name.split_at(2).1),
        _ => None,
    }
}

/// Panics with the parts as its message. Constants cannot format.
#[track_caller]
pub(crate) const fn fail(parts: &[&str]) -> ! {
    const LONGEST: usize = 1024;
    let mut message = [0; LONGEST];
    let mut len = 0;
    let mut part = 0;
    while part < parts.len() {
        let bytes = parts[part].as_bytes();
        let mut at = 0;
        while at < bytes.len() && len < LONGEST {
            message[len] = bytes[at];
            len += 1;
            at += 1;
        }
        part += 1;
    }
    match std::str::from_utf8(message.split_at(len).0) {
        Ok(message) => panic!("{}", message),
        // Cut within a character, by names of a thousand bytes.
        Err(_) => panic!("the gradient does not fit the operator"),
    }
}

/// How one operator's gradient takes its arguments from another's call.
pub struct Gradient<'a> {
    /// The operator that computes it.
    pub backward: &'a Op,
    forward: &'a Op,
}

/// Where an argument of the gradient comes from.
#[derive(PartialEq)]
pub enum Source<'a> {
    /// The gradient of an output.
    Incoming(&'a str),
    /// An input or output of the operator.
    Saved(&'a str),
    /// An attribute of it.
    Attribute(&'a str),
}

impl<'a> Gradient<'a> {
    /// The gradient of `forward` that `backward` computes: [`check_backward`] has seen that it does.
    pub fn new(forward: &'a Op, backward: &'a Op) -> Self {
        Gradient { backward, forward }
    }

    /// The gradient of an operator among these, if it has one. [`check_exported`] has seen that it is there.
    pub fn of(forward: &'a Op, ops: &'a [Op]) -> Option<Self> {
        let name = forward.backward.as_ref()?;
        ops.iter().find(|op| op.name == *name).map(|backward| Gradient::new(forward, backward))
    }

    /// The arguments, in order.
    pub fn sources(&self) -> Vec<Source<'a>> {
        let source = |param: &'a Param| {
            if !param.kind.is_tensor() {
                return Source::Attribute(&param.name);
            }
            match self.forward.params.iter().any(|own| own.name == param.name) {
                true => Source::Saved(&param.name),
                false => Source::Incoming(param.name.strip_prefix("d_").unwrap_or(&param.name)),
            }
        };
        self.backward.inputs().map(source).collect()
    }

    /// The names of what the gradient needs of the call.
    pub fn saved(&self) -> Vec<&'a str> {
        let saved = self.sources().into_iter().filter_map(|source| match source {
            Source::Saved(name) => Some(name),
            Source::Incoming(_) | Source::Attribute(_) => None,
        });
        saved.collect()
    }

    /// Whether an output has a gradient that the operator takes.
    pub fn takes(&self, output: &str) -> bool {
        self.sources().contains(&Source::Incoming(output))
    }

    /// Whether the operator does without the gradient of an output on which nothing depends.
    pub fn may_lack(&self, output: &str) -> bool {
        let is_of_it = |param: &&Param| param.name.strip_prefix("d_") == Some(output);
        let optional = Kind::Input { optional: true };
        self.takes(output) && self.backward.inputs().find(is_of_it).is_some_and(|param| param.kind == optional)
    }

    /// The name of the gradient of an input, if it has one.
    pub fn of_input(&self, input: &str) -> Option<&'a str> {
        let gradients =
            || self.backward.outputs().filter_map(|(param, _)| Some((param.name.strip_prefix("d_")?, param)));
        // As `check_backward` reads names: one input's own before that of several.
        let own = gradients().find(|(of, _)| *of == input);
        let is_input = |name: &str| self.forward.params.iter().any(|param| param.name == name);
        let shared = || gradients().find(|(of, _)| !is_input(of) && of.split(AND).any(|one| one == input));
        own.or_else(shared).map(|(_, param)| param.name.as_ref())
    }
}
