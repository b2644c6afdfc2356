//! Unit tests of `src/checks/scheduling.rs`, which includes them.

use super::*;

#[test]
fn control_group_with_weight_has_a_share() {
    let weighted = |path: &Path| path == Path::new("/sys/fs/cgroup/system.slice/bellwire.service/cpu.weight");
    for (groups, has) in [
        ("0::/system.slice/bellwire.service\n", true),
        ("0::/system.slice/another.service\n", false),
        ("0::/\n", false),
        ("2:memory:/a\n1:cpu,cpuacct:/a\n0::/\n", true),
        ("3:cpuacct:/a\n2:cpuset:/a\n1:cpu:/\n0::/\n", false),
        ("", false),
    ] {
        assert_eq!(has_share(groups, weighted), has, "{groups}");
    }
}
