//! What the device and the sideband tell.

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
    /// An event of the sideband, with the core's token in the place of the number; the queue pair follows it.
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

    /// A connection or an attempt is over.
    fn ended(&mut self, number: u32) -> Option<u64> {
        let token = self.token(number)?;
        self.make_failed(number);
        Some(token)
    }

    /// What the device reports, in the core's words.
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
            // The port, and ways to the network.
            _ => return None,
        })
    }

    /// The next report, of those that were kept or by what asks the device; one that makes no sense is a fault.
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

    /// Takes what the device has reported so far aside, without what is about the limit of a shared receive queue; whether
    /// there was something about it. A device that has told of more than its rings hold tells on while it is listened to, and is
    /// given up.
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

    /// What the sideband or the device has to tell, if anything, and if of an object that is there. They take turns, so that
    /// neither keeps the other waiting.
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

    /// A queue that waits for what the driver completes in the place of the device.
    fn is_left(&self, name: u16) -> bool {
        self.pair_states.contains(&PairState::Forgotten) && is_left(&self.tables, name)
    }

    /// Whether somebody waits for such a queue.
    pub(super) fn is_waited_for(&self) -> bool {
        self.tables.waiting(|name| self.is_left(name)).is_some()
    }

    /// Such a queue, told to the core.
    pub(super) fn flushed_for_device(&self) -> Option<ControlEvent> {
        self.tables.tell_waiting(|name| self.is_left(name))
    }

    /// Of a device that was given up: that it was, once; and then what the driver flushed.
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
