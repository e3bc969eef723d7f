//! The memory of the nodes, and what is where in it.

use std::sync::atomic::{AtomicU8, Ordering};

use dat_core::memory::Region;

use super::PAGE;

/// Pages of a node, for ever.
#[repr(align(4096))]
pub(super) struct Pages<const COUNT: usize>(pub(super) [[AtomicU8; PAGE]; COUNT]);

impl<const COUNT: usize> Pages<COUNT> {
    const fn new() -> Self {
        Self([const { [const { AtomicU8::new(0) }; PAGE] }; COUNT])
    }
}

/// The victim's: a guard before and behind each thing.
pub(super) static VICTIM_PAGES: Pages<9> = Pages::new();
pub(super) static INTRUDER_PAGES: Pages<3> = Pages::new();
pub(super) static FRIEND_PAGES: Pages<1> = Pages::new();

/// Places among the victim's pages.
pub(super) const OPEN: usize = 1;
pub(super) const READABLE: usize = 3;
pub(super) const SECRET: usize = 5;
pub(super) const LOCAL: usize = 7;
/// What they are full of.
pub(super) const GUARD_BYTE: u8 = b'G';
pub(super) const OPEN_BYTE: u8 = b'O';
pub(super) const READABLE_BYTE: u8 = b'R';
pub(super) const SECRET_BYTE: u8 = b'S';
pub(super) const LOCAL_BYTE: u8 = b'L';
/// What the open page is full of while it is not published.
pub(super) const REVOKED_BYTE: u8 = b'X';
/// What the intruder writes.
pub(super) const INTRUDER_BYTE: u8 = b'H';
/// What the victim may be given, and where in its local page.
pub(super) const GOT: core::ops::Range<usize> = 1024..1088;

/// Places among the intruder's pages.
pub(super) const MESSAGES: usize = 0;
pub(super) const STOLEN: usize = 1;
pub(super) const BAIT: usize = 2;

pub(super) fn fill(page: &[AtomicU8; PAGE], byte: u8) {
    for cell in page {
        cell.store(byte, Ordering::Relaxed);
    }
}

pub(super) fn is_full_of(page: &[AtomicU8], byte: u8) -> bool {
    page.iter().all(|cell| cell.load(Ordering::Relaxed) == byte)
}

pub(super) fn store(page: &[AtomicU8], bytes: &[u8]) {
    for (cell, byte) in page.iter().zip(bytes) {
        cell.store(*byte, Ordering::Relaxed);
    }
}

pub(super) fn address(page: &'static [AtomicU8; PAGE]) -> u64 {
    Region::from_static(page).address()
}
