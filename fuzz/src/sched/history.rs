//! The calls and results of threads, and checks that some sequential order explains them.

use std::collections::BTreeMap;

use dat_core::Result;
use dat_core::error::ErrorKind;
use dat_core::event::Event;

/// The begin and end of a call.
///
/// A call precedes another if it ended before the other began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) begin: u64,
    pub(super) end: u64,
}

impl Span {
    const fn is_before(self, other: Self) -> bool {
        self.end < other.begin
    }
}

/// A post, accepted or refused.
#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub(super) cookie: u64,
    pub(super) span: Span,
    /// The region that it names; `None` if it has no bytes.
    pub(super) region: Option<usize>,
    /// The index of the endpoint that must complete it; `None` for a shared buffer.
    pub(super) ep: Option<usize>,
    /// Set if a success has no event.
    pub(super) silent: bool,
    pub(super) outcome: std::result::Result<(), ErrorKind>,
}

/// A look into a dispatcher.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) from: usize,
    pub(super) span: Span,
    /// The event; `None` if there was none.
    pub(super) event: Option<Event>,
}

/// The calls and results of a thread.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) posted: Vec<Posted>,
    pub(super) taken: Vec<Taken>,
    /// The freed regions.
    pub(super) freed: Vec<(usize, Span)>,
    /// The queued software events of the thread.
    pub(super) notified: Vec<(u64, Span)>,
    /// The waits, from their begin to their end.
    pub(super) waits: Vec<(usize, Span)>,
    /// The dequeues and waits that were refused because of another waiter.
    pub(super) shut_out: Vec<(usize, Span)>,
    /// The endpoints that were reset.
    pub(super) reset: Vec<usize>,
}

/// Returns the kind of an error.
///
/// # Panics
/// It is an internal error.
pub(super) fn kind<T>(outcome: &Result<T>) -> std::result::Result<(), ErrorKind> {
    match outcome {
        Ok(_) => Ok(()),
        Err(error) => {
            assert_ne!(error.kind(), ErrorKind::InternalError, "{error}");
            Err(error.kind())
        }
    }
}

impl History {
    pub(super) fn add(&mut self, other: Self) {
        self.posted.extend(other.posted);
        self.taken.extend(other.taken);
        self.freed.extend(other.freed);
        self.notified.extend(other.notified);
        self.waits.extend(other.waits);
        self.shut_out.extend(other.shut_out);
        self.reset.extend(other.reset);
    }

    /// Checks the whole history.
    ///
    /// `over` marks endpoints with an ended connection; `software` is the dispatcher of software
    /// events.
    ///
    /// # Panics
    /// No sequential order of the calls explains the history.
    pub(super) fn judge(&self, over: &[bool], software: usize) {
        self.judge_posts(over);
        self.judge_regions();
        self.judge_software(software);
        for (from, span) in &self.shut_out {
            let waited = self
                .waits
                .iter()
                .any(|(of, wait)| of == from && !wait.is_before(*span) && !span.is_before(*wait));
            assert!(waited, "nobody waited on {from} at {span:?}");
        }
    }

    /// Checks that every post completes once, and nothing else does.
    fn judge_posts(&self, over: &[bool]) {
        let mut done: BTreeMap<u64, usize> = BTreeMap::new();
        for taken in &self.taken {
            let cookie = match taken.event {
                Some(Event::Dto(done)) => done.cookie,
                Some(Event::RmrBind(done)) => done.cookie,
                _ => continue,
            };
            *done.entry(cookie).or_default() += 1;
        }
        for posted in &self.posted {
            let times = done.remove(&posted.cookie).unwrap_or(0);
            let most = usize::from(posted.outcome.is_ok());
            assert!(times <= most, "{times} times: {posted:?}");
            let must = posted
                .ep
                .is_some_and(|ep| over[ep] && !self.reset.contains(&ep))
                && !posted.silent;
            assert!(times == most || !must, "lost: {posted:?}");
        }
        assert!(done.is_empty(), "never posted: {done:?}");
    }

    /// Checks that a region is freed once.
    ///
    /// Posts before are accepted, and posts after are refused.
    fn judge_regions(&self) {
        for (at, (which, span)) in self.freed.iter().enumerate() {
            let twice = self.freed.iter().skip(at + 1).any(|(of, _)| of == which);
            assert!(!twice, "freed twice: {which} at {span:?}");
        }
        for posted in &self.posted {
            let Some(region) = posted.region else {
                continue;
            };
            let freed = self.freed.iter().find(|(which, _)| *which == region);
            match posted.outcome {
                Ok(()) => {
                    let late = freed.is_some_and(|(_, freed)| freed.is_before(posted.span));
                    assert!(!late, "names a region that was freed: {posted:?}");
                }
                Err(ErrorKind::PrivilegesViolation | ErrorKind::ProtectionViolation) => {
                    let gone = freed.is_some_and(|(_, freed)| !posted.span.is_before(*freed));
                    assert!(gone, "names a region that there is: {posted:?}");
                }
                Err(_) => {}
            }
        }
    }

    /// Checks that software events come once, in each thread's order, and are found once queued.
    fn judge_software(&self, software: usize) {
        let looks = || self.taken.iter().filter(|taken| taken.from == software);
        let mut came: BTreeMap<u64, Span> = BTreeMap::new();
        for look in looks() {
            if let Some(Event::Software { pointer }) = look.event {
                let before = came.insert(pointer, look.span);
                assert!(before.is_none(), "twice: {pointer:#x}");
            }
        }
        for (pointer, span) in &self.notified {
            let look = came.get(pointer);
            let look = look.unwrap_or_else(|| panic!("lost: {pointer:#x} of {span:?}"));
            assert!(!look.is_before(*span), "{pointer:#x} was early");
            if let Some(next) = came.get(&(pointer + 1)) {
                assert!(!next.is_before(*look), "{pointer:#x} was overtaken");
            }
        }
        assert_eq!(came.len(), self.notified.len(), "never queued: {came:?}");
        for look in looks().filter(|look| look.event.is_none()) {
            let queued = self
                .notified
                .iter()
                .filter(|(_, span)| span.is_before(look.span))
                .count();
            let gone = came.values().filter(|span| !look.span.is_before(**span));
            assert!(queued <= gone.count(), "nothing was there at {look:?}");
        }
    }
}
