//! Context of every command: a Postgres with the right schema, the vault, and the clock.

use std::future::Future;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use nix::unistd::{Uid, User};
use sqlx::postgres::{PgConnectOptions, PgPool};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout, timeout_at};

use super::shares::Shares;
use super::vacuum::Pace;
use crate::config::{Config, Secret};
use bellwire_core::clock::Clock;
use bellwire_postgres::{DATABASE, Embedded};
use bellwire_store::connections::hosts::{DatabaseHosts, For, name as host_name};
use bellwire_store::connections::primary::{self, Primary};
use bellwire_store::connections::recovery;
use bellwire_store::connections::replica::Reads;
use bellwire_store::connections::{Session, pooler, slow_after};
use bellwire_store::operations::schema::{self, Contents, SCHEMA};
use bellwire_store::operations::takeover::SESSION;
use bellwire_store::{self as store, Beside, SchemaError, keys::data_keys, operations::partitions};
use bellwire_vault::Vault;
use bellwire_vault::master_key::MasterKeySource;

/// Interval of the check on the embedded Postgres. Postgres recovers failed sessions itself, and its whole end only
/// needs a restart by this process.
const WATCH: Duration = Duration::from_secs(1);

/// Maximum wait of a start for a database that does not respond. The interval of its retries is below.
const PATIENCE: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Time of a commit that waits for standbys after which a warning is logged.
const CONFIRM_WITHIN: Duration = Duration::from_secs(3);

/// Maximum time to close connections in an orderly way when a process ends.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Migrations {
    /// Apply missing migrations once no worker of another version is running.
    Apply,
    Force,
    Check,
    /// Fail unless the database is empty.
    Begin,
}

#[derive(Debug)]
pub(crate) struct Context {
    postgres: Option<Arc<Embedded>>,
    pub pool: PgPool,
    /// Connections for sends to named recipients, which share their commits. Their plans use indexes only.
    pub sending_pool: PgPool,
    /// Connections for the dispatch engine. Their plans use indexes only.
    pub worker_pool: PgPool,
    pub primary: Primary,
    /// Hosts of the database; `None` for the embedded one.
    pub hosts: Option<DatabaseHosts>,
    /// Connections for reads that tolerate a lag.
    pub reads: Reads,
    pub vault: Vault,
    /// Clock that follows the database.
    pub clock: Clock,
}

impl Context {
    /// Starts the embedded Postgres unless another database is configured, migrates the schema, and unlocks the keys.
    /// All checks come before the first write to a database.
    pub(crate) async fn open(config: &Config, migrations: Migrations) -> anyhow::Result<Self> {
        refuse_foreign(config)?;
        let master_key = config.master_key_source();
        master_key.check()?;
        let (postgres, options) = database(config).await?;
        let place = config.database_url.as_ref().map(|_| {
            let (origin, host, port) = (config.origin("database_url"), options.get_host(), options.get_port());
            format!("the Postgres of {origin} at {host}:{port}")
        });
        let inspected = schema::inspect(&options).await;
        let inspected = match place {
            Some(place) if matches!(inspected, Err(SchemaError::Sql(_))) => inspected.context(place)?,
            _ => inspected?,
        };
        match inspected {
            Contents::Others(table) if config.database_may_be_anothers() => bail!(
                "the database of DATABASE_URL belongs to another application: it has tables, such as {table}, and none of \
                 Bellwire's. Unset DATABASE_URL, and Bellwire runs a Postgres of its own; or set BELLWIRE_DATABASE_URL \
                 instead: to that database, if Bellwire is to keep to a schema of its own in it (`{SCHEMA}`), or to another"
            ),
            Contents::Ours(applied) if !applied.is_empty() => {
                data_keys::check(&mut schema::connect_once(&options, SCHEMA).await?, &master_key).await?;
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
        // If this process misses its heartbeat, the worker that takes over ends the sessions with this name.
        let options = options.application_name(&format!("{SESSION}{}", clock.uuid()));
        // Separate pools, so that none starves the others. A pool without a role is never opened.
        let shares = Shares::of(config.connections(), config.roles);
        let hosts = hosts(config)?;
        let primary = Primary::new(hosts.as_ref().is_some_and(DatabaseHosts::are_several));
        let session = Session::from(options).of(&primary);
        let pool = store::connect(session.clone(), shares.requests).await.context("cannot connect to the database")?;
        let session = store::by_index_only(session);
        let sending_pool = store::connect_to_stay(session.clone(), shares.sends.max(1));
        let worker_pool = store::connect_to_stay(session, shares.dispatch.max(1));
        let reads = reads(config, &pool, shares.requests)?;
        clock.follow(store::database_now(&pool).await?);
        match partitions::ensure(&pool, clock.now()).await {
            // Another session holds locks. Maintenance retries, and the default partition receives the rows until then.
            Err(error) if store::is_transient(&error) => tracing::warn!(%error, "no new partitions yet"),
            ensured => drop(ensured.context("cannot make partitions")?),
        }
        let vault = data_keys::open(&pool, &master_key, clock.now()).await?;
        Ok(Self { postgres, pool, sending_pool, worker_pool, primary, hosts, reads, vault, clock })
    }

    /// Restarts the embedded Postgres whenever it ends, and adapts its pace. Returns only if a restart fails; never for
    /// another database.
    pub(crate) async fn keep_postgres(&self) -> anyhow::Error {
        let Some(postgres) = &self.postgres else { return std::future::pending().await };
        let mut pace = Pace::new();
        loop {
            tokio::time::sleep(WATCH).await;
            let revived = match postgres.certainly_runs() {
                true => Ok(Ok(false)), // nearly always; saves waking another thread
                false => {
                    let postgres = postgres.clone();
                    spawn_blocking(move || postgres.revive()).await
                }
            };
            match revived {
                // If Postgres ends meanwhile, it is restarted in the next round.
                Ok(Ok(false)) if self.holds_postgres() => drop(timeout(WATCH, pace.keep(&self.pool)).await),
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => tracing::warn!("Postgres had ended and was started again"),
                Ok(Err(error)) => return error.into(),
                Err(panic) => return panic.into(),
            }
        }
    }

    /// Whether this process started the embedded Postgres, because no other server uses its data.
    pub(crate) fn holds_postgres(&self) -> bool {
        self.postgres.as_ref().is_some_and(|postgres| postgres.is_ours())
    }

    pub(crate) fn data(&self, config: &Config) -> String {
        match &self.postgres {
            Some(_) => config.data_dir.display().to_string(),
            None => config.origin("database_url"),
        }
    }

    /// Closes all connections, then stops the embedded Postgres if this process started it. An abandoned statement of
    /// maintenance may still wait for a lock; Postgres rolls it back when it finds the connection closed.
    pub(crate) async fn close(self) {
        let Self { pool, sending_pool, worker_pool, reads, vault, .. } = &self;
        let close = async {
            if let Err(error) = data_keys::count_sealed(pool, vault).await {
                tracing::info!(%error, "values sealed in the last minute were not counted");
            }
            tokio::join!(worker_pool.close(), sending_pool.close(), pool.close(), reads.close())
        };
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

/// Opens the database of a starting process, with retries for half a minute on [transient](store::is_transient) errors.
/// Completed steps stay done. Returns `None` if `shutdown` completes first.
pub(crate) async fn open_when_there(
    config: &Config, migrations: Migrations, mut shutdown: Pin<&mut impl Future<Output = ()>>,
) -> anyhow::Result<Option<Context>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let opened = tokio::select! {
            answers = wait_for_database(config) => match answers {
                Ok(()) => Context::open(config, migrations).await,
                Err(error) => Err(error),
            },
            () = &mut shutdown => return Ok(None),
        };
        match opened {
            // The embedded Postgres has started, so the cause of the error is not a network.
            Err(error)
                if config.database_url.is_some()
                    && store::is_transient_cause(&error)
                    && Instant::now() + 2 * ASK_AGAIN < deadline =>
            {
                tracing::warn!(error = format!("{error:#}"), "opening the database failed, trying again");
                tokio::time::sleep(ASK_AGAIN).await;
            }
            opened => return opened.map(Some),
        }
    }
}

/// Waits until a database that is not embedded responds and confirms commits. After a power failure, or with
/// containers, the server may start faster than its Postgres. Fails after half a minute. Fails at once if Postgres
/// refuses the login, or behind a pooler that does not keep sessions together.
async fn wait_for_database(config: &Config) -> anyhow::Result<()> {
    let Some(hosts) = hosts(config)? else { return Ok(()) };
    let deadline = Instant::now() + PATIENCE;
    let names: Vec<String> = hosts.all().iter().map(host_name).collect();
    let origin = format!("{} at {}", config.origin("database_url"), names.join(", "));
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

/// Waits until Postgres confirms a commit, if commits wait for standbys. Without standbys all writes would hang
/// silently.
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

/// Migrates once no worker of another version is running, and waits for that. A worker that stops removes its
/// registration; the one of a killed worker is removed after some seconds. Fails after half a minute.
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
fn hosts(config: &Config) -> anyhow::Result<Option<DatabaseHosts>> {
    // Errors do not quote the URL, because it contains a password.
    let parse = |url: &Secret| {
        let hosts = DatabaseHosts::parse(url.expose(), For::Writing);
        let hosts = hosts.map_err(|wrong| anyhow!("{} {wrong}", config.origin("database_url")))?;
        Ok(hosts.slow_after(config.slow_statement()))
    };
    config.database_url.as_ref().map(parse).transpose()
}

fn reads(config: &Config, pool: &PgPool, connections: u32) -> anyhow::Result<Reads> {
    let Some(url) = &config.read_database_url else { return Ok(Reads::at(pool.clone())) };
    let hosts = DatabaseHosts::parse(url.expose(), For::Reading)
        .map_err(|wrong| anyhow!("{} {wrong}", config.origin("read_database_url")))?;
    let hosts = hosts.slow_after(config.slow_statement());
    Ok(Reads::or_at(pool.clone(), hosts, connections, config.read_lag_max))
}

/// Refuses a data directory that this user may not read, and names the user who may.
pub(crate) fn refuse_foreign(config: &Config) -> anyhow::Result<()> {
    let data_dir = &config.data_dir;
    let is_denied = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let is_closed = config.database_url.is_none() && std::fs::read_dir(data_dir).is_err_and(is_denied);
    let denied = match config.master_key_source() {
        _ if is_closed => data_dir.clone(),
        MasterKeySource::File(key) if std::fs::File::open(&key).is_err_and(is_denied) => key,
        _ => return Ok(()),
    };
    let owner = denied.ancestors().find_map(|path| std::fs::metadata(path).ok()).map(|found| found.uid());
    let user = owner.and_then(|uid| User::from_uid(Uid::from_raw(uid)).ok().flatten()).map(|user| user.name);
    let user = user.or_else(|| owner.map(|uid| format!("#{uid}"))).unwrap_or_else(|| "root".to_owned());
    bail!(
        "{}: permission denied; run this as the user {user} (`sudo -u {user} …`), or choose another --data-dir",
        denied.display()
    )
}

/// Returns the primary of the configured database, or starts the embedded one.
pub(crate) async fn database(config: &Config) -> anyhow::Result<(Option<Arc<Embedded>>, PgConnectOptions)> {
    if let Some(hosts) = hosts(config)? {
        let options = match hosts.all() {
            [only] => {
                recovery::until_over(only, PATIENCE).await.with_context(|| config.origin("database_url"))?;
                only.clone()
            }
            _ => primary::find(&hosts).await.context("no host of the database can be used")?,
        };
        return Ok((None, options));
    }
    let options = config.postgres_options();
    let postgres = Arc::new(spawn_blocking(move || Embedded::start(&options)).await??);
    let options = slow_after(postgres.connect_options(DATABASE), config.slow_statement());
    Ok((Some(postgres), options))
}
