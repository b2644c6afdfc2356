//! Operator actions, shared by the command line and the API. They print nothing and return values.

use std::fmt::Display;
use std::fs;
use std::future::pending;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::pin::pin;

use anyhow::{Context as _, bail, ensure};
use futures_util::future::join_all;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Serialize;
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use url::Url;

use super::output::Output;
use crate::checks::rules::MASTER_KEY;
use crate::checks::{self, CheckResult, Health};
use crate::config::Config;
use crate::server::context::{self, Migrations};
use crate::server::{self, announced};
use bellwire_core::clock::{Clock, Timestamp};
use bellwire_core::id::SHARDS;
use bellwire_postgres::{Binaries, Embedded, Upgraded};
use bellwire_store as store;
use bellwire_store::keys::audit::{Actor, AuditAction, AuditEntry};
use bellwire_store::keys::data_keys::{self, NewDataKey};
use bellwire_store::keys::resealing::{self, SealKey};
use bellwire_store::operations::distribution::{self, Distribution};
use bellwire_store::operations::schema::{self, Contents, SCHEMA};
use bellwire_store::operations::workers;
use bellwire_store::transactions::begin;
use bellwire_vault::master_key::{MasterKey, MasterKeySource, can_create};

/// Open files of a busy server: API clients, connections to push services and Postgres.
const FILES_WANTED: u64 = 4_096;

/// Updates the database: schema, partitions, keys. `forced`: even while workers of another version run. With `distributed`,
/// then distributes it over a Citus cluster.
pub(super) async fn migrate(config: &Config, forced: bool, distributed: bool, out: Output) -> anyhow::Result<()> {
    let migrations = if forced { Migrations::Force } else { Migrations::Apply };
    if let Some(context) = context::open_when_there(config, migrations, pin!(pending())).await? {
        context.close().await;
    }
    if !distributed {
        return Ok(out.say(&serde_json::json!({"migrated": true}), "The database is up to date.")?);
    }
    let (_postgres, options) = context::database(config).await?;
    let words = match distribution::distribute(&options, SHARDS).await? {
        Distribution::Done => "The database is up to date, and distributed over the machines of its cluster.",
        Distribution::Already => {
            "The database is up to date; it was distributed before. Where users have browsers is noted anew."
        }
    };
    Ok(out.say(&serde_json::json!({"migrated": true, "distributed": true}), words)?)
}

/// Result of `rotate_master_key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rotation {
    /// The data keys are wrapped by a new master key.
    Rotated,
    /// An interrupted rotation was completed.
    Finished,
}

/// Location of the new master key.
#[derive(Debug, Clone)]
pub(crate) enum NewMasterKey {
    /// The file of the current key, which is replaced.
    InPlace,
    /// This file, created if missing.
    InFile(PathBuf),
    /// Output of a shell command.
    PrintedBy(String),
}

/// Wraps the data keys with a new master key. The new key is on disk before the database depends on it. After an interruption,
/// calling this again completes the rotation.
pub(crate) async fn rotate_master_key(config: &Config, new: NewMasterKey) -> anyhow::Result<Rotation> {
    if let NewMasterKey::InFile(path) = &new {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        ensure!(
            above.is_dir(),
            "--to-file {}: the directory {} does not exist; create it, or name a file in an existing directory",
            path.display(),
            above.display()
        );
    }
    on_database(config, async |pool| match new {
        NewMasterKey::InPlace => match config.master_key_source() {
            MasterKeySource::File(path) => rotate_file(pool, &path).await,
            _ => bail!(
                "the master key is not in a file that could be replaced: give the new one with --to-file or --to-command"
            ),
        },
        NewMasterKey::InFile(path) => {
            let key = match MasterKey::read(&path)? {
                Some(key) => key,
                None => {
                    let key = MasterKey::generate();
                    key.write(&path)?;
                    key
                }
            };
            rotate_to(pool, &config.master_key_source(), &key).await
        }
        NewMasterKey::PrintedBy(command) => {
            let key =
                MasterKeySource::Command(command.into()).read().await?.context("a command prints a key, or fails")?;
            rotate_to(pool, &config.master_key_source(), &key).await
        }
    })
    .await
}

/// Opens the database for a few statements, with a check of its schema version.
async fn on_database<T>(config: &Config, work: impl AsyncFnOnce(&PgPool) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let (postgres, options) = context::database(config).await?;
    let worked = async {
        store::check_schema(&options).await?;
        let pool = store::connect(options, 2).await?;
        let worked = work(&pool).await;
        pool.close().await;
        worked
    };
    let worked = worked.await;
    if let Some(postgres) = postgres {
        tokio::task::spawn_blocking(move || postgres.stop()).await?;
    }
    worked
}

/// Wraps the data keys with the new key, unless they are already.
async fn rotate_to(pool: &PgPool, from: &MasterKeySource, new: &MasterKey) -> anyhow::Result<Rotation> {
    if data_keys::check(pool, &MasterKeySource::Given(new.clone())).await.is_ok() {
        return Ok(Rotation::Finished);
    }
    let old = from.read().await?.context("there is no master key")?;
    rewrap(pool, &old, new, from).await?;
    Ok(Rotation::Rotated)
}

async fn rewrap(pool: &PgPool, old: &MasterKey, new: &MasterKey, from: &MasterKeySource) -> anyhow::Result<()> {
    let now = now(pool).await?;
    let mut tx = begin(pool).await?;
    data_keys::rotate_master(&mut tx, old, new).await.map_err(|error| error.with(from))?;
    AuditEntry::new(Actor::LOCAL, None, AuditAction::MasterKeyRotated, "master key").record(&mut tx, 1, now).await?;
    Ok(tx.commit().await?)
}

async fn now(pool: &PgPool) -> anyhow::Result<Timestamp> {
    let clock = Clock::system();
    clock.follow(store::database_now(pool).await?);
    Ok(clock.now())
}

async fn rotate_file(pool: &PgPool, path: &Path) -> anyhow::Result<Rotation> {
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    let next = PathBuf::from(next);
    let replace = || fs::rename(&next, path).with_context(|| format!("cannot replace {}", path.display()));
    if next.exists() && data_keys::check(pool, &MasterKeySource::File(next.clone())).await.is_ok() {
        replace()?;
        return Ok(Rotation::Finished);
    }
    let old = MasterKey::read(path)?.with_context(|| format!("there is no master key at {}", path.display()))?;
    if next.exists() {
        // It opens nothing, so its rotation was not committed.
        fs::remove_file(&next).with_context(|| format!("cannot remove {}", next.display()))?;
    }
    let new = MasterKey::generate();
    new.write(&next)?;
    rewrap(pool, &old, &new, &MasterKeySource::File(path.to_owned())).await?;
    replace()?;
    Ok(Rotation::Rotated)
}

/// Adds a seal key, which takes effect after a delay.
pub(crate) async fn add_seal_key(config: &Config) -> anyhow::Result<NewDataKey> {
    on_database(config, async |pool| {
        let source = config.master_key_source();
        let master = source.read().await?.context("there is no master key")?;
        let now = now(pool).await?;
        let mut tx = begin(pool).await?;
        let added = data_keys::add_seal_key(&mut tx, &master, now).await.map_err(|error| error.with(&source))?;
        AuditEntry::new(Actor::LOCAL, None, AuditAction::SealKeyAdded, added.number).record(&mut tx, 1, now).await?;
        tx.commit().await?;
        Ok(added)
    })
    .await
}

/// Returns the seal keys, with the number of values encrypted with each.
pub(crate) async fn seal_keys(config: &Config) -> anyhow::Result<Vec<SealKey>> {
    on_database(config, async |pool| Ok(resealing::seal_keys(pool).await?)).await
}

/// Upgrades the embedded Postgres to a newer major version, and analyzes its tables.
pub(crate) async fn upgrade_postgres(config: &Config) -> anyhow::Result<Upgraded> {
    if config.database_url.is_some() {
        bail!(
            "the Postgres of {} is not the embedded one; upgrade it with its own tools",
            config.origin("database_url")
        );
    }
    let options = config.postgres_options();
    if !Embedded::exists(&options) {
        bail!("there is no data in {}", config.data_dir.display());
    }
    let at = options.clone();
    let upgraded = tokio::task::spawn_blocking(move || bellwire_postgres::upgrade(&at)).await??;
    // Statistics of tables stay behind, and plans without them may take for ever.
    let (embedded, options) = context::database(config).await?;
    let mut connection = schema::connect_once(&options, SCHEMA).await?;
    store::operations::setup::analyze(&mut connection).await?;
    drop(connection);
    if let Some(embedded) = embedded {
        tokio::task::spawn_blocking(move || embedded.stop()).await?;
    }
    Ok(upgraded)
}

/// Checks everything a start depends on, and the reported state of servers. Changes nothing. The most severe finding is first. With
/// `offline`, the database is the only network connection. `sites` are pages whose web app manifests are checked, too.
pub(crate) async fn doctor(config: &Config, offline: bool, sites: &[Url]) -> Vec<CheckResult> {
    let mut findings = examine(config, offline).await;
    findings.extend(join_all(sites.iter().map(checks::manifest::look)).await);
    checks::by_gravity(findings)
}

/// Parses the address of a page.
pub(crate) fn site(text: &str) -> Result<Url, String> {
    // Its address is printed, also with `--json`.
    let is_open = |url: &Url| url.username().is_empty() && url.password().is_none();
    let is_page = |url: &Url| matches!(url.scheme(), "http" | "https") && is_open(url);
    Url::parse(text).ok().filter(is_page).ok_or_else(|| "must be a page, such as https://shop.example/".to_owned())
}

async fn examine(config: &Config, offline: bool) -> Vec<CheckResult> {
    let mut findings = vec![open_files()];
    findings.extend(listener(config));
    if config.database_url.is_none() {
        let options = config.postgres_options();
        if !Embedded::exists(&options) {
            findings.push(match Binaries::find(options.binaries.as_deref(), options.search_path.as_deref(), None) {
                Ok(found) => CheckResult::ok(
                    "postgres",
                    format!("version {} in {}; the first start creates the database", found.major, found.dir.display()),
                ),
                Err(error) => unusable(error),
            });
            findings.push(data_directory(&config.data_dir));
            findings.push(first_key(config));
            return findings;
        }
    }
    let (postgres, options) = match context::database(config).await {
        Ok(found) => found,
        Err(error) => {
            findings.push(unusable(error));
            return findings;
        }
    };
    match store::connect(options.clone(), 2).await {
        Ok(pool) => {
            findings.push(CheckResult::ok(
                "postgres",
                if postgres.is_some() { "embedded".to_owned() } else { config.origin("database_url") },
            ));
            let schema = store::check_schema(&options).await;
            let is_current = schema.is_ok();
            findings.push(match schema {
                Ok(()) => CheckResult::ok("schema", "up to date"),
                Err(error @ store::SchemaError::Old { .. }) => {
                    CheckResult::warning("schema", error.to_string()).by("bellwire migrate")
                }
                Err(error) => CheckResult::failure("schema", error)
                    .advise("Run the program of that version.")
                    .by("bellwire --version"),
            });
            findings.push(match schema::inspect(&options).await {
                Ok(Contents::Ours(applied)) if !applied.is_empty() => {
                    master_key(&options, &config.master_key_source()).await
                }
                _ => first_key(config),
            });
            findings.extend(checks::of_database(&pool).await);
            if is_current {
                findings.extend(of_server(&pool, config, offline).await);
            }
            pool.close().await;
        }
        Err(error) => findings.push(unusable(error)),
    }
    if let Some(postgres) = postgres
        && let Err(panic) = tokio::task::spawn_blocking(move || postgres.stop()).await
    {
        findings.push(CheckResult::unknown("postgres", panic));
    }
    findings
}

/// Checks that the server can listen at its address, or does already.
fn listener(config: &Config) -> Option<CheckResult> {
    const CHECK: &str = "listener";
    let listen = config.listen;
    if listen.port() == 0 || announced::address(&config.data_dir).is_some() {
        return None;
    }
    let Err(error) = std::net::TcpListener::bind(listen) else {
        return Some(CheckResult::ok(CHECK, format!("{listen} is free")));
    };
    // No request is made: it would start a server whose socket is held by the service manager.
    let (health, advice) = match error.kind() {
        ErrorKind::AddrInUse => (
            Health::Warning,
            "Fine if a Bellwire server or its service uses the port. Otherwise stop that program, or choose another port.",
        ),
        ErrorKind::PermissionDenied => {
            (Health::Failure, "Choose a port above 1023, or let the user who runs Bellwire use lower ones.")
        }
        _ => (Health::Failure, "Choose an address of this machine."),
    };
    let finding = CheckResult::finding(CHECK, health, format!("a server cannot listen at {listen}: {error}"));
    Some(finding.advise(advice).by("BELLWIRE_LISTEN=ADDRESS:PORT"))
}

fn data_directory(dir: &Path) -> CheckResult {
    const CHECK: &str = "data directory";
    match can_create(&dir.join("master.key")) {
        Ok(()) => CheckResult::ok(CHECK, format!("{} can be written", dir.display())),
        Err(error) => CheckResult::failure(CHECK, format!("{} cannot be written: {error}", dir.display()))
            .advise("Let the user who runs Bellwire create and write it, or choose another directory.")
            .by("BELLWIRE_DATA_DIR=DIRECTORY"),
    }
}

/// Checks the master key before the first data keys exist.
fn first_key(config: &Config) -> CheckResult {
    match config.master_key_source().check() {
        Ok(()) => CheckResult::ok(MASTER_KEY, "the first start creates the keys"),
        Err(error) => wrong_key(error),
    }
}

async fn master_key(options: &PgConnectOptions, source: &MasterKeySource) -> CheckResult {
    let mut connection = match schema::connect_once(options, SCHEMA).await {
        Ok(connection) => connection,
        Err(error) => return wrong_key(error),
    };
    match data_keys::check(&mut connection, source).await {
        Ok(0) => CheckResult::ok(MASTER_KEY, "the first start creates the keys"),
        Ok(keys) => CheckResult::ok(MASTER_KEY, format!("opens {keys} data keys")),
        Err(error) => wrong_key(error),
    }
}

/// Returns findings from the reported state of servers. Without a running server, waiting deliveries are no finding.
async fn of_server(pool: &PgPool, config: &Config, offline: bool) -> Vec<CheckResult> {
    let (now, setup) = (Clock::system().now(), server::setup(config));
    let listen = announced::address(&config.data_dir).unwrap_or(setup.listen);
    let setup = checks::Setup { asks_others: !offline, listen, ..setup };
    let mut findings = checks::of_machine(&setup).await;
    findings.extend(checks::of_certificate(pool, &setup, now).await);
    match server::gateways(config) {
        Ok(gateways) => findings.extend(checks::network::look(pool, &gateways, &setup).await),
        Err(error) => findings.push(CheckResult::unknown("push services", error)),
    }
    findings.extend(checks::of_upkeep(pool, now).await);
    if workers::any(pool, now).await.unwrap_or(false) {
        findings.extend(checks::of_dispatch(pool, now).await);
    }
    findings
}

fn unusable(error: impl Display) -> CheckResult {
    let advice = "Compare the settings of the database and of Postgres with these.";
    CheckResult::failure("postgres", error).advise(advice).by("bellwire serve --print-config")
}

fn wrong_key(error: impl Display) -> CheckResult {
    let advice = "Put back the master key that the database was made with; this shows where it is read from.";
    CheckResult::failure(MASTER_KEY, error).advise(advice).by("bellwire serve --print-config")
}

fn open_files() -> CheckResult {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((_, hard)) if hard < FILES_WANTED => {
            CheckResult::warning("open files", format!("at most {hard}; a busy server needs {FILES_WANTED}"))
                .advise("Raise the hard limit, in a unit of systemd by this line.")
                .by(format!("LimitNOFILE={FILES_WANTED}"))
        }
        Ok((_, hard)) => CheckResult::ok("open files", format!("at most {hard}")),
        Err(errno) => CheckResult::unknown("open files", errno),
    }
}

/// Raises the soft limit of open files to the hard limit. The usual soft limit of 1,024 exists for programs that use `select`.
/// Does nothing if that fails.
pub fn raise_open_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(errno) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(soft, hard, %errno, "the limit of open files cannot be raised");
    }
}
