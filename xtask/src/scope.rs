//! The packages and features that checks build: one set for each, so that no crate is compiled
//! twice.

/// Features of all members that tests and programs of guests are built with.
///
/// The feature of `dat-core` that replaces its atomics is not among them.
const FEATURES: &str = "backend-mmio/vendor-header,dat-bench/host,dat-bench/suite,dat-bench/verbs,dat-cli/verbs,\
    dat-devices/verbs,dat-ffi/verbs,dat-host/async-io,dat-host/bytes,dat-host/fd,dat-host/rsm,\
    dat-host/serde,dat-host/tokio,dat-host/tracing,dat-host/verbs,dat-provider/verbs,\
    dat-tests/sockets,dat-tests/verbs,libdat/verbs,librsm/verbs";

/// The features of code that only lints compile in this scope.
const LINTED: &str = "dat-bench/scale,dat-tests/mailbox";

/// The packages of a check, and their features.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The default members with their default features; needs a Rust toolchain only.
    Default,
    /// All members with the features of devices and of optional interfaces.
    All,
}

impl Scope {
    /// Returns the arguments that select the scope in a call of cargo.
    pub(crate) fn arguments(self) -> Vec<String> {
        self.with(&[FEATURES])
    }

    /// Returns the arguments for lints.
    pub(crate) fn linted(self) -> Vec<String> {
        self.with(&[FEATURES, LINTED])
    }

    fn with(self, features: &[&str]) -> Vec<String> {
        match self {
            Self::Default => Vec::new(),
            Self::All => ["--workspace", "--features", &features.join(",")]
                .map(str::to_owned)
                .to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    fn named() -> impl Iterator<Item = (&'static str, &'static str)> {
        let all = FEATURES.split(',').chain(LINTED.split(','));
        all.map(|feature| feature.split_once('/').expect("package/feature"))
    }

    #[test]
    fn every_feature_exists_and_no_device_is_left_out() {
        let workspace = Workspace::load().expect("the workspace");
        for (package, feature) in named() {
            let member = workspace.member(package).expect("a member");
            assert!(member.features.contains_key(feature), "{package}/{feature}");
        }
        for member in workspace.members() {
            let is_named = |feature: &str| named().any(|it| it == (member.name.as_str(), feature));
            assert!(
                !member.features.contains_key("verbs") || is_named("verbs"),
                "{} has a device that no test builds",
                member.name
            );
        }
    }
}
