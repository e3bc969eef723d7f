//! What lies in a mailbox: commands and answers as words, a leaf that driver and device share.
//!
//! All words are big-endian, as all else of the data path. A command is its serial number, which is written last, its code and what belongs to
//! it; an answer is the serial number of the command, written last, a status and what belongs to that.

use dat_core::attributes::IaAddress;
use dat_core::backend::{
    BackendError, ConnectFailure, ControlEvent, DisconnectMode, ListenerKey, PrivateData,
    RegionKeys, RequestKey,
};
use dat_core::flags::{MemoryPrivileges, QualityOfService};

use crate::mlx5::{
    CompletionQueueSpec, DeviceEvent, Limits, MadeQueuePair, QueuePairSpec, SharedReceiveQueueSpec,
};

/// Units of memory that a mailbox takes.
pub const UNITS: usize = 66;
/// The word that a command begins at.
pub const COMMAND: usize = 0;
/// The word that an answer begins at.
pub const ANSWER: usize = 128;
/// Words of a command, or an answer, at most.
pub const LENGTH: usize = 128;
/// The word that the device changes when there may be events.
pub const NOTICE: usize = 256;
/// The word with the driver's version of all this, written when it begins.
pub const GREETING: usize = 260;
/// The two words, the more significant first, with the address that the driver has the mailbox at. All addresses that it names are such, so that
/// the other end has all memory at the same ones.
pub const AT: usize = 261;
/// The version that is described here.
pub const VERSION: u32 = 1;

/// A value as words, the first one first; nothing if the words are none.
pub trait Record: Sized {
    /// Puts the words down.
    fn put(&self, put: &mut dyn FnMut(u32));
    /// Takes them from where they come from, and believes none that makes no sense.
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

/// Bytes by words, the first one the most significant, behind how many there are.
impl Record for PrivateData {
    fn put(&self, put: &mut dyn FnMut(u32)) {
        put(self.len() as u32);
        for piece in self.chunks(4) {
            let mut word = [0; 4];
            for (to, from) in word.iter_mut().zip(piece) {
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

/// Numbers that keep to words as something else.
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

/// Values that are their fields, one after the other.
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
    MadeQueuePair { number, doorbell, takes_blocks }
    // The name is the platform's.
    Limits {
        domains, regions, windows, completion_queues, completions, queue_pairs, work_requests, segments, shared_receive_queues,
        shared_buffers, rdma_reads, transfer, inline; name: ""
    }
}

/// Values that are one of several: a number, and what belongs to it.
macro_rules! choices {
    ($type:ty { $($number:literal => $variant:ident $({ $($place:tt: $field:ident),* })?,)* }) => {
        impl Record for $type {
            fn put(&self, put: &mut dyn FnMut(u32)) {
                match self {
                    $(Self::$variant $({ $($place: $field),* })? => {
                        put($number);
                        $($($field.put(put);)*)?
                    })*
                }
            }

            fn take(take: &mut dyn FnMut() -> u32) -> Option<Self> {
                Some(match take() {
                    $($number => Self::$variant $({ $($place: Record::take(take)?),* })?,)*
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
        /// What a driver asks of a device. The calls of [`Control`](crate::mlx5::Control), of [`Sideband`](crate::Sideband), and a register.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the fields are the arguments of the calls of these names")]
        pub enum Command {
            $($(#[$doc])* $name $({ $($field: $type),* })?,)*
        }

        choices!(Command {
            $($number => $name $({ $($field: $field),* })?,)*
        });
    };
}

commands! {
    /// Answered by [`Limits`].
    1 => Limits,
    /// Answered by its number.
    2 => CreateDomain,
    /// Answered by nothing, as all that follows of these names.
    3 => DestroyDomain { domain: u32 },
    /// Memory by its address, which both ends have in common; answered by [`RegionKeys`].
    4 => Register { domain: u32, address: u64, length: u64, privileges: MemoryPrivileges },
    /// Takes a region away.
    5 => Deregister { region: RegionKeys },
    /// Answered by its key.
    6 => CreateWindow { domain: u32 },
    /// Gives a window back.
    7 => DestroyWindow { key: u32 },
    /// Answered by its number.
    8 => CreateCompletionQueue { spec: CompletionQueueSpec },
    /// Has a completion queue go on elsewhere.
    9 => MoveCompletionQueue { number: u32, ring: u64, entries: u32 },
    /// Gives a completion queue back.
    10 => DestroyCompletionQueue { number: u32 },
    /// Answered by its number.
    11 => CreateSharedReceiveQueue { spec: SharedReceiveQueueSpec },
    /// Answered by whether an event was withdrawn.
    12 => ArmSharedReceiveLimit { number: u32, limit: u32 },
    /// Gives a shared receive queue back.
    13 => DestroySharedReceiveQueue { number: u32 },
    /// Answered by [`MadeQueuePair`].
    14 => CreateQueuePair { spec: QueuePairSpec },
    /// Destroys a queue pair.
    15 => DestroyQueuePair { number: u32 },
    /// Answered by an event of the device, or none.
    16 => PollDevice,
    /// Cuts the device off.
    17 => Halt,
    /// Answered by the address, and how much private data there can be.
    18 => Address,
    /// Answered by the listener, and the qualifier.
    19 => Listen { token: u64, qualifier: Option<u64> },
    /// Stops listening.
    20 => StopListening { listener: ListenerKey },
    /// Answered by the port that it comes from.
    21 => Connect {
        queue_pair: u32,
        address: IaAddress,
        qualifier: u64,
        quality: QualityOfService,
        private_data: PrivateData,
    },
    /// Accepts a request.
    22 => Accept { request: RequestKey, queue_pair: u32, private_data: PrivateData },
    /// Refuses one.
    23 => Reject { request: RequestKey, by_consumer: bool, private_data: PrivateData },
    /// Ends a connection or an attempt.
    24 => Disconnect { queue_pair: u32, mode: DisconnectMode },
    /// Answered by an event about a connection, or none.
    25 => PollConnections,
    /// What a register would be told, where that is more than to look at the records.
    26 => WriteRegister { offset: u32, value: u64 },
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

/// The status of a command that was done.
const DONE: u32 = 0;
/// Those of commands that were not, by their numbers from 1 on.
const REFUSALS: [BackendError; 7] = [
    BackendError::Resources,
    BackendError::NotSupported,
    BackendError::QualifierInUse,
    BackendError::QualifierUnavailable,
    BackendError::Address,
    BackendError::State,
    BackendError::Device,
];

/// What came of a command: what belongs to it, or why not.
impl<T: Record> Record for Result<T, BackendError> {
    fn put(&self, put: &mut dyn FnMut(u32)) {
        match self {
            Ok(value) => {
                put(DONE);
                value.put(put);
            }
            Err(error) => {
                let known = (1..).zip(REFUSALS).find(|(_, known)| known == error);
                put(known.map_or(REFUSALS.len() as u32, |(status, _)| status));
            }
        }
    }

    fn take(take: &mut dyn FnMut() -> u32) -> Option<Self> {
        match take() {
            DONE => Some(Ok(T::take(take)?)),
            status => {
                let place = status.checked_sub(1)? as usize;
                Some(Err(*REFUSALS.get(place)?))
            }
        }
    }
}
