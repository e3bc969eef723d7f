//! The memory of the nodes, and its layout.

use std::sync::atomic::{AtomicU8, Ordering};

use super::PAGE;

/// The pages of a node, which live as long as the process.
#[repr(align(4096))]
pub(super) struct Pages<const COUNT: usize>(pub(super) [[AtomicU8; PAGE]; COUNT]);

impl<const COUNT: usize> Pages<COUNT> {
    const fn new() -> Self {
        Self([const { [const { AtomicU8::new(0) }; PAGE] }; COUNT])
    }
}

/// The victim's pages; a guard precedes and follows each page in use.
pub(super) static VICTIM_PAGES: Pages<9> = Pages::new();
pub(super) static INTRUDER_PAGES: Pages<3> = Pages::new();
pub(super) static FRIEND_PAGES: Pages<1> = Pages::new();

/// The indices of the victim's pages.
pub(super) const OPEN: usize = 1;
pub(super) const READABLE: usize = 3;
pub(super) const SECRET: usize = 5;
pub(super) const LOCAL: usize = 7;
/// The bytes that fill them.
pub(super) const GUARD_BYTE: u8 = b'G';
pub(super) const OPEN_BYTE: u8 = b'O';
pub(super) const READABLE_BYTE: u8 = b'R';
pub(super) const SECRET_BYTE: u8 = b'S';
pub(super) const LOCAL_BYTE: u8 = b'L';
/// The byte that fills the open page while it is not published.
pub(super) const REVOKED_BYTE: u8 = b'X';
/// The byte that the intruder writes.
pub(super) const INTRUDER_BYTE: u8 = b'H';
/// The range of the local page that the victim's gets may change.
pub(super) const GOT: core::ops::Range<usize> = 1024..1088;

/// The indices of the intruder's pages.
pub(super) const MESSAGES: usize = 0;
pub(super) const STOLEN: usize = 1;
pub(super) const BAIT: usize = 2;

pub(super) fn store(page: &[AtomicU8], bytes: &[u8]) {
    for (cell, byte) in page.iter().zip(bytes) {
        cell.store(*byte, Ordering::Relaxed);
    }
}
