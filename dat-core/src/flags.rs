//! Flag words, enumerations, field masks and constants of the interface, with their 1.2 values.
//!
//! Numbers that come from outside are turned into these types with `from_bits` and `TryFrom<u32>`, which refuse what is
//! undefined; nothing here is ever transmuted.

mod fields;
#[cfg(test)]
mod tests;
mod values;

pub use fields::{
    CnoFields, CrFields, EpFields, EvdFields, IaFields, LmrFields, ProviderFields, PspFields,
    PzFields, RmrFields, RspFields, SrqFields,
};
pub use values::{
    CloseFlags, DtoStatus, EndpointState, EpCreator, HandleKind, IovOwnership, MemoryType,
    PspFlags, PzSupport, ServiceType, SrqState, UnknownValue,
};

use bitflags::bitflags;

/// The timeout that never expires, in microseconds of `DAT_TIMEOUT` (`Spec: GEN-09`).
pub const TIMEOUT_INFINITE: u32 = u32::MAX;
/// The watermark that is never reached; also the hardware default.
pub const WATERMARK_INFINITE: i32 = -1;
/// A count the provider cannot tell.
pub const VALUE_UNKNOWN: i32 = -2;
/// The alignment, in bytes, that no provider asks to exceed (`Spec: IAQ-07`).
pub const OPTIMAL_ALIGNMENT: u32 = 256;
/// The low watermark of a new shared receive queue: off (`Spec: SRC-02`).
pub const SRQ_LOW_WATERMARK_DEFAULT: i32 = 0;
/// The longest name in bytes, the terminator included.
pub const NAME_MAX_LENGTH: usize = 256;
/// The length of a shared memory cookie in bytes (`Spec: LMC-03`).
pub const LMR_COOKIE_SIZE: usize = 40;

/// Prints the bits of a flag word to defmt, without its formatting tables on the target.
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
    /// How a work request completes (`Spec: DTO-04, DTO-05`).
    ///
    /// Empty is the default: a signalled completion.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CompletionFlags: u32 {
        /// No event if the operation succeeds.
        const SUPPRESS = 0x01;
        /// Ask that the matching receive completes with notification.
        const SOLICITED_WAIT = 0x02;
        /// Queue the event without notifying anyone.
        const UNSIGNALLED = 0x04;
        /// Do not start before all earlier RDMA Reads of the endpoint completed.
        const BARRIER_FENCE = 0x08;
        /// Notify by threshold; an endpoint attribute, never a flag of a post.
        const EVD_THRESHOLD = 0x10;
    }
}

bitflags! {
    /// Who may do what to a memory region or window (`Spec: LMC-07`).
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
        /// Both kinds of reading.
        const READ = 0x03;
        /// Both kinds of writing.
        const WRITE = 0x30;
        /// Everything.
        const ALL = 0x33;
    }
}

bitflags! {
    /// The event streams that may feed an event dispatcher (`Spec: EVC-02`).
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
        /// Every stream but software.
        const DEFAULT = 0x1F0;
    }
}

bitflags! {
    /// The state of an event dispatcher as a query reports it.
    ///
    /// The two configuration bits are one number: [`EvdState::CONFIGURATION`] selects it, and threshold is its value with both
    /// bits set.
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
    /// An endpoint asks for at most one; a provider lists those it supports.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct QualityOfService: u32 {
        /// Throughput before latency.
        const HIGH_THROUGHPUT = 0x1;
        /// Latency before throughput.
        const LOW_LATENCY = 0x2;
        /// Cheap.
        const ECONOMY = 0x4;
        /// The best there is.
        const PREMIUM = 0x8;
    }
}

bitflags! {
    /// How to connect; empty is one path.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ConnectFlags: u32 {
        /// Ask for more than one path.
        const MULTIPATH = 0x1;
    }
}

bitflags! {
    /// The memory types a provider takes.
    ///
    /// Plain virtual memory has no bit, since its number is 0; it is always supported (`Spec: IAQ-05`).
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
    /// What every provider supports on request posts (`Spec: DTO-05, IAQ-06`).
    pub const MANDATORY: Self = Self::SUPPRESS
        .union(Self::SOLICITED_WAIT)
        .union(Self::UNSIGNALLED)
        .union(Self::BARRIER_FENCE);
}

impl EvdState {
    /// The bits of the configuration number.
    pub const CONFIGURATION: Self = Self::CONFIG_THRESHOLD;

    /// The configuration alone: empty, notify, solicited or threshold.
    #[must_use]
    pub const fn configuration(self) -> Self {
        self.intersection(Self::CONFIGURATION)
    }
}

impl QualityOfService {
    /// No particular quality.
    pub const BEST_EFFORT: Self = Self::empty();

    /// Whether this is one quality, as an endpoint attribute has to be, and not a list of several.
    pub const fn is_single(self) -> bool {
        self.bits().count_ones() <= 1
    }
}
