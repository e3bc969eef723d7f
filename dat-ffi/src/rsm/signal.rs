//! Signals: posts and waits.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use dat_rsm::{Result, RsmError, SegmentHandle, SignalFlags};

use super::process::{Opened, site_of, with_site};
use super::site::locked;
use super::{Code, code, named};
use crate::boundary::{Blocked, Flag, guarded, has_memory, in_steps};
use crate::handles::CHandle;

/// Returns a segment, exported or imported, and its site.
///
/// # Errors
/// BAD_SEG_HNDL: the handle names no segment of this process.
pub(super) fn segment(handle: CHandle) -> Result<(&'static Opened, SegmentHandle)> {
    let handle = named(handle);
    let segment = SegmentHandle::from_handle(handle).ok_or(RsmError::BadSegmentHandle)?;
    Ok((site_of(handle, RsmError::BadSegmentHandle)?, segment))
}

/// Returns the end of a timeout in milliseconds; `None`, for ever, if it is negative.
pub(super) fn until(timeout: i32) -> Option<Instant> {
    let milliseconds = u64::try_from(timeout).ok()?;
    Instant::now().checked_add(Duration::from_millis(milliseconds))
}

/// `rsm_intr_signal_post`.
///
/// Spec: RSMSG-01..06
pub fn signal_post(handle: CHandle, flags: u32) -> Code {
    code(|| {
        let (opened, segment) = segment(handle)?;
        let flags = SignalFlags::from_bits_retain(flags);
        with_site!(opened, site => {
            if !has_memory() {
                site.engine.signal_pending(segment)?;
                return Err(RsmError::InsufficientResources);
            }
            site.sleeping(|wait| site.engine.signal_post(segment, flags, wait))
        })
    })
}

/// `rsm_intr_signal_wait`.
///
/// Spec: RSMSG-02, RSMSG-07, RSMSG-08
pub extern "C-unwind" fn signal_wait(handle: CHandle, timeout: i32) -> Code {
    let until = until(timeout);
    guarded((None, None), |(watch, signals)| {
        in_steps(|| {
            let slice = slice(until);
            let returned = code(|| {
                let (opened, segment) = segment(handle)?;
                with_site!(opened, site => {
                    site.hurry();
                    let take = || site.engine.signal_take(segment);
                    let taken = site.waiters.wait(watch, signals, Some(slice), take);
                    // The signal that was taken is no longer pending.
                    site.look_at(segment);
                    taken
                })
            });
            ends(returned, slice, until).then_some(returned)
        })
    })
}

/// Longest sleep between two checks whether the thread was cancelled.
const SLICE: Duration = Duration::from_millis(100);

/// Returns the earlier of `until` and the time of the next check for cancellation.
pub(super) fn slice(until: Option<Instant>) -> Instant {
    let slice = Instant::now() + SLICE;
    until.map_or(slice, |until| until.min(slice))
}

/// Returns true if a wait is over after a slice of it returned this code.
pub(super) fn ends(returned: Code, slice: Instant, until: Option<Instant>) -> bool {
    returned != RsmError::TimedOut.code() || until == Some(slice)
}

/// Threads that wait for signals.
///
/// Each sleeps on a descriptor of its own, so that a signal of the system ends the sleep.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<Flags>);

#[derive(Debug, Default)]
struct Flags {
    last: u64,
    waiting: BTreeMap<u64, Flag>,
    idle: Vec<Flag>,
}

impl Waiters {
    /// Wakes all waiting threads after a possible change.
    pub(super) fn tell(&self) {
        for flag in locked(&self.0).waiting.values_mut() {
            flag.set(true);
        }
    }

    /// Takes a descriptor to sleep on.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES: there are no descriptors left.
    fn watch(&self) -> Result<Watch<'_>> {
        let mut flags = locked(&self.0);
        let flag = match flags.idle.pop() {
            Some(flag) => flag,
            None => Flag::new().map_err(|_| RsmError::InsufficientResources)?,
        };
        flags.last = flags.last.wrapping_add(1);
        let number = flags.last;
        let descriptor = flag.descriptor();
        flags.waiting.insert(number, flag);
        Ok(Watch {
            waiters: self,
            number,
            descriptor,
        })
    }

    /// Sleeps until there is a signal to take; the first sleep fills in `watch` and `signals`.
    ///
    /// # Errors
    /// - TIMEOUT: the time is over.
    /// - INTERRUPTED: a signal of the system arrived.
    /// - INSUFFICIENT_RESOURCES: there is no descriptor left for the first sleep.
    /// - Those of `take`.
    fn wait<'w>(
        &'w self,
        watch: &mut Option<Watch<'w>>,
        signals: &mut Option<Blocked>,
        until: Option<Instant>,
        take: impl Fn() -> Result<bool>,
    ) -> Result<()> {
        if take()? {
            return Ok(());
        }
        let signals = signals.get_or_insert_with(Blocked::new);
        let watch = match watch {
            Some(watch) => watch,
            None => watch.insert(self.watch()?),
        };
        loop {
            // Lowered before `take`: a signal that arrives afterwards raises it again.
            watch.lower();
            if take()? {
                return Ok(());
            }
            match signals.wait_for(watch.descriptor, until) {
                Ok(true) => {}
                Ok(false) if take()? => return Ok(()),
                Ok(false) => return Err(RsmError::TimedOut),
                Err(_) => return Err(RsmError::Interrupted),
            }
        }
    }
}

/// The descriptor that a thread sleeps on, kept until this is dropped.
///
/// The process may have no descriptors for another one later.
#[derive(Debug)]
struct Watch<'w> {
    waiters: &'w Waiters,
    number: u64,
    descriptor: RawFd,
}

impl Watch<'_> {
    fn lower(&self) {
        let mut flags = locked(&self.waiters.0);
        if let Some(flag) = flags.waiting.get_mut(&self.number) {
            flag.set(false);
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut flags = locked(&self.waiters.0);
        if let Some(mut flag) = flags.waiting.remove(&self.number) {
            flag.set(false);
            flags.idle.push(flag);
        }
    }
}
