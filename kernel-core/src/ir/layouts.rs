//! The layouts of a kernel.

use std::ops::Deref;

use super::ids::LayoutId;
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
