//! The counts of a device: packets, retransmits and errors.

use std::collections::BTreeMap;

use dat_core::backend::Count;
use dat_host::Adapter;

use crate::failure::{Failure, Result};
use crate::output::{FAINT, Output};

/// The counts of a device, each since it was opened.
#[derive(Default)]
pub(crate) struct Counts(Vec<(Count, u64)>);

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
        "packets are counted only by RDMA in software (`--device roce` or --connect), by `dat perf` \
        in write, read and send",
        format!("remove {argument}"),
    )
}

impl Counts {
    pub(crate) const fn new(counts: Vec<(Count, u64)>) -> Self {
        Self(counts)
    }

    fn get(&self, name: &str) -> u64 {
        let mut named = self.0.iter().filter(|(count, _)| count.name() == name);
        named.next().map_or(0, |(_, count)| *count)
    }

    /// Returns the way that the connections of the device took; `None` if it made none.
    pub(crate) fn way(&self) -> Option<&'static str> {
        match (self.get("connections"), self.get("local_connections")) {
            (0, _) => None,
            (_, 0) => Some("packets"),
            (all, local) if all == local => Some("local"),
            _ => Some("local and packets"),
        }
    }

    /// Prints the way of the connections, and the counts that are not 0.
    pub(crate) fn say(&self, output: &mut Output) {
        if let Some(way) = self.way() {
            let meaning = match way {
                "local" => " (shared memory)",
                "packets" => " (UDP)",
                _ => "",
            };
            output.line(format_args!("path: {way}{meaning}"));
        }
        let named: Vec<String> = (self.0.iter())
            .filter(|(_, value)| *value > 0)
            .map(|(count, value)| format!("{} {value}", count.name().replace('_', " ")))
            .collect();
        output.line(format_args!("{FAINT}{}{FAINT:#}", named.join(", ")));
    }

    /// Returns the counts by their names.
    pub(crate) fn named(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.0.iter();
        counts
            .map(|(count, value)| (count.name(), *value))
            .collect()
    }
}
