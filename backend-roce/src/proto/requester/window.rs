//! The window: how many PSNs may be unacknowledged (ROCE-66, ROCE-67).

/// Largest window, so that the order of the PSNs under way is known.
const LIMIT_MAX: u32 = 1 << 22;

/// A window that halves on loss and grows slowly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    size: u32,
    limit: u32,
    /// Acknowledged packets since the window grew.
    acknowledged: u32,
}

impl Window {
    pub(super) const fn new(limit: u32) -> Self {
        let limit = match limit {
            0 => 1,
            1..=LIMIT_MAX => limit,
            _ => LIMIT_MAX,
        };
        Self {
            size: limit,
            limit,
            acknowledged: 0,
        }
    }

    pub(super) const fn size(&self) -> u32 {
        self.size
    }

    pub(super) fn shrink(&mut self) {
        self.size = (self.size / 2).max(1);
        self.acknowledged = 0;
    }

    pub(super) fn grow(&mut self, packets: u32) {
        if self.size == self.limit {
            return;
        }
        self.acknowledged = self.acknowledged.saturating_add(packets);
        if self.acknowledged >= self.size {
            self.acknowledged = 0;
            self.size = self.size.saturating_add(1).min(self.limit);
        }
    }
}
