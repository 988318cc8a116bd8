//! A kernel prepared for running: a flat list of instructions on registers.
//!
//! Structured control flow becomes jumps, so that a program is a counter and registers, which warp groups can
//! suspend and resume. Carried values are copied at the edges of loops.

use crate::ir::{DType, ParamId, Span};

use super::instructions::Inst;
use super::registers::{RegId, RegInfo};

/// Where an argument of the launch goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ParamPlan {
    Buffer {
        reg: RegId,
        dtype: DType,
        mutable: bool,
    },
    Tensor {
        reg: RegId,
        rank: usize,
        mutable: bool,
    },
    Scalar {
        reg: RegId,
        dtype: DType,
    },
    /// Hidden: a size or stride of another parameter's tensor.
    Extent {
        reg: RegId,
        of: ParamId,
        axis: u8,
        stride: bool,
    },
    /// Hidden: the length of another parameter's buffer.
    Length {
        reg: RegId,
        of: ParamId,
    },
    /// Hidden: an address that means nothing here.
    Null {
        reg: RegId,
    },
}

/// A prepared kernel.
#[derive(Debug)]
pub(super) struct Code {
    pub insts: Vec<Inst>,
    /// The source of every instruction.
    pub spans: Vec<Span>,
    pub regs: Vec<RegInfo>,
    pub loops: usize,
    /// Whether a loop may wait for other programs.
    pub waits: bool,
    pub arena_bytes: usize,
    pub params: Vec<ParamPlan>,
}
