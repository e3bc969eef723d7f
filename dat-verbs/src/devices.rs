//! The list of devices, their contexts, and asynchronous events.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int, c_uint};
use core::mem::offset_of;
use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock, PoisonError};

use backend_roce::proto::packet::NakCode;

use crate::c::{self, Shared};
use crate::layout::*;
use crate::objects::{self, Kind, Object, Users};
use crate::process::{self, Process};
use crate::{posts, queues, shared};

/// The GUID of the device, in the order of the wire: locally administered, and ours (ROCE-48).
const GUID: u64 = 0x0244_4154_0000_0001_u64.to_be();

/// An open device. The program knows the end of its first part.
#[repr(C)]
pub(crate) struct Context {
    base: Shared<verbs_context>,
    pub(crate) process: &'static Process,
    events: Mutex<VecDeque<ibv_async_event>>,
    users: Users,
}

/// Asynchronous events of open contexts go to all of them.
static CONTEXTS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

impl Object for Context {
    type C = verbs_context;
    const KIND: Kind = Kind::Context;

    fn users(&self) -> &Users {
        &self.users
    }
}

/// Returns the whole of a context.
fn whole(context: *mut ibv_context) -> *mut verbs_context {
    context
        .wrapping_byte_sub(offset_of!(verbs_context, context))
        .cast()
}

/// Returns a live context.
pub(crate) fn find<'a>(context: *mut ibv_context) -> Result<&'a Context, c_int> {
    objects::find(whole(context))
}

impl Context {
    /// Returns the part that the program knows.
    pub(crate) fn pointer(&self) -> *mut ibv_context {
        let base = self.base.0.get();
        base.wrapping_byte_add(offset_of!(verbs_context, context))
            .cast()
    }

    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    fn descriptor(&self) -> c_int {
        c::with(&self.base.0, |base| base.context.async_fd)
    }

    /// Tells the program of an asynchronous event.
    pub(crate) fn tell(&self, event: ibv_async_event) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push_back(event);
        c::count_up(self.descriptor());
    }

    /// Withdraws the events of an object that goes.
    pub(crate) fn withdraw(&self, is_of: impl Fn(&ibv_async_event) -> bool) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let before = events.len();
        events.retain(|event| !is_of(event));
        for _ in events.len()..before {
            c::count_back(self.descriptor());
        }
    }
}

/// Tells of a queue pair whose responder has refused a request.
pub(crate) fn tell_fault(process: &Process, qpn: u32) {
    let kind = match process.device.fault(qpn) {
        Some(NakCode::RemoteAccess) => IBV_EVENT_QP_ACCESS_ERR,
        Some(NakCode::InvalidRequest) => IBV_EVENT_QP_REQ_ERR,
        Some(_) => IBV_EVENT_QP_FATAL,
        None => return,
    };
    crate::pairs::tell(qpn, kind);
}

fn device() -> *mut ibv_device {
    static DEVICE: OnceLock<usize> = OnceLock::new();
    let made = DEVICE.get_or_init(|| {
        let mut device: ibv_device = c::zeroed();
        device.node_type = IBV_NODE_CA;
        device.transport_type = IBV_TRANSPORT_IB;
        let copy = |place: &mut [c_char], text: &str| {
            for (place, byte) in place.iter_mut().zip(text.bytes()) {
                *place = byte as c_char;
            }
        };
        copy(&mut device.name, "dat0");
        copy(&mut device.dev_name, "uverbs0");
        copy(&mut device.dev_path, "/sys/class/infiniband_verbs/uverbs0");
        copy(&mut device.ibdev_path, "/sys/class/infiniband/dat0");
        c::give(Box::new(device)) as usize
    });
    core::ptr::with_exposed_provenance_mut(*made)
}

pub(crate) extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    c::put(count, 1);
    c::give(Box::new([device(), core::ptr::null_mut()])).cast()
}

pub(crate) extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    if !list.is_null() {
        drop(c::take(list.cast::<[*mut ibv_device; 2]>()));
    }
}

pub(crate) extern "C" fn get_device_name(device: *mut ibv_device) -> *const c_char {
    c::get(device).map_or(core::ptr::null(), |device| device.name.as_ptr())
}

pub(crate) extern "C" fn get_device_index(_: *mut ibv_device) -> c_int {
    0
}

pub(crate) extern "C" fn get_device_guid(_: *mut ibv_device) -> u64 {
    GUID
}

/// The functions that inline code of the headers calls; a null one is one that the device lacks.
fn context_operations() -> ibv_context_ops {
    let empty: ibv_context = c::zeroed();
    ibv_context_ops {
        poll_cq: Some(queues::poll_cq),
        req_notify_cq: Some(queues::req_notify_cq),
        post_srq_recv: Some(shared::post_srq_recv),
        post_send: Some(posts::post_send),
        post_recv: Some(posts::post_recv),
        ..empty.ops
    }
}

fn open(device: *mut ibv_device) -> Result<*mut ibv_context, c_int> {
    let process = process::open()?;
    let async_fd = c::counter()?;
    let mut whole: verbs_context = c::zeroed();
    whole.query_port = Some(crate::ports::query_port_whole);
    whole.create_qp_ex = Some(crate::pairs::create_qp_ex);
    whole.create_cq_ex = Some(queues::create_cq_ex);
    whole.sz = size_of::<verbs_context>();
    whole.context.device = device;
    whole.context.ops = context_operations();
    whole.context.cmd_fd = -1;
    whole.context.async_fd = async_fd;
    whole.context.num_comp_vectors = 1;
    // The mark of a context with a whole around it.
    whole.context.abi_compat = core::ptr::without_provenance_mut(usize::MAX);
    let context = objects::publish(Box::new(Context {
        base: Shared(UnsafeCell::new(whole)),
        process,
        events: Mutex::default(),
        users: Users::default(),
    }));
    let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    contexts.push(context as usize);
    let offset = offset_of!(verbs_context, context);
    Ok(context.wrapping_byte_add(offset).cast())
}

pub(crate) extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    c::pointer(open(device))
}

/// The manual promises no error for a context in use: it stays then, and so do its objects.
pub(crate) extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    match objects::retire::<Context>(whole(context)) {
        Ok(context) => {
            let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
            let address = (&raw const *context) as usize;
            contexts.retain(|one| *one != address);
            c::close(context.descriptor());
            0
        }
        Err(libc::EBUSY) => 0,
        Err(code) => c::fails(code),
    }
}

pub(crate) extern "C" fn get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let Ok(context) = find(context) else {
        return c::fails(libc::EINVAL);
    };
    loop {
        if let Err(code) = c::count_down(context.descriptor()) {
            return c::fails(code);
        }
        let mut events = context
            .events
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = events.pop_front() {
            c::put(event, next);
            return 0;
        }
    }
}

/// Objects go without a wait for their asynchronous events: each event names a live object when
/// the program takes it.
pub(crate) extern "C" fn ack_async_event(_: *mut ibv_async_event) {}

pub(crate) extern "C" fn query_device(
    context: *mut ibv_context,
    out: *mut ibv_device_attr,
) -> c_int {
    let Ok(context) = find(context) else {
        return libc::EINVAL;
    };
    let limits = context.process.device.limits();
    let count = |count: u32| c_int::try_from(count).unwrap_or(c_int::MAX);
    let mut attr: ibv_device_attr = c::zeroed();
    for (place, byte) in attr
        .fw_ver
        .iter_mut()
        .zip(env!("CARGO_PKG_VERSION").bytes())
    {
        *place = byte as c_char;
    }
    attr.node_guid = GUID;
    attr.sys_image_guid = GUID;
    attr.max_mr_size = u64::MAX;
    attr.page_size_cap = 0xFFFF_F000;
    attr.max_qp = count(limits.pairs);
    attr.max_qp_wr = count(limits.work_requests);
    attr.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID;
    attr.max_sge = count(limits.segments);
    attr.max_sge_rd = count(limits.segments);
    attr.max_cq = count(limits.queues);
    attr.max_cqe = count(limits.completions);
    attr.max_mr = count(limits.regions);
    attr.max_pd = count(limits.domains);
    attr.max_qp_rd_atom = count(limits.reads);
    attr.max_res_rd_atom = count(limits.reads.saturating_mul(limits.pairs));
    attr.max_qp_init_rd_atom = count(limits.reads);
    attr.atomic_cap = IBV_ATOMIC_HCA;
    // They are memory of this library.
    attr.max_ah = c_int::MAX;
    attr.max_srq = count(limits.shared_queues);
    attr.max_srq_wr = count(limits.shared_receives);
    attr.max_srq_sge = count(limits.segments);
    attr.max_pkeys = 1;
    attr.phys_port_cnt = 1;
    c::put(out, attr);
    0
}

pub(crate) extern "C" fn fork_init() -> c_int {
    0
}

/// Memory that the adapter copies is not pinned, so a child may have it.
pub(crate) extern "C" fn is_fork_initialized() -> c_uint {
    IBV_FORK_UNNEEDED
}
