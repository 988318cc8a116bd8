//! What an operation does besides computing its results.

use super::func::Func;
use super::ids::{OpId, ParamId, RegionId};
use super::names::{MemOrder, MemScope};
use super::ops::{MemoryOp, Op, Operation};
use super::table::{Does, Touched};

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
    /// Whether an operation, or one in its regions, touches what others see: the memory of buffers, reports, what is
    /// printed, clocks; or may end the program.
    pub fn reaches_out(&self, id: OpId) -> bool {
        let operation = self.op(id);
        let outside = |does: &Does| match does {
            Does::Promises | Does::Reports | Does::Observes | Does::Ends | Does::Orders => true,
            Does::Reads(touched) | Does::Writes(touched) | Does::Updates(touched) => match touched {
                Touched::Buffer(_) => true,
                Touched::Shared | Touched::Barriers => false,
            },
        };
        let inside = |&region: &RegionId| self.region(region).ops.iter().any(|&inner| self.reaches_out(inner));
        operation.op.does().iter().any(outside) || operation.regions.iter().any(inside)
    }

    /// The effects of an operation itself, without those of the operations in its regions.
    pub fn own_effects(&self, id: OpId) -> Vec<Effect> {
        let operation = self.op(id);
        operation.op.does().iter().filter_map(|&does| self.effect(operation, does)).collect()
    }

    fn effect(&self, operation: &Operation, does: Does) -> Option<Effect> {
        Some(match does {
            // A broken promise ends the program. What is reported must not depend on where the operation sits, so it is
            // neither moved nor dropped. A loop that may run for ever must not be optimised away or duplicated.
            Does::Promises | Does::Reports | Does::Observes | Does::Ends => Effect::write(Resource::Control),
            Does::Orders => {
                Effect { order: MemOrder::AcqRel, scope: MemScope::System, ..Effect::write(Resource::Control) }
            }
            Does::Reads(touched) => Effect::read(self.resource(operation, touched)?),
            Does::Writes(touched) => Effect::write(self.resource(operation, touched)?),
            Does::Updates(touched) => {
                let effect = Effect::write(self.resource(operation, touched)?);
                let Op::Memory(MemoryOp::AtomicRmw { order, scope, .. } | MemoryOp::AtomicCas { order, scope }) =
                    operation.op
                else {
                    // Whoever says nothing of its order is kept in order with everything.
                    return Some(Effect { order: MemOrder::AcqRel, scope: MemScope::System, ..effect });
                };
                Effect { order, scope, ..effect }
            }
        })
    }

    fn resource(&self, operation: &Operation, touched: Touched) -> Option<Resource> {
        match touched {
            Touched::Buffer(operand) => {
                let ty = self.ty(*operation.operands.get(usize::from(operand))?);
                ty.pointee().or_else(|| ty.descriptor()).map(Resource::Buffer)
            }
            Touched::Shared => Some(Resource::Shared),
            Touched::Barriers => Some(Resource::Barriers),
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
