//! Queue pairs and their states.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_uint, c_void};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use backend_roce::proto::PathMtu;
use backend_roce::{
    PairOptions, PairState, ReceiveAttributes, RemoteRights, RoceDevice, SendAttributes,
};

use crate::addresses;
use crate::c::{self, HeldLock, Shared};
use crate::layout::*;
use crate::objects::{self, Kind, Object, Users};
use crate::ports::PORT;
use crate::process::error_number;
use crate::queues::Queue;
use crate::regions::Domain;
use crate::requests::{self, Pending};
use crate::shared::SharedQueue;
use crate::transitions;

/// Inline data that each queue pair may have: programs rely on some, as devices grant it unasked.
const LEAST_INLINE: u32 = 64;

/// A queue pair.
#[repr(C)]
pub(crate) struct Pair {
    pub(crate) base: Shared<ibv_qp_ex>,
    pub(crate) domain: &'static Domain,
    queues: [&'static Queue; 2],
    shared: Option<&'static SharedQueue>,
    pub(crate) qpn: u32,
    pub(crate) kind: ibv_qp_type,
    /// Set if all requests are signalled.
    pub(crate) signals_all: bool,
    pub(crate) cap: ibv_qp_cap,
    /// What it was told last.
    attributes: Mutex<ibv_qp_attr>,
    /// Held from `ibv_wr_start` to `ibv_wr_complete`, or `ibv_wr_abort`.
    pub(crate) builds: HeldLock,
    /// The requests that these calls have begun; `builds` guards them.
    pub(crate) pending: Shared<Vec<Pending>>,
    users: Users,
}

impl Object for Pair {
    type C = ibv_qp;
    const KIND: Kind = Kind::Pair;

    fn users(&self) -> &Users {
        &self.users
    }
}

/// Addresses of queue pairs by QPN.
static PAIRS: Mutex<Option<HashMap<u32, usize>>> = Mutex::new(None);

fn pairs() -> MutexGuard<'static, Option<HashMap<u32, usize>>> {
    PAIRS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells of an asynchronous event of a queue pair.
pub(crate) fn tell(qpn: u32, kind: ibv_event_type) {
    let pairs = pairs();
    let Some(address) = pairs.as_ref().and_then(|pairs| pairs.get(&qpn)).copied() else {
        return;
    };
    // The queue pair leaves the table before it goes, so it is live while the table is locked.
    let pointer = core::ptr::with_exposed_provenance_mut(address);
    if let Some(pair) = objects::known::<Pair>(pointer) {
        let mut event: ibv_async_event = c::zeroed();
        event.element.qp = pointer;
        event.event_type = kind;
        pair.domain.context.tell(event);
    }
}

/// What a queue pair is made with.
struct Wanted {
    context: *mut c_void,
    sends: *mut ibv_cq,
    receives: *mut ibv_cq,
    shared: *mut ibv_srq,
    cap: ibv_qp_cap,
    kind: ibv_qp_type,
    signals_all: bool,
    /// Set if `ibv_wr_*` are wanted.
    is_extended: bool,
}

/// Checks the sizes that a program wants against the limits of the device.
fn check_sizes(cap: &ibv_qp_cap, device: &RoceDevice) -> Result<(), c_int> {
    let limits = device.limits();
    let is_right = cap.max_send_wr <= limits.work_requests
        && cap.max_recv_wr <= limits.work_requests
        && cap.max_send_sge <= limits.segments
        && cap.max_recv_sge <= limits.segments
        && cap.max_inline_data <= limits.inline;
    is_right.then_some(()).ok_or(libc::EINVAL)
}

fn create(pd: *mut ibv_pd, wanted: &Wanted) -> Result<*mut ibv_qp, c_int> {
    let domain: &Domain = objects::find(pd)?;
    if wanted.kind != IBV_QPT_RC && wanted.kind != IBV_QPT_UD {
        return Err(libc::EOPNOTSUPP);
    }
    let sends: &Queue = objects::find(wanted.sends)?;
    let receives: &Queue = objects::find(wanted.receives)?;
    let shared = match wanted.shared.is_null() {
        true => None,
        false => Some(objects::find::<SharedQueue>(wanted.shared)?),
    };
    let device = &domain.context.process.device;
    let mut cap = wanted.cap;
    check_sizes(&cap, device)?;
    cap.max_inline_data = cap.max_inline_data.max(LEAST_INLINE);
    (cap.max_send_sge, cap.max_recv_sge) = (cap.max_send_sge.max(1), cap.max_recv_sge.max(1));
    if shared.is_some() {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    let made = sends.with_device(|sends| {
        receives.with_device(|receives| {
            device.create_pair(&PairOptions {
                domain: domain.key,
                sends,
                receives,
                shared: shared.map(|queue| queue.key),
                send_depth: cap.max_send_wr,
                receive_depth: cap.max_recv_wr,
                inline: cap.max_inline_data,
            })
        })
    });
    let qpn = made.map_err(error_number)?;
    let mut base: ibv_qp_ex = c::zeroed();
    base.qp_base.context = domain.context.pointer();
    base.qp_base.qp_context = wanted.context;
    base.qp_base.pd = pd;
    base.qp_base.send_cq = wanted.sends;
    base.qp_base.recv_cq = wanted.receives;
    base.qp_base.srq = wanted.shared;
    base.qp_base.handle = qpn;
    base.qp_base.qp_num = qpn;
    base.qp_base.state = IBV_QPS_RESET;
    base.qp_base.qp_type = wanted.kind;
    if wanted.is_extended {
        requests::fill(&mut base);
    }
    domain.users().add();
    sends.users().add();
    receives.users().add();
    if let Some(shared) = shared {
        shared.users().add();
    }
    let pair = objects::publish(Box::new(Pair {
        base: Shared(UnsafeCell::new(base)),
        domain,
        queues: [sends, receives],
        shared,
        qpn,
        kind: wanted.kind,
        signals_all: wanted.signals_all,
        cap,
        attributes: Mutex::new(c::zeroed()),
        builds: HeldLock::new(),
        pending: Shared(UnsafeCell::new(Vec::new())),
        users: Users::default(),
    }));
    pairs().get_or_insert_default().insert(qpn, pair as usize);
    Ok(pair)
}

pub(crate) extern "C" fn create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    let Some(init) = c::get_mut(init) else {
        return c::fail(libc::EINVAL);
    };
    let made = create(
        pd,
        &Wanted {
            context: init.qp_context,
            sends: init.send_cq,
            receives: init.recv_cq,
            shared: init.srq,
            cap: init.cap,
            kind: init.qp_type,
            signals_all: init.sq_sig_all != 0,
            is_extended: false,
        },
    );
    if let Ok(Some(pair)) = made.map(objects::known::<Pair>) {
        init.cap = pair.cap;
    }
    c::pointer(made)
}

pub(crate) extern "C" fn create_qp_ex(
    _: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    let known =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let Some(init) = c::get_mut(init) else {
        return c::fail(libc::EINVAL);
    };
    let has = |field| init.comp_mask & field != 0;
    let has_flags = has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && init.create_flags != 0;
    if init.comp_mask & !known != 0 || has_flags {
        return c::fail(libc::EOPNOTSUPP);
    }
    let is_extended = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
    if is_extended && init.send_ops_flags & !requests::OPERATIONS != 0 {
        return c::fail(libc::EOPNOTSUPP);
    }
    if !has(IBV_QP_INIT_ATTR_PD) {
        return c::fail(libc::EINVAL);
    }
    let made = create(
        init.pd,
        &Wanted {
            context: init.qp_context,
            sends: init.send_cq,
            receives: init.recv_cq,
            shared: init.srq,
            cap: init.cap,
            kind: init.qp_type,
            signals_all: init.sq_sig_all != 0,
            is_extended,
        },
    );
    if let Ok(Some(pair)) = made.map(objects::known::<Pair>) {
        init.cap = pair.cap;
    }
    c::pointer(made)
}

pub(crate) extern "C" fn qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    let is_extended = objects::find::<Pair>(qp).map(|pair| {
        let start = c::with(&pair.base.0, |base| base.wr_start);
        start.is_some()
    });
    match is_extended {
        Ok(true) => qp.cast(),
        Ok(false) => c::fail(libc::EOPNOTSUPP),
        Err(code) => c::fail(code),
    }
}

pub(crate) extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    c::code(objects::retire::<Pair>(qp).map(|pair| {
        if let Some(pairs) = pairs().as_mut() {
            pairs.remove(&pair.qpn);
        }
        let context = pair.domain.context;
        context.withdraw(|event| c::names_pair(event, qp));
        // It exists: this object is its only owner.
        let _ = context.process.device.destroy_pair(pair.qpn);
        for queue in pair.queues {
            queue.users().remove();
        }
        if let Some(shared) = pair.shared {
            shared.users().remove();
        }
        pair.domain.users().remove();
    }))
}

impl Pair {
    pub(crate) fn device(&self) -> &'static RoceDevice {
        &self.domain.context.process.device
    }

    /// Returns the state, as the program set it, or that of a queue pair that has failed since.
    pub(crate) fn state(&self) -> ibv_qp_state {
        let state = c::with(&self.base.0, |base| base.qp_base.state);
        let failed = self.device().pair_state(self.qpn) == Ok(PairState::Failed);
        if failed && state != IBV_QPS_RESET && state != IBV_QPS_ERR {
            self.set_state(IBV_QPS_ERR);
            return IBV_QPS_ERR;
        }
        state
    }

    pub(crate) fn set_state(&self, state: ibv_qp_state) {
        c::with(&self.base.0, |base| base.qp_base.state = state);
    }

    fn attributes(&self) -> MutexGuard<'_, ibv_qp_attr> {
        self.attributes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and the attributes.
    fn modify(&self, attr: &ibv_qp_attr, mask: c_uint) -> Result<(), c_int> {
        let has = |field| mask & field != 0;
        let now = self.state();
        if has(IBV_QP_CUR_STATE) && attr.cur_qp_state != now {
            return Err(libc::EINVAL);
        }
        let to = if has(IBV_QP_STATE) {
            attr.qp_state
        } else {
            now
        };
        transitions::check(self.kind, now, to, mask)?;
        let mut own = self.attributes();
        let next = merged(&own, attr, mask)?;
        match self.kind {
            IBV_QPT_UD => self.enter_for_datagrams(now, to, &next),
            _ => self.enter(now, to, &next, has(IBV_QP_ACCESS_FLAGS)),
        }?;
        *own = next;
        if to == IBV_QPS_RESET {
            *own = c::zeroed();
        }
        self.set_state(to);
        Ok(())
    }

    /// Carries out a change of state.
    fn enter(
        &self,
        from: ibv_qp_state,
        to: ibv_qp_state,
        with: &ibv_qp_attr,
        has_rights: bool,
    ) -> Result<(), c_int> {
        let device = self.device();
        let done = match (from, to) {
            (_, IBV_QPS_RESET) => device.reset_pair(self.qpn),
            (_, IBV_QPS_ERR) => device.fail_pair(self.qpn),
            (IBV_QPS_INIT, IBV_QPS_RTR) => {
                let attributes = self.receive_attributes(with)?;
                device.ready_to_receive(self.qpn, &attributes)
            }
            (IBV_QPS_RTR, IBV_QPS_RTS) => {
                let ready = device.ready_to_send(self.qpn, &send_attributes(with));
                ready.and_then(|()| device.set_rights(self.qpn, rights(with)))
            }
            _ if has_rights => device.set_rights(self.qpn, rights(with)),
            _ => Ok(()),
        };
        done.map_err(error_number)
    }

    /// Carries out a change of state of a queue pair for datagrams.
    fn enter_for_datagrams(
        &self,
        from: ibv_qp_state,
        to: ibv_qp_state,
        with: &ibv_qp_attr,
    ) -> Result<(), c_int> {
        let device = self.device();
        let done = match (from, to) {
            (_, IBV_QPS_RESET) => device.reset_pair(self.qpn),
            (_, IBV_QPS_ERR) => device.fail_pair(self.qpn),
            (IBV_QPS_INIT, IBV_QPS_RTR) => device.receive_datagrams(self.qpn, with.qkey),
            (IBV_QPS_RTR, IBV_QPS_RTS) => {
                let ready = device.send_datagrams(self.qpn);
                ready.and_then(|()| device.set_datagram_key(self.qpn, with.qkey))
            }
            _ => device.set_datagram_key(self.qpn, with.qkey),
        };
        done.map_err(error_number)
    }

    /// Returns the attributes of a queue pair that becomes ready to receive.
    fn receive_attributes(&self, with: &ibv_qp_attr) -> Result<ReceiveAttributes, c_int> {
        let (local, peer) = addresses::route(self.domain.context.process, &with.ah_attr)?;
        let mtu = u8::try_from(with.path_mtu)
            .ok()
            .and_then(PathMtu::from_code);
        Ok(ReceiveAttributes {
            local,
            peer,
            peer_qpn: with.dest_qp_num,
            expects: with.rq_psn,
            mtu: mtu.ok_or(libc::EINVAL)?,
            resources: with.max_dest_rd_atomic,
            not_ready_timer: with.min_rnr_timer,
            rights: rights(with),
        })
    }
}

fn rights(with: &ibv_qp_attr) -> RemoteRights {
    let has = |flag: c_uint| with.qp_access_flags & flag != 0;
    RemoteRights {
        read: has(IBV_ACCESS_REMOTE_READ),
        write: has(IBV_ACCESS_REMOTE_WRITE),
        atomic: has(IBV_ACCESS_REMOTE_ATOMIC),
    }
}

fn send_attributes(with: &ibv_qp_attr) -> SendAttributes {
    SendAttributes {
        sends: with.sq_psn,
        depth: with.max_rd_atomic,
        timeout: with.timeout,
        retries: with.retry_cnt,
        not_ready_retries: with.rnr_retry,
    }
}

/// Returns the attributes of a queue pair with those that a program changes, if they are valid.
fn merged(own: &ibv_qp_attr, new: &ibv_qp_attr, mask: c_uint) -> Result<ibv_qp_attr, c_int> {
    let has = |field| mask & field != 0;
    let mut next = *own;
    let mut is_right = true;
    if has(IBV_QP_PKEY_INDEX) {
        is_right &= new.pkey_index == 0;
    }
    if has(IBV_QP_PORT) {
        is_right &= new.port_num == PORT;
        next.port_num = new.port_num;
    }
    if has(IBV_QP_QKEY) {
        next.qkey = new.qkey;
    }
    if has(IBV_QP_ACCESS_FLAGS) {
        next.qp_access_flags = new.qp_access_flags;
    }
    if has(IBV_QP_AV) {
        next.ah_attr = new.ah_attr;
    }
    if has(IBV_QP_PATH_MTU) {
        is_right &= (IBV_MTU_256..=IBV_MTU_4096).contains(&new.path_mtu);
        next.path_mtu = new.path_mtu;
    }
    if has(IBV_QP_DEST_QPN) {
        is_right &= new.dest_qp_num < 1 << 24;
        next.dest_qp_num = new.dest_qp_num;
    }
    if has(IBV_QP_RQ_PSN) {
        next.rq_psn = new.rq_psn & 0xFF_FFFF;
    }
    if has(IBV_QP_SQ_PSN) {
        next.sq_psn = new.sq_psn & 0xFF_FFFF;
    }
    if has(IBV_QP_MAX_DEST_RD_ATOMIC) {
        is_right &= new.max_dest_rd_atomic <= 128;
        next.max_dest_rd_atomic = new.max_dest_rd_atomic;
    }
    if has(IBV_QP_MAX_QP_RD_ATOMIC) {
        is_right &= new.max_rd_atomic <= 128;
        next.max_rd_atomic = new.max_rd_atomic;
    }
    if has(IBV_QP_MIN_RNR_TIMER) {
        is_right &= new.min_rnr_timer < 32;
        next.min_rnr_timer = new.min_rnr_timer;
    }
    if has(IBV_QP_TIMEOUT) {
        is_right &= new.timeout < 32;
        next.timeout = new.timeout;
    }
    if has(IBV_QP_RETRY_CNT) {
        is_right &= new.retry_cnt < 8;
        next.retry_cnt = new.retry_cnt;
    }
    if has(IBV_QP_RNR_RETRY) {
        is_right &= new.rnr_retry < 8;
        next.rnr_retry = new.rnr_retry;
    }
    if has(IBV_QP_ALT_PATH) || has(IBV_QP_PATH_MIG_STATE) {
        return Err(libc::EOPNOTSUPP);
    }
    is_right.then_some(next).ok_or(libc::EINVAL)
}

pub(crate) extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    let modify = |pair: &Pair| {
        let attr = c::get(attr).ok_or(libc::EINVAL)?;
        pair.modify(attr, mask as c_uint)
    };
    c::code(objects::find::<Pair>(qp).and_then(modify))
}

pub(crate) extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    c::code(objects::find::<Pair>(qp).map(|pair| {
        let state = pair.state();
        let mut known = *pair.attributes();
        (known.qp_state, known.cur_qp_state) = (state, state);
        known.cap = pair.cap;
        known.path_mig_state = IBV_MIG_MIGRATED;
        c::put(attr, known);
        let mut made: ibv_qp_init_attr = c::zeroed();
        c::with(&pair.base.0, |base| {
            made.qp_context = base.qp_base.qp_context;
            made.send_cq = base.qp_base.send_cq;
            made.recv_cq = base.qp_base.recv_cq;
            made.srq = base.qp_base.srq;
            made.qp_type = base.qp_base.qp_type;
        });
        made.cap = pair.cap;
        made.sq_sig_all = c_int::from(pair.signals_all);
        c::put(init, made);
    }))
}

/// Bytes of a message may be written in any order.
pub(crate) extern "C" fn query_qp_data_in_order(_: *mut ibv_qp, _: c_uint, _: u32) -> c_int {
    0
}
