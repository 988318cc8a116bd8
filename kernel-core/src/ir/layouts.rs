//! The layouts of a kernel, and what values have to do with them.

use std::ops::Deref;

use super::func::{Func, LayoutId, ValueId};
use crate::layout::LinearLayout;

/// The layouts of a kernel, by [`LayoutId`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LayoutTable(Vec<LinearLayout>);

impl LayoutTable {
    /// The identifier of a layout, which is added if it is not there.
    pub fn intern(&mut self, layout: &LinearLayout) -> LayoutId {
        match self.0.iter().position(|known| known == layout) {
            Some(index) => LayoutId::new(index as u32),
            None => self.push(layout.clone()),
        }
    }

    /// Adds a layout under the next number, even if it is there: a text numbers its own.
    pub fn push(&mut self, layout: LinearLayout) -> LayoutId {
        self.0.push(layout);
        LayoutId::new(self.0.len() as u32 - 1)
    }
}

impl Deref for LayoutTable {
    type Target = [LinearLayout];

    fn deref(&self) -> &[LinearLayout] {
        &self.0
    }
}

impl Func {
    /// The identifier of a layout, which is added to the kernel's table if it is not there.
    pub fn intern(&mut self, layout: &LinearLayout) -> LayoutId {
        self.layouts.intern(layout)
    }

    /// The layout of a value, if it has one.
    pub fn layout(&self, value: ValueId) -> Option<&LinearLayout> {
        self.layouts.get(self.value(value).layout?.index())
    }

    /// The numbers of a tile's shape; empty for a scalar. At the bound and placed levels, where all are known.
    pub fn tile_shape(&self, value: ValueId) -> Vec<u32> {
        let dims = self.ty(value).dims().unwrap_or_default();
        dims.into_iter().map(|dim| u32::try_from(dim).unwrap_or(0)).collect()
    }
}
