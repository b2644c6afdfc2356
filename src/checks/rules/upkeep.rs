//! Rules for resources and settings that get worse without maintenance.

use std::path::Path;

use super::beyond;
use crate::checks::{CheckResult, Health};
use bellwire_store::operations::distribution::{Machine, Placement};
use bellwire_store::operations::setup::{Dead, Expired};

/// Minimum share of free inodes for a warning and a failure.
const INODES_LITTLE: [f64; 2] = [0.1, 0.02];
/// Share of the maximum open files for a warning and a failure.
const FILES_OPEN: [f64; 2] = [0.7, 0.9];
/// Ratio of a node's data to its fair share above which shards should be moved.
const UNEVEN: f64 = 1.5;
const UNEVEN_FROM: i64 = 1 << 30;
/// Minimum dead rows of a table for a finding.
const DEAD_MIN: i64 = 200_000;
const DEAD: [f64; 2] = [1.0, 10.0];

/// Checks the inodes of the disk of the embedded Postgres. `all` is 0 on file systems that create inodes on demand.
pub(in crate::checks) fn inodes(free: u64, all: u64) -> CheckResult {
    const CHECK: &str = "inodes";
    if all == 0 {
        return CheckResult::ok(CHECK, "This file system creates inodes on demand.");
    }
    let share = free as f64 / all as f64;
    let health = match INODES_LITTLE.map(|line| share < line) {
        [_, true] => Health::Failure,
        [true, _] => Health::Warning,
        _ => Health::Ok,
    };
    let detail = format!("{:.0} % of the inodes are free on the disk of the data.", share * 100.0);
    match health {
        Health::Ok => CheckResult::ok(CHECK, detail),
        health => CheckResult::finding(CHECK, health, detail)
            .advise("Without free inodes no file can be created, even with free disk space. Find what creates many small files.")
            .by("df -i"),
    }
}

/// Checks whether the processor is shared by session. Each process of Postgres is a session.
pub(in crate::checks) fn scheduling(is_by_session: bool) -> CheckResult {
    const CHECK: &str = "scheduling";
    match is_by_session {
        false => CheckResult::ok(CHECK, "Encryption threads yield to Postgres and to the server."),
        true => CheckResult::ok(
            CHECK,
            "Linux shares the processor by session (autogroup): encryption threads yield to the server, but not to Postgres.",
        )
        .advise("Under load one-time codes may take three times as long at the 99th percentile. The service of systemd, or:")
        .by("sysctl kernel.sched_autogroup_enabled=0"),
    }
}

/// Checks the number of open files of this process against its limit.
pub(in crate::checks) fn files_in_use(open: u64, limit: u64) -> CheckResult {
    const CHECK: &str = "files in use";
    let health = beyond(open as f64 / limit.max(1) as f64, FILES_OPEN);
    let detail = format!("This process has {open} files and sockets open, of at most {limit}.");
    match health {
        Health::Ok => CheckResult::ok(CHECK, detail),
        health => CheckResult::finding(CHECK, health, detail)
            .advise("Each client, and each connection to a push service or Postgres, is one. Raise the limit, in a unit of systemd by:")
            .by(format!("LimitNOFILE={}", (2 * limit).next_power_of_two())),
    }
}

/// Checks the distribution of shards over the nodes of a cluster.
pub(in crate::checks) fn placement(found: &Placement) -> CheckResult {
    const CHECK: &str = "citus";
    let all: i64 = found.machines.iter().map(|machine| machine.octets).sum();
    let share = |machine: &Machine| machine.octets as f64 / all.max(1) as f64;
    let told: Vec<String> = found
        .machines
        .iter()
        .map(|machine| format!("{} holds {} shards ({:.1} %)", machine.name, machine.shards, share(machine) * 100.0))
        .collect();
    let detail = format!("{}; the fullest shard has {:.1} % of subscriptions.", told.join(", "), found.fullest * 100.0);
    let fair = 1.0 / found.machines.len().max(1) as f64;
    let is_uneven = all >= UNEVEN_FROM && found.machines.iter().any(|machine| share(machine) > fair * UNEVEN);
    if !is_uneven && found.machines.iter().all(|machine| machine.shards > 0) {
        return CheckResult::ok(CHECK, detail);
    }
    CheckResult::warning(CHECK, detail)
        .advise("Rebalance the shards with Citus. Servers may keep running.")
        .by("SELECT citus_rebalance_start();")
}

/// Checks the table with the highest ratio of dead rows to live rows.
pub(in crate::checks) fn bloat(worst: Option<&Dead>) -> CheckResult {
    const CHECK: &str = "bloat";
    let Some(Dead { table, dead, live }) = worst.filter(|worst| worst.dead >= DEAD_MIN) else {
        return CheckResult::ok(CHECK, "No table holds many dead rows.");
    };
    let health = beyond(*dead as f64 / (*live).max(1) as f64, DEAD);
    let detail = format!("The table {table} holds {dead} dead rows beside {live} that live.");
    match health {
        Health::Ok => CheckResult::ok(CHECK, detail),
        health => CheckResult::finding(CHECK, health, format!("{detail} Queries of this table become slow."))
            .advise("First check on this page that no old transaction prevents their removal, then remove them.")
            .by(format!("VACUUM bellwire.{table};")),
    }
}

/// Checks for leases that expired at least a minute ago and were not claimed again.
pub(in crate::checks) fn leases(Expired { batches, rows }: Expired) -> CheckResult {
    const CHECK: &str = "leases";
    if (batches, rows) == (0, 0) {
        return CheckResult::ok(CHECK, "No lease of a worker has expired.");
    }
    let counted = |n: i64, one: &str, several: &str| match n {
        1 => format!("1 {one}"),
        Expired::MAX.. => format!("{n} {several} or more"),
        _ => format!("{n} {several}"),
    };
    let (batches, rows) = (counted(batches, "batch", "batches"), counted(rows, "delivery", "deliveries"));
    let detail =
        format!("Leases ran out a minute ago or more, and no worker has taken over what they held: {batches}, {rows}.");
    CheckResult::warning(CHECK, detail)
        .advise("Check that a worker is running and that the lane is neither held nor closed: a worker claims due deliveries within seconds.")
        .by("bellwire serve --roles worker")
}

/// Checks for settings without effect: misspelt variables, and a file that is not read.
pub(in crate::checks) fn settings(unknown: &[String], passed_over: Option<&Path>) -> CheckResult {
    const CHECK: &str = "settings";
    let show = "bellwire serve --print-config";
    match (unknown, passed_over) {
        ([], None) => CheckResult::ok(CHECK, "All settings have an effect."),
        ([], Some(file)) => CheckResult::warning(
            CHECK,
            format!("{} is ignored: settings files are not read from the working directory.", file.display()),
        )
        .advise("Name it by --config or BELLWIRE_CONFIG, or put it into the data directory.")
        .by(show),
        (names, _) => CheckResult::warning(CHECK, format!("Unknown settings without effect: {}.", names.join(", ")))
            .advise("Compare with the list of settings.")
            .by(show),
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/checks/rules/upkeep.rs"]
mod tests;
