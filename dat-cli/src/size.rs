//! Sizes, counts and durations as users write them.

use std::ops::RangeInclusive;
use std::time::Duration;

use indicatif::BinaryBytes;
use parse_size::{Config, Error};

use crate::memory::MOST_MEMORY;

/// Parses a size such as `4096`, `4K`, `4KiB` or `1.5M`.
///
/// The result is from 1 byte to 1 GiB. All units are powers of two.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    parse_bytes(text, "a size", 1)
}

/// Parses an offset, written as a size, from 0 to 1 GiB.
pub(crate) fn parse_offset(text: &str) -> Result<u64, String> {
    parse_bytes(text, "an offset", 0)
}

/// Parses a size of up to 16 EiB.
pub(crate) fn parse_quota(text: &str) -> Result<u64, String> {
    Config::new()
        .with_binary()
        .parse_size(text)
        .map_err(|_| "this is not a size of at most 16 EiB; write for example 512M or 16G".into())
}

fn parse_bytes(text: &str, what: &str, least: u64) -> Result<u64, String> {
    let limits = || {
        format!(
            "{what} is at least {} and at most {}",
            counted(least, "byte"),
            size(MOST_MEMORY)
        )
    };
    match Config::new().with_binary().parse_size(text) {
        Ok(size) if (least..=MOST_MEMORY).contains(&size) => Ok(size),
        Ok(_) | Err(Error::PosOverflow) => Err(limits()),
        Err(_) => Err(format!(
            "this is not {what}; write for example 4096, 64K or 1M"
        )),
    }
}

/// Formats a size with its unit, without decimals if it is a whole number.
pub(crate) fn size(bytes: u64) -> String {
    BinaryBytes(bytes).to_string().replace(".00", "")
}

/// Formats a size as a command line argument, rounded down to its unit.
pub(crate) fn argument(bytes: u64) -> String {
    let unit = [(30, "G"), (20, "M"), (10, "K")]
        .into_iter()
        .find(|(shift, _)| bytes >> shift > 0);
    match unit {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Formats a count of things, in the singular or plural.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    match thing.strip_suffix("ry") {
        _ if count == 1 => format!("{count} {thing}"),
        Some(start) => format!("{count} {start}ries"),
        None => format!("{count} {thing}s"),
    }
}

/// Parses a whole number within limits.
pub(crate) fn parse_count(text: &str, limits: RangeInclusive<u64>) -> Result<u64, String> {
    let within = || match (limits.start(), limits.end()) {
        (least, &u64::MAX) => format!("a whole number from {least} on is needed"),
        (least, most) => format!("a whole number from {least} to {most} is needed"),
    };
    let number = text.parse::<u64>().map_err(|_| within())?;
    if limits.contains(&number) {
        Ok(number)
    } else {
        Err(within())
    }
}

/// Parses a duration such as `500ms` or `2s`, from a millisecond to a day.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    const DAY: Duration = Duration::from_secs(86_400);
    let duration = humantime::parse_duration(text)
        .map_err(|_| "a number with its unit is needed, for example 500ms or 2s")?;
    if (Duration::from_millis(1)..=DAY).contains(&duration) {
        Ok(duration)
    } else {
        Err("a measurement takes at least 1ms and at most 1day".into())
    }
}

/// A range of sizes to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sweep {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Sweep {
    /// Returns the sizes from `first` on, each twice the previous, up to `last`.
    pub(crate) fn sizes(self) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(self.first), |size| size.checked_mul(2))
            .take_while(move |size| *size <= self.last)
    }
}

/// Parses a range such as `64..1M`.
pub(crate) fn parse_sweep(text: &str) -> Result<Sweep, String> {
    let (first, last) = text
        .split_once("..")
        .ok_or("two sizes with `..` between them are needed, for example 64..1M")?;
    let (first, last) = (parse_size(first)?, parse_size(last)?);
    if first > last {
        return Err(format!(
            "{first} is more than {last}; write the smaller size first"
        ));
    }
    Ok(Sweep { first, last })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        for (text, size) in [
            ("1", 1),
            ("4096", 4096),
            ("4K", 4096),
            ("64KiB", 65_536),
            ("2MB", 2 << 20),
        ] {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        for (text, word) in [
            ("", "not a size"),
            ("-1", "not a size"),
            ("many", "not a size"),
            ("4 Q", "not a size"),
            ("0", "at least 1"),
            ("1.1G", "at most 1 GiB"),
            ("99999999999999999999", "at most 1 GiB"),
        ] {
            let error = parse_size(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        assert_eq!(parse_size("1G"), Ok(MOST_MEMORY));
        assert_eq!(parse_offset("0"), Ok(0));
        assert_eq!(parse_offset("4K"), Ok(4096));
        for (text, word) in [
            ("x", "not an offset"),
            ("2G", "an offset is at least 0 bytes"),
        ] {
            let error = parse_offset(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        assert_eq!(size(1 << 30), "1 GiB");
        for (bytes, text) in [(1, "1"), (1023, "1023"), (1 << 15, "32K"), (1 << 30, "1G")] {
            assert_eq!(argument(bytes), text);
            assert_eq!(parse_size(text), Ok(bytes));
        }
        assert_eq!(argument((3 << 20) - 1), "2M");
        assert_eq!(size(1536), "1.50 KiB");
        assert_eq!(counted(1, "byte"), "1 byte");
        assert_eq!(counted(0, "byte"), "0 bytes");
        assert_eq!(counted(1, "entry"), "1 entry");
        assert_eq!(counted(46, "entry"), "46 entries");
    }

    #[test]
    fn counts_have_limits() {
        assert_eq!(parse_count("1", 1..=32), Ok(1));
        assert_eq!(parse_count("32", 1..=32), Ok(32));
        for text in ["", "0", "33", "-1", "1.5", "x", "99999999999999999999"] {
            let error = parse_count(text, 1..=32).unwrap_err();
            assert!(error.contains("from 1 to 32"), "{text}: {error}");
        }
        let error = parse_count("0", 1..=u64::MAX).unwrap_err();
        assert!(error.contains("from 1 on"), "{error}");
    }

    #[test]
    fn times_have_units_and_limits() {
        assert_eq!(parse_duration("1ms"), Ok(Duration::from_millis(1)));
        assert_eq!(parse_duration("1day"), Ok(Duration::from_secs(86_400)));
        for text in ["", "3", "s", "-1s", "soon"] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.contains("unit"), "{text}: {error}");
        }
        for text in ["0s", "999us", "2days"] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.contains("at least 1ms"), "{text}: {error}");
        }
    }

    #[test]
    fn sweeps_double_the_size() {
        let sizes = |text| parse_sweep(text).map(|sweep| sweep.sizes().collect::<Vec<_>>());
        assert_eq!(sizes("64..256"), Ok(vec![64, 128, 256]));
        assert_eq!(sizes("3..13"), Ok(vec![3, 6, 12]));
        assert_eq!(sizes("1K..1K"), Ok(vec![1024]));
        assert!(sizes("64").is_err());
        assert!(sizes("64..63").is_err());
        assert!(sizes("..64").is_err());
    }
}
