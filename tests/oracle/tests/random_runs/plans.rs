//! Faults of random runs of operations.

use backend_mock::{Fault, RemoteError};

/// Number of kinds of faults.
pub(crate) const KINDS: u8 = 13;

/// Returns a fault of a kind, on one of two adapters, that strikes early.
pub(crate) fn fault(kind: u8, adapter: u8, which: u8, nth: u8) -> Fault {
    let adapter = u16::from(adapter & 1);
    let queue = u32::from(which % 3);
    let at = u64::from(nth) * 4;
    let few = u32::from(nth % 6);
    match kind % KINDS {
        0 => Fault::DropCompletion {
            adapter,
            queue,
            nth: few,
        },
        1 => Fault::DelayCompletion {
            adapter,
            queue,
            nth: few,
            by: 5 << (which >> 4),
        },
        2 => Fault::DuplicateCompletion {
            adapter,
            queue,
            nth: few,
        },
        3 => Fault::ReorderCompletion {
            adapter,
            queue,
            nth: few,
        },
        4 => Fault::OverrunQueue {
            adapter,
            queue,
            nth: few,
        },
        5 => Fault::LoseNotification {
            adapter,
            queue,
            nth: few % 2,
        },
        6 => Fault::LinkDown {
            a: 0,
            b: 1,
            at,
            duration: (which & 3 != 0).then(|| 100 << (which & 7)),
        },
        7 => Fault::AllocationFailure {
            adapter,
            nth: 12 + u32::from(nth % 48),
        },
        8 => Fault::RefusePost { adapter, nth: few },
        9 => Fault::RemoteError {
            adapter,
            nth: few,
            error: match which & 3 {
                0 => RemoteError::Access,
                1 => RemoteError::Responder,
                2 => RemoteError::BadResponse,
                _ => RemoteError::Silence,
            },
        },
        10 => Fault::ReceiverNotReady {
            adapter,
            nth: few,
            attempts: which % 16,
        },
        11 => Fault::FailSharedReceive {
            adapter,
            nth: few % 3,
        },
        _ => Fault::Crash { adapter, at },
    }
}
