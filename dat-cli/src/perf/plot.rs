//! Drawing measurements.

use std::fmt::Display;
use std::path::Path;

use indicatif::BinaryBytes;
use plotters::prelude::*;

use super::measure::Point;
use crate::arguments::Operation;
use crate::failure::{Failure, FailureKind, Result};
use crate::place::Place;

type Drawing<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// A name, a colour and a value.
type Quantile = (&'static str, RGBColor, fn(&Point) -> u64);

const BLUE_LINE: RGBColor = RGBColor(0x1F, 0x5F, 0xA8);
const ORANGE_LINE: RGBColor = RGBColor(0xC8, 0x5A, 0x11);
const GREEN_LINE: RGBColor = RGBColor(0x2B, 0x7D, 0x3F);

/// Looks whether a picture can be drawn there, which is better known before measuring.
///
/// # Errors
/// Usage: its name does not say that it is a picture of this kind; there is a file, and `force` does not allow to replace it; or something that is no file. File: it could not be
/// written.
pub(crate) fn choose(path: &Path, force: bool) -> Result<Place> {
    let place = Place::choose(path)?;
    let refused =
        |why, remedy| Failure::usage(format!("cannot draw into {}", path.display()), why, remedy);
    if path == Path::new("-") {
        return Err(refused(
            "a picture goes into a file, not to standard output",
            "name a file, such as plot.svg".into(),
        ));
    }
    if !path
        .extension()
        .is_some_and(|ending| ending.eq_ignore_ascii_case("svg"))
    {
        return Err(refused(
            "the picture is SVG, and the name does not end in .svg",
            format!("name it {}", path.with_extension("svg").display()),
        ));
    }
    if place.replaced().is_some() && !force {
        return Err(Failure::usage(
            format!("{} exists already", path.display()),
            "the picture would replace it",
            "choose another name, or add --force",
        ));
    }
    place.probe()?;
    Ok(place)
}

/// Draws the points: over the size if there are several, or the distribution of the latency of the only one.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn draw(place: Place, operation: Operation, points: &[Point]) -> Result<()> {
    let mut picture = String::new();
    let drawn = {
        let root = SVGBackend::with_string(&mut picture, (960, 480)).into_drawing_area();
        match points {
            [point] => distribution(&root, operation, point),
            points => sweep(&root, operation, points),
        }
    };
    drawn.map_err(|error| failed(place.name(), error))?;
    let mut part = place.begin(None)?;
    part.write(picture.as_bytes())?;
    part.keep()
}

fn failed(path: &Path, error: impl Display) -> Failure {
    Failure {
        kind: FailureKind::Operation,
        what: format!("cannot draw {}", path.display()),
        why: error.to_string(),
        remedy: "leave out --plot; the numbers are the same".into(),
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

/// A range around values for a logarithmic axis.
fn around(values: impl Iterator<Item = f64> + Clone) -> std::ops::Range<f64> {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.fold(f64::MIN_POSITIVE, f64::max);
    least.min(most) / 1.5..most * 1.5
}

fn distribution(root: &Drawing<'_>, operation: Operation, point: &Point) -> Drawn {
    root.fill(&WHITE)?;
    let curve: Vec<(f64, f64)> = point
        .latency_ns
        .curve
        .iter()
        // One operation in so many is slower; the last is slower than all.
        .map(|(quantile, latency)| {
            (
                1.0 / (1.0 - quantile).max(1.0 / point.operations as f64),
                micros(*latency),
            )
        })
        .collect();
    let title = format!(
        "{} of {}: latency",
        operation.name(),
        bytes(point.size as f64)
    );
    let mut chart = ChartBuilder::on(root)
        .caption(title, ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(
            (1.0..(point.operations as f64).max(2.0)).log_scale(),
            around(curve.iter().map(|(_, latency)| *latency)).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("exceeded by one operation in")
        .y_desc("latency, µs")
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&|value| format!("{value:.2}"))
        .draw()?;
    chart.draw_series(LineSeries::new(curve, BLUE_LINE.stroke_width(2)))?;
    root.present()?;
    Ok(())
}

fn sweep(root: &Drawing<'_>, operation: Operation, points: &[Point]) -> Drawn {
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(480);
    let sizes = around(points.iter().map(|point| point.size as f64));
    let moves_data = points
        .iter()
        .all(|point| point.bandwidth_bytes_per_second.is_some());
    let (title, unit) = if moves_data {
        ("bandwidth", "GiB/s")
    } else {
        ("rate", "million/s")
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
    let mut chart = ChartBuilder::on(&left)
        .caption(format!("{}: {title}", operation.name()), ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(sizes.clone().log_scale().base(2.0), 0.0..top * 1.1)?;
    chart
        .configure_mesh()
        .x_desc("size")
        .y_desc(unit)
        .x_labels(6)
        .x_label_formatter(&|size| bytes(*size))
        .draw()?;
    chart.draw_series(LineSeries::new(rates, BLUE_LINE.stroke_width(2)))?;

    let quantiles: [Quantile; 3] = [
        ("p50", BLUE_LINE, |point| point.latency_ns.p50),
        ("p99", GREEN_LINE, |point| point.latency_ns.p99),
        ("p99.9", ORANGE_LINE, |point| point.latency_ns.p99_9),
    ];
    let latencies = points
        .iter()
        .flat_map(|point| quantiles.iter().map(|(.., latency)| micros(latency(point))));
    let mut chart = ChartBuilder::on(&right)
        .caption(format!("{}: latency", operation.name()), ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(sizes.log_scale().base(2.0), around(latencies).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("size")
        .y_desc("µs")
        .x_labels(6)
        .x_label_formatter(&|size| bytes(*size))
        .y_label_formatter(&|value| format!("{value:.2}"))
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
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()?;
    Ok(())
}
