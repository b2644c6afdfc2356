//! Memory of the machine, or of the container around this process.

use std::fs;
use std::path::{Path, PathBuf};

/// Assumed memory if the system does not report it.
const UNKNOWN_MIB: u32 = 2_048;
/// Directories of control groups, of version 2, and of version 1 for memory.
const GROUPS: &str = "/sys/fs/cgroup";
const GROUPS_V1: &str = "/sys/fs/cgroup/memory";

/// Returns the memory in MiB: the machine's, or the lowest limit of a control group of this process.
pub(super) fn available_mib() -> u32 {
    let machine = fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(total);
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|groups| least_limit(&groups, Path::new("/")));
    let octets = machine.into_iter().chain(group).min();
    octets.map_or(UNKNOWN_MIB, |octets| u32::try_from(octets >> 20).unwrap_or(u32::MAX))
}

/// Parses `MemTotal` of proc_meminfo(5), in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Returns the lowest limit, in bytes, of the control groups in proc_pid_cgroup(5) and their parents. In a container the file
/// names groups of the host, of which only the container's own is visible, as the topmost.
fn least_limit(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (top, file) = match controllers {
            "" => (GROUPS, "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                (GROUPS_V1, "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        let top: PathBuf = root.join(top.trim_start_matches('/'));
        let own = top.join(path.trim_start_matches('/'));
        let above = own.ancestors().take_while(|group| group.starts_with(&top));
        // `max`: there is none.
        above.filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok()).collect()
    });
    limits.min()
}

#[cfg(test)]
#[path = "../../../tests/crates/postgres/unit/memory.rs"]
mod tests;
