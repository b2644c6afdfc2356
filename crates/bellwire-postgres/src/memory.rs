//! Memory of the machine, or of the container around this process.

use std::fs;
use std::path::{Path, PathBuf};

/// Assumed memory if the system does not report it.
const UNKNOWN_MIB: u32 = 2_048;
/// Directories of control groups, of version 2, and of version 1 for memory.
const GROUPS: &str = "/sys/fs/cgroup";
const GROUPS_V1: &str = "/sys/fs/cgroup/memory";

/// Memory in MiB: what the machine has, or the least that a control group above us may use.
pub(super) fn available_mib() -> u32 {
    let machine = fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(total);
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|groups| least_limit(&groups, Path::new("/")));
    let octets = machine.into_iter().chain(group).min();
    octets.map_or(UNKNOWN_MIB, |octets| u32::try_from(octets >> 20).unwrap_or(u32::MAX))
}

/// `MemTotal` of proc_meminfo(5), in octets.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// The least limit of the groups that proc_pid_cgroup(5) names and those above them, in octets. In a container the file names groups
/// of the host, of which the container sees its own alone, as the topmost.
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
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_groups_above_holds() {
        let root = std::env::temp_dir().join(format!("bellwire-memory-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let file = root.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("sys/fs/cgroup/system.slice/memory.max", "536870912\n");
        write("sys/fs/cgroup/system.slice/bellwire.service/memory.max", "max\n");
        write("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "268435456\n");
        let least = |groups: &str| least_limit(groups, &root);
        assert_eq!(least("0::/system.slice/bellwire.service\n"), Some(512 << 20));
        assert_eq!(least("0::/other.slice\n"), None);
        assert_eq!(least("7:memory,hugetlb:/docker/0a1b\n3:cpu:/docker/0a1b\n"), Some(256 << 20));
        assert_eq!(least("7:memory:/docker\n0::/system.slice\n"), Some(256 << 20));
        write("sys/fs/cgroup/memory.max", "134217728\n");
        assert_eq!(least("0::/\n"), Some(128 << 20), "a container's own");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_machines_memory_is_read() {
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       16309248 kB\n"), Some(16_309_248 << 10));
        assert_eq!(total(""), None);
        assert!(available_mib() > 0);
    }
}
