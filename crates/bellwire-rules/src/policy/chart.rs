//! Charts of policies and simulations, as SVG and text.
//!
//! Hand-written, because no library fits: the last release of plotters was in 2024, it measures text with system fonts or not
//! at all, and it is larger than the code here. The output depends only on the arguments, so it can be committed and compared.

mod svg;
mod text;

use crate::policy::preview::Timetable;
use svg::{Axis, Frame, Svg};

pub use text::{load_text, timetable_text};

/// Colours that people with any colour vision can distinguish (Okabe and Ito).
pub const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
const NAME_MAX: usize = 60;
/// Maximum points drawn of a run of equal delays at the end of a long timetable.
const RUN_SHOWN: u32 = 25;
/// Number of retries from which a timetable counts as long.
const LONG: u32 = 120;
const RETRIES_MAX: u32 = 1_000;
/// Maximum number of steps in a load chart.
const STEPS_MAX: usize = 240;

/// One policy in a chart of delays.
#[derive(Debug, Clone, Copy)]
pub struct Curve<'a> {
    /// Name in the legend.
    pub name: &'a str,
    /// Timetable whose delays are drawn.
    pub table: &'a Timetable,
}

/// One simulation in a chart of loads.
#[derive(Debug, Clone)]
pub struct Panel<'a> {
    /// Heading of the chart.
    pub name: &'a str,
    /// Maximum POSTs per second in each bucket.
    pub posts_per_s: &'a [u32],
    /// Seconds in a bucket.
    pub bucket_s: u32,
    /// Shaded periods (outages), in seconds from the beginning. The end may be infinite.
    pub shaded_s: &'a [(f64, f64)],
}

impl Panel<'_> {
    /// Returns the seconds until the last POST.
    fn length_s(&self) -> f64 {
        self.posts_per_s.len() as f64 * f64::from(self.bucket_s)
    }

    /// Divides `length_s` into `columns` periods of equal length, and returns the peak of each.
    fn columns(&self, columns: usize, length_s: f64) -> Vec<u32> {
        let mut peaks = vec![0; columns];
        for (bucket, posts) in self.posts_per_s.iter().enumerate() {
            let edge = |bucket: usize| bucket as f64 * f64::from(self.bucket_s) / length_s * columns as f64;
            let (first, last) = (edge(bucket) as usize, (edge(bucket + 1).ceil() as usize).min(columns));
            peaks[first.min(columns - 1)..last].iter_mut().for_each(|peak: &mut u32| *peak = (*peak).max(*posts));
        }
        peaks
    }
}

/// Returns the drawn retries of a timetable: (retry, nominal, shortest, longest) in seconds.
fn points(table: &Timetable) -> impl Iterator<Item = (u32, f64, f64, f64)> {
    let last = match table.rows.last() {
        Some(row) if table.retries > LONG => (row.first + RUN_SHOWN).min(table.retries).min(RETRIES_MAX),
        _ => table.retries,
    };
    table
        .rows
        .iter()
        .flat_map(|row| (row.first..=row.last).map(|n| (n, row.delay_s, row.shortest_s, row.longest_s)))
        .take(last as usize)
}

/// Draws delays over the number of the retry, one curve for each policy. A dot is a delay before jitter, a bar its range with
/// jitter.
pub fn timetable_svg(title: &str, curves: &[Curve<'_>]) -> String {
    let drawn: Vec<Vec<_>> = curves.iter().map(|curve| points(curve.table).collect()).collect();
    let all = || drawn.iter().flatten();
    let last = all().map(|point| point.0).max().unwrap_or(1);
    let longest_s = all().map(|point| point.3).fold(1.0, f64::max);
    let mut svg = Svg::new(title, 420 + 18 * curves.len() as u32);
    for (n, (curve, points)) in curves.iter().zip(&drawn).enumerate() {
        let more = if (points.len() as u32) < curve.table.retries {
            format!(" (continues to retry {})", count(curve.table.retries.into()))
        } else {
            String::new()
        };
        let text = format!("{}{more} — {} in all", shortened(curve.name), seconds(curve.table.window_s));
        svg.legend(n, COLOURS[n % COLOURS.len()], &text);
    }
    let top = Svg::top(curves.len());
    let frame = Frame {
        x: Axis::numbers(f64::from(last) + 0.5, 12, "retry"),
        y: Axis::times(longest_s, 8, "delay before it"),
        top,
        bottom: top + 330.0,
    };
    svg.axes(&frame);
    for (n, points) in drawn.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let line: Vec<_> = points.iter().map(|point| frame.place(f64::from(point.0), point.1)).collect();
        svg.line(&line, colour, n >= COLOURS.len());
        for ((retry, delay_s, shortest_s, longest_s), at) in points.iter().zip(&line) {
            if shortest_s < longest_s {
                let x = f64::from(*retry);
                svg.bar(frame.place(x, *shortest_s), frame.place(x, *longest_s), colour);
            }
            svg.dot(*at, colour, &format!("retry {retry}: {}", seconds(*delay_s)));
        }
    }
    svg.finish()
}

/// Draws POSTs per second over time, one panel for each simulation, all with the same scale. Outages are shaded.
pub fn load_svg(title: &str, panels: &[Panel<'_>]) -> String {
    const HEIGHT: f64 = 110.0;
    const PITCH: f64 = HEIGHT + 52.0;
    let length_s = panels.iter().map(Panel::length_s).fold(1.0, f64::max);
    let steps = (length_s.ceil() as usize).clamp(1, STEPS_MAX);
    let drawn: Vec<_> = panels.iter().map(|panel| panel.columns(steps, length_s)).collect();
    let peak = drawn.iter().flatten().copied().max().unwrap_or(1).max(1);
    let mut svg = Svg::new(title, 56 + (PITCH * panels.len() as f64) as u32);
    for (n, (panel, columns)) in panels.iter().zip(&drawn).enumerate() {
        let top = Svg::top(0) + 22.0 + PITCH * n as f64;
        let frame = Frame {
            x: Axis::times(length_s, 10, if n + 1 == panels.len() { "time" } else { "" }),
            y: Axis::numbers(f64::from(peak), 3, "POSTs/s"),
            top,
            bottom: top + HEIGHT,
        };
        svg.heading(top, &shortened(panel.name));
        for (from_s, until_s) in panel.shaded_s {
            svg.shade(&frame, from_s.min(length_s), until_s.min(length_s));
        }
        svg.axes(&frame);
        let width_s = length_s / steps as f64;
        svg.area(&frame, columns.iter().map(|posts| f64::from(*posts)), width_s, COLOURS[n % COLOURS.len()]);
    }
    svg.finish()
}

fn shortened(name: &str) -> String {
    match name.char_indices().nth(NAME_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// Formats an integer with thousands separators.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a time span in a suitable unit.
pub fn seconds(s: f64) -> String {
    let (value, unit) = match s {
        s if s < 1.0 => (s * 1_000.0, "ms"),
        s if s < 120.0 => (s, "s"),
        s if s < 7_200.0 => (s / 60.0, "min"),
        s if s < 172_800.0 => (s / 3_600.0, "h"),
        s => (s / 86_400.0, "d"),
    };
    if s == 0.0 {
        return "0 s".to_owned();
    }
    let text = format!("{value:.*}", if unit == "ms" || value >= 100.0 { 0 } else { 1 });
    format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
}
