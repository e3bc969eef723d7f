//! Send queues.

use dat_core::backend::{
    BindRequest, QueuePairRequest, Rejected, Segment, SendFlags, SendOperation, SendQueue,
    SendRequest, WorkQueue, WorkSlot,
};

use super::pages::PageRun;
use super::slot_allocator::SlotRun;
use super::work_ring::WorkRing;
use crate::defs::pvrdma::{Request, doorbell, opcode, send_flag};
use crate::platform::{Hal, RegisterWords};
use crate::ring::maintenance::before_read;

/// The send queue of a queue pair.
#[derive(Debug)]
pub struct PvrdmaSendQueue<'s, H, W> {
    pub(crate) request: QueuePairRequest,
    pub(crate) page_run: PageRun,
    pub(crate) slot_run: SlotRun,
    pub(crate) work: WorkRing<'s, H, W>,
}

/// A reserved slot of a send queue.
#[derive(Debug)]
pub struct PvrdmaSendSlot<'a, 's, H, W> {
    work: &'a mut WorkRing<'s, H, W>,
    /// The beginning of the descriptor, which lacks its length.
    header: Request,
    token: u64,
}

impl<H: Hal, W: RegisterWords> WorkSlot for PvrdmaSendSlot<'_, '_, H, W> {
    #[inline]
    fn segment(&mut self, segment: Segment) {
        if !self.work.hal.is_coherent() {
            match self.header.opcode {
                opcode::RDMA_READ => self.work.before_write(self.header.segments, segment),
                _ => before_read(&self.work.hal, segment),
            }
        }
        self.work.ring.put_segment(self.header.segments, segment);
        self.header.segments = self.header.segments.wrapping_add(1);
    }

    #[inline]
    fn commit(self, length: u32) -> Result<(), Rejected> {
        let header = Request {
            length,
            ..self.header
        };
        self.work.post(&header, self.token, 1);
        Ok(())
    }
}

impl<'s, H: Hal, W: RegisterWords> WorkQueue for PvrdmaSendQueue<'s, H, W> {
    type Request = SendRequest;
    type Slot<'a>
        = PvrdmaSendSlot<'a, 's, H, W>
    where
        Self: 'a;

    #[inline]
    fn reserve(
        &mut self,
        request: &SendRequest,
        segments: usize,
    ) -> Option<PvrdmaSendSlot<'_, 's, H, W>> {
        let work = &mut self.work;
        if !work.has_room(segments) {
            return None;
        }
        work.forget_ranges();
        let (opcode, address, key) = match request.operation {
            SendOperation::Send => (opcode::SEND, 0, 0),
            SendOperation::RdmaWrite(range) => (opcode::RDMA_WRITE, range.address, range.key),
            SendOperation::RdmaRead(range) => (opcode::RDMA_READ, range.address, range.key),
        };
        let mut flags = send_flag::SIGNALLED;
        if request.flags.contains(SendFlags::FENCE) {
            flags |= send_flag::FENCE;
        }
        if request.flags.contains(SendFlags::SOLICITED) {
            flags |= send_flag::SOLICITED;
        }
        let header = Request {
            token: work.next_name(),
            segments: 0,
            length: 0,
            opcode,
            flags,
            extra: [0; 2],
            address,
            key,
            other: [0; 9],
        };
        Some(PvrdmaSendSlot {
            work,
            header,
            token: request.token,
        })
    }

    #[inline]
    fn ring(&mut self) -> Result<(), u32> {
        self.work.ring_doorbell(doorbell::SEND);
        Ok(())
    }
}

impl<H: Hal, W: RegisterWords> SendQueue for PvrdmaSendQueue<'_, H, W> {
    fn bind(&mut self, _request: &BindRequest) -> Result<u32, Rejected> {
        // There are no windows to bind.
        Err(Rejected)
    }
}
