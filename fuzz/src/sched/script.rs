//! What a run does: the operations of its threads, and their bytes.

/// Threads of a run.
pub const THREADS: usize = 3;
/// Operations of a thread.
pub const OPERATIONS: usize = 8;
/// Bytes of one operation in an input.
pub const OPERATION_SIZE: usize = 4;
/// What comes first: the seed of the fabric, and what is so beforehand.
pub const SETUP_SIZE: usize = 2;
/// What comes before the schedule.
pub const SCRIPT_SIZE: usize = SETUP_SIZE + THREADS * OPERATIONS * OPERATION_SIZE;

/// Nothing in the fabric takes any time.
pub const IMMEDIATE: u8 = 1;
/// Buffers are posted beforehand.
pub const BUFFERS: u8 = 2;
/// The far side has sent before.
pub const MESSAGES: u8 = 4;
/// Who polls lets the fabric go on.
pub const POLLS: u8 = 8;

/// What takes a message: of an endpoint, and of the shared queue.
pub const RECEIVE: u8 = 3;
/// The other one.
pub const SHARED_RECEIVE: u8 = 4;

/// What a thread does next. Numbers choose from what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Nothing.
    Nothing,
    /// Something is posted.
    Post {
        /// What: Send, RDMA Write, RDMA Read, receive, shared receive, bind.
        kind: u8,
        /// On which endpoint; above, from which region.
        at: u8,
        /// The flags, and above them the length.
        how: u8,
    },
    /// An event is taken.
    Take {
        /// From which dispatcher.
        from: u8,
    },
    /// A wait begins, unless the thread waits already, and looks.
    Wait {
        /// For which dispatcher.
        from: u8,
        /// For how many events.
        threshold: u8,
    },
    /// The wait of the thread ends.
    EndWait,
    /// The adapter goes on.
    Progress,
    /// The fabric goes on.
    Step {
        /// So often.
        count: u8,
    },
    /// A region that all threads use is freed.
    FreeRegion {
        /// Which.
        which: u8,
    },
    /// An event of the thread's own is posted.
    Notify,
    /// A connection ends.
    Disconnect {
        /// Of which endpoint.
        at: u8,
        /// Gracefully.
        gracefully: u8,
    },
    /// An endpoint begins anew.
    Reset {
        /// Which.
        at: u8,
    },
    /// Something is made and freed.
    Make {
        /// What.
        kind: u8,
        /// Of which size.
        size: u8,
    },
    /// Somebody asks.
    Ask {
        /// What.
        kind: u8,
        /// About which.
        which: u8,
    },
}

impl Operation {
    /// The operation as a part of an input.
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
            // Posts are what there is most to go wrong with.
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

/// An input of these lists, and of who goes on when: each byte says in its lower two bits how many are skipped, and in the others for how
/// many accesses the next one goes on.
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

/// The lists of an input, and its schedule; what is missing does nothing.
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
