//! The opcodes of packets.

/// The place of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// First of several.
    First,
    /// Neither first nor last.
    Middle,
    /// Last of several.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// Returns the position of a packet by whether it begins and ends its message.
    pub const fn of(begins: bool, ends: bool) -> Self {
        match (begins, ends) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, false) => Self::Middle,
            (false, true) => Self::Last,
        }
    }

    /// Returns true if the packet begins its message.
    pub const fn begins(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Returns true if the packet ends its message.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// An opcode that the protocol uses (ROCE-10).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[$doc])* $name = $code,)*
        }

        impl Opcode {
            /// All opcodes, in the order of their codes.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the opcode of a code; `None` if the code is unknown (ROCE-09).
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    /// First packet of a Send.
    SendFirst = 0x00,
    /// Middle packet of a Send.
    SendMiddle = 0x01,
    /// Last packet of a Send.
    SendLast = 0x02,
    /// Last packet of a Send with immediate data.
    SendLastImmediate = 0x03,
    /// Only packet of a Send.
    SendOnly = 0x04,
    /// Only packet of a Send with immediate data.
    SendOnlyImmediate = 0x05,
    /// First packet of an RDMA Write.
    WriteFirst = 0x06,
    /// Middle packet of an RDMA Write.
    WriteMiddle = 0x07,
    /// Last packet of an RDMA Write.
    WriteLast = 0x08,
    /// Last packet of an RDMA Write with immediate data.
    WriteLastImmediate = 0x09,
    /// Only packet of an RDMA Write.
    WriteOnly = 0x0A,
    /// Only packet of an RDMA Write with immediate data.
    WriteOnlyImmediate = 0x0B,
    /// Request of an RDMA Read.
    ReadRequest = 0x0C,
    /// First response of an RDMA Read.
    ReadResponseFirst = 0x0D,
    /// Middle response of an RDMA Read.
    ReadResponseMiddle = 0x0E,
    /// Last response of an RDMA Read.
    ReadResponseLast = 0x0F,
    /// Only response of an RDMA Read.
    ReadResponseOnly = 0x10,
    /// Acknowledgement, RNR NAK or NAK.
    Acknowledge = 0x11,
    /// Response of an atomic operation.
    AtomicAcknowledge = 0x12,
    /// Compare and swap.
    CompareSwap = 0x13,
    /// Fetch and add.
    FetchAdd = 0x14,
    /// Last packet of a Send that invalidates a key.
    SendLastInvalidate = 0x16,
    /// Only packet of a Send that invalidates a key.
    SendOnlyInvalidate = 0x17,
    /// Unreliable datagram.
    DatagramSendOnly = 0x64,
    /// Unreliable datagram with immediate data.
    DatagramSendOnlyImmediate = 0x65,
    /// Congestion notification.
    CongestionNotification = 0x81,
}

impl Opcode {
    /// Returns the code on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the opcode of a packet of a Send.
    pub const fn send(position: Position, immediate: bool) -> Self {
        match (position, immediate) {
            (Position::First, _) => Self::SendFirst,
            (Position::Middle, _) => Self::SendMiddle,
            (Position::Last, false) => Self::SendLast,
            (Position::Last, true) => Self::SendLastImmediate,
            (Position::Only, false) => Self::SendOnly,
            (Position::Only, true) => Self::SendOnlyImmediate,
        }
    }

    /// Returns the opcode of a packet of a Send that invalidates a key.
    pub const fn send_invalidate(position: Position) -> Self {
        match position {
            Position::First => Self::SendFirst,
            Position::Middle => Self::SendMiddle,
            Position::Last => Self::SendLastInvalidate,
            Position::Only => Self::SendOnlyInvalidate,
        }
    }

    /// Returns the opcode of a packet of an RDMA Write.
    pub const fn write(position: Position, immediate: bool) -> Self {
        match (position, immediate) {
            (Position::First, _) => Self::WriteFirst,
            (Position::Middle, _) => Self::WriteMiddle,
            (Position::Last, false) => Self::WriteLast,
            (Position::Last, true) => Self::WriteLastImmediate,
            (Position::Only, false) => Self::WriteOnly,
            (Position::Only, true) => Self::WriteOnlyImmediate,
        }
    }

    /// Returns the opcode of a response of an RDMA Read.
    pub const fn read_response(position: Position) -> Self {
        match position {
            Position::First => Self::ReadResponseFirst,
            Position::Middle => Self::ReadResponseMiddle,
            Position::Last => Self::ReadResponseLast,
            Position::Only => Self::ReadResponseOnly,
        }
    }

    /// Returns the place of a packet of a Send or Write in its message; `Only` for other opcodes.
    pub const fn position(self) -> Position {
        match self {
            Self::SendFirst | Self::WriteFirst | Self::ReadResponseFirst => Position::First,
            Self::SendMiddle | Self::WriteMiddle | Self::ReadResponseMiddle => Position::Middle,
            Self::SendLast
            | Self::SendLastImmediate
            | Self::SendLastInvalidate
            | Self::WriteLast
            | Self::WriteLastImmediate
            | Self::ReadResponseLast => Position::Last,
            _ => Position::Only,
        }
    }

    /// Returns true if the packet is for the requester: an acknowledgement or a response.
    pub const fn is_response(self) -> bool {
        self.is_read_response() || matches!(self, Self::Acknowledge | Self::AtomicAcknowledge)
    }

    /// Returns true if the packet is a response of an RDMA Read.
    pub const fn is_read_response(self) -> bool {
        matches!(
            self,
            Self::ReadResponseFirst
                | Self::ReadResponseMiddle
                | Self::ReadResponseLast
                | Self::ReadResponseOnly
        )
    }

    /// Returns true if the packet has a DETH (ROCE-16).
    pub const fn has_deth(self) -> bool {
        matches!(
            self,
            Self::DatagramSendOnly | Self::DatagramSendOnlyImmediate
        )
    }

    /// Returns true if the packet has a RETH (ROCE-11).
    pub const fn has_reth(self) -> bool {
        matches!(
            self,
            Self::WriteFirst | Self::WriteOnly | Self::WriteOnlyImmediate | Self::ReadRequest
        )
    }

    /// Returns true if the packet has an AtomicETH (ROCE-13).
    pub const fn has_atomic_eth(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Returns true if the packet has an AETH (ROCE-12).
    pub const fn has_aeth(self) -> bool {
        self.is_response() && !matches!(self, Self::ReadResponseMiddle)
    }

    /// Returns true if the packet has an AtomicAckETH (ROCE-14).
    pub const fn has_atomic_ack_eth(self) -> bool {
        matches!(self, Self::AtomicAcknowledge)
    }

    /// Returns true if the packet has an ImmDt (ROCE-15).
    pub const fn has_immediate(self) -> bool {
        matches!(
            self,
            Self::SendLastImmediate
                | Self::SendOnlyImmediate
                | Self::WriteLastImmediate
                | Self::WriteOnlyImmediate
                | Self::DatagramSendOnlyImmediate
        )
    }

    /// Returns true if the packet has an IETH (ROCE-17).
    pub const fn has_ieth(self) -> bool {
        matches!(self, Self::SendLastInvalidate | Self::SendOnlyInvalidate)
    }

    /// Returns true if the packet may have a payload (ROCE-18).
    pub const fn has_payload(self) -> bool {
        !matches!(
            self,
            Self::ReadRequest
                | Self::Acknowledge
                | Self::AtomicAcknowledge
                | Self::CompareSwap
                | Self::FetchAdd
        )
    }
}
