//! Objects that prevent a graceful close.

use core::fmt;

use crate::adapter::{Control, Ia};
use crate::backend::Backend;
use crate::flags::HandleKind;
use crate::sync::RawLock;

/// Kinds of objects that a consumer frees, each before the kinds that it uses.
const KINDS: [HandleKind; 10] = [
    HandleKind::Psp,
    HandleKind::Rsp,
    HandleKind::Cr,
    HandleKind::Ep,
    HandleKind::Srq,
    HandleKind::Rmr,
    HandleKind::Lmr,
    HandleKind::Evd,
    HandleKind::Cno,
    HandleKind::Pz,
];

/// Objects that the consumer has not freed, counted by kind.
///
/// As text it lists the kinds in an order in which they can be freed: "2 endpoints, 1 protection
/// zone".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ObjectsLeft {
    counts: [u32; KINDS.len()],
}

impl ObjectsLeft {
    /// Returns the number of objects of one kind; 0 for adapters.
    pub fn count(&self, kind: HandleKind) -> u32 {
        self.iter()
            .find_map(|(other, count)| (other == kind).then_some(count))
            .unwrap_or(0)
    }

    /// Returns true if no object is left.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Returns the kinds that are left with their counts, in order of freeing.
    pub fn iter(&self) -> impl Iterator<Item = (HandleKind, u32)> {
        let counted = KINDS.into_iter().zip(self.counts);
        counted.filter(|&(_, count)| count != 0)
    }
}

impl fmt::Display for ObjectsLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing is left");
        }
        let mut gap = "";
        for (kind, count) in self.iter() {
            let plural = if count == 1 { "" } else { "s" };
            write!(f, "{gap}{count} {}{plural}", name(kind))?;
            gap = ", ";
        }
        Ok(())
    }
}

const fn name(kind: HandleKind) -> &'static str {
    match kind {
        HandleKind::Psp => "public service point",
        HandleKind::Rsp => "reserved service point",
        HandleKind::Cr => "connection request",
        HandleKind::Ep => "endpoint",
        HandleKind::Srq => "shared receive queue",
        HandleKind::Rmr => "remote memory region",
        HandleKind::Lmr => "local memory region",
        HandleKind::Evd => "event dispatcher",
        HandleKind::Cno => "notification object",
        HandleKind::Pz => "protection zone",
        HandleKind::Ia => "interface adapter",
    }
}

impl<'s, B: Backend, L: RawLock> Ia<'s, B, L> {
    /// Counts them; the adapter is locked.
    pub(super) fn count_left(&self, control: &Control<'s, B>) -> ObjectsLeft {
        let shared = &self.shared;
        let regions = shared.local_regions.live();
        let dispatchers = shared.event_dispatchers.live();
        let counts = [
            control.public_service_points.live(),
            control.reserved_service_points.live(),
            control.connection_requests.live(),
            shared.endpoints.live(),
            shared.shared_receive_queues.live(),
            shared.remote_regions.live(),
            regions.saturating_sub(control.cookies),
            // Without the asynchronous one.
            dispatchers.saturating_sub(1),
            shared.notification_objects.live(),
            control.protection_zones.live(),
        ];
        ObjectsLeft { counts }
    }
}
