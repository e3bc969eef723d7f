//! The part of a backend that carries out what is posted.

use alloc::vec::Vec;
use core::fmt::Debug;
use core::hash::Hash;

use dat_core::backend::WindowKey;

use crate::request::{Receive, Request, Segments};
use crate::ring::CompletionRing;

/// Owner of receives: a queue pair, or a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner<K> {
    /// The queue pair with this key.
    Pair(K),
    /// The shared receive queue with this key.
    Shared(K),
}

/// A handle to the objects of an adapter, which carries out what is posted.
///
/// Each queue has its own. A call takes the lock of the adapter.
pub trait Executor {
    /// Key of a queue pair or a shared receive queue.
    type Key: Copy + Debug + Eq + Hash;

    /// Most segments of a request or a receive.
    const SEGMENTS: usize = usize::MAX;

    /// Set if the core looks at the head of a completion queue before it takes it.
    const PEEKS: bool = false;

    /// Returns the number of requests of a queue pair that are not complete, if it exists.
    fn requests(&self, key: Self::Key) -> Option<usize>;

    /// Returns the number of receives that are not complete, if their owner exists.
    fn receives(&self, owner: Owner<Self::Key>) -> Option<usize>;

    /// Takes the posted requests of a queue pair, in order.
    ///
    /// Returns an upper bound of its requests that are not complete. `None` if it takes none: it
    /// does not exist, or is neither connected nor in error.
    fn post_requests(&self, key: Self::Key, posted: &mut Vec<Request>) -> Option<usize>;

    /// Takes posted receives, in order.
    ///
    /// Returns an upper bound of the receives that are not complete; `None` if there is no owner.
    fn post_receives(&self, owner: Owner<Self::Key>, posted: &mut Vec<Receive>) -> Option<usize>;

    /// Returns true if the device refuses a post.
    #[inline]
    fn refuses_post(&self, _owner: Owner<Self::Key>) -> bool {
        false
    }

    /// Draws the new key of a window for a bind; `None` if there is no window or no key left.
    fn begin_bind(&self, window: WindowKey) -> Option<u32>;

    /// Takes back the key of a bind that was not posted.
    fn cancel_bind(&self, key: u32);

    /// Acts on a completion queue, if it exists.
    fn with_ring<R>(
        &self,
        number: u32,
        act: impl FnOnce(&mut CompletionRing<Self::Key>) -> R,
    ) -> Option<R>;

    /// Moves what is under way, for a poll that finds nothing.
    fn advance(&self);

    /// Makes sure that what is under way comes without further polls, before a completion queue is
    /// armed.
    #[inline]
    fn before_arming(&self) {}

    /// Returns true if the device is another process's, whose lock must not be taken.
    #[inline]
    fn is_gone(&self) -> bool {
        false
    }
}

/// Returns an empty list for `segments` segments.
///
/// `None` if these are too many for the executor, or there is no memory for them.
#[inline]
pub(crate) fn list_for<X: Executor>(segments: usize) -> Option<Segments> {
    let mut list = Segments::new();
    let has_room = segments <= X::SEGMENTS && list.try_reserve(segments).is_ok();
    has_room.then_some(list)
}

/// An executor whose requests may start while an earlier bind is pending, if they are marked.
pub trait OvertakesBinds: Executor {}
