//! The pairs of an adapter that a test is.

use std::os::fd::{AsFd as _, BorrowedFd};

use backend_roce::local::{Known, LocalPair, Pairs};

/// Pairs in the order in which they were made; each peer is a new one.
#[derive(Default)]
pub struct Table(pub Vec<LocalPair>);

impl Pairs for Table {
    fn knows(&mut self, _: &Known) -> bool {
        false
    }

    fn add(&mut self, pair: LocalPair) -> Option<BorrowedFd<'_>> {
        self.0.push(pair);
        self.0.last().map(LocalPair::as_fd)
    }
}
