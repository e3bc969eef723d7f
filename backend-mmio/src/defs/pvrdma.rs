//! Layouts of registers and memory: values that convert to little-endian words and back.
//!
//! Offsets and values are those of `pvrdma_dev_api.h` of Linux and of `rdma/vmw_pvrdma-abi.h`.

/// Bytes of a page, the unit of all memory shared with the device.
pub const PAGE: u64 = 4096;

/// Registers of the device, as offsets in the second window on its bus.
pub mod register {
    /// Version of the interface.
    pub const VERSION: u32 = 0;
    /// Low half of the shared region's bus address.
    pub const SHARED_LOW: u32 = 4;
    /// High half of the address; the device reads the region when it is written.
    pub const SHARED_HIGH: u32 = 8;
    /// Activates, quiesces or resets the device.
    pub const CONTROL: u32 = 0xC;
    /// Executes the command in the command slot.
    pub const REQUEST: u32 = 0x10;
    /// Result of the last command; 0 is success.
    pub const ERROR: u32 = 0x14;
    /// Mask of interrupts.
    pub const MASK: u32 = 0x1C;

    /// Starts the device.
    pub const ACTIVATE: u32 = 0;
    /// Resets the device.
    pub const RESET: u32 = 2;

    /// Versions with these commands; from 20 on, a queue pair has a separate handle.
    pub const VERSIONS: core::ops::RangeInclusive<u32> = 17..=19;
    /// First version with routable port addresses.
    pub const ROUTABLE_SINCE: u32 = 18;
}

/// Doorbells, as offsets in the page of a context.
///
/// The low 24 bits name the object.
pub mod doorbell {
    /// Doorbell of queue pairs.
    pub const QUEUE_PAIR: u32 = 0;
    /// Doorbell of completion queues.
    pub const COMPLETION_QUEUE: u32 = 4;
    /// Doorbell of shared receive queues.
    pub const SHARED_RECEIVE_QUEUE: u32 = 8;
    /// Mask of the object's handle.
    pub const HANDLE: u32 = 0xFF_FFFF;
    /// Requests were posted.
    pub const SEND: u32 = 1 << 30;
    /// Receives were posted.
    pub const RECEIVE: u32 = 1 << 31;
    /// Receives were posted to a shared receive queue.
    pub const SHARED_RECEIVE: u32 = 1 << 30;
    /// Requests a notice of the next solicited completion.
    ///
    /// QEMU's device ignores this bit unless [`ARM`] is also set.
    pub const ARM_SOLICITED: u32 = 1 << 29;
    /// Requests a notice of the next completion.
    pub const ARM: u32 = 1 << 30;
    /// Writes pending completions to the ring.
    pub const POLL: u32 = 1 << 31;
}

/// A value that consists of words in memory.
pub trait Words: Sized {
    /// Number of words.
    const WORDS: usize;
    /// Writes the words in order.
    fn put(&self, put: &mut impl FnMut(u32));
    /// Reads the words in order.
    fn take(take: &mut impl FnMut() -> u32) -> Self;
}

impl Words for u32 {
    const WORDS: usize = 1;

    fn put(&self, put: &mut impl FnMut(u32)) {
        put(*self);
    }

    fn take(take: &mut impl FnMut() -> u32) -> Self {
        take()
    }
}

impl Words for u64 {
    const WORDS: usize = 2;

    fn put(&self, put: &mut impl FnMut(u32)) {
        put(*self as u32);
        put((*self >> 32) as u32);
    }

    fn take(take: &mut impl FnMut() -> u32) -> Self {
        let low = take();
        u64::from(take()) << 32 | u64::from(low)
    }
}

impl<const N: usize> Words for [u32; N] {
    const WORDS: usize = N;

    fn put(&self, put: &mut impl FnMut(u32)) {
        for word in self {
            put(*word);
        }
    }

    fn take(take: &mut impl FnMut() -> u32) -> Self {
        core::array::from_fn(|_| take())
    }
}

macro_rules! words {
    ($($(#[$doc:meta])* struct $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl Words for $name {
            const WORDS: usize = 0 $(+ <$type as Words>::WORDS)*;

            #[inline]
            fn put(&self, put: &mut impl FnMut(u32)) {
                $(self.$field.put(put);)*
            }

            #[inline]
            fn take(take: &mut impl FnMut() -> u32) -> Self {
                Self { $($field: <$type as Words>::take(take),)* }
            }
        }
    )*};
}

/// Words that this driver does not use.
pub type Unused<const N: usize> = [u32; N];

words! {
    /// Location of an event ring.
    struct RingPages {
        /// Number of pages, including the state page.
        pages: u32,
        /// Ignored.
        reserved: u32,
        /// Bus address of the directory.
        directory: u64,
    }

    /// The region that driver and device share first.
    struct SharedRegion {
        /// Interface version of the driver.
        driver_version: u32,
        /// Ignored.
        reserved: u32,
        /// Kind of machine; ignored.
        guest: u64,
        /// Bus address of the command slot.
        command_slot: u64,
        /// Bus address of the answer slot.
        answer_slot: u64,
        /// Ring of events of objects.
        events: RingPages,
        /// Ring of notices: completion queues that were armed and fired.
        notices: RingPages,
        /// Page number of the doorbell page.
        doorbell_page: u64,
        /// Capabilities, which the device writes.
        capabilities: Capabilities,
    }

    /// Capabilities of a device.
    struct Capabilities {
        /// Firmware version, names, largest region, page sizes and atomics.
        versions: Unused<12>,
        /// Features, limits of fast registration and of atomics.
        features: Unused<4>,
        /// Vendor, part and version of the hardware.
        hardware: Unused<3>,
        /// Number of queue pairs.
        queue_pairs: u32,
        /// Requests per queue.
        work_requests: u32,
        /// Feature bits.
        flags: u32,
        /// Segments per request.
        segments: u32,
        /// Segments per RDMA Read.
        read_segments: u32,
        /// Number of completion queues.
        completion_queues: u32,
        /// Completions per queue.
        completions: u32,
        /// Number of regions.
        regions: u32,
        /// Number of protection domains.
        domains: u32,
        /// RDMA Reads and limits of other transports.
        transport: Unused<13>,
        /// Address handles and fast registration.
        handles: Unused<3>,
        /// Number of shared receive queues.
        shared_receive_queues: u32,
        /// Buffers per shared receive queue.
        shared_buffers: u32,
        /// Segments per buffer of a shared receive queue.
        shared_segments: u32,
        /// Contexts, addresses, partition keys and ports.
        ports: Unused<3>,
        /// By byte, low byte first: mode, atomics, memory management, and kinds of addresses as
        /// bits.
        network: u32,
        /// Pages per fast registration.
        rest: Unused<1>,
    }

    /// Header of a command.
    struct RequestHeader {
        /// Comes back in the answer.
        key: u64,
        /// Number of the command.
        command: u32,
        /// Ignored.
        reserved: u32,
    }

    /// Header of an answer.
    struct AnswerHeader {
        /// Key of the command.
        key: u64,
        /// Number of the command, with the bit `ANSWER`.
        acknowledges: u32,
        /// Error code, in the low byte.
        error: u32,
    }

    /// Command that creates a protection domain.
    struct CreateDomain {
        /// Handle of the context.
        context: u32,
        /// Ignored.
        reserved: u32,
    }

    /// Handle of an object.
    ///
    /// The command that destroys it; also the answer to the creation of a context, a domain or a
    /// completion queue.
    struct Handle {
        /// Handle of the object.
        handle: u32,
        /// Entries of a created completion queue; ignored otherwise.
        other: u32,
    }

    /// Command that creates a context, which has a page of doorbells.
    struct CreateContext {
        /// Page number of the doorbell page.
        doorbell_page: u64,
    }

    /// Command that adds an address of the port.
    struct CreateBind {
        /// Largest packet of the transport (MTU), in bytes.
        packet: u32,
        /// Virtual network (VLAN), or [`NO_NETWORK`].
        network: u32,
        /// Index in the address table.
        index: u32,
        /// The address.
        address: [u32; 4],
        /// Kind of the address, in the low byte.
        kind: u32,
    }

    /// Command that creates a region.
    struct CreateRegion {
        /// Address of the first byte in segments.
        start: u64,
        /// Length in bytes.
        length: u64,
        /// Bus address of the page directory.
        directory: u64,
        /// Handle of the domain.
        domain: u32,
        /// Rights, as bits of [`access`].
        access: u32,
        /// Unused.
        flags: u32,
        /// Number of pages.
        pages: u32,
    }

    /// Answer to the creation of a region.
    struct CreatedRegion {
        /// Handle of the region.
        handle: u32,
        /// Key for local segments.
        local: u32,
        /// Key for peers.
        remote: u32,
        /// Ignored.
        reserved: u32,
    }

    /// Command that creates a completion queue.
    struct CreateCompletionQueue {
        /// Bus address of the directory of its pages: state, then entries.
        directory: u64,
        /// Handle of the context.
        context: u32,
        /// Number of entries, a power of two.
        entries: u32,
        /// Number of pages.
        pages: u32,
        /// Ignored.
        reserved: u32,
    }

    /// Command that creates a queue pair.
    struct CreateQueuePair {
        /// Bus address of the directory of its pages: state, requests, receives.
        directory: u64,
        /// Handle of the domain.
        domain: u32,
        /// Handle of the completion queue of requests.
        request_queue: u32,
        /// Handle of the completion queue of receives.
        receive_queue: u32,
        /// Handle of the shared receive queue, if any.
        shared_receive_queue: u32,
        /// Number of requests, a power of two.
        requests: u32,
        /// Number of receives, a power of two.
        receives: u32,
        /// Segments per request.
        request_segments: u32,
        /// Segments per receive.
        receive_segments: u32,
        /// Bytes of inline data per request.
        inline: u32,
        /// Unused.
        key: u32,
        /// Rights of peers.
        access: u32,
        /// Number of all pages (low half) and of request pages (high half).
        pages: u32,
        /// Largest atomic in bytes (low half), completion of all requests, kind of queue pair.
        /// pair.
        kind: u32,
        /// Set for a shared receive queue, in the low byte.
        shares: u32,
    }

    /// Answer to the creation of a queue pair.
    struct CreatedQueuePair {
        /// Number of the queue pair, which is also its handle.
        number: u32,
        /// Granted requests, receives, their segments, and inline bytes.
        got: [u32; 5],
    }

    /// Command that modifies a queue pair.
    struct ModifyQueuePair {
        /// Handle of the queue pair.
        handle: u32,
        /// Attributes to modify, as bits of [`attribute`].
        mask: u32,
        /// New state.
        state: u32,
        /// Current state, encoded path MTU, and migration state.
        current: [u32; 3],
        /// Unused by connections.
        queue_key: u32,
        /// First packet sequence number of the peer.
        receive_number: u32,
        /// First packet sequence number of this side.
        send_number: u32,
        /// Number of the peer's queue pair.
        peer: u32,
        /// Rights of peers.
        access: u32,
        /// Partitions; then bytes for depths, times and retries.
        details: [u32; 5],
        /// Sizes, which cannot be modified.
        sizes: Unused<6>,
        /// Path to the peer.
        address_vector: AddressVector,
        /// Alternate path.
        alternate: AddressVector,
    }

    /// A path to a peer.
    struct AddressVector {
        /// Address of the peer.
        address: [u32; 4],
        /// Flow label.
        flow: u32,
        /// Index of the local address, hop limit and traffic class.
        route: u32,
        /// Local identifiers, which this network does not have.
        local: u32,
        /// Service level, path bits, rate and flags.
        service: u32,
        /// Port, and the first bytes of the address of the peer's port.
        port: u32,
        /// Remaining bytes of the address of the peer's port.
        rest: u32,
    }

    /// Command that creates a shared receive queue.
    struct CreateSharedReceiveQueue {
        /// Bus address of the directory of its pages: state, then receives.
        directory: u64,
        /// Handle of the domain.
        domain: u32,
        /// Number of pages.
        pages: u32,
        /// Number of buffers, a power of two.
        entries: u32,
        /// Segments per buffer.
        segments: u32,
        /// Limit below which the device reports an event; 0 disables it.
        limit: u32,
        /// Ignored.
        reserved: u32,
        /// Kind of the queue, in the low byte.
        kind: u32,
        /// Ignored.
        padding: u32,
    }

    /// Command that modifies a shared receive queue.
    struct ModifySharedReceiveQueue {
        /// Handle of the queue.
        handle: u32,
        /// Attributes to modify: [`SHARED_LIMIT`].
        mask: u32,
        /// Buffers and segments, which cannot be modified.
        sizes: Unused<2>,
        /// Limit below which the device reports one event.
        limit: u32,
        /// Ignored.
        reserved: u32,
    }

    /// Header of a request.
    struct Request {
        /// Comes back in the completion.
        token: u64,
        /// Number of segments.
        segments: u32,
        /// Bytes to move.
        length: u32,
        /// Operation, one of [`opcode`].
        opcode: u32,
        /// Flags, as bits of [`send_flag`].
        flags: u32,
        /// Operands of operations that this driver does not use.
        extra: [u32; 2],
        /// Address of the first byte at the peer.
        address: u64,
        /// Key of the peer.
        key: u32,
        /// Operands of other operations.
        other: Unused<9>,
    }

    /// Header of a receive.
    struct Receive {
        /// Comes back in the completion.
        token: u64,
        /// Number of segments.
        segments: u32,
        /// Length in bytes.
        length: u32,
    }

    /// A segment of local memory.
    struct SegmentEntry {
        /// Address of the first byte.
        address: u64,
        /// Length in bytes.
        length: u32,
        /// Key of the region.
        key: u32,
    }

    /// A completion.
    struct Entry {
        /// Token of the descriptor.
        token: u64,
        /// Number of the queue pair.
        queue_pair: u64,
        /// Operation; values below [`RECEIVED`] are requests.
        opcode: u32,
        /// Result, one of [`status`].
        status: u32,
        /// Bytes received.
        length: u32,
        /// Immediate value.
        immediate: u32,
        /// Number of the sender's queue pair.
        source: u32,
        /// Flags of the received message.
        flags: u32,
        /// Vendor code of a failure.
        vendor: u32,
        /// Partition, path and addresses.
        rest: Unused<5>,
    }

    /// An event of an object.
    struct Notice {
        /// Kind of event.
        kind: u32,
        /// Handle of the object.
        handle: u32,
    }
}

/// Commands.
pub mod command {
    /// Queries the port.
    pub const QUERY_PORT: u32 = 0;
    /// Creates a domain.
    pub const CREATE_DOMAIN: u32 = 2;
    /// Destroys a domain.
    pub const DESTROY_DOMAIN: u32 = 3;
    /// Creates a region.
    pub const CREATE_REGION: u32 = 4;
    /// Destroys a region.
    pub const DESTROY_REGION: u32 = 5;
    /// Creates a completion queue.
    pub const CREATE_COMPLETION_QUEUE: u32 = 6;
    /// Destroys a completion queue.
    pub const DESTROY_COMPLETION_QUEUE: u32 = 8;
    /// Creates a queue pair.
    pub const CREATE_QUEUE_PAIR: u32 = 9;
    /// Modifies a queue pair.
    pub const MODIFY_QUEUE_PAIR: u32 = 10;
    /// Destroys a queue pair.
    pub const DESTROY_QUEUE_PAIR: u32 = 12;
    /// Creates a context.
    pub const CREATE_CONTEXT: u32 = 13;
    /// Destroys a context.
    pub const DESTROY_CONTEXT: u32 = 14;
    /// Adds an address to the port.
    pub const CREATE_BIND: u32 = 15;
    /// Creates a shared receive queue.
    pub const CREATE_SHARED_RECEIVE_QUEUE: u32 = 17;
    /// Modifies a shared receive queue.
    pub const MODIFY_SHARED_RECEIVE_QUEUE: u32 = 18;
    /// Destroys a shared receive queue.
    pub const DESTROY_SHARED_RECEIVE_QUEUE: u32 = 20;

    /// Marks the header of an answer.
    pub const ANSWER: u32 = 1 << 31;
}

/// Operations of requests.
pub mod opcode {
    /// RDMA Write.
    pub const RDMA_WRITE: u32 = 0;
    /// Send.
    pub const SEND: u32 = 2;
    /// RDMA Read.
    pub const RDMA_READ: u32 = 4;
}

/// Flags of requests.
pub mod send_flag {
    /// Waits for earlier RDMA Reads.
    pub const FENCE: u32 = 1 << 0;
    /// Requests a completion.
    pub const SIGNALLED: u32 = 1 << 1;
    /// Requests a solicited completion at the peer.
    pub const SOLICITED: u32 = 1 << 2;
}

/// Access rights of regions and queue pairs.
pub mod access {
    /// The device may write for this side, as for receives.
    pub const LOCAL_WRITE: u32 = 1 << 0;
    /// Peers may write.
    pub const REMOTE_WRITE: u32 = 1 << 1;
    /// Peers may read.
    pub const REMOTE_READ: u32 = 1 << 2;
}

/// Attributes of queue pairs, as mask bits.
pub mod attribute {
    /// State.
    pub const STATE: u32 = 1 << 0;
    /// Rights of peers.
    pub const ACCESS: u32 = 1 << 3;
    /// Partition.
    pub const PARTITION: u32 = 1 << 4;
    /// Port.
    pub const PORT: u32 = 1 << 5;
    /// Path.
    pub const ADDRESS_VECTOR: u32 = 1 << 7;
    /// Path MTU.
    pub const PACKET: u32 = 1 << 8;
    /// Timeout for a response.
    pub const TIMEOUT: u32 = 1 << 9;
    /// Number of retries.
    pub const RETRIES: u32 = 1 << 10;
    /// Number of retries after a receiver-not-ready response.
    pub const NOT_READY_RETRIES: u32 = 1 << 11;
    /// First packet sequence number of the peer.
    pub const RECEIVE_NUMBER: u32 = 1 << 12;
    /// Most pending outgoing RDMA Reads.
    pub const READS_OUT: u32 = 1 << 13;
    /// Time that a peer waits after a receiver-not-ready response.
    pub const NOT_READY_TIMER: u32 = 1 << 15;
    /// First packet sequence number of this side.
    pub const SEND_NUMBER: u32 = 1 << 16;
    /// Most pending incoming RDMA Reads.
    pub const READS_IN: u32 = 1 << 17;
    /// Queue pair at the peer.
    pub const PEER: u32 = 1 << 20;
}

/// States of queue pairs.
pub mod state {
    /// Accepts receives.
    pub const INITIALISED: u32 = 1;
    /// Receives from the peer.
    pub const READY_TO_RECEIVE: u32 = 2;
    /// Sends and receives.
    pub const READY_TO_SEND: u32 = 3;
    /// Flushes requests and receives.
    pub const ERROR: u32 = 6;
}

/// Results of requests and receives.
pub mod status {
    /// Success.
    pub const SUCCESS: u32 = 0;
    /// The message is longer than its buffer.
    pub const LOCAL_LENGTH: u32 = 1;
    /// The queue pair does not support the operation.
    pub const LOCAL_OPERATION: u32 = 2;
    /// A local key or range is invalid.
    pub const LOCAL_PROTECTION: u32 = 4;
    /// The queue pair was in the error state.
    pub const FLUSHED: u32 = 5;
    /// The response is malformed.
    pub const BAD_RESPONSE: u32 = 7;
    /// The buffer of a receive is not accessible.
    pub const LOCAL_ACCESS: u32 = 8;
    /// The peer rejected the request as invalid.
    pub const REMOTE_INVALID: u32 = 9;
    /// A remote key or range is invalid.
    pub const REMOTE_ACCESS: u32 = 10;
    /// The peer failed to execute the request.
    pub const REMOTE_OPERATION: u32 = 11;
    /// The peer did not respond.
    pub const RETRIES: u32 = 12;
    /// The peer had no receive posted.
    pub const NOT_READY: u32 = 13;
    /// The peer aborted the operation.
    pub const REMOTE_ABORTED: u32 = 16;
    /// The device failed during the operation.
    pub const FATAL: u32 = 19;
    /// The device does not name the reason.
    pub const GENERAL: u32 = 21;
}

/// Kinds of events of objects.
pub mod notice {
    /// A completion queue overran or failed.
    pub const COMPLETION_QUEUE_FAILED: u32 = 0;
    /// A queue pair failed by itself, by a request, or by its peer's access.
    pub const QUEUE_PAIR_FAILED: core::ops::RangeInclusive<u32> = 1..=3;
    /// The device failed.
    pub const DEVICE_FAILED: u32 = 8;
    /// A shared receive queue failed.
    pub const SHARED_FAILED: u32 = 14;
    /// A shared receive queue has fewer buffers than its limit.
    pub const SHARED_LIMIT: u32 = 15;
}

/// Opcode of the completion of a receive; lower values are requests.
pub const RECEIVED: u32 = 1 << 7;
/// Opcode of a peer's RDMA Write that took a receive.
pub const RECEIVED_WRITE: u32 = RECEIVED + 1;
/// Kind of reliable connected queue pairs.
pub const RELIABLE: u32 = 2;
/// Kind of basic shared receive queues.
pub const BASIC: u32 = 0;
/// Mask bit of a shared receive queue's limit.
pub const SHARED_LIMIT: u32 = 1 << 1;
/// Kind of addresses of one network (RoCE v1).
pub const LOCAL: u32 = 1 << 0;
/// Kind of addresses derived from IP addresses (RoCE v2).
pub const ROUTABLE: u32 = 1 << 1;
/// Mode of a device on Ethernet (RoCE).
pub const ETHERNET: u32 = 0;
/// VLAN value of a port without virtual network.
pub const NO_NETWORK: u32 = 0xFFF;

impl Capabilities {
    /// Returns the kind of address for the port of a device of this version.
    ///
    /// Prefers routable addresses. Returns `None` if the device is not on Ethernet or supports
    /// neither kind.
    #[must_use]
    pub const fn address_kind(&self, version: u32) -> Option<u32> {
        let (mode, kinds) = (self.network & 0xFF, self.network >> 24);
        if mode != ETHERNET {
            None
        } else if version >= register::ROUTABLE_SINCE && kinds & ROUTABLE != 0 {
            Some(ROUTABLE)
        } else if kinds & LOCAL != 0 {
            Some(LOCAL)
        } else {
            None
        }
    }
}

/// Returns the bytes of a request in its ring, a power of two.
#[must_use]
pub const fn request_stride(segments: u32) -> u32 {
    let bytes = (Request::WORDS as u32 * 4).saturating_add(segments.saturating_mul(16));
    bytes.next_power_of_two()
}

/// Returns the bytes of a receive in its ring, a power of two.
#[must_use]
pub const fn receive_stride(segments: u32) -> u32 {
    let bytes = (Receive::WORDS as u32 * 4).saturating_add(segments.saturating_mul(16));
    bytes.next_power_of_two()
}

/// Bytes of a completion.
pub const ENTRY_BYTES: u32 = Entry::WORDS as u32 * 4;

/// Byte offsets in the state page of a ring.
pub mod ring_state {
    /// Producer index of the ring of requests.
    pub const SEND: u32 = 0;
    /// Producer index of receives, completions, notices or events; its consumer index follows.
    pub const RECEIVE: u32 = 8;
    /// Offset of a consumer index from its producer index.
    pub const CONSUMER: u32 = 4;
}

/// Most pages of a directory with one table.
pub const PAGES: u32 = PAGE as u32 / 8;

const _: () = assert!(
    Capabilities::WORDS == 208 / 4
        && SharedRegion::WORDS == 280 / 4
        && Request::WORDS == 80 / 4
        && Receive::WORDS == 16 / 4
        && Entry::WORDS == 64 / 4
        && ModifyQueuePair::WORDS == (184 - 16) / 4
        && CreateQueuePair::WORDS == 64 / 4
);
