//! Queue pairs.

use core::ffi::{c_int, c_uint};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use backend_roce::proto::packet::NakCode;
use backend_roce::{INLINE_MAX, PairOptions, PairState, SendAttributes, Tuning};
use dat_core::backend::{BackendError, ControlEvent};
use nix::errno::Errno;

use super::attributes::{agreed, merged, receive_attributes, send_attributes};
use super::building::{self, Begun};
use super::shared::SharedQueue;
use super::transitions;
use crate::adapter::{Adapter, Subject};
use crate::boundary::layout::{
    IBV_EVENT_COMM_EST, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED,
    IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SQ_DRAINED, IBV_MIG_MIGRATED, IBV_QP_ACCESS_FLAGS,
    IBV_QP_CUR_STATE, IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_INIT_ATTR_CREATE_FLAGS,
    IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_MIN_RNR_TIMER, IBV_QP_STATE,
    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPT_RC,
    IBV_QPT_UD, ibv_context, ibv_event_type, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_ex,
    ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_state,
};
use crate::boundary::{Handle, In, Kind, Out, tell_made, zeroed};
use crate::completion::Queue;
use crate::context::AsyncEvents;
use crate::errors::{Result, ask_for_memory, code, or, refused, require};
use crate::locks::lock;
use crate::memory::{Domain, rights};
use crate::turns::Turns;

/// Inline data that each queue pair may have: programs rely on some, as devices grant it unasked.
const LEAST_INLINE: u32 = 64;

/// A queue pair.
pub(crate) struct Pair {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) qpn: u32,
    /// Attributes that it was made with, and the sizes that it got.
    pub(crate) init: ibv_qp_init_attr,
    state: AtomicU32,
    /// Set if it takes receives of a shared queue, whose last one it has not told of.
    tells_last: AtomicBool,
    /// Set from the change to SQD until an event tells that it has drained, if the program asked.
    tells_drained: AtomicBool,
    /// Attributes, as they were set last.
    attributes: Mutex<ibv_qp_attr>,
    /// Turns from `ibv_wr_start` to `ibv_wr_complete`, and the requests of the turn.
    pub(super) turns: Turns<Vec<Begun>>,
    pub(crate) async_events: AsyncEvents,
    /// Uses of its domain and queues.
    _uses: Vec<Arc<()>>,
}

impl Kind for Pair {
    type C = ibv_qp_ex;
}

const _: () = assert!(offset_of!(ibv_qp_ex, qp_base) == 0);

/// Attributes of a new queue pair.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) init: ibv_qp_init_attr,
    /// Set if `ibv_wr_*` are wanted.
    is_extended: bool,
}

impl From<ibv_qp_init_attr> for Wanted {
    fn from(init: ibv_qp_init_attr) -> Self {
        Self {
            init,
            is_extended: false,
        }
    }
}

impl Wanted {
    /// Reads extended attributes; returns them with the domain.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: something is wanted that the device does not have.
    pub(crate) fn extended(of: Out<ibv_qp_init_attr_ex>) -> Result<(Self, Handle<Domain>)> {
        const KNOWN: u32 =
            IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        let attributes = of.get()?;
        let has = |field| attributes.comp_mask & field != 0;
        let has_flags = has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attributes.create_flags != 0;
        let is_extended = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
        let lacks = is_extended && attributes.send_ops_flags & !building::OPERATIONS != 0;
        let is_known = attributes.comp_mask & !KNOWN == 0 && !has_flags && !lacks;
        require(is_known, Errno::EOPNOTSUPP)?;
        let domain = match has(IBV_QP_INIT_ATTR_PD) {
            true => Handle::at(attributes.pd),
            false => Handle::NULL,
        };
        // They begin as those without the extension.
        let init = of.cast().get()?;
        Ok((Self { init, is_extended }, domain))
    }

    /// Returns the sizes that the queue pair gets.
    ///
    /// # Errors
    /// `EINVAL`: one is above a limit of the device.
    fn sizes(&self, adapter: &Adapter) -> Result<ibv_qp_cap> {
        let limits = adapter.device.attributes();
        let requests = limits.max_dto_per_ep.cast_unsigned();
        let segments = limits.max_iov_segments_per_dto.cast_unsigned();
        let mut cap = self.init.cap;
        let has_shared = !self.init.srq.is_null();
        if has_shared {
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        let is_right = cap.max_send_wr <= requests
            && cap.max_recv_wr <= requests
            && cap.max_send_sge <= segments
            && cap.max_recv_sge <= segments
            && cap.max_inline_data <= INLINE_MAX;
        cap.max_inline_data = cap.max_inline_data.max(LEAST_INLINE);
        cap.max_send_sge = cap.max_send_sge.max(1);
        if !has_shared {
            cap.max_recv_sge = cap.max_recv_sge.max(1);
        }
        require(is_right, Errno::EINVAL)?;
        Ok(cap)
    }
}

/// Makes a queue pair.
///
/// # Errors
/// - `EINVAL`: an object is missing, or a size is above its limit.
/// - `EOPNOTSUPP`: it is neither for a reliable connection nor for datagrams.
pub(crate) fn create(domain: Handle<Domain>, wanted: &Wanted) -> Result<Handle<Pair>> {
    ask_for_memory()?;
    let own = domain.get()?;
    let context = own.context.get()?;
    let mut init = wanted.init;
    let is_known = matches!(init.qp_type, IBV_QPT_RC | IBV_QPT_UD);
    require(is_known, Errno::EOPNOTSUPP)?;
    let [send_queue, receive_queue] = [init.send_cq, init.recv_cq].map(Handle::<Queue>::at);
    let (sends, receives) = (send_queue.get()?, receive_queue.get()?);
    let shared = Handle::<SharedQueue>::at(init.srq);
    let shared = shared.optional()?;
    let adapter = Arc::clone(&own.adapter);
    init.cap = wanted.sizes(&adapter)?;
    let qpn = {
        // A thread locks a queue once; all lock two of them in one order.
        let is_first = init.send_cq <= init.recv_cq;
        let earlier = (!is_first).then(|| receives.device_queue());
        let send_queue = sends.device_queue();
        let is_other = is_first && init.send_cq != init.recv_cq;
        let other = earlier.or_else(|| is_other.then(|| receives.device_queue()));
        adapter.device.create_pair(&PairOptions {
            domain: own.key,
            sends: &send_queue,
            receives: other.as_ref().unwrap_or(&send_queue),
            shared: shared.map(|queue| queue.key),
            send_depth: init.cap.max_send_wr,
            receive_depth: init.cap.max_recv_wr,
            inline: init.cap.max_inline_data,
        })
    };
    let qpn = qpn.map_err(refused)?;
    let mut uses = vec![&own.users, &sends.users, &receives.users];
    uses.extend(shared.map(|queue| &queue.users));
    let pair = Pair {
        adapter: Arc::clone(&adapter),
        qpn,
        init,
        state: AtomicU32::new(IBV_QPS_RESET),
        tells_last: AtomicBool::new(shared.is_some()),
        tells_drained: AtomicBool::new(false),
        attributes: Mutex::new(zeroed()),
        turns: Turns::default(),
        async_events: AsyncEvents::of(context),
        _uses: uses.into_iter().cloned().collect(),
    };
    let mut c = structure(domain, wanted, qpn);
    c.qp_base.context = own.context.pointer();
    let pair = Handle::new(c, pair);
    let notify = move |event: &_| take(pair, event);
    adapter.receive(Subject::Pair(qpn), Box::new(notify));
    Ok(pair)
}

/// Returns the structure of a new queue pair.
fn structure(domain: Handle<Domain>, wanted: &Wanted, qpn: u32) -> ibv_qp_ex {
    let mut c: ibv_qp_ex = zeroed();
    let base = &mut c.qp_base;
    base.qp_context = wanted.init.qp_context;
    base.pd = domain.pointer();
    base.send_cq = wanted.init.send_cq;
    base.recv_cq = wanted.init.recv_cq;
    base.srq = wanted.init.srq;
    base.handle = qpn;
    base.qp_num = qpn;
    base.state = IBV_QPS_RESET;
    base.qp_type = wanted.init.qp_type;
    if wanted.is_extended {
        building::fill(&mut c);
    }
    c
}

/// Takes an event of the adapter about a queue pair.
fn take(pair: Handle<Pair>, event: &ControlEvent) {
    let Ok(own) = pair.get() else {
        return;
    };
    let device = &own.adapter.device;
    let kind: Option<ibv_event_type> = match event {
        // The peer has answered the last request under way. The event of an earlier drain may
        // come late.
        ControlEvent::Answered { .. } => {
            let tells = device.has_drained(own.qpn) == Some(true)
                && own.tells_drained.swap(false, Ordering::AcqRel);
            tells.then_some(IBV_EVENT_SQ_DRAINED)
        }
        // Of a connection of rdma_cm, the identifier tells.
        ControlEvent::Established { .. } => {
            let is_attached = device.pair_terms(own.qpn).is_none();
            is_attached.then_some(IBV_EVENT_COMM_EST)
        }
        _ if device.loses_completions(own.qpn) => Some(IBV_EVENT_QP_FATAL),
        // Completions tell of other failures.
        _ => match device.fault(own.qpn) {
            Some(NakCode::RemoteAccess) => Some(IBV_EVENT_QP_ACCESS_ERR),
            Some(NakCode::InvalidRequest) => Some(IBV_EVENT_QP_REQ_ERR),
            _ => None,
        },
    };
    if let Some(kind) = kind {
        own.async_events.tell(kind, pair);
    }
    if let ControlEvent::Broken { .. } = event {
        own.tell_last(pair);
    }
}

pub(crate) extern "C" fn ibv_create_qp(
    domain: Handle<Domain>,
    attributes: Out<ibv_qp_init_attr>,
) -> Handle<Pair> {
    or(Handle::NULL, || {
        let pair = create(domain, &Wanted::from(attributes.get()?))?;
        tell_made(attributes, &pair.get()?.init);
        Ok(pair)
    })
}

/// `create_qp_ex` of a context.
pub(crate) extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    attributes: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    let made = or(Handle::NULL, || {
        let attributes = Out::at(attributes);
        let (wanted, domain) = Wanted::extended(attributes)?;
        let pair = create(domain, &wanted)?;
        tell_made(attributes.cast(), &pair.get()?.init);
        Ok(pair)
    });
    made.pointer()
}

pub(crate) extern "C" fn ibv_qp_to_qp_ex(pair: Handle<Pair>) -> *mut ibv_qp_ex {
    or(core::ptr::null_mut(), || {
        require(pair.read()?.wr_start.is_some(), Errno::EOPNOTSUPP)?;
        Ok(pair.pointer())
    })
}

/// Ends a queue pair, after the program has acknowledged all events that it took.
pub(crate) fn destroy(pair: Handle<Pair>) -> Result<()> {
    let own = pair.get()?;
    own.adapter.forget(Subject::Pair(own.qpn));
    own.adapter.forget(Subject::Connection(own.qpn));
    own.adapter.managed.remove(own.qpn);
    own.async_events.end(pair);
    let own = pair.end()?;
    // The adapter of a child of fork never had it.
    own.adapter.device.destroy_pair(own.qpn).ok();
    Ok(())
}

pub(crate) extern "C" fn ibv_destroy_qp(pair: Handle<Pair>) -> c_int {
    code(|| destroy(pair))
}

impl Pair {
    fn attributes(&self) -> MutexGuard<'_, ibv_qp_attr> {
        lock(&self.attributes)
    }

    /// Returns true if it takes no receives.
    pub(crate) fn is_reset(&self) -> bool {
        self.state.load(Ordering::Acquire) == IBV_QPS_RESET
    }

    /// Sets the state, in the structure too.
    pub(crate) fn set_state(&self, handle: Handle<Self>, state: ibv_qp_state) {
        self.state.store(state, Ordering::Release);
        handle.change(|c| c.qp_base.state = state);
        match state {
            IBV_QPS_RESET => {
                let has_shared = !self.init.srq.is_null();
                self.tells_last.store(has_shared, Ordering::Relaxed);
            }
            IBV_QPS_ERR => self.tell_last(handle),
            _ => {}
        }
    }

    /// Tells the program once that a failed queue pair takes no more receives of a shared queue.
    fn tell_last(&self, handle: Handle<Self>) {
        if self.tells_last.swap(false, Ordering::Relaxed) {
            let kind = IBV_EVENT_QP_LAST_WQE_REACHED;
            self.async_events.tell(kind, handle);
        }
    }

    /// Returns the state: what the program set, or the error of a queue pair that has failed since.
    fn state(&self, handle: Handle<Self>) -> ibv_qp_state {
        let state = self.state.load(Ordering::Acquire);
        let has_failed = self.adapter.device.pair_state(self.qpn) == Ok(PairState::Failed);
        if has_failed
            && state != IBV_QPS_RESET
            && state != IBV_QPS_ERR
            && !self.adapter.managed.is_left(self.qpn)
        {
            self.set_state(handle, IBV_QPS_ERR);
            return IBV_QPS_ERR;
        }
        state
    }

    /// Fills in the attributes of a queue pair that rdma_cm has led to its state.
    fn agree(&self, state: ibv_qp_state, own: &mut ibv_qp_attr) {
        // Programs that lead one themselves set an MTU.
        if own.path_mtu == 0
            && matches!(state, IBV_QPS_RTS | IBV_QPS_SQD)
            && let Some(terms) = self.adapter.device.pair_terms(self.qpn)
        {
            agreed(&self.adapter, &terms, own);
        }
    }

    /// Changes the state and the attributes.
    fn modify(&self, handle: Handle<Self>, new: &ibv_qp_attr, mask: c_uint) -> Result<()> {
        let has = |field| mask & field != 0;
        let mut own = self.attributes();
        // To receive, it needs buffers and the queues of its peer; the way to an error needs none.
        if has(IBV_QP_STATE) && new.qp_state == IBV_QPS_RTR {
            ask_for_memory()?;
        }
        let now = self.state(handle);
        self.agree(now, &mut own);
        let is_now = !has(IBV_QP_CUR_STATE) || new.cur_qp_state == now;
        require(is_now, Errno::EINVAL)?;
        let to = if has(IBV_QP_STATE) { new.qp_state } else { now };
        transitions::check(self.init.qp_type, now, to, mask)?;
        let next = merged(&self.adapter, (now, &own), new, mask)?;
        if (now, to) == (IBV_QPS_SQD, IBV_QPS_RTS) {
            self.adapter.device.resume(self.qpn).map_err(refused)?;
        }
        match self.init.qp_type {
            _ if to == IBV_QPS_SQD && now != to => {
                let tells = has(IBV_QP_EN_SQD_ASYNC_NOTIFY) && new.en_sqd_async_notify != 0;
                // The event may come at once.
                self.tells_drained.store(tells, Ordering::Release);
                self.adapter.device.drain(self.qpn, tells).map_err(refused)
            }
            IBV_QPT_UD => self.enter_for_datagrams(now, to, &next),
            _ => self.enter(now, to, &next, has(IBV_QP_ACCESS_FLAGS)),
        }?;

        // Until it receives, the change to that state takes it.
        if has(IBV_QP_MIN_RNR_TIMER) && matches!(now, IBV_QPS_RTR | IBV_QPS_RTS | IBV_QPS_SQD) {
            let device = &self.adapter.device;
            let set = device.set_not_ready_timer(self.qpn, next.min_rnr_timer);
            set.map_err(refused)?;
        }
        *own = match to {
            IBV_QPS_RESET => zeroed(),
            _ => next,
        };
        if to != IBV_QPS_SQD {
            self.tells_drained.store(false, Ordering::Release);
        }
        self.set_state(handle, to);
        Ok(())
    }

    /// Carries out a change of state.
    fn enter(
        &self,
        from: ibv_qp_state,
        to: ibv_qp_state,
        with: &ibv_qp_attr,
        has_rights: bool,
    ) -> Result<()> {
        let (device, managed) = (&self.adapter.device, &self.adapter.managed);
        let rights = rights(with.qp_access_flags);
        let entered = match (from, to) {
            (_, IBV_QPS_RESET) => {
                managed.remove(self.qpn);
                device.reset_pair(self.qpn)
            }
            // The peer of a connection gets no other word of its end.
            (_, IBV_QPS_ERR)
                if managed.has(self.qpn)
                    && device.pair_state(self.qpn) != Ok(PairState::Unattached) =>
            {
                device.disconnect(self.qpn)
            }
            (_, IBV_QPS_ERR) => device.fail_pair(self.qpn),
            (IBV_QPS_INIT, IBV_QPS_RTR)
                if managed.takes(self.qpn, (with.dest_qp_num, with.rq_psn)) =>
            {
                self.tune(with, None)
            }
            (_, IBV_QPS_RTS) if managed.has(self.qpn) => {
                self.tune(with, Some(send_attributes(with)))
            }
            (IBV_QPS_INIT, IBV_QPS_RTR) => {
                let attributes = receive_attributes(&self.adapter, with)?;
                device.ready_to_receive(self.qpn, &attributes)
            }
            (IBV_QPS_RTR, IBV_QPS_RTS) => {
                let ready = device.ready_to_send(self.qpn, &send_attributes(with));
                ready.and_then(|()| device.set_rights(self.qpn, rights))
            }
            (IBV_QPS_SQD, IBV_QPS_SQD) => {
                let changed = device.change_requests(self.qpn, &send_attributes(with));
                changed.and_then(|()| device.set_rights(self.qpn, rights))
            }
            _ if has_rights => device.set_rights(self.qpn, rights),
            _ => Ok(()),
        };
        entered.map_err(refused)
    }

    /// Keeps what the program wants of a queue pair that rdma_cm connects, or has connected.
    fn tune(
        &self,
        with: &ibv_qp_attr,
        sends: Option<SendAttributes>,
    ) -> core::result::Result<(), BackendError> {
        let tuning = Tuning {
            rights: rights(with.qp_access_flags),
            not_ready_timer: with.min_rnr_timer,
            sends,
        };
        self.adapter.managed.tune(self.qpn, tuning);
        self.adapter.device.tune(self.qpn, &tuning)
    }

    /// Carries out a change of state of a queue pair for datagrams.
    fn enter_for_datagrams(
        &self,
        from: ibv_qp_state,
        to: ibv_qp_state,
        with: &ibv_qp_attr,
    ) -> Result<()> {
        let device = &self.adapter.device;
        let entered = match (from, to) {
            (_, IBV_QPS_RESET) => device.reset_pair(self.qpn),
            (_, IBV_QPS_ERR) => device.fail_pair(self.qpn),
            (IBV_QPS_INIT, IBV_QPS_RTR) => device.receive_datagrams(self.qpn, with.qkey),
            (IBV_QPS_RTR, IBV_QPS_RTS) => {
                let ready = device.send_datagrams(self.qpn);
                ready.and_then(|()| device.set_datagram_key(self.qpn, with.qkey))
            }
            _ => device.set_datagram_key(self.qpn, with.qkey),
        };
        entered.map_err(refused)
    }
}

pub(crate) extern "C" fn ibv_modify_qp(
    pair: Handle<Pair>,
    attributes: In<ibv_qp_attr>,
    mask: c_int,
) -> c_int {
    code(|| {
        let own = pair.get()?;
        let attributes = attributes.look().ok_or(Errno::EINVAL)?;
        own.modify(pair, attributes, mask.cast_unsigned())
    })
}

pub(crate) extern "C" fn ibv_query_qp(
    pair: Handle<Pair>,
    attributes: Out<ibv_qp_attr>,
    _mask: c_int,
    init: Out<ibv_qp_init_attr>,
) -> c_int {
    code(|| {
        let own = pair.get()?;
        let state = own.state(pair);
        let mut known = own.attributes();
        own.agree(state, &mut known);
        let mut known = *known;
        (known.qp_state, known.cur_qp_state) = (state, state);
        known.sq_draining = (own.adapter.device.has_drained(own.qpn) == Some(false)).into();
        known.cap = own.init.cap;
        known.path_mig_state = IBV_MIG_MIGRATED;
        attributes.set(known);
        init.set(ibv_qp_init_attr {
            qp_context: pair.read()?.qp_base.qp_context,
            ..own.init
        });
        Ok(())
    })
}
