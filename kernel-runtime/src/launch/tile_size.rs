//! How many warps a program needs for its largest tile.
//!
//! A thread holds up to [`MAX_PER_THREAD`] elements of a tile. So the largest tile that there is, of 2^20 elements, needs
//! 32 warps, and a launch that asks for fewer is refused: on the CPU too, whose interpreter has no warps, so that what is
//! tested there runs on a GPU.

use super::definition::Definition;
use crate::error::Result;
use kernel_core::diag::Diagnostic;
use kernel_core::ir::{Bound, Files, Span};
use kernel_core::target::{MAX_PER_THREAD, MAX_WARPS, WARP_SIZE};

/// The largest tile of a bound kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct LargestTile {
    elements: i64,
    span: Span,
}

impl LargestTile {
    pub(super) fn of(bound: &Bound) -> LargestTile {
        let func = bound.func();
        let sizes = func.ops.iter().flat_map(|operation| {
            let elements = |&result| func.ty(result).numel().unwrap_or(1);
            operation.results.iter().map(move |result| (elements(result), operation.span))
        });
        // The first of several, in program order.
        let none = LargestTile { elements: 1, span: Span::UNKNOWN };
        sizes.fold(none, |largest, (elements, span)| match elements > largest.elements {
            true => LargestTile { elements, span },
            false => largest,
        })
    }

    /// Warps for a program, where nobody has chosen: enough that a thread holds tens of elements of a tile, not
    /// hundreds, and never more than it can.
    pub(super) fn default_warps(self) -> u32 {
        match self.elements {
            ..=1024 => 4,
            1025..8192 => 8,
            8192..=524_288 => 16,
            524_289.. => MAX_WARPS,
        }
    }

    /// How many elements it has.
    pub(super) fn elements(self) -> i64 {
        self.elements
    }

    /// Refuses a number of warps whose threads cannot hold the tile.
    ///
    /// # Errors
    /// With the place of the tile in the source and the number of warps that it needs. `files` are those of the bound kernel,
    /// `values` says what it is bound to.
    pub(super) fn check(
        self,
        kernel: &Definition,
        files: &Files,
        num_warps: Option<u32>,
        values: impl FnOnce() -> String,
    ) -> Result<()> {
        let fits = |warps: u32| self.elements <= MAX_PER_THREAD * i64::from(WARP_SIZE * warps);
        let Some(warps) = num_warps.filter(|&warps| !fits(warps)) else { return Ok(()) };
        let enough = (0..=MAX_WARPS.ilog2()).map(|power| 1 << power).find(|&warps| fits(warps)).unwrap_or(MAX_WARPS);
        let plural = if warps == 1 { "" } else { "s" };
        let message = format!(
            "a tile of {} elements does not fit a program of {warps} warp{plural}: a thread holds up to \
             {MAX_PER_THREAD} elements",
            self.elements
        );
        let diagnostic = Diagnostic::at(files, self.span, message)
            .help(format!("use `num_warps = {enough}`, or loop over smaller tiles"));
        Err(super::bind::compile_error(kernel, vec![diagnostic], &values()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_tiles_get_more_warps() {
        let sizes = [(1, 4), (1024, 4), (2048, 8), (4096, 8), (8192, 16), (1 << 19, 16), (1 << 20, 32)];
        for (elements, warps) in sizes {
            let tile = LargestTile { elements, span: Span::UNKNOWN };
            assert_eq!(tile.default_warps(), warps, "{elements}");
        }
    }
}
