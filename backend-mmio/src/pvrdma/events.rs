//! Events of the device and of the connection manager.

use core::sync::atomic::Ordering;

use dat_core::backend::{ConnectFailure, ControlEvent, DisconnectMode, QueuePairKey};
use dat_core::time::Instant;

use super::backend::PvrdmaBackend;
use super::channel::Failure;
use super::completion_queue::{ARMED_DENIED, is_left};
use super::defs::{Notice, notice};
use super::device::{Device, Report};
use super::platform::{Mapping, PairState, Rendezvous};
use super::sift::{KEPT, sift};
use crate::calls::renamed;
use crate::fault::DeviceFault;
use crate::hal::Hal;
use crate::words::RegisterWords;

impl<'s, W: RegisterWords, M: Mapping, S: Rendezvous, H: Hal> PvrdmaBackend<'s, W, M, S, H> {
    /// Replaces the queue pair number in a connection event by the core's token.
    ///
    /// Moves the queue pair to the state that the event implies.
    fn named(&mut self, event: ControlEvent) -> Option<ControlEvent> {
        match event {
            ControlEvent::Established { queue_pair, .. } => {
                let number = queue_pair as u32;
                let queue_pair = self.token(number)?;
                let peer = self.sideband.peer(number);
                let own = self.sideband.owns(number);
                let ready = self.make_ready(number, peer);
                if own {
                    if ready.is_err() {
                        self.sideband.failed(number);
                    }
                    return None;
                }
                if ready.is_err() {
                    self.sideband.disconnect(number, DisconnectMode::Broken);
                    self.make_failed(number);
                    return Some(ControlEvent::ConnectFailed {
                        queue_pair,
                        failure: ConnectFailure::NonPeerRejected,
                    });
                }
                renamed(event, |_| Some(queue_pair))
            }
            ControlEvent::ConnectFailed { .. }
            | ControlEvent::Disconnected { .. }
            | ControlEvent::Broken { .. } => renamed(event, |number| self.ended(number)),
            _ => renamed(event, |number| self.token(number)),
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
    fn reported(&mut self, report: Report) -> Option<ControlEvent> {
        let of = match report {
            Report::Completions(number) => {
                let (queue, slot) = self.tables.completion_queue(number)?;
                let armed = slot.armed.load(Ordering::Relaxed);
                slot.armed.store(0, Ordering::Relaxed);
                return Some(if armed == ARMED_DENIED {
                    ControlEvent::SolicitedCompletions { queue }
                } else {
                    ControlEvent::Completions { queue }
                });
            }
            Report::Of(notice) => notice,
        };
        Some(match of.kind {
            notice::SHARED_LIMIT => ControlEvent::SharedReceiveLimit {
                queue: self.tables.shared_token(of.handle)?,
            },
            notice::SHARED_FAILED => ControlEvent::SharedReceiveFailed {
                queue: self.tables.shared_token(of.handle)?,
            },
            kind if notice::QUEUE_PAIR_FAILED.contains(&kind) => {
                self.sideband.failed(of.handle);
                if self.sideband.owns(of.handle) {
                    return None;
                }
                ControlEvent::Broken {
                    queue_pair: self.token(of.handle)?,
                }
            }
            notice::COMPLETION_QUEUE_FAILED => {
                self.tables.overran(of.handle);
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

    /// Returns the next kept report, or else the one that `ask` takes from the device.
    ///
    /// An invalid report is a fault.
    fn next_report(
        &mut self,
        ask: impl FnOnce(&mut Device<'s, W, H>) -> Result<Option<Report>, Failure>,
    ) -> Option<Report> {
        if let Some(kept) = self.kept.iter_mut().find(|kept| kept.is_some()) {
            return kept.take();
        }
        ask(&mut self.device).unwrap_or_else(|failure| {
            self.tables.fault(match failure {
                Failure::Senseless => DeviceFault::WrongMessage,
                _ => DeviceFault::PhaseJump,
            });
            None
        })
    }

    /// Removes pending limit events of a shared receive queue; returns true if there were any.
    ///
    /// Keeps the other pending reports. A device that reports more than its rings hold keeps
    /// reporting during the call; the driver gives up on it.
    pub(super) fn withdraw(&mut self, number: u32) -> bool {
        let about = Report::Of(Notice {
            kind: notice::SHARED_LIMIT,
            handle: number,
        });
        let most = self.device.most_reports().saturating_add(KEPT);
        let sifted = sift(about, most, || self.next_report(Device::report));
        self.kept = sifted.kept;
        if sifted.endless {
            self.tables.fault(DeviceFault::PhaseJump);
        }
        sifted.found
    }

    /// Returns the next event of the connection manager or the device.
    ///
    /// The inner `None` stands for an event of an object that does not exist. The two sources are
    /// polled first in turn, so that neither delays the other.
    pub(super) fn next_event(&mut self, now: Instant) -> Option<Option<ControlEvent>> {
        let sideband_first = self.sideband_first;
        self.sideband_first = !sideband_first;
        [sideband_first, !sideband_first]
            .into_iter()
            .find_map(|sideband| {
                if sideband {
                    let event = self.sideband.poll(now)?;
                    Some(self.named(event))
                } else {
                    let report = self.next_report(Device::heard)?;
                    Some(self.reported(report))
                }
            })
    }

    /// Returns true if a completion queue has completions that the driver makes itself.
    ///
    /// They belong to queue pairs that the device has forgotten.
    fn is_left(&self, name: u16) -> bool {
        self.pair_states.contains(&PairState::Forgotten) && is_left(&self.tables, name)
    }

    /// Returns true if such a completion queue is armed.
    pub(super) fn is_waited_for(&self) -> bool {
        self.tables.waiting(|name| self.is_left(name)).is_some()
    }

    /// Disarms such a queue and returns its completion event.
    pub(super) fn flushed_for_device(&self) -> Option<ControlEvent> {
        self.tables.tell_waiting(|name| self.is_left(name))
    }

    /// Handles a device that the driver gave up on.
    ///
    /// Halts the device and reports the failure once; then reports armed queues with flushed
    /// requests.
    pub(super) fn after_fault(&mut self) -> Option<ControlEvent> {
        if !self.tables.state.is_halted() {
            self.device.halt();
            self.tables.state.set_halted();
            for (place, life) in self.tables.latest().enumerate() {
                if life.lives() && !self.was_let_go(QueuePairKey(place)) {
                    let number = life.number.load(Ordering::Relaxed);
                    self.sideband.disconnect(number, DisconnectMode::Broken);
                }
            }
            return Some(ControlEvent::DeviceFailed);
        }
        self.tables
            .tell_waiting(|name| self.tables.has_flushed(name))
    }
}
