//! CPU time of processes, as Linux accounts it.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// CPU time that a process has used, its ended children's included.
pub fn of_process(pid: i32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ticks = fields(&stat).map_or(0, |fields| (11..15).filter_map(|at| fields.get(at)?.parse::<u64>().ok()).sum());
    Duration::from_secs(ticks) / 100 // USER_HZ, which is 100 on every Linux
}

/// The fields after the process's name, which may hold spaces.
fn fields(stat: &str) -> Option<Vec<&str>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace().collect())
}

/// CPU time of a process and everything below it.
pub fn of_tree(root: i32) -> Duration {
    let mut parents = HashMap::<i32, Vec<i32>>::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if let Some(parent) = fields(&stat).and_then(|fields| fields.get(1)?.parse().ok()) {
            parents.entry(parent).or_default().push(pid);
        }
    }
    let (mut all, mut sum) = (vec![root], Duration::ZERO);
    while let Some(pid) = all.pop() {
        sum += of_process(pid);
        all.extend(parents.remove(&pid).unwrap_or_default());
    }
    sum
}

/// Resident memory of a process in KiB, and its highest value so far.
pub fn resident_kib(pid: i32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
    };
    (of("VmRSS:"), of("VmHWM:"))
}
