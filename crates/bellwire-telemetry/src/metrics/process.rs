//! Metrics of this process, under the names that all Prometheus client libraries use. Empty on systems without `/proc`.

use std::fs;
use std::sync::atomic::AtomicU64;

use nix::unistd::{SysconfVar, sysconf};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::registry::Registry;
use super::series::plain;

/// The series of a process, without the prefix of ours.
#[derive(Debug)]
pub(super) struct Process {
    registry: Registry,
    cpu_s: Counter<f64, AtomicU64>,
    resident_bytes: Gauge,
    virtual_bytes: Gauge,
    open_fds: Gauge,
    max_fds: Gauge,
    started_s: Gauge<f64, AtomicU64>,
}

impl Process {
    pub(super) fn new() -> Self {
        let mut registry = Registry::with_prefix("process");
        let r = &mut registry;
        let cpu_s = plain(r, "cpu_seconds", "User and system CPU time");
        let started_s = plain(r, "start_time_seconds", "When it was started, since the epoch");
        let resident_bytes = plain(r, "resident_memory_bytes", "Memory in RAM");
        let virtual_bytes = plain(r, "virtual_memory_bytes", "Memory that it may address");
        let open_fds = plain(r, "open_fds", "Open file descriptors");
        let max_fds = plain(r, "max_fds", "File descriptors that it may open");
        Self { registry, cpu_s, resident_bytes, virtual_bytes, open_fds, max_fds, started_s }
    }

    pub(super) fn look(&self) -> &Registry {
        if let Some(now) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(Stat::parse) {
            let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100) as f64;
            let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4_096);
            let cpu_s = now.cpu_ticks as f64 / per_second;
            self.cpu_s.inc_by((cpu_s - self.cpu_s.get()).max(0.0));
            self.virtual_bytes.set(now.virtual_bytes);
            self.resident_bytes.set(now.resident_pages * page);
            self.started_s.set(booted_s().unwrap_or(0.0) + now.started_ticks as f64 / per_second);
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            self.open_fds.set(i64::try_from(open.count()).unwrap_or(i64::MAX));
        }
        if let Ok((soft, _)) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE) {
            self.max_fds.set(i64::try_from(soft).unwrap_or(i64::MAX));
        }
        &self.registry
    }
}

/// Fields of `/proc/self/stat` (proc_pid_stat(5)).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    started_ticks: u64,
    virtual_bytes: i64,
    resident_pages: i64,
}

impl Stat {
    /// Parses the fields. The second one is the program's name in parentheses, which may contain anything.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let field = |number: usize| fields.get(number - 3)?.trim().parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            started_ticks: field(22)?,
            virtual_bytes: i64::try_from(field(23)?).ok()?,
            resident_pages: i64::try_from(field(24)?).ok()?,
        })
    }
}

fn booted_s() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
#[path = "../../../../tests/crates/telemetry/unit/metrics/process.rs"]
mod tests;
