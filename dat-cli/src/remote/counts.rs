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

/// Returns the way that the connections of a device took; `None` if it made none.
fn way(counts: &[(&'static str, u64)]) -> Option<&'static str> {
    let count = |name| {
        let mut named = counts.iter().filter(|(known, _)| *known == name);
        named.next().map_or(0, |(_, count)| *count)
    };
    match (count("connections"), count("local_connections")) {
        (0, _) => None,
        (_, 0) => Some("packets (UDP)"),
        (all, local) if all == local => Some("local (shared memory)"),
        _ => Some("local and packets"),
    }
}

/// Prints the way of the connections, and the counts of a device that are not 0.
pub(crate) fn say_counts(counts: &[(&'static str, u64)], output: &mut Output) {
    if let Some(way) = way(counts) {
        output.line(format_args!("path: {way}"));
    }
    let named: Vec<String> = counts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{} {count}", name.replace('_', " ")))
        .collect();
    output.line(format_args!("{FAINT}{}{FAINT:#}", named.join(", ")));
}
