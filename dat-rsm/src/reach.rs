//! The range of a segment that transfers have used.

/// The bytes of a segment from the first to the last one that some transfers name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Reach {
    /// Adds a range.
    pub(crate) fn add(&mut self, offset: u64, length: u64) {
        if length == 0 {
            return;
        }
        let end = offset.saturating_add(length);
        *self = match self.is_empty() {
            true => Self { start: offset, end },
            false => Self {
                start: self.start.min(offset),
                end: self.end.max(end),
            },
        };
    }

    pub(crate) fn is_empty(self) -> bool {
        self.start == self.end
    }

    pub(crate) fn length(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}
