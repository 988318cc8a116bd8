//! Layouts as pictures: which thread holds which element of a tile, and where shared memory has it.

use std::collections::HashMap;

use kernel_core::ir::Func;
use kernel_core::layout::{LayoutDim, LinearLayout};

/// Rows and columns of a picture: of larger tiles it shows the beginning. Lanes of a coalesced row are 32.
pub const ROWS: u32 = 8;
/// The columns.
pub const COLUMNS: u32 = 32;

/// Points of the hardware that are looked at, at the most: 2048 registers of 32 warps.
const MOST_POINTS: u64 = 1 << 21;

/// A layout with the part of its tile that is shown.
pub struct Picture {
    /// Its number in the kernel.
    pub number: usize,
    /// The layout as text.
    pub text: String,
    /// The shape of the tile.
    pub shape: Vec<u32>,
    /// Rows of elements, those of the two innermost dimensions.
    pub rows: Vec<Vec<Cell>>,
    /// What a cell says.
    pub kind: Kind,
}

/// What holds the elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Registers of threads.
    Registers,
    /// Shared memory.
    Memory,
}

/// Who holds an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cell {
    /// The warp of the first that does.
    pub warp: u32,
    /// Its lane.
    pub lane: u32,
    /// Its register; in shared memory, the offset in elements.
    pub index: u32,
    /// How many hold it, or a copy of it.
    pub holders: u32,
}

impl Cell {
    /// The holder in a few characters: `lane:register`, or an offset.
    pub fn short(&self, kind: Kind) -> String {
        match kind {
            Kind::Registers => format!("{}:{}", self.lane, self.index),
            Kind::Memory => self.index.to_string(),
        }
    }
}

/// The pictures of a kernel's layouts, of which none is of a single element.
pub fn pictures(func: &Func) -> Vec<Picture> {
    func.layouts.iter().enumerate().filter_map(|(number, layout)| picture(number, layout)).collect()
}

fn picture(number: usize, layout: &LinearLayout) -> Option<Picture> {
    let shape = layout.tile_shape();
    if shape.iter().product::<u32>() <= 1 || layout.total_in_bits() >= 64 {
        return None;
    }
    let kind = if layout.has_in(LayoutDim::Offset) { Kind::Memory } else { Kind::Registers };
    let held = holders(layout, &shape)?;
    // A tile of one dimension has one long row, which is broken into several.
    let (rows, columns) = match shape[..] {
        [length] => (length.div_ceil(COLUMNS).min(ROWS), length.min(COLUMNS)),
        [.., rows, columns] => (rows.min(ROWS), columns.min(COLUMNS)),
        [] => return None,
    };
    let key = |row: u32, column: u32| if shape.len() == 1 { (0, row * COLUMNS + column) } else { (row, column) };
    let cell = |row, column| held.get(&key(row, column)).copied().unwrap_or_default();
    let rows = (0..rows).map(|row| (0..columns).map(|column| cell(row, column)).collect()).collect();
    Some(Picture { number, text: layout.to_string(), shape, rows, kind })
}

/// Who holds the elements of the first rows and columns, the others of outer dimensions being 0. `None` if there are too many
/// to look at.
fn holders(layout: &LinearLayout, shape: &[u32]) -> Option<HashMap<(u32, u32), Cell>> {
    let points = 1u64 << layout.total_in_bits();
    if points > MOST_POINTS {
        return None;
    }
    let ins: Vec<(LayoutDim, u32)> = layout.ins().map(|(dim, _)| (dim, layout.in_bits(dim))).collect();
    let mut held: HashMap<(u32, u32), Cell> = HashMap::new();
    for point in 0..points {
        let mut rest = point;
        let at: Vec<(LayoutDim, u32)> = ins
            .iter()
            .map(|&(dim, bits)| {
                let value = (rest & ((1 << bits) - 1)) as u32;
                rest >>= bits;
                (dim, value)
            })
            .collect();
        let axis = |back: usize| {
            let axis = shape.len().checked_sub(back)?;
            Some(layout.apply_to(&at, LayoutDim::Axis(axis as u8)))
        };
        let is_outer =
            (0..shape.len().saturating_sub(2)).any(|axis| layout.apply_to(&at, LayoutDim::Axis(axis as u8)) > 0);
        let (row, column) = (axis(2).unwrap_or(0), axis(1).unwrap_or(0));
        let limit = if shape.len() == 1 { ROWS * COLUMNS } else { COLUMNS };
        if is_outer || row >= ROWS || column >= limit {
            continue;
        }
        let of = |wanted: LayoutDim| at.iter().find(|(dim, _)| *dim == wanted).map_or(0, |(_, value)| *value);
        let cell = held.entry((row, column)).or_insert_with(|| Cell {
            warp: of(LayoutDim::Warp),
            lane: of(LayoutDim::Lane),
            index: of(LayoutDim::Register) + of(LayoutDim::Offset),
            holders: 0,
        });
        cell.holders += 1;
    }
    Some(held)
}

/// The pictures as text, one below the other.
pub fn text(pictures: &[Picture]) -> String {
    let mut text = String::new();
    for picture in pictures {
        let what = match picture.kind {
            Kind::Registers => "the warp, then lane:register; behind a bar of another warp",
            Kind::Memory => "offsets in elements",
        };
        let shape: Vec<String> = picture.shape.iter().map(u32::to_string).collect();
        text += &format!("layout #{}, {}: {}\n  {what}\n", picture.number, shape.join(" x "), picture.text);
        let width = picture.rows.iter().flatten().map(|cell| cell.short(picture.kind).len()).max().unwrap_or(1);
        for row in &picture.rows {
            let mut warp = row.first().map_or(0, |cell| cell.warp);
            text += &if picture.kind == Kind::Registers { format!("  w{warp:<2}") } else { "  ".to_string() };
            for cell in row {
                let bar = if cell.warp == warp { ' ' } else { '|' };
                warp = cell.warp;
                text += &format!("{bar}{:>width$}", cell.short(picture.kind));
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel_core::layout::Blocked;

    #[test]
    fn a_picture_shows_who_holds_what() {
        // Four elements per thread along rows of 64, so 16 lanes to a row.
        let layout = Blocked::coalesced(&[64, 64], &[1, 0], 4, 4).layout(&[64, 64]).expect("a layout");
        let picture = picture(3, &layout).expect("a picture");
        assert_eq!((picture.rows.len(), picture.rows[0].len(), picture.kind), (8, 32, Kind::Registers));
        assert_eq!(picture.rows[0][5], Cell { warp: 0, lane: 1, index: 1, holders: 1 });
        assert_eq!((picture.rows[1][0].lane, picture.rows[2][0].warp), (16, 1));
        let text = text(&[picture]);
        assert!(
            text.starts_with("layout #3, 64 x 64: register: [0, 1]") && text.contains("\n  w0   0:0  0:1"),
            "{text}"
        );
        assert!(text.lines().nth(4).is_some_and(|row| row.starts_with("  w1   0:0")), "{text}");
    }

    #[test]
    fn long_rows_are_broken_and_copies_are_counted() {
        let layout = Blocked::coalesced(&[64], &[0], 1, 4).layout(&[64]).expect("a layout");
        let picture = picture(0, &layout).expect("a picture");
        assert_eq!((picture.rows.len(), picture.rows[1].len()), (2, 32));
        assert_eq!(picture.rows[1][0], Cell { warp: 1, lane: 0, index: 0, holders: 2 });
    }
}
