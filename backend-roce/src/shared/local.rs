//! The queues of an adapter to others of this host, and the threads that take packets from them.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use dat_core::backend::{BackendError, NotLocal};
use dat_core::time::Instant;

#[cfg(feature = "udp")]
use super::Watch;
use super::lease::Pause;
use super::{Bursts, Driven, LATE_YIELDS, Shared, lock};
use crate::adapter::{Adapter, port_of};
use crate::counts::AdapterCounts;
use crate::options::PathChoice;
use crate::port::{Gone, LocalNumber, LocalQueues, LocalWay};

/// Bytes of local packets that are taken before timers and sockets are looked at.
const LOCAL_BYTES: usize = 256 << 10;

/// Bytes of local packets between two looks at whether the caller has what it waits for.
const LOCAL_BURST: usize = 64 << 10;

/// Events of local queues that are taken before their packets.
const LOCAL_EVENTS: usize = 512;

/// Bytes that an empty packet of a local queue counts for.
const EMPTY_PACKET: usize = 1 << 10;

/// Longest time between two looks at set-ups to a peer, and how many there are at most: for some
/// 100 s. Set-ups have ends of their own; these are for a thread that does not get there.
const SETUP_PAUSE: Duration = Duration::from_millis(1);
const SETUP_LOOKS: usize = 100_000;

/// Set-ups to a peer, one after another.
const SETUPS: usize = 3;

/// How the thread of an adapter minds local queues while it sleeps.
#[cfg(feature = "udp")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attention {
    /// It has asked for doorbells, if there are queues.
    Armed,
    /// Packets have come: it does not sleep.
    Busy,
    /// The program takes packets: it looks again after a while.
    Leased,
}

impl Shared {
    /// Returns the time of the next look at pairs of local queues that are being made.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        let local = self.local.as_ref().filter(|_| !self.is_forked());
        local.and_then(|local| local.next_look())
    }

    /// Makes and ends pairs of local queues, by calls of the system.
    pub(crate) fn attend(&self, gone: Gone) {
        if let Some(local) = self.local.as_ref().filter(|_| !self.is_forked()) {
            local.attend(gone);
        }
    }

    /// Asks for doorbells of local queues; returns true if packets have come.
    pub(super) fn arm(&self) -> bool {
        let queues = self.local.as_ref().filter(|queues| queues.is_used());
        queues.is_some_and(|queues| queues.arm())
    }

    /// Leaves the local queues to the thread of the adapter, after a sleep on the port.
    ///
    /// With a lease the program is expected to come back, unless other threads of it sleep.
    pub(super) fn leave_queues(&self) {
        let is_left = || self.lease.is_off() || lock(&self.events).sleepers != 0;
        if self.has_queues() && is_left() && self.arm() {
            self.wake_service();
        }
    }

    /// Returns true if there are local queues.
    fn has_queues(&self) -> bool {
        self.local.as_ref().is_some_and(|queues| queues.is_used())
    }

    /// Makes sure that a packet wakes a thread, before one of the program waits for an event.
    ///
    /// Returns true if it took some that have come.
    pub(crate) fn before_wait(&self) -> bool {
        self.is_minded() && self.lease.waits() && self.ask()
    }

    /// As [`before_wait`](Self::before_wait), for a completion queue that is to be armed.
    pub(crate) fn before_arming(&self) {
        if self.is_minded() && self.lease.may_wait() {
            self.ask();
        }
    }

    /// Returns true if a thread of the adapter minds local queues.
    fn is_minded(&self) -> bool {
        self.is_threaded() && self.has_queues() && !self.is_forked()
    }

    /// Asks for doorbells, which the thread of the adapter hears; returns true if it took packets.
    fn ask(&self) -> bool {
        if !self.arm() {
            return false;
        }
        let taken = self.try_input();
        let taken = taken.map(|mut input| self.take_local(&mut input, || false));
        if matches!(taken, None | Some(Bursts::Some)) {
            // The thread that has the input may have looked for the last time.
            self.wake_service();
        }
        taken.is_some()
    }

    /// Begins a look of the thread of the adapter, which a doorbell woke or something else.
    #[cfg(feature = "udp")]
    pub(crate) fn begin_watch(&self, watch: &mut Watch, is_rung: bool) {
        self.lease.begin(watch, is_rung);
    }

    /// Decides how the thread of the adapter minds local queues while it sleeps.
    #[cfg(feature = "udp")]
    pub(crate) fn end_watch(&self, watch: &mut Watch) -> Attention {
        if !self.has_queues() {
            return Attention::Armed;
        }
        let sleepers = lock(&self.events).sleepers != 0;
        if self.lease.decide(watch, sleepers) {
            Attention::Leased
        } else if self.arm() {
            Attention::Busy
        } else {
            Attention::Armed
        }
    }

    /// Begins the set-up of a pair of local queues to a peer; see [`LocalQueues::dial`].
    fn begin_setup(
        &self,
        source: IpAddr,
        peer: SocketAddr,
        waits: bool,
    ) -> Result<LocalNumber, NotLocal> {
        let queues = self.local.as_ref().ok_or(NotLocal::System)?;
        queues.dial(source, peer, waits)
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
        match self.begin_setup(source, peer, false) {
            Ok(number) => Ok(Ok(Some(number))),
            Err(_) if self.path == PathChoice::Any => Ok(Ok(None)),
            Err(NotLocal::OtherHost) => {
                self.enter_briefly(|adapter| adapter.not_local = Some(NotLocal::OtherHost));
                Err(BackendError::Unreachable)
            }
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// Returns the pair of local queues to a peer, once it is made; `None` if packets go through
    /// sockets.
    ///
    /// # Errors
    /// `Unreachable`: the adapter has no other way.
    pub(crate) fn queues_to(
        &self,
        source: IpAddr,
        peer: SocketAddr,
    ) -> Result<Option<LocalNumber>, BackendError> {
        let no_queues = match self.path {
            PathChoice::Packets => return Ok(None),
            PathChoice::Local => Err(BackendError::Unreachable),
            PathChoice::Any => Ok(None),
        };
        let mut looks = SETUP_LOOKS;
        // This side may have been stopped for longer than its peer has waited.
        for _ in 0..SETUPS {
            let asked = match self.begin_setup(source, peer, true) {
                Ok(asked) => asked,
                // The peer has just given up.
                Err(NotLocal::Refused | NotLocal::System) => continue,
                Err(_) => break,
            };
            let is_expected = self.enter_briefly(|adapter| adapter.locals.expect(asked));
            self.dialled(asked);
            let mut pause = Pause::up_to(SETUP_PAUSE);
            let mut found = None;
            while is_expected && looks > 0 {
                found = self.enter_briefly(|adapter| adapter.locals.outcome(asked));
                if found.is_some() {
                    break;
                }
                looks -= 1;
                std::thread::sleep(pause.take());
                if let Some(mut input) = self.try_input() {
                    self.take_local(&mut input, || false);
                }
            }
            let open = self.enter_briefly(|adapter| {
                adapter.locals.forget_setup(asked);
                found.filter(|number| adapter.locals.mtu(*number).is_some())
            });
            if open.is_some() {
                return Ok(open);
            }
        }
        no_queues
    }

    /// Begins the set-ups of queues that datagrams want.
    #[cold]
    pub(super) fn ask_for_queues(&self) {
        while let Some(ends) = self.enter_briefly(Adapter::next_wanted) {
            let (source, peer) = ends;
            let queues = self.local.as_ref();
            let asked = queues.and_then(|queues| queues.dial(source, peer, false).ok());
            self.enter(|adapter| adapter.asked(&ends, asked));
            if let Some(asked) = asked {
                self.dialled(asked);
            }
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
    /// A program that still holds the adapter holds no pair (ROCE-224).
    pub(crate) fn close_queues(&self) {
        if let Some(queues) = self.local.as_ref().filter(|_| !self.is_forked()) {
            self.enter(Adapter::end_locals);
            queues.close();
        }
    }

    /// Takes what has become of local queues; true if there may be more.
    ///
    /// A hostile peer could report room again and again.
    fn take_local_events(&self, queues: &dyn LocalQueues) -> bool {
        for _ in 0..LOCAL_EVENTS {
            let Some(event) = queues.event() else {
                return false;
            };
            self.enter_and_send(|adapter| adapter.local_event(event));
        }
        true
    }

    /// Takes packets of local queues, about [`LOCAL_BYTES`] of them at most, and what has become of
    /// the queues.
    ///
    /// Ends after a part of that for which `stops` returns true.
    pub(super) fn take_local(&self, input: &mut [u8], stops: impl Fn() -> bool) -> Bursts {
        let Some(queues) = self.local.as_deref().filter(|queues| queues.is_used()) else {
            return Bursts::None;
        };
        let mut more = self.take_local_events(queues);
        let mut taken = Bursts::None;
        let (mut bytes, mut stop) = (0, LOCAL_BURST);
        while let Some(arrival) = queues.receive(input) {
            self.enter_and_send(|adapter| adapter.receive(&arrival, input));
            if let Some(number) = arrival.local.filter(|_| arrival.is_split) {
                queues.release(number);
            }
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
        more |= self.take_local_events(queues);
        if more { Bursts::Some } else { taken }
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

    /// As [`drive`](Self::drive), without a look at the sockets.
    pub(crate) fn drive_local(&self, stops: impl Fn() -> bool) -> Driven {
        if self.is_forked() {
            return Driven::default();
        }
        let local = self.take_local(&mut lock(&self.input), stops);
        Driven {
            more: self.finish(Bursts::None, false, None) || local == Bursts::Some,
            found: local != Bursts::None,
        }
    }
}
