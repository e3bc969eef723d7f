//! Connection identifiers of librdmacm, and their events.

use core::ptr::{self, NonNull};
use std::net::SocketAddr;
use std::sync::Arc;

use dat_core::backend::{BackendError, PRIVATE_DATA_MAX, PrivateData};
use rdma_sys::{
    ibv_qp_attr, rdma_accept, rdma_ack_cm_event, rdma_bind_addr, rdma_cm_event_type, rdma_cm_id,
    rdma_conn_param, rdma_connect, rdma_create_event_channel, rdma_create_id,
    rdma_destroy_event_channel, rdma_destroy_id, rdma_disconnect, rdma_establish,
    rdma_event_channel, rdma_get_cm_event, rdma_get_src_port, rdma_init_qp_attr, rdma_listen,
    rdma_port_space, rdma_reject, rdma_reject_ece, rdma_resolve_addr, rdma_resolve_route,
    rdma_set_option,
};

use super::sleep::set_nonblocking;
use super::{Context, address, refusal};

/// Private data of a connection request on InfiniBand and RoCE, in bytes.
///
/// 92 less the 36 bytes of the IP addressing header.
pub(crate) const CONNECT_DATA: usize = 56;
/// Private data of a reply, in bytes.
pub(crate) const REPLY_DATA: usize = 196;
/// Private data of a rejection, in bytes.
pub(crate) const REJECT_DATA: usize = 148;

/// Pending connections that the kernel keeps for a listener.
const BACKLOG: i32 = 1024;
/// Level and name of the option for IPv6-only listeners.
const LEVEL_ID: i32 = 0;
const OPTION_V6_ONLY: i32 = 2;
/// Reason code of a rejection by the peer's consumer.
const REASON_CONSUMER: i32 = 28;

/// Channel that delivers connection events.
#[derive(Debug)]
pub(crate) struct EventChannel {
    raw: NonNull<rdma_event_channel>,
}

// SAFETY: librdmacm lets any thread use its objects.
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

/// One end of a connection, a connection attempt, or a listener.
#[derive(Debug)]
pub(crate) struct ConnectionId {
    raw: NonNull<rdma_cm_id>,
    _channel: Arc<EventChannel>,
}

// SAFETY: librdmacm lets any thread use its objects.
unsafe impl Send for ConnectionId {}
// SAFETY: as above.
unsafe impl Sync for ConnectionId {}

/// Kind of a connection event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CmEventKind {
    AddressResolved,
    AddressFailed,
    RouteResolved,
    RouteFailed,
    Request,
    Response,
    ConnectFailed,
    Unreachable,
    /// The peer rejected the request; true if its consumer did.
    Rejected(bool),
    Established,
    Disconnected,
    DeviceRemoved,
    Other,
}

/// Connection parameters, as an event reports them or a call requests them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CmParameters {
    pub(crate) reads_in: u8,
    pub(crate) reads_out: u8,
    pub(crate) retries: u8,
    pub(crate) not_ready_retries: u8,
    pub(crate) queue_pair: u32,
    pub(crate) shared: bool,
}

/// A connection event.
#[derive(Debug)]
pub(crate) struct CmEvent {
    pub(crate) kind: CmEventKind,
    /// Number given to the identifier at creation; for requests, that of the listener.
    pub(crate) context: usize,
    /// Address of the identifier, which tells identifiers apart.
    pub(crate) identity: usize,
    pub(crate) private_data: PrivateData,
    pub(crate) parameters: CmParameters,
    /// Identifier that a request brought.
    pub(crate) request: Option<ConnectionId>,
}

impl EventChannel {
    pub(crate) fn new() -> Result<Arc<Self>, BackendError> {
        // SAFETY: takes no arguments.
        let raw = unsafe { rdma_create_event_channel() };
        let channel = Self {
            raw: NonNull::new(raw).ok_or_else(refusal::last)?,
        };
        set_nonblocking(channel.fd())?;
        Ok(Arc::new(channel))
    }

    /// Returns the descriptor that a thread can sleep on.
    pub(crate) fn fd(&self) -> i32 {
        // SAFETY: the channel lives.
        unsafe { self.raw.as_ref().fd }
    }

    /// Takes the next event, if there is one.
    ///
    /// Only one caller at a time.
    pub(crate) fn next(self: &Arc<Self>) -> Option<CmEvent> {
        let mut event = ptr::null_mut();
        // SAFETY: the channel lives, and the answer has room.
        if unsafe { rdma_get_cm_event(self.raw.as_ptr(), &raw mut event) } != 0 {
            return None;
        }
        // SAFETY: on success, the answer is an event until it is acknowledged. The identifier in it
        // lives: destroying an identifier waits for its events that are not acknowledged yet. The
        // private data has the length that the event names.
        unsafe {
            let received = &*event;
            let id = received.id;
            let kind = kind(received.event, received.status);
            let conn = received.param.conn;
            let mut private_data = PrivateData::new();
            if carries_data(kind) && !conn.private_data.is_null() {
                let length = usize::from(conn.private_data_len).min(PRIVATE_DATA_MAX);
                let bytes = core::slice::from_raw_parts(conn.private_data.cast::<u8>(), length);
                private_data = PrivateData::from_slice(bytes).unwrap_or_default();
            }
            let request = (kind == CmEventKind::Request)
                .then(|| NonNull::new(id))
                .flatten()
                .map(|raw| ConnectionId {
                    raw,
                    _channel: Arc::clone(self),
                });
            let taken = CmEvent {
                kind,
                context: (*id).context as usize,
                identity: id as usize,
                private_data,
                parameters: CmParameters {
                    reads_in: conn.responder_resources,
                    reads_out: conn.initiator_depth,
                    retries: conn.retry_count,
                    not_ready_retries: conn.rnr_retry_count,
                    queue_pair: conn.qp_num,
                    shared: conn.srq != 0,
                },
                request,
            };
            rdma_ack_cm_event(event);
            Some(taken)
        }
    }

    /// Creates an identifier whose events carry `context`.
    pub(crate) fn create_id(
        self: &Arc<Self>,
        context: usize,
    ) -> Result<ConnectionId, BackendError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel lives; the context is never dereferenced.
        let answer = unsafe {
            rdma_create_id(
                self.raw.as_ptr(),
                &raw mut raw,
                ptr::without_provenance_mut(context),
                rdma_port_space::RDMA_PS_TCP,
            )
        };
        refusal::check_opening(answer)?;
        Ok(ConnectionId {
            raw: NonNull::new(raw).ok_or(BackendError::Resources)?,
            _channel: Arc::clone(self),
        })
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: made by `new`; identifiers on it hold it and are gone.
        unsafe { rdma_destroy_event_channel(self.raw.as_ptr()) };
    }
}

impl ConnectionId {
    fn raw(&self) -> *mut rdma_cm_id {
        self.raw.as_ptr()
    }

    /// Returns a number that tells identifiers apart.
    pub(crate) fn identity(&self) -> usize {
        self.raw() as usize
    }

    /// Changes the number that the identifier's events carry.
    pub(crate) fn set_context(&mut self, context: usize) {
        // SAFETY: the identifier lives. The field belongs to its user; the library reads it only to
        // copy it to the requests of a listener.
        unsafe { (*self.raw()).context = ptr::without_provenance_mut(context) };
    }

    /// Returns true if the identifier belongs to the device of `context`.
    pub(crate) fn is_of(&self, context: &Context) -> bool {
        // SAFETY: both live. The library opens devices for itself, so devices are compared by name.
        unsafe {
            let verbs = (*self.raw()).verbs;
            !verbs.is_null() && (*(*verbs).device).name == (*(*context.raw()).device).name
        }
    }

    /// Returns the port of its device, or 0 before it is resolved.
    pub(super) fn port(&self) -> u8 {
        // SAFETY: the identifier lives.
        unsafe { (*self.raw()).port_num }
    }

    pub(crate) fn bind(&self, local: SocketAddr) -> Result<(), BackendError> {
        let mut local = address::to_c(local);
        // SAFETY: the identifier lives, and the address outlives the call.
        refusal::check_opening(unsafe { rdma_bind_addr(self.raw(), (&raw mut local).cast()) })
    }

    /// Starts to accept connection requests.
    pub(crate) fn listen(&self) -> Result<(), BackendError> {
        // SAFETY: the identifier lives.
        refusal::check_last(unsafe { rdma_listen(self.raw(), BACKLOG) })
    }

    /// Keeps an IPv6 listener from occupying the IPv4 port.
    pub(crate) fn only_v6(&self) -> Result<(), BackendError> {
        let mut on = 1_i32;
        // SAFETY: the identifier lives, and the value outlives the call.
        refusal::check_last(unsafe {
            rdma_set_option(
                self.raw(),
                LEVEL_ID,
                OPTION_V6_ONLY,
                (&raw mut on).cast(),
                size_of::<i32>(),
            )
        })
    }

    /// Returns the local port.
    pub(crate) fn local_port(&self) -> u16 {
        // SAFETY: the identifier lives.
        u16::from_be(unsafe { rdma_get_src_port(self.raw()) })
    }

    /// Returns the local and the remote address, as far as they are known.
    pub(crate) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        // SAFETY: the identifier lives; both addresses have room for any family, and family 0 is
        // none.
        unsafe {
            let pair = &raw const (*self.raw()).route.addr;
            (
                address::read((&raw const (*pair).src_addr_union).cast()),
                address::read((&raw const (*pair).dst_addr_union).cast()),
            )
        }
    }

    /// Starts the resolution of an address; an event follows.
    pub(crate) fn resolve_address(
        &self,
        remote: SocketAddr,
        milliseconds: i32,
    ) -> Result<(), BackendError> {
        let mut remote = address::to_c(remote);
        // SAFETY: the identifier lives, and the address outlives the call.
        refusal::check_last(unsafe {
            rdma_resolve_addr(
                self.raw(),
                ptr::null_mut(),
                (&raw mut remote).cast(),
                milliseconds,
            )
        })
    }

    /// Starts the resolution of the route; an event follows.
    pub(crate) fn resolve_route(&self, milliseconds: i32) -> Result<(), BackendError> {
        // SAFETY: the identifier lives.
        refusal::check_last(unsafe { rdma_resolve_route(self.raw(), milliseconds) })
    }

    /// Requests a connection; an event follows.
    pub(crate) fn connect(
        &self,
        parameters: CmParameters,
        private_data: &[u8],
    ) -> Result<(), BackendError> {
        let mut wanted = raw_parameters(parameters, private_data);
        // SAFETY: the identifier lives, and the data outlives the call.
        refusal::check_last(unsafe { rdma_connect(self.raw(), &raw mut wanted) })
    }

    /// Confirms to the peer that its reply has arrived.
    pub(crate) fn establish(&self) -> Result<(), BackendError> {
        // SAFETY: the identifier lives.
        refusal::check_last(unsafe { rdma_establish(self.raw()) })
    }

    /// Accepts a request.
    pub(crate) fn accept(
        &self,
        parameters: CmParameters,
        private_data: &[u8],
    ) -> Result<(), BackendError> {
        let mut wanted = raw_parameters(parameters, private_data);
        // SAFETY: the identifier lives, and the data outlives the call.
        refusal::check_last(unsafe { rdma_accept(self.raw(), &raw mut wanted) })
    }

    /// Rejects a request, in the consumer's name or not.
    pub(crate) fn reject(&self, by_consumer: bool, private_data: &[u8]) {
        let (data, length) = (private_data.as_ptr().cast(), length(private_data));
        // SAFETY: the identifier lives, and the data outlives the call. A peer that is gone needs
        // no answer.
        let _answered = unsafe {
            if by_consumer {
                rdma_reject(self.raw(), data, length)
            } else {
                // Gives the only other reason that the kernel accepts from a program.
                rdma_reject_ece(self.raw(), ptr::null(), 0)
            }
        };
    }

    /// Ends the connection, or confirms its end.
    pub(crate) fn disconnect(&self) {
        // SAFETY: the identifier lives. A connection that has already ended needs no end.
        let _ended = unsafe { rdma_disconnect(self.raw()) };
    }

    /// Fills in the attributes for the state in `attributes`, and returns their mask.
    pub(super) fn fill_attributes(
        &self,
        attributes: &mut ibv_qp_attr,
    ) -> Result<u32, BackendError> {
        let mut mask = 0;
        // SAFETY: the identifier lives, and both answers have room.
        refusal::check_last(unsafe { rdma_init_qp_attr(self.raw(), attributes, &raw mut mask) })?;
        Ok(mask as u32)
    }
}

impl Drop for ConnectionId {
    fn drop(&mut self) {
        // SAFETY: made by `create_id` or a request; its events were acknowledged when they were
        // taken.
        unsafe { rdma_destroy_id(self.raw()) };
    }
}

fn length(private_data: &[u8]) -> u8 {
    u8::try_from(private_data.len()).unwrap_or(u8::MAX)
}

fn raw_parameters(parameters: CmParameters, private_data: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: private_data.as_ptr().cast(),
        private_data_len: length(private_data),
        responder_resources: parameters.reads_in,
        initiator_depth: parameters.reads_out,
        flow_control: 1,
        retry_count: parameters.retries,
        rnr_retry_count: parameters.not_ready_retries,
        srq: u8::from(parameters.shared),
        qp_num: parameters.queue_pair,
    }
}

fn carries_data(kind: CmEventKind) -> bool {
    matches!(
        kind,
        CmEventKind::Request
            | CmEventKind::Response
            | CmEventKind::Established
            | CmEventKind::Rejected(_)
    )
}

fn kind(event: rdma_cm_event_type::Type, status: i32) -> CmEventKind {
    use rdma_cm_event_type as cm;
    match event {
        cm::RDMA_CM_EVENT_ADDR_RESOLVED => CmEventKind::AddressResolved,
        cm::RDMA_CM_EVENT_ADDR_ERROR => CmEventKind::AddressFailed,
        cm::RDMA_CM_EVENT_ROUTE_RESOLVED => CmEventKind::RouteResolved,
        cm::RDMA_CM_EVENT_ROUTE_ERROR => CmEventKind::RouteFailed,
        cm::RDMA_CM_EVENT_CONNECT_REQUEST => CmEventKind::Request,
        cm::RDMA_CM_EVENT_CONNECT_RESPONSE => CmEventKind::Response,
        cm::RDMA_CM_EVENT_CONNECT_ERROR => CmEventKind::ConnectFailed,
        cm::RDMA_CM_EVENT_UNREACHABLE => CmEventKind::Unreachable,
        cm::RDMA_CM_EVENT_REJECTED => CmEventKind::Rejected(status == REASON_CONSUMER),
        cm::RDMA_CM_EVENT_ESTABLISHED => CmEventKind::Established,
        cm::RDMA_CM_EVENT_DISCONNECTED => CmEventKind::Disconnected,
        cm::RDMA_CM_EVENT_DEVICE_REMOVAL => CmEventKind::DeviceRemoved,
        _ => CmEventKind::Other,
    }
}
