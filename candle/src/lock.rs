//! candle's locks of storages, for any number of tensors.
//!
//! candle hands out storages under a lock that may be taken twice to read by one thread only to its own ops, of three tensors
//! at most. So more are held by ops inside of ops, each of which does nothing but hold one tensor's storage.

use crate::call::{Held, HeldMut, apart, refused};
use crate::memory::{Memory, MemoryMut};
use candle_core::{CpuStorage, CudaStorage, CustomOp1, Error, InplaceOp1, InplaceOp2, Layout, Result, Shape, Tensor};
use std::cell::RefCell;

/// A tensor, and what the op calls it.
pub(crate) type Named<'a> = (&'static str, &'a Tensor);

/// Runs `f` while the storages of all tensors are held to read.
///
/// All threads take storages in one order, as candle's own ops in place do, so that no two wait for each other: otherwise one that
/// holds a tensor to read and wants another could meet one that holds the other to write and wants the first.
pub(crate) fn with_inputs<R, const N: usize>(
    op: &'static str,
    tensors: &[Option<Named<'_>>; N],
    f: impl FnOnce([Option<Held<'_>>; N]) -> Result<R>,
) -> Result<R> {
    let mut order = [(0, 0); N];
    let mut count = 0;
    for (at, tensor) in tensors.iter().enumerate() {
        if tensor.is_some() {
            order[count].1 = at;
            count += 1;
        }
    }
    let order = &mut order[..count];
    if count > 1 {
        for (storage, at) in order.iter_mut() {
            *storage = tensors[*at].map_or(0, |(_, tensor)| address(tensor));
        }
        order.sort_unstable();
    }
    let mut f = Some(f);
    let mut result = None;
    hold(op, tensors, order, [None; N], &mut |held| result = f.take().map(|f| f(held)))?;
    result.unwrap_or_else(|| Err(Error::Msg(format!("{op}: candle has not run it"))))
}

/// Runs `f`, which holds the tensors itself in an order of its own, as candle does for ops that it differentiates: they are held
/// before, in that of [`with_inputs`].
pub(crate) fn in_order<R, const N: usize>(
    op: &'static str,
    tensors: &[Option<Named<'_>>; N],
    f: impl FnOnce() -> Result<R>,
) -> Result<R> {
    match tensors.iter().flatten().nth(1) {
        Some(_) => with_inputs(op, tensors, |_| f()),
        None => f(),
    }
}

/// Holds tensors in this order, of their storages and their places, then calls `f`.
fn hold<const N: usize>(
    op: &'static str,
    tensors: &[Option<Named<'_>>; N],
    order: &[(usize, usize)],
    held: [Option<Held<'_>>; N],
    f: &mut dyn FnMut([Option<Held<'_>>; N]),
) -> Result<()> {
    let Some(((_, next), rest)) = order.split_first() else {
        f(held);
        return Ok(());
    };
    let Some((name, tensor)) = tensors[*next] else { return Ok(()) };
    let outcome = RefCell::new(None);
    let unfinished = tensor.apply_op1_no_bwd(&Level {
        op,
        inner: RefCell::new(|memory: Memory<'_>, layout: &Layout| {
            let mut held = held;
            held[*next] = Some(Held { name, memory, layout });
            *outcome.borrow_mut() = Some(hold(op, tensors, rest, held, f));
        }),
    });
    match (outcome.into_inner(), unfinished) {
        (Some(outcome), _) => outcome,
        (None, Err(error)) => Err(error),
        (None, Ok(_)) => Ok(()),
    }
}

/// An op that hands its storage on. It makes no tensor: it ends with an error that nobody sees.
struct Level<F> {
    op: &'static str,
    inner: RefCell<F>,
}

impl<F: FnMut(Memory<'_>, &Layout)> CustomOp1 for Level<F> {
    fn name(&self) -> &'static str {
        self.op
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        (self.inner.borrow_mut())(Memory::Cpu(storage), layout);
        Err(Error::Msg(String::new()))
    }

    fn cuda_fwd(&self, storage: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        (self.inner.borrow_mut())(Memory::Cuda(storage), layout);
        Err(Error::Msg(String::new()))
    }
}

/// Runs `f` while the storages of `targets` are held to write, and those of the other tensors to read. Tensors that share a
/// storage with a target are refused.
pub(crate) fn with_targets<R, const N: usize>(
    op: &'static str,
    targets: &[Named<'_>],
    tensors: &[Option<Named<'_>>; N],
    f: impl FnOnce(Vec<HeldMut<'_>>, [Option<Held<'_>>; N]) -> Result<R>,
) -> Result<R> {
    for (at, target) in targets.iter().enumerate() {
        check_target(op, *target, targets[at + 1..].iter().chain(tensors.iter().flatten()))?;
    }
    let mut order = Vec::new();
    for (at, (_, target)) in targets.iter().enumerate() {
        order.push((address(target), Want::Write(at)));
    }
    for (at, tensor) in tensors.iter().enumerate() {
        if let Some((_, tensor)) = tensor {
            order.push((address(tensor), Want::Read(at)));
        }
    }
    // As `with_inputs` does.
    order.sort_by_key(|(address, _)| *address);
    let mut f = Some(f);
    let mut result = None;
    hold_all(op, (targets, tensors), &order, (Vec::with_capacity(targets.len()), [None; N]), &mut |(
        written,
        held,
    )| {
        let Some(f) = f.take() else { return };
        let mut written = written;
        written.sort_by_key(|(at, _)| *at);
        result = Some(f(written.into_iter().map(|(_, target)| target).collect(), held));
    })?;
    result.unwrap_or_else(|| Err(Error::Msg(format!("{op}: candle has not run it"))))
}

/// Where a tensor's storage is. By an op, as this thread may hold it already.
fn address(tensor: &Tensor) -> usize {
    let mut address = 0;
    let inner = RefCell::new(|memory: Memory<'_>, _: &Layout| {
        address = match memory {
            Memory::Cpu(storage) => std::ptr::from_ref(storage).addr(),
            Memory::Cuda(storage) => std::ptr::from_ref(storage).addr(),
        };
    });
    // Metal's have none: they are refused.
    let _ = tensor.apply_op1_no_bwd(&Level { op: "address", inner });
    address
}

/// A tensor that is written, or one that is read, by its place.
#[derive(Clone, Copy)]
enum Want {
    Write(usize),
    Read(usize),
}

/// Tensors that are held: those that are written with their places, and those that are read.
type All<'w, 'r, const N: usize> = (Vec<(usize, HeldMut<'w>)>, [Option<Held<'r>>; N]);

/// Holds tensors in this order, beside those that are held already, then calls `f`.
fn hold_all<const N: usize>(
    op: &'static str,
    (targets, tensors): (&[Named<'_>], &[Option<Named<'_>>; N]),
    order: &[(usize, Want)],
    held: All<'_, '_, N>,
    f: &mut dyn FnMut(All<'_, '_, N>),
) -> Result<()> {
    let Some(((_, want), rest)) = order.split_first() else {
        f(held);
        return Ok(());
    };
    let (mut held, mut result) = (Some(held), None);
    let outcome = match *want {
        Want::Write(at) => {
            let (name, target) = targets[at];
            let inner = |memory: MemoryMut<'_>, layout: &Layout| {
                let Some((written, read)) = held.take() else { return };
                let mut written: Vec<(usize, HeldMut<'_>)> = written;
                written.push((at, HeldMut { name, memory, layout }));
                result = Some(hold_all(op, (targets, tensors), rest, (written, read), f));
            };
            let outcome = target.inplace_op1(&Change { op, inner: RefCell::new(inner) });
            outcome.map_err(|error| refused(op, format!("`{name}`: {error}")))
        }
        Want::Read(at) => {
            let Some((name, tensor)) = tensors[at] else { return Ok(()) };
            let inner = |memory: Memory<'_>, layout: &Layout| {
                let Some((written, read)) = held.take() else { return };
                let mut read: [Option<Held<'_>>; N] = read;
                read[at] = Some(Held { name, memory, layout });
                result = Some(hold_all(op, (targets, tensors), rest, (written, read), f));
            };
            tensor.apply_op1_no_bwd(&Level { op, inner: RefCell::new(inner) }).map(drop)
        }
    };
    result.unwrap_or(outcome)
}

/// Checks that a tensor can be written, while the others are written or read.
fn check_target<'a>(
    op: &'static str,
    (name, target): Named<'_>,
    others: impl Iterator<Item = &'a Named<'a>>,
) -> Result<()> {
    let layout = target.layout();
    if layout.has_internal_overlap() {
        let problem =
            format!("has the shape {:?} and strides {:?}: elements share memory", layout.dims(), layout.stride());
        return Err(refused(
            op,
            format!("`{name}` {problem}; what is changed in place has memory for each: use `contiguous`"),
        ));
    }
    for (other, tensor) in others {
        let (here, there) = (target.device().location(), tensor.device().location());
        if here != there {
            return Err(apart(op, (name, here), (other, there)));
        }
        if target.inplace_op2(tensor, &Apart { op }).is_err() {
            let problem = format!("`{other}` shares its memory with `{name}`, which is changed in place");
            return Err(refused(op, format!("{problem}; a copy is accepted: `Tensor::copy`")));
        }
    }
    Ok(())
}

/// An op in place that does nothing. candle refuses it where both tensors share a storage, as it must be asked: it tells
/// nobody else which storage a tensor has.
struct Apart {
    op: &'static str,
}

impl InplaceOp2 for Apart {
    fn name(&self) -> &'static str {
        self.op
    }

    fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<()> {
        Ok(())
    }

    fn cuda_fwd(&self, _: &mut CudaStorage, _: &Layout, _: &CudaStorage, _: &Layout) -> Result<()> {
        Ok(())
    }
}

/// An op in place that hands its storage on.
struct Change<F> {
    op: &'static str,
    inner: RefCell<F>,
}

impl<F: FnMut(MemoryMut<'_>, &Layout)> InplaceOp1 for Change<F> {
    fn name(&self) -> &'static str {
        self.op
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        (self.inner.borrow_mut())(MemoryMut::Cpu(storage), layout);
        Ok(())
    }

    fn cuda_fwd(&self, storage: &mut CudaStorage, layout: &Layout) -> Result<()> {
        (self.inner.borrow_mut())(MemoryMut::Cuda(storage), layout);
        Ok(())
    }
}
