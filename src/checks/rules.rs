//! Rules that turn facts into findings. Pure.

pub(super) mod manifest;
pub(super) mod outside;
pub(crate) mod upkeep;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use chrono::TimeDelta;

use super::{CheckResult, Health, Setup};
use bellwire_core::origin::is_this_machine;
use bellwire_postgres::OLDEST_MAJOR;
use bellwire_store::keys::data_keys::VALUES_TO_WARN;
use bellwire_store::operations::setup::{DatabaseSettings, LaneCounts, VacuumBlocker};
use bellwire_store::operations::workers::VERSION;
use bellwire_webpush::sealer::Sealer;

/// Time before the expiry of an API key at which a warning begins.
pub(crate) const KEYS_EXPIRE_WITHIN: TimeDelta = TimeDelta::days(14);
/// Tolerated clock difference between host and database. More confuses tokens and logs, although the server follows the
/// database's clock.
const CLOCK_TOLERANCE_US: i64 = 2_000_000;
/// Minimum future days with partitions. Fewer mean that maintenance has not run for days.
const DAYS_AHEAD_MIN: u64 = 4;
/// Age of a transaction in seconds for a warning and a failure. An old transaction keeps dead rows, and queues become slow.
const OLD_S: [f64; 2] = [900.0, 7_200.0];
/// Share of used connections for a warning and a failure.
const CROWDED: [f64; 2] = [0.8, 0.95];
/// Age of the oldest row in transactions for a warning and a failure. Postgres stops accepting writes at about two thousand
/// million.
const XID_AGE: [i64; 2] = [1_000_000_000, 1_800_000_000];
/// Time since the oldest delivery was due for a warning and a failure.
const LATE: [Duration; 2] = [Duration::from_secs(300), Duration::from_secs(3_600)];
/// Minimum free bytes and share of the disk for a warning and a failure.
const DISK_LITTLE: [(u64, f64); 2] = [(5 << 30, 0.15), (1 << 30, 0.05)];

/// Compares a value with the limits for a warning and a failure.
fn beyond<T: PartialOrd>(value: T, [warning, failure]: [T; 2]) -> Health {
    match () {
        () if value >= failure => Health::Failure,
        () if value >= warning => Health::Warning,
        () => Health::Ok,
    }
}

/// Finding of a check that timed out.
pub(super) fn too_slow(check: &'static str) -> CheckResult {
    CheckResult::warning(check, "This check did not end within three seconds.")
        .advise("Run the checks again. If this recurs, find out what keeps the database busy.")
        .by("bellwire doctor")
}

/// Whether HTTP is readable on the network: the address is reachable beyond this machine, without TLS or a trusted proxy.
pub(crate) fn is_in_the_clear(setup: &Setup) -> bool {
    !setup.listen.ip().is_loopback() && setup.certificate.is_none() && setup.trusted_proxies == 0
}

pub(super) fn reach(setup: &Setup) -> CheckResult {
    const CHECK: &str = "public URL";
    let listen = setup.listen;
    match &setup.public_url {
        Some(url) if url.scheme() == "https" && is_in_the_clear(setup) => CheckResult::warning(
            CHECK,
            format!(
                "Browsers reach this server at {url}, but it listens at {listen} without TLS, and trusts no proxy."
            ),
        )
        .advise("Say how many proxies end TLS in front of it, or have it speak HTTPS itself.")
        .by("BELLWIRE_TRUSTED_PROXIES=1"),
        Some(url) if url.scheme() == "https" => CheckResult::ok(CHECK, format!("Browsers reach this server at {url}.")),
        Some(url) if is_this_machine(url) => {
            CheckResult::ok(CHECK, format!("Only this machine can reach the server, at {url}."))
        }
        Some(url) => {
            let detail = format!(
                "People sign in at {url}, without TLS: others on the network can read passwords, sessions and keys."
            );
            CheckResult::failure(CHECK, detail)
                .advise("Configure HTTPS, or put a proxy in front that terminates TLS, and set the public URL.")
                .by(format!("BELLWIRE_PUBLIC_URL=https://{}", url.host_str().unwrap_or("push.example.com")))
        }
        None if listen.ip().is_loopback() => CheckResult::ok(
            CHECK,
            format!("The server listens only on this machine, at {listen}; no public URL is set."),
        ),
        None => CheckResult::warning(
            CHECK,
            format!("It listens at {listen}, and no public URL is set: links and passkeys do not work from elsewhere."),
        )
        .advise("Set the URL at which browsers reach the server.")
        .by("BELLWIRE_PUBLIC_URL=https://push.example.com"),
    }
}

pub(crate) const MASTER_KEY: &str = "master key";
pub(super) const MASTER_KEY_FILE: &str = "master key file";

pub(super) fn master_key_given() -> CheckResult {
    CheckResult::ok(MASTER_KEY_FILE, "The master key is given by BELLWIRE_MASTER_KEY.")
}

pub(super) fn master_key_file(file: &Path, mode: io::Result<u32>) -> CheckResult {
    let name = file.display();
    match mode.map(|mode| mode & 0o777) {
        Ok(mode) if mode & 0o077 == 0 => {
            CheckResult::ok(MASTER_KEY_FILE, format!("{name} is its owner's alone (mode {mode:o})."))
        }
        Ok(mode) => CheckResult::failure(
            MASTER_KEY_FILE,
            format!("{name} is readable or writable by other users (mode {mode:o}), so servers refuse to start."),
        )
        .advise("Remove their permissions. If strangers use this machine, also change the key.")
        .by(format!("chmod 600 {name}")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => CheckResult::failure(
            MASTER_KEY_FILE,
            format!("{name} is missing: without it, no server can start on this database."),
        )
        .advise("Restore it from its backup before you restart anything.")
        .by(format!("install -m 600 BACKUP {name}")),
        Err(error) => CheckResult::failure(MASTER_KEY_FILE, format!("{name} cannot be examined: {error}."))
            .advise("Give the user who runs Bellwire access to it.")
            .by(format!("ls -ld {name}")),
    }
}

pub(super) fn master_key(keys: usize) -> CheckResult {
    CheckResult::ok(MASTER_KEY, format!("It opens {keys} data keys."))
}

pub(super) fn seal_key(values: i64) -> CheckResult {
    const CHECK: &str = "seal key";
    let detail = format!("The newest seal key has sealed {values} values; it may seal {}.", 1_u64 << 32);
    match values {
        ..VALUES_TO_WARN => CheckResult::ok(CHECK, detail),
        _ => CheckResult::warning(CHECK, detail)
            .advise("Add a seal key before that: with more values, two may share a nonce, which reveals both.")
            .by("bellwire keys rotate"),
    }
}

/// Checks how a worker encrypts on this machine. `None`: one payload at a time, as configured.
pub(super) fn sealing(fastest: Option<&Sealer>) -> CheckResult {
    const CHECK: &str = "sealing";
    let Some(fastest) = fastest else {
        let sealer = Sealer::single();
        let detail = format!(
            "Payloads are sealed {sealer}. BELLWIRE_MULTI_BUFFER=false turns encryption of eight at a time off."
        );
        return CheckResult::ok(CHECK, detail);
    };
    if fastest.is_faulty() {
        return CheckResult::warning(CHECK, format!("Payloads are sealed {fastest}."))
            .advise("Wrong results are no longer used. Check the machine; until then, encrypt one payload at a time.")
            .by("BELLWIRE_MULTI_BUFFER=false");
    }
    let why = if fastest.is_accelerated() { "" } else { " Eight at a time takes a processor with AVX-512 IFMA." };
    CheckResult::ok(CHECK, format!("Payloads are sealed {fastest}.{why}"))
}

/// Compares the hard limit of open files with the number that a server may need. A start raises the soft limit to it.
pub(super) fn descriptors(limit: u64, wanted: u64) -> CheckResult {
    const CHECK: &str = "open files";
    if limit >= wanted {
        return CheckResult::ok(
            CHECK,
            format!("A server may open {limit} files and sockets, and needs up to {wanted}."),
        );
    }
    let detail = format!("A server may need {wanted} files and sockets at once, but the system allows {limit}.");
    CheckResult::warning(CHECK, detail)
        .advise("Raise the hard limit of the service, or allow fewer connections.")
        .by(format!("LimitNOFILE={}", wanted.next_power_of_two()))
}

/// Checks the free bytes of the disk of the embedded Postgres.
pub(super) fn disk(free: u64, all: u64) -> CheckResult {
    let share = free as f64 / all.max(1) as f64;
    let is_little = |(octets, of_all): (u64, f64)| free < octets || share < of_all;
    let [warning, failure] = DISK_LITTLE.map(is_little);
    let detail = format!(
        "{:.1} GiB are free on the disk of the data, {:.0} % of the disk.",
        free as f64 / (1u64 << 30) as f64,
        share * 100.0
    );
    match (failure, warning) {
        (true, _) => CheckResult::failure("disk", detail),
        (_, true) => CheckResult::warning("disk", detail),
        _ => return CheckResult::ok("disk", detail),
    }
    .advise("Free disk space, or shorten the retention.")
    .by("BELLWIRE_RETENTION_DAYS=30")
}

/// Finding for a matching schema. A mismatch is an error that includes the advice.
pub(super) fn schema() -> CheckResult {
    CheckResult::ok("schema", format!("The database schema matches this program, {VERSION}."))
}

/// Checks the difference between the clocks of database and host. `ahead_us`: microseconds by which the database is ahead.
pub(super) fn clock(ahead_us: i64) -> CheckResult {
    let detail = match (ahead_us.unsigned_abs() + 500) / 1_000 {
        0 => "The database's clock agrees with this host's clock.".to_owned(),
        ms if ahead_us > 0 => format!("The database's clock is {ms} ms ahead of this host's."),
        ms => format!("The database's clock is {ms} ms behind this host's."),
    };
    match ahead_us.abs() > CLOCK_TOLERANCE_US {
        true => CheckResult::warning("clock", detail)
            .advise(
                "Bellwire uses the database's clock. Synchronize the clocks of both hosts, for logs and certificates.",
            )
            .by("timedatectl set-ntp true"),
        false => CheckResult::ok("clock", detail),
    }
}

pub(super) fn version(DatabaseSettings { version, version_number, .. }: &DatabaseSettings) -> CheckResult {
    match u32::try_from(version_number / 10_000).is_ok_and(|major| major >= OLDEST_MAJOR) {
        true => CheckResult::ok("database version", format!("Postgres {version}.")),
        false => CheckResult::failure(
            "database version",
            format!("Postgres {version}; Bellwire needs {OLDEST_MAJOR} or newer."),
        )
        .advise("Upgrade it: another Postgres by its own means, the embedded one by Bellwire.")
        .by("bellwire postgres upgrade"),
    }
}

pub(super) fn durability(settings: &DatabaseSettings) -> CheckResult {
    const CHECK: &str = "durability";
    let wrong = [
        ("fsync", settings.fsync),
        ("full_page_writes", settings.full_page_writes),
        ("synchronous_commit", settings.synchronous_commit != "off"),
    ];
    match wrong.into_iter().find(|(_, is_right)| !is_right) {
        None => CheckResult::ok(CHECK, "Committed data survives a crash of the machine."),
        Some((name, _)) => CheckResult::failure(
            CHECK,
            format!("`{name}` is off: messages that were accepted can be lost when the machine fails."),
        )
        .advise("Turn it on.")
        .by(format!("ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();")),
    }
}

pub(super) fn connections(&DatabaseSettings { connections, connections_max, .. }: &DatabaseSettings) -> CheckResult {
    let health = beyond(connections as f64 / connections_max.max(1) as f64, CROWDED);
    let detail = format!("{connections} of {connections_max} are in use.");
    match health {
        Health::Ok => CheckResult::ok("database connections", detail),
        health => CheckResult::finding("database connections", health, detail)
            .advise("Raise the limit, which requires a restart of Postgres, or lower BELLWIRE_DATABASE_CONNECTIONS.")
            .by(format!("ALTER SYSTEM SET max_connections = {};", 2 * connections_max)),
    }
}

pub(super) fn cleaning(&DatabaseSettings { autovacuum, xid_age, .. }: &DatabaseSettings) -> CheckResult {
    const CHECK: &str = "cleaning";
    let age = beyond(xid_age, XID_AGE);
    let millions = xid_age / 1_000_000;
    match (autovacuum, age) {
        (true, Health::Ok) => CheckResult::ok(CHECK, "Autovacuum removes dead rows."),
        (false, _) => {
            CheckResult::failure(CHECK, "Autovacuum is off: dead rows accumulate, and all queries become slow.")
                .advise("Turn it on.")
                .by("ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf();")
        }
        (true, health) => CheckResult::finding(
            CHECK,
            health,
            format!(
                "The oldest row is {millions} million transactions old; at 2,000 million Postgres refuses all writes."
            ),
        )
        .advise("Find out what keeps vacuum from freezing, then freeze.")
        .by("VACUUM (FREEZE);"),
    }
}

/// Checks the oldest obstacle to vacuuming, with its age in seconds.
pub(super) fn old_transactions(oldest: Option<&(VacuumBlocker, Option<f64>)>) -> CheckResult {
    const CHECK: &str = "old transactions";
    let Some((holder, since_s)) = oldest else {
        return CheckResult::ok(CHECK, "No transaction prevents the removal of dead rows.");
    };
    let health = since_s.map_or(Health::Warning, |since_s| beyond(since_s, OLD_S));
    if health == Health::Ok {
        return CheckResult::ok(CHECK, "No transaction has been open for long.");
    }
    let long = since_s.map_or_else(String::new, |since_s| format!(" for {:.0} minutes", since_s / 60.0));
    let (who, line) = match holder {
        VacuumBlocker::Session { pid, name } => {
            let name = if name.is_empty() { "a session" } else { name };
            (format!("A transaction of {name} (process {pid})"), format!("SELECT pg_terminate_backend({pid});"))
        }
        VacuumBlocker::Prepared(gid) => {
            (format!("The prepared transaction {gid}"), format!("ROLLBACK PREPARED '{}';", gid.replace('\'', "''")))
        }
        VacuumBlocker::Slot(name) => {
            let quoted = name.replace('\'', "''");
            (
                format!("The replication slot {name}, which has no reader,"),
                format!("SELECT pg_drop_replication_slot('{quoted}');"),
            )
        }
    };
    CheckResult::finding(
        CHECK,
        health,
        format!("{who} has prevented the removal of dead rows{long}: the queue becomes slow."),
    )
    .advise("Find its owner, and end it if it is not needed.")
    .by(line)
}

/// Checks the number of days with partitions, today included.
pub(super) fn partitions(days: u64) -> CheckResult {
    let detail = match days {
        ..=1 => "There is a partition only for today.".to_owned(),
        2 => "There are partitions for today and tomorrow.".to_owned(),
        days => format!("There are partitions for today and the {} days that follow.", days - 1),
    };
    match days {
        DAYS_AHEAD_MIN.. => return CheckResult::ok("partitions", detail),
        1.. => CheckResult::warning("partitions", detail),
        0 => CheckResult::failure(
            "partitions",
            "There is no partition for today: rows go into the default partition, which is never dropped.",
        ),
    }
    .advise(
        "Maintenance creates partitions in advance. Check that a process has the role `maintenance`, and read its log.",
    )
    .by("bellwire serve --roles api,worker,maintenance")
}

pub(super) fn api_keys(names: &[String]) -> CheckResult {
    const CHECK: &str = "api keys";
    match names {
        [] => CheckResult::ok(CHECK, format!("None expires within {} days.", KEYS_EXPIRE_WITHIN.num_days())),
        names => {
            let many = if names.len() > 10 { "More than 10".to_owned() } else { names.len().to_string() };
            let verb = if names.len() == 1 { "expires" } else { "expire" };
            let detail = format!("{many} {verb} within {} days, next `{}`.", KEYS_EXPIRE_WITHIN.num_days(), names[0]);
            CheckResult::warning(CHECK, detail)
                .advise("Create new keys and use them in place of these keys before they expire.")
                .by("bellwire key list --app APP")
        }
    }
}

pub(super) fn workers(versions: &[String]) -> CheckResult {
    const CHECK: &str = "workers";
    let known: BTreeSet<&str> = versions.iter().map(String::as_str).collect();
    let named = known.iter().copied().collect::<Vec<_>>().join(", ");
    match (versions.len(), known.len()) {
        (0, _) => CheckResult::failure(CHECK, "No process with the role `worker` is running: nothing is sent.")
            .advise("Start one.")
            .by("bellwire serve --roles worker"),
        (1, _) => CheckResult::ok(CHECK, format!("One is running, of version {named}.")),
        (n, 1) => CheckResult::ok(CHECK, format!("{n} live, all of version {named}.")),
        (n, _) => CheckResult::warning(CHECK, format!("{n} live, of several versions: {named}."))
            .advise(format!("Restart the older ones with {VERSION}."))
            .by("systemctl restart bellwire"),
    }
}

pub(super) fn lanes(LaneCounts { held, broken }: LaneCounts) -> CheckResult {
    let held = match held {
        0 => None,
        1 => Some("1 lane is held".to_owned()),
        n => Some(format!("{n} lanes are held")),
    };
    let broken = match broken {
        0 => None,
        1 => Some("the breaker of 1 lane is open".to_owned()),
        n => Some(format!("the breakers of {n} lanes are open")),
    };
    let detail = match (held, broken) {
        (None, None) => return CheckResult::ok("lanes", "No lane is held, and no breaker is open."),
        (Some(held), None) => format!("{held}."),
        (None, Some(broken)) => format!("No lane is held, but {broken}."),
        (Some(held), Some(broken)) => format!("{held}, and {broken}."),
    };
    CheckResult::warning("lanes", detail)
        .advise(
            "Their deliveries are sent later. This command, like the page of push services, shows the reason and the time.",
        )
        .by("bellwire watch")
}

/// Checks the time since the oldest delivery was due.
pub(super) fn queue(waited: Option<Duration>) -> CheckResult {
    let health = waited.map_or(Health::Ok, |waited| beyond(waited, LATE));
    match (health, waited) {
        (Health::Ok, _) | (_, None) => CheckResult::ok("queue", "No due delivery has waited for long."),
        (health, Some(waited)) => {
            let detail = format!("The oldest delivery has been due for {} minutes.", waited.as_secs() / 60);
            CheckResult::finding("queue", health, detail)
                .advise("If no lane is held and workers are running, find out what keeps them busy.")
                .by("bellwire watch")
        }
    }
}

pub(super) fn runaways(held: &[String]) -> CheckResult {
    const CHECK: &str = "runaway guard";
    let Some(first) = held.first() else {
        return CheckResult::ok(CHECK, "No app sends unusually many deliveries for its size.");
    };
    CheckResult::failure(
        CHECK,
        format!("Held because they sent unusually many deliveries for their size: {}.", held.join(", ")),
    )
    .advise("Find the cause, cancel unwanted messages, and release the app.")
    .by(format!("bellwire app release {first}"))
}

#[cfg(test)]
#[path = "../../tests/unit/checks/rules.rs"]
mod tests;
