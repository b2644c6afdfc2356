//! Unit tests of `crates/bellwire-postgres/src/memory.rs`, which includes them.

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
