//! Tests of each rule.

use std::net::SocketAddr;

use url::Url;

use super::super::Certificate;
use super::*;

fn settings() -> DatabaseSettings {
    DatabaseSettings {
        version: "17.4".into(),
        version_number: 170_004,
        fsync: true,
        full_page_writes: true,
        synchronous_commit: "on".into(),
        autovacuum: true,
        connections_max: 100,
        connections: 30,
        xid_age: 1_000,
    }
}

/// Asserts the health of a finding, that it has a sentence and advice unless it is ok, and that it contains `named`.
#[track_caller]
fn is(finding: &CheckResult, health: Health, named: &str) {
    assert_eq!(finding.health, health, "{finding:?}");
    assert!(finding.detail.ends_with('.') && finding.detail.len() > 12, "{finding:?}");
    let has = [finding.advice.is_some(), finding.line.is_some()];
    assert_eq!(has, [health != Health::Ok; 2], "{finding:?}");
    let all = [Some(&finding.detail), finding.advice.as_ref(), finding.line.as_ref()]
        .map(|text| text.map_or("", |text| text));
    assert!(all.join(" ").contains(named), "{named}: {finding:?}");
}

#[test]
fn server_needs_tls_or_loopback() {
    let [here, everywhere] = ["127.0.0.1:8787", "0.0.0.0:8787"].map(|listen| listen.parse::<SocketAddr>().unwrap());
    let certificate = Some(Certificate::File("cert.pem".into()));
    for (url, listen, trusted_proxies, certificate, health, named) in [
        (Some("https://push.example.com"), here, 1, None, Health::Ok, "push.example.com"),
        (Some("https://push.example.com"), everywhere, 1, None, Health::Ok, "push.example.com"),
        (Some("https://push.example.com"), everywhere, 0, certificate.clone(), Health::Ok, "push.example.com"),
        (Some("https://push.example.com"), everywhere, 0, None, Health::Warning, "BELLWIRE_TRUSTED_PROXIES=1"),
        (Some("http://localhost:8787"), here, 0, None, Health::Ok, "this machine"),
        (Some("http://[::1]:8787"), here, 0, None, Health::Ok, "this machine"),
        (Some("http://push.example.com"), everywhere, 0, None, Health::Failure, "URL=https://push.example.com"),
        (Some("http://10.0.0.5:8787"), here, 0, None, Health::Failure, "without TLS"),
        (None, here, 0, None, Health::Ok, "127.0.0.1:8787"),
        (None, everywhere, 0, None, Health::Warning, "BELLWIRE_PUBLIC_URL"),
        (None, everywhere, 0, certificate, Health::Warning, "BELLWIRE_PUBLIC_URL"),
    ] {
        let public_url = url.map(|url| Url::parse(url).unwrap());
        is(&reach(&Setup { listen, public_url, trusted_proxies, certificate, ..Setup::default() }), health, named);
    }
}

#[test]
fn the_master_key_is_its_owners_alone() {
    let file = Path::new("/data/master.key");
    let not_found = || Err(io::ErrorKind::NotFound.into());
    for (mode, health, named) in [
        (Ok(0o100_600), Health::Ok, "600"),
        (Ok(0o100_400), Health::Ok, "400"),
        (Ok(0o100_640), Health::Failure, "chmod 600 /data/master.key"),
        (Ok(0o100_604), Health::Failure, "604"),
        (not_found(), Health::Failure, "backup"),
        (Err(io::ErrorKind::PermissionDenied.into()), Health::Failure, "cannot be examined"),
    ] {
        is(&master_key_file(file, mode), health, named);
    }
    is(&master_key_given(), Health::Ok, "BELLWIRE_MASTER_KEY");
}

#[test]
fn disk_needs_octets_and_a_share() {
    let gib = |n: u64| n << 30;
    for (free, all, health) in [
        (gib(50), gib(100), Health::Ok),
        (gib(10), gib(100), Health::Warning),
        (gib(3), gib(10), Health::Warning),
        (gib(4), gib(100), Health::Failure),
        (gib(1) / 2, gib(2), Health::Failure),
        (0, 0, Health::Failure),
    ] {
        is(&disk(free, all), health, "GiB");
    }
}

#[test]
fn clocks_may_differ_by_two_seconds_either_way() {
    for (ahead_us, health) in [
        (0, Health::Ok),
        (2_000_000, Health::Ok),
        (-1_999_999, Health::Ok),
        (2_000_001, Health::Warning),
        (-9_000_000, Health::Warning),
    ] {
        is(&clock(ahead_us), health, "clock");
    }
}

#[test]
fn a_clock_is_told_as_people_say_it() {
    for (ahead_us, words) in [(-499, "agrees with"), (500, "is 1 ms ahead of"), (-2_600, "is 3 ms behind")] {
        assert!(clock(ahead_us).detail.contains(words), "{ahead_us}");
    }
}

#[test]
fn database_is_new_enough_and_durable() {
    for (version_number, health) in [(150_000, Health::Ok), (180_001, Health::Ok), (140_012, Health::Failure)] {
        is(&version(&DatabaseSettings { version_number, ..settings() }), health, "17.4");
    }
    is(&durability(&settings()), Health::Ok, "survives");
    is(
        &durability(&DatabaseSettings { synchronous_commit: "remote_write".into(), ..settings() }),
        Health::Ok,
        "survives",
    );
    for (wrong, named) in [
        (DatabaseSettings { fsync: false, ..settings() }, "ALTER SYSTEM SET fsync = on"),
        (DatabaseSettings { full_page_writes: false, ..settings() }, "ALTER SYSTEM SET full_page_writes = on"),
        (
            DatabaseSettings { synchronous_commit: "off".into(), ..settings() },
            "ALTER SYSTEM SET synchronous_commit = on",
        ),
    ] {
        is(&durability(&wrong), Health::Failure, named);
    }
}

#[test]
fn connections_and_transactions_do_not_run_out_unnoticed() {
    for (in_use, health) in
        [(0, Health::Ok), (79, Health::Ok), (80, Health::Warning), (95, Health::Failure), (120, Health::Failure)]
    {
        is(&connections(&DatabaseSettings { connections: in_use, ..settings() }), health, "of 100");
    }
    for (autovacuum, xid_age, health, named) in [
        (true, 200_000_000, Health::Ok, "Autovacuum"),
        (true, 1_000_000_000, Health::Warning, "VACUUM (FREEZE);"),
        (true, 1_900_000_000, Health::Failure, "1900 million"),
        (false, 0, Health::Failure, "autovacuum = on"),
    ] {
        is(&cleaning(&DatabaseSettings { autovacuum, xid_age, ..settings() }), health, named);
    }
}

#[test]
fn dead_row_holders_are_named_with_remedy() {
    let session = |name: &str| VacuumBlocker::Session { pid: 42, name: name.into() };
    for (oldest, health, named) in [
        (None, Health::Ok, "No transaction"),
        (Some((session("psql"), Some(60.0))), Health::Ok, "open for long"),
        (Some((session("pg_dump"), Some(900.0))), Health::Warning, "pg_dump (process 42)"),
        (Some((session(""), Some(7_200.0))), Health::Failure, "pg_terminate_backend(42)"),
        (Some((VacuumBlocker::Prepared("it's".into()), Some(9_000.0))), Health::Failure, "ROLLBACK PREPARED 'it''s'"),
        (Some((VacuumBlocker::Slot("old".into()), None)), Health::Warning, "pg_drop_replication_slot('old')"),
    ] {
        is(&old_transactions(oldest.as_ref()), health, named);
    }
}

#[test]
fn maintenance_and_dispatch_stalls_are_distinguished() {
    for (days, health) in
        [(9, Health::Ok), (4, Health::Ok), (3, Health::Warning), (1, Health::Warning), (0, Health::Failure)]
    {
        is(&partitions(days), health, "artition");
    }
    is(&api_keys(&[]), Health::Ok, "14 days");
    is(&api_keys(&["backend".into()]), Health::Warning, "1 expires within 14 days, next `backend`");
    is(&api_keys(&vec!["backend".to_owned(); 11]), Health::Warning, "More than 10 expire");
    let (new, old) = ("2.0.0".to_owned(), "1.0.0".to_owned());
    for (versions, health, named) in [
        (vec![], Health::Failure, "nothing is sent"),
        (vec![new.clone()], Health::Ok, "2.0.0"),
        (vec![new.clone(), new.clone()], Health::Ok, "2 live"),
        (vec![new, old], Health::Warning, "1.0.0, 2.0.0"),
    ] {
        is(&workers(&versions), health, named);
    }
    for (held, broken, health, named) in [
        (0, 0, Health::Ok, "No lane"),
        (1, 0, Health::Warning, "1 lane is held."),
        (3, 0, Health::Warning, "3 lanes are held."),
        (0, 1, Health::Warning, "but the breaker of 1 lane is open."),
        (2, 3, Health::Warning, "2 lanes are held, and the breakers of 3 lanes are open."),
    ] {
        is(&lanes(LaneCounts { held, broken }), health, named);
    }
    for (waited_s, health) in
        [(None, Health::Ok), (Some(299), Health::Ok), (Some(300), Health::Warning), (Some(3_600), Health::Failure)]
    {
        is(
            &queue(waited_s.map(Duration::from_secs)),
            health,
            if health == Health::Ok { "No due delivery" } else { "minutes" },
        );
    }
}

#[test]
fn gravest_finding_comes_first_stably() {
    let findings = vec![
        CheckResult::ok("a", "a"),
        CheckResult::warning("b", "b").by("b"),
        CheckResult::failure("c", "c").by("c"),
        CheckResult::warning("d", "d").by("d"),
    ];
    let checks: Vec<_> = super::super::by_gravity(findings).into_iter().map(|finding| finding.check).collect();
    assert_eq!(checks, ["c", "b", "d", "a"]);
}

#[test]
fn few_descriptors_are_reported() {
    is(&descriptors(20_000, 10_300), Health::Ok, "10300");
    is(&descriptors(10_300, 10_300), Health::Ok, "10300");
    is(&descriptors(4_096, 10_300), Health::Warning, "LimitNOFILE=16384");
}
