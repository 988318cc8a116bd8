//! Structs: tuples whose parts have names.

use std::fmt;
use std::rc::Rc;

use quote::ToTokens;
use syn::{ExprStruct, Member, PatStruct, Path, PathArguments, PathSegment};

use super::annotation::Annotation;
use super::call::turbofish_of;
use super::function::{declared, line_of};
use super::generics::Generics;
use super::{Binding, Checker, Val};
use crate::device::collect::path_text;
use crate::device::function::{Function, FunctionParam};
use crate::device::text;
use crate::error::{Checked, Reported};
use crate::help::Help;
use crate::names::closest;
use crate::source_range::SourceRange;

/// Where a struct is declared. Its fields are the parameters of that function.
#[derive(Clone)]
pub(super) struct Record(pub(super) Rc<Function>);

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Record) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Record {
    fn name(&self) -> String {
        self.0.ident().to_string()
    }

    /// The names of its fields.
    pub(super) fn fields(&self) -> impl Iterator<Item = String> + '_ {
        self.0.params.iter().map(field_name)
    }

    /// The names of its methods.
    pub(super) fn methods(&self) -> impl Iterator<Item = &str> {
        self.0.methods.keys().map(String::as_str)
    }

    /// The key of a method.
    pub(super) fn method(&self, name: &str) -> Option<&str> {
        self.0.methods.get(name).map(String::as_str)
    }

    /// Which field has a name.
    pub(super) fn position(&self, member: &Member) -> Option<usize> {
        match member {
            Member::Named(name) => self.fields().position(|field| name == &field),
            Member::Unnamed(_) => None,
        }
    }
}

fn field_name(param: &FunctionParam) -> String {
    param.pat.to_token_stream().to_string()
}

/// The parts of a tuple, or the values of the fields of a struct.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    vals: Vec<Val>,
    /// The struct.
    pub(super) record: Option<Record>,
}

impl Parts {
    /// Other values of the same form.
    pub(super) fn with(&self, vals: Vec<Val>) -> Parts {
        Parts { vals, record: self.record.clone() }
    }

    /// Whether both are tuples of as many parts, or the same struct.
    pub(super) fn has_form_of(&self, other: &Parts) -> bool {
        self.record == other.record && self.len() == other.len()
    }

    /// What messages call it.
    pub(super) fn show(&self) -> String {
        match &self.record {
            Some(record) => format!("the struct `{}`", record.name()),
            None => format!("a tuple of {}", self.len()),
        }
    }
}

impl std::ops::Deref for Parts {
    type Target = [Val];

    fn deref(&self) -> &[Val] {
        &self.vals
    }
}

impl From<Vec<Val>> for Parts {
    fn from(vals: Vec<Val>) -> Parts {
        Parts { vals, record: None }
    }
}

impl FromIterator<Val> for Parts {
    fn from_iter<I: IntoIterator<Item = Val>>(vals: I) -> Parts {
        vals.into_iter().collect::<Vec<Val>>().into()
    }
}

impl IntoIterator for Parts {
    type Item = Val;
    type IntoIter = std::vec::IntoIter<Val>;

    fn into_iter(self) -> Self::IntoIter {
        self.vals.into_iter()
    }
}

impl Checker<'_> {
    /// What messages call a value.
    pub(super) fn show_val(&self, val: &Val) -> String {
        match val {
            Val::One(operand) => self.show(*operand),
            Val::Tuple(parts, _) => parts.show(),
            Val::Unit(_) => "nothing".to_string(),
        }
    }

    /// The struct that a path names.
    pub(super) fn record(&self, path: &Path) -> Option<Record> {
        let found = self.functions.find(&self.frame.calls, &path_text(path))?;
        found.is_struct.then_some(Record(found))
    }

    /// Refuses a struct that is a field of itself.
    pub(super) fn not_itself(&mut self, path: &Path) -> Checked<()> {
        let name = path_text(path);
        if self.frame.name.as_ref() != Some(&name) {
            return Ok(());
        }
        let place = SourceRange::of_path(path);
        Err(self.report_help(place, format!("`{name}` contains itself"), "remove the field"))
    }

    fn known_record(&mut self, path: &Path) -> Checked<Record> {
        if let Some(record) = self.record(path) {
            return Ok(record);
        }
        let place = SourceRange::of_path(path);
        let name = path_text(path);
        let help = format!("declare one: `#[device] struct {name} {{ .. }}`");
        Err(self.report_help(place, format!("`{name}` is not a `#[device]` struct"), help))
    }

    /// `Stats<T, N>` as a type.
    pub(super) fn record_type(&mut self, record: &Record, path: &Path, place: SourceRange) -> Checked<Annotation> {
        let Some(last) = path.segments.last() else { return Err(Reported::earlier()) };
        let mut generics = Generics::default();
        match &last.arguments {
            PathArguments::AngleBracketed(args) => self.read_turbofish(&record.0, args, &mut generics)?,
            PathArguments::None if record.0.signature.generics.is_empty() => {}
            PathArguments::None | PathArguments::Parenthesized(_) => {
                let message = format!("`{}` has generic parameters", record.name());
                return Err(self.report_help(place, message, declared(&record.0)));
            }
        }
        let types = self.field_types(record, generics, path, place)?;
        Ok(Annotation::Tuple(types, Some(record.clone())))
    }

    /// The types of the fields of a struct whose generic parameters are known.
    fn field_types(
        &mut self,
        record: &Record,
        generics: Generics,
        path: &Path,
        place: SourceRange,
    ) -> Checked<Vec<Annotation>> {
        let function = &record.0;
        let frame = self.settle(function, &generics, self.via(path), place)?;
        self.inside(function, frame, generics, place, |c| {
            let types: Vec<_> = function.params.iter().map(|param| c.annotation(&param.ty)).collect();
            types.into_iter().collect()
        })
    }

    /// `Stats { max, sum: a + b, ..base }`
    pub(super) fn struct_literal(&mut self, literal: &ExprStruct, place: SourceRange) -> Checked<Val> {
        let values: Vec<_> = literal.fields.iter().map(|field| (&field.member, self.expr(&field.expr))).collect();
        let base = literal.rest.as_ref().map(|rest| self.expr(rest)).transpose();
        let record = self.known_record(&literal.path)?;
        let mut vals: Vec<Option<Checked<Val>>> = vec![None; record.0.params.len()];
        let mut outcome = Ok(());
        for (member, val) in values {
            let at = SourceRange::of_tokens(member);
            match record.position(member) {
                Some(index) if vals[index].is_none() => vals[index] = Some(val),
                Some(_) => {
                    let message = format!("the field `{}` is given twice", member.to_token_stream());
                    outcome = Err(self.report_help(at, message, "remove one"));
                }
                None => outcome = Err(self.no_field(&record, member)),
            }
        }
        if let Some(base) = base? {
            self.fill(&record, &mut vals, base)?;
        }
        outcome?;
        let missing: Vec<String> =
            record.fields().zip(&vals).filter(|(_, val)| val.is_none()).map(|(f, _)| f).collect();
        if let Some(first) = missing.first() {
            let message = format!("`{}` also has the field `{}`", record.name(), missing.join("`, `"));
            let help = format!("give each a value: `{first}: ..`");
            return Err(self.report_help(SourceRange::of_path(&literal.path), message, help));
        }
        let vals: Vec<Val> = vals.into_iter().flatten().collect::<Checked<_>>()?;
        self.make(&record, vals, &literal.path, place)
    }

    /// Takes what is not given from `..base`.
    fn fill(&mut self, record: &Record, vals: &mut [Option<Checked<Val>>], base: Val) -> Checked<()> {
        match base {
            Val::Tuple(parts, _) if parts.record.as_ref() == Some(record) => {
                for (val, part) in vals.iter_mut().zip(parts) {
                    val.get_or_insert(Ok(part));
                }
                Ok(())
            }
            other => {
                let message = format!("this must be the struct `{}`, found {}", record.name(), self.show_val(&other));
                Err(self.report(other.place(), message))
            }
        }
    }

    /// A struct of these values of its fields.
    fn make(&mut self, record: &Record, vals: Vec<Val>, path: &Path, place: SourceRange) -> Checked<Val> {
        let function = &record.0;
        let mut generics = Generics::default();
        if let Some(turbofish) = path.segments.last().and_then(turbofish_of) {
            self.read_turbofish(function, turbofish, &mut generics)?;
        }
        for (param, val) in function.params.iter().zip(&vals) {
            self.infer(function, &param.ty, val, &mut generics);
        }
        let types = self.field_types(record, generics, path, SourceRange::of_path(path))?;
        let mut parts = Vec::new();
        for ((param, says), val) in function.params.iter().zip(&types).zip(vals) {
            let before = self.errors.list().len();
            parts.push(self.have_type(val, says, "the field takes"));
            let line = param.pat.to_token_stream().into_iter().next().map(|token| line_of(token.span()));
            let says = text(&param.ty.to_token_stream());
            let note = format!("field `{}: {says}` of `{}`", field_name(param), record.name());
            for mistake in self.errors.since(before) {
                let line = line.as_deref().unwrap_or_default();
                mistake.message = format!("{}\nnote: {note}, {line}", mistake.message);
            }
        }
        let vals = parts.into_iter().collect::<Checked<_>>()?;
        let val = Val::Tuple(Parts { vals, record: Some(record.clone()) }, place);
        self.bounded(val, place)
    }

    /// Learns the generic parameters of a function from an argument that is a struct: `x: Stats<T, N>`.
    pub(super) fn infer_record(&self, function: &Function, last: &PathSegment, parts: &Parts, out: &mut Generics) {
        let (Some(record), PathArguments::AngleBracketed(args)) = (&parts.record, &last.arguments) else { return };
        let mut own = Generics::default();
        for (param, val) in record.0.params.iter().zip(parts.iter()) {
            self.infer(&record.0, &param.ty, val, &mut own);
        }
        self.learn_arguments(function, record.0.signature.generics.iter().zip(&args.args), &own, out);
    }

    fn no_field(&mut self, record: &Record, member: &Member) -> Reported {
        let place = SourceRange::of_tokens(member);
        let name = member.to_token_stream().to_string();
        let message = format!("`{}` has no field `{name}`", record.name());
        let fields: Vec<String> = record.fields().collect();
        let help = match closest(&name, fields.iter().map(String::as_str)) {
            Some(close) => Help::meant(place, close),
            None => format!("its fields are `{}`", fields.join("`, `")).into(),
        };
        self.report_help(place, message, help)
    }

    /// Which part of a tuple or struct a field is.
    pub(super) fn part(&mut self, record: Option<&Record>, len: usize, member: &Member) -> Checked<usize> {
        let place = SourceRange::of_tokens(member);
        match (record, member) {
            (Some(record), member) => record.position(member).ok_or_else(|| self.no_field(record, member)),
            (None, Member::Unnamed(index)) if (index.index as usize) < len => Ok(index.index as usize),
            (None, Member::Unnamed(_)) => {
                Err(self.report(place, format!("the tuple has {len} values, counted from 0")))
            }
            (None, Member::Named(_)) => {
                Err(self.report_help(place, "a tuple has no names", "its values are `.0`, `.1`"))
            }
        }
    }

    /// `let Stats { max, sum: total, .. } = value;`
    pub(super) fn bind_struct(&mut self, pat: &PatStruct, val: Checked<Val>) {
        let parts = val.and_then(|val| self.taken_apart(pat, val));
        let mut outcome = parts.as_ref().map(|_| ()).map_err(|reported| *reported);
        let mut bound = Vec::new();
        for field in &pat.fields {
            let val = match &parts {
                Ok((record, parts)) => match record.position(&field.member) {
                    Some(index) => {
                        bound.push(index);
                        Ok(parts[index].clone())
                    }
                    None => Err(self.no_field(record, &field.member)),
                },
                Err(reported) => Err(*reported),
            };
            outcome = outcome.and(val.as_ref().map(|_| ()).map_err(|reported| *reported));
            self.bind_pattern(&field.pat, val);
        }
        let (Ok((record, _)), Ok(()), None) = (&parts, outcome, &pat.rest) else { return };
        let left: Vec<String> =
            record.fields().enumerate().filter(|(index, _)| !bound.contains(index)).map(|(_, name)| name).collect();
        if !left.is_empty() {
            let message = format!("the pattern leaves out `{}`", left.join("`, `"));
            self.report_help(SourceRange::of_path(&pat.path), message, "name it, or end the pattern with `..`");
        }
    }

    fn taken_apart(&mut self, pat: &PatStruct, val: Val) -> Checked<(Record, Parts)> {
        let record = self.known_record(&pat.path)?;
        match val {
            Val::Tuple(parts, _) if parts.record.as_ref() == Some(&record) => Ok((record, parts)),
            other => {
                let message =
                    format!("this pattern takes the struct `{}`, found {}", record.name(), self.show_val(&other));
                Err(self.report(SourceRange::of_path(&pat.path), message))
            }
        }
    }

    /// Makes the fields of a struct have the types that something says.
    pub(super) fn have_types(&mut self, parts: &Parts, types: &[Annotation], says: &str) -> Checked<Parts> {
        let names: Vec<String> = parts.record.iter().flat_map(Record::fields).collect();
        let mut vals = Vec::new();
        for (index, (val, ty)) in parts.iter().zip(types).enumerate() {
            let before = self.errors.list().len();
            let val = self.have_type(val.clone(), ty, says);
            if let Some(name) = names.get(index) {
                for mistake in self.errors.since(before) {
                    (mistake.message, mistake.help) = (format!("field `{name}`: {}", mistake.message), None);
                }
                // The other fields stand in the same place.
                vals.push(Ok(val?));
            } else {
                vals.push(val);
            }
        }
        Ok(parts.with(vals.into_iter().collect::<Checked<_>>()?))
    }

    /// Makes a mutable variable of each part.
    pub(super) fn mutable_parts(&mut self, name: &str, parts: Parts) -> Binding {
        let record = parts.record.clone();
        let names: Vec<String> = match &record {
            Some(record) => record.fields().collect(),
            None => (0..parts.len()).map(|index| index.to_string()).collect(),
        };
        let parts = parts.into_iter().zip(names).map(|(part, field)| self.mutable(&format!("{name}.{field}"), part));
        Binding::Tuple(parts.collect(), record)
    }
}
