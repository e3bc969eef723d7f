//! A queue of records in shared memory, from one writer to one reader.
//!
//! # Protocol
//! The writer owns the word `tail`, the reader the word `head`: positions that count bytes and wrap
//! at 2^32. Records lie between them, at positions modulo the length of the queue, each on cache
//! lines of its own (ROCE-210). Either end keeps its own position, and the last one of the peer,
//! outside of the shared memory.
//!
//! An end that wants to sleep stores its flag, passes a fence and looks once more. The peer
//! publishes, passes a fence and takes the flag. One of the two sees the other (ROCE-213). The
//! end that takes a flag owes its owner a doorbell.
//!
//! One thread at a time uses an end. Two at a time would mix up records, but never touch other
//! memory.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::memory::{Lane, RegisteredSpan, Word, fence};
use crate::proto::packet::Bth;

/// Bytes of a queue.
pub const QUEUE_BYTES: usize = 256 << 10;

/// Most bytes of a record behind its header: a packet with 64 KiB of payload, or a run of shorter
/// ones.
pub const PAYLOAD_MAX: usize = (64 << 10) + 128;

/// Bytes of a cache line, which records begin on.
const LINE: u32 = 64;

/// Bytes of the header of a record.
const HEADER: u32 = 16;

/// Bytes of a record that are on the line of its header.
pub const FIRST: usize = (LINE - HEADER) as usize;

/// Kind of a record of one packet whose payload begins on the second line; the segment is the
/// length of its headers.
pub const SPLIT: u32 = 2;

/// Most bytes that a record takes.
const RECORD_MAX: u32 = footprint(PAYLOAD_MAX as u32);

// A reader wakes the writer when half of the queue is free: any record then fits (ROCE-214).
const _: () = assert!(QUEUE_BYTES.is_power_of_two() && QUEUE_BYTES <= 1 << 30);
const _: () = assert!(QUEUE_BYTES >= 2 * RECORD_MAX as usize);

/// Returns the bytes that a record takes with its header.
const fn footprint(length: u32) -> u32 {
    (HEADER + length).next_multiple_of(LINE)
}

/// Copies the start of `from` to that of `to`, as far as it fits.
fn copy_start(to: &mut [u8], from: &[u8]) {
    let length = to.len().min(from.len());
    if let (Some(to), Some(from)) = (to.get_mut(..length), from.get(..length)) {
        to.copy_from_slice(from);
    }
}

/// An error for data that no honest peer writes; the pair is to be given up (ROCE-212).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// The description of a record's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Length of each packet but the last one, which may be shorter.
    pub segment: usize,
    /// Kind of the packets, which the queue passes on.
    pub kind: u32,
    /// UDP port of the sender.
    pub source_port: u16,
    /// UDP port of the receiver.
    pub destination_port: u16,
}

/// A record as its reader got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Bytes of its packets.
    pub length: usize,
    /// The writer's description; the segment is at most the length, and no shorter than a BTH.
    pub label: Label,
}

impl Record {
    /// Returns the header of a record; `None` if no record is as long, or as short.
    fn encode(self) -> Option<[[u8; 4]; 4]> {
        let valid = self.checked()?;
        let Label {
            segment,
            kind,
            source_port,
            destination_port,
        } = valid.label;
        let ports = u32::from(source_port) << 16 | u32::from(destination_port);
        let words = [valid.length as u32, segment as u32, kind, ports];
        Some(words.map(u32::to_ne_bytes))
    }

    /// Returns the record with a header; `None` if no writer makes such a one.
    fn decode(bytes: [u8; HEADER as usize]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<4>();
        let [length, segment, kind, ports] = *words else {
            return None;
        };
        let ports = u32::from_ne_bytes(ports);
        Self {
            length: u32::from_ne_bytes(length) as usize,
            label: Label {
                segment: u32::from_ne_bytes(segment) as usize,
                kind: u32::from_ne_bytes(kind),
                source_port: (ports >> 16) as u16,
                destination_port: ports as u16,
            },
        }
        .checked()
    }

    fn checked(self) -> Option<Self> {
        let longest = match self.label.kind {
            // The first line is there even without payload.
            SPLIT if self.length < FIRST => return None,
            SPLIT => FIRST,
            _ => self.length,
        };
        let segments = Bth::LENGTH..=longest;
        (self.length <= PAYLOAD_MAX && segments.contains(&self.label.segment)).then_some(self)
    }
}

/// A flag in shared memory by which this end asks for a doorbell.
#[derive(Debug, Default)]
struct Flag {
    /// Set while the flag is, as far as this end knows.
    is_set: AtomicBool,
    /// Flags that the peer took: as many doorbells may have come.
    taken: AtomicU32,
}

impl Flag {
    fn ask(&self, word: &Word) {
        self.set(word, true);
    }

    /// Returns true if this end has asked, and the peer has not taken the flag. What was published
    /// before another thread of this end asked is seen then.
    fn is_asked(&self, word: &Word) -> bool {
        self.is_set.load(Ordering::Relaxed) && word.load(Ordering::Acquire) != 0
    }

    fn withdraw(&self, word: &Word) {
        if self.is_set.load(Ordering::Relaxed) {
            self.set(word, false);
        }
    }

    fn set(&self, word: &Word, value: bool) {
        let was_set = self.is_set.load(Ordering::Relaxed);
        self.is_set.store(value, Ordering::Relaxed);
        if word.swap(value.into(), Ordering::AcqRel) == 0 && was_set {
            self.count();
        }
    }

    fn count(&self) {
        let taken = self.taken.load(Ordering::Relaxed);
        self.taken.store(taken.wrapping_add(1), Ordering::Relaxed);
    }

    /// Takes the flag of the peer; true if it was set.
    fn take(word: &Word) -> bool {
        word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::AcqRel) != 0
    }
}

/// The end of a queue that writes; other threads than its own may read from the other queue.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Writer {
    /// Position of the next record.
    tail: AtomicU32,
    /// Position of the reader, as it was last.
    head: AtomicU32,
    /// Asks for room.
    room: Flag,
}

impl Writer {
    /// Writes a record; false if there is no room.
    ///
    /// # Errors
    /// The reader's position cannot be true, or no reader takes a record of this length or segment.
    pub fn try_write(&self, lane: Lane<'_>, label: Label, packets: &[u8]) -> Result<bool, Corrupt> {
        let (first, rest) = packets.split_at_checked(FIRST).unwrap_or((packets, &[]));
        let length = packets.len();
        self.try_finish(lane, Record { length, label }, first, rest)
    }

    /// Copies a part of a payload to the place where [`try_split`](Self::try_split) leaves it;
    /// false if there is no room.
    pub fn place(&self, lane: Lane<'_>, offset: usize, from: RegisteredSpan<'_>) -> bool {
        let end = offset.saturating_add(from.length());
        let tail = self.tail.load(Ordering::Relaxed);
        let used = tail.wrapping_sub(self.head.load(Ordering::Relaxed));
        let room = lane.length().saturating_sub(used).saturating_sub(LINE);
        let fits = end <= room as usize;
        if fits {
            let at = tail.wrapping_add(LINE).wrapping_add(offset as u32);
            lane.store_span(at, from);
        }
        fits
    }

    /// Writes a record of a packet whose payload of `payload` bytes was placed; false if there is
    /// no room.
    ///
    /// # Errors
    /// As [`try_write`](Self::try_write).
    pub fn try_split(
        &self,
        lane: Lane<'_>,
        label: Label,
        headers: &[u8],
        payload: usize,
    ) -> Result<bool, Corrupt> {
        let length = FIRST.saturating_add(payload);
        self.try_finish(lane, Record { length, label }, headers, &[])
    }

    /// Writes the first line of a record, and `rest` behind it, and publishes it.
    fn try_finish(
        &self,
        lane: Lane<'_>,
        record: Record,
        first: &[u8],
        rest: &[u8],
    ) -> Result<bool, Corrupt> {
        let header = record.encode().ok_or(Corrupt)?;
        let need = footprint(record.length as u32);
        if need > lane.length() / 2 {
            return Err(Corrupt);
        }
        let tail = self.tail.load(Ordering::Relaxed);
        let known = tail.wrapping_sub(self.head.load(Ordering::Relaxed));
        if known > lane.length() - need && !self.find_room(lane, need)? {
            return Ok(false);
        }
        let mut line = [0; LINE as usize];
        let (place, other) = line.split_at_mut(HEADER as usize);
        place.copy_from_slice(header.as_flattened());
        copy_start(other, first);
        lane.store(tail, &line);
        if !rest.is_empty() {
            lane.store(tail.wrapping_add(LINE), rest);
        }
        let tail = tail.wrapping_add(need);
        self.tail.store(tail, Ordering::Relaxed);
        lane.words().tail.store(tail, Ordering::Release);
        Ok(true)
    }

    /// Returns the free bytes.
    ///
    /// If they are fewer than `least`, which is at most half of the queue, asks for a doorbell once
    /// half of it is free (ROCE-214). The wish stays until [`withdraw`](Self::withdraw). 0 asks for
    /// nothing, and looks at the reader's position anew.
    ///
    /// # Errors
    /// The reader's position cannot be true.
    pub fn room(&self, lane: Lane<'_>, least: usize) -> Result<usize, Corrupt> {
        let free = || self.free(lane);
        if free() < least || least == 0 {
            self.find_room(lane, 0)?;
            if free() < least {
                // An earlier wish may be for more.
                let has_asked = self.room.is_set.load(Ordering::Relaxed);
                self.room.ask(&lane.words().waits);
                fence();
                self.find_room(lane, 0)?;
                if free() >= least && !has_asked {
                    self.withdraw(lane);
                }
            }
        }
        Ok(free())
    }

    /// Returns the position of the reader, looked at anew, and that of the next record.
    ///
    /// # Errors
    /// The reader's position cannot be true.
    pub fn positions(&self, lane: Lane<'_>) -> Result<[u32; 2], Corrupt> {
        self.find_room(lane, 0)?;
        Ok([&self.head, &self.tail].map(|position| position.load(Ordering::Relaxed)))
    }

    /// Returns true if so many bytes are free.
    ///
    /// # Errors
    /// The reader's position cannot be true.
    pub fn has_room(&self, lane: Lane<'_>, bytes: usize) -> Result<bool, Corrupt> {
        if self.free(lane) < bytes {
            self.find_room(lane, 0)?;
        }
        Ok(self.free(lane) >= bytes)
    }

    /// Returns the free bytes, as far as is known.
    fn free(&self, lane: Lane<'_>) -> usize {
        let tail = self.tail.load(Ordering::Relaxed);
        let used = tail.wrapping_sub(self.head.load(Ordering::Relaxed));
        lane.length().saturating_sub(used) as usize
    }

    /// Takes the wish for room back, if there is one.
    pub fn withdraw(&self, lane: Lane<'_>) {
        self.room.withdraw(&lane.words().waits);
    }

    /// Returns true if room was asked for and has come.
    pub fn has_room_come(&self, lane: Lane<'_>) -> bool {
        self.room.is_set.load(Ordering::Relaxed) && lane.words().waits.load(Ordering::Acquire) == 0
    }

    /// Looks at the reader's position, which only goes forward and not beyond the writer's.
    fn find_room(&self, lane: Lane<'_>, need: u32) -> Result<bool, Corrupt> {
        let tail = self.tail.load(Ordering::Relaxed);
        let known = tail.wrapping_sub(self.head.load(Ordering::Relaxed));
        let head = lane.words().head.load(Ordering::Acquire);
        let used = tail.wrapping_sub(head);
        if used > known || !used.is_multiple_of(LINE) {
            return Err(Corrupt);
        }
        self.head.store(head, Ordering::Relaxed);
        Ok(used <= lane.length().saturating_sub(need))
    }

    /// Returns true if the reader sleeps and is to be woken; called after writes.
    pub fn wakes_reader(&self, lane: Lane<'_>) -> bool {
        fence();
        Flag::take(&lane.words().sleeps)
    }

    /// Returns the number of flags that the reader has taken; it counts up and wraps.
    pub fn taken(&self) -> u32 {
        self.room.taken.load(Ordering::Relaxed)
    }
}

/// The end of a queue that reads; apart from the writer of the other queue, as above.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Reader {
    /// Position of the next record.
    head: AtomicU32,
    /// Position of the writer, as it was last.
    tail: AtomicU32,
    /// Bytes of the record that is being read; 0 if there is none.
    open: AtomicU32,
    /// Asks for records.
    sleep: Flag,
}

impl Reader {
    /// Copies the next record into `buffer`; `None` if there is none.
    ///
    /// The buffer has [`PAYLOAD_MAX`] bytes. Of a split one, it gets the first line only: the
    /// payload stays in the queue until [`release`](Self::release).
    ///
    /// # Errors
    /// No honest writer has left the queue like this, or the record is longer than the buffer.
    pub fn read(&self, lane: Lane<'_>, buffer: &mut [u8]) -> Result<Option<Record>, Corrupt> {
        self.release(lane);
        let Some((record, first)) = self.next(lane)? else {
            return Ok(None);
        };
        let packets = buffer.get_mut(..record.length).ok_or(Corrupt)?;
        copy_start(packets, &first);
        self.open
            .store(footprint(record.length as u32), Ordering::Relaxed);
        if record.label.kind != SPLIT {
            if let Some(rest) = packets.get_mut(FIRST..).filter(|rest| !rest.is_empty()) {
                let head = self.head.load(Ordering::Relaxed);
                lane.load(head.wrapping_add(LINE), rest);
            }
            self.release(lane);
        }
        Ok(Some(record))
    }

    /// Copies a part of the payload of the record that was read split into registered memory;
    /// false if the record does not have these bytes.
    pub fn take(&self, lane: Lane<'_>, offset: usize, into: RegisteredSpan<'_>) -> bool {
        let end = offset.saturating_add(into.length());
        let room = self.open.load(Ordering::Relaxed).saturating_sub(LINE);
        let fits = end <= room as usize;
        if fits {
            let head = self.head.load(Ordering::Relaxed);
            lane.load_span(head.wrapping_add(LINE).wrapping_add(offset as u32), into);
        }
        fits
    }

    /// Gives the room of a record that was read split back to the writer.
    pub fn release(&self, lane: Lane<'_>) {
        let open = self.open.load(Ordering::Relaxed);
        if open > 0 {
            let head = self.head.load(Ordering::Relaxed).wrapping_add(open);
            self.open.store(0, Ordering::Relaxed);
            self.head.store(head, Ordering::Relaxed);
            lane.words().head.store(head, Ordering::Release);
        }
    }

    /// Returns the header of the next record, of which all bytes have been published, and its bytes
    /// on the same line.
    fn next(&self, lane: Lane<'_>) -> Result<Option<(Record, [u8; FIRST])>, Corrupt> {
        let head = self.head.load(Ordering::Relaxed);
        let mut published = self.tail.load(Ordering::Relaxed).wrapping_sub(head);
        if published == 0 {
            let tail = lane.words().tail.load(Ordering::Acquire);
            published = tail.wrapping_sub(head);
            if published == 0 {
                return Ok(None);
            }
            if published > lane.length() || !published.is_multiple_of(LINE) {
                return Err(Corrupt);
            }
            self.tail.store(tail, Ordering::Relaxed);
        }
        let mut line = [0; LINE as usize];
        lane.load(head, &mut line);
        let (Some((header, _)), Some((_, first))) =
            (line.split_first_chunk(), line.split_last_chunk())
        else {
            return Err(Corrupt);
        };
        let record = Record::decode(*header).ok_or(Corrupt)?;
        if footprint(record.length as u32) > published {
            return Err(Corrupt);
        }
        Ok(Some((record, *first)))
    }

    /// Returns true if the writer waits for room and is to be woken; called after reads.
    ///
    /// Without a fence it may miss a writer that begins to wait just now. So it is called again
    /// when nothing is left to read, and after [`arm`](Self::arm).
    pub fn wakes_writer(&self, lane: Lane<'_>) -> bool {
        let words = lane.words();
        if words.waits.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // Records written during the wait delay the doorbell; a hostile writer gets it sooner.
        let tail = words.tail.load(Ordering::Relaxed);
        let used = tail.wrapping_sub(self.head.load(Ordering::Relaxed));
        used <= lane.length() / 2 && Flag::take(&words.waits)
    }

    /// Asks for a doorbell for the next record; false if there is one already.
    ///
    /// A wish that the writer has not taken stays, and costs no fence.
    pub fn arm(&self, lane: Lane<'_>) -> bool {
        let word = &lane.words().sleeps;
        if !self.sleep.is_asked(word) {
            self.sleep.ask(word);
            fence();
        }
        self.is_empty(lane)
    }

    /// Returns true if there is nothing to read.
    pub fn is_empty(&self, lane: Lane<'_>) -> bool {
        self.head.load(Ordering::Relaxed) == lane.words().tail.load(Ordering::Acquire)
    }

    /// Returns the number of flags that the writer has taken; it counts up and wraps.
    pub fn taken(&self) -> u32 {
        self.sleep.taken.load(Ordering::Relaxed)
    }
}
