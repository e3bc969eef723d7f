//! The ways of datagrams: queues in memory to adapters of this host, or sockets (ROCE-280 to
//! ROCE-283).
//!
//! The adapter of a receiver is known at the post only. Who posts the first datagram to a port asks
//! for queues, without the lock of the adapter and without waiting for them.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use dat_core::time::Instant;

use super::Adapter;
use super::timers::after;
use crate::options::PathChoice;
use crate::port::{LocalNumber, Path};
use crate::reserve::{Reserve, Secret, Table};

/// Most ports whose ways are known.
const WAYS: usize = 1024;

/// Pairs of queues of an adapter with which datagrams ask for no other ones.
const PAIRS: usize = 64;

/// Time after which ports without queues are asked again.
const REST: Duration = Duration::from_secs(1);

/// An address of this side, and a port of a peer.
pub(crate) type Ends = (IpAddr, SocketAddr);

/// The way of datagrams to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A pair of queues.
    Queues(LocalNumber),
    /// Queues are to be asked for.
    Wanted,
    /// A set-up is on its way.
    Asked(LocalNumber),
    /// There are no queues.
    None,
    /// The port is one of this adapter.
    Own,
}

impl Way {
    const fn is_pending(&self) -> bool {
        matches!(self, Self::Wanted | Self::Asked(_))
    }
}

/// How a datagram leaves.
pub(super) enum Exit {
    Socket,
    Queue(LocalNumber),
    /// It waits for queues, since there is no other way.
    Later,
    /// It is lost.
    Nowhere,
}

/// The ways to the ports that datagrams were sent to.
pub(crate) struct Ways {
    table: Table<Ends, Way>,
    /// The queues that were used last.
    last: Option<(Ends, LocalNumber)>,
    /// Time after which ports without queues are forgotten.
    rests_until: Instant,
}

impl Ways {
    pub(super) fn new(names: Secret) -> Self {
        Self {
            table: Table::with_hasher(names),
            last: None,
            rests_until: Instant::ZERO,
        }
    }

    #[cfg(test)]
    pub(crate) fn want(&mut self, ends: Ends) {
        self.table.insert(ends, Way::Wanted);
    }
}

impl Adapter {
    /// Returns how a datagram of a path leaves.
    pub(super) fn exit(&mut self, path: &Path, local: IpAddr) -> Exit {
        let otherwise = match self.options.path {
            PathChoice::Packets => return Exit::Socket,
            PathChoice::Any => Exit::Socket,
            PathChoice::Local => Exit::Nowhere,
        };
        if path.single {
            return otherwise;
        }
        match self.way(&(local, path.wire.destination())) {
            Way::Own => Exit::Socket,
            Way::Queues(number) if self.locals.takes_datagram(number) => Exit::Queue(number),
            Way::Queues(_) => {
                self.counts.local.full += 1;
                otherwise
            }
            way if way.is_pending() && matches!(otherwise, Exit::Nowhere) => Exit::Later,
            _ => otherwise,
        }
    }

    fn way(&mut self, ends: &Ends) -> Way {
        if let Some((last, number)) = &self.ways.last
            && last == ends
            && self.locals.is_open(*number)
        {
            return Way::Queues(*number);
        }
        match self.ways.table.get(ends) {
            Some(Way::Queues(number)) if self.locals.is_open(*number) => {
                self.ways.last = Some((*ends, *number));
                Way::Queues(*number)
            }
            Some(Way::None) if self.now < self.ways.rests_until => Way::None,
            Some(Way::Queues(_) | Way::None) | None => self.find_way(ends),
            Some(way) => *way,
        }
    }

    /// Finds the way to a port that has none, once in a while.
    #[cold]
    fn find_way(&mut self, ends: &Ends) -> Way {
        let is_own = self.is_own(ends);
        let Self {
            ways,
            locals,
            has_chores,
            ..
        } = self;
        if self.now >= ways.rests_until {
            ways.rests_until = after(self.now, REST);
            ways.table.retain(|_, way| match way {
                Way::Queues(number) => locals.is_open(*number),
                way => way.is_pending(),
            });
        }
        let known = ways.table.len();
        let has_room = known < WAYS && ways.table.has_room_for(known + 1);
        if ways.table.contains_key(ends) || !has_room {
            return Way::None;
        }
        let pending = ways.table.values().filter(|way| way.is_pending()).count();
        let way = match locals.find(ends) {
            _ if is_own => Way::Own,
            Some(number) => Way::Queues(number),
            None if locals.count() + pending < PAIRS => Way::Wanted,
            None => Way::None,
        };
        *has_chores |= way == Way::Wanted;
        ways.table.insert(*ends, way);
        way
    }

    /// Returns true if both ends are of this adapter.
    pub(super) fn is_own(&self, (local, peer): &Ends) -> bool {
        peer.ip() == *local && self.has_port(peer.port())
    }

    /// Returns the ends that queues are wanted between, if any.
    pub(crate) fn next_wanted(&mut self) -> Option<Ends> {
        let mut ways = self.ways.table.iter();
        let wanted = ways.find(|(_, way)| **way == Way::Wanted);
        wanted.map(|(ends, _)| *ends)
    }

    /// Takes the set-up that was begun for wanted queues, if there is any to be had.
    pub(crate) fn asked(&mut self, ends: &Ends, asked: Option<LocalNumber>) {
        // Another thread may have asked, too.
        if let Some(way @ Way::Wanted) = self.ways.table.get_mut(ends) {
            *way = asked.map_or(Way::None, Way::Asked);
            self.resume_datagrams();
        }
    }

    /// Takes the outcome of a set-up: the number of a pair, which is open if it succeeded.
    pub(super) fn settle_ways(&mut self, asked: LocalNumber, number: LocalNumber) {
        for (ends, way) in &mut self.ways.table {
            if *way == Way::Asked(asked) {
                *way = match self.locals.is_between(number, ends) {
                    true => Way::Queues(number),
                    false => Way::None,
                };
            }
        }
        self.resume_datagrams();
    }

    /// Lets datagrams leave that waited for queues.
    fn resume_datagrams(&mut self) {
        if self.options.path != PathChoice::Local {
            return;
        }
        for key in 0..self.pairs.bound() {
            let pair = self.pairs.get(key);
            if pair.is_some_and(|pair| !pair.receivers.is_empty()) {
                self.set_ready(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::RoceOptions;

    const OWN: IpAddr = IpAddr::V4(core::net::Ipv4Addr::LOCALHOST);

    fn to(port: u16) -> Ends {
        (OWN, SocketAddr::new(OWN, port))
    }

    fn adapter() -> Adapter {
        let address = SocketAddr::new(OWN, 61_000);
        Adapter::new(RoceOptions::new([1; 16]), address, 1).expect("memory for an adapter")
    }

    /// Peers without number take neither the queues of connections nor memory.
    ///
    /// Spec: ROCE-280
    #[test]
    fn few_ports_are_asked_for_queues_and_not_many_more_are_known() {
        let mut adapter = adapter();
        for round in 0..2 {
            for port in 1..=2000 {
                let expected = if port <= 64 { Way::Wanted } else { Way::None };
                assert_eq!(adapter.way(&to(port)), expected, "{round}, {port}");
            }
            assert_eq!(adapter.ways.table.len(), WAYS);
        }
    }

    /// Spec: ROCE-280
    #[test]
    fn a_port_without_queues_is_asked_again_after_a_second() {
        let mut adapter = adapter();
        let asked = LocalNumber { slot: 9, turn: 1 };
        for (begun, seconds) in [(None, 1), (Some(asked), 2)] {
            assert_eq!(adapter.next_wanted(), None);
            adapter.has_chores = false;
            assert_eq!(adapter.way(&to(1)), Way::Wanted);
            assert!(adapter.has_chores);
            assert_eq!(adapter.next_wanted(), Some(to(1)));
            adapter.asked(&to(1), begun);
            assert_eq!(adapter.way(&to(1)).is_pending(), begun.is_some());
            // Two threads may have asked.
            adapter.asked(&to(1), None);
            assert_eq!(adapter.way(&to(1)).is_pending(), begun.is_some());
            // The set-up has failed.
            adapter.settle_ways(asked, asked);
            assert_eq!(adapter.way(&to(1)), Way::None);
            adapter.now = Instant::from_micros(seconds * 1_000_000 - 1);
            assert_eq!(adapter.way(&to(1)), Way::None);
            adapter.now = Instant::from_micros(seconds * 1_000_000);
        }
        assert_eq!(adapter.way(&to(1)), Way::Wanted);
    }
}
