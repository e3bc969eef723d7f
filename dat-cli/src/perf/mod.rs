//! `dat perf`: measures the cost of operations.

mod inbox;
mod load;
pub(crate) mod measure;
mod peer;
mod plot;

use std::collections::BTreeMap;
use std::time::Duration;

use dat_core::backend::HostBackend;
use dat_devices::{ByAddress, FabricOptions, Network};
use dat_host::Adapter;
use indicatif::BinaryBytes;
use serde::Serialize;

pub(crate) use self::load::{Load, Shape};
pub(crate) use self::measure::Goal;
use self::measure::Point;
use self::peer::not_to_server;
use crate::arguments::{Operation, PerfArguments};
use crate::failure::{Failure, FailureKind, Result};
use crate::memory::{self, MOST_MEMORY};
use crate::output::{CODE, FAINT, GOOD, HEADING, Output};
use crate::remote::commands::with_server;
use crate::remote::counts::{Counts, has_counts, without_counts};
use crate::remote::device::{MOCK, scheme_of, with_backend};
use crate::remote::file_store::NoFiles;
use crate::remote::host_adapter::{Drive, Waiting};
use crate::remote::protocol::MOST_DEPTH;
use crate::remote::transport::{Carrier, choose, first_address};
use crate::size::{argument, counted, size};

#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    backend: &'static str,
    operation: &'static str,
    depth: u16,
    segments: u8,
    batch: u16,
    /// Cost of reading the clock; it is subtracted from the post times.
    clock_ns: f64,
    points: &'a [Point],
    #[serde(skip_serializing_if = "Option::is_none")]
    plot: Option<String>,
    /// The way of the connections, if the device has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'static str>,
    /// Counts of the device, with `--verbose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    counters: Option<BTreeMap<&'static str, u64>>,
}

/// The note below a table in which not all operations were timed.
const SAMPLED: &str = "1 of N operations was timed; interruptions of the others count in rate and \
bandwidth, not in max";

/// Measures and reports.
///
/// # Errors
/// - Usage: the arguments do not fit together, the buffers are too large, or this build does not
///   support the device.
/// - Memory: the system lacks the memory for the buffers.
/// - File: the plot cannot be written.
/// - Operation: no device or server is usable, an operation failed, or data did not arrive.
pub(crate) fn run(arguments: &PerfArguments, output: &mut Output) -> Result<bool> {
    let device = &arguments.device;
    let scheme = match device.wants_device()? {
        true => scheme_of(device.named.name())?,
        false => MOCK,
    };
    let is_here = scheme == MOCK || matches!(arguments.operation, Operation::Bind | Operation::Srq);
    let done = with_backend!(scheme, B => match is_here {
        true => on_both_ends::<B>(arguments, output),
        false => to_server::<B>(arguments, output),
    });
    done.unwrap_or(Ok(false))
}

/// Measures between two adapters of this process, which one thread polls.
fn on_both_ends<B: ByAddress>(arguments: &PerfArguments, output: &mut Output) -> Result<bool> {
    if arguments.device.connect.is_some() {
        return Err(not_to_server(
            arguments.operation,
            "remove --connect: --device NAME has both ends on that device",
        ));
    }
    if arguments.device.named.verbose {
        return Err(without_counts("--verbose"));
    }
    let device = match B::SCHEME {
        // A poll finds its operation complete.
        MOCK => Carrier::mock(FabricOptions {
            poll_steps: true,
            ..Network::options()
        }),
        _ => choose(&arguments.device.named, None)?,
    };
    let times = match arguments.operation {
        // The last message of each slot is kept for the comparison.
        Operation::Srq => 3,
        _ => 2,
    };
    room(times, largest(arguments)?, arguments.depth)?;
    let yield_after = arguments.device.waiting.yield_after;
    let waiting = Waiting::Poll { looks: yield_after };
    measure_all(B::SCHEME, arguments, output, None, |shape, meter| {
        let (mut near, mut far) = (
            Drive::open(&device, waiting)?,
            Drive::open(&device.other_end(), waiting)?,
        );
        let address = first_address(&device.other_end())?;
        let mut load = Load::<B>::here(&mut near, &mut far, address, yield_after, shape)?;
        meter.measure(&mut load)?;
        load.close();
        Ok(())
    })
}

/// Measures between a client and a server.
fn to_server<B: ByAddress>(arguments: &PerfArguments, output: &mut Output) -> Result<bool> {
    if arguments.depth > MOST_DEPTH {
        return Err(Failure::usage(
            "--depth is too large for a device",
            format!("over a device, this program has at most {MOST_DEPTH} operations under way"),
            format!("use a --depth of at most {MOST_DEPTH}"),
        ));
    }
    let depth = u64::from(arguments.depth);
    // Checks the arguments before any memory is allocated.
    let largest = largest(arguments)?;
    // For echoes the server needs twice the memory of a side and four buffers more.
    let memory = largest
        .saturating_mul(2 * depth + 4)
        .saturating_add(4 << 20);
    // A server in this process needs up to six times the memory of a side.
    let sides = if arguments.device.connect.is_some() {
        2
    } else {
        8
    };
    room(sides, largest, arguments.depth)?;
    with_server(&arguments.device, memory, &NoFiles, |client, server, _| {
        if arguments.device.named.verbose {
            has_counts(&client.0, "--verbose")?;
        }
        let watched = Some(client.0.clone());
        let mut is_reached = false;
        measure_all(B::SCHEME, arguments, output, watched, |shape, meter| {
            let opened = Load::<B>::to_server(client, server, shape);
            let mut load = opened.map_err(|failure| match failure.kind {
                // Another address would begin the measurement anew.
                FailureKind::Unreached if is_reached => Failure {
                    kind: FailureKind::Operation,
                    ..failure
                },
                _ => failure,
            })?;
            is_reached = true;
            meter.measure(&mut load)?;
            load.close();
            Ok(())
        })
    })
}

/// Checks that `times` the slots of one side can be allocated.
///
/// # Errors
/// - Memory: the system lacks the memory.
fn room(times: u64, size: u64, depth: u16) -> Result<()> {
    let depth = u64::from(depth);
    memory::room(times.saturating_mul(size).saturating_mul(depth), |room| {
        format!(
            "free some memory, or use a smaller size or --depth; --size {} fits",
            argument((room / times / depth).max(1))
        )
    })
}

/// Measures the loads of an invocation, and prints the table of the results.
pub(crate) struct Meter<'a> {
    arguments: &'a PerfArguments,
    output: &'a mut Output,
    goal: Goal,
    /// Cost of reading the clock.
    clock: Duration,
    points: Vec<Point>,
}

impl Meter<'_> {
    /// Measures a load, whose connection stands; the header comes before the first row.
    ///
    /// # Errors
    /// - Operation: an operation failed, or data did not arrive.
    pub(crate) fn measure<B: HostBackend>(&mut self, load: &mut Load<'_, B>) -> Result<()> {
        let point = measure::run(load, self.goal, self.clock)?;
        // A measurement that fails prints its error only.
        if self.points.is_empty() {
            self.print_header();
        }
        print(&point, self.output);
        self.points.push(point);
        Ok(())
    }

    fn print_header(&mut self) {
        let arguments = self.arguments;
        self.output.line(format_args!(
            "{HEADING}dat perf {}{HEADING:#}: depth {}, {}{} each, {} per size",
            arguments.operation.name(),
            arguments.depth,
            match arguments.batch {
                1 => String::new(),
                batch => format!("batches of {batch}, "),
            },
            counted(arguments.segments.into(), "segment"),
            match self.goal {
                Goal::Operations(count) => counted(count, "operation"),
                Goal::Time(time) => humantime::format_duration(time).to_string(),
            }
        ));
        self.output.line(format_args!(
            "{FAINT}{:>10} {:>10} {:>9} | latency, µs {:>7} {:>8} {:>8} {:>8} {:>9} | {:>11} {:>12}{FAINT:#}",
            "size", "operations", "post, ns", "min", "p50", "p99", "p99.9", "max", "rate, 1/s", "bandwidth"
        ));
    }
}

/// Measures each size and reports.
///
/// `measure` opens a load of a shape and measures it. The way of the adapter `watched` is reported
/// at the end, and its counts if asked for.
///
/// # Errors
/// - Those of [`run`], and those of `measure`.
fn measure_all(
    backend: &'static str,
    arguments: &PerfArguments,
    output: &mut Output,
    watched: Option<Adapter>,
    mut measure: impl FnMut(Shape, &mut Meter<'_>) -> Result<()>,
) -> Result<bool> {
    let sizes = sizes(arguments)?;
    let plot = match &arguments.plot {
        Some(path) => Some((path, plot::choose(path, arguments.force)?)),
        None => None,
    };
    let goal = match arguments.iterations {
        Some(count) => Goal::Operations(count),
        None => Goal::Time(arguments.duration),
    };
    let operation = arguments.operation;
    let clock = measure::clock_cost();
    let mut meter = Meter {
        arguments,
        output,
        goal,
        clock,
        points: Vec::new(),
    };
    for size in sizes {
        let shape = Shape {
            operation,
            // It was checked against a limit far below `usize::MAX`.
            size: size as usize,
            depth: usize::from(arguments.depth),
            segments: usize::from(arguments.segments),
            batch: usize::from(arguments.batch),
        };
        measure(shape, &mut meter)?;
    }
    let Meter { output, points, .. } = meter;
    if points.iter().any(|point| point.sampled) {
        output.line(format_args!("{FAINT}{SAMPLED}{FAINT:#}"));
    }
    output.line(format_args!(
        "{GOOD}{}{GOOD:#}",
        match operation {
            Operation::Bind => "every window granted access to the memory of its last bind",
            _ => "all data was verified",
        }
    ));
    let plot = match plot {
        Some((path, target)) => {
            let conditions = format!(
                "depth {}, {} each, {backend} backend",
                arguments.depth,
                counted(arguments.segments.into(), "segment"),
            );
            plot::draw(target, operation, &conditions, &points)?;
            output.line(format_args!("plot written to {}", path.display()));
            Some(path.display().to_string())
        }
        None => None,
    };
    let is_verbose = arguments.device.named.verbose;
    let counts = watched.map(|adapter| Counts::new(adapter.counts()));
    if let Some(counts) = counts.as_ref().filter(|_| is_verbose) {
        counts.say(output);
    }
    output.document(&Report {
        ok: true,
        backend,
        operation: operation.name(),
        depth: arguments.depth,
        segments: arguments.segments,
        batch: arguments.batch,
        clock_ns: clock.as_nanos() as f64,
        points: &points,
        plot,
        path: counts.as_ref().and_then(Counts::way),
        counters: counts.filter(|_| is_verbose).map(|counts| counts.named()),
    });
    Ok(true)
}

/// Checks the arguments; returns the largest size to measure.
///
/// # Errors
/// - Those of [`sizes`].
fn largest(arguments: &PerfArguments) -> Result<u64> {
    Ok(sizes(arguments)?.into_iter().max().unwrap_or(0))
}

/// Checks the arguments; returns the sizes to measure, ascending in a sweep.
///
/// # Errors
/// - Usage: the arguments do not fit together, or the buffers are too large.
fn sizes(arguments: &PerfArguments) -> Result<Vec<u64>> {
    let sizes: Vec<u64> = match arguments.sweep {
        Some(sweep) => sweep.sizes().collect(),
        None => vec![arguments.size],
    };
    let largest = sizes.iter().max().copied().unwrap_or(0);
    let depth = u64::from(arguments.depth);
    if largest
        .checked_mul(depth)
        .is_none_or(|total| total > MOST_MEMORY)
    {
        return Err(Failure::usage(
            "the buffers are too large",
            format!(
                "size x depth = {} x {depth} exceeds {}",
                size(largest),
                size(MOST_MEMORY)
            ),
            format!(
                "choose a smaller size or --depth; with --depth {depth}, --size {} fits",
                argument(MOST_MEMORY / depth)
            ),
        ));
    }
    if arguments.batch > arguments.depth {
        return Err(Failure::usage(
            "--batch exceeds --depth",
            format!("at most {} can be outstanding", counted(depth, "operation")),
            "choose a smaller --batch, or a larger --depth",
        ));
    }
    if arguments.batch != 1 && matches!(arguments.operation, Operation::Bind | Operation::Srq) {
        return Err(Failure::usage(
            format!("--batch cannot be used with {}", arguments.operation.name()),
            "only write, read and send support batches",
            "remove --batch",
        ));
    }
    if arguments.operation == Operation::Bind && arguments.segments != 1 {
        return Err(Failure::usage(
            "--segments cannot be used with bind",
            "a bind covers one segment",
            "remove --segments",
        ));
    }
    if let Some(least) = sizes
        .iter()
        .min()
        .filter(|least| **least < u64::from(arguments.segments))
    {
        return Err(Failure::usage(
            format!(
                "{} cannot be split into {}",
                counted(*least, "byte"),
                counted(arguments.segments.into(), "segment")
            ),
            "each segment needs at least one byte",
            "choose a larger size, or fewer --segments",
        ));
    }
    Ok(sizes)
}

fn print(point: &Point, output: &mut Output) {
    let micros = |nanos: u64| nanos as f64 / 1000.0;
    let latency = &point.latency_ns;
    output.line(format_args!(
        "{CODE}{:>10}{CODE:#} {:>10} {:>9.1} | {:<11} {:>7.2} {:>8.2} {:>8.2} {:>8.2} {:>9.1} | {:>11.0} {:>12}",
        BinaryBytes(point.size).to_string(),
        point.operations,
        point.post_ns,
        point
            .one_of()
            .map_or("all".into(), |one_of| format!("1 of {one_of}")),
        micros(latency.min),
        micros(latency.p50),
        micros(latency.p99),
        micros(latency.p99_9),
        micros(latency.max),
        point.rate_per_second,
        point
            .bandwidth_bytes_per_second
            .map_or("-".into(), |rate| format!("{}/s", BinaryBytes(rate as u64)))
    ));
}
