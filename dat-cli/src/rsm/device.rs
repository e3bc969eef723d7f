//! Remote shared memory on a device, between processes and hosts.

use dat_core::attributes::IaAddress;

use super::arguments::{ExportArguments, ImportArguments};
use super::exporter::Exporter;
use super::file::{self, checksum};
use super::place::{Place, node_at};
use super::{Found, contents, report_export};
use crate::failure::Result;
use crate::interrupt::Signals;
use crate::output::{HEADING, Output};
use crate::remote::transport::{reach, resolve};
use crate::size::size;

/// Runs `act` with the place to use and the exporter that the arguments name.
///
/// It runs for each address of the exporter, until one is reached.
///
/// # Errors
/// - Those of `act`.
/// - Operation: no device is usable, or the exporter is missing, refuses, or ends.
pub(super) fn each(
    arguments: &ImportArguments,
    mut act: impl FnMut(Found) -> Result<bool>,
) -> Result<bool> {
    let device = &arguments.device;
    let Some(peer) = &device.connect else {
        let place = match device.named.name() {
            Some(_) => Place::choose(&device.named, None)?,
            None => Place::mock(),
        };
        return act((place, None));
    };
    reach(&resolve(peer)?, |peer| {
        let exporter = (IaAddress::from(peer), u64::from(peer.port()));
        act((Place::choose(&device.named, Some(peer))?, Some(exporter)))
    })
}

/// Exports a segment on a device until a signal ends it.
///
/// # Errors
/// - Those on the mock.
/// - Operation: no device is usable.
pub(super) fn export(
    arguments: &ExportArguments,
    interrupts: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let (memory, _) = contents(arguments)?;
    let saved = arguments.save.as_deref().map(file::create).transpose()?;
    let place = Place::choose(&arguments.named, None)?;
    let others: Vec<_> = arguments
        .importer
        .iter()
        .map(|&address| (node_at(address.ip()), IaAddress::from(address)))
        .collect();
    let bytes = memory.len() as u64;
    let exporter = Exporter::publish(
        &place,
        (arguments.waiting, arguments.port.into()),
        &others,
        memory,
        (arguments.segment, arguments.permission),
    )?;
    output.line(format_args!(
        "{HEADING}dat rsm export{HEADING:#} on {}: {} port {}, {} as segment {:#x}; interrupt to stop",
        place.device.name,
        place.device.addresses().join(" "),
        arguments.port,
        size(bytes),
        arguments.segment
    ));
    let served = exporter.serve(|signals| {
        interrupts.check().is_err() || arguments.signals.is_some_and(|most| signals >= most)
    });
    let counts = exporter.counts();
    let memory = exporter.end()?;
    let signals = served?;
    file::save(saved, &memory)?;
    report_export(
        &place,
        arguments.segment,
        (bytes, signals),
        checksum(&memory),
        counts.way(),
        output,
    );
    if arguments.named.verbose {
        counts.say(output);
    }
    Ok(true)
}
