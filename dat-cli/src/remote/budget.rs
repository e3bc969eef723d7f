//! The memory and completions that a server shares out among its clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::protocol::Refusal;
use super::server::MOST_CLIENTS;

/// Requests and receives of all clients of a server.
const COMPLETIONS: usize = 16384;
/// Clients without a proven address share the budget divided by this number.
///
/// Requests with forged addresses may ask for all of it, and never connect.
const UNPROVEN: usize = 4;
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

/// The part of a budget that is in use.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    all: Demand,
    /// Part of clients whose addresses are not proven.
    unproven: Demand,
}

/// The resources of a server, and the part of them that is in use.
pub(crate) struct Budget {
    most: Demand,
    used: Mutex<Used>,
    /// Notified when a share is given back.
    freed: Condvar,
    /// Set if a client waited in vain, and none has left since.
    waited: AtomicBool,
}

/// A part of a budget; dropping it gives the part back.
pub(crate) struct Share<'a> {
    budget: &'a Budget,
    demand: Demand,
    /// Set while the address of its client is not proven; changes under the lock of the budget.
    is_unproven: AtomicBool,
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
    /// A client whose address is not proven takes it of a quarter of the budget, without a wait.
    ///
    /// After a wait in vain, requests that do not fit are refused at once until a client leaves:
    /// many of them would delay those that fit.
    ///
    /// # Errors
    /// - `TooLarge`: it would not fit even without other clients.
    /// - `Full`: there are as many clients as there may be.
    /// - `Busy`: it does not fit now.
    pub(crate) fn share(&self, demand: Demand, is_proven: bool) -> Result<Share<'_>, Refusal> {
        self.sum(Used::default(), demand, is_proven)
            .ok_or(Refusal::TooLarge)?;
        let full = |used: &mut Used| self.sum(*used, demand, is_proven).is_none();
        let grace = match !is_proven || self.waited.load(Ordering::Relaxed) {
            true => Duration::ZERO,
            false => GRACE,
        };
        let waited = self.freed.wait_timeout_while(self.lock(), grace, full);
        let (mut used, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let Some(sum) = self.sum(*used, demand, is_proven) else {
            if is_proven {
                self.waited.store(true, Ordering::Relaxed);
            }
            let clients = used.all.clients.saturating_add(demand.clients);
            return Err(match clients > self.most.clients {
                true => Refusal::Full,
                false => Refusal::Busy,
            });
        };
        *used = sum;
        Ok(Share {
            budget: self,
            demand,
            is_unproven: AtomicBool::new(!is_proven),
        })
    }

    /// Adds a demand to those in use; returns `None` if the sum exceeds the budget.
    fn sum(&self, used: Used, more: Demand, is_proven: bool) -> Option<Used> {
        let all = used.all.plus(more, self.most)?;
        let unproven = if is_proven {
            used.unproven
        } else {
            let most = Demand {
                clients: self.most.clients / UNPROVEN,
                completions: self.most.completions / UNPROVEN,
                bytes: self.most.bytes / UNPROVEN,
            };
            used.unproven.plus(more, most)?
        };
        Some(Used { all, unproven })
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Demand {
    /// Adds another demand; returns `None` if the sum exceeds `most`.
    fn plus(self, more: Self, most: Self) -> Option<Self> {
        let add = |used: usize, more, most| used.checked_add(more).filter(|sum| *sum <= most);
        Some(Self {
            clients: add(self.clients, more.clients, most.clients)?,
            completions: add(self.completions, more.completions, most.completions)?,
            bytes: add(self.bytes, more.bytes, most.bytes)?,
        })
    }

    /// Takes a part away that was added.
    const fn give_back(&mut self, part: Self) {
        self.clients -= part.clients;
        self.completions -= part.completions;
        self.bytes -= part.bytes;
    }
}

impl Share<'_> {
    /// Notes that the client is connected, which proves its address.
    pub(crate) fn prove(&self) {
        self.leave_unproven(&mut self.budget.lock());
    }

    fn leave_unproven(&self, used: &mut Used) {
        if self.is_unproven.swap(false, Ordering::Relaxed) {
            used.unproven.give_back(self.demand);
        }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut used = self.budget.lock();
        self.leave_unproven(&mut used);
        used.all.give_back(self.demand);
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
        let refusal = |demand| budget.share(demand, true).err();
        assert_eq!(refusal(bytes(101)), Some(Refusal::TooLarge));
        assert_eq!(refusal(bytes(usize::MAX)), Some(Refusal::TooLarge));
        let first = budget.share(bytes(60), true).ok();
        assert_eq!(refusal(bytes(41)), Some(Refusal::Busy));
        let second = budget.share(bytes(40), true).ok();
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
        let all: Vec<_> = (0..MOST_CLIENTS)
            .map(|_| budget.share(bytes(1), true))
            .collect();
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(refusal(bytes(1)), Some(Refusal::Full));
    }

    /// Clients without proven addresses take a quarter at most, and no place of others.
    #[test]
    fn clients_that_are_not_proven_share_a_quarter() {
        let budget = Budget::new(100);
        let refusal = |demand| budget.share(demand, false).err();
        assert_eq!(refusal(bytes(26)), Some(Refusal::TooLarge));
        let first = budget.share(bytes(20), false).unwrap();
        assert_eq!(refusal(bytes(6)), Some(Refusal::Busy));
        assert!(!budget.waited.load(Ordering::Relaxed), "nobody has waited");
        assert!(budget.share(bytes(80), true).is_ok());
        // Once connected it is a client as others are.
        first.prove();
        let second = budget.share(bytes(25), false).unwrap();
        assert!(budget.share(bytes(56), true).is_err());
        let rest = budget.share(bytes(55), true).unwrap();
        drop((first, second, rest));
        let most = MOST_CLIENTS / UNPROVEN;
        let all: Vec<_> = (0..most).map(|_| budget.share(bytes(1), false)).collect();
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(refusal(bytes(1)), Some(Refusal::Busy));
        let others: Vec<_> = (most..MOST_CLIENTS)
            .map(|_| budget.share(bytes(1), true))
            .collect();
        assert!(others.iter().all(Result::is_ok));
        drop((all, others));
        assert!(budget.share(bytes(100), true).is_ok());
    }

    /// Only one client waits in vain; the next one may wait once a client has left.
    #[test]
    fn clients_that_do_not_fit_do_not_wait_one_after_the_other() {
        let budget = Budget::new(100);
        let first = budget.share(bytes(60), true).ok();
        let refused = |budget: &Budget| budget.share(bytes(100), true).err() == Some(Refusal::Busy);
        assert!(refused(&budget));
        assert!(budget.waited.load(Ordering::Relaxed));
        assert!(refused(&budget));
        assert!(budget.share(bytes(40), true).is_ok(), "it fits");
        drop(first);
        assert!(!budget.waited.load(Ordering::Relaxed));
        assert!(budget.share(bytes(100), true).is_ok());
    }

    /// A share that is given back in time goes to the client that waits for it.
    ///
    /// A busy machine may give it back too late, so that the next client has to wait.
    #[test]
    fn a_client_waits_for_a_moment() {
        let waits = || {
            let budget = Budget::new(100);
            let first = budget.share(bytes(100), true).ok();
            let begun = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let second = scope.spawn(|| {
                    begun.store(true, Ordering::Relaxed);
                    budget.share(bytes(100), true).is_ok()
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
