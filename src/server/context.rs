//! What every command stands on: a Postgres with the right schema, the vault, and the clock.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use sqlx::postgres::{PgConnectOptions, PgPool};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout, timeout_at};

use super::connections::Shares;
use super::vacuum::Pace;
use crate::config::{Config, Secret};
use crate::model::clock::Clock;
use crate::postgres::{DATABASE, Embedded};
use crate::store::connections::hosts::{For, Hosts};
use crate::store::connections::primary::{self, Primary};
use crate::store::connections::replica::Reads;
use crate::store::connections::{Session, pooler, slow_after};
use crate::store::operations::schema::{self, Contents, SCHEMA};
use crate::store::operations::takeover::SESSION;
use crate::store::{self, Beside, SchemaError, keys::data_keys, operations::partitions};
use crate::vault::Vault;

/// How often the embedded Postgres is looked after. Its sessions recover by themselves; only the end of all of Postgres
/// needs us.
const WATCH: Duration = Duration::from_secs(1);

/// How long a start waits for a database that does not answer, and how often it asks.
const PATIENCE: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// How long a commit may wait for standbys before that is worth words.
const CONFIRM_WITHIN: Duration = Duration::from_secs(3);

/// How long the end of a process waits for its connections to be closed in good order.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// What to do about an old schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Migrations {
    /// Apply what is missing, once no worker of another version is at work.
    Apply,
    /// Apply what is missing, whoever is at work.
    Force,
    /// Refuse to go on.
    Check,
    /// Refuse to go on, unless the database is empty.
    Begin,
}

/// An open database and what belongs to it.
#[derive(Debug)]
pub(crate) struct Context {
    postgres: Option<Arc<Embedded>>,
    /// Connections to the database.
    pub pool: PgPool,
    /// Connections for sends to named recipients, which share their commits: they plan by index only.
    pub sending_pool: PgPool,
    /// Connections for the dispatch engine, which plan by index only.
    pub worker_pool: PgPool,
    /// Which host of the database is the primary.
    pub primary: Primary,
    /// The hosts of the database; none: it is embedded.
    pub hosts: Option<Hosts>,
    /// Where to read what may lag.
    pub reads: Reads,
    /// The unlocked data keys.
    pub vault: Vault,
    /// Follows the database's clock.
    pub clock: Clock,
}

impl Context {
    /// Starts the embedded Postgres unless there is another one, brings the schema up to date, unlocks the keys. What
    /// could stand in the way of any of that is looked at before anything is written to a database.
    pub(crate) async fn open(config: &Config, migrations: Migrations) -> anyhow::Result<Self> {
        let master_key = config.master_key_source();
        master_key.check()?;
        let (postgres, options) = database(config).await?;
        match schema::inspect(&options).await? {
            Contents::Others(table) if config.database_may_be_anothers() => bail!(
                "the database of DATABASE_URL belongs to another application: it has tables, such as {table}, and none of \
                 Bellwire's. Unset DATABASE_URL, and Bellwire runs a Postgres of its own; or set BELLWIRE_DATABASE_URL \
                 instead: to that database, if Bellwire is to keep to a schema of its own in it (`{SCHEMA}`), or to another"
            ),
            Contents::Ours { schema, applied } if !applied.is_empty() => {
                // Another server may be moving them just now.
                let schemas = if schema == SCHEMA { schema.into() } else { format!("{SCHEMA},{schema}") };
                data_keys::check(&mut schema::connect_once(&options, &schemas).await?, &master_key).await?;
            }
            _ => {}
        }
        match migrations {
            Migrations::Apply => migrate_alone(&options).await?,
            Migrations::Force => store::migrate(&options, Beside::Force).await?,
            Migrations::Check => store::check_schema(&options).await?,
            Migrations::Begin => store::migrate_new(&options).await?,
        }
        let clock = Clock::system();
        // By this name whoever finds this process silent ends what it has left at Postgres.
        let options = options.application_name(&format!("{SESSION}{}", clock.uuid()));
        // Apart, so that none starves the others. What its roles do not use is never opened.
        let shares = Shares::of(config.connections(), config.roles);
        let hosts = hosts(config)?;
        let primary = Primary::new(hosts.as_ref().is_some_and(Hosts::are_several));
        let session = Session::from(options).of(&primary);
        let pool = store::connect(session.clone(), shares.requests).await.context("cannot connect to the database")?;
        let session = store::by_index_only(session);
        let sending_pool = store::connect_to_stay(session.clone(), shares.sends.max(1));
        let worker_pool = store::connect_to_stay(session, shares.dispatch.max(1));
        let reads = reads(config, &pool, shares.requests)?;
        clock.follow(store::database_now(&pool).await?);
        match partitions::ensure(&pool, clock.now()).await {
            // Somebody holds locks: maintenance comes back to it, and the default partition takes what comes meanwhile.
            Err(error) if store::is_transient(&error) => tracing::warn!(%error, "no new partitions yet"),
            ensured => drop(ensured.context("cannot make partitions")?),
        }
        let vault = data_keys::open(&pool, &master_key, clock.now()).await?;
        Ok(Self { postgres, pool, sending_pool, worker_pool, primary, hosts, reads, vault, clock })
    }

    /// Starts the embedded Postgres again whenever it ends, and sets its pace. Is ready only when that fails; never without an embedded
    /// one.
    pub(crate) async fn keep_postgres(&self) -> anyhow::Error {
        let Some(postgres) = &self.postgres else { return std::future::pending().await };
        let mut pace = Pace::new();
        loop {
            tokio::time::sleep(WATCH).await;
            let revived = match postgres.certainly_runs() {
                true => Ok(Ok(false)), // nearly always, and another thread would have to be woken to find as much
                false => {
                    let postgres = postgres.clone();
                    spawn_blocking(move || postgres.revive()).await
                }
            };
            match revived {
                // It may end meanwhile: then it is revived all the sooner.
                Ok(Ok(false)) if self.holds_postgres() => drop(timeout(WATCH, pace.keep(&self.pool)).await),
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => tracing::warn!("Postgres had ended and was started again"),
                Ok(Err(error)) => return error.into(),
                Err(panic) => return panic.into(),
            }
        }
    }

    /// Whether this process had to start the embedded Postgres: no server runs on its data.
    pub(crate) fn holds_postgres(&self) -> bool {
        self.postgres.as_ref().is_some_and(|postgres| postgres.is_ours())
    }

    /// Where the data is, in words.
    pub(crate) fn data(&self, config: &Config) -> String {
        match &self.postgres {
            Some(_) => config.data_dir.display().to_string(),
            None => config.origin("database_url"),
        }
    }

    /// Closes all connections, then stops the embedded Postgres if this process started it. A statement of maintenance that was
    /// given up may run on for as long as it waits for a lock: Postgres undoes it when it finds nobody there.
    pub(crate) async fn close(self) {
        let Self { pool, sending_pool, worker_pool, reads, .. } = &self;
        let close = async { tokio::join!(worker_pool.close(), sending_pool.close(), pool.close(), reads.close()) };
        if tokio::time::timeout(CLOSE_WITHIN, close).await.is_err() {
            tracing::info!("a statement that was given up is left to Postgres");
        }
        if let Some(postgres) = self.postgres
            && let Err(panic) = spawn_blocking(move || postgres.stop()).await
        {
            tracing::error!(%panic, "Postgres was not stopped");
        }
    }
}

/// Waits until a database that is not embedded answers and confirms commits: a start after a power cut, or of containers side by side,
/// may be faster than its Postgres. Fails when it does not in half a minute, and at once when it refuses us, or when a pooler in between
/// does not keep sessions together.
pub(crate) async fn wait_for_database(config: &Config) -> anyhow::Result<()> {
    let Some(hosts) = hosts(config)? else { return Ok(()) };
    let deadline = Instant::now() + PATIENCE;
    let origin = config.origin("database_url");
    let mut told = false;
    let options = loop {
        let error = match timeout_at(deadline, primary::find(&hosts)).await {
            Ok(Ok(options)) => break options,
            Ok(Err(error)) => error,
            Err(_) => sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()),
        };
        if !store::is_transient(&error) {
            return Err(error).with_context(|| format!("the database of {origin} cannot be used"));
        }
        if Instant::now() + ASK_AGAIN > deadline {
            let patience_s = PATIENCE.as_secs();
            if store::is_out_of_connections(&error) {
                return Err(error).with_context(|| {
                    format!(
                        "the database of {origin} had no connection left for {patience_s} s: raise its max_connections, or give each \
                         server fewer by BELLWIRE_DATABASE_CONNECTIONS"
                    )
                });
            }
            return Err(error).with_context(|| format!("the database of {origin} did not answer for {patience_s} s"));
        }
        if !std::mem::replace(&mut told, true) {
            tracing::warn!(%error, patience_s = PATIENCE.as_secs(), "the database does not answer yet, waiting for it");
        }
        tokio::time::sleep(ASK_AGAIN).await;
    };
    if !pooler::keeps_sessions(&options).await? {
        bail!(
            "the database of {origin} is behind a pooler that lends one session to several clients, such as PgBouncer with \
             pool_mode = transaction: Bellwire needs pool_mode = session, or a URL that leads to Postgres itself"
        );
    }
    confirm_commits(&options).await
}

/// Waits until Postgres confirms a commit, if it is to wait for standbys with that. Without them it never would, and everything that
/// writes would hang without a word.
async fn confirm_commits(options: &PgConnectOptions) -> anyhow::Result<()> {
    let Some(names) = pooler::awaited_standbys(options).await? else { return Ok(()) };
    let began = Instant::now();
    let mut committing = std::pin::pin!(pooler::commit(options));
    if let Ok(committed) = timeout_at(began + CONFIRM_WITHIN, &mut committing).await {
        return Ok(committed?);
    }
    tracing::warn!(
        synchronous_standby_names = names,
        patience_s = PATIENCE.as_secs(),
        "Postgres does not confirm commits, waiting for its standbys"
    );
    match timeout_at(began + PATIENCE, committing).await {
        Ok(committed) => Ok(committed?),
        Err(_) => bail!(
            "Postgres does not confirm commits: it waits for the standbys of synchronous_standby_names = '{names}', which are not \
             there. Start them, or take them off that setting and reload Postgres; with two standbys, 'ANY 1 (a, b)' lets either \
             be missing"
        ),
    }
}

/// Migrates once no worker of another version is at work, and waits for that: one that stops takes itself off the list, and
/// one that was killed is taken off after some seconds. Fails if one is still at work after half a minute.
async fn migrate_alone(options: &PgConnectOptions) -> Result<(), SchemaError> {
    let deadline = Instant::now() + PATIENCE;
    let mut told = false;
    loop {
        match store::migrate(options, Beside::Refuse).await {
            Err(SchemaError::InUse { workers }) if Instant::now() + ASK_AGAIN <= deadline => {
                if !std::mem::replace(&mut told, true) {
                    let patience_s = PATIENCE.as_secs();
                    tracing::warn!(
                        workers,
                        patience_s,
                        "workers of another version are at work, waiting for their end"
                    );
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
            migrated => return migrated,
        }
    }
}

/// The hosts of a database that is not embedded.
fn hosts(config: &Config) -> anyhow::Result<Option<Hosts>> {
    // The URL holds a password: errors do not quote it.
    let parse = |url: &Secret| {
        let hosts = Hosts::parse(url.expose(), For::Writing);
        let hosts = hosts.map_err(|wrong| anyhow!("{} {wrong}", config.origin("database_url")))?;
        Ok(hosts.slow_after(config.slow_statement()))
    };
    config.database_url.as_ref().map(parse).transpose()
}

/// Where to read what may lag.
fn reads(config: &Config, pool: &PgPool, connections: u32) -> anyhow::Result<Reads> {
    let Some(url) = &config.read_database_url else { return Ok(Reads::at(pool.clone())) };
    let hosts = Hosts::parse(url.expose(), For::Reading)
        .map_err(|wrong| anyhow!("{} {wrong}", config.origin("read_database_url")))?;
    let hosts = hosts.slow_after(config.slow_statement());
    Ok(Reads::or_at(pool.clone(), hosts, connections, config.read_lag_max))
}

/// The configured database's primary, or the embedded one, started.
pub(crate) async fn database(config: &Config) -> anyhow::Result<(Option<Arc<Embedded>>, PgConnectOptions)> {
    if let Some(hosts) = hosts(config)? {
        // The only host says itself why it cannot be used.
        let options = match hosts.all() {
            [only] => only.clone(),
            _ => primary::find(&hosts).await.context("no host of the database can be used")?,
        };
        return Ok((None, options));
    }
    let options = config.postgres_options();
    let postgres = Arc::new(spawn_blocking(move || Embedded::start(&options)).await??);
    let options = slow_after(postgres.connect_options(DATABASE), config.slow_statement());
    Ok((Some(postgres), options))
}
