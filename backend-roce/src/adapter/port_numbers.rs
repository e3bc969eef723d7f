//! QPNs that name the UDP port of their process (ROCE-260).
//!
//! Programs of verbs tell each other an address and a QPN, and no port. The upper 13 bits of a QPN
//! are the port less 57,344; the lower 11 bits number the queue pairs of the port.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use dat_core::time::Instant;

use super::timers::after;
use crate::proto::packet::UDP_PORT;
use crate::reserve::Reserve;

/// Ports that an adapter chooses, above those of clients; a QPN can name them.
pub(crate) const PORTS: core::ops::RangeInclusive<u16> = 61_000..=u16::MAX;

/// Port of QPNs whose upper bits are 0.
const BASE: u32 = 57_344;

/// Bits of a QPN that number the queue pairs of a port.
const BITS: u32 = 11;

/// The QPN of multicast, which is nobody's.
const MULTICAST: u32 = 0xFF_FFFF;

/// Time for which a QPN stays unused after its queue pair (ROCE-261): longer than packets of an
/// earlier peer are under way.
const REST: Duration = Duration::from_secs(4);

/// Returns the port that packets to a QPN go to, and whether the QPN names it.
pub(crate) const fn port_of_qpn(qpn: u32) -> (u16, bool) {
    let port = (qpn >> BITS) + BASE;
    match port <= u16::MAX as u32 && port >= *PORTS.start() as u32 {
        true => (port as u16, true),
        false => (UDP_PORT, false),
    }
}

/// The queue pairs of the ports of an adapter, by QPN.
#[derive(Default)]
pub(super) struct PortNumbers {
    ports: Vec<u16>,
    /// Queue pairs, those of each port in a row, as far as there ever were any.
    pairs: Vec<Option<usize>>,
    /// Places whose queue pairs have gone, with the time, the oldest first.
    resting: VecDeque<(Instant, usize)>,
}

impl PortNumbers {
    /// Adds the numbers of a port that the adapter has claimed; false if there is no memory.
    pub(super) fn add_port(&mut self, port: u16) -> bool {
        let has_room = self.ports.try_reserve(1).is_ok();
        if has_room {
            self.ports.push(port);
        }
        has_room
    }

    /// Returns the queue pair with a QPN.
    #[inline]
    pub(super) fn get(&self, qpn: u32) -> Option<usize> {
        // Of most adapters there are none.
        if self.pairs.is_empty() {
            return None;
        }
        *self.pairs.get(self.place(qpn)?)?
    }

    /// Gives a queue pair a QPN; `None` if another port, or memory, is needed for it.
    pub(super) fn draw(&mut self, key: usize, now: Instant) -> Option<u32> {
        let rested = self.resting.front().copied();
        let place = match rested.filter(|(since, _)| after(*since, REST) <= now) {
            Some((_, place)) => {
                self.resting.pop_front();
                place
            }
            None => {
                let place = self.pairs.len();
                self.qpn(place).filter(|qpn| *qpn != MULTICAST)?;
                // Each place rests once its queue pair has gone.
                let has_room = self.pairs.try_reserve(1).is_ok()
                    && self.resting.has_room_for(place.saturating_add(1));
                has_room.then(|| self.pairs.push(None))?;
                place
            }
        };
        *self.pairs.get_mut(place)? = Some(key);
        self.qpn(place)
    }

    /// Takes the QPN of a queue pair back.
    pub(super) fn release(&mut self, qpn: u32, now: Instant) {
        let Some(place) = self.place(qpn) else {
            return;
        };
        let pair = self.pairs.get_mut(place).and_then(Option::take);
        if pair.is_some() {
            self.resting.push_back((now, place));
        }
    }

    fn qpn(&self, place: usize) -> Option<u32> {
        let port = *self.ports.get(place >> BITS)?;
        let number = (place & ((1 << BITS) - 1)) as u32;
        Some((u32::from(port).checked_sub(BASE)?) << BITS | number)
    }

    fn place(&self, qpn: u32) -> Option<usize> {
        let (port, is_named) = port_of_qpn(qpn);
        let index = self.ports.iter().position(|own| *own == port);
        let number = qpn as usize & ((1 << BITS) - 1);
        Some(index.filter(|_| is_named)? << BITS | number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_micros(seconds * 1_000_000)
    }

    /// Spec: ROCE-260
    #[test]
    fn a_qpn_names_a_port_from_61_000_on() {
        for (qpn, port) in [
            (0x72_4000, (61_000, true)),
            (0x72_47FF, (61_000, true)),
            (0xFF_F800, (65_535, true)),
            (0x72_3FFF, (4_791, false)),
            (0x11, (4_791, false)),
        ] {
            assert_eq!(port_of_qpn(qpn), port, "{qpn:#x}");
        }
    }

    /// Spec: ROCE-260
    #[test]
    fn a_port_has_2_048_numbers_and_another_port_has_as_many_more() {
        let mut numbers = PortNumbers::default();
        assert_eq!(numbers.draw(1, at(0)), None, "no port");
        assert!(numbers.add_port(61_000));
        for key in 0..2_048 {
            assert_eq!(numbers.draw(key, at(0)), Some(0x72_4000 + key as u32));
        }
        assert_eq!(numbers.draw(2_048, at(0)), None);
        assert!(numbers.add_port(65_535));
        for key in 2_048..4_095 {
            let qpn = numbers.draw(key, at(0)).expect("a number");
            assert_eq!(numbers.get(qpn), Some(key));
        }
        assert_eq!(numbers.draw(4_095, at(0)), None, "that of multicast");
        assert_eq!(numbers.get(0x72_4005), Some(5));
        assert_eq!(numbers.get(0x72_4805), None, "a port of another process");
    }

    /// Spec: ROCE-261
    #[test]
    fn a_number_rests_before_it_is_used_again() {
        let mut numbers = PortNumbers::default();
        assert!(numbers.add_port(61_000));
        let first = numbers.draw(7, at(0)).expect("a number");
        numbers.release(first, at(1));
        numbers.release(first, at(1));
        assert_eq!(numbers.get(first), None);
        let second = numbers.draw(8, at(4)).expect("a number");
        assert_ne!(second, first);
        assert_eq!(numbers.draw(9, at(5)), Some(first));
        assert_ne!(numbers.draw(10, at(5)), Some(first), "once");
    }
}
