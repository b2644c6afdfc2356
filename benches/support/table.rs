//! Output of figures: a table, the bar beside each figure, and a line about the machine.

use std::fs;

/// Bar of a figure.
#[derive(Debug, Clone, Copy)]
pub enum Bar {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// Nothing is asked of it.
    None,
}

/// Prints a heading.
pub fn heading(text: &str) {
    println!("\n{text}\n");
    println!("{:<54} {:>12} {:>12} {:>8}", "", "measured", "bar", "of bar");
}

/// Prints one figure beside its bar, with the ratio of the two, and whether the bar is kept.
pub fn figure(name: &str, value: f64, unit: &str, bar: Bar) {
    let shown = |value: f64| format!("{} {unit}", number(value));
    let (limit, kept) = match bar {
        Bar::None => return println!("{name:<54} {:>12}", shown(value)),
        Bar::AtMost(limit) => (limit, value <= limit),
        Bar::AtLeast(limit) => (limit, value >= limit),
    };
    let sign = if matches!(bar, Bar::AtMost(_)) { '≤' } else { '≥' };
    let verdict = if kept { "" } else { "  missed" };
    let bar = format!("{sign} {}", shown(limit));
    println!("{name:<54} {:>12} {bar:>12} {:>8.2}{verdict}", shown(value), value / limit);
}

/// Prints the median, the 99th percentile and the greatest of some durations. Returns the 99th percentile.
pub fn percentiles(name: &str, ms: &mut [f64], [p50, p99]: [Bar; 2]) -> f64 {
    ms.sort_by(f64::total_cmp);
    let at = |share: usize| ms[(ms.len() - 1) * share / 100];
    figure(&format!("{name}, p50"), at(50), "ms", p50);
    figure(&format!("{name}, p99"), at(99), "ms", p99);
    figure(&format!("{name}, max"), at(100), "ms", Bar::None);
    at(99)
}

/// Three digits at least, thousands set apart.
pub fn number(value: f64) -> String {
    if value < 1_000.0 {
        return format!("{value:.*}", if value < 10.0 { 2 } else { 1 });
    }
    let digits = format!("{value:.0}");
    let apart = |(at, digit)| if at > 0 && (digits.len() - at) % 3 == 0 { vec![',', digit] } else { vec![digit] };
    digits.chars().enumerate().flat_map(apart).collect()
}

/// Prints what the figures were measured on.
pub fn machine(postgres: &str) {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let autogroup = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled").unwrap_or_default();
    println!(
        "{}, {} cores, Linux {} (autogroup {}), {postgres}; load before: {}",
        model.map_or("unknown CPU", |(_, model)| model),
        std::thread::available_parallelism().map_or(0, usize::from),
        kernel.trim(),
        if autogroup.trim() == "1" { "on" } else { "off" },
        load.split(' ').next().unwrap_or_default()
    );
}
