//! Faults of a run so far, and the outcomes that they excuse.
//!
//! Without faults the run is compared in full. With faults it is compared too, except for the
//! possible effects of faults that struck, each at its place and time: see `table.rs`.

mod table;
#[cfg(test)]
mod tests;

use backend_mock::{Fault, Happened};
use dat_rsm::RsmError;

use table::{Effect, effect};
pub(crate) use table::{Kind, kind};

use crate::op::Side;

/// Link over which a node uses segments of another node, or its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) importer: Side,
    pub(crate) exporter: Side,
}

impl Link {
    fn touches(self, side: Side) -> bool {
        self.importer == side || self.exporter == side
    }
}

/// Location of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    Link(Link),
    Side(Side),
    /// Between the two nodes.
    Between,
}

/// Fault that had an effect.
#[derive(Debug)]
struct ActiveFault {
    effect: Effect,
    location: Location,
    /// Set once a call has reported it.
    reported: bool,
}

/// Call to be judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) side: Side,
    /// Link that it uses.
    pub(crate) link: Option<Link>,
    /// Earlier faults are no excuse, unless they last.
    pub(crate) since: usize,
}

/// All faults with an effect.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    faults: Vec<ActiveFault>,
    /// Number of faults when the run was last idle.
    idle_since: usize,
    /// Number of the fabric's reports processed.
    processed: usize,
}

impl Damage {
    /// Processes the fabric's reports.
    pub(crate) fn process_reports(&mut self, happened: &[Happened]) {
        for one in happened.iter().skip(self.processed) {
            let effect = effect(&one.fault);
            if effect != Effect::Nothing {
                let location = location(one, effect);
                self.faults.push(ActiveFault {
                    effect,
                    location,
                    reported: false,
                });
            }
        }
        self.processed = happened.len();
    }

    /// Records that the run is idle: faults that do not last are over.
    pub(crate) fn mark_idle(&mut self) {
        self.idle_since = self.faults.len();
    }

    /// Returns the current moment, to distinguish later faults from earlier ones.
    pub(crate) fn now(&self) -> usize {
        self.faults.len()
    }

    /// Returns the moment when the run was last idle.
    pub(crate) fn idle_since(&self) -> usize {
        self.idle_since
    }

    /// Returns the faults that count since a moment.
    fn since(&self, moment: usize) -> impl Iterator<Item = &ActiveFault> {
        let all = self.faults.iter().enumerate();
        all.filter(move |(at, fault)| *at >= moment || fault.effect.lasts())
            .map(|(_, fault)| fault)
    }

    /// Returns true if a call may fail with this error; a single-use excuse is consumed.
    pub(crate) fn excuses(&mut self, call: &Call, error: RsmError) -> bool {
        let found = self.faults.iter_mut().enumerate().find(|(at, fault)| {
            (*at >= call.since || fault.effect.excuses_later())
                && !(fault.reported && fault.effect.is_reported_once(error))
                && fault.affects_call(call)
                && fault.effect.errors(call.kind).contains(&error)
        });
        match found {
            Some((_, fault)) => {
                fault.reported = true;
                true
            }
            None => false,
        }
    }

    /// Returns true if a request of a link failed since a moment.
    ///
    /// All spans of that request must report the failure.
    pub(crate) fn broke(&self, link: Link, moment: usize) -> bool {
        self.faults.iter().skip(moment).any(|fault| {
            matches!(fault.effect, Effect::Breaks(_)) && fault.location == Location::Link(link)
        })
    }

    /// Returns true if data sent since the last idle moment may be lost.
    pub(crate) fn may_lose(&self, link: Link) -> bool {
        self.since(self.idle_since)
            .any(|fault| fault.effect.loses() && fault.affects_link(link))
    }

    /// Returns true if a lasting fault affects a link.
    pub(crate) fn lasts(&self, link: Link) -> bool {
        self.since(self.now()).any(|fault| fault.affects_link(link))
    }

    /// Returns true if connections of a link may be aborted.
    ///
    /// The link cannot be restored: permanently, or because it broke while resources for a new one
    /// were missing.
    pub(crate) fn may_abort(&self, link: Link) -> bool {
        let recent = || {
            self.since(self.idle_since)
                .filter(|fault| fault.affects_link(link))
        };
        let breaks = recent().filter(|fault| fault.effect.loses()).count();
        let keeps_down =
            recent().any(|fault| matches!(fault.effect, Effect::Scarce | Effect::Refused));
        self.lasts(link) || (keeps_down && breaks != 0 && recent().count() > 1)
    }

    /// Returns true if the host of a side is dead.
    pub(crate) fn is_dead(&self, side: Side) -> bool {
        let here = Location::Side(side);
        let mut faults = self.faults.iter();
        faults.any(|fault| fault.effect == Effect::Dead && fault.location == here)
    }
}

impl ActiveFault {
    /// Returns true if the fault may cause the outcome of a call.
    fn affects_call(&self, call: &Call) -> bool {
        match (self.effect, self.location) {
            // Each side waits only for itself.
            (Effect::Asleep, Location::Side(side)) => side == call.side,
            // A connect takes resources of both nodes, every other call only of the caller's.
            (Effect::Scarce | Effect::Refused, Location::Side(side)) => {
                side == call.side
                    || (call.kind == Kind::Connect
                        && call.link.is_some_and(|link| link.exporter == side))
            }
            (_, Location::Side(side)) => {
                side == call.side || call.link.is_some_and(|link| link.touches(side))
            }
            _ => match call.link {
                Some(link) => self.affects_link(link),
                // Memory is in use as long as transfers from it are pending.
                None => {
                    call.kind == Kind::Ends
                        && matches!(self.location, Location::Link(link) if link.importer == call.side)
                }
            },
        }
    }

    fn affects_link(&self, link: Link) -> bool {
        match self.location {
            Location::Link(here) => here == link,
            Location::Side(side) => link.touches(side),
            Location::Between => link.importer != link.exporter,
        }
    }
}

fn side(adapter: u16) -> Side {
    if adapter == 0 { Side::A } else { Side::B }
}

fn location(happened: &Happened, effect: Effect) -> Location {
    let adapter = match happened.fault {
        Fault::DropCompletion { adapter, .. }
        | Fault::DelayCompletion { adapter, .. }
        | Fault::DuplicateCompletion { adapter, .. }
        | Fault::ReorderCompletion { adapter, .. }
        | Fault::OverrunQueue { adapter, .. }
        | Fault::LoseNotification { adapter, .. }
        | Fault::AllocationFailure { adapter, .. }
        | Fault::RefusePost { adapter, .. }
        | Fault::RemoteError { adapter, .. }
        | Fault::ReceiverNotReady { adapter, .. }
        | Fault::FailSharedReceive { adapter, .. }
        | Fault::Crash { adapter, .. } => adapter,
        Fault::LinkDown { .. } => return Location::Between,
    };
    match happened.connection {
        Some(end) if effect != Effect::Stopped => {
            let (importer, exporter) = if end.is_initiator {
                (end.from, end.to)
            } else {
                (end.to, end.from)
            };
            Location::Link(Link {
                importer: side(importer),
                exporter: side(exporter),
            })
        }
        _ => Location::Side(side(adapter)),
    }
}
