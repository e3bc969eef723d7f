//! Shared receive queues with their buffers.

use std::fmt;
use std::sync::Arc;

use dat_core::attributes::SrqAttributes;
use dat_core::flags::DtoStatus;
use dat_core::id::SrqId;

use super::zone::Zone;
use crate::error::Result;
use crate::flight::{BufferQueue, Effects, Guard, Lent, Outcome, Owner, Span};
use crate::memory::{Domain, Slot, slots};

/// A shared receive queue (SRQ) with its buffers, for any number of endpoints.
///
/// Endpoints share only the buffers. Each returns its own messages, by
/// [`Endpoint::next_message`](crate::Endpoint::next_message). Endpoints that receive from the queue
/// are made with [`Connecting::receive`](crate::Connecting::receive) and
/// [`Accepting::receive`](crate::Accepting::receive). Clones are the same queue, which stays until
/// its last endpoint and message is dropped.
///
/// ```
/// use dat_host::{Adapter, Listener, Request, Result, SharedReceive, Zone};
///
/// /// Serves each client on a thread, until the adapter is closed.
/// fn serve(zone: &Zone, listener: &Listener, queue: &SharedReceive) {
///     while let Ok(request) = listener.next().wait() {
///         let (zone, queue) = (zone.clone(), queue.clone());
///         std::thread::spawn(move || {
///             let error = answer(&zone, &queue, request).unwrap_err();
///             println!("a client has left: {error}");
///         });
///     }
/// }
///
/// /// Sends each message back, until the connection ends.
/// fn answer(zone: &Zone, queue: &SharedReceive, request: Request) -> Result<()> {
///     let client = request.accept().receive(queue).wait()?;
///     loop {
///         let message = client.next_message().wait()?;
///         let answer = zone.copy(&message)?;
///         // The buffer is posted again.
///         drop(message);
///         client.send(answer).wait()?;
///     }
/// }
///
/// fn main() -> Result<()> {
///     let adapter = Adapter::open("mock://queue")?;
///     let zone = adapter.zone()?;
///     let queue = zone.shared_receive(256, 4096)?;
///     let listener = zone.listen(7174)?;
///     let server = std::thread::spawn({
///         let zone = zone.clone();
///         move || serve(&zone, &listener, &queue)
///     });
///     let client = zone.connect("queue:7174").wait()?;
///     let answer = client.recv(zone.buffer(4096)?);
///     client.send(zone.copy(b"hello")?).wait()?;
///     assert_eq!(&answer.wait()?.memory[..], b"hello");
///     adapter.close();
///     server.join().expect("the thread does not panic");
///     Ok(())
/// }
/// ```
///
/// # Buffers
/// All buffers are posted, except those that the program holds as [`Message`](crate::Message)s and
/// those of messages that nobody has taken yet. If none is left, all clients wait. So take the
/// messages of each endpoint, or drop the endpoint. Make as many buffers as there are messages at a
/// time: the number of clients, times the messages that a client sends before it waits for an
/// answer.
///
/// A message that is longer than a buffer breaks its connection. The Send fails with
/// [`Failed(RemoteResponder)`](crate::Error::Failed), and `next_message` of the receiver with
/// [`Connection(Broken)`](crate::Error::Connection). The buffer is not lost, and the other
/// connections go on.
#[derive(Clone)]
pub struct SharedReceive {
    pub(crate) buffers: Arc<SharedBuffers>,
    _guard: Arc<Guard>,
}

impl SharedReceive {
    pub(crate) fn new(zone: &Zone, count: usize, size: usize) -> Result<Self> {
        Ok(Self {
            buffers: SharedBuffers::new(&zone.domain, count, size)?,
            _guard: Arc::clone(&zone.guard),
        })
    }

    /// Returns the shared receive queue of the core.
    pub fn id(&self) -> SrqId {
        self.buffers.id()
    }

    /// Returns the number of buffers.
    pub fn count(&self) -> usize {
        self.buffers.count
    }

    /// Returns the size of a buffer in bytes, the maximum length of a message.
    pub fn size(&self) -> usize {
        self.buffers.size
    }
}

impl fmt::Debug for SharedReceive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceive")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

/// The queue itself, which its endpoints and messages keep.
pub(crate) struct SharedBuffers {
    domain: Arc<Domain>,
    srq: SrqId,
    count: usize,
    size: usize,
}

impl SharedBuffers {
    fn new(domain: &Arc<Domain>, count: usize, size: usize) -> Result<Arc<Self>> {
        let attributes = SrqAttributes {
            max_recv_dtos: i32::try_from(count).unwrap_or(i32::MAX),
            max_recv_iov: 1,
            low_watermark: 0,
        };
        let srq = domain
            .adapter()
            .interface()
            .srq_create(domain.id(), &attributes)?;
        // Frees the queue if the rest fails.
        let this = Arc::new(Self {
            domain: Arc::clone(domain),
            srq,
            count,
            size,
        });
        let slots = slots(domain, count, size)?;
        domain
            .adapter()
            .add_queue(srq, Arc::<Self>::downgrade(&this));
        for slot in slots {
            this.try_post(slot)?;
        }
        Ok(this)
    }

    pub(crate) const fn id(&self) -> SrqId {
        self.srq
    }

    /// Posts a buffer; frees it if the adapter is closed or the device refuses.
    pub(crate) fn post(&self, slot: Box<Slot>) {
        // The queue is then shorter by one buffer.
        let _ = self.try_post(slot);
    }

    fn try_post(&self, slot: Box<Slot>) -> dat_core::Result<()> {
        let segment = slot.segment(slot.capacity());
        let posted = self.domain.adapter().post(
            Owner::Shared(self.srq),
            Lent::new(slot, 0, 0),
            Span::none(),
            |interface, cookie| interface.srq_post_recv(self.srq, &[segment], cookie),
        );
        posted.map(|_| ()).map_err(|(error, _)| error)
    }
}

impl BufferQueue for SharedBuffers {
    fn post_again(&self, buffer: Lent) {
        self.post(buffer.take());
    }
}

impl Drop for SharedBuffers {
    fn drop(&mut self) {
        let adapter = self.domain.adapter();
        if adapter.is_inherited() {
            return;
        }
        // Fails only if the adapter is closed: endpoints keep the queue.
        let _ = adapter.interface().srq_free(self.srq);
        let outcome = Outcome::Completed(DtoStatus::Flushed, 0);
        let owner = Some(Owner::Shared(self.srq));
        adapter.table().end_all(owner, outcome, Effects::run);
    }
}
