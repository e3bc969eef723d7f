//! What has gone wrong so far in a run, and what that excuses.
//!
//! Without faults nothing is excused: a run is compared in full. With faults it is as well, but for what the faults that really
//! had an effect may lead to, each where it struck and when: see `table.rs`.

mod table;
#[cfg(test)]
mod tests;

use backend_mock::{Fault, Happened};
use dat_rsm::RsmError;

use table::{Effect, effect};
pub(crate) use table::{Kind, kind};

use crate::op::Side;

/// The link by which one node uses segments of another, or of its own.
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

/// Where something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Link(Link),
    Side(Side),
    /// Between the two nodes.
    Between,
}

/// Something that went wrong.
#[derive(Debug)]
struct Harm {
    effect: Effect,
    place: Place,
    /// A call has told of it already.
    told: bool,
}

/// A call that is judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) side: Side,
    /// What it uses.
    pub(crate) link: Option<Link>,
    /// What went wrong before is no excuse, unless it goes on.
    pub(crate) since: usize,
}

/// All that went wrong.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    harms: Vec<Harm>,
    /// What went wrong before everything last came to rest.
    rested: usize,
    /// Of what the fabric tells, how much was heard.
    heard: usize,
}

impl Damage {
    /// Takes in what the fabric tells.
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

    /// Everything came to rest: what does not go on is over.
    pub(crate) fn rest(&mut self) {
        self.rested = self.harms.len();
    }

    /// Now, to tell what goes wrong later from what did before.
    pub(crate) fn now(&self) -> usize {
        self.harms.len()
    }

    /// When everything last came to rest.
    pub(crate) fn rested(&self) -> usize {
        self.rested
    }

    /// What counts since a moment.
    fn since(&self, moment: usize) -> impl Iterator<Item = &Harm> {
        let all = self.harms.iter().enumerate();
        all.filter(move |(at, harm)| *at >= moment || harm.effect.lasts())
            .map(|(_, harm)| harm)
    }

    /// Whether a call may fail with this error. What is told of once excuses one call.
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

    /// Whether a request of a link failed since a moment, which everything that spans it has to tell.
    pub(crate) fn broke(&self, link: Link, moment: usize) -> bool {
        self.harms
            .iter()
            .skip(moment)
            .any(|harm| matches!(harm.effect, Effect::Breaks(_)) && harm.place == Place::Link(link))
    }

    /// Whether what was on the way on a link since everything last came to rest may be lost.
    pub(crate) fn may_lose(&self, link: Link) -> bool {
        self.since(self.rested)
            .any(|harm| harm.effect.loses() && harm.reaches(link))
    }

    /// Whether something goes on that strikes a link.
    pub(crate) fn lasts(&self, link: Link) -> bool {
        self.since(self.now()).any(|harm| harm.reaches(link))
    }

    /// Whether connections of a link may be aborted: it cannot be made anew, for good, or because it broke where there is
    /// nothing left to make it from.
    pub(crate) fn may_abort(&self, link: Link) -> bool {
        let recent = || self.since(self.rested).filter(|harm| harm.reaches(link));
        let breaks = recent().filter(|harm| harm.effect.loses()).count();
        let keeps_down =
            recent().any(|harm| matches!(harm.effect, Effect::Scarce | Effect::Refused));
        self.lasts(link) || (keeps_down && breaks != 0 && recent().count() > 1)
    }

    /// Whether the host of a side is dead.
    pub(crate) fn is_dead(&self, side: Side) -> bool {
        let here = Place::Side(side);
        let mut harms = self.harms.iter();
        harms.any(|harm| harm.effect == Effect::Dead && harm.place == here)
    }
}

impl Harm {
    /// Whether it may be the reason for how a call ends.
    fn strikes(&self, call: &Call) -> bool {
        match (self.effect, self.place) {
            // Nobody sleeps for another.
            (Effect::Asleep, Place::Side(side)) => side == call.side,
            // To be connected takes something from both nodes; everything else is the caller's.
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
                // Memory is in use as long as anything is on the way from it.
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
