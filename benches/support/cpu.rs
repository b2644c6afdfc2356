//! CPU time and memory of processes, as reported by Linux.

use std::collections::HashMap;
use std::fs;
use std::ops::Sub;
use std::path::Path;
use std::time::Duration;

/// CPU time that a process has used, its ended children's included.
pub fn of_process(pid: i32) -> Duration {
    const USER_HZ: u32 = 100; // on every Linux
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ticks = fields(&stat).iter().skip(11).take(4).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_secs(ticks) / USER_HZ
}

/// CPU time of a process and everything below it.
pub fn of_tree(root: i32) -> Duration {
    tree(root).into_iter().map(of_process).sum()
}

/// Memory of a process in MiB, of what it shares with others its part (PSS).
pub fn pss_of_process(pid: i32) -> f64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// The same of a process and everything below it.
pub fn pss_of_tree(root: i32) -> f64 {
    tree(root).into_iter().map(pss_of_process).sum()
}

/// A process and everything below it.
fn tree(root: i32) -> Vec<i32> {
    let mut children = HashMap::<i32, Vec<i32>>::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if let Some(parent) = fields(&stat).get(1).and_then(|parent| parent.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut all, mut seen) = (vec![root], 0);
    while let Some(pid) = all.get(seen).copied() {
        all.extend(children.remove(&pid).unwrap_or_default());
        seen += 1;
    }
    all
}

/// The process that started another one.
pub fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    fields(&stat).get(1)?.parse().ok()
}

/// CPU time of a thread, to the nanosecond, by its directory in `/proc`. The kernel brings it up to date when the thread
/// gives way. Zero if the thread is gone.
pub fn of_thread(dir: &Path) -> Duration {
    let schedstat = fs::read_to_string(dir.join("schedstat")).unwrap_or_default();
    let nanos = schedstat.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

/// The fields after the process's name, which may hold spaces (proc_pid_stat(5), from field 3 on).
fn fields(stat: &str) -> Vec<&str> {
    stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect())
}

/// The most memory that a process has had resident since it started or since [`forget_peak`], in MiB.
pub fn peak_mib(pid: i32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.expect("Linux tells every process's peak") / 1024.0
}

/// Lets the peak begin anew at what is resident now.
pub fn forget_peak(pid: i32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the process is ours");
}

/// CPU time of those who have a part in a delivery, apart.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Bellwire.
    pub server: Duration,
    /// All processes of Postgres.
    pub postgres: Duration,
    /// The simulated gateways.
    pub simulator: Duration,
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            server: self.server - earlier.server,
            postgres: self.postgres - earlier.postgres,
            simulator: self.simulator - earlier.simulator,
        }
    }
}

/// CPU-µs for each of `n`.
pub fn per(time: Duration, n: u32) -> f64 {
    time.as_secs_f64() * 1e6 / f64::from(n)
}
