//! Tensors that a kernel makes itself: the host computes them from the arguments, and checks them as it checks
//! descriptors that a caller makes.

use super::args::Arg;
use super::definition::Definition;
use crate::error::{Error, Result};
use crate::tensor::{Inner, MapCache, Padding, TensorLayout};
use kernel_core::edit::walk;
use kernel_core::ir::recipe::Extents;
use kernel_core::ir::{DType as ElementType, Dt, Files, Func, ParamId, Recipe, Resource, Span};
use kernel_core::passes::bind::made::bit;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;

/// Tensors of most kernels, without an allocation.
const INLINE: usize = 4;

/// The tensors of a launch, in the order of their parameters.
pub(super) type Tensors<'a> = SmallVec<[Inner<'a>; INLINE]>;

/// The arguments of a launch, those of hidden parameters too.
pub(super) type AllArgs<'a> = SmallVec<[Arg<'a>; 16]>;

/// What a variant's launches must make.
pub(super) struct Recipes {
    list: Box<[Made]>,
    files: Files,
}

/// A tensor.
struct Made {
    param: ParamId,
    name: Box<str>,
    span: Span,
    element: ElementType,
    recipe: Recipe,
    writes: bool,
    padding: Padding,
}

/// Who uses the tensors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// The interpreter, to which all tensors are alike.
    Cpu,
    /// Code that takes them to be as the hardware's tensor copies want them.
    Gpu,
}

/// What the recipes give for a launch.
pub(super) enum Outcome<'a> {
    /// These tensors.
    Tensors(Tensors<'a>),
    /// Tensors of which the variant takes too much for granted: the bits of those.
    Rough(u32),
}

impl Recipes {
    /// Those of the parameters that a bound kernel uses.
    pub(super) fn of(func: &Func) -> Recipes {
        let mut used = vec![false; func.params.len()];
        if func.params.iter().any(|param| param.recipe.is_some()) {
            walk(func, &mut |id| {
                for effect in func.own_effects(id) {
                    if let Resource::Buffer(param) = effect.resource {
                        used[param.index()] = true;
                    }
                }
            });
        }
        let made = |(index, param): (usize, &kernel_core::ir::Param)| {
            let recipe = param.recipe.as_deref().filter(|_| used[index])?;
            let padding = if param.facts.pads_with_nan { Padding::Nan } else { Padding::Zero };
            Some(Made {
                param: ParamId::new(index as u32),
                name: param.name.as_str().into(),
                span: param.span,
                element: param.kind.dt().and_then(Dt::known)?,
                recipe: recipe.clone(),
                writes: matches!(param.kind, kernel_core::ir::ParamKind::Desc { mutable: true, .. }),
                padding,
            })
        };
        Recipes { list: func.params.iter().enumerate().filter_map(made).collect(), files: func.files.clone() }
    }

    /// Whether launches have nothing to make.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Makes the tensors. `rough` has the bits of those of which the variant takes nothing for granted.
    ///
    /// # Errors
    /// [`Error::InvalidTensor`] about one that does not lie in its buffer.
    pub(super) fn make<'a>(
        &self,
        kernel: &Definition,
        args: &[Arg<'a>],
        rough: u32,
        purpose: For,
    ) -> Result<Outcome<'a>> {
        let (mut tensors, mut bits) = (Tensors::new(), 0);
        for made in &self.list {
            let own = bit(made.recipe.slot);
            let extents = made.recipe.evaluate(|param| args.get(param.index()).map_or(0, Arg::bits));
            if made.is_sparse(&extents) && rough & own == 0 {
                bits |= own;
                continue;
            }
            let tensor = made.tensor(&extents, args).map_err(|error| self.explain(kernel, made, error))?;
            if purpose == For::Gpu && rough & own == 0 && !made.is_smooth(&tensor) {
                bits |= own;
            }
            tensors.push(tensor);
        }
        Ok(if bits == 0 { Outcome::Tensors(tensors) } else { Outcome::Rough(bits) })
    }

    /// The arguments with those of the hidden parameters behind them.
    pub(super) fn extend<'s>(&self, args: &[Arg<'s>], tensors: &'s [Inner<'s>]) -> AllArgs<'s> {
        let mut all: AllArgs<'s> = args.iter().copied().collect();
        for (made, tensor) in self.list.iter().zip(tensors) {
            // Of parameters that are not used, nothing is asked.
            while all.len() < made.param.index() {
                all.push(Arg::omitted(made.element));
            }
            all.push(Arg::made(tensor, made.writes));
        }
        all
    }

    /// The error with the name of the tensor and the line that makes it.
    #[cold]
    fn explain(&self, kernel: &Definition, made: &Made, error: Error) -> Error {
        let Error::InvalidTensor { tensor, problem, hint } = error else { return error };
        let (file, Span { line, column, .. }) = (self.files.name(made.span), made.span);
        let place = if line > 0 { format!(" ({file}:{line}:{column})") } else { String::new() };
        let tensor = format!("`{}` of kernel `{}`{place}, {tensor},", made.name, kernel.name());
        Error::InvalidTensor { tensor: tensor.into(), problem, hint }
    }
}

impl Made {
    /// Whether neighbours along the last dimension are not adjacent.
    fn is_sparse(&self, extents: &Extents) -> bool {
        let last = extents.rank.saturating_sub(1);
        extents.strides[last] != 1 && extents.sizes[last] > 1
    }

    /// Whether the hardware's tensor copies can use it.
    fn is_smooth(&self, tensor: &Inner<'_>) -> bool {
        let (facts, address) = (tensor.facts(), tensor.buffer.address().get());
        let rows = facts.rows || !self.writes;
        address.is_multiple_of(16) && facts.strides && facts.copies && rows
    }

    /// The tensor in its buffer.
    fn tensor<'a>(&self, extents: &Extents, args: &[Arg<'a>]) -> Result<Inner<'a>> {
        let refuse = |problem: String, hint: &str| {
            let shown = |list: &[i64]| format!("{:?}", &list[..extents.rank]);
            let (shape, strides) = (shown(&extents.sizes), shown(&extents.strides));
            let tensor = format!("a tensor of shape {shape} and strides {strides}");
            Error::InvalidTensor { tensor: tensor.into(), problem: problem.into(), hint: hint.into() }
        };
        let buffer = args.get(self.recipe.base.index()).and_then(Arg::buffer_arg);
        let buffer = buffer.ok_or_else(|| refuse("lies in no buffer".into(), "pass one"))?;
        let offset = usize::try_from(extents.offset).ok();
        let buffer = offset.and_then(|offset| buffer.from(offset)).ok_or_else(|| {
            let problem = format!("begins at element {}, its buffer has {}", extents.offset, buffer.len());
            refuse(problem, "let it begin in its buffer")
        })?;
        let lists = extents.lists();
        let (shape, strides) = lists.map_err(|problem| refuse(problem, "sizes and strides are not negative"))?;
        let rank = extents.rank;
        let mut layout = TensorLayout::new(self.element, buffer.len(), &shape[..rank], Some(&strides[..rank]))?;
        layout.set_padding(self.padding);
        Ok(Inner { buffer, layout, maps: known_maps(buffer.address().get(), &layout) })
    }
}

/// Tensors whose maps a thread keeps. A launch with another one in the same place makes its maps anew.
const KEPT: usize = 64;

/// A tensor of a launch before, by address and layout, with what the driver has made of it.
type Known = Option<(u64, TensorLayout, Arc<MapCache>)>;

thread_local! {
    static MAPS: RefCell<[Known; KEPT]> = const { RefCell::new([const { None }; KEPT]) };
}

/// What the driver has made of such a tensor. A map holds the address and the layout, and nothing of the buffer's life.
fn known_maps(address: u64, layout: &TensorLayout) -> Arc<MapCache> {
    let digest = layout
        .shape()
        .iter()
        .chain(layout.strides())
        .fold(address >> 4, |digest, &number| digest.rotate_left(7).wrapping_mul(0xf135_7aea_2e62_a9c5) ^ number);
    let place = (digest.wrapping_mul(0xf135_7aea_2e62_a9c5) >> 32) as usize % KEPT;
    let found = MAPS.try_with(|maps| {
        let mut maps = maps.borrow_mut();
        match &maps[place] {
            Some((known, of, kept)) if *known == address && of == layout => kept.clone(),
            Some(_) | None => {
                let new = Arc::new(MapCache::default());
                maps[place] = Some((address, *layout, new.clone()));
                new
            }
        }
    });
    // While the thread is being torn down there is nothing to keep.
    found.unwrap_or_default()
}
