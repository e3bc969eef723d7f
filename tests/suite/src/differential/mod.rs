//! The same random list of operations on several backends.
//!
//! The returns, the events of each endpoint in their order, and the memory must be equal, up to
//! [`DIFFERENCES`].

mod differences;
mod operation;
mod world;

use std::fmt::Debug;

pub use differences::{DIFFERENCES, Difference};

use self::differences::differs;
use self::operation::list;
use self::world::World;
use crate::fixture::Testbed;

/// A result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    /// The result of a call.
    Returned(String),
    /// An event: the side, the pair of its endpoint, the text.
    Event(usize, usize, String),
    /// All bytes of a side.
    Memory(usize, Vec<u8>),
}

/// The results of a list.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Each operation with its results.
    steps: Vec<(String, Vec<Line>)>,
}

impl Record {
    fn begin(&mut self, number: usize, operation: &impl Debug) {
        self.steps
            .push((format!("{number}: {operation:?}"), Vec::new()));
    }

    fn note(&mut self, line: Line) {
        if self.steps.is_empty() {
            self.steps.push(("the beginning".into(), Vec::new()));
        }
        if let Some((_, lines)) = self.steps.last_mut() {
            lines.push(line);
        }
    }

    fn returned(&mut self, what: String) {
        self.note(Line::Returned(what));
    }

    fn event(&mut self, side: usize, pair: usize, what: String) {
        self.note(Line::Event(side, pair, what));
    }

    fn memory(&mut self, side: usize, bytes: Vec<u8>) {
        self.note(Line::Memory(side, bytes));
    }
}

/// The number of compared items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Lists.
    pub lists: usize,
    /// Operations.
    pub operations: usize,
    /// Returns of calls.
    pub returns: usize,
    /// Events.
    pub events: usize,
    /// Snapshots of the memory of a side.
    pub memories: usize,
}

impl Compared {
    /// Adds the counts of another comparison.
    pub fn add(&mut self, other: Self) {
        self.lists += other.lists;
        self.operations += other.operations;
        self.returns += other.returns;
        self.events += other.events;
        self.memories += other.memories;
    }

    fn count(&mut self, line: &Line) {
        match line {
            Line::Returned(_) => self.returns += 1,
            Line::Event(..) => self.events += 1,
            Line::Memory(..) => self.memories += 1,
        }
    }
}

/// Plays the list of a seed on a bed; `backend` names the differences to respect.
pub fn record<T: Testbed>(bed: &T, backend: &str, seed: u64, operations: usize) -> Record {
    let without_windows = differs(backend, Difference::NoWindows);
    World::new(bed, backend, without_windows).play(&list(seed, operations))
}

/// Compares the results of the list of a seed on two backends.
///
/// # Panics
/// If they differ; shows the first operation that does.
#[must_use]
pub fn compare(seed: u64, first: (&str, &Record), second: (&str, &Record)) -> Compared {
    let mut compared = Compared {
        lists: 1,
        operations: first.1.steps.len().saturating_sub(2),
        ..Compared::default()
    };
    for ((operation, one), (_, other)) in first.1.steps.iter().zip(&second.1.steps) {
        for line in one {
            compared.count(line);
        }
        assert!(
            one == other,
            "seed {seed}, {operation}:\n{}: {}\n{}: {}",
            first.0,
            shown(one, other),
            second.0,
            shown(other, one),
        );
    }
    assert_eq!(first.1.steps.len(), second.1.steps.len(), "seed {seed}");
    compared
}

/// Formats the lines that differ from the others; of memory only the first byte.
fn shown(these: &[Line], those: &[Line]) -> String {
    let mut text = String::new();
    for (at, line) in these.iter().enumerate() {
        match (line, those.get(at)) {
            (line, Some(other)) if line == other => {}
            (Line::Memory(side, bytes), Some(Line::Memory(_, others))) => {
                let place = bytes.iter().zip(others).position(|(a, b)| a != b);
                let byte = place.and_then(|place| bytes.get(place));
                text += &format!("\n  memory of {side}: {byte:02x?} at {place:?}");
            }
            (Line::Memory(side, _), _) => text += &format!("\n  memory of {side}"),
            (line, _) => text += &format!("\n  {line:?}"),
        }
    }
    text
}
