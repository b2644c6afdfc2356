//! Charts for terminals, made of block characters.

use std::fmt::Write as _;

use super::{Panel, count, points, seconds};
use crate::policy::preview::Timetable;

/// Blocks that fill a cell from below, in eighths.
const RISING: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Blocks that fill a cell from the left, in eighths.
const GROWING: [char; 9] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
const LABEL: usize = 10;
const HEIGHT: usize = 5;
/// Allowed widths of a chart in characters, labels included.
const WIDTHS: std::ops::RangeInclusive<usize> = 30..=200;
/// Maximum retries shown, one per line: the first ones.
const LINES_MAX: usize = 40;

/// Draws POSTs per second over time, one chart below the other for each simulation, with the same scale, at most `width`
/// characters wide. Outages are marked on the axis.
pub fn load_text(panels: &[Panel<'_>], width: usize) -> String {
    let length_s = panels.iter().map(Panel::length_s).fold(1.0, f64::max);
    let columns = (width.clamp(*WIDTHS.start(), *WIDTHS.end()) - LABEL - 2).min(length_s.ceil() as usize);
    let drawn: Vec<_> = panels.iter().map(|panel| panel.columns(columns, length_s)).collect();
    let peak = drawn.iter().flatten().copied().max().unwrap_or(1).max(1);
    let mut text = String::new();
    for (panel, posts) in panels.iter().zip(&drawn) {
        let _ = writeln!(text, "{}", super::shortened(panel.name));
        for row in (0..HEIGHT).rev() {
            let label = if row + 1 == HEIGHT { format!("{}/s", count(peak.into())) } else { String::new() };
            let cells: String = posts.iter().map(|posts| cell(*posts, peak, row)).collect();
            let _ = writeln!(text, "{label:>LABEL$} │{}", cells.trim_end());
        }
        let shaded = |column: usize| {
            let middle_s = (column as f64 + 0.5) * length_s / columns as f64;
            panel.shaded_s.iter().any(|(from_s, until_s)| *from_s <= middle_s && middle_s < *until_s)
        };
        let axis: String = (0..columns).map(|column| if shaded(column) { '▒' } else { '─' }).collect();
        let _ = writeln!(text, "{:>LABEL$} └{axis}", 0);
    }
    let half = if columns < 24 { String::new() } else { seconds(length_s / 2.0) };
    let (end, rest) = (seconds(length_s), columns.saturating_sub(columns / 2 + half.chars().count()));
    let _ = writeln!(text, "{:LABEL$}  {:<2$}{half}{end:>rest$}", "", "0 s", columns / 2);
    text
}

/// Returns the character of a column in a row. A load above zero is always visible.
fn cell(posts: u32, peak: u32, row: usize) -> char {
    let eighths = (u64::from(posts) * (HEIGHT * 8) as u64).div_ceil(u64::from(peak)) as usize;
    RISING[eighths.saturating_sub(row * 8).min(8)]
}

/// Draws delays as bars, one retry per line, at most `width` characters wide.
pub fn timetable_text(table: &Timetable, width: usize) -> String {
    let points: Vec<_> = points(table).collect();
    let longest_s = points.iter().map(|point| point.1).fold(0.0, f64::max);
    let room = width.clamp(*WIDTHS.start(), *WIDTHS.end()) - LABEL - 13;
    let mut text = String::new();
    for (retry, delay_s, ..) in points.iter().take(LINES_MAX) {
        let eighths = if longest_s > 0.0 { (delay_s / longest_s * (room * 8) as f64).ceil() as usize } else { 0 };
        let bar = "█".repeat(eighths / 8) + GROWING[eighths % 8].to_string().trim_end();
        let _ = writeln!(text, "{retry:>LABEL$} │{bar} {}", seconds(*delay_s));
    }
    let left = table.retries as usize - points.len().min(LINES_MAX);
    if left > 0 {
        let _ = writeln!(text, "{:>LABEL$} │and {} more", "…", count(left as u64));
    }
    text
}
