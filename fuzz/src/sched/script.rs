//! The operations of a run's threads, and their place in an input.

use crate::script::{self, Script, operations};

/// The number of threads of a run.
pub const THREADS: usize = 3;
/// The number of operations of a thread.
pub const OPERATIONS: usize = 8;
/// The bytes of the setup: the seed of the fabric, and conditions at the start.
pub const SETUP_SIZE: usize = 2;
/// The bytes before the schedule.
const SCRIPT_SIZE: usize = SETUP_SIZE + THREADS * OPERATIONS * Operation::SIZE;

/// Nothing in the fabric takes time.
pub const IMMEDIATE: u8 = 1;
/// Buffers are posted before the run.
pub const BUFFERS: u8 = 2;
/// The far side sends before the run.
pub const MESSAGES: u8 = 4;
/// A poll advances the fabric.
pub const POLLS: u8 = 8;

operations! {
    /// The next operation of a thread; numbers select an object modulo their count.
    enum Operation % 16, 4 bytes {
        /// Does nothing.
        0 => Nothing
        /// Posts something: the most frequent, because it can fail in the most ways.
        1 | 13 | 14 => Post {
            /// The kind: Send, RDMA Write, RDMA Read, receive, shared receive, bind.
            kind,
            /// The endpoint; the upper four bits select the region.
            at,
            /// The flags without bit 2; the upper four bits are the length.
            how,
        }
        /// Dequeues an event.
        2 | 15 => Take {
            /// The dispatcher.
            from,
        }
        /// Starts a wait and polls it once, unless the thread already waits.
        3 => Wait {
            /// The dispatcher.
            from,
            /// The number of events.
            threshold,
        }
        /// Ends the wait of the thread.
        4 => EndWait
        /// Advances the adapter.
        5 => Progress
        /// Advances the fabric.
        6 => Step {
            /// The number of steps.
            count,
        }
        /// Frees a region that all threads use.
        7 => FreeRegion {
            /// The region.
            which,
        }
        /// Posts a software event of the thread.
        8 => Notify
        /// Ends a connection.
        9 => Disconnect {
            /// The endpoint.
            at,
            /// Set for a graceful end.
            gracefully,
        }
        /// Resets an endpoint.
        10 => Reset {
            /// The endpoint.
            at,
        }
        /// Creates and frees an object.
        11 => Make {
            /// The kind of object.
            kind,
            /// The size of the object.
            size,
        }
        /// Queries something.
        12 => Ask {
            /// The kind of query.
            kind,
            /// The object.
            which,
        }
    }
}

/// Returns an input of these lists and a schedule.
///
/// A byte of the schedule holds in its lower two bits the number of threads to skip, and in the
/// others the number of accesses of the next thread's turn.
///
/// # Panics
/// A list is too long.
pub fn encode(setup: [u8; SETUP_SIZE], lists: [&[Operation]; THREADS], schedule: &[u8]) -> Vec<u8> {
    let mut input = setup.to_vec();
    for list in lists {
        assert!(list.len() <= OPERATIONS);
        let mut list = list.to_vec();
        list.resize(OPERATIONS, Operation::Nothing);
        input.extend(script::encode(&[], &list));
    }
    input.extend(schedule);
    input
}

/// Returns the lists of an input, and its schedule; missing operations do nothing.
pub(super) fn decode(input: &[u8]) -> (Vec<Vec<Operation>>, &[u8]) {
    let (script, schedule) = input.split_at(input.len().min(SCRIPT_SIZE));
    let script = script.get(SETUP_SIZE..).unwrap_or_default();
    let all: Vec<Operation> = script::decode(script, THREADS * OPERATIONS);
    let lists = (0..THREADS).map(|thread| {
        let own = all.iter().skip(thread * OPERATIONS).take(OPERATIONS);
        own.copied().collect()
    });
    (lists.collect(), schedule)
}
