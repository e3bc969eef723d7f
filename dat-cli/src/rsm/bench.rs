//! Measures the cost of vectors and of plain RDMA Writes, in turns.

use dat_core::backend::HostBackend;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_host::Pages;
use dat_host::rsm::{Get, LocalSlice, Node, Permission, Put, VectorFlags};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::On;
use super::arguments::BenchArguments;
use super::failure::DuringRsm;
use super::importer::{Importer, Shape};
use super::plain::Plain;
use crate::copy::per_second;
use crate::failure::{During, Result};
use crate::interrupt::Signals;
use crate::memory::PAGE;
use crate::output::{CODE, FAINT, GOOD, HEADING, Output};
use crate::perf::measure::{Latency, histogram, record};
use crate::size::{counted, size};

/// Vectors of each kind that are not measured.
///
/// The first use of memory is slow.
const TRIAL: u64 = 16;
/// Vectors of a kind in one turn.
const TURN: u64 = 16;
/// Sizes of single buffers that are compared with memory copies, on the mock.
const BULK: [usize; 2] = [64 << 10, 1 << 20];

#[derive(Serialize)]
pub(crate) struct Report {
    ok: bool,
    backend: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    /// The way of the connection, if the device has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<&'static str>,
    piece: u64,
    entries: u64,
    mode: &'static str,
    kinds: Vec<Kind>,
    /// Median time of a putv over that of as many plain writes and a flush.
    putv_to_plain: f64,
    bulk: Vec<Bulk>,
}

/// Transfers of one kind.
#[derive(Serialize)]
struct Kind {
    name: &'static str,
    vectors: u64,
    latency_ns: Latency,
    bandwidth_bytes_per_second: Option<f64>,
}

/// Puts of one buffer, compared with memory copies.
#[derive(Serialize)]
struct Bulk {
    name: &'static str,
    bytes: u64,
    put_bytes_per_second: f64,
    copy_bytes_per_second: f64,
    put_to_copy: f64,
}

/// The way in which one buffer is put.
///
/// On the mock the segment is in this process, so puts without a vector are direct stores, not
/// transfers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Single,
    Mapped,
    Vector,
}

impl Way {
    const ALL: [Self; 3] = [Self::Single, Self::Mapped, Self::Vector];

    const fn name(self) -> &'static str {
        match self {
            Self::Single => "put",
            Self::Mapped => "put into a mapping",
            Self::Vector => "putv of one entry",
        }
    }

    fn put(self, importer: &Importer, source: &Arc<[u8]>) -> Result<()> {
        let (import, memory) = (&importer.import, Arc::clone(source));
        if self != Self::Vector {
            let put = import.put(0, memory).wait().map(drop);
            return put.during_rsm("rsm_memseg_import_put");
        }
        let entry = Put { memory, offset: 0 };
        let put = import.putv(vec![entry], VectorFlags::empty()).wait();
        put.map(drop).during_rsm("rsm_memseg_import_putv")
    }
}

struct Timer {
    name: &'static str,
    latencies: Histogram<u64>,
    spent: Duration,
}

impl Timer {
    fn new(name: &'static str) -> Result<Self> {
        Ok(Self {
            name,
            latencies: histogram()?,
            spent: Duration::ZERO,
        })
    }

    fn turn(&mut self, mut act: impl FnMut() -> Result<()>) -> Result<()> {
        for _ in 0..TURN {
            let begin = Instant::now();
            act()?;
            let taken = begin.elapsed();
            self.spent += taken;
            record(&mut self.latencies, taken)?;
        }
        Ok(())
    }

    fn report(self, bytes: usize) -> Kind {
        let vectors = self.latencies.len();
        let moved = vectors as f64 * bytes as f64;
        let seconds = self.spent.as_secs_f64();
        Kind {
            name: self.name,
            vectors,
            latency_ns: Latency::of(&self.latencies),
            bandwidth_bytes_per_second: (seconds > 0.0).then(|| moved / seconds),
        }
    }
}

/// The two vectors that are measured, which are made once.
struct Vectors {
    puts: Vec<Put<LocalSlice>>,
    gets: Vec<Get<LocalSlice>>,
}

impl Vectors {
    fn new(importer: &Importer) -> Result<Self> {
        let bytes = importer.shape.vector();
        Ok(Self {
            puts: importer.puts(0, 0, bytes)?,
            gets: importer.gets(0, 0, bytes)?,
        })
    }

    /// Puts the vector and waits until it is visible.
    fn put(&mut self, importer: &Importer) -> Result<()> {
        importer.begin()?;
        self.puts = importer.putv(mem::take(&mut self.puts))?;
        importer.end()
    }

    /// Gets the vector and waits until it has arrived.
    fn get(&mut self, importer: &Importer) -> Result<()> {
        importer.begin()?;
        self.gets = importer.getv(mem::take(&mut self.gets))?;
        importer.end()
    }
}

/// Measures vectors and plain writes in turns.
///
/// # Errors
/// - Operation: a transfer failed.
/// - Interrupted: a signal came.
pub(super) fn run<B: HostBackend>(
    arguments: &BenchArguments,
    (backend, device): On,
    signals: &Signals,
    importer: &Importer,
    plain: &mut Plain<'_, B>,
) -> Result<Report> {
    let shape = importer.shape;
    let mut putv = Timer::new("putv")?;
    let mut getv = Timer::new("getv")?;
    let mut write = Timer::new("plain writes and a flush")?;
    let mut vectors = Vectors::new(importer)?;
    for _ in 0..TRIAL {
        vectors.put(importer)?;
        vectors.get(importer)?;
        plain.write()?;
    }
    let more = |timer: &Timer| is_unfinished(timer, arguments, 1);
    while more(&putv) || more(&getv) || more(&write) {
        signals.check()?;
        putv.turn(|| vectors.put(importer))?;
        write.turn(|| plain.write())?;
        getv.turn(|| vectors.get(importer))?;
    }
    let median = |timer: &Timer| timer.latencies.value_at_quantile(0.5) as f64;
    let putv_to_plain = median(&putv) / median(&write);
    let kinds = [putv, getv, write]
        .into_iter()
        .map(|timer| timer.report(shape.vector()))
        .collect();
    Ok(Report {
        ok: true,
        backend,
        device,
        path: None,
        piece: shape.entry_size as u64,
        entries: shape.entries as u64,
        mode: mode(shape),
        kinds,
        putv_to_plain,
        bulk: Vec::new(),
    })
}

/// Returns true if a kind has transfers or time left.
///
/// A kind gets one of `parts` equal parts of the duration.
fn is_unfinished(timer: &Timer, arguments: &BenchArguments, parts: u32) -> bool {
    match arguments.iterations {
        Some(iterations) => timer.latencies.len() < iterations,
        None => timer.spent < arguments.duration / parts,
    }
}

pub(crate) const fn mode(shape: Shape) -> &'static str {
    if shape.explicit {
        "explicit"
    } else {
        "implicit"
    }
}

/// Compares puts of one buffer with memory copies, in turns.
///
/// The segment must have the size of [`room`].
///
/// # Errors
/// - Operation: a put failed.
/// - Interrupted: a signal came.
pub(super) fn bulk(
    report: &mut Report,
    arguments: &BenchArguments,
    signals: &Signals,
    (node, importer): (&Node, &Importer),
) -> Result<()> {
    let all = room(importer.shape).next_multiple_of(PAGE) as u64;
    let ways = Way::ALL.into_iter();
    for (way, bytes) in ways.flat_map(|way| BULK.map(|bytes| (way, bytes))) {
        if way == Way::Mapped {
            importer
                .import
                .map(Permission::all(), 0, all)
                .during_rsm("rsm_memseg_import_map")?;
        }
        let source: Arc<[u8]> = vec![7; bytes].into();
        let pages = Pages::anonymous(bytes).during("allocating memory")?;
        let target = node.local_memory(pages);
        let target = target.during_rsm("rsm_create_localmemory_handle")?;
        let (mut put, mut copy) = (Timer::new("put")?, Timer::new("copy")?);
        while is_unfinished(&put, arguments, 12) || is_unfinished(&copy, arguments, 12) {
            signals.check()?;
            put.turn(|| {
                importer.begin()?;
                way.put(importer, &source)?;
                importer.end()
            })?;
            copy.turn(|| {
                let stored = target.store(0, std::hint::black_box(&source));
                stored.during("copying")
            })?;
        }
        if way == Way::Mapped {
            importer
                .import
                .unmap()
                .during_rsm("rsm_memseg_import_unmap")?;
        }
        let median = |timer: &Timer| timer.latencies.value_at_quantile(0.5).max(1) as f64;
        let rate = |timer: &Timer| bytes as f64 * 1e9 / median(timer);
        report.bulk.push(Bulk {
            name: way.name(),
            bytes: bytes as u64,
            put_bytes_per_second: rate(&put),
            copy_bytes_per_second: rate(&copy),
            put_to_copy: median(&copy) / median(&put),
        });
    }
    Ok(())
}

/// Returns the bytes that a segment needs for all measurements.
pub(crate) fn room(shape: Shape) -> usize {
    BULK.into_iter().fold(shape.vector(), usize::max)
}

pub(crate) fn print(report: &Report, output: &mut Output) {
    let on = report.device.as_deref().unwrap_or(report.backend);
    output.line(format_args!(
        "{HEADING}dat rsm bench{HEADING:#} on {on}: {} of {}, {} mode",
        counted(report.entries, "entry"),
        size(report.piece),
        report.mode
    ));
    output.line(format_args!(
        "{FAINT}{:<26}{:>10}{:>12}{:>12}{:>14}{FAINT:#}",
        "", "vectors", "p50 ns", "p99 ns", "bandwidth"
    ));
    for kind in &report.kinds {
        output.line(format_args!(
            "{CODE}{:<26}{CODE:#}{:>10}{:>12}{:>12}{:>14}",
            kind.name,
            kind.vectors,
            kind.latency_ns.p50,
            kind.latency_ns.p99,
            per_second(kind.bandwidth_bytes_per_second)
        ));
    }
    output.line(format_args!(
        "{GOOD}putv takes {:.2} times as long as plain writes and a flush{GOOD:#}",
        report.putv_to_plain
    ));
    for bulk in &report.bulk {
        output.line(format_args!(
            "{} of {}: {:.2} times the speed of a memory copy, {}",
            bulk.name,
            size(bulk.bytes),
            bulk.put_to_copy,
            per_second(Some(bulk.put_bytes_per_second))
        ));
    }
}
