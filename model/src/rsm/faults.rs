//! What goes wrong below a run, as bytes hold it.

use arbitrary::{Arbitrary, Unstructured};
use backend_mock::{Fault, RemoteError};

/// Faults of the two adapters. They come after what most runs begin with, and their times count from there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

/// Microseconds of the fabric from one moment that a byte names to the next.
const MOMENT: u64 = 8;

impl<'a> Arbitrary<'a> for Faults {
    /// None in every other run, and few in the others; each where it happens early.
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let count = match u8::arbitrary(u)? {
            0..=127 => 0,
            more => more % 3 + 1,
        };
        let faults: arbitrary::Result<Vec<Fault>> = (0..count).map(|_| fault(u)).collect();
        faults.map(Self)
    }
}

fn fault(u: &mut Unstructured<'_>) -> arbitrary::Result<Fault> {
    let (kind, adapter, which, nth): (u8, u8, u8, u8) = u.arbitrary()?;
    let adapter = u16::from(adapter & 1);
    // The dispatchers of a controller, and that of the adapter.
    let queue = u16::from(which % 5);
    let at = u64::from(nth) * MOMENT;
    // What most runs begin with takes a good part of these.
    let nth = u32::from(nth % 96);
    Ok(match kind % 12 {
        0 => Fault::DropCompletion {
            adapter,
            queue,
            nth,
        },
        1 => Fault::DelayCompletion {
            adapter,
            queue,
            nth,
            by: 50,
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
            nth,
        },
        6 => Fault::LinkDown {
            a: 0,
            b: 1,
            at,
            duration: (which & 3 != 0).then(|| 10 << (which & 15)),
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
            attempts: which,
        },
        _ => Fault::Crash { adapter, at },
    })
}
