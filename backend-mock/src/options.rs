//! What a fabric and its adapters are made from.

use core::ops::RangeInclusive;

use dat_core::attributes::IaAddress;
use dat_core::backend::Extensions;

use crate::fault::FaultPlan;

/// In which order endpoints get the buffers of a shared receive queue; both are legal (`Spec: SRC-05`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BufferOrder {
    /// As they were posted.
    #[default]
    Posted,
    /// As the seed wills, from among the eight that wait longest.
    Seeded,
}

/// The properties of a fabric. Times are microseconds of virtual time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricOptions {
    /// Decides whatever the rules leave open: the order of independent actions, times within the ranges, the winner of
    /// unsynchronised accesses.
    pub seed: u64,
    /// The way between two hosts, and also the way back of an answer.
    pub latency: RangeInclusive<u64>,
    /// From the first byte of a message to its last; meanwhile it holds a receive buffer.
    pub receive_latency: RangeInclusive<u64>,
    /// How long an RDMA Read takes beyond that: later requests that are not fenced overtake it.
    pub read_latency: RangeInclusive<u64>,
    /// How long a window bind takes.
    pub bind_latency: RangeInclusive<u64>,
    /// Whether the seed decides between actions that are due at the same moment; otherwise the older goes first.
    pub shuffle: bool,
    /// The order of buffers taken from shared receive queues.
    pub buffer_order: BufferOrder,
    /// How long a sender waits for an answer before it tries again.
    pub retry_interval: u64,
    /// How often it tries again before it reports a transport error.
    pub retries: u32,
    /// How long a sender waits after the peer had no receive buffer.
    pub receiver_not_ready_interval: u64,
    /// How often it tries again before it reports that.
    pub receiver_not_ready_retries: u32,
    /// How long an accepting side waits for the connection to stand.
    pub handshake_timeout: u64,
    /// Whether polling an empty completion queue, or for control events when there are none, performs the next action.
    /// With it, a program that only polls runs without stepping the fabric.
    pub poll_steps: bool,
    /// What goes wrong.
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
    /// A fabric in which nothing takes any time: each operation is one action, for measurements of everything else.
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

/// How much of everything an adapter has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Protection domains.
    pub domains: u32,
    /// Regions.
    pub regions: u32,
    /// Memory windows.
    pub windows: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Completions per queue.
    pub completions: u32,
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Requests outstanding per send queue, and buffers per receive queue.
    pub work_requests: u32,
    /// Segments per request.
    pub segments: u32,
    /// Shared receive queues.
    pub shared_receive_queues: u32,
    /// Buffers per shared receive queue.
    pub shared_buffers: u32,
    /// RDMA Reads at once, per queue pair and direction.
    pub rdma_reads: u32,
    /// Bytes of private data.
    pub private_data: u32,
    /// Connection requests that wait for an answer, per listener; more are refused.
    pub backlog: u32,
    /// Connection qualifiers the adapter can choose from itself.
    pub dynamic_qualifiers: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            domains: 1024,
            regions: 16_384,
            windows: 16_384,
            completion_queues: 4096,
            completions: 1 << 16,
            queue_pairs: 4096,
            work_requests: 1 << 14,
            segments: 64,
            shared_receive_queues: 1024,
            shared_buffers: 1 << 15,
            rdma_reads: 128,
            private_data: 256,
            backlog: 128,
            dynamic_qualifiers: 16_384,
        }
    }
}

/// The properties of one adapter, and of its host if it is the first there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeOptions {
    /// The name of the adapter.
    pub name: &'static str,
    /// Where it is; adapters of one address (ports apart) are on one host and share its connection qualifiers.
    pub address: IaAddress,
    /// Whether device and processor see the same memory at all times. Of one host the first adapter decides.
    pub coherent: bool,
    /// Whether there are memory windows.
    pub memory_windows: bool,
    /// Whether it tells how many buffers a shared receive queue holds.
    pub shared_receive_information: bool,
    /// Whether it tells how many buffers a queue pair holds.
    pub receive_information: bool,
    /// Its operations beyond the interface.
    pub extensions: Extensions,
    /// How much of everything it has.
    pub limits: Limits,
}

impl NodeOptions {
    /// A coherent adapter that can do all of the interface, and nothing beyond it, at [`IaAddress::Node`] of this number.
    #[must_use]
    pub fn new(name: &'static str, number: u64) -> Self {
        Self {
            name,
            address: IaAddress::Node(number),
            coherent: true,
            memory_windows: true,
            shared_receive_information: true,
            receive_information: true,
            extensions: Extensions::empty(),
            limits: Limits::default(),
        }
    }

    /// The same with all operations beyond the interface.
    #[must_use]
    pub fn extended(self) -> Self {
        Self {
            extensions: Extensions::all(),
            ..self
        }
    }

    /// The same on a host where device and processor do not see the same memory (`Spec: LSW-04`).
    #[must_use]
    pub fn non_coherent(self) -> Self {
        Self {
            coherent: false,
            ..self
        }
    }
}
