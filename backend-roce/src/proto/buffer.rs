//! Room that packets take in the socket buffers of their receivers.

use super::PathMtu;
use super::packet::OVERHEAD_MAX;

/// Bytes of a unit in which [`BufferRoom`] counts.
pub const BUFFER_UNIT: u32 = 64;

/// Room of a datagram for the kernel: its description, and the shared part of its data.
const DESCRIPTION: u32 = 256;
/// Room that is added to a datagram before it is rounded up to a power of two.
const HEADROOM: u32 = 384;
/// Smallest rounded room.
const SMALLEST: u32 = 576;

/// Room in socket buffers, in units of [`BUFFER_UNIT`] bytes as Linux counts them.
///
/// A datagram of its own counts; datagrams that the system joins take less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferRoom {
    /// Requests in the buffer of the peer's socket.
    pub requests: u32,
    /// Responses to Reads and Atomics, in the buffer of the socket of this side.
    pub responses: u32,
}

impl BufferRoom {
    /// No room at all.
    pub(crate) const NONE: Self = Self {
        requests: 0,
        responses: 0,
    };

    /// More than any requests take.
    pub const UNLIMITED: Self = Self {
        requests: u32::MAX,
        responses: u32::MAX,
    };

    /// Room of a packet without payload.
    pub(crate) const EMPTY_PACKET: u32 = Self::of_packet(0);

    /// Returns the units of a packet with a payload of `payload` bytes.
    pub(crate) const fn of_packet(payload: u32) -> u32 {
        let length = payload.saturating_add(OVERHEAD_MAX as u32);
        let data = length.saturating_add(HEADROOM).next_power_of_two();
        let data = if data < SMALLEST { SMALLEST } else { data };
        data.saturating_add(DESCRIPTION).div_ceil(BUFFER_UNIT)
    }

    /// Returns the units of the first `packets` packets of a message, modulo 2^32.
    pub(crate) const fn of_message(mtu: PathMtu, length: u32, packets: u32) -> u32 {
        let Some(before) = packets.checked_sub(1) else {
            return 0;
        };
        let last = Self::of_packet(mtu.payload(length, before));
        before
            .wrapping_mul(Self::of_packet(mtu.bytes()))
            .wrapping_add(last)
    }

    /// Returns what is left of a limit; nothing if it is exceeded.
    pub(crate) const fn rest(self, used: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(used.requests),
            responses: self.responses.saturating_sub(used.responses),
        }
    }

    /// Returns the sum, modulo 2^32.
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.wrapping_add(other.requests),
            responses: self.responses.wrapping_add(other.responses),
        }
    }

    /// Returns the difference, modulo 2^32.
    pub(crate) const fn minus(self, other: Self) -> Self {
        Self {
            requests: self.requests.wrapping_sub(other.requests),
            responses: self.responses.wrapping_sub(other.responses),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BUFFER_UNIT, BufferRoom};
    use crate::proto::PathMtu;

    /// Values of Linux 6.18 for datagrams of these packets.
    ///
    /// Spec: ROCE-66
    #[test]
    fn packets_take_as_much_as_the_kernel_counts() {
        let bytes = |payload| BufferRoom::of_packet(payload) * BUFFER_UNIT;
        let counted = [(0, 832), (8, 832), (256, 1280), (512, 1280)];
        for (payload, room) in counted {
            assert_eq!(bytes(payload), room, "{payload}");
        }
        for (payload, room) in [(1024, 2304), (2048, 4352), (4096, 8448)] {
            assert_eq!(bytes(payload), room, "{payload}");
        }
    }

    #[test]
    fn a_message_takes_the_sum_of_its_packets() {
        for mtu in PathMtu::ALL {
            for length in [0, 1, 255, 256, 257, 5000, 100_000] {
                let mut sum = 0;
                for packet in 0..mtu.packets(length) {
                    assert_eq!(BufferRoom::of_message(mtu, length, packet), sum);
                    sum += BufferRoom::of_packet(mtu.payload(length, packet));
                }
                let packets = mtu.packets(length);
                assert_eq!(BufferRoom::of_message(mtu, length, packets), sum);
            }
        }
    }
}
