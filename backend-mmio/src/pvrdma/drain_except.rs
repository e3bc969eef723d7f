//! Removal of certain reports without losing the others.

use super::device::Report;

/// Most reports that are kept.
pub(crate) const MOST_KEPT: usize = 64;

/// Result of a removal.
#[derive(Debug)]
pub(crate) struct Drained {
    /// The other reports, in their order.
    pub(crate) kept: [Option<Report>; MOST_KEPT],
    /// Set if a sought report was found.
    pub(crate) found: bool,
    /// Set if more reports came than can have been pending: new ones arrived meanwhile.
    pub(crate) endless: bool,
}

/// Takes up to `most` reports and one more, and drops those equal to `sought`.
///
/// Stops early if no report is left, or if no further report could be kept.
pub(crate) fn drain_except(
    sought: Report,
    most: usize,
    mut next: impl FnMut() -> Option<Report>,
) -> Drained {
    let mut kept = [None; MOST_KEPT];
    let mut slots = kept.iter_mut();
    let (mut found, mut endless) = (false, true);
    let mut slot = slots.next();
    for _ in 0..=most {
        let report = if slot.is_some() { next() } else { None };
        match (report, &mut slot) {
            (Some(report), _) if report == sought => found = true,
            (Some(report), Some(free)) => {
                **free = Some(report);
                slot = slots.next();
            }
            _ => {
                endless = false;
                break;
            }
        }
    }
    Drained {
        kept,
        found,
        endless,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUGHT: Report = Report::Completions(1);
    const OTHER: Report = Report::Completions(2);

    #[test]
    fn other_reports_keep_their_order() {
        let other = |number| Some(Report::Completions(number));
        let mut reports = [other(2), Some(SOUGHT), other(3), Some(SOUGHT)].into_iter();
        let drained = drain_except(SOUGHT, 4, || reports.next().flatten());
        assert!(drained.found && !drained.endless);
        assert_eq!(drained.kept[..3], [other(2), other(3), None]);
    }

    #[test]
    fn endless_reports_are_detected() {
        let mut taken = 0;
        let drained = drain_except(SOUGHT, 100, || {
            taken += 1;
            Some(SOUGHT)
        });
        assert!(drained.found && drained.endless);
        assert_eq!(taken, 101);
    }

    #[test]
    fn at_most_the_kept_number_of_reports_is_taken() {
        let mut taken = 0;
        let drained = drain_except(SOUGHT, 1000, || {
            taken += 1;
            Some(OTHER)
        });
        assert!(!drained.found && !drained.endless);
        assert_eq!(taken, MOST_KEPT);
        assert!(drained.kept.iter().all(|kept| *kept == Some(OTHER)));
    }
}
