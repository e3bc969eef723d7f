//! Remote shared memory on a device, between processes and hosts.

use dat_core::attributes::IaAddress;
use dat_devices::ByAddress;

use super::arguments::{ExportArguments, ImportArguments, RsmCommand};
use super::exporter::{Exporter, Listening};
use super::file::{Fresh, checksum};
use super::place::{OnDevice, Place, node_at};
use super::{ExportReport, bench, contents, get, put, report_export, source};
use crate::failure::Result;
use crate::interrupt::Signals;
use crate::output::{HEADING, Output};
use crate::remote::transport::{reach, resolve};
use crate::size::size;

/// Runs the command that the arguments name, on a device.
///
/// # Errors
/// - Those on the mock.
/// - Operation: no device is usable, or the exporter is missing, refuses, or ends.
pub(crate) fn run<B: ByAddress>(
    command: &RsmCommand,
    signals: &Signals,
    output: &mut Output,
) -> Result<bool> {
    match command {
        RsmCommand::Export(arguments) => export::<B>(arguments, signals, output),
        RsmCommand::Put(arguments) => {
            // Refuses a file that cannot be put before it looks for the exporter.
            source(arguments)?;
            each::<B>(&arguments.import, |found| {
                put(|| Ok(found), arguments, signals, output)
            })
        }
        RsmCommand::Get(arguments) => each::<B>(&arguments.import, |found| {
            get(|| Ok(found), arguments, signals, output)
        }),
        RsmCommand::Bench(arguments) => each::<B>(&arguments.import, |found| {
            bench(|| Ok(found), arguments, signals, output)
        }),
    }
}

/// Runs `act` with the device to use and the exporter that the arguments name.
///
/// It runs for each address of the exporter, until one is reached.
fn each<B: ByAddress>(
    arguments: &ImportArguments,
    mut act: impl FnMut((OnDevice<B>, Option<Listening>)) -> Result<bool>,
) -> Result<bool> {
    let named = &arguments.device.named;
    let Some(peer) = &arguments.device.connect else {
        return act((OnDevice::choose(named, None)?, None));
    };
    reach(&resolve(peer)?, |peer| {
        let exporter = (IaAddress::from(peer), u64::from(peer.port()));
        act((OnDevice::choose(named, Some(peer))?, Some(exporter)))
    })
}

fn export<B: ByAddress>(
    arguments: &ExportArguments,
    interrupts: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let (memory, _) = contents(arguments)?;
    let save = arguments.save.as_deref().map(Fresh::create).transpose()?;
    let place = OnDevice::<B>::choose(&arguments.named, None)?;
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
    let memory = exporter.end()?;
    let signals = served?;
    if let Some(save) = save {
        save.write(&memory)?;
    }
    let (backend, device) = place.on();
    report_export(
        &ExportReport {
            ok: true,
            backend,
            device,
            segment: arguments.segment,
            bytes,
            signals,
            checksum: format!("{:032x}", checksum(&memory)),
        },
        output,
    );
    Ok(true)
}
