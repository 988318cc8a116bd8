//! Barriers of threads.

use super::intrinsics::Intrinsic;
use super::{Lower, Value};
use crate::analysis::exchange::Threads;

impl<'ctx> Lower<'_, 'ctx> {
    /// The threads that run the code.
    pub(super) fn threads(&self) -> Threads {
        self.group.map_or(Threads::Program(self.block_warps), Threads::from)
    }

    /// All threads of the program meet; what they wrote before is seen after.
    ///
    /// In a warp group it is the threads of the group that meet.
    pub(super) fn barrier(&mut self) {
        match (self.group, self.block_warps) {
            (Some(group), _) => self.named_barrier(group),
            (None, 1) => self.warp_barrier(),
            (None, _) => {
                self.ir.call(Intrinsic::BlockBarrier, &[], &[self.ir.i32(0).into()]);
            }
        }
    }

    /// The threads of each warp meet.
    pub(super) fn warp_barrier(&self) {
        self.ir.call(Intrinsic::WarpBarrier, &[], &[self.ir.i32(-1).into()]);
    }

    /// Whether any thread passes true; all of them meet. In a warp group it is the threads of the group.
    pub(super) fn any_thread(&mut self, condition: Value<'ctx>) -> Value<'ctx> {
        let condition = self.ir.int(condition);
        let result = match (self.group, self.block_warps) {
            (Some(group), _) if group.single => None,
            (Some(group), _) => {
                let [barrier, threads] = [group.barrier, group.threads()].map(|number| self.ir.i32(number as i32));
                self.ir.call(Intrinsic::NamedBarrierOr, &[], &[barrier.into(), threads.into(), condition.into()])
            }
            (None, 1) => self.ir.call(Intrinsic::WarpAny, &[], &[self.ir.i32(-1).into(), condition.into()]),
            (None, _) => self.ir.call(Intrinsic::BlockBarrierOr, &[], &[self.ir.i32(0).into(), condition.into()]),
        };
        result.unwrap_or(condition.into())
    }
}
