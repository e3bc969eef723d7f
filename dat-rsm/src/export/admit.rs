//! Admission of what peers ask for, within their [shares](crate::shares).

use dat_core::time::Instant;

use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::flight::Flight;
use crate::id::{Handle, NodeId};
use crate::link::Link;
use crate::wire::Greeting;

impl State {
    /// Returns true if a node may connect to one more segment.
    ///
    /// A connection that lost its link and did not return counts until its slot is needed; then the
    /// oldest one is removed.
    ///
    /// Spec: RSMST-05
    pub(crate) fn admits_importer(&mut self, node: NodeId) -> bool {
        let mut count = 0_usize;
        let mut lost: Option<(Handle, Option<Instant>)> = None;
        for (handle, importer) in self.importers.iter().filter(|(_, it)| it.node == node) {
            count = count.saturating_add(1);
            let older = lost.is_none_or(|(_, until)| importer.until < until);
            if importer.until.is_some() && older {
                lost = Some((handle, importer.until));
            }
        }
        if count < self.shares.importers {
            return true;
        }
        match lost {
            Some((handle, _)) => self.importers.remove(handle).is_some(),
            None => false,
        }
    }

    /// Returns true if a node may have one more link that it asked for.
    ///
    /// Spec: RSMST-05
    pub(crate) fn admits_link(&self, node: NodeId) -> bool {
        self.links_from(node).count() < self.shares.links
    }

    /// Returns the link that a new link of the same incarnation of a node replaces.
    ///
    /// A process has one link through a port at a time, so the old one broke without an event.
    pub(crate) fn superseded_link(&self, port: usize, peer: &Greeting) -> Option<Handle> {
        self.links_from(peer.node)
            .find(|(_, link)| {
                let incarnation = link.peer.map(|peer| peer.incarnation);
                link.port == port && incarnation == Some(peer.incarnation)
            })
            .map(|(handle, _)| handle)
    }

    /// Returns true if one more message may be pending on a link.
    ///
    /// Spec: RSMST-05
    pub(crate) fn admits_message(&self, link: &Link) -> bool {
        let under_way = |node| {
            let links = self.links_from(node).map(|(_, link)| link.messages());
            links.fold(0, usize::saturating_add)
        };
        link.active || under_way(link.node) < self.shares.messages
    }

    /// Starts a call, if its node may have one more.
    ///
    /// Half of the table is common. So calls that hang on one node leave room for those to others.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES: the table, or the share of the node, is used up.
    ///
    /// Spec: RSMST-08
    pub(crate) fn begin_flight(&mut self, flight: Flight) -> Result<Handle> {
        let calls_to = |node| {
            let all = self.flights.iter();
            all.filter(|(_, other)| other.node == node).count()
        };
        let crowded = self.flights.len() >= self.shares.common_calls;
        if crowded && calls_to(flight.node) >= self.shares.calls {
            return Err(RsmError::InsufficientResources);
        }
        let begun = self.flights.insert(flight);
        begun.ok_or(RsmError::InsufficientResources)
    }

    fn links_from(&self, node: NodeId) -> impl Iterator<Item = (Handle, &Link)> {
        let is_passive = move |link: &Link| !link.active && link.node == node;
        self.links.iter().filter(move |(_, link)| is_passive(link))
    }
}
