//! Choice of the registered provider that a consumer asks for.

use std::ffi::CStr;

use dat_core::{Error, ErrorKind, Result, Subtype};

/// The four properties by which registries distinguish providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// The name that consumers pass to `dat_ia_open`.
    pub name: &'a CStr,
    /// The major version of the interface.
    pub major: u32,
    /// The minor version of the interface.
    pub minor: u32,
    /// True if the provider declares itself thread-safe.
    pub is_thread_safe: bool,
}

/// The request of a consumer, with the same properties.
pub type Wanted<'a> = Candidate<'a>;

impl Wanted<'_> {
    /// Returns the candidates that fit, best first.
    ///
    /// Those with exactly this version come first, then those with later minor versions, in their
    /// order.
    ///
    /// # Errors
    /// - PROVIDER_NOT_FOUND (NAME_NOT_REGISTERED): no candidate has the name.
    /// - PROVIDER_NOT_FOUND (MAJOR_NOT_FOUND): none of these has the major version.
    /// - PROVIDER_NOT_FOUND (MINOR_NOT_FOUND): none of these has the minor version or a later one.
    /// - PROVIDER_NOT_FOUND (THREAD_SAFETY_NOT_FOUND): none of these has the thread safety.
    ///
    /// Spec: IAO-06, REGL-05
    pub fn choose<T>(
        &self,
        candidates: impl IntoIterator<Item = T>,
        as_candidate: impl Fn(&T) -> Candidate<'_>,
    ) -> Result<Vec<T>> {
        let mut left: Vec<T> = candidates.into_iter().collect();
        let mut keep = |subtype, will_do: &dyn Fn(Candidate<'_>) -> bool| {
            left.retain(|one| will_do(as_candidate(one)));
            match left.is_empty() {
                true => Err(Error::new(ErrorKind::ProviderNotFound, subtype)),
                false => Ok(()),
            }
        };
        keep(Subtype::NameNotRegistered, &|one| one.name == self.name)?;
        keep(Subtype::MajorNotFound, &|one| one.major == self.major)?;
        keep(Subtype::MinorNotFound, &|one| one.minor >= self.minor)?;
        keep(Subtype::ThreadSafetyNotFound, &|one| {
            one.is_thread_safe == self.is_thread_safe
        })?;
        left.sort_by_key(|one| as_candidate(one).minor);
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn candidate(name: &CStr, major: u32, minor: u32, is_thread_safe: bool) -> Candidate<'_> {
        Candidate {
            name,
            major,
            minor,
            is_thread_safe,
        }
    }

    const REGISTERED: [Candidate<'static>; 6] = [
        candidate(c"a", 1, 2, false),
        candidate(c"a", 2, 2, false),
        candidate(c"a", 2, 1, false),
        candidate(c"a", 2, 0, true),
        candidate(c"b", 2, 0, true),
        candidate(c"a", 2, 1, false),
    ];

    fn chosen(wanted: Wanted<'_>) -> Result<Vec<Candidate<'static>>> {
        wanted.choose(REGISTERED, |one| *one)
    }

    /// Spec: IAO-06, REGL-05
    #[test]
    fn the_nearest_sufficient_version_is_chosen() {
        let [_, later, first, safe, _, second] = REGISTERED;
        assert_eq!(
            chosen(candidate(c"a", 2, 0, false)),
            Ok(vec![first, second, later])
        );
        assert_eq!(chosen(candidate(c"a", 2, 2, false)), Ok(vec![later]));
        assert_eq!(chosen(candidate(c"a", 2, 0, true)), Ok(vec![safe]));
    }

    /// Spec: IAO-06, REGL-05
    #[test]
    fn the_refusal_names_the_missing_property() {
        for (wanted, subtype) in [
            (candidate(c"c", 2, 0, false), Subtype::NameNotRegistered),
            (candidate(c"a", 3, 0, false), Subtype::MajorNotFound),
            (candidate(c"a", 2, 3, false), Subtype::MinorNotFound),
            (candidate(c"b", 2, 0, false), Subtype::ThreadSafetyNotFound),
        ] {
            let refused = Error::new(ErrorKind::ProviderNotFound, subtype);
            assert_eq!(chosen(wanted), Err(refused));
        }
    }
}
