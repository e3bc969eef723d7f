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

/// Place of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Link(Link),
    Side(Side),
    /// Between the two nodes.
    Between,
}

/// Fault that had an effect.
#[derive(Debug)]
struct Harm {
    effect: Effect,
    place: Place,
    /// Set once a call has reported it.
    told: bool,
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
    harms: Vec<Harm>,
    /// Number of faults when the run was last idle.
    rested: usize,
    /// Number of the fabric's reports processed.
    heard: usize,
}

impl Damage {
    /// Processes the fabric's reports.
    pub(crate) fn hear(&mut self, happened: &[Happened]) {
        for one in happened.iter().skip(self.heard) {
            let effect = effect(&one.fault);
            if effect != Effect::Nothing {
                let place = place(one, effect);
                self.harms.push(Harm {
                    effect,
                    place,
                    told: false,
                });
            }
        }
        self.heard = happened.len();
    }

    /// Records that the run is idle: faults that do not last are over.
    pub(crate) fn rest(&mut self) {
        self.rested = self.harms.len();
    }

    /// Returns the current moment, to distinguish later faults from earlier ones.
    pub(crate) fn now(&self) -> usize {
        self.harms.len()
    }

    /// Returns the moment when the run was last idle.
    pub(crate) fn rested(&self) -> usize {
        self.rested
    }

    /// Returns the faults that count since a moment.
    fn since(&self, moment: usize) -> impl Iterator<Item = &Harm> {
        let all = self.harms.iter().enumerate();
        all.filter(move |(at, harm)| *at >= moment || harm.effect.lasts())
            .map(|(_, harm)| harm)
    }

    /// Returns true if a call may fail with this error; a single-use excuse is consumed.
    pub(crate) fn excuses(&mut self, call: &Call, error: RsmError) -> bool {
        let found = self.harms.iter_mut().enumerate().find(|(at, harm)| {
            (*at >= call.since || harm.effect.excuses_later())
                && !(harm.told && harm.effect.is_told_once(error))
                && harm.strikes(call)
                && harm.effect.errors(call.kind).contains(&error)
        });
        match found {
            Some((_, harm)) => {
                harm.told = true;
                true
            }
            None => false,
        }
    }

    /// Returns true if a request of a link failed since a moment.
    ///
    /// All spans of that request must report the failure.
    pub(crate) fn broke(&self, link: Link, moment: usize) -> bool {
        self.harms
            .iter()
            .skip(moment)
            .any(|harm| matches!(harm.effect, Effect::Breaks(_)) && harm.place == Place::Link(link))
    }

    /// Returns true if data sent since the last idle moment may be lost.
    pub(crate) fn may_lose(&self, link: Link) -> bool {
        self.since(self.rested)
            .any(|harm| harm.effect.loses() && harm.reaches(link))
    }

    /// Returns true if a lasting fault affects a link.
    pub(crate) fn lasts(&self, link: Link) -> bool {
        self.since(self.now()).any(|harm| harm.reaches(link))
    }

    /// Returns true if connections of a link may be aborted.
    ///
    /// The link cannot be restored: permanently, or because it broke while resources for a new one
    /// were missing.
    pub(crate) fn may_abort(&self, link: Link) -> bool {
        let recent = || self.since(self.rested).filter(|harm| harm.reaches(link));
        let breaks = recent().filter(|harm| harm.effect.loses()).count();
        let keeps_down =
            recent().any(|harm| matches!(harm.effect, Effect::Scarce | Effect::Refused));
        self.lasts(link) || (keeps_down && breaks != 0 && recent().count() > 1)
    }

    /// Returns true if the host of a side is dead.
    pub(crate) fn is_dead(&self, side: Side) -> bool {
        let here = Place::Side(side);
        let mut harms = self.harms.iter();
        harms.any(|harm| harm.effect == Effect::Dead && harm.place == here)
    }
}

impl Harm {
    /// Returns true if the fault may cause the outcome of a call.
    fn strikes(&self, call: &Call) -> bool {
        match (self.effect, self.place) {
            // Each side waits only for itself.
            (Effect::Asleep, Place::Side(side)) => side == call.side,
            // A connect takes resources of both nodes, every other call only of the caller's.
            (Effect::Scarce | Effect::Refused, Place::Side(side)) => {
                side == call.side
                    || (call.kind == Kind::Connect
                        && call.link.is_some_and(|link| link.exporter == side))
            }
            (_, Place::Side(side)) => {
                side == call.side || call.link.is_some_and(|link| link.touches(side))
            }
            _ => match call.link {
                Some(link) => self.reaches(link),
                // Memory is in use as long as transfers from it are pending.
                None => {
                    call.kind == Kind::Ends
                        && matches!(self.place, Place::Link(link) if link.importer == call.side)
                }
            },
        }
    }

    fn reaches(&self, link: Link) -> bool {
        match self.place {
            Place::Link(here) => here == link,
            Place::Side(side) => link.touches(side),
            Place::Between => link.importer != link.exporter,
        }
    }
}

fn side(adapter: u16) -> Side {
    if adapter == 0 { Side::A } else { Side::B }
}

fn place(happened: &Happened, effect: Effect) -> Place {
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
        Fault::LinkDown { .. } => return Place::Between,
    };
    match happened.way {
        Some(way) if effect != Effect::Stopped => {
            let (importer, exporter) = if way.asked {
                (way.from, way.to)
            } else {
                (way.to, way.from)
            };
            Place::Link(Link {
                importer: side(importer),
                exporter: side(exporter),
            })
        }
        _ => Place::Side(side(adapter)),
    }
}
