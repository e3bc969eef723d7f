//! A socket buffer that queue pairs share, and the room that each may use of it.

use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use super::patience::{FAR, PROMPT, Pace};
use crate::proto::{BUFFER_UNIT, BufferRoom, PathMtu};

/// Units of a buffer that packets of one adapter may take.
///
/// Linux grants a socket that asks for more twice this size by default: one half for requests of a
/// peer, the other one for responses that this side has asked for. Acknowledgements are not
/// counted: a later one replaces a lost one. Nor are messages of connection management, which are
/// few.
const ROOM: u32 = 212_992 / BUFFER_UNIT;

/// Room of the largest packet; with less, nobody gets the turn.
const LARGEST: u32 = BufferRoom::of_packet(PathMtu::Bytes4096.bytes());

/// Full packets whose room a queue pair may use while others wait, if they fit half of the buffer.
const SHARE: u32 = 32;

/// Room of a queue pair that has waited for long, whatever others use: that of four small packets.
const MINIMUM: u32 = 4 * BufferRoom::EMPTY_PACKET;

/// Room beyond the buffer for these minima.
const RESERVE: u32 = ROOM / 4;

/// Address of a socket, and the pace of the peers whose packets are counted.
pub(crate) type BufferAddress = (SocketAddr, Pace);

/// A socket buffer.
#[derive(Debug)]
pub(crate) struct SocketBuffer {
    pub(super) address: BufferAddress,
    /// Number of queue pairs that share it.
    pub(super) users: usize,
    /// Units of the packets under way.
    pub(super) used: u32,
    /// First and last of the queue pairs that wait for room; each names its neighbours.
    pub(super) waiting: Option<(usize, usize)>,
    /// The queue pair that has the turn: it is ready to send, or waits for room for its responses.
    pub(super) turn: Option<usize>,
    /// Up to two peers for whose sake queue pairs have waited since the timer began.
    pub(super) waited: [Option<usize>; 2],
    /// Queue pairs with responses that are due, in any order. Their room bounds their number.
    pub(super) due: Vec<usize>,
}

impl SocketBuffer {
    pub(super) const fn new(address: BufferAddress) -> Self {
        Self {
            address,
            users: 0,
            used: 0,
            waiting: None,
            turn: None,
            waited: [None; 2],
            due: Vec::new(),
        }
    }

    /// Returns how long others wait for the room of responses that are due.
    pub(super) const fn patience(&self) -> Duration {
        match self.address {
            // No responses, but requests at a peer.
            (own, Pace::Prompt) if own.ip().is_unspecified() => PROMPT,
            _ => FAR,
        }
    }

    /// Returns the units that a queue pair may use, which uses `used`; `full` is a full packet.
    ///
    /// The queue pair that has the turn may send a packet even above its share: two that are at
    /// their share would otherwise pass the turn to each other without end.
    pub(super) fn limit(&self, key: usize, used: u32, full: u32, is_starved: bool) -> u32 {
        let mut limit = used.saturating_add(self.room(key));
        if self.waiting.is_some() {
            let share = full.saturating_mul(SHARE).min(ROOM / 2);
            limit = limit.min(share.max(used.saturating_add(full)));
        }
        if is_starved && self.used < ROOM + RESERVE {
            limit = limit.max(MINIMUM);
        }
        limit
    }

    /// Returns the units that a queue pair may use more; none while others are before it.
    fn room(&self, key: usize) -> u32 {
        let is_next = match self.turn {
            Some(turn) => turn == key,
            None => self.waiting.is_none(),
        };
        if is_next {
            ROOM.saturating_sub(self.used)
        } else {
            0
        }
    }

    /// Returns the queue pair whose turn begins, if there is room.
    pub(super) fn next(&self) -> Option<usize> {
        let is_free = self.turn.is_none() && ROOM.saturating_sub(self.used) >= LARGEST;
        self.waiting.filter(|_| is_free).map(|(first, _)| first)
    }
}

/// Notes a peer for whose sake a queue pair has waited, unless two are noted.
pub(super) fn note_wait(waited: &mut [Option<usize>; 2], peer: usize) {
    match waited {
        [first @ None, _] => *first = Some(peer),
        [Some(first), second] if *first != peer => *second = Some(peer),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    /// One that has waited for long has its minimum beside a full buffer, up to the reserve.
    ///
    /// Spec: ROCE-192
    #[test]
    fn the_starved_have_their_minimum_beside_a_full_buffer() {
        let peer = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 4791);
        let mut buffer = SocketBuffer::new((peer, Pace::Prompt));
        buffer.waiting = Some((3, 3));
        for (used, is_starved, expected) in [
            (ROOM, false, 0),
            (ROOM, true, MINIMUM),
            (ROOM + RESERVE - 1, true, MINIMUM),
            (ROOM + RESERVE, true, 0),
        ] {
            buffer.used = used;
            assert_eq!(buffer.limit(3, 0, LARGEST, is_starved), expected, "{used}");
        }
    }
}
