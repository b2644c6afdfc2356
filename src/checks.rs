//! Checks of a server and its machine, for `/v1/checks` and `bellwire doctor`. This module collects the facts, each
//! with a timeout; [`rules`] evaluate them without I/O.

mod backups;
mod certificate;
pub(crate) mod manifest;
pub(crate) mod network;
pub(crate) mod rules;
mod scheduling;

use std::fmt::Display;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::statvfs;
use serde::Serialize;
use sqlx::PgPool;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use url::Url;
use utoipa::ToSchema;

use bellwire_core::clock::{Clock, Timestamp};
use bellwire_core::named;
use bellwire_store as store;
use bellwire_store::keys::data_keys;
use bellwire_store::operations::{distribution, partitions, restoring, setup, workers};
use bellwire_store::outcomes::reliability;
use bellwire_store::queue::guards;
use bellwire_vault::master_key::MasterKeySource;
use bellwire_webpush::sealer::Sealer;

/// Timeout of each check. A timeout is a finding, too.
const PATIENCE: Duration = Duration::from_secs(3);

/// Age of an expired lease after which another worker should have claimed the work.
const LEASE_OVERDUE: Duration = Duration::from_secs(60);

named! {
    /// Severity of a result, most severe first.
    pub(crate) enum Health {
        /// Something does not work, would not start again, or may lose data.
        Failure = "failure",
        Warning = "warning",
        Ok = "ok",
    }
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct CheckResult {
    /// Subject of the check in one to three words: `partitions`, `master key file`.
    pub check: &'static str,
    /// Severity of the result.
    pub health: Health,
    /// Result of the check in one sentence.
    pub detail: String,
    /// Recommended action. Null if there is none, or if it is obvious.
    pub advice: Option<String>,
    /// Command, setting or statement to copy that carries out the advice. Null if there is none.
    pub line: Option<String>,
}

impl CheckResult {
    pub(crate) fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, health: Health::Ok, detail: detail.into(), advice: None, line: None }
    }

    /// Creates a finding of this severity, which still needs its line.
    pub(crate) fn finding(check: &'static str, health: Health, detail: impl Into<String>) -> Finding {
        Finding(Self { health, ..Self::ok(check, detail) })
    }

    pub(crate) fn warning(check: &'static str, detail: impl Into<String>) -> Finding {
        Self::finding(check, Health::Warning, detail)
    }

    /// Creates a failure with an error and its causes as the detail.
    pub(crate) fn failure(check: &'static str, error: impl Display) -> Finding {
        Self::finding(check, Health::Failure, format!("{error:#}"))
    }

    /// Creates the result of a check that failed itself.
    pub(crate) fn unknown(check: &'static str, error: impl Display) -> Self {
        Self::failure(check, error).advise("Correct the cause, then check again.").by("bellwire doctor")
    }

    #[must_use]
    pub(crate) fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// Adds the command or setting that corrects it.
    #[must_use]
    pub(crate) fn by(self, line: impl Into<String>) -> Self {
        Self { line: Some(line.into()), ..self }
    }
}

/// A warning or failure without the line that corrects it. Only [`by`](Self::by) makes a result of it, so each has one.
#[derive(Debug)]
#[must_use]
pub(crate) struct Finding(CheckResult);

impl Finding {
    pub(crate) fn advise(self, advice: impl Into<String>) -> Self {
        Self(self.0.advise(advice))
    }

    /// Adds the command or setting that corrects it.
    pub(crate) fn by(self, line: impl Into<String>) -> CheckResult {
        self.0.by(line)
    }
}

/// Source of the certificate for HTTPS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Certificate {
    File(PathBuf),
    Ordered { directory: String, domain: String },
}

/// Settings that the checks need.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Address of the HTTP server.
    pub listen: SocketAddr,
    /// URL for browsers, if it is set.
    pub public_url: Option<Url>,
    /// Number of trusted proxies in front of the server.
    pub trusted_proxies: usize,
    /// Certificate of the server; `None` without HTTPS.
    pub certificate: Option<Certificate>,
    /// File of the master key; `None` if a variable contains the key.
    pub master_key_file: Option<PathBuf>,
    /// Data directory of the embedded Postgres; `None` for another database.
    pub data_dir: Option<PathBuf>,
    /// Whether payloads may be encrypted eight at a time.
    pub multi_buffer: bool,
    /// Variables with the prefix of settings that are not settings.
    pub unknown_variables: Vec<String>,
    /// A settings file in the working directory, which is not read.
    pub passed_over: Option<PathBuf>,
    /// Whether the checks may send requests to push services and to the public URL.
    pub asks_others: bool,
    /// Maximum files and sockets that a server with these settings may open.
    pub descriptors: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8_787)),
            public_url: None,
            trusted_proxies: 0,
            certificate: None,
            master_key_file: None,
            data_dir: None,
            multi_buffer: true,
            unknown_variables: Vec::new(),
            passed_over: None,
            asks_others: false,
            descriptors: 0,
        }
    }
}

/// Runs all checks except those of [`network`], and returns the most severe findings first.
pub(crate) async fn look(pool: &PgPool, setup: &Setup, now: Timestamp) -> Vec<CheckResult> {
    let mut findings = of_machine(setup).await;
    findings.extend(of_open_files());
    findings.push(asked("schema", store::check_schema(&pool.connect_options()), |()| rules::schema()).await);
    findings.extend(of_certificate(pool, setup, now).await);
    findings.extend(of_master_key(pool, setup).await);
    findings.push(of_seal_key(pool).await);
    findings.extend(of_database(pool).await);
    findings.extend(of_upkeep(pool, now).await);
    findings.extend(of_dispatch(pool, now).await);
    by_gravity(findings)
}

/// Sorts findings by severity, and keeps the order within each severity. Omits the success of the key's file if its key fails.
pub(crate) fn by_gravity(mut findings: Vec<CheckResult>) -> Vec<CheckResult> {
    if findings.iter().any(|finding| finding.check == rules::MASTER_KEY && finding.health == Health::Failure) {
        findings.retain(|finding| finding.check != rules::MASTER_KEY_FILE || finding.health != Health::Ok);
    }
    findings.sort_by_key(|finding| finding.health);
    findings
}

/// Counts the open files of this process. Returns `None` on systems without `/proc`.
fn of_open_files() -> Option<CheckResult> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    Some(rules::upkeep::files_in_use(u64::try_from(open).unwrap_or(u64::MAX), limit))
}

/// Checks that the file of the master key still unwraps the data keys, as the next start requires.
async fn of_master_key(pool: &PgPool, setup: &Setup) -> Option<CheckResult> {
    let source = MasterKeySource::File(setup.master_key_file.clone()?);
    Some(asked(rules::MASTER_KEY, data_keys::check(pool, &source), rules::master_key).await)
}

/// Checks how many more values the current seal key may encrypt.
async fn of_seal_key(pool: &PgPool) -> CheckResult {
    asked("seal key", data_keys::sealed_values(pool), rules::seal_key).await
}

pub(crate) async fn of_machine(setup: &Setup) -> Vec<CheckResult> {
    let mut findings = vec![rules::reach(setup)];
    let key = setup.master_key_file.clone();
    let mode = key.clone().map(|file| blocking(move || std::fs::metadata(file).map(|found| found.mode())));
    findings.push(match (key, mode) {
        (Some(file), Some(mode)) => {
            let mode = timeout(PATIENCE, mode).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            rules::master_key_file(&file, mode)
        }
        _ => rules::master_key_given(),
    });
    findings.push(rules::sealing(setup.multi_buffer.then(Sealer::fastest)));
    findings.push(rules::upkeep::settings(&setup.unknown_variables, setup.passed_over.as_deref()));
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map(|(_, hard)| hard);
    findings.extend(limit.ok().map(|hard| rules::descriptors(hard, setup.descriptors)));
    if setup.data_dir.is_some() {
        findings.extend(scheduling::is_by_session().map(rules::upkeep::scheduling));
    }
    if let Some(directory) = setup.data_dir.clone() {
        let room = blocking(move || {
            let found = statvfs(&directory)?;
            let octets = |blocks| found.fragment_size() * blocks;
            let inodes = (found.files_available(), found.files());
            Ok(((octets(found.blocks_available()), octets(found.blocks())), inodes))
        });
        match timeout(PATIENCE, room).await {
            Ok(Ok(((free, all), (inodes_free, inodes)))) => {
                findings.extend([rules::disk(free, all), rules::upkeep::inodes(inodes_free, inodes)]);
            }
            Ok(Err(error)) => findings.push(CheckResult::unknown("disk", error)),
            Err(_) => findings.push(rules::too_slow("disk")),
        }
    }
    findings
}

/// Checks the expiry of the server's certificate. Returns `None` without a certificate.
pub(crate) async fn of_certificate(pool: &PgPool, setup: &Setup, now: Timestamp) -> Option<CheckResult> {
    let certificate = setup.certificate.as_ref()?;
    Some(asked(certificate::CHECK, certificate::look(pool, certificate), |found| certificate::judge(&found, now)).await)
}

async fn blocking<T: Send + 'static>(look: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    spawn_blocking(look).await.unwrap_or_else(|panic| Err(io::Error::other(panic)))
}

/// Checks the settings and transactions of the database, which may be empty.
pub(crate) async fn of_database(pool: &PgPool) -> Vec<CheckResult> {
    let ahead = async { Ok::<_, sqlx::Error>(Clock::system().follow(store::database_now(pool).await?)) };
    let mut findings = vec![asked("clock", ahead, rules::clock).await];
    match timeout(PATIENCE, setup::settings(pool)).await {
        Ok(Ok(settings)) => findings.extend([
            rules::version(&settings),
            rules::durability(&settings),
            rules::connections(&settings),
            rules::cleaning(&settings),
        ]),
        Ok(Err(error)) => findings.push(CheckResult::unknown("database settings", error)),
        Err(_) => findings.push(rules::too_slow("database settings")),
    }
    let holder = setup::oldest_holder(pool);
    findings.push(asked("old transactions", holder, |holder| rules::old_transactions(holder.as_ref())).await);
    match timeout(PATIENCE, distribution::placement(pool)).await {
        Ok(Ok(found)) => findings.extend(found.as_ref().map(rules::upkeep::placement)),
        Ok(Err(error)) => findings.push(CheckResult::unknown("citus", error)),
        Err(_) => findings.push(rules::too_slow("citus")),
    }
    findings
}

pub(crate) async fn of_upkeep(pool: &PgPool, now: Timestamp) -> Vec<CheckResult> {
    vec![
        asked("partitions", partitions::days_ahead(pool, now), rules::partitions).await,
        asked("api keys", setup::expiring_keys(pool, rules::KEYS_EXPIRE_WITHIN, now), |keys| rules::api_keys(&keys))
            .await,
        asked("backups", store::operations::backups::known(pool), |known| backups::age(known, now)).await,
        asked("restore", restoring::last(pool), backups::held).await,
        asked("VAPID subjects", setup::subjects(pool), |subjects| rules::outside::subjects(&subjects)).await,
        asked("bloat", setup::worst_bloat(pool), |worst| rules::upkeep::bloat(worst.as_ref())).await,
    ]
}

pub(crate) async fn of_dispatch(pool: &PgPool, now: Timestamp) -> Vec<CheckResult> {
    let waited = |due: reliability::DueDeliveries| due.oldest_at.and_then(|since| (now - since).to_std().ok());
    vec![
        asked("workers", workers::versions(pool, now), |versions| rules::workers(&versions)).await,
        asked("lanes", setup::standing(pool, now), rules::lanes).await,
        asked("queue", reliability::due(pool, now), |due| rules::queue(waited(due))).await,
        asked("leases", setup::expired_leases(pool, now - LEASE_OVERDUE), rules::upkeep::leases).await,
        asked("runaway guard", guards::held(pool), |held| rules::runaways(&held)).await,
    ]
}

/// Runs a check. An error or a timeout is a finding.
async fn asked<T, E: Display>(
    check: &'static str, look: impl Future<Output = Result<T, E>>, judge: impl FnOnce(T) -> CheckResult,
) -> CheckResult {
    match timeout(PATIENCE, look).await {
        Ok(Ok(found)) => judge(found),
        Ok(Err(error)) => CheckResult::unknown(check, error),
        Err(_) => rules::too_slow(check),
    }
}
