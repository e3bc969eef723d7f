//! Completion queues.

use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use backend_roce::{Detail, DeviceCompletion, DeviceQueue, Opcode};
use dat_core::backend::ControlEvent;
use dat_core::flags::DtoStatus;
use nix::errno::Errno;

use super::channel::Channel;
use crate::adapter::{Adapter, Subject};
use crate::boundary::layout::{
    IBV_EVENT_CQ_ERR, IBV_WC_BAD_RESP_ERR, IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD,
    IBV_WC_GENERAL_ERR, IBV_WC_GRH, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR,
    IBV_WC_LOCAL_INV, IBV_WC_MW_BIND_ERR, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV,
    IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR,
    IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_SEND, IBV_WC_SUCCESS, IBV_WC_WITH_IMM,
    IBV_WC_WITH_INV, IBV_WC_WR_FLUSH_ERR, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_wc,
    ibv_wc_opcode, ibv_wc_status,
};
use crate::boundary::{Address, Handle, Kind, Out, zeroed};
use crate::context::{AsyncEvents, Context};
use crate::errors::{Result, ask_for_memory, code, count, or, refused, require, require_unused};
use crate::events::{EventQueue, Unacknowledged};
use crate::turns::Turns;

/// Empty polls of a thread after which it lets others run, such as that of the adapter.
const EMPTY_POLLS: u32 = 50;

/// A completion queue.
pub(crate) struct Queue {
    adapter: Arc<Adapter>,
    queue: RwLock<DeviceQueue>,
    channel: Option<Arc<EventQueue<Handle<Self>>>>,
    /// Events of its channel.
    pub(crate) events: Unacknowledged,
    pub(crate) async_events: AsyncEvents,
    /// Held by each queue pair that uses it.
    pub(crate) users: Arc<()>,
    /// Turns of the threads that poll it as an extended one, and the completion of the turn.
    pub(super) turns: Turns<Option<ibv_wc>>,
    /// Set once completions are lost, and the program is told so.
    has_failed: AtomicBool,
}

impl Kind for Queue {
    type C = ibv_cq_ex;
}

/// Makes a completion queue; `prepare` fills in what only an extended one has.
pub(crate) fn create(
    context: Handle<Context>,
    wanted: &ibv_cq_init_attr_ex,
    prepare: impl FnOnce(&mut ibv_cq_ex),
) -> Result<Handle<Queue>> {
    ask_for_memory()?;
    let own = context.get()?;
    let adapter = Arc::clone(&own.adapter);
    let channel = Handle::<Channel>::at(wanted.channel);
    let channel = channel
        .optional()?
        .map(|channel| Arc::clone(&channel.events));
    let most = adapter.device.attributes().max_evd_qlen.cast_unsigned();
    let is_right = (1..=most).contains(&wanted.cqe) && wanted.comp_vector == 0;
    require(is_right, Errno::EINVAL)?;
    let queue = adapter.device.create_queue(wanted.cqe).map_err(refused)?;
    let number = queue.number();
    let mut c: ibv_cq_ex = zeroed();
    c.context = context.pointer();
    c.channel = wanted.channel;
    c.cq_context = wanted.cq_context;
    c.handle = number;
    c.cqe = count(wanted.cqe);
    prepare(&mut c);
    let made = Handle::new(
        c,
        Queue {
            adapter: Arc::clone(&adapter),
            queue: RwLock::new(queue),
            channel,
            events: Unacknowledged::default(),
            async_events: AsyncEvents::of(own),
            users: Arc::new(()),
            turns: Turns::default(),
            has_failed: AtomicBool::new(false),
        },
    );
    let notify = move |_: &ControlEvent| {
        if let Ok(own) = made.get() {
            own.tell(made, number);
        }
    };
    adapter.receive(Subject::Queue(number), Box::new(notify));
    Ok(made)
}

impl Queue {
    /// Takes completions; returns how many.
    ///
    /// # Errors
    /// `EIO`: completions were lost, and the queue failed.
    pub(super) fn poll(&self, most: usize, mut each: impl FnMut(ibv_wc)) -> Result<usize> {
        let device = &self.adapter.device;
        let polled = device.poll(&self.device_queue(), most, |done| {
            each(work_completion(&done));
        });
        if polled == Ok(0) {
            yield_sometimes();
        }
        polled.map_err(|_| Errno::EIO)
    }

    /// Tells the program that there are completions, or once that some are lost.
    fn tell(&self, handle: Handle<Self>, number: u32) {
        if self.adapter.device.has_overrun(number) && !self.has_failed.swap(true, Ordering::AcqRel)
        {
            self.async_events.tell(IBV_EVENT_CQ_ERR, handle);
        }
        self.wake(handle);
    }

    /// Adds an event to the channel, if there is one.
    fn wake(&self, handle: Handle<Self>) {
        if let Some(channel) = &self.channel {
            channel.push(handle);
        }
    }

    /// Returns the queue of the device, which changes with a resize only.
    pub(crate) fn device_queue(&self) -> RwLockReadGuard<'_, DeviceQueue> {
        self.queue.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets other threads run after some empty polls: a peer of this host may need the processor.
fn yield_sometimes() {
    std::thread_local! {
        static EMPTY: Cell<u32> = const { Cell::new(0) };
    }
    let empty = EMPTY.get() + 1;
    if empty < EMPTY_POLLS {
        EMPTY.set(empty);
    } else {
        EMPTY.set(0);
        std::thread::yield_now();
    }
}

/// Returns the status of verbs.
const fn status_of(status: DtoStatus) -> ibv_wc_status {
    match status {
        DtoStatus::Success => IBV_WC_SUCCESS,
        DtoStatus::LocalLength => IBV_WC_LOC_LEN_ERR,
        DtoStatus::LocalEndpoint => IBV_WC_LOC_QP_OP_ERR,
        DtoStatus::LocalProtection => IBV_WC_LOC_PROT_ERR,
        DtoStatus::Flushed => IBV_WC_WR_FLUSH_ERR,
        DtoStatus::RmrOperationFailed => IBV_WC_MW_BIND_ERR,
        DtoStatus::BadResponse => IBV_WC_BAD_RESP_ERR,
        DtoStatus::RemoteResponder => IBV_WC_REM_INV_REQ_ERR,
        DtoStatus::RemoteAccess => IBV_WC_REM_ACCESS_ERR,
        DtoStatus::Transport => IBV_WC_RETRY_EXC_ERR,
        DtoStatus::ReceiverNotReady => IBV_WC_RNR_RETRY_EXC_ERR,
        _ => IBV_WC_GENERAL_ERR,
    }
}

/// Returns the operation of verbs.
const fn opcode_of(opcode: Opcode) -> ibv_wc_opcode {
    match opcode {
        Opcode::Send => IBV_WC_SEND,
        Opcode::Write => IBV_WC_RDMA_WRITE,
        Opcode::Read => IBV_WC_RDMA_READ,
        Opcode::CompareSwap => IBV_WC_COMP_SWAP,
        Opcode::FetchAdd => IBV_WC_FETCH_ADD,
        Opcode::Bind => IBV_WC_BIND_MW,
        Opcode::Invalidate => IBV_WC_LOCAL_INV,
        Opcode::Receive => IBV_WC_RECV,
        Opcode::ReceiveWrite => IBV_WC_RECV_RDMA_WITH_IMM,
    }
}

/// Returns a completion as programs have it.
///
/// Immediate data keeps the order of its bytes, of which programs make what they want.
fn work_completion(done: &DeviceCompletion) -> ibv_wc {
    let mut wc: ibv_wc = zeroed();
    wc.wr_id = done.token;
    wc.status = match done.status {
        DtoStatus::RemoteResponder if done.detail == Detail::PeerFailed => IBV_WC_REM_OP_ERR,
        status => status_of(status),
    };
    wc.opcode = opcode_of(done.opcode);
    wc.byte_len = done.length;
    wc.qp_num = done.qpn;
    if let Some(immediate) = done.immediate {
        wc.__bindgen_anon_1.imm_data = immediate;
        wc.wc_flags |= match done.detail {
            Detail::Invalidated => IBV_WC_WITH_INV,
            _ => IBV_WC_WITH_IMM,
        };
    }
    if let Some(source) = done.source {
        wc.src_qp = source;
        wc.wc_flags |= IBV_WC_GRH;
        // Network cards tell the kind of the network header so, and UCX reads it.
        wc.sl = match done.detail {
            Detail::Ipv4 => 2,
            _ => 1,
        };
    }
    wc
}

pub(crate) extern "C" fn ibv_create_cq(
    context: Handle<Context>,
    depth: c_int,
    cq_context: Address,
    channel: Handle<Channel>,
    vector: c_int,
) -> Handle<Queue> {
    let number = |number: c_int| u32::try_from(number).map_err(|_| Errno::EINVAL);
    or(Handle::NULL, || {
        let mut wanted: ibv_cq_init_attr_ex = zeroed();
        wanted.cqe = number(depth)?;
        wanted.cq_context = cq_context.0;
        wanted.channel = channel.pointer();
        wanted.comp_vector = number(vector)?;
        create(context, &wanted, |_| ())
    })
}

pub(crate) extern "C" fn ibv_resize_cq(queue: Handle<Queue>, depth: c_int) -> c_int {
    code(|| {
        ask_for_memory()?;
        let own = queue.get()?;
        let most = own.adapter.device.attributes().max_evd_qlen;
        require((1..=most).contains(&depth), Errno::EINVAL)?;
        let mut device_queue = own.queue.write().unwrap_or_else(PoisonError::into_inner);
        let resized = own
            .adapter
            .device
            .resize_queue(&mut device_queue, depth.cast_unsigned());
        resized.map_err(refused)?;
        queue.change(|c| c.cqe = depth);
        Ok(())
    })
}

/// Ends a completion queue, after the program has acknowledged all events that it took.
pub(crate) extern "C" fn ibv_destroy_cq(queue: Handle<Queue>) -> c_int {
    code(|| {
        let own = queue.get()?;
        require_unused(&own.users)?;
        let number = own.device_queue().number();
        own.adapter.forget(Subject::Queue(number));
        if let Some(channel) = &own.channel {
            channel.remove(|event| *event == queue);
        }
        own.events.wait();
        own.async_events.end(queue);
        let own = queue.end()?;
        let device_queue = own
            .queue
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        own.adapter.device.destroy_queue(device_queue);
        Ok(())
    })
}

/// `poll_cq` of a context.
pub(crate) extern "C" fn poll_cq(queue: *mut ibv_cq, most: c_int, to: *mut ibv_wc) -> c_int {
    let handle = Handle::<Queue>::at(queue);
    let (Ok(own), Ok(most)) = (handle.trusted(), usize::try_from(most)) else {
        return -1;
    };
    let mut to = Out::at(to);
    let polled = own.poll(most, |done| {
        to.set(done);
        to = to.next();
    });
    match polled {
        Ok(taken) => c_int::try_from(taken).unwrap_or(c_int::MAX),
        Err(_) => -1,
    }
}

/// `req_notify_cq` of a context.
pub(crate) extern "C" fn req_notify_cq(queue: *mut ibv_cq, solicited_only: c_int) -> c_int {
    let handle = Handle::<Queue>::at(queue);
    let Ok(own) = handle.trusted() else {
        return libc::EINVAL;
    };
    own.device_queue().arm(solicited_only != 0);
    // No completion comes any more: who waits for one is to learn so.
    if own.has_failed.load(Ordering::Acquire) {
        own.wake(handle);
    }
    0
}
