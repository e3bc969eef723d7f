//! Asynchronous work: the backend's control events, deadlines and draining endpoints.

use crate::adapter::{Control, EVENTS_PER_CALL, Ia};
use crate::backend::{
    Armed, Backend, CompletionQueue, ConnectFailure, ControlEvent, DisconnectMode, PrivateData,
};
use crate::connection::Incoming;
use crate::endpoint::{Ending, Trigger};
use crate::event::{
    ARMING_ROUNDS, AsyncEventKind, ConnectionEventKind, Deferred, Event, OwnWait,
    REASON_SOFT_HIGH_WATERMARK,
};
use crate::flags::EndpointState;
use crate::id::{EpId, Index};
use crate::sync::RawLock;
use crate::time::{Instant, first};

/// Part of a control event to handle after the control lock is released.
enum Rest {
    Nothing,
    Completions {
        queue: Index,
        /// A solicited completion was polled as unsolicited.
        solicited: bool,
    },
    DeviceFailed,
}

/// # Progress
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Handles events since the last call, and deadlines that passed by `now`.
    ///
    /// Events are replies and requests of peers, ends of connections, completions with a waiter,
    /// and watermarks. Handles at most 64 control events and returns the number of things done;
    /// call it again until that is 0. Call it regularly, and before dequeuing connection or
    /// asynchronous events. A reply that has arrived counts even if its deadline has passed. In a
    /// context that interrupts a control call it handles nothing and returns 0 (GEN-16).
    ///
    /// Spec: EPK-06..11, CRA-03, EPD-02, EPD-05, EPD-10, PSC-01, PSC-02, EPH-02, GEN-09
    pub fn progress(&self, now: Instant) -> usize {
        // A context that interrupts a control call leaves it to that one.
        if self.has_missed() && self.try_control().is_some() {
            self.make_up();
        }
        let mut handled = 0_usize;
        let mut quiet = false;
        while handled < EVENTS_PER_CALL && !quiet {
            if self.handle_next(now, None) {
                handled = handled.saturating_add(1);
                // Another look may take a system call, and the caller looks again in any case.
                quiet = B::EVENT_DRIVEN && self.is_quiet();
            } else {
                quiet = true;
            }
        }
        // An unhandled event may be a reply, so no deadline expires before all events are handled.
        handled.saturating_add(self.watch_endpoints(quiet.then_some(now)))
    }

    /// Returns true if `progress` has nothing to do, for any `now`.
    ///
    /// Notifications of armed completion queues do not count: where a wait uses a waker, call
    /// `progress` without this test. A backend that cannot tell returns false.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        let Some(mut control) = self.try_control() else {
            return false;
        };
        if self.has_missed() {
            return false;
        }
        !control.watch.pending && control.backend().is_ok_and(|backend| backend.is_quiet())
    }

    /// Returns the time of the next `progress` if nothing else happens first.
    ///
    /// In a context that interrupts a control call it is a time that has passed.
    ///
    /// Spec: GEN-09
    pub fn next_deadline(&self) -> Option<Instant> {
        let Some(mut control) = self.try_control() else {
            return Some(Instant::ZERO);
        };
        let own = control.watch.earliest;
        let device = control
            .backend()
            .ok()
            .and_then(|backend| backend.next_deadline());
        first(own, device)
    }

    /// Handles one control event; returns false if there is none.
    ///
    /// `own` is the caller's wait on a dispatcher, if it polls that dispatcher next.
    #[cfg_attr(feature = "compact", inline(never))]
    pub(crate) fn handle_next(&self, now: Instant, own: Option<OwnWait>) -> bool {
        let mut deferred = None;
        let Some(mut control) = self.try_control() else {
            return false;
        };
        let mut handle = |control: &mut Control<'_, B>| {
            let event = poll(control.backend().ok()?, now);
            // Inspected in place: a copy takes stack.
            Some(match event.as_ref()? {
                // The most frequent events; they have no deferred effects.
                ControlEvent::Completions { queue } => Rest::Completions {
                    queue: Index::from_word(*queue),
                    solicited: false,
                },
                ControlEvent::SolicitedCompletions { queue } => Rest::Completions {
                    queue: Index::from_word(*queue),
                    solicited: true,
                },
                event => self.handle_event(control, event, deferred.get_or_insert_default()),
            })
        };
        let rest = handle(&mut control);
        drop(control);
        if let Some(deferred) = &mut deferred {
            self.run_deferred(deferred);
        }
        match rest {
            None => return false,
            Some(Rest::Nothing) => {}
            Some(Rest::Completions { queue, solicited }) => match own.filter(|_| B::EVENT_DRIVEN) {
                Some(own) => self.completions_arrived_for(own, queue, solicited),
                None => self.completions_arrived(queue, solicited),
            },
            Some(Rest::DeviceFailed) => self.device_failed(),
        }
        true
    }

    /// Handles an event other than completions; ignores tokens of stale objects.
    fn handle_event(
        &self,
        control: &mut Control<'_, B>,
        event: &ControlEvent,
        deferred: &mut Deferred,
    ) -> Rest {
        match *event {
            ControlEvent::ConnectionRequest {
                listener,
                request,
                ref remote,
                remote_port,
                ref local,
                ref private_data,
            } => {
                let incoming = Incoming {
                    request,
                    remote,
                    remote_port,
                    local,
                    private_data,
                };
                self.request_arrived(control, listener, &incoming, deferred);
            }
            ControlEvent::Answered { queue_pair } => {
                self.with_token(queue_pair, |_, endpoint| {
                    if endpoint.state == EndpointState::ActiveConnectionPending {
                        endpoint.connection.answered = true;
                    }
                });
            }
            ControlEvent::Established {
                queue_pair,
                ref private_data,
            } => self.established(queue_pair, private_data, deferred),
            ControlEvent::ConnectFailed {
                queue_pair,
                ref failure,
            } => self.attempt_failed(control, queue_pair, failure, deferred),
            ControlEvent::Disconnected { queue_pair } => self.connection_over(
                control,
                queue_pair,
                Trigger::PeerDisconnect,
                ConnectionEventKind::Disconnected,
                deferred,
            ),
            ControlEvent::Broken { queue_pair } => self.connection_over(
                control,
                queue_pair,
                Trigger::Break,
                ConnectionEventKind::Broken,
                deferred,
            ),
            // `handle_next` handles them.
            ControlEvent::Completions { .. } | ControlEvent::SolicitedCompletions { .. } => {}
            ControlEvent::SharedReceiveLimit { queue } => {
                self.shared_receive_limit_reached(queue, deferred);
            }
            ControlEvent::SharedReceiveFailed { queue } => {
                self.shared_receive_failed(queue, deferred);
            }
            ControlEvent::SoftHighWatermark { queue_pair } => {
                let handle = self.with_token(queue_pair, |_, endpoint| endpoint.id.handle());
                if let Some(handle) = handle {
                    let event = Event::Async {
                        kind: AsyncEventKind::EpBroken,
                        handle,
                        reason: REASON_SOFT_HIGH_WATERMARK,
                    };
                    self.push_async(&event, deferred);
                }
            }
            ControlEvent::DeviceFailed => return Rest::DeviceFailed,
        }
        Rest::Nothing
    }

    fn established(&self, token: u64, private_data: &PrivateData, deferred: &mut Deferred) {
        self.with_token(token, |_, endpoint| {
            let active = endpoint.state == EndpointState::ActiveConnectionPending;
            if !endpoint.step(Trigger::Establish) {
                return;
            }
            endpoint.connection.deadline = None;
            if active {
                endpoint.connection.private_data.clone_from(private_data);
            }
            let size = endpoint.connection.private_data.len();
            self.report_established(endpoint, size, deferred);
        });
    }

    fn attempt_failed(
        &self,
        control: &mut Control<'_, B>,
        token: u64,
        failure: &ConnectFailure,
        deferred: &mut Deferred,
    ) {
        self.with_token(token, |_, endpoint| {
            let kind = if endpoint.state == EndpointState::CompletionPending {
                ConnectionEventKind::AcceptCompletionError
            } else {
                match failure {
                    ConnectFailure::PeerRejected(private_data) => {
                        if endpoint.state == EndpointState::ActiveConnectionPending {
                            endpoint.connection.private_data.clone_from(private_data);
                        }
                        ConnectionEventKind::PeerRejected
                    }
                    ConnectFailure::NonPeerRejected => ConnectionEventKind::NonPeerRejected,
                    ConnectFailure::Unreachable => ConnectionEventKind::Unreachable,
                    ConnectFailure::TimedOut => ConnectionEventKind::TimedOut,
                }
            };
            let ending = Ending {
                trigger: Trigger::AttemptFailure,
                mode: None,
                kind,
            };
            self.end_connection(control, endpoint, ending, deferred);
        });
    }

    /// Handles the end of a connection; the end of an attempt counts as its failure.
    fn connection_over(
        &self,
        control: &mut Control<'_, B>,
        token: u64,
        trigger: Trigger,
        kind: ConnectionEventKind,
        deferred: &mut Deferred,
    ) {
        let ending = Ending {
            trigger,
            mode: None,
            kind,
        };
        let ended = self.with_token(token, |_, endpoint| {
            self.end_connection(control, endpoint, ending, deferred)
        });
        if ended == Some(false) {
            self.attempt_failed(control, token, &ConnectFailure::NonPeerRejected, deferred);
        }
    }

    /// Reports the failure of the device and breaks all connections and attempts.
    #[cold]
    #[inline(never)]
    fn device_failed(&self) {
        let mut deferred = Deferred::default();
        self.report_catastrophe(&mut deferred);
        self.run_deferred(&mut deferred);
        for slot in self.shared.endpoints.made() {
            let token = slot.handle.load();
            if token == 0 {
                continue;
            }
            let mut deferred = Deferred::default();
            self.control.with(|control| {
                self.connection_over(
                    control,
                    token,
                    Trigger::Break,
                    ConnectionEventKind::Broken,
                    &mut deferred,
                );
            });
            self.run_deferred(&mut deferred);
        }
    }

    /// Drains endpoints and, with `now`, ends attempts whose deadline has passed.
    ///
    /// Outlined: its locals are not needed while an event is handled.
    #[cfg_attr(feature = "compact", inline(never))]
    fn watch_endpoints(&self, now: Option<Instant>) -> usize {
        let endpoints = &self.shared.endpoints;
        let control = self.try_control();
        // From here on the lock is waited for: whoever interrupts the scan ends its own calls
        // first.
        let Some(mut scan) = control.and_then(|mut control| control.watch.begin_scan()) else {
            return 0;
        };
        let mut handled = 0_usize;
        let mut left: Option<Option<Instant>> = None;
        while let Some((index, slot)) = self
            .control
            .with(|control| control.watch.step(&mut scan, endpoints))
        {
            let Some((ep, state, deadline)) = slot
                .main
                .lock_unparked()
                .map(|endpoint| (endpoint.id, endpoint.state, endpoint.connection.deadline))
            else {
                // Another context changes it, perhaps the deadline: the next call looks again.
                left = Some(first(left.flatten(), Some(Instant::ZERO)));
                self.control.with(|control| control.watch.list(slot, index));
                continue;
            };
            let done = match (state, deadline) {
                (EndpointState::DisconnectPending, _) if self.has_requests(ep) => {
                    // The look that finds the last completion may bring the end of the connection,
                    // too. Its event comes first: the next call drains the endpoint.
                    self.poll_requests(ep);
                    handled = handled.saturating_add(usize::from(!self.has_requests(ep)));
                    false
                }
                (EndpointState::DisconnectPending, _) => self.drain(ep),
                (EndpointState::ActiveConnectionPending, Some(deadline)) => {
                    now.is_some_and(|now| deadline <= now) && self.give_up(ep, deadline)
                }
                _ => continue,
            };
            if done {
                handled = handled.saturating_add(1);
            } else {
                left = Some(first(left.flatten(), deadline));
                self.control.with(|control| control.watch.list(slot, index));
            }
        }
        self.control
            .with(|control| control.watch.end_scan(&scan, left));
        handled
    }

    /// Ends an attempt whose deadline passed; returns false if it ended before.
    fn give_up(&self, ep: EpId, deadline: Instant) -> bool {
        let mut deferred = Deferred::default();
        let ended = self.controlled(|control| {
            self.with_parked_endpoint(ep, |_, endpoint| {
                if endpoint.connection.deadline != Some(deadline) {
                    return Ok(false);
                }
                let kind = if endpoint.connection.answered {
                    ConnectionEventKind::TimedOut
                } else {
                    ConnectionEventKind::Unreachable
                };
                let ending = Ending {
                    trigger: Trigger::AttemptFailure,
                    mode: Some(DisconnectMode::Abrupt),
                    kind,
                };
                Ok(self.end_connection(control, endpoint, ending, &mut deferred))
            })
        });
        self.run_deferred(&mut deferred);
        ended.unwrap_or(false)
    }

    /// Completes a graceful disconnect if no request is pending; no lock may be held.
    ///
    /// Spec: EPD-02, EPD-05
    pub(crate) fn drain(&self, ep: EpId) -> bool {
        self.poll_requests(ep);
        let mut deferred = Deferred::default();
        let ended = self.controlled(|control| {
            self.with_parked_endpoint(ep, |_, endpoint| {
                if !endpoint.ring.is_idle(&self.shared.records) {
                    return Ok(false);
                }
                let ending = Ending {
                    trigger: Trigger::Drained,
                    mode: Some(DisconnectMode::Graceful),
                    kind: ConnectionEventKind::Disconnected,
                };
                Ok(self.end_connection(control, endpoint, ending, &mut deferred))
            })
        });
        self.run_deferred(&mut deferred);
        ended.unwrap_or(false)
    }

    /// Returns true if requests of an endpoint have no completion yet.
    fn has_requests(&self, ep: EpId) -> bool {
        let records = &self.shared.records;
        let ring = self.with_endpoint(ep, |_, endpoint| Ok(endpoint.ring));
        ring.is_ok_and(|ring| !ring.is_idle(records))
    }

    /// Polls the completions of an endpoint's requests.
    fn poll_requests(&self, ep: EpId) {
        let evd = self.with_endpoint(ep, |_, endpoint| Ok(endpoint.request_evd));
        if let Ok(Some(evd)) = evd {
            self.poll_and_arm(evd);
        }
    }

    /// Polls the completions of a dispatcher and arms its completion queue.
    fn poll_and_arm(&self, evd: Index) {
        let Some(slot) = self.shared.event_dispatchers.get(usize::from(evd)) else {
            return;
        };
        let mut deferred = Deferred::default();
        let armed = (0..ARMING_ROUNDS).any(|_| {
            self.poll_slot(slot, &mut deferred);
            let Some(mut queue) = slot.queue.lock_unparked() else {
                // The end of the parking brings the next `progress`, which comes back.
                return true;
            };
            let failed = queue.failure.is_some();
            let Some(completions) = queue.completions.as_mut().filter(|_| !failed) else {
                // The queue returns no further completions.
                return true;
            };
            let armed = completions.arm(false) == Armed::Armed;
            queue.armed |= armed;
            armed
        });
        self.run_deferred(&mut deferred);
        if !armed {
            // Not armed, because completions keep arriving: the driver of `progress` polls again.
            self.wake_progress();
        }
    }
}

/// Polls the next control event.
///
/// Not inlined, so that its stack is free when the event is handled.
#[inline(never)]
fn poll<B: Backend>(backend: &mut B, now: Instant) -> Option<ControlEvent> {
    backend.poll_control(now)
}
