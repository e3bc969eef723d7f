//! Segment ids: which there are, and who may use which.

use crate::error::{Result, RsmError};

/// The id of a segment; 0 is none.
pub type SegmentId = u32;

/// The first id that applications may choose.
pub const FIRST_APPLICATION_ID: SegmentId = 0x40_0000;
/// The last id that applications may choose.
pub const LAST_APPLICATION_ID: SegmentId = 0x7FFF_FFFF;
/// The first id that the system chooses; it goes up from here and does not use an id again.
pub const FIRST_SYSTEM_ID: SegmentId = 0x8000_0000;

/// Ids reserved for an application: `base` and the `length - 1` after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentIdRange {
    /// The first.
    pub base: SegmentId,
    /// How many.
    pub length: u32,
}

/// Whether an application may publish under an id of its choice.
///
/// # Errors
/// RESERVED_SEGID: it may not.
///
/// Spec: RSMPB-02
pub fn check_application_id(id: SegmentId) -> Result<()> {
    if (FIRST_APPLICATION_ID..=LAST_APPLICATION_ID).contains(&id) {
        Ok(())
    } else {
        Err(RsmError::ReservedSegmentId)
    }
}

/// Finds the ids of an application in the text of an `rsm.segmentid` file.
///
/// Lines are a keyword (`reserve` or `reserved`), the application, the base in hexadecimal and the length in decimal,
/// between blanks and tabs. Lines that begin with `#` are comments, empty ones are skipped. Nothing behind the line
/// of the application is read.
///
/// # Errors
/// - BAD_APPID: the application is not listed.
/// - BAD_CONF: a line before it has too few words, or its own line is malformed.
///
/// Spec: RSMID-01, RSMID-02, RSMID-03
pub fn find_range(text: &str, application: &str) -> Result<SegmentIdRange> {
    for line in text.lines() {
        let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
        let Some(keyword) = words.next() else {
            continue;
        };
        if keyword.starts_with('#') {
            continue;
        }
        let (Some(name), Some(base), Some(length)) = (words.next(), words.next(), words.next())
        else {
            return Err(RsmError::BadConfiguration);
        };
        if !name.eq_ignore_ascii_case(application) {
            continue;
        }
        let keyword =
            keyword.eq_ignore_ascii_case("reserve") || keyword.eq_ignore_ascii_case("reserved");
        let digits = base
            .strip_prefix("0x")
            .or_else(|| base.strip_prefix("0X"))
            .unwrap_or(base);
        let base = number(digits, 16);
        let length = number(length, 10);
        return match (keyword, base, length) {
            (true, Some(base), Some(length)) if base.checked_add(length).is_some() => {
                Ok(SegmentIdRange { base, length })
            }
            _ => Err(RsmError::BadConfiguration),
        };
    }
    Err(RsmError::BadApplicationId)
}

/// Digits only: a sign is no part of the format.
fn number(digits: &str, radix: u32) -> Option<u32> {
    if !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    u32::from_str_radix(digits, radix).ok()
}

/// Finds the ids of an application in a file; the customary one is `/etc/rsm/rsm.segmentid`.
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
    use super::*;

    /// Spec: RSMPB-02
    #[test]
    fn ids_for_applications() {
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
