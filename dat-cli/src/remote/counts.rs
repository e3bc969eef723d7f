//! The counts of a device: packets, retransmits and errors.

use dat_host::Adapter;

use crate::failure::{Failure, Result};
use crate::output::{FAINT, Output};

/// Returns the named counts of a device.
pub(crate) fn counts(adapter: &Adapter) -> Vec<(&'static str, u64)> {
    let counts = adapter.counts().into_iter();
    counts.map(|(count, value)| (count.name(), value)).collect()
}

/// Checks that a device has counts for an argument that prints them.
///
/// # Errors
/// - Usage: it has none.
pub(crate) fn has_counts(adapter: &Adapter, argument: &str) -> Result<()> {
    match adapter.counts().is_empty() {
        true => Err(without_counts(argument)),
        false => Ok(()),
    }
}

/// Returns the failure of an argument that prints the counts of a device that has none.
pub(crate) fn without_counts(argument: &str) -> Failure {
    Failure::usage(
        format!("{argument} cannot be used here"),
        "packets are counted only by RDMA in software (`--device roce` or --connect) in write, read and send",
        format!("remove {argument}"),
    )
}

/// Prints the counts of a device that are not 0.
pub(crate) fn say_counts(counts: &[(&'static str, u64)], output: &mut Output) {
    let named: Vec<String> = counts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{} {count}", name.replace('_', " ")))
        .collect();
    output.line(format_args!("{FAINT}{}{FAINT:#}", named.join(", ")));
}
