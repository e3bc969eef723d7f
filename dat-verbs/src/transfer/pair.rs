//! Queue pairs.

use core::ffi::{c_int, c_uint};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use backend_roce::proto::packet::NakCode;
use backend_roce::{PairOptions, PairState, SendAttributes, Tuning};
use dat_core::backend::{BackendError, ControlEvent};
use nix::errno::Errno;

use super::attributes::{agreed, merged, receive_attributes, rights, send_attributes};
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
    ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_state, ibv_qp_type,
};
use crate::boundary::{Address, Handle, In, Kind, Out, tell_made, zeroed};
use crate::completion::Queue;
use crate::context::{AsyncEvents, of_structure};
use crate::errors::{Result, ask_for_memory, code, or, refused};
use crate::locks::lock;
use crate::memory::Domain;
use crate::turns::Turns;

/// Inline data that each queue pair may have: programs rely on some, as devices grant it unasked.
const LEAST_INLINE: u32 = 64;

/// What belongs to a queue pair.
pub(crate) struct Pair {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) qpn: u32,
    pub(super) kind: ibv_qp_type,
    /// Set if all requests are signalled.
    pub(super) signals_all: bool,
    pub(super) cap: ibv_qp_cap,
    state: AtomicU32,
    /// Set if it takes receives of a shared queue, whose last one it has not told of.
    tells_last: AtomicBool,
    has_shared: bool,
    /// Set from the change to SQD until an event tells that it has drained, if the program asked.
    tells_drained: AtomicBool,
    /// What it was told last.
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

/// What a program wants of a queue pair.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) qp_context: Address,
    pub(crate) sends: Handle<Queue>,
    pub(crate) receives: Handle<Queue>,
    pub(crate) shared: Handle<SharedQueue>,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) kind: ibv_qp_type,
    signals_all: bool,
    /// Set if `ibv_wr_*` are wanted.
    is_extended: bool,
}

impl From<&ibv_qp_init_attr> for Wanted {
    fn from(attributes: &ibv_qp_init_attr) -> Self {
        Self {
            qp_context: Address(attributes.qp_context),
            sends: Handle::at(attributes.send_cq),
            receives: Handle::at(attributes.recv_cq),
            shared: Handle::at(attributes.srq),
            cap: attributes.cap,
            kind: attributes.qp_type,
            signals_all: attributes.sq_sig_all != 0,
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
        let attributes = of.get().ok_or(Errno::EINVAL)?;
        // They begin as those without the extension.
        let plain = of.cast::<ibv_qp_init_attr>().get();
        let has = |field| attributes.comp_mask & field != 0;
        let has_flags = has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attributes.create_flags != 0;
        let is_extended = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
        let lacks = is_extended && attributes.send_ops_flags & !building::OPERATIONS != 0;
        if attributes.comp_mask & !KNOWN != 0 || has_flags || lacks {
            return Err(Errno::EOPNOTSUPP);
        }
        let domain = match has(IBV_QP_INIT_ATTR_PD) {
            true => Handle::at(attributes.pd),
            false => Handle::NULL,
        };
        let wanted = Self {
            is_extended,
            ..Self::from(&plain.ok_or(Errno::EINVAL)?)
        };
        Ok((wanted, domain))
    }

    /// Returns the sizes that the queue pair gets.
    ///
    /// # Errors
    /// `EINVAL`: one is above a limit of the device.
    fn sizes(&self, adapter: &Adapter) -> Result<ibv_qp_cap> {
        let limits = adapter.device.limits();
        let mut cap = self.cap;
        if !self.shared.is_null() {
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        let is_right = cap.max_send_wr <= limits.work_requests
            && cap.max_recv_wr <= limits.work_requests
            && cap.max_send_sge <= limits.segments
            && cap.max_recv_sge <= limits.segments
            && cap.max_inline_data <= limits.inline;
        cap.max_inline_data = cap.max_inline_data.max(LEAST_INLINE);
        cap.max_send_sge = cap.max_send_sge.max(1);
        if self.shared.is_null() {
            cap.max_recv_sge = cap.max_recv_sge.max(1);
        }
        is_right.then_some(cap).ok_or(Errno::EINVAL)
    }
}

/// Makes a queue pair.
///
/// # Errors
/// - `EINVAL`: an object is missing, or a size is above its limit.
/// - `EOPNOTSUPP`: it is neither for a reliable connection nor for datagrams.
pub(crate) fn create(domain: Handle<Domain>, wanted: &Wanted) -> Result<Handle<Pair>> {
    ask_for_memory()?;
    let own = domain.get().ok_or(Errno::EINVAL)?;
    let context = of_structure(domain.read().ok_or(Errno::EINVAL)?.context);
    let context = context.get().ok_or(Errno::EINVAL)?;
    if wanted.kind != IBV_QPT_RC && wanted.kind != IBV_QPT_UD {
        return Err(Errno::EOPNOTSUPP);
    }
    let sends = wanted.sends.get().ok_or(Errno::EINVAL)?;
    let receives = wanted.receives.get().ok_or(Errno::EINVAL)?;
    let shared = match wanted.shared.is_null() {
        true => None,
        false => Some(wanted.shared.get().ok_or(Errno::EINVAL)?),
    };
    let adapter = Arc::clone(&own.adapter);
    let cap = wanted.sizes(&adapter)?;
    let qpn = {
        // A thread locks a queue once; all lock two of them in one order.
        let is_first = wanted.sends.pointer::<u8>() <= wanted.receives.pointer();
        let earlier = (!is_first).then(|| receives.device_queue());
        let send_queue = sends.device_queue();
        let is_other = is_first && wanted.sends != wanted.receives;
        let other = earlier.or_else(|| is_other.then(|| receives.device_queue()));
        adapter.device.create_pair(&PairOptions {
            domain: own.key,
            sends: &send_queue,
            receives: other.as_ref().unwrap_or(&send_queue),
            shared: shared.map(|queue| queue.key),
            send_depth: cap.max_send_wr,
            receive_depth: cap.max_recv_wr,
            inline: cap.max_inline_data,
        })
    };
    let qpn = qpn.map_err(refused)?;
    let mut uses = vec![&own.users, &sends.users, &receives.users];
    uses.extend(shared.map(|queue| &queue.users));
    let pair = Pair {
        adapter: Arc::clone(&adapter),
        qpn,
        kind: wanted.kind,
        signals_all: wanted.signals_all,
        cap,
        state: AtomicU32::new(IBV_QPS_RESET),
        tells_last: AtomicBool::new(shared.is_some()),
        tells_drained: AtomicBool::new(false),
        has_shared: shared.is_some(),
        attributes: Mutex::new(zeroed()),
        turns: Turns::default(),
        async_events: AsyncEvents::of(context),
        _uses: uses.into_iter().cloned().collect(),
    };
    let pair = Handle::new(structure(domain, wanted, qpn), pair);
    let notify = move |event: &_| take(pair, event);
    adapter.receive(Subject::Pair(qpn), Box::new(notify));
    Ok(pair)
}

/// Returns the structure of a new queue pair.
fn structure(domain: Handle<Domain>, wanted: &Wanted, qpn: u32) -> ibv_qp_ex {
    let mut c: ibv_qp_ex = zeroed();
    let base = &mut c.qp_base;
    base.context = domain
        .read()
        .map_or(core::ptr::null_mut(), |domain| domain.context);
    base.qp_context = wanted.qp_context.0;
    base.pd = domain.pointer();
    base.send_cq = wanted.sends.pointer();
    base.recv_cq = wanted.receives.pointer();
    base.srq = wanted.shared.pointer();
    base.handle = qpn;
    base.qp_num = qpn;
    base.state = IBV_QPS_RESET;
    base.qp_type = wanted.kind;
    if wanted.is_extended {
        building::fill(&mut c);
    }
    c
}

/// Takes an event of the adapter about a queue pair.
fn take(pair: Handle<Pair>, event: &ControlEvent) {
    let Some(own) = pair.get() else {
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
        own.async_events.tell(kind, Address(pair.pointer()));
    }
    if let ControlEvent::Broken { .. } = event {
        own.tell_last(pair);
    }
}

pub(crate) extern "C" fn ibv_create_qp(
    domain: Handle<Domain>,
    attributes: Out<ibv_qp_init_attr>,
) -> Handle<Pair> {
    let made = attributes.get().ok_or(Errno::EINVAL).and_then(|mut c| {
        let pair = create(domain, &Wanted::from(&c))?;
        c.cap = pair.get().ok_or(Errno::EINVAL)?.cap;
        tell_made(attributes, &c);
        Ok(pair)
    });
    or(made, Handle::NULL)
}

/// `create_qp_ex` of a context.
pub(crate) extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    attributes: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    let made = (|| {
        let attributes = Out::at(attributes);
        let (wanted, domain) = Wanted::extended(attributes)?;
        let pair = create(domain, &wanted)?;
        let attributes = attributes.cast::<ibv_qp_init_attr>();
        let mut c = attributes.get().ok_or(Errno::EINVAL)?;
        c.cap = pair.get().ok_or(Errno::EINVAL)?.cap;
        tell_made(attributes, &c);
        Ok(pair)
    })();
    or(made, Handle::NULL).pointer()
}

pub(crate) extern "C" fn ibv_qp_to_qp_ex(pair: Handle<Pair>) -> *mut ibv_qp_ex {
    let extended = (|| {
        let c = pair.read().ok_or(Errno::EINVAL)?;
        c.wr_start.ok_or(Errno::EOPNOTSUPP)?;
        Ok(pair.pointer())
    })();
    or(extended, core::ptr::null_mut())
}

/// Ends a queue pair, after the program has acknowledged all events that it took.
pub(crate) fn destroy(pair: Handle<Pair>) -> Result<()> {
    let own = pair.get().ok_or(Errno::EINVAL)?;
    own.adapter.forget(Subject::Pair(own.qpn));
    own.adapter.forget(Subject::Connection(own.qpn));
    own.adapter.managed.remove(own.qpn);
    own.async_events.end(Address(pair.pointer()));
    let own = pair.end().ok_or(Errno::EINVAL)?;
    // The adapter of a child of fork never had it.
    own.adapter.device.destroy_pair(own.qpn).ok();
    Ok(())
}

pub(crate) extern "C" fn ibv_destroy_qp(pair: Handle<Pair>) -> c_int {
    code(destroy(pair))
}

impl Pair {
    fn attributes(&self) -> MutexGuard<'_, ibv_qp_attr> {
        lock(&self.attributes)
    }

    /// Returns its sizes.
    pub(crate) const fn sizes(&self) -> ibv_qp_cap {
        self.cap
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
            IBV_QPS_RESET => self.tells_last.store(self.has_shared, Ordering::Relaxed),
            IBV_QPS_ERR => self.tell_last(handle),
            _ => {}
        }
    }

    /// Tells the program once that a failed queue pair takes no more receives of a shared queue.
    fn tell_last(&self, handle: Handle<Self>) {
        if self.tells_last.swap(false, Ordering::Relaxed) {
            let object = Address(handle.pointer());
            self.async_events
                .tell(IBV_EVENT_QP_LAST_WQE_REACHED, object);
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
        if has(IBV_QP_CUR_STATE) && new.cur_qp_state != now {
            return Err(Errno::EINVAL);
        }
        let to = if has(IBV_QP_STATE) { new.qp_state } else { now };
        transitions::check(self.kind, now, to, mask)?;
        let next = merged(&self.adapter, (now, &own), new, mask)?;
        if (now, to) == (IBV_QPS_SQD, IBV_QPS_RTS) {
            self.adapter.device.resume(self.qpn).map_err(refused)?;
        }
        match self.kind {
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
                ready.and_then(|()| device.set_rights(self.qpn, rights(with)))
            }
            (IBV_QPS_SQD, IBV_QPS_SQD) => {
                let changed = device.change_requests(self.qpn, &send_attributes(with));
                changed.and_then(|()| device.set_rights(self.qpn, rights(with)))
            }
            _ if has_rights => device.set_rights(self.qpn, rights(with)),
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
            rights: rights(with),
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
    code((|| {
        let own = pair.get().ok_or(Errno::EINVAL)?;
        let attributes = attributes.look().ok_or(Errno::EINVAL)?;
        own.modify(pair, attributes, mask.cast_unsigned())
    })())
}

pub(crate) extern "C" fn ibv_query_qp(
    pair: Handle<Pair>,
    attributes: Out<ibv_qp_attr>,
    _mask: c_int,
    init: Out<ibv_qp_init_attr>,
) -> c_int {
    code((|| {
        let own = pair.get().ok_or(Errno::EINVAL)?;
        let state = own.state(pair);
        let mut known = own.attributes();
        own.agree(state, &mut known);
        let mut known = *known;
        (known.qp_state, known.cur_qp_state) = (state, state);
        known.sq_draining = (own.adapter.device.has_drained(own.qpn) == Some(false)).into();
        known.cap = own.cap;
        known.path_mig_state = IBV_MIG_MIGRATED;
        attributes.set(known);
        let base = pair.read().ok_or(Errno::EINVAL)?.qp_base;
        init.set(ibv_qp_init_attr {
            qp_context: base.qp_context,
            send_cq: base.send_cq,
            recv_cq: base.recv_cq,
            srq: base.srq,
            cap: own.cap,
            qp_type: own.kind,
            sq_sig_all: own.signals_all.into(),
        });
        Ok(())
    })())
}
