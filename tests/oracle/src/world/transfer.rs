//! Posts and their effects.

use std::ops::Range;

use dat_core::error::{ErrorKind, Subtype};
use dat_core::event::{DtoOperation, ExtendedOperation};
use dat_core::flags::{
    CompletionFlags, DtoStatus, EndpointState, EvdFlags, HandleKind, MemoryPrivileges,
};

use super::event::{Expected, Operation, Status, Stream};
use super::race::{Actor, Location};
use super::{Ep, Key, Lmr, World};
use crate::expect::{Checks, Verdict};
use crate::op::Side;

/// Segment argument of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) context: u32,
    pub(crate) address: u64,
    pub(crate) length: u64,
}

impl Segment {
    pub(crate) fn is_within(&self, lmr: &Lmr) -> bool {
        let end = self.address.checked_add(self.length);
        self.address >= lmr.address && end.is_some_and(|end| end <= lmr.address + lmr.length)
    }

    pub(crate) fn bytes(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.length)
    }
}

fn total(segments: &[Segment]) -> u64 {
    segments
        .iter()
        .fold(0, |sum, segment| sum.saturating_add(segment.length))
}

fn addresses(segments: &[Segment]) -> impl Iterator<Item = u64> + '_ {
    segments.iter().flat_map(Segment::bytes)
}

/// Posted receive.
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    pub(crate) post: u64,
    pub(crate) cookie: u64,
    pub(crate) segments: Vec<Segment>,
}

impl Receive {
    pub(crate) fn new(post: u64, segments: Vec<Segment>) -> Self {
        Self {
            post,
            cookie: post,
            segments,
        }
    }
}

/// Operation of a request.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Send,
    Write {
        number: u32,
        address: u64,
    },
    Read {
        number: u32,
        address: u64,
        length: u64,
    },
    /// `context`: the new one, unless the bind unbinds.
    Bind {
        rmr: Key,
        context: Option<usize>,
    },
    /// RDMA Write whose immediate data consumes a receive of the peer.
    WriteImmediate {
        number: u32,
        address: u64,
        immediate: u32,
    },
    /// Changes an eight-byte value at the peer, and returns the old one.
    Atomic {
        number: u32,
        address: u64,
        change: Change,
    },
}

/// Change of a value by an atomic operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Add(u64),
    Swap { compare: u64, swap: u64 },
}

/// Length of such a value in bytes.
const ATOMIC_SIZE: u64 = 8;

/// Posted request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) post: u64,
    pub(crate) cookie: u64,
    pub(crate) segments: Vec<Segment>,
    pub(crate) work: Work,
    pub(crate) suppressed: bool,
    /// Set if it waits for earlier reads (DTO-04).
    pub(crate) fenced: bool,
}

/// Flags that are legal on requests of any endpoint (DTO-05, EPW-37).
const REQUEST_FLAGS: CompletionFlags = CompletionFlags::SUPPRESS
    .union(CompletionFlags::SOLICITED_WAIT)
    .union(CompletionFlags::BARRIER_FENCE);

impl World {
    fn check_flags(
        flags: CompletionFlags,
        legal: CompletionFlags,
        attribute: CompletionFlags,
        position: u8,
    ) -> Option<Verdict> {
        let unsignalled = attribute == CompletionFlags::UNSIGNALLED;
        let legal = if unsignalled {
            legal | CompletionFlags::UNSIGNALLED
        } else {
            legal
        };
        let bad = flags.bits() & !legal.bits() != 0;
        bad.then(|| Verdict::refused(ErrorKind::InvalidParameter, Subtype::argument(position)))
    }

    /// Checks handle and state for a request (EPS-02, EPB-03, EPW-23, EPW-29, RMB-31, RMB-37).
    fn check_postable(&self, side: Side, ep: Option<Key>) -> Result<(Key, &Ep), Verdict> {
        let bad = || Verdict::refused(ErrorKind::InvalidHandle, Subtype::InvalidHandleEp);
        let key = ep
            .filter(|_| self.is(side, HandleKind::Ep, ep))
            .ok_or_else(bad)?;
        let ep = self.eps.get(&key).ok_or_else(bad)?;
        match ep.state {
            EndpointState::Connected | EndpointState::Disconnected => Ok((key, ep)),
            state => Err(Verdict::refused(ErrorKind::InvalidState, state.subtype())),
        }
    }

    /// Checks a request in the order of DTO-07.
    ///
    /// `remote` is the length of the remote range.
    pub(crate) fn check_request(
        &self,
        side: Side,
        ep: Option<Key>,
        segments: &[Segment],
        operation: DtoOperation,
        remote: u64,
        flags: CompletionFlags,
    ) -> Verdict {
        let (_, ep) = match self.check_postable(side, ep) {
            Ok(found) => found,
            Err(verdict) => return verdict,
        };
        let Some(pz) = ep.pz else {
            return Verdict::refused(ErrorKind::InvalidState, Subtype::InvalidStateEpNotReady);
        };
        let flags_position = if operation == DtoOperation::Send {
            5
        } else {
            6
        };
        if let Some(bad) =
            Self::check_flags(flags, REQUEST_FLAGS, ep.shape.request_flags, flags_position)
        {
            return bad;
        }
        let limit = match operation {
            DtoOperation::RdmaRead => ep.shape.read_segments.min(ep.shape.request_segments),
            DtoOperation::RdmaWrite => ep.shape.write_segments.min(ep.shape.request_segments),
            DtoOperation::Send | DtoOperation::Receive => ep.shape.request_segments,
        };
        // No read is possible if none may be outstanding (EPB-05).
        let reads_nothing = operation == DtoOperation::RdmaRead && ep.shape.reads == 0;
        if segments.len() > limit || reads_nothing {
            return Verdict::refused(ErrorKind::InvalidParameter, Subtype::InvalidArg2);
        }
        let for_reading = operation != DtoOperation::RdmaRead;
        if let Some(bad) = self.check_segments(side, pz, segments, for_reading, 3) {
            return bad;
        }
        // Lengths: EPS-05, EPW-30, EPW-40, EPB-02. With two wrong lengths it is open which one is
        // reported.
        let total = total(segments);
        let mut checks = Checks::default();
        match operation {
            DtoOperation::RdmaWrite => {
                checks.parameter(total > ep.shape.rdma_size, 0);
                checks.other(total > remote, ErrorKind::LengthError);
            }
            DtoOperation::RdmaRead => {
                checks.parameter(remote > ep.shape.rdma_size, 0);
                checks.other(total < remote, ErrorKind::LengthError);
            }
            DtoOperation::Send | DtoOperation::Receive => {
                checks.parameter(total > ep.shape.message_size, 0);
            }
        }
        Self::check_room(&mut checks, &ep.request_slots, ep.request_room());
        checks.verdict()
    }

    /// Checks an extended operation like its write or read (DTO-07).
    ///
    /// An atomic operation covers one value.
    pub(crate) fn check_extended(
        &self,
        side: Side,
        ep: Option<Key>,
        request: &Request,
        remote: u64,
        flags: CompletionFlags,
    ) -> Verdict {
        let segments = &request.segments;
        let Work::Atomic { address, .. } = request.work else {
            let write = DtoOperation::RdmaWrite;
            return self.check_request(side, ep, segments, write, remote, flags);
        };
        let read = DtoOperation::RdmaRead;
        let verdict = self.check_request(side, ep, segments, read, ATOMIC_SIZE, flags);
        let mut checks = Checks::default();
        checks.parameter(segments.len() > 1, 2);
        checks.other(remote < ATOMIC_SIZE, ErrorKind::LengthError);
        checks.parameter(!address.is_multiple_of(ATOMIC_SIZE), 5);
        let own = checks.verdict();
        let full = |&(kind, _): &(ErrorKind, _)| kind == ErrorKind::InsufficientResources;
        if !own.may_succeed && verdict.refusals.iter().all(full) {
            return own;
        }
        verdict
    }

    /// Returns the value at an address, if all its bytes are known.
    pub(crate) fn value_at(&mut self, side: Side, address: u64) -> Option<u64> {
        let arena = self.arena(side);
        let bytes: Option<Vec<u8>> = (0..ATOMIC_SIZE)
            .map(|at| arena.remote_read(address.checked_add(at)?))
            .collect();
        Some(u64::from_ne_bytes(bytes?.try_into().ok()?))
    }

    /// Checks for a free queue slot (DTO-07, DTO-13).
    ///
    /// A refusal is certain if the pending posts fill the queue, and impossible if enough slots are
    /// free. In between it depends on when the provider frees slots.
    fn check_room(checks: &mut Checks, slots: &super::endpoint::Slots, room: usize) {
        checks.resource(slots.pending() >= room);
        if slots.occupied() >= room {
            checks.possible(ErrorKind::InsufficientResources);
        }
    }

    /// Checks `post_recv` (EPV-01, EPV-03, EPV-05, EPX-04).
    pub(crate) fn check_receive(
        &self,
        side: Side,
        ep: Option<Key>,
        segments: &[Segment],
        flags: CompletionFlags,
    ) -> Verdict {
        let Some(ep) = ep
            .filter(|_| self.is(side, HandleKind::Ep, ep))
            .and_then(|key| self.eps.get(&key))
        else {
            return Verdict::refused(ErrorKind::InvalidHandle, Subtype::InvalidHandleEp);
        };
        if ep.srq.is_some() {
            return Verdict::refused(ErrorKind::InvalidState, Subtype::InvalidStateSrqInUse);
        }
        let Some(pz) = ep.pz else {
            return Verdict::refused(ErrorKind::InvalidState, Subtype::InvalidStateEpNotReady);
        };
        if let Some(bad) =
            Self::check_flags(flags, CompletionFlags::empty(), ep.shape.receive_flags, 5)
        {
            return bad;
        }
        if segments.len() > ep.shape.receive_segments {
            return Verdict::refused(ErrorKind::InvalidParameter, Subtype::InvalidArg2);
        }
        if let Some(bad) = self.check_segments(side, pz, segments, false, 3) {
            return bad;
        }
        let mut checks = Checks::default();
        Self::check_room(&mut checks, &ep.receive_slots, ep.receive_room());
        checks.verdict()
    }

    /// Checks `rmr_bind` in the order of DTO-07 (RMB-25 to RMB-43).
    pub(crate) fn check_bind(
        &self,
        side: Side,
        rmr: Option<Key>,
        segment: &Segment,
        privileges: MemoryPrivileges,
        ep: Option<Key>,
        flags: CompletionFlags,
    ) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Rmr, rmr);
        checks.handle(!self.is(side, HandleKind::Ep, ep), Subtype::InvalidHandleEp);
        let refuses_binds = |evd: Key| {
            self.evds
                .get(&evd)
                .is_some_and(|evd| !evd.flags.contains(EvdFlags::RMR_BIND))
        };
        // EVC-05: the request dispatcher must take binds.
        checks.handle(
            !checks.has_bad_handle()
                && ep
                    .and_then(|key| self.eps.get(&key))
                    .and_then(|ep| ep.request)
                    .is_some_and(refuses_binds),
            Subtype::InvalidHandleEvdRequest,
        );
        if checks.has_bad_handle() {
            return checks.verdict();
        }
        let (_, ep) = match self.check_postable(side, ep) {
            Ok(found) => found,
            Err(verdict) => return verdict,
        };
        let (Some(pz), Some(rmr)) = (ep.pz, rmr.and_then(|key| self.rmrs.get(&key))) else {
            return Verdict::refused(ErrorKind::InvalidState, Subtype::InvalidStateEpNotReady);
        };
        let mut checks = Checks::default();
        checks.parameter(MemoryPrivileges::from_bits(privileges.bits()).is_none(), 3);
        if let Some(bad) = Self::check_flags(flags, REQUEST_FLAGS, ep.shape.request_flags, 6) {
            checks.parameter(!bad.may_succeed, 6);
        }
        let verdict = checks.verdict();
        if !verdict.may_succeed {
            return verdict;
        }
        if rmr.pz != pz {
            let mut verdict = Verdict::refused(ErrorKind::ProtectionViolation, None);
            // RMB-41 leaves open if the region or the zones of window and endpoint are checked
            // first.
            verdict.refusals.extend(
                self.check_bind_range(side, pz, segment, privileges)
                    .into_iter()
                    .flat_map(|bad| bad.refusals),
            );
            return verdict;
        }
        if let Some(bad) = self.check_bind_range(side, pz, segment, privileges) {
            return bad;
        }
        let mut checks = Checks::default();
        Self::check_room(&mut checks, &ep.request_slots, ep.request_room());
        // Binds of a window come from one endpoint only, until all earlier ones are known to be
        // complete.
        let mut pending = rmr.pending.iter();
        if !pending.all(|&(post, _)| ep.request_slots.has_pending(post)) {
            checks.possible(ErrorKind::InsufficientResources);
        }
        checks.verdict()
    }

    /// Adds an accepted request.
    pub(crate) fn post_request(&mut self, key: Key, request: Request) {
        let Some(ep) = self.eps.get_mut(&key) else {
            return;
        };
        ep.request_slots.take(request.post);
        if ep.state == EndpointState::Disconnected {
            self.finish_request(key, &request, Status::Is(DtoStatus::Flushed));
        } else {
            ep.requests.push_back(request);
        }
    }

    /// Adds an accepted receive.
    pub(crate) fn post_receive(&mut self, key: Key, receive: Receive) {
        let Some(ep) = self.eps.get_mut(&key) else {
            return;
        };
        ep.receive_slots.take(receive.post);
        ep.received_any = true;
        if ep.state == EndpointState::Disconnected {
            self.finish_receive(key, &receive, Status::Is(DtoStatus::Flushed), 0);
        } else {
            ep.receives.push_back(receive);
        }
    }

    /// Carries out the requests of connected endpoints, in posting order of each endpoint.
    pub(super) fn carry_out_requests(&mut self) {
        let keys: Vec<Key> = self.eps.keys().copied().collect();
        for key in keys {
            while let Some((peer, request)) = self.next_request(key) {
                let status = self.carry_out(key, peer, &request);
                self.finish_request(key, &request, status);
                if !status.is_success() {
                    self.failures.push(key);
                    self.break_connection(key);
                }
            }
        }
    }

    fn next_request(&mut self, key: Key) -> Option<(Key, Request)> {
        let ep = self.eps.get_mut(&key)?;
        let flowing = matches!(
            ep.state,
            EndpointState::Connected | EndpointState::DisconnectPending
        );
        let peer = ep.peer.filter(|_| flowing)?;
        Some((peer, ep.requests.pop_front()?))
    }

    fn gather(&mut self, actor: Actor, side: Side, segments: &[Segment]) -> Vec<Option<u8>> {
        addresses(segments)
            .map(|at| {
                self.note(actor, Location::Byte(side, at), false);
                self.arena(side).local_read(at)
            })
            .collect()
    }

    fn scatter(&mut self, actor: Actor, side: Side, segments: &[Segment], data: &[Option<u8>]) {
        for (at, &byte) in addresses(segments).zip(data) {
            self.note(actor, Location::Byte(side, at), true);
            self.arena(side).local_write(at, byte);
        }
    }

    fn carry_out(&mut self, key: Key, peer: Key, request: &Request) -> Status {
        let success = Status::Is(DtoStatus::Success);
        let refused = Status::Is(DtoStatus::RemoteAccess);
        let (Some(side), Some(far)) = (
            self.eps.get(&key).map(|ep| ep.side),
            self.eps.get(&peer).map(|ep| ep.side),
        ) else {
            return refused;
        };
        let actor = Actor::Requests(key);
        if request.fenced {
            for access in &mut self.accesses {
                if matches!(access.actor, Actor::Answer(reader, _) if reader == key) {
                    access.actor = actor;
                }
            }
        }
        match request.work {
            Work::Send => {
                let data = self.gather(Actor::Messages(key), side, &request.segments);
                self.deliver(key, peer, &data)
            }
            Work::Write { number, address } => {
                let length = total(&request.segments);
                // EPW-39: nothing to write, nothing to check.
                if length == 0 {
                    return success;
                }
                let right = MemoryPrivileges::REMOTE_WRITE;
                if !self.grants(actor, peer, number, address, length, right) {
                    return refused;
                }
                let data = self.gather(actor, side, &request.segments);
                for (at, byte) in (address..).zip(data) {
                    self.note(actor, Location::Byte(far, at), true);
                    self.arena(far).remote_write(at, byte);
                }
                success
            }
            Work::Read {
                number,
                address,
                length,
            } => {
                if length == 0 {
                    return success;
                }
                let right = MemoryPrivileges::REMOTE_READ;
                if !self.grants(actor, peer, number, address, length, right) {
                    return refused;
                }
                // It is open if the data is the target's current one or that at the time of the
                // answer.
                let answer = Actor::Answer(key, request.post);
                let data: Vec<Option<u8>> = (address..address + length)
                    .map(|at| {
                        self.note(answer, Location::Byte(far, at), false);
                        self.arena(far).remote_read(at)
                    })
                    .collect();
                self.scatter(answer, side, &request.segments, &data);
                success
            }
            Work::WriteImmediate {
                number,
                address,
                immediate,
            } => {
                let length = total(&request.segments);
                let right = MemoryPrivileges::REMOTE_WRITE;
                if length != 0 && !self.grants(actor, peer, number, address, length, right) {
                    return refused;
                }
                let data = self.gather(actor, side, &request.segments);
                for (at, byte) in (address..).zip(data) {
                    self.note(actor, Location::Byte(far, at), true);
                    self.arena(far).remote_write(at, byte);
                }
                let receives = self.eps.get_mut(&peer);
                let Some(receive) = receives.and_then(|peer| peer.receives.pop_front()) else {
                    // It is open how much of the data has been written.
                    for at in (address..).take(length as usize) {
                        self.arena(far).forget(at);
                    }
                    return Status::Is(DtoStatus::ReceiverNotReady);
                };
                self.finish_receive_of(peer, &receive, success, length, Some(immediate));
                success
            }
            Work::Atomic {
                number,
                address,
                change,
            } => {
                let right = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
                if !self.grants(actor, peer, number, address, ATOMIC_SIZE, right) {
                    return refused;
                }
                let before: Vec<Option<u8>> = (address..address + ATOMIC_SIZE)
                    .map(|at| {
                        self.note(actor, Location::Byte(far, at), true);
                        self.arena(far).remote_read(at)
                    })
                    .collect();
                let after = self.value_at(far, address).map(|before| match change {
                    Change::Add(add) => before.wrapping_add(add),
                    Change::Swap { compare, swap } if before == compare => swap,
                    Change::Swap { .. } => before,
                });
                let after = after.map(u64::to_ne_bytes);
                for (index, at) in (address..address + ATOMIC_SIZE).enumerate() {
                    let byte = after.and_then(|after| after.get(index).copied());
                    self.arena(far).remote_write(at, byte);
                }
                let answer = Actor::Answer(key, request.post);
                self.scatter(answer, side, &request.segments, &before);
                success
            }
            Work::Bind { rmr, context } => {
                self.note(actor, Location::Window(rmr), true);
                let old = self.rmrs.get_mut(&rmr).and_then(|rmr| {
                    rmr.pending.retain(|&(post, _)| post != request.post);
                    std::mem::replace(&mut rmr.bound, context)
                });
                for (index, alive) in [(old, false), (context, true)] {
                    if let Some(entry) = index.and_then(|index| self.contexts.get_mut(index)) {
                        entry.alive = alive;
                        let location = Location::Context(entry.side, entry.number);
                        self.note(actor, location, true);
                    }
                }
                success
            }
        }
    }

    /// Checks an RDMA operation at the target.
    ///
    /// Covers EPW-32, EPW-34, EPB-04, LMF-02, RMF-02, RMB-21, RMB-24.
    fn grants(
        &mut self,
        actor: Actor,
        peer: Key,
        number: u32,
        address: u64,
        length: u64,
        right: MemoryPrivileges,
    ) -> bool {
        let Some((side, pz)) = self.eps.get(&peer).map(|ep| (ep.side, ep.pz)) else {
            return false;
        };
        self.note(actor, Location::Context(side, number), false);
        self.contexts.iter().any(|context| {
            context.alive
                && context.side == side
                && context.number == number
                && Some(context.pz) == pz
                && context.privileges.contains(right)
                && address >= context.address
                && address
                    .checked_add(length)
                    .is_some_and(|end| end <= context.address + context.length)
        })
    }

    /// Delivers a message (EPV-02, EPV-04, EPH-05, SRQR-05, SRQR-06).
    fn deliver(&mut self, sender: Key, key: Key, data: &[Option<u8>]) -> Status {
        let Some((side, srq)) = self.eps.get(&key).map(|ep| (ep.side, ep.srq)) else {
            return Status::Is(DtoStatus::ReceiverNotReady);
        };
        let receive = match srq {
            Some(srq) => {
                self.note(Actor::Requests(sender), Location::Shared(srq), true);
                self.take_shared(srq)
            }
            None => self
                .eps
                .get_mut(&key)
                .and_then(|ep| ep.receives.pop_front()),
        };
        let Some(receive) = receive else {
            return Status::Is(DtoStatus::ReceiverNotReady);
        };
        let actor = Actor::Messages(sender);
        if data.len() as u64 > total(&receive.segments) {
            // The content of the buffer is then undefined (EPV-06).
            for at in addresses(&receive.segments) {
                self.note(actor, Location::Byte(side, at), true);
                self.arena(side).forget(at);
            }
            self.finish_receive(key, &receive, Status::Is(DtoStatus::LocalLength), 0);
            return Status::AnyFault;
        }
        self.scatter(actor, side, &receive.segments, data);
        self.finish_receive(
            key,
            &receive,
            Status::Is(DtoStatus::Success),
            data.len() as u64,
        );
        Status::Is(DtoStatus::Success)
    }

    /// Completes a request: queues its event unless suppressed and successful (DTO-04).
    pub(super) fn finish_request(&mut self, key: Key, request: &Request, status: Status) {
        let Some(ep) = self.eps.get_mut(&key) else {
            return;
        };
        let silent = request.suppressed && status.is_success();
        ep.request_slots.finish(request.post, silent);
        let evd = ep.request;
        let operation = match request.work {
            Work::Send => Operation::Dto(DtoOperation::Send),
            Work::Write { .. } => Operation::Dto(DtoOperation::RdmaWrite),
            Work::Read { .. } => Operation::Dto(DtoOperation::RdmaRead),
            Work::WriteImmediate { .. } => Operation::Extended(ExtendedOperation::WriteImmediate),
            Work::Atomic { change, .. } => Operation::Extended(match change {
                Change::Add(_) => ExtendedOperation::FetchAndAdd,
                Change::Swap { .. } => ExtendedOperation::CompareAndSwap,
            }),
            Work::Bind { rmr, context } => {
                if !status.is_success() {
                    self.undo_bind(request.post, rmr, context);
                }
                if !silent {
                    let event = Expected::Bind {
                        rmr,
                        cookie: request.cookie,
                        status,
                    };
                    self.complete(evd, Stream::Requests(key), request.post, event);
                }
                return;
            }
        };
        if !silent {
            let length = match request.work {
                // EPB-02: the length of a read is that of the remote range.
                Work::Read { length, .. } => length,
                Work::Atomic { .. } => ATOMIC_SIZE,
                _ => total(&request.segments),
            };
            let event = Expected::Completion {
                ep: key,
                cookie: request.cookie,
                status,
                length,
                operation,
            };
            self.complete(evd, Stream::Requests(key), request.post, event);
        }
    }

    /// Undoes a flushed bind: the window stays as before (RMB-42, state machines section 5).
    pub(super) fn undo_bind(&mut self, post: u64, rmr: Key, context: Option<usize>) {
        if let Some(entry) = context.and_then(|index| self.contexts.get_mut(index)) {
            entry.alive = false;
        }
        if let Some(rmr) = self.rmrs.get_mut(&rmr) {
            rmr.pending.retain(|&(pending, _)| pending != post);
        }
    }

    pub(super) fn finish_receive(
        &mut self,
        key: Key,
        receive: &Receive,
        status: Status,
        length: u64,
    ) {
        self.finish_receive_of(key, receive, status, length, None);
    }

    /// Completes a receive; `immediate` is the immediate data that came with it.
    fn finish_receive_of(
        &mut self,
        key: Key,
        receive: &Receive,
        status: Status,
        length: u64,
        immediate: Option<u32>,
    ) {
        let Some(ep) = self.eps.get_mut(&key) else {
            return;
        };
        ep.receive_slots.finish(receive.post, false);
        let (evd, cookie) = (ep.receive, receive.cookie);
        let operation = match immediate {
            Some(immediate) => {
                Operation::Extended(ExtendedOperation::ReceiveImmediate { immediate })
            }
            None => Operation::Dto(DtoOperation::Receive),
        };
        let event = Expected::Completion {
            ep: key,
            cookie,
            status,
            length,
            operation,
        };
        self.complete(evd, Stream::Receives(key), receive.post, event);
    }
}
