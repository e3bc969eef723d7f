//! Calls as programs make them, on the adapter of the test's process.

mod completion;
mod connection;
mod drains;
mod managed;
mod memory;
pub(crate) mod pairs;
pub(crate) mod posts;
mod queries;
mod windows;

use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};

use crate::boundary::layout::ibv_async_event;
use crate::boundary::{Handle, Out, zeroed};
use crate::context::Context;
use crate::device::device;
use crate::opening::{ibv_close_device, ibv_get_async_event, ibv_open_device};

/// A context that is closed at the end.
pub(crate) struct Opened(pub(crate) Handle<Context>);

impl Opened {
    pub(crate) fn new() -> Self {
        let context = ibv_open_device(device());
        assert!(!context.is_null(), "{}", Errno::last());
        let own = context.get().expect("a context");
        fcntl_setfl(&*own.async_events, OFlags::NONBLOCK).expect("flags");
        Self(context)
    }

    /// Takes an asynchronous event.
    pub(crate) fn event(&self) -> Result<ibv_async_event, Errno> {
        let mut event: ibv_async_event = zeroed();
        match ibv_get_async_event(self.0, Out::at(&raw mut event)) {
            0 => Ok(event),
            failed => Err(refusal(failed)),
        }
    }

    /// Waits for an asynchronous event.
    pub(crate) fn awaited(&self) -> ibv_async_event {
        let own = self.0.get().expect("a context");
        poll(&mut [PollFd::new(&*own.async_events, PollFlags::IN)], None).expect("a poll");
        self.event().expect("an event")
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        assert_eq!(ibv_close_device(self.0), 0);
    }
}

/// Expects -1, and returns the error.
fn refusal(result: i32) -> Errno {
    assert_eq!(result, -1);
    Errno::last()
}

macro_rules! functions {
    (@ $name:ident = $module:ident) => { crate::$module::$name as *const () };
    (@ $name:ident : $refusal:ident) => { crate::refusals::$refusal as *const () };
    (
        $($version:literal { $($how:ident $sign:tt $($name:ident)*;)* })*
        old { $($old:literal { $($refusal:ident : $($old_name:ident)*;)* })* }
    ) => {
        vec![
            $($($((stringify!($name), functions!(@ $name $sign $how)),)*)*)*
            $($($((
                concat!(stringify!($old_name), "@", $old),
                functions!(@ $old_name : $refusal),
            ),)*)*)*
        ]
    };
}

#[test]
fn each_function_is_listed_once() {
    let mut functions: Vec<(&str, *const ())> = crate::list::calls_of_verbs!(functions);
    assert!(functions.len() > 150, "{}", functions.len());
    let count = functions.len();
    functions.sort_by_key(|(name, _)| *name);
    functions.dedup_by_key(|(name, _)| *name);
    assert_eq!(functions.len(), count);
}

#[test]
fn what_is_not_supported_is_told_as_the_function_tells_errors() {
    use crate::refusals::{code, minus, null};
    let expect = |is_told: bool| {
        assert!(is_told);
        assert_eq!(Errno::last(), Errno::EOPNOTSUPP);
        Errno::clear();
    };
    expect(null().is_null());
    expect(minus() == -1);
    expect(code() == libc::EOPNOTSUPP);
}

#[test]
fn threads_make_and_end_objects_at_the_same_time() {
    use crate::boundary::Address;
    use crate::completion::{
        ibv_create_comp_channel, ibv_create_cq, ibv_destroy_comp_channel, ibv_destroy_cq,
    };
    use crate::memory::{ibv_alloc_pd, ibv_dealloc_pd, ibv_dereg_mr, ibv_reg_mr};
    let context = Opened::new();
    let handle = context.0;
    let work = || {
        let memory = [0_u8; 64];
        let start = Address(memory.as_ptr().cast_mut().cast());
        for _ in 0..100 {
            let domain = ibv_alloc_pd(handle);
            let region = ibv_reg_mr(domain, start, 64, 7);
            let channel = ibv_create_comp_channel(handle);
            let queue = ibv_create_cq(handle, 8, start, channel, 0);
            assert_eq!(ibv_destroy_comp_channel(channel), libc::EBUSY);
            assert_eq!(ibv_destroy_cq(queue), 0);
            assert_eq!(ibv_destroy_comp_channel(channel), 0);
            assert_eq!(ibv_dealloc_pd(domain), libc::EBUSY);
            assert_eq!(ibv_dereg_mr(region), 0);
            assert_eq!(ibv_dealloc_pd(domain), 0);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(work);
        }
    });
}
