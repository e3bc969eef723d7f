//! Hosts of the numbered fabric of this process.

/// A host of the numbered fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberedHost {
    pub(crate) number: u8,
    /// True if the host has the extended operations.
    pub(crate) is_extended: bool,
    /// True if processor and device see the same memory without `dat_lmr_sync_rdma_*`.
    pub(crate) is_coherent: bool,
}

impl NumberedHost {
    /// Parses a number, 1 if there is none, and the words after it; `None` if one is unknown.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let (number, words) = words.split_first().unwrap_or((&"1", &[]));
        let mut host = Self {
            number: number
                .parse()
                .ok()
                .filter(|number| (1..=254).contains(number))?,
            is_extended: false,
            is_coherent: true,
        };
        for word in words {
            match *word {
                "extended" => host.is_extended = true,
                "non-coherent" => host.is_coherent = false,
                _ => return None,
            }
        }
        Some(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_number_and_words() {
        let host = |text: &str| NumberedHost::parse(&text.split_whitespace().collect::<Vec<_>>());
        let plain = NumberedHost {
            number: 7,
            is_extended: false,
            is_coherent: true,
        };
        assert_eq!(host("7"), Some(plain));
        assert_eq!(host("").map(|host| host.number), Some(1));
        for text in ["7 extended non-coherent", "7 non-coherent extended"] {
            let both = NumberedHost {
                is_extended: true,
                is_coherent: false,
                ..plain
            };
            assert_eq!(host(text), Some(both));
        }
        for wrong in ["0", "255", "x", "7 more", "extended"] {
            assert_eq!(host(wrong), None, "{wrong}");
        }
    }
}
