//! Rules for resources and settings that get worse without maintenance.

use std::path::Path;

use super::beyond;
use crate::checks::{CheckResult, Health};
use bellwire_store::operations::distribution::{Machine, Placement};
use bellwire_store::operations::setup::{Dead, Expired};

/// Minimum shares of free inodes.
const INODES_LITTLE: [f64; 2] = [0.1, 0.02];
/// Shares of the maximum open files.
const FILES_OPEN: [f64; 2] = [0.7, 0.9];
/// Ratio of a node's data to its fair share above which shards should be moved, and the minimum octets for the check.
const UNEVEN: f64 = 1.5;
const UNEVEN_FROM: i64 = 1 << 30;
/// Minimum dead rows of a table for a finding.
const DEAD_MIN: i64 = 200_000;
const DEAD: [f64; 2] = [1.0, 10.0];

/// Checks the inodes of the disk of the embedded Postgres. `all` is 0 on file systems that create inodes on demand.
pub(in crate::checks) fn inodes(free: u64, all: u64) -> CheckResult {
    const CHECK: &str = "inodes";
    if all == 0 {
        return CheckResult::ok(CHECK, "This file system makes inodes as it needs them.");
    }
    let share = free as f64 / all as f64;
    let health = match INODES_LITTLE.map(|line| share < line) {
        [_, true] => Health::Failure,
        [true, _] => Health::Warning,
        _ => Health::Ok,
    };
    let finding =
        CheckResult::new(CHECK, health, format!("{:.0} % of the inodes are free where the data lies.", share * 100.0));
    match health {
        Health::Ok => finding,
        _ => finding
            .advise("Without inodes no file can be made, however much room there is: find what fills the disk with small files.")
            .by("df -i"),
    }
}

/// Checks whether the processor is shared by session. Each process of Postgres is a session.
pub(in crate::checks) fn scheduling(is_by_session: bool) -> CheckResult {
    const CHECK: &str = "scheduling";
    match is_by_session {
        false => CheckResult::ok(CHECK, "What encrypts gives way to Postgres as well as to the server."),
        true => CheckResult::ok(
            CHECK,
            "Linux shares the processor by session (autogroup): what encrypts gives way to the server, but not to Postgres.",
        )
        .advise("Under load one-time codes may take three times as long at the 99th percentile. The service of systemd, or:")
        .by("sysctl kernel.sched_autogroup_enabled=0"),
    }
}

/// Checks the number of open files of this process against its limit.
pub(in crate::checks) fn files_in_use(open: u64, limit: u64) -> CheckResult {
    const CHECK: &str = "files in use";
    let health = beyond(open as f64 / limit.max(1) as f64, FILES_OPEN);
    let finding =
        CheckResult::new(CHECK, health, format!("This process has {open} files and sockets open, of at most {limit}."));
    match health {
        Health::Ok => finding,
        _ => finding
            .advise("Each client, and each connection to a push service or Postgres, is one. Raise the limit, in a unit of systemd by:")
            .by("LimitNOFILE=65536"),
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
        .advise("Have Citus move shards from machine to machine; servers may keep running.")
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
        health => CheckResult::new(CHECK, health, format!("{detail} What reads it becomes slow."))
            .advise("Check first that no old transaction keeps them, as this page shows; then clear them.")
            .by(format!("VACUUM bellwire.{table};")),
    }
}

/// Checks for leases that expired at least a minute ago and were not claimed again.
pub(in crate::checks) fn leases(Expired { batches, rows }: Expired) -> CheckResult {
    const CHECK: &str = "leases";
    if (batches, rows) == (0, 0) {
        return CheckResult::ok(CHECK, "What workers have claimed is theirs still.");
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
        .advise("Is a worker running, and its lane neither held nor shut? What is due is claimed within seconds where one can.")
        .by("bellwire serve --roles worker")
}

/// Checks for settings without effect: misspelt variables, and a file that is not read.
pub(in crate::checks) fn settings(unknown: &[String], passed_over: Option<&Path>) -> CheckResult {
    const CHECK: &str = "settings";
    let show = "bellwire serve --print-config";
    match (unknown, passed_over) {
        ([], None) => CheckResult::ok(CHECK, "Everything that is set has an effect."),
        ([], Some(file)) => CheckResult::warning(CHECK, format!("{} is not read for being here.", file.display()))
            .advise("Name it by --config or BELLWIRE_CONFIG, or put it into the data directory.")
            .by(show),
        (names, _) => {
            CheckResult::warning(CHECK, format!("No such setting, and without effect: {}.", names.join(", ")))
                .advise("Compare with the settings that there are.")
                .by(show)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_run_out_before_octets_do() {
        for (free, all, health) in [
            (500, 1_000, Health::Ok),
            (99, 1_000, Health::Warning),
            (19, 1_000, Health::Failure),
            (0, 1_000, Health::Failure),
            (0, 0, Health::Ok),
        ] {
            assert_eq!(inodes(free, all).health, health, "{free} of {all}");
        }
    }

    #[test]
    fn uneven_shards_are_reported() {
        const GIB: i64 = 1 << 30;
        for (machines, health) in [
            (&[(32, GIB), (32, GIB)][..], Health::Ok),
            (&[(64, 9 * GIB), (0, 0)], Health::Warning),
            (&[(32, 4 * GIB), (32, GIB)], Health::Warning),
            (&[(32, 400), (32, 100)], Health::Ok), // hardly anything yet
        ] {
            let machine = |(n, (shards, octets)): (usize, &(i64, i64))| Machine {
                name: format!("pg-{n}:5432"),
                shards: *shards,
                octets: *octets,
            };
            let machines = machines.iter().enumerate().map(machine).collect();
            let finding = placement(&Placement { machines, fullest: 0.02 });
            assert_eq!((finding.health, finding.line.is_some()), (health, health != Health::Ok), "{finding:?}");
        }
    }

    #[test]
    fn a_process_has_some_files_to_spare() {
        for (open, limit, health) in [
            (100, 1_024, Health::Ok),
            (46_000, 65_536, Health::Warning),
            (60_000, 65_536, Health::Failure),
            (1_024, 1_024, Health::Failure),
        ] {
            let finding = files_in_use(open, limit);
            assert_eq!((finding.health, finding.line.is_some()), (health, health != Health::Ok), "{finding:?}");
        }
    }

    #[test]
    fn dead_rows_are_many_beside_those_that_live() {
        let of = |dead, live| bloat(Some(&Dead { table: "queue".to_owned(), dead, live }));
        assert_eq!(bloat(None).health, Health::Ok);
        assert_eq!(of(199_999, 0).health, Health::Ok);
        assert_eq!(of(200_000, 1_000_000).health, Health::Ok);
        assert_eq!(of(500_000, 500_000).health, Health::Warning);
        let finding = of(500_000, 10);
        assert_eq!((finding.health, finding.line.as_deref()), (Health::Failure, Some("VACUUM bellwire.queue;")));
    }

    #[test]
    fn expired_leases_are_taken_over_or_reported() {
        assert_eq!(leases(Expired { batches: 0, rows: 0 }).health, Health::Ok);
        let finding = leases(Expired { batches: 2, rows: Expired::MAX });
        assert_eq!(finding.health, Health::Warning);
        assert!(finding.detail.contains("2 batches, 1000 deliveries or more."), "{finding:?}");
    }

    #[test]
    fn what_is_set_without_effect_is_named() {
        assert_eq!(settings(&[], None).health, Health::Ok);
        let finding = settings(&["BELLWIRE_LISSEN".to_owned()], None);
        assert!(finding.health == Health::Warning && finding.detail.contains("BELLWIRE_LISSEN"), "{finding:?}");
        let finding = settings(&[], Some(Path::new("/x/bellwire.toml")));
        assert!(finding.health == Health::Warning && finding.detail.contains("/x/bellwire.toml"), "{finding:?}");
    }
}
