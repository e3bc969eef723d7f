//! The queues of the mmio driver, called as the core calls them.

use backend_mmio::mlx5::{
    MmioCompletionQueue, MmioReceiveQueue, MmioSendQueue, MmioSharedReceiveQueue,
};
use backend_mmio::{CoherentHal, MappedRegisters};
use dat_core::backend::{
    Armed, BindRequest, Completion, CompletionQueue, DeviceFailure, Peek, ReceiveRequest, Rejected,
    Segment, SendQueue, SendRequest, WorkQueue,
};

/// The send queue type that instantiates the calls.
pub type Sends = MmioSendQueue<'static, CoherentHal, MappedRegisters>;
/// The receive queue type.
pub type Receives = MmioReceiveQueue<'static, CoherentHal>;
/// The shared receive queue type.
pub type SharedReceives = MmioSharedReceiveQueue<'static, CoherentHal>;
/// The completion queue type.
pub type Completions = MmioCompletionQueue<'static, CoherentHal, MappedRegisters>;

/// Posts a send request.
#[unsafe(no_mangle)]
pub fn entry_mmio_send(
    queue: &mut Sends,
    segments: &[Segment],
    request: &SendRequest,
) -> Result<(), Rejected> {
    queue.post(request, segments)
}

/// Posts a bind.
#[unsafe(no_mangle)]
pub fn entry_mmio_bind(queue: &mut Sends, request: &BindRequest) -> Result<u32, Rejected> {
    queue.bind(request)
}

/// Posts a receive.
#[unsafe(no_mangle)]
pub fn entry_mmio_receive(
    queue: &mut Receives,
    segments: &[Segment],
    request: &ReceiveRequest,
) -> Result<(), Rejected> {
    queue.post(request, segments)
}

/// Posts a buffer to a shared receive queue.
#[unsafe(no_mangle)]
pub fn entry_mmio_shared_receive(
    queue: &mut SharedReceives,
    segments: &[Segment],
    request: &ReceiveRequest,
) -> Result<(), Rejected> {
    queue.post(request, segments)
}

/// [`CompletionQueue::poll`].
#[unsafe(no_mangle)]
pub fn entry_mmio_poll(queue: &mut Completions) -> Result<Option<Completion>, DeviceFailure> {
    queue.poll()
}

/// [`CompletionQueue::peek`].
#[unsafe(no_mangle)]
pub fn entry_mmio_peek(queue: &mut Completions) -> Peek {
    queue.peek()
}

/// [`CompletionQueue::skip`].
#[unsafe(no_mangle)]
pub fn entry_mmio_skip(queue: &mut Completions) {
    queue.skip();
}

/// [`CompletionQueue::arm`].
#[unsafe(no_mangle)]
pub fn entry_mmio_arm(queue: &mut Completions, solicited_only: bool) -> Armed {
    queue.arm(solicited_only)
}
