//! Objects for tests, on a device of the model of the libraries.

use core::ops::Deref;
use std::sync::Arc;

use dat_core::backend::{DomainKey, Registration};
use dat_core::flags::MemoryPrivileges;
use verbs_model::{Found, SCRIPTED, Script, opened};

use super::events::{CQ_ERR, DEVICE_FATAL, QP_FATAL, SRQ_LIMIT_REACHED};
use super::{
    Access, AsyncEvent, CompletionChannel, CompletionQueue, Context, Domain, QueuePair,
    QueuePairPlan, ReceiveList, Region, SendList, WorkCompletion,
};

/// A kind of event that no adapter handles.
const PORT_ERR: u32 = 10;

/// An open device with a domain and a completion queue.
pub(crate) struct BedDevice {
    script: Arc<Script>,
    completion_queue: Arc<CompletionQueue>,
    domain: Arc<Domain>,
    context: Arc<Context>,
}

impl Deref for BedDevice {
    type Target = Script;

    fn deref(&self) -> &Script {
        &self.script
    }
}

impl BedDevice {
    pub(crate) fn new() -> Self {
        Self::with_completions(1024)
    }

    /// Makes a device whose completion queue holds `depth` completions.
    pub(crate) fn with_completions(depth: i32) -> Self {
        let context = Arc::new(Context::open(SCRIPTED).expect("a device"));
        let channel = Arc::new(CompletionChannel::new(&context).expect("descriptors"));
        let queue = CompletionQueue::new(&channel, 1, depth).expect("a queue");
        Self {
            script: opened(),
            completion_queue: Arc::new(queue),
            domain: Arc::new(Domain::new(&context).expect("a domain")),
            context,
        }
    }

    /// Returns its completion queue.
    pub(crate) fn completion_queue(&self) -> Arc<CompletionQueue> {
        Arc::clone(&self.completion_queue)
    }

    /// Returns the domain of regions and windows.
    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Makes another domain of the same device.
    pub(crate) fn another_domain(&self) -> Arc<Domain> {
        Arc::new(Domain::new(&self.context).expect("a domain"))
    }

    /// Makes a region.
    pub(crate) fn region(&self) -> Region {
        static BYTES: [core::sync::atomic::AtomicU8; 64] =
            [const { core::sync::atomic::AtomicU8::new(0) }; 64];
        let memory = dat_core::memory::Region::from_static(&BYTES);
        let (all, none) = (MemoryPrivileges::ALL, MemoryPrivileges::empty());
        let registration = Registration::new(DomainKey(0), &memory, all);
        let access = Access::of_region(none, true, false);
        Region::register(&self.domain, &registration, access).expect("a region")
    }

    fn queue_pair(&self, depth: u32, segments: u32, inline: u32) -> Arc<QueuePair> {
        let pair = QueuePair::new(&QueuePairPlan {
            number: 1,
            domain: &self.domain,
            request_queue: &self.completion_queue,
            receive_queue: &self.completion_queue,
            shared: None,
            requests: depth,
            receives: depth,
            request_segments: segments,
            receive_segments: segments,
            inline,
            port: 1,
            one_partition: false,
            atomics: false,
        });
        Arc::new(pair.expect("a queue pair"))
    }

    /// Makes a send list on a queue pair of its own.
    pub(crate) fn send_list(&self, depth: u32, segments: u32) -> SendList {
        self.carrying_list(depth, segments, 0)
    }

    /// As `send_list`, with `inline` bytes of inline data.
    pub(crate) fn carrying_list(&self, depth: u32, segments: u32, inline: u32) -> SendList {
        let pair = self.queue_pair(depth, segments, inline);
        SendList::new(pair, depth, segments).expect("it takes requests")
    }

    /// Makes a receive list on a queue pair of its own.
    pub(crate) fn receive_list(&self, depth: u32, segments: u32) -> ReceiveList {
        let pair = self.queue_pair(depth, segments, 0);
        ReceiveList::for_queue_pair(pair, depth, segments).expect("it takes receives")
    }

    /// Queues a completion.
    pub(crate) fn complete(&self, completion: WorkCompletion) {
        self.script.complete(found(completion));
    }

    /// Queues a completion at the next arming.
    pub(crate) fn slip_in(&self, completion: WorkCompletion) {
        self.script.slip_in(found(completion));
    }
}

fn found(completion: WorkCompletion) -> Found {
    Found {
        token: completion.token,
        status: completion.status,
        opcode: completion.opcode,
        length: completion.length,
        pair: completion.queue_pair,
    }
}

/// Reports an event of the device.
pub(crate) fn report(script: &Script, event: AsyncEvent) {
    match event {
        AsyncEvent::CompletionQueueFailed(number) => script.report(CQ_ERR, number),
        AsyncEvent::QueuePairFailed(number) => script.report(QP_FATAL, number),
        AsyncEvent::SharedReceiveLimit(number) => script.report(SRQ_LIMIT_REACHED, number),
        AsyncEvent::DeviceFailed => script.report(DEVICE_FATAL, 0),
        _ => script.report(PORT_ERR, 0),
    }
}
