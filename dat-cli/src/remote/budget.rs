//! The memory and completions that a server shares out among its clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::protocol::Refusal;
use super::server::MOST_CLIENTS;

/// Requests and receives of all clients of a server.
const COMPLETIONS: usize = 16384;
/// Time that a client waits for the share of another one, which may be about to end.
///
/// A client that connects again after its disconnect may arrive before its old session has ended.
const GRACE: Duration = Duration::from_millis(100);

/// The resources of one client, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) clients: usize,
    pub(crate) completions: usize,
    pub(crate) bytes: usize,
}

/// The resources of a server, and the part of them that is in use.
pub(crate) struct Budget {
    most: Demand,
    used: Mutex<Demand>,
    /// Notified when a share is given back.
    freed: Condvar,
    /// Set if a client waited in vain, and none has left since.
    waited: AtomicBool,
}

/// A part of a budget; dropping it gives the part back.
pub(crate) struct Share<'a> {
    budget: &'a Budget,
    demand: Demand,
}

impl Budget {
    /// Creates a budget with this many bytes of memory for all clients.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            most: Demand {
                clients: MOST_CLIENTS,
                completions: COMPLETIONS,
                bytes,
            },
            used: Mutex::default(),
            freed: Condvar::new(),
            waited: AtomicBool::new(false),
        }
    }

    /// Takes a part of the budget; waits for a moment if it does not fit.
    ///
    /// After a wait in vain, requests that do not fit are refused at once until a client leaves:
    /// many of them would delay those that fit.
    ///
    /// # Errors
    /// - `TooLarge`: it would not fit even without other clients.
    /// - `Full`: there are as many clients as there may be.
    /// - `Busy`: it does not fit now.
    pub(crate) fn share(&self, demand: Demand) -> Result<Share<'_>, Refusal> {
        self.sum(Demand::default(), demand)
            .ok_or(Refusal::TooLarge)?;
        let full = |used: &mut Demand| self.sum(*used, demand).is_none();
        let grace = match self.waited.load(Ordering::Relaxed) {
            true => Duration::ZERO,
            false => GRACE,
        };
        let waited = self.freed.wait_timeout_while(self.lock(), grace, full);
        let (mut used, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let Some(sum) = self.sum(*used, demand) else {
            self.waited.store(true, Ordering::Relaxed);
            return Err(
                match used.clients.saturating_add(demand.clients) > self.most.clients {
                    true => Refusal::Full,
                    false => Refusal::Busy,
                },
            );
        };
        *used = sum;
        Ok(Share {
            budget: self,
            demand,
        })
    }

    /// Adds two demands; returns `None` if the sum exceeds the budget.
    fn sum(&self, used: Demand, more: Demand) -> Option<Demand> {
        let add = |used: usize, more, most| used.checked_add(more).filter(|sum| *sum <= most);
        Some(Demand {
            clients: add(used.clients, more.clients, self.most.clients)?,
            completions: add(used.completions, more.completions, self.most.completions)?,
            bytes: add(used.bytes, more.bytes, self.most.bytes)?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Demand> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut used = self.budget.lock();
        used.clients -= self.demand.clients;
        used.completions -= self.demand.completions;
        used.bytes -= self.demand.bytes;
        self.budget.waited.store(false, Ordering::Relaxed);
        drop(used);
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(bytes: usize) -> Demand {
        Demand {
            clients: 1,
            completions: 1,
            bytes,
        }
    }

    #[test]
    fn shares_stay_inside_the_budget() {
        let budget = Budget::new(100);
        let refusal = |demand| budget.share(demand).err();
        assert_eq!(refusal(bytes(101)), Some(Refusal::TooLarge));
        assert_eq!(refusal(bytes(usize::MAX)), Some(Refusal::TooLarge));
        let first = budget.share(bytes(60)).ok();
        assert_eq!(refusal(bytes(41)), Some(Refusal::Busy));
        let second = budget.share(bytes(40)).ok();
        assert_eq!(refusal(bytes(1)), Some(Refusal::Busy));
        drop(first);
        assert_eq!(refusal(bytes(60)), None);
        drop(second);
        assert_eq!(refusal(bytes(100)), None);
        let completions = |completions| Demand {
            completions,
            ..bytes(1)
        };
        assert_eq!(
            refusal(completions(COMPLETIONS + 1)),
            Some(Refusal::TooLarge)
        );
        let all: Vec<_> = (0..MOST_CLIENTS).map(|_| budget.share(bytes(1))).collect();
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(refusal(bytes(1)), Some(Refusal::Full));
    }

    /// Only one client waits in vain; the next one may wait once a client has left.
    #[test]
    fn clients_that_do_not_fit_do_not_wait_one_after_the_other() {
        let budget = Budget::new(100);
        let first = budget.share(bytes(60)).ok();
        let refused = |budget: &Budget| budget.share(bytes(100)).err() == Some(Refusal::Busy);
        assert!(refused(&budget));
        assert!(budget.waited.load(Ordering::Relaxed));
        assert!(refused(&budget));
        assert!(budget.share(bytes(40)).is_ok(), "it fits");
        drop(first);
        assert!(!budget.waited.load(Ordering::Relaxed));
        assert!(budget.share(bytes(100)).is_ok());
    }

    /// A share that is given back in time goes to the client that waits for it.
    ///
    /// A busy machine may give it back too late, so that the next client has to wait.
    #[test]
    fn a_client_waits_for_a_moment() {
        let waits = || {
            let budget = Budget::new(100);
            let first = budget.share(bytes(100)).ok();
            let begun = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let second = scope.spawn(|| {
                    begun.store(true, Ordering::Relaxed);
                    budget.share(bytes(100)).is_ok()
                });
                while !begun.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                // Until the second waits, unless this machine is busy.
                std::thread::sleep(Duration::from_millis(5));
                drop(first);
                second.join().unwrap()
            })
        };
        assert!((0..100).any(|_| waits()));
    }
}
