//! Queues of this backend, and the calls of verbs, on the same fake device.
//!
//! So the cost that the backend and the core add to the calls can be counted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_core::backend::{RegionKeys, WindowKey};

use crate::completion_queue::{QueueMarks, VerbsCompletionQueue};
use crate::directory::{Directory, Leaves};
use crate::hal::sink::Kind;
use crate::hal::{Batch, ReceiveList, SendList, WindowType, WorkCompletion, sink};
use crate::objects::Objects;
use crate::receive_queue::{Failing, VerbsReceiveQueue, VerbsSharedReceiveQueue};
use crate::send_queue::VerbsSendQueue;
use crate::signal::Signal;

pub use crate::hal::sink::{Bind, Receive, Request, Room};

/// A device of one queue pair, shared receive queue and completion queue, which accepts everything.
///
/// It lives until the process ends, as required by the objects made from it.
pub struct Sink {
    device: sink::Device,
    window_type: WindowType,
    shared: bool,
    directory: Arc<Directory>,
    objects: Arc<Objects>,
}

impl fmt::Debug for Sink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sink").finish_non_exhaustive()
    }
}

impl Sink {
    /// Makes a device.
    ///
    /// `shared`: the queue pair takes its receives from the shared queue. `posted_binds`: windows
    /// are of type 2, else of type 1.
    #[must_use]
    pub fn new(shared: bool, posted_binds: bool) -> &'static Self {
        Self::make(shared, posted_binds, Kind::Plain)
    }

    /// Makes a device that shows `reader` the inline data of requests while they are posted.
    ///
    /// # Safety
    /// Posts to it name memory that is readable during the post, as the core ensures.
    #[must_use]
    #[expect(
        unsafe_code,
        reason = "the queues are safe to use, whatever is posted to them"
    )]
    pub unsafe fn reading(reader: fn(&[u8])) -> &'static Self {
        Self::make(false, false, Kind::Reading(reader))
    }

    /// Makes a device that returns only the completions of [`forge`](Self::forge).
    #[must_use]
    pub fn forging(shared: bool) -> &'static Self {
        Self::make(shared, false, Kind::Forging)
    }

    fn make(shared: bool, posted_binds: bool, kind: Kind) -> &'static Self {
        Box::leak(Box::new(Self {
            device: sink::Device::new(kind),
            window_type: if posted_binds {
                WindowType::Two
            } else {
                WindowType::One
            },
            shared,
            directory: Arc::new(Directory::new(Leaves::default())),
            objects: Arc::default(),
        }))
    }

    /// Returns the completion queue.
    ///
    /// # Panics
    /// No descriptors are left.
    #[must_use]
    pub fn completion_queue(&self) -> VerbsCompletionQueue {
        let marks = QueueMarks::default();
        marks.serves_shared.store(self.shared, Ordering::Relaxed);
        VerbsCompletionQueue {
            device: self.device.completion_queue(),
            batch: Batch::new(),
            marks: Arc::new(marks),
            directory: Arc::clone(&self.directory),
            signal: Arc::new(Signal::new()),
        }
    }

    /// Returns the send queue of the queue pair, and gives the queue pair its token.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn send_queue(&self, token: u64, depth: u32, segments: u32) -> VerbsSendQueue {
        self.directory.enter(sink::NUMBER, token);
        let list = SendList::new(self.device.queue_pair(), depth, segments);
        VerbsSendQueue {
            list: list.expect("it takes requests"),
            number: sink::NUMBER,
            objects: Arc::clone(&self.objects),
        }
    }

    /// Returns the receive queue of the queue pair.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn receive_queue(&self, depth: u32, segments: u32) -> VerbsReceiveQueue {
        let pair = self.device.queue_pair();
        let list = ReceiveList::for_queue_pair(Arc::clone(&pair), depth, segments);
        VerbsReceiveQueue {
            list: list.expect("it takes receives"),
            owner: Some(Failing {
                pair,
                failure: Arc::default(),
            }),
        }
    }

    /// Returns the shared receive queue.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn shared_receive_queue(&self, depth: u32, segments: u32) -> VerbsSharedReceiveQueue {
        let queue = self.device.shared_receive_queue();
        let list = self
            .device
            .domain()
            .shared_post()
            .and_then(|post| ReceiveList::for_shared(queue, post, depth, segments));
        VerbsReceiveQueue {
            list: list.expect("it takes receives"),
            owner: None,
        }
    }

    /// Makes a region.
    ///
    /// # Panics
    /// The table of regions is full.
    #[must_use]
    pub fn region(&self, key: u32) -> RegionKeys {
        let region = self.device.region(key);
        let object = self.objects.insert_region(region);
        RegionKeys {
            object: object.expect("there is room"),
            local: key,
            remote: key,
        }
    }

    /// Makes a window.
    ///
    /// # Panics
    /// The table of windows is full.
    #[must_use]
    pub fn window(&self) -> WindowKey {
        let domain = self.device.domain();
        let window = self.objects.make_window(domain, self.window_type);
        let key = self
            .objects
            .insert_window(window.expect("it makes windows"));
        WindowKey(key.expect("there is room"))
    }

    /// Returns true if a window must be replaced before its next bind.
    ///
    /// See `Backend::needs_renewal`.
    #[must_use]
    pub fn needs_renewal(&self, window: WindowKey, missed: bool) -> bool {
        self.objects.needs_renewal(window.0, missed)
    }

    /// Destroys a window.
    pub fn free_window(&self, window: WindowKey) {
        self.objects.remove_window(window.0);
    }

    /// Returns the tokens of all posts, newest first, completed or not.
    pub fn tokens(&self) -> Vec<u64> {
        self.device.tokens()
    }

    /// Queues a forged completion with these fields of `ibv_wc`.
    ///
    /// `pair` is the number of the queue pair; `None` stands for the device's own.
    pub fn forge(&self, token: u64, status: u32, opcode: u32, length: u32, pair: Option<u32>) {
        self.device.forge(WorkCompletion {
            token,
            status,
            opcode,
            length,
            queue_pair: pair.unwrap_or(sink::NUMBER),
        });
    }

    /// Completes all posts.
    pub fn complete_all(&self) {
        self.device.complete_all();
    }

    /// Makes a Write with `segments` segments.
    #[must_use]
    pub fn write_request(&self, segments: u32) -> Request {
        self.device.request(segments)
    }

    /// Makes the requests that close a type 2 window and open it again.
    #[must_use]
    pub fn rebind_request(&self) -> Request {
        self.device.rebind()
    }

    /// Makes a receive with `segments` segments.
    #[must_use]
    pub fn receive_request(&self, segments: u32) -> Receive {
        self.device.receive(segments)
    }

    /// Makes a bind of a type 1 window.
    #[must_use]
    pub fn bind_request(&self) -> Bind {
        self.device.bind_request(WindowType::One)
    }

    /// Calls `ibv_post_send`.
    #[inline]
    pub fn bare_post_send(&self, request: &mut Request) -> i32 {
        self.device.post_send(request)
    }

    /// Calls `ibv_post_recv`.
    #[inline]
    pub fn bare_post_receive(&self, receive: &mut Receive) -> i32 {
        self.device.post_receive(receive)
    }

    /// Calls `ibv_post_srq_recv`.
    #[inline]
    pub fn bare_post_shared_receive(&self, receive: &mut Receive) -> i32 {
        self.device.post_shared_receive(receive)
    }

    /// Passes the arguments of [`bare_post_send`](Self::bare_post_send) to an empty function.
    #[inline]
    pub fn call_like_post_send(&self, request: &mut Request) -> i32 {
        self.device.call_like_post_send(request)
    }

    /// Passes the arguments of [`bare_post_receive`](Self::bare_post_receive) to an empty function.
    #[inline]
    pub fn call_like_post_receive(&self, receive: &mut Receive) -> i32 {
        self.device.call_like_post_receive(receive)
    }

    /// Passes the arguments of [`bare_post_shared_receive`](Self::bare_post_shared_receive) to an
    /// empty function.
    #[inline]
    pub fn call_like_post_shared_receive(&self, receive: &mut Receive) -> i32 {
        self.device.call_like_post_shared_receive(receive)
    }

    /// Passes the arguments of [`bare_bind`](Self::bare_bind) to an empty function.
    #[inline]
    pub fn call_like_bind(&self, bind: &mut Bind) -> i32 {
        self.device.call_like_bind(bind)
    }

    /// Calls `ibv_poll_cq`.
    #[inline]
    pub fn bare_poll(&self, room: &mut Room) -> i32 {
        self.device.poll(room)
    }

    /// Calls `ibv_bind_mw`.
    #[inline]
    pub fn bare_bind(&self, bind: &mut Bind) -> i32 {
        self.device.bind(bind)
    }
}
