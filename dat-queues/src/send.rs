//! The send queue of a queue pair, as the core holds it.

use dat_core::backend::{
    BindRequest, ExtendedRequest, Rejected, Segment, SendFlags, SendRequest, WorkQueue, WorkSlot,
};

use crate::executor::{Executor, OvertakesBinds, Owner, list_for};
use crate::posted::Posted;
use crate::request::{Request, Segments, Work};

/// A send queue; it collects requests until the doorbell rings.
#[derive(Debug)]
pub struct SendQueue<X: Executor> {
    executor: X,
    key: X::Key,
    posted: Posted<Request>,
    /// True if the next request may start while an earlier bind is pending.
    overtakes_binds: bool,
}

impl<X: Executor> SendQueue<X> {
    /// Makes the queue of a new queue pair.
    pub fn new(executor: X, key: X::Key, depth: usize) -> Self {
        Self {
            executor,
            key,
            posted: Posted::new(depth),
            overtakes_binds: false,
        }
    }

    /// Changes the depth.
    pub fn set_depth(&mut self, depth: usize) {
        self.posted.set_depth(depth);
    }

    /// Drops the requests that were not handed over.
    pub fn clear(&mut self) {
        self.posted.clear();
    }

    fn has_room(&mut self) -> bool {
        self.posted.has_room(|| self.executor.requests(self.key))
    }

    fn commit(&mut self, request: Request) {
        self.posted.push(Request {
            overtakes_binds: core::mem::take(&mut self.overtakes_binds),
            ..request
        });
    }

    /// Hands the committed requests over; the error is their number.
    fn hand_over(&mut self) -> Result<(), u32> {
        self.posted
            .hand_over(|requests| self.executor.post_requests(self.key, requests))
    }

    fn post_now(&mut self, request: Request) -> Result<(), Rejected> {
        self.commit(request);
        self.hand_over().map_err(|_| Rejected)
    }
}

impl<X: OvertakesBinds> SendQueue<X> {
    /// Lets the next request start while an earlier bind is pending.
    ///
    /// For models of devices whose requests wait for a bind only if they are fenced.
    pub fn overtake_binds(&mut self) {
        self.overtakes_binds = true;
    }
}

/// A reserved slot of a send queue.
#[derive(Debug)]
pub struct SendSlot<'a, X: Executor> {
    queue: &'a mut SendQueue<X>,
    request: Request,
}

impl<X: Executor> WorkSlot for SendSlot<'_, X> {
    #[inline]
    fn segment(&mut self, segment: Segment) {
        self.request.segments.push(segment);
    }

    fn commit(mut self, length: u32) -> Result<(), Rejected> {
        let queue = self.queue;
        if queue.executor.refuses_post(Owner::Pair(queue.key)) {
            return Err(Rejected);
        }
        self.request.length = length;
        queue.commit(self.request);
        Ok(())
    }
}

impl<X: Executor> WorkQueue for SendQueue<X> {
    type Request = SendRequest;
    type Slot<'a>
        = SendSlot<'a, X>
    where
        X: 'a;

    fn reserve(&mut self, request: &SendRequest, segments: usize) -> Option<SendSlot<'_, X>> {
        if !self.has_room() {
            return None;
        }
        let list = list_for::<X>(segments)?;
        let request = Request::new(request.token, request.operation.into(), request.flags, list);
        Some(SendSlot {
            queue: self,
            request,
        })
    }

    fn ring(&mut self) -> Result<(), u32> {
        self.hand_over()
    }
}

impl<X: Executor> dat_core::backend::SendQueue for SendQueue<X> {
    fn bind(&mut self, request: &BindRequest) -> Result<u32, Rejected> {
        if !self.has_room() || self.executor.refuses_post(Owner::Pair(self.key)) {
            return Err(Rejected);
        }
        let key = self.executor.begin_bind(request.window).ok_or(Rejected)?;
        let work = Work::Bind(*request, key);
        let flags = request.flags & SendFlags::FENCE;
        let bind = Request::new(request.token, work, flags, Segments::new());
        let posted = self.post_now(bind);
        if posted.is_err() {
            self.executor.cancel_bind(key);
        }
        posted.map(|()| key)
    }

    fn post_extended(
        &mut self,
        request: &ExtendedRequest,
        segments: &[Segment],
    ) -> Result<(), Rejected> {
        if !self.has_room() || self.executor.refuses_post(Owner::Pair(self.key)) {
            return Err(Rejected);
        }
        let mut list = list_for::<X>(segments.len()).ok_or(Rejected)?;
        list.extend_from_slice(segments);
        let work = request.operation.into();
        let mut extended = Request::new(request.token, work, request.flags, list);
        extended.length = request.length;
        self.post_now(extended)
    }
}
