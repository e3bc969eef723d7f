//! Devices, domains, regions, windows, channels.

use core::ffi::{CStr, c_char, c_void};
use core::net::Ipv4Addr;
use core::ptr;
use std::collections::VecDeque;

use rdma_sys::{
    _compat_ibv_port_attr, ibv_async_event, ibv_comp_channel, ibv_cq, ibv_device, ibv_device_attr,
    ibv_gid_entry, ibv_mr, ibv_mw, ibv_mw_type, ibv_pd, ibv_port_attr,
};

use super::work::{bind_window, notify, poll, post_receive, post_send, post_shared};
use super::{
    COUNTED, Context, NAMES, Object, Region, SCRIPTED, STRICT, counter, counting, destroy,
    destroy_with, devices, free, pick, raise, script, set_error, state, zeroed,
};

/// The devices, and a null pointer behind them.
type List = [*mut ibv_device; NAMES.len() + 1];

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut i32) -> *mut *mut ibv_device {
    let mut list: Box<List> = Box::new([ptr::null_mut(); NAMES.len() + 1]);
    list[..NAMES.len()].copy_from_slice(&devices());
    // SAFETY: there is room for the count, or the pointer is null.
    unsafe {
        if !count.is_null() {
            *count = NAMES.len() as i32;
        }
    }
    Box::into_raw(list).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: made by `ibv_get_device_list`.
    unsafe { free(list.cast::<List>()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: it is one of the devices.
    unsafe { (&raw const (*device).name).cast() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut Context {
    let context = zeroed::<Context>();
    // SAFETY: just made, and one of the devices.
    let name = unsafe {
        (*context).device = device;
        (*context).async_fd = counter();
        let operations = &mut (*context).ops;
        operations.poll_cq = Some(poll);
        operations.req_notify_cq = Some(notify);
        operations.post_send = Some(post_send);
        operations.post_recv = Some(post_receive);
        operations.post_srq_recv = Some(post_shared);
        operations.alloc_mw = Some(make_window);
        operations.dealloc_mw = Some(free_window);
        operations.bind_mw = Some(bind_window);
        CStr::from_ptr(ibv_get_device_name(device)).to_bytes()
    };
    let script = script::of(context, name == STRICT.as_bytes());
    // SAFETY: as above.
    let operations = unsafe { &mut (*context).ops };
    if name == SCRIPTED.as_bytes() {
        script::take_over(operations);
    } else if name == COUNTED.as_bytes() {
        script::take_over(operations);
        counting::take_over(operations);
    }
    state().insert(context as usize, Object::Context(script));
    context
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut Context) -> i32 {
    let mut state = state();
    let events = std::mem::take(&mut state.asynchronous).into_iter();
    let (own, others): (VecDeque<_>, _) = events.partition(|(of, ..)| *of == context as usize);
    state.asynchronous = others;
    for (_, _, element) in own {
        state.forget_element(element);
    }
    // SAFETY: made by `ibv_open_device`, with a descriptor.
    unsafe { destroy_with(&mut state, context, (*context).async_fd) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(context: *mut Context, into: *mut ibv_device_attr) -> i32 {
    let state = state();
    let known = state.objects.get(&(context as usize));
    let Some(Object::Context(script)) = known else {
        panic!("used as a device: {known:?}");
    };
    // SAFETY: there is room for the answer.
    let attributes = unsafe { &mut *into };
    let [one, two] = [1 << 17, 1 << 24];
    let both = !script.is_strict;
    attributes.max_mr_size = 1 << 40;
    attributes.vendor_id = if script.is_strict { 0xFF_FFFF } else { 0x02C9 };
    attributes.max_qp = 64;
    attributes.max_qp_wr = 256;
    attributes.device_cap_flags = match state.oddities.second_windows {
        _ if both => one | two,
        true => two,
        false => one,
    };
    attributes.max_sge = 8;
    attributes.max_sge_rd = 8;
    attributes.max_cq = 64;
    attributes.max_cqe = 1024;
    attributes.max_mr = 64;
    attributes.max_pd = 16;
    attributes.max_qp_rd_atom = 16;
    attributes.max_res_rd_atom = 1024;
    attributes.max_qp_init_rd_atom = 16;
    attributes.max_mw = 64;
    attributes.max_srq = 8;
    attributes.max_srq_wr = 256;
    attributes.max_srq_sge = 8;
    attributes.phys_port_cnt = 1;
    if let Some((which, number)) = state.oddities.attribute {
        let words: [&mut i32; 13] = [
            &mut attributes.max_qp,
            &mut attributes.max_qp_wr,
            &mut attributes.max_sge,
            &mut attributes.max_sge_rd,
            &mut attributes.max_cq,
            &mut attributes.max_cqe,
            &mut attributes.max_mr,
            &mut attributes.max_pd,
            &mut attributes.max_qp_rd_atom,
            &mut attributes.max_qp_init_rd_atom,
            &mut attributes.max_mw,
            &mut attributes.max_srq,
            &mut attributes.max_srq_wr,
        ];
        *words[usize::from(which) % 13] = number;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(
    _context: *mut Context,
    _port: u8,
    into: *mut _compat_ibv_port_attr,
) -> i32 {
    // SAFETY: there is room for the first fields at least.
    unsafe {
        let attributes = into.cast::<ibv_port_attr>();
        (*attributes).state = rdma_sys::ibv_port_state::IBV_PORT_ACTIVE;
        (*attributes).active_mtu = 5;
        (*attributes).max_msg_sz = 1 << 30;
    }
    0
}

/// Reports the address of the loopback interface.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_table(
    _context: *mut Context,
    entries: *mut ibv_gid_entry,
    room: usize,
    _flags: u32,
    _size: usize,
) -> isize {
    assert!(room > 0);
    // SAFETY: there is room for one entry.
    unsafe {
        let first = &mut *entries;
        first.gid_index = 0;
        first.port_num = 1;
        first.gid_type = 2;
        first.ndev_ifindex = 1;
        first.gid.raw = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
    }
    1
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(context: *mut Context) -> *mut ibv_comp_channel {
    let mut state = state();
    if state.refuses().is_some() {
        return ptr::null_mut();
    }
    let channel = zeroed::<ibv_comp_channel>();
    // SAFETY: just made.
    unsafe {
        (*channel).context = context;
        (*channel).fd = counter();
    }
    let context = context as usize;
    state.insert(channel as usize, Object::Channel { context });
    channel
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> i32 {
    // SAFETY: made by `ibv_create_comp_channel`, with a descriptor.
    unsafe { destroy_with(&mut state(), channel, (*channel).fd) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    queue: *mut *mut ibv_cq,
    context: *mut *mut c_void,
) -> i32 {
    let mut state = state();
    let is_channel = |object: &Object| matches!(object, Object::Channel { .. });
    state.is(channel as usize, is_channel);
    let notified = std::mem::take(&mut state.notified);
    let (mut own, others): (VecDeque<usize>, _) = notified
        .into_iter()
        .partition(|queue| state.queue(*queue).channel == channel as usize);
    let next = own.pop_front();
    state.notified = own.into_iter().chain(others).collect();
    let Some(notified) = next else {
        set_error(libc::EAGAIN);
        return -1;
    };
    // SAFETY: a destroyed queue removes its notifications, so this one lives; there is room for
    // both answers.
    unsafe {
        *queue = notified as *mut ibv_cq;
        *context = (*(*queue)).cq_context;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(queue: *mut ibv_cq, _count: u32) {
    state().queue(queue as usize);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut Context) -> *mut ibv_pd {
    let mut state = state();
    if state.refuses().is_some() {
        return ptr::null_mut();
    }
    let domain = zeroed::<ibv_pd>();
    // SAFETY: just made.
    unsafe { (*domain).context = context };
    let context = context as usize;
    state.insert(domain as usize, Object::Domain { context });
    domain
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(domain: *mut ibv_pd) -> i32 {
    // SAFETY: made by `ibv_alloc_pd`.
    unsafe { destroy(&mut state(), domain) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(
    domain: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: i32,
) -> *mut ibv_mr {
    let mut state = state();
    state.is(domain as usize, |object| {
        matches!(object, Object::Domain { .. })
    });
    if state.refuses().is_some() {
        return ptr::null_mut();
    }
    let key = state.count() as u32 * 0x101;
    let region = zeroed::<ibv_mr>();
    // SAFETY: just made.
    unsafe {
        (*region).pd = domain;
        (*region).context = (*domain).context;
        (*region).lkey = key;
        (*region).rkey = key;
    }
    let known = Region {
        domain: domain as usize,
        address: address as u64,
        length: length as u64,
        access: access as u32,
        key,
    };
    state.insert(region as usize, Object::Region(known));
    region
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(region: *mut ibv_mr) -> i32 {
    // SAFETY: made by `ibv_reg_mr`.
    unsafe {
        if script::is_open(region) {
            return libc::EBUSY;
        }
        destroy(&mut state(), region);
    }
    0
}

unsafe extern "C" fn make_window(domain: *mut ibv_pd, kind: ibv_mw_type::Type) -> *mut ibv_mw {
    let mut state = state();
    if state.refuses().is_some() {
        return ptr::null_mut();
    }
    let key = (state.count() as u32) << 8;
    let window = zeroed::<ibv_mw>();
    // SAFETY: just made, of a domain that lives.
    unsafe {
        (*window).context = (*domain).context;
        (*window).pd = domain;
        (*window).rkey = key;
        (*window).type_ = kind;
    }
    let domain = domain as usize;
    state.insert(window as usize, Object::Window { domain });
    window
}

unsafe extern "C" fn free_window(window: *mut ibv_mw) -> i32 {
    // SAFETY: made by `make_window`.
    unsafe { destroy(&mut state(), window) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(
    context: *mut Context,
    event: *mut ibv_async_event,
) -> i32 {
    let mut state = state();
    let mut events = state.asynchronous.iter();
    let first = events.position(|(of, _, _)| *of == context as usize);
    let Some((_, kind, element)) = first.and_then(|at| state.asynchronous.remove(at)) else {
        set_error(libc::EAGAIN);
        return -1;
    };
    // SAFETY: there is room for an event; a destroyed object removes its events, so the one named
    // here lives.
    unsafe {
        (&raw mut (*event).event_type).cast::<u32>().write(kind);
        (*event).element.cq = element as *mut ibv_cq;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: an event of `ibv_get_async_event`.
    state().forget_element(unsafe { (*event).element.cq } as usize);
}

const QUEUE_FAILED: u32 = 0;

/// Returns the object of an event of the device.
fn element_of(state: &super::State, kind: u32, which: usize) -> Option<usize> {
    match kind {
        QUEUE_FAILED => pick(&state.queues(), which),
        1..=5 | 7 | 16 => pick(&state.pairs(), which),
        14 | 15 => pick(&state.all_shared(), which),
        _ => Some(1),
    }
}

/// Delivers an asynchronous event that need not have happened.
pub fn report_event(kind: u32, which: usize) {
    let fd = {
        let mut state = state();
        let Some(element) = element_of(&state, kind, which) else {
            return;
        };
        // Completions of a queue that has overrun are lost.
        state.failed |= kind == QUEUE_FAILED;
        let context = state.context();
        state.asynchronous.push_back((context, kind, element));
        let context = context as *mut Context;
        // SAFETY: it is open.
        unsafe { (*context).async_fd }
    };
    raise(fd);
}
