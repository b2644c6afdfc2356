//! What every command stands on: a Postgres with the right schema, the vault, and the clock.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use sqlx::postgres::{PgConnectOptions, PgPool};
use tokio::task::spawn_blocking;

use crate::clock::Clock;
use crate::config::Config;
use crate::postgres::{DATABASE, Embedded};
use crate::store::{self, data_keys, partitions};
use crate::vault::Vault;

/// How often the embedded Postgres is looked after. Its sessions recover by themselves; only the end of all of Postgres
/// needs us.
const WATCH: Duration = Duration::from_secs(1);

/// What to do about an old schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migrations {
    /// Apply what is missing.
    Apply,
    /// Refuse to go on.
    Check,
}

/// An open database and what belongs to it.
#[derive(Debug)]
pub struct Foundation {
    postgres: Option<Arc<Embedded>>,
    /// Connections to the database.
    pub pool: PgPool,
    /// Connections for the dispatch engine, which plan by index only.
    pub worker_pool: PgPool,
    /// The unlocked data keys.
    pub vault: Vault,
    /// Follows the database's clock.
    pub clock: Clock,
}

impl Foundation {
    /// Starts the embedded Postgres unless there is another one, brings the schema up to date, unlocks the keys.
    pub async fn open(config: &Config, migrations: Migrations) -> anyhow::Result<Self> {
        let (postgres, options) = database(config).await?;
        match migrations {
            Migrations::Apply => store::migrate(&options).await?,
            Migrations::Check => store::check_schema(&options).await?,
        }
        // Half for requests, half for dispatch, so that neither starves the other.
        let half = config.database_connections.div_ceil(2);
        let pool = store::connect(options.clone(), half).await.context("cannot connect to the database")?;
        let worker_pool = store::connect(store::by_index_only(options), half).await?;
        let clock = Clock::system();
        clock.follow(store::database_now(&pool).await?);
        match partitions::ensure(&pool, clock.now()).await {
            // Somebody holds locks: maintenance comes back to it, and the default partition takes what comes meanwhile.
            Err(error) if store::is_transient(&error) => tracing::warn!(%error, "no new partitions yet"),
            ensured => drop(ensured.context("cannot make partitions")?),
        }
        let vault = data_keys::open(&pool, &config.master_key_source(), clock.now()).await?;
        Ok(Self { postgres, pool, worker_pool, vault, clock })
    }

    /// Starts the embedded Postgres again whenever it ends. Is ready only when that fails; never without an embedded one.
    pub async fn keep_postgres(&self) -> anyhow::Error {
        let Some(postgres) = &self.postgres else { return std::future::pending().await };
        loop {
            tokio::time::sleep(WATCH).await;
            let postgres = postgres.clone();
            match spawn_blocking(move || postgres.revive()).await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => tracing::warn!("Postgres had ended and was started again"),
                Ok(Err(error)) => return error.into(),
                Err(panic) => return panic.into(),
            }
        }
    }

    /// Where the data is, in words.
    pub fn data(&self, config: &Config) -> String {
        match &self.postgres {
            Some(_) => config.data_dir.display().to_string(),
            None => "DATABASE_URL".to_owned(),
        }
    }

    /// Closes all connections, then stops the embedded Postgres if this process started it.
    pub async fn close(self) {
        self.worker_pool.close().await;
        self.pool.close().await;
        if let Some(postgres) = self.postgres
            && let Err(panic) = spawn_blocking(move || postgres.stop()).await
        {
            tracing::error!(%panic, "Postgres was not stopped");
        }
    }
}

/// The configured database, or the embedded one, started.
pub async fn database(config: &Config) -> anyhow::Result<(Option<Arc<Embedded>>, PgConnectOptions)> {
    if let Some(url) = &config.database_url {
        // The parser's error could quote the URL, which holds a password.
        let options = url.expose().parse().map_err(|_| anyhow::anyhow!("DATABASE_URL is not a valid Postgres URL"))?;
        return Ok((None, options));
    }
    let options = config.postgres_options();
    let postgres = Arc::new(spawn_blocking(move || Embedded::start(&options)).await??);
    let options = postgres.connect_options(DATABASE);
    Ok((Some(postgres), options))
}
