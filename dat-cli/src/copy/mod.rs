//! `dat copy`: moves a file through registered memory, by RDMA Writes between two endpoints.

mod link;
mod plain;
pub(crate) mod target;

use std::io::{IsTerminal, Read};
use std::path::Path;
use std::time::Instant;

use indicatif::{BinaryBytes, ProgressBar, ProgressFinish, ProgressStyle};
use serde::Serialize;
use twox_hash::XxHash3_128;

pub(crate) use self::link::Geometry;
use self::link::Link;
use self::plain::Pair;
use self::target::Target;
use crate::arguments::CopyArguments;
use crate::failure::{Failure, Result};
use crate::host::{self, MOCK, MOST_MEMORY};
use crate::interrupt::Signals;
use crate::output::{GOOD, Output};
use crate::size::{argument, counted, size};
use crate::source::{Source, fill};

#[derive(Serialize)]
struct Report {
    ok: bool,
    backend: &'static str,
    source: String,
    target: String,
    bytes: u64,
    writes: u64,
    segments: u64,
    depth: u16,
    chunk: u64,
    /// All of it: reading, moving, writing, checking.
    seconds: f64,
    bytes_per_second: Option<f64>,
    /// Posting and polling only: the transfer itself.
    transfer_seconds: f64,
    /// Rate of the transfer in the pair with the median ratio.
    transfer_bytes_per_second: Option<f64>,
    /// Rate of the plain copies of the same data in that pair.
    ///
    /// Their buffers have the same shape.
    plain_bytes_per_second: Option<f64>,
    /// Ratio of the two rates, transfer over plain copies.
    ratio: Option<f64>,
    pairs: usize,
    checksum: String,
}

/// Copies a file.
///
/// # Errors
/// - Usage: source and target cannot be used together.
/// - File: one of them cannot be read or written.
/// - Memory: the system lacks the memory for the buffers.
/// - Operation: the transfer failed, or the copy differs from the source when it is read back.
/// - Interrupted: a signal came.
pub(crate) fn run(
    arguments: &CopyArguments,
    signals: &Signals,
    output: &mut Output,
) -> Result<bool> {
    let geometry = geometry(arguments)?;
    let begin = Instant::now();
    let mut source = Source::open(&arguments.source, "copied")?;
    let target = Target::choose(&source, &arguments.target)?;
    let length = source.length();
    let progress = progress_bar(length, output);
    let fit = fitted(geometry, length);
    // Slots at both ends, and plain buffers of the same total size.
    host::room(4 * fit.bytes(), |room| smaller(geometry, room / 4))?;
    let mut link = Link::open(&host::at_once(), fit)?;
    let mut part = target.begin()?;
    let mut checksum = XxHash3_128::new();
    let bytes = link.transfer(
        |buffer| {
            signals.check()?;
            let count = source.read(buffer)?;
            checksum.write(&buffer[..count]);
            Ok(count)
        },
        |bytes| {
            part.write(bytes)?;
            progress.inc(bytes.len() as u64);
            Ok(())
        },
    )?;
    source.finish()?;
    if bytes > 0 {
        link.repeat(usize::try_from(bytes).unwrap_or(usize::MAX))?;
    }
    let checksum = checksum.finish_128();
    let read_back = target::read_back(&mut part, signals)?;
    if read_back != checksum {
        return Err(Failure::operation(
            format!(
                "the copy of {} differs from the original",
                arguments.source.display()
            ),
            format!("its checksum is {read_back:032x}, expected {checksum:032x}"),
        ));
    }
    let path = part.target().name().to_path_buf();
    part.keep()?;
    progress.finish_and_clear();
    let seconds = begin.elapsed().as_secs_f64();
    let median = link.plain().median();
    let report = Report {
        ok: true,
        backend: MOCK,
        source: arguments.source.display().to_string(),
        target: path.display().to_string(),
        bytes,
        writes: link.writes(),
        segments: link.segments(),
        depth: arguments.depth,
        chunk: arguments.chunk,
        seconds,
        bytes_per_second: rate(bytes, seconds),
        transfer_seconds: link.busy().as_secs_f64(),
        transfer_bytes_per_second: median.map(Pair::transfer_rate),
        plain_bytes_per_second: median.map(Pair::plain_rate),
        ratio: median.map(Pair::ratio),
        pairs: link.plain().pairs(),
        checksum: format!("{checksum:032x}"),
    };
    print(&report, output);
    Ok(true)
}

pub(crate) fn geometry(arguments: &CopyArguments) -> Result<Geometry> {
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
    Ok(Geometry {
        depth: usize::from(arguments.depth),
        segments: usize::from(arguments.segments),
        chunk: total.ok_or_else(too_much)?,
    })
}

/// Returns the remedy if all slots may only have `room` bytes in total.
pub(crate) fn smaller(geometry: Geometry, room: u64) -> String {
    match room / (geometry.depth * geometry.segments) as u64 {
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
pub(crate) fn fitted(geometry: Geometry, length: u64) -> Geometry {
    // Minimum, so that short files take one slot.
    const LEAST: usize = 1 << 16;
    let length = usize::try_from(length).unwrap_or(usize::MAX).max(LEAST);
    let segments = geometry.segments.min(length.div_ceil(geometry.chunk));
    let chunk = geometry.chunk.min(length);
    Geometry {
        depth: geometry.depth.min(length.div_ceil(segments * chunk)),
        segments,
        chunk,
    }
}

pub(crate) fn progress_bar(length: u64, output: &Output) -> ProgressBar {
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
    output.line(format_args!(
        "{GOOD}{} copied{GOOD:#} to {}",
        BinaryBytes(report.bytes),
        report.target
    ));
    output.line(format_args!(
        "  RDMA Writes {}, {} of at most {} each, up to {} outstanding",
        report.writes,
        counted(report.segments, "segment"),
        size(report.chunk),
        report.depth
    ));
    output.line(format_args!(
        "  transfer    {}, plain memory copy {}{}",
        per_second(report.transfer_bytes_per_second),
        per_second(report.plain_bytes_per_second),
        report.ratio.map_or(String::new(), |ratio| format!(
            ", ratio {ratio:.2} (median of {})",
            counted(report.pairs as u64, "pair")
        ))
    ));
    output.line(format_args!(
        "  total       {} in {:.3} s, including reading, writing and verification",
        per_second(report.bytes_per_second),
        report.seconds
    ));
    output.line(format_args!(
        "  checksum    {} (XXH3-128, read back)",
        report.checksum
    ));
    output.document(report);
}

/// Computes the checksum of all bytes of a reader.
fn checksum_of(reader: &mut impl Read, path: &Path, signals: &Signals) -> Result<u128> {
    let mut checksum = XxHash3_128::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        signals.check()?;
        let count =
            fill(reader, &mut buffer).map_err(|error| Failure::file("read back", path, &error))?;
        if count == 0 {
            return Ok(checksum.finish_128());
        }
        checksum.write(&buffer[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend_mock::{Fabric, FabricOptions, Fault, RemoteError};

    const GEOMETRY: Geometry = Geometry {
        depth: 3,
        segments: 2,
        chunk: 100,
    };

    fn fabric() -> Fabric {
        Fabric::new(FabricOptions {
            poll_steps: true,
            ..FabricOptions::default()
        })
    }

    #[test]
    fn files_of_every_length_arrive_complete() {
        for length in [0, 1, 99, 100, 101, 200, 201, 600, 601, 4999, 5000] {
            let data: Vec<u8> = (0..length)
                .map(|at: usize| (at * 7 + at / 256) as u8)
                .collect();
            let (mut left, mut arrived) = (data.as_slice(), Vec::new());
            let mut link = Link::open(&fabric(), GEOMETRY).unwrap();
            let moved = link.transfer(
                |buffer| Ok(fill(&mut left, buffer).unwrap()),
                |bytes| {
                    arrived.extend_from_slice(bytes);
                    Ok(())
                },
            );
            assert_eq!(moved, Ok(length as u64));
            assert_eq!(arrived, data);
            assert_eq!(link.writes(), length.div_ceil(200) as u64);
            assert_eq!(link.segments(), length.div_ceil(100) as u64);
        }
    }

    #[test]
    fn small_files_take_small_buffers() {
        let large = Geometry {
            depth: 1000,
            segments: 4,
            chunk: 1 << 17,
        };
        let shape = |length| {
            let Geometry {
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
            let fit = fitted(Geometry { chunk, ..large }, 5);
            assert_eq!((fit.segments, fit.chunk), (4, chunk));
        }
    }

    /// A failed transfer leaves the old target, and no temporary file.
    #[test]
    fn a_failed_transfer_leaves_the_target() {
        let directory = tempfile::tempdir().unwrap();
        let (source, path) = (directory.path().join("from"), directory.path().join("to"));
        std::fs::write(&source, vec![1; 5000]).unwrap();
        std::fs::write(&path, "precious").unwrap();
        let fabric = fabric();
        let mut link = Link::open(&fabric, GEOMETRY).unwrap();
        fabric.inject(Fault::RemoteError {
            adapter: 0,
            nth: 6,
            error: RemoteError::Access,
        });
        let mut file = Source::open(&source, "copied").unwrap();
        let target = Target::choose(&file, &path).unwrap();
        let mut part = target.begin().unwrap();
        let result = link.transfer(|buffer| file.read(buffer), |bytes| part.write(bytes));
        let failure = result.unwrap_err();
        assert_eq!(failure.kind, crate::failure::FailureKind::Operation);
        assert_eq!(failure.why, "an operation completed as RemoteAccess");
        drop(part);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
