//! Storage that the caller lends to a driver.

use super::window_slot::WindowSlot;
use crate::ring::{CompletionQueueSlot, LentState, QueuePairSlot, RequestSlot, SharedReceiveSlot};

/// Storage for a device; the slice lengths limit its objects.
///
/// A new driver discards the contents. All slices are lent exclusively: no two drivers share a
/// slot. The second `lend` does not compile:
///
/// ```compile_fail,E0499
/// use backend_mmio::mlx5::Storage;
/// use backend_mmio::ring::{DeviceState, QueuePairSlot};
///
/// fn lend<'s>(state: &'s mut DeviceState, queue_pairs: &'s mut [QueuePairSlot]) -> Storage<'s> {
///     Storage {
///         state: state.lend().0,
///         queue_pairs,
///         completion_queues: &mut [],
///         shared_receive_queues: &mut [],
///         requests: &mut [],
///         requests_taken: &mut [],
///         windows: &mut [],
///         memory_taken: &mut [],
///     }
/// }
///
/// let (mut one, mut other) = (DeviceState::new(), DeviceState::new());
/// let mut queue_pairs = [const { QueuePairSlot::EMPTY }; 2];
/// let first = lend(&mut one, &mut queue_pairs);
/// let second = lend(&mut other, &mut queue_pairs);
/// drop((first, second));
/// ```
#[derive(Debug)]
pub struct Storage<'s> {
    /// State of the device.
    pub state: LentState<'s>,
    /// Two slots per queue pair; at most 8192.
    pub queue_pairs: &'s mut [QueuePairSlot],
    /// One slot per event dispatcher, indexed by its number.
    pub completion_queues: &'s mut [CompletionQueueSlot],
    /// One slot per shared receive queue.
    pub shared_receive_queues: &'s mut [SharedReceiveSlot],
    /// One slot per block of each send queue and per slot of each receive queue.
    ///
    /// A shared receive queue takes at least
    /// [`Parts::shared_buffers`](super::Parts::shared_buffers) slots and one more.
    pub requests: &'s mut [RequestSlot],
    /// Occupancy flags of `requests`, each for several slots.
    ///
    /// A flag covers the number of slots per flag, rounded up to a power of two; rounded down if
    /// that exceeds the number of slots. A queue takes as many flags as it needs. One flag per 4
    /// slots wastes fewer slots; one per 16 is found faster. If the number of flags is the number
    /// of slots divided by a power of two, all slots and flags are used; otherwise some may stay
    /// unused. Without flags, no queue can be created.
    pub requests_taken: &'s mut [bool],
    /// One slot per window, and one more to renew a window without keys.
    ///
    /// In further slots the driver creates windows ahead, so that the device reuses an index later.
    pub windows: &'s mut [WindowSlot],
    /// One flag per 256 bytes of memory shared with the device.
    pub memory_taken: &'s mut [bool],
}
