//! Places of operations: in which file, and which calls have led there.

use kernel_core::ir::{CallId, Span};

use super::Lower;
use crate::source_range::{CallRef, SourceRange};

impl Lower<'_> {
    /// The place with its file, and the call that led there.
    pub(super) fn span(&mut self, place: SourceRange) -> Span {
        let span = place.ir_span();
        if span == Span::UNKNOWN {
            return span;
        }
        let span = span.in_call(self.call(place.call));
        let Some(own) = self.own_file.as_deref() else { return span };
        let file = place.start.file();
        if file == own {
            return span;
        }
        // Beyond 65535 files the place is not known.
        self.func.files.add(&file).map_or(Span::UNKNOWN, |id| span.in_file(id))
    }

    /// The number of a call in the IR. Of a call whose place is not known, that of the call around it.
    fn call(&mut self, call: CallRef) -> CallId {
        let Some(index) = call.0.checked_sub(1) else { return CallId::NONE };
        if let Some(known) = self.calls[index] {
            return known;
        }
        let place = self.tree.calls[index];
        let id = match self.span(place) {
            Span::UNKNOWN => self.call(place.call),
            span => self.func.files.add_call(span).unwrap_or_default(),
        };
        self.calls[index] = Some(id);
        id
    }
}
