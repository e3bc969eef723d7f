//! Service points, connection requests and connection setup.

use dat_core::error::{ErrorKind, Subtype};
use dat_core::event::ConnectionEventKind;
use dat_core::flags::{EndpointState, EvdFlags, HandleKind};

use super::event::{Config, Expected, Stream};
use super::{ENDPOINTS, Key, Shape, World};
use crate::expect::{Checks, Verdict};
use crate::op::Side;

/// A public service point.
#[derive(Clone, Debug)]
pub(crate) struct Psp {
    pub(crate) side: Side,
    pub(crate) qualifier: u64,
    pub(crate) evd: Key,
    pub(crate) by_provider: bool,
}

/// A reserved service point.
#[derive(Clone, Debug)]
pub(crate) struct Rsp {
    pub(crate) side: Side,
    pub(crate) qualifier: u64,
    pub(crate) evd: Key,
    pub(crate) ep: Option<Key>,
}

/// A connection request.
#[derive(Clone, Debug)]
pub(crate) struct Cr {
    pub(crate) attempt: usize,
    /// Endpoint that the service point provided.
    pub(crate) ep: Option<Key>,
}

/// Progress of a connection attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// On its way to the peer.
    Sent,
    /// Delivered to the peer's consumer.
    Waiting(Key),
    /// Accepted; the answer with private data is on its way.
    Accepted {
        passive: Key,
        private_data: Vec<u8>,
    },
    Rejected,
    /// Rejected by the provider.
    Refused,
    /// Established or failed.
    Over,
}

/// Connection attempt, later the connection.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) active: Key,
    /// Target side; `None` if the host does not exist.
    pub(crate) target: Option<Side>,
    pub(crate) qualifier: u64,
    pub(crate) finite: bool,
    pub(crate) phase: Phase,
}

impl Attempt {
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Waiting(_) | Phase::Over)
    }
}

/// Limit on private data of the adapters in these runs.
pub(crate) const PRIVATE_DATA: usize = 64;

/// Returns the shape of a provider-made endpoint: no zone, no dispatchers (PSC-03).
fn provider_shape() -> Shape {
    Shape::of(&dat_core::attributes::EpAttributes::DEFAULT)
}

impl World {
    /// Checks `ep_connect` (EPK-01 to EPK-05, EPK-14).
    pub(crate) fn check_connect(
        &self,
        side: Side,
        key: Option<Key>,
        timeout: u32,
        private_data: usize,
        [unknown, unsupported, elsewhere]: [bool; 3],
    ) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Ep, key);
        self.check_connectable(&mut checks, key);
        checks.parameter(unknown, 0);
        checks.other(unsupported, ErrorKind::ModelNotSupported);
        checks.other(elsewhere, ErrorKind::InvalidAddress);
        checks.parameter(timeout == 0, 4);
        checks.parameter(private_data > PRIVATE_DATA, 5);
        checks.verdict()
    }

    fn check_connectable(&self, checks: &mut Checks, key: Option<Key>) {
        if let Some(ep) = key.and_then(|key| self.eps.get(&key)) {
            if ep.state != EndpointState::Unconnected {
                checks.state(true, ep.state.subtype());
            } else {
                checks.state(ep.pz.is_none(), Subtype::InvalidStateEpNotReady);
            }
        }
    }

    /// Checks `ep_dup_connect` (EPU-01, EPU-02).
    pub(crate) fn check_dup_connect(
        &self,
        side: Side,
        key: Option<Key>,
        model: Option<Key>,
        timeout: u32,
        private_data: usize,
    ) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Ep, key);
        checks.handle(
            !self.is(side, HandleKind::Ep, model),
            Subtype::InvalidHandleEp,
        );
        self.check_connectable(&mut checks, key);
        if let Some(ep) = model.and_then(|key| self.eps.get(&key)) {
            checks.state(ep.state != EndpointState::Connected, ep.state.subtype());
        }
        checks.parameter(timeout == 0, 3);
        checks.parameter(private_data > PRIVATE_DATA, 4);
        checks.verdict()
    }

    /// Starts an attempt (E10).
    pub(crate) fn connect(&mut self, key: Key, target: Option<Side>, qualifier: u64, finite: bool) {
        let attempt = self.attempts.len();
        self.attempts.push(Attempt {
            active: key,
            target,
            qualifier,
            finite,
            phase: Phase::Sent,
        });
        if let Some(ep) = self.eps.get_mut(&key) {
            ep.state = EndpointState::ActiveConnectionPending;
            ep.attempt = Some(attempt);
        }
    }

    pub(super) fn advance_attempts(&mut self) {
        for index in 0..self.attempts.len() {
            let attempt = self.attempts[index].clone();
            let phase = match attempt.phase {
                Phase::Sent => self.arrive(index, attempt.target, attempt.qualifier),
                Phase::Accepted {
                    passive,
                    private_data,
                } => {
                    self.answer(index, attempt.active, passive, private_data);
                    Phase::Over
                }
                Phase::Rejected => {
                    self.fail_active(index, &[ConnectionEventKind::PeerRejected]);
                    Phase::Over
                }
                Phase::Refused => {
                    self.fail_active(index, &[ConnectionEventKind::NonPeerRejected]);
                    Phase::Over
                }
                phase => phase,
            };
            self.attempts[index].phase = phase;
        }
    }

    /// Delivers a request to its host (EPK-08, EPK-09, PSC-02, E2, E5).
    fn arrive(&mut self, index: usize, target: Option<Side>, qualifier: u64) -> Phase {
        let Some(side) = target else {
            self.fail_active(index, &[ConnectionEventKind::Unreachable]);
            return Phase::Over;
        };
        match self.offer(index, side, qualifier) {
            Some(cr) => Phase::Waiting(cr),
            None => {
                self.fail_active(index, &[ConnectionEventKind::NonPeerRejected]);
                Phase::Over
            }
        }
    }

    /// Offers a request to the matching service point.
    ///
    /// Returns `None` if there is none or it has no room.
    fn offer(&mut self, index: usize, side: Side, qualifier: u64) -> Option<Key> {
        if self.count(side, HandleKind::Cr) >= ENDPOINTS {
            return None;
        }
        let by_provider = |world: &mut Self| {
            (world.count(side, HandleKind::Ep) < ENDPOINTS).then(|| {
                let state = EndpointState::TentativeConnectionPending;
                world.ep_create(side, None, [None; 3], None, provider_shape(), state)
            })
        };
        let psp = self
            .psps
            .iter()
            .find(|(_, psp)| psp.side == side && psp.qualifier == qualifier)
            .map(|(&key, psp)| (key, psp.clone()));
        let (evd, service_point, ep) = if let Some((key, psp)) = psp {
            if !self.has_room(psp.evd) {
                return None;
            }
            let ep = if psp.by_provider {
                Some(by_provider(self)?)
            } else {
                None
            };
            (psp.evd, Some(key), ep)
        } else {
            let (key, rsp) = self
                .rsps
                .iter()
                .find(|(_, rsp)| rsp.side == side && rsp.qualifier == qualifier)
                .map(|(&key, rsp)| (key, rsp.clone()))?;
            if !self.has_room(rsp.evd) {
                return None;
            }
            let ep = match rsp.ep {
                Some(ep) => ep,
                None => by_provider(self)?,
            };
            if rsp.ep.is_some()
                && let Some(ep) = self.eps.get_mut(&ep)
            {
                ep.state = EndpointState::PassiveConnectionPending;
            }
            self.rsps.remove(&key);
            self.mark_dead(key);
            (rsp.evd, None, Some(ep))
        };
        let cr = self.add(side, HandleKind::Cr, false);
        self.crs.insert(cr, Cr { attempt: index, ep });
        let event = Expected::Request {
            service_point,
            qualifier,
            attempt: index,
        };
        self.raise(Some(evd), Stream::ConnectionRequest(cr), event);
        Some(cr)
    }

    /// Delivers an accept to the active side (E11, E13, E14).
    fn answer(&mut self, index: usize, active: Key, passive: Key, private_data: Vec<u8>) {
        let waits = self.eps.get(&active).is_some_and(|ep| {
            ep.attempt == Some(index) && ep.state == EndpointState::ActiveConnectionPending
        });
        if !waits {
            self.enter_disconnected(passive, &[ConnectionEventKind::AcceptCompletionError]);
            return;
        }
        for (key, peer, private_data) in [
            (active, passive, private_data),
            (passive, active, Vec::new()),
        ] {
            let Some(ep) = self.eps.get_mut(&key) else {
                continue;
            };
            ep.state = EndpointState::Connected;
            ep.peer = Some(peer);
            ep.attempt = Some(index);
            let connect = ep.connect;
            let event = Expected::Connection {
                kinds: vec![ConnectionEventKind::Established],
                ep: key,
                private_data,
            };
            self.raise(connect, Stream::Connection(key), event);
        }
    }

    /// Fails an attempt on the active side (E12).
    fn fail_active(&mut self, index: usize, kinds: &[ConnectionEventKind]) {
        let active = self.attempts[index].active;
        let waits = self.eps.get(&active).is_some_and(|ep| {
            ep.attempt == Some(index) && ep.state == EndpointState::ActiveConnectionPending
        });
        if waits {
            self.enter_disconnected(active, kinds);
        }
    }

    /// Returns true if an attempt may still time out.
    pub(crate) fn has_finite_attempts(&self) -> bool {
        self.attempts
            .iter()
            .any(|attempt| attempt.finite && attempt.phase != Phase::Over)
    }

    /// Expires finite timeouts while the peer's consumer has the request (EPK-09, EPK-10).
    pub(crate) fn expire(&mut self) {
        let kinds = [
            ConnectionEventKind::TimedOut,
            ConnectionEventKind::Unreachable,
        ];
        for index in 0..self.attempts.len() {
            if self.attempts[index].finite
                && matches!(self.attempts[index].phase, Phase::Waiting(_))
            {
                self.fail_active(index, &kinds);
            }
        }
    }

    fn check_listener(
        &self,
        checks: &mut Checks,
        side: Side,
        evd: Option<Key>,
        qualifier: Option<u64>,
    ) {
        let flags = evd.and_then(|key| self.evds.get(&key)).map(|evd| evd.flags);
        let good = self.is(side, HandleKind::Evd, evd)
            && flags.is_some_and(|flags| flags.contains(EvdFlags::CR));
        checks.handle(!good, Subtype::InvalidHandleEvdCr);
        let taken = qualifier.is_some_and(|number| self.listener(side, number).is_some());
        checks.other(taken, ErrorKind::ConnQualInUse);
        let config = evd.and_then(|evd| self.config_of(evd));
        if config.is_some_and(|config| config != Config::Threshold) {
            // EPC-05 forbids the sharing. It leaves open which call reports it if the service point
            // comes second.
            checks.possible(ErrorKind::InvalidParameter);
            checks.possible(ErrorKind::InvalidHandle);
        }
    }

    /// Checks the creation of a service point (PSC-03 to PSC-05, PSA-01 without `qualifier`).
    pub(crate) fn check_psp_create(
        &self,
        side: Side,
        qualifier: Option<u64>,
        evd: Option<Key>,
    ) -> Verdict {
        let mut checks = Checks::default();
        self.check_listener(&mut checks, side, evd, qualifier);
        checks.resource(self.count(side, HandleKind::Psp) >= ENDPOINTS);
        checks.verdict()
    }

    pub(crate) fn psp_create(&mut self, psp: Psp) -> Key {
        let key = self.add(psp.side, HandleKind::Psp, true);
        self.psps.insert(key, psp);
        key
    }

    pub(crate) fn psp_free(&mut self, key: Key) {
        self.psps.remove(&key);
        self.mark_dead(key);
    }

    /// Checks `rsp_create` (RSC-02, RSC-05).
    pub(crate) fn check_rsp_create(
        &self,
        side: Side,
        qualifier: u64,
        ep: Option<Option<Key>>,
        evd: Option<Key>,
    ) -> Verdict {
        let mut checks = Checks::default();
        self.check_optional(&mut checks, side, HandleKind::Ep, ep);
        self.check_listener(&mut checks, side, evd, Some(qualifier));
        if let Some(ep) = ep.flatten().and_then(|key| self.eps.get(&key)) {
            checks.state(ep.state != EndpointState::Unconnected, ep.state.subtype());
            if ep.pz.is_none() {
                // EPC-09 lets connecting fail until there is a zone. It leaves open if this call
                // connects.
                checks.possible(ErrorKind::InvalidState);
            }
        }
        checks.resource(self.count(side, HandleKind::Rsp) >= ENDPOINTS);
        checks.verdict()
    }

    /// Creates a reserved service point (E3).
    pub(crate) fn rsp_create(&mut self, rsp: Rsp) -> Key {
        let key = self.add(rsp.side, HandleKind::Rsp, true);
        if let Some(ep) = rsp.ep.and_then(|ep| self.eps.get_mut(&ep)) {
            ep.state = EndpointState::Reserved;
        }
        self.rsps.insert(key, rsp);
        key
    }

    /// Frees a reserved service point (E4).
    pub(crate) fn rsp_free(&mut self, key: Key) {
        if let Some(ep) = self.rsps.remove(&key).and_then(|rsp| rsp.ep)
            && let Some(ep) = self.eps.get_mut(&ep)
        {
            ep.state = EndpointState::Unconnected;
        }
        self.mark_dead(key);
    }

    /// Makes the handles of a connection request usable: the consumer has dequeued its event.
    pub(super) fn reveal_request(&mut self, attempt: usize) {
        let cr = match self.attempts.get(attempt).map(|attempt| &attempt.phase) {
            Some(Phase::Waiting(cr)) => *cr,
            _ => return,
        };
        let ep = self.crs.get(&cr).and_then(|cr| cr.ep);
        for key in [Some(cr), ep].into_iter().flatten() {
            if let Some(object) = self.objects.get_mut(&key) {
                object.named = true;
            }
        }
    }

    /// Returns the connection request of a dequeued event, and the endpoint that it brings.
    ///
    /// After faults (not `exact`) the oracle has not predicted it. Then `brings` is set if there is
    /// an endpoint, with its key if it is the consumer's.
    pub(crate) fn request_of(
        &mut self,
        side: Side,
        attempt: usize,
        brings: Option<Option<Key>>,
        exact: bool,
    ) -> Option<(Key, Option<Key>)> {
        if exact {
            let Phase::Waiting(key) = self.attempts.get(attempt)?.phase else {
                return None;
            };
            return Some((key, self.crs.get(&key)?.ep));
        }
        self.attempts.get(attempt)?;
        let state = EndpointState::TentativeConnectionPending;
        let ep = brings.map(|known| {
            known.unwrap_or_else(|| {
                self.ep_create(side, None, [None; 3], None, provider_shape(), state)
            })
        });
        let key = self.add(side, HandleKind::Cr, true);
        self.crs.insert(key, Cr { attempt, ep });
        Some((key, ep))
    }

    /// Checks `cr_accept` (CRA-01, CRA-02, CRA-05).
    pub(crate) fn check_accept(
        &self,
        side: Side,
        cr: Option<Key>,
        ep: Option<Option<Key>>,
        private_data: usize,
    ) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Cr, cr);
        self.check_optional(&mut checks, side, HandleKind::Ep, ep);
        let own = cr.and_then(|key| self.crs.get(&key)).map(|cr| cr.ep);
        match own {
            Some(Some(own)) => {
                checks.parameter(ep.is_some(), 2);
                if ep.is_none() {
                    let zone = self.eps.get(&own).and_then(|ep| ep.pz);
                    checks.state(zone.is_none(), Subtype::InvalidStateEpNotReady);
                } else {
                    // The state of an endpoint that must be absent may be checked first.
                    checks.possible(ErrorKind::InvalidState);
                }
            }
            Some(None) if ep.is_none() => {
                // A missing endpoint is a bad combination (CRA-05) or a null handle (GEN-03).
                checks.parameter(true, 2);
                checks.possible(ErrorKind::InvalidHandle);
            }
            _ => self.check_connectable(&mut checks, ep.flatten()),
        }
        checks.parameter(private_data > PRIVATE_DATA, 3);
        checks.verdict()
    }

    /// Accepts a request (E6, E7).
    pub(crate) fn accept(&mut self, key: Key, ep: Option<Key>, private_data: Vec<u8>) {
        let Some(cr) = self.crs.remove(&key) else {
            return;
        };
        self.mark_dead(key);
        let Some(passive) = cr.ep.or(ep) else {
            return;
        };
        if let Some(ep) = self.eps.get_mut(&passive) {
            ep.state = EndpointState::CompletionPending;
            ep.attempt = Some(cr.attempt);
        }
        self.attempts[cr.attempt].phase = Phase::Accepted {
            passive,
            private_data,
        };
    }

    /// Rejects a request (E8, E9).
    pub(crate) fn reject(&mut self, key: Key) {
        if let Some(attempt) = self.remove_request(key) {
            self.attempts[attempt].phase = Phase::Rejected;
        }
    }

    /// Rejects a request on behalf of the provider.
    pub(crate) fn refuse(&mut self, key: Key) {
        if let Some(attempt) = self.remove_request(key) {
            self.attempts[attempt].phase = Phase::Refused;
        }
    }

    /// Removes a request and the endpoint made for it; returns its attempt.
    pub(crate) fn remove_request(&mut self, key: Key) -> Option<usize> {
        self.mark_dead(key);
        let cr = self.crs.remove(&key)?;
        self.return_ep(cr.ep);
        Some(cr.attempt)
    }

    fn return_ep(&mut self, ep: Option<Key>) {
        let Some((key, ep)) = ep.and_then(|key| Some((key, self.eps.get_mut(&key)?))) else {
            return;
        };
        if ep.state == EndpointState::TentativeConnectionPending {
            self.eps.remove(&key);
            self.mark_dead(key);
        } else {
            ep.state = EndpointState::Unconnected;
        }
    }

    /// Returns the dispatcher of the service point with a qualifier.
    fn listener(&self, side: Side, qualifier: u64) -> Option<Key> {
        let psps = self.psps.values();
        let psps = psps.map(|psp| (psp.side, psp.qualifier, psp.evd));
        let rsps = self.rsps.values();
        let mut all = psps.chain(rsps.map(|rsp| (rsp.side, rsp.qualifier, rsp.evd)));
        let found = all.find(|&(of, number, _)| (of, number) == (side, qualifier));
        found.map(|(_, _, evd)| evd)
    }

    /// Checks `cr_handoff` (CRH-01): INVALID_PARAMETER if no service point has the qualifier.
    ///
    /// The effect of a service point without room is open.
    pub(crate) fn check_handoff(&self, side: Side, cr: Option<Key>, qualifier: u64) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Cr, cr);
        let evd = self.listener(side, qualifier);
        checks.parameter(evd.is_none(), 2);
        checks.verdict()
    }

    /// Returns true if the service point can take one more request with all resources available.
    pub(crate) fn can_take(&self, side: Side, qualifier: u64) -> bool {
        let evd = self.listener(side, qualifier);
        evd.is_some_and(|evd| self.has_room(evd))
            && self.count(side, HandleKind::Ep) < ENDPOINTS
            && self.count(side, HandleKind::Cr) < ENDPOINTS
    }

    pub(crate) fn handoff(&mut self, side: Side, key: Key, qualifier: u64) {
        let Some(attempt) = self.remove_request(key) else {
            return;
        };
        if let Some(new) = self.offer(attempt, side, qualifier) {
            self.attempts[attempt].phase = Phase::Waiting(new);
        }
    }
}
