//! Completion queues and channels.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use dat_core::backend::ControlEvent;
use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};

use super::posts::Bed;
use super::{Opened, refusal};
use crate::boundary::layout::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL, IBV_SEND_SIGNALED, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
    IBV_WR_SEND, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr,
    ibv_send_wr, ibv_wc,
};
use crate::boundary::{Address, Handle, In, Out, element_of, zeroed};
use crate::completion::{
    Channel, Queue, create_cq_ex, ibv_ack_cq_events, ibv_create_comp_channel, ibv_create_cq,
    ibv_destroy_comp_channel, ibv_destroy_cq, ibv_get_cq_event, ibv_resize_cq, poll_cq,
    req_notify_cq,
};
use crate::opening::ibv_ack_async_event;
use crate::transfer::Pair;

const NO_CONTEXT: Address = Address(null_mut());

/// Returns true if the descriptor of a channel polls as readable.
fn is_readable(channel: Handle<Channel>) -> bool {
    let own = channel.get().expect("a channel");
    let mut set = [PollFd::new(&*own.events, PollFlags::IN)];
    poll(&mut set, Some(&Timespec::default())).expect("a poll") == 1
}

/// Takes an event, and returns the queue and its context.
fn event(channel: Handle<Channel>) -> Result<(Handle<Queue>, *mut c_void), Errno> {
    let mut queue = Handle::NULL;
    let mut context = NO_CONTEXT;
    match ibv_get_cq_event(channel, Out::at(&raw mut queue), Out::at(&raw mut context)) {
        0 => Ok((queue, context.0)),
        failed => Err(refusal(failed)),
    }
}

/// Raises the event of a queue, as the adapter does.
fn complete(queue: Handle<Queue>) {
    let number = queue.read().expect("a queue").handle;
    let event = ControlEvent::Completions { queue: number };
    crate::adapter::adapter().expect("an adapter").tell(&event);
}

#[test]
fn a_queue_is_made_with_what_the_device_allows() {
    let context = Opened::new();
    let make = |depth, vector| ibv_create_cq(context.0, depth, NO_CONTEXT, Handle::NULL, vector);
    for (depth, vector) in [(0, 0), (-1, 0), (c_int::MAX, 0), (8, 1), (8, -1)] {
        assert!(make(depth, vector).is_null(), "{depth} {vector}");
        assert_eq!(Errno::last(), Errno::EINVAL);
    }
    let queue = make(8, 0);
    assert_eq!(queue.read().map(|c| c.cqe), Ok(8));
    assert_eq!(ibv_resize_cq(queue, 100), 0);
    assert_eq!(queue.read().map(|c| c.cqe), Ok(100));
    assert_eq!(ibv_resize_cq(queue, 0), libc::EINVAL);
    let structure: *mut ibv_cq = queue.pointer();
    let mut wc: ibv_wc = zeroed();
    for _ in 0..100 {
        assert_eq!(poll_cq(structure, 1, &raw mut wc), 0);
    }
    assert_eq!(req_notify_cq(structure, 0), 0);
    assert_eq!(ibv_destroy_cq(queue), 0);
    assert_eq!(ibv_destroy_cq(queue), libc::EINVAL, "a second time");
    assert_eq!(poll_cq(null_mut(), 1, &raw mut wc), -1);
}

#[test]
fn a_channel_tells_which_queue_has_completions() {
    let context = Opened::new();
    let channel = ibv_create_comp_channel(context.0);
    let own = channel.get().expect("a channel");
    fcntl_setfl(&*own.events, OFlags::NONBLOCK).expect("flags");
    let mark = 7_u8;
    let mark = Address((&raw const mark).cast_mut().cast());
    let queue = ibv_create_cq(context.0, 8, mark, channel, 0);
    let other = ibv_create_cq(context.0, 8, NO_CONTEXT, channel, 0);
    assert_eq!(ibv_destroy_comp_channel(channel), libc::EBUSY);
    assert!(!is_readable(channel));
    assert_eq!(event(channel), Err(Errno::EAGAIN));
    complete(queue);
    complete(other);
    assert!(is_readable(channel));
    assert!(event(channel) == Ok((queue, mark.0)));
    // Events of a queue end with it, if nobody took them.
    assert_eq!(ibv_destroy_cq(other), 0);
    assert!(!is_readable(channel));
    ibv_ack_cq_events(queue, 1);
    assert_eq!(ibv_destroy_cq(queue), 0);
    assert_eq!(ibv_destroy_comp_channel(channel), 0);
    assert_eq!(ibv_destroy_comp_channel(channel), libc::EINVAL);
}

#[test]
fn a_queue_ends_when_its_events_are_acknowledged() {
    let context = Opened::new();
    let channel = ibv_create_comp_channel(context.0);
    let queue = ibv_create_cq(context.0, 8, NO_CONTEXT, channel, 0);
    complete(queue);
    complete(queue);
    for _ in 0..2 {
        assert!(event(channel).is_ok());
    }
    std::thread::scope(|scope| {
        let end = scope.spawn(move || ibv_destroy_cq(queue));
        ibv_ack_cq_events(queue, 1);
        assert!(queue.get().is_ok(), "an event is not acknowledged");
        ibv_ack_cq_events(queue, 1);
        assert_eq!(end.join().expect("the end"), 0);
    });
    assert_eq!(ibv_destroy_comp_channel(channel), 0);
}

#[test]
fn an_extended_queue_is_polled_in_turns() {
    let context = Opened::new();
    let structure: *mut ibv_context = context.0.pointer();
    let mut wanted: ibv_cq_init_attr_ex = zeroed();
    wanted.cqe = 8;
    wanted.wc_flags = u64::from(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
    assert!(create_cq_ex(structure, &raw mut wanted).is_null());
    assert_eq!(Errno::last(), Errno::EOPNOTSUPP);
    wanted.wc_flags = 0;
    let queue: *mut ibv_cq_ex = create_cq_ex(structure, &raw mut wanted);
    let handle = Handle::<Queue>::at(queue);
    let c = handle.read().expect("a queue");
    assert!(c.read_byte_len.is_some() && c.read_completion_ts.is_none());
    let mut attributes = ibv_poll_cq_attr { comp_mask: 0 };
    // An empty poll ends its turn: the next one begins.
    for _ in 0..2 {
        let polled = crate::completion::start_poll(queue, &raw mut attributes);
        assert_eq!(polled, libc::ENOENT);
    }
    attributes.comp_mask = 1;
    let refused = crate::completion::start_poll(queue, &raw mut attributes);
    assert_eq!(refused, libc::EINVAL);
    assert_eq!(ibv_destroy_cq(handle), 0);
}

#[test]
fn a_queue_that_loses_completions_tells_everybody_at_once() {
    let context = Opened::new();
    let channel = ibv_create_comp_channel(context.0);
    let bed = Bed::of(context, 1, channel);
    assert_eq!(bed.receive(0), 0);
    let mut request: ibv_send_wr = zeroed();
    (request.opcode, request.send_flags) = (IBV_WR_SEND, IBV_SEND_SIGNALED);
    // Two completions, for one place; nobody polls, and the queue is not armed.
    assert_eq!(bed.send(request).0, 0);
    let first = bed.context.awaited();
    assert_eq!(first.event_type, IBV_EVENT_CQ_ERR);
    assert!(element_of::<Queue>(&first) == bed.queue);
    let second = bed.context.awaited();
    assert_eq!(second.event_type, IBV_EVENT_QP_FATAL);
    assert!(element_of::<Pair>(&second) == bed.pair);
    // A program that arms it then is told, too.
    let structure: *mut ibv_cq = bed.queue.pointer();
    for _ in 0..2 {
        assert!(event(channel) == Ok((bed.queue, null_mut())));
        assert_eq!(req_notify_cq(structure, 0), 0);
    }
    let mut wc: ibv_wc = zeroed();
    assert_eq!(poll_cq(structure, 1, &raw mut wc), 1);
    for _ in 0..2 {
        assert_eq!(poll_cq(structure, 1, &raw mut wc), -1);
    }
    assert_eq!(bed.context.event().err(), Some(Errno::EAGAIN));
    for event in [first, second] {
        ibv_ack_async_event(In::at(&raw const event));
    }
    ibv_ack_cq_events(bed.queue, 2);
    bed.close();
    assert_eq!(ibv_destroy_comp_channel(channel), 0);
}
