//! Tensors that a kernel makes itself: the host computes them from the arguments, and checks them as it checks
//! descriptors that a caller makes.

use super::args::Arg;
use super::definition::Definition;
use crate::error::{Error, Result};
use crate::tensor::{Inner, MapCache, Padding, TensorLayout};
use kernel_archive::Places;
use kernel_core::edit::walk;
use kernel_core::ir::recipe::Extents;
use kernel_core::ir::{DType as ElementType, Dt, Func, ParamId, Recipe, Resource, Span};
use kernel_core::passes::bind::made::bit;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;

/// Tensors of most kernels, without an allocation.
const INLINE: usize = 4;

/// The tensors of a launch, in the order of their parameters.
pub(super) type Tensors<'a> = SmallVec<[Inner<'a>; INLINE]>;

/// The arguments of a launch, those of hidden parameters too.
pub(super) type AllArgs<'a> = SmallVec<[Arg<'a>; 24]>;

/// What a variant's launches must make.
pub(super) struct Recipes {
    list: Box<[Made]>,
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
#[expect(clippy::large_enum_variant, reason = "tensors are the usual outcome, and cost no memory of their own")]
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
        Recipes { list: func.params.iter().enumerate().filter_map(made).collect() }
    }

    /// The recipes as an archive has them; `None` if one is of a place that the kernel's text does not name.
    pub(super) fn written(&self, places: &Places<'_>) -> Option<Vec<kernel_archive::Made>> {
        let written = |made: &Made| {
            Some(kernel_archive::Made {
                param: made.param,
                name: made.name.to_string(),
                place: places.number(made.span)?,
                element: made.element,
                recipe: made.recipe.clone(),
                writes: made.writes,
                nan: made.padding == Padding::Nan,
            })
        };
        self.list.iter().map(written).collect()
    }

    /// Recipes of an archive.
    pub(super) fn read(written: Vec<kernel_archive::Made>, places: &Places<'_>) -> Recipes {
        let read = |made: kernel_archive::Made| Made {
            param: made.param,
            name: made.name.into(),
            span: places.span(made.place),
            element: made.element,
            recipe: made.recipe,
            writes: made.writes,
            padding: if made.nan { Padding::Nan } else { Padding::Zero },
        };
        Recipes { list: written.into_iter().map(read).collect() }
    }

    /// Whether launches have nothing to make.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The bits of all tensors.
    pub(super) fn bits(&self) -> u32 {
        self.list.iter().fold(0, |bits, made| bits | bit(made.recipe.slot))
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
        let place = match made.span.line {
            0 => String::new(),
            _ => format!(" ({})", kernel.files().place(made.span)),
        };
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
        let (keeps_order, maps) = (layout.keeps_order(self.writes), known_maps(buffer.address().get(), &layout));
        Ok(Inner { buffer, layout, keeps_order, maps })
    }
}

/// Places for tensors whose maps a thread keeps. Each has two, so that two tensors of a launch never take turns: a third one
/// takes the place of the older.
const PLACES: usize = 32;

/// A tensor of a launch before, by address and layout, with what the driver has made of it.
type Known = Option<(u64, TensorLayout, Arc<MapCache>)>;

thread_local! {
    static MAPS: RefCell<[[Known; 2]; PLACES]> = const { RefCell::new([const { [const { None }; 2] }; PLACES]) };
}

/// What the driver has made of such a tensor. A map holds the address and the layout, and nothing of the buffer's life.
fn known_maps(address: u64, layout: &TensorLayout) -> Arc<MapCache> {
    let digest = layout
        .shape()
        .iter()
        .chain(layout.strides())
        .fold(address >> 4, |digest, &number| digest.rotate_left(7).wrapping_mul(0xf135_7aea_2e62_a9c5) ^ number);
    let place = (digest.wrapping_mul(0xf135_7aea_2e62_a9c5) >> 32) as usize % PLACES;
    let found = MAPS.try_with(|maps| {
        let [newer, older] = &mut maps.borrow_mut()[place];
        for (known, of, kept) in newer.iter().chain(older.iter()) {
            if *known == address && of == layout {
                return kept.clone();
            }
        }
        let new = Arc::new(MapCache::default());
        *older = newer.replace((address, *layout, new.clone()));
        new
    });
    // While the thread is being torn down there is nothing to keep.
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::args::{PtrArg, PtrMutArg};
    use super::super::definition::{KernelSource, SourceFile};
    use super::super::scalar::Scalar;
    use super::*;
    use crate::counting::allocations;
    use crate::device::Device;
    use kernel_core::ir::Generic;
    use kernel_core::passes::{self, Bindings};
    use kernel_core::text;

    /// Reads `[m, n]` of rows that are `s` apart from the element `first` on, and writes `[m, n]` without gaps.
    const COPY: &str = r#"kernel copy "src/copy.rs" safe generic {
        param %x x: ptr f32
        param %out out: ptr_mut f32
        param %m m: i32
        param %n n: i32
        param %s s: i32
        param %t t: i32
        param %first first: i32
        %one: i64 = const 1
        %p: *x = add_ptr %x, %first
        %from: desc x[4, 8] = make_desc %p, %m, %n, %s, %t {block = [4, 8], pads_with_nan = false, name = "from"} @7:9+4
        %to: desc out[4, 8] = make_desc %out, %m, %n, %n, %one {block = [4, 8], pads_with_nan = false, name = "to"} @8:9+2
        %zero: i32 = const 0
        %v: f32[4, 8] = desc_load %from, %zero, %zero
        desc_store %to, %v, %zero, %zero
        return
    }"#;

    const SOURCE: KernelSource = KernelSource {
        name: "copy",
        module: "",
        files: &[SourceFile { name: "src/copy.rs", lines: &[] }],
        ir: COPY,
        num_warps: None,
        num_stages: None,
        max_registers: None,
    };

    fn recipes(rough_tensors: u32) -> Recipes {
        let generic = text::parse(COPY).ok().and_then(|func| Generic::new(func).ok()).expect("it parses");
        let bound = passes::bind(&generic, &Bindings { rough_tensors, ..Bindings::default() }).expect("it binds");
        Recipes::of(bound.func())
    }

    /// What the recipes give for a launch: the bits of rough tensors, or how many tensors there are.
    fn outcome([m, n, s, t, first]: [i32; 5], rough: u32, purpose: For) -> Result<std::result::Result<usize, u32>> {
        let device = Device::cpu();
        let (x, mut out) = (device.zeros::<f32>(64)?, device.zeros::<f32>(64)?);
        let mut args = vec![Arg::ptr(x.into_arg_of()), Arg::ptr_mut((&mut out).into_arg_mut())];
        args.extend([m, n, s, t, first].map(|number| Arg::scalar(number.value())));
        let made = recipes(rough).make(&Definition::new(SOURCE), &args, rough, purpose)?;
        Ok(match made {
            Outcome::Tensors(tensors) => Ok(tensors.len()),
            Outcome::Rough(bits) => Err(bits),
        })
    }

    trait IntoArgOf<'a> {
        fn into_arg_of(self) -> crate::launch::BufferArg<'a>;
    }

    impl<'a> IntoArgOf<'a> for &'a crate::buffer::Buffer<f32> {
        fn into_arg_of(self) -> crate::launch::BufferArg<'a> {
            PtrArg::<f32>::into_arg(self)
        }
    }

    #[test]
    fn what_copies_cannot_use_is_told() -> Result<()> {
        let gpu = |numbers| outcome(numbers, 0, For::Gpu);
        assert_eq!(gpu([4, 8, 12, 1, 0])?, Ok(2));
        assert_eq!(gpu([4, 8, 12, 1, 4])?, Ok(2), "the first element is at 16 bytes");
        assert_eq!(gpu([4, 8, 12, 1, 1])?, Err(1), "the first element is at 4 bytes");
        assert_eq!(gpu([4, 8, 10, 1, 0])?, Err(1), "rows are 40 bytes apart");
        assert_eq!(gpu([4, 8, 0, 1, 0])?, Err(1), "rows are one");
        assert_eq!(gpu([4, 6, 12, 1, 0])?, Err(2), "rows that are written have 24 bytes, and are as far apart");
        assert_eq!(gpu([1, 6, 12, 1, 0])?, Err(2), "rows that are written have 24 bytes");
        assert_eq!(gpu([0, 8, 12, 1, 0])?, Err(3), "there is nothing to copy");
        assert_eq!(gpu([4, 8, 1, 4, 0])?, Err(1), "columns are adjacent");
        // The interpreter minds only what is no tensor of the host.
        assert_eq!(outcome([4, 8, 10, 1, 1], 0, For::Cpu)?, Ok(2));
        assert_eq!(outcome([4, 8, 1, 4, 0], 0, For::Cpu)?, Err(1));
        // What is known to be rough is no news, and without adjacent elements it is no tensor of the host.
        assert_eq!(outcome([4, 8, 10, 1, 1], 1, For::Gpu)?, Ok(1));
        assert_eq!(outcome([4, 6, 12, 1, 0], 2, For::Gpu)?, Ok(2));
        Ok(())
    }

    #[test]
    fn tensors_outside_are_errors_with_their_line() {
        let problem = |numbers| match outcome(numbers, 0, For::Gpu) {
            Err(Error::InvalidTensor { tensor, problem, .. }) => format!("{tensor} {problem}"),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            problem([5, 8, 16, 1, 0]),
            "`from` of kernel `copy` (src/copy.rs:7:9), a tensor of shape [5, 8] and strides [16, 1], needs 72 elements, \
             its buffer has 64"
        );
        assert!(problem([4, 8, 12, 1, 65]).contains("begins at element 65, its buffer has 64"));
        assert!(problem([4, 8, 12, 1, -1]).contains("begins at element -1, its buffer has 64"));
        assert!(problem([2, 33, 31, 1, 0]).starts_with("`to` of kernel `copy` (src/copy.rs:8:9)"));
        assert!(problem([-4, 8, 12, 1, 0]).contains("has -4 elements along dimension 0"));
    }

    /// Wherever the buffers lie: tensors whose addresses lead to one place have room there.
    #[test]
    fn tensors_like_those_before_cost_no_memory() -> Result<()> {
        let device = Device::cpu();
        let x = device.zeros::<f32>(64)?;
        let numbers = [4, 8, 12, 1, 0].map(|number: i32| Arg::scalar(number.value()));
        let [m, n, s, t, first] = numbers;
        let (recipes, definition) = (recipes(0), Definition::new(SOURCE));
        let mut outs = Vec::new();
        for _ in 0..256 {
            let mut out = device.zeros::<f32>(64)?;
            let args = [Arg::ptr(x.into_arg_of()), Arg::ptr_mut((&mut out).into_arg_mut()), m, n, s, t, first];
            let maps = || -> Result<Vec<*const MapCache>> {
                match recipes.make(&definition, &args, 0, For::Gpu)? {
                    Outcome::Tensors(tensors) => Ok(tensors.iter().map(|tensor| Arc::as_ptr(&tensor.maps)).collect()),
                    Outcome::Rough(_) => Ok(Vec::new()),
                }
            };
            let before = maps()?;
            assert_eq!(before.len(), 2);
            assert_eq!(maps()?, before, "the driver need not encode a map again");
            let (count, all) = allocations(|| match recipes.make(&definition, &args, 0, For::Gpu) {
                Ok(Outcome::Tensors(tensors)) => recipes.extend(&args, &tensors).len(),
                Ok(Outcome::Rough(_)) | Err(_) => 0,
            });
            assert_eq!((count, all), (0, args.len() + 2));
            outs.push(out);
        }
        Ok(())
    }
}
