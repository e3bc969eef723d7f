//! The lock of an adapter, and the way of its packets.

#[cfg(feature = "udp")]
mod farewell;
#[cfg_attr(
    not(feature = "udp"),
    expect(dead_code, reason = "for the thread of an adapter")
)]
mod lease;
mod local;
#[cfg(all(test, feature = "udp"))]
mod tests;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use dat_core::backend::{BackendError, ControlEvent};
use dat_core::event::{Sleepers, WakeReason, contain_panic};
use dat_core::sync::Turns;
use dat_core::time::Instant;

use crate::adapter::{Adapter, OUTBOX};
use crate::options::{PathChoice, RoceOptions};
use crate::port::{Arrival, Awakening, ClaimError, Gone, LocalQueues, Outbox, Port, Route};
use crate::proto::icrc::Flow;
use crate::reserve::zeros;

#[cfg(feature = "udp")]
pub(crate) use farewell::Stage;
use lease::Lease;
#[cfg(feature = "udp")]
pub(crate) use lease::{Pause, Watch};
#[cfg(feature = "udp")]
pub(crate) use local::Attention;

/// Atomics, which the model of the lease has its own of.
mod atomic {
    pub(super) use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    pub(super) fn fence() {
        core::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// Longest datagrams that the port gives at once.
pub(crate) const INPUT: usize = (1 << 16) + 128;

/// Time that an adapter goes on after its end, for the answers of peers (ROCE-178).
#[cfg(feature = "udp")]
pub(crate) const LINGER: core::time::Duration = core::time::Duration::from_millis(300);

/// Turns in which a caller sends packets, each of at most an outbox.
const ROUNDS: usize = 16;

/// Polls of an adapter without a thread, one of which looks at its sockets while there are local
/// queues.
const SOCKET_POLLS: usize = 64;

/// Datagrams that are taken before the answers are sent.
const BURST: usize = 16;

/// Bursts that are taken before timers are looked at.
const BURSTS: usize = 64;

/// The bursts of datagrams that were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bursts {
    /// There were none.
    None,
    /// All that had come.
    All,
    /// Some; more may have come.
    Some,
}

/// The outcome of a look at local queues and sockets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Driven {
    /// More is to be done at once.
    pub(crate) more: bool,
    /// There were packets in local queues.
    #[cfg_attr(
        not(feature = "udp"),
        expect(dead_code, reason = "for the thread of an adapter")
    )]
    pub(crate) found: bool,
}

/// Time without a look at the port after which a poll looks itself.
const LATE: u64 = 100_000;

/// Times [`BURSTS`] that such a poll takes at most.
const LATE_BURSTS: usize = 4;

/// Times that such a poll lets another thread that looks at the port go on.
const LATE_YIELDS: usize = 64;

/// Bytes of a refused datagram that are looked at.
const REFUSED: usize = 64;

/// A function that is called after events.
type OnEvent = Box<dyn Fn() + Send + Sync>;

/// Longest sleep of a wait in a child of `fork`, for which no event comes.
const FORKED_PAUSE: core::time::Duration = core::time::Duration::from_millis(10);

/// A port that nothing goes through.
struct ClosedPort;

impl Port for ClosedPort {
    fn address(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)
    }

    fn route(&self, _: SocketAddr) -> Result<Route, BackendError> {
        Err(BackendError::Unreachable)
    }

    fn claim(&self, _: u16) -> Result<(), ClaimError> {
        Err(ClaimError::Refused)
    }

    fn release(&self, _: u16) {}

    fn send(&self, _: &Flow, _: &[u8], _: usize) {}

    fn receive(&self, _: &mut [u8]) -> Option<Arrival> {
        None
    }
}

/// Control events, and the threads that wait for them.
#[derive(Debug, Default)]
struct Events {
    /// Number of events so far.
    count: u64,
    /// Number of threads that sleep on `event`.
    sleepers: usize,
    /// Set while a thread sleeps on the port.
    sleeps_on_port: bool,
    /// Set once the adapter is closed: its own thread does the rest.
    is_closing: bool,
}

/// An adapter with its port.
pub(crate) struct Shared {
    adapter: Mutex<Adapter>,
    port: Box<dyn Port>,
    /// Queues to adapters of this host.
    local: Option<Arc<dyn LocalQueues>>,
    /// The ways that connections may go.
    path: PathChoice,
    /// The lease of these queues to the program.
    lease: Lease,
    /// Stands in for the adapter in a child of `fork`: it has no object, so calls find none.
    stand_in: OnceLock<Mutex<Adapter>>,
    /// Set if requests of the adapter wait until the consumer has taken its completions.
    gathers: Arc<AtomicBool>,
    /// Generation of the process that opened the sockets, if the port has any.
    generation: Option<usize>,
    /// Turns of the threads that send, each for all.
    sends: Turns,
    /// Packets on their way to the port.
    output: Mutex<Outbox>,
    input: Mutex<Vec<u8>>,
    /// The clock; without one, time passes by calls of `progress` only.
    clock: Option<fn() -> Instant>,
    events: Mutex<Events>,
    event: Sleepers,
    /// Held by the thread that sleeps on the port.
    receives: Mutex<()>,
    on_event: OnceLock<OnEvent>,
    /// Wakes the thread of the adapter, if there is one.
    on_deadline: OnceLock<OnEvent>,
    /// Deadline that the thread of the adapter sleeps until.
    sleeps_until: Mutex<Option<Instant>>,
    #[cfg(feature = "udp")]
    farewell: farewell::Farewell,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Puts an adapter on a port; `None` if there is no memory for their buffers.
    pub(crate) fn new(
        adapter: Adapter,
        port: Box<dyn Port>,
        clock: Option<fn() -> Instant>,
        generation: Option<usize>,
    ) -> Option<Self> {
        // Exchanged for the one of the adapter.
        let output = Outbox::new(zeros(OUTBOX)?, port.run_packets());
        Some(Self {
            gathers: Arc::clone(&adapter.gathers),
            path: adapter.options.path,
            adapter: Mutex::new(adapter),
            local: port.local(),
            lease: Lease::default(),
            port,
            stand_in: OnceLock::new(),
            generation,
            output: Mutex::new(output),
            sends: Turns::new(),
            input: Mutex::new(zeros(INPUT)?),
            clock,
            events: Mutex::default(),
            event: Sleepers::default(),
            receives: Mutex::new(()),
            on_event: OnceLock::new(),
            on_deadline: OnceLock::new(),
            sleeps_until: Mutex::new(None),
            #[cfg(feature = "udp")]
            farewell: farewell::Farewell::default(),
        })
    }

    /// Returns true if requests of the adapter wait until the consumer has taken its completions.
    pub(crate) fn gathers(&self) -> bool {
        self.gathers.load(Ordering::Acquire)
    }

    /// Returns true if a thread serves the adapter.
    pub(crate) fn is_threaded(&self) -> bool {
        self.clock.is_some()
    }

    /// Returns true in a child of `fork`, which has no thread for the adapter and no socket of it.
    ///
    /// It must not take a lock of the adapter: a thread of its parent may have held it.
    pub(crate) fn is_forked(&self) -> bool {
        #[cfg(feature = "udp")]
        let here = Some(crate::forks::generation());
        #[cfg(not(feature = "udp"))]
        let here = None;
        self.generation.is_some() && self.generation != here
    }

    /// Fails in a child of `fork`.
    pub(crate) fn check_process(&self) -> Result<(), BackendError> {
        if self.is_forked() {
            return Err(BackendError::State);
        }
        Ok(())
    }

    /// Returns the port; in a child of `fork`, one that is closed.
    pub(crate) fn port(&self) -> &dyn Port {
        if self.is_forked() {
            &ClosedPort
        } else {
            &*self.port
        }
    }

    fn stand_in<R>(&self, act: impl FnOnce(&mut Adapter) -> R) -> R {
        let adapter = self.stand_in.get_or_init(|| {
            let mut options = RoceOptions::new([0; 16]);
            options.connections = 0;
            options.keys = 0;
            let adapter = Adapter::new(options, ClosedPort.address(), 1);
            Mutex::new(adapter.expect("memory for an adapter without objects"))
        });
        act(&mut lock(adapter))
    }

    /// Runs `act` on the locked adapter, sends packets of the local way, and tells the consumer of
    /// control events.
    ///
    /// In a child of `fork`, runs it on an adapter without objects.
    pub(crate) fn enter<R>(&self, act: impl FnOnce(&mut Adapter) -> R) -> R {
        self.enter_then(act, |_| ()).0
    }

    /// As [`enter`](Self::enter); then sends the packets that are due, and wakes the thread of the
    /// adapter if it would sleep too long.
    ///
    /// The local way needs one lock section for all this.
    pub(crate) fn enter_and_send<R>(&self, act: impl FnOnce(&mut Adapter) -> R) -> R {
        let (result, (has_output, deadline)) =
            self.enter_then(act, |adapter| (adapter.has_output(), adapter.deadline()));
        if has_output {
            self.send_pending();
        } else {
            self.wake_thread(deadline);
        }
        result
    }

    /// As [`enter`](Self::enter), with a last look at the adapter.
    fn enter_then<R, S>(
        &self,
        act: impl FnOnce(&mut Adapter) -> R,
        last: impl FnOnce(&Adapter) -> S,
    ) -> (R, S) {
        if self.is_forked() {
            return self.stand_in(|adapter| (act(adapter), last(adapter)));
        }
        let mut adapter = lock(&self.adapter);
        if let Some(clock) = self.clock {
            adapter.now = adapter.now.max(clock());
        }
        let result = act(&mut adapter);
        if adapter.has_local_output() {
            adapter.transmit_local();
        }
        let raised = core::mem::take(&mut adapter.raised);
        let looked = last(&adapter);
        drop(adapter);
        if raised {
            self.wake(|events| events.count += 1);
            if let Some(on_event) = self.on_event.get() {
                // A panic in it must not end the thread of the adapter.
                contain_panic(on_event);
            }
        }
        (result, looked)
    }

    /// Runs `act` on the locked adapter, without the time and without control events.
    ///
    /// `act` neither sends nor raises anything. Never in a child of `fork`.
    pub(crate) fn enter_briefly<R>(&self, act: impl FnOnce(&mut Adapter) -> R) -> R {
        act(&mut lock(&self.adapter))
    }

    /// Sets the function that is called after control events; only the first one counts.
    pub(crate) fn set_on_event(&self, on_event: OnEvent) {
        let _ = self.on_event.set(on_event);
    }

    /// Sets the function that wakes the thread of the adapter; only the first one counts.
    #[cfg(feature = "udp")]
    pub(crate) fn set_on_deadline(&self, on_deadline: OnEvent) {
        let _ = self.on_deadline.set(on_deadline);
    }

    /// Locks the time that the thread of the adapter sleeps until; `None` while it is awake.
    pub(crate) fn sleeps_until(&self) -> MutexGuard<'_, Option<Instant>> {
        lock(&self.sleeps_until)
    }

    /// Sleeps until there are control events since `*seen`, `woken` returns true, `pause` ends, or
    /// a signal of the system arrives.
    pub(crate) fn sleep(
        &self,
        seen: &mut u64,
        pause: Option<core::time::Duration>,
        woken: impl Fn() -> bool,
    ) -> WakeReason {
        if self.is_forked() {
            let pause = pause.map_or(FORKED_PAUSE, |pause| pause.min(FORKED_PAUSE));
            std::thread::sleep(pause);
            return WakeReason::TimedOut;
        }
        let end = pause.and_then(|pause| std::time::Instant::now().checked_add(pause));
        let left = || end.map(|end| end.saturating_duration_since(std::time::Instant::now()));
        let mut is_over = |events: &Events| {
            let over = events.count != *seen || woken();
            if over {
                *seen = events.count;
            }
            over
        };
        if self.is_threaded()
            && let Ok(_receives) = self.receives.try_lock()
        {
            let slept = self.sleep_on_port(&mut is_over, &left);
            self.leave_queues();
            if let Some(slept) = slept {
                return slept;
            }
        }
        loop {
            self.before_wait();
            let mut events = lock(&self.events);
            if is_over(&events) {
                return WakeReason::Woken;
            }
            let left = left();
            if left.is_some_and(|left| left.is_zero()) {
                return WakeReason::TimedOut;
            }
            events.sleepers += 1;
            let wakes = self.event.wakes();
            drop(events);
            let reason = self.event.sleep(wakes, left);
            lock(&self.events).sleepers -= 1;
            if reason == WakeReason::Interrupted {
                return reason;
            }
        }
    }

    /// As `sleep`, on the port itself: a packet that this thread waits for wakes no other thread.
    ///
    /// Returns `None` if the port cannot sleep.
    fn sleep_on_port(
        &self,
        is_over: &mut impl FnMut(&Events) -> bool,
        left: &impl Fn() -> Option<core::time::Duration>,
    ) -> Option<WakeReason> {
        loop {
            let mut events = lock(&self.events);
            if is_over(&events) {
                return Some(WakeReason::Woken);
            }
            if events.is_closing {
                return None;
            }
            let pause = left();
            if pause.is_some_and(|pause| pause.is_zero()) {
                return Some(WakeReason::TimedOut);
            }
            events.sleeps_on_port = true;
            let before = events.count;
            drop(events);
            self.lease.note_look();
            // Before the sleep, the thread asks for doorbells and looks once more.
            let awakening = match self.arm() {
                true => Some(Awakening::Local),
                false => self.port.sleep(pause),
            };
            lock(&self.events).sleeps_on_port = false;
            // Other packets than those that this thread waits for are not its work.
            let stops =
                || lock(&self.events).count != before || left().is_some_and(|left| left.is_zero());
            match awakening? {
                Awakening::Arrivals { reports } => {
                    if self.drive(reports, stops).more {
                        // The thread of the adapter does the rest.
                        self.wake_service();
                    }
                }
                // It looks again before it sleeps.
                Awakening::Local => {
                    self.drive_local(stops);
                }
                Awakening::Interrupted => return Some(WakeReason::Interrupted),
                Awakening::Nothing => {}
            }
        }
    }

    /// Wakes the thread of the adapter, if there is one.
    fn wake_service(&self) {
        if let Some(wake) = self.on_deadline.get() {
            wake();
        }
    }

    /// Ends all sleeps, and leaves the port to the thread of the adapter, which ends it.
    #[cfg(feature = "udp")]
    pub(crate) fn leave_port(&self) {
        self.wake(|events| {
            events.is_closing = true;
            events.count += 1;
        });
    }

    /// Gives back what a closed adapter has of the system, whoever still holds it.
    pub(crate) fn end(&self) {
        self.enter(Adapter::leave_ports);
        self.send_pending();
        self.close_queues();
    }

    /// Ends all sleeps.
    pub(crate) fn wake_sleepers(&self) {
        if !self.is_forked() {
            self.wake(|_| {});
        }
    }

    /// Changes the events and wakes the threads that wait for them.
    fn wake(&self, change: impl FnOnce(&mut Events)) {
        // Under the lock, so that no thread is between its check and its sleep.
        let mut events = lock(&self.events);
        change(&mut events);
        let wakes_port = core::mem::take(&mut events.sleeps_on_port);
        if events.sleepers != 0 {
            self.event.wake_all();
        }
        drop(events);
        if wakes_port {
            self.port.wake();
        }
    }

    /// Sends the packets that are due, without the adapter's lock.
    ///
    /// One thread sends at a time, so that the packets of a queue pair stay in order. A second
    /// caller makes it look again, and returns true. After [`ROUNDS`] outboxes the sender wakes the
    /// adapter's thread, if any, and returns false.
    pub(crate) fn send_pending(&self) -> bool {
        if self.is_forked() {
            return true;
        }
        loop {
            let all_sent = self.send_rounds(ROUNDS);
            let (has_chores, deadline) = self.enter_briefly(|adapter| {
                let has_chores = core::mem::take(&mut adapter.has_chores);
                (has_chores, adapter.deadline())
            });
            if has_chores {
                self.ask_for_queues();
                self.release_ports();
                continue;
            }
            if !all_sent {
                self.wake_service();
            }
            self.wake_thread(deadline);
            return all_sent;
        }
    }

    /// Gives back the ports that nothing uses any more.
    #[cold]
    fn release_ports(&self) {
        while let Some(port) = self.enter_briefly(|adapter| adapter.unused_ports.pop()) {
            self.port.release(port);
        }
    }

    /// Sends the packets that are due, in at most `rounds` turns; false if some are left.
    fn send_rounds(&self, mut rounds: usize) -> bool {
        let mut turn = self.sends.take();
        while let Some(own) = turn {
            let mut output = lock(&self.output);
            while self.enter(|adapter| adapter.transmit(&mut output)) {
                output.send(&*self.port);
                rounds = rounds.saturating_sub(1);
                if rounds == 0 {
                    drop(output);
                    // The next sender also sends the packets that others asked for.
                    let _is_asked = own.leave();
                    return false;
                }
            }
            output.send(&*self.port);
            drop(output);
            turn = own.end();
        }
        true
    }

    /// Waits until the packets that another thread has taken to send have left.
    #[cfg(feature = "udp")]
    pub(crate) fn await_sender(&self) {
        drop(lock(&self.output));
    }

    /// Wakes the thread of the adapter if it would sleep past a deadline.
    fn wake_thread(&self, deadline: Option<Instant>) {
        let Some((on_deadline, deadline)) = self.on_deadline.get().zip(deadline) else {
            return;
        };
        let mut sleeps_until = self.sleeps_until();
        if sleeps_until.is_some_and(|until| deadline < until) {
            *sleeps_until = None;
            on_deadline();
        }
    }

    /// Takes the datagrams that have come, at most `bursts` times `burst`, and sends the answers.
    ///
    /// Ends after a burst for which `stops` returns true.
    fn take_packets(
        &self,
        input: &mut [u8],
        (bursts, burst): (usize, usize),
        stops: impl Fn() -> bool,
    ) -> Bursts {
        let mut taken = Bursts::None;
        for _ in 0..bursts {
            let mut left = burst;
            let mut sends = false;
            while left > 0
                && let Some(arrival) = self.port.receive(input)
            {
                left -= 1;
                let (has_unrouted, has_unanswered);
                (has_unrouted, has_unanswered, sends) = self.enter(|adapter| {
                    adapter.receive(&arrival, input);
                    let has_unanswered = !adapter.unanswered.is_empty();
                    (adapter.has_unrouted(), has_unanswered, adapter.has_output())
                });
                if has_unanswered {
                    self.tell_unanswered();
                }
                if has_unrouted {
                    self.look_up_paths();
                    sends = true;
                }
            }
            if left < burst {
                taken = Bursts::All;
            }
            if sends {
                self.send_pending();
            }
            if left > 0 {
                return taken;
            }
            if stops() {
                break;
            }
        }
        Bursts::Some
    }

    /// Moves the packets of an adapter, for a poll of a completion queue: of local queues, and of
    /// sockets if it has no thread.
    ///
    /// Takes one datagram: to look for another one that has not come costs as much as a short one.
    /// The next poll looks. With local queues, only some polls look at the sockets.
    pub(crate) fn poll(&self) {
        if self.is_forked() {
            return;
        }
        let queues = self.local.as_ref().filter(|queues| queues.is_used());
        let is_threaded = self.is_threaded();
        if is_threaded && queues.is_none() {
            return;
        }
        let polls = self.lease.note_look();
        let looks_at_sockets =
            !is_threaded && (queues.is_none() || polls.is_multiple_of(SOCKET_POLLS));
        let came = self.try_input().is_some_and(|mut input| {
            if let Some(queues) = queues.filter(|_| looks_at_sockets) {
                queues.attend_next();
            }
            let local = self.take_local(&mut input, || false) != Bursts::None;
            looks_at_sockets && self.take_packets(&mut input, (1, 1), || false) != Bursts::None
                || local
        });
        if !came && self.enter_briefly(|adapter| adapter.has_output()) {
            self.send_pending();
        }
    }

    /// Takes a datagram, if one has come, for a poll of a device; returns true if it did.
    ///
    /// Also with a thread: a program that polls has the processor that the thread would need.
    pub(crate) fn poll_sockets(&self) -> bool {
        if self.is_forked() || !self.is_threaded() {
            return false;
        }
        let Some(mut input) = self.try_input() else {
            return false;
        };
        self.take_packets(&mut input, (1, 1), || false) != Bursts::None
    }

    /// Looks up the paths of new requests to connect, without the adapter's lock.
    fn look_up_paths(&self) {
        while let Some(unrouted) = self.enter(Adapter::next_unrouted) {
            let route = self.port.route(unrouted.peer).ok();
            self.enter(|adapter| adapter.routed(&unrouted, route));
        }
    }

    /// Tells the port of peers that have not answered in time, or have asked again.
    #[cold]
    fn tell_unanswered(&self) {
        let told = self.enter_briefly(|adapter| core::mem::take(&mut adapter.unanswered));
        for (peer, length) in told {
            self.port.unanswered(peer, length);
        }
    }

    /// Takes the reports of datagrams that were not delivered; returns true if more may have come.
    fn take_undelivered(&self) -> bool {
        if self.is_forked() {
            return false;
        }
        let mut refused = [0; REFUSED];
        for _ in 0..BURSTS {
            let Some((length, reason)) = self.port.undelivered(&mut refused) else {
                return false;
            };
            let datagram = refused.get(..length).unwrap_or_default();
            self.enter(|adapter| adapter.not_delivered(datagram, reason));
        }
        true
    }

    /// Takes the packets that have come, does what is due and sends packets.
    ///
    /// Takes the reports of datagrams that were not delivered if `reports` is set. Takes no more
    /// packets once `stops` returns true.
    pub(crate) fn drive(&self, reports: bool, stops: impl Fn() -> bool) -> Driven {
        if self.is_forked() {
            return Driven::default();
        }
        let began = self.clock.map(|clock| clock());
        // Another thread may have looked for the last time before this one was woken.
        let mut input = lock(&self.input);
        let local = self.take_local(&mut input, &stops);
        let bursts = self.take_packets(&mut input, (BURSTS, BURST), stops);
        drop(input);
        Driven {
            more: self.finish(bursts, reports, began) || local == Bursts::Some,
            found: local != Bursts::None,
        }
    }

    /// As [`drive`](Self::drive), for an adapter without a thread: `now` is its time.
    pub(crate) fn drive_at(&self, now: Instant) {
        self.enter(|adapter| adapter.now = adapter.now.max(now));
        if self.is_forked() {
            return;
        }
        let bursts = match self.try_input() {
            Some(mut input) => {
                self.attend(Gone::Any);
                self.take_local(&mut input, || false);
                self.take_packets(&mut input, (BURSTS, BURST), || false)
            }
            None => Bursts::None,
        };
        let _more = self.finish(bursts, true, None);
    }

    /// Takes the next event; `now` is the time of an adapter without a thread.
    ///
    /// After a stop of the process, the port of an adapter with a thread may have packets that no
    /// thread has taken. They count before the caller judges deadlines (ROCE-200).
    pub(crate) fn next_event(&self, now: Instant) -> Option<ControlEvent> {
        let (event, unseen) = self.enter(|adapter| {
            let seen_at = adapter.seen_at.as_micros();
            let unseen = adapter.now.as_micros().saturating_sub(seen_at);
            (adapter.next_event(), unseen)
        });
        if event.is_some() {
            return event;
        }
        if !self.is_threaded() {
            self.drive_at(now);
        } else if unseen >= LATE {
            if self.waits_for_input() {
                for _ in 0..LATE_BURSTS {
                    if !self.drive(true, || false).more {
                        break;
                    }
                }
            }
            self.enter(|adapter| adapter.seen_at = adapter.now);
        } else {
            return None;
        }
        self.enter(Adapter::next_event)
    }

    /// Does what is due after `bursts` were taken, from `began` on.
    fn finish(&self, bursts: Bursts, reports: bool, began: Option<Instant>) -> bool {
        let more_reports = reports && self.take_undelivered();
        let has_unanswered = self.enter(|adapter| {
            if let Some(began) = began.filter(|_| bursts != Bursts::Some) {
                adapter.seen_at = began;
            }
            adapter.expire();
            !adapter.unanswered.is_empty()
        });
        if has_unanswered {
            self.tell_unanswered();
        }
        let all_sent = self.send_pending();
        bursts == Bursts::Some || more_reports || !all_sent
    }

    /// Waits a little for another thread that looks at the port; returns false if it goes on.
    ///
    /// It may be this thread, in the event of a packet.
    fn waits_for_input(&self) -> bool {
        (0..LATE_YIELDS).any(|_| {
            let is_free = self.try_input().is_some();
            if !is_free {
                std::thread::yield_now();
            }
            is_free
        })
    }

    /// Locks the input, unless another thread or a caller of this one has locked it.
    fn try_input(&self) -> Option<MutexGuard<'_, Vec<u8>>> {
        match self.input.try_lock() {
            Ok(input) => Some(input),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
