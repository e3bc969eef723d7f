//! Looking for something among reports without losing the others.

use super::device::Report;

/// Reports that are kept back at most.
pub(crate) const KEPT: usize = 64;

/// What came of it.
#[derive(Debug)]
pub(crate) struct Sifted {
    /// The others, in their order.
    pub(crate) kept: [Option<Report>; KEPT],
    /// Whether what was looked for was there.
    pub(crate) found: bool,
    /// Whether there were more than there can have been: more came while they were taken.
    pub(crate) endless: bool,
}

/// Takes reports, `most` and one more if there is no end to them, and throws away those that are looked for. It ends as well
/// where no more of the others can be kept.
pub(crate) fn sift(
    sought: Report,
    most: usize,
    mut next: impl FnMut() -> Option<Report>,
) -> Sifted {
    let mut kept = [None; KEPT];
    let mut places = kept.iter_mut();
    let (mut found, mut endless) = (false, true);
    let mut place = places.next();
    for _ in 0..=most {
        let report = if place.is_some() { next() } else { None };
        match (report, &mut place) {
            (Some(report), _) if report == sought => found = true,
            (Some(report), Some(free)) => {
                **free = Some(report);
                place = places.next();
            }
            _ => {
                endless = false;
                break;
            }
        }
    }
    Sifted {
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
    fn the_others_stay_in_their_order() {
        let other = |number| Some(Report::Completions(number));
        let mut reports = [other(2), Some(SOUGHT), other(3), Some(SOUGHT)].into_iter();
        let sifted = sift(SOUGHT, 4, || reports.next().flatten());
        assert!(sifted.found && !sifted.endless);
        assert_eq!(sifted.kept[..3], [other(2), other(3), None]);
    }

    #[test]
    fn what_has_no_end_is_found_out() {
        let mut taken = 0;
        let sifted = sift(SOUGHT, 100, || {
            taken += 1;
            Some(SOUGHT)
        });
        assert!(sifted.found && sifted.endless);
        assert_eq!(taken, 101);
    }

    #[test]
    fn no_more_are_taken_than_can_be_kept() {
        let mut taken = 0;
        let sifted = sift(SOUGHT, 1000, || {
            taken += 1;
            Some(OTHER)
        });
        assert!(!sifted.found && !sifted.endless);
        assert_eq!(taken, KEPT);
        assert!(sifted.kept.iter().all(|kept| *kept == Some(OTHER)));
    }
}
