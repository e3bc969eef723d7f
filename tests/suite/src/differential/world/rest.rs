//! Brings everything to rest, and records events and memory then.

use dat_core::event::Event;
use dat_core::flags::{DtoStatus, EndpointState};

use super::super::differences::Difference;
use super::super::operation::{PAIRS, Place};
use super::World;
use crate::fixture::{Testbed, granted};

impl<T: Testbed> World<'_, T> {
    /// Waits until the request reaches the peer, or the attempt has ended.
    pub(super) fn await_request(&mut self, at: Place) {
        for _ in 0..self.net.bed.max_steps() {
            self.take_requests(1 - at.side);
            let is_pending = self.state(at) == EndpointState::ActiveConnectionPending;
            if !is_pending || self.sides[1 - at.side].arrived.is_some() {
                return;
            }
            let moved = self.net.step();
            if self.net.bed.is_stepped() && !moved {
                return;
            }
        }
    }

    /// Returns true if the ends of a connection change no more without a further call.
    fn is_settled(&self, pair: usize) -> bool {
        let status = [0, 1].map(|side| self.status(Place { side, pair }));
        // A suppressed request that succeeds has no event.
        if !status.iter().all(|end| end.request_idle) {
            return false;
        }
        // The list decides when a pending connection request is answered.
        if self.sides.iter().any(|side| side.arrived.is_some()) {
            return true;
        }
        let ends = status.map(|end| end.state);
        let [one, other] = ends.map(|state| state == EndpointState::Connected);
        one == other
            && !ends.into_iter().any(|state| {
                matches!(
                    state,
                    EndpointState::ActiveConnectionPending
                        | EndpointState::CompletionPending
                        | EndpointState::DisconnectPending
                )
            })
    }

    /// Steps until everything is at rest.
    ///
    /// On a device in real time, a pause without events does not prove rest: the endpoints are
    /// asked too.
    fn run_to_idle(&self) {
        self.net.run_to_idle();
        let bed = &self.net.bed;
        if bed.is_stepped() {
            return;
        }
        for _ in 0..bed.max_steps() {
            if (0..PAIRS).all(|pair| self.is_settled(pair)) {
                break;
            }
            self.net.step();
        }
        self.net.run_to_idle();
    }

    /// Records connection requests that have reached a side.
    fn take_requests(&mut self, number: usize) {
        let side = &mut self.sides[number];
        while let Ok(event) = side.ia.evd_dequeue(side.arrivals) {
            let Event::ConnectionRequest { cr, .. } = event else {
                panic!("{event:?}");
            };
            side.arrived = Some(cr);
            let request = granted(side.ia.cr_query(cr, Default::default()));
            let param = format!("asked with {:?}", request.private_data);
            self.record.event(number, usize::MAX, param);
        }
    }

    /// Waits until everything is at rest, and records events and memory.
    pub(super) fn rest(&mut self) {
        self.run_to_idle();
        for number in 0..2 {
            for pair in 0..PAIRS {
                for which in 0..3 {
                    self.take(number, pair, which);
                }
                let end = self.end_of(Place { side: number, pair });
                end.busy = false;
                end.reads = false;
            }
            self.take_requests(number);
            let side = &mut self.sides[number];
            for evd in [side.software, side.ia.async_evd()] {
                while let Ok(event) = side.ia.evd_dequeue(evd) {
                    let param = match event {
                        Event::Software { pointer } => format!("software {pointer:?}"),
                        Event::Async { kind, .. } => format!("{kind:?}"),
                        other => panic!("{other:?}"),
                    };
                    self.record.event(number, usize::MAX, param);
                }
            }
        }
        for (number, side) in self.sides.iter().enumerate() {
            self.record.memory(number, side.memory.content());
        }
    }

    fn take(&mut self, number: usize, pair: usize, which: usize) {
        let breaks_nothing = self.differs(Difference::NothingBreaks);
        let side = &mut self.sides[number];
        let end = &mut side.ends[pair];
        while let Ok(event) = side.ia.evd_dequeue(end.dispatchers[which]) {
            let param = match event {
                Event::Dto(done) if done.status == DtoStatus::Success => format!(
                    "{:?} {} of {}",
                    done.operation, done.cookie, done.transferred_length
                ),
                Event::Dto(done) => {
                    format!("{:?} {} {:?}", done.operation, done.cookie, done.status)
                }
                Event::RmrBind(done) => {
                    if let Some((cookie, opened)) = end.opening.take()
                        && cookie == done.cookie
                        && done.status == DtoStatus::Success
                    {
                        end.opened = Some(opened);
                    }
                    format!("bind {} {:?}", done.cookie, done.status)
                }
                Event::Connection {
                    kind,
                    private_data_size,
                    ..
                } => {
                    end.opened = None;
                    end.opening = None;
                    format!("{kind:?} with {private_data_size} bytes")
                }
                other => panic!("{other:?}"),
            };
            if let Event::Dto(done) = event
                && breaks_nothing
            {
                assert!(
                    !matches!(
                        done.status,
                        DtoStatus::LocalLength | DtoStatus::RemoteResponder
                    ),
                    "the list lost count of the receives of {number}, {pair}: {param}"
                );
            }
            if let Event::Dto(done) = event
                && done.status != DtoStatus::Success
                && which == 0
            {
                end.waiting.pop();
            }
            self.record.event(number, pair, param);
        }
    }
}
