//! Events of the device and of the connection manager.

use core::sync::atomic::Ordering;

use dat_core::backend::{ConnectFailure, ControlEvent, DisconnectMode, QueuePairKey};
use dat_core::time::Instant;

use super::backend::PvrdmaBackend;
use super::command_channel::Failure;
use super::completion_queue::{ARMED_DENIED, has_forgotten_work};
use super::device::{PvrdmaDevice, Report};
use super::drain_except::{MOST_KEPT, drain_except};
use super::platform::{Mapping, PairState};
use crate::cm::PeerResolver;
use crate::common_calls::with_token;
use crate::defs::pvrdma::{Notice, notice};
use crate::fault::DeviceFault;
use crate::platform::{Hal, RegisterWords};

impl<'s, W: RegisterWords, M: Mapping, S: PeerResolver, H: Hal> PvrdmaBackend<'s, W, M, S, H> {
    /// Replaces the queue pair number in a connection event by the core's token.
    ///
    /// Moves the queue pair to the state that the event implies.
    fn convert_connection_event(&mut self, event: ControlEvent) -> Option<ControlEvent> {
        match event {
            ControlEvent::Established { queue_pair, .. } => {
                let number = queue_pair as u32;
                let queue_pair = self.token(number)?;
                let peer = self.cm.peer(number);
                let own = self.cm.owns(number);
                let ready = self.make_ready(number, peer);
                if own {
                    if ready.is_err() {
                        self.cm.failed(number);
                    }
                    return None;
                }
                if ready.is_err() {
                    self.cm.disconnect(number, DisconnectMode::Broken);
                    self.make_failed(number);
                    return Some(ControlEvent::ConnectFailed {
                        queue_pair,
                        failure: ConnectFailure::NonPeerRejected,
                    });
                }
                with_token(event, |_| Some(queue_pair))
            }
            ControlEvent::ConnectFailed { .. }
            | ControlEvent::Disconnected { .. }
            | ControlEvent::Broken { .. } => with_token(event, |number| self.ended(number)),
            _ => with_token(event, |number| self.token(number)),
        }
    }

    /// Moves a queue pair whose connection or attempt ended to the error state.
    ///
    /// Returns the core's token.
    fn ended(&mut self, number: u32) -> Option<u64> {
        let token = self.token(number)?;
        self.make_failed(number);
        Some(token)
    }

    /// Converts a device report to an event of the core.
    fn convert_report(&mut self, report: Report) -> Option<ControlEvent> {
        let notice = match report {
            Report::Completions(number) => {
                let (name, slot) = self.tables.completion_queue(number)?;
                let queue = u32::from(name);
                let armed = slot.armed.load(Ordering::Relaxed);
                slot.armed.store(0, Ordering::Relaxed);
                return Some(if armed == ARMED_DENIED {
                    ControlEvent::SolicitedCompletions { queue }
                } else {
                    ControlEvent::Completions { queue }
                });
            }
            Report::Object(notice) => notice,
        };
        Some(match notice.kind {
            notice::SHARED_LIMIT => ControlEvent::SharedReceiveLimit {
                queue: self.tables.shared_token(notice.handle)?,
            },
            notice::SHARED_FAILED => ControlEvent::SharedReceiveFailed {
                queue: self.tables.shared_token(notice.handle)?,
            },
            kind if notice::QUEUE_PAIR_FAILED.contains(&kind) => {
                self.cm.failed(notice.handle);
                if self.cm.owns(notice.handle) {
                    return None;
                }
                ControlEvent::Broken {
                    queue_pair: self.token(notice.handle)?,
                }
            }
            notice::COMPLETION_QUEUE_FAILED => {
                self.tables.overran(notice.handle);
                return None;
            }
            notice::DEVICE_FAILED => {
                self.tables.fault(DeviceFault::Reported);
                return None;
            }
            // Events of ports and paths.
            _ => return None,
        })
    }

    /// Returns the next kept report, or else the one that `take` takes from the device.
    ///
    /// An invalid report is a fault.
    fn next_report(
        &mut self,
        take: impl FnOnce(&mut PvrdmaDevice<'s, W, H>) -> Result<Option<Report>, Failure>,
    ) -> Option<Report> {
        if let Some(kept) = self.kept.iter_mut().find(|kept| kept.is_some()) {
            return kept.take();
        }
        take(&mut self.device).unwrap_or_else(|failure| {
            self.tables.fault(match failure {
                Failure::InvalidMessage => DeviceFault::WrongMessage,
                _ => DeviceFault::PhaseJump,
            });
            None
        })
    }

    /// Removes pending limit events of a shared receive queue; returns true if there were any.
    ///
    /// Keeps the other pending reports. A device that reports more than its rings hold keeps
    /// reporting during the call; the driver gives up on it.
    pub(super) fn drain_limit_events(&mut self, number: u32) -> bool {
        let limit_event = Report::Object(Notice {
            kind: notice::SHARED_LIMIT,
            handle: number,
        });
        let most = self.device.most_reports().saturating_add(MOST_KEPT);
        let drained = drain_except(limit_event, most, || self.next_report(PvrdmaDevice::report));
        self.kept = drained.kept;
        if drained.endless {
            self.tables.fault(DeviceFault::PhaseJump);
        }
        drained.found
    }

    /// Returns the next event of the connection manager or the device.
    ///
    /// The inner `None` stands for an event of an object that does not exist. The two sources are
    /// polled first in turn, so that neither delays the other.
    pub(super) fn next_event(&mut self, now: Instant) -> Option<Option<ControlEvent>> {
        let cm_first = self.cm_first;
        self.cm_first = !cm_first;
        [cm_first, !cm_first].into_iter().find_map(|cm| {
            if cm {
                let event = self.cm.poll(now)?;
                Some(self.convert_connection_event(event))
            } else {
                let report = self.next_report(PvrdmaDevice::next_announced)?;
                Some(self.convert_report(report))
            }
        })
    }

    /// Returns true if a completion queue has completions that the driver makes itself.
    ///
    /// They belong to queue pairs that the device has forgotten.
    fn has_forgotten_work(&self, name: u16) -> bool {
        self.pair_states.contains(&PairState::Forgotten) && has_forgotten_work(&self.tables, name)
    }

    /// Returns true if such a completion queue is armed.
    pub(super) fn has_armed_flush(&self) -> bool {
        self.tables
            .find_armed(|name| self.has_forgotten_work(name))
            .is_some()
    }

    /// Disarms such a queue and returns its completion event.
    pub(super) fn take_flush_event(&self) -> Option<ControlEvent> {
        self.tables.fire_armed(|name| self.has_forgotten_work(name))
    }

    /// Handles a device that the driver gave up on.
    ///
    /// Halts the device and reports the failure once; then reports armed queues with flushed
    /// requests.
    pub(super) fn after_fault(&mut self) -> Option<ControlEvent> {
        if !self.tables.state.is_halted() {
            self.device.halt();
            self.tables.state.set_halted();
            for (index, generation) in self.tables.latest().enumerate() {
                if generation.is_live() && !self.was_destroyed_early(QueuePairKey(index)) {
                    let number = generation.number.load(Ordering::Relaxed);
                    self.cm.disconnect(number, DisconnectMode::Broken);
                }
            }
            return Some(ControlEvent::DeviceFailed);
        }
        self.tables.fire_armed(|name| self.tables.has_flushed(name))
    }
}
