//! `dat copy`: moves a file through registered memory, by RDMA Writes between two endpoints.

mod target;

use std::io::IsTerminal;
use std::path::Path;
use std::time::Instant;

use indicatif::{BinaryBytes, ProgressBar, ProgressFinish, ProgressStyle};
use serde::Serialize;

use self::target::Target;
use crate::arguments::CopyArguments;
use crate::failure::{Failure, Result};
use crate::interrupt::Signals;
use crate::memory::{self, MOST_MEMORY};
use crate::output::{GOOD, Output};
use crate::remote::commands::with_server;
use crate::remote::counts::{Counts, has_counts};
use crate::remote::file_store::{FileStore, NoFiles, Single};
use crate::remote::plain::{Pair, Plain};
use crate::remote::protocol::{Refusal, is_plain_name};
use crate::remote::transfer::{Outcome, Sending, Shape, send_file};
use crate::size::{argument, counted, size};
use crate::source::Source;

#[derive(Serialize)]
struct Report {
    ok: bool,
    backend: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    /// The way of the connection, if the device has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'static str>,
    source: String,
    target: String,
    bytes: u64,
    writes: u64,
    segments: u64,
    depth: u16,
    chunk: u64,
    /// All of it: connecting, reading, moving, writing, checking.
    seconds: f64,
    bytes_per_second: Option<f64>,
    /// From the first write to the last slot that was emptied; on the mock, the writes alone.
    transfer_seconds: f64,
    /// On the mock, the rate in the pair with the median ratio.
    transfer_bytes_per_second: Option<f64>,
    #[serde(flatten)]
    plain: Option<PlainReport>,
    checksum: String,
}

/// The comparison with plain copies of the same data, in buffers of the same shape.
#[derive(Serialize)]
struct PlainReport {
    /// Rate of the plain copies in the pair with the median ratio.
    plain_bytes_per_second: Option<f64>,
    /// Ratio of the two rates, transfer over plain copies.
    ratio: Option<f64>,
    pairs: usize,
}

impl Report {
    /// Returns the report of a copy that began at `begin`; the caller adds the device.
    fn new(
        arguments: &CopyArguments,
        backend: &'static str,
        target: String,
        outcome: Outcome,
        plain: Option<&Plain>,
        begin: Instant,
    ) -> Self {
        let Outcome {
            bytes,
            writes,
            segments,
            checksum,
            moving,
        } = outcome;
        let seconds = begin.elapsed().as_secs_f64();
        let moving = moving.as_secs_f64();
        let median = plain.and_then(Plain::median);
        let server = arguments.device.connect.as_ref();
        Self {
            ok: true,
            backend,
            device: None,
            server: server.map(|peer| peer.host.clone()),
            path: None,
            source: arguments.source.display().to_string(),
            target,
            bytes,
            writes,
            segments,
            depth: arguments.depth,
            chunk: arguments.chunk,
            seconds,
            bytes_per_second: rate(bytes, seconds),
            transfer_seconds: moving,
            transfer_bytes_per_second: match plain {
                Some(_) => median.map(Pair::transfer_rate),
                None => rate(bytes, moving),
            },
            plain: plain.map(|plain| PlainReport {
                plain_bytes_per_second: median.map(Pair::plain_rate),
                ratio: median.map(Pair::ratio),
                pairs: plain.pairs(),
            }),
            checksum: format!("{checksum:032x}"),
        }
    }
}

/// Copies a file over the mock, over a device of this host, or to a server.
///
/// # Errors
/// - Usage: source and target cannot be used together.
/// - File: one of them cannot be read or written.
/// - Memory: the system lacks the memory for the buffers.
/// - Operation: no device or server is usable, the server refused the file, the transfer failed, or
///   the copy differs from the source when it is read back.
/// - Interrupted: a signal came.
pub(crate) fn run(
    arguments: &CopyArguments,
    signals: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let is_mock = !arguments.device.wants_device()?;
    let geometry = geometry(arguments)?;
    let begin = Instant::now();
    let source = &arguments.source;
    let mut file = Source::open(source, "copied")?;
    let server = arguments.device.connect.as_ref();
    let (target, name, single) = match server {
        Some(_) => {
            let name = remote_name(source, &arguments.target)?;
            (name.clone(), name, None)
        }
        None => {
            let part = Target::choose(&file, &arguments.target)?.begin()?;
            let target = part.target().name().display().to_string();
            let single = Single::new(part, !is_mock);
            (target, "copy".into(), Some(single))
        }
    };
    let length = file.length();
    let shape = fitted(geometry, length);
    // The slots at both ends, as many bytes for plain copies, and one buffer to read into.
    let sides = if is_mock { 4 } else { 2 };
    memory::room(sides * shape.bytes() + shape.slot() as u64, |room| {
        smaller(geometry, room / (sides + 1))
    })?;
    let mut plain = is_mock.then(|| Plain::new(shape)).transpose()?;
    let progress = progress_bar(length, output);
    let mut read = |buffer: &mut [u8]| {
        let count = file.read(buffer)?;
        progress.inc(count as u64);
        // The last bytes; the server stores the file only if it is whole.
        if file.is_read() {
            file.finish()?;
        }
        Ok(count)
    };
    let check = || signals.check();
    // A server in this process needs memory for messages in addition.
    let memory = shape.bytes() + (4 << 20);
    let files: &dyn FileStore = single.as_ref().map_or(&NoFiles, |single| single);
    let sent = with_server(
        &arguments.device,
        memory,
        files,
        |client, server, device| {
            if arguments.device.named.verbose {
                has_counts(&client.0, "--verbose")?;
            }
            let adapter = client.0.clone();
            let sending = Sending {
                name: &name,
                length,
                shape,
                plain: plain.as_mut(),
            };
            let outcome = send_file(client, server, sending, &mut read, &check)?;
            Ok((outcome, device.clone(), Counts::new(adapter.counts())))
        },
    );
    // The failure of the file at a server in this process says more than its refusal.
    let (outcome, device, counts) = sent.map_err(|failure| {
        let own = single.as_ref().and_then(Single::failure);
        own.unwrap_or(failure)
    })?;
    progress.finish_and_clear();
    let report = Report {
        device: (!is_mock).then_some(device.name),
        path: counts.way(),
        ..Report::new(
            arguments,
            device.scheme,
            target,
            outcome,
            plain.as_ref(),
            begin,
        )
    };
    print(&report, output);
    if arguments.device.named.verbose {
        counts.say(output);
    }
    output.document(&report);
    Ok(true)
}

/// Returns the name of the copy at the server.
fn remote_name(source: &Path, target: &Path) -> Result<String> {
    let name = if target == Path::new(".") {
        source.file_name().map(Path::new).unwrap_or(target)
    } else {
        target
    };
    name.to_str()
        .filter(|name| is_plain_name(name))
        .map(str::to_owned)
        .ok_or_else(|| {
            Failure::usage(
                format!("a server cannot store a file as {}", name.display()),
                Refusal::BadName.why(),
                "with --connect, DST must be a name without a directory and without a leading dot, or `.`",
            )
        })
}

fn geometry(arguments: &CopyArguments) -> Result<Shape> {
    let (depth, segments) = (u64::from(arguments.depth), u64::from(arguments.segments));
    let too_much = || {
        Failure::usage(
            "the buffers are too large",
            format!(
                "depth x segments x chunk = {depth} x {segments} x {} exceeds {}",
                size(arguments.chunk),
                size(MOST_MEMORY)
            ),
            format!(
                "use a smaller --depth, --segments or --chunk; --chunk {} fits",
                argument(MOST_MEMORY / (depth * segments))
            ),
        )
    };
    let total = arguments
        .chunk
        .checked_mul(depth * segments)
        .filter(|total| *total <= MOST_MEMORY)
        .and_then(|_| usize::try_from(arguments.chunk).ok());
    Ok(Shape {
        depth: arguments.depth,
        segments: usize::from(arguments.segments),
        chunk: total.ok_or_else(too_much)?,
    })
}

/// Returns the remedy if all slots may only have `room` bytes in total.
fn smaller(shape: Shape, room: u64) -> String {
    match room / (u64::from(shape.depth) * shape.segments as u64) {
        0 => "free some memory, or use a smaller --depth and --segments".into(),
        chunk => format!(
            "free some memory, or use a smaller --depth, --segments or --chunk; --chunk {} fits",
            argument(chunk)
        ),
    }
}

/// Reduces the slots to those that a file of this length fills.
///
/// A small file then takes little memory, whatever the options.
fn fitted(shape: Shape, length: u64) -> Shape {
    // Minimum, so that short files take one slot.
    const LEAST: usize = 1 << 16;
    let length = usize::try_from(length).unwrap_or(usize::MAX).max(LEAST);
    let segments = shape.segments.min(length.div_ceil(shape.chunk));
    let chunk = shape.chunk.min(length);
    let slots = u16::try_from(length.div_ceil(segments * chunk)).unwrap_or(u16::MAX);
    Shape {
        depth: shape.depth.min(slots),
        segments,
        chunk,
    }
}

fn progress_bar(length: u64, output: &Output) -> ProgressBar {
    if !output.is_text() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length).with_finish(ProgressFinish::AndClear);
    // The template is constant; if it were wrong, the bar would keep its default style.
    if let Ok(style) = ProgressStyle::with_template(
        "{wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
    ) {
        bar.set_style(style);
    }
    bar
}

/// Returns the bytes per second, or `None` if no bytes were moved.
pub(crate) fn rate(bytes: u64, seconds: f64) -> Option<f64> {
    (bytes > 0 && seconds > 0.0).then(|| bytes as f64 / seconds)
}

pub(crate) fn per_second(rate: Option<f64>) -> String {
    rate.map_or("-".into(), |rate| format!("{}/s", BinaryBytes(rate as u64)))
}

fn print(report: &Report, output: &mut Output) {
    let (bytes, over) = match &report.device {
        Some(device) => (size(report.bytes), format!(" over {device}")),
        None => (BinaryBytes(report.bytes).to_string(), String::new()),
    };
    let at = match &report.server {
        Some(server) => format!(" at {server}"),
        None => String::new(),
    };
    output.line(format_args!(
        "{GOOD}{bytes} copied{GOOD:#}{over} to {}{at}",
        report.target
    ));
    output.line(format_args!(
        "  RDMA Writes {}, {} of at most {} each, up to {} outstanding",
        report.writes,
        counted(report.segments, "segment"),
        size(report.chunk),
        report.depth
    ));
    let compared = match &report.plain {
        Some(plain) => format!(
            "plain memory copy {}{}",
            per_second(plain.plain_bytes_per_second),
            plain.ratio.map_or(String::new(), |ratio| format!(
                ", ratio {ratio:.2} (median of {})",
                counted(plain.pairs as u64, "pair")
            ))
        ),
        None => "with reading and writing the files".into(),
    };
    output.line(format_args!(
        "  transfer    {}, {compared}",
        per_second(report.transfer_bytes_per_second)
    ));
    let (including, end) = match &report.plain {
        Some(_) => ("reading, writing and verification", ""),
        None => ("connection setup and verification", " at the other end"),
    };
    output.line(format_args!(
        "  total       {} in {:.3} s, including {including}",
        per_second(report.bytes_per_second),
        report.seconds
    ));
    output.line(format_args!(
        "  checksum    {} (XXH3-128, read back{end})",
        report.checksum
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_take_small_buffers() {
        let large = Shape {
            depth: 1000,
            segments: 4,
            chunk: 1 << 17,
        };
        let shape = |length| {
            let Shape {
                depth,
                segments,
                chunk,
            } = fitted(large, length);
            (depth, segments, chunk)
        };
        assert_eq!(shape(0), (1, 1, 1 << 16));
        assert_eq!(shape(3), (1, 1, 1 << 16));
        assert_eq!(shape(1 << 17), (1, 1, 1 << 17));
        assert_eq!(shape((1 << 17) + 1), (1, 2, 1 << 17));
        assert_eq!(shape((1 << 19) + 1), (2, 4, 1 << 17));
        assert_eq!(shape(1 << 40), (1000, 4, 1 << 17));
        for chunk in [1, 7] {
            let fit = fitted(Shape { chunk, ..large }, 5);
            assert_eq!((fit.segments, fit.chunk), (4, chunk));
        }
    }
}
