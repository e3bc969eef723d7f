//! The engine of the devices: it carries out requests and checks keys.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;

use dat_core::backend::{
    ControlEvent, DomainKey, Registration, RemoteRange, Segment, SendFlags, SendOperation,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges};
use dat_core::sync::{copy_from_shared, copy_to_shared};

use super::memory::{Outcome, Work};
use super::queues::{CompletionRing, Ring};

/// All devices of a network and their connections.
#[derive(Default)]
pub(super) struct Network {
    pub(super) nodes: Vec<Node>,
    /// Queue pairs by key; a key is never used again.
    pub(super) pairs: Vec<Option<Pair>>,
    /// Connection requests by key; `None` once answered.
    pub(super) requests: Vec<Option<Request>>,
}

/// A device.
#[derive(Default)]
pub(super) struct Node {
    /// Regions by key - 1; a key is never used again.
    pub(super) regions: Vec<Option<Area>>,
    pub(super) domains: usize,
    pub(super) completion_rings: Vec<Arc<CompletionRing>>,
    pub(super) listeners: Vec<Listener>,
    /// Control events that the driver has not polled yet.
    pub(super) events: VecDeque<ControlEvent>,
    /// Set once the driver is gone.
    pub(super) closed: bool,
}

/// A listener.
pub(super) struct Listener {
    pub(super) token: u64,
    pub(super) qualifier: u64,
}

/// A connection request without an answer.
pub(super) struct Request {
    /// The queue pair that connects.
    pub(super) active: usize,
    /// Number of its attempt.
    pub(super) attempt: u64,
}

/// State of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Unconnected,
    Connecting,
    /// With the key of the other queue pair.
    Connected(usize),
    Error,
}

/// A queue pair.
pub(super) struct Pair {
    pub(super) node: usize,
    pub(super) token: u64,
    pub(super) domain: DomainKey,
    pub(super) state: State,
    /// Number of connection attempts: tells a late answer.
    pub(super) attempts: u64,
    pub(super) send: Arc<Ring>,
    pub(super) receive: Arc<Ring>,
    pub(super) send_completions: Option<Arc<CompletionRing>>,
    pub(super) receive_completions: Option<Arc<CompletionRing>>,
}

/// A registered region.
pub(super) struct Area {
    base: *mut u8,
    length: usize,
    domain: DomainKey,
    privileges: MemoryPrivileges,
}

#[expect(unsafe_code)]
// SAFETY: the memory is registered for access by the device, from any thread.
unsafe impl Send for Area {}

impl Area {
    pub(super) fn new(registration: &Registration) -> Self {
        Self {
            base: registration.base(),
            length: registration.length(),
            domain: registration.domain(),
            privileges: registration.privileges(),
        }
    }

    /// Returns the bytes of a range, if zone, privileges and bounds permit it.
    fn span(
        &self,
        address: u64,
        length: u32,
        domain: DomainKey,
        right: MemoryPrivileges,
    ) -> Option<Span<'_>> {
        let offset = usize::try_from(address.checked_sub(self.base.addr() as u64)?).ok()?;
        let end = offset.checked_add(length as usize)?;
        if end > self.length || self.domain != domain || !self.privileges.contains(right) {
            return None;
        }
        Some(Span {
            base: self.base.wrapping_add(offset),
            length: length as usize,
            area: PhantomData,
        })
    }
}

/// Bytes of a region, which stays registered meanwhile.
struct Span<'a> {
    base: *mut u8,
    length: usize,
    area: PhantomData<&'a Area>,
}

/// Returns the number of bytes.
fn total(spans: &[Span<'_>]) -> usize {
    spans.iter().map(|span| span.length).sum()
}

/// Copies as one operation, so that segments may overlap; the shorter side limits it.
#[expect(unsafe_code)]
fn copy(from: &[Span<'_>], to: &[Span<'_>]) {
    let mut data = vec![0; total(from)];
    let mut rest = data.as_mut_slice();
    for span in from {
        let (bytes, after) = rest.split_at_mut(span.length);
        // SAFETY: the span lies in a live registration, whose memory stays valid until
        // `deregister`. The bytes are this function's and have the length of the span.
        unsafe { copy_from_shared(span.base, bytes.as_mut_ptr(), span.length) };
        rest = after;
    }
    let mut rest = data.as_slice();
    for span in to {
        let (bytes, after) = rest.split_at(span.length.min(rest.len()));
        // SAFETY: as above; the bytes are at most as long as the span.
        unsafe { copy_to_shared(bytes.as_ptr(), span.base, bytes.len()) };
        rest = after;
    }
}

impl Node {
    fn span(
        &self,
        segment: &Segment,
        domain: DomainKey,
        right: MemoryPrivileges,
    ) -> Option<Span<'_>> {
        let index = (segment.key as usize).checked_sub(1)?;
        let area = self.regions.get(index)?.as_ref()?;
        area.span(segment.address, segment.length, domain, right)
    }

    /// Returns the bytes of all segments, if each may be accessed.
    fn local(
        &self,
        segments: &[Segment],
        domain: DomainKey,
        right: MemoryPrivileges,
    ) -> Result<Vec<Span<'_>>, DtoStatus> {
        let spans = segments
            .iter()
            .map(|segment| self.span(segment, domain, right));
        spans
            .collect::<Option<_>>()
            .ok_or(DtoStatus::LocalProtection)
    }

    /// Returns the bytes of a remote range; an empty one needs no key.
    fn remote(
        &self,
        range: RemoteRange,
        length: u32,
        domain: DomainKey,
        right: MemoryPrivileges,
    ) -> Result<Vec<Span<'_>>, DtoStatus> {
        if length == 0 {
            return Ok(Vec::new());
        }
        let RemoteRange { address, key } = range;
        let segment = Segment {
            address,
            length,
            key,
        };
        let span = self.span(&segment, domain, right);
        Ok(vec![span.ok_or(DtoStatus::RemoteAccess)?])
    }
}

/// The event of a connection that broke.
pub(super) fn broken(queue_pair: u64) -> ControlEvent {
    ControlEvent::Broken { queue_pair }
}

/// The event of a connection that the peer ended.
pub(super) fn disconnected(queue_pair: u64) -> ControlEvent {
    ControlEvent::Disconnected { queue_pair }
}

impl Network {
    pub(super) fn pair(&mut self, key: usize) -> Option<&mut Pair> {
        self.pairs.get_mut(key)?.as_mut()
    }

    /// Raises a control event of a queue pair at its device.
    pub(super) fn raise(&mut self, key: usize, event: impl FnOnce(u64) -> ControlEvent) {
        let Some(pair) = self.pairs.get(key).and_then(Option::as_ref) else {
            return;
        };
        if let Some(node) = self.nodes.get_mut(pair.node) {
            node.events.push_back(event(pair.token));
        }
    }

    /// Puts a queue pair in error, which flushes its requests.
    pub(super) fn set_error(&mut self, key: usize) {
        if let Some(pair) = self.pair(key) {
            pair.state = State::Error;
        }
    }

    /// Ends the connection or attempt of a queue pair; a connected peer sees this event.
    pub(super) fn disconnect(&mut self, key: usize, event: fn(u64) -> ControlEvent) {
        if let Some(peer) = self.end(key) {
            self.raise(peer, event);
        }
    }

    /// Drops the control events of a queue pair that its driver has not polled.
    pub(super) fn forget_events(&mut self, key: usize) {
        let Some(pair) = self.pairs.get(key).and_then(Option::as_ref) else {
            return;
        };
        let is_other = |event: &ControlEvent| match event {
            ControlEvent::Answered { queue_pair }
            | ControlEvent::Established { queue_pair, .. }
            | ControlEvent::ConnectFailed { queue_pair, .. }
            | ControlEvent::Disconnected { queue_pair }
            | ControlEvent::Broken { queue_pair } => *queue_pair != pair.token,
            _ => true,
        };
        if let Some(node) = self.nodes.get_mut(pair.node) {
            node.events.retain(is_other);
        }
    }

    /// Puts both ends of a connection in error; returns the other one.
    fn end(&mut self, key: usize) -> Option<usize> {
        let state = self.pair(key)?.state;
        self.set_error(key);
        let State::Connected(peer) = state else {
            return None;
        };
        self.set_error(peer);
        Some(peer)
    }

    /// Lets each queue pair carry out or flush one request; returns false if there was none.
    pub(super) fn step(&mut self) -> bool {
        let mut moved = false;
        for key in 0..self.pairs.len() {
            moved |= self.step_pair(key).is_some();
        }
        moved
    }

    fn step_pair(&mut self, key: usize) -> Option<()> {
        let pair = self.pairs.get(key)?.as_ref()?;
        match pair.state {
            State::Unconnected | State::Connecting => None,
            State::Connected(peer) => {
                let work = pair.send.fetch()?;
                let status = self.execute(key, peer, &work).err();
                let status = status.unwrap_or(DtoStatus::Success);
                self.complete(key, &work, status, None);
                if status != DtoStatus::Success {
                    self.disconnect(key, broken);
                    self.raise(key, broken);
                }
                Some(())
            }
            State::Error => {
                if let Some(work) = pair.send.fetch() {
                    self.complete(key, &work, DtoStatus::Flushed, None);
                } else {
                    let work = pair.receive.fetch()?;
                    self.complete(key, &work, DtoStatus::Flushed, Some((0, false)));
                }
                Some(())
            }
        }
    }

    /// Carries out a request of a connected queue pair.
    fn execute(&mut self, key: usize, peer: usize, work: &Work) -> Result<(), DtoStatus> {
        let lost = DtoStatus::Transport;
        let from = self.pairs.get(key).and_then(Option::as_ref).ok_or(lost)?;
        let to = self.pairs.get(peer).and_then(Option::as_ref).ok_or(lost)?;
        let here = self.nodes.get(from.node).ok_or(lost)?;
        let there = self.nodes.get(to.node).ok_or(lost)?;
        match work.operation {
            SendOperation::RdmaWrite(range) => {
                let right = MemoryPrivileges::LOCAL_READ;
                let source = here.local(&work.segments, from.domain, right)?;
                let right = MemoryPrivileges::REMOTE_WRITE;
                copy(
                    &source,
                    &there.remote(range, work.length, to.domain, right)?,
                );
            }
            SendOperation::RdmaRead(range) => {
                let right = MemoryPrivileges::LOCAL_WRITE;
                let target = here.local(&work.segments, from.domain, right)?;
                let right = MemoryPrivileges::REMOTE_READ;
                copy(
                    &there.remote(range, work.length, to.domain, right)?,
                    &target,
                );
            }
            SendOperation::Send => {
                let right = MemoryPrivileges::LOCAL_READ;
                let source = here.local(&work.segments, from.domain, right)?;
                let receive = to.receive.fetch().ok_or(DtoStatus::ReceiverNotReady)?;
                let right = MemoryPrivileges::LOCAL_WRITE;
                let status = match there.local(&receive.segments, to.domain, right) {
                    Ok(target) if total(&target) < total(&source) => DtoStatus::LocalLength,
                    Ok(target) => {
                        copy(&source, &target);
                        DtoStatus::Success
                    }
                    Err(status) => status,
                };
                let solicited = work.flags.contains(SendFlags::SOLICITED);
                self.complete(peer, &receive, status, Some((work.length, solicited)));
                if status != DtoStatus::Success {
                    return Err(DtoStatus::RemoteResponder);
                }
            }
        }
        Ok(())
    }

    /// Writes the completion of a request, or of a receive with its length and mark.
    fn complete(
        &mut self,
        key: usize,
        work: &Work,
        status: DtoStatus,
        received: Option<(u32, bool)>,
    ) {
        let Some(pair) = self.pairs.get(key).and_then(Option::as_ref) else {
            return;
        };
        let outcome = Outcome {
            token: work.token,
            queue_pair: pair.token,
            status,
            received: received.map(|(length, _)| length),
            shared: false,
            solicited: received.is_some_and(|(_, solicited)| solicited),
        };
        let queue = match received {
            Some(_) => &pair.receive_completions,
            None => &pair.send_completions,
        };
        if let Some(queue) = queue.as_ref().and_then(|ring| ring.write(&outcome)) {
            self.raise(key, |_| ControlEvent::Completions { queue });
        }
    }
}
