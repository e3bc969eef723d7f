//! Responder resources: the last Reads and Atomics, for their responses and repetitions.

use crate::proto::memory::RemoteAddress;
use crate::proto::packet::Reth;
use crate::proto::{PathMtu, Psn};

/// A slot of a remembered Read or Atomic; the caller lends one for each responder resource.
#[derive(Clone, Copy, Debug)]
pub struct ResourceSlot {
    pub(super) kind: Kind,
    /// PSN of the first response.
    pub(super) first: Psn,
    /// Number of responses.
    pub(super) packets: u32,
    /// Responses that are to be sent.
    pub(super) pending: Option<Responses>,
    /// Set if all responses were sent once.
    pub(super) answered: bool,
}

/// Operation that a resource remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing yet.
    Empty,
    /// A Read, executed again from memory.
    Read(Reth),
    /// An Atomic with the value before it.
    Atomic(u64),
}

/// A run of responses, by their index among those of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Responses {
    /// The first one, which says so in its opcode.
    pub(super) start: u32,
    pub(super) next: u32,
    pub(super) end: u32,
}

impl Responses {
    pub(super) const fn new(start: u32, end: u32) -> Self {
        Self {
            start,
            next: start,
            end,
        }
    }
}

impl ResourceSlot {
    /// A slot without an operation.
    pub const EMPTY: Self = Self {
        kind: Kind::Empty,
        first: Psn::new(0),
        packets: 0,
        pending: None,
        answered: true,
    };

    /// Remembers a new operation, whose responses are all to be sent.
    pub(super) const fn new(kind: Kind, first: Psn, packets: u32) -> Self {
        Self {
            kind,
            first,
            packets,
            pending: Some(Responses::new(0, packets)),
            answered: false,
        }
    }

    /// Makes the responses of a repeated Read pending if they are among those remembered
    /// (ROCE-121).
    pub(super) fn repeat_read(&mut self, psn: Psn, again: Reth, mtu: PathMtu) -> bool {
        let Kind::Read(Reth { remote, length }) = self.kind else {
            return false;
        };
        let start = psn.since(self.first);
        let end = start.saturating_add(mtu.packets(again.length));
        if start >= self.packets || end > self.packets {
            return false;
        }
        let bytes = mtu.offset(end).min(length);
        let part = bytes.saturating_sub(mtu.offset(start));
        if again.remote != remote.advanced(mtu.offset(start)) || again.length != part {
            return false;
        }
        self.pending = Some(match self.pending {
            // The responses that are still to be sent include the repeated ones.
            Some(pending) if start > pending.next => Responses {
                end: pending.end.max(end),
                ..pending
            },
            Some(pending) => Responses::new(start, pending.end.max(end)),
            None => Responses::new(start, end),
        });
        true
    }

    /// Makes the response of a repeated Atomic pending (ROCE-122).
    pub(super) fn repeat_atomic(&mut self, psn: Psn) -> bool {
        let found = matches!(self.kind, Kind::Atomic(_)) && self.first == psn;
        if found {
            self.pending = Some(Responses::new(0, 1));
        }
        found
    }

    /// Returns the place and the length of a response of a Read.
    pub(super) fn part(reth: Reth, packet: u32, mtu: PathMtu) -> (RemoteAddress, u32) {
        let remote = reth.remote.advanced(mtu.offset(packet));
        (remote, mtu.payload(reth.length, packet))
    }
}
