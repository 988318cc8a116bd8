//! What an operation does besides computing its results.

use super::func::{Func, OpId, ParamId};
use super::names::{MemOrder, MemScope};
use super::ops::{ControlOp, DescOp, GpuOp, MemoryOp, Op, ShapeOp};

/// Something that operations read or write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Resource {
    /// The buffer of a parameter.
    Buffer(ParamId),
    /// Shared memory.
    Shared,
    /// Barriers, asynchronous copies in flight and their order.
    Barriers,
    /// Whether the program goes on: a failed `assert` ends it.
    Control,
}

/// One effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effect {
    /// What is touched.
    pub resource: Resource,
    /// Whether it is written.
    pub writes: bool,
    /// The order that it imposes on other accesses.
    pub order: MemOrder,
    /// Among whom that order holds.
    pub scope: MemScope,
}

impl Effect {
    fn read(resource: Resource) -> Effect {
        Effect { resource, writes: false, order: MemOrder::Relaxed, scope: MemScope::Block }
    }

    fn write(resource: Resource) -> Effect {
        Effect { writes: true, ..Effect::read(resource) }
    }
}

impl Func {
    /// The effects of an operation itself, without those of the operations in its regions.
    pub fn own_effects(&self, id: OpId) -> Vec<Effect> {
        let operation = self.op(id);
        let buffer = || operation.operands.first().and_then(|&v| self.ty(v).pointee()).map(Resource::Buffer);
        let tensor = || operation.operands.first().and_then(|&v| self.ty(v).descriptor()).map(Resource::Buffer);
        match &operation.op {
            Op::Create(_) | Op::Elementwise(_) | Op::Dot(_) => Vec::new(),
            Op::Shape(op) => match op {
                // A broken promise ends the program.
                ShapeOp::Hint { .. } => vec![Effect::write(Resource::Control)],
                ShapeOp::ExpandDims { .. }
                | ShapeOp::Broadcast { .. }
                | ShapeOp::Reshape { .. }
                | ShapeOp::Permute { .. }
                | ShapeOp::Slice { .. }
                | ShapeOp::ConvertLayout => Vec::new(),
            },
            Op::Memory(op) => match op {
                MemoryOp::AddPtr => Vec::new(),
                // What it reports must not depend on where it sits, so it is neither moved nor dropped.
                MemoryOp::CheckBounds { .. } => vec![Effect::write(Resource::Control)],
                MemoryOp::Load { .. } => buffer().map(Effect::read).into_iter().collect(),
                MemoryOp::Store { .. } => buffer().map(Effect::write).into_iter().collect(),
                MemoryOp::AtomicRmw { order, scope, .. } | MemoryOp::AtomicCas { order, scope } => {
                    let effect = |r| Effect { order: *order, scope: *scope, ..Effect::write(r) };
                    buffer().map(effect).into_iter().collect()
                }
            },
            Op::Desc(op) => match op {
                DescOp::DescLoad | DescOp::DescGather => tensor().map(Effect::read).into_iter().collect(),
                DescOp::DescStore | DescOp::DescReduce { .. } | DescOp::DescScatter => {
                    tensor().map(Effect::write).into_iter().collect()
                }
            },
            Op::Control(op) => match op {
                ControlOp::Assert { .. } | ControlOp::StaticAssert { .. } => vec![Effect::write(Resource::Control)],
                // A `while` may run for ever, which must not be optimised away or duplicated.
                ControlOp::While => vec![Effect::write(Resource::Control)],
                ControlOp::For { .. }
                | ControlOp::If
                | ControlOp::Reduce { .. }
                | ControlOp::Scan { .. }
                | ControlOp::Yield
                | ControlOp::Return => Vec::new(),
            },
            Op::Gpu(op) => match op {
                GpuOp::SharedIndex | GpuOp::SharedPermute { .. } => Vec::new(),
                GpuOp::SharedAlloc { .. } | GpuOp::SharedStore => vec![Effect::write(Resource::Shared)],
                GpuOp::SharedLoad => vec![Effect::read(Resource::Shared)],
                GpuOp::AsyncCopy => {
                    let source = operation.operands.get(1).and_then(|&v| self.ty(v).pointee());
                    let mut effects = vec![Effect::write(Resource::Shared), Effect::write(Resource::Barriers)];
                    effects.extend(source.map(|p| Effect::read(Resource::Buffer(p))));
                    effects
                }
                GpuOp::TmaLoad => {
                    let mut effects = vec![Effect::write(Resource::Shared), Effect::write(Resource::Barriers)];
                    effects.extend(tensor().map(Effect::read));
                    effects
                }
                GpuOp::TmaStore { .. } => {
                    let mut effects = vec![Effect::read(Resource::Shared), Effect::write(Resource::Barriers)];
                    effects.extend(tensor().map(Effect::write));
                    effects
                }
                // Registers and shared memory that it reads belong to it until it is waited for.
                GpuOp::Wgmma { .. } => vec![Effect::read(Resource::Shared), Effect::write(Resource::Barriers)],
                GpuOp::AsyncCommit
                | GpuOp::WgmmaWait { .. }
                | GpuOp::TmaStoreWait { .. }
                | GpuOp::AsyncWait { .. }
                | GpuOp::Barrier
                | GpuOp::GroupBarrier
                | GpuOp::Fence { .. }
                | GpuOp::BarrierAlloc { .. }
                | GpuOp::BarrierArrive
                | GpuOp::BarrierWait
                | GpuOp::WarpGroups { .. } => vec![Effect::write(Resource::Shared), Effect::write(Resource::Barriers)],
            },
        }
    }

    /// The effects of an operation and of everything in its regions, each once.
    pub fn effects(&self, id: OpId) -> Vec<Effect> {
        let mut all = self.own_effects(id);
        for &region in &self.op(id).regions {
            for &inner in &self.region(region).ops {
                for effect in self.effects(inner) {
                    if !all.contains(&effect) {
                        all.push(effect);
                    }
                }
            }
        }
        all
    }
}
