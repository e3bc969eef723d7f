//! The queues of an adapter to others of this host, and who takes packets from them.

use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{Ordering, fence};

use dat_core::backend::{BackendError, NotLocal};

use super::{Bursts, LATE_YIELDS, Shared, lock};
use crate::adapter::{Adapter, port_of};
use crate::counts::AdapterCounts;
use crate::options::PathChoice;
use crate::port::{LocalNumber, LocalQueues, LocalWay};

/// Bytes of local packets that are taken before timers and sockets are looked at.
const LOCAL_BYTES: usize = 256 << 10;

/// Bytes of local packets between two looks at whether the caller has what it waits for.
const LOCAL_BURST: usize = 64 << 10;

/// Bytes that an empty packet of a local queue counts for.
const EMPTY_PACKET: usize = 1 << 10;

/// The taker of packets of local queues while the thread of the adapter sleeps.
#[cfg(feature = "udp")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// The program, which polls or sleeps on the port now and then: the thread looks again soon.
    Program,
    /// The thread itself, which doorbells wake.
    None,
    /// The thread, at once: some have come.
    Busy,
}

impl Shared {
    /// Returns true if pairs of local queues are being made.
    pub(crate) fn is_setting_up(&self) -> bool {
        let local = self.local.as_ref().filter(|_| !self.is_forked());
        local.is_some_and(|local| local.is_setting_up())
    }

    /// Makes and ends pairs of local queues, by calls of the system.
    pub(crate) fn attend(&self) {
        if let Some(local) = self.local.as_ref().filter(|_| !self.is_forked()) {
            local.attend();
        }
    }

    /// Asks for doorbells of local queues; returns true if packets have come.
    pub(super) fn arm(&self) -> bool {
        let queues = self.local.as_ref().filter(|queues| queues.is_used());
        queues.is_some_and(|queues| queues.arm())
    }

    /// Leaves the local queues to the thread of the adapter, after a sleep on the port.
    ///
    /// With a lease, the program is expected to come back; otherwise, or if it `sleeps` elsewhere,
    /// it does not, and the thread is to be woken by doorbells.
    pub(super) fn leave_queues(&self, sleeps: bool) {
        if !self.local.as_ref().is_some_and(|queues| queues.is_used()) {
            return;
        }
        self.note_activity();
        fence(Ordering::SeqCst);
        let is_leased = self.is_leased.load(Ordering::SeqCst);
        if is_leased && sleeps {
            self.ends_lease.store(true, Ordering::SeqCst);
            self.wake_service();
        } else if !is_leased && self.arm() {
            self.wake_service();
        }
    }

    /// Decides how the thread of the adapter sleeps, and prepares it. `seen` is its own.
    #[cfg(feature = "udp")]
    pub(crate) fn lease(&self, seen: &mut usize) -> Lease {
        let Some(queues) = self.local.as_ref().filter(|queues| queues.is_used()) else {
            return Lease::None;
        };
        self.is_leased.store(false, Ordering::SeqCst);
        let ends = self.ends_lease.swap(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let activity = self.activity.load(Ordering::SeqCst);
        let is_active = core::mem::replace(seen, activity) != activity && !ends;
        if is_active || queues.is_setting_up() {
            self.is_leased.store(true, Ordering::SeqCst);
            return Lease::Program;
        }
        if queues.arm() {
            Lease::Busy
        } else {
            Lease::None
        }
    }

    /// Returns the pair of local queues to a peer; `None` if packets go through sockets.
    ///
    /// # Errors
    /// - `Unreachable`: the adapter has no other way, and the peer is on another host.
    pub(crate) fn dial(
        &self,
        source: IpAddr,
        mut peer: SocketAddr,
        qualifier: u64,
    ) -> Result<LocalWay, BackendError> {
        if self.path == PathChoice::Packets {
            return Ok(Ok(None));
        }
        peer.set_port(port_of(qualifier));
        let queues = self.local.as_ref().ok_or(NotLocal::System);
        match queues.and_then(|queues| queues.dial(source, peer)) {
            Ok(number) => Ok(Ok(Some(number))),
            Err(_) if self.path == PathChoice::Any => Ok(Ok(None)),
            Err(NotLocal::OtherHost) => {
                self.enter_briefly(|adapter| adapter.not_local = Some(NotLocal::OtherHost));
                Err(BackendError::Unreachable)
            }
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// Takes over what has become of a pair, now that the adapter knows its number.
    pub(crate) fn dialled(&self, number: LocalNumber) {
        if let Some(queues) = self.local.as_ref().filter(|_| !self.is_forked()) {
            queues.dialled(number);
            match self.try_input() {
                Some(mut input) => {
                    self.take_local(&mut input, || false);
                }
                None => self.wake_service(),
            }
        }
    }

    /// Returns the counts of the adapter.
    pub(crate) fn counts(&self) -> AdapterCounts {
        let mut counts = self.enter(|adapter| adapter.counts());
        if let Some(queues) = self.local.as_ref().filter(|_| !self.is_forked()) {
            counts.local.doorbells = queues.doorbells();
        }
        counts
    }

    /// Ends the pairs of local queues, at the end of the adapter; peers read what was written.
    ///
    /// Those who hold the adapter hold no pair (ROCE-224).
    pub(crate) fn close_queues(&self) {
        if let Some(queues) = self.local.as_ref().filter(|_| !self.is_forked()) {
            self.enter(Adapter::end_locals);
            queues.close();
        }
    }

    /// Takes what has become of local queues.
    fn take_local_events(&self, queues: &dyn LocalQueues) {
        while let Some(event) = queues.event() {
            self.enter_and_send(|adapter| adapter.local_event(event));
        }
    }

    /// Takes packets of local queues, about [`LOCAL_BYTES`] of them at most, and what has become of
    /// the queues.
    ///
    /// Ends after a part of that for which `stops` returns true.
    pub(super) fn take_local(&self, input: &mut [u8], stops: impl Fn() -> bool) -> Bursts {
        let Some(queues) = self.local.as_deref().filter(|queues| queues.is_used()) else {
            return Bursts::None;
        };
        self.take_local_events(queues);
        let mut taken = Bursts::None;
        let (mut bytes, mut stop) = (0, LOCAL_BURST);
        while let Some(arrival) = queues.receive(input) {
            self.enter_and_send(|adapter| adapter.receive(&arrival, input));
            taken = Bursts::All;
            bytes += arrival.length + EMPTY_PACKET;
            if bytes >= stop {
                stop += LOCAL_BURST;
                if bytes >= LOCAL_BYTES || stops() {
                    taken = Bursts::Some;
                    break;
                }
            }
        }
        self.take_local_events(queues);
        taken
    }

    /// Takes the packets of local queues that have come, before a connection ends.
    ///
    /// The thread of the adapter may be about to take them over.
    pub(crate) fn catch_up(&self) {
        if !self.local.as_ref().is_some_and(|queues| queues.is_used()) || self.is_forked() {
            return;
        }
        for _ in 0..LATE_YIELDS {
            if let Some(mut input) = self.try_input() {
                self.take_local(&mut input, || false);
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Notes that the program looks for packets; returns how often it did so before.
    ///
    /// It may miss one of two at a time.
    pub(super) fn note_activity(&self) -> usize {
        let before = self.activity.load(Ordering::Relaxed);
        self.activity
            .store(before.wrapping_add(1), Ordering::Relaxed);
        before
    }

    /// As [`drive`](Self::drive), without a look at the sockets.
    pub(crate) fn drive_local(&self, stops: impl Fn() -> bool) -> bool {
        if self.is_forked() {
            return false;
        }
        let local = self.take_local(&mut lock(&self.input), stops);
        self.finish(Bursts::None, false, None) || local == Bursts::Some
    }
}
