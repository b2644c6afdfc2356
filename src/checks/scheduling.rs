//! Check of the way Linux shares the processor between a server and its embedded Postgres.

use std::fs::{exists, read_to_string};
use std::path::Path;

/// Mount point of the control groups, see cgroups(7).
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Whether autogroup shares the processor by session (sched(7), "The autogroup feature"). A control group with a share
/// of its own overrides autogroup. Returns `None` if the system has no such setting.
pub(super) fn is_by_session() -> Option<bool> {
    let is_on = read_to_string("/proc/sys/kernel/sched_autogroup_enabled").ok()?.trim() == "1";
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    Some(is_on && !has_share(&groups, |path| exists(path).unwrap_or(false)))
}

/// Whether one of the control groups in a `/proc/self/cgroup` has a share of the processor. The root group has none.
fn has_share(groups: &str, exists: impl Fn(&Path) -> bool) -> bool {
    groups.lines().any(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return false };
        match controllers {
            "" => exists(&Path::new(CONTROL_GROUPS).join(path.trim_start_matches('/')).join("cpu.weight")),
            _ => controllers.split(',').any(|controller| controller == "cpu") && path != "/",
        }
    })
}

#[cfg(test)]
#[path = "../../tests/unit/checks/scheduling.rs"]
mod tests;
