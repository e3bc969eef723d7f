//! A node that exports a segment.

use std::process;
use std::time::Duration;

use dat_core::attributes::IaAddress;
use dat_host::Pages;
use dat_host::rsm::{AccessEntry, Export, Node, NodeId, RsmError, SegmentId};

use super::failure::DuringRsm;
use super::place::{EXPORTER, NOWHERE, Name, Place, Settings};
use crate::arguments::WaitingArguments;
use crate::failure::Result;
use crate::interrupt::Signals;
use crate::remote::counts::Counts;

/// Time after which an exporter checks again if it must end.
const TICK: Duration = Duration::from_millis(200);
/// Ports that are tried after the first, for an exporter in this process.
const TRIES: u32 = 8;

/// The address of an exporter, and its qualifier.
pub(super) type Listening = (IaAddress, u64);

/// An exporter with its segment.
pub(super) struct Exporter {
    node: Node,
    export: Export<Pages>,
    pub(super) listening: Listening,
}

impl Exporter {
    /// Publishes a segment to the nodes of a place, and to others.
    ///
    /// # Errors
    /// - Operation: the port is taken, or a call failed.
    pub(super) fn publish(
        place: &Place,
        (waiting, qualifier): (WaitingArguments, u64),
        others: &[(NodeId, IaAddress)],
        memory: Pages,
        (segment, digits): (SegmentId, u32),
    ) -> Result<Self> {
        let mut importers = place.importers();
        for other in others {
            // An address of this host may be named, too.
            if !importers.iter().any(|(known, _)| *known == other.0) {
                importers.push(*other);
            }
        }
        let node = open(place, (waiting, qualifier), &importers, None)?;
        let listening = (place.own_address()?, qualifier);
        Self::on(node, listening, &importers, memory, (segment, digits))
    }

    /// Publishes a segment on a free port, for the nodes of a place.
    ///
    /// After any failure it tries the next port.
    ///
    /// # Errors
    /// - Operation: a call failed, or no port is free.
    pub(super) fn here(
        place: &Place,
        memory: Pages,
        (segment, digits): (SegmentId, u32),
        signals: &Signals,
    ) -> Result<Self> {
        let importers = place.importers();
        let mut tried = 0;
        let (node, qualifier) = loop {
            let port =
                49_152 + u64::from(process::id().wrapping_mul(TRIES).wrapping_add(tried) % 16_384);
            match open(place, (SLEEPING, port), &importers, Some(signals)) {
                Err(_) if tried < TRIES => tried += 1,
                opened => break (opened?, port),
            }
        };
        let listening = (place.own_address()?, qualifier);
        Self::on(node, listening, &importers, memory, (segment, digits))
    }

    fn on(
        node: Node,
        listening: Listening,
        importers: &[(NodeId, IaAddress)],
        memory: Pages,
        (segment, permission): (SegmentId, u32),
    ) -> Result<Self> {
        let export = node.export(memory).during_rsm("rsm_memseg_export_create")?;
        let list: Vec<AccessEntry> = importers
            .iter()
            .map(|&(node, _)| AccessEntry { node, permission })
            .collect();
        export
            .publish(segment, &list)
            .during_rsm("rsm_memseg_export_publish")?;
        Ok(Self {
            node,
            export,
            listening,
        })
    }

    /// Takes signals until `ends` returns true, which gets their number so far; returns it.
    ///
    /// # Errors
    /// - Operation: a call failed.
    pub(super) fn serve(&self, mut ends: impl FnMut(u64) -> bool) -> Result<u64> {
        let mut signals = 0;
        while !ends(signals) {
            match self.export.signaled_within(TICK).wait() {
                Ok(came) => signals += u64::from(came),
                Err(dat_host::Error::SharedMemory(RsmError::Interrupted)) => {}
                Err(error) => return Err(error).during_rsm("rsm_intr_signal_wait"),
            }
        }
        Ok(signals)
    }

    /// Waits for a signal.
    ///
    /// # Errors
    /// - Operation: a call failed.
    pub(super) fn wait_for_signal(&self) -> Result<()> {
        let signaled = self.export.signaled();
        signaled.wait().during_rsm("rsm_intr_signal_wait")
    }

    /// Returns the counts of the device.
    pub(super) fn counts(&self) -> Counts {
        Counts::new(self.node.counts())
    }

    /// Takes the segment back from all importers; returns its memory.
    ///
    /// # Errors
    /// - Operation: a call failed.
    pub(super) fn end(self) -> Result<Pages> {
        let destroyed = self.export.destroy().wait();
        // Also after a failure, so that the importers learn of the end.
        let closed = self.node.close().wait();
        let memory = destroyed.during_rsm("rsm_memseg_export_destroy")?;
        closed.during_rsm("rsm_release_controller")?;
        Ok(memory)
    }
}

/// The way in which an exporter in this process waits.
const SLEEPING: WaitingArguments = WaitingArguments {
    wait: None,
    yield_after: 1,
};

fn open(
    place: &Place,
    (waiting, qualifier): (WaitingArguments, u64),
    importers: &[(NodeId, IaAddress)],
    signals: Option<&Signals>,
) -> Result<Node> {
    let settings = Settings {
        number: EXPORTER,
        qualifier,
        peers: importers
            .iter()
            .map(|&(number, address)| (number, address, NOWHERE))
            .collect(),
        waiting,
        signals,
    };
    place.open(Name::Exporter, settings)
}
