//! Descriptors that are readable while a signal is pending.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Instant;

use dat_core::sync::HostLock;
use dat_rsm::{Result, Rsm, RsmError, SegmentHandle};
use libc::{EINTR, EINVAL, POLLRDNORM, pollfd};

use super::process::{Opened, Process, with_site};
use super::signal::{ends, segment, slice, until};
use super::{Code, check_heap, code, required};
use crate::adapter::Openable;
use crate::boundary::{Access, Blocked, Flag, Out, guarded, in_steps};
use crate::handles::CHandle;

/// Maximum number of descriptors in a call; the system's own limit is lower.
const MOST: u64 = 1 << 20;

/// A polled segment.
#[derive(Debug)]
pub(super) struct Polled {
    segment: SegmentHandle,
    flag: Flag,
    references: u32,
}

impl Polled {
    /// Raises or lowers the descriptor by the segment's state; returns false if the segment is
    /// gone.
    pub(super) fn follow<B: Openable>(&mut self, engine: &Rsm<'static, B, HostLock>) -> bool {
        let pending = engine.signal_pending(self.segment);
        self.flag.set(pending == Ok(true));
        pending.is_ok()
    }
}

/// `rsm_memseg_get_pollfd`.
///
/// Spec: RSMPF-01, RSMPF-02, RSMPF-04
pub fn get_pollfd(handle: CHandle, entry: Out<pollfd>) -> Code {
    code(|| {
        let (opened, segment) = segment(handle)?;
        with_site!(opened, site => {
            site.engine.signal_pending(segment)?;
            let output = required(entry, RsmError::BadAddress)?;
            check_heap()?;
            let mut polled = site.polled();
            site.engine.acquire_poll(segment)?;
            let polled = match polled.entry(segment.handle().to_raw()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(vacant) => match Flag::new() {
                    Ok(flag) => vacant.insert(Polled { segment, flag, references: 0 }),
                    Err(_) => {
                        site.engine.release_poll(segment)?;
                        return Err(RsmError::InsufficientMemory);
                    }
                },
            };
            polled.references = polled.references.saturating_add(1);
            polled.follow(&site.engine);
            output.put(pollfd {
                fd: polled.flag.descriptor(),
                events: POLLRDNORM,
                revents: 0,
            });
            Ok(())
        })
    })
}

/// `rsm_memseg_release_pollfd`.
///
/// Spec: RSMPF-03
pub fn release_pollfd(handle: CHandle) -> Code {
    code(|| {
        let (opened, segment) = segment(handle)?;
        with_site!(opened, site => {
            let mut polled = site.polled();
            site.engine.release_poll(segment)?;
            if let Entry::Occupied(mut known) = polled.entry(segment.handle().to_raw()) {
                let references = &mut known.get_mut().references;
                *references = references.saturating_sub(1);
                if *references == 0 {
                    known.remove();
                }
            }
            Ok(())
        })
    })
}

/// Returns the polled segments of this process, by their descriptors.
fn segments(process: Option<&'static Process>) -> BTreeMap<i32, (&'static Opened, SegmentHandle)> {
    let sites = process.into_iter().flat_map(Process::sites);
    sites
        .flat_map(|opened| {
            let of = |it: &Polled| (it.flag.descriptor(), (opened, it.segment));
            with_site!(opened, site => site.polled().values().map(of).collect::<Vec<_>>())
        })
        .collect()
}

/// Takes a signal of a segment, if one is left.
fn take((opened, segment): (&'static Opened, SegmentHandle)) -> bool {
    with_site!(opened, site => {
        let taken = site.engine.signal_take(segment) == Ok(true);
        site.look_at(segment);
        taken
    })
}

/// `rsm_intr_signal_wait_pollfd`.
///
/// Spec: RSMPF-10, RSMPF-11, RSMPF-12
pub extern "C-unwind" fn wait_pollfd(
    entries: Out<pollfd>,
    count: u64,
    timeout: i32,
    ready: Out<i32>,
) -> Code {
    let until = until(timeout);
    guarded(None, |signals| {
        in_steps(|| {
            let slice = slice(until);
            let returned = code(|| {
                if !ready.is_null() && !ready.is_writable() {
                    return Err(RsmError::BadAddress);
                }
                let outcome = wait(signals, entries, count, slice);
                let found = outcome.unwrap_or(0);
                ready.offer(i32::try_from(found).unwrap_or(i32::MAX));
                outcome.map(drop)
            });
            ends(returned, slice, until).then_some(returned)
        })
    })
}

fn wait(
    signals: &mut Option<Blocked>,
    entries: Out<pollfd>,
    count: u64,
    until: Instant,
) -> Result<usize> {
    let count = usize::try_from(count.min(MOST + 1)).unwrap_or(usize::MAX);
    if count as u64 > MOST {
        return Err(RsmError::BadArguments);
    }
    if count != 0 && !entries.allows(count, Access::Write) {
        return Err(RsmError::BadAddress);
    }
    let list = entries.list();
    let read = |index| list.nth(index).ok_or(RsmError::BadAddress);
    let mut polled_fds: Vec<pollfd> = (0..count).map(read).collect::<Result<_>>()?;
    let signals = signals.get_or_insert_with(Blocked::new);
    loop {
        let polled = signals.poll(&mut polled_fds, Some(until));
        polled.map_err(|error| match error {
            EINTR => RsmError::Interrupted,
            EINVAL => RsmError::BadArguments,
            _ => RsmError::InsufficientMemory,
        })?;
        let mut known = segments(Process::this().ok());
        let mut found = 0_usize;
        let mut any = false;
        for entry in &mut polled_fds {
            any |= entry.revents != 0;
            if entry.revents & POLLRDNORM != 0
                && let Some(segment) = known.remove(&entry.fd)
            {
                // One signal of a segment is taken, or none if another thread took it first.
                entry.revents = if take(segment) { POLLRDNORM } else { 0 };
            }
            found += usize::from(entry.revents != 0);
        }
        if found != 0 || !any {
            for (index, entry) in polled_fds.iter().enumerate() {
                entries.put_at(index, *entry);
            }
            return if found == 0 {
                Err(RsmError::TimedOut)
            } else {
                Ok(found)
            };
        }
    }
}
