//! The path MTU.

/// Largest message, in bytes (ROCE-24).
pub(crate) const MESSAGE_MAX: u32 = 1 << 31;

/// Largest number of packets of a message (ROCE-24).
pub(crate) const PACKETS_MAX: u32 = (1 << 23) - 1;

/// Bytes of headers that an interface carries beside the payload (ROCE-43).
const HEADERS: u32 = 80;

/// The path MTU: the payload of a full packet (ROCE-23).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PathMtu {
    /// 256 bytes.
    Bytes256 = 1,
    /// 512 bytes.
    Bytes512 = 2,
    /// 1024 bytes.
    Bytes1024 = 3,
    /// 2048 bytes.
    Bytes2048 = 4,
    /// 4096 bytes.
    Bytes4096 = 5,
    /// 32,768 bytes, of local queues only: no code on the wire stands for it (ROCE-232).
    Bytes32768 = 8,
}

impl PathMtu {
    /// All path MTUs of the wire, the smallest first.
    pub const ALL: [Self; 5] = [
        Self::Bytes256,
        Self::Bytes512,
        Self::Bytes1024,
        Self::Bytes2048,
        Self::Bytes4096,
    ];

    /// Returns the path MTU of a code on the wire.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.code() == code)
    }

    /// Returns the code on the wire, or that of a local size.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the number of bytes.
    pub const fn bytes(self) -> u32 {
        128 << self.code()
    }

    /// Returns the largest path MTU for an interface with this MTU (ROCE-43).
    pub fn for_interface(mtu: u32) -> Option<Self> {
        let fits = |path: &Self| path.bytes().saturating_add(HEADERS) <= mtu;
        Self::ALL.into_iter().rev().find(fits)
    }

    /// Returns the number of packets of a message, at least 1 (ROCE-62, ROCE-63).
    pub const fn packets(self, length: u32) -> u32 {
        // A shift: the compiler does not see that the divisor is a power of two.
        let full = length >> (self.code() + 7);
        let rest = length & (self.bytes() - 1) != 0;
        if rest || full == 0 {
            full.saturating_add(1)
        } else {
            full
        }
    }

    /// Returns the offset of a packet in its message.
    pub(crate) const fn offset(self, packet: u32) -> u32 {
        packet.saturating_mul(self.bytes())
    }

    /// Returns the payload length of a packet of a message.
    pub(crate) const fn payload(self, length: u32, packet: u32) -> u32 {
        let rest = length.saturating_sub(self.offset(packet));
        if rest < self.bytes() {
            rest
        } else {
            self.bytes()
        }
    }
}
