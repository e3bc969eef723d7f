//! Flag words, enumerations, field masks and constants of the interface, with their 1.2 values.
//!
//! `from_bits` and `TryFrom<u32>` convert numbers from outside and refuse undefined values; nothing
//! here is ever transmuted.

mod fields;
#[cfg(test)]
mod tests;
mod values;

pub use fields::{
    CnoFields, CrFields, EpFields, EvdFields, IaFields, LmrFields, ProviderFields, PspFields,
    PzFields, RmrFields, RspFields, SrqFields,
};
pub(crate) use fields::{check_fields, check_mask};
pub use values::{
    CloseFlags, DtoStatus, EndpointState, EpCreator, HandleKind, IovOwnership, MemoryType,
    PspFlags, PzSupport, ServiceType, SrqState, UnknownValue,
};

use bitflags::bitflags;

/// Timeout that never expires, in microseconds of `DAT_TIMEOUT` (`Spec: GEN-09`).
pub const TIMEOUT_INFINITE: u32 = u32::MAX;
/// Watermark that is never reached; also the hardware default.
pub const WATERMARK_INFINITE: i32 = -1;
/// Value of a count that the provider cannot tell.
pub const VALUE_UNKNOWN: i32 = -2;
/// Largest optimal alignment of any provider, in bytes (`Spec: IAQ-07`).
pub const OPTIMAL_ALIGNMENT: u32 = 256;
/// Low watermark of a new shared receive queue: off (`Spec: SRC-02`).
pub const SRQ_LOW_WATERMARK_DEFAULT: i32 = 0;
/// Longest name in bytes, the terminator included.
pub const NAME_MAX_LENGTH: usize = 256;
/// Length of a shared memory cookie in bytes (`Spec: LMC-03`).
pub const LMR_COOKIE_SIZE: usize = 40;

/// Prints the bits of a flag word to defmt, without formatting tables on the target.
macro_rules! format_bits {
    ($($name:ident)+) => {
        $(
            #[cfg(feature = "defmt")]
            impl defmt::Format for $name {
                fn format(&self, formatter: defmt::Formatter<'_>) {
                    defmt::write!(formatter, "{}({=u64:#x})", stringify!($name), u64::from(self.bits()));
                }
            }
        )+
    };
}
use format_bits;

bitflags! {
    /// Completion of a work request (`Spec: DTO-04, DTO-05`).
    ///
    /// Empty is the default: a signalled completion.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CompletionFlags: u32 {
        /// Queues no event if the operation succeeds.
        const SUPPRESS = 0x01;
        /// Requests a notification when the matching receive of the peer completes.
        const SOLICITED_WAIT = 0x02;
        /// Queues the event without a notification.
        const UNSIGNALLED = 0x04;
        /// Starts the operation only after all earlier RDMA Reads of the endpoint completed.
        const BARRIER_FENCE = 0x08;
        /// Notifies by threshold; an endpoint attribute, never a flag of a post.
        const EVD_THRESHOLD = 0x10;
    }
}

bitflags! {
    /// Access that a memory region or window permits (`Spec: LMC-07`).
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MemoryPrivileges: u32 {
        /// The local endpoint may read.
        const LOCAL_READ = 0x01;
        /// A peer may read by RDMA.
        const REMOTE_READ = 0x02;
        /// The local endpoint may write.
        const LOCAL_WRITE = 0x10;
        /// A peer may write by RDMA.
        const REMOTE_WRITE = 0x20;
        /// Local and remote reading.
        const READ = 0x03;
        /// Local and remote writing.
        const WRITE = 0x30;
        /// All privileges.
        const ALL = 0x33;
    }
}

bitflags! {
    /// Event streams that may feed an event dispatcher (`Spec: EVC-02`).
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EvdFlags: u32 {
        /// Events posted by the consumer.
        const SOFTWARE = 0x001;
        /// Connection requests.
        const CR = 0x010;
        /// Completions of data transfers.
        const DTO = 0x020;
        /// Connection events.
        const CONNECTION = 0x040;
        /// Completions of window binds.
        const RMR_BIND = 0x080;
        /// Asynchronous errors.
        const ASYNC = 0x100;
        /// All streams except software.
        const DEFAULT = 0x1F0;
    }
}

bitflags! {
    /// State of an event dispatcher as a query reports it.
    ///
    /// The two configuration bits are one number: [`EvdState::CONFIGURATION`] selects it, and
    /// threshold is its value with both bits set.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EvdState: u32 {
        /// Events trigger the notification object.
        const ENABLED = 0x01;
        /// Events do not trigger the notification object.
        const DISABLED = 0x02;
        /// Threads may wait.
        const WAITABLE = 0x04;
        /// Threads may not wait.
        const UNWAITABLE = 0x08;
        /// Fed by a stream that notifies selectively.
        const CONFIG_NOTIFY = 0x10;
        /// Fed by a stream that notifies of solicited receives only.
        const CONFIG_SOLICITED = 0x20;
        /// Fed by a stream that notifies by threshold.
        const CONFIG_THRESHOLD = 0x30;
    }
}

bitflags! {
    /// Qualities of service; empty is best effort.
    ///
    /// An endpoint requests at most one; a provider lists those it supports.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct QualityOfService: u32 {
        /// Throughput before latency.
        const HIGH_THROUGHPUT = 0x1;
        /// Latency before throughput.
        const LOW_LATENCY = 0x2;
        /// Low cost.
        const ECONOMY = 0x4;
        /// Highest quality.
        const PREMIUM = 0x8;
    }
}

bitflags! {
    /// Options of a connection attempt; empty is one path.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ConnectFlags: u32 {
        /// Requests more than one path.
        const MULTIPATH = 0x1;
    }
}

bitflags! {
    /// Memory types that a provider accepts.
    ///
    /// Plain virtual memory has no bit, since its number is 0; it is always supported (`Spec:
    /// IAQ-05`).
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MemoryTypes: u32 {
        /// A range of an existing region.
        const LMR = 0x1;
        /// Memory shared under a cookie.
        const SHARED_VIRTUAL = 0x2;
    }
}

format_bits! {
    CompletionFlags MemoryPrivileges EvdFlags EvdState QualityOfService ConnectFlags MemoryTypes
}

impl CompletionFlags {
    /// Flags that every provider supports on request posts (`Spec: DTO-05, IAQ-06`).
    pub const MANDATORY: Self = Self::SUPPRESS
        .union(Self::SOLICITED_WAIT)
        .union(Self::UNSIGNALLED)
        .union(Self::BARRIER_FENCE);
}

impl EvdState {
    /// The bits of the configuration number.
    pub const CONFIGURATION: Self = Self::CONFIG_THRESHOLD;

    /// Returns only the configuration: empty, notify, solicited or threshold.
    #[must_use]
    pub const fn configuration(self) -> Self {
        self.intersection(Self::CONFIGURATION)
    }
}

impl QualityOfService {
    /// No particular quality.
    pub const BEST_EFFORT: Self = Self::empty();

    /// Returns true for at most one quality, as an endpoint attribute needs it.
    pub const fn is_single(self) -> bool {
        self.bits().count_ones() <= 1
    }
}
