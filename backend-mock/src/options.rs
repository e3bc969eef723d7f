//! Options of a fabric and its adapters.

use core::ops::RangeInclusive;

use dat_core::attributes::IaAddress;
use dat_core::backend::Extensions;

use crate::fault::FaultPlan;

/// Order in which endpoints get the buffers of a shared receive queue.
///
/// Both orders are legal (`Spec: SRC-05`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BufferOrder {
    /// The order of posting.
    #[default]
    Posted,
    /// A choice of the seed from the eight oldest buffers.
    Seeded,
}

/// Options of a fabric; times are microseconds of virtual time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricOptions {
    /// Seed of all choices that the rules leave open.
    ///
    /// These are the order of independent actions, times within the ranges, and the winner of
    /// unsynchronised accesses.
    pub seed: u64,
    /// Latency between two hosts, for requests and for answers.
    pub latency: RangeInclusive<u64>,
    /// Time from the first byte of a message to its last.
    ///
    /// The message holds a receive buffer meanwhile.
    pub receive_latency: RangeInclusive<u64>,
    /// Additional latency of an RDMA Read; later requests without a fence overtake it.
    pub read_latency: RangeInclusive<u64>,
    /// Duration of a window bind.
    pub bind_latency: RangeInclusive<u64>,
    /// True if the seed orders simultaneous actions; otherwise the oldest goes first.
    pub shuffle: bool,
    /// Order of the buffers of shared receive queues.
    pub buffer_order: BufferOrder,
    /// Time that a sender waits for an answer before it retries.
    pub retry_interval: u64,
    /// Number of retries before the sender reports a transport error.
    pub retries: u32,
    /// Time that a sender waits if the peer has no receive buffer.
    pub receiver_not_ready_interval: u64,
    /// Number of such waits before the sender reports the error.
    pub receiver_not_ready_retries: u32,
    /// Time that an accepting side waits for the connection to be established.
    pub handshake_timeout: u64,
    /// True if a poll that finds nothing performs the next action.
    ///
    /// This holds for polls of completion queues and of control events. A program that only polls
    /// then runs without stepping the fabric.
    pub poll_steps: bool,
    /// Faults of the run.
    pub faults: FaultPlan,
}

impl Default for FabricOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            latency: 1..=3,
            receive_latency: 0..=2,
            read_latency: 0..=0,
            bind_latency: 0..=2,
            shuffle: true,
            buffer_order: BufferOrder::Posted,
            retry_interval: 100,
            retries: 7,
            receiver_not_ready_interval: 50,
            receiver_not_ready_retries: 6,
            handshake_timeout: 1_000_000,
            poll_steps: false,
            faults: FaultPlan::default(),
        }
    }
}

impl FabricOptions {
    /// Returns options without latencies, for measurements of everything else.
    ///
    /// An operation that moves in one piece is one action.
    #[must_use]
    pub fn immediate() -> Self {
        Self {
            latency: 0..=0,
            receive_latency: 0..=0,
            bind_latency: 0..=0,
            shuffle: false,
            ..Self::default()
        }
    }
}

/// Limits of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Protection domains.
    pub domains: u32,
    /// Regions.
    pub regions: u32,
    /// Memory windows.
    pub windows: u32,
    /// Completion queues; their numbers have 16 bits.
    pub completion_queues: u32,
    /// Completions per queue.
    pub completions: u32,
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Pending requests per send queue, and buffers per receive queue.
    pub work_requests: u32,
    /// Segments per request.
    pub segments: u32,
    /// Shared receive queues.
    pub shared_receive_queues: u32,
    /// Buffers per shared receive queue.
    pub shared_buffers: u32,
    /// Pending RDMA Reads, per queue pair and direction.
    pub rdma_reads: u32,
    /// Bytes of private data.
    pub private_data: u32,
    /// Connection requests that wait for an answer, per listener; further ones are refused.
    pub backlog: u32,
    /// Connection qualifiers that the adapter can choose itself.
    pub dynamic_qualifiers: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            domains: 1024,
            regions: 1 << 20,
            windows: 1 << 20,
            completion_queues: 1 << 17,
            completions: 1 << 20,
            queue_pairs: 1 << 17,
            work_requests: 1 << 14,
            segments: 64,
            shared_receive_queues: 1024,
            shared_buffers: 1 << 20,
            rdma_reads: 128,
            private_data: 256,
            backlog: 128,
            dynamic_qualifiers: 16_384,
        }
    }
}

/// Options of an adapter, and of its host if it is the host's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeOptions {
    /// Name of the adapter.
    pub name: &'static str,
    /// Address of the adapter.
    ///
    /// Adapters with the same address, except its port, are on one host and share its connection
    /// qualifiers.
    pub address: IaAddress,
    /// True if device and processor always see the same memory.
    ///
    /// The first adapter of a host decides.
    pub coherent: bool,
    /// True if a non-coherent adapter keeps posted buffers coherent by itself, as providers do.
    ///
    /// Otherwise it is a device, whose driver maintains the caches. The first adapter of a host
    /// decides.
    pub maintains_buffers: bool,
    /// True if the adapter has memory windows.
    pub memory_windows: bool,
    /// True if the adapter reports the number of buffers in a shared receive queue.
    pub shared_receive_information: bool,
    /// True if the adapter reports the number of buffers that a queue pair holds.
    pub receive_information: bool,
    /// Supported operations beyond the interface.
    pub extensions: Extensions,
    /// Limits of the adapter.
    pub limits: Limits,
}

impl NodeOptions {
    /// Returns options of a coherent adapter at [`IaAddress::Node`] of this number.
    ///
    /// It supports all of the interface, and nothing beyond it.
    #[must_use]
    pub fn new(name: &'static str, number: u64) -> Self {
        Self {
            name,
            address: IaAddress::Node(number),
            coherent: true,
            maintains_buffers: true,
            memory_windows: true,
            shared_receive_information: true,
            receive_information: true,
            extensions: Extensions::empty(),
            limits: Limits::default(),
        }
    }

    /// Adds all operations beyond the interface.
    #[must_use]
    pub fn extended(self) -> Self {
        Self {
            extensions: Extensions::all(),
            ..self
        }
    }

    /// Makes the host non-coherent: device and processor see different memory (`Spec: LSW-04`).
    #[must_use]
    pub fn non_coherent(self) -> Self {
        Self {
            coherent: false,
            ..self
        }
    }
}
