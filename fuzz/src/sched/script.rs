//! The operations of a run's threads, and their encoding.

/// The number of threads of a run.
pub const THREADS: usize = 3;
/// The number of operations of a thread.
pub const OPERATIONS: usize = 8;
/// The bytes of one operation in an input.
pub const OPERATION_SIZE: usize = 4;
/// The bytes of the setup: the seed of the fabric, and conditions at the start.
pub const SETUP_SIZE: usize = 2;
/// The bytes before the schedule.
pub const SCRIPT_SIZE: usize = SETUP_SIZE + THREADS * OPERATIONS * OPERATION_SIZE;

/// Nothing in the fabric takes time.
pub const IMMEDIATE: u8 = 1;
/// Buffers are posted before the run.
pub const BUFFERS: u8 = 2;
/// The far side sends before the run.
pub const MESSAGES: u8 = 4;
/// A poll advances the fabric.
pub const POLLS: u8 = 8;

/// The kind of a receive on an endpoint.
pub const RECEIVE: u8 = 3;
/// The kind of a buffer on the shared receive queue.
pub const SHARED_RECEIVE: u8 = 4;

/// The next operation of a thread; numbers select an object modulo their count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Does nothing.
    Nothing,
    /// Posts something.
    Post {
        /// The kind: Send, RDMA Write, RDMA Read, receive, shared receive, bind.
        kind: u8,
        /// The endpoint; the upper four bits select the region.
        at: u8,
        /// The flags without bit 2; the upper four bits are the length.
        how: u8,
    },
    /// Dequeues an event.
    Take {
        /// The dispatcher.
        from: u8,
    },
    /// Starts a wait and polls it once, unless the thread already waits.
    Wait {
        /// The dispatcher.
        from: u8,
        /// The number of events.
        threshold: u8,
    },
    /// Ends the wait of the thread.
    EndWait,
    /// Advances the adapter.
    Progress,
    /// Advances the fabric.
    Step {
        /// The number of steps.
        count: u8,
    },
    /// Frees a region that all threads use.
    FreeRegion {
        /// The region.
        which: u8,
    },
    /// Posts a software event of the thread.
    Notify,
    /// Ends a connection.
    Disconnect {
        /// The endpoint.
        at: u8,
        /// Set for a graceful end.
        gracefully: u8,
    },
    /// Resets an endpoint.
    Reset {
        /// The endpoint.
        at: u8,
    },
    /// Creates and frees an object.
    Make {
        /// The kind of object.
        kind: u8,
        /// The size of the object.
        size: u8,
    },
    /// Queries something.
    Ask {
        /// The kind of query.
        kind: u8,
        /// The object.
        which: u8,
    },
}

impl Operation {
    /// Returns the operation as a part of an input.
    pub const fn encode(self) -> [u8; OPERATION_SIZE] {
        match self {
            Self::Nothing => [0, 0, 0, 0],
            Self::Post { kind, at, how } => [1, kind, at, how],
            Self::Take { from } => [2, from, 0, 0],
            Self::Wait { from, threshold } => [3, from, threshold, 0],
            Self::EndWait => [4, 0, 0, 0],
            Self::Progress => [5, 0, 0, 0],
            Self::Step { count } => [6, count, 0, 0],
            Self::FreeRegion { which } => [7, which, 0, 0],
            Self::Notify => [8, 0, 0, 0],
            Self::Disconnect { at, gracefully } => [9, at, gracefully, 0],
            Self::Reset { at } => [10, at, 0, 0],
            Self::Make { kind, size } => [11, kind, size, 0],
            Self::Ask { kind, which } => [12, kind, which, 0],
        }
    }

    #[cfg(feature = "sched")]
    pub(super) const fn decode([what, a, b, c]: [u8; OPERATION_SIZE]) -> Self {
        match what % 16 {
            0 => Self::Nothing,
            // Posts are the most frequent, because they can fail in the most ways.
            1 | 13 | 14 => Self::Post {
                kind: a,
                at: b,
                how: c,
            },
            2 | 15 => Self::Take { from: a },
            3 => Self::Wait {
                from: a,
                threshold: b,
            },
            4 => Self::EndWait,
            5 => Self::Progress,
            6 => Self::Step { count: a },
            7 => Self::FreeRegion { which: a },
            8 => Self::Notify,
            9 => Self::Disconnect {
                at: a,
                gracefully: b,
            },
            10 => Self::Reset { at: a },
            11 => Self::Make { kind: a, size: b },
            _ => Self::Ask { kind: a, which: b },
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
        let nothing = std::iter::repeat(&Operation::Nothing);
        let filled = list.iter().chain(nothing).take(OPERATIONS);
        input.extend(filled.flat_map(|operation| operation.encode()));
    }
    input.extend(schedule);
    input
}

/// Returns the lists of an input, and its schedule; missing operations do nothing.
#[cfg(feature = "sched")]
pub(super) fn decode(input: &[u8]) -> (Vec<Vec<Operation>>, &[u8]) {
    let operations = input.len().min(SCRIPT_SIZE);
    let (script, schedule) = input.split_at(operations);
    let script = script.get(SETUP_SIZE..).unwrap_or_default();
    let all = script.as_chunks().0.iter().copied().map(Operation::decode);
    let all: Vec<Operation> = all.collect();
    let lists = (0..THREADS).map(|thread| {
        let own = all.iter().skip(thread * OPERATIONS).take(OPERATIONS);
        own.copied().collect()
    });
    (lists.collect(), schedule)
}
