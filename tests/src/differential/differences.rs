//! In what backends may differ: all of it, and nothing else.

/// What is left out of the lists for a backend, or counts as the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Nothing is bound.
    NoWindows,
}

/// The differences of each backend from the mock, and why.
pub const DIFFERENCES: &[(&str, Difference, &str)] = &[(
    "pvrdma",
    Difference::NoWindows,
    "the device has no windows, so that there is nothing to bind",
)];

/// Whether a backend differs in this.
pub(super) fn differs(backend: &str, what: Difference) -> bool {
    DIFFERENCES
        .iter()
        .any(|(name, known, _)| *name == backend && *known == what)
}
