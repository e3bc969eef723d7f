//! `dat rsm`: remote shared memory between two nodes.

pub(crate) mod arguments;
mod bench;
pub(crate) mod device;
mod file;
mod importer;
pub(crate) mod pair;
pub(crate) mod plain;

use dat_rsm::{AccessEntry, ExportFlags, ExportId, Permission, SegmentId, SignalFlags};
use serde::Serialize;

use self::arguments::{
    BenchArguments, ExportArguments, GetArguments, ImportArguments, PutArguments, RsmCommand,
};
use self::file::{Contents, Fresh, Source};
use self::importer::{Importer, Moved, Shape};
use self::pair::{DuringRsm, End, Pair, PairWait, THIRD};
use self::plain::{ExporterAddress, Plain};
use crate::copy::{per_second, rate};
use crate::failure::{Failure, Result};
use crate::host::{Memory, PAGE};
use crate::interrupt::Signals;
use crate::output::{FAINT, GOOD, HEADING, Output};
use crate::size::{counted, size};

/// The report of a transfer to or from a segment.
#[derive(Serialize)]
struct Report {
    ok: bool,
    backend: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
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
const MOCK: On = ("mock", None);

/// The report of an export.
#[derive(Serialize)]
struct ExportReport {
    ok: bool,
    backend: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
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
    if command.wants_device()? {
        return crate::remote::device::rsm(command, signals, output);
    }
    match command {
        RsmCommand::Export(arguments) => export(arguments, signals, output),
        RsmCommand::Put(arguments) => put(arguments, signals, output),
        RsmCommand::Get(arguments) => get(arguments, signals, output),
        RsmCommand::Bench(arguments) => bench(arguments, signals, output),
    }
}

/// A segment that node B of a pair on the mock exports.
struct Both<'p> {
    pair: &'p Pair,
    export: ExportId,
    memory: Memory,
}

impl<'p> Both<'p> {
    fn publish(pair: &'p Pair, memory: Memory, id: SegmentId, digits: u32) -> Result<Self> {
        let engine = pair.engine(End::B);
        let controller = pair.controller(End::B);
        let export = engine
            .export_create(controller, memory.region(), ExportFlags::empty())
            .during_rsm("rsm_memseg_export_create")?;
        let list = [End::A.node(), THIRD].map(|node| AccessEntry {
            node,
            permission: digits,
        });
        engine
            .export_publish(export, id, &list)
            .during_rsm("rsm_memseg_export_publish")?;
        Ok(Self {
            pair,
            export,
            memory,
        })
    }

    fn import(
        &self,
        id: SegmentId,
        permission: Permission,
        shape: Shape,
    ) -> Result<Importer<'p, backend_mock::MockBackend, PairWait<'p>>> {
        let engine = (self.pair.engine(End::A), self.pair.controller(End::A));
        let wait = self.pair.wait(End::A);
        Importer::connect(engine, (End::B.node(), id), permission, shape, wait)
    }

    /// Destroys the export, which revokes the segment.
    fn end(self) -> Result<()> {
        let wait = &mut self.pair.wait(End::B);
        let engine = self.pair.engine(End::B);
        engine
            .export_destroy(self.export, wait)
            .during_rsm("rsm_memseg_export_destroy")
    }
}

/// Returns the size of the pages that `bytes` bytes take.
fn pages(bytes: u64) -> Result<usize> {
    let rounded = usize::try_from(bytes.max(1))
        .ok()
        .and_then(|bytes| bytes.checked_next_multiple_of(PAGE))
        .filter(|bytes| *bytes as u64 <= crate::host::MOST_MEMORY);
    let rounded = rounded.ok_or_else(|| {
        Failure::usage(
            "the segment is too large",
            "segments of this program are limited to 1 GiB",
            "use a smaller file, --size or --offset",
        )
    })?;
    crate::host::room(rounded as u64, |room| {
        format!("free some memory, or export less; {} fit", size(room))
    })?;
    Ok(rounded)
}

/// Creates the memory of a segment with the file's content; returns the file's length too.
fn contents(arguments: &ExportArguments) -> Result<(Memory, u64)> {
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
    let memory = Memory::new(pages(bytes)?);
    if let Some(mut source) = source {
        let mut position = 0;
        let mut bytes = vec![0; 1 << 20];
        loop {
            let count = source.read(&mut bytes)?;
            memory.store(position, bytes.get(..count).unwrap_or_default());
            position += count;
            if count == 0 {
                break;
            }
        }
    }
    Ok((memory, length))
}

fn export(arguments: &ExportArguments, interrupts: &Signals, output: &mut Output) -> Result<bool> {
    let (memory, _) = contents(arguments)?;
    let save = arguments.save.as_deref().map(Fresh::create).transpose()?;
    let pair = Pair::open()?;
    let both = Both::publish(&pair, memory, arguments.segment, arguments.permission)?;
    let shape = Shape {
        entry_size: 64 << 10,
        entries: 16,
        explicit: false,
    };
    let mut importer = both.import(arguments.segment, Permission::READ, shape)?;
    let length = importer.length()?;
    let moved = importer.get_all(0, length, |_| interrupts.check())?;
    let here = Contents::of(memory, length);
    let mut signals = 0;
    if let Some(count) = arguments.signals {
        let none = SignalFlags::empty();
        for _ in 0..count {
            interrupts.check()?;
            let engine = pair.engine(End::A);
            engine
                .signal_post(importer.import, none, &mut importer.wait)
                .during_rsm("rsm_intr_signal_post")?;
            let wait = &mut pair.wait(End::B);
            pair.engine(End::B)
                .signal_wait(both.export, None, wait)
                .during_rsm("rsm_intr_signal_wait")?;
            signals += 1;
        }
    }
    importer.disconnect()?;
    both.end()?;
    if let Some(save) = save {
        save.write(memory)?;
    }
    here.compare(moved.checksum)?;
    report_export(
        &ExportReport {
            ok: true,
            backend: "mock",
            device: None,
            segment: arguments.segment,
            bytes: length,
            signals,
            checksum: format!("{:032x}", moved.checksum),
        },
        output,
    );
    Ok(true)
}

fn report_export(report: &ExportReport, output: &mut Output) {
    output.line(format_args!(
        "{GOOD}{} exported{GOOD:#} as {:#x} on {}, {}, XXH3 {}",
        size(report.bytes),
        report.segment,
        report.device.as_deref().unwrap_or(report.backend),
        counted(report.signals, "signal"),
        report.checksum
    ));
    output.document(report);
}

/// Puts a file into a segment, verifies it, and signals if requested.
fn put_file<B: crate::host::HostBackend, W: dat_core::event::Wait>(
    arguments: &PutArguments,
    importer: &mut Importer<'_, B, W>,
    on: On,
    signals: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let mut source = Source::open(&arguments.file, "put into a segment")?;
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
    let seconds = begin.elapsed().as_secs_f64();
    let back = importer.get_all(arguments.offset, moved.bytes, |_| signals.check())?;
    compare(back.checksum, moved.checksum)?;
    // Posted last, because the exporter may end on the signal.
    if arguments.signal {
        importer
            .engine
            .signal_post(importer.import, SignalFlags::empty(), &mut importer.wait)
            .during_rsm("rsm_intr_signal_post")?;
    }
    let report = Report {
        file: arguments.file.display().to_string(),
        offset: arguments.offset,
        ..report(&arguments.import, on, importer.shape, moved, seconds)
    };
    print(&report, "put into", output);
    Ok(true)
}

/// Gets bytes of a segment into a file.
fn get_file<B: crate::host::HostBackend, W: dat_core::event::Wait>(
    arguments: &GetArguments,
    importer: &mut Importer<'_, B, W>,
    (length, expected): (u64, Option<Contents>),
    on: On,
    signals: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let mut file = Fresh::create(&arguments.file)?;
    let begin = std::time::Instant::now();
    let moved = importer.get_all(arguments.offset, length, |bytes| {
        signals.check()?;
        file.append(bytes)
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    let verified = expected.is_some();
    if let Some(expected) = expected {
        expected.compare(moved.checksum)?;
    }
    file.keep()?;
    let report = Report {
        verified,
        file: arguments.file.display().to_string(),
        offset: arguments.offset,
        ..report(&arguments.import, on, importer.shape, moved, seconds)
    };
    print(&report, "got from", output);
    Ok(true)
}

fn put(arguments: &PutArguments, signals: &Signals, output: &mut Output) -> Result<bool> {
    let shape = Shape::new(&arguments.import)?;
    let length = Source::open(&arguments.file, "put into a segment")?.length();
    let memory = Memory::new(pages(arguments.offset.saturating_add(length))?);
    let pair = Pair::open()?;
    let both = Both::publish(&pair, memory, arguments.import.segment, 0o666)?;
    let mut importer = both.import(arguments.import.segment, Permission::all(), shape)?;
    let ok = put_file(arguments, &mut importer, MOCK, signals, output)?;
    if arguments.signal {
        let wait = &mut pair.wait(End::B);
        pair.engine(End::B)
            .signal_wait(both.export, None, wait)
            .during_rsm("rsm_intr_signal_wait")?;
    }
    importer.disconnect()?;
    both.end()?;
    Ok(ok)
}

fn get(arguments: &GetArguments, signals: &Signals, output: &mut Output) -> Result<bool> {
    let shape = Shape::new(&arguments.import)?;
    let Some(from) = &arguments.from else {
        return Err(Failure::usage(
            "no segment is exported",
            "on the mock, both ends are in this process",
            "give the content of the segment with --from",
        ));
    };
    let exported = arguments.exported(from);
    let (memory, length) = contents(&exported)?;
    let length = arguments.bytes(length, memory.length() as u64)?;
    let pair = Pair::open()?;
    let both = Both::publish(&pair, memory, arguments.import.segment, exported.permission)?;
    let mut importer = both.import(arguments.import.segment, Permission::READ, shape)?;
    let expected = Contents::part(both.memory, arguments.offset, length);
    let ok = get_file(
        arguments,
        &mut importer,
        (length, Some(expected)),
        MOCK,
        signals,
        output,
    )?;
    importer.disconnect()?;
    both.end()?;
    Ok(ok)
}

fn bench(arguments: &BenchArguments, signals: &Signals, output: &mut Output) -> Result<bool> {
    let shape = Shape::new(&arguments.import)?;
    let id = arguments.import.segment;
    let pair = Pair::open()?;
    let memory = Memory::new(pages(bench::room(shape) as u64)?);
    let both = Both::publish(&pair, memory, id, 0o666)?;
    let mut importer = both.import(id, Permission::all(), shape)?;
    let exporter = ExporterAddress {
        address: pair.address(End::B),
        qualifier: dat_rsm::DEFAULT_QUALIFIER,
        node: THIRD,
        segment: id,
    };
    let mut plain = Plain::connect(pair.third()?, &pair, exporter, shape)?;
    let mut report = bench::run(arguments, MOCK, signals, &mut importer, &mut plain)?;
    bench::bulk(&mut report, arguments, signals, &mut importer)?;
    plain.disconnect()?;
    importer.disconnect()?;
    both.end()?;
    bench::print(&report, output);
    output.document(&report);
    Ok(true)
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
    output.document(report);
}
