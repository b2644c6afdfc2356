//! Whether everything is set up right: what a server, or `bellwire doctor` without one, can say of itself. [`rules`] judge what
//! was found and have no I/O; here it is looked for, each thing for so long at most.

mod backups;
mod certificate;
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

use crate::model::clock::{Clock, Timestamp};
use crate::model::named;
use crate::store;
use crate::store::keys::data_keys;
use crate::store::operations::{distribution, partitions, restoring, setup, workers};
use crate::store::outcomes::reliability;
use crate::store::queue::guards;
use crate::vault::master_key::Source;
use crate::webpush::sealer::Sealer;

/// No look takes longer: what hangs is a finding, too.
const PATIENCE: Duration = Duration::from_secs(3);

/// A lease that ran out so long ago should have been taken over.
const LEASE_OVERDUE: Duration = Duration::from_secs(60);

named! {
    /// How a check went, the gravest first.
    pub(crate) enum Health {
        /// Something does not work, would not start again, or may be lost.
        Failure = "failure",
        /// It works, but something should be done.
        Warning = "warning",
        /// As it should be.
        Ok = "ok",
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Finding {
    /// What was looked at, in a word or three: `partitions`, `master key file`.
    pub check: &'static str,
    /// How it is.
    pub health: Health,
    /// What was found, in one sentence.
    pub detail: String,
    /// What to do about it; null: nothing, or it goes without saying.
    pub advice: Option<String>,
    /// The command, setting or statement that does it, to be copied; null: there is none.
    pub line: Option<String>,
}

impl Finding {
    pub(crate) fn new(check: &'static str, health: Health, detail: impl Into<String>) -> Self {
        Self { check, health, detail: detail.into(), advice: None, line: None }
    }

    pub(crate) fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, Health::Ok, detail)
    }

    pub(crate) fn warning(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, Health::Warning, detail)
    }

    /// The error tells what happened, with everything behind it.
    pub(crate) fn failure(check: &'static str, error: impl Display) -> Self {
        Self::new(check, Health::Failure, format!("{error:#}"))
    }

    /// With what to do about it.
    #[must_use]
    pub(crate) fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// With the line that does it.
    #[must_use]
    pub(crate) fn by(self, line: impl Into<String>) -> Self {
        Self { line: Some(line.into()), ..self }
    }
}

/// Where the certificate is by which the server speaks HTTPS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Certificate {
    /// In a file (PEM).
    File(PathBuf),
    /// In the database, ordered by ACME.
    Ordered {
        /// URL of the authority's directory.
        directory: String,
        /// The host that it is for.
        domain: String,
    },
}

/// What of the settings is looked at.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Where the HTTP server listens.
    pub listen: SocketAddr,
    /// The URL under which browsers reach it, if it was given.
    pub public_url: Option<Url>,
    /// Proxies in front that are believed.
    pub trusted_proxies: usize,
    /// By what certificate it speaks HTTPS itself; none: it does not.
    pub certificate: Option<Certificate>,
    /// The file of the master key; none: the key is given by a variable.
    pub master_key_file: Option<PathBuf>,
    /// Where the embedded Postgres keeps its data; none: the database is another's.
    pub data_dir: Option<PathBuf>,
    /// Whether payloads may be sealed eight at a time.
    pub multi_buffer: bool,
    /// Variables that are named like settings and are none.
    pub unknown_variables: Vec<String>,
    /// A file that looks like one of settings and is not read.
    pub passed_over: Option<PathBuf>,
    /// Whether push services, and this server at its public URL, may be asked over the network.
    pub asks_others: bool,
    /// Files and sockets that a server with these settings may want open at once.
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

/// Everything that a server can say of itself but what the [`network`] shows, the gravest first.
pub(crate) async fn look(pool: &PgPool, setup: &Setup, now: Timestamp) -> Vec<Finding> {
    let mut findings = of_machine(setup).await;
    findings.extend(of_open_files());
    findings.push(asked("schema", store::check_schema(&pool.connect_options()), |()| rules::schema()).await);
    findings.extend(of_certificate(pool, setup, now).await);
    findings.extend(of_master_key(pool, setup).await);
    findings.extend(of_database(pool).await);
    findings.extend(of_upkeep(pool, now).await);
    findings.extend(of_dispatch(pool, now).await);
    by_gravity(findings)
}

/// The gravest first; what is equally grave stays in its order.
pub(crate) fn by_gravity(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|finding| finding.health);
    findings
}

/// How many files this process has open, where the system tells. A server has raised its limit as far as it may.
fn of_open_files() -> Option<Finding> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    Some(rules::upkeep::files_in_use(u64::try_from(open).unwrap_or(u64::MAX), limit))
}

/// Whether the master key's file still opens the database, as the next start will need it to.
async fn of_master_key(pool: &PgPool, setup: &Setup) -> Option<Finding> {
    let source = Source::File(setup.master_key_file.clone()?);
    Some(asked("master key", data_keys::check(pool, &source), rules::master_key).await)
}

/// What the settings and this machine tell.
pub(crate) async fn of_machine(setup: &Setup) -> Vec<Finding> {
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
    findings.push(rules::sealing(Sealer::fastest(), setup.multi_buffer));
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
            Ok(Err(error)) => findings.push(Finding::failure("disk", error)),
            Err(_) => findings.push(rules::too_slow("disk")),
        }
    }
    findings
}

/// For how long the server's certificate is good; nothing, where it has none.
pub(crate) async fn of_certificate(pool: &PgPool, setup: &Setup, now: Timestamp) -> Option<Finding> {
    let certificate = setup.certificate.as_ref()?;
    Some(asked(certificate::CHECK, certificate::look(pool, certificate), |found| certificate::judge(&found, now)).await)
}

async fn blocking<T: Send + 'static>(look: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    spawn_blocking(look).await.unwrap_or_else(|panic| Err(io::Error::other(panic)))
}

/// What the database tells of itself, be it Bellwire's already or not.
pub(crate) async fn of_database(pool: &PgPool) -> Vec<Finding> {
    let ahead = async { Ok::<_, sqlx::Error>(Clock::system().follow(store::database_now(pool).await?)) };
    let mut findings = vec![asked("clock", ahead, rules::clock).await];
    match timeout(PATIENCE, setup::settings(pool)).await {
        Ok(Ok(settings)) => findings.extend([
            rules::version(&settings),
            rules::durability(&settings),
            rules::connections(&settings),
            rules::cleaning(&settings),
        ]),
        Ok(Err(error)) => findings.push(Finding::failure("database settings", error)),
        Err(_) => findings.push(rules::too_slow("database settings")),
    }
    let holder = setup::oldest_holder(pool);
    findings.push(asked("old transactions", holder, |holder| rules::old_transactions(holder.as_ref())).await);
    match timeout(PATIENCE, distribution::placement(pool)).await {
        Ok(Ok(found)) => findings.extend(found.as_ref().map(rules::upkeep::placement)),
        Ok(Err(error)) => findings.push(Finding::failure("citus", error)),
        Err(_) => findings.push(rules::too_slow("citus")),
    }
    findings
}

/// What has to be seen to now and then.
pub(crate) async fn of_upkeep(pool: &PgPool, now: Timestamp) -> Vec<Finding> {
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

/// How dispatch goes on.
pub(crate) async fn of_dispatch(pool: &PgPool, now: Timestamp) -> Vec<Finding> {
    let waited = |due: reliability::Due| due.oldest_at.and_then(|since| (now - since).to_std().ok());
    vec![
        asked("workers", workers::versions(pool, now), |versions| rules::workers(&versions)).await,
        asked("lanes", setup::standing(pool, now), rules::lanes).await,
        asked("queue", reliability::due(pool, now), |due| rules::queue(waited(due))).await,
        asked("leases", setup::expired_leases(pool, now - LEASE_OVERDUE), rules::upkeep::leases).await,
        asked("runaway guard", guards::held(pool), |held| rules::runaways(&held)).await,
    ]
}

/// What a look comes to. One that fails, or takes too long, is a finding itself.
async fn asked<T, E: Display>(
    check: &'static str,
    look: impl Future<Output = Result<T, E>>,
    judge: impl FnOnce(T) -> Finding,
) -> Finding {
    match timeout(PATIENCE, look).await {
        Ok(Ok(found)) => judge(found),
        Ok(Err(error)) => Finding::failure(check, error),
        Err(_) => rules::too_slow(check),
    }
}
