//! Links between hosts.

use alloc::vec::Vec;

use crate::fault::Fault;

/// A time in which nothing passes between two hosts.
#[derive(Clone, Debug)]
struct Outage {
    fault: Fault,
    between: (usize, usize),
    from: u64,
    until: Option<u64>,
}

/// All links: one between any two hosts, up unless a fault cuts it.
#[derive(Debug, Default)]
pub(crate) struct Links {
    outages: Vec<Outage>,
}

impl Links {
    /// Cuts the link between two hosts from `from` until `until`; `None` is forever.
    pub(crate) fn cut(
        &mut self,
        fault: Fault,
        (a, b): (usize, usize),
        from: u64,
        until: Option<u64>,
    ) {
        self.outages.push(Outage {
            fault,
            between: (a.min(b), a.max(b)),
            from,
            until,
        });
    }

    fn outage(&self, a: usize, b: usize, now: u64) -> Option<&Outage> {
        let between = (a.min(b), a.max(b));
        self.outages.iter().find(|outage| {
            outage.between == between
                && outage.from <= now
                && outage.until.is_none_or(|until| now < until)
        })
    }

    /// Returns true if a message that arrives now gets through.
    pub(crate) fn is_up(&self, a: usize, b: usize, now: u64) -> bool {
        self.outage(a, b, now).is_none()
    }

    /// Returns the fault that cuts the link between two hosts now.
    pub(crate) fn cause(&self, a: usize, b: usize, now: u64) -> Option<&Fault> {
        Some(&self.outage(a, b, now)?.fault)
    }

    /// Returns the end of the current outage, if it has one.
    pub(crate) fn next_up(&self, a: usize, b: usize, now: u64) -> Option<u64> {
        self.outage(a, b, now)?.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_down_during_its_outages_only() {
        let mut links = Links::default();
        let down = |duration| Fault::LinkDown {
            a: 2,
            b: 1,
            at: 10,
            duration,
        };
        links.cut(down(Some(10)), (2, 1), 10, Some(20));
        links.cut(down(None), (0, 1), 5, None);
        assert!(links.is_up(1, 2, 9));
        assert!(!links.is_up(1, 2, 10));
        assert!(!links.is_up(2, 1, 19));
        assert_eq!(links.cause(1, 2, 19), Some(&down(Some(10))));
        assert_eq!(links.cause(1, 2, 20), None);
        assert_eq!(links.next_up(2, 1, 19), Some(20));
        assert!(links.is_up(1, 2, 20));
        assert!(!links.is_up(1, 0, u64::MAX));
        assert_eq!(links.next_up(1, 0, 6), None);
        assert!(links.is_up(0, 2, 10));
    }
}
