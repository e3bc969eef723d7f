//! Completion queues.

use core::cell::{Cell, UnsafeCell};
use core::ffi::{c_int, c_uint, c_void};
use std::sync::{Condvar, Mutex, PoisonError, RwLock};

use backend_roce::{DeviceCompletion, DeviceQueue, Opcode};
use dat_core::flags::DtoStatus;

use crate::c::{self, Shared};
use crate::channels::Channel;
use crate::devices::{self, Context};
use crate::layout::*;
use crate::objects::{self, Kind, Object, Users};
use crate::process::{Process, error_number};

/// Polls without a completion after which a thread lets others run.
///
/// A peer, or the thread of the adapter, may need the processor.
const PATIENCE: u32 = 50;

/// Events of a queue that the program has taken and acknowledged.
#[derive(Default)]
struct Taken {
    taken: c_uint,
    acknowledged: c_uint,
}

/// A completion queue.
#[repr(C)]
pub(crate) struct Queue {
    base: Shared<ibv_cq_ex>,
    context: &'static Context,
    channel: Option<&'static Channel>,
    /// Changed by a resize only.
    pub(crate) device: RwLock<DeviceQueue>,
    taken: Mutex<Taken>,
    acknowledged: Condvar,
    /// The completion that the calls of `ibv_cq_ex` read.
    current: Mutex<Option<DeviceCompletion>>,
    users: Users,
}

impl Object for Queue {
    type C = ibv_cq;
    const KIND: Kind = Kind::Queue;

    fn users(&self) -> &Users {
        &self.users
    }
}

impl Queue {
    fn process(&self) -> &'static Process {
        self.context.process
    }

    /// Counts an event that the program takes.
    pub(crate) fn count_taken(&self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.taken = taken.taken.wrapping_add(1);
    }

    /// Acts on the queue of the device.
    pub(crate) fn with_device<R>(&self, act: impl FnOnce(&DeviceQueue) -> R) -> R {
        act(&self.device.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn poll(&self, most: usize, each: impl FnMut(DeviceCompletion)) -> Result<usize, c_int> {
        let device = &self.process().device;
        let polled = self.with_device(|queue| device.poll(queue, most, each));
        let taken = polled.map_err(|_| libc::EIO)?;
        if taken == 0 {
            be_patient();
        }
        Ok(taken)
    }
}

/// Lets other threads run now and then.
fn be_patient() {
    thread_local!(static EMPTY: Cell<u32> = const { Cell::new(0) });
    EMPTY.with(|empty| {
        empty.set(empty.get() + 1);
        if empty.get() >= PATIENCE {
            empty.set(0);
            c::give_way();
        }
    });
}

/// Tells the channel of an armed queue.
pub(crate) fn notify(process: &Process, number: u32) {
    let queues = process
        .queues
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let Some(address) = queues.get(&number).copied() else {
        return;
    };
    // The queue leaves the table before it goes, so it is live while the table is locked.
    let queue = objects::known::<Queue>(core::ptr::with_exposed_provenance_mut(address));
    if let Some(channel) = queue.and_then(|queue| queue.channel) {
        channel.tell(address);
    }
}

fn create(
    context: *mut ibv_context,
    depth: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: u32,
) -> Result<*mut ibv_cq, c_int> {
    let owner = devices::find(context)?;
    let told = match channel.is_null() {
        true => None,
        false => Some(objects::find::<Channel>(channel)?),
    };
    let limit = owner.process.device.limits().completions;
    if depth == 0 || depth > limit || vector != 0 {
        return Err(libc::EINVAL);
    }
    let device = owner.process.device.create_queue(depth);
    let device = device.map_err(error_number)?;
    let number = device.number();
    let mut base: ibv_cq_ex = c::zeroed();
    base.context = context;
    base.channel = channel;
    base.cq_context = cq_context;
    base.handle = number;
    base.cqe = depth as c_int;
    base.start_poll = Some(extended::start_poll);
    base.next_poll = Some(extended::next_poll);
    base.end_poll = Some(extended::end_poll);
    base.read_opcode = Some(extended::read_opcode);
    base.read_vendor_err = Some(extended::read_vendor_err);
    base.read_byte_len = Some(extended::read_byte_len);
    base.read_imm_data = Some(extended::read_imm_data);
    base.read_qp_num = Some(extended::read_qp_num);
    base.read_src_qp = Some(extended::read_src_qp);
    base.read_wc_flags = Some(extended::read_wc_flags);
    base.read_slid = Some(extended::read_zero);
    base.read_sl = Some(extended::read_zero_byte);
    base.read_dlid_path_bits = Some(extended::read_zero_byte);
    owner.users().add();
    if let Some(channel) = told {
        channel.users().add();
    }
    let queue = objects::publish(Box::new(Queue {
        base: Shared(UnsafeCell::new(base)),
        context: owner,
        channel: told,
        device: RwLock::new(device),
        taken: Mutex::default(),
        acknowledged: Condvar::new(),
        current: Mutex::new(None),
        users: Users::default(),
    }));
    let queues = &owner.process.queues;
    let mut queues = queues.lock().unwrap_or_else(PoisonError::into_inner);
    queues.insert(number, queue as usize);
    Ok(queue)
}

pub(crate) extern "C" fn create_cq(
    context: *mut ibv_context,
    depth: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    let depth = u32::try_from(depth).unwrap_or(0);
    c::pointer(create(context, depth, cq_context, channel, vector as u32))
}

pub(crate) extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    init: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // Flags and a parent domain promise things about threads; timestamps and tags are lacking.
    let fields = IBV_WC_STANDARD_FLAGS as u64;
    let known = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    let Some(init) = c::get(init) else {
        return c::fail(libc::EINVAL);
    };
    if init.wc_flags & !fields != 0 || init.comp_mask & !known != 0 {
        return c::fail(libc::EOPNOTSUPP);
    }
    let made = create(
        context,
        init.cqe,
        init.cq_context,
        init.channel,
        init.comp_vector,
    );
    c::pointer(made).cast()
}

pub(crate) extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    c::code(objects::retire::<Queue>(cq).map(|queue| {
        let (process, address) = (queue.process(), cq as usize);
        let number = queue.with_device(DeviceQueue::number);
        let queues = &process.queues;
        let mut queues = queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.remove(&number);
        drop(queues);
        if let Some(channel) = queue.channel {
            channel.withdraw(address);
            channel.users().remove();
        }
        // The manual promises to wait for the events that the program has taken.
        let mut taken = queue.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while taken.taken != taken.acknowledged {
            let woken = queue.acknowledged.wait(taken);
            taken = woken.unwrap_or_else(PoisonError::into_inner);
        }
        drop(taken);
        queue.context.users().remove();
        let device = queue.device.into_inner();
        let device = device.unwrap_or_else(PoisonError::into_inner);
        process.device.destroy_queue(device);
    }))
}

pub(crate) extern "C" fn resize_cq(cq: *mut ibv_cq, depth: c_int) -> c_int {
    let resize = |queue: &Queue| {
        let depth = u32::try_from(depth).map_err(|_| libc::EINVAL)?;
        let device = &queue.process().device;
        if depth == 0 || depth > device.limits().completions {
            return Err(libc::EINVAL);
        }
        let mut own = queue.device.write().unwrap_or_else(PoisonError::into_inner);
        let resized = device.resize_queue(&mut own, depth);
        resized.map_err(error_number)?;
        c::with(&queue.base.0, |base| base.cqe = depth as c_int);
        Ok(())
    };
    c::code(objects::find::<Queue>(cq).and_then(resize))
}

pub(crate) extern "C" fn ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
    // A queue that is destroyed meanwhile waits for this.
    if let Some(queue) = objects::known::<Queue>(cq) {
        let mut taken = queue.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.acknowledged = taken.acknowledged.wrapping_add(count);
        queue.acknowledged.notify_all();
    }
}

pub(crate) extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    let Some(queue) = objects::known::<Queue>(cq) else {
        return libc::EINVAL;
    };
    queue.with_device(|device| device.arm(solicited_only != 0));
    0
}

const fn status(status: DtoStatus) -> ibv_wc_status {
    match status {
        DtoStatus::Success => IBV_WC_SUCCESS,
        DtoStatus::Flushed => IBV_WC_WR_FLUSH_ERR,
        DtoStatus::LocalLength => IBV_WC_LOC_LEN_ERR,
        DtoStatus::LocalEndpoint => IBV_WC_LOC_QP_OP_ERR,
        DtoStatus::LocalProtection => IBV_WC_LOC_PROT_ERR,
        DtoStatus::RmrOperationFailed => IBV_WC_MW_BIND_ERR,
        DtoStatus::BadResponse => IBV_WC_BAD_RESP_ERR,
        DtoStatus::RemoteAccess => IBV_WC_REM_ACCESS_ERR,
        DtoStatus::RemoteResponder => IBV_WC_REM_INV_REQ_ERR,
        DtoStatus::Transport => IBV_WC_RETRY_EXC_ERR,
        DtoStatus::ReceiverNotReady => IBV_WC_RNR_RETRY_EXC_ERR,
        _ => IBV_WC_GENERAL_ERR,
    }
}

const fn opcode(opcode: Opcode) -> ibv_wc_opcode {
    match opcode {
        Opcode::Send => IBV_WC_SEND,
        Opcode::Write => IBV_WC_RDMA_WRITE,
        Opcode::Read => IBV_WC_RDMA_READ,
        Opcode::CompareSwap => IBV_WC_COMP_SWAP,
        Opcode::FetchAdd => IBV_WC_FETCH_ADD,
        Opcode::Bind => IBV_WC_BIND_MW,
        Opcode::Receive => IBV_WC_RECV,
        Opcode::ReceiveWrite => IBV_WC_RECV_RDMA_WITH_IMM,
    }
}

fn flags(done: &DeviceCompletion) -> c_uint {
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    flag(done.immediate.is_some(), IBV_WC_WITH_IMM) | flag(done.source.is_some(), IBV_WC_GRH)
}

pub(crate) extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, out: *mut ibv_wc) -> c_int {
    let Some(queue) = objects::known::<Queue>(cq) else {
        return -libc::EINVAL;
    };
    let mut next = out;
    let taken = queue.poll(usize::try_from(most).unwrap_or(0), |done| {
        let mut work: ibv_wc = c::zeroed();
        work.wr_id = done.token;
        work.status = status(done.status);
        work.opcode = opcode(done.opcode);
        work.byte_len = done.length;
        work.__bindgen_anon_1.imm_data = done.immediate.unwrap_or(0);
        work.qp_num = done.qpn;
        work.src_qp = done.source.unwrap_or(0);
        work.wc_flags = flags(&done);
        c::put(next, work);
        next = next.wrapping_add(1);
    });
    match taken {
        Ok(taken) => taken as c_int,
        Err(code) => -code,
    }
}

/// The calls of `ibv_cq_ex`, which look at one completion at a time.
mod extended {
    use super::*;

    fn queue<'a>(cq: *mut ibv_cq_ex) -> Option<&'a Queue> {
        objects::known(cq.cast())
    }

    fn advance(cq: *mut ibv_cq_ex) -> c_int {
        let Some(queue) = queue(cq) else {
            return libc::EINVAL;
        };
        let mut next = None;
        match queue.poll(1, |done| next = Some(done)) {
            Ok(_) => {}
            Err(code) => return code,
        }
        let mut current = queue.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = next.or(*current);
        let Some(done) = next else {
            return libc::ENOENT;
        };
        c::with(&queue.base.0, |base| {
            base.wr_id = done.token;
            base.status = status(done.status);
        });
        0
    }

    fn read<R: Default>(cq: *mut ibv_cq_ex, field: impl FnOnce(&DeviceCompletion) -> R) -> R {
        let current = queue(cq)
            .and_then(|queue| *queue.current.lock().unwrap_or_else(PoisonError::into_inner));
        current.as_ref().map(field).unwrap_or_default()
    }

    pub(super) extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
        match c::get(attr) {
            Some(attr) if attr.comp_mask == 0 => advance(cq),
            _ => libc::EINVAL,
        }
    }

    pub(super) extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
        advance(cq)
    }

    pub(super) extern "C" fn end_poll(_: *mut ibv_cq_ex) {}

    pub(super) extern "C" fn read_opcode(cq: *mut ibv_cq_ex) -> ibv_wc_opcode {
        read(cq, |done| opcode(done.opcode))
    }

    pub(super) extern "C" fn read_vendor_err(_: *mut ibv_cq_ex) -> u32 {
        0
    }

    pub(super) extern "C" fn read_byte_len(cq: *mut ibv_cq_ex) -> u32 {
        read(cq, |done| done.length)
    }

    pub(super) extern "C" fn read_imm_data(cq: *mut ibv_cq_ex) -> u32 {
        read(cq, |done| done.immediate.unwrap_or(0))
    }

    pub(super) extern "C" fn read_qp_num(cq: *mut ibv_cq_ex) -> u32 {
        read(cq, |done| done.qpn)
    }

    pub(super) extern "C" fn read_src_qp(cq: *mut ibv_cq_ex) -> u32 {
        read(cq, |done| done.source.unwrap_or(0))
    }

    pub(super) extern "C" fn read_wc_flags(cq: *mut ibv_cq_ex) -> c_uint {
        read(cq, flags)
    }

    pub(super) extern "C" fn read_zero(_: *mut ibv_cq_ex) -> u32 {
        0
    }

    pub(super) extern "C" fn read_zero_byte(_: *mut ibv_cq_ex) -> u8 {
        0
    }
}
