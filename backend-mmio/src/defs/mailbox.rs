//! Layout of a mailbox: commands and answers as words.
//!
//! The driver and the device share this module. All words are big-endian, as in the rest of the
//! data path. A command consists of its serial number, which is written last, its code and its
//! operands. An answer consists of the serial number of the command, written last, a status and its
//! values.

use dat_core::attributes::IaAddress;
use dat_core::backend::{
    BackendError, ConnectFailure, ControlEvent, DisconnectMode, ListenerKey, PrivateData,
    RegionKeys, RequestKey,
};
use dat_core::flags::{MemoryPrivileges, QualityOfService};

use crate::mlx5::{
    CompletionQueueSpec, CreatedQueuePair, DeviceEvent, Limits, QueuePairSpec,
    SharedReceiveQueueSpec,
};

/// Units of memory of a mailbox.
pub const UNITS: usize = 66;
/// First word of a command.
pub const COMMAND: usize = 0;
/// First word of an answer.
pub const ANSWER: usize = 128;
/// Most words of a command or an answer.
pub const LENGTH: usize = 128;
/// Word that the device changes when events may be pending.
pub const NOTICE: usize = 256;
/// Word with the driver's version of the layout, written when the driver starts.
pub const GREETING: usize = 260;
/// Two words, more significant first, with the driver's address of the mailbox.
///
/// All addresses in commands are the driver's, so the other end must map all memory at the same
/// addresses.
pub const AT: usize = 261;
/// Version of this layout.
pub const VERSION: u32 = 2;

/// A value that converts to words and back.
pub trait Record: Sized {
    /// Writes the words in order.
    fn put(&self, put: &mut dyn FnMut(u32));
    /// Reads the words in order; returns `None` if they are invalid.
    fn take(take: &mut dyn FnMut() -> u32) -> Option<Self>;
}

impl Record for () {
    fn put(&self, _put: &mut dyn FnMut(u32)) {}

    fn take(_take: &mut dyn FnMut() -> u32) -> Option<Self> {
        Some(())
    }
}

impl Record for u32 {
    fn put(&self, put: &mut dyn FnMut(u32)) {
        put(*self);
    }

    fn take(take: &mut dyn FnMut() -> u32) -> Option<Self> {
        Some(take())
    }
}

impl Record for u64 {
    fn put(&self, put: &mut dyn FnMut(u32)) {
        put((*self >> 32) as u32);
        put(*self as u32);
    }

    fn take(take: &mut dyn FnMut() -> u32) -> Option<Self> {
        let high = take();
        Some(Self::from(high) << 32 | Self::from(take()))
    }
}

impl Record for bool {
    fn put(&self, put: &mut dyn FnMut(u32)) {
        put((*self).into());
    }

    fn take(take: &mut dyn FnMut() -> u32) -> Option<Self> {
        match take() {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<T: Record> Record for Option<T> {
    fn put(&self, put: &mut dyn FnMut(u32)) {
        self.is_some().put(put);
        if let Some(value) = self {
            value.put(put);
        }
    }

    fn take(take: &mut dyn FnMut() -> u32) -> Option<Self> {
        Some(match bool::take(take)? {
            false => None,
            true => Some(T::take(take)?),
        })
    }
}

/// Number of bytes, then the bytes by words, most significant byte first.
impl Record for PrivateData {
    fn put(&self, put: &mut dyn FnMut(u32)) {
        put(self.len() as u32);
        for chunk in self.chunks(4) {
            let mut word = [0; 4];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            put(u32::from_be_bytes(word));
        }
    }

    fn take(take: &mut dyn FnMut() -> u32) -> Option<Self> {
        let length = take() as usize;
        let mut data = Self::new();
        if length > data.capacity() {
            return None;
        }
        while data.len() < length {
            let word = take().to_be_bytes();
            let count = (length - data.len()).min(word.len());
            data.extend_from_slice(word.get(..count)?).ok()?;
        }
        Some(data)
    }
}

/// Implements `Record` for types that convert to another record.
macro_rules! numbers {
    ($($type:ty as $word:ty: $put:expr, $take:expr;)*) => {$(
        impl Record for $type {
            fn put(&self, put: &mut dyn FnMut(u32)) {
                let word: $word = ($put)(*self);
                word.put(put);
            }

            fn take(take: &mut dyn FnMut() -> u32) -> Option<Self> {
                ($take)(<$word>::take(take)?)
            }
        }
    )*};
}

numbers! {
    u16 as u32: u32::from, |word| Self::try_from(word).ok();
    usize as u64: |value| value as u64, |word| Self::try_from(word).ok();
    ListenerKey as usize: |key: Self| key.0, |key| Some(Self(key));
    RequestKey as usize: |key: Self| key.0, |key| Some(Self(key));
    MemoryPrivileges as u32: |flags: Self| flags.bits(), Self::from_bits;
    QualityOfService as u32: |flags: Self| flags.bits(), Self::from_bits;
    [u8; 4] as u32: u32::from_be_bytes, |word: u32| Some(word.to_be_bytes());
}

impl Record for [u8; 16] {
    fn put(&self, put: &mut dyn FnMut(u32)) {
        for word in self.as_chunks().0 {
            put(u32::from_be_bytes(*word));
        }
    }

    fn take(take: &mut dyn FnMut() -> u32) -> Option<Self> {
        let mut bytes = [0; 16];
        for word in bytes.as_chunks_mut().0 {
            *word = take().to_be_bytes();
        }
        Some(bytes)
    }
}

/// Implements `Record` for structs: the fields in order.
macro_rules! fields {
    ($($type:ty { $($field:ident),* $(; $rest:ident: $value:expr)? })*) => {$(
        impl Record for $type {
            fn put(&self, put: &mut dyn FnMut(u32)) {
                $(self.$field.put(put);)*
            }

            fn take(take: &mut dyn FnMut() -> u32) -> Option<Self> {
                Some(Self {
                    $($field: Record::take(take)?,)*
                    $($rest: $value,)?
                })
            }
        }
    )*};
}

fields! {
    RegionKeys { object, local, remote }
    CompletionQueueSpec { ring, entries, record }
    SharedReceiveQueueSpec { domain, ring, entries, units, record }
    QueuePairSpec {
        domain, user_index, request_queue, receive_queue, shared_receive_queue, ring, receive_entries, receive_units, send_blocks,
        record, reads_in, reads_out
    }
    CreatedQueuePair { number, doorbell, takes_blocks }
    // The platform supplies the name.
    Limits {
        domains, regions, windows, completion_queues, completions, queue_pairs, work_requests, segments, shared_receive_queues,
        shared_buffers, rdma_reads, transfer, inline; name: ""
    }
}

/// Implements `Record` for enums: a number, then the fields of the variant.
macro_rules! choices {
    ($type:ty { $($number:literal => $variant:ident $({ $($member:tt: $field:ident),* })?,)* }) => {
        impl Record for $type {
            fn put(&self, put: &mut dyn FnMut(u32)) {
                match self {
                    $(Self::$variant $({ $($member: $field),* })? => {
                        put($number);
                        $($($field.put(put);)*)?
                    })*
                }
            }

            fn take(take: &mut dyn FnMut() -> u32) -> Option<Self> {
                Some(match take() {
                    $($number => Self::$variant $({ $($member: Record::take(take)?),* })?,)*
                    _ => return None,
                })
            }
        }
    };
}

choices!(IaAddress {
    1 => V4 { 0: address, 1: port },
    2 => V6 { 0: address, 1: port, 2: scope },
    3 => Node { 0: node },
});

choices!(DisconnectMode {
    1 => Graceful,
    2 => Abrupt,
    3 => Broken,
});

choices!(DeviceEvent {
    1 => Completions { 0: queue },
    2 => SharedReceiveLimit { 0: queue },
    3 => SharedReceiveFailed { 0: queue },
    4 => CompletionsLost { 0: queue },
    5 => QueuePairFailed { 0: queue_pair },
    6 => Failed,
});

choices!(ConnectFailure {
    1 => PeerRejected { 0: private_data },
    2 => NonPeerRejected,
    3 => Unreachable,
    4 => TimedOut,
});

choices!(ControlEvent {
    1 => ConnectionRequest {
        listener: listener,
        request: request,
        remote: remote,
        remote_port: remote_port,
        local: local,
        private_data: private_data
    },
    2 => Answered { queue_pair: queue_pair },
    3 => Established { queue_pair: queue_pair, private_data: private_data },
    4 => ConnectFailed { queue_pair: queue_pair, failure: failure },
    5 => Disconnected { queue_pair: queue_pair },
    6 => Broken { queue_pair: queue_pair },
    7 => Completions { queue: queue },
    8 => SolicitedCompletions { queue: queue },
    9 => SharedReceiveLimit { queue: queue },
    10 => SharedReceiveFailed { queue: queue },
    11 => SoftHighWatermark { queue_pair: queue_pair },
    12 => DeviceFailed,
});

/// Declares the commands, with their numbers.
macro_rules! commands {
    ($($(#[$doc:meta])* $number:literal => $name:ident $({ $($field:ident: $type:ty),* $(,)? })?,)*) => {
        /// A command of the driver to the device.
        ///
        /// Commands are the calls of [`Control`](crate::mlx5::Control) and
        /// [`ConnectionManager`](crate::cm::ConnectionManager), and a register write.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the fields are the arguments of the calls of the same name")]
        pub enum Command {
            $($(#[$doc])* $name $({ $($field: $type),* })?,)*
        }

        choices!(Command {
            $($number => $name $({ $($field: $field),* })?,)*
        });
    };
}

commands! {
    /// Answers the [`Limits`].
    1 => Limits,
    /// Creates a domain; answers its number.
    2 => CreateDomain,
    /// Destroys a domain.
    ///
    /// The answer is empty, as for every command that names none.
    3 => DestroyDomain { domain: u32 },
    /// Registers memory by its address, the same at both ends; answers the [`RegionKeys`].
    4 => Register { domain: u32, address: u64, length: u64, privileges: MemoryPrivileges },
    /// Deregisters a region.
    5 => Deregister { region: RegionKeys },
    /// Creates a window; answers its key.
    6 => CreateWindow { domain: u32 },
    /// Destroys a window.
    7 => DestroyWindow { key: u32 },
    /// Creates a completion queue; answers its number.
    8 => CreateCompletionQueue { spec: CompletionQueueSpec },
    /// Moves a completion queue to other memory.
    9 => MoveCompletionQueue { number: u32, ring: u64, entries: u32 },
    /// Destroys a completion queue.
    10 => DestroyCompletionQueue { number: u32 },
    /// Creates a shared receive queue; answers its number.
    11 => CreateSharedReceiveQueue { spec: SharedReceiveQueueSpec },
    /// Arms the limit event; answers true if a pending event was withdrawn.
    12 => ArmSharedReceiveLimit { number: u32, limit: u32 },
    /// Destroys a shared receive queue.
    13 => DestroySharedReceiveQueue { number: u32 },
    /// Creates a queue pair; answers [`CreatedQueuePair`].
    14 => CreateQueuePair { spec: QueuePairSpec },
    /// Destroys a queue pair.
    15 => DestroyQueuePair { number: u32 },
    /// Answers the next event of the device, if any.
    16 => PollDevice,
    /// Stops the device.
    17 => Halt,
    /// Answers the address and the limit of private data.
    18 => Address,
    /// Listens; answers the listener and the qualifier.
    19 => Listen { token: u64, qualifier: Option<u64> },
    /// Stops listening.
    20 => StopListening { listener: ListenerKey },
    /// Starts a connection attempt; answers the local port.
    21 => Connect {
        queue_pair: u32,
        address: IaAddress,
        qualifier: u64,
        quality: QualityOfService,
        private_data: PrivateData,
    },
    /// Accepts a request.
    22 => Accept { request: RequestKey, queue_pair: u32, private_data: PrivateData },
    /// Refuses a request.
    23 => Reject { request: RequestKey, by_consumer: bool, private_data: PrivateData },
    /// Ends a connection or an attempt.
    24 => Disconnect { queue_pair: u32, mode: DisconnectMode },
    /// Answers the next connection event, if any.
    25 => PollConnections,
}

impl<A: Record, B: Record> Record for (A, B) {
    fn put(&self, put: &mut dyn FnMut(u32)) {
        self.0.put(put);
        self.1.put(put);
    }

    fn take(take: &mut dyn FnMut() -> u32) -> Option<Self> {
        Some((A::take(take)?, B::take(take)?))
    }
}

/// Status of a successful command.
const DONE: u32 = 0;
/// Errors of failed commands; the status is the index plus 1.
const ERRORS: [BackendError; 8] = [
    BackendError::Resources,
    BackendError::NotSupported,
    BackendError::QualifierInUse,
    BackendError::QualifierUnavailable,
    BackendError::Address,
    BackendError::State,
    BackendError::Device,
    BackendError::Unreachable,
];

/// Result of a command: the status, then the value.
impl<T: Record> Record for Result<T, BackendError> {
    fn put(&self, put: &mut dyn FnMut(u32)) {
        match self {
            Ok(value) => {
                put(DONE);
                value.put(put);
            }
            Err(error) => {
                let known = (1..).zip(ERRORS).find(|(_, known)| known == error);
                put(known.map_or(ERRORS.len() as u32, |(status, _)| status));
            }
        }
    }

    fn take(take: &mut dyn FnMut() -> u32) -> Option<Self> {
        match take() {
            DONE => Some(Ok(T::take(take)?)),
            status => {
                let index = status.checked_sub(1)? as usize;
                Some(Err(*ERRORS.get(index)?))
            }
        }
    }
}
