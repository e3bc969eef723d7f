//! Send queues.

use dat_core::backend::{
    BindRequest, QueuePairRequest, Rejected, Segment, SendFlags, SendOperation, SendQueue,
    SendRequest, WorkQueue, WorkSlot,
};

use super::defs::{Request, doorbell, opcode, send_flag};
use super::pages::Held;
use super::ring::WorkRing;
use super::slots::HeldSlots;
use crate::hal::Hal;
use crate::words::RegisterWords;

/// The send queue of a queue pair.
#[derive(Debug)]
pub struct PvrdmaSendQueue<'s, H, W> {
    pub(crate) request: QueuePairRequest,
    pub(crate) held: Held,
    pub(crate) held_slots: HeldSlots,
    pub(crate) work: WorkRing<'s, H, W>,
}

/// A reserved place of a send queue.
#[derive(Debug)]
pub struct PvrdmaSendSlot<'a, 's, H, W> {
    work: &'a mut WorkRing<'s, H, W>,
    segments: u32,
}

impl<H: Hal, W: RegisterWords> WorkSlot for PvrdmaSendSlot<'_, '_, H, W> {
    type Request = SendRequest;

    #[inline(always)]
    fn segment(&mut self, segment: Segment) {
        self.work.ring.piece(self.segments, segment);
        self.segments = self.segments.wrapping_add(1);
    }

    #[inline(always)]
    fn commit(self, request: &SendRequest) -> Result<(), Rejected> {
        let Self { work, segments } = self;
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
            segments,
            length: request.length,
            opcode,
            flags,
            extra: [0; 2],
            address,
            key,
            other: [0; 9],
        };
        work.post(&header, request.token, 1);
        Ok(())
    }
}

impl<'s, H: Hal, W: RegisterWords> WorkQueue for PvrdmaSendQueue<'s, H, W> {
    type Request = SendRequest;
    type Slot<'a>
        = PvrdmaSendSlot<'a, 's, H, W>
    where
        Self: 'a;

    #[inline(always)]
    fn reserve(&mut self, segments: usize) -> Option<PvrdmaSendSlot<'_, 's, H, W>> {
        self.work.has_room(segments).then_some(PvrdmaSendSlot {
            work: &mut self.work,
            segments: 0,
        })
    }

    #[inline(always)]
    fn ring(&mut self) -> Result<(), u32> {
        self.work.tell(doorbell::SEND);
        Ok(())
    }
}

impl<H: Hal, W: RegisterWords> SendQueue for PvrdmaSendQueue<'_, H, W> {
    fn bind(&mut self, _request: &BindRequest) -> Result<u32, Rejected> {
        // There are no windows to bind.
        Err(Rejected)
    }
}
