//! Slots of posted requests.

use super::request::{Operation, Request};
use crate::proto::Psn;

/// A slot of a posted request; the caller lends a slice of them.
#[derive(Clone, Copy, Debug)]
pub struct RequestSlot {
    pub(super) request: Request,
    /// PSN of the first packet, once one is sent.
    pub(super) first: Psn,
    /// Number of PSNs.
    pub(super) packets: u32,
    /// Number of packets that were ever sent or, for a Read, asked for.
    pub(super) requested: u32,
    /// Number of responses that were placed.
    pub(super) received: u32,
}

impl RequestSlot {
    /// A slot without a request.
    pub const EMPTY: Self = Self {
        request: Request {
            token: 0,
            operation: Operation::Send { immediate: None },
            length: 0,
            fence: false,
            solicited: false,
        },
        first: Psn::new(0),
        packets: 0,
        requested: 0,
        received: 0,
    };

    /// Returns the PSN after the last one.
    pub(super) const fn end(&self) -> Psn {
        self.first.plus(self.packets)
    }

    /// Returns true if data of the peer is missing.
    pub(super) const fn lacks_data(&self) -> bool {
        self.request.operation.returns_data() && self.received < self.packets
    }
}
