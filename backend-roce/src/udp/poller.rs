//! Sleeps until sockets have datagrams.

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use dat_core::event::{OwnSleep, WakeReason};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

use crate::port::Gone;

/// The data of an event of the waker; sockets need no data of their own, since all are read.
const WAKER: u64 = 1;
const SOCKET: u64 = 0;
/// The doorbell of a pair of local queues, with its slot in the upper bits, or a socket that makes
/// one.
const BELL: u64 = 2;
const SETUP: u64 = 3;

/// Microseconds of the shortest pause that `epoll_wait` knows.
const MILLISECOND: u128 = 1000;

/// Bits below a slot.
const KIND_BITS: u32 = 8;

/// New data, reported once and to one poller.
const ARRIVALS: EpollFlags = EpollFlags::EPOLLIN
    .union(EpollFlags::EPOLLET)
    .union(EpollFlags::EPOLLEXCLUSIVE);

/// The end of a peer.
const HUNG_UP: EpollFlags = EpollFlags::EPOLLHUP.union(EpollFlags::EPOLLERR);

/// Sockets that a thread sleeps on.
///
/// Several pollers may have a socket. A datagram wakes the thread of one of them: the first one
/// that the socket was added to and that a thread sleeps on.
#[derive(Debug)]
pub(crate) struct Poller {
    poll: Epoll,
    waker: EventFd,
}

/// The reasons for the end of a sleep; none of them at the end of the pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wakeup {
    /// Datagrams or reports have come.
    pub(crate) arrivals: bool,
    /// Reports of datagrams that were not delivered have come.
    pub(crate) reports: bool,
    /// A doorbell has rung, or a pair of local queues is to be made or has ended.
    pub(crate) local: bool,
    /// A pair of local queues is to be made or has ended.
    pub(crate) setup: bool,
    /// The pairs that have ended.
    pub(crate) gone: Gone,
    /// [`Poller::wake`] was called.
    pub(crate) woken: bool,
    /// A signal of the system arrived, or the process was stopped.
    pub(crate) interrupted: bool,
}

impl Wakeup {
    fn note(&mut self, flags: EpollFlags, data: u64) {
        match data & ((1 << KIND_BITS) - 1) {
            SOCKET => {
                self.arrivals = true;
                self.reports |= flags.contains(EpollFlags::EPOLLERR);
            }
            BELL => {
                self.local = true;
                if flags.intersects(HUNG_UP) {
                    self.setup = true;
                    self.gone = match self.gone {
                        Gone::None => Gone::One((data >> KIND_BITS) as u16),
                        Gone::One(_) | Gone::Any => Gone::Any,
                    };
                }
            }
            SETUP => (self.local, self.setup) = (true, true),
            _ => self.woken = true,
        }
    }
}

impl Poller {
    /// Makes an empty poller.
    ///
    /// # Errors
    /// No descriptor or no memory is left.
    pub(crate) fn new() -> io::Result<Self> {
        let poll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let waker = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        // Reported once for each wake-up, so that nobody reads the counter.
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        poll.add(&waker, EpollEvent::new(flags, WAKER))?;
        Ok(Self { poll, waker })
    }

    /// Adds a socket. New data is reported once, so the socket is to be read until it is empty.
    ///
    /// # Errors
    /// No memory is left.
    pub(crate) fn add(&self, socket: impl AsFd) -> io::Result<()> {
        self.add_as(&socket, SOCKET)
    }

    /// Adds a socket by which pairs of local queues are made.
    ///
    /// # Errors
    /// No memory is left.
    pub(crate) fn add_setup(&self, socket: impl AsFd) -> io::Result<()> {
        self.add_as(&socket, SETUP)
    }

    fn add_as(&self, socket: &impl AsFd, data: u64) -> io::Result<()> {
        Ok(self.poll.add(socket, EpollEvent::new(ARRIVALS, data))?)
    }

    /// Adds the doorbell of the pair in a slot; its socket may have made the pair before.
    ///
    /// # Errors
    /// No memory is left.
    pub(crate) fn add_bell(&self, socket: impl AsFd, slot: u16) -> io::Result<()> {
        let _ = self.poll.delete(&socket);
        self.add_as(&socket, BELL | u64::from(slot) << KIND_BITS)
    }

    /// Ends the sleep, or the next one.
    pub(crate) fn wake(&self) {
        // A full counter is a wake-up, too.
        let _ = self.waker.write(1);
    }

    /// Sleeps until a socket has something, [`wake`](Self::wake) is called, a signal is handled or
    /// the pause ends.
    ///
    /// From a millisecond on, the pause is rounded up to milliseconds.
    pub(crate) fn sleep(&self, pause: Option<Duration>) -> Wakeup {
        let mut wakeup = Wakeup::default();
        if let Some(own) = OwnSleep::get() {
            let reason = (own.epoll)(self.poll.0.as_raw_fd(), pause, &mut |flags, data| {
                wakeup.note(EpollFlags::from_bits_retain(flags.cast_signed()), data);
            });
            wakeup.interrupted = reason == WakeReason::Interrupted;
            return wakeup;
        }
        let is_short = |pause: &Duration| (1..MILLISECOND).contains(&pause.as_micros());
        let timeout = match pause {
            None => EpollTimeout::NONE,
            Some(short) if is_short(&short) => {
                let ready = PollFd::new(self.poll.0.as_fd(), PollFlags::POLLIN);
                let ended = ppoll(&mut [ready], Some(TimeSpec::from_duration(short)), None);
                wakeup.interrupted = ended == Err(Errno::EINTR);
                EpollTimeout::ZERO
            }
            Some(long) => {
                let millis = long.as_micros().div_ceil(MILLISECOND);
                EpollTimeout::try_from(millis).unwrap_or(EpollTimeout::MAX)
            }
        };
        let mut events = [EpollEvent::empty(); 16];
        let found = self.poll.wait(&mut events, timeout);
        wakeup.interrupted |= found == Err(Errno::EINTR);
        for event in events.iter().take(found.unwrap_or(0)) {
            wakeup.note(event.events(), event.data());
        }
        wakeup
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::path::Path;
    use std::sync::LazyLock;
    use std::sync::mpsc::channel;
    use std::{fs, thread};

    use super::*;

    const SOON: Option<Duration> = Some(Duration::from_secs(20));

    fn socket() -> (UdpSocket, impl Fn()) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let target = socket.local_addr().unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        (socket, move || {
            sender.send_to(&[1], target).unwrap();
        })
    }

    fn read(socket: &UdpSocket) {
        while socket.recv(&mut [0; 8]).is_ok() {}
    }

    #[test]
    fn a_wake_up_before_the_sleep_ends_it() {
        let poller = Poller::new().unwrap();
        poller.wake();
        poller.wake();
        let woken = Wakeup {
            woken: true,
            ..Wakeup::default()
        };
        assert_eq!(poller.sleep(SOON), woken);
        // Each wake-up counts once.
        assert_eq!(poller.sleep(Some(Duration::ZERO)), Wakeup::default());
    }

    /// Waits until a thread sleeps, which is named by its path below `/proc`.
    fn until_asleep(thread: &Path) {
        let status = Path::new("/proc").join(thread).join("stat");
        // The state follows the name of the thread.
        while !fs::read_to_string(&status).unwrap().contains(") S ") {
            thread::yield_now();
        }
    }

    /// The system names the pair that has ended, unless there are several.
    ///
    /// Spec: ROCE-216
    #[test]
    fn the_end_of_a_pair_is_reported_with_its_slot() {
        let poller = Poller::new().unwrap();
        let pairs = [3, 500].map(|slot| {
            let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
            poller.add_bell(&one, slot).unwrap();
            (one, other)
        });
        let rung = || poller.sleep(Some(Duration::ZERO));
        std::io::Write::write_all(&mut &pairs[0].1, &[0]).unwrap();
        let wakeup = rung();
        assert!(wakeup.local && !wakeup.setup);
        assert_eq!(wakeup.gone, Gone::None);
        let [(_first, near), (_second, far)] = pairs;
        drop(far);
        assert_eq!(rung().gone, Gone::One(500));
        drop(near);
        assert_eq!(rung().gone, Gone::One(3));
        let pairs = [1, 2].map(|slot| {
            let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
            poller.add_bell(&one, slot).unwrap();
            drop(other);
            one
        });
        assert_eq!(rung().gone, Gone::Any);
        drop(pairs);
    }

    /// The pollers of the threads with sleeps of their own.
    static POLLERS: LazyLock<[Poller; 2]> =
        LazyLock::new(|| [Poller::new().unwrap(), Poller::new().unwrap()]);

    /// A sleep that takes the events of the descriptor.
    const OWN: OwnSleep = OwnSleep {
        poll: |_, _| unreachable!("to the system, it would take no event"),
        epoll: |descriptor, _, each| {
            let is_of = |poller: &&Poller| poller.poll.0.as_raw_fd() == descriptor;
            let poller = POLLERS.iter().find(is_of).unwrap();
            let mut events = [EpollEvent::empty(); 1];
            poller.poll.wait(&mut events, EpollTimeout::NONE).unwrap();
            each(events[0].events().bits().cast_unsigned(), events[0].data());
            WakeReason::Woken
        },
        wake_fd: -1,
        wake: |_| {},
    };

    #[test]
    fn a_datagram_wakes_one_poller() {
        let pollers = [Poller::new().unwrap(), Poller::new().unwrap()];
        wakes_one(&pollers, None);
    }

    #[test]
    fn a_datagram_wakes_one_poller_with_a_sleep_of_its_own() {
        wakes_one(&POLLERS, Some(OWN));
    }

    /// The first poller gets a datagram if it sleeps, and the second one if not.
    fn wakes_one(pollers: &[Poller; 2], sleep: Option<OwnSleep>) {
        let (socket, send) = socket();
        pollers
            .iter()
            .for_each(|poller| poller.add(&socket).unwrap());
        let (woken, is_woken) = channel();
        for round in 0..20 {
            let expected = round % 2;
            thread::scope(|scope| {
                for (number, poller) in pollers.iter().enumerate().skip(expected) {
                    let (own, is_known) = channel();
                    let woken = woken.clone();
                    scope.spawn(move || {
                        OwnSleep::set(sleep);
                        own.send(fs::read_link("/proc/thread-self").unwrap())
                            .unwrap();
                        if poller.sleep(SOON).arrivals {
                            woken.send(number).unwrap();
                        }
                    });
                    until_asleep(&is_known.recv().unwrap());
                }
                send();
                assert_eq!(is_woken.recv(), Ok(expected), "round {round}");
                read(&socket);
                pollers.iter().for_each(Poller::wake);
            });
            assert!(is_woken.try_recv().is_err(), "both in round {round}");
            // Takes the wake-up of the one that did not sleep any more.
            for poller in pollers {
                poller.sleep(Some(Duration::ZERO));
            }
        }
    }
}
