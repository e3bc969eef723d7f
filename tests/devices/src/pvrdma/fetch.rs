//! Reads descriptors and posts their requests to the fabric.

use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};

use backend_mmio::defs::pvrdma::{
    Notice, RECEIVED, Receive, Request, SegmentEntry, Words, notice, opcode, send_flag, state,
};
use dat_core::backend::{
    ReceiveRequest, RemoteRange, Segment, SendFlags, SendOperation, SendRequest, WorkQueue,
    WorkSlot,
};

use super::device::{Device, Read};
use super::memory::{Bus, Ring};

/// Returns the segments of a descriptor; `None` if its count exceeds the descriptor's room.
fn read_segments(
    bus: Bus,
    at: u64,
    header: usize,
    count: u32,
    ring: &Ring,
) -> Option<Vec<Segment>> {
    let room = (ring.stride as usize - header * 4) / (SegmentEntry::WORDS * 4);
    if count as usize > room {
        return None;
    }
    let entry =
        |index| bus.get(at + (header * 4 + index as usize * SegmentEntry::WORDS * 4) as u64);
    Some((0..count).map(entry).map(segment).collect())
}

fn segment(entry: SegmentEntry) -> Segment {
    Segment {
        address: entry.address,
        length: entry.length,
        key: entry.key,
    }
}

impl Device {
    /// Reads all posted descriptors.
    pub(crate) fn fetch(&mut self) {
        fence(Ordering::Acquire);
        let numbers: Vec<u32> = self.shared.keys().copied().collect();
        for number in numbers {
            while self.fetch_shared(number) {}
        }
        let numbers: Vec<u32> = self.pairs.keys().copied().collect();
        for number in numbers {
            while self.fetch_receive(number) {}
            while self.fetch_request(number) {}
        }
    }

    fn fetch_shared(&mut self, number: u32) -> bool {
        let bus = self.bus;
        let Some(shared) = self.shared.get(&number) else {
            return false;
        };
        let address = shared.ring.entry_address(shared.ring.done);
        let Some(at) = address.filter(|_| shared.ring.offered(bus) != 0) else {
            return false;
        };
        let receive: Receive = bus.get(at);
        let segments = read_segments(bus, at, Receive::WORDS, receive.segments, &shared.ring);
        let token = self.remember(Read {
            token: receive.token,
            opcode: RECEIVED,
        });
        let Some(shared) = self.shared.get_mut(&number) else {
            return false;
        };
        let Some(segments) = segments.filter(|segments| segments.len() <= shared.segments as usize)
        else {
            let kind = notice::SHARED_FAILED;
            let handle = number;
            self.events.push_back(Notice { kind, handle });
            return false;
        };
        // A queue of the fabric that has room and refuses is gone.
        let posted = shared.queue.post(&ReceiveRequest { token }, &segments);
        if posted.is_ok() {
            shared.ring.consume(bus);
        }
        posted.is_ok()
    }

    fn fetch_receive(&mut self, number: u32) -> bool {
        let bus = self.bus;
        let Some(pair) = self
            .pairs
            .get(&number)
            .filter(|pair| !pair.has_invalid_descriptor)
        else {
            return false;
        };
        let address = pair.receives.entry_address(pair.receives.done);
        let Some(at) = address.filter(|_| pair.receives.offered(bus) != 0) else {
            return false;
        };
        let receive: Receive = bus.get(at);
        let segments = read_segments(bus, at, Receive::WORDS, receive.segments, &pair.receives);
        let Some(segments) = segments else {
            self.fail_pair(number);
            return false;
        };
        let token = self.remember(Read {
            token: receive.token,
            opcode: RECEIVED,
        });
        let pair = self.pairs.get_mut(&number);
        let Some((pair, queue)) = pair.and_then(|pair| {
            let queue = pair.receive.as_mut()?;
            Some((&mut pair.receives, queue))
        }) else {
            return false;
        };
        // As in `fetch_shared`.
        let posted = queue.post(&ReceiveRequest { token }, &segments);
        if posted.is_ok() {
            pair.consume(bus);
        }
        posted.is_ok()
    }

    /// Reads a request if the queue pair's state permits.
    fn fetch_request(&mut self, number: u32) -> bool {
        let bus = self.bus;
        let Some(pair) = self
            .pairs
            .get(&number)
            .filter(|pair| !pair.has_invalid_descriptor)
        else {
            return false;
        };
        let address = pair.requests.entry_address(pair.requests.done);
        let can_send = [state::READY_TO_SEND, state::ERROR].contains(&pair.state);
        let Some(at) = address.filter(|_| can_send && pair.requests.offered(bus) != 0) else {
            return false;
        };
        let request: Request = bus.get(at);
        let segments = read_segments(bus, at, Request::WORDS, request.segments, &pair.requests);
        let range = RemoteRange {
            address: request.address,
            key: request.key,
        };
        let operation = match request.opcode {
            opcode::SEND => Some(SendOperation::Send),
            opcode::RDMA_WRITE => Some(SendOperation::RdmaWrite(range)),
            opcode::RDMA_READ => Some(SendOperation::RdmaRead(range)),
            _ => None,
        };
        let (Some(segments), Some(operation)) = (segments, operation) else {
            self.fail_pair(number);
            return false;
        };
        // Completions number the opcodes differently from requests.
        let opcode = match operation {
            SendOperation::Send => 0,
            SendOperation::RdmaWrite(_) => 1,
            SendOperation::RdmaRead(_) => 2,
        };
        let token = self.remember(Read {
            token: request.token,
            opcode,
        });
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::FENCE, request.flags & send_flag::FENCE != 0);
        let solicited = request.flags & send_flag::SOLICITED != 0;
        flags.set(SendFlags::SOLICITED, solicited);
        let Some(pair) = self.pairs.get_mut(&number) else {
            return false;
        };
        let send_request = SendRequest {
            token,
            operation,
            flags,
        };
        let posted = pair
            .send
            .reserve(&send_request, segments.len())
            .map(|mut slot| {
                for segment in segments {
                    slot.segment(segment);
                }
                slot.commit(request.length)
            });
        let taken = matches!(posted, Some(Ok(()))) && pair.send.ring().is_ok();
        if taken {
            pair.requests.consume(bus);
        }
        taken
    }

    /// Marks a queue pair as failed after an invalid descriptor, and reports it.
    fn fail_pair(&mut self, number: u32) {
        let kind = *notice::QUEUE_PAIR_FAILED.start();
        let handle = number;
        self.events.push_back(Notice { kind, handle });
        if let Some(pair) = self.pairs.get_mut(&number) {
            pair.has_invalid_descriptor = true;
        }
    }
}
