//! Sizes as people write them.

use parse_size::Config;

/// Reads `4096`, `4K`, `4KiB` or `1.5M`; all units are powers of two.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let size = Config::new()
        .with_binary()
        .parse_size(text)
        .map_err(|error| format!("{error}; write for example 4096, 64K or 1M"))?;
    if size == 0 {
        return Err("must be at least 1".into());
    }
    Ok(size)
}

/// The sizes from a first to a last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sweep {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Sweep {
    /// The first size, and twice the one before until the last is passed.
    pub(crate) fn sizes(self) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(self.first), |size| size.checked_mul(2))
            .take_while(move |size| *size <= self.last)
    }
}

/// Reads `64..1M`.
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
        for text in ["", "0", "-1", "many", "4 Q"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sweeps_double() {
        let sizes = |text| parse_sweep(text).map(|sweep| sweep.sizes().collect::<Vec<_>>());
        assert_eq!(sizes("64..256"), Ok(vec![64, 128, 256]));
        assert_eq!(sizes("3..13"), Ok(vec![3, 6, 12]));
        assert_eq!(sizes("1K..1K"), Ok(vec![1024]));
        assert!(sizes("64").is_err());
        assert!(sizes("64..63").is_err());
        assert!(sizes("..64").is_err());
    }
}
