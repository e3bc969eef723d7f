//! The echo of a client's messages.

use dat_core::event::Wait;
use dat_core::flags::CompletionFlags;
use dat_core::id::EpId;

use super::open_adapter::OpenAdapter;
use super::session::SessionOver;
use crate::host::{HostBackend, Registered};

/// One echo out of this many completes with an event.
pub(super) const UNSIGNALLED: u64 = 8;

/// The messages of an echo session, and their buffers.
pub(super) struct Echo {
    buffers: Registered,
    size: usize,
    depth: u64,
    count: u64,
    /// The receive buffers of recent messages, indexed by message number modulo the length.
    order: Vec<usize>,
}

impl Echo {
    /// Creates the state of a session with `count` buffers of `size` bytes.
    pub(super) fn new(buffers: Registered, size: usize, depth: u64, count: usize) -> Self {
        Self {
            buffers,
            size,
            depth,
            count: 0,
            order: vec![0; count],
        }
    }

    /// Sends a message back from the buffer that received it.
    ///
    /// Then posts a receive into the buffer of the message that came `depth` messages earlier. The
    /// client has at most `depth` messages under way, so it has received that echo.
    pub(super) fn send_back<B: HostBackend, W: Wait>(
        &mut self,
        adapter: &OpenAdapter<B, W>,
        ep: EpId,
        buffer: usize,
        length: u64,
    ) -> Result<(), SessionOver> {
        let length = usize::try_from(length).map_err(|_| SessionOver)?;
        let slots = self.order.len() as u64;
        if let Some(old) = self.count.checked_sub(self.depth) {
            let free = *self.order.get((old % slots) as usize).ok_or(SessionOver)?;
            let segments = [self.buffers.segment(free * self.size, self.size)];
            adapter
                .ia
                .post_recv(ep, &segments, free as u64, CompletionFlags::empty())
                .map_err(|_| SessionOver)?;
        }
        let number = (self.count % slots) as usize;
        *self.order.get_mut(number).ok_or(SessionOver)? = buffer;
        self.count += 1;
        let flags = if self.count.is_multiple_of(UNSIGNALLED) {
            CompletionFlags::empty()
        } else {
            CompletionFlags::SUPPRESS
        };
        let segments = [self.buffers.segment(buffer * self.size, length)];
        adapter
            .ia
            .post_send(ep, &segments, 0, flags)
            .map_err(|_| SessionOver)
    }
}
