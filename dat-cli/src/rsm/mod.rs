//! `dat rsm`: remote shared memory between two nodes.

pub(crate) mod arguments;
mod bench;
pub(crate) mod device;
mod exporter;
pub(crate) mod failure;
mod file;
mod importer;
mod place;
mod plain;

use dat_core::backend::HostBackend;
use dat_host::Pages;
use dat_host::rsm::{Node, Permission, SegmentId};
use serde::Serialize;

use self::arguments::{
    BenchArguments, ExportArguments, GetArguments, ImportArguments, PutArguments, RsmCommand,
};
use self::exporter::{Exporter, Listening};
use self::failure::DuringRsm;
use self::file::checksum;
use self::importer::{Importer, Moved, Shape};
use self::place::{EXPORTER, NOWHERE, Name, Place, Settings};
use self::plain::{ExporterAddress, Plain};
use crate::arguments::{WaitName, WaitingArguments};
use crate::copy::{per_second, rate};
use crate::failure::{During, Failure, Result};
use crate::interrupt::Signals;
use crate::memory::PAGE;
use crate::output::{FAINT, GOOD, HEADING, Output};
use crate::remote::counts::Counts;
use crate::remote::device::with_backend;
use crate::size::{counted, size};
use crate::source::Source;

/// The report of a transfer to or from a segment.
#[derive(Serialize)]
struct Report {
    ok: bool,
    backend: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    /// The way of the connection, if the device has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'static str>,
    segment: u32,
    file: String,
    bytes: u64,
    offset: u64,
    vectors: u64,
    entries: u64,
    mode: &'static str,
    seconds: f64,
    bytes_per_second: Option<f64>,
    checksum: String,
    verified: bool,
}

/// The backend, and the name of its device if it has several.
type On = (&'static str, Option<String>);

/// The place of a command, and the exporter that it names.
type Found = (Place, Option<Listening>);

/// The report of an export.
#[derive(Serialize)]
struct ExportReport {
    ok: bool,
    backend: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    /// The way of the importers, if the device has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'static str>,
    segment: u32,
    bytes: u64,
    signals: u64,
    checksum: String,
}

/// Runs the command that the arguments name.
///
/// # Errors
/// - Usage: the arguments cannot be used together.
/// - File: a file cannot be read or written.
/// - Memory: the system lacks the memory.
/// - Operation: a call failed, or bytes did not arrive.
/// - Interrupted: a signal came.
pub(crate) fn run(command: &RsmCommand, signals: &Signals, output: &mut Output) -> Result<bool> {
    let has_device = command.wants_device()?;
    let done = match command {
        RsmCommand::Export(arguments) if has_device => device::export(arguments, signals, output),
        RsmCommand::Export(arguments) => export(&Place::mock(), arguments, signals, output),
        RsmCommand::Put(arguments) => {
            // Refuses a file that cannot be put before it looks for the exporter.
            source(arguments)?;
            device::each(&arguments.import, |found| {
                put(found, arguments, signals, output)
            })
        }
        RsmCommand::Get(arguments) => device::each(&arguments.import, |found| {
            get(found, arguments, signals, output)
        }),
        RsmCommand::Bench(arguments) => device::each(&arguments.import, |found| {
            let scheme = found.0.device.scheme;
            with_backend!(scheme, B => bench::<B>(found, arguments, signals, output))
                .unwrap_or(Ok(false))
        }),
    };
    // If a signal interrupted a call, the signal is the better report.
    done.or_else(|failure| signals.check().and(Err(failure)))
}

/// Allocates the pages that `bytes` bytes take.
fn pages(bytes: u64) -> Result<Pages> {
    let rounded = usize::try_from(bytes.max(1))
        .ok()
        .and_then(|bytes| bytes.checked_next_multiple_of(PAGE))
        .filter(|bytes| *bytes as u64 <= crate::memory::MOST_MEMORY);
    let rounded = rounded.ok_or_else(|| {
        Failure::usage(
            "the segment is too large",
            "segments of this program are limited to 1 GiB",
            "use a smaller file, --size or --offset",
        )
    })?;
    crate::memory::room(rounded as u64, |room| {
        format!("free some memory, or export less; {} fit", size(room))
    })?;
    Pages::anonymous(rounded).during("allocating the segment")
}

/// Creates the memory of a segment with the file's content; returns the file's length too.
fn contents(arguments: &ExportArguments) -> Result<(Pages, u64)> {
    let open = |path| Source::open(path, "exported");
    let source = arguments.file.as_deref().map(open).transpose()?;
    let length = source.as_ref().map_or(0, Source::length);
    let bytes = arguments.size.unwrap_or(length);
    if bytes < length {
        return Err(Failure::usage(
            "the file does not fit",
            format!(
                "the file has {}, and --size is {}",
                size(length),
                size(bytes)
            ),
            "choose a larger --size, or remove it",
        ));
    }
    let mut memory = pages(bytes)?;
    if let Some(mut source) = source {
        source.read(&mut memory)?;
        source.finish()?;
    }
    Ok((memory, length))
}

/// Exports a segment, imports it at another node in this process, and compares the bytes.
fn export(
    place: &Place,
    arguments: &ExportArguments,
    interrupts: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let (memory, _) = contents(arguments)?;
    let saved = arguments.save.as_deref().map(file::create).transpose()?;
    let expected = checksum(&memory);
    let segment = (arguments.segment, arguments.permission);
    let exporter = Exporter::here(place, memory, segment, interrupts)?;
    let shape = Shape {
        entry_size: 64 << 10,
        entries: 16,
        explicit: false,
    };
    let rights = (arguments.segment, Permission::READ);
    let listening = exporter.listening;
    let importing = (listening, arguments.waiting, interrupts);
    let (moved, signals) = import(place, importing, rights, shape, |_, importer| {
        let length = importer.length()?;
        let moved = importer.get_all(0, length, |_| interrupts.check())?;
        let wanted = arguments.signals.unwrap_or(0);
        for _ in 0..wanted {
            interrupts.check()?;
            importer.signal()?;
            exporter.wait_for_signal()?;
        }
        Ok((moved, wanted))
    })?;
    let memory = exporter.end()?;
    file::save(saved, &memory)?;
    compare(moved.checksum, expected)?;
    report_export(
        place,
        arguments.segment,
        (moved.bytes, signals),
        moved.checksum,
        None,
        output,
    );
    Ok(true)
}

/// Runs `act` with a node that has connected to a segment, and closes the node.
fn import<R>(
    place: &Place,
    (exporter, waiting, signals): (Listening, WaitingArguments, &Signals),
    (segment, permission): (SegmentId, Permission),
    shape: Shape,
    act: impl FnOnce(&Node, &Importer) -> Result<R>,
) -> Result<R> {
    let (address, qualifier) = exporter;
    let settings = Settings {
        number: place.number(Name::Importer, address),
        qualifier: NOWHERE,
        peers: vec![(EXPORTER, address, qualifier)],
        waiting,
        signals: Some(signals),
    };
    let node = place.open(Name::Importer, settings)?;
    let import = || {
        let importer = Importer::connect(&node, segment, permission, shape)?;
        let done = act(&node, &importer)?;
        importer.disconnect()?;
        Ok(done)
    };
    let done = import();
    // Also after a failure, so that the exporter learns of the end.
    let closed = node.close().wait();
    let done = done?;
    closed.during_rsm("rsm_release_controller")?;
    Ok(done)
}

fn report_export(
    place: &Place,
    segment: SegmentId,
    (bytes, signals): (u64, u64),
    checksum: u128,
    path: Option<&'static str>,
    output: &mut Output,
) {
    let (backend, device) = place.on();
    let report = ExportReport {
        ok: true,
        backend,
        device,
        path,
        segment,
        bytes,
        signals,
        checksum: format!("{checksum:032x}"),
    };
    output.line(format_args!(
        "{GOOD}{} exported{GOOD:#} as {:#x} on {}, {}, XXH3 {}",
        size(report.bytes),
        report.segment,
        report.device.as_deref().unwrap_or(report.backend),
        counted(report.signals, "signal"),
        report.checksum
    ));
    output.document(&report);
}

/// Opens the file to put.
fn source(arguments: &PutArguments) -> Result<Source<'_>> {
    Source::open(&arguments.file, "put into a segment")
}

/// Puts a file into a segment, verifies it, and signals if requested.
///
/// Without an exporter it makes one in this process.
fn put(
    (place, exporter): Found,
    arguments: &PutArguments,
    signals: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let shape = Shape::new(&arguments.import)?;
    let mut source = source(arguments)?;
    let segment = arguments.import.segment;
    let length = arguments.offset.saturating_add(source.length());
    let memory = || pages(length);
    let (listening, here) = listening(&place, exporter, segment, memory, signals)?;
    let importing = (listening, arguments.import.device.waiting, signals);
    let rights = (segment, Permission::all());
    let (moved, seconds, counts) = import(&place, importing, rights, shape, |node, importer| {
        let room = importer.length()?.saturating_sub(arguments.offset);
        if source.length() > room {
            return Err(Failure::usage(
                "the file does not fit into the segment",
                format!(
                    "the file has {}, and the segment has {} after --offset",
                    counted(source.length(), "byte"),
                    counted(room, "byte")
                ),
                "choose a smaller --offset, or export a larger segment",
            ));
        }
        let begin = std::time::Instant::now();
        let moved = importer.put_all(arguments.offset, |bytes| {
            signals.check()?;
            source.read(bytes)
        })?;
        source.finish()?;
        let seconds = begin.elapsed().as_secs_f64();
        let back = importer.get_all(arguments.offset, moved.bytes, |_| signals.check())?;
        compare(back.checksum, moved.checksum)?;
        // Posted last, because the exporter may end on the signal.
        if arguments.signal {
            importer.signal()?;
            if let Some(here) = &here {
                here.wait_for_signal()?;
            }
        }
        Ok((moved, seconds, Counts::new(node.counts())))
    })?;
    if let Some(here) = here {
        here.end()?;
    }
    let report = Report {
        file: arguments.file.display().to_string(),
        offset: arguments.offset,
        path: counts.way(),
        ..report(&arguments.import, place.on(), shape, moved, seconds)
    };
    print(&report, "put into", output);
    say_counts(&arguments.import, &counts, output);
    output.document(&report);
    Ok(true)
}

/// Gets bytes of a segment into a file.
///
/// Without an exporter it makes one in this process, which has a file.
fn get(
    (place, exporter): Found,
    arguments: &GetArguments,
    signals: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let shape = Shape::new(&arguments.import)?;
    let segment = arguments.import.segment;
    let source = arguments
        .from
        .as_ref()
        .map(|from| {
            let exported = arguments.exported(from);
            let (memory, end) = contents(&exported)?;
            let length = arguments.bytes(end, memory.len() as u64)?;
            let part = memory.get(arguments.offset as usize..);
            let part = part.and_then(|part| part.get(..length as usize));
            let expected = (length, checksum(part.unwrap_or_default()));
            Ok((memory, exported.permission, expected))
        })
        .transpose()?;
    let (listening, here, expected) = match (exporter, source) {
        (Some(listening), _) => (listening, None, None),
        (None, Some((memory, permission, expected))) => {
            let here = Exporter::here(&place, memory, (segment, permission), signals)?;
            (here.listening, Some(here), Some(expected))
        }
        (None, None) => {
            return Err(Failure::usage(
                "no segment is exported",
                "without --connect, both ends are in this process",
                "give the content of the segment with --from, or an exporter with --connect",
            ));
        }
    };
    let importing = (listening, arguments.import.device.waiting, signals);
    let rights = (segment, Permission::READ);
    let (moved, seconds, counts) = import(&place, importing, rights, shape, |node, importer| {
        let length = match expected {
            Some((length, _)) => length,
            None => {
                let segment = importer.length()?;
                arguments.bytes(segment, segment)?
            }
        };
        let mut file = file::create(&arguments.file)?;
        let begin = std::time::Instant::now();
        let moved = importer.get_all(arguments.offset, length, |bytes| {
            signals.check()?;
            file.write(bytes)
        })?;
        let seconds = begin.elapsed().as_secs_f64();
        if let Some((_, expected)) = expected {
            compare(moved.checksum, expected)?;
        }
        file.keep_new()?;
        Ok((moved, seconds, Counts::new(node.counts())))
    })?;
    if let Some(here) = here {
        here.end()?;
    }
    let report = Report {
        verified: expected.is_some(),
        file: arguments.file.display().to_string(),
        offset: arguments.offset,
        path: counts.way(),
        ..report(&arguments.import, place.on(), shape, moved, seconds)
    };
    print(&report, "got from", output);
    say_counts(&arguments.import, &counts, output);
    output.document(&report);
    Ok(true)
}

/// Measures vectors and plain writes into a segment.
///
/// Without an exporter it makes one in this process.
fn bench<B: HostBackend>(
    (place, exporter): Found,
    arguments: &BenchArguments,
    signals: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let shape = Shape::new(&arguments.import)?;
    let segment = arguments.import.segment;
    let on_mock = place.device.network().is_some();
    let bytes = if on_mock {
        bench::room(shape)
    } else {
        shape.vector()
    };
    let memory = || pages(bytes as u64);
    let (listening, here) = listening(&place, exporter, segment, memory, signals)?;
    // Plain transfers poll, so vectors poll too.
    let waiting = WaitingArguments {
        wait: Some(WaitName::Poll),
        ..arguments.import.device.waiting
    };
    let importing = (listening, waiting, signals);
    let rights = (segment, Permission::all());
    let (report, counts) = import(&place, importing, rights, shape, |node, importer| {
        let length = importer.length()?;
        if length < shape.vector() as u64 {
            return Err(Failure::usage(
                "the segment is too small",
                format!(
                    "it has {}, and --piece x --entries is {}",
                    counted(length, "byte"),
                    counted(shape.vector() as u64, "byte")
                ),
                "use a smaller --piece or fewer --entries, or export a larger segment",
            ));
        }
        let address = ExporterAddress {
            listening,
            node: place.number(Name::Plain, listening.0),
            segment,
        };
        let (adapter, drive) = place.adapter(Name::Plain, waiting.yield_after)?;
        let mut plain = Plain::<B>::connect(&adapter, drive, address, shape)?;
        let measured = bench::run(arguments, place.on(), signals, importer, &mut plain);
        let mut report = measured?;
        // Puts without a vector are direct stores there, and not transfers.
        if on_mock {
            bench::bulk(&mut report, arguments, signals, (node, importer))?;
        }
        plain.disconnect()?;
        let counts = Counts::new(node.counts());
        report.path = counts.way();
        Ok((report, counts))
    })?;
    if let Some(here) = here {
        here.end()?;
    }
    bench::print(&report, output);
    say_counts(&arguments.import, &counts, output);
    output.document(&report);
    Ok(true)
}

/// Returns the exporter that is named, or a new one in this process, which anybody may write.
fn listening(
    place: &Place,
    exporter: Option<Listening>,
    segment: SegmentId,
    memory: impl FnOnce() -> Result<Pages>,
    signals: &Signals,
) -> Result<(Listening, Option<Exporter>)> {
    if let Some(exporter) = exporter {
        return Ok((exporter, None));
    }
    let here = Exporter::here(place, memory()?, (segment, 0o666), signals)?;
    Ok((here.listening, Some(here)))
}

fn report(
    arguments: &ImportArguments,
    (backend, device): On,
    shape: Shape,
    moved: Moved,
    seconds: f64,
) -> Report {
    Report {
        ok: true,
        backend,
        device,
        path: None,
        segment: arguments.segment,
        file: String::new(),
        bytes: moved.bytes,
        offset: 0,
        vectors: moved.vectors,
        entries: moved.entries,
        mode: bench::mode(shape),
        seconds,
        bytes_per_second: rate(moved.bytes, seconds),
        checksum: format!("{:032x}", moved.checksum),
        verified: true,
    }
}

fn compare(found: u128, expected: u128) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Failure::operation(
        "the content of the segment differs from the transferred data",
        format!("its checksum (XXH3) is {found:032x}, expected {expected:032x}"),
    ))
}

fn print(report: &Report, done: &str, output: &mut Output) {
    output.line(format_args!(
        "{GOOD}{} {done}{GOOD:#} segment {:#x} on {}: {}",
        size(report.bytes),
        report.segment,
        report.device.as_deref().unwrap_or(report.backend),
        per_second(report.bytes_per_second)
    ));
    output.line(format_args!(
        "  {HEADING}{} in {}{HEADING:#}, {} mode{}",
        counted(report.entries, "entry"),
        counted(report.vectors, "vector"),
        report.mode,
        if report.verified { ", verified" } else { "" }
    ));
    output.line(format_args!("  {FAINT}XXH3 {}{FAINT:#}", report.checksum));
}

/// Prints the way and the counts of an importer, if they are asked for.
fn say_counts(arguments: &ImportArguments, counts: &Counts, output: &mut Output) {
    if arguments.device.named.verbose {
        counts.say(output);
    }
}
