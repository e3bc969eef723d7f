//! Event channels and events of rdma_cm.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::c::{self, Shared};
use crate::ids::Id;
use crate::layout::*;
use crate::objects::{self, Kind, Object, Users};

/// An event channel: a descriptor that counts, and the events.
#[repr(C)]
pub(crate) struct EventChannel {
    base: Shared<rdma_event_channel>,
    fd: c_int,
    waiting: Mutex<VecDeque<Event>>,
    users: Users,
}

impl Object for EventChannel {
    type C = rdma_event_channel;
    const KIND: Kind = Kind::EventChannel;

    fn users(&self) -> &Users {
        &self.users
    }
}

/// An event. Its private data is in a list of its own.
#[repr(C)]
pub(crate) struct Event {
    base: Shared<rdma_cm_event>,
    /// The id that waits for the acknowledgement.
    id: &'static Id,
    data: Vec<u8>,
    users: Users,
}

impl Object for Event {
    type C = rdma_cm_event;
    const KIND: Kind = Kind::Event;

    fn users(&self) -> &Users {
        &self.users
    }
}

/// What an event tells.
pub(crate) struct News<'a> {
    pub(crate) kind: rdma_cm_event_type,
    pub(crate) status: c_int,
    /// Reads and atomics that the peer answers, and has under way, at a time.
    pub(crate) depths: (u8, u8),
    pub(crate) data: &'a [u8],
}

impl News<'_> {
    /// Returns news without contents.
    pub(crate) const fn of(kind: rdma_cm_event_type) -> Self {
        Self {
            kind,
            status: 0,
            depths: (0, 0),
            data: &[],
        }
    }
}

impl Event {
    /// Makes an event of an id; `subject` is what the program sees, of a request the new one.
    pub(crate) fn new(
        id: &'static Id,
        subject: *mut rdma_cm_id,
        listener: *mut rdma_cm_id,
        news: &News<'_>,
    ) -> Self {
        let data = news.data.to_vec();
        let mut base: rdma_cm_event = c::zeroed();
        (base.id, base.listen_id) = (subject, listener);
        (base.event, base.status) = (news.kind, news.status);
        let mut connection: rdma_conn_param = c::zeroed();
        if !data.is_empty() {
            connection.private_data = data.as_ptr().cast();
            connection.private_data_len = u8::try_from(data.len()).unwrap_or(u8::MAX);
        }
        connection.responder_resources = news.depths.0;
        connection.initiator_depth = news.depths.1;
        base.param.conn = connection;
        Self {
            base: Shared(UnsafeCell::new(base)),
            id,
            data,
            users: Users::default(),
        }
    }

    fn kind(&self) -> rdma_cm_event_type {
        c::with(&self.base.0, |base| base.event)
    }
}

impl EventChannel {
    pub(crate) fn create() -> Result<*mut rdma_event_channel, c_int> {
        let fd = c::counter()?;
        Ok(objects::publish(Box::new(Self {
            base: Shared(UnsafeCell::new(rdma_event_channel { fd })),
            fd,
            waiting: Mutex::default(),
            users: Users::default(),
        })))
    }

    /// Adds an event.
    pub(crate) fn tell(&self, event: Event) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(event);
        c::count_up(self.fd);
    }

    /// Takes the events of an id, which goes or moves to another channel.
    pub(crate) fn withdraw(&self, id: &Id) -> Vec<Event> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let all = core::mem::take(&mut *waiting).into_iter();
        let (gone, left): (Vec<_>, Vec<_>) = all.partition(|event| core::ptr::eq(event.id, id));
        *waiting = left.into();
        for _ in &gone {
            c::count_back(self.fd);
        }
        gone
    }

    /// Waits for an event, unless the program has made the descriptor not to; the program has to
    /// acknowledge it.
    pub(crate) fn take(&self) -> Result<*mut rdma_cm_event, c_int> {
        loop {
            c::count_down(self.fd)?;
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(event) = waiting.pop_front() {
                event.id.count_taken();
                return Ok(objects::publish(Box::new(event)));
            }
        }
    }

    pub(crate) fn users(&self) -> &Users {
        &self.users
    }
}

pub(crate) extern "C" fn create_event_channel() -> *mut rdma_event_channel {
    c::pointer(EventChannel::create())
}

pub(crate) extern "C" fn destroy_event_channel(channel: *mut rdma_event_channel) {
    if let Ok(channel) = objects::retire::<EventChannel>(channel) {
        c::close(channel.fd);
    }
}

pub(crate) extern "C" fn get_cm_event(
    channel: *mut rdma_event_channel,
    out: *mut *mut rdma_cm_event,
) -> c_int {
    let taken = objects::find::<EventChannel>(channel).and_then(EventChannel::take);
    match taken {
        Ok(event) => {
            c::put(out, event);
            0
        }
        Err(code) => c::fails(code),
    }
}

pub(crate) extern "C" fn ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    match objects::retire::<Event>(event) {
        Ok(event) => {
            event.id.count_acknowledged();
            drop(event.data);
            0
        }
        Err(code) => c::fails(code),
    }
}

/// Returns the kind and the status of an event.
pub(crate) fn outcome(event: *mut rdma_cm_event) -> Option<(rdma_cm_event_type, c_int)> {
    let event = objects::known::<Event>(event)?;
    let status = c::with(&event.base.0, |base| base.status);
    Some((event.kind(), status))
}

/// Returns the id of a request that an event tells of.
pub(crate) fn subject(event: *mut rdma_cm_event) -> *mut rdma_cm_id {
    let event = objects::known::<Event>(event);
    event.map_or(core::ptr::null_mut(), |event| {
        c::with(&event.base.0, |base| base.id)
    })
}

pub(crate) extern "C" fn event_str(kind: rdma_cm_event_type) -> *const c_char {
    let texts = [
        c"RDMA_CM_EVENT_ADDR_RESOLVED",
        c"RDMA_CM_EVENT_ADDR_ERROR",
        c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        c"RDMA_CM_EVENT_ROUTE_ERROR",
        c"RDMA_CM_EVENT_CONNECT_REQUEST",
        c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        c"RDMA_CM_EVENT_CONNECT_ERROR",
        c"RDMA_CM_EVENT_UNREACHABLE",
        c"RDMA_CM_EVENT_REJECTED",
        c"RDMA_CM_EVENT_ESTABLISHED",
        c"RDMA_CM_EVENT_DISCONNECTED",
        c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        c"RDMA_CM_EVENT_MULTICAST_JOIN",
        c"RDMA_CM_EVENT_MULTICAST_ERROR",
        c"RDMA_CM_EVENT_ADDR_CHANGE",
        c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    ];
    let text = texts.get(kind as usize).copied();
    text.unwrap_or(c"UNKNOWN EVENT").as_ptr()
}
