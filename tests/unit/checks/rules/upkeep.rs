//! Unit tests of `src/checks/rules/upkeep.rs`, which includes them.

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
