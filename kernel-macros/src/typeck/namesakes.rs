//! Constants of one name in shapes.
//!
//! `LANES` of two functions, and `lanes::LANES` of the kernel that calls them, are three expressions to a macro, which cannot
//! see that they are one constant:
//!
//! ```text
//! let x: Tile<f32, { [lanes::LANES] }> = load(..);
//! store(out + arange(0, lanes::LANES), lanes::halved(x));        // takes and gives `Tile<f32, { [LANES] }>`
//! ```
//!
//! Where shapes agree if, and only if, constants of one name are one number, they are taken to be, and rustc is asked. So
//! unlike numbers are an error of `cargo check`, and constants that merely have one name, in shapes that never meet, are none.

use std::collections::BTreeMap;

use kernel_core::ir::{ConstId, Dim};
use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use super::Checker;
use super::macros::single;
use super::ty::constexprs;
use crate::tree::Constant;

/// Constants that must be one number: indices of the kernel's.
pub type Equation = (usize, usize);

impl Checker<'_> {
    /// Whether two dimensions in normal form agree if constants of one name do. Then these are taken to.
    pub(super) fn agree_as_namesakes(&self, a: &Dim, b: &Dim) -> bool {
        let mentioned: Vec<ConstId> = constexprs(a).union(&constexprs(b)).copied().collect();
        if !mentioned.iter().any(|id| self.shape_constant(*id).is_some()) {
            return false;
        }
        self.agree_by(a, b, &self.first_of_each_name(&mentioned)) || {
            // One that `static_assert!` has said something about: its normal form has another name, or is a number.
            let single = |id: &ConstId| self.namesakes(*id).map(|other| (*id, other)).collect::<Vec<_>>();
            let pairs: Vec<(ConstId, ConstId)> = mentioned.iter().flat_map(single).collect();
            pairs.into_iter().any(|pair| self.agree_by(a, b, &BTreeMap::from([pair])))
        }
    }

    /// Whether two dimensions agree if each constexpr is the other one. Then it is.
    fn agree_by(&self, a: &Dim, b: &Dim, equal: &BTreeMap<ConstId, ConstId>) -> bool {
        let value = |id| equal.get(&id).map_or_else(|| Dim::param(id), |other| self.norm(&Dim::param(*other)));
        if equal.is_empty() || !a.substitute(&value).is_ok_and(|a| b.substitute(&value) == Ok(a)) {
            return false;
        }
        let facts = self.facts.borrow().clone();
        for (id, other) in equal {
            self.learn_equal(&Dim::param(*id), &self.norm(&Dim::param(*other)));
        }
        // It is not learnt where one of them is known to be made of the other.
        let agree = self.norm(a) == self.norm(b);
        if agree {
            let pairs =
                equal.iter().filter_map(|(id, other)| self.shape_constant(*id).zip(self.shape_constant(*other)));
            self.equations.borrow_mut().extend(pairs);
        } else {
            self.facts.replace(facts);
        }
        agree
    }

    /// Of constants of one name, for each but the first, the first.
    fn first_of_each_name(&self, ids: &[ConstId]) -> BTreeMap<ConstId, ConstId> {
        let mut first: BTreeMap<&str, ConstId> = BTreeMap::new();
        let mut equal = BTreeMap::new();
        for &id in ids {
            let Some(index) = self.shape_constant(id) else { continue };
            let of_name = *first.entry(&self.constants[index].name).or_insert(id);
            if of_name != id {
                equal.insert(id, of_name);
            }
        }
        equal
    }

    /// The other constants of the name of one.
    fn namesakes(&self, id: ConstId) -> impl Iterator<Item = ConstId> + '_ {
        let name = self.shape_constant(id).map(|index| self.constants[index].name.as_str());
        let others = self.constants.iter().filter(move |constant| Some(constant.name.as_str()) == name);
        others.filter_map(|constant| constant.shape).filter(move |other| *other != id)
    }

    /// How to say that a dimension is that of a function, where it is a constant which the function names.
    pub(super) fn exported_help(&self, a: &Dim, b: &Dim) -> Option<String> {
        [(a, b), (b, a)].into_iter().find_map(|(dim, other)| {
            let constants = constexprs(dim).into_iter().filter_map(|id| self.shape_constant(id));
            let name = &constants.map(|index| &self.constants[index]).find(|constant| constant.through.is_some())?.name;
            let other = self.dim_source(other);
            let rewrite = match single(dim) {
                Some(_) => format!("name it here too, by its path, instead of `{other}`"),
                None => format!("make `{other}` of it here, by its path"),
            };
            Some(format!("`{name}` is a constant of a function: {rewrite}"))
        })
    }

    /// The constant of the user's crate that a constexpr is.
    fn shape_constant(&self, id: ConstId) -> Option<usize> {
        self.constants.iter().position(|constant| constant.shape == Some(id))
    }
}

impl Checker<'_> {
    /// What rustc is asked about constants, as items: those that must be one number are among it.
    pub(super) fn asked(&self) -> TokenStream {
        let ask = |&(index, other): &Equation| question(&self.constants[index], &self.constants[other]);
        let equal: TokenStream = self.equations.borrow().iter().map(ask).collect();
        let other = &self.asked;
        quote!(#equal #other)
    }
}

/// Asks rustc whether two constants are one number.
fn question(constant: &Constant, other: &Constant) -> TokenStream {
    let (a, b) = (&constant.tokens, &other.tokens);
    let message = format!(
        "shapes with two constants `{}` meet here, which are not the same number: give them two names",
        constant.name
    );
    let place = constant.through.or(other.through).unwrap_or(constant.place);
    quote_spanned! {place.start=>
        const _: () = ::core::assert!(#a == #b, #message);
    }
}
