//! Faults of a run, decoded from bytes.

use arbitrary::{Arbitrary, Unstructured};
use backend_mock::{Fault, RemoteError};

/// Faults of the two adapters; their times and counts begin after the prologue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

/// Number of kinds of faults.
pub const KINDS: u8 = 12;
/// Step of a fault's time, in microseconds of the fabric.
const MOMENT: u64 = 4;
/// Completion queues of a controller: messages and requests.
const QUEUES: [u32; 2] = [3, 4];

impl<'a> Arbitrary<'a> for Faults {
    /// Draws no faults in every other run, else a few that strike early.
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let count = match u8::arbitrary(u)? {
            0..=127 => 0,
            more => more % 3 + 1,
        };
        let faults: arbitrary::Result<Vec<Fault>> = (0..count)
            .map(|_| {
                let (kind, adapter, which, nth) = u.arbitrary()?;
                Ok(fault(kind, adapter, which, nth))
            })
            .collect();
        faults.map(Self)
    }
}

/// Returns the fault of a kind on an adapter.
///
/// `which` and `nth` set its details and its time.
pub fn fault(kind: u8, adapter: u8, which: u8, nth: u8) -> Fault {
    let adapter = u16::from(adapter & 1);
    let queue = QUEUES[usize::from(which & 1)];
    let at = u64::from(nth) * MOMENT;
    let nth = u32::from(nth % 24);
    match kind % KINDS {
        0 => Fault::DropCompletion {
            adapter,
            queue,
            nth,
        },
        1 => Fault::DelayCompletion {
            adapter,
            queue,
            nth,
            by: 5 << (which >> 5),
        },
        2 => Fault::DuplicateCompletion {
            adapter,
            queue,
            nth,
        },
        3 => Fault::ReorderCompletion {
            adapter,
            queue,
            nth,
        },
        4 => Fault::OverrunQueue {
            adapter,
            queue,
            nth,
        },
        5 => Fault::LoseNotification {
            adapter,
            queue,
            nth: nth % 16,
        },
        6 => Fault::LinkDown {
            a: 0,
            b: 1,
            at,
            duration: (which & 3 != 0).then(|| 100 << (which & 7)),
        },
        7 => Fault::AllocationFailure { adapter, nth },
        8 => Fault::RefusePost { adapter, nth },
        9 => Fault::RemoteError {
            adapter,
            nth,
            error: match which & 3 {
                0 => RemoteError::Access,
                1 => RemoteError::Responder,
                2 => RemoteError::BadResponse,
                _ => RemoteError::Silence,
            },
        },
        10 => Fault::ReceiverNotReady {
            adapter,
            nth,
            attempts: which % 16,
        },
        _ => Fault::Crash { adapter, at },
    }
}
