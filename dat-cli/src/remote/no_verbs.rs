//! RDMA devices in a build without the feature `verbs`.

use crate::devices::Device;
use crate::failure::{Failure, FailureKind};

/// The remedy for a build without devices.
const REMEDY: &str = "on Linux with the headers of rdma-core (Debian: libibverbs-dev \
librdmacm-dev libclang-dev pkg-config), build with `cargo run --release --features verbs`";

/// Returns the failure of a command that names an RDMA device.
pub(crate) fn missing(name: &str) -> Failure {
    Failure {
        kind: FailureKind::Usage,
        what: format!("{name} cannot be used: this build does not support RDMA devices"),
        why: "it was built without the feature `verbs`".into(),
        remedy: format!("use roce, which needs no device; for RDMA devices, {REMEDY}"),
    }
}

/// Returns an empty list.
pub(crate) fn devices() -> Vec<Device> {
    Vec::new()
}

/// Returns the note that `dat devices` prints in place of RDMA devices.
pub(crate) fn note() -> Option<String> {
    Some(format!(
        "this build does not support RDMA devices; {REMEDY}"
    ))
}
