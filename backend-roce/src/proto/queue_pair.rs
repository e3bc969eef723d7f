//! A queue pair: requester and responder of one end of a connection.

use dat_core::time::Instant;

use super::connection::{ConnectReply, ConnectRequest};
use super::memory::{LocalError, ReceiveQueue, RemoteMemory, RequestMemory};
use super::packet::{NakCode, Packet, RnrTimer};
use super::requester::{
    Completion, Held, PostError, Request, RequestSlot, Requester, RequesterCounts, RequesterOptions,
};
use super::responder::{
    ReceiveCompletion, ResourceSlot, Responder, ResponderCounts, ResponderOptions,
};
use super::{BufferRoom, PathMtu, Psn, Slots};

/// Values that REQ and REP agreed on, as one side sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// QPN of this side.
    pub qpn: u32,
    /// QPN of the peer.
    pub peer_qpn: u32,
    /// PSN of the first request of this side: the peer named it (ROCE-61).
    pub sends: Psn,
    /// PSN of the first request of the peer: this side named it.
    pub expects: Psn,
    /// Path MTU of both directions (ROCE-155).
    pub mtu: PathMtu,
    /// Reads and Atomics that this side may have under way (ROCE-156).
    pub initiator_depth: u8,
    /// Reads and Atomics that this side must be able to answer.
    pub responder_resources: u8,
    /// Time-outs without progress that are accepted.
    pub retry_count: u8,
    /// RNR NAKs without progress that are accepted, as the peer asks.
    pub rnr_retry_count: u8,
}

impl Agreement {
    /// Returns what the active side agreed on; `None` if the REQ has no path MTU.
    pub fn active(request: &ConnectRequest, reply: &ConnectReply) -> Option<Self> {
        Some(Self {
            qpn: request.qpn,
            peer_qpn: reply.qpn,
            sends: reply.starting_psn,
            expects: request.starting_psn,
            mtu: request.mtu?,
            initiator_depth: request.initiator_depth.min(reply.responder_resources),
            responder_resources: request.responder_resources,
            retry_count: request.retry_count,
            rnr_retry_count: reply.rnr_retry_count,
        })
    }

    /// Returns what the passive side agreed on; `None` if the REQ has no path MTU.
    pub fn passive(request: &ConnectRequest, reply: &ConnectReply) -> Option<Self> {
        Some(Self {
            qpn: reply.qpn,
            peer_qpn: request.qpn,
            sends: request.starting_psn,
            expects: reply.starting_psn,
            mtu: request.mtu?,
            initiator_depth: reply.initiator_depth.min(request.responder_resources),
            responder_resources: reply.responder_resources,
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
        })
    }
}

/// Options of a queue pair that its peer does not learn.
#[derive(Clone, Copy, Debug)]
pub struct QueuePairOptions {
    /// Limit of the window, in packets.
    pub window: u32,
    /// Packets that may leave in one send.
    pub run: u16,
    /// Code of the time-out of requests.
    pub timeout: u8,
    /// Set if the way loses no packets.
    pub is_lossless: bool,
    /// The time that a peer waits where there is no receive.
    pub rnr_timer: RnrTimer,
    /// Set if the peer may read.
    pub remote_read: bool,
    /// Set if the peer may write.
    pub remote_write: bool,
    /// Set if the peer may use atomics.
    pub remote_atomic: bool,
}

/// One end of a connection.
#[derive(Debug)]
pub struct QueuePair<'s> {
    qpn: u32,
    requester: Requester<'s>,
    responder: Responder<'s>,
    /// Set if the requester had the last turn to transmit first.
    requests_first: bool,
}

impl<'s> QueuePair<'s> {
    /// Makes a queue pair that is ready to send and to receive.
    ///
    /// `resources` are at most those that were agreed on.
    pub fn new(
        agreement: &Agreement,
        options: &QueuePairOptions,
        slots: impl Into<Slots<'s, RequestSlot>>,
        resources: impl Into<Slots<'s, ResourceSlot>>,
    ) -> Self {
        let requester = RequesterOptions {
            destination: agreement.peer_qpn,
            first: agreement.sends,
            mtu: agreement.mtu,
            initiator_depth: agreement.initiator_depth,
            window: options.window,
            run: options.run,
            timeout: options.timeout,
            is_lossless: options.is_lossless,
            retry_count: agreement.retry_count,
            rnr_retry_count: agreement.rnr_retry_count,
        };
        let responder = ResponderOptions {
            destination: agreement.peer_qpn,
            first: agreement.expects,
            mtu: agreement.mtu,
            remote_read: options.remote_read,
            remote_write: options.remote_write,
            remote_atomic: options.remote_atomic,
            rnr_timer: options.rnr_timer,
        };
        let mut resources = resources.into();
        resources.truncate(usize::from(agreement.responder_resources));
        Self {
            qpn: agreement.qpn,
            requester: Requester::new(requester, slots),
            responder: Responder::new(responder, resources),
            // The responder begins.
            requests_first: true,
        }
    }

    /// Makes a queue pair that is ready to receive; it has no requests of its own yet.
    pub fn receiving(
        qpn: u32,
        options: ResponderOptions,
        resources: impl Into<Slots<'s, ResourceSlot>>,
    ) -> Self {
        let requester = RequesterOptions {
            destination: options.destination,
            first: Psn::new(0),
            mtu: options.mtu,
            initiator_depth: 0,
            window: 1,
            run: 1,
            timeout: 0,
            is_lossless: true,
            retry_count: 0,
            rnr_retry_count: 0,
        };
        Self {
            qpn,
            requester: Requester::new(requester, Slots::default()),
            responder: Responder::new(options, resources),
            requests_first: true,
        }
    }

    /// Makes a queue pair that is ready to receive ready to send, too.
    pub fn start_requests(
        &mut self,
        options: RequesterOptions,
        slots: impl Into<Slots<'s, RequestSlot>>,
    ) {
        self.requester = Requester::new(options, slots);
    }

    /// Changes the rights of the peer: to read, to write and to use atomics.
    pub const fn set_rights(&mut self, read: bool, write: bool, atomic: bool) {
        self.responder.set_rights(read, write, atomic);
    }

    /// Changes the time after which the peer repeats what found no receive.
    pub const fn set_not_ready_timer(&mut self, timer: RnrTimer) {
        self.responder.set_not_ready_timer(timer);
    }

    /// Returns the time after which the peer repeats what found no receive.
    pub const fn not_ready_timer(&self) -> RnrTimer {
        self.responder.not_ready_timer()
    }

    /// Sets the patience of requests; see [`Requester::set_patience`].
    pub const fn set_patience(&mut self, timeout: u8, retries: u8, not_ready_retries: u8) {
        let requester = &mut self.requester;
        requester.set_patience(timeout, retries, not_ready_retries);
    }

    /// Sets how many Reads and Atomics may be under way; see [`Requester::set_depth`].
    pub fn set_depth(&mut self, depth: u8) -> bool {
        self.requester.set_depth(depth)
    }

    /// Lets no request begin; see [`Requester::drain`].
    pub const fn drain(&mut self) {
        self.requester.drain();
    }

    /// Lets requests begin again.
    pub const fn resume(&mut self) {
        self.requester.resume();
    }

    /// Returns true if every request that has begun is complete.
    pub const fn has_drained(&self) -> bool {
        self.requester.has_drained()
    }

    /// Returns the code of the time-out of requests.
    pub const fn timeout(&self) -> u8 {
        self.requester.timeout()
    }

    /// Returns the repetitions of messages that find no receive.
    pub const fn not_ready_retries(&self) -> u8 {
        self.requester.not_ready_retries()
    }

    /// Returns how many Reads and Atomics of this side may be under way.
    pub const fn depth(&self) -> u8 {
        self.requester.depth()
    }

    /// Returns the QPN of the peer.
    pub const fn destination(&self) -> u32 {
        self.responder.destination()
    }

    /// Returns the NAK by which the responder ended the connection, if it did.
    pub const fn fault(&self) -> Option<NakCode> {
        self.responder.fault()
    }

    /// Posts a request.
    pub fn post(&mut self, request: Request) -> Result<(), PostError> {
        self.requester.post(request)
    }

    /// Takes the next completion of a request.
    pub fn poll(&mut self) -> Option<Completion> {
        self.requester.poll()
    }

    /// Returns the token of a local operation whose turn has come.
    pub fn next_local(&self) -> Option<u64> {
        self.requester.next_local().filter(|_| !self.is_failed())
    }

    /// Completes the local operation whose turn has come; an error fails it.
    pub fn finish_local(&mut self, outcome: Result<(), LocalError>) {
        self.requester.finish_local(outcome);
    }

    /// Takes a packet; returns the receive that it completes, if any.
    ///
    /// Ignores packets to another QPN. A queue pair that failed ignores all packets.
    pub fn receive<M>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        memory: &mut M,
        receives: &mut impl ReceiveQueue,
    ) -> Option<ReceiveCompletion>
    where
        M: RequestMemory + RemoteMemory,
    {
        let bth = packet.header.bth;
        if bth.destination != self.qpn || self.is_failed() {
            return None;
        }
        if bth.opcode.is_response() {
            self.requester.receive(now, packet, memory);
            return None;
        }
        self.responder.receive(packet, memory, receives)
    }

    /// Writes the next packet into `buffer` and returns its length.
    ///
    /// The length includes 4 bytes for the ICRC, which the caller fills in.
    ///
    /// A Read of a peer can have as many as 2^23 responses: a caller with other work to do takes a
    /// bounded number of packets at a time. In error, only what precedes the NAK and the NAK itself
    /// are sent.
    pub fn transmit<M>(&mut self, now: Instant, memory: &mut M, buffer: &mut [u8]) -> Option<usize>
    where
        M: RequestMemory + RemoteMemory,
    {
        if self.requester.is_ended() && self.responder.fault().is_none() {
            return None;
        }
        // In turn, so that neither half waits for the other without bound.
        self.requests_first = !self.requests_first;
        if self.requests_first && !self.is_failed() {
            let request = self.requester.transmit(now, memory, buffer);
            if request.is_some() || self.is_failed() {
                return request;
            }
        }
        let response = self.responder.transmit(memory, buffer);
        if response.is_some() || self.is_failed() {
            return response;
        }
        self.requester.transmit(now, memory, buffer)
    }

    /// Writes the next response or acknowledgement, and no request; as
    /// [`transmit`](Self::transmit).
    pub fn answer(&mut self, memory: &mut impl RemoteMemory, buffer: &mut [u8]) -> Option<usize> {
        self.responder.transmit(memory, buffer)
    }

    /// Returns true if [`transmit`](Self::transmit) may have a packet to send.
    pub fn has_output(&self) -> bool {
        self.responder.has_output() || self.requester.has_output()
    }

    /// Returns when [`expire`](Self::expire) has work to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.requester.deadline().filter(|_| !self.is_failed())
    }

    /// Handles the timers that have expired by `now`.
    ///
    /// Ends the pause after an RNR NAK. After a time-out, goes back to the oldest packet that is
    /// not acknowledged; without a retry left, the request fails. A queue pair that failed does
    /// nothing.
    pub fn expire(&mut self, now: Instant) {
        if !self.is_failed() {
            self.requester.expire(now);
        }
    }

    /// Returns true if lack of progress becomes a time-out by `now`.
    pub fn is_late(&self, now: Instant) -> bool {
        !self.is_failed() && self.requester.is_late(now)
    }

    /// Gives the peer the whole time for its answer once more.
    pub fn postpone(&mut self, now: Instant) {
        self.requester.postpone(now);
    }

    /// Returns true if the queue pair failed or was ended: a half that fails stops the other.
    pub const fn is_failed(&self) -> bool {
        self.requester.is_ended() || self.responder.fault().is_some()
    }

    /// Returns true if no request is under way.
    pub const fn is_idle(&self) -> bool {
        self.requester.is_idle()
    }

    /// Ends the queue pair: requests are flushed, and the receive of a message under way completes.
    ///
    /// After a failure, call it once [`transmit`](Self::transmit) has nothing left.
    pub fn end(&mut self) -> Option<ReceiveCompletion> {
        self.requester.end();
        self.responder.end()
    }

    /// Fails the oldest request, if there is one: the peer has gone.
    pub fn lose_peer(&mut self) {
        self.requester.lose_peer();
    }

    /// Returns true if the requests that are not sent wait for more; see [`Requester::gathers`].
    pub fn gathers(&self) -> bool {
        self.requester.gathers()
    }

    /// Tells whether more requests are about to be posted; see [`Requester::expect_more`].
    pub const fn expect_more(&mut self, more: bool) {
        self.requester.expect_more(more);
    }

    /// Returns the expected PSN, the oldest unacknowledged one, and the count of repeated requests.
    ///
    /// Only current packets of the peer change them. A repeated request is one: its sender has no
    /// answer, and may have nothing else to send.
    pub const fn progress(&self) -> (Psn, Psn, u64) {
        (
            self.responder.expected(),
            self.requester.unacknowledged(),
            self.responder.counts().duplicates,
        )
    }

    /// Returns the path MTU.
    pub const fn mtu(&self) -> PathMtu {
        self.requester.mtu()
    }

    /// Returns the longest payload of the requests under way.
    pub fn longest_payload(&self) -> u32 {
        self.requester.longest_payload()
    }

    /// Returns the room of the packets under way, and of the responses that they ask for
    /// (ROCE-183).
    pub fn under_way(&self) -> BufferRoom {
        self.requester.under_way()
    }

    /// Sets the most room of the packets under way; see [`Requester::set_limit`].
    pub const fn set_limit(&mut self, limit: BufferRoom) {
        self.requester.set_limit(limit);
    }

    /// Lets the next request ask for an acknowledgement; see [`Requester::ask`].
    pub const fn ask(&mut self) {
        self.requester.ask();
    }

    /// Returns the buffer that stopped the requests of the last [`transmit`](Self::transmit).
    pub fn held(&self) -> Option<Held> {
        self.requester.held().filter(|_| !self.is_failed())
    }

    /// Returns the counts of both halves.
    pub const fn counts(&self) -> (RequesterCounts, ResponderCounts) {
        (self.requester.counts(), self.responder.counts())
    }
}
