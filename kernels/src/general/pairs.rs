//! Workspaces of functions that deal in values and their indices.

use crate::workspace::{Memory, contiguous};
use crate::{Context, TensorViewMut};
use tilewright::{DType, Result};

/// Memory in which functions work that give values and their indices; what it holds does not matter.
#[derive(Debug)]
pub struct PairWorkspace<'a, T: DType> {
    /// Room for values: as many as the function's [`PairRoom`] says, or more, without gaps.
    pub values: TensorViewMut<'a, T, 1>,
    /// Room for indices and counts, likewise.
    pub places: TensorViewMut<'a, i32, 1>,
}

/// How many elements a [`PairWorkspace`] has at least.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PairRoom {
    /// Of `values`, in the dtype of the elements.
    pub values: usize,
    /// Of `places`, i32.
    pub places: usize,
}

impl<'a, T: DType> PairWorkspace<'a, T> {
    /// Refuses one with gaps.
    pub(super) fn contiguous(self) -> Result<Self> {
        let PairWorkspace { values, places } = self;
        Ok(PairWorkspace {
            values: contiguous("workspace.values", values)?,
            places: contiguous("workspace.places", places)?,
        })
    }
}

/// The memory that a [`PairRoom`] asks for: of a workspace, or of its own where there is none.
pub(super) fn memory<'a, T: DType>(
    cx: &Context,
    workspace: Option<PairWorkspace<'a, T>>,
    room: PairRoom,
) -> Result<(Memory<'a, T>, Memory<'a, i32>)> {
    let (values, places) = workspace.map(|PairWorkspace { values, places }| (values, places)).unzip();
    let values = Memory::of(cx, "workspace.values", values, room.values)?;
    Ok((values, Memory::of(cx, "workspace.places", places, room.places)?))
}
