//! What lies in registers and in memory, of driver and device alike: values that turn into little-endian words and back.
//!
//! Places and values are those of `pvrdma_dev_api.h` of Linux and of `rdma/vmw_pvrdma-abi.h`.

/// Bytes of a page, which everything that the device shares is made of.
pub const PAGE: u64 = 4096;

/// Registers of the device, by their offsets in the second window of its bus.
pub mod register {
    /// The version of the interface.
    pub const VERSION: u32 = 0;
    /// The low half of where the shared region is.
    pub const SHARED_LOW: u32 = 4;
    /// The high half; the device reads the region when it is written.
    pub const SHARED_HIGH: u32 = 8;
    /// Activates, quiesces or resets.
    pub const CONTROL: u32 = 0xC;
    /// Carries out the command that is in its slot.
    pub const REQUEST: u32 = 0x10;
    /// How the last command went: 0 is well.
    pub const ERROR: u32 = 0x14;
    /// Interrupts that are masked.
    pub const MASK: u32 = 0x1C;

    /// Begin.
    pub const ACTIVATE: u32 = 0;
    /// Forget everything.
    pub const RESET: u32 = 2;

    /// The oldest and the newest version whose commands are these. From 20 on a queue pair has a handle beside its number.
    pub const VERSIONS: core::ops::RangeInclusive<u32> = 17..=19;
    /// The version from which on a port has routable addresses.
    pub const ROUTABLE_SINCE: u32 = 18;
}

/// Doorbells, by their offsets in the page of a context. The low 24 bits say which object.
pub mod doorbell {
    /// Of queue pairs.
    pub const QUEUE_PAIR: u32 = 0;
    /// Of completion queues.
    pub const COMPLETION_QUEUE: u32 = 4;
    /// Of shared receive queues.
    pub const SHARED_RECEIVE_QUEUE: u32 = 8;
    /// The object.
    pub const HANDLE: u32 = 0xFF_FFFF;
    /// There are requests.
    pub const SEND: u32 = 1 << 30;
    /// There are receives.
    pub const RECEIVE: u32 = 1 << 31;
    /// There are shared receives.
    pub const SHARED_RECEIVE: u32 = 1 << 30;
    /// Tell of the next solicited completion. QEMU's device ignores this bit where [`ARM`] is not set beside it.
    pub const ARM_SOLICITED: u32 = 1 << 29;
    /// Tell of the next completion.
    pub const ARM: u32 = 1 << 30;
    /// Write the completions that are there into the ring.
    pub const POLL: u32 = 1 << 31;
}

/// A value that is some words in memory.
pub trait Words: Sized {
    /// How many.
    const WORDS: usize;
    /// Puts them down, the first one first.
    fn put(&self, put: &mut impl FnMut(u32));
    /// Takes them from where they come from.
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

/// Words that nobody looks at.
pub type Unused<const N: usize> = [u32; N];

words! {
    /// Where a ring of events is.
    struct RingPages {
        /// Its pages, the one with its state included.
        pages: u32,
        /// Not looked at.
        reserved: u32,
        /// The directory that leads to them.
        directory: u64,
    }

    /// The region that driver and device agree on before anything else.
    struct SharedRegion {
        /// The driver's version of the interface.
        driver_version: u32,
        /// Not looked at.
        reserved: u32,
        /// What the machine is; nobody acts on it.
        guest: u64,
        /// Where commands are.
        command_slot: u64,
        /// Where answers go.
        answer_slot: u64,
        /// Events of objects.
        events: RingPages,
        /// Completion queues that have what they were armed for.
        notices: RingPages,
        /// The page of doorbells, in pages.
        doorbell_page: u64,
        /// What the device has; written by it.
        capabilities: Capabilities,
    }

    /// What a device has.
    struct Capabilities {
        /// Version of its firmware, its names, the largest region, sizes of pages and atomics.
        versions: Unused<12>,
        /// Features, limits of fast registration and of atomics.
        features: Unused<4>,
        /// Vendor, part and version of the hardware.
        hardware: Unused<3>,
        /// Queue pairs.
        queue_pairs: u32,
        /// Requests of a queue.
        work_requests: u32,
        /// Features, as bits.
        flags: u32,
        /// Segments of a request.
        segments: u32,
        /// Segments of an RDMA Read.
        read_segments: u32,
        /// Completion queues.
        completion_queues: u32,
        /// Completions of a queue.
        completions: u32,
        /// Regions.
        regions: u32,
        /// Protection domains.
        domains: u32,
        /// RDMA Reads and other limits of transports that nobody uses here.
        transport: Unused<13>,
        /// Address handles and fast registration.
        handles: Unused<3>,
        /// Shared receive queues.
        shared_receive_queues: u32,
        /// Buffers of a shared receive queue.
        shared_buffers: u32,
        /// Segments of such a buffer.
        shared_segments: u32,
        /// Contexts, addresses, keys of partitions and ports.
        ports: Unused<3>,
        /// From the low byte on: the mode, atomics, memory management, and the kinds of addresses as bits.
        network: u32,
        /// Pages of a fast registration.
        rest: Unused<1>,
    }

    /// What begins a command.
    struct RequestHeader {
        /// Comes back in the answer.
        key: u64,
        /// Which command.
        command: u32,
        /// Not looked at.
        reserved: u32,
    }

    /// What begins an answer.
    struct AnswerHeader {
        /// That of the command.
        key: u64,
        /// The command, with a bit that says that it is an answer.
        acknowledges: u32,
        /// What went wrong, in its low byte.
        error: u32,
    }

    /// A protection domain.
    struct CreateDomain {
        /// The context.
        context: u32,
        /// Not looked at.
        reserved: u32,
    }

    /// An object, by its handle: what destroys it; and the answer of what made a context, a domain or a completion queue.
    struct Handle {
        /// The handle.
        handle: u32,
        /// Not looked at, or the entries that a completion queue got.
        other: u32,
    }

    /// A context: a page of doorbells.
    struct CreateContext {
        /// The page.
        doorbell_page: u64,
    }

    /// An address of the port.
    struct CreateBind {
        /// The largest packet of the transport, in bytes.
        packet: u32,
        /// The virtual network (VLAN), or [`NO_NETWORK`].
        network: u32,
        /// Its place in the table.
        index: u32,
        /// The address.
        address: [u32; 4],
        /// Its kind, in the low byte.
        kind: u32,
    }

    /// A region.
    struct CreateRegion {
        /// First byte, as it is named in segments.
        start: u64,
        /// Bytes.
        length: u64,
        /// The pages that it is on.
        directory: u64,
        /// The domain.
        domain: u32,
        /// Rights, as bits of [`access`].
        access: u32,
        /// Not used.
        flags: u32,
        /// How many pages.
        pages: u32,
    }

    /// A region that was made.
    struct CreatedRegion {
        /// Its handle.
        handle: u32,
        /// Its key for local segments.
        local: u32,
        /// Its key for peers.
        remote: u32,
        /// Not looked at.
        reserved: u32,
    }

    /// A completion queue.
    struct CreateCompletionQueue {
        /// Its pages: state, then entries.
        directory: u64,
        /// The context.
        context: u32,
        /// Entries, a power of two.
        entries: u32,
        /// How many pages.
        pages: u32,
        /// Not looked at.
        reserved: u32,
    }

    /// A queue pair.
    struct CreateQueuePair {
        /// Its pages: state, requests, receives.
        directory: u64,
        /// The domain.
        domain: u32,
        /// Handle of the completion queue of requests.
        request_queue: u32,
        /// Handle of that of receives.
        receive_queue: u32,
        /// Handle of the shared receive queue, if it has one.
        shared_receive_queue: u32,
        /// Requests, a power of two.
        requests: u32,
        /// Receives, a power of two.
        receives: u32,
        /// Segments of a request.
        request_segments: u32,
        /// Segments of a receive.
        receive_segments: u32,
        /// Bytes within a request.
        inline: u32,
        /// Not used.
        key: u32,
        /// Rights of peers.
        access: u32,
        /// All pages in the low half, those of requests in the high one.
        pages: u32,
        /// Bytes of the largest atomic in the low half; then whether all requests complete, then the kind of the queue pair.
        kind: u32,
        /// Whether there is a shared receive queue, in the low byte.
        shares: u32,
    }

    /// A queue pair that was made.
    struct CreatedQueuePair {
        /// Its number, which is its handle too.
        number: u32,
        /// What it got of requests, receives, their segments, and bytes within.
        got: [u32; 5],
    }

    /// A change of a queue pair.
    struct ModifyQueuePair {
        /// Its handle.
        handle: u32,
        /// Which attributes, as bits of [`attribute`].
        mask: u32,
        /// The state that it goes to.
        state: u32,
        /// The state that it is in, the largest packet in the sense of the transport, and migration.
        current: [u32; 3],
        /// Not used by connections.
        queue_key: u32,
        /// The first number of packets coming in.
        receive_number: u32,
        /// The first number of packets going out.
        send_number: u32,
        /// The queue pair at the peer.
        peer: u32,
        /// Rights of peers.
        access: u32,
        /// Partitions; bytes that stand for depths, times and retries.
        details: [u32; 5],
        /// Sizes, which do not change.
        sizes: Unused<6>,
        /// Where the peer is.
        way: Way,
        /// Another way.
        other_way: Way,
    }

    /// A way to a peer.
    struct Way {
        /// Its address.
        address: [u32; 4],
        /// The flow.
        flow: u32,
        /// The place of the own address, hops, class of traffic.
        route: u32,
        /// Local identifiers, which this network has none of.
        local: u32,
        /// Level of service, path bits, rate and flags.
        service: u32,
        /// The port, and the first part of the address of the peer's port.
        port: u32,
        /// The rest of that.
        rest: u32,
    }

    /// A shared receive queue.
    struct CreateSharedReceiveQueue {
        /// Its pages: state, then receives.
        directory: u64,
        /// The domain.
        domain: u32,
        /// How many pages.
        pages: u32,
        /// Buffers, a power of two.
        entries: u32,
        /// Segments of each.
        segments: u32,
        /// Below how many it tells; 0 does not.
        limit: u32,
        /// Not looked at.
        reserved: u32,
        /// The kind, in the low byte.
        kind: u32,
        /// Not looked at.
        padding: u32,
    }

    /// A change of a shared receive queue.
    struct ModifySharedReceiveQueue {
        /// Its handle.
        handle: u32,
        /// Which attributes: [`SHARED_LIMIT`].
        mask: u32,
        /// Buffers and segments, which do not change.
        sizes: Unused<2>,
        /// Below how many it tells, once.
        limit: u32,
        /// Not looked at.
        reserved: u32,
    }

    /// What begins a request.
    struct Request {
        /// Comes back in the completion.
        token: u64,
        /// Segments.
        segments: u32,
        /// Bytes.
        length: u32,
        /// What to do: one of [`opcode`].
        opcode: u32,
        /// How: bits of [`send_flag`].
        flags: u32,
        /// Belongs to operations that nobody asks for.
        extra: [u32; 2],
        /// First byte at the peer.
        address: u64,
        /// The peer's key.
        key: u32,
        /// Belongs to other operations.
        other: Unused<9>,
    }

    /// What begins a receive.
    struct Receive {
        /// Comes back in the completion.
        token: u64,
        /// Segments.
        segments: u32,
        /// Bytes.
        length: u32,
    }

    /// A piece of local memory.
    struct Piece {
        /// First byte.
        address: u64,
        /// Bytes.
        length: u32,
        /// The key of the region.
        key: u32,
    }

    /// A completion.
    struct Entry {
        /// That of the descriptor.
        token: u64,
        /// The queue pair: its number.
        queue_pair: u64,
        /// What it is of: below [`RECEIVED`] a request.
        opcode: u32,
        /// How it ended.
        status: u32,
        /// Bytes received.
        length: u32,
        /// A number that came along.
        immediate: u32,
        /// The queue pair that it came from.
        source: u32,
        /// What else came along.
        flags: u32,
        /// What the vendor says of a failure.
        vendor: u32,
        /// Partition, ways and addresses.
        rest: Unused<5>,
    }

    /// An event of an object.
    struct Notice {
        /// Which.
        kind: u32,
        /// The object.
        handle: u32,
    }
}

/// Commands, by their numbers.
pub mod command {
    /// Asks for the port.
    pub const QUERY_PORT: u32 = 0;
    /// Makes a domain.
    pub const CREATE_DOMAIN: u32 = 2;
    /// Destroys a domain.
    pub const DESTROY_DOMAIN: u32 = 3;
    /// Makes a region.
    pub const CREATE_REGION: u32 = 4;
    /// Destroys a region.
    pub const DESTROY_REGION: u32 = 5;
    /// Makes a completion queue.
    pub const CREATE_COMPLETION_QUEUE: u32 = 6;
    /// Destroys a completion queue.
    pub const DESTROY_COMPLETION_QUEUE: u32 = 8;
    /// Makes a queue pair.
    pub const CREATE_QUEUE_PAIR: u32 = 9;
    /// Changes a queue pair.
    pub const MODIFY_QUEUE_PAIR: u32 = 10;
    /// Destroys a queue pair.
    pub const DESTROY_QUEUE_PAIR: u32 = 12;
    /// Makes a context.
    pub const CREATE_CONTEXT: u32 = 13;
    /// Destroys a context.
    pub const DESTROY_CONTEXT: u32 = 14;
    /// Gives the port an address.
    pub const CREATE_BIND: u32 = 15;
    /// Makes a shared receive queue.
    pub const CREATE_SHARED_RECEIVE_QUEUE: u32 = 17;
    /// Changes a shared receive queue.
    pub const MODIFY_SHARED_RECEIVE_QUEUE: u32 = 18;
    /// Destroys a shared receive queue.
    pub const DESTROY_SHARED_RECEIVE_QUEUE: u32 = 20;

    /// In the header of an answer: that it is one.
    pub const ANSWER: u32 = 1 << 31;
}

/// What requests do.
pub mod opcode {
    /// RDMA Write.
    pub const RDMA_WRITE: u32 = 0;
    /// Send.
    pub const SEND: u32 = 2;
    /// RDMA Read.
    pub const RDMA_READ: u32 = 4;
}

/// How requests are done.
pub mod send_flag {
    /// After RDMA Reads before it.
    pub const FENCE: u32 = 1 << 0;
    /// With a completion.
    pub const SIGNALLED: u32 = 1 << 1;
    /// With a solicited completion at the peer.
    pub const SOLICITED: u32 = 1 << 2;
}

/// Rights.
pub mod access {
    /// This side's messages may be put there.
    pub const LOCAL_WRITE: u32 = 1 << 0;
    /// Peers may write.
    pub const REMOTE_WRITE: u32 = 1 << 1;
    /// Peers may read.
    pub const REMOTE_READ: u32 = 1 << 2;
}

/// Attributes of queue pairs.
pub mod attribute {
    /// The state.
    pub const STATE: u32 = 1 << 0;
    /// Rights of peers.
    pub const ACCESS: u32 = 1 << 3;
    /// The partition.
    pub const PARTITION: u32 = 1 << 4;
    /// The port.
    pub const PORT: u32 = 1 << 5;
    /// The way.
    pub const WAY: u32 = 1 << 7;
    /// The largest packet.
    pub const PACKET: u32 = 1 << 8;
    /// How long to wait.
    pub const TIMEOUT: u32 = 1 << 9;
    /// How often to try again.
    pub const RETRIES: u32 = 1 << 10;
    /// The same where the peer had no buffer.
    pub const NOT_READY_RETRIES: u32 = 1 << 11;
    /// Numbers of packets coming in.
    pub const RECEIVE_NUMBER: u32 = 1 << 12;
    /// RDMA Reads going out.
    pub const READS_OUT: u32 = 1 << 13;
    /// How long a peer without buffer waits.
    pub const NOT_READY_TIMER: u32 = 1 << 15;
    /// Numbers of packets going out.
    pub const SEND_NUMBER: u32 = 1 << 16;
    /// RDMA Reads coming in.
    pub const READS_IN: u32 = 1 << 17;
    /// The queue pair at the peer.
    pub const PEER: u32 = 1 << 20;
}

/// States of queue pairs.
pub mod state {
    /// Takes receives.
    pub const INITIALISED: u32 = 1;
    /// Hears its peer.
    pub const READY_TO_RECEIVE: u32 = 2;
    /// Speaks.
    pub const READY_TO_SEND: u32 = 3;
    /// Flushes.
    pub const ERROR: u32 = 6;
}

/// How requests and receives end.
pub mod status {
    /// Well.
    pub const SUCCESS: u32 = 0;
    /// The message is longer than its buffer.
    pub const LOCAL_LENGTH: u32 = 1;
    /// The queue pair cannot do it.
    pub const LOCAL_OPERATION: u32 = 2;
    /// A key or a range of this side.
    pub const LOCAL_PROTECTION: u32 = 4;
    /// The queue pair was in error.
    pub const FLUSHED: u32 = 5;
    /// The answer made no sense.
    pub const BAD_RESPONSE: u32 = 7;
    /// A receive could not be filled.
    pub const LOCAL_ACCESS: u32 = 8;
    /// The peer did not understand the request.
    pub const REMOTE_INVALID: u32 = 9;
    /// A key or a range of the peer.
    pub const REMOTE_ACCESS: u32 = 10;
    /// The peer failed.
    pub const REMOTE_OPERATION: u32 = 11;
    /// No answer.
    pub const RETRIES: u32 = 12;
    /// The peer had no buffer.
    pub const NOT_READY: u32 = 13;
    /// The peer gave up.
    pub const REMOTE_ABORTED: u32 = 16;
    /// The device failed at it.
    pub const FATAL: u32 = 19;
    /// The device does not say how.
    pub const GENERAL: u32 = 21;
}

/// Kinds of events of objects.
pub mod notice {
    /// A completion queue overran or failed.
    pub const COMPLETION_QUEUE_FAILED: u32 = 0;
    /// A queue pair failed, by itself, by a request or by an access of its peer: the first and the last of them.
    pub const QUEUE_PAIR_FAILED: core::ops::RangeInclusive<u32> = 1..=3;
    /// The device failed.
    pub const DEVICE_FAILED: u32 = 8;
    /// A shared receive queue failed.
    pub const SHARED_FAILED: u32 = 14;
    /// A shared receive queue has fewer buffers than its limit.
    pub const SHARED_LIMIT: u32 = 15;
}

/// The opcode of the completion of a receive; those below are of requests.
pub const RECEIVED: u32 = 1 << 7;
/// The opcode of a write of a peer that took a receive.
pub const RECEIVED_WRITE: u32 = RECEIVED + 1;
/// The kind of queue pairs that are connected and reliable.
pub const RELIABLE: u32 = 2;
/// The kind of shared receive queues that have nothing special.
pub const BASIC: u32 = 0;
/// Of a shared receive queue: its limit.
pub const SHARED_LIMIT: u32 = 1 << 1;
/// The kind of addresses of one network (RoCE v1).
pub const LOCAL: u32 = 1 << 0;
/// The kind of addresses that were made from those of the internet (RoCE v2).
pub const ROUTABLE: u32 = 1 << 1;
/// The mode of a device on Ethernet (RoCE).
pub const ETHERNET: u32 = 0;
/// A port that is in no virtual network.
pub const NO_NETWORK: u32 = 0xFFF;

impl Capabilities {
    /// The kind of addresses that the port of a device of this version is given: routable ones if it has them. `None` if the device
    /// is not on Ethernet, or has neither kind.
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

/// Bytes of a request in its ring: a power of two.
#[must_use]
pub const fn request_stride(segments: u32) -> u32 {
    let bytes = (Request::WORDS as u32 * 4).saturating_add(segments.saturating_mul(16));
    bytes.next_power_of_two()
}

/// Bytes of a receive in its ring: a power of two.
#[must_use]
pub const fn receive_stride(segments: u32) -> u32 {
    let bytes = (Receive::WORDS as u32 * 4).saturating_add(segments.saturating_mul(16));
    bytes.next_power_of_two()
}

/// Bytes of a completion.
pub const ENTRY_BYTES: u32 = Entry::WORDS as u32 * 4;

/// Bytes within the page of a ring's state.
pub mod ring_state {
    /// Where the producer of the ring of requests is.
    pub const SEND: u32 = 0;
    /// Where the producer of the ring of receives, completions, notices or events is; its consumer comes behind it.
    pub const RECEIVE: u32 = 8;
    /// Bytes from a producer to its consumer.
    pub const CONSUMER: u32 = 4;
}

/// Most pages that a directory with one table leads to.
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
