//! A pair of queues between two adapters, and its doorbell.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd};

use dat_core::sync::RegisteredSpan;

use super::bell::Bell;
use super::memory::{Lane, Memory};
use super::queue::{Corrupt, Label, Reader, Record, Writer};

/// Doorbells that may lie in the socket before it is read: far fewer than fill it (ROCE-215).
const RUNG: u32 = 32;

/// The end of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one that made the memory: it writes the first queue.
    Dialler,
    /// The one that mapped it: it writes the second queue.
    Listener,
}

/// An adapter, as it is known to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its random name, as it says.
    pub name: [u8; 16],
    /// Its process, as the system says; 0 for all that this namespace does not have.
    pub process: i32,
}

/// Names of a pair and of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Naming {
    /// Number of the pair at this end: no other pair of the adapter ever has it. Not 0.
    pub number: u32,
    /// Number of the pair at the other end.
    pub peer_number: u32,
    /// The other adapter.
    pub peer_adapter: Known,
    /// Address of this end, as the two have agreed on.
    pub own: SocketAddr,
    /// Address of the other end.
    pub peer: SocketAddr,
}

/// A pair of queues between two adapters of one host.
///
/// One thread at a time writes, and one thread at a time reads; the two may be at work at once. Any
/// thread calls the others.
#[derive(Debug)]
pub struct LocalPair {
    naming: Naming,
    role: Role,
    memory: Memory,
    writer: Writer,
    reader: Reader,
    bell: Bell,
    /// Flags that the peer had taken when the socket was read.
    drained: AtomicU32,
    /// Doorbells that were rung.
    rung: AtomicU64,
    /// Set once the peer has closed its socket.
    has_hung_up: AtomicBool,
    /// Set once this end has given the pair up: it is closed, or the peer is corrupt.
    is_given_up: AtomicBool,
}

impl LocalPair {
    /// Makes a pair of memory and a connected socket.
    pub fn new(naming: Naming, role: Role, memory: Memory, bell: Bell) -> Self {
        Self {
            naming,
            role,
            memory,
            writer: Writer::default(),
            reader: Reader::default(),
            bell,
            drained: AtomicU32::new(0),
            rung: AtomicU64::new(0),
            has_hung_up: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
        }
    }

    /// Returns the names of the pair and of its ends.
    pub fn naming(&self) -> &Naming {
        &self.naming
    }

    /// Returns the number of the pair at this end.
    pub fn number(&self) -> u32 {
        self.naming.number
    }

    /// Returns the queue that this end writes; `None` in a child of `fork`.
    fn outgoing(&self) -> Option<Lane<'_>> {
        self.memory.lane(self.role == Role::Listener)
    }

    fn incoming(&self) -> Option<Lane<'_>> {
        self.memory.lane(self.role == Role::Dialler)
    }

    /// Keeps that the peer is corrupt.
    fn checked<T>(&self, result: Result<T, Corrupt>) -> Option<T> {
        if result.is_err() {
            self.is_given_up.store(true, Ordering::Release);
        }
        result.ok()
    }

    /// Returns the queue that this end writes, unless the pair is over.
    fn usable(&self) -> Option<Lane<'_>> {
        let is_given_up = self.is_given_up.load(Ordering::Relaxed);
        self.outgoing().filter(|_| !is_given_up)
    }

    /// Writes a record; false if there is no room, or the pair is over.
    ///
    /// [`ring`](Self::ring) then tells the peer, once for several records.
    pub fn write(&self, label: Label, packets: &[u8]) -> bool {
        let written = |lane| self.writer.try_write(lane, label, packets);
        self.usable().and_then(|lane| self.checked(written(lane))) == Some(true)
    }

    /// Copies a part of a payload to where [`write_split`](Self::write_split) leaves it; false if
    /// there is no room.
    pub fn place(&self, offset: usize, from: RegisteredSpan<'_>) -> bool {
        let lane = self.usable();
        lane.is_some_and(|lane| self.writer.place(lane, offset, from))
    }

    /// As [`write`](Self::write), for a packet whose payload of `payload` bytes was placed.
    pub fn write_split(&self, label: Label, headers: &[u8], payload: usize) -> bool {
        let written = |lane| self.writer.try_split(lane, label, headers, payload);
        self.usable().and_then(|lane| self.checked(written(lane))) == Some(true)
    }

    /// Returns the free bytes of the queue to the peer.
    ///
    /// If they are fewer than `least`, which is at most half of the queue, asks for a doorbell once
    /// there are as many. The wish stays until [`withdraw`](Self::withdraw) takes it back. 0 asks
    /// for nothing, and looks anew.
    pub fn room(&self, least: usize) -> usize {
        let Some(lane) = self.usable() else {
            return 0;
        };
        self.checked(self.writer.room(lane, least)).unwrap_or(0)
    }

    /// Returns the positions of the peer's reader and of the next record; 0 if the pair is over.
    pub fn positions(&self) -> [u32; 2] {
        let positions = |lane| self.checked(self.writer.positions(lane));
        self.usable().and_then(positions).unwrap_or_default()
    }

    /// Returns true if so many bytes are free in the queue to the peer; asks for nothing.
    pub fn has_room(&self, bytes: usize) -> bool {
        let found = |lane| self.writer.has_room(lane, bytes);
        self.usable().and_then(|lane| self.checked(found(lane))) == Some(true)
    }

    /// Takes the wish for room back, if there is one.
    pub fn withdraw(&self) {
        if let Some(lane) = self.outgoing() {
            self.writer.withdraw(lane);
        }
    }

    /// Returns true if room was asked for and has come.
    pub fn has_room_come(&self) -> bool {
        let lane = self.outgoing();
        lane.is_some_and(|lane| self.writer.has_room_come(lane))
    }

    /// Wakes the peer if it sleeps; called after [`write`](Self::write).
    pub fn ring(&self) {
        let lane = self.outgoing();
        if lane.is_some_and(|lane| self.writer.wakes_reader(lane)) {
            self.send_bell();
        }
    }

    /// Copies the next record into `buffer`, of [`PAYLOAD_MAX`](super::PAYLOAD_MAX) bytes; `None`
    /// if there is none.
    ///
    /// The payload of a split one stays in the queue until [`release`](Self::release). Wakes a peer
    /// that waits for room, if there is enough.
    pub fn read(&self, buffer: &mut [u8]) -> Option<Record> {
        if self.is_given_up.load(Ordering::Relaxed) {
            return None;
        }
        let lane = self.incoming()?;
        let record = self.checked(self.reader.read(lane, buffer))?;
        self.ring_for_room(lane);
        record
    }

    /// Copies a part of the payload of the split record that was read last; false if it does not
    /// have these bytes.
    pub fn take(&self, offset: usize, into: RegisteredSpan<'_>) -> bool {
        let lane = self.incoming();
        lane.is_some_and(|lane| self.reader.take(lane, offset, into))
    }

    /// Gives the room of a split record back to the peer, and wakes it as [`read`](Self::read)
    /// does.
    pub fn release(&self) {
        if let Some(lane) = self.incoming() {
            self.reader.release(lane);
            self.ring_for_room(lane);
        }
    }

    fn ring_for_room(&self, lane: Lane<'_>) {
        if self.reader.wakes_writer(lane) {
            self.send_bell();
        }
    }

    /// Asks for a doorbell for the next record; false if there is something to do already: records,
    /// room that was asked for, or the end of the pair.
    ///
    /// The wish stays in any case, since another thread may sleep on it.
    pub fn arm(&self) -> bool {
        let (Some(incoming), Some(outgoing)) = (self.incoming(), self.outgoing()) else {
            return true;
        };
        // The looks below find what these doorbells announced.
        self.drain_if_due();
        let sleeps = self.reader.arm(incoming);
        self.ring_for_room(incoming);
        sleeps && !self.writer.has_room_come(outgoing) && !self.is_over()
    }

    /// Returns true if there is a record to read.
    pub fn has_records(&self) -> bool {
        let is_given_up = self.is_given_up.load(Ordering::Relaxed);
        !is_given_up
            && self
                .incoming()
                .is_some_and(|lane| !self.reader.is_empty(lane))
    }

    /// Returns true if the peer uses the pair, too. Takes no doorbell, which another thread may
    /// sleep on.
    pub fn is_alive(&self) -> bool {
        !self.is_given_up.load(Ordering::Acquire)
            && !self.has_hung_up.load(Ordering::Acquire)
            && !self.bell.has_hung_up()
    }

    /// Returns true once the pair is of no use: the peer is gone and all of its records are read,
    /// or this end has given the pair up (ROCE-216).
    pub fn is_over(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
            || self.has_hung_up.load(Ordering::Acquire) && !self.has_records()
    }

    /// Ends the pair: the peer reads what was written, and finds the end of the socket then.
    ///
    /// Nothing more is read or written here.
    pub fn close(&self) {
        self.is_given_up.store(true, Ordering::Release);
        self.bell.close();
    }

    /// Reads the socket of the doorbell after the poller has reported it.
    ///
    /// The caller then looks for records and for room: another thread may have been meant.
    pub fn attend(&self) {
        let taken = self.reader.taken().wrapping_add(self.writer.taken());
        self.drained.store(taken, Ordering::Relaxed);
        if !self.bell.drain() {
            self.has_hung_up.store(true, Ordering::Release);
        }
    }

    /// Reads the socket once many doorbells may lie in it.
    fn drain_if_due(&self) {
        let taken = self.reader.taken().wrapping_add(self.writer.taken());
        if taken.wrapping_sub(self.drained.load(Ordering::Relaxed)) >= RUNG {
            self.attend();
        }
    }

    /// Returns the number of doorbells that were rung, for records and for room.
    pub fn rung(&self) -> u64 {
        self.rung.load(Ordering::Relaxed)
    }

    fn send_bell(&self) {
        self.rung.fetch_add(1, Ordering::Relaxed);
        if !self.bell.ring() {
            self.has_hung_up.store(true, Ordering::Release);
        }
    }
}

impl AsFd for LocalPair {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    use super::super::memory::registered;
    use super::super::{FIRST, PAYLOAD_MAX, QUEUE_BYTES, SPLIT};
    use super::*;

    const LABEL: Label = Label {
        segment: 12,
        kind: 7,
        source_port: 4791,
        destination_port: 5000,
    };

    /// Makes both ends of a pair in this process.
    fn both() -> [LocalPair; 2] {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let bells = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let (memory, file) = Memory::create().unwrap();
        let adopted = Memory::adopt(file).unwrap();
        let [own, peer] = [1, 2].map(|host| SocketAddr::from(([127, 0, 0, host], 4791)));
        let naming = Naming {
            number: 3,
            peer_number: 4,
            peer_adapter: Known {
                name: [9; 16],
                process: 1,
            },
            own,
            peer,
        };
        let opposite = Naming {
            number: 4,
            peer_number: 3,
            own: peer,
            peer: own,
            ..naming
        };
        [
            LocalPair::new(naming, Role::Dialler, memory, Bell::new(bells.0)),
            LocalPair::new(opposite, Role::Listener, adopted, Bell::new(bells.1)),
        ]
    }

    /// Spec: ROCE-210
    #[test]
    fn records_arrive_as_they_were_written_in_both_directions() {
        let pair = both();
        let mut buffer = vec![0; PAYLOAD_MAX];
        for [from, to] in [[0, 1], [1, 0]].map(|ends| ends.map(|end: usize| &pair[end])) {
            assert_eq!(to.read(&mut buffer), None);
            // Far more than the queue has, so that records go round its end.
            for round in 0..20 * QUEUE_BYTES / PAYLOAD_MAX {
                let bytes: vec::Vec<u8> = (0..PAYLOAD_MAX - round).map(|at| at as u8).collect();
                assert!(from.write(LABEL, &bytes));
                let record = to.read(&mut buffer).unwrap();
                assert_eq!(record.label, LABEL);
                assert_eq!(buffer[..record.length], bytes, "{round}");
                assert_eq!(to.read(&mut buffer), None);
            }
        }
    }

    /// Spec: ROCE-210, ROCE-212
    #[test]
    fn a_payload_goes_from_registered_memory_to_registered_memory() {
        const MOST: usize = 40_000;
        let [from, to] = both();
        let split = Label {
            segment: 30,
            kind: SPLIT,
            ..LABEL
        };
        let mut buffer = vec![0; PAYLOAD_MAX];
        // Far more than the queue has, so that payloads go round its end.
        for round in 0..30 {
            let length = round * 1777 % MOST;
            let (source, target) = (registered(MOST, round as u8), registered(MOST + 64, 0));
            let [source, target] = [&source, &target].map(|memory| {
                let all = memory.span(memory.address(), memory.length());
                all.unwrap()
            });
            let parts = [(0, length / 3), (length / 3, length - length / 3)];
            for (at, part) in parts {
                assert!(from.place(at, source.part(at, part).unwrap()));
            }
            assert_eq!(to.read(&mut buffer), None, "not published");
            assert!(from.write_split(split, &[7; 30], length));
            let record = to.read(&mut buffer).unwrap();
            assert_eq!(record.label, split);
            assert_eq!(record.length, FIRST + length);
            assert_eq!(buffer[..30], [7; 30]);
            assert!(from.room(0) < QUEUE_BYTES - length, "it is not released");
            for (at, part) in parts {
                assert!(to.take(at, target.part(at, part).unwrap()));
            }
            let beyond = target.part(MOST, 64).unwrap();
            assert!(!to.take(length, beyond), "beyond its last line");
            to.release();
            assert!(!to.take(0, target.part(0, 1).unwrap()), "no record");
            let mut bytes = vec![0; length];
            target.read(&mut bytes);
            assert!(
                (0..)
                    .zip(&bytes)
                    .all(|(at, byte)| *byte == (round + at) as u8)
            );
            assert_eq!(from.room(QUEUE_BYTES), QUEUE_BYTES);
        }
    }

    /// A wish for a doorbell stays until it is taken, and each look finds what has come.
    ///
    /// Spec: ROCE-213
    #[test]
    fn an_end_that_is_armed_looks_again() {
        let [from, to] = both();
        let mut buffer = vec![0; PAYLOAD_MAX];
        let rung = || from.rung();
        assert!(to.arm() && to.arm());
        assert!(from.write(LABEL, &[0; 12]));
        // The writer is about to ring.
        assert!(!to.arm());
        assert!(to.read(&mut buffer).is_some());
        assert!(to.arm());
        from.ring();
        from.ring();
        assert_eq!(rung(), 1, "one wish");
        assert!(to.arm());
        from.ring();
        assert_eq!(rung(), 2, "the next one");
    }

    /// Messages find the room that has come, though nobody waits for it.
    ///
    /// Spec: ROCE-233
    #[test]
    fn a_look_for_any_room_is_a_new_one() {
        let [from, to] = both();
        let mut buffer = vec![0; PAYLOAD_MAX];
        while from.write(LABEL, &[3; 5000]) {}
        assert!(from.room(0) < 5056 && !from.has_room(5056));
        while to.read(&mut buffer).is_some() {}
        assert!(from.has_room(QUEUE_BYTES) && !from.has_room(QUEUE_BYTES + 1));
        assert_eq!(from.room(0), QUEUE_BYTES);
        assert!(!from.has_room_come(), "nothing was asked for");
    }

    /// Spec: ROCE-212, ROCE-233
    #[test]
    fn a_payload_without_room_is_not_placed() {
        let [from, to] = both();
        let mut buffer = vec![0; PAYLOAD_MAX];
        while from.write(LABEL, &[3; 5000]) {}
        let payload = registered(6000, 0);
        let payload = payload.span(payload.address(), payload.length()).unwrap();
        assert!(!from.place(0, payload));
        assert!(!from.place(usize::MAX, payload));
        while to.read(&mut buffer).is_some() {
            assert_eq!(buffer[..5000], [3; 5000]);
        }
        // The writer looks at the room that has come.
        assert_eq!(from.room(QUEUE_BYTES), QUEUE_BYTES);
        assert!(from.place(0, payload));
        assert!(
            !from.place(QUEUE_BYTES - 6000, payload),
            "on the first line"
        );
    }

    /// Spec: ROCE-213, ROCE-214, ROCE-253
    #[test]
    fn doorbells_come_when_they_were_asked_for() {
        let [from, to] = both();
        let mut buffer = vec![0; PAYLOAD_MAX];
        let rung = |pair: &LocalPair| {
            let mut bytes = [0; 8];
            recv(&pair.bell, &mut bytes, RecvFlags::DONTWAIT).map_or(0, |(_, count)| count)
        };
        assert!(from.write(LABEL, &[0; 12]));
        from.ring();
        assert_eq!(rung(&to), 0, "nobody sleeps");
        assert!(!to.arm(), "there is a record");
        assert!(to.read(&mut buffer).is_some());
        assert!(to.arm());
        for _ in 0..3 {
            assert!(from.write(LABEL, &[0; 12]));
            from.ring();
        }
        assert_eq!((rung(&to), from.rung()), (1, 1), "once");
        while from.write(LABEL, &[0; 5000]) {}
        assert!(from.room(5056) < 5056);
        let mut read = 0;
        while rung(&from) == 0 {
            read += to.read(&mut buffer).unwrap().length;
        }
        assert_eq!((from.rung(), to.rung()), (1, 1));
        assert!((QUEUE_BYTES / 2 - 10_000..QUEUE_BYTES / 2 + 10_000).contains(&read));
        assert!(from.write(LABEL, &vec![0; PAYLOAD_MAX]), "any record fits");
    }

    /// Spec: ROCE-216
    #[test]
    fn a_pair_is_over_once_the_last_record_of_a_dead_peer_is_read() {
        let [from, to] = both();
        let mut buffer = vec![0; PAYLOAD_MAX];
        assert!(from.write(LABEL, &[0; 12]));
        drop(from);
        assert!(!to.is_over());
        to.attend();
        assert!(!to.is_over());
        assert!(to.read(&mut buffer).is_some());
        assert!(to.is_over());
        assert!(!to.arm());
    }

    /// Spec: ROCE-216, ROCE-224
    #[test]
    fn a_pair_that_is_closed_is_over_here_and_read_to_the_end_there() {
        let [from, to] = both();
        let mut buffer = vec![0; PAYLOAD_MAX];
        assert!(from.write(LABEL, &[0; 12]));
        assert!(to.write(LABEL, &[0; 12]));
        from.close();
        assert!(from.is_over() && !from.is_alive());
        assert!(!from.write(LABEL, &[0; 12]));
        assert_eq!(from.read(&mut buffer), None);
        assert!(!to.is_alive());
        to.attend();
        assert!(to.read(&mut buffer).is_some());
        assert!(to.is_over());
    }

    /// Spec: ROCE-212
    #[test]
    fn a_corrupt_peer_ends_its_pair_and_no_other() {
        let mut buffer = vec![0; PAYLOAD_MAX];
        let [[from, to], [other_from, other_to]] = [both(), both()];
        assert!(from.write(LABEL, &[0; 12]));
        let words = from.outgoing().unwrap().words();
        words.tail.store(65, Ordering::Release);
        assert!(!to.is_over());
        assert_eq!(to.read(&mut buffer), None);
        assert!(to.is_over());
        // Whatever the peer says afterwards.
        words.tail.store(64, Ordering::Release);
        assert_eq!(to.read(&mut buffer), None);
        assert!(!to.has_records());
        assert!(!to.arm());
        assert!(!to.write(LABEL, &[0; 12]));
        assert_eq!(to.room(64), 0);
        assert!(other_from.write(LABEL, &[0; 12]));
        assert!(other_to.read(&mut buffer).is_some());
        assert!(!other_to.is_over());
    }

    /// A peer that rings without end stops nobody, and one that is not asked does not count.
    ///
    /// Spec: ROCE-215
    #[test]
    fn doorbells_without_end_are_read_in_bounded_steps() {
        let [from, to] = both();
        let mut buffer = vec![0; PAYLOAD_MAX];
        while rustix::net::send(&from.bell, &[0; 4096], rustix::net::SendFlags::DONTWAIT).is_ok() {}
        from.ring();
        to.attend();
        assert!(!to.is_over());
        assert!(to.arm());
        assert!(from.write(LABEL, &[0; 12]));
        // The socket is full, and the ring lost: the reader has doorbells to find.
        from.ring();
        assert!(!from.is_over());
        assert!(!to.arm());
        assert!(to.read(&mut buffer).is_some());
    }

    /// An end that is never asleep does not let doorbells fill its socket.
    ///
    /// Spec: ROCE-215
    #[test]
    fn an_end_that_is_armed_often_reads_its_doorbells() {
        let [from, to] = both();
        let mut buffer = vec![0; PAYLOAD_MAX];
        let mut most = 0;
        for _ in 0..2000 {
            to.arm();
            assert!(from.write(LABEL, &[0; 12]));
            from.ring();
            assert!(to.read(&mut buffer).is_some());
            let waiting = rustix::io::ioctl_fionread(&to.bell).unwrap();
            most = waiting.max(most);
        }
        assert!((2..=u64::from(RUNG) + 1).contains(&most), "{most}");
    }
}
