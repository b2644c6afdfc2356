//! Writes SVG: a page with background, axes, and marks in a frame.

use std::fmt::Write as _;

use super::count;

const WIDTH: u32 = 760;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 740.0;
const INK: &str = "#222222";
const GREY: &str = "#dddddd";

pub(super) struct Svg {
    text: String,
}

/// An axis from 0, with its tick marks.
pub(super) struct Axis {
    max: f64,
    step: f64,
    title: &'static str,
    times: bool,
}

impl Axis {
    /// Creates an axis for numbers up to `max`, with about `marks` ticks.
    pub(super) fn numbers(max: f64, marks: u32, title: &'static str) -> Self {
        let rough = (max / f64::from(marks)).max(1.0);
        let magnitude = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * magnitude).find(|step| *step >= rough);
        Self { max, step: step.unwrap_or(rough), title, times: false }
    }

    /// Creates an axis for seconds up to `max_s`.
    pub(super) fn times(max_s: f64, marks: u32, title: &'static str) -> Self {
        const STEPS_S: [f64; 22] = [
            1.0,
            2.0,
            5.0,
            10.0,
            20.0,
            30.0,
            60.0,
            120.0,
            300.0,
            600.0,
            900.0,
            1_800.0,
            3_600.0,
            7_200.0,
            14_400.0,
            21_600.0,
            43_200.0,
            86_400.0,
            172_800.0,
            345_600.0,
            604_800.0,
            1_209_600.0,
        ];
        let rough = max_s / f64::from(marks);
        let step = STEPS_S.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        Self { max: max_s, step, title, times: true }
    }

    fn marks(&self) -> impl Iterator<Item = (f64, String)> {
        let n = (self.max / self.step * 1.000_001) as u32;
        (0..=n).map(|n| f64::from(n) * self.step).map(|value| {
            let whole = value.round() as u64;
            (value, if self.times { time(value, self.step) } else { count(whole) })
        })
    }
}

/// Formats a time for a tick: in the largest unit that divides the distance of ticks.
fn time(s: f64, step_s: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(86_400.0, "d"), (3_600.0, "h"), (60.0, "min")];
    let (unit_s, unit) = UNITS.into_iter().find(|(unit_s, _)| step_s % unit_s == 0.0).unwrap_or((1.0, "s"));
    format!("{} {unit}", count((s / unit_s).round() as u64))
}

pub(super) struct Frame {
    pub x: Axis,
    pub y: Axis,
    pub top: f64,
    pub bottom: f64,
}

impl Frame {
    /// Returns the position of two values on the page.
    pub(super) fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let across = LEFT + (RIGHT - LEFT) * x / self.x.max;
        (across, self.bottom - (self.bottom - self.top) * y / self.y.max)
    }
}

impl Svg {
    /// Creates a page with a title and a height in pixels.
    pub(super) fn new(title: &str, height: u32) -> Self {
        let title = escaped(title);
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"{INK}\" role=\"img\">\n\
             <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#ffffff\"/>\n"
        );
        let _ = writeln!(text, "<text x=\"{LEFT}\" y=\"26\" font-size=\"15\" font-weight=\"600\">{title}</text>");
        Self { text }
    }

    /// Returns the top of the first frame, below the title and the lines of the legend.
    pub(super) fn top(legend: usize) -> f64 {
        42.0 + 18.0 * legend as f64
    }

    pub(super) fn legend(&mut self, n: usize, colour: &str, text: &str) {
        let y = 46.0 + 18.0 * n as f64;
        let _ = writeln!(
            self.text,
            "<rect x=\"{LEFT}\" y=\"{:.0}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>\
             <text x=\"{:.0}\" y=\"{y:.0}\">{}</text>",
            y - 6.0,
            LEFT + 20.0,
            escaped(text)
        );
    }

    pub(super) fn heading(&mut self, top: f64, text: &str) {
        let _ = writeln!(
            self.text,
            "<text x=\"{LEFT}\" y=\"{:.0}\" font-weight=\"600\">{}</text>",
            top - 8.0,
            escaped(text)
        );
    }

    pub(super) fn axes(&mut self, frame: &Frame) {
        for (value, label) in frame.y.marks() {
            let (_, y) = frame.place(0.0, value);
            let _ = writeln!(
                self.text,
                "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"{GREY}\"/>\
                 <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        for (value, label) in frame.x.marks() {
            let (x, y) = frame.place(value, 0.0);
            let _ = writeln!(
                self.text,
                "<path d=\"M{x:.1} {y:.1}v4\" stroke=\"{INK}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                y + 17.0
            );
        }
        let middle = (frame.top + frame.bottom) / 2.0;
        let _ = writeln!(
            self.text,
            "<path d=\"M{LEFT} {:.1}H{RIGHT}\" stroke=\"{INK}\"/>\
             <text x=\"{RIGHT}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <text x=\"14\" y=\"{middle:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {middle:.1})\">{}</text>",
            frame.bottom,
            frame.bottom + 32.0,
            frame.x.title,
            frame.y.title
        );
    }

    pub(super) fn line(&mut self, points: &[(f64, f64)], colour: &str, dashed: bool) {
        let path: String = points
            .iter()
            .enumerate()
            .map(|(n, (x, y))| format!("{}{x:.1} {y:.1}", if n == 0 { 'M' } else { 'L' }))
            .collect();
        let dashes = if dashed { " stroke-dasharray=\"5 3\"" } else { "" };
        if !path.is_empty() {
            let _ = writeln!(
                self.text,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-opacity=\"0.5\"{dashes}/>"
            );
        }
    }

    pub(super) fn dot(&mut self, (x, y): (f64, f64), colour: &str, words: &str) {
        let _ = writeln!(
            self.text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\" fill=\"{colour}\"><title>{}</title></circle>",
            escaped(words)
        );
    }

    pub(super) fn bar(&mut self, (x, low): (f64, f64), (_, high): (f64, f64), colour: &str) {
        let _ = writeln!(
            self.text,
            "<path d=\"M{x:.1} {low:.1}V{high:.1}\" stroke=\"{colour}\" stroke-width=\"6\" stroke-opacity=\"0.25\"/>"
        );
    }

    /// Shades a section of the horizontal axis.
    pub(super) fn shade(&mut self, frame: &Frame, from: f64, until: f64) {
        let ((x, _), (end, _)) = (frame.place(from, 0.0), frame.place(until, 0.0));
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#f3e3e3\"/>",
            frame.top,
            (end - x).max(0.0),
            frame.bottom - frame.top
        );
    }

    /// Draws steps of equal width, filled down to the axis.
    pub(super) fn area(&mut self, frame: &Frame, steps: impl Iterator<Item = f64>, width: f64, colour: &str) {
        let mut path = format!("M{LEFT} {:.1}", frame.bottom);
        let mut before = None;
        let mut end = LEFT;
        for (n, value) in steps.enumerate() {
            let (x, y) = frame.place(n as f64 * width, value);
            if before != Some(value) {
                let _ = write!(path, "H{x:.1}V{y:.1}");
            }
            before = Some(value);
            end = frame.place((n + 1) as f64 * width, 0.0).0;
        }
        let _ = write!(path, "H{end:.1}V{:.1}Z", frame.bottom);
        let _ = writeln!(self.text, "<path d=\"{path}\" fill=\"{colour}\" fill-opacity=\"0.75\"/>");
    }

    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// Escapes text for XML. Characters that XML forbids become U+FFFD.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
