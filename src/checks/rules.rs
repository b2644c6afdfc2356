//! What is made of what was found. Pure.

pub(super) mod outside;
pub(crate) mod upkeep;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use chrono::TimeDelta;
use url::{Host, Url};

use super::{Finding, Health, Setup};
use crate::postgres::OLDEST_MAJOR;
use crate::store::operations::setup::{Holder, Settings, Standing};
use crate::store::operations::workers::VERSION;
use crate::webpush::sealer::{BUILT_IN, Sealer};

/// API keys that expire within this are worth a word.
pub(crate) const KEYS_EXPIRE_WITHIN: TimeDelta = TimeDelta::days(14);
/// Beyond this difference tokens and log lines confuse; the server itself follows the database's clock.
const CLOCK_TOLERANCE_US: i64 = 2_000_000;
/// Fewer days of partitions ahead than this, and maintenance has been away for days.
const DAYS_AHEAD_MIN: u64 = 4;
/// A transaction that lasts for longer than the first keeps dead rows; for longer than the second, queues crawl.
const OLD_S: [f64; 2] = [900.0, 7_200.0];
/// Shares of all connections.
const CROWDED: [f64; 2] = [0.8, 0.95];
/// Postgres stops taking writes at some two thousand million.
const XID_AGE: [i64; 2] = [1_000_000_000, 1_800_000_000];
/// What is due and not sent for longer than this is late.
const LATE: [Duration; 2] = [Duration::from_secs(300), Duration::from_secs(3_600)];
/// Free octets, and shares of the disk: less of either is little.
const DISK_LITTLE: [(u64, f64); 2] = [(5 << 30, 0.15), (1 << 30, 0.05)];

/// The health of what is over none, the first, or both of two lines.
fn beyond<T: PartialOrd>(value: T, [warning, failure]: [T; 2]) -> Health {
    match () {
        () if value >= failure => Health::Failure,
        () if value >= warning => Health::Warning,
        () => Health::Ok,
    }
}

/// A look that did not end in time.
pub(super) fn too_slow(check: &'static str) -> Finding {
    Finding::warning(check, "This could not be looked at within three seconds.")
        .advise("Run the checks again; if it stays so, look what the database is busy with.")
}

/// Whether HTTP can be read on its way: it is spoken beyond this machine, without TLS and without a proxy that is known to end it.
pub(crate) fn is_in_the_clear(setup: &Setup) -> bool {
    !setup.listen.ip().is_loopback() && setup.certificate.is_none() && setup.trusted_proxies == 0
}

/// How browsers reach the server.
pub(super) fn reach(setup: &Setup) -> Finding {
    const CHECK: &str = "public URL";
    let listen = setup.listen;
    match &setup.public_url {
        Some(url) if url.scheme() == "https" && is_in_the_clear(setup) => Finding::warning(
            CHECK,
            format!(
                "Browsers reach this server at {url}, but it listens at {listen} without TLS, and believes no proxy."
            ),
        )
        .advise("Say how many proxies end TLS in front of it, or have it speak HTTPS itself.")
        .by("BELLWIRE_TRUSTED_PROXIES=1"),
        Some(url) if url.scheme() == "https" => Finding::ok(CHECK, format!("Browsers reach this server at {url}.")),
        Some(url) if is_this_machine(url) => Finding::ok(CHECK, format!("Only this machine reaches it, at {url}.")),
        Some(url) => {
            let detail =
                format!("People sign in at {url}, without TLS: passwords, sessions and keys can be read on their way.");
            Finding::failure(CHECK, detail)
                .advise("Have it speak HTTPS itself, or put a proxy in front that ends TLS; and name the address.")
                .by(format!("BELLWIRE_PUBLIC_URL=https://{}", url.host_str().unwrap_or("push.example.com")))
        }
        None if listen.ip().is_loopback() => {
            Finding::ok(CHECK, format!("It listens on this machine alone, at {listen}; no public URL is set."))
        }
        None => Finding::warning(
            CHECK,
            format!("It listens at {listen}, and no public URL is set: links and passkeys do not work from elsewhere."),
        )
        .advise("Name the URL under which browsers reach it.")
        .by("BELLWIRE_PUBLIC_URL=https://push.example.com"),
    }
}

fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        None => false,
    }
}

const MASTER_KEY: &str = "master key file";

/// The master key comes from a variable.
pub(super) fn master_key_given() -> Finding {
    Finding::ok(MASTER_KEY, "The master key is given by BELLWIRE_MASTER_KEY.")
}

/// The file of the master key, with its mode.
pub(super) fn master_key_file(file: &Path, mode: io::Result<u32>) -> Finding {
    let name = file.display();
    match mode.map(|mode| mode & 0o777) {
        Ok(mode) if mode & 0o077 == 0 => {
            Finding::ok(MASTER_KEY, format!("{name} is its owner's alone (mode {mode:o})."))
        }
        Ok(mode) => Finding::failure(
            MASTER_KEY,
            format!("{name} may be read or written by others (mode {mode:o}), and no server starts with it."),
        )
        .advise("Take their rights away; if strangers use this machine, change the key, too.")
        .by(format!("chmod 600 {name}")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Finding::failure(
            MASTER_KEY,
            format!("{name} is not there: no server will start on this database without it."),
        )
        .advise("Put it back from its backup before anything is restarted."),
        Err(error) => Finding::failure(MASTER_KEY, format!("{name} cannot be looked at: {error}.")),
    }
}

/// How many data keys the master key opens.
pub(super) fn master_key(keys: usize) -> Finding {
    Finding::ok("master key", format!("It opens {keys} data keys."))
}

/// How a worker of this program seals on this machine.
pub(super) fn sealing(fastest: &Sealer, is_wanted: bool) -> Finding {
    const CHECK: &str = "sealing";
    if fastest.is_faulty() {
        return Finding::warning(CHECK, format!("Payloads are sealed {fastest}."))
            .advise("Nothing is sealed wrong any more. Look after the machine; until then, have it seal one at a time.")
            .by("BELLWIRE_MULTI_BUFFER=false");
    }
    let why = match (BUILT_IN, fastest.is_accelerated(), is_wanted) {
        (_, true, true) => "",
        (_, true, false) => " BELLWIRE_MULTI_BUFFER says so.",
        (true, false, _) => " This processor has no AVX-512 IFMA, with which it would be eight.",
        (false, ..) => " Eight at a time takes a build with the feature `multi-buffer`.",
    };
    let sealer = if is_wanted { fastest } else { Sealer::single() };
    Finding::ok(CHECK, format!("Payloads are sealed {sealer}.{why}"))
}

/// The hard limit of open files, to which a start raises the soft one, beside what a server with its settings may want.
pub(super) fn descriptors(limit: u64, wanted: u64) -> Finding {
    const CHECK: &str = "open files";
    if limit >= wanted {
        return Finding::ok(
            CHECK,
            format!("A server may have {limit} files and sockets open, and wants up to {wanted}."),
        );
    }
    let detail = format!("A server may want {wanted} files and sockets at once, and the system lets it open {limit}.");
    Finding::warning(CHECK, detail)
        .advise("Raise the hard limit of the service, or let fewer clients in at once.")
        .by(format!("LimitNOFILE={}", wanted.next_power_of_two()))
}

/// The disk under the embedded Postgres, in octets.
pub(super) fn disk(free: u64, all: u64) -> Finding {
    let share = free as f64 / all.max(1) as f64;
    let is_little = |(octets, of_all): (u64, f64)| free < octets || share < of_all;
    let [warning, failure] = DISK_LITTLE.map(is_little);
    let detail = format!(
        "{:.1} GiB are free where the data lies, {:.0} % of the disk.",
        free as f64 / (1u64 << 30) as f64,
        share * 100.0
    );
    match (failure, warning) {
        (true, _) => Finding::failure("disk", detail),
        (_, true) => Finding::warning("disk", detail),
        _ => return Finding::ok("disk", detail),
    }
    .advise("Make room, or keep less: retention is set in days.")
    .by("BELLWIRE_RETENTION_DAYS=14")
}

/// The schema is this program's; whatever else it may be is an error that says what to do.
pub(super) fn schema() -> Finding {
    Finding::ok("schema", format!("The database's schema is that of this program, {VERSION}."))
}

/// By how many microseconds the database's clock is ahead of this host's.
pub(super) fn clock(ahead_us: i64) -> Finding {
    let detail = match (ahead_us.unsigned_abs() + 500) / 1_000 {
        0 => "The database's clock shows what this host's does.".to_owned(),
        ms if ahead_us > 0 => format!("The database's clock is {ms} ms ahead of this host's."),
        ms => format!("The database's clock is {ms} ms behind this host's."),
    };
    match ahead_us.abs() > CLOCK_TOLERANCE_US {
        true => Finding::warning("clock", detail)
            .advise("The database's is followed; have both hosts keep time, for logs and certificates.")
            .by("timedatectl set-ntp true"),
        false => Finding::ok("clock", detail),
    }
}

/// The version of the database.
pub(super) fn version(Settings { version, version_number, .. }: &Settings) -> Finding {
    match u32::try_from(version_number / 10_000).is_ok_and(|major| major >= OLDEST_MAJOR) {
        true => Finding::ok("database version", format!("Postgres {version}.")),
        false => {
            Finding::failure("database version", format!("Postgres {version}; Bellwire needs {OLDEST_MAJOR} or newer."))
        }
    }
}

/// Whether what is committed outlives a crash.
pub(super) fn durability(settings: &Settings) -> Finding {
    const CHECK: &str = "durability";
    let wrong = [
        ("fsync", settings.fsync),
        ("full_page_writes", settings.full_page_writes),
        ("synchronous_commit", settings.synchronous_commit != "off"),
    ];
    match wrong.into_iter().find(|(_, is_right)| !is_right) {
        None => Finding::ok(CHECK, "What is committed outlives a crash of the machine."),
        Some((name, _)) => Finding::failure(
            CHECK,
            format!("`{name}` is off: messages that were accepted can be lost when the machine fails."),
        )
        .advise("Turn it on.")
        .by(format!("ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();")),
    }
}

/// How many connections are left.
pub(super) fn connections(&Settings { connections, connections_max, .. }: &Settings) -> Finding {
    let health = beyond(connections as f64 / connections_max.max(1) as f64, CROWDED);
    let finding =
        Finding::new("database connections", health, format!("{connections} of {connections_max} are in use."));
    match health {
        Health::Ok => finding,
        _ => finding
            .advise("Allow more, which takes a restart of Postgres, or give each process fewer by BELLWIRE_DATABASE_CONNECTIONS.")
            .by("ALTER SYSTEM SET max_connections = 300;"),
    }
}

/// Whether dead rows are cleared, and old ones frozen in time.
pub(super) fn cleaning(&Settings { autovacuum, xid_age, .. }: &Settings) -> Finding {
    const CHECK: &str = "cleaning";
    let age = beyond(xid_age, XID_AGE);
    let millions = xid_age / 1_000_000;
    match (autovacuum, age) {
        (true, Health::Ok) => Finding::ok(CHECK, "Dead rows are cleared by autovacuum."),
        (false, _) => Finding::failure(CHECK, "Autovacuum is off: dead rows pile up, and everything becomes slow.")
            .advise("Turn it on.")
            .by("ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf();"),
        (true, health) => Finding::new(
            CHECK,
            health,
            format!(
                "The oldest row is {millions} million transactions old; at 2,000 million Postgres takes no more writes."
            ),
        )
        .advise("Find out what keeps vacuum from freezing, then freeze.")
        .by("VACUUM (FREEZE);"),
    }
}

/// What has kept dead rows for longest, and for how many seconds.
pub(super) fn old_transactions(oldest: Option<&(Holder, Option<f64>)>) -> Finding {
    const CHECK: &str = "old transactions";
    let Some((holder, since_s)) = oldest else {
        return Finding::ok(CHECK, "No transaction keeps dead rows from being cleared.");
    };
    let health = since_s.map_or(Health::Warning, |since_s| beyond(since_s, OLD_S));
    if health == Health::Ok {
        return Finding::ok(CHECK, "No transaction has been open for long.");
    }
    let long = since_s.map_or_else(String::new, |since_s| format!(" for {:.0} minutes", since_s / 60.0));
    let (who, line) = match holder {
        Holder::Session { pid, name } => {
            let name = if name.is_empty() { "a session" } else { name };
            (format!("A transaction of {name} (process {pid})"), format!("SELECT pg_terminate_backend({pid});"))
        }
        Holder::Prepared(gid) => {
            (format!("The prepared transaction {gid}"), format!("ROLLBACK PREPARED '{}';", gid.replace('\'', "''")))
        }
        Holder::Slot(name) => {
            let quoted = name.replace('\'', "''");
            (
                format!("The replication slot {name}, which nobody reads,"),
                format!("SELECT pg_drop_replication_slot('{quoted}');"),
            )
        }
    };
    Finding::new(CHECK, health, format!("{who} has kept dead rows from being cleared{long}: the queue becomes slow."))
        .advise("Find out whose it is; if nobody needs it, end it.")
        .by(line)
}

/// For how many days from today on there are partitions.
pub(super) fn partitions(days: u64) -> Finding {
    let detail = match days {
        ..=1 => "There is a partition for today alone.".to_owned(),
        2 => "There are partitions for today and tomorrow.".to_owned(),
        days => format!("There are partitions for today and the {} days that follow.", days - 1),
    };
    match days {
        DAYS_AHEAD_MIN.. => return Finding::ok("partitions", detail),
        1.. => Finding::warning("partitions", detail),
        0 => Finding::failure("partitions", "There is no partition for today: rows go into one that is never dropped."),
    }
    .advise("Maintenance makes them ahead. See that a process has that role, and what its log says.")
    .by("bellwire serve --roles api,worker,maintenance")
}

/// API keys that expire soon.
pub(super) fn api_keys(names: &[String]) -> Finding {
    const CHECK: &str = "api keys";
    match names {
        [] => Finding::ok(CHECK, format!("None expires within {} days.", KEYS_EXPIRE_WITHIN.num_days())),
        names => {
            let many = if names.len() > 10 { "More than 10".to_owned() } else { names.len().to_string() };
            let verb = if names.len() == 1 { "expires" } else { "expire" };
            let detail = format!("{many} {verb} within {} days, next `{}`.", KEYS_EXPIRE_WITHIN.num_days(), names[0]);
            Finding::warning(CHECK, detail)
                .advise("Make new ones, hand them to whoever uses these, and let these expire.")
                .by("bellwire key list --app APP")
        }
    }
}

/// The workers that live, by their versions.
pub(super) fn workers(versions: &[Option<String>]) -> Finding {
    const CHECK: &str = "workers";
    let known: BTreeSet<&str> = versions.iter().map(|version| version.as_deref().unwrap_or("an older one")).collect();
    let named = known.iter().copied().collect::<Vec<_>>().join(", ");
    match (versions.len(), known.len()) {
        (0, _) => Finding::failure(CHECK, "No process with the role `worker` lives: nothing is sent.")
            .advise("Start one.")
            .by("bellwire serve --roles worker"),
        (1, _) => Finding::ok(CHECK, format!("One lives, of version {named}.")),
        (n, 1) => Finding::ok(CHECK, format!("{n} live, all of version {named}.")),
        (n, _) => Finding::warning(CHECK, format!("{n} live, of several versions: {named}."))
            .advise(format!("Restart the older ones with {VERSION}.")),
    }
}

/// Lanes that stand still.
pub(super) fn lanes(Standing { held, broken }: Standing) -> Finding {
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
        (None, None) => return Finding::ok("lanes", "No lane is held, and no breaker is open."),
        (Some(held), None) => format!("{held}."),
        (None, Some(broken)) => format!("No lane is held, but {broken}."),
        (Some(held), Some(broken)) => format!("{held}, and {broken}."),
    };
    Finding::warning("lanes", detail)
        .advise("What waits there goes out later. The page of lanes says why, and since when.")
}

/// For how long the oldest delivery has been due.
pub(super) fn queue(waited: Option<Duration>) -> Finding {
    let health = waited.map_or(Health::Ok, |waited| beyond(waited, LATE));
    match (health, waited) {
        (Health::Ok, _) | (_, None) => Finding::ok("queue", "Nothing that is due waits for long."),
        (health, Some(waited)) => {
            let detail = format!("The oldest delivery has been due for {} minutes.", waited.as_secs() / 60);
            Finding::new("queue", health, detail)
                .advise("If no lane is held and workers live, look what they are busy with: metrics, logs.")
        }
    }
}

/// Apps that are held, the first one first.
pub(super) fn runaways(held: &[String]) -> Finding {
    const CHECK: &str = "runaway guard";
    let Some(first) = held.first() else { return Finding::ok(CHECK, "No app sends more than its size explains.") };
    Finding::failure(CHECK, format!("Held, since they sent far more than their size explains: {}.", held.join(", ")))
        .advise("Find out what sends, cancel what should not go out, and release the app.")
        .by(format!("bellwire app release {first}"))
}

#[cfg(test)]
mod tests;
