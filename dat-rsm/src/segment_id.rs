//! Segment ids and the ranges reserved for applications.

use core::fmt;

use crate::error::{Result, RsmError};

/// Id of a segment; 0 is none.
pub type SegmentId = u32;

/// First id that applications may choose.
pub const FIRST_APPLICATION_ID: SegmentId = 0x40_0000;
/// Last id that applications may choose.
pub const LAST_APPLICATION_ID: SegmentId = 0x7FFF_FFFF;
/// First id that the system chooses; later ones go up, and begin again after the last one.
pub const FIRST_SYSTEM_ID: SegmentId = 0x8000_0000;

/// Ids reserved for an application: `base` and the `length - 1` after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentIdRange {
    /// The first id.
    pub base: SegmentId,
    /// Number of ids.
    pub length: u32,
}

/// Checks that applications may use an id.
///
/// # Errors
/// RESERVED_SEGID: applications may not use the id.
///
/// Spec: RSMPB-02
pub fn check_application_id(id: SegmentId) -> Result<()> {
    if (FIRST_APPLICATION_ID..=LAST_APPLICATION_ID).contains(&id) {
        Ok(())
    } else {
        Err(RsmError::ReservedSegmentId)
    }
}

/// Chooses an id of the system: the first one from `next` on that is not used.
///
/// Fewer segments can be published than there are ids, so one is free.
///
/// Spec: RSMPB-02
pub(crate) fn choose_system_id(
    mut next: SegmentId,
    is_used: impl Fn(SegmentId) -> bool,
) -> SegmentId {
    while is_used(next) {
        next = id_after(next);
    }
    next
}

/// Returns the id that the system tries after this one; the first one follows the last one.
pub(crate) fn id_after(id: SegmentId) -> SegmentId {
    id.checked_add(1).unwrap_or(FIRST_SYSTEM_ID)
}

/// Finds the ids of an application in the text of an `rsm.segmentid` file.
///
/// A line has a keyword (`reserve` or `reserved`), the application, the base in hexadecimal and the
/// length in decimal, separated by blanks and tabs. Lines that begin with `#` are comments; empty
/// lines are skipped. The search ends at the line of the application.
///
/// # Errors
/// - BAD_APPID: the application is not listed.
/// - BAD_CONF: an earlier line has fewer than four words, or the application's line is malformed.
///
/// Spec: RSMID-01, RSMID-02, RSMID-03
pub fn find_range(text: &str, application: &str) -> Result<SegmentIdRange> {
    match look_up_range(text, application) {
        Ok(Some(range)) => Ok(range),
        Ok(None) => Err(RsmError::BadApplicationId),
        Err(_) => Err(RsmError::BadConfiguration),
    }
}

/// A line of an `rsm.segmentid` file that makes the file unusable for an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLine<'t> {
    /// Number of the line, from 1.
    pub line: usize,
    /// Defect of the line.
    pub reason: BadLineReason<'t>,
}

/// Defect of a line of an `rsm.segmentid` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadLineReason<'t> {
    /// The line has fewer than four words; their number.
    Words(usize),
    /// The keyword is neither `reserve` nor `reserved`.
    Keyword(&'t str),
    /// The base is no id in hexadecimal.
    Base(&'t str),
    /// The length is no number in decimal.
    Length(&'t str),
    /// The sum of base and length exceeds 32 bits.
    Beyond,
}

impl fmt::Display for BadLineReason<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(1) => formatter.write_str("1 word instead of 4"),
            Self::Words(count) => write!(formatter, "{count} words instead of 4"),
            Self::Keyword(text) => write!(formatter, "`{text}` is neither reserve nor reserved"),
            Self::Base(text) => {
                write!(
                    formatter,
                    "`{text}` is not a hexadecimal id such as 0x600000"
                )
            }
            Self::Length(text) => write!(formatter, "`{text}` is not a number of ids such as 16"),
            Self::Beyond => formatter.write_str("the range exceeds the valid ids"),
        }
    }
}

/// As [`find_range`], but returns the malformed line.
///
/// `None` if the application is not listed.
///
/// # Errors
/// The line that makes the file unusable for this application.
///
/// Spec: RSMID-01, RSMID-02, RSMID-03
pub fn look_up_range<'t>(
    text: &'t str,
    application: &str,
) -> core::result::Result<Option<SegmentIdRange>, BadLine<'t>> {
    for (line, content) in (1..).zip(text.lines()) {
        let mut words = content.split([' ', '\t']).filter(|word| !word.is_empty());
        let count = words.clone().count();
        let Some(keyword) = words.next() else {
            continue;
        };
        if keyword.starts_with('#') {
            continue;
        }
        let (Some(name), Some(base), Some(length)) = (words.next(), words.next(), words.next())
        else {
            let reason = BadLineReason::Words(count);
            return Err(BadLine { line, reason });
        };
        if name.eq_ignore_ascii_case(application) {
            let range = range_of(keyword, base, length);
            return range.map(Some).map_err(|reason| BadLine { line, reason });
        }
    }
    Ok(None)
}

/// Returns the range that an application's line reserves.
fn range_of<'t>(
    keyword: &'t str,
    base: &'t str,
    length: &'t str,
) -> core::result::Result<SegmentIdRange, BadLineReason<'t>> {
    if !["reserve", "reserved"]
        .iter()
        .any(|known| keyword.eq_ignore_ascii_case(known))
    {
        return Err(BadLineReason::Keyword(keyword));
    }
    let digits = base
        .strip_prefix("0x")
        .or_else(|| base.strip_prefix("0X"))
        .unwrap_or(base);
    let range = SegmentIdRange {
        base: number(digits, 16).ok_or(BadLineReason::Base(base))?,
        length: number(length, 10).ok_or(BadLineReason::Length(length))?,
    };
    match range.base.checked_add(range.length) {
        Some(_) => Ok(range),
        None => Err(BadLineReason::Beyond),
    }
}

/// Parses digits; a sign is not allowed.
fn number(digits: &str, radix: u32) -> Option<u32> {
    if !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    u32::from_str_radix(digits, radix).ok()
}

/// Finds the ids of an application in a file, usually `/etc/rsm/rsm.segmentid`.
///
/// # Errors
/// As [`find_range`]; BAD_CONF also if the file cannot be read.
///
/// Spec: RSMID-01
#[cfg(feature = "std")]
pub fn find_range_in_file(path: &std::path::Path, application: &str) -> Result<SegmentIdRange> {
    let text = std::fs::read_to_string(path).map_err(|_| RsmError::BadConfiguration)?;
    find_range(&text, application)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    /// Spec: RSMPB-02
    #[test]
    fn ids_of_an_application_are_found() {
        for id in [0x40_0000, 0x60_0000, 0x7FFF_FFFF] {
            assert_eq!(check_application_id(id), Ok(()), "{id:#x}");
        }
        for id in [0, 1, 0xF_FFFF, 0x20_0000, 0x3F_FFFF, 0x8000_0000, u32::MAX] {
            let reserved = Err(RsmError::ReservedSegmentId);
            assert_eq!(check_application_id(id), reserved, "{id:#x}");
        }
    }

    const FILE: &str = "# application ids\n\
        \n\
        reserved  web   0x600000 16\n\
        RESERVE\tDataBase\t700000\t1\n\
        \t \n\
        reserved  wrong 0xyz 16\n\
        keep      other 0x600000 16\n\
        reserved  signed 0x600000 +16\n\
        reserved  wide  0xFFFFFFFF 16\n\
        short line\n\
        reserved  behind 0x600000 16\n";

    /// Spec: RSMPB-02
    #[test]
    fn ids_of_the_system_begin_again_and_skip_those_in_use() {
        let used = [SegmentId::MAX, FIRST_SYSTEM_ID, FIRST_SYSTEM_ID + 2];
        let choose = |next| choose_system_id(next, |id| used.contains(&id));
        assert_eq!(choose(SegmentId::MAX - 1), SegmentId::MAX - 1);
        assert_eq!(id_after(SegmentId::MAX - 1), SegmentId::MAX);
        assert_eq!(choose(SegmentId::MAX), FIRST_SYSTEM_ID + 1);
        assert_eq!(choose(FIRST_SYSTEM_ID + 2), FIRST_SYSTEM_ID + 3);
    }

    /// Spec: RSMID-01, RSMID-02, RSMID-03
    #[test]
    fn ranges_are_found() {
        let range = |base, length| Ok(SegmentIdRange { base, length });
        assert_eq!(find_range(FILE, "web"), range(0x60_0000, 16));
        assert_eq!(find_range(FILE, "WEB"), range(0x60_0000, 16));
        assert_eq!(find_range(FILE, "database"), range(0x70_0000, 1));
        for wrong in ["wrong", "other", "signed", "wide", "behind", "absent"] {
            assert_eq!(
                find_range(FILE, wrong),
                Err(RsmError::BadConfiguration),
                "{wrong}"
            );
        }
        assert_eq!(find_range("", "web"), Err(RsmError::BadApplicationId));
        assert_eq!(
            find_range("# web\n", "web"),
            Err(RsmError::BadApplicationId)
        );
    }

    /// Spec: RSMID-02, RSMID-03
    #[test]
    fn a_malformed_line_is_named() {
        for (application, line, reason, text) in [
            (
                "wrong",
                6,
                BadLineReason::Base("0xyz"),
                "`0xyz` is not a hexadecimal id such as 0x600000",
            ),
            (
                "other",
                7,
                BadLineReason::Keyword("keep"),
                "`keep` is neither reserve nor reserved",
            ),
            (
                "signed",
                8,
                BadLineReason::Length("+16"),
                "`+16` is not a number of ids such as 16",
            ),
            (
                "wide",
                9,
                BadLineReason::Beyond,
                "the range exceeds the valid ids",
            ),
            (
                "behind",
                10,
                BadLineReason::Words(2),
                "2 words instead of 4",
            ),
        ] {
            let found = look_up_range(FILE, application);
            assert_eq!(found, Err(BadLine { line, reason }), "{application}");
            assert_eq!(reason.to_string(), text);
        }
        assert_eq!(look_up_range("", "web"), Ok(None));
    }

    /// Spec: RSMID-01
    #[cfg(feature = "std")]
    #[test]
    fn a_missing_file_is_bad_configuration() {
        let path = std::path::Path::new("no/such/rsm.segmentid");
        assert_eq!(
            find_range_in_file(path, "web"),
            Err(RsmError::BadConfiguration)
        );
    }
}
