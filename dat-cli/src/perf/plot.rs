//! Plots of measurements.

use std::fmt::Display;
use std::path::Path;

use indicatif::BinaryBytes;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use super::measure::Point;
use crate::arguments::Operation;
use crate::failure::{Failure, FailureKind, Result};
use crate::output_file::OutputPath;

type Drawing<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// Name, colour and value of a quantile.
type Quantile = (&'static str, RGBColor, fn(&Point) -> u64);

const TITLE: (&str, u32) = ("sans-serif", 20);
const DESCRIPTION: (&str, u32) = ("sans-serif", 16);
const LABEL: (&str, u32) = ("sans-serif", 13);
const BLUE_LINE: RGBColor = RGBColor(0x1F, 0x5F, 0xA8);
const ORANGE_LINE: RGBColor = RGBColor(0xC8, 0x5A, 0x11);
const GREEN_LINE: RGBColor = RGBColor(0x2B, 0x7D, 0x3F);

/// Checks that a picture can be written to a path, before the measurement.
///
/// # Errors
/// - Usage: the name does not end in `.svg`, or the path is not a file's.
/// - File: the file cannot be written, or exists and `force` is not set.
pub(crate) fn choose(path: &Path, force: bool) -> Result<OutputPath> {
    let target = OutputPath::choose(path)?;
    let refused = |why, remedy| {
        Failure::usage(
            format!("cannot write a plot to {}", path.display()),
            why,
            remedy,
        )
    };
    if path == Path::new("-") {
        return Err(refused(
            "--plot needs a file, not standard output",
            "name a file, such as plot.svg".into(),
        ));
    }
    if !path
        .extension()
        .is_some_and(|ending| ending.eq_ignore_ascii_case("svg"))
    {
        return Err(refused(
            "the plot is an SVG file, and the name does not end in .svg",
            format!("name it {}", path.with_extension("svg").display()),
        ));
    }
    if target.replaced().is_some() && !force {
        return Err(Failure::file_because(
            "write",
            path,
            "the file already exists",
            "choose another name, or add --force",
        ));
    }
    target.probe()?;
    Ok(target)
}

/// Draws several points over their size, or the latency distribution of a single point.
///
/// `conditions` describes the settings that the points share.
///
/// # Errors
/// - File: the file cannot be written.
pub(crate) fn draw(
    target: OutputPath,
    operation: Operation,
    conditions: &str,
    points: &[Point],
) -> Result<()> {
    let mut picture = String::new();
    let drawn = {
        let root = SVGBackend::with_string(&mut picture, (1200, 520)).into_drawing_area();
        let title = match points {
            [point] => format!(
                "dat perf {}, {}: {conditions}",
                operation.name(),
                bytes(point.size as f64)
            ),
            _ => format!("dat perf {}: {conditions}", operation.name()),
        };
        titled(&root, &title).and_then(|area| {
            match points {
                [point] => distribution(&area, point)?,
                points => sweep(&area, points)?,
            }
            root.present()?;
            Ok(())
        })
    };
    drawn.map_err(|error| failed(target.name(), error))?;
    let mut part = target.begin(None)?;
    part.write(picture.as_bytes())?;
    part.keep()
}

fn titled<'a>(
    root: &Drawing<'a>,
    title: &str,
) -> std::result::Result<Drawing<'a>, Box<dyn std::error::Error>> {
    root.fill(&WHITE)?;
    Ok(root.margin(8, 0, 0, 0).titled(title, TITLE)?)
}

fn failed(path: &Path, error: impl Display) -> Failure {
    Failure {
        kind: FailureKind::Operation,
        what: format!("cannot draw the plot {}", path.display()),
        why: error.to_string(),
        remedy: "remove --plot; it does not affect the measurement".into(),
    }
}

fn micros(nanos: u64) -> f64 {
    (nanos.max(1)) as f64 / 1000.0
}

fn bytes(size: f64) -> String {
    BinaryBytes(size.round() as u64)
        .to_string()
        .replace(".00", "")
}

/// Returns a range around values for a logarithmic axis.
fn around(values: impl Iterator<Item = f64> + Clone) -> std::ops::Range<f64> {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.fold(f64::MIN_POSITIVE, f64::max);
    least.min(most) / 1.5..most * 1.5
}

/// Returns the labels of a logarithmic axis: the coarsest steps with at least `ENOUGH` labels.
fn ticks(range: &std::ops::Range<f64>) -> Vec<f64> {
    const ENOUGH: usize = 4;
    const STEPS: [&[f64]; 3] = [
        &[1.0],
        &[1.0, 2.0, 5.0],
        &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
    ];
    let decades = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
    let mut ticks = Vec::new();
    for steps in STEPS {
        ticks = decades
            .clone()
            .flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)))
            .filter(|tick| range.contains(tick))
            .collect();
        if ticks.len() >= ENOUGH {
            break;
        }
    }
    ticks
}

/// Formats a number without trailing zeros.
fn number(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn distribution(area: &Drawing<'_>, point: &Point) -> Drawn {
    // The slowest of all operations ends the curve: its share is one in `most`.
    let most = (point.operations as f64).max(2.0);
    let curve: Vec<(f64, f64)> = point
        .latency_ns
        .curve
        .iter()
        .map(|(quantile, latency)| (1.0 / (1.0 - quantile).max(1.0 / most), micros(*latency)))
        .collect();
    let latencies = around(curve.iter().map(|(_, latency)| *latency));
    let shares = std::iter::once(1.0)
        .chain([2.0])
        .chain((1..).map(|decade| 10_f64.powi(decade)))
        .take_while(|one_in| *one_in <= most)
        .collect();
    let latency_ticks = ticks(&latencies);
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .x_label_area_size(56)
        .y_label_area_size(80)
        .build_cartesian_2d(
            (1.0..most).log_scale().with_key_points(shares),
            latencies.log_scale().with_key_points(latency_ticks),
        )?;
    chart
        .configure_mesh()
        .label_style(LABEL)
        .axis_desc_style(DESCRIPTION)
        .x_desc("fraction of operations with at most this latency")
        .y_desc("latency, µs")
        .x_label_formatter(&|one_in| format!("{} %", number(100.0 - 100.0 / one_in)))
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    chart.draw_series(LineSeries::new(curve, BLUE_LINE.stroke_width(2)))?;
    Ok(())
}

/// Returns the sizes to label: the last, and others at equal distances.
fn labelled(points: &[Point]) -> Vec<f64> {
    const MOST: usize = 8;
    let sizes = points.iter().rev().map(|point| point.size as f64);
    sizes.step_by(points.len().div_ceil(MOST).max(1)).collect()
}

fn sweep(area: &Drawing<'_>, points: &[Point]) -> Drawn {
    let (left, right) = area.split_horizontally(600);
    sweep_rates(&left, points)?;
    sweep_latencies(&right, points)
}

/// Returns the axis of the sizes.
fn sizes(points: &[Point]) -> impl Ranged<ValueType = f64> + ValueFormatter<f64> + use<> {
    around(points.iter().map(|point| point.size as f64))
        .log_scale()
        .base(2.0)
        .with_key_points(labelled(points))
        .with_light_points(points.iter().map(|point| point.size as f64))
}

fn sweep_rates(area: &Drawing<'_>, points: &[Point]) -> Drawn {
    let moves_data = points
        .iter()
        .all(|point| point.bandwidth_bytes_per_second.is_some());
    let title = if moves_data {
        "bandwidth, GiB/s"
    } else {
        "rate, million/s"
    };
    let rates: Vec<(f64, f64)> = points
        .iter()
        .map(|point| {
            let rate = point
                .bandwidth_bytes_per_second
                .map_or(point.rate_per_second / 1e6, |rate| {
                    rate / f64::from(1 << 30)
                });
            (point.size as f64, rate)
        })
        .collect();
    let top = rates
        .iter()
        .fold(f64::MIN_POSITIVE, |top, (_, rate)| top.max(*rate));
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .x_label_area_size(56)
        .y_label_area_size(80)
        .build_cartesian_2d(sizes(points), 0.0..top * 1.1)?;
    chart
        .configure_mesh()
        .label_style(LABEL)
        .axis_desc_style(DESCRIPTION)
        .y_max_light_lines(1)
        .x_desc("size")
        .y_desc(title)
        .x_label_formatter(&|size| bytes(*size))
        .y_label_formatter(&|rate| number(*rate))
        .draw()?;
    chart.draw_series(LineSeries::new(rates, BLUE_LINE.stroke_width(2)))?;
    Ok(())
}

fn sweep_latencies(area: &Drawing<'_>, points: &[Point]) -> Drawn {
    let quantiles: [Quantile; 3] = [
        ("p50", BLUE_LINE, |point| point.latency_ns.p50),
        ("p99", GREEN_LINE, |point| point.latency_ns.p99),
        ("p99.9", ORANGE_LINE, |point| point.latency_ns.p99_9),
    ];
    let mut latencies = around(
        points
            .iter()
            .flat_map(|point| quantiles.iter().map(|(.., latency)| micros(latency(point)))),
    );
    // Leaves room for the legend above the curves.
    latencies.end *= (latencies.end / latencies.start).powf(0.25);
    let latency_ticks = ticks(&latencies);
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .x_label_area_size(56)
        .y_label_area_size(80)
        .build_cartesian_2d(
            sizes(points),
            latencies.log_scale().with_key_points(latency_ticks),
        )?;
    chart
        .configure_mesh()
        .label_style(LABEL)
        .axis_desc_style(DESCRIPTION)
        .x_desc("size")
        .y_desc("latency, µs")
        .x_label_formatter(&|size| bytes(*size))
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    for (name, colour, latency) in quantiles {
        let line = points
            .iter()
            .map(|point| (point.size as f64, micros(latency(point))));
        chart
            .draw_series(LineSeries::new(line, colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(LABEL)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_few_round_numbers() {
        assert_eq!(
            ticks(&(0.5..20_000.0)),
            [1.0, 10.0, 100.0, 1000.0, 10_000.0]
        );
        assert_eq!(
            ticks(&(8.0..60.0)),
            [8.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0]
        );
        assert_eq!(ticks(&(0.9..60.0)), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        for start in 1..1000 {
            // The narrowest range that `around` returns spans a factor of 2.25.
            let start = f64::from(start) / 50.0;
            let count = ticks(&(start..start * 2.25)).len();
            assert!((2..=6).contains(&count), "{start}: {count}");
        }
        for (value, text) in [(0.1, "0.1"), (100.0, "100"), (99.9, "99.9"), (0.0, "0")] {
            assert_eq!(number(value), text);
        }
        assert_eq!(number(3.0 * 10_f64.powi(-1)), "0.3");
    }
}
