//! An idle adapter on the mlx5 layout.
//!
//! It records what the driver creates and connects when it is asked to. Its user writes
//! completions, and reads what the driver wrote.
#![no_std]
#![expect(unsafe_code, reason = "the device accesses no memory")]

#[cfg(feature = "std")]
extern crate std;

#[cfg(feature = "std")]
pub mod bed;

use core::marker::PhantomData;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};

use backend_mmio::DmaView;
use backend_mmio::cm::ConnectionManager;
use backend_mmio::defs::mlx5::{Completion, CompletionKind, CompletionTail, Opcode, Syndrome};
use backend_mmio::mlx5::{
    CompletionQueueSpec, Control, CreatedQueuePair, DeviceEvent, Limits, QueuePairSpec,
    SharedReceiveQueueSpec,
};
use dat_core::attributes::IaAddress;
use dat_core::backend::{
    BackendError, ConnectRequest, ControlEvent, DisconnectMode, ListenerKey, PrivateData,
    RegionKeys, Registration, RequestKey,
};
use dat_core::sync::Word64;
use dat_core::time::Instant;

/// The limits of a device, known to the compiler as those of a driver's own device are.
pub trait Kind {
    /// The limits.
    const LIMITS: Limits;
}

/// A device with one queue pair.
#[derive(Debug)]
pub struct One;

impl Kind for One {
    const LIMITS: Limits = LIMITS;
}

/// Limits of a device with one queue pair.
pub const LIMITS: Limits = Limits {
    name: "idle",
    domains: 1,
    regions: 1,
    windows: 1,
    completion_queues: 8,
    completions: 256,
    queue_pairs: 1,
    work_requests: 64,
    segments: 4,
    shared_receive_queues: 0,
    shared_buffers: 0,
    rdma_reads: 4,
    transfer: u64::MAX,
    inline: 0,
};

/// Objects that the device created, and its next event.
///
/// Loads and stores suffice, as one thread uses it.
#[derive(Debug)]
pub struct Made {
    /// Number of the next object.
    next: AtomicU32,
    /// Key of the newest window.
    window: AtomicU32,
    /// Ring of the newest completion queue, and the completions written to it.
    completions: AtomicU32,
    written: AtomicU32,
    /// Number, user index and rings of the newest queue pair.
    queue_pair: AtomicU32,
    user_index: AtomicU32,
    ring: AtomicU32,
    receive_units: AtomicU32,
    send_blocks: AtomicU32,
    /// Next event of the channel.
    event: AtomicU32,
    /// Token of the listener.
    listener: Word64,
}

/// The numbers that a completion has of its queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// The device's number.
    pub queue_pair: u32,
    /// The driver's number.
    pub user_index: u32,
}

/// The rings of a queue pair, that of receives first.
#[derive(Clone, Copy, Debug)]
pub struct Rings {
    /// Bus address.
    pub address: u64,
    /// Units of the receive queue.
    pub receive_units: u32,
    /// Blocks of the send queue.
    pub send_blocks: u32,
}

const NOTHING: u32 = 0;
const REQUESTED: u32 = 1;
const ESTABLISHED: u32 = 2;
const DISCONNECTED: u32 = 3;

impl Made {
    /// Makes the state of a device without objects; the first one gets this number.
    pub const fn new(first: u32) -> Self {
        Self {
            next: AtomicU32::new(first),
            window: AtomicU32::new(0),
            completions: AtomicU32::new(0),
            written: AtomicU32::new(0),
            queue_pair: AtomicU32::new(0),
            user_index: AtomicU32::new(0),
            ring: AtomicU32::new(0),
            receive_units: AtomicU32::new(0),
            send_blocks: AtomicU32::new(0),
            event: AtomicU32::new(NOTHING),
            listener: Word64::new(0),
        }
    }

    /// Returns the key of the newest window.
    pub fn window(&self) -> u32 {
        self.window.load(Ordering::Relaxed)
    }

    /// Returns the rings of the newest queue pair.
    pub fn rings(&self) -> Rings {
        Rings {
            address: u64::from(self.ring.load(Ordering::Relaxed)),
            receive_units: self.receive_units.load(Ordering::Relaxed),
            send_blocks: self.send_blocks.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of the newest queue pair.
    pub fn queue_pair(&self) -> u32 {
        self.queue_pair.load(Ordering::Relaxed)
    }

    /// Returns the numbers of the newest queue pair.
    pub fn newest(&self) -> Numbers {
        Numbers {
            queue_pair: self.queue_pair(),
            user_index: self.user_index.load(Ordering::Relaxed),
        }
    }

    /// Writes a completion of the newest queue pair, as `complete_of`.
    pub fn complete(
        &self,
        memory: &DmaView<'_>,
        entries: u32,
        kind: CompletionKind,
        index: u16,
        length: u32,
    ) {
        self.complete_of(self.newest(), memory, entries, kind, index, length);
    }

    /// Writes a completion of a queue pair to the newest completion queue.
    ///
    /// `index` is that of the descriptor, and `entries` are those of the completion queue.
    pub fn complete_of(
        &self,
        of: Numbers,
        memory: &DmaView<'_>,
        entries: u32,
        kind: CompletionKind,
        index: u16,
        length: u32,
    ) {
        let written = self.written.load(Ordering::Relaxed);
        let entry = Completion {
            user_index: of.user_index,
            length,
            syndrome: Syndrome(0),
            queue_pair: of.queue_pair,
            opcode: Opcode(0),
        };
        let ring = u64::from(self.completions.load(Ordering::Relaxed));
        let tail = CompletionTail::new(index, kind, false).in_lap(written & entries != 0);
        let words = memory
            .seen_at(ring + u64::from(written % entries) * 64, 4)
            .unwrap_or_default();
        for (word, value) in words
            .iter()
            .flatten()
            .zip(entry.encode().into_iter().chain([tail.0]))
        {
            word.store(value);
        }
        self.written
            .store(written.wrapping_add(1), Ordering::Relaxed);
    }

    fn object(&self) -> u32 {
        let number = self.next.load(Ordering::Relaxed);
        self.next
            .store(number.wrapping_add(0x100), Ordering::Relaxed);
        number & 0xFF_FFFF
    }

    fn tell(&self, event: u32) {
        self.event.store(event, Ordering::Relaxed);
    }
}

/// The record of what a device created.
pub trait Recorder: Deref<Target = Made> {
    /// Called at the start of each command.
    fn on_command(&self) {}
}

impl Recorder for &Made {}

/// The control path of the device, which records in `made` what it creates.
#[derive(Debug)]
pub struct Idle<K, M = &'static Made> {
    made: M,
    kind: PhantomData<K>,
}

impl<K: Kind, M> Idle<K, M> {
    /// Makes a device.
    pub const fn new(made: M) -> Self {
        Self {
            made,
            kind: PhantomData,
        }
    }
}

// SAFETY: it accesses no memory.
unsafe impl<K: Kind, M: Recorder> Control for Idle<K, M> {
    fn limits(&self) -> Limits {
        K::LIMITS
    }

    fn create_domain(&mut self) -> Result<u32, BackendError> {
        self.made.on_command();
        Ok(self.made.object())
    }

    fn destroy_domain(&mut self, _domain: u32) {
        self.made.on_command();
    }

    fn register(&mut self, _registration: &Registration) -> Result<RegionKeys, BackendError> {
        self.made.on_command();
        let key = self.made.object();
        Ok(RegionKeys {
            object: key as usize,
            local: key,
            remote: key,
        })
    }

    fn deregister(&mut self, _region: RegionKeys) {
        self.made.on_command();
    }

    /// The lowest byte of a key is any, as it is the driver's.
    fn create_window(&mut self, _domain: u32) -> Result<u32, BackendError> {
        self.made.on_command();
        let key = self.made.object() << 8 | 0xF0;
        self.made.window.store(key, Ordering::Relaxed);
        Ok(key)
    }

    fn destroy_window(&mut self, _key: u32) {
        self.made.on_command();
    }

    fn create_completion_queue(&mut self, spec: &CompletionQueueSpec) -> Result<u32, BackendError> {
        self.made.on_command();
        self.made
            .completions
            .store(spec.ring as u32, Ordering::Relaxed);
        self.made.written.store(0, Ordering::Relaxed);
        Ok(self.made.object())
    }

    fn move_completion_queue(&mut self, _: u32, _: u64, _: u32) -> Result<(), BackendError> {
        self.made.on_command();
        Err(BackendError::NotSupported)
    }

    fn destroy_completion_queue(&mut self, _number: u32) {
        self.made.on_command();
    }

    fn create_shared_receive_queue(
        &mut self,
        _spec: &SharedReceiveQueueSpec,
    ) -> Result<u32, BackendError> {
        self.made.on_command();
        Ok(self.made.object())
    }

    fn arm_shared_receive_limit(&mut self, _: u32, _: u32) -> Result<bool, BackendError> {
        self.made.on_command();
        Ok(false)
    }

    fn destroy_shared_receive_queue(&mut self, _number: u32) {
        self.made.on_command();
    }

    fn create_queue_pair(
        &mut self,
        spec: &QueuePairSpec,
    ) -> Result<CreatedQueuePair, BackendError> {
        self.made.on_command();
        let (made, number) = (&*self.made, self.made.object());
        let units = spec.receive_entries.wrapping_mul(spec.receive_units);
        made.user_index.store(spec.user_index, Ordering::Relaxed);
        made.queue_pair.store(number, Ordering::Relaxed);
        made.ring.store(spec.ring as u32, Ordering::Relaxed);
        made.receive_units.store(units, Ordering::Relaxed);
        made.send_blocks.store(spec.send_blocks, Ordering::Relaxed);
        Ok(CreatedQueuePair {
            number,
            doorbell: 0x800,
            takes_blocks: K::LIMITS.inline != 0,
        })
    }

    fn destroy_queue_pair(&mut self, _number: u32) {
        self.made.on_command();
    }

    fn poll(&mut self, _now: Instant) -> Option<DeviceEvent> {
        None
    }

    fn halt(&mut self) {}
}

/// The connection channel of the device: it has a request for every listener, and connects at once.
#[derive(Debug)]
pub struct Channel<M = &'static Made> {
    /// Objects that the device made.
    pub made: M,
}

impl<M: Recorder> ConnectionManager for Channel<M> {
    fn address(&self) -> IaAddress {
        IaAddress::Node(1)
    }

    fn private_data_limit(&self) -> u32 {
        16
    }

    fn listen(
        &mut self,
        token: u64,
        wanted: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError> {
        self.made.on_command();
        self.made.listener.store(token);
        self.made.tell(REQUESTED);
        Ok((ListenerKey(1), wanted.unwrap_or(1)))
    }

    fn stop_listening(&mut self, _listener: ListenerKey) {
        self.made.on_command();
    }

    fn connect(&mut self, _: u32, _: &ConnectRequest<'_>) -> Result<u64, BackendError> {
        self.made.on_command();
        self.made.tell(ESTABLISHED);
        Ok(1)
    }

    fn accept(&mut self, _: RequestKey, _: u32, _: &[u8]) -> Result<(), BackendError> {
        self.made.on_command();
        self.made.tell(ESTABLISHED);
        Ok(())
    }

    fn reject(&mut self, _request: RequestKey, _by_consumer: bool, _private_data: &[u8]) {
        self.made.on_command();
    }

    fn disconnect(&mut self, _queue_pair: u32, _mode: DisconnectMode) {
        self.made.on_command();
        self.made.tell(DISCONNECTED);
    }

    fn poll(&mut self, _now: Instant) -> Option<ControlEvent> {
        let event = self.made.event.load(Ordering::Relaxed);
        self.made.tell(NOTHING);
        let queue_pair = u64::from(self.made.queue_pair());
        Some(match event {
            REQUESTED => ControlEvent::ConnectionRequest {
                listener: self.made.listener.load(),
                request: RequestKey(1),
                remote: IaAddress::Node(2),
                remote_port: 1,
                local: IaAddress::Node(1),
                private_data: PrivateData::new(),
            },
            ESTABLISHED => ControlEvent::Established {
                queue_pair,
                private_data: PrivateData::new(),
            },
            DISCONNECTED => ControlEvent::Disconnected { queue_pair },
            _ => return None,
        })
    }
}
