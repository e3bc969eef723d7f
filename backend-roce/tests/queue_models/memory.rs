//! Memory of a queue over the atomics of the model checker, in place of `local/memory.rs`.

use std::cell::Cell as Plain;

use loom::cell::Cell;
use loom::sync::atomic::{AtomicU32, Ordering};

/// Bytes that are written at once: a line.
const PART: usize = 64;

/// Bytes of registered memory.
pub(crate) const PAYLOAD: usize = 12;

/// Registered memory of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisteredSpan<'a>(pub(crate) &'a Plain<[u8; PAYLOAD]>);

impl RegisteredSpan<'_> {
    pub(crate) fn length(self) -> usize {
        PAYLOAD
    }
}

/// A change of the code that a model must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The writer has no fences.
    WriterFences,
    /// The reader has no fences.
    ReaderFences,
    /// The position of the writer orders nothing.
    Tail,
    /// The position of the reader orders nothing.
    Head,
}

std::thread_local! {
    static CHANGE: Plain<Option<Change>> = const { Plain::new(None) };
}

/// Sets the change of models on this thread.
pub(crate) fn set_change(change: Option<Change>) {
    CHANGE.set(change);
}

fn is(change: Change) -> bool {
    CHANGE.get() == Some(change)
}

loom::thread_local! {
    /// Set on the thread of the writer.
    pub(crate) static WRITES: Plain<bool> = Plain::new(false);
}

pub(crate) fn fence() {
    let is_omitted = match WRITES.with(Plain::get) {
        true => is(Change::WriterFences),
        false => is(Change::ReaderFences),
    };
    if !is_omitted {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// A word of a queue, and the change that takes the order from its stores.
#[derive(Debug)]
pub(crate) struct Word(AtomicU32, Option<Change>);

impl Word {
    pub(crate) fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    pub(crate) fn store(&self, value: u32, order: Ordering) {
        let order = match self.1.is_some_and(is) {
            true => Ordering::Relaxed,
            false => order,
        };
        self.0.store(value, order);
    }

    pub(crate) fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value, order)
    }
}

#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) tail: Word,
    pub(crate) head: Word,
    pub(crate) sleeps: Word,
    pub(crate) waits: Word,
}

/// A queue of a few records.
#[derive(Debug)]
pub(crate) struct Memory {
    words: Words,
    parts: Vec<Cell<[u8; PART]>>,
}

impl Memory {
    pub(crate) fn new(length: usize) -> Self {
        let word = |change| Word(AtomicU32::new(0), change);
        Self {
            words: Words {
                tail: word(Some(Change::Tail)),
                head: word(Some(Change::Head)),
                sleeps: word(None),
                waits: word(None),
            },
            parts: (0..length / PART).map(|_| Cell::new([0; PART])).collect(),
        }
    }

    pub(crate) fn lane(&self) -> Lane<'_> {
        Lane(self)
    }
}

/// A queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane<'m>(&'m Memory);

impl<'m> Lane<'m> {
    pub(crate) fn words(self) -> &'m Words {
        &self.0.words
    }

    pub(crate) fn length(self) -> u32 {
        (self.0.parts.len() * PART) as u32
    }

    fn part(self, position: u32) -> &'m Cell<[u8; PART]> {
        &self.0.parts[position as usize / PART % self.0.parts.len()]
    }

    pub(crate) fn store(self, position: u32, bytes: &[u8]) {
        let mut part = [0; PART];
        part[..bytes.len()].copy_from_slice(bytes);
        self.part(position).set(part);
    }

    pub(crate) fn load(self, position: u32, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.part(position).get()[..bytes.len()]);
    }

    pub(crate) fn store_span(self, position: u32, span: RegisteredSpan<'_>) {
        self.store(position, &span.0.get());
    }

    pub(crate) fn load_span(self, position: u32, span: RegisteredSpan<'_>) {
        let mut bytes = [0; PAYLOAD];
        self.load(position, &mut bytes);
        span.0.set(bytes);
    }
}
